"""The queue of a load test for its benchmarks: schedules, the ideal queue with stalls, rules of other tools.

Pure functions. Times are seconds from the start of a run. One server takes requests in order of arrival.
"""

from __future__ import annotations

import base64
import bisect
import math
import random
import sys
import zlib
from array import array
from collections.abc import Sequence
from functools import cache
from itertools import combinations

from core.evidence.statistics import beta_cdf, t_quantile

Span = tuple[float, float]  # start and end

# --- schedules ----------------------------------------------------------------------------------------------


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Poisson arrivals in [0, `seconds`); the same for the same arguments, so a record need not keep them."""
    draw, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + draw.expovariate(rate)) < seconds:
        found.append(at_s)
    return found


# --- the ideal queue ----------------------------------------------------------------------------------------


def overlap(one: Span, others: Sequence[Span]) -> float:
    """Seconds of `one` that lie in `others`, which do not overlap each other."""
    return math.fsum(max(0.0, min(one[1], end) - max(one[0], start)) for start, end in others)


def end_of(start: float, work_s: float, stalls: Sequence[Span]) -> float:
    """When a service that begins at `start` ends, if nothing is done during `stalls` (in order of time)."""
    for begin, end in stalls[bisect.bisect_right(stalls, start, key=lambda one: one[1]) :]:
        if start + work_s <= begin:
            break
        work_s -= max(0.0, begin - start)
        start = end
    return start + work_s


def replay(at_s: Sequence[float], work_s: Sequence[float], stalls: Sequence[Span] = ()) -> list[float]:
    """Latency of each request in the ideal queue of one server (Lindley 1952); it stops during `stalls`."""
    free, found = 0.0, []
    for at, work in zip(at_s, work_s, strict=True):
        free = end_of(max(free, at), work, stalls)
        found.append(free - at)
    return found


def percentile(values: Sequence[float], p: float) -> float:
    """Nearest-rank percentile.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


# --- rules for a limit --------------------------------------------------------------------------------------


def segments(n: int, size: int) -> list[slice]:
    """Cut `n` requests into whole segments of `size`."""
    return [slice(start, start + size) for start in range(0, n - size + 1, size)]


@cache
def most_bad(n: int, share: float, confidence: float = 0.95) -> int:
    """Most bad requests of `n` with which MLPerf's rule passes; -1: not even none.

    Source: early stopping of MLPerf Inference (LoadGen): pass while P(Binomial(n, share) <= bad) is at most
    1 - confidence, as if requests were independent.
    """
    bad = -1
    while _binomial_cdf(bad + 1, n, share) <= 1 - confidence:
        bad += 1
    return bad


def _binomial_cdf(k: int, n: int, p: float) -> float:
    return 1.0 if k >= n else beta_cdf(1 - p, n - k, k + 1)


# --- raw latencies in a line of a record ------------------------------------------------------------------


def packed(latencies_s: Sequence[float]) -> str:
    """Latencies in whole microseconds, as text: zlib of 32-bit integers (little-endian) in Base64."""
    values = array("I", [min(round(1e6 * one), 2**32 - 1) for one in latencies_s])
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(zlib.compress(values.tobytes(), 9)).decode("ascii")


def unpacked(text: str) -> list[float]:
    """The latencies of `packed`, in seconds."""
    values = array("I", zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        values.byteswap()
    return [one / 1e6 for one in values]


# --- repeated runs ------------------------------------------------------------------------------------------


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean of independent runs and its 95 % interval (Student's t); no bounds for fewer than three runs.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a mean of nothing")
    n = len(values)
    mean = math.fsum(values) / n
    if n < 3:
        return mean, None, None
    variance = math.fsum((one - mean) ** 2 for one in values) / (n - 1)
    half = t_quantile(0.975, n - 1) * math.sqrt(variance / n)
    return mean, mean - half, mean + half


def disjoint(answers: Sequence[tuple[float, float]]) -> int:
    """How many pairs of answers contradict each other: one's failed rate is below the other's confirmed rate.

    Args:
        answers: highest confirmed and lowest failed rate of each; an unknown one is 0 or infinite.
    """
    return sum(a[1] < b[0] or b[1] < a[0] for a, b in combinations(answers, 2))
