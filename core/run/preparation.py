"""Prepares one configuration for the workers.

Steps: inspect (cached) → plan → fp16 copy if requested (cached) → input of `run.comparison` or
`run.profiling`. No queue, no thread, no store of trials: the scheduler owns those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from core import wire
from core.evidence.comparison import Configuration
from core.process import runtimes
from core.process.engine_packages import check_installed
from core.process.job_worker import Run, refuse_worker
from core.run.plan import (
    check_feeds_file,
    check_overrides,
    check_streams,
    contestant_plan,
    feed_plan,
    pinned,
    session_plan,
    torch_source,
)
from core.run.runtime_check import check_runtime
from core.run.variants import lineage, steps_of
from core.spec import TrialSpec
from core.spec.steps import Step, check_chain
from core.store import ModelRecord, Store
from core.store.library import inspect_cached, resolve_model
from core.wire import limits
from core.wire.catalog import RANDOM_WEIGHTS_NOTE, WEIGHTS_KEY
from core.wire.errors import HOME_HINT, Cancelled, ModelError, SpecError, StoreError, TunerError, WorkerError
from core.wire.files import made_private, written_whole
from core.wire.runtime import OWN

COPY_TIMEOUT_S = 1800.0  # for an fp16 copy of a model of several gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A trial with its model: the record, and the spec including the model's hash."""

    record: ModelRecord
    spec: TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that the workers need: file, session options and inputs."""

    path: str
    info: wire.ModelInfo  # of the file at `path`
    session: wire.SessionPlan
    feeds: wire.FeedPlan
    notes: list[str]  # caveats for the reader of the numbers


def resolve_trial(spec: TrialSpec, store: Store, run: Run) -> Resolved:
    """Find the spec's model and check its hash.

    Raises:
        ModelError: there is no such model, or it cannot be loaded.
        SpecError: the file does not match the spec's hash, or a named library may not be loaded here, see
            `pinned`.
    """
    wanted, foreign = spec.model.sha256, spec.runtime != OWN
    try:
        record = resolve_model(store, spec.model.path, run=run, any_version=foreign)
    except ModelError:
        if wanted is None or store.model(wanted) is None:
            raise
        # the library has the same content at another path
        record = resolve_model(store, wanted, run=run, any_version=foreign)
    if wanted is not None and record.sha256 != wanted:
        raise another_model(record.path, record.sha256, wanted)
    content = spec.model.content_sha256
    if content is not None and record.content_sha256 != content:
        raise SpecError(
            f"`{record.path}` has other external weights than the configuration requires: the SHA-256 of all "
            f"its files begins with `{record.content_sha256[:12]}` instead of `{content[:12]}`.",
            hint="Restore the weights of the configuration.",
        )
    path = spec.model.path if Path(spec.model.path).is_file() else record.path
    model = spec.model.model_copy(update={"path": path, "sha256": record.sha256, "content_sha256": None})
    found = {"model": model, "session": pinned(spec.session), "runtime": runtimes.pinned(spec.runtime)}
    return Resolved(record=record, spec=spec.model_copy(update=found))


def with_pinned_runtimes(asked: Sequence[Configuration]) -> list[Configuration]:
    """Return configurations with the hashes of their runtimes, so that equal requests have equal texts.

    A configuration whose runtime is missing or changed stays as it is: running it tells the error.
    """
    return [
        replace(one, spec=one.spec.model_copy(update={"runtime": runtimes.pinned_if_known(one.spec.runtime)}))
        for one in asked
    ]


def another_model(path: Path | str, found: str, wanted: str) -> SpecError:
    """Return the error for a file with another model than expected, by SHA-256."""
    return SpecError(
        f"`{path}` is another model: its SHA-256 begins with `{found[:12]}`, but the configuration "
        f"requires `{wanted[:12]}`.",
        hint="Choose the model of the configuration, or remove `sha256` from it.",
    )


def check_before(spec: TrialSpec, store: Store, run: Run) -> None:
    """Refuse a spec that cannot be measured before it is queued, as far as that is known.

    A model that cannot be loaded is not refused: its trial records the error.

    Args:
        spec: the request.
        store: holds the library.
        run: starts the worker that inspects a new model.

    Raises:
        ModelError: there is no such model.
        SpecError: the hash does not match, a dimension or a batch does not exist, inputs are missing, or the
            engine or the runtime cannot run the model.
    """
    check_installed(spec.engine, spec.runtime)
    resolved = inspect_model(spec, store, run)
    check_feeds_file(spec.workload)
    if resolved is None:
        return
    record = resolved.record
    if spec.model.precision == "fp16":
        step = Step("fp16", {"keep_io_types": spec.model.keep_io_types})
        check_chain([step], record.info, done=steps_of(record))
    check_overrides(spec, record.info)
    _check_streams(spec)
    check_runtime(resolved.spec, record.info, run)
    contestant_plan(
        resolved.spec,
        path=record.path,
        session=session_plan(spec.session),
        feeds=feed_plan(spec.workload, record.info),
        torch=torch_source(record),
    )


def _check_streams(spec: TrialSpec) -> None:
    check_streams(spec, allowed=limits.allowed_cpus(), quota=limits.cpu_quota())


def check_comparison(
    asked: Sequence[Configuration], store: Store, run: Run
) -> list[tuple[Configuration, TunerError]]:
    """Refuse a comparison before it is queued where the baseline or all candidates cannot run.

    Args:
        asked: candidates and at most one baseline.
        store: holds the library.
        run: as for `check_before`.

    Returns:
        The candidates that cannot run, with their errors.

    Raises:
        TunerError: that of the baseline or of the first candidate.
    """
    refused: list[tuple[Configuration, TunerError]] = []
    for one in asked:
        try:
            check_before(one.spec, store, run)
        except TunerError as error:
            refused.append((one, error))
    if lost := [why for one, why in refused if one.role == "baseline"]:
        raise lost[0]
    lost = [why for one, why in refused if one.role == "candidate"]
    if lost and len(lost) == sum(one.role == "candidate" for one in asked):
        raise lost[0]
    return refused


def inspect_model(spec: TrialSpec, store: Store, run: Run) -> Resolved | None:
    """Return the spec's model; None where its file exists but cannot be inspected.

    Args:
        spec: the request.
        store: holds the library.
        run: starts a worker where the model was not inspected yet.

    Raises:
        ModelError: there is no such model.
        SpecError: the hash does not match.
    """
    try:
        return resolve_trial(spec, store, refuse_worker)
    except WorkerError:
        pass  # not inspected yet
    try:
        return resolve_trial(spec, store, run)
    except (ModelError, WorkerError):
        return None


def prepare_trial(resolved: Resolved, store: Store, run: Run) -> Prepared:
    """Make the plans, and the spec's fp16 copy where it does not exist yet.

    Raises:
        SpecError: a dimension without a size, an impossible batch, a value for an unknown input; or its
            runtime cannot run it.
        ModelError: the model cannot be converted.
    """
    spec, record = resolved.spec, resolved.record
    feeds = feed_plan(spec.workload, record.info)  # refuse an invalid spec before spending time on a copy
    check_overrides(spec, record.info)
    _check_streams(spec)
    path, info, notes = record.path, record.info, list[str]()
    if spec.model.precision == "fp16":
        step = Step("fp16", {"keep_io_types": spec.model.keep_io_types})
        check_chain([step], info, done=steps_of(record))
        copy, notes = _fp16_copy(record, step, feeds, store, run)
        path, info = str(copy), inspect_cached(store, copy, run=run)
        feeds = feed_plan(spec.workload, info)
    check_runtime(spec, info, run)
    return Prepared(path=path, info=info, session=session_plan(spec.session), feeds=feeds, notes=notes)


def _fp16_copy(
    record: ModelRecord, step: Step, feeds: wire.FeedPlan, store: Store, run: Run
) -> tuple[Path, list[str]]:
    """Return the copy and the notes of its conversion, which are stored next to it for later trials."""
    folder = store.folder / "cache" / "fp16"
    kind = "keep" if step.options["keep_io_types"] else "cast"
    path = folder / f"{record.content_sha256}-{kind}.onnx"
    facts = path.with_suffix(".json")
    if path.is_file() and (kept := _kept_notes(facts)) is not None:
        return path, kept
    try:
        made_private(folder)
        plan: wire.TransformPlan = {
            "path": record.path,
            "output": str(path),
            "step": step.kind,
            "options": dict(step.options),
            "reference": record.path,
            "feeds": [feeds],
            "calibration": None,
        }
        reply = run(wire.TRANSFORM, plan, timeout_s=COPY_TIMEOUT_S)
        with written_whole(facts) as part:
            part.write_text(json.dumps({"notes": reply["notes"]}))
    except OSError as error:
        raise StoreError(
            f"The fp16 copy cannot be stored in `{folder}`: {error.strerror or error}.",
            hint=HOME_HINT,
        ) from error
    return path, list(reply["notes"])


def _kept_notes(facts: Path) -> list[str] | None:
    try:
        return [str(note) for note in json.loads(facts.read_text())["notes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # incomplete file: make the copy again


def model_notes(resolved: Resolved, prepared: Prepared) -> list[str]:
    """Notes on the model that apply to every number of this configuration."""
    weights = resolved.record.info["metadata"].get(WEIGHTS_KEY)
    random = [RANDOM_WEIGHTS_NOTE] if weights == "random" else []
    own = [text] if (text := lineage(resolved.record)) else []
    return [*random, *own, *(f"fp16 copy: {note}" for note in prepared.notes)]


def with_workaround(error: TunerError, prepared: Prepared) -> TunerError:
    """The error of a worker, with a workaround where the conversion to fp16 knows one."""
    if isinstance(error, WorkerError) and error.signal == "SIGSEGV" and prepared.notes:
        return WorkerError(error.message, hint=f"fp16 copy: {'; '.join(prepared.notes)}.")
    return error


def environment_of(environment: Callable[..., wire.Environment], runtime: str) -> wire.Environment:
    """Describe this machine with the libraries and providers of a runtime.

    The fingerprint stays that of the machine with ORTune's own libraries, which identifies its results.

    Args:
        environment: of a service or a scheduler.
        runtime: text of the runtime.

    Raises:
        SpecError: there is no such runtime.
        WorkerError: the worker crashed or hung.
    """
    machine = environment()
    if runtime == OWN:
        return machine
    return {**environment(runtime=runtime), "fingerprint": machine["fingerprint"]}


def describe(environment: Callable[[], wire.Environment]) -> tuple[wire.Environment | None, list[str]]:
    """The machine, or None with a note: a result is useful without it."""
    try:
        return environment(), []
    except Cancelled:
        raise
    except TunerError as error:
        note = f"The machine could not be described ({error}), so this result is never reused or compared."
        return None, [note]


def describe_runtime(
    environment: Callable[..., wire.Environment], runtime: str
) -> tuple[wire.Environment | None, list[str]]:
    """The libraries of another runtime than ORTune's own, or None with a note; None for ORTune's own."""
    return (None, []) if runtime == OWN else describe(partial(environment, runtime=runtime))
