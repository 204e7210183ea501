"""A comparison over wall time: latencies of both sides, and below them the disturbances of each block.

As in `charts`: `timeline_info` turns results into plain data, `timeline` only draws it; no Streamlit, no
clock, no file. Runs of a block are back to back, so a run's moment follows from the start of its block.
Latencies are drawn in milliseconds, moments in seconds since the first block. The plot ends at the p99.9
of the runs, so that a spike does not flatten the rest; slower runs are counted and drawn at the top as a rug.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import plotly.graph_objects as go

from core.evidence.background_load import CAUSES, FLAGS
from core.evidence.streams import latency_title
from dashboard.charts import (
    HEIGHT,
    MUTED,
    PALETTE,
    TEXT_HOVER,
    TRUE_Y,
    axis,
    base_figure,
    lay_out,
    log_axis,
    note_beyond,
    number,
    plain,
    points,
    series_name,
    style,
    transparent,
    wide_ticks,
)
from dashboard.charts.latency_charts import Side, clipped_words, in_ms, per_row, percentile, thin

MAX_POINTS = 20_000  # of all sides together: one path of this many points is still drawn quickly
END = 0.999  # share of the runs in the plot
MAX_SPIKES = 500  # of one side in the rug, the slowest ones; the count includes all
ROOM, RUG = 0.08, 0.35  # above and below the data, and depth of the rug below the top: shares
MAX_SIGNS = 60  # of one kind in the strip: more would overlap
DISTURBED, SIGN = PALETTE[5], "#1E293B"  # the sign is dark with a light rim: visible on every tile
NO_COUNTERS = "disturbances were not recorded"

# Rows of the strip: flags of `core.evidence.background_load`, grouped by their remedy.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "CPU used by others": (
        "foreign_load",
        "steal",
        "wait",
        "switches",
        "pressure",
        "cpu_deficit",
        "gpu_shared",
    ),
    "stopped, throttled": ("throttled", "suspended", "major_faults"),
    "clock, core speed": ("slow_core", "frequency", "gpu_clock"),
}
CALM, SYMPTOM, CAUSE = 0, 1, 2  # a cause makes a machine busy, a symptom does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs of one side. `at_s` and `ms` have None between two blocks, so that no line joins them."""

    name: str
    at_s: list[float | None]
    ms: list[float | None]
    runs: int  # all runs; fewer are drawn if `thinned`
    thinned: bool
    block_at_s: list[float]
    block_ms: list[float]  # median of each block
    block_hover: list[str]
    spikes: list[tuple[float, float]]  # time and ms of the slowest runs above the cap
    above: int  # runs above the cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Blocks in run order: their start and end, and the disturbances of each family."""

    edges_s: list[float]  # one more than blocks
    levels: dict[str, list[int]]  # family -> CALM, SYMPTOM or CAUSE of each block
    hover: list[str]  # counters of each block in words
    flagged: int  # blocks with any flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Data of `timeline`."""

    sides: list[Runs]
    strip: Strip | None  # None: not recorded, as in trials from before comparisons existed
    y_title: str
    y_ticks: list[float]  # of a logarithmic axis; empty: it is linear
    cap_ms: float | None  # p99.9 of the slowest side, where the plot ends; None: no run is above
    top_ms: float | None  # slowest run of all

    @property
    def above(self) -> int:
        """Number of runs above the plot."""
        return sum(one.above for one in self.sides)


def timeline_info(sides: Sequence[Side], beside: Sequence[Side] = (), *, limit: int = MAX_POINTS) -> Timeline:
    """Return the latencies of `sides` over time, and the strip of all blocks, those of `beside` included.

    Args:
        sides: to draw; those without samples are left out.
        beside: other configurations of the same comparison, whose blocks fill the gaps of the strip.
        limit: points to draw at most; beyond, smallest and largest run of each stretch are kept.
    """
    rows = per_row(sides)
    with_runs = [one for one in sides if one.result.get("latencies_s")]
    latencies = [in_ms(one, rows=rows) for one in with_runs]
    cap = max((percentile(ms, END) for ms in latencies), default=0.0)
    drawn = [_runs(one, cap, rows=rows, limit=limit // max(1, len(with_runs))) for one in with_runs]
    return Timeline(
        sides=drawn,
        strip=_strip([*with_runs, *beside]),
        y_title=_y_title(with_runs, rows=rows),
        y_ticks=wide_ticks([ms for one in drawn for ms in one.ms if ms is not None and ms <= cap]),
        cap_ms=cap if any(one.above for one in drawn) else None,
        top_ms=max((max(ms) for ms in latencies), default=None),
    )


def _y_title(sides: Sequence[Side], *, rows: bool) -> str:
    """Short, because the plot is low."""
    kind = latency_title(one.result for one in sides).removeprefix("Latency")
    unit = "ms per sample" if rows else "ms per run"
    return f"{kind}, {unit}" if kind else unit


def blocks_of(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the blocks of a result; a trial from before comparisons existed has one block."""
    blocks: list[Mapping[str, Any]] = result.get("blocks") or []
    return blocks or [
        {"at_s": 0.0, "refill_s": 0.0, "runs": len(result.get("latencies_s") or []), "flags": []}
    ]


def _starts(raw_s: Sequence[float], block: Mapping[str, Any]) -> list[float]:
    """Return about when each run of a block began; the streams of a block ran at the same time."""
    at_s = block["at_s"] + (block["refill_s"] or 0.0)
    found: list[float] = []
    for count in block.get("stream_runs") or [len(raw_s)]:
        own = raw_s[len(found) : len(found) + count]
        found += accumulate(own[:-1], initial=at_s)
    return found


def _runs(one: Side, cap: float, *, rows: bool, limit: int) -> Runs:
    ms = in_ms(one, rows=rows)
    blocks = blocks_of(one.result)
    per_block = max(2, limit // len(blocks))
    at_s: list[float | None] = []
    drawn: list[float | None] = []
    first, kept, middles, hovers = 0, 0, [], []
    spikes: list[tuple[float, float]] = []
    for block in blocks:
        own = ms[first : first + block["runs"]]
        raw_s = one.result["latencies_s"][first : first + block["runs"]]
        first += block["runs"]
        if not own:
            continue
        began = _starts(raw_s, block)
        indices, values = thin(own, per_block)
        at_s += [*(began[index] for index in indices), None]
        drawn += [*values, None]
        kept += len(indices)
        spikes += [(at, value) for at, value in zip(began, own, strict=True) if value > cap]
        middle = sorted(own)[(len(own) - 1) // 2]
        middles.append((block["at_s"], middle))
        hovers.append(_block_hover(block, len(own), middle))
    return Runs(
        name=one.name,
        at_s=at_s,
        ms=drawn,
        runs=len(ms),
        thinned=kept < len(ms),
        block_at_s=[at for at, _ in middles],
        block_ms=[middle for _, middle in middles],
        block_hover=hovers,
        spikes=sorted(sorted(spikes, key=lambda spike: -spike[1])[:MAX_SPIKES]),
        above=len(spikes),
    )


def _block_hover(block: Mapping[str, Any], runs: int, middle: float) -> str:
    where = f"round {block['round'] + 1}, " if "round" in block else ""
    if "generation" in block:
        where = f"launch {block['generation'] + 1}, {where}"
    marks = "<br>" + ", ".join(FLAGS.get(flag, flag) for flag in block["flags"]) if block["flags"] else ""
    return f"{where}{runs:,} runs<br>median {number(middle)} ms{marks}"


# --- interference ------------------------------------------------------------------------------------------


def _strip(sides: Sequence[Side]) -> Strip | None:
    blocks = sorted(
        ((block, one.name) for one in sides for block in one.result.get("blocks") or []),
        key=lambda pair: float(pair[0]["at_s"]),
    )
    if not blocks:
        return None
    starts = [float(block["at_s"]) for block, _ in blocks]
    last = blocks[-1][0]["counters"]["wall_s"] + (blocks[-1][0]["refill_s"] or 0.0)
    return Strip(
        edges_s=[*starts, starts[-1] + float(last)],
        levels={
            family: [_level(block["flags"], flags) for block, _ in blocks]
            for family, flags in FAMILIES.items()
        },
        hover=["<br>".join([plain(name), *counter_words(block)]) for block, name in blocks],
        flagged=sum(bool(block["flags"]) for block, _ in blocks),
    )


def _level(found: Sequence[str], family: Sequence[str]) -> int:
    own = set(found) & set(family)
    return CAUSE if own & CAUSES else SYMPTOM if own else CALM


def counter_words(block: Mapping[str, Any]) -> list[str]:
    """Describe the known facts of one block: its flags first, then its counters, one per line."""
    counters = block.get("counters")
    if not counters:
        return [NO_COUNTERS]
    wall_s = counters["wall_s"] or math.nan
    lines = [FLAGS.get(flag, flag) for flag in block["flags"]] or ["undisturbed"]
    lines.append(f"{counters['cpu_s'] / wall_s:.2f} CPUs used by this worker")
    shares = {
        "waited for a CPU": counters["wait_s"],
        "CPU taken by the hypervisor": counters["steal_s"],
        "some program waited for a CPU": counters["pressure_s"],
    }
    lines += [f"{what}: {value / wall_s:.1%}" for what, value in shares.items() if value is not None]
    lines.append(f"interrupted {counters['involuntary_switches']:,} times")
    if counters["throttled_periods"]:
        lines.append(f"stopped by the quota for {counters['throttled_s'] or 0:.3f} s")
    if counters["frequency_hz"]:
        lines.append(f"clock {counters['frequency_hz'] / 1e9:.2f} GHz")
    lines.append(f"reference work took {counters['canary_ns'] / 1000000.0:.3f} ms")
    gpu = counters["gpu"] or {}
    if gpu.get("sm_clock_mhz"):
        lines.append(f"GPU clock {gpu['sm_clock_mhz']:.0f} MHz")
    unread = [name for name in ("wait_s", "steal_s", "pressure_s", "frequency_hz") if counters[name] is None]
    if unread:
        lines.append(f"not readable here: {', '.join(_NAMES[name] for name in unread)}")
    return lines


_NAMES = {
    "wait_s": "waiting",
    "steal_s": "the hypervisor's share",
    "pressure_s": "pressure",
    "frequency_hz": "the clock",
}


# --- drawing -----------------------------------------------------------------------------------------------

_GAP = 0.1  # share of the axes' height between runs and strip
_STRIP_ROW_PX = 17  # of a family, so that its name is readable
_AROUND_PX = 140  # height of legend, titles and ticks on a medium screen, with two sides
_SIDE_PX = 20  # height of a further side in the legend of a narrow screen
_HEIGHT = 430


def timeline(info: Timeline, *, height: int = 0) -> go.Figure:
    """Draw latencies over wall time with the interference strip below, on one time axis.

    Args:
        info: data of the plot.
        height: in pixels, for a caller that shows `thinned` next to it; 0: automatic.
    """
    note = "" if height else "".join(f"<br>{part}" for part in thinned(info))
    figure = base_figure(
        x_title=f"Time since the first block (s){note}",
        y_title=info.y_title,
        height=height or (_HEIGHT + _more_px(info) if info.strip else HEIGHT),
    )
    for draw in (_add_runs, _add_medians):  # the medians of all sides on top
        for index, one in enumerate(info.sides):
            draw(figure, one, index)
    if info.y_ticks:
        lay_out(figure, yaxis=log_axis(info.y_ticks))
    if info.cap_ms is not None:
        _clip(figure, info, info.cap_ms)
    if info.strip is not None:
        _add_strip(figure, info.strip, _AROUND_PX + _more_px(info))
    return figure


def thinned(info: Timeline) -> tuple[str, ...]:
    """Say, in two parts, that not every run is a point of its own; empty: every run is."""
    if not any(one.thinned for one in info.sides):
        return ()
    return f"{sum(one.runs for one in info.sides):,} runs thinned,", "the extremes of each stretch kept"


def _add_runs(figure: go.Figure, one: Runs, index: int) -> None:
    look = style(index)
    figure.add_scatter(
        x=points(one.at_s),
        y=points(one.ms),
        mode="lines",
        line={"color": transparent(look["color"], 0.35), "width": 1},
        legendgroup=str(index),
        showlegend=False,
        hoverinfo="skip",
        name=f"{series_name(one.name)}, runs",
    )


def _add_medians(figure: go.Figure, one: Runs, index: int) -> None:
    look = style(index)
    figure.add_scatter(
        x=one.block_at_s,
        y=one.block_ms,
        name=series_name(one.name),
        legendgroup=str(index),
        mode="lines+markers",
        line={"color": look["color"], "dash": look["dash"], "width": 1.2},
        marker={
            "symbol": look["symbol"],
            "color": look["color"],
            "size": 7 if len(one.block_ms) <= MAX_SIGNS else 4,
        },
        text=one.block_hover,
        hovertemplate=TEXT_HOVER,
    )


def _clip(figure: go.Figure, info: Timeline, cap: float) -> None:
    """End the plot at the cap; slower runs are a rug at its edge, with their number in words."""
    drawn = [ms for one in info.sides for ms in one.ms if ms is not None]
    low, rug = min(drawn), cap
    if info.y_ticks:
        room = (cap / low) ** ROOM
        low, top, rug = low / room, cap * room, cap * room ** (1 - RUG)
        ends = [math.log10(low), math.log10(top)]
    else:
        room = (cap - low) * ROOM or cap * ROOM
        low, top, rug = low - room, cap + room, cap + room * (1 - RUG)
        ends = [low, top]
    lay_out(figure, yaxis={"range": ends})
    for index, one in enumerate(info.sides):
        if not one.spikes:
            continue
        look = style(index)
        figure.add_scatter(
            x=[at for at, _ in one.spikes],
            y=[rug] * len(one.spikes),
            name=f"{series_name(one.name)}, above p99.9",
            legendgroup=str(index),
            showlegend=False,
            mode="markers",
            marker={"symbol": "line-ns", "size": 10, "line": {"width": 2, "color": look["color"]}},
            customdata=[ms for _, ms in one.spikes],
            meta=TRUE_Y,
            text=[f"{number(ms)} ms" for _, ms in one.spikes],
            hovertemplate="a run of %{text}, above the axis<extra></extra>",
        )
    note_beyond(figure, f"▲ {clipped_words(info.above, END, cap, info.top_ms)}")


def _more_px(info: Timeline) -> int:
    return _SIDE_PX * max(0, len(info.sides) - 2)


def _add_strip(figure: go.Figure, strip: Strip, around_px: int) -> None:
    families = list(FAMILIES)
    share = len(families) * _STRIP_ROW_PX / (figure.layout.height - around_px)
    figure.add_heatmap(
        x=strip.edges_s,
        y=families,
        z=[strip.levels[family] for family in families],
        text=[strip.hover for _ in families],
        hovertemplate="<b>%{y}</b><br>%{text}<extra></extra>",
        colorscale=[
            [0.0, transparent(MUTED, 0.18)],
            [0.5, transparent(DISTURBED, 0.55)],
            [1.0, DISTURBED],
        ],
        zmin=CALM,
        zmax=CAUSE,
        showscale=False,
        ygap=2,
        yaxis="y2",
    )
    _add_signs(figure, strip, SYMPTOM, "symptom of a disturbance", "circle")
    _add_signs(figure, strip, CAUSE, "disturbed from outside", "x")
    lay_out(figure, xaxis={"anchor": "y2"}, yaxis={"domain": [share + _GAP, 1.0]})
    figure.layout.yaxis2 = {
        **axis(),
        "domain": [0.0, share],
        "autorange": "reversed",
        "showgrid": False,
        "fixedrange": True,
        "tickvals": families,  # all of them, however low the rows are
    }


def _add_signs(figure: go.Figure, strip: Strip, level: int, name: str, symbol: str) -> None:
    """Draw a sign in each disturbed stretch, so that colour is not the only cue."""
    signs = [
        (at, family) for family, levels in strip.levels.items() for at in _stretches(strip, levels, level)
    ]
    if not signs:
        return
    figure.add_scatter(
        x=[at for at, _ in signs],
        y=[family for _, family in signs],
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": 7, "color": SIGN, "line": {"width": 1, "color": "#FFFFFF"}},
        hoverinfo="skip",
        yaxis="y2",
    )


def _stretches(strip: Strip, levels: Sequence[int], level: int) -> list[float]:
    """Return the middles of the stretches of blocks with `level`; of too many, some evenly spaced ones."""
    middles: list[float] = []
    first = 0
    for found, group in groupby(levels):
        last = first + len(list(group))
        if found == level:
            middles.append((strip.edges_s[first] + strip.edges_s[last]) / 2)
        first = last
    step = math.ceil(len(middles) / MAX_SIGNS) if middles else 1
    return middles[::step]
