"""Find random values that an integer input can take without breaking the model: `input_range`.

A token id must be below the number of rows of its embedding table, a size must be small, and a mask must
let the model see its input. The search follows the input through nodes that move values without changing
them. Reads a model in memory; opens no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx.inliner
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from core.worker.models.functions import expanded_nodes
from core.worker.models.graphs import graphs_of, int_attribute, op_name


class Range(NamedTuple):
    """Random integers of an input: low <= value < high, and the reason, as displayed."""

    low: int
    high: int
    reason: str


class _Use(NamedTuple):
    """A node input that consumes an input's values, plus `offset`."""

    node: NodeProto
    position: int  # index of the node's input
    offset: int


# Operators whose first output holds the values of these inputs, moved or repeated.
_MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile", "Slice"),
        (0,),
    ),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Cast", "CastLike", "Pad", "Clip"), (0,)),
    "Where": (1, 2),
}
_SIZE_USES = {  # operator -> inputs that are sizes or counts
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "ConstantOfShape": (0,),
    "TopK": (1,),
    "Resize": (3,),
    "Range": (1, 2),
    "OneHot": (1,),
    "Pad": (1,),
}
_INTEGERS = {
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
}
_MOST_NODES = 1_000_000  # after inlining: functions that call each other twice can expand without limit
_LOOP_TRIPS = 10  # enough for the body to count, few enough to end


class RangeFinder:
    """Finds the ranges of a model's inputs from their consumers; one instance per model."""

    def __init__(self, model: ModelProto) -> None:
        self._uses: dict[str, list[tuple[NodeProto, int]]] = {}
        self._shapes: dict[str, list[int | None]] = {}
        self._scalars: dict[str, int] = {}
        self._producers: dict[str, NodeProto] = {}
        # ONNX forbids a body to reuse an outer name, so one table serves all graphs.
        for graph in graphs_of(_inlined(model)):
            self._read_values(graph)
            for node in graph.node:
                self._read_node(node)

    def input_range(self, value: onnx.ValueInfoProto) -> Range | None:
        """Return the range of random values for the graph input `value`; None: the type's usual range."""
        kind = value.type.tensor_type.elem_type
        if kind == TensorProto.BOOL:
            return _mask_range(value.name)
        if kind not in _INTEGERS:
            return None
        found = [one for use in self._uses_of(value.name) if (one := self._bound(use))]
        if found:
            return min(found, key=lambda one: one.high)
        return _mask_range(value.name)

    def _read_values(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._add_constant(tensor.name, tensor)
        for value in (*graph.value_info, *graph.input):
            if value.type.tensor_type.HasField("shape"):
                dims = value.type.tensor_type.shape.dim
                sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
                self._shapes.setdefault(value.name, sizes)

    def _read_node(self, node: NodeProto) -> None:
        for position, name in enumerate(node.input):
            if name:
                self._uses.setdefault(name, []).append((node, position))
        for name in node.output:
            self._producers[name] = node
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    self._add_constant(node.output[0], attribute.t)
                elif attribute.name == "value_int":
                    self._scalars[node.output[0]] = attribute.i

    def _add_constant(self, name: str, tensor: TensorProto) -> None:
        self._shapes[name] = list(tensor.dims)
        single = all(size == 1 for size in tensor.dims)
        external = tensor.data_location == TensorProto.EXTERNAL
        if single and tensor.data_type in _INTEGERS and not external:
            self._scalars[name] = int(numpy_helper.to_array(tensor).item())

    def _uses_of(self, name: str) -> Iterator[_Use]:
        """Yield the uses of the values of `name`, also behind nodes that only move them or add a constant."""
        pending, seen = [(name, 0)], {(name, 0)}
        while pending:
            current, offset = pending.pop()
            for node, position in self._uses.get(current, ()):
                yield _Use(node, position, offset)
                for step in self._forwarded_uses(node, position, offset):
                    if step not in seen:
                        seen.add(step)
                        pending.append(step)

    def _forwarded_uses(self, node: NodeProto, position: int, offset: int) -> list[tuple[str, int]]:
        op = op_name(node)
        if op in ("Concat", "Max", "Min") or position in _MOVES.get(op, ()):
            return [(node.output[0], offset)]
        if op == "Split" and position == 0:
            return [(name, offset) for name in node.output]
        if op in ("Add", "Sub") and len(node.input) == 2:
            added = self._scalars.get(node.input[1 - position])
            if added is not None and (op == "Add" or position == 0):
                return [(node.output[0], offset + (added if op == "Add" else -added))]
        return []

    def _bound(self, use: _Use) -> Range | None:
        """Return the range that one use requires, or None."""
        node, position, op = use.node, use.position, op_name(use.node)
        if position in _SIZE_USES.get(op, ()):
            return Range(1, 2, f"is a size or count for {op}: set it with a fixed value")
        if op == "Loop" and position == 0:
            reason = "is the trip count of a Loop: set it with a fixed value"
            return Range(_LOOP_TRIPS, _LOOP_TRIPS + 1, reason)
        if op == "Cast" and int_attribute(node, "to", 0) == TensorProto.BOOL:
            return Range(0, 2, "is read as true or false")
        size = self._table_size(node, position)
        if size is None:
            return None
        low, high = max(0, -use.offset), size - use.offset
        if high <= low:
            return None
        return Range(low, high, f"chooses among the {size} entries of `{node.input[0] or node.name}` ({op})")

    def _table_size(self, node: NodeProto, position: int) -> int | None:
        """Return the number of entries that the values index; None if they are not an index."""
        op = op_name(node)
        if op == "com.microsoft.EmbedLayerNormalization":
            table = {0: 2, 1: 4}.get(position)  # input_ids: word_embedding, segment_ids: segment_embedding
            return self._size(node.input[table], 0) if table is not None else None
        if op in ("Gather", "GatherElements", "ScatterElements") and position == 1:
            return self._size(node.input[0], int_attribute(node, "axis", 0))
        if op in ("GatherND", "ScatterND") and position == 1:
            return self._nd_size(node)
        if op == "com.microsoft.GatherBlockQuantized" and position == 1:
            return self._size(node.input[0], int_attribute(node, "gather_axis", 0))
        if op == "OneHot" and position == 0:
            return self._scalars.get(node.input[1])
        return None

    def _size(self, name: str, axis: int) -> int | None:
        shape = self._shape(name)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        return shape[axis] or None

    def _nd_size(self, node: NodeProto) -> int | None:
        """Return the smallest axis that an index vector of GatherND or ScatterND addresses."""
        data, indices = self._shape(node.input[0]), self._shape(node.input[1])
        if not data or not indices or indices[-1] is None:
            return None
        skipped = int_attribute(node, "batch_dims", 0)
        sizes = data[skipped : skipped + indices[-1]]
        known = [size for size in sizes if size]
        return min(known) if known and len(known) == len(sizes) else None

    def _shape(self, name: str) -> list[int | None] | None:
        """Return the shape of a stored or declared tensor, through nodes that keep the shape."""
        for _ in range(8):  # chains of casts and dequantizations are short
            if name in self._shapes:
                return self._shapes[name]
            node = self._producers.get(name)
            if node is None or op_name(node) not in ("Identity", "Cast", "DequantizeLinear"):
                return None
            name = node.input[0]
        return None


def _inlined(model: ModelProto) -> ModelProto:
    """Replace model-local functions by their bodies; return a model too large to copy unchanged."""
    if not model.functions or model.ByteSize() > 2**30 or expanded_nodes(model) > _MOST_NODES:
        return model
    inlined: ModelProto = onnx.inliner.inline_local_functions(model)
    return inlined


def _mask_range(name: str) -> Range | None:
    if "mask" not in name.lower():
        return None
    return Range(1, 2, "is a mask by its name: every position is used, as in a batch without padding")
