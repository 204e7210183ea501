"""Compare page: two to eight configurations against one baseline, measured in interleaved rounds."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.api.measuring import compare_job
from core.api.requests import Prediction, predict
from core.evidence.comparison import Comparison, Configuration, with_references
from core.evidence.measurement import Trial
from core.show.report.subjects import of_comparison
from core.show.words import counted
from core.spec.effort import DEFAULT_MARGIN, EFFORTS, Effort
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import configurations, format, messages, session_jobs, state
from dashboard.configurations import Entry
from dashboard.live_events import ACTIVE
from dashboard.shown_result import ShownResult
from dashboard.views.compare import add_menu, entry_list, imported, past_comparisons
from dashboard.widgets import (
    comparison_result,
    controls,
    job_box,
    measure_longer,
    page_frame,
    playback,
    report,
)
from dashboard.widgets.protocol import QUICK, effort, wait_for_quiet, wait_quiet_s

SHOWN = ShownResult("compare.shown", ("comparison",))
TRIALS = ShownResult("compare.trials.shown", ("trials",))  # those put into the list

# session keys
CLOSED = "compare.closed"  # the user closed a comparison: none opens by itself
PRECISION, MARGIN, BUDGET = "compare.precision", "compare.margin", "compare.budget"

SETTINGS_PX = 288


def page() -> None:
    shown = SHOWN.open(state.store().comparison, _load)
    _take_linked_trials()
    record = state.current_model()
    if record is not None and (shown is None or SHOWN.is_new_model(record)):
        shown = _newest(record)
    if shown is not None:
        st.session_state[CLOSED] = False
    active = shown is not None and shown.state in ACTIVE
    run = partial(_run, record, shown, _why_not(record, active=active))
    bar = page_frame.bar("Compare")
    with bar.model:
        controls.model_picker()
    with bar.choice:
        if record is not None:
            past_comparisons.offer(record, shown, SHOWN.link)
    trials = state.store().trials_of(shown.id) if shown is not None else []
    with bar.more:
        if shown is not None:
            _actions(shown, trials, active=active)
    with bar.action:
        run("compare.run")
    settings, result = page_frame.panes(SETTINGS_PX)
    with settings:
        if record is not None:
            _builder(record)
    with result:
        messages.show_kept_error()
        _result(shown, trials)
        imported.draw(shown)
        if record is not None:
            past_comparisons.table(record, SHOWN.link)
    page_frame.foot("compare", run)


# --- the shown comparison ---------------------------------------------------------------------------------


def _close() -> None:
    SHOWN.show(None)
    st.session_state[CLOSED] = True


def _newest(record: ModelRecord) -> Comparison | None:
    """Show the newest comparison of a model, whoever started it; the list does not change."""
    found = [] if st.session_state.get(CLOSED) else past_comparisons.of_model(record)
    newest = next((one for one in found if one.result or one.state in ACTIVE), None)
    SHOWN.show(newest.id if newest is not None else None)
    return newest


def _load(shown: Comparison) -> None:
    """Choose the model of a linked comparison; a session without a list takes its configurations."""
    if record := state.store().model(shown.model_sha256) if shown.model_sha256 else None:
        state.choose_model(record)
        if not entry_list.has_list():
            _load_into_list(shown)


def _take_linked_trials() -> None:
    """Put linked trials into the list, once per link."""
    linked = TRIALS.take_link()
    if not linked:
        return
    try:
        entry_list.replace_with_trials(
            [state.store().trial(one.strip()) for one in linked.split(",") if one.strip()]
        )
    except TunerError as error:
        messages.report(error)


# --- the form ---------------------------------------------------------------------------------------------


def _builder(record: ModelRecord) -> None:
    """Draw the list, effort, margin and budget."""
    entry_list.draw(record)
    add_menu.draw(record)
    messages.show_kept_error(entry_list.PLACE, "Not added to the list")
    entries = entry_list.entries(record)
    found, why_not = _predictions(record, entries)
    effort(PRECISION, predictions=found)
    st.caption(why_not or _prediction_text(found, len(entries)))
    entry_list.inputs(record)
    _limits()
    wait_for_quiet()


# --- effort and time --------------------------------------------------------------------------------------


def _limits() -> None:
    """Draw equivalence margin and time budget."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.number_input(
            "Margin (%)",
            value=None if MARGIN in st.session_state else 100 * DEFAULT_MARGIN,
            step=0.5,
            format="%.1f",
            key=MARGIN,
            width=entry_list.FIELD_PX,
            persist_state="session",
            help="Equivalence margin: two configurations are equivalent if their whole interval is within.",
        )
        st.number_input(
            "Time budget (s)",
            value=None,
            step=10,
            key=BUDGET,
            width=entry_list.FIELD_PX,
            persist_state="session",
            placeholder=str(_precision().budget_s),
            help="Seconds of measuring, after which open questions stay undecided. Empty: the "
            "effort's default.",
        )


def _precision() -> Effort:
    return EFFORTS[st.session_state.get(PRECISION) or QUICK]


def _configurations(
    record: ModelRecord, entries: Sequence[Entry], precision: str | None = None
) -> list[Configuration]:
    """Return the configurations to compare: one protocol for all, labels that tell each from the baseline.

    Args:
        record: the model of the list.
        entries: of the list.
        precision: the effort; None: the chosen one.

    Raises:
        SpecError: too few entries, or an invalid protocol.
    """
    configurations.check_count(entries)
    margin = st.session_state.get(MARGIN)
    specs = [
        configurations.with_protocol(
            one.spec,
            precision=precision or _precision().name,
            budget_s=st.session_state.get(BUDGET),
            margin=DEFAULT_MARGIN if margin is None else margin / 100,
        )
        for one in entries
    ]
    against = entry_list.baseline_index(entries)
    names = entry_list.names(record, entries)
    return [
        Configuration(
            spec=spec,
            label=name,
            role="baseline" if index == against else "candidate",
            model=entries[index].model or record.name,
        )
        for index, (spec, name) in enumerate(zip(specs, names, strict=True))
    ]


def _predictions(record: ModelRecord, entries: Sequence[Entry]) -> tuple[dict[str, Prediction], str]:
    """Return effort -> predicted duration, empty where unknown; and why no comparison can start."""
    if len(entries) < configurations.LEAST:
        return {}, "A comparison takes two to eight configurations."
    try:
        known = session_jobs.past_comparisons(record.content_sha256)
        asked = {name: _configurations(record, entries, name) for name in EFFORTS}
    except TunerError as error:
        return {}, format.plain(error.message)
    if known is None:
        return {}, ""
    return {
        name: predict([one.spec for one in with_references(comparison)], known)
        for name, comparison in asked.items()
    }, ""


def _prediction_text(found: Mapping[str, Prediction], count: int) -> str:
    """Return the predicted duration for the chosen effort, or that it is unknown."""
    chosen = _precision()
    budget_s = st.session_state.get(BUDGET) or chosen.budget_s
    limit = f"at most {budget_s} s"
    text = f"{count} configurations to ±{100 * chosen.target:.2g} %"
    if chosen.name not in found:
        return f"{text} · time unknown until this model is measured here, {limit}"
    one = found[chosen.name]
    text += f" · about {format.about(one.seconds)}, {counted(one.rounds, 'round')} · {limit}"
    return f"{text} · {one.late}" if one.late else text


# --- running ----------------------------------------------------------------------------------------------


def _run(record: ModelRecord | None, shown: Comparison | None, reason: str, key: str) -> None:
    """Draw the button that starts a comparison or replays the recorded one; `reason` disables it."""
    if shown is not None and playback.button(shown.id, key=key):
        return
    active = shown is not None and shown.state in ACTIVE
    count = len(entry_list.entries(record)) if record is not None else 0
    st.button(
        "Comparing" if active else f"Compare {count}" if count > 1 else "Compare",
        key=key,
        type="primary",
        icon=":material/flag_check:",
        shortcut="Ctrl+Enter" if key == "compare.run" else None,
        disabled=bool(reason),
        help=reason
        or ("Measures each configuration in its own process, in interleaved rounds of random order."),
        on_click=_start,
    )


def _why_not(record: ModelRecord | None, *, active: bool) -> str:
    """Return why no comparison can start now; empty when one can."""
    if reason := state.closed():
        return reason
    if record is None:
        return "Choose a model first."
    if active:
        return "A comparison is running; wait for it or cancel it."
    try:
        listed = entry_list.entries(record)
        configurations.check_count(listed)
    except TunerError as error:
        return f"{error.message} {error.hint}"
    if sum(entry_list.can_load(record, one) for one in listed) < configurations.LEAST:
        return "Fewer than two of these can be loaded on this machine; the list says which cannot."
    return ""


def _start() -> None:
    """Queue a comparison of the listed configurations."""
    record = state.current_model()
    if record is None:
        return
    try:
        job = compare_job(
            state.session(),
            _configurations(record, entry_list.entries(record)),
            study=f"compare #{secrets.token_hex(4)}",
            model_name=record.name,
            wait_quiet_s=wait_quiet_s(),
            different_models=entry_list.different_models(),
        )
        comparison_id = session_jobs.submit(job)
    except TunerError as error:
        messages.keep_error(error)
        return
    _follow(comparison_id)


def _follow(comparison_id: str) -> None:
    """Show a comparison that this session started; its list does not change."""
    session_jobs.follow(comparison_id, "compare", comparison=comparison_id)
    SHOWN.show(comparison_id)


def _result(shown: Comparison | None, trials: Sequence[Trial]) -> None:
    if shown is None:
        _empty()
        return
    with st.container(key="compare.race", gap="xsmall"):
        if shown.state in ACTIVE or playback.playing(shown.id):
            _live(shown)
        else:
            comparison_result.finished(shown, {trial.id: trial for trial in trials})


def _empty() -> None:
    st.markdown("#### :material/compare_arrows: Nothing compared yet")
    st.markdown(
        "Add two to eight configurations to the list, then press **Compare**. They are measured "
        "under the same conditions."
    )


def _actions(shown: Comparison, trials: Sequence[Trial], *, active: bool) -> None:
    """Draw the actions for the shown comparison."""
    if active:
        words = "Ends all worker processes. Finished rounds are kept."
        job_box.cancel(shown.id, key="compare.cancel", help=words)
        return
    measure_longer.button("compare", shown, trials, lambda more: _follow(more.id))
    report.offer(lambda: of_comparison(state.store(), shown), key="compare")
    with st.popover("More", icon=":material/more_horiz:", key="compare.more"):
        st.button(
            "Load configurations",
            key="compare.again",
            icon=":material/replay:",
            on_click=_load_into_list,
            args=(shown,),
            help="Replaces the list with these configurations.",
        )
        st.button("Close", key="compare.close", icon=":material/close:", on_click=_close)


def _load_into_list(shown: Comparison) -> None:
    """Put the configurations of a comparison into the list, baseline first; omit an added ORT default."""
    asked = [one.trial for one in shown.contestants if one.role != "anchor" or one.trial == shown.baseline]
    asked.sort(key=lambda one: one != shown.baseline)
    if shown.protocol.get("different_models"):
        st.session_state[entry_list.DIFFERENT] = True
    try:
        entry_list.replace_with_trials([state.store().trial(one) for one in asked[: configurations.MOST]])
    except TunerError as error:
        messages.keep_error(error)


def _live(comparison: Comparison) -> None:
    with st.container(key="compare.live", gap="xsmall"):
        comparison_result.title(comparison)
        build = comparison_result.events(comparison, comparison_result.trials_of(comparison))
        comparison_result.watch(comparison, build, key="compare.watch")


page()
