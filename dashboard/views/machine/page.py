"""Machine: what it is, what it may use, which providers load, and the noise check."""

from __future__ import annotations

from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.evidence.quietness import answer
from core.run import kinds
from core.run.job import Status
from core.wire.errors import StoreError, TunerError
from dashboard import state
from dashboard.widgets import frame, job_box, live_view, machine_line, peaks

OWN = "machine.self_test"  # id of the self-test that this session started, until its end was shown
KIND = "self-test"


def page() -> None:
    bar = frame.bar("Machine")
    action = bar.action
    state.show_kept_error()
    try:
        environment = state.environment()
    except TunerError as error:
        state.report(error)
        return
    fingerprint = environment["fingerprint"]
    _quiet(fingerprint, action)
    _peaks(fingerprint)
    st.markdown("#### This machine")
    st.caption(
        "Results are compared only under one fingerprint. It is made of the processor with its settings and "
        "limits, the GPUs, the kernel and the libraries that compute."
    )
    st.code(fingerprint, language=None)
    machine_line.facts(environment)
    st.markdown("#### Providers")
    machine_line.providers(environment)


# --- peaks --------------------------------------------------------------------------------------------------


def _peaks(fingerprint: str) -> None:
    found = peaks.measured(fingerprint)
    with st.container(horizontal=True, vertical_alignment="center", key="machine.peaks.bar"):
        st.markdown("#### What does it reach?", width="content")
        st.space("stretch")
        peaks.button("machine", again=found is not None)
    peaks.progress("machine")
    if found is None:
        st.info(
            "Not measured yet. A product of matrices and a copy in memory take some seconds; the page "
            "Profile holds operators against them.",
            icon=":material/roofing:",
        )
    else:
        peaks.shown(found, key="machine.peaks.table")


# --- the noise check ---------------------------------------------------------------------------------------


def _quiet(fingerprint: str, action: DeltaGenerator) -> None:
    running = _running()
    action.button(
        "Check noise",
        key="machine.test",
        type="primary",
        icon=":material/monitor_heart:",
        on_click=test,
        **state.unless_closed(
            "Measures ONNX Runtime's default against a second process of itself, for a few seconds.",
            busy="A self-test is under way." if running is not None else "",
        ),
    )
    st.markdown("#### Noise check")
    if running is not None:
        _live(running.id)
    else:
        _report_end()
    try:
        tests = state.store().self_tests(fingerprint)
    except StoreError as error:
        state.report(error)
        return
    newest = next((one for one in tests if one["when"] == "alone"), None)
    if newest is not None:
        machine_line.answered(answer(newest), newest)
    elif running is None:
        st.info("Not tested yet. A self-test takes a few seconds.", icon=":material/monitor_heart:")
    machine_line.quiet_history(tests)


def _running() -> Status | None:
    """The self-test of this server that waits or runs, whoever started it: a reload finds it again."""
    return next((one for one in state.scheduler().active() if one.kind == KIND), None)


def test() -> None:
    """Start a self-test."""
    try:
        st.session_state[OWN] = state.submit(kinds.self_test())
    except TunerError as error:
        state.keep_error(error)


def _live(job: str) -> None:
    with st.container(border=True, key="machine.live"):
        live_view.watch(job, partial(job_box.event, job, "this test"), key="machine.watch")
        job_box.cancel(job, key="machine.cancel", help="Ends its processes; nothing is kept.")


def _report_end() -> None:
    """Say once how the self-test of this session ended, where it did not end well."""
    job = st.session_state.pop(OWN, None)
    status = state.status(job) if job else None
    if status is not None and status.error is not None:
        state.report_record(status.error)


page()
