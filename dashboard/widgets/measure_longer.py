"""Measure longer: a button that adds launches to a finished comparison, in a new one with the old rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core.api.measuring import measure_longer_job
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.show import verdict
from core.wire.errors import TunerError
from dashboard import messages, session_jobs, state
from dashboard.widgets.protocol import wait_quiet_s


def button(
    page: str, comparison: Comparison, trials: Sequence[Trial], follow: Callable[[Comparison], None]
) -> None:
    """Draw the button; nothing if the comparison cannot be continued. Call only while the page has no job.

    Args:
        page: begins the key of the widget.
        comparison: the ended comparison.
        trials: of its configurations, with or without samples.
        follow: called with the continued comparison, to show it on the page.
    """
    if not verdict.can_measure_longer(comparison, trials):
        return
    st.button(
        "Measure longer",
        key=f"{page}.go_on",
        icon=":material/more_time:",
        on_click=_start,
        args=(comparison.id, follow),
        **state.unless_closed(
            "Adds launches of fresh processes; finished rounds count. This result stays as it is."
        ),
    )


def _start(comparison_id: str, follow: Callable[[Comparison], None]) -> None:
    try:
        job = measure_longer_job(state.session(), comparison_id, wait_quiet_s=wait_quiet_s())
        more = session_jobs.submit(job)
        follow(state.store().comparison(more))
    except TunerError as error:
        messages.keep_error(error)


def continued_trial(trial_id: str, before: Comparison, after: Comparison) -> str:
    """Return the trial of `after` that continues `trial_id` of `before`."""
    place = [one.trial for one in before.contestants].index(trial_id)
    return after.contestants[place].trial
