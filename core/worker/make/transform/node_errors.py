"""The job `node_errors`: find where a quantized variant loses accuracy. Worker side.

Two numbers for each operator. Alone: the variant is made again with only that operator quantized, with the
same ranges, and its outputs are compared with the float model's. Accumulated: the operator's own output in
the whole variant is compared with that value of the float model; it includes errors of earlier operators.
Alone runs with the default optimizations, so that a kernel of this CPU that clips counts. Accumulated runs
without optimizations, because those would remove the inner values.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from onnx import ModelProto, NodeProto, ValueInfoProto

from core.wire import NodeError, NodeErrorsPlan, NodeErrorsReply, Progress
from core.wire.errors import ModelError, SpecError
from core.worker.make.transform.distance import (
    AS_RUN,
    PLAIN,
    Array,
    Distance,
    arrays_of,
    distance,
    open_session,
    run,
    runs,
)
from core.worker.make.transform.model_io import load_whole, write_whole
from core.worker.make.transform.quantization import is_quantized
from core.worker.make.transform.quantizer import STEPS, Quantizer, prepare, source_name
from core.worker.make.transform.tools import tool_errors
from core.worker.models import read_model
from core.worker.models.graphs import graphs_of, make_names_unique, nodes_of, tensor_bytes
from core.worker.session import set_operator_libraries

_AT_ONCE = 16  # values of a run that are in memory together
_ABSORBED = ("Relu", "Clip")  # a quantizer merges these into the rounding of the operator before them
_DEQUANTIZED = "_DequantizeLinear_Output"  # suffix that the static quantizer appends to a value's name

Feeds = Sequence[Mapping[str, Array]]


def node_errors(plan: NodeErrorsPlan, progress: Progress) -> NodeErrorsReply:
    """Measure the effect of quantizing each operator on the outputs.

    Args:
        plan: the float model, the variant, and the variant's options.
        progress: receives the stages "prepare", "calibrate" and "nodes".

    Raises:
        SpecError: the variant comes from a step that does not quantize, an option does not fit, or a library
            is not allowed.
        ModelError: a model cannot be read or run, or the two do not belong together.
        WorkerError: there is not enough memory.
    """
    if plan["step"] not in STEPS:
        raise SpecError(
            f"The step `{plan['step']}` does not quantize, so there is no error of single operators.",
            hint=f"Choose a variant whose last step is one of {', '.join(STEPS)}.",
        )
    started = time.monotonic()
    source, variant = Path(plan["float_path"]), Path(plan["quantized_path"])
    libraries = set_operator_libraries(plan.get("custom_op_libraries", []))
    with TemporaryDirectory(prefix="ortune-nodes-") as folder:
        quantizer = prepare(
            plan["step"], source, Path(folder), plan["options"], plan["feeds"], plan["calibration"], progress
        )
        nodes = _quantized_nodes(quantizer, read_model(variant))
        session = open_session(source, PLAIN)
        feeds = arrays_of(plan["feeds"], session)
        reference = list(runs(session, feeds))
        del session  # one session at a time
        whole = distance(open_session(variant, AS_RUN), feeds, reference)
        alone = _alone(quantizer, nodes, feeds, reference, progress)
        with tool_errors("compare the values inside the models"):
            accumulated = _accumulated(quantizer.model, variant, nodes, feeds)
        return {
            "nodes": _reply_rows(source, quantizer.model, nodes, alone, accumulated),
            "whole": whole,
            "seconds": time.monotonic() - started,
            "notes": _notes(quantizer, len(nodes) - len(alone)),
            "libraries": libraries,
        }


def _quantized_nodes(quantizer: Quantizer, variant: ModelProto) -> list[NodeProto]:
    """Return the nodes that the variant may have quantized, named as in the float model.

    In static INT8 those are the readers of dequantized values; otherwise the nodes with weights of their own.
    """
    model = read_model(quantizer.model)
    candidates = set(quantizer.nodes)
    nodes = [node for node in nodes_of(model) if node.name in candidates]
    if quantizer.step == "int8_static":
        dequantized = {one.output[0] for one in nodes_of(variant) if one.op_type == "DequantizeLinear"}
        reading = {one.name for one in nodes_of(variant) if dequantized & {*one.input}}
        found = [node for node in nodes if node.name in reading]
    else:
        stored = {one.name for graph in graphs_of(model) for one in graph.initializer}
        found = [node for node in nodes if stored & {*node.input}]
    if not found:
        raise ModelError(
            "The variant has no quantized node that the float model has too.",
            hint="Compare it with the model that its quantization started from.",
        )
    return found


def _alone(
    quantizer: Quantizer, nodes: Sequence[NodeProto], feeds: Feeds, reference: Feeds, progress: Progress
) -> dict[str, float]:
    """Return {node: error of the outputs when only it is quantized}; without those that stay float then."""
    found: dict[str, float] = {}
    for index, node in enumerate(nodes):
        progress("nodes", index, len(nodes), node.name)
        with TemporaryDirectory(prefix="alone-", dir=quantizer.model.parent) as folder:
            draft = Path(folder) / "alone.onnx"
            quantizer.write(draft, [node.name])
            if is_quantized(draft):
                found[node.name] = distance(open_session(draft, AS_RUN), feeds, reference)
    progress("nodes", len(nodes), len(nodes))
    return found


def _reply_rows(
    source: Path,
    model: Path,
    nodes: Sequence[NodeProto],
    alone: Mapping[str, float],
    accumulated: Mapping[str, float],
) -> list[NodeError]:
    """Return the rows of the reply, with the node names of the user's model."""
    author = read_model(source)
    make_names_unique(author)
    names = {node.name for node in nodes_of(author)}
    weights = (one for graph in graphs_of(read_model(model)) for one in graph.initializer)
    sizes = {one.name: tensor_bytes(one) for one in weights}
    return [
        {
            "name": source_name(node.name, names),
            "op_type": node.op_type,
            "alone": alone[node.name],
            "accumulated": accumulated.get(node.name),
            "weight_bytes": sum(sizes.get(name, 0) for name in node.input),
        }
        for node in nodes
        if node.name in alone
    ]


def _notes(quantizer: Quantizer, quiet_nodes: int) -> list[str]:
    notes = [*quantizer.notes]
    if quantizer.calibrated is not None:
        notes += [check["text"] for check in quantizer.calibrated.checks]
    if quiet_nodes:
        notes.append(
            f"{quiet_nodes} nodes only pass on values that other nodes have rounded, so they add no error"
        )
    return notes


# inner values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The same value in both models."""

    node: str
    ours: str  # its name in the float model
    theirs: str  # in the variant


def _accumulated(model: Path, variant: Path, nodes: Sequence[NodeProto], feeds: Feeds) -> dict[str, float]:
    """Return {node: error of its own output inside the variant}; without those whose value is missing."""
    pairs = list(_pairs(read_model(model), read_model(variant), nodes))
    distances = {pair.node: Distance() for pair in pairs}
    float_model = model.with_name("float_values.onnx")
    _expose(model, float_model, {pair.ours for pair in pairs})
    variant_model = model.with_name("variant_values.onnx")
    _expose(variant, variant_model, {pair.theirs for pair in pairs})
    ours, theirs = open_session(float_model, PLAIN), open_session(variant_model, PLAIN)
    for arrays in feeds:
        for start in range(0, len(pairs), _AT_ONCE):
            part = pairs[start : start + _AT_ONCE]
            expected = run(ours, arrays, sorted({pair.ours for pair in part}))
            got = run(theirs, arrays, sorted({pair.theirs for pair in part}))
            for pair in part:
                distances[pair.node].add({"": expected[pair.ours]}, {"": got[pair.theirs]})
    return {name: one.value for name, one in distances.items()}


def _pairs(model: ModelProto, variant: ModelProto, nodes: Sequence[NodeProto]) -> Iterator[_Pair]:
    made = {name for node in variant.graph.node for name in node.output}
    main = {node.name for node in model.graph.node}
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in nodes:
        value = next(name for name in node.output if name)  # an LSTM may have only its last state
        followers = readers.get(value, [])
        if value not in made and len(followers) == 1 and followers[0].op_type in _ABSORBED:
            value = followers[0].output[0]
        theirs = next((name for name in (f"{value}{_DEQUANTIZED}", value) if name in made), None)
        if node.name in main and theirs is not None:
            yield _Pair(node=node.name, ours=value, theirs=theirs)


def _expose(model: Path, target: Path, names: set[str]) -> None:
    """Write a copy of `model` to `target` that has these values as additional outputs."""
    whole = load_whole(model)
    known = {one.name for one in whole.graph.output}
    whole.graph.output.extend(ValueInfoProto(name=name) for name in sorted(names - known))
    write_whole(whole, target)
