"""The job `accuracy`: run a labelled dataset through one session and write the scores of every row to a file.

The parent computes accuracy from that file. This module computes no metric.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire import Progress
from core.wire.engines import ENGINES
from core.wire.errors import ModelError, SpecError, WorkerError, nearest
from core.worker.data.datasets import Dataset, open_dataset
from core.worker.data.datasets.labels import check_range
from core.worker.measure.inference import translate_errors
from core.worker.session import BuiltSession, build_session

Array = npt.NDArray[Any]

PROGRESS_S = 0.5
_SCORE_TYPES = ("tensor(float)", "tensor(float16)", "tensor(double)")
_ROUNDING = 0.02  # error that half precision and quantization add to a probability
_SHOWN = 5  # number of classes that a note lists


def accuracy(plan: wire.AccuracyPlan, progress: Progress) -> wire.AccuracyReply:
    """Run every row of the dataset and write its scores.

    The last batch is padded with rows whose scores are dropped.

    Args:
        plan: the session, the data, and the output file: an `.npz` with `scores` [rows, classes] in the
            output's type (one column for a model with a single output number), `labels` int64 [rows], and the
            hashes of the `rows`.
        progress: receives the stages "load" and "accuracy".

    Raises:
        SpecError: no labels, labels outside the output's classes, or data that do not fit the inputs.
        ModelError: no output has one score per class, or a run fails.
        ProviderError: a provider did not load.
        WorkerError: not enough memory, or the scores cannot be written.
    """
    began = time.monotonic()
    progress("load", 0, 1)
    data = open_dataset(plan["dataset"])
    labels = data.labels
    if labels is None:
        raise SpecError(
            "The data have no labels, so the accuracy cannot be measured.",
            hint="Give an .npz with labels, a folder for each class, or a CSV of path and label.",
        )
    batch_size = _batch_size(plan)
    session, built = _session(plan)
    found = _run(session, plan, data, batch_size, progress)
    scores = found.scores
    classes = max(2, scores.shape[1])
    check_range(labels, classes)
    _write(plan["scores_path"], scores, labels, data.row_hashes())
    kind, doubt = _kind(scores)
    finite = np.asarray(np.isfinite(scores).all(axis=1))
    return {
        "rows": data.rows,
        "classes": classes,
        "class_names": _names(data.class_names, classes),
        "output": found.output,
        "scores": kind,
        "scores_path": plan["scores_path"],
        "dataset_sha256": data.sha256(),
        "batch_size": batch_size,
        "not_finite": int(np.count_nonzero(~finite)),
        "seconds": time.monotonic() - began,
        "effective_providers": built.effective,
        "notes": [
            *built.notes,
            *([f"Ran on another provider: {built.fallback_reason}"] if built.fallback else []),
            *data.notes,
            *_notes(data, classes, finite),
            *doubt,
        ],
    }


def _session(plan: wire.AccuracyPlan) -> tuple[_Session, BuiltSession | Any]:
    """Return what runs arrays by name, and how it differs from the request."""
    if "openvino" in plan:
        module = importlib.import_module(ENGINES[plan["engine"]].module)  # only of an engine that runs
        other = module.rows_session(plan["model_path"], plan["openvino"], plan["inputs"])
        return other, other.built
    built = build_session(plan["model_path"], plan["session"])
    return _OrtSession(built), built


def _batch_size(plan: wire.AccuracyPlan) -> int:
    """Return the batch size: the size along the batch axis, which all inputs share."""
    for one in plan["inputs"]:
        axis = plan["batch_axes"].get(one["name"])
        if axis is not None and axis < len(one["shape"]):
            return one["shape"][axis]
    raise ModelError(
        "No input of the model has a batch dimension, so there are no samples to label.",
        hint="Export the model with a batch dimension.",
    )


# --- running ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """The scores and labels collected so far."""

    scores: Array  # [rows, classes]
    output: str


class _Session(Protocol):
    """A model that runs arrays by name."""

    def get_outputs(self) -> Sequence[Any]:
        """Describe the outputs: name and type, such as "tensor(float)"."""

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs called `names`."""


@dataclass(frozen=True, slots=True)
class _OrtSession:
    """A session of ONNX Runtime."""

    built: BuiltSession

    def get_outputs(self) -> Sequence[Any]:
        outputs: Sequence[Any] = self.built.session.get_outputs()
        return outputs

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        with translate_errors():
            values: list[Array] = self.built.session.run(names, feeds, self.built.run_options)
        return values


def _run(
    session: _Session, plan: wire.AccuracyPlan, data: Dataset, batch_size: int, progress: Progress
) -> _Scores:
    names = _candidates(session.get_outputs(), plan["output"])
    kept: Array | None = None
    output, done, told = "", 0, float("-inf")
    generated_inputs = data.generated_inputs(plan["inputs"], plan["batch_axes"], plan["values"], plan["seed"])
    from_data = [one for one in plan["inputs"] if one["name"] not in generated_inputs]
    for batch in data.batches(from_data, plan["batch_axes"], batch_size):
        values = session.run(names, {**batch.feeds, **generated_inputs})
        if kept is None:
            output, first = _with_classes(dict(zip(names, values, strict=True)), batch_size)
            names = [output]
            kept = np.empty((data.rows, first.shape[1]), first.dtype)
            values = [first]
        scores = _as_rows(values[0], batch_size)
        if scores is None or scores.shape[1] != kept.shape[1]:
            raise ModelError(
                f"The output `{output}` changes its shape from batch to batch: {list(values[0].shape)}.",
                hint="Choose an output with one score for each class.",
            )
        kept[done : done + batch.rows] = scores[: batch.rows]
        done += batch.rows
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            progress("accuracy", done, data.rows)
    assert kept is not None, "a dataset has one row at least"
    progress("accuracy", done, data.rows)
    return _Scores(scores=kept, output=output)


def _candidates(outputs: Sequence[Any], requested: str) -> list[str]:
    """Return the names of outputs whose type can hold scores; only the requested output, if one is named."""
    types = {one.name: one.type for one in outputs}
    if requested and requested not in types:
        raise SpecError(
            f"The model has no output `{requested[:80]}`.{nearest(requested, types)}",
            hint=f"Choose among {', '.join(f'`{name}`' for name in types)}.",
        )
    names = [requested] if requested else list(types)
    found = [name for name in names if types[name] in _SCORE_TYPES]
    if not found:
        raise _no_classifier([f"`{name}` {types[name]}" for name in names])
    return found


def _with_classes(values: dict[str, Array], rows: int) -> tuple[str, Array]:
    """Return the one output that has a score for each class of each row."""
    found = {name: table for name, value in values.items() if (table := _as_rows(value, rows)) is not None}
    if not found:
        raise _no_classifier([f"`{name}` {list(value.shape)}" for name, value in values.items()])
    if len(found) > 1:
        listed = ", ".join(f"`{name}` {list(values[name].shape)}" for name in found)
        raise SpecError(
            f"More than one output may hold the scores of the classes: {listed}.",
            hint="Name the one that does, for example with `--output NAME`.",
        )
    return next(iter(found.items()))


def _as_rows(value: Array, rows: int) -> Array | None:
    """Reshape [rows, classes, 1, 1] to [rows, classes]; None for other shapes or another number of rows."""
    if value.ndim == 0 or value.shape[0] != rows or not value.size:
        return None
    wide = [size for size in value.shape[1:] if size != 1]
    return value.reshape(rows, -1) if len(wide) <= 1 else None


def _no_classifier(outputs: Sequence[str]) -> ModelError:
    return ModelError(
        "This model is no classifier: no output holds one score per class and sample, but "
        f"{', '.join(outputs)}.",
        hint="Choose a model with a float output [samples, classes], or compare the outputs.",
    )


def _write(path: str, scores: Array, labels: Array, rows: Array) -> None:
    try:
        with Path(path).open("wb") as file:
            np.savez(file, scores=scores, labels=labels, rows=rows)
    except OSError as error:
        Path(path).unlink(missing_ok=True)
        raise WorkerError(
            f"The scores cannot be written to `{path}`: {error.strerror or error}.",
            hint="Free some disk space.",
        ) from None


# --- score type ---------------------------------------------------------------------------------------------


def _kind(scores: Array) -> tuple[Literal["logits", "probabilities"], list[str]]:
    """Classify the scores: values from 0 to 1 are probabilities; add a note if rows do not sum to 1."""
    finite = scores[np.isfinite(scores).all(axis=1)].astype(np.float64)
    if not len(finite):
        return "logits", []
    if finite.min() < -_ROUNDING or finite.max() > 1.0 + _ROUNDING:
        return "logits", []
    if scores.shape[1] == 1 or np.allclose(finite.sum(axis=1), 1.0, atol=_ROUNDING * 2):
        return "probabilities", []
    return "probabilities", [
        "All scores lie between 0 and 1, but those of a sample do not add up to 1: each "
        "counts as the probability of its class by itself."
    ]


def _names(known: Sequence[str], classes: int) -> list[str]:
    return [*known[:classes], *(str(number) for number in range(len(known), classes))]


def _notes(data: Dataset, classes: int, finite: npt.NDArray[np.bool_]) -> list[str]:
    notes = []
    if data.class_names and len(data.class_names) != classes:
        notes.append(
            f"The data name {len(data.class_names)} classes, but the output has {classes}: it is unknown "
            "whether the first name is the model's class 0."
        )
    assert data.labels is not None
    missing = sorted(set(range(classes)) - set(data.labels.tolist()))
    if missing:
        names = _names(data.class_names, classes)
        shown = ", ".join(f"`{names[one]}`" for one in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        notes.append(f"No sample is of class {shown}{more}: its sensitivity is unknown.")
    if not finite.all():
        odd = int(np.count_nonzero(~finite))
        notes.append(
            f"The scores of {odd} samples hold NaN or infinity, first sample {int(np.argmin(finite))}: they "
            "count as wrong."
        )
    return notes
