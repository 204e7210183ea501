"""What is still measured: drawn in place in the browser, from a stream; one run of the page at its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import streamlit as st

from dashboard import state
from dashboard.live_events import ACTIVE, Event
from dashboard.server import live, upload

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "ortune_live",
    html=(_HERE / "live_view.html").read_text(encoding="utf-8"),
    css=(_HERE / "live_view.css").read_text(encoding="utf-8"),
    js=(_HERE / "live_view.js").read_text(encoding="utf-8"),
    isolate_styles=False,  # its pictures and texts are parts of the page, as those of the finished result
)


def watch(
    name: str,
    build: Callable[[], Event],
    *,
    key: str,
    part: Literal["", "ratio", "more"] = "",
    tick_s: float = live.TICK_S,
    ask_s: float = 0.0,
    rerun: bool = True,
) -> None:
    """Show what a job has found so far, in the browsers of all who look, until it ends.

    Args:
        name: of the stream: the id of the job, with what tells apart several views of it.
        build: builds what is shown now, in any thread and without this session.
        key: of the widget.
        part: "ratio" or "more": only this of a stream that another widget shows as a whole.
        tick_s: seconds between two events.
        ask_s: the browser asks so often instead of listening; 0: it listens.
        rerun: the page runs once when it ends; never for a part.
    """
    stream = live.STREAMS.offer(name, build, every_s=tick_s)
    _component(
        key=key,
        data={
            "url": f"{upload.base_path()}{live.address(name)}",
            "event": json.loads(stream.newest),
            "part": part,
            "every_s": ask_s,
            "rerun": rerun and not part,
        },
        on_ended_change=_redrawn,
        width="content" if part == "ratio" else "stretch",
    )


def pace(job: str, job_state: str) -> float:
    """Return the seconds between two events of a job: more where another process measures it.

    Each event is read from the disk then.

    Args:
        job: its id.
        job_state: as it stands in the store.
    """
    is_elsewhere = job_state in ACTIVE and not state.is_active(state.status(job))
    return live.ELSEWHERE_S if is_elsewhere else live.CALM_S


def _redrawn() -> None:
    """The run that follows draws the result."""
