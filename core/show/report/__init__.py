"""A report: what somebody takes to others who have no ORTune, as data, before it is HTML or Markdown. Pure.

`subjects` finds in the store what is reported, `compose` turns it into words and tables, `markdown` writes
them for a pull request; the HTML file with its plots is the dashboard's (`dashboard.report`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.evidence.verdict import Color
from core.show.sheets import Part
from core.wire.errors import SpecError

MOST_PER_HOUR = 1e6  # beyond, somebody mistyped
MOST_CURRENCY = 8  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour of the machine costs."""

    per_hour: float
    currency: str = "USD"

    def __post_init__(self) -> None:
        """Refuse what is no price.

        Raises:
            SpecError: it is not above zero, or the currency is no short name.
        """
        if not math.isfinite(self.per_hour) or not 0 < self.per_hour <= MOST_PER_HOUR:
            raise SpecError(
                f"A price per hour is above 0 and at most {MOST_PER_HOUR:,.0f}, but got {self.per_hour:g}.",
                hint="Give the price of an hour of this machine, such as 0.34.",
            )
        if not self.currency.strip() or len(self.currency) > MOST_CURRENCY or not self.currency.isprintable():
            raise SpecError(
                f"A currency is a name of 1 to {MOST_CURRENCY} characters, but got `{self.currency[:20]}`.",
                hint="Use for example EUR.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Facts and tables under one heading."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A configuration as YAML, or why there is none."""

    name: str
    text: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a report says; who writes it decides how it looks."""

    kind: str  # in words: "Comparison"
    id: str  # by which the store finds it again
    title: str
    measured_at: float | None  # seconds since the epoch
    verdict: str  # one sentence
    color: Color
    support: Sequence[str] = ()  # what the verdict rests on
    rejected: str = ""  # why no verdict stands; empty: it stands
    recorded: str = ""  # that it was recorded elsewhere, as in the demo; empty: measured here
    result: Sequence[Section] = ()
    cost: Section | None = None
    method: Sequence[Section] = ()  # how it was measured, on which machine
    caveats: Sequence[str] = ()
    files: Sequence[File] = field(default=())
    tool_version: str = ""
