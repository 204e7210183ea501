"""Grouping of the nodes of two profiles that compute the same nodes of the model, with their times.

Nodes are matched through the nodes of the model, never by name alone: `conv1` of a fused graph may replace a
convolution, a batch normalization and an activation. A quantized node of a variant computes the node of the
original that ONNX Runtime's quantizer named it after. Pure. Times are seconds.
"""

from __future__ import annotations

import math
import re
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
# what `onnxruntime.quantization` appends to the name of a node that it quantizes
_QUANTIZED_SUFFIX = re.compile(r"_quant$|(_matmul)?_Q[248]$")
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
    """One executed node of a group; an entry that combines several nodes has their number and sum."""

    name: str
    path: tuple[str, ...]
    op_type: str
    provider: str
    nodes: int
    self_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of both sides that compute the same nodes of the model."""

    label: str
    kind: Kind
    baseline: tuple[GroupNode, ...]
    candidate: tuple[GroupNode, ...]
    model: tuple[str, ...]  # node names; in a subgraph with the names of the enclosing nodes
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
        """Half the 95 % interval of the difference, from its spread between the passes."""
        return half_width(self.baseline_by_pass, self.candidate_by_pass)


# --- one side -----------------------------------------------------------------------------------------------


def typical_passes(side: Side) -> list[int]:
    """Return the indices of the passes that are used: the middle half by duration."""
    return middle_half([run + plain for run, plain in zip(side.run_s, side.plain_s, strict=True)])


def mean(by_pass: Sequence[float], chosen: Sequence[int]) -> float:
    """Return the mean over the `chosen` passes."""
    return math.fsum(by_pass[index] for index in chosen) / len(chosen)


class TimesOfSides:
    """What follows from the times of both sides, for the dataclasses that hold them."""

    __slots__ = ()
    baseline_s: float
    candidate_s: float
    half_width_s: float | None

    @property
    def difference_s(self) -> float:
        """Candidate minus baseline."""
        return self.candidate_s - self.baseline_s

    @property
    def clear(self) -> bool:
        """True where the passes agree on the sign of the difference."""
        return self.half_width_s is not None and abs(self.difference_s) > self.half_width_s


def half_width(baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the mean difference, from its spread between pairs of passes.

    Student's t on all pairs, including those that `typical_passes` leaves out. The standard error uses the
    number of passes that it chooses, because the mean is taken over these. None below two pairs.
    """
    pairs = [after - before for before, after in zip(baseline, candidate, strict=True)]
    if len(pairs) < 2:
        return None
    error = statistics.stdev(pairs) / math.sqrt(len(middle_half(pairs)))
    return t_quantile(1 - (1 - CONFIDENCE) / 2, len(pairs) - 1) * error


@dataclass(frozen=True, slots=True)
class TimedNode:
    """An executed node with its time without profiler overhead, per run or per sample."""

    ran: RanNode
    inserted: bool
    work_of: tuple[Key, ...]  # nodes of the model; empty: not known
    by_pass: tuple[float, ...]
    self_s: float


class TimedSide:
    """One side with comparable times.

    `plain_s` is a typical run without the profiler; `outside_by_pass` is its time outside the nodes.
    Sequential nodes cannot take longer than the whole run: if they do because of the profiler, all nodes of a
    pass are scaled down to the run. `scale` is the mean factor, 1 without scaling.
    """

    def __init__(self, side: Side, *, instrument_s: float, rows: int) -> None:
        """Subtract the profiler overhead from every call, and divide by `rows`.

        Args:
            side: passes of the side.
            instrument_s: profiler overhead per call.
            rows: 1 for times per run, the batch size for times per sample.
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
    """Return for each pass the factor that scales its nodes to fit into its run; 1 for parallel nodes."""
    in_nodes = [math.fsum(one[index] for one in times) for index in range(len(side.plain_s))]
    return [
        1.0 if side.parallel or nodes <= plain else plain / nodes
        for plain, nodes in zip(side.plain_s, in_nodes, strict=True)
    ]


# --- both sides ---------------------------------------------------------------------------------------------

_GroupKey = tuple[str, str] | int  # ("inserted", kind of node), or the number of a set of nodes


def group(baseline: TimedSide, candidate: TimedSide) -> list[Group]:
    """Group the nodes that compute the same nodes of the model; inserted nodes are grouped by their kind."""
    model = {**candidate.model, **baseline.model}
    order = {key: index for index, key in enumerate(model)}
    members: dict[_GroupKey, tuple[list[TimedNode], list[TimedNode]]] = defaultdict(lambda: ([], []))
    work: dict[_GroupKey, dict[Key, None]] = defaultdict(dict)
    originals = _originals(baseline.model, candidate.model)
    numbers = _match(baseline, candidate, originals)
    for side, timed in enumerate((baseline, candidate)):
        for index, node in enumerate(timed.nodes):
            place: _GroupKey = numbers[side, index]
            if node.inserted:
                place = "inserted", INSERTED_NAMES.get(node.ran.op_type, node.ran.op_type)
            members[place][side].append(node)
            if not node.inserted:
                work[place] |= dict.fromkeys(originals.get(key, key) for key in node.work_of)
    return [
        _group(place, *members[place], sorted(work[place], key=lambda key: order.get(key, 0)), model)
        for place in members
    ]


def _originals(*models: Mapping[Key, str]) -> dict[Key, Key]:
    """Return for each quantized node of one of two models the node of the other that it was made from."""
    found: dict[Key, Key] = {}
    for own, other in (models, models[::-1]):
        for key in own:
            original = (*key[:-1], _QUANTIZED_SUFFIX.sub("", key[-1]))
            if original in other and original not in own:
                found[key] = original
    return found


def _match(
    baseline: TimedSide, candidate: TimedSide, originals: Mapping[Key, Key]
) -> dict[tuple[int, int], int]:
    """Return the number of the group of each node, keyed by (side, index of the node).

    Nodes are joined through the nodes of the model, quantized ones through their `originals`. A node of
    unknown origin may match any node that only the other side runs, so all of these form one group.
    """
    sets = _Sets()
    sides = (baseline, candidate)
    nodes = [(side, index, node) for side in (0, 1) for index, node in enumerate(sides[side].nodes)]
    for side, index, node in nodes:
        for key in node.work_of:
            sets.join((side, index), ("model", originals.get(key, key)))
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
        """Return the representative of the set of `one`."""
        parent = self._parent
        while (above := parent.setdefault(one, one)) != one:
            parent[one] = parent[above]
            one = above
        return one

    def join(self, one: object, other: object) -> None:
        """Merge the sets of `one` and `other`."""
        self._parent[self.find(one)] = self.find(other)


def _group(
    place: _GroupKey,
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
    place: _GroupKey, baseline: Sequence[TimedNode], candidate: Sequence[TimedNode], model: Sequence[str]
) -> tuple[str, Kind]:
    """Return the label and kind of a group.

    The label is its only operator, or its only heavy operator, in the model; else the name of the fused node,
    where a side has fused all of it; else the most frequent heavy operator, or the one with the most time.
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
