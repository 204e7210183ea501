"""Read the arrays of an `.npz` with a memory limit, which is checked on their headers before any is read.

A few kilobytes of a zip archive can hold gigabytes of zeros. numpy and the standard library only.
"""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from core.wire import limits
from core.wire.errors import SpecError
from core.wire.files import IrregularFile, open_regular

Array = npt.NDArray[Any]

MOST_BYTES = 4 << 30  # of all arrays read from one file
_MOST_ARRAYS = 10_000
_HEADER_BYTES = 10_000  # more than any numeric array needs; numpy's own limit
_DAMAGE = (
    *(OSError, ValueError, TypeError, EOFError, LookupError, OverflowError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, MemoryError),
)


class Archive:
    """An open `.npz`."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        members = archive.namelist()
        if len(members) > _MOST_ARRAYS:
            raise SpecError(
                f"`{path.name}` holds {len(members)} files, but at most {_MOST_ARRAYS} are allowed.",
                hint="Save fewer arrays, each with many samples.",
            )
        self._members = {name.removesuffix(".npy"): name for name in members}

    @property
    def names(self) -> list[str]:
        """The arrays' names, in the order of the file."""
        return list(self._members)

    def read(self, names: Sequence[str]) -> dict[str, Array]:
        """Return the arrays called `names`.

        Raises:
            SpecError: a member is not an array, or together they need too much memory.
        """
        needed = sum(self._header_bytes(name) for name in names)
        most = min(MOST_BYTES, limits.available_memory() // 2)
        if needed > most:
            raise SpecError(
                f"The arrays of `{self._path.name}` take {_size(needed)} of memory, but at most "
                f"{_size(most)} are read.",
                hint="Save fewer samples, or a smaller type such as uint8 or float16.",
            )
        return {name: self._array(name) for name in names}

    def _header_bytes(self, name: str) -> int:
        """Return the bytes of memory that an array needs."""
        with self._archive.open(self._members[name]) as member:
            magic = member.read(len(np.lib.format.MAGIC_PREFIX))
            if not magic:
                raise self._no_array(name, "is empty (0 bytes)")
            if magic != np.lib.format.MAGIC_PREFIX:
                raise self._no_array(name, "is no array of numpy")
            shape, dtype = _header(member)
        if dtype.hasobject:
            raise ValueError("Python objects are never unpickled")
        if any(size < 0 for size in shape):
            raise self._no_array(name, "has a negative size")
        return math.prod(shape) * max(1, dtype.itemsize)

    def _no_array(self, name: str, why: str) -> SpecError:
        return SpecError(
            f"`{name[:80]}` in `{self._path.name}` {why}.",
            hint="Write the file with `numpy.savez`, without object arrays.",
        )

    def _array(self, name: str) -> Array:
        with self._archive.open(self._members[name]) as member:
            found: Array = np.lib.format.read_array(member, allow_pickle=False)
            return found


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:,.1f} MiB"


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type from the header after the magic; in this format a header has 64 KiB at most."""
    if member.read(2) != b"\x01\x00":
        raise ValueError("later formats are for arrays of many named fields, which are no tensors")
    shape, _, dtype = np.lib.format.read_array_header_1_0(member, _HEADER_BYTES)
    return shape, dtype


@contextmanager
def open_archive(path: Path, missing: str) -> Iterator[Archive]:
    """Open an `.npz`; errors while it is open are raised as an unreadable file.

    Args:
        path: of the file.
        missing: message for a missing file.

    Raises:
        SpecError: it is missing, not an archive, or damaged.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield Archive(path, archive)
    except SpecError:  # also a ValueError
        raise
    except FileNotFoundError:
        raise SpecError(missing, hint="Check the path.") from None
    except IrregularFile as error:
        raise SpecError(
            f"`{path}` cannot be read: {error.strerror}.", hint="Name a file on a disk."
        ) from None
    except _DAMAGE:
        raise SpecError(
            f"`{str(path)[:200]}` cannot be read as an .npz of plain arrays.",
            hint="Write it with `numpy.savez`, without object arrays.",
        ) from None
