"""What the comparison of load generators computes, on literal numbers."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest

from benchmarks import load_peers
from benchmarks.load_inside import percentiles, poisson


def test_percentiles_are_observed_latencies() -> None:
    assert percentiles([float(one) for one in range(1, 201)]) == {"p50": 100, "p99": 198}
    assert percentiles([3.0, 1.0, 2.0]) == {"p50": 2, "p99": 3}
    assert percentiles([5.0]) == {"p50": 5, "p99": 5}


def test_poisson_arrivals_have_the_rate_and_the_spread() -> None:
    found = poisson(100.0, 100.0, seed=1)
    assert found == poisson(100.0, 100.0, seed=1) != poisson(100.0, 100.0, seed=2)
    assert abs(len(found) - 10_000) < 4 * math.sqrt(10_000)
    gaps = sorted(b - a for a, b in pairwise(found))
    assert gaps[len(gaps) // 2] == pytest.approx(math.log(2) / 100, rel=0.05)


def test_the_ideal_queue_waits_only_for_what_came_before() -> None:
    assert load_peers.ideal([0, 1, 1.5, 10], [2, 2, 2, 2]) == [2, 3, 4.5, 2]


def test_lateness_is_counted_from_the_end_of_the_one_before() -> None:
    late = load_peers.lateness([0, 1, 2], [0.5, 2.25, 2.5], [2.0, 2.25, 3.0])
    assert late == {"p50": 0.25, "p99": 0.5}


def test_an_unhindered_schedule_agrees_with_the_theory_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """M/D/1 at half load: P(wait > t) = 0.661 exp(-1.256 t / D), so p99 of the latency is 4.34 D."""
    monkeypatch.setattr(load_peers, "SIMULATIONS", 60)
    low, middle, high = load_peers.unhindered([0.01], {"rate": 50.0, "stall": {}}, 3000)
    assert low < middle < high
    assert middle / 0.01 == pytest.approx(4.34, rel=0.06)
    stalls = {"stall_s": 0.25, "every_s": 10.0}
    _, stalled, _ = load_peers.unhindered([0.01], {"rate": 50.0, "stall": stalls}, 3000)
    assert 0.18 < stalled < 0.3


def row(generator: str, p99: float, condition: str = "30 %", **changes: Any) -> dict[str, Any]:
    values = {"p50": 1.0, "p99": 10.0}
    return {
        **{"generator": generator, "condition": condition, "n": 5, "rate": 1.0, "asked_rate": 1.0},
        **{"reported": {"p50": 1.0, "p99": p99}, "truth": values, "ideal": values},
        **{"unhindered_p99": [9.0, 10.0, 11.0]},
        **changes,
    }


def test_a_smaller_error_than_ours_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    ours, other = row(load_peers.ORTUNE, 10.5), row("other", 9.8)
    assert load_peers.errors(other)["p99"] == pytest.approx(-0.02)
    assert not load_peers.latency_table([ours, other])
    assert "30 %: the error of p99 of other is smaller than ORTune's." in capsys.readouterr().out
    assert load_peers.latency_table([row(load_peers.ORTUNE, 10.1), other])
    assert load_peers.latency_table([ours, row(load_peers.CLIENT, 10.0)])  # it is no generator of others
    assert load_peers.latency_table([row(load_peers.ORTUNE, 10.002), row("other", 10.0)])


def test_a_generator_that_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    missing = {"generator": "other", "condition": "30 %", "missing": True}
    assert not load_peers.latency_table([row(load_peers.ORTUNE, 10.0), missing])
    assert "| 30 % | other | | | not installed |" in capsys.readouterr().out


def test_a_p99_below_every_unhindered_schedule_hides_a_part_of_the_queue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert load_peers.hides(row("other", 8.9))
    assert not load_peers.hides(row("other", 9.1))
    load_peers.queue_table([row("other", 8.9)])
    assert "**hides a part of the queue**" in capsys.readouterr().out


def test_stalls_shift_the_simulated_queue_only_where_they_are() -> None:
    source = random.Random(1)
    plain = load_peers._queue([0.001], 10.0, 500, 0.0, 10.0, source)
    assert max(plain) < 0.01
    stalled = load_peers._queue([0.001], 10.0, 500, 0.5, 10.0, random.Random(1))
    assert max(stalled) > 0.3
    assert sum(one > 0.01 for one in stalled) < 60  # of 500: about 5 % are due in a stall
