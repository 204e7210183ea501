"""Repeated backups in one folder: a file each, of which the newest are kept."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from core.store.database import not_written, remove_drafts
from core.store.records import CheckResult
from core.store.store import Store

PREFIX = "ortune-auto-"
_NAME = re.compile(rf"{PREFIX}([0-9]{{8}}-[0-9]{{6}})(?:-([0-9]+))?\.db")  # earlier versions added numbers
_TIME = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """One backup of a folder."""

    path: Path
    found: CheckResult  # of the copy
    removed: int  # older backups


class BackupFolder:
    """A folder of backups. Files with other names are never deleted."""

    def __init__(self, folder: Path, keep: int) -> None:
        """Create the folder where it is missing.

        Args:
            folder: of the backups.
            keep: largest number of backups in it, 1 or more.

        Raises:
            StoreError: the folder cannot be created.
        """
        self.folder, self.keep = folder, keep
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = {path: order for path in folder.iterdir() if (order := _order(path))}
        except OSError as error:
            raise not_written(folder, error.strerror or str(error)) from error
        self._files = sorted(found, key=lambda path: found[path])  # the oldest first
        self._last = found[self._files[-1]][0] if found else datetime.min

    def add(self, store: Store) -> Backup:
        """Copy the store to a new file of the folder and check the copy; then delete the oldest backups.

        While the store holds damaged rows, none is deleted: an old backup may hold them undamaged.

        Raises:
            StoreError: the copy cannot be written; then no older backup is deleted.
        """
        remove_drafts(self.folder, PREFIX)
        path = self._next_path()
        found = store.backup(path)
        self._files.append(path)
        gone = [] if found.damaged else self._files[: -self.keep]
        for old in gone:
            with contextlib.suppress(OSError):  # tried again with the next backup
                old.unlink(missing_ok=True)
        self._files = [one for one in self._files if one not in gone or one.exists()]
        return Backup(path=path, found=found, removed=sum(not one.exists() for one in gone))

    def _next_path(self) -> Path:
        """Return a name later than all others: a clock that was set back must not make it the oldest."""
        now = datetime.fromtimestamp(int(time.time()))
        while True:
            self._last = max(now, self._last + timedelta(seconds=1))
            path = self.folder / f"{PREFIX}{self._last:{_TIME}}.db"
            if not path.exists():  # another process may back up into the same folder
                return path


def _order(path: Path) -> tuple[datetime, int] | None:
    """Return the place of a backup among the others; None: it is another file."""
    if not (name := _NAME.fullmatch(path.name)):
        return None
    try:
        return datetime.strptime(name[1], _TIME), int(name[2] or 0)
    except ValueError:
        return None
