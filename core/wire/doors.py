"""What may be reached from outside: the operator's switch for `expert`, and folders that hold what is named.

Shared by both sides. The parent holds settings and paths to the open folders; a worker holds what it finds
inside of data (the lines of a CSV, links in a folder) to the folders that its environment names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from core.wire.errors import SpecError

EXPERT_VARIABLE = "ORTUNE_ALLOW_EXPERT"
FOLDERS_VARIABLE = "ORTUNE_OPEN_FOLDERS"  # set by the dashboard for its workers; unset: the user's own shell


def expert_allowed() -> bool:
    """Whether the operator allows `expert` to whoever asks: $ORTUNE_ALLOW_EXPERT is 1, true, yes or on."""
    return os.environ.get(EXPERT_VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def folders_of_this_process() -> list[Path] | None:
    """Folders that data may be read from, resolved; None where nobody said so, and everything may be read."""
    text = os.environ.get(FOLDERS_VARIABLE, "")
    return [Path(one).resolve() for one in text.split(os.pathsep) if one] if text else None


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """True when `path`, symbolic links followed, lies in one of `folders`, which are resolved already."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a zero byte
        return False
    return any(real.is_relative_to(folder) for folder in folders)


def check_files(files: Sequence[Path], *, within: Path | None = None) -> None:
    """Refuse files that data lead to, where this process is held to folders.

    Args:
        files: found in a folder, or named inside a file.
        within: they must lie in this folder; None: in one of the open ones.

    Raises:
        SpecError: one lies elsewhere, symbolic links followed.
    """
    folders = folders_of_this_process()
    if folders is None:
        return
    allowed = folders if within is None else [within.resolve()]
    outside = next((file for file in files if not is_inside(file, allowed)), None)
    if outside is not None:
        where = "the folders that this server opens" if within is None else f"`{within}`"
        raise SpecError(
            f"The data lead to `{outside}`, which is outside of {where}.",
            hint="Put the files themselves there, without links to other places.",
        )
