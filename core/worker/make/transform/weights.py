"""Move weights to the initializers of the graph that reads them, where ONNX Runtime's quantizers look.

A weight in a Constant node, or one that the body of an If, Loop or Scan reads from an outer graph, would
keep its node in float. Worker side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onnx import GraphProto, NodeProto, TensorProto

from core.worker.models.graphs import bodies_of

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)

Tensors = Mapping[str, TensorProto]


def store_weights(
    graph: GraphProto, reads: Callable[[NodeProto], bool], *, deep: bool, outer: Tensors | None = None
) -> int:
    """Convert stored values that selected nodes read to initializers of the nodes' graph; return the number.

    Args:
        graph: changed in place.
        reads: selects the nodes.
        deep: include bodies of If, Loop and Scan.
        outer: stored values of the outer graphs.
    """
    constants = dict(_constants(graph))
    own = _names(graph)
    fed = {one.name for one in graph.input}  # older files: a caller may pass this weight instead
    visible = {name: one for name, one in (outer or {}).items() if name not in own} | constants
    visible |= {one.name: one for one in _floats(graph.initializer) if one.name not in fed}
    count = 0
    for node in graph.node if deep else ():
        for body in bodies_of(node):
            count += store_weights(body, reads, deep=True, outer=visible)
    wanted: dict[str, str] = {}  # a value that is read -> name of its new initializer
    for node in filter(reads, graph.node):
        for position, name in enumerate(node.input):
            if name in constants:
                wanted[name] = name
            elif name in visible and name not in own:
                node.input[position] = wanted.setdefault(name, f"{name}_of_{node.name}")
    for name, new in wanted.items():
        tensor = graph.initializer.add()
        tensor.CopyFrom(visible[name])
        tensor.name = new
    _drop_constants(graph, wanted)
    return count + len(wanted)


def _floats(tensors: Iterable[TensorProto]) -> list[TensorProto]:
    return [one for one in tensors if one.data_type in _FLOATS]


def _constants(graph: GraphProto) -> list[tuple[str, TensorProto]]:
    nodes = [node for node in graph.node if node.op_type == "Constant"]
    return [(node.output[0], one) for node in nodes for one in _floats(each.t for each in node.attribute)]


def _names(graph: GraphProto) -> set[str]:
    """Return every value name of the graph itself."""
    stored = {one.name for one in (*graph.input, *graph.initializer)}
    return stored | {name for node in graph.node for name in node.output}


def _drop_constants(graph: GraphProto, stored: Mapping[str, str]) -> None:
    for index in reversed(range(len(graph.node))):
        if graph.node[index].op_type == "Constant" and graph.node[index].output[0] in stored:
            del graph.node[index]
