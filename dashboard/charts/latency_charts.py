"""Latencies of several sides: the parts that all their plots share, and their distribution.

As in `charts`: `*_info` turns results into plain data, the figure only draws it; no Streamlit. Latency over
time is in `timeline_charts.py`. A density is a histogram of fine bins smoothed by a Gaussian of Silverman's
width, so that the area under each line is 1. Its plot ends at the p99 of the runs and gives the number
beyond; the plot of percentiles shows those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from core.evidence import streams
from core.evidence.measurement import Trial
from core.store import PRUNED
from dashboard.charts import (
    TRUE_Y,
    WIDE,
    base_figure,
    lay_out,
    log_axis,
    log_ticks,
    note_beyond,
    number,
    points,
    ran_label,
    series_name,
    style,
    transparent,
    wide_ticks,
)

CROWDED = 1e-4  # share of an axis of percentiles that reaches so far; p0 then has no room next to p50
TAIL = 1000  # slowest runs of a distribution, all of them drawn
MAX_SAMPLES = 4000  # points of a line that a browser draws smoothly
BINS, POINTS = 1024, 256
LEAST = 20  # runs below which a smooth line is not justified
END = 0.99  # share of the runs in the plot
REACH = 4.0  # of the kernel, in Gaussian widths


# --- sides ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A measured result and its name in a legend."""

    name: str
    result: Mapping[str, Any]


def side(trial: Trial, name: str = "") -> Side:
    """Return a trial as `name` with the providers used."""
    who = name or f"{trial.id[:8]} · {trial.model_name}"
    ran = ran_label(trial.facts).replace("ExecutionProvider", "")
    count = streams.stream_count(trial.facts)
    callers = f" · {count} callers" if count > 1 else ""
    return Side(name=f"{who} · {ran}{callers}", result=trial.facts)


def per_row(sides: Sequence[Side]) -> bool:
    """Whether the sides have different batch sizes, so that only latencies per sample can be compared."""
    return len({one.result.get("batch_size") for one in sides}) > 1


def latency_title(sides: Sequence[Side]) -> str:
    """Return the title of an axis of latencies."""
    what = streams.latency_title(one.result for one in sides)
    return f"{what} per {'sample' if per_row(sides) else 'run'} (ms)"


def pruned(sides: Sequence[Side]) -> list[str]:
    """Return the names of the sides whose raw samples were pruned from the store."""
    return [one.name for one in sides if PRUNED in one.result and not one.result.get("latencies_s")]


def in_ms(one: Side, *, rows: bool) -> list[float]:
    """Return the latencies of a side in milliseconds and run order; `rows`: per sample of its batch."""
    size = one.result.get("batch_size") if rows else None
    return [seconds * 1e3 / (size or 1) for seconds in one.result.get("latencies_s") or []]


def thin(values: Sequence[float], limit: int) -> tuple[list[int], list[float]]:
    """Return at most `limit` indices and values: smallest and largest of each interval, in order.

    Unlike a plain "every n-th", this keeps outliers.
    """
    if len(values) <= limit:
        return list(range(len(values))), list(values)
    stretches = limit // 2
    kept: list[int] = []
    all_of_them = np.asarray(values)
    for k in range(stretches):
        a, b = k * len(values) // stretches, (k + 1) * len(values) // stretches
        own = all_of_them[a:b]
        kept += sorted({a + int(own.argmin()), a + int(own.argmax())})
    return kept, [values[index] for index in kept]


def percentile(ms: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile for a share of 1; of few values the largest, of no values 0."""
    return sorted(ms)[math.ceil(share * len(ms)) - 1] if ms else 0.0


def clipped_words(above: int, share: float, cap_ms: float, top_ms: float | None) -> str:
    """Say how much lies above the percentile at which a plot ends."""
    runs = f"{above:,} run{'s' * (above != 1)}"
    return f"{runs} above p{100 * share:g} ({number(cap_ms)} ms), up to {number(top_ms)} ms"


# --- percentiles ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Empirical distribution of one side: `fraction[i]` of its runs took at most `ms[i]`."""

    name: str
    ms: list[float]
    fraction: list[float]

    @property
    def slower(self) -> list[float]:
        """Share of the runs that took longer than each of `ms`; for the last one its own share."""
        return [max(1 - share, self.least) for share in self.fraction]

    @property
    def least(self) -> float:
        """Smallest share that the runs resolve: that of a single run."""
        return 1 - self.fraction[-2] if len(self.fraction) > 1 else 1.0


def latency_ecdf_info(sides: Sequence[Side], *, limit: int = MAX_SAMPLES) -> list[Steps]:
    """Return the fraction of runs at or below each latency, of sides with samples; `limit` points each."""
    rows = per_row(sides)
    return [_steps(one.name, ms, limit) for one in sides if (ms := in_ms(one, rows=rows))]


def _steps(name: str, ms: Sequence[float], limit: int) -> Steps:
    ordered = sorted(ms)
    n = len(ordered)
    tail = min(TAIL, limit // 2)  # slowest runs, all of them drawn
    stride = max(1, math.ceil(n / (limit - tail)))
    ranks = sorted({0, *range(0, n, stride), *range(max(0, n - tail), n)})
    return Steps(name=name, ms=[ordered[rank] for rank in ranks], fraction=[(rank + 1) / n for rank in ranks])


def latency_ecdf(sides: Sequence[Side], *, limit: int = MAX_SAMPLES) -> go.Figure:
    """Draw percentiles over latency; each tick leaves a tenth of the runs before it, widening the tail."""
    figure = base_figure(x_title=latency_title(sides), y_title="Percentile of the runs")
    found = latency_ecdf_info(sides, limit=limit)
    if ticks := wide_ticks([end for steps in found for end in (steps.ms[0], steps.ms[-1])]):
        lay_out(figure, xaxis=log_axis(ticks))
    rarest = 1.0
    for index, steps in enumerate(found):
        look = style(index)
        rarest = min(rarest, steps.least)
        figure.add_scatter(
            x=points([steps.ms[0], *steps.ms]),
            y=points([1.0, *steps.slower]),
            name=series_name(steps.name),
            mode="lines",
            line={"color": look["color"], "dash": look["dash"], "shape": "hv", "width": 2},
            customdata=points([0.0, *(100 * share for share in steps.fraction)]),
            meta=TRUE_Y,
            hovertemplate="p%{customdata:.6g}: %{x:.4g} ms<extra></extra>",
        )
    tails = [0.5, *(10.0**-power for power in range(1, 9) if 10.0**-power >= rarest)]
    if rarest > CROWDED:
        tails.insert(0, 1.0)
    lay_out(
        figure,
        yaxis={
            "type": "log",
            "range": [0.02, math.log10(rarest) - 0.1],  # reversed: rare is on top
            "tickvals": tails,
            "ticktext": [f"p{100 * (1 - tail):.6g}" for tail in tails],
        },
    )
    return figure


# --- densities --------------------------------------------------------------------------------------------


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
            x=points(one.ms),
            y=points(one.density),
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
        lay_out(figure, xaxis=log_axis(ticks))
    lay_out(figure, yaxis={"range": [0, top * 1.12]})
    if info.above:
        note_beyond(figure, f"{clipped_words(info.above, END, info.cap_ms, info.top_ms)} ▶")
    return figure
