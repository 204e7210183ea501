"""The command `graph`: the nodes of a model or of its optimized graph."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from core.api import graphs
from core.api.graphs import LISTED_NODES
from core.cli.options import CONFIG, Given, Model, with_settings
from core.cli.output import Json, Quiet, Wide, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started


@with_settings
def graph(
    model: Model = None,
    *,
    config: Annotated[
        str | None,
        typer.Option(
            help="Configuration of the session that optimizes the graph.", metavar=CONFIG, show_default=False
        ),
    ] = None,
    optimized: Annotated[
        bool,
        typer.Option(
            "--optimized", help="Show the graph after ONNX Runtime's optimizations; this creates a session."
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(help="ID of a profile of this model, to add the time of each node.", metavar="TRIAL"),
    ] = None,
    op_type: Annotated[
        list[str] | None,
        typer.Option(help="Only nodes of this operator type. Repeatable.", metavar="T", show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of rows of the table.", min=1)] = LISTED_NODES,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show a model as a graph of nodes, before or after ONNX Runtime optimizes it.

    Lists each node with its operator, type, shape and weights. `--optimized` adds which nodes of the model it
    replaces and which nodes were inserted; `--profile` adds its time and provider.
    """
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = graphs.graph(
            model,
            config,
            optimized=optimized,
            profile=profile,
            op_types=op_type or [],
            session=session,
            **given,
        )
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(graphs.graph_sheet(result.record, top=top))
