"""A result as a person reads it, before anybody draws it: a headline, facts, tables, notes.

Pure. A sheet knows no width, no terminal and no browser: whoever draws it makes control characters of names
visible, decides how a colour looks, and what of a table fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.verdict import Color
from core.show.table import Table


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what there is to say."""

    name: str
    text: str
    color: Color | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on the facts around it."""

    text: str
    color: Color | None = None
    apart: bool = False  # from what stands before


@dataclass(frozen=True, slots=True)
class Line:
    """A line of its own."""

    text: str
    color: Color | None = None
    apart: bool = False  # from what stands before


Part = Fact | Note | Line | Table


@dataclass(frozen=True, slots=True)
class Sheet:
    """What there is to read of one result."""

    headline: str
    parts: Sequence[Part]
