"""Machine page: hardware and limits, loadable providers, runtimes, measured peaks, and the noise check."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core import wire
from core.api.machine import self_test_job
from core.api.session import Status
from core.evidence.noise_check import evaluate
from core.show.sheets import models_and_machines
from core.store import audit
from core.wire.errors import StoreError, TunerError
from dashboard import format, messages, session_jobs, state
from dashboard.server import people, quotas, upload
from dashboard.views.machine import facts as machine_facts
from dashboard.views.machine import runtimes, upgrades, usage
from dashboard.widgets import job_box, live_view, page_frame, peaks, tables

OWN = "machine.self_test"  # id of this session's noise check, until its end was shown
KIND = "self-test"


def page() -> None:
    bar = page_frame.bar("Machine")
    messages.show_kept_error()
    try:
        environment = state.environment()
    except TunerError as error:
        messages.report(error)
        return
    bar.choice.space("stretch")  # aligns the actions to the right
    fingerprint, running = environment["fingerprint"], job_box.running(KIND)
    found = peaks.measured(fingerprint)
    _check(bar.action, running)
    with bar.more:
        peaks.button("machine", again=found is not None, primary=False)
    newest = _noise_check(fingerprint, running)
    _queue()
    _peaks(found)
    st.markdown("#### System")
    machine_facts.system(environment)
    st.markdown("#### Execution providers")
    machine_facts.providers(environment)
    if not state.recorded():
        runtimes.draw()
        upgrades.draw()
    _people()
    _details(environment, newest, found)


def _queue() -> None:
    """Draw the queue of the machine, as the person of this session may read it; nothing while it is empty."""
    if queue := state.scheduler_for(state.store().actor).line():
        st.markdown("#### Queue")
        tables.draw(
            models_and_machines.queue_table(queue),
            key="machine.queue",
            alt="Jobs that use or wait for this machine, in order, with predicted starts",
        )


def _people() -> None:
    """Draw what each person uses and has done, for an admin of a server with login."""
    actor = state.present_actor()
    if actor is None or not actor.sees_all:
        return
    _uses()
    st.markdown("#### Audit log")
    if reason := audit.problem():
        st.warning(f"ORTune cannot write the audit log, so it lacks actions: {format.plain(reason)}.")
    st.download_button(
        "Download audit log",
        data=audit.whole,
        file_name="ortune-audit.jsonl",
        mime="application/jsonl",
        key="machine.audit",
        icon=":material/download:",
        on_click="ignore",
        help="Who measured, changed, deleted, exported and logged in. `ortune audit` checks and filters it.",
    )


def _uses() -> None:
    st.markdown("#### Use per person")
    store = state.store()
    day = store.machine_time(time.time() - quotas.DAY_S)
    uses = usage.uses(day, quotas.disk_use(store), upload.waiting_of())
    if not uses:
        st.caption("No use is recorded yet.")
        return
    tables.draw(
        usage.table(uses), key="machine.people", alt="Machine time, disk and waiting uploads of each person"
    )
    st.caption(usage.limits(people.quotas()))


def _details(
    environment: wire.Environment, newest: Mapping[str, Any] | None, found: Mapping[str, Any] | None
) -> None:
    with st.expander("Details", icon=":material/info:", key="machine.details"):
        if newest is not None:
            machine_facts.noise_check_details(evaluate(newest), newest)
        if found is not None:
            peaks.about(found)
        st.caption(
            "Processor, limits, GPUs, kernel and libraries. Only results with the same "
            "fingerprint are compared."
        )
        st.code(environment["fingerprint"], language=None)
        machine_facts.libraries(environment)


# --- peaks --------------------------------------------------------------------------------------------------


def _peaks(found: Mapping[str, Any] | None) -> None:
    peaks.progress("machine")
    if found is None:
        st.caption(
            ":material/roofing: Peak performance is not measured yet. **Measure peaks** "
            "takes seconds; the roofline on Profile needs it."
        )
        return
    st.markdown("#### Peak performance")
    peaks.draw(found, key="machine.peaks.table")


# --- the noise check ---------------------------------------------------------------------------------------


def _check(action: DeltaGenerator, running: Status | None) -> None:
    action.button(
        "Check noise",
        key="machine.run",
        type="primary",
        icon=":material/monitor_heart:",
        on_click=start_noise_check,
        **state.unless_closed(
            "Compares ONNX Runtime's default with a copy of itself, for a few seconds.",
            busy="A noise check is running." if running is not None else "",
        ),
    )


def _noise_check(fingerprint: str, running: Status | None) -> Mapping[str, Any] | None:
    """Draw the newest noise check and the history of all; return the newest."""
    if running is not None:
        _live(running.id)
    elif (ended := job_box.take_ended(OWN)) is not None and ended.error is not None:
        messages.report(ended.error)
    try:
        tests = state.store().self_tests(fingerprint)
    except StoreError as error:
        messages.report(error)
        return None
    newest = next((one for one in tests if one["when"] == "alone"), None)
    found = evaluate(newest) if newest is not None else None
    if found is not None and newest is not None:
        machine_facts.noise_check_result(found, newest)
    elif running is None:
        st.info("No noise check yet. It takes a few seconds.", icon=":material/monitor_heart:")
    machine_facts.noise_history(tests)
    if found is not None:
        machine_facts.noise_check_remarks(found)
        machine_facts.needs(found)
    return newest


def start_noise_check() -> None:
    """Start a noise check."""
    try:
        job = st.session_state[OWN] = session_jobs.submit(self_test_job())
        session_jobs.follow(job, "machine")
    except TunerError as error:
        messages.keep_error(error)


def _live(job: str) -> None:
    with st.container(border=True, key="machine.live"):
        live_view.watch(job, partial(job_box.event, job, "this test"), of=[job], key="machine.watch")
        job_box.cancel(job, key="machine.cancel", help="Ends its processes; nothing is kept.")


page()
