"""Searches for the highest rate and contrasts on simulated queues: how often a claim is false."""

from __future__ import annotations

import random

import pytest

from benchmarks.load_bounds import Queue
from benchmarks.load_limits import searches
from core.evidence.load.arrivals import schedule
from core.evidence.load.contrasts import load_contrast
from core.evidence.load.load_types import Kind, RunResult
from core.evidence.load.queueing import simulate
from core.spec.load import ArrivalsSpec

RATE = 300.0
TURNS = 6


def test_a_confirmed_rate_is_below_the_true_one_and_not_far() -> None:
    row = searches(Queue("exponential", 0.7), 25, 120.0)
    assert row["false"] <= 2
    assert row["none"] <= 3
    assert 0.65 <= row["ratio"] <= 1.0


def run_of(turn: int, p: float, factor: float, rng: random.Random) -> RunResult:
    """The keys of a run that a contrast reads; all runs of a turn have the same arrivals."""
    arrivals = schedule(ArrivalsSpec(), rate=RATE, seconds=3.0, weights=[1.0], seed=turn)
    raw = simulate(arrivals, [Kind(rows=1)], lambda _: 0.0015 * factor * rng.expovariate(1))
    values = sorted((end - at) / 1e9 for at, end in zip(arrivals.at_ns, raw.end_ns, strict=True))
    return {
        "configuration": 0,
        "rate_per_s": RATE,
        "turn": turn,
        "outcome": "complete",
        "harness": None,
        "latency": [{"p": p, "value_s": values[int(p * len(values))], "low_s": None, "high_s": None}],
    }  # type: ignore[typeddict-item]


def verdicts(p: float, factor: float, count: int) -> list[str]:
    found = []
    for i in range(count):
        rng = random.Random(i)
        turns = range(100 * i, 100 * i + TURNS)
        own, other = ([run_of(turn, p, one, rng) for turn in turns] for one in (factor, 1.0))
        one = load_contrast(own, other, p)
        assert one is not None
        found.append(one["verdict"])
    return found


@pytest.mark.parametrize("p", [0.5, 0.99])
def test_equal_configurations_are_rarely_called_different(p: float) -> None:
    found = verdicts(p, 1.0, 60)
    assert sum(one in ("FASTER", "SLOWER") for one in found) <= 7  # 5 % of 60 are 3; 8 or more: 1.4 %


def test_a_configuration_that_serves_in_half_the_time_is_called_faster() -> None:
    assert set(verdicts(0.5, 0.5, 5)) == {"FASTER"}
    assert set(verdicts(0.5, 2.0, 5)) == {"SLOWER"}
