"""The scorecard: judges configurations by targets, and queues the missing measurements.

`rows` reads the store, `needed` lists the missing measurements, `jobs_of` makes their jobs: one comparison
per batch size, all accuracies as one task, and load tests of each configuration. Runs in the parent: it opens
no model and starts no worker; the scheduler does. `core.evidence.targets` judges.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.comparison import Configuration, same_request
from core.evidence.load.target_points import LoadPoint, newest, points_of, seconds_needed
from core.evidence.measurement import Trial
from core.evidence.targets import Condition, Measurements, State, TargetResult, evaluate_target, overall
from core.process.job_worker import Run
from core.run import job_types
from core.run.accuracy import Accuracy, known_accuracy, measure_accuracy, score_outputs, summary
from core.run.job import Job
from core.run.known_trials import is_current
from core.run.plan import feed_plan, resolve_batch
from core.spec import ModelRef, TrialSpec, WorkloadSpec, spec_from_dict
from core.spec.load import MOST_LIMITS, MOST_RATES, LoadSpec, LoadTarget
from core.spec.targets import TargetSpec
from core.store import ModelRecord, Store
from core.wire.errors import Cancelled, SpecError, TunerError

MAX_CANDIDATES = 7  # candidates of one comparison: each further one widens all intervals for the same budget
MAX_TRIALS = 500  # newest trials of a model that are searched
KEPT = 5  # newest results of a configuration that are used


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One configuration to judge; its spec has the hash of its model."""

    label: str
    spec: TrialSpec
    record: ModelRecord

    def at_batch(self, rows: int) -> TrialSpec:
        """Return the spec with a batch of `rows` samples."""
        if rows == self.rows:
            return self.spec
        workload = self.spec.workload.model_copy(update={"batch_size": rows})
        return self.spec.model_copy(update={"workload": workload})

    @property
    def rows(self) -> int:
        """The batch size of `spec`, resolved against the model."""
        try:
            return resolve_batch(self.spec.workload, self.record.info)
        except SpecError:  # the measurement reports it
            return self.spec.workload.batch_size or 1

    @property
    def for_accuracy(self) -> TrialSpec:
        """The spec for accuracy: a batch of 1 becomes unset, because any batch gives the same accuracy."""
        if self.spec.workload.batch_size != 1:
            return self.spec
        workload = self.spec.workload.model_copy(update={"batch_size": None})
        return self.spec.model_copy(update={"workload": workload})

    def refusal(self, rows: int) -> str:
        """Why the model does not take a batch of `rows`; empty: it does."""
        try:
            feed_plan(self.at_batch(rows).workload, self.record.info)
        except SpecError as error:
            return error.message
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorecardRow:
    """A configuration, its evidence, and its verdicts in the order of the targets."""

    subject: Subject
    evidence: Measurements
    judged: tuple[TargetResult, ...]

    @property
    def state(self) -> State:
        """The overall state: MET where every target is met."""
        return overall(self.judged)

    @property
    def breach(self) -> str:
        """Why its newest comparisons exceed the output tolerance; empty: they do not."""
        newest = [one[0] for one in self.evidence.results.values() if one]
        guards = [guard for one in newest if (guard := one.get("guard")) and guard.get("breach")]
        return str(guards[0].get("why") or "The outputs differ.") if guards else ""

    @property
    def calibration(self) -> str:
        """Warning that scored samples were or may have been used for calibration; empty: neither."""
        summaries = self.evidence.summaries.values()
        return next((text for one in summaries if (text := one.get("calibration_note"))), "")

    @property
    def trials(self) -> list[str]:
        """IDs of its newest comparisons and of the load tests that speak for its targets."""
        compared = {str(found[0]["trial"]) for found in self.evidence.results.values() if found}
        asked = [one.target.load for one in self.judged if one.target.load is not None]
        tested = {found[0].found.trial for one in asked if (found := newest(one, self.evidence.loads))}
        return sorted(compared | tested)

    @property
    def measured(self) -> dict[str, Any]:
        """The measured results for the configuration's YAML."""
        seen = {"calibration_note": self.calibration} if self.calibration else {}
        return {"scorecard": self.state, "targets": [one.to_dict() for one in self.judged], **seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLoad:
    """A load test of one configuration that may decide some of its targets."""

    subject: Subject
    load: LoadSpec

    @property
    def seconds(self) -> float:
        """Counted time of all its rates, in seconds."""
        return len(self.load.rates) * self.load.effective_duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingMeasurements:
    """The measurements that would decide open targets."""

    comparisons: Mapping[int, Sequence[Subject]]  # batch size -> configurations to compare
    accuracies: Sequence[Subject]
    loads: Sequence[MissingLoad] = ()

    def __bool__(self) -> bool:
        """Whether anything is missing."""
        return bool(self.comparisons or self.accuracies or self.loads)


def on_model(spec: TrialSpec, record: ModelRecord, *, path: str | None = None) -> TrialSpec:
    """Return `spec` on another model of its family, without sizes of dimensions that the model lacks."""
    info = record.info
    workload: dict[str, Any] = {
        "dims": {name: size for name, size in spec.workload.dims.items() if name in info["free_dims"]}
    }
    if info["batch_dim"] is None:
        workload["batch_size"] = None
    model = ModelRef(path=path or record.path, sha256=record.sha256)
    return spec.model_copy(update={"model": model, "workload": spec.workload.model_copy(update=workload)})


# --- stored evidence ----------------------------------------------------------------------------------------


def rows(
    store: Store,
    subjects: Iterable[Subject],
    targets: Sequence[TargetSpec],
    *,
    fingerprint: str,
    since: float = 0.0,
) -> list[ScorecardRow]:
    """Judge every configuration by its stored results.

    Args:
        store: of trials and accuracies.
        subjects: configurations.
        targets: to judge by.
        fingerprint: of this machine; trials of other machines do not count.
        since: seconds since the epoch; trials submitted earlier do not count.
    """
    found = []
    for subject in subjects:
        evidence = _evidence(store, subject, targets, fingerprint=fingerprint, since=since)
        judged = tuple(evaluate_target(target, evidence) for target in targets)
        found.append(ScorecardRow(subject=subject, evidence=evidence, judged=judged))
    return found


def _evidence(
    store: Store, subject: Subject, targets: Sequence[TargetSpec], *, fingerprint: str, since: float
) -> Measurements:
    timed = [one for one in targets if one.about.source == "race"]
    wanted = {target.batch_size or subject.rows for target in timed}
    results: dict[int, list[Mapping[str, Any]]] = {}
    failures: dict[int, str] = {}
    for trial in _trials(store, subject, since) if timed else ():
        size = _rows_of(trial, subject)
        if size not in wanted:
            continue
        if trial.state == "FAIL" and trial.error is not None and size not in results:
            failures.setdefault(size, trial.error["message"])
        elif (
            trial.state == "COMPLETE"
            and trial.result
            and trial.fingerprint == fingerprint
            and is_current(subject.spec, trial)
        ):
            results.setdefault(size, []).append(trial.result | {"trial": trial.id})
    if any(one.metric == "cpu_s" for one in timed):
        results = {size: [_whole(store, one) for one in found[:KEPT]] for size, found in results.items()}
    failures |= {size: why for size in wanted if (why := subject.refusal(size))}
    accuracy, failure = _accuracy(store, subject, targets)
    loads, load_failure = _loads(store, subject, targets, fingerprint=fingerprint, since=since)
    return Measurements(
        batch_size=subject.rows,
        results={size: found[:KEPT] for size, found in results.items()},
        failures=failures,
        size_bytes=subject.record.info["size_bytes"],
        summaries=_summaries(accuracy, targets) if accuracy is not None else {},
        accuracy_failure=failure,
        has_dataset=subject.spec.dataset is not None,
        arena=subject.spec.session.enable_cpu_mem_arena is not False,
        loads=loads,
        load_failure=load_failure,
    )


def _loads(
    store: Store, subject: Subject, targets: Sequence[TargetSpec], *, fingerprint: str, since: float
) -> tuple[list[LoadPoint], str]:
    """Return the points of its load tests, newest first, and why the newest failed (empty: it did not)."""
    if not any(one.load is not None for one in targets):
        return [], ""

    def is_it(spec: Mapping[str, Any], rows: int | None) -> bool:
        return _is_same_under_load(spec, rows, subject)

    points: list[LoadPoint] = []
    failure = ""
    sha256 = subject.record.content_sha256
    for trial in store.trials(model_sha256=sha256, kind="load", limit=MAX_TRIALS):
        if trial.created_at < since or trial.fingerprint not in ("", fingerprint):
            continue
        kept: Any = (trial.result or {}).get("load")
        if kept is not None and trial.fingerprint == fingerprint:
            points += points_of(kept, trial.id, is_it=is_it)
        elif trial.state == "FAIL" and trial.error is not None and not points and is_it(trial.spec, None):
            failure = failure or trial.error["message"]
    return points, failure


def _is_same_under_load(asked: Mapping[str, Any], rows: int | None, subject: Subject) -> bool:
    """Whether a load test is of the subject: the same model, settings, dynamic batching and batch size.

    Args:
        asked: spec of the load test.
        rows: samples of its requests; None: its own batch size.
        subject: the configuration.
    """
    spec = subject.spec
    try:
        found = spec_from_dict(asked)
        if (rows or resolve_batch(found.workload, subject.record.info)) != subject.rows:
            return False
    except SpecError:  # stored by another version, or a batch that the model does not take
        return False
    hashes = {found.model.sha256, spec.model.sha256} - {None}
    same = same_request(_settings(found), _settings(spec))
    return same and len(hashes) < 2 and found.dynamic_batching == spec.dynamic_batching


def _trials(store: Store, subject: Subject, since: float) -> list[Trial]:
    """Trials with the subject's settings, at any batch, newest first."""
    sha256 = subject.record.content_sha256
    found: list[Trial] = []
    for kind in ("measure", "reference"):
        found += store.trials(model_sha256=sha256, kind=kind, limit=MAX_TRIALS)
    found = [one for one in found if one.created_at >= since and _same_settings(one, subject.spec)]
    return sorted(found, key=lambda one: one.created_at, reverse=True)


def _same_settings(trial: Trial, spec: TrialSpec) -> bool:
    try:
        return same_request(_settings(spec_from_dict(trial.spec)), _settings(spec))
    except SpecError:  # stored by another version
        return False


def _settings(spec: TrialSpec) -> TrialSpec:
    """The spec without batch and path: the hash identifies the model."""
    model = spec.model.model_copy(update={"path": "model", "sha256": None})
    workload = spec.workload.model_copy(update={"batch_size": None})
    return spec.model_copy(update={"model": model, "workload": workload})


def _rows_of(trial: Trial, subject: Subject) -> int:
    """Measured or requested batch size of a trial."""
    if trial.result and trial.result.get("batch_size"):
        return int(trial.result["batch_size"])
    asked: WorkloadSpec = spec_from_dict(trial.spec).workload
    return asked.batch_size or subject.rows


def _whole(store: Store, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result including its blocks."""
    return {**store.trial(result["trial"]).facts, "trial": result["trial"]}


# --- accuracy -----------------------------------------------------------------------------------------------


def _accuracy(store: Store, subject: Subject, targets: Sequence[TargetSpec]) -> tuple[Accuracy | None, str]:
    """Its stored accuracy, and why it cannot be measured (empty: it can)."""
    if subject.spec.dataset is None or not any(one.about.source == "accuracy" for one in targets):
        return None, ""
    _, failure = score_outputs(subject.record.info)
    if failure:
        return None, failure
    try:
        sha256 = subject.record.content_sha256
        return known_accuracy(store, subject.for_accuracy, model_sha256=sha256), ""
    except TunerError as error:  # the data is gone, or the engine is not ONNX Runtime
        return None, error.message


def _summaries(accuracy: Accuracy, targets: Sequence[TargetSpec]) -> dict[Condition, Mapping[str, Any]]:
    """(positive class, threshold) of targets -> the summary; the dataset gives unset ones."""
    found: dict[Condition, Mapping[str, Any]] = {}
    for target in targets:
        condition = target.positive_class, target.threshold
        if target.about.source != "accuracy" or condition in found:
            continue
        try:
            found[condition] = summary(accuracy, *condition)
        except TunerError as error:  # no such class, or the scores are gone
            found[condition] = {"failure": error.message}
    return found


# --- missing measurements -----------------------------------------------------------------------------------


def needed(card: Iterable[ScorecardRow]) -> MissingMeasurements:
    """Return the measurements that may decide open targets; an existing comparison is repeated, longer.

    Left out: batches that the model does not take, and accuracies that are already measured.
    """
    comparisons: dict[int, list[Subject]] = {}
    accuracies: list[Subject] = []
    loads: list[MissingLoad] = []
    for row in card:
        unknown = [one for one in row.judged if one.state == "UNKNOWN"]
        sizes = {row.evidence.rows_of(one.target) for one in unknown if one.target.about.source == "race"}
        for size in sorted(sizes):
            if not row.subject.refusal(size):
                comparisons.setdefault(size, []).append(row.subject)
        if row.subject.spec.dataset is not None and any(
            one.target.about.source == "accuracy" and one.cause == "missing" for one in unknown
        ):
            accuracies.append(row.subject)
        loads += _missing_loads(row, unknown)
    return MissingMeasurements(comparisons=comparisons, accuracies=accuracies, loads=loads)


def _missing_loads(row: ScorecardRow, unknown: Iterable[TargetResult]) -> list[MissingLoad]:
    """Return load tests for open targets; rates that need the same time share one as far as they fit."""
    asked = [one.target.load for one in unknown if one.target.load is not None]
    seconds: dict[float, float] = {}  # rate -> time that all of its targets need
    for target in asked:
        needed_s = seconds_needed(target, row.evidence.loads)
        seconds[target.rate] = max(seconds.get(target.rate, 0.0), needed_s)
    tests: dict[float, list[list[LoadTarget]]] = {}
    for target in sorted(asked, key=lambda one: one.rate):
        groups = tests.setdefault(seconds[target.rate], [[]])
        if not _fits(groups[-1], target):
            groups.append([])
        groups[-1].append(target)
    return [
        MissingLoad(
            subject=row.subject,
            load=LoadSpec(
                rates=tuple(dict.fromkeys(one.rate for one in targets)),
                limits=tuple(dict.fromkeys(one.limit for one in targets)),
                duration_s=duration_s,
            ),
        )
        for duration_s, groups in sorted(tests.items())
        for targets in groups
    ]


def _fits(targets: Sequence[LoadTarget], more: LoadTarget) -> bool:
    """Whether one load test takes another target."""
    rates, limits = {one.rate for one in targets}, {one.limit for one in targets}
    return len(rates | {more.rate}) <= MOST_RATES and len(limits | {more.limit}) <= MOST_LIMITS


def jobs_of(store: Store, work: MissingMeasurements, *, wait_quiet_s: float = 0.0) -> list[Job]:
    """Return the jobs that make the missing measurements, in order.

    Each comparison waits at most `wait_quiet_s` seconds for an idle machine.
    """
    study = f"scorecard #{secrets.token_hex(4)}"

    def compared(size: int, part: Sequence[Subject]) -> Job:
        what = f"scorecard of {part[0].record.name}: {len(part)} at batch {size}"
        asked = [Configuration(spec=one.at_batch(size), label=one.label) for one in part]
        protocol = job_types.sweep_protocol(asked)
        return job_types.comparison(
            asked, study=study, what=what, wait_quiet_s=wait_quiet_s, protocol=protocol
        )

    jobs = [
        compared(size, subjects[first : first + MAX_CANDIDATES])
        for size, subjects in work.comparisons.items()
        for first in range(0, len(subjects), MAX_CANDIDATES)
    ]
    if work.accuracies:
        name = work.accuracies[0].record.name
        what = f"scorecard of {name}: accuracy of {len(work.accuracies)}"
        task = accuracy_task(store, work.accuracies)
        specs = [one.for_accuracy for one in work.accuracies]
        jobs.append(job_types.task(task, kind="accuracy", what=what, specs=specs))
    return jobs + [load_job(one, wait_quiet_s=wait_quiet_s) for one in work.loads]


def load_job(missing: MissingLoad, *, wait_quiet_s: float = 0.0) -> Job:
    """Return the job of a missing load test."""
    subject = missing.subject
    return job_types.load(
        [Configuration(spec=subject.spec, label=subject.label)],
        missing.load,
        model_name=subject.record.name,
        wait_quiet_s=wait_quiet_s,
    )


def accuracy_task(store: Store, subjects: Sequence[Subject]) -> Callable[[Run], Mapping[str, Any]]:
    """Return the work that measures the accuracy of all `subjects`, for `job_types.task`.

    One failure does not stop the others; the result is {"failures": {label: message}}. When all fail, the
    task raises the first error.
    """

    def task(run: Run) -> Mapping[str, Any]:
        failures: dict[str, str] = {}
        first: TunerError | None = None
        for one in subjects:
            try:
                measure_accuracy(store, one.for_accuracy, run=run)
            except Cancelled:
                raise
            except TunerError as error:
                failures[one.label] = error.message
                first = first or error
        if first is not None and len(failures) == len(subjects):
            raise first
        return {"failures": failures}

    return task
