"""The commands `inspect`, `convert`, `export`, `history`, `show` and `machine`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from core import wire
from core.cli.filtering import Filter
from core.cli.options import Given, operators_of, whole_number, with_operators
from core.cli.output import (
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
    unwritable,
)
from core.cli.sheets import print_parts, print_sheet
from core.cli.watch import Progress, scheduler, watch
from core.evidence.measurement import Trial
from core.evidence.noise_check import evaluate
from core.evidence.roofline import peaks_of
from core.evidence.verdict import Grade
from core.process.job_worker import run_job
from core.run import exporting, job_types
from core.run.job import Status
from core.run.job_log import clean_up
from core.run.plan import batch_addresses, unsupported_input
from core.run.sizes import Size, default_sizes
from core.show.sheets import Fact, Line, Sheet, comparisons, models_and_machines, variants
from core.show.sheets import peaks as peak_sheets
from core.show.sheets import trials as sheets
from core.show.table import csv_text, md_text
from core.show.words import counted
from core.spec.sizes import options
from core.store import ModelRecord, PruneResult, Store, Tags
from core.store.library import NOT_CHECKED, check_loads, import_file, resolve_model, sample_models
from core.store.tags import split
from core.wire.catalog import (
    DEFAULT_OPSET,
    EXPORT_OPSETS,
    KERAS_SUFFIXES,
    RANDOM_WEIGHTS_NOTE,
    SAMPLE_EXPORTS,
    TORCHVISION_CLASSIFIERS,
)
from core.wire.errors import SpecError, StoreError
from core.wire.files import written_whole
from core.wire.profile import profile_from_dict
from core.wire.units import size

if TYPE_CHECKING:
    from core.run.export_source import ExportSource
    from core.show.export import ExportFormat

LISTED = 20  # default number of trials of `history`

_AGES_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

ModelHere = Annotated[
    str, typer.Argument(help="Path, library name, sample name or hash of a model.", metavar="MODEL")
]


# --- models -------------------------------------------------------------------------------------------------


@with_operators
def inspect_model(
    model: ModelHere,
    *,
    load: Annotated[
        bool,
        typer.Option(
            "--load", help="Also load the model with ONNX Runtime on the CPU, in a separate process."
        ),
    ] = False,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Print only the options that give every free dimension a size, ready to paste."
        ),
    ] = False,
    wide: Wide = False,
    json_: Json = False,
    given: Given,
) -> None:
    """Show inputs, outputs, dimensions and operators of a model.

    ORTune reads the file only, so a damaged model may look fine. With --load, ONNX Runtime loads it too.
    """
    libraries = operators_of(given)
    if libraries and not load:
        raise SpecError(
            f"`--custom-op-library {libraries[0][:80]}` is given, but nothing is loaded.",
            hint="Add --load, or remove the option.",
        )
    store = Store()
    record = resolve_model(store, model)
    suggested, sizes = _suggestion(record, store)
    if suggest and not json_:
        typer.echo(suggested)
        return
    runs = (
        check_loads(Path(record.path), libraries=libraries) if load else f"{NOT_CHECKED} (--load checks it)"
    )
    why = unsupported_input(record.info)
    if json_:
        print_json(
            {
                **record.info,
                "loads": runs if load else None,
                "not_fed": why or None,
                "suggested": suggested,
                "suggested_from": {dim: one.source for dim, one in sizes.items()},
            }
        )
        return
    facts = [Fact("runs", runs)] if load or not why else []
    facts += [Fact("not fed", f"ORTune cannot run it. {why}", "orange")] if why else []
    print_sheet(models_and_machines.model(record.name, record.info, [*facts, *variants.made(record)]))


def _suggestion(record: ModelRecord, store: Store) -> tuple[str, dict[str, Size]]:
    """Return options with a size for every free dimension, and the sources of all sizes but the batch."""
    info = record.info
    rows = set(batch_addresses(info).values())
    sizes = default_sizes([dim for dim in info["free_dims"] if dim not in rows], record, store)
    batch = "--batch-size 1" if info["batch_dim"] is not None else ""
    return f"{batch} {options({dim: one.size for dim, one in sizes.items()})}".strip(), sizes


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="Name of a torchvision classifier, a .pt2 or .keras file, or a SavedModel folder."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The .onnx file to write.", metavar="OUT.onnx", show_default=False
        ),
    ] = None,
    opset: Annotated[
        str, typer.Option(help=f"ONNX opset, {EXPORT_OPSETS[0]} to {EXPORT_OPSETS[-1]}.", metavar="N")
    ] = str(DEFAULT_OPSET),
    dynamic_batch: Annotated[bool, typer.Option(help="Keep the batch dimension free.")] = True,
    pretrained: Annotated[
        bool, typer.Option(help="Download trained weights if possible; else use seeded random weights.")
    ] = True,
    seed: Annotated[
        str,
        typer.Option(help="Seed of random weights and of the inputs that compare the outputs.", metavar="N"),
    ] = "0",
    image_size: Annotated[
        str | None,
        typer.Option(help="Side of the images in pixels. Default: as the weights were trained.", metavar="N"),
    ] = None,
    external_data: Annotated[
        Literal["auto", "always", "never"], typer.Option(help="Store the weights in a separate file.")
    ] = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a PyTorch or TensorFlow model to ONNX, and compare their outputs."""
    if output is not None:
        check_output_path(output)
    kind = _source_kind(source)
    plan: wire.ExportPlan = {
        "source": kind,
        "name": source if kind == "torchvision" else "",
        "path": "" if kind == "torchvision" else source,
        "output": str(output or _default_output(source)),
        "opset": whole_number("--opset", opset),
        "dynamic_batch": dynamic_batch,
        "pretrained": pretrained,
        "seed": whole_number("--seed", seed),
        "image_size": None if image_size is None else whole_number("--image-size", image_size),
        "external_data": external_data,
    }
    _convert(plan, json_=json_, quiet=quiet)


def _source_kind(source: str) -> Literal["torchvision", "pt2", "tensorflow"]:
    """Return the kind of `wire.ExportPlan` of a source; a source that is not a file is a name."""
    lower = source.lower()
    if lower.endswith(".pt2"):
        return "pt2"
    saved_model = (Path(source) / "saved_model.pb").is_file()
    return "tensorflow" if saved_model or lower.endswith(KERAS_SUFFIXES) else "torchvision"


def _default_output(source: str) -> Path:
    """Return the library's folder for a sample model, else the working folder."""
    if source in SAMPLE_EXPORTS:
        path = next(Path(one.path) for one in sample_models() if one.name == source and one.plan is not None)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
    return Path(f"{Path(source).stem}.onnx")


def _convert(plan: wire.ExportPlan, *, json_: bool, quiet: bool) -> None:
    job = exporting.export(plan)
    store = Store()
    with scheduler(store) as service:
        status = watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet))
    reply: Any = job_result(status, json_=json_)
    import_file(
        store,
        Path(reply["path"]),
        name=Path(reply["path"]).stem,
        source="export",
        note=RANDOM_WEIGHTS_NOTE if reply["weights"] == "random" else "",
        details=dict(reply),
    )
    if json_:
        print_json({"state": "COMPLETE", "error": None, **reply})
    else:
        print_sheet(models_and_machines.conversion_sheet(reply))


def job_result(status: Status, *, json_: bool) -> dict[str, Any]:
    """Return the result of a job; without one, report its error and end the command."""
    if status.error is None and status.result is not None:
        return status.result
    error = status.error or {"type": "WorkerError", "message": "The job gave no result.", "hint": ""}
    if json_:
        print_json({"state": status.state, "error": error})
    print_error(error["message"], error["hint"])
    raise typer.Exit(exit_code(error))


# --- results ------------------------------------------------------------------------------------------------


def export(
    trial: Annotated[
        str,
        typer.Argument(
            help="Trial ID, or its first 6 or more characters; not needed with --list.", show_default=False
        ),
    ] = "",
    *,
    format_: Annotated[
        str, typer.Option("--format", help="Format to write; see --list.", metavar="NAME")
    ] = "yaml",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write. Default: stdout.", show_default=False),
    ] = None,
    accept_breach: Annotated[
        str,
        typer.Option(
            help="Reason why differing outputs are acceptable; the file repeats it. Without a "
            "reason such a trial is not exported.",
            metavar="REASON",
            show_default=False,
        ),
    ] = "",
    all_: Annotated[
        bool,
        typer.Option("--all", help="YAML with all settings, the results, the machine and absolute paths."),
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="List the formats, and the settings that each cannot express.")
    ] = False,
    json_: Json = False,
) -> None:
    """Export a result as YAML, as code, for other tools, or as a bundle with its model.

    Each file lists the settings that it cannot express. A format that includes the model needs --output;
    without it, ORTune prints the part with the settings.
    """
    from core.run.export_source import export_source_of  # late: other commands need no formats
    from core.show.export import caution, format_named, formats_table, records

    if list_:
        if json_:
            print_json({"formats": records()})
        else:
            print_parts([formats_table()])
        return
    chosen = None if format_ == "bundle" else format_named(format_)
    _check_export(trial, format_, all_=all_)
    store = Store()
    one = store.trial(trial)
    if chosen is None:
        from core.cli.bundle import export_bundle

        export_bundle(store, one, output, accept_breach, json_=json_)
        return
    known = replace(export_source_of(store, one), whole=all_)
    text = chosen.text(known, accept_breach)
    if doubt := caution(one):
        typer.echo(doubt, err=True)
    if output is not None:
        _write(chosen, known, accept_breach, output)
        typer.echo(f"Wrote {output}.", err=True)
    elif chosen.pack is not None:
        typer.echo(f"Nothing is written: {chosen.label} includes the model. Add -o FILE.", err=True)
    if json_:
        written = str(output) if output is not None else None
        print_json({"trial": one.id, "format": format_, "output": written, "text": text})
    elif output is None:
        typer.echo(text, nl=False)


def _check_export(trial: str, format_: str, *, all_: bool) -> None:
    if trial in TORCHVISION_CLASSIFIERS or _source_kind(trial) != "torchvision":
        raise SpecError(
            f"`export` writes a result as a file, but `{trial[:80]}` is a model to convert.",
            hint=f"Convert it with `ortune convert {trial[:80]}`.",
        )
    if not trial:
        raise SpecError("`export` needs a trial.", hint="Give an ID from `history`, or --list.")
    if all_ and format_ != "yaml":
        raise SpecError("`--all` applies to YAML only.", hint="Remove it, or use `--format yaml`.")


def _write(chosen: ExportFormat, known: ExportSource, accept_breach: str, output: Path) -> None:
    """Write to a temporary file, then replace the target; on failure the previous file stays."""
    check_output_path(output)
    try:
        with written_whole(output) as part, part.open("wb") as file:
            chosen.save(known, file, accept_breach)
    except OSError as error:
        raise unwritable(output, error) from None


def history(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Only trials of this model: its name in the list, its path or its hash.", show_default=False
        ),
    ] = None,
    grade: Annotated[
        str | None,
        typer.Option(
            help="Only trials of comparisons with these grades.", metavar="A,B,C,D,F", show_default=False
        ),
    ] = None,
    state: Annotated[
        Literal["COMPLETE", "FAIL", "CANCELLED", "RUNNING", "WAITING", "DAMAGED"] | None,
        typer.Option(help="Only trials in this state.", show_default=False),
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            help="Only trials that changed this setting, or changed it to this value. Repeatable.",
            metavar="NAME[=VALUE]",
            show_default=False,
        ),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(help="Only trials whose error contains this text.", metavar="TEXT", show_default=False),
    ] = None,
    starred: Annotated[bool, typer.Option("--starred", help="Only trials with a star; see `tag`.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived trials; see `tag`.")] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Only trials with this label; separate several with commas. Repeatable.", show_default=False
        ),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            help="Only trials with all these words in ID, model, settings, search, owner, error, "
            "labels or note.",
            metavar="WORDS",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            help=f"Most trials to list, newest first. Default: {LISTED}.", min=1, show_default=False
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Instead of listing, delete the raw measurements (every inference, every block) "
            "of the oldest comparisons and shrink the store. Needs --older-than, --keep-size "
            "or both; results, pinned baselines and profiles stay.",
        ),
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            help="With --prune: comparisons that ended longer ago than this.",
            metavar="90d|12w|36h",
            show_default=False,
        ),
    ] = None,
    keep_size: Annotated[
        str | None,
        typer.Option(
            help="With --prune: the oldest comparisons, until this much raw data is left.",
            metavar="500MiB",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --prune: show what would be deleted, and change nothing.")
    ] = False,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """List trials, newest first, or delete the raw measurements of old ones."""
    one_format(format_, json_=json_)
    before, keep_bytes = _prune_limits(prune, older_than, keep_size, dry_run=dry_run, limit=limit)
    wanted = Filter(
        grade=grade,
        state=state,
        changed=changed or [],
        error=error,
        starred=starred,
        archived=archived,
        labels=split(label or []),
        search=search,
    )
    if prune and wanted.asked:
        raise SpecError(
            "`--prune` applies to all trials of a model, and takes no other filter.",
            hint="Remove all filters but --model.",
        )
    store = Store()
    clean_up(store)  # marks trials of commands that were killed
    of = _model_filter(store, model)
    if prune:
        done = store.prune(before=before, keep_bytes=keep_bytes, dry_run=dry_run, **of)
        if json_:
            print_json({"dry_run": dry_run, **asdict(done)})
        else:
            print_lines(_pruned_lines(done, dry_run=dry_run))
        return
    trials = wanted.trials(store, limit=limit or LISTED, **of)
    marks = store.marks([one.id for one in trials])
    if json_:
        print_json(
            {
                "trials": [trial.to_dict() for trial in trials],
                "marks": {name: own.to_dict() for name, own in marks.items()},
                "rescued": [str(path) for path in store.rescued()],
            }
        )
    elif format_ == "csv":
        print_lines([csv_text(comparisons.history(trials, marks))])
    elif format_ == "md":
        print_lines([md_text(comparisons.history(trials, marks))])
    elif not trials and wanted.asked:
        print_lines(["No trial matches."])
    else:
        _print_history(trials, marks, store.rescued())


def show(
    ref: Annotated[
        str,
        typer.Argument(
            help="ID of a trial or a comparison, or its first 6 or more characters.", metavar="TRIAL"
        ),
    ],
    *,
    top: Annotated[int, typer.Option(help="Number of rows of the tables of a profile.", min=1)] = 20,
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """Show a stored result, or why there is none."""
    store = Store()
    clean_up(store)
    try:
        trial = store.trial(ref)
    except StoreError as unknown:
        _show_comparison(store, ref, unknown, json_=json_)
        return
    if json_:
        print_json(trial.to_dict())
    elif trial.result is None:
        print_sheet(sheets.failed(trial))
    elif trial.kind == "profile":
        measured = store.peaks(trial.fingerprint)
        peaks = [] if measured is None else peaks_of(measured)
        print_sheet(sheets.profiled(trial, profile_from_dict(trial.result["profile"]), top=top, peaks=peaks))
    else:
        sheet = sheets.measured(trial, _labels(store, trial))
        print_sheet(Sheet(sheet.headline, [*sheet.parts, *_incomplete_reason(trial)]))


def _show_comparison(store: Store, ref: str, unknown: StoreError, *, json_: bool) -> None:
    try:
        comparison = store.comparison(ref)
    except StoreError:
        raise unknown from None
    trials = store.trials_of(comparison.id)
    if json_:
        print_json({**comparison.to_dict(), "trials": [trial.to_dict() for trial in trials]})
    elif comparison.result:
        print_sheet(comparisons.comparison_sheet(comparison, trials))
    else:
        print_sheet(
            Sheet(
                f"comparison {comparison.id} · {comparison.state}",
                [comparisons.configurations(comparison, trials)],
            )
        )


def _labels(store: Store, trial: Trial) -> dict[str, str]:
    """Return the labels of the trials in its comparison."""
    try:
        return {one.trial: one.label for one in store.comparison(trial.comparison).contestants}
    except StoreError:  # deleted, or stored by a version without comparisons
        return {}


def _incomplete_reason(trial: Trial) -> list[Line]:
    """Return why a trial with numbers is not complete."""
    if trial.error is None:
        return []
    told = f"{trial.state}: {trial.error['message']} {trial.error['hint']}".strip()
    return [Line(told, "red", apart=True)]


def _print_history(trials: Sequence[Trial], marks: Mapping[str, Tags], rescued: Sequence[Path]) -> None:
    listed = (
        comparisons.history(trials, marks)
        if trials
        else Line("No trials yet. Measure one: ortune tune digits_cnn")
    )
    print_parts([listed, *comparisons.rescued(rescued)])


def _prune_limits(
    prune: bool, older_than: str | None, keep_size: str | None, *, dry_run: bool, limit: int | None
) -> tuple[float | None, int | None]:
    """Return the limits of pruning: a time in seconds since the epoch, and a size in bytes."""
    if not prune:
        given = {"--older-than": older_than, "--keep-size": keep_size, "--dry-run": dry_run}
        if alone := next((flag for flag, value in given.items() if value not in (None, False)), None):
            raise SpecError(f"`{alone}` applies to `--prune` only.", hint="Add --prune.")
        return None, None
    if older_than is None and keep_size is None:
        raise SpecError(
            "`--prune` needs an age or a size.",
            hint="Add --older-than 90d, --keep-size 500MiB, or both; add --dry-run to see the effect first.",
        )
    if limit is not None:
        raise SpecError(
            "`--limit` is for the list; `--prune` applies to all trials.",
            hint="Remove --limit; use --older-than or --keep-size.",
        )
    before = None if older_than is None else time.time() - _age_s(older_than)
    return before, None if keep_size is None else _bytes(keep_size)


def _age_s(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in _AGES_S:
        raise SpecError(
            f"`--older-than` takes hours, days or weeks, but got `{text[:40]}`.",
            hint="Write for example 90d.",
        )
    return int(match[1]) * _AGES_S[match[2]]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in _SIZES:
        raise SpecError(
            f"`--keep-size` takes a size with its unit, but got `{text[:40]}`.",
            hint="Write for example 500MiB or 2GiB.",
        )
    return int(Decimal(match[1]) * _SIZES[match[2]])


def _pruned_lines(done: PruneResult, *, dry_run: bool) -> list[str]:
    lost, are = ("would lose", "would be") if dry_run else ("lost", "are")
    trials, baselines = len(done.trials), done.baselines_kept
    lines = [f"No trial {lost} raw measurements."]
    if trials:
        lines = [
            f"{counted(trials, 'trial')} {lost} raw measurements ({size(done.samples_bytes)}); "
            "the results stay."
        ]
    if done.compressed:
        lines.append(
            f"The raw measurements of {counted(done.compressed, 'trial')} of an earlier version {are} "
            "compressed, without loss."
        )
    if baselines:
        lines.append(f"{counted(baselines, 'pinned baseline')} kept raw measurements.")
    left, smaller = size(done.kept_bytes), size(done.freed_bytes)
    if dry_run:
        return [
            *lines,
            f"Raw measurements left: {left}; the store would be about {smaller} smaller. "
            "Nothing was changed.",
        ]
    return [
        *lines,
        f"Raw measurements left: {left}; the store is {smaller} smaller and now takes "
        f"{size(done.file_bytes)}.",
    ]


def _model_filter(store: Store, model: str | None) -> dict[str, str | None]:
    """Return the filter of `--model`: a listed name, else the model's content hash."""
    if model is None or model in store.model_names():
        return {"model_name": model, "model_sha256": None}
    record = store.model(model) or resolve_model(store, model)
    return {"model_name": None, "model_sha256": record.content_sha256}


def machine(
    *,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Compare ONNX Runtime's default with itself, to measure the noise of this machine.",
        ),
    ] = False,
    peaks: Annotated[
        bool,
        typer.Option(
            "--peaks",
            help="Measure the peak speed of this machine: a matrix product and a memory copy. "
            "`profile` compares operators with it.",
        ),
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show this machine and which providers load on it, or measure its noise or peak speed.

    Exit codes: 0 done · 1 a worker failed · 2 bad input · 3 the self-test is rejected (grade F) · 130 Ctrl-C.
    """
    if self_test and peaks:
        raise SpecError("`--self-test` and `--peaks` contradict each other.", hint="Run one after the other.")
    if peaks:
        _peaks(json_=json_, quiet=quiet)
        return
    if self_test:
        _self_test(json_=json_, quiet=quiet)
        return
    environment = run_job(wire.ENVIRONMENT, {})
    if json_:
        print_json(environment)
    else:
        print_sheet(models_and_machines.machine(environment))


def _peaks(*, json_: bool, quiet: bool) -> None:
    with scheduler(Store()) as service:
        status = watch(service, service.submit(job_types.peaks()), Progress(sys.stderr, quiet=quiet))
    result = job_result(status, json_=json_)
    if json_:
        found = [asdict(one) for one in peaks_of(result)]
        print_json({"state": "COMPLETE", "error": None, **result, "peaks": found})
    else:
        print_sheet(peak_sheets.peaks(result))


def _self_test(*, json_: bool, quiet: bool) -> None:
    with scheduler(Store()) as service:
        status = watch(service, service.submit(job_types.self_test()), Progress(sys.stderr, quiet=quiet))
    result = job_result(status, json_=json_)
    said = evaluate(result)
    if json_:
        print_json({"state": "COMPLETE", "error": None, **result, "answer": said.to_dict()})
    else:
        print_sheet(models_and_machines.noise_check_sheet(said))
    if said.grade == Grade.F:
        raise typer.Exit(EXIT_UNDECIDED)
