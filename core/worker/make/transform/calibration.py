"""Find activation ranges for static INT8: run the float model on dataset rows or random inputs.

`calibrate` writes a table that ONNX Runtime's quantizer reads, so that one calibration serves any number of
quantizations. Rows run in small batches, and only ranges or histograms are kept, so memory does not grow
with the number of rows. Worker side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from onnxruntime.quantization.calibrate import (
    CalibrationMethod,
    TensorData,
    TensorsData,
    create_calibrator,
    save_tensors_data,
)

from core.wire import DatasetPlan, FeedPlan, InputPlan, Progress, StepCheck
from core.wire.errors import ModelError, SpecError
from core.worker.data.datasets import Dataset, open_dataset
from core.worker.make.transform.distance import Array
from core.worker.models import inspect_model
from core.worker.session.feeds import make_feeds, sample_count

Method = Literal["MinMax", "Entropy", "Percentile"]

# Histograms need every value of a batch at once; MinMax needs only two numbers per tensor.
_ROWS_AT_ONCE: dict[Method, int] = {"MinMax": 16, "Entropy": 4, "Percentile": 4}
_FEW_ROWS = 32  # fewer rarely show the full range of values
_RANDOM = (
    "The ranges come from random inputs. They fit noise, not your data: on real inputs the "
    "outputs may be far worse than the error shown here. Calibrate on a dataset, or on an "
    "`.npz` of real inputs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows for calibration."""

    dataset: DatasetPlan | None
    feeds: Sequence[FeedPlan]  # used without a dataset; random inputs continue with further seeds
    wanted: int

    @property
    def random(self) -> bool:
        """Whether calibration uses only random numbers."""
        return self.dataset is None and self.feeds[0]["source"] == "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """Method for finding ranges from values."""

    method: Method
    percentile: float  # share of magnitudes within a range; Percentile only
    symmetric: bool  # ranges are symmetric around zero
    op_types: Sequence[str]  # inputs and outputs of these operators get ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """Facts about a calibration, besides the table."""

    rows: int
    checks: list[StepCheck]
    hashes: str = ""  # of the rows of a dataset, 16 digits each


class _OneBatch:
    """A `CalibrationDataReader` with a single batch; calibrators recognise it by its method."""

    def __init__(self, feeds: Mapping[str, Array]) -> None:
        self._pending: list[Mapping[str, Array]] = [feeds]

    def get_next(self) -> Mapping[str, Array] | None:
        """Return the batch, once."""
        return self._pending.pop() if self._pending else None


def calibrate(
    model: Path, table: Path, settings: CalibrationSettings, rows: Rows, *, large: bool, progress: Progress
) -> CalibrationResult:
    """Find the range of every tensor to be quantized, and write the ranges to `table`.

    Args:
        model: the float model; writes a file next to it, which stays.
        table: the file to write, in ONNX Runtime's format of a calibration cache.
        settings: method for finding ranges.
        rows: the calibration rows.
        large: the model does not fit into one file.
        progress: receives each batch.

    Raises:
        SpecError: the data do not fit the model, or have no row.
        ModelError: the model computes values that are not finite.
    """
    options: dict[str, Any] = {"symmetric": True} if settings.symmetric else {}
    if settings.method == "Percentile":
        options["percentile"] = settings.percentile
    calibrator = create_calibrator(
        model,
        list(settings.op_types),
        augmented_model_path=str(model.with_name("calibrated.onnx")),
        calibrate_method=CalibrationMethod[settings.method],
        use_external_data_format=large,
        extra_options=options,
    )
    at_once = _ROWS_AT_ONCE[settings.method]
    done = 0
    for feeds, count in _batches(model, rows, at_once, calibrator.infer_session.get_inputs()):
        progress("calibrate", done, max(rows.wanted, done), f"{done} samples")
        calibrator.collect_data(_OneBatch(feeds))
        done += count
    if not done:
        raise SpecError(
            "The calibration data hold no sample.", hint="Choose a file, folder or split that holds samples."
        )
    _save(calibrator.compute_data(), table)
    hashes = "" if rows.dataset is None else _opened(rows.dataset, rows).row_hashes()
    return CalibrationResult(
        rows=done, checks=_checks(rows, done), hashes="".join(f"{one:016x}" for one in hashes)
    )


def _batches(
    model: Path, rows: Rows, at_once: int, session_inputs: Sequence[Any]
) -> Iterator[tuple[Mapping[str, Array], int]]:
    """Yield inputs and their number of rows, until `rows.wanted` rows or the end of the data."""
    done = 0
    for feeds, count in _all_batches(model, rows, at_once, session_inputs):
        if done >= rows.wanted:
            return
        yield feeds, count
        done += count


def _all_batches(
    model: Path, rows: Rows, at_once: int, session_inputs: Sequence[Any]
) -> Iterator[tuple[Mapping[str, Array], int]]:
    if rows.dataset is not None:
        yield from _dataset_batches(model, rows.dataset, rows, at_once)
        return
    for plan in _seeded(rows.feeds) if rows.random else rows.feeds:
        arrays = make_feeds(plan, session_inputs).arrays
        yield arrays, _count(arrays, plan["batch_axes"])


def _dataset_batches(
    model: Path, dataset: DatasetPlan, rows: Rows, at_once: int
) -> Iterator[tuple[Mapping[str, Array], int]]:
    info = inspect_model(str(model))
    axes = info["batch_axes"]
    size = info["fixed_batch"] or min(at_once, rows.wanted)
    plan = rows.feeds[0]
    inputs = [_resized(one, axes, size) for one in plan["inputs"]]
    data = _opened(dataset, rows)
    generated_inputs = data.generated_inputs(inputs, axes, plan["values"], plan["seed"])
    for batch in data.batches([one for one in inputs if one["name"] not in generated_inputs], axes, size):
        yield {**batch.feeds, **generated_inputs}, batch.rows


def _opened(dataset: DatasetPlan, rows: Rows) -> Dataset:
    """Open the calibration rows of a dataset."""
    return open_dataset({**dataset, "limit": min(rows.wanted, dataset["limit"] or rows.wanted)})


def _resized(one: InputPlan, axes: Mapping[str, int], size: int) -> InputPlan:
    """Return the same input with `size` rows."""
    if one["name"] not in axes:
        return one
    shape = list(one["shape"])
    shape[axes[one["name"]]] = size
    return {**one, "shape": shape}


def _seeded(feeds: Sequence[FeedPlan]) -> Iterator[FeedPlan]:
    """Yield the random inputs, then the first of them with new seeds, without end."""
    yield from feeds
    seed = max(plan["seed"] for plan in feeds)
    while True:
        seed += 1
        yield {**feeds[0], "seed": seed}


def _count(arrays: Mapping[str, Array], axes: Mapping[str, int]) -> int:
    return sample_count({name: array.shape for name, array in arrays.items()}, axes)


def _save(found: TensorsData, table: Path) -> None:
    """Save only the ranges: the histograms are many times as large."""
    ranges = {name: one.range_value for name, one in found.items()}
    odd = sorted(name for name, pair in ranges.items() if not all(np.isfinite(end).all() for end in pair))
    if odd:
        raise ModelError(
            f"On the calibration data the model computes values that are infinite or not a number "
            f"({len(odd)} tensors, `{odd[0]}` among them), which have no range.",
            hint="Give data that the float model can treat, or exclude the nodes that compute them.",
        )
    plain = {
        name: TensorData(lowest=_float(low), highest=_float(high)) for name, (low, high) in ranges.items()
    }
    save_tensors_data(TensorsData(found.calibration_method, plain), table)


def _float(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.dtype == np.float16 else array.astype(np.float32)


def _checks(rows: Rows, done: int) -> list[StepCheck]:
    if rows.random:
        return [{"name": "random_calibration", "level": "warning", "text": f"{_RANDOM}.", "remedy": {}}]
    if done >= _FEW_ROWS:
        return []
    short = done < rows.wanted
    few = "One sample calibrates" if done == 1 else f"Only {done} samples calibrate"
    text = f"{few} the ranges: larger values of other samples will be cut off. " + (
        "The data hold no more; add samples." if short else f"Calibrate on {_FEW_ROWS} samples or more."
    )
    remedy = {} if short else {"calibration_rows": 4 * _FEW_ROWS}
    return [{"name": "small_calibration", "level": "warning", "text": text, "remedy": remedy}]
