"""Accessibility fixes for Streamlit's markup, for screen readers and keyboards, applied in the browser."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_JS = Path(__file__).parents[1] / "accessibility.js"
_component = st.components.v2.component("ortune_access", js=_JS.read_text(encoding="utf-8"))


def apply_fixes() -> None:
    """Fix the page, and everything that appears on it later."""
    _component(key="access", height=0)
