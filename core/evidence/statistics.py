"""Percentiles and means of measurements with their 95 % intervals, and the sample sizes that these need.

Pure functions of numbers; no clock, no I/O. Latencies are in seconds and in run order, because a valid
interval must account for their autocorrelation. No measurement is dropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

CONFIDENCE = 0.95
PERCENTILES = (0.50, 0.90, 0.95, 0.99)
MIN_BLOCKS = 5  # fewer blocks or rounds do not show the spread between them
MAX_BLOCKS = 20
MIN_RUNS_PER_BLOCK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number and its 95 % interval; a bound is None where the sample cannot support it."""

    value: float
    low: float | None
    high: float | None


def runs_needed(p: float) -> int:
    """Return the minimum number of independent runs for an upper bound of percentile `p` (97.5 % confidence).

    The largest of n independent samples lies above the p-quantile with probability 1 - p**n: 6 runs for p50,
    36 for p90, 72 for p95, 368 for p99. Below that, the percentile of the sample says nothing about the tail.
    """
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(p))


def percentile(samples: Sequence[float], p: float) -> float:
    """Return the nearest-rank percentile: the smallest sample with at least a share `p` at or below it."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


def rounds_needed(p: float) -> int:
    """Return the minimum number of rounds for percentile `p`: 5 up to p90, 20 for p95, 40 for p99.

    Slow runs come in bursts, and a burst counts once: many runs in few rounds say little about the tail.
    """
    return 40 if p >= 0.99 else 20 if p >= 0.95 else MIN_BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Runs and rounds that a percentile needs; 0 rounds: the runs were not made in rounds."""

    runs: int
    rounds: int


def percentile_estimate(
    samples: Sequence[float],
    p: float,
    rounds: Sequence[int] | None = None,
    *,
    made: int | None = None,
    least: int = MIN_BLOCKS,
) -> Estimate | None:
    """Estimate percentile `p` (0 < p < 1) with its 95 % interval; None where the runs cannot support it.

    Runs of one round, or consecutive runs, are correlated. The variance between rounds of the share of runs
    at or below the percentile gives the effective number of independent runs, which gives the ranks of the
    bounds. The upper bound is None if it is beyond the largest measurement. Without rounds the runs are split
    into contiguous blocks.

    With rounds, a percentile above p50 is refused below `rounds_needed` rounds. It has no upper bound while
    the effective number of runs is below `runs_needed`; refusing it then would select results whose rounds or
    processes agree by chance. `percentile_needs` returns the numbers needed.

    Args:
        samples: measurements in run order.
        p: 0.95 for p95.
        rounds: number of runs of each round, in order; sizes may differ and add up to all measurements. Or
            those of each process, where runs of one process are correlated.
        made: number of rounds, where `rounds` are processes.
        least: as for `mean_estimate`.

    Raises:
        ValueError: the rounds do not add up to the number of measurements.

    Source: Woodruff (1952) interval with the Korn and Graubard (1998) effective sample size.
    """
    n = len(samples)
    clusters = _clusters(n, rounds)
    if n < runs_needed(p) or (rounds is not None and p > 0.5 and (made or len(clusters)) < rounds_needed(p)):
        return None
    value = percentile(samples, p)
    if len(clusters) < max(2, least):
        return Estimate(value=value, low=None, high=None)
    effective = _effective_runs(samples, p, clusters)
    tail = (1 - CONFIDENCE) / 2
    low_share = beta_quantile(tail, effective * p, effective * (1 - p) + 1)
    high_share = beta_quantile(1 - tail, effective * p + 1, effective * (1 - p))
    ordered = sorted(samples)
    thin = rounds is not None and p > 0.5 and effective < runs_needed(p)
    beyond = thin or high_share * n > n - 0.5
    return Estimate(
        value=value,
        low=min(value, ordered[max(0, math.ceil(low_share * n) - 1)]),
        high=None if beyond else max(value, ordered[min(n, math.ceil(high_share * n)) - 1]),
    )


def percentile_needs(
    samples: Sequence[float],
    p: float,
    rounds: Sequence[int] | None = None,
    *,
    made: int | None = None,
    least: int = MIN_BLOCKS,
) -> Needs:
    """Return the total runs and rounds that percentile `p` needs, predicted from these measurements.

    If they suffice to estimate the correlation within rounds, the number of runs is scaled up by it: 368
    independent runs for p99 may become 2,000. Arguments and errors as for `percentile_estimate`.
    """
    n, runs = len(samples), runs_needed(p)
    clusters = _clusters(n, rounds)
    if rounds is None:
        return Needs(runs=runs, rounds=0)
    if n < runs or len(clusters) < max(2, least):
        return Needs(runs=runs, rounds=rounds_needed(p))
    share = runs / _effective_runs(samples, p, clusters)
    return Needs(
        runs=max(runs, math.ceil(n * share)),
        rounds=max(rounds_needed(p), math.ceil((made or len(clusters)) * share)),
    )


def _clusters(n: int, rounds: Sequence[int] | None) -> list[slice]:
    """Return the clusters of correlated runs: rounds, or contiguous blocks; empty for too few runs."""
    if rounds is None:
        blocks = min(MAX_BLOCKS, n // MIN_RUNS_PER_BLOCK)
        edges = [round(i * n / blocks) for i in range(blocks + 1)] if blocks else []
    else:
        edges = [0, *itertools.accumulate(size for size in rounds if size)]
        if edges[-1] != n:
            raise ValueError(f"{len(rounds)} rounds hold {edges[-1]} runs, but there are {n} samples")
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _effective_runs(samples: Sequence[float], p: float, clusters: Sequence[slice]) -> float:
    value = percentile(samples, p)
    below = [float(sample <= value) for sample in samples]
    independent = p * (1 - p) / len(samples)
    variance = max(independent, _variance_of_mean(below, clusters))  # never better than independent runs
    widen = (_t_of(len(clusters)) / 1.959964) ** 2
    return p * (1 - p) / variance / widen


def _variance_of_mean(values: Sequence[float], clusters: Sequence[slice]) -> float:
    """Return the variance of the mean under cluster sampling, with clusters of any sizes.

    Source: the linearised ratio estimator, Cochran (1977), Sampling Techniques, chapter 6.
    """
    mean = math.fsum(values) / len(values)
    offsets = [math.fsum(values[one]) - mean * (one.stop - one.start) for one in clusters]
    count = len(clusters)
    return math.fsum(offset**2 for offset in offsets) / len(values) ** 2 * count / (count - 1)


def _t_of(clusters: int) -> float:
    return t_quantile(1 - (1 - CONFIDENCE) / 2, clusters - 1)


def mean_estimate(
    samples: Sequence[float], rounds: Sequence[int] | None = None, *, least: int = MIN_BLOCKS
) -> Estimate:
    """Estimate the mean with a 95 % interval from the means of the rounds, or of contiguous blocks.

    Args:
        samples: as for `percentile_estimate`, like its errors.
        rounds: as for `percentile_estimate`.
        least: minimum number of clusters for an interval; Student's t accounts for few clusters.
    """
    value = math.fsum(samples) / len(samples)
    clusters = _clusters(len(samples), rounds)
    if len(clusters) < max(2, least):
        return Estimate(value=value, low=None, high=None)
    half = _t_of(len(clusters)) * math.sqrt(_variance_of_mean(samples, clusters))
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


def standard_deviation(samples: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1), or None for fewer than two samples."""
    if len(samples) < 2:
        return None
    mean = math.fsum(samples) / len(samples)
    return math.sqrt(math.fsum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1))


def drift(samples: Sequence[float]) -> float | None:
    """Return the relative change of the median from the first third of the measurements to the last.

    None below 30 measurements, where a third is too small.
    """
    third = len(samples) // 3
    if third < 10:
        return None
    first, last = percentile(samples[:third], 0.5), percentile(samples[-third:], 0.5)
    return last / first - 1


# --- distributions: the two quantiles the intervals need ----------------------------------------------


@lru_cache(maxsize=4096)  # takes half a millisecond, and the same few values recur after every round
def t_quantile(p: float, df: float) -> float:
    """Return the p-quantile of Student's t with `df` degrees of freedom, for p >= 0.5."""
    if p <= 0.5:
        return 0.0
    x = beta_quantile(2 * (1 - p), df / 2, 0.5)
    return math.sqrt(df * (1 - x) / x)


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return the p-quantile of the beta distribution with the shapes `a` and `b`, both above 0.

    Newton's method with bisection where a step leaves the bracket: usually 9 steps, where bisection alone
    takes 60. It ends at a relative step of 1e-8, because the error is about its square.
    """
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    low, high, x = 0.0, 1.0, a / (a + b)
    while low < x < high:  # until no float lies between them
        excess = beta_cdf(x, a, b) - p
        low, high = (x, high) if excess < 0 else (low, x)
        density = (a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log_beta  # its log
        step = excess / math.exp(density) if abs(density) < 700 else 1.0
        if abs(step) <= 1e-8 * min(x, 1 - x):
            return x - step
        x = x - step if low < x - step < high else (low + high) / 2
    return x


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta function, by its continued fraction.

    Source: Abramowitz and Stegun 26.5.8; evaluated by Lentz's method.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the other tail converges faster
        return 1 - beta_cdf(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    tiny, total = 1e-300, a + b
    c, d = 1.0, 1 / (1 - total * x / (a + 1) or tiny)
    result = d
    for m in range(1, 500):  # two terms per pass, inlined: intervals spend most of their time here
        at = a + 2 * m
        even = m * (b - m) * x / ((at - 1) * at)
        d = 1 / (1 + even * d or tiny)
        c = 1 + even / c or tiny
        result *= c * d
        odd = -(a + m) * (total + m) * x / (at * (at + 1))
        d = 1 / (1 + odd * d or tiny)
        c = 1 + odd / c or tiny
        last = c * d
        result *= last
        if -1e-14 < last - 1 < 1e-14:
            break
    return result
