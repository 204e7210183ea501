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
        remove(path)
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
        except OSError:  # no descriptor is left
            path.rmdir()
            raise
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
        remove(path)
    finally:
        os.close(descriptor)
    return not path.exists()


# --- removal ------------------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    """Remove a folder with all in it as far as possible, also what a hostile process has left in it.

    Folders in folders are moved to the top before they are emptied, so that neither their depth nor the
    length of their paths matters: Python's own removal recurses, and opens a descriptor for each level. No
    process may write there any more. A missing folder is no error.
    """
    if sys.platform == "win32":
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        top = _open_folder(path)
        try:
            while _emptied(top, top):
                pass
        finally:
            os.close(top)
        path.rmdir()


def _emptied(folder: int, top: int) -> bool:
    """Remove the files of a folder and empty its folders; whether anything changed, so that more may go."""
    changed = False
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                    changed = True
                    continue
                os.chmod(entry.name, 0o700, dir_fd=folder)  # its maker may have taken away all rights
                if folder == top:
                    changed |= _removed_from_top(entry.name, top)
                else:
                    name = f"removed-{secrets.token_hex(8)}"
                    os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
                    changed = True
    return changed


def _removed_from_top(name: str, top: int) -> bool:
    """Empty a folder of the top folder, and remove it; whether anything changed."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        changed = _emptied(folder, top)
    finally:
        os.close(folder)
    with contextlib.suppress(OSError):  # where something stays, a later pass may remove it
        os.rmdir(name, dir_fd=top)
        changed = True
    return changed
