"""A running job drawn in place in the browser from a stream; the page runs once, at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import streamlit as st

from dashboard import live_events, session_jobs, state, url_state
from dashboard.live_events import ACTIVE, Event
from dashboard.server import live, people
from dashboard.widgets import playback

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "ortune_live",
    html=(_HERE / "live_view.html").read_text(encoding="utf-8"),
    css=(_HERE / "live_view.css").read_text(encoding="utf-8"),
    js=(_HERE / "live_view.js").read_text(encoding="utf-8"),
    isolate_styles=False,  # its plots and texts are parts of the page, as those of the finished result
)


def watch(  # noqa: PLR0913 - one parameter for each property of the view
    name: str,
    build: Callable[[], Event],
    *,
    of: Sequence[str],
    key: str,
    part: Literal["", "ratio", "more"] = "",
    tick_s: float = live.TICK_S,
    ask_s: float = 0.0,
    rerun: bool = True,
) -> None:
    """Show the findings of a job so far, in all connected browsers, until it ends.

    Args:
        name: of the stream: the id of the job, with a suffix for each of several views.
        build: builds the present event, in any thread and without this session.
        of: ids of the jobs, results and models that the events tell of. A person who may not know of one gets
            the end instead. Empty: `build` knows its reader, or tells of none.
        key: of the widget.
        part: "ratio" or "more": show only this part of a stream that another widget shows completely.
        tick_s: seconds between two events.
        ask_s: seconds between polls of a browser that does not listen; 0: it listens.
        rerun: run the page once at the end; never for a part.
    """
    stream = live.STREAMS.offer(name, build, every_s=tick_s, may_read=partial(_may_read, tuple(of)))
    _component(
        key=key,
        data={
            "url": f"{url_state.base_path()}{live.address(name)}",
            "event": json.loads(stream.for_reader(stream.newest, people.person())),
            "part": part,
            "every_s": ask_s,
            "rerun": rerun and not part,
        },
        on_ended_change=_redrawn,
        width="content" if part == "ratio" else "stretch",
    )


def _may_read(of: Sequence[str], reader: people.Person) -> bool:
    actor = state.actor_of(reader)
    return actor is None or not of or not state.scheduler_for(actor).is_hidden(of)


def stream(
    job: str, build: playback.Build, elsewhere: Callable[[], str | None]
) -> tuple[str, Callable[[], Event]]:
    """Return the name of a job's stream, and what builds its events, for `watch`.

    Args:
        job: its id; it runs here or elsewhere, or is played back.
        build: builds an event from a status and its time, in seconds since the epoch.
        elsewhere: reads from the store who runs it, while another process does; None: it has ended.
    """
    if playback.playing(job):
        return playback.stream(job, build)
    return job, partial(_event, job, build, elsewhere)


def _event(job: str, build: playback.Build, elsewhere: Callable[[], str | None]) -> Event:
    status = session_jobs.status(job)
    if session_jobs.is_active(status):
        return build(status, time.time())
    words = elsewhere()
    return live_events.ENDED if words is None else live_events.of_other_process(words)


def pace(job: str, job_state: str) -> float:
    """Return the seconds between two events of a job: more when another process measures it.

    Each of those events is read from the disk.

    Args:
        job: its id.
        job_state: its state in the store.
    """
    is_elsewhere = job_state in ACTIVE and not session_jobs.is_active(session_jobs.status(job))
    return live.OTHER_PROCESS_TICK_S if is_elsewhere else live.SLOW_TICK_S


def _redrawn() -> None:
    """Rerun the page; that run draws the result."""
