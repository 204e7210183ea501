"""Safe reading of users' files, and atomic writing.

Of the files that users name, only regular ones are opened: a pipe may block, a device may never end. A file
is written completely or not at all. Standard library only; parent and workers share it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from core.wire import variables

ROOT = Path(__file__).resolve().parents[2]  # the folder of `core` and, in a checkout, of the sample models
MOST_IMPORT_BYTES = 256 << 20  # of an imported file: a million events of ONNX Runtime take about as much
MOST_RESULT_BYTES = 256 << 20  # of a file of JSON that a worker wrote
MOST_LIST_BYTES = 256 << 20  # of a list of paths and labels: millions of images

_CHUNK_BYTES = 1 << 20
_MOST_STEM = 100  # characters of a file name, before an ID and the ending
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)  # Windows opens no such file
_KINDS = (
    (stat.S_ISFIFO, "it is a named pipe, not a file on a disk"),
    (stat.S_ISSOCK, "it is a socket, not a file on a disk"),
    (stat.S_ISCHR, "it is a device, not a file on a disk"),
    (stat.S_ISBLK, "it is a device, not a file on a disk"),
)


class IrregularFile(OSError):
    """The path is no regular file; `strerror` names its kind."""


def refuse_irregular(path: Path) -> None:
    """Raise `IrregularFile` for a pipe, a socket or a device; accept folders and missing files.

    Raises:
        OSError: the path cannot be examined.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    _check(mode, path)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; anything else is refused without blocking.

    Raises:
        OSError: it is missing, may not be read, or is an `IrregularFile`.
    """
    refuse_irregular(path)  # opening a device may already have an effect
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        _check(os.fstat(descriptor).st_mode, path)  # the opened file: the path may lead elsewhere by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_result(path: Path) -> bytes:
    """Return the content of a file that a worker wrote: its size is not trusted.

    Raises:
        OSError: it cannot be read, or is larger than any that a worker of ORTune writes.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_RESULT_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_RESULT_BYTES >> 20} MiB", str(path))
        return file.read()


def sha256_of(file: BufferedReader) -> str:
    """Return the SHA-256 of an open file from its position on; Python 3.10 has no `hashlib.file_digest`."""
    digest = hashlib.sha256()
    while data := file.read(_CHUNK_BYTES):
        digest.update(data)
    return digest.hexdigest()


def content_sha256(digest: str, external: Sequence[tuple[str, str]]) -> str:
    """Return the identity of a model: the hash of its file, or with external data a hash over all files.

    Args:
        digest: SHA-256 of the model file.
        external: location and SHA-256 of each file of external data.
    """
    if not external:
        return digest
    lines = [digest, *(f"{sha256} {location}" for location, sha256 in external)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def file_stem(name: str) -> str:
    """Return `name` as the stem of a file name that is valid on every system and no option of a command."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name.removesuffix(".onnx"))
    stem = plain.strip("._-")[:_MOST_STEM].rstrip("._-")
    return f"model_{stem}" if _DEVICES.match(stem) else stem or "model"


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk, so that it survives a power failure.

    Raises:
        OSError: a file cannot be written.
    """
    is_folder = path.is_dir()  # Windows opens none, and syncs only files that it may write
    with contextlib.suppress(OSError) if is_folder else contextlib.nullcontext():
        descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def written_whole(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a new file to write; it replaces `path` at the end, or is removed after an error.

    Args:
        path: the file.
        durable: it survives a power failure from then on; takes as long as the disk.

    Raises:
        OSError: it cannot be written, or `path` is a device or a pipe; an old file is kept.
    """
    refuse_irregular(path)
    path = Path(os.path.realpath(path))  # keeps links: `/dev/stdout` is one, often to a file
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield draft
        if is_private(path) and draft.stat().st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # in the sandbox of a worker; the folder closes it
                draft.chmod(0o600)
        if durable:
            sync(draft)
        draft.replace(path)
        if durable:
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def is_private(path: Path) -> bool:
    """Whether a file lies in the data folder, which is this user's alone; elsewhere the umask holds."""
    return path.is_relative_to(os.path.realpath(home()))


def made_private(folder: Path) -> Path:
    """Create a folder, with its missing parents, that only this user can enter; return it.

    Raises:
        OSError: it cannot be created.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises where it is a file
    return folder


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=…)`: a new one can be read by this user only; no link is followed."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)


def _check(mode: int, path: Path) -> None:
    for is_kind, words in _KINDS:
        if is_kind(mode):
            raise IrregularFile(22, words, str(path))


def home() -> Path:
    """Return ORTune's data folder: $ORTUNE_HOME, else `ortune` in the XDG data folder."""
    if named := os.environ.get(variables.HOME):
        return expand_home(named).absolute()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "ortune"


def installer_cache(program: str) -> Path:
    """Return the cache of `pip` or `uv` when they install a runtime: code in it reaches no other project."""
    return home() / "cache" / program


def keys_folder() -> Path:
    """Return the folder of private keys in ORTune's data folder; workers may not read in it."""
    return home() / "keys"


def expand_home(path: str | Path) -> Path:
    """Return a path with `~` replaced; the path is unchanged where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
