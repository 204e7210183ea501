"""The newest sweep over streams of a model: throughput of the closed loop, with the way to the page Sweep."""

from __future__ import annotations

import streamlit as st

from core.api import sweeping
from core.api.sweeping import Measured, SweepRanking
from core.evidence.comparison import Comparison
from core.show.sheets import sweeps
from core.spec.axes import axes_of_study, is_ordered
from core.spec.space import Axis
from core.store import ModelRecord
from dashboard import format, state
from dashboard.charts import heatmap_charts, sweep_charts
from dashboard.widgets import page_frame, plots, tables

STREAMS = "streams"  # axis of a sweep
READ = 100  # newest comparisons that are searched
EXPLAINED = (
    "Closed loop: each caller waits for its answer before it asks again. Its latency is the service latency "
    "under that many callers, not what a user sees under traffic."
)


def draw(record: ModelRecord) -> None:
    """Draw the newest sweep over streams, or what to do where there is none."""
    found = newest(record)
    if found is None:
        st.markdown("#### :material/stacked_line_chart: No streams measured yet")
        st.markdown("Write the numbers of streams, then press **Measure streams**.")
        st.caption(EXPLAINED)
        return
    comparison, axes, rows = found
    ranking = sweeping.rank_points(
        rows,
        line_s=None,
        percentile=sweeping.supported_percentile(rows),
        margin=float(comparison.protocol.get("margin") or 0.0),
    )
    icon = ":material/check_circle:" if ranking.best is not None else ":material/help:"
    st.subheader(f"{icon} {format.plain(sweeps.sentence(rows, ranking))}", anchor=False)
    _plot(axes, rows, ranking)
    st.caption(EXPLAINED)
    table = sweeps.points(rows, ranking)
    tables.draw(table, key="load.table.streams", alt=f"The {len(rows)} points over streams.")
    page_frame.link("sweep", "Open in Sweep", study=comparison.study)


def newest(record: ModelRecord) -> tuple[Comparison, list[Axis], list[Measured]] | None:
    """Return the newest sweep over streams that has numbers: its comparison, its axes, its points."""
    named = sweeping.models(state.store(), record)
    for one in state.store().comparisons(model_sha256=record.content_sha256, limit=READ):
        axes = list(axes_of_study(one.study))
        if not axes or STREAMS not in {axis.name for axis in axes}:
            continue
        for comparison, rows in sweeping.earlier_sweeps(
            [one], state.store().trials_of, axes, named, but="", most=1
        ):
            if any(row.latency for row in rows):
                return comparison, axes, list(rows)
    return None


def _plot(axes: list[Axis], rows: list[Measured], ranking: SweepRanking) -> None:
    if len(axes) > 1 and all(map(is_ordered, axes)):
        figure = heatmap_charts.plane(heatmap_charts.plane_info(rows, axes, ranking))
        title = "Throughput over streams and threads"
    else:
        figure = sweep_charts.curve(sweep_charts.curve_info(rows, x=STREAMS, y="throughput"))
        title = "Throughput over streams"
    plots.draw(figure, title, key="load.chart.streams", alt=f"{title}, {len(rows)} points.")
