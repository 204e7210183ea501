"""The job `load`: does ONNX Runtime load a model at all? On the CPU, with its own defaults."""

from __future__ import annotations

from collections.abc import Sequence

import onnxruntime as ort

from core import wire
from core.worker.session import build_session


def loads(path: str, libraries: Sequence[str] = ()) -> wire.LoadsReply:
    """Load the model at `path` and say which version of ONNX Runtime did.

    Args:
        path: of the model.
        libraries: that bring operators, as `doors.found_library` reads them.

    Raises:
        ModelError: ONNX Runtime refuses the model.
        SpecError: a library may not or cannot be loaded.
        WorkerError: there is not enough memory.
    """
    built = build_session(path, {**wire.nothing_asked(), "custom_op_libraries": list(libraries)})
    return {"version": ort.__version__, "creation_s": built.creation_s, "libraries": built.libraries}
