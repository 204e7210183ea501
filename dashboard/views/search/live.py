"""A running search: the best configuration so far, the evaluations, the remaining time, and Cancel."""

from __future__ import annotations

import time
from functools import partial

import streamlit as st

from core.spec.question import question_from_dict
from core.store import StudyRecord
from dashboard import format, live_events, session_jobs, state
from dashboard.live_events import ACTIVE, Event
from dashboard.widgets import job_box, live_view, playback


def watch(record: StudyRecord) -> None:
    """Draw the live view of a search; when the search ends, redraw the whole page once."""
    question = question_from_dict(record.question)
    with st.container(key="search.live", gap="xsmall"):
        st.markdown(f"#### Searching: {format.plain(question.words)}")
        if question.limit_words:
            st.caption(f":material/rule: {format.plain(', '.join(question.limit_words))}")
        name, follow, tick_s = record.id, partial(_event, record.id), live_view.pace(record.id, record.state)
        if playback.playing(record.id):
            name, follow = playback.stream(record.id, live_events.of_search)
        live_view.watch(name, follow, key="search.watch", tick_s=tick_s)


def cancel(record: StudyRecord) -> None:
    """Draw the button that cancels a search; nothing where another process runs it."""
    if session_jobs.status(record.id) is not None:
        job_box.cancel(
            record.id,
            key="search.cancel",
            help="Ends all worker processes. Results are kept, and you can resume the search.",
        )


def _event(study: str) -> Event:
    status = session_jobs.status(study)
    if status is not None and session_jobs.is_active(status):
        return live_events.of_search(status, time.time())
    record = state.store().study(study)
    if record.state not in ACTIVE:
        return live_events.ENDED
    tried = sum(not one["twin"] for one in record.tried)
    return live_events.of_other_process(
        f"Searched by {record.owner or 'another process'}: {tried:,} evaluated so far"
    )
