"""The commands `tune` and `profile`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from core.api import measuring
from core.api.results import Result
from core.cli.importing import refuse_beside_import, show_imported
from core.cli.options import (
    CONFIG,
    Config,
    Given,
    Model,
    Preset,
    WaitQuiet,
    start_of,
    wait_quiet_s,
    with_settings,
)
from core.cli.output import (
    EXIT_UNDECIDED,
    Json,
    Quiet,
    Wide,
    check_output_path,
    exit_code,
    print_error,
    print_json,
)
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, finished, started
from core.evidence.comparison import failures, has_undecided
from core.evidence.measurement import Trial
from core.show.sheets import Sheet
from core.store import audit
from core.wire.errors import unwritable
from core.wire.files import written_whole

Baseline = Annotated[
    str | None,
    typer.Option(
        help="Second configuration to compare with, on the same workload, besides ONNX Runtime's default.",
        metavar=CONFIG,
        show_default=False,
    ),
]


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
    start = start_of(config, preset)
    patience_s = wait_quiet_s(wait_quiet)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        measure = partial(measuring.tune, model, start, baseline=baseline, wait_quiet_s=patience_s)
        result = finished(session, partial(measure, session=session, **given))
    _report(result, result.sheet, json_=json_)
    comparison = session.store.comparison(result.record.comparison)
    for error in failures(comparison, session.store.trials_of(comparison.id)):  # of the baseline
        print_error(error["message"], error["hint"])
        raise typer.Exit(exit_code(error))
    thin = result.record.state == "COMPLETE" and result.record.p50_s is None
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
        show_imported(import_, wanted="profile", top=top, json_=json_)
        return
    if trace is not None:
        check_output_path(trace)
    start = start_of(config, preset)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = finished(session, partial(measuring.profile, model, start, session=session, **given))
    trial = result.record
    if trace is not None and trial.state == "COMPLETE" and trial.result is not None:
        _copy(session.store.artifact_path(trial.id, trial.result["trace"]), trace)
    _report(result, lambda: measuring.trial_sheet(session.store, trial, top=top), json_=json_)


def _report(result: Result[Trial], sheet: Callable[[], Sheet], *, json_: bool) -> None:
    """Print a trial; if it has an error, end the command."""
    trial = result.record
    if json_:
        print_json(result.to_dict())
    elif trial.state == "COMPLETE":
        print_sheet(sheet())
    if trial.error is not None:
        print_error(trial.error["message"], trial.error["hint"])
        raise typer.Exit(exit_code(trial.error))


def _copy(source: Path, target: Path) -> None:
    try:
        with written_whole(target) as part:
            shutil.copyfile(source, part)
    except OSError as error:
        raise unwritable(target, error) from None
    audit.record("export", "trace of a profile", file=target.name, ids=[source.parent.name])
