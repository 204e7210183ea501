"""The command `search`, and the commands of `searches` on stored searches."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core.cli import COMMANDS
from core.cli.comparing import with_sizes
from core.cli.help_groups import Group
from core.cli.options import (
    CONFIG,
    Given,
    WaitQuiet,
    config_from,
    seconds,
    spec_data,
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
    note,
    one_format,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_parts, print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.process.job_worker import run_job
from core.run import search as searching
from core.run.job_log import clean_up
from core.run.search import Prepared
from core.run.search.answer import space_facts
from core.run.search.stored import answer_of, trials_of
from core.show.export import export_yaml
from core.show.format import duration
from core.show.sheets import searches
from core.show.table import csv_text, md_text
from core.spec import TrialSpec, spec_from_dict, with_changes
from core.spec.question import (
    DEFAULT_BUDGET_S,
    OBJECTIVE_NAMES,
    OLD_STRATEGIES,
    PRESETS,
    STRATEGIES,
    parse_limits,
    parse_objective,
    parse_settings,
    question_from_dict,
)
from core.spec.space import unvaried_words
from core.store import Store, StudyRecord
from core.wire.errors import SpecError, nearest, unwritable

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
def search(  # noqa: PLR0915 - one option after the other
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
            "--budget, another --objective or --limit.",
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

    Exit codes: 0 found, or no configuration beats the default · 1 no configuration keeps the limits, or a
    worker failed · 2 bad input · 3 undecided, rejected, or too little time · 130 Ctrl-C.
    """
    if output is not None:
        check_output_path(output)
    patience_s = wait_quiet_s(wait_quiet)
    store = Store()
    progress = Progress(sys.stderr, quiet=quiet)
    asked = _question_from_options(objective, limit or [], ask)
    budget = given.pop("budget_s", None)
    budget_s = None if budget is None else seconds("--budget", budget)
    if resume is not None:
        _only_resuming(model, config, vary, fix, without, data, given)
    study, told = "", dict[str, Any]()
    try:
        with scheduler(store) as service:
            machine = service.environment()
            if resume is not None:
                asked |= {"extend": True} if extend else {}
                prepared = searching.continue_search(
                    store, resume, run_job, machine, budget_s=budget_s, question=asked or None
                )
            else:
                fixed = {name: values[0] for name, values in parse_settings(fix or [], "--fix").items()}
                how = {"strategy": _strategy(strategy), "give_way": give_way, "warm_start": not cold}
                how |= {"variants": variants, "extend": extend}
                how |= {"vary": parse_settings(vary or [], "--vary")}
                how |= {"fix": list(fixed), "without": without or []}
                spec = with_changes(_start(store, model, config, given, data), fixed)
                [spec], told = with_sizes([spec], store, progress)
                how |= {"budget_s": budget_s or spec.protocol.budget_s or DEFAULT_BUDGET_S}
                limits = [one.model_dump(mode="json", exclude_none=True) for one in spec.targets]
                question = question_from_dict({"limits": limits, **asked, **how})
                prepared = searching.prepare(spec, question, store, run_job, machine)
            _announce(prepared, store, progress)
            if dry_run:
                _report_space(prepared, told, json_=json_)
                return
            study = service.submit(searching.job(prepared, wait_quiet_s=patience_s))
            status = watch(service, study, progress)
    except Interrupted as interrupted:
        if study:
            interrupted.document = searches_document(store.study(study)) | told
            interrupted.hint = (
                f"The configurations that it evaluated are kept. Continue with `search --resume {study}`."
            )
        raise
    record = store.study(study)
    if status.error is not None:
        if json_:
            print_json(searches_document(replace(record, answer=record.answer or status.result)) | told)
        print_error(status.error["message"], status.error["hint"])
        raise typer.Exit(exit_code(status.error))
    _report(store, record, output, told, json_=json_)


def _question_from_options(objective: str | None, limits: list[str], ask: str | None) -> dict[str, Any]:
    """Return objective and constraints from the options."""
    found: dict[str, Any] = {}
    if ask is not None:
        ask = ask.replace("rows", "samples")  # name before 1.0
        if ask not in PRESETS:
            raise SpecError(
                f"There is no preset `{ask[:60]}` of objective and limits.{nearest(ask, PRESETS)}",
                hint=f"Choose among {', '.join(f'`{name}`' for name in PRESETS)}.",
            )
        found |= PRESETS[ask][1]
    if objective is not None:
        found["objective"] = parse_objective(objective)
    if limits:
        read = parse_limits(limits)
        read["limits"] = [one.model_dump(mode="json", exclude_none=True) for one in read["limits"]]
        found |= read
    return found


def _strategy(name: str) -> str:
    if name in OLD_STRATEGIES:
        note(f"The strategy `{name}` is no longer offered. The search uses `race`.")
        return "race"
    if name not in STRATEGIES:
        raise SpecError(
            f"There is no strategy `{name[:40]}`.{nearest(name, STRATEGIES)}",
            hint=f"Choose among {', '.join(STRATEGIES)}.",
        )
    return name


def _only_resuming(*given: Any) -> None:
    if any(given):
        raise SpecError(
            "A continued search keeps its model, its settings and what varies.",
            hint="Give `--budget`, `--objective` and `--limit` only, or start a new search.",
        )


def _start(
    store: Store, model: str | None, config: str | None, given: Given, data_path: str | None
) -> TrialSpec:
    expert = bool(given.get("expert"))
    data = config_from(config, store=lambda: store, other_model=model is not None, expert=expert)
    found = spec_data(data, model, given)
    if data_path is not None:
        found["dataset"] = {**found.get("dataset", {}), "path": data_path}
    return spec_from_dict(found)


def _announce(prepared: Prepared, store: Store, progress: Progress) -> None:
    question, space = prepared.question, prepared.space
    within = f", keeping {', '.join(question.limit_words)}" if question.limit_words else ""
    progress.line(f"{question.words}{within}: {searches.space_words(space_facts(space))}")
    progress.line(f"time budget {duration(question.budget_s)}; {searching.prediction(prepared, store)}")


def _report_space(prepared: Prepared, told: dict[str, Any], *, json_: bool) -> None:
    space = prepared.space
    if json_:
        print_json(
            {
                "objective": dict(prepared.question.objective),
                "limits": prepared.question.limit_words,
                "space": space_facts(space),
                "axes": {axis.name: list(axis.values) for axis in space.axes},
                **told,
            }
        )
        return
    print_lines(
        [
            searches.space_words({**space_facts(space), "left_out": {}}),
            "",
            *(
                f"  {axis.name}: {', '.join(searches.value_words(one) for one in axis.values)}"
                for axis in space.axes
            ),
            "",
            "Skipped combinations:",
            *(f"  {count:>12,}  {reason}" for reason, count in space.left_out.items()),
            *unvaried_words(space.unvaried),
        ]
    )


def _report(
    store: Store, record: StudyRecord, output: Path | None, told: dict[str, Any], *, json_: bool
) -> None:
    answer: Any = record.answer
    winner = answer["winner"] if answer["outcome"] == "FOUND" else None
    if output is not None:
        if winner is None:
            print_error(f"`{output}` was not written: no configuration is better.", "")
        else:
            try:
                trial = store.trial(winner["trial"])
                output.write_text(export_yaml(trial, found=searching.search_provenance(store, trial)))
            except OSError as error:
                raise unwritable(output, error) from None
    if json_:
        print_json({**searches_document(record), **told})
    else:
        print_sheet(searches.search_sheet(record))
    raise typer.Exit(EXITS.get(answer["outcome"], EXIT_UNDECIDED))


def searches_document(record: StudyRecord) -> dict[str, Any]:
    """Return what `search --json` prints."""
    answer: Any = answer_of(record)
    return {
        "study": record.id,
        "state": record.state,
        "model": record.model_name,
        "error": record.error,
        "question": record.question,
        "spec": record.spec,
        **(answer or {}),
        "trials": trials_of(record),
    }


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
        print_json({"studies": [searches_document(one) | {"trials": []} for one in found]})
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
        print_json(searches_document(record))
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
    from core.run.search.optuna_export import export  # a late import: no other command needs it

    record = _settled_store().study(study)
    written = export(record, optuna)
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
