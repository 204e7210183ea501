"""A result as a person reads it, before anybody draws it: a headline, facts, tables, notes.

Pure. A sheet knows no width, no terminal and no browser: whoever draws it makes control characters of names
visible, decides how a colour looks, and what of a table fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.verdict import Color


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1  # columns that stand left, from the first; the others are numbers
    drop: Sequence[str] = ()  # columns that may be left out for lack of width, the first one first
    solid: Sequence[str] = ()  # columns whose cells are not wrapped
    colors: Sequence[Color | None] = ()  # of the rows; empty: none has one
    inset: bool = False  # it belongs to the facts around it


Part = Fact | Note | Line | Table


@dataclass(frozen=True, slots=True)
class Sheet:
    """What there is to read of one result."""

    headline: str
    parts: Sequence[Part]
