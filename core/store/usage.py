"""What the results and models of each person take on the disk. Reads file sizes, opens no file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path


def file_bytes(folder: Path, persons: Mapping[str, str]) -> Counter[str]:
    """Return the bytes of the files of results and models by person.

    Args:
        folder: of the store.
        persons: id of a result, or content hash of a model -> its person.
    """
    used: Counter[str] = Counter()
    for place in ("artifacts", "models", "accuracies"):
        for entry in _entries(folder / place):
            person = persons.get(entry.name.removesuffix(".npz"))
            if person is not None:
                used[person] += _size(entry)
    return used


def _size(entry: os.DirEntry[str]) -> int:
    try:
        if entry.is_dir(follow_symlinks=False):
            return sum(_size(one) for one in _entries(Path(entry.path)))
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # deleted meanwhile
        return 0


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return
