"""The job `layout`: positions for the items of a graph, by igraph's Sugiyama layout.

It runs in a worker because it is native code on an untrusted graph. The layout recurses once per position,
which overflows an ordinary thread's stack on a wide graph, and a crash must not end the dashboard.
"""

from __future__ import annotations

import itertools
import threading

import igraph

from core import wire

STACK_BYTES = 512 << 20  # virtual; memory is used only as needed


def lay_out(plan: wire.LayoutPlan) -> wire.LayoutReply:
    """Place every item on its level, and route edges between the items."""
    found: list[wire.LayoutReply] = []
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=lambda: found.append(_placed(plan)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    return found[0]


def _placed(plan: wire.LayoutPlan) -> wire.LayoutReply:
    """Compute the layout with a dummy item of our own on every level that an edge crosses.

    igraph can insert dummy items itself, but assigns them to the wrong edges in graphs of several components.
    """
    levels, count = list(plan["levels"]), len(plan["levels"])
    edges: list[tuple[int, int]] = []
    passing: list[range] = []
    for source, target in plan["edges"]:
        first = len(levels)
        levels += range(levels[source] + 1, levels[target])
        passing.append(range(first, len(levels)))
        way = [source, *passing[-1], target]
        if levels[source] < levels[target]:  # else the edge closes a cycle and is drawn straight
            edges += itertools.pairwise(way)
    graph = igraph.Graph(n=len(levels), edges=edges, directed=True)
    placed = graph.layout_sugiyama(layers=levels, hgap=1, vgap=1, maxiter=plan["rounds"])
    points = [[float(x), float(y)] for x, y in placed.coords[: len(levels)]]
    return {"points": points[:count], "bends": [[points[index] for index in one] for one in passing]}
