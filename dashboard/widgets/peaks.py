"""Peaks of the machine on the screen: measured values, their uncertainty, and the button that measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from core.api.machine import peaks_job
from core.evidence.roofline import peaks_of
from core.show.sheets import peaks as sheets
from core.wire.errors import StoreError, TunerError
from dashboard import format, state
from dashboard.widgets import job_box, tables

KIND = "peaks"
OWN = "peaks.own"  # id of the job that this session started, until its end was shown


def measured(fingerprint: str) -> dict[str, Any] | None:
    """Return the newest peaks of a machine; None, with the error shown, if the store cannot be read."""
    try:
        return state.store().peaks(fingerprint)
    except StoreError as error:
        state.report(error)
        return None


def measure(page: str, threads: int = 0) -> None:
    """Start a measurement from `page`; a callback. `threads`: measured besides the usual thread counts."""
    try:
        job = st.session_state[OWN] = state.submit(peaks_job(threads))
        state.follow(job, page)
    except TunerError as error:
        state.keep_error(error)


def button(page: str, *, again: bool, threads: int = 0, primary: bool = True) -> None:
    """Draw the button that measures; `progress` belongs below it.

    Args:
        page: begins the keys of the widgets.
        again: whether they were measured before.
        threads: see `measure`.
        primary: whether it is the page's primary action until they are measured.
    """
    active = job_box.running(KIND)
    st.button(
        "Measure peaks again" if again else "Measure peaks",
        key=f"{page}.peaks",
        type="primary" if primary and not again else "secondary",
        icon=":material/speed:",
        on_click=measure,
        args=(page, threads),
        **state.unless_closed(
            "Measures matrix products and memory copies for some seconds."
            if active is None
            else "They are being measured.",
            off=active is not None,
        ),
    )


def progress(page: str) -> None:
    """Draw the progress of a measurement, and once the error of a failed one of this session."""
    active = job_box.running(KIND)
    job_box.draw(
        active, f"{page}.peaks", what="the peaks", help="Ends its process; earlier peaks stay as they are."
    )
    if (ended := job_box.take_ended(OWN)) is not None and ended.error is not None:
        state.report(ended.error)


def draw(found: Mapping[str, Any], *, key: str) -> None:
    """Draw the peaks of a machine with their intervals and cautions."""
    peaks = peaks_of(found)
    for text in sheets.peak_warnings(peaks):
        st.warning(format.plain(text), icon=":material/warning:")
    tables.draw(
        sheets.table(peaks),
        key=key,
        alt="Peak performance of this machine by threads: operations and bytes per second, with intervals",
    )


def about(found: Mapping[str, Any]) -> None:
    """Draw how the peaks were measured, and when."""
    told = [f"{one.name} {one.text}" for one in sheets.peak_facts(found)]
    st.caption(format.plain(f"{sheets.ABOUT} This one: {'; '.join(told)}."))
