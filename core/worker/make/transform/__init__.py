"""The job `transform`: run one step of a chain, from a model file to a checked one. Worker side.

Each step is a module with a function `apply` of the same signature (`step_result`). This module does what
all steps share: it writes a draft in a folder next to the target, checks that the draft is valid, compares
it with its source and with the chain's original model, and only then moves it. After a failure no file
remains.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import time
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnxruntime as ort
from onnx import TensorProto

from core.wire import ModelInfo, OutputError, Progress, StepCheck, TransformPlan, TransformReply
from core.wire.errors import ModelError, SpecError, nearest
from core.wire.output_check import check_outputs, random_operators
from core.worker.make.transform.agreement import Outputs, all_zero, error_between, fit_sizes, outputs_of
from core.worker.make.transform.step_result import Step, StepResult
from core.worker.models import inspect_model
from core.worker.models.checking import (
    checker_error,
    crashes_by_default,
    draft_folder,
    move_into_place,
    open_checked,
)
from core.worker.session import set_operator_libraries

_MODULES = {  # step -> module of this package
    "simplify": "simplify",
    "fix_dims": "dimensions",
    "fp16": "fp16",
    "mixed": "mixed",
    "int8_dynamic": "quantization",
    "int8_static": "quantization",
    "int4": "quantization",
    "fuse": "fusion",
    "optimize": "optimized_graph",
    "ort_format": "optimized_graph",
    "metadata": "metadata",
}
# Steps that must not change the outputs. Their tolerance is that of any configuration (`output_check`):
# it accepts other summation orders, folded constants and fused kernels, but no wrong rewrite.
_EXACT = ("simplify", "fix_dims", "fuse", "optimize", "ort_format", "metadata")
_REPORTED_ABOVE = 1e-4  # for reduced precision: larger differences are reported even within the tolerance
_INTEGER_SIGNS = ("Integer", "uantizeLinear", "QLinear", "QGemm", "NBits")  # parts of operator names
_STAGES = 4
_PREFIX = ".transform-"
_OWN_DOMAIN = "com.microsoft."
_CRASH_NOTE = (
    "ONNX Runtime crashes when it loads this copy on the CPU with its default optimizations: "
    "disable the optimizer `NchwcTransformer`, or set `graph_optimization_level` to ORT_ENABLE_EXTENDED"
)


def transform(plan: TransformPlan, progress: Progress) -> TransformReply:
    """Run one step, check its result, and move it to the plan's target.

    Raises:
        SpecError: there is no such step, an option does not fit the model, the target's name is wrong, or
            a library is not allowed.
        ModelError: the model cannot be read, transformed, written or loaded, or a step that must not
            change the outputs has changed them.
    """
    started = time.perf_counter()
    source, target = Path(plan["path"]), Path(plan["output"])
    apply = _step(plan["step"])
    _check_target(plan["step"], target)
    progress("read", 0, _STAGES, source.name)
    before = inspect_model(str(source))
    libraries = set_operator_libraries(plan.get("custom_op_libraries", []))
    number = _first_usable_feeds(source, plan)
    plan = {**plan, "feeds": [plan["feeds"], *plan.get("other_feeds", [])][number]}
    with draft_folder(target, _PREFIX) as folder:
        draft = folder / target.name
        progress("transform", 1, _STAGES, plan["step"])
        applied = apply(plan, draft, progress)
        progress("check", 2, _STAGES)
        _keep_metadata(draft, before)
        notes = _check_valid(source, draft)
        info = inspect_model(str(draft))
        progress("compare", 3, _STAGES, f"{len(plan['feeds'])} inputs")
        agreement = _compare_outputs(plan, draft, applied)
        move_into_place(draft, target, [*(one["location"] for one in info["external_data"]), *applied.files])
    progress("write", _STAGES, _STAGES, target.name)
    return {
        "path": str(target),
        "sha256": info["sha256"],
        "size_bytes": info["size_bytes"],
        "size_before_bytes": before["size_bytes"],
        "nodes_before": before["nodes"],
        "nodes_after": info["nodes"],
        "tool": applied.tool,
        "tool_version": _version(applied.tool),
        "seconds": time.perf_counter() - started,
        "error": agreement.error,
        "error_seeds": len(plan["feeds"]),
        "checks": [*applied.checks, *agreement.checks],
        "notes": [*applied.notes, *notes, *agreement.notes, *_own_operators(before, info)],
        "hardware_bound": applied.hardware_bound,
        "facts": applied.facts,
        "files": applied.files,
        "calibrated": applied.calibrated,
        "feeds_number": number,
        "libraries": libraries,
    }


def _first_usable_feeds(source: Path, plan: TransformPlan) -> int:
    """Return the index of the first inputs that the model can run on; 0 if there are none."""
    others = plan.get("other_feeds", [])
    for number, feeds in enumerate([plan["feeds"], *others] if others else []):
        with contextlib.suppress(ModelError, SpecError):
            outputs_of(source, feeds, "the model")
            return number
    return 0


def _step(kind: str) -> Step:
    if kind not in _MODULES:
        raise SpecError(
            f"There is no step `{kind[:80]}`.{nearest(kind, _MODULES)}",
            hint=f"Choose among {', '.join(_MODULES)}.",
        )
    apply: Step = importlib.import_module(f"{__name__}.{_MODULES[kind]}").apply
    return apply


def _check_target(kind: str, target: Path) -> None:
    suffix = ".ort" if kind == "ort_format" else ".onnx"
    if target.suffix.lower() != suffix:
        raise SpecError(
            f"The step `{kind}` writes a `{suffix}` file, but the output is `{target.name}`.",
            hint=f"End the output's name in `{suffix}`.",
        )


def _version(tool: str) -> str:
    """Return the version of the package whose name `tool` begins with."""
    if tool.startswith("onnxruntime"):  # its distribution may be called onnxruntime-gpu
        return str(ort.__version__)
    return importlib.metadata.version(tool.partition(".")[0])


# --- validity -----------------------------------------------------------------------------------------------


def _keep_metadata(draft: Path, before: ModelInfo) -> None:
    """Restore metadata that a tool dropped: every variant must record the source of its weights."""
    if draft.suffix.lower() == ".ort":
        return  # ONNX Runtime keeps it
    model = onnx.load_model(str(draft), load_external_data=False)
    have = {one.key: one.value for one in model.metadata_props}
    if before["metadata"].keys() <= have.keys():
        return
    onnx.helper.set_model_props(model, before["metadata"] | have)
    onnx.save_model(model, str(draft))


def _check_valid(source: Path, draft: Path) -> list[str]:
    """Check that the draft loads; run ONNX's checker if it accepted the source.

    The draft is loaded without layout optimizations, in which ONNX Runtime 1.31 can crash on float16 (a
    Transpose before a MatMul, as in ViT). A separate test checks whether the defaults crash, for a note.
    """
    is_onnx = draft.suffix.lower() == ".onnx"
    use_checker = is_onnx and not checker_error(source)
    open_checked(draft, "the transformed model", use_checker=use_checker, level="ORT_ENABLE_EXTENDED")
    return [_CRASH_NOTE] if crashes_by_default(draft) else []


def _own_operators(before: ModelInfo, after: ModelInfo) -> list[str]:
    """Report operators of the new file that other runtimes do not know."""
    own = sorted(
        name.removeprefix(_OWN_DOMAIN)
        for name in after["op_counts"]
        if name.startswith(_OWN_DOMAIN) and name not in before["op_counts"]
    )
    return [f"uses operators that only ONNX Runtime has: {', '.join(own)}"] if own else []


# --- output comparison --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputComparison:
    """Result of the comparison of outputs."""

    error: OutputError  # against the original of the chain
    checks: list[StepCheck]
    notes: list[str]


def _compare_outputs(plan: TransformPlan, draft: Path, applied: StepResult) -> _OutputComparison:
    """Compare the draft with the original; for exact steps also with its own source."""
    feeds = fit_sizes(plan["feeds"], draft)
    reference = outputs_of(Path(plan["reference"]), feeds, "the original model")
    got = outputs_of(draft, feeds, "the transformed model")
    error = error_between(reference, got)
    found = _OutputComparison(error=error, checks=_incomparable_outputs(error), notes=_zeros(reference))
    if plan["step"] not in _EXACT:
        return found
    source = Path(plan["path"])
    own = error
    if plan["reference"] != plan["path"]:
        own = error_between(outputs_of(source, feeds, "the model before this step"), got)
    return replace(found, checks=[*found.checks, *_check_exact_step(plan["step"], source, own)])


def _check_exact_step(step: str, source: Path, own: OutputError) -> list[StepCheck]:
    """Check an exact step against the tolerance of the model's precision; report differences from rounding.

    Integer kernels replace their float emulation when a graph is optimized, and then round at other places.
    Such differences are reported and never refused.

    Args:
        step: its kind.
        source: the input model of the step.
        own: the error against the outputs of `source`.

    Raises:
        ModelError: the step has changed the model's outputs.
    """
    info = inspect_model(str(source))
    precision = _precision(source, info)
    judged = check_outputs(own, precision, random=random_operators(info))
    if judged.breach is None:
        text = f"ORTune cannot determine whether this step changed the model's outputs: {judged.why}."
        return [{"name": "not_judged", "level": "warning", "text": text, "remedy": {}}]
    largest = own["max_rel"]
    integers = precision in ("int8", "int4")
    if judged.breach and (largest is None or not integers or step == "simplify"):
        raise ModelError(
            f"The step `{step}` changed what the model computes: {judged.why.rstrip('.')}.",
            hint="Leave this step out of the chain.",
        )
    if precision == "fp32" or largest is None or largest <= _REPORTED_ABOVE:
        return []
    text = (
        f"Outputs differ by {largest:.2g} from those before this step, because the model computes in "
        f"{'integers' if integers else 'float16'} and other kernels round elsewhere."
    )
    return [{"name": "rounding", "level": "warning" if judged.breach else "info", "text": text, "remedy": {}}]


def _precision(source: Path, info: ModelInfo) -> str:
    """Return the precision in which a model computes, a key of the tolerances in `output_check`."""
    if any(sign in name for name in info["op_counts"] for sign in _INTEGER_SIGNS):
        return "int4" if any("NBits" in name for name in info["op_counts"]) else "int8"
    model = onnx.load_model(str(source), load_external_data=False)
    values = (*model.graph.input, *model.graph.output)
    kinds = {one.data_type for one in model.graph.initializer}
    kinds |= {one.type.tensor_type.elem_type for one in values}
    if TensorProto.BFLOAT16 in kinds:
        return "bf16"
    return "fp16" if TensorProto.FLOAT16 in kinds else "fp32"


def _incomparable_outputs(error: OutputError) -> list[StepCheck]:
    """Report outputs that cannot be compared with the original's: infinities or other shapes."""
    if not error["difference"]:
        return []
    return [{"name": "outputs_differ", "level": "warning", "text": error["difference"], "remedy": {}}]


def _zeros(reference: Outputs) -> list[str]:
    return (
        ["all outputs are zero on these inputs, so their agreement proves nothing"]
        if all_zero(reference)
        else []
    )
