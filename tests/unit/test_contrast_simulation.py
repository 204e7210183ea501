"""Every estimator of a comparison against invented machines whose truth is known: coverage, alarms, power.

Seeds are fixed, so nothing here fails by chance. Each bound says what the protocol promises; `slack` is the
one-sided 99 % sampling error of a share, where a promise is met exactly rather than with room to spare.
"""

import math

import numpy as np
import pytest

from core.contrast import (
    PRECISIONS,
    contrast,
    hopeless,
    predicted_rounds,
    ranks,
    settled,
)
from core.race.record import Settings
from core.race.standing import Standing

QUICK = PRECISIONS["quick"]
MARGIN = 0.02


def slack(share, n):
    return 2.33 * math.sqrt(share * (1 - share) / n)


# --- invented noise: log ratios of pairs, in units of their typical deviation ---------------------------


def normal(rng, shape):
    return rng.normal(size=shape)


def heavy(rng, shape):
    """Student's t with 3 degrees of freedom, deviation 1."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def bursts(rng, shape):
    """A neighbour makes every seventh round five times as wild."""
    return rng.normal(size=shape) * np.where(rng.random(shape) < 1 / 7, 5, 1)


def lasting(rng, shape, persistence):
    """Heavy noise in which a round resembles the one before, as beside a neighbour that comes and goes."""
    noise = heavy(rng, shape)
    for i in range(1, shape[1]):
        noise[:, i] = persistence * noise[:, i - 1] + math.sqrt(1 - persistence**2) * noise[:, i]
    return noise


NOISES = pytest.mark.parametrize("noise", [normal, heavy, bursts])


def sides(rng, runs, rounds, ratio=1.0, contestants=2):
    """ln latencies [contestant, run, round]: own bursts of each side, on a machine that wanders by 30 %.

    A burst only ever slows a side down, so its noise is skewed. The first side is `ratio` times faster.
    """
    machine = np.cumsum(rng.normal(0, 0.1, (runs, rounds)), axis=1)
    own = 0.02 * rng.normal(size=(contestants, runs, rounds))
    hit = rng.random((contestants, runs, rounds)) < 0.15
    own += hit * rng.exponential(0.15, (contestants, runs, rounds))
    own[0] -= math.log(ratio)
    return machine + own


# --- one contrast ---------------------------------------------------------------------------------------


@NOISES
@pytest.mark.parametrize("n", [8, 24, 64])
def test_intervals_cover_the_truth(noise, n):
    rng = np.random.default_rng(n)
    found = [contrast(row) for row in (0.3 + 0.05 * noise(rng, (1500, n))).tolist()]
    covered = sum(one.ratio_low <= math.exp(0.3) <= one.ratio_high for one in found) / len(found)
    assert 0.93 <= covered <= 0.97  # nor is it wasteful


def test_a_wandering_machine_and_one_sided_bursts_cancel_in_pairs():
    rng = np.random.default_rng(5)
    candidate, baseline = sides(rng, 1500, 32, ratio=1.1)
    found = [contrast(row) for row in (baseline - candidate).tolist()]
    covered = sum(one.ratio_low <= 1.1 <= one.ratio_high for one in found) / len(found)
    assert 0.93 <= covered <= 0.98
    assert np.median([one.half_width for one in found]) < 0.03  # the machine wandered by 10 % a round


def test_bursts_that_last_for_rounds_cost_little_coverage():
    rows = lasting(np.random.default_rng(7), (1500, 64), 0.3).tolist()
    found = [contrast(row) for row in rows]
    assert sum(one.ratio_low <= 1 <= one.ratio_high for one in found) / len(found) >= 0.92  # else 0.85


def test_bursts_that_last_for_rounds_are_rarely_called_a_difference():
    """A/A races beside ten jobs on two cores had a mean correlation of 0.09, a tenth of them 0.3 or more."""
    _, share = verdicts(lambda rng, shape: lasting(rng, shape, 0.15), 0.05, 1.0, 300)
    assert share["FASTER"] + share["SLOWER"] <= 0.05


@NOISES
def test_all_looks_hold_together(noise):
    """With the 5 % split, no interval of a race misses; its budget may end it between two looks."""
    rng = np.random.default_rng(8)
    runs, missed, unsplit = 1500, 0, 0
    for row, budget in zip(noise(rng, (runs, 64)).tolist(), rng.integers(33, 65, runs).tolist(), strict=True):
        looks = [row[:n] for n in (8, 16, 32, budget)]
        missed += any(excludes_1(contrast(look, looks=4)) for look in looks)
        unsplit += any(excludes_1(contrast(look, looks=1)) for look in looks)
    assert missed / runs <= 0.05
    assert unsplit / runs > 0.09  # what the split is for


def excludes_1(found):
    return found.ratio_low > 1 or found.ratio_high < 1


# --- the whole procedure --------------------------------------------------------------------------------


def duel(row, precision=QUICK):
    """Race with these log ratios, by the rule of the race itself."""
    looks = len(precision.looks)
    for n in precision.looks:
        found = contrast(row[:n], looks=looks, margin=MARGIN)
        left = precision.looks[-1] - n
        if settled(found, precision.target) or hopeless(
            row[:n], looks=looks, margin=MARGIN, rounds_left=left
        ):
            return found
    return found


def verdicts(noise, sigma, ratio, runs, seed=1):
    rows = math.log(ratio) + sigma * noise(np.random.default_rng(seed), (runs, QUICK.looks[-1]))
    found = [duel(row) for row in rows.tolist()]
    shares = {
        name: sum(one.verdict == name for one in found) / runs
        for name in ("FASTER", "SLOWER", "EQUIVALENT", "UNDECIDED")
    }
    return found, shares


@NOISES
@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.15])
def test_like_against_like_is_rarely_called_different(noise, sigma):
    found, share = verdicts(noise, sigma, 1.0, 250)
    assert share["FASTER"] + share["SLOWER"] <= 0.05
    assert sum(one.ratio_low <= 1 <= one.ratio_high for one in found) / len(found) >= 0.93


def test_the_rule_of_the_race_itself_calls_few_equals_different():
    """It also goes on for a p99 where it could stop, and may then end between two looks."""
    rows = 0.05 * heavy(np.random.default_rng(11), (80, QUICK.looks[-1]))
    found = [raced(row, round_s=0.2) for row in rows.tolist()]
    assert sum(one.verdict in ("FASTER", "SLOWER") for one in found) / 80 <= 0.05
    assert sum(one.ratio_low <= 1 <= one.ratio_high for one in found) / 80 >= 0.93
    assert any(one.rounds not in QUICK.looks for one in found)


def raced(row, round_s):
    asked = Settings(
        precision=QUICK, budget_s=30.0, margin=MARGIN, seed=0, timeout_s=1.0, baseline=0, anchor=0
    )
    standing, n = Standing(asked), 0
    while not standing.stop([0, 1], [0, 1], n, elapsed_s=n * round_s, budget_s=30.0):
        standing.add(0, n, 1e-3 * math.exp(row[n]))
        standing.add(1, n, 1e-3)
        n += 1
    return standing.contrasts([1], [0, 1])[1]


def test_a_slowdown_of_three_percent_is_found_and_five_even_sooner():
    three, share = verdicts(heavy, 0.07, 1 / 1.03, 500)
    assert share["SLOWER"] >= 0.95
    assert share["FASTER"] == 0
    five, share = verdicts(heavy, 0.07, 1 / 1.05, 500)
    assert share["SLOWER"] >= 0.99
    assert np.mean([one.rounds for one in five]) < np.mean([one.rounds for one in three]) < 52


def test_claimed_ratios_are_honest_wherever_the_race_stopped():
    for ratio in (1.03, 1.3):
        found, _ = verdicts(heavy, 0.05, ratio, 500, seed=3)
        assert {one.rounds for one in found} >= {16, 32}
        assert sum(one.ratio_low <= ratio <= one.ratio_high for one in found) / len(found) >= 0.93


@pytest.mark.parametrize("ratio", [1 + MARGIN, 1 / (1 + MARGIN)])
def test_a_difference_at_the_margin_is_rarely_called_equivalent(ratio):
    for sigma in (0.02, 0.04):
        _, share = verdicts(heavy, sigma, ratio, 500)
        assert share["EQUIVALENT"] <= 0.05


def test_like_against_like_is_called_equivalent_where_the_noise_allows():
    _, share = verdicts(heavy, 0.03, 1.0, 300)
    assert share["EQUIVALENT"] >= 0.9


def test_what_is_given_up_would_not_have_been_decided():
    rng = np.random.default_rng(4)
    given_up = decided = 0
    for ratio in (1.0, 1.02, 1.05):
        rows = math.log(ratio) + 0.12 * heavy(rng, (700, 64))
        for row in rows.tolist():
            if hopeless(row[:32], looks=4, margin=MARGIN, rounds_left=32):
                given_up += 1
                decided += contrast(row, looks=4, margin=MARGIN).verdict != "UNDECIDED"
    assert given_up > 200  # it does happen: a third of the equal pairs
    assert decided / given_up <= 0.05


def test_giving_up_costs_no_power():
    rounds, looks = QUICK.looks[-1], len(QUICK.looks)
    rows = (math.log(1.025) + 0.12 * heavy(np.random.default_rng(6), (150, rounds))).tolist()
    to_the_end = sum(contrast(row, looks=looks).verdict == "FASTER" for row in rows)
    by_the_rule = sum(duel(row).verdict == "FASTER" for row in rows)
    assert 75 < to_the_end < 145  # hard enough to be given up now and then
    assert by_the_rule >= 0.95 * to_the_end


@NOISES
def test_predicted_rounds_reach_the_target_and_not_much_more(noise):
    """Predicted from a self-test of 64 rounds, as the screen does it before a start."""
    rng = np.random.default_rng(9)
    reached = []
    for _ in range(100):
        test = contrast((0.06 * noise(rng, 64)).tolist())
        n = predicted_rounds(test.sigma, 0.03)
        reached.append(contrast((0.06 * noise(rng, n)).tolist(), looks=6).half_width)
    assert 0.85 <= np.median(reached) / 0.03 <= 1.10


# --- ranks ----------------------------------------------------------------------------------------------


def placed(latencies):
    """Ranks of each run of ln latencies [contestant, run, round]."""
    names = "abcdefgh"[: len(latencies)]
    for run in range(latencies.shape[1]):
        table = {name: dict(enumerate(latencies[i, run].tolist())) for i, name in enumerate(names)}
        yield {one.name: one.rank for one in ranks(table, margin=0.0)}


def test_three_equal_contestants_are_rarely_ranked_apart():
    latencies = sides(np.random.default_rng(12), 800, 32, contestants=3)
    apart = sum(set(found.values()) != {1} for found in placed(latencies)) / 800
    assert apart <= 0.05


def test_bonferroni_is_needed_for_eight_equal_contestants():
    latencies = sides(np.random.default_rng(13), 100, 32, contestants=8)
    assert sum(set(found.values()) != {1} for found in placed(latencies)) / 100 <= 0.05 + slack(0.05, 100)


def test_a_faster_contestant_ranks_first_and_the_others_tie():
    latencies = sides(np.random.default_rng(14), 200, 32, ratio=1.08, contestants=3)
    right = sum(found == {"a": 1, "b": 2, "c": 2} for found in placed(latencies)) / 200
    assert right >= 0.9


# --- drift ----------------------------------------------------------------------------------------------


@NOISES
@pytest.mark.parametrize("n", [8, 32, 64])
def test_drift_is_rarely_seen_where_there_is_none(noise, n):
    rows = 0.3 * noise(np.random.default_rng(n), (1500, n))  # so wild that every trend is larger than 2 %
    alarms = sum(contrast(row).drifting for row in rows.tolist()) / 1500
    assert alarms <= 0.01 + slack(0.01, 1500)
    if n >= 32:
        assert alarms >= 0.002  # at its nominal 1 %, not asleep


def test_drift_is_seen_where_it_matters():
    rng = np.random.default_rng(2)
    for total, least, most in ((0.10, 0.95, 1.0), (0.005, 0.0, 0.05)):
        rows = 0.03 * heavy(rng, (200, 64)) + np.linspace(0, total, 64)
        share = sum(contrast(row).drifting for row in rows.tolist()) / 200
        assert least <= share <= most
