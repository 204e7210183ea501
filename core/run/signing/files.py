"""Where a signature stands in a file, and which bytes it covers.

A YAML file ends with the signature as comment lines; a bundle has it as the comment of the zip. Either way
the signature covers all bytes before it, comments and order of keys included. For a bundle these are the
bytes of the zip without its comment.

A signature at its place that is not exactly what `block_text` writes is a wrong one. A bundle to which
another end of a zip is appended counts as unsigned, as one does whose signature was removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from core.run.bundle import PIECE
from core.wire.files import open_regular

VERSION = 1  # of the format of signatures
BEGIN, END = "-----BEGIN ORTUNE SIGNATURE-----", "-----END ORTUNE SIGNATURE-----"
TRACE = b"ORTUNE SIGNATURE"
MOST_BLOCK_BYTES = 4096

_ZIP_END = b"PK\x05\x06"  # begins the last record of a zip, of which the comment is the end
_ZIP_END_BYTES, _MOST_COMMENT_BYTES = 22, 0xFFFF
_LINE = "# "  # before each line of the block in a YAML file
_FIELDS = ("algorithm", "at", "file_sha256", "kind", "name", "public_key", "signature", "version")

Kind = Literal["yaml", "bundle"]


class BadSignature(ValueError):
    """The file has traces of a signature that is not one; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """A file as the part that a signature covers, and its signature."""

    kind: Kind
    sha256: str  # of the covered bytes
    covered_bytes: int
    signature: Mapping[str, Any] | None  # fields of the signature; None: the file has none
    is_whole: bool = True  # False: a zip without its end


def block_text(fields: Mapping[str, Any]) -> str:
    """Return a signature as three lines: begin, the fields as JSON, end."""
    return f"{BEGIN}\n{json_text(fields)}\n{END}\n"


def json_text(fields: Mapping[str, Any]) -> str:
    """Return fields as JSON in the one form that a signature covers."""
    return json.dumps(dict(fields), sort_keys=True, separators=(",", ":"))


def _fields(block: str) -> Mapping[str, Any]:
    """The fields of a block, which must be exactly as `block_text` writes them."""
    lines = block.split("\n")
    if len(lines) != 4 or (lines[0], lines[2], lines[3]) != (BEGIN, END, ""):
        raise BadSignature("its lines are damaged, or something follows it")
    try:
        found = json.loads(lines[1])
    except (ValueError, RecursionError):
        raise BadSignature("its content is damaged") from None
    if not isinstance(found, dict):
        raise BadSignature("its content is damaged")
    if type(version := found.get("version")) is int and version != VERSION:
        raise BadSignature(
            f"it has version {str(version)[:20]} of the format, and this version of ORTune reads {VERSION}"
        )
    texts = [value for name, value in found.items() if name != "version"]
    if tuple(sorted(found)) != _FIELDS or not all(isinstance(one, str) for one in texts):
        raise BadSignature("its content is incomplete")
    if type(found["version"]) is not int or json_text(found) != lines[1]:
        raise BadSignature("its content is damaged")
    return found


# --- reading ------------------------------------------------------------------------------------------------


def part_text(data: bytes) -> Parted:
    """Return the parts of a YAML file.

    Raises:
        BadSignature: it has traces of a signature that is not one.
    """
    begin = data.rfind(f"{_LINE}{BEGIN}\n".encode())
    covered, fields = data, None
    if TRACE in data:
        if begin < 0 or data[begin - 1 : begin] != b"\n" or TRACE in data[:begin]:
            raise BadSignature("its lines are damaged, or it is not at the end of the file")
        covered = data[:begin]
        fields = _fields(_without_marks(data[begin:]))
    digest = hashlib.sha256(covered).hexdigest()
    return Parted(kind="yaml", sha256=digest, covered_bytes=len(covered), signature=fields)


def _without_marks(data: bytes) -> str:
    """The block of a YAML file without the comment mark of each line."""
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise BadSignature("its content is damaged") from None
    if len(data) > MOST_BLOCK_BYTES or not all(one.startswith(_LINE) for one in lines[:-1]):
        raise BadSignature("its lines are damaged, or something follows it")
    return "\n".join([*(one[len(_LINE) :] for one in lines[:-1]), lines[-1]])


def part_bundle(file: BinaryIO, *, unsigned_too: bool = False) -> Parted:
    """Return the parts of a bundle, and set the position of the file to the start.

    Args:
        file: of the zip.
        unsigned_too: also read all of a file without a signature; False: its `sha256` is empty.

    Raises:
        BadSignature: it has traces of a signature that is not one.
        OSError: it cannot be read.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - _ZIP_END_BYTES - _MOST_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(_ZIP_END)
    comment = tail[at + _ZIP_END_BYTES :] if at >= 0 else b""
    covered, fields = size, None
    if TRACE in (tail if at < 0 else comment):
        length = int.from_bytes(tail[at + 20 : at + _ZIP_END_BYTES], "little") if at >= 0 else -1
        if length != len(comment) or length > MOST_BLOCK_BYTES or not comment.isascii():
            raise BadSignature("the end of the zip is damaged")
        fields = _fields(comment.decode("ascii"))
        covered = size - length
    digest = _bundle_digest(file, covered) if fields is not None or unsigned_too else ""
    file.seek(0)
    whole = at >= 0 and (fields is not None or not comment)
    return Parted(kind="bundle", sha256=digest, covered_bytes=covered, signature=fields, is_whole=whole)


def covered_sha256(path: Path) -> str:
    """Return the SHA-256 of a bundle without its signature.

    Raises:
        BadSignature: it has traces of a signature that is not one.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        return part_bundle(file, unsigned_too=True).sha256


def _bundle_digest(file: BinaryIO, covered: int) -> str:
    """SHA-256 of a zip as it is without its comment: the comment's length in the last two bytes is zero."""
    digest, left = hashlib.sha256(), max(0, covered - 2)
    file.seek(0)
    while left and (piece := file.read(min(PIECE, left))):
        digest.update(piece)
        left -= len(piece)
    digest.update(b"\0\0")
    return digest.hexdigest()


# --- writing ------------------------------------------------------------------------------------------------


def signed_text(text: str, fields: Mapping[str, Any]) -> str:
    """Return a YAML text, which ends with a line break, with a signature at its end."""
    block = block_text(fields).rstrip("\n").split("\n")
    return text + "".join(f"{_LINE}{line}\n" for line in block)


def write_bundle_signature(file: BinaryIO, covered_bytes: int, fields: Mapping[str, Any]) -> None:
    """Write a signature after the covered bytes of a bundle, as the comment of the zip.

    Raises:
        OSError: it cannot be written.
    """
    block = block_text(fields).encode("ascii")
    file.seek(covered_bytes - 2)  # the last two bytes are the length of the comment
    file.write(len(block).to_bytes(2, "little") + block)
    file.truncate()


def is_signed_end(tail: bytes) -> bool:
    """Whether the last bytes of a zip are its end record and a signature as its comment."""
    at = tail.rfind(_ZIP_END)
    comment = tail[at + _ZIP_END_BYTES :]
    length = int.from_bytes(tail[at + 20 : at + _ZIP_END_BYTES], "little")
    return at >= 0 and length == len(comment) and comment.startswith(BEGIN.encode())
