"""Count operators of a quantized model that run as integers in the graph that ONNX Runtime optimizes here.

A quantized file alone does not tell: pairs of QuantizeLinear and DequantizeLinear become integer kernels
only if the optimizer finds a pattern that it knows. Worker side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from core.wire import StepCheck
from core.worker.make.transform.distance import AS_RUN, open_session
from core.worker.models.graphs import graphs_of, nodes_of
from core.worker.session.job_session import weights_beside

CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")

# ONNX Runtime's integer operator -> the float operator that it replaces
_INTEGER = {
    "ConvInteger": "Conv",
    "QLinearConv": "Conv",
    "QLinearConvTranspose": "ConvTranspose",
    "MatMulInteger": "MatMul",
    "MatMulIntegerToFloat": "MatMul",
    "DynamicQuantizeMatMul": "MatMul",
    "QLinearMatMul": "MatMul",
    "MatMulNBits": "MatMul",
    "QGemm": "Gemm",
    "QAttention": "Attention",
    "DynamicQuantizeLSTM": "LSTM",
    "QEmbedLayerNormalization": "EmbedLayerNormalization",
    "GatherBlockQuantized": "Gather",
    **{
        f"QLinear{name}": name
        for name in (
            *("Add", "Mul", "Sigmoid", "LeakyRelu", "Softmax", "Concat", "Where"),
            *("AveragePool", "GlobalAveragePool", "ReduceMean"),
        )
    },
}
_FUSED = {"FusedConv": "Conv", "FusedMatMul": "MatMul", "FusedGemm": "Gemm"}  # float operators that do more
_SCAFFOLD = ("_scales_mul", "_output_scale_mul", "_bias_add", "_cast")  # a dynamic quantizer adds these
# Operators that compute nothing: a float one among them says nothing about the variant.
_MOVES = ("Shape", "Cast", "Expand", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Identity")
_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Attention", "LSTM", "GRU", "RNN")
_BYTES = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_CONV_INTEGER = (
    "{count} Conv run as ConvInteger, which ONNX Runtime computes without an optimized kernel on the CPU: "
    "several times as slow as the float32 they replace. Leave Conv out, or use static INT8"
)
_STAYED = (
    "{count} of {nodes} {op_type} stay in float32 although they were selected: their weights are not "
    "constant, or ONNX Runtime has no integer kernel for them here"
)


class IntegerFacts(NamedTuple):
    """Counts of integer and float operators."""

    # op type of the float model -> {"nodes": in that model, "integer", "float": in the graph that runs}
    operators: dict[str, dict[str, int]]
    conversions: int  # nodes of the optimized graph that only convert between floats and integers
    conv_integer: int  # slow convolutions among the integer nodes

    @property
    def sums_products(self) -> bool:
        """Whether any operator that multiplies and adds runs as integers."""
        return any(counts["integer"] for name, counts in self.operators.items() if name in _HEAVY)


def integer_facts(source: ModelProto, draft: Path, *, large: bool) -> IntegerFacts:
    """Count the integer nodes per operator type after ONNX Runtime has optimized `draft` for this CPU.

    Args:
        source: the float model; weights are not needed.
        draft: the quantized model.
        large: its weights do not fit in one file.

    Raises:
        ModelError: ONNX Runtime cannot load `draft`.
    """
    return counted(source, _optimized(draft, large=large))


def _optimized(draft: Path, *, large: bool) -> ModelProto:
    with TemporaryDirectory(prefix=".optimized-", dir=draft.parent) as folder:
        saved = Path(folder) / "optimized.onnx"
        open_session(draft, AS_RUN, weights_beside("optimized.data") if large else {}, save_to=saved)
        return onnx.load(saved, load_external_data=False)


def counted(source: ModelProto, optimized: ModelProto) -> IntegerFacts:
    """Count in graphs in memory; see `integer_facts`."""
    before = Counter(node.op_type for node in nodes_of(source))
    made_by_gemm = {name for node in nodes_of(source) if node.op_type == "Gemm" for name in node.output}
    integer: Counter[str] = Counter()
    floating: Counter[str] = Counter()
    found = list(_typed_nodes(optimized))
    for node, kinds in found:
        if node.op_type in CONVERSIONS or node.name.endswith(_SCAFFOLD):
            continue
        op_type = _original(node, made_by_gemm)
        if node.op_type in _INTEGER or (kinds & {*_BYTES} and not kinds & {*_FLOATS}):
            integer[op_type] += 1
        elif kinds & {*_FLOATS}:
            floating[op_type] += 1
    names = [name for name in before if integer[name] or (floating[name] and name not in _MOVES)]
    types = Counter(node.op_type for node, _ in found)
    return IntegerFacts(
        operators={
            name: {"nodes": before[name], "integer": integer[name], "float": floating[name]} for name in names
        },
        conversions=sum(types[name] for name in CONVERSIONS),
        conv_integer=types["ConvInteger"],
    )


def _original(node: NodeProto, made_by_gemm: set[str]) -> str:
    """Return the float operator that `node` replaces; a dynamic quantizer makes a MatMul of a Gemm."""
    op_type = _INTEGER.get(node.op_type) or _FUSED.get(node.op_type, node.op_type)
    if op_type == "MatMul" and any(name.removesuffix("_MatMul") in made_by_gemm for name in node.output):
        return "Gemm"
    return op_type


def _typed_nodes(model: ModelProto) -> Iterator[tuple[NodeProto, set[int]]]:
    """Yield every node with the element types of its inputs and outputs."""
    for graph in graphs_of(model):
        types = _types(graph)
        for node in graph.node:
            yield node, {types[name] for name in (*node.input, *node.output) if name in types}


def _types(graph: GraphProto) -> dict[str, int]:
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {one.name: one.type.tensor_type.elem_type for one in values}
    return types | {one.name: one.data_type for one in graph.initializer}


def facts_checks(
    facts: IntegerFacts, selected: Mapping[str, int], op_types: Sequence[str]
) -> list[StepCheck]:
    """Return the checks to display for `facts`.

    Args:
        facts: of the variant.
        selected: op type -> nodes selected for quantization.
        op_types: of the variant, for the remedy.
    """
    checks: list[StepCheck] = []
    if facts.conv_integer:
        remedy: dict[str, Any] = {"op_types": [one for one in op_types if one != "Conv"]}
        text = _CONV_INTEGER.format(count=facts.conv_integer)
        checks.append({"name": "slower_operators", "level": "warning", "text": f"{text}.", "remedy": remedy})
    for op_type in _HEAVY:
        counts = facts.operators.get(op_type)
        missed = counts["float"] - (counts["nodes"] - selected.get(op_type, 0)) if counts else 0
        if counts and missed > 0 and op_type in selected:
            text = _STAYED.format(count=missed, nodes=counts["nodes"], op_type=op_type)
            checks.append({"name": "stayed_float", "level": "info", "text": f"{text}.", "remedy": {}})
    return checks
