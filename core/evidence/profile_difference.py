"""Splits the time between two results over their nodes; the rest is unexplained.

The rows of a `Difference` add up to the whole run of each side, so their differences add up to the difference
of the two: time in nodes, time outside the nodes, and time of the results that the profiled passes do not
reproduce. `node_matching` matches the nodes; `profile_sentence` describes the result. Pure; used by the
parent only. Times are seconds, per run or per sample.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.evidence.fusion_difference import Fusion, fusions
from core.evidence.node_matching import (
    Group,
    GroupNode,
    TimedSide,
    TimesOfSides,
    group,
    half_width,
    mean,
    typical_passes,
)
from core.evidence.verdict import Verdict
from core.wire.profile import HOST_TIMED
from core.wire.profile_passes import Passes, Side

RowKind = Literal["operator", "inserted", "unmatched", "outside", "unseen"]

OUTSIDE = "outside the nodes"
UNSEEN = "not reproduced in the passes"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """Time of a whole run of both sides, and their difference; per run, or per sample with `per_row`.

    For two sides of one comparison, the ratio of their paired rounds determines the difference: the baseline
    counts with its p50, the candidate with that p50 divided by the ratio. The candidate's own p50 over all
    its measurements may differ, and even contradict the ratio.
    """

    baseline_s: float  # its p50
    candidate_s: float  # compared: the baseline's p50 divided by the ratio; else its own p50
    candidate_p50_s: float  # its own p50, as stored
    low_s: float | None  # 95 % interval of the difference; None: not known
    high_s: float | None
    verdict: Verdict
    words: str  # text of the verdict with its numbers
    raced: bool  # measured in the same rounds of one comparison
    per_row: bool  # times are per sample, because the batch sizes differ

    @property
    def difference_s(self) -> float:
        """Candidate minus baseline; negative: the candidate is faster."""
        return self.candidate_s - self.baseline_s

    @property
    def decided(self) -> bool:
        """Whether the comparison reached a verdict; else no part is shown."""
        return self.verdict != Verdict.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow(TimesOfSides):
    """One part of both results."""

    label: str
    kind: RowKind
    baseline_s: float
    candidate_s: float
    half_width_s: float | None  # of the difference, 95 %, from its spread between the passes; None: not known
    baseline_nodes: int = 0
    candidate_nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Nodes that the two sides ran on different providers, with the times of their groups."""

    label: str
    baseline: tuple[str, ...]  # providers
    candidate: tuple[str, ...]
    nodes: int  # of the model
    baseline_s: float
    candidate_s: float

    @property
    def difference_s(self) -> float:
        """Candidate minus baseline."""
        return self.candidate_s - self.baseline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The time difference of two results, split into parts."""

    end: EndToEnd
    rows: tuple[DifferenceRow, ...]  # largest difference first; `outside` and `unseen` last
    groups: tuple[Group, ...]  # largest difference first
    moves: tuple[Move, ...]
    seen_s: float  # difference of the runs without the profiler in the passes
    seen_half_width_s: float | None
    instrument_s: float  # profiler overhead subtracted from every call of a node
    scales: tuple[float, float]  # factors of the node times, see `node_matching.Timed`; 1: not scaled
    passes: int  # of each side
    runs: tuple[int, int]  # of each pass
    overlapping: bool  # nodes ran in parallel: their times add up to more than the run
    host_timed: bool  # some node times are those of launching a GPU kernel, not of the kernel
    origins_known: tuple[bool, bool]  # False: fused nodes of that side could not be traced to the model
    notes: tuple[str, ...]
    fusions: tuple[Fusion, ...] = ()  # made by one side only; largest difference first
    versions: tuple[str, str] = ("", "")  # of ONNX Runtime; empty: both sides ran in the same runtime

    @property
    def in_nodes(self) -> DifferenceRow:
        """All rows of nodes as one."""
        rows = [row for row in self.rows if row.kind not in ("outside", "unseen")]
        return DifferenceRow(
            label="in nodes",
            kind="operator",
            baseline_s=math.fsum(row.baseline_s for row in rows),
            candidate_s=math.fsum(row.candidate_s for row in rows),
            half_width_s=None,
            baseline_nodes=sum(row.baseline_nodes for row in rows),
            candidate_nodes=sum(row.candidate_nodes for row in rows),
        )

    def share(self, part: DifferenceRow | Group | Move | Fusion) -> float | None:
        """Return the share of a part in the whole difference, such as 0.62; negative: it opposes it.

        None where there is no difference.
        """
        whole = self.end.difference_s
        return part.difference_s / whole if whole else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; every row, group, move and fusion with its `difference_s` and `share`.

        Without parts where it is not decided which side is faster.
        """
        data = asdict(self)
        data["end"]["difference_s"] = self.end.difference_s
        if not self.end.decided:
            return data | {"rows": [], "groups": [], "moves": [], "fusions": []}
        for name in ("rows", "groups", "moves", "fusions"):
            for plain, part in zip(data[name], getattr(self, name), strict=True):
                plain |= {"difference_s": part.difference_s, "share": self.share(part)}
        for plain, one in zip(data["groups"], self.groups, strict=True):
            plain |= {
                "baseline_s": one.baseline_s,
                "candidate_s": one.candidate_s,
                "half_width_s": one.half_width_s,
            }
        return data


def difference(passes: Passes, end: EndToEnd) -> Difference:
    """Compare the two sides.

    Times of a side are means over its typical passes. The profiler overhead is subtracted from every call of
    a node, the same on both sides: at most the time of the cheapest call, and at most the cost of profiling
    per call.

    Args:
        passes: profiled passes of both sides.
        end: the two results to explain.
    """
    instrument_s = profiler_cost_s(passes)
    baseline, candidate = (
        TimedSide(side, instrument_s=instrument_s, rows=side.batch_size if end.per_row else 1)
        for side in passes.sides
    )
    groups = sorted(group(baseline, candidate), key=_sort_key)
    providers = {node.provider for side in passes.sides for node in side.nodes}
    one, other = passes.sides
    return Difference(
        end=end,
        rows=_rows(groups, baseline, candidate, end),
        groups=tuple(groups),
        moves=_moves(groups),
        seen_s=candidate.plain_s - baseline.plain_s,
        seen_half_width_s=half_width(baseline.plain_by_pass, candidate.plain_by_pass),
        instrument_s=instrument_s,
        scales=(baseline.scale, candidate.scale),
        passes=len(one.run_s),
        runs=(one.runs, other.runs),
        overlapping=one.parallel or other.parallel,
        host_timed=bool(providers & HOST_TIMED),
        origins_known=(one.origins is not None, other.origins is not None),
        notes=tuple(dict.fromkeys((*_fallbacks(one, other), *one.notes, *other.notes))),
        fusions=fusions(groups),
    )


def _fallbacks(*sides: Side) -> list[str]:
    """Return a note for each side that did not run on its requested providers."""
    return [
        f"Fallback of the {name}: requested {', '.join(side.requested_providers)}, ran on "
        f"{', '.join(side.effective_providers)}."
        for name, side in zip(("baseline", "candidate"), sides, strict=True)
        if side.fallback
    ]


def _sort_key(part: DifferenceRow | Group | Move) -> tuple[float, str]:
    """Return the sort key: largest difference first, equal ones by name."""
    return -abs(part.difference_s), part.label


def profiler_cost_s(passes: Passes) -> float:
    """Return the profiler overhead to subtract from every call of a node on both sides; see `difference`."""
    return min(_instrument_s(side) for side in passes.sides)


def _instrument_s(side: Side) -> float:
    """Return an upper bound of the profiler overhead per call."""
    typical = typical_passes(side)
    calls = math.fsum(node.calls_per_run for node in side.nodes)
    each = [mean(node.self_s, typical) / node.calls_per_run for node in side.nodes if node.calls_per_run]
    if not each:
        return 0.0
    cost_s = mean(side.run_s, typical) - mean(side.plain_s, typical)
    return max(0.0, min(cost_s / calls, *each))


def _rows(
    groups: Sequence[Group], baseline: TimedSide, candidate: TimedSide, end: EndToEnd
) -> tuple[DifferenceRow, ...]:
    named: dict[tuple[RowKind, str], list[Group]] = defaultdict(list)
    for one in groups:
        named[one.kind, one.label].append(one)
    rows = sorted((_row(label, kind, members) for (kind, label), members in named.items()), key=_sort_key)
    outside = DifferenceRow(
        label=OUTSIDE,
        kind="outside",
        baseline_s=baseline.plain_s - math.fsum(row.baseline_s for row in rows),
        candidate_s=candidate.plain_s - math.fsum(row.candidate_s for row in rows),
        half_width_s=half_width(baseline.outside_by_pass, candidate.outside_by_pass),
    )
    unseen = DifferenceRow(
        label=UNSEEN,
        kind="unseen",
        baseline_s=end.baseline_s - baseline.plain_s,
        candidate_s=end.candidate_s - candidate.plain_s,
        half_width_s=None,
    )
    return (*rows, outside, unseen)


def _row(label: str, kind: RowKind, groups: Sequence[Group]) -> DifferenceRow:
    return DifferenceRow(
        label=label,
        kind=kind,
        baseline_s=math.fsum(one.baseline_s for one in groups),
        candidate_s=math.fsum(one.candidate_s for one in groups),
        half_width_s=half_width(
            [math.fsum(column) for column in zip(*(one.baseline_by_pass for one in groups), strict=True)],
            [math.fsum(column) for column in zip(*(one.candidate_by_pass for one in groups), strict=True)],
        ),
        baseline_nodes=sum(node.nodes for one in groups for node in one.baseline),
        candidate_nodes=sum(node.nodes for one in groups for node in one.candidate),
    )


def _moves(groups: Sequence[Group]) -> tuple[Move, ...]:
    """Return the groups that ran on different providers, summed by operator and providers."""
    moved: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Group]] = defaultdict(list)
    for one in groups:
        before, after = _providers(one.baseline), _providers(one.candidate)
        if one.kind != "inserted" and before and after and before != after:
            moved[one.label, before, after].append(one)
    moves = [
        Move(
            label=label,
            baseline=before,
            candidate=after,
            nodes=sum(len(one.model) or len(one.candidate) for one in members),
            baseline_s=math.fsum(one.baseline_s for one in members),
            candidate_s=math.fsum(one.candidate_s for one in members),
        )
        for (label, before, after), members in moved.items()
    ]
    return tuple(sorted(moves, key=_sort_key))


def _providers(nodes: Sequence[GroupNode]) -> tuple[str, ...]:
    return tuple(sorted({node.provider for node in nodes}))
