"""Ratios, verdicts, ranks and their words against literal values; simulations have a module of their own."""

import math
import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contrast import (
    PRECISIONS,
    contrast,
    hopeless,
    predicted_rounds,
    ranks,
    ratio_text,
    settled,
    sufficient_look,
    words,
)

# ln ratios of ten rounds, one of them hit by a neighbour
ROUNDS = [0.30, 0.34, 0.36, 0.33, 0.37, 0.35, 0.31, 0.36, 0.38, -2.0]


def noise(n, sigma=1.0, seed=0):
    """A sample with the order statistics of a normal distribution, mean exactly 0, in a shuffled order."""
    normal = statistics.NormalDist(0, sigma)
    values = [normal.inv_cdf((i + 0.5) / n) for i in range(n)]
    random.Random(seed).shuffle(values)
    return values


def shifted(center, n=64, sigma=0.02):
    return [center + value for value in noise(n, sigma)]


# --- the estimate and its interval ----------------------------------------------------------------------


def test_trimmed_mean_and_interval_are_those_worked_out_by_hand():
    # Sorted, two of ten cut at either end: 0.31 0.33 0.34 0.35 0.36 0.36, mean 2.05 / 6. Winsorised, 0.31 is
    # there three times and 0.36 four times: mean 0.339, squares 0.00449. t with 5 degrees: 2.570582.
    found = contrast(ROUNDS, looks=1)
    center, error = 2.05 / 6, math.sqrt(0.00449 / 9) / (0.6 * math.sqrt(10))
    assert math.log(found.ratio) == pytest.approx(center)
    assert math.log(found.ratio_low) == pytest.approx(center - 2.570582 * error, rel=1e-5)
    assert math.log(found.ratio_high) == pytest.approx(center + 2.570582 * error, rel=1e-5)
    assert found.half_width == pytest.approx((found.ratio_high - found.ratio_low) / 2 / found.ratio)
    assert (found.verdict, found.rounds, found.drifting) == ("FASTER", 10, False)


def test_looks_share_the_five_percent():
    # t with 5 degrees of freedom at 1 - 0.05/4/2
    one, four = contrast(ROUNDS, looks=1), contrast(ROUNDS, looks=4)
    reach = math.log(four.ratio_high / four.ratio) / math.log(one.ratio_high / one.ratio)
    assert reach == pytest.approx(3.810 / 2.5706, rel=1e-3)


def test_rounds_that_resemble_the_one_before_widen_the_interval():
    shuffled = noise(64)
    lasting = sorted(shuffled[:32]) + sorted(shuffled[32:], reverse=True)
    alternating = [x for pair in zip(sorted(shuffled)[:32], sorted(shuffled)[32:], strict=True) for x in pair]
    plain, wide, same = (contrast(rounds) for rounds in (shuffled, lasting, alternating))
    assert plain.ratio == wide.ratio == same.ratio
    assert plain.sigma == pytest.approx(wide.sigma)
    assert math.log(wide.ratio_high / wide.ratio) > 3 * math.log(plain.ratio_high / plain.ratio)
    assert same.half_width <= plain.half_width  # never narrower than independent rounds
    error = 2.0227 * 0.6419 / (0.6 * math.sqrt(64))  # t with 39 degrees; of a winsorised normal
    assert math.log(same.ratio_high / same.ratio) == pytest.approx(error, rel=0.02)


def test_sigma_is_the_deviation_of_one_round_whatever_the_outliers():
    assert contrast(noise(200, 0.07)).sigma == pytest.approx(0.07, rel=0.01)
    assert contrast([*noise(190, 0.07), *[3.0] * 10]).sigma == pytest.approx(0.07, rel=0.1)
    assert contrast([0.1, 0.3]).sigma == pytest.approx(statistics.stdev([0.1, 0.3]))
    assert contrast([0.1]).sigma is None


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rounds_have_a_ratio_and_nothing_else(n):
    found = contrast([0.5, 0.4, 0.6, 9.0][:n])
    assert found.ratio == pytest.approx(math.exp(statistics.median([0.5, 0.4, 0.6, 9.0][:n])))
    assert (found.ratio_low, found.ratio_high, found.half_width) == (None, None, None)
    assert found.verdict == "UNDECIDED"


def test_five_rounds_have_an_interval():
    assert contrast([0.1, 0.2, 0.3, 0.4, 0.5]).ratio_low is not None


def test_no_round_is_an_error():
    with pytest.raises(ValueError, match="at least one round"):
        contrast([])


@pytest.mark.parametrize(
    "rounds", [[0.25] * 64, [0.25] * 52 + [0.5] * 12, [0.1 + 0.2, 0.3] * 20], ids=("all", "most", "rounding")
)
def test_a_clock_too_coarse_to_show_the_spread_gives_no_certainty(rounds):
    found = contrast(rounds)
    assert (found.ratio_low, found.ratio_high, found.verdict) == (None, None, "UNDECIDED")
    assert not settled(found, 1.0)


@pytest.mark.parametrize("center", [3000.0, -3000.0])
def test_absurd_rounds_overflow_nothing(center):
    found = contrast([center, center + 1, center + 2, center - 1, center - 2])
    assert found.ratio_low <= found.ratio <= found.ratio_high < math.inf


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=80), st.integers(1, 8))
def test_swapping_the_sides_mirrors_everything(rounds, looks):
    there, back = contrast(rounds, looks=looks), contrast([-x for x in rounds], looks=looks)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.sigma == pytest.approx(there.sigma)
    assert {there.verdict, back.verdict} in ({"FASTER", "SLOWER"}, {"EQUIVALENT"}, {"UNDECIDED"})
    if there.ratio_low is not None:
        assert there.ratio_low <= there.ratio <= there.ratio_high
        assert back.ratio_low == pytest.approx(1 / there.ratio_high)


def test_the_cost_grows_with_the_rounds_not_with_their_pairs():
    def cost(n):
        rounds = noise(n, 0.05)
        contrast(rounds, looks=7)  # Student's t is looked up once
        costs = []
        for _ in range(5):
            began = time.process_time_ns()
            contrast(rounds, looks=7)
            costs.append(time.process_time_ns() - began)
        return min(costs)

    assert cost(4096) / cost(256) < 64  # pairs would be 256


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
    assert contrast(shifted(center, sigma=sigma), looks=4, margin=0.02).verdict == verdict


def test_the_margin_decides_what_counts_as_equal():
    rounds = shifted(0.03, sigma=0.01)
    assert contrast(rounds, margin=0.02).verdict == "FASTER"
    assert contrast(rounds, margin=0.05).verdict == "EQUIVALENT"
    assert contrast(shifted(0.0, sigma=0.0001), margin=0.0).verdict == "UNDECIDED"


def test_settled_is_decided_and_narrow_and_without_drift():
    narrow, wide = contrast(shifted(0.3)), contrast(shifted(0.3, sigma=0.2))
    assert narrow.verdict == wide.verdict == "FASTER"
    assert settled(narrow, 0.03)
    assert not settled(wide, 0.03)
    assert not settled(contrast(shifted(0.015, sigma=0.06)), 0.03)  # narrow enough, and undecided
    rising = contrast([0.3 + 0.001 * i + x for i, x in enumerate(noise(64, 0.01))])
    assert rising.drifting
    assert rising.half_width < 0.03
    assert not settled(rising, 0.03)


def test_drift_must_be_significant_and_matter():
    still = noise(64, 0.02)
    assert not contrast(still).drifting
    assert contrast([x + 0.06 * i / 64 for i, x in enumerate(still)]).drifting
    assert contrast([x - 0.06 * i / 64 for i, x in enumerate(still)]).drifting
    assert not contrast([0.01 * i / 64 for i in range(64)]).drifting  # as clear as can be, and 1 %
    assert not contrast([0.1 * i for i in range(7)]).drifting  # too few rounds to tell
    assert not contrast([0.1] * 64).drifting


def test_giving_up_takes_wide_rounds_that_stay_wide_and_an_end_too_near():
    wide = noise(48, 0.3)
    give_up = {"looks": 4, "margin": 0.02, "rounds_left": 16}
    assert hopeless(wide, **give_up)
    assert not hopeless(wide[:31], **give_up)
    assert not hopeless(wide, **{**give_up, "rounds_left": 1_000_000})
    assert not hopeless(shifted(0.0, 48), **give_up)  # EQUIVALENT already
    assert not hopeless(shifted(0.1, 48, 0.3), **{**give_up, "rounds_left": 500})  # may well be FASTER then
    assert not hopeless([0.0] * 48, **give_up)  # no interval, no prediction
    calming = noise(32, 0.6) + noise(16, 0.01)
    assert contrast(calming, looks=4).verdict == "UNDECIDED"
    assert not hopeless(calming, **give_up)
    assert hopeless(shifted(0.012, 48, 0.04), **{**give_up, "rounds_left": -1})  # undecided, and at its end


# --- how long it takes ----------------------------------------------------------------------------------


def test_presets_are_those_of_the_protocol():
    table = {name: (one.target, one.budget_s, one.looks[-1]) for name, one in PRECISIONS.items()}
    assert table == {
        "quick": (0.03, 30, 256),
        "standard": (0.015, 120, 512),
        "publish": (0.007, 600, 1024),
    }
    assert all(one.looks[:4] == (8, 16, 32, 64) for one in PRECISIONS.values())


def test_the_first_look_that_suffices():
    looks = PRECISIONS["quick"].looks
    assert [sufficient_look(n, looks) for n in (1, 8, 9, 64, 65, 256, 257)] == [8, 8, 16, 64, 128, 256, None]


def test_predicted_rounds_follow_the_formula():
    assert predicted_rounds(0.07, 0.03) == math.ceil((2.6383 * 1.2 * 0.07 / 0.03) ** 2) == 55
    assert predicted_rounds(0.07, 0.03, looks=1) == math.ceil((1.96 * 1.2 * 0.07 / 0.03) ** 2) == 31
    assert predicted_rounds(0.0, 0.03) == 5


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


def told(verdict, ratio, low, high, **more):
    return words(
        {"verdict": verdict, "ratio": ratio, "ratio_low": low, "ratio_high": high, "rounds": 64, **more}
    )


def test_words_of_each_verdict():
    assert told("FASTER", 1.42, 1.38, 1.46) == "1.42× faster, 95 % [1.38, 1.46]"
    assert told("SLOWER", 1 / 1.30, 1 / 1.36, 1 / 1.25) == "1.30× slower, 95 % [1.25, 1.36]"
    assert told("UNDECIDED", 1.02, 0.97, 1.08) == "undecided: between 0.97× and 1.08×"
    equal = "no difference larger than 2 % (1.004×, 95 % [0.995, 1.013])"
    assert told("EQUIVALENT", 1.004, 0.995, 1.013) == equal
    assert told("EQUIVALENT", 1.004, 0.995, 1.013, margin=0.025).startswith(
        "no difference larger than 2.5 % ("
    )


def test_words_where_there_is_no_interval():
    few = words(contrast([0.1, 0.1, 0.2]).to_dict())
    assert few == "undecided: about 1.1×; an interval takes 5 rounds, there were 3"
    coarse = words(contrast([0.1] * 20).to_dict())
    assert (
        coarse == "undecided: about 1.1×; the rounds hardly differ: the clock is too coarse for an interval"
    )


def test_a_bound_is_not_rounded_onto_the_one_it_excludes():
    assert told("FASTER", 1.03, 1.0004, 1.06) == "1.0300× faster, 95 % [1.0004, 1.0600]"
    assert told("SLOWER", 1 / 1.03, 1 / 1.06, 1 / 1.004) == "1.030× slower, 95 % [1.004, 1.060]"


@given(st.floats(-3, 3), st.floats(1e-6, 2))
def test_words_agree_with_the_verdict_for_every_contrast(center, sigma):
    found = contrast(shifted(center, 24, sigma))
    start = {"FASTER": "faster", "SLOWER": "slower", "EQUIVALENT": "no difference", "UNDECIDED": "undecided"}
    assert start[found.verdict] in words(found.to_dict())


# --- ranks ----------------------------------------------------------------------------------------------


def field(**latencies):
    """Contestants with these latencies and spreads, in 64 rounds of a machine that is restless itself."""
    machine = noise(64, 0.3, seed=99)
    return {
        name: {r: math.log(latency) + machine[r] + own for r, own in enumerate(noise(64, sigma, seed))}
        for seed, (name, (latency, sigma)) in enumerate(latencies.items())
    }


def test_ranks_show_ties_as_ties():
    found = ranks(field(slow=(2.0, 0.02), a=(1.0, 0.02), b=(1.0, 0.02)))
    assert [(one.name, one.rank, one.ties) for one in found] == [
        ("a", 1, ("b",)),
        ("b", 1, ("a",)),
        ("slow", 3, ()),
    ]


def test_undecided_pairs_and_pairs_without_common_rounds_are_ties():
    contestants = field(a=(1.0, 0.02), b=(1.05, 0.9))
    assert [one.rank for one in ranks(contestants)] == [1, 1]
    contestants["late"] = {r: 9.0 for r in range(100, 164)}
    assert {one.name: one.ties for one in ranks(contestants)}["late"] == ("a", "b")


def test_a_difference_within_the_margin_is_a_tie():
    contestants = field(a=(1.0, 0.002), b=(1.01, 0.002))
    assert [one.rank for one in ranks(contestants, margin=0.02)] == [1, 1]
    assert [one.rank for one in ranks(contestants, margin=0.001)] == [1, 2]


def test_only_rounds_of_both_sides_count():
    a, b = field(a=(1.0, 0.02), b=(1.3, 0.02)).values()
    missed = {r: value for r, value in a.items() if r < 32}
    flattering = {r: value - 5 * (r >= 32) for r, value in b.items()}
    found = ranks({"a": missed, "b": flattering})
    assert [(one.name, one.rank) for one in found] == [("a", 1), ("b", 2)]


def test_nobody_stands_above_one_that_is_clearly_faster():
    # x and y are faster than a, and a than b. What x and y share with b is noise: by its direct defeats alone
    # b would be second, ahead of a.
    def rounds(numbers, center, sigma, seed):
        return dict(zip(numbers, [center + x for x in noise(len(numbers), sigma, seed)], strict=True))

    early, shared, late = range(64), range(24), range(100, 164)
    contestants = {
        "b": rounds(shared, 0.2, 2.0, 5) | rounds(late, 0.2, 0.01, 6),
        "a": rounds(early, 0.1, 0.01, 3) | rounds(late, 0.1, 0.01, 4),
        "x": rounds(early, 0.0, 0.01, 1),
        "y": rounds(early, 0.0, 0.01, 2),
    }
    alone = [one.rank for one in ranks({name: contestants[name] for name in ("x", "b")})]
    assert alone == [1, 1]
    found = ranks(contestants)
    assert [(one.name, one.rank, one.ties) for one in found] == [
        ("x", 1, ("y",)),
        ("y", 1, ("x",)),
        ("a", 3, ()),
        ("b", 4, ()),
    ]


def test_one_contestant_is_first():
    (only,) = ranks({"a": {0: 0.1}})
    assert (only.rank, only.ties) == (1, ())
