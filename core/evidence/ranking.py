"""Ranks of configurations, by the intervals against their baseline that are shown. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

Key = tuple[int, int]  # generation, round
PerRound = Mapping[Key, float]
Interval = tuple[float, float]  # of a ratio: lower and upper bound; the baseline's is (1, 1)


def paired(own: PerRound, other: PerRound, *, before: float = math.inf) -> list[list[float]]:
    """Return ln(other / own) of the rounds that both have, by generation.

    Args:
        own: (generation, round) -> ln(median seconds per row).
        other: of the other side.
        before: number of the first generation that is left out.
    """
    found: dict[int, list[float]] = {}
    # in the order of the race as a rule, which is cheap to sort
    for key in sorted([one for one in own if one in other and one[0] < before]):
        found.setdefault(key[0], []).append(other[key] - own[key])
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The places that the intervals leave open for one configuration, 1 being the fastest."""

    name: str
    best: int  # 1 + how many are surely faster
    worst: int  # of all, without those that are surely slower
    ties: tuple[str, ...]  # neither surely faster nor surely slower, in the given order


def ranks(intervals: Mapping[str, Interval | None]) -> list[Rank]:
    """Rank configurations by their intervals against one baseline, which is among them.

    One is surely faster than another where its whole interval lies above the other's. So a rank never
    contradicts a picture or a table of the intervals; and where these hold together, with 95 %, so do all
    ranks. Nothing else is asked: no margin, no second test of pairs.

    Args:
        intervals: name -> bounds of its ratio, of which above 1 is faster; None: not known.

    Returns:
        The ranks, the best first, in the given order where two have the same places.
    """
    found = [
        Rank(
            name=name,
            best=1 + sum(surely_faster(other, own) for other in intervals.values()),
            worst=len(intervals) - sum(surely_faster(own, other) for other in intervals.values()),
            ties=tuple(
                one
                for one, other in intervals.items()
                if one != name and not surely_faster(own, other) and not surely_faster(other, own)
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
        contrasts: of a comparison; those against others are left out.
        baseline: trial.
        names: trials; what has no interval is not known.
    """
    found: dict[str, Interval | None] = dict.fromkeys(names)
    for one in contrasts:
        if one["candidate"] in found and one["baseline"] == baseline:
            found[one["candidate"]] = _bounds(one)
    return {**found, **({baseline: (1.0, 1.0)} if baseline in found else {})}


def _bounds(contrast: Mapping[str, Any]) -> Interval | None:
    """Bounds that the verdict follows from: earlier versions stored none that span a contradiction."""
    told = [contrast]
    if contrast.get("contradicted") and contrast.get("without_flagged"):
        told.append(contrast["without_flagged"])
    lows, highs = ([one[name] for one in told] for name in ("ratio_low", "ratio_high"))
    return None if None in (*lows, *highs) else (min(lows), max(highs))


def surely_faster(one: Interval | None, other: Interval | None) -> bool:
    """Whether the whole of an interval lies above another; never, where one is not known."""
    return one is not None and other is not None and one[0] > other[1]


def are_level(intervals: Sequence[Interval | None], margin: float) -> bool:
    """Whether no two of several configurations can differ by more than the margin.

    Args:
        intervals: of their ratios against one baseline; None: not known.
        margin: relative difference that counts as none.
    """
    known = [one for one in intervals if one is not None]
    return len(known) == len(intervals) and all(
        one[1] <= (1 + margin) * other[0] for one, other in permutations(known, 2)
    )
