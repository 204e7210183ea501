"""OpenVINO as an engine: it reads the ONNX file itself. Worker side, imports openvino and not onnxruntime.

It gets the same arrays as ONNX Runtime's contestants. A call is `InferRequest.infer` with numpy arrays that
it shares, as `CompiledModel` calls it; with binding, tensors stay in place on both sides. Each caller has an
infer request of its own. Dimensions that are dynamic in the file stay dynamic unless the plan says `reshape`.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

# `import openvino` reports its use over the network; without this package it uses a stub that sends nothing.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino as ov  # noqa: E402 - after the telemetry is off
from openvino.frontend import FrontEndManager  # noqa: E402

from core import wire  # noqa: E402
from core.wire import engines  # noqa: E402
from core.wire.errors import ModelError, ProviderError, SpecError, TunerError, WorkerError  # noqa: E402
from core.wire.openvino_devices import missing_devices  # noqa: E402
from core.worker.session import Built  # noqa: E402
from core.worker.session.feeds import Array, Feeds, make_feeds  # noqa: E402
from core.worker.session.feeds.wanted import BFLOAT16, STRING  # noqa: E402

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoInference:
    """A compiled model with its inputs in place: `call` is one inference."""

    built: BuiltModel
    call: Callable[[], object]
    inputs: list[wire.TensorInfo]
    notes: list[str]
    layout: Any  # placement of the inputs in memory

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that compute, by name."""
        return {"openvino": ov.__version__.partition("-")[0], "numpy": np.__version__}

    def outputs(self, result: object) -> list[wire.TensorInfo]:
        """Describe the outputs of a call from its return value."""
        return [
            {"name": name, "dtype": dtype, "shape": list(array.shape)}
            for name, dtype, array in self._values(result)
        ]

    def arrays(self, result: object) -> dict[str, Array]:
        """Return a call's outputs as numpy arrays, by the file's names; bfloat16 becomes float32."""
        return {
            name: _from_bfloat16(array) if dtype == BFLOAT16 else np.array(array)
            for name, dtype, array in self._values(result)
        }

    def with_inputs(self, feeds: wire.FeedPlan) -> OpenVinoInference:
        """Return the same compiled model with other inputs, in an infer request of its own.

        Raises:
            TunerError: as for `contender`.
        """
        return _in_place(self.built, feeds, self.layout)

    def _values(self, result: object) -> list[tuple[str, str, Array]]:
        assert isinstance(result, Mapping)
        return [(_output_name(port), _dtype(port), np.asarray(one)) for port, one in result.items()]


def contender(plan: wire.ContestantPlan, layout: Any = None) -> OpenVinoInference:
    """Read and compile the model of `plan`, and place its inputs in memory as `layout` says.

    Raises:
        SpecError: a setting of ONNX Runtime's session, a property that OpenVINO refuses, or an input value
            that does not fit.
        ProviderError: a device is not there.
        ModelError: OpenVINO cannot read or compile the model.
    """
    _refuse_settings(plan)
    built = _build(plan["model_path"], plan["openvino"], plan["feeds"]["inputs"], bind=plan["use_io_binding"])
    return _in_place(built, plan["feeds"], layout)


def rows_session(
    model_path: str, own: wire.OpenVinoPlan, inputs: Sequence[wire.InputPlan]
) -> OpenVinoSession:
    """Return the model of a file for many inputs of the same shapes, as the job `accuracy` needs it.

    Raises:
        TunerError: as for `contender`.
    """
    return OpenVinoSession(_build(model_path, own, inputs, bind=False))


class OpenVinoSession:
    """A compiled model with the part of ONNX Runtime's session that runs arrays by name."""

    def __init__(self, built: BuiltModel) -> None:
        self.built = built
        self._request = built.compiled.create_infer_request()
        self._inputs = {name: port for port in built.compiled.inputs for name in port.get_names()}
        self._outputs = [_output_name(port) for port in built.compiled.outputs]

    def get_outputs(self) -> list[_Declared]:
        """Describe the outputs."""
        ports = zip(self._outputs, self.built.compiled.outputs, strict=True)
        return [_Declared(name=name, type=f"tensor({_ort_type(port)})") for name, port in ports]

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Run the model on arrays by name, and return the outputs called `names`.

        Raises:
            TunerError: the run failed.
        """
        values = {self._inputs[name]: array for name, array in feeds.items()}
        try:
            found = list(self._request.infer(values, share_inputs=True).values())
        except RuntimeError as error:
            raise _run_error(self.built, error) from error
        return [np.asarray(found[self._outputs.index(name)]) for name in names]


def _build(
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


def _refuse_settings(plan: wire.ContestantPlan) -> None:
    """Refuse ONNX Runtime settings, which OpenVINO would ignore; the parent refuses them already."""
    session = plan["session"]
    asked = [*session["attributes"], *session["config_entries"], *session["run_config_entries"]]
    asked += [*session["free_dimension_overrides"], *session["disabled_optimizers"]]
    asked += [one["name"] for one in session["providers"] if one["name"] != "CPUExecutionProvider"]
    for name in asked:
        engines.require(plan["engine"], "settings", of=f": `{name}`")


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
            f"OpenVINO cannot read the model: {_said(error)}",
            hint="Its operators or its opset may be unknown to this version of OpenVINO. Use another engine.",
        ) from error


def _reshape(model: Any, inputs: Sequence[wire.InputPlan]) -> None:
    shapes = {one["name"]: one["shape"] for one in inputs}
    try:
        model.reshape({_input_name(port, shapes): shapes[_input_name(port, shapes)] for port in model.inputs})
    except RuntimeError as error:
        raise ModelError(
            f"OpenVINO cannot give the model the shapes of the inputs: {_said(error)}",
            hint="Turn `openvino.reshape` off, or use other sizes.",
        ) from error


def _refuse_text(model: Any) -> None:
    """Refuse text: OpenVINO 2026.4 crashes when it frees a tensor of text that came from numpy."""
    for port in [*model.inputs, *model.outputs]:
        if _ort_type(port) == STRING:
            raise ModelError(
                f"The engine `openvino` takes no text, but `{port.any_name}` of the model is text.",
                hint=f"Use the engine `{engines.DEFAULT}`.",
            )


def _compile(model: Any, own: wire.OpenVinoPlan) -> Any:
    try:
        return _CORE.compile_model(model, own["device"], dict(own["properties"]))
    except RuntimeError as error:
        said = _said(error)
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


def _said(error: Exception) -> str:
    """Return OpenVINO's message without the places in its source code, on one line."""
    text = " ".join(_WHERE.sub("", str(error)).split()) or " ".join(str(error).split())
    return f"{text[:400].rstrip('.')}."


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


# --- inputs and the call ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """An input in the form that `make_feeds` expects of a session."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """An array for one input of the compiled model."""

    port: Any
    array: Array
    dtype: str

    def value(self) -> Any:
        """Return it as `infer` takes it: bfloat16, which numpy lacks, as a tensor."""
        if self.dtype != BFLOAT16:
            return self.array
        return ov.Tensor(self.array, self.array.shape, ov.Type.bf16)


def _in_place(built: BuiltModel, plan: wire.FeedPlan, layout: Any) -> OpenVinoInference:
    planned = {one["name"] for one in plan["inputs"]}
    ports = {_input_name(port, planned): port for port in built.compiled.inputs}
    declared = [_Declared(name=name, type=f"tensor({_ort_type(port)})") for name, port in ports.items()]
    feeds = make_feeds(plan, declared)
    inputs = [
        _Input(
            port=ports[name],
            array=array if layout is None else layout.place(array, number),
            dtype=feeds.dtypes[name],
        )
        for number, (name, array) in enumerate(feeds.arrays.items())
    ]
    return OpenVinoInference(
        built=built,
        call=_call(built, built.compiled.create_infer_request(), inputs),
        inputs=_described(feeds),
        notes=[*built.notes, *feeds.notes],
        layout=layout,
    )


def _call(built: BuiltModel, request: Any, inputs: Sequence[_Input]) -> Callable[[], object]:
    """Return one inference; an error handler is free until an error occurs."""
    values = {one.port: one.value() for one in inputs}
    if built.bind:
        try:
            for port, value in values.items():
                tensor = value if isinstance(value, ov.Tensor) else ov.Tensor(value, shared_memory=True)
                request.set_tensor(port, tensor)
        except RuntimeError as error:
            raise _run_error(built, error) from error
        run = partial(request.infer, share_outputs=True)
    else:
        run = partial(request.infer, values, share_inputs=True)

    def call(held: object = inputs) -> object:  # a tensor uses the memory of an array, but does not own it
        try:
            return run()
        except RuntimeError as error:
            raise _run_error(built, error) from error

    return call


def _run_error(built: BuiltModel, error: Exception) -> TunerError:
    said = _said(error)
    if "bad_alloc" in said or "allocate" in said:
        return WorkerError(
            f"OpenVINO ran out of memory: {said}", hint="Use a smaller batch or smaller dimensions."
        )
    hint = "Use sizes that the model allows, or another engine for this model."
    if built.reshaped:
        hint = "The model's shapes are fixed: turn `openvino.reshape` off to run other sizes."
    return ModelError(f"OpenVINO cannot run the model on these inputs: {said}", hint=hint)


def _described(feeds: Feeds) -> list[wire.TensorInfo]:
    return [
        {"name": name, "dtype": feeds.dtypes[name], "shape": list(array.shape)}
        for name, array in feeds.arrays.items()
    ]


def _input_name(port: Any, planned: Any) -> str:
    """Return the file's name of an input: a port has the names of every tensor that is the same."""
    names: list[str] = sorted(port.get_names()) or [port.node.friendly_name]
    return next((one for one in names if one in planned), names[0])


def _output_name(port: Any) -> str:
    """Return the file's name of an output: a port has the names of every tensor that is the same."""
    own, names = _SINK.sub("", port.node.friendly_name), sorted(port.get_names())
    return own if own in names or not names else names[0]


def _ort_type(port: Any) -> str:
    name = str(port.element_type.get_type_name())
    return _ORT_NAMES.get(name, name)


def _dtype(port: Any) -> str:
    """Return the type of a port by numpy's name, or bfloat16."""
    name = _ort_type(port)
    return {"float": "float32", "double": "float64"}.get(name, name)


def _from_bfloat16(array: Array) -> Array:
    bits = array.view(np.uint16).astype(np.uint32) << 16
    return np.asarray(bits.view(np.float32))
