"""Measures configurations: `tune`, `profile`, `compare` and `measure_longer`.

`NAME_job` checks a request and returns its job, for a queue that someone else watches. `NAME` also waits for
the result. Both take a session.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import in_runtimes, without_runtimes
from core.api.models import ModelLike, reference
from core.api.references import ENGINE_PREFIXES
from core.api.requests import (
    Config,
    announce,
    baseline_of,
    check,
    check_spec,
    labels,
    launches,
    named,
    report_precision,
    spec_of,
    with_sizes,
)
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, ended_trial
from core.api.settings import EFFORT, given_of, spec_data
from core.evidence import continuation
from core.evidence.comparison import CANDIDATE_LABEL, Comparison, Configuration, failures
from core.evidence.measurement import Trial
from core.evidence.roofline import Peak, peaks_of
from core.run import job_types
from core.run.job import Job, Status
from core.show import documents
from core.show.comparison_text import comparison_verdict
from core.show.comparison_text import labels as comparison_labels
from core.show.sheets import Line, Sheet, comparisons
from core.show.sheets import trials as sheets
from core.show.sheets.loads import load_sheet
from core.show.sheets.trials import failed, measured, profiled
from core.show.table import Table
from core.show.verdict import stored_comparison, trial_verdict
from core.spec import TrialSpec, spec_from_dict
from core.spec.axes import RUNTIME
from core.store import Store
from core.store.library import MODEL_SUFFIXES
from core.wire import engines
from core.wire.errors import ErrorRecord, SpecError, error_from_record
from core.wire.profile import profile_from_dict
from core.wire.runtime import OWN, runtime

MAX_CANDIDATES = 7


def _raise(error: ErrorRecord | None) -> None:
    if error is not None:
        raise error_from_record(error)


# --- tune ---------------------------------------------------------------------------------------------------


@arguments.checked(baseline=arguments.config)
def tune(
    model: ModelLike | None = None,
    config: Config = None,
    *,
    baseline: Config = None,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Trial]:
    """Measure one configuration of a model and compare it with ONNX Runtime's default.

    Args:
        model: path, library name, sample name or hash; the bytes of an ONNX file; or an `onnx.ModelProto`.
            None: that of `config`.
        config: configuration to start from: YAML file, trial ID, `preset:NAME`, a result, or the dict of one.
        baseline: a second configuration to compare with, besides ONNX Runtime's default; as `config`.
        wait_quiet_s: longest wait for an idle machine, in seconds.
        session: None: one for the whole process.
        on_progress: called with the status about ten times a second.
        cancel: set it, from another thread, to cancel.
        settings: names and values of the settings table, for example `intra_op_num_threads=2`,
            `effort="quick"`, `dims={"batch": 8}`. Two values of `runtime` compare the configuration in the
            second runtime with itself in the first.

    Raises:
        SpecError: a setting or its value is invalid.
        ModelError: there is no such model.
        TunerError: the measurement failed or was cancelled. `Session.last` has what the store kept.
    """
    session = session or default_session()
    asked, given = without_runtimes(given_of(settings))
    spec = spec_of(model, config, {**given, RUNTIME: asked[-1:]} if asked else given, session)
    spec, rival = _of_runtimes(spec, asked, baseline)
    if baseline is not None:
        rival = _in_runtime(baseline_of(baseline, spec, given, session), asked)
    (spec, *others), sizes = with_sizes([spec] if rival is None else [spec, rival.spec], session)
    rival = None if rival is None else replace(rival, spec=others[0])
    job = tune_job(session, spec, baseline=rival, wait_quiet_s=wait_quiet_s)
    announce(session, [Configuration(spec=spec, label=CANDIDATE_LABEL), *([rival] if rival else [])])
    return _run_trial(session, job, sizes, on_progress, cancel)


def _of_runtimes(
    spec: TrialSpec, asked: Sequence[str], baseline: Config
) -> tuple[TrialSpec, Configuration | None]:
    """Return the configuration of `tune`, which is in the last runtime, and the one in the first of two.

    Raises:
        SpecError: there are more runtimes than a baseline and a candidate.
    """
    most = 2 if baseline is None else 1
    if len(asked) > most:
        given = f"{len(asked)} runtimes" + ("" if baseline is None else " and a baseline")
        raise SpecError(
            f"`tune` measures a configuration against one baseline, but got {given}.",
            hint="Use `compare` with these runtimes.",
        )
    if len(asked) < 2:
        return spec, None
    first = spec.model_copy(update={RUNTIME: asked[0]})
    return spec, Configuration(spec=first, label=f"runtime {runtime(asked[0]).name}", role="baseline")


def _in_runtime(one: Configuration, asked: Sequence[str]) -> Configuration:
    """Return a configuration in the asked runtime, unless it names its own."""
    if not asked or one.spec.runtime != OWN:
        return one
    return replace(one, spec=one.spec.model_copy(update={RUNTIME: asked[0]}))


def tune_job(
    session: Session,
    spec: TrialSpec,
    *,
    baseline: Configuration | None = None,
    model_name: str | None = None,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Return the checked job that measures one configuration; see `job_types.tune`.

    Raises:
        TunerError: it cannot run, or the session does not admit it.
    """
    if baseline is not None:
        check_spec(session, baseline.spec)
    check_spec(session, spec)
    return job_types.tune(spec, baseline=baseline, model_name=model_name, wait_quiet_s=wait_quiet_s)


def _run_trial(
    session: Session,
    job: Job,
    sizes: Mapping[str, Any],
    on_progress: OnProgress | None,
    cancel: threading.Event | None,
) -> Result[Trial]:
    trial_id = job.follow or job.id  # of a profile
    session.last = trial_result(session, trial_id, sizes)  # for an interrupted run
    status = session.run(job, on_progress=on_progress, cancel=cancel)
    result = session.last = trial_result(session, trial_id, sizes, status)
    trial = result.record
    if trial.state == "COMPLETE" and trial.comparison:
        report_precision(session, session.store.comparison(trial.comparison))
    _raise(trial.error)
    return result


def trial_result(
    session: Session, trial_id: str, sizes: Mapping[str, Any] | None = None, status: Status | None = None
) -> Result[Trial]:
    """Return the result of a trial: a measurement or a profile.

    Args:
        session: holds it.
        trial_id: its ID.
        sizes: sources of assumed sizes, for the document.
        status: how its job ended, for a store that could not save its end.
    """
    store = session.store
    return Result(
        kind="trial",
        id=trial_id,
        read=lambda: ended_trial(store, trial_id, status),
        document=lambda trial: {**trial.to_dict(), **(sizes or {})},
        content=lambda trial: trial_sheet(store, trial),
        says=lambda trial: _verdict(store, trial),
        numbers=lambda trial: _numbers(store, trial),
        store=store,
        refs=[trial_id],
    )


def _verdict(store: Store, trial: Trial) -> str:
    """Return the verdict of a measurement, or where a profile spends its time."""
    if trial.kind == "profile" and trial.result is not None:
        profile = profile_from_dict(trial.facts["profile"])
        return sheets.profile_advice(trial, profile, _peaks(store, trial)).sentence
    return trial_verdict(trial, stored_comparison(store, trial.comparison))[0]


def _numbers(store: Store, trial: Trial) -> Table:
    """Return the configurations of a measurement's comparison, or the nodes of a profile.

    Raises:
        SpecError: it has neither.
    """
    if trial.kind == "profile" and trial.result is not None:
        return sheets.nodes(profile_from_dict(trial.facts["profile"]))
    comparison = stored_comparison(store, trial.comparison)
    if comparison is None:
        raise SpecError("This trial has no comparison, so it has no table.", hint="Use `to_dict()`.")
    return comparisons.configurations(comparison, store.trials_of(comparison.id))


def _peaks(store: Store, trial: Trial) -> list[Peak]:
    known = store.peaks(trial.fingerprint)
    return [] if known is None else peaks_of(known)


def trial_sheet(store: Store, trial: Trial, *, top: int = 20) -> Sheet:
    """Return headline, facts and tables of a trial, or why it has none; `top` limits tables of a profile."""
    if trial.result is None:
        return failed(trial)
    if trial.kind == "load":
        return load_sheet(trial)
    if trial.kind == "profile":
        profile = profile_from_dict(trial.facts["profile"])
        return profiled(trial, profile, top=top, peaks=_peaks(store, trial))
    comparison = stored_comparison(store, trial.comparison)
    sheet = measured(trial, {} if comparison is None else comparison_labels(comparison))
    if trial.error is None:
        return sheet
    told = f"{trial.state}: {trial.error['message']} {trial.error['hint']}".strip()
    return Sheet(sheet.headline, [*sheet.parts, Line(told, "red", apart=True)])


# --- profile ------------------------------------------------------------------------------------------------


@arguments.checked()
def profile(
    model: ModelLike | None = None,
    config: Config = None,
    *,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Trial]:
    """Show where an inference spends its time. Arguments and errors as of `tune`."""
    session = session or default_session()
    [spec], sizes = with_sizes([spec_of(model, config, given_of(settings), session)], session)
    job = profile_job(session, spec)
    return _run_trial(session, job, sizes, on_progress, cancel)


def profile_job(session: Session, spec: TrialSpec, *, model_name: str | None = None) -> Job:
    """Return the checked job that profiles one configuration.

    Raises:
        TunerError: it cannot be profiled, or the session does not admit it.
    """
    engines.require(spec.engine, "profile")
    check_spec(session, spec)
    return job_types.profile(spec, model_name=model_name)


# --- compare ------------------------------------------------------------------------------------------------


@arguments.checked(model=arguments.models, baseline=arguments.config)
def compare(
    model: ModelLike | Sequence[ModelLike] | None = None,
    candidates: Config | Sequence[Config] = (),
    *,
    baseline: Config = None,
    different_models: bool = False,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Comparison]:
    """Compare configurations of a model with a baseline under the same conditions.

    Args:
        model: see `tune`. Several models are compared on ONNX Runtime's default, the first as the baseline.
        candidates: 1 to 7 configurations: YAML file, trial ID, `preset:NAME`, `variant:NAME`, or dict.
        baseline: the configuration to compare with. None: `preset:default`, or the first model.
        different_models: also compare models whose outputs differ; every verdict on them says so.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: of the workload and the protocol, for all configurations. Of several values of `runtime`
            each configuration runs once in every runtime, unless it names its own.

    Raises:
        SpecError: a reference or a setting is invalid, or the models are not variants of one original.
        TunerError: no configuration could be measured. `Session.last` has what the store kept.
    """
    session = session or default_session()
    models: list[Any] = model if isinstance(model, list) else [model]
    listed: list[Any] = arguments.listed("candidates", candidates)
    named_models = [one for one in (reference(one, session) for one in models) if one is not None]
    runtimes, given = without_runtimes(given_of(settings))
    common, refs = _model_and_references(named_models, baseline, listed)
    specs = named(refs, model=common, given=given, session=session, different_models=different_models)
    specs, told = in_runtimes(specs, labels(refs, specs), runtimes, note=session.note)
    _check_number(len(specs) - 1)
    specs, sizes = with_sizes(specs, session)
    asked = [
        Configuration(spec=spec, label=label, role="candidate" if number else "baseline")
        for number, (spec, label) in enumerate(zip(specs, told, strict=True))
    ]
    job = compare_job(session, asked, wait_quiet_s=wait_quiet_s, different_models=different_models)
    announce(session, asked)
    return _run_comparison(session, job, sizes, on_progress, cancel)


def compare_job(session: Session, asked: Sequence[Configuration], **options: Any) -> Job:
    """Return the checked job of a comparison; see `job_types.comparison` for the options.

    A configuration that cannot run does not stop the others; its result gives the reason.

    Raises:
        TunerError: no candidate can run, or the session does not admit one.
    """
    check(session, asked)
    return job_types.comparison(asked, **options)


@arguments.checked()
def measure_longer(
    comparison: arguments.Ref,
    *,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Comparison]:
    """Add launches to a finished comparison, in a new comparison with all of them; the old one stays.

    Args:
        comparison: its ID, its result, or the result of a measurement.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: `effort` or `budget_s`; everything else stays.

    Raises:
        SpecError: nothing can be added to that comparison, or a setting may not change.
        StoreError: there is no such comparison.
    """
    comparison = arguments.comparison("comparison", comparison)
    session = session or default_session()
    store, given = session.store, given_of(settings)
    if others := sorted(set(given) - {EFFORT, "budget_s"}):
        raise SpecError(
            f"A comparison that is measured longer keeps its settings, so `{others[0]}` cannot change.",
            hint="Change `effort` or `budget_s` only, or start a new comparison.",
        )
    before = store.comparison(comparison)
    continuation.ensure_continuable(before, [store.trial(one.trial) for one in before.contestants])
    protocol = spec_from_dict(spec_data(store.trial(before.contestants[0].trial).spec, None, given)).protocol
    precision = protocol.effort if EFFORT in given else before.protocol["precision"]
    session.note(
        f"measuring comparison {before.id} longer: effort {precision}, "
        f"{launches(len(before.facts.get('generations') or []))} so far"
    )
    job = measure_longer_job(
        session,
        before.id,
        precision=precision,
        budget_s=protocol.budget_s if "budget_s" in given else None,
        wait_quiet_s=wait_quiet_s,
    )
    return _run_comparison(session, job, {}, on_progress, cancel)


def measure_longer_job(session: Session, comparison_id: str, **options: Any) -> Job:
    """Return the job that adds launches to a comparison; see `job_types.more_launches`."""
    return job_types.more_launches(session.store, comparison_id, **options)


def _run_comparison(
    session: Session,
    job: Job,
    sizes: Mapping[str, Any],
    on_progress: OnProgress | None,
    cancel: threading.Event | None,
) -> Result[Comparison]:
    result = session.last = comparison_result(session, job.id, sizes)
    status = session.run(job, on_progress=on_progress, cancel=cancel)
    comparison = result.record
    if status.state != comparison.state:  # the store could not save its end
        _raise(status.error or ErrorRecord(type="WorkerError", message=NO_RESULT, hint=""))
    report_precision(session, comparison)
    if not comparison.result:
        _raise(next(iter(failures(comparison, session.store.trials_of(comparison.id))), comparison.error))
    return result


NO_RESULT = "The comparison has no result."


def comparison_result(
    session: Session, comparison_id: str, sizes: Mapping[str, Any] | None = None
) -> Result[Comparison]:
    """Return the result of a comparison; `sizes` are sources of assumed sizes, for the document."""
    store = session.store

    return Result(
        kind="comparison",
        id=comparison_id,
        read=lambda: store.comparison(comparison_id),
        document=lambda comparison: {**documents.comparison(store, comparison), **(sizes or {})},
        content=lambda comparison: comparison_sheet(store, comparison),
        says=comparison_verdict,
        rows=lambda comparison: comparisons.configurations(comparison, store.trials_of(comparison.id)),
        store=store,
        refs=[comparison_id],
    )


def comparison_sheet(store: Store, comparison: Comparison) -> Sheet:
    """Return headline, facts and tables of a comparison, or its configurations if there is no result."""
    trials = store.trials_of(comparison.id)
    if comparison.result:
        return comparisons.comparison_sheet(comparison, trials)
    headline = f"comparison {comparison.id} · {comparison.state}"
    return Sheet(headline, [comparisons.configurations(comparison, trials)])


def _model_and_references(
    models: Sequence[str], baseline: Config, candidates: Sequence[Any]
) -> tuple[str | None, list[Any]]:
    """Return the common model (None: each reference names its own) and the references, the baseline first."""
    if len(models) > 1:
        listed = [_as_model(one) for one in models]
        candidates = [*(listed if baseline else listed[1:]), *candidates]
        model, baseline = None, baseline or listed[0]
    else:
        model, baseline = (models[0] if models else None), baseline or "preset:default"
    return model, [baseline, *candidates]


def _check_number(candidates: int) -> None:
    if not 1 <= candidates <= MAX_CANDIDATES:
        raise SpecError(
            f"A comparison has 1 to {MAX_CANDIDATES} candidates, but got {candidates}.",
            hint=f"Name 1 to {MAX_CANDIDATES} candidates, or several models or runtimes.",
        )


def _as_model(ref: str) -> str:
    """Mark a reference among several models as a model, unless it has another prefix."""
    known = (".yaml", ".yml", *MODEL_SUFFIXES)
    plain = ref.startswith(("preset:", "variant:", "model:", *ENGINE_PREFIXES)) or ref.lower().endswith(known)
    return ref if plain else f"model:{ref}"
