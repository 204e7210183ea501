"""Runs every callback to its end, also when the next browser event arrives meanwhile.

Streamlit answers an event in a script thread: it takes the values of the widgets, runs the callbacks, then
draws the page. When another event arrives, it stops that thread at the next access of the session state, in
a callback or just before it. The press is lost then, because the next event does not carry it. After
`keep_whole` the thread stops only behind the callbacks. This replaces two functions of Streamlit, one of
them private; `tests/views/test_callbacks.py` checks what they do.
"""

from __future__ import annotations

import threading
from typing import Any

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.state.safe_session_state import SafeSessionState

_thread = threading.local()


def keep_whole() -> None:
    """Let callbacks finish from now on; call it once, before the first session."""
    take_event = SafeSessionState.on_script_will_rerun
    stop_if_requested = ScriptRunner._maybe_handle_execution_control_request

    def take_event_whole(session: SafeSessionState, *states: Any, **options: Any) -> None:
        _thread.takes_event = True
        try:
            take_event(session, *states, **options)
        finally:
            _thread.takes_event = False

    def stop_after_callbacks(runner: ScriptRunner) -> None:
        if not getattr(_thread, "takes_event", False):
            stop_if_requested(runner)

    for owner, name, replacement in (
        (SafeSessionState, take_event.__name__, take_event_whole),
        (ScriptRunner, stop_if_requested.__name__, stop_after_callbacks),
    ):
        setattr(owner, name, replacement)
