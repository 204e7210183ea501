"""A callback runs to its end although another browser event arrives meanwhile."""

from __future__ import annotations

import pytest
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.testing.v1 import AppTest

from dashboard.server import callbacks
from tests.views.conftest import TIMEOUT_S

# As Streamlit has them: other tests of the process start a server, which replaces them.
OWN = [
    (owner, name, getattr(owner, name))
    for owner, name in (
        (SafeSessionState, "on_script_will_rerun"),
        (ScriptRunner, "_maybe_handle_execution_control_request"),
    )
]


def script() -> None:
    import streamlit as st
    from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx

    def press() -> None:
        st.session_state["first"] = True
        context = get_script_run_ctx()
        assert context is not None
        assert context.script_requests is not None
        assert context.script_requests.request_rerun(RerunData())  # another event
        st.session_state["second"] = True

    st.button("Press", on_click=press)
    st.text(f"{st.session_state.get('first')} {st.session_state.get('second')}")


def pressed() -> str:
    at = AppTest.from_function(script, default_timeout=TIMEOUT_S).run()
    return str(at.button[0].click().run().text[0].value)


def test_a_callback_that_another_event_interrupts_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, function in OWN:
        monkeypatch.setattr(owner, name, function)
    assert pressed() == "True None"  # as Streamlit does it; if not, the module is no longer needed
    callbacks.keep_whole()
    assert pressed() == "True True"
