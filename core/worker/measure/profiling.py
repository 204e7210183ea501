"""The job `profile`: run one configuration with ONNX Runtime's profiler, in a separate pass.

Timing without the profiler, for comparisons, is in `contestant`.
"""

from __future__ import annotations

import contextlib
import gc
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core import wire
from core.wire import Progress
from core.wire.errors import TunerError
from core.worker.measure import timing
from core.worker.measure.inference import Inference, count_samples, prepare, translate_errors
from core.worker.session import build_session
from core.worker.session.job_session import saving_graph

MAX_PROFILE_EVENTS = 900_000  # ONNX Runtime drops events after the millionth
UNPROFILED_RUNS = 100
_GRAPH = "-graph.onnx"  # end of the name of the saved graph
_LOOPS = {"Loop", "Scan"}  # their bodies run more often than they are listed


def profile(plan: wire.ProfilePlan, progress: Progress) -> wire.ProfileReply:
    """Run one configuration first without and then with ONNX Runtime's profiler.

    The number of runs is cut where the profiler's limit of a million events would be exceeded. The first
    run of the profiled session is left out of the profile.

    Args:
        plan: settings, inputs, repetitions, and the path of the trace.
        progress: receives the stages "load", "unprofiled", "profile" and "read".

    Raises:
        ProviderError: a provider did not load.
        ModelError: ONNX Runtime refuses the model, or a run of it fails.
        SpecError: a setting or input is invalid; the inputs have another number of samples than the batch.
        WorkerError: not enough memory.
    """
    progress("load", 0, 1)
    unprofiled = _unprofiled(plan, progress)
    gc.collect()  # ends this session before the next: its idle threads would spin meanwhile
    trace = Path(plan["trace_path"])
    trace.parent.mkdir(parents=True, exist_ok=True)
    with _scratch_prefix(trace) as prefix:
        inference, assigned, file = _profiled(plan, progress, prefix)
        Path(file).replace(trace)
        rows, built = count_samples(inference, plan["feeds"]), inference.built
        progress("read", 0, 1)
        found = _read(trace, _saved_graph(plan, prefix), plan.get("graph_path"))
    return {
        **built.providers(),
        "batch_size": rows,
        "assigned_nodes": assigned,
        "unprofiled_latencies_ns": unprofiled,
        "profile": found,
        "trace_path": str(trace),
    }


def _read(trace: Path, graph: Path | None, keep_at: str | None) -> dict[str, Any]:
    """Interpret the trace and the graph; where the plan keeps them for another worker, return nothing."""
    if keep_at is None:
        from core.worker.measure.profile_reading import read

        return read(trace, graph).to_dict()
    if graph is not None:
        graph.replace(keep_at)
    return {}


def _unprofiled(plan: wire.ProfilePlan, progress: Progress) -> list[int]:
    inference = prepare(build_session(plan["model_path"], plan["session"]), plan)
    return _runs(inference, min(plan["runs"], UNPROFILED_RUNS), progress, "unprofiled")


@translate_errors()
def _runs(inference: Inference, runs: int, progress: Progress, stage: str) -> list[int]:
    """Make one discarded run, then return the latencies of `runs` runs."""
    (first_ns,) = timing.time_each(inference.call, 1)
    progress(stage, 0, runs)
    return timing.time_runs(
        inference.call, runs, expected_ns=first_ns, report=lambda done: progress(stage, done, runs)
    )


def _profiled(
    plan: wire.ProfilePlan, progress: Progress, prefix: str
) -> tuple[Inference, dict[str, int], str]:
    """Run with the profiler on; return the inference, the nodes per provider and the trace file."""
    built = build_session(
        plan["model_path"], plan["session"], profile_prefix=f"{prefix}-trace", record_assignment=True
    )
    inference = prepare(built, plan)
    assigned, operators = _assignment(built.session)
    events = sum(assigned.values()) + 2
    if not assigned or operators & _LOOPS:
        events = _events_of_one_run(plan, prefix)
    runs = max(1, min(plan["runs"], MAX_PROFILE_EVENTS // events - 1))
    _runs(inference, runs, progress, "profile")
    return inference, assigned, built.session.end_profiling()


def _events_of_one_run(plan: wire.ProfilePlan, prefix: str) -> int:
    """Count the events in a session of its own: no list of nodes tells how often a loop's body runs."""
    built = build_session(plan["model_path"], plan["session"], profile_prefix=f"{prefix}-pilot")
    with translate_errors():
        prepare(built, plan).call()
    with Path(built.session.end_profiling()).open("rb") as file:
        return sum(1 for _ in file)


def _saved_graph(plan: wire.ProfilePlan, prefix: str) -> Path | None:
    """Return the optimized graph that a session has saved; None: the profile can do without."""
    if not plan.get("saves_graph", True):
        return None
    graph = Path(f"{prefix}{_GRAPH}")
    try:
        build_session(plan["model_path"], saving_graph(plan["session"], str(graph)))
    except TunerError:  # for example, a graph that a provider has compiled
        return None
    return graph if graph.is_file() else None


def _assignment(session: Any) -> tuple[dict[str, int], set[str]]:
    """Return the nodes per provider, and all operators; both empty before ONNX Runtime 1.24."""
    nodes: Counter[str] = Counter()
    operators: set[str] = set()
    for part in getattr(session, "get_provider_graph_assignment_info", list)():
        members = part.get_nodes()
        nodes[part.ep_name] += len(members)
        operators |= {node.op_type for node in members}
    return dict(nodes), operators


@contextlib.contextmanager
def _scratch_prefix(trace: Path) -> Iterator[str]:
    """Return a file prefix for ONNX Runtime next to `trace`; ORT appends a time, which is not unique."""
    prefix = trace.parent.resolve() / f".ortune-{uuid.uuid4().hex}"
    try:
        yield str(prefix)
    finally:
        for leftover in prefix.parent.glob(f"{prefix.name}*"):
            leftover.unlink(missing_ok=True)
