"""The job `layout`: places for the items of a graph, by igraph's Sugiyama layout.

In a worker because it is native code on a graph of unknown origin: placing recurses once per place, which
overflows the stack of an ordinary thread on a wide graph, and a crash must not take the dashboard with it.
"""

from __future__ import annotations

import itertools
import threading

import igraph

from core import wire

STACK_BYTES = 512 << 20  # only touched as far as it is needed


def lay_out(plan: wire.LayoutPlan) -> wire.LayoutReply:
    """Place every item on its level, and let edges pass between the others."""
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
    """Lay out with a place of our own on every level that an edge passes.

    igraph would put them in itself, but of a graph of several parts it mixes up which edge they belong to.
    """
    levels, count = list(plan["levels"]), len(plan["levels"])
    edges: list[tuple[int, int]] = []
    passing: list[range] = []
    for source, target in plan["edges"]:
        first = len(levels)
        levels += range(levels[source] + 1, levels[target])
        passing.append(range(first, len(levels)))
        way = [source, *passing[-1], target]
        if levels[source] < levels[target]:  # else it closes a circle, and is drawn straight
            edges += itertools.pairwise(way)
    graph = igraph.Graph(n=len(levels), edges=edges, directed=True)
    placed = graph.layout_sugiyama(layers=levels, hgap=1, vgap=1, maxiter=plan["rounds"])
    points = [[float(x), float(y)] for x, y in placed.coords[: len(levels)]]
    return {"points": points[:count], "bends": [[points[index] for index in one] for one in passing]}
