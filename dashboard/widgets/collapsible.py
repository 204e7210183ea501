"""Groups of settings and details that are closed at first: their content is drawn when they are opened."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

from dashboard import format


def box(label: str, *, key: str, icon: str, first_open: bool = False) -> ExpanderContainer:
    """Return a group whose label may contain a number: it stays open or closed while the number changes.

    Args:
        label: may describe the content, such as by a count.
        key: of the widget; the session remembers under it whether the group is open.
        icon: name of a Material Symbol.
        first_open: whether it is open at first.

    Returns:
        The group; draw into it only if `.open`.
    """
    # a label is part of the widget's identity: another label would reset the group
    st.session_state[key] = bool(st.session_state.get(key, first_open))
    return st.expander(label, icon=format.icon(icon), key=key, on_change="rerun")


def group(label: str, draw: Callable[[], None], *, key: str, icon: str, changed: int = 0) -> None:
    """Draw a closed group.

    Args:
        label: of the group.
        draw: draws its content.
        key: of the widget.
        icon: name of a Material Symbol.
        changed: number of its settings that differ from their defaults.
    """
    opened = box(f"{label} · {changed} changed" if changed else label, key=key, icon=icon)
    if opened.open:
        with opened:
            draw()
