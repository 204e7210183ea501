"""The points of a sweep: the table, the details of one point, and loading it into Tune."""

from __future__ import annotations

import streamlit as st

from core.api.sweeping import Measured, Point, SweepRanking
from core.show import verdict
from core.show.sheets import sweeps
from core.spec.axes import point_name
from core.wire.files import file_stem
from core.wire.output_check import OUTPUTS_DIFFER, WARNING
from core.wire.units import interval, size
from dashboard import format, state
from dashboard.charts import sweep_charts
from dashboard.views.sweep.shown_sweep import LIMIT_MS, POINT, ShownSweep
from dashboard.widgets import page_frame, tables

TABLE = "sweep.table"


def draw(shown: ShownSweep, ranking: SweepRanking) -> None:
    """Draw the table of all points, and the details of one; above the table where the user selected it."""
    table = sweeps.points(shown.rows, ranking, shown.busy)
    details = st.container(key="sweep.details")
    names = " and ".join(one.name for one in shown.axes)
    tables.draw(
        table,
        key=TABLE,
        on_select=_take_row,
        mode="single-row",
        alt=f"The {len(shown.rows)} points of the sweep over {names}.",
    )
    index = _picked(shown)
    if index is None:
        index, details = _best(shown, ranking), st.container()
    if index is not None:
        with details:
            _details(shown, ranking, index)
    with st.container(horizontal=True):
        if index is None:
            st.button(
                "Use in Tune",
                key="sweep.use",
                icon=":material/tune:",
                disabled=True,
                help="Select a point first.",
            )
        name = file_stem("_".join(one.name for one in shown.axes))  # names of dimensions are the model's
        tables.download(table, f"curve_{name}.csv", key="sweep.csv")


def _take_row() -> None:
    """Drop the clicked point when a row of the table is selected."""
    st.session_state.pop(POINT, None)


def _picked(shown: ShownSweep) -> int | None:
    """Return the index of the clicked point, or else of the selected row."""
    names = [point_name(one.values) for one in shown.rows]
    if (clicked := st.session_state.get(POINT)) in names:
        return names.index(clicked)
    selected: list[int] = st.session_state[TABLE]["selection"]["rows"]
    return selected[0] if selected and selected[0] < len(names) else None


def _best(shown: ShownSweep, ranking: SweepRanking) -> int | None:
    """Return the index of the best point within the limit, if any."""
    best = ranking.best if ranking.line_s is not None else None
    names = [point_name(one.values) for one in shown.rows]
    return None if best is None else names.index(point_name(best.values))


def _details(shown: ShownSweep, ranking: SweepRanking, index: int) -> None:
    """Draw the details of one point, with the button that loads it into Tune."""
    point, row = shown.points[index], shown.rows[index]
    name = point_name(point.values)
    with st.container(border=True):
        place = ranking.place(row)
        st.markdown(f"**{format.plain(name)}**" + (f" · {place}" if place else ""))
        if row.latency is not None:
            _numbers(row, ranking)
        for line in _said_of(row, ranking):
            st.caption(format.plain(line))
        with st.container(horizontal=True):
            if st.button(
                f"Use {name} in Tune",
                key="sweep.use",
                icon=":material/tune:",
                disabled=point.spec is None,
                help="The selected point, or the best within the limit.",
            ):
                _use(point, row)
            value = (row.latency or {}).get(ranking.percentile)
            st.button(
                "Set as limit",
                key="sweep.line_here",
                icon=":material/horizontal_rule:",
                disabled=value is None,
                on_click=_put_line,
                args=(value,),
                help="Sets the latency limit just above this point.",
            )


def _numbers(row: Measured, ranking: SweepRanking) -> None:
    latency = row.latency or {}
    names = list(dict.fromkeys(["p50_s", "p95_s", ranking.percentile]))
    grid = st.grid(len(names) + 2, min_column_width=120)
    for name in [*names, "rate", "memory"]:
        column = grid.container(gap=None)
        if name == "rate":
            low, high = row.throughput_interval()
            bounds = interval(low, high, "samples/s") if low and high else ""
            column.metric("Throughput", format.rate(row.throughput_per_s))
        elif name == "memory":
            bounds = ""
            memory = size(row.result.get("peak_rss_bytes"))
            column.metric("Peak memory added by the session", memory)
        else:
            low, high = latency.get(f"{name}_low"), latency.get(f"{name}_high")
            bounds = interval(low * 1e3, high * 1e3, "ms") if low and high else ""
            column.metric(sweep_charts.statistic_of(row, name), format.ms(latency.get(name)))
        column.caption(bounds or "no interval")


def _said_of(row: Measured, ranking: SweepRanking) -> list[str]:
    runs, rows = row.result.get("runs", 0), row.result.get("batch_size")
    found = [f"{runs:,} runs of {rows} sample{'s' * (rows != 1)}"] if row.latency is not None else []
    if row.is_default:
        found.append("This is ONNX Runtime's default itself.")
    elif row.contrast is not None:
        against_default = verdict.in_words(row.contrast)
        by_throughput = row.contrast.get("statistic") == "throughput"
        what = "Throughput" if by_throughput else "Median latency per sample"
        found.append(f"{what} versus ONNX Runtime's default: {against_default}")
    if ranking.is_in(row, ranking.over):
        found.append("Over the latency limit.")
    if ranking.is_in(row, ranking.open):
        found.append("The 95 % interval contains the limit: undecided.")
    if row.same is not None:
        found.append(f"Measured as {point_name(row.same)}: {row.why}")
    if row.cut_short:
        found.append("The comparison was cancelled: partial results, not ranked.")
    if row.breach:
        found.append(f"{WARNING} {OUTPUTS_DIFFER}")
    return [*found, *([row.error] if row.error else [])]


def _put_line(value_s: float) -> None:
    st.session_state[LIMIT_MS] = float(f"{value_s * 1e3 * 1.0005:.4g}")  # rounded up: the point meets it


def _use(point: Point, row: Measured) -> None:
    if point.spec is None:
        return
    state.apply_spec(point.spec)
    if row.trial and row.same is None:  # a reused trial has other settings
        page_frame.switch_to("tune", trial=row.trial)
    page_frame.switch_to("tune")
