"""A YAML file that is chosen, or its text that is pasted: two fields of which the file counts."""

from __future__ import annotations

import streamlit as st

from core.wire.errors import SpecError


def file_chosen(file: str, pasted: str) -> None:
    """Let what was pasted before make room for the file: it must not come back when the file is removed.

    Args:
        file: key of the uploader.
        pasted: key of the text area.
    """
    if st.session_state.get(file) is not None:
        st.session_state[pasted] = ""


def text_of(file: str, pasted: str, *, to: str) -> tuple[str, str]:
    """Return what the YAML is called, and its text.

    Args:
        file: key of the uploader.
        pasted: key of the text area.
        to: what is to be done with it, for the error: "load".

    Raises:
        SpecError: neither is given, or the file is not text.
    """
    uploaded = st.session_state.get(file)
    if uploaded is None:
        text = str(st.session_state.get(pasted) or "")
        if not text.strip():
            raise SpecError(f"There is no YAML to {to}.", hint="Choose a file or paste its text.")
        return "pasted YAML", text
    try:
        return uploaded.name, str(uploaded.getvalue(), "utf-8")
    except UnicodeDecodeError:
        raise SpecError(
            "The file is not text in UTF-8.", hint="Choose a YAML file that ORTune exported."
        ) from None
