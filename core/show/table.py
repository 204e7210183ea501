"""Tables of typed cells: content, unit and output of each column. Pure.

A cell holds a quantity in its stored unit: seconds, bytes, shares of 1, seconds since 1970. The renderer for
text, browser or file decides the layout; a column names the outputs that show it. A text in a numeric column
gives the reason for a missing number; only the terminal shows it.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from core.evidence.verdict import Color
from core.show import format
from core.show.escapes import is_formula, md_plain
from core.wire.units import DASH, ms_number, significant, size, visible

Kind = Literal["text", "id", "count", "number", "ms", "bytes", "share", "moment"]
Screens = Literal["all", "terminal", "browser", "none"]  # "none": only files
Value = str | int | float | bool | None  # None: unknown

Item = TypeVar("Item")

ID_CHARACTERS = 12  # of a displayed hash
_TEXTS = ("text", "id", "moment")


class Abridged(str):
    """A text with a shorter form for narrow terminals."""

    __slots__ = ("short",)
    short: str

    def __new__(cls, text: str, short: str) -> Abridged:
        """Return the text with its shorter form."""
        made = super().__new__(cls, text)
        made.short = short
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Return the arguments of a copy."""
        return str(self), self.short


@dataclass(frozen=True, slots=True)
class Column:
    """The content of one column, and the outputs that show it."""

    name: str  # displayed name, without the unit
    kind: Kind = "text"
    key: str = ""  # name in a file, with the unit; empty: not in files
    on: Screens = "all"
    per: str = ""  # reference of a time, if needed: "run", "row"
    unit: str = ""  # of bytes in the browser, "KiB" instead of "MiB"
    decimals: int | None = None  # of a time or a share; None: four significant digits, of a share 1
    signed: bool = False  # show the plus sign of a time
    most: int = 0  # most characters on a terminal, longer texts lose their middle; 0: no limit
    right: bool = False  # align right: a text that replaces a number
    tells: bool = False  # identifies the row
    bar: bool = False  # draw the share as a bar in the browser
    narrow: bool = False  # truncate long texts in the browser
    more: bool = False  # hidden in the browser until its table's menu of columns shows it
    help: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it is aligned left."""
        return self.kind in _TEXTS and not self.right

    @property
    def head(self) -> str:
        """Return its name on a terminal, with the unit of a time."""
        per = f"/{self.per}" if self.per else ""
        return f"{self.name} ms{per}" if self.kind == "ms" else f"{self.name}{per}"

    def is_on(self, screen: Literal["terminal", "browser"]) -> bool:
        """Whether that screen shows it."""
        return self.on in ("all", screen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    drop: Sequence[str] = ()  # columns that a narrow terminal omits, in this order
    solid: Sequence[str] = ()  # columns whose cells a terminal does not wrap
    cut: bool = False  # screens show each row on one line and cut what does not fit
    colors: Sequence[Color | None] = ()  # of the rows; empty: no colours
    inset: bool = False  # part of the surrounding facts


def tabulate(items: Iterable[Item], *columns: tuple[Column, Callable[[Item], Value]], **layout: Any) -> Table:
    """Return a table with one row for each of `items`.

    Args:
        items: one per row.
        columns: each with a function from an item to its cell.
        layout: further fields of the table.
    """
    cells = [cell for _, cell in columns]
    return Table(
        columns=[column for column, _ in columns], rows=[_Row(one, cells) for one in items], **layout
    )


class _Row(Sequence[Value]):
    """Cells that are computed when read, because screens and files read different columns."""

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
    """Return text columns for a terminal; the first `left` are aligned left."""
    return [Column(name, right=number >= left, on="terminal") for number, name in enumerate(names)]


def matching(table: Table, words: str) -> Table:
    """Return the table of the rows whose texts contain every word, in any case."""
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
    """Return the columns of a terminal or a document, and their cells as text; `short`: abridged."""
    shown = [index for index, one in enumerate(table.columns) if one.is_on("terminal")]
    columns = [table.columns[index] for index in shown]
    rows = [
        [
            cell_text(one, _cell_value(row[index], short=short))
            for one, index in zip(columns, shown, strict=True)
        ]
        for row in table.rows
    ]
    return columns, rows


def _cell_value(value: Value, *, short: bool) -> Value:
    return value.short if short and isinstance(value, Abridged) else value


def cell_text(column: Column, value: Value) -> str:
    """Return a cell as terminal text; the unit of a time is in the head."""
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
            return format.short_time(value)
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


def md_text(table: Table, *, cell: Callable[[str], str] = md_plain) -> str:
    """Return a table as Markdown; `cell` escapes its texts, with `md_cell` where they are ours."""
    columns, rows = as_text(table)
    lines = [[cell(one.head) for one in columns], ["---"] * len(columns), *(map(cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def md_cell(text: str) -> str:
    """Return a text of ORTune as a cell of Markdown, with its code spans."""
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


# --- as a file ----------------------------------------------------------------------------------------------


def csv_text(table: Table) -> str:
    """Return a table as CSV with a head, full precision and no final line break; empty without rows."""
    kept = [(index, one) for index, one in enumerate(table.columns) if one.key]
    file = io.StringIO()
    if table.rows:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([_csv_text(visible(one.key)) for _, one in kept])
        writer.writerows([_csv_cell(one, row[index]) for index, one in kept] for row in table.rows)
    return file.getvalue().rstrip("\n")


def _csv_cell(column: Column, value: Value) -> Value:
    written = file_value(column, value)
    return _csv_text(written) if isinstance(written, str) else written


def _csv_text(text: str) -> str:
    return f"'{text}" if is_formula(text) else text


def file_value(column: Column, value: Value) -> Value:
    """Return a cell in the unit that the column's `key` names."""
    if isinstance(value, str):
        return visible(value)
    if value is None or isinstance(value, bool):
        return value
    if column.kind == "ms":
        return float(f"{value * 1e3:.12g}")  # without rounding noise of the factor
    if column.kind == "moment":
        return datetime.fromtimestamp(value, tz=UTC).isoformat(timespec="seconds")
    return value


# --- as a frame ---------------------------------------------------------------------------------------------

_SIGNS = {"±": "half width", "%": "percent", "/": " per "}
_UNITS: Mapping[Kind, str] = {"ms": "_ms", "bytes": "_bytes"}


def frame_columns(table: Table) -> dict[str, list[Any]]:
    """Return the columns of a file by name, with numbers in numeric columns; NaN: unknown.

    A table without columns for files gives all its columns, named after their heads and units.
    """
    keyed = any(one.key for one in table.columns)
    found: dict[str, list[Any]] = {}
    for index, column in enumerate(table.columns):
        name = column.key if keyed else _frame_name(column)
        if name and name not in found:
            found[name] = [_frame_value(column, row[index]) for row in table.rows]
    return found


def _frame_name(column: Column) -> str:
    """Return a name of letters, digits and underscores, with the unit; empty: the head has no letter."""
    name = column.name.lower()
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    name = re.sub(r"[^a-z0-9]+", "_", name).strip("_")
    return f"{name}{_UNITS.get(column.kind, '')}" if name else ""


def _frame_value(column: Column, value: Value) -> Any:
    """Return a cell for a frame: a time with its zone, a number, a boolean, or text."""
    if column.kind == "moment" and isinstance(value, int | float):
        return datetime.fromtimestamp(value, tz=UTC)
    if column.kind not in _TEXTS and (value is None or isinstance(value, str)):
        return math.nan
    return file_value(column, value)


def table_texts(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of a table as text, without empty columns."""
    columns, rows = as_text(table)
    known = [n for n, one in enumerate(columns) if one.tells or any(row[n] not in ("", DASH) for row in rows)]
    return [columns[n].head for n in known], [[row[n] for n in known] for row in rows]
