"""Verifies a recorded configuration on this machine: static checks, outputs and a comparison.

    verification(path, …)    the job; its result is a dictionary, `core.show.output_types.VerifyDocument`

Cheap steps come first: static checks, one run, the comparison, measurements for targets. A definite failure
ends the verification, because later results would be meaningless. `core.evidence.verification` judges. Runs
in the parent: it starts workers only through the service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core import __version__, wire
from core.evidence.comparison import Configuration, same_request
from core.evidence.measurement import Trial
from core.evidence.verification import (
    MARGIN,
    SpeedChange,
    Transfer,
    VerificationPart,
    overall,
    recorded_speedups,
    speed_part,
    transfer,
)
from core.process.job_worker import Progress
from core.run import job_types
from core.run.baseline import RecordedBaseline, compare_with, record_baseline
from core.run.bundle.opening import OpenedConfiguration, open_configuration
from core.run.job import Ending, Job, Outcome, Service
from core.run.plan import contestant_plan, feed_plan
from core.run.preparation import Prepared, Resolved, environment_of, prepare_trial
from core.run.scorecard import ScorecardRow, Subject, accuracy_task, load_job, needed, rows
from core.run.signing.checking import ANY, SignatureRule
from core.run.static_checks import CheckResults, run_static_checks
from core.run.verified_runtime import with_runtime_here
from core.spec import TrialSpec, ort_default, spec_from_dict
from core.store import ModelRecord
from core.wire.errors import (
    Cancelled,
    ErrorRecord,
    SpecError,
    StoreError,
    TunerError,
    record_from_error,
)
from core.wire.output_check import check_outputs, effective_precision, random_operators
from core.wire.plain_data import plain
from core.wire.units import visible

LABEL = "recorded configuration"
DEFAULT = "ONNX Runtime's default"
NOT_RUN = VerificationPart(state="UNKNOWN", why="It was not run.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of a verification."""

    path: Path  # of the bundle or the YAML file
    name: str = ""  # for display; empty: the file's
    measure: bool = True  # with a comparison; False: static checks and outputs only
    margin: float = MARGIN  # of the speed-up: a smaller difference counts as none
    effort: str | None = None  # of the comparison; None: as recorded
    budget_s: int | None = None
    expert: bool = False
    admit: Callable[[TrialSpec], TrialSpec] | None = None  # of a server: restricts untrusted files
    runtime: str | None = None  # to verify in; None: the one of the recorded name
    wait_quiet_s: float = 0.0
    baseline: RecordedBaseline | None = None  # recorded earlier on this machine, to compare with
    fail_if_slower: float | None = None  # a fraction of `baseline`
    record: Path | None = None  # path for a new baseline of this machine
    signature: SignatureRule = ANY

    @property
    def label(self) -> str:
        """The displayed name."""
        return self.name or self.path.name


@dataclass(slots=True, kw_only=True)
class _VerificationState:
    """Results so far."""

    facts: CheckResults = field(default_factory=CheckResults)
    runs: VerificationPart = NOT_RUN
    same: VerificationPart = NOT_RUN
    error: wire.OutputError | None = None
    transfers: list[Transfer] = field(default_factory=list)
    no_speed: str = "It was not measured."
    card: ScorecardRow | None = None
    change: SpeedChange | None = None
    trial: str = ""
    comparison: str = ""
    notes: list[str] = field(default_factory=list)
    kept: bool = False  # a baseline was recorded
    error_of_file: ErrorRecord | None = None  # why the baseline could not be recorded


def verification(request: Request) -> Job:
    """Return the job that verifies a recorded configuration here.

    It fails with `SpecError` where the file cannot be opened or `request.baseline` is of another machine.
    """

    def work(service: Service) -> Outcome:
        result = verify(request, service)
        return Outcome(whole=Ending(state="COMPLETE", result=result))

    return Job(
        kind="verify",
        what=f"verify {visible(request.label)[:80]}",
        work=work,
        wait_quiet_s=request.wait_quiet_s if request.measure else None,
    )


def verify(request: Request, service: Service) -> dict[str, Any]:
    """Verify, and return the result as plain JSON data.

    Raises:
        SpecError: the file cannot be opened, its signature is not the required one, or the baseline is of
            another machine.
        StoreError: the disk is full.
        Cancelled: the job was cancelled.
    """
    _progress(service, "open", request.label)
    with open_configuration(
        request.path,
        expert=request.expert,
        within=service.store.folder / "cache" / "bundles",
        rule=request.signature,
    ) as held:
        held = _with_effort(held, request)
        found = _VerificationState(notes=[held.note] if held.note else [])
        held, in_runtime = with_runtime_here(held, request.runtime)
        found.facts.checks += [in_runtime] if in_runtime is not None else []
        machine = environment_of(service.environment, held.spec.runtime)
        if request.baseline is not None:
            request.baseline.check(machine)
        resolved = _check_without_run(held, machine, service, found)
        if resolved is not None:
            _check_outputs(held, resolved, service, found)
        if request.measure and found.runs.state == "YES" and resolved is not None:
            _run_comparison(held, resolved, request, machine, service, found)
        elif not request.measure:
            found.no_speed = "The measurement was turned off."
            found.transfers = _unmeasured(held)
        elif found.runs.state == "NO":
            found.no_speed = "Not measured, because it does not run here as recorded."
        else:
            found.no_speed = "Not measured, because it is unknown whether it runs."
        return _document(held, request, machine, found)


def _with_effort(held: OpenedConfiguration, request: Request) -> OpenedConfiguration:
    """The recorded configuration with the requested effort."""
    if request.admit is not None:
        held = replace(held, spec=request.admit(held.spec))
    changes: dict[str, Any] = {}
    if request.effort is not None:
        changes |= {"precision": request.effort, "runs": None}
    if request.budget_s is not None:
        changes["budget_s"] = request.budget_s
    if not changes:
        return held
    protocol = {**held.spec.to_dict().get("protocol", {}), **changes}
    data = {**held.spec.to_dict(), "protocol": {k: v for k, v in protocol.items() if v is not None}}
    return replace(held, spec=spec_from_dict(data))


def _cancelled() -> Cancelled:
    return Cancelled("The verification was cancelled.", hint="Start it again.")


def _progress(service: Service, stage: str, text: str = "") -> None:
    service.on_progress(Progress(stage=stage, done=0, total=0, text=text))
    if service.cancel.is_set():
        raise _cancelled()


# --- static checks ------------------------------------------------------------------------------------------


def _check_without_run(
    held: OpenedConfiguration, machine: wire.Environment, service: Service, found: _VerificationState
) -> Resolved | None:
    """Run the static checks; None: it cannot run here, and `found.runs` says why."""
    _progress(service, "facts")
    resolved = run_static_checks(held, machine, service, found.facts)
    if broken := [one for one in found.facts.checks if one.state == "NO"]:
        found.runs = VerificationPart(state="NO", why=" ".join(one.why for one in broken))
        found.same = VerificationPart(state="UNKNOWN", why='Not run. See the reason under "runs".')
        return None
    return resolved


# --- one run ------------------------------------------------------------------------------------------------


def _check_outputs(
    held: OpenedConfiguration, resolved: Resolved, service: Service, found: _VerificationState
) -> None:
    """Run it once, on the recorded inputs if any, and compare its outputs with the recorded ones."""
    _progress(service, "answers")
    try:
        prepared = prepare_trial(resolved, service.store, service.run)
        spec, feeds = _fed(held, resolved, prepared)
        plan = contestant_plan(spec, path=prepared.path, session=prepared.session, feeds=feeds, torch=None)
        outputs = held.sample["outputs"] if held.sample is not None else ""
        asked: wire.AnswersPlan = {"plan": plan, "outputs": outputs}
        reply = service.run(
            wire.ANSWERS, asked, timeout_s=float(spec.protocol.timeout_s), runtime=spec.runtime
        )
    except (Cancelled, StoreError):  # a full disk is no fault of the configuration
        raise
    except TunerError as error:
        found.runs = VerificationPart(state="NO", why=error.message)
        return
    if reply["unusable"]:
        told = f"The recorded inputs and outputs cannot be used: {visible(reply['unusable'])}"
        found.runs = VerificationPart(state="UNKNOWN", why=f"It loads, but was not run. {told}")
        found.same = VerificationPart(state="UNKNOWN", why=told)
        return
    if reply["fallback"]:
        why = f"It runs, but not on the requested provider: {reply['fallback_reason']}"
        found.runs = VerificationPart(state="YES", why=why)
    else:
        ran = ", ".join(reply["effective_providers"])
        found.runs = VerificationPart(state="YES", why=f"It loads and runs on {ran}.")
    found.error = reply["error"]
    found.same = _sameness(held, resolved.record, prepared, reply)


def _fed(
    held: OpenedConfiguration, resolved: Resolved, prepared: Prepared
) -> tuple[TrialSpec, wire.FeedPlan]:
    """The configuration with the recorded inputs."""
    spec = resolved.spec
    if held.sample is None:
        return spec, prepared.feeds
    fed: dict[str, Any] = {"feeds": held.sample["inputs"], "feed_values": {}}
    fed |= {"image_mean": (), "image_std": ()}
    if prepared.info["batch_dim"] is not None:
        fed["batch_size"] = held.sample["rows"]
    spec = spec.model_copy(update={"workload": spec.workload.model_copy(update=fed)})
    return spec, feed_plan(spec.workload, prepared.info)


def _sameness(
    held: OpenedConfiguration, record: ModelRecord, prepared: Prepared, reply: wire.AnswersReply
) -> VerificationPart:
    """Check the outputs with the recorded tolerance, never a wider one."""
    if held.sample is None:
        return VerificationPart(state="UNKNOWN", why=held.no_sample or "No outputs are recorded.")
    precision = held.sample["precision"] or effective_precision("fp32", prepared.session)
    verdict = check_outputs(
        reply["error"],
        precision,
        held.sample["tolerance"],
        random=tuple(random_operators(record.info)),
    )
    state = {True: "NO", False: "YES", None: "UNKNOWN"}[verdict.breach]
    whole = f"{verdict.why[:1].upper()}{verdict.why[1:].rstrip('.')}."
    return VerificationPart(state=state, why=whole)


# --- the comparison -----------------------------------------------------------------------------------------


def _run_comparison(
    held: OpenedConfiguration,
    resolved: Resolved,
    request: Request,
    machine: wire.Environment,
    service: Service,
    found: _VerificationState,
) -> None:
    _progress(service, "race")
    began = time.time()
    spec = resolved.spec
    asked = [Configuration(spec=spec, label=LABEL, model=held.name)]
    before = _old_baseline(held, spec)
    if before is not None:
        asked.append(before)
    job = job_types.comparison(asked, model_name=held.name, what=f"verify {held.name}")
    ending = service.perform(job)
    if ending.state == "CANCELLED":
        raise _cancelled()
    comparison = service.store.comparison(job.id)
    trial = service.store.trial(next(one.trial for one in comparison.contestants if one.label == LABEL))
    found.comparison, found.trial = comparison.id, trial.id
    if ending.error is not None or trial.error is not None:
        told = trial.error["message"] if trial.error is not None else str(ending.error)
        found.no_speed = f"The comparison has no result: {told}"
        found.transfers = _unmeasured(held)
        return
    found.notes += [*_comparison_notes(held, trial), *comparison.warnings]
    found.transfers = _transfers(held, request, trial, before)
    if not found.transfers:
        found.no_speed = _nothing_recorded(held, spec)
    _judge_targets(held, resolved, machine, service, found, since=began)
    if request.baseline is not None:
        found.change = compare_with(request.baseline, trial, resolved.record, machine, limit=_limit(request))
    if request.record is not None:
        try:
            record_baseline(request.record, trial, resolved.record, machine)
            found.kept = True
        except SpecError as error:  # the measurement is kept anyway
            found.error_of_file = record_from_error(error)


def _limit(request: Request) -> float:
    return request.margin if request.fail_if_slower is None else request.fail_if_slower


def _old_baseline(held: OpenedConfiguration, spec: TrialSpec) -> Configuration | None:
    """The baseline of the recorded comparison, where its configuration is recorded."""
    if held.baseline is None or held.baseline["spec"] is None:
        return None
    other = spec_from_dict(held.baseline["spec"])
    if same_request(other, ort_default(spec)) or same_request(other, spec):
        return None
    return Configuration(spec=other, label=held.baseline["label"], role="baseline", model=held.name)


def _comparison_notes(held: OpenedConfiguration, trial: Trial) -> list[str]:
    """Notes on other processes, here and when it was recorded: they may explain a change."""
    busy, then = trial.facts.get("busy"), held.measured.get("busy")
    told = [f"During this measurement: {busy['words']}."] if busy else []
    if isinstance(then, dict) and then.get("words"):
        told.append(f"During the recorded measurement: {str(then['words'])[:200]}.")
    return told


def _transfers(
    held: OpenedConfiguration, request: Request, trial: Trial, before: Configuration | None
) -> list[Transfer]:
    """Each recorded speed-up and the same one here: versus the default, then versus the old baseline."""
    recorded = recorded_speedups(held.measured.get("contrasts"))
    here = recorded_speedups(trial.facts.get("contrasts"))  # in the same order
    if not recorded:
        return []
    found = [transfer(DEFAULT, recorded[0], here[0] if here else None, margin=request.margin)]
    if len(recorded) > 1 and held.baseline is not None:
        again = here[1] if before is not None and len(here) > 1 else None
        label = f"`{visible(held.baseline['label'])[:80]}`"
        found.append(transfer(label, recorded[1], again, margin=request.margin))
    return found


def _unmeasured(held: OpenedConfiguration) -> list[Transfer]:
    recorded = recorded_speedups(held.measured.get("contrasts"))
    return [transfer(DEFAULT, one, None) for one in recorded[:1]]


def _nothing_recorded(held: OpenedConfiguration, spec: TrialSpec) -> str:
    if same_request(spec, ort_default(spec)):
        return "It is ONNX Runtime's default itself, so there is no speed-up to reproduce."
    if held.measured.get("contrasts"):
        return "The recorded speed-up cannot be read."
    return "The file has no recorded speed-up: it was not measured, or measured without a comparison."


def _judge_targets(
    held: OpenedConfiguration,
    resolved: Resolved,
    machine: wire.Environment,
    service: Service,
    found: _VerificationState,
    *,
    since: float,
) -> None:
    """Judge the targets of the configuration, after measuring what this comparison does not give."""
    targets = resolved.spec.targets
    if not targets:
        return
    subject = Subject(label=LABEL, spec=resolved.spec, record=resolved.record)

    def judged() -> ScorecardRow:
        fingerprint = machine["fingerprint"]
        return rows(service.store, [subject], targets, fingerprint=fingerprint, since=since)[0]

    work = needed([judged()])
    for batch in sorted(set(work.comparisons) - {subject.rows}):
        _progress(service, "targets", f"batch {batch:,}")
        asked = [Configuration(spec=subject.at_batch(batch), label=LABEL, model=held.name)]
        service.perform(job_types.comparison(asked, model_name=held.name))
    for missing in work.loads:
        _progress(service, "targets", "load test")
        service.perform(load_job(missing))
    if work.accuracies:
        _progress(service, "targets", "labelled data")
        with suppress(SpecError):  # the row says why it is unknown
            accuracy_task(service.store, work.accuracies)(service.run)
    found.card = judged()


# --- the result ---------------------------------------------------------------------------------------------


def _document(
    held: OpenedConfiguration, request: Request, machine: wire.Environment, found: _VerificationState
) -> dict[str, Any]:
    judged = found.card.judged if found.card is not None else ()
    fast = speed_part(found.transfers, otherwise=found.no_speed)
    asked_speed = request.measure and (bool(held.measured.get("contrasts")) or request.baseline is not None)
    state = overall(
        runs=found.runs,
        same=found.same,
        transfers=found.transfers,
        targets=[one.state for one in judged],
        change=found.change,
        asked_speed=asked_speed,
        measure=request.measure,
    )
    document = {
        "state": state,
        "passed": state in ("CONFIRMED", "NOT_MEASURED"),
        "file": request.label,
        "model": {"name": held.name, "sha256": held.spec.model.sha256 or ""},
        "recorded_trial": held.trial or None,
        "signature": held.signature,
        "runs": found.runs,
        "same": {**plain(found.same), "error": found.error},
        "fast": {**plain(fast), "gains": found.transfers},
        "checks": found.facts.checks,
        "differences": [
            {"name": name, "recorded": one, "here": other} for name, one, other in found.facts.differences
        ],
        "targets": [one.to_dict() for one in judged],
        "change": None if found.change is None else {**plain(found.change), "passed": found.change.passed},
        "margin": request.margin,
        "trial": found.trial or None,
        "comparison": found.comparison or None,
        "recorded_to": str(request.record) if found.kept else None,
        "notes": found.notes,
        "tool_version": __version__,
        "error": found.error_of_file,
    }
    return plain(document)  # type: ignore[no-any-return] # a mapping stays one
