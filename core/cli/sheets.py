"""Prints sheets: with colours on a terminal, as plain text to a file or a pipe.

The only module that lays out sheets as lines, and the only one that imports rich.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.cli import terminal_width
from core.cli.output import print_lines
from core.evidence.verdict import Color
from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.table import Table, as_text
from core.wire import sandbox
from core.wire.units import visible

_STYLES: Mapping[Color, str] = {
    "green": "green",
    "blue": "blue",
    "orange": "yellow",
    "red": "red",
    "gray": "dim",
}
_HEAD = "bold"
_INDENT = 16  # of a fact's text


@dataclass(frozen=True, slots=True)
class _Styled:
    text: str
    style: str = ""


def print_sheet(sheet: Sheet) -> None:
    """Write a sheet to stdout."""
    print_parts(sheet.parts, headline=sheet.headline)


def print_parts(parts: Sequence[Part], *, headline: str = "") -> None:
    """Write parts of a sheet to stdout, with colours on a terminal, marked if workers have no sandbox."""
    if sandbox.is_off() and not any(sandbox.NOTE in getattr(one, "text", "") for one in parts):
        parts = [*parts, Note(sandbox.RUNS, "orange")]
    found = list(_lines(parts, headline))
    if not sys.stdout.isatty():
        print_lines([one.text for one in found])
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)  # obeys NO_COLOR and TERM
    for one in found:
        console.print(Text(one.text, style=one.style))


def lines(sheet: Sheet) -> list[str]:
    """Return a sheet as lines of plain text, in the width of `terminal_width`."""
    return [one.text for one in _lines(sheet.parts, sheet.headline)]


def _lines(parts: Sequence[Part], headline: str) -> Iterator[_Styled]:
    if headline:
        yield from _sentence(visible(headline), _HEAD, indent=2)
    before: Part | None = None
    for part in parts:
        begun = before is not None or bool(headline)
        if begun and _starts_block(part, before):
            yield _Styled("")
        match part:
            case Fact():
                begin = f"  {part.name:<13} "
                yield from _sentence(visible(part.text), _style(part.color), begin=begin, indent=_INDENT)
            case Note():
                yield from _sentence(visible(part.text), _style(part.color), begin="  ", indent=4)
            case Line():
                yield from _sentence(visible(part.text), _style(part.color))
            case Table():
                yield from _table(part)
        before = part


def _sentence(text: str, style: str, *, begin: str = "", indent: int = 0) -> Iterator[_Styled]:
    for one in terminal_width.sentence(text, begin=begin, indent=indent):
        yield _Styled(one, style)


def _starts_block(part: Part, before: Part | None) -> bool:
    if isinstance(part, Note | Line):
        return part.apart
    return isinstance(part, Table) or isinstance(before, Table)


def _table(one: Table) -> Iterator[_Styled]:
    columns, rows = as_text(one, short=terminal_width.is_limited())
    laid, below = terminal_width.lay_out(
        [[column.head for column in columns], *([visible(cell) for cell in row] for row in rows)],
        left={number for number, column in enumerate(columns) if column.is_text},
        drop=[column.head for name in one.drop for column in columns if column.name == name],
        solid=[column.head for column in columns if column.name in one.solid],
        cut=one.cut,
    )
    styles = [_HEAD, *map(_style, one.colors or [None] * len(one.rows))]
    for row, style in zip(laid, styles, strict=True):
        for text in row:
            yield _Styled(f"  {text}" if one.inset else text, style)
    for text in below:
        yield _Styled(text)


def _style(color: Color | None) -> str:
    return "" if color is None else _STYLES[color]
