"""Ratios, verdicts and their words against literal values; simulations have a module of their own."""

import math
import statistics
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.speedup_interval import (
    ASSUMED_PRIOR,
    Prior,
    _autocorrelation_factor,
    _chance_of_verdict,
    _kendall_score,
    contrast,
    excess_between,
    is_futile,
    may_stop,
    predicted_launches,
    sufficient_analysis,
    trimmed_estimate,
    with_joint_interval,
)
from core.evidence.verdict import MIN_LAUNCHES, ratio_places, ratio_text, words
from core.spec.effort import EFFORTS
from tests.raw_comparisons import noise

# ln ratios of ten rounds, one of them disturbed by another process
ROUNDS = [0.30, 0.34, 0.36, 0.33, 0.37, 0.35, 0.31, 0.36, 0.38, -2.0]


def shifted(center, n=64, sigma=0.02):
    return [center + value for value in noise(n, sigma)]


def flat(rounds, **how):
    """Rounds that are units of their own, and nothing known of them before: Yuen's interval as it is."""
    return contrast([[one] for one in rounds], prior=None, **how)


# --- the estimate and its interval, of units ------------------------------------------------------------


def test_trimmed_mean_and_interval_are_those_worked_out_by_hand():
    # Sorted, two of ten cut at either end: 0.31 0.33 0.34 0.35 0.36 0.36, mean 2.05 / 6. Winsorised, 0.31 is
    # there three times and 0.36 four times: mean 0.339, squares 0.00449. t with 5 degrees: 2.570582.
    found = flat(ROUNDS, looks=1)
    center, error = 2.05 / 6, math.sqrt(0.00449 / 9) / (0.6 * math.sqrt(10))
    assert math.log(found.ratio) == pytest.approx(center)
    assert math.log(found.ratio_low) == pytest.approx(center - 2.570582 * error, rel=1e-5)
    assert math.log(found.ratio_high) == pytest.approx(center + 2.570582 * error, rel=1e-5)
    assert found.half_width == pytest.approx((found.ratio_high - found.ratio_low) / 2 / found.ratio)
    assert (found.verdict, found.rounds, found.drifting) == ("FASTER", 10, False)


def test_interim_analyses_share_the_five_percent():
    # t with 5 degrees of freedom at 1 - 0.05/4/2
    one, four = flat(ROUNDS, looks=1), flat(ROUNDS, looks=4)
    reach = math.log(four.ratio_high / four.ratio) / math.log(one.ratio_high / one.ratio)
    assert reach == pytest.approx(3.810 / 2.5706, rel=1e-3)


def test_rounds_that_resemble_the_one_before_widen_the_interval():
    shuffled = noise(64)
    lasting = sorted(shuffled[:32]) + sorted(shuffled[32:], reverse=True)
    alternating = [x for pair in zip(sorted(shuffled)[:32], sorted(shuffled)[32:], strict=True) for x in pair]
    plain, wide, same = (flat(rounds) for rounds in (shuffled, lasting, alternating))
    assert plain.ratio == wide.ratio == same.ratio
    assert plain.sigma == pytest.approx(wide.sigma)
    assert math.log(wide.ratio_high / wide.ratio) > 3 * math.log(plain.ratio_high / plain.ratio)
    assert same.half_width <= plain.half_width  # never narrower than independent rounds
    error = 2.0227 * 0.6419 / (0.6 * math.sqrt(64))  # t with 39 degrees; of a winsorised normal
    assert math.log(same.ratio_high / same.ratio) == pytest.approx(error, rel=0.02)


def test_how_much_wider_is_the_one_worked_out_by_hand():
    blocks = ([0.0] * 4 + [1.0] * 4) * 2  # of 15 pairs 12 agree: 9/16 of the squares, and 1/16 for the bias
    correlation = 9 / 16 + 1 / 16
    expected = math.sqrt((1 + correlation) / (1 - correlation))
    assert _autocorrelation_factor(blocks, sorted(blocks)) == pytest.approx(expected)
    wild = [-90.0, *blocks[1:-1], 90.0]  # the extreme fifth counts as the next
    assert _autocorrelation_factor(wild, sorted(wild)) == pytest.approx(expected)
    weak = [0.0, 0.0, 1.0, 1.0] * 4  # 8 of 15 agree: 2/16, less than 1/4, which is chance
    assert _autocorrelation_factor(weak, sorted(weak)) == 1.0
    assert _autocorrelation_factor(blocks[:15], sorted(blocks[:15])) == 1.0  # too few to tell


def test_sigma_is_the_deviation_of_one_round_whatever_the_outliers():
    assert flat(noise(200, 0.07)).sigma == pytest.approx(0.07, rel=0.01)
    assert flat([*noise(190, 0.07), *[3.0] * 10]).sigma == pytest.approx(0.07, rel=0.1)
    assert flat([0.1, 0.3]).sigma == pytest.approx(statistics.stdev([0.1, 0.3]))
    assert flat([0.1]).sigma is None


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rounds_have_a_ratio_and_nothing_else(n):
    found = flat([0.5, 0.4, 0.6, 9.0][:n])
    assert found.ratio == pytest.approx(math.exp(statistics.median([0.5, 0.4, 0.6, 9.0][:n])))
    assert (found.ratio_low, found.ratio_high, found.half_width) == (None, None, None)
    assert found.verdict == "UNDECIDED"


def test_five_rounds_have_an_interval():
    assert flat([0.1, 0.2, 0.3, 0.4, 0.5]).ratio_low is not None


def test_no_round_is_an_error():
    with pytest.raises(ValueError, match="round"):
        flat([])


@pytest.mark.parametrize(
    "rounds", [[0.25] * 64, [0.25] * 52 + [0.5] * 12, [0.1 + 0.2, 0.3] * 20], ids=("all", "most", "rounding")
)
def test_a_clock_too_coarse_to_show_the_spread_gives_no_certainty(rounds):
    found = flat(rounds)
    assert (found.ratio_low, found.ratio_high, found.verdict) == (None, None, "UNDECIDED")
    assert not may_stop(found, 1.0)


@pytest.mark.parametrize("center", [3000.0, -3000.0])
def test_absurd_rounds_overflow_nothing(center):
    found = flat([center, center + 1, center + 2, center - 1, center - 2])
    assert found.ratio_low <= found.ratio <= found.ratio_high < math.inf


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=80), st.integers(1, 8))
def test_swapping_the_sides_mirrors_everything(rounds, looks):
    there, back = flat(rounds, looks=looks), flat([-x for x in rounds], looks=looks)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.sigma == pytest.approx(there.sigma)
    assert {there.verdict, back.verdict} in ({"FASTER", "SLOWER"}, {"EQUIVALENT"}, {"UNDECIDED"})
    if there.ratio_low is not None:
        assert there.ratio_low <= there.ratio <= there.ratio_high
        assert back.ratio_low == pytest.approx(1 / there.ratio_high)


def test_the_cost_grows_with_the_rounds_not_with_their_pairs():
    def cost(n):
        rounds = noise(n, 0.05)
        flat(rounds, looks=7)  # Student's t is looked up once
        costs = []
        for _ in range(5):
            began = time.process_time_ns()
            flat(rounds, looks=7)
            costs.append(time.process_time_ns() - began)
        return min(costs)

    assert cost(4096) / cost(256) < 64  # pairs would be 256


# --- launches -------------------------------------------------------------------------------------------


def test_one_generation_knows_its_rounds_and_is_told_what_processes_differ_by():
    # As above, the rounds give the center a variance of 0.00449 / 9 / 3.6. What processes differ by is not
    # seen: 1 % is assumed, and counts as two degrees of freedom. A process may be slow for life, so that
    # there is no interval.
    found = contrast([ROUNDS])
    within = 0.00449 / 9 / 3.6
    error = math.sqrt(within + 0.01**2)
    assert math.log(found.ratio) == pytest.approx(2.05 / 6)
    assert (found.generations, found.rounds, found.df) == (1, 10, 2.0)
    assert found.standard_error == pytest.approx(error)
    assert found.sigma_between == pytest.approx(0.01)
    assert found.between_from == "assumed"


# medians 0.11, 0.12, 0.10, 0.11; the rounds of each differ by 0.01
FOUR = [[0.10, 0.11, 0.12], [0.11, 0.13, 0.12], [0.11, 0.10, 0.09], [0.12, 0.11, 0.10]]


@pytest.mark.parametrize(
    ("prior", "sigma", "df", "t"),
    [
        (ASSUMED_PRIOR, 0.01, 2, 2.570582),
        (Prior(sigma_between=0.03, df=4.0, source="history"), 0.03, 4, 2.364624),
    ],
)
def test_generations_and_prior_are_weighted_by_their_degrees_of_freedom(prior, sigma, df, t):
    # The median of four has 1.192 times the variance of their mean, that of three 1.346 times.
    # That of chi-squared with two degrees is (1 - 1/9)^3 of its mean.
    within = 1.346 * 0.01**2 / (8 / 9) ** 3 / 3
    own = (0.01**2 + 0.01**2) / 3
    variance = (df * (sigma**2 + within) + 3 * own) / (df + 3)
    error = math.sqrt(1.192 * variance / 4)
    found = contrast(FOUR, prior=prior)
    assert math.log(found.ratio) == pytest.approx(0.11)
    assert (found.generations, found.rounds, found.df) == (4, 12, df + 3)
    assert found.standard_error == pytest.approx(error)
    assert math.log(found.ratio_low) == pytest.approx(0.11 - t * error, rel=1e-6)
    assert found.sigma == pytest.approx(0.01 / (8 / 9) ** 1.5)
    assert found.sigma_between == pytest.approx(math.sqrt(variance - within))
    assert found.within_half_width == pytest.approx(found.half_width * math.sqrt(within / variance))
    assert found.between_from == "race"  # three degrees of freedom are more than two of a prior


def test_a_prior_that_falls_short_of_what_was_seen_counts_for_less():
    """With a prior of 0.1 % between processes that differ by 10 %, the interval must not get too narrow."""
    wild = [[center + 0.001, center, center - 0.001] for center in (0.0, 0.1, 0.2, 0.3)]
    small = Prior(sigma_between=0.001, df=4.0, source="history")
    alone, told = contrast(wild, prior=None), contrast(wild, prior=small)
    assert alone.ratio_low is None  # four launches without a prior give no interval
    assert 3 <= told.df < 3.01
    assert told.half_width > contrast(wild, prior=ASSUMED_PRIOR).half_width > 0.2
    near = contrast(FOUR, prior=Prior(sigma_between=0.02, df=4.0, source="history"))
    assert near.df == 3 + 4


def test_what_generations_alone_show_of_processes():
    within = 1.346 * 0.01**2 / (8 / 9) ** 3 / 3
    assert excess_between(FOUR) == pytest.approx((0.01**2 + 0.01**2) / 3 - within)
    assert excess_between([*FOUR, []]) == excess_between(FOUR)
    assert excess_between(FOUR[:3]) is None
    assert excess_between([[one] for one in ROUNDS]) is None  # rounds and processes are not told apart
    rng = np.random.default_rng(3)
    for between in (0.0, 0.02):
        rows = between * rng.normal(size=(400, 9, 1)) + 0.02 * rng.normal(size=(400, 9, 6))
        assert np.mean([excess_between(row) for row in rows.tolist()]) == pytest.approx(between**2, abs=4e-5)


def test_without_a_prior_the_generations_stand_alone():
    five = [*FOUR, [0.11, 0.12, 0.13]]
    alone = contrast(five, prior=None)
    # of five, 0.10 and one 0.12 are cut; winsorised 0.11 three times and 0.12 twice
    error = math.sqrt(0.00012 / 4) / (0.6 * math.sqrt(5))
    assert math.log(alone.ratio) == pytest.approx((0.11 + 0.11 + 0.12) / 3)
    assert (alone.standard_error, alone.df) == (pytest.approx(error), 2)
    assert math.log(alone.ratio_high / alone.ratio) == pytest.approx(4.302653 * error, rel=1e-6)
    none = contrast(FOUR, prior=None)
    assert (none.ratio_low, none.half_width, none.standard_error, none.df) == (None, None, None, None)
    assert (none.sigma_between, none.within_half_width, none.between_half_width) == (None, None, None)
    assert none.verdict == "UNDECIDED"


def test_a_unit_of_one_round_each_tells_no_two_spreads_apart():
    found = flat(ROUNDS)
    assert (found.generations, found.rounds) == (10, 10)
    assert (found.sigma_between, found.within_half_width, found.between_half_width) == (None, None, None)
    assert found.sigma is not None


@pytest.mark.parametrize(
    ("generations", "source"), [(1, "assumed"), (2, "assumed"), (3, "assumed"), (4, "race"), (9, "race")]
)
def test_where_the_spread_between_processes_is_known_from(generations, source):
    assert contrast([shifted(x, 6) for x in noise(generations, 0.01)]).between_from == source
    known = Prior(sigma_between=0.01, df=4.0, source="history")
    told = contrast([shifted(x, 6) for x in noise(generations, 0.01)], prior=known).between_from
    assert told == ("history" if source == "assumed" else "race")


def test_one_generation_is_not_believed_more_than_assumed_whatever_history_says():
    calm = Prior(sigma_between=0.0001, df=50.0, source="history")
    wild = Prior(sigma_between=0.05, df=50.0, source="history")
    assumed = contrast([ROUNDS])
    assert contrast([ROUNDS], prior=calm).standard_error == assumed.standard_error
    assert contrast([ROUNDS], prior=wild).standard_error > 3 * assumed.standard_error


@pytest.mark.parametrize("rounds", [1, 4, 10])
def test_a_single_generation_has_no_interval_however_many_its_rounds(rounds):
    found = contrast([ROUNDS[:rounds]])
    assert (found.ratio_low, found.half_width, found.verdict) == (None, None, "UNDECIDED")
    assert (found.standard_error is None) == (rounds < 5)
    assert contrast([ROUNDS[:rounds], ROUNDS[:rounds]]).ratio_low is not None or rounds == 1


def test_generations_without_rounds_are_passed_over():
    assert contrast([[], *FOUR, []]) == contrast(FOUR)
    with pytest.raises(ValueError, match="round"):
        contrast([[], []])


def test_more_rounds_narrow_one_part_and_more_processes_both():
    def compared(generations, rounds):
        return contrast([shifted(x, rounds, 0.05) for x in noise(generations, 0.03)])

    few, deep, wide = compared(8, 8), compared(8, 64), compared(64, 8)
    assert deep.within_half_width < 0.5 * few.within_half_width
    assert deep.between_half_width > 0.8 * few.between_half_width
    assert wide.within_half_width < 0.5 * few.within_half_width
    assert wide.between_half_width < 0.5 * few.between_half_width


def test_one_odd_process_in_ten_moves_little():
    trimmed_estimate = [shifted(0.1 + x, 8) for x in noise(9, 0.005)]
    odd = contrast([*trimmed_estimate, shifted(1.5, 8)])
    assert math.log(odd.ratio) == pytest.approx(0.1, abs=0.005)
    assert odd.verdict == "FASTER"


@pytest.mark.parametrize("coarse", [[[0.25] * 8] * 8, [[0.25, 0.25, 0.25]] * 3, [[0.1 + 0.2, 0.3] * 4] * 6])
def test_generations_that_are_all_one_number_give_no_certainty(coarse):
    found = contrast(coarse)
    assert (found.ratio_low, found.verdict) == (None, "UNDECIDED")


def test_a_clock_too_coarse_within_a_generation_still_shows_what_processes_differ_by():
    found = contrast([[x] * 8 for x in noise(8, 0.01)])
    assert found.ratio_low < 1 < found.ratio_high
    assert found.within_half_width == 0


LOGS = st.integers(-2_000_000, 2_000_000).map(lambda one: one / 1e6)
LAUNCHES = st.lists(st.lists(LOGS, min_size=1, max_size=9), min_size=1, max_size=20)


@given(LAUNCHES, st.integers(1, 9))
def test_two_parts_of_an_interval_and_its_mirror(generations, looks):
    there = contrast(generations, looks=looks)
    back = contrast([[-x for x in one] for one in generations], looks=looks)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert {there.verdict, back.verdict} in ({"FASTER", "SLOWER"}, {"EQUIVALENT"}, {"UNDECIDED"})
    assert (there.rounds, there.generations) == (sum(map(len, generations)), len(generations))
    if there.ratio_low is not None:
        assert there.ratio_low <= there.ratio <= there.ratio_high
        assert back.ratio_low == pytest.approx(1 / there.ratio_high)
        assert there.standard_error == pytest.approx(back.standard_error)
    if there.within_half_width is not None:
        parts = math.hypot(there.within_half_width, there.between_half_width)
        assert parts == pytest.approx(there.half_width)


@given(LAUNCHES, st.floats(-1, 1), st.randoms(use_true_random=False))
def test_neither_a_constant_nor_the_order_of_rounds_changes_how_sure_it_is(generations, constant, rng):
    moved = [[x + constant for x in rng.sample(one, len(one))] for one in generations]
    one, other = contrast(generations), contrast(moved)
    assert other.ratio == pytest.approx(one.ratio * math.exp(constant))
    assert (one.standard_error is None) == (other.standard_error is None)
    if one.standard_error is not None:
        assert other.standard_error == pytest.approx(one.standard_error, rel=1e-6, abs=1e-9)


@given(LAUNCHES, st.integers(1, 9))
def test_more_interim_analyses_never_narrow_an_interval(generations, looks):
    one, more = contrast(generations, looks=looks), contrast(generations, looks=looks + 1)
    assert one.half_width is None or more.half_width >= one.half_width


# --- verdicts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("center", "sigma", "verdict"),
    [
        (0.10, 0.02, "FASTER"),
        (-0.10, 0.02, "SLOWER"),
        (0.00, 0.02, "EQUIVALENT"),
        (0.00, 0.20, "UNDECIDED"),
        (0.10, 0.80, "UNDECIDED"),
        (0.01, 0.01, "EQUIVALENT"),  # clearly faster, by less than matters
        (0.02, 0.01, "FASTER"),  # the interval reaches over the margin, and excludes 1
    ],
)
def test_verdicts(center, sigma, verdict):
    assert flat(shifted(center, sigma=sigma), looks=4, margin=0.02).verdict == verdict


def test_the_margin_decides_what_counts_as_equal():
    rounds = shifted(0.03, sigma=0.01)
    assert flat(rounds, margin=0.02).verdict == "FASTER"
    assert flat(rounds, margin=0.05).verdict == "EQUIVALENT"
    assert flat(shifted(0.0, sigma=0.0001), margin=0.0).verdict == "UNDECIDED"


@pytest.mark.parametrize(("part", "verdict"), [(0.3, "FASTER"), (-0.3, "UNDECIDED")])
def test_an_interval_that_spans_another_holds_both_and_decides(part, verdict):
    one = contrast([[0.3, 0.31], [0.32, 0.33]])
    other = contrast([[part, part + 0.5], [part + 0.1, part + 0.2]])
    low, *_, high = sorted([*one.interval, *other.interval])
    for found, middle in ((with_joint_interval(one, other), one), (with_joint_interval(other, one), other)):
        assert found.interval == (low, high)
        assert found.verdict == verdict
        assert found.ratio == middle.ratio
        assert found.half_width == pytest.approx((high - low) / 2 / middle.ratio)
        assert found.within_half_width is found.between_half_width is None


def test_settled_is_decided_and_narrow_and_without_drift():
    narrow, wide = flat(shifted(0.3)), flat(shifted(0.3, sigma=0.2))
    assert narrow.verdict == wide.verdict == "FASTER"
    assert may_stop(narrow, 0.03)
    assert not may_stop(wide, 0.03)
    assert may_stop(wide, 0.03, wide.half_width / 0.29)  # a fifth of a large difference is narrow enough
    assert not may_stop(wide, 0.03, 0.5 * wide.half_width / 0.3)
    assert not may_stop(flat(shifted(0.015, sigma=0.06)), 0.03)  # narrow enough, and undecided
    rising = flat([0.3 + 0.001 * i + x for i, x in enumerate(noise(64, 0.01))])
    assert rising.drifting
    assert rising.half_width < 0.03
    assert not may_stop(rising, 0.03)


def test_drift_must_be_significant_and_matter():
    still = noise(64, 0.02)
    assert not flat(still).drifting
    assert flat([x + 0.06 * i / 64 for i, x in enumerate(still)]).drifting
    assert flat([x - 0.06 * i / 64 for i, x in enumerate(still)]).drifting
    assert not flat([0.01 * i / 64 for i in range(64)]).drifting  # as clear as can be, and 1 %
    assert not flat([0.1 * i for i in range(7)]).drifting  # too few rounds to tell
    assert not flat([0.1] * 64).drifting


def test_a_large_difference_that_stays_is_no_drift():
    assert not flat([1.0 + 0.01 * i / 64 for i in range(64)]).drifting


@pytest.mark.parametrize(
    ("values", "score", "variance"),
    [
        # pairs in rising order less those in falling order; (n (n-1) (2n+5) - the ties' same) / 18
        ([1.0, 2.0, 3.0, 4.0, 5.0], 10, 5 * 4 * 15 / 18),
        ([5.0, 4.0, 3.0, 2.0, 1.0], -10, 5 * 4 * 15 / 18),
        ([2.0, 1.0, 3.0, 5.0, 4.0], 6, 5 * 4 * 15 / 18),
        ([1.0, 1.0, 2.0, 3.0], 5, (4 * 3 * 13 - 2 * 1 * 9) / 18),
        ([3.0, 1.0, 3.0, 3.0, 2.0], -1, (5 * 4 * 15 - 3 * 2 * 11) / 18),
    ],
)
def test_the_score_of_a_drift_is_the_one_worked_out_by_hand(values, score, variance):
    assert _kendall_score(values) == (score, pytest.approx(variance))


def test_the_chance_of_a_verdict_grows_with_what_is_left_and_is_the_same_for_both_sides():
    now = flat(shifted(0.05, 16, 0.2), looks=4)
    chances = [_chance_of_verdict(now, 4, left) for left in (0, 20, 200, 2000)]
    assert chances == sorted(chances)
    assert 0 <= chances[0] < chances[-1] <= 1
    mirrored = replace(now, ratio=1 / now.ratio)
    assert [_chance_of_verdict(mirrored, 4, left) for left in (0, 20, 200)] == pytest.approx(chances[:3])


def test_that_no_difference_will_be_shown_is_a_verdict_too():
    now = replace(flat(noise(16, 0.02), looks=4), ratio=1.0)
    assert _chance_of_verdict(now, 4, 2000) > 0.99
    assert _chance_of_verdict(replace(now, margin=1e-6), 4, 2000) < 0.9  # then only a difference is one


def test_giving_up_takes_wide_units_and_an_end_too_near():
    def give_up(units, left=16):
        return is_futile(flat(units, looks=4), looks=4, left=left)

    wide = noise(48, 0.3)
    assert give_up(wide)
    assert give_up(noise(9, 0.3))
    assert not give_up(noise(8, 0.3))  # too few to know the spread well enough
    assert not give_up(wide, left=1_000_000)
    assert not give_up(shifted(0.0, 48))  # EQUIVALENT already
    assert not give_up(shifted(0.1, 48))  # FASTER already, however wide it is
    assert not give_up(shifted(0.1, 48, 0.3), left=500)  # may well be FASTER then
    assert not give_up([0.0] * 48)  # no interval, no prediction
    assert give_up(shifted(0.012, 48, 0.04), left=-1)  # undecided, and at its end


def test_a_prior_is_no_reason_to_give_up_nor_to_go_on():
    generations = [[x] * 2 + [x + 0.001] for x in noise(12, 0.3)]
    found = contrast(generations, looks=8)
    assert found.verdict == "UNDECIDED"
    assert is_futile(found, looks=8, left=20)
    assert not is_futile(found, looks=8, left=100_000)


def test_what_was_known_before_the_comparison_makes_the_end_nearer():
    """The same numbers, once with two degrees of freedom from a prior and once with many."""
    found = replace(contrast([[x] * 2 + [x + 0.001] for x in noise(12, 0.3)], looks=8), ratio=1.1)
    assert is_futile(found, looks=8, left=10)
    assert not is_futile(replace(found, df=found.df + 60), looks=8, left=10)


def test_a_usual_launch_has_the_interval_worked_out_by_hand():
    few = trimmed_estimate([1.0, 2.0, 6.0][: MIN_LAUNCHES - 1])
    assert (few.value, few.low, few.high) == (1.0, None, None)
    assert trimmed_estimate([1.0, 2.0, 6.0][:MIN_LAUNCHES]).high is not None
    found = trimmed_estimate(
        [1.0, 2.0, 3.0, 4.0]
    )  # nothing is trimmed: a median, whose variance is 1.192 of a mean's
    half = 3.18245 * math.sqrt(5 / 3) * math.sqrt(1.192 / 4)
    assert found.value == 2.5
    assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-4)
    near = trimmed_estimate([101.0, 102.0, 103.0, 104.0])
    assert (near.low, near.high) == pytest.approx((102.5 - half, 102.5 + half))


# --- how long it takes ----------------------------------------------------------------------------------


def test_presets_are_those_of_the_protocol():
    table = {name: (one.target, one.budget_s, one.looks) for name, one in EFFORTS.items()}
    assert table == {
        "quick": (0.03, 30, (4, 6, 9, 14, 21, 32, 48, 72)),
        "standard": (0.015, 120, (4, 6, 9, 14, 21, 32, 48, 72)),
        "publish": (0.007, 600, (6, 9, 14, 21, 32, 48, 72, 108, 160)),
    }
    assert all(one.name == name for name, one in EFFORTS.items())


def test_what_is_assumed_before_any_comparison():
    assert (ASSUMED_PRIOR.sigma_between, ASSUMED_PRIOR.df, ASSUMED_PRIOR.source) == (0.01, 2.0, "assumed")


def test_the_first_interim_analysis_that_suffices():
    looks = EFFORTS["quick"].looks
    assert [sufficient_analysis(n, looks) for n in (1, 4, 5, 32, 33, 72, 73)] == [4, 4, 6, 32, 48, 72, None]


def test_predicted_units_are_the_fewest_whose_interval_is_narrow_enough():
    # Half-widths for 2 % and one analysis are t * 2 % * cost / sqrt(n), with t of 2 to 6 units, which
    # have 1, 2, 3, 2 and 3 degrees of freedom: 18.0 %, 5.764 %, 3.475 %, 4.12 %, 2.8 %
    assert predicted_launches(0.02, 0.0577, looks=1) == 3
    assert predicted_launches(0.02, 0.0348, looks=1) == 4
    assert predicted_launches(0.02, 0.0347, looks=1) == 6
    # two more degrees of freedom from a prior: 3.182 * 2 % / sqrt(2), then 2.776 * 2 % * sqrt(1.346 / 3)
    assert predicted_launches(0.02, 0.04502, looks=1, prior_df=2) == 2
    assert predicted_launches(0.02, 0.0372, looks=1, prior_df=2) == 3
    assert predicted_launches(0.0, 0.03) == 2


def test_predicted_units_grow_with_the_noise_the_interim_analyses_and_the_effort():
    assert predicted_launches(0.04, 0.01) > predicted_launches(0.02, 0.01) > predicted_launches(0.02, 0.02)
    assert predicted_launches(0.02, 0.01, looks=9) > predicted_launches(0.02, 0.01, looks=1)
    # far out it is the square of (t * 1.07 * deviation / target), with 1.96 for t
    many = predicted_launches(0.10, 0.01, looks=1)
    assert many == pytest.approx((1.96 * 1.0698 * 10) ** 2, rel=0.08)
    assert predicted_launches(10.0, 0.0001) >= 100_000  # no end that anybody would wait for


# --- words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.4237, 1.38, 1.46, "1.42"),
        (1.4237, 1.1, 1.7, "1.4"),
        (1.4237, 1.4187, 1.4287, "1.424"),
        (1.4237, 1.42369, 1.42371, "1.424"),  # four digits at most
        (12.345, 11.9, 12.7, "12.3"),
        (0.5, 0.2, 1.2, "0.5"),
        (37.2, 20.0, 60.0, "37"),
        (1.087, None, None, "1.1"),
        (0.087, None, None, "0.087"),
    ],
)
def test_a_ratio_has_the_digits_its_interval_supports(ratio, low, high, text):
    assert ratio_text(ratio, low, high) == text


def test_the_ratios_of_a_column_have_the_digits_of_the_one_that_is_known_best():
    assert ratio_places([(1.04, 0.9, 1.2), (1.012, 1.005, 1.019)]) == 3
    assert ratio_places([]) == 0


def told(verdict, ratio, low, high, **more):
    return words(
        {"verdict": verdict, "ratio": ratio, "ratio_low": low, "ratio_high": high, "rounds": 64, **more}
    )


def test_words_of_each_verdict():
    assert told("FASTER", 1.42, 1.38, 1.46) == "1.42× faster, 95 % CI [1.38, 1.46]"
    assert told("SLOWER", 1 / 1.30, 1 / 1.36, 1 / 1.25) == "1.30× slower, 95 % CI [1.25, 1.36]"
    assert told("UNDECIDED", 1.02, 0.97, 1.08) == "undecided: between 0.97× and 1.08×"
    equal = "no difference larger than 2 % (1.004×, 95 % CI [0.995, 1.013])"
    assert told("EQUIVALENT", 1.004, 0.995, 1.013) == equal
    assert "2.5 %" in told("EQUIVALENT", 1.004, 0.995, 1.013, margin=0.025)


def test_words_where_there_is_no_interval():
    few = words(contrast([[0.1, 0.1, 0.2]]).to_dict())
    assert "2 launches" in few
    one = contrast([[0.1] * 3]).to_dict()
    assert words({**one, "interval_budget_s": 14}).endswith(": give it about 14 s")
    assert "5 launches" in words(contrast([[0.1], [0.2]]).to_dict())
    coarse = words(contrast([[0.1] * 20] * 2).to_dict())
    assert "clock" in coarse


def test_words_are_the_same_whether_the_generations_are_told_or_not():
    found = contrast(FOUR).to_dict()
    old = {name: found[name] for name in ("ratio", "ratio_low", "ratio_high", "verdict", "rounds", "margin")}
    assert words(old) == words(found) == "1.116× faster, 95 % CI [1.100, 1.132]"


def test_a_bound_is_not_rounded_onto_the_one_it_excludes():
    assert told("FASTER", 1.03, 1.0004, 1.06) == "1.0300× faster, 95 % CI [1.0004, 1.0600]"
    assert told("SLOWER", 1 / 1.03, 1 / 1.06, 1 / 1.004) == "1.030× slower, 95 % CI [1.004, 1.060]"


@given(st.floats(-3, 3), st.floats(1e-6, 2))
def test_words_agree_with_the_verdict_for_every_contrast(center, sigma):
    found = flat(shifted(center, 24, sigma))
    said = words(found.to_dict())
    sure = "faster" if found.ratio_low > 1 else "slower" if found.ratio_high < 1 else ""
    if found.verdict == "EQUIVALENT":  # too small to matter, which may be sure all the same
        assert ("measurably" in said) == bool(sure)
        assert (f"measurably {sure}" in said) if sure else said.startswith("no difference larger than")
    else:
        assert (sure or "undecided") in said
