"""A question with its files: what a host needs to run the command line, in the form that is sent and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from core.evidence.fleet.fleet_types import Question
from core.run.fleet.on_host import Request
from core.run.fleet.parcels import Parcel
from core.store.records import ModelRecord
from core.wire.errors import ModelError
from core.wire.files import open_regular, sha256_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedQuestion:
    """A question, its command line for hosts, and the files of it."""

    question: Question
    command: list[str]  # with the placeholders of `on_host`
    texts: dict[str, str] = field(default_factory=dict)
    parcels: dict[str, Parcel] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)  # hash of a parcel -> its first file on the client

    def request(self, key: str) -> Request:
        """Return what a host receives."""
        return {
            "key": key,
            "arguments": self.command,
            "texts": self.texts,
            "parcels": self.parcels,
            "near": self.paths,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the fields of a prepared question; raises ValueError for other data."""
        return msgspec.convert(data, cls)


def parcel_of_model(record: ModelRecord) -> Parcel:
    """Return the files of a model with their hashes; reads them once, in pieces.

    Raises:
        ModelError: a file cannot be read.
    """
    path = Path(record.path)
    locations = dict.fromkeys(one["location"] for one in record.info["external_data"])
    return _parcel(record.content_sha256, path.parent, [path.name, *locations])


def parcel_of_file(path: Path) -> Parcel:
    """Return one file with its hash; raises like `parcel_of_model`."""
    found = _parcel("", path.parent, [path.name])
    # the name counts, too: it becomes the name of a configuration
    identity = hashlib.sha256(f"{found['files'][0]['sha256']} {path.name}".encode()).hexdigest()
    return {"sha256": identity, "files": found["files"]}


def _parcel(sha256: str, folder: Path, names: Sequence[str]) -> Parcel:
    files = []
    for name in names:
        try:
            with open_regular(folder / name) as file:
                digest = sha256_of(file)
                files.append({"path": name, "bytes": file.tell(), "sha256": digest})
        except OSError as error:
            raise ModelError(
                f"`{folder / name}` cannot be read: {error.strerror or error}.", hint="Check the file."
            ) from error
    return msgspec.convert({"sha256": sha256, "files": files}, Parcel)
