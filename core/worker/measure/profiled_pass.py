"""The job `profiled_pass`: one pass of the job `explain`, in whatever runtime its configuration names.

A pass builds a session, runs it with ONNX Runtime's profiler, turns the profiler off and runs the same
session again. Both times belong to the same session, so their difference is the profiler's overhead. The
first pass only learns how long a run takes, and saves the optimized graph. numpy and onnxruntime only;
`explain` reads the files.
"""

from __future__ import annotations

import gc
import os
import uuid
from pathlib import Path

from core import wire
from core.wire import Progress, limits
from core.wire.errors import TunerError
from core.worker.measure import timing
from core.worker.measure.contestant import pin
from core.worker.measure.inference import Inference, prepare, translate_errors
from core.worker.session import CPU, build_session
from core.worker.session.feeds import sample_count
from core.worker.session.job_session import saving_graph

PASS_S = 0.25  # with the profiler, and the same again without it
MIN_RUNS, MAX_RUNS = 5, 100
WARM_RUNS = 3  # per session, after the first
MAX_EVENTS = 900_000  # ONNX Runtime drops events after the millionth

_ALLOWED = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def profiled_pass(plan: wire.PassPlan, progress: Progress) -> wire.PassReply:
    """Make one pass in a process of its own.

    Args:
        plan: the configuration, and which pass.
        progress: receives the stage "profile".

    Raises:
        TunerError: the configuration cannot be built or run.
    """
    if all(one["name"] == CPU for one in plan["side"]["session"]["providers"]):
        limits.cap_memory()
    gc.disable()
    progress("profile", plan["done"], plan["total"])
    return make_pass(plan)


def make_pass(plan: wire.PassPlan) -> wire.PassReply:
    """Make the first pass where `plan["runs"]` is 0, else a pass of that many runs; raises as above."""
    return _counted_pass(plan) if plan["runs"] else _first_pass(plan)


def _first_pass(plan: wire.PassPlan) -> wire.PassReply:
    """Run twice to learn the duration and number of events of a run; save the optimized graph."""
    inference, saved = _saving(plan), True
    if inference is None:
        inference, saved = _inference(plan, plan["side"]["session"]), False
    with translate_errors():
        latencies = timing.time_each(inference.call, 2)
    file = Path(inference.built.session.end_profiling())
    with file.open("rb") as lines:
        events = sum(1 for _ in lines) // 2
    file.unlink(missing_ok=True)
    room = MAX_EVENTS // max(1, events) - WARM_RUNS - 1
    run_ns = max(1, min(latencies))
    runs = max(1, min(max(MIN_RUNS, int(PASS_S * 1e9) // run_ns), MAX_RUNS, room))
    return _reply(plan, inference, profile="", plain_ns=[], runs=runs, saved=saved)


def _counted_pass(plan: wire.PassPlan) -> wire.PassReply:
    inference = _inference(plan, plan["side"]["session"])
    runs = plan["runs"]
    with translate_errors():
        timing.time_each(inference.call, 1 + WARM_RUNS + runs)
        file = inference.built.session.end_profiling()
        plain_ns = timing.time_each(inference.call, 1 + runs)[1:]
    return _reply(plan, inference, profile=file, plain_ns=plain_ns, runs=runs, saved=False)


def _reply(
    plan: wire.PassPlan, inference: Inference, *, profile: str, plain_ns: list[int], runs: int, saved: bool
) -> wire.PassReply:
    shapes = {one["name"]: one["shape"] for one in inference.inputs}
    return {
        **inference.built.providers(),
        "profile": profile,
        "plain_ns": plain_ns,
        "runs": runs,
        "saved": saved,
        "batch_size": sample_count(shapes, plan["side"]["feeds"]["batch_axes"]),
        "notes": inference.notes,
    }


def _inference(plan: wire.PassPlan, session: wire.SessionPlan) -> Inference:
    """Return a session with the profiler on and its inputs in place."""
    if _ALLOWED is not None:
        os.sched_setaffinity(0, _ALLOWED)
    pin(plan["side"]["cpus"])
    prefix = str(Path(plan["folder"]) / f"profile-{uuid.uuid4().hex}")
    built = build_session(plan["side"]["model_path"], session, profile_prefix=prefix)
    return prepare(built, plan["side"])


def _saving(plan: wire.PassPlan) -> Inference | None:
    """Return the same session with its optimized graph saved; None if saving fails."""
    try:
        return _inference(plan, saving_graph(plan["side"]["session"], plan["optimized"]))
    except TunerError:  # for example, a graph that a provider has compiled cannot be saved
        return None
