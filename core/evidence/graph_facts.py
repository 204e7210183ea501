"""Facts of graph nodes from other sources: time, provider, precision, error.

Pure.

A profile names the nodes of the executed graph. They are matched with an optimized graph by name, and with
the model's graph through the optimized one: the time of a fused node belongs jointly to all nodes that it
replaces. Without the optimized graph only names are compared; `NodeExecutions.by_name` marks such matches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.evidence.node_savings import Unit, original_operator
from core.wire.graph import Level, Node, Side, Tensor
from core.wire.profile import NodeTime, Profile

MOST_SHOWN = 8  # names in one cell
FLOATS = ("float16", "bfloat16", "float32", "float64")
CONVERSIONS = frozenset({"Cast", "QuantizeLinear", "DequantizeLinear"})
COPIES = frozenset({"MemcpyToHost", "MemcpyFromHost", "ReorderInput", "ReorderOutput"})

Where = tuple[int, int]  # level of a side, and node of that level


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExecutions:
    """The nodes of a profile that executed a node of the graph, each with its time."""

    nodes: tuple[NodeTime, ...]
    with_others: int  # further nodes of this graph that the same profile nodes execute
    by_name: bool  # matched by name alone

    @property
    def self_s(self) -> float:
        """Mean self time per run, summed over the nodes."""
        return sum(one.self_s for one in self.nodes)

    @property
    def share(self) -> float:
        """Share of the time in all nodes."""
        return sum(one.share for one in self.nodes)

    @property
    def providers(self) -> tuple[str, ...]:
        """Execution providers that ran it."""
        return tuple(dict.fromkeys(one.provider for one in self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMatch:
    """The profile matched with the nodes of a graph."""

    ran: Mapping[Where, NodeExecutions]
    total_s: float  # of all nodes of the profile, mean per run
    unmatched: tuple[NodeTime, ...] = field(default=())  # nodes of the profile without a node in this graph

    @property
    def unmatched_s(self) -> float:
        """Mean time per run of the unmatched nodes."""
        return sum(one.self_s for one in self.unmatched)

    def together_s(self, where: Iterable[Where]) -> float | None:
        """Return the time of several nodes; a profile node shared by several counts once. None: none ran."""
        found = {id(one): one.self_s for at in where if at in self.ran for one in self.ran[at].nodes}
        return sum(found.values()) if found else None

    def share(self, seconds: float) -> float:
        """Return `seconds` as a share of the time in all nodes."""
        return seconds / self.total_s if self.total_s else 0.0


def times(side: Side, profile: Profile, optimized: Side | None = None) -> ProfileMatch:
    """Match the nodes of a profile with the nodes of a graph.

    Args:
        side: an optimized graph, or the model's graph.
        profile: profile of the model.
        optimized: the optimized graph, where `side` is the model's graph; None: it is not known, or `side` is
            the optimized graph.
    """
    if optimized is None:
        return _by_name(side, profile)
    there = _by_name(optimized, profile)
    own = _index(side)
    ran: dict[Where, list[tuple[NodeTime, int]]] = defaultdict(list)
    missing = list(there.unmatched)
    for (level, node), one in there.ran.items():
        at = optimized.levels[level]
        covered = [own[key] for name in at.nodes[node].does if (key := (at.path, name)) in own]
        together = {place for places in covered for place in places}
        for where in together:
            ran[where] += [(each, len(together) - 1) for each in one.nodes]
        if not covered and not at.nodes[node].inserted:
            missing += one.nodes
    found = {
        where: NodeExecutions(
            nodes=tuple({id(node): node for node, _ in of}.values()),
            with_others=max(others for _, others in of),
            by_name=False,
        )
        for where, of in ran.items()
    }
    return ProfileMatch(ran=found, total_s=there.total_s, unmatched=tuple(missing))


def _by_name(side: Side, profile: Profile) -> ProfileMatch:
    index = _index(side)
    ran: dict[Where, list[NodeTime]] = defaultdict(list)
    others: dict[Where, int] = defaultdict(
        int
    )  # nodes of the same name in another branch, which a profile does not tell apart
    unmatched = []
    for one in profile.nodes:
        for where in (found := index.get((one.path, one.name), [])):
            ran[where].append(one)
            others[where] = len(found) - 1
        if not found:
            unmatched.append(one)
    left = _match_renamed(side, ran, unmatched)
    found_nodes = {
        where: NodeExecutions(nodes=tuple(nodes), with_others=others[where], by_name=True)
        for where, nodes in ran.items()
    }
    total_s = sum(one.self_s for one in profile.nodes)
    return ProfileMatch(ran=found_nodes, total_s=total_s, unmatched=tuple(left))


def _match_renamed(
    side: Side, ran: dict[Where, list[NodeTime]], unmatched: Sequence[NodeTime]
) -> list[NodeTime]:
    """Match nodes that ONNX Runtime renames in every session, if their number is equal on both sides.

    Returns:
        The nodes that are still unmatched.
    """
    left: dict[tuple[tuple[str, ...], str], list[NodeTime]] = defaultdict(list)
    for one in unmatched:
        left[one.path, one.op_type].append(one)
    free: dict[tuple[tuple[str, ...], str], list[Where]] = defaultdict(list)
    for number, level in enumerate(side.levels):
        for index, node in enumerate(level.nodes):
            if (number, index) not in ran:
                free[level.path, plain_op(node)].append((number, index))
    still = []
    for key, nodes in left.items():
        places = free.get(key, [])
        if key[1] in COPIES and len(places) == len(nodes):
            for where, one in zip(places, sorted(nodes, key=lambda node: node.node_index), strict=True):
                ran[where].append(one)
        else:
            still += nodes
    return still


def _index(side: Side) -> dict[tuple[tuple[str, ...], str], list[Where]]:
    found: dict[tuple[tuple[str, ...], str], list[Where]] = defaultdict(list)
    for number, level in enumerate(side.levels):
        for index, node in enumerate(level.nodes):
            found[level.path, node.name].append((number, index))
    return found


def plain_op(node: Node) -> str:
    """Return the operator without its domain, as a profile names it."""
    return node.op_type.rpartition(".")[2]


def precision(level: Level, node: Node) -> str:
    """Return the type that a node computes in: that of its outputs, else of its inputs.

    A floating-point type takes precedence; "unknown" where no type is known.
    """
    for names in (node.outputs, node.inputs):
        known = [level.by_name[name].dtype for name in names if name in level.by_name]
        known = [one for one in known if one != "unknown"]
        if known:
            return next((one for one in known if one in FLOATS), known[0])
    return "unknown"


def kind(node: Node) -> str:
    """Describe how ONNX Runtime produced a node of an optimized graph; empty: the node is unchanged."""
    if node.inserted:
        return f"inserted {plain_op(node)}"
    if len(node.does) > 1:
        return f"does the work of {len(node.does)} nodes"
    if not node.does:
        return "of unknown origin"
    return "" if node.does[0] == node.name else f"made of {node.does[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """A node with its facts."""

    where: Where
    level: Level
    node: Node
    ran: NodeExecutions | None  # None: no profile, or no match in it
    share: float | None
    unit: Unit | None  # quantized operator with its error; None: the error is not known

    @property
    def precision(self) -> str:
        """The type that it computes in, from the graph, else from the profile."""
        found = precision(self.level, self.node)
        if found != "unknown" or self.ran is None:
            return found
        return next((one.dtype for node in self.ran.nodes for one in node.outputs), found)

    @property
    def inside(self) -> str:
        """The nodes whose subgraphs enclose it."""
        return " › ".join((*self.level.path, self.level.role) if self.level.path else ())

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that it reads."""
        return self.level.weight_bytes(self.node)

    @property
    def outputs(self) -> str:
        """Types and shapes of its outputs."""
        return ", ".join(
            tensor_text(self.level.by_name[name]) for name in self.node.outputs if name in self.level.by_name
        )


def tensor_text(tensor: Tensor) -> str:
    """Return type and shape of a tensor: `float32[batch×32×8×8]`."""
    if tensor.shape is None:
        return "unknown" if tensor.dtype == "unknown" else f"{tensor.dtype}, rank unknown"
    return f"{tensor.dtype}[{'×'.join(map(str, tensor.shape))}]"


def rows(
    side: Side, found: ProfileMatch | None = None, units: Mapping[Where, Unit] | None = None
) -> list[GraphRow]:
    """Return every node of a graph in file order, subgraphs after the graphs that contain them.

    Args:
        side: the graph.
        found: its matched profile; None: there is no profile.
        units: errors of its nodes.
    """
    listed = []
    for number, level in enumerate(side.levels):
        for index, node in enumerate(level.nodes):
            where = (number, index)
            ran = found.ran.get(where) if found is not None else None
            listed.append(
                GraphRow(
                    where=where,
                    level=level,
                    node=node,
                    ran=ran,
                    share=None if ran is None else ran.share,
                    unit=(units or {}).get(where),
                )
            )
    return listed


def scopes(side: Side, level: int, model: Side | None = None) -> list[tuple[str, ...]]:
    """Return the modules around each node of a level.

    A node of an optimized graph belongs to the modules of the first node that it replaces. A node that ONNX
    Runtime inserted belongs to those of its predecessor, or else its successor.

    Args:
        side: the graph.
        level: index of the main graph or of a subgraph.
        model: the model's graph, where `side` is its optimized graph.
    """
    at = side.levels[level]
    if model is None:
        return [node.scope for node in at.nodes]
    own = {node.name: node.scope for one in model.levels if one.path == at.path for node in one.nodes}
    found = [next((own[name] for name in node.does if name in own), node.scope) for node in at.nodes]
    before = {target: source for source, target, _ in reversed(at.edges)}
    behind = {source: target for source, target, _ in reversed(at.edges)}
    for index, node in enumerate(at.nodes):
        if not node.does and not found[index]:
            near = [there[index] for there in (before, behind) if index in there]
            found[index] = next((found[one] for one in near if found[one]), ())
    return found


def errors(side: Side, units: Sequence[Unit]) -> dict[Where, Unit]:
    """Return the nodes of a quantized variant, or of its float model, whose error is known.

    Args:
        side: the graph of the variant or the float model.
        units: the quantized operators with their errors, named as in the float model.
    """
    by_name = {name: unit for unit in units for name in unit.nodes}
    found: dict[Where, Unit] = {}
    for number, level in enumerate(side.levels):
        for index, node in enumerate(level.nodes):
            if (unit := by_name.get(original_operator(node.name, by_name))) is not None:
                found[number, index] = unit
    return found
