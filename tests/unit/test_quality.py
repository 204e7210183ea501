"""One statement of how good an answer is, on invented results."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from core.evidence.quality import (
    BUSY,
    CONTROL_FAILED,
    NO_INTERVAL,
    NOT_PAUSED,
    quality,
    regraded,
    trial_grade,
)
from core.evidence.verdict import Grade, Verdict
from tests.builders import busy_machine


def answer(half_width: float | None = 0.016, verdict: str = "FASTER", **changes: Any) -> dict[str, Any]:
    return {"baseline": "default", "half_width": half_width, "verdict": verdict, "holds": True} | changes


def result(*contrasts: dict[str, Any], grade: str = "B", **changes: Any) -> dict[str, Any]:
    return {"grade": grade, "busy": None, "contrasts": list(contrasts)} | changes


@pytest.mark.parametrize(
    ("half_width", "grade"),
    [(0.01, "A"), (0.011, "B"), (0.03, "B"), (0.031, "C"), (0.10, "C"), (0.101, "D"), (None, "D")],
)
def test_the_grade_is_that_of_the_precision(half_width: float | None, grade: str) -> None:
    found = quality(result(answer(half_width), grade="A"))
    assert found is not None
    assert found.grade == grade == Grade.of(half_width)


def test_the_reason_is_the_precision_and_what_limits_it() -> None:
    assert quality(result(answer())).words == "B: ±1.6 %"  # type: ignore[union-attr]
    assert quality(result(answer(None))).reasons == (NO_INTERVAL,)  # type: ignore[union-attr]
    full = quality(result(answer(0.31, "UNDECIDED"), busy=busy_machine()))
    assert full is not None
    assert full.label == "Grade D: ±31 %, undecided, background load"
    assert quality(result(answer(0.004, grade="B"))).words == f"B: ±0.4 %, {NOT_PAUSED}"  # type: ignore[union-attr]


def test_a_result_of_a_version_without_grade_d_is_graded_by_its_interval() -> None:
    assert trial_grade(result(answer(0.91, grade="C"), grade="C")) is Grade.D


@pytest.mark.parametrize(
    ("stored", "grades"),
    [
        (result(answer(0.91, grade="C"), grade="C"), ("D", ["D"])),
        (result(answer(0.004, grade="B"), grade="B"), ("B", ["B"])),  # processes could not be paused
        (result(answer(0.004, grade="A"), grade="C"), ("A", ["A"])),  # that of the whole comparison
        (result(answer(None, grade="C"), grade="C"), ("D", ["D"])),
        (result(answer(0.004, grade="F", holds=False), grade="C"), ("F", ["F"])),
        (result(answer(0.2), grade="F"), ("F", [None])),
    ],
)
def test_a_stored_result_has_the_grade_that_is_shown(stored: Any, grades: Any) -> None:
    found = regraded(stored)
    shown = quality(stored)
    assert shown is not None
    assert (found["grade"], [one.get("grade") for one in found["contrasts"]]) == grades
    assert found["grade"] == shown.grade
    assert regraded(found) == found
    assert type(found["grade"]) is str  # plain data, as YAML and JSON take it


def test_a_result_without_a_grade_gets_none() -> None:
    assert regraded({"profile": 1}) == {"profile": 1}


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_what_is_decided_on_a_quiet_machine_is_green_or_blue(verdict: Verdict) -> None:
    rest = ((), (answer(0.002),), (answer(0.002, holds=False),))
    for case in itertools.product((None, busy_machine()), (0.001, 0.02, 0.05, 0.5, None), rest):
        is_green_or_blue_only_where_decided(verdict, *case)


def is_green_or_blue_only_where_decided(
    verdict: Verdict, busy: Any, half_width: float | None, others: tuple[dict[str, Any], ...]
) -> None:
    found = quality(result(answer(half_width, verdict), *others, busy=busy, grade="A"))
    assert found is not None
    doubtful = verdict is Verdict.UNDECIDED or busy or not all(one["holds"] for one in others)
    if found.color in ("green", "blue"):
        assert not doubtful
    if half_width == 0.001 and not doubtful:
        assert found.color == "green"
    if busy:
        assert found.color == "orange"
        assert found.icon not in {one.icon for one in (*Grade, *Verdict)}
    assert (BUSY in found.reasons) == bool(busy)


@pytest.mark.parametrize(
    "failed",
    [result(answer(0.002), grade="F"), result(answer(0.002, holds=False), grade="A")],
)
def test_a_failed_control_leaves_nothing_but_that(failed: dict[str, Any]) -> None:
    found = quality(failed)
    assert found is not None
    assert (found.grade, found.reasons, found.color) == ("F", (CONTROL_FAILED,), "red")


def test_several_answers_are_as_good_as_the_worst_and_say_how_many_are_open() -> None:
    found = quality(
        result(answer(0.002), answer(0.04, "UNDECIDED"), answer(0.5, holds=False), answer(baseline="other"))
    )
    assert found is not None
    assert found.words == "C: up to ±4 %, 1 of 3 rejected, 1 of 3 undecided"


def test_bounds_alone_tell_the_precision_and_a_self_test_has_no_verdict_to_be_open() -> None:
    gain = {"ratio": 2.0, "ratio_low": 1.9, "ratio_high": 2.1, "verdict": "FASTER"}
    assert quality(result(grade="B"), [gain]).words == "C: ±5 %"  # type: ignore[union-attr]
    for bound in ("ratio", "ratio_low", "ratio_high"):  # what lacks one has no precision
        assert quality(result(grade="B"), [{**gain, bound: None}]).reasons == (NO_INTERVAL,)  # type: ignore[union-attr]
    test = {"half_width": 0.005, "grade": "A", "busy": None}
    assert quality(test, [test]).words == "A: ±0.5 %"  # type: ignore[union-attr]


def test_without_a_grade_or_an_answer_there_is_what_is_stored() -> None:
    assert quality(None) is None is trial_grade({})
    assert quality(result(grade="B")).words == "B: good"  # type: ignore[union-attr]
