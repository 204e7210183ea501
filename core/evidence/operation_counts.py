"""Operations and bytes of one call of a node, computed from the shapes of its inputs and outputs.

Counting rules, defined here only:

    a multiplication and an addition are one operation each, so a product of matrices has 2·M·K·N
    a function of one element (Relu, Exp, Tanh, …) is one operation, whatever it costs the processor
    an activation that ONNX Runtime fused into a convolution or product is not counted
    bytes are those of every input, weight and output once: the minimum to be moved, regardless of caches

An operator that is in no table here is "not counted"; it is never guessed. Weights that a kernel packed are
missing in a profile. They are derived where the other shapes determine them, else they come from `Constants`
of the executed graph. Pure: shapes in, numbers out.

Source of the counts: the operators' definitions, https://onnx.ai/onnx/operators and ONNX Runtime's
ContribOperators.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.wire.profile import Constants, NodeTime, Profile, Tensor

ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("bfloat16", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64"), 8),
}

_CONVOLUTIONS = frozenset(
    {"Conv", "ConvInteger", "FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv", "QConv"}
)
_PRODUCTS = frozenset(
    {"DynamicQuantizeMatMul", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger"}
    | {"MatMulIntegerToFloat", "MatMulNBits", "QGemm", "QLinearMatMul"}
)
_MAY_TRANSPOSE = frozenset({"FusedGemm", "FusedMatMul", "Gemm", "QGemm"})
_INTEGER_WEIGHTS = frozenset(
    {"DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QLinearMatMul"}
)
_INTEGER = _INTEGER_WEIGHTS | {"ConvInteger", "QLinearConv", "QConv"}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

# operations per element of the first output
_PER_OUTPUT: Mapping[str, int] = {
    **dict.fromkeys(
        [
            "Abs",
            "Acos",
            "Add",
            "And",
            "Asin",
            "Atan",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "Ceil",
            "Clip",
            "Cos",
            "Cosh",
            "Div",
            "Equal",
            "Erf",
            "Exp",
            "Floor",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "Log",
            "Max",
            "Min",
            "Mod",
            "Mul",
            "Neg",
            "Not",
            "Or",
            "Pow",
            "Reciprocal",
            "Relu",
            "Round",
            "Sigmoid",
            "Sign",
            "Sin",
            "Sinh",
            "Sqrt",
            "Sub",
            "Tan",
            "Tanh",
            "Where",
            "Xor",
        ],
        1,
    ),
    **dict.fromkeys(
        ["BatchNormalization", "LeakyRelu", "PRelu", "ThresholdedRelu", "QuantizeLinear", "HardSigmoid"], 2
    ),
    **dict.fromkeys(["DequantizeLinear", "Elu", "Softplus", "Softsign"], 2),
    "QuickGelu": 3,
    "HardSwish": 3,
    "Gelu": 5,  # x/√2, erf, + 1, · x, · ½
    "BiasGelu": 6,
    "FastGelu": 8,
    "Softmax": 5,  # largest, difference, exp, sum, quotient
    "LogSoftmax": 5,
    "LayerNormalization": 7,  # sum, difference, square and sum, quotient, scale, bias
    "InstanceNormalization": 7,
    "GroupNormalization": 7,
    "GroupNorm": 7,
    "SkipLayerNormalization": 8,
    "SimplifiedLayerNormalization": 4,  # square and sum, quotient, scale
    "RMSNormalization": 4,
    "SkipSimplifiedLayerNormalization": 5,
}
# operations per element of the first input
_PER_INPUT: Mapping[str, int] = {
    **dict.fromkeys(
        ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ArgMax", "ArgMin", "CumSum"], 1
    ),
    **dict.fromkeys(["GlobalAveragePool", "GlobalMaxPool", "QLinearGlobalAveragePool"], 1),
    **dict.fromkeys(
        ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "DynamicQuantizeLinear"], 2
    ),
}
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool", "QLinearAveragePool"})
_MOVES = frozenset(  # read and write every byte without computing
    {
        "Cast",
        "Concat",
        "DepthToSpace",
        "MemcpyFromHost",
        "MemcpyToHost",
        "Pad",
        "ReorderInput",
        "ReorderOutput",
    }
    | {"SpaceToDepth", "Split", "Transpose", "QLinearConcat"}
)
_PICKS = frozenset(
    {"Expand", "Gather", "GatherElements", "GatherND", "Slice", "Tile"}
)  # read only the bytes that they write
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze", "Dropout"})

NO_RULE = "no rule for this operator"
NO_SHAPES = "the profile has no shapes for it"
NO_WEIGHTS = "the shape of its weights is unknown"
NO_WINDOW = "the size of its window is unknown"
SHAPE_MISMATCH = "its shapes do not match the rule for this operator"
VIEW = "ONNX Runtime may forward the data without reading it"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCounts:
    """Operations and bytes of one call."""

    operations: int | None  # None: not counted, see `why`
    bytes: int | None  # minimum to be moved; None: not known
    why: str = ""
    is_integer: bool = False  # products of integers, which a peak in float32 does not bound

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None where one of the two is not known or nothing is moved."""
        return None if self.operations is None or not self.bytes else self.operations / self.bytes


def count_node(node: NodeTime, constants: Constants | None = None) -> OperationCounts:
    """Count one call of `node`, with the shapes of its longest call.

    Args:
        node: node with the input and output shapes of its kernel.
        constants: constants of the node in the executed graph; None: only the profile is available.
    """
    if not node.outputs or not node.inputs:
        return OperationCounts(operations=None, bytes=None, why=NO_SHAPES)
    unseen = _packed_constants(node, constants)
    operations, why, derived = _operations(node, unseen, constants)
    moved = _bytes(node, unseen or derived)
    if derived is None and not unseen:  # the size of its weights is unknown
        moved = None
    return OperationCounts(
        operations=operations,
        bytes=moved,
        why=why or (VIEW if node.op_type in _VIEWS else ""),
        is_integer=node.op_type in _INTEGER,
    )


def count_nodes(profile: Profile) -> dict[tuple[tuple[str, ...], str, int], OperationCounts]:
    """Count every node of a profile; the keys are those of `key_of`."""
    known = {(one.path, one.name, one.op_type): one for one in profile.constants}
    return {
        key_of(node): count_node(node, known.get((node.path, node.name, node.op_type)))
        for node in profile.nodes
    }


def key_of(node: NodeTime) -> tuple[tuple[str, ...], str, int]:
    """Return a key that is unique among the nodes of a profile."""
    return node.path, f"{node.op_type} {node.name}", node.node_index


def _packed_constants(node: NodeTime, constants: Constants | None) -> list[Tensor]:
    """Return constants of the node that the profile does not list because its kernel packed them."""
    if constants is None:
        return []
    left = Counter(constants.tensors) - Counter(node.inputs)
    return list(left.elements())


Counted = tuple[int | None, str, Sequence[Tensor] | None]  # operations, reason for None, derived weights
_NONE: Sequence[Tensor] = ()


def _operations(node: NodeTime, unseen: Sequence[Tensor], constants: Constants | None) -> Counted:
    op = node.op_type
    for operators, rule in _RULES:
        if op in operators:
            return rule(node, unseen)
    first_out, first_in = size_of(node.outputs[0]), size_of(node.inputs[0])
    if op in _PER_OUTPUT:
        return _PER_OUTPUT[op] * first_out, "", _NONE
    if op in _PER_INPUT:
        return _PER_INPUT[op] * first_in, "", _NONE
    if op in _POOLS:
        if constants is None or not constants.window:
            return None, NO_WINDOW, _NONE
        return math.prod(constants.window) * first_out, "", _NONE
    if op in _MOVES | _PICKS | _VIEWS:
        return 0, "", _NONE
    return None, NO_RULE, _NONE


def _convolution(node: NodeTime, unseen: Sequence[Tensor]) -> Counted:
    """Count two operations for each output element and each weight of its channel: C/group · window."""
    weights = _weights(node, unseen)
    if weights is None:
        return None, NO_WEIGHTS, None
    out = node.outputs[0].shape
    if len(out) < 3 or weights.shape[0] not in out[1:]:
        return None, SHAPE_MISMATCH, _NONE
    products = 2 * math.prod(out) * math.prod(weights.shape[1:])
    return products + _bias(node, weights.shape[0]), "", _NONE


def _transposed_convolution(node: NodeTime, unseen: Sequence[Tensor]) -> Counted:
    """Count two operations for each input element and each weight of its channel: M/group · window."""
    weights = _weights(node, unseen)
    if weights is None:
        return None, NO_WEIGHTS, None
    taken = node.inputs[0].shape
    if len(taken) < 3 or weights.shape[0] != taken[1]:
        return None, SHAPE_MISMATCH, _NONE
    products = 2 * math.prod(taken) * math.prod(weights.shape[1:])
    return products + _bias(node, node.outputs[0].shape[1]), "", _NONE


def _weights(node: NodeTime, unseen: Sequence[Tensor]) -> Tensor | None:
    """Return the weights of a convolution: the second tensor of its rank, unless that is an added sum."""
    rank, out = len(node.inputs[0].shape), node.outputs[0].shape
    found = [one for one in (*node.inputs[1:], *unseen) if len(one.shape) == rank >= 3]
    return next((one for one in found if one.shape != out), None)


def _bias(node: NodeTime, channels: int) -> int:
    """Count one addition per output element where there is a bias of the right length."""
    has_bias = any(one.shape == (channels,) and _is_bias(one) for one in node.inputs[2:])
    return size_of(node.outputs[0]) if has_bias else 0


def _is_bias(one: Tensor) -> bool:
    return one.dtype in ("float32", "float16", "float64", "int32", "bfloat16")


def _product(node: NodeTime, unseen: Sequence[Tensor]) -> Counted:
    """Count 2·K for each output element; K is the dimension of A that the output does not have."""
    a, out = node.inputs[0].shape, node.outputs[0].shape
    if not a or not out:
        return None, SHAPE_MISMATCH, _NONE
    inner = a[-1]
    if node.op_type in _MAY_TRANSPOSE:
        if len(a) < 2 or len(out) < 2 or not out[-2] or (a[-1] * a[-2]) % out[-2]:
            return (0 if 0 in out else None), SHAPE_MISMATCH if 0 not in out else "", _NONE
        inner = a[-1] * a[-2] // out[-2]
    bias = _bias(node, out[-1]) if node.op_type in ("Gemm", "FusedGemm") else 0
    return 2 * math.prod(out) * inner + bias, "", _packed(node, unseen, inner, out[-1])


def _packed(node: NodeTime, unseen: Sequence[Tensor], inner: int, columns: int) -> Sequence[Tensor] | None:
    """Return the second matrix where its kernel packed it, as ONNX Runtime does with 2-D constants.

    None: it is missing, and its type cannot be derived.
    """
    if unseen or any(_is_factor(one, inner, columns) for one in node.inputs[1:]):
        return _NONE
    if node.op_type == "MatMulNBits":
        return None
    dtype = "int8" if node.op_type in _INTEGER_WEIGHTS else node.inputs[0].dtype
    return [Tensor(dtype=dtype, shape=(inner, columns))]


def _is_factor(one: Tensor, inner: int, columns: int) -> bool:
    shape = one.shape
    two = sorted(shape[-2:]) == sorted((inner, columns))
    return two if len(shape) >= 2 else shape == (inner,) and columns == 1


def _attention(node: NodeTime, unseen: Sequence[Tensor]) -> Counted:
    """Count three projections and two products per pair of positions; no past state, equal widths only."""
    taken, out = node.inputs[0].shape, node.outputs[0].shape
    biases = [one.shape[0] for one in node.inputs[1:] if len(one.shape) == 1 and _is_bias(one)]
    if len(taken) != 3 or len(out) != 3 or len(node.outputs) > 1 or biases[:1] != [3 * out[2]]:
        return None, SHAPE_MISMATCH, _NONE
    rows, width, inner = taken[0] * taken[1], out[2], taken[2]
    projections = 2 * rows * inner * 3 * width
    packed = [] if unseen or len(node.inputs[1].shape) == 2 else [(inner, 3 * width)]
    derived = [Tensor(dtype=node.inputs[0].dtype, shape=shape) for shape in packed]
    return projections + 2 * 2 * rows * taken[1] * width, "", derived


def _multi_head_attention(node: NodeTime, unseen: Sequence[Tensor]) -> Counted:
    """Count two products per pair of positions: queries by keys, weights by values; no past state."""
    shapes = [one.shape for one in node.inputs[:3]]
    if len(shapes) < 3 or {len(one) for one in shapes} != {3} or len(node.outputs) > 1:
        return None, SHAPE_MISMATCH, _NONE
    queries, keys, values = shapes
    if keys[:2] != values[:2] or queries[2] != keys[2]:
        return None, SHAPE_MISMATCH, _NONE
    return 2 * queries[0] * queries[1] * keys[1] * (queries[2] + values[2]), "", _NONE


def _recurrent(node: NodeTime, unseen: Sequence[Tensor]) -> Counted:
    """Count two products per step and gate: with the input and with the state."""
    taken, out = node.inputs[0].shape, node.outputs[0].shape
    if len(taken) != 3 or len(out) not in (3, 4):
        return None, SHAPE_MISMATCH, _NONE
    steps, batch, width = taken
    directions, hidden = (out[1], out[3]) if len(out) == 4 else (out[0], out[2])
    gates = _GATES[node.op_type]
    operations = 2 * steps * batch * directions * gates * hidden * (width + hidden)
    seen = sum(len(one.shape) == 3 for one in node.inputs[1:])
    shapes = [] if unseen or seen >= 2 else [(directions, gates * hidden, each) for each in (width, hidden)]
    return operations, "", [Tensor(dtype=node.inputs[0].dtype, shape=shape) for shape in shapes]


_RULES: Sequence[tuple[frozenset[str], Callable[[NodeTime, Sequence[Tensor]], Counted]]] = (
    (_CONVOLUTIONS, _convolution),
    (frozenset({"ConvTranspose"}), _transposed_convolution),
    (_PRODUCTS, _product),
    (frozenset({"Attention"}), _attention),
    (frozenset({"MultiHeadAttention"}), _multi_head_attention),
    (frozenset(_GATES), _recurrent),
)


def _bytes(node: NodeTime, unseen: Sequence[Tensor] | None) -> int | None:
    if node.op_type in _VIEWS:
        return None
    moved: list[Tensor] = [*node.inputs, *(unseen or ()), *node.outputs]
    if node.op_type in _PICKS:  # only the selected part of the first input is read
        moved = [*node.outputs, *node.inputs[1:], *node.outputs]
    if any(one.dtype not in ITEM_BYTES for one in moved):
        return None
    return sum(ITEM_BYTES[one.dtype] * size_of(one) for one in moved)


def size_of(one: Tensor) -> int:
    """Return the number of elements of a tensor; 1 for a scalar."""
    return math.prod(one.shape)
