"""The commands of `runtimes`: add, list, check and remove environments with other library versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from core.api import runtimes
from core.cli import COMMANDS
from core.cli.help_groups import Group
from core.cli.output import EXIT_FAILED, Json, Quiet, Wide, print_json, print_lines
from core.cli.sheets import print_parts, print_sheet
from core.cli.watch import Progress, started
from core.wire.errors import SpecError
from core.wire.units import visible

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    help=COMMANDS["runtimes"].help,
)

Name = Annotated[str, typer.Argument(help="Name of a runtime.", metavar="NAME")]
OptionalPath = Path | None


@app.command()
def add(
    name: Annotated[
        str,
        typer.Argument(
            help="Its name: lower-case letters, digits, `.`, `-` and `_`, for example ort130.", metavar="NAME"
        ),
    ],
    *,
    package: Annotated[
        list[str] | None,
        typer.Option(
            help="Package, such as onnxruntime==1.30.* or openvino, or the path of a wheel. Repeatable.",
            metavar="SPEC",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        OptionalPath,
        typer.Option(
            help="Python that the environment is made with. Default: ORTune's own.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    lock: Annotated[
        OptionalPath,
        typer.Option(
            help="Install exactly the files of the requirements.lock of a runtime.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    python: Annotated[
        OptionalPath,
        typer.Option(
            help="Python of an existing environment, which stays as it is.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add a runtime: a new environment with packages, or an existing one.

    Only wheels are installed. A failed or cancelled addition leaves nothing; the next one reuses downloads.

    Exit codes: 0 done · 1 the package index cannot be reached · 2 bad input · 130 Ctrl-C.
    """
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = runtimes.add_runtime(
            name, package or (), lock=lock, python=python, base=base, session=session
        )
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())


@app.command(name="list")
def list_runtimes(*, wide: Wide = False, json_: Json = False) -> None:
    """List the runtimes of this machine besides ORTune's own."""
    result = runtimes.runtimes()
    if json_:
        print_json(result.to_dict())
    elif result.record:
        print_parts([result.table()])
    else:
        print_lines(["No runtime yet. Add one: ortune runtimes add ort130 --package onnxruntime==1.30.*"])


@app.command()
def check(name: Name, *, json_: Json = False, quiet: Quiet = False) -> None:
    """Check a runtime: versions, providers, settings, changes since it was added, and one run.

    Exit codes: 0 it works · 1 it has changed or runs no model, or a worker failed · 2 bad input · 130 Ctrl-C.
    """
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = runtimes.check_runtime(name, session=session)
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
    if not runtimes.is_sound(result.record):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def remove(
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
    json_: Json = False,
) -> None:
    """Remove a runtime and the environment that ORTune created; results keep naming it."""
    if not yes:
        _ask(name)
    result = runtimes.remove_runtime(name)
    if json_:
        print_json(result.to_dict())
    else:
        print_lines([visible(result.verdict)])


def _ask(name: str) -> None:
    """Ask for confirmation on a terminal.

    Raises:
        SpecError: there is no terminal.
        typer.Abort: the answer is no.
    """
    what = runtimes.removal_in_words(name)
    if not sys.stdin.isatty():
        raise SpecError(
            f"`remove` would remove {what}, and needs a confirmation.", hint="Add --yes to confirm."
        )
    typer.confirm(f"Remove {what}? This cannot be undone.", abort=True, err=True)
