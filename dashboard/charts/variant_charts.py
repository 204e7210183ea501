"""Charts of a quantized variant: the error of each operator, and the time that it saves.

As in `charts`: no Streamlit, no clock, no file. Errors are relative (L2) of the model's outputs, drawn in
percent; seconds come in, milliseconds are drawn. Operators chosen to stay in float differ in colour and in
pattern or marker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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


def bars(found: Savings, blocked: Collection[str]) -> go.Figure:
    """Draw the error of each operator when only it is quantized, the `MAX_BARS` largest, largest on top.

    Args:
        found: all operators.
        blocked: names of those that stay in float.
    """
    shown = found.units[:MAX_BARS]
    figure = base_figure(
        x_title="Output error when only this operator is quantized (%)",
        y_title="",
        height=120 + ROW_PX * max(len(shown), 3),
    )
    for series, shape in ((QUANTIZED, ""), (BLOCKED, "/")):
        own = [
            (row, unit)
            for row, unit in enumerate(shown)
            if (series == BLOCKED) == bool(set(unit.nodes) & set(blocked))
        ]
        figure.add_bar(
            y=[row for row, _ in own],
            x=[100 * unit.error for _, unit in own],
            orientation="h",
            width=BAR_WIDTH,
            name=series,
            marker={"color": COLORS[series], "pattern": pattern(shape)},
            hovertext=[text_lines(_lines(unit)) for _, unit in own],
            hovertemplate=HOVER_TEXT,
        )
    figure.update_layout(barmode="overlay")
    name_rows(figure, [plain(ending(unit.name, NAME_LIMIT)) for unit in shown])
    figure.update_xaxes(rangemode="tozero")
    return figure


def _lines(unit: Unit) -> list[str]:
    lines = [unit.name, unit.op_type, f"{number(100 * unit.error)} % error when only this is quantized"]
    if unit.accumulated is not None:
        lines.append(f"{number(100 * unit.accumulated)} % error at its own output in the whole variant")
    if unit.saved_s is not None:
        half = "" if unit.half_width_s is None else f" ± {number(unit.half_width_s * 1e3, 2)}"
        lines.append(f"saves {number(unit.saved_s * 1e3)}{half} ms per run")
    return lines


def curve(choices: Sequence[Choice], chosen: Choice) -> go.Figure:
    """Draw time saved over error, from nothing quantized (bottom left) to everything.

    Args:
        choices: the timed ones, each with the operators in float of those before it.
        chosen: the present choice; it may lie off the curve.
    """
    figure = base_figure(x_title="Expected output error (%)", y_title="Time saved per run (ms)")
    figure.add_scatter(
        x=[100 * one.error for one in choices],
        y=[(one.saved_s or 0.0) * 1e3 for one in choices],
        mode="lines+markers",
        name="by time saved per error",
        line={"color": PALETTE[0], "width": 2},
        marker={"symbol": "circle", "size": 7},
        hovertext=[_choice(*pair) for pair in zip((None, *choices), choices, strict=False)],
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


def _choice(before: Choice | None, one: Choice) -> str:
    lines = [
        "everything quantized" if not one.blocked else f"{len(one.blocked)} in float",
        f"about {number(100 * one.error)} % error",
        f"about {number((one.saved_s or 0.0) * 1e3)} ms saved per run",
    ]
    if before is not None:
        lines.append(f"kept in float last: {', '.join(one.blocked[len(before.blocked) :])}")
    return text_lines(lines)
