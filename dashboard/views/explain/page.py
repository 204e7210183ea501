"""Explain page: profile two results of a model alternately and attribute the difference in time."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence, Set

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core import wire
from core.api.explaining import (
    Pair,
    comparison_of_pair,
    end_to_end_of,
    explain_job,
    explained,
    explained_at,
    explanations,
    pair,
)
from core.api.measuring import compare_job, measure_longer_job
from core.api.session import Status
from core.evidence.measurement import Trial
from core.evidence.profile_difference import Difference
from core.evidence.streams import p50_words
from core.evidence.verdict import is_rejected
from core.show import setting_chips, verdict
from core.show.report.subjects import AboutDifference
from core.store import ModelRecord
from core.wire import engines
from core.wire.errors import TunerError
from core.wire.output_check import OUTPUTS_DIFFER, breach
from dashboard import format, messages, session_jobs, state
from dashboard.shown_result import ShownResult
from dashboard.views.explain import results as why_results
from dashboard.widgets import controls, job_box, page_frame, past_results, report, results
from dashboard.widgets.protocol import wait_quiet_s

BASELINE_PARAM, CANDIDATE_PARAM = "a", "b"  # ?a=<id>&b=<id>
SHOWN = ShownResult("explain.shown", (BASELINE_PARAM, CANDIDATE_PARAM))  # ids of the pair

# session keys
BASELINE, CANDIDATE = "explain.baseline", "explain.candidate"
PICKED = "explain.earlier"
LIMIT = 100
EARLIER = 30
KINDS = ("measure", "reference")
EXPLAIN = "Explain"
RESULTS, RESULTS_PX = "explain.results", 560
SETTINGS_SHOWN = 90  # characters
ABOUT = "Profiles two results in turns, and matches their nodes through ONNX Runtime's fusions."


def page() -> None:
    bar = page_frame.bar("Explain", ABOUT)
    messages.show_kept_error()
    _follow_link()
    with bar.model:
        record = controls.model_picker()
    if record is None:
        return
    before = _earlier(record)
    _open_newest(record, before)
    trials = _trials(record)
    of = _pick(trials, bar.choice, before)
    if of is None:
        bar.disabled_action(EXPLAIN, "Choose two results first.")
        return
    found = _explained(of)
    job = _job(of)
    _buttons(of, job, found, bar)
    _live(of, job)
    if found is not None:
        _rejected(of)
        why_results.result(found, lambda: _sides(of))
    elif not session_jobs.is_active(job):
        _sides(of)
        _empty()


# --- choosing two results ---------------------------------------------------------------------------------


def _follow_link() -> None:
    """Apply the baseline, the candidate and the model of `?a=&b=`, once per link."""
    linked = (SHOWN.take_link() or "").split(" ")
    if not any(linked):
        return
    try:
        found = [state.store().trial(one) for one in linked if one]
        state.choose_model(state.find_model(state.trial_spec(found[-1]).model))
        if len(found) == len(linked):
            pair(state.store(), *linked)  # raises where the pair cannot be explained
    except TunerError as error:
        messages.report(error)
        return
    for key, one in zip((BASELINE, CANDIDATE), linked, strict=True):
        if one:
            st.session_state[key] = next(trial.id for trial in found if trial.id.startswith(one))


def _earlier(record: ModelRecord) -> dict[str, tuple[Trial, Trial]]:
    """Return the explained pairs of this model, newest first: key -> baseline and candidate."""
    store = state.store()
    candidates = [one.id for kind in KINDS for one in _complete(record, kind)]
    found = {}
    for one in explanations(store, candidates)[:EARLIER]:
        with contextlib.suppress(TunerError):  # one side was deleted
            found[f"{one[0]} {one[1]}"] = (store.trial(one[0]), store.trial(one[1]))
    return found


def _open_newest(record: ModelRecord, before: Mapping[str, tuple[Trial, Trial]]) -> None:
    """Select the newest explained pair where this session has chosen no result of this model."""
    if not SHOWN.is_new_model(record):
        return
    chosen = [one for key in (BASELINE, CANDIDATE) if (one := st.session_state.get(key))]
    own = {one.id for kind in KINDS for one in _complete(record, kind)} if chosen else set()
    if before and not own & set(chosen):
        _show_pair(next(iter(before)))


def _show_pair(name: str) -> None:
    st.session_state[BASELINE], st.session_state[CANDIDATE] = name.split()


def _offer(before: Mapping[str, tuple[Trial, Trial]], of: Pair | None) -> None:
    """Draw the list of explained pairs."""
    now = f"{of.baseline.id} {of.candidate.id}" if of is not None else ""
    past_results.offer(
        "Explained before",
        {name: _pair_label(*sides) for name, sides in before.items()},
        shown=now,
        key=PICKED,
        on_select=_show_pair,
        help="Explained pairs of this model, newest first.",
    )


def _pair_label(baseline: Trial, candidate: Trial) -> str:
    return f"{_short_label(candidate)} against {_short_label(baseline)}"


def _short_label(trial: Trial) -> str:
    return f"{trial.id[:8]} ({format.short(setting_chips.words(trial), 60)})"


def _complete(record: ModelRecord, kind: str) -> list[Trial]:
    return state.store().trials(model_sha256=record.content_sha256, kind=kind, state="COMPLETE", limit=LIMIT)


def _trials(record: ModelRecord) -> dict[str, Trial]:
    """Return complete measurements of the model that ORT's profiler supports, newest first.

    A trial that was only added as baseline or ORT default is included where it is chosen or shares the
    comparison of the candidate. The same holds for results of other models, such as a variant's original.
    """
    own = [one for kind in KINDS for one in _complete(record, kind)]
    newest = next((one.id for one in own if one.kind == "measure" and _usable(one)), "")
    candidate = st.session_state.get(CANDIDATE) or newest
    chosen = {st.session_state.get(BASELINE), candidate}
    usable = [one for one in (*own, *_of_other_models(record, chosen, own)) if _usable(one)]
    comparison = next((one.comparison for one in usable if one.id == candidate), "")
    shown = [
        one
        for one in usable
        if one.kind == "measure" or one.id in chosen or (comparison and one.comparison == comparison)
    ]
    return {one.id: one for one in sorted(shown, key=lambda one: -one.created_at)}


def _usable(trial: Trial) -> bool:
    return engines.can(trial.spec.get("engine", engines.DEFAULT), "profile")


def _of_other_models(record: ModelRecord, chosen: Set[str | None], own: Sequence[Trial]) -> list[Trial]:
    """Return chosen or compared results of other models, where a result of this model is chosen too."""
    store, found = state.store(), dict[str, Trial]()
    for one in own:
        if one.id in chosen and one.comparison:
            found |= {trial.id: trial for trial in store.trials_of(one.comparison)}
    for name in chosen if chosen & {one.id for one in own} else ():
        if name and (trial := state.trial_if_kept(name)):
            found[name] = trial
    return [
        one
        for one in found.values()
        if one.model_sha256 != record.content_sha256 and one.state == "COMPLETE" and one.p50_s
    ]


def _pick(
    trials: Mapping[str, Trial], place: DeltaGenerator, before: Mapping[str, tuple[Trial, Trial]]
) -> Pair | None:
    """Draw the choice of both results into `place`; report and return None where they form no pair."""
    if len(trials) < 2:
        with place:
            _offer(before, None)
        with st.container(border=True):
            st.markdown(
                ":material/troubleshoot: **Two results of this model are needed.** Measure other "
                "settings, or compare configurations."
            )
            with st.container(horizontal=True):
                page_frame.link("tune", "Tune")
                page_frame.link("compare", "Compare")
        return None
    _choose_defaults(trials)
    SHOWN.show(f"{st.session_state[BASELINE]} {st.session_state[CANDIDATE]}")
    of = _pair()
    with place:
        _offer(before, of)
        _results(trials)
        if len(before) < 2:
            named = (st.session_state[one][:8] for one in (CANDIDATE, BASELINE))
            st.caption(" vs ".join(named), width="content")
    return of


def _pair() -> Pair | None:
    try:
        return pair(state.store(), st.session_state[BASELINE], st.session_state[CANDIDATE])
    except TunerError as error:
        messages.report(error)
        return None


def _results(trials: Mapping[str, Trial]) -> None:
    """Draw the choice of the two results."""
    box = st.popover(
        "Results",  # a changing label would close the popover
        icon=":material/swap_horiz:",
        key=RESULTS,
        on_change="rerun",
        width="content",
        help="The two results to explain.",
    )
    if not box.open:
        return
    with box:
        with st.container(width=RESULTS_PX):
            _picker("Baseline", BASELINE, trials)
            _picker("Candidate", CANDIDATE, trials)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button("Swap", key="explain.swap", icon=":material/swap_vert:", on_click=_swap)
            page_frame.link("graph", "Candidate's graph", trial=st.session_state[CANDIDATE])


def _choose_defaults(trials: Mapping[str, Trial]) -> None:
    """Select the newest measurement, and as baseline that of its comparison or else the one before."""
    if st.session_state.get(CANDIDATE) not in trials:
        others = [one for one in trials.values() if one.id != st.session_state.get(BASELINE)]
        st.session_state[CANDIDATE] = next((one.id for one in others if one.kind == "measure"), others[0].id)
    candidate = trials[st.session_state[CANDIDATE]]
    if st.session_state.get(BASELINE) not in trials:
        compared = [one["baseline"] for one in candidate.facts.get("contrasts") or []]
        rest = [one for one in trials if one != candidate.id]
        st.session_state[BASELINE] = next((one for one in compared if one in rest), rest[0])


def _picker(name: str, key: str, trials: Mapping[str, Trial]) -> None:
    st.selectbox(
        name,
        list(trials),
        key=key,
        persist_state="session",
        format_func=lambda one: _label(trials[one]) if one in trials else str(one),
    )


def _label(trial: Trial) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    p50 = f"{p50_words(trial.result)} {format.ms(trial.p50_s)}"
    asked = format.short(setting_chips.words(trial), 90)
    beside = " · compared with another" if trial.kind == "reference" else ""
    differ = f" · {OUTPUTS_DIFFER}" if breach(trial.result) else ""
    busy = verdict.background_load_mark(trial.result)
    which = f"{trial.id[:8]} · {format.short(trial.model_name, 30)}"
    return f"{format.when(trial.created_at)} · {which} · {p50}{busy} · {asked}{beside}{differ}"


# --- explaining -------------------------------------------------------------------------------------------


def _explained(of: Pair) -> Difference | None:
    try:
        return _cached(of.baseline.id, of.candidate.id, explained_at(state.store(), of))
    except TunerError as error:
        messages.report(error)
        return None


@st.cache_resource(show_spinner=False, max_entries=8)
def _cached(baseline: str, candidate: str, made_at: float | None) -> Difference | None:
    """Match two results once: the profiles made at one moment never change."""
    return explained(state.store(), pair(state.store(), baseline, candidate)) if made_at else None


def _job(of: Pair) -> Status | None:
    """Return the job that explains this pair: this session's, or a running one of another session."""
    return job_box.find(_job_key(of), wire.EXPLAIN, of.what)


def _job_key(of: Pair) -> str:
    return f"explain.job.{of.baseline.id}.{of.candidate.id}"


def _buttons(of: Pair, job: Status | None, found: Difference | None, bar: page_frame.Bar) -> None:
    active, again = session_jobs.is_active(job), found is not None
    bar.action.button(
        "Explaining" if active else "Explain again" if again else EXPLAIN,
        key="explain.run",
        type="secondary" if again else "primary",
        icon=":material/troubleshoot:",
        shortcut="Ctrl+Enter",
        on_click=_start,
        args=(of,),
        **state.unless_closed(busy="Wait for the passes, or cancel them." if active else ""),
    )
    with bar.more:
        _comparison_button(of)
        if found is not None:
            report.offer(lambda: AboutDifference(pair=of, found=found), key="explain")


def _comparison_button(of: Pair) -> None:
    """Draw the button that measures an undecided pair longer, or compares the two for the first time."""
    end = end_to_end_of(state.store(), of)
    if end.decided:
        return
    if ended := verdict.continuable_comparison(state.store(), of):
        name, key, icon = "Measure longer", "explain.longer", ":material/more_time:"
        text = "Adds launches to the comparison of these two; finished rounds count."
    else:
        name, key, icon = "Compare these two", "explain.race", ":material/flag_check:"
        text = "They were never measured in the same rounds. This compares them."
        if end.raced:
            text = "Too little of their comparison is kept to continue it. This compares them again."
    if st.button(name, key=key, icon=icon, **state.unless_closed(text)):
        _start_comparison(of, ended)


def _start_comparison(of: Pair, ended: str) -> None:
    """Queue the comparison that would decide which one is faster, and show it."""
    try:
        job = (
            measure_longer_job(state.session(), ended, wait_quiet_s=wait_quiet_s())
            if ended
            else compare_job(
                state.session(),
                comparison_of_pair(of),
                study=f"why #{secrets.token_hex(4)}",
                model_name=of.candidate.model_name,
                different_models=of.different_models,
            )
        )
        comparison = session_jobs.submit(job)
    except TunerError as error:
        messages.report(error)
        return
    page_frame.switch_to("compare", comparison=comparison)


def _start(of: Pair) -> None:
    try:
        job = session_jobs.submit(explain_job(state.session(), of))
    except TunerError as error:
        messages.keep_error(error)
        return
    place = {BASELINE_PARAM: of.baseline.id, CANDIDATE_PARAM: of.candidate.id}
    session_jobs.follow(job, "explain", **place)
    st.session_state[_job_key(of)] = job


def _swap() -> None:
    st.session_state[BASELINE], st.session_state[CANDIDATE] = (
        st.session_state[CANDIDATE],
        st.session_state[BASELINE],
    )


def _live(of: Pair, job: Status | None) -> None:
    job_box.report_end(job)
    job_box.draw(job, "explain", what="this pair", help=job_box.NOTHING_KEPT)


def _rejected(of: Pair) -> None:
    """Report why there is no verdict, where the two were measured together and the result was rejected."""
    stored = [one for trial in (of.candidate, of.baseline) for one in trial.facts.get("contrasts") or []]
    names = {of.baseline.id, of.candidate.id}
    found = next((one for one in stored if {one["candidate"], one["baseline"]} == names), None)
    if is_rejected(found) and found is not None and found.get("holds_reason"):
        st.error(
            format.plain(f"{found['holds_reason']} {verdict.MEASURE_BETTER}"),
            title="Their comparison gives no verdict",
            icon=":material/block:",
        )


def _sides(of: Pair) -> None:
    """Draw the names of both results and their machine; once where it is the same."""
    sides = {"Candidate": of.candidate, "Baseline": of.baseline}
    st.caption(
        " · ".join(
            f"**{name}** {one.id[:8]}: {format.plain(format.short(setting_chips.words(one), SETTINGS_SHOWN))}"
            for name, one in sides.items()
        )
    )
    told = [one.result for one in (of.baseline, of.candidate)]
    for result in (
        told[:1] if verdict.background_load_text(told[0]) == verdict.background_load_text(told[1]) else told
    ):
        results.other_processes_note(result)


def _empty() -> None:
    with st.container(border=True):
        st.markdown(
            ":material/troubleshoot: **Not explained yet.** Press **Explain**: both are "
            "profiled in turns, which takes 15 s or more."
        )


page()
