"""Sheet of a model's graph: counts and a table with a row for every node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from core.evidence.graph_changes import GraphChange
from core.evidence.graph_facts import MOST_SHOWN, GraphRow, ProfileMatch, kind, plain_op, tensor_text
from core.show.format import short
from core.show.sheets import Fact, Line, Part, Sheet
from core.show.sheets.trials import hidden_nodes, notes
from core.show.table import Column, Table, tabulate
from core.show.words import counted
from core.wire.graph import Node
from core.wire.units import clipped, ms, provider, size

_WIDE = 60  # characters of a node name on a terminal
_OPERATORS = 8
MOST_CHANGES = 4  # most changes in a sentence
MEANING = {  # of operators that ONNX Runtime inserts
    "Cast": "converts the type, because the next node has no kernel for it or runs on another provider",
    "MemcpyToHost": "copies from the device to the CPU",
    "MemcpyFromHost": "copies from the CPU to the device",
    "ReorderInput": "converts the layout to blocked channels (NCHWc) for faster convolutions",
    "ReorderOutput": "converts the layout back to NCHW",
    "Transpose": "changes the layout, for example between NCHW and NHWC",
    "QuantizeLinear": "quantizes float values to integers",
    "DequantizeLinear": "dequantizes integers to float values",
}


def graph(
    name: str,
    listed: Sequence[GraphRow],
    *,
    of: int,
    changed: str | None,
    found: ProfileMatch | None,
    remarks: Sequence[str],
    most: int,
) -> Sheet:
    """Return the sheet of a graph.

    Args:
        name: of the model.
        listed: nodes to list.
        of: number of all nodes, including filtered ones.
        changed: changes by ONNX Runtime, see `changes_words`; None: the model's own graph.
        found: profile times of its nodes; None: there is no profile.
        remarks: notes.
        most: rows of the table.
    """
    optimized = changed is not None
    what = "graph after ONNX Runtime's optimization" if optimized else "graph in the model file"
    hidden = len(listed) - most
    first = [Line(changed)] if changed else []
    parts: list[Part] = [
        *first,
        *facts(listed, of=of, optimized=optimized),
        *_unmatched(found),
        *notes(remarks),
    ]
    if listed:
        parts.append(nodes(listed[:most], optimized=optimized))
    parts += hidden_nodes(hidden)
    return Sheet(f"{name} · {what}", parts)


def changes_words(found: Sequence[GraphChange], before: int, after: int) -> str:
    """Return the changes by ONNX Runtime: "ONNX Runtime runs 5 nodes instead of 7: 2 Conv fused, …".

    Args:
        found: the changes, the most frequent first.
        before: nodes of the model.
        after: nodes of the optimized graph.
    """
    runs = f"ONNX Runtime runs {after:,} node{'s' * (after != 1)}"
    how_many = f"{runs} instead of {before:,}" if after != before else f"{runs}, as many as the model has"
    if not found:
        return f"{how_many}; no changes."
    parts = [_change_words(one) for one in found[:MOST_CHANGES]]
    if rest := sum(one.count for one in found[MOST_CHANGES:]):
        parts.append(counted(rest, "other change"))
    return f"{how_many}: {', '.join(parts)}."


def _change_words(one: GraphChange) -> str:
    count, op = f"{one.count:,}", clipped(one.op_type)
    match one.kind:
        case "removed":
            return f"{count} node{'s' * (one.count != 1)} removed"
        case "replaced":
            of, by = clipped(one.of), clipped(one.by.removeprefix("com.microsoft."))
            return f"{count} {of} replaced by {by}"
        case "unknown":
            return f"{count} {op} of unknown origin"
    return f"{count} {op} {one.kind}"


def facts(listed: Sequence[GraphRow], *, of: int, optimized: bool) -> Iterator[Fact]:
    """Return node counts by operator, and how ONNX Runtime changed them."""
    counts = Counter(clipped(one.node.op_type) for one in listed).most_common()
    shown = ", ".join(f"{op} {number}" for op, number in counts[:_OPERATORS])
    more = f", {len(counts) - _OPERATORS} more types" if len(counts) > _OPERATORS else ""
    total = f"{len(listed):,} of {of:,}" if len(listed) != of else f"{of:,}"
    yield Fact("nodes", f"{total}: {shown}{more}" if counts else total)
    bodies = {(one.level.path, one.level.role) for one in listed if one.level.path}
    if bodies:
        yield Fact("bodies", f"{len(bodies):,} of If, Loop or Scan")
    if optimized:
        yield Fact("inserted", _inserted(listed))
        several = [one.node for one in listed if not one.node.inserted and len(one.node.does) > 1]
        yield Fact("fused", f"{counted(len(several), 'node')} that fuse several nodes of the model")


def _inserted(listed: Sequence[GraphRow]) -> str:
    kinds = Counter(plain_op(one.node) for one in listed if one.node.inserted).most_common()
    return ", ".join(f"{number} {op}" for op, number in kinds) or "nothing"


def _unmatched(found: ProfileMatch | None) -> Iterator[Fact]:
    if found is not None and found.unmatched:
        yield Fact(
            "not found",
            unmatched_words(found),
            "orange",
        )


def unmatched_words(found: ProfileMatch) -> str:
    """Return the time that matches no node of the graph, as text."""
    told = names([one.name for one in found.unmatched])
    return (
        f"{ms(found.unmatched_s)} of the {ms(found.total_s)} in nodes belong to profiled nodes without "
        f"a match here: {told}"
    )


def nodes(listed: Sequence[GraphRow], *, optimized: bool) -> Table:
    """Return a row for every node, without empty columns."""
    whole = _all_columns(listed, optimized=optimized)
    kept = [
        index
        for index, one in enumerate(whole.columns)
        if one.tells or any(row[index] not in (None, "") for row in whole.rows)
    ]
    columns = [whole.columns[index] for index in kept]
    return Table(
        columns=columns,
        rows=[[row[index] for index in kept] for row in whole.rows],
        drop=[name for name in whole.drop if any(one.name == name for one in columns)],
    )


def _all_columns(listed: Sequence[GraphRow], *, optimized: bool) -> Table:
    return tabulate(
        listed,
        (Column("node", on="terminal", most=_WIDE), lambda one: clipped(one.node.name)),
        (Column("node", on="browser", tells=True), lambda one: one.node.name),
        (Column("operator"), lambda one: clipped(one.node.op_type)),
        (Column("type"), lambda one: one.precision),
        (Column("gives"), lambda one: short(one.outputs, 80)),
        (Column("weights", "bytes", unit="KiB"), lambda one: one.weight_bytes or None),
        (Column("self", "ms", per="run"), lambda one: None if one.ran is None else one.ran.self_s),
        (
            Column(
                "share",
                "share",
                bar=True,
                help="Share of the time in nodes. Nodes fused into one share its time.",
            ),
            lambda one: one.share,
        ),
        (
            Column("shares its time with", "count", help="Other nodes fused into the same node."),
            lambda one: (one.ran.with_others or None) if one.ran is not None else None,
        ),
        (
            Column("ran on"),
            lambda one: ", ".join(map(provider, one.ran.providers)) if one.ran is not None else None,
        ),
        (
            Column(
                "error", "number", help="Relative L2 error of the outputs if only this node is quantized."
            ),
            lambda one: None if one.unit is None else one.unit.error,
        ),
        (Column("ONNX Runtime"), lambda one: kind(one.node) if optimized else None),
        (
            Column("replaces", help="Nodes of the model that it replaces."),
            lambda one: names(one.node.does) if optimized else None,
        ),
        (Column("inside"), lambda one: one.inside),
        (Column("block"), lambda one: "/".join(one.node.scope)),
        drop=("block", "replaces", "gives", "weights", "share"),
    )


def names(listed: Sequence[str]) -> str:
    """Return the first few names as text."""
    more = f" and {len(listed) - MOST_SHOWN} more" if len(listed) > MOST_SHOWN else ""
    return ", ".join(clipped(one) for one in listed[:MOST_SHOWN]) + more


def node_facts(row: GraphRow, *, optimized: bool, profiled: bool) -> list[Fact]:
    """Return all facts on one node.

    Args:
        row: the node.
        optimized: whether it belongs to the optimized graph.
        profiled: whether there is a profile; without one, a missing time is not reported.
    """
    node, level = row.node, row.level
    parts = [Fact("operator", node.op_type), Fact("type", row.precision), *_place(row)]
    if optimized:
        parts += _origin(node)
    parts += _tensors("takes", node.inputs, row)
    if node.captured:
        parts.append(Fact("captures", f"{names(node.captured)}, for its bodies"))
    parts += _tensors("gives", node.outputs, row)
    if weights := level.weight_bytes(node):
        parts.append(Fact("weights", size(weights)))
    if row.ran is not None or profiled:
        parts.append(Fact("time", _time(row)))
    if row.unit is not None:
        parts.append(Fact("error", f"{row.unit.error:.3g} relative (L2) of the outputs, quantized alone"))
    parts += [Fact("attributes", f"{name} = {text}") for name, text in sorted(node.attributes.items())]
    return parts


def block_facts(members: Sequence[GraphRow], found: ProfileMatch | None, *, optimized: bool) -> list[Fact]:
    """Return the facts on a folded block.

    Args:
        members: its nodes.
        found: profile times of the nodes; None: there is no profile.
        optimized: whether it belongs to the optimized graph.
    """
    parts = list(facts(members, of=len(members), optimized=optimized))
    types = Counter(one.precision for one in members).most_common()
    parts.append(Fact("types", ", ".join(f"{name} {number}" for name, number in types)))
    read = {name: one.level.by_name.get(name) for one in members for name in one.node.inputs}
    if weights := sum(one.weight_bytes or 0 for one in read.values() if one is not None):
        parts.append(Fact("weights", size(weights)))
    if found is not None:
        seconds = found.together_s([one.where for one in members])
        shared = any(one.ran is not None and one.ran.with_others for one in members)
        also = "; includes the time of fused nodes" if shared else ""
        told = "none" if seconds is None else f"{ms(seconds)} per run ({found.share(seconds):.1%}){also}"
        where = dict.fromkeys(name for one in members if one.ran is not None for name in one.ran.providers)
        parts += [Fact("time", told)]
        parts += [Fact("ran on", ", ".join(map(provider, where)))] if where else []
    return parts


def _place(row: GraphRow) -> Iterator[Fact]:
    if row.inside:
        yield Fact("inside", row.inside)
    if row.node.scope:
        yield Fact("block", "/".join(row.node.scope))
    if row.node.bodies:
        yield Fact("holds", ", ".join(row.node.bodies))


def _origin(node: Node) -> Iterator[Fact]:
    if told := kind(node):
        yield Fact("ONNX Runtime", f"{told}{_why(node)}")
        if node.does:
            yield Fact("replaces", names(node.does))


def _why(node: Node) -> str:
    return f": {MEANING[plain_op(node)]}" if node.inserted and plain_op(node) in MEANING else ""


def _tensors(name: str, listed: Sequence[str], row: GraphRow) -> Iterator[Fact]:
    for one in listed:
        tensor = row.level.by_name.get(one)
        if one and tensor is not None:
            stored = f", a weight of {size(tensor.weight_bytes)}" if tensor.weight_bytes is not None else ""
            yield Fact(name, f"{one}: {tensor_text(tensor)}{stored}")


def _time(row: GraphRow) -> str:
    ran = row.ran
    if ran is None:
        return "none: folded into a constant, or part of a fused node without a match"
    shared = f", together with {counted(ran.with_others, 'other node')}" if ran.with_others else ""
    what = [
        f"{one.op_type} `{one.name}`" if one.name else one.title
        for one in ran.nodes
        if one.name != row.node.name
    ]
    as_what = f"; ran as {names(what)}" if what else ""
    by_name = "; matched by name only" if ran.by_name and plain_op(row.node) != ran.nodes[0].op_type else ""
    where = ", ".join(map(provider, ran.providers))
    return f"{ms(ran.self_s)} per run ({ran.share:.1%}) on {where}{shared}{as_what}{by_name}"
