"""The graphs, the selection in them, its details, and the table of nodes.

A click does not redraw the graph, so the zoom is kept: Plotly marks the point itself. A selection made in the
table or on the other side gets a ring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from core.evidence import graph_folding
from core.evidence.graph_facts import GraphRow, rows
from core.evidence.graph_folding import MOST_DRAWN, Block, Folding
from core.show.sheets import graphs as sheets
from dashboard import format
from dashboard.charts import graph_charts
from dashboard.charts.graph_charts import Paint, Picture
from dashboard.views.graph import levels
from dashboard.views.graph.levels import LEVEL, ShownGraph, View
from dashboard.widgets import plots, tables

SEARCH_LABEL = "Search nodes by name, operator, type or block"
SEARCH = "graph.search"
CHOSEN = "graph.chosen"  # {"side", "level", "nodes", "block", "by"} of the selection
TABLE = "graph.table"
ROWS = 14  # visible rows of the table; the others scroll
WIDE_PX = 760  # minimum width of the graph on a common screen
DETAILS_PX = 340
MOST_ROWS = 3_000  # of the table
MOST_HITS = 200  # matching nodes that get a ring


def draw(sides: Mapping[str, ShownGraph], changed: str, notes: Callable[[], None]) -> None:
    """Draw one or two graphs, the selection in them, and a table of nodes.

    Args:
        sides: the graphs by their names.
        changed: what ONNX Runtime changed, in one sentence; may be empty.
        notes: draws further notes.
    """
    if not sides:
        return
    if changed:
        st.markdown(f"**{format.plain(changed)}**")
    listed = {name: rows(one.side, one.times, one.units) for name, one in sides.items()}
    chosen = _chosen(sides)
    beside = len(sides) == 1 and chosen is not None
    with st.container(horizontal=True, gap="small", key="graph.body"):
        with st.container(key="graph.pictures", gap="xsmall"):
            _pictures(sides, listed)
        if beside and chosen is not None:
            with st.container(width=DETAILS_PX, key="graph.beside"):
                _details(sides, listed, chosen)
    notes()
    words = tables.search(SEARCH_LABEL, key=SEARCH, persist_state="session")
    if beside or chosen is None:
        _table(sides, listed, chosen, words)
        return
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _details(sides, listed, chosen)
    with right:
        _table(sides, listed, chosen, words)


def _pictures(sides: Mapping[str, ShownGraph], listed: Mapping[str, Sequence[GraphRow]]) -> None:
    """Draw the graphs side by side; a search applies to them although its field is drawn below."""
    words = str(st.session_state.get(SEARCH) or "")
    order = graph_charts.order(
        next(iter(sides.values())).mode, [row for own in listed.values() for row in own]
    )
    boxes = [column.container(gap="xsmall") for column in st.columns(len(sides), gap="small")]
    drawn = []
    for box, (name, one) in zip(boxes, sides.items(), strict=True):
        with box:
            drawn.append(_picture(levels.view(one, listed[name]), words, order, WIDE_PX // len(sides)))
    end = graph_charts.most([picture for _, _, picture in drawn])
    for box, (view, folding, picture) in zip(boxes, drawn, strict=True):
        with box:
            _chart(view, folding, picture, end)
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.caption(levels.drawn_words(view))
                _fold_buttons(view)


# --- the graph ----------------------------------------------------------------------------------------------


def _picture(view: View, words: str, order: tuple[str, ...], room_px: int) -> tuple[View, Folding, Picture]:
    shown = view.shown
    folding, placed = levels.laid_out(view)
    if placed.plain:
        st.caption(":material/info: The layout failed, so items stand side by side on their levels.")
    info = graph_charts.picture(
        folding,
        placed,
        view.rows,
        Paint(mode=shown.mode, times=shown.times, order=order, optimized=shown.optimized),
        marked=_ringed(view),
        hits=_hits(view, words),
        room_px=room_px,
    )
    return view, folding, info


def _chart(view: View, folding: Folding, info: Picture, end: float) -> None:
    if not info.drawn:
        st.info("This graph has no nodes: its outputs are its inputs or weights.", icon=":material/info:")
        return
    shown = view.shown
    key = f"graph.chart.{'after' if shown.optimized else 'model'}"
    if graph_charts.is_cut(info):
        st.caption(f"{info.depth:,} levels: drag to move, scroll to zoom.")
    plots.draw(
        graph_charts.figure(info, end),
        shown.name,
        key=key,
        wheel=True,
        height="stretch",
        on_select=lambda: _clicked(key, view, folding),
        selection_mode="points",
        alt=f"{shown.name}: {levels.drawn_words(view)}, coloured by {shown.mode.lower()}. The "
        "table below lists every node.",
    )


def _fold_buttons(view: View) -> None:
    everything = graph_folding.all_blocks(view.places)
    if len(everything) == 1:
        return
    name = "after" if view.shown.optimized else "model"
    too_many = len(view.level.nodes) > MOST_DRAWN
    st.button(
        "Open all",
        key=f"graph.open_all.{name}",
        type="tertiary",
        icon=":material/unfold_more:",
        disabled=too_many or view.opened >= everything,
        help=f"More than {MOST_DRAWN:,} nodes at once would be slow: open single blocks."
        if too_many
        else "Draws every node.",
        on_click=levels.store_unfolded,
        args=(view, everything),
    )
    st.button(
        "Fold all",
        key=f"graph.fold_all.{name}",
        type="tertiary",
        icon=":material/unfold_less:",
        disabled=len(view.opened) == 1,
        help="Draws the outermost blocks only.",
        on_click=levels.store_unfolded,
        args=(view, {()}),
    )


def _ringed(view: View) -> list[int]:
    """Return the nodes with a ring: selected in the table, or matching the other side's selection."""
    chosen = st.session_state.get(CHOSEN)
    if chosen is None:
        return []
    if chosen["side"] == view.shown.name:
        own = (
            chosen["level"] == view.number and chosen["by"] != "click" and chosen["token"] == view.shown.token
        )
        return [node for node in chosen["nodes"] if own and node < len(view.level.nodes)]
    if chosen["path"] != list(view.level.path):
        return []
    wanted = set(chosen["names"]) if view.shown.optimized else set(chosen["does"])
    return [
        index
        for index, node in enumerate(view.level.nodes)
        if (wanted & set(node.does) if view.shown.optimized else node.name in wanted)
    ]


def _hits(view: View, words: str) -> list[int]:
    if not words.strip():
        return []
    found = _matching(view.rows, words)
    return [row.where[1] for row in found[:MOST_HITS]]


def _matching(listed: Sequence[GraphRow], words: str) -> list[GraphRow]:
    wanted = words.lower().split()
    return [row for row in listed if all(word in _text(row) for word in wanted)]


def _text(row: GraphRow) -> str:
    parts = (row.node.name, row.node.op_type, row.precision, "/".join(row.node.scope), *row.node.does)
    return " ".join(parts).lower()


# --- the selection ------------------------------------------------------------------------------------------


def _clicked(key: str, view: View, folding: Folding) -> None:
    """Select the clicked item; a click on the background changes nothing."""
    points = st.session_state[key]["selection"]["points"]
    index = graph_charts.clicked(points)
    if index is None or index >= len(folding.items):
        return
    item = folding.items[index]
    before = st.session_state.get(CHOSEN)
    ringed = before is not None and before["side"] == view.shown.name and before["by"] != "click"
    _choose(view, item.members, item.block if item.closed else None, by="ring" if ringed else "click")


def _choose(view: View, nodes: Sequence[int], block: Block | None, *, by: str) -> None:
    level = view.level
    st.session_state[CHOSEN] = {
        "side": view.shown.name,
        "token": view.shown.token,
        "level": view.number,
        "path": list(level.path),
        "nodes": list(nodes),
        "names": [level.nodes[node].name for node in nodes],
        "does": sorted({name for node in nodes for name in level.nodes[node].does}),
        "block": None if block is None else list(block),
        "by": by,
    }


def _chosen(sides: Mapping[str, ShownGraph]) -> Mapping[str, Any] | None:
    """Return the selection, if it belongs to a graph that is shown."""
    chosen: Mapping[str, Any] | None = st.session_state.get(CHOSEN)
    if chosen is None or chosen["side"] not in sides or sides[chosen["side"]].token != chosen["token"]:
        return None
    return chosen


def _details(
    sides: Mapping[str, ShownGraph], listed: Mapping[str, Sequence[GraphRow]], chosen: Mapping[str, Any]
) -> None:
    one = sides[chosen["side"]]
    own = [row for row in listed[chosen["side"]] if row.where[0] == chosen["level"]]
    with st.container(border=True, key="graph.details"):
        if chosen["block"] is not None:
            _block(one, own, chosen)
        else:
            row = own[chosen["nodes"][0]]
            st.markdown(f"**{format.plain(row.node.name)}** · {one.name}")
            tables.facts(sheets.node_facts(row, optimized=one.optimized, profiled=one.times is not None))
            view = levels.view_of(one, own, chosen["level"])
            _fold_button(view, view.places[chosen["nodes"][0]])


def _block(one: ShownGraph, own: Sequence[GraphRow], chosen: Mapping[str, Any]) -> None:
    members = [own[node] for node in chosen["nodes"]]
    st.markdown(f"**Block {format.plain('/'.join(chosen['block']) or 'everything')}** · {one.name}")
    tables.facts(sheets.block_facts(members, one.times, optimized=one.optimized))
    view = levels.view_of(one, own, chosen["level"])
    block = tuple(chosen["block"])
    if block in view.opened:
        _fold_button(view, block)
        return
    room = graph_folding.can_open(view.places, view.opened, block)
    st.button(
        "Open this block",
        key="graph.open",
        icon=":material/unfold_more:",
        type="primary",
        disabled=not room,
        help=None if room else _TOO_MANY,
        on_click=levels.store_unfolded,
        args=(view, {*view.opened, block}),
    )


def _fold_button(view: View, block: Block) -> None:
    """Draw the button that folds an open block; none for the whole graph."""
    if block and block in view.opened:
        st.button(
            f"Fold {format.label(format.short('/'.join(block), 40))}",
            key="graph.fold",
            icon=":material/unfold_less:",
            on_click=levels.store_unfolded,
            args=(view, {one for one in view.opened if one[: len(block)] != block}),
        )


_TOO_MANY = f"More than {MOST_DRAWN:,} nodes would be drawn at once. Fold other blocks first."


# --- the table ----------------------------------------------------------------------------------------------


def _table(
    sides: Mapping[str, ShownGraph],
    listed: Mapping[str, Sequence[GraphRow]],
    chosen: Mapping[str, Any] | None,
    words: str,
) -> None:
    name = _table_of(sides, chosen)
    one, own = sides[name], list(listed[name])
    if chosen is not None and chosen["block"] is not None and chosen["side"] == name:
        inside = set(chosen["nodes"])
        own = [row for row in own if row.where[0] == chosen["level"] and row.where[1] in inside]
    if words.strip():
        own = _matching(own, words)
    ticked = None
    if chosen is not None and chosen["side"] == name and chosen["block"] is None:
        at = (chosen["level"], chosen["nodes"][0])
        ticked = next((row for row in own if row.where == at), None)
        if ticked is not None and chosen["by"] != "row":
            own = [ticked, *(row for row in own if row is not ticked)]
    _caption(one, own, len(listed[name]), chosen)
    own = own[:MOST_ROWS]
    key = f"{TABLE}.{'after' if one.optimized else 'model'}.{_name_of(own, chosen)}"
    tables.draw(
        sheets.nodes(own, optimized=one.optimized),
        key=key,
        most=ROWS,
        alt=f"Nodes of the graph: {one.name}. Tick a node to mark it in the picture.",
        on_select=lambda: _select_row(key, one, own),
        mode="single-row",
        ticked=[own.index(ticked)] if ticked is not None else [],
    )


def _name_of(own: Sequence[GraphRow], chosen: Mapping[str, Any] | None) -> str:
    """Return a key that changes when a row holds another node or a click selects another row."""
    by_click = chosen is not None and chosen["by"] != "row"
    told = [row.where for row in own], chosen["nodes"] if by_click and chosen is not None else None
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def _table_of(sides: Mapping[str, ShownGraph], chosen: Mapping[str, Any] | None) -> str:
    """Return the side that the table lists: the side of the selection, unless the user chooses the other."""
    if len(sides) == 1:
        return next(iter(sides))
    first = chosen["side"] if chosen is not None else next(iter(sides))
    return str(
        st.segmented_control(
            "Table of",
            list(sides),
            key=f"{TABLE}.side.{first}",
            default=first,
            required=True,
        )
    )


def _caption(one: ShownGraph, own: Sequence[GraphRow], count: int, chosen: Mapping[str, Any] | None) -> None:
    parts = [f"{len(own):,} of {count:,} nodes"]
    if one.times is not None:
        seconds = one.times.together_s([row.where for row in own])
        if seconds is not None:
            share = one.times.share(seconds)
            parts.append(f"{format.ms(seconds)} per run together, {share:.1%} of the time in nodes")
    if chosen is not None and chosen["block"] is not None:
        parts.append("only those of the chosen block")
    if len(own) > MOST_ROWS:
        parts.append(f"the first {MOST_ROWS:,} are listed: search, or choose a block")
    st.caption("; ".join(parts) + ".")


def _select_row(key: str, one: ShownGraph, own: Sequence[GraphRow]) -> None:
    """Select the node of the selected row, and unfold the blocks around it."""
    picked = st.session_state[key]["selection"]["rows"]
    if not picked or picked[0] >= len(own):
        st.session_state.pop(CHOSEN, None)
        return
    number, node = own[picked[0]].where
    view = levels.view_of(one, own, number)
    if number != st.session_state.get(f"{LEVEL}.{one.name}", 0):
        st.session_state[f"{LEVEL}.{one.name}"] = number
    around = graph_folding.open_around(view.places, view.opened, node)
    if graph_folding.count_drawn(view.places, around) <= MOST_DRAWN:
        levels.store_unfolded(view, around)
    _choose(view, [node], None, by="row")
