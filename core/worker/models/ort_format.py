"""Inspect a file in ORT format (`.ort`): `describe` returns the same facts as for an `.onnx`. Worker side.

It uses the classes that ONNX Runtime generates from its flatbuffers schema and ships. The offsets in a
flatbuffer are not validated, so a damaged or hostile file shows as an error while reading.
"""

from __future__ import annotations

import math
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime

from core.wire import InputInfo, ModelInfo
from core.wire.errors import ModelError
from core.worker.models.dimensions import RawDim, address, find_batch, free_dims
from core.worker.models.graphs import domain_name, dtype_name, full_name

IDENTIFIER = b"ORTM"  # at offset 4
_DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)
_TENSOR, _SEQUENCE, _MAP = 1, 2, 3  # fbs.TypeInfoValue
_VALUE, _NAME = 1, 2  # fbs.DimensionValueType
_GRAPH, _GRAPHS = 5, 10  # fbs.AttributeType, the numbers of ONNX
_NOT_WEIGHTS = (7, 8, 9)  # int64, string, bool: shapes, indices and tables
_DEEPEST = 64  # nesting of bodies; a hostile file could refer to itself


_LARGEST_FLATBUFFER = 2**31  # bytes: offsets reach no further, and later bytes are not read


def is_ort_format(file: Path) -> bool:
    """Whether `file` begins like one in ORT format; False if it cannot be read."""
    try:
        if not file.is_file():  # reading a pipe would block
            return False
        with file.open("rb") as stream:
            return stream.read(8)[4:] == IDENTIFIER
    except OSError:
        return False


def describe(file: Path, sha256: str) -> ModelInfo:
    """Describe `file`, which begins like one in ORT format.

    Args:
        file: the model; it has no external data.
        sha256: of the file.

    Raises:
        ModelError: it is damaged.
    """
    try:
        return _described(file, sha256)
    except _DAMAGE:
        raise ModelError(
            f"`{file.name}` is in ORT format, but damaged: a part of it makes no sense.",
            hint="Copy the file again, or make it anew from the `.onnx` model.",
        ) from None


def _described(file: Path, sha256: str) -> ModelInfo:
    with file.open("rb") as stream:
        data = stream.read(_LARGEST_FLATBUFFER)
    model = _classes().InferenceSession.InferenceSession.GetRootAs(data, 0).Model()
    graph = model.Graph()
    types = {_text(one.Name()): one.Type() for one in _each(graph, "NodeArgs")}
    stored = {_text(one.Name()) for one in _each(graph, "Initializers")}
    graphs = list(_graphs(graph, 0))
    inputs = [_info(name, types) for name in _names(graph, "Inputs") if name not in stored]
    counts = Counter(
        full_name(_text(node.OpType()), _text(node.Domain()))
        for one in graphs
        for node in _each(one, "Nodes")
    )
    batch = find_batch(inputs)
    return {
        "path": str(file),
        "sha256": sha256,
        "content_sha256": sha256,
        "size_bytes": file.stat().st_size,
        "ir_version": model.IrVersion(),
        "opset": {domain_name(_text(one.Domain())): one.Version() for one in _each(model, "OpsetImport")},
        "producer": f"{_text(model.ProducerName())} {_text(model.ProducerVersion())}".strip(),
        "inputs": inputs,
        "outputs": [_info(name, types) for name in _names(graph, "Outputs")],
        "free_dims": free_dims(inputs),
        "batch_dim": batch.dim,
        "batch_axes": batch.axes,
        "fixed_batch": batch.fixed,
        "nodes": counts.total(),
        "op_counts": dict(counts.most_common()),
        "parameters": sum(_elements(one) for graph in graphs for one in _each(graph, "Initializers")),
        "external_data": [],
        "metadata": {_text(one.Key()): _text(one.Value()) for one in _each(model, "MetadataProps")},
    }


def _classes() -> Any:
    """Import the generated classes with their folder on the path: they use absolute imports."""
    folder = str(Path(onnxruntime.__file__).parent / "tools" / "ort_format_model")
    if folder not in sys.path:
        sys.path.append(folder)
    from ort_flatbuffers_py import fbs
    from ort_flatbuffers_py.fbs import InferenceSession  # noqa: F401 - a submodule that `fbs` does not load

    return fbs


def _each(owner: Any, name: str) -> Iterator[Any]:
    """Return the members of a vector; none if the vector is absent."""
    for index in range(getattr(owner, f"{name}Length")()):
        yield getattr(owner, name)(index)


def _names(graph: Any, name: str) -> list[str]:
    return [_text(one) for one in _each(graph, name)]


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8")


def _graphs(graph: Any, depth: int) -> Iterator[Any]:
    """Yield the graph, and the bodies of its If, Loop and Scan."""
    if depth > _DEEPEST:
        raise ValueError("graphs refer to themselves")
    yield graph
    for node in _each(graph, "Nodes"):
        for attribute in _each(node, "Attributes"):
            if attribute.Type() == _GRAPH:
                yield from _graphs(attribute.G(), depth + 1)
            elif attribute.Type() == _GRAPHS:
                for body in _each(attribute, "Graphs"):
                    yield from _graphs(body, depth + 1)


def _elements(tensor: Any) -> int:
    if tensor.DataType() in _NOT_WEIGHTS:
        return 0
    return math.prod(int(tensor.Dims(axis)) for axis in range(tensor.DimsLength()))


# --- inputs and outputs -------------------------------------------------------------------------------------


def _info(name: str, types: dict[str, Any]) -> InputInfo:
    kind = types.get(name)
    if kind is None or kind.ValueType() != _TENSOR:
        return {"name": name, "dtype": _kind_text(kind), "shape": None}
    tensor = _tensor_type(kind)
    shape = tensor.Shape()
    dims = None
    if shape is not None:
        dims = [address(name, axis, _raw(dim.Value())) for axis, dim in enumerate(_each(shape, "Dim"))]
    return {"name": name, "dtype": dtype_name(tensor.ElemType()), "shape": dims}


def _tensor_type(kind: Any) -> Any:
    from ort_flatbuffers_py.fbs.TensorTypeAndShape import TensorTypeAndShape

    found = kind.Value()
    tensor = TensorTypeAndShape()
    tensor.Init(found.Bytes, found.Pos)
    return tensor


def _raw(value: Any) -> RawDim:
    if value is None:
        return None
    if value.DimType() == _VALUE:
        return int(value.DimValue())
    return _text(value.DimParam()) or None if value.DimType() == _NAME else None


def _kind_text(kind: Any) -> str:
    """Return the kind of an input that is not a tensor; the contents of a sequence or map do not matter."""
    number = 0 if kind is None else kind.ValueType()
    return {_SEQUENCE: "seq", _MAP: "map"}.get(number, "unknown")
