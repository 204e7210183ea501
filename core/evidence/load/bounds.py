"""Percentiles of the latency with intervals, and limits judged with bounds, from correlated requests.

Requests that arrive close together share a queue and a disturbance, so 10,000 requests say less than 10,000
independent ones. The requests of a run are grouped into equal parts of its time. The spread between the parts
gives the effective number of requests: independent ones that would say as much.

The slow requests of a short run come in a few groups, and where there is none, there is no spread to see. So
the spread is also taken at two percentiles of the run itself (for a limit on p99: p99 and p96), in 40 and in
20 parts, and the smallest effective number counts. `benchmarks/load_bounds.py` shows the share of
false passes with and without this on simulated queues. No rule sees a disturbance that is rarer than the run.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.load.load_types import LimitResult, LoadVerdict, Percentile
from core.evidence.statistics import CONFIDENCE, beta_quantile, rounds_needed, runs_needed, t_quantile
from core.spec.load import LoadLimit

LOAD_PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
PARTS = 40  # equal parts of the counted time of a run
LEAST_CLUSTERS = 5  # parts with requests, or runs, that show a spread
TAILS = (1.0, 4.0)  # multiples of the allowed share at which the spread is taken
LARGEST_TAIL = 0.5
# Parts that make a group: 40 and 20 groups, for intervals also 10. With two sizes of groups the intervals of
# percentiles missed the truth in up to 9 % of simulated runs; limits need two only.
JOINED_FOR_LIMITS, JOINED_FOR_PERCENTILES = (1, 2), (1, 2, 4)
MOST_NEEDED = 10**9  # requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counted requests of one run, in order of arrival."""

    at_s: Sequence[float]  # from the start of the run
    value_s: Sequence[float]  # such as the latency; inf: timed out, or not served when the run ended
    from_s: float  # counted time: arrivals from here …
    until_s: float  # … to here


class Clusters:
    """The values of all runs of a configuration at a rate, in equal parts of the time of each run."""

    def __init__(self, runs: Sequence[Counted]) -> None:
        self._runs = [_sorted_parts(run) for run in runs if run.value_s]
        self.parts = [part for run in self._runs for part in run]  # each ascending
        self.ordered = sorted(itertools.chain.from_iterable(self.parts))

    def above(self, value: float) -> int:
        """Return how many values are above `value`; for inf, how many are infinite."""
        return _above(self.ordered, value)

    def effective(
        self, thresholds: Sequence[float], tail: float, joined: Sequence[int] = JOINED_FOR_LIMITS
    ) -> float:
        """Return the effective number of requests: the smallest over the thresholds and the groups.

        Args:
            thresholds: values, in seconds.
            tail: 0.05 for bounds of 95 % each; it widens the spread of few groups.
            joined: how many of the 40 parts of a run make a group, each in turn. The runs themselves are
                groups too, where there are five or more.
        """
        n = len(self.ordered)
        factor = 1.0
        for threshold in thresholds:
            counts = [[(_above(part, threshold), len(part)) for part in run] for run in self._runs]
            for length in joined:
                groups = [_summed(run[i : i + length]) for run in counts for i in range(0, PARTS, length)]
                factor = max(factor, max(1.0, _design_effect(groups)) * _widening(len(groups), tail))
            runs = [_summed(run) for run in counts]  # few: only a spread that they show counts
            factor = max(factor, _design_effect(runs) * _widening(len(runs), tail))
        return n / factor


def _sorted_parts(run: Counted) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(PARTS)]
    scale = PARTS / (run.until_s - run.from_s) if run.until_s > run.from_s else 0.0
    for at, value in zip(run.at_s, run.value_s, strict=True):
        found[min(PARTS - 1, int((at - run.from_s) * scale))].append(value)
    for part in found:
        part.sort()
    return found


def _above(ordered: Sequence[float], value: float) -> int:
    position = bisect_left(ordered, value) if value == math.inf else bisect_right(ordered, value)
    return len(ordered) - position


def _summed(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(bad for bad, _ in counts), sum(size for _, size in counts)


def _design_effect(groups: Sequence[tuple[int, int]]) -> float:
    """Return the variance of the share of values above a threshold, over that of independent values.

    0 where there is no spread to see.

    Source: the linearised ratio estimator, Cochran (1977), Sampling Techniques, chapter 6.
    """
    kept = [one for one in groups if one[1]]
    (bad, n), count = _summed(kept), len(kept)
    if not 0 < bad < n or count < LEAST_CLUSTERS:
        return 0.0
    share = bad / n
    spread = math.fsum((mine - share * size) ** 2 for mine, size in kept) * count / (count - 1)
    return spread / (n * share * (1 - share))


def _widening(groups: int, tail: float) -> float:
    """Return the factor of the variance for a spread known from few groups; 1 where too few show none.

    Source: Korn and Graubard (1998), Survey Methodology 24: Student's t in place of the normal quantile.
    """
    if groups < LEAST_CLUSTERS:
        return 1.0
    return (t_quantile(1 - tail, groups - 1) / t_quantile(1 - tail, 1e6)) ** 2


def _thresholds(ordered: Sequence[float], share: float) -> list[float]:
    """Return the values above which 1 and 4 times `share` of all values lie, each at most half."""
    n = len(ordered)
    return [
        ordered[max(0, math.ceil((1 - min(LARGEST_TAIL, factor * share)) * n - 1e-9) - 1)] for factor in TAILS
    ]


# --- limits -------------------------------------------------------------------------------------------------


def judge(limit: LoadLimit, latencies: Clusters) -> LimitResult:
    """Judge a limit with one-sided 95 % bounds of the share of requests that broke it.

    Args:
        limit: on the latency, or on timeouts; a request that was not served counts under both.
        latencies: of all runs of one configuration at one rate; at least one request.

    Source: bounds of Clopper and Pearson (1934) with the effective sample size of Korn and Graubard (1998),
    Confidence intervals for proportions with small expected number of positive counts.
    """
    low, high = _bounds(*_share_and_effective(limit, latencies))
    verdict: LoadVerdict = "PASS" if high <= limit.share else "FAIL" if low > limit.share else "UNDECIDED"
    return {
        "limit": limit.text,
        "share": latencies.above(_value_of(limit)) / len(latencies.ordered),
        "low": low,
        "high": high,
        "allowed": limit.share,
        "verdict": verdict,
    }


def requests_needed(limit: LoadLimit, latencies: Clusters) -> int | None:
    """Return how many requests would let this limit pass if all else stays the same; None: it would not.

    The correlation and the share of bad requests are taken from these requests, so the number is a forecast.
    """
    share, effective = _share_and_effective(limit, latencies)
    each = len(latencies.ordered) / effective
    if share >= limit.share:
        return None
    low, high = 1.0, float(MOST_NEEDED)
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _bounds(share, middle)[1] <= limit.share else (middle, high)
    return None if high * each > MOST_NEEDED else math.ceil(high * each)


def _value_of(limit: LoadLimit) -> float:
    return math.inf if limit.at_most_s is None else limit.at_most_s


def _share_and_effective(limit: LoadLimit, latencies: Clusters) -> tuple[float, float]:
    value = _value_of(limit)
    thresholds = [value, *_thresholds(latencies.ordered, limit.share)]
    effective = latencies.effective(thresholds, 1 - CONFIDENCE)
    return latencies.above(value) / len(latencies.ordered), effective


def _bounds(share: float, effective: float) -> tuple[float, float]:
    """Return the one-sided 95 % bounds of a share."""
    tail, good, bad = 1 - CONFIDENCE, effective * (1 - share), effective * share
    low = beta_quantile(tail, bad, good + 1) if share > 0 else 0.0
    high = beta_quantile(1 - tail, bad + 1, good) if share < 1 else 1.0
    return low, high


# --- percentiles --------------------------------------------------------------------------------------------


def percentiles(
    values: Clusters, shares: Sequence[float] = LOAD_PERCENTILES
) -> tuple[list[Percentile], list[float]]:
    """Return the percentiles that the values support, with 95 % intervals, and those that are not finite.

    As `statistics.percentile_estimate`, with the effective number of requests of this module. A percentile
    needs `runs_needed` requests and, above p50, `rounds_needed` parts. Its upper bound is None where the
    effective number is below `runs_needed`.

    Args:
        values: in seconds.
        shares: 0.99 for p99.
    """
    found: list[Percentile] = []
    infinite: list[float] = []
    n, filled = len(values.ordered), sum(map(bool, values.parts))
    for p in shares:
        if n < runs_needed(p) or (p > LARGEST_TAIL and filled < rounds_needed(p)):
            continue
        value = values.ordered[max(0, math.ceil(p * n) - 1)]
        if value == math.inf:
            infinite.append(p)
            continue
        low, high = _interval(values, p, value)
        found.append({"p": p, "value_s": value, "low_s": low, "high_s": high})
    return found, infinite


def _interval(values: Clusters, p: float, value: float) -> tuple[float | None, float | None]:
    ordered, n, tail = values.ordered, len(values.ordered), (1 - CONFIDENCE) / 2
    if sum(map(bool, values.parts)) < LEAST_CLUSTERS:
        return None, None
    effective = values.effective(_thresholds(ordered, 1 - p), tail, JOINED_FOR_PERCENTILES)
    low_share = beta_quantile(tail, effective * p, effective * (1 - p) + 1)
    high_share = beta_quantile(1 - tail, effective * p + 1, effective * (1 - p))
    thin = p > LARGEST_TAIL and effective < runs_needed(p)
    low = min(value, ordered[max(0, math.ceil(low_share * n) - 1)])
    if thin or high_share * n > n - 0.5:
        return low, None
    high = max(value, ordered[min(n, math.ceil(high_share * n)) - 1])
    return low, None if high == math.inf else high
