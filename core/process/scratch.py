"""Temporary folders, removed at the end of `with` or at the next start.

A killed process cannot clean up. So each process locks its folder, and the kernel frees the lock with the
process, also across containers that share a disk; an unlocked folder was left by a killed process. Where the
file system has no locks (some network disks), such folders stay.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.wire.files import made_private

if sys.platform != "win32":
    import fcntl

PREFIX = "ortune-scratch-"  # in the system's folder for temporary files
INCOMING = ".incoming-"  # beside the library's models
_RANDOM = re.compile(r"[0-9a-f]{16}")
_NO_LOCK = -1


@contextmanager
def folder(parent: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """Yield an empty folder for the body of the `with`, and remove it afterwards.

    Args:
        parent: created if missing. None: the system's folder for temporary files.
        prefix: of its name; `remove_abandoned` needs the same.

    Raises:
        OSError: it cannot be made.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    made_private(parent)
    path, held = _create_locked(parent, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if held != _NO_LOCK:
            os.close(held)


def moved(path: Path, target: Path) -> None:
    """Move a file, also to another disk; links are not followed.

    Raises:
        OSError: it cannot be read or written.
    """
    try:
        path.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(path, target, follow_symlinks=False)
        path.unlink()


def remove_abandoned(parent: Path | None = None, prefix: str = PREFIX) -> int:
    """Remove the folders that killed processes of this user left, and return their number."""
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir() if parent is None else parent):
            if not (entry.name.startswith(prefix) and _RANDOM.fullmatch(entry.name.removeprefix(prefix))):
                continue
            with contextlib.suppress(OSError):
                removed += _remove_if_abandoned(Path(entry.path))
    return removed


def _create_locked(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder and the descriptor of its lock; tries again where a cleaner was quicker than the lock."""
    while True:
        path = parent / f"{prefix}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        if sys.platform == "win32":
            return path, _NO_LOCK
        try:
            held = _open_folder(path)
        except FileNotFoundError:
            continue
        if _is_locked(held, fcntl.LOCK_SH) and path.exists():
            return path, held
        os.close(held)


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_locked(descriptor: int, how: int, *, without: bool = True) -> bool:
    """Try for a lock; False: another process has it. `without` is returned where there are no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without
    return True


def _remove_if_abandoned(path: Path) -> bool:
    if sys.platform == "win32":
        return False
    descriptor = _open_folder(path)
    try:
        is_own = os.fstat(descriptor).st_uid == os.geteuid()
        if not (is_own and _is_locked(descriptor, fcntl.LOCK_EX, without=False)):
            return False
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
    return not path.exists()
