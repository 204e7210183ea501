"""Writes the settings of a trial on OpenVINO, for `compile_model` and ONNX Runtime's provider. Pure.

Source: the options of ONNX Runtime's OpenVINO provider, and OpenVINO's properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.programs import OTHER_RUNTIMES, accelerators, ort_spec
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec, spec_from_dict
from core.spec.settings import SETTINGS
from core.spec.strict_yaml import dump_yaml
from core.wire import engines
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
    own = spec_from_dict(source.trial.spec)
    if engines.can(own.engine, "openvino"):
        return _of_engine(source, own, accepted)
    trial, spec = source.trial, ort_spec(source.trial)
    plan, tracker = session_plan(spec.session), SettingTracker(spec)
    first = plan["providers"][0]
    if first["name"] != NAME:
        raise SpecError(
            f"The trial runs on `{first['name']}`, not on OpenVINO.",
            hint=f"`{OTHER_RUNTIMES}` lists the equivalent settings of OpenVINO.",
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


def _of_engine(source: ExportSource, spec: TrialSpec, accepted: str) -> str:
    """Return the settings of a trial of the engine OpenVINO, which needs no translation."""
    tracker = SettingTracker(spec)
    tracker.mark_exported("engine", *(one.name for one in SETTINGS if one.target == "openvino"))
    if spec.openvino.reshape:
        tracker.mark_unsupported("openvino.reshape", "call `model.reshape` before `compile_model`")
    document = {"device": spec.openvino.device, "openvino": spec.openvino.requested()}
    notes = ["`openvino`: for openvino.Core().compile_model(model, device, config)."]
    return f"{head(source.trial, accepted, tracker, *notes)}\n{dump_yaml(document)}"


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
