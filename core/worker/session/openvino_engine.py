"""OpenVINO as an engine: it reads the ONNX file itself. Worker side, imports openvino and not onnxruntime.

It gets the same arrays as ONNX Runtime's contestants. A call is `InferRequest.infer` with numpy arrays that
it shares, as `CompiledModel` calls it; with binding, tensors stay in place on both sides. Each caller has an
infer request of its own. Dimensions that are dynamic in the file stay dynamic unless the plan says `reshape`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from core import wire
from core.wire import engines
from core.wire.errors import ModelError, TunerError
from core.worker.session.feeds import Array, Feeds, make_feeds
from core.worker.session.feeds.wanted import BFLOAT16
from core.worker.session.openvino_model import (
    BuiltModel,
    build,
    dtype_of,
    input_name,
    is_out_of_memory,
    ort_type,
    out_of_memory,
    output_name,
    ov,
    said_by,
)


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
        return [(output_name(port), dtype_of(port), np.asarray(one)) for port, one in result.items()]


def contender(plan: wire.ContestantPlan, layout: Any = None) -> OpenVinoInference:
    """Read and compile the model of `plan`, and place its inputs in memory as `layout` says.

    Raises:
        SpecError: a setting of ONNX Runtime's session, a property that OpenVINO refuses, or an input value
            that does not fit.
        ProviderError: a device is not there.
        ModelError: OpenVINO cannot read or compile the model.
    """
    _refuse_settings(plan)
    built = build(plan["model_path"], plan["openvino"], plan["feeds"]["inputs"], bind=plan["use_io_binding"])
    return _in_place(built, plan["feeds"], layout)


def rows_session(
    model_path: str, own: wire.OpenVinoPlan, inputs: Sequence[wire.InputPlan]
) -> OpenVinoSession:
    """Return the model of a file for many inputs of the same shapes, as the job `accuracy` needs it.

    Raises:
        TunerError: as for `contender`.
    """
    return OpenVinoSession(build(model_path, own, inputs, bind=False))


class OpenVinoSession:
    """A compiled model with the part of ONNX Runtime's session that runs arrays by name."""

    def __init__(self, built: BuiltModel) -> None:
        self.built = built
        self._request = built.compiled.create_infer_request()
        self._inputs = {name: port for port in built.compiled.inputs for name in port.get_names()}
        self._outputs = [output_name(port) for port in built.compiled.outputs]

    def get_outputs(self) -> list[_Declared]:
        """Describe the outputs."""
        ports = zip(self._outputs, self.built.compiled.outputs, strict=True)
        return [_Declared(name=name, type=f"tensor({ort_type(port)})") for name, port in ports]

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


def _refuse_settings(plan: wire.ContestantPlan) -> None:
    """Refuse ONNX Runtime settings, which OpenVINO would ignore; the parent refuses them already."""
    session = plan["session"]
    asked = [*session["attributes"], *session["config_entries"], *session["run_config_entries"]]
    asked += [*session["free_dimension_overrides"], *session["disabled_optimizers"]]
    asked += [one["name"] for one in session["providers"] if one["name"] != "CPUExecutionProvider"]
    for name in asked:
        engines.require(plan["engine"], "settings", of=f": `{name}`")


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
    ports = {input_name(port, planned): port for port in built.compiled.inputs}
    declared = [_Declared(name=name, type=f"tensor({ort_type(port)})") for name, port in ports.items()]
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
    said = said_by(error)
    if is_out_of_memory(said):
        return out_of_memory(said)
    hint = "Use sizes that the model allows, or another engine for this model."
    if built.reshaped:
        hint = "The model's shapes are fixed: turn `openvino.reshape` off to run other sizes."
    return ModelError(f"OpenVINO cannot run the model on these inputs: {said}", hint=hint)


def _described(feeds: Feeds) -> list[wire.TensorInfo]:
    return [
        {"name": name, "dtype": feeds.dtypes[name], "shape": list(array.shape)}
        for name, array in feeds.arrays.items()
    ]


def _from_bfloat16(array: Array) -> Array:
    bits = array.view(np.uint16).astype(np.uint32) << 16
    return np.asarray(bits.view(np.float32))
