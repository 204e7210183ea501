"""Where a fleet keeps its files: answers and received files on a host, runs on a client.

All of it lies in `fleet` in ORTune's folder. Standard library only: the process of a question imports it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.wire.errors import HOME_HINT, SpecError, StoreError
from core.wire.files import home, made_private, written_whole

REQUEST, STATE, DOCUMENT, ROWS, LOG = "request.json", "state.json", "document.json", "rows.bin", "log.txt"
_FULL_BYTES = 1 << 20  # less free space than this counts as a full disk


def answers() -> Path:
    """The folder of a host's answers; one folder for each key."""
    return home() / "fleet" / "answers"


def parcels() -> Path:
    """The folder of received files; one folder for each content hash."""
    return home() / "fleet" / "models"


def runs() -> Path:
    """The folder of a client's runs; one folder for each ID."""
    return home() / "fleet" / "runs"


def answer(key: str) -> Path:
    """The folder of one answer.

    Raises:
        SpecError: the key is no name of a folder.
    """
    if not key or Path(key).name != key or key.startswith("."):
        raise SpecError(f"`{key[:80]}` is no key of an answer.", hint="Use the same ORTune everywhere.")
    return answers() / key


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file completely or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        made_private(path.parent)
        with written_whole(path) as part:
            part.write_text(json.dumps(data))
    except OSError as error:
        raise unwritable(path, error) from error


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object of a JSON file; None: there is no valid one."""
    with contextlib.suppress(OSError, ValueError):
        data = json.loads(path.read_bytes())
        if isinstance(data, dict):
            return data
    return None


def unwritable(path: Path, error: OSError) -> StoreError:
    """Return the error for a file of a fleet that cannot be written."""
    if is_full(path):
        return StoreError(f"The disk is full: `{path}` could not be written.", hint=HOME_HINT)
    return StoreError(f"`{path}` cannot be written: {error.strerror or error}.", hint=HOME_HINT)


def is_full(path: Path) -> bool:
    """Whether the disk of a file has no space left."""
    for folder in path.parents:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free < _FULL_BYTES
    return False
