"""The query of a page's address: the only module that reads and writes the address of results.

None removes a name. A value that is already there is not written again.
"""

from __future__ import annotations

import streamlit as st


def named(name: str) -> str | None:
    """Return a value of the address; None: it has none."""
    return st.query_params.get(name)


def put(name: str, value: str | None) -> None:
    """Set a value of the address; None removes it."""
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
