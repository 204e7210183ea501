"""The forest plot of a comparison, tested on its plain data; and that it can be drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dashboard.charts import live_charts
from dashboard.charts.compare_charts import (
    BASELINE,
    REJECTED,
    VERDICTS,
    ForestInfo,
    forest,
    forest_info,
    ratio_ticks,
)
from tests import builders

LABELS = {"a": "intra_op_num_threads 1", "b": "<b>bold</b>", "c": "PyTorch eager", "base": "ORT default"}


def contrast(candidate: str, ratio: float, half: float | None, verdict: str) -> dict[str, Any]:
    unknown = {"ratio_low": None, "ratio_high": None} if half is None else {}
    facts = {"candidate": candidate, "baseline": "base", "verdict": verdict, **unknown}
    return builders.contrast(ratio, half or 0.0, **facts)


FOUND = [
    contrast("a", 1.42, 0.03, "FASTER"),
    contrast("b", 1.003, 0.01, "EQUIVALENT"),
    contrast("c", 0.7, None, "UNDECIDED"),
]


def info_of(found: Sequence[Mapping[str, Any]] = FOUND, **how: Any) -> ForestInfo:
    return forest_info(found, LABELS, baseline="base", **{"margin": 0.02, **how})


def test_every_configuration_is_a_row_and_the_baseline_is_the_last() -> None:
    info = info_of()
    assert [row.label for row in info.rows] == [LABELS[one] for one in ("a", "b", "c", "base")]
    assert [row.verdict for row in info.rows] == ["FASTER", "EQUIVALENT", "UNDECIDED", BASELINE]
    assert [row.short for row in info.rows] == ["1.42× faster", "no difference", "undecided", "baseline"]
    assert info.rows[2].low is None
    assert info.band == (pytest.approx(1 / 1.02), 1.02)


def test_the_axis_holds_every_interval_and_the_band() -> None:
    info = info_of()
    low, high = info.axis
    assert low < 0.7
    assert high > 1.42 * 1.03
    narrow = info_of([], margin=0.1)
    assert narrow.axis[0] < 1 / 1.1
    assert narrow.axis[1] > 1.1


def test_a_contrast_without_a_ratio_is_left_out() -> None:
    info = info_of([{**FOUND[0], "ratio": None}])
    assert [row.verdict for row in info.rows] == [BASELINE]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1 / 1.03, 1.03, [1 / 1.03, 1 / 1.02, 1 / 1.01, 1.0, 1.01, 1.02, 1.03]),
        (0.6, 1.5, [1 / 1.6, 1 / 1.4, 1 / 1.2, 1.0, 1.2, 1.4]),
        (0.2, 30.0, [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]),
        (0.99, 1.5, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]),
    ],
)
def test_ticks_are_round_factors_to_both_sides_and_hold_one(
    low: float, high: float, expected: list[float]
) -> None:
    assert ratio_ticks(low, high) == pytest.approx(expected)


def test_the_forest_is_drawn_with_one_series_per_verdict_on_a_logarithmic_axis() -> None:
    figure = json.loads(forest(info_of()).to_json())
    series = {one["name"]: one for one in figure["data"]}
    assert set(series) == {VERDICTS[name][2] for name in ("FASTER", "EQUIVALENT", "UNDECIDED", BASELINE)}
    assert figure["layout"]["xaxis"]["title"]["text"] == "← slower · speed versus ORT default · faster →"
    assert len({one["marker"]["symbol"] for one in series.values()}) == 4  # not by colour alone
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert series["undecided"]["error_x"]["array"] == [0.0]


def test_names_from_outside_are_drawn_as_text() -> None:
    figure = forest(info_of()).to_json()
    assert "<b>" not in json.dumps(json.loads(figure)["layout"]["annotations"])


def test_slower_is_said_in_words_by_a_factor_above_1_wherever_it_stands() -> None:
    info = info_of([contrast("a", 0.5, 0.04, "SLOWER")])
    row = info.rows[0]
    assert row.short == "2.00× slower"
    assert "2.00× slower" in row.hover
    assert "95 % CI [1.92, 2.08]" in row.hover
    figure = json.loads(forest(info).to_json())
    slower = next(one for one in figure["data"] if one["name"] == "slower")
    assert slower["x"] == [0.5]  # left of 1
    axis = figure["layout"]["xaxis"]
    ticks = dict(zip(axis["ticktext"], axis["tickvals"], strict=False))
    assert min(axis["tickvals"]) < 1
    assert all(float(text.removesuffix("×")) >= 1 for text in axis["ticktext"])
    assert ticks


def test_the_axis_says_when_rows_are_compared() -> None:
    found = [{**FOUND[0], "per_row": True}]
    info = info_of(found)
    assert info.title == "← slower · speed per sample versus ORT default · faster →"
    assert "per sample" not in info_of().title


def test_what_was_rejected_has_no_colour_of_a_verdict() -> None:
    info = info_of(muted=["a"])
    assert [row.verdict for row in info.rows] == [REJECTED, "EQUIVALENT", "UNDECIDED", BASELINE]
    assert info.rows[0].short == "rejected"
    assert "faster" not in info.rows[0].short
    series = {one.name: one for one in forest(info).data}
    assert "faster" not in series
    assert series["rejected: no verdict"].marker.color == VERDICTS[BASELINE][0]
    nobody = info_of(muted=["a", "b", "c"])
    assert len({one.marker.color for one in forest(nobody).data}) == 1


def test_the_running_forest_has_a_bar_for_each_known_interval_and_no_baseline() -> None:
    info = info_of(final=False)
    drawn = live_charts.forest(info, "all")
    json.dumps(drawn)
    assert [row["ratio"] for row in drawn["rows"]] == pytest.approx([1.42, 1.003, 0.7])
    assert [row["low"] is not None for row in drawn["rows"]] == [True, True, False]
    assert drawn["rows"][0]["low"] == pytest.approx(1.42 / 1.03, rel=1e-4)
    assert drawn["x"]["range"][0] < 0.7
    few = info_of(FOUND[:1], final=False)
    assert drawn["height"] > live_charts.forest(few, "one")["height"]


def test_the_running_forest_has_the_words_and_ticks_of_the_finished_one() -> None:
    info = info_of(final=False)
    drawn = live_charts.forest(info, "all")
    assert drawn["x"]["title"] == info.title
    assert drawn["rows"][0]["label"] == LABELS["a"]
    assert drawn["rows"][0]["short"] == "1.42× faster so far"
    assert drawn["rows"][2]["short"] == "measuring… so far"
    assert live_charts.forest(info, "all", said=True)["rows"][0]["short"] == ""
    assert (1.0, "1×") in drawn["x"]["ticks"]
    assert len(drawn["x"]["ticks"]) == len(info.ticks)
