"""The job `graph`: nodes and tensors of a model, without weights, and of the graph ONNX Runtime makes of it.

Shapes and types come from the file and from ONNX's shape inference; others stay unknown. The output is
bounded: no weights, clipped texts, and an error for a model with too many nodes to display.
"""

from __future__ import annotations

import ast
import contextlib
import tempfile
import time
from collections import ChainMap, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from core import wire
from core.wire import Progress
from core.wire.errors import HOME_HINT, ModelError, StoreError
from core.wire.files import written_whole
from core.wire.graph import VERSION, Graphs, Level, Node, Side, Tensor
from core.worker.models import read_model
from core.worker.models.graphs import (
    bodies_of,
    dtype_name,
    graphs_of,
    name_nodes,
    named_copy,
    op_name,
    tensor_bytes,
    tensor_elements,
    type_text,
)
from core.worker.models.origins import MatchedNode, matched_graphs

if TYPE_CHECKING:
    from core.worker.session import BuiltSession

MOST_NODES = 50_000  # bodies included; the reply for such a model has some tens of megabytes
MOST_NAMES = 200  # listed inputs or outputs of one node
NAME, TEXT = 300, 160  # characters
ATTRIBUTES = 40
SCOPES = 12
SMALL = 1024  # elements of a weight that shape inference may need
_INFERENCE_ERRORS = (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError, MemoryError)

_TORCH_SCOPES = "pkg.torch.onnx.name_scopes"  # of a node: its enclosing modules, as text of a Python list

_OriginsByGraph = dict[
    int, tuple[GraphProto, GraphProto, list[MatchedNode]]
]  # by the id of an optimized graph
_KnownTensors = ChainMap[str, Tensor]  # by name; a body also sees the names around it


def describe_graphs(plan: wire.GraphPlan, progress: Progress) -> wire.GraphReply:
    """Write a model's graph, and the one that ONNX Runtime runs, to `plan["output"]`.

    Args:
        plan: the model, the session, and the path of the result.
        progress: receives the stages "read" and "optimize".

    Raises:
        ModelError: the file cannot be read or loaded, or has more than `MOST_NODES` nodes.
        TunerError: the session cannot be built, or its graph cannot be saved.
        StoreError: the result cannot be written.
    """
    progress("read", 0, 1)
    file = Path(plan["model_path"])
    model = read_model(file, any_version="saved" in plan)
    _check_size(model, file)
    renamed = name_nodes(model, as_profiled=True)
    optimized, effective, notes = None, list[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="ortune-", ignore_cleanup_errors=True) as folder:
        if plan["session"] is not None:
            progress("optimize", 0, 1)
            path = named_copy(model, file, Path(folder), notes) if renamed else file
            built, saved = _saved(path, plan["session"], Path(folder))
            effective, optimized = built.effective, saved
        elif (kept := plan.get("saved")) is not None:
            optimized = onnx.load(kept["path"], load_external_data=False)
            effective, notes = kept["effective_providers"], kept["notes"]
        _drop_weights(model)
        matched = {} if optimized is None else _matched(model, optimized)
        graphs = Graphs(
            version=VERSION,
            model=_side(model, {}, notes_of=file),
            optimized=None if optimized is None else _side(optimized, matched),
            effective_providers=tuple(effective),
            notes=tuple(notes),
            created_at=time.time(),
        )
    _write(Path(plan["output"]), graphs)
    return {
        "output": plan["output"],
        "nodes": graphs.model.count,
        "optimized_nodes": None if graphs.optimized is None else graphs.optimized.count,
    }


def _check_size(model: ModelProto, file: Path) -> None:
    nodes = sum(len(graph.node) for graph in graphs_of(model))
    if nodes > MOST_NODES:
        raise ModelError(
            f"`{file.name}` has {nodes:,} nodes; at most {MOST_NODES:,} can be drawn.",
            hint="Simplify the model, or cut out the part that matters; `inspect` counts its operators.",
        )


# --- optimized graph ----------------------------------------------------------------------------------------


def _saved(path: Path, session: wire.SessionPlan, folder: Path) -> tuple[BuiltSession, ModelProto]:
    """Build the session and read the graph that it saves."""
    from core.worker.session import build_session
    from core.worker.session.job_session import check_saved, saving_graph

    saved = folder / ".optimized.onnx"
    built = build_session(str(path), saving_graph(session, str(saved)))
    check_saved(saved)
    return built, onnx.load(str(saved), load_external_data=False)


def _matched(model: ModelProto, optimized: ModelProto) -> _OriginsByGraph:
    """Return the origin of each optimized graph and its nodes; it holds the graph to keep its id valid."""
    return {id(graph): (graph, own, nodes) for _, own, graph, nodes in matched_graphs(model, optimized)}


# --- description of a graph ---------------------------------------------------------------------------------


def _drop_weights(model: ModelProto) -> None:
    """Drop values that no shape depends on, so that inference needs little memory."""
    for graph in graphs_of(model):
        for tensor in graph.initializer:
            if tensor_elements(tensor) > SMALL:
                for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                    tensor.ClearField(field)


def _side(model: ModelProto, matched: _OriginsByGraph, *, notes_of: Path | None = None) -> Side:
    """Describe one graph with its bodies, and shapes as far as they are known.

    Args:
        model: the graph, without the values of its large weights.
        matched: the origins of its nodes; empty for the model's own graph.
        notes_of: name of the file in the note that its shapes cannot be inferred.
    """
    notes = []
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False)
    except _INFERENCE_ERRORS as error:
        inferred = model
        said = " ".join(str(error).split())[:TEXT]
        what = f"`{notes_of.name}`" if notes_of is not None else "the optimized graph"
        notes.append(f"The shapes inside of {what} could not be inferred: {said}")
    pairs = zip(_levels(model.graph), _levels(inferred.graph), strict=True)
    around: list[_KnownTensors] = []
    levels = []
    for (path, role, holder, graph), (*_, typed) in pairs:
        outer = [] if holder is None else around[holder].maps
        around.append(ChainMap(_tensors(typed), *outer))
        _, own, nodes = matched.get(id(graph), (graph, graph, []))
        levels.append(_level(path, role, graph, around[-1], [_original_names(one, own) for one in nodes]))
    return Side(levels=tuple(levels), notes=tuple(notes))


def _original_names(one: MatchedNode, own: GraphProto) -> tuple[tuple[str, ...], bool]:
    return tuple(_clip(own.node[index].name, NAME) for index in one.covered), one.inserted


def _levels(graph: GraphProto) -> Iterator[tuple[tuple[str, ...], str, int | None, GraphProto]]:
    """Yield `graph` and every body in a node of it, outermost first: path, role, owner, graph.

    The owner is identified by its number in this order: both branches of an If have the same path.
    """
    waiting = deque[tuple[tuple[str, ...], str, int | None, GraphProto]]([((), "", None, graph)])
    for number in count():
        if not waiting:
            return
        path, role, holder, graph = waiting.popleft()
        yield path, role, holder, graph
        for node in graph.node:
            for attribute in node.attribute:
                bodies = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
                waiting.extend(((*path, node.name), attribute.name, number, body) for body in bodies)


def _level(
    path: tuple[str, ...],
    role: str,
    graph: GraphProto,
    known: Mapping[str, Tensor],
    does: Sequence[tuple[tuple[str, ...], bool]],
) -> Level:
    nodes = []
    used: dict[str, None] = {}
    for index, node in enumerate(graph.node):
        of, inserted = does[index] if index < len(does) else ((), False)
        drawn = _node(node, index, of, inserted=inserted)
        used |= dict.fromkeys((*drawn.inputs, *drawn.outputs, *drawn.captured))
        nodes.append(drawn)
    weights = {one.name for one in graph.initializer}
    inputs = tuple(_clip(one.name, NAME) for one in graph.input if one.name not in weights)
    outputs = tuple(_clip(one.name, NAME) for one in graph.output)
    used |= dict.fromkeys((*inputs, *outputs))
    return Level(
        path=tuple(_clip(one, NAME) for one in path),
        role=role,
        inputs=inputs,
        outputs=outputs,
        nodes=tuple(nodes),
        tensors=tuple(
            known.get(name) or Tensor(name=name, dtype="unknown", shape=None, weight_bytes=None)
            for name in used
            if name
        ),
    )


def _node(node: NodeProto, index: int, does: tuple[str, ...], *, inserted: bool) -> Node:
    bodies = [one.name for one in node.attribute if one.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
    return Node(
        name=_clip(node.name or f"{node.op_type}_{index}", NAME),
        scope=_scope(node),
        op_type=_clip(op_name(node), NAME),
        inputs=tuple(_clip(one, NAME) for one in node.input[:MOST_NAMES]),
        outputs=tuple(_clip(one, NAME) for one in node.output[:MOST_NAMES]),
        captured=tuple(_captured(node)[:MOST_NAMES]) if bodies else (),
        attributes={_clip(one.name, TEXT): _attribute(one) for one in node.attribute[:ATTRIBUTES]},
        bodies=tuple(bodies),
        does=does,
        inserted=inserted,
    )


def _scope(node: NodeProto) -> tuple[str, ...]:
    """Return the modules around a node, outermost first, from PyTorch's exporter or else from its name."""
    told = next((one.value for one in node.metadata_props if one.key == _TORCH_SCOPES), "")
    parts = [part for part in node.name.split("/") if part][:-1]
    if told:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            scopes = ast.literal_eval(told)
            parts = [str(one) for one in scopes[:-1] if one] if isinstance(scopes, list) else parts
    return tuple(_clip(part, TEXT) for part in parts[:SCOPES])


def _captured(node: NodeProto) -> list[str]:
    """Return the tensors that the bodies of `node` read from outer graphs."""
    found: dict[str, None] = {}
    for body in bodies_of(node):
        own = {one.name for one in (*body.input, *body.initializer)}
        own |= {name for inner in body.node for name in inner.output}
        taken = [name for inner in body.node for name in (*inner.input, *_captured(inner))]
        taken += [one.name for one in body.output]
        found |= dict.fromkeys(_clip(name, NAME) for name in taken if name and name not in own)
    return list(found)


def _attribute(one: AttributeProto) -> str:
    """Format an attribute's value in a few words; tensors and graphs by type and shape."""
    match one.type:
        case AttributeProto.TENSOR:
            dims = ",".join(map(str, one.t.dims))
            text = f"{dtype_name(one.t.data_type)}[{dims}]"
            return f"{text} {_values(one.t)}".rstrip()
        case AttributeProto.GRAPH:
            return f"a graph of {len(one.g.node):,} nodes"
        case AttributeProto.STRING:
            return _clip(one.s.decode("utf-8", "replace"), TEXT)
        case AttributeProto.INT | AttributeProto.FLOAT:
            return f"{one.i}" if one.type == AttributeProto.INT else f"{one.f:.6g}"
        case AttributeProto.INTS:
            return _clip(f"[{', '.join(map(str, one.ints[:TEXT]))}]", TEXT)
        case AttributeProto.FLOATS:
            return _clip(f"[{', '.join(f'{value:.6g}' for value in one.floats[:TEXT])}]", TEXT)
        case AttributeProto.STRINGS:
            return _clip(", ".join(value.decode("utf-8", "replace") for value in one.strings[:TEXT]), TEXT)
        case _:
            return str(AttributeProto.AttributeType.Name(one.type)).lower()


def _values(tensor: TensorProto) -> str:
    """Return the values of a small tensor; empty for a larger one."""
    if tensor_elements(tensor) > 8 or tensor.data_location == TensorProto.EXTERNAL:
        return ""
    try:
        return _clip(f"= {onnx.numpy_helper.to_array(tensor).tolist()}", TEXT)
    except (ValueError, TypeError):
        return ""


def _tensors(graph: GraphProto) -> dict[str, Tensor]:
    """Return every tensor of one graph about which something is known, by clipped name."""
    found = [_tensor(one) for one in (*graph.value_info, *graph.input, *graph.output) if one.name]
    found += [_weight(one) for one in graph.initializer]
    found += [replace(_weight(one.values), shape=tuple(one.dims)) for one in graph.sparse_initializer]
    return {one.name: one for one in found}


def _tensor(value: ValueInfoProto) -> Tensor:
    name = _clip(value.name, NAME)
    if not value.type.HasField("tensor_type"):
        dtype = type_text(value.type) if value.type.WhichOneof("value") else "unknown"
        return Tensor(name=name, dtype=dtype, shape=None, weight_bytes=None)
    tensor = value.type.tensor_type
    shape: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else _clip(str(dim.dim_param), TEXT) or "?"
            for dim in tensor.shape.dim
        )
    return Tensor(name=name, dtype=dtype_name(tensor.elem_type), shape=shape, weight_bytes=None)


def _weight(tensor: TensorProto) -> Tensor:
    try:
        size = tensor_bytes(tensor)
    except KeyError:  # strings
        size = sum(map(len, tensor.string_data))
    return Tensor(
        name=_clip(tensor.name, NAME),
        dtype=dtype_name(tensor.data_type),
        shape=tuple(tensor.dims),
        weight_bytes=size,
    )


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _write(path: Path, graphs: Graphs) -> None:
    try:
        with written_whole(path) as draft:
            draft.write_bytes(msgspec.json.encode(graphs))
    except OSError as error:
        raise StoreError(
            f"The graph cannot be kept in `{path}`: {error.strerror or error}.",
            hint=HOME_HINT,
        ) from error
