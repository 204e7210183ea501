"""The files that a model consists of: its external data, as a worker reads their names from the model.

The names are untrusted: only regular files inside the model's folder count, and never a link that leads out.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from core.wire.errors import Cancelled, TunerError
from core.wire.files import open_regular

_KEY = b"location"  # of every reference to external data, in the clear
_CHUNK_BYTES = 1 << 22
_MOST_FILES = 100_000
_MOST_KNOWN = 256  # models whose names are kept

Locations = Callable[[Path], Sequence[str]]  # names the external files of a model; a worker reads it

_known: dict[tuple[str, int, int, int], tuple[str, ...]] = {}


def external_files(model: Path, locations: Locations) -> list[str]:
    """Return the paths of a model's external data.

    Args:
        model: the file of the model; it may be missing.
        locations: asks a worker, which reads the model alone; called only where the file may name such data.

    Raises:
        Cancelled: as `locations` raises it.
    """
    try:
        facts = model.stat()
    except OSError:
        return []
    key = (str(model.absolute()), facts.st_size, facts.st_mtime_ns, facts.st_ino)
    if key not in _known:
        while len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)), None)
        _known[key] = tuple(_asked(model, locations)) if _may_name_files(model) else ()
    folder = model.absolute().parent
    return [str(folder / one) for one in _known[key] if _is_inside(folder, one)]


def _asked(model: Path, locations: Locations) -> Sequence[str]:
    try:
        return locations(model)[:_MOST_FILES]
    except Cancelled:
        raise
    except TunerError:  # the job itself tells what is wrong with the model
        return ()


def _may_name_files(model: Path) -> bool:
    """Whether the bytes of the file hold the key; nothing is parsed here."""
    with contextlib.suppress(OSError), open_regular(model) as file:
        end = b""
        while chunk := file.read(_CHUNK_BYTES):
            if _KEY in end + chunk:
                return True
            end = chunk[-len(_KEY) :]
    return False


def _is_inside(folder: Path, name: str) -> bool:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name:
        return False
    try:
        real = Path(os.path.realpath(folder / name))
        return real.is_relative_to(folder.resolve()) and stat.S_ISREG(real.stat().st_mode)
    except OSError:
        return False
