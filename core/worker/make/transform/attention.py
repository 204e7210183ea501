"""Replace attention subgraphs of current exporters by ONNX Runtime's MultiHeadAttention: `fuse_attention`.

ONNX Runtime's optimizer matches the exact subgraphs of older exporters, including the path of the mask. This
module matches only the computation: `Softmax(scale * Q @ transpose(K) + bias) @ V` of values
[batch, heads, sequence, size], from whatever source the bias comes. Worker side; changes a model in memory,
opens no file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.shape_inference
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from core.worker.models.graphs import int_attribute, names_read, replace_nodes

_DOMAIN = "com.microsoft"
_TO_HEADS = [0, 2, 1, 3]  # [batch, sequence, heads, size] to [batch, heads, sequence, size], and back
_SWAP_LAST = [0, 1, 3, 2]
_HEADS_AND_SWAP = [0, 2, 3, 1]  # both at once
_SWAP_FLAT = [0, 2, 1]  # of [batch * heads, sequence, size]
_PREFIX = "ortune_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Query, key or value of one attention."""

    name: str
    heads_first: bool  # [batch, heads, sequence, size]; else [batch, sequence, heads, size]

    def heads(self, shape: Sequence[int | None]) -> int | None:
        """Return the number of heads from its shape; None if unknown."""
        return shape[1 if self.heads_first else 2] if len(shape) == 4 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """One attention subgraph."""

    query: _Side
    key: _Side
    value: _Side
    bias: str  # added before the softmax, [batch, heads, rows, columns]; empty: none
    scale: float
    heads: int
    size: int  # of one head of the value
    output: str  # [batch, heads, sequence, size]
    joined: str  # its merged form [batch, sequence, heads * size], if nothing else is read; else empty


def fuse_attention(model: ModelProto) -> int:
    """Replace every attention of the main graph, in place; return the number of replacements.

    Nodes that are unused afterwards are removed.
    """
    view = _View(model)
    found = [one for node in model.graph.node if node.op_type == "Softmax" and (one := view.attention(node))]
    if not found:
        return 0
    replaced = {one.output: _replacement(view, one, index) for index, one in enumerate(found)}
    joined = {one.joined for one in found}  # the new operator computes it
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        name = node.output[0] if node.output else ""
        nodes.extend(replaced.get(name, [] if name and name in joined else [node]))
    _put(model, nodes)
    if all(one.domain != _DOMAIN for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return len(found)


class _View:
    """Producers, consumers and inferred shapes of the values in the main graph."""

    def __init__(self, model: ModelProto) -> None:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._stored = {one.name: one for one in model.graph.initializer}
        self._shapes = {
            one.name: [
                dim.dim_value if dim.HasField("dim_value") else None for dim in one.type.tensor_type.shape.dim
            ]
            for one in (*graph.value_info, *graph.input, *graph.output)
            if one.type.tensor_type.HasField("shape")
        }
        self._readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._outputs = {one.name for one in model.graph.output}

    def attention(self, softmax: NodeProto) -> _Attention | None:
        """Return the attention around `softmax`; None if there is none, or shapes are unknown."""
        after = self._only_reader(softmax.output[0])
        if after is None or after.op_type != "MatMul" or after.input[0] != softmax.output[0]:
            return None
        if len(self.shape(softmax.input[0])) != 4 or int_attribute(softmax, "axis", -1) not in (-1, 3):
            return None
        scores, bias = self._without_bias(softmax.input[0])
        scores, scale = self._without_scale(scores)
        product = self._makers.get(scores)
        if product is None or product.op_type != "MatMul":
            return None
        query, by_query = self._without_scale(product.input[0])
        swapped, by_key = self._without_scale(product.input[1])
        key = self._unswapped(swapped)
        if key is None:
            return None
        sides = (self._side(query), key, self._side(after.input[1]))
        return self._found(sides, bias, scale * by_query * by_key, after.output[0])

    def _found(
        self, sides: tuple[_Side, _Side, _Side], bias: str, scale: float, output: str
    ) -> _Attention | None:
        """Combine the parts of an attention; None if sizes are unknown or do not fit."""
        query, key, value = sides
        heads = {one.heads(self.shape(one.name)) for one in sides}
        size = (self.shape(value.name) or [None])[-1]
        (only,) = heads if len(heads) == 1 else (None,)
        if not only or not size or (bias and len(self.shape(bias)) != 4):
            return None
        return _Attention(
            query=query,
            key=key,
            value=value,
            bias=bias,
            scale=scale,
            heads=only,
            size=size,
            output=output,
            joined=self._joined(output, only * size),
        )

    def _joined(self, name: str, width: int) -> str:
        """Return the merged heads if nothing else reads the output; otherwise empty."""
        turned = self._only_reader(name)
        if turned is None or turned.op_type != "Transpose" or _order(turned) != _TO_HEADS:
            return ""
        reshaped = self._only_reader(turned.output[0])
        if reshaped is None or reshaped.op_type != "Reshape":
            return ""
        shape = self.shape(reshaped.output[0])
        return reshaped.output[0] if len(shape) == 3 and shape[2] == width else ""

    def shape(self, name: str) -> list[int | None]:
        """Return the sizes of a value, None for a free one; empty: unknown."""
        if name in self._stored:
            return list(self._stored[name].dims)
        return self._shapes.get(name, [])

    def maker(self, name: str, op_type: str) -> NodeProto | None:
        """Return the node that computes `name`, if it has that type."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op_type else None

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _without_bias(self, name: str) -> tuple[str, str]:
        """Split a sum into scores and bias; the scores are the side that comes from a product."""
        total = self.maker(name, "Add")
        if total is None:
            return name, ""
        for scores, bias in (total.input, reversed(total.input)):
            inner, _ = self._without_scale(scores)
            if self.maker(inner, "MatMul") is not None and self.maker(bias, "MatMul") is None:
                return scores, bias
        return name, ""

    def _without_scale(self, name: str) -> tuple[str, float]:
        """Split a value multiplied or divided by a constant into the value and the factor."""
        if (node := self.maker(name, "Div")) is not None:
            number = self._number(node.input[1])
            return (node.input[0], 1.0 / number) if number else (name, 1.0)
        if (node := self.maker(name, "Mul")) is not None:
            for value, other in (node.input, reversed(node.input)):
                if number := self._number(other):
                    return value, number
        return name, 1.0

    def _number(self, name: str) -> float | None:
        tensor = self._stored.get(name)
        if tensor is None and (node := self.maker(name, "Constant")) is not None:
            tensor = next((one.t for one in node.attribute if one.name == "value"), None)
        if tensor is None or math.prod(tensor.dims) != 1:
            return None
        return float(numpy_helper.to_array(tensor).reshape(-1)[0])

    def _unswapped(self, name: str) -> _Side | None:
        """Return the key before its last two axes were swapped for the product; None if no swap is found."""
        node = self.maker(name, "Transpose")
        if node is None:
            return self._swapped_flat(name)
        if _order(node) == _HEADS_AND_SWAP:
            return _Side(name=node.input[0], heads_first=False)
        return self._side(node.input[0]) if _order(node) == _SWAP_LAST else None

    def _swapped_flat(self, name: str) -> _Side | None:
        """Do the same if batch and heads are one axis during the swap, as torch writes it."""
        apart = self.maker(name, "Reshape")
        node = None if apart is None else self.maker(apart.input[0], "Transpose")
        together = (
            None if node is None or _order(node) != _SWAP_FLAT else self.maker(node.input[0], "Reshape")
        )
        if together is None:
            return None
        before, after = self.shape(together.input[0]), self.shape(name)
        if len(before) != 4 or len(after) != 4 or not before[3]:
            return None
        same = (before[1], before[3]) == (after[1], after[2]) and before[2] == after[3]
        return self._side(together.input[0]) if same else None

    def _side(self, name: str) -> _Side:
        """Return a value [batch, heads, sequence, size], or the source of its transposition."""
        node = self.maker(name, "Transpose")
        if node is not None and _order(node) == _TO_HEADS:
            return _Side(name=node.input[0], heads_first=False)
        return _Side(name=name, heads_first=True)

    def unsplit(self, name: str) -> str | None:
        """Return the value [batch, sequence, heads * size] that a Reshape split into `name`, if any."""
        node = self.maker(name, "Reshape")
        if node is None:
            return None
        before, after = self.shape(node.input[0]), self.shape(name)
        if len(before) != 3 or len(after) != 4 or not after[2] or not after[3]:
            return None
        return node.input[0] if before[2] == after[2] * after[3] else None


def _replacement(view: _View, one: _Attention, index: int) -> list[NodeProto]:
    """Return the nodes that replace the last one of an attention."""
    stem = f"{_PREFIX}_{index}"
    nodes: list[NodeProto] = []
    roles = {"query": one.query, "key": one.key, "value": one.value}
    sides = [_flattened(view, side, f"{stem}_{role}", nodes) for role, side in roles.items()]
    bias = _stretched(one.bias, sides[0], stem, nodes) if one.bias else ""
    inputs = [*sides, "", "", bias] if bias else sides
    nodes.append(
        helper.make_node(
            "MultiHeadAttention",
            inputs,
            [one.joined or f"{stem}_flat"],
            name=stem,
            domain=_DOMAIN,
            num_heads=one.heads,
            scale=one.scale,
        )
    )
    if one.joined:
        return nodes
    nodes += _constant(f"{stem}_heads", [0, 0, one.heads, one.size])
    nodes.append(
        helper.make_node("Reshape", [f"{stem}_flat", f"{stem}_heads"], [f"{stem}_split"], f"{stem}_split")
    )
    nodes.append(
        helper.make_node("Transpose", [f"{stem}_split"], [one.output], f"{stem}_back", perm=_TO_HEADS)
    )
    return nodes


def _flattened(view: _View, side: _Side, stem: str, nodes: list[NodeProto]) -> str:
    """Return a side in the operator's form: [batch, sequence, heads * size]."""
    name = side.name
    if side.heads_first:
        nodes.append(
            helper.make_node("Transpose", [name], [f"{stem}_turned"], f"{stem}_turned", perm=_TO_HEADS)
        )
        name = f"{stem}_turned"
    elif (whole := view.unsplit(name)) is not None:
        return whole
    nodes += _constant(f"{stem}_shape", [0, 0, -1])
    nodes.append(helper.make_node("Reshape", [name, f"{stem}_shape"], [f"{stem}_flat"], f"{stem}_flat"))
    return f"{stem}_flat"


def _stretched(bias: str, query: str, stem: str, nodes: list[NodeProto]) -> str:
    """Expand the bias to one row per query: the operator does not broadcast a single row."""
    nodes += _constant(f"{stem}_one", [1])
    nodes.append(
        helper.make_node("Shape", [query], [f"{stem}_length"], f"{stem}_length", start=1, end=2),
    )
    nodes.append(
        helper.make_node(
            "Concat",
            [f"{stem}_one", f"{stem}_one", f"{stem}_length", f"{stem}_one"],
            [f"{stem}_rows"],
            f"{stem}_rows",
            axis=0,
        )
    )
    nodes.append(helper.make_node("Expand", [bias, f"{stem}_rows"], [f"{stem}_bias"], f"{stem}_bias"))
    return f"{stem}_bias"


def _constant(name: str, values: Sequence[int]) -> list[NodeProto]:
    tensor = numpy_helper.from_array(np.array(values, np.int64), name)
    return [helper.make_node("Constant", [], [name], name, value=tensor)]


def _order(node: NodeProto) -> list[int]:
    return next((list(one.ints) for one in node.attribute if one.name == "perm"), [])


def _put(model: ModelProto, nodes: Sequence[NodeProto]) -> None:
    """Set the graph's new nodes, without unused nodes and their weights."""
    wanted = {one.name for one in model.graph.output}
    kept: list[NodeProto] = []
    stored: list[TensorProto] = []
    for node in reversed(nodes):
        if not wanted.intersection(node.output):
            continue
        if node.op_type == "Constant" and node.name.startswith(_PREFIX):
            stored.append(node.attribute[0].t)
        else:
            kept.append(node)
            wanted.update(names_read(node))
    replace_nodes(model.graph, kept[::-1])
    for index in reversed(range(len(model.graph.initializer))):
        if model.graph.initializer[index].name not in wanted:
            del model.graph.initializer[index]
    model.graph.initializer.extend(stored)
