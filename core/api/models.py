"""Models of the Python API: a path, a name, bytes or an `onnx.ModelProto`, as a reference of the library."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol

from core.api.session import Session
from core.store.library import import_files

FROM_MEMORY = "model"  # name of a model that came as bytes; the library adds a number


class Serializable(Protocol):
    """What `onnx.ModelProto` offers; ORTune itself never loads onnx in the calling process."""

    def SerializeToString(self) -> bytes:  # the name of protobuf
        """Return the bytes of the ONNX file."""
        ...


ModelLike = str | os.PathLike[str] | bytes | Serializable


def reference(model: ModelLike | None, session: Session) -> str | None:
    """Return the reference of a model; one from memory is added to the library, once for its content.

    Args:
        model: path, library name, sample name or hash; the bytes of an ONNX file; or an `onnx.ModelProto`.
        session: holds the library.

    Raises:
        ModelError: the bytes are no ONNX model.
    """
    if model is None or isinstance(model, str):
        return model
    if isinstance(model, os.PathLike):
        return os.fspath(model)
    content = model if isinstance(model, bytes) else model.SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{FROM_MEMORY}.onnx"
        path.write_bytes(content)
        return import_files(session.store, [path], name=FROM_MEMORY, move=True, run=session.inspect)[0].path
