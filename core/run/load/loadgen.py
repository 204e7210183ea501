"""A cross-check of a load test: MLCommons' LoadGen measures the same session in a disposable process.

`cross_check` does the whole of it; `loadgen_plan` checks one request, and `run_loadgen` starts its worker.
LoadGen may block for good or crash, so the worker has a time limit, and its end is an error of the job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, get_args

from core import wire
from core.evidence.load.loadgen_result import LABEL, LoadGenResult, sentence, verdict
from core.process.job_worker import Run
from core.run.plan import contestant_plan
from core.run.preparation import prepare_trial, resolve_trial
from core.run.runtime_check import require_package
from core.spec import TrialSpec
from core.store import Store
from core.wire import engines
from core.wire.errors import SpecError, nearest, range_rule
from core.wire.runtime import OWN
from core.wire.units import visible

SCENARIOS: tuple[str, ...] = get_args(wire.LoadGenScenario)
# percentile that MLPerf's rules name for a scenario; of Offline there is none, only its throughput counts
PERCENTILE = {"SingleStream": 0.9, "MultiStream": 0.99, "Server": 0.99, "Offline": 0.99}
ONLY = ", and LoadGen measures ONNX Runtime only"  # end of the error of another engine
SAMPLES_PER_QUERY = 8  # of MultiStream, by MLPerf's rules
LEAST_PATIENCE_S, PATIENCE = 30.0, 4  # the second: times the duration, for a queue that forms
START_S = 120.0  # to load the session and warm up


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGenTest:
    """One test of LoadGen, as requested."""

    scenario: str  # SingleStream: query after query; MultiStream: 8 inferences per query; Server: Poisson
    # arrivals at `rate`; Offline: one query with every inference
    duration_s: float  # least duration, 0.001 s to a day; MLPerf's rules ask for 600 s
    rate: float | None = None  # queries per second; Server only
    limit_s: float | None = None  # latency limit; Server only
    percentile: float | None = None  # a share, 0.5 to 0.9999; None: that of MLPerf's rules
    streams: int = 1  # threads that run inferences on the session, 1 to 256
    min_queries: int = 1
    seed: int = 0  # of LoadGen's schedule


def loadgen_plan(plan: wire.ContestantPlan, test: LoadGenTest) -> wire.LoadGenPlan:
    """Return the plan of one test of LoadGen.

    Args:
        plan: the configuration, from `core.run.plan.contestant_plan`; ONNX Runtime only.
        test: what LoadGen should do.

    Raises:
        SpecError: a value is out of range or missing, or the engine is not ONNX Runtime.
    """
    engines.require(plan["engine"], "settings", of=ONLY)
    scenario = _scenario(test.scenario)
    share = PERCENTILE[scenario] if test.percentile is None else test.percentile
    _within("The duration in seconds", test.duration_s, 0.001, 86_400)
    _within("The percentile, as a share,", share, 0.5, 0.9999)
    _within("The number of streams", test.streams, 1, 256)
    _within("The least number of queries", test.min_queries, 1, 10_000_000)
    _within("The seed", test.seed, 0, 2**63 - 1)
    rate, limit_s = _traffic(test) if scenario == "Server" else (0.0, 0.0)
    return {
        "plan": plan,
        "scenario": scenario,
        "duration_s": test.duration_s,
        "min_queries": test.min_queries,
        "rate": rate,
        "limit_s": limit_s,
        "percentile": share,
        "samples_per_query": SAMPLES_PER_QUERY if scenario == "MultiStream" else 1,
        "streams": test.streams,
        "seed": test.seed,
        "timeout_s": LEAST_PATIENCE_S + PATIENCE * test.duration_s,
    }


def _scenario(name: str) -> wire.LoadGenScenario:
    if name not in SCENARIOS:
        raise SpecError(
            f"LoadGen's scenario must be one of {', '.join(SCENARIOS)}, but got `{visible(name[:80])}`."
            f"{nearest(name, SCENARIOS)}",
            hint="Choose one of them.",
        )
    return cast(wire.LoadGenScenario, name)


def _traffic(test: LoadGenTest) -> tuple[float, float]:
    """Return rate and latency limit of the scenario Server."""
    if test.rate is None or test.limit_s is None:
        missing = "a rate" if test.rate is None else "a latency limit"
        raise SpecError(
            f"LoadGen's scenario Server needs {missing}.",
            hint="Give a rate in queries per second and a limit, for example `p99<=20ms`.",
        )
    _within("The rate per second", test.rate, 0.001, 1_000_000)
    _within("The latency limit in seconds", test.limit_s, 1e-6, 3600)
    return test.rate, test.limit_s


def _within(what: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise SpecError(
            f"{range_rule(what, low, high)}, but got {value:g}.", hint="Choose a value in that range."
        )


def run_loadgen(plan: wire.LoadGenPlan, run: Run) -> wire.LoadGenReply:
    """Run one test of LoadGen in a worker of its own, which a cancel or its time limit ends.

    Args:
        plan: from `loadgen_plan`.
        run: starts the worker, called like `run_job`.

    Raises:
        SpecError: the package `mlcommons-loadgen` is not installed; the hint says how to install it.
        WorkerError: LoadGen crashed, or has not ended within the time of the plan.
        Cancelled: the user stopped it.
        TunerError: what the session or an inference raises.
    """
    return run(
        wire.LOADGEN,
        plan,
        timeout_s=START_S + plan["timeout_s"],
        runtime=plan["plan"].get("runtime", OWN),
    )


def cross_check(spec: TrialSpec, tests: Sequence[LoadGenTest], *, store: Store, run: Run) -> LoadGenResult:
    """Let LoadGen measure a configuration in several scenarios, each in a worker of its own.

    Args:
        spec: the configuration.
        tests: what LoadGen should do, one or more; all are checked before the first begins.
        store: holds the caches.
        run: starts workers, called like `run_job`.

    Raises:
        TunerError: as for `resolve_trial`, `prepare_trial`, `loadgen_plan` and `run_loadgen`.
    """
    engines.require(spec.engine, "settings", of=ONLY)
    require_package(
        spec.runtime, "mlperf_loadgen", "mlcommons-loadgen", run, needs="the cross-check with LoadGen"
    )
    resolved = resolve_trial(spec, store, run)
    prepared = prepare_trial(resolved, store, run)
    plan = contestant_plan(
        resolved.spec, path=prepared.path, session=prepared.session, feeds=prepared.feeds, torch=None
    )
    plans = [loadgen_plan(plan, test) for test in tests]
    replies = [run_loadgen(one, run) for one in plans]
    return {
        "label": LABEL,
        "model": resolved.record.path,
        "sha256": resolved.record.content_sha256,
        "verdict": verdict(replies),
        "words": sentence(replies),
        "tests": replies,
    }
