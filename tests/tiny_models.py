"""Tiny real ONNX models, written on demand: one function per peculiarity, each returns the path it wrote.

Everything is IR 10 and opset 20 or lower unless a test is about something newer, so that the installed
ONNX Runtime loads it. Weights are seeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
OPSET = 20

Dim = int | str | None
DTYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "bfloat16": TensorProto.BFLOAT16,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "string": TensorProto.STRING,
}


def value(name: str, shape: Sequence[Dim] | None, dtype: str = "float32") -> onnx.ValueInfoProto:
    """A graph input or output; None as a dimension has no name, None as the shape has no rank."""
    return helper.make_tensor_value_info(name, DTYPES[dtype], None if shape is None else list(shape))


def weights(name: str, shape: Sequence[int], seed: int = 0) -> onnx.TensorProto:
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.1
    return numpy_helper.from_array(array, name)


def constant(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> Path:
    """Write one graph to `path` and return `path`."""
    graph = helper.make_graph(list(nodes), path.stem, list(inputs), list(outputs), list(initializers))
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
        producer_name="tiny_models",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def mul(path: Path) -> Path:
    """`y = x * x`, x float32 [3, 2]: six elements, the cheapest model there is."""
    node = helper.make_node("Mul", ["x", "x"], ["y"], "square")
    return save(path, [node], [value("x", [3, 2])], [value("y", [3, 2])])


def mul_batch(path: Path) -> Path:
    """`y = x * x`, x float32 [batch, 6]."""
    node = helper.make_node("Mul", ["x", "x"], ["y"], "square")
    return save(path, [node], [value("x", ["batch", 6])], [value("y", ["batch", 6])])


def mlp(path: Path, *, features: int = 16, hidden: int = 32, classes: int = 4) -> Path:
    """Gemm, Relu, Gemm, Softmax; x float32 [batch, 16] to y float32 [batch, 4]."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h1"], "fc1"),
        helper.make_node("Relu", ["h1"], ["h2"], "relu"),
        helper.make_node("Gemm", ["h2", "w2", "b2"], ["h3"], "fc2"),
        helper.make_node("Softmax", ["h3"], ["y"], "softmax", axis=-1),
    ]
    parameters = [
        weights("w1", [features, hidden], 1),
        weights("b1", [hidden], 2),
        weights("w2", [hidden, classes], 3),
        weights("b2", [classes], 4),
    ]
    return save(path, nodes, [value("x", ["batch", features])], [value("y", ["batch", classes])], parameters)


def fixed_batch(path: Path, batch: int = 2) -> Path:
    """The MLP's first layer with the batch fixed; x float32 [2, 16]."""
    node = helper.make_node("Gemm", ["x", "w"], ["y"], "fc")
    return save(path, [node], [value("x", [batch, 16])], [value("y", [batch, 8])], [weights("w", [16, 8])])


def conv(path: Path, *, channels: int = 3, size: int = 16, batch: Dim = "batch", seed: int = 0) -> Path:
    """Two Conv + Relu, global pooling, Gemm; image float32 [batch, 3, 16, 16] to logits [batch, 10]."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3"], ["logits"], "fc"),
    ]
    parameters = [
        weights("w1", [8, channels, 3, 3], seed + 1),
        weights("w2", [8, 8, 3, 3], seed + 2),
        weights("w3", [8, 10], seed + 3),
    ]
    image = value("image", [batch, channels, size, size])
    return save(path, nodes, [image], [value("logits", [batch, 10])], parameters)


def halved(path: Path, *, times: int = 5) -> Path:
    """Like a detector: image float32 [batch, 3, height, width], made small, large again, and added to itself.

    The sides must be multiples of 2 ** `times`.
    """
    by = 2**times
    nodes = [
        helper.make_node(
            "AveragePool", ["image"], ["half"], "halve", kernel_shape=[by, by], strides=[by, by]
        ),
        helper.make_node("Resize", ["half", "", "scales"], ["whole"], "double", mode="nearest"),
        helper.make_node("Add", ["image", "whole"], ["y"], "add"),
    ]
    scales = constant("scales", np.array([1, 1, by, by], np.float32))
    shape = ["batch", 3, "height", "width"]
    return save(path, nodes, [value("image", shape)], [value("y", shape)], [scales])


def detector(path: Path, metadata: Mapping[str, str] | None = None) -> Path:
    """Like an Ultralytics export: images float32 [batch, 3, height, width], features of two strides joined.

    The sides must be multiples of 64; 224 is none. The class names are as Ultralytics writes them.
    """
    nodes = [
        helper.make_node("Conv", ["images", "w8"], ["fine"], "conv8", kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Conv", ["fine", "w64"], ["rough"], "conv64", kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Resize", ["rough", "", "scales"], ["large"], "enlarge", mode="nearest"),
        helper.make_node("Concat", ["fine", "large"], ["y"], "join", axis=1),
    ]
    parameters = [
        weights("w8", [4, 3, 8, 8], 1),
        weights("w64", [4, 4, 8, 8], 2),
        constant("scales", np.array([1, 1, 8, 8], np.float32)),
    ]
    shape = ["batch", 3, "height", "width"]
    save(path, nodes, [value("images", shape)], [value("y", ["batch", 8, "h", "w"])], parameters)
    model = onnx.load(path)
    helper.set_model_props(model, {**ULTRALYTICS, **(metadata or {})})
    onnx.save(model, path)
    return path


ULTRALYTICS = {
    "task": "detect",
    "stride": "64",
    "batch": "1",
    "imgsz": "[128, 192]",
    "names": "{0: 'person', 1: 'bicycle'}",
}


def image_uint8_nhwc(path: Path, *, size: int = 8) -> Path:
    """Cast and mean of an image; image uint8 [batch, 8, 8, 3] to y float32 [batch]."""
    nodes = [
        helper.make_node("Cast", ["image"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["f", "axes"], ["y"], "mean", keepdims=0),
    ]
    axes = constant("axes", np.array([1, 2, 3], np.int64))
    image = value("image", ["batch", size, size, 3], "uint8")
    return save(path, nodes, [image], [value("y", ["batch"])], [axes])


def tokens(path: Path, *, vocabulary: int = 50, width: int = 8) -> Path:
    """Embedding and masked mean; input_ids and attention_mask int64 [batch, sequence] to y [batch, 8]."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"], "embed", axis=0),
        helper.make_node("Cast", ["attention_mask"], ["m"], "mask_to_float", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["m3"], "mask_3d"),
        helper.make_node("Mul", ["e", "m3"], ["masked"], "apply_mask"),
        helper.make_node("ReduceMean", ["masked", "one"], ["y"], "mean", keepdims=0),
    ]
    parameters = [
        weights("table", [vocabulary, width]),
        constant("last", np.array([2], np.int64)),
        constant("one", np.array([1], np.int64)),
    ]
    inputs = [value(name, ["batch", "sequence"], "int64") for name in ("input_ids", "attention_mask")]
    return save(path, nodes, inputs, [value("y", ["batch", width])], parameters)


def decoder(path: Path, *, vocabulary: int = 50, width: int = 8) -> Path:
    """A growing cache: input_ids int64 [batch, sequence], past [batch, past, 8] to present and y [batch, 8].

    The cache may be empty, as before the first token.
    """
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"], "embed", axis=0),
        helper.make_node("Concat", ["past", "e"], ["present"], "append", axis=1),
        helper.make_node("ReduceMean", ["present", "one"], ["y"], "mean", keepdims=0),
    ]
    return save(
        path,
        nodes,
        [value("input_ids", ["batch", "sequence"], "int64"), value("past", ["batch", "past", width])],
        [value("present", ["batch", "total", width]), value("y", ["batch", width])],
        [weights("table", [vocabulary, width]), constant("one", np.array([1], np.int64))],
    )


def transpose_before_matmul(path: Path) -> Path:
    """Two axes swapped, then a MatMul, as in ViT: ORT's layout optimizer crashes on it in float16."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2], name="transpose"),
        helper.make_node("MatMul", ["t", "w"], ["y"], name="matmul"),
    ]
    inputs, outputs = [value("x", ["batch", "n", 8])], [value("y", ["n", "batch", 5])]
    return save(path, nodes, inputs, outputs, [weights("w", (8, 5))])


def unnamed_dims(path: Path) -> Path:
    """Relu of x float32 [None, 4, None]: free dimensions `x:0` and `x:2`."""
    node = helper.make_node("Relu", ["x"], ["y"], "relu")
    return save(path, [node], [value("x", [None, 4, None])], [value("y", [None, 4, None])])


def placeholder_dims(path: Path) -> Path:
    """Relu of x float32 [?, 4, ?]: the same placeholder for two different dimensions."""
    node = helper.make_node("Relu", ["x"], ["y"], "relu")
    return save(path, [node], [value("x", ["?", 4, "?"])], [value("y", ["?", 4, "?"])])


def sum_free(path: Path) -> Path:
    """Sum over a free dimension that is not the batch; x float32 [1, length] to y float32 [1]."""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], "sum", keepdims=0)
    axes = constant("axes", np.array([1], np.int64))
    return save(path, [node], [value("x", [1, "length"])], [value("y", [1])], [axes])


def scalar(path: Path) -> Path:
    """x float32 [batch, 4] divided by the scalar sr (int64, rank 0)."""
    nodes = [
        helper.make_node("Cast", ["sr"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "f"], ["y"], "scale"),
    ]
    inputs = [value("x", ["batch", 4]), value("sr", [], "int64")]
    return save(path, nodes, inputs, [value("y", ["batch", 4])])


def rank_unknown(path: Path) -> Path:
    """Relu of an input that declares no shape at all."""
    node = helper.make_node("Relu", ["x"], ["y"], "relu")
    return save(path, [node], [value("x", None)], [value("y", None)])


def another_rank(path: Path) -> Path:
    """`y` is x in the shape of the input; the file declares rank 2, whatever that is."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], "reshape")
    return save(
        path, [node], [value("x", ["batch", 4]), value("shape", ["rank"], "int64")], [value("y", ["a", "b"])]
    )


def identity(path: Path, dtype: str, shape: Sequence[Dim] = ("batch", 4)) -> Path:
    """`y = x` for any dtype of `DTYPES`."""
    node = helper.make_node("Identity", ["x"], ["y"], "identity")
    return save(path, [node], [value("x", shape, dtype)], [value("y", shape, dtype)])


def every_dtype(path: Path) -> Path:
    """One input and one output of each numeric dtype that numpy has, [batch, 4] each."""
    names = [d for d in DTYPES if d not in ("string", "bfloat16")]
    nodes = [helper.make_node("Identity", [f"in_{d}"], [f"out_{d}"], f"identity_{d}") for d in names]
    inputs = [value(f"in_{d}", ["batch", 4], d) for d in names]
    return save(path, nodes, inputs, [value(f"out_{d}", ["batch", 4], d) for d in names])


def sequence_input(path: Path) -> Path:
    """An input that is a sequence of tensors, which ORTune does not support."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    items = helper.make_value_info("items", kind)
    node = helper.make_node("ConcatFromSequence", ["items"], ["y"], "concat", axis=0)
    return save(path, [node], [items], [value("y", ["n"])])


def if_model(path: Path) -> Path:
    """If the mean of x is positive, x + x, else x * x; x float32 [batch, 4]."""
    then_branch = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["t"], "double")], "then", [], [value("t", ["batch", 4])]
    )
    else_branch = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["e"], "square")], "else", [], [value("e", ["batch", 4])]
    )
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], "mean", keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"], "greater"),
        helper.make_node("If", ["c"], ["y"], "branch", then_branch=then_branch, else_branch=else_branch),
    ]
    zero = constant("zero", np.float32(0))
    return save(path, nodes, [value("x", ["batch", 4])], [value("y", ["batch", 4])], [zero])


def _constant_node(name: str, *shape: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], f"make_{name}", value=weights(name, shape))


def recurrent_in_if(path: Path) -> Path:
    """A Gather and an LSTM in both branches of an If, their weights in Constant nodes inside and outside."""
    sequence: list[int | str | None] = [3, "batch", 8]

    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            _constant_node(f"w_{name}", 1, 32, 8),
            helper.make_node(
                "LSTM", ["x", f"w_{name}", "r"], ["", f"h_{name}"], f"lstm_{name}", hidden_size=8
            ),
            _constant_node(f"table_{name}", 50, 8),
            helper.make_node("Gather", [f"table_{name}", "ids"], [f"g_{name}"], f"gather_{name}"),
            helper.make_node("Add", [f"h_{name}", f"g_{name}"], [f"y_{name}"], f"add_{name}"),
        ]
        return helper.make_graph(nodes, name, [], [value(f"y_{name}", [1, "batch", 8])])

    nodes = [
        _constant_node("r", 1, 32, 8),
        helper.make_node("ReduceMean", ["x"], ["m"], "mean", keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"], "greater"),
        helper.make_node("If", ["c"], ["z"], "if", then_branch=branch("then"), else_branch=branch("else")),
        _constant_node("w", 8, 4),
        helper.make_node("MatMul", ["z", "w"], ["y"], "matmul"),
    ]
    inputs = [value("x", sequence), value("ids", ["batch"], "int64")]
    outputs = [value("y", [1, "batch", 4])]
    return save(path, nodes, inputs, outputs, [constant("zero", np.float32(0))], ir_version=9)


def loop_model(path: Path, *, trips: int = 5, size: int = 8) -> Path:
    """x multiplied by a matrix `trips` times in a Loop; x float32 [batch, size]."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], "body_matmul"),
            helper.make_node("Identity", ["cond_in"], ["cond_out"], "body_cond"),
        ],
        "body",
        [value("i", [], "int64"), value("cond_in", [], "bool"), value("state", ["batch", size])],
        [value("cond_out", [], "bool"), value("next", ["batch", size])],
    )
    node = helper.make_node("Loop", ["trips", "go", "x"], ["y"], "repeat", body=body)
    parameters = [
        constant("trips", np.int64(trips)),
        constant("go", np.bool_(True)),
        constant("w", np.eye(size, dtype=np.float32)),
    ]
    return save(path, [node], [value("x", ["batch", size])], [value("y", ["batch", size])], parameters)


def ids_in_a_loop(path: Path, *, trips: int = 50, size: int = 64, vocabulary: int = 100) -> Path:
    """Embedded ids through a Loop with a branch in it; ids int64 [batch, length] to top int64 [batch]."""

    def branch(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["next"], [f"{name}_out"], name)
        return helper.make_graph([node], name, [], [value(f"{name}_out", ["batch", size])])

    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], "body_matmul"),
            helper.make_node("ReduceSum", ["next"], ["total"], "body_sum", keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"], "body_greater"),
            helper.make_node(
                "If",
                ["positive"],
                ["chosen"],
                "body_if",
                then_branch=branch("then", "Tanh"),
                else_branch=branch("else", "Neg"),
            ),
            helper.make_node("Identity", ["cond_in"], ["cond_out"], "body_cond"),
        ],
        "body",
        [value("i", [], "int64"), value("cond_in", [], "bool"), value("state", ["batch", size])],
        [value("cond_out", [], "bool"), value("chosen", ["batch", size])],
    )
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"], "embed", axis=0),
        helper.make_node("ReduceMean", ["embedded", "one"], ["x"], "mean", keepdims=0),
        helper.make_node("Loop", ["trips", "go", "x"], ["y"], "repeat", body=body),
        helper.make_node("ArgMax", ["y"], ["top"], "top", axis=1, keepdims=0),
    ]
    parameters = [
        weights("table", [vocabulary, size]),
        weights("w", [size, size], seed=1),
        constant("one", np.array([1], np.int64)),
        constant("trips", np.int64(trips)),
        constant("go", np.bool_(True)),
        constant("zero", np.float32(0)),
    ]
    return save(
        path,
        nodes,
        [value("ids", ["batch", "length"], "int64")],
        [value("top", ["batch"], "int64")],
        parameters,
    )


def scan_model(path: Path) -> Path:
    """Running sum over the first axis by Scan; x float32 [length, 4] to last [4] and sums [length, 4]."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "row"], ["sum_out"], "add"),
            helper.make_node("Identity", ["sum_out"], ["scan_out"], "emit"),
        ],
        "body",
        [value("sum_in", [4]), value("row", [4])],
        [value("sum_out", [4]), value("scan_out", [4])],
    )
    node = helper.make_node("Scan", ["start", "x"], ["last", "sums"], "scan", body=body, num_scan_inputs=1)
    start = constant("start", np.zeros(4, np.float32))
    outputs = [value("last", [4]), value("sums", ["length", 4])]
    return save(path, [node], [value("x", ["length", 4])], outputs, [start])


def external_data(path: Path, *, location: str = "weights.bin") -> Path:
    """A Gemm whose weights lie in `location` beside the model; x float32 [batch, 64] to y [batch, 64]."""
    tensor = weights("w", [64, 64])
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(len(raw)))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / location).resolve().write_bytes(raw)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], "fc")
    return save(path, [node], [value("x", ["batch", 64])], [value("y", ["batch", 64])], [tensor])


def external_data_outside(path: Path) -> Path:
    """The same, but the weights lie in the folder above the model's: ORT must refuse it."""
    return external_data(path, location="../weights.bin")


def slow(path: Path, *, trips: int = 100_000_000, size: int = 64) -> Path:
    """A Loop of MatMuls of which one run takes minutes; x float32 [batch, size]. For cancelling."""
    return loop_model(path, trips=trips, size=size)


def steady(path: Path, *, trips: int = 400, size: int = 64) -> Path:
    """A Loop whose run takes a few milliseconds; for progress and timing tests."""
    return loop_model(path, trips=trips, size=size)


def huge_memory(path: Path, *, gibibytes: int = 512) -> Path:
    """Fills a tensor of `gibibytes` GiB that depends on the input, then sums it; x float32 [1] to y [1]."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["big"], "expand"),
        helper.make_node("Relu", ["big"], ["touched"], "touch"),
        helper.make_node("ReduceSum", ["touched"], ["y"], "sum", keepdims=0),
    ]
    shape = constant("shape", np.array([gibibytes, 1 << 28], np.int64))
    return save(path, nodes, [value("x", [1])], [value("y", [])], [shape])


def fails_from_three_rows(path: Path, how: str) -> Path:
    """A run hangs, or takes 512 GiB, from a batch of three on; x float32 [batch, 4] to y [batch, 4].

    Args:
        path: where to write it.
        how: "hang" or "memory".
    """
    large, small = (100_000_000, 1) if how == "hang" else (1 << 37, 16)
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], "rows", start=0, end=1),
        helper.make_node("GreaterOrEqual", ["rows", "three"], ["many"], "many"),
        helper.make_node("Where", ["many", "large", "small"], ["size"], "size"),
    ]
    parameters = [
        constant(name, np.array([n])) for name, n in (("three", 3), ("large", large), ("small", small))
    ]
    if how == "hang":
        body = helper.make_graph(
            [
                helper.make_node("Mul", ["state", "state"], ["next"], "body_mul"),
                helper.make_node("Identity", ["cond_in"], ["cond_out"], "body_cond"),
            ],
            "body",
            [value("i", [], "int64"), value("cond_in", [], "bool"), value("state", ["batch", 4])],
            [value("cond_out", [], "bool"), value("next", ["batch", 4])],
        )
        nodes += [
            helper.make_node("Squeeze", ["size"], ["trips"], "trips"),
            helper.make_node("Loop", ["trips", "go", "x"], ["y"], "repeat", body=body),
        ]
        parameters.append(constant("go", np.bool_(True)))
    else:
        nodes += [
            helper.make_node("Expand", ["one", "size"], ["big"], "expand"),
            helper.make_node("Relu", ["big"], ["touched"], "touch"),
            helper.make_node("ReduceSum", ["touched"], ["sum"], "sum", keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["y"], "add"),
        ]
        parameters.append(constant("one", np.ones(1, np.float32)))
    return save(path, nodes, [value("x", ["batch", 4])], [value("y", ["batch", 4])], parameters)


def newer_opset(path: Path, opset: int = 27) -> Path:
    """An opset that ONNX Runtime 1.31 does not know yet."""
    node = helper.make_node("Mul", ["x", "x"], ["y"], "square")
    return save(path, [node], [value("x", [2])], [value("y", [2])], opset=opset)


def newer_ir(path: Path, ir_version: int = 14) -> Path:
    """An IR version that ONNX Runtime 1.31 does not know yet."""
    node = helper.make_node("Mul", ["x", "x"], ["y"], "square")
    return save(path, [node], [value("x", [2])], [value("y", [2])], ir_version=ir_version)


def unknown_operator(path: Path) -> Path:
    """An operator that no opset has."""
    node = helper.make_node("Frobnicate", ["x"], ["y"], "frob")
    return save(path, [node], [value("x", [2])], [value("y", [2])])


def unimplemented(path: Path) -> Path:
    """A valid ONNX operator and type that ORT's CPU provider has no kernel for (Sin of bfloat16)."""
    node = helper.make_node("Sin", ["x"], ["y"], "sin")
    return save(path, [node], [value("x", [2], "bfloat16")], [value("y", [2], "bfloat16")], opset=22)


def failing_run(path: Path) -> Path:
    """Loads, but a run fails: Reshape of [batch, 4] to [3, 5]."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], "reshape")
    shape = constant("shape", np.array([3, 5], np.int64))
    return save(path, [node], [value("x", ["batch", 4])], [value("y", [3, 5])], [shape])


def not_onnx(path: Path) -> Path:
    """Text in a file called .onnx."""
    path.write_text("This is not a model.\n" * 20, encoding="utf-8")
    return path


def truncated(path: Path) -> Path:
    """The first half of a real model."""
    whole = mlp(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path
