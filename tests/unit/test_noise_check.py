"""The answer to a self-test, on invented ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.evidence.continuation import parts
from core.evidence.noise_check import evaluate, needed
from core.evidence.result import self_test_result
from core.evidence.speedup_interval import ASSUMED_PRIOR, predicted_launches
from core.spec.effort import EFFORTS
from tests import raw_comparisons

BUSY = {"words": "under background load: chromium used 1.0 cores", "cores": 1.0}


def self_test(**changes: Any) -> dict[str, Any]:
    facts = {
        "grade": "A",
        "half_width": 0.005,
        "grade_reason": "Quiet.",
        "remedy": "",
        "busy": None,
        "sigma": 0.01,
        "sigma_between": 0.002,
        "seconds_per_generation": 1.5,
        "rounds_per_generation": 8.0,
    }
    return facts | changes


def test_a_quiet_machine_may_publish() -> None:
    said = evaluate(self_test())
    assert said.publishable
    assert said.headline == "Noise check: passed (±0.5 %)"
    assert (said.grade, said.reason, said.sigma, said.sigma_between) == ("A", "Quiet.", 0.01, 0.002)
    assert said.busy == ""
    assert evaluate(self_test(grade="B", half_width=0.02)).publishable


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"grade": "F"}, "failed (A/A control failed)"),
        ({"grade": "C", "half_width": 0.05}, "not passed (±5 %; enough for a ranking)"),
        ({"busy": BUSY}, "not passed (±0.5 %, background load)"),
        (
            {"grade": "B", "half_width": 0.02, "sigma_between": 0.025, "sigma": 0.05},
            "not passed (±2 %; enough for effort standard)",
        ),
        ({"grade": "C", "half_width": 0.09, "sigma": 0.9}, "not passed (±9 %; too noisy for any effort)"),
        ({"sigma": None}, "not passed (±0.5 %; the test was too short to tell more)"),
    ],
)
def test_a_noisy_or_busy_one_may_not_and_hears_what_it_is_good_for(
    changes: dict[str, Any], headline: str
) -> None:
    said = evaluate(self_test(**changes))
    assert not said.publishable
    assert said.headline == f"Noise check: {headline}"


def test_a_machine_that_is_busy_says_so_beside_its_numbers() -> None:
    said = evaluate(self_test(busy=BUSY))
    assert said.busy == BUSY["words"]
    assert (said.grade, said.needs) == ("A", evaluate(self_test()).needs)  # what the A/A test shows stays


@pytest.mark.parametrize("between", [0.001, 0.003, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("within", [0.005, 0.05])
def test_a_preset_that_fits_ends_at_the_interim_analysis_that_suffices(between: float, within: float) -> None:
    for one in needed(self_test(sigma=within, sigma_between=between, seconds_per_generation=1e-3)):
        preset = EFFORTS[one.precision]
        deviation = math.sqrt(between**2 + within**2 / 8)
        units = predicted_launches(
            deviation, preset.target, looks=parts(len(preset.looks)), prior_df=ASSUMED_PRIOR.df
        )
        assert one.target == preset.target
        assert one.fits == (units <= preset.looks[-1])
        assert one.generations == (min(look for look in preset.looks if look >= units) if one.fits else units)


def test_more_noise_of_either_kind_needs_more_generations() -> None:
    quiet = needed(self_test(sigma=0.005))
    for noisy in (needed(self_test(sigma=0.5)), needed(self_test(sigma_between=0.2))):
        assert all(more.generations > less.generations for more, less in zip(noisy, quiet, strict=True))
        assert not any(one.fits for one in noisy)
    deeper = needed(self_test(sigma=0.5, rounds_per_generation=64.0))
    shallow = needed(self_test(sigma=0.5))
    assert all(more.generations > less.generations for more, less in zip(shallow, deeper, strict=True))


def test_seconds_are_those_of_the_generations_and_must_fit_the_budget() -> None:
    quick, *_ = needed(self_test(seconds_per_generation=2.0))
    assert (quick.generations, quick.seconds, quick.fits) == (4, 8.0, True)
    quick, *_ = needed(self_test(seconds_per_generation=8.0))
    assert (quick.seconds, quick.fits) == (32.0, False)  # the budget is 30 s


@pytest.mark.parametrize(
    "name", ["sigma", "sigma_between", "seconds_per_generation", "rounds_per_generation"]
)
def test_a_self_test_that_does_not_tell_all_of_it_foretells_nothing(name: str) -> None:
    assert needed(self_test(**{name: None})) == ()
    left = {key: value for key, value in self_test().items() if key != name}
    assert needed({"sigma": None, **left}) == ()


def test_self_tests_of_a_version_with_one_pair_of_processes_are_still_told() -> None:
    old = {"grade": "B", "grade_reason": "So.", "remedy": "Do.", "sigma": 0.01, "seconds_per_round": 0.09}
    said = evaluate(old)
    assert (said.publishable, said.needs, said.busy, said.sigma_between) == (False, (), "", None)
    assert "too short" in said.headline


def test_the_answer_to_a_comparison_of_one_alone() -> None:
    quiet = evaluate(
        self_test_result(
            raw_comparisons.evidence(raw_comparisons.record([0.001], generations=9, noise=0.002))
        )
    )
    assert quiet.publishable
    wild = raw_comparisons.record([0.001], generations=9, noise=0.05, between=0.1)
    assert not evaluate(self_test_result(raw_comparisons.evidence(wild))).publishable
    fault = evaluate(
        self_test_result(
            raw_comparisons.evidence(raw_comparisons.record([0.001], generations=9, control=1.2))
        )
    )
    assert (fault.grade, fault.publishable) == ("F", False)


def test_the_needs_are_those_of_the_efforts_from_the_quickest() -> None:
    found = evaluate(self_test())
    assert found.needs[0].precision == "quick"
    assert found.publishable is True
