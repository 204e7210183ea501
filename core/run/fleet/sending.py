"""Sends files to a host in pieces; continues where an earlier transfer ended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

from core.run.fleet import on_host
from core.run.fleet.client import Fleet
from core.run.fleet.parcels import PIECE_BYTES, Arrived, Parcel, PartFile
from core.wire.errors import ModelError, WorkerError

_HASH_S = 600.0  # for the hash of some gigabytes on a slow disk
_PIECE_S = 120.0
_ATTEMPTS = 3

OnBytes = Callable[[int, int], None]  # bytes that have arrived, of all


async def send(
    fleet: Fleet, host: str, parcel: Parcel, path: str, on_bytes: OnBytes, *, near: str = ""
) -> str:
    """Send the files of a parcel that a host does not have, and return the path of the first one there.

    Args:
        fleet: the connection.
        host: its name.
        parcel: the files.
        path: of the first file on this machine.
        on_bytes: called after every piece.
        near: path where the host looks for the same content first.

    Raises:
        HostGone: the host does not reply.
        ModelError: a file cannot be read here, or changed since it was hashed.
        TunerError: the error that the host reported, such as a full disk.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        found: Arrived = await fleet.request(host, on_host.parcel_state, parcel, near, timeout_s=_HASH_S)
        if found["path"]:
            return found["path"]
        progress = _Sent(parcel, found, on_bytes)
        for one in parcel["files"]:
            await _send_file(fleet, host, parcel, one, Path(path).parent / one["path"], progress)
        try:
            there: str = await fleet.request(host, on_host.complete, parcel, timeout_s=_HASH_S)
        except WorkerError:  # another content has arrived; the host deleted it
            if attempt == _ATTEMPTS:
                raise
        else:
            return there
    raise AssertionError("the last attempt returns or raises")


class _Sent:
    """Number of bytes that have arrived, over all files of a parcel."""

    def __init__(self, parcel: Parcel, found: Arrived, on_bytes: OnBytes) -> None:
        self.there = dict(found["bytes"])
        self._total = sum(one["bytes"] for one in parcel["files"])
        self._on_bytes = on_bytes

    def set(self, path: str, size: int) -> None:
        """Record the size of a file on the host."""
        self.there[path] = size
        self._on_bytes(sum(self.there.values()), self._total)


async def _send_file(
    fleet: Fleet, host: str, parcel: Parcel, one: PartFile, source: Path, progress: _Sent
) -> None:
    offset = progress.there.get(one["path"], 0)
    while offset < one["bytes"]:
        data = await asyncio.to_thread(_read, source, offset)
        if not data or offset + len(data) > one["bytes"]:
            raise ModelError(
                f"`{source}` changed while it was sent.", hint="Ask again when nothing writes to it."
            )
        digest = hashlib.sha256(data).hexdigest()
        offset = await fleet.request(
            host, on_host.receive, parcel, one["path"], offset, data, digest, timeout_s=_PIECE_S
        )
        progress.set(one["path"], offset)


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)
    except OSError as error:
        raise ModelError(
            f"`{path}` cannot be read: {error.strerror or error}.", hint="Check the file."
        ) from error
