"""Whether two contestants compute the same: the outputs of one kept in a file, those of another put beside.

numpy only. Numbers are compared in float64, whatever type they came in, so that an FP16 copy can be held
against its original. What is not finite must be so on both sides in the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.errors import WorkerError

Array = npt.NDArray[Any]


def save(path: str, arrays: Mapping[str, Array]) -> None:
    """Write `arrays` to an `.npz`; their names stand in an array of their own, because any text is a name.

    Raises:
        WorkerError: the file cannot be written.
    """
    try:
        with Path(path).open("wb") as file:
            np.savez(file, np.array(list(arrays), dtype=np.str_), *arrays.values())
    except OSError as error:
        raise WorkerError(
            f"The outputs cannot be written to `{path}`: {error.strerror}.", hint="Free some disk space."
        ) from error


def load(path: str) -> dict[str, Array]:
    """Read what `save` wrote.

    Raises:
        WorkerError: there is no such file, or it is another one.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names, *arrays = (archive[f"arr_{index}"] for index in range(len(archive.files)))
            return dict(zip(names.tolist(), arrays, strict=True))
    except (OSError, ValueError, KeyError) as error:
        raise WorkerError(
            f"`{path}` holds no outputs to compare with: {error}.", hint="Start the comparison again."
        ) from error


def compare(reference: Mapping[str, Array], arrays: Mapping[str, Array]) -> wire.OutputError:
    """Return how far `arrays` are from `reference`; the largest difference over all outputs counts."""
    difference = _difference(reference, arrays)
    if difference:
        return {"max_abs": None, "max_rel": None, "top1_agreement": None, "difference": difference}
    errors = [_error(reference[name], arrays[name]) for name in reference if _is_number(reference[name])]
    return {
        "max_abs": max((absolute for absolute, _ in errors), default=0.0),
        "max_rel": max((relative for _, relative in errors), default=0.0),
        "top1_agreement": _top1(reference, arrays),
        "difference": "",
    }


def _difference(reference: Mapping[str, Array], arrays: Mapping[str, Array]) -> str:
    """Why the two cannot be compared number by number, or an empty string."""
    if set(reference) != set(arrays):
        return f"The outputs are {_listed(arrays)} here and {_listed(reference)} there."
    for name, expected in reference.items():
        reason = _one_difference(expected, arrays[name])
        if reason:
            return f"The output `{name}` {reason}"
    return ""


def _one_difference(expected: Array, array: Array) -> str:
    if expected.shape != array.shape:
        return f"has shape {list(array.shape)} here and {list(expected.shape)} there."
    if _is_number(expected) != _is_number(array):
        return f"is {array.dtype} here and {expected.dtype} there."
    if not _is_number(expected):
        return "" if np.array_equal(expected, array) else "holds other text."
    odd = int(np.sum(~_same_where_not_finite(expected, array)))
    return f"has {odd} values that are infinite or not a number on one side only." if odd else ""


def _same_where_not_finite(expected: Array, array: Array) -> npt.NDArray[np.bool_]:
    both_finite = np.isfinite(expected) & np.isfinite(array)
    both_nan = np.isnan(expected) & np.isnan(array)
    return np.asarray(both_finite | both_nan | (expected == array))


def _error(expected: Array, array: Array) -> tuple[float, float]:
    """Largest difference, and the same over the largest magnitude that either side computed."""
    finite = np.isfinite(expected)
    left, right = _wide(expected[finite]), _wide(array[finite])
    absolute = float(np.max(np.abs(left - right), initial=0.0))
    largest = float(max(np.max(np.abs(left), initial=0.0), np.max(np.abs(right), initial=0.0)))
    return absolute, absolute / largest if largest else 0.0


def _top1(reference: Mapping[str, Array], arrays: Mapping[str, Array]) -> float | None:
    """Share of rows in which the same class comes first, in the first output that could be one of classes."""
    for name, expected in reference.items():
        if expected.dtype.kind == "f" and expected.ndim >= 2 and expected.shape[-1] > 1 and expected.size:
            return float(np.mean(expected.argmax(axis=-1) == arrays[name].argmax(axis=-1)))
    return None


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "biufc"


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _listed(names: Mapping[str, Array]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
