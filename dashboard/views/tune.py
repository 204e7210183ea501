"""Tune: the settings on the left, what they do on the right, the pinned baseline beside it."""

from __future__ import annotations

import streamlit as st

from core.errors import TunerError
from core.measurement import Trial
from core.scheduler import Status
from core.spec import SessionSpec, TrialSpec
from core.store import ModelRecord
from dashboard import controls, format, state
from dashboard.panels import cells, results

POLL_S = 1.0  # while a trial is active; nothing is polled afterwards


def page() -> None:
    trial = _shown()
    _load_linked(trial)
    record = state.current_model()
    _run_bar(record, trial)
    left, right = st.columns([2, 3], gap="large")
    with left:
        if (picked := controls.model_picker()) is not None:
            controls.settings(picked)
    with right:
        _result_side(record, trial)


def _shown() -> Trial | None:
    """The trial of the link or of this session; a link to nothing is said and forgotten."""
    trial_id = state.linked_trial()
    if trial_id is None:
        return None
    try:
        trial = state.store().trial(trial_id)
    except TunerError as error:
        state.report(error)
        state.show_trial(None)
        return None
    state.show_trial(trial.id)
    return trial


def _load_linked(trial: Trial | None) -> None:
    """A trial that came by a link brings its settings, once."""
    if trial is None or not state.is_new_link(trial.id):
        return
    try:
        state.apply_spec(state.trial_spec(trial))
    except TunerError as error:
        st.warning(
            f"The trial is shown, but its settings could not be loaded. {format.plain(error.message)} "
            f"{format.plain(error.hint)}",
            icon=":material/warning:",
        )


# --- running ----------------------------------------------------------------------------------------------


def _run_bar(record: ModelRecord | None, trial: Trial | None) -> None:
    spec, reason = _ready(record, trial)
    with st.container(horizontal=True, vertical_alignment="center", key="runbar"):
        st.title("Tune", anchor=False, width="content")
        st.space("stretch")
        if spec is not None and trial is not None and trial.state == "COMPLETE" and _differs(spec, trial):
            st.badge("Settings changed since this result", icon=":material/sync_problem:", color="orange")
        st.button(
            "Run",
            key="run",
            type="primary",
            icon=":material/play_arrow:",
            shortcut="Ctrl+Enter",
            disabled=bool(reason),
            help=reason or "Measure these settings in a process of their own.",
            on_click=run,
        )


def _ready(record: ModelRecord | None, trial: Trial | None) -> tuple[TrialSpec | None, str]:
    """The current settings, and why they cannot be run now (empty when they can)."""
    if record is None:
        return None, "Choose a model first."
    try:
        spec = state.current_spec()
    except TunerError as error:
        return None, f"{error.message} {error.hint}"
    if trial is not None and trial.state in ("WAITING", "RUNNING"):
        return spec, "A trial is running; wait for it or cancel it."
    return spec, ""


def _differs(spec: TrialSpec, trial: Trial) -> bool:
    try:
        return state.trial_spec(trial).key() != spec.key()
    except TunerError:
        return True


def run() -> None:
    """Submit the current settings."""
    try:
        _submit(state.current_spec())
    except TunerError as error:
        state.keep_error(error)


def measure_default() -> None:
    """Measure ONNX Runtime's own default on the same workload, and pin it when it is done."""
    try:
        spec = state.current_spec()
        model = spec.model.model_copy(update={"precision": "fp32"})
        default = spec.model_copy(update={"session": SessionSpec(), "model": model})
        state.pin_when_done(_submit(default))
    except TunerError as error:
        state.keep_error(error)


def _submit(spec: TrialSpec) -> str:
    record = state.current_model()
    trial_id = state.scheduler().submit(spec, model_name=record.name if record else None)
    state.own_trial(trial_id)
    return trial_id


# --- the result side --------------------------------------------------------------------------------------


def _result_side(record: ModelRecord | None, trial: Trial | None) -> None:
    state.show_kept_error()
    active = trial is not None and trial.state in ("WAITING", "RUNNING")
    if trial is None:
        _empty(record)
        return
    if active:
        st.fragment(_live, run_every=POLL_S)(trial.id)
        return
    state.pin_if_awaited(trial)
    if trial.state == "COMPLETE" and trial.result:
        _complete(trial)
    else:
        results.header(trial)
        results.failed(trial)


def _empty(record: ModelRecord | None) -> None:
    name = format.plain(record.name) if record else "a model"
    with st.container(border=True):
        st.markdown("#### :material/rocket_launch: Nothing measured yet")
        st.markdown(
            f"**{name}** is ready with ONNX Runtime's defaults. Press **Run** (Ctrl+Enter) to measure "
            f"it, then change "
            "a setting on the left and run again."
        )
        st.page_link("views/history.py", label="Or reopen an earlier trial", icon=":material/history:")


def _live(trial_id: str) -> None:
    trial = state.store().trial(trial_id)
    if trial.state not in ("WAITING", "RUNNING"):
        st.rerun()  # one full run draws the result and ends the polling
    status = state.status(trial_id)
    results.header(trial)
    with st.container(border=True, key="live"):
        if status is None:
            st.progress(
                0.0, text=f"Being measured by {format.plain(trial.owner)}; shown here when it is done."
            )
        elif status.state == "WAITING":
            st.progress(0.0, text=_waiting_text(status.place, status.holder))
        else:
            share = min(1.0, status.done / status.total) if status.total else 0.0
            st.progress(share, text=_running_text(status))
        if status is not None:
            st.button(
                "Cancel",
                key="cancel",
                icon=":material/stop_circle:",
                on_click=state.scheduler().cancel,
                args=(trial_id,),
                help="Stops the worker process; the trial is kept as cancelled.",
            )


def _waiting_text(place: int, holder: str) -> str:
    """Words for a trial in the queue: who has the machine, and how many jobs are ahead (`place`)."""
    if not holder and place <= 0:
        return "Waiting for a turn on this machine"
    who = f"{format.plain(holder)} has the machine" if holder else "Another trial has the machine"
    turn = "this one is next" if place <= 1 else f"this one is number {place} in the queue"
    return f"{who}; {turn}. One measurement at a time keeps the numbers true."


def _running_text(status: Status) -> str:
    parts = [format.plain(status.stage or "starting")]
    if status.total:
        parts.append(f"{status.done:,} of {status.total:,}")
    if status.text:
        parts.append(format.plain(status.text))
    parts.append(f"{format.duration(status.elapsed_s)} so far")
    if status.eta_s is not None:
        parts.append(f"about {format.duration(status.eta_s)} left")
    return " · ".join(parts)


def _complete(trial: Trial) -> None:
    result = trial.result or {}
    baseline = _baseline(trial)
    results.header(trial)
    _actions(trial, baseline)
    other = baseline if baseline is not None and baseline.id != trial.id and baseline.result else None
    against = None
    if other is not None and other.result is not None:
        clear, words = cells.verdict(result, other.result)
        st.markdown(f"{':material/compare_arrows:' if clear else ':material/waves:'} {format.plain(words)}")
        against = other.result if cells.comparable(result, other.result) else None
    results.numbers(result, against)
    results.notes(result)
    st.markdown("#### What really ran")
    results.what_ran(result)
    _beside(trial, other)
    results.plots([trial, *([other] if other else [])], key="tune")


def _baseline(trial: Trial) -> Trial | None:
    pinned = state.store().baseline(trial.model_sha256)
    if pinned is None:
        return None
    try:
        return state.store().trial(pinned)
    except TunerError:  # deleted since
        return None


def _actions(trial: Trial, baseline: Trial | None) -> None:
    pinned = baseline is not None and baseline.id == trial.id
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if pinned:
            st.button(
                "Unpin baseline", key="unpin", icon=":material/keep_off:", on_click=_pin, args=(trial, None)
            )
        else:
            st.button(
                "Pin as baseline",
                key="pin",
                icon=":material/keep:",
                on_click=_pin,
                args=(trial, trial.id),
                help="Later results of this model are compared with it, for everybody on this server.",
            )
        if baseline is None:
            st.button(
                "Measure the default as baseline",
                key="measure_default",
                icon=":material/flag:",
                on_click=measure_default,
                help="Same model, batch and runs; the session as ONNX Runtime makes it unasked.",
            )
        link = {state.TRIAL_PARAM: trial.id}
        st.page_link(
            "views/profile.py", label="Profile this", icon=":material/search_insights:", query_params=link
        )
        st.page_link("views/export.py", label="Export YAML", icon=":material/file_export:", query_params=link)
        with st.popover(
            "Link", icon=":material/link:", help="The address that opens this trial in any browser."
        ):
            st.code(state.trial_link(trial.id), language=None)


def _pin(trial: Trial, trial_id: str | None) -> None:
    state.store().pin_baseline(trial.model_sha256, trial_id)


def _beside(trial: Trial, baseline: Trial | None) -> None:
    if baseline is None or not baseline.result:
        return
    with st.expander(
        f"Beside the baseline (trial {baseline.id[:8]}, {format.when(baseline.finished_at)})",
        icon=":material/compare:",
        expanded=True,
        key="beside",
    ):
        st.dataframe(
            cells.comparison(trial, baseline),
            hide_index=True,
            key="comparison",
            height="content",
            alt="Settings that differ and the numbers of this result and of the baseline",
        )


page()
