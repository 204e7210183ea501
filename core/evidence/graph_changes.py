"""What ONNX Runtime changed in a graph, counted: fused, inserted, replaced and removed nodes. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from core.evidence.graph_facts import plain_op
from core.evidence.profile_grouping import INSERTED_NAMES
from core.wire.graph import Node, Side

Kind = Literal["fused", "inserted", "replaced", "removed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Nodes that have the same kind of change."""

    kind: Kind
    op_type: str  # of the optimized graph, without its domain; empty of removed nodes, which may be of any
    of: str  # of replaced nodes: what the model has there, with its domain; else empty
    by: str  # of replaced nodes: what stands there now, with its domain; else empty
    count: int


def changes(model: Side, optimized: Side) -> list[Change]:
    """Return what ONNX Runtime changed, the most frequent change first.

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
        Change(kind=kind, op_type=op_type, of=of, by=by, count=count)
        for (kind, op_type, of, by), count in found.most_common()
    ]


def _change(node: Node, first: Node | None) -> tuple[Kind, str, str, str] | None:
    """What became of the nodes that one node of the optimized graph stands for; None: nothing.

    Args:
        node: of the optimized graph.
        first: the first node of the model whose work it does; None: none is known.
    """
    op = plain_op(node)
    if node.inserted:
        return "inserted", INSERTED_NAMES.get(op, op), "", ""
    if node.fused:
        return "fused", op, "", ""
    if first is None:
        return "unknown", op, "", ""
    return None if first.op_type == node.op_type else ("replaced", op, first.op_type, node.op_type)
