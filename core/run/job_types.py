"""Job types: one function per type, which returns a `Job`.

A new kind is one more function that returns a `Job`; scheduler and ledger know none of them by name.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from core import wire
from core.evidence import continuation
from core.evidence.comparison import (
    CANDIDATE_LABEL,
    Comparison,
    Configuration,
    Contestant,
    line_up,
    same_request,
)
from core.evidence.measurement import Trial, TrialKind
from core.evidence.record import RaceRecord
from core.process.runner import Run
from core.run.comparison import perform_comparison, perform_self_test, protocol_of
from core.run.job import Ending, Job, Outcome, Service
from core.run.trial import perform_profile, resolve_trial
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.spec.effort import STAGES
from core.store import Store

TRACE_NAME = "trace.json"
PEAKS_TIMEOUT_S = 300.0
SELF_TEST_MODEL = "digits_cnn"  # comes with ORTune; runs of half a millisecond show what disturbs


# --- races --------------------------------------------------------------------------------------------------


def duel(
    spec: TrialSpec,
    *,
    baseline: Configuration | TrialSpec | None = None,
    study: str = "",
    model_name: str | None = None,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Measure one configuration; the job is followed by its trial.

    It races against `baseline`, where there is one, and against ONNX Runtime's default. Neither runs twice
    when it is what `spec` asks for.

    Args:
        spec: what to run, and how well to measure.
        baseline: see above.
        study: name under which trials belong together.
        model_name: None: the file's.
        wait_quiet_s: when it has its turn, it waits at most so long for the machine to be quiet; the notes of
            its result say what came of it.
    """
    if isinstance(baseline, TrialSpec):
        baseline = Configuration(spec=baseline, label="baseline")
    asked = [Configuration(spec=spec, label=CANDIDATE_LABEL)]
    if baseline is not None and not same_request(baseline.spec, spec):
        asked.append(replace(baseline, role="baseline"))
    job = race(
        asked,
        study=study,
        model_name=model_name,
        what=f"measure {model_name or Path(spec.model.path).stem}",
        wait_quiet_s=wait_quiet_s,
    )
    follow = next(trial.id for trial in job.trials if trial.kind == "measure")
    return replace(job, specs=(spec,), follow=follow)  # the baseline was admitted when it was stored


def race(
    asked: Sequence[Configuration],
    *,
    study: str = "",
    model_name: str | None = None,
    what: str = "",
    wait_quiet_s: float = 0.0,
    different_models: bool = False,
    protocol: dict[str, Any] | None = None,
) -> Job:
    """Race configurations; the id of the job is the comparison's, and `Store.trials_of` lists its trials.

    Args:
        asked: candidates and at most one baseline; see `line_up` for who else races.
        study: name under which the candidates belong together.
        model_name: of the race; None: the first candidate's. A trial is called after the model it ran.
        what: one line for those who wait; empty: how many race.
        wait_quiet_s: see `duel`.
        different_models: models that compute something else may race; without it such a race fails.
        protocol: of the comparison, see `protocol_of`; None: what the first candidate asks for, with
            intervals that hold together for everybody against the baseline.
    """
    name = model_name or Path(asked[0].spec.model.path).stem
    everybody = line_up(asked)
    family = max(1, len(everybody) - 1)
    job = _lined_up(
        everybody,
        protocol or protocol_of(everybody[0].spec.protocol, different_models=different_models, family=family),
        what=what or f"comparison of {len(asked)} configurations of {name}",
        study=study,
        model_name=model_name,
        wait_quiet_s=wait_quiet_s,
    )
    return replace(job, specs=[one.spec for one in asked])


def each_alone(asked: Sequence[Configuration]) -> dict[str, Any]:
    """Return the protocol of the points of a sweep, for `race`: the interval of each ratio holds alone."""
    return protocol_of(next(one for one in asked if one.role == "candidate").spec.protocol)


def more_generations(
    store: Store,
    comparison_id: str,
    *,
    precision: str | None = None,
    budget_s: float | None = None,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Add generations to a finished race: a comparison that holds all; the finished one stays as it is.

    Args:
        store: holds the race.
        comparison_id: of the finished race.
        precision: name; None: as before.
        budget_s: for what is added; None: that of the effort.
        wait_quiet_s: see `duel`.

    Raises:
        SpecError: nothing can be added to that race; the message says why.
        StoreError: there is no such race.
    """
    before = store.comparison(comparison_id)
    trials = [store.trial(one.trial) for one in before.contestants]
    continuation.check(before, trials)
    everybody = [
        Configuration(spec=spec_from_dict(trial.spec), label=one.label, role=one.role)
        for one, trial in zip(before.contestants, trials, strict=True)
    ]
    protocol = continuation.protocol(before, precision or before.protocol["precision"], budget_s)
    protocol["seed"] = secrets.randbelow(2**31)
    return _lined_up(
        everybody,
        protocol,
        earlier=continuation.record_of(before, trials),
        what=f"measuring a comparison of {before.model_name} longer",
        study=before.study,
        model_name=before.model_name,
        wait_quiet_s=wait_quiet_s,
    )


def _lined_up(
    everybody: Sequence[Configuration],
    protocol: dict[str, Any],
    *,
    what: str,
    study: str,
    model_name: str | None,
    wait_quiet_s: float,
    earlier: RaceRecord | None = None,
) -> Job:
    race_id = secrets.token_hex(8)
    kind: TrialKind = "screen" if protocol["precision"] in STAGES else "measure"
    trials = [
        _trial(
            one.spec,
            kind=kind if one.role == "candidate" else "reference",
            study=study,
            model_name=model_name,
            comparison=race_id,
        )
        for one in everybody
    ]
    comparison = Comparison(
        id=race_id,
        state="WAITING",
        model_name=model_name or trials[0].model_name,
        model_sha256="",
        contestants=tuple(
            Contestant(trial=trial.id, label=one.label, role=one.role)
            for one, trial in zip(everybody, trials, strict=True)
        ),
        protocol=protocol,
        created_at=time.time(),
        study=study,
    )
    specs = {trial.id: one.spec for one, trial in zip(everybody, trials, strict=True)}
    return Job(
        id=race_id,
        kind="comparison",
        what=what,
        work=lambda service: perform_comparison(comparison, specs, service, earlier),
        trials=trials,
        comparison=comparison,
        model_name=model_name,
        wait_quiet_s=wait_quiet_s,
    )


def _trial(
    spec: TrialSpec, *, kind: TrialKind, model_name: str | None, study: str = "", comparison: str = ""
) -> Trial:
    return Trial(
        id=secrets.token_hex(8),
        kind=kind,
        state="WAITING",
        spec=spec.to_dict(),
        model_name=model_name or Path(spec.model.path).stem,
        model_sha256="",
        key=spec.key(),
        created_at=time.time(),
        study=study,
        comparison=comparison,
    )


def self_test() -> Job:
    """Race ONNX Runtime's default against itself; the result of the job is the verdict on this machine."""

    def work(service: Service) -> Outcome:
        result = perform_self_test(TrialSpec(model=ModelRef(path=SELF_TEST_MODEL)), service)
        kept = {name: part for name, part in result.items() if name not in ("environment", "fingerprint")}
        service.store.put_self_test(result["fingerprint"], kept)
        return _done(result)

    return Job(kind="self-test", what="self-test of this machine", work=work)


def peaks(threads: int = 0) -> Job:
    """Measure what this machine reaches at most, with one thread and with as many as ONNX Runtime starts.

    Args:
        threads: measured as well; 0: no others.
    """

    def work(service: Service) -> Outcome:
        machine = service.environment()
        cpu = machine["cpu"]
        most = max(1, cpu["ort_default_threads"])
        wanted = {1, min(most, cpu["usable"]), most, min(threads, 2 * cpu["logical"]) or 1}
        plan: wire.PeaksPlan = {"threads": sorted(wanted)}
        found = {**service.run(wire.PEAKS, plan, timeout_s=PEAKS_TIMEOUT_S), "at": time.time()}
        service.store.put_peaks(machine["fingerprint"], found)
        return _done({"fingerprint": machine["fingerprint"], **found})

    return Job(kind="peaks", what="peaks of this machine", work=work, wait_quiet_s=0.0)


# --- work of workers ----------------------------------------------------------------------------------------


def profile(spec: TrialSpec, *, model_name: str | None = None) -> Job:
    """Profile one configuration; the id of the job is its trial's. Its model is called `model_name`."""
    trial = _trial(spec, kind="profile", model_name=model_name)

    def work(service: Service) -> Outcome:
        resolved = resolve_trial(spec, service.store, service.run)
        service.on_resolved(trial.id, resolved)
        result = perform_profile(
            resolved,
            service.store,
            service.run,
            environment=service.environment,
            trace=partial(service.store.artifact_path, trial.id, TRACE_NAME),
        )
        complete = Ending(state="COMPLETE", result=result)
        return Outcome(whole=Ending(state="COMPLETE"), trials={trial.id: complete})

    return Job(
        id=trial.id,
        kind="profile",
        what=f"profile {trial.model_name}",
        work=work,
        specs=(spec,),
        trials=(trial,),
        wait_quiet_s=0.0,
    )


def worker(job: wire.Request[Any], payload: Mapping[str, Any], *, what: str, timeout_s: float = 600.0) -> Job:
    """Have one worker do what is no trial, such as an export; its answer is the result of the job."""
    return task(lambda run: run(job, payload, timeout_s=timeout_s), kind=job, what=what)


def task(
    work: Callable[[Run], Mapping[str, Any]], *, kind: str, what: str, specs: Sequence[TrialSpec] = ()
) -> Job:
    """Do what takes several workers and is no trial.

    Args:
        work: told how to start a worker (called like `run_job`, with the progress and cancel of this job);
            what it returns, plain JSON data, is the result of the job.
        kind: for `Status.kind`.
        what: one line for a person.
        specs: what it runs, to be admitted like trials.
    """
    return Job(kind=kind, what=what, work=lambda service: _done(work(service.run)), specs=specs)


def _done(result: Mapping[str, Any]) -> Outcome:
    return Outcome(whole=Ending(state="COMPLETE", result=dict(result)))
