"""Files: how they are opened, and how they are written.

Of those that users name only regular ones are opened: a pipe never answers, a device never ends. What is
written is there whole or not at all. Standard library only; parent and workers share it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]  # where `core` lies, and in a checkout the sample models
MOST_IMPORT_BYTES = 256 << 20  # of a file made elsewhere: a million events of ONNX Runtime take about so much
MOST_LIST_BYTES = 256 << 20  # of a list of paths and labels: millions of images

_KINDS = (
    (stat.S_ISFIFO, "it is a named pipe, not a file on a disk"),
    (stat.S_ISSOCK, "it is a socket, not a file on a disk"),
    (stat.S_ISCHR, "it is a device, not a file on a disk"),
    (stat.S_ISBLK, "it is a device, not a file on a disk"),
)


class IrregularFile(OSError):
    """What stands at a path is no regular file; `strerror` says what it is."""


def refuse_irregular(path: Path) -> None:
    """Raise `IrregularFile` for a pipe, a socket or a device; folders and missing files are others' business.

    Raises:
        OSError: the path cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    _check(mode, path)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting for what is none.

    Raises:
        OSError: it is missing, may not be read, or is an `IrregularFile`.
    """
    refuse_irregular(path)  # to open a device may already do something
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        _check(os.fstat(descriptor).st_mode, path)  # what was opened, whatever the path means by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a new file beside `path` to write to; it takes the place of `path` at the end, or goes.

    Raises:
        OSError: it cannot be written, or a device or a pipe stands there; what stood at `path` stays.
    """
    refuse_irregular(path)
    path = Path(os.path.realpath(path))  # a link stays one: `/dev/stdout` is one, often to a file
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield draft
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _check(mode: int, path: Path) -> None:
    for is_kind, words in _KINDS:
        if is_kind(mode):
            raise IrregularFile(22, words, str(path))


def expanded(path: str | Path) -> Path:
    """Return a path with `~` replaced; a home that does not exist stays as it is, and is missing then."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
