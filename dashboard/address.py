"""What the address of a page names: the one place that reads and writes the address of results.

A browser sends its address with everything that it asks for, and what it asks for may have left before the
address arrived that this session just gave it: a race that was started a moment ago would make room for the
result before it. What this session replaced is therefore not taken for a wish while it is young, unless the
browser says that somebody went back in its history.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

LATE_S = 10.0  # that what a browser asks for may be on its way, also where it and the server are busy
_REPLACED = "address.replaced"
_PAGE = "address.page"


@dataclass
class _Replaced:
    """What stood in the address before, with the moment until which it may still be sent."""

    by: str | None
    until: dict[str | None, float] = field(default_factory=dict)


def arrive(page: str) -> None:
    """Begin a run of a page, before anything else is written into the address.

    What was replaced on another page, or before somebody went back, is forgotten; the rest is mended at once.
    """
    run = get_script_run_ctx()
    if st.session_state.get(_PAGE) != page or (run is not None and run.is_history_navigation):
        st.session_state[_PAGE] = page
        st.session_state.pop(_REPLACED, None)
    for name in st.session_state.get(_REPLACED, {}):
        named(name)


def named(name: str) -> str | None:
    """Return what the address names, None: nothing; what was just replaced counts as what replaced it."""
    value = st.query_params.get(name)
    replaced: _Replaced | None = st.session_state.get(_REPLACED, {}).get(name)
    if replaced is None or time.monotonic() >= replaced.until.get(value, 0.0):
        return value
    _write(name, replaced.by)
    return replaced.by


def put(name: str, value: str | None) -> None:
    """Let the address name a value from now on; None: nothing."""
    before = st.query_params.get(name)
    if before == value:
        return
    kept: dict[str, _Replaced] = st.session_state.setdefault(_REPLACED, {})
    replaced = kept.setdefault(name, _Replaced(value))
    replaced.by = value
    replaced.until[before] = time.monotonic() + LATE_S
    replaced.until.pop(value, None)
    _write(name, value)


def _write(name: str, value: str | None) -> None:
    if value is None:
        st.query_params.pop(name, None)
    else:
        st.query_params[name] = value
