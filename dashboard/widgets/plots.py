"""Finished plots: the only way in which a page draws one; with title, saved as PNG, SVG and CSV.

Plotly's own toolbar offers one image format. The buttons below a figure therefore call Plotly in the browser
for either format: the file shows the figure as on the screen, with the page's background. The table is built
here on demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.show.table import Table, csv_text
from dashboard.charts import add_title
from dashboard.charts.saved import csv_of

_HERE = Path(__file__).parent
_save = st.components.v2.component(
    "ortune_save_plot",
    html=(_HERE / "plots.html").read_text(encoding="utf-8"),
    css=(_HERE / "plots.css").read_text(encoding="utf-8"),
    js=(_HERE / "plots.js").read_text(encoding="utf-8"),
)


def draw(
    figure: go.Figure,
    title: str,
    *,
    key: str,
    alt: str,
    table: Callable[[], Table] | None = None,
    wheel: bool = False,
    **select: Any,
) -> Any:
    """Draw a figure under a title, and the buttons that save it.

    Args:
        figure: gets the title.
        title: in plain text.
        key: of the chart; with ".plot" of the box around it, with ".csv" of the button.
        alt: text for screen readers.
        table: content of the CSV file, if positions in the figure are not the values; None: its points.
        wheel: whether the mouse wheel zooms.
        select: `on_select` and `selection_mode`, as of `st.plotly_chart`.

    Returns:
        The selection, if something can be selected.
    """
    name = f"ortune-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}"
    with st.container(key=f"{key}.plot", gap=None):
        chosen = st.plotly_chart(
            add_title(figure, title),
            key=key,
            config={
                "displaylogo": False,
                "scrollZoom": wheel,
                "toImageButtonOptions": {"filename": name, "scale": 2},
            },
            alt=alt,
            **select,
        )
        with st.container(
            horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="xsmall"
        ):
            _save(key=f"{key}.save", data={"box": _box(f"{key}.plot"), "name": name}, width="content")
            st.download_button(
                "CSV",
                partial(_text, figure, table),
                f"{name}.csv",
                "text/csv",
                key=f"{key}.csv",
                on_click="ignore",
                type="tertiary",
                help="Saves every point that is drawn, as a table.",
            )
    return chosen


def _text(figure: go.Figure, table: Callable[[], Table] | None) -> str:
    return f"{csv_of(figure) if table is None else csv_text(table())}\n"


def _box(key: str) -> str:
    """Return the class that Streamlit gives to an element with this key."""
    return f"st-key-{re.sub('[^a-zA-Z0-9_-]', '-', key)}"
