"""Curves over one setting: latency with its interval, throughput, the latency line and the best point.

As in `charts.py`: `curve_info` is plain data, `curve` only draws it; no Streamlit, no clock, no file. Seconds
come in, milliseconds are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from core.run.sweep import THREADS, Measured
from core.wire.guard import MARK
from core.wire.units import brief, span
from dashboard.charts import (
    MUTED,
    PALETTE,
    base_figure,
    log_ticks,
    number,
    plain,
    provider_label,
    style,
    transparent,
)

LOG_FROM_RATIO = 10.0  # values that span a decade are read on a logarithmic axis
STATISTICS = {"p50_s": "p50", "p90_s": "p90", "p95_s": "p95", "p99_s": "p99", "mean_s": "mean"}
AXIS_TITLES = {"batch_size": "Batch size (rows per run)", THREADS: "Intra-op threads"}


def axis_title(name: str) -> str:
    """Title of the axis on which setting `name` is varied."""
    return AXIS_TITLES.get(name, f"{name} (free dimension)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a curve with its 95 % interval; a bound is None where the runs cannot support it."""

    name: str
    x: list[int]
    y: list[float]
    low: list[float | None]
    high: list[float | None]
    trials: list[str]
    reused: list[bool]
    hover: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveInfo:
    """A curve as data: what is drawn, on which axes. A line or a best point is None when there is none."""

    x_title: str
    y_title: str
    x_log: bool
    y_log: bool
    ticks: list[int]
    series: list[Series]
    line: float | None = None
    line_label: str = ""
    best: tuple[int, float] | None = None


def curve_info(
    points: Sequence[Measured],
    *,
    x: str,
    y: Sequence[str] | str,
    line_s: float | None = None,
    best: Measured | None = None,
) -> CurveInfo:
    """Return a curve over setting `x`.

    Args:
        points: of a sweep; only complete ones are drawn.
        x: the axis of the sweep.
        y: "throughput", or names of latency statistics such as ("p50_s", "p95_s").
        line_s: the latency line, drawn on a latency curve.
        best: the best point under the line, marked on either curve.
    """
    names = [y] if isinstance(y, str) else list(y)
    done = sorted((one for one in points if one.latency), key=lambda one: one.values[x])
    series = [one for name in names for one in _series_of(done, x, name, alone=len(names) == 1)]
    throughput = names == ["throughput"]
    drawn = [value for one in series for value in one.y]
    if line_s is not None and not throughput:
        drawn = [*drawn, line_s * 1e3] if drawn else []
    ticks = sorted({value for one in series for value in one.x})
    return CurveInfo(
        x_title=axis_title(x),
        y_title="Throughput (rows/s)" if throughput else "Latency per run (ms)",
        x_log=_spans(ticks, 4.0),
        y_log=_spans(drawn, LOG_FROM_RATIO),
        ticks=ticks,
        series=series,
        line=None if line_s is None or throughput else line_s * 1e3,
        line_label="" if line_s is None else f"latency line {brief(line_s * 1e3)} ms",
        best=_best_xy(best, x, names),
    )


def _spans(values: Sequence[float], ratio: float) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= ratio


def _best_xy(best: Measured | None, x: str, names: Sequence[str]) -> tuple[int, float] | None:
    if best is None:
        return None
    value = _value(best, names[-1])
    return None if value is None else (best.values[x], value[0])


def _value(point: Measured, name: str) -> tuple[float, float | None, float | None] | None:
    """Value and bounds as drawn: milliseconds or rows per second."""
    if name == "throughput":
        if point.throughput_per_s is None:
            return None
        return (point.throughput_per_s, *point.throughput_interval())
    latency: Mapping[str, Any] = point.latency or {}
    value, low, high = (latency.get(key) for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return None
    return value * 1e3, None if low is None else low * 1e3, None if high is None else high * 1e3


def _series_of(points: Sequence[Measured], x: str, name: str, *, alone: bool) -> list[Series]:
    """One series per provider that really ran, so that a fallback never shares a line with the real thing."""
    groups: dict[str, list[tuple[Measured, tuple[float, float | None, float | None]]]] = {}
    for point in points:
        if (value := _value(point, name)) is not None:
            label = provider_label(point.providers, point.requested, fallback=point.fallback)
            groups.setdefault(label, []).append((point, value))
    return [
        Series(
            name=label if name == "throughput" or alone else f"{STATISTICS[name]} · {label}",
            x=[point.values[x] for point, _ in rows],
            y=[value[0] for _, value in rows],
            low=[value[1] for _, value in rows],
            high=[value[2] for _, value in rows],
            trials=[point.trial for point, _ in rows],
            reused=[point.reused for point, _ in rows],
            hover=[_hover(point, x, name, value, label) for point, value in rows],
        )
        for label, rows in groups.items()
    ]


def _hover(
    point: Measured, x: str, name: str, value: tuple[float, float | None, float | None], label: str
) -> str:
    unit, what = ("rows/s", "throughput") if name == "throughput" else ("ms", STATISTICS[name])
    low, high = value[1], value[2]
    known = f"95 %: {span(low, high, unit)}" if low or high else "no interval"
    parts = [
        f"{axis_title(x)}: {point.values[x]}",
        f"{what}: {number(value[0])} {unit}",
        known,
        f"{point.runs} runs of {point.rows} rows" + (", measured earlier" if point.reused else ""),
        label,
        *([f"⚠ {MARK}"] if point.breach else []),
    ]
    return "<br>".join(plain(part) for part in parts)


def curve(info: CurveInfo) -> go.Figure:
    """Draw a curve: lines with markers, the interval as a band, reused points hollow."""
    figure = base_figure(x_title=info.x_title, y_title=info.y_title)
    for index, series in enumerate(info.series):
        look = style(index)
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
            hovertemplate="%{text}<extra></extra>",
        )
    _add_best(figure, info)
    _add_line(figure, info)
    figure.update_xaxes(
        type="log" if info.x_log else "linear", tickvals=info.ticks, ticktext=[f"{t:,}" for t in info.ticks]
    )
    if info.y_log:
        ticks = log_ticks([v for one in info.series for v in (*one.y, *one.low, *one.high) if v])
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[brief(tick) for tick in ticks])
    else:
        figure.update_yaxes(rangemode="tozero")
    return figure


def _add_band(figure: go.Figure, series: Series, color: str) -> None:
    """The interval of each point as a filled band, drawn where both bounds are known."""
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
    figure.add_hline(y=info.line, line={"color": MUTED, "dash": "longdash", "width": 2.5})
    figure.add_annotation(
        x=0,
        xref="x domain",
        xanchor="left",
        y=math.log10(info.line)
        if info.y_log
        else info.line,  # Plotly places text by the exponent, shapes not
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
        name="best under the line",
        mode="markers",
        marker={"symbol": "circle-open", "size": 20, "color": PALETTE[2], "line": {"width": 3}},
        hoverinfo="skip",
    )
