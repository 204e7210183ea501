"""Data on disk → batches of feeds with labels: `.npz`, a folder for each class, a CSV, or images alone.

Worker side: it reads files of unknown origin. numpy; Pillow is imported where images are decoded or resized.
`open_dataset` reads labels and chooses rows, `Dataset.batches` makes the arrays, in the order of the file.
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
from core.worker.session.feeds import beside_data

__all__ = ["Batch", "Dataset", "Description", "batches", "describe_dataset", "open_dataset"]

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

_PART_SEED = 0  # which rows are those for calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Feeds of as many rows as the batch has; the last batch is filled up with rows that do not count."""

    feeds: dict[str, Array]
    labels: Integers | None  # of the rows that count
    rows: int  # that count: the first ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a dataset holds, after `limit`."""

    rows: int
    class_names: list[str]  # by number; empty: classes are numbers only
    sha256: str  # of the rows as they lie on disk, and of their labels
    labelled: bool
    notes: list[str]


class Source(Protocol):
    """Rows on disk, of one layout."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def labels(self) -> Labels | None:
        """The label of each; None where the source has none."""

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers must know."""

    def content(self, rows: Integers) -> Iterator[bytes]:
        """The rows as they lie on disk, to be hashed."""

    def holds(self, one: wire.InputPlan, batch_axis: int | None) -> bool:
        """Whether there is data meant for this input."""

    def row_content(self, rows: Integers) -> Iterator[bytes]:
        """Each row by itself, so that a row of two files is the same; nothing where rows cannot be told."""

    def feeds(
        self, rows: Integers, inputs: Sequence[wire.InputPlan], batch_axes: Mapping[str, int]
    ) -> dict[str, Array]:
        """An array for each input that holds these rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The rows of a source that a plan asks for."""

    source: Source
    chosen: Integers  # numbers of the source's rows, ascending
    labels: Integers | None  # of the chosen rows
    class_names: list[str]
    notes: list[str]

    @property
    def rows(self) -> int:
        """How many were chosen; at least one."""
        return len(self.chosen)

    def sha256(self) -> str:
        """Hash the chosen rows as they lie on disk, and their labels; files are read for it."""
        digest = hashlib.sha256()
        for part in self.source.content(self.chosen):
            digest.update(part)
        if self.labels is not None:
            digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def beside(
        self,
        inputs: Sequence[wire.InputPlan],
        batch_axes: Mapping[str, int],
        values: Mapping[str, Any],
        seed: int,
    ) -> dict[str, Array]:
        """Return the arrays of inputs that the data do not hold, where they have a value or a range.

        What the data hold comes from the data, and at least one input does.

        Raises:
            SpecError: a value that does not fit its input.
        """
        lacking = [one for one in inputs if not self.source.holds(one, batch_axes.get(one["name"]))]
        found = beside_data(lacking, values, seed)
        return found if len(found) < len(inputs) else {}

    def row_hashes(self) -> npt.NDArray[np.uint64]:
        """Hash each chosen row without its label; empty where rows cannot be told apart. Files are read."""
        hashes = [
            hashlib.blake2b(one, digest_size=8).digest() for one in self.source.row_content(self.chosen)
        ]
        return np.frombuffer(b"".join(hashes), ">u8").astype(np.uint64)

    def batches(
        self, inputs: Sequence[wire.InputPlan], batch_axes: Mapping[str, int], batch_size: int
    ) -> Iterator[Batch]:
        """Yield the chosen rows in order; see `batches`."""
        for start in range(0, self.rows, batch_size):
            rows = self.chosen[start : start + batch_size]
            yield Batch(
                feeds=self.source.feeds(np.resize(rows, batch_size), inputs, batch_axes),
                labels=None if self.labels is None else self.labels[start : start + batch_size],
                rows=len(rows),
            )


def open_dataset(plan: wire.DatasetPlan) -> Dataset:
    """Read what is needed to choose the rows: names, labels, the arrays of an `.npz`.

    Where `limit` leaves rows out, each class keeps its share; which rows stay depends on the seed alone. The
    part for calibration and the rest have no row in common, whatever the seed.

    Raises:
        SpecError: no data in that layout, labels that are no classes, or a part without a row.
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


def batches(
    plan: wire.DatasetPlan,
    inputs: Sequence[wire.InputPlan],
    batch_axes: Mapping[str, int],
    batch_size: int,
) -> Iterator[Batch]:
    """Yield the rows of `plan` as feeds, `batch_size` at a time.

    Every batch has that many rows, so that a model whose batch is fixed takes them all: the last one repeats
    some to fill up, and `Batch.rows` says how many count.

    Args:
        plan: where the data are, and which rows of them.
        inputs: of the model; a size of -1 comes with the data, the one along the batch axis does not count.
        batch_axes: input to the axis that carries the batch; an input without one is fed the same each time.
        batch_size: rows at a time, 1 or more.

    Raises:
        SpecError: data that cannot be read, or do not fit an input.
    """
    return open_dataset(plan).batches(inputs, batch_axes, batch_size)


def describe_dataset(plan: wire.DatasetPlan) -> Description:
    """Say what the rows of `plan` are; files are read through for the hash.

    Raises:
        SpecError: as for `open_dataset`.
    """
    data = open_dataset(plan)
    return Description(
        rows=data.rows,
        class_names=data.class_names,
        sha256=data.sha256(),
        labelled=data.labels is not None,
        notes=data.notes,
    )


def _part(rows: int, labels: Integers | None, plan: wire.DatasetPlan) -> Integers:
    """Numbers of the rows that the plan's part has; a seed of its own, so that both parts always fit."""
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
    """How many of each class, in proportion; what rounding leaves goes to the largest remainders."""
    take, rest = np.divmod(counts * limit, counts.sum())
    late = np.argsort(-rest, kind="stable")[: limit - take.sum()]
    take[late] += 1
    return take
