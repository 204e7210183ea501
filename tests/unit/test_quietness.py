"""The answer to a self-test, on invented ones."""

from __future__ import annotations

from typing import Any

import pytest

from core.contrast import PRECISIONS, predicted_rounds
from core.quietness import answer, needed


def self_test(**changes: Any) -> dict[str, Any]:
    facts = {"grade": "A", "grade_reason": "Quiet.", "remedy": "", "sigma": 0.01, "seconds_per_round": 0.09}
    return facts | changes


def test_a_quiet_machine_may_publish() -> None:
    said = answer(self_test())
    assert said.publishable
    assert said.headline == "Yes, this machine is quiet enough to publish."
    assert (said.grade, said.reason, said.sigma) == ("A", "Quiet.", 0.01)
    assert answer(self_test(grade="B")).publishable


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"grade": "F"}, "No. A comparison on this machine would be rejected now."),
        ({"grade": "C"}, "No, not to publish; for a ranking it is quiet enough."),
        (
            {"grade": "B", "sigma": 0.08},
            "No, not to publish; for `--precision standard` it is quiet enough.",
        ),
        ({"grade": "C", "sigma": 0.5}, "No. This machine is too noisy for any of the presets now."),
        ({"grade": "C", "sigma": None}, "No. The self-test was too short to tell how quiet this machine is."),
    ],
)
def test_a_noisy_one_may_not_and_hears_what_it_is_good_for(changes: dict[str, Any], headline: str) -> None:
    said = answer(self_test(**changes))
    assert not said.publishable
    assert said.headline == headline


@pytest.mark.parametrize("sigma", [0.005, 0.01, 0.02, 0.04, 0.1])
def test_a_preset_that_fits_ends_at_the_look_that_suffices(sigma: float) -> None:
    for one in needed(self_test(sigma=sigma)):
        preset = PRECISIONS[one.precision]
        rounds = predicted_rounds(sigma, preset.target, looks=len(preset.looks))
        assert one.target == preset.target
        assert one.rounds >= rounds
        assert one.fits == (rounds <= preset.looks[-1])
        assert one.rounds in preset.looks if one.fits else one.rounds == rounds


def test_more_noise_needs_more_rounds() -> None:
    noisy, quiet = needed(self_test(sigma=0.5)), needed(self_test(sigma=0.005))
    assert all(more.rounds > less.rounds for more, less in zip(noisy, quiet, strict=True))
    assert not any(one.fits for one in noisy)


def test_seconds_are_those_of_the_rounds_and_must_fit_the_budget() -> None:
    quick, *_ = needed(self_test(sigma=0.02, seconds_per_round=0.5))
    assert quick.seconds == pytest.approx(4.0)
    assert quick.fits
    quick, *_ = needed(self_test(sigma=0.02, seconds_per_round=4.0))
    assert not quick.fits


def test_an_answer_is_plain_data() -> None:
    data = answer(self_test()).to_dict()
    assert data["needs"][0]["precision"] == "quick"
    assert data["publishable"] is True
