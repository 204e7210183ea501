"""Imports profiles and results made elsewhere: a worker reads the file, and the store keeps the content."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from core import wire
from core.process.job_worker import Run, run_job
from core.store import Store
from core.store.imported import Imported
from core.wire.errors import SpecError

TIMEOUT_S = 300.0


WHERE: Mapping[str, tuple[str, str]] = {
    "profile": ("a profile", "Open it on the page Profile, or with `ortune profile --import FILE`."),
    "summary": (
        "a result of onnxruntime_perf_test",
        "Open it on the page Compare, or with `ortune compare --import FILE`.",
    ),
}


def import_evidence(
    store: Store,
    path: Path,
    run: Run = run_job,
    *,
    wanted: Literal["profile", "summary"],
    name: str = "",
) -> Imported:
    """Read a file in a separate worker, and store its content.

    Args:
        store: receives it.
        path: of the file.
        run: starts the worker.
        wanted: the expected kind of file.
        name: for display; empty: the file's name.

    Raises:
        SpecError: the file cannot be read, or is of the other kind; the message says why.
        StoreError: it cannot be stored.
    """
    found = run(wire.IMPORT, {"path": str(path)}, timeout_s=TIMEOUT_S)
    kind = "summary" if found["profile"] is None else "profile"
    if kind != wanted:
        what, where = WHERE[kind]
        raise SpecError(f"`{name or path.name}` is {what}.", hint=where)
    return store.shelf.put(found, name=name or path.name, at=time.time())
