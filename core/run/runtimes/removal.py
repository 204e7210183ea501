"""Remove a runtime: its record, and its environment if ORTune created it. Results keep naming it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from core.process import runtimes, scratch
from core.run.runtimes.creation import DRAFT
from core.wire.errors import SpecError, StoreError
from core.wire.runtime import OWN, RuntimeRecord, runtime
from core.wire.units import size


def remove(name: str) -> RuntimeRecord | None:
    """Remove a runtime, and return its record; None: the record was damaged.

    Of an existing environment that was only named, nothing is deleted.

    Raises:
        SpecError: there is no such runtime, or a worker runs in it.
        StoreError: it cannot be deleted.
    """
    folder = runtimes.folder() / _existing(name)
    record = _record_if_valid(folder.name)
    if users := list(_workers(folder, record)):
        raise SpecError(
            f"The runtime `{folder.name}` is in use by process {', '.join(map(str, users[:5]))}.",
            hint="Wait for the measurement, or cancel it.",
        )
    scratch.remove_abandoned(runtimes.folder(), DRAFT)
    try:
        if folder.is_symlink():  # its target is not ORTune's
            folder.unlink()
            return record
        with scratch.folder(runtimes.folder(), DRAFT) as draft:
            folder.rename(draft / folder.name)  # gone at once: a killed removal leaves no half of it
            shutil.rmtree(draft / folder.name)
    except OSError as error:
        raise StoreError(
            f"The runtime `{folder.name}` cannot be deleted: {error.strerror or error}.",
            hint="Check the permissions of its folder.",
        ) from None
    return record


def _existing(name: str) -> str:
    asked = runtime(name).name
    if asked == OWN:
        raise SpecError(f"`{OWN}` is the environment of ORTune itself.", hint="Name another runtime.")
    if not os.path.lexists(runtimes.folder() / asked):
        runtimes.record(asked)  # raises with the nearest name
    return asked


def _record_if_valid(name: str) -> RuntimeRecord | None:
    with contextlib.suppress(SpecError, StoreError):
        return runtimes.record(name)
    return None


def _workers(folder: Path, record: RuntimeRecord | None) -> Iterator[int]:
    """The processes of ORTune's workers that run in the runtime, of all users that can be seen."""
    program = record["python"] if record is not None else str(folder)
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = process.info["cmdline"] or []
        if line and line[0].startswith(program) and any("core.worker" in one for one in line[1:3]):
            yield process.info["pid"]


def in_words(name: str) -> str:
    """Return what `remove` deletes, in words.

    Raises:
        SpecError: there is no such runtime.
    """
    record = _record_if_valid(_existing(name))
    if record is None:
        return f"the damaged runtime `{name}`"
    if not record["managed"]:
        return f"the runtime `{name}`; its environment stays"
    return f"the runtime `{name}` with its environment of {size(record['size_bytes'])}"
