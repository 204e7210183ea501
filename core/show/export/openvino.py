"""Translates a trial's settings to OpenVINO and TensorRT. Pure functions.

`export_openvino` writes the settings of a trial that runs on OpenVINO, for ONNX Runtime's provider and for
OpenVINO's own `compile_model`; `export_counterparts` writes, for any trial, the counterpart of each setting.
Source: the options of ONNX Runtime's OpenVINO provider, OpenVINO's properties, TensorRT's builder flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from core import wire
from core.run.export_source import ExportSource
from core.show.export.header import head
from core.show.export.programs import accelerators, ort_spec, plan_of
from core.show.export.unsupported import SettingTracker
from core.show.table import Table, md_text, texts
from core.spec import requested_value
from core.spec.settings import SETTINGS
from core.spec.strict_yaml import dump_yaml
from core.wire.errors import SpecError

NAME = "OpenVINOExecutionProvider"
_PRECISIONS = {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}
# the provider's option -> OpenVINO's property
_PROPERTIES = {
    "num_of_threads": "INFERENCE_NUM_THREADS",
    "num_streams": "NUM_STREAMS",
    "cache_dir": "CACHE_DIR",
    "model_priority": "MODEL_PRIORITY",
}
_DEVICE_OF_OLD = "device_type"


def export_openvino(source: ExportSource, accepted: str) -> str:
    """Return the settings as YAML.

    Raises:
        SpecError: the trial does not run on OpenVINO.
    """
    trial, spec = source.trial, ort_spec(source.trial)
    plan, tracker = plan_of(spec), SettingTracker(spec)
    first = plan["providers"][0]
    if first["name"] != NAME:
        raise SpecError(
            f"The trial runs on `{first['name']}`, not on OpenVINO.",
            hint="Choose the format counterparts, which lists the equivalent OpenVINO settings.",
        )
    accelerators(plan, {NAME: "OpenVINO"}, "the file for OpenVINO")
    tracker.mark_exported("providers", *(f"{NAME}.{key}" for key in first["options"]))
    device = first["options"].get(_DEVICE_OF_OLD, "CPU")
    document = {
        "device": device,
        "onnxruntime": {"provider": NAME, "provider_options": dict(first["options"])},
        "openvino": _properties(first["options"], tracker),
    }
    notes = [
        "`onnxruntime`: for InferenceSession(providers=[(provider, provider_options)]).",
        "`openvino`: for openvino.Core().compile_model(model, device, config).",
        "PERFORMANCE_HINT is not from the trial: LATENCY matches its one caller at a time.",
    ]
    return f"{head(trial, accepted, tracker, *notes)}\n{dump_yaml(document)}"


def _properties(options: Mapping[str, str], tracker: SettingTracker) -> dict[str, Any]:
    found: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    for key, text in options.items():
        if key in _PROPERTIES:
            found[_PROPERTIES[key]] = int(text) if text.isdecimal() else text
        elif key == "precision" and text.upper() in _PRECISIONS:
            found["INFERENCE_PRECISION_HINT"] = _PRECISIONS[text.upper()]
        elif key == "precision" and text.upper() == "ACCURACY":
            found["EXECUTION_MODE_HINT"] = "ACCURACY"
        elif key != _DEVICE_OF_OLD:
            tracker.mark_unsupported(
                f"{NAME}.{key}", "only ONNX Runtime's provider has it; see `onnxruntime`"
            )
    return found


# --- counterparts of settings in other runtimes -------------------------------------------------------------

NONE = "no counterpart"
COUNTERPARTS: Mapping[str, tuple[str, str]] = {  # setting -> OpenVINO, TensorRT
    "providers": ("the device: CPU, GPU, NPU, AUTO, HETERO:…", "always the GPU; `--useDLACore` for a DLA"),
    "allow_fallback": (
        "HETERO:GPU,CPU names the fallback device",
        "`--allowGPUFallback`, from a DLA to the GPU",
    ),
    "graph_optimization_level": (
        NONE + ": the graph is always optimized",
        "`--builderOptimizationLevel`, which controls the kernel search",
    ),
    "disabled_optimizers": (NONE, NONE),
    "custom_op_libraries": ("core.add_extension(…)", "`--dynamicPlugins` of trtexec"),
    "provider_libraries": (NONE + ": a device comes with its plug-in", NONE),
    "execution_mode": (
        "NUM_STREAMS: parallel requests, not branches",
        "`--maxAuxStreams` for parallel branches",
    ),
    "execution_order": (NONE, NONE),
    "use_deterministic_compute": ("EXECUTION_MODE_HINT=ACCURACY, which controls precision", NONE),
    "free_dimension_overrides": (
        "model.reshape(…) before it is compiled",
        "`--optShapes` with min = opt = max",
    ),
    "intra_op_num_threads": ("INFERENCE_NUM_THREADS", NONE + ": the GPU computes"),
    "inter_op_num_threads": ("NUM_STREAMS", "`--maxAuxStreams`"),
    "session.intra_op.allow_spinning": (NONE, "`--useSpinWait` of trtexec: the caller busy-waits"),
    "session.inter_op.allow_spinning": (NONE, NONE),
    "session.intra_op.spin_duration_us": (NONE, NONE),
    "session.inter_op.spin_duration_us": (NONE, NONE),
    "session.force_spinning_stop": (NONE, NONE),
    "use_per_session_threads": ("one Core: its models share threads", NONE),
    "session.dynamic_block_base": (NONE, NONE),
    "session.intra_op_thread_affinities": ("ENABLE_CPU_PINNING, SCHEDULING_CORE_TYPE", NONE),
    "session.set_denormal_as_zero": ("CPU_DENORMALS_OPTIMIZATION", NONE),
    "enable_cpu_mem_arena": (NONE, NONE),
    "enable_mem_pattern": (NONE, NONE + ": memory is always planned when the engine is built"),
    "enable_mem_reuse": (NONE, NONE),
    "memory.enable_memory_arena_shrinkage": ("compiled_model.release_memory()", NONE),
    "disable_synchronize_execution_providers": ("infer_request.start_async()", "enqueueV3 does not wait"),
    "session_config_entries": (NONE, NONE),
    "run_config_entries": (NONE, NONE),
    "precision": ("INFERENCE_PRECISION_HINT=f16", "`--fp16`"),
    "keep_io_types": (
        "PrePostProcessor sets the types of inputs and outputs",
        "`--inputIOFormats`, `--outputIOFormats`",
    ),
    "batch_size": ("model.reshape(…), or a free dimension", "`--optShapes`"),
    "dims": ("model.reshape(…), or free dimensions", "`--optShapes`"),
    "use_io_binding": ("set_tensor with tensors of the device (RemoteTensor)", "setTensorAddress, always"),
    "streams": ("NUM_STREAMS, PERFORMANCE_HINT_NUM_REQUESTS", "`--infStreams` of trtexec"),
}
_PARTS = ("attribute", "config_entry", "run_entry", "session", "model", "workload")
_FEEDS = (
    "feeds",
    "feed_values",
    "image_mean",
    "image_std",
    "seed",
    "expert",
)  # inputs and ORTune's own settings


def session_settings() -> list[str]:
    """Return the names of the settings that control how a model runs."""
    return [one.name for one in SETTINGS if one.target in _PARTS and one.name not in _FEEDS]


def export_counterparts(source: ExportSource, accepted: str) -> str:
    """Return the table as Markdown.

    Raises:
        SpecError: another engine ran the trial.
    """
    spec = ort_spec(source.trial)
    tracker, labels = SettingTracker(spec), {one.name: one.label for one in SETTINGS}
    rows = []
    for name in session_settings():
        value = requested_value(spec, name)
        tracker.mark_exported(name)
        rows.append([labels[name], "default" if value is None else f"`{value!r}`", *COUNTERPARTS[name]])
    for key in {**spec.session.session_config_entries, **spec.session.run_config_entries}:
        tracker.mark_exported(key)
    for one in plan_of(spec)["providers"]:
        rows += [_option_row(one, key, text, tracker) for key, text in one["options"].items()]
    table = Table(columns=texts("wish", "this trial", "OpenVINO", "TensorRT"), rows=rows)
    top = head(source.trial, accepted, tracker, "Documentation only: nothing in this table was measured.")
    return f"<!--\n{re.sub('-(?=-)', '- ', top)}\n-->\n\n{md_text(table)}\n"


_TENSORRT = "TensorrtExecutionProvider"


def _option_row(one: wire.ProviderPlan, key: str, text: str, tracker: SettingTracker) -> list[str]:
    tracker.mark_exported(f"{one['name']}.{key}")
    openvino = _PROPERTIES.get(key, NONE) if one["name"] == NAME else NONE
    tensorrt = f"the builder's setting behind `{key}`" if one["name"] == _TENSORRT else NONE
    return [f"{one['name']}: {key}", f"`{text!r}`", openvino, tensorrt]
