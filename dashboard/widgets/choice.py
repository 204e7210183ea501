"""A list whose choice the page changes too: what was started here, a link or another list may come first.

The model, earlier results and profiles are chosen so. It stands here because all three need the same: what is
shown by now goes into the widget before it is drawn, and only what a person chose is taken up.
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
    own = f"{key}.list"
    st.session_state[own] = chosen
    if chosen is None:  # with one shown there is nothing to clear
        more.setdefault("index", None)

    def choose() -> None:
        if picked := st.session_state[own]:
            take_up(picked)

    st.selectbox(label, list(options), key=own, on_change=choose, **more)
