"""What the forest plot of a race shows, asserted on its plain data; and that it can be drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard.charts.compare_charts import (
    BASELINE,
    VERDICTS,
    forest,
    forest_info,
    live_forest,
    live_height,
    ratio_ticks,
)

LABELS = {"a": "intra_op_num_threads 1", "b": "<b>bold</b>", "c": "PyTorch eager", "base": "ORT default"}


def contrast(candidate: str, ratio: float, half: float | None, verdict: str) -> dict[str, Any]:
    return {
        "candidate": candidate,
        "baseline": "base",
        "ratio": ratio,
        "ratio_low": None if half is None else ratio * (1 - half),
        "ratio_high": None if half is None else ratio * (1 + half),
        "verdict": verdict,
        "rounds": 16,
    }


FOUND = [
    contrast("a", 1.42, 0.03, "FASTER"),
    contrast("b", 1.003, 0.01, "EQUIVALENT"),
    contrast("c", 0.7, None, "UNDECIDED"),
]


def test_every_contestant_is_a_row_and_the_baseline_is_the_last() -> None:
    info = forest_info(FOUND, LABELS, baseline="base", margin=0.02)
    assert [row.label for row in info.rows] == [LABELS[one] for one in ("a", "b", "c", "base")]
    assert [row.verdict for row in info.rows] == ["FASTER", "EQUIVALENT", "UNDECIDED", BASELINE]
    assert info.rows[0].short == "1.42×"
    assert info.rows[2].low is None
    assert info.band == (pytest.approx(1 / 1.02), 1.02)


def test_the_axis_holds_every_interval_and_the_band() -> None:
    info = forest_info(FOUND, LABELS, baseline="base", margin=0.02)
    low, high = info.axis
    assert low < 0.7
    assert high > 1.42 * 1.03
    narrow = forest_info([], LABELS, baseline="base", margin=0.1)
    assert narrow.axis[0] < 1 / 1.1
    assert narrow.axis[1] > 1.1


def test_a_contrast_without_a_ratio_is_left_out() -> None:
    info = forest_info([{**FOUND[0], "ratio": None}], LABELS, baseline="base", margin=0.02)
    assert [row.verdict for row in info.rows] == [BASELINE]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.97, 1.03, [0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03]),
        (0.6, 1.5, [0.6, 0.8, 1.0, 1.2, 1.4]),
        (0.2, 30.0, [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]),
    ],
)
def test_ticks_are_round_and_hold_one(low: float, high: float, expected: list[float]) -> None:
    assert ratio_ticks(low, high) == expected


def test_the_forest_is_drawn_with_one_series_per_verdict_on_a_logarithmic_axis() -> None:
    figure = json.loads(forest(forest_info(FOUND, LABELS, baseline="base", margin=0.02)).to_json())
    series = {one["name"]: one for one in figure["data"]}
    assert set(series) == {VERDICTS[name][2] for name in ("FASTER", "EQUIVALENT", "UNDECIDED", BASELINE)}
    assert len({one["marker"]["symbol"] for one in series.values()}) == 4  # not by colour alone
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert series["undecided"]["error_x"]["array"] == [0.0]


def test_names_from_outside_are_drawn_as_text() -> None:
    figure = forest(forest_info(FOUND, LABELS, baseline="base", margin=0.02)).to_json()
    assert "<b>" not in json.dumps(json.loads(figure)["layout"]["annotations"])


def test_a_rejected_race_has_no_colours_of_verdicts() -> None:
    figure = forest(forest_info(FOUND, LABELS, baseline="base", margin=0.02), muted=True)
    assert len({one.marker.color for one in figure.data}) == 1


def test_the_running_forest_has_a_bar_for_each_known_interval_and_no_baseline() -> None:
    info = forest_info(FOUND, LABELS, baseline="base", margin=0.02)
    option = live_forest(info)
    json.dumps(option)
    points, *bars = option["series"]
    assert [x for x, _ in points["data"]] == [1.42, 1.003, 0.7]
    assert [bar["data"][0][1] for bar in bars] == [0, 1]
    assert bars[0]["data"][0][0] == pytest.approx(1.42 * 0.97)
    assert option["xAxis"]["min"] < 0.7
    assert not option["animation"]
    assert live_height(info) > live_height(forest_info(FOUND[:1], LABELS, baseline="base", margin=0.02))
