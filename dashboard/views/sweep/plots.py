"""Charts of a sweep: lines, heat map, and throughput against latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from core.api.sweeping import SweepRanking
from core.spec.axes import is_ordered
from core.spec.space import Axis
from dashboard.charts import heatmap_charts, sweep_charts
from dashboard.views.sweep.shown_sweep import POINT, ShownSweep
from dashboard.widgets import plots

VIEW = "sweep.view"  # + "." + number of varied settings
GHOSTS = "sweep.ghosts"
LATENCY_CHART, RATE_CHART = "sweep.latency", "sweep.throughput"
PLANE_CHART, TRADEOFF_CHART = "sweep.plane", "sweep.tradeoff"
LINES, PLANE, TRADEOFF = "Lines", "Heat map", "Throughput against latency"


def draw(shown: ShownSweep, ranking: SweepRanking, beside: Callable[[], None]) -> None:
    """Draw the points in the chosen chart; a click selects a point.

    Args:
        shown: the sweep.
        ranking: ranks of its points.
        beside: draws next to the choice of the chart.
    """
    views = _views(shown.axes)
    key = f"{VIEW}.{len(shown.axes)}"
    if st.session_state.get(key) not in views:
        st.session_state[key] = PLANE if PLANE in views else LINES
    with st.container(gap="xsmall", key="sweep.first"):
        with st.container(horizontal=True, vertical_alignment="center", key="sweep.controls"):
            view = st.segmented_control(
                "Show",
                views,
                key=key,
                required=True,
                persist_state="session",
                label_visibility="collapsed",
                width="content",
            )
            st.space("stretch")
            if view == LINES:
                st.toggle(
                    "Earlier sweeps",
                    key=GHOSTS,
                    persist_state="session",
                    help="Shows earlier sweeps of these settings in the background. They were measured at "
                    "other times.",
                )
            beside()
        with st.container(gap="xsmall"):
            if view == PLANE:
                _plane(shown, ranking)
            elif view == TRADEOFF:
                _tradeoff(shown, ranking)
            else:
                _lines(shown, ranking)


def _views(axes: Sequence[Axis]) -> list[str]:
    plane = len(axes) > 1 and all(map(is_ordered, axes))
    return [LINES, *([PLANE] if plane else []), TRADEOFF]


def _lines(shown: ShownSweep, ranking: SweepRanking) -> None:
    x, series = shown.axes[0].name, shown.axes[1].name if len(shown.axes) > 1 else ""
    statistics = list(dict.fromkeys(["p50_s", ranking.percentile]))[-1 if series else -2 :]
    best = ranking.best if ranking.line_s is not None else None
    ghosts = shown.ghosts() if st.session_state.get(GHOSTS) else ()
    if st.session_state.get(GHOSTS) and not ghosts:
        st.caption("There is no earlier sweep of this model over the same settings.")
    about: dict[str, Any] = {"x": x, "series": series, "best": best, "ghosts": ghosts}
    latency = sweep_charts.curve_info(shown.rows, y=statistics, line_s=ranking.line_s, **about)
    throughput = sweep_charts.curve_info(shown.rows, y="throughput", **about)
    left, right = (st.container(), st.container()) if series else st.columns(2)  # space for the legend
    count = sum(row.latency is not None for row in shown.rows)
    with left:
        name = f", {sweep_charts.STATISTICS[ranking.percentile]}" if series else ""
        _chart(
            sweep_charts.curve(latency),
            f"Latency{name}",
            LATENCY_CHART,
            f"Latency over {x} for {count} measured points.",
        )
    with right:
        _chart(
            sweep_charts.curve(throughput),
            "Throughput",
            RATE_CHART,
            f"Throughput over {x} for {count} points.",
        )
    parts = [
        "Bands: 95 % intervals.",
        *(["Hollow: reused."] if any(row.reused for row in shown.rows) else []),
        *(["✕: failed or refused."] if latency.lost or throughput.lost else []),
        "Click a point for details.",
    ]
    st.caption(" ".join(parts))


def _plane(shown: ShownSweep, ranking: SweepRanking) -> None:
    info = heatmap_charts.plane_info(shown.rows, shown.axes, ranking)
    names = " and ".join(one.name for one in shown.axes)
    _chart(
        heatmap_charts.plane(info),
        f"Throughput over {names}",
        PLANE_CHART,
        f"Samples per second over {names}, {len(info.cells)} cells.",
    )
    line = "" if ranking.line_s is None else "Crossed out: over the limit; ?: undecided. "
    st.caption(
        f"Samples/s. ★: best. =: equivalent, with 95 %. Hatched: undecided. {line}Click a cell for details."
    )


def _tradeoff(shown: ShownSweep, ranking: SweepRanking) -> None:
    info = heatmap_charts.tradeoff_info(shown.rows, shown.axes, ranking)
    name = sweep_charts.STATISTICS[ranking.percentile]
    if not info.groups:
        st.info(f"No point has a {name}: choose another percentile above.", icon=":material/info:")
        return
    _chart(
        heatmap_charts.tradeoff(info),
        f"Throughput against {name}",
        TRADEOFF_CHART,
        f"Throughput against {name} of {len(shown.rows)} points.",
    )
    st.caption("Ringed: Pareto front. Bars: 95 % intervals. Click a point for details.")


def _chart(figure: Any, title: str, key: str, alt: str) -> None:
    plots.draw(
        figure,
        title,
        key=key,
        on_select=partial(_take_click, key),
        selection_mode="points",
        alt=alt,
    )


def _take_click(key: str) -> None:
    chosen = st.session_state[key]["selection"]["points"]
    names = [one["customdata"] for one in chosen if one.get("customdata")]
    if names:
        st.session_state[POINT] = names[0] if isinstance(names[0], str) else names[0][0]
