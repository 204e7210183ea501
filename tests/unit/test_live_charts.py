"""Pictures of what is still measured, as data: axes, the trail of estimates, and that all of it is JSON."""

from __future__ import annotations

import json
import math

import pytest

from dashboard.charts import live_charts


@pytest.mark.parametrize(
    "values", [[], [5.0], [0.0], [-3.0, -3.0], [0.99, 1.25], [8, 64.2], [1e-6, 3e-6], [1200, 98_000]]
)
def test_an_axis_reaches_around_its_values_by_few_round_ticks(values: list[float]) -> None:
    axis = live_charts.linear("x", values)
    low, high = axis["range"]
    assert low < high
    assert all(low <= one <= high for one in values)
    assert [axis["ticks"][0][0], axis["ticks"][-1][0]] == [low, high]
    assert 2 <= len(axis["ticks"]) <= live_charts.MOST_TICKS + 1
    texts = [text for _, text in axis["ticks"]]
    assert len(set(texts)) == len(texts)
    for value, text in axis["ticks"]:
        assert math.isclose(float(text.replace(",", "")), value, rel_tol=1e-9, abs_tol=1e-12)


def test_the_trail_joins_all_estimates_and_marks_the_one_that_is_shown() -> None:
    points = [
        {"key": key, "label": f"threads {key}", "p50_s": 0.001 * n, "rows_per_s": 1000.0 / n}
        for n, key in enumerate("ab", 1)
    ]
    drawn = live_charts.trail(points, "b")
    trail, shown = drawn["series"]
    assert trail["points"] == [(1.0, 1000.0, "threads a"), (2.0, 500.0, "threads b")]
    assert shown["points"] == [(2.0, 500.0, "threads b")]
    assert shown["size"] > trail["size"]
    assert all(one["hollow"] for one in drawn["series"])
    json.dumps(drawn)


def test_the_course_of_one_ratio_has_its_interval_that_narrows_and_wild_beginnings_are_cut() -> None:
    steps = [(0.5, 3.0, 0.1, 40.0), (1.0, 1.2, 1.0, 1.5), (2.5, 1.21, 1.15, 1.25)]
    drawn = live_charts.ratios({"threads 1": steps}, "ORT default")
    lower, upper, ratio = drawn["series"]
    assert [one["points"][-1] for one in (lower, upper, ratio)] == [
        (2.5, 1.15, ""),
        (2.5, 1.25, ""),
        (2.5, 1.21, ""),
    ]
    low, high = drawn["y"]["range"]
    assert 0 < low <= 1.0 < 1.25 <= high < 2  # of the first interval only what has room
    assert all(low <= (at or 0) <= high for one in drawn["series"] for _, at, _ in one["points"])
    assert (drawn["level"], drawn["wide"], drawn["legend"]) == (1.0, True, False)
    json.dumps(drawn)


def test_of_several_ratios_each_has_a_line_with_its_name() -> None:
    step = (1.0, 1.1, 1.0, 1.2)
    drawn = live_charts.ratios({"a": [step, step], "b": [step]}, "ORT default")
    assert [(one["name"], len(one["points"])) for one in drawn["series"]] == [("a", 2), ("b", 1)]
    assert drawn["legend"]
