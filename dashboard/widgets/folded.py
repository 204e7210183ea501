"""Groups of settings and details that are closed at first: what is in them is drawn when they are opened."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import format


def group(label: str, draw: Callable[[], None], *, key: str, icon: str, changed: int = 0) -> None:
    """Draw a closed group; it stays open while its label changes with what is set in it.

    Args:
        label: of the group.
        draw: draws what is in it.
        key: of the widget.
        icon: name of a Material Symbol.
        changed: how many of its settings are not at their defaults.
    """
    # a label is part of the widget's identity: under another one it would begin closed
    st.session_state[key] = bool(st.session_state.get(key))
    told = f"{label} · {changed} changed" if changed else label
    box = st.expander(told, icon=format.icon(icon), key=key, on_change="rerun")
    if box.open:
        with box:
            draw()
