"""The way in for models: an upload area, whose files a worker reads into the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from core.store import ModelRecord, library
from core.wire.errors import TunerError
from dashboard import state
from dashboard.server import upload

NOT_ADDED = "The model was not added"


def area(page: str, added: Callable[[ModelRecord, bool], None]) -> None:
    """Draw the upload area; a model that came is told to `added`, and the page drawn anew.

    Args:
        page: begins the keys.
        added: gets the model, and whether the library did not have it yet.
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
    """Take uploaded files into the library; not in a callback, as reading a large one takes seconds.

    The area says what goes wrong, as soon as it is drawn anew.
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
    st.rerun()  # what is above is drawn anew, with the model or with what is wrong
