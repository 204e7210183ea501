"""Constants of compute-heavy nodes in the optimized graph: shapes of weights, and windows of poolings.

Reads protobuf messages in memory; opens no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from core.wire.profile import COMPUTE, Constants, Tensor
from core.worker.models.graphs import bodies_of, dtype_name

_HEAVY = COMPUTE | {
    "AveragePool",
    "ConvInteger",
    "DynamicQuantizeMatMul",
    "LpPool",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "MaxPool",
    "NhwcFusedConv",
    "QGemm",
    "QLinearAveragePool",
    "QLinearConv",
    "QLinearMatMul",
}
MOST = 20_000  # nodes; a page cannot show a larger result


def constants_of(model: ModelProto) -> list[Constants]:
    """List the constants of every named heavy node of `model`, including bodies of If, Loop and Scan."""
    return [one for _, one in zip(range(MOST), _constants_in(model.graph, (), {}), strict=False)]


def _constants_in(
    graph: GraphProto, path: tuple[str, ...], around: Mapping[str, Tensor]
) -> Iterator[Constants]:
    known = {**around, **{one.name: _tensor(one) for one in graph.initializer}}
    for node in graph.node:
        if node.name and node.op_type in _HEAVY:
            tensors = tuple(known[name] for name in node.input if name in known)
            yield Constants(
                path=path, name=node.name, op_type=node.op_type, tensors=tensors, window=_window(node)
            )
        for body in bodies_of(node):
            yield from _constants_in(body, (*path, node.name), known)


def _tensor(one: TensorProto) -> Tensor:
    return Tensor(dtype=dtype_name(one.data_type), shape=tuple(one.dims))


def _window(node: NodeProto) -> tuple[int, ...]:
    shapes = (one.ints for one in node.attribute if one.name == "kernel_shape")
    return next((tuple(one) for one in shapes), ())
