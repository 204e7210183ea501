"""dashboard.charts.variant_charts as data: which bars, which points, and that names cannot do harm."""

from __future__ import annotations

import html
from dataclasses import replace

import pytest

from core.evidence.node_savings import choices, keep_float
from dashboard import charts
from dashboard.charts import variant_charts
from tests.unit.test_node_savings import units


def test_the_bars_tell_what_stays_in_float() -> None:
    quantized, blocked = variant_charts.bars(units((0.08, 0.001), (0.02, 0.004)), ["n0"]).data
    assert (quantized.name, list(quantized.y)) == (variant_charts.QUANTIZED, [1])
    assert (blocked.name, list(blocked.y)) == (variant_charts.BLOCKED, [0])
    assert blocked.x[0] == pytest.approx(8)
    assert "saves 1.000 ms per run" in blocked.hovertext[0]


def test_no_more_bars_than_can_be_read() -> None:
    found = units(*[(0.01, 0.001)] * 50)
    assert len(variant_charts.bars(found, []).data[0].x) == variant_charts.MAX_BARS


def test_both_series_have_a_look_of_their_own_beside_the_colour() -> None:
    figure = variant_charts.bars(units((0.08, 0.001), (0.02, 0.004)), ["n0"])
    patterns = [trace.marker.pattern.shape for trace in figure.data]
    assert len(set(patterns)) == 2
    assert figure.layout.xaxis.title.text.endswith("(%)")


def test_no_bar_reaches_into_the_next_row() -> None:
    figure = variant_charts.bars(units((0.08, 0.001), (0.02, 0.004)), ["n0"])
    assert {trace.width for trace in figure.data} == {charts.BAR_WIDTH}


def test_the_curve_goes_from_everything_to_nothing() -> None:
    found = choices(units((0.08, 0.001), (0.02, 0.004)))
    drawn = variant_charts.curve(found, found[0]).data[0]
    assert [text.split("<br>")[0] for text in drawn.hovertext] == [
        "everything quantized",
        "1 in float",
        "2 in float",
    ]
    assert drawn.y[0] == pytest.approx(5)
    assert (drawn.x[-1], drawn.y[-1]) == (0, 0)
    assert "kept in float last: n0" in drawn.hovertext[1]


def test_the_choice_is_drawn_where_it_is_expected() -> None:
    found = units((0.08, 0.001), (0.02, 0.004))
    chosen = keep_float(found, ["n1"])
    figure = variant_charts.curve(choices(found), chosen)
    assert figure.data[1].x[0] == pytest.approx(100 * chosen.error)
    assert figure.data[1].y[0] == pytest.approx(1)
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol


def test_names_of_a_hostile_model_are_drawn_as_text_and_long_ones_keep_their_end() -> None:
    found = units((0.08, 0.001))
    name = "<script>alert(1)</script>" + "x" * 60 + "/Conv"
    found = replace(found, units=(replace(found.units[0], nodes=(name,)),))
    figure = variant_charts.bars(found, [])
    assert "<script>" not in figure.to_json()
    assert figure.layout.yaxis.ticktext[0].endswith("/Conv")
    assert len(html.unescape(figure.layout.yaxis.ticktext[0])) <= variant_charts.NAME_LIMIT
