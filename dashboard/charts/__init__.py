"""Charts of measurements: latency in run order and its distribution; and what all charts share.

Each chart is two steps: `*_info` turns trials into plain data (tested as data), and the figure only draws
it. No Streamlit, no clock, no file here. Curves live in `curve_charts.py`, profiles in `profile_charts.py`.
Latencies arrive in seconds and are drawn in milliseconds. Backgrounds stay transparent and text takes the
page's colour, so that the light and the dark theme both work; colours are joined by dashes and markers.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.measurement import Trial

# Okabe and Ito's palette without its two lightest colours, told apart by all common kinds of colour vision;
# every one has a contrast of 3:1 or nearly so on white and on a dark page.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A7AFF", "#B8860B")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
MUTED = "#8A94A6"
HEIGHT = 340
MAX_SAMPLES = 4000  # a browser draws this many points of a line smoothly


# --- what ran ----------------------------------------------------------


def provider_label(effective: Sequence[str], requested: Sequence[str], *, fallback: bool) -> str:
    """Name a series after what really ran; a fallback is named as one and never after what was asked for."""
    ran = effective[0] if effective else "unknown provider"
    if not fallback:
        return ran
    missing = [name for name in requested if name not in effective]
    asked = ", ".join(name.removesuffix("ExecutionProvider") for name in missing or requested)
    return f"{ran} — fallback, {asked} was asked"


def trial_label(trial: Trial) -> str:
    """A short name of a trial for a legend: id, model, what ran."""
    result = trial.result or {}
    ran = provider_label(
        result.get("effective_providers") or (),
        result.get("requested_providers") or (),
        fallback=bool(result.get("fallback")),
    )
    return f"{trial.id[:8]} · {trial.model_name} · {ran}"


# --- latency in run order ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Latencies of one trial in run order; warm-up runs have numbers up to 0, timed runs from 1."""

    name: str
    warmup_runs: list[int]
    warmup_ms: list[float]
    runs: list[int]
    run_ms: list[float]
    thinned: bool  # more runs than can be drawn: smallest and largest of each stretch are kept


def latency_trace_info(trials: Sequence[Trial]) -> list[Trace]:
    """Latencies in run order, warm-up apart, of the trials that have them."""
    return [_trace(trial) for trial in trials if (trial.result or {}).get("latencies_s")]


def _trace(trial: Trial) -> Trace:
    result = trial.result or {}
    warmup = [seconds * 1e3 for seconds in result.get("warmup_latencies_s") or []]
    timed = [seconds * 1e3 for seconds in result["latencies_s"]]
    runs, run_ms = thin(timed, MAX_SAMPLES)
    return Trace(
        name=trial_label(trial),
        warmup_runs=list(range(1 - len(warmup), 1)),
        warmup_ms=warmup,
        runs=[index + 1 for index in runs],
        run_ms=run_ms,
        thinned=len(timed) > MAX_SAMPLES,
    )


def thin(values: Sequence[float], limit: int) -> tuple[list[int], list[float]]:
    """Return at most `limit` indices and values: smallest and largest of each stretch, in order.

    Outliers survive, which a plain "every n-th" would lose.
    """
    if len(values) <= limit:
        return list(range(len(values))), list(values)
    stretches = limit // 2
    kept: list[int] = []
    for k in range(stretches):
        a, b = k * len(values) // stretches, (k + 1) * len(values) // stretches
        low = min(range(a, b), key=values.__getitem__)
        high = max(range(a, b), key=values.__getitem__)
        kept += sorted({low, high})
    return kept, [values[index] for index in kept]


def latency_trace(trials: Sequence[Trial]) -> go.Figure:
    """Latency of each run in the order they ran."""
    figure = base_figure(x_title="Run (warm-up at and below 0)", y_title="Latency (ms)")
    for index, trace in enumerate(latency_trace_info(trials)):
        look = style(index)
        if trace.warmup_runs:
            figure.add_scatter(
                x=trace.warmup_runs,
                y=trace.warmup_ms,
                name=f"{plain(trace.name)} · warm-up",
                mode="markers",
                marker={"symbol": f"{look['symbol']}-open", "color": look["color"], "size": 6},
                hovertemplate="warm-up run %{x}<br>%{y:.4g} ms<extra></extra>",
            )
        figure.add_scatter(
            x=trace.runs,
            y=trace.run_ms,
            name=plain(trace.name) + (" · thinned, extremes kept" if trace.thinned else ""),
            mode="lines",
            line={"color": look["color"], "dash": look["dash"], "width": 1.4},
            hovertemplate="run %{x}<br>%{y:.4g} ms<extra></extra>",
        )
    figure.add_vline(x=0.5, line={"color": MUTED, "dash": "dot", "width": 1})
    return figure


# --- distribution ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Empirical distribution of one trial: `fraction[i]` of its runs took at most `ms[i]`."""

    name: str
    ms: list[float]
    fraction: list[float]


def latency_ecdf_info(trials: Sequence[Trial]) -> list[Steps]:
    """Fraction of runs at or below each latency, of the trials that have their samples."""
    return [
        _steps(trial_label(trial), trial.result["latencies_s"])
        for trial in trials
        if trial.result and trial.result.get("latencies_s")
    ]


def _steps(name: str, latencies_s: Sequence[float]) -> Steps:
    ordered = sorted(latencies_s)
    n = len(ordered)
    stride = max(1, math.ceil(n / MAX_SAMPLES))
    ranks = sorted({0, n - 1, *range(0, n, stride)})
    return Steps(
        name=name,
        ms=[ordered[rank] * 1e3 for rank in ranks],
        fraction=[(rank + 1) / n for rank in ranks],
    )


def latency_ecdf(trials: Sequence[Trial]) -> go.Figure:
    """Fraction of the runs that took at most x milliseconds; further left is better."""
    figure = base_figure(x_title="Latency (ms)", y_title="Fraction of runs at or below")
    for index, steps in enumerate(latency_ecdf_info(trials)):
        look = style(index)
        figure.add_scatter(
            x=steps.ms,
            y=steps.fraction,
            name=plain(steps.name),
            mode="lines",
            line={"color": look["color"], "dash": look["dash"], "shape": "hv", "width": 2},
            hovertemplate="%{y:.1%} of runs took<br>at most %{x:.4g} ms<extra></extra>",
        )
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    return figure


# --- common parts ----------------------------------------------------------


def plain(text: str) -> str:
    """Make `text` safe to draw: Plotly reads a subset of HTML, and names come from untrusted models."""
    return html.escape(text, quote=False)


def number(value: float | None) -> str:
    """A number for a hover text: four significant digits, thousands separated."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def base_figure(*, x_title: str, y_title: str, height: int = HEIGHT) -> go.Figure:
    """An empty figure with transparent background, titled axes and the legend above the plot."""
    figure = go.Figure()
    figure.update_layout(
        height=height,
        margin={"l": 12, "r": 12, "t": 44, "b": 12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        hovermode="closest",
        showlegend=True,
    )
    figure.update_xaxes(title={"text": x_title}, gridcolor=transparent(MUTED, 0.25), zeroline=False)
    figure.update_yaxes(title={"text": y_title}, gridcolor=transparent(MUTED, 0.25), zeroline=False)
    return figure


def style(index: int) -> dict[str, str]:
    """Colour, dash and marker of series number `index`."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "dash": DASHES[index % len(DASHES)],
        "symbol": MARKERS[index % len(MARKERS)],
    }


def transparent(color: str, alpha: float) -> str:
    """Return `#rrggbb` with an opacity of 0 to 1."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"
