"""Ranks of contestants from their contrasts. Pure functions of numbers; see `contrast` for what a unit is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations, product

from core.evidence.contrast import ASSUMED, Prior, contrast
from core.evidence.verdict import Verdict
from core.spec.effort import DEFAULT_MARGIN

Key = tuple[int, int]  # generation, round
PerRound = Mapping[Key, float]


def paired(own: PerRound, other: PerRound) -> list[list[float]]:
    """Return ln(other / own) of the rounds that both have, by generation.

    Args:
        own: (generation, round) -> ln(median seconds per row).
        other: of the other side.
    """
    found: dict[int, list[float]] = {}
    for key in sorted(own.keys() & other.keys()):
        found.setdefault(key[0], []).append(other[key] - own[key])
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The place of one contestant: 1 + how many are clearly faster."""

    name: str
    rank: int
    ties: tuple[str, ...]  # those that are not clearly faster or slower, in the given order


def ranks(
    per_round: Mapping[str, PerRound],
    *,
    looks: float = 1,
    margin: float = DEFAULT_MARGIN,
    prior: Prior | None = ASSUMED,
) -> list[Rank]:
    """Rank contestants by pairwise contrasts over the rounds that both sides have.

    A pair is clearly apart when its contrast says FASTER or SLOWER at a confidence that is split over all
    pairs (Bonferroni), so that with 95 % no two equal contestants get different ranks. What is EQUIVALENT,
    UNDECIDED or without common rounds is a tie. "Clearly faster" is carried along chains (faster than one
    that is faster), so that nobody stands above a contestant that is clearly faster.

    Args:
        per_round: contestant -> {(generation, round): ln(median latency per row)}.
        looks: as for `contrast`.
        margin: as for `contrast`.
        prior: as for `contrast`.

    Returns:
        The ranks, best first, in the given order within a rank; "1, 1, 3" where two tie ahead of a third.
    """
    names = list(per_round)
    faster = _clearly_faster(per_round, max(1.0, looks * math.comb(len(names), 2)), margin, prior)
    found = [
        Rank(
            name=name,
            rank=1 + sum((other, name) in faster for other in names),
            ties=tuple(
                other
                for other in names
                if other != name and (name, other) not in faster and (other, name) not in faster
            ),
        )
        for name in names
    ]
    return sorted(found, key=lambda one: one.rank)


def _clearly_faster(
    per_round: Mapping[str, PerRound], looks: float, margin: float, prior: Prior | None
) -> set[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    for a, b in combinations(per_round, 2):
        common = paired(per_round[a], per_round[b])
        if not common:
            continue
        found = contrast(common, looks=looks, margin=margin, prior=prior)
        if found.verdict == Verdict.FASTER:
            pairs.add((a, b))
        elif found.verdict == Verdict.SLOWER:
            pairs.add((b, a))
    for middle, (a, b) in product(per_round, permutations(per_round, 2)):  # Warshall: the chains
        if (a, middle) in pairs and (middle, b) in pairs:
            pairs.add((a, b))
    return {(a, b) for a, b in pairs if (b, a) not in pairs}
