"""The job `load`: does ONNX Runtime load a model at all? On the CPU, with its own defaults."""

from __future__ import annotations

import onnxruntime as ort

from core import wire
from core.worker.session import build_session


def loads(path: str) -> wire.LoadsReply:
    """Load the model at `path` and say which version of ONNX Runtime did.

    Raises:
        ModelError: ONNX Runtime refuses the model.
        WorkerError: there is not enough memory.
    """
    built = build_session(path, wire.nothing_asked())
    return {"version": ort.__version__, "creation_s": built.creation_s}
