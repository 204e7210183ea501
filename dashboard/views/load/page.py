"""Load page: latency of configurations under traffic, and the highest rate within a limit."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.api import sweeping
from core.api.load import load_job
from core.evidence.measurement import Trial
from core.show import load_text
from core.show.report.subjects import of_trial
from core.spec import spec_from_dict
from core.spec.axes import THREADS, parse_values, study_name
from core.spec.settings import Value
from core.spec.space import Axis
from core.store import ModelRecord
from core.wire.errors import MissingError, TunerError
from dashboard import format, live_load, messages, session_jobs, state
from dashboard.live_events import ACTIVE
from dashboard.shown_result import ShownResult
from dashboard.views.load import chosen, form, results, scorecard_target, streams
from dashboard.widgets import controls, job_box, live_view, page_frame, past_results, playback, report
from dashboard.widgets.protocol import wait_quiet_s

SHOWN = ShownResult("load.shown", (state.TRIAL_PARAM,))
SWEPT = "load.swept"  # study of a sweep that this page has just started: the page Sweep shows it
LISTED = 100  # earlier load tests
SETTINGS_PX = 288


def page() -> None:
    if study := st.session_state.pop(SWEPT, None):
        page_frame.switch_to("sweep", study=study)
    bar = page_frame.bar(
        "Load",
        "Latency under traffic that does not wait for its answers, from each request's scheduled arrival.",
    )
    shown = SHOWN.open(_read, _load)
    with bar.model:
        record = controls.model_picker()
    if record is None:
        return
    tests = _tests(record)
    if SHOWN.is_new_model(record) and (shown is None or not _is_of(shown, record)):
        shown = tests[0] if tests else None
        SHOWN.show(shown.id if shown is not None else None)
        unchosen = form.QUESTION not in st.session_state and controls.settings_unchosen()
        if shown is not None and (unchosen or state.recorded()):
            with contextlib.suppress(TunerError):  # of another version
                _fill(shown)
    with bar.choice:
        _offer(tests, shown)
    settings, answer = page_frame.panes(SETTINGS_PX)
    with settings:
        form.draw(record)
        load, error = form.problem(record)
        if load is not None:
            st.caption(f":material/schedule: {format.plain(form.time_words(load, len(chosen.names())))}")
    run = partial(_run, record, shown, error)
    with bar.action:
        run("load.run")
    with bar.more:
        if shown is not None:
            _actions(shown)
    with answer:
        messages.show_kept_error()
        if error is not None and form.question() != "streams":
            form.report(error)
        if form.question() == "streams" and not (shown is not None and shown.state in ACTIVE):
            streams.draw(record)
        else:
            _result(shown, tests)
    page_frame.foot("load", run)


# --- the shown load test ----------------------------------------------------------------------------------


def _read(trial_id: str) -> Trial:
    """Return a load test by its id.

    Raises:
        MissingError: the trial is none.
        StoreError: there is none.
    """
    trial = state.store().trial(trial_id)
    if trial.kind != "load":
        raise MissingError(
            f"`{trial.id[:12]}` is no load test.", hint="Open it on the page that measured it."
        )
    return trial


def _load(trial: Trial) -> None:
    """Load the model, the configurations and the form of a linked load test."""
    state.choose_model(state.find_model(state.trial_spec(trial).model))
    _fill(trial)


def _fill(trial: Trial) -> None:
    """Fill the form as this load test was asked; raises `SpecError` when another version wrote it."""
    result = load_text.load_of(trial)
    if result is None:
        return
    form.take(result["question"])
    chosen.take([(one["label"], spec_from_dict(one["spec"])) for one in result["configurations"]])


def _is_of(trial: Trial, record: ModelRecord) -> bool:
    return record.content_sha256 == trial.model_sha256 or record.sha256 == trial.spec["model"].get("sha256")


def _tests(record: ModelRecord) -> list[Trial]:
    """Return the load tests of a model, newest first; one that waits or failed early has no hash yet."""
    found = state.store().trials(model_sha256=record.content_sha256, kind="load", limit=LISTED)
    early = state.store().trials(model_sha256="", kind="load", limit=LISTED)
    found += [one for one in early if one.spec["model"].get("sha256") == record.sha256]
    return sorted(found, key=lambda one: -one.created_at)


def _offer(tests: Sequence[Trial], shown: Trial | None) -> None:
    listed = list(tests)
    if shown is not None and shown.id not in {one.id for one in listed}:
        listed.insert(0, shown)
    past_results.offer(
        "Load test shown",
        {one.id: _label(one) for one in listed},
        shown=shown.id if shown is not None else None,
        key="load.pick",
        on_select=SHOWN.link,
        help="Newest first. Loads its settings.",
        alone=True,
    )


def _label(trial: Trial) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    return f"{format.when(trial.created_at)} · {trial.id[:8]}"


# --- run and cancel ---------------------------------------------------------------------------------------


def _run(record: ModelRecord, shown: Trial | None, error: TunerError | None, key: str) -> None:
    """Draw the button that starts the load test, or plays a recorded one back."""
    if shown is not None and playback.button(shown.id, key=key):
        return
    active = shown is not None and shown.state in ACTIVE
    closed = form.question() == "streams"  # a closed loop
    st.button(
        "Testing" if active else "Measure streams" if closed else "Run test",
        key=key,
        type="primary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter" if key == "load.run" else None,
        on_click=_start_sweep if closed else _start,
        args=(record,),
        **state.unless_closed(
            "Correct the settings first."
            if error is not None and not closed
            else "Starts fresh processes and sends them the requests.",
            off=error is not None and not closed,
            busy="Wait for the running load test, or cancel it." if active else "",
        ),
    )


def _start(record: ModelRecord) -> None:
    """Queue the load test of the present values, so that a value typed just before the click counts."""
    if session_jobs.is_busy("load"):  # a double click
        return
    try:
        load = form.asked_load(record)
        asked = chosen.configurations_of(record, others=load.question == "together")
        if load.question == "batching":
            asked = asked[:1]
        job = load_job(
            state.session(),
            asked,
            load,
            model_name=asked[0].model or record.name,
            wait_quiet_s=wait_quiet_s(),
        )
        trial_id = session_jobs.submit(job)
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(trial_id, "load", trial=trial_id)
    SHOWN.show(trial_id)


def _start_sweep(record: ModelRecord) -> None:
    """Queue a sweep over the streams, with the threads where values are given; the page Sweep shows it."""
    if session_jobs.is_busy("sweep"):
        return
    try:
        [first, *_] = chosen.configurations_of(record, others=False)
        axes = [Axis(name=streams.STREAMS, values=_values(form.STREAMS, streams.STREAMS))]
        if str(st.session_state.get(form.THREADS) or "").strip():
            axes.append(Axis(name=THREADS, values=_values(form.THREADS, THREADS)))
        points = sweeping.expand(first.spec, axes, record.info, sweeping.models(state.store(), record))
        study = study_name(axes, uuid.uuid4().hex[:8])
        asked = sweeping.configurations([one for one in points if one.is_measured])
        job = sweeping.sweep_job(state.session(), asked, study, record.name, wait_quiet_s=wait_quiet_s())
        trial_id = state.scheduler().submit(job)
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(trial_id, "sweep", study=study)
    st.session_state[SWEPT] = study


def _values(key: str, axis: str) -> tuple[Value | None, ...]:
    return parse_values(str(st.session_state[key]), name=axis)


def _actions(shown: Trial) -> None:
    """Draw the actions for the shown load test."""
    if shown.state in ACTIVE:
        words = "Ends all worker processes. Finished runs are kept, without a verdict."
        job_box.cancel(shown.id, key="load.cancel", help=words)
        return
    result = load_text.load_of(shown)
    if result is None:
        return
    if shown.state == "COMPLETE":
        scorecard_target.button(result)
    report.offer(lambda: of_trial(state.store(), shown), key="load")


# --- result -----------------------------------------------------------------------------------------------


def _result(shown: Trial | None, tests: Sequence[Trial]) -> None:
    if shown is None:
        _empty()
    elif shown.state in ACTIVE or playback.playing(shown.id):
        _live(shown)
        before = next((one for one in tests if one.state == "COMPLETE" and one.id != shown.id), None)
        if before is not None and shown.state in ACTIVE:
            st.caption(f":material/history: Below: {format.when(before.created_at)}")
            results.draw(before, brief=True)
    else:
        results.draw(shown)


def _empty() -> None:
    st.markdown("#### :material/traffic: No load test of this model yet")
    st.markdown(
        "Write a rate and a limit, then press **Run test**. Or choose **Highest rate** to find how many "
        "requests per second this model serves within the limit."
    )


def _live(shown: Trial) -> None:
    """Draw the running load test; the whole page is redrawn when it ends."""
    with st.container(key="load.live", gap="xsmall"):
        name, follow = live_view.stream(
            shown.id, lambda status, _: live_load.of_load(status), partial(_elsewhere, shown.id)
        )
        tick_s = live_view.pace(shown.id, shown.state)
        live_view.watch(name, follow, of=[shown.id], key="load.watch", tick_s=tick_s)


def _elsewhere(trial_id: str) -> str | None:
    is_running = state.store().trial(trial_id).state in ACTIVE
    return "Load test of another process of this machine" if is_running else None


page()
