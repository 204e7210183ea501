"""The commands `tune`, `profile` and `sweep`."""

from __future__ import annotations

import math
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.comparing import (
    announce,
    baseline_of,
    check_configurations,
    failures,
    has_undecided,
    report_precision,
    with_sizes,
)
from core.cli.importing import refuse_beside_import, show_imported
from core.cli.options import (
    CONFIG,
    Given,
    Model,
    WaitQuiet,
    config_from,
    preset_config,
    spec_data,
    wait_quiet_s,
    with_settings,
)
from core.cli.output import (
    EXIT_UNDECIDED,
    Format,
    Json,
    Quiet,
    Wide,
    check_output_path,
    combined_exit_code,
    exit_code,
    one_format,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_parts, print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.evidence.comparison import Comparison, Configuration
from core.evidence.measurement import Trial
from core.evidence.quality import quality
from core.evidence.roofline import peaks_of
from core.evidence.verdict import is_rejected
from core.process.job_worker import run_job
from core.run import job_types
from core.run.axes import (
    BATCH,
    PERCENTILE_NAMES,
    THREADS,
    Axis,
    Models,
    parse_values,
    parse_vary,
    point_name,
    study_name,
)
from core.run.best_point import SweepRanking, rank_points
from core.run.job import Job, Status
from core.run.known_trials import Earlier, Known, KnownTrial, known_trials, missing
from core.run.preparation import check_before, resolve_trial
from core.run.sweep import Measured, Point, configurations, expand, join, models
from core.run.sweep import before as measured_earlier
from core.show import sweep_words
from core.show.sheets import Line, Sheet, comparisons
from core.show.sheets import trials as sheets
from core.show.table import Table, csv_text, md_text
from core.spec import spec_from_dict
from core.spec.presets import PRESETS
from core.store import ModelRecord, Store
from core.wire import engines
from core.wire.errors import SpecError, nearest, unwritable
from core.wire.profile import profile_from_dict

Config = Annotated[
    str | None,
    typer.Option(
        help="Configuration to start from: a YAML file, a trial ID or preset:NAME. Other options change it.",
        metavar="FILE|TRIAL|preset:NAME",
        show_default=False,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="Second configuration to compare with, on the same workload, besides ONNX Runtime's default.",
        metavar=CONFIG,
        show_default=False,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(help=f"Preset to start from: {', '.join(PRESETS)}.", metavar="NAME", show_default=False),
]


# --- tune and profile ---------------------------------------------------------------------------------------


@with_settings
def tune(
    model: Model = None,
    *,
    config: Config = None,
    preset: Preset = None,
    baseline: Baseline = None,
    wait_quiet: WaitQuiet = None,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure one configuration of a model and compare it with ONNX Runtime's default.

    Exit codes: 0 done · 1 a worker failed · 2 bad input · 3 the verdict is UNDECIDED, or the budget is too
    small for a p50 · 130 Ctrl-C.
    """
    patience_s = wait_quiet_s(wait_quiet)
    store = Store()
    spec = spec_from_dict(_spec_data(store, model, config, preset, given))
    rival = None if baseline is None else baseline_of(baseline, spec, given, lambda: store)
    progress = Progress(sys.stderr, quiet=quiet)
    (spec, *others), told = with_sizes([spec] if rival is None else [spec, rival.spec], store, progress)
    rival = None if rival is None else replace(rival, spec=others[0])
    asked = Configuration(spec=spec, label="candidate")
    compared = [asked] if rival is None else [asked, rival]
    check_configurations(store, compared, progress)
    announce(store, compared, progress)
    trial = _run_trial(store, job_types.tune(spec, baseline=rival, wait_quiet_s=patience_s), progress, told)
    comparison = store.comparison(trial.comparison)
    names = {one.trial: one.label for one in comparison.contestants}
    if trial.state == "COMPLETE":
        report_precision(comparison, progress)
    _report(trial, lambda one: sheets.measured(one, names), told, json_=json_)
    for error in failures(comparison, store.trials_of(comparison.id)):  # of the baseline
        print_error(error["message"], error["hint"])
        raise typer.Exit(exit_code(error))
    thin = trial.state == "COMPLETE" and trial.p50_s is None
    if thin:
        print_error("There are too few inferences for a p50.", "Use a larger --budget, or more --runs.")
    raise typer.Exit(EXIT_UNDECIDED if thin or has_undecided(comparison) else 0)


@with_settings
def profile(
    model: Model = None,
    *,
    config: Config = None,
    preset: Preset = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write ONNX Runtime's trace to this file, for Chrome or Perfetto.", metavar="OUT.json"
        ),
    ] = None,
    import_: Annotated[
        Path | None,
        typer.Option(
            "--import",
            help="Show a profile from elsewhere (ONNX Runtime's own, or a Chrome trace of it), "
            "and keep it for the page Profile. ORTune runs nothing.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of rows of the tables.", min=1)] = 20,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show where an inference spends its time."""
    if import_ is not None:
        refuse_beside_import([model, config, preset, trace], given)
        show_imported(Store(), import_, wanted="profile", top=top, json_=json_)
        return
    if trace is not None:
        check_output_path(trace)
    store = Store()
    spec = spec_from_dict(_spec_data(store, model, config, preset, given))
    progress = Progress(sys.stderr, quiet=quiet)
    engines.require(spec.engine, "profile")
    [spec], told = with_sizes([spec], store, progress)
    check_before(spec, store, run_job)
    trial = _run_trial(store, job_types.profile(spec), progress, told)
    if trace is not None and trial.state == "COMPLETE" and trial.result is not None:
        _copy(store.artifact_path(trial.id, trial.result["trace"]), trace)

    def sheet(one: Trial) -> Sheet:
        measured = store.peaks(one.fingerprint)
        peaks = [] if measured is None else peaks_of(measured)
        return sheets.profiled(one, profile_from_dict(one.facts["profile"]), top=top, peaks=peaks)

    _report(trial, sheet, told, json_=json_)


def _spec_data(
    store: Store, model: str | None, config: str | None, preset: str | None, given: Given
) -> dict[str, Any]:
    if config is not None and preset is not None:
        raise SpecError("`--config` and `--preset` contradict each other.", hint="Give one of them.")
    if preset is not None:
        base = preset_config(preset)
    else:
        expert = bool(given.get("expert"))
        base = config_from(config, store=lambda: store, other_model=model is not None, expert=expert)
    return spec_data(base, model, given)


def _run_trial(store: Store, job: Job, progress: Progress, told: dict[str, Any]) -> Trial:
    """Submit a job, watch it, and return its final trial; a signal carries the partial document."""
    trial = ""
    try:
        with scheduler(store) as service:
            trial = service.submit(job)
            status = watch(service, trial, progress)
    except Interrupted as interrupted:
        if trial:
            interrupted.document = {**store.trial(trial).to_dict(), **told}
        raise
    return _final_trial(store.trial(trial), status)


def _final_trial(trial: Trial, status: Status) -> Trial:
    """Return the stored trial, or the scheduler's copy if the store could not save its end."""
    if trial.state == status.state:
        return trial
    return replace(trial, state=status.state, error=status.error)


def _report(trial: Trial, sheet: Callable[[Trial], Sheet], told: dict[str, Any], *, json_: bool) -> None:
    """Print a trial; if it has an error, end the command."""
    if json_:
        print_json({**trial.to_dict(), **told})
    elif trial.state == "COMPLETE":
        print_sheet(sheet(trial))
    if trial.error is not None:
        print_error(trial.error["message"], trial.error["hint"])
        raise typer.Exit(exit_code(trial.error))


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise unwritable(target, error) from None


# --- sweep --------------------------------------------------------------------------------------------------


_PERCENTILES = {name.removesuffix("_s"): name for name in PERCENTILE_NAMES}


@with_settings
def sweep(
    model: Model = None,
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of a setting, of a free dimension, or of `model` (its variants) to "
            "measure. Give it twice for all combinations.",
            metavar="NAME=A,B,…",
            show_default=False,
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(
            help="Latency limit in ms. Points above it are marked, and the best point is one below it.",
            metavar="MS",
            show_default=False,
        ),
    ] = None,
    percentile: Annotated[
        str | None,
        typer.Option(
            help="Percentile that the limit applies to. Default: p95 if every point has enough "
            "inferences for it, else p50.",
            metavar="|".join(_PERCENTILES),
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    preset: Preset = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Reuse points that were measured before on this machine.")
    ] = False,
    wait_quiet: WaitQuiet = None,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure one or two settings at several values, all under the same conditions.

    Give `--vary NAME=A,B,…` once or twice, or lists: `--batch-size 1,2,4,8 --intra-op-num-threads 1,2`,
    `--dim NAME=64,128`. All points run in the same rounds, with ONNX Runtime's default on the workload of
    the first.

    Exit codes: 0 done · 1 a worker failed · 2 bad input · 3 the result is rejected (grade F) · 130 Ctrl-C.
    """
    one_format(format_, json_=json_)
    patience_s = wait_quiet_s(wait_quiet)
    where: dict[str, Any] = {"line_s": _latency_limit_s(line), "percentile": _percentile(percentile)}
    store = Store()
    given, axes = _split_axes(given, lists_alone=bool(vary))
    axes = [*map(parse_vary, vary or []), *axes]
    if not axes:
        raise SpecError(
            "There is nothing to sweep.",
            hint="Give lists: `--batch-size 1,2,4,8`, `--vary NAME=A,B` or `--dim NAME=64,128`.",
        )
    progress = Progress(sys.stderr, quiet=quiet)
    spec = spec_from_dict(_spec_data(store, model, config, preset, given))
    [spec], told = with_sizes([spec], store, progress, varied=[one.name for one in axes])
    resolved = resolve_trial(spec, store, run_job)
    named = models(store, resolved.record)
    points = expand(resolved.spec, axes, resolved.record.info, named)
    _print_unmeasured(points, progress)
    check_configurations(store, configurations(points), progress)
    where["margin"] = resolved.spec.protocol.margin
    name = study_name(axes, secrets.token_hex(4))
    found = _Sweep(store=store, name=name, axes=axes, points=points, where=where, told=told)
    try:
        _measure(found, resolved.record, named, progress, reuse=reuse, patience_s=patience_s)
    except Interrupted as interrupted:
        found.read()
        if json_:
            interrupted.document = found.document()
        else:
            print_parts([found.table()])
        raise
    _report_sweep(found, "json" if json_ else format_)


def _latency_limit_s(text: str | None) -> float | None:
    """Read `--line` in seconds."""
    if text is None:
        return None
    try:
        ms = float(text.strip().removesuffix("ms"))
    except ValueError:
        ms = math.nan
    if not 0 < ms < math.inf:
        raise SpecError(
            f"`--line` takes milliseconds above 0, but got `{text[:40]}`.",
            hint="Write for example `--line 5`.",
        )
    return ms / 1e3


def _percentile(text: str | None) -> str | None:
    if text is None or text in _PERCENTILES:
        return None if text is None else _PERCENTILES[text]
    raise SpecError(
        f"There is no percentile `{text[:40]}` here.{nearest(text, _PERCENTILES)}",
        hint=f"Choose among {', '.join(_PERCENTILES)}.",
    )


def _print_unmeasured(points: Sequence[Point], progress: Progress) -> None:
    """Print which combinations are not measured, before the others start."""
    for point in points:
        if point.refused:
            progress.line(f"{point_name(point.values)} is refused: {point.refused}")
        elif point.same is not None:
            progress.line(f"{point_name(point.values)} is the same as {point_name(point.same)}: {point.why}")


@dataclass(slots=True, kw_only=True)
class _Sweep:
    """A sweep and the results of its points."""

    store: Store
    name: str  # of its trials in the store
    axes: Sequence[Axis]
    points: Sequence[Point]
    where: dict[str, Any]  # arguments of `rank_points`: latency limit, percentile, margin
    told: dict[str, Any]  # sources of assumed sizes, see `with_sizes`
    earlier: Earlier | None = None
    known: Known = field(default_factory=dict)

    def read(self) -> None:
        """Read the results of the points from the store."""
        asked = configurations(self.points)
        self.known = known_trials(self.store, asked, study=self.name, earlier=self.earlier)

    @property
    def comparison(self) -> Comparison | None:
        """Return the comparison of the points; None: all were measured earlier."""
        return next((one.comparison for one in self.known.values() if not one.reused), None)

    def ended(self) -> list[KnownTrial]:
        """Return the results of the points that are measured, not replaced by an equivalent one."""
        keys = (point.spec.key() for point in self.points if point.spec is not None and point.is_measured)
        return [self.known[key] for key in keys if key in self.known]

    def rows(self) -> list[Measured]:
        return join(self.points, self.known)

    def rank_points(self) -> SweepRanking:
        return rank_points(self.rows(), **self.where)

    def table(self) -> Table:
        return comparisons.points(self.rows(), self.rank_points())

    def verdict(self) -> str:
        return sweep_words.sentence(self.rows(), self.rank_points())

    def document(self) -> dict[str, Any]:
        ranking = self.rank_points()
        return {
            "study": self.name,
            "axes": {one.name: list(one.values) for one in self.axes},
            "comparison": self.comparison.to_dict() if self.comparison is not None else None,
            "line_s": ranking.line_s,
            "percentile": ranking.percentile,
            "best": None if ranking.best is None else dict(ranking.best.values),
            "verdict": self.verdict(),
            "points": [
                self._point(point, row, ranking) for point, row in zip(self.points, self.rows(), strict=True)
            ],
            **self.told,
        }

    def _point(self, point: Point, row: Measured, ranking: SweepRanking) -> dict[str, Any]:
        """Return one point as JSON data, with raw measurements if it was measured now."""
        found = self.known.get(point.measured_spec.key()) if point.measured_spec is not None else None
        trial: dict[str, Any] = {"state": row.state}
        if found is not None:
            trial = (found.trial if found.reused else self.store.trial(found.trial.id)).to_dict()
        return {
            "values": dict(point.values),
            "reused": row.reused,
            "place": ranking.place(row),
            "over_line": ranking.is_in(row, ranking.over),
            "front": ranking.is_in(row, ranking.front),
            "same_as": None if point.same is None else dict(point.same),
            "why": point.why or point.refused,
            **trial,
        }


def _split_axes(given: Given, *, lists_alone: bool) -> tuple[Given, list[Axis]]:
    """Move the varied settings from the options to axes: batch size, threads and dimensions with lists.

    A single batch size or thread number is an axis of one point, unless `lists_alone` keeps it as an option.
    """
    rest, axes = dict(given), []
    for name in (BATCH, THREADS):
        if name in rest and ("," in rest[name] or not lists_alone):
            axes.append(Axis(name=name, values=parse_values(rest.pop(name), name=name)))
    dims = []
    for text in rest.pop("dims", []):
        name, equals, values = text.rpartition("=")
        if equals and "," in values:
            axes.append(Axis(name=name, values=parse_values(values, name=name)))
        else:
            dims.append(text)
    return (rest | {"dims": dims} if dims else rest), axes


def _measure(
    found: _Sweep,
    model: ModelRecord,
    named: Models,
    progress: Progress,
    *,
    reuse: bool,
    patience_s: float,
) -> None:
    """Measure all points without an earlier result in one comparison."""
    store = found.store
    with scheduler(store) as service:
        if reuse:
            fingerprint = service.environment()["fingerprint"]
            found.earlier = measured_earlier(store, model, named, fingerprint=fingerprint)
        found.read()
        if asked := missing(configurations(found.points), found.known):
            announce(store, asked, progress, family=1)
            comparison = job_types.comparison(
                asked,
                study=found.name,
                model_name=model.name,
                what=f"sweep of {len(asked)} points of {model.name}",
                wait_quiet_s=patience_s,
                protocol=job_types.sweep_protocol(asked),
            )
            watch(service, service.submit(comparison), progress=progress)
            found.read()
    if found.comparison is not None:
        report_precision(found.comparison, progress)


def _report_sweep(found: _Sweep, kind: str) -> None:
    if kind == "json":
        print_json(found.document())
    elif kind == "csv":
        print_lines([csv_text(found.table())])
    elif kind == "md":
        print_lines([md_text(found.table())])
    else:
        print_parts([found.table(), Line(found.verdict(), apart=True)])
    ended = found.ended()
    errors = [one.trial.error for one in ended if one.trial.error is not None]
    if errors:
        print_error(f"{len(errors)} of {len(ended)} points failed. {errors[0]['message']}", errors[0]["hint"])
        raise typer.Exit(combined_exit_code(errors))
    result = found.comparison.facts if found.comparison is not None else {}
    if is_rejected(result):
        rated = quality(result)
        assert rated is not None  # a rejected result has a grade
        print_error(f"{rated.label}. {result['grade_reason']}", result["remedy"])
        raise typer.Exit(EXIT_UNDECIDED)
