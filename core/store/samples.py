"""Packs raw measurements as compressed columns of integers. Pure: no SQL, standard library only.

Packing is lossless for any JSON data. It saves space in four ways: times are stored as whole nanoseconds; a
list of objects is stored by columns, so that similar values are adjacent; repeated numbers are stored once in
a table, the most frequent first; and the bytes of numbers are grouped by significance (byte shuffling).

A body is a list of byte strings, each after its length, in the order of `_Writer` and `_Reader`.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

FORMAT = 1  # the first byte; increase it for a layout that `unpack` below cannot read
LEVEL = 6  # of zlib; 9 takes twice as long for 1 % less

# encodings of values, in the order of the parts of a mixed column
_WHOLE_NS, _DOUBLE, _INTEGER, _LIST, _OBJECT, _TEXT = range(6)

_MOST_NS = 1 << 53  # beyond it, floats cannot represent every whole number of ns
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}  # bytes -> code of `array`
_REPEATS = 4  # mean uses of each number from which a table saves space


def pack(raw: Mapping[str, Any]) -> bytes:
    """Return the raw parts of a result as bytes.

    Args:
        raw: JSON data; tuples become lists, as in JSON text.

    Raises:
        TypeError, ValueError: it is no JSON data.
    """
    writer = _Writer()
    writer.column([dict(raw)])
    return bytes([FORMAT]) + zlib.compress(b"".join(writer.body), LEVEL)


def unpack(data: bytes) -> dict[str, Any]:
    """Return the argument of `pack` with identical numbers.

    Raises:
        ValueError: `pack` did not write these bytes, or they are incomplete.
    """
    if not data or data[0] != FORMAT:
        raise ValueError("these are no packed samples")
    try:
        body = zlib.decompress(data[1:])
    except zlib.error as error:
        raise ValueError(f"the packed samples are damaged: {error}") from error
    (raw,) = _Reader(body).column(1)
    assert isinstance(raw, dict)
    return raw


# --- writing ------------------------------------------------------------------------------------------------


class _Writer:
    """Encodes columns into the byte strings of `body`."""

    def __init__(self) -> None:
        self.body: list[bytes] = []

    def column(self, values: Sequence[Any]) -> None:
        """Write values of any kind: the kind of each, then the values grouped by kind."""
        kinds = bytes(map(_kind, values))
        found = sorted(set(kinds))
        self._bytes(kinds if len(found) > 1 else kinds[:1])
        for kind in found:
            same = [one for one, of in zip(values, kinds, strict=True) if of == kind]
            self._PARTS[kind](self, same)

    def _bytes(self, data: bytes) -> None:
        self.body += (struct.pack("<I", len(data)), data)

    def _whole_ns(self, values: Sequence[float]) -> None:
        self._integers([round(one * 1e9) for one in values])

    def _doubles(self, values: Sequence[float]) -> None:
        self._numbers(array("d", values))

    def _integers(self, values: Sequence[int]) -> None:
        counts = Counter(values)
        if len(counts) * _REPEATS > len(values):
            self._bytes(b"")
            self._offsets(values)
            return
        table = [value for value, _ in counts.most_common()]
        places = {value: place for place, value in enumerate(table)}
        self._bytes(struct.pack("<I", len(table)))
        self._offsets(table)
        self._offsets([places[value] for value in values])

    def _offsets(self, values: Sequence[int]) -> None:
        """Write numbers as offsets from the smallest, with the fewest bytes that fit the largest offset."""
        lowest = min(values)
        spread = max(values) - lowest
        width = next(one for one in _UNSIGNED if spread < 1 << 8 * one)
        self._bytes(struct.pack("<qB", lowest, width))
        self._numbers(array(_UNSIGNED[width], [one - lowest for one in values]))

    def _numbers(self, values: array[Any]) -> None:
        """Write all first bytes, then all second bytes, and so on: bytes that rarely change compress well."""
        if sys.byteorder == "big":
            values.byteswap()
        data = values.tobytes()
        self._bytes(b"".join(data[place :: values.itemsize] for place in range(values.itemsize)))

    def _lists(self, values: Sequence[Sequence[Any]]) -> None:
        self._integers([len(one) for one in values])
        inner = list(chain.from_iterable(values))
        if inner:
            self.column(inner)

    def _objects(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Write the names of each object, then for each name the values of all objects that have it."""
        shapes: dict[tuple[str, ...], int] = {}
        columns: dict[str, list[Any]] = {}
        which = []
        for one in values:
            which.append(shapes.setdefault(tuple(one), len(shapes)))
            for name, value in one.items():
                columns.setdefault(name, []).append(value)
        self._text([list(shape) for shape in shapes])
        self._integers(which)
        for column in columns.values():
            self.column(column)

    def _text(self, values: Sequence[Any]) -> None:
        self._bytes(json.dumps(values, separators=(",", ":")).encode())

    _PARTS: Mapping[int, Callable[[_Writer, Sequence[Any]], None]] = {
        _WHOLE_NS: _whole_ns,
        _DOUBLE: _doubles,
        _INTEGER: _integers,
        _LIST: _lists,
        _OBJECT: _objects,
        _TEXT: _text,
    }


def _kind(value: object) -> int:
    """Encoding of a value; values without an exact numeric encoding are JSON text."""
    kind = type(value)
    if kind is float:
        return _WHOLE_NS if _is_whole_ns(value) else _DOUBLE  # type: ignore[arg-type]
    if kind is int:
        return _INTEGER if -(1 << 63) <= value < 1 << 63 else _TEXT  # type: ignore[operator]
    if kind is list or kind is tuple:
        return _LIST
    if kind is dict and all(type(name) is str for name in value):  # type: ignore[attr-defined]
        return _OBJECT
    return _TEXT


def _is_whole_ns(value: float) -> bool:
    """Whether `ns / 1e9` is exactly `value`; False for zero, whose sign only a float preserves."""
    ns = value * 1e9
    return -_MOST_NS < ns < _MOST_NS and ns != 0 and round(ns) / 1e9 == value


# --- reading ------------------------------------------------------------------------------------------------


class _Reader:
    """Decodes the output of `_Writer`, with a corresponding method for each of its methods."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = 0

    def column(self, count: int) -> list[Any]:
        kinds = bytes(self._bytes())
        if len(kinds) == 1:
            return self._PARTS[kinds[0]](self, count)
        counts = Counter(kinds)
        parts: dict[int, Iterator[Any]] = {
            kind: iter(self._PARTS[kind](self, counts[kind])) for kind in sorted(counts)
        }
        return [next(parts[kind]) for kind in kinds]

    def _bytes(self) -> memoryview:
        (length,) = struct.unpack_from("<I", self._body, self._at)
        start = self._at + 4
        self._at = start + length
        return self._body[start : self._at]

    def _whole_ns(self, count: int) -> list[float]:
        return self._numbers_of(count, lambda values: [ns / 1e9 for ns in values])

    def _doubles(self, count: int) -> list[float]:
        return self._numbers("d").tolist()

    def _integers(self, count: int) -> list[int]:
        return self._numbers_of(count, list)

    def _numbers_of(self, count: int, made: Callable[[Sequence[int]], list[Any]]) -> list[Any]:
        """Read integers and apply `made` once to each distinct number of a table."""
        if not self._bytes():
            return made(self._offsets())
        table = made(self._offsets())
        return list(map(table.__getitem__, self._offsets()))

    def _offsets(self) -> Sequence[int]:
        lowest, width = struct.unpack("<qB", self._bytes())
        values = self._numbers(_UNSIGNED[width])
        return [one + lowest for one in values] if lowest else values

    def _numbers(self, code: str) -> array[Any]:
        data = self._bytes()
        values = array(code)
        width, count = values.itemsize, len(data) // values.itemsize
        sorted_back = bytearray(len(data))
        for place in range(width):
            sorted_back[place::width] = data[place * count : (place + 1) * count]
        values.frombytes(sorted_back)
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def _lists(self, count: int) -> list[list[Any]]:
        lengths = self._integers(count)
        total = sum(lengths)
        inner = self.column(total) if total else []
        if count == 1:
            return [inner]
        rest = iter(inner)
        return [list(islice(rest, length)) for length in lengths]

    def _objects(self, count: int) -> list[dict[str, Any]]:
        shapes = self._text(count)
        which = self._integers(count)
        used = Counter(which)
        names: Counter[str] = Counter()
        for number, shape in enumerate(shapes):
            names.update(dict.fromkeys(shape, used[number]))
        columns = {name: iter(self.column(times)) for name, times in names.items()}
        return [{name: next(columns[name]) for name in shapes[number]} for number in which]

    def _text(self, count: int) -> list[Any]:
        values: list[Any] = json.loads(bytes(self._bytes()))
        return values

    _PARTS: Mapping[int, Callable[[_Reader, int], list[Any]]] = {
        _WHOLE_NS: _whole_ns,
        _DOUBLE: _doubles,
        _INTEGER: _integers,
        _LIST: _lists,
        _OBJECT: _objects,
        _TEXT: _text,
    }
