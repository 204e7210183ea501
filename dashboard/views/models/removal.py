"""Removal of a model or a variant from the library; both pages offer it."""

from __future__ import annotations

import streamlit as st

from core.api.variants import variant_of
from core.store import ModelRecord, library
from dashboard import state

DETAIL = "models.detail"  # content hash of the model that was added last


def remove(record: ModelRecord) -> None:
    """Remove a model from the library and from this session; the original of a current variant is next.

    Raises:
        ModelError: a trial waits for it or runs it, or it is the original of variants.
    """
    library.remove_model(state.store(), record.content_sha256)
    root = state.store().model((variant_of(record) or {}).get("root", ""))
    if st.session_state.get(state.MODEL) == record.content_sha256:
        st.session_state[state.MODEL] = root.content_sha256 if root is not None else None
    if st.session_state.get(DETAIL) == record.content_sha256:
        del st.session_state[DETAIL]
    state.notify(f"Deleted {record.name}.")
