"""The commands that measure: bench, profile, sweep. Options to a spec, the scheduler, then the result."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import Given, config_from, preset_config, spec_data, with_settings
from core.cli.output import EXIT_FAILED, Json, Quiet, complain, exit_code, print_json, print_lines, unwritable
from core.cli.tables import profile_lines, sweep_lines, trial_lines
from core.cli.watch import Interrupted, Progress, scheduler, watch
from core.errors import SpecError
from core.measurement import Trial, TrialKind
from core.presets import PRESETS
from core.profiling import profile_from_dict
from core.runner import run_job
from core.scheduler import Status
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.sweep import (
    BATCH,
    THREADS,
    Axis,
    Measured,
    Point,
    expand,
    measured,
    parse_values,
    study_name,
)
from core.trial_run import resolve_trial

Model = Annotated[
    str | None,
    typer.Argument(
        help="Path, library name, sample name, or hash of a library model; not needed with a --config "
        "that names one.",
        metavar="MODEL",
        show_default=False,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        help="Start from a YAML file, from a trial's id, or from preset:NAME; other options change it.",
        metavar="FILE|TRIAL|preset:NAME",
        show_default=False,
    ),
]
Preset = Annotated[
    str | None, typer.Option(help=f"Start from: {', '.join(PRESETS)}.", metavar="NAME", show_default=False)
]


# --- bench and profile --------------------------------------------------------------------------------------


@with_settings
def bench(
    model: Model = None,
    *,
    config: Config = None,
    preset: Preset = None,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure one configuration of a model."""
    store = Store()
    spec = spec_from_dict(_spec_data(store, model, config, preset, given))
    trial = _run_trial(store, spec, "measure", quiet=quiet)
    _report(trial, trial_lines, json_=json_)


@with_settings
def profile(
    model: Model = None,
    *,
    config: Config = None,
    preset: Preset = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write ORT's trace here (Chrome, Perfetto).", metavar="OUT.json")
    ] = None,
    top: Annotated[int, typer.Option(help="Rows of the tables.", min=1)] = 20,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show where a run spends its time."""
    store = Store()
    spec = spec_from_dict(_spec_data(store, model, config, preset, given))
    trial = _run_trial(store, spec, "profile", quiet=quiet)
    if trace is not None and trial.state == "COMPLETE" and trial.result is not None:
        _copy(store.artifact_path(trial.id, trial.result["trace"]), trace)

    def lines(one: Trial) -> list[str]:
        return profile_lines(one, profile_from_dict((one.result or {})["profile"]), top=top)

    _report(trial, lines, json_=json_)


def _spec_data(
    store: Store, model: str | None, config: str | None, preset: str | None, given: Given
) -> dict[str, Any]:
    if config is not None and preset is not None:
        raise SpecError("`--config` and `--preset` both say where to start.", hint="Give one of them.")
    if preset is not None:
        base = preset_config(preset)
    else:
        base = config_from(config, store=lambda: store, other_model=model is not None)
    return spec_data(base, model, given)


def _run_trial(store: Store, spec: TrialSpec, kind: TrialKind, *, quiet: bool) -> Trial:
    progress = Progress(sys.stderr, quiet=quiet)
    job = ""
    try:
        with scheduler(store) as service:
            job = service.submit(spec, kind=kind)
            status = watch(service, job, progress)
    except Interrupted as interrupted:
        if job:
            interrupted.document = store.trial(job).to_dict()
        raise
    return _as_ended(store.trial(job), status)


def _as_ended(trial: Trial, status: Status) -> Trial:
    """The stored trial, or where the store could not take the end of it, what the scheduler knows."""
    if trial.state == status.state:
        return trial
    return replace(trial, state=status.state, error=status.error)


def _report(trial: Trial, lines: Callable[[Trial], list[str]], *, json_: bool) -> None:
    if json_:
        print_json(trial.to_dict())
    elif trial.state == "COMPLETE":
        print_lines(lines(trial))
    if trial.error is not None:
        complain(trial.error["message"], trial.error["hint"])
    raise typer.Exit(exit_code(trial.error))


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise unwritable(target, error) from None


# --- sweep --------------------------------------------------------------------------------------------------


@with_settings
def sweep(
    model: Model = None,
    *,
    config: Config = None,
    preset: Preset = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Take points that were measured before on this machine.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure several batch sizes, threads or dimensions.

    Give lists: `--batch-size 1,2,4,8 --intra-op-num-threads 1,2 --dim NAME=64,128`; every combination is
    measured.
    """
    store = Store()
    given, axes = _split_axes(given)
    if not axes:
        raise SpecError(
            "There is nothing to sweep.",
            hint="Give lists: `--batch-size 1,2,4,8`, `--intra-op-num-threads 1,2` or `--dim NAME=64,128`.",
        )
    resolved = resolve_trial(spec_from_dict(_spec_data(store, model, config, preset, given)), store, run_job)
    points = expand(resolved.spec, axes, resolved.record.info)
    study = _study(axes)
    ended: Ended = []
    try:
        _measure_points(
            store, points, resolved.record.content_sha256, study, reuse=reuse, quiet=quiet, ended=ended
        )
    except Interrupted as interrupted:
        if json_:
            interrupted.document = _sweep_document(study, axes, points, ended)
        else:
            print_lines(sweep_lines(_rows(points, ended)))
        raise
    _report_sweep(study, axes, points, ended, json_=json_)


def _split_axes(given: Given) -> tuple[Given, list[Axis]]:
    """Take what a sweep varies out of the options: the batch, the threads and every dimension given."""
    rest, axes = dict(given), []
    for name in (BATCH, THREADS):
        if name in rest:
            axes.append(Axis(name=name, values=parse_values(rest.pop(name), name=name)))
    dims = []
    for text in rest.pop("dims", []):
        name, equals, values = text.rpartition("=")
        if equals and "," in values:
            axes.append(Axis(name=name, values=parse_values(values, name=name)))
        else:
            dims.append(text)
    return (rest | {"dims": dims} if dims else rest), axes


def _study(axes: Sequence[Axis]) -> str:
    """One axis: the name by which the browser finds the curve again."""
    token = secrets.token_hex(4)
    if len(axes) == 1:
        return study_name(axes[0], token)
    return f"sweep {' × '.join(one.name for one in axes)} #{token}"


Ended = list[tuple[Trial, bool]]  # trials of the first points, and whether each is an earlier one


def _measure_points(
    store: Store, points: Sequence[Point], model: str, study: str, *, reuse: bool, quiet: bool, ended: Ended
) -> None:
    """Measure the points in order, and put each trial into `ended` when it ends: an interrupt loses none."""
    progress = Progress(sys.stderr, quiet=quiet)
    with scheduler(store) as service:
        fingerprint = service.environment()["fingerprint"] if reuse else ""
        for number, point in enumerate(points, 1):
            known = None
            if reuse and point.spec.repeatable:
                known = store.find_complete(point.spec.key(), fingerprint, model_sha256=model)
            if known is not None:
                ended.append((known, True))
                continue
            job = service.submit(point.spec, study=study)
            status = watch(service, job, progress, prefix=f"[{number}/{len(points)}] ")
            ended.append((_as_ended(store.trial(job), status), False))


def _rows(points: Sequence[Point], ended: Ended) -> list[Measured]:
    return [
        measured(point, trial, reused=reused) for point, (trial, reused) in zip(points, ended, strict=False)
    ]


def _sweep_document(
    study: str, axes: Sequence[Axis], points: Sequence[Point], ended: Ended
) -> dict[str, Any]:
    return {
        "study": study,
        "axes": {one.name: list(one.values) for one in axes},
        "points": [
            {"values": dict(point.values), "reused": reused, **trial.to_dict()}
            for point, (trial, reused) in zip(points, ended, strict=False)
        ],
    }


def _report_sweep(
    study: str, axes: Sequence[Axis], points: Sequence[Point], ended: Ended, *, json_: bool
) -> None:
    if json_:
        print_json(_sweep_document(study, axes, points, ended))
    else:
        print_lines(sweep_lines(_rows(points, ended)))
    trials = [trial for trial, _ in ended]
    errors = [trial.error for trial in trials if trial.error is not None]
    if errors:
        complain(f"{len(errors)} of {len(trials)} points failed. {errors[0]['message']}", errors[0]["hint"])
    codes = {exit_code(error) for error in errors}
    raise typer.Exit(EXIT_FAILED if EXIT_FAILED in codes else max(codes, default=0))
