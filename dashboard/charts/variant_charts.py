"""Charts of a quantized variant: the error of each operator, and the time that it saves.

As in `charts`: `*_info` is plain data, the figure only draws it; no Streamlit, no clock, no file. Errors are
relative (L2) of the model's outputs, drawn in percent; seconds come in, milliseconds are drawn. Operators
chosen to stay in float differ in colour and in pattern or marker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.node_savings import Choice, Savings, Unit
from dashboard.charts import (
    BAR_WIDTH,
    HOVER_TEXT,
    MUTED,
    PALETTE,
    base_figure,
    ending,
    name_rows,
    number,
    pattern,
    plain,
    text_lines,
)

MAX_BARS = 20  # operators with the largest errors; a longer list is in the table
ROW_PX = 26
NAME_LIMIT = 40  # characters of a name next to its bar
QUANTIZED, BLOCKED = "quantized", "kept in float"
COLORS = {QUANTIZED: PALETTE[0], BLOCKED: PALETTE[1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The error of one operator, or of several that run as one."""

    label: str
    series: str  # QUANTIZED or BLOCKED
    error_percent: float
    hover: str


def bars_info(found: Savings, blocked: Collection[str], *, limit: int = MAX_BARS) -> list[Bar]:
    """Return the `limit` largest errors, the largest first.

    Args:
        found: all operators.
        blocked: names of those that stay in float.
        limit: of bars.
    """
    return [
        Bar(
            label=ending(unit.name, NAME_LIMIT),
            series=BLOCKED if set(unit.nodes) & set(blocked) else QUANTIZED,
            error_percent=100 * unit.error,
            hover=text_lines(_lines(unit)),
        )
        for unit in found.units[:limit]
    ]


def _lines(unit: Unit) -> list[str]:
    lines = [unit.name, unit.op_type, f"{number(100 * unit.error)} % error when only this is quantized"]
    if unit.accumulated is not None:
        lines.append(f"{number(100 * unit.accumulated)} % error at its own output in the whole variant")
    if unit.saved_s is not None:
        half = "" if unit.half_width_s is None else f" ± {number(unit.half_width_s * 1e3, 2)}"
        lines.append(f"saves {number(unit.saved_s * 1e3)}{half} ms per run")
    return lines


def bars(info: Sequence[Bar]) -> go.Figure:
    """Draw the error of each operator when only it is quantized, the largest on top."""
    figure = base_figure(
        x_title="Output error when only this operator is quantized (%)",
        y_title="",
        height=120 + ROW_PX * max(len(info), 3),
    )
    for series in (QUANTIZED, BLOCKED):
        rows = [(index, one) for index, one in enumerate(info) if one.series == series]
        figure.add_bar(
            y=[index for index, _ in rows],
            x=[one.error_percent for _, one in rows],
            orientation="h",
            width=BAR_WIDTH,
            name=series,
            marker={
                "color": COLORS[series],
                "pattern": pattern("/" if series == BLOCKED else ""),
            },
            hovertext=[one.hover for _, one in rows],
            hovertemplate=HOVER_TEXT,
        )
    figure.update_layout(barmode="overlay")
    name_rows(figure, [plain(one.label) for one in info])
    figure.update_xaxes(rangemode="tozero")
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the curve: a choice of operators in float."""

    blocked: int  # operators that stay in float
    error_percent: float
    saved_ms: float
    hover: str


def curve_info(curve: Sequence[Choice]) -> list[Point]:
    """Return the timed choices as points; none if nothing was timed."""
    points = []
    for before, one in zip((None, *curve), curve, strict=False):
        if one.saved_s is None:
            continue
        lines = [
            "everything quantized" if not one.blocked else f"{len(one.blocked)} in float",
            f"about {number(100 * one.error)} % error",
            f"about {number(one.saved_s * 1e3)} ms saved per run",
        ]
        if before is not None:
            lines.append(f"kept in float last: {', '.join(one.blocked[len(before.blocked) :])}")
        points.append(
            Point(
                blocked=len(one.blocked),
                error_percent=100 * one.error,
                saved_ms=one.saved_s * 1e3,
                hover=text_lines(lines),
            )
        )
    return points


def curve(info: Sequence[Point], chosen: Choice) -> go.Figure:
    """Draw time saved over error, from nothing quantized (bottom left) to everything.

    Args:
        info: from `curve_info`.
        chosen: the present choice; it may lie off the curve.
    """
    figure = base_figure(x_title="Expected output error (%)", y_title="Time saved per run (ms)")
    figure.add_scatter(
        x=[one.error_percent for one in info],
        y=[one.saved_ms for one in info],
        mode="lines+markers",
        name="by time saved per error",
        line={"color": PALETTE[0], "width": 2},
        marker={"symbol": "circle", "size": 7},
        hovertext=[one.hover for one in info],
        hovertemplate=HOVER_TEXT,
    )
    figure.add_scatter(
        x=[100 * chosen.error],
        y=[(chosen.saved_s or 0.0) * 1e3],
        mode="markers",
        name="chosen",
        marker={"symbol": "diamond", "size": 14, "color": PALETTE[1], "line": {"color": MUTED, "width": 1}},
        hovertext=[f"chosen: {len(chosen.blocked)} in float"],
        hovertemplate=HOVER_TEXT,
    )
    figure.update_xaxes(rangemode="tozero")
    figure.add_hline(y=0.0, line={"color": MUTED, "width": 1, "dash": "dot"})
    return figure
