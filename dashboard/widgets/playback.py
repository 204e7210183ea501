"""Playback of a recorded measurement at its original pace. It draws recorded events and measures nothing.

A store of recorded results may have a folder with a file per job: successive statuses of the job with their
seconds (`docs/demo.py` records them). The events are rebuilt from them.
"""

from __future__ import annotations

import json
import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import streamlit as st

from core.api.session import Status
from dashboard import format, live_events, state
from dashboard.demo import PLAYBACK
from dashboard.live_events import Event

PLAYING = "playback.playing"  # session key
Build = Callable[[Status, float], Event]  # from a status and its time, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class RecordedStatus:
    """One recorded status of a job."""

    at_s: float  # since the job began
    now: float  # seconds since the epoch
    status: Status


@dataclass(frozen=True, slots=True)
class _Playing:
    job: str
    name: str  # of the stream: each visitor has one
    began: float  # monotonic


def button(job: str, *, key: str) -> bool:
    """Draw the button that plays a job back or stops the playback; return whether there is one.

    Args:
        job: whose result is shown.
        key: of the widget.
    """
    told = _recorded(job)
    if not told:
        return False
    if playing(job):
        st.button(
            "Stop",
            key=key,
            icon=":material/stop_circle:",
            on_click=_stop,
            help="Ends the playback and shows the result.",
        )
        return True
    st.button(
        "Play back",
        key=key,
        type="primary",
        icon=":material/replay:",
        on_click=_play,
        args=(job,),
        help=f"Shows the recorded progress: {format.about(told[-1].at_s)}.",
    )
    return True


def playing(job: str) -> bool:
    """Whether this session plays this job back."""
    now = st.session_state.get(PLAYING)
    if now is None or now.job != job:
        return False
    told = _recorded(job)
    return bool(told) and time.monotonic() - now.began < told[-1].at_s


def stream(job: str, build: Build) -> tuple[str, partial[Event]]:
    """Return the name of the played-back stream and the function that builds its events; requires `playing`.

    Args:
        job: the played-back one.
        build: builds an event from a status.
    """
    now, told = st.session_state[PLAYING], _recorded(job)
    return now.name, partial(_event, told, build, now.began)


def _event(told: Sequence[RecordedStatus], build: Build, began: float) -> Event:
    return event(told, build, time.monotonic() - began)


def event(told: Sequence[RecordedStatus], build: Build, at_s: float) -> Event:
    """Return the event at that second of a job; after the last one, the end.

    Args:
        told: all recorded statuses, in order.
        build: builds an event from a status.
        at_s: since the job began.
    """
    if at_s >= told[-1].at_s:
        return live_events.ENDED
    one = told[max(0, bisect_right(told, at_s, key=lambda one: one.at_s) - 1)]
    shown = build(one.status, one.now)
    return {**shown, "text": f"Playback · {shown.get('text', '')}"}


def read(path: Path) -> tuple[RecordedStatus, ...]:
    """Return the recorded statuses of a job; none where the file cannot be read."""
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            RecordedStatus(float(one["at_s"]), float(one["now"]), Status(**one["status"])) for one in rows
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


_read_once = lru_cache(maxsize=8)(read)


def _recorded(job: str) -> tuple[RecordedStatus, ...]:
    folder = state.store().folder / PLAYBACK
    is_there = bool(state.recorded()) and folder.is_dir() and job.isalnum()  # others measure a job again
    return _read_once(folder / f"{job}.json") if is_there else ()


def _play(job: str) -> None:
    name = f"playback-{job}-{secrets.token_hex(4)}"
    st.session_state[PLAYING] = _Playing(job, name, time.monotonic())


def _stop() -> None:
    st.session_state.pop(PLAYING, None)
