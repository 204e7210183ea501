"""Tables of `core.show.table` in a browser: sortable numbers, units in the header; one pinned column."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.typing import DataframeState

from core.show.escapes import JOINER, is_formula
from core.show.sheets import Fact
from core.show.table import ID_CHARACTERS, Column, Table, Value, column_of, csv_text
from core.wire.units import visible
from dashboard.format import DASH, plain, rounded

CHARACTER_PX, PADDING_PX, LEAST_PX, MOST_PX = 7.2, 20, 90, 300
LINE_MOST_PX, MOMENT_PX = 320, 135
ROW_PX, LINE_PX, MOST_LINES = 35, 20, 2
SORTABLE = "click a column's title to sort."  # ends the description of a table
WRAPPED_PX = 62  # from 4rem on, Streamlit wraps text instead of cutting it
_BINARY = {"KiB": 1 << 10, "MiB": 1 << 20}
_QUANTITIES = ("ms", "bytes", "number")
_TINY = 1e-6  # below, rounding to decimals would give 0


def draw(
    table: Table,
    *,
    key: str,
    alt: str,
    most: int | None = None,
    on_select: Any = "ignore",
    mode: Any = "multi-row",
    ticked: Sequence[int] = (),
) -> DataframeState:
    """Draw a table without the columns that have no values; a menu above it shows and hides columns.

    Args:
        table: whose browser columns are drawn.
        key: of the widget.
        alt: text for screen readers.
        most: rows visible without scrolling; None: all.
        on_select: effect of a selection, as in `st.dataframe`.
        mode: of the selection.
        ticked: rows selected when the table first appears under this key.

    Returns:
        The selected rows, if rows can be selected.
    """
    shown = frame(table, st.context.timezone or "UTC")
    tall = None if table.cut else row_height(table)
    widest = LINE_MOST_PX if table.cut else MOST_PX
    state: DataframeState = st.dataframe(
        shown,
        key=key,
        hide_index=True,
        placeholder=DASH,
        on_select=on_select,
        selection_mode=mode,
        selection_default={"selection": {"rows": list(ticked)}} if ticked else None,
        height="content" if most is None or len(shown) <= most else ROW_PX + (tall or ROW_PX) * most + 3,
        row_height=tall or ROW_PX,
        column_config={
            _head(one): _config(one, table, widest) for one in table.columns if one.is_on("browser")
        },
        alt=alt,
    )
    return state


def key_of(ids: Iterable[str]) -> str:
    """Return a key that changes whenever a row holds another thing: a new key drops the old selection."""
    return hashlib.sha256("".join(ids).encode()).hexdigest()[:12]


def search(label: str, *, key: str, **more: Any) -> str:
    """Draw the field that narrows a table while somebody types; return its text."""
    words = st.text_input(
        label,
        key=key,
        icon=":material/search:",
        placeholder=label,
        label_visibility="collapsed",
        live="300ms",
        **more,
    )
    return words or ""


def download(table: Table, file_name: str, *, key: str) -> None:
    """Draw the button that downloads a table as CSV."""
    st.download_button(
        "Download CSV",
        data=csv_text(table),
        file_name=file_name,
        mime="text/csv",
        key=key,
        icon=":material/download:",
        on_click="ignore",
    )


def facts(shown: Sequence[Fact]) -> None:
    """Draw facts, one per line; those with the same name are grouped."""
    lines: dict[str, list[str]] = {}
    for one in shown:
        lines.setdefault(title(Column(one.name)), []).append(plain(one.text))
    st.table({plain(name): "  \n".join(texts) for name, texts in lines.items()}, border="horizontal")


def frame(table: Table, zone: str = "UTC") -> pd.DataFrame:
    """Return the browser's columns of a table: times in ms, sizes in MiB, ids at the end, no empty column.

    Args:
        table: to draw.
        zone: of its timestamps.
    """
    known = [
        (one, index)
        for index, one in enumerate(table.columns)
        if one.is_on("browser") and (one.tells or any(row[index] not in (None, "") for row in table.rows))
    ]
    ordered = sorted(known, key=lambda one: one[0].kind == "id")
    return pd.DataFrame(
        {_head(one): [_cell(one, row[index], zone) for row in table.rows] for one, index in ordered}
    )


def title(column: Column) -> str:
    """Return the name of a column with its unit: "Peak memory (MiB)"."""
    name = column.name
    if "_" not in name and name[1:2].isalpha():  # names of settings, p50 and p stay as they are
        name = name[:1].upper() + name[1:]
    per = f"/{column.per}" if column.per else ""
    if column.kind == "ms":
        return f"{name} (ms{per})"
    return f"{name} ({column.unit or 'MiB'})" if column.kind == "bytes" else f"{name}{per}"


def _head(column: Column) -> str:
    return _inert(visible(title(column)))


def _inert(text: str) -> str:
    """Return `text` so that no spreadsheet evaluates it: a table is saved and copied as it is shown."""
    return f"{JOINER}{text}" if is_formula(text) else text


def _cell(column: Column, value: Value, zone: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if column.kind == "id":
            return value[:ID_CHARACTERS]
        # a cell shows backticks literally
        return _inert(visible(value.replace("`", "").replace("\n", " "))) if column.kind == "text" else None
    if column.kind == "moment":
        return pd.Timestamp(value, unit="s", tz="UTC").tz_convert(zone)
    if column.kind == "ms":
        value = value * 1e3
    elif column.kind == "bytes":
        value = value / _BINARY[column.unit or "MiB"]
    if column.kind not in _QUANTITIES:
        return value
    return float(f"{value:.4g}") if abs(value) < _TINY else rounded(float(value))


def _config(column: Column, table: Table, widest: int) -> Any:
    return {**_format(column, table, widest), "hidden": column.more}


def _format(column: Column, table: Table, widest: int) -> Any:
    if column.kind == "moment":
        return st.column_config.DatetimeColumn(
            format="YYYY-MM-DD HH:mm", width=MOMENT_PX, pinned=column.tells or None, help=column.help or None
        )
    if column.tells:
        width = min(widest, max(LEAST_PX, round(PADDING_PX + CHARACTER_PX * _longest(table, column))))
        kind = st.column_config.NumberColumn if column.kind == "count" else st.column_config.TextColumn
        return kind(width=width, pinned=True, help=column.help or None)
    told = column.help or None
    match column.kind:
        case "count" if column.bar:
            most = max((one for one in column_of(table, column.name) if isinstance(one, int)), default=1)
            return st.column_config.ProgressColumn(format="localized", min_value=0, max_value=most, help=told)
        case "count":
            return st.column_config.NumberColumn(format="localized", help=told)
        case "share" if column.bar:
            return st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, help=told)
        case "share":
            return st.column_config.NumberColumn(format="percent", help=told)
        case "ms" | "bytes" | "number":
            return st.column_config.NumberColumn(format="%.9g", help=told)
        case _:
            if column.narrow:
                return st.column_config.Column(width="small", help=told)
            return st.column_config.Column(help=told)  # a text or a checkbox


def _longest(table: Table, column: Column) -> int:
    index = table.columns.index(column)
    return max((len(str(row[index])) for row in table.rows), default=0)


def row_height(table: Table) -> int | None:
    """Return a row height with room for the column that tells rows apart; None: one line."""
    longest = max((_longest(table, one) for one in table.columns if one.tells), default=0)
    lines = min(MOST_LINES, math.ceil(CHARACTER_PX * longest / (MOST_PX - PADDING_PX)))
    return None if lines <= 1 else max(WRAPPED_PX, LINE_PX * lines + 16)
