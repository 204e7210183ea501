"""Datasets in an `.npz`: MedMNIST and Keras layouts with splits, pairs, or arrays named like the inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire.errors import SpecError, nearest
from core.worker.data.datasets.images import image_input, preprocess
from core.worker.data.datasets.labels import Labels, from_array
from core.worker.session.feeds.archive import open_archive

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

SPLITS = ("test", "val", "train")  # by preference
_PAIRS = (("{}_images", "{}_labels"), ("x_{}", "y_{}"))  # MedMNIST, Keras
_PLAIN = (("images", "labels"), ("x", "y"), ("X", "Y"), ("X", "y"))
_LABELS = ("labels", "label", "targets", "target", "y")  # next to arrays named like the inputs
_NAMES = "class_names"


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzSource:
    """Arrays of an `.npz` with the same rows."""

    arrays: dict[str, Array]
    labels: Labels | None
    rows: int
    notes: list[str]
    preprocessing: wire.Preprocessing

    def content(self, rows: Integers) -> Iterator[bytes]:
        """Yield the rows of each array after its name, type and shape."""
        for name, array in self.arrays.items():
            part = array[rows] if array.ndim and len(array) == self.rows else array
            yield f"{name}\0{part.dtype.str}\0{part.shape}\0".encode()
            yield np.ascontiguousarray(part).tobytes()

    def has_input(self, one: wire.InputPlan, batch_axis: int | None) -> bool:
        """Whether an array has the input's name."""
        return one["name"] in self.arrays

    def row_content(self, rows: Integers) -> Iterator[bytes]:
        """Yield each row over all arrays, with names if there are several; nothing if no array has rows."""
        parts = {
            name: np.ascontiguousarray(array[rows])
            for name, array in sorted(self.arrays.items())
            if array.ndim and len(array) == self.rows
        }
        for number in range(len(rows) if parts else 0):
            yield b"\0".join(
                f"{name if len(parts) > 1 else ''}{part.dtype.str}{part.shape[1:]}".encode()
                + part[number].tobytes()
                for name, part in parts.items()
            )

    def feeds(
        self, rows: Integers, inputs: Sequence[wire.InputPlan], batch_axes: Mapping[str, int]
    ) -> dict[str, Array]:
        """Return the rows for each input, unchanged where they fit.

        Raises:
            SpecError: no array for an input, or one of another type or shape.
        """
        chosen = self._by_input([one["name"] for one in inputs])
        return {
            one["name"]: self._rows_for(one, chosen[one["name"]], rows, batch_axes.get(one["name"]))
            for one in inputs
        }

    def _by_input(self, names: Sequence[str]) -> dict[str, Array]:
        if len(names) == 1 and len(self.arrays) == 1:
            return {names[0]: next(iter(self.arrays.values()))}
        for name in names:
            if name not in self.arrays:
                raise SpecError(
                    f"The data have no array for the input `{name}`, but {_listed(self.arrays)}."
                    f"{nearest(name, self.arrays)}",
                    hint="Name each array after its input, and the labels `labels`.",
                )
        return {name: self.arrays[name] for name in names}

    def _rows_for(self, one: wire.InputPlan, array: Array, rows: Integers, axis: int | None) -> Array:
        if axis is not None:
            if array.ndim <= axis or array.shape[axis] != self.rows:
                raise SpecError(
                    f"The array for the input `{one['name']}` has shape {list(array.shape)}, but there are "
                    f"{self.rows} samples.",
                    hint="Give every array and the labels the same number of samples.",
                )
            array = array.take(rows, axis=axis)
        return _as_input(array, one, axis, self.preprocessing)


def _as_input(
    array: Array, one: wire.InputPlan, axis: int | None, preprocessing: wire.Preprocessing
) -> Array:
    given, target = array.shape, image_input(one, axis)
    pixels = array.dtype == np.uint8 and array.ndim in (3, 4)
    if target is not None and pixels and not (target.dtype == "uint8" and _fits(array, one, axis)):
        channels_last = _channels_last(array)
        if channels_last is not None:
            return preprocess(list(channels_last), target, preprocessing)
    if target is not None and not _fits(array, one, axis):
        array = _laid_out(array, target.channel_axis)
    if not _fits(array, one, axis):
        raise SpecError(
            f"The array for the input `{one['name']}` has shape {_shape(given, axis)}, but the model "
            f"wants {_shape(one['shape'], axis)}.",
            hint="Give the array the input's shape. Bytes are taken as images by inputs of images only.",
        )
    return _cast(array, one)


def _fits(array: Array, one: wire.InputPlan, axis: int | None) -> bool:
    shape = one["shape"]
    if not shape:
        return True  # a scalar or an unknown rank: ONNX Runtime checks it
    return array.ndim == len(shape) and all(
        index == axis or want in (-1, have)
        for index, (have, want) in enumerate(zip(array.shape, shape, strict=True))
    )


def _channels_last(array: Array) -> Array | None:
    """Return image bytes as [rows, height, width, channels]; None if no axis can be the channels."""
    if array.ndim == 3:
        return array[..., None]
    if array.shape[3] in (1, 3, 4):
        return array
    return np.moveaxis(array, 1, 3) if array.shape[1] in (1, 3, 4) else None


def _laid_out(array: Array, channel_axis: int) -> Array:
    """Return float images with the channel axis added or moved to where the input has it."""
    if array.ndim == 3:
        return np.expand_dims(array, channel_axis)
    return np.moveaxis(array, 4 - channel_axis, channel_axis) if array.ndim == 4 else array


def _cast(array: Array, one: wire.InputPlan) -> Array:
    try:
        dtype = np.dtype(one["dtype"])
    except TypeError:
        raise SpecError(
            f"The input `{one['name']}` is {one['dtype']}, which numpy cannot feed.",
            hint="Use a model with float32 inputs.",
        ) from None
    if not np.can_cast(array.dtype, dtype, "same_kind") and not _cast_integers(array, dtype):
        raise SpecError(
            f"The array for the input `{one['name']}` is {array.dtype}, but the model wants {one['dtype']}.",
            hint=f"Convert it with `array.astype({one['dtype']!r})`.",
        )
    return np.asarray(array, dtype, order="C")  # `ascontiguousarray` would make a scalar an array


def _cast_integers(array: Array, dtype: np.dtype[Any]) -> bool:
    """Cast whole numbers to another integer type if all values fit, for example token ids saved as uint16."""
    if array.dtype.kind not in "iu" or dtype.kind not in "iu" or not array.size:
        return False
    limits = np.iinfo(dtype)
    return bool(array.min() >= limits.min and array.max() <= limits.max)


def _shape(shape: Sequence[int], axis: int | None) -> str:
    sizes = ["rows" if i == axis else "any" if n == -1 else str(n) for i, n in enumerate(shape)]
    return f"[{', '.join(sizes)}]"


# --- reading ------------------------------------------------------------------------------------------------


def npz_source(path: Path, split: str, preprocessing: wire.Preprocessing) -> NpzSource:
    """Read the arrays of `split`; empty: the test split, or the first available one.

    Raises:
        SpecError: the file cannot be read, has no such split, or its arrays have different numbers of rows.
    """
    with open_archive(path, f"There are no data at `{path}`.") as archive:
        data, labels, found = _layout(archive.names, split)
        beside = [name for name in (labels, _NAMES) if name in archive.names]
        stored = archive.read([*data, *beside])
        arrays = {name: stored[name] for name in data}
        names = stored[_NAMES].astype(np.str_).tolist() if _NAMES in stored else []
        own = from_array(stored[labels], names) if labels else None
    rows = len(own.numbers) if own is not None else _rows(arrays)
    if rows == 0:
        raise SpecError(f"`{path.name}` holds no samples.", hint="Save at least one sample.")
    note = [f"The samples are those of the split `{found}`."] if found and not split else []
    return NpzSource(arrays=arrays, labels=own, rows=rows, notes=note, preprocessing=preprocessing)


def _rows(arrays: Mapping[str, Array]) -> int:
    return max((len(array) for array in arrays.values() if array.ndim), default=0)


def _layout(names: Sequence[str], split: str) -> tuple[list[str], str, str]:
    """Return the data arrays, the label array ("": none), and the split ("": none)."""
    there = [one for one in SPLITS if any(data.format(one) in names for data, _ in _PAIRS)]
    if split and split not in there:
        has = f"splits {', '.join(there)}" if there else f"arrays {_listed(names)} and no splits"
        raise SpecError(
            f"The data have no split `{split}`, but {has}.", hint="Choose another split, or none."
        )
    if there:
        chosen = split or there[0]
        data, labels = next(pair for pair in _PAIRS if pair[0].format(chosen) in names)
        label = labels.format(chosen)
        return [data.format(chosen)], label if label in names else "", chosen
    for data, label in _PLAIN:
        if data in names and label in names:
            return [data], label, ""
    label = next((one for one in _LABELS if one in names), "")
    rest = [one for one in names if one not in (label, _NAMES)]
    if not rest:
        raise SpecError(
            f"The .npz has no data, but {_listed(names)}.",
            hint="Save `images` and `labels`, or arrays named after the model's inputs.",
        )
    return rest, label, ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name[:80]}`" for name in list(names)[:20]) or "nothing"
