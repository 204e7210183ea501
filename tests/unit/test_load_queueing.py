"""The ideal queue by hand, what the harness added, and the simulated server."""

from __future__ import annotations

import math
from array import array

import pytest

from core.evidence.load.load_types import Arrivals, Kind, RawRun
from core.evidence.load.queueing import harness, ideal, lateness, simulate
from core.spec.load import BatchingSpec, LoadSpec, parse_load_limit
from tests.simulated_load import simulated_run

MS = 1_000_000
ONE = [Kind(rows=1)]
NO_LIMIT = LoadSpec(rates=(1.0,))


def raw_of(
    at_ms: list[float],
    spans_ms: list[tuple[float, float]],
    *,
    batch: list[int] | None = None,
    streams: int = 1,
    kinds: list[Kind] = ONE,
    kind: list[int] | None = None,
    dropped_ms: float = 0.0,
) -> RawRun:
    n = len(at_ms)
    start, end = ([round(one[i] * MS) for one in spans_ms] for i in (0, 1))
    return RawRun(
        configuration=0,
        rate=1.0,
        turn=0,
        arrivals=Arrivals(
            at_ns=array("q", [round(one * MS) for one in at_ms]), kind=array("H", kind or [0] * n)
        ),
        kinds=kinds,
        start_ns=array("q", start),
        end_ns=array("q", end),
        stream=array("H", [0] * n),
        batch=array("q", batch if batch is not None else range(n)),
        outcome="complete",
        reason="",
        streams=streams,
        warmup_s=0.0,
        duration_s=1.0,
        dropped_ns=round(dropped_ms * MS),
    )


def in_ms(found: list[float | None]) -> list[float | None]:
    return [None if one is None else round(1e3 * one, 6) for one in found]


def test_lindley_by_hand() -> None:
    # Services of 3, 2 and 1 ms; the harness started the first 1 ms late, which delayed the second.
    raw = raw_of([0, 1, 10], [(1, 4), (4, 6), (10.5, 11.5)])
    assert in_ms(ideal(raw)) == [3.0, 4.0, 1.0]  # ends at 3, 5 and 11
    assert in_ms(lateness(raw)) == [1.0, 0.0, 0.5]


def test_two_streams_serve_in_order_of_arrival() -> None:
    raw = raw_of([0, 0, 1, 2], [(0, 4), (0, 2), (2, 5), (4, 5)], streams=2)
    assert in_ms(ideal(raw)) == [4.0, 2.0, 4.0, 3.0]
    assert in_ms(lateness(raw)) == [0.0, 0.0, 0.0, 0.0]


def test_a_request_that_timed_out_takes_no_service() -> None:
    raw = raw_of([0, 1, 2], [(0, 10), (10, 0), (10, 11)], dropped_ms=8)
    assert in_ms(ideal(raw)) == [10.0, None, 9.0]


def test_a_full_batch_is_ready_at_its_last_arrival_and_another_after_the_delay() -> None:
    spec = BatchingSpec(max_batch_size=2, max_queue_delay_microseconds=5000)
    raw = raw_of([0, 3, 20, 40], [(3, 5), (3, 5), (25.5, 26.5), (41, 42)], batch=[0, 0, 2, 3])
    # Full at 3 ms; the third waits 5 ms in vain; nothing can follow the last one.
    assert in_ms(ideal(raw, spec)) == [5.0, 2.0, 6.0, 1.0]
    assert in_ms(lateness(raw, spec)) == [0.0, 0.5, 1.0]


def test_a_preferred_size_and_a_request_that_does_not_fit_end_the_wait() -> None:
    spec = BatchingSpec(max_batch_size=4, max_queue_delay_microseconds=9000, preferred_batch_size=(2,))
    kinds = [Kind(rows=1), Kind(rows=3)]
    spans = [(1, 2), (1, 2), (20, 21), (22, 23), (40, 41)]
    raw = raw_of([0, 1, 20, 22, 40], spans, batch=[0, 0, 2, 3, 4], kinds=kinds, kind=[0, 0, 1, 1, 0])
    assert in_ms(ideal(raw, spec)) == [2.0, 1.0, 1.0, 1.0 + 9.0, 1.0]


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize(
    "batching",
    [None, BatchingSpec(max_batch_size=8, max_queue_delay_microseconds=2000, preferred_batch_size=(4,))],
)
def test_the_ideal_queue_of_a_simulated_run_is_the_run(streams: int, batching: BatchingSpec | None) -> None:
    load = LoadSpec(rates=(450.0,), rows={1: 1.0, 2: 1.0}, timeout_s=0.02, seed=4)
    raw = simulated_run(450.0, seconds=10.0, load=load, batching=batching, streams=streams)
    measured = [
        (end - at) / 1e9 if end else None for at, end in zip(raw.arrivals.at_ns, raw.end_ns, strict=True)
    ]
    assert ideal(raw, batching) == measured
    assert max(map(abs, lateness(raw, batching))) == 0.0
    assert (None in measured) == (streams == 1 and batching is None)  # only there it times out


def test_one_server_has_the_latency_of_theory() -> None:
    raw = simulated_run(300.0, seconds=120.0, service_s=0.002)
    latencies = [(end - at) / 1e9 for at, end in zip(raw.arrivals.at_ns, raw.end_ns, strict=True)]
    mean = math.fsum(latencies) / len(latencies)
    assert mean == pytest.approx(0.002 / (1 - 0.6), rel=0.05)  # M/M/1


def test_the_simulated_batches_are_full_preferred_or_delayed() -> None:
    spec = BatchingSpec(max_batch_size=3, max_queue_delay_microseconds=4000)
    arrivals = Arrivals(
        at_ns=array("q", [MS, 2 * MS, 20 * MS, 20 * MS, 20 * MS, 20 * MS]), kind=array("H", bytes(12))
    )
    raw = simulate(arrivals, ONE, lambda samples: 0.001 * samples, batching=spec)
    assert raw.batch.tolist() == [0, 0, 2, 2, 2, 5]
    assert [one / MS for one in raw.start_ns] == [5.0, 5.0, 20.0, 20.0, 20.0, 23.0]
    assert [one / MS for one in raw.end_ns] == [7.0, 7.0, 23.0, 23.0, 23.0, 24.0]


# --- the harness's share ------------------------------------------------------------------------------------


def test_a_harness_without_delay_is_accepted() -> None:
    found = harness(simulated_run(200.0), NO_LIMIT)
    assert found is not None
    assert found["accepted"]
    assert (found["p50_s"], found["p99_s"], found["reason"]) == (0.0, 0.0, "")


def test_what_the_harness_adds_is_measured() -> None:
    found = harness(simulated_run(20.0, service="constant", service_s=0.002, late_s=0.0001), NO_LIMIT)
    assert found is not None
    assert found["p50_s"] == pytest.approx(0.0001, rel=0.01)
    assert found["share_of_p50"] == pytest.approx(0.1 / 2.1, rel=0.01)
    assert found["ideal_p50_s"] == pytest.approx(0.002, rel=0.01)
    assert found["accepted"]


def test_a_harness_that_adds_more_than_a_tenth_of_the_median_is_rejected() -> None:
    found = harness(simulated_run(20.0, service="constant", service_s=0.002, late_s=0.0005), NO_LIMIT)
    assert found is not None
    assert not found["accepted"]
    assert "20 % of the median latency (0.50 ms of 2.5 ms)" in found["reason"]
    assert "up to 0.50 ms late" in found["reason"]


def test_a_starved_harness_is_rejected_by_the_limit_though_the_median_is_good() -> None:
    load = LoadSpec(rates=(100.0,), limits=(parse_load_limit("p99<=10ms"),))
    raw = simulated_run(100.0, load=load, service="constant", warmup_s=0.0)
    for i in range(0, len(raw.end_ns), 50):  # each 50th call got no CPU for 3 ms
        raw.start_ns[i] += 3 * MS
        raw.end_ns[i] += 3 * MS
    found = harness(raw, load)
    assert found is not None
    assert not found["accepted"]
    assert found["share_of_p50"] == 0.0
    assert "added 3.0 ms at p99; at most 5 % of the latency limit (10.0 ms)" in found["reason"]


def test_a_difference_below_zero_is_kept() -> None:
    raw = raw_of([10.0 * i for i in range(40)], [(10.0 * i - 0.5, 10.0 * i + 0.5) for i in range(40)])
    found = harness(raw, NO_LIMIT)
    assert found is not None
    assert found["p50_s"] == pytest.approx(-0.0005)


def test_few_requests_say_nothing_about_the_harness() -> None:
    assert harness(raw_of([0.0] * 19, [(i, i + 1) for i in range(19)]), NO_LIMIT) is None


def test_the_warm_up_does_not_count() -> None:
    raw = simulated_run(100.0, service="constant", late_s=0.0, warmup_s=5.0)
    for i, at in enumerate(raw.arrivals.at_ns):
        if at < 5e9:
            raw.start_ns[i] += MS
            raw.end_ns[i] += MS
    found = harness(raw, NO_LIMIT)
    assert found is not None
    assert found["p99_s"] == 0.0
