"""Groups of settings and details that are closed at first: what is in them is drawn when they are opened."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from dashboard import format


def box(label: str, *, key: str, icon: str, first_open: bool = False) -> ExpanderContainer:
    """Return a group whose label may tell a number: it stays open or closed while the number changes.

    Args:
        label: with what is told of the content, such as a count.
        key: of the widget, under which the session knows whether it is open.
        icon: name of a Material Symbol.
        first_open: whether it is open when it is drawn first.

    Returns:
        The group; draw into it only where `.open` says so.
    """
    # a label is part of the widget's identity: under another one it would begin as at first
    st.session_state[key] = bool(st.session_state.get(key, first_open))
    return st.expander(label, icon=format.icon(icon), key=key, on_change="rerun")


def group(label: str, draw: Callable[[], None], *, key: str, icon: str, changed: int = 0) -> None:
    """Draw a closed group.

    Args:
        label: of the group.
        draw: draws what is in it.
        key: of the widget.
        icon: name of a Material Symbol.
        changed: how many of its settings are not at their defaults.
    """
    opened = box(f"{label} · {changed} changed" if changed else label, key=key, icon=icon)
    if opened.open:
        with opened:
            draw()
