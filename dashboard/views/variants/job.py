"""Work of the Variants page that takes longer than a second: one job of each kind per session.

A job lives in the scheduler, so a reload of the page does not end it: it is found again by its kind and by
what it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from core.run import job_types
from core.run.job import Status
from core.wire.errors import TunerError
from dashboard import state
from dashboard.widgets import job_box

MAKE, ERRORS = "variant", "variant errors"  # kinds of jobs, as the scheduler lists them
_NOTHING: Mapping[str, str] = {MAKE: "The variant was not created", ERRORS: "The errors were not located"}


def job_key(kind: str) -> str:
    """Key of the session under which the id of its own job stands."""
    return f"variants.job.{kind}"


def start(kind: str, task: Callable[..., Mapping[str, Any]], what: str) -> None:
    """Queue a task of this session; call in a callback.

    Args:
        kind: `MAKE` or `ERRORS`.
        task: see `kinds.task`.
        what: one line for a person.
    """
    try:
        job = state.submit(job_types.task(task, kind=kind, what=what))
    except TunerError as error:
        state.keep_error(error, kind)
        return
    st.session_state[job_key(kind)] = job
    state.follow(job, "variants")


def current(kind: str, about: str) -> Status | None:
    """Return where the job stands: this session's, else one about the same that another one started."""
    own = state.status(st.session_state.get(job_key(kind)) or "")
    if own is not None:
        return own
    active = state.scheduler().active()
    return next((one for one in active if one.kind == kind and one.what.endswith(about)), None)


def take_finished(kind: str) -> Status | None:
    """Return how this session's job ended, once; None while it runs, and where there is none."""
    own = st.session_state.get(job_key(kind))
    status = state.status(own or "")
    if not own or state.is_active(status):
        return None
    del st.session_state[job_key(kind)]
    return status


def show_end(kind: str, status: Status | None) -> None:
    """Say why a job came to nothing, or was not started; stands beside what starts it.

    Args:
        kind: of the job, and the place of errors of its start.
        status: where it has ended just now; a complete one has nothing to say.
    """
    title = _NOTHING[kind]
    state.show_kept_error(kind, title)
    if status is None:
        return
    if status.state == "CANCELLED":
        st.info("This was cancelled. Finished steps are kept.", icon=":material/cancel:")
    elif status.error is not None:
        state.report_record(status.error, title)


def live(status: Status | None, name: str) -> None:
    """Draw the progress of an active job with a way to cancel it; the page is drawn again when it ends.

    Args:
        status: where it stands; None: there is no job.
        name: of the widgets, `make` or `errors`.
    """
    job_box.draw(
        status, "variants", what="this", help="Ends the worker process. Finished steps are kept.", of=name
    )
