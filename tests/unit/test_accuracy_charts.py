"""What the charts of accuracy show, asserted on their plain data; and that each figure can be drawn."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dashboard.charts.accuracy_charts import (
    MAX_POINTS,
    confused_pairs,
    confusion,
    confusion_info,
    differences,
    roc,
    roc_info,
    tradeoff,
)

MATRIX = [[8, 2, 0], [0, 5, 5], [0, 0, 0]]
NAMES = ["cat", "dog", "<b>cow</b>"]
ROWS = [10, 10, 0]


def test_shares_are_of_the_rows_of_a_class_and_a_class_without_rows_has_none() -> None:
    info = confusion_info(MATRIX, NAMES, ROWS)
    assert info.counts == MATRIX
    assert info.shares == [[0.8, 0.2, 0.0], [0.0, 0.5, 0.5], [None, None, None]]
    assert info.merged == 0


def test_names_of_classes_cannot_put_markup_into_the_figure() -> None:
    drawn = confusion(confusion_info(MATRIX, NAMES, ROWS)).to_json()
    assert drawn is not None
    text = json.loads(drawn)["layout"]["xaxis"]["ticktext"]
    assert text[2] == "&lt;b&gt;cow&lt;/b&gt;"


def test_zero_cells_have_no_number_and_a_hover_says_what_was_taken_for_what() -> None:
    figure = confusion(confusion_info(MATRIX, NAMES, ROWS))
    assert figure.data[0].text[0] == ["8", "2", ""]
    assert figure.data[0].customdata[0][1] == "cat predicted as dog<br>2 samples, 20.00% of its samples"
    assert figure.data[0].customdata[0][0].startswith("cat correct")


def test_of_many_classes_those_with_most_errors_are_shown_and_no_row_is_lost() -> None:
    classes = 40
    matrix = [[10 if i == j else 0 for j in range(classes)] for i in range(classes)]
    matrix[7][31] = 4
    matrix[20][3] = 2
    rows = [sum(line) for line in matrix]
    info = confusion_info(matrix, [f"c{k}" for k in range(classes)], rows, most=4)
    assert info.names == ["c3", "c7", "c20", "c31", "36 other classes"]
    assert sum(map(sum, info.counts)) == sum(map(sum, matrix))
    assert info.merged == 36
    assert info.shares[1][3] == 4 / 14
    assert info.counts[1][3] == 4
    assert len(confusion(info).layout.xaxis.ticktext) == 5


def test_the_most_mistaken_pairs_come_first() -> None:
    first, second = confused_pairs(MATRIX, NAMES, ROWS)
    assert (first.truth, first.said, first.rows, first.share) == ("dog", "<b>cow</b>", 5, 0.5)
    assert (second.truth, second.said, second.rows) == ("cat", "dog", 2)
    assert confused_pairs([[3, 0], [0, 4]], ["a", "b"], [3, 4]) == []


# --- curves

POINTS = ([0.0, 0.1, 0.6, 1.0], [0.0, 0.5, 1.0, 1.0])


def test_a_share_of_rows_without_an_answer_is_of_all_rows_of_the_class() -> None:
    assert confusion_info([[8, 0], [0, 5]], ["a", "b"], [10, 5]).shares == [[0.8, 0.0], [0.0, 1.0]]


def test_a_long_curve_keeps_its_ends_and_both_sides_of_each_large_step() -> None:
    n = 50_000
    alarms = [k / (n - 1) for k in range(n)]
    found = [0.2 if k < 30_000 else 1.0 for k in range(n)]
    line = roc_info("model", (alarms, found), area=None, threshold=0.5, at=(None, None))
    assert len(line.sensitivity) <= 2 * MAX_POINTS
    assert (line.false_alarms[0], line.false_alarms[-1]) == (0.0, 1.0)
    step = line.sensitivity.index(1.0)
    assert line.false_alarms[step - 1] == alarms[29_999]
    assert line.false_alarms[step] == alarms[30_000]
    assert line.point is None


def test_the_trade_off_shows_both_curves_and_the_threshold() -> None:
    figure = tradeoff([0.0, 0.5, 1.0], [1.0, 0.5, 0.0], [math.nan] * 3, threshold=0.6)
    assert figure.data[1].y == (None, None, None)  # there is no negative sample
    assert [line.name for line in figure.data] == ["sensitivity", "specificity"]
    assert len({line.line.dash for line in figure.data}) == 2  # told apart without their colours
    assert figure.layout.shapes[0].x0 == 0.6
    assert "threshold 0.6" in figure.to_json()


def test_a_curve_of_false_alarms_marks_the_threshold_and_names_its_area() -> None:
    line = roc_info("model", POINTS, area=0.91234, threshold=0.6, at=(0.5, 0.9))
    assert line.name == "model · area 0.9123"
    assert line.point is not None
    assert line.point == pytest.approx((0.1, 0.5))
    assert (line.false_alarms, line.sensitivity) == POINTS
    assert "sensitivity 50.00%" in roc([line]).to_json()


def test_models_in_one_figure_differ_by_dash_and_marker() -> None:
    lines = [roc_info("model", POINTS, area=None, threshold=0.6, at=(0.5, 0.9)) for _ in range(3)]
    drawn = roc(lines).data[1:]
    assert len({one.line.dash for one in drawn if one.mode == "lines"}) == 3
    assert len({one.marker.symbol for one in drawn if one.mode == "markers"}) == 3


# --- differences


def judged(label: str, difference: float, verdict: str) -> tuple[str, dict[str, Any]]:
    ends = {"low": difference - 0.01, "high": difference + 0.01}
    return label, {"difference": difference, **ends, "verdict": verdict}


def test_the_axis_of_differences_holds_every_interval_zero_and_delta() -> None:
    figure = differences([judged("int8", -0.004, "UNDECIDED")], reference="fp32", delta=0.02)
    low, high = figure.layout.xaxis.range
    assert figure.data[0].text[0].split("<br>")[1:3] == ["−0.40 points", "95 % CI [−1.40, +0.60]"]
    assert low < -2 < 0 < 0.6 < high
    assert low < -1.4


def test_each_verdict_is_a_series_with_a_word_of_its_own() -> None:
    rows = [judged("a", 0.0, "NOT_WORSE"), judged("b", -0.1, "WORSE"), judged("c", -0.02, "UNDECIDED")]
    figure = differences(rows, reference="fp32", delta=0.02)
    assert {one.name for one in figure.data} == {"not worse", "worse", "undecided"}
    assert len({one.marker.symbol for one in figure.data}) == 3
    texts = [one.text for one in figure.layout.annotations]
    assert "−2 accepted" in texts
    assert [one for one in texts if one in ("a", "b", "c")] == ["a", "b", "c"]
    worse = next(one for one in figure.data if one.name == "worse")
    assert worse.x[0] == pytest.approx(-10)
    assert worse.error_x.arrayminus[0] == pytest.approx(1)
