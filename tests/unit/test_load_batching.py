"""The search for dynamic batching: service times, whether batching can help, the shortlist, the choice."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from core.evidence.load.arrivals import schedule
from core.evidence.load.batching import (
    GAIN,
    cannot_help,
    chosen,
    gain,
    interpolated,
    service_times,
    shortlist,
    sizes_to_try,
)
from core.evidence.load.load_types import Arrivals, BatchingTrial, Kind, LoadContrast, ServiceTime
from core.evidence.load.queueing import simulate
from core.spec.load import ArrivalsSpec
from tests.simulated_load import sample_point, sample_run

ONE = [Kind(rows=1)]


def times(*p50_ms: float, spread: float = 0.0) -> list[ServiceTime]:
    """Service times of 1, 2, 4, … samples; the bounds lie `spread` beside them."""
    return [
        {
            "samples": 2**k,
            "p50_s": ms / 1e3,
            "low_s": ms / 1e3 * (1 - spread),
            "high_s": ms / 1e3 * (1 + spread),
            "per_sample_s": ms / 1e3 / 2**k,
        }
        for k, ms in enumerate(p50_ms)
    ]


HELPS = times(2.0, 2.2, 2.6, 3.4)  # a batch of 8 takes 1.7 times as long as one sample


def test_sizes_are_powers_of_two() -> None:
    assert sizes_to_try(10) == (1, 2, 4, 8)
    assert sizes_to_try(64)[-1] == 64


def test_service_times_come_from_the_calls_after_the_warm_up() -> None:
    n = 400
    kind = array("H", [i % 2 for i in range(n)])
    arrivals = Arrivals(at_ns=array("q", bytes(8 * n)), kind=kind)
    kinds = [Kind(rows=1), Kind(rows=4)]
    raw = simulate(arrivals, kinds, lambda rows: 0.001 + 0.001 * rows, duration_s=2.0, warmup_s=0.1)
    assert [(one["samples"], one["p50_s"], one["per_sample_s"]) for one in service_times(raw)] == [
        (1, 0.002, 0.002),
        (4, 0.005, 0.00125),
    ]
    raw.warmup_s = 1.38  # leaves fewer than ten calls of each
    assert service_times(raw) == []


def test_the_gain_is_the_certain_one() -> None:
    assert gain(HELPS) == (pytest.approx(8 * 2.0 / 3.4), 8)
    assert gain(times(2.0, 2.2, 2.6, 3.4, spread=0.05))[0] == pytest.approx(8 * 1.9 / (3.4 * 1.05))


def test_a_flat_table_cannot_help_and_says_so_with_its_numbers() -> None:
    found = cannot_help(times(0.72, 1.40, 2.74, spread=0.005))
    assert gain(times(0.72, 1.40, 2.74, spread=0.005))[0] < GAIN
    assert not found["helps"]
    assert found["words"].startswith("Batching cannot help: samples per second grow by 5 % (by 6 % at most)")
    assert "from 1,389/s alone to 1,460/s in batches of 4" in found["words"]


def test_an_uncertain_table_does_not_claim_that_batching_cannot_help() -> None:
    wide = times(2.0, 3.2, spread=0.2)
    assert gain(wide)[0] < GAIN
    assert cannot_help(wide)["words"].startswith("Batching is not known to help: ")


@pytest.mark.parametrize(("samples", "ms"), [(1, 2.0), (3, 2.4), (8, 3.4), (16, 6.8), (6, 3.0)])
def test_times_between_measured_sizes_are_interpolated(samples: int, ms: float) -> None:
    assert interpolated(HELPS, samples) == pytest.approx(ms / 1e3)


def test_the_shortlist_prefers_pairs_that_keep_the_limit() -> None:
    arrivals = schedule(ArrivalsSpec(), rate=900.0, seconds=4.0, weights=[1.0], seed=1)
    found = shortlist(HELPS, arrivals, ONE, streams=1, limit_s=0.02, p=0.99)
    assert {one["max_batch_size"] for one in found} == {2, 4, 8}
    assert all(one["max_queue_delay_microseconds"] < 20_000 for one in found)
    assert found[0]["max_batch_size"] == 8  # alone, 500/s are served
    assert found[0]["simulated_limit_s"] <= 0.02
    assert found[0]["simulated_batch"] > 1.5
    late = [one["simulated_limit_s"] > 0.02 for one in found]
    assert late == sorted(late)
    assert not any(one["max_batch_size"] == 1 for one in found)


def trials(*sizes: int) -> list[BatchingTrial]:
    return [
        {
            "max_batch_size": size,
            "max_queue_delay_microseconds": 1000,
            "preferred_batch_size": [],
            "simulated_p50_s": 0.002,
            "simulated_limit_s": 0.008,
            "simulated_batch": 2.0,
            "point": place,
        }
        for place, size in enumerate(sizes, 1)
    ]


def contrast(verdict: str) -> LoadContrast:
    return {
        "rate_per_s": 200.0,
        "configuration": 0,
        "baseline": 0,
        "p": 0.99,
        "ratio": 1.3,
        "ratio_low": 1.2,
        "ratio_high": 1.4,
        "verdict": verdict,
        "turns": 6,
    }


def choose(verdicts: list[str], rates: list[float], **alone: Any) -> Any:
    points = [sample_point(sample_run(rate), i) for i, rate in enumerate([200.0, *rates])]
    points[0] = {**points[0], **alone}
    found = trials(*(2**k for k in range(1, len(rates) + 1)))
    return chosen(HELPS, found, points, points[0], [contrast(one) for one in verdicts], 0.99)


def test_the_fastest_that_keeps_the_limits_and_is_faster_is_chosen() -> None:
    found = choose(["FASTER", "FASTER", "UNDECIDED"], [150.0, 100.0, 50.0])
    assert found["best"] == 1
    assert "up to 4 samples with a delay of 1 ms are best at 200 requests/s" in found["words"]
    assert "1.30× faster" in found["words"]


def test_none_is_chosen_where_none_is_significantly_faster_or_all_break_the_limit() -> None:
    assert choose(["UNDECIDED", "SLOWER"], [150.0, 100.0])["best"] is None
    found = choose(["FASTER"], [400.0])  # breaks the limit
    assert found["best"] is None
    assert "1 were run" in found["words"]


def test_where_the_configuration_alone_breaks_the_limit_one_that_keeps_it_is_chosen() -> None:
    assert choose(["UNDECIDED"], [150.0], verdict="FAIL")["best"] == 0
