"""Load tests of known truth, without a clock or process: raw runs of simulated queues, and a whole result."""

from __future__ import annotations

import math
import random
from typing import Any

from core.evidence.load.arrivals import kinds_of, schedule
from core.evidence.load.load_types import (
    Batching,
    Harness,
    LimitResult,
    LoadResult,
    LoadVerdict,
    Percentile,
    Point,
    RawRun,
    RunOutcome,
    RunResult,
    Second,
)
from core.evidence.load.queueing import simulate
from core.spec.load import BatchingSpec, LoadSpec, parse_load_limit

SERVICE_S = 0.002  # mean service time of the sample: capacity 500 requests/s
_RATIO: Any = {"ratio": 1.39, "ratio_low": 1.31, "ratio_high": 1.47}  # of running together
PERCENTILES = (0.5, 0.9, 0.95, 0.99)


def _latency(p: float, rate: float, service_s: float = SERVICE_S) -> float:
    """Percentile of the time in an M/M/1 queue, in seconds."""
    return -math.log(1 - p) * service_s / (1 - rate * service_s)


def _percentiles(rate: float, share: float = 1.0) -> list[Percentile]:
    return [
        {"p": p, "value_s": v, "low_s": v * (1 - 0.05 * width), "high_s": v * (1 + 0.07 * width)}
        for p, width in zip(PERCENTILES, (0.5, 0.8, 1.0, 2.0), strict=True)
        for v in [share * _latency(p, rate)]
    ]


def _harness(added_s: float, p50_s: float) -> Harness:
    share = added_s / p50_s
    return {
        "p50_s": added_s,
        "p99_s": 3 * added_s,
        "ideal_p50_s": p50_s - added_s,
        "ideal_p99_s": 6 * p50_s,
        "share_of_p50": share,
        "accepted": share <= 0.1,
        "reason": "" if share <= 0.1 else f"The harness added {100 * share:.0f} % of the median latency.",
    }


def _limit(rate: float, limit_s: float, requests: int) -> LimitResult:
    bad = math.exp(-limit_s / SERVICE_S * (1 - rate * SERVICE_S))
    half = 2 * math.sqrt(bad / requests)
    low, high = max(0.0, bad - half), bad + half + 3 / requests
    verdict: LoadVerdict = "PASS" if high <= 0.01 else "FAIL" if low > 0.01 else "UNDECIDED"
    text = f"p99<={1e3 * limit_s:g}ms"
    return {"limit": text, "share": bad, "low": low, "high": high, "allowed": 0.01, "verdict": verdict}


def _course(rate: float, *, seconds: int, grows: float = 0.0) -> list[Second]:
    return [
        {
            "at_s": at + 0.5,
            "seconds": 1.0,
            "arrivals": round(rate),
            "completions": round(rate - grows),
            "queue": round(1 + grows * at),
            "p50_s": _latency(0.5, min(rate, 480)) + grows * at / 500,
            "p99_s": _latency(0.99, min(rate, 480)) + grows * at / 500,
            "counted": at >= 2,
        }
        for at in range(seconds)
    ]


def simulated_run(
    rate: float = 200.0,
    *,
    seconds: float = 20.0,
    service_s: float = SERVICE_S,
    service: str = "exponential",
    load: LoadSpec | None = None,
    batching: BatchingSpec | None = None,
    seed: int = 1,
    late_s: float = 0.0,
    **changes: Any,
) -> RawRun:
    """A run of a simulated server: Poisson arrivals, `exponential` or `constant` service; all are served.

    `late_s`: the harness starts every call so much later. `changes` are fields of the run.
    """
    load = load or LoadSpec(rates=(rate,), seed=seed)
    kinds, weights = kinds_of(load)
    rng = random.Random(seed)
    raw = simulate(
        schedule(load.arrivals, rate=rate, seconds=seconds, weights=weights, seed=seed),
        kinds,
        lambda samples: service_s * (rng.expovariate(1) if service == "exponential" else 1.0),
        batching=batching,
        warmup_s=load.warmup_s,
        duration_s=seconds,
        timeout_s=load.timeout_s,
        late_s=None if not late_s else lambda: late_s,
        streams=changes.pop("streams", 1),
    )
    raw.rate = rate
    for name, value in changes.items():
        setattr(raw, name, value)
    return raw


def ended_early(raw: RawRun, at_s: float, outcome: RunOutcome, reason: str = "It ended early.") -> RawRun:
    """The same run, ended after `at_s`: what was not complete by then never was."""
    for i, (start, end) in enumerate(zip(raw.start_ns, raw.end_ns, strict=True)):
        if end > at_s * 1e9:
            raw.end_ns[i] = 0
        if start > at_s * 1e9:
            raw.start_ns[i] = 0
    raw.outcome, raw.reason = outcome, reason
    return raw


def sample_run(rate: float, *, limit_s: float = 0.02, turn: int = 0, **changes: Any) -> RunResult:
    """One run of 30 counted seconds at `rate`; 500 requests/s saturate it."""
    requests = round(30 * rate)
    saturated = rate * SERVICE_S >= 1
    judged = [] if saturated else [_limit(rate, limit_s, requests)]
    run: RunResult = {
        "configuration": 0,
        "beside": [],
        "rate_per_s": rate,
        "turn": turn,
        "outcome": "saturated" if saturated else "complete",
        "reason": "Saturated after 6.2 s: requests arrive faster than they are served." if saturated else "",
        "requests": requests,
        "completed": round(4.2 * 500) if saturated else requests,
        "timeouts": 0,
        "unserved": requests - round(4.2 * 500) if saturated else 0,
        "completed_per_s": 500.0 if saturated else rate,
        "samples_per_s": 500.0 if saturated else rate,
        "latency": [] if saturated else _percentiles(rate),
        "mean_s": None if saturated else SERVICE_S / (1 - rate * SERVICE_S),
        "service": _percentiles(0.0),
        "waiting": [] if saturated else _percentiles(rate, 0.6),
        "harness": None if saturated else _harness(0.00011, _latency(0.5, rate)),
        "limits": judged,
        "verdict": "FAIL" if saturated else judged[0]["verdict"],
        "batches": {"1": requests},
        "new_shapes": [],
        "queue_max": 900 if saturated else round(8 / (1 - rate * SERVICE_S)),
        "busy_share": min(1.0, rate * SERVICE_S),
        "cpus": min(1.0, rate * SERVICE_S) + 0.05,
        "memory_bytes": 180 << 20,
        "ecdf": []
        if saturated
        else [[_latency(share, rate), share] for share in (i / 100 for i in range(1, 100))],
        "course": _course(rate, seconds=6 if saturated else 32, grows=rate - 450 if saturated else 0.0),
        "notes": [],
    }
    return RunResult(**{**run, **changes})  # type: ignore[typeddict-item]


def sample_point(run: RunResult, index: int, **changes: Any) -> Point:
    """The point of a single run."""
    point: Point = {
        "configuration": run["configuration"],
        "rate_per_s": run["rate_per_s"],
        "runs": [index],
        "outcome": run["outcome"],
        "requests": run["requests"],
        "completed_per_s": run["completed_per_s"],
        "samples_per_s": run["samples_per_s"],
        "latency": run["latency"],
        "limits": run["limits"],
        "verdict": run["verdict"],
        "harness": run["harness"],
        "cpus": run["cpus"],
        "memory_bytes": run["memory_bytes"],
        "fresh": True,
    }
    return Point(**{**point, **changes})  # type: ignore[typeddict-item]


def sample_batching() -> Batching:
    """A search for dynamic batching that found one: 8 samples take three times as long as one."""
    sizes = ((1, 0.002), (2, 0.0026), (4, 0.0038), (8, 0.006))
    return {
        "service_times": [
            {"samples": b, "p50_s": s, "low_s": 0.98 * s, "high_s": 1.03 * s, "per_sample_s": s / b}
            for b, s in sizes
        ],
        "helps": True,
        "words": "Dynamic batching helps: up to 8 samples, delay 1 ms.",
        "trials": [
            {
                "max_batch_size": b,
                "max_queue_delay_microseconds": delay,
                "preferred_batch_size": [],
                "simulated_p50_s": 0.002 + delay / 1e6 + 0.0002 * b,
                "simulated_limit_s": 0.008 + delay / 1e6,
                "simulated_batch": 1.4 + 0.2 * b,
                "point": point,
            }
            for b, delay, point in ((8, 1000, 0), (4, 1000, 1), (8, 0, None))
        ],
        "best": 0,
    }


def sample_load_result(question: str = "limit") -> LoadResult:
    """A stored result of every kind: `traffic` (two configurations), `limit`, `batching` or `together`.

    The truth is an M/M/1 queue that serves 500 requests/s; p99 ≤ 20 ms holds up to 270 requests/s. `limit`
    has a run at 500 requests/s that saturates, and one whose harness was rejected.
    """
    asked: dict[str, Any] = {"question": question, "limits": (parse_load_limit("p99<=20ms"),), "seed": 7}
    if question != "limit":
        asked["rates"] = {"together": (100.0, 20.0), "batching": (200.0,)}.get(question, (100.0, 200.0))
    spec = LoadSpec(**asked)
    both = question in ("traffic", "together")
    if question == "limit":
        runs = [sample_run(300), sample_run(200), sample_run(250), sample_run(500)]
        undecided = {**_limit(150, 0.02, 4500), "verdict": "UNDECIDED"}
        rejected = _harness(0.0004, 0.0018)
        runs.append(sample_run(150, harness=rejected, limits=[undecided], verdict="UNDECIDED"))
    elif question == "traffic":
        runs = [sample_run(rate, turn=turn) for rate in (100, 200) for turn in (0, 1)]
        runs += [sample_run(rate, turn=turn, configuration=1) for rate in (100, 200) for turn in (0, 1)]
    else:
        runs = [sample_run(rate, configuration=i if both else 0) for i, rate in enumerate(spec.rates * 2)][:2]
    points = [sample_point(run, i, fresh=question != "limit" or i > 0) for i, run in enumerate(runs)]
    if question == "traffic":
        points = [sample_point(runs[i], i, runs=[i, i + 1]) for i in range(0, len(runs), 2)]
    return {
        "question": spec.model_dump(mode="json"),
        "configurations": [
            {
                "label": label,
                "spec": {},
                "model": "digits_cnn",
                "streams": 1,
                "stream_type": "threads",
                "effective_providers": ["CPUExecutionProvider"],
                "error": "",
            }
            for label in (("ORT default", "intra_op_num_threads=1")[: 2 if both else 1])
        ],
        "runs": runs,
        "points": points,
        "contrasts": [
            {
                "rate_per_s": rate,
                "configuration": 1,
                "baseline": 0,
                "p": p,
                "ratio": 1.12,
                "ratio_low": 1.05,
                "ratio_high": 1.19,
                "verdict": "FASTER",
                "turns": 6,
            }
            for rate in (100.0, 200.0)
            for p in (0.5, 0.99)
        ]
        if question == "traffic"
        else [],
        "highest": [
            {
                "configuration": 0,
                "capacity_per_s": 500.0,
                "confirmed_per_s": 250.0,
                "failed_per_s": 300.0,
                "undecided_per_s": None,
                "words": "The highest rate within p99 ≤ 20 ms: 250 requests/s confirmed, 300/s failed.",
            }
        ]
        if question == "limit"
        else [],
        "batching": sample_batching() if question == "batching" else None,
        "together": [
            {"configuration": i, "p": 0.99, "alone_s": 0.009, "together_s": 0.0125, **_RATIO}
            for i in range(2)
        ]
        if question == "together"
        else [],
        "verdict": "PASS",
        "words": "The highest rate within p99 ≤ 20 ms: 250 requests/s confirmed, 300/s failed."
        if question == "limit"
        else "Passed: at 200 requests/s, p99 is 15.4 ms (95 % CI [13.8, 17.5]), limit 20 ms.",
        "notes": [],
    }
