"""Counts of the changes that ONNX Runtime made to a graph: fused, inserted, replaced, removed nodes. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from core.evidence.graph_facts import plain_op
from core.evidence.node_matching import INSERTED_NAMES
from core.wire.graph import Node, Side

Kind = Literal["fused", "inserted", "replaced", "removed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphChange:
    """Nodes that ONNX Runtime changed in the same way."""

    kind: Kind  # unknown: no node of the model is known
    op_type: str  # of the optimized graph, without its domain; empty: removed nodes, which may be of any type
    of: str  # of replaced nodes: the model's operator, with its domain; else empty
    by: str  # of replaced nodes: the operator of the optimized graph, with its domain; else empty
    count: int


def changes(model: Side, optimized: Side) -> list[GraphChange]:
    """Return the changes made by ONNX Runtime, the most frequent first.

    Args:
        model: the model's own graph.
        optimized: the graph that ONNX Runtime made of it.
    """
    own = {(level.path, node.name): node for level in model.levels for node in level.nodes}
    found: Counter[tuple[Kind, str, str, str]] = Counter()
    done: set[tuple[tuple[str, ...], str]] = set()
    for level in optimized.levels:
        for node in level.nodes:
            done.update((level.path, name) for name in node.does)
            first = own.get((level.path, node.does[0])) if node.does else None
            if (change := _change(node, first)) is not None:
                found[change] += 1
    if left := len(own.keys() - done):
        found["removed", "", "", ""] = left
    return [
        GraphChange(kind=kind, op_type=op_type, of=of, by=by, count=count)
        for (kind, op_type, of, by), count in found.most_common()
    ]


def _change(node: Node, first: Node | None) -> tuple[Kind, str, str, str] | None:
    """Return the change behind one node of the optimized graph; None: it is unchanged.

    Args:
        node: node of the optimized graph.
        first: the first node of the model that it replaces; None: not known.
    """
    op = plain_op(node)
    if node.inserted:
        return "inserted", INSERTED_NAMES.get(op, op), "", ""
    if node.fused:
        return "fused", op, "", ""
    if first is None:
        return "unknown", op, "", ""
    return None if first.op_type == node.op_type else ("replaced", op, first.op_type, node.op_type)
