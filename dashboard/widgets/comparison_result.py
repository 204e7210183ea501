"""A comparison on the screen: running with every interval, finished with ranks and table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.api.session import Status
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.quality import quality
from core.evidence.verdict import is_rejected
from core.show import comparison_text, verdict
from core.show.sheets import comparisons
from core.store import PRUNED
from core.wire.errors import TunerError
from dashboard import format, live_events, messages, state
from dashboard.charts import compare_charts, latency_charts
from dashboard.live_events import ACTIVE, Event
from dashboard.server import live
from dashboard.widgets import (
    collapsible,
    latency_plots,
    live_text,
    live_view,
    page_frame,
    playback,
    plots,
    results,
    tables,
)

TABLE = "compare.table"
PICTURE_PX = 420  # least height of a finished forest plot


def title(comparison: Comparison) -> None:
    """Draw the title of the comparison."""
    st.markdown(f"#### {format.plain(comparison_text.title(comparison))}")


# --- while it runs ----------------------------------------------------------------------------------------


def watch(comparison: Comparison, build: playback.Build, *, key: str, name: str = "") -> None:
    """Draw the running comparison: progress, every interval and p50 so far, and the failed configurations.

    Args:
        comparison: the running one.
        build: builds its events; from `events`.
        key: of the view.
        name: of the stream; empty: the usual one.
    """
    usual, follow = live_view.stream(comparison.id, build, partial(_elsewhere, comparison.id))
    tick_s = live_view.pace(comparison.id, comparison.state)
    live_view.watch(name or usual, follow, of=[comparison.id], key=key, tick_s=tick_s)


def events(comparison: Comparison, trials: live.CachedRead[list[Trial]]) -> playback.Build:
    """Return the function that builds the events of a comparison.

    Args:
        comparison: the running one.
        trials: reads their states.
    """
    field, share = live_text.compared_configurations(comparison, trials()), margin(comparison)

    def event(status: Status, _: float) -> Event:
        left = [one for one in trials() if one.state == "FAIL"]
        failed = {one.id: one.error["message"] for one in left if one.error is not None}
        return live_events.of_comparison(status, comparison, field, margin=share, failed=failed)

    return event


def _elsewhere(comparison_id: str) -> str | None:
    found = state.store().comparison(comparison_id)
    return f"Being measured by {found.owner}" if found.state in ACTIVE else None


def trials_of(comparison: Comparison) -> live.CachedRead[list[Trial]]:
    """Return a function that reads the trials of a comparison from the store, every few seconds at most."""
    return live.CachedRead(lambda: state.store().trials_of(comparison.id), live.OTHER_PROCESS_TICK_S)


def margin(comparison: Comparison) -> float:
    """Return the equivalence margin of the comparison, a share."""
    return float(comparison.protocol.get("margin") or 0.0)


# --- finished ---------------------------------------------------------------------------------------------


def finished(comparison: Comparison, trials: Mapping[str, Trial]) -> None:
    """Draw an ended comparison, complete or not: the answer, its plot, then the evidence."""
    if comparison.error and comparison.state != "CANCELLED":
        messages.report(comparison.error)
    if comparison.state == "CANCELLED":
        st.info("This comparison was cancelled.", icon=":material/cancel:")
    if not comparison.result:
        title(comparison)
        _failures(comparison, trials)
        return
    _headline(comparison)
    _forest(comparison)
    _failures(comparison, trials)
    chosen = _table(comparison, trials)
    _actions(comparison, chosen, trials)
    _plots(comparison, trials)
    count = len(comparison_text.cautions(comparison))
    told = f": {count} caution{'s' * (count != 1)}" if count else ""
    inside = partial(_details, comparison)
    collapsible.group(f"Confidence details{told}", inside, key="compare.details", icon="fact_check")


def _failures(comparison: Comparison, trials: Mapping[str, Trial]) -> None:
    named = comparison_text.labels(comparison)
    for trial in trials.values():
        if trial.state == "FAIL" and trial.error:
            messages.report(trial.error, f"{format.plain(named.get(trial.id, trial.id[:8]))} failed")


def _headline(comparison: Comparison) -> None:
    result = comparison.facts
    said = format.plain(comparison_text.headline(comparison))
    if is_rejected(result):
        results.rejected(result, said)
        results.other_processes_note(result)
        return
    st.markdown(f"#### {said}")
    results.other_processes_note(result)


def _forest(comparison: Comparison) -> None:
    info = compare_charts.comparison_forest_info(comparison)
    if info is None:
        return
    plots.draw(
        compare_charts.forest(info, least=PICTURE_PX),
        "Speed versus baseline",
        key="compare.forest",
        alt=f"Ratio of each configuration versus {info.baseline} with its 95 % interval.",
    )


def _noise(contrasts: Sequence[verdict.Contrast]) -> str:
    """Return the parts of the widest interval; empty if unknown."""
    known = [one for one in contrasts if verdict.noise_words(one)]
    if not known:
        return ""
    widest = max(known, key=lambda one: one["half_width"])
    return f"the widest is {verdict.noise_words(widest)}"


def _table(comparison: Comparison, trials: Mapping[str, Trial]) -> list[str]:
    """Draw the table and return the ids of the selected trials."""
    with st.container(key=TABLE):
        chosen = tables.draw(
            comparisons.configurations(comparison, trials.values()),
            key=f"{TABLE}.{comparison.id}",  # a selection belongs to one comparison
            on_select="rerun",
            alt="Rank, verdict versus baseline, and the numbers of every configuration",
        )
    ordered = comparison_text.order(comparison)
    return [ordered[index] for index in chosen["selection"]["rows"] if index < len(ordered)]


def _actions(comparison: Comparison, chosen: Sequence[str], trials: Mapping[str, Trial]) -> None:
    known = [trial for trial in chosen if trial in trials]
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="compare.actions"):
        results.quality_badge(quality(comparison.facts), comparison.facts)
        if comparison.state != "COMPLETE":
            results.state_badge(comparison.state)
        if not known:
            st.caption("Tick one configuration to open or profile it, two to explain their difference.")
            return
        if len(known) == 1:
            _single(trials[known[0]])
        pair = known[:2] if len(known) > 1 else [comparison_text.reference(comparison), known[0]]
        if pair[0] != pair[1] and all(trial in trials for trial in pair):
            other = "these two" if len(known) > 1 else "versus baseline"
            page_frame.link("explain", f"Explain {other}", a=pair[0], b=pair[1])


def _single(trial: Trial) -> None:
    if st.button("Open in Tune", key="compare.open", icon=":material/tune:", type="primary"):
        results.open_in_tune(trial)
    page_frame.link("profile", "Profile", trial=trial.id)
    page_frame.link("export", "Export", trial=trial.id)


def _details(comparison: Comparison) -> None:
    """Draw cautions, how it was measured, the scope of the intervals, the A/A test."""
    result = comparison.facts
    if lines := comparison_text.cautions(comparison):
        st.markdown("\n".join(f"- :material/warning: {format.plain(line)}" for line in lines))
    if not is_rejected(result) and result.get("grade") not in (None, "A"):
        reason, remedy = (format.plain(str(result.get(name) or "")) for name in ("grade_reason", "remedy"))
        st.caption(f":material/info: {reason} {remedy}".rstrip())
    _intervals(comparison)
    if tests := verdict.self_test_lines(comparison):
        st.markdown("**A/A control:** ONNX Runtime's default and a copy of itself")
        st.markdown("\n".join(f"- {format.plain(line)}" for line in tests))
        st.caption("Equal configurations should not differ: the difference is noise.")
    facts = format.plain(" · ".join(comparison_text.facts(comparison)))
    when = format.when(comparison.finished_at or comparison.created_at)
    st.caption(f"{facts} · Comparison `{comparison.id[:12]}` · {when} · {format.plain(comparison.owner)}")


def _intervals(comparison: Comparison) -> None:
    ordered = list(comparison_text.against_reference(comparison).values())
    noise = _noise(ordered)
    unit = " Times are per sample." if comparison_text.is_per_row(comparison) else ""
    st.caption(
        f"{comparison_text.intervals_text(comparison)}{f'; {noise}' if noise else ''}. Band: "
        f"differences under {100 * margin(comparison):g} %.{unit}"
    )


def _plots(comparison: Comparison, trials: Mapping[str, Trial]) -> None:
    """Draw latency over time and the distributions of all; the samples are read when the plot is opened."""
    measured = [one.result for one in trials.values() if one.result]
    if measured and all(PRUNED in one for one in measured):
        results.pruned_note()
        return
    over_time, distribution = st.tabs(
        ["Latency over time", "Distribution"], key="compare.plots", on_change="rerun"
    )
    if not (over_time.open or distribution.open):
        return
    sides = _sides(comparison, trials)
    if pruned := latency_charts.pruned([*sides.values()]):
        results.pruned_note(pruned)
    if len(pruned) == len(sides):
        return
    with over_time:
        if over_time.open:
            latency_plots.over_time(latency_plots.timeline_of(sides), key="compare.timeline")
    with distribution:
        if distribution.open:
            latency_plots.distribution([*sides.values()], key="compare")


def _sides(comparison: Comparison, trials: Mapping[str, Trial]) -> dict[str, latency_charts.Side]:
    named = comparison_text.labels(comparison)
    full = (_whole(one) for one in comparison_text.order(comparison) if one in trials)
    return {
        trial.id: latency_charts.side(trial, named[trial.id])
        for trial in full
        if trial is not None and trial.result
    }


def _whole(trial_id: str) -> Trial | None:
    """Return the trial with its samples; report damaged samples, so that the others are still drawn."""
    try:
        return state.store().trial(trial_id)
    except TunerError as error:
        messages.report(error)
        return None
