"""When a race stops, who leaves, and how long a block is: decisions made from numbers alone."""

from __future__ import annotations

import math
import random

import pytest

from core.contrast import Precision
from core.race.blocks import exact_pace, pace, split_runs
from core.race.record import Settings
from core.race.standing import RICH_ROUNDS, RICH_S, Standing

LOOKS = (8, 16, 64)
ROOM = {"elapsed_s": 1.0, "budget_s": 100.0}


def standing(*, target: float = 0.03, baseline: int = 0, anchor: int = 0) -> Standing:
    precision = Precision(name="quick", target=target, budget_s=30, looks=LOOKS)
    return Standing(
        Settings(
            precision=precision,
            budget_s=30,
            margin=0.02,
            seed=0,
            timeout_s=60,
            baseline=baseline,
            anchor=anchor,
        )
    )


def fill(one: Standing, factors: dict[int, float], rounds: int, noise: float = 0.001) -> None:
    rng = random.Random(5)
    for number in range(rounds):
        for index, factor in factors.items():
            one.add(index, number, 0.01 * factor * math.exp(rng.gauss(0, noise)))


class TestStop:
    def test_a_clear_answer_ends_the_race_at_a_look_when_the_runs_carry_a_tail_too(self):
        one = standing()
        fill(one, {0: 1.0, 1: 0.5}, 8)
        assert one.stop([0, 1], {0, 1}, 8, **ROOM) is None  # 8 rounds carry no p99: a few seconds more
        assert one.stop([0, 1], {0, 1}, 8, elapsed_s=RICH_S, budget_s=100) == "decided"

    def test_an_answered_race_ends_between_looks_as_soon_as_it_is_rich(self):
        one = standing()
        fill(one, {0: 1.0, 1: 0.5}, RICH_ROUNDS)
        assert one.stop([0, 1], {0, 1}, RICH_ROUNDS, **ROOM) == "decided"
        fill(one, {0: 1.0, 1: 0.5}, RICH_ROUNDS - 1)
        assert one.stop([0, 1], {0, 1}, RICH_ROUNDS - 1, **ROOM) is None

    def test_a_race_without_an_answer_is_not_ended_between_looks(self):
        """However good the numbers look just then: that is what the split alpha is for."""
        one = standing()
        rng = random.Random(1)
        for number in range(60):  # noisy at the look at 16 rounds, calm from then on
            noise = 0.5 if number < 20 else 0.0001
            for index in (0, 1):
                one.add(index, number, 0.01 * (1 if index else 1.5) * (1 + abs(rng.gauss(0, noise))))
        assert one.contrasts([0, 1], {0, 1})[1].verdict == "FASTER"
        assert one.stop([0, 1], {0, 1}, 60, **ROOM) is None

    def test_the_last_look_ends_it(self):
        one = standing()
        fill(one, {0: 1.0, 1: 1.0}, LOOKS[-1], noise=0.5)
        assert one.stop([0, 1], {0, 1}, LOOKS[-1], **ROOM) == "rounds"

    def test_the_budget_ends_it_before_a_round_that_would_exceed_it(self):
        one = standing()
        fill(one, {0: 1.0, 1: 1.0}, 10, noise=0.5)
        assert one.stop([0, 1], {0, 1}, 10, elapsed_s=9.5, budget_s=10.0) == "budget"
        assert one.stop([0, 1], {0, 1}, 10, elapsed_s=8.0, budget_s=10.0) is None

    def test_before_the_first_round_nothing_stops(self):
        assert standing().stop([0, 1], {0, 1}, 0, elapsed_s=0.0, budget_s=10.0) is None

    def test_one_alone_runs_until_it_is_rich(self):
        one = standing()
        fill(one, {0: 1.0}, RICH_ROUNDS)
        assert one.stop([0], {0}, 16, **ROOM) is None
        assert one.stop([0], {0}, RICH_ROUNDS, **ROOM) == "rounds"

    def test_all_must_be_settled(self):
        one = standing()
        fill(one, {0: 1.0, 1: 0.5}, 16)
        fill(one, {2: 1.0}, 16, noise=0.3)
        assert one.stop([0, 1, 2], {0, 1, 2}, 16, elapsed_s=RICH_S, budget_s=100) is None
        assert one.stop([0, 1], {0, 1}, 16, elapsed_s=RICH_S, budget_s=100) == "decided"


class TestWhoGoesOn:
    def test_the_settled_leave_at_a_look_and_the_references_stay(self):
        one = standing()
        fill(one, {0: 1.0, 1: 0.5}, 64)
        fill(one, {2: 1.0}, 64, noise=0.5)
        assert one.still_open([0, 1, 2], 64, {0, 1, 2}) == [0, 2]
        assert one.still_open([0, 1, 2], 63, {0, 1, 2}) == [0, 1, 2]
        assert one.still_open([0, 1, 2], 16, {0, 1, 2}) == [0, 1, 2]  # too few rounds for a tail

    def test_without_its_baseline_the_race_goes_on_against_the_anchor(self):
        one = standing(baseline=1, anchor=0)
        fill(one, {0: 1.0, 1: 1.0, 2: 0.5}, 8)
        assert one.reference({0, 1, 2}) == 1
        assert one.reference({0, 2}) == 0
        assert one.contrasts([0, 2], {0, 2})[2].verdict == "FASTER"
        assert one.reference({2}) is None
        assert one.contrasts([2], {2}) == {}

    def test_a_baseline_alone_is_put_against_the_anchor(self):
        one = standing(baseline=1, anchor=0)
        fill(one, {0: 1.0, 1: 0.5}, 8)
        assert set(one.contrasts([0, 1], {0, 1})) == {0}

    def test_only_rounds_of_both_count(self):
        one = standing()
        fill(one, {0: 1.0}, 30)
        fill(one, {1: 0.5}, 9)
        assert one.contrasts([0, 1], {0, 1})[1].rounds == 9


def test_the_ratio_is_per_row_and_above_one_for_the_faster():
    one = standing()
    fill(one, {0: 1.0, 1: 0.5}, 16)
    assert one.contrasts([0, 1], {0, 1})[1].ratio == pytest.approx(2.0, rel=0.01)


class TestBlocks:
    def test_short_runs_fill_20_ms_or_make_10_runs(self):
        assert pace(50_000).block_ns == 20_000_000
        assert pace(50_000).expected_s == pytest.approx(0.02)
        assert pace(10_000_000).min_runs == 10
        assert pace(10_000_000).expected_s == pytest.approx(0.1)

    @pytest.mark.parametrize(("milliseconds", "runs"), [(50, 3), (75, 2), (149, 2), (150, 1), (5000, 1)])
    def test_long_runs_are_one_to_three(self, milliseconds: int, runs: int):
        assert (pace(milliseconds * 1_000_000).min_runs, pace(milliseconds * 1_000_000).max_runs) == (
            runs,
            runs,
        )

    def test_a_hung_block_is_given_up_late_enough(self):
        assert pace(1_000_000).timeout_s >= 30
        assert pace(60_000_000_000).timeout_s >= 20 * 120

    @pytest.mark.parametrize("runs", [1, 5, 8, 33, 100, 640, 10_000])
    def test_an_exact_number_is_split_evenly(self, runs: int):
        parts = split_runs(runs)
        assert sum(parts) == runs
        assert max(parts) - min(parts) <= 1
        assert len(parts) == min(runs, max(8, min(64, runs // 10)))
        assert exact_pace(1, parts[0]).max_runs == parts[0]
