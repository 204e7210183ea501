"""Map each node of an optimized graph to the model's nodes whose work it does.

ONNX Runtime fuses, renames, folds and inserts nodes while it loads a model. `origins` takes the model and the
graph that ONNX Runtime saved, and finds the original nodes of every node that ran. It uses the graph before
names: a fused node keeps the name of the tensor that it computes, so it replaced the nodes between that
tensor and its input tensors. In a changed layout (NCHWc, NHWC) tensors have new names; there the node's name
tells from which tensor or node it came. Where neither works, adjacent nodes share one set of original
nodes: coarser, never wrong.

Reads protobuf messages in memory; opens no file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from core.wire.profile import INSERTED_CAST, LAYOUT_OR_COPY, NodeTime
from core.wire.profile_passes import ModelNode, Origin
from core.worker.models.graphs import bodies_of, names_read

Path = tuple[str, ...]  # names of the nodes whose bodies enclose a node, outermost first

# Operators that convert a tensor. Without such a node in the model, ONNX Runtime inserted it.
_CONVERSION = frozenset({"Cast", "Transpose", "QuantizeLinear", "DequantizeLinear"})
# Operators that a convolution or product in a changed layout absorbs; a sum only with an input for it.
_EPILOGUE = frozenset(
    {"Add", "Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "QuantizeLinear", "Relu"}
    | {"Sigmoid", "Sum", "Tanh"}
)
_SUM_INPUT = 3  # of ONNX Runtime's own NCHWc Conv
_NCHWC = "_nchwc"
_COUNTED = re.compile(r"_token_\d+$")  # suffix that makes a name unique


def model_nodes(model: ModelProto) -> tuple[ModelNode, ...]:
    """List the nodes of `model`, including those in bodies of If, Loop and Scan."""
    return tuple(
        ModelNode(path=path, name=node.name, op_type=node.op_type)
        for path, graph in _graphs(model.graph, ())
        for node in graph.node
    )


def _graphs(graph: GraphProto, path: Path) -> Iterator[tuple[Path, GraphProto]]:
    """Yield `graph` and every graph nested in a node of it."""
    waiting = [(path, graph)]
    while waiting:
        path, graph = waiting.pop()
        yield path, graph
        waiting.extend(((*path, node.name), body) for node in graph.node for body in bodies_of(node))


def origins(model: ModelProto, optimized: ModelProto, ran: Sequence[NodeTime]) -> tuple[Origin, ...]:
    """Find the original nodes of each node of `optimized`.

    Args:
        model: the graph that was loaded; its nodes have names (see `graphs.name_nodes`).
        optimized: the graph that ONNX Runtime optimized it to and saved.
        ran: the profile's names of that graph's nodes. A node from a function's body has no name in the file;
            the profile names it by operator and index.

    Returns:
        One entry per node of `optimized` that has a name in the profile; `nodes` names nodes of `model` at
        the same `path`, in the model's order, and is empty if none is
        found. Nodes that the profile cannot tell apart, such as equal names in both branches of an If, are
        one entry.
    """
    covered: dict[tuple[Path, str], dict[str, None]] = {}
    inserted: dict[tuple[Path, str], bool] = {}
    for path, original, _, matched in matched_graphs(model, optimized):
        names = _names(matched, [one for one in ran if one.path == path])
        for one, name in zip(matched, names, strict=True):
            if name:
                nodes = covered.setdefault((path, name), {})
                nodes |= dict.fromkeys(original.node[index].name for index in one.covered)
                inserted.setdefault((path, name), one.inserted)
    return tuple(
        Origin(path=path, name=name, nodes=tuple(nodes), inserted=inserted[path, name])
        for (path, name), nodes in covered.items()
    )


class MatchedNode(NamedTuple):
    """A node of an optimized graph, and the original nodes whose work it does."""

    node: NodeProto
    covered: list[int]  # indices of the original nodes
    inserted: bool


def matched_graphs(
    model: ModelProto, optimized: ModelProto
) -> Iterator[tuple[Path, GraphProto, GraphProto, list[MatchedNode]]]:
    """Yield each graph of `model` with its optimized graph, and that graph's nodes in order.

    Args:
        model: the graph that was loaded; its nodes have names (see `graphs.name_nodes`).
        optimized: the graph that ONNX Runtime optimized it to and saved.
    """
    waiting: list[tuple[Path, GraphProto, GraphProto]] = [((), model.graph, optimized.graph)]
    while waiting:
        path, original, graph = waiting.pop()
        yield path, original, graph, list(_Match(original, graph).result())
        waiting.extend(_shared_bodies(path, original, graph))


def _names(matched: Sequence[MatchedNode], ran: Sequence[NodeTime]) -> list[str]:
    """Return the profile's name of each node of one graph; empty if unknown.

    ONNX Runtime inlines the bodies of functions in the order of their calls, and continues from the last
    index. So unnamed nodes of one operator have the order of their original nodes.
    """
    names = [one.node.name for one in matched]
    nameless: dict[str, list[int]] = defaultdict(list)
    for position in sorted(range(len(matched)), key=lambda at: (matched[at].covered[:1], at)):
        if not names[position]:
            nameless[matched[position].node.op_type].append(position)
    counted: dict[str, list[NodeTime]] = defaultdict(list)
    for one in ran:
        if one.name == f"{one.op_type}_{one.node_index}" and one.name not in names:
            counted[one.op_type].append(one)
    for op_type, positions in nameless.items():
        candidates = sorted(counted[op_type], key=lambda one: one.node_index)
        if len(candidates) == len(positions):
            for position, one in zip(positions, candidates, strict=True):
                names[position] = one.name
    return names


def _shared_bodies(
    path: Path, original: GraphProto, graph: GraphProto
) -> Iterator[tuple[Path, GraphProto, GraphProto]]:
    """Pair the bodies of nodes that are the same in both graphs."""
    holders = {(node.name, node.op_type): _bodies(node) for node in original.node}
    for node in graph.node:
        own = holders.get((node.name, node.op_type), {})
        for role, body in _bodies(node).items():
            if role in own:
                yield (*path, node.name), own[role], body


def _bodies(node: NodeProto) -> dict[str, GraphProto]:
    """Return the graphs nested in `node` by attribute name: "then_branch", "body"."""
    return {one.name: one.g for one in node.attribute if one.type == AttributeProto.GRAPH}


class _Original:
    """The model's own graph, traversed against the flow of data."""

    def __init__(self, graph: GraphProto) -> None:
        self.nodes = graph.node
        self.index = {node.name: index for index, node in enumerate(graph.node)}
        self.producer: dict[str, int] = {}
        self.users: dict[str, list[int]] = defaultdict(list)
        self.inputs = [names_read(node) for node in graph.node]
        self.outputs = {value.name for value in graph.output}
        for index, node in enumerate(graph.node):
            self.producer.update((name, index) for name in node.output if name)
            for name in self.inputs[index]:
                self.users[name].append(index)

    def between(self, outputs: Iterable[str], stops: set[str]) -> list[int]:
        """Return the nodes that compute `outputs` from `stops` and the graph's inputs, in order."""
        found: set[int] = set()
        waiting = [self.producer[name] for name in outputs if name in self.producer]
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting.extend(
                    self.producer[name]
                    for name in self.inputs[index]
                    if name in self.producer and name not in stops
                )
        return sorted(found)


class _Sets:
    """Disjoint sets of names (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """Return the representative of the set of `name`."""
        parent = self._parent
        while (above := parent.setdefault(name, name)) != name:
            parent[name] = parent[above]
            name = above
        return name

    def join(self, one: str, other: str) -> None:
        """Merge two sets; the representative of `other` remains."""
        self._parent[self.find(one)] = self.find(other)


class _Match:
    """Match one graph of the model with its optimized graph.

    `tensors` joins the tensors that inserted nodes only move or convert; `known` maps such a set to the
    model's tensor.
    """

    def __init__(self, original: GraphProto, graph: GraphProto) -> None:
        self.original = _Original(original)
        self.nodes: Sequence[NodeProto] = graph.node
        self.inputs = [names_read(node) for node in self.nodes]
        self.named = [self._named_after(node.name) for node in self.nodes]
        self.claimed = {index for index in self.named if index is not None}
        self.computed = {name for node in self.nodes for name in node.output if name}
        given = {name for names in self.inputs for name in names} - self.computed  # inputs and weights
        self.stops = {name for name in given if name in self.original.producer}  # folded into a constant
        kept = {name: tensor for name in self.computed if (tensor := self._model_tensor(name)) is not None}
        self.kept = set(kept.values())
        self.tensors = _Sets()
        self.known: dict[str, str] = {name: name for name in given} | kept
        self.inserted = [self._join_if_inserted(position) for position in range(len(self.nodes))]
        for position in range(len(self.nodes)):
            self._identify_by_name(position)

    def result(self) -> Iterator[MatchedNode]:
        """Yield every node of the graph, in order."""
        covered = self._covered()
        for position, node in enumerate(self.nodes):
            yield MatchedNode(node, covered.get(position, []), self.inserted[position])

    # --- original tensor of a tensor ----------------------------------------------------------------------

    def _named_after(self, name: str) -> int | None:
        """Return the model's node that `name` derives from: `conv1`, `conv1_token_3`, `conv1/SomeFusion/`."""
        index = self.original.index
        while name:
            for candidate in (name, _COUNTED.sub("", name)):
                if candidate in index:
                    return index[candidate]
            name = name.rpartition("/")[0]
        return None

    def _model_tensor(self, name: str) -> str | None:
        """Return the model's tensor with the same name, ignoring Casts that cancel out."""
        while name not in self.original.producer:
            prefix = next((one for one in INSERTED_CAST if name.startswith(one)), None)
            if prefix is None:
                return None
            name = name.removeprefix(prefix)
        return name

    def _join_if_inserted(self, position: int) -> bool:
        """Join input and output of a node that ONNX Runtime inserted; False for any other node."""
        node = self.nodes[position]
        if node.op_type not in LAYOUT_OR_COPY and not self._is_new_conversion(position):
            return False
        taken, given = self.tensors.find(node.input[0]), self.tensors.find(node.output[0])
        ends = {self.known[one] for one in (taken, given) if one in self.known}
        if len(ends) > 1:  # the model has nodes between the two: this node does their work
            return False
        self.tensors.join(given, taken)
        if ends:
            self.known[taken] = ends.pop()
        return True

    def _is_new_conversion(self, position: int) -> bool:
        node, index = self.nodes[position], self.named[position]
        if node.op_type not in _CONVERSION:
            return False
        if index is None or _COUNTED.sub("", node.name) == node.op_type != node.name:
            return True
        return bool(self.original.nodes[index].op_type != node.op_type)

    def _tensor(self, name: str) -> str | None:
        return self.known.get(self.tensors.find(name))

    def _identify_by_name(self, position: int) -> None:
        """If a node computes a tensor with a new name, identify the tensor by the node's name."""
        node = self.nodes[position]
        if self.inserted[position] or len(node.output) != 1 or self._tensor(node.output[0]) is not None:
            return
        began_as = self._began_as(position)
        if began_as is not None:
            self.known[self.tensors.find(node.output[0])] = self._with_epilogue(began_as, node)

    def _began_as(self, position: int) -> str | None:
        name = _COUNTED.sub("", self.nodes[position].name)
        if name.endswith(_NCHWC) and (tensor := self._model_tensor(name.removesuffix(_NCHWC))) is not None:
            return tensor
        index = self.named[position]
        if index is None or len(self.original.nodes[index].output) != 1:
            return None
        return str(self.original.nodes[index].output[0])

    def _with_epilogue(self, tensor: str, node: NodeProto) -> str:
        """Follow `tensor` through operators that `node` has absorbed, such as a sum or an activation."""
        original = self.original
        sums = len(node.input) > _SUM_INPUT and bool(node.input[_SUM_INPUT])
        while len(original.users[tensor]) == 1 and tensor not in original.outputs:
            index = original.users[tensor][0]
            user = original.nodes[index]
            own = index in self.claimed or len(user.output) != 1 or user.output[0] in self.kept
            if own or user.op_type not in _EPILOGUE or (user.op_type in ("Add", "Sum") and not sums):
                break
            tensor = user.output[0]
        return tensor

    # --- original nodes of a node ---------------------------------------------------------------------------

    def _covered(self) -> dict[int, list[int]]:
        """Return the original nodes of each node that was not inserted.

        If two nodes need a node that neither computes itself, such as a constant, the first one gets it.
        """
        stops = self.stops | {
            self.known[self.tensors.find(name)] for name in self.computed if not self._is_new(name)
        }
        taken: set[int] = set()
        covered: dict[int, list[int]] = {}
        for members in self._unidentified_groups():
            outputs = {self._tensor(name) for position in members for name in self.nodes[position].output}
            found = self.original.between([one for one in outputs if one is not None], stops)
            alone = [index for index in found if index not in taken]
            taken.update(alone)
            covered.update(dict.fromkeys(members, alone or found))
        return covered

    def _unidentified_groups(self) -> list[list[int]]:
        """Group the nodes that are joined by unknown tensors, in the order of the graph."""
        groups = _Sets()
        for position, node in enumerate(self.nodes):
            if self.inserted[position]:
                continue
            groups.find(f"node {position}")
            for name in (*self.inputs[position], *node.output):
                if name and self._is_new(name):
                    groups.join(f"tensor {self.tensors.find(name)}", f"node {position}")
        members: dict[str, list[int]] = defaultdict(list)
        for position in range(len(self.nodes)):
            if not self.inserted[position]:
                members[groups.find(f"node {position}")].append(position)
        return list(members.values())

    def _is_new(self, name: str) -> bool:
        """Whether a node of this graph computes the tensor and its origin is unknown."""
        return name in self.computed and self._tensor(name) is None
