"""The machine in the sidebar: one line on it, and its queue."""

from __future__ import annotations

import hashlib
import os
from functools import partial

import streamlit as st

from core.api.session import Entry, Status
from core.store import Actor
from core.wire import sandbox
from core.wire.errors import TunerError
from dashboard import format, live_events, messages, session_jobs, state
from dashboard.live_events import Event
from dashboard.pages import PAGES
from dashboard.widgets import live_view

REFRESH_S = 10.0  # between two polls of a browser; other servers measure too, and reading a folder is cheap
OWN_REFRESH_S = 1.0  # while a job of this session runs; as on the page that shows it


def sidebar() -> None:
    """Draw the machine line and the live queue."""
    try:
        environment = state.environment()
    except TunerError as error:
        messages.report(error)
        return
    cpu = environment["cpu"]
    versions = environment["libraries"]
    ort = next((v for name, v in versions.items() if name.startswith("onnxruntime")), "unknown")
    st.caption(
        f":material/developer_board: {format.plain(cpu['model'])}  \n"
        f"{cpu['usable']} of {cpu['logical']} CPUs worth using · "
        f"{format.size(environment['memory_bytes'])}  \n"
        f"ONNX Runtime {format.plain(ort)}"
    )
    for gpu in environment["gpus"]:
        st.caption(f":material/memory: {format.plain(str(gpu.get('name', 'GPU')))}")
    if sandbox.is_off():
        st.caption(f":material/lock_open: {sandbox.RUNS}")
    _queue()


def _queue() -> None:
    """Draw the machine's queue: what is measured and what waits; first the job that this session started."""
    followed = session_jobs.own_job()
    own = followed[0].id if followed is not None else ""
    ask_s = OWN_REFRESH_S if session_jobs.is_busy() else REFRESH_S
    actor = state.store().actor
    reader = hashlib.sha256(actor.person.encode()).hexdigest()[:16]  # each reads it with the private jobs
    name = f"queue-{own}-{reader}{'-all' * actor.sees_all}"
    show = partial(live_view.watch, name, partial(_event, own, actor), of=(), ask_s=ask_s, rerun=False)
    if followed is not None:
        _, page, query = followed
        show(key="queue.own")
        st.page_link(PAGES[page].file, label="Open", icon=":material/arrow_forward:", query_params=query)
    show(key="queue.others", part="more")


def _event(own: str, actor: Actor) -> Event:
    """Return the machine's queue as an event for a person, in the session that started `own`; empty: none.

    The thread that builds it has no session, so it is told who reads.
    """
    scheduler = state.scheduler_for(actor)
    mine = scheduler.status(own) if own else None
    entries = [one for one in scheduler.line() if mine is None or not _is_own_entry(one, mine)]
    return live_events.of_queue(mine, entries, scheduler.active())


def _is_own_entry(entry: Entry, own: Status) -> bool:
    """Whether an entry of the machine's queue is the job that this session started."""
    named = entry.pid == os.getpid() and entry.what == own.what
    return session_jobs.is_active(own) and named and entry.place == own.place
