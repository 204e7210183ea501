"""The step `mixed`: float16 except for the few nodes that a tolerance requires in float32. Worker side.

One run of both models with all inner values as outputs estimates each node's contribution to the error: the
relative error of its outputs minus that of its inputs. Nodes are left in float32 by decreasing contribution,
and bisection finds how many are needed. Then parts of the set return to float16 while the tolerance is met.
Every accepted set was run on all inputs, with float16 kernels emulated.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto

from core.wire import FeedPlan, Progress, TransformPlan
from core.wire.errors import ModelError
from core.worker.make.transform.agreement import Outputs, error_between, outputs_of
from core.worker.make.transform.fp16 import TOOL, blocked_nodes, stored_value_checks, to_half
from core.worker.make.transform.fp16_emulation import rounded
from core.worker.make.transform.model_io import load_whole, write_whole
from core.worker.make.transform.step_result import StepResult, option
from core.worker.models.graphs import make_names_unique, nodes_of
from core.worker.session.feeds import Array

_GIVE_BACK_TRIES = 24  # after the bisection; each costs a run
_INNER_BYTES = 2_000_000_000  # of the inner values in one run

Measure = Callable[[Collection[str]], float]


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Write the mixed model; see `step_result`.

    Options: `max_rel` (the largest difference over the largest magnitude of an output, against `source`),
    `keep_io_types` as for fp16.
    """
    source, options = Path(plan["path"]), plan["options"]
    model = load_whole(source, typed=True)
    make_names_unique(model)
    tolerance = float(option(options, "max_rel", 1e-3))
    keep = option(options, "keep_io_types", True)
    with tempfile.TemporaryDirectory(prefix="mixed-", dir=draft.parent) as folder:
        trial = _Trial(
            model=model,
            file=Path(folder) / "trial.onnx",
            feeds=plan["feeds"],
            keep_io_types=keep,
            source=source,
        )
        found = search(_candidates(model), trial.error, trial.parts, tolerance=tolerance, progress=progress)
    half = to_half(model, keep_io_types=keep, block_nodes=found.blocked)
    write_whole(half, draft)
    return StepResult(
        tool=TOOL,
        notes=[*stored_value_checks(model, half), *_about_nodes(found)],
        facts={
            "blocked": sorted(found.blocked),
            "blocked_by_converter": blocked_nodes(model),
            "candidates": found.candidates,
            "error": _plain(found.error),
            "error_all_float16": _plain(found.error_of_none),
            "tolerance": tolerance,
            "tries": found.tries,
        },
    )


def _about_nodes(found: SearchResult) -> list[str]:
    if len(found.blocked) < found.candidates:
        return []
    return ["no node could be in float16 within the tolerance: the copy computes in float32"]


def _plain(error: float) -> float | None:
    """Replace infinity, which JSON lacks."""
    return error if math.isfinite(error) else None


def _candidates(model: ModelProto) -> list[str]:
    left = set(blocked_nodes(model))
    return [node.name for node in nodes_of(model) if node.name not in left and node.op_type != "Constant"]


# --- search -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The nodes to leave in float32, and statistics of the search."""

    blocked: set[str]
    error: float  # with those nodes; inf: not comparable
    error_of_none: float  # with everything in float16
    candidates: int
    tries: int


def search(
    candidates: Sequence[str],
    measure: Measure,
    parts: Callable[[], Mapping[str, float]],
    *,
    tolerance: float,
    progress: Progress,
) -> SearchResult:
    """Find a small set of nodes that, left in float32, keeps the error within `tolerance`.

    Args:
        candidates: names of the nodes that can be converted to float16.
        measure: the error with a set of nodes in float32.
        parts: each node's contribution to the error; called only if float16 alone exceeds the tolerance.
        tolerance: largest error of `measure` that is accepted.
        progress: receives each try.

    Raises:
        ModelError: the error exceeds the tolerance even with all of them in float32.
    """
    log: list[float] = []
    expected = 2 + max(1, len(candidates)).bit_length() + _GIVE_BACK_TRIES

    def error_with(blocked: Collection[str]) -> float:
        log.append(measure(blocked))
        progress("search", min(len(log), expected), expected, f"{len(blocked)} nodes in float32")
        return log[-1]

    error = error_of_none = error_with(())
    blocked: list[str] = []
    if error_of_none > tolerance:
        part = parts()
        order = sorted(candidates, key=lambda name: -part.get(name, 0.0))
        error = error_with(order)
        if error > tolerance:
            raise _out_of_reach(error, tolerance)
        count, error = _bisect(order, error_with, tolerance, error)
        blocked, error = _return_to_float16(order[:count], error_with, tolerance, error)
    return SearchResult(
        blocked=set(blocked),
        error=error,
        error_of_none=error_of_none,
        candidates=len(candidates),
        tries=len(log),
    )


def _out_of_reach(error: float, tolerance: float) -> ModelError:
    reached = f"{error:.2g}" if math.isfinite(error) else "not a number"
    return ModelError(
        f"Even with every operator in float32 the error is {reached}, above the tolerance of {tolerance:g}: "
        "rounding inputs and outputs to float16 costs that much.",
        hint="Raise the tolerance, or keep the types of inputs and outputs.",
    )


def _bisect(
    order: Sequence[str], error_with: Measure, tolerance: float, error_of_all: float
) -> tuple[int, float]:
    """Bisect how many leading nodes of `order` to block; the returned set was run and meets the tolerance."""
    fails, holds, error = 0, len(order), error_of_all
    while holds - fails > 1:
        middle = (fails + holds) // 2
        tried = error_with(order[:middle])
        if tried <= tolerance:
            holds, error = middle, tried
        else:
            fails = middle
    return holds, error


def _return_to_float16(
    blocked: list[str], error_with: Measure, tolerance: float, error: float
) -> tuple[list[str], float]:
    """Return parts to float16 while the tolerance is met, large parts first, the least harmful first."""
    tries, size = 0, len(blocked) // 2
    while size >= 1 and tries < _GIVE_BACK_TRIES:
        end = len(blocked)
        while end > 0 and len(blocked) > 1 and tries < _GIVE_BACK_TRIES:
            start = max(0, end - size)
            rest = blocked[:start] + blocked[end:]
            tries += 1
            tried = error_with(rest)
            if tried <= tolerance:
                blocked, error = rest, tried
            end = start
        size //= 2
    return blocked, error


# --- error of a set -----------------------------------------------------------------------------------------


class _Trial:
    """Emulates sets of blocked nodes one after another, and runs them on the inputs."""

    def __init__(
        self,
        *,
        model: ModelProto,
        file: Path,
        feeds: Sequence[FeedPlan],
        keep_io_types: bool | list[str],
        source: Path,
    ) -> None:
        self._model, self._file, self._feeds, self._keep = model, file, feeds, keep_io_types
        self._reference = outputs_of(source, feeds, "the model")

    def error(self, blocked: Collection[str]) -> float:
        """Return the largest relative error on all inputs; inf if outputs cannot be compared."""
        self._write(self._rounded(blocked))
        error = error_between(self._reference, outputs_of(self._file, self._feeds, "the emulated model"))
        return math.inf if error["max_rel"] is None else error["max_rel"]

    def parts(self) -> dict[str, float]:
        """Return each node's contribution to the error of the float16 copy, on the first inputs."""
        half = self._rounded(())
        errors: dict[str, float] = {}
        for some in _in_portions(_inner_values(self._model), self._model):
            exact = self._run(_with_outputs(self._model, some))
            lossy = self._run(_with_outputs(half, some))
            for name in some:
                errors[name] = _relative(exact[0].get(name), lossy[0].get(name))
        return {
            node.name: _growth(
                max((errors.get(one, 0.0) for one in node.output), default=0.0),
                max((errors.get(one, 0.0) for one in node.input), default=0.0),
            )
            for node in self._model.graph.node
        }

    def _rounded(self, blocked: Collection[str]) -> ModelProto:
        return rounded(self._model, blocked_nodes(self._model, nodes=blocked), self._keep)

    def _run(self, model: ModelProto) -> Outputs:
        self._write(model)
        return outputs_of(self._file, self._feeds[:1], "the model with its inner values shown")

    def _write(self, model: ModelProto) -> None:
        for left in self._file.parent.iterdir():
            left.unlink()
        write_whole(model, self._file)


def _growth(made: float, read: float) -> float:
    """Return the error that a node adds; making infinities of finite values counts most."""
    if math.isinf(made):
        return 0.0 if math.isinf(read) else math.inf
    return max(0.0, made - read)


def _relative(exact: Array | None, rounded: Array | None) -> float:
    """Return the relative L2 error of one value; inf if only one side is finite."""
    if exact is None or rounded is None or exact.shape != rounded.shape:
        return 0.0
    left, right = exact.astype(np.float64), rounded.astype(np.float64)
    finite = np.isfinite(left)
    if not np.isfinite(right[finite]).all():
        return math.inf
    size = float(np.linalg.norm(left[finite]))
    return float(np.linalg.norm(left[finite] - right[finite])) / size if size else 0.0


def _inner_values(model: ModelProto) -> list[str]:
    """Return the float32 values of main-graph nodes; bodies of If, Loop and Scan are excluded."""
    known = _values(model)
    made = (name for node in model.graph.node for name in node.output if name in known)
    return [name for name in made if known[name].type.tensor_type.elem_type == TensorProto.FLOAT]


def _values(model: ModelProto) -> dict[str, ValueInfoProto]:
    return {one.name: one for one in (*model.graph.value_info, *model.graph.output)}


def _in_portions(names: Sequence[str], model: ModelProto) -> list[list[str]]:
    """Split so that the values of one run fit in memory; free dimensions count as 64."""
    sizes = {name: _bytes(one.type.tensor_type.shape.dim) for name, one in _values(model).items()}
    portions: list[list[str]] = [[]]
    room = _INNER_BYTES
    for name in names:
        size = sizes.get(name, 0)
        if size > room and portions[-1]:
            portions.append([])
            room = _INNER_BYTES
        portions[-1].append(name)
        room -= size
    return portions


def _bytes(dims: Any) -> int:
    return 4 * math.prod((dim.dim_value if dim.HasField("dim_value") else 64) for dim in dims)


def _with_outputs(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return a copy whose outputs are the values `names`, each in its own type."""
    copy = ModelProto()
    copy.CopyFrom(model)
    known = _values(model)
    made = {name for node in copy.graph.node for name in node.output}
    del copy.graph.output[:]
    for name in names:
        if name in made and name in known:
            copy.graph.output.add().CopyFrom(known[name])
    return copy
