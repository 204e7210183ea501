"""Parallel coordinates: a line per configuration through its settings to one number, as Search and History.

The axes lie one below the other, so that names and values have room in a narrow figure, too. Plotly's own
parallel coordinates need WebGL, which a browser on a server's screen often lacks, and do not report a
selection. As in `charts`: no Streamlit, no clock, no file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboard.charts import LARGE_PX, MUTED, PAGE, TEXT_HOVER, base_figure, plain, text_lines

ROW_PX, AROUND_PX = 68, 56  # of an axis with its name and values; of the margins around all axes
END = 0.03  # share of an axis: text this close to an end grows away from it
FOLDED = 12  # characters per line of a value
SPREAD = 0.05  # share of an axis over which lines through one value are spread

Marks = Sequence[tuple[float, str]]  # position on an axis, 0 to 1, and markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One configuration: its position on each axis, 0 to 1, from top to bottom."""

    places: Sequence[float]
    hover: str
    id: str | None = None  # for selections


def figure_of(
    settings: Sequence[tuple[str, Sequence[str]]], number: str, marks: Marks, *, least: float = 0.0
) -> go.Figure:
    """Return a figure with an axis for each setting, and the axis of the number below them.

    Args:
        settings: name and values of each, from left to right.
        number: name of the last axis, as markup.
        marks: of the last axis.
        least: left end of the content left of all axes, 0 or less.
    """
    count = len(settings) + 1
    figure = base_figure(x_title="", y_title="", height=AROUND_PX + ROW_PX * count)
    for index in range(count):
        line = {"color": MUTED, "width": 1}
        figure.add_shape(type="line", x0=-END, x1=1 + END, y0=-index, y1=-index, line=line)
    for index, (name, values) in enumerate(settings):
        own = [(along(at, len(values)), _folded(text)) for at, text in enumerate(values)]
        _add_texts(figure, index, plain(name.removeprefix("session.")), own)
    _add_texts(figure, len(settings), f"<b>{number}</b>", marks)
    figure.update_xaxes(visible=False, range=[least - END, 1 + END], fixedrange=True)
    figure.update_yaxes(visible=False, range=[0.55 - count, 0.4], fixedrange=True)
    return figure


def _add_texts(figure: go.Figure, index: int, name: str, marks: Marks) -> None:
    """Write the name of an axis above its start, and texts below their positions on it."""
    common = {"y": -index, "bgcolor": PAGE, "showarrow": False}  # keeps lines from crossing the text
    figure.add_annotation(
        x=-END, xanchor="left", yanchor="bottom", yshift=3, text=name, font={"size": LARGE_PX}, **common
    )
    for place, text in marks:
        anchor = "left" if place < END else "right" if place > 1 - END else "center"
        figure.add_annotation(x=place, xanchor=anchor, yanchor="top", yshift=-4, text=text, **common)


def _folded(value: str) -> str:
    """Return the value of a setting in lines, broken at underscores, as markup."""
    lines = [""]
    for part in re.split("(?<=_)", value.removeprefix("ORT_")):
        if lines[-1] and len(lines[-1]) + len(part) > FOLDED:
            lines.append("")
        lines[-1] += part
    return text_lines(lines)


def along(at: int, count: int) -> float:
    """Return the position of value number `at` on an axis of `count` values."""
    return 0.5 if count < 2 else at / (count - 1)


def beside(order: int, count: int) -> float:
    """Return how far line number `order` of `count` lies beside a value that others share."""
    return SPREAD * (0.5 - order / max(1, count - 1))


def add_lines(figure: go.Figure, lines: Sequence[Line], **look: Any) -> None:
    """Draw lines as one series; a gap separates two of them.

    Args:
        figure: of `figure_of`.
        lines: none draw nothing.
        look: further options of the series: its name, mode, colours.
    """
    x: list[float | None] = []
    y: list[float | None] = []
    ids: list[str | None] = []
    text: list[str | None] = []
    for one in lines:
        x += [*one.places, None]
        y += [*range(0, -len(one.places), -1), None]
        ids += [one.id] * len(one.places) + [None]
        text += [one.hover] * len(one.places) + [None]
    if lines:
        figure.add_scatter(x=x, y=y, customdata=ids, text=text, hovertemplate=TEXT_HOVER, **look)
