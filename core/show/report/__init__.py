"""The data of a report for readers without ORTune, independent of HTML and Markdown. Pure.

`subjects` loads the results from the store, `compose` turns them into text and tables, `markdown` writes them
for a pull request. `dashboard.report` writes the HTML file with its plots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.evidence.verdict import Color
from core.show.sheets import Part
from core.wire.errors import SpecError

MAX_PER_HOUR = 1e6  # a higher price is a typing error
MAX_CURRENCY_LENGTH = 8  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one hour on the machine."""

    per_hour: float
    currency: str = "USD"

    def __post_init__(self) -> None:
        """Refuse an invalid price.

        Raises:
            SpecError: the price is not above zero, or the currency is not a short name.
        """
        if not math.isfinite(self.per_hour) or not 0 < self.per_hour <= MAX_PER_HOUR:
            raise SpecError(
                f"A price per hour is above 0 and at most {MAX_PER_HOUR:,.0f}, but got {self.per_hour:g}.",
                hint="Give the price of an hour of this machine, such as 0.34.",
            )
        if (
            not self.currency.strip()
            or len(self.currency) > MAX_CURRENCY_LENGTH
            or not self.currency.isprintable()
        ):
            raise SpecError(
                f"A currency is a name of 1 to {MAX_CURRENCY_LENGTH} characters, "
                f"but got `{self.currency[:20]}`.",
                hint="Use for example EUR.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Facts and tables under one heading."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A configuration as YAML, or the reason why there is none."""

    name: str
    text: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of a report; its writer decides the layout."""

    kind: str  # in words: "Comparison"
    id: str  # key in the store
    title: str
    measured_at: float | None  # seconds since the epoch
    verdict: str  # one sentence
    color: Color
    support: Sequence[str] = ()  # basis of the verdict
    rejected: str = ""  # why the verdict is rejected; empty: it is valid
    recorded: str = ""  # note on a recording, as in the demo; empty: measured here
    result: Sequence[Section] = ()
    cost: Section | None = None
    method: Sequence[Section] = ()  # method and machine
    signature: Section | None = None  # who signed, and the digests
    caveats: Sequence[str] = ()
    files: Sequence[File] = field(default=())
    tool_version: str = ""
