"""The head of a page: its title, and at the right end the one button that it is there for."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator


def draw(title: str) -> DeltaGenerator:
    """Draw the title; return the place of the page's primary button, which is filled when all is known."""
    with st.container(horizontal=True, vertical_alignment="center", key="head"):
        st.title(title, anchor=False, width="content")
        st.space("stretch")
        return st.container(width="content", key="head.action")


def not_yet(action: DeltaGenerator, label: str, reason: str) -> None:
    """Draw the button as it stands while there is nothing to start, and why."""
    action.button(label, key="head.not_yet", type="primary", disabled=True, help=reason)
