"""The results of a sweep on the screen: latency line, verdict in words, charts, table, failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st

from core.evidence.comparison import Comparison
from core.evidence.verdict import is_rejected
from core.run import sweep
from core.run.sweep import Axis, Measured, Point
from core.show import verdict
from core.show.sheets import races
from core.show.table import csv_text
from core.wire.guard import MARK, WARNING
from core.wire.units import brief
from dashboard import charts, format, state
from dashboard.charts import curve_charts
from dashboard.widgets import results as common
from dashboard.widgets import tables

LINE = "curves.line_ms"  # the one truth behind the number, the slider and a click on a point
LINE_NUMBER, LINE_SLIDER = "curves.line.number", "curves.line.slider"
STATISTIC = "curves.statistic"
LATENCY_CHART, TABLE = "curves.latency", "curves.table"
SLIDER_STEPS = 60
ACTIVE = ("WAITING", "RUNNING")


def point_name(values: Mapping[str, int]) -> str:
    """Name a point in words, `batch 8`."""
    labels = {sweep.BATCH: "batch", sweep.THREADS: "threads"}
    return ", ".join(f"{labels.get(name, name)} {value}" for name, value in values.items())


def results(
    one: Axis,
    points: Sequence[Point],
    rows: Sequence[Measured],
    race: Comparison | None,
    busy: Mapping[str, str],
    actions: Callable[[], None],
) -> None:
    """Draw what the points showed.

    Args:
        one: what is varied.
        points: of the sweep.
        rows: each point with its numbers.
        race: of this sweep; None: there was none.
        busy: id of a race -> who else used the machine; empty: nobody.
        actions: draws buttons beside the grade.
    """
    _failures(rows)
    complete = [row for row in rows if row.latency]
    if not complete:
        _empty(rows)
        return
    _trust(race, actions)
    _remarks(complete, race, busy)
    left, right = st.columns([1, 3], gap="medium")
    with left:
        percentile = _statistic(complete)
    with right:
        line_s = _line(complete, percentile)
    level = (
        sweep.best_under(complete, line_s, percentile)
        if line_s is not None
        else sweep.fastest(complete, percentile)
    )
    _verdict(complete, level, line_s, percentile, busy)
    best = level[0] if level and line_s is not None else None
    _charts(one, complete, percentile, line_s, best)
    _table(one, points, rows, best, level[1:] if best else [], busy)


def _empty(rows: Sequence[Measured]) -> None:
    with st.container(border=True):
        if any(row.state in ACTIVE for row in rows):
            st.markdown(":material/hourglass_top: All points appear here together, when their race ends.")
        else:
            st.markdown(
                ":material/show_chart: **No points yet.** Choose a setting and its values, then press "
                "**Measure**: latency and throughput are drawn here, with their intervals."
            )


def _trust(race: Comparison | None, actions: Callable[[], None]) -> None:
    """Say how fine the race of this sweep is; a rejected one ranks no point."""
    result = race.facts if race is not None else {}
    grade = result.get("grade")
    reason, remedy = (format.plain(str(result.get(name) or "")) for name in ("grade_reason", "remedy"))
    if is_rejected(result):
        st.error(
            f"{reason}\n\n**What to do:** {remedy}" if remedy else reason,
            title="Rejected: these points are not ranked. Grade F",
            icon=":material/block:",
        )
        actions()
    elif grade:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            common.busy_badge(result)
            common.grade_badge(grade, str(result.get("grade_reason") or ""))
            st.caption(
                f"{format.plain(verdict.counted(result))} of all points, "
                f"{format.duration(result.get('wall_s'))}. " + ("" if grade == "A" else f"{reason} {remedy}"),
                width="content",
            )
            actions()


def _remarks(complete: Sequence[Measured], race: Comparison | None, busy: Mapping[str, str]) -> None:
    """What a reader of the points must know of the machine, and of races of earlier versions."""
    own = race.id if race is not None else ""
    if race is not None:
        common.busy_note(race.result)
    if any(busy.get(row.race) for row in complete if row.race != own):
        st.caption(":material/groups: Points that were reused ran on a busy machine: see the table.")
    if any(row.contrast is not None and verdict.is_older(row.contrast) for row in complete):
        st.caption(f":material/info: {verdict.OLDER}")


def _failures(rows: Sequence[Measured]) -> None:
    for row in rows:
        if row.state != "FAIL":
            continue
        trial = state.store().trial(row.trial)
        error = trial.error
        hint = f"\n\n**What to do:** {format.plain(error['hint'])}" if error and error["hint"] else ""
        st.error(
            format.plain(row.error) + hint,
            title=f"{point_name(row.values)} failed",
            icon=":material/error:",
        )


def _statistic(complete: Sequence[Measured]) -> str:
    names = [n for n in sweep.PERCENTILE_NAMES if any((row.latency or {}).get(n) for row in complete)]
    names = names or ["mean_s"]
    if st.session_state.get(STATISTIC) not in names:
        default = sweep.supported_percentile(complete)
        st.session_state[STATISTIC] = default if default in names else names[0]
    return str(
        st.segmented_control(
            "The line applies to",
            names,
            key=STATISTIC,
            required=True,
            format_func=lambda name: curve_charts.STATISTICS[name],
            persist_state="session",
            help="A percentile is offered when the runs of at least one point support it: p95 needs 72 "
            "independent runs, p99 needs 368.",
        )
    )


def _line(complete: Sequence[Measured], percentile: str) -> float | None:
    """Draw the number and the slider, both bound to one value; return the line in seconds."""
    options = _line_options(complete, percentile)
    current = st.session_state.get(LINE)
    st.session_state[LINE_NUMBER] = current
    st.session_state[LINE_SLIDER] = current
    if current is not None:
        options = sorted({*options, current})  # the slider shows the line as it is, not the nearest step
    left, right = st.columns([1, 2])
    left.number_input(
        "Latency line (ms)",
        value=None,
        format="%.6g",
        key=LINE_NUMBER,
        placeholder="none",
        on_change=_line_from,
        args=(LINE_NUMBER,),
        help="Type it, move the slider, or click a point of the latency chart.",
    )
    right.select_slider(
        "Move the line",
        [None, *options],
        key=LINE_SLIDER,
        format_func=lambda one: "none" if one is None else f"{one:g} ms",
        on_change=_line_from,
        args=(LINE_SLIDER,),
        help="The range of the chart, in even steps of a ratio.",
    )
    return None if current is None else current / 1e3


def _line_options(complete: Sequence[Measured], percentile: str) -> list[float]:
    drawn = [(row.latency or {}).get(name) for row in complete for name in {"p50_s", percentile, "mean_s"}]
    known = [value * 1e3 for value in drawn if value]
    low, high = min(known) * 0.8, max(known) * 1.25
    steps = [low * (high / low) ** (k / SLIDER_STEPS) for k in range(SLIDER_STEPS + 1)]
    return sorted({float(f"{one:.3g}") for one in steps})


def _line_from(widget: str) -> None:
    value = st.session_state.get(widget)
    st.session_state[LINE] = float(value) if value else None


def _line_from_click(judged_ms: Mapping[str, float]) -> None:
    """Put the line at what is judged of the clicked point, whichever of its markers was clicked."""
    chosen = st.session_state[LATENCY_CHART]["selection"]["points"]
    if chosen:
        value = judged_ms.get(str(chosen[0].get("customdata")), chosen[0]["y"])
        st.session_state[LINE] = float(f"{value * 1.0005:.4g}")  # rounded up: the point is under the line


def _verdict(
    complete: Sequence[Measured],
    level: Sequence[Measured],
    line_s: float | None,
    percentile: str,
    busy: Mapping[str, str],
) -> None:
    """Name the best point; where others cannot be told apart from it, say so."""
    name = curve_charts.STATISTICS[percentile]
    if not any(row.ranked for row in complete):
        return
    if not level:
        line = f" at or under {brief(line_s * 1e3)} ms" if line_s is not None else ""
        st.warning(
            f"No point has a {name}{line}." + _unsupported(complete, percentile), icon=":material/block:"
        )
        return
    best = level[0]
    if line_s is None:
        highest = f"Highest throughput: **{_in_words(best, percentile, busy)}**.{_level_words(level)}"
        st.info(
            f"{highest} Set a latency line to find the best point that still answers in time.",
            icon=":material/info:",
        )
        return
    sure = sweep.surely_under(best, line_s, percentile)
    words = (
        f"Its whole 95 % interval lies under the line of {brief(line_s * 1e3)} ms."
        if sure
        else f"Its {name} is under the line of {brief(line_s * 1e3)} ms, but the 95 % interval reaches above "
        "it or is not known: measure with more effort before relying on it."
    )
    text = f"Best under the line: **{_in_words(best, percentile, busy)}**.{_level_words(level)} {words}"
    text += _unsupported(complete, percentile)
    if sure:
        st.success(text, icon=":material/check_circle:")
    else:
        st.info(text, icon=":material/help:")


def _level_words(level: Sequence[Measured]) -> str:
    """Say which points are level with the first, and why it stands first."""
    if len(level) < 2:
        return ""
    others = ", ".join(point_name(row.values) for row in level[1:])
    return format.plain(
        f" Its throughput cannot be told apart from {others}; it has the lowest latency of them."
    )


def _unsupported(complete: Sequence[Measured], percentile: str) -> str:
    missing = [row for row in complete if row.ranked and (row.latency or {}).get(percentile) is None]
    if not missing:
        return ""
    names = "; ".join(point_name(row.values) for row in missing)
    return f" Not judged, because their runs do not support a {curve_charts.STATISTICS[percentile]}: {names}."


def _in_words(row: Measured, percentile: str, busy: Mapping[str, str]) -> str:
    ran = charts.provider_label(row.providers, row.requested, fallback=row.fallback)
    latency = f"{curve_charts.STATISTICS[percentile]} {format.ms((row.latency or {}).get(percentile))}"
    text = f"{point_name(row.values)}: {format.rate(row.throughput_per_s)} at {latency}"
    text += f" ({ran})" if row.fallback else ""
    text += f" · {verdict.BUSY}" if busy.get(row.race) else ""
    return format.plain(text + (f" – {WARNING} {MARK}" if row.breach else ""))


def _charts(
    one: Axis, complete: Sequence[Measured], percentile: str, line_s: float | None, best: Measured | None
) -> None:
    shown = list(dict.fromkeys(["p50_s", percentile]))
    judged = {row.trial: v * 1e3 for row in complete if (v := (row.latency or {}).get(percentile))}
    left, right = st.columns(2)
    latency = curve_charts.curve_info(complete, x=one.name, y=shown, line_s=line_s, best=best)
    throughput = curve_charts.curve_info(complete, x=one.name, y="throughput", best=best)
    with left.container(border=True):
        st.markdown("**Latency**")
        st.plotly_chart(
            curve_charts.curve(latency),
            key=LATENCY_CHART,
            on_select=partial(_line_from_click, judged),
            selection_mode="points",
            config={"displaylogo": False},
            alt=f"Latency over {one.name} for {len(complete)} measured points.",
        )
    with right.container(border=True):
        st.markdown("**Throughput**")
        st.plotly_chart(
            curve_charts.curve(throughput),
            key="curves.throughput",
            config={"displaylogo": False},
            alt=f"Throughput over {one.name} for {len(complete)} measured points.",
        )
    st.caption(
        "Bands: 95 % intervals, with each round as one cluster. Hollow markers: measured in an earlier race "
        "and reused."
    )


def _table(
    one: Axis,
    points: Sequence[Point],
    rows: Sequence[Measured],
    best: Measured | None,
    level: Sequence[Measured],
    busy: Mapping[str, str],
) -> None:
    table = races.points(rows, {row.trial: _mark(row, best, level) for row in rows}, busy)
    tables.draw(
        table,
        key=TABLE,
        on_select="rerun",
        mode="single-row",
        alt=f"The {len(rows)} points of the sweep over {one.name}.",
    )
    chosen = _chosen(points, rows, best)
    with st.container(horizontal=True):
        if st.button(
            f"Use {point_name(chosen.values)} in Tune" if chosen else "Use a point in Tune",
            key="curves.use",
            icon=":material/tune:",
            disabled=chosen is None,
            help="The row chosen in the table, else the best point under the line.",
        ):
            _use(chosen, rows, points)
        st.download_button(
            "Download CSV",
            data=lambda: csv_text(table),
            file_name=f"curve_{one.name}.csv",
            mime="text/csv",
            key="curves.csv",
            icon=":material/download:",
            on_click="ignore",
        )


def _mark(row: Measured, best: Measured | None, level: Sequence[Measured]) -> str:
    return "★" if row is best else "= ★" if any(row is one for one in level) else ""


def _chosen(points: Sequence[Point], rows: Sequence[Measured], best: Measured | None) -> Point | None:
    selected: list[int] = st.session_state[TABLE]["selection"]["rows"]
    if selected and selected[0] < len(points):
        return points[selected[0]]
    return next((p for p, row in zip(points, rows, strict=True) if row is best), None)


def _use(chosen: Point | None, rows: Sequence[Measured], points: Sequence[Point]) -> None:
    if chosen is None:
        return
    state.apply_spec(chosen.spec)
    trial = next(row.trial for p, row in zip(points, rows, strict=True) if p is chosen)
    if trial:
        state.show_trial(trial)
    st.switch_page("views/tune/page.py", query_params={state.TRIAL_PARAM: trial} if trial else None)
