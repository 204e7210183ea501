"""The step `fp16`: convert float32 to float16 with ONNX Runtime's converter, and correct its faults.

`to_half` is the conversion itself; `mixed` repeats it with other nodes left in float32. Worker side.
"""

from __future__ import annotations

import graphlib
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from core.wire import FeedPlan, OutputError, Progress, StepCheck, TransformPlan
from core.wire.errors import ModelError, SpecError, nearest
from core.wire.output_check import check_outputs
from core.worker.make.transform.agreement import error_between, outputs_of
from core.worker.make.transform.fp16_emulation import rounded
from core.worker.make.transform.model_io import load_whole, refusal, write_whole
from core.worker.make.transform.step_result import StepResult, option
from core.worker.make.transform.tools import quiet
from core.worker.models.graphs import (
    graphs_of,
    make_names_unique,
    names_read,
    nodes_of,
    replace_nodes,
    tensors_of,
)

TOOL = "onnxruntime.transformers.float16"
_LARGEST_FLOAT16 = 65504.0


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the float16 copy; see `step_result`.

    Options: `keep_io_types` (True: inputs and outputs stay float32, with a Cast at each border; or the names
    of those that stay), `block_ops` (operators that stay in float32, besides the converter's own list),
    `block_nodes` (names of nodes that stay in float32).
    """
    source, options = Path(plan["path"]), plan["options"]
    model = load_whole(source, typed=True)
    make_names_unique(model)
    ops, nodes = list(options.get("block_ops") or []), list(options.get("block_nodes") or [])
    _check_known("operator", ops, {node.op_type for node in nodes_of(model)})
    _check_known("node", nodes, {node.name for node in nodes_of(model)})
    keep = option(options, "keep_io_types", True)
    checks = sharing_check(model, ops, nodes)
    blocked = blocked_nodes(model, ops, nodes)
    error = _emulated_error(source, draft, plan["feeds"], rounded(model, blocked, keep))
    half = to_half(model, keep_io_types=keep, block_ops=ops, block_nodes=nodes)
    write_whole(half, draft)
    return StepResult(
        tool=TOOL,
        notes=stored_value_checks(model, half),
        checks=[*checks, *_float16_check(error)],
        facts={"blocked": blocked, "float16_error": error},
    )


def _emulated_error(
    source: Path, draft: Path, feeds: Sequence[FeedPlan], emulated: ModelProto
) -> OutputError:
    """Return the copy's error on float16 kernels; this CPU has none and would show a smaller error."""
    with tempfile.TemporaryDirectory(prefix="half-", dir=draft.parent) as folder:
        file = Path(folder) / "emulated.onnx"
        write_whole(emulated, file)
        return error_between(
            outputs_of(source, feeds, "the model"), outputs_of(file, feeds, "the emulated model")
        )


def _float16_check(error: OutputError) -> list[StepCheck]:
    """Report the copy's error on float16 kernels, which a CPU without them does not show."""
    if error["difference"]:
        text = (
            f"Where kernels compute in float16, the copy breaks: {error['difference']} An x86 CPU computes "
            "it in float32 and does not show that. Mixed precision finds the nodes that must stay in float32."
        )
        return [{"name": "overflow", "level": "warning", "text": text, "remedy": {}}]
    if not error["max_rel"]:
        return []
    judged = check_outputs(error, "fp16")
    text = (
        f"Kernels that compute in float16 would be off by {error['max_rel']:.2g} of the largest magnitude "
        "(emulated). On an x86 CPU ONNX Runtime has none, and computes the copy in float32"
    )
    if not judged.breach:
        return [{"name": "float16", "level": "info", "text": text, "remedy": {}}]
    text += (
        f". That is too far: {judged.why}. Mixed precision finds the nodes that must stay in float32 there."
    )
    return [{"name": "float16", "level": "warning", "text": text, "remedy": {}}]


def _check_known(what: str, named: Sequence[str], there: set[str]) -> None:
    for name in named:
        if name not in there:
            raise SpecError(
                f"The model has no {what} `{name}` to leave in float32.{nearest(name, there)}",
                hint=f"Name each {what} as the model does, or leave it out.",
            )


def stored_value_checks(model: ModelProto, half: ModelProto) -> list[str]:
    """Return notes on the stored values of `half`, the float16 copy of `model`."""
    kinds = {one.data_type for one in tensors_of(model)}
    kinds |= {one.type.tensor_type.elem_type for one in (*model.graph.input, *model.graph.output)}
    if TensorProto.FLOAT in kinds:
        rounded_names = _stored_in_float16(half)
        beyond = sum(_beyond_float16(one) for name, one in _stored(model) if name in rounded_names)
        return [f"{beyond} stored values are beyond float16's range and become 65504"] if beyond else []
    if TensorProto.FLOAT16 in kinds:
        return ["the model is in float16 already: the copy is the same"]
    return ["the model has no float32 values: the copy is the same"]


def _stored(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Return every stored tensor with the name of its value; the converter keeps these names."""
    for graph in graphs_of(model):
        for one in graph.initializer:
            yield one.name, one
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t") and node.output:
                    yield node.output[0], attribute.t


def _stored_in_float16(half: ModelProto) -> set[str]:
    return {name for name, one in _stored(half) if one.data_type == TensorProto.FLOAT16}


def _beyond_float16(tensor: TensorProto) -> int:
    if tensor.data_type != TensorProto.FLOAT:
        return 0
    values = np.abs(numpy_helper.to_array(tensor))
    return int(((values > _LARGEST_FLOAT16) & np.isfinite(values)).sum())


def blocked_nodes(model: ModelProto, ops: Sequence[str] = (), nodes: Collection[str] = ()) -> list[str]:
    """Return the names of the nodes that stay in float32, including those of the converter's own list."""
    types = {*DEFAULT_OP_BLOCK_LIST, *ops}
    return [one.name for one in nodes_of(model) if one.op_type in types or one.name in nodes]


# --- conversion ---------------------------------------------------------------------------------------------


def to_half(
    model: ModelProto,
    *,
    keep_io_types: bool | list[str],
    block_ops: Sequence[str] = (),
    block_nodes: Collection[str] = (),
) -> ModelProto:
    """Return a float16 copy of `model`, whose values have types and whose nodes all have names.

    The converter clamps values beyond float16's range, and replaces tiny values by float16's smallest.

    Args:
        model: left unchanged.
        keep_io_types: which inputs and outputs stay float32: all, none, or the named ones.
        block_ops: operators that stay in float32, besides the converter's own list.
        block_nodes: names of nodes that stay in float32.

    Raises:
        ModelError: the converter cannot handle the model.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    blocked = set(blocked_nodes(copy, block_ops, block_nodes))
    _unshare(copy, blocked)
    with (
        refusal("ONNX Runtime's converter cannot turn the model into float16", "Keep precision fp32."),
        quiet(),
    ):
        half: ModelProto = convert_float_to_float16(
            copy,
            keep_io_types=keep_io_types,
            disable_shape_infer=True,
            op_block_list=[*DEFAULT_OP_BLOCK_LIST, *block_ops],
            node_block_list=list(block_nodes),
        )
    _drop_repeated_casts(half.graph)
    _join_float32(half.graph, {node.name for node in model.graph.node})
    _sort(half.graph)
    return half


def sharing_check(model: ModelProto, ops: Sequence[str], nodes: Collection[str]) -> list[StepCheck]:
    """Report how many stored values nodes of both precisions read: each of them is stored twice."""
    blocked = set(blocked_nodes(model, ops, nodes))
    count = sum(len(_shared(graph, blocked)) for graph in graphs_of(model))
    if not count:
        return []
    text = (
        f"{count} weights are read by nodes in float16 and by nodes in float32. Each is stored twice, so "
        "that the float32 nodes keep their exact values."
    )
    return [{"name": "sharing", "level": "info", "text": text, "remedy": {}}]


def _unshare(model: ModelProto, blocked: set[str]) -> None:
    """Give blocked nodes their own float32 copy of a weight that others need in float16.

    Otherwise the converter rounds it for both, and gives each blocked reader the same Cast again.
    """
    for graph in graphs_of(model):
        weights = {one.name: one for one in graph.initializer}
        for name, readers in _shared(graph, blocked).items():
            own = graph.initializer.add()
            own.CopyFrom(weights[name])
            own.name = f"{name}_float32"
            for node in readers:
                for position, read in enumerate(node.input):
                    if read == name:
                        node.input[position] = own.name


def _shared(graph: GraphProto, blocked: set[str]) -> dict[str, list[NodeProto]]:
    """Return float32 weights of `graph` that nodes of both precisions read -> the blocked readers."""
    stored = {one.name for one in graph.initializer if one.data_type == TensorProto.FLOAT}
    stored -= {one.name for one in (*graph.input, *graph.output)}  # older files: may be inputs
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in dict.fromkeys(node.input):
            if name in stored:
                readers.setdefault(name, []).append(node)
    found = {name: [one for one in nodes if one.name in blocked] for name, nodes in readers.items()}
    return {name: ours for name, ours in found.items() if 0 < len(ours) < len(readers[name])}


def _drop_repeated_casts(graph: GraphProto) -> None:
    """Correct a fault of the converter: a value shared by two float32 nodes gets the same Cast twice."""
    seen: set[tuple[str, str]] = set()
    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Cast":
            pair = (node.input[0], node.output[0])
            if pair in seen:
                continue
            seen.add(pair)
        kept.append(node)
    replace_nodes(graph, kept)


def _join_float32(graph: GraphProto, own: Collection[str]) -> None:
    """Correct a fault of the converter: it rounds a value between two float32 nodes to float16.

    Args:
        graph: of the converted model.
        own: names of the original model's nodes: a Cast of the model itself stays.
    """
    casts = {
        node.output[0]: (node.input[0], next(one.i for one in node.attribute if one.name == "to"))
        for node in graph.node
        if node.op_type == "Cast" and node.name not in own
    }
    direct = {  # restored float32 value -> its float32 source
        name: casts[read][0]
        for name, (read, kind) in casts.items()
        if kind == TensorProto.FLOAT and read in casts and casts[read][1] == TensorProto.FLOAT16
    }
    ends = {direct[one.name]: one.name for one in graph.output if one.name in direct}
    made = {name for node in graph.node for name in node.output}
    ends = {name: output for name, output in ends.items() if name in made}
    kept = [node for node in graph.node if node.output[0] not in ends.values()]
    for node in kept:
        node.input[:] = [ends.get(direct.get(name, name), direct.get(name, name)) for name in node.input]
        node.output[:] = [ends.get(name, name) for name in node.output]
    read = {name for node in kept for name in names_read(node)} | {one.name for one in graph.output}
    while unread := [one for one in kept if one.output[0] in casts and one.output[0] not in read]:
        kept = [one for one in kept if one not in unread]
        read = {name for node in kept for name in names_read(node)} | {one.name for one in graph.output}
    replace_nodes(graph, kept)
    known = {name for node in graph.node for name in node.output}
    values = [one for one in graph.value_info if one.name in known]
    copies = [ValueInfoProto.FromString(one.SerializeToString()) for one in values]
    del graph.value_info[:]
    graph.value_info.extend(copies)


def _sort(graph: GraphProto) -> None:
    """Sort the nodes topologically and otherwise keep their order: the converter appends its Casts.

    ONNX Runtime accepts any order, ONNX's checker does not.
    """
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [sorted({maker[name] for name in names_read(node) if name in maker}) for node in nodes]
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
    replace_nodes(graph, [nodes[index] for index in order])
