"""The result of a load test: its answer, numbers, plots and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.evidence.load.load_types import Harness, Highest, LoadResult, Percentile, Point, RunResult
from core.evidence.load.queueing import MOST_SHARE_OF_P50
from core.evidence.measurement import Trial
from core.evidence.verdict import Color
from core.show import load_text
from core.show.cells import Cell
from core.show.load_text import (
    has_no_answer,
    is_rejected,
    percentile,
    percentile_name,
    rate_number,
    share_text,
)
from core.show.sheets import Fact, Note, loads
from core.show.table import Table
from core.spec.load import LoadLimit
from dashboard import format, messages
from dashboard.charts import compare_charts, load_charts, load_cost_charts
from dashboard.widgets import collapsible, plots, results, tables

# session keys
VIEW, RUN, TAIL = "load.view", "load.run_shown", "load.tail"

RATES, TIME, SHARES = "Rates", "Over time", "Distribution"
BATCHES, SERVICE, COSTS, TOGETHER = "Batches", "Service times", "CPU and memory", "Alone and together"
DIFFERENCES = "Differences"
ICONS: Mapping[Color, str] = {
    "green": "check_circle",
    "red": "cancel",
    "orange": "help",
    "gray": "block",
    "blue": "speed",
}
MOST_NAMED = 3  # rates in one sentence
MOST_CELLS, MOST_LABEL = 4, 30  # numbers beside each other; characters above one
HARNESS_HELP = (
    "What ORTune itself added to the median: measured latencies minus those of an ideal queue with the same "
    "arrivals and service times. Above 10 % of p50 the run is not a measurement."
)


def draw(trial: Trial, *, brief: bool = False) -> None:
    """Draw a load test that has ended: complete, failed or cancelled.

    Args:
        trial: the load test.
        brief: its answer and a plot alone, below one that runs.
    """
    result = load_text.load_of(trial)
    if trial.state == "FAIL" and trial.error is not None:
        messages.report(trial.error, "This load test failed")
    elif trial.state == "CANCELLED":
        kept = (
            "Finished runs are kept; there is no verdict."
            if result and result["runs"]
            else "Nothing was kept."
        )
        st.info(f"This load test was cancelled. {kept}", icon=":material/cancel:")
    if result is None:
        return
    result = {**result, "contrasts": load_charts.contrasts_of(result)}
    with st.container(key="load.answer", gap="xsmall"):
        _headline(trial, result)
        with st.container(key="load.first", gap="xsmall"):
            point = load_charts.main_point(result)
            if point is not None and not brief:
                results.strip(cells(result, point)[:MOST_CELLS], "numbers")
            if result["runs"] or result["points"]:
                _plots(result, point)
        if brief:
            _tables(result)
            return
        _remarks(result)
        _tables(result)
        collapsible.group("Details", partial(_details, trial), key="load.details", icon="info")


# --- the answer -------------------------------------------------------------------------------------------


def _headline(trial: Trial, result: LoadResult) -> None:
    """Draw the answer; of a cancelled or failed load test, only that there are partial results."""
    if trial.state != "COMPLETE":
        if result["runs"]:
            st.subheader(":material/incomplete_circle: Partial results, without a verdict", anchor=False)
        return
    color: Color = "gray" if _is_spoiled(result) else load_text.color(result)
    icon = format.icon(ICONS[color])
    st.subheader(f"{icon} {format.plain(answer(result))}", anchor=False)


def answer(result: LoadResult) -> str:
    """Return the answer; where no point is a measurement, what the harness added."""
    if not _is_spoiled(result):
        return load_text.answer(result)
    fresh = [one for one in result["points"] if one["fresh"]]
    added = [one["harness"] for one in fresh if one["harness"] is not None]
    return f"Not a measurement: the harness added {_worst_added(added)}."


def _is_spoiled(result: LoadResult) -> bool:
    """Whether no point that could be the answer is a measurement, or keeps its limits in spite of that."""
    fresh = [one for one in result["points"] if one["fresh"]]
    return bool(fresh) and all(map(has_no_answer, fresh))


def _worst_added(found: Sequence[Harness]) -> str:
    """Return what the harness added at most, where it broke a rule: to the median, or else to p99."""
    worst = max(found, key=lambda one: one["share_of_p50"])
    if worst["share_of_p50"] > MOST_SHARE_OF_P50:
        return f"{format.significant(100 * worst['share_of_p50'], 3)} % of p50"
    return f"{format.ms(max(one['p99_s'] for one in found), 3)} at p99"


def _remarks(result: LoadResult) -> None:
    """Draw what limits the answer: configurations without a result, saturated and failed runs, notes."""
    for one in result["configurations"]:
        if one["error"]:
            st.error(
                format.plain(one["error"]),
                title=f"{format.plain(one['label'])} has no result",
                icon=":material/error:",
            )
    said = [*_endings(result), *result["notes"]]
    if lines := list(dict.fromkeys(said)):
        st.caption(" ".join(format.plain(one) for one in lines))


def _endings(result: LoadResult) -> list[str]:
    """Return why runs ended early, a sentence each, and one for those that are no measurement."""
    labels, lines = load_charts.labels_of(result), []
    spoiled: dict[str, Harness] = {}
    for one in load_charts.runs_of(result):
        where = load_charts.place_of(one, labels)
        if one["outcome"] in ("failed", "saturated"):
            lines.append(f"At {where}: {one['reason'] or one['outcome']}")
        elif has_no_answer(one) and one["harness"] is not None:
            worse = spoiled.get(where, one["harness"])
            spoiled[where] = max(worse, one["harness"], key=lambda each: each["share_of_p50"])
    if spoiled:
        listed = "; ".join(list(spoiled)[:MOST_NAMED])
        more = f"; {len(spoiled) - MOST_NAMED} more" if len(spoiled) > MOST_NAMED else ""
        added = _worst_added(list(spoiled.values()))
        lines.append(f"Not a measurement at {listed}{more}: the harness added up to {added}.")
    return lines


def cells(result: LoadResult, point: Point) -> list[Cell]:
    """Return the numbers of the answer's point, the most important first; none of a latency that is none.

    Args:
        result: of a load test.
        point: see `load_charts.main_point`.
    """
    if len(result["configurations"]) > 1:
        return [*_compared_cells(result, point), *_worst_harness(result)]
    highest = result["highest"]
    found = [_highest_cell(highest[0])] if highest else []
    if not is_rejected(point):
        p = load_charts.shown_p(result)
        for share in (p,) if highest or p == load_charts.P50 else (load_charts.P50, p):
            if (known := percentile(point["latency"], share)) is not None:
                found.append(_latency_cell(known, point))
        found += [_over(point)] if point["limits"] else []
    if point["harness"] is not None:
        found.append(_harness(point["harness"]))
    if not highest:
        found.append(_completed(point))
    if point["cpus"] is not None:
        found.append(
            Cell(
                name="cpus",
                label="CPUs",
                value=f"{point['cpus']:.2f}",
                note=f"{format.size(point['memory_bytes'])} memory" if point["memory_bytes"] else "",
                help="CPU seconds per second of all its processes, and their private memory.",
            )
        )
    return found


def _compared_cells(result: LoadResult, point: Point) -> list[Cell]:
    """Return one number for each configuration: its highest rate, or its latency at the answer's rate."""
    labels, found = load_charts.labels_of(result), []
    for index, label in enumerate(labels):
        highest = next((one for one in result["highest"] if one["configuration"] == index), None)
        alone = next((one for one in result["together"] if one["configuration"] == index), None)
        if highest is not None:
            cell = _highest_cell(highest)
        elif alone is not None:
            cell = Cell(
                name="together",
                label="",
                value=format.ms(alone["together_s"]),
                note=f"{percentile_name(alone['p'])} together; {format.ms(alone['alone_s'])} alone",
                help="Latency beside the other models, and alone on this machine.",
            )
        else:
            cell = _at_rate(result, index, point["rate_per_s"])
        found.append(
            replace(cell, name=f"{cell.name}.{index}", label=format.plain(format.short(label, MOST_LABEL)))
        )
    return found


def _at_rate(result: LoadResult, index: int, rate: float) -> Cell:
    """Return the latency of one configuration at a rate, or why it has none."""
    p = load_charts.shown_p(result)
    own = [one for one in result["points"] if one["configuration"] == index]
    one = min(own, key=lambda one: abs(one["rate_per_s"] - rate), default=None)
    known = None if one is None else percentile(load_text.shown_latency(one), p)
    if one is None or known is None or one["outcome"] != "complete":
        why = "no result" if one is None else load_text.verdict_text(one) or one["outcome"]
        return Cell(name="none", label="", value=format.DASH, note=why, help="It has no latency.")
    cell = _latency_cell(known, one)
    return replace(cell, note=f"{percentile_name(p)} at {rate_number(one['rate_per_s'])}/s; {cell.note}")


def _worst_harness(result: LoadResult) -> list[Cell]:
    known = [one["harness"] for one in result["points"] if one["harness"] is not None]
    return [_harness(max(known, key=lambda one: one["share_of_p50"]))] if known else []


def _harness(found: Harness) -> Cell:
    verdict = "accepted" if found["accepted"] else load_text.NOT_A_MEASUREMENT
    return Cell(
        name="harness",
        label="Harness",
        value=share_text(found["share_of_p50"]),
        note=f"of p50, {verdict}",
        help=HARNESS_HELP,
    )


def _highest_cell(found: Highest) -> Cell:
    confirmed, failed = found["confirmed_per_s"], found["failed_per_s"]
    ends = "none failed" if failed is None else f"failed: {rate_number(failed)}/s"
    return Cell(
        name="highest",
        label="Highest rate",
        value="none" if confirmed is None else f"{rate_number(confirmed)}/s",
        note=f"{ends}; capacity {rate_number(found['capacity_per_s'])}/s",
        help="Requests per second that passed in a fresh process, and the lowest rate that failed. Capacity: "
        "what its streams complete back to back (closed loop), without regard to latency.",
    )


def _completed(point: Point) -> Cell:
    return Cell(
        name="completed",
        label="Completed",
        value=f"{rate_number(point['completed_per_s'])}/s",
        note=f"of {rate_number(point['rate_per_s'])} requests/s",
        help=f"Requests per second; {format.rate(point['samples_per_s'])}.",
    )


def _latency_cell(known: Percentile, point: Point) -> Cell:
    p = percentile_name(known["p"])
    return Cell(
        name=p,
        label=f"{p} at {rate_number(point['rate_per_s'])}/s",
        value=format.ms(known["value_s"]),
        note=format.interval_ms(known["low_s"], known["high_s"]),
        help="Latency from the scheduled arrival to the completion; the interval is from batches of the run.",
    )


def _over(point: Point) -> Cell:
    order = ("FAIL", "UNDECIDED", "PASS")
    one = min(point["limits"], key=lambda found: order.index(found["verdict"]))
    bound = (
        f"at most {share_text(one['high'])}"
        if one["verdict"] == "PASS"
        else f"at least {share_text(one['low'])}"
    )
    if one["verdict"] == "UNDECIDED":
        bound = f"{share_text(one['low'])} to {share_text(one['high'])}"
    return Cell(
        name="over",
        label="Over the limit",
        value=share_text(one["share"]),
        note=f"{bound}; {format.brief(100 * one['allowed'])} % allowed",
        help="Share of the requests that broke the limit, with one-sided 95 % bounds that allow for "
        "correlation between requests.",
    )


# --- tables -----------------------------------------------------------------------------------------------

Titles = Sequence[tuple[str, str, Callable[[LoadResult], Table]]]
TABLES: Titles = (
    # name, title, the table of `core.show.sheets.loads`
    ("highest", "Highest rate", loads.highest),
    ("points", "Rates", loads.points),
    ("contrasts", "Differences at the same rate", loads.contrasts),
    ("together", "Alone and together", loads.together),
    ("batching", "Dynamic batching", loads.batching_trials),
    ("shapes", "First request of each size", loads.new_shapes),
)


def _tables(result: LoadResult) -> None:
    """Draw the tables that have rows; the rates can be downloaded."""
    has: Mapping[str, bool] = {
        "highest": len(result["highest"]) > 1,
        "points": bool(result["points"]),
        "contrasts": bool(result["contrasts"]),
        "together": bool(result["together"]),
        "batching": result["batching"] is not None and bool(result["batching"]["trials"]),
        "shapes": any(len(one["new_shapes"]) > 1 for one in result["runs"]),
    }
    for name, title, build in TABLES:
        if has[name]:
            table = build(result)
            st.markdown(f"##### {title}")
            tables.draw(table, key=f"load.table.{name}", alt=f"{title}: {len(table.rows)} rows.")
            if name == "points":
                tables.download(table, "load.csv", key="load.csv")


def _details(trial: Trial) -> None:
    """Draw how the load test was made: traffic, sizes, streams, machine."""
    parts = loads.load_sheet(trial).parts
    tables.facts([one for one in parts if isinstance(one, Fact) and one.name])
    for one in parts:
        if isinstance(one, Note):
            st.caption(format.plain(one.text))


# --- plots ------------------------------------------------------------------------------------------------


def views(result: LoadResult) -> list[str]:
    """Return the plots that this result has, the best one first."""
    rates = {round(one["rate_per_s"], 6) for one in result["points"]}
    found = [RATES] if len(rates) > 1 and result["batching"] is None and not result["together"] else []
    found = [*([TOGETHER] if result["together"] else []), *([SERVICE] if result["batching"] else []), *found]
    if result["contrasts"]:
        found.append(DIFFERENCES)
    if any(one["course"] for one in result["runs"]):
        found.append(TIME)
    if any(one["ecdf"] and not is_rejected(one) for one in load_charts.runs_of(result)):
        found.append(SHARES)
    if any(len(one["batches"]) > 1 for one in result["runs"]):
        found.append(BATCHES)
    if len(result["points"]) > 1 and result["batching"] is None:
        found.append(COSTS)
    return found


def _plots(result: LoadResult, point: Point | None) -> None:
    shown = views(result)
    if not shown:
        return
    if st.session_state.get(VIEW) not in shown:
        st.session_state[VIEW] = shown[0]
    if len(shown) == 1:
        _draw_view(shown[0], result, point)
        return
    with st.container(horizontal=True, vertical_alignment="center", key="load.controls"):
        st.segmented_control(
            "Show",
            shown,
            key=VIEW,
            required=True,
            persist_state="session",
            label_visibility="collapsed",
            width="content",
        )
        st.space("stretch")
        beside = st.container(horizontal=True, horizontal_alignment="right", width="content")
    _draw_view(str(st.session_state[VIEW]), result, point, beside)


def _draw_view(
    view: str, result: LoadResult, point: Point | None, beside: DeltaGenerator | None = None
) -> None:
    """Draw one plot, and in `beside` the controls that it has; None: as usual, without controls."""
    with beside if beside is not None else st.container():
        run = _pick_run(result, point) if view in (TIME, BATCHES) else None
        if view == SHARES:
            st.toggle(
                "Tail",
                key=TAIL,
                persist_state="session",
                help="Each tick leaves a tenth of the requests before it, which widens the slow end.",
            )
    draw_view: Mapping[str, Callable[[], None]] = {
        RATES: partial(_rates, result),
        TIME: partial(_time, result, run),
        SHARES: partial(_distribution, result, point),
        BATCHES: partial(_batches, result, run),
        SERVICE: partial(_service, result),
        COSTS: partial(_costs, result),
        TOGETHER: partial(_together, result),
        DIFFERENCES: partial(_differences, result),
    }
    draw_view[view]()


def _pick_run(result: LoadResult, point: Point | None) -> RunResult:
    """Draw the choice of a run, where there are several; return it, at first one of the answer."""
    runs, labels = load_charts.runs_of(result), load_charts.labels_of(result)
    names = [_run_label(index, one, labels) for index, one in enumerate(runs)]
    first = point["runs"][0] if point is not None and point["runs"] else 0
    if st.session_state.get(RUN) not in names:
        st.session_state[RUN] = names[min(first, len(names) - 1)]
    if len(runs) > 1:
        st.selectbox(
            "Run", names, key=RUN, label_visibility="collapsed", width=300, help="The run that is drawn."
        )
    return runs[names.index(st.session_state[RUN])]


def _run_label(index: int, run: RunResult, labels: Sequence[str]) -> str:
    ended = "" if run["outcome"] == "complete" else f" · {run['outcome']}"
    return f"{index + 1}: {load_charts.run_name(run, labels)}{ended}"


def _plot(figure: go.Figure, title: str, name: str, alt: str) -> None:
    plots.draw(figure, title, key=f"load.chart.{name}", alt=alt)


def _rates(result: LoadResult) -> None:
    info = load_charts.rate_info(result)
    _plot(
        load_charts.rates(info),
        "Latency against rate",
        "rates",
        f"{info.y_title} against requests per second: {load_charts.summary(result['points'])}",
    )


def _time(result: LoadResult, run: RunResult | None) -> None:
    if run is None:
        return
    limit = load_charts.latency_limit(result)
    info = load_charts.course_info(run, limit)
    title = "Latency over time" if info.measured else f"Requests over time: {load_text.NOT_A_MEASUREMENT}"
    _plot(
        load_charts.course(info),
        title,
        "time",
        f"{title} at {rate_number(run['rate_per_s'])} requests/s, with arrivals, completions and the queue",
    )


def _distribution(result: LoadResult, point: Point | None) -> None:
    runs = load_charts.runs_at(result, point)
    info = load_charts.distribution_info(runs, load_charts.labels_of(result))
    limit: LoadLimit | None = load_charts.latency_limit(result)
    tail = bool(st.session_state.get(TAIL))
    _plot(
        load_charts.distribution(info, limit=limit, tail=tail),
        "Distribution of the latency",
        "distribution",
        f"Share of the requests at or below each latency, {len(info)} runs",
    )


def _batches(result: LoadResult, run: RunResult | None) -> None:
    if run is None:
        return
    info = load_cost_charts.batches_info([run], load_charts.labels_of(result))
    _plot(
        load_cost_charts.batches(info),
        "Batches that formed",
        "batches",
        "Share of the calls by samples of a call",
    )


def _service(result: LoadResult) -> None:
    if result["batching"] is not None:
        sizes = len(result["batching"]["service_times"])
        _plot(
            load_cost_charts.service_times(result["batching"]),
            "Service times",
            "service",
            f"Service time and samples per second of {sizes} batch sizes, with 95 % intervals",
        )


def _costs(result: LoadResult) -> None:
    _plot(
        load_cost_charts.costs(load_cost_charts.costs_info(result)),
        "CPU, memory and the harness",
        "costs",
        "CPUs, private memory, and the harness's share of p50 against requests per second",
    )


def _together(result: LoadResult) -> None:
    _plot(
        load_cost_charts.together(result),
        "Latency alone and together",
        "together",
        f"Latency of {len(result['together'])} models alone and at the same time",
    )


def _differences(result: LoadResult) -> None:
    info = load_cost_charts.differences_info(result)
    _plot(
        compare_charts.forest(info, least=load_charts.TALL_PX - 60),
        "Speed at the same rate",
        "differences",
        f"Latency versus {info.baseline} at the same rates, with 95 % intervals; the band is the margin",
    )
