"""Create input arrays from a `FeedPlan`: seeded random values, fixed values, an `.npz`, or images.

numpy only; Pillow is imported only for images. Every array is C-contiguous, in the type that the session
declares, and exactly in the planned shape: a source with fewer samples than the batch is refused, never
repeated. bfloat16, which numpy lacks, is stored as its bit pattern in uint16.

`wire.feeding` defines the ranges of random values; those of an input depend only on the seed and its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire.errors import ModelError, SpecError, nearest
from core.wire.feeding import (
    NO_TEXT_HINT,
    NOT_FED_HINT,
    channel_axis,
    missing_text_message,
    random_range,
    unsupported_reason,
)
from core.worker.session.feeds.archive import open_archive
from core.worker.session.feeds.wanted import BFLOAT16, STRING, InputSpec

Array = npt.NDArray[Any]

_ORT_TYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    BFLOAT16: BFLOAT16,
    STRING: STRING,
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_IMAGE_ARRAY = "test_images"  # MedMNIST's name


class SessionInput(Protocol):
    """The items of `InferenceSession.get_inputs()`: name and type, such as "tensor(float)"."""

    @property
    def name(self) -> str: ...  # noqa: D102 - says it all
    @property
    def type(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """Input arrays; `notes` lists conversions for the reader of the results."""

    arrays: dict[str, Array]
    dtypes: dict[str, str]  # numpy's names, or "bfloat16"
    notes: list[str]


def make_feeds(plan: wire.FeedPlan, session_inputs: Sequence[SessionInput]) -> Feeds:
    """Create every array that the session needs.

    Args:
        plan: shapes, source and values; the types are the session's own.
        session_inputs: `InferenceSession.get_inputs()`.

    Raises:
        SpecError: a value, array or image does not fit the input.
        ModelError: the model has an input that is not a tensor of numbers or text.
    """
    wanted = _wanted(plan, session_inputs)
    notes: list[str] = []
    arrays = {one.name: fixed(one, plan["values"][one.name]) for one in wanted if one.name in plan["values"]}
    _check_sizes([one for one in wanted if one.name not in arrays], plan["source"])
    arrays |= {one.name: random(one, plan["seed"]) for one in wanted if one.drawn and one.name not in arrays}
    open_ones = [one for one in wanted if one.name not in arrays]
    if plan["source"] == "npz":
        arrays |= from_npz(plan, open_ones, notes)
    elif plan["source"] == "images":
        arrays |= _from_images(plan, open_ones)
    arrays |= {one.name: random(one, plan["seed"]) for one in open_ones if one.name not in arrays}
    return Feeds(
        arrays={one.name: _final(one, arrays[one.name]) for one in wanted},
        dtypes={one.name: one.dtype for one in wanted},
        notes=notes,
    )


def generate_inputs(
    inputs: Sequence[wire.InputPlan], values: Mapping[str, Any], seed: int
) -> dict[str, Array]:
    """Create the arrays of inputs outside a dataset: those with a fixed value or a range.

    Args:
        inputs: of the model, with the batch size.
        values: input -> fixed value.
        seed: of the ranges.

    Raises:
        SpecError: a value does not fit its input.
    """
    found: dict[str, Array] = {}
    for one in inputs:
        if one["name"] not in values and not one.get("drawn", False):
            continue
        wanted = _spec(one, one["dtype"], None)
        array = fixed(wanted, values[one["name"]]) if one["name"] in values else random(wanted, seed)
        found[one["name"]] = _final(wanted, array)
    return found


def sample_count(shapes: Mapping[str, Sequence[int]], batch_axes: Mapping[str, int]) -> int:
    """Count the samples in the inputs; 1 if no input has a batch axis.

    Args:
        shapes: input to the actual shape.
        batch_axes: input to its batch axis.

    Raises:
        SpecError: the inputs disagree.
    """
    counts = {name: shapes[name][axis] for name, axis in batch_axes.items() if axis < len(shapes[name])}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"`{name}` {rows}" for name, rows in counts.items())
        raise SpecError(
            f"The inputs have different batch sizes: {listed}.",
            hint="Give every input the same batch size.",
        )
    return next(iter(counts.values()), 1)


def _wanted(plan: wire.FeedPlan, session_inputs: Sequence[SessionInput]) -> list[InputSpec]:
    planned = {one["name"]: one for one in plan["inputs"]}
    wanted = []
    for declared in session_inputs:
        one = planned.get(declared.name)
        if one is None:
            raise SpecError(
                f"The input `{declared.name}`, which the model needs, has no data.",
                hint="Inspect the model again; its file has changed.",
            )
        wanted.append(_spec(one, _dtype(declared), plan["batch_axes"].get(one["name"])))
    return wanted


def _spec(one: wire.InputPlan, dtype: str, batch_axis: int | None) -> InputSpec:
    return InputSpec(
        name=one["name"],
        dtype=dtype,
        shape=one["shape"],
        low=one["low"],
        high=one["high"],
        batch_axis=batch_axis,
        drawn=one.get("drawn", False),
    )


def _dtype(declared: SessionInput) -> str:
    kind, _, rest = declared.type.partition("(")
    dtype = _ORT_TYPES.get(rest.rstrip(")"), declared.type) if kind == "tensor" else declared.type
    if why := unsupported_reason(declared.name, dtype):
        raise ModelError(why, hint=NOT_FED_HINT)
    return dtype


def _check_sizes(wanted: Sequence[InputSpec], source: str) -> None:
    for one in wanted:
        if -1 in one.shape and (source == "random" or one.drawn):
            raise SpecError(
                f"Input `{one.name}` has a dimension without a size.",
                hint="Set it with `--dim`, or give the input a fixed value.",
            )


def _final(one: InputSpec, array: Array) -> Array:
    if one.dtype == BFLOAT16:  # the upper half of a float32, truncated
        bits = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return bits.reshape(array.shape)
    return array if array.flags.c_contiguous else array.copy(order="C")


# -- random ------------------------------------------------------------------------------------------------


def random(one: InputSpec, seed: int) -> Array:
    """Return the seeded random array for one input, in the range of `random_range`."""
    if one.dtype == STRING:
        raise SpecError(missing_text_message(one.name), hint=NO_TEXT_HINT.format(name=one.name))
    generator = np.random.default_rng([abs(seed), zlib.crc32(one.name.encode())])
    dtype = one.numpy_dtype
    low, high = random_range(one.dtype, one.low, one.high)
    if np.issubdtype(dtype, np.floating):
        unit = generator.random(one.shape, dtype=np.float64 if dtype == np.float64 else np.float32)
        return np.asarray(low + unit * np.float32(high - low)).astype(dtype)
    if low >= high:
        raise SpecError(
            f"Input `{one.name}` has no {one.dtype} from {one.low} up to, but without, {one.high}.",
            hint="Give it a range that holds a number, or a fixed value.",
        )
    whole = np.int64 if dtype == np.bool_ else dtype
    return np.asarray(generator.integers(int(low), int(high), one.shape, dtype=whole), dtype)


# -- fixed values ------------------------------------------------------------------------------------------


def fixed(one: InputSpec, value: Any) -> Array:
    """Return `value`, a number or nested list, in the type of the input and broadcast to its shape.

    Raises:
        SpecError: text for a numeric input or the reverse, a number outside the type's range, or a shape that
            does not fit.
    """
    if one.dtype == STRING:
        return _broadcast(one, _texts(one, value))
    try:
        raw = np.asarray(value)
    except ValueError:  # rows of different lengths
        raw = np.asarray(None)
    if raw.dtype.kind not in "biuf" or raw.size == 0:
        raise SpecError(
            f"The value {_short(value)} for input `{one.name}` is not a number or a regular list of numbers.",
            hint=f"Give {one.dtype} numbers, for example `--feed {one.name}=1`.",
        )
    return _broadcast(one, _cast_exactly(one, raw, value))


def _texts(one: InputSpec, value: Any) -> Array:
    """Convert text to an array; a plain list for a column of texts becomes a column."""
    found = np.asarray(value, dtype=object)
    if found.size == 0 or not all(isinstance(text, str) for text in found.flat):
        raise SpecError(
            f"The value {_short(value)} for input `{one.name}` is no text, or no regular list of texts.",
            hint=f"Write it in quotes: `--feed '{one.name}=\"123\"'`.",
        )
    if found.ndim == 1 and len(one.shape) > 1 and all(size == 1 for size in one.shape[1:]):
        found = found.reshape(-1, *one.shape[1:])
    return found


def _cast_exactly(one: InputSpec, raw: Array, value: Any) -> Array:
    dtype = one.numpy_dtype
    with np.errstate(all="ignore"):
        cast = raw.astype(dtype)
    fits = bool(np.isfinite(cast).all()) or not bool(np.isfinite(raw).all())
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        fits = bool((cast == raw).all())
    if not fits:
        raise SpecError(
            f"The value {_short(value)} for input `{one.name}` is no {one.dtype}.",
            hint=f"Give a value that {one.dtype} can hold.",
        )
    return cast


def _broadcast(one: InputSpec, array: Array) -> Array:
    if not one.shape and array.ndim:  # unknown rank, or a scalar: ONNX Runtime checks which
        return array
    own = [1] * (len(one.shape) - array.ndim) + list(array.shape)
    target = [
        size if wanted == -1 else wanted
        for wanted, size in zip(one.shape, own[-len(one.shape) :], strict=False)
    ]
    try:
        return np.array(np.broadcast_to(array, target), order="C")
    except ValueError as error:
        raise SpecError(
            f"The value for input `{one.name}` has shape {list(array.shape)}, the model wants {one.shape}.",
            hint="Give one value, or a list in the input's shape, with as many samples as the batch.",
        ) from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


# -- .npz --------------------------------------------------------------------------------------------------


def from_npz(plan: wire.FeedPlan, wanted: Sequence[InputSpec], notes: list[str]) -> dict[str, Array]:
    """Return the first samples of the arrays in `plan["path"]`.

    The file holds one array per input, under the input's name, and nothing else. A model with a single input
    without a value also accepts a file with a single array, or with one named `test_images` (MedMNIST's
    layout; its labels and other splits are ignored). There a uint8 array [rows, H, W] or [rows, H, W, C]
    for a float input is treated as images: converted to the input's layout, scaled to [0, 1] and, when the
    plan has `image_mean` and `image_std`, normalised.

    Raises:
        SpecError: unreadable file; missing or extra name; wrong type or shape; too few rows.
    """
    path = plan["path"] or ""
    with open_archive(Path(path), f"There is no input file `{path[:200]}`.") as archive:
        stored = archive.read(archive.names)
    chosen = _choose_arrays(stored, wanted)
    return {one.name: _rows(one, chosen[one.name], plan, notes) for one in wanted}


def _choose_arrays(stored: Mapping[str, Array], wanted: Sequence[InputSpec]) -> dict[str, Array]:
    names = [one.name for one in wanted]
    if len(names) == 1 and names[0] not in stored:
        only = next(iter(stored.values())) if len(stored) == 1 else stored.get(_IMAGE_ARRAY)
        if only is not None:
            return {names[0]: only}
    for name in names:
        if name not in stored:
            raise SpecError(
                f"The .npz has no array `{name[:80]}`, but {_listed(stored)}.{nearest(name, stored)}",
                hint="Name each array after its input.",
            )
    for name in stored:
        if name not in names:
            raise SpecError(
                f"The .npz has an array `{name[:80]}`, but no input of that name needs data."
                f"{nearest(name, names)}",
                hint="Remove the array, or name it after an input.",
            )
    return dict(stored)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name[:80] for name in list(names)[:20]) or "none"


def _rows(one: InputSpec, array: Array, plan: wire.FeedPlan, notes: list[str]) -> Array:
    if one.batch_axis is not None and array.ndim > one.batch_axis:
        have, need = array.shape[one.batch_axis], plan["batch_size"]
        if have < need:
            raise SpecError(
                f"The array for input `{one.name}` has {have} samples, but the batch is {need}.",
                hint=f"Use a batch of at most {have}, or a file with more samples.",
            )
        array = array.take(range(need), axis=one.batch_axis)
    if array.dtype == np.uint8 and np.issubdtype(one.numpy_dtype, np.floating):
        array = _image_layout(one, array, plan, notes)
    if one.shape and not _fits(array.shape, one.shape):
        raise SpecError(
            f"The array for input `{one.name}` has shape {list(array.shape)}, the model wants {one.shape}.",
            hint="Give the array the input's shape; only the batch may be longer.",
        )
    return _cast_array(one, array, notes)


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(w in (-1, s) for s, w in zip(shape, wanted, strict=True))


def _image_layout(one: InputSpec, array: Array, plan: wire.FeedPlan, notes: list[str]) -> Array:
    """Convert uint8 images to a float input: channel axis as in the input, values in [0, 1]."""
    if len(one.shape) != 4 or array.ndim not in (3, 4):
        return array
    if array.ndim == 3:
        array = array[:, None] if one.shape[1] == 1 else array[..., None]
    elif not _fits(array.shape, one.shape) and _fits(np.moveaxis(array, 3, 1).shape, one.shape):
        array = np.moveaxis(array, 3, 1)
    from core.worker.session.feeds.images import normalised

    notes.append(f"The uint8 images for input `{one.name}` were scaled to [0, 1].")
    return normalised(array, channel_axis(one.shape) or 3, plan["image_mean"], plan["image_std"])


def _cast_array(one: InputSpec, array: Array, notes: list[str]) -> Array:
    dtype = one.numpy_dtype
    if one.dtype == STRING and array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise SpecError(
            f"The array for input `{one.name}` is {array.dtype}, the model wants {one.dtype}.",
            hint=f"Convert it with `array.astype({one.dtype!r})`.",
        )
    if one.dtype != BFLOAT16:
        notes.append(f"The array for input `{one.name}` was converted from {array.dtype} to {one.dtype}.")
    return _cast_exactly(one, array, f"array of {array.dtype}")


def _from_images(plan: wire.FeedPlan, wanted: Sequence[InputSpec]) -> dict[str, Array]:
    from core.worker.session.feeds.images import load_images  # imports Pillow

    return load_images(plan, wanted)
