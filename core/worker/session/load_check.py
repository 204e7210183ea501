"""The job `load`: check that ONNX Runtime loads a model, on the CPU with its own defaults."""

from __future__ import annotations

from collections.abc import Sequence

import onnxruntime as ort

from core import wire
from core.worker.session import build_session


def load_model(path: str, libraries: Sequence[str] = ()) -> wire.LoadCheckReply:
    """Load the model at `path` and return the version of ONNX Runtime.

    Args:
        path: of the model.
        libraries: operator libraries, in the form of `access.resolve_library`.

    Raises:
        ModelError: ONNX Runtime refuses the model.
        SpecError: a library is not allowed or cannot be loaded.
        WorkerError: there is not enough memory.
    """
    built = build_session(path, {**wire.default_session_plan(), "custom_op_libraries": list(libraries)})
    return {"version": ort.__version__, "creation_s": built.creation_s, "libraries": built.libraries}
