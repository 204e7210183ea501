"""Import of files made elsewhere: an upload that a worker reads, kept with its tag."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import streamlit as st

from core.process.job_worker import run_job
from core.run.importing import import_evidence
from core.store.imported import Imported
from core.wire.errors import TunerError
from core.wire.files import MOST_IMPORT_BYTES
from dashboard import state
from dashboard.server import upload

NOT_IMPORTED = "Nothing was imported"


def area(page: str, label: str, *, hint: str, wanted: Literal["profile", "summary"]) -> Imported | None:
    """Draw the upload area; return the files imported in this run of the page.

    Args:
        page: begins the keys.
        label: of the area.
        hint: accepted files.
        wanted: kind of file that the page shows.
    """
    if state.show_closed_reason():
        return None
    pending = f"{page}.import.pending"

    def uploaded(files: list[Path]) -> None:
        st.session_state[pending] = [str(file) for file in files]

    upload.uploader(
        label,
        key=f"{page}.import",
        accept="",
        hint=hint,
        on_upload=uploaded,
        multiple=False,
        most_bytes=MOST_IMPORT_BYTES,
    )
    files = [Path(path) for path in st.session_state.pop(pending, [])]
    if not files:
        return None
    try:
        with st.spinner("Reading the file in a process of its own…"):
            return import_evidence(state.store(), files[0], run_job, wanted=wanted)
    except TunerError as error:
        upload.refuse(f"{page}.import", error, NOT_IMPORTED)
    finally:
        upload.discard(files)
    st.rerun()  # the area shows the error
