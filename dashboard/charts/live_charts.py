"""Plots of running jobs, as the plain data that `widgets/live_view.js` draws. Pure functions.

A plot is sent to every connected browser whenever it changes, so it contains numbers and words alone; the
browser adds positions, colours and fonts. Finished plots are Plotly's; these look like them, in the colours
of the theme, without animation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from core.api.sweeping import Measured
from core.evidence.load.load_types import Second
from core.evidence.result_types import CoursePoint, FrontPoint
from core.spec.axes import point_name
from core.spec.metrics import SHOWN_UNITS
from core.spec.settings import value_words
from core.spec.space import STREAMS, changes_words
from dashboard.charts.compare_charts import BASELINE, ForestInfo
from dashboard.charts.search_charts import cost_title
from dashboard.charts.sweep_charts import STATISTICS, value_of
from dashboard.charts.sweep_charts import axis_title as setting_title

FOREST_PX, ROW_PX = 58, 42  # axes and margins of a forest, and each interval; as in the finished one
TRAIL_PX, COURSE_PX, LOAD_PX = 220, 500, 290
HALF_PX = 560  # width; two plots fit side by side
BOUNDS = {"95 % interval, lower bound": 2, "95 % interval, upper bound": 3}  # name -> index in a step
MOST_TICKS = 7
FEW_PARTS = 60  # of a run, whose markers have room
MUTED, FIRST, SECOND = -1, 0, 1  # colours: grey, then those of a plot in order
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between two ticks, times a power of ten

Point = tuple[float, float | None, str]  # position (None: a gap in the line), and name, if any
Tick = tuple[float, str]


class Axis(TypedDict):
    """An axis: its range, ticks and title."""

    title: str
    range: tuple[float, float]
    log: bool
    ticks: list[Tick]


class Row(TypedDict):
    """One interval of a forest; a bound is None with too few rounds."""

    label: str
    short: str  # the ratio in words; empty: shown elsewhere
    ratio: float
    low: float | None
    high: float | None


class Series(TypedDict):
    """Points of one colour, with or without a line."""

    name: str
    color: int  # MUTED, or the number of a colour
    line: Literal["", "solid", "dash", "dot", "step"]
    hollow: bool
    size: int  # of its markers, in pixels
    points: list[Point]


class Forest(TypedDict):
    """Ratios with their intervals, one above the other."""

    kind: Literal["forest"]
    alt: str
    height: int
    x: Axis
    margin: float  # equivalence margin: the band around 1
    hollow: bool
    rows: list[Row]


class Plot(TypedDict):
    """Points over two axes."""

    kind: Literal["plot"]
    alt: str
    height: int
    x: Axis
    y: Axis
    level: float | None  # a horizontal dotted line
    legend: bool
    wide: NotRequired[bool]  # uses the whole width
    series: list[Series]


Picture = Forest | Plot


def forest(info: ForestInfo, alt: str, *, hollow: bool = False, said: bool = False) -> Forest:
    """Return the intervals of a running comparison; verdicts are not final, so they have no colours.

    Args:
        info: data of the plot; its baseline is the line at 1.
        alt: text for screen readers.
        hollow: whether it is an estimate.
        said: whether the ratios are written next to it.
    """
    rows = [row for row in info.rows if row.verdict != BASELINE]
    return {
        "kind": "forest",
        "alt": alt,
        "height": FOREST_PX + ROW_PX * len(rows),
        "x": {
            "title": info.title,
            "range": (_short(info.axis[0]), _short(info.axis[1])),
            "log": True,
            "ticks": [(_short(value), text) for value, text in info.ticks],
        },
        "margin": info.margin,
        "hollow": hollow,
        "rows": [
            {
                "label": row.label,
                "short": "" if said else row.short,
                "ratio": _short(row.value),
                "low": None if row.low is None else _short(row.low),
                "high": None if row.high is None else _short(row.high),
            }
            for row in rows
        ],
    }


def _kind(points: Sequence[Measured]) -> str:
    """Return what the latencies of running points are called, where streams vary; after a space."""
    count = max((value for one in points if isinstance(value := one.values.get(STREAMS), int)), default=1)
    return f" service latency under 1 to {count} callers" if count > 1 else ""


def curve(points: Sequence[Measured], *, x: str, y: str, series: str = "") -> Plot:
    """Return the points of a sweep so far, hollow because they are not final.

    Args:
        points: with their numbers so far.
        x: the first axis of the sweep; its values are drawn at equal distances.
        y: "throughput" or "p50_s".
        series: the second axis; empty: there is none.
    """
    values = list(dict.fromkeys(one.values[x] for one in points))
    if all(isinstance(one, int) for one in values):
        values.sort(key=lambda one: one if isinstance(one, int) else 0)
    groups: dict[str, list[Point]] = {}
    for one in sorted(points, key=lambda one: values.index(one.values[x])):
        name = point_name({series: one.values[series]}) if series else STATISTICS.get(y, y)
        drawn = groups.setdefault(name, [])
        found = value_of(one, y)
        drawn.append((float(values.index(one.values[x])), _short(found[0]) if found else None, ""))
    heights = [at for drawn in groups.values() for _, at, _ in drawn if at is not None]
    return {
        "kind": "plot",
        "alt": f"{'Throughput' if y == 'throughput' else 'p50'} of {len(heights)} points so far",
        "height": HALF_PX,
        "x": {
            "title": setting_title(x),
            "range": (-0.5, len(values) - 0.5),
            "log": False,
            "ticks": [(float(place), value_words(one)) for place, one in enumerate(values)],
        },
        "y": linear(
            "samples/s so far" if y == "throughput" else f"p50{_kind(points)} per run so far (ms)", heights
        ),
        "level": None,
        "legend": bool(series),
        "series": [
            _series(name, color, drawn, line=("solid", "dash", "dot")[color % 3])
            for color, (name, drawn) in enumerate(groups.items())
        ],
    }


def gains(points: Sequence[Mapping[str, Any]], front: Sequence[FrontPoint]) -> Plot:
    """Return the speed-ups of a search so far over memory, or in the order of evaluation if that is unknown.

    Args:
        points: `Status.live["points"]`.
        front: `Status.live["front"]`.
    """
    best = {changes_words(one["changes"]) for one in front}
    by_memory = bool(points) and all(one["memory"] for one in points)
    placed: list[Point] = [
        (
            _short(one["memory"] / SHOWN_UNITS["size"][0] if by_memory else index + 1),
            _short(one["ratio"]),
            str(one["label"]),
        )
        for index, one in enumerate(points)
    ]
    ratios = [_short(one["ratio"]) for one in points]
    return {
        "kind": "plot",
        "alt": f"Improvement of {len(points)} configurations so far, over their memory where known",
        "height": HALF_PX,
        "x": linear(
            cost_title("peak_rss") if by_memory else "Order of evaluation", [at for at, _, _ in placed]
        ),
        "y": linear("Improvement", [0.99, 1.01, *ratios]),
        "level": 1.0,
        "legend": True,
        "series": [
            _series("evaluated", MUTED, [one for one in placed if one[2] not in best], size=7, hollow=False),
            _series(
                "Pareto front so far", FIRST, [one for one in placed if one[2] in best], size=11, hollow=False
            ),
        ],
    }


def course(points: Sequence[CoursePoint]) -> Plot:
    """Return the best speed-up of a search over the time since it began."""
    known = [(_short(one["at_s"]), _short(one["ratio"])) for one in points if one["ratio"]]
    drawn = [(at, ratio, "") for at, ratio in known]
    return {
        "kind": "plot",
        "alt": "The best improvement over the time since the search began",
        "height": HALF_PX,
        "x": linear("Time (s)", [0.0, *(at for at, _ in known)]),
        "y": linear("Best so far", [0.99, 1.01, *(ratio for _, ratio in known)]),
        "level": 1.0,
        "legend": False,
        "series": [_series("best so far", FIRST, drawn, line="step", size=8, hollow=False)],
    }


def ratios(courses: Mapping[str, Sequence[Sequence[float]]], against: str) -> Plot:
    """Return the ratios of a comparison over time; of a single one its interval, too.

    Args:
        courses: name of a candidate -> (seconds, ratio, low, high) at each change, in order.
        against: name of the baseline.
    """
    last = [steps[-1] for steps in courses.values()]
    low, high = min(1.0, *(one[2] for one in last)), max(1.0, *(one[3] for one in last))
    around = low - (high - low), high + (high - low)  # the first intervals may be much wider

    def drawn(steps: Sequence[Sequence[float]], part: int) -> list[Point]:
        return [(_short(one[0]), _short(min(around[1], max(around[0], one[part]))), "") for one in steps]

    series = [
        _series(name, color, drawn(steps, 1), line="solid", size=7)
        for color, (name, steps) in enumerate(courses.items())
    ]
    if len(series) == 1:
        [steps] = courses.values()
        series = [
            *(_series(name, MUTED, drawn(steps, at), line="step", size=2) for name, at in BOUNDS.items()),
            *series,
        ]
    seen = [at for one in series for _, at, _ in one["points"] if at is not None]
    return {
        "kind": "plot",
        "alt": f"Ratio to {against} over the time since the start, {len(courses)} configurations",
        "height": COURSE_PX,
        "x": linear("Time (s)", [0.0, *(one[0] for one in last)]),
        "y": linear(f"Speed versus {against} so far (above 1: faster)", [*seen, 1.0]),
        "level": 1.0,
        "legend": len(courses) > 1,
        "wide": True,
        "series": series,
    }


def trail(points: Sequence[Mapping[str, Any]], current: str) -> Plot:
    """Return throughput over latency of every estimate, joined in their order; all hollow.

    Args:
        points: `Status.live["trail"]`: key, label, p50_s of a run, rows_per_s.
        current: key of the present estimate, which is larger.
    """
    placed = [(one["key"], _trail_point(one)) for one in points]
    times, rates = [point[0] for _, point in placed], [point[1] for _, point in placed]
    return {
        "kind": "plot",
        "alt": "Throughput over latency of the estimates so far, in their order",
        "height": TRAIL_PX,
        "x": linear("p50 of a run (ms)", times),
        "y": linear("Samples per second", rates),
        "level": None,
        "legend": False,
        "series": [
            _series("so far", FIRST, [one for _, one in placed], line="dot"),
            _series("shown", SECOND, [one for key, one in placed if key == current], size=16),
        ],
    }


def _trail_point(one: Mapping[str, Any]) -> tuple[float, float, str]:
    return _short(1e3 * one["p50_s"]), _short(one["rows_per_s"]), str(one["label"])


def load(course: Sequence[Second], limit_s: float | None, *, end_s: float) -> list[Plot]:
    """Return a run under traffic so far: its latency, its arrivals and completions, and its queue.

    Args:
        course: its parts so far; empty: nothing is drawn.
        limit_s: latency limit in seconds; None: there is none.
        end_s: scheduled end of the run, in seconds since its first arrival; 0: unknown.
    """
    if not course:
        return []
    times = linear("Time since the first arrival (s)", [0.0, max(end_s, course[-1]["at_s"])])

    def drawn(values: Sequence[float | None]) -> list[Point]:
        return [
            (_short(part["at_s"]), None if value is None else _short(value), "")
            for part, value in zip(course, values, strict=True)
        ]

    median = [None if part["p50_s"] is None else 1e3 * part["p50_s"] for part in course]
    slow = [None if part["p99_s"] is None else 1e3 * part["p99_s"] for part in course]
    limit = None if limit_s is None else 1e3 * limit_s
    arrivals, completions = (
        [part[name] / part["seconds"] if part["seconds"] else 0.0 for part in course]
        for name in ("arrivals", "completions")
    )
    size = 4 if len(course) <= FEW_PARTS else 2
    latencies = [one for one in (0.0, limit, *median, *slow) if one is not None]
    return [
        {
            "kind": "plot",
            "alt": "Latency over the time of this run: p50 and p99 of each part",
            "height": LOAD_PX,
            "x": times,
            "y": linear("Latency (ms)", latencies),
            "level": limit,
            "legend": True,
            "wide": True,
            "series": [
                _series("p50", FIRST, drawn(median), line="solid", size=size, hollow=False),
                _series("p99 of each part", SECOND, drawn(slow), line="dash", size=size, hollow=False),
            ],
        },
        {
            "kind": "plot",
            "alt": "Arrivals and completions per second over the time of this run",
            "height": LOAD_PX,
            "x": times,
            "y": linear("Requests/s", [0.0, *arrivals, *completions]),
            "level": None,
            "legend": True,
            "series": [
                _series("arrivals", 2, drawn(arrivals), line="dot", size=size, hollow=False),
                _series("completions", 3, drawn(completions), line="solid", size=size, hollow=False),
            ],
        },
        {
            "kind": "plot",
            "alt": "Requests that wait over the time of this run",
            "height": LOAD_PX,
            "x": times,
            "y": linear("Queue (requests)", [0.0, 1.0, *(float(part["queue"]) for part in course)]),
            "level": None,
            "legend": False,
            "series": [
                _series("queue", 4, drawn([float(part["queue"]) for part in course]), line="step", size=2)
            ],
        },
    ]


def _series(
    name: str,
    color: int,
    points: Sequence[Point],
    *,
    line: Literal["", "solid", "dash", "dot", "step"] = "",
    size: int = 9,
    hollow: bool = True,
) -> Series:
    return {
        "name": name,
        "color": color,
        "line": line,
        "hollow": hollow,
        "size": size,
        "points": list(points),
    }


def linear(title: str, values: Sequence[float]) -> Axis:
    """Return an axis over all values that begins and ends at a tick; round steps, seven ticks at most."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        low, high = low - abs(low) / 10 - 1e-9, high + abs(high) / 10 + 1e-9
    raw = (high - low) / (MOST_TICKS - 2)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(one * power for one in STEPS if one * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (round(step / power, 1) == STEPS[2]))
    ticks = [(_short(number * step), f"{number * step:,.{digits}f}") for number in range(first, last + 1)]
    return {"title": title, "range": (ticks[0][0], ticks[-1][0]), "log": False, "ticks": ticks}


def _short(value: float) -> float:
    """Round to five digits: more are not drawn, and would lengthen every event."""
    return float(f"{value:.5g}")
