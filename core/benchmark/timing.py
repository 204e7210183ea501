"""The timed loop: as little as possible between two readings of the clock.

The inner loop is the one a careful user would write by hand: clock, call, clock, into a list that exists
already, with the garbage collector off. Progress is reported between chunks of about half a second, outside
the timed calls. A report evicts a little of the caches, so a chunk of short runs begins with one run that is
not timed; for runs of 10 ms and more the effect is far below their noise and nothing is added.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Call = Callable[[], object]

CHUNK_NS = 500_000_000  # a report every half second: seldom enough to cost nothing, often enough to watch
REFILL_BELOW_NS = 10_000_000
CPU_WINDOW_S = 0.25  # 60 of the kernel's ticks: CPU time to about 2 %


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRuns:
    """Latencies in run order; wall and CPU time of the loop itself, reports and refills left out."""

    latencies_ns: list[int]
    wall_s: float
    cpu_s: float  # user + system time of all threads of the process


def time_runs(
    call: Call, runs: int, *, expected_ns: int, report: Callable[[int], None], refill: bool = True
) -> TimedRuns:
    """Call `call` `runs` times and keep every latency.

    Args:
        call: one inference.
        runs: how often, 0 or more.
        expected_ns: latency to expect, for the length of the first chunk.
        report: told the runs done so far, about every half second.
        refill: begin each chunk of short runs with a run that is not timed.
    """
    samples, done, wall_ns, cpu_ns = [0] * runs, 0, 0, 0
    with _collector_off():
        while done < runs:
            if refill and expected_ns < REFILL_BELOW_NS:
                call()
            stop = min(runs, done + max(1, CHUNK_NS // max(1, expected_ns)))
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            _fill(call, samples, done, stop)
            chunk_ns = time.perf_counter_ns() - wall
            cpu_ns += time.process_time_ns() - cpu
            wall_ns += chunk_ns
            expected_ns = chunk_ns // (stop - done)
            done = stop
            report(done)
    return TimedRuns(latencies_ns=samples, wall_s=wall_ns / 1e9, cpu_s=cpu_ns / 1e9)


def cpu_s_per_run(call: Call, timed: TimedRuns) -> float:
    """Return user + system time of the process per run, in seconds.

    The kernel books the time of threads on other CPUs in ticks of up to 4 ms, so that a timed loop of a few
    milliseconds can seem to use more CPU than there is. Where the loop was shorter than `CPU_WINDOW_S`, more
    runs are made for this figure alone; their latencies are not kept.
    """
    if timed.wall_s >= CPU_WINDOW_S:
        return timed.cpu_s / len(timed.latencies_ns)
    runs = 0
    with _collector_off():
        cpu, stop = time.process_time_ns(), time.perf_counter_ns() + int(CPU_WINDOW_S * 1e9)
        while time.perf_counter_ns() < stop:
            call()
            runs += 1
        return (time.process_time_ns() - cpu) / 1e9 / runs


def clock_share_ns() -> float:
    """Nanoseconds that the clock and the loop add to one latency: the median over empty calls."""
    samples = [0] * 2001
    with _collector_off():
        _fill(_nothing, samples, 0, len(samples))
    return statistics.median(samples)


def _fill(call: Call, samples: list[int], start: int, stop: int) -> None:
    clock = time.perf_counter_ns
    for index in range(start, stop):
        began = clock()
        call()
        samples[index] = clock() - began


def _nothing() -> None:
    """An inference that takes no time."""


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
