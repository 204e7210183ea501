"""Ratios of several configurations against one baseline: a forest plot, finished and still running.

As in `charts`: `forest_info` is plain data, `forest` and `live_forest` only draw it; no Streamlit, no clock,
no file. A ratio is speed against the baseline per row: 2 is twice as fast, so further right is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from core.contrast import ratio_text
from dashboard.charts import MUTED, PALETTE, base_figure, log_ticks, plain, transparent

ROW_HEIGHT = (
    52  # pixels: the name of a contestant stands above its interval, so that a phone has room for both
)
LABEL_SHIFT = 14  # pixels from an interval up to its name
LIVE_ROW_HEIGHT = 46
LABEL_LIMIT, TITLE_LIMIT = 52, 34  # characters
AXIS_ROOM = 0.08  # of the axis beside the outermost interval
LINEAR_UP_TO = 4.0  # a wider span of ratios gets the ticks of a logarithmic axis
MAX_TICKS = 8
BASELINE = "BASELINE"  # beside the verdicts

# colour, marker and word of each verdict; the marker tells them apart without the colour
VERDICTS: Mapping[str, tuple[str, str, str]] = {
    "FASTER": (PALETTE[2], "triangle-right", "faster"),
    "SLOWER": (PALETTE[1], "triangle-left", "slower"),
    "EQUIVALENT": (PALETTE[0], "diamond", "no difference that matters"),
    "UNDECIDED": (MUTED, "circle-open", "undecided"),
    BASELINE: (MUTED, "line-ns-open", "baseline"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """One contestant: its ratio and 95 % interval; a bound is None where too few rounds were made."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    verdict: str  # a key of VERDICTS
    short: str  # the ratio as its interval supports it
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestInfo:
    """A forest plot as data, top row first; a difference below the share `margin` does not matter."""

    baseline: str
    rows: list[ForestRow]
    margin: float
    axis: tuple[float, float]
    ticks: list[float]

    @property
    def band(self) -> tuple[float, float]:
        """Ratios between which two configurations are called equal."""
        return 1 / (1 + self.margin), 1 + self.margin


def forest_info(
    contrasts: Sequence[Mapping[str, Any]], labels: Mapping[str, str], *, baseline: str, margin: float
) -> ForestInfo:
    """Return the forest of `contrasts` in their order, the baseline last.

    Args:
        contrasts: as a comparison stores them, all against `baseline`; those without a ratio are left out.
        labels: trial -> name.
        baseline: trial that the others are put against.
        margin: of equivalence, a share.
    """
    rows = [_row(one, labels) for one in contrasts if one.get("ratio")]
    name = labels.get(baseline, "baseline")
    rows.append(
        ForestRow(label=name, ratio=1.0, low=None, high=None, verdict=BASELINE, short="baseline", hover=name)
    )
    drawn = [value for row in rows for value in (row.ratio, row.low, row.high) if value]
    low, high = min(*drawn, 1 / (1 + 2 * margin)), max(*drawn, 1 + 2 * margin)
    room = (high / low) ** AXIS_ROOM
    axis = (low / room, high * room)
    return ForestInfo(baseline=name, rows=rows, margin=margin, axis=axis, ticks=ratio_ticks(*axis))


def _row(contrast: Mapping[str, Any], labels: Mapping[str, str]) -> ForestRow:
    label = contrast.get("label") or labels.get(contrast["candidate"], contrast["candidate"][:8])
    ratio, low, high = contrast["ratio"], contrast.get("ratio_low"), contrast.get("ratio_high")
    known = f"95 %: {low:.4g}× to {high:.4g}×" if low and high else "no interval yet"
    verdict = contrast.get("verdict") or "UNDECIDED"
    rounds = f"{contrast['rounds']} rounds" if contrast.get("rounds") else ""
    parts = [label, f"{ratio:.4g}× the speed of the baseline", known, VERDICTS[verdict][2], rounds]
    return ForestRow(
        label=label,
        ratio=ratio,
        low=low,
        high=high,
        verdict=verdict,
        short=f"{ratio_text(ratio, low, high)}×",
        hover="<br>".join(plain(part) for part in parts if part),
    )


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios between `low` and `high`, 1 among them where it lies between."""
    if high / low > LINEAR_UP_TO:
        return [tick for tick in log_ticks([low, high]) if low <= tick <= high]
    steps = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # each divides 1
    step = next((one for one in steps if (high - low) / one <= MAX_TICKS), 1.0)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 6) for k in range(first, last + 1)]


def forest(info: ForestInfo, *, muted: bool = False) -> go.Figure:
    """Draw a finished forest: each interval with its name above it, on a logarithmic axis.

    Args:
        info: what to draw.
        muted: without the colours of the verdicts, for a comparison that was rejected.
    """
    figure = base_figure(
        x_title=f"Speed against {plain(_shortened(info.baseline, TITLE_LIMIT))} (×, logarithmic)",
        y_title="",
        height=110 + ROW_HEIGHT * len(info.rows),
    )
    places = {index: len(info.rows) - 1 - index for index in range(len(info.rows))}  # the first row on top
    figure.add_vrect(
        x0=info.band[0],
        x1=info.band[1],
        fillcolor=transparent(MUTED, 0.2),
        line_width=0,
        layer="below",
    )
    figure.add_vline(x=1.0, line={"color": MUTED, "width": 1.5, "dash": "dot"})
    for verdict in VERDICTS:
        _add_verdict(figure, verdict, [(row, places[i]) for i, row in enumerate(info.rows)], muted=muted)
    for index, row in enumerate(info.rows):
        _add_name(figure, row, places[index])
    figure.update_xaxes(
        type="log",
        range=[math.log10(bound) for bound in info.axis],
        tickvals=info.ticks,
        ticktext=[f"{tick:g}×" for tick in info.ticks],
    )
    figure.update_yaxes(visible=False, range=[-0.5, len(info.rows) - 0.3], fixedrange=True)
    return figure


def _shortened(name: str, limit: int) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _add_verdict(
    figure: go.Figure, verdict: str, rows: Sequence[tuple[ForestRow, int]], *, muted: bool
) -> None:
    """The contestants of one verdict are one series, so that the legend says what a marker means."""
    own = [(row, place) for row, place in rows if row.verdict == verdict]
    if not own:
        return
    color, marker, word = VERDICTS[verdict]
    color = MUTED if muted else color
    figure.add_scatter(
        x=[row.ratio for row, _ in own],
        y=[place for _, place in own],
        name=word,
        mode="markers",
        marker={"symbol": marker, "size": 13, "color": color, "line": {"width": 2, "color": color}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(row.high or row.ratio) - row.ratio for row, _ in own],
            "arrayminus": [row.ratio - (row.low or row.ratio) for row, _ in own],
            "color": color,
            "thickness": 3,
            "width": 7,
        },
        text=[row.hover for row, _ in own],
        showlegend=verdict != BASELINE,
        hovertemplate="%{text}<extra></extra>",
    )


def _add_name(figure: go.Figure, row: ForestRow, place: int) -> None:
    sides = ((0.0, "left", _shortened(row.label, LABEL_LIMIT)), (1.0, "right", row.short))
    for x, anchor, text in sides:
        figure.add_annotation(
            x=x,
            xref="x domain",
            xanchor=anchor,
            y=place,
            yshift=LABEL_SHIFT,
            yanchor="bottom",
            text=plain(text),
            showarrow=False,
        )


# --- while it runs ----------------------------------------------------------------------------------------


def live_height(info: ForestInfo) -> int:
    """Pixels that the running forest takes."""
    return 44 + LIVE_ROW_HEIGHT * (len(info.rows) - 1)


def live_forest(info: ForestInfo) -> dict[str, Any]:
    """Return the running forest for Apache ECharts, which moves in place instead of being drawn anew.

    The verdicts of a running race are not final, so they have no colours here.
    """
    rows = [row for row in info.rows if row.verdict != BASELINE]
    low, high = (round(bound, 3) for bound in info.axis)
    bars = [
        {
            "type": "line",
            "data": [[row.low, index], [row.high, index]],
            "lineStyle": {"color": PALETTE[0], "width": 5, "cap": "round"},
            "showSymbol": False,
            "silent": True,
        }
        for index, row in enumerate(rows)
        if row.low and row.high
    ]
    points = {
        "type": "scatter",
        "data": [[row.ratio, index] for index, row in enumerate(rows)],
        "itemStyle": {"color": PALETTE[1]},
        "symbolSize": 11,
        "markArea": {
            "silent": True,
            "itemStyle": {"color": transparent(MUTED, 0.2)},
            "data": [[{"xAxis": info.band[0]}, {"xAxis": info.band[1]}]],
        },
        "markLine": {
            "silent": True,
            "symbol": "none",
            "label": {"show": False},
            "lineStyle": {"color": MUTED, "type": "dotted"},
            "data": [{"xAxis": 1}],
        },
    }
    return {
        "animation": False,
        "grid": {"left": 12, "right": 24, "top": 8, "bottom": 28},
        "xAxis": {
            "type": "value",
            "min": low,
            "max": high,
            "axisLabel": {"formatter": "{value}×", "showMinLabel": False, "showMaxLabel": False},
        },
        "yAxis": {
            "type": "category",
            "inverse": True,
            "data": [f"{_shortened(row.label, LABEL_LIMIT)}   {row.short}" for row in rows],
            "axisLabel": {"inside": True, "verticalAlign": "bottom", "padding": [0, 0, 6, 0]},
            "axisLine": {"show": False},
            "axisTick": {"show": False},
            "z": 10,
        },
        "series": [points, *bars],
    }
