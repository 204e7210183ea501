"""Effort levels: precision goal and time budget of a comparison; the default margin. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DEFAULT_MARGIN = 0.02  # differences below 2 % are rarely worth a change of configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Precision goal and time budget of a comparison."""

    name: str
    target: float  # relative half-width of the interval at which to stop
    budget_s: int
    looks: tuple[int, ...]  # numbers of launches with an interim analysis, which may stop
    of_effect: float = 0.0  # or stop at this half-width as a share of the difference: 1.5 needs no ±3 %
    rounds: int = 0  # exactly so many, in one launch and without other measurements; 0: to the goal
    rivals: bool = False  # finds the fastest: significantly slower configurations are dropped


_LOOKS = (4, 6, 9, 14, 21, 32, 48, 72)
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        one.name: one
        for one in (
            Effort(name="quick", target=0.03, budget_s=30, looks=_LOOKS, of_effect=0.25),
            Effort(name="standard", target=0.015, budget_s=120, looks=_LOOKS),
            Effort(name="publish", target=0.007, budget_s=600, looks=(*_LOOKS[1:], 108, 160)),
        )
    }
)

# Comparisons inside a search. They only select configurations; their numbers are never reported as results.
STAGES: Mapping[str, Effort] = MappingProxyType(
    {
        one.name: one
        for one in (
            Effort(name="screen", target=0.05, budget_s=30, looks=(1,), rounds=3),
            Effort(name="heat", target=0.02, budget_s=60, looks=(2, 3, 4, 6, 9, 14, 21), rivals=True),
        )
    }
)


def effort(name: str) -> Effort:
    """Return the effort level, or the stage of a search, called `name`."""
    return STAGES[name] if name in STAGES else EFFORTS[name]
