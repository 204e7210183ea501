"""Writes an Olive workflow that creates the trial's model from its original, with its session. Pure.

Source: the passes of olive-ai 0.13 and their options, `common/ort_inference.py` for the session's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core import wire
from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.input_values import measured_inputs
from core.show.export.programs import entries, numbered_options, ort_spec
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec
from core.spec.steps import Step
from core.spec.strict_yaml import dump_yaml

Pass = dict[str, Any]
_DATA = "calibration_data"
_TYPES = {"QInt8": "int8", "QUInt8": "uint8"}
_NO_PASS = "Olive has no such pass"  # noqa: S105 - a pass of Olive's
_NO_OPTION = "Olive's pass has no such option"


def export_olive(source: ExportSource, accepted: str) -> str:
    """Return the workflow as YAML, which `olive run --config` reads.

    Raises:
        SpecError: another engine ran the trial, or its inputs are unknown.
    """
    trial, spec = source.trial, ort_spec(source.trial)
    tracker, passes, data = SettingTracker(spec), dict[str, Pass](), list[dict[str, Any]]()
    for number, step in enumerate(source.steps, start=1):
        made = _pass(step, tracker, number)
        if made is not None:
            passes[f"{number}_{step.kind}"] = made
            if step.kind == "int8_static":
                data = [_dummy_data(source, spec)]
                tracker.add_unsupported(
                    f"step {number}, calibration data",
                    "those of the step",
                    f"Olive calibrates on ones here; put your data into `{_DATA}`",
                )
    if spec.model.precision == "fp16":
        passes["fp16"] = {"type": "OnnxFloatToFloat16", "keep_io_types": spec.model.keep_io_types}
        tracker.mark_exported("precision", "keep_io_types")
    path = source.original or spec.model.path
    settings = _inference_settings(spec, tracker)
    document: dict[str, Any] = {
        "input_model": {"type": "ONNXModel", "model_path": path, "inference_settings": settings},
        **({"data_configs": data} if data else {}),
        "passes": passes,
        "engine": {"evaluate_input_model": False},
        "output_dir": f"{Path(path).stem}-olive",
    }
    notes = ["Run: pip install olive-ai, then olive run --config FILE."]
    if source.steps and not source.original:
        notes.append("The original of this variant is missing, so the workflow starts from the variant.")
    if not passes:
        notes.append("The model is an original without steps, so the workflow has no pass.")
    return f"{head(trial, accepted, tracker, *notes)}\n{dump_yaml(document)}"


# --- the session --------------------------------------------------------------------------------------------


def _inference_settings(spec: TrialSpec, tracker: SettingTracker) -> dict[str, Any]:
    plan = session_plan(spec.session)
    options: dict[str, Any] = {**numbered_options(plan, tracker)}
    if extra := entries(plan, tracker):
        options["extra_session_config"] = extra
    tracker.mark_exported(
        "providers", *(f"{one['name']}.{key}" for one in plan["providers"] for key in one["options"])
    )
    return {
        "execution_provider": [one["name"] for one in plan["providers"]],
        "provider_options": [dict(one["options"]) for one in plan["providers"]],
        "session_options": options,
    }


# --- the steps ----------------------------------------------------------------------------------------------


def _pass(step: Step, tracker: SettingTracker, number: int) -> Pass | None:
    """Return the pass of a step, and the options of the step that it does not support."""
    if step.kind not in _PASSES:
        tracker.add_unsupported(f"step {number}, {step.type.title}", dict(step.changed()), _NO_PASS)
        return None
    made, carried = _PASSES[step.kind](step.options)
    for name, value in step.changed().items():
        if name not in carried:
            tracker.add_unsupported(f"step {number}, {step.type.title}: {name}", value, _NO_OPTION)
    return made


Made = tuple[Pass, set[str]]


def _quantized(options: Mapping[str, Any], kind: str) -> Made:
    made: Pass = {"type": kind, "precision": _TYPES[options["weight_type"]]}
    for ours, theirs in (
        ("per_channel", "per_channel"),
        ("reduce_range", "reduce_range"),
        ("op_types", "op_types_to_quantize"),
        ("exclude_nodes", "nodes_to_exclude"),
    ):
        if options[ours]:
            made[theirs] = options[ours]
    return made, {"weight_type", "per_channel", "reduce_range", "op_types", "exclude_nodes"}


def _dynamic(options: Mapping[str, Any]) -> Made:
    made, carried = _quantized(options, "OnnxDynamicQuantization")
    # without it Olive's quantizer fails on graphs with known inner shapes
    return {**made, "quant_preprocess": True}, carried


def _static(options: Mapping[str, Any]) -> Made:
    made, carried = _quantized(options, "OnnxStaticQuantization")
    made |= {
        "quant_preprocess": options["preprocess"],
        "calibrate_method": options["calibrate_method"],
        "activation_type": _TYPES[options["activation_type"]],
        "activation_symmetric": options["activation_symmetric"],
        "quant_format": "QDQ",
        "data_config": _DATA,
    }
    if options["calibrate_method"] == "Percentile":
        made["extra_options"] = {"CalibPercentile": options["percentile"]}
    own = {"preprocess", "calibrate_method", "activation_type", "activation_symmetric", "percentile"}
    return made, carried | own


def _fp16(options: Mapping[str, Any]) -> Made:
    made: Pass = {"type": "OnnxFloatToFloat16", "keep_io_types": options["keep_io_types"]}
    if options["block_nodes"]:
        made["node_block_list"] = options["block_nodes"]
    # Olive's list of blocked operators would replace the converter's defaults; the step's list extends them
    return made, {"keep_io_types", "block_nodes"}


def _int4(options: Mapping[str, Any]) -> Made:
    made: Pass = {
        "type": "OnnxBlockWiseRtnQuantization",
        "bits": 4,
        "block_size": options["block_size"],
        "is_symmetric": options["symmetric"],
        "accuracy_level": options["accuracy_level"],
    }
    if options["exclude_nodes"]:
        made["nodes_to_exclude"] = options["exclude_nodes"]
    return made, {"block_size", "symmetric", "accuracy_level", "exclude_nodes"}


def _fixed(options: Mapping[str, Any]) -> Made:
    dims = options["dims"]
    return {"type": "DynamicToFixedShape", "dim_param": list(dims), "dim_value": list(dims.values())}, {
        "dims"
    }


def _fused(options: Mapping[str, Any]) -> Made:
    made: Pass = {"type": "OrtTransformersOptimization", "opt_level": 0, "only_onnxruntime": False}
    for name in ("num_heads", "hidden_size"):
        made[name] = options[name]
    if options["model_type"] != "auto":
        made["model_type"] = options["model_type"]
    return made, {"num_heads", "hidden_size", "model_type"}


def _optimized(options: Mapping[str, Any]) -> Made:
    level = {"ORT_ENABLE_BASIC": 1, "ORT_ENABLE_EXTENDED": 2}.get(options["level"], 99)
    made: Pass = {"type": "OrtTransformersOptimization", "opt_level": level, "only_onnxruntime": True}
    return made, {"level"} if options["level"] != "ORT_ENABLE_LAYOUT" else set()


_PASSES: Mapping[str, Callable[[Mapping[str, Any]], Made]] = {
    "int8_dynamic": _dynamic,
    "int8_static": _static,
    "fp16": _fp16,
    "int4": _int4,
    "fix_dims": _fixed,
    "fuse": _fused,
    "optimize": _optimized,
}


def _dummy_data(source: ExportSource, spec: TrialSpec) -> dict[str, Any]:
    inputs: list[wire.InputPlan] = measured_inputs(source.trial, spec, source.info)
    params = {
        "input_names": [one["name"] for one in inputs],
        "input_shapes": [list(one["shape"]) for one in inputs],
        "input_types": [one["dtype"] for one in inputs],
    }
    return {"name": _DATA, "type": "DummyDataContainer", "load_dataset_config": {"params": params}}
