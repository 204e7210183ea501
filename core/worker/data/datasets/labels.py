"""Convert stored labels to class numbers. Pure: numpy arrays and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.wire.errors import SpecError

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_SHOWN = 4  # number of classes that a note lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The class of each row, as a number from 0."""

    numbers: Integers
    names: list[str]  # of the classes, by number; empty: classes have no names
    notes: list[str]


def from_text(texts: Sequence[str], known: Sequence[str] | None = None) -> Labels:
    """Number the classes of text labels.

    Whole numbers are used as they are. Other names are numbered alphabetically, like torchvision's
    `ImageFolder`.

    Args:
        texts: one per row.
        known: all classes, including those without rows; None: the classes of the rows.
    """
    classes = sorted(set(texts) if known is None else set(known))
    if all(_is_number(one) for one in classes):
        note = "The classes are numbers, which ORTune takes as the model's class numbers."
        return Labels(numbers=np.array([int(one) for one in texts], np.int64), names=[], notes=[note])
    number = {name: index for index, name in enumerate(classes)}
    shown = ", ".join(f"`{name}` is {index}" for name, index in list(number.items())[:_SHOWN])
    more = ", and so on" if len(classes) > _SHOWN else ""
    return Labels(
        numbers=np.array([number[one] for one in texts], np.int64),
        names=classes,
        notes=[f"The classes are numbered in the order of the alphabet: {shown}{more}."],
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def from_array(array: Array, names: Sequence[str] = ()) -> Labels:
    """Convert labels of an `.npz`: whole numbers [rows] or [rows, 1], one-hot rows, or text.

    Raises:
        SpecError: several labels per row, fractions, or values that are not numbers.
    """
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.dtype.kind in "biuf" and len(array):
        array = _from_one_hot(array)
    if array.ndim != 1:
        raise SpecError(
            f"Labels must have shape [samples] or [samples, 1], but got {list(array.shape)}.",
            hint="Give one class for each sample.",
        )
    if array.dtype.kind in "US":
        return from_text([str(one) for one in array.astype(np.str_)])
    return Labels(numbers=_whole(array), names=list(names), notes=[])


def _from_one_hot(array: Array) -> Array:
    ones = (array == 1).sum(axis=1)
    if not (((array == 0) | (array == 1)).all() and (ones == 1).all()):
        raise SpecError(
            f"Labels of shape {list(array.shape)} give some samples several classes, or none.",
            hint="Give each sample one class; ORTune does not support several labels per sample.",
        )
    return np.asarray(array.argmax(axis=1))


def _whole(array: Array) -> Integers:
    if array.dtype.kind in "biu" and (array.dtype != np.uint64 or not array.size or array.max() < 2**63):
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            numbers = array.astype(np.int64)
        if (numbers == array).all():
            return numbers
        odd = array[numbers != array][0]
        raise SpecError(f"A label is a class, but got {odd}.", hint="Give whole numbers from 0.")
    raise SpecError(f"Labels are whole numbers or text, but got {array.dtype}.", hint="Save plain arrays.")


def check_range(labels: Integers, classes: int) -> None:
    """Refuse labels outside the model's classes.

    Raises:
        SpecError: a label is negative or too large; the message names its row.
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if not len(wrong):
        return
    row, label = int(wrong[0]), int(labels[wrong[0]])
    from_one = labels.min() == 1 and labels.max() == classes
    raise SpecError(
        f"The output has classes 0 to {classes - 1}, but sample {row} has the label {label} "
        f"({len(wrong)} of {len(labels)} samples are out of range).",
        hint="Subtract 1: these labels count from 1."
        if from_one
        else "Choose the model that these labels belong to, or correct the labels.",
    )
