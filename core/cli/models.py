"""The commands `inspect` and `convert`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core import wire
from core.cli.options import Given, ModelHere, operators_of, with_operators
from core.cli.output import Json, Quiet, Wide, check_output_path, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, job_result, scheduler, watch
from core.run import exporting
from core.run.plan import batch_addresses, unsupported_input
from core.run.sizes import Size, default_sizes
from core.show import documents
from core.show.sheets import Fact, models_and_machines, variants
from core.spec.sizes import options
from core.spec.text_values import whole_number
from core.store import ModelRecord, Store
from core.store.library import NOT_CHECKED, check_loads, import_file, resolve_model, sample_models
from core.wire.catalog import (
    DEFAULT_OPSET,
    EXPORT_OPSETS,
    KERAS_SUFFIXES,
    RANDOM_WEIGHTS_NOTE,
    SAMPLE_EXPORTS,
)
from core.wire.errors import SpecError


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
    libraries = operators_of(given)
    if libraries and not load:
        raise SpecError(
            f"`--custom-op-library {libraries[0][:80]}` is given, but nothing is loaded.",
            hint="Add --load, or remove the option.",
        )
    store = Store()
    record = resolve_model(store, model)
    suggested, sizes = _suggestion(record, store)
    if suggest and not json_:
        typer.echo(suggested)
        return
    runs = (
        check_loads(Path(record.path), libraries=libraries) if load else f"{NOT_CHECKED} (--load checks it)"
    )
    why = unsupported_input(record.info)
    if json_:
        loads = runs if load else None
        print_json(documents.model(record, loads=loads, not_fed=why, suggested=suggested, sizes=sizes))
        return
    facts = [Fact("runs", runs)] if load or not why else []
    facts += [Fact("not fed", f"ORTune cannot run it. {why}", "orange")] if why else []
    print_sheet(
        models_and_machines.model(record.name, record.info, [*facts, *variants.creation_facts(record)])
    )


def _suggestion(record: ModelRecord, store: Store) -> tuple[str, dict[str, Size]]:
    """Return options with a size for every free dimension, and the sources of all sizes but the batch."""
    info = record.info
    rows = set(batch_addresses(info).values())
    sizes = default_sizes([dim for dim in info["free_dims"] if dim not in rows], record, store)
    batch = "--batch-size 1" if info["batch_dim"] is not None else ""
    return f"{batch} {options({dim: one.size for dim, one in sizes.items()})}".strip(), sizes


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
    kind = source_kind(source)
    plan: wire.ExportPlan = {
        "source": kind,
        "name": source if kind == "torchvision" else "",
        "path": "" if kind == "torchvision" else source,
        "output": str(output or _default_output(source)),
        "opset": whole_number("--opset", opset),
        "dynamic_batch": dynamic_batch,
        "pretrained": pretrained,
        "seed": whole_number("--seed", seed),
        "image_size": None if image_size is None else whole_number("--image-size", image_size),
        "external_data": external_data,
    }
    _convert(plan, json_=json_, quiet=quiet)


def source_kind(source: str) -> Literal["torchvision", "pt2", "tensorflow"]:
    """Return the kind of `wire.ExportPlan` of a source; a source that is not a file is a name."""
    lower = source.lower()
    if lower.endswith(".pt2"):
        return "pt2"
    saved_model = (Path(source) / "saved_model.pb").is_file()
    return "tensorflow" if saved_model or lower.endswith(KERAS_SUFFIXES) else "torchvision"


def _default_output(source: str) -> Path:
    """Return the library's folder for a sample model, else the working folder."""
    if source in SAMPLE_EXPORTS:
        path = next(Path(one.path) for one in sample_models() if one.name == source and one.plan is not None)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
    return Path(f"{Path(source).stem}.onnx")


def _convert(plan: wire.ExportPlan, *, json_: bool, quiet: bool) -> None:
    job = exporting.export(plan)
    store = Store()
    with scheduler(store) as service:
        status = watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet))
    reply: Any = job_result(status, json_=json_)
    import_file(
        store,
        Path(reply["path"]),
        name=Path(reply["path"]).stem,
        source="export",
        note=RANDOM_WEIGHTS_NOTE if reply["weights"] == "random" else "",
        details=dict(reply),
    )
    if json_:
        print_json({"state": "COMPLETE", "error": None, **reply})
    else:
        print_sheet(models_and_machines.conversion_sheet(reply))
