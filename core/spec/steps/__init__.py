"""The steps that create a variant of a model: options, chains, and the rules for their order.

Command-line flags, widgets, validation and help text are built from `STEPS`; a step or an option that is not
in this table does not exist in ORTune. A step is one change of a model file with all its options, a chain is
steps in order. Everything here is data and pure functions; the changes themselves are made by a worker.
Names and defaults of options are those of the tools that apply them (onnxslim, ONNX Runtime's float16
converter, quantizers and transformer optimizer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.spec.steps.table import PORTABLE_LEVELS, STEPS, Precision, StepType, step_type
from core.wire import ModelInfo, StepKind
from core.wire.errors import SpecError, nearest

__all__ = [
    "QUANTIZED_OPERATORS",
    "STEPS",
    "Precision",
    "Step",
    "StepType",
    "chain_text",
    "check_chain",
    "check_libraries",
    "is_bound",
    "precision_of",
    "step_from_dict",
    "step_type",
]

# --- a step, and a chain of them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class Step:
    """One step with all its options; those that are not given have the table's default.

    Raises `SpecError` for an unknown kind, an unknown option, or a value that the option does not accept.
    """

    kind: StepKind
    options: Mapping[str, Any]

    def __init__(self, kind: str, options: Mapping[str, Any] | None = None) -> None:
        known = step_type(kind)
        given = dict(options or {})
        for name in given:
            known.option(name)  # refuses unknown options
        values = {one.name: given.get(one.name, one.default) for one in known.options}
        object.__setattr__(self, "kind", known.kind)
        object.__setattr__(self, "options", _checked(known, values))

    @property
    def type(self) -> StepType:
        """Its row of the table."""
        return step_type(self.kind)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, with every option."""
        return {"kind": self.kind, "options": dict(self.options)}

    def changed(self) -> dict[str, Any]:
        """The options that differ from the default, in the table's order."""
        defaults = {one.name: one.default for one in self.type.options}
        return {name: value for name, value in self.options.items() if value != defaults[name]}


def _checked(known: StepType, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {one.name: one.checked(values[one.name]) for one in known.options}
    except SpecError as error:
        raise SpecError(f"{known.title}: {error.message}", hint=error.hint) from None


def step_from_dict(data: Mapping[str, Any]) -> Step:
    """Return the step that `Step.to_dict` wrote; options that a later version added have their default.

    Raises:
        SpecError: no step is described by `data`.
    """
    strangers = set(data) - {"kind", "options"}
    if strangers or not isinstance(data.get("kind"), str) or not isinstance(data.get("options", {}), Mapping):
        raise SpecError(
            f"A step must have a kind and options, but got `{str(dict(data))[:80]}`.",
            hint="Write for example `kind: fp16` with `options: {keep_io_types: true}`.",
        )
    return Step(data["kind"], data.get("options", {}))


def chain_text(steps: Sequence[Step]) -> str:
    """Return the chain in words: "simplify → INT8 static"."""
    return " → ".join(_mid_sentence(one.type.title) for one in steps)


def _mid_sentence(title: str) -> str:
    return title if title[:2].isupper() else title[0].lower() + title[1:]


def precision_of(steps: Sequence[Step]) -> Precision:
    """Return the precision of a float32 model after `steps`."""
    found = [precision for one in steps if (precision := one.type.precision) is not None]
    return found[-1] if found else "fp32"


# --- the order of steps -------------------------------------------------------------------------------------

# operators that only quantized graphs have, ONNX's own and ONNX Runtime's
QUANTIZED_OPERATORS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "ConvInteger",
        "QLinearConv",
        "QLinearMatMul",
        "QAttention",
        "QGemm",
        "MatMulNBits",
        "GatherBlockQuantized",
    }
)


def check_chain(
    steps: Sequence[Step], info: ModelInfo, *, done: Sequence[Step] = (), libraries: Sequence[str] = ()
) -> None:
    """Refuse a chain that cannot work on a model, before a worker spends time on it.

    Args:
        steps: to apply, in order.
        info: what `inspect` found in the model that the first of `steps` changes.
        done: steps that made that model from its original; empty: it is an original.
        libraries: with custom operators of the model.

    Raises:
        SpecError: no step, a step that cannot follow those before it or takes no libraries, or a dimension
            that is not free.
    """
    if not steps:
        raise SpecError("The chain of steps is empty.", hint="Add at least one step.")
    so_far = list(done)
    free = set(info["free_dims"])
    for step in steps:
        _check_empty(step)
        check_libraries(step, libraries)
        _check_end(step, so_far, info)
        _check_precision(step, so_far, info)
        if step.kind == "fix_dims":
            _check_dims(step, free, info["batch_dim"])
            free -= set(step.options["dims"])
        so_far.append(step)


def _check_empty(step: Step) -> None:
    if step.kind == "fix_dims" and not step.options["dims"]:
        raise SpecError("Fix dimensions: no size is given.", hint="Give at least one, for example `batch=1`.")
    if step.kind == "metadata" and not any(step.options.values()):
        raise SpecError("Metadata: there is nothing to write.", hint="Give an author, a version or notes.")


def check_libraries(step: Step, libraries: Sequence[str]) -> None:
    """Refuse a step whose tools cannot load custom operator libraries.

    Raises:
        SpecError: libraries are named, and the tools of the step cannot load them.
    """
    if libraries and step.type.no_libraries:
        raise SpecError(
            f"{step.type.title} cannot be used with custom operator libraries: {step.type.no_libraries}.",
            hint="Choose another step for this model.",
        )


def _check_end(step: Step, before: Sequence[Step], info: ModelInfo) -> None:
    """Refuse steps after a format that no tool reads, and most steps after a hardware-specific graph."""
    title = step.type.title
    if any(one.kind == "ort_format" for one in before) or info["path"].lower().endswith(".ort"):
        raise SpecError(
            f"{title} cannot follow the ORT format: no tool changes an .ort file.",
            hint="Make the ORT format the last step.",
        )
    bound = next((one for one in before if is_bound(one)), None)
    if bound is not None and step.kind not in ("metadata", "ort_format"):
        raise SpecError(
            f"{title} cannot follow a graph that was optimized at {bound.options['level']}: its operators "
            "fit this kind of processor only.",
            hint="Put Optimized graph last, or lower its level to ORT_ENABLE_EXTENDED.",
        )


def is_bound(step: Step) -> bool:
    """Whether the file that `step` writes fits only the kind of processor that it was made on."""
    return "level" in step.options and step.options["level"] not in PORTABLE_LEVELS


def _check_precision(step: Step, before: Sequence[Step], info: ModelInfo) -> None:
    """Refuse converters and quantizers after another precision, and fusions of a quantized graph."""
    title = step.type.title
    earlier = next((one.type.title for one in before if one.type.precision is not None), "")
    shown = not QUANTIZED_OPERATORS.isdisjoint(info["op_counts"])
    quantized = shown or precision_of(before) in ("int8", "int4")
    if not earlier and quantized:
        earlier = "a model that is quantized already"
    if step.kind in ("fuse", "simplify") and quantized:
        raise SpecError(
            f"{title} cannot follow {earlier}: it knows the patterns of float graphs only.",
            hint=f"Put {title} before the quantization.",
        )
    if step.type.precision is not None and earlier:
        raise SpecError(
            f"{title} cannot follow {earlier}: it starts from a model in float32.",
            hint="Choose one of them, or start from the original model.",
        )


def _check_dims(step: Step, free: set[str], batch: str | None) -> None:
    for name, size in step.options["dims"].items():
        if name not in free:
            listed = sorted(free)
            raise SpecError(
                f"Fix dimensions: the model has no free dimension `{name}`.{nearest(name, listed)}",
                hint=f"Use one of {', '.join(listed)}." if listed else "Remove it; all sizes are fixed.",
            )
        if size == 0 and name == batch:
            raise SpecError(
                f"Fix dimensions: the batch `{name}` must be 1 or more, but got 0.",
                hint="Use a batch of at least 1; other dimensions may be 0.",
            )
