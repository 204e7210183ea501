"""Datasets of image files: a folder per class, a CSV of paths and labels, or images without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire import image_list
from core.wire.access import check_files
from core.wire.errors import SpecError
from core.wire.feeding import IMAGE_SUFFIXES
from core.wire.files import open_regular, refuse_irregular
from core.wire.image_list import unreadable
from core.worker.data.datasets.images import decode_image, image_input, preprocess
from core.worker.data.datasets.labels import Labels, from_text

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_SPLITS = ("test", "val", "train")
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Image files in order, one per row."""

    files: list[Path]
    labels: Labels | None
    notes: list[str]
    preprocessing: wire.Preprocessing

    @property
    def rows(self) -> int:
        """Number of files."""
        return len(self.files)

    def content(self, rows: Integers) -> Iterator[bytes]:
        """Yield the bytes of the files."""
        for row in rows:
            try:
                with open_regular(self.files[row]) as file:
                    while block := file.read(_BLOCK_BYTES):
                        yield block
            except OSError as error:
                raise unreadable(self.files[row], error) from None

    def has_input(self, one: wire.InputPlan, batch_axis: int | None) -> bool:
        """Whether images fit the input."""
        return image_input(one, batch_axis) is not None

    def row_content(self, rows: Integers) -> Iterator[bytes]:
        """Yield the bytes of each file; one file is one row."""
        return self.content(rows)

    def feeds(
        self, rows: Integers, inputs: Sequence[wire.InputPlan], batch_axes: Mapping[str, int]
    ) -> dict[str, Array]:
        """Return the images for the one input that takes images.

        Raises:
            SpecError: the model has another input, or an image cannot be brought to its size.
        """
        target = image_input(inputs[0], batch_axes.get(inputs[0]["name"])) if len(inputs) == 1 else None
        if target is None:
            wanted = ", ".join(f"`{one['name']}` {one['dtype']} {one['shape']}" for one in inputs)
            raise SpecError(
                "Images fit a model with one input, [batch, channels, height, width] or [batch, height, "
                f"width, channels] with 1, 3 or 4 channels, but it has {wanted or 'none'}.",
                hint="Save the data as an .npz with an array for each input.",
            )
        unique, places = np.unique(rows, return_inverse=True)  # a padded batch repeats rows
        images = [decode_image(self.files[row]) for row in unique]
        array = preprocess(images, target, self.preprocessing)
        return {target.name: array[places] if len(unique) < len(rows) else array}


# --- folders ------------------------------------------------------------------------------------------------


def folder_source(path: Path, split: str, preprocessing: wire.Preprocessing) -> FileSource:
    """Read one folder of images per class, optionally below folders `train`, `val` and `test`.

    Raises:
        SpecError: no such folder or split, or no image in any class.
    """
    root, notes = _split_folder(path, split)
    classes = {folder.name: _images(folder) for folder in _folders(root)}
    if not any(classes.values()):
        raise SpecError(
            f"There are no images in the folders of `{root}`.",
            hint="Put the images of each class into a folder that has its name.",
        )
    empty = [name for name, files in classes.items() if not files]
    if empty:
        notes.append(f"There are no images in {', '.join(f'`{name}`' for name in empty[:5])}.")
    files = [file for found in classes.values() for file in found]
    check_files(files)
    labels = from_text([name for name, found in classes.items() for _ in found], list(classes))
    return FileSource(files=files, labels=labels, notes=notes, preprocessing=preprocessing)


def _split_folder(path: Path, split: str) -> tuple[Path, list[str]]:
    names = [folder.name for folder in _folders(path)]
    there = [one for one in _SPLITS if one in names]
    if split and split not in there:
        raise SpecError(
            f"`{path}` has no folder `{split}`, but {', '.join(names[:10]) or 'none'}.",
            hint="Choose another split, or none.",
        )
    if split:
        return path / split, []
    if names and len(there) == len(names):
        return path / there[0], [f"The samples are those of the split `{there[0]}`."]
    return path, []


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("."))
    except OSError as error:
        raise unreadable(path, error) from None


def _images(folder: Path) -> list[Path]:
    return sorted(
        file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and not file.is_dir()
    )


def image_source(path: Path, preprocessing: wire.Preprocessing) -> FileSource:
    """Read one image, or the images of a folder, without labels.

    Raises:
        SpecError: there are none.
    """
    try:
        refuse_irregular(path)
    except OSError as error:
        raise unreadable(path, error) from None
    files = [path] if path.is_file() else _images(path) if path.is_dir() else []
    if not files:
        raise SpecError(f"There are no images at `{path}`.", hint="Give an image, or a folder of images.")
    check_files(files)
    return FileSource(files=files, labels=None, notes=[], preprocessing=preprocessing)


# --- CSV ----------------------------------------------------------------------------------------------------


def csv_source(path: Path, preprocessing: wire.Preprocessing) -> FileSource:
    """Read a CSV of paths (relative to the CSV) and labels; a header line is optional.

    Raises:
        SpecError: the file is not such a CSV, or images in it are missing; for a dashboard visitor also an
            image outside the folder of the CSV.
    """
    lines = [*image_list.lines(path)]
    if not lines:
        raise SpecError(f"`{path.name}` is empty.", hint="Write a path and a label in each line.")
    columns = image_list.header(lines[0][1])
    if columns is not None:
        lines = lines[1:]
    at, label_at = columns or (0, 1 if len(lines[0][1]) > 1 else None)
    files = [path.parent / _cell(path, line, at) for line in lines]
    check_files(files, within=path.parent)  # before the existence of a file is reported
    _check_files(path, lines, files)
    labels = None if label_at is None else from_text([_cell(path, line, label_at) for line in lines])
    return FileSource(files=files, labels=labels, notes=[], preprocessing=preprocessing)


def _cell(path: Path, line: image_list.Line, column: int) -> str:
    number, cells = line
    text = cells[column].strip() if column < len(cells) else ""
    if not text or "\0" in text:
        what = "label" if column else "path"
        raise SpecError(
            f"Line {number} of `{path.name}` has no {what}.", hint="Write a path and a label in each line."
        )
    return text


def _check_files(path: Path, lines: Sequence[image_list.Line], files: Sequence[Path]) -> None:
    if not files:
        raise SpecError(f"`{path.name}` names no image.", hint="Write a path and a label in each line.")
    missing = [(line[0], file) for line, file in zip(lines, files, strict=True) if not _is_file(file)]
    if missing:
        number, file = missing[0]
        raise SpecError(
            f"{len(missing)} of {len(files)} images of `{path.name}` are missing, the first in line {number}:"
            f" `{file}`.",
            hint="Write the paths as they are seen from the folder of the CSV.",
        )


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # longer than the longest allowed path
        return False
