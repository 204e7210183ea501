"""Raw samples as bytes: columns of integers, compressed. Pure: no SQL, and nothing but the standard library.

Any JSON data comes back as it was. What makes it small: times are whole nanoseconds, and they are kept as
such; a list of objects is kept by columns, so that like stands beside like; numbers that come again and again
stand once in a table, the frequent ones first; and the bytes of numbers are sorted by their place.

A body is a list of byte strings, each after its length, that `_Writer` and `_Reader` pass in the same order.
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

FORMAT = 1  # the first byte; a layout that `unpack` below cannot read must have another one
LEVEL = 6  # of zlib; 9 takes twice as long for 1 % less

# how a value is kept; the order is that in which the parts of a mixed column follow each other
_WHOLE_NS, _DOUBLE, _INTEGER, _LIST, _OBJECT, _TEXT = range(6)

_MOST_NS = 1 << 53  # beyond, not every whole number of ns has a float of its own
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}  # bytes -> code of `array`
_REPEATS = 4  # a table pays from so many uses of each number


def pack(raw: Mapping[str, Any]) -> bytes:
    """Return raw parts of a result as bytes.

    Args:
        raw: JSON data; a tuple comes back as a list, as from JSON text.

    Raises:
        TypeError, ValueError: it is no JSON data.
    """
    writer = _Writer()
    writer.column([dict(raw)])
    return bytes([FORMAT]) + zlib.compress(b"".join(writer.body), LEVEL)


def unpack(data: bytes) -> dict[str, Any]:
    """Return what `pack` was given; every number is the same number.

    Raises:
        ValueError: `pack` did not write these bytes, or not all of them.
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
    """Takes columns apart; `body` is what they leave."""

    def __init__(self) -> None:
        self.body: list[bytes] = []

    def column(self, values: Sequence[Any]) -> None:
        """Values of any kind: which kind each is, then the values of each kind together."""
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
        """Numbers as distances from the smallest, in as few bytes each as hold the largest."""
        lowest = min(values)
        spread = max(values) - lowest
        width = next(one for one in _UNSIGNED if spread < 1 << 8 * one)
        self._bytes(struct.pack("<qB", lowest, width))
        self._numbers(array(_UNSIGNED[width], [one - lowest for one in values]))

    def _numbers(self, values: array[Any]) -> None:
        """All first bytes, then all second ones …: those that hardly change compress to nothing."""
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
        """Which names each object has, then for each name the values of all who have it."""
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
    """How to keep a value; whatever is not certain to come back from numbers is kept as JSON text."""
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
    """Whether `ns / 1e9` gives back exactly `value`; a zero may have a sign that only a float keeps."""
    ns = value * 1e9
    return -_MOST_NS < ns < _MOST_NS and ns != 0 and round(ns) / 1e9 == value


# --- reading ------------------------------------------------------------------------------------------------


class _Reader:
    """The way back: a method here for each of `_Writer`."""

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
        """Integers, with `made` applied to each number once, however often it stands there."""
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
