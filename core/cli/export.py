"""The command `export`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.api.models import source_kind
from core.cli.output import Json, check_output_path, print_json
from core.cli.sheets import print_parts
from core.store import Store
from core.wire.catalog import TORCHVISION_CLASSIFIERS
from core.wire.errors import SpecError, unwritable
from core.wire.files import written_whole

if TYPE_CHECKING:
    from core.run.export_source import ExportSource
    from core.show.export import ExportFormat


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
    if trial in TORCHVISION_CLASSIFIERS or source_kind(trial) != "torchvision":
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
