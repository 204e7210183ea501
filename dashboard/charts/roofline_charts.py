"""The roofline: operations per second of each node over its operations per byte.

As in `charts.py`: `*_info` is plain data, the figure only draws it. Operations per second come in, billions
are drawn. A node whose time is mostly the profiler's overhead is drawn hollow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.roofline import Peak, Point
from dashboard.charts import (
    HOVER_TEXT,
    MARKERS,
    MUTED,
    PALETTE,
    base_figure,
    log_axis,
    log_ticks,
    number,
    plain,
    text_lines,
    transparent,
)

MOST_TYPES = 6
MOST_POINTS = 2_000
SMALLEST_PX, LARGEST_PX = 7, 46
OTHER = "other"
HEIGHT = 460
FEW_DECADES = 3  # up to this number, a decade has several ticks
_G = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """The nodes of one operator type, as columns."""

    op_type: str
    intensity: list[float]
    rate: list[float]  # billions of operations per second
    size: list[float]  # px; the area is the share of the time
    hollow: list[bool]
    hover: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The two peaks as one line, with the band of their intervals."""

    intensity: list[float]
    rate: list[float]
    low: list[float]
    high: list[float]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Nodes and the roof; no roof without a known peak."""

    dots: list[Dots]
    roof: Roof | None
    left_out: int  # nodes beyond the longest MOST_POINTS


def roofline_info(points: Sequence[Point], peak: Peak | None) -> Roofline:
    """Return nodes by operator type, those with the most time named, and the roof over their whole range."""
    shown = list(points)[:MOST_POINTS]
    totals: dict[str, float] = {}
    for one in shown:
        totals[one.node.op_type] = totals.get(one.node.op_type, 0.0) + one.node.share
    named = sorted(totals, key=lambda op: (-totals[op], op))[:MOST_TYPES]
    groups: dict[str, list[Point]] = {name: [] for name in named}
    for one in shown:
        groups.setdefault(one.node.op_type if one.node.op_type in named else OTHER, []).append(one)
    return Roofline(
        dots=[_dots(name, group) for name, group in groups.items()],
        roof=None if peak is None else _roof(peak, [one.intensity for one in shown]),
        left_out=len(points) - len(shown),
    )


def _dots(name: str, group: Sequence[Point]) -> Dots:
    return Dots(
        op_type=name,
        intensity=[one.intensity for one in group],
        rate=[one.operations_per_s / _G for one in group],
        size=[max(SMALLEST_PX, LARGEST_PX * math.sqrt(max(0.0, one.node.share))) for one in group],
        hollow=[not one.is_clear for one in group],
        hover=[_hover(one) for one in group],
    )


def _hover(one: Point) -> str:
    node, reach = one.node, one.reach
    done, moved = (one.work.operations or 0) / 1e6, (one.work.bytes or 0) / 1024
    parts = [
        f"{node.name or '(no name)'} · {node.op_type}",
        f"{node.share:.1%} of the time in nodes, {number(node.median_s * 1e3)} ms in the median run",
        f"{number(done)} million operations, {number(moved)} KiB per call",
        f"{number(one.operations_per_s / _G, 3)} billion operations per second, "
        f"{number(one.intensity, 3)} per byte",
    ]
    if not one.is_clear:
        parts.append("too short for the profiler to measure its rate")
    elif reach is not None:
        beyond = "; its data come from a cache" if reach > 1 and one.bound == "memory" else ""
        parts.append(f"{reach:.0%} of the roof over it ({one.bound}){beyond}")
    elif one.roof is None:
        parts.append("its roof is not known")
    return text_lines(parts)


def _roof(peak: Peak, intensities: Sequence[float]) -> Roof:
    ridge = peak.ridge.value
    ends = [*intensities, ridge]
    x = sorted({min(ends) / 2, ridge, max(*ends, 4 * ridge) * 2})
    ops, moved = peak.operations, peak.bytes
    low_ops, high_ops = ops.low or ops.value, ops.high or ops.value
    low_bytes, high_bytes = moved.low or moved.value, moved.high or moved.value
    x = sorted({*x, low_ops / low_bytes, high_ops / high_bytes})  # where the band bends
    return Roof(
        intensity=x,
        rate=[peak.roof(one).value / _G for one in x],
        low=[min(low_ops, one * low_bytes) / _G for one in x],
        high=[min(high_ops, one * high_bytes) / _G for one in x],
        name=f"peak of this machine, {peak.threads} thread{'s' * (peak.threads != 1)}",
    )


def roofline(info: Roofline) -> go.Figure:
    """Draw nodes and roof on logarithmic axes; a larger dot took more of the time."""
    figure = base_figure(
        x_title="Operations per byte", y_title="Billions of operations per second", height=HEIGHT
    )
    if info.roof is not None:
        _draw_roof(figure, info.roof)
    for index, dots in enumerate(info.dots):
        color = MUTED if dots.op_type == OTHER else PALETTE[index % len(PALETTE)]
        symbol = MARKERS[index % len(MARKERS)]
        figure.add_scatter(
            x=dots.intensity,
            y=dots.rate,
            mode="markers",
            name=plain(dots.op_type),
            marker={
                "color": color,
                "opacity": 0.85,
                "size": dots.size,
                "symbol": [f"{symbol}-open" if hollow else symbol for hollow in dots.hollow],
                "line": {"width": 1.5, "color": color},
            },
            hovertext=dots.hover,
            hovertemplate=HOVER_TEXT,
        )
    xs, ys = _ends(info)
    figure.update_xaxes(log_axis(_decades(xs)))
    figure.update_yaxes(log_axis(_decades(ys)))
    figure.update_layout(legend_itemsizing="constant")
    return figure


def _draw_roof(figure: go.Figure, roof: Roof) -> None:
    figure.add_scatter(
        x=[*roof.intensity, *reversed(roof.intensity)],
        y=[*roof.high, *reversed(roof.low)],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=transparent(MUTED, 0.3),
        hoverinfo="skip",
        name="its 95 % interval",
    )
    figure.add_scatter(
        x=roof.intensity,
        y=roof.rate,
        mode="lines",
        line={"color": MUTED, "width": 2, "dash": "dash"},
        name=plain(roof.name),
        hovertemplate="%{y:.3g} billion operations per second<br>at %{x:.3g} per byte<extra></extra>",
    )


def _ends(info: Roofline) -> tuple[list[float], list[float]]:
    roof = info.roof
    xs = [one for dots in info.dots for one in dots.intensity] + ([] if roof is None else roof.intensity)
    ys = [one for dots in info.dots for one in dots.rate] + ([] if roof is None else roof.high)
    return xs or [1.0], ys or [1.0]


def _decades(values: Sequence[float]) -> list[float]:
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return log_ticks(values) if last - first <= FEW_DECADES else [10.0**k for k in range(first, last + 1)]
