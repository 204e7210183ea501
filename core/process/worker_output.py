"""What workers write: outputs are moved to their places.

A worker is untrusted: only regular files with expected names are moved, and links are never followed.
`worker_watch` looks at how much a running worker writes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.process import scratch
from core.wire import sandbox
from core.wire.errors import WorkerError, unwritable

RESERVE_BYTES = 512 << 20  # free space that no worker may use up
_LEAST_FILE_BYTES = 64 << 20  # that a worker may always write, in one file


def publish(entry: os.DirEntry[str], target: Path) -> None:
    """Move one file of a draft folder beside the target: the target itself, or a file that goes with it.

    Raises:
        WorkerError: it is a link, or has a name that no output has.
        SpecError: the target cannot be written.
    """
    is_file = stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
    beside = (f"{target.name}.", f"{target.stem}.required_operators")  # weights; operators of an `.ort` file
    if not (is_file and (entry.name == target.name or entry.name.startswith(beside))):
        raise WorkerError(
            f"The worker left `{entry.name[:200]}`, which is no output of its job.",
            hint="Do not use this model: a file or library of it may be hostile.",
        )
    try:
        Path(entry.path).replace(target.with_name(entry.name))
    except OSError as error:
        raise unwritable(target, error) from error


def take(made: Path, target: Path) -> None:
    """Move a file that a worker has written in its folder.

    Raises:
        WorkerError: there is no such file, or it is a link.
    """
    try:
        if not stat.S_ISREG(made.lstat().st_mode):
            raise WorkerError(
                f"The worker left something else than the file `{made.name}`.", hint="Start it again."
            )
        scratch.moved(made, target)
    except OSError as error:
        raise WorkerError(
            f"The outputs cannot be written to `{target}`: {error.strerror or error}.",
            hint="Free some disk space.",
        ) from error


def renamed(value: Any, folders: Mapping[str, str]) -> Any:
    """Return the texts of a reply with the folder of the target in the place of the draft's."""
    if isinstance(value, str):
        for draft, target in folders.items():
            value = value.replace(draft, target)
        return value
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [renamed(one, folders) for one in value]
    if isinstance(value, dict):
        return {k: renamed(v, folders) if isinstance(v, str | list) else v for k, v in value.items()}
    return value


def most_bytes(paths: Sequence[str]) -> int:
    """Return the largest file that leaves the reserve free on the fullest disk that a worker writes to."""
    free = [sandbox.FILE_BYTES + RESERVE_BYTES]
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            free.append(free_bytes(path))
    return max(_LEAST_FILE_BYTES, min(free) - RESERVE_BYTES)


def free_bytes(path: str) -> int:
    """Return the free space of the disk that holds `path`.

    Raises:
        OSError: there is no such path.
    """
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
