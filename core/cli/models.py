"""The commands `inspect` and `convert`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from core.api import models
from core.api.session import Session
from core.api.settings import OPERATORS
from core.cli.options import Given, ModelHere, with_operators
from core.cli.output import Json, Quiet, Wide, check_output_path, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started
from core.spec.text_values import whole_number
from core.wire.catalog import DEFAULT_OPSET, EXPORT_OPSETS


@with_operators
def inspect_model(
    model: ModelHere,
    *,
    load: Annotated[
        bool,
        typer.Option(
            "--load", help="Also load the model with ONNX Runtime on the CPU, in a separate process."
        ),
    ] = False,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Print only the options that give every free dimension a size, ready to paste."
        ),
    ] = False,
    wide: Wide = False,
    json_: Json = False,
    given: Given,
) -> None:
    """Show inputs, outputs, dimensions and operators of a model.

    ORTune reads the file only, so a damaged model may look fine. With --load, ONNX Runtime loads it too.
    """
    libraries = tuple(given.get(OPERATORS, ()))
    result = models.inspect(model, load=load, custom_op_libraries=libraries, session=Session())
    if json_:
        print_json(result.to_dict())
    elif suggest:
        typer.echo(result.record.suggested)
    else:
        print_sheet(result.sheet())


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="Name of a torchvision classifier, a .pt2 or .keras file, or a SavedModel folder."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The .onnx file to write.", metavar="OUT.onnx", show_default=False
        ),
    ] = None,
    opset: Annotated[
        str, typer.Option(help=f"ONNX opset, {EXPORT_OPSETS[0]} to {EXPORT_OPSETS[-1]}.", metavar="N")
    ] = str(DEFAULT_OPSET),
    dynamic_batch: Annotated[bool, typer.Option(help="Keep the batch dimension free.")] = True,
    pretrained: Annotated[
        bool, typer.Option(help="Download trained weights if possible; else use seeded random weights.")
    ] = True,
    seed: Annotated[
        str,
        typer.Option(help="Seed of random weights and of the inputs that compare the outputs.", metavar="N"),
    ] = "0",
    image_size: Annotated[
        str | None,
        typer.Option(help="Side of the images in pixels. Default: as the weights were trained.", metavar="N"),
    ] = None,
    external_data: Annotated[
        Literal["auto", "always", "never"], typer.Option(help="Store the weights in a separate file.")
    ] = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a PyTorch or TensorFlow model to ONNX, and compare their outputs."""
    if output is not None:
        check_output_path(output)
    side = None if image_size is None else whole_number("--image-size", image_size)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        result = models.convert(
            source,
            output=output,
            opset=whole_number("--opset", opset),
            dynamic_batch=dynamic_batch,
            pretrained=pretrained,
            seed=whole_number("--seed", seed),
            image_size=side,
            external_data=external_data,
            session=session,
        )
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
