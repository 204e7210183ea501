"""Numbers from samples: percentiles, their intervals, and when a sample is too small to carry one.

Pure functions of numbers; no clock, no I/O. Latencies are in seconds and in run order: the order carries the
autocorrelation that an honest interval must account for. No sample is ever dropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
PERCENTILES = (0.50, 0.90, 0.95, 0.99)
MIN_BLOCKS = 5  # fewer blocks cannot tell how much a block's share varies
MAX_BLOCKS = 20
MIN_RUNS_PER_BLOCK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number and its 95 % interval; a bound is None where the sample cannot support it."""

    value: float
    low: float | None
    high: float | None


def runs_needed(p: float) -> int:
    """Return the fewest independent runs that bound percentile `p` from above with 97.5 % confidence.

    The largest of n independent samples lies above the p-quantile with probability 1 - p**n: 6 runs for p50,
    36 for p90, 72 for p95, 368 for p99. Below that, the percentile of the sample says nothing about the tail.
    """
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(p))


def percentile(samples: Sequence[float], p: float) -> float:
    """Return the nearest-rank percentile: the smallest sample with at least a share `p` at or below it."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


def percentile_estimate(samples: Sequence[float], p: float) -> Estimate | None:
    """Estimate percentile `p` (0 < p < 1) with its 95 % interval; None where the runs cannot support it.

    The runs are cut into contiguous blocks. How much the share of runs at or below the percentile varies from
    block to block gives an effective number of independent runs, and that gives the ranks of the bounds: an
    interval that stays honest when neighbouring runs resemble each other. The upper bound is None when it
    would lie beyond the largest sample.

    Source: Woodruff (1952) interval with the Korn and Graubard (1998) effective sample size.
    """
    n = len(samples)
    if n < runs_needed(p):
        return None
    value = percentile(samples, p)
    blocks = min(MAX_BLOCKS, n // MIN_RUNS_PER_BLOCK)
    if blocks < MIN_BLOCKS:
        return Estimate(value=value, low=None, high=None)
    effective = _effective_runs([float(sample <= value) for sample in samples], p, blocks)
    tail = (1 - CONFIDENCE) / 2
    low_share = _beta_quantile(tail, effective * p, effective * (1 - p) + 1)
    high_share = _beta_quantile(1 - tail, effective * p + 1, effective * (1 - p))
    ordered = sorted(samples)
    beyond = high_share * n > n - 0.5
    return Estimate(
        value=value,
        low=min(value, ordered[max(0, math.ceil(low_share * n) - 1)]),
        high=None if beyond else max(value, ordered[min(n, math.ceil(high_share * n)) - 1]),
    )


def _effective_runs(below: Sequence[float], p: float, blocks: int) -> float:
    shares = [sum(block) / len(block) for block in split(below, blocks)]
    center = sum(shares) / blocks
    between = sum((share - center) ** 2 for share in shares) / (blocks - 1) / blocks
    variance = max(between, p * (1 - p) / len(below))  # never better than independent runs
    widen = (t_quantile(1 - (1 - CONFIDENCE) / 2, blocks - 1) / 1.959964) ** 2
    return p * (1 - p) / variance / widen


def mean_estimate(samples: Sequence[float]) -> Estimate:
    """Estimate the mean with a 95 % interval from the means of contiguous blocks (batch means)."""
    value = math.fsum(samples) / len(samples)
    blocks = min(MAX_BLOCKS, len(samples) // MIN_RUNS_PER_BLOCK)
    if blocks < MIN_BLOCKS:
        return Estimate(value=value, low=None, high=None)
    means = [math.fsum(block) / len(block) for block in split(samples, blocks)]
    spread = math.sqrt(sum((mean - value) ** 2 for mean in means) / (blocks - 1) / blocks)
    half = t_quantile(1 - (1 - CONFIDENCE) / 2, blocks - 1) * spread
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


def standard_deviation(samples: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1), or None for fewer than two samples."""
    if len(samples) < 2:
        return None
    mean = math.fsum(samples) / len(samples)
    return math.sqrt(math.fsum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1))


def drift(samples: Sequence[float]) -> float | None:
    """Return how far the median of the last third lies from that of the first, as a share of the first.

    None below 30 samples, where a third has too few to compare.
    """
    third = len(samples) // 3
    if third < 10:
        return None
    first, last = percentile(samples[:third], 0.5), percentile(samples[-third:], 0.5)
    return last / first - 1


def split(samples: Sequence[float], blocks: int) -> list[Sequence[float]]:
    """Cut `samples` into `blocks` contiguous pieces whose sizes differ by at most one."""
    edges = [round(i * len(samples) / blocks) for i in range(blocks + 1)]
    return [samples[a:b] for a, b in itertools.pairwise(edges)]


# --- distributions: the two quantiles the intervals need ----------------------------------------------


def t_quantile(p: float, df: float) -> float:
    """Return the p-quantile of Student's t with `df` degrees of freedom, for p >= 0.5."""
    if p <= 0.5:
        return 0.0
    x = _beta_quantile(2 * (1 - p), df / 2, 0.5)
    return math.sqrt(df * (1 - x) / x)


def _beta_quantile(p: float, a: float, b: float) -> float:
    return _bisect(lambda x: _beta_cdf(x, a, b), p)


def _bisect(cdf: Callable[[float], float], p: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):  # 2**-60: beyond what a float can tell
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle) < p else (low, middle)
    return (low + high) / 2


def _beta_cdf(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta function, by its continued fraction.

    Source: Abramowitz and Stegun 26.5.8; evaluated by Lentz's method.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the other tail converges faster
        return 1 - _beta_cdf(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    result = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + numerator * d or tiny)
            c = 1 + numerator / c or tiny
            result *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return result
