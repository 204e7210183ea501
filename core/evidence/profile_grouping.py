"""Which nodes of two sides do the same work, and what they took.

Nodes are matched by the nodes of the model whose work they do, never by name alone: `conv1` of a fused graph
may stand for a convolution, a batch normalization and an activation. Pure. Times are seconds.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.evidence.statistics import CONFIDENCE, t_quantile
from core.wire.profile import COMPUTE, middle_half
from core.wire.profile_passes import Key, Origin, RanNode, Side

Kind = Literal["operator", "inserted", "unmatched"]

UNMATCHED = "not matched"

_HEAVY = COMPUTE | {"ConvInteger", "MatMulInteger", "MatMulNBits", "QLinearConv", "QLinearMatMul"}
INSERTED_NAMES = {
    "ReorderInput": "Reorder",
    "ReorderOutput": "Reorder",
    "MemcpyToHost": "Memcpy",
    "MemcpyFromHost": "Memcpy",
    "QuantizeLinear": "Quantize/Dequantize",
    "DequantizeLinear": "Quantize/Dequantize",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNode:
    """One node of a group, as one side ran it; a node that stands for several has their number and sum."""

    name: str
    path: tuple[str, ...]
    op_type: str
    provider: str
    nodes: int
    self_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of both sides that do the same work, and the nodes of the model that it comes from."""

    label: str
    kind: Kind
    baseline: tuple[GroupNode, ...]
    candidate: tuple[GroupNode, ...]
    model: tuple[str, ...]  # names; of those in a body with all that encloses them
    baseline_by_pass: tuple[float, ...]
    candidate_by_pass: tuple[float, ...]

    @property
    def baseline_s(self) -> float:
        """Time of a typical run."""
        return math.fsum(node.self_s for node in self.baseline)

    @property
    def candidate_s(self) -> float:
        """Time of a typical run."""
        return math.fsum(node.self_s for node in self.candidate)

    @property
    def difference_s(self) -> float:
        """Candidate minus baseline."""
        return self.candidate_s - self.baseline_s

    @property
    def half_width_s(self) -> float | None:
        """Half the 95 % interval of the difference, from how it scatters between the passes."""
        return half_width(self.baseline_by_pass, self.candidate_by_pass)


# --- one side -----------------------------------------------------------------------------------------------


def typical_passes(side: Side) -> list[int]:
    """Return the indices of the passes that count: the middle half by their length."""
    return middle_half([run + plain for run, plain in zip(side.run_s, side.plain_s, strict=True)])


def mean(by_pass: Sequence[float], chosen: Sequence[int]) -> float:
    """Return the mean over the `chosen` passes."""
    return math.fsum(by_pass[index] for index in chosen) / len(chosen)


def half_width(baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the mean difference, from its scatter between pairs of passes.

    Student's t on all pairs, those that `typical_passes` leaves out included; but the mean is one of those
    that it chooses, and knows no more than so many. None below two pairs.
    """
    pairs = [after - before for before, after in zip(baseline, candidate, strict=True)]
    if len(pairs) < 2:
        return None
    error = statistics.stdev(pairs) / math.sqrt(len(middle_half(pairs)))
    return t_quantile(1 - (1 - CONFIDENCE) / 2, len(pairs) - 1) * error


@dataclass(frozen=True, slots=True)
class TimedNode:
    """A node that ran, with the profiler's part taken off, in the unit of the comparison."""

    ran: RanNode
    inserted: bool
    work_of: tuple[Key, ...]  # nodes of the model; empty: not known
    by_pass: tuple[float, ...]
    self_s: float


class Timed:
    """One side with times that can be compared.

    `plain_s` is a typical run without the profiler, `outside_by_pass` what such a run has beyond its nodes.
    Nodes that follow each other cannot take longer than the whole run: where the profiler made them, all
    nodes of a pass are scaled down to it. `scale` is the mean factor, 1 where nothing was scaled.
    """

    def __init__(self, side: Side, *, instrument_s: float, rows: int) -> None:
        """Take the profiler's part off every call, and divide by `rows`.

        Args:
            side: what was seen.
            instrument_s: what the profiler adds to each call.
            rows: 1 for times per run, the batch for times per row.
        """
        self.model = {(*node.path, node.name): node.op_type for node in side.model}
        self._origins = {(*one.path, one.name): one for one in side.origins or ()}
        self._typical = typical_passes(side)
        times = [[seconds - instrument_s * ran.calls_per_run for seconds in ran.self_s] for ran in side.nodes]
        factors = _factors(side, times)
        self.scale = mean(factors, self._typical)
        self.nodes = [
            self._node(ran, tuple(s * f / rows for s, f in zip(seconds, factors, strict=True)))
            for ran, seconds in zip(side.nodes, times, strict=True)
        ]
        self.plain_by_pass = [seconds / rows for seconds in side.plain_s]
        self.plain_s = mean(self.plain_by_pass, self._typical)
        self.outside_by_pass = [
            plain - math.fsum(node.by_pass[index] for node in self.nodes)
            for index, plain in enumerate(self.plain_by_pass)
        ]

    def _node(self, ran: RanNode, by_pass: tuple[float, ...]) -> TimedNode:
        origin = self._origins.get(ran.key)
        return TimedNode(
            ran=ran,
            inserted=ran.inserted or (origin is not None and origin.inserted),
            work_of=self._work_of(ran, origin),
            by_pass=by_pass,
            self_s=mean(by_pass, self._typical),
        )

    def _work_of(self, ran: RanNode, origin: Origin | None) -> tuple[Key, ...]:
        if origin is not None and origin.nodes:
            return tuple((*ran.path, name) for name in origin.nodes)
        return (ran.key,) if self.model.get(ran.key) == ran.op_type else ()


def _factors(side: Side, times: Sequence[Sequence[float]]) -> list[float]:
    """For each pass, what its nodes must be scaled by to fit into its run; 1 where they may overlap."""
    in_nodes = [math.fsum(one[index] for one in times) for index in range(len(side.plain_s))]
    return [
        1.0 if side.parallel or nodes <= plain else plain / nodes
        for plain, nodes in zip(side.plain_s, in_nodes, strict=True)
    ]


# --- both sides ---------------------------------------------------------------------------------------------

_Place = tuple[str, str] | int  # ("inserted", kind of node), or the number of a set of nodes


def group(baseline: Timed, candidate: Timed) -> list[Group]:
    """Put together what does the same work; what ONNX Runtime inserted is one group per kind of node."""
    model = {**candidate.model, **baseline.model}
    order = {key: index for index, key in enumerate(model)}
    members: dict[_Place, tuple[list[TimedNode], list[TimedNode]]] = defaultdict(lambda: ([], []))
    work: dict[_Place, dict[Key, None]] = defaultdict(dict)
    numbers = _match(baseline, candidate)
    for side, timed in enumerate((baseline, candidate)):
        for index, node in enumerate(timed.nodes):
            place: _Place = numbers[side, index]
            if node.inserted:
                place = "inserted", INSERTED_NAMES.get(node.ran.op_type, node.ran.op_type)
            members[place][side].append(node)
            work[place] |= {} if node.inserted else dict.fromkeys(node.work_of)
    return [
        _group(place, *members[place], sorted(work[place], key=lambda key: order.get(key, 0)), model)
        for place in members
    ]


def _match(baseline: Timed, candidate: Timed) -> dict[tuple[int, int], int]:
    """Number the sets of nodes that do the same work, for (side, index of the node).

    Nodes are joined through the nodes of the model. Where it is not known what a node does the work of, it
    can be that of any node which the other side runs and this side does not: all of those are one set.
    """
    sets = _Sets()
    sides = (baseline, candidate)
    nodes = [(side, index, node) for side in (0, 1) for index, node in enumerate(sides[side].nodes)]
    for side, index, node in nodes:
        for key in node.work_of:
            sets.join((side, index), ("model", key))
    for side in (0, 1):
        lost = [(s, i) for s, i, node in nodes if s == side and not node.inserted and not node.work_of]
        if lost:
            matched = {sets.find((s, i)) for s, i, _ in nodes if s == side}
            others = [(s, i) for s, i, node in nodes if s != side and not node.inserted]
            for one in lost + [one for one in others if sets.find(one) not in matched]:
                sets.join(one, ("unmatched", ()))
    numbers: dict[object, int] = {}
    return {
        (side, index): numbers.setdefault(sets.find((side, index)), len(numbers)) for side, index, _ in nodes
    }


class _Sets:
    """Disjoint sets."""

    def __init__(self) -> None:
        self._parent: dict[object, object] = {}

    def find(self, one: object) -> object:
        """Return what stands for the set of `one`."""
        parent = self._parent
        while (above := parent.setdefault(one, one)) != one:
            parent[one] = parent[above]
            one = above
        return one

    def join(self, one: object, other: object) -> None:
        """Make one set of two."""
        self._parent[self.find(one)] = self.find(other)


def _group(
    place: _Place,
    baseline: list[TimedNode],
    candidate: list[TimedNode],
    work: list[Key],
    model: Mapping[Key, str],
) -> Group:
    label, kind = _label(place, baseline, candidate, [model[key] for key in work if key in model])
    passes = len((baseline or candidate)[0].by_pass)
    return Group(
        label=label,
        kind=kind,
        baseline=_group_nodes(baseline),
        candidate=_group_nodes(candidate),
        model=tuple(" › ".join(key) for key in work),
        baseline_by_pass=_summed(baseline, passes),
        candidate_by_pass=_summed(candidate, passes),
    )


def _summed(nodes: Sequence[TimedNode], passes: int) -> tuple[float, ...]:
    return tuple(math.fsum(node.by_pass[index] for node in nodes) for index in range(passes))


def _group_nodes(nodes: Iterable[TimedNode]) -> tuple[GroupNode, ...]:
    return tuple(
        GroupNode(
            name=node.ran.name,
            path=node.ran.path,
            op_type=node.ran.op_type,
            provider=node.ran.provider,
            nodes=node.ran.nodes,
            self_s=node.self_s,
        )
        for node in nodes
    )


def _label(
    place: _Place, baseline: Sequence[TimedNode], candidate: Sequence[TimedNode], model: Sequence[str]
) -> tuple[str, Kind]:
    """Name a group after what it is about.

    The one operator, or the one heavy operator, that the model has there; else, where a side has fused it
    all, what the fused node is called; else the operator that takes the most time.
    """
    if isinstance(place, tuple):
        return place[1], "inserted"
    if not model or any(not node.work_of for node in (*baseline, *candidate)):
        return UNMATCHED, "unmatched"
    heavy = [op_type for op_type in model if op_type in _HEAVY]
    if len(set(model)) == 1 or len(heavy) == 1:
        return (heavy or list(model))[0], "operator"
    fused = next((side[0].ran.op_type for side in (candidate, baseline) if len(side) == 1), None)
    if fused is not None:
        return fused.removeprefix("Fused"), "operator"
    if heavy:
        return Counter(heavy).most_common(1)[0][0], "operator"
    return max((*baseline, *candidate), key=lambda node: node.self_s).ran.op_type, "operator"
