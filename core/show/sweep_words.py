"""Sentences about the points of a sweep, for page, terminal and report. Pure functions.

Sentences give the deciding metric of a point, samples per second, with its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.evidence.statistics import MIN_BLOCKS
from core.run.axes import point_name
from core.run.best_point import SweepRanking, has_few_processes
from core.run.sweep import Measured
from core.wire.units import DASH, brief, interval, significant

NAMED = 3  # most points in one sentence; the table lists all


def rate(point: Measured) -> str:
    """Return samples per second with the 95 % interval."""
    if point.throughput_per_s is None:
        return DASH
    low, high = point.throughput_interval()
    known = interval(low, high) if low or high else "no interval"
    return f"{significant(point.throughput_per_s, 4)} samples/s ({known})"


def head(ranking: SweepRanking) -> str:
    """Return the criterion of the best point."""
    if ranking.line_s is not None:
        return f"Best under the limit of {brief(ranking.line_s * 1e3)} ms"
    return "Highest measured throughput" if ranking.inconclusive else "Highest throughput"


def others(ranking: SweepRanking) -> str:
    """Return the points that are inconclusive or level with the best, and unranked points; empty: none."""
    margin = f"{100 * ranking.margin:g} %"
    parts = (
        (ranking.inconclusive, "Inconclusive against {}: 95 % intervals overlap or are unknown."),
        (ranking.level, "Within ±" + margin + " of it, with 95 %: {}."),
        (ranking.unranked, "Not ranked because the comparison was rejected or cancelled: {}."),
    )
    return " ".join(text.format(_listed(points)) for points, text in parts if points)


def few_processes(points: Iterable[Measured]) -> str:
    """Say which points have too few launches for an interval over launches; empty: none."""
    few = [one for one in points if one.ranked and one.same is None and has_few_processes(one)]
    if not few:
        return ""
    least = min(one.processes or 0 for one in few)
    return (
        f"Intervals are {'unknown' if least < 2 else 'wide'}: {least} launch{'es' * (least != 1)} of "
        f"{_listed(few)}, {MIN_BLOCKS} are needed. Measure longer."
    )


def sentence(points: Sequence[Measured], ranking: SweepRanking) -> str:
    """Return the whole result as plain text."""
    if not any(one.latency for one in points):
        return "No point has a result."
    if ranking.best is not None:
        said = f"{head(ranking)}: {point_name(ranking.best.values)}: {rate(ranking.best)}."
    elif ranking.line_s is not None and any(one.ranked for one in points):
        said = f"No point is at or under the limit of {brief(ranking.line_s * 1e3)} ms."
    else:
        said = "The points are not ranked."
    return " ".join(part for part in (said, others(ranking), few_processes(points)) if part)


def _listed(points: Sequence[Measured]) -> str:
    names = [point_name(one.values) for one in points[:NAMED]]
    more = [f"{len(points) - NAMED} more"] if len(points) > NAMED else []
    return "; ".join([*names, *more])
