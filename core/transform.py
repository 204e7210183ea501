"""Changing a model file into another one: `fp16`, the job of that name. Worker side."""

from __future__ import annotations

import graphlib
import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from core.checking import checker_complaint, crashes_by_default, first_line, open_checked
from core.errors import ModelError
from core.models import inspect_model, read_model
from core.models.graphs import bodies_of, nodes_of, tensors_of
from core.wire import Fp16Reply, Progress

_ONE_FILE_BYTES = 1_900_000_000  # protobuf holds 2 GiB, the graph itself included
_STAGES = 4
_CRASH_NOTE = (
    "ONNX Runtime crashes when it loads this copy on the CPU with its default optimizations: "
    "disable the optimizer `NchwcTransformer`, or set `graph_optimization_level` to ORT_ENABLE_EXTENDED"
)
_LARGEST_FLOAT16 = 65504.0

# What ONNX's shape inference and ORT's converter raise for a model they cannot treat.
_CONVERTER_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    AssertionError,
)


def fp16(path: str, output: str, keep_io_types: bool, progress: Progress) -> Fp16Reply:
    """Write a copy of the model in `path` that computes in float16 where it computed in float32.

    Uses ONNX Runtime's own converter with its list of operators that stay in float32. Values beyond float16's
    range are clamped by it.

    Args:
        path: the model.
        output: the `.onnx` file to write; replaced if it is there.
        keep_io_types: True: inputs and outputs stay float32, with a Cast at each border.
        progress: told of each stage.

    Raises:
        ModelError: the model cannot be read, converted, written, or does not load after the conversion.
    """
    source, target = Path(path), Path(output)
    progress("read", 0, _STAGES, source.name)
    model = _loaded(source)
    before = sum(1 for _ in nodes_of(model))
    progress("convert", 1, _STAGES)
    notes = _notes(model)
    converted = _converted(model, source.name, keep_io_types=keep_io_types)
    progress("check", 2, _STAGES)
    if _write_checked(converted, target, use_checker=not checker_complaint(source)):
        notes.append(_CRASH_NOTE)
    progress("write", 3, _STAGES, target.name)
    info = inspect_model(str(target))
    progress("write", _STAGES, _STAGES, target.name)
    return {
        "path": str(target),
        "sha256": info["sha256"],
        "size_bytes": info["size_bytes"],
        "nodes_before": before,
        "nodes_after": info["nodes"],
        "notes": notes,
    }


def _loaded(source: Path) -> ModelProto:
    """Read a model whole, with all its values' types inferred: the converter needs them for its Casts."""
    model = read_model(source)
    inspect_model(str(source))  # refuses external data that is missing or lies elsewhere, in plain words
    try:
        if model.functions:  # the converter does not look into model-local functions
            model = onnx.inliner.inline_local_functions(model)
        # Before the weights are loaded: inference copies the model through a buffer of at most 2 GiB.
        model = onnx.shape_inference.infer_shapes(model)
        onnx.load_external_data_for_model(model, str(source.parent))
    except _CONVERTER_ERRORS as error:
        raise ModelError(
            f"`{source.name}` cannot be read for conversion: {first_line(error)}",
            hint="Keep precision fp32, or save the model with its weights inside.",
        ) from None
    return model


def _notes(model: ModelProto) -> list[str]:
    kinds = {one.data_type for one in tensors_of(model)}
    kinds |= {one.type.tensor_type.elem_type for one in (*model.graph.input, *model.graph.output)}
    if TensorProto.FLOAT in kinds:
        beyond = sum(_beyond_float16(one) for one in tensors_of(model))
        return [f"{beyond} stored values are beyond float16's range and become 65504"] if beyond else []
    if TensorProto.FLOAT16 in kinds:
        return ["the model is in float16 already: the copy is the same"]
    return ["the model has no float32 values: the copy is the same"]


def _beyond_float16(tensor: TensorProto) -> int:
    if tensor.data_type != TensorProto.FLOAT:
        return 0
    values = np.abs(numpy_helper.to_array(tensor))
    return int(((values > _LARGEST_FLOAT16) & np.isfinite(values)).sum())


def _converted(model: ModelProto, name: str, *, keep_io_types: bool) -> ModelProto:
    logging.getLogger("onnxruntime.transformers.float16").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one line for each clamped weight
            converted: ModelProto = convert_float_to_float16(
                model, keep_io_types=keep_io_types, disable_shape_infer=True
            )
    except _CONVERTER_ERRORS as error:
        raise ModelError(
            f"ONNX Runtime's converter cannot turn `{name}` into float16: {first_line(error)}",
            hint="Keep precision fp32.",
        ) from None
    _drop_repeated_casts(converted.graph)
    _sort(converted.graph)
    return converted


def _drop_repeated_casts(graph: GraphProto) -> None:
    """Mend a fault of the converter: a value that two float32 nodes share gets the same Cast twice."""
    seen: set[tuple[str, str]] = set()
    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Cast":
            pair = (node.input[0], node.output[0])
            if pair in seen:
                continue
            seen.add(pair)
        kept.append(node)
    _replace_nodes(graph, kept)


def _sort(graph: GraphProto) -> None:
    """Put every node after those it needs, and keep the order otherwise: the converter appends its Casts.

    ONNX Runtime does not mind the order, ONNX's checker does.
    """
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [sorted({maker[name] for name in _needs(node) if name in maker}) for node in nodes]
    try:
        graphlib.TopologicalSorter(dict(enumerate(needs))).prepare()
    except graphlib.CycleError:
        raise ModelError("The model's graph has a cycle.", hint="Export the model again.") from None
    order: dict[int, None] = {}
    for index in range(len(nodes)):
        pending = [index]
        while pending:
            missing = [other for other in needs[pending[-1]] if other not in order]
            if missing:
                pending.extend(missing)
            else:
                order.setdefault(pending.pop())
    _replace_nodes(graph, [nodes[index] for index in order])


def _needs(node: NodeProto) -> set[str]:
    """Names a node reads, those that its bodies take from outside included."""
    names = set(node.input)
    for body in bodies_of(node):
        for inner in body.node:
            names |= _needs(inner)
        names |= {one.name for one in body.output}
    return names


def _replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _write_checked(model: ModelProto, target: Path, *, use_checker: bool) -> bool:
    """Write into a folder beside the target, prove that it loads, then move: a failure leaves nothing.

    Loaded without layout optimizations, in which ONNX Runtime 1.31 can crash on float16 (a Transpose before a
    MatMul, as in ViT). True when the default optimizations crash.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".fp16-", dir=target.parent) as folder:
            draft = Path(folder) / target.name
            stored = sum(len(one.raw_data) + 4 * len(one.int32_data) for one in tensors_of(model))
            large = stored > _ONE_FILE_BYTES
            onnx.save_model(model, str(draft), save_as_external_data=large, location=f"{target.name}.data")
            open_checked(draft, "the float16 copy", use_checker=use_checker, level="ORT_ENABLE_EXTENDED")
            crashes = crashes_by_default(draft)
            for file in sorted(Path(folder).iterdir(), key=lambda one: one.name == target.name):
                file.replace(target.parent / file.name)
            return crashes
    except OSError as error:
        raise ModelError(
            f"Cannot write `{target}`: {error.strerror or error}.",
            hint="Choose a folder you can write to, with space for the model.",
        ) from None
