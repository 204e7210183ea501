"""All evaluations of a search as parallel coordinates: a line per configuration through its settings.

As in `charts`: `parallel_info` is plain data, `parallel` only draws it; no Streamlit, no clock, no file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.evaluations import Evaluation
from core.evidence.result_types import EffectRecord
from core.show.table import Column, Table, tabulate
from core.spec.settings import SETTINGS, value_words
from core.spec.space import changes_words
from dashboard.charts import LARGE_PX, MUTED, PAGE, PALETTE, base_figure, plain
from dashboard.charts.search_charts import LEAST_SHOWN, speedup_ticks, tick, times

MOST_AXES = 7
LINES = 400  # configurations that remain distinct
ROW_PX, AROUND_PX = 68, 56  # of an axis with its name and values; of the margins around all axes
END = 0.03  # share of an axis: text this close to an end grows away from it
FOLDED = 12  # characters per line of a value
_DEFAULTS = {one.name: one.default for one in SETTINGS}  # empty for everything else
SPREAD = 0.05  # share of an axis over which lines through one value are spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One axis of parallel coordinates: a setting with its values, from left to right."""

    name: str
    values: list[str]
    at: list[int]  # index of the value of each configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Configurations as lines through the settings with the largest effects on speed-up, best first."""

    dimensions: list[Dimension]
    gains: list[float]
    labels: list[str]
    axis: tuple[float, float]  # of speed-ups
    hidden: int  # settings that vary, but are not drawn


def parallel_info(
    tried: Sequence[Evaluation],
    ratio_of: Callable[[Evaluation], float | None],
    effects: Sequence[EffectRecord],
    *,
    most: int = MOST_AXES,
) -> Parallel:
    """Return the evaluations with a speed-up, the best `LINES` of them.

    Args:
        tried: evaluations without controls, as differences from the default.
        ratio_of: returns the reported speed-up of a configuration, a ratio.
        effects: of the settings, the strongest first: they select the drawn ones.
        most: maximum number of settings.
    """
    found = [(one, ratio) for one in tried if (ratio := ratio_of(one)) is not None and not one.failed]
    found.sort(key=lambda pair: -pair[1])
    found = found[:LINES]
    matter = dict.fromkeys(one["setting"] for one in effects)
    told = dict.fromkeys(name for one, _ in found for name in one.changes)
    names = [*(name for name in matter if name in told), *(name for name in told if name not in matter)]
    every = [_dimension(name, [one for one, _ in found]) for name in names]
    varied = [one for one in every if len(one.values) > 1]
    gains = [ratio for _, ratio in found]
    low, high = max(LEAST_SHOWN, min(gains, default=1.0)), max(gains, default=1.0)
    return Parallel(
        dimensions=varied[:most],
        gains=gains,
        labels=[changes_words(one.changes) for one, _ in found],
        axis=(min(low, high / 1.05), high * 1.01),
        hidden=max(0, len(varied) - most),
    )


def _dimension(name: str, tried: Sequence[Evaluation]) -> Dimension:
    default = _DEFAULTS.get(name)
    own = [value_words(one.changes.get(name, default)) for one in tried]
    values = sorted(set(own), key=lambda text: (text.isdigit(), int(text) if text.isdigit() else 0, text))
    return Dimension(
        name=name.removeprefix("session."), values=values, at=[values.index(text) for text in own]
    )


def parallel_alt(info: Parallel) -> str:
    """Describe the plot of all configurations by setting."""
    return f"{len(info.gains)} configurations as lines through their settings to their improvement"


def parallel(info: Parallel) -> go.Figure:
    """Draw one line for each configuration down through its settings to its speed-up.

    The axes lie one below the other, so that names and values have room in a narrow figure, too. Plotly's own
    parallel coordinates need WebGL, which a browser on a server's screen often lacks.
    """
    places = [*(_places(one, len(info.gains)) for one in info.dimensions), _gain_places(info)]
    figure = rows_figure(len(places))
    count = len(info.gains)
    best, upper = max(1, count // 10), max(2, count // 2)
    for name, color, width, chosen in (
        ("lower half", MUTED, 0.7, range(upper, count)),
        ("upper half", PALETTE[0], 1.2, range(best, upper)),
        ("best tenth", PALETTE[1], 2.5, range(best)),
    ):
        _add_lines(figure, info, places, chosen, name=name, color=color, width=width)
    for index, one in enumerate(info.dimensions):
        marks = [(_along(at, len(one.values)), folded(text)) for at, text in enumerate(one.values)]
        add_row(figure, index, plain(one.name), marks)
    gains = [(_gain_along(ratio, info.axis), tick(ratio)) for ratio in speedup_ticks(*info.axis)]
    add_row(figure, len(info.dimensions), "<b>gain</b>", gains)
    return figure


def rows_figure(count: int, *, least: float = 0.0) -> go.Figure:
    """Return a figure with `count` axes one below the other at y = 0, -1, …, each from 0 to 1.

    Args:
        count: axes.
        least: left end of the content left of all axes, 0 or less.
    """
    figure = base_figure(x_title="", y_title="", height=AROUND_PX + ROW_PX * count)
    for index in range(count):
        line = {"color": MUTED, "width": 1}
        figure.add_shape(type="line", x0=-END, x1=1 + END, y0=-index, y1=-index, line=line)
    figure.update_xaxes(visible=False, range=[least - END, 1 + END], fixedrange=True)
    figure.update_yaxes(visible=False, range=[0.55 - count, 0.4], fixedrange=True)
    return figure


def add_row(figure: go.Figure, index: int, name: str, marks: Sequence[tuple[float, str]]) -> None:
    """Write the name of an axis above its start, and texts below their positions on it.

    Args:
        figure: of `rows_figure`.
        index: of the axis.
        name: markup.
        marks: position and markup of each text.
    """
    common = {"y": -index, "bgcolor": PAGE, "showarrow": False}  # keeps lines from crossing the text
    figure.add_annotation(
        x=-END, xanchor="left", yanchor="bottom", yshift=3, text=name, font={"size": LARGE_PX}, **common
    )
    for place, text in marks:
        anchor = "left" if place < END else "right" if place > 1 - END else "center"
        figure.add_annotation(x=place, xanchor=anchor, yanchor="top", yshift=-4, text=text, **common)


def parallel_table(info: Parallel) -> Table:
    """Return the data of the lines: a row for each configuration, the best first."""

    def value(one: Dimension) -> Callable[[int], str]:
        return lambda index: one.values[one.at[index]]

    return tabulate(
        range(len(info.gains)),
        (Column("configuration", key="configuration"), info.labels.__getitem__),
        *((Column(one.name, key=one.name), value(one)) for one in info.dimensions),
        (Column("improvement", "number", key="gain"), info.gains.__getitem__),
    )


def _along(at: int, count: int) -> float:
    return 0.5 if count < 2 else at / (count - 1)


def _places(one: Dimension, count: int) -> list[float]:
    """Return where each configuration crosses an axis: at its value, better ones further right."""
    return [
        _along(at, len(one.values)) + SPREAD * (0.5 - index / max(1, count - 1))
        for index, at in enumerate(one.at)
    ]


def _gain_places(info: Parallel) -> list[float]:
    return [_gain_along(gain, info.axis) for gain in info.gains]


def _gain_along(gain: float, axis: tuple[float, float]) -> float:
    low, high = axis
    return max(0.0, math.log(gain / low) / math.log(high / low))


def _add_lines(
    figure: go.Figure,
    info: Parallel,
    places: Sequence[Sequence[float]],
    chosen: Sequence[int],
    *,
    name: str,
    color: str,
    width: float,
) -> None:
    """Draw the configurations of one rank as one series; a gap separates two lines."""
    x: list[float | None] = []
    y: list[float | None] = []
    text: list[str | None] = []
    for index in chosen:
        x += [*(axis[index] for axis in places), None]
        y += [*range(0, -len(places), -1), None]
        said = "<br>".join(plain(part) for part in info.labels[index].split(", "))
        text += [f"{plain(times(info.gains[index]))}<br>{said}"] * len(places) + [None]
    if x:
        figure.add_scatter(
            x=x,
            y=y,
            name=name,
            mode="lines",
            line={"color": color, "width": width},
            text=text,
            hovertemplate="%{text}<extra></extra>",
        )


def folded(value: str) -> str:
    """Return the value of a setting in lines, broken at underscores, as markup."""
    lines = [""]
    for part in re.split("(?<=_)", value.removeprefix("ORT_")):
        if lines[-1] and len(lines[-1]) + len(part) > FOLDED:
            lines.append("")
        lines[-1] += part
    return "<br>".join(plain(line) for line in lines)
