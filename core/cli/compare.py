"""The command `compare`: measures configurations together, with a verdict on each against the baseline."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.comparing import (
    against_baseline,
    announce,
    check_configurations,
    failures,
    has_undecided,
    labels,
    launches,
    named,
    report_precision,
    with_sizes,
)
from core.cli.importing import refuse_beside_import, show_imported
from core.cli.options import (
    CONFIG,
    EFFORT,
    ENGINE_PREFIXES,
    Given,
    WaitQuiet,
    share,
    spec_data,
    wait_quiet_s,
    with_workload,
)
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Format,
    Json,
    Quiet,
    Wide,
    combined_exit_code,
    exit_code,
    one_format,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.evidence import continuation
from core.evidence.comparison import Comparison, Configuration
from core.run import job_types
from core.run.job import Job
from core.show import documents
from core.show.output_types import Limit
from core.show.sheets import comparisons
from core.show.table import csv_text, md_text
from core.spec import spec_from_dict
from core.store import Store
from core.store.library import MODEL_SUFFIXES
from core.wire.errors import SpecError

MAX_CANDIDATES = 7


@with_workload
def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Path, library name, sample name or hash of a model; not needed if a "
            "configuration names one. Several models are compared on ONNX Runtime's default, "
            "the first one as the baseline.",
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
    preset, or PyTorch itself for a model that ORTune converted. Options apply to all configurations; a
    preset, PyTorch and a model take the workload of the first file or trial. If batch sizes differ, ORTune
    compares the times per sample.

    Exit codes: 0 all verdicts are decided (with --fail-if-slower: no candidate is slower than allowed) · 1 a
    candidate is slower than allowed, or a worker failed · 2 bad input · 3 a verdict is UNDECIDED (with
    --fail-if-slower: a candidate may be slower than allowed), or the budget is too small · 130 Ctrl-C.
    """
    one_format(format_, json_=json_)
    if import_ is not None:
        refuse_beside_import([models, candidate, baseline, continue_, fail_if_slower], given)
        show_imported(Store(), import_, wanted="summary", json_=json_)
        return
    limit = None if fail_if_slower is None else share("--fail-if-slower", fail_if_slower)
    patience_s = wait_quiet_s(wait_quiet)
    progress = Progress(sys.stderr, quiet=quiet)
    if continue_ is not None:
        if models or candidate:
            raise SpecError(
                "`--continue` measures a comparison longer, and takes no other configurations.",
                hint="Leave MODEL and `--candidate` out.",
            )
        store = Store()
        job = _continuation(store, continue_, given, patience_s, progress)
        comparison = _run(store, job, progress, {}, json_=json_)
        _report(store, comparison, limit, {}, "json" if json_ else format_)
        return
    model, refs = _model_and_references(models or [], baseline, candidate or [])
    store = Store()
    specs = named(refs, model=model, given=given, store=lambda: store, different_models=different_models)
    specs, told = with_sizes(specs, store, progress)
    asked = [
        Configuration(spec=spec, label=label, role="candidate" if number else "baseline")
        for number, (spec, label) in enumerate(zip(specs, labels(refs, specs), strict=True))
    ]
    check_configurations(store, asked, progress)
    announce(store, asked, progress)
    job = job_types.comparison(asked, wait_quiet_s=patience_s, different_models=different_models)
    comparison = _run(store, job, progress, told, json_=json_)
    _report(store, comparison, limit, told, "json" if json_ else format_)


def _model_and_references(
    models: Sequence[str], baseline: str | None, candidates: Sequence[str]
) -> tuple[str | None, list[str]]:
    """Return the common model (None: each reference names its own) and the references, the baseline first.

    Raises:
        SpecError: no candidate, or too many.
    """
    if len(models) > 1:
        listed = [_as_model(one) for one in models]
        candidates = [*(listed if baseline else listed[1:]), *candidates]
        model, baseline = None, baseline or listed[0]
    else:
        model, baseline = (models[0] if models else None), baseline or "preset:default"
    if not 1 <= len(candidates) <= MAX_CANDIDATES:
        raise SpecError(
            f"A comparison has 1 to {MAX_CANDIDATES} candidates, but got {len(candidates)}.",
            hint="Give each with `--candidate`, or name several models.",
        )
    return model, [baseline, *candidates]


def _as_model(ref: str) -> str:
    """Mark a reference among several models as a model, unless it has another prefix."""
    known = (".yaml", ".yml", *MODEL_SUFFIXES)
    plain = ref.startswith(("preset:", "variant:", "model:", *ENGINE_PREFIXES)) or ref.lower().endswith(known)
    return ref if plain else f"model:{ref}"


def _continuation(store: Store, ref: str, given: Given, patience_s: float, progress: Progress) -> Job:
    """Return the job that continues the comparison `ref`."""
    if others := sorted(set(given) - {EFFORT, "budget_s"}):
        raise SpecError(
            f"A comparison that is measured longer keeps its settings, so `{others[0]}` cannot change.",
            hint="Change --effort or --budget only, or start a new comparison.",
        )
    before = store.comparison(ref)
    continuation.ensure_continuable(before, [store.trial(one.trial) for one in before.contestants])
    protocol = spec_from_dict(spec_data(store.trial(before.contestants[0].trial).spec, None, given)).protocol
    precision = protocol.effort if EFFORT in given else before.protocol["precision"]
    budget_s = protocol.budget_s if "budget_s" in given else None
    progress.line(
        f"measuring comparison {before.id} longer: effort {precision}, "
        f"{launches(len(before.facts.get('generations') or []))} so far"
    )
    return job_types.more_launches(
        store, before.id, precision=precision, budget_s=budget_s, wait_quiet_s=patience_s
    )


def _run(store: Store, job: Job, progress: Progress, told: dict[str, Any], *, json_: bool) -> Comparison:
    submitted = ""
    try:
        with scheduler(store) as service:
            submitted = service.submit(job)
            status = watch(service, submitted, progress)
    except Interrupted as interrupted:
        if submitted:
            comparison = store.comparison(submitted)
            interrupted.document = {**documents.comparison(store, comparison), **told}
            if comparison.result and not json_:
                print_sheet(comparisons.comparison_sheet(comparison, store.trials_of(submitted)))
        raise
    comparison = store.comparison(submitted)
    if status.state != comparison.state:  # the store could not save its end
        print_error(*_error_text(status.error))
        raise typer.Exit(exit_code(status.error))
    report_precision(comparison, progress)
    return comparison


def _error_text(error: Any) -> tuple[str, str]:
    return (error["message"], error["hint"]) if error else ("The comparison has no result.", "")


def _report(
    store: Store, comparison: Comparison, limit: float | None, told: dict[str, Any], kind: str
) -> None:
    trials = store.trials_of(comparison.id)
    found = None if limit is None else check_slower_limit(comparison, limit)
    if kind == "json":
        print_json({**documents.comparison(store, comparison, found), **told})
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
