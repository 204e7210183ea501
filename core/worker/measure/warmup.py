"""Decide when a session is warm: pure functions of latencies, and the loop that uses them.

A fixed number of warm-up runs is too few for one model and a waste for the next. Here warm-up ends when the
latency is steady: the medians of two successive windows of runs differ by no more than their spread, or by no
more than 2 %.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

MIN_RUNS = 3
MIN_NS = 50_000_000
WINDOW_NS = 20_000_000
WINDOW_RUNS = (5, 30)
TOLERANCE = 0.02
_MEDIAN_ERROR = 1.2533  # standard error of a median, in standard errors of a mean: sqrt(pi / 2)

CAP_NS = 10_000_000_000
ACCELERATOR_CAP_NS = 60_000_000_000  # the first runs choose and compile kernels
LONG_RUN_NS = 50_000_000  # two such runs show as much as five shorter ones
LONG_WINDOW_RUNS = 2
KNOWN_MIN_NS = 10_000_000  # first check of a process with earlier warm processes of its configuration
KNOWN_TOLERANCE = 0.05  # two processes may differ permanently by that
CAP_RUNS = 300
CAP_RUNS_NS = 500_000_000  # this many short runs end too soon to be informative


def window_runs(latencies_ns: Sequence[int]) -> int:
    """Return the runs per window: about 20 ms, at least 5 (2 of 50 ms and more) and at most 30."""
    low, high = WINDOW_RUNS
    median = statistics.median(latencies_ns[-high:]) if latencies_ns else WINDOW_NS
    if median >= LONG_RUN_NS:
        return LONG_WINDOW_RUNS
    return max(low, min(high, int(WINDOW_NS / max(1.0, median))))


def is_steady(latencies_ns: Sequence[int]) -> bool:
    """Whether the latency is steady at the end of `latencies_ns`, which are in run order.

    Requires 3 runs, 50 ms, and medians of the last two windows that differ by no more than 2 %, or than
    2 · 1.2533 · MAD · √(2/m) with windows of m runs and MAD the median absolute deviation of both windows
    from their own medians.
    """
    runs = window_runs(latencies_ns)
    if len(latencies_ns) < max(MIN_RUNS, 2 * runs):
        return False
    before, after = latencies_ns[-2 * runs : -runs], latencies_ns[-runs:]
    first, last = statistics.median(before), statistics.median(after)
    deviations = [abs(x - first) for x in before] + [abs(x - last) for x in after]
    spread = 2 * _MEDIAN_ERROR * statistics.median(deviations) * math.sqrt(2 / runs)
    still = abs(last - first) <= max(TOLERANCE * (first + last) / 2, spread)
    return still and sum(latencies_ns) >= MIN_NS


def matches_known_latency(latencies_ns: Sequence[int], known_ns: int) -> bool:
    """Whether the last, short window of a fresh process matches earlier processes of its configuration.

    Args:
        latencies_ns: in run order.
        known_ns: typical latency of those processes when warm.
    """
    runs = max(1, min(WINDOW_RUNS[1], KNOWN_MIN_NS // max(1, known_ns)))
    if len(latencies_ns) < runs or sum(latencies_ns) < KNOWN_MIN_NS:
        return False
    return statistics.median(latencies_ns[-runs:]) <= (1 + KNOWN_TOLERANCE) * known_ns


def is_over(runs: int, elapsed_ns: int, cap_ns: int = CAP_NS) -> bool:
    """Whether warm-up must end although the latency is not steady."""
    return elapsed_ns >= cap_ns or (runs >= CAP_RUNS and elapsed_ns >= CAP_RUNS_NS)


def expected_ns(latencies_ns: Sequence[int], first_run_ns: int) -> int:
    """Return the expected latency: the median of the last window; before that, the first run."""
    last = latencies_ns[-window_runs(latencies_ns) :]
    return max(1, round(statistics.median(last))) if last else first_run_ns


def run_until_steady(
    run: Callable[[int], list[int]], *, cap_ns: int = CAP_NS, known_ns: int | None = None
) -> list[int]:
    """Run window after window until the latency is steady or the cap is reached; return all latencies.

    Args:
        run: makes this many runs and returns their latencies.
        cap_ns: longest warm-up.
        known_ns: typical latency of warm processes of this configuration; a process that matches it is warm.
    """
    latencies: list[int] = []
    began = time.perf_counter_ns()
    ended = is_steady if known_ns is None else partial(_is_known_or_steady, known_ns=known_ns)
    least_ns = MIN_NS if known_ns is None else KNOWN_MIN_NS
    while not ended(latencies):
        elapsed = time.perf_counter_ns() - began
        if is_over(len(latencies), elapsed, cap_ns):
            break
        one = expected_ns(latencies, cap_ns if known_ns is None else known_ns)
        wanted = max(1 if known_ns is not None else window_runs(latencies), (least_ns - elapsed) // one)
        if known_ns is not None and not latencies:
            wanted = min(wanted, WINDOW_RUNS[1])  # this process may be far slower than the earlier ones
        latencies += run(max(1, min(wanted, (cap_ns - elapsed) // one)))
    return latencies


def _is_known_or_steady(latencies_ns: Sequence[int], known_ns: int) -> bool:
    return matches_known_latency(latencies_ns, known_ns) or is_steady(latencies_ns)
