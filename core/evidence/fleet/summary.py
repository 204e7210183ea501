"""Everything a fleet run says, one section per question. Pure.

A section holds the table of hosts and configurations and, where the answers allow it, regrets with the choice
of one configuration, the spread between machines of one kind, and costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.fleet.costs import Costs, costs
from core.evidence.fleet.fleet_types import ENDED, FleetRun
from core.evidence.fleet.kinds import Disagreement, Spread, disagreements, spreads
from core.evidence.fleet.matrix import Document, HostRow, Matrix, matrix
from core.evidence.fleet.portability import Portability, portability

_WITH_REGRETS = ("compare", "sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The answers of one question."""

    matrix: Matrix
    portability: Portability | None  # None: no comparison of several configurations
    spreads: tuple[Spread, ...]
    disagreements: tuple[Disagreement, ...]
    costs: Costs | None  # None: no host has a price
    second_phase: int | None  # number of the question that compares the winners of this one

    @property
    def is_open(self) -> bool:
        """Whether an answer is still expected."""
        return any(one.state not in ENDED for one in self.matrix.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole run."""

    run: FleetRun
    sections: tuple[Section, ...]

    @property
    def main(self) -> Section | None:
        """The section that answers first: a portability comparison, else the first question."""
        second = [one for one in self.sections if one.matrix.phase == "portability" and one.matrix.measured]
        return next(iter([*second, *self.sections]), None)


def summarize(run: FleetRun, trials: Mapping[str, Document] | None = None) -> Summary:
    """Return what a run says.

    Args:
        run: with its answers.
        trials: stored trials by ID, for the intervals of a search's winners; None: they have none.
    """
    found = [matrix(run, one.number, trials) for one in run.questions]
    return Summary(run=run, sections=tuple(_section(one, found) for one in found))


def _section(of: Matrix, every: Sequence[Matrix]) -> Section:
    compared = of.command in _WITH_REGRETS and len(of.configurations) > 1 and of.measured
    priced = any(one.price_per_hour is not None for one in of.rows) and of.measured
    later = (
        one.question
        for one in every
        if of.command == "search" and one.phase == "portability" and one.model_sha256 == of.model_sha256
    )
    return Section(
        matrix=of,
        portability=portability(of) if compared else None,
        spreads=tuple(spreads(of)),
        disagreements=tuple(disagreements(of)),
        costs=costs(of) if priced else None,
        second_phase=next(later, None),
    )


def trial_ids(run: FleetRun) -> list[str]:
    """Return the trials of searches whose intervals only the store holds."""
    documents: list[Any] = [one.document for one in run.answers if one.document and "winner" in one.document]
    parts = [part for document in documents for part in (document["winner"], document.get("default"))]
    return [one["trial"] for one in parts if one]


def counts(rows: Sequence[HostRow]) -> dict[str, int]:
    """Return how many hosts have each state."""
    found: dict[str, int] = {}
    for row in rows:
        found[row.state] = found.get(row.state, 0) + 1
    return found
