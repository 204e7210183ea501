"""A running fleet run: progress of each host, cancelling, and the log of a host."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.api import fleet
from core.api.fleet_answers import listed, refs
from core.evidence.fleet.fleet_types import ENDED, Answer, FleetRun
from core.show import fleet_text
from core.wire.errors import TunerError
from dashboard import live_events, messages, state
from dashboard.format import plain
from dashboard.live_events import Event, Line
from dashboard.widgets import live_view

MOST_LINES = 20  # hosts that the live view names
REDRAW_SHARE = 0.05  # of the answers that came in since the page was drawn
ALL_HOSTS = "All hosts"
HOST, LOG_HOST, LOG = "fleet.cancel.host", "fleet.log.host", "fleet.log"
_FAILED = ("FAIL", "LOST", "CANCELLED")


def draw(run: FleetRun) -> None:
    """Draw the progress of a run that has not ended."""
    if run.state == "RUNNING":
        ended = _ended(run)
        with st.container(border=True, key="fleet.live"):
            name = f"fleet-{run.id}-{run.phase}-{ended}"
            follow = partial(event, run.id, run.phase, ended)
            live_view.watch(name, follow, of=refs(run), key="fleet.watch")
            _cancel(run)
    elif run.state == "INCOMPLETE":
        st.info(
            "Answers are missing. Hosts keep what they measured. Collect it: "
            f"`ortune fleet resume {run.id}`.",
            icon=":material/sync_problem:",
        )


def _ended(run: FleetRun) -> int:
    return sum(one.state in ENDED for one in run.answers)


def event(run_id: str, phase: str, drawn: int) -> Event:
    """Return the present event of a run; it ends when the page should be drawn again.

    Args:
        run_id: of the run.
        phase: that the page has drawn.
        drawn: number of answers that the page has drawn.
    """
    run = next((one for one in listed(state.store()) if one.id == run_id), None)
    if run is None or run.state != "RUNNING" or run.phase != phase:
        return live_events.ENDED
    ended, count = _ended(run), len(run.answers)
    if ended - drawn > REDRAW_SHARE * count or (ended > drawn and count <= MOST_LINES):
        return live_events.ENDED
    open_ = [one for one in run.answers if one.state not in ENDED]
    running = sorted(open_, key=lambda one: one.state != "RUNNING")
    lines: list[Line] = [_line(one) for one in running[:MOST_LINES]]
    if len(running) > MOST_LINES:
        lines.append({"text": f"{len(running) - MOST_LINES} more", "small": True})
    return {
        "ended": False,
        "state": "measuring",
        "share": ended / count if count else 0.0,
        "text": f"{ended} of {count} answers",
        "lines": lines,
    }


def _line(one: Answer) -> Line:
    if one.unreachable_since is not None:
        return {"text": f"{one.host}: does not reply", "icon": "cloud_off", "color": "orange"}
    told = one.progress.text if one.progress is not None else ""
    return {"text": f"{one.host}: {told or fleet_text.STATES[one.state]}"}


def _cancel(run: FleetRun) -> None:
    hosts = list(dict.fromkeys(one.host for one in run.answers if one.state not in ENDED))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Hosts to cancel", [ALL_HOSTS, *hosts], key=HOST, width=220)
        st.button(
            "Cancel",
            key="fleet.cancel",
            icon=":material/stop_circle:",
            on_click=_cancelled,
            args=(run.id,),
            **state.unless_closed("Ends the questions on the hosts, with their processes.", role="admin"),
        )


def _cancelled(run_id: str) -> None:
    chosen = st.session_state.get(HOST) or ALL_HOSTS
    try:
        state.refuse_if_closed("admin")
        fleet.cancel(run_id, None if chosen == ALL_HOSTS else chosen)
    except TunerError as error:
        messages.keep_error(error)


def logs(run: FleetRun) -> None:
    """Draw the log of a host that failed; nothing if none did."""
    failed = list(dict.fromkeys(one.host for one in run.answers if one.state in _FAILED))
    if not failed:
        return
    with st.expander("Log of a host", icon=":material/article:", key="fleet.logs"):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox("Host", failed, key=LOG_HOST, width=220)
            st.button(
                "Show log",
                key="fleet.log.show",
                on_click=_read_log,
                args=(run.id,),
                help="Asks the host for the end of its log.",
            )
        kept = st.session_state.get(LOG)
        if kept and kept["run"] == run.id and kept["host"] in failed:
            st.caption(f"Log of {plain(kept['host'])}")
            st.code(kept["text"] or "The log is empty.", language=None, height=300)


def _read_log(run_id: str) -> None:
    host = st.session_state.get(LOG_HOST)
    if not host:
        return
    try:
        st.session_state[LOG] = {"run": run_id, "host": host, "text": fleet.logs(run_id, host)}
    except TunerError as error:
        messages.keep_error(error)
