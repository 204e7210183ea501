"""A list of images: a CSV with a path, relative to the CSV, and perhaps a label in each line.

The worker reads the images. The parent reads the names first, to open these files to it and no others.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.wire.errors import SpecError
from core.wire.files import MOST_LIST_BYTES, open_regular

Line = tuple[int, list[str]]  # line number, from 1, and cells

_PATH_COLUMNS = ("path", "file", "filename", "file_name", "image", "image_path")
_LABEL_COLUMNS = ("label", "class", "target", "label_name", "class_name")
_FIELD_BYTES = 4096  # longer than any path: the file is binary, not a CSV


def lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a list that are not empty.

    Raises:
        SpecError: the file cannot be read, is no CSV, or is too large.
    """
    try:
        with open_regular(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            _check_size(path, os.fstat(raw.fileno()).st_size)
            first = file.readline(_FIELD_BYTES)
            file.seek(0)
            delimiter = next((mark for mark in (",", ";", "\t") if mark in first), ",")
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            yield from ((reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except csv.Error as error:
        raise SpecError(
            f"`{path.name}` cannot be read as a CSV: {error}.", hint="Write a path and a label in each line."
        ) from None


def names(path: Path) -> Iterator[str]:
    """Yield the paths in a list, as they are written; raises like `lines`."""
    at = None
    for number, (_, cells) in enumerate(lines(path)):
        if number == 0 and (found := header(cells)) is not None:
            at = found[0]
        elif (at or 0) < len(cells):
            yield cells[at or 0].strip()


def header(cells: Sequence[str]) -> tuple[int, int | None] | None:
    """Return the columns of path and label from a header line; None: the line is not a header."""
    head = [one.strip().lower() for one in cells]
    at = next((head.index(name) for name in _PATH_COLUMNS if name in head), None)
    if at is None:
        return None
    return at, next((head.index(name) for name in _LABEL_COLUMNS if name in head), None)


def unreadable(path: Path, error: OSError | UnicodeDecodeError) -> SpecError:
    """Return the error for a file of data that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return SpecError(f"`{path}` cannot be read: {reason}.", hint="Check the path and its permissions.")


def _check_size(path: Path, size: int) -> None:
    if size > MOST_LIST_BYTES:
        raise SpecError(
            f"`{path.name}` has {size / 2**20:,.0f} MiB, but a list of paths and labels has "
            f"{MOST_LIST_BYTES >> 20} MiB at most.",
            hint="Give the list itself, or split it.",
        )
