"""Every estimator of a comparison on simulated machines with known true ratios: coverage, alarms, power.

Noise has two levels: a process's own level is drawn once per launch, the noise of a round once per round.
Seeds are fixed, so nothing here fails by chance. Each bound is a promise of the protocol; `slack` is the
one-sided 99 % sampling error of a share, where a promise is met exactly rather than with room to spare.
"""

import math
import random
import statistics

import numpy as np
import pytest

from core.evidence import continuation
from core.evidence.quality import invalid_reason
from core.evidence.ranking import ranks
from core.evidence.record import Settings
from core.evidence.speedup_interval import (
    ASSUMED_PRIOR,
    Prior,
    contrast,
    excess_between,
    is_futile,
    may_stop,
    predicted_launches,
    trimmed_estimate,
)
from core.evidence.stopping import InterimResult
from core.run.prior import spread
from core.spec.effort import EFFORTS
from tests import builders

QUICK = EFFORTS["quick"]
MARGIN = 0.02
ROUNDS = 8
DIFFERENT = ("FASTER", "SLOWER")
RIGHT = Prior(sigma_between=0.01, df=4.0, source="history")


def slack(share, n):
    return 2.33 * math.sqrt(share * (1 - share) / n)


# --- invented noise, in units of its typical deviation ---------------------------------------------------


def normal(rng, shape):
    return rng.normal(size=shape)


def heavy(rng, shape):
    """One draw in ten is five times as wide."""
    return rng.normal(size=shape) * np.where(rng.random(shape) < 0.1, 5, 1)


def student(rng, shape):
    """Student's t with 3 degrees of freedom, deviation 1."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def invented(
    seed, runs, generations, rounds=ROUNDS, *, between=0.01, within=0.05, ratio=1.0, processes=normal
):
    """ln ratios [run][launch][round]; rounds are heavy-tailed, as under background load."""
    rng = np.random.default_rng(seed)
    kept = between * processes(rng, (runs, generations, 1))
    return (math.log(ratio) + kept + within * heavy(rng, (runs, generations, rounds))).tolist()


def lasting(rng, shape, persistence):
    """Noise in which a unit resembles the one before."""
    noise = student(rng, shape)
    for i in range(1, shape[1]):
        noise[:, i] = persistence * noise[:, i - 1] + math.sqrt(1 - persistence**2) * noise[:, i]
    return noise


def flat(rounds, **how):
    """Rounds as units: the design of one process for each side."""
    return contrast([[one] for one in rounds], prior=None, **how)


def share(found, *verdicts):
    return sum(one.verdict in verdicts for one in found) / len(found)


def covered(found, ratio=1.0):
    return sum(one.ratio_low is None or one.ratio_low <= ratio <= one.ratio_high for one in found) / len(
        found
    )


def z_scores(found, ratio=1.0):
    """What would be standard normal if the intervals were exact at every confidence."""
    scores = [(math.log(one.ratio / ratio) / one.standard_error, one.df) for one in found]
    return [statistics.NormalDist().inv_cdf(min(max(t_cdf(t, df), 1e-12), 1 - 1e-12)) for t, df in scores]


def t_cdf(t, df):
    """Student's t, by Simpson's rule over the angle: exact to six digits, and no code of the project's."""
    angle, steps = math.atan(t / math.sqrt(df)), 64
    norm = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    heights = [math.cos(angle * i / steps) ** (df - 1) for i in range(steps + 1)]
    area = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    return 0.5 + norm * area * angle / steps / 3


def test_the_yardstick_itself():
    assert t_cdf(2.570582, 5) == pytest.approx(0.975, abs=1e-6)
    assert t_cdf(-12.7062, 1) == pytest.approx(0.025, abs=1e-6)
    assert t_cdf(0.0, 3) == 0.5


PROCESSES = pytest.mark.parametrize("processes", [normal, heavy])
NOISES = pytest.mark.parametrize("noise", [normal, student, heavy])


# --- one interval ---------------------------------------------------------------------------------------


@PROCESSES
@pytest.mark.parametrize("generations", [1, 2, 3, 4, 6, 9, 16, 32])
@pytest.mark.parametrize("within", [0.01, 0.1])
def test_intervals_cover_the_truth_where_the_prior_is_right(processes, generations, within):
    runs = 200
    rows = invented(generations, runs, generations, within=within, ratio=1.3, processes=processes)
    found = [contrast(row) for row in rows]
    assert covered(found, 1.3) >= 0.95 - slack(0.95, runs)
    assert share(found, "SLOWER") == 0


@PROCESSES
@pytest.mark.parametrize(
    ("generations", "least"), [(1, 0.65), (2, 0.8), (3, 0.75), (6, 0.85), (9, 0.85), (32, 0.85)]
)
def test_standard_errors_are_as_large_as_the_errors(processes, generations, least):
    """With very few launches an interval is wider than it needs to be, and never much too narrow."""
    for within in (0.02, 0.1):
        found = [contrast(row) for row in invented(2, 600, generations, within=within, processes=processes)]
        assert least <= statistics.pstdev(z_scores(found)) <= 1.15


@pytest.mark.parametrize(
    ("between", "within"),
    [(0.003, 0.1), (0.005, 0.05), (0.01, 0.01), (0.02, 0.05), (0.03, 0.05), (0.03, 0.1)],
)
def test_from_sixteen_generations_on_a_prior_that_is_wrong_makes_little_difference(between, within):
    for processes in (normal, heavy):
        rows = invented(5, 500, 20, between=between, within=within, processes=processes)
        found = [contrast(row) for row in rows]
        assert 0.92 <= statistics.pstdev(z_scores(found)) <= 1.08
        assert covered(found) >= 0.93


@PROCESSES
@pytest.mark.parametrize("generations", [1, 2, 3])
@pytest.mark.parametrize("between", [0.003, 0.01, 0.03])
def test_a_verdict_of_one_to_three_generations_is_as_sure_as_any(processes, generations, between):
    """The prior keeps a comparison from stopping on a chance result, though processes differ by 3 %."""
    for within in (0.01, 0.1):
        rows = invented(7, 300, generations, between=between, within=within, processes=processes)
        found = [contrast(row, looks=len(QUICK.looks)) for row in rows]
        assert share(found, *DIFFERENT) <= 0.05
        assert covered(found) >= 0.95


def test_and_can_be_had_where_the_difference_is_large():
    rows = invented(8, 200, 3, ratio=1.3)
    assert share([contrast(row, looks=8) for row in rows], "FASTER") >= 0.95


@pytest.mark.parametrize("generations", [1, 2, 3, 4, 6, 9])
def test_processes_that_are_slow_for_life_fool_no_interval(generations):
    """One in nine is 2.3 times slower; a single launch of each cannot know, and would be wrong in 3 of 10."""
    rng = np.random.default_rng(31)
    own = 0.005 * rng.normal(size=(400, generations, 3))
    own += math.log(2.3) * (rng.random((400, generations, 3)) < 1 / 9)
    levels = own[..., None] + 0.02 * rng.normal(size=(400, generations, 3, 6))  # candidate and two copies
    found = [contrast(row) for row in (levels[:, :, 1:].mean(axis=2) - levels[:, :, 0]).tolist()]
    assert covered(found) >= 0.93
    assert (found[0].ratio_low is None) == (generations == 1)


# --- why launches are the units -------------------------------------------------------------------------


@pytest.mark.parametrize("between", [0.005, 0.01, 0.03])
def test_one_pair_of_processes_called_equals_different_and_generations_do_not(between):
    """Rounds of one process of each side, as in older versions: more rounds, narrower and often wrong."""
    runs, found = 400, {}
    for rounds in (32, 64):
        rows = invented(3, runs, 1, rounds, between=between, within=0.01)
        found[rounds] = share([flat(row[0], margin=0.0) for row in rows], *DIFFERENT)
    rows = invented(3, runs, 8, between=min(between, 0.01), within=0.01)
    fair = share([contrast(row, margin=0.0) for row in rows], *DIFFERENT)
    assert found[64] >= found[32] >= 0.2
    assert fair <= 0.05
    assert found[64] > 4 * fair


# --- rounds that cancel, and those that do not -----------------------------------------------------------


def sides(seed, runs, generations, ratio=1.0, contestants=2, between=0.005):
    """ln latencies [configuration, run, launch, round]: own bursts, on a machine that drifts by 30 %.

    A burst only ever slows a side down, so its noise is skewed. The first side is `ratio` times faster.
    """
    rng = np.random.default_rng(seed)
    shape = (runs, generations, ROUNDS)
    machine = np.cumsum(rng.normal(0, 0.1, (runs, generations * ROUNDS)), axis=1).reshape(shape)
    own = 0.02 * rng.normal(size=(contestants, *shape))
    hit = rng.random((contestants, *shape)) < 0.15
    own += hit * rng.exponential(0.15, (contestants, *shape))
    own += between * rng.normal(size=(contestants, runs, generations, 1))
    own[0] -= math.log(ratio)
    return machine + own


def test_a_wandering_machine_and_one_sided_bursts_cancel_in_pairs():
    candidate, baseline = sides(5, 500, 8, ratio=1.1)
    found = [contrast(row) for row in (baseline - candidate).tolist()]
    assert covered(found, 1.1) >= 0.93
    assert np.median([one.half_width for one in found]) < 0.03  # the machine wandered by 10 % a round


def test_units_that_resemble_the_one_before_cost_little_coverage():
    rows = lasting(np.random.default_rng(7), (1000, 64), 0.3).tolist()
    assert covered([flat(row) for row in rows]) >= 0.92  # else 0.85


@NOISES
@pytest.mark.parametrize("n", [8, 24, 64])
def test_units_alone_cover_the_truth(noise, n):
    rng = np.random.default_rng(n)
    found = [flat(row) for row in (0.3 + 0.05 * noise(rng, (800, n))).tolist()]
    assert 0.93 <= covered(found, math.exp(0.3)) <= 0.98  # nor is it wasteful


# --- the whole procedure --------------------------------------------------------------------------------


def contrast_of(row, precision=QUICK, prior=ASSUMED_PRIOR, splits=None, most=None):
    """Race with these generations, by the rule of the race: it ends at a look, or where the budget does."""
    splits = splits or continuation.parts(len(precision.looks))
    most = min(most or len(row), precision.looks[-1])
    for n in (*(look for look in precision.looks if look < most), most):
        found = contrast(row[:n], looks=splits, margin=MARGIN, prior=prior)
        enough = may_stop(found, precision.target, precision.of_effect)
        if enough or is_futile(found, looks=splits, left=most - n):
            break
    return found


def contrasts_of(rows, **how):
    return [contrast_of(row, **how) for row in rows]


def budgets(seed, runs, most):
    """The end of each comparison's budget: anywhere."""
    return np.random.default_rng(seed).integers(1, most + 1, runs).tolist()


@PROCESSES
@pytest.mark.parametrize(
    ("between", "within"), [(0.003, 0.01), (0.003, 0.1), (0.01, 0.03), (0.02, 0.05), (0.03, 0.1)]
)
def test_like_against_like_is_rarely_called_different(processes, between, within):
    """Comparisons that stop at interim analyses, or anywhere because the budget is over."""
    runs = 200
    rows = invented(11, runs, 40, between=between, within=within, processes=processes)
    ends = zip(rows, budgets(1, runs, 40), strict=True)
    found = [contrast_of(row, most=most) for row, most in ends]
    assert share(found, *DIFFERENT) <= 0.05
    assert covered(found) >= 0.93


@PROCESSES
@pytest.mark.parametrize("truth", [0.005, 0.02], ids=["too-large", "too-small"])
@pytest.mark.parametrize("prior", [ASSUMED_PRIOR, RIGHT], ids=["assumed", "history"])
def test_a_prior_that_is_off_by_two_does_little_harm(processes, truth, prior):
    rows = invented(12, 200, 32, between=truth, within=0.05, processes=processes)
    found = contrasts_of(rows, prior=prior)
    assert share(found, *DIFFERENT) <= 0.05
    assert covered(found) >= 0.93


@pytest.mark.parametrize(
    ("between", "prior"), [(0.03, ASSUMED_PRIOR), (0.02, RIGHT)], ids=["three-times-assumed", "twice-history"]
)
def test_a_prior_that_is_far_too_small_does_little_harm_where_rounds_are_calm(between, prior):
    found = contrasts_of(invented(12, 600, 32, between=between, within=0.01), prior=prior)
    assert share(found, *DIFFERENT) <= 0.05 + slack(0.05, 600)


@PROCESSES
def test_history_that_is_right_makes_small_differences_visible_sooner(processes):
    """Processes that differ by 0.3 %, as on an idle machine, and a model 3 % slower."""
    calm = Prior(sigma_between=0.003, df=4.0, source="history")
    rows = invented(13, 200, 9, between=0.003, within=0.02, ratio=1 / 1.03, processes=processes)
    assumed, known = contrasts_of(rows), contrasts_of(rows, prior=calm)
    assert share(known, "SLOWER") >= max(0.95, share(assumed, "SLOWER"))
    assert np.mean([one.generations for one in known]) < np.mean([one.generations for one in assumed])
    equal = contrasts_of(invented(14, 300, 32, between=0.003, within=0.02, processes=processes), prior=calm)
    assert share(equal, *DIFFERENT) <= 0.05
    assert covered(equal) >= 0.93


@pytest.mark.parametrize(("between", "within"), [(0.003, 0.02), (0.01, 0.05), (0.03, 0.05)])
def test_what_comparisons_learn_from_earlier_ones_keeps_them_honest(between, within):
    """Each comparison uses the earlier A/A controls: their estimates must not diverge."""
    kept, found = [], []
    for row in invented(15, 150, 9, between=between, within=within):
        prior = spread(kept, 0.001)
        found.append(contrast(row, prior=prior))
        kept.append({"excess_between": excess_between(row), "generations": 9, "run_s": 0.001})
    assert covered(found) >= 0.93
    assert 0.7 * between <= prior.sigma_between <= between + within / 2


@pytest.mark.parametrize(("generations", "looks"), [(2, 8), (2, 1), (8, 1)])
def test_generations_of_one_round_are_rarely_called_different(generations, looks):
    """Slow models, and comparisons with an exact number of runs, have such."""
    found = [contrast(row, looks=looks) for row in invented(16, 1000, generations, 1, within=0.1)]
    assert covered(found) >= 0.93


def test_a_slowdown_of_three_percent_is_found_and_five_even_sooner():
    three = contrasts_of(invented(17, 200, 48, within=0.05, ratio=1 / 1.03))
    assert share(three, "SLOWER") >= 0.95
    assert share(three, "FASTER") == 0
    five = contrasts_of(invented(17, 200, 48, within=0.05, ratio=1 / 1.05))
    assert share(five, "SLOWER") >= 0.99
    assert np.mean([one.generations for one in five]) < np.mean([one.generations for one in three]) < 48


@pytest.mark.parametrize(
    ("between", "within", "generations"), [(0.003, 0.01, 4), (0.01, 0.03, 14), (0.03, 0.03, 48)]
)
def test_how_many_generations_five_percent_take(between, within, generations):
    """On a quiet machine the first look is enough; processes that differ by 3 % take a long race."""
    found = contrasts_of(invented(18, 120, generations, between=between, within=within, ratio=1.05))
    assert share(found, "FASTER") >= 0.9


def test_claimed_ratios_are_honest_wherever_the_comparison_stopped():
    for ratio in (1.03, 1.3):
        found = contrasts_of(invented(19, 250, 32, ratio=ratio))
        assert len({one.generations for one in found}) >= 3
        assert covered(found, ratio) >= 0.93


@pytest.mark.parametrize("ratio", [1 + MARGIN, 1 / (1 + MARGIN)])
def test_a_difference_at_the_margin_is_rarely_called_equivalent(ratio):
    for between, within in ((0.003, 0.02), (0.01, 0.05)):
        found = contrasts_of(invented(20, 250, 48, between=between, within=within, ratio=ratio))
        assert share(found, "EQUIVALENT") <= 0.05


@pytest.mark.parametrize(("between", "within"), [(0.003, 0.02), (0.003, 0.05), (0.01, 0.03)])
def test_like_against_like_is_called_equivalent_where_the_noise_allows(between, within):
    found = contrasts_of(invented(21, 120, 72, between=between, within=within))
    assert share(found, "EQUIVALENT") >= 0.95


@NOISES
def test_all_interim_analyses_hold_together(noise):
    """With the 5 % split, no interval of a comparison misses; its budget may end it between two analyses."""
    rng = np.random.default_rng(8)
    runs, missed, unsplit = 300, 0, 0
    rows = noise(rng, (runs, 64)).tolist()
    for row, budget in zip(rows, rng.integers(33, 65, runs).tolist(), strict=True):
        looks = [row[:n] for n in (8, 16, 32, budget)]
        missed += any(excludes_1(flat(look, looks=4)) for look in looks)
        unsplit += any(excludes_1(flat(look, looks=1)) for look in looks)
    assert missed / runs <= 0.05 + slack(0.05, runs)
    assert unsplit / runs > 0.08  # what the split is for


def excludes_1(found):
    return found.ratio_low > 1 or found.ratio_high < 1


def test_the_rule_of_the_comparison_itself_calls_few_equals_different():
    """It also goes on for a p99 where it could stop, and may then end between two looks."""
    found = [compared(row) for row in invented(23, 200, 32, between=0.005, within=0.015)]
    assert share(found, *DIFFERENT) <= 0.05
    assert covered(found) >= 0.93
    assert any(one.generations not in QUICK.looks for one in found)


def compared(row):
    """The contrast at the end of a race of short generations, which runs 40 rounds for a p99."""
    asked = Settings(effort=QUICK, budget_s=30, margin=MARGIN, seed=0, timeout_s=1.0, baseline=0, anchor=0)
    interim_result, made = InterimResult(asked), 0
    for generation, rounds in enumerate(row):
        for value in rounds[:4]:
            interim_result.add((0, 0), generation, made, 1e-3 * math.exp(value))
            interim_result.add((1, 0), generation, made, 1e-3)
            made += 1
        left = len(row) - generation - 1
        if interim_result.stop([0, 1], [0, 1], generation + 1, rounds=made, elapsed_s=0.0, left=left):
            break
    return interim_result.contrasts([1], [0, 1])[1]


def test_what_is_given_up_would_not_have_been_decided():
    given_up = decided = 0
    for ratio in (1.0, 1.02, 1.05):
        for row in invented(24, 120, 24, between=0.03, within=0.15, ratio=ratio):
            found = contrast(row[:12], looks=8, margin=MARGIN)
            if is_futile(found, looks=8, left=12):
                given_up += 1
                decided += contrast(row, looks=8, margin=MARGIN).verdict != "UNDECIDED"
    assert given_up > 80  # it does happen
    assert decided / given_up <= 0.05


def test_giving_up_costs_no_power():
    rows = invented(25, 120, 48, between=0.01, within=0.1, ratio=1.025)
    to_the_end = sum(contrast(row, looks=8).verdict == "FASTER" for row in rows)
    by_the_rule = share(contrasts_of(rows), "FASTER") * len(rows)
    assert 0.3 < to_the_end / len(rows) < 0.95  # hard enough to be given up now and then
    assert by_the_rule >= 0.93 * to_the_end


@PROCESSES
def test_predicted_generations_reach_the_target_and_not_many_more(processes):
    """Predicted from a self-test of 20 launches, as the Machine page does it before a start."""
    reached = []
    for row in invented(26, 60, 20, between=0.01, within=0.06, processes=processes):
        test = contrast(row)
        deviation = math.sqrt(test.sigma_between**2 + test.sigma**2 / ROUNDS)
        n = predicted_launches(deviation, 0.02, looks=8, prior_df=ASSUMED_PRIOR.df)
        (again,) = invented(n, 1, n, between=0.01, within=0.06, processes=processes)
        reached.append(contrast(again, looks=8).half_width)
    assert 0.8 <= np.median(reached) / 0.02 <= 1.2


# --- measuring longer -----------------------------------------------------------------------------------


def gone_on(row, first=QUICK, then=QUICK, times=1):
    """A comparison that its budget ends, and that continues `times` times as `continuation` sets it.

    True if any of its answers says that equals differ: the user has seen every earlier answer.
    """
    protocol = {"looks": list(first.looks), "precision": first.name, "margin": MARGIN, "runs": None}
    protocol["splits"] = continuation.parts(len(first.looks))
    made = len(row) // (times + 1)
    found = contrast_of(row, first, most=made)
    wrong = found.verdict in DIFFERENT
    for part in range(2, times + 2):
        comparison = builders.comparison(
            {}, protocol=protocol, result={"generations": [{}] * found.generations}
        )
        protocol = continuation.protocol(comparison, then.name, None)
        looks = tuple(look for look in protocol["looks"] if look > found.generations)
        asked = type(then)(name=then.name, target=then.target, budget_s=then.budget_s, looks=looks)
        found = contrast_of(
            row, asked, splits=continuation.splits(protocol), most=len(row) * part // (times + 1)
        )
        wrong = wrong or found.verdict in DIFFERENT
    return wrong


@PROCESSES
@pytest.mark.parametrize(
    ("then", "most", "times"),
    [("quick", 18, 1), ("publish", 18, 1), ("quick", 96, 1), ("quick", 96, 3)],
    ids=["some-looks-left", "another-effort", "all-spent", "three-times"],
)
def test_measuring_longer_keeps_false_answers_rare(processes, then, most, times):
    """Whoever goes on until an answer pleases is told something false in 5 % of all cases, at most."""
    runs = 200
    rows = invented(27, runs, most, within=0.03, processes=processes)
    assert sum(gone_on(row, then=EFFORTS[then], times=times) for row in rows) / runs <= 0.05


# --- the gate of the A/A test ---------------------------------------------------------------------------


def test_an_honest_comparison_is_rarely_doubted_and_a_fault_of_the_measurement_is():
    """Differences of 2 % in comparisons with equal copies, and in some whose second copy is 4 % slower."""
    effects = [contrast(row) for row in invented(28, 300, 9, within=0.02, ratio=1.02)]
    decided = [one for one in effects if one.verdict == "FASTER"]
    assert len(decided) > 100
    honest = [contrast(row) for row in invented(29, len(decided), 9, within=0.02)]
    faulty = [contrast(row) for row in invented(30, len(decided), 9, within=0.02, ratio=1.04)]
    doubted = [
        sum(bool(invalid_reason(a, b)) for a, b in zip(decided, aa, strict=True)) for aa in (honest, faulty)
    ]
    assert doubted[0] / len(decided) <= 0.01 + slack(0.01, len(decided))
    assert doubted[1] / len(decided) >= 0.9


# --- several candidates ---------------------------------------------------------------------------------

LOOKS_SEEN = [look for look in QUICK.looks if look <= 14]


def family(seed, runs, candidates, ratio=1.0, processes=heavy):
    """Log ratios [run][candidate][launch][round] against one baseline; the first is faster by `ratio`."""
    rng = np.random.default_rng(seed)
    shape = (runs, candidates + 1, LOOKS_SEEN[-1])
    latencies = 0.01 * processes(rng, (*shape, 1)) + 0.01 * rng.normal(size=(*shape, 3))
    latencies[:, 1] -= math.log(ratio)
    return (latencies[:, :1] - latencies[:, 1:]).tolist()


def told(rows, share_of):
    """The contrasts of all candidates at each interim analysis, as if none stopped before."""
    splits = continuation.parts(len(QUICK.looks), share_of)
    return [[contrast(row[:look], looks=splits) for row in rows] for look in LOOKS_SEEN]


def places(found):
    """The best and the worst place of each candidate, by the intervals of one interim analysis."""
    shown = {"base": (1.0, 1.0), **{str(index): one.interval for index, one in enumerate(found)}}
    return {one.name: (one.best, one.worst) for one in ranks(shown)}


@pytest.mark.parametrize(("candidates", "runs"), [(2, 200), (4, 120), (8, 80)])
def test_in_a_family_of_equals_nobody_is_called_different_or_ranked(candidates, runs):
    """At no interim analysis, by no interval, verdict or rank; and the 5 % of one candidate would not do."""
    alarms = alone = 0
    for rows in family(31, runs, candidates):
        looks = told(rows, candidates)
        wrong = any(excludes_1(one) for found in looks for one in found)
        ranked = any(set(places(found).values()) != {(1, candidates + 1)} for found in looks)
        assert wrong or not ranked  # a rank says no more than the intervals
        alarms += wrong
        alone += any(excludes_1(one) for found in told(rows, 1)[-1:] for one in found)
    assert alarms / runs <= 0.05
    if candidates == 8:
        assert alone > alarms


def test_the_intervals_of_one_candidate_are_those_of_ever():
    assert continuation.parts(8, family=1) == continuation.parts(8)
    (rows,) = family(32, 1, 1)
    assert contrast(rows[0], looks=9) == told(rows, 1)[-1][0]


def test_a_faster_candidate_ranks_first_and_the_others_share_the_places_behind_it():
    right = 0
    for rows in family(33, 60, 3, ratio=1.08):
        found = places(told(rows, 3)[-1])
        right += found == {"0": (1, 1), "1": (2, 4), "2": (2, 4), "base": (2, 4)}
    assert right / 60 >= 0.9


# --- drift ----------------------------------------------------------------------------------------------


@NOISES
@pytest.mark.parametrize("n", [8, 32, 64])
def test_drift_is_rarely_seen_where_there_is_none(noise, n):
    rows = 0.3 * noise(np.random.default_rng(n), (800, n))  # so wild that every trend is larger than 2 %
    alarms = sum(flat(row).drifting for row in rows.tolist()) / 800
    assert alarms <= 0.01 + slack(0.01, 800)
    if n >= 32:
        assert alarms >= 0.002  # at its nominal 1 %, not asleep


def test_drift_is_seen_where_it_matters():
    for total, least, most in ((0.10, 0.95, 1.0), (0.005, 0.0, 0.05)):
        rows = np.array(invented(2, 150, 24, between=0.005, within=0.03))
        rows += np.linspace(0, total, 24)[:, None]
        seen = sum(contrast(row).drifting for row in rows.tolist()) / 150
        assert least <= seen <= most


@pytest.mark.parametrize("launches", [2, 4, 5, 8, 14])
def test_what_is_usual_among_launches_holds_beside_slow_ones(launches: int) -> None:
    """One launch in nine is 2.3 times slower for life: few may have drawn none of these, or three."""
    rng = random.Random(launches)

    def drawn(n: int) -> list[float]:
        return [math.exp(rng.gauss(0, 0.01)) * (2.3 if rng.random() < 1 / 9 else 1.0) for _ in range(n)]

    truth = trimmed_estimate(drawn(20_000)).value
    found = [trimmed_estimate(drawn(launches)) for _ in range(1000)]
    held = sum(one.low is not None and one.high is not None and one.low <= truth <= one.high for one in found)
    assert held >= 0.93 * len(found)


def test_a_slow_launch_does_not_move_what_is_usual_and_one_launch_has_no_interval() -> None:
    values = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    assert trimmed_estimate([*values, 2.3]).value == pytest.approx(trimmed_estimate([*values, 1.02]).value)
    assert trimmed_estimate(values[:1]).low is None
