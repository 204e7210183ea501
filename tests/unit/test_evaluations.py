"""Evaluations of each configuration in a search, and their combined estimate."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.evaluations import (
    UNKNOWN_SE,
    Evaluation,
    Observation,
    ReportedSpeedup,
    contrast_of,
    evaluation_from_dict,
    launch_spread,
    observe,
    pass_reading,
    pooled,
    reference_doubts,
    reported_speedup,
    speedup_text,
    weighted,
)
from core.evidence.speedup_interval import ASSUMED_PRIOR
from core.evidence.speedup_interval import contrast as contrast_between
from core.spec.metrics import BY_ROUNDS, METRICS

HEAD = Observation(stage="screen", race="r", trial="t")
GAINS = st.tuples(st.floats(-2, 2), st.none() | st.floats(1e-4, 1))


def result(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "batch_size": 1,
        "latency": {"p50_s": 1e-3, "p95_s": 2e-3, "p99_s": 3e-3, "mean_s": 1.1e-3},
        "throughput_per_s": 900.0,
        "cpu_s_per_inference": 2e-3,
        "cpu_s_per_inference_low": 1.9e-3,
        "cpu_s_per_inference_high": 2.1e-3,
        "peak_rss_bytes": 50_000_000,
    }
    return facts | changes


def contrast(ratio: float = 1.25, **changes: Any) -> dict[str, Any]:
    return {"ratio": ratio, "standard_error": 0.02, "sigma": 0.03, "rounds": 5} | changes


# --- combined evaluations -------------------------------------------------------------------------------


def test_observations_are_weighted_by_their_standard_errors() -> None:
    middle, error = pooled([(0.0, 0.1), (0.1, 0.05)])
    assert middle == pytest.approx(0.1 * 4 / 5)
    assert error == pytest.approx(0.05 / math.sqrt(1.25))


def test_an_observation_of_unknown_error_counts_as_a_rough_one() -> None:
    assert pooled([(0.1, None)]) == (pytest.approx(0.1), None)
    middle, error = pooled([(0.0, None), (0.06, UNKNOWN_SE)])
    assert middle == pytest.approx(0.03)
    assert error == pytest.approx(UNKNOWN_SE / math.sqrt(2))


@given(st.lists(GAINS, min_size=1, max_size=6))
def test_combined_observations_are_between_the_worst_and_the_best(
    gains: list[tuple[float, float | None]],
) -> None:
    middle, error = pooled(gains)
    assert min(one for one, _ in gains) - 1e-9 <= middle <= max(one for one, _ in gains) + 1e-9
    known = [one for _, one in gains if one is not None]
    assert (error is None) == (not known)
    assert error is None or error > 0


def test_observations_that_contradict_each_other_count_less() -> None:
    agree, contradict = pooled([(0.1, 0.01), (0.11, 0.01)]), pooled([(0.1, 0.01), (0.2, 0.01)])
    assert agree[1] == pytest.approx(0.01 / math.sqrt(2))
    assert contradict[1] == pytest.approx(0.05)  # half of their distance


def test_what_a_configuration_gained_is_told_by_metric() -> None:
    one = Evaluation(
        changes={},
        key="k",
        looks=(
            Observation(
                stage="screen", race="r1", trial="t1", gains={"cpu_s": (0.1, 0.1)}, values={"cpu_s": 1.0}
            ),
            Observation(
                stage="heat", race="r2", trial="t2", gains={"latency_p50": (0.2, 0.1)}, values={"cpu_s": 2.0}
            ),
        ),
    )
    assert one.gain("cpu_s") == (pytest.approx(0.1), pytest.approx(0.1))
    assert one.gain("peak_rss") is None
    assert (one.value("cpu_s"), one.value("peak_rss")) == (2.0, None)


def test_a_configuration_that_failed_once_has_failed() -> None:
    fine = Observation(stage="screen", race="r", trial="t")
    crashed = Observation(stage="heat", race="r", trial="t", error="It crashed.")
    wrong = Observation(stage="heat", race="r", trial="t", breach="The outputs differ.")
    assert Evaluation(changes={}, key="k", looks=(fine,)).failed == ""
    assert Evaluation(changes={}, key="k", looks=(fine, crashed, fine)).failed == "It crashed."
    assert Evaluation(changes={}, key="k", looks=(fine, crashed, wrong)).failed == "The outputs differ."
    assert Evaluation(changes={}, key="k").failed == ""


def test_what_was_tried_survives_its_file() -> None:
    found = observe(HEAD, result(), result(), contrast(standard_error=None))
    one = Evaluation(changes={"a": [1, 2], "b": None}, key="k", looks=(found,), twin=True)
    assert evaluation_from_dict(json.loads(json.dumps(one.to_dict()))) == one


# --- an objective of several metrics --------------------------------------------------------------------


def test_an_objective_is_the_weighted_sum_of_its_metrics() -> None:
    gains = {"latency_p50": (0.2, 0.03), "peak_rss": (0.1, 0.04)}
    middle, error = weighted(gains, {"latency_p50": 0.5, "peak_rss": 0.5}) or (0, 0)
    assert middle == pytest.approx(0.15)
    assert error == pytest.approx(0.025)


def test_an_objective_of_which_a_part_lacks_is_not_known() -> None:
    assert weighted({"latency_p50": (0.2, 0.1)}, {"latency_p50": 0.5, "peak_rss": 0.5}) is None
    assert weighted({"latency_p50": None}, {"latency_p50": 1.0}) is None


def test_one_metric_of_unknown_error_stays_so() -> None:
    assert weighted({"cpu_s": (0.2, None)}, {"cpu_s": 1.0}) == (0.2, None)
    both = weighted({"cpu_s": (0.2, None), "peak_rss": (0.2, 0.0)}, {"cpu_s": 0.5, "peak_rss": 0.5})
    assert both == (pytest.approx(0.2), pytest.approx(UNKNOWN_SE / 2))


# --- one comparison -------------------------------------------------------------------------------------


def test_an_observation_has_the_speedup_of_every_metric_larger_is_better() -> None:
    other = result(cpu_s_per_inference=4e-3, peak_rss_bytes=100_000_000)
    found = observe(HEAD, result(), other, contrast(), sizes=(1.0, 4.0))
    assert all(found.gains[name] == (math.log(1.25), 0.02) for name in BY_ROUNDS)
    assert found.gains["cpu_s"][0] == pytest.approx(math.log(2))
    assert found.gains["peak_rss"][0] == pytest.approx(math.log(2))
    assert found.gains["model_size"] == (pytest.approx(math.log(4)), 0.0)
    assert found.values == {
        "cpu_s": 2e-3,
        "peak_rss": 50_000_000.0,
        "model_size": 1.0,
        "latency_p50": 1e-3,
        "latency_p95": 2e-3,
        "latency_p99": 3e-3,
        "latency_mean": 1.1e-3,
        "throughput": 900.0,
    }


def test_an_observation_without_common_rounds_has_no_speedup() -> None:
    found = observe(HEAD, result(), result(), None)
    assert not set(BY_ROUNDS) & set(found.gains)
    assert "latency_p50" in found.values


def test_an_observation_without_a_result_failed() -> None:
    failed = Observation(stage="screen", race="r", trial="t", error="It crashed.")
    assert observe(failed, {}, result(), None).error == "It crashed."
    assert observe(HEAD, {}, result(), None).error
    assert observe(failed, result(), result(), contrast()).gains == {}


def test_a_rough_observation_takes_its_error_from_what_its_rounds_differ_by() -> None:
    rough = observe(HEAD, result(), result(), contrast(standard_error=None, rounds=4)).gains["latency_p50"][1]
    assert rough == pytest.approx(math.hypot(0.015, 0.01))
    assert (
        observe(HEAD, result(), result(), contrast(standard_error=None, sigma=None)).gains["latency_p50"][1]
        is None
    )


def test_memory_without_the_arena_is_told_less_surely() -> None:
    def error(arena: bool) -> float:
        return observe(HEAD, result(), result(), None, arena=arena).gains["peak_rss"][1] or 0.0

    assert error(False) > error(True) > 0


def test_outputs_that_are_wrong_are_a_breach_and_no_failure_to_run() -> None:
    wrong = result(guard={"breach": True, "why": "Its outputs differ by 7 %."})
    found = observe(HEAD, wrong, result(), contrast())
    assert found.breach == "Its outputs differ by 7 %."
    assert found.gains
    assert observe(HEAD, result(guard={"breach": False}), result(), contrast()).breach == ""


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, (2e-3, 0.0255)),
        ({"batch_size": 4}, (5e-4, 0.0255)),
        ({"cpu_s_per_inference": None}, (2e-3, 0.0255)),
        ({"cpu_s_per_inference_low": None}, (2e-3, 0.1)),
        ({"cpu_s_per_inference": None, "cpu_s_per_inference_low": None}, None),
    ],
)
def test_cpu_time_of_a_row(changes: dict[str, Any], found: tuple[float, float] | None) -> None:
    own = pass_reading(METRICS["cpu_s"], result(**changes))
    assert own == (None if found is None else pytest.approx(found, rel=1e-2))


# --- other statistics than the median -------------------------------------------------------------------


def measured(
    factor: float, seed: int, *, runs: int = 40, generations: int = 6, rows: int = 1
) -> dict[str, Any]:
    """A result with its samples: four rounds in each generation, a tail of one run in ten."""
    rng = np.random.default_rng(seed)
    blocks = [
        {"generation": g, "round": 4 * g + r, "runs": runs} for g in range(generations) for r in range(4)
    ]
    samples = rng.lognormal(0, 0.05, len(blocks) * runs) * (1 + 2 * (rng.random(len(blocks) * runs) < 0.1))
    return {"batch_size": rows, "blocks": blocks, "latencies_s": (1e-3 * rows * factor * samples).tolist()}


@pytest.mark.parametrize("metric", ["latency_mean", "latency_p95", "latency_p99", "throughput"])
def test_other_statistics_find_the_ratio_that_is_there(metric: str) -> None:
    found = contrast_of(metric, measured(1.0, 1, runs=100), measured(1.5, 2, runs=100), looks=1, margin=0.02)
    assert found is not None
    assert found.ratio == pytest.approx(1.5, rel=0.1)
    assert found.verdict == "FASTER"


def test_rows_that_are_fed_together_count_each() -> None:
    found = contrast_of("throughput", measured(1.0, 1, rows=8), measured(1.0, 2), looks=1, margin=0.02)
    assert found is not None
    assert found.ratio == pytest.approx(1.0, rel=0.1)


def test_a_tail_of_too_few_runs_is_no_number() -> None:
    assert (
        contrast_of("latency_p99", measured(1, 1, runs=20), measured(1, 2, runs=20), looks=1, margin=0.02)
        is None
    )
    assert contrast_of("latency_p95", measured(1, 1, runs=20), measured(1, 2, runs=20), looks=1, margin=0.02)


def test_results_without_common_rounds_tell_nothing() -> None:
    assert contrast_of("latency_mean", measured(1, 1), {"batch_size": 1}, looks=1, margin=0.02) is None
    assert contrast_of("latency_p95", {}, {}, looks=1, margin=0.02) is None


# --- what is told of a configuration ------------------------------------------------------------------------

P50 = {"latency_p50": 1.0}


def seen(stage: Any, gain: float, launches: int, *, trial: str = "t", **facts: Any) -> Observation:
    gains = dict.fromkeys(BY_ROUNDS, (gain, 0.02))
    return Observation(stage=stage, race="r", trial=trial, gains=gains, launches=launches, **facts)


def of(*looks: Observation) -> Evaluation:
    return Evaluation(changes={}, key="k", looks=looks)


def test_what_a_single_launch_showed_has_no_interval() -> None:
    found = reported_speedup(of(seen("screen", 0.3, 1, df=3.0)), P50, {})
    assert found == ReportedSpeedup(ratio=pytest.approx(math.exp(0.3)), low=None, high=None, launches=1)
    assert found is not None
    assert speedup_text(found) == "about 1.35× (1 launch, no interval yet)"


def test_a_comparison_of_many_launches_is_told_with_its_own_interval() -> None:
    rng = np.random.default_rng(1)
    numbers = contrast_between(rng.normal(0.1, 0.01, (6, 8)).tolist(), looks=7)
    gain = {"latency_p50": (math.log(numbers.ratio), numbers.standard_error)}
    elimination = Observation(
        stage="heat", race="h", trial="t", gains=gain, launches=numbers.generations, df=numbers.df, splits=7
    )
    found = reported_speedup(of(seen("screen", 0.9, 1), elimination), P50, {})
    assert found is not None
    assert (found.low, found.high) == pytest.approx((numbers.ratio_low, numbers.ratio_high))
    among = reported_speedup(of(elimination), P50, {}, among=20)
    assert among is not None
    assert among.low is not None
    assert found.low is not None
    assert among.low < found.low  # the best of twenty is known less well than one that was named before


def test_a_confirmed_configuration_has_the_confirmations_number_everywhere() -> None:
    gain: Any = {"metric": "latency_p50", "ratio": 1.01, "ratio_low": 0.81, "ratio_high": 1.07}
    one = of(seen("heat", 0.3, 9, trial="h", df=8.0), seen("confirm", 0.2, 4, trial="c", df=4.0))
    assert reported_speedup(one, P50, {"c": gain}) == ReportedSpeedup(
        ratio=1.01, low=0.81, high=1.07, launches=4
    )


def test_an_interval_of_medians_is_not_sold_as_one_of_a_tail() -> None:
    found = reported_speedup(of(seen("heat", 0.3, 9, df=8.0)), {"latency_p99": 1.0}, {})
    assert found is not None
    assert found.low is None


def test_an_interval_beyond_a_factor_of_two_either_way_tells_nothing() -> None:
    assert speedup_text(ReportedSpeedup(ratio=1.2, low=0.5, high=2.9, launches=5)) == "not known yet"
    assert (
        speedup_text(ReportedSpeedup(ratio=1.2, low=1.1, high=1.3, launches=5))
        == "1.20×, 95 % CI [1.10, 1.30]"
    )


def test_controls_that_differ_widen_what_launches_are_thought_to_differ_by() -> None:
    assert launch_spread([]) == ASSUMED_PRIOR
    near, far = launch_spread([0.005] * 8), launch_spread([0.005] * 7 + [math.log(1.58)])
    assert near.sigma_between < ASSUMED_PRIOR.sigma_between < 0.1 < far.sigma_between
    assert far.source == "search"
    rounds = np.random.default_rng(2).normal(0.13, 0.01, (9, 8)).tolist()
    usual, widened = contrast_between(rounds, looks=8), contrast_between(rounds, looks=8, prior=far)
    assert usual.half_width is not None
    assert widened.half_width is not None
    assert widened.half_width > 3 * usual.half_width


def test_a_gain_is_over_the_faster_launch_of_the_default() -> None:
    default = result(latency={"p50_s": 2e-3})
    plain = observe(HEAD, result(), default, contrast(1.7), copies=0.01)
    slow = observe(HEAD, result(), default, contrast(1.7 * math.sqrt(2.3)), copies=-math.log(2.3))
    assert slow.gains["latency_p50"][0] == pytest.approx(plain.gains["latency_p50"][0])
    assert slow.level == pytest.approx(math.log(2e-3) - math.log(2.3) / 2)


def test_a_run_whose_default_was_slow_is_doubted_by_as_much() -> None:
    def at(comparison: str, level: float) -> Evaluation:
        return of(
            Observation(
                stage="screen", race=comparison, trial="t", gains={"latency_p50": (0, 0.01)}, level=level
            )
        )

    assert reference_doubts([at("a", -5.0)]) == {}
    assert reference_doubts([at("a", -5.0), at("b", -4.9)]) == {}
    assert reference_doubts([at("a", -5.0), at("b", -4.2)]) == {"b": pytest.approx(0.8)}
