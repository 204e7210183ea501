"""Sheets: the content of a result as headline, facts, tables and notes, independent of the output.

Pure. A sheet knows no width, terminal or browser. Its renderer escapes control characters in names, maps the
colours, and fits the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.verdict import Color
from core.show.table import Table


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and its text."""

    name: str
    text: str
    color: Color | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on the facts around it."""

    text: str
    color: Color | None = None
    apart: bool = False  # blank line before it


@dataclass(frozen=True, slots=True)
class Line:
    """A separate line."""

    text: str
    color: Color | None = None
    apart: bool = False  # blank line before it


Part = Fact | Note | Line | Table


@dataclass(frozen=True, slots=True)
class Sheet:
    """The content of one result."""

    headline: str
    parts: Sequence[Part]
