"""Charts of profiles as data: areas, a searched timeline, the roofline, and two profiles over one another."""

from __future__ import annotations

import pytest

from core.evidence import roofline
from core.wire.profile import Tensor
from dashboard.charts import profile_charts, profile_pair_charts, roofline_charts
from dashboard.charts.profile_charts import ProviderNames
from tests.builders import PEAK_TIMES
from tests.unit.test_charts import node, profile, span

RAN = ProviderNames()


def matrix(side: int) -> Tensor:
    return Tensor(dtype="float32", shape=(side, side))


[PEAK] = roofline.peaks_of({"times": [PEAK_TIMES]})


def test_tiles_of_nodes_add_up_to_their_operator_type() -> None:
    one = profile([node("a", "Conv", 0.6), node("b", "Conv", 0.3), node("c", "Relu", 0.1)])
    tiles = profile_charts.treemap_info(one, RAN, limit=2)
    types = {tile.label: tile.ms for tile in tiles if not tile.parent}
    assert types == pytest.approx({"Conv": 900, "Relu": 100})
    for tile in tiles:
        if not tile.parent:
            parts = [part.ms for part in tiles if part.parent == tile.id]
            assert sum(parts) == pytest.approx(tile.ms)
    assert "1 other nodes" in [tile.label for tile in tiles]  # beyond the limit
    assert len({tile.id for tile in tiles}) == len(tiles)
    drawn = profile_charts.treemap(tiles).data[0]
    assert sum(drawn.values) == pytest.approx(1000)  # a type adds nothing to its nodes


def test_a_search_of_the_timeline_mutes_what_is_not_found() -> None:
    spans = [span("Conv", 0.0, 0.4), span("Relu", 0.5, 0.1), span("Conv", 0.7, 0.2)]
    one = profile([node("a", "Conv", 0.6)], spans)
    whole = profile_charts.timeline_info(one, RAN)
    assert whole.found is None
    found = profile_charts.timeline_info(one, RAN, words="CONV")
    assert found.found == 2
    assert found.span_ms == pytest.approx((0.0, 900.0))
    assert {one.op_type: len(one.ms) for one in found.bundles} == {"Conv": 2, profile_charts.NOT_FOUND: 1}
    assert sum(len(one.ms) for one in found.bundles) == sum(len(one.ms) for one in whole.bundles)
    zoomed = profile_charts.timeline(profile_charts.timeline_info(one, RAN, words="relu"), zoom=True)
    low, high = zoomed.layout.xaxis.range
    assert 490 < low < 500
    assert 600 < high < 610
    nothing = profile_charts.timeline_info(one, RAN, words="no such")
    assert (nothing.found, nothing.span_ms) == (0, None)
    assert profile_charts.timeline(nothing, zoom=True).layout.xaxis.range[0] == 0


def test_two_profiles_lie_over_one_another() -> None:
    one = profile([node("a", "Conv", 0.6), node("b", "Relu", 0.1)], [span("Conv", 0.0, 0.6)])
    other = profile([node("a", "Conv", 0.2), node("c", "Gelu", 0.3)], [span("Gelu", 0.0, 0.3)])
    pairs = profile_pair_charts.pair_info(one, other)
    assert [(pair.op_type, pair.nodes) for pair in pairs] == [
        ("Conv", (1, 1)),
        ("Gelu", (0, 1)),
        ("Relu", (1, 0)),
    ]
    assert [pair.difference_ms for pair in pairs] == pytest.approx([-400, 300, -100])
    drawn = profile_pair_charts.pair(pairs, ("one", "<b>other</b>"))
    assert [bar.name for bar in drawn.data] == ["A: one", "B: &lt;b&gt;other&lt;/b&gt;"]
    assert list(drawn.data[1].x) == pytest.approx([200, 300, 0])
    both = profile_pair_charts.pair_timeline_info(one, other, (RAN, RAN))
    assert both.lanes == ["A · thread 1", "B · thread 1"]
    assert {bundle.op_type: bundle.lane for bundle in both.bundles} == {"Conv": [0], "Gelu": [1]}


def test_the_roofline_draws_both_roofs_and_hollow_what_is_too_short() -> None:
    shapes = {"inputs": (matrix(1024), matrix(1024)), "outputs": (matrix(1024),)}
    long = node("long", "MatMul", 0.05, **shapes)
    short = node("short", "Add", 9e-6, inputs=(matrix(8), matrix(8)), outputs=(matrix(8),))
    found = roofline.points(profile([long, short]), PEAK)
    figure = roofline_charts.roofline(found, PEAK)
    _, roof, *dots = figure.data
    hollow = [(one.name, [symbol.endswith("-open") for symbol in one.marker.symbol]) for one in dots]
    assert hollow == [("MatMul", [False]), ("Add", [True])]
    assert dots[0].y == pytest.approx([2 * 1024**3 / 0.05 / 1e9])
    assert max(roof.y) == pytest.approx(100)
    at_ridge = roof.x.index(pytest.approx(10.0))
    assert roof.y[at_ridge] == pytest.approx(100)
    assert roof.y[0] == pytest.approx(roof.x[0] * 10)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert len(roofline_charts.roofline(found, None).data) == len(dots)
    assert roofline_charts.roofline([], None).data == ()
