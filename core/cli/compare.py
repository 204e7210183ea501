"""The command `compare`: measures configurations together, with a verdict on each against the baseline."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from core.api import measuring
from core.api.measuring import MAX_CANDIDATES
from core.api.results import Result
from core.api.session import Session
from core.cli.importing import refuse_beside_import, show_imported
from core.cli.options import CONFIG, Given, WaitQuiet, wait_quiet_s, with_workload
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Format,
    Json,
    Quiet,
    Wide,
    combined_exit_code,
    one_format,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, finished, started
from core.evidence.comparison import Comparison, against_baseline, failures, has_undecided
from core.show.output_types import Limit
from core.show.sheets import comparisons
from core.show.table import csv_text, md_text
from core.spec.text_values import share
from core.store import Store
from core.wire.engines import REFS
from core.wire.errors import SpecError


@with_workload
def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Path, library name, sample name or hash of a model; not needed if a "
            "configuration names one. Several models are compared on ONNX Runtime's default, "
            "the first one as the baseline. The name of an engine is a candidate.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    *,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Configuration that the candidates are compared with. Default: preset:default, "
            "or the first of several models.",
            metavar=CONFIG,
            show_default=False,
        ),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Configuration to compare. Repeatable, up to {MAX_CANDIDATES} times.", metavar=CONFIG
        ),
    ] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            help="Exit code 1 if a candidate is significantly slower than the baseline by more "
            "than this, 3 if that is undecided, 0 if it is not.",
            metavar="SHARE|N%",
            show_default=False,
        ),
    ] = None,
    continue_: Annotated[
        str | None,
        typer.Option(
            "--continue",
            help="Measure a finished comparison longer: more launches, added to those that it "
            "has. Only --effort and --budget may change.",
            metavar="COMPARISON",
            show_default=False,
        ),
    ] = None,
    different_models: Annotated[
        bool,
        typer.Option(
            "--different-models",
            help="Also compare models whose outputs differ; every verdict on them says so.",
        ),
    ] = False,
    import_: Annotated[
        Path | None,
        typer.Option(
            "--import",
            help="Show a result of onnxruntime_perf_test from elsewhere (its output or its result "
            "file), and keep it for the page Compare. ORTune measures nothing and draws no "
            "verdict from it.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    wait_quiet: WaitQuiet = None,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Compare configurations of a model with a baseline under the same conditions.

    A configuration is a YAML file, a trial ID, a model (its path, or model:NAME) on ONNX Runtime's default, a
    preset, or another engine: OpenVINO, or PyTorch for a model that ORTune converted. Options apply to all
    configurations; a preset, an engine and a model take the workload of the first file or trial. With several
    --runtime, each configuration runs once in every runtime, unless it names its own. If batch sizes differ,
    ORTune compares the times per sample.

    Exit codes: 0 all verdicts are decided (with --fail-if-slower: no candidate is slower than allowed) · 1 a
    candidate is slower than allowed, or a worker failed · 2 bad input · 3 a verdict is UNDECIDED (with
    --fail-if-slower: a candidate may be slower than allowed), or the budget is too small · 130 Ctrl-C.
    """
    one_format(format_, json_=json_)
    if import_ is not None:
        refuse_beside_import([models, candidate, baseline, continue_, fail_if_slower], given)
        show_imported(import_, wanted="summary", json_=json_)
        return
    limit = None if fail_if_slower is None else share("--fail-if-slower", fail_if_slower)
    patience_s = wait_quiet_s(wait_quiet)
    if continue_ is not None and (models or candidate):
        raise SpecError(
            "`--continue` measures a comparison longer, and takes no other configurations.",
            hint="Leave MODEL and `--candidate` out.",
        )
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        if continue_ is not None:
            measure = partial(measuring.measure_longer, continue_)
        else:
            engines = [one for one in models or [] if one in REFS]
            paths = [one for one in models or [] if one not in REFS]
            candidates = [*(candidate or []), *engines]
            measure = partial(measuring.compare, paths or None, candidates, baseline=baseline)
            measure = partial(measure, different_models=different_models)
        try:
            result = finished(session, partial(measure, wait_quiet_s=patience_s, session=session, **given))
        except Interrupted as interrupted:
            _print_partial(session, interrupted, json_=json_)
            raise
    _report(session.store, result, limit, "json" if json_ else format_)


def _print_partial(session: Session, interrupted: Interrupted, *, json_: bool) -> None:
    if session.last is None:
        return
    interrupted.document = {**session.last.to_dict(), "fail_if_slower": None}
    if session.last.record.result and not json_:
        print_sheet(session.last.sheet())


def _report(store: Store, result: Result[Comparison], limit: float | None, kind: str) -> None:
    comparison = result.record
    trials = store.trials_of(comparison.id)
    found = None if limit is None else check_slower_limit(comparison, limit)
    if kind == "json":
        print_json({**result.to_dict(), "fail_if_slower": None if found is None else asdict(found)})
    elif kind == "csv":
        print_lines([csv_text(comparisons.configurations(comparison, trials))])
    elif kind == "md":
        print_lines([md_text(comparisons.configurations(comparison, trials))])
    elif comparison.result:
        print_sheet(comparisons.comparison_sheet(comparison, trials))
    errors = list({error["message"]: error for error in failures(comparison, trials)}.values())
    for error in errors:
        print_error(error["message"], error["hint"])
    if errors:
        raise typer.Exit(combined_exit_code(errors))
    raise typer.Exit(_verdict_code(comparison, found))


def _verdict_code(comparison: Comparison, found: Limit | None) -> int:
    if found is None:
        return EXIT_UNDECIDED if has_undecided(comparison) else 0
    names = {one.trial: one.label for one in comparison.contestants}
    trials, may_be, hint, code = (
        (found.broken, "", "", EXIT_FAILED)
        if found.broken
        else (found.open, "may be ", "Use more --effort, or a larger --budget.", EXIT_UNDECIDED)
    )
    if not trials:
        return 0
    who = ", ".join(f"`{names[trial]}`" for trial in trials)
    print_error(f"{who}: {may_be}more than {100 * found.limit:g} % slower than the baseline.", hint)
    return code


def check_slower_limit(comparison: Comparison, limit: float) -> Limit:
    """Return which candidates are slower than the baseline by more than `limit`, and which may be.

    A candidate that takes (1 + limit) times as long has the ratio 1 / (1 + limit). Broken: the whole interval
    lies below it. Open: the interval contains it, or there is none. A contrast is also open if its
    undisturbed rounds contradict the others, or if the A/A control rejects it.
    """
    least = 1 / (1 + limit)
    broken: list[str] = []
    candidates = [one.trial for one in comparison.contestants if one.role == "candidate"]
    still_open = set(candidates)  # includes candidates without a contrast
    for one in against_baseline(comparison):
        low, high = one["ratio_low"], one["ratio_high"]
        doubtful = one["contradicted"] or not one["holds"]
        if low is None or high is None or doubtful or low < least <= high:
            continue
        still_open.discard(one["candidate"])
        if high < least:
            broken.append(one["candidate"])
    left = [trial for trial in candidates if trial in still_open]
    return Limit(limit=limit, passed=not broken and not left, broken=broken, open=left)
