"""A verdict as text: its statement, its uncertainty, and statements that never occur."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.evidence.speedup_interval import contrast as estimate
from core.evidence.verdict import (
    NOT_KNOWN,
    Verdict,
    is_rejected,
    measurable_direction,
    measured,
    parts,
    precision_text,
    ratio_is_known,
    tick,
    words,
)
from core.show import verdict
from core.store import PRUNED
from tests import builders
from tests.builders import busy_machine
from tests.reading import numbers, tells

OLD = ("generations", "sigma_between", "between_from", "within_half_width", "between_half_width", "holds")


def contrast(**changes: Any) -> dict[str, Any]:
    facts = {
        "within_half_width": 0.026,
        "between_half_width": 0.006,
        "between_from": "race",
        "sigma": 0.05,
        "sigma_between": 0.01,
        "grade": "B",
        "candidate": "c" * 16,
        "baseline": "b" * 16,
    }
    return builders.contrast() | facts | changes


def older(**changes: Any) -> dict[str, Any]:
    """A contrast as versions stored it that had one process of each configuration."""
    return {name: value for name, value in contrast(**changes).items() if name not in OLD}


def rejected(**changes: Any) -> dict[str, Any]:
    why = "Two copies of the same configuration differed by 2.1 % in the A/A test of this race."
    facts: dict[str, Any] = {"ratio": 1.02, "ratio_low": 1.01, "ratio_high": 1.03, "verdict": "UNDECIDED"}
    return contrast(**facts, grade="F", holds=False, holds_reason=why, notes=[why], **changes)


def comparison(*contrasts: dict[str, Any], **result: Any) -> Comparison:
    return builders.comparison(
        {},
        contestants=(
            Contestant(trial="c" * 16, label="threads 1", role="candidate"),
            Contestant(trial="b" * 16, label="mine", role="baseline"),
            Contestant(trial="a" * 16, label="ORT default", role="anchor"),
        ),
        protocol={"target": 0.03, "margin": 0.02, "looks": [4, 6, 9, 14], "budget_s": 30},
        result={
            "contrasts": list(contrasts),
            "grade": "B",
            "remedy": "Stop the others.",
            "generations": [{"generation": number, "rounds": 6} for number in range(9)],
        }
        | result,
    )


def trials(**changes: Any) -> list[Trial]:
    return [builders.trial(name * 16, **({"result": {}} | changes)) for name in "cba"]


# --- what an interval says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "says", "sure"),
    [
        (1.1, 1.2, "FASTER", "FASTER"),
        (0.8, 0.9, "SLOWER", "SLOWER"),
        (0.9, 1.1, "UNDECIDED", None),
        (1.0, 1.1, "UNDECIDED", None),  # 1 itself is no difference
        (0.9, 1.0, "UNDECIDED", None),
        (1 / 1.02, 1.02, "EQUIVALENT", None),  # the margin itself is within
        (1.005, 1.01, "EQUIVALENT", "FASTER"),
        (0.99, 0.995, "EQUIVALENT", "SLOWER"),
        (None, 1.2, "UNDECIDED", None),
        (1.1, None, "UNDECIDED", None),
    ],
)
def test_an_interval_decides_and_its_ends_count(
    low: float | None, high: float | None, says: str, sure: str | None
) -> None:
    assert Verdict.of(low, high, 0.02) == says
    assert measurable_direction({"ratio_low": low, "ratio_high": high}) == sure


# --- the card -----------------------------------------------------------------------------------------------


def test_the_card_says_factor_interval_generations_time_and_precision() -> None:
    one = contrast()
    card = verdict.card(comparison(one), one)
    assert card.headline == "1.42× faster, 95 % CI [1.38, 1.46]"
    assert tells(card.against, "mine")
    assert [numbers(one) for one in card.facts] == [[9, 54], [9.0], [2.8, 3]]
    assert numbers(card.noise) == [0.6, 2.6]
    assert (card.color, card.advice, card.reason, card.rejected) == ("green", "", "", False)


def test_disturbed_rounds_and_rows_are_told() -> None:
    one = contrast(flagged_rounds=3, per_row=True)
    card = verdict.card(comparison(one), one)
    assert numbers(card.facts[0]) == [9, 54, 3]
    assert card.against != verdict.card(comparison(contrast()), contrast()).against  # it is per row


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("race", "between processes ±0.6 %, within ±2.6 %"),
        ("history", "between processes ±0.6 % (from earlier comparisons on this machine), within ±2.6 %"),
        ("assumed", "between processes ±0.6 % (assumed: too few launches), within ±2.6 %"),
    ],
)
def test_where_the_spread_between_processes_is_known_from_is_said(source: str, words: str) -> None:
    assert verdict.noise_words(contrast(between_from=source)) == words


def test_parts_that_are_not_told_apart_are_not_invented() -> None:
    unknown = contrast(within_half_width=None, between_half_width=None)
    assert numbers(verdict.noise_words(unknown)) == []
    assert verdict.noise_words(contrast(half_width=None)) == ""


def test_the_parts_are_those_that_the_estimator_gives() -> None:
    log_ratios = [[0.10, 0.12, 0.11], [0.14, 0.13, 0.15], [0.09, 0.08, 0.10], [0.12, 0.11, 0.13]]
    found = estimate(log_ratios).to_dict()
    between, within = found["between_half_width"], found["within_half_width"]
    assert tells(verdict.noise_words(found), f"±{100 * between:.2g} %")
    assert verdict.noise_words(found).endswith(f"within ±{100 * within:.2g} %")
    assert between**2 + within**2 == pytest.approx(found["half_width"] ** 2)


def test_no_difference_is_an_answer() -> None:
    one = contrast(ratio=1.004, ratio_low=0.995, ratio_high=1.013, verdict="EQUIVALENT")
    card = verdict.card(comparison(one), one)
    assert tells(card.headline.lower(), Verdict.EQUIVALENT.word, "2 %")
    assert card.advice == ""


UNDECIDED: dict[str, Any] = {
    "ratio": 1.02, "ratio_low": 0.97, "ratio_high": 1.08, "verdict": "UNDECIDED", "sigma": 0.1,
}  # fmt: skip


def test_an_open_question_says_how_many_generations_it_takes_and_what_to_do() -> None:
    one = contrast(**UNDECIDED)
    card = verdict.card(comparison(one), one)
    assert tells(card.headline.lower(), Verdict.UNDECIDED.word, "0.97×", "1.08×")
    needed = verdict.launches_to_decide(comparison(one), one)
    assert needed is not None
    assert needed > 9
    assert numbers(card.advice) == [needed]
    exact = comparison(one)
    exact.protocol["runs"] = 100  # nothing can be added to a race of so many runs
    assert verdict.card(exact, one).advice not in ("", card.advice)


@pytest.mark.parametrize("ratio", [1.0, 1.01, 1.03, 0.97])
@pytest.mark.parametrize("noise", ["sigma", "sigma_between"])
def test_more_noise_takes_more_generations(ratio: float, noise: str) -> None:
    quiet, noisy = (contrast(ratio=ratio, **{noise: value}) for value in (0.01, 0.3))
    fewer, more = (verdict.launches_to_decide(comparison(one), one) for one in (quiet, noisy))
    assert fewer is not None
    assert more is not None
    assert fewer < more


def test_noise_that_is_not_known_predicts_nothing() -> None:
    for one in (contrast(sigma=None), contrast(sigma_between=None), older(sigma=0.1)):
        assert verdict.launches_to_decide(comparison(one), one) is None


def test_a_question_that_enough_generations_left_open_gets_no_number_of_them() -> None:
    one = contrast(ratio=1.5, ratio_low=0.9, ratio_high=2.5, verdict="UNDECIDED", sigma=0.01, generations=64)
    assert not verdict.card(comparison(one), one).advice.startswith("About")


def test_outputs_that_differ_are_told_with_the_verdict() -> None:
    one = contrast(notes=["outputs differ: largest error 0.5 of the largest magnitude"])
    [warning] = verdict.card(comparison(one), one).warnings
    assert tells(warning, "0.5")


def test_too_few_rounds_have_no_interval() -> None:
    one = contrast(
        ratio_low=None, ratio_high=None, half_width=None, verdict="UNDECIDED", rounds=1, generations=1
    )
    card = verdict.card(comparison(one), one)
    assert numbers(card.facts[0]) == [1, 1]
    assert any(numbers(one) == [3] for one in card.facts)  # the request, and no interval
    assert verdict.short(one) == "undecided"


@pytest.mark.parametrize(
    ("generations", "rounds", "budget", "said"),
    [
        (1, 3, None, [2, 1]),  # launches that it takes, and that there were
        (1, 3, 14, [2, 1, 14]),
        (4, 4, None, [2, 5]),  # rounds in a launch, or launches
        (5, 5, None, []),  # enough of both: the clock is what was too coarse
        (4, 8, None, []),
    ],
)
def test_what_has_no_interval_says_what_one_takes(
    generations: int, rounds: int, budget: int | None, said: list[float]
) -> None:
    one = contrast(ratio_low=None, ratio_high=None, generations=generations, rounds=rounds)
    why = parts({**one, "interval_budget_s": budget})[1].partition(";")[2]
    assert numbers(why) == said


def test_the_contrast_that_counts_comes_first() -> None:
    default = contrast(baseline="a" * 16, ratio=2.0)
    found = verdict.contrasts_of(comparison(contrast(), default, contrast(candidate="b" * 16)), "c" * 16)
    assert [one["baseline"][0] for one in found] == ["b", "a"]
    assert verdict.contrasts_of(comparison(), "c" * 16) == []


# --- what decides -------------------------------------------------------------------------------------------


def test_only_what_is_graded_f_or_does_not_hold_is_rejected() -> None:
    assert is_rejected(rejected())
    assert is_rejected(contrast(holds=False))
    assert is_rejected(older(grade="F"))
    assert is_rejected({"grade": "F"})
    for accepted in (contrast(), older(), contrast(grade="C"), {"grade": "C"}, {}, None):
        assert not is_rejected(accepted)


def test_a_busy_machine_rejects_nothing() -> None:
    one = contrast()
    busy = comparison(one, busy=busy_machine())
    assert not is_rejected(busy.result)
    assert verdict.card(busy, one).headline == verdict.card(comparison(one), one).headline
    assert verdict.background_load_text(busy.result) == builders.BUSY
    assert verdict.background_load_mark(busy.result) == f" · {BUSY}"
    for quiet in (comparison(one, busy=None).result, comparison(one).result, None):
        assert (verdict.background_load_text(quiet), verdict.background_load_mark(quiet)) == ("", "")


def test_a_rejected_verdict_says_why_once_what_would_help_and_keeps_its_numbers() -> None:
    one = rejected()
    card = verdict.card(comparison(one, grade="F"), one)
    assert tells(card.headline, "1.010×", "1.030×")
    assert Verdict.UNDECIDED.word not in card.headline.lower()
    assert (card.rejected, card.color, card.reason) == (True, "red", one["holds_reason"])
    assert (card.warnings, card.advice) == ([], comparison(one).facts["remedy"])
    alone = verdict.card(comparison(one, remedy=""), one)  # the rest of the race stands
    assert alone.advice == verdict.MEASURE_BETTER


def test_one_rejected_contrast_leaves_the_others_alone() -> None:
    one, other = rejected(), contrast(baseline="a" * 16)
    both = comparison(one, other)
    assert verdict.card(both, one).rejected
    assert verdict.card(both, other).headline == "1.42× faster, 95 % CI [1.38, 1.46]"


def test_an_older_comparison_keeps_its_verdict_with_the_remark_on_its_interval() -> None:
    one = older()
    card = verdict.card(comparison(one, generations=None), one)
    assert card.headline == "1.42× faster, 95 % CI [1.38, 1.46]"
    assert (card.facts[0], card.noise) == ("54 rounds", "")
    assert card.warnings == [verdict.OLDER]
    assert verdict.card(comparison(contrast()), contrast()).warnings == []


def test_an_older_comparison_that_was_graded_f_stays_rejected() -> None:
    one = older(grade="F")
    found = comparison(one, grade="F", grade_reason="A neighbour.", generations=None)
    card = verdict.card(found, one)
    assert tells(card.headline, "1.38×", "1.46×")
    assert (card.reason, card.advice) == (found.facts["grade_reason"], found.facts["remedy"])
    assert card.warnings == [verdict.OLDER]


def test_what_can_go_on_has_generations_and_all_its_samples() -> None:
    assert verdict.can_measure_longer(comparison(contrast()), trials())
    assert not verdict.can_measure_longer(comparison(older(), generations=None), trials())
    assert not verdict.can_measure_longer(comparison(contrast()), trials(result={PRUNED: 1.0}))
    assert not verdict.can_measure_longer(comparison(contrast()), trials(state="FAIL"))
    assert not verdict.can_measure_longer(comparison(contrast()), trials()[:2])
    spent = comparison(contrast())
    spent.protocol.update(looks=[4, 6], splits=1.0)  # of an earlier version, which kept nothing back
    assert not verdict.can_measure_longer(spent, trials())
    exact = comparison(contrast())
    exact.protocol["runs"] = 100
    assert not verdict.can_measure_longer(exact, trials())


# --- a ratio in words ---------------------------------------------------------------------------------------

SLOWER: dict[str, Any] = {"ratio": 0.5, "ratio_low": 0.48, "ratio_high": 0.52, "verdict": "SLOWER"}
EQUAL: dict[str, Any] = {
    "ratio": 1.004, "ratio_low": 0.995, "ratio_high": 1.013, "verdict": "EQUIVALENT",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1.42× faster"),
        (SLOWER, "2.00× slower"),
        (EQUAL, "no difference"),
        ({"verdict": "UNDECIDED"}, "undecided"),
    ],
)
def test_a_table_has_the_verdict_in_a_few_characters(changes: dict[str, Any], words: str) -> None:
    assert verdict.short_of({"contrasts": [contrast(**changes)], "grade": "A"}) == words
    assert verdict.short(older(**changes, grade="F")) == "rejected"


@pytest.mark.parametrize("changes", [{}, SLOWER, EQUAL, UNDECIDED])
def test_a_verdict_and_what_it_rests_on_are_the_words_of_the_title(changes: dict[str, Any]) -> None:
    one = contrast(**changes)
    short, rest = parts(one)
    assert words(one) in (f"{short}, {rest}", f"{short}: {rest}", f"{short} ({rest})")


def test_ticks_to_both_sides_of_1_name_the_same_factor() -> None:
    assert tick(1.25) == tick(0.8) == "1.25×"
    assert tick(1.0) == "1×"


def test_what_was_never_compared_has_no_verdict() -> None:
    assert verdict.short_of({}) == verdict.short_of({"contrasts": []}) == ""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (
            {"when": "during", "rounds": 54, "generations": 9},
            "In the same rounds: 1.001×, 95 % CI [0.990, 1.012], 9 launches, 54 rounds",
        ),
        (
            {"when": "before", "rounds": 12},
            "Before the comparison: 1.001×, 95 % CI [0.990, 1.012], 12 rounds",
        ),
        ({"when": "after", "rounds": 12}, "After the comparison: 1.001×, 95 % CI [0.990, 1.012], 12 rounds"),
    ],
)
def test_a_self_test_says_what_noise_looks_like_here(test: dict[str, Any], said: str) -> None:
    known = {"ratio": 1.001, "ratio_low": 0.99, "ratio_high": 1.012}
    assert verdict.self_test_lines(comparison(self_tests=[known | test])) == [said]
    assert verdict.self_test_lines(comparison()) == []


# --- a ratio that is not known yet ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "known"),
    [(0.5, 2.0, True), (0.97, 1.08, True), (1e-9, 1e30, False), (0.3, 1.5, False), (None, 2.0, False)],
)
def test_a_ratio_is_known_within_a_factor_of_two_either_way(
    low: float | None, high: float | None, known: bool
) -> None:
    assert ratio_is_known(low, high) is known


@pytest.mark.parametrize("name", ["UNDECIDED", "FASTER", "SLOWER"])
@pytest.mark.parametrize(("low", "high"), [(1e-300, 10503e300), (1.01, 41.0), (0.02, 0.99)])
def test_an_interval_wider_than_that_is_told_nowhere_in_numbers(name: str, low: float, high: float) -> None:
    half = (high - low) / 2 / math.sqrt(low * high)
    one = contrast(ratio=1.1, ratio_low=low, ratio_high=high, half_width=half, verdict=name)
    test = {"when": "during", "ratio": 1.1, "ratio_low": low, "ratio_high": high, "rounds": 5}
    card = verdict.card(comparison(one), one)
    lines = verdict.self_test_lines(comparison(one, self_tests=[test]))
    told = [
        words(one),
        measured(one),
        verdict.short(one),
        card.headline,
        card.facts[-1],
        *lines,
    ]
    assert NOT_KNOWN in words(one)
    for text in told:
        assert not re.search(r"\d×|±\d|\d{4}|e[+-]\d", text.replace(" (goal ±3 %)", "")), text
    assert card.noise == ""


def test_the_precision_of_such_an_interval_is_not_known_either() -> None:
    assert precision_text(0.016) == "±1.6 %"
    assert precision_text(0.75) == "±75 %"
    assert precision_text(6.2) == precision_text(None) == NOT_KNOWN
