"""Latencies of one or more sides as plots: over time, as densities, and as percentiles to the last run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard import format, state
from dashboard.charts import latency_charts, timeline_charts
from dashboard.widgets import plots


def timeline_of(
    sides: Mapping[str, latency_charts.Side], beside: Mapping[str, latency_charts.Side] | None = None
) -> timeline_charts.Timeline:
    """Return the data of `over_time`; computed once for the stored measurements of these trials.

    Args:
        sides: id of each trial -> its side, to draw; the person of this session has read them.
        beside: other configurations of the same comparison, as in `timeline_info`.
    """
    shown, others = dict(sides), dict(beside or {})
    checksums = state.store().whole_checksums([*shown, *others])
    key = tuple((one.name, checksums.get(trial_id)) for trial_id, one in {**shown, **others}.items())
    if any(checksum is None for _, checksum in key):  # deleted meanwhile
        return timeline_charts.timeline_info([*shown.values()], [*others.values()])
    return _timeline(key, len(shown), [*shown.values()], [*others.values()])


@st.cache_resource(show_spinner=False, max_entries=16)
def _timeline(
    key: tuple[tuple[str, str | None], ...],
    count: int,
    _sides: Sequence[latency_charts.Side],
    _beside: Sequence[latency_charts.Side],
) -> timeline_charts.Timeline:
    return timeline_charts.timeline_info(_sides, _beside)


def over_time(info: timeline_charts.Timeline, *, key: str, words: str = "", height: int = 0) -> None:
    """Draw latency over time, with the disturbances of each block below.

    Args:
        info: data of the plot.
        key: of the chart.
        words: short summary of the disturbances.
        height: of the plot in pixels; 0: automatic.
    """
    plots.draw(
        timeline_charts.timeline(info, height=height),
        "Latency over time",
        key=key,
        alt="Latency of each run in milliseconds over time, with what disturbed each block beneath",
    )
    long = []
    if info.above:
        long.append("Axis cut at p99.9; ticks on top are slower runs. Double-click for the full range.")
    if height and (parts := timeline_charts.thinned(info)):
        long.append(f"{' '.join(parts)}.")
    long.append("All runs are drawn. Hover the strip for disturbances.")
    if words:
        st.caption(f":material/info: {words}", help=" ".join(long))


def distribution(sides: Sequence[latency_charts.Side], *, key: str) -> None:
    """Draw the distribution of latencies: overlapping densities first, then percentiles with a long tail."""
    info = latency_charts.densities_info(sides)
    if info.sides:
        plots.draw(
            latency_charts.densities(info),
            "Latency density",
            key=f"{key}.densities",
            alt="Density of the runs over their latency in milliseconds, with the median of each side",
        )
    if info.few:
        st.caption(
            f":material/info: Too few runs for a density (fewer than {latency_charts.LEAST}): "
            f"{format.plain(', '.join(info.few))}."
        )
    plots.draw(
        latency_charts.latency_ecdf(sides),
        "Latency percentiles",
        key=f"{key}.ecdf",
        alt="Latency in milliseconds at each percentile of the runs, up to the slowest run",
    )
    st.caption(
        ":material/info: Logarithmic percentile scale: 90, 99, 99.9 %. The last step is the slowest run."
    )
