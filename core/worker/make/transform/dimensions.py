"""The step `fix_dims`: set free dimensions of the inputs, and infer all dependent shapes. Worker side.

Dimensions are named by their addresses, as listed by `inspect`; `batch` is the one that counts samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx.shape_inference
from onnx import GraphProto, ModelProto, ValueInfoProto

from core.wire import ModelInfo, Progress, TransformPlan
from core.wire.errors import SpecError, nearest
from core.worker.make.transform.model_io import refusal, write_whole
from core.worker.make.transform.step_result import StepResult
from core.worker.models import inspect_model, read_model
from core.worker.models.dimensions import address
from core.worker.models.graphs import graphs_of

_BATCH = "batch"


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the model with fixed dimensions; see `step_result`.

    Options: `dims` {address: size}.
    """
    source = Path(plan["path"])
    info = inspect_model(str(source))
    dims = _checked(plan["options"].get("dims") or {}, info)
    model = read_model(source)
    fix(model, dims)
    with refusal(
        f"`{source.name}` contradicts itself with {_listed(dims)}",
        "Choose sizes that the model was made for.",
    ):
        model = _inferred(model)
        onnx.load_external_data_for_model(model, str(source.parent))
    write_whole(model, draft)
    left = [one for one in info["free_dims"] if one not in dims]
    return StepResult(
        tool="onnx",
        notes=[f"still free: {', '.join(f'`{one}`' for one in left)}"] if left else [],
        facts={"fixed": dims, "free": left},
    )


def _checked(given: Mapping[str, Any], info: ModelInfo) -> dict[str, int]:
    """Return the sizes by address, with `batch` replaced by the address of the batch."""
    free = info["free_dims"]
    if not free:
        raise SpecError("The model has no free dimension to fix.", hint="Leave this step out of the chain.")
    if not given:
        raise SpecError(
            "No dimension was named to be fixed.",
            hint=f"Give sizes for some of {', '.join(f'`{one}`' for one in free)}.",
        )
    batch = info["batch_dim"]
    dims = {batch if name == _BATCH and name not in free and batch else name: n for name, n in given.items()}
    for name, size in dims.items():
        if name not in free:
            raise SpecError(
                f"The model has no free dimension `{name}`.{nearest(name, free)}",
                hint=f"Choose among {', '.join(f'`{one}`' for one in free)}.",
            )
        if not isinstance(size, int) or isinstance(size, bool) or size < (least := int(name == batch)):
            raise SpecError(
                f"The dimension `{name}` must be a whole number from {least}, but got {size!r}.",
                hint="Give its size.",
            )
    return dims


def _listed(dims: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}` {size}" for name, size in dims.items())


def fix(model: ModelProto, dims: Mapping[str, int]) -> None:
    """Set the dimensions in `dims`, in place: at the inputs, and wherever their names occur.

    Args:
        model: changed in place.
        dims: address -> size.
    """
    for graph in graphs_of(model):
        _fix_names(graph, dims)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            raw = dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            where = address(value.name, axis, raw)
            if isinstance(where, str) and where in dims:
                dim.dim_value = dims[where]


def _fix_names(graph: GraphProto, dims: Mapping[str, int]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


def _inferred(model: ModelProto) -> ModelProto:
    """Infer the shapes that follow from the known sizes, including those of the outputs.

    Shapes inferred earlier with free dimensions are dropped first: a product such as "2*batch" would stay.
    """
    stripped = ModelProto()
    stripped.CopyFrom(model)
    del stripped.graph.value_info[:]
    for value in stripped.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.Clear()
    inferred = onnx.shape_inference.infer_shapes(stripped, data_prop=True)
    for ours, theirs in zip(inferred.graph.output, model.graph.output, strict=True):
        _keep_names(ours, theirs)
    return inferred


def _keep_names(inferred: ValueInfoProto, declared: ValueInfoProto) -> None:
    """Restore the name of a dimension that could not be inferred."""
    new, old = inferred.type.tensor_type.shape.dim, declared.type.tensor_type.shape.dim
    if len(new) != len(old):
        return
    for dim, before in zip(new, old, strict=True):
        if not dim.HasField("dim_value") and before.dim_param:
            dim.dim_param = before.dim_param
