"""Read ORT's profile file as a stream of typed events; `profile_parser` interprets them.

ORT writes a JSON array with one event per line. `Lines` decodes it block by block; `Whole` reads any other
layout of the same JSON (one long line, pretty-printed) at once, which needs memory for all of it.
Pure: the standard library and msgspec.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from core.wire.errors import WorkerError

_BLOCK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 16 << 20  # ORT's lines are below 10 kB; a longer one is another layout
_HINT = "Profile the model again; ONNX Runtime writes the file when `end_profiling()` is called."


class Args(msgspec.Struct, gc=False):
    """The arguments of a node event; ORT writes its numbers as text."""

    op_name: str = ""
    provider: str = ""
    node_index: int | str = -1
    parameter_size: int | str = 0
    activation_size: int | str = 0
    output_size: int | str = 0
    input_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    output_type_shape: msgspec.Raw = msgspec.Raw(b"[]")
    dropped_event_count: int | str = 0  # of the event `profile_truncated`


class Event(msgspec.Struct, gc=False):
    """One event, without unused fields."""

    cat: str = ""
    name: str = ""
    tid: int = 0
    ts: float = 0.0  # µs
    dur: float = 0.0  # µs
    args: Args = msgspec.field(default_factory=Args)

    def detached(self) -> Event:
        """Return a copy of this event that does not keep its file block in memory."""
        self.args.input_type_shape = self.args.input_type_shape.copy()
        self.args.output_type_shape = self.args.output_type_shape.copy()
        return self


Batch = tuple[int, list[Event]]  # start position in the file, and its events
_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_shapes = msgspec.json.Decoder(list[dict[str, list[int]]]).decode


class Source(Protocol):
    """A profile that can be read more than once."""

    cut_off: bool  # the file ends mid-way; known after reading to the end

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the events from `start`, which must be 0 or the start of an earlier batch."""


class Lines:
    """A profile with one event per line, decoded a block at a time.

    Raises `msgspec.DecodeError` while it is read when the file has another layout.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self.cut_off = False

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield the events from byte `start`, which must be 0 or the start of an earlier batch."""
        rest = b""
        with self.path.open("rb") as file:
            file.seek(start)
            while block := file.read(_BLOCK_BYTES):
                data = rest + block
                cut = data.rfind(b"\n{") + 1
                if cut:
                    yield start, _decode(_array(data[:cut]))
                elif len(data) > _LONGEST_LINE_BYTES:
                    raise msgspec.DecodeError("not one event per line")
                rest = data[cut:]
                start += cut
        yield start, self._last(rest, alone=start == 0)

    def _last(self, rest: bytes, *, alone: bool) -> list[Event]:
        """Decode the bytes after the last line break, which are incomplete if the writer died."""
        self.cut_off = not rest.rstrip().endswith(b"]")
        try:
            return _decode(_array(rest))
        except msgspec.DecodeError:
            if alone:
                raise
            self.cut_off = True
            return []


class Whole:
    """A profile in any other layout of the same JSON."""

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.cut_off = False
        data = path.read_bytes()
        try:
            self._events = _decode(data)
        except msgspec.DecodeError as error:
            raise _not_a_profile(path, data, error) from None

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield all events at once."""
        yield start, self._events


def check_file(path: Path) -> None:
    """Refuse a missing or empty file.

    Raises:
        WorkerError: the file is missing or empty.
    """
    if not path.is_file():
        raise WorkerError(f"There is no profile at {path}.", hint=_HINT)
    if path.stat().st_size == 0:
        raise WorkerError(f"The profile {path.name} is empty.", hint=_HINT)


def shapes(raw: msgspec.Raw) -> list[tuple[str, tuple[int, ...]]]:
    """Return ORT's type name and the shape of each value; empty when ORT wrote something else."""
    try:
        values = _decode_shapes(raw)
    except msgspec.DecodeError:  # not tensors
        return []
    return [(dtype, tuple(shape)) for value in values for dtype, shape in value.items()]


def number(value: int | str) -> int:
    """Return a number that ORT may have written as text; -1 if it is not a number."""
    try:
        return int(value)
    except ValueError:
        return -1


def _array(lines: bytes) -> bytes:
    return b"[%b]" % lines.strip(b"[], \t\r\n")


def _decode(data: bytes) -> list[Event]:
    try:
        return _decode_events(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        repaired = data.decode("utf-8", "replace").encode()  # names in a model need not be UTF-8
        if repaired == data:
            raise
        return _decode_events(repaired)


def _not_a_profile(path: Path, data: bytes, error: msgspec.DecodeError) -> WorkerError:
    if data.lstrip().startswith(b"[") and not data.rstrip().endswith(b"]"):
        return WorkerError(
            f"The profile {path.name} ends mid-way, before its first event is complete.", hint=_HINT
        )
    return WorkerError(f"{path.name} is not a profile that ONNX Runtime wrote: {error}.", hint=_HINT)
