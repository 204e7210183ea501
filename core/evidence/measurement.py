"""Trials: a spec, its raw measurements, and the numbers computed from them.

A `Trial` is one spec and its part in a comparison, or a profile. Its result keeps every latency in run order.
This module and `statistics.py` compute percentiles, intervals and warnings from them; `evidence.result`
computes what needs two configurations. Seconds and bytes throughout.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, cast

from core.evidence.result_types import Latency, Provenance, TrialNumbers, TrialResult
from core.evidence.speedup_interval import trimmed_estimate
from core.evidence.statistics import (
    MIN_BLOCKS,
    PERCENTILES,
    Estimate,
    Needs,
    drift,
    mean_estimate,
    percentile_estimate,
    percentile_needs,
    standard_deviation,
)
from core.wire.errors import ErrorRecord
from core.wire.runtime import OWN

# reference: added to the requested candidates; screen: evaluated by a search, and listed there only; load: a
# load test, of one or more configurations
TrialKind = Literal["measure", "profile", "reference", "screen", "load"]
TrialState = Literal["WAITING", "RUNNING", "COMPLETE", "FAIL", "CANCELLED", "DAMAGED"]  # DAMAGED: on disk

DRIFT_WARNING = 0.05  # first to last third of the runs; above, the result depends on the time of the stop
# keys of a result that `--json` always prints, null where there is no value
RESULT_FIELDS = (*TrialNumbers.__annotations__, *Provenance.__annotations__)
WIDE_INTERVAL = 0.10  # a p50 interval wider than ±10 % cannot rank settings that differ by less


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One spec and its result.

    `result` is None until the trial has ended. A trial that failed or was cancelled during its comparison
    keeps its measurements; only its `state` shows that they are incomplete.
    """

    id: str
    kind: TrialKind
    state: TrialState
    spec: dict[str, Any]
    model_name: str
    model_sha256: str  # of the model with its external data; "" before the inspection
    key: str
    created_at: float  # seconds since the epoch
    study: str = ""
    owner: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorRecord | None = None
    result: TrialResult | None = None
    fingerprint: str = ""
    comparison: str = ""  # id of its comparison; "" for a profile

    @property
    def facts(self) -> TrialResult:
        """The result; an empty dict where there is none."""
        return self.result if self.result is not None else {}

    @property
    def p50_s(self) -> float | None:
        """Median of its timed runs; None where there is none."""
        latency = self.facts.get("latency")
        return latency["p50_s"] if latency else None

    def to_dict(self) -> dict[str, Any]:
        """The contract of `--json`: every key is always present, null where there is no value."""
        data: dict[str, Any] = {
            "trial": self.id,
            "kind": self.kind,
            "state": self.state,
            "error": self.error,
            "model": self._model(),
            "spec": self.spec,
            "runtime": self.spec.get("runtime", OWN),
            "comparison": self.comparison or None,
        }
        result = self.facts
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

    def _model(self) -> dict[str, Any]:
        """Requested model and its facts, so that a requested INT8 variant is not reported as FP32."""
        facts: Mapping[str, Any] = self.facts.get("model") or {}
        told = {name: facts[name] for name in ("variant_of", "steps") if facts.get(name)}
        asked = {"sha256": None, "precision": facts.get("precision", "fp32"), **self.spec.get("model", {})}
        return {**asked, **told, "name": self.model_name}


def model_text(result: Mapping[str, Any] | None) -> str:
    """Return precision and origin of the model of a result; "" for an original in FP32.

    "int8, variant of `resnet18`: int8_dynamic".
    """
    told = result or {}
    facts = told.get("model")
    if facts is None:  # results of earlier versions have it in a note
        notes = (str(note) for note in told.get("notes") or ())
        return next((note for note in notes if note.startswith("variant of `")), "")
    parts = [facts["precision"]] if facts["precision"] != "fp32" else []
    if facts["variant_of"]:
        made = f": {facts['steps']}" if facts["steps"] else ""
        parts.append(f"variant of `{facts['variant_of']}`{made}")
    return ", ".join(parts)


def latency_summary(
    latencies_s: Sequence[float],
    rounds: Sequence[int] | None = None,
    processes: Sequence[Hashable] | None = None,
) -> Latency:
    """Return mean, deviation and percentiles of `latencies_s`, each percentile with its 95 % interval.

    A percentile that the runs cannot support is None, or has no upper bound; `needs_runs` and `needs_rounds`
    give the total number that it needs. Intervals hold for new processes; a single process has none, because
    it says nothing about the next one. The mean is that of a typical process (`trimmed_estimate`), as for
    ratios; everything else is computed from all runs.

    Args:
        latencies_s: in run order.
        rounds: number of runs of each round, in order; None: the runs were made without rounds.
        processes: process of each round; None: one process made all rounds.
    """
    made, count, least = None if rounds is None else len(rounds), 0, MIN_BLOCKS
    if rounds is not None and processes is not None:
        latencies_s, rounds = _by_process(latencies_s, rounds, processes)
        count, least = len(rounds), 2
    mean = mean_estimate(latencies_s, rounds, least=least)
    if count and rounds is not None:
        ends = itertools.accumulate(rounds)
        mean = trimmed_estimate(
            [fmean(latencies_s[end - size : end]) for size, end in zip(rounds, ends, strict=True)]
        )
    summary: dict[str, Any] = {
        **_fields("mean_s", mean),
        "std_s": standard_deviation(latencies_s),
        "min_s": min(latencies_s),
        "max_s": max(latencies_s),
    }
    needs: dict[str, Needs] = {}
    for p in PERCENTILES:
        name = f"p{round(p * 100)}_s"
        estimate = percentile_estimate(latencies_s, p, rounds, made=made, least=least)
        summary |= _fields(name, estimate)
        if estimate is None or (rounds is not None and p > 0.5 and _open(estimate)):
            needs[name] = percentile_needs(latencies_s, p, rounds, made=made, least=least)
    if count:
        summary["processes"] = count
    summary["needs_runs"] = {name: need.runs for name, need in needs.items()}
    summary["needs_rounds"] = {name: need.rounds for name, need in needs.items() if need.rounds}
    return cast(Latency, summary)


def _by_process(
    latencies_s: Sequence[float], rounds: Sequence[int], processes: Sequence[Hashable]
) -> tuple[list[float], list[int]]:
    """Return the latencies grouped by process, and the number of latencies of each process."""
    found: dict[Hashable, list[float]] = {process: [] for process in processes}
    ends = itertools.accumulate(rounds)
    for process, size, end in zip(processes, rounds, ends, strict=True):
        found[process] += latencies_s[end - size : end]
    return [one for own in found.values() for one in own], [len(own) for own in found.values()]


def _open(estimate: Estimate) -> bool:
    """Whether only a lower bound is known."""
    return estimate.low is not None and estimate.high is None


def _fields(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def latency_warnings(latencies_s: Sequence[float], latency: Mapping[str, Any]) -> list[str]:
    """Return warnings about the absolute times of a trial; empty: none.

    Args:
        latencies_s: in run order.
        latency: `latency_summary` of them.
    """
    found: list[str] = []
    moved = drift(latencies_s)
    if moved is not None and abs(moved) > DRIFT_WARNING:
        found.append(
            f"The latency changed by {moved:+.0%} from the first third of the runs to the last. Ratios "
            "are not affected, because they are taken within rounds; absolute times are."
        )
    median, low, high = latency["p50_s"], latency["p50_s_low"], latency["p50_s_high"]
    if median and low is not None:
        half = ((high if high is not None else max(latencies_s)) - low) / 2 / median
        if half > WIDE_INTERVAL:
            found.append(
                f"The 95 % interval of the p50 is wide: ±{half:.0%}. For a narrower one, measure with "
                "effort publish or on an idle machine."
            )
    return found
