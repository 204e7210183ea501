"""Copies the SQLite file: backups, copies before a migration or a restore, and the restore itself.

Copies use SQLite's backup API, so a copy is a consistent snapshot while other processes write. A copy is one
file without a journal, and is complete or missing. Functions raise SQLite's errors; `database.py` words them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path


def free_name(path: Path, what: str) -> Path:
    """Return an unused path in the folder of `path`, for example `ortune.db.corrupt-20260131-120000`."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name, number = f"{path.name}.{what}-{stamp}", 0
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.{what}-{stamp}-{number}"
    return path.with_name(name)


def copy(source: Path, target: Path) -> None:
    """Copy the database `source` to the new file `target`.

    Raises:
        OSError, sqlite3.Error: it cannot be read or written; then `target` does not exist.
    """
    with closing(sqlite3.connect(source)) as db:
        copy_of(db, target)


def copy_of(db: sqlite3.Connection, target: Path) -> None:
    """Copy the database of a connection to the new file `target`; raises like `copy`."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with closing(sqlite3.connect(draft)) as other:
            db.backup(other)
            other.execute("PRAGMA journal_mode = DELETE")
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)


def checked_application_id(source: Path) -> int:
    """Check the integrity of the whole file, read-only, and return its SQLite application id.

    Raises:
        sqlite3.Error: it is damaged.
    """
    with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as db:
        verdict = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        application: int = db.execute("PRAGMA application_id").fetchone()[0]
    return application


def count_missing(source: Path, present: Path) -> int:
    """Return how many trials and searches of the store `present` the copy `source` lacks.

    Raises:
        sqlite3.Error: one of them cannot be read.
    """
    return len(_ids(present) - _ids(source))


def _ids(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {(name, row) for name, ids in _IDS.items() if name in there for (row,) in db.execute(ids)}


_IDS = {"trials": "SELECT id FROM trials", "studies": "SELECT id FROM studies"}


def overwrite(source: Path, target: Path, patience_s: float) -> None:
    """Replace the content of the file `target` with `source` in one transaction.

    Raises:
        sqlite3.Error: it cannot be written, or another process writes for longer than `patience_s`.
    """
    until = time.monotonic() + patience_s

    def watch(status: int, remaining: int, total: int) -> None:
        if time.monotonic() > until and status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise sqlite3.OperationalError(
                f"another process has been using it for more than {patience_s:g} s"
            )

    with (
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as one,
        closing(sqlite3.connect(target, timeout=patience_s)) as other,
    ):
        one.backup(other, progress=watch)
