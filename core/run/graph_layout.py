"""Where the items of a graph are drawn: in levels from the inputs down, laid out by a worker.

The work is bounded: what a long edge would cost, a place on every level that it passes, is spent up to
`MOST_PASSED`; the longest edges beyond decide no place, and are drawn straight. Where the worker fails, items
stand side by side on their levels: worse to read, but as true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from core import wire
from core.evidence.graph_folding import Edge, levels
from core.process.runner import Run
from core.wire.errors import Cancelled, TunerError

MOST_PASSED = 6_000  # places that long edges take up
ROUNDS, FEW_ROUNDS = 60, 12  # of making crossings fewer; the second of large graphs
LARGE = 800  # items
TIMEOUT_S = 60.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Places of items, and the ways of edges: from one item by some bends to the other."""

    points: tuple[Point, ...]  # x to the right, y the level, downwards
    ways: tuple[tuple[Point, ...], ...]  # of each edge, both ends among them
    depth: int  # levels
    plain: bool = False  # the worker failed: items stand side by side


def layout(count: int, edges: Sequence[Edge], run: Run) -> Layout:
    """Lay `count` items out.

    Args:
        count: items.
        edges: from item to item.
        run: starts the worker, called like `run_job`.
    """
    if not count:
        return Layout(points=(), ways=(), depth=0)
    level = levels(count, edges)
    kept = affordable(edges, level)
    plan: wire.LayoutPlan = {
        "levels": level,
        "edges": [list(edges[index]) for index in kept],
        "rounds": ROUNDS if count <= LARGE else FEW_ROUNDS,
    }
    try:
        reply = run(wire.LAYOUT, plan, timeout_s=TIMEOUT_S)
    except Cancelled:
        raise
    except TunerError:
        return _result(_side_by_side(level), edges, {}, level, plain=True)
    points = [(x, y) for x, y in reply["points"]]
    bends = {index: [(x, y) for x, y in way] for index, way in zip(kept, reply["bends"], strict=True)}
    return _result(points, edges, bends, level)


def affordable(edges: Sequence[Edge], level: Sequence[int]) -> list[int]:
    """Return the indices of the edges that decide places, of which the longest are left out."""
    passed = [abs(level[target] - level[source]) - 1 for source, target in edges]
    left = MOST_PASSED
    kept = []
    for index in sorted(range(len(edges)), key=passed.__getitem__):
        left -= max(0, passed[index])
        if left < 0:
            break
        kept.append(index)
    return sorted(kept)


def _side_by_side(level: Sequence[int]) -> list[Point]:
    taken: dict[int, int] = defaultdict(int)
    widths = defaultdict[int, int](int)
    for one in level:
        widths[one] += 1
    points = []
    for one in level:
        points.append((taken[one] - widths[one] / 2, float(one)))
        taken[one] += 1
    return points


def _result(
    points: Sequence[Point],
    edges: Sequence[Edge],
    bends: dict[int, list[Point]],
    level: Sequence[int],
    *,
    plain: bool = False,
) -> Layout:
    ways = tuple(
        (points[source], *bends.get(index, ()), points[target])
        for index, (source, target) in enumerate(edges)
    )
    return Layout(points=tuple(points), ways=ways, depth=1 + max(level), plain=plain)
