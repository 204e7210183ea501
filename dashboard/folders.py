"""Which files of the server a path typed, or imported, in the browser may name."""

from __future__ import annotations

import os
from pathlib import Path

from core.errors import ModelError
from core.files import expanded
from core.library import ROOT
from core.store import home


def open_folders() -> list[Path]:
    """Folders that the browser may reach: the configured one, ORTune's home and its samples."""
    roots = [home(), ROOT / "sample_models"]
    if named := os.environ.get("ORTUNE_MODELS"):
        roots.insert(0, expanded(named))
    return [root.resolve() for root in roots]


def allowed_path(typed: str, *, folder: bool = False) -> Path:
    """Return the file (or `folder`) that `typed` names; a relative path counts from ORTune's own folder.

    Raises:
        ModelError: empty, missing, or outside of the open folders, symbolic links followed.
    """
    if not typed:
        raise ModelError("No path is given.", hint="Write the path of a file on the server.")
    roots = open_folders()
    try:
        path = (ROOT / Path(typed).expanduser()).resolve()
        if not any(path.is_relative_to(root) for root in roots):
            raise ModelError(
                f"`{typed}` is outside of the folders that this server opens to the browser.",
                hint=f"Use a file under {' or '.join(f'`{root}`' for root in roots)}, or upload it.",
            )
        if path.is_file() or (folder and path.is_dir()):
            return path
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, a home that does not exist
        pass
    raise ModelError(f"There is no file `{typed[:200]}`.", hint="Check the path, or upload the file.")
