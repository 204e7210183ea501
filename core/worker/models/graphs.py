"""Traverse ONNX graphs: every node and tensor, including bodies of If, Loop and Scan.

Works on protobuf messages in memory, and opens no model file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper


def graphs_of(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the main graph and every graph nested in a node of it, outermost first."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(body for node in graph.node for body in bodies_of(node))


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs nested in `node`: the branches of an If, the body of a Loop or Scan."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of the model; a call of a model-local function is one node."""
    for graph in graphs_of(model):
        yield from graph.node


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes and those of the graphs nested in them."""
    pending = [nodes]
    while pending:
        for node in pending.pop():
            yield node
            pending += [body.node for body in bodies_of(node)]


def names_read(node: NodeProto) -> list[str]:
    """Return the values that `node` reads, including those that its bodies read from outer graphs."""
    names = [name for name in node.input if name]
    for body in bodies_of(node):
        for inner in body.node:
            names += names_read(inner)
        names += [value.name for value in body.output]
    return names


def replace_nodes(graph: GraphProto, nodes: Sequence[NodeProto]) -> None:
    """Set the nodes of `graph`; some of `nodes` may be its present ones."""
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def name_nodes(model: ModelProto, *, as_profiled: bool = False) -> bool:
    """Name every unnamed node by its operator and its index in its graph; return whether there was one.

    ONNX Runtime's profile names such a node so, too, and loses the name in a fusion.

    Args:
        model: changed in place.
        as_profiled: leave Constants out of the count, because ONNX Runtime makes weights of them.
    """
    found = False
    for graph in graphs_of(model):
        taken = {node.name for node in graph.node}
        index = 0
        for node in graph.node:
            if not node.name:
                found = True
                node.name = _free_name(f"{node.op_type}_{index}", taken)
            index += not (as_profiled and node.op_type == "Constant")
    return found


def named_copy(model: ModelProto, file: Path, folder: Path, notes: list[str]) -> Path:
    """Write a model whose nodes `name_nodes` named, so that they can be followed through a fusion.

    Args:
        model: without its external data.
        file: that the model was read from; it is returned, with a note, if the weights are in another file.
        folder: for the copy.
        notes: for the reader of the results.
    """
    if external_tensors(model):
        notes.append(
            "Nodes of this model have no names and its weights are in another file, so fused nodes "
            "cannot all be matched."
        )
        return file
    copy = folder / file.name
    copy.write_bytes(model.SerializeToString())
    return copy


def make_names_unique(model: ModelProto) -> None:
    """Give every node a name of its own, in place: tools select nodes by name. Unique names stay."""
    taken = {node.name for node in nodes_of(model)}
    seen: set[str] = set()
    for index, node in enumerate(nodes_of(model)):
        if not node.name or node.name in seen:
            node.name = _free_name(f"{node.name or node.op_type}_{index}", taken)
        seen.add(node.name)


def _free_name(name: str, taken: set[str]) -> str:
    """Return `name`, made longer until it is none of `taken`, and add it there."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def domain_name(domain: str) -> str:
    """Return the name of a domain of operators; ONNX's own, which has two spellings, is empty."""
    return "" if domain == "ai.onnx" else domain


def full_name(op_type: str, domain: str) -> str:
    """Return an operator's name, with its domain unless that is ai.onnx: `Conv`, `com.microsoft.Gelu`."""
    domain = domain_name(domain)
    return f"{domain}.{op_type}" if domain else op_type


def op_name(node: NodeProto) -> str:
    """Return the `full_name` of the operator of `node`."""
    return full_name(node.op_type, node.domain)


def int_attribute(node: NodeProto, name: str, default: int) -> int:
    """Return an attribute of `node` that is a whole number; `default` where it has none."""
    return next((one.i for one in node.attribute if one.name == name), default)


def tensors_of(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor the file stores: initializers and node attributes, those of local functions too."""
    for graph in graphs_of(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
    for node in nodes_of(model):
        yield from _attribute_tensors(node)
    for function in model.functions:
        for node in function.node:
            yield from _attribute_tensors(node)


def external_tensors(model: ModelProto) -> list[TensorProto]:
    """Return the tensors whose values are in another file, including those of bodies and attributes."""
    return [one for one in tensors_of(model) if one.data_location == TensorProto.EXTERNAL]


def _attribute_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors


def tensor_elements(tensor: TensorProto) -> int:
    """Return how many elements `tensor` has; 1 for a scalar."""
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def tensor_bytes(tensor: TensorProto) -> int:
    """Return the bytes of a tensor by its type and shape; four-bit types are packed two to a byte."""
    if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1):
        return (tensor_elements(tensor) + 1) // 2
    return tensor_elements(tensor) * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def dtype_name(elem_type: int) -> str:
    """Return numpy's name of an ONNX element type, or ONNX's own where numpy has none ("bfloat16")."""
    if elem_type == TensorProto.STRING:
        return "string"
    try:
        return str(helper.tensor_dtype_to_np_dtype(elem_type))
    except KeyError:
        return str(TensorProto.DataType.Name(elem_type)).lower() if elem_type else "unknown"


def type_text(kind: onnx.TypeProto) -> str:
    """Return ONNX Runtime's way to write a type that is not a tensor: `seq(tensor(float))`."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        name = str(TensorProto.DataType.Name(kind.tensor_type.elem_type)).lower()
        return f"tensor({name})"
    if which == "sparse_tensor_type":
        return f"sparse_tensor({dtype_name(kind.sparse_tensor_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({dtype_name(kind.map_type.key_type)},{type_text(kind.map_type.value_type)})"
    return "unknown"
