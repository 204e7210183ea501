"""A running search: the best configuration so far, the evaluations, the remaining time, and Cancel."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.spec.question import question_from_dict
from core.store import StudyRecord
from dashboard import format, live_events, session_jobs, state
from dashboard.live_events import ACTIVE
from dashboard.widgets import job_box, live_view


def watch(record: StudyRecord) -> None:
    """Draw the live view of a search; when the search ends, redraw the whole page once."""
    question = question_from_dict(record.question)
    with st.container(key="search.live", gap="xsmall"):
        st.markdown(f"#### Searching: {format.plain(question.words)}")
        if question.limit_words:
            st.caption(f":material/rule: {format.plain(', '.join(question.limit_words))}")
        name, follow = live_view.stream(record.id, live_events.of_search, partial(_elsewhere, record.id))
        tick_s = live_view.pace(record.id, record.state)
        live_view.watch(name, follow, key="search.watch", tick_s=tick_s)


def cancel(record: StudyRecord) -> None:
    """Draw the button that cancels a search; nothing where another process runs it."""
    if session_jobs.status(record.id) is not None:
        job_box.cancel(
            record.id,
            key="search.cancel",
            help="Ends all worker processes. Results are kept, and you can resume the search.",
        )


def _elsewhere(study: str) -> str | None:
    record = state.store().study(study)
    tried = sum(not one["twin"] for one in record.tried)
    who = f"Searched by {record.owner or 'another process'}: {tried:,} evaluated so far"
    return who if record.state in ACTIVE else None
