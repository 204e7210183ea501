"""Charts of a search: speed-ups with intervals, speed-up over cost, the best over time.

As in `charts`: `*_info` is plain data, the figure only draws it; no Streamlit, no clock, no file. A speed-up
is a ratio to ONNX Runtime's default; above 1 is better for every metric. `search_evaluation_charts.py` draws
all evaluations, `live_charts.py` a running search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from core.evidence.evaluations import Evaluation
from core.evidence.result_types import CoursePoint, EffectRecord, FrontPoint, SpeedUpNumbers
from core.evidence.verdict import Verdict, interval_texts, ratio_places, ratio_text
from core.show.sheets import searches
from core.spec.metrics import BY_PASSES, METRICS, SHOWN_UNITS
from core.spec.settings import value_words
from core.spec.space import changes_words
from core.wire.units import ci
from dashboard.charts import (
    HEIGHT,
    MUTED,
    PALETTE,
    TEXT_HOVER,
    base_figure,
    error_bars,
    lay_out,
    line_at,
    log_ticks,
    metric_title,
    number,
    text_lines,
)
from dashboard.charts.compare_charts import VERDICTS, ForestInfo, ForestRow, forest, ratio_scale, reach

ROOM = 0.08  # share of an axis next to the data
LEAST_SHOWN = 0.5  # smaller speed-ups are outside of the view, unless the best is barely larger
MOST_EFFECTS = 12
STAGES: Mapping[str, tuple[str, str]] = {  # stage of a search -> label, marker
    "screen": ("screening", "circle"),
    "heat": ("elimination round", "square"),
    "confirm": ("confirmation", "star"),
}
SPEEDUP_TITLE = "Improvement over ONNX Runtime's default"
SPEEDUPS_ALT = f"{SPEEDUP_TITLE} in all metrics, with 95 % intervals"
COURSE_ALT = "The best known improvement at each moment of the search"
# metrics of the horizontal axis, sizes first
COSTS = sorted([*BY_PASSES, "latency_p50"], key=lambda name: METRICS[name].quantity != "size")


def cost_title(metric: str) -> str:
    """Return the title of the horizontal axis: "CPU time per sample (ms)"."""
    return metric_title(METRICS[metric], "sample")


def times(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """Return a speed-up as text: "1.42×, 95 % CI [1.38, 1.46]"."""
    if low is None or high is None:
        return f"{ratio_text(ratio)}×"
    factor, lower, upper = interval_texts(ratio, low, high)
    return f"{factor}×, {ci(lower, upper)}"


# --- speed-ups and effects with their intervals -------------------------------------------------------------


WORDS: Mapping[str, str] = {  # verdict -> its meaning for a speed-up
    Verdict.FASTER: "better",
    Verdict.SLOWER: "worse",
    Verdict.EQUIVALENT: "equivalent",
    Verdict.UNDECIDED: "undecided",
}


def speedups_info(gains: Sequence[SpeedUpNumbers]) -> ForestInfo:
    """Return the speed-up of a configuration in every metric, relative to ONNX Runtime's default."""
    rows = [
        ForestRow(
            label=metric_name(one["metric"]),
            value=one["ratio"],
            low=one["ratio_low"],
            high=one["ratio_high"],
            verdict=one["verdict"],
            hover=text_lines((metric_name(one["metric"]), searches.speedup_text(one))),
        )
        for one in gains
    ]
    return _intervals(rows, "the default")


def effects_info(effects: Sequence[EffectRecord], *, margin: float, most: int = MOST_EFFECTS) -> ForestInfo:
    """Return the average effects of values of settings, the strongest first."""
    rows = [
        ForestRow(
            label=_effect_name(one),
            value=one["ratio"],
            low=one["ratio_low"],
            high=one["ratio_high"],
            verdict=Verdict.of(one["ratio_low"], one["ratio_high"], margin),
            hover=text_lines((_effect_name(one), times(one["ratio"], one["ratio_low"], one["ratio_high"]))),
        )
        for one in effects[:most]
    ]
    return _intervals(rows, "the starting point")


def metric_name(metric: str) -> str:
    """Return a short name of a metric, "p50 latency"; two weighted metrics are joined by "and"."""
    return " and ".join(METRICS[one].title for one in metric.split("+"))


def _effect_name(one: EffectRecord) -> str:
    return f"{changes_words({one['setting']: one['value']})}, not {value_words(one['against'])}"


def _intervals(rows: Sequence[ForestRow], baseline: str) -> ForestInfo:
    axis = reach(rows, 0.97, 1.03)
    places = ratio_places((row.value, row.low, row.high) for row in rows)
    return ForestInfo(
        title=f"← worse than {baseline} · better →",
        baseline=baseline,
        rows=[replace(row, short=f"{row.value:.{places}f}×") for row in rows],
        axis=axis,
        ticks=_named_ticks(*axis),
    )


def intervals(info: ForestInfo, *, least: int = 0) -> go.Figure:
    """Draw the intervals of `speedups_info` or `effects_info`; `least` is the minimum height in pixels."""
    looks = {verdict: (*VERDICTS[verdict][:2], word) for verdict, word in WORDS.items()}
    return forest(info, looks=looks, least=least)


def speedup_ticks(low: float, high: float) -> list[float]:
    """Return round speed-ups between `low` and `high`, with 1 if it lies between."""
    if high / low > WIDE:
        return [one for one in log_ticks([low, high]) if low <= one <= high]
    step = next((one for one in STEPS if (high - low) / one <= MOST_TICKS), STEPS[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 6) for number in range(first, last + 1)]


WIDE, MOST_TICKS = 6.0, 7  # a wider span of speed-ups gets the ticks of a logarithmic axis
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _named_ticks(low: float, high: float) -> list[tuple[float, str]]:
    return [(one, tick(one)) for one in speedup_ticks(low, high)]


def tick(ratio: float) -> str:
    return f"{ratio:.3g}×"


# --- speed-up over cost -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A configuration: its speed-up and its cost."""

    label: str
    trial: str
    x: float
    ratio: float
    low: float | None
    high: float | None
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Speed-up over cost: the Pareto front, all other configurations, the confirmed winner."""

    x_title: str
    front: list[Point]
    others: list[Point]
    winner: list[Point]
    axis: tuple[float, float]  # of speed-ups
    beyond: int  # configurations with a speed-up below the view


def costs(points: Sequence[FrontPoint], objective: Mapping[str, float]) -> list[str]:
    """Return the metrics for the cost axis of a Pareto front: those in which its points differ, else one."""
    known = [
        metric
        for metric in COSTS
        if metric not in objective and all(metric in one["values"] for one in points) and points
    ]
    varied = [metric for metric in known if len({one["values"][metric] for one in points}) > 1]
    return varied or known[:1]


def front_info(
    points: Sequence[FrontPoint],
    tried: Sequence[Evaluation],
    ratio_of: Callable[[Evaluation], float | None],
    *,
    cost: str,
    winner: Mapping[str, Any] | None = None,
) -> Front:
    """Return the data of speed-up over `cost`.

    Args:
        points: of the Pareto front.
        tried: all evaluations, without controls.
        ratio_of: returns the reported speed-up of a configuration, a ratio.
        cost: a key of COSTS.
        winner: `Confirmed`, drawn with the result of its confirmation run; None: there is none.
    """
    title, unit = cost_title(cost), SHOWN_UNITS[METRICS[cost].quantity][0]

    def point(
        changes: Mapping[str, Any],
        trial: str,
        value: float,
        ratio: float,
        low: float | None = None,
        high: float | None = None,
    ) -> Point:
        label, x = changes_words(changes), value / unit
        hover = text_lines((*label.split(", "), times(ratio, low, high), f"{title}: {number(x)}"))
        return Point(label=label, trial=trial, x=x, ratio=ratio, low=low, high=high, hover=hover)

    front = [
        point(one["changes"], one["trial"], one["values"][cost], *_with_bounds(one["gains"][0]))
        for one in points
        if cost in one["values"]
    ]
    on_front = {changes_words(one["changes"]) for one in points}
    others = [
        point(one.changes, one.looks[-1].trial, value, ratio)
        for one in tried
        if not one.failed
        and changes_words(one.changes) not in on_front
        and (ratio := ratio_of(one)) is not None
        and (value := one.value(cost)) is not None
    ]
    best: list[Point] = []
    if winner is not None and (value := winner["measurements"].get(cost)) is not None:
        best = [point(winner["changes"], winner["trial"], value, *_with_bounds(winner["gain"]))]
    everybody = [*front, *others, *best]
    axis = _gain_axis(everybody)
    return Front(
        x_title=title,
        front=front,
        others=others,
        winner=best,
        axis=axis,
        beyond=sum(one.ratio < axis[0] for one in everybody),
    )


def _with_bounds(gain: SpeedUpNumbers) -> tuple[float, float | None, float | None]:
    return gain["ratio"], gain["ratio_low"], gain["ratio_high"]


def _gain_axis(points: Sequence[Point]) -> tuple[float, float]:
    high = max([1.05, *(one.high or one.ratio for one in points)])
    lows = [one.low or one.ratio for one in points]
    low = max(min([0.95, *lows]), LEAST_SHOWN / max(1.0, high / 4))
    room = (high / low) ** ROOM
    return low / room, high * room


def front_alt(info: Front) -> str:
    """Describe the plot of the Pareto front."""
    return f"Improvement over {info.x_title} of {len(info.front)} configurations on the Pareto front"


_NO_GAIN = line_at(1.0, of="y", color=MUTED, width=1.5, dash="dot")


def front(info: Front, *, height: int = HEIGHT) -> go.Figure:
    """Draw speed-up over cost: the Pareto front with intervals, all others behind it, the winner as a star.

    Args:
        info: data of the plot.
        height: in pixels.
    """
    figure = base_figure(x_title=info.x_title, y_title=SPEEDUP_TITLE, height=height)
    for points, name, color, symbol, size in (
        (info.others, "evaluated", MUTED, "circle-open", 7),
        (info.front, "Pareto front", PALETTE[0], "diamond", 11),
        (info.winner, "confirmed", PALETTE[1], "star", 15),
    ):
        if points:
            _add_points(figure, points, name, color, symbol, size)
    lay_out(figure, shapes=[_NO_GAIN], yaxis=ratio_scale(info.axis, _named_ticks(*info.axis)))
    return figure


def _add_points(
    figure: go.Figure, points: Sequence[Point], name: str, color: str, symbol: str, size: int
) -> None:
    known = any(one.low is not None for one in points)
    bars = error_bars([(one.ratio, one.low, one.high) for one in points], color, thickness=2, width=4)
    figure.add_scatter(
        x=[one.x for one in points],
        y=[one.ratio for one in points],
        customdata=[one.trial for one in points],
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": size, "color": color},
        error_y=bars if known else None,
        text=[one.hover for one in points],
        hovertemplate=TEXT_HOVER,
    )


# --- best over time -----------------------------------------------------------------------------------------


def course(points: Sequence[CoursePoint]) -> go.Figure:
    """Draw the best known speed-up over time, with the configurations just measured."""
    figure = base_figure(x_title="Time since the search began (s)", y_title="Best improvement so far")
    known = [(one["at_s"], one["ratio"]) for one in points if one["ratio"]]
    figure.add_scatter(
        x=[at for at, _ in known],
        y=[ratio for _, ratio in known],
        mode="lines",
        line={"color": PALETTE[0], "width": 2, "shape": "hv"},
        showlegend=False,
        hoverinfo="skip",
    )
    for index, (stage, (words, symbol)) in enumerate(STAGES.items()):
        own = [one for one in points if one["stage"] == stage and one["ratio"]]
        if own:
            figure.add_scatter(
                x=[one["at_s"] for one in own],
                y=[one["ratio"] for one in own],
                mode="markers",
                name=words,
                marker={"symbol": symbol, "size": 11, "color": PALETTE[index]},
                text=[f"after {one['tried']:,} evaluated<br>{times(one['ratio'] or 1.0)}" for one in own],
                hovertemplate=TEXT_HOVER,
            )
    low, high = min([0.95, *(ratio for _, ratio in known)]), max([1.05, *(ratio for _, ratio in known)])
    ends = [low - ROOM * (high - low), high + ROOM * (high - low)]
    lay_out(
        figure,
        shapes=[_NO_GAIN],
        yaxis={"range": ends, "ticksuffix": "×"},
        xaxis={"rangemode": "tozero"},
    )
    return figure
