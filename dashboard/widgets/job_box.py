"""A running job: its progress and a cancel button, until the page is redrawn at its end."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.api.session import Status
from core.wire.errors import TunerError
from dashboard import live_events, messages, session_jobs, state
from dashboard.live_events import Event
from dashboard.widgets import live_view

NOTHING_KEPT = "Ends its worker; nothing is kept."  # effect of a cancellation
ELSEWHERE = "Another process of this machine runs it: cancel it there."


def running(kind: str, about: str = "") -> Status | None:
    """Return a waiting or running job of this server, whoever started it.

    Args:
        kind: its type.
        about: end of its description; empty: any.
    """
    active = state.scheduler().active()
    return next((one for one in active if one.kind == kind and one.what.endswith(about)), None)


def find(key: str, kind: str, about: str = "") -> Status | None:
    """Return the job whose id this session keeps under `key`, ended or not; else see `running`."""
    own = session_jobs.status(st.session_state.get(key) or "")
    return own if own is not None else running(kind, about)


def take_ended(key: str) -> Status | None:
    """Return how the job whose id this session keeps under `key` ended, once; None: it has not."""
    own = st.session_state.get(key)
    status = session_jobs.status(own or "")
    if not own or session_jobs.is_active(status):
        return None
    del st.session_state[key]
    return status


def draw(
    job: Status | None,
    page: str,
    *,
    what: str,
    help: str,
    of: str = "",
) -> None:
    """Draw the box of `job`; empty unless the job waits or runs.

    Args:
        job: its status; None: there is none.
        page: begins the keys of the widgets, `page.live` and `page.cancel`.
        what: the job, in a sentence: "this pair".
        help: effect of cancelling.
        of: suffix of the keys, on a page with several boxes.
    """
    end = f".{of}" if of else ""
    with st.container(key=f"{page}.live{end}", gap="xsmall"):
        if not session_jobs.is_active(job):
            return
        live_view.watch(job.id, partial(event, job.id, what), of=[job.id], key=f"{page}.watch{end}")
        cancel(job.id, key=f"{page}.cancel{end}", help=help)


def event(job: str, what: str, name: str = "") -> Event:
    """Return the event of a job of this server that has no numbers until it ends."""
    return live_events.of_job(session_jobs.status(job), what, name=name)


def cancel(job: str, *, key: str, help: str, label: str = "Cancel") -> None:
    """Draw the button that cancels a job; disabled where another process runs it."""
    elsewhere = session_jobs.status(job) is None
    st.button(
        label,
        key=key,
        icon=":material/stop_circle:",
        help=ELSEWHERE if elsewhere else help,
        disabled=elsewhere,
        on_click=_cancel,
        args=(job,),
    )


def _cancel(job: str) -> None:
    try:
        state.scheduler().cancel(job)
    except TunerError as error:  # the job of another person
        messages.keep_error(error)


def report_end(
    job: Status | None, *, cancelled: str = "This was cancelled; nothing was kept.", title: str = ""
) -> None:
    """Show that a job was cancelled or failed.

    Args:
        job: its status; None: there is none.
        cancelled: what to say of a cancelled one.
        title: of the error, as in `messages.report`.
    """
    if job is not None and job.state == "CANCELLED":
        st.info(cancelled, icon=":material/cancel:")
    elif job is not None and job.error is not None:
        messages.report(job.error, title)
