"""The command `schema`: the JSON Schema of what the other commands print with `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from core.cli.output import print_data, print_lines
from core.show.output_types import DOCUMENTS
from core.show.schema import schema as json_schema
from core.wire.errors import SpecError, unwritable
from core.wire.files import written_whole
from core.wire.units import visible

FOLDER = Path("ortune-schemas")


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(help='Only this command, for example `tune` or "machine --self-test".'),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Write one file per command into a folder.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help=f"Folder for the files of --all; default: {FOLDER}.", metavar="FOLDER"
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of what commands print with --json, or write all of them to files."""
    name = " ".join(command or [])
    if not all_:
        if output is not None:
            raise SpecError("`--output` needs `--all`.", hint="Add `--all`, or redirect what is printed.")
        print_data(json_schema(name))
        return
    if name:
        raise SpecError(
            f"`--all` and the command `{name[:40]}` contradict each other.", hint="Give one of them."
        )
    print_lines([visible(str(one)) for one in _write_all(output or FOLDER)])


def _write_all(folder: Path) -> list[Path]:
    """Write the schema of every document; a file is replaced as a whole.

    Raises:
        SpecError: the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in DOCUMENTS:
            path = folder / f"{name.replace(' --', '-').replace(' ', '-').lower()}.json"
            with written_whole(path) as part:
                part.write_text(json.dumps(json_schema(name), indent=1) + "\n", encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise unwritable(folder, error) from None
    return written
