"""The best point of a sweep under a latency limit, and the Pareto front.

The same statistics decide, are displayed and are plotted: samples per second over all runs and one latency
percentile, each with its 95 % interval. Pure functions over the points of `sweep`. Seconds throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from core.evidence.statistics import MIN_BLOCKS
from core.run.sweep import Measured
from core.spec.axes import Values

BEST, LEVEL, INCONCLUSIVE = "best", "level with the best", "inconclusive"  # ranks of a point


def supported_percentile(points: Sequence[Measured], wanted: Sequence[str] = ("p95_s", "p50_s")) -> str:
    """Return the first of `wanted` that every complete point supports, or the last one."""
    complete = [one for one in points if one.latency]
    for name in wanted:
        if complete and all(_supports(one, name) for one in complete):
            return name
    return wanted[-1]


def _supports(point: Measured, percentile: str) -> bool:
    """Whether the percentile itself is known, not only a lower bound."""
    low, high = _latency(point, f"{percentile}_low"), _latency(point, f"{percentile}_high")
    return _latency(point, percentile) is not None and (low is None or high is not None)


def has_few_processes(point: Measured) -> bool:
    """Whether it has too few processes for latency intervals that cover new processes."""
    return point.processes is not None and point.processes < MIN_BLOCKS


# --- two points ---------------------------------------------------------------------------------------------


def surely_faster(one: Measured, other: Measured) -> bool:
    """True where the whole interval of samples per second lies above that of the other."""
    low, high = one.throughput_interval()[0], other.throughput_interval()[1]
    return low is not None and high is not None and low > high


def surely_lower_latency(one: Measured, other: Measured, percentile: str) -> bool:
    """True where the whole latency interval lies below that of the other, and both cover new processes."""
    if has_few_processes(one) or has_few_processes(other):
        return False
    high, low = _latency(one, f"{percentile}_high"), _latency(other, f"{percentile}_low")
    return high is not None and low is not None and high < low


def level_with(one: Measured, other: Measured, margin: float) -> bool:
    """True where even the farthest ends of both intervals of samples per second lie within the margin."""
    low, high = one.throughput_interval()
    other_low, other_high = other.throughput_interval()
    if not (low and high and other_low and other_high):
        return False
    return max(high / other_low, other_high / low) <= 1 + margin


def dominates(one: Measured, other: Measured, percentile: str) -> bool:
    """True where a point is significantly better in one quantity, and its value is no worse in the other.

    The quantities are samples per second and the percentile. So nothing dominates the point with the highest
    throughput, neither among all points nor among those within a latency limit.
    """
    a, b = _latency(one, percentile), _latency(other, percentile)
    if a is None or b is None or one.throughput_per_s is None or other.throughput_per_s is None:
        return False
    if one.throughput_per_s < other.throughput_per_s or a > b:
        return False
    return surely_faster(one, other) or surely_lower_latency(one, other, percentile)


def _latency(point: Measured, name: str) -> float | None:
    value: float | None = (point.latency or {}).get(name)
    return value


# --- a point and the latency limit --------------------------------------------------------------------------


def surely_within_limit(point: Measured, line_s: float, percentile: str) -> bool:
    """True where even the upper bound of the percentile's 95 % interval is within the latency limit.

    Never for a point with too few processes for an interval that covers a new one.
    """
    high = _latency(point, f"{percentile}_high")
    return high is not None and high <= line_s and not has_few_processes(point)


def exceeds_limit(point: Measured, line_s: float | None, percentile: str) -> bool | None:
    """Whether a point exceeds the latency limit; None: there is no limit, or its percentile is unknown.

    Args:
        point: in any state.
        line_s: the latency limit, seconds; None: no limit.
        percentile: "p50_s", "p90_s", "p95_s", "p99_s" or "mean_s".
    """
    value = _latency(point, percentile)
    return None if line_s is None or value is None else value > line_s


def limit_in_interval(point: Measured, line_s: float | None, percentile: str) -> bool:
    """Whether the 95 % interval of a point contains the latency limit, so that its side is not certain."""
    low, high = _latency(point, f"{percentile}_low"), _latency(point, f"{percentile}_high")
    return line_s is not None and low is not None and high is not None and low <= line_s <= high


# --- throughput against latency -----------------------------------------------------------------------------


def front(points: Sequence[Measured], percentile: str) -> list[Measured]:
    """Return the Pareto front of the points that may be ranked and support the percentile.

    Each configuration occurs once.
    """
    known = [
        one
        for one in points
        if one.ranked and one.same is None and one.throughput_per_s and _latency(one, percentile)
    ]
    return [one for one in known if not any(dominates(other, one, percentile) for other in known)]


# --- all together -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRanking:
    """The points of a sweep ranked against each other and the latency limit; names as of `point_name`."""

    percentile: str
    line_s: float | None
    margin: float  # relative difference that counts as none
    best: Measured | None  # highest throughput, within the latency limit if any; None: no such point
    level: tuple[Measured, ...]  # whole interval within the margin of the best
    inconclusive: tuple[Measured, ...]  # the intervals do not show which has the higher throughput
    unranked: tuple[Measured, ...]  # with numbers, but from a rejected or cancelled comparison
    over: frozenset[str]  # names of points that exceed the limit
    open: frozenset[str]  # names of points whose interval contains the limit
    front: frozenset[str]

    def place(self, point: Measured) -> str:
        """Return `BEST`, `LEVEL`, `INCONCLUSIVE`, or "": a lower throughput, or not judged.

        A point that is the same configuration as the best one is `LEVEL`.
        """
        if self.best is not None and _name(point.values) == _name(self.best.values):
            return BEST
        own = _name(point.same if point.same is not None else point.values)
        best = () if self.best is None else (self.best,)
        for place, points in ((LEVEL, (*best, *self.level)), (INCONCLUSIVE, self.inconclusive)):
            if any(own == _name(one.values) for one in points):
                return place
        return ""

    def is_in(self, point: Measured, names: frozenset[str]) -> bool:
        """Whether a point is in `names`: `over`, `open` or `front`."""
        return _name(point.values) in names


def _name(values: Values) -> str:
    return repr(sorted(values.items()))


def _names(points: Iterable[Measured], holds: Callable[[Measured], bool | None]) -> frozenset[str]:
    return frozenset(_name(one.values) for one in points if holds(one))


def rank_points(
    points: Sequence[Measured], *, line_s: float | None, percentile: str | None = None, margin: float
) -> SweepRanking:
    """Rank the points of a sweep.

    Args:
        points: of a sweep, in any state.
        line_s: the latency limit, seconds; None: no limit, and the best has the highest throughput.
        percentile: that the limit applies to; None: the first of p95 and p50 that all points support.
        margin: relative difference that counts as none.
    """
    name = percentile or supported_percentile(points)
    own = [one for one in points if one.same is None]
    judged = [
        one
        for one in own
        if one.ranked
        and one.throughput_per_s is not None
        and (line_s is None or exceeds_limit(one, line_s, name) is False)
    ]
    best = min(judged, key=lambda one: _throughput_first(one, name), default=None)
    others = [] if best is None else [one for one in judged if one is not best]
    level = [one for one in others if best is not None and level_with(one, best, margin)]
    return SweepRanking(
        percentile=name,
        line_s=line_s,
        margin=margin,
        best=best,
        level=tuple(level),
        inconclusive=tuple(
            one for one in others if best is not None and one not in level and not surely_faster(best, one)
        ),
        unranked=tuple(one for one in own if one.latency is not None and not one.ranked),
        over=_names(points, lambda one: exceeds_limit(one, line_s, name)),
        open=_names(points, lambda one: limit_in_interval(one, line_s, name)),
        front=_names(front(points, name), lambda _: True),
    )


def _throughput_first(point: Measured, percentile: str) -> tuple[float, float]:
    latency = _latency(point, percentile)
    return -(point.throughput_per_s or 0.0), math.inf if latency is None else latency
