"""Charts of a fleet run: regrets as a heat map, the speed-up of each host with its interval.

As in `charts`: `*_info` is plain data, the figure only draws it; no Streamlit, no clock, no file. A fleet may
have hundreds of hosts, so data of more than `MOST_ROWS` hosts are aggregated by kind before they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from core.evidence.fleet.fleet_types import HostRecord
from core.evidence.fleet.intervals import FleetInterval
from core.evidence.fleet.matrix import HostRow, Matrix
from core.evidence.fleet.portability import Portability
from core.evidence.verdict import tick
from core.show import fleet_text
from core.show.words import counted
from core.wire.units import clipped
from dashboard.charts import FONT_PX, TEXT, TEXT_HOVER, axis, base_figure, plain, text_lines, text_on
from dashboard.charts.compare_charts import (
    REJECTED,
    ForestInfo,
    ForestRow,
    forest,
    ratio_ticks,
    reach,
)
from dashboard.charts.heatmap_charts import DARK, LIGHT, add_cells

MOST_ROWS = 40  # hosts; more are drawn by kind, or the ones with the largest numbers
ROW_PX, FRAME_PX = 30, 130
LABEL_LIMIT = 40  # characters
WITH_NUMBERS = 120  # cells up to which each says its number
LEAST_SCALE = 0.05  # regret of the darkest colour, at least: small regrets stay light
CHOSEN, MAY_BE_BEST = "★ ", "= "


# --- regrets ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretCell:
    """The regret of one configuration on one host, or the largest of the hosts of a kind."""

    x: int  # column
    y: int  # row
    regret: float | None  # a share; None: the configuration cannot be used there
    text: str
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretInfo:
    """A heat map of regrets as data."""

    columns: list[str]  # configurations
    rows: list[str]  # hosts, or kinds
    cells: list[RegretCell]
    left_out: int  # hosts that are not drawn
    by_kind: bool


def regret_info(of: Matrix, found: Portability, hosts: Sequence[HostRecord]) -> RegretInfo:
    """Return the regrets of a comparison as a heat map, the configuration with the smallest worst one first.

    Args:
        of: the comparison.
        found: its regrets.
        hosts: of the run, for the names of kinds.
    """
    named = fleet_text.names(of.configurations, of.model)
    keys = [*(one.configuration for one in found.worst), *found.excluded]
    chosen = found.choice.configuration if found.choice and found.outcome in ("BEST", "EQUIVALENT") else ""
    groups, by_kind, left_out = _groups(found, hosts)
    cells = [
        _regret_cell(x, y, key, members, found, f"{label}, {named[key]}")
        for y, (label, members) in enumerate(groups)
        for x, key in enumerate(keys)
    ]
    return RegretInfo(
        columns=[f"{CHOSEN if key == chosen else ''}{named[key]}" for key in keys],
        rows=[label for label, _ in groups],
        cells=cells,
        left_out=left_out,
        by_kind=by_kind,
    )


def _groups(found: Portability, hosts: Sequence[HostRecord]) -> tuple[list[tuple[str, list[str]]], bool, int]:
    """Return the rows as a label with its hosts, whether they are kinds, and how many hosts are left out."""
    own = list(found.hosts)
    if len(own) <= MOST_ROWS:
        return [(one, [one]) for one in own], False, 0
    kind_of = {one.name: one.kind for one in hosts}
    kinds = fleet_text.kind_names(hosts)
    members: dict[str, list[str]] = {}
    for host in own:
        members.setdefault(kind_of.get(host, ""), []).append(host)
    if len(members) <= MOST_ROWS:
        named = [
            (f"{kinds.get(kind, 'unknown')} ({counted(len(of), 'host')})", of) for kind, of in members.items()
        ]
        return named, True, 0
    worst = sorted(own, key=lambda host: -max((one.value for one in found.regrets[host].values()), default=0))
    return [(one, [one]) for one in worst[:MOST_ROWS]], False, len(own) - MOST_ROWS


def _regret_cell(x: int, y: int, key: str, hosts: Sequence[str], found: Portability, name: str) -> RegretCell:
    known = {host: found.regrets[host][key] for host in hosts if key in found.regrets[host]}
    if len(known) < len(hosts):
        why = found.excluded.get(key, "not usable")
        return RegretCell(x=x, y=y, regret=None, text="✕", hover=text_lines([name, why]))
    host = max(known, key=lambda one: known[one].value)
    regret = known[host]
    lines = [name, f"regret: {fleet_text.regret_text(regret)}"]
    lines += [f"largest of {len(hosts)} hosts, on {host}"] if len(hosts) > 1 else []
    may_be_best = not regret.low
    return RegretCell(
        x=x,
        y=y,
        regret=regret.value,
        text=f"{MAY_BE_BEST if may_be_best else ''}{fleet_text.share_text(regret.value)}",
        hover=text_lines([*lines, *(["may be the best one here"] if may_be_best else [])]),
    )


def regret_alt(info: RegretInfo) -> str:
    """Describe the heat map."""
    what = "kinds of hosts" if info.by_kind else "hosts"
    return (
        f"Heat map of {len(info.rows)} {what} and {len(info.columns)} configurations; darker is slower than "
        "the best configuration there"
    )


def regrets(info: RegretInfo) -> go.Figure:
    """Draw regrets: darker is slower than the best configuration of the host; ✕ cannot be used there."""
    figure = base_figure(x_title="", y_title="", height=FRAME_PX + ROW_PX * len(info.rows))
    grid: list[list[float | None]] = [[None] * len(info.columns) for _ in info.rows]
    for cell in info.cells:
        grid[cell.y][cell.x] = cell.regret
    most = max([LEAST_SCALE, *(one.regret for one in info.cells if one.regret is not None)])
    add_cells(figure, grid, title="regret", tickformat=".0%", zmin=0, zmax=most)
    _add_regret_texts(figure, info, most)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(
        **axis(),
        tickvals=list(range(len(info.columns))),
        ticktext=[plain(clipped(one, LABEL_LIMIT)) for one in info.columns],
        range=[-0.5, len(info.columns) - 0.5],
        showgrid=False,
        side="top",
    )
    figure.update_yaxes(
        **axis(),
        tickvals=list(range(len(info.rows))),
        ticktext=[plain(clipped(one, LABEL_LIMIT)) for one in info.rows],
        range=[len(info.rows) - 0.5, -0.5],
        showgrid=False,
    )
    return figure


def _add_regret_texts(figure: go.Figure, info: RegretInfo, most: float) -> None:
    """Draw the numbers where there is room, and the points that answer to the mouse."""
    small = len(info.cells) <= WITH_NUMBERS
    figure.add_scatter(
        x=[one.x for one in info.cells],
        y=[one.y for one in info.cells],
        mode="text" if small else "markers",
        text=[one.text if small else one.hover for one in info.cells],
        hovertext=[one.hover for one in info.cells],
        hovertemplate="%{hovertext}<extra></extra>" if small else TEXT_HOVER,
        textfont={"size": FONT_PX, "color": [_text_color(one.regret, most) for one in info.cells]},
        marker={"symbol": "square", "size": ROW_PX - 8, "color": "rgba(0,0,0,0.003)"},
        showlegend=False,
    )


def _text_color(regret: float | None, most: float) -> str:
    return TEXT if regret is None else text_on(DARK if regret > most / 2 else LIGHT)


# --- speed-ups of the hosts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GainInfo:
    """The speed-up of the best configuration of each host as data."""

    forest: ForestInfo
    left_out: int  # hosts that are not drawn


def gain_info(of: Matrix, *, reference: str = "the host's ORT default") -> GainInfo | None:
    """Return the speed-up of each host's best configuration; None: no host has one.

    Of many hosts, those with the largest and the smallest speed-ups are drawn.

    Args:
        of: a search or a comparison.
        reference: what the ratios refer to, in words.
    """
    named = fleet_text.names(of.configurations, of.model)
    rows = [row for one in of.measured if (row := _gain_row(one, named, of.metric)) is not None]
    if not rows:
        return None
    rows.sort(key=lambda one: -one.value)
    left_out = max(0, len(rows) - MOST_ROWS)
    if left_out:
        rows = [*rows[: MOST_ROWS // 2], *rows[-(MOST_ROWS // 2) :]]
    margin = min((one.margin for one in of.measured), default=0.0)
    ends = reach(rows, 1 / (1 + 2 * margin), 1 + 2 * margin)
    return GainInfo(
        forest=ForestInfo(
            title=f"← worse · versus {reference} · better →",
            baseline=reference,
            rows=rows,
            axis=ends,
            ticks=[(one, tick(one)) for one in ratio_ticks(*ends)],
            margin=margin,
        ),
        left_out=left_out,
    )


def _gain_row(row: HostRow, named: dict[str, str], metric: str) -> ForestRow | None:
    """Return the interval of a host's best configuration that is not the reference."""
    keys = [key for key in (*row.best, *row.cells) if key != row.reference and key in row.cells]
    usable = [key for key in keys if row.cells[key].speedup is not None and not row.cells[key].unusable]
    if not usable:
        return None
    cell = row.cells[usable[0]]
    speedup: FleetInterval | None = cell.speedup
    assert speedup is not None, usable[0]
    short = "rejected" if row.rejected else fleet_text.speedup_cell(cell, metric)[0]
    lines = [row.host, named[usable[0]], row.rejected or fleet_text.speedup_text(cell, metric)]
    return ForestRow(
        label=f"{row.host}: {named[usable[0]]}",
        value=speedup.value,
        low=None if row.rejected else speedup.low,
        high=None if row.rejected else speedup.high,
        verdict=REJECTED if row.rejected or cell.verdict is None else cell.verdict,
        short=short,
        hover=text_lines([*lines, *([row.busy] if row.busy else [])]),
    )


def gain_alt(info: GainInfo) -> str:
    """Describe the plot of speed-ups."""
    return (
        f"Speed-up of the best configuration of {counted(len(info.forest.rows), 'host')} over "
        f"{info.forest.baseline}, with 95 % intervals"
    )


def gains(info: GainInfo) -> go.Figure:
    """Draw the speed-up of each host's best configuration with its interval."""
    return forest(info.forest, slim=True)
