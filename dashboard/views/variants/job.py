"""Jobs of the Variants page: one of each type per session.

The scheduler keeps a job, so a reload of the page does not end it. The page finds it again by its type and by
the end of its description.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from core.api.session import Job, Status
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import state
from dashboard.widgets import job_box

MAKE, ERRORS = "transform", "node_errors"  # job types, as the scheduler lists them
_NOTHING: Mapping[str, str] = {MAKE: "The variant was not created", ERRORS: "The errors were not located"}


def job_key(kind: str) -> str:
    """Return the session key of this session's job id."""
    return f"variants.job.{kind}"


def find(kind: str, record: ModelRecord) -> Status | None:
    """Return this session's job, ended or not; else one of another session about this model."""
    return job_box.find(job_key(kind), kind, _about(record))


def _about(record: ModelRecord) -> str:
    return f"of {record.name}"


def start(kind: str, job: Job) -> None:
    """Queue a job of this session; call in a callback. `kind`: `MAKE` or `ERRORS`."""
    try:
        submitted = state.submit(job)
    except TunerError as error:
        state.keep_error(error, kind)
        return
    st.session_state[job_key(kind)] = submitted
    state.follow(submitted, "variants")


def show_end(kind: str, status: Status | None) -> None:
    """Report why a job failed or was not started, next to its form.

    Args:
        kind: type of the job; also the place of its start errors.
        status: of a job that has just ended; nothing is shown for a complete one.
    """
    title = _NOTHING[kind]
    state.show_kept_error(kind, title)
    job_box.report_end(status, cancelled="This was cancelled. Finished steps are kept.", title=title)


def live(status: Status | None, name: str) -> None:
    """Draw the progress of an active job and Cancel; redraw the page when the job ends.

    Args:
        status: of the job; None: there is none.
        name: of the widgets, `make` or `errors`.
    """
    job_box.draw(
        status, "variants", what="this", help="Ends the worker process. Finished steps are kept.", of=name
    )
