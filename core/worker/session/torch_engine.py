"""PyTorch as an engine: the program behind an exported model, eager or compiled. Worker side, imports torch.

It gets the same arrays as ONNX Runtime's contestants and runs on the CPU with PyTorch's own defaults. Its
outputs have the names of the exported file, so that the two can be compared. Compilation starts without a
cache from earlier processes, and its time is part of the first run.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from core import wire
from core.wire import engines
from core.wire.errors import ModelError, ProviderError, SpecError, TunerError
from core.worker.session import Built
from core.worker.session.feeds import Array, Feeds, make_feeds
from core.worker.session.feeds.wanted import BFLOAT16
from core.worker.session.torch_programs import TORCH_ERRORS, Program, first_line, rebuild

_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_CACHE_PREFIX = "ortune-inductor-"
_ORT_NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltProgram(Built):
    """A program ready to run; the engine takes the place of the provider, and there is no fallback."""

    engine: str
    program: Program
    run: Callable[..., Any]  # the program, or its compiled form
    outputs: list[str]

    @property
    def on_cpu(self) -> bool:
        """PyTorch runs on the CPU here."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchInference:
    """A program with its inputs in place: `call` is one inference."""

    built: BuiltProgram
    call: Callable[[], object]
    inputs: list[wire.TensorInfo]
    notes: list[str]

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that compute, by name."""
        return {"torch": torch.__version__, "numpy": np.__version__}

    def outputs(self, result: object) -> list[wire.TensorInfo]:
        """Describe the outputs of a call from its return value."""
        return [
            {"name": name, "dtype": str(one.dtype).removeprefix("torch."), "shape": list(one.shape)}
            for name, one in self._outputs_by_name(result).items()
        ]

    def arrays(self, result: object) -> dict[str, Array]:
        """Return a call's outputs as numpy arrays, by the exported file's names; bfloat16 becomes float32."""
        return {
            name: (one.float() if one.dtype == torch.bfloat16 else one).numpy(force=True)
            for name, one in self._outputs_by_name(result).items()
        }

    def with_inputs(self, feeds: wire.FeedPlan) -> TorchInference:
        """Return the same program with other inputs.

        Raises:
            TunerError: as for `contender`.
        """
        return _in_place(self.built, feeds)

    def _outputs_by_name(self, result: object) -> dict[str, torch.Tensor]:
        tensors = [one for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        names = self.built.outputs
        if len(names) != len(tensors):  # the exporter dropped or added one: only positions are left as names
            names = [f"output {number}" for number in range(len(tensors))]
        return dict(zip(names, tensors, strict=True))


def contender(plan: wire.ContestantPlan, layout: object = None) -> TorchInference:
    """Rebuild the program of `plan` and put its inputs in place. Compilation happens in the first call.

    Args:
        plan: what to run.
        layout: applied already, except to the inputs: PyTorch allocates its own tensors.

    Raises:
        SpecError: a setting of ONNX Runtime's session, or an input value that does not fit.
        ModelError: the program cannot be rebuilt; see `torch_programs.rebuild`.
    """
    source = plan["torch"]
    if source is None:
        raise SpecError(
            f"The engine `{plan['engine']}` needs a PyTorch model, but none is known for this file.",
            hint="Convert the PyTorch model with `ortune convert` first.",
        )
    _refuse_settings(plan)
    began = time.perf_counter()
    program = rebuild(source)
    run = program.run
    if plan["engine"] == "torch-compile":
        _fresh_cache()
        run = torch.compile(run)
    built = BuiltProgram(
        engine=plan["engine"],
        program=program,
        run=run,
        outputs=source["outputs"],
        creation_s=time.perf_counter() - began,
        requested=[plan["engine"]],
        effective=[plan["engine"]],
    )
    return _in_place(built, plan["feeds"])


def _refuse_settings(plan: wire.ContestantPlan) -> None:
    """Refuse ONNX Runtime settings, which PyTorch would ignore; the parent refuses them already."""
    session = plan["session"]
    asked = [*session["attributes"], *session["config_entries"], *session["run_config_entries"]]
    asked += [*session["free_dimension_overrides"], *session["disabled_optimizers"]]
    asked += [one["name"] for one in session["providers"] if one["name"] != "CPUExecutionProvider"]
    for name in asked:
        engines.require(plan["engine"], "settings", of=f": `{name}`")
    if plan["use_io_binding"]:
        engines.require(plan["engine"], "bind")


def _fresh_cache() -> None:
    """Give the compiler an empty cache: kernels of an earlier process would make its cold start look warm.

    It lies in the worker's folder for temporary files, which the parent removes.
    """
    os.environ[_CACHE_VARIABLE] = tempfile.mkdtemp(prefix=_CACHE_PREFIX)


# --- inputs and the call ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """An input in the form that `make_feeds` expects of a session."""

    name: str
    type: str


def _in_place(built: BuiltProgram, plan: wire.FeedPlan) -> TorchInference:
    feeds = make_feeds(plan, [_declared(one) for one in plan["inputs"]])
    tensors = [_tensor(array, feeds.dtypes[name]) for name, array in feeds.arrays.items()]
    args, kwargs = built.program.arguments(tensors)
    return TorchInference(
        built=built,
        call=_call(built, args, kwargs),
        inputs=[
            {"name": name, "dtype": feeds.dtypes[name], "shape": list(array.shape)}
            for name, array in feeds.arrays.items()
        ],
        notes=_notes(built, feeds),
    )


def _declared(one: wire.InputPlan) -> _Declared:
    return _Declared(name=one["name"], type=f"tensor({_ORT_NAMES.get(one['dtype'], one['dtype'])})")


def _tensor(array: Array, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == BFLOAT16 else tensor


def _call(built: BuiltProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], object]:
    """Return one inference as a careful user writes it; an error handler is free until an error occurs."""
    run = built.run

    def call() -> object:
        try:
            with torch.inference_mode():
                return run(*args, **kwargs)
        except TORCH_ERRORS as error:
            raise _run_error(built.engine, error) from error

    return call


def _run_error(engine: str, error: Exception) -> TunerError:
    if engine == "torch-compile" and isinstance(error, torch._dynamo.exc.TorchDynamoException):
        return ProviderError(
            f"`torch.compile` failed: {first_line(error)}",
            hint="Install a C++ compiler such as g++, or use the engine `torch-eager`.",
        )
    return ModelError(
        f"PyTorch cannot run the model on these inputs: {first_line(error)}",
        hint="Use the shapes that the model was exported for.",
    )


def _notes(built: BuiltProgram, feeds: Feeds) -> list[str]:
    threads = torch.get_num_threads()
    how = "compiled by inductor" if built.engine == "torch-compile" else "run eagerly"
    return [
        f"PyTorch {torch.__version__} on the CPU, {how}, with its default of {threads} "
        f"thread{'s' * (threads != 1)}.",
        *built.program.notes,
        *feeds.notes,
    ]
