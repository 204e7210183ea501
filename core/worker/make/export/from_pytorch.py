"""Export a PyTorch model: `classifier` opens torchvision's, `pt2` a program of `torch.export`. Worker side.

`torch_programs` provides the weights. A `.pt2` file can hold pickled objects: loading one can run code of its
author.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import onnx.version_converter
import torch

from core.wire import Difference, ExportPlan, ModelInfo, Progress
from core.wire.catalog import BIASES_KEY, PT2_SHA256_KEY, SEED_KEY, SOURCE_KEY, WEIGHTS_KEY
from core.wire.errors import ModelError
from core.worker.make.export.check import compare
from core.worker.models.checking import ONE_FILE_BYTES
from core.worker.session.ort_errors import first_line
from core.worker.session.torch_programs import TORCH_ERRORS, file_sha256, load_pt2
from core.worker.session.torch_programs.classifiers import build

_TRACED_BATCH = 2  # torch may specialize on a size of 1
_LOWEST_NATIVE_OPSET = 18  # torch's exporter writes opset 18 and newer; older ones need a conversion

_STACK_TRACE = "pkg.torch.onnx.stack_trace"  # paths of the exporting machine, which are private


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A PyTorch program to export and, for the comparison, to run."""

    framework: str = "PyTorch"
    plan: ExportPlan
    program: Any  # nn.Module or torch.export.ExportedProgram
    run: Callable[..., Any] | None  # the same in PyTorch; None: no inputs to run it with, as a note says
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    batched: bool  # export axis 0 of the only input as "batch"
    weights: Literal["pretrained", "random", "file"]
    metadata: dict[str, str]
    notes: list[str] = field(default_factory=list)

    @property
    def opset(self) -> int:
        """The opset that it is converted to."""
        return self.plan["opset"]

    def write(self, draft: Path) -> None:
        """Convert the program, and write it to `draft`."""
        _write(_exported(self, self.opset), draft, self.plan)
        _check_opset(draft, self.opset)

    def compare(self, session: Any, info: ModelInfo) -> tuple[list[Difference], list[str]]:
        """Run both on the same inputs."""
        if self.run is None:
            return [], []
        return compare(self.run, self.args, self.kwargs, session=session, info=info, seed=self.plan["seed"])


def classifier(plan: ExportPlan, progress: Progress) -> Original:
    """Build torchvision's classifier of the plan; see `classifiers.build`."""
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
    return Original(
        plan=plan,
        program=built.module,
        run=built.module,
        args=(torch.rand(rows, 3, built.image_size, built.image_size),),
        kwargs={},
        batched=plan["dynamic_batch"],
        weights=built.weights,
        metadata=metadata,
        notes=built.notes,
    )


def pt2(plan: ExportPlan) -> Original:
    """Load the `.pt2` file of the plan; see `load_pt2`."""
    path = Path(plan["path"])
    program = load_pt2(path)
    sample = program.example_inputs
    run = program.module() if sample is not None else None
    args, kwargs = sample if sample is not None else ((), {})
    notes = [] if sample is not None else ["not compared with PyTorch: the file holds no sample inputs"]
    return Original(
        plan=plan,
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


def _exported(source: Original, opset: int) -> torch.onnx.ONNXProgram:
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


def _check_opset(draft: Path, opset: int) -> None:
    """Refuse another opset: if a conversion fails, torch keeps its own and only logs the error."""
    found = onnx.load_model(str(draft), load_external_data=False).opset_import
    written = next((one.version for one in found if one.domain in ("", "ai.onnx")), 0)
    if written != opset:
        raise ModelError(
            f"PyTorch wrote opset {written} where {opset} was requested: its conversion failed.",
            hint=f"Use opset {written}.",
        )
