"""What a plot saves as a table: every point that is drawn, where it really lies, and nothing else."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from dashboard.charts import TRUE_Y, add_title, base_figure, latency_charts
from dashboard.charts.latency_charts import Side, latency_ecdf
from dashboard.charts.saved import csv_of
from dashboard.charts.timeline_charts import timeline, timeline_info


def rows_of(figure: go.Figure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_of(figure))))


def test_points_come_with_their_series_bounds_and_text_under_the_titles_of_the_axes() -> None:
    figure = base_figure(x_title="Batch<br>(rows)", y_title="Latency (ms)")
    figure.add_scatter(
        x=[1, None, 2],
        y=[0.1, None, 0.2],
        name="a &amp; b",
        text=["<b>one</b><br>more", None, "two"],
        error_y={"array": [0.01, 0, 0.02], "arrayminus": [0.05, 0, 0.1]},
    )
    assert rows_of(add_title(figure, "Latency over batch")) == [
        {
            "series": "a & b",
            "Batch; (rows)": "1",
            "Latency (ms)": "0.1",
            "Latency (ms), low": "0.05",
            "Latency (ms), high": "0.11",
            "text": "one; more",
        },
        {
            "series": "a & b",
            "Batch; (rows)": "2",
            "Latency (ms)": "0.2",
            "Latency (ms), low": "0.1",
            "Latency (ms), high": "0.22",
            "text": "two",
        },
    ]


def test_tiles_have_a_value_and_a_gap_is_no_point() -> None:
    figure = go.Figure(go.Heatmap(x=["p", "q"], y=["r"], z=[[3, None]], name="m"))
    assert rows_of(figure) == [{"series": "m", "x": "p", "y": "r", "value": "3"}]
    assert csv_of(go.Figure()) == ""


def test_what_is_drawn_at_the_edge_is_saved_where_it_lies() -> None:
    figure = go.Figure(go.Scatter(x=np.array([1.0]), y=[5.0], customdata=[99.0], meta=TRUE_Y))
    assert rows_of(figure) == [{"x": "1.0", "y": "99.0"}]


def test_names_from_a_model_are_no_formula_of_a_spreadsheet() -> None:
    (row,) = rows_of(go.Figure(go.Scatter(x=["=cmd"], y=[1], name="s")))
    assert row["x"] == "'=cmd"


# --- latencies --------------------------------------------------------------------------------------------


def side(name: str, latencies_s: list[float]) -> Side:
    blocks: list[dict[str, Any]] = []
    return Side(name=name, result={"latencies_s": latencies_s, "blocks": blocks, "batch_size": 1})


SPIKY = [0.001 + 1e-8 * (k % 977) for k in range(4998)] + [0.05, 0.08]


def test_time_ends_at_p999_and_counts_what_lies_above() -> None:
    info = timeline_info([side("a", SPIKY[:2500] + SPIKY[-1:] + SPIKY[2500:-1])])
    assert (info.above, info.top_ms) == (2, pytest.approx(80))
    assert info.cap_ms is not None
    assert info.cap_ms < 1.01
    assert info.y_ticks == []  # the spikes do not make the axis logarithmic
    figure = timeline(info)
    assert figure.layout.yaxis.range[1] < 1.02
    [rug] = [one for one in figure.data if one.name == "a, above p99.9"]
    assert max(rug.customdata) == pytest.approx(80)
    assert set(rug.y) < {info.cap_ms, *rug.y}
    assert "2 runs above p99.9" in figure.to_json()
    assert figure.data[-2].mode == "lines+markers"  # medians lie above the runs; only the rug follows
    assert max(float(row["ms per run"]) for row in rows_of(figure)) == pytest.approx(80)


def test_few_runs_are_all_in_the_picture() -> None:
    info = timeline_info([side("a", [0.001, 0.002, 0.05])])
    assert (info.above, info.cap_ms) == (0, None)
    assert timeline(info).layout.yaxis.range is None


def test_the_area_under_a_density_is_one_and_it_peaks_where_the_runs_are() -> None:
    draws = np.random.default_rng(1).normal(5.0, 0.2, 5000)
    info = latency_charts.densities_info([side("a", (draws / 1e3).tolist()), side("b", [0.005] * 3)])
    assert (info.log, info.few) == (False, ["b"])
    (one,) = info.sides
    assert np.trapezoid(one.density, one.ms) == pytest.approx(1, abs=0.01)
    assert one.ms[int(np.argmax(one.density))] == pytest.approx(5.0, abs=0.1)
    assert max(one.density) == pytest.approx(1 / (0.2 * np.sqrt(2 * np.pi)), rel=0.08)
    assert one.median_ms == pytest.approx(float(np.median(draws)), abs=0.001)
    assert info.above == 50  # beyond p99


def test_runs_that_are_all_equal_and_sides_that_lie_far_apart_still_draw() -> None:
    equal = latency_charts.densities_info([side("a", [0.002] * 50)])
    assert max(equal.sides[0].density) > 0
    far = latency_charts.densities_info(
        [side("a", SPIKY[:4000]), side("b", [0.05 + 1e-6 * k for k in range(500)])]
    )
    assert far.log
    figure = latency_charts.densities(far)
    assert figure.layout.xaxis.type == "log"
    fills = [one for one in figure.data if one.fill]
    assert len({one.line.dash for one in fills}) == 2
    assert latency_charts.densities(latency_charts.densities_info([])).to_json()


def test_a_long_name_is_broken_in_the_legend_and_whole_in_the_file() -> None:
    name = ", ".join(f"a_setting_with_a_long_name_{number} on" for number in range(3))
    figure = latency_ecdf([side(name, [0.001, 0.002])])
    assert figure.data[0].name.count("<br>") == 2
    assert {row["series"] for row in rows_of(figure)} == {name}


def test_percentiles_reach_to_the_last_run_and_save_as_percent() -> None:
    figure = latency_ecdf([side("a", [k / 1e6 for k in range(1000, 3000)])])
    assert figure.layout.yaxis.type == "log"
    assert list(figure.layout.yaxis.ticktext) == ["p0", "p50", "p90", "p99", "p99.9"]
    rows = rows_of(figure)
    assert float(rows[-1]["Percentile of the runs"]) == 100
    at = {row["Percentile of the runs"]: float(row["Latency per run (ms)"]) for row in rows}
    assert at["99.9"] == pytest.approx(2.997)  # nearest rank: the 1,998th of 2,000
