"""Everything that a search tried: a line for each configuration, from setting to setting to its gain.

As in `charts`: `parallel_info` is plain data, `parallel` only draws it; no Streamlit, no clock, no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.documents import EffectRecord
from core.evidence.tried import Tried
from core.show.sheets import searches
from core.show.table import Column, Table, tabulate
from core.spec.knobs import KNOBS
from core.spec.space import changes_words
from dashboard.charts import MUTED, PAGE, PALETTE, base_figure, plain
from dashboard.charts.search_charts import LEAST_SHOWN, gain_ticks, tick, times

MOST_AXES = 7
LINES = 400  # configurations that are still told apart
HEIGHT = 380  # pixels
TITLE_Y = 1.14  # above the axes, which reach from 0 to 1
FOLDED = 18  # characters of a line of a setting's name
_DEFAULTS = {one.name: one.default for one in KNOBS}  # of anything else nothing is asked
SPREAD = 0.05  # of an axis, over which lines through one value lie side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One axis of parallel lines: a setting with its values, from the bottom up."""

    name: str
    values: list[str]
    at: list[int]  # of each configuration, the index of its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Configurations as lines through the settings that matter most to their gain, the best first."""

    dimensions: list[Dimension]
    gains: list[float]
    labels: list[str]
    axis: tuple[float, float]  # of gains
    hidden: int  # settings that vary, but are not drawn


def parallel_info(
    tried: Sequence[Tried],
    ratio_of: Callable[[Tried], float | None],
    effects: Sequence[EffectRecord],
    *,
    most: int = MOST_AXES,
) -> Parallel:
    """Return everything that was tried and has a gain, the best `LINES` of it.

    Args:
        tried: without controls, as differences from the default.
        ratio_of: the gain that is told of a configuration, as a ratio.
        effects: of the settings, the strongest first: they say which are drawn.
        most: settings.
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


def _dimension(name: str, tried: Sequence[Tried]) -> Dimension:
    default = _DEFAULTS.get(name)
    own = [searches.value_words(one.changes.get(name, default)) for one in tried]
    values = sorted(set(own), key=lambda text: (text.isdigit(), int(text) if text.isdigit() else 0, text))
    return Dimension(
        name=name.removeprefix("session."), values=values, at=[values.index(text) for text in own]
    )


def parallel(info: Parallel) -> go.Figure:
    """Draw one line for each configuration from setting to setting, and to its gain on the right.

    Plotly's own parallel coordinates take WebGL, which a browser on a server's screen often lacks.
    """
    figure = base_figure(x_title="", y_title="", height=HEIGHT)
    places = [*(_places(one, len(info.gains)) for one in info.dimensions), _gain_places(info)]
    last = len(places) - 1
    for index in range(len(places)):
        figure.add_shape(
            type="line", x0=index, x1=index, y0=-0.04, y1=1.04, line={"color": MUTED, "width": 1}
        )
    count = len(info.gains)
    best, upper = max(1, count // 10), max(2, count // 2)
    for name, color, width, chosen in (
        ("lower half", MUTED, 0.7, range(upper, count)),
        ("upper half", PALETTE[0], 1.2, range(best, upper)),
        ("best tenth", PALETTE[1], 2.5, range(best)),
    ):
        _add_lines(figure, info, places, chosen, name=name, color=color, width=width)
    for index, one in enumerate(info.dimensions):
        for at, text in enumerate(one.values):
            add_text(figure, index, _height(at, len(one.values)), text.removeprefix("ORT_"), anchor="left")
        add_text(figure, index, TITLE_Y, folded(one.name), anchor="center")
    for ratio in gain_ticks(*info.axis):
        add_text(figure, last, _gain_height(ratio, info.axis), tick(ratio), anchor="left")
    add_text(figure, last, TITLE_Y, "<b>gain</b>", anchor="center", markup=True)
    figure.update_xaxes(visible=False, range=[-0.5, last + 0.5], fixedrange=True)
    figure.update_yaxes(visible=False, range=[-0.08, 1.24], fixedrange=True)
    return figure


def parallel_table(info: Parallel) -> Table:
    """Return what the lines stand for: a row for each configuration, the best first."""

    def value(one: Dimension) -> Callable[[int], str]:
        return lambda index: one.values[one.at[index]]

    return tabulate(
        range(len(info.gains)),
        (Column("configuration", key="configuration"), info.labels.__getitem__),
        *((Column(one.name, key=one.name), value(one)) for one in info.dimensions),
        (Column("gain", "number", key="gain"), info.gains.__getitem__),
    )


def _height(at: int, count: int) -> float:
    return 0.5 if count < 2 else at / (count - 1)


def _places(one: Dimension, count: int) -> list[float]:
    """Where each configuration crosses an axis: at its value, the better the higher."""
    return [
        _height(at, len(one.values)) + SPREAD * (0.5 - index / max(1, count - 1))
        for index, at in enumerate(one.at)
    ]


def _gain_places(info: Parallel) -> list[float]:
    return [_gain_height(gain, info.axis) for gain in info.gains]


def _gain_height(gain: float, axis: tuple[float, float]) -> float:
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
    """Configurations of one rank as one series; a gap parts two of them."""
    x: list[float | None] = []
    y: list[float | None] = []
    text: list[str | None] = []
    for index in chosen:
        x += [*range(len(places)), None]
        y += [*(axis[index] for axis in places), None]
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


def add_text(figure: go.Figure, x: float, y: float, text: str, *, anchor: str, markup: bool = False) -> None:
    """Write beside an axis of parallel lines, at its places."""
    figure.add_annotation(
        x=x,
        y=y,
        xanchor=anchor,
        xshift=6 if anchor == "left" else 0,
        text=text if markup else "<br>".join(plain(part) for part in text.split("\n")),
        bgcolor=PAGE if anchor == "left" else None,
        opacity=1,
        showarrow=False,
    )


def folded(name: str) -> str:
    """A long name of a setting in lines, broken at its underscores and dots."""
    lines = [""]
    for part in name.replace("_", "_ ").replace(".", ". ").split():
        if lines[-1] and len(lines[-1]) + len(part) > FOLDED:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
