"""Sizes of images and texts in the metadata of an ONNX file, as exporters write them.

Supported are `imgsz` and `stride` of Ultralytics; `image_size`, `img_size` and `input_size`; the size in a
preprocessor's configuration (`preprocessor_config`, JSON); and the maximum length of a text. Metadata are not
trusted: implausible sizes are ignored. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_SIDE = 4096  # pixels of an image in the metadata: more is a mistake, and would fill the memory
MOST_STRIDE = 512
_MOST_TEXT = 1 << 20  # tokens
_IMAGE_KEYS = ("imgsz", "image_size", "img_size", "input_size")
_PREPROCESSORS = ("preprocessor_config", "preprocessor_config.json", "preprocessor")
_SIZES_WITHIN = ("crop_size", "size")  # of a preprocessor: the model gets the cropped size
_TEXT_KEYS = ("max_position_embeddings", "model_max_length", "max_seq_length", "max_length")
_CHANNELS = (1, 3, 4)
_READ = 200  # characters of an entry
_READ_CONFIGURATION = 10_000
_SHOWN = 40
_PAIR = re.compile(r"\s*\(?\s*(\d{1,5})\s*[x×,]\s*(\d{1,5})\s*\)?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSize:
    """A size found in a model, and its source: an entry of the metadata, or the name of an input."""

    size: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOfImage:
    """The sides of an image in pixels, and the entry of the metadata that names them."""

    key: str
    height: int
    width: int


def image_size(metadata: Mapping[str, str]) -> SizeOfImage | None:
    """Return the size of an image that the metadata name; None: no plausible one."""
    for key, value in _candidates(metadata):
        if (sides := _sides(value)) is not None:
            return SizeOfImage(key=key, height=sides[0], width=sides[1])
    return None


def _candidates(metadata: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for key in _IMAGE_KEYS:
        if key in metadata:
            yield key, _read(metadata[key])
    for key in _PREPROCESSORS:
        found = _json(metadata.get(key, ""), _READ_CONFIGURATION)
        if isinstance(found, dict):
            yield from ((within, found[within]) for within in _SIZES_WITHIN if within in found)


def stride(metadata: Mapping[str, str]) -> int:
    """Return the number that the sides of an image must be multiples of; 1: the metadata name none."""
    return _stride(metadata.get("stride", "")) or 1


def max_text_tokens(metadata: Mapping[str, str]) -> int:
    """Return the maximum number of tokens of a text in the metadata; else more than any text has."""
    found = [_json(metadata[key], _READ) for key in _TEXT_KEYS if key in metadata]
    return min((one for one in found if _is_size(one, _MOST_TEXT)), default=_MOST_TEXT)


def implausible_entries(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the entries that should name a size and do not, with the beginning of their text."""
    wrong = [key for key in _IMAGE_KEYS if key in metadata and _sides(_read(metadata[key])) is None]
    if "stride" in metadata and not _stride(metadata["stride"]):
        wrong.append("stride")
    return {key: _beginning(metadata[key]) for key in wrong}


def _stride(text: str) -> int | None:
    found = _json(text, _READ)
    numbers = found if isinstance(found, list) and found else [found]
    return max(numbers) if all(_is_size(one, MOST_STRIDE) for one in numbers) else None


def _sides(value: Any) -> tuple[int, int] | None:
    """Height and width of `640`, `[480, 640]`, `[3, 480, 640]` or `{"height": 480, "width": 640}`."""
    if isinstance(value, dict):
        one = value.get("shortest_edge")
        value = [value.get("height", one), value.get("width", one)]
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) == 3:
        numbers = numbers[1:] if numbers[0] in _CHANNELS else numbers[:2]
    if len(numbers) not in (1, 2) or not all(_is_size(one, MOST_SIDE) for one in numbers):
        return None
    return numbers[0], numbers[-1]


def _is_size(value: object, most: int) -> bool:
    return type(value) is int and 0 < value <= most


def _read(text: str) -> Any:
    """The value of an entry: JSON, or two numbers such as `640x480` or `(480, 640)`."""
    pair = _PAIR.fullmatch(text[:_READ])
    return [int(pair[1]), int(pair[2])] if pair else _json(text, _READ)


def _json(text: str, most: int) -> Any:
    try:
        return json.loads(text) if len(text) <= most else None
    except (ValueError, RecursionError):
        return None


def _beginning(text: str) -> str:
    """A few printable characters."""
    plain = "".join(one if one.isprintable() and one != "`" else " " for one in text[: _SHOWN + 1])
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"
