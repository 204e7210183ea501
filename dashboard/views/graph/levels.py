"""Levels of a graph (main graph or body), and which of their blocks are unfolded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from core.api.graphs import Layout, layout
from core.evidence import graph_folding
from core.evidence.graph_facts import GraphRow, ProfileMatch, Where, scopes
from core.evidence.graph_folding import Block, Folding
from core.evidence.node_savings import Unit
from core.wire.graph import Level, Side
from dashboard import format
from dashboard.charts.graph_charts import Mode

OPENED = "graph.opened"  # unfolded blocks of each graph that the user has folded or unfolded
LEVEL = "graph.level"  # of each side: index of the main graph or of a body


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGraph:
    """A graph as the page shows it."""

    name: str
    token: str  # identifies the content
    side: Side
    model: Side | None  # the original graph; None where this one is the original
    times: ProfileMatch | None
    units: Mapping[Where, Unit]
    mode: Mode

    @property
    def optimized(self) -> bool:
        """Return whether this is the graph that ONNX Runtime runs."""
        return self.model is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One level of a graph, folded."""

    shown: ShownGraph
    number: int  # index of the level
    level: Level
    rows: Sequence[GraphRow]
    places: Sequence[Block]
    opened: frozenset[Block]

    @property
    def key(self) -> str:
        """Return the key of the stored folding."""
        return f"{self.shown.token} {self.shown.name} {self.number}"


def view(one: ShownGraph, listed: Sequence[GraphRow]) -> View:
    """Draw the choice of the level, where there are several, and return it with its folding."""
    number = _level(one)
    own = [row for row in listed if row.where[0] == number]
    return view_of(one, own, number)


def _level(one: ShownGraph) -> int:
    """Draw the choice between the main graph and bodies, where there are any, and return its index."""
    levels = one.side.levels
    if len(levels) == 1:
        return 0
    key = f"{LEVEL}.{one.name}"
    if st.session_state.get(key, 0) >= len(levels):
        st.session_state[key] = 0
    return int(
        st.selectbox(
            "Main graph or body",
            range(len(levels)),
            key=key,
            format_func=lambda number: _level_name(levels[number]) if number < len(levels) else str(number),
            help="If, Loop and Scan contain graphs of their own.",
        )
        or 0
    )


def _level_name(level: Level) -> str:
    count = f"{len(level.nodes):,} nodes" if len(level.nodes) != 1 else "1 node"
    if not level.path:
        return f"main graph ({count})"
    return f"{format.short(' › '.join(level.path), 60)} › {level.role} ({count})"


@st.cache_resource(show_spinner=False, max_entries=32)
def _places(token: str, name: str, number: int, _shown: ShownGraph) -> list[Block]:
    level = _shown.side.levels[number]
    edges = [(source, target) for source, target, _ in level.edges]
    return graph_folding.places(scopes(_shown.side, number, _shown.model), edges)


@st.cache_resource(show_spinner="Laying the graph out…", max_entries=64)
def _laid_out(
    key: str, opened: frozenset[Block], _level: Level, _places: Sequence[Block]
) -> tuple[Folding, Layout]:
    edges = [(source, target) for source, target, _ in _level.edges]
    folding = graph_folding.fold(_places, edges, opened)
    return folding, layout(len(folding.items), list(folding.edges))


def laid_out(view: View) -> tuple[Folding, Layout]:
    """Return the folding and the layout of its items."""
    return _laid_out(view.key, view.opened, view.level, view.places)


def drawn_words(view: View) -> str:
    """Return the number of nodes, blocks and single nodes in words."""
    folding, _ = laid_out(view)
    count = len(view.level.nodes)
    blocks = sum(item.closed for item in folding.items)
    nodes = f"{count:,} node{'s' * (count != 1)}"
    if not blocks:
        return nodes
    single = len(folding.items) - blocks
    return f"{nodes}, drawn as {blocks:,} folded block{'s' * (blocks != 1)} and {single:,} single"


def store_unfolded(view: View, opened: set[Block]) -> None:
    """Store which blocks the user has unfolded."""
    kept = dict(st.session_state.get(OPENED, {}))
    kept[view.key] = sorted(map(list, opened))
    st.session_state[OPENED] = kept


def view_of(one: ShownGraph, own: Sequence[GraphRow], number: int) -> View:
    """Return a level of a graph with its current folding.

    Args:
        one: the graph.
        own: the nodes of that level.
        number: of the level.
    """
    places = _places(one.token, one.name, number, one)
    opened = st.session_state.get(OPENED, {}).get(f"{one.token} {one.name} {number}")
    blocks = graph_folding.initially_open(places) if opened is None else set(map(tuple, opened))
    return View(
        shown=one,
        number=number,
        level=one.side.levels[number],
        rows=own,
        places=places,
        opened=frozenset(blocks),
    )
