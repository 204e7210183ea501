"""What a browser asked for a page that was left meanwhile: it must not clear the page that came.

A timer in the browser draws a part of a page again, and names the page that the browser shows. Where the
server has gone on to another page by itself (`st.switch_page`), Streamlit (1.67) answers in the name of the
page that was left; the browser takes that for a change of page, clears what it has just drawn, and stays
blank. Here such a request gets the page that was drawn last; a part that went with its page is skipped, as
before.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequest, ScriptRequests

DRAWN = "page.drawn"  # key of the session: hash of the page that was drawn last as a whole


def drawing() -> None:
    """Remember which page this run draws; once its address is known, before the page itself."""
    _mend()
    if (context := get_script_run_ctx()) is not None:
        st.session_state[DRAWN] = context.page_script_hash


@cache
def _mend() -> None:
    asked = ScriptRequests.on_scriptrunner_ready

    def asked_of_the_drawn(self: ScriptRequests) -> ScriptRequest:
        return _of_the_drawn(asked(self))

    ScriptRequests.on_scriptrunner_ready = asked_of_the_drawn  # type: ignore[method-assign]


def _of_the_drawn(request: ScriptRequest) -> ScriptRequest:
    context = get_script_run_ctx(suppress_warning=True)
    data = request._rerun_data
    if context is None or data is None or not data.fragment_id_queue or DRAWN not in context.session_state:
        return request
    return replace(request, _rerun_data=replace(data, page_script_hash=context.session_state[DRAWN]))
