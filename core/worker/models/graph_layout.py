"""The job `layout`: positions for the items of a graph, by fast-sugiyama.

It runs in a worker because it is native code on an untrusted graph: a crash must not end the dashboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fast_sugiyama import from_edges

from core import wire

LARGE = 800  # items, above which fewer swaps of neighbours are tried: all of them would take seconds

Edge = tuple[int, int]


def lay_out(plan: wire.LayoutPlan) -> wire.LayoutReply:
    """Place every item on its level, and route edges between the items.

    Connected parts stand side by side; items without an edge come last.
    """
    levels = plan["levels"]
    # any other edge closes a cycle, and is drawn straight
    edges = [(source, target) for source, target in plan["edges"]]
    down = [(source, target) for source, target in edges if levels[source] < levels[target]]
    tied = [*down, *_ties(levels, down)]
    items = sorted({item for edge in tied for item in edge})
    number = {item: index for index, item in enumerate(items)}
    layouts: Any = from_edges(
        [(number[source], number[target]) for source, target in tied],
        vertex_spacing=1,
        dummy_vertices=True,
        ranking_type="up",  # one below the lowest predecessor, as in the plan
        crossing_minimization="barycenter",
        transpose=len(levels) <= LARGE,
    )
    xs: dict[int, float] = {}  # of items and, from `len(items)` on, of the points that long edges pass
    passed: dict[Edge, list[int]] = {}  # long edge -> these points
    right = 0.0
    for placed, width, _, steps in layouts:
        xs |= {point: right + x for point, (x, _) in placed}
        right += width + 1
        following = {source: target for source, target in steps if source >= len(items)}
        for source, point in steps:
            if source < len(items) <= point:
                way = [point]
                while following[way[-1]] >= len(items):
                    way.append(following[way[-1]])
                passed[items[source], items[following[way[-1]]]] = way
    points = []
    for item, level in enumerate(levels):
        points.append([xs[number[item]] if item in number else right, float(level)])
        right += item not in number
    return {
        "points": points,
        "bends": [
            [
                [xs[point], float(level)]
                for level, point in enumerate(passed.get(edge, ()), levels[edge[0]] + 1)
            ]
            for edge in edges
        ],
    }


def _ties(levels: Sequence[int], edges: Sequence[Edge]) -> list[Edge]:
    """Return edges that keep items without predecessors, such as constants, on their levels.

    Without them these items would be placed at the top. The other end is beside the item's own neighbours: a
    predecessor of another predecessor of its successor.
    """
    entered = {target for _, target in edges}
    above = {
        target: source
        for source, target in edges
        if levels[target] - levels[source] == 1 and (source in entered or not levels[source])
    }
    return [
        (above[above[target]], source)
        for source, target in edges
        if source not in entered and levels[source] and levels[target] - levels[source] == 1
    ]
