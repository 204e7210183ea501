"""Sizes for free dimensions that nobody gave: what the model's file says, and guesses from their names.

Pure.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Literal

from core.wire import ModelInfo

Side = Literal["height", "width", ""]

IMAGE_CHANNELS = (1, 3, 4)
IMAGE_SIDE = 224
DEFAULT_SIZE = 16
_EMPTY = ("past", "cache")  # what a decoder has read before: nothing, in its first run
_LENGTHS = ("seq", "len", "token", "time", "text")
_LENGTH = 128
MOST_SIDE = 1 << 16  # of what a file says: more is no image


def image_side(dim: str, info: ModelInfo) -> Side:
    """Return "height" or "width" where a name or the layout of an input tells that `dim` is one; else ""."""
    by_layout = _side_by_layout(dim, info)
    if by_layout:
        return by_layout
    named: tuple[Side, ...] = ("height", "width")
    return next((side for side in named if side in dim.lower()), "")


def _side_by_layout(dim: str, info: ModelInfo) -> Side:
    for one in info["inputs"]:
        shape = one["shape"] or []
        if dim not in shape or len(shape) != 4:
            continue
        axis = shape.index(dim)
        if shape[1] in IMAGE_CHANNELS:  # rows, channels, height, width
            return "height" if axis == 2 else "width" if axis == 3 else ""
        if shape[3] in IMAGE_CHANNELS:  # rows, height, width, channels
            return "height" if axis == 1 else "width" if axis == 2 else ""
    return ""


def sides_of_file(info: ModelInfo) -> dict[str, int]:
    """Return the image sides that the file's metadata name, as Ultralytics writes them: `imgsz: [320, 320]`.

    Returns:
        Free dimension -> size, of those that are image sides; empty where the metadata name none.
    """
    sides = _whole_numbers(info["metadata"].get("imgsz", ""))
    if not sides:
        return {}
    of = {"height": sides[0], "width": sides[-1]}
    return {dim: of[side] for dim in info["free_dims"] if (side := image_side(dim, info))}


def stride_of_file(info: ModelInfo) -> int:
    """Return the number that image sides must be multiples of, as the metadata say it (`stride`); else 1."""
    return max(_whole_numbers(info["metadata"].get("stride", "")), default=1)


def _whole_numbers(text: str) -> list[int]:
    """One or several sizes as JSON; nothing where the text is anything else."""
    try:
        found = json.loads(text[:200])
    except (ValueError, RecursionError):
        return []
    numbers = found if isinstance(found, list) else [found]
    is_size = all(type(one) is int and 0 < one <= MOST_SIDE for one in numbers)
    return numbers if is_size and len(numbers) <= 2 else []


def multiple(size: int, of: int) -> int:
    """Return the smallest multiple of `of` that is `size` or more."""
    return -(-size // of) * of


def guess(dim: str, info: ModelInfo) -> int:
    """Return a size to start from for a free dimension, from its name and place: to be marked as a guess.

    A sum such as `past + 1` is the sum of its parts; a cache is empty.
    """
    terms = _terms(dim)
    if len(terms) > 1:
        return sum(int(term) if term.isdecimal() else guess(term, info) for term in terms)
    if image_side(dim, info):
        return multiple(IMAGE_SIDE, stride_of_file(info))
    name = dim.lower()
    if any(part in name for part in _EMPTY):
        return 0
    return _LENGTH if any(part in name for part in _LENGTHS) else DEFAULT_SIZE


def sum_of(dim: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a sum such as `past + 1`; None: it is no sum, or a term has no size."""
    terms = _terms(dim)
    found = [int(term) if term.isdecimal() else sizes.get(term) for term in terms]
    return sum(one or 0 for one in found) if len(terms) > 1 and None not in found else None


def _terms(dim: str) -> list[str]:
    terms = [term.strip() for term in dim.split("+")]
    return terms if all(terms) else [dim]


def suggested(dims: Iterable[str], info: ModelInfo) -> dict[str, int]:
    """Return a size for each of `dims`: the file's own, else a guess."""
    known = sides_of_file(info)
    return {dim: known.get(dim, guess(dim, info)) for dim in dims}


def options(sizes: Mapping[str, int]) -> str:
    """Write sizes as options to be pasted: `--dim sequence=128 --dim past=0`."""
    return " ".join(f"--dim {shlex.quote(f'{dim}={size}')}" for dim, size in sizes.items())
