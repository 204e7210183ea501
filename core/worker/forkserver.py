"""The job `forkserver`: a process that preloads all libraries and forks contestants.

A forked contestant starts in milliseconds, because numpy and onnxruntime are in memory already. The
server never creates a session: native threads and locks would not survive the fork. It has a single thread,
which waits for requests on an inherited socket. When that socket or stdin ends, the parent has exited, and
the server kills and reaps every contestant. It obeys `wire.FORK`, which carries two descriptors (the
contestant's channel and its log), and `wire.REAP`. It reports that it is ready without a request.

The server replies to a fork only after the child is tied to it (`die_with_parent`). The parent may freeze a
child as soon as it knows it, and a child frozen before that call would outlive the server.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import selectors
import signal
import socket
import sys
import traceback
from typing import NoReturn

from core import wire
from core.wire.channel import Command, LineSplitter, line, obey
from core.wire.errors import WorkerError
from core.worker import lifeline

_CHUNK_BYTES = 1 << 16


def serve(descriptor: int) -> None:
    """Preload the libraries, report ready, and obey requests until the parent exits.

    Args:
        descriptor: an inherited Unix stream socket.
    """
    _preload()
    lifeline.adopt_orphans()
    with socket.socket(fileno=descriptor) as channel:
        server = _Server(channel)
        signal.signal(signal.SIGTERM, server.leave)
        try:
            channel.sendall(line({"ok": {}}))
            server.obey()
        except OSError:  # the parent has exited
            pass
        finally:
            server.end_all()


def _preload() -> None:
    """Import all that a contestant uses; freeze the objects so that the collector copies no page of them."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads, which a fork does not copy
    gc.disable()
    from core.worker.measure import contestant  # noqa: F401 - brings numpy, onnxruntime, sessions and feeds

    gc.collect()
    gc.freeze()
    gc.enable()


class _Server:
    """The requests of one parent, and the contestants not reaped yet."""

    def __init__(self, channel: socket.socket) -> None:
        self._pid = os.getpid()
        self._channel = channel
        self._requests = LineSplitter()
        self._descriptors: list[int] = []  # received, not used yet
        self._children: dict[int, int | None] = {}  # pid -> wait status; None while it lives
        self._commands: dict[str, Command] = {wire.FORK: self._fork, wire.REAP: self._reap}

    def obey(self) -> None:
        """Handle requests until the socket or stdin ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(0, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if 0 in ready and not os.read(0, _CHUNK_BYTES):
                    return
                if self._channel.fileno() in ready and not self._receive():
                    return

    def end_all(self) -> None:
        """Kill and reap every living contestant with the processes of its streams, stopped or not."""
        living = [pid for pid, status in self._children.items() if status is None]
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in living:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
                while True:  # the orphans of its group
                    os.waitpid(-pid, 0)

    def leave(self, *_: object) -> None:
        """Exit at once; a signal handler, which a forked child briefly inherits."""
        if os.getpid() == self._pid:
            self.end_all()
        os._exit(128 + signal.SIGTERM)

    def _receive(self) -> bool:
        """Read the available bytes and answer every complete line; False at the end of the socket."""
        data, descriptors, _, _ = socket.recv_fds(self._channel, _CHUNK_BYTES, 8)
        self._descriptors += descriptors
        for request in self._requests.complete_lines(data):
            obey(request, self._commands, self._channel.sendall, who="fork server")
        return bool(data)

    def _fork(self, arguments: wire.EmptyReply, progress: wire.Progress) -> wire.ForkReply:
        given, self._descriptors = self._descriptors[:2], self._descriptors[2:]
        try:
            if len(given) != 2:
                raise WorkerError(
                    f"A worker needs two descriptors, its channel and its log, but got {len(given)}.",
                    hint="Start workers through ORTune's commands.",
                )
            tied, tie = os.pipe()
            try:
                pid = os.fork()
                if pid == 0:
                    _become_contestant(*given, server=self._pid, tie=tie)
                self._children[pid] = None
            finally:
                os.close(tie)
                with open(tied, "rb", buffering=0) as wait:  # noqa: PTH123 - a descriptor
                    wait.read(1)  # until the child is tied to the server, or has exited
            return {"pid": pid}
        finally:
            for descriptor in given:
                os.close(descriptor)

    def _reap(self, child: wire.ForkReply, progress: wire.Progress) -> wire.ReapReply:
        pid = child["pid"]
        if pid not in self._children:
            raise WorkerError(
                f"The fork server has no worker with the process ID {pid}.",
                hint="Start workers through ORTune's commands.",
            )
        if self._children[pid] is None:
            reaped, status = os.waitpid(pid, os.WNOHANG)
            self._children[pid] = status if reaped else None
        if self._children[pid] is not None and _has_orphans(pid):
            return {"status": None}  # its streams die with it, and their memory is free only then
        return {"status": self._children[pid]}


def _has_orphans(group: int) -> bool:
    """Reap the ended processes of a contestant's group; return whether one still lives."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
        return True
    return False


def _become_contestant(channel: int, log: int, *, server: int, tie: int) -> NoReturn:
    """Run the contestant in the forked process, to its end; no code of the server may run in it."""
    status = 1
    try:
        os.setpgid(0, 0)
        lifeline.die_with_parent(server)
        os.write(tie, b"1")
        lifeline.set_oom_victim()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _keep_only(channel, log)
        faulthandler.enable(file=2)
        _serve_contestant(channel)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _keep_only(channel: int, log: int) -> None:
    """Close every descriptor of the server; the log replaces standard output and standard error."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, descriptor)
    lifeline.close_descriptors(keep=channel)


def _serve_contestant(channel: int) -> None:
    import numpy as np

    from core.worker.measure.contestant import serve

    np.random.seed()  # libraries share this state: two forked contestants must not draw the same
    serve(channel)
