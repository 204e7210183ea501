"""Worker processes of a comparison: start, command, stop, resume and end them.

A fork server for each runtime, preloaded with onnxruntime, forks a worker per contestant; several comparisons
may share them.
GPU providers and PyTorch, which must not be forked, and systems that cannot fork use a fresh process. A
worker that is not measuring is stopped with SIGSTOP, because the idle threads of ONNX Runtime spin long after
a run. This module knows the commands that open files, because the sandbox of a worker opens that worker's own
folder only. Every process ends with `Workers`, a context manager, or with the parent; a shared fork server
outlives the comparisons, and ends with `SharedForkServer`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import psutil

from core import wire
from core.process import scratch
from core.process.confinement import confined_load, fork_server_rules, marked
from core.process.job_worker import (
    crash_error,
    external_locations,
    last_words,
    not_started,
    shortened,
    worker_command,
    worker_environment,
)
from core.process.reply_checks import check_times, checked_reply
from core.process.time_limit import TimeLimit
from core.process.worker_output import take
from core.process.worker_watch import Watch
from core.wire import Reply, sandbox
from core.wire.channel import BrokenChannel, RequestChannel
from core.wire.errors import TMPDIR_HINT, Cancelled, TunerError, WorkerError
from core.wire.runtime import OWN

START_S = 60.0  # to load numpy and onnxruntime on a busy machine
FREEZE_S = 2.0  # time limit for a process to stop
FREEZE_POLL_S = 0.0001  # slept, so that on a busy machine the worker gets a CPU to stop on
TICK_S = 0.1  # how late a cancel is noticed
REAP_S = 2.0
CHUNK_BYTES = 1 << 16
STDERR_TAIL_BYTES = 4096


def can_fork() -> bool:
    """Whether this system offers what the fork server needs."""
    return hasattr(os, "fork") and hasattr(socket, "send_fds")


class _WorkerChannel:
    """Requests and replies over a socket, with a deadline and cancellation."""

    def __init__(self, end: socket.socket, cancel: threading.Event) -> None:
        self.socket = end
        self.cancel = cancel
        self.paused_s = 0.0  # in which this process was stopped while it waited for the last reply
        self.channel_state = RequestChannel()
        self._readable = select.poll()  # `select` refuses descriptors from 1024 on, which a server reaches
        self._readable.register(end, select.POLLIN)

    def send(self, do: str, arguments: Mapping[str, Any], fds: tuple[int, ...] = ()) -> None:
        data = self.channel_state.request(do, arguments)
        self.socket.settimeout(START_S)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end is noticed by `receive`
            sent = socket.send_fds(self.socket, [data], list(fds)) if fds else 0
            self.socket.sendall(data[sent:])

    def receive(self, timeout_s: float, on_tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Return the reply to the last request; `on_tick` is called at every look, and may raise.

        Raises:
            Cancelled: `cancel` was set.
            TimeoutError: no reply came in time.
            Broken: the other side is gone, or sent an invalid message.
            TunerError: the error that it replied with.
        """
        limit = TimeLimit(timeout_s)
        self.paused_s = 0.0
        while (reply := self.channel_state.reply()) is None:
            if self.cancel.is_set():
                raise Cancelled(
                    "The comparison was cancelled.", hint="Start it again when you want its result."
                )
            left = limit.left_s()
            if left <= 0:
                raise TimeoutError
            on_tick()
            if self._readable.poll(1000 * min(left, TICK_S)):
                try:
                    self.channel_state.receive_bytes(self.socket.recv(CHUNK_BYTES))
                except ConnectionResetError:
                    self.channel_state.receive_bytes(b"")
        limit.left_s()
        self.paused_s = limit.paused_s
        return reply


class Worker:
    """One contestant process: it runs one command at a time and is stopped (SIGSTOP) in between."""

    def __init__(
        self,
        owner: Workers,
        label: str,
        pid: int,
        end: socket.socket,
        stderr: IO[bytes],
        writes: Sequence[str] = (),
    ) -> None:
        self.label = label
        self.pid = pid
        self._files = contextlib.ExitStack()
        self.folder = self._files.enter_context(_folder())
        self._writes = writes
        self._owner = owner
        self._line = _WorkerChannel(end, owner.cancel)
        self._stderr = stderr
        self._frozen = False
        self._watch = Watch(pid, [str(self.folder or "")], log=self._log_bytes)
        self._loaded_s = 0.0  # how long its load took
        self.alive = True

    def ask(self, command: wire.Request[Reply], arguments: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """Resume the worker, run `command`, and return its reply.

        Raises:
            Cancelled: the comparison was cancelled meanwhile.
            WorkerError: the worker crashed, hung or sent an invalid reply; it has ended then.
            TunerError: the error that it reported; the worker stays alive.
        """
        arguments, target = self._confined(command, arguments)
        self.thaw()
        began = time.monotonic()
        self._line.send(command, arguments)
        try:
            reply = self._line.receive(timeout_s, self._look)
        except BrokenChannel as broken:
            raise self._died(command, broken.noise) from None
        except TimeoutError:
            self.kill()
            raise WorkerError(
                f"The worker of `{self.label}` did not finish `{command}` within {timeout_s:.0f} s.",
                hint="Raise the time limit (`timeout_s`), or use a smaller batch.",
            ) from None
        self._owner.paused_s += self.paused_s
        waited_s, who = time.monotonic() - began, f"The worker of `{self.label}`"
        if command == wire.LOAD:
            self._loaded_s = waited_s
        try:
            found = checked_reply(reply, command, who, arguments)
            check_times(found, command, waited_s, who, loaded_s=self._loaded_s)
        except WorkerError:
            self.kill()
            raise
        if target is not None:
            take(Path(arguments["path"]), target)
        return cast(Reply, marked(found)) if command == wire.LOAD else found

    @property
    def paused_s(self) -> float:
        """Seconds in which ORTune was stopped during the last command, and perhaps the worker with it."""
        return self._line.paused_s

    def _look(self) -> None:
        try:
            self._watch.look()
        except WorkerError:
            self.kill()
            raise

    def _confined(self, command: str, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], Path | None]:
        """Return the arguments with the worker's own files, and where to move what it writes."""
        if command == wire.LOAD and not sandbox.is_off():
            locations = partial(external_locations, cancel=self._owner.cancel)
            sent = confined_load(arguments, str(self.folder or ""), locations, self._writes)
            self._watch.processes = sent[sandbox.KEY]["processes"]
            return sent, None
        if command in (wire.SAVE_OUTPUTS, wire.COMPARE_OUTPUTS):
            if self.folder is None:
                raise WorkerError("There is no space for the outputs of a run.", hint=TMPDIR_HINT)
            own, named = self.folder / "outputs.npz", Path(arguments["path"])
            if command == wire.SAVE_OUTPUTS:
                return {"path": str(own)}, named
            _copy(named, own)
            return {"path": str(own)}, None
        return arguments, None

    def _died(self, command: str, noise: bytes | None) -> TunerError:
        status = self._owner.exit_status(self) if noise is None else None
        said = last_words(self._stderr_tail())
        self.kill()
        if status is not None and status < 0:
            return crash_error(f"{self.label}", -status, f"; it was at `{command}`", said)
        if noise is not None:
            what = f"answered `{shortened(noise)}`"
        else:  # the code is lost with the process that started the worker
            what = "ended" if status is None else f"ended with exit code {status}"
        return WorkerError(
            f"The worker of `{self.label}` {what} at `{command}`.{said}",
            hint="Check the installation with `ortune machine`.",
        )

    def _log_bytes(self) -> int:
        return os.fstat(self._stderr.fileno()).st_size

    def _stderr_tail(self) -> bytes:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
        return self._stderr.read()

    def freeze(self) -> bool:
        """Stop all its threads (SIGSTOP); False: it cannot be stopped, and keeps running."""
        if not self.alive or self._frozen:
            return True
        if not _signal_group(self.pid, signal.SIGSTOP):
            return False
        deadline = time.monotonic() + FREEZE_S
        while not _is_stopped(self.pid):
            if time.monotonic() > deadline:
                _signal_group(self.pid, signal.SIGCONT)
                return False
            time.sleep(FREEZE_POLL_S)
        self._frozen = True
        return True

    def thaw(self) -> None:
        """Resume all its threads (SIGCONT)."""
        if self._frozen:
            self._frozen = False
            _signal_group(self.pid, signal.SIGCONT)

    def end_hung(self) -> None:
        """Kill the process while another thread waits for its reply, which then fails."""
        _signal_group(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it at once, stopped or not, and close its files."""
        if self.alive:
            self.alive = False
            try:
                self._owner.end(self)
            finally:
                self._line.socket.close()
                self._stderr.close()
                self._files.close()


@contextlib.contextmanager
def _folder() -> Iterator[Path | None]:
    """A folder for a worker's files; None on a full disk, where most need none."""
    with contextlib.ExitStack() as ends:
        try:
            found = ends.enter_context(scratch.folder())
        except OSError:
            found = None
        yield found


def _copy(outputs: Path, own: Path) -> None:
    """Copy the outputs of another worker into a worker's folder; missing ones are told by the worker."""
    try:
        shutil.copyfile(outputs, own, follow_symlinks=False)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WorkerError(
            f"The outputs `{outputs}` cannot be copied: {error.strerror or error}.", hint=TMPDIR_HINT
        ) from error


def _signal_group(pid: int, number: int) -> bool:
    """Signal a worker and its children; False where that is not allowed or it is gone."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # not yet the leader of a group of its own
        try:
            os.kill(pid, number)
        except OSError:
            return False
    except OSError:
        return False
    return True


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        pass
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return True  # gone, so nothing of it runs


class Workers:
    """All live workers of one comparison; the end of the `with` ends every one of them."""

    def __init__(self, cancel: threading.Event, fork_server: SharedForkServer | None = None) -> None:
        """Start nothing yet.

        Args:
            cancel: ends every wait for a worker.
            fork_server: shared fork server, which outlives the workers; None: a fork server of their own.
        """
        self.cancel = cancel
        self.paused_s = 0.0  # in which this process was stopped while it waited for a reply
        self.pids: set[int] = set()  # of all processes that were ever started, and the fork server's
        self._live: dict[int, Worker] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # those that were not forked, by process id
        self._files = contextlib.ExitStack()
        self._fork_server = fork_server or self._files.enter_context(SharedForkServer())
        self._servers: dict[str, _ForkServer] = {}  # by runtime
        self._forked_by: dict[int, _ForkServer] = {}  # by process id

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as ends:  # all of them run, even if one raises
            ends.callback(self._files.close)  # with a fork server of its own
            for process in self._processes.values():
                if process.stdin is not None:
                    ends.callback(process.stdin.close)
            for worker in list(self._live.values()):
                ends.callback(worker.kill)

    def start(
        self, label: str, *, fresh_process: bool = False, runtime: str = OWN, writes: Sequence[str] = ()
    ) -> Worker:
        """Start a worker that waits for its first command.

        Args:
            label: of the contestant, for messages.
            fresh_process: not forked, as GPU libraries and PyTorch need it.
            runtime: the runtime that it runs in, see `runtimes`.
            writes: existing files that it writes beside those of its own folder.

        Raises:
            SpecError: there is no such runtime.
            WorkerError: the process could not be started.
        """
        try:
            return self._start(label, runtime, writes, fresh_process=fresh_process)
        except OSError as error:
            raise not_started(error) from error

    def _start(self, label: str, runtime: str, writes: Sequence[str], *, fresh_process: bool) -> Worker:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                stderr = self._files.enter_context(tempfile.TemporaryFile(prefix="ortune-"))  # noqa: SIM115
                if fresh_process or not can_fork():
                    process = _start(wire.CONTESTANT, theirs, stderr, runtime)
                    pid = process.pid
                    self._processes[pid] = process
                else:
                    if (server := self._servers.get(runtime)) is None:
                        server = self._servers[runtime] = self._fork_server.server(self.cancel, runtime)
                        self.pids.add(server.pid)
                    pid = server.fork(theirs, stderr)
                    self._forked_by[pid] = server
        except BaseException:
            ours.close()
            raise
        self.pids.add(pid)
        worker = Worker(self, label, pid, ours, stderr, writes)
        self._live[pid] = worker
        return worker

    def end(self, worker: Worker) -> None:
        """Kill a worker and wait until it is gone."""
        if self._live.pop(worker.pid, None) is None:
            return
        _signal_group(worker.pid, signal.SIGKILL)
        self.exit_status(worker)
        process = self._processes.pop(worker.pid, None)
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def exit_status(self, worker: Worker) -> int | None:
        """Return the status of a worker that is exiting (negative: the signal); None: it does not exit."""
        process = self._processes.get(worker.pid)
        if process is not None:
            try:
                status: int | None = process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                return None
        else:
            status = self._forked_by[worker.pid].exit_status(worker.pid)
        if status is not None:
            self._live.pop(worker.pid, None)
        return status


class SharedForkServer:
    """Fork servers for successive comparisons: the first that needs one starts it, `close` ends them all."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._servers: dict[str, _ForkServer] = {}  # by runtime

    def __enter__(self) -> SharedForkServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def server(self, cancel: threading.Event, runtime: str = OWN) -> _ForkServer:
        """Return a runtime's fork server, for a comparison that `cancel` ends; a new one if it has failed.

        Raises:
            SpecError: there is no such runtime.
            WorkerError: it could not be started.
        """
        server = self._servers.get(runtime)
        if server is not None and not server.is_usable:
            self._servers.pop(runtime).close()
            server = None
        if server is None:
            server = self._servers[runtime] = _ForkServer(cancel, runtime)
        server.use_cancel(cancel)
        return server

    def close(self) -> None:
        """End them, with every worker that they forked and that still lives."""
        with contextlib.ExitStack() as ends:  # all of them end, even if one raises
            for server in self._servers.values():
                ends.callback(server.close)
            self._servers = {}


class _ForkServer:
    """The process that loads the libraries once and forks the workers."""

    def __init__(self, cancel: threading.Event, runtime: str) -> None:
        self._failed = False
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as opened:  # closed where there is no such runtime, or no process
            opened.callback(ours.close)
            with theirs:
                self._stderr = opened.enter_context(tempfile.TemporaryFile(prefix="ortune-"))
                self._process = _start(wire.FORKSERVER, theirs, self._stderr, runtime)
            opened.pop_all()
        self._line = _WorkerChannel(ours, cancel)
        try:
            self._receive(START_S)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it is alive and has replied to every request."""
        return not self._failed and self._process.poll() is None

    def use_cancel(self, cancel: threading.Event) -> None:
        """Let `cancel` end every later wait for a reply."""
        self._line.cancel = cancel

    def fork(self, channel: socket.socket, stderr: IO[bytes]) -> int:
        return self._ask(wire.FORK, {}, START_S, (channel.fileno(), stderr.fileno()))["pid"]

    def exit_status(self, pid: int) -> int | None:
        deadline, pause = time.monotonic() + REAP_S, 0.0005
        cancel, self._line.cancel = self._line.cancel, threading.Event()  # also when cancelled
        try:
            while time.monotonic() < deadline:
                status = self._ask(wire.REAP, {"pid": pid}, REAP_S)["status"]
                if status is not None:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(pause)
                pause = min(pause * 2, 0.02)
        except TunerError:
            return None  # the server is gone, and its children with it
        finally:
            self._line.cancel = cancel
        return None

    def _ask(
        self,
        do: wire.Request[Reply],
        arguments: Mapping[str, Any],
        timeout_s: float,
        fds: tuple[int, ...] = (),
    ) -> Reply:
        self._failed = True  # until it has replied
        self._line.send(do, arguments, fds)
        reply = checked_reply(self._receive(timeout_s), do, "The process that starts the workers")
        self._failed = False
        return reply

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            return self._line.receive(timeout_s)
        except (BrokenChannel, TimeoutError):
            self._stderr.seek(0)
            said = last_words(self._stderr.read()[-STDERR_TAIL_BYTES:])
            raise WorkerError(
                f"The process that starts the workers is gone or hangs.{said}",
                hint="Free memory or processes on this machine and try again.",
            ) from None

    def close(self) -> None:
        self._line.socket.close()  # makes it kill its children and exit
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            _signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._stderr.close()


def _start(
    job: wire.Request[Any], channel: socket.socket, stderr: IO[bytes], runtime: str
) -> subprocess.Popen[bytes]:
    """Start a worker with `job` in a runtime; its stdin stays open until the parent ends."""
    try:
        process = subprocess.Popen(
            worker_command(runtime),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=worker_environment(runtime=runtime) | {"PYTHONHASHSEED": "0"},
            pass_fds=(channel.fileno(),),
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise not_started(error) from error
    assert process.stdin is not None
    asked: dict[str, Any] = {"fd": channel.fileno()}
    if not sandbox.is_off():
        asked[sandbox.KEY] = fork_server_rules()
    process.stdin.write(RequestChannel().request(job, asked))
    return process
