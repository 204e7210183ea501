"""Repeated backups in one folder: a file each, of which the newest are kept."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from core.store.database import not_written, remove_drafts
from core.store.records import CheckResult
from core.store.store import Store

PREFIX = "ortune-auto-"
_NAME = re.compile(rf"{PREFIX}[0-9]{{8}}-[0-9]{{6}}(-[0-9]+)?\.db")


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
            found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        except OSError as error:
            raise not_written(folder, error.strerror or str(error)) from error
        # the oldest first; new ones are appended, so a clock that was set back does not make them the oldest
        self._files = sorted(found, key=lambda path: path.stem)

    def add(self, store: Store) -> Backup:
        """Copy the store to a new file of the folder and check the copy; then delete the oldest backups.

        While the store holds damaged rows, none is deleted: an old backup may hold them undamaged.

        Raises:
            StoreError: the copy cannot be written; then no older backup is deleted.
        """
        remove_drafts(self.folder, PREFIX)
        path = self._free_path()
        found = store.backup(path)
        self._files.append(path)
        gone = [] if found.damaged else self._files[: -self.keep]
        for old in gone:
            with contextlib.suppress(OSError):  # tried again with the next backup
                old.unlink(missing_ok=True)
        self._files = [one for one in self._files if one not in gone or one.exists()]
        return Backup(path=path, found=found, removed=sum(not one.exists() for one in gone))

    def _free_path(self) -> Path:
        stem, number = time.strftime(f"{PREFIX}%Y%m%d-%H%M%S"), 0
        path = self.folder / f"{stem}.db"
        while path.exists():
            number += 1
            path = self.folder / f"{stem}-{number}.db"
        return path
