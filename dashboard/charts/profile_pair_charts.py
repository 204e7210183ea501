"""A pair of profiles: their times by operator type, and a run of each on one time axis.

As in `charts.py`: `*_info` is plain data, the figure only draws it. Seconds come in, milliseconds are drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from core.wire.profile import Profile
from dashboard.charts import (
    HOVER_TEXT,
    PALETTE,
    base_figure,
    lay_out,
    number,
    pattern,
    plain,
    text_lines,
)
from dashboard.charts.profile_charts import MAX_BARS, ROW_PX, ProviderNames, Timeline, timeline_info

NAMES = ("A", "B")
_PATTERNS = ("", "\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One operator type in both profiles; self time per run."""

    op_type: str
    ms: tuple[float, float]
    nodes: tuple[int, int]

    @property
    def difference_ms(self) -> float:
        """B minus A."""
        return self.ms[1] - self.ms[0]


def pair_info(one: Profile, other: Profile) -> list[Pair]:
    """Return every operator type of either profile, those with the most time in one of the two first."""
    times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    nodes: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for side, profile in enumerate((one, other)):
        for node in profile.nodes:
            times[node.op_type][side] += node.self_s * 1e3
            nodes[node.op_type][side] += 1
    pairs = [
        Pair(op_type=op, ms=(ms[0], ms[1]), nodes=(nodes[op][0], nodes[op][1])) for op, ms in times.items()
    ]
    return sorted(pairs, key=lambda pair: (-max(pair.ms), pair.op_type))


def pair(info: Sequence[Pair], names: tuple[str, str]) -> go.Figure:
    """Draw two bars for each operator type, A above B; the table has the smallest types."""
    shown = info[:MAX_BARS]
    figure = base_figure(
        x_title="Self time per run (ms)", y_title="", height=150 + 2 * ROW_PX * max(1, len(shown))
    )
    for side, name in enumerate(names):
        figure.add_bar(
            y=[one.op_type for one in shown],
            x=[one.ms[side] for one in shown],
            orientation="h",
            name=plain(f"{NAMES[side]}: {name}"),
            marker={
                "color": PALETTE[side],
                "pattern": pattern(_PATTERNS[side]),
            },
            hovertext=[
                text_lines(
                    (
                        f"{NAMES[side]} · {one.op_type}",
                        f"{number(one.ms[side])} ms per run in {one.nodes[side]} nodes",
                        f"B minus A: {number(one.difference_ms, signed=True)} ms",
                    )
                )
                for one in shown
            ],
            hovertemplate=HOVER_TEXT,
        )
    lay_out(
        figure,
        barmode="group",
        bargap=0.3,
        legend={"traceorder": "normal"},
        yaxis={"autorange": "reversed", "showgrid": False, "type": "category"},
    )
    return figure


def pair_timeline_info(
    one: Profile, other: Profile, ran: tuple[ProviderNames, ProviderNames], *, words: str = ""
) -> Timeline:
    """Return the median run of each profile on one time axis: the lanes of A above those of B."""
    first = timeline_info(one, ran[0], words=words)
    second = timeline_info(other, ran[1], words=words)
    below = len(first.lanes)
    moved = [replace(bundle, lane=[lane + below for lane in bundle.lane]) for bundle in second.bundles]
    merged = {bundle.op_type: bundle for bundle in first.bundles}
    for bundle in moved:
        before = merged.get(bundle.op_type)
        merged[bundle.op_type] = (
            bundle
            if before is None
            else replace(
                before,
                lane=before.lane + bundle.lane,
                start_ms=before.start_ms + bundle.start_ms,
                ms=before.ms + bundle.ms,
                text=before.text + bundle.text,
                hover=before.hover + bundle.hover,
            )
        )
    return Timeline(
        lanes=[f"A · {lane}" for lane in first.lanes] + [f"B · {lane}" for lane in second.lanes],
        bundles=list(merged.values()),
        drawn=first.drawn + second.drawn,
        omitted=first.omitted + second.omitted,
        total_ms=max(first.total_ms, second.total_ms),
        found=None if first.found is None else first.found + (second.found or 0),
    )
