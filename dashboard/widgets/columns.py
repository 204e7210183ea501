"""Columns of tables on every page: the one that tells rows apart, and numbers, with their unit on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pandas as pd
import streamlit as st

from dashboard.format import rounded

CHARACTER_PX, PADDING_PX, LEAST_PX, MOST_PX = 7.2, 20, 90, 420
ROW_PX, LINE_PX, MOST_LINES = 35, 20, 4
WRAPPED_PX = 62  # from 4rem on, Streamlit breaks text into lines instead of cutting it
_UNITS = ("(ms)", "(ms/run)", "/s", "/s)", "(MiB)", "(KiB)", "(%)")


def telling(texts: Iterable[object], *, help: str | None = None) -> Any:
    """Return the column by which rows are told apart: its text in full, and it stays while others scroll.

    Args:
        texts: all that will stand in it.
        help: of its title.
    """
    longest = max((len(str(text)) for text in texts), default=0)
    width = min(MOST_PX, max(LEAST_PX, round(PADDING_PX + CHARACTER_PX * longest)))
    return st.column_config.TextColumn(width=width, pinned=True, help=help)


def row_height(texts: Iterable[object]) -> int | None:
    """Return the height of rows in which a column of `telling` has room for `texts`; None: one line."""
    longest = max((len(str(text)) for text in texts), default=0)
    lines = min(MOST_LINES, math.ceil(CHARACTER_PX * longest / (MOST_PX - PADDING_PX)))
    return None if lines <= 1 else max(WRAPPED_PX, LINE_PX * lines + 16)


def height(count: int, most: int, row_px: int | None) -> int | Literal["content"]:
    """Return the height of a table of `count` rows that shows at most `most` of them without scrolling."""
    return "content" if count <= most else ROW_PX + (row_px or ROW_PX) * most + 3


def numbers(names: Iterable[str], help: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a column for each of `names` that ends in a unit; give the table `readable` values."""
    told = help or {}
    return {
        name: st.column_config.NumberColumn(format="%.9g", help=told.get(name))
        for name in names
        if name.endswith(_UNITS)
    }


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with its quantities rounded to the digits that are written everywhere else."""
    quantities = {name: frame[name].map(_rounded) for name in frame.columns if str(name).endswith(_UNITS)}
    return frame.assign(**quantities)


def _rounded(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else value
