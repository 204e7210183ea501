"""Profiles one configuration: a complete profile that is kept, or a short one for the providers used.

No queue, no thread, no store of trials: the scheduler owns those.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import __version__, wire
from core.evidence.result_types import ProviderPart, TrialResult
from core.process import scratch
from core.process.job_worker import Run
from core.run.preparation import (
    Prepared,
    Resolved,
    describe,
    describe_runtime,
    model_notes,
    prepare_trial,
    with_workaround,
)
from core.run.variants import model_facts
from core.spec import TrialSpec
from core.store import Store
from core.wire import engines
from core.wire.errors import Cancelled, TunerError, WorkerError
from core.wire.profile import Profile, cast_facts, profile_from_dict
from core.wire.runtime import OWN

PROFILE_RUNS = 100  # of a kept profile, unless the protocol gives a number
PLACEMENT_RUNS = 9  # enough to see every node, without doubling the duration of a trial
PLACEMENT_S = 0.5  # slow models have fewer runs
MOST_SAVED_BYTES = 1 << 30  # of a model with its weights: writing a larger one again takes minutes


def perform_profile(
    resolved: Resolved,
    store: Store,
    run: Run,
    *,
    environment: Callable[..., wire.Environment],
    trace: Callable[[], Path],
) -> TrialResult:
    """Profile, and return the result of the trial, without latencies, because the profiler slows the runs.

    Args:
        resolved: what to run, from `resolve_trial`.
        store: holds the caches.
        run: starts a worker, called like `run_job`.
        environment: describes the machine and the libraries of a `runtime`; its failure adds a note and does
            not fail the trial.
        trace: returns the path for ORT's trace.

    Raises:
        TunerError: see `resolve_trial`, `prepare_trial` and the workers' errors.
    """
    engines.require(resolved.spec.engine, "profile")
    prepared = prepare_trial(resolved, store, run)
    machine, notes = describe(environment)
    used, more = describe_runtime(environment, resolved.spec.runtime)
    runs, path = resolved.spec.protocol.runs or PROFILE_RUNS, trace()
    try:
        reply = _run_profile(resolved, prepared, run, runs, path)
    except WorkerError as error:
        raise with_workaround(error, prepared) from error
    return {
        "model": model_facts(resolved.record),
        "requested_providers": reply["requested_providers"],
        "effective_providers": reply["effective_providers"],
        "fallback": reply["fallback"],
        "fallback_reason": reply["fallback_reason"],
        "assigned_nodes": reply["assigned_nodes"],
        "placement": _by_provider(reply),
        "casts": _casts(resolved.spec, profile_from_dict(reply["profile"])),
        "batch_size": reply["batch_size"],
        "runs": reply["profile"]["runs"],
        "profile": reply["profile"],
        "overhead": _overhead(reply),
        "unprofiled_latencies_s": [ns / 1e9 for ns in reply["unprofiled_latencies_ns"]],
        "trace": path.name,
        "notes": [*model_notes(resolved, prepared), *notes, *more],
        "environment": machine if resolved.spec.runtime == OWN else used,
        "fingerprint": machine["fingerprint"] if machine is not None else "",
        "seed": resolved.spec.workload.seed,
        "tool_version": __version__,
    }


Placement = dict[str, ProviderPart]


def placement(
    resolved: Resolved, prepared: Prepared, run: Run, run_s: float
) -> tuple[Placement | None, dict[str, Any] | None, list[str]]:
    """Profile a few runs to find the providers used; a failure does not affect the measurement.

    Args:
        resolved: the trial.
        prepared: likewise.
        run: starts the worker.
        run_s: its typical run, seconds.

    Returns:
        Provider -> its nodes and time, the result of `cast_facts`, and notes: None, None and the reason where
        the pass failed.
    """
    runs = max(1, min(PLACEMENT_RUNS, int(PLACEMENT_S / run_s)))
    try:
        with scratch.folder() as folder:
            trace = folder / "trace.json"
            reply = _run_profile(resolved, prepared, run, runs, trace, with_constants=False)
        profile = profile_from_dict(reply["profile"])
    except Cancelled:
        raise
    except (TunerError, OSError) as error:
        return None, None, [f"The placement of nodes on providers is unknown: {error}"]
    return _by_provider(reply), _casts(resolved.spec, profile), []


def _casts(spec: TrialSpec, profile: Profile) -> dict[str, Any]:
    """The result of `cast_facts`, completed from the spec.

    The Casts at the borders of an fp16 copy cancel out with those that the CPU provider inserts, so a copy
    may compute in float32 throughout without a remaining Cast.
    """
    facts = cast_facts(profile)
    if spec.model.precision == "fp16":
        facts["computes_in_float32"] = bool(facts["float32_ops"] and not facts["float16_ops"])
    return facts


def _by_provider(reply: wire.ProfileReply) -> Placement:
    """Assigned nodes from ORT's assignment API (before late fusions); nodes and time from the profile.

    The time is the sum of each node's median, so one disturbed run does not affect it.
    """
    placement: Placement = {
        provider: {"nodes": nodes, "ran_nodes": 0, "time_s": 0.0}
        for provider, nodes in reply["assigned_nodes"].items()
    }
    others = 0 if placement else None  # an older ONNX Runtime does not say what it assigned
    for node in profile_from_dict(reply["profile"]).nodes:
        part = placement.setdefault(node.provider, {"nodes": others, "ran_nodes": 0, "time_s": 0.0})
        part["ran_nodes"] += 1
        part["time_s"] += node.median_s
    return placement


def _run_profile(
    resolved: Resolved, prepared: Prepared, run: Run, runs: int, trace: Path, *, with_constants: bool = True
) -> wire.ProfileReply:
    spec = resolved.spec
    plan: wire.ProfilePlan = {
        "model_path": prepared.path,
        "session": prepared.session,
        "feeds": prepared.feeds,
        "use_io_binding": spec.workload.use_io_binding,
        "runs": runs,
        "trace_path": str(trace),
        "saves_graph": with_constants and prepared.info["size_bytes"] <= MOST_SAVED_BYTES,
    }
    timeout_s = float(spec.protocol.timeout_s)
    if spec.runtime == OWN:
        return run(wire.PROFILE, plan, timeout_s=timeout_s)
    with scratch.folder() as folder:
        graph = str(folder / "graph.onnx")
        reply = run(wire.PROFILE, {**plan, "graph_path": graph}, timeout_s=timeout_s, runtime=spec.runtime)
        read: wire.ReadProfilePlan = {"trace_path": str(trace), "graph_path": graph}
        return {**reply, "profile": run(wire.READ_PROFILE, read, timeout_s=timeout_s)["profile"]}


def _overhead(reply: wire.ProfileReply) -> dict[str, float | None] | None:
    """Overhead of profiling: median run with and without it in one process, seconds, and their ratio."""
    with_profiler, without = reply["profile"]["run_s"], reply["unprofiled_latencies_ns"]
    if not with_profiler or not without:
        return None
    profiled_s, plain_s = statistics.median(with_profiler), statistics.median(without) / 1e9
    return {
        "profiled_s": profiled_s,
        "unprofiled_s": plain_s,
        "ratio": profiled_s / plain_s if plain_s > 0 else None,
    }
