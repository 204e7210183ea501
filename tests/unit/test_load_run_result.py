"""Numbers of runs of known truth: percentiles, outcomes, courses, batches, new shapes, points, live."""

from __future__ import annotations

import dataclasses
import json
import math
from array import array
from typing import Any

import pytest

from core.evidence.load.load_result import point_words
from core.evidence.load.load_types import Arrivals, Kind, RawRun, RunResult
from core.evidence.load.queueing import simulate
from core.evidence.load.run_result import LiveCourse, course, point, run_result
from core.evidence.statistics import percentile
from core.spec.load import BatchingSpec, LoadSpec, parse_load_limit
from tests.raw_comparisons import counters
from tests.simulated_load import ended_early, sample_load_result, simulated_run

MS = 1_000_000


def load_of(*limits: str, **changes: Any) -> LoadSpec:
    return LoadSpec(rates=(200.0,), limits=tuple(map(parse_load_limit, limits)), **changes)


def percentiles_of(run: RunResult, name: str = "latency") -> dict[float, float]:
    return {one["p"]: one["value_s"] for one in run[name]}


def small_run(**changes: Any) -> RawRun:
    """Four requests by hand: 5, 4 and 3 ms of latency, and one in the warm-up."""
    raw = RawRun(
        configuration=1,
        rate=2.0,
        turn=3,
        arrivals=Arrivals(
            at_ns=array("q", [0, 2000 * MS, 2002 * MS, 3000 * MS]), kind=array("H", [0, 0, 1, 1])
        ),
        kinds=[Kind(rows=1), Kind(rows=4)],
        start_ns=array("q", [1, 2001 * MS, 2005 * MS, 3001 * MS]),
        end_ns=array("q", [10 * MS, 2005 * MS, 2006 * MS, 3003 * MS]),
        stream=array("H", [0] * 4),
        batch=array("q", range(4)),
        outcome="complete",
        reason="",
        streams=1,
        warmup_s=2.0,
        duration_s=4.0,
        dropped_ns=0,
    )
    return dataclasses.replace(raw, **changes)


def test_a_small_run_by_hand() -> None:
    found = run_result(small_run(), load_of())
    assert (found["configuration"], found["turn"], found["outcome"]) == (1, 3, "complete")
    assert (found["requests"], found["completed"], found["timeouts"], found["unserved"]) == (3, 3, 0, 0)
    assert (found["rate_per_s"], found["completed_per_s"], found["samples_per_s"]) == (1.5, 1.5, 4.5)
    assert found["mean_s"] == pytest.approx(0.004)
    assert found["latency"] == []  # three requests support none
    assert found["harness"] is None
    assert found["busy_share"] == pytest.approx(0.007 / 2)
    assert found["queue_max"] == 1
    assert found["batches"] == {"1": 2, "4": 2}
    assert [one["first_s"] for one in found["new_shapes"]] == pytest.approx([0.01, 0.001], rel=1e-4)
    assert [one["later_s"] for one in found["new_shapes"]] == pytest.approx([0.004, 0.002])
    assert [one[0] for one in found["ecdf"]] == pytest.approx([0.003, 0.004, 0.005])
    assert [one[1] for one in found["ecdf"]] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert found["verdict"] is None


def test_percentiles_are_those_of_the_counted_requests() -> None:
    raw = simulated_run(200.0, seconds=62.0)
    found = run_result(raw, load_of("p99<=20ms"))
    latencies = [
        (end - at) / 1e9 for at, end in zip(raw.arrivals.at_ns, raw.end_ns, strict=True) if at >= 2e9
    ]
    assert found["requests"] == len(latencies) > 10_000
    assert percentiles_of(found) == {p: percentile(latencies, p) for p in (0.5, 0.9, 0.95, 0.99, 0.999)}
    for one in found["latency"]:  # M/M/1
        truth = -math.log(1 - one["p"]) * 0.002 / (1 - 0.4)
        assert one["low_s"] is not None
        assert one["low_s"] <= truth
        assert one["high_s"] is None or truth <= one["high_s"]
    assert percentiles_of(found, "service")[0.5] == pytest.approx(0.002 * math.log(2), rel=0.05)
    assert percentiles_of(found, "waiting")[0.9] < percentiles_of(found)[0.9]
    assert found["busy_share"] == pytest.approx(0.4, rel=0.05)
    assert found["verdict"] == "PASS"
    assert found["harness"] is not None
    assert found["harness"]["accepted"]
    json.dumps(found, allow_nan=False)


def test_latency_counts_from_the_scheduled_arrival() -> None:
    raw = simulated_run(100.0, service="constant", service_s=0.001)
    stall = next(i for i, at in enumerate(raw.arrivals.at_ns) if at > 10e9)
    until = raw.arrivals.at_ns[stall] + 500 * MS
    for i in range(stall, len(raw.start_ns)):  # the server stalls for half a second
        if raw.start_ns[i] < until:
            raw.start_ns[i] = until
            raw.end_ns[i] = until = until + MS
    found = run_result(raw, load_of("p99<=50ms"))
    assert percentiles_of(found)[0.99] > 0.2
    assert percentiles_of(found, "service")[0.99] == pytest.approx(0.001)
    assert found["queue_max"] > 30


def test_timeouts_are_bad_and_hide_the_percentiles_that_they_reach() -> None:
    load = load_of("p99<=20ms", "timeouts<=1%", timeout_s=0.004)
    raw = simulated_run(400.0, seconds=30.0, load=load)
    found = run_result(raw, load)
    dropped = [i for i, end in enumerate(raw.end_ns) if not end and raw.arrivals.at_ns[i] >= 2e9]
    assert found["timeouts"] == len(dropped) > 0.05 * found["requests"]
    assert found["completed"] + found["timeouts"] == found["requests"]
    assert found["unserved"] == 0
    assert {one["p"] for one in found["latency"]} <= {0.5, 0.9}
    assert "so there is no" in found["notes"][0]
    assert "p99" in found["notes"][0]
    assert found["mean_s"] is None
    assert [one["verdict"] for one in found["limits"]] == ["FAIL", "FAIL"]
    assert found["limits"][1]["share"] == found["timeouts"] / found["requests"]
    json.dumps(found, allow_nan=False)


def test_a_saturated_run_fails_and_gives_no_percentile() -> None:
    load = load_of("p99<=20ms")
    raw = ended_early(simulated_run(700.0, load=load, seconds=30.0), 6.0, "saturated", "Saturated.")
    found = run_result(raw, load)
    assert (found["verdict"], found["outcome"], found["reason"]) == ("FAIL", "saturated", "Saturated.")
    assert found["latency"] == []
    assert found["service"]
    assert found["unserved"] > 500
    assert found["requests"] < 4.01 * 700 * 1.1
    assert found["completed_per_s"] == pytest.approx(500, rel=0.1)
    assert found["course"][-1]["queue"] > 700
    assert len(found["course"]) <= 6
    json.dumps(found, allow_nan=False)


def test_a_run_that_ends_in_its_warm_up_keeps_what_was_measured() -> None:
    load = load_of("p99<=20ms")
    raw = ended_early(simulated_run(900.0, load=load, seconds=30.0), 1.5, "saturated")
    found = run_result(raw, load)
    assert found["requests"] > 1000
    assert found["verdict"] == "FAIL"
    assert "in its warm-up" in found["notes"][0]


def test_a_run_that_failed_passes_no_limit() -> None:
    load = load_of("p99<=50ms")
    whole = run_result(simulated_run(200.0, load=load, seconds=60.0), load)
    assert whole["verdict"] == "PASS"
    raw = ended_early(simulated_run(200.0, load=load, seconds=60.0), 55.0, "failed", "The worker crashed.")
    found = run_result(raw, load)
    assert found["limits"][0]["high"] <= 0.01
    assert found["verdict"] == "UNDECIDED"
    assert found["requests"] > 9000


def test_a_cancelled_run_does_not_count_what_waited_as_bad() -> None:
    load = load_of("p99<=50ms")
    raw = ended_early(simulated_run(200.0, load=load, seconds=60.0), 40.0, "cancelled")
    last = max(i for i, end in enumerate(raw.end_ns) if end)
    raw.end_ns[last] = 0  # in flight
    found = run_result(raw, load)
    assert found["unserved"] == 0
    assert found["limits"][0]["share"] == 0.0
    assert found["verdict"] == "PASS"


def test_a_cancelled_run_counts_what_already_waited_longer_than_the_limit() -> None:
    load = load_of("p99<=50ms")
    raw = ended_early(simulated_run(200.0, load=load, seconds=60.0), 40.0, "cancelled")
    last = max(i for i, end in enumerate(raw.end_ns) if end)
    for i in range(last - 99, last):  # none was served for half a second before the last event
        raw.start_ns[i] = raw.end_ns[i] = 0
    assert run_result(raw, load)["unserved"] > 50


def test_a_rejected_harness_decides_no_limit() -> None:
    load = load_of("p99<=20ms")
    found = run_result(simulated_run(200.0, seconds=60.0, load=load, late_s=0.0005), load)
    assert found["harness"] is not None
    assert not found["harness"]["accepted"]
    assert found["verdict"] == "UNDECIDED"


def test_a_harness_that_starved_at_times_is_noted_without_a_limit() -> None:
    raw = simulated_run(100.0, service="constant")
    assert run_result(raw, load_of())["notes"] == []
    for i in range(0, len(raw.end_ns), 20):  # each 20th call waited 3 ms for a CPU
        raw.start_ns[i] += 3 * MS
        raw.end_ns[i] += 3 * MS
    found = run_result(raw, load_of())
    assert found["harness"] is not None
    assert found["harness"]["accepted"]
    assert found["notes"][0].startswith("The harness added 3.0 ms at p99")


def test_too_few_requests_are_undecided_and_the_note_says_how_many_it_takes() -> None:
    load = load_of("p99<=20ms")
    found = run_result(simulated_run(20.0, seconds=12.0, load=load), load)
    assert found["verdict"] == "UNDECIDED"
    assert "p99 ≤ 20 ms needs about" in found["notes"][0]


def test_batches_that_formed_are_counted_by_their_samples() -> None:
    spec = BatchingSpec(max_batch_size=4, max_queue_delay_microseconds=3000)
    raw = simulated_run(450.0, batching=spec)
    found = run_result(raw, load_of(), spec)
    assert set(found["batches"]) <= {"1", "2", "3", "4"}
    assert sum(int(samples) * calls for samples, calls in found["batches"].items()) == len(raw.end_ns)
    assert found["batches"]["2"] > 100
    assert found["harness"] is not None
    assert found["harness"]["p99_s"] == 0.0


def test_counters_give_cpu_and_interference() -> None:
    blocks = [counters(wall_s=2.0, cpu_s=1.0, busy_s=1.0), counters(wall_s=2.0, cpu_s=2.0, busy_s=4.0)]
    found = run_result(small_run(counters=blocks, cpus=2, memory_bytes=5), load_of())
    assert (found["cpus"], found["memory_bytes"]) == (0.75, 5)
    assert found["interference"] is not None
    assert found["interference"]["blocks"] == 2
    assert "interference" not in run_result(small_run(counters=blocks), load_of())  # CPUs not known


# --- points -------------------------------------------------------------------------------------------------


def point_of(raws: list[RawRun], load: LoadSpec) -> Any:
    return point([run_result(one, load) for one in raws], raws, load, runs=[4, 5], fresh=True)


def test_a_point_pools_the_requests_of_its_runs() -> None:
    load = load_of("p99<=20ms")
    raws = [simulated_run(200.0, seconds=30.0, load=load, seed=seed, turn=seed) for seed in (1, 2)]
    found = point_of(raws, load)
    latencies = [
        (end - at) / 1e9
        for raw in raws
        for at, end in zip(raw.arrivals.at_ns, raw.end_ns, strict=True)
        if at >= 2e9
    ]
    assert (found["rate_per_s"], found["runs"], found["fresh"]) == (200.0, [4, 5], True)
    assert found["requests"] == len(latencies)
    assert {one["p"]: one["value_s"] for one in found["latency"]} == {
        p: percentile(latencies, p) for p in (0.5, 0.9, 0.95, 0.99, 0.999)
    }
    assert found["verdict"] == "PASS"
    assert found["limits"][0]["high"] < run_result(raws[0], load)["limits"][0]["high"]


def test_one_saturated_run_fails_its_point() -> None:
    load = load_of("p99<=20ms")
    raws = [simulated_run(200.0, seconds=60.0, load=load) for _ in range(2)]
    assert point_of(raws, load)["verdict"] == "PASS"
    ended_early(raws[1], 50.0, "saturated")
    found = point_of(raws, load)
    assert (found["outcome"], found["verdict"], found["latency"]) == ("saturated", "FAIL", [])


@pytest.mark.parametrize(("limit", "verdict"), [("p99<=20ms", "PASS"), ("p50<=1ms", "UNDECIDED")])
def test_a_limit_is_kept_in_spite_of_a_harness_but_not_broken_by_it(limit: str, verdict: str) -> None:
    """The harness only delays: a broken limit may be its fault, a kept one is the server's."""
    load = load_of(limit)
    raws = [simulated_run(200.0, load=load, seconds=60.0, late_s=late) for late in (0.0, 0.0005)]
    found = point_of(raws, load)
    assert not found["harness"]["accepted"]
    assert "in 1 of 2 runs" in found["harness"]["reason"]
    assert found["verdict"] == verdict
    said = point_words(found)
    assert said.startswith("Passed: at 200 requests/s" if verdict == "PASS" else "Not a measurement")
    assert ("although the harness" in said) == (verdict == "PASS")


# --- course -------------------------------------------------------------------------------------------------


def test_the_course_by_hand() -> None:
    found = course(small_run())
    assert [one["at_s"] for one in found] == [0.5, 1.5, 2.5, 3.5]
    assert [one["arrivals"] for one in found] == [1, 0, 2, 1]
    assert [one["completions"] for one in found] == [1, 0, 2, 1]
    assert [one["queue"] for one in found] == [0, 0, 0, 0]
    assert [one["counted"] for one in found] == [False, False, True, True]
    assert [one["p50_s"] for one in found] == pytest.approx([0.01, None, 0.004, 0.003])
    assert found[2]["p99_s"] == pytest.approx(0.005)


def test_a_long_course_has_at_most_120_parts() -> None:
    found = course(simulated_run(20.0, seconds=300.0))
    assert len(found) == 120
    assert math.fsum(one["seconds"] for one in found) == pytest.approx(300.0)
    assert sum(one["arrivals"] for one in found) == len(simulated_run(20.0, seconds=300.0).end_ns)


def cut(raw: RawRun, at_s: float) -> RawRun:
    """What the record of a running run shows at that time."""
    limit = at_s * 1e9
    return dataclasses.replace(
        raw,
        start_ns=array("q", [one if one <= limit else 0 for one in raw.start_ns]),
        end_ns=array("q", [one if one <= limit else 0 for one in raw.end_ns]),
    )


@pytest.mark.parametrize("timeout_s", [None, 0.004])
def test_the_live_course_ends_as_the_course(timeout_s: float | None) -> None:
    load = load_of(timeout_s=timeout_s)
    raw = simulated_run(300.0, load=load)
    live = LiveCourse()
    for at in (0.3, 1.0, 5.0, 5.5, 11.0):
        live.update(cut(raw, at), at)
    end = live.update(raw, raw.duration_s)
    assert end["course"] == course(raw)
    found = run_result(raw, load)
    counted = [one for one in found["latency"] if one["p"] == 0.5]
    if timeout_s is None:
        assert end["p50_s"] == counted[0]["value_s"]
        assert end["p99_s"] == percentiles_of(found)[0.99]
    assert end["queue"] == 0


def test_the_live_course_shows_the_queue_while_it_grows() -> None:
    raw, live = simulated_run(700.0, service="constant"), LiveCourse()
    first, later = live.update(cut(raw, 2.0), 2.0), live.update(cut(raw, 8.0), 8.0)
    assert later["queue"] == pytest.approx(200 * 8, rel=0.15)
    assert later["course"][-1]["queue"] == pytest.approx(later["queue"], abs=2)
    assert first["queue"] < later["queue"]
    assert first["p50_s"] is None  # warm-up
    assert later["p50_s"] is not None


def test_a_closed_loop_has_no_queue_and_the_latency_of_its_calls() -> None:
    arrivals = Arrivals(at_ns=array("q", bytes(8 * 5000)), kind=array("H", bytes(2 * 5000)))
    raw = simulate(arrivals, [Kind(rows=1)], lambda _: 0.002, duration_s=4.0, warmup_s=0.5)
    end = LiveCourse().update(cut(raw, 4.0), 4.0)
    assert (end["queue"], end["p50_s"], end["p99_s"]) == (0, 0.002, 0.002)
    assert [one["arrivals"] for one in end["course"]] == pytest.approx([500] * 4, abs=1)
    assert [one["completions"] for one in end["course"]] == pytest.approx([500] * 4, abs=1)


def test_a_long_live_course_joins_its_parts() -> None:
    raw = simulated_run(5.0, seconds=700.0)
    end = LiveCourse().update(raw, 700.0)
    assert len(end["course"]) <= 240
    assert math.fsum(one["seconds"] for one in end["course"]) == pytest.approx(700.0)
    assert sum(one["arrivals"] for one in end["course"]) == len(raw.end_ns)


@pytest.mark.parametrize("question", ["traffic", "limit", "batching", "together"])
def test_the_sample_result_has_the_keys_of_its_types(question: str) -> None:
    sample, real = sample_load_result(question), run_result(simulated_run(), load_of("p99<=20ms"))
    for run in sample["runs"]:
        assert run.keys() == real.keys()
    keys = point([real], [simulated_run()], load_of("p99<=20ms"), runs=[0], fresh=True).keys()
    assert all(one.keys() == keys for one in sample["points"])
    json.dumps(sample, allow_nan=False)
