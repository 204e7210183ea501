"""Curves over one setting, a line per value of another: latency and throughput with their intervals.

As in `charts.py`: `curve_info` is plain data, `curve` only draws it; no Streamlit, no clock, no file. Seconds
come in, milliseconds are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import plotly.graph_objects as go

from core.api.sweeping import Measured
from core.evidence.streams import latency_title, latency_words, stream_count
from core.spec.axes import THREADS, point_name, row_of
from core.spec.settings import Value, value_words
from core.wire.output_check import OUTPUTS_DIFFER
from core.wire.units import brief, interval, provider
from dashboard.charts import (
    MUTED,
    PALETTE,
    PARTIAL,
    TEXT_HOVER,
    base_figure,
    lay_out,
    line_at,
    log_axis,
    log_ticks,
    number,
    plain,
    ran_label,
    style,
    text_lines,
    transparent,
)

LOG_FROM_RATIO = 10.0  # ratio of values from which an axis is logarithmic
STATISTICS = {"p50_s": "p50", "p90_s": "p90", "p95_s": "p95", "p99_s": "p99", "mean_s": "mean"}
AXIS_TITLES = {"batch_size": "Batch size (samples per run)", THREADS: "Intra-op threads"}


def axis_title(name: str) -> str:
    """Return the title of the axis of setting `name`."""
    if name in AXIS_TITLES:
        return AXIS_TITLES[name]
    row = row_of(name)
    return f"{name} (free dimension)" if row is None else row.label or name


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a curve with its 95 % interval; a bound is None where the runs do not support it."""

    name: str
    x: list[int]
    y: list[float]
    low: list[float | None]
    high: list[float | None]
    trials: list[str]
    reused: list[bool]
    hover: list[str]
    style: int = 0
    ghost: str = ""  # the earlier sweep of this line; empty: the present one


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveInfo:
    """A curve as data: lines and axes. A limit or a best point is None if there is none."""

    x_title: str
    y_title: str
    x_log: bool
    y_log: bool
    ticks: list[int]
    tick_texts: list[str]
    series: list[Series]
    line: float | None = None
    line_label: str = ""
    best: tuple[int, float] | None = None
    lost: dict[int, str] = field(default_factory=dict)  # place on the axis -> why points have no numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierSweep:
    """An earlier sweep over the same settings."""

    name: str  # its date
    points: Sequence[Measured]


def curve_info(
    points: Sequence[Measured],
    *,
    x: str,
    y: Sequence[str] | str,
    series: str = "",
    line_s: float | None = None,
    best: Measured | None = None,
    ghosts: Sequence[EarlierSweep] = (),
) -> CurveInfo:
    """Return a curve over setting `x`.

    Args:
        points: of a sweep; those without numbers are marked at their position, with the reason.
        x: the axis of the sweep.
        y: "throughput", or names of latency statistics such as ("p50_s", "p95_s").
        series: the other axis, whose values are lines of their own; empty: there is none.
        line_s: the latency limit, drawn on a latency curve.
        best: the best point within the limit, marked on either curve.
        ghosts: earlier sweeps, drawn faintly behind it with the last of `y`.
    """
    names = [y] if isinstance(y, str) else list(y)
    shown = [*points, *(one for ghost in ghosts for one in ghost.points)]
    places = _places(shown, x)
    done = _sorted(points, x, places)
    found = _series_of(done, x, names, series, places)
    looks = {one.name: one.style for one in found}
    for ghost in ghosts:
        faint = _series_of(_sorted(ghost.points, x, places), x, names[-1:], series, places)
        found += [
            replace(
                one,
                name=ghost.name,
                hover=[f"{plain(ghost.name)}<br>{text}" for text in one.hover],
                style=looks.get(one.name, 0),
                ghost=ghost.name,
            )
            for one in faint
        ]
    throughput = names == ["throughput"]
    drawn = [value for one in found for value in one.y]
    if line_s is not None and not throughput:
        drawn = [*drawn, line_s * 1e3] if drawn else []
    ticks = sorted({place for one in found for place in one.x})
    texts = {place: value_words(value) for value, place in places.items()}
    return CurveInfo(
        x_title=axis_title(x),
        y_title="Throughput (samples/s)" if throughput else f"{latency_title_of(shown)} per run (ms)",
        x_log=_are_numbers(places) and _spans(ticks, 4.0),
        y_log=_spans(drawn, LOG_FROM_RATIO),
        ticks=ticks,
        tick_texts=[_tick(texts[tick]) for tick in ticks],
        series=found,
        line=None if line_s is None or throughput else line_s * 1e3,
        line_label="" if line_s is None else f"latency limit {brief(line_s * 1e3)} ms",
        best=_best_xy(best, x, names, places),
        lost=_lost(points, x, places) if found else {},
    )


def latency_title_of(points: Iterable[Measured]) -> str:
    """Return what the latencies of points are called together."""
    return latency_title(one.result for one in points)


def _tick(text: str) -> str:
    return f"{int(text):,}" if text.isdigit() else plain(provider(text))


def _are_numbers(places: Mapping[Value | None, int]) -> bool:
    return all(isinstance(one, int) and not isinstance(one, bool) for one in places)


def _places(points: Sequence[Measured], x: str) -> dict[Value | None, int]:
    """Return the axis position of each value: numbers at their value, others in the order of the sweep."""
    values = list(dict.fromkeys(one.values[x] for one in points))
    numbers = [one for one in values if isinstance(one, int) and not isinstance(one, bool)]
    if len(numbers) == len(values):
        return {one: one for one in numbers}
    return {value: index for index, value in enumerate(values)}


def _sorted(points: Sequence[Measured], x: str, places: Mapping[Value | None, int]) -> list[Measured]:
    return sorted((one for one in points if one.latency), key=lambda one: places[one.values[x]])


def _lost(points: Sequence[Measured], x: str, places: Mapping[Value | None, int]) -> dict[int, str]:
    """Return points that failed or were refused, grouped by position."""
    reasons: dict[int, list[str]] = {}
    for one in points:
        if one.latency is None and one.error:
            reasons.setdefault(places[one.values[x]], []).append(f"{point_name(one.values)}: {one.error}")
    return {place: text_lines(texts) for place, texts in reasons.items()}


def _spans(values: Sequence[float], ratio: float) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= ratio


def _best_xy(
    best: Measured | None, x: str, names: Sequence[str], places: Mapping[Value | None, int]
) -> tuple[int, float] | None:
    if best is None:
        return None
    value = value_of(best, names[-1])
    return None if value is None else (places[best.values[x]], value[0])


def value_of(point: Measured, name: str) -> tuple[float, float | None, float | None] | None:
    """Return value and bounds as drawn: milliseconds or samples per second; None: there is none."""
    if name == "throughput":
        if point.throughput_per_s is None:
            return None
        return (point.throughput_per_s, *point.throughput_interval())
    latency: Mapping[str, Any] = point.latency or {}
    value, low, high = (latency.get(key) for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return None
    return value * 1e3, None if low is None else low * 1e3, None if high is None else high * 1e3


def _series_of(
    points: Sequence[Measured],
    x: str,
    names: Sequence[str],
    other: str,
    places: Mapping[Value | None, int],
) -> list[Series]:
    """Return one series per statistic, value of `other` and provider used: a fallback has its own."""
    labels = {ran_label(point.result) for point in points}
    groups: dict[str, list[tuple[Measured, tuple[float, float | None, float | None], str]]] = {}
    for name in names:
        for point in points:
            if (value := value_of(point, name)) is None:
                continue
            parts = [STATISTICS[name]] if name in STATISTICS and len(names) > 1 else []
            parts += [point_name({other: point.values[other]})] if other else []
            parts += [ran_label(point.result)] if len(labels) > 1 or not other else []
            groups.setdefault(" · ".join(parts), []).append((point, value, name))
    return [
        Series(
            name=label,
            x=[places[point.values[x]] for point, _, _ in rows],
            y=[value[0] for _, value, _ in rows],
            low=[value[1] for _, value, _ in rows],
            high=[value[2] for _, value, _ in rows],
            trials=[key_of(point) for point, _, _ in rows],
            reused=[point.reused for point, _, _ in rows],
            hover=[hover(point, name, value) for point, value, name in rows],
            style=index,
        )
        for index, (label, rows) in enumerate(groups.items())
    ]


def statistic_of(point: Measured, name: str) -> str:
    """Return a statistic of a point's latency in words: "p50", or "p50 service latency under 2 callers"."""
    text = STATISTICS[name]
    return text if stream_count(point.result) == 1 else f"{text} {latency_words(point.result)}"


def key_of(point: Measured) -> str:
    """Return the data that a marker carries about its point."""
    return point_name(point.values)


def hover(point: Measured, name: str, value: tuple[float, float | None, float | None]) -> str:
    """Return the hover text of a point: its settings, one number with its interval, the provider used.

    Args:
        point: to describe.
        name: "throughput" or a statistic of the latency.
        value: with its bounds, as drawn.
    """
    unit, what = ("samples/s", "throughput") if name == "throughput" else ("ms", statistic_of(point, name))
    low, high = value[1], value[2]
    runs, rows = point.result.get("runs", 0), point.result.get("batch_size")
    known = interval(low, high, unit) if low or high else "no interval"
    parts = [
        *(f"{axis_title(axis)}: {value_words(held)}" for axis, held in point.values.items()),
        f"{what}: {number(value[0])} {unit}",
        known,
        f"{runs} runs of {rows} samples" + (", measured earlier" if point.reused else ""),
        ran_label(point.result),
        *([f"the same as {point_name(point.same)}: {point.why}"] if point.same is not None else []),
        *([PARTIAL] if point.cut_short else []),
        *([f"⚠ {OUTPUTS_DIFFER}"] if point.breach else []),
    ]
    return text_lines(parts)


def curve(info: CurveInfo) -> go.Figure:
    """Draw a curve: lines with markers, the interval as a band, reused points hollow, earlier ones faint."""
    figure = base_figure(x_title=plain(info.x_title), y_title=info.y_title)
    ghosts: set[str] = set()
    for series in info.series:
        look = style(series.style)
        if series.ghost:
            _add_ghost(figure, series, look, named=series.ghost not in ghosts)
            ghosts.add(series.ghost)
            continue
        _add_band(figure, series, look["color"])
        figure.add_scatter(
            x=series.x,
            y=series.y,
            name=plain(series.name),
            mode="lines+markers",
            line={"color": look["color"], "dash": look["dash"], "width": 2},
            marker={
                "symbol": [look["symbol"] + ("-open" if reused else "") for reused in series.reused],
                "color": look["color"],
                "size": 9,
                "line": {"width": 2, "color": look["color"]},
            },
            text=series.hover,
            customdata=series.trials,
            hovertemplate=TEXT_HOVER,
        )
    _add_best(figure, info)
    _add_line(figure, info)
    _add_lost(figure, info)
    values = [v for one in info.series for v in (*one.y, *one.low, *one.high) if v]
    kind = "log" if info.x_log else "linear"
    lay_out(
        figure,
        xaxis={"type": kind, "tickvals": info.ticks, "ticktext": info.tick_texts},
        yaxis=log_axis(log_ticks(values)) if info.y_log else {"rangemode": "tozero"},
    )
    return figure


def _add_ghost(figure: go.Figure, series: Series, look: Mapping[str, str], *, named: bool) -> None:
    """Draw a faint line; all lines of one earlier sweep share a legend entry."""
    figure.add_scatter(
        x=series.x,
        y=series.y,
        name=plain(series.name),
        legendgroup=series.ghost,
        showlegend=named,
        mode="lines+markers",
        opacity=0.6,
        line={"color": look["color"], "dash": "dot", "width": 1.5},
        marker={"symbol": look["symbol"] + "-open", "color": look["color"], "size": 6},
        text=series.hover,
        hovertemplate=TEXT_HOVER,
    )


def _add_lost(figure: go.Figure, info: CurveInfo) -> None:
    """Draw a cross at the bottom of the chart where points failed or were refused."""
    for place, reasons in info.lost.items():
        figure.add_annotation(
            x=math.log10(place) if info.x_log and place > 0 else place,
            y=0,
            yref="y domain",
            yanchor="bottom",
            text="✕",
            showarrow=False,
            font={"color": MUTED, "size": 18},
            hovertext=reasons,
        )


def _add_band(figure: go.Figure, series: Series, color: str) -> None:
    """Draw the interval of each point as a filled band, where both bounds are known."""
    rows = [
        (x, low, high)
        for x, low, high in zip(series.x, series.low, series.high, strict=True)
        if low is not None and high is not None
    ]
    if not rows:
        return
    figure.add_scatter(
        x=[row[0] for row in rows] + [row[0] for row in reversed(rows)],
        y=[row[2] for row in rows] + [row[1] for row in reversed(rows)],
        fill="toself",
        fillcolor=transparent(color, 0.18),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        name=f"{plain(series.name)} 95 % interval",
    )


def _add_line(figure: go.Figure, info: CurveInfo) -> None:
    if info.line is None:
        return
    limit = line_at(info.line, of="y", color=MUTED, dash="longdash", width=2.5)
    lay_out(figure, shapes=[limit])
    figure.add_annotation(
        x=0,
        xref="x domain",
        xanchor="left",
        y=math.log10(info.line)
        if info.y_log
        else info.line,  # Plotly places text by the exponent, not shapes
        yanchor="bottom",
        text=info.line_label,
        showarrow=False,
    )


def _add_best(figure: go.Figure, info: CurveInfo) -> None:
    if info.best is None:
        return
    figure.add_scatter(
        x=[info.best[0]],
        y=[info.best[1]],
        name="best under the limit",
        mode="markers",
        marker={"symbol": "circle-open", "size": 20, "color": PALETTE[2], "line": {"width": 3}},
        hoverinfo="skip",
    )
