"""Columns of tables on every page: the one that tells rows apart, and numbers, with their unit on top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.format import rounded

CHARACTER_PX, PADDING_PX, LEAST_PX, MOST_PX = 7.2, 20, 90, 560
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
