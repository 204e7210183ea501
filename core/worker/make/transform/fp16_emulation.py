"""Emulate in float32 the results of float16 kernels: `rounded`. Worker side.

ONNX Runtime's CPU provider computes a float16 graph in float32 throughout and rounds nothing between nodes. A
run of the copy here therefore hides overflow and lost digits. The provider keeps explicit pairs of Casts,
though. With one after every value of a float16 node, the float32 model computes what hardware with float16
kernels does (sums inside a kernel in float32, as they are there).
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import ALWAYS_FLOAT_INPUTS, convert_np_to_float16

from core.worker.models.graphs import replace_nodes

_RAW, _ROUNDED = "_before_rounding", "_rounded"


def rounded(model: ModelProto, blocked: Collection[str], keep_io_types: bool | list[str]) -> ModelProto:
    """Return a float32 copy of `model` that rounds where its float16 copy does.

    Nodes in the bodies of If, Loop and Scan round nothing; only outputs of the enclosing node are rounded.

    Args:
        model: with value types, and names on all its nodes.
        blocked: names of all nodes that stay in float32.
        keep_io_types: which inputs and outputs stay float32, as for the conversion.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    _Rounding(copy, set(blocked), keep_io_types).apply()
    return copy


class _Rounding:
    """Rewrites one graph in place."""

    def __init__(self, model: ModelProto, blocked: set[str], keep: bool | list[str]) -> None:
        graph = model.graph
        self._graph, self._blocked, self._keep = graph, blocked, keep
        self._weights = {one.name: one for one in graph.initializer if one.data_type == TensorProto.FLOAT}
        values = (*graph.value_info, *graph.input, *graph.output)
        self._floats = {one.name for one in values if one.type.tensor_type.elem_type == TensorProto.FLOAT}
        self._outputs = {one.name for one in graph.output}
        self._exact: set[str] = set()  # values that float32 nodes read unrounded
        self._edges: dict[str, str] = {}  # such a value -> the value that float16 nodes read
        self._nodes: list[NodeProto] = []

    def apply(self) -> None:
        """Rewrite the graph."""
        for one in self._graph.input:
            self._input(one.name)
        for node in list(self._graph.node):
            half = node.name not in self._blocked
            if half:
                self._read_rounded(node)
            self._nodes.append(node)
            self._make(node, half=half)
        replace_nodes(self._graph, self._nodes)

    def _kept(self, name: str) -> bool:
        return name in self._keep if isinstance(self._keep, list) else self._keep

    def _input(self, name: str) -> None:
        if name not in self._floats or name in self._weights:
            return
        self._exact.add(name)
        if not self._kept(name):  # all readers get the float16 value
            self._pair(name, name + _ROUNDED)
            self._edges[name] = name + _ROUNDED
            for node in self._graph.node:
                _rename(node, name, name + _ROUNDED)
            self._exact.discard(name)

    def _read_rounded(self, node: NodeProto) -> None:
        exact_places = ALWAYS_FLOAT_INPUTS.get(node.op_type, [])
        for position, name in enumerate(node.input):
            if position in exact_places:
                continue
            if name in self._weights:
                node.input[position] = self._rounded_weight(name)
            elif name in self._exact:
                if name not in self._edges:
                    self._edges[name] = name + _ROUNDED
                    self._pair(name, self._edges[name])
                node.input[position] = self._edges[name]

    def _make(self, node: NodeProto, *, half: bool) -> None:
        if node.op_type == "Constant" and half:  # stored like a weight: clamped, not made infinite
            for attribute in node.attribute:
                if attribute.t.data_type == TensorProto.FLOAT:
                    attribute.t.CopyFrom(_rounded_tensor(attribute.t, attribute.t.name))
            return
        for position, name in enumerate(node.output):
            if name not in self._floats:
                continue
            if half or (name in self._outputs and not self._kept(name)):
                node.output[position] = name + _RAW
                self._pair(name + _RAW, name)
            else:
                self._exact.add(name)

    def _pair(self, name: str, result: str) -> None:
        half = f"{result}_in_float16"
        self._nodes.append(
            helper.make_node("Cast", [name], [half], f"{result}_to_16", to=TensorProto.FLOAT16)
        )
        self._nodes.append(
            helper.make_node("Cast", [half], [result], f"{result}_to_32", to=TensorProto.FLOAT)
        )

    def _rounded_weight(self, name: str) -> str:
        result = name + _ROUNDED
        if name not in self._edges:
            self._edges[name] = result
            self._graph.initializer.append(_rounded_tensor(self._weights[name], result))
        return result


def _rename(node: NodeProto, name: str, new: str) -> None:
    for position, read in enumerate(node.input):
        if read == name:
            node.input[position] = new


def _rounded_tensor(tensor: TensorProto, name: str) -> onnx.TensorProto:
    """Return the values as the converter stores them, in float32 again."""
    values = numpy_helper.to_array(tensor)
    half = convert_np_to_float16(values.reshape(-1)).reshape(values.shape)  # it does not accept a scalar
    return numpy_helper.from_array(half.astype("float32"), name)
