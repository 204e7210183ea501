"""Estimators against literal values and against invented data whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import statistics

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


@given(st.lists(st.floats(0, 1), min_size=5, max_size=200), st.integers(1, 5))
def test_split_loses_nothing(samples, blocks):
    pieces = statistics.split(samples, blocks)
    assert [x for piece in pieces for x in piece] == samples
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
