"""The graphs of a model: its own, and the optimized one that ONNX Runtime runs.

    own_graph(store, record, run)              the model's own graph
    draw_optimized(store, spec, run, …)        a worker builds the session and saves its graph
    optimized_graph(store, spec, …)            that graph and the model's own; None before it is saved

A model never changes under its hash, and the optimized graph depends only on the model, session and machine.
So each is a file of the cache, read once by a worker and found by every page and command.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import wire
from core.process import runtimes, scratch
from core.process.job_worker import Run, run_job
from core.run.plan import check_overrides, session_plan
from core.run.preparation import Resolved, prepare_trial, resolve_trial
from core.run.runtime_check import check_runtime
from core.spec import ModelRef, TrialSpec, WorkloadSpec
from core.store import ModelRecord, Store
from core.wire import engines
from core.wire.errors import HOME_HINT, StoreError, TunerError, WorkerError
from core.wire.files import made_private, read_result
from core.wire.graph import Graphs, graphs_from_json
from core.wire.runtime import OWN, runtime

TIMEOUT_S = 1800.0  # a session of a model of many gigabytes
OWN_TIMEOUT_S = 300.0


def own_graph(store: Store, record: ModelRecord, run: Run = run_job) -> Graphs:
    """Return the model's own graph; a worker reads it the first time.

    Raises:
        ModelError: the file is gone, cannot be read, or has more nodes than can be drawn.
        SpecError: the file has changed.
        WorkerError: the worker crashed or hung.
        StoreError: the graph cannot be stored.
    """
    path = _graph_folder(store) / f"{record.content_sha256}.json"
    known = _read_graphs(path)
    if known is None:
        spec = TrialSpec(model=ModelRef(path=record.path, sha256=record.sha256))
        resolved = resolve_trial(spec, store, run)
        _draw(resolved.record.path, None, path, run, OWN_TIMEOUT_S)
        known = _read_graphs(path)
    if known is None:
        raise WorkerError("The graph was not stored.", hint="Read it again.")
    return known


def optimized_graph(store: Store, spec: TrialSpec, record: ModelRecord, *, fingerprint: str) -> Graphs | None:
    """Return the optimized graph of the model in such a session; None where it was not saved yet.

    Args:
        store: keeps the graphs.
        spec: only its session, precision and runtime matter.
        record: of its model.
        fingerprint: of this machine: optimizations depend on the CPU and the libraries.
    """
    return _read_graphs(_optimized_path(store, spec, record, fingerprint))


def optimized_at(store: Store, spec: TrialSpec, record: ModelRecord, *, fingerprint: str) -> float | None:
    """Return when `optimized_graph` was last written, in seconds since the epoch; None: never."""
    try:
        return _optimized_path(store, spec, record, fingerprint).stat().st_mtime
    except OSError:
        return None


def check_drawable(spec: TrialSpec) -> None:
    """Refuse a spec without an optimized graph of ONNX Runtime.

    Raises:
        SpecError: another engine runs it.
    """
    engines.require(spec.engine, "profile")


def draw_optimized(
    store: Store, spec: TrialSpec, run: Run, *, environment: Callable[[], wire.Environment]
) -> dict[str, Any]:
    """Build the session that `spec` asks for, and store its optimized graph.

    Args:
        store: holds the model and receives the graph.
        spec: session to build; nothing is run, so no inputs are needed.
        run: starts a worker, called like `run_job`.
        environment: describes the machine.

    Returns:
        The number of nodes of both graphs, for `Status.result`.

    Raises:
        TunerError: the model, the session or saving the graph failed.
    """
    check_drawable(spec)
    resolved = resolve_trial(spec, store, run)
    check_overrides(resolved.spec, resolved.record.info)
    path = _optimized_path(store, resolved.spec, resolved.record, environment()["fingerprint"])
    file, session = _file(resolved, store, run), session_plan(spec.session)
    if resolved.spec.runtime == OWN:
        reply = _draw(file, session, path, run, TIMEOUT_S)
    else:
        check_runtime(
            resolved.spec.model_copy(update={"workload": WorkloadSpec()}), resolved.record.info, run
        )
        reply = _draw_elsewhere(file, session, path, run, resolved.spec.runtime)
    return {"nodes": reply["nodes"], "optimized_nodes": reply["optimized_nodes"]}


def _draw_elsewhere(
    model_path: str, session: wire.SessionPlan, path: Path, run: Run, runtime: str
) -> wire.GraphReply:
    """Save the graph in another runtime, and read it in ORTune's own, which has onnx."""
    with scratch.folder() as folder:
        saved = str(folder / "optimized.onnx")
        model: wire.NamedModelPlan = {"model_path": model_path, "folder": str(folder)}
        named = run(wire.NAMED_MODEL, model, timeout_s=TIMEOUT_S)
        plan: wire.SaveGraphPlan = {"model_path": named["path"], "session": session, "graph_path": saved}
        used = run(wire.SAVE_GRAPH, plan, timeout_s=TIMEOUT_S, runtime=runtime)
        kept: wire.SavedGraph = {
            "path": saved,
            "effective_providers": used["effective_providers"],
            "notes": named["notes"],
        }
        return _draw(model_path, None, path, run, TIMEOUT_S, kept)


def _file(resolved: Resolved, store: Store, run: Run) -> str:
    """The file that runs: an fp16 copy where the spec asks for one."""
    if resolved.spec.model.precision == "fp16":
        return prepare_trial(resolved, store, run).path
    return resolved.record.path


def _draw(
    model_path: str,
    session: wire.SessionPlan | None,
    path: Path,
    run: Run,
    timeout_s: float,
    saved: wire.SavedGraph | None = None,
) -> wire.GraphReply:
    try:
        made_private(path.parent)
    except OSError as error:
        raise StoreError(
            f"The graph cannot be stored in `{path.parent}`: {error.strerror or error}.",
            hint=HOME_HINT,
        ) from error
    plan: wire.GraphPlan = {"model_path": model_path, "session": session, "output": str(path)}
    if saved is not None:
        plan["saved"] = saved
    return run(wire.GRAPH, plan, timeout_s=timeout_s)


def _optimized_path(store: Store, spec: TrialSpec, record: ModelRecord, fingerprint: str) -> Path:
    asked = [session_plan(spec.session), spec.model.precision, spec.model.keep_io_types, fingerprint]
    if spec.runtime != OWN:
        asked.append(_with_hash(spec.runtime))
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    return _graph_folder(store) / f"{record.content_sha256}-{digest}.json"


def _with_hash(text: str) -> str:
    """A runtime with the hash of its content; as it is where the runtime is gone."""
    try:
        return text if runtime(text).sha256 else runtimes.pinned(text)
    except TunerError:
        return text


def _graph_folder(store: Store) -> Path:
    return store.folder / "cache" / "graphs"


def _read_graphs(path: Path) -> Graphs | None:
    """The graphs stored at `path`; None where there are none that this version reads."""
    try:
        return graphs_from_json(read_result(path))
    except (OSError, TunerError):
        return None
