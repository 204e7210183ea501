"""All trials of a model as points: two numbers or settings against each other, and as parallel coordinates.

As in `charts`: `point_of` and `parallel_info` make plain data, `scatter` and `parallel` only draw it; no
Streamlit, no clock, no file. The outcome of a trial has a colour and a marker; trials without a number are
drawn in a strip of their own, so that none is lost. Every point carries the id of its trial, for selections.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from core.evidence.measurement import Trial
from core.evidence.streams import stream_count
from core.evidence.verdict import is_rejected
from core.show.table import Column, Table, tabulate
from core.spec.metrics import METRICS, SHOWN_UNITS, Metric
from core.spec.settings import value_words
from core.wire.output_check import OUTPUTS_DIFFER, breach
from dashboard.charts import (
    HEIGHT,
    MUTED,
    PALETTE,
    TEXT_HOVER,
    axis,
    base_figure,
    log_axis,
    metric_title,
    number,
    plain,
    text_lines,
    wide_ticks,
)
from dashboard.charts.parallel_charts import Line, add_lines, along, beside, figure_of

MOST_AXES = 6  # settings of parallel coordinates
LINES = 500  # trials that remain distinct as lines
DEFAULT = "default"
NO_NUMBER = "no number"
_LEVELS = 5  # ticks of the axis of numbers in parallel coordinates
_NO_NUMBER_AT = -0.14  # left of the axes of parallel coordinates, which reach from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of a trial."""

    title: str  # with its unit
    of: Callable[[Trial], float | None]


def _fact(name: str, unit: float = 1.0) -> Callable[[Trial], float | None]:
    def read(trial: Trial) -> float | None:
        value: Any = trial.facts.get(name)
        return None if value is None else value / unit

    return read


def _metric(metric: Metric) -> Callable[[Trial], float | None]:
    def read(trial: Trial) -> float | None:
        value = metric.value(trial.facts)
        return None if value is None else value / SHOWN_UNITS[metric.quantity][0]

    return read


def _gain(trial: Trial) -> float | None:
    contrasts: Sequence[Mapping[str, Any]] = trial.facts.get("contrasts") or ()
    return contrasts[0].get("ratio") if contrasts else None


NUMBERS: Mapping[str, Number] = {
    **{
        one.short: Number(title=metric_title(one, "run"), of=_metric(one))
        for one in METRICS.values()
        if one.field and one.short
    },
    "gain": Number(title="Speed versus its baseline (×)", of=_gain),
    "creation": Number(title="Session creation (ms)", of=_fact("session_creation_s", 1e-3)),
    "batch": Number(title="Batch (samples)", of=_fact("batch_size")),
}
_LATENCIES = frozenset(one.short for one in METRICS.values() if one.field.startswith("latency."))
WHEN = "when"

# colour, marker and word of each outcome; the marker distinguishes them without colour
OUTCOMES: Mapping[str, tuple[str, str, str]] = {
    "complete": (PALETTE[0], "circle", "complete"),
    "rejected": (PALETTE[1], "x", "rejected: no verdict"),
    "breach": (PALETTE[3], "diamond", OUTPUTS_DIFFER),
    "failed": (PALETTE[5], "cross", "failed or cancelled"),
    "open": (MUTED, "circle-open", "not ended"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The data of one trial for the plots."""

    id: str
    at: float  # seconds since the epoch
    outcome: str  # key of `OUTCOMES`
    numbers: dict[str, float]  # known ones, by key of `NUMBERS`
    settings: dict[str, str]  # those that differ from the default


def point_of(trial: Trial) -> Point:
    """Return the data of a trial for the plots, without its samples."""
    found = {name: one.of(trial) for name, one in NUMBERS.items()}
    if stream_count(trial.facts) > 1:  # the latency beside other callers is no latency of one caller
        found = {name: None if name in _LATENCIES else value for name, value in found.items()}
    return Point(
        id=trial.id,
        at=trial.created_at,
        outcome=_outcome(trial),
        numbers={name: float(value) for name, value in found.items() if value is not None},
        settings=dict(_settings(trial.spec)),
    )


def _outcome(trial: Trial) -> str:
    if trial.state in ("WAITING", "RUNNING"):
        return "open"
    if trial.state != "COMPLETE":
        return "failed"
    if is_rejected(trial.facts):
        return "rejected"
    return "breach" if breach(trial.facts) else "complete"


def _settings(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the settings of a stored spec, flat; a spec contains the differences from the defaults."""
    for part in ("session", "openvino", "workload"):
        for name, value in (spec.get(part) or {}).items():
            if name == "providers":
                yield name, ", ".join(str(one.get("name", "")) for one in value)
            elif isinstance(value, Mapping):
                yield from ((str(key), value_words(one)) for key, one in value.items())
            else:
                yield str(name), value_words(value)
    if (engine := spec.get("engine")) is not None:
        yield "engine", str(engine)


def settings_of(points: Sequence[Point]) -> list[str]:
    """Return the settings in which the trials differ, the most varied first."""
    values: dict[str, Counter[str]] = {}
    for point in points:
        for name, value in point.settings.items():
            values.setdefault(name, Counter())[value] += 1
    varied = {}
    for name, counts in values.items():
        counts[DEFAULT] += len(points) - counts.total()
        if max(counts.values()) < len(points):
            varied[name] = max(counts.values())
    return sorted(varied, key=lambda name: (varied[name], name))


def axis_title(name: str) -> str:
    """Return the title of an axis, with its unit."""
    if name == WHEN:
        return "Measured at (UTC)"
    return NUMBERS[name].title if name in NUMBERS else name


# --- two numbers against each other -------------------------------------------------------------------------


def scatter(points: Sequence[Point], x: str, y: str) -> go.Figure:
    """Draw every trial at two of its numbers or settings; one without the number is in a strip below."""
    figure = base_figure(x_title=plain(axis_title(x)), y_title=plain(axis_title(y)), height=HEIGHT + 60)
    placed = [(one, _place(one, x), _place(one, y)) for one in points]
    for outcome, (color, symbol, word) in OUTCOMES.items():
        own = [row for row in placed if row[0].outcome == outcome and row[1] is not None]
        for known in (True, False):
            rows = [row for row in own if (row[2] is not None) == known]
            if not rows:
                continue
            figure.add_scatter(
                x=[row[1] for row in rows],
                y=[row[2] for row in rows] if known else [NO_NUMBER] * len(rows),
                name=word,
                legendgroup=outcome,
                showlegend=known or not any(row[2] is not None for row in own),
                mode="markers",
                marker={"color": color, "symbol": symbol, "size": 8, "opacity": 0.75},
                customdata=[row[0].id for row in rows],
                text=[_hover(row[0], x, y) for row in rows],
                hovertemplate=TEXT_HOVER,
                **({} if known else {"yaxis": "y2"}),
            )
    _scale(figure.update_xaxes, [row[1] for row in placed], x)
    _scale(figure.update_yaxes, [row[2] for row in placed], y)
    if any(row[1] is not None and row[2] is None for row in placed):
        figure.update_layout(
            xaxis={"anchor": "y2"},
            yaxis={"domain": [0.16, 1.0]},
            yaxis2=axis()
            | {
                "domain": [0.0, 0.08],
                "type": "category",
                "fixedrange": True,
                "showgrid": False,
            },
        )
    return figure


def unplaced(points: Sequence[Point], x: str) -> int:
    """Return the number of trials without a place on the horizontal axis."""
    return sum(_place(one, x) is None for one in points)


def _place(point: Point, name: str) -> Any:
    if name == WHEN:
        return datetime.fromtimestamp(point.at, tz=UTC).replace(tzinfo=None)
    return point.numbers.get(name) if name in NUMBERS else point.settings.get(name, DEFAULT)


def _scale(update: Any, values: Sequence[Any], name: str) -> None:
    """Return a logarithmic axis where numbers are far apart; values of a setting in their order."""
    known = [one for one in values if one is not None]
    if name in NUMBERS:
        if ticks := wide_ticks(known):
            update(log_axis(ticks))
    elif name != WHEN:
        update(type="category", categoryorder="array", categoryarray=ordered(known))


def ordered(values: Sequence[str]) -> list[str]:
    """Return the distinct values of a setting: the default, then numbers by size, then words by alphabet."""
    return sorted(
        set(values), key=lambda one: (one != DEFAULT, not _is_number(one), _size(one), one.casefold())
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() and text.isascii()


def _size(text: str) -> float:
    return float(text) if _is_number(text) else 0.0


def _hover(point: Point, *names: str) -> str:
    told = [OUTCOMES[point.outcome][2]]
    told += [f"{axis_title(name)}: {number(point.numbers.get(name))}" for name in names if name in NUMBERS]
    asked = [f"{name} {value}" for name, value in point.settings.items()] or ["defaults"]
    return text_lines((point.id[:12], *told, *asked))


# --- parallel coordinates -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Trials as lines through their settings to one number."""

    points: list[Point]
    axes: list[tuple[str, list[str]]]  # setting and its values, from left to right
    measure: str  # key of `NUMBERS`
    reach: tuple[float, float]  # range of the numbers
    log: bool
    left_out: int  # trials beyond `LINES`
    hidden: int  # settings that vary, but are not drawn


def parallel_info(points: Sequence[Point], measure: str, names: Sequence[str]) -> Lines:
    """Return the newest trials as lines through the settings `names`, as many as remain distinct."""
    newest = sorted(points, key=lambda one: -one.at)[:LINES]
    found = [one.numbers[measure] for one in newest if measure in one.numbers]
    low, high = min(found, default=0.0), max(found, default=1.0)
    return Lines(
        points=newest,
        axes=[
            (name, ordered([one.settings.get(name, DEFAULT) for one in newest])) for name in names[:MOST_AXES]
        ],
        measure=measure,
        reach=(low, high),
        log=bool(wide_ticks(found)),
        left_out=len(points) - len(newest),
        hidden=max(0, len(names) - MOST_AXES),
    )


def parallel(info: Lines) -> go.Figure:
    """Draw a line for each trial, down through its settings to its number."""
    lacking = any(info.measure not in one.numbers for one in info.points)
    marks = [(_level(info, value), number(value, 3)) for value in _levels(info)]
    if lacking:
        marks.append((_NO_NUMBER_AT, NO_NUMBER))
    title = plain(axis_title(info.measure))
    figure = figure_of(info.axes, title, marks, least=_NO_NUMBER_AT if lacking else 0.0)
    for outcome, (color, symbol, word) in OUTCOMES.items():
        add_lines(
            figure,
            [_line(info, one, order) for order, one in enumerate(info.points) if one.outcome == outcome],
            name=word,
            mode="lines+markers",
            line={"color": color, "width": 1},
            marker={"color": color, "symbol": symbol, "size": 5},
            opacity=0.75,
        )
    return figure


def _line(info: Lines, point: Point, order: int) -> Line:
    """Return a trial as a line; lines through one value lie side by side."""
    aside = beside(order, len(info.points))
    places = [
        along(values.index(point.settings.get(name, DEFAULT)), len(values)) + aside
        for name, values in info.axes
    ]
    value = point.numbers.get(info.measure)
    places.append(_NO_NUMBER_AT if value is None else _level(info, value))
    return Line(places=places, hover=_hover(point, info.measure), id=point.id)


def _level(info: Lines, value: float) -> float:
    low, high = (math.log(end) if info.log else end for end in info.reach)
    return 0.5 if high <= low else ((math.log(value) if info.log else value) - low) / (high - low)


def _levels(info: Lines) -> list[float]:
    low, high = info.reach
    if high <= low:
        return [low]
    steps = [step / (_LEVELS - 1) for step in range(_LEVELS)]
    return [low * (high / low) ** step if info.log else low + (high - low) * step for step in steps]


def parallel_table(info: Lines) -> Table:
    """Return the data of the lines: a row for each trial."""

    def setting(name: str) -> Callable[[Point], str]:
        return lambda one: one.settings.get(name, DEFAULT)

    title = axis_title(info.measure)
    return tabulate(
        info.points,
        (Column("trial", "id", key="trial"), lambda one: one.id),
        (Column("outcome", key="outcome"), lambda one: OUTCOMES[one.outcome][2]),
        *((Column(name, key=name), setting(name)) for name, _ in info.axes),
        (Column(title, "number", key=title), lambda one: one.numbers.get(info.measure)),
    )
