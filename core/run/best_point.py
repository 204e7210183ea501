"""The best point of a sweep under a latency limit, and the Pareto front.

One statistic decides, is shown and is drawn: rows per second over all runs, with the 95 % interval of that
point, and one percentile of the latency with its own. Pure functions over the points of `sweep`. Seconds
throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from core.evidence.statistics import MIN_BLOCKS
from core.run.axes import Values
from core.run.sweep import Measured

BEST, LEVEL, INCONCLUSIVE = "best", "level with the best", "inconclusive"  # places of a point


def supported_percentile(points: Sequence[Measured], wanted: Sequence[str] = ("p95_s", "p50_s")) -> str:
    """Return the first of `wanted` that every complete point supports, or the last one."""
    complete = [one for one in points if one.latency]
    for name in wanted:
        if complete and all(_supports(one, name) for one in complete):
            return name
    return wanted[-1]


def _supports(point: Measured, percentile: str) -> bool:
    """Whether there is the percentile, and not only a lower bound of it."""
    low, high = _latency(point, f"{percentile}_low"), _latency(point, f"{percentile}_high")
    return _latency(point, percentile) is not None and (low is None or high is not None)


def has_few_processes(point: Measured) -> bool:
    """Whether too few processes made its runs for latency intervals that hold for new processes."""
    return point.processes is not None and point.processes < MIN_BLOCKS


# --- two points ---------------------------------------------------------------------------------------------


def surely_faster(one: Measured, other: Measured) -> bool:
    """True where the whole interval of rows per second lies above that of the other."""
    low, high = one.throughput_interval()[0], other.throughput_interval()[1]
    return low is not None and high is not None and low > high


def surely_quicker(one: Measured, other: Measured, percentile: str) -> bool:
    """True where the whole interval of the latency lies below that of the other, and both know processes."""
    if has_few_processes(one) or has_few_processes(other):
        return False
    high, low = _latency(one, f"{percentile}_high"), _latency(other, f"{percentile}_low")
    return high is not None and low is not None and high < low


def level_with(one: Measured, other: Measured, margin: float) -> bool:
    """True where even the farthest ends of both intervals of rows per second lie within the margin."""
    low, high = one.throughput_interval()
    other_low, other_high = other.throughput_interval()
    if not (low and high and other_low and other_high):
        return False
    return max(high / other_low, other_high / low) <= 1 + margin


def dominates(one: Measured, other: Measured, percentile: str) -> bool:
    """True where a point is surely better in one quantity, and by its value no worse in the other.

    The quantities are rows per second and the percentile. So nothing dominates the point of most rows per
    second, neither of all points nor of those under a line.
    """
    a, b = _latency(one, percentile), _latency(other, percentile)
    if a is None or b is None or one.throughput_per_s is None or other.throughput_per_s is None:
        return False
    if one.throughput_per_s < other.throughput_per_s or a > b:
        return False
    return surely_faster(one, other) or surely_quicker(one, other, percentile)


def _latency(point: Measured, name: str) -> float | None:
    value: float | None = (point.latency or {}).get(name)
    return value


# --- a point and the line -----------------------------------------------------------------------------------


def surely_under(point: Measured, line_s: float, percentile: str) -> bool:
    """True where even the upper bound of the percentile's 95 % interval is at or under the line.

    Never of a point whose processes are too few for an interval that holds for the next one.
    """
    high = _latency(point, f"{percentile}_high")
    return high is not None and high <= line_s and not has_few_processes(point)


def beyond(point: Measured, line_s: float | None, percentile: str) -> bool | None:
    """Whether a point is over the latency line; None: there is no line, or its runs do not tell.

    Args:
        point: of any state.
        line_s: the latency line, seconds; None: there is none.
        percentile: "p50_s", "p90_s", "p95_s", "p99_s" or "mean_s".
    """
    value = _latency(point, percentile)
    return None if line_s is None or value is None else value > line_s


def astride(point: Measured, line_s: float | None, percentile: str) -> bool:
    """Whether the 95 % interval of a point holds the line, so that which side it is on is not sure."""
    low, high = _latency(point, f"{percentile}_low"), _latency(point, f"{percentile}_high")
    return line_s is not None and low is not None and high is not None and low <= line_s <= high


# --- throughput against latency -----------------------------------------------------------------------------


def front(points: Sequence[Measured], percentile: str) -> list[Measured]:
    """Return the points that no other dominates, of those that may be ranked and support the percentile.

    One configuration stands once.
    """
    known = [
        one
        for one in points
        if one.ranked and one.same is None and one.throughput_per_s and _latency(one, percentile)
    ]
    return [one for one in known if not any(dominates(other, one, percentile) for other in known)]


# --- all of it at once --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the points of a sweep stand against each other and the line; points by what they set."""

    percentile: str
    line_s: float | None
    margin: float  # relative difference that counts as none
    best: Measured | None  # most rows per second, under the line where there is one; None: none is
    level: tuple[Measured, ...]  # surely within the margin of the best
    inconclusive: tuple[Measured, ...]  # the intervals leave open which of the two has more rows per second
    unranked: tuple[Measured, ...]  # with numbers, but of a race that was rejected or cancelled
    over: frozenset[str]  # names of points over the line
    open: frozenset[str]  # of those whose interval holds it
    front: frozenset[str]

    def place(self, point: Measured) -> str:
        """Return `BEST`, `LEVEL`, `INCONCLUSIVE`, or nothing: surely fewer rows per second, or not judged.

        A point that is the best under another name is level with it.
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
        """Whether a point is one of `over`, `open` or `front`."""
        return _name(point.values) in names


def _name(values: Values) -> str:
    return repr(sorted(values.items()))


def _names(points: Iterable[Measured], holds: Callable[[Measured], bool | None]) -> frozenset[str]:
    return frozenset(_name(one.values) for one in points if holds(one))


def standing(
    points: Sequence[Measured], *, line_s: float | None, percentile: str | None = None, margin: float
) -> Standing:
    """Return how points stand.

    Args:
        points: of a sweep, of any state.
        line_s: the latency line, seconds; None: there is none, and the best has the highest throughput.
        percentile: that the line applies to; None: the first of p95 and p50 that all points support.
        margin: relative difference that counts as none.
    """
    name = percentile or supported_percentile(points)
    own = [one for one in points if one.same is None]
    judged = [
        one
        for one in own
        if one.ranked
        and one.throughput_per_s is not None
        and (line_s is None or beyond(one, line_s, name) is False)
    ]
    best = min(judged, key=lambda one: _most_rows_first(one, name), default=None)
    others = [] if best is None else [one for one in judged if one is not best]
    level = [one for one in others if best is not None and level_with(one, best, margin)]
    return Standing(
        percentile=name,
        line_s=line_s,
        margin=margin,
        best=best,
        level=tuple(level),
        inconclusive=tuple(
            one for one in others if best is not None and one not in level and not surely_faster(best, one)
        ),
        unranked=tuple(one for one in own if one.latency is not None and not one.ranked),
        over=_names(points, lambda one: beyond(one, line_s, name)),
        open=_names(points, lambda one: astride(one, line_s, name)),
        front=_names(front(points, name), lambda _: True),
    )


def _most_rows_first(point: Measured, percentile: str) -> tuple[float, float]:
    latency = _latency(point, percentile)
    return -(point.throughput_per_s or 0.0), math.inf if latency is None else latency
