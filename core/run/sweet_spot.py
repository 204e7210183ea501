"""Which point of a sweep is best: under a latency line, with all that cannot be told from it; and the front.

Pure functions over the points of `sweep`. Seconds throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.evidence.metrics.intervals import Z
from core.evidence.tried import Gain
from core.run.axes import Values
from core.run.search.answer import dominates
from core.run.sweep import Measured


def supported_percentile(points: Sequence[Measured], wanted: Sequence[str] = ("p95_s", "p50_s")) -> str:
    """Return the first of `wanted` that every complete point supports, or the last one."""
    complete = [one for one in points if one.latency]
    for name in wanted:
        if complete and all(one.latency and one.latency.get(name) is not None for one in complete):
            return name
    return wanted[-1]


def best_under(points: Iterable[Measured], line_s: float, percentile: str) -> list[Measured]:
    """Return the points of highest throughput whose `percentile` is at or under `line_s`.

    Args:
        points: of any state; those count that may be ranked and whose runs support the percentile.
        line_s: the latency line, seconds.
        percentile: "p50_s", "p90_s", "p95_s", "p99_s" or "mean_s".

    Returns:
        The point with the highest throughput and those that cannot be told apart from it, the lowest latency
        first: where throughput does not decide, latency does. Empty when no point is under the line.
    """
    under = [
        one
        for one in points
        if one.ranked
        and one.throughput_per_s is not None
        and (value := (one.latency or {}).get(percentile)) is not None
        and value <= line_s
    ]
    return fastest(under, percentile)


def fastest(points: Iterable[Measured], percentile: str) -> list[Measured]:
    """Return the point of highest throughput and its ties, the lowest `percentile` first."""
    ranked = [one for one in points if one.ranked and one.throughput_per_s is not None]
    if not ranked:
        return []
    top = max(ranked, key=lambda one: one.throughput_per_s or 0.0)
    level = [one for one in ranked if one is top or tied(one, top)]
    return sorted(level, key=lambda one: (one.latency or {}).get(percentile) or math.inf)


def tied(one: Measured, other: Measured) -> bool:
    """True where the throughputs of two points cannot be told apart.

    Of one race, its ranks say so: pairs of blocks of the same rounds. Of two races, and of a race too large
    to rank, only the intervals are left, which are wider.
    """
    if one.race == other.race and other.ties is not None:
        return one.trial in other.ties
    low, high = one.throughput_interval()
    other_low, other_high = other.throughput_interval()
    if low is None or high is None or other_low is None or other_high is None:
        return True
    return low <= other_high and other_low <= high


def surely_under(point: Measured, line_s: float, percentile: str) -> bool:
    """True where even the upper bound of the percentile's 95 % interval is at or under the line."""
    high = (point.latency or {}).get(f"{percentile}_high")
    return high is not None and high <= line_s


def beyond(point: Measured, line_s: float | None, percentile: str) -> bool | None:
    """Whether a point is over the latency line; None: there is no line, or its runs do not tell.

    Args:
        point: of any state.
        line_s: the latency line, seconds; None: there is none.
        percentile: as for `best_under`.
    """
    value = (point.latency or {}).get(percentile)
    return None if line_s is None or value is None else value > line_s


def astride(point: Measured, line_s: float | None, percentile: str) -> bool:
    """Whether the 95 % interval of a point holds the line, so that which side it is on is not sure."""
    known = point.latency or {}
    low, high = known.get(f"{percentile}_low"), known.get(f"{percentile}_high")
    return line_s is not None and low is not None and high is not None and low <= line_s <= high


# --- throughput against latency -----------------------------------------------------------------------------


def front(points: Sequence[Measured], percentile: str, *, margin: float) -> list[Measured]:
    """Return the points that none surely dominates: as good in both respects and, with 95 %, better in one.

    As for a search's front, but from the intervals of each point, which are wider than those of a ratio
    within rounds: a point is rather kept than dropped. One configuration stands once.

    Args:
        points: of any state; those count that may be ranked and whose runs support the percentile.
        percentile: of the latency.
        margin: relative difference that counts as none.
    """
    gains: list[tuple[Measured, Mapping[str, Gain]]] = []
    for one in points:
        value = (one.latency or {}).get(percentile)
        if one.ranked and one.same is None and value and one.throughput_per_s:
            low, high = one.throughput_interval()
            own = {"objective": (math.log(one.throughput_per_s), _error(low, high))}
            bounds = ((one.latency or {}).get(f"{percentile}_{end}") for end in ("low", "high"))
            gains.append((one, {**own, "latency": (-math.log(value), _error(*bounds))}))
    return [
        one
        for one, own in gains
        if not any(dominates(other, own, math.log1p(margin)) for _, other in gains if other is not own)
    ]


def _error(low: float | None, high: float | None) -> float | None:
    """Standard error of the logarithm, by its 95 % interval."""
    return None if not low or not high else math.log(high / low) / 2 / Z


# --- all of it at once --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the points of a sweep stand against each other and the line; points by what they set."""

    percentile: str
    line_s: float | None
    level: tuple[Measured, ...]  # the best, then those that cannot be told from it; nothing: none is best
    over: frozenset[str]  # names of points over the line
    open: frozenset[str]  # of those whose interval holds it
    front: frozenset[str]

    @property
    def best(self) -> Measured | None:
        """The best point: under the line where there is one."""
        return self.level[0] if self.level else None

    def place(self, point: Measured) -> str:
        """Return "best", "level with the best", or nothing."""
        if any(_name(point.values) == _name(one.values) for one in self.level[:1]):
            return "best"
        own = _name(point.same if point.same is not None else point.values)
        return "level with the best" if any(own == _name(one.values) for one in self.level) else ""

    def is_in(self, point: Measured, names: frozenset[str]) -> bool:
        """Whether a point is one of `over`, `open` or `front`."""
        return _name(point.values) in names


def _name(values: Values) -> str:
    return repr(sorted(values.items()))


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
    level = fastest(own, name) if line_s is None else best_under(own, line_s, name)
    return Standing(
        percentile=name,
        line_s=line_s,
        level=tuple(level),
        over=frozenset(_name(one.values) for one in points if beyond(one, line_s, name)),
        open=frozenset(_name(one.values) for one in points if astride(one, line_s, name)),
        front=frozenset(_name(one.values) for one in front(points, name, margin=margin)),
    )
