"""The command `node-errors`: error added and time saved by each quantized operator."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from core.api import graphs
from core.cli.options import Again, Given, with_input_options
from core.cli.output import Json, Quiet, Wide, print_json
from core.cli.sheets import print_sheet
from core.cli.transform import sizes
from core.cli.watch import Progress, started


@with_input_options
def node_errors(
    variant: Annotated[
        str, typer.Argument(help="Quantized variant: its path, name or hash.", metavar="VARIANT")
    ],
    *,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            help="Size of a free dimension of the inputs. Repeatable.", metavar="NAME=N", show_default=False
        ),
    ] = None,
    again: Again = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show how much error each quantized operator adds, and how much time it saves.

    ORTune quantizes every operator alone, compares the outputs with those of the float model, and profiles
    both models in turns. The curve first excludes the operators that save the least time for the error they
    add; pass its list to `transform` as `exclude_nodes`.
    """
    if dim:
        given["dims"] = sizes(dim)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = graphs.node_errors(variant, again=again, session=session, **given)
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
