"""The command `export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from core.api import exporting
from core.api.models import source_kind
from core.cli.keys import SignKey, opened_key
from core.cli.output import Json, check_output_path, print_json
from core.cli.sheets import print_parts
from core.cli.watch import Progress, started
from core.show.export import formats_table, records
from core.wire.catalog import TORCHVISION_CLASSIFIERS
from core.wire.errors import SpecError


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
    sign: SignKey = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the formats, and the settings that each cannot express.")
    ] = False,
    json_: Json = False,
) -> None:
    """Export a result as YAML, as code, for other tools, or as a bundle with its model.

    Each file lists the settings that it cannot express. A format that includes the model needs --output;
    without it, ORTune prints the part with the settings.
    """
    if list_:
        if json_:
            print_json({"formats": records()})
        else:
            print_parts([formats_table()])
        return
    _check_trial(trial)
    if output is not None:
        check_output_path(output)
    key = opened_key(sign)
    with started(Progress(sys.stderr, quiet=False)) as session:
        result = exporting.export_with(
            key, trial, format_, output, accept_breach=accept_breach, whole=all_, session=session
        )
    if json_:
        print_json(result.to_dict())
    elif output is None:
        typer.echo(result.record.text, nl=False)


def _check_trial(trial: str) -> None:
    if trial in TORCHVISION_CLASSIFIERS or source_kind(trial) != "torchvision":
        raise SpecError(
            f"`export` writes a result as a file, but `{trial[:80]}` is a model to convert.",
            hint=f"Convert it with `ortune convert {trial[:80]}`.",
        )
    if not trial:
        raise SpecError("`export` needs a trial.", hint="Give an ID from `history`, or --list.")
