"""The command `search`, and the commands of `searches` on stored searches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core.api import searching
from core.api.results import Result
from core.api.searching import Prepared, space_facts
from core.api.session import clean_up
from core.api.signing import SigningKey, sign_text
from core.cli import COMMANDS
from core.cli.help_groups import Group
from core.cli.keys import SignKey, opened_key
from core.cli.options import (
    CONFIG,
    Given,
    WaitQuiet,
    wait_quiet_s,
    with_settings,
)
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Format,
    Json,
    Quiet,
    Wide,
    check_output_path,
    exit_code,
    one_format,
    print_error,
    print_json,
    print_lines,
    write_text,
)
from core.cli.sheets import print_parts, print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, finished, started
from core.evidence.result_types import SearchResult
from core.show import documents
from core.show.export import export_yaml
from core.show.sheets import searches
from core.show.table import csv_text, md_text
from core.spec.question import (
    OBJECTIVE_NAMES,
    PRESETS,
    STRATEGIES,
    parse_settings,
)
from core.spec.settings import value_words
from core.spec.space import unvaried_words
from core.spec.text_values import seconds
from core.store import Store, StudyRecord, audit
from core.wire.errors import SpecError

EXITS = {"FOUND": 0, "NO_DIFFERENCE": 0, "NONE_KEEPS_LIMITS": EXIT_FAILED}

Vary = Annotated[
    list[str] | None,
    typer.Option(
        help="Values of a setting to search. Repeatable; by default ORTune varies all settings "
        "that are worth it on this model and machine.",
        metavar="NAME=A,B,…",
        show_default=False,
    ),
]


@with_settings
def search(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Path, library name, sample name or hash of a model; not needed if --config "
            "names one, or with --resume.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    *,
    objective: Annotated[
        str | None,
        typer.Option(
            help=f"What to optimize: {OBJECTIVE_NAMES}; or two with weights. Default: latency.",
            metavar="NAME|NAME:W,NAME:W",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Constraint on the result, for example p99<=3ms, memory<=100MiB, size<=20MiB, "
            "output_error<=1%, accuracy>=98%, or accuracy>=-0.5% relative to the original. "
            "Repeatable.",
            metavar="METRIC<=X|METRIC>=X",
            show_default=False,
        ),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(
            help="Traffic that the answer has to take: requests/s and a latency limit. Load tests follow the "
            "confirmation, in addition to --budget, until a configuration passes.",
            metavar="'200/s with p99<=20ms'",
            show_default=False,
        ),
    ] = None,
    ask: Annotated[
        str | None,
        typer.Option(help=f"Predefined objective and limits: {', '.join(PRESETS)}.", metavar="NAME"),
    ] = None,
    vary: Vary = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            help="Keep a setting at this value; it does not vary.",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Exclude a setting or a value: intra_op_num_threads, ORT_PARALLEL, NAME=VALUE. Repeatable.",
            metavar="NAME|VALUE",
            show_default=False,
        ),
    ] = None,
    variants: Annotated[
        Literal["none", "existing", "make"],
        typer.Option(
            help="Variants of the model to search: none, existing ones, or create simplified, "
            "fused, FP16 and INT8 ones first, within the budget. With --data this includes "
            "static INT8."
        ),
    ] = "existing",
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled data for constraints on the accuracy. Set how to read them in a --config.",
            metavar="FILE|FOLDER",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="How to choose configurations. "
            + "; ".join(f"{k}: {v}" for k, v in STRATEGIES.items())
            + "."
        ),
    ] = "race",
    give_way: Annotated[
        bool,
        typer.Option("--give-way", help="Let waiting jobs of this machine run between two measurements."),
    ] = False,
    extend: Annotated[
        bool,
        typer.Option("--extend", help="Exceed --budget if it is too short to confirm a result."),
    ] = False,
    wait_quiet: WaitQuiet = None,
    cold: Annotated[bool, typer.Option("--cold", help="Ignore earlier searches of this model.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Continue an interrupted search. Or extend a finished one with a longer "
            "--budget, another --objective, --limit or --load.",
            metavar="SEARCH",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="Configuration to start from. Settings that vary may change; all others stay.",
            metavar=CONFIG,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the best configuration as YAML.", metavar="BEST.yaml"),
    ] = None,
    sign: SignKey = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the search space and stop.")] = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Find the best configuration within limits and a time budget, and confirm it in fresh processes.

    ORTune compares every configuration with ONNX Runtime's default in the same rounds. The reported speed-up
    comes from the confirmation run in fresh processes alone. The options of `tune` say where the
    search starts; `--fix` keeps a setting.

    Exit codes: 0 found, or no configuration beats the default · 1 no configuration keeps the limits or passes
    under load, or a worker failed · 2 bad input · 3 undecided, rejected, or too little time · 130 Ctrl-C.
    """
    key = _signing_key(sign, output)
    patience_s = wait_quiet_s(wait_quiet)
    budget = given.pop("budget_s", None)
    budget_s = None if budget is None else seconds("--budget", budget)
    if resume is not None:
        _only_resuming(model, config, vary, fix, without, data, given)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        if resume is not None:
            run: Callable[..., Result[Any]] = partial(searching.resume, resume)
        else:
            fixed = {name: values[0] for name, values in parse_settings(fix or [], "--fix").items()}
            varied = parse_settings(vary or [], "--vary")
            run = partial(searching.search, model, config, vary=varied, fix=fixed, without=without or [])
            run = partial(run, variants=variants, data=data, strategy=strategy, give_way=give_way)
            run = partial(run, warm_start=not cold, **given)
        run = partial(run, objective=objective, limits=limit or [], load=load, preset=ask, extend=extend)
        run = partial(run, budget_s=budget_s, wait_quiet_s=patience_s, dry_run=dry_run, session=session)
        try:
            result = finished(session, run)
        except Interrupted as interrupted:
            if session.last is not None:
                interrupted.hint = (
                    "The configurations that it evaluated are kept. "
                    f"Continue with `search --resume {session.last.id}`."
                )
            raise
    if not dry_run:
        _report(session.store, result, output, key, json_=json_)
    elif json_:
        print_json(result.to_dict())
    else:
        _print_space(result.record)


def _only_resuming(*given: Any) -> None:
    if any(given):
        raise SpecError(
            "A continued search keeps its model, its settings and what varies.",
            hint="Give `--budget`, `--objective`, `--limit` and `--load` only, or start a new search.",
        )


def _print_space(prepared: Prepared) -> None:
    space = prepared.space
    print_lines(
        [
            searches.space_words({**space_facts(space), "left_out": {}}),
            "",
            *(f"  {axis.name}: {', '.join(value_words(one) for one in axis.values)}" for axis in space.axes),
            "",
            "Skipped combinations:",
            *(f"  {count:>12,}  {reason}" for reason, count in space.left_out.items()),
            *unvaried_words(space.unvaried),
        ]
    )


def _signing_key(sign: str | None, output: Path | None) -> SigningKey | None:
    """Check the path of the YAML file, and open the key that signs it, before the work."""
    if output is not None:
        check_output_path(output)
    elif sign is not None:
        raise SpecError(
            "`--sign` signs the file of `--output`, but none is given.", hint="Add `-o BEST.yaml`."
        )
    return opened_key(sign)


def _report(
    store: Store,
    result: Result[StudyRecord],
    output: Path | None,
    key: SigningKey | None,
    *,
    json_: bool,
) -> None:
    record = result.record
    if record.error is not None:
        if json_:
            print_json(result.to_dict())
        print_error(record.error["message"], record.error["hint"])
        raise typer.Exit(exit_code(record.error))
    answer: Any = record.answer
    best = searching.best_trial(answer)
    if output is not None:
        if not best:
            print_error(f"`{output}` was not written: {_none_better(answer)}.", "")
        else:
            trial = store.trial(best)
            text = export_yaml(trial, found=searching.search_provenance(store, trial))
            write_text(output, text if key is None else sign_text(text, key))
            audit.record("export", "trial as yaml", folder=store.folder, file=output.name, ids=[trial.id])
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
    raise typer.Exit(_exit(answer))


def _none_better(answer: SearchResult) -> str:
    load = answer.get("load")
    if load is not None and answer["outcome"] == "FOUND":
        return f"no better configuration passes {load['target']}"
    return "no configuration is better"


def _exit(answer: SearchResult) -> int:
    """Return the exit code: that of the outcome, unless nothing passes under load."""
    code, load = EXITS.get(answer["outcome"], EXIT_UNDECIDED), answer.get("load")
    if code or load is None or load["passed"] is not None:
        return code
    missed = load["tested"] and all(one["state"] == "MISSED" for one in load["tested"])
    return EXIT_FAILED if missed else EXIT_UNDECIDED


# --- stored searches ----------------------------------------------------------------------------------------

studies = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help=COMMANDS["searches"].help,
)

Study = Annotated[str, typer.Argument(help="Search ID, or its first characters.", metavar="SEARCH")]


@studies.callback(invoke_without_command=True)
def _alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_studies()


def _settled_store() -> Store:
    """Return the store, after marking searches whose process is gone as interrupted."""
    store = Store()
    clean_up(store)
    return store


@studies.command("list")
def list_studies(
    model: Annotated[str | None, typer.Option(help="Only searches of this model.", metavar="MODEL")] = None,
    *,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """List searches, newest first."""
    one_format(format_, json_=json_)
    store = _settled_store()
    sha256 = None
    if model is not None:
        known = store.model(model)
        if known is None:
            raise SpecError(f"There is no model `{model[:60]}` in the library.", hint="See `history`.")
        sha256 = known.content_sha256
    found = store.studies(model_sha256=sha256)
    table = searches.studies(found)
    if json_:
        print_json({"studies": [documents.search(one) | {"trials": []} for one in found]})
    elif format_ == "csv":
        print_lines([csv_text(table)])
    elif format_ == "md":
        print_lines([md_text(table)])
    elif found:
        print_parts([table])
    else:
        print_lines(["No searches yet. Start one: `ortune search MODEL`."])


@studies.command("show")
def show_study(
    study: Study,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Show all evaluated configurations.")] = False,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """Show a search with its result and the configurations that it evaluated."""
    one_format(format_, json_=json_)
    record = _settled_store().study(study)
    if json_:
        print_json(documents.search(record))
    elif format_ == "csv":
        print_lines([csv_text(searches.evaluation_table(record))])
    elif format_ == "md":
        print_lines([md_text(searches.evaluation_table(record))])
    elif all_:
        print_parts([searches.evaluation_table(record)])
    else:
        print_sheet(searches.search_sheet(record))


@studies.command("export")
def export_study(
    study: Study,
    *,
    optuna: Annotated[
        str,
        typer.Option(
            help="Optuna storage, which `optuna-dashboard` opens: a new file, or one with other studies.",
            metavar="sqlite:///FILE",
            show_default=False,
        ),
    ],
    json_: Json = False,
) -> None:
    """Export a search as an Optuna study: configurations, their speed-ups, and failures."""
    record = _settled_store().study(study)
    written = searching.export_to_optuna(record, optuna)
    if json_:
        print_json({"study": record.id, "optuna": optuna, "trials": written})
    else:
        print_lines([f"Wrote {written} trials to {optuna}. Open them with `optuna-dashboard {optuna}`."])


@studies.command("delete")
def delete_study(study: Study, *, json_: Json = False) -> None:
    """Delete a search and the trials of its screening; the comparison that confirmed its result stays."""
    store = _settled_store()
    record = store.study(study)
    if record.state in ("RUNNING", "WAITING"):
        raise SpecError(f"The search `{record.id}` is {record.state.lower()}.", hint="Cancel it first.")
    store.delete_study(record.id)
    if json_:
        print_json({"deleted": record.id})
    else:
        print_lines([f"Search {record.id} is deleted."])
