"""Percentiles of the latency with intervals, and limits judged with bounds, from correlated requests.

Requests that arrive close together share a queue and a disturbance, so a run of 10,000 requests says less
than 10,000 independent ones. The requests of a run are therefore grouped into equal parts of its time; the
spread of the share of bad requests between the parts gives the number of independent requests that would say
as much (the design effect).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.load.load_types import LimitResult, LoadVerdict, Percentile
from core.evidence.statistics import CONFIDENCE, beta_quantile, rounds_needed, runs_needed, t_quantile
from core.spec.load import LoadLimit

LOAD_PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
PARTS = 40  # equal parts of the counted time of a run
LEAST_CLUSTERS = 5  # non-empty parts, for any interval
_NORMAL = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counted requests of one run, in order of arrival."""

    at_s: Sequence[float]  # from the start of the run
    latency_s: Sequence[float]  # inf: timed out, or not served when the run ended
    from_s: float  # counted time: arrivals from here …
    until_s: float  # … to here


def parts(run: Counted, count: int = PARTS) -> list[int]:
    """Return the number of requests in each of `count` equal parts of the counted time."""
    found = [0] * count
    scale = count / (run.until_s - run.from_s) if run.until_s > run.from_s else 0.0
    for at in run.at_s:
        found[min(count - 1, int((at - run.from_s) * scale))] += 1
    return found


# --- limits -------------------------------------------------------------------------------------------------


def judge(limit: LoadLimit, runs: Sequence[Counted]) -> LimitResult:
    """Judge a limit with one-sided 95 % bounds of the share of requests that broke it.

    Args:
        limit: on the latency, or on timeouts, for which a request that was not served counts too.
        runs: all runs of one configuration at one rate; at least one counted request.

    Source: the effective sample size of Korn and Graubard (1998), Confidence intervals for proportions with
    small expected number of positive counts, Survey Methodology 24, with the bounds of Clopper and Pearson.
    """
    at_most = math.inf if limit.at_most_s is None else limit.at_most_s
    bad, sizes = _clusters(runs, at_most, timeouts=limit.at_most_s is None)
    n, broken = sum(sizes), sum(bad)
    share = broken / n
    effective = effective_requests(bad, sizes)
    low, high = _bounds(share, effective)
    verdict: LoadVerdict = "PASS" if high <= limit.share else "FAIL" if low > limit.share else "UNDECIDED"
    return {
        "limit": limit.text,
        "share": share,
        "low": low,
        "high": high,
        "allowed": limit.share,
        "verdict": verdict,
    }


def _clusters(runs: Sequence[Counted], at_most: float, *, timeouts: bool) -> tuple[list[int], list[int]]:
    bad: list[int] = []
    sizes: list[int] = []
    for run in runs:
        start = 0
        for size in parts(run):
            mine = run.latency_s[start : start + size]
            bad.append(sum(1 for one in mine if (one == math.inf if timeouts else one > at_most)))
            sizes.append(size)
            start += size
    kept = [(b, size) for b, size in zip(bad, sizes, strict=True) if size]
    return [b for b, _ in kept], [size for _, size in kept]


def effective_requests(bad: Sequence[int], sizes: Sequence[int]) -> float:
    """Return the number of independent requests that say as much about the share of bad ones."""
    n, count = sum(sizes), len(sizes)
    share = sum(bad) / n
    if not 0 < share < 1 or count < LEAST_CLUSTERS:
        return float(n)
    spread = math.fsum((b - share * size) ** 2 for b, size in zip(bad, sizes, strict=True))
    variance = max(share * (1 - share) / n, spread / n**2 * count / (count - 1))
    widen = (t_quantile(CONFIDENCE, count - 1) / 1.644854) ** 2
    return share * (1 - share) / variance / widen


def _bounds(share: float, effective: float) -> tuple[float, float]:
    """Return the one-sided 95 % bounds of a share."""
    tail, good, bad = 1 - CONFIDENCE, effective * (1 - share), effective * share
    low = beta_quantile(tail, bad, good + 1) if share > 0 else 0.0
    high = beta_quantile(1 - tail, bad + 1, good) if share < 1 else 1.0
    return low, high


# --- percentiles --------------------------------------------------------------------------------------------


def percentiles(
    clusters: Sequence[Sequence[float]], shares: Sequence[float] = LOAD_PERCENTILES
) -> tuple[list[Percentile], list[float]]:
    """Return the percentiles that the values support, with 95 % intervals, and those that are not finite.

    The numbers are those of `statistics.percentile_estimate`, in one pass over many requests.

    Args:
        clusters: values of each part of the time, in seconds; inf: timed out or not served.
        shares: 0.99 for p99.
    """
    parts_sorted = [sorted(one) for one in clusters if one]
    ordered = sorted(value for one in parts_sorted for value in one)
    found: list[Percentile] = []
    infinite: list[float] = []
    for p in shares:
        n = len(ordered)
        if n < runs_needed(p) or (p > 0.5 and len(parts_sorted) < rounds_needed(p)):
            continue
        value = ordered[max(0, math.ceil(p * n) - 1)]
        if value == math.inf:
            infinite.append(p)
            continue
        low, high = _interval(parts_sorted, ordered, p, value)
        found.append({"p": p, "value_s": value, "low_s": low, "high_s": high})
    return found, infinite


def _interval(
    clusters: Sequence[Sequence[float]], ordered: Sequence[float], p: float, value: float
) -> tuple[float | None, float | None]:
    n, count = len(ordered), len(clusters)
    if count < LEAST_CLUSTERS:
        return None, None
    below = bisect_right(ordered, value) / n
    offsets = math.fsum((bisect_right(one, value) - below * len(one)) ** 2 for one in clusters)
    variance = max(p * (1 - p) / n, offsets / n**2 * count / (count - 1))
    tail = (1 - CONFIDENCE) / 2
    effective = p * (1 - p) / variance / (t_quantile(1 - tail, count - 1) / _NORMAL) ** 2
    low_share = beta_quantile(tail, effective * p, effective * (1 - p) + 1)
    high_share = beta_quantile(1 - tail, effective * p + 1, effective * (1 - p))
    thin = p > 0.5 and effective < runs_needed(p)
    beyond = thin or high_share * n > n - 0.5
    low = min(value, ordered[max(0, math.ceil(low_share * n) - 1)])
    high = None if beyond else max(value, ordered[min(n, math.ceil(high_share * n)) - 1])
    return low, None if high == math.inf else high
