"""Tables of typed cells: what stands in each column, in which unit, and for whom. Pure.

A cell holds a quantity as it is kept: seconds, bytes, shares of 1, moments since 1970. Who draws a table, as
text, in a browser or as a file, decides how it looks; a column says where it belongs. A text in a column of
numbers says why there is no number: only a terminal has room for that.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from core.evidence.verdict import Color
from core.show import format
from core.show.words import lately
from core.wire.units import DASH, ms_number, significant, size, visible

Kind = Literal["text", "id", "count", "number", "ms", "bytes", "share", "moment"]
Screens = Literal["all", "terminal", "browser", "none"]  # "none": for files alone
Value = str | int | float | bool | None  # None: not known

Item = TypeVar("Item")

ID_CHARACTERS = 12  # of a hash on a screen
_TEXTS = ("text", "id", "moment")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


class Abridged(str):
    """A text with a shorter one, which a terminal shows that has no room for all."""

    __slots__ = ("short",)
    short: str

    def __new__(cls, text: str, short: str) -> Abridged:
        """Return the text, which carries the shorter one."""
        made = super().__new__(cls, text)
        made.short = short
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Return what makes a copy."""
        return str(self), self.short


@dataclass(frozen=True, slots=True)
class Column:
    """What stands in one column, and for whom."""

    name: str  # on screens, without the unit
    kind: Kind = "text"
    key: str = ""  # its name in a file, with the unit; empty: no file has it
    on: Screens = "all"
    per: str = ""  # what a time is of where that must be said: "run", "row"
    unit: str = ""  # of bytes in a browser, "KiB" instead of "MiB"
    decimals: int | None = None  # of a time or a share; None: as many as four digits have, of a share 1
    signed: bool = False  # of a time, above zero too
    most: int = 0  # characters on a terminal, which leaves out the middle of a longer text; 0: all
    right: bool = False  # a text that stands for a number
    tells: bool = False  # rows are told apart by it
    bar: bool = False  # a browser draws the share as a bar
    narrow: bool = False  # a browser shows the beginning of a long text
    help: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it reads from the left."""
        return self.kind in _TEXTS and not self.right

    @property
    def head(self) -> str:
        """Its name on a terminal, with the unit of a time."""
        per = f"/{self.per}" if self.per else ""
        return f"{self.name} ms{per}" if self.kind == "ms" else f"{self.name}{per}"

    def is_on(self, screen: Literal["terminal", "browser"]) -> bool:
        """Whether it belongs on that screen."""
        return self.on in ("all", screen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    drop: Sequence[str] = ()  # columns that a terminal may leave out for lack of width, the first one first
    solid: Sequence[str] = ()  # columns whose cells a terminal does not wrap
    cut: bool = False  # screens show each row on one line and cut what does not fit
    colors: Sequence[Color | None] = ()  # of the rows; empty: none has one
    inset: bool = False  # it belongs to the facts around it


def tabulate(items: Iterable[Item], *columns: tuple[Column, Callable[[Item], Value]], **layout: Any) -> Table:
    """Return one row for each of `items`; every column comes with what stands in it.

    Args:
        items: one a row.
        columns: each with a function from an item to its cell.
        layout: further fields of the table.
    """
    cells = [cell for _, cell in columns]
    return Table(
        columns=[column for column, _ in columns], rows=[_Row(one, cells) for one in items], **layout
    )


class _Row(Sequence[Value]):
    """Cells that are worked out when they are read: a screen reads a part of the columns, a file another."""

    def __init__(self, item: Any, cells: Sequence[Callable[[Any], Value]]) -> None:
        self._item, self._cells = item, cells
        self._known: dict[int, Value] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        if index not in self._known:
            self._known[index] = self._cells[index](self._item)
        return self._known[index]


def texts(*names: str, left: int = 1) -> list[Column]:
    """Return columns of text for a terminal, of which the first `left` read from the left."""
    return [Column(name, right=number >= left, on="terminal") for number, name in enumerate(names)]


def matching(table: Table, words: str) -> Table:
    """Return the table of those rows whose texts hold every word, in any case."""
    wanted = words.lower().split()

    def holds(row: Sequence[Value]) -> bool:
        text = " ".join(cell for cell in row if isinstance(cell, str)).lower()
        return all(word in text for word in wanted)

    return replace(table, rows=[row for row in table.rows if holds(row)])


def column_of(table: Table, name: str) -> list[Value]:
    """Return the cells of the first column of that name."""
    index = next(number for number, one in enumerate(table.columns) if one.name == name)
    return [row[index] for row in table.rows]


# --- as text ------------------------------------------------------------------------------------------------


def as_text(table: Table, *, short: bool = False) -> tuple[list[Column], list[list[str]]]:
    """Return the columns that a terminal or a document has, and their cells as text, shorter if asked."""
    shown = [index for index, one in enumerate(table.columns) if one.is_on("terminal")]
    columns = [table.columns[index] for index in shown]
    rows = [
        [cell_text(one, _told(row[index], short=short)) for one, index in zip(columns, shown, strict=True)]
        for row in table.rows
    ]
    return columns, rows


def _told(value: Value, *, short: bool) -> Value:
    return value.short if short and isinstance(value, Abridged) else value


def cell_text(column: Column, value: Value) -> str:
    """Return a cell as a terminal shows it; the unit of a time stands in the head."""
    if value is None:
        return DASH
    if isinstance(value, str):
        text = value[:ID_CHARACTERS] if column.kind == "id" else value
        return format.short(text, column.most) if column.most else text
    if isinstance(value, bool):
        return "yes" if value else ""
    match column.kind:
        case "ms":
            return _ms(column, value)
        case "bytes":
            return size(value)
        case "share":
            decimals = 1 if column.decimals is None else column.decimals
            return f"{round(100 * value, decimals) + 0.0:.{decimals}f} %"  # + 0.0: no minus before a zero
        case "moment":
            return lately(value)
        case "number":
            return significant(value)
        case _:
            return f"{value:,}"


def _ms(column: Column, seconds: float) -> str:
    if column.decimals is None:
        text = ms_number(seconds)
    else:
        text = f"{round(seconds * 1e3, column.decimals) + 0.0:,.{column.decimals}f}"
    return f"+{text}" if column.signed and not text.startswith("-") else text


def md_text(table: Table, *, cell: Callable[[str], str] | None = None) -> str:
    """Return a table as Markdown; `cell` writes a text into it, `md_plain` for one that others will read."""
    write = cell or _md_cell
    columns, rows = as_text(table)
    lines = [[write(one.head) for one in columns], ["---"] * len(columns), *(map(write, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _md_cell(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def md_plain(text: str) -> str:
    """Return `text` on one line in which nothing is markup, a tag, or the name of a person to be notified."""
    plain = visible(" ".join(str(text).split()))
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain).replace("@", "@\N{WORD JOINER}")


# --- as a file ----------------------------------------------------------------------------------------------


def csv_text(table: Table) -> str:
    """Return a table as CSV with a head, every number in full, without the last line's end.

    Empty where there is no row.
    """
    kept = [(index, one) for index, one in enumerate(table.columns) if one.key]
    file = io.StringIO()
    if table.rows:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([visible(one.key) for _, one in kept])
        writer.writerows([_csv_cell(one, row[index]) for index, one in kept] for row in table.rows)
    return file.getvalue().rstrip("\n")


def _csv_cell(column: Column, value: Value) -> Value:
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    if value is None or isinstance(value, bool):
        return value
    if column.kind == "ms":
        return float(f"{value * 1e3:.12g}")  # without the noise of the factor
    if column.kind == "moment":
        return datetime.fromtimestamp(value, tz=UTC).isoformat(timespec="seconds")
    return value
