"""Streams that are processes: this process and its siblings, each with its own session and its own CPUs.

The first stream forks the others before it has a session, because native threads do not survive a fork. All
are in one process group, so a signal of the parent to the group reaches every one, and a sibling dies with
the first stream. The siblings obey commands over a socket each; a page of shared memory starts their blocks
together and ends them together, because a message takes longer than a short run.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, cast

from core import wire
from core.wire.channel import BrokenChannel, RequestChannel
from core.wire.errors import WorkerError
from core.worker import lifeline
from core.worker.measure.counters import Meter
from core.worker.measure.memory_layout import MemoryLayout, at_depth
from core.worker.measure.streams import StreamBlock, StreamRuns, loop, time_refill
from core.worker.measure.timing import Call

RUN, CPU_TIME, MEMORY = "run", "cpu_time", "memory"  # commands of a sibling beside those of a contestant
_CHUNK_BYTES = 1 << 16
_CHECK_NS = 20_000_000  # how often the first stream looks whether a sibling that it waits for lives
_READY, _DONE = 0, mmap.PAGESIZE // 2  # offsets: a byte for each stream
_END_S = 1.0  # for a sibling to end; the parent kills the whole group soon after
_TURNS = 250  # a block's number, 1 to this, fits into a byte
_SUMS = ("cpu_s", "involuntary_switches", "major_faults", "wait_s", "steal_s", "busy_s")


class Meeting:
    """The page of shared memory by which the streams of a block start and end together."""

    def __init__(self, count: int) -> None:
        """Map it; every process that is forked from now on shares it."""
        self.count = count
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def arrive(self, index: int, turn: int, check: Callable[[], None]) -> None:
        """Wait until every stream has arrived; `check` is called now and then, and may raise."""
        self._page[_READY + index] = turn
        all_of_them, checked_ns = bytes([turn]) * self.count, time.perf_counter_ns()
        while self._page[_READY : _READY + self.count] != all_of_them:
            os.sched_yield()
            if time.perf_counter_ns() - checked_ns > _CHECK_NS:
                check()
                checked_ns = time.perf_counter_ns()

    def leave(self, index: int, turn: int) -> None:
        """Say that a stream failed or has done enough, so that no other waits for it."""
        self._page[_READY + index] = self._page[_DONE + index] = turn

    def are_done(self, turn: int) -> bool:
        """Whether every stream has done enough."""
        return bool(self._page[_DONE : _DONE + self.count] == bytes([turn]) * self.count)


@dataclass(slots=True)
class _Finish:
    """The end of one stream's part of a block, as `streams.Finish`."""

    meeting: Meeting
    index: int
    turn: int
    check: Callable[[], None]
    checked_ns: int = 0

    def reach(self) -> None:
        self.meeting.leave(self.index, self.turn)
        self.checked_ns = time.perf_counter_ns()

    def is_over(self) -> bool:
        if self.meeting.are_done(self.turn):
            return True
        if (now := time.perf_counter_ns()) - self.checked_ns > _CHECK_NS:
            self.check()
            self.checked_ns = now
        return False


def _no_check() -> None:
    """A sibling dies with the first stream, so it need not look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A block that all streams run."""

    turn: int  # its number, see `Siblings.next_turn`
    block_ns: int
    min_runs: int
    refill: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One stream in its own process."""

    call: Call
    meter: Meter
    layout: MemoryLayout
    meeting: Meeting
    index: int
    check: Callable[[], None] = _no_check  # raises where another stream has died

    def run(self, order: Order) -> tuple[StreamRuns, wire.Counters]:
        """Run this stream's part of a block."""
        finish = _Finish(self.meeting, self.index, order.turn, self.check)
        self.meter.start()
        try:
            refill_ns = time_refill(self.call) if order.refill else None
            self.meeting.arrive(self.index, order.turn, self.check)
            starts, ends = at_depth(
                self.layout.stack_frames,
                lambda: loop(self.call, block_ns=order.block_ns, min_runs=order.min_runs, finish=finish),
            )
        finally:
            self.meeting.leave(self.index, order.turn)
        counters = self.meter.stop()
        return StreamRuns(refill_ns=refill_ns, starts_ns=starts, ends_ns=ends), counters


def add_counters(all_of_them: Sequence[wire.Counters]) -> wire.Counters:
    """Return the counters of several processes that ran at the same time on disjoint CPUs.

    Times and events of a process and its CPUs add up; the rest is that of the first, which stands for all.
    """
    total: dict[str, Any] = dict(all_of_them[0])
    for name in _SUMS:
        values = [cast(Mapping[str, Any], one)[name] for one in all_of_them]
        total[name] = None if None in values else sum(values)
    return cast(wire.Counters, total)


# -- the siblings of the first stream ----------------------------------------------------------------------


class Siblings:
    """The other streams, by the first one."""

    def __init__(self, count: int, serve: Callable[[int, int, Meeting], None]) -> None:
        """Fork the siblings; this process must have a single thread.

        Args:
            count: of all streams, 2 or more.
            serve: runs in each sibling with the descriptor of its socket, its number and the meeting.

        Raises:
            WorkerError: this system cannot fork.
        """
        if not hasattr(os, "fork"):
            raise WorkerError(
                "Streams of the type `processes` need a system that can fork.",
                hint="Use `stream_type` threads.",
            )
        self.count = count
        self.meeting = Meeting(count)
        self._turn = 0
        self._lines: list[_Line] = []
        for index in range(1, count):
            self._lines.append(self._fork(index, serve))

    def _fork(self, index: int, serve: Callable[[int, int, Meeting], None]) -> _Line:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become_stream(theirs, index, self.meeting, serve, parent)
        theirs.close()
        return _Line(index, pid, ours)

    def ask(self, command: str, arguments: Sequence[Mapping[str, Any]]) -> Callable[[], list[Any]]:
        """Send each sibling a command with its own arguments; the returned function waits for the replies.

        That function raises the first error of a sibling, or a WorkerError where one has died.
        """
        for line, one in zip(self._lines, arguments, strict=True):
            line.send(command, one)
        return lambda: [line.receive() for line in self._lines]

    def ask_all(self, command: str, arguments: Mapping[str, Any]) -> Callable[[], list[Any]]:
        """Send every sibling the same command; see `ask`."""
        return self.ask(command, [arguments] * len(self._lines))

    def check(self) -> None:
        """Raise WorkerError where a sibling has died."""
        for line in self._lines:
            line.check()

    def next_turn(self) -> int:
        """Return the number of the next block."""
        self._turn = self._turn % _TURNS + 1
        return self._turn

    def end(self) -> None:
        """Kill and reap every sibling."""
        for line in self._lines:
            line.end()


class _Line:
    """The socket to a sibling."""

    def __init__(self, index: int, pid: int, end: socket.socket) -> None:
        self.index = index
        self.pid = pid
        self._socket = end
        self._channel = RequestChannel()

    def send(self, command: str, arguments: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # noticed by `receive`
            self._socket.sendall(self._channel.request(command, arguments))

    def receive(self) -> dict[str, Any]:
        try:
            while (reply := self._channel.reply()) is None:
                with contextlib.suppress(ConnectionResetError):
                    self._channel.receive_bytes(self._socket.recv(_CHUNK_BYTES))
                    continue
                self._channel.receive_bytes(b"")
        except BrokenChannel:
            raise self._died() from None
        return reply

    def check(self) -> None:
        """Raise WorkerError if the sibling has died; a reply of it stays in the socket."""
        if select.select([self._socket], [], [], 0)[0]:
            with contextlib.suppress(ConnectionResetError):
                if self._socket.recv(1, socket.MSG_PEEK):
                    return
            raise self._died()

    def _died(self) -> WorkerError:
        how = "ended"
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(self.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            how = (
                f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            )
        memory = " The kernel may have run out of memory." if "SIGKILL" in how else ""
        return WorkerError(
            f"The process of stream {self.index + 1} {how}.{memory}",
            hint="Use fewer streams, or `stream_type` threads, which share one session.",
        )

    def end(self) -> None:
        """End the sibling: at once where the sandbox allows the signal, else after its command."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_S
        with contextlib.suppress(ChildProcessError):
            while not os.waitpid(self.pid, os.WNOHANG)[0] and time.monotonic() < deadline:
                time.sleep(0.001)


def _become_stream(
    channel: socket.socket,
    index: int,
    meeting: Meeting,
    serve: Callable[[int, int, Meeting], None],
    parent: int,
) -> NoReturn:
    """Serve as a sibling to the end of the process; no code of the first stream may run in it."""
    status = 1
    try:
        lifeline.die_with_parent(parent)
        descriptor = channel.detach()
        lifeline.close_descriptors(keep=descriptor)
        serve(descriptor, index, meeting)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


class Processes:
    """The first stream with its siblings, as `streams.Streams`."""

    def __init__(self, call: Call, layout: MemoryLayout, meter: Meter, siblings: Siblings) -> None:
        """Take over siblings that have loaded their sessions."""
        self._siblings = siblings
        self._part = Part(call, meter, layout, siblings.meeting, 0, siblings.check)

    def run(self, *, block_ns: int, min_runs: int, refill: bool) -> StreamBlock:
        """Run a closed loop in every stream; see `streams.Streams`."""
        turn = self._siblings.next_turn()
        order = Order(turn=turn, block_ns=block_ns, min_runs=min_runs, refill=refill)
        replies = self._siblings.ask_all(RUN, asdict(order))
        own, counters = self._part.run(order)
        found = replies()
        others = [
            StreamRuns(refill_ns=one["refill_ns"], starts_ns=one["starts_ns"], ends_ns=one["ends_ns"])
            for one in found
        ]
        return StreamBlock(
            streams=[own, *others], counters=add_counters([counters, *(one["counters"] for one in found)])
        )
