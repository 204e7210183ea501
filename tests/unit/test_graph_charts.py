"""The picture of a graph as data: shapes, colours and their words, and a bounded layout."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from core.evidence.graph_facts import rows, times
from core.evidence.graph_folding import all_blocks, fold, levels
from core.process.job_worker import run_job
from core.run import graph_layout
from core.run.graph_layout import Layout, edges_within_limit, layout
from core.wire.errors import WorkerError
from dashboard.charts import graph_charts
from dashboard.charts.graph_charts import KINDS, SEVERAL, SYMBOLS, UNKNOWN, Paint
from tests import graphs


def no_worker(*args, **how):
    raise WorkerError("It crashed.")


def drawn(side, mode, *, found=None, optimized=False, opened=None, **how):
    at = side.levels[0]
    places = [one.scope for one in at.nodes]
    edges = [(source, target) for source, target, _ in at.edges]
    folding = fold(places, edges, all_blocks(places) if opened is None else opened)
    listed = rows(side, found)
    paint = Paint(mode=mode, times=found, order=graph_charts.order(mode, listed), optimized=optimized)
    placed = layout(len(folding.items), list(folding.edges), no_worker)
    return graph_charts.picture(folding, placed, listed, paint, **how)


def test_every_kind_of_node_has_a_shape_of_its_own():
    assert set(SYMBOLS) == set(KINDS)
    assert len(set(SYMBOLS.values())) == len(SYMBOLS)


def test_what_onnx_runtime_did_shows_in_the_shape():
    info = drawn(graphs.optimized(), "Operator", optimized=True)
    assert [one.what for one in info.drawn] == ["several", "inserted", "node"]


def test_time_is_a_scale_from_zero_that_both_sides_share():
    found = times(graphs.model(), graphs.run(), graphs.optimized())
    info = drawn(graphs.model(), "Time", found=found)
    assert [one.value for one in info.drawn] == [2000.0, 2000.0, 5000.0]
    figure = graph_charts.figure(info, 9000.0)
    (scaled,) = [one for one in figure.data if one.marker.colorscale]
    assert (scaled.marker.cmin, scaled.marker.cmax) == (0, 9000.0)
    assert scaled.marker.colorbar.title.text == "ms per run"


def test_a_block_has_the_time_of_its_nodes_once():
    found = times(graphs.model(), graphs.run(), graphs.optimized())
    info = drawn(graphs.model(), "Time", found=found, opened={()})
    assert [(one.what, one.value) for one in info.drawn] == [("block", 2000.0), ("node", 5000.0)]
    assert "2,000 ms per run (25.0%)" in info.drawn[0].hover


def test_without_a_profile_no_node_seems_to_take_no_time():
    info = drawn(graphs.model(), "Time")
    assert [one.value for one in info.drawn] == [None] * 3
    names = [one.name for one in graph_charts.figure(info, 0.0).data if one.showlegend is not False]
    assert f"{UNKNOWN['Time']} (3)" in names


def test_a_block_of_several_providers_says_so():
    ran = graphs.profile(
        [
            graphs.timed("conv", "Conv", 1.0),
            graphs.timed("relu", "Relu", 1.0, provider="CUDAExecutionProvider"),
        ]
    )
    info = drawn(graphs.model(), "Provider", found=times(graphs.model(), ran), opened={()})
    assert [one.category for one in info.drawn] == [SEVERAL, UNKNOWN["Provider"]]


def test_a_block_has_the_colour_of_the_operator_that_takes_most_time():
    info = drawn(graphs.model(), "Operator", opened={()})
    assert [one.category for one in info.drawn] == ["Conv", "Gemm"]  # the first of two that are as frequent
    ran = graphs.profile([graphs.timed("conv", "Conv", 1.0), graphs.timed("relu", "Relu", 2.0)])
    info = drawn(graphs.model(), "Operator", found=times(graphs.model(), ran), opened={()})
    assert info.drawn[0].category == "Relu"
    assert "most time in Relu" in info.drawn[0].hover
    names = [one.name for one in graph_charts.figure(info, 0.0).data if one.name]
    assert names == ["Relu (1)", "Gemm (1)", KINDS["block"]]


def test_a_block_has_the_colour_of_its_most_frequent_operator_where_no_time_is_known():
    ops = ("Relu", "Conv", "Conv", "Gemm")
    chain = [graphs.node(f"n{i}", op, f"t{i}", f"t{i + 1}", scope=("stem",)) for i, op in enumerate(ops)]
    info = drawn(graphs.side(graphs.level(*chain)), "Operator", opened={()})
    assert [(one.what, one.category) for one in info.drawn] == [("block", "Conv")]


def test_operators_have_their_colours_by_time_before_frequency():
    found = times(graphs.model(), graphs.run(), graphs.optimized())
    assert graph_charts.order("Operator", rows(graphs.model(), found)) == ("Gemm", "Conv", "Relu")


def test_an_error_is_a_scale_and_of_a_block_the_largest():
    units = {(0, index): SimpleNamespace(error=error) for index, error in ((0, 0.25), (1, 0.5))}
    side = graphs.model()
    listed = rows(side, None, units)
    paint = Paint(mode="Error", times=None, order=(), optimized=False)
    folding = fold([one.scope for one in side.levels[0].nodes], [(0, 1), (1, 2)], {()})
    info = graph_charts.picture(folding, layout(2, [(0, 1)], no_worker), listed, paint)
    assert [one.value for one in info.drawn] == [0.5, None]
    assert "largest error 0.500" in info.drawn[0].hover
    assert f"{UNKNOWN['Error']} (1)" in [one.name for one in graph_charts.figure(info, 0.5).data]


def test_labels_that_have_no_room_are_cut_or_left_out():
    wide = [graphs.node(f"node{i}", "Relu", "x", f"y{i}") for i in range(30)]
    side = graphs.side(graphs.level(*wide))
    labels = [one.label for one in drawn(side, "Operator", room_px=300).drawn]
    assert labels.count("") == 29  # only the last one has nobody beside it
    assert all(one.label for one in drawn(side, "Operator", room_px=9_000).drawn)


def test_a_colour_means_the_same_on_both_sides():
    listed = [*rows(graphs.model()), *rows(graphs.optimized())]
    assert graph_charts.order("Operator", listed)[:2] == ("Conv", "Gemm")


def test_names_of_nodes_are_no_markup():
    evil = graphs.side(graphs.level(graphs.node("<b>x</b>", "Odd", "x", "y")))
    info = drawn(evil, "Operator")
    assert "&lt;b&gt;x" in info.drawn[0].hover
    figure = graph_charts.figure(info, 0.0)
    assert not any("<b>x" in text for one in figure.data for text in one.text or ())


def test_a_click_names_the_item_and_a_click_on_a_line_names_none():
    assert graph_charts.clicked([{"customdata": 2}]) == 2
    assert graph_charts.clicked([{"customdata": [3]}]) == 3
    assert graph_charts.clicked([{"x": 1.0}]) is None
    assert graph_charts.clicked([]) is None


def test_what_is_selected_and_found_has_a_ring_with_a_name():
    info = drawn(graphs.model(), "Operator", marked=[2], hits=[0, 2])
    names = [one.name for one in graph_charts.figure(info, 0.0).data]
    assert "selected (1)" in names
    assert "found (1)" in names


# --- layout


def test_the_layout_puts_everybody_on_his_level_and_lets_edges_pass():
    edges = [(0, 1), (1, 2), (0, 2)]
    found = layout(3, edges, run_job)
    assert not found.plain
    assert [y for _, y in found.points] == [0, 1, 2]
    assert [y for _, y in found.ways[2]] == [0, 1, 2]  # round the node that it passes
    assert found.ways[2][1][0] != found.points[1][0]


def test_a_constant_stands_right_above_its_first_reader():
    found = layout(6, [(0, 1), (1, 2), (2, 3), (4, 3)], run_job)  # 4 is a constant, 5 has no edge
    assert not found.plain
    assert [y for _, y in found.points] == [0, 1, 2, 3, 2, 0]
    assert len(found.ways[3]) == 2
    assert len(set(found.points)) == 6


def test_a_circle_of_folded_blocks_is_laid_out():
    found = layout(2, [(0, 1), (1, 0)], run_job)
    assert not found.plain
    assert [len(way) for way in found.ways] == [2, 2]


def test_where_the_worker_fails_items_stand_side_by_side():
    found = layout(3, [(0, 1), (0, 2)], no_worker)
    assert found.plain
    assert len(set(found.points)) == 3
    assert [y for _, y in found.points] == [0, 1, 1]


def test_nothing_is_laid_out_at_once():
    assert layout(0, [], no_worker) == Layout(points=(), ways=(), depth=0)


def test_three_thousand_nodes_are_bounded_work(monkeypatch: pytest.MonkeyPatch):
    count = 3_000
    edges = [(i, i + 1) for i in range(count - 1)] + [(i, count - 1) for i in range(0, count - 2, 3)]
    asked = []

    def see(job, plan, **how):
        asked.append(plan)
        return run_job(job, plan, **how)

    found = layout(count, edges, see)
    level = asked[0]["levels"]
    passed = sum(level[target] - level[source] - 1 for source, target in asked[0]["edges"])
    assert passed <= graph_layout.MOST_PASSED
    assert len(found.points) == count
    assert not found.plain
    assert len(found.ways) == len(edges)  # those that decide no place are drawn all the same


def test_the_longest_edges_are_left_out_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph_layout, "MOST_PASSED", 1)
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    assert edges_within_limit(edges, levels(4, edges)) == [0, 1, 2, 4]


def test_a_deep_graph_begins_at_its_inputs_or_around_what_is_marked():
    chain = [graphs.node(f"n{i}", "Relu", f"t{i}", f"t{i + 1}") for i in range(300)]
    side = graphs.side(graphs.level(*chain))
    first = graph_charts.figure(drawn(side, "Operator"), 0.0).layout.yaxis.range
    assert first[1] > 0 > first[0] > -100
    around = graph_charts.figure(drawn(side, "Operator", marked=[200]), 0.0).layout.yaxis.range
    assert around[0] < -200 < around[1]
