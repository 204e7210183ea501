"""The command `schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from core.cli.output import print_json
from core.show.schema import schema as json_schema


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(help='Only this command, for example `tune` or "machine --self-test".'),
    ] = None,
) -> None:
    """Print the JSON Schema of what commands print with --json."""
    print_json(json_schema(" ".join(command or [])))
