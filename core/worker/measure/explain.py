"""The job `explain`: profile two configurations alternately, and match the nodes of their models.

A pass builds a session, runs it with ONNX Runtime's profiler, turns the profiler off and runs the same
session again. Both times belong to the same session, so their difference is the profiler's overhead. The
sides alternate (A B, B A, A B, …), because a machine drifts. Only one session exists at a time, because the
idle threads of another one would spin meanwhile. `parse_profile(typical=True)` selects the runs that count.

This is not a measurement: no result here becomes a trial's latency.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core import wire
from core.wire import Progress, limits
from core.wire.errors import HOME_HINT, StoreError, TunerError
from core.wire.files import written_whole
from core.wire.profile import LAYOUT_OR_COPY, NodeTime, Profile, middle_half
from core.wire.profile_passes import VERSION, Origin, Passes, RanNode, Side
from core.worker.measure import timing
from core.worker.measure.contestant import pin
from core.worker.measure.inference import Inference, prepare, translate_errors
from core.worker.session import CPU, build_session
from core.worker.session.feeds import sample_count
from core.worker.session.job_session import saving_graph

if TYPE_CHECKING:
    from onnx import ModelProto

PASSES = 5  # per side: the fewest that show scatter after the best and worst are dropped
PASS_S = 0.25  # with the profiler, and the same again without it
MIN_RUNS, MAX_RUNS = 5, 100
WARM_RUNS = 3  # per session, after the first
MAX_EVENTS = 900_000  # ONNX Runtime drops events after the millionth

Key = tuple[tuple[str, ...], str, str, str]  # path, name, operator, provider


def explain(plan: wire.ExplainPlan, progress: Progress) -> wire.ExplainReply:
    """Profile both sides alternately, and write the result to `plan["output"]`.

    Args:
        plan: the two configurations, and the path of the result.
        progress: receives the stages "load", "profile" and "match".

    Raises:
        TunerError: a side cannot be built or run, or the result cannot be written.
    """
    if all(one["name"] == CPU for side in plan["sides"] for one in side["session"]["providers"]):
        limits.cap_memory()
    gc.disable()  # this process does nothing else; it collects between passes
    with tempfile.TemporaryDirectory(prefix="ortune-", ignore_cleanup_errors=True) as folder:
        sides = [_Side(side, Path(folder) / str(index)) for index, side in enumerate(plan["sides"])]
        for index, side in enumerate(sides):
            progress("load", index, len(sides))
            side.prepare_passes()
        for done, side in enumerate(_alternate(sides)):
            progress("profile", done, PASSES * len(sides))
            side.run_pass()
        progress("match", 0, 1)
        baseline, candidate = (side.result() for side in sides)
    passes = Passes(
        version=VERSION,
        sides=(baseline, candidate),
        fingerprint=plan["fingerprint"],
        created_at=time.time(),
    )
    _write(Path(plan["output"]), passes)
    notes = [note for side in passes.sides for note in side.notes]
    return {"output": plan["output"], "passes": PASSES, "notes": list(dict.fromkeys(notes))}


def _alternate(sides: Sequence[_Side]) -> Iterator[_Side]:
    """Yield every side once per round, each round in reverse order, so that drift affects both alike."""
    for number in range(PASSES):
        yield from sides if number % 2 == 0 else reversed(sides)


def _write(path: Path, passes: Passes) -> None:
    try:
        with written_whole(path) as draft:
            draft.write_bytes(msgspec.json.encode(passes))
    except OSError as error:
        raise StoreError(
            f"What the profiles show cannot be kept in `{path}`: {error.strerror or error}.",
            hint=HOME_HINT,
        ) from error


class _Side:
    """One configuration: its model, its passes so far, and the graph that ONNX Runtime made from it."""

    def __init__(self, plan: wire.ContestantPlan, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.plan = plan
        self.notes: list[str] = []
        self.model = self._read_named_model()
        self.allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        self.optimized: Path | None = folder / ".optimized.onnx"
        self.runs = MIN_RUNS
        self.rows = 0
        self.requested: list[str] = []
        self.effective: list[str] = []
        self.effective_when_saved: list[str] = []
        self.fallback_reason = ""
        self.ran: Sequence[NodeTime] = ()  # in the first pass
        self.parallel = False
        self.passes: list[dict[Key, list[NodeTime]]] = []
        self.run_s: list[float] = []
        self.plain_s: list[float] = []

    def _read_named_model(self) -> ModelProto:
        """Read the model without its weights; if nodes lack names, run a copy in which all have names.

        Names cost nothing at run time, and a node without a name cannot be followed through a fusion.
        """
        from core.worker.models import read_model
        from core.worker.models.graphs import name_nodes, named_copy

        path = Path(self.plan["model_path"])
        model = read_model(path)
        if name_nodes(model):
            named = named_copy(model, path, self.folder, self.notes)
            self.plan = {**self.plan, "model_path": str(named)}
        return model

    # --- running --------------------------------------------------------------------------------------------

    def prepare_passes(self) -> None:
        """Run twice to learn the duration and number of events of a run; save the optimized graph."""
        run_ns, events = self._first_runs()
        gc.collect()
        room = MAX_EVENTS // max(1, events) - WARM_RUNS - 1
        self.runs = max(1, min(max(MIN_RUNS, int(PASS_S * 1e9) // run_ns), MAX_RUNS, room))

    def _first_runs(self) -> tuple[int, int]:
        """Return the shorter of two runs in nanoseconds, at least 1, and the events of one run."""
        inference = self._saving() or self._inference(self.plan["session"])
        with translate_errors():
            latencies = timing.time_each(inference.call, 2)
        with Path(inference.built.session.end_profiling()).open("rb") as file:
            events = sum(1 for _ in file) // 2
        self.effective_when_saved = inference.built.effective
        shapes = {one["name"]: one["shape"] for one in inference.inputs}
        self.rows = sample_count(shapes, self.plan["feeds"]["batch_axes"])
        self.notes += inference.notes
        return max(1, min(latencies)), events

    def run_pass(self) -> None:
        """Build a session, run it with the profiler and then without, and record both."""
        from core.worker.measure.profile_parser import parse_profile

        file, plain_ns = self._profiled_and_plain()
        gc.collect()  # no thread of the session is left after this
        profile = parse_profile(file, skip_runs=1 + WARM_RUNS, typical=True)
        file.unlink(missing_ok=True)
        typical = middle_half(plain_ns)
        self.run_s.append(sum(profile.run_s) / len(profile.run_s))
        self.plain_s.append(sum(plain_ns[index] for index in typical) / len(typical) / 1e9)
        self._add(profile)

    def _profiled_and_plain(self) -> tuple[Path, list[int]]:
        inference = self._inference(self.plan["session"])
        built = inference.built
        self.requested, self.effective = built.requested, built.effective
        self.fallback_reason = built.fallback_reason if built.fallback else ""
        with translate_errors():
            timing.time_each(inference.call, 1 + WARM_RUNS + self.runs)
            file = Path(built.session.end_profiling())
            return file, timing.time_each(inference.call, 1 + self.runs)[1:]

    def _inference(self, session: wire.SessionPlan) -> Inference:
        """Return a session with the profiler on and its inputs in place."""
        if self.allowed is not None:
            os.sched_setaffinity(0, self.allowed)
        pin(self.plan["cpus"])
        prefix = str(self.folder / f"profile-{len(self.run_s)}")
        built = build_session(self.plan["model_path"], session, profile_prefix=prefix)
        return prepare(built, self.plan)

    def _saving(self) -> Inference | None:
        """Return the same session with its optimized graph saved; None if saving fails."""
        try:
            return self._inference(saving_graph(self.plan["session"], str(self.optimized)))
        except TunerError:  # for example, a graph that a provider has compiled cannot be saved
            self.optimized = None
            return None

    # --- totals ---------------------------------------------------------------------------------------------

    def _add(self, profile: Profile) -> None:
        self.ran = self.ran or profile.nodes
        self.parallel |= profile.parallel
        nodes: dict[Key, list[NodeTime]] = defaultdict(list)
        for node in profile.nodes:
            nodes[_key(node)].append(node)
        self.passes.append(nodes)

    def result(self) -> Side:
        """Return the totals of all passes."""
        from core.worker.models.origins import model_nodes

        keys = dict.fromkeys(key for one in self.passes for key in one)
        return Side(
            requested_providers=tuple(self.requested),
            effective_providers=tuple(self.effective),
            fallback=bool(self.fallback_reason),
            fallback_reason=self.fallback_reason,
            batch_size=self.rows,
            parallel=self.parallel,
            runs=self.runs,
            run_s=tuple(self.run_s),
            plain_s=tuple(self.plain_s),
            nodes=tuple(_in_all_passes(key, [one.get(key, []) for one in self.passes]) for key in keys),
            model=model_nodes(self.model),
            origins=self._origins(),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _origins(self) -> tuple[Origin, ...] | None:
        import onnx

        from core.worker.models.origins import origins

        if self.optimized is None or not self.optimized.is_file():
            return None
        if self.effective_when_saved != self.effective:  # saving has changed the provider: another graph
            return None
        optimized = onnx.load(str(self.optimized), load_external_data=False)
        return origins(self.model, optimized, self.ran)


def _key(node: NodeTime) -> Key:
    name = node.op_type if node.op_type in LAYOUT_OR_COPY else node.name
    return node.path, name, node.op_type, node.provider


def _in_all_passes(key: Key, passes: Sequence[list[NodeTime]]) -> RanNode:
    """Return one node, which may be missing in some passes; its counts are those of the last one."""
    path, name, op_type, provider = key
    found = [nodes for nodes in passes if nodes]
    return RanNode(
        path=path,
        name=name,
        op_type=op_type,
        provider=provider,
        inserted=found[0][0].inserted,
        nodes=len(found[-1]),
        calls_per_run=sum(node.calls_per_run for node in found[-1]),
        self_s=tuple(sum((node.self_s for node in nodes), 0.0) for nodes in passes),
    )
