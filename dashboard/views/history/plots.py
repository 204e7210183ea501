"""Plots of all trials of a model: scatter and parallel coordinates; a selection filters the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from core.store import Query
from dashboard import derived_rows, format
from dashboard.charts import history_charts
from dashboard.charts.history_charts import NUMBERS, WHEN, Point
from dashboard.widgets import plots

OPEN, VIEW = "history.drawn", "history.view"
X, Y, MEASURE, AXES = "history.x", "history.y", "history.measure", "history.axes"
SCATTER, PARALLEL = "history.scatter", "history.parallel"
VIEWS = {SCATTER: "Scatter", PARALLEL: "Parallel coordinates"}
BRUSHES = "history.brushes"  # number of cleared selections: a new key makes a plot forget its own
BRUSH = "Drag a box or lasso around points to tick these trials in the table."
MOST = 20_000  # newest trials in a plot


def draw(query: Query, models: Sequence[str]) -> list[str] | None:
    """Draw the plots, closed at first; return the ids of the selected trials, None without a selection.

    Args:
        query: which trials, as the table has them.
        models: names of all models that were measured.
    """
    with st.expander(
        "Plots of all trials of a model", icon=":material/scatter_plot:", key=OPEN, on_change="rerun"
    ) as box:
        if not box.open:
            return None
        if query.model_name is None and len(models) > 1:
            st.info("Choose a model above to plot its trials.", icon=":material/filter_alt:")
            return None
        points = _points(query)
        if len(points) < 2:
            st.info(
                "A plot needs two trials or more; these filters leave fewer.",
                icon=":material/filter_alt_off:",
            )
            return None
        view = st.segmented_control(
            "Plot",
            list(VIEWS),
            key=VIEW,
            default=SCATTER if VIEW not in st.session_state else None,
            required=True,
            format_func=VIEWS.__getitem__,
            persist_state="session",
            label_visibility="collapsed",
            help="Two numbers or settings, or all settings at once.",
        )
        chosen = _parallel(points) if view == PARALLEL else _scatter(points)
    return _brushed(chosen)


def clear_selection() -> None:
    """Clear the selection."""
    st.session_state[BRUSHES] = st.session_state.get(BRUSHES, 0) + 1


def _key(name: str) -> str:
    return f"{name}.{st.session_state.get(BRUSHES, 0)}"


# --- drawing ------------------------------------------------------------------------------------------------


def _points(query: Query) -> list[Point]:
    """Return the points of all matching trials."""
    found = derived_rows.of_trials(query, "history.points", history_charts.point_of, limit=MOST)
    return [*found.values()]


def _scatter(points: Sequence[Point]) -> Any:
    choices = [*_numbers(points), WHEN, *history_charts.settings_of(points)]
    with st.container(horizontal=True, gap="small"):
        x = _axis("X axis", choices, X, WHEN)
        y = _axis("Y axis", choices, Y, "p50")
    chosen = plots.draw(
        history_charts.scatter(points, x, y),
        f"{_short(y)} over {'time' if x == WHEN else _short(x)}",
        key=_key(SCATTER),
        on_select="rerun",
        selection_mode=("box", "lasso", "points"),
        alt=f"{len(points)} trials: {history_charts.axis_title(y)} over {history_charts.axis_title(x)}",
    )
    missing = history_charts.unplaced(points, x)
    lost = f" {missing:,} have no {format.plain(_short(x))} and are not drawn." if missing else ""
    st.caption(f"{len(points):,} trials. {BRUSH}{lost}")
    return chosen


def _parallel(points: Sequence[Point]) -> Any:
    settings = history_charts.settings_of(points)
    with st.container(horizontal=True, gap="small"):
        measure = _axis("Number", _numbers(points) or ["p50"], MEASURE, "p50")
        names = st.multiselect(
            "Settings",
            settings,
            key=AXES,
            placeholder="those that vary most",
            max_selections=history_charts.MOST_AXES,
            persist_state="session",
            help="Settings with an axis, from left to right. Empty: those that vary most.",
        )
    info = history_charts.parallel_info(
        points, measure, [one for one in names if one in settings] or settings
    )
    chosen = plots.draw(
        history_charts.parallel(info),
        f"{_short(measure)} by settings",
        key=_key(PARALLEL),
        on_select="rerun",
        selection_mode=("box", "lasso", "points"),
        alt=f"{len(info.points)} trials as lines through their settings to their {_short(measure)}",
        table=partial(history_charts.parallel_table, info),
    )
    left = f" {info.left_out:,} older ones are hidden." if info.left_out else ""
    more = f" {info.hidden} more settings vary and have no axis." if info.hidden and not names else ""
    st.caption(f"{len(info.points):,} trials, a line for each.{left}{more} {BRUSH}")
    return chosen


def _numbers(points: Sequence[Point]) -> list[str]:
    return [name for name in NUMBERS if any(name in one.numbers for one in points)]


def _axis(label: str, choices: Sequence[str], key: str, first: str) -> str:
    if st.session_state.get(key) not in choices:
        st.session_state[key] = first if first in choices else choices[0]
    chosen = st.selectbox(
        label,
        choices,
        key=key,
        format_func=history_charts.axis_title,
        persist_state="session",
        width=280,
        help="A measured number, or a setting in which these trials differ.",
    )
    return str(chosen)


def _short(name: str) -> str:
    """Return the title of an axis without its unit."""
    return history_charts.axis_title(name).partition(" (")[0]


def _brushed(chosen: Any) -> list[str] | None:
    """Return the ids of the selected trials, in the order of the points; None without a selection."""
    points = (chosen or {}).get("selection", {}).get("points", [])
    found = [one.get("customdata") for one in points]
    ids = [one[0] if isinstance(one, list) else one for one in found]
    return list(dict.fromkeys(str(one) for one in ids if one)) or None
