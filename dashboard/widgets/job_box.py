"""A job that is under way: its progress and a way to cancel it, until the page is drawn again at its end."""

from __future__ import annotations

import streamlit as st

from core.run.job import Status
from dashboard import polling, state
from dashboard.widgets.queue_text import progress


def draw(
    job: Status | None, page: str, *, what: str, help: str, of: str = "", poll_s: float = polling.POLL_S
) -> None:
    """Draw the box of `job`, which is empty unless the job waits or runs.

    Args:
        job: where it stands; None: there is none.
        page: begins the keys of the widgets, `page.live` and `page.cancel`.
        what: the job, in a sentence: "this pair".
        help: what cancelling does.
        of: ends the keys, where a page has several boxes.
        poll_s: seconds between two looks.
    """
    active = state.is_active(job)
    end = f".{of}" if of else ""

    def tick() -> None:
        if not active or job is None:
            return
        now = state.status(job.id)
        if now is None or not state.is_active(now):
            st.rerun()
        share, text = progress(now, what)
        st.progress(share, text=text)
        st.button(
            "Cancel",
            key=f"{page}.cancel{end}",
            icon=":material/stop_circle:",
            help=help,
            on_click=state.scheduler().cancel,
            args=(now.id,),
        )

    with st.container(key=f"{page}.live{end}"):
        st.fragment(tick, run_every=poll_s if active else None)()
