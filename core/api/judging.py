"""Judges models and configurations: `accuracy` on labelled data, `scorecard` against targets."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import PurePath
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import without_runtimes
from core.api.models import ModelLike, reference
from core.api.requests import Config, config_data, with_sizes
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.api.settings import given_of
from core.process.job_worker import Run, refuse_worker
from core.run import job_types
from core.run.accuracy import BATCH_ROWS as BATCH_ROWS
from core.run.accuracy import DELTA as DELTA
from core.run.accuracy import check_accuracy_before, compare, measure_accuracy
from core.run.accuracy import curve as curve
from core.run.accuracy import decision as decision
from core.run.accuracy import key_of as key_of
from core.run.accuracy import roc as roc
from core.run.accuracy import score_outputs as score_outputs
from core.run.accuracy import scores_of as scores_of
from core.run.accuracy import summary as summary
from core.run.job import Job
from core.run.preparation import resolve_trial
from core.run.scorecard import MissingMeasurements, ScorecardRow, Subject, jobs_of, needed, rows
from core.run.scorecard import on_model as on_model
from core.show import documents, frames
from core.show.format import duration, short
from core.show.sheets import Sheet, accuracies, scorecards
from core.spec import TrialSpec, spec_from_dict
from core.spec.axes import RUNTIME
from core.spec.datasets import dataset_plan
from core.store import Accuracy
from core.store.library import resolve_model
from core.wire.errors import (
    Cancelled,
    ErrorRecord,
    SpecError,
    TunerError,
    WorkerError,
    error_from_record,
    record_from_error,
)
from core.wire.units import visible

# --- accuracy -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracies:
    """Accuracies of models on the same data; with a reference, each is compared with it."""

    found: Sequence[Accuracy | None]  # in the order of the models; None: it failed
    compared: Sequence[Mapping[str, Any]] = ()
    errors: Sequence[ErrorRecord] = ()

    @property
    def measured(self) -> list[Accuracy]:
        """Those that did not fail."""
        return [one for one in self.found if one is not None]


@arguments.checked(against=arguments.model)
def accuracy(
    models: ModelLike | Sequence[ModelLike] | None = None,
    data: str | PathLike[str] | Mapping[str, Any] | None = None,
    config: Config = None,
    *,
    against: ModelLike | None = None,
    delta: float = DELTA,
    again: bool = False,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Accuracies]:
    """Measure the accuracy of models on labelled data.

    Args:
        models: see `tune`; None: that of `config`.
        data: path of labelled data, or the `dataset` of a YAML file as a dict; None: that of `config`.
        config: configuration to start from, see `tune`.
        against: model to compare with, sample by sample.
        delta: loss of accuracy that is acceptable, a share of 1.
        again: measure again, even if a result is stored.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`. Of several values of `runtime` each model is measured in every runtime.

    Raises:
        SpecError: no data, or data that do not fit.
        ModelError: a model does not exist.
        TunerError: no model could be measured. An error of one of several is in the result.
    """
    session = session or default_session()
    listed: list[Any] = [*models] if isinstance(models, list) else [models]
    listed += [] if against is None else [against]
    runtimes, given = without_runtimes(given_of(settings))
    in_each = [{**given, RUNTIME: [one]} for one in runtimes] or [given]
    specs = [_with_data(one, data, config, each, session) for each in in_each for one in listed]
    for spec in specs:
        _check_exists(spec, session)
    job = accuracy_job(session, specs, again=again)
    session.last = accuracy_result(Accuracies(found=()))  # for an interrupted run
    ended: Any = result_of(session.run(job, on_progress=on_progress, cancel=cancel))
    measured, errors = ended["measured"], ended["errors"]
    found = [None if one is None else session.store.accuracy(one) for one in measured]
    compared = [] if against is None else _compared(found, len(listed), delta)
    result = session.last = accuracy_result(Accuracies(found=found, compared=compared, errors=errors))
    if len(errors) == len(found):
        raise error_from_record(errors[0])
    return result


def _compared(found: Sequence[Accuracy | None], models: int, delta: float) -> list[Mapping[str, Any]]:
    """Compare each model with the last one in the same runtime; `found` has all models once per runtime."""
    compared: list[Mapping[str, Any]] = []
    for start in range(0, len(found), models):
        *judged, base = found[start : start + models]
        compared += [compare(base, one, delta) for one in judged if base is not None and one is not None]
    return compared


def _check_exists(spec: TrialSpec, session: Session) -> None:
    """Refuse a model that does not exist; what else may fail is in the result.

    Raises:
        ModelError: there is no such model.
    """
    session.admit(spec)  # before anything reveals what lies at a path
    with contextlib.suppress(WorkerError):  # it exists, and is not inspected yet
        resolve_model(session.store, spec.model.path, run=refuse_worker)


def _with_data(
    model: ModelLike | None,
    data: str | PathLike[str] | Mapping[str, Any] | None,
    config: Config,
    given: Mapping[str, Any],
    session: Session,
) -> TrialSpec:
    """Return the spec of a model on labelled data; `data` changes the dataset of the configuration."""
    ref = reference(model, session)
    found = config_data(None if ref is None else ref.removeprefix("variant:"), config, given, session)
    before = found.get("dataset", {})
    changes: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    if data is not None and not isinstance(data, Mapping):
        changes = {"path": fspath(data)}
    dataset = {**before, **{name: one for name, one in changes.items() if one is not None}}
    if images := changes.get("preprocessing"):
        dataset["preprocessing"] = {
            **before.get("preprocessing", {}),
            **arguments.mapping("preprocessing", images),
        }
    if "path" not in dataset:
        raise SpecError(
            "No labelled data are given.",
            hint="Give `data`, for example sample_models/digits_test.npz.",
        )
    return spec_from_dict({**found, "dataset": dataset})


def accuracy_job(session: Session, specs: Sequence[TrialSpec], *, again: bool = False) -> Job:
    """Return the checked job that measures the accuracy of each spec on its dataset, one after another.

    An error of one does not stop the others. Its result has `measured`, the ID for each spec (None: it
    failed), and `errors`.

    Raises:
        TunerError: none can be measured, or the session does not admit one.
    """
    errors: list[TunerError] = []
    for spec in specs:
        session.admit(spec)
        try:
            check_accuracy_before(session.store, spec, run=session.inspect)
        except TunerError as error:
            errors.append(error)
    if len(errors) == len(specs):
        raise errors[0]

    def work(run: Run) -> Mapping[str, Any]:
        measured: list[str | None] = []
        failed: list[ErrorRecord] = []
        for spec in specs:
            try:
                environment = session.scheduler.environment
                found = measure_accuracy(
                    session.store, spec, run=run, environment=environment, reuse=not again
                )
                measured.append(found.id)
            except Cancelled:
                raise
            except TunerError as error:
                record = record_from_error(error)
                name = f"`{PurePath(spec.model.path).name}`: " if len(specs) > 1 else ""
                measured.append(None)
                failed.append({**record, "message": f"{name}{record['message']}"})
        return {"measured": measured, "errors": failed}

    what = f"accuracy of {short(', '.join(PurePath(spec.model.path).name for spec in specs))}"
    return job_types.task(work, kind="accuracy", what=what, specs=specs)


def accuracy_result(found: Accuracies) -> Result[Accuracies]:
    """Return the result of accuracies; with one, its ID finds it again."""

    def content(one: Accuracies) -> Sheet:
        sheets = [accuracies.accuracy_sheet(each, summary(each)) for each in one.measured]
        sheets += map(accuracies.compared, one.compared)
        headline = sheets[0].headline if len(sheets) == 1 else f"accuracy of {len(one.measured)} models"
        return Sheet(headline, [part for sheet in sheets for part in sheet.parts])

    def summaries(one: Accuracies) -> list[tuple[Accuracy, Mapping[str, Any]]]:
        return [(each, summary(each)) for each in one.measured]

    return Result(
        kind="accuracy",
        id=found.measured[0].id if len(found.measured) == 1 else "",
        read=lambda: found,
        document=lambda one: documents.accuracies(one.measured, one.compared, one.errors),
        content=content,
        says=lambda one: accuracies.headline(summaries(one), one.compared, one.errors),
        numbers=lambda one: frames.accuracies(summaries(one), one.compared),
    )


# --- scorecard ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """A configuration judged against its targets, and the errors of its measurements."""

    row: ScorecardRow
    errors: list[ErrorRecord] = field(default_factory=list)


@arguments.checked()
def scorecard(
    config: str | PathLike[str] | Mapping[str, Any] | Result[Any],
    *,
    reuse: bool = False,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Scorecard]:
    """Check a configuration against its targets: measure what is missing, and judge each target.

    Args:
        config: YAML file with targets, ID of a trial that has targets, or the dict of a configuration.
        reuse: reuse earlier measurements of this machine.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`.

    Raises:
        SpecError: no targets, or a target that no measurement can decide.
        TunerError: the configuration cannot be run. An error of a measurement is in the result.
    """
    session = session or default_session()
    source = arguments.config("config", config)
    spec = spec_from_dict(config_data(None, source, given_of(settings), session))
    _check_answerable(spec, source)
    [spec], sizes = with_sizes([spec], session)
    session.admit(spec)
    resolved = resolve_trial(spec, session.store, session.inspect)
    subject = Subject(label=resolved.record.name, spec=resolved.spec, record=resolved.record)
    since, fingerprint = (0.0 if reuse else time.time()), session.fingerprint
    errors: list[ErrorRecord] = []

    def read() -> Scorecard:
        targets = subject.spec.targets
        found = rows(session.store, [subject], targets, fingerprint=fingerprint, since=since)
        return Scorecard(row=found[0], errors=errors)

    work = needed([read().row])
    jobs = scorecard_jobs(session, work, wait_quiet_s=wait_quiet_s)
    compared = (job.comparison for job in jobs if job.comparison is not None)
    name = next((one.study for one in compared), "")
    result = session.last = Result(
        kind="scorecard",
        id=name,
        read=read,
        document=lambda one: {**documents.scorecard(one.row, one.errors), **sizes},
        content=lambda one: scorecards.scorecard(one.row),
        says=lambda one: scorecards.headline([one.row]),
        numbers=lambda one: frames.targets([one.row]),
        store=session.store,
        refs=[name] * bool(name),
    )
    if jobs:
        parts = [f"a comparison at batch {size:,}" for size in sorted(work.comparisons)]
        parts += ["an accuracy measurement"] * bool(work.accuracies)
        parts += [
            f"a load test of {duration(one.seconds)} at "
            f"{', '.join(f'{rate:,.6g}' for rate in one.load.rates)} requests/s"
            for one in work.loads
        ]
        session.note(f"{visible(subject.label)} needs {', '.join(parts)}")
    for job in jobs:
        status = session.run(job, on_progress=on_progress, cancel=cancel)
        if status.error is not None:
            errors.append(status.error)
    return result


def scorecard_jobs(session: Session, work: MissingMeasurements, *, wait_quiet_s: float = 0.0) -> list[Job]:
    """Return the jobs that measure what a scorecard lacks, in order."""
    return jobs_of(session.store, work, wait_quiet_s=wait_quiet_s)


def _check_answerable(spec: TrialSpec, source: str | Mapping[str, Any]) -> None:
    """Refuse, before measuring, targets that no measurement can decide.

    Raises:
        SpecError: no targets, or an accuracy target without labelled data.
    """
    if not spec.targets:
        name = f"`{source[:80]}`" if isinstance(source, str) else "The configuration"
        raise SpecError(
            f"{name} has no targets to check.",
            hint="Add targets under `targets:`, for example `- {metric: latency_p99, at_most: 3 ms}`.",
        )
    if missing := next((one for one in spec.targets if one.about.source == "accuracy"), None):
        if spec.dataset is None:
            raise SpecError(
                f"The target on {missing.what} needs labelled data, but the configuration names none.",
                hint="Add `dataset: {path: …}`.",
            )
        dataset_plan(spec.dataset)
