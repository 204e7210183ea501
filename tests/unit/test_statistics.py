"""Estimators against literal values and against invented data whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.evidence import statistics
from core.evidence.measurement import latency_summary

TRIALS = 200  # simulated samples per case; the binomial error of a share near 0.95 is then 1.5 %


def test_runs_needed_are_the_published_table():
    assert [statistics.runs_needed(p) for p in (0.50, 0.90, 0.95, 0.99)] == [6, 36, 72, 368]


@pytest.mark.parametrize(
    ("p", "df", "expected"), [(0.975, 4, 2.776445), (0.975, 19, 2.093024), (0.95, 3, 2.353363)]
)
def test_t_quantile_matches_the_table(p, df, expected):
    assert statistics.t_quantile(p, df) == pytest.approx(expected, abs=1e-6)


def test_percentile_is_the_nearest_rank():
    assert statistics.percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert statistics.percentile([4.0, 1.0, 3.0, 2.0], 0.51) == 3.0
    assert statistics.percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize(("n", "p"), [(5, 0.5), (35, 0.9), (71, 0.95), (367, 0.99)])
def test_percentile_is_refused_one_run_below_what_it_needs(n, p):
    assert statistics.percentile_estimate([1.0] * n, p) is None
    assert statistics.percentile_estimate([1.0] * (n + 1), p) is not None


def test_few_runs_have_a_percentile_without_an_interval():
    estimate = statistics.percentile_estimate([float(i) for i in range(10)], 0.5)
    assert estimate == statistics.Estimate(value=4.0, low=None, high=None)


def test_upper_bound_beyond_the_largest_sample_is_none():
    estimate = statistics.percentile_estimate([float(i) for i in range(72)], 0.95)
    assert estimate.high is None
    assert estimate.low <= estimate.value == 68.0


def correlated(rng, n, phi):
    """AR(1) noise with unit variance, as latencies around 1 ms with a deviation of about 10 %."""
    noise = rng.normal(size=n)
    series = np.empty(n)
    series[0] = noise[0]
    for i in range(1, n):
        series[i] = phi * series[i - 1] + math.sqrt(1 - phi * phi) * noise[i]
    return (1e-3 * np.exp(0.1 * series)).tolist()


@pytest.mark.parametrize(
    ("phi", "n", "p", "z", "least"),
    [
        (0.0, 100, 0.50, 0.0, 0.92),
        (0.0, 400, 0.95, 1.644854, 0.92),
        (0.5, 400, 0.50, 0.0, 0.90),
        (0.8, 400, 0.50, 0.0, 0.85),  # an independent-runs interval covers about half of the time here
    ],
)
def test_percentile_intervals_cover_the_truth(phi, n, p, z, least):
    rng = np.random.default_rng(7)
    truth = 1e-3 * math.exp(0.1 * z)
    covered = 0
    for _ in range(TRIALS):
        estimate = statistics.percentile_estimate(correlated(rng, n, phi), p)
        covered += estimate.low <= truth and (estimate.high is None or truth <= estimate.high)
    assert covered / TRIALS >= least


def test_mean_interval_covers_the_truth_of_correlated_runs():
    rng = np.random.default_rng(11)
    truth = 1e-3 * math.exp(0.1**2 / 2)  # mean of a log-normal
    estimates = [statistics.mean_estimate(correlated(rng, 200, 0.5)) for _ in range(TRIALS)]
    assert sum(e.low <= truth <= e.high for e in estimates) / TRIALS >= 0.88


def test_correlation_widens_the_interval():
    rng = np.random.default_rng(3)
    width = {}
    for phi in (0.0, 0.9):
        estimates = [statistics.percentile_estimate(correlated(rng, 400, phi), 0.5) for _ in range(30)]
        width[phi] = sum(e.high - e.low for e in estimates)
    assert width[0.9] > 2 * width[0.0]


def test_drift_compares_the_ends():
    assert statistics.drift([1.0] * 29) is None
    assert statistics.drift([1.0] * 10 + [1.1] * 10 + [1.2] * 10) == pytest.approx(0.2)


def test_standard_deviation_of_one_sample_is_unknown():
    assert statistics.standard_deviation([1.0]) is None
    assert statistics.standard_deviation([1.0, 3.0]) == pytest.approx(math.sqrt(2))


@settings(max_examples=60)
@given(
    st.lists(st.floats(1e-7, 10, allow_nan=False), min_size=6, max_size=500),
    st.sampled_from((0.5, 0.9, 0.95, 0.99)),
)
def test_interval_holds_the_point_and_the_point_is_a_sample(samples, p):
    estimate = statistics.percentile_estimate(samples, p)
    if estimate is None:
        assert len(samples) < statistics.runs_needed(p)
        return
    assert estimate.value in samples
    assert estimate.low is None or estimate.low <= estimate.value
    assert estimate.high is None or estimate.high >= estimate.value


# --- runs that come in rounds ---------------------------------------------------------------------------


def in_rounds(rng, samples, rounds, runs, *, between=0.08, phi=0.6):
    """Latencies around 1 ms [sample, round * run], and the deviation of their logarithm, which is normal.

    Each round has its own level (`between`), and within a round a run resembles the one before.
    """
    level = between * rng.normal(size=(samples, rounds, 1))
    noise = rng.normal(size=(samples, rounds, runs))
    for i in range(1, runs):
        noise[:, :, i] = phi * noise[:, :, i - 1] + math.sqrt(1 - phi * phi) * noise[:, :, i]
    logs = level + 0.05 * noise
    return (1e-3 * np.exp(logs)).reshape(samples, -1).tolist(), math.hypot(between, 0.05)


def covers(estimate, truth):
    return estimate.low <= truth and (estimate.high is None or truth <= estimate.high)


def independent_interval(samples, p):
    """What a textbook does: ranks of the binomial distribution, as if no run resembled another."""
    ordered, n = sorted(samples), len(samples)
    half = 1.96 * math.sqrt(n * p * (1 - p))
    low, high = int(n * p - half), math.ceil(n * p + half)
    return statistics.Estimate(value=0.0, low=ordered[low], high=ordered[high] if high < n else None)


@pytest.mark.parametrize(
    ("rounds", "runs", "p", "z", "between", "least"),
    [
        (40, 25, 0.50, 0.0, 0.08, 0.94),
        (8, 20, 0.50, 0.0, 0.08, 0.94),
        (40, 25, 0.90, 1.281552, 0.05, 0.93),
        (64, 25, 0.95, 1.644854, 0.03, 0.93),
        (128, 20, 0.99, 2.326348, 0.03, 0.92),
    ],
)
def test_intervals_of_rounds_cover_the_truth_where_independent_ones_do_not(
    rounds, runs, p, z, between, least
):
    data, deviation = in_rounds(np.random.default_rng(21), 200, rounds, runs, between=between)
    truth = 1e-3 * math.exp(deviation * z)
    found = [statistics.percentile_estimate(samples, p, [runs] * rounds) for samples in data]
    told = [one for one in found if one is not None]
    assert len(told) >= 0.97 * len(found)
    assert sum(one.high is not None for one in told) >= 0.95 * len(told)
    assert sum(covers(one, truth) for one in told) / len(told) >= least
    naive = sum(covers(independent_interval(samples, p), truth) for samples in data) / len(data)
    assert naive < 0.85


def test_a_mean_of_rounds_covers_the_truth():
    data, deviation = in_rounds(np.random.default_rng(22), 300, 12, 20)
    truth = 1e-3 * math.exp(deviation**2 / 2)
    estimates = [statistics.mean_estimate(samples, [20] * 12) for samples in data]
    assert sum(covers(one, truth) for one in estimates) / len(estimates) >= 0.92
    assert sum(covers(statistics.mean_estimate(samples), truth) for samples in data) / len(data) < 0.92


def test_rounds_of_different_sizes_weigh_what_they_hold():
    """Half of the rounds have nine times the runs of the others."""
    sizes = [4, 36] * 20
    data, _ = in_rounds(np.random.default_rng(23), 200, 40, 36)
    covered = 0
    for samples in data:
        kept = [x for i, size in enumerate(sizes) for x in samples[36 * i : 36 * i + size]]
        covered += covers(statistics.percentile_estimate(kept, 0.5, sizes), 1e-3)
    assert 0.92 <= covered / 200 <= 0.985


def test_a_round_of_few_runs_moves_the_interval_little():
    rng = np.random.default_rng(28)
    even = rng.normal(1.0, 0.1, 400).tolist()
    without = statistics.percentile_estimate(even, 0.5, [40] * 10)
    astray = statistics.percentile_estimate([*even, 9.0, 9.0], 0.5, [40] * 10 + [2])
    assert astray.high - astray.low == pytest.approx(without.high - without.low, rel=0.1)


def test_independent_runs_lose_nothing_by_coming_in_rounds():
    rng = np.random.default_rng(24)
    samples = (1 + 0.1 * rng.normal(size=2000)).tolist()
    estimate = statistics.percentile_estimate(samples, 0.5, [50] * 40)
    textbook = independent_interval(samples, 0.5)
    assert estimate.high - estimate.low == pytest.approx(textbook.high - textbook.low, rel=0.25)


def test_tails_take_rounds_and_not_only_runs():
    rng = np.random.default_rng(25)
    samples = rng.random(3800).tolist()

    def told(p, rounds):
        return statistics.percentile_estimate(samples, p, [len(samples) // rounds] * rounds) is not None

    assert [told(0.95, 19), told(0.95, 20), told(0.99, 38), told(0.99, 40)] == [False, True, False, True]
    assert [told(0.90, 4), told(0.90, 5), told(0.50, 1)] == [False, True, True]
    assert [statistics.rounds_needed(p) for p in (0.5, 0.9, 0.95, 0.99)] == [5, 5, 20, 40]


def test_a_tail_that_came_in_few_bursts_has_no_upper_bound_and_says_what_it_takes():
    burst = [2.0] * 50
    quiet = [1.0 + i / 1000 for i in range(50)]
    samples = [x for i in range(40) for x in (burst if i in (7, 30) else quiet)]
    rounds = [50] * 40
    assert statistics.percentile_estimate(samples, 0.5, rounds) is not None
    found = statistics.percentile_estimate(samples, 0.95, rounds)
    assert found.low <= found.value
    assert found.high is None
    needs = statistics.percentile_needs(samples, 0.95, rounds)
    # All the p95 knows is two rounds of forty: about as much as 40 runs, where 72 are needed.
    assert needs.runs == pytest.approx(2000 * 72 / 40, rel=0.15)
    assert needs.rounds == pytest.approx(40 * 72 / 40, rel=0.15)


def test_needs_are_the_plain_ones_where_nothing_better_is_known():
    needs = statistics.percentile_needs
    assert needs([1.0] * 10, 0.99) == statistics.Needs(runs=368, rounds=0)
    assert needs([1.0] * 10, 0.99, [5, 5]) == statistics.Needs(runs=368, rounds=40)
    assert needs([1.0] * 500, 0.99, [250, 250]) == statistics.Needs(runs=368, rounds=40)


def test_what_is_needed_suffices():
    """Measured again with that many rounds of the same kind, the percentile is there more often than not."""
    rng = np.random.default_rng(26)
    few, _ = in_rounds(rng, 60, 40, 15, between=0.03)
    refused = [one for one in few if statistics.percentile_estimate(one, 0.99, [15] * 40).high is None]
    assert len(refused) > 30
    rounds = round(
        float(np.median([statistics.percentile_needs(x, 0.99, [15] * 40).rounds for x in refused]))
    )
    assert 40 < rounds < 400
    more, _ = in_rounds(rng, 40, rounds, 15, between=0.03)
    told = [statistics.percentile_estimate(one, 0.99, [15] * rounds) for one in more]
    assert sum(one.high is not None for one in told) > 20


def test_few_rounds_have_a_median_without_an_interval():
    assert statistics.percentile_estimate([1.0, 2.0, 3.0, 4.0] * 5, 0.5, [5] * 4) == statistics.Estimate(
        value=2.0, low=None, high=None
    )
    assert statistics.mean_estimate([1.0, 3.0] * 10, [5] * 4).low is None


def test_rounds_without_runs_do_not_count_and_rounds_must_add_up():
    (samples,), _ = in_rounds(np.random.default_rng(27), 1, 10, 10)
    whole = statistics.percentile_estimate(samples, 0.5, [10] * 10)
    assert statistics.percentile_estimate(samples, 0.5, [0, *[10] * 10, 0]) == whole
    with pytest.raises(ValueError, match="2 rounds hold 90 runs, but there are 100 samples"):
        statistics.percentile_estimate(samples, 0.5, [45, 45])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.sampled_from((0.5, 0.9, 0.95)))
def test_any_rounds_give_an_ordered_interval_or_none(rounds, p):
    samples = [((i * 7919) % 101) / 101 for i in range(sum(rounds))]
    estimate = statistics.percentile_estimate(samples, p, rounds)
    if estimate is None:
        needs = statistics.percentile_needs(samples, p, rounds)
        held = sum(1 for size in rounds if size)
        assert needs.runs > len(samples) or needs.rounds > held
    elif estimate.low is not None:
        assert estimate.low <= estimate.value
        assert estimate.high is None or estimate.high >= estimate.value


def test_a_latency_summary_says_which_runs_and_rounds_its_missing_percentiles_need():
    samples = [1e-3 * (1 + (i * 7919 % 100) / 1000) for i in range(400)]
    in_rounds = latency_summary(samples, [40] * 10)
    assert in_rounds["needs_runs"].keys() == in_rounds["needs_rounds"].keys() == {"p95_s", "p99_s"}
    assert in_rounds["needs_rounds"]["p95_s"] >= 20
    assert in_rounds["needs_rounds"]["p99_s"] >= 40
    assert in_rounds["p50_s_low"] <= in_rounds["p50_s"] <= in_rounds["p50_s_high"]
    in_one_go = latency_summary(samples)
    assert (in_one_go["needs_runs"], in_one_go["needs_rounds"]) == ({}, {})
    assert latency_summary(samples[:100])["needs_runs"] == {"p99_s": 368}


# --- runs of several processes --------------------------------------------------------------------------


def in_processes(seed, processes, rounds=8, runs=10, between=0.02):
    """Latencies around 1 ms of rounds that alternate between launches, and the launch of each round."""
    rng = np.random.default_rng(seed)
    own = between * rng.normal(size=(processes, 1, 1))
    logs = (
        own
        + 0.02 * rng.normal(size=(processes, rounds, 1))
        + 0.05 * rng.normal(size=(processes, rounds, runs))
    )
    deviation = math.sqrt(between**2 + 0.02**2 + 0.05**2)
    made = [process for process in range(processes) for _ in range(rounds)]
    return (1e-3 * np.exp(logs)).ravel().tolist(), [runs] * len(made), made, deviation


@pytest.mark.parametrize("processes", [5, 9, 16])
@pytest.mark.parametrize("between", [0.003, 0.02])
def test_intervals_of_a_time_hold_for_new_processes(processes, between):
    """The truth is that of all processes that there could be; rounds of a few of them know too little."""
    covered, by_rounds = {"p50_s": 0, "mean_s": 0}, {"p50_s": 0, "mean_s": 0}
    for seed in range(100):
        samples, rounds, made, deviation = in_processes(seed, processes, between=between)
        truth = {"p50_s": 1e-3, "mean_s": 1e-3 * math.exp(deviation**2 / 2)}
        for found, count in (
            (latency_summary(samples, rounds, made), covered),
            (latency_summary(samples, rounds), by_rounds),
        ):
            for name, value in truth.items():
                count[name] += found[f"{name}_low"] <= value <= found[f"{name}_high"]
    assert min(covered.values()) >= 0.9 * 100
    if between == 0.02:
        assert max(by_rounds.values()) < 0.85 * 100  # why processes count


def test_tails_hold_for_new_processes_where_these_differ_little():
    covered = told = 0
    for seed in range(120):
        samples, rounds, made, deviation = in_processes(seed, 9, between=0.005)
        found = latency_summary(samples, rounds, made)
        if found["p95_s"] is not None:
            told += 1
            high = found["p95_s_high"]
            covered += found["p95_s_low"] <= 1e-3 * math.exp(1.644854 * deviation) <= (high or math.inf)
    assert told >= 110
    assert covered / told >= 0.93


def test_a_tail_is_told_whether_or_not_processes_look_alike():
    """If only processes that agree by chance gave a tail, its interval's coverage would be too low."""
    covered = 0
    for seed in range(100):
        samples, rounds, made, deviation = in_processes(seed, 5, between=0.05)
        found = latency_summary(samples, rounds, made)
        truth = 1e-3 * math.exp(1.281552 * deviation)
        covered += found["p90_s_low"] <= truth <= (found["p90_s_high"] or math.inf)
    assert covered >= 93


def test_processes_that_differ_much_leave_no_upper_bound_of_a_tail():
    """Whose p95 would it be? Six processes know it as well as six runs do."""
    samples, rounds, made, _ = in_processes(1, 6, between=0.5)
    found = latency_summary(samples, rounds, made)
    assert found["p95_s_low"] is not None
    assert found["p95_s_high"] is None
    assert found["needs_runs"]["p95_s"] > 2 * len(samples)
    assert latency_summary(samples, rounds)["p95_s_high"] is not None


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_a_mean_of_few_processes_holds_for_new_ones(processes):
    """Student's t makes up for few clusters; rounds of so few processes have far too low coverage."""
    covered = by_rounds = medians = 0
    for seed in range(200):
        samples, rounds, made, deviation = in_processes(seed, processes, between=0.02)
        truth = 1e-3 * math.exp(deviation**2 / 2)
        own, other = latency_summary(samples, rounds, made), latency_summary(samples, rounds)
        covered += own["mean_s_low"] <= truth <= own["mean_s_high"]
        medians += own["p50_s_low"] <= 1e-3 <= (own["p50_s_high"] or math.inf)
        by_rounds += other["mean_s_low"] <= truth <= other["mean_s_high"]
        assert own["processes"] == processes
    assert covered >= 0.91 * 200
    assert medians >= 0.93 * 200
    assert by_rounds < 0.75 * 200


def test_a_single_process_knows_nothing_of_the_next():
    samples, rounds, _, _ = in_processes(2, 4)
    one = latency_summary(samples, rounds, [0] * len(rounds))
    bounds = [value for name, value in one.items() if name.endswith(("_low", "_high"))]
    assert one["p50_s"] is not None
    assert bounds
    assert set(bounds) == {None}
    assert latency_summary(samples, None, None) == latency_summary(samples)


def test_rounds_of_processes_that_take_turns_are_sorted_by_process():
    """The two copies of the ORT default share every round; their order in it does not matter."""
    samples, rounds, made, _ = in_processes(3, 6)
    blocks = [samples[10 * i : 10 * i + 10] for i in range(len(rounds))]
    turns = sorted(range(len(blocks)), key=lambda i: (i % 8, i))
    mixed = [x for i in turns for x in blocks[i]]
    one = latency_summary(samples, rounds, made)
    other = latency_summary(mixed, rounds, [made[i] for i in turns])
    for name in (
        "p50_s",
        "p50_s_low",
        "p50_s_high",
        "mean_s_low",
        "mean_s_high",
        "needs_runs",
        "needs_rounds",
    ):
        assert other[name] == pytest.approx(one[name])


def test_a_tail_takes_rounds_and_not_as_many_processes():
    """40 rounds of a p99 may come from eight processes."""
    samples, rounds, made, _ = in_processes(4, 8, rounds=5, runs=60, between=0.0)
    assert latency_summary(samples, rounds, made)["p99_s"] is not None
    fewer = latency_summary(samples[:-60], rounds[:-1], made[:-1])
    assert fewer["p99_s"] is None
    assert fewer["needs_rounds"]["p99_s"] >= 40
    estimate = statistics.percentile_estimate
    assert estimate(samples, 0.99, [300] * 8, made=40) is not None
    assert estimate(samples, 0.99, [300] * 8) is None  # eight rounds, had they been rounds
    assert statistics.percentile_needs(samples[:300], 0.99, [100] * 3, made=30).rounds == 40


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [(0.975, 1, 12.706205), (0.975, 2.5, 3.574655), (0.996875, 6.2, 4.054184)],
)
def test_t_quantile_takes_parts_of_a_degree_of_freedom(p, df, expected):
    assert statistics.t_quantile(p, df) == pytest.approx(expected, abs=1e-5)
