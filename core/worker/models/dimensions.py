"""Name a model's free dimensions, and find the one that carries the batch.

Pure functions on shapes as the ONNX file writes them. Three kinds of free dimension:

- A *name* ("batch", "past_length + 1"): equal names are equal sizes everywhere, even twice in one input (an
  attention mask `[batch, seq, seq]`). Its address is the name.
- A *placeholder* ("?", "-1", "None", nothing at all): only says that the size is free. Two placeholders need
  not be equal, so the address is `<input>:<axis>`.
- A *generated name* ("unk__6", "input_dynamic_axes_1"): some exporters number each free axis. It keeps its
  name, but says nothing about the axis, so the batch search treats it like a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.wire import InputInfo

RawDim = int | str | None  # a size; the file's name of the dimension; None if it has neither

_PLACEHOLDER = re.compile(r"[\W\d_]*|none|nan|unk|unknown|dyn|dynamic|undefined", re.IGNORECASE)
_GENERATED = re.compile(r"unk_+\d+|unknown_+\d+|DynamicDimension\.\d+|.+_dynamic_axes_\d+|dyn_?\d+")
_SHORT_BATCH = {"n", "b", "bs", "nb"}  # as in NCHW, (B, T, C)
_NOT_ROWS = re.compile(
    r"seq|time|len|frame|height|width|step|token|word|char|channel|feature"
    r"|node|edge|point|vert|box|roi|vocab|hidden|past|cache|context|patch"
)
_SHORT_NOT_ROWS = {"t", "l", "s", "h", "w", "c", "d", "k"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The dimension that carries the samples of an inference; see the same fields of `wire.ModelInfo`."""

    dim: str | None
    axes: dict[str, int]
    fixed: int | None


def address(owner: str, axis: int, raw: RawDim) -> int | str:
    """Return the size of a dimension, or the address of a free one.

    A size of 0 is kept: ONNX Runtime accepts only an empty tensor there. A negative size is a free dimension.
    """
    if isinstance(raw, int) and raw >= 0:
        return raw
    if isinstance(raw, str) and not _PLACEHOLDER.fullmatch(raw.strip()):
        return raw
    return f"{owner}:{axis}"


def free_dims(inputs: Sequence[InputInfo]) -> list[str]:
    """Return the addresses of all free dimensions in order of appearance."""
    found = (dim for one in inputs for dim in one["shape"] or [] if isinstance(dim, str))
    return list(dict.fromkeys(found))


def find_batch(inputs: Sequence[InputInfo]) -> Batch:
    """Find the dimension that counts the samples of an inference.

    In this order: a name that contains "batch", on any axis; a short name such as N or B on axis 0; any other
    free axis 0 whose name does not denote a sequence, an image side or the like; N or B on another axis;
    then the fixed size of axis 0. A placeholder on axis 0 includes every other input whose axis 0 is one.
    """
    names = [dim for dim in free_dims(inputs) if not _is_anonymous(dim, inputs)]
    firsts = [dim for one in inputs for dim in (one["shape"] or [])[:1] if isinstance(dim, str)]
    candidates = (
        [dim for dim in names if _is_plain(dim) and "batch" in dim.lower()]
        + [dim for dim in firsts if dim.lower() in _SHORT_BATCH]
        + [dim for dim in firsts if _may_be_rows(dim, inputs)]
        + [dim for dim in names if dim.lower() in _SHORT_BATCH]
    )
    if not candidates:
        return _fixed_batch(inputs)
    dim = candidates[0]
    if _is_anonymous(dim, inputs):
        return Batch(dim=dim, axes=_anonymous_first_axes(inputs), fixed=None)
    return Batch(dim=dim, axes=_axes_named(dim, inputs), fixed=None)


def _is_plain(dim: str) -> bool:
    """True for one word, False for an expression such as `batch*heads`."""
    return re.fullmatch(r"[A-Za-z_][\w. ]*", dim) is not None


def _is_anonymous(dim: str, inputs: Sequence[InputInfo]) -> bool:
    """True for the address of a placeholder and for a generated name."""
    owner, _, axis = dim.rpartition(":")
    by_position = axis.isdigit() and any(one["name"] == owner for one in inputs)
    return by_position or _GENERATED.fullmatch(dim) is not None


def _may_be_rows(dim: str, inputs: Sequence[InputInfo]) -> bool:
    if _is_anonymous(dim, inputs):
        return True
    name = dim.lower()
    return _is_plain(dim) and name not in _SHORT_NOT_ROWS and not _NOT_ROWS.search(name)


def _axes_named(dim: str, inputs: Sequence[InputInfo]) -> dict[str, int]:
    return {one["name"]: shape.index(dim) for one in inputs if dim in (shape := one["shape"] or [])}


def _anonymous_first_axes(inputs: Sequence[InputInfo]) -> dict[str, int]:
    return {
        one["name"]: 0
        for one in inputs
        if one["shape"] and isinstance(first := one["shape"][0], str) and _is_anonymous(first, inputs)
    }


def _fixed_batch(inputs: Sequence[InputInfo]) -> Batch:
    """Return axis 0 of the inputs if they agree; matrices and images take precedence over vectors.

    If they disagree, the batch is unknown and one inference counts as one sample.
    """
    shapes = {one["name"]: one["shape"] for one in inputs if one["shape"]}
    voters = [shape for shape in shapes.values() if len(shape) >= 2] or list(shapes.values())
    sizes = {shape[0] for shape in voters}
    size = sizes.pop() if len(sizes) == 1 else None
    if not isinstance(size, int) or size == 0:
        return Batch(dim=None, axes={}, fixed=1)
    return Batch(dim=None, axes={name: 0 for name, shape in shapes.items() if shape[0] == size}, fixed=size)
