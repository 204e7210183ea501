"""Traverse ONNX graphs: every node and tensor, including bodies of If, Loop and Scan.

Reads protobuf messages in memory; opens no file and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def op_name(node: NodeProto) -> str:
    """Return the operator's name, with its domain unless that is ai.onnx: `Conv`, `com.microsoft.Gelu`."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


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
