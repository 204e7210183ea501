"""The job `explain`: profile two configurations alternately, and match the nodes of their models.

The sides alternate (A B, B A, A B, …), because a machine drifts; `profiled_pass` makes one pass. Only one
session exists at a time, because the idle threads of another one would spin meanwhile. Where a side names
another runtime, each pass has run in a process of its own before, and its files are read here.
`parse_profile(typical=True)` selects the runs that count.

This is not a measurement: no result here becomes a trial's latency.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core import wire
from core.wire import Progress, limits
from core.wire.errors import HOME_HINT, StoreError
from core.wire.files import written_whole
from core.wire.profile import LAYOUT_OR_COPY, NodeTime, Profile, middle_half
from core.wire.profile_passes import PASSES, VERSION, Origin, Passes, RanNode, Side, turns
from core.worker.measure.profiled_pass import WARM_RUNS, make_pass
from core.worker.session import CPU

if TYPE_CHECKING:
    from onnx import ModelProto

Key = tuple[tuple[str, ...], str, str, str]  # path, name, operator, provider


def explain(plan: wire.ExplainPlan, progress: Progress) -> wire.ExplainReply:
    """Profile both sides alternately, and write the result to `plan["output"]`.

    Args:
        plan: the two configurations, the path of the result, and the passes that were made elsewhere.
        progress: receives the stages "load", "profile" and "match".

    Raises:
        TunerError: a side cannot be built or run, or the result cannot be written.
    """
    if all(one["name"] == CPU for side in plan["sides"] for one in side["session"]["providers"]):
        limits.cap_memory()
    gc.disable()  # this process does nothing else; it collects between passes
    with tempfile.TemporaryDirectory(prefix="ortune-", ignore_cleanup_errors=True) as folder:
        sides = [_Side(side, Path(folder) / str(index)) for index, side in enumerate(plan["sides"])]
        recorded = plan.get("recorded")
        if recorded is None:
            _profile(sides, progress)
        else:
            for side, made in zip(sides, recorded, strict=True):
                side.take(made)
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


def _profile(sides: Sequence[_Side], progress: Progress) -> None:
    for index, side in enumerate(sides):
        progress("load", index, len(sides))
        side.prepare_passes()
    for done, index in enumerate(turns(len(sides))):
        progress("profile", done, PASSES * len(sides))
        sides[index].run_pass()


def named_model(payload: wire.NamedModelPlan) -> wire.NamedModelReply:
    """Do the job `named_model`: write a copy of the model in which all nodes have names, where some lack one.

    Raises:
        ModelError: the model cannot be read.
    """
    notes: list[str] = []
    _, path = _named(Path(payload["model_path"]), Path(payload["folder"]), notes)
    return {"path": str(path), "notes": notes}


def _named(path: Path, folder: Path, notes: list[str]) -> tuple[ModelProto, Path]:
    """Read a model without its weights; if nodes lack names, write a copy in which all have names.

    Names cost nothing at run time, and a node without a name cannot be followed through a fusion.
    """
    from core.worker.models import read_model
    from core.worker.models.graphs import name_nodes, named_copy

    model = read_model(path, any_version=True)  # a session refuses what its runtime cannot load
    return model, named_copy(model, path, folder, notes) if name_nodes(model) else path


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
        self.notes: list[str] = []
        self.model, path = _named(Path(plan["model_path"]), folder, self.notes)
        self.plan: wire.ContestantPlan = {**plan, "model_path": str(path)}
        self.optimized = folder / ".optimized.onnx"
        self.first: wire.PassReply | None = None
        self.last: wire.PassReply | None = None
        self.ran: Sequence[NodeTime] = ()  # in the first pass
        self.parallel = False
        self.passes: list[dict[Key, list[NodeTime]]] = []
        self.run_s: list[float] = []
        self.plain_s: list[float] = []

    # --- running --------------------------------------------------------------------------------------------

    def prepare_passes(self) -> None:
        """Make the first pass."""
        self._add_first(self._make_pass(0))

    def run_pass(self) -> None:
        """Make one counted pass."""
        assert self.first is not None
        self._add(self._make_pass(self.first["runs"]))

    def take(self, recorded: wire.RecordedPasses) -> None:
        """Read the passes that other processes have made."""
        self.optimized = Path(recorded["optimized"])
        self.notes += recorded["notes"]
        self._add_first(recorded["first"])
        for one in recorded["passes"]:
            self._add(one)

    def _make_pass(self, runs: int) -> wire.PassReply:
        reply = make_pass(
            {
                "side": self.plan,
                "folder": str(self.folder),
                "runs": runs,
                "optimized": str(self.optimized),
                "done": 0,
                "total": 0,
            }
        )
        gc.collect()  # no thread of the session is left after this
        return reply

    # --- totals ---------------------------------------------------------------------------------------------

    def _add_first(self, reply: wire.PassReply) -> None:
        self.first = reply
        self.notes += reply["notes"]

    def _add(self, reply: wire.PassReply) -> None:
        from core.worker.measure.profile_parser import parse_profile

        self.last = reply
        file = Path(reply["profile"])
        profile: Profile = parse_profile(file, skip_runs=1 + WARM_RUNS, typical=True)
        with contextlib.suppress(
            OSError
        ):  # of a pass that another worker made: the parent removes its folder
            file.unlink()
        typical = middle_half(reply["plain_ns"])
        self.run_s.append(sum(profile.run_s) / len(profile.run_s))
        self.plain_s.append(sum(reply["plain_ns"][index] for index in typical) / len(typical) / 1e9)
        self.ran = self.ran or profile.nodes
        self.parallel |= profile.parallel
        nodes: dict[Key, list[NodeTime]] = defaultdict(list)
        for node in profile.nodes:
            nodes[_key(node)].append(node)
        self.passes.append(nodes)

    def result(self) -> Side:
        """Return the totals of all passes."""
        from core.worker.models.origins import model_nodes

        first, last = self.first, self.last
        assert first is not None
        assert last is not None
        keys = dict.fromkeys(key for one in self.passes for key in one)
        return Side(
            requested_providers=tuple(last["requested_providers"]),
            effective_providers=tuple(last["effective_providers"]),
            fallback=last["fallback"],
            fallback_reason=last["fallback_reason"] if last["fallback"] else "",
            batch_size=first["batch_size"],
            parallel=self.parallel,
            runs=first["runs"],
            run_s=tuple(self.run_s),
            plain_s=tuple(self.plain_s),
            nodes=tuple(_in_all_passes(key, [one.get(key, []) for one in self.passes]) for key in keys),
            model=model_nodes(self.model),
            origins=self._origins(first, last),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _origins(self, first: wire.PassReply, last: wire.PassReply) -> tuple[Origin, ...] | None:
        import onnx

        from core.worker.models.origins import origins

        if not first["saved"] or not self.optimized.is_file():
            return None
        if first["effective_providers"] != last["effective_providers"]:  # saving has changed the graph
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
