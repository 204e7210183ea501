"""Check a runtime: its facts, whether it is unchanged, the settings it lacks, whether it runs a model."""

from __future__ import annotations

import base64
import csv
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from core import wire
from core.process import runtimes, scratch
from core.process.contestant_workers import Workers
from core.process.job_worker import Progress
from core.run.job import Ending, Job, Outcome, Service
from core.run.plan import contestant_plan, session_plan
from core.run.runtime_check import capabilities, known_settings
from core.run.runtimes.creation import KIND
from core.spec import spec_from_dict
from core.wire.errors import Cancelled, TunerError, WorkerError
from core.wire.runtime import IDENTITY_MODEL, RuntimeRecord, runtime

RUN_TIMEOUT_S = 120.0
MOST_CHANGED = 20  # changed files that are named
_HASH = "sha256="
_COMPUTING = ("onnxruntime", "openvino", "numpy", "ort_")  # beginnings of the folders of metadata


class RuntimeCheck(TypedDict):
    """What a check of a runtime found."""

    runtime: RuntimeRecord
    sha256: str  # of its present content
    changed: list[str]  # what differs from the time it was added, in sentences; empty: nothing
    environment: wire.Environment  # as a worker finds it there; `ort_build` is empty without ONNX Runtime
    engines: dict[str, str]  # library that runs models -> version
    settings: int  # number of settings, config entries and optimizers that were looked for; 0: none
    unknown_settings: list[str]  # those that its ONNX Runtime does not know
    ir_version: int  # newest that its ONNX Runtime reads; 0: unknown
    opsets: dict[str, int]  # domain ("" is ai.onnx) -> newest opset that it reads
    runs: dict[str, str]  # engine -> why it did not run the smallest model; empty: it did


def check_job(name: str) -> Job:
    """Return the job that checks a runtime; its result is a `RuntimeCheck`.

    Raises:
        SpecError: there is no such runtime.
        StoreError: its record cannot be read.
    """
    record = runtimes.record(runtime(name).name)
    what = f"check the runtime {record['name']}"
    return Job(
        kind=KIND,
        what=what,
        work=lambda service: Outcome(whole=Ending(state="COMPLETE", result=dict(check(record, service)))),
    )


def check(record: RuntimeRecord, service: Service) -> RuntimeCheck:
    """Check a runtime in workers of its own.

    Raises:
        SpecError: its interpreter is missing.
        WorkerError: a worker in it cannot describe it.
        Cancelled: the job was cancelled.
    """
    python = Path(record["python"])
    present = runtimes.content_hash(python)
    changed = list(_changes(record, present, python, service))
    environment = _environment(record, changed, service)
    known = _capabilities(record, environment, service)
    return {
        "runtime": record,
        "sha256": present,
        "changed": changed,
        "environment": environment,
        "engines": engines(environment["libraries"]),
        "settings": 0 if known is None else _asked(),
        "unknown_settings": [] if known is None else known["unknown"],
        "ir_version": 0 if known is None else known["ir_version"],
        "opsets": {} if known is None else known["opsets"],
        "runs": _runs(record, environment, service),
    }


def _environment(record: RuntimeRecord, changed: list[str], service: Service) -> wire.Environment:
    try:
        return service.run(wire.ENVIRONMENT, {}, runtime=record["name"])
    except Cancelled:
        raise
    except TunerError as error:
        raise WorkerError(
            " ".join([f"No worker runs in the runtime `{record['name']}`: {error.message}", *changed]),
            hint=f"Remove it with `ortune runtimes remove {record['name']}`, and add it again.",
        ) from None


def engines(versions: dict[str, str]) -> dict[str, str]:
    """Return the libraries among distributions that run models: builds of ONNX Runtime, and OpenVINO."""
    return {
        name: version
        for name, version in versions.items()
        if name == "openvino" or name.startswith(("onnxruntime", "ort-"))
    }


def _changes(record: RuntimeRecord, present: str, python: Path, service: Service) -> Iterator[str]:
    if record["sha256"] and present != record["sha256"]:
        yield (
            f"The packages are not those that were added: the hash begins with `{present[:12]}`, not "
            f"`{record['sha256'][:12]}`."
        )
    service.on_progress(Progress(stage="files", done=0, total=0, text="compares files with their lists"))
    changed = list(changed_files(python, service.cancel))
    if changed:
        names = ", ".join(f"`{one}`" for one in changed[:MOST_CHANGED])
        more = f" and {len(changed) - MOST_CHANGED} more" if len(changed) > MOST_CHANGED else ""
        yield f"Files differ from their packages' lists: {names}{more}."


def changed_files(python: Path, cancel: threading.Event) -> Iterator[str]:
    """Yield the installed files, relative to their folder, that are missing or not as their list says.

    Of the packages that compute, the content is compared; of all others the size, because libraries for GPUs
    have gigabytes.

    Raises:
        Cancelled: `cancel` was set.
    """
    for file_list in runtimes.file_lists(python):
        if cancel.is_set():
            raise Cancelled("The job was cancelled.", hint="Start it again.")
        computes = file_list.parent.name.lower().startswith(_COMPUTING)
        with file_list.open(newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                name, sha256, size = (*row, "", "", "")[:3]
                is_kept = sha256.startswith(_HASH) and not name.startswith("..") and name[-4:] != ".pyc"
                if is_kept and not _is_same(file_list.parent.parent / name, sha256, size, whole=computes):
                    yield name


def _is_same(path: Path, sha256: str, size: str, *, whole: bool) -> bool:
    try:
        if size and path.stat().st_size != int(size):
            return False
        return not whole or _HASH + _digest(path) == sha256
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    """The hash of a file as a file list writes it."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode()


def _asked() -> int:
    """The number of names that are looked for in an ONNX Runtime."""
    asked = known_settings()
    members = sum(map(len, asked["enums"].values()))
    return len(asked["attributes"]) + members + len(asked["keys"]) + len(asked["optimizers"])


def _capabilities(
    record: RuntimeRecord, environment: wire.Environment, service: Service
) -> wire.Capabilities | None:
    if not environment["ort_build"]:
        return None
    try:
        return capabilities(record["name"], service.run)
    except Cancelled:
        raise
    except TunerError:  # what runs and what does not is found out below
        return None


# --- the smallest model -------------------------------------------------------------------------------------


def _runs(record: RuntimeRecord, environment: wire.Environment, service: Service) -> dict[str, str]:
    """Load and run a model of one node on each engine; return why it failed, or nothing, by engine."""
    found = ["onnxruntime"] if environment["ort_build"] else []
    found += ["openvino"] if "openvino" in environment["libraries"] else []
    with scratch.folder() as folder:
        path = folder / "identity.onnx"
        path.write_bytes(IDENTITY_MODEL)
        return {engine: _why_not(record, _plan(path, engine), service) for engine in found}


def _why_not(record: RuntimeRecord, plan: wire.ContestantPlan, service: Service) -> str:
    """Return why a fresh process cannot load and run a plan, as in a comparison; empty: it can."""
    service.on_progress(Progress(stage="run", done=0, total=0, text=plan["engine"]))
    try:
        with Workers(service.cancel) as workers:
            worker = workers.start(plan["engine"], fresh_process=True, runtime=record["name"])
            worker.ask(wire.LOAD, plan, timeout_s=RUN_TIMEOUT_S)
    except Cancelled:
        raise
    except TunerError as error:
        return error.message
    return ""


def _plan(path: Path, engine: str) -> wire.ContestantPlan:
    spec = spec_from_dict({"model": {"path": str(path)}, "engine": engine})
    feeds: wire.FeedPlan = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1], "low": None, "high": None}],
        "source": "random",
        "path": None,
        "seed": 0,
        "values": {},
        "image_mean": [],
        "image_std": [],
        "batch_size": 1,
        "batch_axes": {},
    }
    return contestant_plan(spec, path=str(path), session=session_plan(spec.session), feeds=feeds, torch=None)
