"""The results of a sweep on the screen: latency line, verdict in words, charts, table, failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from core.evidence.comparison import Comparison
from core.evidence.quality import BUSY, quality
from core.evidence.verdict import is_rejected
from core.run.axes import PERCENTILE_NAMES, point_name
from core.run.sweep import REFUSED, Measured
from core.run.sweet_spot import Standing, standing, supported_percentile, surely_under
from core.show import sweep_words, verdict
from core.wire.guard import MARK, WARNING
from core.wire.units import brief
from dashboard import charts, format, state
from dashboard.charts import curve_charts
from dashboard.views.curves import details, pictures
from dashboard.views.curves.shown import ACTIVE, LINE, Shown
from dashboard.widgets import results as common

LINE_NUMBER, LINE_SLIDER = "curves.line.number", "curves.line.slider"
STATISTIC = "curves.statistic"
SLIDER_STEPS = 60


def results(shown: Shown, actions: Callable[[], None]) -> None:
    """Draw what the points showed.

    Args:
        shown: the sweep.
        actions: draws buttons beside the grade.
    """
    rows = shown.rows
    _failures(rows)
    complete = [row for row in rows if row.latency]
    if not complete:
        _empty(rows)
        return
    _trust(shown.race, actions)
    _remarks(complete, shown.race, shown.busy)
    left, right = st.columns([1, 3], gap="medium")
    with left:
        percentile = _statistic(complete)
    with right:
        line_s = _line(complete, percentile)
    stands = standing(rows, line_s=line_s, percentile=percentile, margin=shown.margin)
    _verdict(complete, stands, shown.busy)
    pictures.draw(shown, stands)
    details.draw(shown, stands)


def _empty(rows: Sequence[Measured]) -> None:
    with st.container(border=True):
        if any(row.state in ACTIVE for row in rows):
            st.markdown(
                ":material/hourglass_top: Points appear above while they are measured; intervals come last."
            )
        else:
            st.markdown(
                ":material/show_chart: **No points yet.** Choose a setting and its values, then press "
                "**Measure**: latency and throughput are drawn here, with their intervals."
            )


def _trust(race: Comparison | None, actions: Callable[[], None]) -> None:
    """Say how fine the race of this sweep is; a rejected one ranks no point."""
    result = race.facts if race is not None else {}
    reason, remedy = (format.plain(str(result.get(name) or "")) for name in ("grade_reason", "remedy"))
    if is_rejected(result):
        st.error(
            f"{reason}\n\n**What to do:** {remedy}" if remedy else reason,
            title="Rejected: these points are not ranked",
            icon=":material/block:",
        )
        actions()
    elif found := quality(result):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            common.quality_badge(found, result)
            st.caption(
                f"{format.plain(verdict.counted(result))} of all points, "
                f"{format.duration(result.get('wall_s'))}. "
                + ("" if found.grade == "A" else f"{reason} {remedy}"),
                width="content",
            )
            actions()


def _remarks(complete: Sequence[Measured], race: Comparison | None, busy: Mapping[str, str]) -> None:
    """What a reader of the points must know of the machine, and of races of earlier versions."""
    own = race.id if race is not None else ""
    if race is not None:
        common.busy_note(race.result)
    if any(row.cut_short for row in complete):
        st.caption(
            ":material/cancel: Points of a cancelled race are drawn by its rounds until then, unranked."
        )
    if any(busy.get(row.race) for row in complete if row.race != own):
        st.caption(":material/groups: Points that were reused ran on a busy machine: see the table.")
    if any(row.contrast is not None and verdict.is_older(row.contrast) for row in complete):
        st.caption(f":material/info: {verdict.OLDER}")


def _failures(rows: Sequence[Measured]) -> None:
    """Say what has no numbers, and why: points that failed, and those that no configuration allows."""
    for row in rows:
        if row.state != "FAIL" or row.same is not None:
            continue
        trial = state.store().trial(row.trial)
        error = trial.error
        hint = f"\n\n**What to do:** {format.plain(error['hint'])}" if error and error["hint"] else ""
        st.error(
            format.plain(row.error) + hint,
            title=f"{format.plain(point_name(row.values))} failed",
            icon=":material/error:",
        )
    refused = [row for row in rows if row.state == REFUSED]
    if refused:
        lines = [f"- {point_name(row.values)}: {row.error}" for row in refused]
        st.warning(
            "\n".join(map(format.plain, lines)),
            title=f"{len(refused)} of {len(rows)} combinations are refused",
            icon=":material/block:",
        )
    alike = [row for row in rows if row.same is not None]
    if alike:
        said = "; ".join(
            f"{point_name(row.values)} is {point_name(row.same or {})} ({row.why})" for row in alike[:4]
        )
        more = f"; and {len(alike) - 4} more, see the table" if len(alike) > 4 else ""
        st.caption(f":material/content_copy: Measured once: {format.plain(said)}{more}.")


def _statistic(complete: Sequence[Measured]) -> str:
    names = [n for n in PERCENTILE_NAMES if any((row.latency or {}).get(n) for row in complete)]
    names = names or ["mean_s"]
    if st.session_state.get(STATISTIC) not in names:
        default = supported_percentile(complete)
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
        help="Type it, move the slider, or put it at a point: click the point, then Latency line here.",
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


def _verdict(complete: Sequence[Measured], stands: Standing, busy: Mapping[str, str]) -> None:
    """Name the best point, and against which it is inconclusive."""
    best, line_s, percentile = stands.best, stands.line_s, stands.percentile
    name = curve_charts.STATISTICS[percentile]
    if not any(row.ranked for row in complete):
        return
    if best is None:
        line = f" at or under {brief(line_s * 1e3)} ms" if line_s is not None else ""
        st.warning(
            _joined(f"No point has a {name}{line}.", [_unsupported(complete, percentile)]),
            icon=":material/block:",
        )
        return
    text = f"{sweep_words.head(stands)}: **{_in_words(best, percentile, busy)}**."
    remarks = [sweep_words.others(stands), sweep_words.few_processes(complete)]
    if line_s is None:
        remarks.append("Set a latency line to find the best point that still answers in time.")
        st.info(_joined(text, remarks), icon=":material/info:")
        return
    sure = surely_under(best, line_s, percentile)
    words = (
        f"Its whole 95 % interval lies under the line of {brief(line_s * 1e3)} ms."
        if sure
        else f"Its {name} is under the line of {brief(line_s * 1e3)} ms, but the 95 % interval reaches above "
        "it or is not known: measure with more effort before relying on it."
    )
    text = _joined(text, [remarks[0], words, remarks[1], _unsupported(complete, percentile)])
    if sure and not stands.inconclusive:
        st.success(text, icon=":material/check_circle:")
    else:
        st.info(text, icon=":material/help:")


def _joined(text: str, remarks: Sequence[str]) -> str:
    return " ".join([text, *(format.plain(one) for one in remarks if one)])


def _unsupported(complete: Sequence[Measured], percentile: str) -> str:
    missing = [row for row in complete if row.ranked and (row.latency or {}).get(percentile) is None]
    if not missing:
        return ""
    names = "; ".join(point_name(row.values) for row in missing)
    return f"Not judged, because their runs do not support a {curve_charts.STATISTICS[percentile]}: {names}."


def _in_words(row: Measured, percentile: str, busy: Mapping[str, str]) -> str:
    ran = charts.provider_label(row.providers, row.requested, fallback=row.fallback)
    latency = f"{curve_charts.STATISTICS[percentile]} {format.ms((row.latency or {}).get(percentile))}"
    text = f"{point_name(row.values)}: {sweep_words.rate(row)} at {latency}"
    text += f" ({ran})" if row.fallback else ""
    text += f" · {BUSY}" if busy.get(row.race) else ""
    return format.plain(text + (f" – {WARNING} {MARK}" if row.breach else ""))
