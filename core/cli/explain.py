"""The command `explain`: where the difference between two results comes from."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from core.api import explaining
from core.api.explaining import NODE_GROUPS
from core.cli.output import Json, Quiet, Wide, exit_code, print_error, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started
from core.wire.errors import SpecError, TunerError


def explain(
    trials: Annotated[
        list[str],
        typer.Argument(
            help="ID of the trial to explain; before it, the one to compare with. Default: its own baseline.",
            metavar="[BASELINE] TRIAL",
        ),
    ],
    *,
    top: Annotated[int, typer.Option(help="Number of rows of the table of nodes.", min=1)] = NODE_GROUPS,
    again: Annotated[
        bool, typer.Option("--again", help="Profile both again, even if an explanation is stored.")
    ] = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where the difference between two results comes from.

    ORTune profiles both configurations in turns, in separate runs, and matches their nodes through ONNX
    Runtime's fusions. The parts, including an unexplained one, add up to the difference that the comparison
    measured. If the comparison is undecided, the output says how to measure longer.
    """
    if len(trials) > 2:
        raise SpecError(
            f"`explain` compares two trials, but got {len(trials)}.", hint="Give one trial, or two."
        )
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        try:
            result = explaining.explain(*reversed(trials), again=again, session=session)
        except TunerError:
            if session.last is None:
                raise
            result = session.last
    found = result.record
    if json_:
        print_json(result.to_dict())
    elif found.error is None:
        print_sheet(explaining.explanation_sheet(session.store, found, top=top))
    if found.error is not None:
        print_error(found.error["message"], found.error["hint"])
    raise typer.Exit(exit_code(found.error))
