"""Inspect model files: `inspect_model` describes one; `read_model` refuses what ONNX Runtime cannot load.

Runs in a worker, because model files are untrusted. The files of external weights are checked for location
and length and hashed, but never loaded. `dimensions` names the free dimensions and finds the batch; `ranges`
finds the random values that an input can take.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from core.wire import ExternalDataReply, ExternalFile, InputInfo, ModelInfo
from core.wire.errors import ModelError
from core.wire.files import content_sha256, sha256_of
from core.wire.runtime import check_versions
from core.worker.models.dimensions import RawDim, address, find_batch, free_dims
from core.worker.models.functions import expanded_nodes
from core.worker.models.graphs import (
    domain_name,
    dtype_name,
    external_tensors,
    nodes_of,
    op_name,
    tensor_bytes,
    tensor_elements,
    tensors_of,
    type_text,
)
from core.worker.models.ort_format import describe, is_ort_format
from core.worker.models.ranges import RangeFinder

MOST_NODES = 10_000_000  # with local functions expanded; the largest models in use have under a million

# Exceptions for messages whose bytes parse but make no sense: text that is not UTF-8, unknown types.
_DAMAGE = (TypeError, ValueError, LookupError, AttributeError, OverflowError, RuntimeError)
_LARGEST_PROTOBUF = 2**31 - 1
# First bytes of other file formats: (offset, bytes, format, remedy).
_OTHER_FORMATS = (
    (
        4,
        b"ORTM",
        "is in ORT format, which can be run, but not changed or explained",
        "Give the `.onnx` file that it was made from.",
    ),
    (
        0,
        b"PK\x03\x04",
        "is a zip archive, not an ONNX file",
        "If it is a PyTorch `.pt2`, export it first.",
    ),
    (0, b"\x89HDF", "is an HDF5 file, not an ONNX file", "Convert the Keras model to ONNX first."),
    (4, b"TFL3", "is a TensorFlow Lite file, not an ONNX file", "Convert it to ONNX first."),
    (
        0,
        b"version https://git-lfs",
        "is a Git LFS pointer, not the model itself",
        "Run `git lfs pull` where the file came from.",
    ),
)


def inspect_model(path: str, *, any_version: bool = False) -> ModelInfo:
    """Describe the model in `path` without loading its external data.

    `nodes` and `op_counts` count the bodies of If, Loop and Scan; a call of a model-local function is one
    node. `parameters` counts the elements of every stored tensor of a floating or quantized type, constants
    in nodes included; whole-number and boolean tables (shapes, indices) are not weights.

    Raises:
        ModelError: the file is missing, is no ONNX model, is damaged, is newer than this ONNX Runtime, or
            names external data that is missing, too short or outside the model's folder.
    """
    file = Path(path)
    if is_ort_format(file):
        return describe(file, file_sha256(file))
    model = read_model(file, any_version=any_version)
    try:
        info = _described(model, file)
        json.dumps(info)  # text that is not UTF-8 would be bytes here, which the pipe cannot carry
        return info
    except _DAMAGE:
        raise ModelError(
            f"`{file.name}` is damaged: it parses, but a part of it makes no sense.",
            hint="Copy or export the model again.",
        ) from None


def external_locations(path: str) -> ExternalDataReply:
    """Return the files of external data that the model in `path` names; none of them is opened.

    Raises:
        ModelError: see `inspect_model`.
    """
    if is_ort_format(Path(path)):
        return {"locations": []}
    model = read_model(Path(path), any_version=True)
    named = (
        entry.value
        for tensor in external_tensors(model)
        for entry in tensor.external_data
        if entry.key == "location"
    )
    return {"locations": list(dict.fromkeys(named))}


def _described(model: ModelProto, file: Path) -> ModelInfo:
    external = _external_files(model, file)
    digest = file_sha256(file)
    inputs = _inputs(model)
    counts = Counter(op_name(node) for node in nodes_of(model))
    batch = find_batch(inputs)
    return {
        "path": str(file),
        "sha256": digest,
        "content_sha256": _content_sha256(digest, external),
        "size_bytes": file.stat().st_size + sum(one["size_bytes"] for one in external),
        "ir_version": model.ir_version,
        "opset": {domain_name(one.domain): one.version for one in model.opset_import},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "inputs": inputs,
        "outputs": [_info(value) for value in model.graph.output],
        "free_dims": free_dims(inputs),
        "batch_dim": batch.dim,
        "batch_axes": batch.axes,
        "fixed_batch": batch.fixed,
        "nodes": counts.total(),
        "op_counts": dict(counts.most_common()),
        "parameters": sum(tensor_elements(one) for one in tensors_of(model) if _is_weight(one)),
        "external_data": external,
        "metadata": {one.key: one.value for one in model.metadata_props},
    }


def read_model(file: Path, *, any_version: bool = False) -> ModelProto:
    """Parse `file` without its external data, and refuse what the installed ONNX Runtime cannot load.

    Args:
        file: the model.
        any_version: also read one that is too new for it, for another runtime.

    Raises:
        ModelError: see `inspect_model`.
    """
    _check_file(file)
    try:
        model = onnx.load_model(str(file), format="protobuf", load_external_data=False)
    except DecodeError:
        raise _unreadable(file) from None
    except OSError as error:
        raise _cannot_read(file, error) from None
    if not model.HasField("graph") or not model.ir_version:
        raise _unreadable(file)
    if not model.opset_import:
        raise ModelError(
            f"`{file.name}` names no opset: the file was cut short, or never finished.",
            hint="Copy or export the model again.",
        )
    if not model.graph.output:
        raise ModelError(
            f"The graph of `{file.name}` has no output, so there is nothing to run.",
            hint="Export the model with at least one output.",
        )
    if not any_version:
        opsets = [one.version for one in model.opset_import if domain_name(one.domain) == ""]
        check_versions(model.ir_version, max(opsets, default=0))
    if (nodes := expanded_nodes(model)) > MOST_NODES:
        raise ModelError(
            f"The local functions of `{file.name}` call each other so often that they unfold to {nodes:,} "
            f"nodes; {MOST_NODES:,} are allowed.",
            hint="Export the model again; what repeats is a Loop or a Scan.",
        )
    return model


def _check_file(file: Path) -> None:
    try:
        if file.is_dir():
            raise ModelError(
                f"`{file}` is a folder, not an ONNX file.", hint="Name the `.onnx` file inside it."
            )
        if not file.exists():
            raise ModelError(f"There is no file `{file}`.", hint="Check the path of the model.")
        if not file.is_file():
            raise ModelError(f"`{file}` is not a regular file.", hint="Name an `.onnx` file on disk.")
        size = file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        raise _cannot_read(file, error) from None
    if size == 0:
        raise ModelError(f"`{file.name}` is empty (0 bytes).", hint="Copy or export the model again.")
    for offset, magic, what, remedy in _OTHER_FORMATS:
        if head[offset:].startswith(magic):
            raise ModelError(f"`{file.name}` {what}.", hint=remedy)
    if size > _LARGEST_PROTOBUF:
        raise ModelError(
            f"`{file.name}` is {size / 2**30:.1f} GiB, but one ONNX file holds at most 2 GiB.",
            hint="Save the model with its weights as external data.",
        )


def _cannot_read(file: Path, error: OSError) -> ModelError:
    return ModelError(
        f"Cannot read `{file}`: {error.strerror or error}.", hint="Check the path and its permissions."
    )


def _unreadable(file: Path) -> ModelError:
    """A truncated ONNX file still begins with the IR version, field 1 of the protobuf message."""
    with file.open("rb") as stream:
        head = stream.read(2)
    if head[:1] == b"\x08" and 0 < head[-1] < 64:
        return ModelError(
            f"`{file.name}` begins like an ONNX file but is truncated or damaged.",
            hint="Copy or export the model again; the file is not complete.",
        )
    hint = "Choose a model in ONNX format (`.onnx`)."
    if file.suffix.lower() in (".yaml", ".yml"):
        hint = "A configuration is given with `--config`, or to `compare`."
    return ModelError(f"`{file.name}` is not an ONNX file.", hint=hint)


def _is_weight(tensor: TensorProto) -> bool:
    skipped = (TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING)
    return tensor.data_type not in skipped


def _inputs(model: ModelProto) -> list[InputInfo]:
    """Return the inputs without a value; older files list initializers among the inputs."""
    stored = {one.name for one in model.graph.initializer}
    stored |= {one.values.name for one in model.graph.sparse_initializer}
    finder = RangeFinder(model)
    found = []
    for value in model.graph.input:
        if value.name in stored:
            continue
        info = _info(value)
        bounds = finder.input_range(value)
        if bounds is not None:
            info["low"], info["high"] = float(bounds.low), float(bounds.high)
            info["range_reason"] = bounds.reason
        found.append(info)
    return found


def _info(value: onnx.ValueInfoProto) -> InputInfo:
    if not value.type.HasField("tensor_type"):
        return {"name": value.name, "dtype": type_text(value.type), "shape": None}
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = [address(value.name, axis, _raw(dim)) for axis, dim in enumerate(tensor.shape.dim)]
    return {"name": value.name, "dtype": dtype_name(tensor.elem_type), "shape": shape}


def _raw(dim: onnx.TensorShapeProto.Dimension) -> RawDim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None


def _external_files(model: ModelProto, file: Path) -> list[ExternalFile]:
    """Check and hash each file of external weights once, in order of appearance."""
    needed: dict[str, int] = {}
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            location, end = _external_extent(tensor)
            needed[location] = max(needed.get(location, 0), end)
    found: list[ExternalFile] = []
    for location, end in needed.items():
        target = _external_path(file, location)
        size = target.stat().st_size
        if size < end:
            raise ModelError(
                f"The external data `{location}` of `{file.name}` has {size} bytes, but {end} are needed.",
                hint="Copy that file again; it is truncated or belongs to another model.",
            )
        found.append({"location": location, "size_bytes": size, "sha256": file_sha256(target)})
    return found


def _external_extent(tensor: TensorProto) -> tuple[str, int]:
    """Return the file of an external tensor and the byte after its last one."""
    entries = {one.key: one.value for one in tensor.external_data}
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or tensor_bytes(tensor))
    except ValueError:
        offset = length = -1
    location = entries.get("location", "")
    if offset < 0 or length < 0 or not location:
        raise ModelError(
            f"The external data of tensor `{tensor.name}` names no place in a file.",
            hint="Export the model again.",
        )
    return location, offset + length


def _external_path(file: Path, location: str) -> Path:
    """Return the path of `location`; refuse one outside the model's folder, as ONNX Runtime does."""
    folder = file.parent
    target = folder / location
    windows = PureWindowsPath(location)
    if Path(location).is_absolute() or windows.drive or windows.root:
        raise _outside(file, location, "is not a relative path")
    if ".." in windows.parts:
        raise _outside(file, location, "points outside the model's folder")
    try:
        if not target.resolve().is_relative_to(folder.resolve()):
            raise _outside(file, location, "is a link that leads outside the model's folder")
        if target.is_file():
            return target
    except OSError as error:
        raise _cannot_read(target, error) from None
    raise ModelError(
        f"The external data `{location}` of `{file.name}` is missing.",
        hint=f"Put `{location}` into the folder of the model, or upload it together with the model.",
    )


def _outside(file: Path, location: str, why: str) -> ModelError:
    return ModelError(
        f"The external data `{location}` of `{file.name}` {why}.",
        hint="Put the real data files beside the model and save it with their plain names.",
    )


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of `file`, read in blocks, as `sha256sum` prints it."""
    with file.open("rb") as stream:
        return sha256_of(stream)


def _content_sha256(digest: str, external: list[ExternalFile]) -> str:
    """Return the identity of the model: its own hash, or with external data a hash over all files."""
    return content_sha256(digest, [(one["location"], one["sha256"]) for one in external])
