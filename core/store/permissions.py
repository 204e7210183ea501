"""Closes the data folder to other users of the machine, where an earlier version left it open.

Only what ORTune keeps there is changed, only where it belongs to this user, and never along a link. Closing
the folder itself closes all of it, so that comes first; the rest follows as far as the time reaches. A folder
that is shared on purpose stays as it is. Windows has no such permissions.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from core.wire import variables
from core.wire.files import expand_home, home

FOLDERS = (
    *("accuracies", "artifacts", "audit", "cache", "datasets", "exports", "feeds", "fleet", "forms"),
    *("imported", "login", "models", "pt2", "runtimes", "uploads"),
)
FILES = ("ortune.db", "last-error.txt", "rescued-")  # beginnings of their names
NOT_INSIDE = ("runtimes",)  # installers may link the files of packages to a cache that others read
SHARED_BY = (variables.MODELS, variables.QUEUE, variables.ALLOW_LIBRARIES)
MOST_S = 1.0  # for the files inside, which their folder closes already
OTHERS = 0o077
HAS_MODES = os.name != "nt"


def close_home(most_s: float = MOST_S) -> str:
    """Close the data folder and its content to other users.

    Args:
        most_s: seconds for the files inside the folders.

    Returns:
        A sentence for the user; empty: nothing had to be changed.
    """
    folder = home()
    if not (HAS_MODES and _is_ours(folder)):
        return ""
    shared = [expand_home(text).resolve() for name in SHARED_BY if (text := os.environ.get(name))]

    def is_shared(one: Path) -> bool:
        return any(other.is_relative_to(one.resolve()) for other in shared)

    closed = [one for one in (folder, *_own(folder)) if _is_open(one) and not is_shared(one) and _close(one)]
    until = time.monotonic() + most_s
    for one in closed:
        if one != folder and one.name not in NOT_INSIDE and not _close_inside(one, until):
            break
    if not closed:
        return ""
    return f"`{folder}` was open to other users of this machine. Now it is closed: mode 0700, files 0600."


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a store, and nothing says that others are to use it."""
    try:
        found, real = folder.stat(), folder.resolve()
        is_person = real == Path.home().resolve()
    except (OSError, RuntimeError):
        return False
    by_mode = found.st_mode & (stat.S_ISGID | stat.S_ISVTX)
    return (folder / "ortune.db").is_file() and not (by_mode or is_person or real == Path(real.anchor))


def _own(folder: Path) -> Iterator[Path]:
    """Yield the files and folders of ORTune in its folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if (is_folder and entry.name in FOLDERS) or (not is_folder and entry.name.startswith(FILES)):
                yield Path(entry.path)


def _close_inside(folder: Path, until: float) -> bool:
    """Close what lies in a folder; False: the time is over."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > until:
                return False
            path = Path(entry.path)
            if _is_open(path):
                _close(path)
            if entry.is_dir(follow_symlinks=False) and not _close_inside(path, until):
                return False
    return True


def _close(path: Path) -> bool:
    """Take the permissions of others away; False: they are still there."""
    try:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
    except OSError:  # gone meanwhile
        return False
    return not _is_open(path)  # some file systems have no permissions


def _is_open(path: Path) -> bool:
    """Whether others may use a file or folder of this user; links and files with two names do not count."""
    try:
        found = path.stat() if path == home() else path.lstat()
    except OSError:
        return False
    is_plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    return bool(found.st_mode & OTHERS) and found.st_uid == os.geteuid() and is_plain
