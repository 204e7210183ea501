"""Fusions that only one of two sides makes: the same nodes of the model, run as other operators. Pure.

Two versions of ONNX Runtime optimize one model differently. `node_matching` has joined the nodes of both
sides that do the same work; here equal replacements are counted and their times added.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.evidence.node_matching import Group, GroupNode, TimesOfSides, half_width

Fuses = Literal["baseline", "candidate", "neither"]
_Operators = tuple[tuple[str, int], ...]  # operator -> its nodes, in the order of the names

MOST_NAMED = 5  # operators in a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion(TimesOfSides):
    """Groups of nodes that one side runs as certain operators and the other side as others."""

    baseline: tuple[str, ...]  # operators, each once
    candidate: tuple[str, ...]
    fuses: Fuses  # the side that runs fewer nodes
    groups: int  # how often the model has it
    model_nodes: int  # nodes of the model, all groups together
    baseline_s: float
    candidate_s: float
    half_width_s: float | None  # of the difference, 95 %, from its spread between the passes


def fusions(groups: Sequence[Group]) -> tuple[Fusion, ...]:
    """Return what only one side fuses, or runs by other operators; largest difference first.

    Nodes that ONNX Runtime inserted, and groups of nodes of unknown origin, are left out.
    """
    same: dict[tuple[_Operators, _Operators], list[Group]] = defaultdict(list)
    for one in groups:
        before, after = _operators(one.baseline), _operators(one.candidate)
        if one.kind == "operator" and before and after and before != after:
            same[before, after].append(one)
    found = [_fusion(before, after, members) for (before, after), members in same.items()]
    return tuple(sorted(found, key=lambda one: (-abs(one.difference_s), one.baseline, one.candidate)))


def _operators(nodes: Sequence[GroupNode]) -> _Operators:
    counts: Counter[str] = Counter()
    for node in nodes:
        counts[node.op_type] += node.nodes
    return tuple(sorted(counts.items()))


def _fusion(before: _Operators, after: _Operators, members: Sequence[Group]) -> Fusion:
    counts = [sum(count for _, count in side) for side in (before, after)]
    fuses: Fuses = (
        "candidate" if counts[1] < counts[0] else "baseline" if counts[0] < counts[1] else "neither"
    )
    return Fusion(
        baseline=tuple(name for name, _ in before),
        candidate=tuple(name for name, _ in after),
        fuses=fuses,
        groups=len(members),
        model_nodes=sum(len(one.model) for one in members),
        baseline_s=math.fsum(one.baseline_s for one in members),
        candidate_s=math.fsum(one.candidate_s for one in members),
        half_width_s=half_width(
            _summed([one.baseline_by_pass for one in members]),
            _summed([one.candidate_by_pass for one in members]),
        ),
    )


def _summed(by_pass: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*by_pass, strict=True)]


def operators_text(names: Sequence[str]) -> str:
    """Return operators as text, the rest counted: "Add, Cast, Div, Mul, Pow and 3 more"."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
