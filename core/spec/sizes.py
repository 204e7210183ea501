"""Sizes for free dimensions that the user did not set: found in the model, or guessed from names.

A model gives sizes in two ways: by the metadata of its file (`core.spec.metadata`), and by inputs with the
usual names of a transformer. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Literal

from core.spec.metadata import (
    FoundSize,
    SizeOfImage,
    image_size,
    implausible_entries,
    max_text_tokens,
    stride,
)
from core.wire import ModelInfo

Side = Literal["height", "width", ""]

IMAGE_CHANNELS = (1, 3, 4)
IMAGE_SIDE = 224
DEFAULT_SIZE = 16
_EMPTY = ("past", "cache")  # the cache of a decoder, which is empty in its first run
_LENGTHS = ("seq", "len", "token", "time", "text")
_LENGTH = 128
_TOKENS = {1: _LENGTH}
_USUAL: Mapping[str, Mapping[int, int]] = {  # input of a transformer -> axis -> size
    **dict.fromkeys(("input_ids", "attention_mask", "token_type_ids", "position_ids"), _TOKENS),
    **dict.fromkeys(("decoder_input_ids", "decoder_attention_mask"), _TOKENS),
    "pixel_values": {1: 3, 2: IMAGE_SIDE, 3: IMAGE_SIDE},
}
_CACHE = "past_key_values"  # prefix of the inputs that hold a decoder's cache


def image_side(dim: str, info: ModelInfo) -> Side:
    """Return "height" or "width" where the name or the input layout shows that `dim` is one; else ""."""
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
        if shape[1] in IMAGE_CHANNELS:  # batch, channels, height, width
            return "height" if axis == 2 else "width" if axis == 3 else ""
        if shape[3] in IMAGE_CHANNELS:  # batch, height, width, channels
            return "height" if axis == 1 else "width" if axis == 2 else ""
    return ""


def sizes_in_metadata(info: ModelInfo) -> dict[str, FoundSize]:
    """Return the image sides that the file's metadata name, such as `imgsz: [320, 320]` of Ultralytics.

    A side that is no multiple of the file's `stride` is rounded up to one, as Ultralytics does.

    Returns:
        Free dimension -> its size and the source, for image sides only.
    """
    found = image_size(info["metadata"])
    if found is None:
        return {}
    of = {"height": found.height, "width": found.width}
    return {
        dim: _rounded_side(of[side], found, info)
        for dim in info["free_dims"]
        if (side := image_side(dim, info))
    }


def _rounded_side(side: int, found: SizeOfImage, info: ModelInfo) -> FoundSize:
    by = image_stride(info)
    rounded = round_up_to_multiple(side, by)
    why = f"{found.key} {found.height} × {found.width}"
    return FoundSize(size=rounded, why=why if rounded == side else f"{why}, to a multiple of stride {by}")


def sizes_from_input_names(info: ModelInfo) -> dict[str, FoundSize]:
    """Return sizes that inputs with a transformer's usual names take: 128 tokens, an image of 224 × 224.

    A text is no longer than the file's metadata allow; the cache of a decoder is empty.
    """
    found: dict[str, FoundSize] = {}
    for one in info["inputs"]:
        for axis, dim in enumerate(one["shape"] or []):
            if not isinstance(dim, str) or dim in found or len(_terms(dim)) > 1:
                continue
            size = _usual_size(one["name"], axis, dim, info)
            if size is not None:
                found[dim] = FoundSize(size=size, why=one["name"])
    return found


def _usual_size(name: str, axis: int, dim: str, info: ModelInfo) -> int | None:
    if name.startswith(_CACHE):
        return 0 if "past" in dim.lower().removeprefix(name.lower()) else None
    size = _USUAL.get(name, {}).get(axis)
    if size == _LENGTH:
        return min(size, max_text_tokens(info["metadata"]))
    return round_up_to_multiple(size, image_stride(info)) if size == IMAGE_SIDE else size


def image_sides_in_metadata(info: ModelInfo) -> dict[str, int]:
    """Return the image sides that the file's metadata name; empty: none."""
    return {dim: one.size for dim, one in sizes_in_metadata(info).items()}


def image_stride(info: ModelInfo) -> int:
    """Return the number that image sides must be multiples of, as the metadata say it (`stride`); else 1."""
    return stride(info["metadata"])


def ignored_sizes_note(info: ModelInfo) -> str:
    """Return a note on implausible sizes in the file's metadata, which are ignored; empty: none matters."""
    if not any(image_side(dim, info) for dim in info["free_dims"]):
        return ""
    entries = [f"`{name}: {text}`" for name, text in implausible_entries(info["metadata"]).items()]
    if not entries:
        return ""
    does = (
        "are ignored: they are no plausible sizes"
        if len(entries) > 1
        else "is ignored: it is no plausible size"
    )
    return f"{' and '.join(entries)} in the model's metadata {does} of an image."


def round_up_to_multiple(size: int, of: int) -> int:
    """Return the smallest multiple of `of` that is `size` or more."""
    return -(-size // of) * of


def guessed_size(dim: str, info: ModelInfo) -> int:
    """Return a guessed size of a free dimension, from its name and position, to be shown as a guess.

    A sum such as `past + 1` is the sum of its parts; a cache is empty.
    """
    terms = _terms(dim)
    if len(terms) > 1:
        return sum(int(term) if term.isdecimal() else guessed_size(term, info) for term in terms)
    if image_side(dim, info):
        return round_up_to_multiple(IMAGE_SIDE, image_stride(info))
    name = dim.lower()
    if any(part in name for part in _EMPTY):
        return 0
    return _LENGTH if any(part in name for part in _LENGTHS) else DEFAULT_SIZE


def size_of_sum(dim: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a sum such as `past + 1`; None: it is no sum, or a term has no size."""
    terms = _terms(dim)
    found = [int(term) if term.isdecimal() else sizes.get(term) for term in terms]
    return sum(one or 0 for one in found) if len(terms) > 1 and None not in found else None


def _terms(dim: str) -> list[str]:
    terms = [term.strip() for term in dim.split("+")]
    return terms if all(terms) else [dim]


def suggested_sizes(dims: Iterable[str], info: ModelInfo) -> dict[str, int]:
    """Return a size for each of `dims`: from the model, else a guess."""
    known = sizes_from_input_names(info) | sizes_in_metadata(info)
    return {dim: known[dim].size if dim in known else guessed_size(dim, info) for dim in dims}


def options(sizes: Mapping[str, int]) -> str:
    """Write sizes as options to be pasted: `--dim sequence=128 --dim past=0`."""
    return " ".join(f"--dim {shlex.quote(f'{dim}={size}')}" for dim, size in sizes.items())
