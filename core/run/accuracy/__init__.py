"""Measures, stores and compares accuracy on a labelled dataset, from a spec to numbers with intervals.

A worker runs the rows and writes the scores of every class. All metrics are computed from these scores
(`accuracy_metrics`), so another threshold or class needs no new run. This package has no queue; jobs of the
scheduler call it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from core import wire
from core.process import runtimes
from core.process.engine_packages import installed
from core.process.job_worker import Run
from core.run.accuracy.accuracy_metrics import (
    DELTA,
    calibration_note,
    calibration_rows,
    class_number,
    compare,
    curve,
    decision,
    roc,
    scores_of,
    summary,
)
from core.run.plan import feed_plan, openvino_plan, session_plan
from core.run.preparation import Resolved, describe, inspect_model, prepare_trial, resolve_trial
from core.run.runtime_check import check_runtime, require_package
from core.run.variants import variant_of
from core.spec import TrialSpec, WorkloadSpec
from core.spec.datasets import DatasetSpec, dataset_plan
from core.store import Accuracy, Store
from core.wire import engines
from core.wire.errors import SpecError
from core.wire.files import MOST_LIST_BYTES, open_regular
from core.wire.runtime import OWN, runtime

__all__ = [
    "DELTA",
    "Accuracy",
    "calibration_note",
    "check_accuracy_before",
    "class_number",
    "compare",
    "curve",
    "decision",
    "known_accuracy",
    "measure_accuracy",
    "roc",
    "score_outputs",
    "scores_of",
    "summary",
]

TIMEOUT_S = 6 * 3600.0  # a large dataset takes hours on a CPU, and can be cancelled
BATCH_ROWS = 32  # default batch size
QUANTIZED_AS_IT_RUNS = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
BATCH_NOTE = (
    "The model computes its quantization ranges at run time over the whole batch, so outputs may "
    "differ at batch sizes other than {rows}."
)


def measure_accuracy(
    store: Store,
    spec: TrialSpec,
    *,
    run: Run,
    environment: Callable[[], wire.Environment] | None = None,
    reuse: bool = True,
) -> Accuracy:
    """Run `spec` over its dataset and store the scores; reuse an earlier result of the same machine.

    Args:
        store: keeps the result, and holds the library and the caches.
        spec: the model, the session and, in `dataset`, the data; of the workload only batch size and free
            dimensions are used.
        run: starts a worker, called like `run_job`.
        environment: returns the facts of the machine; None: a worker reads them.
        reuse: use an earlier result of the same model, session, data and machine.

    Raises:
        SpecError: no dataset, or one that cannot be read or does not fit the model.
        ModelError: there is no such model, or it is no classifier.
        TunerError: another error in a worker.
    """
    asked = _dataset_of(spec)
    resolved = resolve_trial(spec, store, run)
    machine, unknown = describe(environment or (lambda: run(wire.ENVIRONMENT, {})))
    fingerprint = machine["fingerprint"] if machine is not None else ""
    model = resolved.record.content_sha256
    known = known_accuracy(store, resolved.spec, model_sha256=model, fingerprint=fingerprint)
    calibrated = _calibrated(resolved)
    if reuse and known is not None and (calibrated is None or "calibration" in known.reply):
        store.put_accuracy(known)  # with the requested class and threshold
        return known
    key = key_of(resolved.spec, model)  # before the data are read
    plan, notes = _plan(asked, resolved, store, run)
    one = secrets.token_hex(8)
    plan["scores_path"] = str(store.scores_path(one))
    reply = run(wire.ACCURACY, plan, timeout_s=TIMEOUT_S, runtime=resolved.spec.runtime)
    reply["notes"] = [*reply["notes"], *notes, *unknown]
    if calibrated is not None:
        reply["calibration"] = calibration_rows(reply["scores_path"], calibrated)
    accuracy = Accuracy(
        id=one,
        key=key,
        model_sha256=model,
        model_name=resolved.record.name,
        spec=resolved.spec.to_dict(),
        dataset=asked.to_dict(),
        reply=reply,
        scores_path=reply["scores_path"],
        created_at=time.time(),
        fingerprint=fingerprint,
    )
    store.put_accuracy(accuracy)
    return accuracy


def check_accuracy_before(store: Store, spec: TrialSpec, *, run: Run) -> None:
    """Refuse invalid requests before they are queued, as far as they are recognised by then.

    Args:
        store: holds the library.
        spec: as for `measure_accuracy`.
        run: starts a worker if the model has not been inspected.

    Raises:
        TunerError: no data, no such model, or a workload that the model does not accept.
    """
    asked = _dataset_of(spec)
    dataset_plan(asked)
    resolved = inspect_model(spec, store, run)
    if resolved is None:
        return
    info = resolved.record.info
    workload = _dataset_workload(spec.workload, info, live=_quantizes_at_run_time(info))
    feed_plan(workload, info)
    _check_runtime(resolved, workload, asked, run)


def _check_runtime(resolved: Resolved, workload: WorkloadSpec, asked: DatasetSpec, run: Run) -> None:
    spec = resolved.spec.model_copy(update={"workload": workload})
    check_runtime(spec, resolved.record.info, run)
    if dataset_plan(asked)["kind"] != "npz":
        require_package(spec.runtime, "PIL", "pillow", run, needs="reading images")


def known_accuracy(
    store: Store, spec: TrialSpec, *, model_sha256: str, fingerprint: str | None = None
) -> Accuracy | None:
    """Return the newest stored result of `spec` on its data as they are now, or None; starts no worker.

    The result has the positive class and the threshold of `spec`, which need no new run.

    Args:
        store: keeps the results.
        spec: the session and, in `dataset`, the data.
        model_sha256: content of the model.
        fingerprint: of the machine; None: any machine.

    Raises:
        SpecError: no dataset, or there is nothing at its path.
    """
    asked = _dataset_of(spec)
    found = store.find_accuracy(key_of(spec, model_sha256), fingerprint)
    if found is None or not Path(found.scores_path).is_file():
        return None
    return replace(found, spec=spec.to_dict(), dataset=asked.to_dict())


def score_outputs(info: wire.ModelInfo) -> tuple[list[str], str]:
    """Return the outputs that may contain a score for each class, and the reason if there are none.

    A score output has a floating-point type and one or more numbers for each row: [rows], [rows, classes], or
    more dimensions of size 1. The model file does not define what the numbers mean: a sentence embedding
    has the same shape.
    """
    if not info["batch_axes"] and info["fixed_batch"] is None:
        return [], "No input of the model has a batch dimension, so there is nothing to label."
    found = [one["name"] for one in info["outputs"] if _may_hold_scores(one)]
    if found:
        return found, ""
    listed = ", ".join(f"`{one['name']}` {one['dtype']} {one['shape']}" for one in info["outputs"])
    return [], (
        "The model is not a classifier: no output has one score per class for each sample. Its "
        f"outputs: {listed}."
    )


def _may_hold_scores(one: wire.InputInfo) -> bool:
    if one["dtype"] not in ("float32", "float16", "float64"):
        return False
    shape = one["shape"]
    if shape is None or len(shape) <= 2:
        return shape is None or len(shape) > 0
    return sum(size != 1 for size in shape[1:]) <= 1


# --- measuring ----------------------------------------------------------------------------------------------


def _dataset_of(spec: TrialSpec) -> DatasetSpec:
    if spec.dataset is None:
        raise SpecError(
            "The configuration has no labelled data.",
            hint="Add a `dataset`, for example `sample_models/digits_test.npz`.",
        )
    engines.require(spec.engine, "accuracy")
    return spec.dataset


def _calibrated(resolved: Resolved) -> str | None:
    """Hashes of the calibration rows of the model; None: it was not calibrated on data."""
    variant = variant_of(resolved.record) or {}
    return str(variant.get("calibrated_rows", "")) if variant.get("calibration") else None


def _plan(
    asked: DatasetSpec, resolved: Resolved, store: Store, run: Run
) -> tuple[wire.AccuracyPlan, list[str]]:
    """Plan for the worker, without `scores_path`, and notes on the results."""
    dataset = dataset_plan(asked)  # refuse data that are not there before a copy of the model is made
    info = resolved.record.info
    live = _quantizes_at_run_time(info)
    workload = _dataset_workload(resolved.spec.workload, info, live=live)
    _check_runtime(resolved, workload, asked, run)
    path, copied = resolved.record.path, list[str]()
    if resolved.spec.model.precision == "fp16":
        prepared = prepare_trial(resolved, store, run)
        path, info, copied = prepared.path, prepared.info, prepared.notes
    feeds = feed_plan(workload, info)
    plan: wire.AccuracyPlan = {
        "model_path": path,
        "session": {**session_plan(resolved.spec.session), "free_dimension_overrides": {}},  # any batch
        "inputs": feeds["inputs"],
        "batch_axes": feeds["batch_axes"],
        "values": feeds["values"],
        "seed": feeds["seed"],
        "output": asked.output,
        "dataset": dataset,
        "scores_path": "",
    }
    if (own := openvino_plan(resolved.spec)) is not None:
        plan["engine"], plan["openvino"] = resolved.spec.engine, own
    notes = [BATCH_NOTE.format(rows=feeds["batch_size"])] if live else []
    return plan, [*notes, *(f"fp16 copy: {note}" for note in copied)]


def _quantizes_at_run_time(info: wire.ModelInfo) -> bool:
    """Whether the model computes quantization ranges at run time."""
    return any(name.rpartition(".")[2] in QUANTIZED_AS_IT_RUNS for name in info["op_counts"])


def _dataset_workload(workload: WorkloadSpec, info: wire.ModelInfo, *, live: bool) -> WorkloadSpec:
    """The workload on the rows of a dataset, which defines the free sizes."""
    changes: dict[str, Any] = {"feeds": "dataset.npz"}
    rows = workload.batch_size or workload.dims.get(info["batch_dim"] or "")
    if rows is None and info["batch_dim"] is not None:
        changes["batch_size"] = 1 if live else BATCH_ROWS
    return workload.model_copy(update=changes)


def key_of(spec: TrialSpec, model_sha256: str) -> str:
    """Return a hash of all that determines the scores: model, session, batch, runtime, current data.

    Raises:
        SpecError: no dataset, or no such runtime.
    """
    dataset = _dataset_of(spec)
    plan = dataset_plan(dataset)
    request = {
        "model": [model_sha256, spec.model.precision, spec.model.keep_io_types],
        "session": spec.session.model_dump(mode="json", exclude_defaults=True),
        "workload": [spec.workload.batch_size, spec.workload.dims],
        "dataset": [plan, dataset.output],
        "files": _stamp(plan),
    }
    if spec.engine != engines.DEFAULT:
        versions = installed(spec.engine) if spec.runtime == OWN else {}
        request["engine"] = [spec.engine, spec.openvino.model_dump(exclude_defaults=True), versions]
    if spec.runtime != OWN:
        request["runtime"] = spec.runtime if runtime(spec.runtime).sha256 else runtimes.pinned(spec.runtime)
    if values := spec.workload.feed_values:
        request["values"] = [values, spec.workload.seed]
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _stamp(dataset: wire.DatasetPlan) -> str:
    """Hash of names, sizes and modification times of all files of the data."""
    digest = hashlib.sha256()
    for file in _files(Path(dataset["path"]), dataset["kind"]):
        try:
            facts = file.stat()
            digest.update(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode(errors="surrogateescape"))
        except OSError:
            digest.update(f"{file}\0missing\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(path: Path, kind: str) -> Iterator[Path]:
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders.sort()
            yield from (Path(folder) / name for name in sorted(names))
        return
    yield path
    if kind == "csv":  # every cell that names a file
        try:
            with open_regular(path) as file:
                data = file.read(MOST_LIST_BYTES + 1)
            text = "" if len(data) > MOST_LIST_BYTES else data.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return  # the worker reports the error
        cells = (cell.strip('" ') for line in text.splitlines() for cell in re.split(r"[,;\t]", line))
        yield from (path.parent / cell for cell in cells if cell and "\0" not in cell)
