"""A model that OpenVINO has read and compiled, and what it made of the request. Worker side.

Nothing else imports openvino, because its telemetry is turned off here first.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# `import openvino` reports its use over the network; without this package it uses a stub that sends nothing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino as ov  # noqa: E402 - after the telemetry is off
from openvino.frontend import FrontEndManager  # noqa: E402

from core import wire  # noqa: E402
from core.wire import engines  # noqa: E402
from core.wire.errors import ModelError, ProviderError, SpecError, WorkerError  # noqa: E402
from core.wire.openvino_devices import missing_devices  # noqa: E402
from core.worker.session import Built  # noqa: E402
from core.worker.session.feeds.wanted import BFLOAT16, STRING  # noqa: E402

__all__ = [
    "BuiltModel",
    "build",
    "devices",
    "dtype_of",
    "input_name",
    "is_out_of_memory",
    "ort_type",
    "out_of_memory",
    "output_name",
    "ov",
    "said_by",
]

CPU = "CPU"
_PRECISION = "INFERENCE_PRECISION_HINT"
_LOW = ("bf16", "f16")  # precisions below FP32 that OpenVINO may choose, the coarsest first
_NAMES = {"bf16": "bf16", "f16": "fp16"}  # OpenVINO's name -> that of `output_check`
_ORT_NAMES = {"f32": "float", "f64": "double", "f16": "float16", "bf16": BFLOAT16, "boolean": "bool"}
_ORT_NAMES |= {
    f"{sign}{bits}": f"{full}int{bits}" for sign, full in (("i", ""), ("u", "u")) for bits in (8, 16, 32, 64)
}
_SINK = re.compile(r"/sink_port_\d+$")  # OpenVINO's addition to the name of an output
_WHERE = re.compile(r"^(Exception from .*|Check '.*' failed at .*)$", re.MULTILINE)

_CORE = ov.Core()
with contextlib.suppress(
    RuntimeError
):  # this build has no CPU plug-in, or no reader: the model's error says so
    # loaded now, so that their libraries do not count as the model's time and memory
    _CORE.get_property(CPU, "FULL_DEVICE_NAME")
    FrontEndManager().load_by_framework("onnx")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModel(Built):
    """A compiled model, and how it differs from the request."""

    compiled: Any  # ov.CompiledModel
    bind: bool  # inputs and outputs stay in place
    reshaped: bool
    notes: list[str]

    @property
    def on_cpu(self) -> bool:
        """Whether OpenVINO runs it on the CPU alone."""
        return self.effective == [_device_name(CPU)]


def build(
    model_path: str, own: wire.OpenVinoPlan, inputs: Sequence[wire.InputPlan], *, bind: bool
) -> BuiltModel:
    """Read and compile a model, and find out what OpenVINO made of the request."""
    _check_devices(own["device"])
    began = time.perf_counter()
    model = _read(model_path)
    if own["reshape"]:
        _reshape(model, inputs)
    _refuse_text(model)
    compiled = _compile(model, own)
    creation_s = time.perf_counter() - began
    used, moving = _devices(compiled)
    low = _low_precisions(compiled)
    return BuiltModel(
        compiled=compiled,
        bind=bind,
        reshaped=own["reshape"],
        notes=[_about(model, used, low), *moving, *_differences(compiled, own["properties"])],
        creation_s=creation_s,
        requested=[_device_name(own["device"])],
        effective=[_device_name(one) for one in used],
        precision=next((_NAMES[one] for one in _LOW if one in low), ""),
    )


# --- devices ------------------------------------------------------------------------------------------------


def _device_name(device: str) -> str:
    return f"OpenVINO {device}"


def devices() -> dict[str, str]:
    """Return the devices that are there, each with its full name."""
    found = {}
    for name in _CORE.available_devices:
        with contextlib.suppress(RuntimeError):
            found[str(name)] = str(_CORE.get_property(name, "FULL_DEVICE_NAME"))
    return found


def _check_devices(device: str) -> None:
    """Refuse a device that is not there."""
    there = list(_CORE.available_devices)
    if missing := missing_devices(device, there):
        raise ProviderError(
            f"OpenVINO has no device `{missing[0]}` here. It has {', '.join(there) or 'none'}.",
            hint="Choose one of them, or install the driver of the device.",
        )


def _devices(compiled: Any) -> tuple[list[str], list[str]]:
    """Return the devices that a compiled model runs on, and a note if AUTO uses them for the moment only."""
    told = [str(one) for one in compiled.get_property("EXECUTION_DEVICES")]
    used = [one.strip("()") for one in told]
    if told == used:
        return used, []
    note = (
        f"AUTO runs on {', '.join(used)} until its first choice is ready, so the device may change while it "
        "is measured. The property `ENABLE_STARTUP_FALLBACK=NO` makes it wait."
    )
    return used, [note]


# --- reading and compiling ----------------------------------------------------------------------------------


def _read(path: str) -> Any:
    try:
        return _CORE.read_model(path)
    except RuntimeError as error:
        raise ModelError(
            f"OpenVINO cannot read the model: {said_by(error)}",
            hint="Its operators or its opset may be unknown to this version of OpenVINO. Use another engine.",
        ) from error


def _reshape(model: Any, inputs: Sequence[wire.InputPlan]) -> None:
    shapes = {one["name"]: one["shape"] for one in inputs}
    try:
        model.reshape({input_name(port, shapes): shapes[input_name(port, shapes)] for port in model.inputs})
    except RuntimeError as error:
        raise ModelError(
            f"OpenVINO cannot give the model the shapes of the inputs: {said_by(error)}",
            hint="Turn `openvino.reshape` off, or use other sizes.",
        ) from error


def _refuse_text(model: Any) -> None:
    """Refuse text: OpenVINO 2026.4 crashes when it frees a tensor of text that came from numpy."""
    for port in [*model.inputs, *model.outputs]:
        if ort_type(port) == STRING:
            raise ModelError(
                f"The engine `openvino` takes no text, but `{port.any_name}` of the model is text.",
                hint=f"Use the engine `{engines.DEFAULT}`.",
            )


def _compile(model: Any, own: wire.OpenVinoPlan) -> Any:
    try:
        return _CORE.compile_model(model, own["device"], dict(own["properties"]))
    except RuntimeError as error:
        said = said_by(error)
        if is_out_of_memory(said):
            raise out_of_memory(said) from error
        named = next((name for name in own["properties"] if name in said), "")
        if named:
            raise SpecError(
                f"OpenVINO refuses `{named}` on `{own['device']}`: {said}",
                hint=f"Leave `{named}` out, or give it another value.",
            ) from error
        if own["device"] != CPU:
            raise ProviderError(
                f"OpenVINO cannot compile the model for `{own['device']}`: {said}",
                hint="Use the device CPU, or update the driver of the device.",
            ) from error
        raise ModelError(
            f"OpenVINO cannot compile the model: {said}", hint="Use another engine for this model."
        ) from error


def said_by(error: Exception) -> str:
    """Return OpenVINO's message without the places in its source code, on one line."""
    text = " ".join(_WHERE.sub("", str(error)).split()) or " ".join(str(error).split())
    return f"{text[:400].rstrip('.')}."


def is_out_of_memory(said: str) -> bool:
    """Whether a message of OpenVINO means that memory is missing."""
    return "bad_alloc" in said or "allocate" in said


def out_of_memory(said: str) -> WorkerError:
    """Return the error of missing memory."""
    return WorkerError(
        f"OpenVINO ran out of memory: {said}",
        hint="Use a smaller batch, smaller dimensions or a smaller model.",
    )


# --- what OpenVINO made of the request ----------------------------------------------------------------------


def _low_precisions(compiled: Any) -> Counter[str]:
    """Count the nodes that compute below FP32, the most frequent first; empty: none, or not told."""
    found: Counter[str] = Counter()
    with contextlib.suppress(RuntimeError):
        for node in compiled.get_runtime_model().get_ops():
            kept = node.get_rt_info()
            if "runtimePrecision" in kept:
                found[str(kept["runtimePrecision"].value)] += 1
    return Counter({name: count for name, count in found.most_common() if name in _LOW})


def _about(model: Any, used: list[str], low: Counter[str]) -> str:
    version = ov.__version__.partition("-")[0]
    text = f"OpenVINO {version} on {', '.join(used)}"
    if low:
        parts = " and ".join(f"{count} node{'s' * (count != 1)} in {name}" for name, count in low.items())
        text += f": it computes {parts}, and `openvino.{_PRECISION}: f32` makes that FP32"
    if model.is_dynamic():
        text += ". Dynamic dimensions stay dynamic, and `openvino.reshape` fixes them"
    return f"{text}."


def _differences(compiled: Any, asked: Mapping[str, Any]) -> list[str]:
    """Return a note for each property that OpenVINO changed."""
    found = []
    for name, value in asked.items():
        try:
            used = _value_text(compiled.get_property(name))
        except RuntimeError:  # AUTO and HETERO do not tell
            continue
        if used.upper() != _value_text(value).upper():
            found.append(f"OpenVINO uses {used} for `{name}`, not {_value_text(value)}.")
    return found


def _value_text(value: Any) -> str:
    if isinstance(value, ov.Type):
        return str(value.get_type_name())
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(getattr(value, "name", value))


# --- names and types of inputs and outputs ------------------------------------------------------------------


def input_name(port: Any, planned: Any) -> str:
    """Return the file's name of an input: a port has the names of every tensor that is the same."""
    names: list[str] = sorted(port.get_names()) or [port.node.friendly_name]
    return next((one for one in names if one in planned), names[0])


def output_name(port: Any) -> str:
    """Return the file's name of an output: a port has the names of every tensor that is the same."""
    own, names = _SINK.sub("", port.node.friendly_name), sorted(port.get_names())
    return own if own in names or not names else names[0]


def ort_type(port: Any) -> str:
    """Return the type of a port by ONNX Runtime's name, such as `float`."""
    name = str(port.element_type.get_type_name())
    return _ORT_NAMES.get(name, name)


def dtype_of(port: Any) -> str:
    """Return the type of a port by numpy's name, or bfloat16."""
    name = ort_type(port)
    return {"float": "float32", "double": "float64"}.get(name, name)
