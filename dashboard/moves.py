"""What a callback writes into another widget: nothing that the browser sent before it was told undoes it.

Every request of a browser, each look at a race among them, carries what all its widgets show. One that left
before the browser knew what a slider, a switch, a preset or a reset has made of another widget would take
that back; with Live on a page looks seven times a second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

LATE_S = 2.0  # what was sent before the browser was told has arrived by then
_WRITTEN = "written."  # and the key of the widget: what a callback wrote last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What a widget shows as soon as the browser is told."""

    value: Any
    past: Sequence[Any]  # what it showed before
    at: float  # monotonic


def write(key: str, value: Any) -> None:
    """Give a widget a value, from a callback of another, or before it is drawn."""
    before = st.session_state.get(key)
    last: _Written | None = st.session_state.get(_WRITTEN + key)
    now = time.monotonic()
    late = (last.value, *last.past) if last is not None and now - last.at <= LATE_S else ()
    past = [one for one in (before, *late) if one != value]
    if past:
        st.session_state[_WRITTEN + key] = _Written(value=value, past=past, at=now)
    st.session_state[key] = value


def settle() -> None:
    """Put back what a late request has taken back; at the top of a run, before anything reads a value."""
    for name in [str(one) for one in st.session_state if str(one).startswith(_WRITTEN)]:
        written: _Written = st.session_state[name]
        key = name.removeprefix(_WRITTEN)
        shown = st.session_state.get(key)
        if time.monotonic() - written.at > LATE_S or shown not in (written.value, *written.past):
            del st.session_state[name]  # the browser knows, or a person has chosen since
        elif key in st.session_state:
            st.session_state[key] = written.value
