"""A model's graph: nodes and folded blocks in levels, coloured by a chosen property; clicks select items.

As in `charts`: `items_info` is plain data, the figure only draws it; no Streamlit, no clock, no file. The
legend or a scale explains the colours, and the hover text gives them in words; the shape shows the kind of an
item, too. Plotly draws with SVG: its WebGL compiles code in the browser, which the pages' security policy
refuses, and SVG is fast enough for up to `MOST_DRAWN` items.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import plotly.graph_objects as go

from core.api.graphs import Layout
from core.evidence.graph_facts import GraphRow, ProfileMatch, kind, plain_op
from core.evidence.graph_folding import Folding, Item
from core.show.format import short
from core.wire.units import ms, provider, significant
from dashboard.charts import HOVER_TEXT, MUTED, PALETTE, TEXT, base_figure, plain, transparent

Mode = Literal["Operator", "Time", "Provider", "Precision", "Error"]
MODES: tuple[Mode, ...] = ("Operator", "Time", "Provider", "Precision", "Error")
UNKNOWN = {  # mode -> meaning of an item without a colour
    "Time": "no time known",
    "Provider": "provider not known",
    "Precision": "type not known",
    "Error": "error not known",
}
SEVERAL = "several in one block"
OTHER = "other"
SCALE = "Cividis"  # readable with every kind of colour vision
SYMBOLS = {  # kind of an item -> its shape
    "node": "circle",
    "block": "square",
    "inserted": "diamond",
    "several": "pentagon",
    "changed": "triangle-up",
    "holder": "star",
}
KINDS = {  # in the legend
    "node": "a node",
    "block": "a folded block",
    "inserted": "inserted by ONNX Runtime",
    "several": "does the work of several nodes",
    "changed": "replaces a node",
    "holder": "holds a body (If, Loop, Scan)",
}
NAMED, LABELLED = 40, 150  # items up to which all have names, or operators, as labels
LEVEL_PX, LEAST_PX, MOST_PX, ABOVE_PX = 34, 480, 900, 120
CHARACTER_PX, LABEL_PX = 7.1, 14  # of a label: a character, and a line
SCALE_PX = 14  # width of a scale of colours
BESIDE_PX = 110  # a scale of colours with its margins
LEAST_LABEL = 5  # characters; shorter labels say nothing
DEEP = 100  # levels; a deeper graph shows its first ones
FIRST = 50.0  # visible levels of a deep graph
AROUND = 12.0  # visible levels around the marked items of a deep graph
MARK = PALETTE[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """The meaning of the colours."""

    mode: Mode
    times: ProfileMatch | None  # None: there is no profile
    order: tuple[str, ...]  # categories with a colour of their own, the same for both graphs
    optimized: bool  # whether the graph is the one that ONNX Runtime optimized


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphItem:
    """One item of the plot."""

    index: int  # of the item in its folded graph
    x: float
    y: float
    what: str  # a key of `SYMBOLS`
    label: str
    hover: str
    value: float | None  # on a scale; None: unknown, or the mode has no scale
    category: str  # in a legend


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All items to draw of one graph."""

    drawn: tuple[GraphItem, ...]
    ways: tuple[tuple[tuple[float, float], ...], ...]
    mode: Mode
    order: tuple[str, ...]
    depth: int
    room_px: int
    marked: frozenset[int] = field(default=frozenset())  # items
    hits: frozenset[int] = field(default=frozenset())  # items found by a search


def picture(
    folding: Folding,
    layout: Layout,
    rows: Sequence[GraphRow],
    paint: Paint,
    *,
    marked: Collection[int] = (),
    hits: Collection[int] = (),
    room_px: int = 900,
) -> Picture:
    """Collect the items to draw.

    Args:
        folding: which nodes are drawn as one item.
        layout: of its items.
        rows: the nodes of that level, by their index in it.
        paint: meaning of the colours.
        marked: chosen nodes.
        hits: nodes found by a search.
        room_px: minimum width of the plot: labels without room are cut or left out.
    """
    drawn: list[GraphItem] = []
    rooms = _label_lengths(layout, room_px)
    for index, item in enumerate(folding.items):
        own = [rows[member] for member in item.members]
        value, category = _color(item, own, paint)
        x, y = layout.points[index]
        drawn.append(
            GraphItem(
                index=index,
                x=x,
                y=y,
                what=_what(item, own[0], optimized=paint.optimized),
                label=_fitting(_label(item, own[0], len(folding.items)), rooms[index]),
                hover=_hover(item, own, paint),
                value=value,
                category=category,
            )
        )
    return Picture(
        drawn=tuple(drawn),
        ways=layout.ways,
        mode=paint.mode,
        order=paint.order,
        depth=layout.depth,
        room_px=room_px,
        marked=frozenset(folding.item_of[node] for node in marked),
        hits=frozenset(folding.item_of[node] for node in hits),
    )


def order(mode: Mode, rows: Sequence[GraphRow]) -> tuple[str, ...]:
    """Return the categories of a mode with a colour of their own: longest time or most frequent first.

    Args:
        mode: meaning of the colours.
        rows: the nodes of all shown graphs, so that a colour means the same in each.
    """
    if mode not in _PLAIN:
        return ()
    return tuple(_ranked([(name, row) for row in rows if (name := _PLAIN[mode](row))])[: len(PALETTE)])


def _ranked(named: Sequence[tuple[str, GraphRow]]) -> list[str]:
    """Rank names by the time of their nodes, then by number of nodes; shared time is divided."""
    seconds: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for name, row in named:
        counts[name] += 1
        seconds[name] += 0.0 if row.ran is None else row.ran.self_s / (1 + row.ran.with_others)
    return sorted(counts, key=lambda name: (-seconds[name], -counts[name]))


def _label_lengths(layout: Layout, room_px: int) -> list[int]:
    """Return the characters of a label that fit to the right of each item."""
    if layout.depth * LABEL_PX > MOST_PX:
        return [0] * len(layout.points)
    xs = [x for way in layout.ways for x, _ in way] + [x for x, _ in layout.points]
    unit_px = room_px / (max(xs, default=0.0) - min(xs, default=0.0) + 2.0)
    rooms = [0] * len(layout.points)
    ordered = sorted(range(len(rooms)), key=lambda index: layout.points[index][::-1])
    for index, behind in zip(ordered, [*ordered[1:], -1], strict=True):
        x, y = layout.points[index]
        alone = behind < 0 or layout.points[behind][1] != y
        free = room_px if alone else (layout.points[behind][0] - x) * unit_px
        rooms[index] = int((free - 24) / CHARACTER_PX)
    return rooms


def _fitting(label: str, room: int) -> str:
    if len(label) <= room:
        return label
    return short(label, room) if room >= LEAST_LABEL else ""


def _what(item: Item, row: GraphRow, *, optimized: bool) -> str:
    if item.closed:
        return "block"
    if row.node.inserted:
        return "inserted"
    if row.node.bodies:
        return "holder"
    if optimized and row.node.does:
        if len(row.node.does) > 1:
            return "several"
        return "node" if row.node.does[0] == row.node.name else "changed"
    return "node"


def _label(item: Item, row: GraphRow, count: int) -> str:
    if item.closed:
        return f"{short(item.block[-1] if item.block else 'everything', 28)} ({len(item.members):,})"
    if count > LABELLED:
        return ""
    op = plain_op(row.node)
    return op if count > NAMED or row.node.name == op else f"{op} · {short(row.node.name, 30)}"


def _hover(item: Item, own: Sequence[GraphRow], paint: Paint) -> str:
    lines = _about_block(item, own) if item.closed else _about_node(own[0], optimized=paint.optimized)
    if paint.times is not None:
        seconds = paint.times.together_s([row.where for row in own])
        lines.append(UNKNOWN["Time"] if seconds is None else _time(seconds, paint.times, own))
    if worst := [row.unit.error for row in own if row.unit is not None]:
        lines.append(f"{'largest ' if len(own) > 1 else ''}error {significant(max(worst), 3)}")
    return "<br>".join(lines)


def _about_block(item: Item, own: Sequence[GraphRow]) -> list[str]:
    ops = Counter(plain_op(row.node) for row in own).most_common(5)
    inserted = sum(row.node.inserted for row in own)
    return [
        f"<b>{plain(item.name)}</b>",
        f"block of {len(own):,} nodes",
        plain(", ".join(f"{number} {op}" for op, number in ops)),
        *([f"most time in {plain(dominant(own))}"] if any(row.ran is not None for row in own) else []),
        *([f"{inserted:,} inserted by ONNX Runtime"] if inserted else []),
    ]


def _about_node(row: GraphRow, *, optimized: bool) -> list[str]:
    told = kind(row.node) if optimized else ""
    return [
        f"<b>{plain(short(row.node.name, 80))}</b>",
        plain(row.node.op_type),
        *([plain(told)] if told else []),
        *([plain(short(row.outputs, 90))] if row.outputs else []),
    ]


def _time(seconds: float, times: ProfileMatch, own: Sequence[GraphRow]) -> str:
    shared = max((row.ran.with_others for row in own if row.ran is not None), default=0)
    also = ", with other nodes" if shared and len(own) == 1 else ""
    where = dict.fromkeys(name for row in own if row.ran is not None for name in row.ran.providers)
    return f"{ms(seconds)} per run ({times.share(seconds):.1%}){also} on {', '.join(map(provider, where))}"


# --- colours ------------------------------------------------------------------------------------------------


def _color(item: Item, own: Sequence[GraphRow], paint: Paint) -> tuple[float | None, str]:
    if paint.mode == "Time":
        seconds = None if paint.times is None else paint.times.together_s([row.where for row in own])
        return (None if seconds is None else seconds * 1e3), ""
    if paint.mode == "Error":
        return max((row.unit.error for row in own if row.unit is not None), default=None), ""
    if paint.mode == "Operator" and item.closed:
        name = dominant(own)
        return None, name if name in paint.order else OTHER
    told = dict.fromkeys(filter(None, map(_PLAIN[paint.mode], own)))
    if len(told) > 1:
        return None, SEVERAL
    name = next(iter(told), UNKNOWN.get(paint.mode, OTHER))
    return None, name if name in paint.order or not told else OTHER


def dominant(own: Sequence[GraphRow]) -> str:
    """Return the operator with the most time in a block; without a profile the most frequent one."""
    return _ranked([(_operator(row), row) for row in own])[0]


def _operator(row: GraphRow) -> str:
    return plain_op(row.node)


def _provider(row: GraphRow) -> str:
    return "" if row.ran is None else " and ".join(map(provider, row.ran.providers))


def _precision(row: GraphRow) -> str:
    return "" if row.precision == "unknown" else row.precision


_PLAIN: Mapping[str, Callable[[GraphRow], str]] = {
    "Operator": _operator,
    "Provider": _provider,
    "Precision": _precision,
}


# --- the figure ---------------------------------------------------------------------------------------------


def most(pictures: Sequence[Picture]) -> float:
    """Return the end of a scale for all plots together, so that a colour means the same in each."""
    return max((one.value for each in pictures for one in each.drawn if one.value is not None), default=0.0)


def figure(info: Picture, end: float) -> go.Figure:
    """Draw a graph; data flow downwards. `customdata` of every point is the index of its item.

    Args:
        info: data of the plot.
        end: of a scale of colours that begins at zero, see `most`.
    """
    height = min(MOST_PX, max(LEAST_PX, ABOVE_PX + LEVEL_PX * info.depth))
    shown = base_figure(x_title="", y_title="", height=height)
    _edges(shown, info)
    if info.mode in ("Time", "Error"):
        _on_a_scale(shown, info, end)
    else:
        _by_category(shown, info)
    _shapes(shown, info)
    _rings(shown, info)
    shown.update_layout(dragmode="pan", hovermode="closest", legend={"itemclick": False})
    shown.update_xaxes(visible=False, range=_range_x(info))
    shown.update_yaxes(visible=False, range=_range_y(info))
    return shown


def _edges(shown: go.Figure, info: Picture) -> None:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for way in info.ways:
        xs += [*(x for x, _ in way), None]
        ys += [*(-y for _, y in way), None]
    shown.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        line={"color": transparent(MUTED, 0.55), "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )


def _by_category(shown: go.Figure, info: Picture) -> None:
    groups: dict[str, list[GraphItem]] = {}
    for one in info.drawn:
        groups.setdefault(one.category, []).append(one)
    ranks = {name: rank for rank, name in enumerate(info.order)}
    for name in sorted(groups, key=lambda one: ranks.get(one, len(ranks))):
        color = PALETTE[ranks[name]] if name in ranks else MUTED
        _points(shown, groups[name], info, name=f"{name} ({len(groups[name]):,})", color=color)


def _on_a_scale(shown: go.Figure, info: Picture, end: float) -> None:
    known = [one for one in info.drawn if one.value is not None]
    unknown = [one for one in info.drawn if one.value is None]
    if unknown:
        told = f"{UNKNOWN[info.mode]} ({len(unknown):,})"
        _points(shown, unknown, info, name=told, color=MUTED, hollow=True)
    if known:
        title = "ms per run" if info.mode == "Time" else "error"
        values = [one.value for one in known]
        _points(shown, known, info, name=title, color=values, scale=(title, end))


def _points(
    shown: go.Figure,
    points: Sequence[GraphItem],
    info: Picture,
    *,
    name: str,
    color: str | list[float | None],
    hollow: bool = False,
    scale: tuple[str, float] | None = None,
) -> None:
    size = 14 if len(info.drawn) <= LABELLED else 9 if len(info.drawn) <= 800 else 6
    marker: dict[str, object] = {
        "color": color,
        "size": [size + 6 if one.what == "block" else size for one in points],
        "symbol": [SYMBOLS[one.what] + ("-open" if hollow else "") for one in points],
        "line": {"width": 2 if hollow else 1, "color": MUTED},
        "opacity": 1.0,
    }
    if scale is not None:
        marker |= {
            "colorscale": SCALE,
            "cmin": 0,
            "cmax": scale[1] or 1.0,
            "colorbar": {
                "title": {"text": scale[0], "font": {"color": TEXT}},
                "tickfont": {"color": TEXT},
                "thickness": SCALE_PX,
                "nticks": 5,
                "outlinewidth": 0,
            },
        }
    shown.add_scatter(
        x=[one.x for one in points],
        y=[-one.y for one in points],
        customdata=[one.index for one in points],
        name=plain(name),
        mode="markers+text",
        text=[plain(one.label) for one in points],
        textposition="middle right",
        textfont={"color": TEXT, "size": 12},
        hovertext=[one.hover for one in points],
        hovertemplate=HOVER_TEXT,
        marker=marker,
        selected={"marker": {"opacity": 1.0}, "textfont": {"color": MARK}},
        unselected={"marker": {"opacity": 0.5}, "textfont": {"color": TEXT}},
        showlegend=scale is None,
    )


def _shapes(shown: go.Figure, info: Picture) -> None:
    """Draw the legend of the shapes in use, except plain nodes."""
    for what in [one for one in SYMBOLS if any(each.what == one for each in info.drawn)]:
        if what == "node":  # already in the legend
            continue
        shown.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": f"{SYMBOLS[what]}-open", "size": 11, "color": TEXT},
            name=KINDS[what],
            hoverinfo="skip",
        )


def _rings(shown: go.Figure, info: Picture) -> None:
    for name, items, color, size, width in (
        ("found", info.hits - info.marked, PALETTE[3], 22, 2),
        ("selected", info.marked, MARK, 28, 4),
    ):
        points = [one for one in info.drawn if one.index in items]
        if points:
            shown.add_scatter(
                x=[one.x for one in points],
                y=[-one.y for one in points],
                mode="markers",
                marker={"symbol": "circle-open", "size": size, "color": color, "line": {"width": width}},
                name=f"{name} ({len(points):,})",
                hoverinfo="skip",
            )


def is_cut(info: Picture) -> bool:
    """Whether only a part of the levels shows at first, because all of them would be unreadable."""
    return info.depth > DEEP


def _levels_shown(info: Picture) -> tuple[float, float]:
    """Return the first and the last visible level; in a deep graph those around the marked items."""
    if not is_cut(info):
        return -0.7, info.depth - 0.3
    marked = [one.y for one in info.drawn if one.index in info.marked]
    return (marked[0] - AROUND, marked[0] + AROUND) if marked else (-0.7, FIRST)


def _range_y(info: Picture) -> list[float]:
    first, last = _levels_shown(info)
    return [-last, -first]


def _range_x(info: Picture) -> list[float]:
    first, last = _levels_shown(info)
    xs = [one.x for one in info.drawn if first <= one.y <= last]
    xs += [x for way in info.ways for x, y in way if first <= y <= last]
    low, high = min(xs, default=0.0), max(xs, default=0.0)
    room = max(1.5, 0.12 * (high - low))
    unit_px = max(1.0, info.room_px - BESIDE_PX) / (high - low + 1.5 * room)
    ends = [one.x + (len(one.label) + 3) * CHARACTER_PX / unit_px for one in info.drawn if one.label]
    return [low - room / 2, max(high + room, *ends) if ends else high + room]


def clicked(points: Sequence[Mapping[str, object]]) -> int | None:
    """Return the item of the first point of a selection that has one."""
    for point in points:
        told = point.get("customdata")
        if isinstance(told, list | tuple):
            told = told[0] if told else None
        if isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told):
            return int(told)
    return None
