"""Noise of a machine over time: its A/A tests, within the bands of the grades.

As in `charts`: `history_info` turns stored A/A tests into plain data, `history` only draws it; no Streamlit,
no clock, no file. A ratio is drawn as its distance from 1 in percent; without noise it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from core.evidence.quality import quality
from core.evidence.verdict import Grade
from core.wire.units import ci
from dashboard.charts import (
    MUTED,
    PALETTE,
    TEXT_HOVER,
    band,
    base_figure,
    error_bars,
    lay_out,
    line_at,
    number,
    plain,
    transparent,
)

WHEN = {
    "before": "before a comparison",
    "after": "after a comparison",
    "during": "during a comparison",
    "alone": "noise check",
}
AGREES, DIFFERS = "interval contains 0", "interval excludes 0"
_LOOKS = {AGREES: (PALETTE[0], "circle"), DIFFERS: (PALETTE[1], "x")}
BANDS, _BAND_COLOR = (Grade.A, Grade.B), PALETTE[2]
_ROOM = 1.15  # above the farthest bound
MOST = 30.0  # percent: one extreme A/A test must not flatten all others


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """A/A tests with the same look; `low` and `high` are None without an interval."""

    name: str
    at: list[str]  # local time
    percent: list[float]
    low: list[float | None]
    high: list[float | None]
    hover: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Data of `history`; `reach` is where the first view ends, in percent on both sides."""

    points: list[Points]
    reach: float
    beyond: int  # A/A tests outside the first view, at least in part


def history_info(self_tests: Sequence[Mapping[str, Any]]) -> History:
    """Return the stored A/A tests, in order of time; those without a ratio have no point."""
    known = sorted((one for one in self_tests if one.get("ratio")), key=lambda one: one["at"])
    groups = {name: [one for one in known if _name(one) == name] for name in (AGREES, DIFFERS)}
    far = [max(abs(value) for value in _bounds(one) if value is not None) for one in known]
    reach = min(max([*far, 100 * BANDS[-1].most]) * _ROOM, MOST)
    return History(
        points=[_points(name, group) for name, group in groups.items() if group],
        reach=reach,
        beyond=sum(one > reach for one in far),
    )


def history(info: History) -> go.Figure:
    """Draw the differences of two equal processes over time: 95 % intervals within the grades' bands."""
    figure = base_figure(x_title="", y_title="Difference of two equal processes (%)")
    for one in info.points:
        color, symbol = _LOOKS[one.name]
        figure.add_scatter(
            x=one.at,
            y=one.percent,
            name=one.name,
            mode="markers",
            marker={"color": color, "symbol": symbol, "size": 8},
            error_y=error_bars(
                list(zip(one.percent, one.low, one.high, strict=True)), color, thickness=1.5, width=3
            ),
            text=one.hover,
            hovertemplate=TEXT_HOVER,
        )
    lay_out(
        figure,
        shapes=[shape for grade in BANDS for shape in _band(grade)],
        annotations=[_band_name(grade, below=index % 2 == 0) for index, grade in enumerate(BANDS)],
        yaxis={"range": [-info.reach, info.reach], "zeroline": True, "zerolinecolor": MUTED},
    )
    return figure


def _band(grade: Grade) -> list[dict[str, Any]]:
    """Return the two lines of a grade and the area between them."""
    percent = 100 * grade.most
    lines = [line_at(side, of="y", color=_BAND_COLOR, dash="dot", width=1) for side in (-percent, percent)]
    return [*lines, band(-percent, percent, of="y", color=transparent(_BAND_COLOR, 0.10))]


def _band_name(grade: Grade, *, below: bool) -> dict[str, Any]:
    """Return the name of a grade beyond one of its lines, as narrow bands lie close together."""
    percent = 100 * grade.most
    return {
        "x": 1,
        "xref": "paper",
        "y": -percent if below else percent,
        "text": f"{grade}: ±{percent:g} %",
        "showarrow": False,
        "xanchor": "right",
        "yanchor": "top" if below else "bottom",
    }


def _name(one: Mapping[str, Any]) -> str:
    low, high = one.get("ratio_low"), one.get("ratio_high")
    return DIFFERS if low is not None and high is not None and not low <= 1 <= high else AGREES


def _points(name: str, group: Sequence[Mapping[str, Any]]) -> Points:
    percents = [_bounds(one) for one in group]
    return Points(
        name=name,
        at=[_local(one["at"]) for one in group],
        percent=[value for value, _, _ in percents if value is not None],
        low=[low for _, low, _ in percents],
        high=[high for _, _, high in percents],
        hover=[_hover(one) for one in group],
    )


def _bounds(one: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return the difference and its bounds in percent; the ratio is always known here."""
    value, low, high = (
        None if (ratio := one.get(name)) is None else 100 * (ratio - 1)
        for name in ("ratio", "ratio_low", "ratio_high")
    )
    return value, low, high


def _hover(one: Mapping[str, Any]) -> str:
    value, low, high = _bounds(one)
    span = "no interval" if low is None or high is None else f"{ci(number(low), number(high))} %"
    sigma = "" if not one.get("sigma") else f"<br>one pair scatters by {100 * one['sigma']:.2g} %"
    rated = quality(one, [one])
    grade = "" if rated is None else f"<br>{plain(rated.label)}"
    when = WHEN.get(str(one.get("when")), "")
    rounds = f"{one['rounds']} rounds"
    if one.get("generations"):
        rounds = f"{one['generations']} launches, {rounds}"
    return f"{_local(one['at'])}, {when}<br>{number(value)} %, {span}, {rounds}{sigma}{grade}"


def _local(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
