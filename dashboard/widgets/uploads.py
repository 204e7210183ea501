"""Upload areas whose files a worker reads, and files that are checked: bundles, YAML files, baselines."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import streamlit as st

from core.api.importing import import_evidence
from core.store import ModelRecord, library
from core.store.imported import Imported
from core.wire.errors import SpecError, TunerError
from core.wire.files import MOST_IMPORT_BYTES, made_private, private_opener
from core.wire.units import size
from dashboard import state
from dashboard.server import quotas, upload

TAB = "Upload"  # label of the tab that holds the area of models
NOT_ADDED, NOT_IMPORTED = "The model was not added", "Nothing was imported"  # titles of errors
MOST_CHECKED_MB = 1024
KEPT_S = 24 * 3600  # of checked files and stored results of verifications, on the disk of the server

Found = TypeVar("Found")


def model(page: str, added: Callable[[ModelRecord, bool], None]) -> None:
    """Draw the area of models; pass a new model to `added`, and redraw the page.

    Args:
        page: begins the keys.
        added: called with the model, and whether it is new in the library.
    """

    def read(files: list[Path]) -> tuple[ModelRecord, bool]:
        name = next((file.stem for file in files if file.suffix.lower() == ".onnx"), files[0].stem)
        with st.spinner("Reading the model in a process of its own…"):
            return library.import_files(state.store(), files, name=name, move=True)

    found = _area(
        f"{page}.upload",
        "An .onnx file, with its external data files if it has any",
        read,
        NOT_ADDED,
        hint="Drop files here or choose them.",
    )
    if found is not None:
        added(*found)
        st.rerun()  # redraw the content above


def evidence(page: str, label: str, *, hint: str, wanted: Literal["profile", "summary"]) -> Imported | None:
    """Draw the area of files made elsewhere; return the file imported in this run of the page.

    Args:
        page: begins the keys.
        label: of the area.
        hint: accepted files.
        wanted: kind of file that the page shows.
    """
    if state.show_closed_reason():
        return None

    def read(files: list[Path]) -> Imported:
        with st.spinner("Reading the file in a process of its own…"):
            return import_evidence(state.store(), files[0], wanted=wanted)

    more = {"multiple": False, "most_bytes": MOST_IMPORT_BYTES}
    return _area(f"{page}.import", label, read, NOT_IMPORTED, hint=hint, **more)


def _area(
    key: str, label: str, read: Callable[[list[Path]], Found], refused: str, **more: Any
) -> Found | None:
    """Draw an area, and return what was read of files that have just come.

    They are not read in a callback, because a large one takes seconds.

    Args:
        key: of the area.
        label: of the area.
        read: reads the files, which are removed then; may raise `TunerError`, which the area shows.
        refused: title of that error.
        more: passed on to `upload.uploader`.
    """
    pending = f"{key}.pending"

    def keep(files: list[Path]) -> None:
        st.session_state[pending] = [str(file) for file in files]

    upload.uploader(label, key=key, accept="", on_upload=keep, **more)
    files = [Path(path) for path in st.session_state.pop(pending, [])]
    if not files:
        return None
    try:
        return read(files)
    except TunerError as error:
        upload.refuse(key, error, refused)
    finally:
        upload.discard(files)
    st.rerun()  # the area shows the error


def on_disk(uploaded: Any) -> Path:
    """Return the path of a copy of an uploaded file; delete copies older than `KEPT_S`.

    Raises:
        SpecError: it is too large, the disk quota of the person is used up, or it cannot be kept.
    """
    store = state.store()
    if (actor := state.present_actor()) is not None:
        quotas.check_disk(store, actor)
    if uploaded.size > (most := MOST_CHECKED_MB << 20):
        raise SpecError(
            f"The file has {size(uploaded.size)}, but at most {size(most)} can be uploaded here.",
            hint="Use the command line for it.",
        )
    folder = store.folder / "cache" / "verify"
    target = folder / f"{secrets.token_hex(8)}{Path(uploaded.name).suffix.lower()}"
    try:
        made_private(folder)
        for old in folder.iterdir():
            if time.time() - old.stat().st_mtime > KEPT_S:
                old.unlink(missing_ok=True)
                store.uncharge(old)
        with open(target, "xb", opener=private_opener) as file:
            uploaded.seek(0)
            shutil.copyfileobj(uploaded, file)
        store.charge(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            target.unlink(missing_ok=True)
        raise SpecError(
            f"The file cannot be kept on the server: {error.strerror or error}.",
            hint="Free disk space, or use the command line.",
        ) from None
    return target
