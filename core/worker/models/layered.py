"""The job `layout`: places for the items of a graph, by igraph's Sugiyama layout.

In a worker because it is native code on a graph of unknown origin: placing recurses once per place, which
overflows the stack of an ordinary thread on a wide graph, and a crash must not take the dashboard with it.
"""

from __future__ import annotations

import threading

import igraph

from core import wire

STACK_BYTES = 512 << 20  # only touched as far as it is needed

Point = list[float]


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
    count, edges = len(plan["levels"]), [(source, target) for source, target in plan["edges"]]
    graph = igraph.Graph(n=count, edges=edges, directed=True)
    placed = graph.layout_sugiyama(layers=plan["levels"], hgap=1, vgap=1, maxiter=plan["rounds"])
    points = [[float(x), float(y)] for x, y in placed.coords[:count]]
    ways = [
        _in_order([[float(x), float(y)] for x, y in way], points[source])
        for (source, _), way in zip(edges, placed.edge_routing, strict=True)
    ]
    return {"points": points, "bends": ways}


def _in_order(bends: list[Point], start: Point) -> list[Point]:
    """Bends from `start` on: igraph gives those of an edge that points upwards from its other end."""
    if len(bends) > 1 and abs(bends[0][1] - start[1]) > abs(bends[-1][1] - start[1]):
        return bends[::-1]
    return bends
