"""Locates the error of a quantized variant by operator: the jobs, and their stored answer.

        quantized_from(store, record)   the float model of a variant; raises where there is none
    locate_errors(store, record, …) the error of each operator (`node_errors`), then its time (`explain`)
    located(store, record)          the answer, with `node_savings.Savings`; None before

The answer is a file of the cache, named after the variant, so every page and command finds it. Runs in the
parent: it starts workers only through `run`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from core import wire
from core.evidence.input_description import describe_inputs
from core.evidence.node_savings import Savings, savings
from core.evidence.result_types import InputDescription
from core.process.job_worker import Run
from core.run.plan import check_feeds_file, contestant_plan, feed_plan, pinned_libraries, session_plan
from core.run.variants import output_check_inputs, steps_of, variant_of
from core.spec import ModelRef, SessionSpec, TrialSpec, WorkloadSpec
from core.spec.datasets import dataset_from_dict, dataset_plan
from core.spec.steps import Step, check_libraries
from core.store import ModelRecord, Store
from core.wire.errors import HOME_HINT, Cancelled, ModelError, SpecError, StoreError, TunerError, WorkerError
from core.wire.files import made_private, read_result, written_whole
from core.wire.profile_passes import Passes, passes_from_json

VERSION = 1  # of the stored answer
QUANTIZED = ("int8_dynamic", "int8_static", "int4")
TIMEOUT_S = 3600.0  # a large model is quantized and run once per operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """The quantization that is the last step of a variant."""

    before: ModelRecord  # the float model that it was made from
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The stored answer about a variant's error."""

    savings: Savings
    notes: tuple[str, ...]  # caveats for the reader
    made_at: float  # seconds since the epoch
    fed: tuple[InputDescription, ...] = ()  # inputs of the answer; empty: old version
    libraries: Mapping[str, str] = field(default_factory=dict)  # of custom operators that ran -> hash


def quantized_from(store: Store, record: ModelRecord) -> Quantized:
    """Return the float model of the variant `record`, and the step between them.

    Raises:
        SpecError: its last step is no quantization.
        ModelError: the float model is no longer in the library.
    """
    facts = variant_of(record)
    steps = steps_of(record)
    if facts is None or not steps or steps[-1].kind not in QUANTIZED:
        raise SpecError(
            f"The last step of `{record.name}` is not a quantization.",
            hint="Choose a variant whose last step is INT8 or INT4.",
        )
    before = store.model(facts["parent"])
    if before is None or not Path(before.path).is_file():
        raise ModelError(
            f"The model `{facts['parent_name']}`, from which `{record.name}` was quantized, no longer "
            "exists.",
            hint="Create the variant again from its original; this restores the earlier steps.",
        )
    return Quantized(before=before, step=steps[-1])


def check_inputs(
    of: Quantized, after: ModelRecord, workload: WorkloadSpec, libraries: Sequence[str] = ()
) -> None:
    """Refuse inputs that the float model or the variant does not take, before the job is queued.

    Raises:
        SpecError: a dimension, a batch or an input that they do not have, a file that is not there, or
            libraries that the variant's step does not take or that may not be loaded.
    """
    check_libraries(of.step, libraries)
    pinned_libraries(libraries)
    check_feeds_file(workload)
    output_check_inputs(of.before.info, workload.dims, workload)
    for one in (of.before, after):
        feed_plan(workload, one.info)


# --- the jobs -----------------------------------------------------------------------------------------------


def locate_errors(
    store: Store,
    record: ModelRecord,
    *,
    run: Run,
    fingerprint: str,
    workload: WorkloadSpec,
    libraries: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure the error and the time saved of each quantized operator of a variant; store the answer.

    Args:
        store: holds the models and receives the answer.
        record: the variant.
        run: starts a worker.
        fingerprint: of this machine, recorded with the times.
        workload: inputs, and the batch that is timed.
        libraries: that bring operators of the models, by their names in the operator's folder.

    Returns:
        The number of operators, for `Status.result`.

    Raises:
        TunerError: as `quantized_from`, and errors of a worker. Missing times only add a note.
    """
    of = quantized_from(store, record)
    check_libraries(of.step, libraries)
    libraries = pinned_libraries(libraries)
    calibration = (variant_of(record) or {}).get("calibration")
    feeds = output_check_inputs(of.before.info, workload.dims, workload)[0]
    plan: wire.NodeErrorsPlan = {
        "float_path": of.before.path,
        "quantized_path": record.path,
        "step": of.step.kind,
        "options": dict(of.step.options),
        "feeds": feeds,
        "calibration": dataset_plan(dataset_from_dict(calibration)) if calibration else None,
    }
    if libraries:
        plan["custom_op_libraries"] = list(libraries)
    folder = _folder(store, record)
    errors = run(wire.NODE_ERRORS, plan, timeout_s=TIMEOUT_S)
    note = ""
    try:
        explain = _explain_plan((of.before, record), workload, libraries, fingerprint, folder)
        run(wire.EXPLAIN, explain, timeout_s=TIMEOUT_S)
    except Cancelled:
        raise
    except TunerError as error:
        note = f"The time saved by each operator is unknown: {error.message}"
    shown = describe_inputs(feeds, of.before.info)
    data = {"version": VERSION, "errors": errors, "note": note, "made_at": time.time(), "fed": shown}
    _keep(folder, data)
    return {"operators": len(errors["nodes"])}


def _explain_plan(
    models: Sequence[ModelRecord],
    workload: WorkloadSpec,
    libraries: Sequence[str],
    fingerprint: str,
    folder: Path,
) -> wire.ExplainPlan:
    """Payload of `explain` with the ORT defaults, the float model first."""
    return {
        "sides": [_side(one, workload, libraries) for one in models],
        "fingerprint": fingerprint,
        "output": str(folder / "passes.json"),
    }


def _side(record: ModelRecord, workload: WorkloadSpec, libraries: Sequence[str]) -> wire.ContestantPlan:
    spec = TrialSpec(
        model=ModelRef(path=record.path, sha256=record.sha256),
        session=SessionSpec(custom_op_libraries=tuple(libraries)),
        workload=workload,
    )
    return contestant_plan(
        spec,
        path=record.path,
        session=session_plan(spec.session),
        feeds=feed_plan(workload, record.info),
        torch=None,
    )


def _folder(store: Store, record: ModelRecord) -> Path:
    """An empty folder for the answer about `record`; an older answer is deleted, so that none mix.

    Raises:
        StoreError: it cannot be created.
    """
    folder = _answer_folder(store, record)
    try:
        made_private(folder)
        for name in ("errors.json", "passes.json"):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise _no_room(folder, error) from error
    return folder


def _keep(folder: Path, data: Mapping[str, Any]) -> None:
    try:
        with written_whole(folder / "errors.json") as part:
            part.write_text(json.dumps(data))
    except OSError as error:
        raise _no_room(folder, error) from error


def _no_room(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"The errors of the operators cannot be stored in `{folder}`: {error.strerror or error}.",
        hint=HOME_HINT,
    )


def _answer_folder(store: Store, record: ModelRecord) -> Path:
    return store.folder / "cache" / "node_errors" / record.content_sha256


# --- the answer ---------------------------------------------------------------------------------------------


def located(store: Store, record: ModelRecord) -> Located | None:
    """Return where the error of a variant comes from; None before `locate_errors` has run.

    Raises:
        WorkerError: the stored answer cannot be read.
    """
    folder = _answer_folder(store, record)
    data = _read(folder / "errors.json")
    if data is None:
        return None
    try:
        if data["version"] != VERSION:
            return None
        errors, note = cast(wire.NodeErrorsReply, data["errors"]), str(data["note"])
        found = savings(errors, None if note else _passes(folder))
        notes = (*errors["notes"], *([note] if note else []))
        shown = tuple(data.get("fed", []))
        return Located(
            savings=found,
            notes=notes,
            made_at=float(data["made_at"]),
            fed=shown,
            libraries=errors.get("libraries", {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from error


def located_at(store: Store, record: ModelRecord) -> float | None:
    """Return when `located` was last written, in seconds since the epoch; None: never."""
    try:
        return (_answer_folder(store, record) / "errors.json").stat().st_mtime
    except OSError:
        return None


def _passes(folder: Path) -> Passes | None:
    try:
        return passes_from_json(read_result(folder / "passes.json"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(error) from error


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    if not isinstance(data, dict):
        raise _unreadable(TypeError("no object"))
    return data


def _unreadable(error: Exception) -> WorkerError:
    return WorkerError(f"The errors of the operators cannot be read: {error}.", hint="Compute them again.")
