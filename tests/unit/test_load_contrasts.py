"""Contrasts of two configurations under the same traffic, by hand."""

from __future__ import annotations

import pytest

from core.evidence.load.contrasts import load_contrast
from core.evidence.load.load_types import RunResult
from tests.simulated_load import sample_run

BASELINE = (0.011, 0.012, 0.011, 0.012)


def runs(p99_s: tuple[float | None, ...], configuration: int = 0) -> list[RunResult]:
    return [
        sample_run(
            100,
            turn=turn,
            configuration=configuration,
            latency=[] if value is None else [{"p": 0.99, "value_s": value, "low_s": None, "high_s": None}],
        )
        for turn, value in enumerate(p99_s)
    ]


def test_the_ratio_has_the_interval_of_students_t_over_turns() -> None:
    found = load_contrast(runs((0.01,) * 4, 1), runs(BASELINE), 0.99)
    assert found is not None
    assert found["ratio"] == pytest.approx(1.1489, abs=1e-4)  # sqrt(1.1 * 1.2)
    assert found["ratio_low"] == pytest.approx(1.0606, abs=1e-4)  # t = 3.182, 3 degrees of freedom
    assert found["ratio_high"] == pytest.approx(1.2445, abs=1e-4)
    assert (found["verdict"], found["turns"], found["configuration"], found["baseline"]) == (
        "FASTER",
        4,
        1,
        0,
    )
    back = load_contrast(runs(BASELINE), runs((0.01,) * 4, 1), 0.99)
    assert back is not None
    assert back["verdict"] == "SLOWER"


def test_a_family_widens_the_interval() -> None:
    one, two = (load_contrast(runs((0.01,) * 4), runs(BASELINE), 0.99, family=n) for n in (1, 2))
    assert one is not None
    assert two is not None
    assert one["ratio_low"] is not None
    assert two["ratio_low"] is not None
    assert two["ratio_low"] < one["ratio_low"]


def test_small_differences_are_equivalent_and_uncertain_ones_undecided() -> None:
    alike = load_contrast(runs((0.01, 0.01001, 0.00999, 0.01)), runs((0.01,) * 4), 0.99)
    apart = load_contrast(runs((0.01, 0.02, 0.005, 0.01)), runs((0.01,) * 4), 0.99)
    assert alike is not None
    assert apart is not None
    assert (alike["verdict"], apart["verdict"]) == ("EQUIVALENT", "UNDECIDED")


def test_equal_numbers_have_no_interval() -> None:
    found = load_contrast(runs((0.01,) * 4), runs((0.012,) * 4), 0.99)
    assert found is not None
    assert (found["ratio_low"], found["verdict"]) == (None, "UNDECIDED")


def test_only_turns_that_both_have_count_and_three_are_too_few() -> None:
    assert load_contrast(runs((0.01, None, 0.01, 0.011)), runs(BASELINE), 0.99) is None
    found = load_contrast(runs((0.01, None, 0.01, 0.011, 0.01)), runs((*BASELINE, 0.011)), 0.99)
    assert found is not None
    assert found["turns"] == 4


def test_a_configuration_that_saturates_in_some_turns_is_not_compared() -> None:
    """The turns in which it kept up would favour it."""
    some = runs((0.01,) * 6)
    some[2] = {**some[2], "outcome": "saturated", "latency": []}
    assert load_contrast(some, runs((0.012,) * 6), 0.99) is None
    assert load_contrast(runs((0.012,) * 6), some, 0.99) is None


def test_turns_that_are_no_measurement_do_not_count() -> None:
    some = runs((0.01, 0.01, 0.01, 0.011, 0.012, 0.01))
    added = some[0]["harness"]
    assert added is not None
    for turn in (0, 1):
        some[turn] = {**some[turn], "harness": {**added, "accepted": False}}
    found = load_contrast(some, runs((0.012,) * 6), 0.99)
    assert found is not None
    assert found["turns"] == 4


def test_the_rate_is_the_one_that_was_asked_for() -> None:
    found = load_contrast(runs((0.01,) * 4), runs(BASELINE), 0.99, rate=30.0)
    assert found is not None
    assert found["rate_per_s"] == 30.0
