"""A search that runs: the best so far, what was tried, the time that is left; it can be cancelled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from core.evidence.tried import best_told
from core.run.job import Status
from core.spec.question import question_from_dict
from core.spec.space import changes_words
from core.store import StudyRecord
from dashboard import format, state
from dashboard.charts import search_live_charts
from dashboard.widgets import plots
from dashboard.widgets.queue_text import waiting_text

ACTIVE = ("WAITING", "RUNNING")


def watch(record: StudyRecord) -> None:
    """Draw the box that follows a search until it ends, and then the whole page once."""
    st.fragment(_tick, run_every=state.look_s(None))(record.id)


def cancel(record: StudyRecord) -> None:
    """Draw the button that cancels a search; nothing where another process searches."""
    if state.status(record.id) is None:
        return
    st.button(
        "Cancel",
        key="search.cancel",
        icon=":material/stop_circle:",
        on_click=state.scheduler().cancel,
        args=(record.id,),
        help="Ends all its workers. What was tried is kept, and the search can go on later.",
    )


def _tick(study: str) -> None:
    status = state.status(study)
    record = state.store().study(study)
    if not state.is_active(status) and record.state not in ACTIVE:
        st.rerun()  # one full run draws the answer and ends the polling
    question = question_from_dict(record.question)
    with st.container(key="search.live", gap="xsmall"):
        st.markdown(f"#### {format.plain(_headline(question.words, status))}")
        if question.limit_words:
            st.caption(f":material/rule: {format.plain(', '.join(question.limit_words))}")
        if status is None:
            _elsewhere(record)
            return
        share, text = progress(status, time.time())
        st.progress(share, text=text)
        if status.live:
            _so_far(status.live)


def _headline(words: str, status: Status | None) -> str:
    """The best so far, else what is searched."""
    live = status.live if status is not None else None
    return f"Searching: {words}" if live is None else f"{best_words(live)[0]}: {words}"


def _elsewhere(record: StudyRecord) -> None:
    tried = sum(not one["twin"] for one in record.tried)
    st.progress(
        0.0,
        text=f"Searched by {format.plain(record.owner or 'another process')}: {tried:,} tried so far. The "
        "answer is shown here when it is there.",
    )


def progress(status: Status, now: float) -> tuple[float, str]:
    """Share of the time that is over, and what is done, in words; `now` in seconds since the epoch."""
    if status.state == "WAITING":
        return 0.0, waiting_text(status, "this search")
    live = status.live
    if live is None:
        return 0.0, f"Starts · {format.duration(status.elapsed_s)} so far"
    left_s = max(0.0, live["ends_at"] - now)
    step = format.plain(status.stage)
    if status.total:
        step += f" {status.done:,} of {status.total:,}"
    doing = format.plain(live["doing"] or "plans")
    ends = f"at most {format.duration(left_s)} left" if left_s else "the time is over; the last race ends"
    parts = [doing[:1].upper() + doing[1:], step, f"{format.duration(status.elapsed_s)} so far", ends]
    share = 1 - left_s / live["budget_s"] if live["budget_s"] else 0.0
    return min(1.0, max(0.0, share)), " · ".join(part for part in parts if part)


def best_words(live: Mapping[str, Any]) -> tuple[str, str]:
    """Return the best so far and what it rests on; nothing of it is final."""
    best = live["best"]
    if best is None:
        return "Nothing tried yet", "The first looks show what a configuration costs."
    return f"Best so far {best_told(best)}", f"{changes_words(best['changes'])} · final only at the end"


def tried_words(live: Mapping[str, Any]) -> str:
    """Return how many were tried and how many are still to try."""
    tried, distinct = live["tried"], live["distinct"]
    return f"{tried:,} tried · {max(0, distinct - tried):,} of {distinct:,} not tried"


def _so_far(live: Mapping[str, Any]) -> None:
    dark = state.is_dark()
    plots.draw_growing(
        search_live_charts.points_so_far(live["points"], live["front"], dark=dark),
        key="search.live.points",
        height=search_live_charts.HEIGHT,
        alt=f"Gain of {len(live['points'])} configurations tried so far, over their memory where known",
        why="",
    )
    st.caption(format.plain(best_words(live)[1]))
    st.caption(f":material/grid_view: {format.plain(tried_words(live))} · dotted: ONNX Runtime's default")
    plots.draw_growing(
        search_live_charts.course_so_far(live["course"], dark=dark),
        key="search.live.course",
        height=search_live_charts.LOW,
        alt="The best gain over the time since the search began",
    )
