"""What the results, models and uploads of each person take on the disk. Reads file sizes, opens no file."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path


def file_bytes(folder: Path, persons: Mapping[str, str]) -> Counter[str]:
    """Return the bytes of the files of results and models by person.

    Args:
        folder: of the store.
        persons: id of a result, content hash of a model, or path of what was charged, see `Store.charge` ->
            its person.
    """
    used: Counter[str] = Counter()
    for ref, charged in persons.items():
        if "/" in ref:
            path = folder / ref
            used[charged] += (size := _size(path))
            if (around := persons.get(path.parent.name)) is not None:  # counts there, too
                used[around] -= size
    for place in ("artifacts", "models", "accuracies"):
        for entry in _entries(folder / place):
            person = persons.get(entry.name.removesuffix(".npz"))
            if person is not None:
                used[person] += _size(entry)
    return used


def _size(entry: os.DirEntry[str] | Path) -> int:
    try:
        facts = os.lstat(entry)
        if stat.S_ISDIR(facts.st_mode):
            return sum(_size(one) for one in _entries(Path(entry)))
        return facts.st_size
    except OSError:  # deleted meanwhile
        return 0


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return
