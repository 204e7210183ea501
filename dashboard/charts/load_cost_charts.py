"""Load tests: sizes of batches, service times, what a rate costs, and models that share the machine.

As in `charts`: `*_info` turns a result into plain data, the figure only draws it; no Streamlit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.load.load_types import Alone, Batching, LoadResult, Point, RunResult
from core.evidence.load.queueing import MOST_SHARE_OF_P50
from core.evidence.verdict import tick
from core.show.load_text import contrast_text, percentile_name, rate_text
from core.spec.effort import DEFAULT_MARGIN
from core.wire.units import clipped, ms, size, span_ms
from dashboard.charts import (
    MUTED,
    TEXT_HOVER,
    base_figure,
    error_bars,
    log_axis,
    plain,
    series_name,
    style,
    text_lines,
    wide_ticks,
)
from dashboard.charts.compare_charts import TITLE_LIMIT, ForestInfo, ForestRow, ratio_ticks, reach
from dashboard.charts.load_charts import TALL_PX, in_ms, labels_of, run_name, stack

PATTERNS = ("", "/", "x", ".", "-", "+")  # of bars, besides their colours

# --- batches and service times ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """Sizes of the calls of one run: share of the calls, and of the samples, for each size."""

    name: str
    samples: list[int]
    calls: list[float]
    shares: list[float]


def batches_info(runs: Sequence[RunResult], labels: Sequence[str]) -> list[BatchInfo]:
    """Return the sizes that the calls of `session.run` had, of each run."""
    found = []
    for one in runs:
        sizes = sorted((int(samples), calls) for samples, calls in one["batches"].items())
        calls = sum(count for _, count in sizes)
        samples = sum(size * count for size, count in sizes)
        if calls:
            found.append(
                BatchInfo(
                    name=run_name(one, labels),
                    samples=[size for size, _ in sizes],
                    calls=[count / calls for _, count in sizes],
                    shares=[size * count / samples for size, count in sizes],
                )
            )
    return found


def batches(info: Sequence[BatchInfo]) -> go.Figure:
    """Draw the share of the calls for each number of samples in a call."""
    figure = base_figure(x_title="Samples of a call", y_title="Share of the calls", height=TALL_PX)
    known = sorted({size for one in info for size in one.samples})
    for index, one in enumerate(info):
        look = style(index)
        figure.add_bar(
            x=[known.index(size) for size in one.samples],
            y=one.calls,
            name=series_name(one.name),
            marker={"color": look["color"], "pattern": {"shape": PATTERNS[index % len(PATTERNS)]}},
            text=[
                f"{size} samples: {calls:.1%} of the calls, {share:.1%} of the samples"
                for size, calls, share in zip(one.samples, one.calls, one.shares, strict=True)
            ],
            textposition="none",
            hovertemplate=TEXT_HOVER,
        )
    step = max(1, math.ceil(len(known) / 24))
    places = list(range(0, len(known), step))
    figure.update_xaxes(tickvals=places, ticktext=[f"{known[place]:,}" for place in places])
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def service_times(found: Batching) -> go.Figure:
    """Draw the service time of each batch size with its interval, and the samples per second that follow."""
    figure = base_figure(x_title="Samples of a call", y_title="", height=TALL_PX)
    stack(figure, [("Service time (ms)", 0.5), ("Samples/s", 0.5)])
    times = found["service_times"]
    x = [one["samples"] for one in times]
    bounds = [(one["p50_s"] * 1e3, in_ms(one["low_s"]), in_ms(one["high_s"])) for one in times]
    hover = [
        text_lines(
            [
                f"{one['samples']:,} samples",
                f"{ms(one['p50_s'])}, 95 % CI {span_ms(one['low_s'], one['high_s'])}",
                f"{ms(one['per_sample_s'])} per sample",
            ]
        )
        for one in times
    ]
    first, second = style(0), style(1)
    figure.add_scatter(
        x=x, y=[value for value, _, _ in bounds], name="service time", mode="lines+markers",
        line={"color": first["color"], "width": 2}, marker={"symbol": first["symbol"], "size": 9},
        error_y=error_bars(bounds, first["color"], thickness=1.5, width=5), text=hover,
        hovertemplate=TEXT_HOVER,
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=[1 / one["per_sample_s"] if one["per_sample_s"] else None for one in times], name="samples/s",
        mode="lines+markers", line={"color": second["color"], "dash": second["dash"], "width": 2},
        marker={"symbol": second["symbol"], "size": 9, "color": second["color"]}, yaxis="y2",
        hovertemplate="%{x:,} samples: %{y:,.4~g} samples/s<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(log_axis(x) if x and max(x) > 4 * min(x) else {"tickvals": x})
    figure.update_layout(yaxis={"rangemode": "tozero"}, yaxis2={"rangemode": "tozero"})
    return figure


# --- what a rate costs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSeries:
    """CPU, memory and the harness's share of one configuration over the rate."""

    name: str
    rate: list[float]
    cpus: list[float | None]
    memory_mib: list[float | None]
    harness: list[float | None]  # added latency as a share of p50
    hover: list[str]


def costs_info(result: LoadResult) -> list[CostSeries]:
    """Return what each rate costs, of each configuration with points."""
    found = []
    for index, label in enumerate(labels_of(result)):
        own = sorted(
            (one for one in result["points"] if one["configuration"] == index),
            key=lambda one: one["rate_per_s"],
        )
        if own:
            found.append(
                CostSeries(
                    name=label,
                    rate=[one["rate_per_s"] for one in own],
                    cpus=[one["cpus"] for one in own],
                    memory_mib=[
                        None if one["memory_bytes"] is None else one["memory_bytes"] / (1 << 20)
                        for one in own
                    ],
                    harness=[
                        None if one["harness"] is None else one["harness"]["share_of_p50"] for one in own
                    ],
                    hover=[_cost_words(label, one) for one in own],
                )
            )
    return found


def _cost_words(label: str, one: Point) -> str:
    harness = one["harness"]
    parts = [
        label,
        rate_text(one["rate_per_s"]),
        "" if one["cpus"] is None else f"{one['cpus']:.2f} CPUs",
        "" if one["memory_bytes"] is None else f"{size(one['memory_bytes'])} private memory",
        "" if harness is None else f"harness added {harness['share_of_p50']:.1%} of p50",
    ]
    return text_lines(part for part in parts if part)


def costs(info: Sequence[CostSeries], *, most_harness: float = MOST_SHARE_OF_P50) -> go.Figure:
    """Draw CPUs, memory and the harness's share of p50 over the rate, with the largest share accepted."""
    figure = base_figure(x_title="Rate (requests/s)", y_title="", height=TALL_PX + 40)
    stack(figure, [("CPUs", 0.34), ("Memory (MiB)", 0.33), ("Harness, of p50", 0.33)])
    for index, one in enumerate(info):
        look = style(index)
        for place, values in enumerate((one.cpus, one.memory_mib, one.harness), 1):
            figure.add_scatter(
                x=one.rate,
                y=values,
                name=series_name(one.name),
                legendgroup=str(index),
                showlegend=place == 1,
                mode="lines+markers",
                line={"color": look["color"], "dash": look["dash"], "width": 2},
                marker={"symbol": look["symbol"], "size": 9, "color": look["color"]},
                text=one.hover,
                hovertemplate=TEXT_HOVER,
                yaxis=f"y{'' if place == 1 else place}",
            )
    figure.add_shape(
        type="line", xref="x domain", x0=0, x1=1, yref="y3", y0=most_harness, y1=most_harness,
        line={"color": MUTED, "dash": "longdash", "width": 2},
    )  # fmt: skip
    figure.update_layout(
        yaxis={"rangemode": "tozero"},
        yaxis2={"rangemode": "tozero"},
        yaxis3={"rangemode": "tozero", "tickformat": ".0%"},
    )
    if ticks := wide_ticks([rate for one in info for rate in one.rate]):
        figure.update_xaxes(log_axis(ticks))
    else:
        figure.update_xaxes(rangemode="tozero")
    return figure


# --- several configurations -------------------------------------------------------------------------------


def differences_info(result: LoadResult, *, margin: float = DEFAULT_MARGIN) -> ForestInfo:
    """Return the ratios of the configurations' percentiles to those of the baseline, above 1: faster.

    Args:
        result: with contrasts, all against one baseline.
        margin: of equivalence, a share.
    """
    labels, contrasts = labels_of(result), result["contrasts"]
    against = labels[contrasts[0]["baseline"]]
    rows = [
        ForestRow(
            label=" · ".join(
                [
                    *([labels[one["configuration"]]] if len(labels) > 2 else []),
                    f"{percentile_name(one['p'])} at {rate_text(one['rate_per_s'])}",
                ]
            ),
            value=one["ratio"],
            low=one["ratio_low"],
            high=one["ratio_high"],
            verdict=one["verdict"],
            short=contrast_text(one).partition(",")[0],
            hover=text_lines(
                [
                    f"{labels[one['configuration']]} versus {against}",
                    contrast_text(one),
                    f"{one['turns']} turns",
                ]
            ),
        )
        for one in contrasts
    ]
    ends = reach(rows, 1 / (1 + 2 * margin), 1 + 2 * margin)
    whose = labels[contrasts[0]["configuration"]] if len(labels) == 2 else "latency"
    return ForestInfo(
        title=f"← slower · {whose} versus {clipped(against, TITLE_LIMIT)} · faster →",
        baseline=against,
        rows=rows,
        axis=ends,
        ticks=[(one, tick(one)) for one in ratio_ticks(*ends)],
        margin=margin,
    )


# --- several models ---------------------------------------------------------------------------------------


def together(result: LoadResult) -> go.Figure:
    """Draw the latency of each model alone and beside the others."""
    rows, labels = result["together"], labels_of(result)
    figure = base_figure(x_title="Latency (ms)", y_title="", height=max(TALL_PX - 60, 150 + 90 * len(rows)))
    names = [f"{labels[one['configuration']]} · {percentile_name(one['p'])}" for one in rows]
    for place, name in enumerate(("alone", "together")):
        look = style(place)
        drawn = [(index, in_ms(_seconds(one, name))) for index, one in enumerate(rows)]
        figure.add_bar(
            x=[value for _, value in drawn],
            y=[index for index, _ in drawn],
            name=name,
            orientation="h",
            marker={"color": look["color"], "pattern": {"shape": ("", "/")[place]}},
            text=[
                plain(f"{label} {name}: {ms(_seconds(one, name))}")
                for one, label in zip(rows, names, strict=True)
            ],
            textposition="none",
            hovertemplate=TEXT_HOVER,
        )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[plain(one) for one in names],
        autorange="reversed",
        showgrid=False,
    )
    figure.update_layout(barmode="group")
    return figure


def _seconds(one: Alone, name: str) -> float | None:
    return one["alone_s"] if name == "alone" else one["together_s"]
