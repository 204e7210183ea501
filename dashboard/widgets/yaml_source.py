"""A YAML source: a chosen file or pasted text; the file takes precedence."""

from __future__ import annotations

import streamlit as st

from core.api.signing import check_text, refuse_wrong
from core.show.sheets.signatures import signature_note
from core.spec import TrialSpec, old_key_note, spec_from_yaml
from core.wire.access import expert_allowed
from core.wire.errors import SpecError
from dashboard import messages
from dashboard.server import people


def fields(file: str, pasted: str, *, begins: str) -> None:
    """Draw the two fields.

    Args:
        file: key of the uploader.
        pasted: key of the text area.
        begins: first line of such a YAML, shown as the placeholder.
    """
    st.file_uploader(
        "YAML file",
        type=["yaml", "yml"],
        key=file,
        max_upload_size=1,
        on_change=_file_chosen,
        args=(file, pasted),
        disabled=bool(reason := people.refusal("engineer")),
        help=reason
        or "A file that ORTune exported. Nothing in it is executed; its model is found by its hash.",
    )
    st.text_area(
        "or paste it",
        key=pasted,
        height=180,
        placeholder=begins,
        disabled=st.session_state.get(file) is not None,
        help="Used when no file is chosen.",
    )


def _file_chosen(file: str, pasted: str) -> None:
    """Clear the pasted text, so that it does not come back when the file is removed."""
    if st.session_state.get(file) is not None:
        st.session_state[pasted] = ""


def read(file: str, pasted: str, *, to: str) -> tuple[str, TrialSpec]:
    """Return the name of the YAML, and its configuration; a notice names a key of an earlier version.

    Args:
        file: key of the uploader.
        pasted: key of the text area.
        to: verb for the error, such as "load".

    Raises:
        SpecError: neither is given, the file is not text, or its text is no configuration.
    """
    name, text = _text(file, pasted, to=to)
    signature = check_text(text.encode())
    refuse_wrong(signature, name)
    if told := signature_note(signature, name):
        messages.notify(told)
    spec = spec_from_yaml(text, expert=expert_allowed())
    if remark := old_key_note(text):
        messages.notify(f"{name}: {remark}")
    return name, spec


def _text(file: str, pasted: str, *, to: str) -> tuple[str, str]:
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
