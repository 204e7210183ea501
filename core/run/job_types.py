"""Jobs: one function for each type with rows of its own in the store, and `task` and `worker` for all others.

The scheduler and the job log name none of them.
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
    same_request,
    with_references,
)
from core.evidence.load.arrivals import Trace
from core.evidence.measurement import Trial, TrialKind
from core.evidence.record import RawComparison
from core.process.job_worker import Run
from core.run.comparison import perform_comparison, perform_self_test, protocol_of
from core.run.durations import planned_s
from core.run.job import Ending, Job, Outcome, Service
from core.run.load import perform_load
from core.run.preparation import resolve_trial, with_pinned_runtimes
from core.run.profiling import perform_profile
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.spec.effort import STAGES
from core.spec.load import LoadSpec
from core.store import Store

TRACE_NAME = "trace.json"
PEAKS_TIMEOUT_S = 300.0
SELF_TEST_MODEL = "digits_cnn"  # included in ORTune; runs of half a millisecond are sensitive to noise


# --- comparisons --------------------------------------------------------------------------------------------


def tune(
    spec: TrialSpec,
    *,
    baseline: Configuration | None = None,
    study: str = "",
    model_name: str | None = None,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Measure one configuration; the trial's id identifies the job.

    It is compared with `baseline`, if given, and with the ORT default. A reference equal to `spec` does not
    run twice.

    Args:
        spec: configuration and protocol.
        baseline: see above; of the role "baseline".
        study: name that groups trials.
        model_name: None: the file's.
        wait_quiet_s: longest wait for an idle machine, once it is the job's turn; the notes of its result
            tell how it ended.
    """
    others = [] if baseline is None else [baseline]
    [candidate, *others] = with_pinned_runtimes([Configuration(spec=spec, label=CANDIDATE_LABEL), *others])
    asked = [candidate, *(one for one in others if not same_request(one.spec, candidate.spec))]
    job = comparison(
        asked,
        study=study,
        model_name=model_name,
        what=f"measure {model_name or Path(spec.model.path).stem}",
        wait_quiet_s=wait_quiet_s,
    )
    follow = next(trial.id for trial in job.trials if trial.kind == "measure")
    return replace(job, specs=(spec,), follow=follow)  # the baseline was admitted when it was stored


def comparison(
    asked: Sequence[Configuration],
    *,
    study: str = "",
    model_name: str | None = None,
    what: str = "",
    wait_quiet_s: float = 0.0,
    different_models: bool = False,
    protocol: dict[str, Any] | None = None,
) -> Job:
    """Compare configurations; the job has the comparison's id, and `Store.trials_of` lists its trials.

    Args:
        asked: candidates and at most one baseline; `with_references` adds the ORT default.
        study: name that groups the candidates.
        model_name: of the comparison; None: the first candidate's. A trial has the name of its own model.
        what: one line for the queue; empty: the number of configurations.
        wait_quiet_s: see `tune`.
        different_models: allow models with different outputs; without it such a comparison fails.
        protocol: of the comparison, see `protocol_of`; None: that of the first candidate, with simultaneous
            intervals for all candidates against the baseline.
    """
    asked = with_pinned_runtimes(asked)
    name = model_name or Path(asked[0].spec.model.path).stem
    configurations = with_references(asked)
    family = max(1, len(configurations) - 1)
    job = _comparison_job(
        configurations,
        protocol
        or protocol_of(configurations[0].spec.protocol, different_models=different_models, family=family),
        what=what or f"comparison of {len(asked)} configurations of {name}",
        study=study,
        model_name=model_name,
        wait_quiet_s=wait_quiet_s,
    )
    return replace(job, specs=[one.spec for one in asked])


def sweep_protocol(asked: Sequence[Configuration]) -> dict[str, Any]:
    """Return the protocol of a sweep's points, for `comparison`: each interval has 95 % confidence alone."""
    return protocol_of(next(one for one in asked if one.role == "candidate").spec.protocol)


def more_launches(
    store: Store,
    comparison_id: str,
    *,
    precision: str | None = None,
    budget_s: float | None = None,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Add launches to a finished comparison, in a new comparison with all of them; the old one stays.

    Args:
        store: holds the comparison.
        comparison_id: of the finished comparison.
        precision: name of the effort; None: as before.
        budget_s: for the added launches; None: that of the effort.
        wait_quiet_s: see `tune`.

    Raises:
        SpecError: nothing can be added to that comparison; the message says why.
        StoreError: there is no such comparison.
    """
    before = store.comparison(comparison_id)
    trials = [store.trial(one.trial) for one in before.contestants]
    continuation.ensure_continuable(before, trials)
    configurations = [
        Configuration(spec=spec_from_dict(trial.spec), label=one.label, role=one.role)
        for one, trial in zip(before.contestants, trials, strict=True)
    ]
    protocol = continuation.protocol(before, precision or before.protocol["precision"], budget_s)
    protocol["seed"] = secrets.randbelow(2**31)
    return _comparison_job(
        configurations,
        protocol,
        earlier=continuation.raw_comparison(before, trials),
        what=f"measuring a comparison of {before.model_name} longer",
        study=before.study,
        model_name=before.model_name,
        wait_quiet_s=wait_quiet_s,
    )


def _comparison_job(
    configurations: Sequence[Configuration],
    protocol: dict[str, Any],
    *,
    what: str,
    study: str,
    model_name: str | None,
    wait_quiet_s: float,
    earlier: RawComparison | None = None,
) -> Job:
    comparison_id = secrets.token_hex(8)
    kind: TrialKind = "screen" if protocol["precision"] in STAGES else "measure"
    trials = [
        _trial(
            one.spec,
            kind=kind if one.role == "candidate" else "reference",
            study=study,
            model_name=model_name,
            comparison=comparison_id,
        )
        for one in configurations
    ]
    comparison = Comparison(
        id=comparison_id,
        state="WAITING",
        model_name=model_name or trials[0].model_name,
        model_sha256="",
        contestants=tuple(
            Contestant(trial=trial.id, label=one.label, role=one.role)
            for one, trial in zip(configurations, trials, strict=True)
        ),
        protocol=protocol,
        created_at=time.time(),
        study=study,
    )
    specs = {trial.id: one.spec for one, trial in zip(configurations, trials, strict=True)}
    return Job(
        id=comparison_id,
        kind="comparison",
        what=what,
        work=lambda service: perform_comparison(comparison, specs, service, earlier),
        trials=trials,
        libraries=[name for one in configurations for name in one.spec.session.libraries],
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
    """Compare the ORT default with itself; the job's result is the noise of this machine."""

    def work(service: Service) -> Outcome:
        result = perform_self_test(TrialSpec(model=ModelRef(path=SELF_TEST_MODEL)), service)
        kept = {name: part for name, part in result.items() if name not in ("environment", "fingerprint")}
        service.store.put_self_test(result["fingerprint"], kept)
        return _done(result)

    return Job(kind="self-test", what="self-test of this machine", work=work)


def peaks(threads: int = 0) -> Job:
    """Measure the peak performance of this machine, with one thread and with ONNX Runtime's default count.

    Args:
        threads: another thread count to measure; 0: none.
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


# --- other work in workers ----------------------------------------------------------------------------------


def profile(spec: TrialSpec, *, model_name: str | None = None) -> Job:
    """Profile one configuration; the trial's id identifies the job. `model_name` is its model's name."""
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


def load(
    configurations: Sequence[Configuration],
    load: LoadSpec,
    *,
    model_name: str | None = None,
    wait_quiet_s: float = 0.0,
    trace: Trace | None = None,
) -> Job:
    """Put one or more configurations under traffic; the trial's id identifies the job.

    Args:
        configurations: what serves; the trial is of the first.
        load: what is asked.
        model_name: of the first configuration; None: the file's.
        wait_quiet_s: see `tune`.
        trace: the arrivals, if they are recorded, for its planned duration.
    """
    first = configurations[0].spec
    trial = _trial(first, kind="load", model_name=model_name)
    several = f" of {len(configurations)} configurations" if len(configurations) > 1 else ""
    return Job(
        id=trial.id,
        kind="load",
        what=f"load test{several}: {trial.model_name}",
        work=lambda service: perform_load(trial.id, configurations, load, service),
        specs=[one.spec for one in configurations],
        trials=(trial,),
        wait_quiet_s=wait_quiet_s,
        predicted_s=planned_s(load, len(configurations), trace),
    )


def worker(job: wire.Request[Any], payload: Mapping[str, Any], *, what: str, timeout_s: float = 600.0) -> Job:
    """Run work that is no trial in one worker, such as an export; its reply is the job's result."""
    return task(lambda run: run(job, payload, timeout_s=timeout_s), kind=job, what=what)


def task(
    work: Callable[[Run], Mapping[str, Any]],
    *,
    kind: str,
    what: str,
    specs: Sequence[TrialSpec] = (),
    libraries: Sequence[str] = (),
) -> Job:
    """Run work that is no trial in several workers.

    Args:
        work: called with a function that starts a worker (like `run_job`, with the progress and cancel of
            this job); the plain JSON data that it returns is the job's result.
        kind: for `Status.kind`.
        what: one line of text.
        specs: configurations that it runs, to be admitted like trials.
        libraries: native ones that it loads besides those of `specs`, such as those of stored trials.
    """
    return Job(
        kind=kind,
        what=what,
        work=lambda service: _done(work(service.run)),
        specs=specs,
        libraries=libraries,
    )


def _done(result: Mapping[str, Any]) -> Outcome:
    return Outcome(whole=Ending(state="COMPLETE", result=dict(result)))
