"""The bottom row of a narrow screen: it opens the settings over the answer, and starts the job."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import state


def foot(page: str, action: Callable[[str], None]) -> None:
    """Draw the row; wide screens hide it.

    Args:
        page: begins the keys.
        action: draws the primary action of the page with the given key.
    """
    name = f"{page}.drawer"
    is_open = bool(st.session_state.setdefault(name, False))
    with st.container(horizontal=True, gap="small", key="foot"):
        st.button(
            "Close" if is_open else "Settings",
            key=f"drawer.{'open' if is_open else 'shut'}",
            icon=":material/keyboard_arrow_down:" if is_open else ":material/tune:",
            on_click=state.put,
            args=(name, not is_open),
        )
        action(f"{page}.run.foot")
