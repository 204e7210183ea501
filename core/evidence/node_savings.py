"""Per quantized operator: added error and saved time, and which to keep in float.

`savings` joins the errors of the job `node_errors` with the times of the job `explain`. `choices` computes
the trade-off curve of saved time and error; every point is a list of operators to keep in float. Pure; used
by the parent only. Times are seconds per run, errors are relative (L2) errors of the model's outputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from core import wire
from core.evidence.node_matching import Group, TimedNode, TimedSide, group
from core.evidence.profile_difference import profiler_cost_s
from core.wire.profile_passes import Key, Passes

# Suffixes that ONNX Runtime's quantization tools append to the name of an operator replaced by several nodes.
_SUFFIX = re.compile(r"(_MatMul|_Add)?(_quant|_Q\d+|_DQ_Q\d+|_matmul_Q\d+)?(_.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A quantized operator; or several that ONNX Runtime runs as one, without separate times."""

    nodes: tuple[str, ...]  # names in the float model
    op_type: str  # "Conv"; of several operators "MatMul + Add"
    error: float  # of the outputs when only this is quantized; of several: root of the sum of squares
    accumulated: float | None  # largest error of its own output in the whole variant; None: not found
    weight_bytes: int  # in the float model
    saved_s: float | None  # negative where the integer version is slower; None: not timed
    half_width_s: float | None  # half the 95 % interval of `saved_s`; None: not known

    @property
    def name(self) -> str:
        """Display name."""
        return " + ".join(self.nodes)

    @property
    def saved_per_error(self) -> float | None:
        """Seconds saved per unit of error. None: not timed."""
        if self.saved_s is None:
            return None
        return self.saved_s / self.error if self.error > 0 else math.copysign(math.inf, self.saved_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """All quantized operators of a variant."""

    units: tuple[Unit, ...]  # quantized operators, largest error first
    whole: float  # relative L2 error of the whole variant's outputs, as measured
    timed: bool
    elsewhere_s: float  # saved by all other nodes; negative: conversions cost that much
    float_s: float | None  # a typical run of the float model, without the profiler; None: not timed
    quantized_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One point of the curve: keep `blocked` in float, quantize the rest."""

    blocked: tuple[str, ...]
    error: float  # expected error of the variant, see `choices`
    saved_s: float | None  # expected saving of the quantized operators, per run; None: not timed


def savings(errors: wire.NodeErrorsReply, passes: Passes | None) -> Savings:
    """Join errors and times of the quantized operators.

    Executed nodes are traced back to the operators of the float model, through ONNX Runtime's fusions and the
    names that its quantization tools assign.

    Args:
        errors: reply of the job `node_errors`.
        passes: passes of float model (baseline) and variant (candidate) from `explain`; None: not timed yet.
    """
    if passes is None:
        units = [_unit([one], None) for one in errors["nodes"]]
        return Savings(
            units=_by_error(units),
            whole=errors["whole"],
            timed=False,
            elsewhere_s=0.0,
            float_s=None,
            quantized_s=None,
        )
    before, after = _sides(passes)
    lost_s = _drop_untraced(before) - _drop_untraced(after)
    _rename(after, {key[-1] for key in before.model})
    by_name = {one["name"]: one for one in errors["nodes"]}
    units, elsewhere_s = [], lost_s
    for one in group(before, after):
        members = [by_name.pop(name) for name in one.model if name in by_name]
        if members:
            units.append(_unit(members, one))
        else:
            elsewhere_s -= one.difference_s
    units += [_unit([one], None) for one in by_name.values()]  # never ran, or could not be traced
    return Savings(
        units=_by_error(units),
        whole=errors["whole"],
        timed=True,
        elsewhere_s=elsewhere_s,
        float_s=before.plain_s,
        quantized_s=after.plain_s,
    )


def choices(found: Savings) -> list[Choice]:
    """Return the curve from all operators quantized to none; each step keeps one more operator in float.

    Each step takes the operator with the least saved time per unit of error. Without times, or where no
    saving is significant, it takes the one with the largest error. The errors of the operators are assumed to
    be independent, so they add up as the root of the sum of squares; a common factor scales the total to the
    measured error of the whole variant. This is an estimate: a variant made from a choice is measured again.
    """
    order = sorted(found.units, key=_sort_key)
    return [_choice(found, order[:count], order[count:]) for count in range(len(order) + 1)]


def _choice(found: Savings, blocked: Sequence[Unit], kept: Sequence[Unit]) -> Choice:
    return Choice(
        blocked=tuple(name for unit in blocked for name in unit.nodes),
        error=expected_error(found, kept),
        saved_s=math.fsum(unit.saved_s or 0.0 for unit in kept) if found.timed else None,
    )


def keep_float(found: Savings, blocked: Collection[str]) -> Choice:
    """Return the expected result if the operators in `blocked`, and those fused with them, stay in float."""
    out = [unit for unit in found.units if set(unit.nodes) & set(blocked)]
    return _choice(found, out, [unit for unit in found.units if unit not in out])


def expected_error(found: Savings, kept: Sequence[Unit]) -> float:
    """Return the expected error of a variant that quantizes only `kept`; see `choices`."""
    if len(kept) == len(found.units):
        return found.whole
    everything = math.hypot(*(unit.error for unit in found.units))
    return found.whole * math.hypot(*(unit.error for unit in kept)) / everything if everything else 0.0


def halving_choice(curve: Sequence[Choice]) -> int:
    """Return the index of the first choice that at least halves the error, as the initial selection.

    If only the float model does, return the choice before it, so that some operator stays quantized.
    """
    last = max(0, len(curve) - 2)
    return next((at for at, one in enumerate(curve[:last]) if 2 * one.error <= curve[0].error), last)


def _sort_key(unit: Unit) -> tuple[float, float]:
    told = unit.saved_s is not None and abs(unit.saved_s) > (unit.half_width_s or 0.0)
    worth = unit.saved_per_error if told else None
    return (0.0 if worth is None else worth), -unit.error


def _by_error(units: Sequence[Unit]) -> tuple[Unit, ...]:
    return tuple(sorted(units, key=lambda unit: (-unit.error, unit.nodes)))


def _unit(members: Sequence[wire.NodeError], ran: Group | None) -> Unit:
    seen = [one["accumulated"] for one in members if one["accumulated"] is not None]
    return Unit(
        nodes=tuple(one["name"] for one in members),
        op_type=" + ".join(dict.fromkeys(one["op_type"] for one in members)),
        error=math.hypot(*(one["alone"] for one in members)),
        accumulated=max(seen, default=None),
        weight_bytes=sum(one["weight_bytes"] for one in members),
        saved_s=None if ran is None else -ran.difference_s,
        half_width_s=None if ran is None else ran.half_width_s,
    )


# --- from executed nodes to operators of the float model ----------------------------------------------------


def _sides(passes: Passes) -> tuple[TimedSide, TimedSide]:
    cost_s = profiler_cost_s(passes)
    before, after = (TimedSide(side, instrument_s=cost_s, rows=1) for side in passes.sides)
    return before, after


def _drop_untraced(timed: TimedSide) -> float:
    """Remove nodes that cannot be traced to operators of the float model; return their seconds per run."""
    lost = [node for node in timed.nodes if not node.inserted and not node.work_of]
    timed.nodes = [node for node in timed.nodes if node.inserted or node.work_of]
    return math.fsum(node.self_s for node in lost)


def _rename(timed: TimedSide, own: Collection[str]) -> None:
    """Map the nodes of a variant to the operators of the float model that they were made from."""
    renamed = {key: (*key[:-1], original_operator(key[-1], own)) for key in timed.model}
    timed.nodes = [_renamed(node, renamed) for node in timed.nodes]
    timed.model = {renamed[key]: op_type for key, op_type in timed.model.items()}


def _renamed(node: TimedNode, names: Mapping[Key, Key]) -> TimedNode:
    return replace(node, work_of=tuple(dict.fromkeys(names.get(key, key) for key in node.work_of)))


def original_operator(name: str, own: Collection[str]) -> str:
    """Return the operator of the float model that a node of the variant was made from; `name` if of none.

    Args:
        name: name of the node in the variant, for example `fc1_quant_scales_mul`.
        own: names of the float model's nodes.
    """
    if name in own:
        return name
    for end in range(len(name) - 1, 0, -1):  # the longest match
        if name[end] == "_" and name[:end] in own and _is_made_by_quantizing(name[end:]):
            return name[:end]
    return name


def _is_made_by_quantizing(suffix: str) -> bool:
    found = _SUFFIX.fullmatch(suffix)
    return found is not None and bool(found[1] or found[2])
