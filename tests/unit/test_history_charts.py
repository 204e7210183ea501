"""All trials of a model as points: what is drawn where, what has no number, and what a brush selects."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from core.evidence.measurement import Trial
from core.show.table import csv_text
from dashboard.charts import saved
from dashboard.charts.history_charts import (
    LINES,
    NO_NUMBER,
    OUTCOMES,
    WHEN,
    Point,
    ordered,
    parallel,
    parallel_info,
    parallel_table,
    point_of,
    scatter,
    settings_of,
    unplaced,
)


def trial(number: int, **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "id": f"{number:016x}",
        "kind": "measure",
        "state": "COMPLETE",
        "spec": {
            "model": {"path": "m"},
            "session": {
                "intra_op_num_threads": number,
                "session_config_entries": {"session.intra_op.allow_spinning": "0"},
                "providers": [{"name": "CPUExecutionProvider"}],
            },
            "workload": {"use_io_binding": True},
        },
        "model_name": "m",
        "model_sha256": "",
        "key": "",
        "created_at": 1e9 + number,
        "result": {"latency": {"p50_s": 0.002, "p95_s": None}, "contrasts": [{"ratio": 1.5}]},
    }
    return Trial(**(facts | changes))


def point(number: int, **changes: Any) -> Point:
    facts: dict[str, Any] = {
        "id": f"{number:016x}",
        "at": 1e9 + number,
        "outcome": "complete",
        "numbers": {"p50": float(number)},
        "settings": {},
    }
    return Point(**(facts | changes))


def test_a_trial_becomes_its_numbers_in_units_and_its_settings() -> None:
    assert point_of(trial(4)) == Point(
        id=f"{4:016x}",
        at=1e9 + 4,
        outcome="complete",
        numbers={"p50": 2.0, "gain": 1.5},
        settings={
            "intra_op_num_threads": "4",
            "session.intra_op.allow_spinning": "0",
            "providers": "CPUExecutionProvider",
            "use_io_binding": "on",
        },
    )


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"state": "FAIL", "result": None}, "failed"),
        ({"state": "DAMAGED", "result": None, "spec": {}}, "failed"),
        ({"state": "RUNNING", "result": None}, "open"),
        ({"result": {"grade": "F"}}, "rejected"),
        ({"result": {"guard": {"breach": True, "why": "x"}}}, "breach"),
    ],
)
def test_what_became_of_a_trial_is_told_apart(changes: dict[str, Any], outcome: str) -> None:
    assert point_of(trial(1, **changes)).outcome == outcome
    looks = [(color, marker) for color, marker, _ in OUTCOMES.values()]
    assert len({color for color, _ in looks}) == len({marker for _, marker in looks}) == len(OUTCOMES)


def test_settings_that_do_not_differ_are_no_axis_and_those_that_vary_most_come_first() -> None:
    points = [
        point(number, settings={"same": "1", "twice": str(number % 2), "each": str(number)} | more)
        for number, more in enumerate([{}, {"once": "x"}, {}, {}])
    ]
    assert settings_of(points) == ["each", "twice", "once"]
    assert ordered(["16", "2", "default", "b", "A", "2"]) == ["default", "2", "16", "A", "b"]


def test_scatter_keeps_every_trial_and_puts_those_without_a_number_into_a_strip() -> None:
    points = [point(1), point(2, outcome="rejected"), point(3, outcome="failed", numbers={})]
    figure = scatter(points, WHEN, "p50")
    assert sorted(one for trace in figure.data for one in trace.customdata) == [one.id for one in points]
    [strip] = [trace for trace in figure.data if trace.yaxis == "y2"]
    assert (list(strip.y), strip.name) == ([NO_NUMBER], "failed or cancelled")
    assert figure.layout.yaxis.title.text == "p50 latency (ms)"
    assert unplaced(points, "p50") == 1
    assert len(scatter(points, "p50", WHEN).data) == 2


def test_numbers_far_apart_are_logarithmic_and_settings_keep_their_order() -> None:
    points = [point(number, settings={"t": str(number)}) for number in (1, 10, 2)]
    figure = scatter(points, "t", "p50")
    assert figure.layout.yaxis.type == "log"
    assert list(figure.layout.xaxis.categoryarray) == ["1", "2", "10"]
    names = list(csv.DictReader(io.StringIO(saved.csv_of(figure))))
    assert [row["t"] for row in names] == ["1", "10", "2"]


def test_parallel_lines_reach_every_axis_and_the_newest_are_drawn() -> None:
    points = [point(number, settings={"t": str(number % 3)}) for number in range(1, LINES + 11)]
    info = parallel_info([*points, point(0, numbers={}, outcome="failed", at=2e9)], "p50", ["t"])
    assert (len(info.points), info.left_out) == (LINES, 11)
    assert info.points[0].numbers == {}
    figure = parallel(info)
    drawn = {one for trace in figure.data for one in trace.customdata if one}
    assert len(drawn) == LINES
    rows = list(csv.DictReader(io.StringIO(csv_text(parallel_table(info)))))
    assert rows[1] == {
        "trial": points[-1].id,
        "outcome": "complete",
        "t": str((LINES + 10) % 3),
        "p50 latency (ms)": str(float(LINES + 10)),
    }


def test_one_value_alone_still_draws() -> None:
    for numbers in ({"p50": 3.0}, {}):
        info = parallel_info([point(1, numbers=numbers), point(2, numbers=numbers)], "p50", [])
        assert parallel(info).to_json()
