"""Latency distributions of several sides as overlapping densities on one axis.

As in `charts`: `densities_info` turns results into plain data, `densities` only draws it; no Streamlit.
A density is a histogram of fine bins smoothed by a Gaussian of Silverman's width, so that the area under each
line is 1. The plot ends at the p99 of the runs and gives the number beyond; the plot of percentiles shows
those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from core.wire.units import brief
from dashboard.charts import (
    WIDE,
    Side,
    base_figure,
    clipped_words,
    in_ms,
    latency_title,
    log_ticks,
    note_beyond,
    number,
    per_row,
    percentile,
    series_name,
    style,
    transparent,
)

BINS, POINTS = 1024, 256
LEAST = 20  # runs below which a smooth line is not justified
END = 0.99  # share of the runs in the plot
REACH = 4.0  # of the kernel, in Gaussian widths


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Density of the runs of one side: share of them per millisecond, or per factor of ten."""

    name: str
    ms: list[float]
    density: list[float]
    median_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Densities:
    """Data of `densities`."""

    sides: list[Density]
    few: list[str]  # names of the sides with too few runs
    log: bool  # the axis is logarithmic
    above: int  # runs beyond the plot
    cap_ms: float
    top_ms: float
    x_title: str


def densities_info(sides: Sequence[Side]) -> Densities:
    """Return the densities of the sides with enough samples.

    Source of the width: Silverman, Density Estimation (1986), equation 3.31.
    """
    rows = per_row(sides)
    found = [(one.name, np.asarray(ms)) for one in sides if (ms := in_ms(one, rows=rows))]
    cap = max((percentile(ms.tolist(), END) for _, ms in found), default=0.0)
    low = min((float(ms.min()) for _, ms in found), default=0.0)
    log = low > 0 and cap > WIDE * low
    return Densities(
        sides=[_density(name, ms, low, cap, log=log) for name, ms in found if len(ms) >= LEAST],
        few=[name for name, ms in found if len(ms) < LEAST],
        log=log,
        above=int(sum((ms > cap).sum() for _, ms in found)),
        cap_ms=cap,
        top_ms=max((float(ms.max()) for _, ms in found), default=0.0),
        x_title=latency_title(sides),
    )


def _density(name: str, ms: np.ndarray, low: float, cap: float, *, log: bool) -> Density:
    values = np.log10(ms) if log else ms
    first, last = (np.log10([low, cap]) if log else np.array([low, cap])).tolist()
    lower, upper = np.quantile(values, [0.25, 0.75])
    spread = min(float(values.std()), float(upper - lower) / 1.34) or float(values.std())
    width = 0.9 * spread * len(values) ** -0.2 or (abs(last - first) or abs(last) or 1.0) / 50
    first, last = first - REACH * width, last + REACH * width
    counts, edges = np.histogram(values, bins=BINS, range=(first, last))
    step = edges[1] - edges[0]
    reach = min(BINS // 2, int(np.ceil(REACH * width / step)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum(), mode="same") / (len(values) * step)
    at = np.linspace(0, BINS - 1, POINTS).astype(int)
    middles = (edges[:-1] + edges[1:])[at] / 2
    return Density(
        name=name,
        ms=(10.0**middles if log else middles).tolist(),
        density=smooth[at].tolist(),
        median_ms=sorted(ms.tolist())[(len(ms) - 1) // 2],
    )


def densities(info: Densities) -> go.Figure:
    """Draw overlapping densities, each median as a line with its side's dash."""
    unit = "factor of 10" if info.log else "ms"
    figure = base_figure(x_title=info.x_title, y_title=f"Share of the runs per {unit}")
    top = max((max(one.density) for one in info.sides), default=1.0)
    for index, one in enumerate(info.sides):
        look = style(index)
        figure.add_scatter(
            x=one.ms,
            y=one.density,
            name=series_name(one.name),
            legendgroup=str(index),
            mode="lines",
            fill="tozeroy",
            fillcolor=transparent(look["color"], 0.18),
            line={"color": look["color"], "dash": look["dash"], "width": 2},
            hovertemplate="%{x:.4g} ms<extra></extra>",
        )
    for index, one in enumerate(info.sides):
        look = style(index)
        figure.add_scatter(
            x=[one.median_ms, one.median_ms],
            y=[0, top * 1.05],
            name=f"median {number(one.median_ms)} ms",
            legendgroup=str(index),
            mode="lines+markers",
            marker={"symbol": look["symbol"], "size": [0, 9], "color": look["color"]},
            line={"color": look["color"], "dash": look["dash"], "width": 1.2},
            hovertemplate="median %{x:.4g} ms<extra></extra>",
        )
    if info.log:
        ticks = log_ticks([min(one.ms[0] for one in info.sides), info.cap_ms]) if info.sides else []
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[brief(tick) for tick in ticks])
    figure.update_yaxes(range=[0, top * 1.12])
    if info.above:
        note_beyond(figure, f"{clipped_words(info.above, END, info.cap_ms, info.top_ms)} ▶")
    return figure
