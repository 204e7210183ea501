"""Simulated comparisons in the form of `core.run.launches`: known truth, no clock, no process."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core import wire
from core.evidence.comparison import Contestant
from core.evidence.record import Block, Key, Launch, ProcessResult, RawComparison
from core.evidence.result import Evidence, MeasuredConfiguration

RUNS = 10
CPU = ["CPUExecutionProvider"]


def noise(n: int, sigma: float = 1.0, seed: int = 0) -> list[float]:
    """A sample with the order statistics of a normal distribution, mean exactly 0, in a shuffled order."""
    normal = statistics.NormalDist(0, sigma)
    values = [normal.inv_cdf((i + 0.5) / n) for i in range(n)]
    random.Random(seed).shuffle(values)
    return values


def counters(**changes: Any) -> wire.Counters:
    """A block of 20 ms without disturbance, on two CPUs."""
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


def ran(*, rows: int = 1, **changes: Any) -> ProcessResult:
    """A configuration that completed, with the outputs of the baseline."""
    facts: dict[str, Any] = {
        "load": load_reply(rows=rows),
        "warm": {"latencies_ns": [2_000_000, 1_000_000], "steady": True, "median_ns": 1_000_000},
        "cost": {"cpu_s_per_run": 0.002, "idle_cpu_s": 0.05, "idle_wall_s": 0.1},
        "footprint": {"run_peak_rss_bytes": 6 << 20, "gpu_memory_bytes": None, "notes": []},
        "shapes": [{"batch_size": 2 * rows, "first_run_ns": 4_000_000, "next_run_ns": 2_000_000}],
        "output_error": output_error(),
    }
    return ProcessResult(**{**facts, **changes})


def layout(rng: random.Random) -> wire.Layout:
    return {
        "heap_bytes": rng.randrange(100_000),
        "mapped_pages": rng.randrange(256),
        "stack_frames": rng.randrange(64),
        "buffer_offset": 16 * rng.randrange(256),
    }


def record(
    medians_s: Sequence[float],
    *,
    generations: int = 8,
    rounds: int = 8,
    between: float = 0.003,
    noise: float = 0.01,
    shared: float = 0.2,
    rows: Sequence[int] | None = None,
    anchor: int | None = None,
    control: float = 1.0,
    seed: int = 1,
    disturb: Callable[[int, int], Mapping[str, Any]] = lambda contestant, number: {},
    slower: Callable[[int, int], float] = lambda contestant, number: 1.0,
    **changes: Any,
) -> RawComparison:
    """Compare configurations whose true medians are `medians_s`.

    Args:
        medians_s: of one run.
        generations: launches (sets of fresh processes).
        rounds: of each launch, completed by every configuration.
        between: standard deviation between processes, of a log.
        noise: the same of one block's log median.
        shared: the same of what a round does to all configurations.
        rows: samples per run of each.
        anchor: the configuration with two processes; None: the last one.
        twin: factor on the latencies of its second process: 1 unless the measurement is faulty.
        seed: of the simulation.
        disturb: counters that differ from an undisturbed block's, by configuration and round.
        slower: factor on the latencies, by configuration and round.
        changes: fields of the record.
    """
    rng = random.Random(seed)
    anchor = len(medians_s) - 1 if anchor is None else anchor
    rows = rows or [1] * len(medians_s)
    keys: list[Key] = [(index, 0) for index in range(len(medians_s))] + [(anchor, 1)]
    blocks: list[Block] = []
    orders: list[list[int]] = []
    sets: list[Launch] = []
    for generation in range(generations):
        started = rng.sample(keys, len(keys))
        own = {key: rng.gauss(0, between) for key in keys}
        sets.append(
            Launch(
                number=generation,
                order=started,
                layouts={key: layout(rng) for key in started},
                start_s=0.5,
                rounds=rounds,
            )
        )
        for _ in range(rounds):
            number, order, weather = len(orders), rng.sample(keys, len(keys)), rng.gauss(0, shared)
            orders.append([index for index, _ in order])
            for position, (index, copy) in enumerate(order):
                median = medians_s[index] * math.exp(weather + own[index, copy] + rng.gauss(0, noise))
                median *= slower(index, number) * (control if copy else 1.0)
                blocks.append(
                    Block(
                        contestant=index,
                        copy=copy,
                        generation=generation,
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
        "generations": sets,
        "groups": [list(range(len(medians_s)))],
        "outcome": "decided",
        "wall_s": 9.0,
    }
    return RawComparison(**{**facts, **changes})


def feeds(**changes: Any) -> Any:
    inputs = [{"name": "x", "dtype": "float32", "shape": [1, 16], "low": None, "high": None}]
    return {"inputs": inputs, "source": "random", "path": None, "seed": 7, "values": {}, **changes}


def evidence(record: RawComparison, **changes: Any) -> Evidence:
    """The result of candidates and, last, the ORT default, whose trials are `t-c0` to `t-anchor`."""
    labels = [*(f"c{number}" for number in range(len(record.ran) - 1)), "anchor"]
    configurations = [
        MeasuredConfiguration(
            contestant=Contestant(
                trial=f"t-{label}", label=label, role="anchor" if label == "anchor" else "candidate"
            ),
            precision="fp32",
            feeds=feeds(),
        )
        for label in labels
    ]
    last = len(configurations) - 1
    facts: dict[str, Any] = {
        "comparison": "c1",
        "record": record,
        "configurations": configurations,
        "looks": 4,
        "margin": 0.02,
        "baseline": last,
        "anchor": last,
        "environment": None,
    }
    return Evidence(**{**facts, **changes})
