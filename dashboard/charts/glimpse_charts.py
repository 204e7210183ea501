"""The trail of glimpses for Apache ECharts: latency and throughput of what sliders moved through. Pure.

Why ECharts, and why its text has to be told whether the page is dark: see `compare_charts.live_forest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.charts import FONT_PX, MUTED, ON_DARK, ON_LIGHT, PALETTE, transparent

HEIGHT = 220  # pixels


def trail(points: Sequence[Mapping[str, Any]], current: str, *, dark: bool = False) -> dict[str, Any]:
    """Return throughput over latency of every glimpse, joined in the order of their making; all are hollow.

    Args:
        points: `Status.live["trail"]`: key, label, p50_s of a run, rows_per_s.
        current: key of the one that is shown, which is larger.
        dark: the page has its dark theme; the chart's text is painted.
    """
    text = ON_DARK if dark else ON_LIGHT
    data = [
        {
            "name": one["label"],
            "value": [_short(1e3 * one["p50_s"]), _short(one["rows_per_s"])],
            "symbolSize": 16 if one["key"] == current else 9,
            "itemStyle": {
                "color": "transparent",
                "borderColor": PALETTE[1] if one["key"] == current else PALETTE[0],
                "borderWidth": 2,
            },
        }
        for one in points
    ]

    def axis(title: str, gap: int) -> dict[str, Any]:
        return {
            "type": "value",
            "scale": True,
            "name": title,
            "nameLocation": "middle",
            "nameGap": gap,
            "nameTextStyle": {"color": text, "fontSize": FONT_PX},
            "axisLabel": {"color": text, "fontSize": FONT_PX, "hideOverlap": True},
            "splitLine": {"lineStyle": {"color": transparent(MUTED, 0.25)}},
        }

    return {
        "animation": False,
        "grid": {"left": 72, "right": 16, "top": 12, "bottom": 44, "outerBoundsMode": "none"},
        "tooltip": {"trigger": "item", "formatter": "{b}"},
        "xAxis": axis("p50 of a run (ms)", 26),
        "yAxis": axis("Rows per second", 56),
        "series": [
            {
                "type": "line",
                "symbol": "circle",
                "data": data,
                "lineStyle": {"color": MUTED, "width": 1, "type": "dotted"},
            }
        ],
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")
