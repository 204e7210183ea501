"""When a comparison stops, drops a configuration, and how long a block is: decisions from numbers alone."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from core.evidence.record import Settings
from core.evidence.speedup_interval import ASSUMED_PRIOR, Prior
from core.evidence.stopping import P99_MAX_S, P99_ROUNDS, InterimResult
from core.run.launches.blocks import exact_pace, pace, split_runs, void_reason
from core.spec.effort import Effort
from tests import raw_comparisons

LOOKS = (4, 8, 32)
ROUNDS = 8  # of a launch: five of them have enough runs
ROOM = {"elapsed_s": 1.0, "left": 100}


def interim_result(
    *, target: float = 0.03, baseline: int = 0, anchor: int = 0, **settings: Any
) -> InterimResult:
    precision = Effort(name="quick", target=target, budget_s=30, looks=LOOKS)
    facts: dict[str, Any] = {
        "effort": precision,
        "budget_s": 30,
        "margin": 0.02,
        "seed": 0,
        "timeout_s": 60,
    }
    return InterimResult(Settings(**{**facts, "baseline": baseline, "anchor": anchor, **settings}))


def fill(
    one: InterimResult,
    factors: dict[int, float],
    generations: int,
    noise: float = 0.001,
    *,
    first: int = 0,
    rounds: int = ROUNDS,
    between: float = 0.001,
    copies: tuple[int, ...] = (0,),
) -> None:
    rng = random.Random(5)
    for generation in range(first, generations):
        kept = {(index, copy): rng.gauss(0, between) for index in factors for copy in copies}
        for number in range(rounds):
            for (index, copy), own in kept.items():
                seconds = 0.01 * factors[index] * math.exp(own + rng.gauss(0, noise))
                one.add((index, copy), generation, generation * rounds + number, seconds)


def stop(one: InterimResult, active: list[int], generations: int, **changes: Any) -> str | None:
    facts = {"rounds": generations * ROUNDS, **ROOM, **changes}
    return one.stop(active, set(active), generations, **facts)  # type: ignore[arg-type]


class TestStop:
    def test_a_clear_answer_ends_the_comparison_at_an_interim_analysis_when_the_runs_carry_a_tail_too(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.5}, 4)
        assert stop(one, [0, 1], 4) is None  # 32 rounds carry no p99: a few seconds more
        assert stop(one, [0, 1], 4, elapsed_s=P99_MAX_S) == "decided"
        assert stop(one, [0, 1], 4, rounds=P99_ROUNDS) == "decided"

    def test_an_answered_comparison_ends_between_interim_analyses_as_soon_as_it_has_enough_runs(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.5}, 5)
        assert stop(one, [0, 1], 5, rounds=P99_ROUNDS) == "decided"
        assert stop(one, [0, 1], 5, rounds=P99_ROUNDS - 1) is None

    def test_before_the_first_interim_analysis_nothing_is_an_answer(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.5}, 3)
        assert one.contrasts([0, 1], {0, 1})[1].verdict == "FASTER"
        assert stop(one, [0, 1], 3, rounds=1000, elapsed_s=1000.0) is None

    def test_a_comparison_without_an_answer_is_not_ended_between_interim_analyses(self):
        """However good the interim numbers are: the split alpha prevents it."""
        one = interim_result()
        fill(one, {0: 1.5, 1: 1.0}, 10, between=0.4)  # wild at the analyses at 4 and 8, calm from then on
        fill(one, {0: 1.5, 1: 1.0}, 31, first=10)
        found = one.contrasts([0, 1], {0, 1})[1]
        assert (found.verdict, found.half_width < 0.03) == ("FASTER", True)
        assert stop(one, [0, 1], 31) is None
        fill(one, {0: 1.5, 1: 1.0}, 32, first=31)
        assert stop(one, [0, 1], 32) == "decided"

    def test_the_last_interim_analysis_ends_it(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 1.0}, LOOKS[-1], noise=0.5)
        assert stop(one, [0, 1], LOOKS[-1]) == "rounds"
        sure = interim_result()
        fill(sure, {0: 1.0, 1: 0.5}, LOOKS[-1])
        assert stop(sure, [0, 1], LOOKS[-1]) == "decided"

    def test_the_budget_ends_it_where_no_generation_is_left_in_it(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 1.0}, 5, noise=0.5)
        assert stop(one, [0, 1], 5, left=0) == "budget"
        assert stop(one, [0, 1], 5, left=1) is None
        sure = interim_result()
        fill(sure, {0: 1.0, 1: 0.5}, 2)
        assert stop(sure, [0, 1], 2, left=0) == "decided"  # between two analyses, in the place of the next

    def test_what_cannot_be_decided_any_more_is_given_up_at_an_interim_analysis(self):
        looks = Effort(name="quick", target=0.03, budget_s=30, looks=(4, 9, 32))
        one = interim_result(effort=looks)
        fill(one, {0: 1.0, 1: 1.0}, 10, noise=0.5, between=0.3)
        assert one.contrasts([0, 1], {0, 1})[1].verdict == "UNDECIDED"
        assert stop(one, [0, 1], 9, left=3) == "hopeless"
        assert stop(one, [0, 1], 10, left=3) is None  # no interim analysis
        end = stop(one, [0, 1], 9, left=32 - 9)
        assert stop(one, [0, 1], 9, left=100_000) == end  # the analyses end before that

    def test_one_that_is_still_open_keeps_a_hopeless_one_company(self):
        looks = Effort(name="quick", target=0.03, budget_s=30, looks=(4, 9, 32))
        one = interim_result(effort=looks)
        fill(one, {0: 1.0}, 9)
        fill(one, {1: 1.0}, 9, noise=0.5, between=0.3)
        fill(one, {2: 1.3}, 9, noise=0.3)
        assert stop(one, [0, 1], 9, left=3) == "hopeless"
        assert stop(one, [0, 1, 2], 9, left=20) is None

    def test_without_anybody_to_compare_with_it_runs_until_it_is_rich(self):
        one = interim_result()
        fill(one, {0: 1.0}, 5)
        assert one.contrasts([0], {0}) == {}
        assert stop(one, [0], 4, rounds=20) is None
        assert stop(one, [0], 3, rounds=P99_ROUNDS) is None  # before the first interim analysis
        assert stop(one, [0], 5, rounds=P99_ROUNDS) == "rounds"

    def test_all_must_be_settled(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.5}, 8)
        fill(one, {2: 1.0}, 8, noise=0.3)
        assert stop(one, [0, 1, 2], 8) is None
        assert stop(one, [0, 1], 8) == "decided"

    def test_splits_of_a_comparison_measured_longer_are_its_own(self):
        looks = interim_result()
        strict = interim_result(splits=1000.0)
        for one in (looks, strict):
            fill(one, {0: 1.0, 1: 0.9}, 4, noise=0.01)
        wide, narrow = (one.contrasts([0, 1], {0, 1})[1].half_width for one in (strict, looks))
        assert wide is not None
        assert narrow is not None
        assert wide > 2 * narrow


class TestWhoGoesOn:
    def test_decided_configurations_leave_at_an_interim_analysis_and_the_references_stay(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.5}, 8)
        fill(one, {2: 1.0}, 8, noise=0.5)
        assert one.still_open([0, 1, 2], 8, 64, {0, 1, 2}) == [0, 2]
        assert one.still_open([0, 1, 2], 7, 64, {0, 1, 2}) == [0, 1, 2]
        assert one.still_open([0, 1, 2], 8, P99_ROUNDS - 1, {0, 1, 2}) == [0, 1, 2]  # no p99 yet

    def test_nobody_leaves_while_somebody_who_overlaps_goes_on(self):
        """Else it would be ranked by fewer launches than who it is ranked against."""
        alone, together = interim_result(), interim_result(family=3)
        for one in (alone, together):
            fill(one, {0: 1.0, 1: 0.9, 3: 0.3}, 8)
            fill(one, {2: 0.9}, 8, noise=0.5)
        assert alone.still_open([0, 1, 2, 3], 8, 64, {0, 1, 2, 3}) == [0, 2]
        assert together.still_open([0, 1, 2, 3], 8, 64, {0, 1, 2, 3}) == [0, 1, 2]

    def test_without_its_baseline_the_comparison_continues_against_the_ort_default(self):
        one = interim_result(baseline=1, anchor=0)
        fill(one, {0: 1.0, 1: 1.0, 2: 0.5}, 4)
        assert one.reference({0, 1, 2}) == 1
        assert one.reference({0, 2}) == 0
        assert one.contrasts([0, 2], {0, 2})[2].verdict == "FASTER"
        assert one.reference({2}) is None
        assert one.contrasts([2], {2}) == {}

    def test_a_baseline_alone_is_compared_with_the_ort_default(self):
        one = interim_result(baseline=1, anchor=0)
        fill(one, {0: 1.0, 1: 0.5}, 4)
        assert set(one.contrasts([0, 1], {0, 1})) == {0}

    def test_the_ort_default_alone_is_compared_with_its_aa_control(self):
        one = interim_result()
        fill(one, {0: 1.0}, 6, copies=(0, 1))
        (found,) = one.contrasts([0], {0}).values()
        assert found.verdict == "EQUIVALENT"
        assert (found.generations, found.rounds) == (6, 6 * ROUNDS)
        assert stop(one, [0], 8, rounds=64) == "decided"

    def test_only_rounds_of_both_count(self):
        one = interim_result()
        fill(one, {0: 1.0}, 7)
        fill(one, {1: 0.5}, 3)
        found = one.contrasts([0, 1], {0, 1})[1]
        assert (found.generations, found.rounds) == (3, 3 * ROUNDS)


class TestNumbers:
    def test_the_ratio_is_per_row_and_above_one_for_the_faster(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.5}, 8)
        assert one.contrasts([0, 1], {0, 1})[1].ratio == pytest.approx(2.0, rel=0.01)

    def test_a_reference_of_two_processes_is_their_geometric_mean(self):
        one = interim_result()
        for number in range(5):
            one.add((0, 0), 0, number, 0.010)
            one.add((0, 1), 0, number, 0.040)
            one.add((1, 0), 0, number, 0.010)
        one.add((0, 0), 1, 5, 0.030)  # the A/A control is gone
        one.add((1, 0), 1, 5, 0.010)
        one.add((0, 0), 2, 6, 0.030)
        one.add((1, 0), 2, 6, 0.010)
        assert one.contrasts([0, 1], {0, 1})[1].ratio == pytest.approx(3.0)  # of 2, 3 and 3

    def test_the_median_so_far_is_that_of_all_blocks_of_both_copies(self):
        one = interim_result()
        assert one.p50_s(0) is None
        for number, seconds in enumerate((0.001, 0.002, 0.009)):
            one.add((0, number % 2), 0, number, seconds)
        assert one.p50_s(0) == pytest.approx(0.002)

    def test_what_differs_within_and_between_processes_is_a_ratio_of_variances(self):
        one = interim_result()
        assert one.variance_ratio([0, 1], {0, 1}) is None
        fill(one, {0: 1.0, 1: 0.5}, 1)
        assumed = one.variance_ratio([0, 1], {0, 1})
        sigma = one.contrasts([0, 1], {0, 1})[1].sigma
        assert sigma is not None
        assert assumed == pytest.approx(sigma**2 / ASSUMED_PRIOR.sigma_between**2)
        noisy = interim_result()
        fill(noisy, {0: 1.0, 1: 0.5}, 30, noise=0.2, between=0.002)
        much = noisy.variance_ratio([0, 1], {0, 1})
        assert much is None or much > 10

    def test_the_launches_to_expect_are_an_interim_analysis_that_suffices_for_the_widest(self):
        one = interim_result(target=0.02)
        assert one.predicted([0, 1], {0, 1}) == LOOKS[0]
        fill(one, {0: 1.0, 1: 0.5}, 4)
        assert one.predicted([0, 1], {0, 1}) == LOOKS[0]
        fill(one, {2: 1.0}, 4, noise=0.15)
        assert one.predicted([0, 1, 2], {0, 1, 2}) == LOOKS[-1]

    def test_what_is_known_of_processes_before_the_comparison_counts(self):
        one = interim_result()
        fill(one, {0: 1.0, 1: 0.9}, 2)
        assumed = one.contrasts([0, 1], {0, 1})[1]
        one.prior = Prior(sigma_between=0.2, df=4.0, source="history")
        wild = one.contrasts([0, 1], {0, 1})[1]
        assert (assumed.verdict, wild.verdict) == ("FASTER", "UNDECIDED")
        assert (assumed.between_from, wild.between_from) == ("assumed", "history")


class TestBlocks:
    def test_short_runs_fill_20_ms_or_make_10_runs_after_one_for_the_caches(self):
        short, long = pace(50_000), pace(9_000_000)
        assert (short.block_ns, short.min_runs, short.refill) == (20_000_000, 10, True)
        assert short.expected_s == pytest.approx(0.020 + 0.00005)
        assert (long.min_runs, long.refill) == (10, True)
        assert long.expected_s == pytest.approx(0.09 + 0.009)

    @pytest.mark.parametrize(
        ("milliseconds", "runs", "refill"),
        [
            (10, 10, True),
            (11, 10, True),
            (12, 9, True),
            (25, 4, True),
            (50, 2, True),
            (99, 2, True),
            (100, 1, False),
        ],
    )
    def test_ten_runs_that_take_longer_than_a_tenth_of_a_second_are_fewer(
        self, milliseconds: int, runs: int, refill: bool
    ):
        found = pace(milliseconds * 1_000_000)
        assert (found.min_runs, found.refill) == (runs, refill)
        assert runs == min(10, math.ceil(100 / milliseconds))

    @pytest.mark.parametrize(("milliseconds", "runs"), [(100, 1), (150, 1), (5000, 1)])
    def test_long_runs_are_one_by_one_with_none_before_them(self, milliseconds: int, runs: int):
        found = pace(milliseconds * 1_000_000)
        assert (found.min_runs, found.max_runs, found.block_ns, found.refill) == (runs, runs, 0, False)
        assert found.expected_s == pytest.approx(runs * milliseconds / 1000)

    def test_a_hung_block_is_given_up_late_enough_but_a_forged_pace_does_not_hold_the_machine(self):
        assert pace(1_000_000).timeout_s >= 30
        assert pace(60_000_000_000).timeout_s >= 10 * 60
        assert pace(3_600_000_000_000).timeout_s < 3 * 3600

    @pytest.mark.parametrize("runs", [1, 5, 8, 33, 100, 640, 10_000])
    def test_an_exact_number_is_split_evenly(self, runs: int):
        parts = split_runs(runs)
        assert sum(parts) == runs
        assert max(parts) - min(parts) <= 1
        assert len(parts) == min(runs, max(8, min(64, runs // 10)))
        assert exact_pace(1, parts[0]).max_runs == parts[0]

    def test_an_exact_number_of_short_runs_has_one_before_them_that_does_not_count(self):
        assert exact_pace(1_000_000, 7).expected_s == pytest.approx(0.008)
        assert exact_pace(100_000_000, 7).expected_s == pytest.approx(0.7)

    @pytest.mark.parametrize(
        ("latencies_s", "counters", "reason"),
        [
            ([0.001], {}, ""),
            ([], {}, "the clock did not advance"),
            ([0.001, 0.0], {}, "the clock did not advance"),
            ([0.001], {"suspended_s": 3.0}, "the machine or ORTune was suspended for 3.0 s"),
        ],
    )
    def test_a_block_is_void_by_the_clock_or_its_counters(
        self, latencies_s: list[float], counters: dict[str, Any], reason: str
    ):
        (block, *_) = raw_comparisons.record([0.001], generations=1, rounds=1).blocks
        told = replace(block, latencies_s=latencies_s, counters=raw_comparisons.counters(**counters))
        assert void_reason(told) == reason


class TestRivals:
    """An elimination round of a search: candidates against the leader among them; the default is none."""

    @staticmethod
    def of(factors: dict[int, float], generations: int, **how: Any) -> InterimResult:
        effort = Effort(name="quick", target=0.03, budget_s=30, looks=LOOKS, rivals=True)
        one = interim_result(effort=effort)
        fill(one, factors, generations, **how)
        return one

    def test_the_leader_is_the_fastest_candidate_and_the_others_stand_to_it(self):
        one = self.of({0: 1.0, 1: 0.9, 2: 0.5, 3: 0.6}, 8)
        leader, against = one.rivals([0, 1, 2, 3], {0, 1, 2, 3})
        assert leader == 2
        assert {index: round(found.ratio, 1) for index, found in against.items()} == {1: 0.6, 3: 0.8}
        assert {found.verdict for found in against.values()} == {"SLOWER"}
        assert one.rivals([0], {0}) == (None, {})

    def test_their_intervals_share_the_confidence(self):
        two = self.of({0: 1.0, 1: 0.5, 2: 0.51}, 8).rivals([0, 1, 2], {0, 1, 2})[1][2]
        three = self.of({0: 1.0, 1: 0.5, 2: 0.51, 3: 0.7}, 8)
        of_three = three.rivals([0, 1, 2, 3], {0, 1, 2, 3})[1][2]
        assert of_three.ratio_low < two.ratio_low < two.ratio_high < of_three.ratio_high  # type: ignore[operator]

    def test_at_an_interim_analysis_whatever_is_surely_slower_leaves_and_the_default_stays(self):
        one = self.of({0: 1.0, 1: 0.5, 2: 0.503, 3: 0.7}, 8, between=0.01)
        active = [0, 1, 2, 3]
        assert one.still_open(active, 8, 1, set(active)) == [0, 1, 2]
        assert one.still_open(active, 7, 1, set(active)) == active

    def test_it_ends_where_only_equals_are_left_where_interim_analyses_or_time_end_and_not_before(self):
        clear, equal = self.of({0: 1.0, 1: 0.5, 2: 0.7}, 8), self.of({0: 1.0, 1: 0.5, 2: 0.501}, 8)
        assert [stop(one, [0, 1, 2], 8) for one in (clear, equal)] == ["decided", "decided"]
        assert stop(clear, [0, 1, 2], 7) is None  # no interim analysis
        assert stop(clear, [0, 1, 2], 7, left=0) == "budget"
        open_ = self.of({0: 1.0, 1: 0.5, 2: 0.52}, 8, between=0.05)
        assert stop(open_, [0, 1, 2], 8) is None
        assert stop(open_, [0, 1, 2], LOOKS[-1]) == "rounds"
        assert stop(self.of({0: 1.0}, 8), [0], 8) is None  # nobody but the default
