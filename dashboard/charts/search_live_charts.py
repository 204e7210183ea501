"""A search that runs, for Apache ECharts: what was tried so far, and the best over time.

Why ECharts, and why its text has to be told whether the page is dark: see `compare_charts.live_forest`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.evidence.documents import CoursePoint, FrontPoint
from core.spec.space import changes_words
from dashboard.charts import FONT_PX, MUTED, ON_DARK, ON_LIGHT, PALETTE, transparent
from dashboard.charts.search_charts import COSTS, MIB, MOST_TICKS, STEPS

HEIGHT, LOW = 360, 230  # pixels: of what was tried, of the best over time


def points_so_far(
    points: Sequence[Mapping[str, Any]], front: Sequence[FrontPoint], *, dark: bool = False
) -> dict[str, Any]:
    """Return gain over memory so far for Apache ECharts; over the order of trying, where memory is not known.

    Args:
        points: `Status.live["points"]`.
        front: `Status.live["front"]`.
        dark: the page has its dark theme; the chart's text is painted.
    """
    text = ON_DARK if dark else ON_LIGHT
    best = {changes_words(one["changes"]) for one in front}
    by_memory = bool(points) and all(one["memory"] for one in points)
    placed = [
        (one["memory"] / MIB if by_memory else index + 1, one["ratio"], one["label"])
        for index, one in enumerate(points)
    ]
    x_title = COSTS["peak_rss"][0] if by_memory else "Order of trying"
    series = [
        {
            "name": name,
            "type": "scatter",
            "symbol": symbol,
            "symbolSize": size,
            "itemStyle": {"color": color},
            "data": [[_short(x), _short(y)] for x, y, label in placed if (label in best) is on_front],
        }
        for on_front, name, symbol, size, color in (
            (False, "tried", "circle", 7, MUTED),
            (True, "front so far", "diamond", 12, PALETTE[0]),
        )
    ]
    series[0]["markLine"] = _default_line()
    gains = [ratio for _, ratio, _ in placed]
    return {
        **_live_frame(x_title, "Gain", text, gains, scale_x=by_memory),
        "legend": {"top": 0, "right": 0, "textStyle": {"color": text, "fontSize": FONT_PX}},
        "series": series,
    }


def course_so_far(points: Sequence[CoursePoint], *, dark: bool = False) -> dict[str, Any]:
    """Return the best gain over time so far for Apache ECharts; as `points_so_far`."""
    text = ON_DARK if dark else ON_LIGHT
    line = {
        "type": "line",
        "step": "end",
        "data": [[_short(one["at_s"]), _short(one["ratio"])] for one in points if one["ratio"]],
        "lineStyle": {"color": PALETTE[0], "width": 2},
        "itemStyle": {"color": PALETTE[0]},
        "symbolSize": 8,
        "markLine": _default_line(),
    }
    gains = [one["ratio"] for one in points if one["ratio"]]
    return {**_live_frame("Time (s)", "Best so far", text, gains, scale_x=False), "series": [line]}


def _round(value: float, step: float, to: Callable[[float], int]) -> float:
    return round(to(value / step) * step, 6)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _default_line() -> dict[str, Any]:
    return {
        "silent": True,
        "symbol": "none",
        "lineStyle": {"color": MUTED, "type": "dotted", "width": 2},
        "label": {"show": False},
        "data": [{"yAxis": 1}],
    }


def _live_frame(
    x_title: str, y_title: str, text: str, gains: Sequence[float], *, scale_x: bool
) -> dict[str, Any]:
    """Axes of gains, of which 1 is one, over something else."""
    low, high = min([0.99, *gains]), max([1.01, *gains])
    step = next((one for one in STEPS if (high - low) / one <= MOST_TICKS), STEPS[-1])

    def axis(title: str, gap: int) -> dict[str, Any]:
        return {
            "type": "value",
            "name": title,
            "nameLocation": "middle",
            "nameGap": gap,
            "nameTextStyle": {"color": text, "fontSize": FONT_PX},
            "axisLabel": {"color": text, "fontSize": FONT_PX},
            "splitLine": {"lineStyle": {"color": transparent(MUTED, 0.25)}},
        }

    return {
        "animation": False,
        "grid": {"left": 52, "right": 16, "top": 28, "bottom": 44, "outerBoundsMode": "none"},
        "xAxis": {**axis(x_title, 26), "scale": scale_x},
        "yAxis": {
            **axis(y_title, 38),
            "min": _round(low, step, math.floor),
            "max": _round(high, step, math.ceil),
            "interval": step,
        },
    }
