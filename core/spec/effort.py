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
