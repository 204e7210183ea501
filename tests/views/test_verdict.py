"""A verdict as text: what is said of a race, how sure, and what is never said."""

from __future__ import annotations

from typing import Any

import pytest

from core.comparison import Comparison, Contestant
from dashboard.panels import verdict


def contrast(**changes: Any) -> dict[str, Any]:
    return {
        "candidate": "c" * 16,
        "baseline": "b" * 16,
        "ratio": 1.42,
        "ratio_low": 1.38,
        "ratio_high": 1.46,
        "verdict": "FASTER",
        "half_width": 0.028,
        "sigma": 0.05,
        "rounds": 16,
        "margin": 0.02,
        "wall_s": 9.0,
        "notes": [],
    } | changes


def race(*contrasts: dict[str, Any], **result: Any) -> Comparison:
    return Comparison(
        id="r" * 16,
        state="COMPLETE",
        model_name="mlp",
        model_sha256="",
        contestants=(
            Contestant(trial="c" * 16, label="threads 1", role="candidate"),
            Contestant(trial="b" * 16, label="my baseline", role="baseline"),
            Contestant(trial="a" * 16, label="ORT default", role="anchor"),
        ),
        protocol={"target": 0.03, "margin": 0.02, "looks": [8, 16, 32, 64], "budget_s": 30},
        created_at=0.0,
        result={"contrasts": list(contrasts), "grade": "B", "remedy": "Stop the others."} | result,
    )


def test_the_card_says_factor_interval_rounds_time_and_precision() -> None:
    one = contrast()
    card = verdict.card(race(one), one)
    assert card.headline == "1.42× faster, 95 % [1.38, 1.46]"
    assert card.against == "against my baseline"
    assert card.facts == ["16 rounds", "9.0 s", "known to ±2.8 % (asked: ±3 %)"]
    assert (card.color, card.advice, card.rejected) == ("green", "", False)


def test_no_difference_is_an_answer() -> None:
    one = contrast(ratio=1.004, ratio_low=0.995, ratio_high=1.013, verdict="EQUIVALENT")
    card = verdict.card(race(one), one)
    assert card.headline.startswith("No difference larger than 2 %")
    assert card.advice == ""


def test_an_open_question_says_how_many_rounds_it_takes_and_what_to_do() -> None:
    one = contrast(ratio=1.02, ratio_low=0.97, ratio_high=1.08, verdict="UNDECIDED", sigma=0.1)
    card = verdict.card(race(one), one)
    assert card.headline == "Undecided: between 0.97× and 1.08×"
    needed = verdict.rounds_to_decide(race(one), one)
    assert needed is not None
    assert card.advice.startswith(f"About {needed:,} rounds would decide it here.")
    assert "higher precision or a larger budget" in card.advice


@pytest.mark.parametrize("ratio", [1.0, 1.01, 1.03, 0.97])
def test_more_noise_takes_more_rounds(ratio: float) -> None:
    quiet, noisy = (contrast(ratio=ratio, sigma=sigma) for sigma in (0.02, 0.08))
    fewer, more = (verdict.rounds_to_decide(race(one), one) for one in (quiet, noisy))
    assert fewer is not None
    assert more is not None
    assert fewer < more
    assert verdict.rounds_to_decide(race(contrast(sigma=None)), contrast(sigma=None)) is None


def test_a_question_that_enough_rounds_left_open_gets_no_number_of_rounds() -> None:
    one = contrast(ratio=1.5, ratio_low=0.9, ratio_high=2.5, verdict="UNDECIDED", sigma=0.01, rounds=64)
    assert not verdict.card(race(one), one).advice.startswith("About")


def test_a_rejected_race_is_no_verdict_but_keeps_its_numbers() -> None:
    one = contrast()
    card = verdict.card(race(one, grade="F"), one)
    assert card.headline == "Rejected: no verdict (1.42× faster, 95 % [1.38, 1.46])"
    assert (card.rejected, card.color, card.advice) == (True, "red", "Stop the others.")


def test_outputs_that_differ_are_told_with_the_verdict() -> None:
    one = contrast(notes=["outputs differ: largest error 0.5 of the largest magnitude"])
    assert verdict.card(race(one), one).warnings == [
        "Outputs differ: largest error 0.5 of the largest magnitude."
    ]


def test_too_few_rounds_have_no_interval() -> None:
    one = contrast(ratio_low=None, ratio_high=None, half_width=None, verdict="UNDECIDED", rounds=1)
    card = verdict.card(race(one), one)
    assert card.facts[0] == "1 round"
    assert "no interval (asked: ±3 %)" in card.facts
    assert verdict.short({"contrasts": [one]}) == "undecided"


def test_the_contrast_that_counts_comes_first() -> None:
    default = contrast(baseline="a" * 16, ratio=2.0)
    found = verdict.contrasts_of(race(contrast(), default, contrast(candidate="b" * 16)), "c" * 16)
    assert [one["baseline"][0] for one in found] == ["b", "a"]
    assert verdict.contrasts_of(race(), "c" * 16) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1.42× faster"),
        ({"ratio": 0.5, "ratio_low": 0.48, "ratio_high": 0.52, "verdict": "SLOWER"}, "2.00× slower"),
        ({"verdict": "EQUIVALENT"}, "no difference"),
        ({"verdict": "UNDECIDED"}, "undecided"),
    ],
)
def test_a_table_has_the_verdict_in_a_few_characters(changes: dict[str, Any], words: str) -> None:
    assert verdict.short({"contrasts": [contrast(**changes)], "grade": "A"}) == words
    assert verdict.short({"contrasts": [contrast(**changes)], "grade": "F"}) == "rejected"


def test_what_never_raced_has_no_verdict() -> None:
    assert verdict.short({}) == verdict.short({"contrasts": []}) == ""


def test_a_self_test_says_what_noise_looks_like_here() -> None:
    test = {"when": "before", "ratio": 1.001, "ratio_low": 0.99, "ratio_high": 1.012, "rounds": 12}
    assert verdict.self_test_lines(race(self_tests=[test])) == [
        "Before the race: 1.001×, 95 % [0.990, 1.012], 12 rounds"
    ]
    assert verdict.self_test_lines(race()) == []
