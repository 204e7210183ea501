"""Charts of a profile: time by operator, by node and by provider, and the timeline of one run.

As in `charts.py`: `*_info` is plain data, the figure only draws it; no Streamlit, no clock, no file. Times
are self times: a body of an If or Loop is never counted twice. Seconds come in, milliseconds are drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from core.evidence.statistics import percentile
from core.wire.profile import NodeTime, Profile, Span
from dashboard.charts import (
    FONT_PX,
    HEIGHT,
    HOVER_TEXT,
    MUTED,
    PAGE,
    PALETTE,
    TOOLBAR_PX,
    base_figure,
    ending,
    lay_out,
    name_rows,
    number,
    pattern,
    plain,
    provider_label,
    text_lines,
    text_on,
)

MAX_BARS = 20
MAX_TIMELINE_SPANS = 5_000
MAX_TIMELINE_TYPES = 6
PATTERNS = ("", "\\", ".", "-", "|", "x", "+")  # "/" marks nodes that ONNX Runtime inserted
REST = "between the nodes"
OTHER = "other"
INSERTED = "inserted by ONNX Runtime"
ROW_PX = 24
LANE_PX = 46
NOT_FOUND = "not found"
MAX_TILES = 400
TREEMAP_PX = 460
LABEL_CHARACTERS = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderNames:
    """The requested and the loaded providers; they determine the name of a provider."""

    requested: tuple[str, ...] = ()
    effective: tuple[str, ...] = ()
    fallback: bool = False

    def name(self, provider: str) -> str:
        """Name a series; a provider that replaced a missing one is marked as the fallback."""
        if self.fallback and provider not in self.requested[:1]:
            return provider_label([provider], self.requested, fallback=True)
        return provider


def with_medians(profile: Profile) -> Profile:
    """Return the profile with each node's median self time instead of its mean, shares included.

    One stall of the machine is counted in the node that ran at that time and can dominate a mean. A node that
    ran in some runs only has the median of those runs. The rest is the remainder of the median run.
    """
    total = sum(node.median_s for node in profile.nodes)
    nodes = [
        replace(node, self_s=node.median_s, share=node.median_s / total if total else 0.0)
        for node in profile.nodes
    ]
    run_s = percentile(profile.run_s, 0.5) if profile.run_s else 0.0
    return replace(
        profile,
        nodes=tuple(sorted(nodes, key=lambda node: -node.self_s)),
        self_s=total,
        remainder_s=run_s - total,
    )


def skew(profile: Profile) -> float:
    """Return the mean duration of the runs over their median; 1 without runs."""
    median = percentile(profile.run_s, 0.5) if profile.run_s else 0.0
    return sum(profile.run_s) / len(profile.run_s) / median if median else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One part of a bar: `label` is the row, `series` the legend entry."""

    label: str
    series: str
    ms: float
    share: float  # of the self time of all nodes, 0..1
    nodes: int
    calls_per_run: float
    inserted: bool = False


def operator_info(profile: Profile, ran: ProviderNames, *, limit: int = MAX_BARS) -> list[Bar]:
    """Return self time per run by operator type and provider; the smallest types are summed as "other"."""
    groups: dict[tuple[str, str, bool], list[NodeTime]] = defaultdict(list)
    kept = _longest_types(profile, limit)
    for node in profile.nodes:
        label = node.op_type if node.op_type in kept else f"{OTHER} ({_types(profile) - len(kept)} types)"
        groups[label, ran.name(node.provider), node.inserted].append(node)
    order = [*kept, *(label for label, _, _ in groups if label not in kept)]
    bars = [_bar(label, series, nodes, inserted) for (label, series, inserted), nodes in groups.items()]
    return sorted(bars, key=lambda bar: (order.index(bar.label), bar.inserted, bar.series))


def _types(profile: Profile) -> int:
    return len({node.op_type for node in profile.nodes})


def _longest_types(profile: Profile, limit: int) -> list[str]:
    totals: dict[str, float] = defaultdict(float)
    for node in profile.nodes:
        totals[node.op_type] += node.self_s
    return sorted(totals, key=lambda op: (-totals[op], op))[:limit]


def _bar(label: str, series: str, nodes: Sequence[NodeTime], inserted: bool) -> Bar:
    return Bar(
        label=label,
        series=f"{series} · {INSERTED}" if inserted else series,
        ms=sum(node.self_s for node in nodes) * 1e3,
        share=sum(node.share for node in nodes),
        nodes=len(nodes),
        calls_per_run=sum(node.calls_per_run for node in nodes),
        inserted=inserted,
    )


def node_info(profile: Profile, ran: ProviderNames, *, limit: int = MAX_BARS) -> list[Bar]:
    """Return self time per run of the longest nodes, and one bar that sums the others."""
    longest = profile.nodes[:limit]
    bars = [
        _bar(f"{_node_label(node)} #{rank}", ran.name(node.provider), [node], node.inserted)
        for rank, node in enumerate(longest, 1)
    ]
    rest = profile.nodes[limit:]
    if rest:
        bars.append(_bar(f"{len(rest):,} other nodes", "all other nodes", rest, False))
    return bars


def _node_label(node: NodeTime) -> str:
    name = ending(node.title, LABEL_CHARACTERS)
    return f"{name} · {node.op_type}" if node.op_type not in name else name


def provider_info(profile: Profile, ran: ProviderNames) -> list[Bar]:
    """Return self time per run by provider, and the remainder of a run between and around the nodes."""
    groups: dict[str, list[NodeTime]] = defaultdict(list)
    for node in profile.nodes:
        groups[ran.name(node.provider)].append(node)
    bars = sorted((_bar(name, name, nodes, False) for name, nodes in groups.items()), key=lambda b: -b.ms)
    rest = max(0.0, profile.remainder_s)
    total = profile.self_s or 1.0
    return [
        *bars,
        Bar(label=REST, series=REST, ms=rest * 1e3, share=rest / total, nodes=0, calls_per_run=0.0),
    ]


def bars(info: Sequence[Bar]) -> go.Figure:
    """Draw bars: one row per label, longest on top, one colour and pattern per series."""
    labels = list(dict.fromkeys(bar.label for bar in info))
    names = list(dict.fromkeys(bar.series for bar in sorted(info, key=lambda bar: bar.inserted)))
    figure = base_figure(
        x_title="Self time per run (ms)", y_title="", height=max(HEIGHT, 130 + ROW_PX * len(labels))
    )
    for index, name in enumerate(names):
        rows = [bar for bar in info if bar.series == name]
        muted = name in (REST, "all other nodes")
        inserted = any(bar.inserted for bar in rows)
        color = MUTED if muted else PALETTE[index % len(PALETTE)]
        figure.add_bar(
            y=[labels.index(bar.label) for bar in rows],
            x=[bar.ms for bar in rows],
            orientation="h",
            name=plain(name),
            marker={
                "color": color,
                "pattern": pattern("/" if inserted else "" if muted else PATTERNS[index % len(PATTERNS)]),
            },
            text=[f"{bar.share:.1%}" if bar.label != REST else "" for bar in rows],
            textposition="auto",
            insidetextfont={"color": text_on(color)},
            hovertext=[_bar_hover(bar) for bar in rows],
            hovertemplate=HOVER_TEXT,
        )
    lay_out(figure, barmode="stack", bargap=0.25, legend={"traceorder": "normal"})
    name_rows(figure, [plain(label) for label in labels])
    return figure


def _bar_hover(bar: Bar) -> str:
    parts = [bar.label, f"{number(bar.ms)} ms per run"]
    if bar.nodes:
        parts += [
            f"{bar.share:.1%} of the time in nodes",
            f"{bar.nodes} nodes, {bar.calls_per_run:g} calls per run",
            bar.series,
        ]
    return text_lines(parts)


# --- timeline ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The spans of one operator type on the timeline, as columns."""

    op_type: str
    lane: list[int]
    start_ms: list[float]
    ms: list[float]
    text: list[str]
    hover: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One run by thread and depth: lane 0 is on top."""

    lanes: list[str]
    bundles: list[Bundle]
    drawn: int
    omitted: int
    total_ms: float
    found: int | None = None  # executions found by a search; None: no search
    span_ms: tuple[float, float] | None = None  # from the first to the end of the last execution found


def timeline_info(
    profile: Profile, ran: ProviderNames, *, words: str = "", limit: int = MAX_TIMELINE_SPANS
) -> Timeline:
    """Return the run of median duration: a lane per thread and depth of If/Loop bodies, longest types named.

    Beyond `limit` spans the shortest are left out, and counted in `omitted`. With `words`, spans that do not
    contain all of them form one muted bundle.
    """
    spans = profile.timeline
    if len(spans) > limit:
        longest = sorted(range(len(spans)), key=lambda i: -spans[i].duration_s)[:limit]
        spans = tuple(spans[i] for i in sorted(longest))
    lanes = _lanes(spans)
    total_s = profile.run_s[profile.timeline_run] if profile.run_s else 0.0
    wanted = words.lower().split()
    found = [span for span in spans if _holds(span, wanted)] if wanted else list(spans)
    bundles = _bundles(found, lanes, ran, total_s)
    if wanted:
        rest = [span for span in spans if not _holds(span, wanted)]
        bundles = [*bundles, *([_bundle(NOT_FOUND, rest, lanes, ran, math.inf)] if rest else [])]
    ends = [(span.start_s * 1e3, (span.start_s + span.duration_s) * 1e3) for span in found]
    return Timeline(
        lanes=_lane_names(lanes),
        bundles=bundles,
        found=len(found) if wanted else None,
        span_ms=(min(a for a, _ in ends), max(b for _, b in ends)) if wanted and ends else None,
        drawn=len(spans),
        omitted=profile.timeline_omitted + len(profile.timeline) - len(spans),
        total_ms=total_s * 1e3,
    )


def _lanes(spans: Sequence[Span]) -> dict[tuple[int, int], int]:
    """Return (thread, depth) -> lane; threads in order of their first span, bodies below their parent."""
    threads = list(dict.fromkeys(span.tid for span in spans))
    keys = sorted({(span.tid, span.depth) for span in spans}, key=lambda k: (threads.index(k[0]), k[1]))
    return {key: lane for lane, key in enumerate(keys)}


def _lane_names(lanes: Mapping[tuple[int, int], int]) -> list[str]:
    threads = list(dict.fromkeys(tid for tid, _ in lanes))
    depths = ("", " · in a body", " · in a body's body")
    return [
        f"thread {threads.index(tid) + 1}{depths[depth] if depth < len(depths) else f' · depth {depth}'}"
        for tid, depth in lanes
    ]


def _bundles(
    spans: Sequence[Span], lanes: Mapping[tuple[int, int], int], ran: ProviderNames, total_s: float
) -> list[Bundle]:
    totals: dict[str, float] = defaultdict(float)
    for span in spans:
        totals[span.op_type] += span.duration_s
    named = sorted(totals, key=lambda op: (-totals[op], op))[:MAX_TIMELINE_TYPES]
    groups: dict[str, list[Span]] = {name: [] for name in named}
    for span in spans:
        groups.setdefault(span.op_type if span.op_type in named else OTHER, []).append(span)
    return [_bundle(name, group, lanes, ran, total_s) for name, group in groups.items()]


def _bundle(
    name: str, group: Sequence[Span], lanes: Mapping[tuple[int, int], int], ran: ProviderNames, total_s: float
) -> Bundle:
    return Bundle(
        op_type=name,
        lane=[lanes[span.tid, span.depth] for span in group],
        start_ms=[span.start_s * 1e3 for span in group],
        ms=[span.duration_s * 1e3 for span in group],
        text=[span.op_type if span.duration_s > 0.04 * total_s else "" for span in group],
        hover=[_span_hover(span, ran) for span in group],
    )


def _holds(span: Span, words: Sequence[str]) -> bool:
    text = f"{span.name} {span.op_type} {span.provider}".lower()
    return all(word in text for word in words)


def _span_hover(span: Span, ran: ProviderNames) -> str:
    parts = [
        f"{span.name or '(no name)'} · {span.op_type}",
        f"{number(span.duration_s * 1e3)} ms from {number(span.start_s * 1e3)} ms",
        ran.name(span.provider),
    ]
    return text_lines(parts)


def timeline(info: Timeline, *, zoom: bool = False) -> go.Figure:
    """Draw one run as a Gantt chart; drag to zoom, double-click to reset.

    Args:
        info: data of the plot.
        zoom: show the range from the first to the last execution found.
    """
    figure = base_figure(
        x_title="Time since the start of the run (ms)",
        y_title="",
        height=max(HEIGHT, 170 + LANE_PX * len(info.lanes)),
    )
    for index, bundle in enumerate(info.bundles):
        other = bundle.op_type in (OTHER, NOT_FOUND)
        color = MUTED if other else PALETTE[index % len(PALETTE)]
        figure.add_bar(
            y=bundle.lane,
            x=bundle.ms,
            base=bundle.start_ms,
            orientation="h",
            width=0.8,
            name=plain(bundle.op_type),
            marker={
                "color": color,
                "line": {"width": 0},
                "opacity": 0.35 if bundle.op_type == NOT_FOUND else 1.0,
                "pattern": pattern("" if other else PATTERNS[index % len(PATTERNS)]),
            },
            text=[plain(text) for text in bundle.text],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": text_on(color), "size": FONT_PX},
            hovertext=bundle.hover,
            hovertemplate=HOVER_TEXT,
        )
    name_rows(figure, info.lanes)
    span = info.span_ms if zoom else None
    ends = [0.0, info.total_ms] if info.total_ms else None
    if span is not None:
        margin = max((span[1] - span[0]) * 0.05, info.total_ms * 1e-4)
        ends = [max(0.0, span[0] - margin), span[1] + margin]
    lay_out(
        figure,
        barmode="overlay",
        dragmode="zoom",
        uniformtext={"mode": "hide", "minsize": FONT_PX},
        xaxis={"range": ends},
        yaxis={"fixedrange": True},
    )
    return figure


# --- treemap -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One rectangle: an operator type, or a node in it."""

    id: str
    parent: str  # id; empty: an operator type
    label: str
    ms: float
    share: float
    op_type: str
    hover: str


def treemap_info(profile: Profile, ran: ProviderNames, *, limit: int = MAX_TILES) -> list[Tile]:
    """Return a tile for each operator type, and in it one for each of its nodes; areas are self times.

    Beyond the `limit` longest, the nodes of a type share one tile.
    """
    kept = {id(node) for node in profile.nodes[:limit]}
    groups: dict[str, list[NodeTime]] = defaultdict(list)
    for node in profile.nodes:
        groups[node.op_type].append(node)
    tiles: list[Tile] = []
    for op_type, nodes in groups.items():
        tiles.append(_tile(f"op {op_type}", "", op_type, nodes, ran))
        rest = [node for node in nodes if id(node) not in kept]
        for rank, node in enumerate(node for node in nodes if id(node) in kept):
            tiles.append(_tile(f"{op_type} {rank}", f"op {op_type}", node.title, [node], ran))
        if rest:
            tiles.append(_tile(f"{op_type} rest", f"op {op_type}", f"{len(rest):,} other nodes", rest, ran))
    return tiles


def _tile(name: str, parent: str, label: str, nodes: Sequence[NodeTime], ran: ProviderNames) -> Tile:
    seconds, share = sum(node.self_s for node in nodes), sum(node.share for node in nodes)
    providers = ", ".join(sorted({ran.name(node.provider) for node in nodes}))
    parts = [
        f"{label} · {nodes[0].op_type}" if parent else label,
        f"{number(seconds * 1e3)} ms per run, {share:.1%} of the time in nodes",
        providers if len(nodes) == 1 else f"{len(nodes)} nodes, {providers}",
    ]
    return Tile(
        id=name,
        parent=parent,
        label=label,
        ms=seconds * 1e3,
        share=share,
        op_type=nodes[0].op_type,
        hover=text_lines(parts),
    )


def treemap(tiles: Sequence[Tile]) -> go.Figure:
    """Draw the tiles; a click on a type enlarges it to the whole figure, one on its head leads back."""
    figure = base_figure(x_title="", y_title="", height=TREEMAP_PX)
    order = [tile.op_type for tile in sorted(tiles, key=lambda tile: -tile.ms) if not tile.parent]
    colors = [
        PALETTE[order.index(tile.op_type)] if order.index(tile.op_type) < len(PALETTE) else MUTED
        for tile in tiles
    ]
    figure.add_treemap(
        ids=[tile.id for tile in tiles],
        parents=[tile.parent for tile in tiles],
        labels=[plain(tile.label) for tile in tiles],
        values=[tile.ms if tile.parent else 0.0 for tile in tiles],  # a type is the sum of its nodes
        text=[f"{tile.share:.1%}" for tile in tiles],
        textinfo="label+text",
        branchvalues="remainder",
        marker={"colors": colors, "line": {"width": 2, "color": PAGE}},
        textfont={"color": [text_on(color) for color in colors], "size": FONT_PX},
        hovertext=[tile.hover for tile in tiles],
        hovertemplate=HOVER_TEXT,
        tiling={"pad": 2},
    )
    lay_out(figure, margin={"l": 4, "r": 4, "t": 8 + TOOLBAR_PX, "b": 4})
    return figure
