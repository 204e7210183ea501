"""Heat map of two settings, and throughput over latency with its Pareto front.

As in `charts.py`: `*_info` is plain data, the figures only draw it; no Streamlit, no clock, no file. Seconds
come in, milliseconds are drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from core.api.sweeping import BEST, INCONCLUSIVE, LEVEL, REFUSED, Measured, SweepRanking
from core.spec.axes import point_name
from core.spec.settings import value_words
from core.spec.space import Axis
from core.wire.units import brief, ci, significant
from dashboard.charts import (
    FONT_PX,
    HEIGHT,
    HOVER_TEXT,
    MUTED,
    ON_LIGHT,
    PALETTE,
    PARTIAL,
    TEXT,
    TEXT_HOVER,
    base_figure,
    error_bars,
    log_axis,
    log_ticks,
    number,
    plain,
    style,
    text_lines,
    wide_ticks,
)
from dashboard.charts.sweep_charts import (
    STATISTICS,
    axis_title,
    key_of,
    latency_title_of,
    statistic_of,
    value_of,
)

Mark = Literal["", "best", "level", "inconclusive", "over", "lost"]
CELL_PX, FRAME_PX = 44, 130
WITH_NUMBERS = 12  # cells on a side up to which each says its number
LIGHT, DARK = "#DCE9F5", "#08457E"  # few and many samples per second; distinct in grey, too
STRIPES = 4  # of a hatched cell
PLATE = "rgba(255,255,255,0.85)"  # background of a number
HALF = 0.46  # of a cell, inside its border
LABELLED = 24  # points that can have names


# --- heat map -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of two settings; without a rate it has no colour."""

    x: int  # column
    y: int  # row
    rate: float | None  # samples per second
    text: str
    hover: str
    point: str  # see `key_of`
    mark: Mark
    open: bool  # its interval contains the latency limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A heat map as data."""

    x_title: str
    y_title: str
    columns: list[str]
    rows: list[str]
    cells: list[Cell]
    over_label: str  # meaning of a cross


def plane_info(points: Sequence[Measured], axes: Sequence[Axis], ranking: SweepRanking) -> Plane:
    """Return a cell for each point: the first axis to the right, the second upwards.

    Args:
        points: of a sweep over two axes, of any state.
        axes: the two.
        ranking: state of the points relative to the limit and the best point.
    """
    across, up = axes
    line = "" if ranking.line_s is None else f"{brief(ranking.line_s * 1e3)} ms"
    return Plane(
        x_title=axis_title(across.name),
        y_title=axis_title(up.name),
        columns=[value_words(one) for one in across.values],
        rows=[value_words(one) for one in up.values],
        cells=[_cell(one, across, up, ranking) for one in points],
        over_label=f"crossed out: {STATISTICS[ranking.percentile]} over the limit of {line}" if line else "",
    )


_MARKS: Mapping[str, Mark] = {BEST: "best", LEVEL: "level", INCONCLUSIVE: "inconclusive"}
_PLACES = {
    BEST: "the best",
    LEVEL: "its throughput is equivalent to the best, with 95 %",
    INCONCLUSIVE: "undecided against the best: the 95 % intervals overlap",
}


def _cell(point: Measured, across: Axis, up: Axis, ranking: SweepRanking) -> Cell:
    place = ranking.place(point)
    over = ranking.is_in(point, ranking.over)
    mark: Mark = ""
    if point.latency is None:
        mark = "lost" if point.error else ""
    elif over:
        mark = "over"
    elif place:
        mark = _MARKS[place]
    is_open = ranking.is_in(point, ranking.open)
    rate = point.throughput_per_s
    return Cell(
        x=across.values.index(point.values[across.name]),
        y=up.values.index(point.values[up.name]),
        rate=rate,
        text=_text(point, rate, mark, is_open=is_open),
        hover=_hover(point, ranking, place, over=over, is_open=is_open),
        point=key_of(point),
        mark=mark,
        open=is_open,
    )


def _text(point: Measured, rate: float | None, mark: Mark, *, is_open: bool) -> str:
    if rate is None:
        return {"FAIL": "failed", REFUSED: "refused"}.get(point.state, "")
    shown = f"{significant(rate, 3)}"
    sign = {"best": "★ ", "level": "= "}.get(mark, "")
    return f"{sign}{shown} ?" if is_open else f"{sign}{shown}"


def _hover(point: Measured, ranking: SweepRanking, place: str, *, over: bool, is_open: bool) -> str:
    head = [point_name(point.values)]
    if point.latency is None:
        return text_lines([*head, point.error or "not measured yet"])
    parts = [
        *head,
        f"throughput: {_with_interval(point, 'throughput', 'samples/s')}",
        f"{statistic_of(point, ranking.percentile)}: {_with_interval(point, ranking.percentile, 'ms')}",
        *([_PLACES[place]] if place else []),
        *(["over the limit"] if over else []),
        *(["its interval contains the limit: undecided"] if is_open else []),
        *([f"the same as {point_name(point.same)}: {point.why}"] if point.same is not None else []),
        *(["measured earlier"] if point.reused else []),
        *([PARTIAL] if point.cut_short else []),
    ]
    return text_lines(parts)


def _with_interval(point: Measured, name: str, unit: str) -> str:
    value = value_of(point, name)
    if value is None:
        return "too few runs for one"
    middle, low, high = value
    bounds = f", {ci(number(low), number(high))}" if low is not None and high is not None else ""
    return f"{number(middle)} {unit}{bounds}"


def add_cells(
    figure: go.Figure, grid: Sequence[Sequence[float | None]], *, title: str, tickformat: str, **scale: Any
) -> None:
    """Add the coloured cells of a heat map, from light to dark.

    Args:
        figure: receives them.
        grid: values of rows of cells; None: no colour.
        title: of the colour bar.
        tickformat: of its numbers, see Plotly.
        scale: `zmin` and `zmax`, if they are not those of the values.
    """
    bar = {
        "title": {"text": title, "font": {"color": TEXT}},
        "tickfont": {"color": TEXT},
        "tickformat": tickformat,
    }
    figure.add_heatmap(
        x=list(range(len(grid[0]) if grid else 0)),
        y=list(range(len(grid))),
        z=grid,
        colorscale=[[0, LIGHT], [1, DARK]],
        colorbar=bar,
        xgap=2,
        ygap=2,
        hoverinfo="skip",
        showlegend=False,
        **scale,
    )


def plane(info: Plane) -> go.Figure:
    """Draw a heat map: colour is samples per second; crosses, stripes and frames show the cells' state."""
    height = max(HEIGHT, FRAME_PX + CELL_PX * len(info.rows))
    figure = base_figure(x_title=plain(info.x_title), y_title=plain(info.y_title), height=height)
    grid: list[list[Any]] = [[None] * len(info.columns) for _ in info.rows]
    for cell in info.cells:
        grid[cell.y][cell.x] = cell.rate
    small = max(len(info.columns), len(info.rows)) <= WITH_NUMBERS
    columns, rows = list(range(len(info.columns))), list(range(len(info.rows)))
    add_cells(figure, grid, title="samples/s", tickformat=",")
    _add_stripes(figure, [one for one in info.cells if one.mark == "inconclusive"])
    _add_crosses(figure, [one for one in info.cells if one.mark == "over"], info.over_label)
    _add_frames(figure, [one for one in info.cells if one.mark == "level"], "=: equivalent to the best", 2)
    _add_frames(figure, [one for one in info.cells if one.mark == "best"], "★ best", 4)
    _add_lost(figure, [one for one in info.cells if one.mark == "lost"], small=small)
    if small:
        _add_numbers(figure, [one for one in info.cells if one.rate is not None])
    _add_handles(figure, info.cells)
    ends = {"showgrid": False, "type": "linear"}
    figure.update_xaxes(
        tickvals=columns, ticktext=list(map(plain, info.columns)), range=[-0.5, len(columns) - 0.5], **ends
    )
    figure.update_yaxes(
        tickvals=rows, ticktext=list(map(plain, info.rows)), range=[-0.5, len(rows) - 0.5], **ends
    )
    return figure


def _add_lines(figure: go.Figure, strokes: Sequence[tuple[float, float, float, float]], **look: Any) -> None:
    """Draw lines from (x0, y0) to (x1, y1) as one series with one legend entry."""
    x = [at for x0, _, x1, _ in strokes for at in (x0, x1, None)]
    y = [at for _, y0, _, y1 in strokes for at in (y0, y1, None)]
    if strokes:
        figure.add_scatter(x=x, y=y, mode="lines", hoverinfo="skip", **look)


def _add_stripes(figure: go.Figure, cells: Sequence[Cell]) -> None:
    strokes = []
    for cell in cells:
        for k in range(1, 2 * STRIPES):
            shift = 2 * HALF * k / STRIPES  # along the diagonal
            low, high = max(0.0, shift - 2 * HALF), min(2 * HALF, shift)
            strokes.append(
                (cell.x - HALF + low, cell.y - HALF + high, cell.x - HALF + high, cell.y - HALF + low)
            )
    name = "hatched: undecided"
    _add_lines(figure, strokes, name=name, line={"color": PALETTE[1], "width": 1.3})


def _add_crosses(figure: go.Figure, cells: Sequence[Cell], name: str) -> None:
    strokes = [
        stroke
        for one in cells
        for stroke in (
            (one.x - HALF, one.y - HALF, one.x + HALF, one.y + HALF),
            (one.x - HALF, one.y + HALF, one.x + HALF, one.y - HALF),
        )
    ]
    _add_lines(figure, strokes, name=name, line={"color": MUTED, "width": 2})


def _add_frames(figure: go.Figure, cells: Sequence[Cell], name: str, width: int) -> None:
    strokes = []
    for one in cells:
        left, right, low, high = one.x - HALF, one.x + HALF, one.y - HALF, one.y + HALF
        corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
        strokes += [(*start, *end) for start, end in itertools.pairwise(corners)]
    _add_lines(figure, strokes, name=name, line={"color": PALETTE[1], "width": width})


def _add_lost(figure: go.Figure, cells: Sequence[Cell], *, small: bool) -> None:
    if not cells:
        return
    figure.add_scatter(
        x=[one.x for one in cells],
        y=[one.y for one in cells],
        mode="markers+text" if small else "markers",
        text=[one.text for one in cells],
        textposition="bottom center",
        textfont={"color": TEXT, "size": FONT_PX},
        name="failed or refused",
        hoverinfo="skip",
        marker={"symbol": "x-thin", "size": 10, "line": {"width": 2, "color": MUTED}},
    )


def _add_numbers(figure: go.Figure, cells: Sequence[Cell]) -> None:
    """Draw each number on a light background, so that colour and stripes do not obscure it."""
    for looks in (
        {
            "mode": "markers",
            "marker": {"symbol": "line-ew", "size": 34, "line": {"width": 17, "color": PLATE}},
            "unselected": {"marker": {"opacity": 1}},  # otherwise a click on a cell would fade all numbers
        },
        {
            "mode": "text",
            "text": [one.text for one in cells],
            "textfont": {"color": ON_LIGHT, "size": FONT_PX},
            "unselected": {"textfont": {"color": ON_LIGHT}},
        },
    ):
        figure.add_scatter(
            x=[one.x for one in cells],
            y=[one.y for one in cells],
            hoverinfo="skip",
            showlegend=False,
            **looks,
        )


def _add_handles(figure: go.Figure, cells: Sequence[Cell]) -> None:
    """Add invisible points for hover and click: Plotly cannot select cells of a heat map."""
    figure.add_scatter(
        x=[one.x for one in cells],
        y=[one.y for one in cells],
        mode="markers",
        text=[one.hover for one in cells],
        customdata=[one.point for one in cells],
        hovertemplate=TEXT_HOVER,
        marker={"symbol": "square", "size": CELL_PX - 8, "color": "rgba(0,0,0,0.003)"},
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        showlegend=False,
    )


# --- throughput over latency --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeoffPoint:
    """One point: its latency and its rate, each with its bounds; a bound is None if unknown."""

    ms: tuple[float, float | None, float | None]
    rate: tuple[float, float | None, float | None]
    label: str
    hover: str
    point: str
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """Throughput over latency as data: a group per value of the second axis, and the Pareto front."""

    x_title: str
    groups: dict[str, list[TradeoffPoint]]
    front: list[TradeoffPoint]
    line: float | None  # ms
    line_label: str


def tradeoff_info(points: Sequence[Measured], axes: Sequence[Axis], ranking: SweepRanking) -> Tradeoff:
    """Return throughput over the latency percentile of the limit, of the points that have both.

    Args:
        points: of a sweep; equivalent ones appear once.
        axes: one or two.
        ranking: state of the points, with the Pareto front.
    """
    groups: dict[str, list[TradeoffPoint]] = {}
    front: list[TradeoffPoint] = []
    for one in points:
        latency, rate = value_of(one, ranking.percentile), value_of(one, "throughput")
        if latency is None or rate is None or one.same is not None:
            continue
        over = ranking.is_in(one, ranking.over)
        hover = _hover(one, ranking, ranking.place(one), over=over, is_open=ranking.is_in(one, ranking.open))
        first = {axes[0].name: one.values[axes[0].name]}
        spot = TradeoffPoint(
            ms=latency,
            rate=rate,
            label=value_words(one.values[axes[0].name]) if len(axes) > 1 else point_name(first),
            hover=hover,
            point=key_of(one),
            over=over,
        )
        name = point_name({axes[1].name: one.values[axes[1].name]}) if len(axes) > 1 else "points"
        groups.setdefault(name, []).append(spot)
        front += [spot] if ranking.is_in(one, ranking.front) else []
    line = None if ranking.line_s is None else ranking.line_s * 1e3
    return Tradeoff(
        x_title=f"{STATISTICS[ranking.percentile]} {_title(points)} per run (ms)",
        groups=groups,
        front=sorted(front, key=lambda spot: spot.ms[0]),
        line=line,
        line_label="" if line is None else f"latency limit {brief(line)} ms",
    )


def _title(points: Sequence[Measured]) -> str:
    title = latency_title_of(points)
    return title[0].lower() + title[1:]


def tradeoff(info: Tradeoff) -> go.Figure:
    """Draw throughput over latency: up and to the left is better; ringed points are not dominated."""
    figure = base_figure(x_title=info.x_title, y_title="Throughput (samples/s)")
    count = sum(map(len, info.groups.values()))
    figure.add_scatter(
        x=[one.ms[0] for one in info.front],
        y=[one.rate[0] for one in info.front],
        mode="markers+lines",
        name="Pareto front",
        hoverinfo="skip",
        line={"color": MUTED, "width": 1.5, "dash": "dot"},
        marker={"symbol": "circle-open", "size": 18, "color": PALETTE[2], "line": {"width": 2.5}},
    )
    for index, (name, spots) in enumerate(info.groups.items()):
        look = style(index)
        figure.add_scatter(
            x=[one.ms[0] for one in spots],
            y=[one.rate[0] for one in spots],
            error_x=error_bars([one.ms for one in spots], look["color"], thickness=1.2, width=3),
            error_y=error_bars([one.rate for one in spots], look["color"], thickness=1.2, width=3),
            name=plain(name),
            mode="markers+text" if count <= LABELLED else "markers",
            text=[plain(one.label) for one in spots],
            textposition="top center",
            textfont={"color": TEXT, "size": FONT_PX},
            hovertext=[one.hover for one in spots],
            customdata=[one.point for one in spots],
            hovertemplate=HOVER_TEXT,
            marker={"symbol": look["symbol"], "color": look["color"], "size": 9},
        )
    over = [one for spots in info.groups.values() for one in spots if one.over]
    if over:
        figure.add_scatter(
            x=[one.ms[0] for one in over],
            y=[one.rate[0] for one in over],
            mode="markers",
            name="crossed out: over the limit",
            hoverinfo="skip",
            marker={"symbol": "x-thin", "size": 16, "line": {"width": 2, "color": MUTED}},
        )
    _scale(figure, info)
    return figure


def _scale(figure: go.Figure, info: Tradeoff) -> None:
    spots = [one for group in info.groups.values() for one in group]
    latencies = [one.ms[0] for one in spots] + ([] if info.line is None else [info.line])
    far = {}
    for name, update, values in (
        ("x", figure.update_xaxes, latencies),
        ("y", figure.update_yaxes, [one.rate[0] for one in spots]),
    ):
        far[name] = bool(spots and wide_ticks(values))
        if far[name]:
            ticks = log_ticks(values)
            update(log_axis(ticks))
        else:
            update(rangemode="tozero")
    if info.line is not None:
        figure.add_vline(x=info.line, line={"color": MUTED, "dash": "longdash", "width": 2.5})
        figure.add_annotation(
            x=math.log10(info.line) if far["x"] else info.line,  # text goes by the exponent, shapes do not
            y=1,
            yref="y domain",
            yanchor="top",
            xanchor="left",
            text=info.line_label,
            showarrow=False,
        )
