"""Removal of a model from the library."""

from __future__ import annotations

import streamlit as st

from core.store import ModelRecord, library
from dashboard import messages, state

DETAIL = "models.detail"  # content hash of the model that was added last


def remove(record: ModelRecord) -> None:
    """Remove `record` from the library and from this session."""
    library.remove_model(state.store(), record.content_sha256)
    for name in (state.MODEL, DETAIL):
        if st.session_state.get(name) == record.content_sha256:
            del st.session_state[name]
    messages.notify(f"Deleted {record.name}.")
