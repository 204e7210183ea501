"""Python interpreters of this machine that a new environment can be made with."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 10)
_VERSION = re.compile(r"python3\.(\d+)(\.exe)?")


@dataclass(frozen=True, slots=True)
class Base:
    """An interpreter; `path` is empty for ORTune's own."""

    path: str
    label: str


def bases() -> list[Base]:
    """Return ORTune's own interpreter, and one of each other version that is found; no process starts.

    Looked for are `python3.N` on the search path, and in the folders of pyenv and uv.
    """
    found: dict[int, Path] = {}
    for path in _programs():
        match = _VERSION.fullmatch(path.name)
        if match is not None and (3, minor := int(match[1])) >= OLDEST and os.access(path, os.X_OK):
            found.setdefault(minor, path)
    found.pop(sys.version_info.minor, None)
    own = Base("", f"Python 3.{sys.version_info.minor} of ORTune")
    return [own, *(Base(str(path), f"Python 3.{minor}") for minor, path in sorted(found.items()))]


def _programs() -> Iterator[Path]:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - stays as it is where there is no home
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    folders = [
        *map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))),
        *sorted((home / ".pyenv" / "versions").glob("*/bin"), reverse=True),
        *sorted((data / "uv" / "python").glob("*/bin"), reverse=True),
    ]
    for folder in folders:
        if "shims" not in folder.parts:  # those of pyenv exist for versions that are not chosen
            yield from folder.glob("python3.*")
