"""Profile page: time of one inference by operator, node and provider, and on a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api.measuring import profile_job
from core.evidence.measurement import Trial
from core.evidence.streams import p50_words
from core.show import setting_chips, verdict
from core.spec import TrialSpec
from core.store import ModelRecord
from core.store.imported import Imported
from core.wire.errors import TunerError
from dashboard import derived_rows, fields, format, live_events, messages, session_jobs, state, url_state
from dashboard.live_events import ACTIVE
from dashboard.shown_result import ShownResult
from dashboard.views.profile import results as profile_results
from dashboard.views.profile.results import IMPORTED
from dashboard.widgets import (
    controls,
    job_box,
    live_view,
    page_frame,
    past_results,
    sharing,
    uploads,
)

SHOWN = "profile.shown"  # id of the profile that is shown
LINKED = ShownResult("profile.linked", (state.TRIAL_PARAM,))
SOURCE, MEASURED, RUNS = "profile.source", "profile.measured", "profile.runs"
CURRENT, OF_TRIAL = "Current settings", "A measured trial"
DEFAULT_RUNS = 20
MAX_RUNS = 1_000
BROUGHT = "profile.brought"  # key of the profile imported in the last run, to be shown
IMPORTED_PARAM = "imported"  # ?imported=<id>


def page() -> None:
    bar = page_frame.bar(
        "Profile",
        "Where one inference spends its time, by ONNX Runtime's profiler. Its times are "
        "longer than a latency.",
    )
    messages.show_kept_error()
    _follow_link()
    with bar.model:
        record = controls.model_picker()
    if record is None:
        return
    profiles = _profiles(record)
    brought = state.store().shelf.all("profile")
    imported = _imported(brought)
    shown = _shown(profiles) if imported is None else None
    if shown is not None and state.TRIAL_PARAM not in st.query_params:
        _put_in_url(shown.id)
    labels = _labels(profiles, brought)
    _configuration(record, shown, bar)
    with bar.choice:
        _offer(labels)
    with bar.more:
        if imported is not None:
            _remove(imported)
        menu = _more()
    done = _until_then(shown, profiles)
    _live(shown, done)
    shown = done or shown
    drawn = shown.id if shown is not None else st.session_state.get(SHOWN)
    others = {key: label for key, label in labels.items() if key != drawn}
    if imported is not None:
        profile_results.imported(imported, others)
    else:
        _body(shown, _laid_over(profiles, others), menu)


def _follow_link() -> None:
    """Apply a profile or a measured trial from `?trial=`, or an imported profile from `?imported=`."""
    if fresh := st.session_state.pop(BROUGHT, None):
        st.session_state[SHOWN] = fresh
        _put_in_url(fresh)
        return
    if brought := url_state.named(IMPORTED_PARAM):
        try:
            wanted = f"{IMPORTED}{state.store().shelf.get(brought).id}"
        except TunerError as error:
            url_state.put(IMPORTED_PARAM, None)
            messages.report(error)
            return
        if st.session_state.get(SHOWN) != wanted:  # a choice in the page changes the URL, too
            st.session_state[SHOWN] = wanted
        return
    linked = LINKED.take_link()
    if linked is None:
        return
    try:
        trial = state.store().trial(linked)
        state.choose_model(state.find_model(state.trial_spec(trial).model))
    except TunerError as error:
        messages.report(error)
        return
    if trial.kind == "profile":
        st.session_state[SHOWN] = trial.id
    else:
        st.session_state[SOURCE] = OF_TRIAL
        st.session_state[MEASURED] = trial.id


# --- configuration ------------------------------------------------------------------------------------


def _configuration(record: ModelRecord, shown: Trial | None, bar: page_frame.Bar) -> None:
    """Draw the choice of the configuration in a popover of the bar, and the Run button."""
    measured = _measured_trials(record)
    if st.session_state.get(SOURCE) == OF_TRIAL and not measured:
        st.session_state[SOURCE] = CURRENT
    of_trial = st.session_state.get(SOURCE) == OF_TRIAL
    name = "Measured trial" if of_trial else CURRENT
    with bar.choice.popover(
        name, icon=":material/tune:", key="profile.configuration", help="The result to profile."
    ):
        source = st.segmented_control(
            "Configuration",
            [CURRENT, OF_TRIAL] if measured else [CURRENT],
            key=SOURCE,
            default=None if SOURCE in st.session_state else CURRENT,
            required=True,
            persist_state="session",
        )
        if source == OF_TRIAL:
            _pick_trial(measured)
        _runs()
        asked = st.container()
    try:
        spec = _spec()
    except TunerError as error:
        messages.report(error)
        spec = None
    with asked:
        if spec is not None:
            controls.badges(spec)
        page_frame.link("tune", "Change settings")
    with bar.action:
        _run_button(record, spec, shown)


def _spec() -> TrialSpec:
    fields.in_range("profiled runs", st.session_state[RUNS] or 0, 1, MAX_RUNS)
    if st.session_state.get(SOURCE) == OF_TRIAL:
        return state.trial_spec(state.store().trial(st.session_state[MEASURED]))
    return state.current_spec()


def _measured_trials(record: ModelRecord) -> dict[str, str]:
    """Return the labels of the newest measurements, and that of a linked one that is not complete."""
    complete = state.measured_by(record)
    linked = replace(complete, states=(), ids=[str(st.session_state.get(MEASURED))])
    return {
        trial_id: label
        for query in (complete, linked)
        for trial_id, label in derived_rows.of_trials(
            query, "profile.measured", _measured_label, limit=100
        ).items()
    }


def _pick_trial(measured: Mapping[str, str]) -> None:
    if st.session_state.get(MEASURED) not in measured:
        st.session_state[MEASURED] = next(iter(measured))
    st.selectbox(
        "Trial",
        list(measured),
        key=MEASURED,
        persist_state="session",
        format_func=lambda one: measured.get(one, str(one)),
    )


def _measured_label(trial: Trial) -> str:
    p50 = f"{p50_words(trial.result)} {format.ms(trial.p50_s)}"
    busy = verdict.background_load_mark(trial.result)
    return f"{format.when(trial.created_at)} · {trial.id[:8]} · {p50}{busy} · {_settings(trial)}"


# --- run, cancel, choose ------------------------------------------------------------------------------


def _profiles(record: ModelRecord) -> list[Trial]:
    """Return the model's profiles, newest first; one that waits or failed early has no model hash yet."""
    profiles = state.store().trials(model_sha256=record.content_sha256, kind="profile", limit=100)
    early = state.store().trials(model_sha256="", kind="profile", limit=100)
    profiles += [trial for trial in early if trial.spec["model"].get("sha256") == record.sha256]
    return sorted(profiles, key=lambda trial: -trial.created_at)


def _shown(profiles: Sequence[Trial]) -> Trial | None:
    """Return the profile to show: the chosen one, or else the newest of this model."""
    ids = [trial.id for trial in profiles]
    if st.session_state.get(SHOWN) not in ids:
        st.session_state[SHOWN] = ids[0] if ids else None
    return next((trial for trial in profiles if trial.id == st.session_state[SHOWN]), None)


def _runs() -> None:
    if RUNS not in st.session_state:
        st.session_state[RUNS] = DEFAULT_RUNS
    st.number_input(
        "Profiled runs",
        step=1,
        key=RUNS,
        persist_state="session",
        width=180,
        help="Times are means over these runs. ONNX Runtime keeps at most 1,000,000 events.",
    )


def _run_button(record: ModelRecord, spec: TrialSpec | None, shown: Trial | None) -> None:
    active = shown is not None and shown.state in ACTIVE
    st.button(
        "Profiling" if active else "Profile",
        key="profile.run",
        type="primary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter",
        on_click=_start,
        args=(record,),
        **state.unless_closed(
            off=spec is None, busy="Wait for the running profile, or cancel it." if active else ""
        ),
    )


def _start(record: ModelRecord) -> None:
    """Queue a profile with the current widget values, so that a value typed just before the click counts."""
    try:
        spec = _spec()
        protocol = spec.protocol.model_copy(update={"runs": st.session_state[RUNS]})
        asked = spec.model_copy(update={"protocol": protocol})
        trial_id = session_jobs.submit(profile_job(state.session(), asked, model_name=record.name))
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(trial_id, "profile", trial=trial_id)
    st.session_state[SHOWN] = trial_id
    _put_in_url(trial_id)


def _put_in_url(shown: str) -> None:
    """Put the shown profile into the URL; the prefix `IMPORTED` marks an imported one."""
    is_imported = shown.startswith(IMPORTED)
    LINKED.show(None if is_imported else shown)
    url_state.put(IMPORTED_PARAM, shown.removeprefix(IMPORTED) if is_imported else None)


def _labels(profiles: Sequence[Trial], brought: Sequence[Imported]) -> dict[str, str]:
    """Return the labels of all profiles: those of the model and imported ones."""
    own = {trial.id: _profile_label(trial) for trial in profiles}
    return {**own, **{f"{IMPORTED}{one.id}": _imported_label(one) for one in brought}}


def _imported_label(one: Imported) -> str:
    return f"{one.label} · imported {format.when(one.created_at)} · {one.id[:8]}"


def _imported(brought: Sequence[Imported]) -> Imported | None:
    """Return the imported profile that is shown, if any."""
    wanted = str(st.session_state.get(SHOWN) or "")
    return next((one for one in brought if f"{IMPORTED}{one.id}" == wanted), None)


def _laid_over(profiles: Sequence[Trial], others: Mapping[str, str]) -> dict[str, str]:
    """Return those of `others` that have a complete profile."""
    without = {trial.id for trial in profiles if trial.state != "COMPLETE"}
    return {key: label for key, label in others.items() if key not in without}


def _more() -> DeltaGenerator:
    """Draw the popover of further actions; return the place for actions on the shown profile."""
    with st.popover("More", icon=":material/more_horiz:", key="profile.more"):
        menu = st.container()
        with st.container(key="profile.bring"):
            one = uploads.evidence(
                "profile",
                "Import a profile",
                hint="A JSON file that ONNX Runtime's profiler wrote, or a Chrome trace of it.",
                wanted="profile",
            )
    if one is not None:
        st.session_state[BROUGHT] = f"{IMPORTED}{one.id}"  # the list above is already drawn
        st.rerun()
    return menu


def _remove(one: Imported) -> None:
    def remove() -> None:
        try:
            state.store().shelf.delete(one.id)
        except TunerError as error:
            messages.keep_error(error)
            return
        st.session_state[SHOWN] = None
        url_state.put(IMPORTED_PARAM, None)

    st.button(
        "Remove import",
        key="profile.import.remove",
        icon=":material/delete:",
        on_click=remove,
        **sharing.unless_of_others([one.id], "Forgets the file. Results measured here are kept."),
    )
    sharing.button([one.id], key="profile.import.share", more="")


def _offer(labels: Mapping[str, str]) -> None:
    past_results.offer(
        "Profile shown",
        labels,
        shown=st.session_state.get(SHOWN),
        key=SHOWN,
        on_select=_show,
        help="Profiles of this model, newest first, and imported ones.",
        alone=True,
    )


def _show(chosen: str) -> None:
    st.session_state[SHOWN] = chosen
    _put_in_url(chosen)


def _settings(trial: Trial) -> str:
    return format.short(setting_chips.words(trial), 90)


def _profile_label(trial: Trial) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    return f"{format.when(trial.created_at)} · {trial.id[:8]} · {_settings(trial)}"


def _live(shown: Trial | None, done: Trial | None) -> None:
    """Draw the progress of a profile; `done` is shown below it meanwhile."""
    with st.container(key="profile.live", gap="xsmall"):
        if shown is None or shown.state not in ACTIVE:
            return
        name, follow = live_view.stream(
            shown.id,
            lambda status, _: live_events.of_job(status, "this profile"),
            partial(_elsewhere, shown.id),
        )
        tick_s = live_view.pace(shown.id, shown.state)
        live_view.watch(name, follow, of=[shown.id], key="profile.watch", tick_s=tick_s)
        with st.container(horizontal=True, vertical_alignment="center"):
            job_box.cancel(shown.id, key="profile.cancel", help=job_box.NOTHING_KEPT)
            if done is not None:
                st.caption(f":material/history: Below: {format.when(done.created_at)}")


def _elsewhere(trial_id: str) -> str | None:
    is_running = state.store().trial(trial_id).state in ACTIVE
    return "Being profiled by another process of this machine" if is_running else None


# --- result -------------------------------------------------------------------------------------------


def _until_then(shown: Trial | None, profiles: Sequence[Trial]) -> Trial | None:
    """Return the newest complete profile, to show while `shown` runs; None where `shown` does not run."""
    if shown is None or shown.state not in ACTIVE:
        return None
    return next((one for one in profiles if one.state == "COMPLETE"), None)


def _body(shown: Trial | None, others: Mapping[str, str], menu: DeltaGenerator) -> None:
    if shown is None:
        with st.container(border=True):
            st.markdown(
                ":material/search_insights: **No profile of this model yet.** Press **Profile** "
                "to see which operators and nodes take the time."
            )
    elif shown.state == "FAIL" and shown.error:
        messages.report(shown.error)
    elif shown.state == "CANCELLED":
        st.info("This profile was cancelled; nothing was kept.", icon=":material/cancel:")
    elif shown.state == "COMPLETE":
        profile_results.result(shown.id, others, menu)


page()
