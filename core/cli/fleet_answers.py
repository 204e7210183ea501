"""Commands on the answers of a fleet run: `fleet show`, `fleet report`, `fleet export` and `fleet pick`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core.api.fleet import runs
from core.api.fleet_answers import summary
from core.api.references import read_text
from core.api.session import Session
from core.cli.output import Format, Json, Wide, check_output_path, one_format, print_json, write_text
from core.cli.report import ReportFormat, ReportOutput
from core.cli.report import report as result_report
from core.cli.sheets import print_sheet
from core.evidence.fleet.summary import Summary
from core.show import documents
from core.show.fleet_files import files
from core.show.sheets.fleet import long_table, run_sheet
from core.show.table import csv_text, md_text
from core.spec import yaml_from_spec
from core.spec.per_machine import pick as picked
from core.store import Store, audit
from core.wire.access import expert_allowed
from core.wire.errors import MissingError, SpecError, unwritable
from core.wire.units import visible

RunRef = Annotated[
    str | None,
    typer.Argument(
        help="ID of a fleet run, or its first characters. Default: the newest run.",
        metavar="RUN",
        show_default=False,
    ),
]


def _found(ref: str | None) -> Summary:
    if ref is None:
        newest = next(iter(runs()), None)
        if newest is None:
            raise MissingError("There is no fleet run yet.", hint="Start one: `ortune fleet search MODEL`.")
        ref = newest.id
    return summary(ref, Store())


def show(ref: RunRef = None, *, format_: Format = "text", wide: Wide = False, json_: Json = False) -> None:
    """Show the answers of a fleet run: the best configurations, regrets, machines of one kind and costs."""
    one_format(format_, json_=json_)
    found = _found(ref)
    if json_:
        print_json(documents.fleet(found))
    elif format_ == "text":
        print_sheet(run_sheet(found.run, found=found))
    else:
        tables = [
            long_table(one.matrix, one.portability) for one in found.sections if one.matrix.configurations
        ]
        if format_ == "md":
            typer.echo("\n\n".join(map(md_text, tables)))
            return
        lines = [csv_text(one).splitlines() for one in tables]
        typer.echo(
            "\n".join([*(lines[0][:1] if lines else []), *(text for own in lines for text in own[1:])])
        )


def report(
    ref: RunRef = None,
    *,
    format_: ReportFormat = "html",
    output: ReportOutput = None,
    json_: Json = False,
) -> None:
    """Write a fleet run as one self-contained HTML file, or as Markdown."""
    if output is not None and output.suffix.lower() == ".md":
        format_ = "md"
    result_report([_found(ref).run.id], format_=format_, output=output, json_=json_)


def export(
    ref: Annotated[str, typer.Argument(help="ID of a fleet run, or its first characters.", metavar="RUN")],
    folder: Annotated[
        Path, typer.Argument(help="Folder for the files; created if missing.", metavar="FOLDER")
    ],
    *,
    json_: Json = False,
) -> None:
    """Write the best configuration of each host as YAML, and one file for all hosts.

    `tune`, `compare`, `verify` and the page Export read each file. The file for all hosts holds the
    configuration that loses least on any host, and that of each kind of machine for `fleet pick`.
    """
    found = _found(ref)
    made = files(found)
    if not made:
        raise SpecError(
            f"The fleet run `{found.run.id}` has no configuration to export.",
            hint="Export a run with a search or a comparison.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None
    for one in made:
        if not one.missing:
            check_output_path(folder / one.name)
            write_text(folder / one.name, one.text)
    for one in made:
        words = (
            f"{one.host or 'All hosts'}: no file, {one.missing}"
            if one.missing
            else f"Wrote {folder / one.name}."
        )
        typer.echo(visible(words), err=True)
    audit.record("export", "configurations of a fleet run", file=folder.name, ids=[found.run.id])
    if json_:
        kept = [{"file": one.name, "host": one.host, "missing": one.missing} for one in made]
        print_json({"run": found.run.id, "folder": str(folder), "files": kept})


def pick(
    file: Annotated[Path, typer.Argument(help="File for all hosts, from `fleet export`.", metavar="FILE")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File to write. Default: stdout.", metavar="FILE", show_default=False
        ),
    ] = None,
) -> None:
    """Write the configuration for this machine from a file for all hosts."""
    if output is not None:
        check_output_path(output)
    text = read_text(file)
    with Session() as session:
        machine = session.scheduler.environment()
    spec, why = picked(
        text, fingerprint=machine["fingerprint"], cpu=machine["cpu"]["model"], expert=expert_allowed()
    )
    typer.echo(visible(f"Chosen by {why}."), err=True)
    written = yaml_from_spec(spec)
    if output is None:
        typer.echo(written, nl=False)
    else:
        write_text(output, written)
        typer.echo(f"Wrote {output}.", err=True)
