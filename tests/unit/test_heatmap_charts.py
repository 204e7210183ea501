"""Two settings as a heat map and as lines, and throughput against latency: as data, and as drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.run.best_point import rank_points
from core.run.sweep import Measured
from core.spec.axes import BATCH, THREADS, point_name
from core.spec.space import Axis
from dashboard.charts import live_charts
from dashboard.charts.heatmap_charts import plane, plane_info, tradeoff, tradeoff_info
from dashboard.charts.sweep_charts import EarlierSweep, curve, curve_info
from tests import builders
from tests.reading import numbers

AXES = [Axis(name=THREADS, values=(1, 2)), Axis(name=BATCH, values=(1, 8, 32))]


def place(threads: int, batch: int) -> str:
    """The name of a point."""
    return point_name({THREADS: threads, BATCH: batch})


def point(threads: int, batch: int, *, p95_s: float, rate: float, **changes: Any) -> Measured:
    mean = batch / rate
    latency = {"p50_s": 0.8 * p95_s, "p95_s": p95_s, "mean_s": mean}
    bounds = {f"{name}_low": 0.95 * value for name, value in latency.items()}
    bounds |= {f"{name}_high": 1.05 * value for name, value in latency.items()}
    facts: dict[str, Any] = {
        "values": {THREADS: threads, BATCH: batch},
        "trial": f"t{threads}-{batch}",
        "batch_size": batch,
        "runs": 100,
        "latency": {**latency, **bounds},
        "throughput_per_s": rate,
        "effective_providers": ["CPUExecutionProvider"],
        "comparison": "race",
    }
    return builders.point(**(facts | changes))


def rows() -> list[Measured]:
    lost = {"state": "FAIL", "latency": None, "throughput_per_s": None, "error": "It crashed."}
    return [
        point(1, 1, p95_s=0.001, rate=1000),
        point(1, 8, p95_s=0.004, rate=2000),
        point(1, 32, p95_s=0.020, rate=2200),
        point(2, 1, p95_s=0.0008, rate=1200),
        point(2, 8, p95_s=0.003, rate=2100),
        point(2, 32, p95_s=0.1, rate=1, **lost),
    ]


def test_names_of_dimensions_cannot_put_markup_into_an_axis() -> None:
    """An axis has the name of a free dimension, which a foreign model chooses."""
    ranking, odd = rank_points(rows(), line_s=0.005, margin=0.02), "<a href='x'>$d$</a> %{x}"
    whole = replace(plane_info(rows(), AXES, ranking), x_title=odd, y_title=odd)
    line = replace(curve_info(rows()[:3], x=BATCH, y=["p50_s"]), x_title=odd)
    for layout in (plane(whole).layout, curve(line).layout):
        assert layout.xaxis.title.text == "&lt;a href='x'&gt;&#36;d&#36;&lt;/a&gt; &#37;{x}"
    assert "<" not in plane(whole).layout.yaxis.title.text


def test_a_plane_says_what_is_best_level_over_the_line_and_lost() -> None:
    info = plane_info(rows(), AXES, rank_points(rows(), line_s=0.005, margin=0.02))
    marks = {(one.x, one.y): one.mark for one in info.cells}
    assert marks == {
        (0, 0): "",
        (0, 1): "inconclusive",
        (0, 2): "over",
        (1, 0): "",
        (1, 1): "best",
        (1, 2): "lost",
    }
    assert (info.columns, info.rows) == (["1", "2"], ["1", "8", "32"])
    cells = {one.point: one for one in info.cells}
    assert cells[place(2, 8)].text == "★ 2,100"
    assert cells[place(1, 8)].hover != cells[place(2, 8)].hover
    assert "crashed" in cells[place(2, 32)].hover
    assert cells[place(2, 32)].text == "failed"
    assert numbers(info.over_label) == [5]
    assert "p95" in info.over_label


def test_a_plane_is_drawn_with_a_legend_that_names_its_marks_and_with_something_to_click() -> None:
    figure = plane(plane_info(rows(), AXES, rank_points(rows(), line_s=0.005, margin=0.02)))
    names = [one.name for one in figure.data if one.name and one.showlegend is not False]
    assert names == [
        "hatched: undecided",
        "crossed out: p95 over the limit of 5 ms",
        "★ best",
        "failed or refused",
    ]
    assert [list(row) for row in figure.data[0].z] == [[1000, 1200], [2000, 2100], [2200, None]]
    (handles,) = [one for one in figure.data if one.customdata is not None]
    assert len(handles.customdata) == 6
    assert handles.customdata[4] == place(2, 8)
    for trace in figure.data[1:]:  # stripes and crosses stay within the plane
        assert all(-0.5 <= at <= 1.5 for at in trace.x if at is not None)
        assert all(-0.5 <= at <= 2.5 for at in trace.y if at is not None)


def test_a_cell_whose_interval_holds_the_line_carries_a_question_mark() -> None:
    stands = rank_points(rows(), line_s=0.0041, margin=0.02)
    cells = {one.point: one for one in plane_info(rows(), AXES, stands).cells}
    assert cells[place(1, 8)].text == "2,000 ?"
    assert cells[place(1, 8)].hover


def test_the_second_setting_makes_lines_that_differ_in_colour_marker_and_dash() -> None:
    info = curve_info(rows(), x=THREADS, y=["p95_s"], series=BATCH)
    assert [one.name for one in info.series] == ["batch 1", "batch 8", "batch 32"]
    assert [one.x for one in info.series] == [[1, 2], [1, 2], [1]]
    assert info.lost == {2: f"{place(2, 32)}: It crashed."}
    figure = curve(info)
    lines = [one for one in figure.data if one.customdata is not None]
    assert len({one.line.dash for one in lines}) == 3
    assert len({one.line.color for one in lines}) == 3
    assert len({one.marker.symbol[0] for one in lines}) == 3
    assert lines[1].customdata == (place(1, 8), place(2, 8))
    assert [one.text for one in figure.layout.annotations] == ["✕"]


def test_values_that_are_no_numbers_stand_in_the_order_of_the_sweep() -> None:
    levels = ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL")
    found = [
        replace(one, values={"graph_optimization_level": level})
        for one, level in zip(rows(), levels, strict=False)
    ]
    info = curve_info(found, x="graph_optimization_level", y="throughput")
    assert info.tick_texts == list(levels)
    assert info.x_title == "Graph optimization level"
    assert not info.x_log


def test_earlier_curves_are_faint_lines_with_one_place_in_the_legend() -> None:
    ghost = EarlierSweep(name="earlier, yesterday", points=rows()[:3])
    info = curve_info(rows(), x=THREADS, y="throughput", series=BATCH, ghosts=[ghost])
    faint = [one for one in curve(info).data if one.name == "earlier, yesterday"]
    assert [one.showlegend for one in faint] == [True, False, False]
    assert all(one.line.dash == "dot" and one.customdata is None for one in faint)


def test_throughput_against_latency_rings_the_front_and_crosses_what_is_over_the_line() -> None:
    info = tradeoff_info(rows(), AXES[::-1], rank_points(rows(), line_s=0.005, margin=0.02))
    assert list(info.groups) == ["threads 1", "threads 2"]
    assert [one.point for one in info.front] == [place(2, 1), place(2, 8), place(1, 32)]
    figure = tradeoff(info)
    spots = [one for one in figure.data if one.customdata is not None]
    assert [one.text for one in spots] == [("1", "8", "32"), ("1", "8")]
    assert spots[0].error_x.array[0] > 0
    assert spots[0].error_y.arrayminus[0] > 0
    crossed = next(one for one in figure.data if one.name == "crossed out: over the limit")
    assert crossed.x == (20.0,)
    assert figure.layout.shapes[0].x0 == 5.0


def test_a_running_sweep_has_a_gap_where_nothing_is_known_yet() -> None:
    found = [builders.with_result(one, latency={"p50_s": 0.002}) for one in rows()[:2]]
    found.append(builders.with_result(rows()[5], latency=None, throughput_per_s=None))
    drawn = live_charts.curve(found, x=BATCH, y="p50_s", series=THREADS)
    assert [text for _, text in drawn["x"]["ticks"]] == ["1", "8", "32"]
    assert [(one["name"], [y for _, y, _ in one["points"]]) for one in drawn["series"]] == [
        ("threads 1", [2.0, 2.0]),
        ("threads 2", [None]),
    ]
