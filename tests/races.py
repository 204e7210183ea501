"""Races that never ran, in the form in which `core.race` answers: known truth, no clock, no process."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core import wire
from core.race.record import Block, RaceRecord, Ran, SelfTest

RUNS = 10
CPU = ["CPUExecutionProvider"]


def counters(**changes: Any) -> wire.Counters:
    """A block of 20 ms that nothing disturbed, on two CPUs."""
    return {
        "wall_s": 0.02,
        "cpu_s": 0.02,
        "involuntary_switches": 0,
        "major_faults": 0,
        "wait_s": 0.0,
        "steal_s": 0.0,
        "busy_s": 0.02,
        "pressure_s": 0.0,
        "throttled_periods": 0,
        "throttled_s": 0.0,
        "canary_ns": 500_000,
        "frequency_hz": None,
        "suspended_s": 0.0,
        "gpu": None,
        **changes,
    }  # type: ignore[return-value]


def output_error(**changes: Any) -> wire.OutputError:
    """Outputs that are those of the reference."""
    return {
        "max_abs": 0.0,
        "mean_abs": 0.0,
        "max_rel": 0.0,
        "mean_rel": 0.0,
        "cosine": 1.0,
        "top1_agreement": 1.0,
        "difference": "",
        "rows": 16,
        "not_finite": 0,
        **changes,
    }  # type: ignore[typeddict-item]


def load_reply(*, rows: int = 1, **changes: Any) -> wire.LoadReply:
    return {
        "requested_providers": CPU,
        "effective_providers": CPU,
        "fallback": False,
        "fallback_reason": "",
        "batch_size": rows,
        "inputs": [{"name": "x", "dtype": "float32", "shape": [rows, 16]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [rows, 4]}],
        "session_creation_s": 0.05,
        "first_run_ns": 9_000_000,
        "affinity": [0, 1],
        "baseline_rss_bytes": 100 << 20,
        "load_peak_rss_bytes": 8 << 20,
        "exact_memory": True,
        "clock_ns": 100.0,
        "notes": [],
        "libraries": {"onnxruntime": "1.31.1"},
        **changes,
    }  # type: ignore[return-value]


def ran(*, rows: int = 1, **changes: Any) -> Ran:
    """A contestant that came through, and computes what the baseline computes."""
    facts: dict[str, Any] = {
        "load": load_reply(rows=rows),
        "warm": {"latencies_ns": [2_000_000, 1_000_000], "steady": True, "median_ns": 1_000_000},
        "cost": {"cpu_s_per_run": 0.002, "idle_cpu_s": 0.05, "idle_wall_s": 0.1},
        "footprint": {"run_peak_rss_bytes": 6 << 20, "gpu_memory_bytes": None, "notes": []},
        "shapes": [{"batch_size": 2 * rows, "first_run_ns": 4_000_000, "next_run_ns": 2_000_000}],
        "output_error": output_error(),
    }
    return Ran(**{**facts, **changes})


def record(
    medians_s: Sequence[float],
    *,
    rounds: int = 16,
    noise: float = 0.01,
    shared: float = 0.2,
    rows: Sequence[int] | None = None,
    disturb: Callable[[int, int], Mapping[str, Any]] = lambda contestant, number: {},
    slower: Callable[[int, int], float] = lambda contestant, number: 1.0,
    **changes: Any,
) -> RaceRecord:
    """Race contestants whose true medians are `medians_s`.

    Args:
        medians_s: of one run.
        rounds: that everybody ran.
        noise: standard deviation of one block's log median.
        shared: the same of what a round does to everybody.
        rows: fed by each.
        disturb: counters that differ from a quiet block's, by contestant and round.
        slower: factor on the latencies, by contestant and round.
        changes: fields of the record.
    """
    rng = random.Random(1)
    everybody = range(len(medians_s))
    rows = rows or [1] * len(medians_s)
    blocks, orders = [], []
    for number in range(rounds):
        order = rng.sample(everybody, len(medians_s))
        weather = rng.gauss(0, shared)
        orders.append(order)
        for position, index in enumerate(order):
            median = medians_s[index] * 2.718281828 ** (weather + rng.gauss(0, noise))
            median *= slower(index, number)
            blocks.append(
                Block(
                    contestant=index,
                    round=number,
                    position=position,
                    at_s=0.05 * len(blocks),
                    refill_s=2 * median,
                    latencies_s=[median * (1 + 0.001 * (run - RUNS // 2)) for run in range(RUNS)],
                    counters=counters(**disturb(index, number)),
                )
            )
    facts: dict[str, Any] = {
        "ran": [ran(rows=one) for one in rows],
        "blocks": blocks,
        "orders": orders,
        "self_tests": [self_test("before"), self_test("after")],
        "groups": [list(everybody)],
        "outcome": "decided",
        "wall_s": 9.0,
    }
    return RaceRecord(**{**facts, **changes})


def self_test(when: Any = "before", *, bias: float = 0.0, noise: float = 0.005, rounds: int = 12) -> SelfTest:
    rng = random.Random(2)
    return SelfTest(
        when=when,
        log_ratios=[bias + rng.gauss(0, noise) for _ in range(rounds)],
        counters=[counters() for _ in range(2 * rounds)],
        seconds_per_round=0.05,
    )
