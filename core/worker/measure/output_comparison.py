"""Compare the outputs of two configurations: one side is saved to a file, the other compared with it.

numpy only. Numbers are compared in float64 whatever their type, so that an FP16 copy can be compared with its
original; and in pieces, so that large outputs need no second copy. Non-finite values must be at the same
positions on both sides. `core.wire.output_check` decides whether an error is too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire.errors import WorkerError

Array = npt.NDArray[Any]

PIECE = 1 << 20  # elements converted to FP64 at once


def save(path: str, arrays: Mapping[str, Array]) -> None:
    """Write `arrays` to an `.npz`; a separate array holds their names, because any text can be a name.

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
        WorkerError: there is no such file, or `save` did not write it.
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
    """Return the error of `arrays` against `reference`; of several outputs the worst one counts."""
    difference = _difference(reference, arrays)
    if difference:
        return {
            "max_abs": None,
            "mean_abs": None,
            "max_rel": None,
            "mean_rel": None,
            "cosine": None,
            "top1_agreement": None,
            "difference": difference,
        }
    numbers = [name for name, array in reference.items() if _is_number(array)]
    found = [_distance(reference[name], arrays[name]) for name in numbers]
    void = [
        name for name, one in zip(numbers, found, strict=True) if 0 < reference[name].size == one.not_finite
    ]
    if not any(array.size for array in reference.values()):
        void = list(reference)  # a dimension of 0 leaves nothing to compare
    agreement, rows = _top1(reference, arrays)
    error: wire.OutputError = {
        "max_abs": max((one.max_abs for one in found), default=0.0),
        "mean_abs": max((one.mean_abs for one in found), default=0.0),
        "max_rel": max((one.max_rel for one in found), default=0.0),
        "mean_rel": max((one.mean_rel for one in found), default=0.0),
        "cosine": min((one.cosine for one in found if one.cosine is not None), default=None),
        "top1_agreement": agreement,
        "difference": "",
        "rows": rows,
        "not_finite": sum(one.not_finite for one in found),
    }
    if void:
        error["void"] = void
    return error


def _difference(reference: Mapping[str, Array], arrays: Mapping[str, Array]) -> str:
    """Return why the two cannot be compared by number, or an empty string."""
    if set(reference) != set(arrays):
        return f"The outputs are {_listed(arrays)} here and {_listed(reference)} in the reference."
    for name, expected in reference.items():
        reason = _one_difference(expected, arrays[name])
        if reason:
            return f"The output `{name}` {reason}"
    return ""


def _one_difference(expected: Array, array: Array) -> str:
    if expected.shape != array.shape:
        return f"has shape {list(array.shape)} here and {list(expected.shape)} in the reference."
    if _is_number(expected) != _is_number(array):
        return f"is {array.dtype} here and {expected.dtype} in the reference."
    if not _is_number(expected):
        return "" if np.array_equal(expected, array) else "holds other text than the reference."
    odd = int(np.sum(~_same_where_not_finite(expected, array)))
    return f"has {odd} values that are infinite or not a number on one side only." if odd else ""


def _same_where_not_finite(expected: Array, array: Array) -> npt.NDArray[np.bool_]:
    both_finite = np.isfinite(expected) & np.isfinite(array)
    both_nan = np.isnan(expected) & np.isnan(array)
    return np.asarray(both_finite | both_nan | (expected == array))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Distance:
    """The error of one output against its reference, over finite values."""

    max_abs: float
    mean_abs: float
    max_rel: float  # relative to the largest magnitude on either side
    mean_rel: float  # relative to the larger of the two mean magnitudes
    cosine: float | None
    not_finite: int


def _distance(expected: Array, array: Array) -> _Distance:
    """Compute the error on numbers divided by the largest one, so that no square overflows."""
    largest = max((_largest(side) for pair in _pieces(expected, array) for side in pair), default=0.0)
    furthest, count, sums = 0.0, 0, np.zeros(6)
    for left, right in _pieces(expected, array):
        apart = np.abs(left - right)
        furthest = max(furthest, float(np.max(apart, initial=0.0)))
        count += left.size
        if largest:
            sums += _sums(apart / largest, left / largest, right / largest)
    apart_sum, left_sum, right_sum, product, left_square, right_square = sums.tolist()
    magnitude, norms = max(left_sum, right_sum), math.sqrt(left_square * right_square)
    return _Distance(
        max_abs=furthest,
        mean_abs=apart_sum * largest / count if count else 0.0,
        max_rel=furthest / largest if largest else 0.0,
        mean_rel=apart_sum / magnitude if magnitude else 0.0,
        cosine=min(1.0, max(-1.0, product / norms)) if norms else None,
        not_finite=expected.size - count,
    )


def _pieces(expected: Array, array: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the finite values of both in FP64, in pieces; non-finite ones are at the same positions."""
    left, right = expected.reshape(-1), array.reshape(-1)
    for start in range(0, left.size, PIECE):
        piece = slice(start, start + PIECE)
        finite = np.isfinite(left[piece])
        yield _wide(left[piece][finite]), _wide(right[piece][finite])


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _sums(apart: Array, left: Array, right: Array) -> list[float]:
    """Return the sums of differences and of both sides' magnitudes, and their three scalar products."""
    magnitudes = [float(np.sum(np.abs(one))) for one in (apart, left, right)]
    pairs = ((left, right), (left, left), (right, right))
    return [*magnitudes, *(float(np.vdot(one, other).real) for one, other in pairs)]


def _top1(reference: Mapping[str, Array], arrays: Mapping[str, Array]) -> tuple[float | None, int]:
    """Return the share of samples with the same top class, and the number of samples.

    It is taken from the first output that can hold class scores: per sample, or per sample and position.
    """
    for name, expected in reference.items():
        if (
            expected.dtype.kind == "f"
            and expected.ndim in (2, 3)
            and expected.shape[-1] > 1
            and expected.size
        ):
            same = expected.argmax(axis=-1) == arrays[name].argmax(axis=-1)
            return float(np.mean(same)), int(same.size)
    return None, 0


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "biufc"


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _listed(names: Mapping[str, Array]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
