"""The option `--no-sandbox` of every command that starts workers. It sets the variable that workers obey."""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated, Any

import typer

from core.cli.output import note
from core.wire.sandbox import FLAG, OFF, RUNS, is_off
from core.wire.variables import SANDBOX


def _turn_off(asked: bool) -> None:
    if asked:
        os.environ[SANDBOX] = OFF
    if is_off():
        note(RUNS)  # beside a table of CSV or a file, which have no place for it


def _template(
    no_sandbox: Annotated[
        bool,
        typer.Option(
            FLAG,
            callback=_turn_off,
            help="Run workers without a sandbox. A model and its libraries may then read and write what you "
            "may; every result says so.",
            rich_help_panel="Workers, advanced",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Hold the option."""


@cache
def _option() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(_template)
    found = next(one for one in typer.main.get_command(app).params if FLAG in one.opts)
    found.expose_value = False
    return found


def add_to(command: Any) -> None:
    """Add the option to a command."""
    command.params.append(_option())
