"""Performs one comparison, from its specs to its results.

Steps: resolve and plan each configuration (one that cannot be prepared fails alone) → measure → evidence → a
short profile of each candidate for the providers used. No queue, no thread, no store of trials: the
scheduler owns those, and calls `perform_comparison` when it is this comparison's turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core import wire
from core.evidence import continuation
from core.evidence.comparison import Comparison, Contestant, same_request
from core.evidence.record import Entry, RawComparison, Reference, Settings
from core.evidence.result import Evidence, MeasuredConfiguration, self_test_result
from core.evidence.verdict import ratio_is_known
from core.run.different_models import Origin, compare_originals, refuse
from core.run.job import Ending, Outcome, Service
from core.run.launches import run_launches
from core.run.plan import contestant_plan, reference_plan, shape_feeds, torch_source
from core.run.preparation import (
    Prepared,
    Resolved,
    describe,
    describe_runtime,
    model_notes,
    prepare_trial,
    resolve_trial,
    with_workaround,
)
from core.run.prior import prior_of, usual_s, with_lower_bound
from core.run.profiling import placement
from core.run.variants import model_facts, precision_of_model, variant_of
from core.spec import ProtocolSpec, TrialSpec
from core.spec import ort_default as default_of
from core.spec.effort import STAGES, Effort, effort
from core.store.library import resolve_model
from core.wire import engines
from core.wire.errors import Cancelled, TunerError
from core.wire.output_check import Pairs, not_compared_words, random_operators
from core.wire.runtime import is_too_new

FORKABLE = ("CPUExecutionProvider",)  # libraries of other providers may not survive a fork
SELF_TEST = Effort(name="quick", target=0.01, budget_s=20, looks=(9, 14, 21, 32))  # noise of this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedConfiguration:
    """A configuration that is ready to be measured."""

    configuration: MeasuredConfiguration
    entry: Entry
    resolved: Resolved
    prepared: Prepared
    origin: Origin


def protocol_of(
    spec: ProtocolSpec, *, different_models: bool = False, stage: str = "", family: int = 1
) -> dict[str, Any]:
    """Return the recorded protocol of a comparison, with a seed for the order of its rounds.

    Args:
        spec: effort and measurement settings.
        different_models: allow models with different outputs.
        stage: of a search, see `STAGES`; empty: the comparison gives a result.
        family: number of simultaneous intervals: all of them together have 95 % confidence.
    """
    precision = effort(stage or spec.effort)
    looks = list(precision.looks) if spec.runs is None else []
    joint = {} if stage else {"family": family, "splits": continuation.parts(len(looks), family)}
    return {
        "precision": precision.name,
        "target": precision.target,
        "budget_s": precision.budget_s if spec.budget_s is None else spec.budget_s,
        "margin": spec.margin,
        "runs": spec.runs,
        "looks": looks,
        "seed": secrets.randbelow(2**31),
        **joint,
        **({"different_models": True} if different_models else {}),
    }


def perform_comparison(
    comparison: Comparison,
    specs: Mapping[str, TrialSpec],
    service: Service,
    earlier: RawComparison | None = None,
) -> Outcome:
    """Measure the configurations of `comparison`, and return the outcome of each.

    A cancelled comparison keeps its rounds: the results are then partial, and every state is CANCELLED except
    that of trials whose group had ended.

    Args:
        comparison: configurations and protocol.
        specs: of each configuration, by trial.
        service: store, workers and callbacks.
        earlier: the record of the continued comparison of the same configurations, in their order.

    Raises:
        Cancelled: while the configurations were being prepared.
        SpecError: one of a continued comparison can no longer be prepared; or the models have different
            outputs, and the protocol does not allow that.
    """
    failed: dict[str, Ending] = {}
    ready: list[_PreparedConfiguration] = []
    for contestant in comparison.contestants:
        try:
            ready.append(_prepare(contestant, specs[contestant.trial], service))
        except Cancelled:
            raise
        except TunerError as error:
            failed[contestant.trial] = Ending(state="FAIL", error=error)
    if earlier is not None and failed:
        raise next(ending.error for ending in failed.values() if ending.error is not None)
    if not any(one.configuration.contestant.role == "candidate" for one in ready):
        return _no_candidate(comparison, failed)
    apart = _check_originals(comparison, ready, specs, service)
    if comparison.protocol["precision"] in STAGES:  # their outputs are not checked
        ready = [replace(one, entry=replace(one.entry, reference=None)) for one in ready]
    try:
        machine, notes = describe(service.environment)
        ready = [_with_notes(_with_environment(one, service), notes) for one in ready]
        evidence = replace(_run_comparison(comparison, ready, specs, service, machine, earlier), apart=apart)
    except TunerError as error:
        return _without_rounds(comparison, failed, error)
    if comparison.protocol["precision"] not in STAGES:
        evidence = _with_placements(evidence, ready, service)
    return _outcome(comparison, evidence, ready, failed)


def _with_environment(one: _PreparedConfiguration, service: Service) -> _PreparedConfiguration:
    """Add the libraries of another runtime than ORTune's own."""
    described, notes = describe_runtime(service.environment, one.resolved.spec.runtime)
    found = replace(one.configuration, environment=described)
    return _with_notes(replace(one, configuration=found), notes)


def _with_notes(one: _PreparedConfiguration, notes: Sequence[str]) -> _PreparedConfiguration:
    return replace(one, configuration=replace(one.configuration, notes=(*one.configuration.notes, *notes)))


# --- preparation --------------------------------------------------------------------------------------------


def _prepare(contestant: Contestant, spec: TrialSpec, service: Service) -> _PreparedConfiguration:
    resolved = resolve_trial(spec, service.store, service.run)
    service.on_resolved(contestant.trial, resolved)
    prepared = prepare_trial(resolved, service.store, service.run)
    origin, unknown = _origin(resolved, prepared, service)
    reference = origin.reference
    configuration = MeasuredConfiguration(
        contestant=contestant,
        precision=_precision(resolved),
        session=prepared.session,
        random=tuple(random_operators(resolved.record.info)),
        feeds=prepared.feeds,
        model=model_facts(resolved.record),
        origin=origin.sha256,
        origin_name=origin.name,
        notes=tuple([*model_notes(resolved, prepared), *unknown]),
        tolerance=spec.protocol.tolerance,
        reference=None if reference is None else {"model": reference.model, "sha256": reference.sha256},
    )
    entry = replace(entry_of(contestant.label, resolved, prepared), reference=reference)
    return _PreparedConfiguration(
        configuration=configuration, entry=entry, resolved=resolved, prepared=prepared, origin=origin
    )


def _precision(resolved: Resolved) -> str:
    """Precision of the model that runs: of the copy that the spec asks for, else the model's own."""
    asked = resolved.spec.model.precision
    return asked if asked != "fp32" else precision_of_model(resolved.record)


def _origin(resolved: Resolved, prepared: Prepared, service: Service) -> tuple[Origin, list[str]]:
    """The original model, whose outputs are the reference; and notes where it is not available."""
    record, variant = resolved.record, variant_of(resolved.record) or {}
    sha256, name = variant.get("root", record.content_sha256), variant.get("root_name", record.name)
    try:
        original = resolve_model(service.store, sha256, run=service.run) if variant else record
    except Cancelled:
        raise
    except TunerError as error:
        lost = Origin(sha256=sha256, name=name, precision=precision_of_model(record), reference=None)
        return lost, [not_compared_words(error.message)]
    cpus = resolved.spec.protocol.cpus
    libraries = prepared.session.get("custom_op_libraries", [])
    plan = reference_plan(original.path, original.info, prepared.feeds, cpus=cpus, libraries=libraries)
    if is_too_new(original.info["ir_version"], original.info["opset"].get("", 0)):
        plan["runtime"] = resolved.spec.runtime
    reference = Reference(model=original.name, sha256=original.content_sha256, plan=plan)
    precision = precision_of_model(original)
    return Origin(sha256=sha256, name=original.name, precision=precision, reference=reference), []


def _check_originals(
    comparison: Comparison,
    ready: Sequence[_PreparedConfiguration],
    specs: Mapping[str, TrialSpec],
    service: Service,
) -> Pairs:
    """Output checks between the originals of the comparison; empty where there is only one.

    Raises:
        SpecError: their outputs differ, and the protocol does not allow different models.
    """
    origins = list({one.origin.sha256: one.origin for one in ready}.values())
    if len(origins) == 1:
        return {}
    against = {ready[one].origin.sha256: ready[one].origin for one in _references(comparison, ready, specs)}
    found = compare_originals(
        origins,
        list(against.values()),
        tolerance=ready[0].configuration.tolerance,
        cancel=service.cancel,
        on_progress=service.on_progress,
        timeout_s=float(max(one.resolved.spec.protocol.timeout_s for one in ready)),
    )
    if not comparison.protocol.get("different_models"):
        refuse(origins, found)
    return found


def entry_of(label: str, resolved: Resolved, prepared: Prepared) -> Entry:
    """Return the entry of a resolved trial, without its reference."""
    spec = resolved.spec
    plan = contestant_plan(
        spec,
        path=prepared.path,
        session=prepared.session,
        feeds=prepared.feeds,
        torch=torch_source(resolved.record),
    )
    names = {one["name"] for one in plan["session"]["providers"]}
    return Entry(
        label=label,
        plan=plan,
        shapes=shape_feeds(spec, prepared.info),
        fresh_process=not (engines.can(spec.engine, "fork") and names.issubset(FORKABLE)),
    )


def _no_candidate(comparison: Comparison, failed: Mapping[str, Ending]) -> Outcome:
    """The outcome where no candidate could be prepared."""
    idle = Cancelled("Not measured: no candidate could run.", hint="See the candidates' errors.")
    first = next(failed[one.trial] for one in comparison.contestants if one.role == "candidate")
    trials = {one.trial: Ending(state="CANCELLED", error=idle) for one in comparison.contestants}
    return Outcome(whole=first, trials={**trials, **failed})


def _without_rounds(comparison: Comparison, failed: Mapping[str, Ending], error: TunerError) -> Outcome:
    """The outcome where the comparison ended before any round."""
    ending = Ending(state="CANCELLED" if isinstance(error, Cancelled) else "FAIL", error=error)
    trials = {one.trial: ending for one in comparison.contestants}
    return Outcome(whole=ending, trials={**trials, **failed}, warnings=_warnings(comparison, failed))


def _warnings(comparison: Comparison, failed: Mapping[str, Ending]) -> list[str]:
    return [
        f"`{one.label}` could not be measured: {ending.error.message}"
        for one in comparison.contestants
        if (ending := failed.get(one.trial)) is not None and ending.error is not None
    ]


# --- measurement --------------------------------------------------------------------------------------------


CourseStep = tuple[float, float, float, float]  # seconds since the start, ratio, lower and upper bound


def _run_comparison(
    comparison: Comparison,
    ready: Sequence[_PreparedConfiguration],
    specs: Mapping[str, TrialSpec],
    service: Service,
    machine: wire.Environment | None,
    earlier: RawComparison | None,
) -> Evidence:
    trials = [one.configuration.trial for one in ready]
    baseline, anchor = _references(comparison, ready, specs)
    protocol = comparison.protocol
    splits = continuation.splits(protocol)
    settings = Settings(
        effort=replace(effort(protocol["precision"]), looks=tuple(protocol["looks"])),
        splits=splits,
        family=continuation.family(protocol),
        least=protocol.get("least", 0),
        budget_s=float(protocol["budget_s"]),
        margin=protocol["margin"],
        seed=protocol["seed"],
        timeout_s=float(max(one.resolved.spec.protocol.timeout_s for one in ready)),
        baseline=baseline,
        anchor=anchor,
        runs=protocol["runs"],
        prior_at=with_lower_bound(prior_of(service.store, machine), protocol.get("prior")),
    )

    course: dict[str, list[CourseStep]] = {}

    def on_live(live: dict[str, Any]) -> None:
        contrasts = [
            {**one, "candidate": trials[one["candidate"]], "baseline": trials[one["baseline"]]}
            for one in live["contrasts"]
        ]
        _extend_course(course, contrasts, live["elapsed_s"])
        by_trial = {
            name: {trials[index]: value for index, value in live[name].items()}
            for name in ("p50_s", "rate_per_s", "rows_fed")
        }
        steps = {trial: list(told) for trial, told in course.items()}
        service.on_live({**live, "contrasts": contrasts, "course": steps, **by_trial})

    record = run_launches(
        [one.entry for one in ready],
        settings,
        cancel=service.cancel,
        on_progress=service.on_progress,
        on_live=on_live,
        earlier=earlier,
        fork_server=service.fork_server,
    )
    return Evidence(
        comparison=comparison.id,
        record=record,
        configurations=[one.configuration for one in ready],
        looks=splits,
        margin=protocol["margin"],
        baseline=baseline,
        anchor=anchor,
        environment=machine,
        usual_s=_usual_s(comparison, ready[anchor].resolved, service, machine),
    )


def _extend_course(
    course: dict[str, list[CourseStep]], contrasts: Sequence[Mapping[str, Any]], elapsed_s: float
) -> None:
    """Append every known interval that has changed to the course of its candidate."""
    for one in contrasts:
        ratio, low, high = one["ratio"], one["ratio_low"], one["ratio_high"]
        told = course.setdefault(one["candidate"], [])
        if ratio_is_known(low, high) and (not told or told[-1][1:] != (ratio, low, high)):
            told.append((elapsed_s, ratio, low, high))


def _usual_s(
    comparison: Comparison, anchor: Resolved, service: Service, machine: wire.Environment | None
) -> Sequence[float]:
    if comparison.protocol["precision"] in STAGES:  # none of its numbers is a result
        return ()
    sha256, key = anchor.record.content_sha256, anchor.spec.key()
    return usual_s(service.store, machine, model_sha256=sha256, key=key, study=comparison.study)


def _references(
    comparison: Comparison, ready: Sequence[_PreparedConfiguration], specs: Mapping[str, TrialSpec]
) -> tuple[int, int]:
    """Indices of the baseline and the ORT default; the other replaces a missing one."""
    default = default_of(specs[comparison.contestants[0].trial])
    trials = [one.configuration.trial for one in ready]
    roles = {one.trial: one.role for one in comparison.contestants}
    anchors = [one for one in trials if roles[one] == "anchor" or same_request(specs[one], default)]
    anchors.sort(key=lambda one: roles[one] != "anchor")
    references = [one for one in (comparison.baseline, *anchors) if one in trials]
    baseline = trials.index(references[0]) if references else 0
    return baseline, trials.index(anchors[0]) if anchors else baseline


def _with_placements(
    evidence: Evidence, ready: Sequence[_PreparedConfiguration], service: Service
) -> Evidence:
    """Add the providers used by the candidates; a failure adds a note and keeps the comparison."""
    found: list[MeasuredConfiguration] = []
    over = evidence.record.outcome == "cancelled"
    for one, ran in zip(ready, evidence.record.ran, strict=True):
        configuration = one.configuration
        asked = configuration.contestant.role == "candidate" and engines.can(
            one.resolved.spec.engine, "profile"
        )
        if asked and ran.error is None and not over:
            try:
                run_s = max(ran.warm["median_ns"] if ran.warm is not None else 0, 1) / 1e9
                where, casts, notes = placement(one.resolved, one.prepared, service.run, run_s)
            except Cancelled:
                over, where, casts = True, None, None
                notes = ["The placement of nodes on providers is unknown: the pass was cancelled."]
            configuration = replace(
                configuration, placement=where, casts=casts, notes=(*configuration.notes, *notes)
            )
        found.append(configuration)
    return replace(evidence, configurations=found)


# --- outcome ------------------------------------------------------------------------------------------------


def _outcome(
    comparison: Comparison,
    evidence: Evidence,
    ready: Sequence[_PreparedConfiguration],
    failed: Mapping[str, Ending],
) -> Outcome:
    trials = dict(failed)
    for index, one in enumerate(ready):
        trials[one.configuration.trial] = _ending(evidence, index, one)
    states = {trials[one.trial].state for one in comparison.contestants if one.role == "candidate"}
    result = evidence.to_dict() if evidence.record.orders else None
    if evidence.record.outcome == "cancelled":
        whole = Ending(state="CANCELLED", error=_cancelled(), result=result)
    elif "COMPLETE" in states:
        whole = Ending(state="COMPLETE", result=result)
    else:
        first = next(trials[one.trial] for one in comparison.contestants if one.role == "candidate")
        whole = Ending(state="FAIL", error=first.error, result=result)
    return Outcome(whole=whole, trials=trials, warnings=_warnings(comparison, failed))


def _ending(evidence: Evidence, index: int, one: _PreparedConfiguration) -> Ending:
    record, result = evidence.record, evidence.trial_result(index)
    error = record.ran[index].error
    if error is not None:
        return Ending(state="FAIL", error=with_workaround(error, one.prepared), result=result)
    if record.outcome == "cancelled" and not _had_ended(record, index):
        return Ending(state="CANCELLED", error=_cancelled(), result=result)
    if result is None:
        idle = Cancelled("Not measured: all other configurations had failed.", hint="See the others' errors.")
        return Ending(state="CANCELLED", error=idle)
    return Ending(state="COMPLETE", result=result)


def _had_ended(record: RawComparison, index: int) -> bool:
    """Whether a configuration's group had ended when the comparison was cancelled."""
    *before, last = record.groups or [[]]
    return index not in last and any(index in group for group in before)


def _cancelled() -> Cancelled:
    return Cancelled(
        "The comparison was cancelled; the rounds measured before are kept.", hint="Start it again."
    )


# --- self-test ----------------------------------------------------------------------------------------------


def perform_self_test(spec: TrialSpec, service: Service) -> dict[str, Any]:
    """Compare a configuration with itself, to measure the noise of the machine.

    Returns:
        `evidence.self_test_result`, with `model`.

    Raises:
        TunerError: the model cannot be run here, or it was cancelled.
    """
    resolved = resolve_trial(spec, service.store, service.run)
    prepared = prepare_trial(resolved, service.store, service.run)
    machine, _ = describe(service.environment)
    entry = entry_of("self-test", resolved, prepared)
    settings = Settings(
        effort=SELF_TEST,
        budget_s=SELF_TEST.budget_s,
        margin=spec.protocol.margin,
        seed=secrets.randbelow(2**31),
        timeout_s=float(spec.protocol.timeout_s),
        baseline=0,
        anchor=0,
        prior_at=prior_of(service.store, machine),
    )
    record = run_launches(
        [entry],
        settings,
        cancel=service.cancel,
        on_progress=service.on_progress,
        on_live=service.on_live,
        fork_server=service.fork_server,
    )
    if record.ran[0].error is not None:
        raise record.ran[0].error
    if record.outcome == "cancelled":
        raise _cancelled()
    configuration = MeasuredConfiguration(
        contestant=Contestant(trial="", label="self-test", role="anchor"),
        precision=_precision(resolved),
        session=prepared.session,
        feeds=prepared.feeds,
    )
    evidence = Evidence(
        record=record,
        configurations=[configuration],
        looks=len(SELF_TEST.looks),
        margin=spec.protocol.margin,
        baseline=0,
        anchor=0,
        environment=machine,
    )
    return {"model": resolved.record.name, **self_test_result(evidence)}
