"""The runs of one or more sides as plots: over time, as densities, and as percentiles up to the last run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard import charts, format
from dashboard.charts import density_charts, duel_charts
from dashboard.widgets import plots


def over_time(info: duel_charts.Timeline, *, key: str, words: str = "", height: int = 0) -> None:
    """Draw latency over time, with what disturbed each block beneath.

    Args:
        info: what is drawn.
        key: of the chart.
        words: what was disturbed, in a few words.
        height: of it in pixels; 0: as high as is good for it.
    """
    plots.draw(
        duel_charts.timeline(info, height=height),
        "Latency over time",
        key=key,
        alt="Latency of each run in milliseconds over time, with what disturbed each block beneath",
    )
    long = []
    if info.above:
        long.append("The picture ends at p99.9; a tick on top is a run beyond (double-click shows all).")
    if height and (parts := duel_charts.thinned(info)):
        long.append(f"{' '.join(parts)}.")
    long.append("Every run counts, slow ones too. Hover the strip to see what disturbed a block.")
    if words:
        st.caption(f":material/info: {words}", help=" ".join(long))


def distribution(sides: Sequence[charts.Side], *, key: str) -> None:
    """Draw where the runs lie: densities over each other first, then percentiles with a long tail."""
    info = density_charts.densities_info(sides)
    if info.sides:
        plots.draw(
            density_charts.densities(info),
            "Where the runs lie",
            key=f"{key}.densities",
            alt="Density of the runs over their latency in milliseconds, with the median of each side",
        )
    if info.few:
        st.caption(
            f":material/info: Fewer than {density_charts.LEAST} runs make no density: "
            f"{format.plain(', '.join(info.few))}."
        )
    plots.draw(
        charts.latency_ecdf(sides),
        "Percentiles of the latency",
        key=f"{key}.ecdf",
        alt="Latency in milliseconds at each percentile of the runs, up to the slowest run",
    )
    st.caption(
        ":material/info: From p90 on, each line upwards leaves a tenth of the runs: the tail is as wide as "
        "the bulk. The last step of a line is its slowest run."
    )
