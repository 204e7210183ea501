"""Read datasets into batches of inputs with labels: `.npz`, a folder per class, a CSV, or unlabelled images.

Worker side: the files are untrusted. Needs numpy; imports Pillow only to decode or resize images.
`open_dataset` reads labels and chooses rows; `Dataset.batches` makes the arrays, in file order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire.errors import SpecError
from core.worker.data.datasets.files import csv_source, folder_source, image_source
from core.worker.data.datasets.labels import Labels
from core.worker.data.datasets.npz import npz_source
from core.worker.session.feeds import generate_inputs

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_PART_SEED = 0  # seed that splits calibration rows from the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Inputs for one batch; the last batch is padded with rows that are not counted."""

    feeds: dict[str, Array]
    labels: Integers | None  # of the counted rows
    rows: int  # number of counted rows, which come first


class Source(Protocol):
    """Stored rows in one file layout."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def labels(self) -> Labels | None:
        """Label of each row; None if the source has none."""

    @property
    def notes(self) -> list[str]:
        """Notes for the reader of the results."""

    def content(self, rows: Integers) -> Iterator[bytes]:
        """Yield the stored bytes of the rows, for hashing."""

    def has_input(self, one: wire.InputPlan, batch_axis: int | None) -> bool:
        """Whether the source has data for this input."""

    def row_content(self, rows: Integers) -> Iterator[bytes]:
        """Yield the bytes of each row, equal for equal rows of two files; none if rows have no identity."""

    def feeds(
        self, rows: Integers, inputs: Sequence[wire.InputPlan], batch_axes: Mapping[str, int]
    ) -> dict[str, Array]:
        """Return an array for each input that holds these rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The rows of a source that a plan selects."""

    source: Source
    chosen: Integers  # row numbers in the source, ascending
    labels: Integers | None  # of the chosen rows
    class_names: list[str]
    notes: list[str]

    @property
    def rows(self) -> int:
        """Number of selected rows; at least one."""
        return len(self.chosen)

    def sha256(self) -> str:
        """Hash the selected rows as stored, and their labels; reads the files."""
        digest = hashlib.sha256()
        for part in self.source.content(self.chosen):
            digest.update(part)
        if self.labels is not None:
            digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def generated_inputs(
        self,
        inputs: Sequence[wire.InputPlan],
        batch_axes: Mapping[str, int],
        values: Mapping[str, Any],
        seed: int,
    ) -> dict[str, Array]:
        """Return arrays for inputs outside the dataset that have a fixed value or a range.

        At least one input comes from the dataset.

        Raises:
            SpecError: a value does not fit its input.
        """
        lacking = [one for one in inputs if not self.source.has_input(one, batch_axes.get(one["name"]))]
        found = generate_inputs(lacking, values, seed)
        return found if len(found) < len(inputs) else {}

    def row_hashes(self) -> npt.NDArray[np.uint64]:
        """Hash each selected row without its label; empty if rows cannot be told apart. Reads the files."""
        hashes = [
            hashlib.blake2b(one, digest_size=8).digest() for one in self.source.row_content(self.chosen)
        ]
        return np.frombuffer(b"".join(hashes), ">u8").astype(np.uint64)

    def batches(
        self, inputs: Sequence[wire.InputPlan], batch_axes: Mapping[str, int], batch_size: int
    ) -> Iterator[Batch]:
        """Yield the selected rows in order, `batch_size` at a time.

        Every batch has exactly `batch_size` rows, as models with a fixed batch require. The last one is
        padded with repeated rows; `Batch.rows` is the number that counts.

        Args:
            inputs: of the model; a size of -1 is taken from the data, and that of the batch axis is ignored.
            batch_axes: input to its batch axis; an input without one gets the same value in every batch.
            batch_size: rows per batch, 1 or more.

        Raises:
            SpecError: the data do not fit an input.
        """
        for start in range(0, self.rows, batch_size):
            rows = self.chosen[start : start + batch_size]
            yield Batch(
                feeds=self.source.feeds(np.resize(rows, batch_size), inputs, batch_axes),
                labels=None if self.labels is None else self.labels[start : start + batch_size],
                rows=len(rows),
            )


def open_dataset(plan: wire.DatasetPlan) -> Dataset:
    """Read what row selection needs: names, labels, and the arrays of an `.npz`.

    `limit` selects rows in proportion to class size; which rows depends only on the seed. The calibration
    part and the rest never share a row, whatever the seed.

    Raises:
        SpecError: no data in that layout, invalid class labels, or a part without rows.
    """
    path, split = Path(plan["path"]), plan["split"]
    source: Source
    match plan["kind"]:
        case "npz":
            source = npz_source(path, split, plan["preprocessing"])
        case "folders":
            source = folder_source(path, split, plan["preprocessing"])
        case "csv":
            source = csv_source(path, plan["preprocessing"])
        case "images":
            source = image_source(path, plan["preprocessing"])
    numbers = source.labels.numbers if source.labels is not None else None
    part = _part(source.rows, numbers, plan)
    chosen = part[_chosen(len(part), None if numbers is None else numbers[part], plan["limit"], plan["seed"])]
    return Dataset(
        source=source,
        chosen=chosen,
        labels=None if numbers is None else numbers[chosen],
        class_names=[] if source.labels is None else source.labels.names,
        notes=[*source.notes, *([] if source.labels is None else source.labels.notes)],
    )


def _part(rows: int, labels: Integers | None, plan: wire.DatasetPlan) -> Integers:
    """Return the row numbers of the plan's part; a fixed seed keeps the two parts disjoint."""
    every, part = np.arange(rows), plan.get("part")
    if part is None:
        return every
    own = _chosen(rows, labels, round(plan["share"] * rows), _PART_SEED)
    found = own if part == "calibration" else np.setdiff1d(every, own)
    if not len(found):
        raise SpecError(
            f"A share of {plan['share']:.3g} of {rows} samples leaves none for "
            f"{'calibration' if part == 'calibration' else 'the rest'}.",
            hint="Give another share, or more data.",
        )
    return found


def _chosen(rows: int, labels: Integers | None, limit: int | None, seed: int) -> Integers:
    if limit is None or limit >= rows:
        return np.arange(rows)
    generator = np.random.default_rng(seed)
    if labels is None:
        return np.sort(generator.choice(rows, limit, replace=False))
    classes, counts = np.unique(labels, return_counts=True)
    parts = [
        generator.choice(np.flatnonzero(labels == number), take, replace=False)
        for number, take in zip(classes, _shares(counts, limit), strict=True)
    ]
    return np.sort(np.concatenate(parts))


def _shares(counts: Integers, limit: int) -> Integers:
    """Return the number of rows per class, in proportion; the largest remainders are rounded up."""
    take, rest = np.divmod(counts * limit, counts.sum())
    late = np.argsort(-rest, kind="stable")[: limit - take.sum()]
    take[late] += 1
    return take
