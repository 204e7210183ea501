"""Performs an upgrade: the same models in two runtimes, one comparison for each model.

    perform_upgrade(asked, service)     the work of the job; every finished model is kept at once
    upgrades(store, beginning)          stored upgrades by the first characters of the ID
    found_rows(store, record)           what its comparisons show

The record is a file among the artifacts of the store, under the ID of the upgrade. The measurements are in
the comparisons, which the scheduler stores like all others.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from core import wire
from core.evidence import continuation
from core.evidence.comparison import Comparison, Configuration, with_references
from core.evidence.measurement import Trial
from core.evidence.upgrade import (
    STUDY,
    VERSION,
    Change,
    RuntimeSide,
    UpgradeItem,
    UpgradeRecord,
    UpgradeRow,
    changes,
    judge,
    rows,
)
from core.evidence.verdict import is_rejected
from core.process import runtimes, scratch
from core.process.job_worker import Progress
from core.run import job_types
from core.run.comparison import protocol_of
from core.run.job import Ending, Job, Outcome, Service
from core.run.job_log import is_owner_alive, this_process
from core.run.plan import contestant_plan, feed_plan
from core.run.preparation import Prepared, Resolved, prepare_trial, resolve_trial
from core.run.runtime_check import capabilities
from core.run.scorecard import on_model
from core.run.sizes import with_known_sizes
from core.run.variants import precision_of_model
from core.spec import TrialSpec
from core.store import Store
from core.store.library import resolve_model
from core.wire.errors import (
    HOME_HINT,
    INTERRUPTED,
    Cancelled,
    ErrorRecord,
    SpecError,
    StoreError,
    TunerError,
    record_from_error,
)
from core.wire.files import written_whole
from core.wire.output_check import Judged, check_outputs, random_operators
from core.wire.runtime import OWN, runtime

KIND = "upgrade"
FILE = "upgrade.json"
BEFORE, AFTER = "old runtime", "new runtime"
MOST_OUTPUT_BYTES = 256 << 20  # of the inputs and of the outputs that both runtimes are compared on


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """One model in both runtimes."""

    label: str
    before: TrialSpec
    after: TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedUpgrade:
    """A request for an upgrade."""

    models: Sequence[AskedModel]
    before: str  # pinned runtimes
    after: str
    config: str = ""  # as it was given
    reuse: bool = False
    wait_quiet_s: float = 0.0

    @property
    def family(self) -> int:
        """The number of intervals: one for each model, two where the ORT default is added."""
        return sum(len(with_references(configurations(one))) - 1 for one in self.models)


def configurations(one: AskedModel) -> list[Configuration]:
    """Return the two configurations of a model's comparison."""
    return [
        Configuration(spec=one.before, label=BEFORE, role="baseline"),
        Configuration(spec=one.after, label=AFTER),
    ]


def new_record(asked: AskedUpgrade, created_at: float) -> UpgradeRecord:
    """Return the record of an upgrade that has not begun."""
    return UpgradeRecord(
        version=VERSION,
        id=secrets.token_hex(8),
        created_at=created_at,
        config=asked.config,
        names=(runtime(asked.before).name, runtime(asked.after).name),
        models=tuple(one.label for one in asked.models),
        family=asked.family,
        process=this_process(),
    )


# --- the record ---------------------------------------------------------------------------------------------


def put(store: Store, record: UpgradeRecord, models: Sequence[str] = ()) -> None:
    """Keep a record, in place of an earlier one of the same upgrade.

    Args:
        store: keeps it, as its person's.
        record: to keep.
        models: of a new one, by hash or path; if one is private, so is the upgrade.

    Raises:
        StoreError: it cannot be written.
    """
    path = store.artifact_path(record.id, FILE)
    if not path.exists():
        store.claim([record.id], models=models)
    try:
        with written_whole(path) as draft:
            draft.write_bytes(msgspec.json.encode(record))
    except OSError as error:
        raise StoreError(
            f"The upgrade cannot be kept in `{path}`: {error.strerror or error}.", hint=HOME_HINT
        ) from error


def upgrades(store: Store, beginning: str) -> list[UpgradeRecord]:
    """Return the upgrades whose IDs begin with some characters; damaged and private ones are left out.

    Args:
        store: holds them.
        beginning: hexadecimal digits.
    """
    found = []
    for path in sorted((store.folder / "artifacts").glob(f"{beginning}*/{FILE}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            record = msgspec.json.decode(path.read_bytes(), type=UpgradeRecord)
            if record.version == VERSION:
                found.append(_with_end(record))
    hidden = store.hidden([name for one in found for name in _parts(one)])
    return [one for one in found if hidden.isdisjoint(_parts(one))]


def _parts(record: UpgradeRecord) -> list[str]:
    """The ids of an upgrade and of its comparisons: it is seen where all of them are."""
    return [record.id, *(one.comparison for one in record.items)]


def _with_end(record: UpgradeRecord) -> UpgradeRecord:
    """Return the record; one whose process has ended meanwhile was interrupted."""
    if record.state != "RUNNING" or is_owner_alive(record.process, record.created_at):
        return record
    hint = "Start it again; finished models can be reused."
    error: ErrorRecord = {"type": "WorkerError", "message": f"The upgrade {INTERRUPTED}", "hint": hint}
    return replace(record, state="FAIL", error=error)


def put_end(store: Store, upgrade_id: str, state: str, error: ErrorRecord | None) -> None:
    """Keep how the job of an upgrade ended, where it ended before its work began.

    Raises:
        StoreError: it cannot be written.
    """
    for record in upgrades(store, upgrade_id):
        if record.state == "RUNNING":
            put(store, replace(record, state=state, error=error))


def found_rows(store: Store, record: UpgradeRecord) -> list[UpgradeRow]:
    """Return a row for every model of an upgrade, from the comparisons that are still stored."""
    found = []
    for item in record.items:
        comparison, trials = _stored(store, item.comparison)
        found.append(judge(item, comparison, trials))
    return rows(record, found)


def _stored(store: Store, comparison_id: str) -> tuple[Comparison | None, Sequence[Trial]]:
    if not comparison_id:
        return None, ()
    try:
        return store.comparison(comparison_id), store.trials_of(comparison_id)
    except StoreError:  # deleted since
        return None, ()


# --- the work -----------------------------------------------------------------------------------------------


def job_of(asked: AskedUpgrade, record: UpgradeRecord) -> Job:
    """Return the job, which has the ID of the upgrade."""
    names = f"{runtime(asked.before).name} → {runtime(asked.after).name}"
    count = f"{len(asked.models)} model{'s' * (len(asked.models) != 1)}"
    return Job(
        id=record.id,
        kind=KIND,
        what=f"upgrade of {count}, {names}",
        work=partial(perform_upgrade, asked, record),
        specs=[spec for one in asked.models for spec in (one.before, one.after)],
    )


def perform_upgrade(asked: AskedUpgrade, record: UpgradeRecord, service: Service) -> Outcome:
    """Compare every model in both runtimes, one after another; a model that fails does not stop the others.

    Raises:
        Cancelled: finished models are kept, and the one that was being measured as far as it went.
        TunerError: a runtime cannot be described, or the record cannot be kept.
    """
    try:
        record = _described(record, asked, service)
        put(service.store, record)
        for number, one in enumerate(asked.models):
            service.on_live({"upgrade": {"model": one.label, "number": number + 1, "of": len(asked.models)}})
            record = record.with_item(_compared(one, asked, record, service))
            put(service.store, record)
            if service.cancel.is_set():
                raise Cancelled(
                    "The upgrade was cancelled; finished models are kept.", hint="Start it again."
                )
            if number + 1 < len(asked.models):
                service.give_way()
    except TunerError as error:
        state = "CANCELLED" if isinstance(error, Cancelled) else "FAIL"
        put(service.store, replace(record, state=state, error=record_from_error(error)))
        raise
    put(service.store, replace(record, state="COMPLETE"))
    return Outcome(whole=Ending(state="COMPLETE", result={"upgrade": record.id}))


def _compared(one: AskedModel, asked: AskedUpgrade, record: UpgradeRecord, service: Service) -> UpgradeItem:
    """Return the result of one model; its error is part of it."""
    item = UpgradeItem(model=one.label)
    try:
        one, notes = _fitted(one, service, several=len(asked.models) > 1)
        item = replace(item, notes=notes)
        if asked.reuse and (earlier := _earlier(one, record, service)) is not None:
            return replace(earlier, model=item.model, notes=notes, reused=True)
        job = job_types.comparison(
            configurations(one),
            study=record.study,
            what=f"comparison of {one.label} in two runtimes",
            protocol=protocol_of(one.after.protocol, family=record.family),
            wait_quiet_s=asked.wait_quiet_s,
        )
        item = replace(item, comparison=job.id)
        ending = service.perform(job)
        if ending.state != "COMPLETE":
            return item
        return _with_outputs(item, one, service)
    except TunerError as error:
        return replace(item, error=record_from_error(error))


def _fitted(one: AskedModel, service: Service, *, several: bool) -> tuple[AskedModel, tuple[str, ...]]:
    """Return the specs with the sizes that the model needs, and notes on assumed and unused ones.

    Of several models, each takes the sizes of the dimensions that it has.
    """
    service.on_progress(Progress(stage="inspect", done=0, total=0))
    specs, notes = [one.before, one.after], list[str]()
    if several:
        record = resolve_model(service.store, one.after.model.path, run=service.run)
        asked = one.after.workload.dims
        specs = [on_model(spec, record, path=spec.model.path) for spec in specs]
        if unused := sorted(set(asked) - set(specs[1].workload.dims)):
            notes.append(f"It has no dimension {', '.join(f'`{name}`' for name in unused)}.")
    specs, sizes = with_known_sizes(specs, service.store, service.run)
    if sizes:
        notes.append(
            f"Sizes: {', '.join(f'{name}={size.size} ({size.source})' for name, size in sizes.items())}."
        )
    return replace(one, before=specs[0], after=specs[1]), tuple(notes)


def _earlier(one: AskedModel, record: UpgradeRecord, service: Service) -> UpgradeItem | None:
    """Return the newest result of an earlier upgrade with the same model, settings, runtimes and machine.

    It must hold together with at least as many intervals as this upgrade has, and must not be rejected.
    """
    asked = [
        resolve_trial(each.spec, service.store, service.run) for each in with_references(configurations(one))
    ]
    keys = sorted(each.spec.key() for each in asked)
    store, model = service.store, asked[0].record.content_sha256
    for comparison in store.comparisons(compared_sha256=model, state="COMPLETE"):
        if comparison.fingerprint != record.fingerprint or is_rejected(comparison.result):
            continue
        if not comparison.study.startswith(STUDY):
            continue
        if continuation.family(comparison.protocol) < record.family:
            continue
        if sorted(trial.key for trial in store.trials_of(comparison.id)) != keys:
            continue
        known = upgrades(store, comparison.study.removeprefix(STUDY))
        items = [item for upgrade in known for item in upgrade.items if item.comparison == comparison.id]
        if items:
            return items[0]
    return None


# --- outputs ------------------------------------------------------------------------------------------------


def _with_outputs(item: UpgradeItem, one: AskedModel, service: Service) -> UpgradeItem:
    """Add how the outputs of the new runtime differ from those of the old one on the same inputs."""
    try:
        between, reason = _between(one, service)
    except Cancelled:
        raise
    except (TunerError, OSError) as error:
        between, reason = None, f"The outputs of the two runtimes were not compared: {error}"
    return replace(item, between=between, between_reason=reason)


def _between(one: AskedModel, service: Service) -> tuple[Judged | None, str]:
    """Run both once: the old runtime keeps its inputs and outputs, the new one gets the same inputs."""
    (old, plan), (new, prepared) = (_prepared(spec, service) for spec in (one.before, one.after))
    with scratch.folder() as folder:
        asked: wire.SamplesPlan = {
            "plan": _plan(old.spec, plan),
            "folder": str(folder),
            "most_bytes": MOST_OUTPUT_BYTES,
        }
        kept = service.run(wire.SAMPLES, asked, **_how(old.spec))
        if kept["refusal"]:
            return None, kept["refusal"]
        fed = _fed(new.spec, prepared, folder / "inputs.npz", kept["rows"])
        again: wire.AnswersPlan = {"plan": fed, "outputs": str(folder / "outputs.npz")}
        reply = service.run(wire.ANSWERS, again, **_how(new.spec))
    if reply["unusable"]:
        return None, reply["unusable"]
    random = tuple(random_operators(new.record.info))
    precision = precision_of_model(new.record)
    tolerance = new.spec.protocol.tolerance
    return check_outputs(reply["error"], precision, tolerance, random=random).to_dict(), ""


def _prepared(spec: TrialSpec, service: Service) -> tuple[Resolved, Prepared]:
    resolved = resolve_trial(spec, service.store, service.run)
    return resolved, prepare_trial(resolved, service.store, service.run)


def _plan(spec: TrialSpec, prepared: Prepared) -> wire.ContestantPlan:
    return contestant_plan(
        spec, path=prepared.path, session=prepared.session, feeds=prepared.feeds, torch=None
    )


def _fed(spec: TrialSpec, prepared: Prepared, inputs: Path, samples: int) -> wire.ContestantPlan:
    """Return the plan of a configuration with recorded inputs."""
    fed: dict[str, Any] = {"feeds": str(inputs), "feed_values": {}, "image_mean": (), "image_std": ()}
    if prepared.info["batch_dim"] is not None:
        fed["batch_size"] = samples
    workload = spec.workload.model_copy(update=fed)
    changed = spec.model_copy(update={"workload": workload})
    return {**_plan(changed, prepared), "feeds": feed_plan(workload, prepared.info)}


def _how(spec: TrialSpec) -> dict[str, Any]:
    where = {} if spec.runtime == OWN else {"runtime": spec.runtime}
    return {"timeout_s": float(spec.protocol.timeout_s), **where}


# --- the two runtimes ---------------------------------------------------------------------------------------


def _described(record: UpgradeRecord, asked: AskedUpgrade, service: Service) -> UpgradeRecord:
    """Add both runtimes, and what differs between their capabilities."""
    sides = [_side(text, service) for text in (asked.before, asked.after)]
    if lacking := next((one.name for one in sides if not one.onnxruntime), ""):
        raise SpecError(
            f"The runtime `{lacking}` has no ONNX Runtime.",
            hint="Name one whose packages include onnxruntime; `ortune runtimes list` shows them.",
        )
    found: list[Change] = []
    reason = ""
    try:
        known = [capabilities(text, service.run) for text in (asked.before, asked.after)]
        found = changes(*known)
        sides = [replace(side, build=one["build"]) for side, one in zip(sides, known, strict=True)]
    except Cancelled:
        raise
    except TunerError as error:
        reason = str(error)
    return replace(
        record,
        before=sides[0],
        after=sides[1],
        changes=tuple(found),
        changes_reason=reason,
        fingerprint=service.environment()["fingerprint"],
    )


def _side(text: str, service: Service) -> RuntimeSide:
    described = service.environment(**({} if text == OWN else {"runtime": text}))
    named = runtime(text).name
    record = None if text == OWN else runtimes.record(named)
    python = Path(sys.executable if record is None else record["python"])
    libraries = described["libraries"]
    return RuntimeSide(
        runtime=text,
        name=named,
        onnxruntime=next((libraries[one] for one in sorted(libraries) if one.startswith("onnxruntime")), ""),
        python=described["python"],
        build=described["ort_build"],
        package_bytes=_package_bytes(python),
        environment_bytes=(record["size_bytes"] or None) if record is not None else None,
    )


def _package_bytes(python: Path) -> int | None:
    """Return the size of the files of ONNX Runtime's packages in an environment; None: there are none."""
    libraries = python.parent.parent
    folders = [
        path
        for packages in ("lib/python3*/site-packages", "Lib/site-packages")
        for path in libraries.glob(f"{packages}/onnxruntime*")
    ]
    sizes = [path.stat().st_size for folder in folders for path in _files(folder)]
    return sum(sizes) or None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else iter(())
