"""Layered layout of a graph, computed by a worker: levels from the inputs downwards.

The work is bounded. A long edge costs one place on every level that it passes, up to `MOST_PASSED` in all;
the longest edges beyond that do not affect the layout, and are drawn straight. Where the worker fails, items
are placed side by side on their levels: harder to read, but correct.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from core import wire
from core.evidence.graph_folding import Edge, levels
from core.process.job_worker import Run, run_job
from core.wire.errors import Cancelled, TunerError

MOST_PASSED = 6_000  # places of long edges, in all
TIMEOUT_S = 60.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions of items, and routes of edges: from one item over bends to the other."""

    points: tuple[Point, ...]  # x to the right, y the level, downwards
    ways: tuple[tuple[Point, ...], ...]  # of each edge, including both ends
    depth: int  # levels
    plain: bool = False  # the worker failed: items are side by side


def layout(count: int, edges: Sequence[Edge], run: Run = run_job) -> Layout:
    """Compute the layout of `count` items.

    Args:
        count: items.
        edges: from item to item.
        run: starts the worker, called like `run_job`.
    """
    if not count:
        return Layout(points=(), ways=(), depth=0)
    level = levels(count, edges)
    kept = edges_within_limit(edges, level)
    plan: wire.LayoutPlan = {"levels": level, "edges": [list(edges[index]) for index in kept]}
    try:
        reply = run(wire.LAYOUT, plan, timeout_s=TIMEOUT_S)
    except Cancelled:
        raise
    except TunerError:
        return _result(_side_by_side(level), edges, {}, level, plain=True)
    points = [(x, y) for x, y in reply["points"]]
    bends = {index: [(x, y) for x, y in way] for index, way in zip(kept, reply["bends"], strict=True)}
    return _result(points, edges, bends, level)


def edges_within_limit(edges: Sequence[Edge], level: Sequence[int]) -> list[int]:
    """Return the indices of the edges that the layout considers: without the longest ones."""
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
