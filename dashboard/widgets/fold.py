"""A closed group whose label may tell a number: it stays open or closed while the number changes."""

from __future__ import annotations

import streamlit as st
from streamlit.elements.lib.mutable_expander_container import ExpanderContainer


def fold(label: str, *, key: str, icon: str, first_open: bool = False) -> ExpanderContainer:
    """Return the group; draw into it only where `.open` says so.

    Args:
        label: with what is told of the content, such as a count.
        key: of the widget, under which the session knows whether it is open.
        icon: beside the label.
        first_open: whether it is open when it is drawn first.
    """
    st.session_state[key] = bool(st.session_state.get(key, first_open))  # another label is another widget
    return st.expander(label, icon=icon, key=key, on_change="rerun")
