"""Shares, spreads, z-scores and true ratios, each with its 95 % interval. Pure functions of numbers."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.statistics import beta_cdf, beta_quantile, t_quantile

TAIL = 0.025  # either side of a 95 % interval
_NORMAL = statistics.NormalDist()


def share_text(count: int, n: int) -> str:
    """A share with its 95 % interval by Clopper and Pearson (1934)."""
    if not n:
        return "none"
    low, high = share_interval(count, n)
    return f"{count / n:.1%}, 95 % CI [{low:.1%}, {high:.1%}], n = {n}"


def share_interval(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of `count` in `n`, by Clopper and Pearson (1934)."""
    low = beta_quantile(TAIL, count, n - count + 1) if count else 0.0
    high = beta_quantile(1 - TAIL, count + 1, n - count) if count < n else 1.0
    return low, high


def bootstrap(
    rows: Sequence[Any], statistic: Callable[[Sequence[Any]], float], *, repeats: int = 2000
) -> tuple[float, float]:
    """A 95 % percentile bootstrap interval of `statistic` over rows; the same for the same rows."""
    rng = random.Random(0)
    found = sorted(statistic(rng.choices(rows, k=len(rows))) for _ in range(repeats))
    return found[int(TAIL * repeats)], found[int((1 - TAIL) * repeats)]


def spread(ratios: Sequence[float]) -> float:
    """The standard deviation of reported ratios, as a share: that of their logarithms."""
    return deviation([math.log(ratio) for ratio in ratios])


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 of one value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def deviation_interval(found: float, df: float) -> tuple[float, float]:
    """The 95 % interval of the standard deviation of normal values, from the chi-square distribution."""
    return (
        found * math.sqrt(df / chi_square_quantile(1 - TAIL, df)),
        found * math.sqrt(df / chi_square_quantile(TAIL, df)),
    )


# --- distance of a reported ratio from the true one -------------------------------------------------------


def z_score(row: Mapping[str, Any], truth: float) -> float | None:
    """The error of a reported ratio, as a normal deviate of its own standard error.

    If the printed interval is neither too narrow nor too wide, these have the standard deviation 1.
    None: the comparison was too short for a standard error.
    """
    if not row["standard_error"] or row["df"] is None:
        return None
    share = t_cdf((math.log(row["ratio"]) - math.log(truth)) / row["standard_error"], row["df"])
    return _NORMAL.inv_cdf(min(1 - 1e-12, max(1e-12, share)))


def t_cdf(t: float, df: float) -> float:
    """The distribution function of Student's t, from the incomplete beta function (A&S 26.7.1)."""
    tail = beta_cdf(df / (df + t * t), df / 2, 0.5) / 2
    return 1 - tail if t >= 0 else tail


def chi_square_quantile(p: float, df: float) -> float:
    """The p-quantile of the chi-square distribution."""
    low, high = 0.0, df + 20 * math.sqrt(2 * df) + 20
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _chi_square_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def _chi_square_cdf(x: float, df: float) -> float:
    """By the series of the incomplete gamma function, Abramowitz and Stegun 6.5.29."""
    a, half = df / 2, x / 2
    if half <= 0:
        return 0.0
    term = total = 1 / a
    number = 0
    while term > 1e-16 * total:
        number += 1
        term *= half / (a + number)
        total += term
    return min(1.0, total * math.exp(a * math.log(half) - half - math.lgamma(a)))


# --- the true ratio, from a few long comparisons ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A ratio from several long comparisons, with its 95 % interval."""

    ratio: float
    low: float
    high: float
    comparisons: int

    def __str__(self) -> str:
        slower, low, high = (1 / one - 1 for one in (self.ratio, self.high, self.low))
        return f"{slower:.2%} slower, 95 % CI [{low:.2%}, {high:.2%}], {self.comparisons} long races"


def truth_of(rows: Sequence[Mapping[str, Any]]) -> Truth:
    """The mean log ratio of several comparisons, with an error from their own errors or their spread.

    The larger of the two is taken: the spread over time may exceed the error of each comparison.

    Raises:
        SystemExit: a comparison was too short for a standard error.
    """
    if any(row["standard_error"] is None for row in rows):
        raise SystemExit("The long comparisons were too short for the true ratio: give them more time.")
    logs, n = [math.log(row["ratio"]) for row in rows], len(rows)
    center = math.fsum(logs) / n
    half = _reach(sum(row["df"] for row in rows)) * math.hypot(*(row["standard_error"] for row in rows)) / n
    if n > 1:
        half = max(half, _reach(n - 1) * deviation(logs) / math.sqrt(n))
    return Truth(
        ratio=math.exp(center), low=math.exp(center - half), high=math.exp(center + half), comparisons=n
    )


def _reach(df: float) -> float:
    return t_quantile(1 - TAIL, df)
