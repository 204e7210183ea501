"""A list whose choice the page can change, too: after a start here, a link or a choice in another list.

Models, earlier results and profiles use it. The present choice goes into the widget before it is drawn, and
only a choice made by a person calls back.
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
    on_select: Callable[[str], None],
    **more: Any,
) -> None:
    """Draw the list.

    Args:
        label: of the list.
        options: ids.
        key: begins the widget's key.
        chosen: id of the present choice; None: none.
        on_select: called with the choice of a person, before the page is drawn.
        more: passed on to `st.selectbox`.
    """
    own = f"{key}.list"
    st.session_state[own] = chosen
    if chosen is None:  # with one chosen there is nothing to clear
        more.setdefault("index", None)

    def choose() -> None:
        if picked := st.session_state[own]:
            on_select(picked)

    st.selectbox(label, list(options), key=own, on_change=choose, **more)
