"""Save graphs optimized by ONNX Runtime: the steps `optimize` (an `.onnx`) and `ort_format` (an `.ort`).

Up to ORT_ENABLE_EXTENDED a saved graph runs on any machine with this ONNX Runtime; higher levels arrange
weights and values for the processor that saved them. A graph optimized for the CPU is tied to it: operators
are fused for that provider. Worker side.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.wire import Progress, TransformPlan
from core.wire.errors import ModelError
from core.worker.machine.environment import cpu_model, instructions, read_text
from core.worker.make.transform.model_io import TOOL_ERRORS
from core.worker.make.transform.step_result import StepResult, option
from core.worker.models import inspect_model
from core.worker.models.checking import ONE_FILE_BYTES
from core.worker.session.job_session import job_session, weights_beside

PORTABLE = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")
_FORMAT = "session.save_model_format"
_UNKNOWN: tuple[type[Exception], ...] = (*TOOL_ERRORS, OSError)
_ORT_LARGEST_BYTES = 2**31 - 1  # a flatbuffer's offsets


def apply(plan: TransformPlan, draft: Path, progress: Progress) -> StepResult:
    """Save the optimized graph; see `step_result`.

    Options: `level`, by ONNX Runtime's name; of `ort_format` also `type_reduction` (the list of operators
    names the types that each needs).
    """
    source, options = Path(plan["path"]), plan["options"]
    level = option(options, "level", "ORT_ENABLE_EXTENDED")
    if plan["step"] == "optimize":
        save_optimized(source, draft, level=level)
        return StepResult(tool="onnxruntime", hardware_bound=_bound(level))
    return _ort_format(source, draft, level, type_reduction=option(options, "type_reduction", False))


def save_optimized(
    source: Path, draft: Path, *, level: str, disabled: Sequence[str] = (), ort_format: bool = False
) -> None:
    """Save the graph that ONNX Runtime optimizes from `source` on the CPU.

    Args:
        source: the model.
        draft: the file to write; weights go to `<draft>.data` next to it if the source has external weights
            (the saved graph would refer to the source's file) or if one file cannot hold them.
        level: optimization level, by ONNX Runtime's name.
        disabled: optimizers to leave out.
        ort_format: True: in ORT format, all in one file.

    Raises:
        ModelError: ONNX Runtime cannot load or save the model.
    """
    entries = {}
    if ort_format:
        entries = {_FORMAT: "ORT"}
    elif _needs_external(source):
        entries = weights_beside(f"{draft.name}.data")
    job_session(  # without a log: the page already warns of levels above EXTENDED
        source,
        level,
        complaint=f"ONNX Runtime cannot save `{source.name}` optimized at {level}",
        hint="Choose a lower level, or leave this step out of the chain.",
        entries=entries,
        save_to=draft,
        disabled=disabled,
    )


def _needs_external(source: Path) -> bool:
    info = inspect_model(str(source))
    return bool(info["external_data"]) or info["size_bytes"] > ONE_FILE_BYTES


def _bound(level: str) -> str:
    """Return why a file saved at `level` is bound to this kind of machine; empty if it is not."""
    if level in PORTABLE:
        return ""
    cpuinfo = read_text("/proc/cpuinfo")
    vectors = [one for one in instructions(cpuinfo) if one.startswith(("avx", "amx", "sve", "asimd"))]
    known = f" ({', '.join(vectors)})" if vectors else ""
    return (
        f"Saved at {level}: weights and values are laid out for {platform.machine()} processors like "
        f"{cpu_model(cpuinfo)}{known}. Elsewhere it may be slower, or not load."
    )


# --- ORT format ---------------------------------------------------------------------------------------------


def _ort_format(source: Path, draft: Path, level: str, *, type_reduction: bool) -> StepResult:
    size = inspect_model(str(source))["size_bytes"]
    if size > _ORT_LARGEST_BYTES:
        raise ModelError(
            f"The ORT format holds at most 2 GiB, but the model has {size / 2**30:.1f} GiB.",
            hint="Quantize the model first, or keep the ONNX format.",
        )
    save_optimized(source, draft, level=level, ort_format=True)
    kind = "required_operators_and_types" if type_reduction else "required_operators"
    config = draft.with_name(f"{draft.stem}.{kind}.config")
    _write_operators(draft, config, type_reduction=type_reduction)
    return StepResult(
        tool="onnxruntime",
        notes=[f"`{config.name}` names the operators that a build of ONNX Runtime for this model must have"],
        facts={"mobile": _mobile(source)},
        hardware_bound=_bound(level),
        files=[config.name],
    )


def _write_operators(model: Path, config: Path, *, type_reduction: bool) -> None:
    """Write the file for `--include_ops_by_config` of ONNX Runtime's build."""
    from onnxruntime.tools.ort_format_model import create_config_from_models  # loads torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves the model open until it is collected
        create_config_from_models([model], config, enable_type_reduction=type_reduction)
    lines = [line for line in config.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    config.write_text("\n".join([f"# Operators of {model.name}", *lines, ""]), encoding="utf-8")


def _mobile(source: Path) -> dict[str, Any]:
    """Return the mobile accelerators' coverage of the model, by ONNX Runtime's own operator lists.

    Provider -> nodes it would run, of how many, in how many partitions, and ONNX Runtime's verdict ("yes"
    from three quarters of the nodes in one partition). Empty if the coverage could not be determined.
    """
    import onnx
    from onnxruntime.tools.mobile_helpers import usability_checker as usability

    try:
        model = onnx.shape_inference.infer_shapes(onnx.load_model(str(source), load_external_data=False))
        found = {
            "NNAPI": usability.check_nnapi_partitions(model, True),
            "CoreML": usability.check_coreml_partitions(model, True, "coreml_supported_mlprogram_ops.md"),
        }
        return {name: _partitions(one) for name, one in found.items()}
    except _UNKNOWN:
        return {}


def _partitions(found: Any) -> dict[str, Any]:
    return {
        "nodes": found.num_nodes,
        "supported": found.num_supported_nodes,
        "pieces": found.num_partitions,
        "verdict": found.suitability().name.lower(),
        "unsupported_operators": sorted(found.unsupported_ops),
    }
