"""A list whose choice the script changes too: what was started here, a link or another list may come first.

A browser sends the values of all widgets with everything that it asks for. What left before it heard of a
change brings the choice of before, which would count as made by hand: the result of a race that was just
started would make room for the one before it. So every change by the script makes a widget of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st


def draw(
    label: str,
    options: Sequence[str],
    *,
    key: str,
    chosen: str | None,
    take_up: Callable[[str], None],
    **more: Any,
) -> None:
    """Draw the list.

    Args:
        label: of the list.
        options: ids.
        key: begins the widget's key.
        chosen: the id that is shown by now; None: none.
        take_up: called with what a person chose, before the page is drawn.
        more: passed on to `st.selectbox`.
    """
    counter = f"{key}.turn"
    turn = st.session_state.setdefault(counter, 0)
    if f"{key}.{turn}" not in st.session_state or st.session_state[f"{key}.{turn}"] != chosen:
        turn += 1
        st.session_state[counter] = turn
        st.session_state[f"{key}.{turn}"] = chosen
    own = f"{key}.{turn}"

    def choose() -> None:
        if st.session_state[counter] == turn and (picked := st.session_state[own]):
            take_up(picked)

    st.selectbox(label, list(options), key=own, on_change=choose, **more)
