"""How exact an answer must be, and how long to try: what `--effort` and the margin mean. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DEFAULT_MARGIN = 0.02  # differences below 2 % are rarely worth a change of configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How sure to be, and how long to try at most."""

    name: str
    target: float  # relative half-width of the interval at which to stop
    budget_s: int
    looks: tuple[int, ...]  # generations after which a comparison may stop
    of_effect: float = 0.0  # or at this half-width as a share of the difference: 1.5 needs no ±3 %
    rounds: int = 0  # exactly so many, of one process of each, and nothing else is found out; 0: to an answer
    rivals: bool = False  # the best among the contestants is sought, and whoever is surely slower leaves


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

# Races inside a search. Their numbers choose who goes on; none of them is ever reported as a result.
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
    """Return the effort, or the stage of a search, that a comparison's protocol names."""
    return STAGES[name] if name in STAGES else EFFORTS[name]
