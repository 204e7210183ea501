"""The timed loop: only the call runs between two readings of the clock.

The inner loop is the one a careful user would write by hand: clock, call, clock. The caller keeps the
garbage collector off.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.wire.errors import WorkerError

Call = Callable[[], object]

CHUNK_NS = 500_000_000  # a report every 0.5 s: rare enough to cost nothing
CPU_WINDOW_S = 0.25  # 60 of the kernel's ticks: CPU time to about 2 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Back-to-back runs; the first run, which refills the caches, is separate."""

    refill_ns: int | None  # None: there was no such run
    latencies_ns: list[int]  # in run order
    window_ns: int = 0  # from the first start to the last end


def time_block(
    call: Call,
    *,
    block_ns: int,
    min_runs: int,
    max_runs: int,
    refill: bool = True,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Block:
    """Call `call` once to refill the caches, then until `block_ns` have passed and `min_runs` are done.

    Only the call runs between the two readings of the clock.

    Args:
        call: one inference.
        block_ns: duration, from the end of the first run.
        min_runs: minimum number of runs, however long they take.
        max_runs: maximum number of runs.
        refill: False: skip the refill run, for runs so long that refilling is negligible.
        clock: returns nanoseconds; replaced in tests.

    Raises:
        WorkerError: the clock went backwards.
    """
    latencies: list[int] = []
    keep = latencies.append
    began = now = clock()
    if refill:
        call()
        now = clock()
    refill_ns, first, end, done = now - began, now, now + block_ns, 0
    while now >= began and (now < end or done < min_runs) and done < max_runs:
        began = clock()
        call()
        now = clock()
        keep(now - began)
        done += 1
    if refill_ns < 0 or now < began:
        raise WorkerError(
            "The clock went backwards while a block was timed.",
            hint="Run it again; on a virtual machine, choose another clock source for its kernel.",
        )
    return Block(refill_ns=refill_ns if refill else None, latencies_ns=latencies, window_ns=now - first)


def time_each(call: Call, runs: int) -> list[int]:
    """Call `call` `runs` times, 1 or more, with the caches as they are; return every latency."""
    return time_block(call, block_ns=0, min_runs=runs, max_runs=runs, refill=False).latencies_ns


def time_runs(call: Call, runs: int, *, expected_ns: int, report: Callable[[int], None]) -> list[int]:
    """Call `call` `runs` times with the collector off, and return every latency.

    Args:
        call: one inference.
        runs: number of runs, 0 or more.
        expected_ns: expected latency, for the length of the first chunk.
        report: receives the number of finished runs about every 0.5 s, between two runs.
    """
    latencies: list[int] = []
    with _collector_off():
        while len(latencies) < runs:
            chunk = time_each(call, min(runs - len(latencies), max(1, CHUNK_NS // max(1, expected_ns))))
            expected_ns = sum(chunk) // len(chunk)
            latencies += chunk
            report(len(latencies))
    return latencies


def cpu_s(call: Call, window_s: float = CPU_WINDOW_S) -> float:
    """Return the process's user + system CPU seconds per run, over `window_s` or one run, the longer.

    The kernel counts the time of threads on other CPUs in ticks of up to 4 ms. A loop of a few milliseconds
    can therefore seem to use more CPU than exists.
    """
    runs, cpu, stop = 0, time.process_time_ns(), time.perf_counter_ns() + int(window_s * 1e9)
    while runs == 0 or time.perf_counter_ns() < stop:
        call()
        runs += 1
    return (time.process_time_ns() - cpu) / 1e9 / runs


def clock_share_ns() -> float:
    """Return the nanoseconds that clock and loop add to one latency: the median over empty calls."""
    with _collector_off():
        return statistics.median(time_each(_nothing, 2001))


def _nothing() -> None:
    """An inference that takes no time."""


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
