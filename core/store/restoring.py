"""Replaces the store with a backup. The replaced store is kept in a copy.

Like every copy, it uses SQLite's backup API, so other processes may have the file open.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from core.store import audit
from core.store.database import (
    APPLICATION_ID,
    BUSY_S,
    ERRORS,
    STORE_NAME,
    access_error,
    check_header,
    copy,
    error_words,
    free_name,
    home,
    is_damage,
    made_folder,
    not_written,
    remove_drafts,
    rename_damaged,
    store_error,
)
from core.wire.errors import StoreError


def restore(source: Path, path: Path | None = None) -> Path | None:
    """Replace the store with a backup, and return the copy of the replaced store; None: there was none.

    Args:
        source: a file that `Store.backup` wrote, of this or an earlier version.
        path: of the store; None: `home() / "ortune.db"`.

    Raises:
        StoreError: `source` is no valid store, or `path` cannot be written.
    """
    target = (path or home() / STORE_NAME).absolute()
    made_folder(target.parent)
    _check_backup(source, target)
    remove_drafts(target.parent, f"{target.name}.")
    kept = _kept_aside(target) if target.exists() else None
    is_copied = target.exists()  # else it was damaged, and has been renamed
    try:
        _overwrite(source, target)
    except ERRORS as error:
        if kept is not None and is_copied:  # the store is unchanged, and a full disk needs the space
            kept.unlink(missing_ok=True)
        raise store_error(target, error) from error
    audit.record("change", f"store replaced by the backup `{source.name}`", folder=target.parent)
    return kept


def lost_by_restore(source: Path, path: Path | None = None) -> int:
    """Return how many trials and searches of the store a backup lacks; arguments as of `restore`.

    Raises:
        StoreError: `source` is no valid store.
    """
    target = (path or home() / STORE_NAME).absolute()
    _check_backup(source, target)
    if not target.exists():
        return 0
    try:
        return len(_ids(target) - _ids(source))
    except ERRORS as error:
        if is_damage(error):  # nothing readable is lost
            return 0
        raise store_error(target, error) from error


def _check_backup(source: Path, path: Path) -> None:
    """Refuse a file that is no valid backup of a store.

    Raises:
        StoreError: it is no valid backup, or it is the store at `path` itself.
    """
    if not source.is_file():
        raise StoreError(f"There is no backup `{source}`.", hint="Give a file that `backup` wrote.")
    if source.resolve() == path.resolve():
        raise StoreError(f"`{source}` is the store itself.", hint="Give a file that `backup` wrote.")
    try:
        check_header(source)
        with closing(_read_only(source)) as db:
            verdict = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            application = db.execute("PRAGMA application_id").fetchone()[0]
    except ERRORS as error:
        raise StoreError(
            f"`{source}` is no sound store: {error_words(error)}.",
            hint="Give another file that `backup` wrote.",
        ) from error
    if application != APPLICATION_ID:
        raise StoreError(f"`{source}` is no store of ORTune.", hint="Give a file that `backup` wrote.")


def _kept_aside(path: Path) -> Path:
    """Copy the current store before a restore; rename it if it is damaged."""
    kept = free_name(path, "before-restore")
    try:
        copy(path, kept)
    except OSError as error:
        raise access_error(kept, error) from error
    except ERRORS as error:
        if not is_damage(error):
            raise not_written(kept, str(error)) from error
        return rename_damaged(path)
    return kept


def _overwrite(source: Path, target: Path) -> None:
    """Replace the content of the file `target` with `source` in one transaction.

    Raises:
        sqlite3.Error: it cannot be written, or another process writes for longer than `BUSY_S`.
    """
    until = time.monotonic() + BUSY_S

    def watch(status: int, remaining: int, total: int) -> None:
        if time.monotonic() > until and status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise sqlite3.OperationalError(f"another process has been using it for more than {BUSY_S:g} s")

    with closing(_read_only(source)) as one, closing(sqlite3.connect(target, timeout=BUSY_S)) as other:
        one.backup(other, progress=watch)


_IDS = {"trials": "SELECT id FROM trials", "studies": "SELECT id FROM studies"}


def _ids(path: Path) -> set[tuple[str, str]]:
    """Return table and id of every trial and search in a file."""
    with closing(_read_only(path)) as db:
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {(name, row) for name, ids in _IDS.items() if name in there for (row,) in db.execute(ids)}


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
