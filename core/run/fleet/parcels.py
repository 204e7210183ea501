"""Files that a host receives: a model with its external data, a bundle, or another file, by content hash.

They arrive in pieces, each with its hash, and the whole file is hashed again before it is used. What has
arrived is kept, so that a transfer continues after an interruption. A piece that does not follow the bytes
that are there is ignored, so two clients may send the same file at once.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path, PurePosixPath
from typing import TypedDict

from core.run.fleet import folders
from core.wire.errors import SpecError, WorkerError
from core.wire.files import made_private, private_opener

PIECE_BYTES = 4 << 20
_COMPLETE = "complete.json"  # written last
_LOCK = threading.Lock()


class PartFile(TypedDict):
    """One file of a parcel."""

    path: str  # relative to the first file's folder
    bytes: int
    sha256: str


class Parcel(TypedDict):
    """Files that belong together."""

    sha256: str  # identifies the content of all files
    files: list[PartFile]  # the first one is the model, bundle or other file itself


class Arrived(TypedDict):
    """What a host has of a parcel."""

    path: str  # of its first file; empty: files are missing
    bytes: dict[str, int]  # of each incomplete file


def state(parcel: Parcel, near: str = "") -> Arrived:
    """Return what this host has of a parcel.

    Args:
        parcel: the wanted files.
        near: path of the first file on the client; used if this host has the same content there.

    Raises:
        SpecError: a path leaves the parcel's folder.
    """
    if near and _is_same(parcel, Path(near)):
        return {"path": near, "bytes": {}}
    folder = _folder(parcel)
    if (folder / _COMPLETE).is_file() and _has_sizes(parcel, folder):
        return {"path": str(folder / parcel["files"][0]["path"]), "bytes": {}}
    found = {one["path"]: _size(_part(folder, one)) for one in parcel["files"]}
    return {"path": "", "bytes": found}


def receive(parcel: Parcel, path: str, offset: int, data: bytes, sha256: str) -> int:
    """Append one piece to a file of a parcel, and return the number of bytes that are there now.

    Raises:
        SpecError: the file is none of the parcel.
        StoreError: it cannot be written, for example because the disk is full.
        WorkerError: the piece changed on the way.
    """
    one = _file(parcel, path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise WorkerError(
            f"A piece of `{path}` changed on the way: its hash differs.", hint="Send the file again."
        )
    part = _part(_folder(parcel), one)
    with _LOCK:
        there = _size(part)
        if there == offset and there + len(data) <= one["bytes"]:
            try:
                made_private(part.parent)
                with open(part, "ab", opener=private_opener) as file:
                    file.write(data)
                    file.flush()
            except OSError as error:
                _cut(part, there)
                raise folders.unwritable(part, error) from error
        return _size(part)


def complete(parcel: Parcel) -> str:
    """Check the hash of every file, and return the path of the first one.

    Raises:
        WorkerError: a file has another content; it is deleted, so that it can be sent again.
        StoreError: nothing can be written.
    """
    folder = _folder(parcel)
    with _LOCK:
        for one in parcel["files"]:
            part, whole = _part(folder, one), folder / one["path"]
            if not part.exists() and whole.exists():
                continue
            if not part.exists() and one["bytes"] == 0:
                made_private(part.parent)
                part.touch(0o600)
            if _hash(part) != one["sha256"]:
                part.unlink(missing_ok=True)
                raise WorkerError(
                    f"`{one['path']}` arrived with another content: its hash differs.",
                    hint="Send it again; the file may have changed meanwhile.",
                )
            try:
                part.replace(whole)
            except OSError as error:
                raise folders.unwritable(whole, error) from error
        folders.write_json(folder / _COMPLETE, dict(parcel))
    return str(folder / parcel["files"][0]["path"])


def _folder(parcel: Parcel) -> Path:
    sha256 = parcel["sha256"]
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise SpecError(f"`{sha256[:80]}` is no SHA-256.", hint="Ask again with this version of ORTune.")
    for one in parcel["files"]:
        parts = PurePosixPath(one["path"])
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise SpecError(
                f"The file `{one['path'][:80]}` of a model leads out of its folder.",
                hint="Save the model with its external data in its own folder.",
            )
    return folders.parcels() / sha256


def _file(parcel: Parcel, path: str) -> PartFile:
    found = next((one for one in parcel["files"] if one["path"] == path), None)
    if found is None:
        raise SpecError(f"`{path[:80]}` is no file of this model.", hint="Send the model again.")
    return found


def _part(folder: Path, one: PartFile) -> Path:
    path = folder / one["path"]
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    """Bytes of a file that arrives, or of the whole file where it has arrived; 0: neither."""
    for one in (path, path.with_name(path.name.removesuffix(".part"))):
        try:
            return one.stat().st_size
        except OSError:
            continue
    return 0


def _cut(path: Path, size: int) -> None:
    """Remove the part of a piece that was written before the disk was full."""
    try:
        os.truncate(path, size)
    except OSError:
        path.unlink(missing_ok=True)


def _has_sizes(parcel: Parcel, folder: Path) -> bool:
    return all(_size(folder / one["path"]) == one["bytes"] for one in parcel["files"])


def _is_same(parcel: Parcel, first: Path) -> bool:
    """Whether the files beside `first` have the content of the parcel; a shared disk is not copied."""
    name = PurePosixPath(parcel["files"][0]["path"])
    if first.name != name.name or not first.is_absolute() or not _has_sizes(parcel, first.parent):
        return False
    return all(_hash(first.parent / one["path"]) == one["sha256"] for one in parcel["files"])


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
