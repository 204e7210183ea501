"""What a measurement is: a trial, its raw samples, and the numbers derived from them.

A `Trial` is one spec, run once. Its result keeps every sample in run order; percentiles, intervals and
warnings are computed from them by pure functions here and in `statistics.py`. Seconds and bytes throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core import wire
from core.errors import ErrorRecord
from core.statistics import (
    PERCENTILES,
    Estimate,
    drift,
    mean_estimate,
    percentile_estimate,
    runs_needed,
    standard_deviation,
)

TrialKind = Literal["measure", "profile"]
TrialState = Literal["WAITING", "RUNNING", "COMPLETE", "FAIL", "CANCELLED"]

DRIFT_WARNING = 0.05  # the last third of the runs 5 % off the first: the number depends on when one stops
WIDE_INTERVAL = 0.10  # a p50 interval wider than ±10 % cannot rank settings that differ by less


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One spec and what became of it. `result` is None until the trial is COMPLETE."""

    id: str
    kind: TrialKind
    state: TrialState
    spec: dict[str, Any]
    model_name: str
    model_sha256: str  # content of the model, external data included; "" until it was inspected
    key: str
    created_at: float  # seconds since the epoch
    study: str = ""
    owner: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorRecord | None = None
    result: dict[str, Any] | None = None
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The contract of `--json`: every name is always there, null where there is nothing to tell."""
        data: dict[str, Any] = {
            "trial": self.id,
            "kind": self.kind,
            "state": self.state,
            "error": self.error,
            "model": {"sha256": None, "precision": "fp32"}
            | self.spec.get("model", {})
            | {"name": self.model_name},
            "spec": self.spec,
        }
        result = self.result or {}
        data |= {name: result.get(name) for name in RESULT_FIELDS}
        data |= {name: value for name, value in result.items() if name not in data}
        data |= {
            "fingerprint": self.fingerprint,
            "study": self.study,
            "owner": self.owner,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
        }
        return data


RESULT_FIELDS = (
    "requested_providers",
    "effective_providers",
    "fallback",
    "placement",
    "batch_size",
    "runs",
    "latencies_s",
    "warmup_latencies_s",
    "session_creation_s",
    "first_run_s",
    "latency",
    "throughput_per_s",
    "cpu_s_per_inference",
    "peak_rss_bytes",
    "gpu_memory_bytes",
    "output_error",
    "interference",
    "environment",
    "seed",
    "tool_version",
)


def latency_summary(latencies_s: Sequence[float]) -> dict[str, Any]:
    """Return mean, deviation and percentiles of `latencies_s`, each percentile with its 95 % interval.

    A percentile that the runs cannot support is None, and `needs_runs` says how many it would take.
    """
    mean = mean_estimate(latencies_s)
    summary: dict[str, Any] = {
        **_fields("mean_s", mean),
        "std_s": standard_deviation(latencies_s),
        "min_s": min(latencies_s),
        "max_s": max(latencies_s),
    }
    needs: dict[str, int] = {}
    for p in PERCENTILES:
        name = f"p{round(p * 100)}_s"
        estimate = percentile_estimate(latencies_s, p)
        summary |= _fields(name, estimate)
        if estimate is None:
            needs[name] = runs_needed(p)
    summary["needs_runs"] = needs
    return summary


def _fields(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def result_from_reply(
    reply: wire.MeasureReply,
    *,
    placement: Mapping[str, Mapping[str, float | int]] | None,
    casts: Mapping[str, Any] | None,
    environment: wire.Environment | None,
    seed: int,
    tool_version: str,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Build the stored result of a trial from what its worker answered.

    Args:
        reply: raw samples and facts of the measuring worker.
        placement: provider -> {"nodes": assigned by ORT, "ran_nodes": left after fusions, "time_s": of a
            typical run}; None when the pass that finds it failed (then a note says so).
        casts: what `profiling.cast_facts` found; None like `placement`.
        environment: the machine, for the record.
        seed: of the random feeds.
        tool_version: of ORTune.
        notes: what else a reader of the numbers must know.

    Returns:
        The result as plain JSON data, under the names of the `--json` contract. `throughput_per_s` is rows
        fed over the time inside the runs; `cpu_s_per_inference` is user and system time per run.
    """
    latencies = [ns / 1e9 for ns in reply["latencies_ns"]]
    busy_s = math.fsum(latencies)
    return {
        "requested_providers": reply["requested_providers"],
        "effective_providers": reply["effective_providers"],
        "fallback": reply["fallback"],
        "fallback_reason": reply["fallback_reason"],
        "placement": dict(placement) if placement is not None else None,
        "casts": dict(casts) if casts is not None else None,
        "batch_size": reply["batch_size"],
        "inputs": reply["inputs"],
        "outputs": reply["outputs"],
        "runs": len(latencies),
        "latencies_s": latencies,
        "warmup_latencies_s": [ns / 1e9 for ns in reply["warmup_latencies_ns"]],
        "session_creation_s": reply["session_creation_s"],
        "first_run_s": reply["first_run_s"],
        "latency": latency_summary(latencies),
        "throughput_per_s": reply["batch_size"] * len(latencies) / busy_s if busy_s > 0 else None,
        "timed_wall_s": reply["timed_wall_s"],
        "cpu_s_per_inference": reply["cpu_s_per_run"],
        "baseline_rss_bytes": reply["baseline_rss_bytes"],
        "peak_rss_bytes": reply["peak_rss_bytes"],
        "gpu_memory_bytes": reply["gpu_memory_bytes"],
        "output_error": None,
        "interference": None,
        "notes": [*reply["notes"], *notes, *doubts(latencies)],
        "libraries": reply["libraries"],
        "environment": dict(environment) if environment is not None else None,
        "fingerprint": environment["fingerprint"] if environment is not None else "",
        "seed": seed,
        "tool_version": tool_version,
    }


def doubts(latencies_s: Sequence[float]) -> list[str]:
    """Say in words why the numbers of this sample deserve doubt, and what to do; empty when they do not."""
    found: list[str] = []
    moved = drift(latencies_s)
    if moved is not None and abs(moved) > DRIFT_WARNING:
        found.append(
            f"The latency moved by {moved:+.0%} from the first third of the runs to the last: "
            "more warm-up runs, or a quieter machine, would settle it."
        )
    median = percentile_estimate(latencies_s, 0.5)
    if median is not None and median.low is not None and median.value > 0:
        high = median.high if median.high is not None else max(latencies_s)
        half = (high - median.low) / 2 / median.value
        if half > WIDE_INTERVAL:
            found.append(
                f"The p50 is only known to ±{half:.0%}: differences below that are noise here. "
                "More runs, or a quieter machine, would narrow it."
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How one result stands to a baseline measured at another time.

    `ratio` is baseline latency over candidate latency per row: above 1 the candidate is faster. The interval
    is conservative (the intervals of both sides, put against each other) and covers what moved within each
    trial, not what moved between them; so `clear` never says more than "not explained by the noise within".
    """

    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    clear: bool
    why_not: str  # why the two must not be compared; empty when they may


def contrast(candidate: Mapping[str, Any], baseline: Mapping[str, Any]) -> Contrast | None:
    """Put the p50 latency per row of two results against each other; None where one has no p50."""
    a, b = _p50_per_row(candidate), _p50_per_row(baseline)
    if a is None or b is None:
        return None
    bounds = [b.low, b.high, a.low, a.high]
    low = b.low / a.high if b.low is not None and a.high is not None else None
    high = b.high / a.low if b.high is not None and a.low else None
    clear = None not in bounds and low is not None and high is not None and (low > 1 or high < 1)
    return Contrast(
        ratio=b.value / a.value,
        ratio_low=low,
        ratio_high=high,
        clear=clear,
        why_not=_incomparable(candidate, baseline),
    )


def _p50_per_row(result: Mapping[str, Any]) -> Estimate | None:
    latency, rows = result["latency"], result["batch_size"]
    if not latency.get("p50_s"):
        return None
    low, high = latency["p50_s_low"], latency["p50_s_high"]
    return Estimate(
        value=latency["p50_s"] / rows,
        low=None if low is None else low / rows,
        high=None if high is None else high / rows,
    )


def _incomparable(candidate: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    if candidate.get("fingerprint") != baseline.get("fingerprint"):
        return "they were measured on different machines or library versions"
    return ""
