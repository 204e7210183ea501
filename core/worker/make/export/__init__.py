"""The job `export`: convert a PyTorch model to a checked `.onnx` file. Worker side.

The file is written to its own folder next to the target. It is moved only after it is valid, loads in ONNX
Runtime and was compared with PyTorch; a failed export leaves no file. `torch_programs` provides the weights.
A `.pt2` file can hold pickled objects: loading one can run code of its author.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import onnx.version_converter
import torch

from core.wire import Difference, ExportPlan, ExportReply, ModelInfo, Progress
from core.wire.catalog import BIASES_KEY, PT2_SHA256_KEY, SEED_KEY, SOURCE_KEY, WEIGHTS_KEY
from core.wire.errors import ModelError
from core.worker.make.export.check import compare
from core.worker.models import inspect_model
from core.worker.models.checking import ONE_FILE_BYTES, draft_folder, move_into_place, open_checked
from core.worker.session.ort_errors import first_line
from core.worker.session.torch_programs import TORCH_ERRORS, file_sha256, load_pt2
from core.worker.session.torch_programs.classifiers import build

_TRACED_BATCH = 2  # torch may specialize on a size of 1
_LOWEST_NATIVE_OPSET = 18  # torch's exporter writes opset 18 and newer; older ones need a conversion
_STAGES = 5
_FOLDER_PREFIX = ".export-"

_STACK_TRACE = "pkg.torch.onnx.stack_trace"  # paths of the exporting machine, which are private


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A PyTorch program to export and, for the comparison, to run."""

    program: Any  # nn.Module or torch.export.ExportedProgram
    run: Callable[..., Any] | None  # the same in PyTorch; None: no inputs to run it with
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    batched: bool  # export axis 0 of the only input as "batch"
    weights: Literal["pretrained", "random", "file"]
    metadata: dict[str, str]
    notes: list[str] = field(default_factory=list)


def export(plan: ExportPlan, progress: Progress) -> ExportReply:
    """Export, check, compare with PyTorch, and move the file to the plan's target.

    Raises:
        SpecError: the plan asks for something that does not exist or cannot be done.
        ModelError: PyTorch cannot export the model, or the result is not valid, or it cannot be written.
    """
    started = time.perf_counter()
    output = Path(plan["output"])
    with warnings.catch_warnings(), draft_folder(output, _FOLDER_PREFIX) as folder:
        warnings.simplefilter("ignore")  # about the exporter's internals
        progress("model", 0, _STAGES, plan["name"] or Path(plan["path"]).name)
        source = _torchvision(plan, progress) if plan["source"] == "torchvision" else _pt2(plan)
        progress("export", 1, _STAGES, f"opset {plan['opset']}")
        draft = folder / output.name
        _write(_exported(source, plan["opset"]), draft, plan)
        progress("check", 2, _STAGES)
        session = open_checked(draft, "the exported model")
        info = _checked_info(draft, plan["opset"])
        progress("compare", 3, _STAGES, "ONNX Runtime against PyTorch")
        differences, notes = _differences(source, session, info, plan["seed"])
        progress("write", 4, _STAGES, output.name)
        move_into_place(draft, output, [one["location"] for one in info["external_data"]])
    progress("write", _STAGES, _STAGES, output.name)
    return {
        "path": str(output),
        "sha256": info["sha256"],
        "size_bytes": info["size_bytes"],
        "nodes": info["nodes"],
        "op_counts": info["op_counts"],
        "parameters": info["parameters"],
        "opset": info["opset"][""],
        "ir_version": info["ir_version"],
        "differences": differences,
        "weights": source.weights,
        "notes": [*source.notes, *notes],
        "seconds": time.perf_counter() - started,
        "pt2": str(Path(plan["path"]).absolute()) if plan["source"] == "pt2" else "",
    }


def _torchvision(plan: ExportPlan, progress: Progress) -> _Source:
    built = build(
        plan["name"],
        pretrained=plan["pretrained"],
        seed=plan["seed"],
        image_size=plan["image_size"],
        progress=progress,
    )
    rows = _TRACED_BATCH if plan["dynamic_batch"] else 1
    torch.manual_seed(plan["seed"])
    metadata = {SOURCE_KEY: f"torchvision {plan['name']}", WEIGHTS_KEY: built.weights}
    if built.weights == "pretrained":
        metadata["ortune.weights_name"] = built.weights_name
    else:
        metadata |= {SEED_KEY: str(plan["seed"]), BIASES_KEY: "random", "ortune.note": built.notes[0]}
    return _Source(
        program=built.module,
        run=built.module,
        args=(torch.rand(rows, 3, built.image_size, built.image_size),),
        kwargs={},
        batched=plan["dynamic_batch"],
        weights=built.weights,
        metadata=metadata,
        notes=built.notes,
    )


def _pt2(plan: ExportPlan) -> _Source:
    path = Path(plan["path"])
    program = load_pt2(path)
    sample = program.example_inputs
    run = program.module() if sample is not None else None
    args, kwargs = sample if sample is not None else ((), {})
    notes = [] if sample is not None else ["not compared with PyTorch: the file holds no sample inputs"]
    return _Source(
        program=program,
        run=run,
        args=args,
        kwargs=kwargs,
        batched=False,
        weights="file",
        metadata={
            SOURCE_KEY: f"torch.export {path.name}",
            WEIGHTS_KEY: "file",
            PT2_SHA256_KEY: file_sha256(path),
        },
        notes=notes,
    )


def _exported(source: _Source, opset: int) -> torch.onnx.ONNXProgram:
    options: dict[str, Any] = {}
    if source.weights != "file":
        options = {"input_names": ["input"], "output_names": ["output"]}
        if source.batched:
            options["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                source.program,
                source.args,
                None,
                kwargs=source.kwargs,
                dynamo=True,
                opset_version=max(opset, _LOWEST_NATIVE_OPSET),
                external_data=False,
                verbose=False,
                report=False,
                **options,
            )
    except TORCH_ERRORS as error:
        raise ModelError(
            f"PyTorch cannot export the model at opset {opset}: {first_line(error)}",
            hint="Try another opset or a fixed batch; a model with data-dependent branches needs rewriting.",
        ) from None
    if program is None:
        raise ModelError("PyTorch's exporter returned nothing.", hint="Try another opset.")
    program.model.metadata_props.update({**source.metadata, "ortune.torch": torch.__version__})
    for node in program.model.graph.all_nodes():
        node.metadata_props.pop(_STACK_TRACE, None)
    return program


def _write(program: torch.onnx.ONNXProgram, draft: Path, plan: ExportPlan) -> None:
    tensors = (one.const_value for one in program.model.graph.initializers.values())
    weights_bytes = sum(one.nbytes for one in tensors if one is not None)
    large = weights_bytes > ONE_FILE_BYTES
    if large and plan["external_data"] == "never":
        raise ModelError(
            f"The model's weights are {weights_bytes / 2**30:.2f} GiB, but one ONNX file takes at most "
            f"{ONE_FILE_BYTES / 2**30:.2f} GiB of them.",
            hint="Allow external data.",
        )
    external = large or plan["external_data"] == "always"
    if plan["opset"] >= _LOWEST_NATIVE_OPSET:
        program.save(draft, external_data=external)
        return
    if large:
        raise ModelError(
            f"A model above 2 GiB cannot be converted to opset {plan['opset']}.",
            hint=f"Use opset {_LOWEST_NATIVE_OPSET} or newer.",
        )
    model = _converted(program.model_proto, plan["opset"])
    onnx.save_model(model, str(draft), save_as_external_data=external, location=f"{draft.name}.data")


def _converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert to an opset that torch does not write itself.

    The converter keeps `noop_with_empty_axes`, which reductions gained in opset 18; 0 has no effect.
    """
    for node in model.graph.node:
        kept = [one for one in node.attribute if one.name != "noop_with_empty_axes" or one.i]
        del node.attribute[:]
        node.attribute.extend(kept)
    try:
        return onnx.version_converter.convert_version(model, opset)
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"The model cannot be converted to opset {opset}: {first_line(error)}",
            hint=f"Use opset {_LOWEST_NATIVE_OPSET} or newer, which PyTorch writes without conversion.",
        ) from None


def _checked_info(draft: Path, opset: int) -> ModelInfo:
    info = inspect_model(str(draft))
    written = info["opset"].get("", 0)
    if written != opset:  # if a conversion fails, torch keeps its own opset and only logs the error
        raise ModelError(
            f"PyTorch wrote opset {written} where {opset} was requested: its conversion failed.",
            hint=f"Use opset {written}.",
        )
    return info


def _differences(
    source: _Source, session: Any, info: ModelInfo, seed: int
) -> tuple[list[Difference], list[str]]:
    if source.run is None:  # a note of the source gives the reason
        return [], []
    return compare(source.run, source.args, source.kwargs, session=session, info=info, seed=seed)
