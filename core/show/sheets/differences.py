"""Why two results differ, as a sheet. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from core.evidence.profile_difference import Difference, EndToEnd, Move, Row
from core.evidence.profile_grouping import Group, GroupNode
from core.evidence.profile_sentence import remarks, sentence
from core.run.explanation import Pair
from core.show.sheets import Line, Sheet, Table
from core.show.sheets.trials import notes
from core.show.words import short
from core.wire.units import DASH

_WIDE = 44  # characters of a cell that holds names of nodes


def explained(of: Pair, found: Difference, *, top: int) -> Sheet:
    """The sentence, the parts, what moved, the nodes, and how to read it all.

    Args:
        of: the two results.
        found: their difference.
        top: groups of nodes that are listed.
    """
    unit = "row" if found.end.per_row else "run"
    hidden = len(found.groups) - top
    first, *others = notes(remarks(found))
    return Sheet(
        of.what,
        [
            Line(sentence(found), found.end.verdict.color, apart=True),
            *([] if found.end.raced else [Line(f"Race them: {_race_command(of)}")]),
            Table(
                head=(f"ms per {unit}", "baseline", "candidate", "difference", "±", "share", "nodes"),
                rows=[*(_row(found, row) for row in found.rows), _total(found.end)],
            ),
            *_moves(found),
            Table(
                head=("nodes of the baseline", "nodes of the candidate", "part", *_SIDES),
                rows=[_group(one, found.end) for one in found.groups[:top]],
                left=3,
            ),
            *([Line(f"({hidden} more groups of nodes; --top shows more)")] if hidden > 0 else []),
            replace(first, apart=True),
            *others,
        ],
    )


_SIDES = ("baseline", "candidate", "difference")


def _race_command(of: Pair) -> str:
    other = " --different-models" if of.different_models else ""
    return f"python -m core compare --baseline {of.baseline.id} --candidate {of.candidate.id}{other}"


def _row(found: Difference, row: Row) -> tuple[str, ...]:
    nodes = (
        f"{row.baseline_nodes} → {row.candidate_nodes}" if row.baseline_nodes + row.candidate_nodes else ""
    )
    return (
        f"{row.label} (inserted)" if row.kind == "inserted" else row.label,
        *_times(found.end, row),
        DASH if row.half_width_s is None else _ms(found.end, row.half_width_s),
        _share(found.share(row)),
        nodes,
    )


def _total(end: EndToEnd) -> tuple[str, ...]:
    return ("p50 of the results", *_times(end, end), "", "100.0 %" if end.difference_s else "", "")


def _times(end: EndToEnd, part: EndToEnd | Row | Group | Move) -> tuple[str, str, str]:
    difference = _ms(end, part.difference_s)
    return (
        _ms(end, part.baseline_s),
        _ms(end, part.candidate_s),
        difference if difference.startswith("-") else f"+{difference}",
    )


def _ms(end: EndToEnd, seconds: float) -> str:
    """Milliseconds with as many decimals as show four digits of the smaller p50: columns of one precision."""
    decimals = max(0, 3 - math.floor(math.log10(1e3 * min(end.baseline_s, end.candidate_s))))
    return f"{round(seconds * 1e3, decimals) + 0.0:,.{decimals}f}"  # + 0.0: no minus before a zero


def _share(share: float | None) -> str:
    return "" if share is None else f"{round(share, 3) + 0.0:.1%}".replace("%", " %")


def _moves(found: Difference) -> list[Table]:
    rows = [
        (
            move.label,
            f"{'+'.join(map(short, move.baseline))} → {'+'.join(map(short, move.candidate))}",
            str(move.nodes),
            *_times(found.end, move),
        )
        for move in found.moves
    ]
    return [Table(head=("moved", "providers", "nodes", *_SIDES), rows=rows, left=2)] if rows else []


def _group(one: Group, end: EndToEnd) -> tuple[str, ...]:
    return (
        _names(one.baseline),
        _names(one.candidate),
        f"{one.label} (inserted)" if one.kind == "inserted" else one.label,
        *_times(end, one),
    )


def _names(nodes: Iterable[GroupNode]) -> str:
    text = ", ".join(" / ".join([*node.path, node.name]) + _count(node) for node in nodes)
    return text if len(text) <= _WIDE else f"{text[: _WIDE // 2]}…{text[-_WIDE // 2 + 1 :]}"


def _count(node: GroupNode) -> str:
    return f" ×{node.nodes}" if node.nodes > 1 else ""
