"""Ranks of configurations, by their displayed intervals against the baseline. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

Key = tuple[int, int]  # launch, round
PerRound = Mapping[Key, float]
Interval = tuple[float, float]  # of a ratio: lower and upper bound; the baseline's is (1, 1)


def paired_log_ratios(own: PerRound, other: PerRound, *, before: float = math.inf) -> list[list[float]]:
    """Return ln(other / own) of the common rounds, grouped by launch.

    Args:
        own: (launch, round) -> ln(median seconds per sample).
        other: the same for the other side.
        before: number of the first launch that is left out.
    """
    found: dict[int, list[float]] = {}
    # usually sorted already, which is cheap to sort
    for key in sorted([one for one in own if one in other and one[0] < before]):
        found.setdefault(key[0], []).append(other[key] - own[key])
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The ranks of one configuration that are consistent with the intervals; 1 is the fastest."""

    name: str
    best: int  # 1 + number of significantly faster configurations
    worst: int  # number of all configurations minus the significantly slower ones
    ties: tuple[str, ...]  # not significantly different, in the given order


def ranks(intervals: Mapping[str, Interval | None]) -> list[Rank]:
    """Rank configurations by their intervals against one baseline, which is among them.

    A configuration is significantly faster than another if its whole interval is above the other's. A rank
    therefore never contradicts a chart or table of the intervals, and all ranks hold together with 95 % if
    the intervals do. No margin and no further test of pairs is used.

    Args:
        intervals: name -> bounds of its ratio, above 1 is faster; None: not known.

    Returns:
        The ranks, best first; equal ranks in the given order.
    """
    found = [
        Rank(
            name=name,
            best=1 + sum(significantly_faster(other, own) for other in intervals.values()),
            worst=len(intervals) - sum(significantly_faster(own, other) for other in intervals.values()),
            ties=tuple(
                one
                for one, other in intervals.items()
                if one != name
                and not significantly_faster(own, other)
                and not significantly_faster(other, own)
            ),
        )
        for name, own in intervals.items()
    ]
    return sorted(found, key=lambda one: (one.best, one.worst))


def intervals(
    contrasts: Sequence[Mapping[str, Any]], baseline: str, names: Sequence[str]
) -> dict[str, Interval | None]:
    """Return the intervals of `names` against `baseline`, which may be among them.

    Args:
        contrasts: contrasts of a comparison; those with other references are left out.
        baseline: trial of the baseline.
        names: trials; None for those without an interval.
    """
    found: dict[str, Interval | None] = dict.fromkeys(names)
    for one in contrasts:
        if one["candidate"] in found and one["baseline"] == baseline:
            found[one["candidate"]] = _bounds(one)
    return {**found, **({baseline: (1.0, 1.0)} if baseline in found else {})}


def _bounds(contrast: Mapping[str, Any]) -> Interval | None:
    """Return the bounds behind the verdict; earlier versions stored two contradicting intervals instead."""
    told = [contrast]
    if contrast.get("contradicted") and contrast.get("without_flagged"):
        told.append(contrast["without_flagged"])
    lows, highs = ([one[name] for one in told] for name in ("ratio_low", "ratio_high"))
    return None if None in (*lows, *highs) else (min(lows), max(highs))


def significantly_faster(one: Interval | None, other: Interval | None) -> bool:
    """Whether an interval lies entirely above another; False where one is not known."""
    return one is not None and other is not None and one[0] > other[1]


def are_equivalent(intervals: Sequence[Interval | None], margin: float) -> bool:
    """Whether no two of several configurations can differ by more than the margin.

    Args:
        intervals: intervals of their ratios against one baseline; None: not known.
        margin: equivalence margin, relative.
    """
    known = [one for one in intervals if one is not None]
    return len(known) == len(intervals) and all(
        one[1] <= (1 + margin) * other[0] for one, other in permutations(known, 2)
    )
