"""Load tests: latency against rate, over time, and as a distribution.

As in `charts`: `*_info` turns a result into plain data, the figure only draws it; no Streamlit. Latency is
from the scheduled arrival. A run in which the harness added too much is no measurement: its latencies are
never drawn, its arrivals and its place on the axis of rates are. Batches and costs are in `load_cost_charts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.load.load_types import (
    LoadContrast,
    LoadResult,
    Percentile,
    Point,
    RunResult,
    Second,
)
from core.show.load_text import (
    NOT_A_MEASUREMENT,
    has_no_answer,
    is_rejected,
    latency_text,
    percentile,
    percentile_name,
    rate_number,
    rate_text,
)
from core.spec.load import LoadLimit, parse_load_limit
from core.wire.units import brief
from dashboard.charts import (
    MUTED,
    PALETTE,
    TEXT_HOVER,
    axis,
    base_figure,
    error_bars,
    log_axis,
    plain,
    series_name,
    style,
    text_lines,
    transparent,
    wide_ticks,
)

# verdict -> marker and word: never by colour alone
VERDICTS: Mapping[str | None, tuple[str, str]] = {
    "PASS": ("circle", "passed"),
    "FAIL": ("x", "failed"),
    "UNDECIDED": ("diamond", "undecided"),
    None: ("square", "without a limit"),
}
LOST = {
    "saturated": "triangle-up",
    "failed": "x-thin-open",
    "cancelled": "hash-open",
    NOT_A_MEASUREMENT: "hourglass",
}
PANEL_GAP = 0.09  # share of the axes' height between two panels
TALL_PX = 470
P50 = 0.5
MOST_RUNS = 6  # distributions in one plot


# --- what all plots share ---------------------------------------------------------------------------------


def latency_limit(result: LoadResult) -> LoadLimit | None:
    """Return the first latency limit of the question."""
    limits = [parse_load_limit(one) for one in result["question"].get("limits", [])]
    return next((one for one in limits if one.at_most_s is not None), None)


def shown_p(result: LoadResult) -> float:
    """Return the percentile that the plots show besides the median: that of the limit, or else p99."""
    limit = latency_limit(result)
    return 0.99 if limit is None else limit.percentile


def place_of(one: RunResult | Point, labels: Sequence[str]) -> str:
    """Name a run or a point: its configuration, where there are several, and its rate."""
    rate = rate_text(one["rate_per_s"])
    return f"{labels[one['configuration']]} · {rate}" if len(labels) > 1 else rate


def labels_of(result: LoadResult) -> list[str]:
    """Return the names of the configurations."""
    return [one["label"] for one in result["configurations"]]


def in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def stack(figure: go.Figure, panels: Sequence[tuple[str, float]]) -> None:
    """Stack panels over one x axis, the first on top: each with its title and its share of the height."""
    room = 1.0 - PANEL_GAP * (len(panels) - 1)
    whole, top = sum(share for _, share in panels), 1.0
    for place, (title, share) in enumerate(panels, 1):
        low = max(0.0, top - room * share / whole)
        figure.update_layout({f"yaxis{'' if place == 1 else place}": axis(title) | {"domain": [low, top]}})
        top = low - PANEL_GAP
    figure.update_layout(xaxis={"anchor": f"y{'' if len(panels) == 1 else len(panels)}"})


def main_point(result: LoadResult) -> Point | None:
    """Return the point that the answer is about; None: nothing was measured.

    The confirmed rate, the best batching, or else the highest rate of the first configuration that is a
    measurement.
    """
    points = [one for one in result["points"] if one["configuration"] == 0] or result["points"]
    if result["highest"]:
        confirmed = result["highest"][0]["confirmed_per_s"]
        near = [one for one in points if one["fresh"] and confirmed is not None and one["verdict"] == "PASS"]
        if near:
            return min(near, key=lambda one: abs(one["rate_per_s"] - (confirmed or 0.0)))
    batching = result["batching"]
    if batching is not None and batching["best"] is not None:
        index = batching["trials"][batching["best"]]["point"]
        if index is not None and index < len(result["points"]):
            return result["points"][index]
    sound = [one for one in points if one["outcome"] == "complete" and not has_no_answer(one)]
    fresh = [one for one in points if one["fresh"]]
    return max(sound or fresh or points, key=lambda one: one["rate_per_s"], default=None)


def runs_of(result: LoadResult) -> list[RunResult]:
    """Return the runs as their points have them: at the rate that was wanted, and rejected with their point.

    A run itself has the rate that its arrivals came to.
    """
    points = {index: one for one in result["points"] for index in one["runs"]}
    found = []
    for index, run in enumerate(result["runs"]):
        point = points.get(index)
        if point is not None:
            harness = point["harness"] if is_rejected(point) else run["harness"]
            run = RunResult(**{**run, "rate_per_s": point["rate_per_s"], "harness": harness})
        found.append(run)
    return found


def contrasts_of(result: LoadResult) -> list[LoadContrast]:
    """Return the differences between points that are measurements."""

    def is_sound(configuration: int, rate: float) -> bool:
        own = [one for one in result["points"] if one["configuration"] == configuration]
        near = min(own, key=lambda one: abs(one["rate_per_s"] - rate), default=None)
        return near is not None and not is_rejected(near)

    return [
        one
        for one in result["contrasts"]
        if is_sound(one["configuration"], one["rate_per_s"]) and is_sound(one["baseline"], one["rate_per_s"])
    ]


def runs_at(result: LoadResult, point: Point | None) -> list[RunResult]:
    """Return the runs at the rate of the answer, of all configurations, or else those with a distribution."""
    known = [one for one in runs_of(result) if one["ecdf"] and not is_rejected(one)]
    if point is not None:
        rate = point["rate_per_s"]
        near = [one for one in known if math.isclose(one["rate_per_s"], rate)]
        known = near or known
    return known[:MOST_RUNS]


# --- latency against rate ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """One percentile at one rate, in milliseconds; a bound is None where the requests support none."""

    rate: float
    value: float
    low: float | None
    high: float | None
    verdict: str | None
    fresh: bool  # False: a probe
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSeries:
    """One percentile of one configuration over the rate."""

    name: str
    style: int
    main: bool  # the percentile of the limit; else the median
    points: list[RatePoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPoint:
    """A rate without a latency, and the reason."""

    rate: float
    why: str  # a key of `LOST`
    hover: str
    style: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateInfo:
    """Latency against the rate as data."""

    y_title: str
    series: list[RateSeries]
    lost: list[LostPoint]
    limit_ms: float | None
    limit_words: str


def rate_info(result: LoadResult) -> RateInfo:
    """Return the latency percentile of the limit against the rate, of one configuration the median, too."""
    labels, limit, p = labels_of(result), latency_limit(result), shown_p(result)
    several = len(labels) > 1
    series, lost = [], []
    for index, label in enumerate(labels):
        own = sorted(
            (one for one in result["points"] if one["configuration"] == index),
            key=lambda one: (one["rate_per_s"], one["fresh"]),
        )
        for share, main in ((P50, False), (p, True)):
            if (several or p == P50) and not main:
                continue
            found = [_rate_point(one, known, label) for one in own if (known := _known(one, share))]
            name = " · ".join([*([label] if several else []), percentile_name(share)])
            if found:
                series.append(RateSeries(name=name, style=index, main=main, points=found))
        lost += [_lost_point(one, label, index, p) for one in own if _known(one, p) is None]
    return RateInfo(
        y_title=f"{percentile_name(p)} latency (ms)" if several else "Latency (ms)",
        series=series,
        lost=lost,
        limit_ms=None if limit is None else in_ms(limit.at_most_s),
        limit_words="" if limit is None else limit.words,
    )


def _known(one: Point, p: float) -> Percentile | None:
    """Return a percentile that may be drawn: of a measurement that ran to its end."""
    if one["outcome"] != "complete" or is_rejected(one):
        return None
    return percentile(one["latency"], p)


def _rate_point(one: Point, known: Percentile, label: str) -> RatePoint:
    words = VERDICTS[one["verdict"]][1]
    kind = "" if one["fresh"] else ", probe"
    hover = [
        label,
        f"{rate_text(one['rate_per_s'])}, {rate_number(one['completed_per_s'])} completed",
        f"{percentile_name(known['p'])} {latency_text(known)}",
        f"{one['requests']:,} requests: {words}{kind}",
    ]
    return RatePoint(
        rate=one["rate_per_s"],
        value=known["value_s"] * 1e3,
        low=in_ms(known["low_s"]),
        high=in_ms(known["high_s"]),
        verdict=one["verdict"],
        fresh=one["fresh"],
        hover=text_lines(hover),
    )


def _lost_point(one: Point, label: str, index: int, p: float) -> LostPoint:
    if is_rejected(one):
        why, said = NOT_A_MEASUREMENT, one["harness"]["reason"] if one["harness"] else ""
        if not has_no_answer(one):
            said = f"it passed; the latencies are no measurement: {said}"
    elif one["outcome"] != "complete":
        why, said = one["outcome"], f"{one['requests']:,} requests"
    else:
        why, said = "failed", f"the requests support no {percentile_name(p)}"
    rate = rate_text(one["rate_per_s"])
    return LostPoint(
        rate=one["rate_per_s"],
        why=why,
        hover=text_lines(part for part in (label, f"{rate}: {why}", said) if part),
        style=index,
    )


def rates(info: RateInfo) -> go.Figure:
    """Draw latency against the rate: intervals, the limit, the verdict as the shape of the marker."""
    figure = base_figure(x_title="Rate (requests/s)", y_title=info.y_title, height=TALL_PX)
    drawn = [
        v for one in info.series for point in one.points for v in (point.value, point.low, point.high) if v
    ]
    ticks = wide_ticks([*drawn, *([info.limit_ms] if info.limit_ms else [])])
    for one in info.series:
        _add_rate_line(figure, one)
    _add_legend(figure, info)
    if info.limit_ms is not None:
        figure.add_hline(y=info.limit_ms, line={"color": MUTED, "dash": "longdash", "width": 2.5})
        figure.add_annotation(
            x=0,
            xref="x domain",
            xanchor="left",
            y=math.log10(info.limit_ms) if ticks else info.limit_ms,
            yanchor="bottom",
            text=plain(f"limit: {info.limit_words}"),
            showarrow=False,
        )
    _add_lost(figure, info.lost)
    placed = [point.rate for one in info.series for point in one.points] + [one.rate for one in info.lost]
    if across := wide_ticks(placed):
        figure.update_xaxes(log_axis(across))
    else:
        figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(log_axis(ticks) if ticks else {"rangemode": "tozero"}, selector={"overlaying": None})
    return figure


def _add_rate_line(figure: go.Figure, one: RateSeries) -> None:
    look = style(one.style)
    shapes = [VERDICTS[point.verdict][0] + ("" if point.fresh else "-open") for point in one.points]
    figure.add_scatter(
        x=[point.rate for point in one.points],
        y=[point.value for point in one.points],
        name=series_name(one.name),
        mode="lines+markers",
        line={
            "color": look["color"],
            "dash": look["dash"] if one.main else "dot",
            "width": 2 if one.main else 1.2,
        },
        marker={
            "symbol": shapes if one.main else "line-ew-open",
            "color": look["color"],
            "size": 12 if one.main else 7,
            "line": {"width": 2, "color": look["color"]},
        },
        error_y=error_bars(
            [(point.value, point.low, point.high) for point in one.points],
            look["color"],
            thickness=1.5,
            width=5,
        ),
        text=[point.hover for point in one.points],
        hovertemplate=TEXT_HOVER,
    )


def _add_legend(figure: go.Figure, info: RateInfo) -> None:
    """Explain the shapes that occur; they have the same meaning in every colour."""
    shown = [point for one in info.series if one.main for point in one.points]
    for verdict, (shape, word) in VERDICTS.items():
        if verdict is not None and any(point.verdict == verdict for point in shown):
            _add_key(figure, shape, word)
    if any(not point.fresh for point in shown):
        _add_key(figure, "circle-open", "hollow: probe")


def _add_key(figure: go.Figure, shape: str, word: str) -> None:
    figure.add_scatter(
        x=[None],
        y=[None],
        name=word,
        mode="markers",
        marker={"symbol": shape, "size": 11, "color": MUTED, "line": {"width": 2, "color": MUTED}},
        hoverinfo="skip",
    )


def _add_lost(figure: go.Figure, lost: Sequence[LostPoint]) -> None:
    """Draw rates without a latency at the edge: saturated ones on top, where their latency goes."""
    if not lost:
        return
    for why in dict.fromkeys(one.why for one in lost):
        own = [one for one in lost if one.why == why]
        figure.add_scatter(
            x=[one.rate for one in own],
            y=[0.96 if why == "saturated" else 0.04] * len(own),
            customdata=[None] * len(own),
            meta={"y": "customdata"},
            name=why,
            mode="markers",
            marker={
                "symbol": LOST[why],
                "size": 13,
                "color": [style(one.style)["color"] for one in own],
                "line": {"width": 1, "color": [style(one.style)["color"] for one in own]},
            },
            text=[one.hover for one in own],
            hovertemplate=TEXT_HOVER,
            yaxis="y2",
        )
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})


# --- over time --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseInfo:
    """A run over time as data; times in seconds from its start, latencies in milliseconds."""

    at_s: list[float]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    arrivals_per_s: list[float]
    completions_per_s: list[float]
    queue: list[int]
    warmup_s: float  # the end of the warm-up; 0: none
    limit_ms: float | None
    limit_words: str
    measured: bool  # False: no measurement, so it has no latencies


def course_info(run: RunResult, limit: LoadLimit | None = None) -> CourseInfo:
    """Return a run over time; without latencies where it is no measurement."""
    return _course(run["course"], limit, measured=not is_rejected(run))


def _course(parts: Sequence[Second], limit: LoadLimit | None, *, measured: bool) -> CourseInfo:
    warm = [one["at_s"] + one["seconds"] / 2 for one in parts if not one["counted"]]
    known = limit if measured and limit is not None else None
    return CourseInfo(
        at_s=[one["at_s"] for one in parts],
        p50_ms=[in_ms(one["p50_s"]) if measured else None for one in parts],
        p99_ms=[in_ms(one["p99_s"]) if measured else None for one in parts],
        arrivals_per_s=[one["arrivals"] / one["seconds"] if one["seconds"] else 0.0 for one in parts],
        completions_per_s=[one["completions"] / one["seconds"] if one["seconds"] else 0.0 for one in parts],
        queue=[one["queue"] for one in parts],
        warmup_s=max(warm, default=0.0),
        limit_ms=None if known is None else in_ms(known.at_most_s),
        limit_words="" if known is None else known.words,
        measured=measured,
    )


def course(info: CourseInfo) -> go.Figure:
    """Draw latency, requests per second and the queue over the time of one run."""
    figure = base_figure(x_title="Time since the first arrival (s)", y_title="", height=TALL_PX)
    panels = [("Latency (ms)", 0.5)] if info.measured else []
    stack(figure, [*panels, ("Requests/s", 0.28), ("Queue", 0.22)])
    rows = 1 if info.measured else 0
    ticks: list[float] = []
    if info.measured:
        drawn = [v for v in (*info.p50_ms, *info.p99_ms, info.limit_ms) if v]
        ticks = wide_ticks(drawn)
        for place, (name, values) in enumerate((("p50", info.p50_ms), ("p99 of each part", info.p99_ms))):
            _add_line(figure, info.at_s, values, name, place, "y", "ms")
        figure.update_layout(yaxis=log_axis(ticks) if ticks else {"rangemode": "tozero"})
    upper, lower = f"y{rows + 1 if rows else ''}", f"y{rows + 2}"
    _add_line(figure, info.at_s, info.arrivals_per_s, "arrivals", 2, upper, "requests/s")
    _add_line(figure, info.at_s, info.completions_per_s, "completions", 3, upper, "requests/s")
    figure.add_scatter(
        x=info.at_s,
        y=info.queue,
        name="queue",
        mode="lines",
        fill="tozeroy",
        fillcolor=transparent(PALETTE[4], 0.2),
        line={"color": PALETTE[4], "shape": "hvh", "width": 1.5},
        yaxis=lower,
        hovertemplate="%{x:.4g} s: %{y:,} requests wait<extra></extra>",
    )
    for name in (upper, lower):
        figure.update_layout({f"yaxis{name[1:]}": {"rangemode": "tozero"}})
    if info.warmup_s:
        figure.add_vrect(
            x0=0, x1=info.warmup_s, fillcolor=transparent(MUTED, 0.15), line_width=0, layer="below"
        )
    if info.limit_ms is not None:
        _add_limit(figure, info.limit_ms, info.limit_words, log=bool(ticks))
    figure.update_xaxes(rangemode="tozero")
    return figure


def _add_limit(figure: go.Figure, limit_ms: float, words: str, *, log: bool) -> None:
    figure.add_shape(
        type="line", xref="x domain", x0=0, x1=1, yref="y", y0=limit_ms, y1=limit_ms,
        line={"color": MUTED, "dash": "longdash", "width": 2},
    )  # fmt: skip
    figure.add_annotation(
        x=1, xref="x domain", xanchor="right", yref="y", y=math.log10(limit_ms) if log else limit_ms,
        yanchor="bottom", text=plain(f"limit: {words}"), showarrow=False,
    )  # fmt: skip


def _add_line(
    figure: go.Figure,
    x: Sequence[float],
    y: Sequence[float | None],
    name: str,
    place: int,
    to: str,
    unit: str,
) -> None:
    look = style(place)
    few = len(x) <= 40
    figure.add_scatter(
        x=list(x),
        y=list(y),
        name=name,
        mode="lines+markers" if few else "lines",
        line={"color": look["color"], "dash": look["dash"], "width": 1.8},
        marker={"symbol": look["symbol"], "size": 5, "color": look["color"]},
        yaxis=to,
        hovertemplate=f"%{{x:.4g}} s: {name} %{{y:.4g}} {unit}<extra></extra>",
    )


# --- distribution -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Share of the requests of one run at or below each latency."""

    name: str
    ms: list[float]
    share: list[float]


def distribution_info(runs: Sequence[RunResult], labels: Sequence[str]) -> list[Distribution]:
    """Return the distribution of each run that is a measurement."""
    shown = [one for one in runs if one["ecdf"] and not is_rejected(one)]
    return [
        Distribution(
            name=run_name(one, labels),
            ms=[value * 1e3 for value, _ in one["ecdf"]],
            share=[share for _, share in one["ecdf"]],
        )
        for one in shown
    ]


def run_name(one: RunResult, labels: Sequence[str]) -> str:
    """Name a run; a further turn has its number."""
    turn = f" · turn {one['turn'] + 1}" if one["turn"] else ""
    return f"{place_of(one, labels)}{turn}"


def distribution(
    info: Sequence[Distribution], *, limit: LoadLimit | None = None, tail: bool = False
) -> go.Figure:
    """Draw the share of requests over latency; `tail`: each tick leaves a tenth of the requests before it."""
    figure = base_figure(x_title="Latency (ms)", y_title="Percentile of the requests", height=TALL_PX - 60)
    ends = [v for one in info for v in (one.ms[0], one.ms[-1])]
    limit_ms = in_ms(limit.at_most_s) if limit is not None else None
    ticks = wide_ticks([v for v in (*ends, limit_ms) if v])
    if ticks:
        figure.update_xaxes(log_axis(ticks))
    rarest = min(
        (1 - one.share[-2] for one in info if len(one.share) > 1 and one.share[-2] < 1), default=0.001
    )
    for index, one in enumerate(info):
        look = style(index)
        share = [0.0, *one.share]
        figure.add_scatter(
            x=[one.ms[0], *one.ms],
            y=[max(1 - value, rarest) for value in share] if tail else share,
            name=series_name(one.name),
            mode="lines",
            line={"color": look["color"], "dash": look["dash"], "shape": "hv", "width": 2},
            customdata=share,
            meta={"y": "customdata"},
            hovertemplate="%{customdata:.4%} of the requests: %{x:.4g} ms or less<extra></extra>",
        )
    if tail:
        tails = [0.5, *(10.0**-power for power in range(1, 8) if 10.0**-power >= rarest * 0.999)]
        figure.update_yaxes(
            type="log",
            range=[0.02, math.log10(rarest) - 0.1],  # reversed: rare is on top
            tickvals=tails,
            ticktext=[percentile_name(1 - one) for one in tails],
        )
    else:
        shown = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0]
        figure.update_yaxes(range=[0, 1.02], tickvals=shown, ticktext=[percentile_name(one) for one in shown])
    if limit_ms is not None and limit is not None:
        figure.add_vline(x=limit_ms, line={"color": MUTED, "dash": "longdash", "width": 2})
        figure.add_annotation(
            x=math.log10(limit_ms) if ticks else limit_ms, y=0, yref="y domain", yanchor="bottom",
            xanchor="right", xshift=-4, text=plain(f"limit: {limit.words}"), showarrow=False,
        )  # fmt: skip
    return figure


def summary(points: Iterable[Point]) -> str:
    """Return the rates of a plot in words, for screen readers."""
    told = [f"{brief(one['rate_per_s'])}/s {VERDICTS[one['verdict']][1]}" for one in points]
    return ", ".join(told)
