"""Verdicts on targets: the interval decides, and what cannot be known is said to be unknown."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.measurement import latency_summary
from core.evidence.metrics import wilson
from core.evidence.targets import (
    STATE_WORDS,
    Measurements,
    TargetResult,
    evaluate_target,
    interval,
    margin,
    overall,
    process_peak,
    quantity,
    rows_to_decide,
    target_text,
)
from core.spec.metrics import METRICS
from core.spec.targets import TargetSpec, target_from_dict
from tests.reading import numbers, tells

MS = 1e-3
BOUND = st.floats(min_value=1e-4, max_value=1.0)


def target(metric: str, limit: str | float, **conditions: Any) -> TargetSpec:
    side = "at_most" if METRICS[metric].smaller_is_better else "at_least"
    return target_from_dict({"metric": metric, side: limit, **conditions})


@cache
def compared() -> dict[str, Any]:
    """50 rounds of 40 runs, at 2 ms a run, one row each."""
    rng = np.random.default_rng(0)
    samples = [2 * MS * (1 + 0.05 * float(rng.random())) for _ in range(2000)]
    return {
        "grade": "A",
        "batch_size": 1,
        "runs": len(samples),
        "latency": latency_summary(samples, rounds=[40] * 50),
        "cpu_s_per_inference": 4 * MS,
        "cpu_s_per_inference_low": 4.02 * MS,
        "cpu_s_per_inference_high": 4.06 * MS,
        "generations": 9,
        "peak_rss_bytes": 50_000_000,
        "output_error": {"max_rel": 0.001, "difference": ""},
    }


def result(**changes: Any) -> dict[str, Any]:
    return {**compared(), **changes}


def evidence(*results: dict[str, Any], **changes: Any) -> Measurements:
    return Measurements(**({"batch_size": 1, "results": {1: results} if results else {}} | changes))


def share(count: int, total: int) -> dict[str, Any]:
    low, high = wilson(count, total)
    return {"value": count / total, "low": low, "high": high, "count": count, "total": total}


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "rows": 360,
        "not_finite": 0,
        "classes": 10,
        "accuracy": share(358, 360),
        "top5": share(360, 360),
        "roc_auc": {"value": 0.999, "low": 0.99, "high": 1.0},
        "positive": {
            "sensitivity": share(36, 36),
            "specificity": share(323, 324),
            "roc_auc": {"value": 0.98, "low": 0.97, "high": 0.99},
        },
        **changes,
    }


def measured(**changes: Any) -> Measurements:
    return evidence(summaries={(None, None): summary(**changes)}, has_dataset=True)


# --- the rule -----------------------------------------------------------------------------------------------


@given(BOUND, BOUND, BOUND, BOUND)
def test_met_is_the_whole_interval_inside_and_missed_the_whole_outside(
    a: float, b: float, c: float, limit: float
) -> None:
    low, value, high = sorted((a, b, c))
    latency = {"p50_s": value, "p50_s_low": low, "p50_s_high": high}
    found = evaluate_target(target("latency_p50", limit), evidence(result(latency=latency)))
    assert found.state == ("MET" if high <= limit else "MISSED" if low > limit else "UNKNOWN")
    assert found.margin == limit - high
    assert (found.state == "MET") == (found.margin >= 0)
    assert bool(found.todo) == (found.state == "UNKNOWN")


@given(BOUND, BOUND, BOUND, st.lists(BOUND, min_size=2, max_size=2))
def test_a_stricter_limit_never_looks_better(a: float, b: float, c: float, limits: list[float]) -> None:
    low, value, high = sorted((a, b, c))
    strict, lax = sorted(limits)
    latency = {"p50_s": value, "p50_s_low": low, "p50_s_high": high}
    order = ("MET", "UNKNOWN", "MISSED")
    states = [
        evaluate_target(target("latency_p50", one), evidence(result(latency=latency))).state
        for one in (lax, strict)
    ]
    assert order.index(states[0]) <= order.index(states[1])


@given(st.integers(1, 2000), st.data(), st.floats(min_value=0.01, max_value=1.0))
def test_a_share_is_judged_by_its_interval(total: int, data: st.DataObject, limit: float) -> None:
    count = data.draw(st.integers(0, total))
    low, high = wilson(count, total)
    found = evaluate_target(target("accuracy", limit), measured(accuracy=share(count, total)))
    assert found.state == ("MET" if low >= limit else "MISSED" if high < limit else "UNKNOWN")


def test_the_point_alone_is_not_enough() -> None:
    latency = {"p99_s": 2.9 * MS, "p99_s_low": 2.5 * MS, "p99_s_high": 3.2 * MS}
    found = evaluate_target(target("latency_p99", "3 ms"), evidence(result(latency=latency)))
    assert (found.state, found.cause) == ("UNKNOWN", "wide")
    assert found.todo


@pytest.mark.parametrize(
    ("low", "limit", "state"), [(2.5, "3 ms", "UNKNOWN"), (2.5, "2 ms", "MISSED"), (None, "3 ms", "UNKNOWN")]
)
def test_a_bound_that_is_not_known_is_unbounded(low: float | None, limit: str, state: str) -> None:
    latency = {"p99_s": 2.9 * MS, "p99_s_low": low and low * MS, "p99_s_high": None}
    assert evaluate_target(target("latency_p99", limit), evidence(result(latency=latency))).state == state


@given(st.lists(st.sampled_from(["MET", "MISSED", "UNKNOWN"])))
def test_one_miss_is_a_miss_and_one_doubt_a_doubt(states: list[Any]) -> None:
    one = target("latency_p50", 1.0)
    found = overall(TargetResult(target=one, state=state) for state in states)
    expected = "MISSED" if "MISSED" in states else "UNKNOWN" if "UNKNOWN" in states else "MET"
    assert found == expected


# --- results of a comparison --------------------------------------------------------------------------------


def test_percentiles_of_a_comparison() -> None:
    of = evidence(result())
    for metric in ("latency_p50", "latency_p95", "latency_p99"):
        met, missed = evaluate_target(target(metric, "3 ms"), of), evaluate_target(target(metric, "1 ms"), of)
        assert (met.state, missed.state) == ("MET", "MISSED")
        assert met.low is not None
        assert met.low <= met.value <= met.high
        assert missed.margin < 0 < met.margin


def test_too_few_runs_for_a_tail_say_how_many_it_takes() -> None:
    few = result(runs=100, latency=latency_summary([2 * MS] * 100, rounds=[10] * 10))
    found = evaluate_target(target("latency_p99", "3 ms"), evidence(few))
    assert (found.state, found.cause, found.value) == ("UNKNOWN", "thin", None)
    assert numbers(found.why)[-2:] == [368, 40]


def test_throughput_is_the_mean_turned_over() -> None:
    eight = result(batch_size=8)
    found = evaluate_target(target("throughput", "2000/s", batch_size=8), evidence(results={8: [eight]}))
    mean_s = eight["latency"]["mean_s"]
    assert found.value == pytest.approx(8 / mean_s)
    assert found.low == pytest.approx(8 / eight["latency"]["mean_s_high"])
    assert found.state == "MET"
    assert (
        evaluate_target(target("throughput", "9000/s", batch_size=8), evidence(results={8: [eight]})).state
        == "MISSED"
    )


def test_cpu_time_has_the_spread_of_the_rounds_and_holds_the_pass() -> None:
    found = evaluate_target(target("cpu_s", "5 ms"), evidence(result()))
    assert found.value == 4 * MS
    assert (found.low, found.high) == (4 * MS, 4.06 * MS)  # the rounds say 4.02 to 4.06 ms
    assert found.state == "MET"
    assert evaluate_target(target("cpu_s", "4.05 ms"), evidence(result())).state == "UNKNOWN"


@pytest.mark.parametrize("end", ["low", "high"])
def test_cpu_time_without_a_spread_is_not_known(end: str) -> None:
    found = evaluate_target(target("cpu_s", "5 ms"), evidence(result(**{f"cpu_s_per_inference_{end}": None})))
    assert (found.state, found.value) == ("UNKNOWN", 4 * MS)


def test_memory_is_met_with_room_for_what_equal_processes_differ_by() -> None:
    of = evidence(result())
    assert evaluate_target(target("peak_rss", "100 MB"), of).state == "MET"
    assert evaluate_target(target("peak_rss", "50 MB"), of).state == "UNKNOWN"
    whole = process_peak({"baseline_rss_bytes": 60_000_000, "peak_rss_bytes": 50_000_000})
    assert whole == 110_000_000
    assert process_peak({"peak_rss_bytes": 50_000_000}) is None
    assert evaluate_target(target("peak_rss", "40 MB"), of).state == "MISSED"
    assert evaluate_target(target("peak_rss", "60 MB"), of).state == "MET"
    without_arena = evidence(result(), arena=False)
    assert evaluate_target(target("peak_rss", "60 MB"), without_arena).state == "UNKNOWN"


def test_output_error_is_exact_for_the_feeds() -> None:
    assert evaluate_target(target("output_error", 0.01), evidence(result())).state == "MET"
    assert evaluate_target(target("output_error", 0.0001), evidence(result())).state == "MISSED"


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_outputs_that_cannot_be_compared_miss_every_limit(value: float | None) -> None:
    error = {"max_rel": value, "difference": "the shapes differ"}
    found = evaluate_target(target("output_error", 1e9), evidence(result(output_error=error)))
    assert found.state == "MISSED"
    assert "the shapes differ" in found.why


TIMED = [one.name for one in METRICS.values() if one.source == "race" and one.under_load]
OLD = {
    "grade": "F",
    "grade_reason": "A neighbour took half the CPU.",
    "remedy": "Stop it.",
    "generations": None,
}


@pytest.mark.parametrize("metric", TIMED)
def test_a_comparison_that_an_older_version_rejected_says_nothing_of_time(metric: str) -> None:
    limit = METRICS[metric].example
    rejected = {name: value for name, value in result(**OLD).items() if name != "generations"}
    found = evaluate_target(target(metric, limit), evidence(rejected))
    assert (found.state, found.cause, found.value) == ("UNKNOWN", "rejected", None)
    assert tells(found.why, " F", "neighbour")
    assert found.todo == "Stop it."
    assert evaluate_target(target(metric, limit), evidence(result(**OLD))).cause == "rejected"
    earlier = evaluate_target(target(metric, limit), evidence(rejected, result()))
    assert earlier.cause != "rejected"  # an earlier one can


def test_memory_and_outputs_of_a_comparison_that_an_older_version_rejected_count() -> None:
    rejected = evidence(result(**OLD))
    assert evaluate_target(target("peak_rss", "100 MB"), rejected).state == "MET"
    assert evaluate_target(target("output_error", 0.0001), rejected).state == "MISSED"


def test_results_of_an_older_version_that_were_not_rejected_count() -> None:
    old = {name: value for name, value in result(grade="B").items() if name not in ("generations", "busy")}
    for metric in ("latency_p50", "latency_p99"):
        assert evaluate_target(target(metric, "3 ms"), evidence(old)).state == "MET"
        assert evaluate_target(target(metric, "1 ms"), evidence(old)).state == "MISSED"


@pytest.mark.parametrize("metric", TIMED)
def test_what_two_copies_of_one_configuration_differ_by_is_no_fault_of_its_times(metric: str) -> None:
    """Such a comparison decides nothing between two; a time's interval covers the spread of processes."""
    limit = METRICS[metric].example
    doubted = evaluate_target(target(metric, limit), evidence(result(grade="F", grade_reason="1.2×")))
    assert doubted == evaluate_target(target(metric, limit), evidence(result()))


# --- under background load ----------------------------------------------------------------------------------


WORDS = "under background load: chromium and 2 others used 1.6 cores"
BUSY = {"words": WORDS, "cores": 1.6, "programs": [], "steal_share": None, "reasons": ["foreign_load"]}
LAX = dict.fromkeys(TIMED, 1.0)
STRICT = {name: 1e-6 if METRICS[name].smaller_is_better else 1e9 for name in TIMED}


@pytest.mark.parametrize("metric", TIMED)
def test_a_target_that_a_busy_machine_met_is_met_with_a_remark(metric: str) -> None:
    found = evaluate_target(target(metric, LAX[metric]), evidence(result(busy=BUSY)))
    quiet = evaluate_target(target(metric, LAX[metric]), evidence(result()))
    assert (found.state, found.cause, found.todo) == ("MET", "", "")
    assert (found.value, found.low, found.high, found.margin) == (
        quiet.value,
        quiet.low,
        quiet.high,
        quiet.margin,
    )
    assert found.why == f"{quiet.why} Measured {WORDS}."
    assert "busy" not in quiet.why


@pytest.mark.parametrize("metric", TIMED)
def test_a_target_that_a_busy_machine_missed_is_not_known(metric: str) -> None:
    quiet = evaluate_target(target(metric, STRICT[metric]), evidence(result()))
    found = evaluate_target(target(metric, STRICT[metric]), evidence(result(busy=BUSY)))
    assert quiet.state == "MISSED"
    assert (found.state, found.cause) == ("UNKNOWN", "busy")
    assert tells(found.why, WORDS, quiet.why)
    assert "Wait for an idle machine" in found.todo
    assert (found.value, found.low, found.high) == (quiet.value, quiet.low, quiet.high)


def test_a_limit_within_the_interval_is_blamed_on_the_background_load_first() -> None:
    latency = {"p99_s": 2.9 * MS, "p99_s_low": 2.5 * MS, "p99_s_high": 3.2 * MS}
    found = evaluate_target(target("latency_p99", "3 ms"), evidence(result(latency=latency, busy=BUSY)))
    assert (found.state, found.cause) == ("UNKNOWN", "busy")


def test_memory_outputs_and_sizes_are_what_they_are_beside_anybody() -> None:
    of = evidence(result(busy=BUSY), size_bytes=1_000_000)
    for metric, limit in (("peak_rss", "40 MB"), ("output_error", 0.0001), ("model_size", "999 kB")):
        found = evaluate_target(target(metric, limit), of)
        assert (found.state, "busy" in found.why) == ("MISSED", False)


def test_what_is_missing_is_missing_on_a_busy_machine_too() -> None:
    few = result(runs=100, latency=latency_summary([2 * MS] * 100, rounds=[10] * 10), busy=BUSY)
    assert evaluate_target(target("latency_p99", "3 ms"), evidence(few)).cause == "thin"


@pytest.mark.parametrize("metric", [one.name for one in METRICS.values() if one.source == "race"])
def test_what_was_not_measured_is_not_known(metric: str) -> None:
    found = evaluate_target(target(metric, METRICS[metric].example, batch_size=8), evidence(result()))
    assert (found.state, found.cause) == ("UNKNOWN", "missing")
    assert "batch 8" in found.why
    failed = evaluate_target(
        target(metric, METRICS[metric].example), evidence(failures={1: "The worker ran out of memory."})
    )
    assert (failed.state, failed.cause) == ("UNKNOWN", "failed")
    assert "memory" in failed.why


@pytest.mark.parametrize("name", ["cpu_s_per_inference", "peak_rss_bytes", "output_error"])
def test_a_pass_that_found_nothing_is_not_known(name: str) -> None:
    metric = {"cpu_s_per_inference": "cpu_s", "peak_rss_bytes": "peak_rss"}.get(name, name)
    found = evaluate_target(target(metric, METRICS[metric].example), evidence(result(**{name: None})))
    assert (found.state, found.cause) == ("UNKNOWN", "missing")


def test_the_size_of_the_model_is_exact() -> None:
    of = evidence(size_bytes=1_000_000)
    assert evaluate_target(target("model_size", "1 MB"), of).state == "MET"
    assert evaluate_target(target("model_size", "999 kB"), of).state == "MISSED"
    assert evaluate_target(target("model_size", "1 MB"), evidence()).state == "UNKNOWN"


# --- results of labelled samples ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("accuracy", 358 / 360),
        ("top5", 1.0),
        ("sensitivity", 1.0),
        ("specificity", 323 / 324),
        ("roc_auc", 0.98),
    ],
)
def test_every_metric_of_labelled_rows(metric: str, value: float) -> None:
    found = evaluate_target(target(metric, 0.5), measured())
    assert (found.state, found.value) == ("MET", value)


def test_a_class_of_36_rows_cannot_show_98_percent_and_says_how_many_would() -> None:
    found = evaluate_target(target("sensitivity", "98 %"), measured())
    assert (found.state, found.value) == ("UNKNOWN", 1.0)
    assert "190" in found.todo


@given(st.floats(min_value=0.02, max_value=0.98), st.floats(min_value=0.02, max_value=0.98))
def test_that_many_rows_would_decide(value: float, limit: float) -> None:
    rows = rows_to_decide(value, limit, count=1)
    if rows is not None:
        low, high = wilson(value * rows, rows)
        assert low >= limit or high < limit
    else:
        assert abs(value - limit) < 0.001


def test_without_a_positive_class_only_what_needs_one_is_not_known() -> None:
    of = measured(positive=None)
    for metric in ("sensitivity", "specificity"):
        found = evaluate_target(target(metric, 0.5), of)
        assert (found.state, found.cause) == ("UNKNOWN", "failed")
        assert "class" in found.todo
    assert evaluate_target(target("roc_auc", 0.5), of).value == 0.999


def test_five_classes_are_all_among_the_first_five() -> None:
    assert evaluate_target(target("top5", "100 %"), measured(classes=5, top5=None)).state == "MET"
    odd = measured(classes=5, top5=None, not_finite=36)
    assert evaluate_target(target("top5", "100 %"), odd).value == 0.9


def test_a_class_without_rows_tells_nothing() -> None:
    nothing = {"value": None, "low": None, "high": None, "count": 0, "total": 0}
    positive = {"sensitivity": nothing, "specificity": share(1, 1), "roc_auc": nothing}
    found = evaluate_target(target("sensitivity", 0.5), measured(positive=positive))
    assert (found.state, "sensitivity" in found.why) == ("UNKNOWN", True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "No labelled data is given."),
        ({"has_dataset": True}, "Not measured on this data yet."),
        ({"has_dataset": True, "accuracy_failure": "It is no classifier."}, "It is no classifier."),
        (
            {"has_dataset": True, "summaries": {(None, None): {"failure": "There is no class `x`."}}},
            "no class",
        ),
    ],
)
def test_accuracy_that_was_not_measured_is_not_known(changes: dict[str, Any], words: str) -> None:
    found = evaluate_target(target("accuracy", "98 %"), evidence(**changes))
    assert found.state == "UNKNOWN"
    assert words in found.why
    assert found.todo


def test_a_target_is_judged_at_its_own_threshold() -> None:
    strict = summary(positive={"sensitivity": share(20, 36), "specificity": share(1, 1), "roc_auc": {}})
    of = evidence(summaries={(None, None): summary(), (3, 0.9): strict}, has_dataset=True)
    assert evaluate_target(target("sensitivity", 0.8), of).state == "MET"
    assert evaluate_target(target("sensitivity", 0.8, positive_class=3, threshold=0.9), of).state == "MISSED"


# --- in words -----------------------------------------------------------------------------------------------


def test_numbers_are_told_in_one_unit_for_each_kind() -> None:
    of = evidence(result(), size_bytes=119_893)
    assert quantity(target("latency_p99", "3 ms"), 0.00231) == "2.310 ms"
    assert quantity(target("latency_p99", "3 ms"), 0.000999) == "0.9990 ms"
    assert quantity(target("peak_rss", "100 MB"), 50_000_000) == "47.68 MiB"
    assert quantity(target("peak_rss", "100 MiB"), 50 * 2**20) == "50.00 MiB"
    assert quantity(target("accuracy", "98 %"), -0.005, signed=True) == "-0.5000 pp"
    assert interval(evaluate_target(target("model_size", "1 MB"), of)) == "exact"
    assert margin(evaluate_target(target("model_size", "1 MB"), of)) == "+859.5 KiB"


def test_a_cell_says_state_number_interval_and_margin() -> None:
    latency = {"p99_s": 2.3 * MS, "p99_s_low": 2.2 * MS, "p99_s_high": 2.5 * MS}
    met = evaluate_target(target("latency_p99", "3 ms"), evidence(result(latency=latency)))
    assert tells(target_text(met), STATE_WORDS["MET"], "2.300 ms", "+0.5000 ms")
    assert numbers(target_text(met)) == [2.3, 2.2, 2.5, 0.5]
    assert target_text(evaluate_target(target("latency_p99", "3 ms"), evidence())) == STATE_WORDS["UNKNOWN"]


@given(st.sampled_from(list(METRICS)), st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_has_words(metric: str, value: float) -> None:
    assert quantity(target(metric, METRICS[metric].example), value)


def test_a_verdict_is_plain_data() -> None:
    data = evaluate_target(target("latency_p99", "3 ms", batch_size=1), evidence(result())).to_dict()
    assert data["target"] == {"metric": "latency_p99", "at_most": "3 ms", "batch_size": 1}
    assert data["state"] == "MET"
