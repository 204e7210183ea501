"""Read whole models with types and weights, and write them to one file or two.

Worker side. Models of any size work: nothing here serializes all weights in one piece.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import ModelProto, TensorProto

from core.wire.errors import ModelError
from core.worker.models import read_model
from core.worker.models.checking import ONE_FILE_BYTES
from core.worker.models.graphs import nodes_of, tensors_of
from core.worker.session.ort_errors import first_line

# Exceptions of ONNX's and ONNX Runtime's tools for models that they cannot handle: they validate little.
TOOL_ERRORS: tuple[type[Exception], ...] = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
_EMPTY_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


@contextlib.contextmanager
def refusal(complaint: str, hint: str) -> Iterator[None]:
    """Raise a `ModelError` for an exception of a tool; its first line follows `complaint`."""
    try:
        yield
    except TOOL_ERRORS as error:
        raise ModelError(f"{complaint}: {first_line(error)}", hint=hint) from None


def load_whole(source: Path, *, typed: bool = False) -> ModelProto:
    """Read a model with its weights.

    Args:
        source: the model; its external data must be checked already.
        typed: inline local functions, and infer the types of all values.

    Raises:
        ModelError: the file is not a model, or its parts contradict each other.
    """
    model = read_model(source)
    with refusal(
        f"`{source.name}` cannot be read whole",
        "Export the model again with its weights inside, or keep it as it is.",
    ):
        if typed:
            model = with_types(model)
        onnx.load_external_data_for_model(model, str(source.parent))
    return model


def with_types(model: ModelProto) -> ModelProto:
    """Return the model with local functions inlined and value types inferred.

    Call it before external weights are loaded: inference copies the model through a buffer of 2 GiB.
    """
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    inferred = onnx.shape_inference.infer_shapes(model)
    if all(node.domain in _EMPTY_DOMAINS for node in nodes_of(inferred)):
        return inferred
    # ONNX does not know ONNX Runtime's own operators, so it infers no type after them.
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference  # loads torch and sympy

    try:
        with TemporaryDirectory(prefix="ortune-shapes-") as folder, contextlib.chdir(folder):
            return SymbolicShapeInference.infer_shapes(inferred, auto_merge=True) or inferred  # leaves files
    except Exception:  # optional: it raises anything if it fails
        return inferred


def write_whole(model: ModelProto, draft: Path) -> None:
    """Write `model` to `draft`; weights beyond one file's limit go to `<draft>.data` next to it."""
    stored = sum(map(_stored_bytes, tensors_of(model)))
    onnx.save_model(
        model, str(draft), save_as_external_data=stored > ONE_FILE_BYTES, location=f"{draft.name}.data"
    )


def _stored_bytes(tensor: TensorProto) -> int:
    return (
        len(tensor.raw_data)
        + 4 * (len(tensor.float_data) + len(tensor.int32_data))
        + 8 * (len(tensor.int64_data) + len(tensor.double_data) + len(tensor.uint64_data))
    )
