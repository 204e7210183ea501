"""Limits and percentiles under correlated requests: literal bounds, and coverage on simulated queues."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.load_bounds import Queue, cell, is_above_goal, told, true_percentile
from core.evidence.load.bounds import Clusters, Counted, judge, percentiles, requests_needed
from core.evidence.statistics import beta_quantile, percentile
from core.spec.load import LoadLimit, parse_load_limit

LIMIT = parse_load_limit("p99<=10ms")


def clusters(values: list[float], *, seconds: float = 100.0) -> Clusters:
    return Clusters([counted(values, seconds)])


def counted(values: list[float], seconds: float = 100.0) -> Counted:
    n = len(values)
    at_s = [seconds * (i + 0.5) / n for i in range(n)]
    return Counted(at_s=at_s, value_s=values, from_s=0.0, until_s=seconds)


def spread_evenly(n: int, bad: int, slow_s: float = 0.02) -> list[float]:
    """Latencies of which every n/bad-th is slow; the others are almost equal."""
    rng = random.Random(0)
    step = n // bad if bad else n + 1
    return [slow_s if i % step == step // 2 else 0.001 * rng.uniform(1, 1.1) for i in range(n)]


def in_a_row(n: int, bad: int) -> list[float]:
    return [0.02 if n // 2 <= i < n // 2 + bad else value for i, value in enumerate(spread_evenly(n, 0))]


def test_evenly_spread_requests_count_as_independent() -> None:
    found = judge(LIMIT, clusters(spread_evenly(8000, 40)))
    assert found["share"] == 0.005
    assert found["allowed"] == 0.01
    assert found["limit"] == "p99<=10ms"
    assert found["verdict"] == "PASS"
    exact = beta_quantile(0.95, 41, 7960)
    assert exact <= found["high"] <= 1.2 * exact  # wider by Student's t only


def test_bad_requests_in_a_row_count_less() -> None:
    even, row = (judge(LIMIT, clusters(one)) for one in (spread_evenly(8000, 40), in_a_row(8000, 40)))
    assert even["share"] == row["share"]
    assert row["high"] > 2 * even["high"]
    assert row["low"] < even["low"]
    assert row["verdict"] == "UNDECIDED"


def test_clear_fails_and_a_share_at_the_limit() -> None:
    assert judge(LIMIT, clusters(spread_evenly(8000, 200)))["verdict"] == "FAIL"
    assert judge(LIMIT, clusters(spread_evenly(8000, 80)))["verdict"] == "UNDECIDED"


def test_latency_at_the_limit_keeps_it() -> None:
    assert judge(LIMIT, clusters([0.01] * 1000))["share"] == 0.0
    assert judge(LIMIT, clusters([0.010001] * 1000)) | {"low": 0, "high": 0} == {
        "limit": "p99<=10ms",
        "share": 1.0,
        "low": 0,
        "high": 0,
        "allowed": 0.01,
        "verdict": "FAIL",
    }


@pytest.mark.parametrize(("n", "passes"), [(329, False), (330, True)])
def test_without_a_bad_request_330_are_needed(n: int, passes: bool) -> None:
    found = judge(LIMIT, clusters([0.001] * n))  # 299 independent ones; 10 % more as 20 parts show the spread
    assert (found["verdict"] == "PASS") is passes
    assert (found["verdict"] == "UNDECIDED") is not passes


def test_requests_that_were_not_served_are_bad() -> None:
    values = [math.inf if one > 0.01 else one for one in spread_evenly(8000, 200)]
    assert judge(LIMIT, clusters(values))["verdict"] == "FAIL"
    timeouts = parse_load_limit("timeouts<=1%")
    assert judge(timeouts, clusters(values))["share"] == 0.025
    assert judge(timeouts, clusters(spread_evenly(8000, 200)))["share"] == 0.0  # slow, but served


def test_several_runs_are_judged_together() -> None:
    even = [counted(spread_evenly(1000, 5)) for _ in range(4)]
    assert judge(LIMIT, Clusters(even[:1]))["verdict"] == "UNDECIDED"
    assert judge(LIMIT, Clusters(even))["verdict"] == "PASS"


def test_runs_that_differ_widen_the_bounds() -> None:
    alike = [counted(spread_evenly(2000, 10)) for _ in range(6)]
    apart = [counted(spread_evenly(2000, bad)) for bad in (50, 2, 2, 2, 2, 2)]
    one, other = (judge(LIMIT, Clusters(runs)) for runs in (alike, apart))
    assert one["share"] == pytest.approx(other["share"])
    assert one["verdict"] == "PASS"
    assert other["verdict"] == "UNDECIDED"


def test_the_requests_needed_are_a_forecast_that_holds() -> None:
    few = clusters(spread_evenly(750, 3))
    assert judge(LIMIT, few)["verdict"] == "UNDECIDED"
    needed = requests_needed(LIMIT, few)
    assert needed is not None
    assert 750 < needed < 2000
    for factor, verdict in ((0.7, "UNDECIDED"), (1.5, "PASS")):
        n = round(factor * needed)
        assert judge(LIMIT, clusters(spread_evenly(n, round(0.004 * n))))["verdict"] == verdict
    assert requests_needed(LIMIT, clusters(spread_evenly(1000, 10))) is None  # at the limit: never


# --- percentiles --------------------------------------------------------------------------------------------


def test_percentiles_of_independent_values() -> None:
    rng = random.Random(2)
    values = [rng.expovariate(1000) for _ in range(8000)]
    found, infinite = percentiles(clusters(values))
    assert [one["p"] for one in found] == [0.5, 0.9, 0.95, 0.99, 0.999]
    assert not infinite
    for one in found:
        assert one["value_s"] == percentile(values, one["p"])
        truth = -math.log(1 - one["p"]) / 1000
        assert one["low_s"] is not None
        assert one["low_s"] < truth
        if one["p"] < 0.999:
            assert one["high_s"] is not None
            assert truth < one["high_s"] < 1.3 * truth


@pytest.mark.parametrize(("n", "most"), [(5, None), (20, 0.5), (40, 0.9), (300, 0.95), (3000, 0.99)])
def test_percentiles_that_the_requests_cannot_support_are_left_out(n: int, most: float | None) -> None:
    found, _ = percentiles(clusters([0.001 * (i % 17) for i in range(n)]))
    assert max((one["p"] for one in found), default=None) == most


def test_a_percentile_that_is_not_finite_is_named() -> None:
    values = [math.inf if i % 50 == 0 else 0.001 for i in range(4000)]  # 2 %
    found, infinite = percentiles(clusters(values))
    assert [one["p"] for one in found] == [0.5, 0.9, 0.95]
    assert infinite == [0.99, 0.999]
    assert all(one["high_s"] is None or math.isfinite(one["high_s"]) for one in found)


# --- coverage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [Queue("exponential", 0.8), Queue("exponential", 0.5)])
def test_false_passes_at_the_true_limit_are_rare_where_simpler_rules_fail(queue: Queue) -> None:
    row = cell(queue, true_percentile(queue), runs=200, requests=1000)
    assert not is_above_goal(row)
    assert row["passes"]["ORTune"] <= 0.07 * 200
    assert row["passes"]["at the limit"] > 0.1 * 200  # so this test can fail
    assert row["passes"]["independent"] > 0.15 * 200
    assert row["contain"] >= 0.9 * row["intervals"] > 0
    assert "| 1,000 |" in told([row])


def test_the_rule_has_power_and_does_not_fail_a_rate_at_its_limit() -> None:
    queue = Queue("deterministic", 0.8)
    limit_s = true_percentile(queue, requests=1_000_000)
    below = cell(queue, limit_s, runs=40, requests=10_000, scale=0.85)
    assert below["passes"]["ORTune"] >= 25
    assert below["fails"] == 0


def test_the_true_percentile_is_that_of_theory() -> None:
    queue = Queue("exponential", 0.5)
    assert true_percentile(queue, 0.1) == pytest.approx(math.log(10) / 0.5)
    slowed = true_percentile(Queue("deterministic", 0.01), 0.5, requests=200_000)
    assert slowed == pytest.approx(1.0)  # hardly any queue


def test_a_limit_of_another_percentile_is_judged_with_its_own_share() -> None:
    values = spread_evenly(8000, 200)  # 2.5 %
    assert judge(LoadLimit(share=0.05, at_most_s=0.01), clusters(values))["verdict"] == "PASS"
    assert judge(LoadLimit(share=0.001, at_most_s=0.01), clusters(values))["verdict"] == "FAIL"
