"""What the address of a page names: the one place that reads and writes the address of results.

A name is taken away with None, and what stands there already is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

OLD_PATHS: Mapping[str, str] = {"curves": "sweep", "why": "explain"}  # path of a page before 1.0 -> path now


def file_of(path: str) -> str:
    """Return the script of a page, as Streamlit's navigation names it."""
    return f"views/{path}/page.py"


def named(name: str) -> str | None:
    """Return what the address names; None: nothing."""
    return st.query_params.get(name)


def put(name: str, value: str | None) -> None:
    """Let the address name a value from now on; None: nothing."""
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
