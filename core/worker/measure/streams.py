"""Several callers at the same time: a closed loop in each stream, counted over their common window.

A stream calls, and calls again as soon as the result is there. Throughput is the number of runs in the common
window, from the latest first start to the earliest last end, in which every stream is busy; a run that
crosses an edge counts in part. This module has the loop, the count, and streams that are threads of one
session; `stream_processes` has streams that are processes. Standard library only.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core import wire
from core.wire.errors import WorkerError
from core.worker.measure.counters import Meter
from core.worker.measure.memory_layout import MemoryLayout, at_depth
from core.worker.measure.timing import Call

Stamps = list[int]  # nanoseconds of the clock


class Finish(Protocol):
    """How streams learn that all of them have done enough."""

    def reach(self) -> None:
        """Say that this stream has done enough; called once."""

    def is_over(self) -> bool:
        """Whether every stream has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRuns:
    """The runs of one stream, in order. Both stamps are of one clock that all streams share."""

    refill_ns: int | None  # duration of the uncounted first run; None: there was none
    starts_ns: Stamps
    ends_ns: Stamps

    @property
    def latencies_ns(self) -> list[int]:
        """Duration of each run."""
        return [end - start for start, end in zip(self.starts_ns, self.ends_ns, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBlock:
    """A block of several streams: the runs of each, and the counters of all their processes together."""

    streams: list[StreamRuns]
    counters: wire.Counters


class Streams(Protocol):
    """Streams that wait for the next block."""

    def run(self, *, block_ns: int, min_runs: int, refill: bool) -> StreamBlock:
        """Run a closed loop in every stream until each has done `min_runs` and `block_ns` have passed.

        Raises:
            TunerError: a stream failed; all others have ended their loops.
        """


def loop(
    call: Call,
    *,
    block_ns: int,
    min_runs: int,
    finish: Finish,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> tuple[Stamps, Stamps]:
    """Call `call` until every stream has made `min_runs` and seen `block_ns` pass; return starts and ends.

    Raises:
        WorkerError: the clock went backwards.
    """
    starts: Stamps = []
    ends: Stamps = []
    start, end = starts.append, ends.append
    reached, done, until = False, 0, clock() + block_ns
    while True:
        began = clock()
        call()
        now = clock()
        start(began)
        end(now)
        done += 1
        if not reached and now >= until and done >= min_runs:
            finish.reach()
            reached = True
        if now < began:
            raise WorkerError(
                "The clock went backwards while a block was timed.",
                hint="Run it again; on a virtual machine, choose another clock source for its kernel.",
            )
        if reached and finish.is_over():
            return starts, ends


def common_window(streams: Sequence[StreamRuns]) -> tuple[int, int]:
    """Return the window in which every stream is busy: from the latest first start to the earliest last end.

    It is empty where a stream had no CPU for the whole block, which then does not count.
    """
    start = max(one.starts_ns[0] for one in streams)
    return start, max(start, min(one.ends_ns[-1] for one in streams))


def completed(one: StreamRuns, window: tuple[int, int]) -> float:
    """Return the runs of a stream in a window; a run that crosses an edge counts with the share inside."""
    first, last = window
    total = 0.0
    for start, end in zip(one.starts_ns, one.ends_ns, strict=True):
        if first <= start and end <= last:
            total += 1
        elif end > first and start < last:
            total += (min(end, last) - max(start, first)) / (end - start)
    return total


# -- threads of one session --------------------------------------------------------------------------------


class _CountDown:
    """A `Finish` of threads. Removing an item of a list is atomic, so no lock slows the loop."""

    def __init__(self, count: int) -> None:
        self._left = [None] * count

    def reach(self) -> None:
        try:
            self._left.pop()
        except IndexError:  # another stream failed
            return

    def is_over(self) -> bool:
        return not self._left

    def end(self) -> None:
        """End all streams, because one of them failed."""
        self._left.clear()


@dataclass(slots=True)
class _Order:
    """What every thread does next; `found` and `failures` are by stream."""

    block_ns: int
    min_runs: int
    refill: bool
    finish: _CountDown
    start: threading.Barrier
    found: dict[int, StreamRuns] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)


class Threads:
    """Callers of one session: the thread that calls `run`, and one more for each further call.

    The further threads wait on a condition between blocks, so that they use no CPU. They are daemons: they
    end with the process.
    """

    def __init__(self, calls: Sequence[Call], layout: MemoryLayout, meter: Meter) -> None:
        """Start the threads.

        Args:
            calls: of each stream; each has its own inputs, and its own outputs.
            layout: the stack's depth, which is the same for all.
            meter: of this process.
        """
        self._calls, self._layout, self._meter = calls, layout, meter
        self._changed = threading.Condition()
        self._order: _Order | None = None
        self._number = 0  # of the order
        self._busy = 0  # further threads that have not finished it
        for index in range(1, len(calls)):
            threading.Thread(target=self._serve, args=(index,), name=f"stream-{index}", daemon=True).start()

    def run(self, *, block_ns: int, min_runs: int, refill: bool) -> StreamBlock:
        """Run a closed loop in every stream; see `Streams`."""
        count = len(self._calls)
        order = _Order(block_ns, min_runs, refill, _CountDown(count), threading.Barrier(count))
        self._meter.start()
        with self._changed:
            self._order, self._busy = order, count - 1
            self._number += 1
            self._changed.notify_all()
        self._obey(0, order)
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
            self._order = None
        counters = self._meter.stop()
        if order.failures:
            broken = [one for one in order.failures if not isinstance(one, threading.BrokenBarrierError)]
            raise (broken or order.failures)[0]
        return StreamBlock(streams=[order.found[index] for index in range(count)], counters=counters)

    def _serve(self, index: int) -> None:
        for number in itertools.count(1):
            with self._changed:
                self._changed.wait_for(lambda number=number: self._number >= number)  # type: ignore[misc]
                order = self._order
            assert order is not None
            self._obey(index, order)
            del order
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _obey(self, index: int, order: _Order) -> None:
        call = self._calls[index]
        try:
            refill_ns = time_refill(call) if order.refill else None
            order.start.wait()
            starts, ends = at_depth(
                self._layout.stack_frames,
                lambda: loop(call, block_ns=order.block_ns, min_runs=order.min_runs, finish=order.finish),
            )
            order.found[index] = StreamRuns(refill_ns=refill_ns, starts_ns=starts, ends_ns=ends)
        except BaseException as error:
            order.failures.append(error)
            order.finish.end()
            order.start.abort()


def call_together(calls: Sequence[Call]) -> list[object]:
    """Call all of `calls` at the same time, each in a thread of its own; return their results in order."""
    results: list[object] = [None] * len(calls)
    failures: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def one(index: int) -> None:
        start.wait()
        try:
            results[index] = calls[index]()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def time_refill(call: Call) -> int:
    """Make the uncounted first run; return its nanoseconds."""
    began = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - began
