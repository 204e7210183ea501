"""A trial's comparison on the screen: verdict card, both sides over time, cold start, cost.

The words come from `verdict` and `cells`; this module draws them. It only reads the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.evidence.cold_start import break_even
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial, model_text
from core.evidence.quality import quality
from core.evidence.streams import p50_words
from core.evidence.verdict import is_rejected
from core.show import cells, verdict
from core.wire.errors import TunerError
from dashboard import format, messages, state
from dashboard.charts import compare_charts, latency_charts, timeline_charts
from dashboard.widgets import (
    controls,
    glossary,
    latency_plots,
    live_text,
    page_frame,
    plots,
    results,
    sharing,
)
from dashboard.widgets.live_text import ComparedConfigurations

WORDS = (
    *("ratio", "round", "launch", "95 % interval", "verdict", "equivalence margin", "A/A control"),
    *("undisturbed rounds", "per sample", "grade", "background load"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialComparison:
    """A trial, its comparison, and the other configurations of that comparison."""

    trial: Trial
    comparison: Comparison
    contrasts: list[verdict.Contrast]  # of the trial; the first is the main one
    baseline: Trial | None  # measured again in the same rounds; None: the trial is the baseline itself
    others: list[Trial]  # the rest of the comparison

    @property
    def beside(self) -> list[Trial]:
        """Return the other configurations, the baseline first."""
        return [*([self.baseline] if self.baseline is not None else []), *self.others]

    @property
    def contrast(self) -> verdict.Contrast | None:
        """Return the main contrast; None: the trial was compared with nothing."""
        return self.contrasts[0] if self.contrasts else None


def comparison_of(trial: Trial) -> TrialComparison | None:
    """Return the comparison of `trial`; None: it never was in one, or the store no longer has it."""
    if not trial.comparison:
        return None
    try:
        comparison = state.store().comparison(trial.comparison)
    except TunerError:  # deleted meanwhile
        return None
    own = verdict.contrasts_of(comparison, trial.id)
    beside = [
        found
        for one in comparison.contestants
        if one.trial != trial.id
        if (found := state.trial_if_kept(one.trial))
    ]
    against = own[0]["baseline"] if own else None
    return TrialComparison(
        trial=trial,
        comparison=comparison,
        contrasts=own,
        baseline=next((one for one in beside if one.id == against), None),
        others=[one for one in beside if one.id != against],
    )


# --- the verdict --------------------------------------------------------------------------------------------


def card(compared: TrialComparison) -> None:
    """Draw the verdict, the interval, and the confidence."""
    with st.container(key="verdict", gap="xsmall"):
        head(compared.trial, compared)
        if compared.contrasts:
            forest(compared)
        card_details(compared)


def head(
    trial: Trial,
    compared: TrialComparison | None,
    actions: Callable[[], None] = lambda: None,
    *,
    settings: bool = True,
) -> None:
    """Draw the answer in a sentence with its interval, its reference, and the facts that change its meaning.

    Args:
        trial: the shown one.
        compared: its comparison; None: it never was in one.
        actions: draws buttons at the end of the row.
        settings: draw those of the trial; off where a form beside it shows them.
    """
    if compared is None or not compared.contrasts:
        _without_contrast(trial, compared, actions, settings=settings)
        return
    said = verdict.card(compared.comparison, compared.contrasts[0])
    _headline(format.icon(said.icon), said.headline, actions)
    _about(trial, compared, said.against, settings=settings)
    for contrast in compared.contrasts[1:]:
        _further(compared, contrast, said.reason)


def card_details(compared: TrialComparison) -> None:
    """Draw the cautions, the amount of data, what would narrow the interval, and the confidence details."""
    if not compared.contrasts:
        _self_test(compared)
        return
    said = verdict.card(compared.comparison, compared.contrasts[0])
    if said.rejected:
        parts = (verdict.sentence(one) for one in (said.reason, said.advice) if one)
        st.error(f"**Why it was rejected.** {format.plain(' '.join(parts))}", icon=":material/block:")
    for line in said.warnings:
        st.markdown(f":orange[:material/warning:] {format.plain(line)}")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover("Confidence details", icon=":material/help_center:", key="sure"):
            _confidence_details(compared, said)
        st.caption(format.plain(" · ".join(said.facts)), width="content")
    if said.advice and not said.rejected:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(f":material/lightbulb: {format.plain(said.advice)}", width="content")
            page_frame.link("machine", "Noise check", icon="monitor_heart")


def warnings(compared: TrialComparison | None) -> list[str]:
    """Return the cautions on the card; the remarks next to the numbers need not repeat them."""
    if compared is None or not compared.contrasts:
        return []
    return verdict.card(compared.comparison, compared.contrasts[0]).warnings


def _confidence_details(compared: TrialComparison, said: verdict.Card) -> None:
    """Draw the evidence for the interval, other processes, and the meaning of the grade."""
    result = compared.comparison.facts
    if said.noise:
        st.caption(f":material/align_horizontal_center: {format.plain(verdict.sentence(said.noise))}")
    results.other_processes_note(compared.comparison.result)
    if not said.rejected and (reason := str(result.get("grade_reason") or "")):
        st.caption(f":material/info: {format.plain(reason)} {format.plain(result.get('remedy') or '')}")
    for note in result.get("notes") or []:
        st.caption(f":material/info: {format.plain(verdict.sentence(str(note)))}")
    glossary.terms(*WORDS)


def _headline(icon: str, text: str, actions: Callable[[], None]) -> None:
    with st.container(key="headline"):
        st.header(f"{icon} {format.plain(text)}", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="headline.actions"):
        actions()


def _about(trial: Trial, compared: TrialComparison | None, against: str = "", *, settings: bool) -> None:
    """Draw one line: reference, confidence, settings if asked for, providers."""
    result = trial.facts
    judged = compared.comparison.facts if compared is not None else result
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="about"):
        if against:
            st.caption(format.plain(against), width="content")
        results.tolerance_badge(trial.result)
        contrasts = compared.contrasts[:1] if compared is not None else []
        results.quality_badge(quality(judged, contrasts), judged)
        if settings:
            try:
                controls.spec_badges(state.trial_spec(trial), model_text(trial.result))
            except TunerError as error:
                st.caption(format.plain(error.message), width="content")
        ran = ", ".join(format.provider(name) for name in result.get("effective_providers") or ())
        if result.get("fallback"):
            st.badge(
                f"fallback to {ran}",
                icon=":material/warning:",
                color="orange",
                help=results.fallback_reason(result),
            )
        elif ran:
            st.badge(ran, icon=":material/memory:", color="gray", help="The execution providers used.")


def _further(compared: TrialComparison, contrast: verdict.Contrast, reason: str) -> None:
    more = verdict.card(compared.comparison, contrast)
    st.markdown(f"{format.icon(more.icon)} {format.plain(f'{more.headline}, {more.against}')}")
    if more.rejected and more.reason != reason:
        st.caption(f":material/block: {format.plain(more.reason)}")


def _without_contrast(
    trial: Trial, compared: TrialComparison | None, actions: Callable[[], None], *, settings: bool
) -> None:
    """Describe a trial without a contrast: it is the baseline of the others, or those failed."""
    result = trial.facts
    failed = [one for one in compared.others if one.error] if compared is not None else []
    rate = next((one.value for one in _latency(trial, compared) if one.name == "throughput_per_s"), "")
    words = " · ".join([f"{p50_words(trial.facts)} {format.ms(trial.p50_s)}", *([rate] if rate else [])])
    _headline(":material/flag:", words, actions)
    _about(trial, compared, settings=settings)
    for one in failed:
        name = verdict.label(compared.comparison, one.id) if compared is not None else one.id[:8]
        said = one.error["message"] if one.error else ""
        st.warning(
            f"No comparison: {format.plain(name)} failed. {format.plain(said)}", icon=":material/person_off:"
        )
    if compared is not None and not failed:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption("This is the baseline. Change a setting and run again, or:", width="content")
            page_frame.link("search", "Find the best settings")
    if compared is None and (reason := result.get("grade_reason")):
        st.caption(f":material/info: {format.plain(reason)}")


def _self_test(compared: TrialComparison) -> None:
    """Describe the A/A test of a baseline, and the other processes that used the machine."""
    results.other_processes_note(compared.comparison.result)
    lines = verdict.self_test_lines(compared.comparison)
    reason = compared.comparison.facts.get("grade_reason")
    if not lines and not reason:
        return
    with st.popover("Confidence details", icon=":material/help_center:", key="sure"):
        if lines:
            st.markdown(
                "A/A control (1× is expected):\n" + "\n".join(f"- {format.plain(line)}" for line in lines)
            )
        if reason:
            st.caption(f":material/info: {format.plain(reason)}")


def forest(compared: TrialComparison) -> None:
    """Draw the interval; with two references, each interval is named after its reference."""
    info = compare_charts.trial_forest_info(compared.comparison, compared.contrasts)
    plots.draw(
        compare_charts.forest(info, slim=True),
        "Speed versus reference",
        key="duel.forest",
        alt="Speed of this trial versus the reference, with its 95 % interval and the equivalence margin",
    )


def explain_link(baseline: str, candidate: str) -> None:
    """Draw the link to Explain with a pair of trials."""
    words = "Profiles both and compares them operator by operator."
    page_frame.link("explain", "Explain", help=words, a=baseline, b=candidate)


def pin_button(model_sha256: str, trial: str, *, is_pinned: bool, key: str) -> None:
    """Draw the button that pins a trial as the baseline of its model, or unpins it."""
    st.button(
        "Unpin baseline" if is_pinned else "Pin as baseline",
        key=key,
        icon=":material/keep_off:" if is_pinned else ":material/keep:",
        on_click=_pin,
        args=(model_sha256, None if is_pinned else trial),
        **sharing.unless_of_others(
            [trial],
            "Later runs of this model are compared with ONNX Runtime's default again."
            if is_pinned
            else "Later runs of this model are compared with it, for all users of this server.",
        ),
    )


def _pin(model_sha256: str, trial: str | None) -> None:
    try:
        state.store().pin_baseline(model_sha256, trial)
    except TunerError as error:
        messages.keep_error(error)


def offer_comparison(trial: Trial, pinned: Trial) -> None:
    """Say that `trial` and the pinned baseline never ran in the same rounds, and offer to compare them."""
    with st.container(key="never_raced", gap="xxsmall"):
        name = f"trial `{pinned.id[:8]}`, {format.when(pinned.finished_at)}"
        differ = format.plain("; ".join(cells.differences(trial, pinned)))
        st.caption(
            f":material/history_toggle_off: The pinned baseline ({name}) was measured at "
            f"another time; no comparison. {differ}"
        )
        page_frame.link("compare", "Compare now", icon="sports_score", trials=f"{trial.id},{pinned.id}")


# --- both sides ---------------------------------------------------------------------------------------------


def latencies(trial: Trial, compared: TrialComparison | None, key: str) -> None:
    """Draw latency over time with disturbances, and the distribution, of a trial and its baseline."""
    over_time, distribution = st.tabs(
        ["Latency over time", "Distribution"], key=f"{key}.plots", on_change="rerun"
    )
    with over_time:
        if over_time.open:
            latency_over_time(trial, compared, key)
    with distribution:
        if distribution.open:
            latency_distribution(trial, compared, key)


def latency_over_time(trial: Trial, compared: TrialComparison | None, key: str, *, height: int = 0) -> None:
    """Draw the runs of a trial and its baseline over time, with the disturbances.

    Args:
        trial: the shown one.
        compared: its comparison, if it had one.
        key: prefix of the chart's keys.
        height: of the chart in pixels; 0: automatic.
    """
    sides = _sides(trial, compared)
    if not sides:
        return
    others = compared.others if compared is not None else []
    comparison = compared.comparison if compared is not None else None
    beside = (
        {one.id: latency_charts.side(one, verdict.label(comparison, one.id)) for one in others}
        if comparison is not None
        else {}
    )
    info = latency_plots.timeline_of(sides, beside)
    latency_plots.over_time(info, key=f"{key}.timeline", words=_strip_words(info), height=height)


def latency_distribution(trial: Trial, compared: TrialComparison | None, key: str) -> None:
    """Draw the distributions of a trial and its baseline."""
    if sides := _sides(trial, compared):
        latency_plots.distribution([*sides.values()], key=key)


def _sides(trial: Trial, compared: TrialComparison | None) -> dict[str, latency_charts.Side]:
    """Return the trial and its baseline by id; without samples, say so and return none."""
    baseline = compared.baseline if compared is not None else None
    sides = {trial.id: latency_charts.side(trial, "this trial" if baseline is not None else "")}
    if compared is not None and baseline is not None:
        sides[baseline.id] = latency_charts.side(baseline, verdict.label(compared.comparison, baseline.id))
    if pruned := latency_charts.pruned([*sides.values()]):
        results.pruned_note(pruned if len(pruned) < len(sides) else ())
    return {} if len(pruned) == len(sides) else sides


def _strip_words(info: timeline_charts.Timeline) -> str:
    if info.strip is None:
        return timeline_charts.NO_COUNTERS
    return f"{info.strip.flagged:,} of {len(info.strip.hover):,} blocks disturbed"


# --- start-up and cost --------------------------------------------------------------------------------------


def cold_start(trial: Trial, compared: TrialComparison | None) -> None:
    """Draw the start-up cost, and the number of runs after which the faster side has repaid it."""
    result, baseline = trial.facts, _result(compared)
    shown = cells.cold_cells(result, baseline)
    contrast = compared.contrast if compared is not None else None
    found = break_even(result, baseline, contrast) if contrast is not None and baseline else None
    if found is not None:
        rejected = is_rejected(contrast)
        shown.append(cells.break_even_cell(replace(found, kind="unknown") if rejected else found))
    results.grid(shown, key="cold_start")
    warm = len(result.get("warmup_latencies_s") or [])
    if warm:
        settled = "until the latency was steady" if result.get("steady") else "not until steady"
        st.caption(f":material/info: {warm:,} warm-up runs, {settled}, not in the numbers above.")


def cost(trial: Trial, compared: TrialComparison | None) -> None:
    """Draw the cost of a run besides its latency."""
    found = cells.cost_cells(trial.facts, _result(compared))
    results.grid([one for one in found if one.name not in FIRST], key="cost")


def _result(compared: TrialComparison | None) -> Mapping[str, Any] | None:
    return compared.baseline.result if compared is not None and compared.baseline is not None else None


def unfinished(trial: Trial, key: str) -> None:
    """Draw why a trial did not complete, and what was measured until then.

    Args:
        trial: that failed or was cancelled.
        key: prefix of the chart's keys.
    """
    results.failed(trial)
    if trial.p50_s is not None:
        compared = comparison_of(trial)
        if compared is not None:  # there is no card that says it
            results.other_processes_note(compared.comparison.result)
        latency_over_time(trial, compared, key)
        numbers(trial, compared)


FIRST = ("p50_s", "p95_s", "throughput_per_s", cells.PEAK_MEMORY)  # names of the cells


def numbers(trial: Trial, compared: TrialComparison | None) -> None:
    """Draw the four main numbers, with the verdict and the numbers of the other configurations."""
    result = trial.facts
    results.outputs(result, agree=False)
    if compared is None or not verdict.background_load_text(
        compared.comparison.result
    ):  # otherwise the card has said it
        results.other_processes_note(result)
    shown = [*_latency(trial, compared), *cells.cost_cells(result, _result(compared))]
    results.strip([one for one in shown if one.name in FIRST], key="numbers")


def latency(trial: Trial, compared: TrialComparison | None) -> None:
    """Draw the other latencies, and the output error."""
    outputs = cells.outputs_cell(trial.facts)
    shown = [one for one in _latency(trial, compared) if one.name not in FIRST]
    results.grid([*shown, *([outputs] if outputs is not None else [])], key="latencies")


def _latency(trial: Trial, compared: TrialComparison | None) -> list[cells.Cell]:
    return cells.latency_cells(
        trial.facts, _result(compared), compared.contrast if compared is not None else None
    )


# --- while it runs ------------------------------------------------------------------------------------------


def compared_configurations(trial: Trial) -> ComparedConfigurations:
    """Return the configurations compared with `trial`; empty when the comparison was deleted."""
    try:
        comparison = state.store().comparison(trial.comparison)
    except TunerError:
        return ComparedConfigurations(labels={}, rows={})
    return live_text.compared_configurations(comparison, state.store().trials_of(comparison.id))
