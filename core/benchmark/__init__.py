"""The jobs `measure` and `profile`: one session, one caller, every latency kept in run order.

A measuring worker holds numpy, onnxruntime and the standard library. Both ways of running are what users do:
plain `session.run` with numpy in and out, or the public `run_with_iobinding` with inputs bound once and
outputs on the device. Nothing is subtracted from a latency; what a reader must know stands in `notes`.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from core import limits, wire
from core.benchmark import footprint, timing
from core.benchmark.inference import Inference, prepare, translated
from core.errors import SpecError
from core.feeds import rows_fed
from core.session import CUDA_PROVIDERS, BuiltSession, build_session
from core.wire import Progress

MAX_PROFILE_EVENTS = 900_000  # ONNX Runtime drops what comes after the millionth
UNPROFILED_RUNS = 100
SHORT_RUN_S = 100e-6  # below this the caller's own cost is a visible share
_LOOPS = {"Loop", "Scan"}  # their bodies run more often than they are listed


def measure(plan: wire.MeasurePlan, progress: Progress) -> wire.MeasureReply:
    """Time one configuration.

    Args:
        plan: what to set, feed and repeat.
        progress: told the stages "load", "warm-up" and "measure".

    Raises:
        ProviderError: a provider did not load.
        ModelError: ONNX Runtime refuses the model, or a run of it fails.
        SpecError: a setting or feed does not fit; the rows fed are not the batch.
        WorkerError: not enough memory.
    """
    exact = footprint.reset_peak()
    baseline = footprint.peak_rss_bytes()
    progress("load", 0, 1)
    built = build_session(plan["model_path"], plan["session"])
    inference = prepare(built, plan)
    warm, timed, outputs, throttled = _run_all(inference, plan, progress)
    rows = _count_rows(inference, plan["feeds"])
    gpu_memory, gpu_note = _gpu_memory(built)
    peak = footprint.peak_rss_bytes()
    with translated():
        cpu_s = timing.cpu_s_per_run(inference.call, timed)
    return {
        "requested_providers": built.requested,
        "effective_providers": built.effective,
        "fallback": built.fallback,
        "fallback_reason": built.fallback_reason,
        "batch_size": rows,
        "inputs": inference.inputs,
        "outputs": outputs,
        "session_creation_s": built.creation_s,
        "first_run_s": (warm or timed.latencies_ns)[0] / 1e9,
        "warmup_latencies_ns": warm,
        "latencies_ns": timed.latencies_ns,
        "timed_wall_s": timed.wall_s,
        "cpu_s_per_run": cpu_s,
        "baseline_rss_bytes": baseline,
        "peak_rss_bytes": max(0, peak - baseline),
        "gpu_memory_bytes": gpu_memory,
        "notes": [
            *inference.notes,
            *_timing_notes(plan, timed, throttled),
            *_memory_notes(plan, exact=exact, gpu_note=gpu_note),
        ],
        "libraries": {"onnxruntime": ort.__version__, "numpy": np.__version__},
    }


def _run_all(
    inference: Inference, plan: wire.MeasurePlan, progress: Progress
) -> tuple[list[int], timing.TimedRuns, list[wire.TensorInfo], limits.Throttling]:
    """Warm-up and timed runs; without warm-up the first run of all is the first timed one."""
    warmups, runs = plan["warmup_runs"], plan["runs"]
    progress("warm-up", 0, warmups)
    before = limits.throttling()
    first, outputs = _first_run(inference)
    warm = _more_runs(inference, warmups - 1, first, _reporter(progress, "warm-up", 1, warmups), refill=False)
    warm_ns = first.latencies_ns + warm.latencies_ns
    cold = warmups == 0
    if not cold:
        before = limits.throttling()
    progress("measure", 0, runs)
    timed = _more_runs(
        inference,
        runs - cold,
        warm if warmups > 1 else first,
        _reporter(progress, "measure", int(cold), runs),
        refill=not cold,
    )
    if cold:
        timed, warm_ns = _joined(first, timed), []
    return warm_ns, timed, outputs, limits.throttling_since(before)


def _first_run(inference: Inference) -> tuple[timing.TimedRuns, list[wire.TensorInfo]]:
    """The first run, apart because its outputs are described; they are not kept alive after that."""
    results: list[object] = []
    with translated():
        first = timing.time_runs(
            lambda: results.append(inference.call()), 1, expected_ns=1, report=_ignore, refill=False
        )
    return first, inference.outputs(results[0])


def _more_runs(
    inference: Inference, runs: int, before: timing.TimedRuns, report: Callable[[int], None], *, refill: bool
) -> timing.TimedRuns:
    with translated():
        return timing.time_runs(
            inference.call, max(0, runs), expected_ns=min(before.latencies_ns), report=report, refill=refill
        )


def _joined(first: timing.TimedRuns, rest: timing.TimedRuns) -> timing.TimedRuns:
    return timing.TimedRuns(
        latencies_ns=first.latencies_ns + rest.latencies_ns,
        wall_s=first.wall_s + rest.wall_s,
        cpu_s=first.cpu_s + rest.cpu_s,
    )


def _reporter(progress: Progress, stage: str, done_before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(stage, done_before + done, total)


def _ignore(done: int) -> None:
    """A report nobody needs."""


def _count_rows(inference: Inference, plan: wire.FeedPlan) -> int:
    """The rows that were really fed, which must be the batch that was asked for."""
    rows = rows_fed({one["name"]: one["shape"] for one in inference.inputs}, plan["batch_axes"])
    if plan["batch_axes"] and rows != plan["batch_size"]:
        raise SpecError(
            f"{rows} rows were fed, but the batch is {plan['batch_size']}.",
            hint="Give fixed values for as many rows as the batch has, or one number for all.",
        )
    return rows


# -- what the reader of the numbers must know --------------------------------------------------------------


def _timing_notes(plan: wire.MeasurePlan, timed: timing.TimedRuns, throttled: limits.Throttling) -> list[str]:
    notes = []
    median_s = statistics.median(timed.latencies_ns) / 1e9
    if median_s < SHORT_RUN_S:
        notes.append(
            f"Runs this short are mostly the call from Python into ONNX Runtime, as in any Python program; "
            f"{timing.clock_share_ns() / 1e3:.2f} µs of each is the clock."
        )
    if not plan["feeds"]["batch_axes"]:
        notes.append("No input of this model has rows that a batch could count: each run counts as one row.")
    if not plan["warmup_runs"]:
        notes.append("There was no warm-up: the first timed run is the first run of the session.")
    if throttled.periods:
        notes.append(
            f"The container's CPU quota stopped its processes in {throttled.periods} periods, "
            f"{throttled.seconds:.2f} s in all, while this was timed."
        )
    return notes


def _memory_notes(plan: wire.MeasurePlan, *, exact: bool, gpu_note: str) -> list[str]:
    notes = [gpu_note] if gpu_note else []
    if not exact:
        notes.append("Peak memory may be too high: this system does not let a process reset its peak.")
    if plan["feeds"]["source"] == "images":
        notes.append("Peak memory includes Pillow, which read the images.")
    return notes


def _gpu_memory(built: BuiltSession) -> tuple[int | None, str]:
    return footprint.gpu_memory_bytes() if set(CUDA_PROVIDERS) & set(built.effective) else (None, "")


# -- profile -----------------------------------------------------------------------------------------------


def profile(plan: wire.ProfilePlan, progress: Progress) -> wire.ProfileReply:
    """Run one configuration with ONNX Runtime's profiler on, and before that without it.

    The runs are cut where the profiler's limit of a million events would be passed. The first run of the
    profiled session is left out of the profile.

    Args:
        plan: what to set, feed and repeat, and where the trace goes.
        progress: told the stages "load", "unprofiled", "profile" and "read".

    Raises:
        TunerError: as for `measure`.
    """
    progress("load", 0, 1)
    unprofiled = _unprofiled(plan, progress)
    gc.collect()  # the session is gone before the next: its idle threads would spin beside it
    trace = Path(plan["trace_path"])
    trace.parent.mkdir(parents=True, exist_ok=True)
    with _scratch_prefix(trace) as prefix:
        inference, assigned, file = _profiled(plan, progress, prefix)
        Path(file).replace(trace)
    rows = _count_rows(inference, plan["feeds"])
    progress("read", 0, 1)
    from core.profiling import parse_profile

    built = inference.built
    return {
        "requested_providers": built.requested,
        "effective_providers": built.effective,
        "fallback": built.fallback,
        "fallback_reason": built.fallback_reason,
        "batch_size": rows,
        "assigned_nodes": assigned,
        "unprofiled_latencies_ns": unprofiled,
        "profile": parse_profile(trace, skip_runs=1).to_dict(),
        "trace_path": str(trace),
    }


def _unprofiled(plan: wire.ProfilePlan, progress: Progress) -> list[int]:
    inference = prepare(build_session(plan["model_path"], plan["session"]), plan)
    first, _ = _first_run(inference)
    runs = min(plan["runs"], UNPROFILED_RUNS)
    report = _reporter(progress, "unprofiled", 0, runs)
    return _more_runs(inference, runs, first, report, refill=False).latencies_ns


def _profiled(
    plan: wire.ProfilePlan, progress: Progress, prefix: str
) -> tuple[Inference, dict[str, int], str]:
    """Run with the profiler on; return the inference, the nodes per provider and the trace's file."""
    built = build_session(
        plan["model_path"], plan["session"], profile_prefix=f"{prefix}-trace", record_assignment=True
    )
    inference = prepare(built, plan)
    assigned, operators = _assignment(built.session)
    events = sum(assigned.values()) + 2
    if operators & _LOOPS:
        events = _events_of_one_run(plan, prefix)
    runs = max(1, min(plan["runs"], MAX_PROFILE_EVENTS // events - 1))
    first, _ = _first_run(inference)
    progress("profile", 0, runs)
    _more_runs(inference, runs, first, _reporter(progress, "profile", 0, runs), refill=False)
    return inference, assigned, built.session.end_profiling()


def _events_of_one_run(plan: wire.ProfilePlan, prefix: str) -> int:
    """Count them, in a session of its own: how often a loop's body runs stands in no list of nodes."""
    built = build_session(plan["model_path"], plan["session"], profile_prefix=f"{prefix}-pilot")
    _first_run(prepare(built, plan))
    with Path(built.session.end_profiling()).open("rb") as file:
        return sum(1 for _ in file)


def _assignment(session: Any) -> tuple[dict[str, int], set[str]]:
    nodes: Counter[str] = Counter()
    operators: set[str] = set()
    for part in session.get_provider_graph_assignment_info():
        members = part.get_nodes()
        nodes[part.ep_name] += len(members)
        operators |= {node.op_type for node in members}
    return dict(nodes), operators


@contextlib.contextmanager
def _scratch_prefix(trace: Path) -> Iterator[str]:
    """A prefix for ONNX Runtime's files beside `trace`; it adds the time, which is not unique, to it."""
    prefix = trace.parent.resolve() / f".ortune-{uuid.uuid4().hex}"
    try:
        yield str(prefix)
    finally:
        for leftover in prefix.parent.glob(f"{prefix.name}*"):
            leftover.unlink(missing_ok=True)
