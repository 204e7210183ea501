"""The results of a sweep: latency limit, best point, charts, table, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api.sweeping import (
    REFUSED,
    Measured,
    SweepRanking,
    rank_points,
    supported_percentile,
    surely_within_limit,
)
from core.evidence.comparison import Comparison
from core.evidence.quality import BUSY, quality
from core.evidence.verdict import is_rejected
from core.show import verdict
from core.show.sheets import sweeps
from core.spec.axes import PERCENTILE_NAMES, point_name
from core.wire.output_check import OUTPUTS_DIFFER, WARNING
from core.wire.units import brief
from dashboard import charts, format, state
from dashboard.charts import sweep_charts
from dashboard.live_events import ACTIVE
from dashboard.views.sweep import details, plots
from dashboard.views.sweep.shown_sweep import LIMIT_MS, ShownSweep
from dashboard.widgets import collapsible
from dashboard.widgets import results as common

LINE_NUMBER, LINE_SLIDER = "sweep.line.number", "sweep.line.slider"
STATISTIC = "sweep.statistic"
SLIDER_STEPS = 60


def results(shown: ShownSweep, limit: DeltaGenerator) -> None:
    """Draw the results.

    Args:
        shown: the sweep.
        limit: the place of the latency limit.
    """
    rows = shown.rows
    complete = [row for row in rows if row.latency]
    if not complete:
        _failures(rows)
        _before(shown) if any(row.state in ACTIVE for row in rows) else _empty()
        return
    with limit:
        percentile = _statistic(complete)
        line_s = _line(complete, percentile)
    ranking = rank_points(rows, line_s=line_s, percentile=percentile, margin=shown.margin)
    rejected = shown.comparison is not None and is_rejected(shown.comparison.facts)
    remarks = [] if rejected else _verdict(complete, ranking, shown.busy)
    if rejected:
        st.subheader(":material/block: Rejected: these points are not ranked", anchor=False)
    plots.draw(shown, ranking, partial(_grade, shown.comparison))
    _remarks(remarks, shown.comparison)
    _failures(rows)
    details.draw(shown, ranking)
    inside = partial(_details, complete, shown.comparison, shown.busy)
    collapsible.group("Confidence details", inside, key="sweep.confidence", icon="fact_check")


def _empty() -> None:
    with st.container(border=True):
        st.markdown(
            ":material/show_chart: **No points yet.** Choose a setting and its values, then "
            "press **Measure**."
        )


def _before(shown: ShownSweep) -> None:
    """Draw the newest earlier sweep over the same settings, until this one has points."""
    for earlier in shown.ghosts()[:1]:
        rows = earlier.points
        ranking = rank_points(rows, line_s=None, percentile=supported_percentile(rows), margin=shown.margin)
        before = replace(shown, rows=rows, comparison=None)
        plots.draw(before, ranking, partial(_marked, earlier.name))
        details.draw(before, ranking)


def _marked(name: str) -> None:
    st.badge(name, icon=":material/history:", color="gray")


def _remarks(said: Sequence[str], comparison: Comparison | None) -> None:
    """Draw what limits the best point, why the comparison was rejected, and the background load."""
    result = comparison.facts if comparison is not None else {}
    if is_rejected(result):
        common.rejected(result)
    if words := " ".join(format.plain(one) for one in said if one):
        st.caption(words)
    if comparison is not None:
        common.other_processes_note(comparison.result)


def _grade(comparison: Comparison | None) -> None:
    result = comparison.facts if comparison is not None else {}
    if (found := quality(result)) and not is_rejected(result):
        common.quality_badge(found, result)


def _details(complete: Sequence[Measured], comparison: Comparison | None, busy: Mapping[str, str]) -> None:
    """Draw how the points were measured, with notes on background load and on earlier versions."""
    result = comparison.facts if comparison is not None else {}
    if (found := quality(result)) and not is_rejected(result):
        reason, remedy = (format.plain(str(result.get(name) or "")) for name in ("grade_reason", "remedy"))
        st.caption(
            f"{format.plain(verdict.rounds_words(result))} of all points, "
            f"{format.duration(result.get('wall_s'))}. "
            + ("" if found.grade == "A" else f"{reason} {remedy}")
        )
    st.caption("Each process counts as one cluster in the 95 % intervals.")
    own = comparison.id if comparison is not None else ""
    if any(busy.get(row.comparison) for row in complete if row.comparison != own):
        st.caption(":material/groups: Reused points were measured under background load: see the table.")
    if any(row.contrast is not None and verdict.is_older(row.contrast) for row in complete):
        st.caption(f":material/info: {verdict.OLDER}")


def _failures(rows: Sequence[Measured]) -> None:
    """Report points without numbers and the reason: failed ones, and invalid configurations."""
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
            "Percentile of the limit",
            names,
            key=STATISTIC,
            required=True,
            format_func=lambda name: sweep_charts.STATISTICS[name],
            persist_state="session",
            help="Needs enough runs per point: p95 72, p99 368.",
        )
    )


def _line(complete: Sequence[Measured], percentile: str) -> float | None:
    """Draw the number field and the slider of the latency limit, both for one value; return it in seconds."""
    options = _line_options(complete, percentile)
    current = st.session_state.get(LIMIT_MS)
    st.session_state[LINE_NUMBER] = current
    st.session_state[LINE_SLIDER] = current
    if current is not None:
        options = sorted({*options, current})  # so that the slider shows the exact limit
    st.number_input(
        "Latency limit (ms)",
        value=None,
        format="%.6g",
        key=LINE_NUMBER,
        placeholder="none",
        on_change=_line_from,
        args=(LINE_NUMBER,),
        help="Longest latency that a point may have. Type it, move the slider, or click a "
        "point and press Set as limit.",
    )
    st.select_slider(
        "Latency limit slider",
        [None, *options],
        key=LINE_SLIDER,
        format_func=lambda one: "none" if one is None else f"{one:g} ms",
        on_change=_line_from,
        args=(LINE_SLIDER,),
        label_visibility="collapsed",
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
    st.session_state[LIMIT_MS] = float(value) if value else None


def _verdict(complete: Sequence[Measured], ranking: SweepRanking, busy: Mapping[str, str]) -> Sequence[str]:
    """Draw the best point in one sentence; return what makes it uncertain."""
    best, line_s, percentile = ranking.best, ranking.line_s, ranking.percentile
    name = sweep_charts.STATISTICS[percentile]
    if any(row.cut_short for row in complete):
        st.caption(":material/cancel: Cancelled: partial results, not ranked.")
    if not any(row.ranked for row in complete):
        return []
    unsupported = _unsupported(complete, percentile)
    if best is None:
        line = f" at or under {brief(line_s * 1e3)} ms" if line_s is not None else ""
        st.subheader(f":material/block: No point has a {name}{line}.", anchor=False)
        return [unsupported]
    sure = line_s is not None and surely_within_limit(best, line_s, percentile)
    doubt = (
        "" if sure or line_s is None else f"Its {name} may be over the limit: the interval is not below it."
    )
    decided = (sure or line_s is None) and not ranking.inconclusive
    icon = ":material/check_circle:" if decided else ":material/help:"
    st.subheader(f"{icon} {sweeps.head(ranking)}: {_in_words(best, percentile, busy)}", anchor=False)
    return [sweeps.others(ranking), doubt, sweeps.few_processes(complete), unsupported]


def _unsupported(complete: Sequence[Measured], percentile: str) -> str:
    missing = [row for row in complete if row.ranked and (row.latency or {}).get(percentile) is None]
    if not missing:
        return ""
    names = "; ".join(point_name(row.values) for row in missing)
    return f"Not judged, too few runs for {sweep_charts.STATISTICS[percentile]}: {names}."


def _in_words(row: Measured, percentile: str, busy: Mapping[str, str]) -> str:
    ran = charts.ran_label(row.result)
    latency = f"{sweep_charts.STATISTICS[percentile]} {format.ms((row.latency or {}).get(percentile))}"
    text = f"{point_name(row.values)}: {sweeps.rate(row)} at {latency}"
    text += f" ({ran})" if row.fallback else ""
    text += f" · {BUSY}" if busy.get(row.comparison) else ""
    return format.plain(text + (f" – {WARNING} {OUTPUTS_DIFFER}" if row.breach else ""))
