"""Sheet of the difference between two results, by parts and nodes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from core.evidence.fusion_difference import operators_text
from core.evidence.node_matching import Group, GroupNode
from core.evidence.profile_difference import Difference, DifferenceRow, EndToEnd
from core.evidence.profile_sentence import remarks, sentence
from core.run.explanation import Pair
from core.show.sheets import Line, Sheet
from core.show.sheets.trials import notes
from core.show.table import Column, Table, Value, tabulate
from core.wire.units import provider

_WIDE = 44  # characters of a cell with node names
_MOST_NAMES = 12  # most node names of a group in a cell; the rest is counted


def explained(of: Pair, found: Difference, *, top: int, comparison: str = "") -> Sheet:
    """Return the sheet: sentence, parts, nodes on other providers, node groups, and notes.

    If the comparison is undecided: only the sentence, and how to decide it.

    Args:
        of: the two results.
        found: their difference.
        top: number of listed node groups.
        comparison: ID of the comparison of both that can be measured longer; empty: none.
    """
    said = Line(sentence(found), found.end.verdict.color, apart=True)
    if not found.end.decided:
        return Sheet(of.what, [said, Line(_how_to_decide(of, comparison))])
    hidden = len(found.groups) - top
    first, *others = notes(remarks(found))
    return Sheet(
        of.what,
        [
            said,
            parts(found, total=True),
            *([moves(found)] if found.moves else []),
            *([fusions(found)] if found.fusions and all(found.versions) else []),
            groups(found, most=top),
            *([Line(f"({hidden} more groups of nodes; --top shows more)")] if hidden > 0 else []),
            replace(first, apart=True),
            *others,
        ],
    )


def _how_to_decide(of: Pair, comparison: str) -> str:
    if comparison:
        return f"Measure longer: ortune compare --continue {comparison}"
    other = " --different-models" if of.different_models else ""
    return f"Compare them: ortune compare --baseline {of.baseline.id} --candidate {of.candidate.id}{other}"


# --- tables -------------------------------------------------------------------------------------------------


def parts(found: Difference, *, total: bool = False) -> Table:
    """Return the parts of both sides; with `total`, also their sum."""
    end = found.end
    whole = DifferenceRow(
        label=f"whole {'row' if end.per_row else 'run'}",
        kind="operator",
        baseline_s=end.baseline_s,
        candidate_s=end.candidate_s,
        half_width_s=None,
    )
    return tabulate(
        [*found.rows, *([whole] if total else [])],
        (Column("part", tells=True), label),
        *_times(found),
        (Column("±", "ms", decimals=decimals(found.end), help=_HALF_WIDTH), lambda one: one.half_width_s),
        (_SHARE, found.share),
        (Column("nodes", right=True), nodes),
        (Column("clear", on="browser"), lambda one: one.clear),
        drop=("nodes",),
        solid=("part",),
    )


def moves(found: Difference) -> Table:
    """Return the nodes that ran on different providers."""
    return tabulate(
        found.moves,
        (Column("moved", tells=True), lambda one: one.label),
        (
            Column("providers"),
            lambda one: f"{_providers(one.baseline)} → {_providers(one.candidate)}",
        ),
        (Column("nodes", "count"), lambda one: one.nodes),
        *_times(found),
        (_SHARE, found.share),
    )


def fusions(found: Difference) -> Table:
    """Return what only one side fuses, or runs by other operators."""
    return tabulate(
        found.fusions,
        (
            Column("operators of the baseline", tells=True, most=_WIDE),
            lambda one: operators_text(one.baseline),
        ),
        (Column("operators of the candidate", most=_WIDE), lambda one: operators_text(one.candidate)),
        (Column("times", "count", help="How often the model has it."), lambda one: one.groups),
        *_times(found),
        (Column("±", "ms", decimals=decimals(found.end), help=_HALF_WIDTH), lambda one: one.half_width_s),
        (_SHARE, found.share),
        (Column("nodes of the model", "count", on="browser"), lambda one: one.model_nodes),
    )


def groups(found: Difference, *, most: int | None = None) -> Table:
    """Return groups of matched nodes of both sides.

    Args:
        found: the difference.
        most: largest number of groups; None: all.
    """
    return tabulate(
        found.groups[:most],
        (Column("nodes of the baseline", tells=True, most=_WIDE), lambda one: _names(one.baseline)),
        (Column("nodes of the candidate", most=_WIDE), lambda one: _names(one.candidate)),
        (Column("part"), label),
        *_times(found),
        (
            Column("±", "ms", on="browser", decimals=decimals(found.end), help=_HALF_WIDTH),
            lambda one: one.half_width_s,
        ),
        (replace(_SHARE, on="browser"), found.share),
        (Column("operators", on="browser"), _operators),
        (Column("in the model", on="browser"), lambda one: _shortened(one.model)),
        (Column("ran on", on="browser"), _ran_on),
    )


_HALF_WIDTH = "Half the 95 % interval of the difference."
_SHARE = Column(
    "share", "share", help="Share of the whole difference. Negative: it works against the difference."
)


def label(one: DifferenceRow | Group) -> str:
    """Return the displayed name of a part."""
    return f"{one.label} (inserted)" if one.kind == "inserted" else one.label


def nodes(one: DifferenceRow) -> str:
    """Return how many nodes each side ran; empty: the part has none."""
    return f"{one.baseline_nodes} → {one.candidate_nodes}" if one.baseline_nodes + one.candidate_nodes else ""


def _times(found: Difference) -> list[tuple[Column, Callable[[Any], Value]]]:
    """Return the columns of both times and their difference."""
    per = "row" if found.end.per_row else ""
    how: Any = {"per": per, "decimals": decimals(found.end)}
    return [
        (Column("baseline", "ms", **how), lambda one: one.baseline_s),
        (Column("candidate", "ms", **how), lambda one: one.candidate_s),
        (
            Column("difference", "ms", signed=True, help="Candidate minus baseline.", **how),
            lambda one: one.difference_s,
        ),
    ]


def decimals(end: EndToEnd) -> int:
    """Return the decimals of all times, so that the smaller p50 in milliseconds has four digits."""
    return max(0, 3 - math.floor(math.log10(1e3 * min(end.baseline_s, end.candidate_s))))


def _names(nodes: Iterable[GroupNode]) -> str:
    return _shortened(
        [
            " › ".join([*node.path, node.name]) + (f" ×{node.nodes}" if node.nodes > 1 else "")
            for node in nodes
        ]
    )


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _operators(one: Group) -> str:
    before, after = (
        " + ".join(dict.fromkeys(node.op_type for node in side)) or "none"
        for side in (one.baseline, one.candidate)
    )
    return before if before == after else f"{before} → {after}"


def _ran_on(one: Group) -> str:
    before, after = (
        _providers(sorted({node.provider for node in side})) for side in (one.baseline, one.candidate)
    )
    return before or after if before == after or not before or not after else f"{before} → {after}"


def _providers(names: Iterable[str]) -> str:
    return ", ".join(map(provider, names))
