"""A session with its inputs in place: one call is one inference, by `session.run` or by I/O binding.

`Contender` is the interface that the timed loop needs; other engines than ONNX Runtime implement it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypedDict

import numpy as np

try:
    import onnxruntime as ort
except ModuleNotFoundError:  # a runtime for another engine
    ort = None

from core import wire
from core.wire.errors import SpecError, TunerError
from core.worker.measure import timing
from core.worker.measure.memory_layout import DEFAULT_LAYOUT, MemoryLayout
from core.worker.session import CUDA_PROVIDERS, ORT_ERRORS, Built, BuiltSession, build_session
from core.worker.session.feeds import Array, Feeds, make_feeds, sample_count
from core.worker.session.feeds.wanted import BFLOAT16
from core.worker.session.ort_errors import run_error

_BFLOAT16_ONNX = 16  # TensorProto.BFLOAT16
_ONNX_TO_NUMPY = {  # TensorProto.DataType -> numpy's name
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: BFLOAT16,
}


class Contender(Protocol):
    """One configuration with its inputs in place, ready to run."""

    @property
    def built(self) -> Built:
        """The built engine."""

    @property
    def call(self) -> timing.Call:
        """Run one inference to its end, including the wait for GPU results."""

    @property
    def inputs(self) -> list[wire.TensorInfo]:
        """Description of the inputs of each call."""

    @property
    def notes(self) -> list[str]:
        """Notes for the reader of the results."""

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that compute, by name."""

    def outputs(self, result: object) -> list[wire.TensorInfo]:
        """Describe the outputs of a call from its return value."""

    def arrays(self, result: object) -> dict[str, Array]:
        """Return a call's outputs as numpy arrays, by name; members of sequences and maps one by one."""

    def with_inputs(self, feeds: wire.FeedPlan) -> Contender:
        """Return the same session with other inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A session with its inputs in place: `call` is one inference."""

    built: BuiltSession
    call: timing.Call
    inputs: list[wire.TensorInfo]
    binding: Any  # ort.IOBinding, or None for plain `run`
    notes: list[str]
    layout: MemoryLayout = DEFAULT_LAYOUT  # placement of the inputs in memory
    held: object = None  # the inputs, whose memory ONNX Runtime reads without holding it

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that compute, by name."""
        return {"onnxruntime": ort.__version__, "numpy": np.__version__, **self.built.libraries}

    def outputs(self, result: object) -> list[wire.TensorInfo]:
        """Describe the outputs of a call from its return value."""
        return [_describe(name, value) for name, value in self._values(result)]

    def arrays(self, result: object) -> dict[str, Array]:
        """Return a call's outputs as numpy arrays, by name; members of sequences and maps one by one."""
        with translate_errors():
            return dict(array for name, value in self._values(result) for array in _flat(name, value))

    def with_inputs(self, feeds: wire.FeedPlan) -> Inference:
        """Return the same session with other inputs.

        Raises:
            TunerError: as for `prepare`.
        """
        plan: _Inputs = {"feeds": feeds, "use_io_binding": self.binding is not None}
        return prepare(self.built, plan, self.layout)

    def _values(self, result: object) -> list[tuple[str, object]]:
        names = [output.name for output in self.built.session.get_outputs()]
        values = self.binding.get_outputs() if self.binding is not None else result
        assert isinstance(values, list)
        return list(zip(names, values, strict=True))


def contender(plan: wire.ContestantPlan, layout: MemoryLayout = DEFAULT_LAYOUT) -> Inference:
    """Build the session of `plan` and place its inputs in memory as `layout` says.

    Raises:
        TunerError: as for `build_session` and `prepare`.
    """
    return prepare(build_session(plan["model_path"], plan["session"]), plan, layout)


class _Inputs(TypedDict):
    """The part of a plan that `prepare` needs."""

    feeds: wire.FeedPlan
    use_io_binding: bool


def prepare(built: BuiltSession, plan: _Inputs, layout: MemoryLayout = DEFAULT_LAYOUT) -> Inference:
    """Make the inputs of `plan` and place them in memory as `layout` says.

    Raises:
        SpecError: an input value does not fit, or I/O binding cannot hold an output.
        ModelError: an input is not a numeric tensor.
    """
    feeds = make_feeds(plan["feeds"], built.session.get_inputs())
    placed = {name: layout.place(one, number) for number, (name, one) in enumerate(feeds.arrays.items())}
    feeds = replace(feeds, arrays=placed)
    with translate_errors():
        found = _bound(built, feeds) if plan["use_io_binding"] else _plain(built, feeds)
    return replace(found, layout=layout)


def count_samples(contender: Contender, plan: wire.FeedPlan) -> int:
    """Return the number of samples in the inputs, which must equal the requested batch.

    Raises:
        SpecError: it does not, or the inputs disagree.
    """
    rows = sample_count({one["name"]: one["shape"] for one in contender.inputs}, plan["batch_axes"])
    if plan["batch_axes"] and rows != plan["batch_size"]:
        raise SpecError(
            f"The inputs have {rows} samples, but the batch is {plan['batch_size']}.",
            hint="Give fixed values for as many samples as the batch has, or one number for all.",
        )
    return rows


def _plain(built: BuiltSession, feeds: Feeds) -> Inference:
    """Plain `session.run`: numpy in, numpy out, including copies to a GPU and back."""
    values = {name: feedable(array, feeds.dtypes[name]) for name, array in feeds.arrays.items()}
    return Inference(
        built=built,
        call=functools.partial(built.session.run, None, values, built.run_options),
        inputs=_inputs(feeds),
        binding=None,
        notes=[*built.notes, *feeds.notes],
        held=feeds.arrays,
    )


def _bound(built: BuiltSession, feeds: Feeds) -> Inference:
    """I/O binding: inputs bound once on the first provider's device; outputs stay there; calls wait."""
    device, device_id = _device(built)
    binding = built.session.io_binding()
    values = {
        name: _ort_value(array, feeds.dtypes[name], device, device_id) for name, array in feeds.arrays.items()
    }
    for name, one in values.items():
        binding.bind_ortvalue_input(name, one)
    for output in built.session.get_outputs():
        _check_bindable(output.name, output.type)
        binding.bind_output(output.name, device, device_id)
    run = functools.partial(built.session.run_with_iobinding, binding, built.run_options)
    return Inference(
        built=built,
        call=run if device == "cpu" else functools.partial(_run_and_wait, run, binding),
        inputs=_inputs(feeds),
        binding=binding,
        notes=[*built.notes, *feeds.notes],
        held=(feeds.arrays, values),
    )


def _run_and_wait(run: timing.Call, binding: Any) -> None:
    run()
    binding.synchronize_outputs()


def _device(built: BuiltSession) -> tuple[str, int]:
    first = built.effective[0]
    if first not in CUDA_PROVIDERS:
        return "cpu", 0
    return "cuda", int(built.session.get_provider_options()[first].get("device_id", 0))


def _check_bindable(name: str, kind: str) -> None:
    if not kind.startswith("tensor(") or kind == "tensor(string)":
        raise SpecError(
            f"I/O binding cannot hold the output `{name}`, a {kind}.", hint="Turn I/O binding off."
        )


def feedable(array: Array, dtype: str) -> Any:
    """Return an input as `session.run` takes it: bfloat16, which numpy lacks, as an `OrtValue`."""
    return _ort_value(array, dtype, "cpu", 0) if dtype == BFLOAT16 else array


def _ort_value(array: Array, dtype: str, device: str, device_id: int) -> Any:
    if dtype != BFLOAT16:
        return ort.OrtValue.ortvalue_from_numpy(array, device, device_id)
    if device != "cpu":
        raise SpecError("A bfloat16 input cannot be bound on a GPU from numpy.", hint="Turn I/O binding off.")
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _BFLOAT16_ONNX)


def _inputs(feeds: Feeds) -> list[wire.TensorInfo]:
    return [
        {"name": name, "dtype": feeds.dtypes[name], "shape": list(array.shape)}
        for name, array in feeds.arrays.items()
    ]


def _describe(name: str, value: object) -> wire.TensorInfo:
    """Return type and shape of a tensor; kind and length of a sequence or a map."""
    if isinstance(value, np.ndarray):
        dtype = "string" if value.dtype == object else str(value.dtype)
        return {"name": name, "dtype": dtype, "shape": list(value.shape)}
    if isinstance(value, ort.OrtValue):
        kind = _ONNX_TO_NUMPY.get(value.element_type(), value.data_type())
        return {"name": name, "dtype": kind, "shape": list(value.shape())}
    kind = "map" if isinstance(value, dict) else "sequence" if isinstance(value, list) else "none"
    return {"name": name, "dtype": kind, "shape": [len(value)] if isinstance(value, list | dict) else []}


def _flat(name: str, value: object) -> Iterator[tuple[str, Array]]:
    if isinstance(value, ort.OrtValue):
        yield name, _from_bfloat16(value) if value.element_type() == _BFLOAT16_ONNX else value.numpy()
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _flat(f"{name}[{index}]", member)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _flat(f"{name}[{key!r}]", member)
    elif value is not None:
        array = np.asarray(value)
        yield name, array.astype(np.str_) if array.dtype == object else array


def _from_bfloat16(value: Any) -> Array:
    """Convert bfloat16, which numpy lacks, to float32: its 16 bits are the upper half."""
    if value.device_name().lower() != "cpu":
        raise SpecError("A bfloat16 output on a GPU cannot be read into numpy.", hint="Compare on the CPU.")
    raw = ctypes.string_at(value.data_ptr(), 2 * math.prod(value.shape()))
    bits = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(value.shape())


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate an exception of ONNX Runtime's run into a `TunerError`."""
    try:
        yield
    except TunerError:  # some are also a ValueError
        raise
    except ORT_ERRORS as error:
        raise run_error(str(error)) from error
