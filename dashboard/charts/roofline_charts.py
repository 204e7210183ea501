"""The roofline: operations per second of each node over its operations per byte.

As in `charts`: no Streamlit, no clock, no file. Operations per second come in, billions are drawn. A node
whose time is mostly the profiler's overhead is drawn hollow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def roofline(points: Sequence[Point], peak: Peak | None) -> go.Figure:
    """Draw nodes by operator type, and the roof over them, on logarithmic axes; larger: more of the time.

    Args:
        points: the longest first, of which `MOST_POINTS` are drawn.
        peak: of the machine; None: it is not known, and there is no roof.
    """
    figure = base_figure(
        x_title="Operations per byte", y_title="Billions of operations per second", height=HEIGHT
    )
    shown = list(points)[:MOST_POINTS]
    xs, ys = [one.intensity for one in shown], [one.operations_per_s / _G for one in shown]
    if peak is not None:
        at, high = _add_roof(figure, peak, xs)
        xs, ys = [*xs, *at], [*ys, *high]
    for index, (op_type, group) in enumerate(_by_type(shown).items()):
        color = MUTED if op_type == OTHER else PALETTE[index % len(PALETTE)]
        symbol = MARKERS[index % len(MARKERS)]
        figure.add_scatter(
            x=[one.intensity for one in group],
            y=[one.operations_per_s / _G for one in group],
            mode="markers",
            name=plain(op_type),
            marker={
                "color": color,
                "opacity": 0.85,
                "size": [_size_px(one.node.share) for one in group],
                "symbol": [symbol if one.is_clear else f"{symbol}-open" for one in group],
                "line": {"width": 1.5, "color": color},
            },
            hovertext=[_hover(one) for one in group],
            hovertemplate=HOVER_TEXT,
        )
    figure.update_xaxes(log_axis(_decades(xs or [1.0])))
    figure.update_yaxes(log_axis(_decades(ys or [1.0])))
    figure.update_layout(legend_itemsizing="constant")
    return figure


def _by_type(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Group nodes by operator type; those with the most time have names."""
    totals: dict[str, float] = {}
    for one in points:
        totals[one.node.op_type] = totals.get(one.node.op_type, 0.0) + one.node.share
    named = sorted(totals, key=lambda op: (-totals[op], op))[:MOST_TYPES]
    groups: dict[str, list[Point]] = {name: [] for name in named}
    for one in points:
        groups.setdefault(one.node.op_type if one.node.op_type in named else OTHER, []).append(one)
    return groups


def _size_px(share: float) -> float:
    """Return the diameter of a dot whose area is its share of the time."""
    return max(SMALLEST_PX, LARGEST_PX * math.sqrt(max(0.0, share)))


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


def _add_roof(figure: go.Figure, peak: Peak, intensities: Sequence[float]) -> tuple[list[float], list[float]]:
    """Draw the two peaks as one line with the band of their intervals; return where the band's top lies."""
    ridge = peak.ridge.value
    ends = [*intensities, ridge]
    x = sorted({min(ends) / 2, ridge, max(*ends, 4 * ridge) * 2})
    ops, moved = peak.operations, peak.bytes
    low_ops, high_ops = ops.low or ops.value, ops.high or ops.value
    low_bytes, high_bytes = moved.low or moved.value, moved.high or moved.value
    x = sorted({*x, low_ops / low_bytes, high_ops / high_bytes})  # where the band bends
    low = [min(low_ops, one * low_bytes) / _G for one in x]
    high = [min(high_ops, one * high_bytes) / _G for one in x]
    figure.add_scatter(
        x=[*x, *reversed(x)],
        y=[*high, *reversed(low)],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=transparent(MUTED, 0.3),
        hoverinfo="skip",
        name="its 95 % interval",
    )
    figure.add_scatter(
        x=x,
        y=[peak.roof(one).value / _G for one in x],
        mode="lines",
        line={"color": MUTED, "width": 2, "dash": "dash"},
        name=f"peak of this machine, {peak.threads} thread{'s' * (peak.threads != 1)}",
        hovertemplate="%{y:.3g} billion operations per second<br>at %{x:.3g} per byte<extra></extra>",
    )
    return x, high


def _decades(values: Sequence[float]) -> list[float]:
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return log_ticks(values) if last - first <= FEW_DECADES else [10.0**k for k in range(first, last + 1)]
