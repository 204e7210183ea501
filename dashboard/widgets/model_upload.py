"""Upload of models: an area whose files a worker reads into the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from core.store import ModelRecord, library
from core.wire.errors import TunerError
from dashboard import state
from dashboard.server import upload

TAB = "Upload"  # label of the tab that holds the area
NOT_ADDED = "The model was not added"


def area(page: str, added: Callable[[ModelRecord, bool], None]) -> None:
    """Draw the upload area; pass a new model to `added`, and redraw the page.

    Args:
        page: begins the keys.
        added: called with the model, and whether it is new in the library.
    """
    upload.uploader(
        "An .onnx file, with its external data files if it has any",
        key=f"{page}.upload",
        accept="",
        hint="Drop files here or choose them.",
        on_upload=lambda files: _keep(page, files),
    )
    _read(page, added)


def _keep(page: str, files: list[Path]) -> None:
    st.session_state[f"{page}.pending"] = [str(file) for file in files]


def _read(page: str, added: Callable[[ModelRecord, bool], None]) -> None:
    """Add uploaded files to the library; not in a callback, because a large one takes seconds.

    The area shows an error when it is redrawn.
    """
    pending = [Path(path) for path in st.session_state.pop(f"{page}.pending", [])]
    if not pending:
        return
    name = next((file.stem for file in pending if file.suffix.lower() == ".onnx"), pending[0].stem)
    try:
        with st.spinner("Reading the model in a process of its own…"):
            added(*library.import_files(state.store(), pending, name=name, move=True))
    except TunerError as error:
        upload.refuse(f"{page}.upload", error, NOT_ADDED)
    finally:
        upload.discard(pending)
    st.rerun()  # redraw the content above, with the model or the error
