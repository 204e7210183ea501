"""core.worker.models.origins on graphs that ONNX Runtime really makes: every node is traced to its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from core.wire.profile import NodeTime
from core.wire.profile_passes import Origin
from core.worker.measure.profile_parser import parse_profile
from core.worker.models.graphs import name_nodes
from core.worker.models.origins import model_nodes, origins
from tests import tiny_models
from tests.tiny_models import constant, save, value, weights

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
node = helper.make_node
Covers = dict[str, list[str]]


def trace(path: Path, level: str) -> tuple[Sequence[Origin], onnx.ModelProto, Sequence[NodeTime]]:
    """Load a model, run it, and trace its nodes; what ran and what was saved come with it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    saved = path.with_name(f"{path.stem}.{level}.onnx")
    options.optimized_model_filepath = str(saved)
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(f".{level}"))
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {
        one.name: np.ones([2 if isinstance(d, str) else d for d in one.shape], np.float32)
        for one in session.get_inputs()
    }
    session.run(None, feeds)
    profile = parse_profile(Path(session.end_profiling()))
    return origins(onnx.load(path), onnx.load(saved), profile.nodes), onnx.load(saved), profile.nodes


def covers(path: Path, level: str) -> Covers:
    """Name in the profile -> nodes of the model; checks that every node that ran is traced or inserted."""
    found, _, ran = trace(path, level)
    assert {(*one.path, one.name) for one in found} >= {(*one.path, one.name) for one in ran}
    assert all(one.nodes or one.inserted for one in found), found
    assert not any(one.nodes and one.inserted for one in found), found
    return {one.name: list(one.nodes) for one in found if not one.inserted}


def by_what(found: Covers) -> set[tuple[str, ...]]:
    return {tuple(nodes) for nodes in found.values()}


def blocks(path: Path) -> Path:
    """Conv + BatchNormalization + Relu, a residual block, a Pad, a scale: what an NCHWc layout rewrites."""
    nodes = [
        node("Conv", ["x", "k1"], ["c1"], "conv1", pads=[1] * 4),
        node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "norm"),
        node("Relu", ["n1"], ["r1"], "relu1"),
        node("Conv", ["r1", "k2"], ["c2"], "conv2", pads=[1] * 4),
        node("Add", ["c2", "r1"], ["a"], "residual"),
        node("Relu", ["a"], ["r2"], "relu2"),
        node("Conv", ["r2", "k2"], ["c3"], "conv3", pads=[1] * 4),
        node("Sigmoid", ["c3"], ["s"], "sigmoid"),
        node("Mul", ["c3", "s"], ["w"], "swish"),
        node("Pad", ["w", "pads"], ["p"], "pad"),
        node("Conv", ["p", "k2"], ["c4"], "conv4"),
        node("Mul", ["c4", "two"], ["y"], "twice"),
    ]
    parameters = [
        weights("k1", [16, 3, 3, 3], 1),
        weights("k2", [16, 16, 3, 3], 2),
        *(constant(name, np.ones(16, np.float32)) for name in ("scale", "shift", "mean", "var")),
        constant("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)),
        constant("two", np.float32(2)),
    ]
    return save(path, nodes, [value("x", ["b", 3, 12, 12])], [value("y", None)], parameters, opset=17)


def transformer(path: Path) -> Path:
    """MatMul + Add, a Gelu and a layer normalization in single steps, and what folds or vanishes."""
    nodes = [
        node("MatMul", ["x", "w1"], ["mm"], "matmul"),
        node("Add", ["mm", "b1"], ["h"], "bias"),
        node("Div", ["h", "root2"], ["g1"], "gelu_div"),
        node("Erf", ["g1"], ["g2"], "gelu_erf"),
        node("Add", ["g2", "one"], ["g3"], "gelu_add"),
        node("Mul", ["h", "g3"], ["g4"], "gelu_mul"),
        node("Mul", ["g4", "half"], ["g"], "gelu_half"),
        node("ReduceMean", ["g"], ["m"], "ln_mean", axes=[-1]),
        node("Sub", ["g", "m"], ["d"], "ln_sub"),
        node("Pow", ["d", "square"], ["q"], "ln_pow"),
        node("ReduceMean", ["q"], ["v"], "ln_var", axes=[-1]),
        node("Add", ["v", "eps"], ["e"], "ln_eps"),
        node("Sqrt", ["e"], ["t"], "ln_sqrt"),
        node("Div", ["d", "t"], ["n"], "ln_div"),
        node("Mul", ["n", "gamma"], ["o"], "ln_mul"),
        node("Add", ["o", "beta"], ["l"], "ln_add"),
        node("Identity", ["l"], ["i"], "identity"),
        node("Transpose", ["w2"], ["w2t"], "fold", perm=[1, 0]),
        node("MatMul", ["i", "w2t"], ["y"], "matmul2"),
    ]
    parameters = [
        weights("w1", [16, 16], 1),
        weights("b1", [16], 2),
        weights("w2", [16, 16], 3),
        weights("gamma", [16], 4),
        weights("beta", [16], 5),
        *(
            constant(name, np.float32(number))
            for name, number in (("root2", 2**0.5), ("one", 1), ("half", 0.5), ("square", 2), ("eps", 1e-5))
        ),
    ]
    return save(path, nodes, [value("x", ["b", 16])], [value("y", None)], parameters, opset=13)


GELU = ("gelu_div", "gelu_erf", "gelu_add", "gelu_mul", "gelu_half")
LAYER_NORM = tuple(f"ln_{part}" for part in ("mean", "sub", "pow", "var", "eps", "sqrt", "div", "mul", "add"))


def test_without_optimization_every_node_is_its_own_origin(tmp_path: Path) -> None:
    for name, nodes in covers(blocks(tmp_path / "m.onnx"), "ORT_DISABLE_ALL").items():
        assert nodes == [name]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("make", [blocks, transformer, tiny_models.conv, tiny_models.mlp])
def test_every_node_of_every_level_is_traced_and_no_node_of_the_model_twice(
    tmp_path: Path, make: Callable[[Path], Path], level: str
) -> None:
    path = make(tmp_path / "m.onnx")
    claimed = [name for nodes in covers(path, level).values() for name in nodes]
    assert len(claimed) == len(set(claimed))
    gone = {one.name for one in model_nodes(onnx.load(path))} - set(claimed)
    assert gone <= {"fold"}


def test_a_fused_node_has_the_nodes_that_it_replaced(tmp_path: Path) -> None:
    found = covers(transformer(tmp_path / "m.onnx"), "ORT_ENABLE_EXTENDED")
    assert by_what(found) == {("matmul", "bias"), GELU, LAYER_NORM, ("identity", "matmul2")}


def test_a_node_that_kept_its_name_may_do_the_work_of_more(tmp_path: Path) -> None:
    found = covers(blocks(tmp_path / "m.onnx"), "ORT_ENABLE_EXTENDED")
    assert found["conv1"] == ["conv1", "norm", "relu1"]
    assert found["conv4"] == ["pad", "conv4", "twice"]
    assert found["conv2"] == ["conv2"]


def test_in_another_layout_a_convolution_has_its_sum_and_activation(tmp_path: Path) -> None:
    path = blocks(tmp_path / "m.onnx")
    found, _, ran = trace(path, "ORT_ENABLE_ALL")
    if not any(one.op_type == "ReorderOutput" for one in ran):
        pytest.skip("ONNX Runtime has no blocked layout for this CPU")
    assert by_what(covers(path, "ORT_ENABLE_ALL")) == {
        ("conv1", "norm", "relu1"),
        ("conv2", "residual", "relu2"),
        ("conv3",),
        ("sigmoid", "swish"),
        ("pad", "conv4", "twice"),
    }
    assert [one.nodes for one in found if one.inserted] == [()] * sum(
        one.op_type.startswith("Reorder") for one in ran
    )


def quantized(path: Path) -> Path:
    """Two quantized convolutions and an Add between QuantizeLinear and DequantizeLinear."""

    def pair(name: str) -> list[onnx.NodeProto]:
        scale = ["scale", "zero"]
        return [
            node("QuantizeLinear", [name, *scale], [f"{name}_q"], f"{name}_quantize"),
            node("DequantizeLinear", [f"{name}_q", *scale], [f"{name}_dq"], f"{name}_dequantize"),
        ]

    nodes = [
        *pair("x"),
        node("DequantizeLinear", ["k_q", "k_scale", "k_zero"], ["k"], "k_dequantize"),
        node("Conv", ["x_dq", "k"], ["c1"], "conv1", pads=[1] * 4),
        *pair("c1"),
        node("Conv", ["c1_dq", "k"], ["c2"], "conv2", pads=[1] * 4),
        *pair("c2"),
        node("Add", ["c2_dq", "c1_dq"], ["a"], "add"),
        *pair("a"),
        node("Relu", ["a_dq"], ["y"], "relu"),
    ]
    parameters = [
        constant("scale", np.float32(0.1)),
        constant("zero", np.uint8(128)),
        constant("k_q", np.ones((16, 16, 3, 3), np.int8)),
        constant("k_scale", np.float32(0.01)),
        constant("k_zero", np.int8(0)),
    ]
    return save(path, nodes, [value("x", ["b", 16, 8, 8])], [value("y", None)], parameters, opset=17)


def test_a_quantized_operator_has_what_quantizes_around_it(tmp_path: Path) -> None:
    path = quantized(tmp_path / "m.onnx")
    for level in ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"):
        found = covers(path, level)
        (second,) = [nodes for nodes in found.values() if "conv2" in nodes]
        assert {"conv2", "c2_quantize"} <= set(second)
        assert not {"conv1", "add"} & set(second)
        (total,) = [nodes for nodes in found.values() if "add" in nodes]
        assert {"c2_dequantize", "add", "a_quantize"} <= set(total)


def hard_swish(path: Path) -> Path:
    """An operator without a kernel: ONNX Runtime puts the body of its function in its place."""
    nodes = [
        node("HardSwish", ["x"], ["a"], "first"),
        node("ReduceMean", ["a", "axis"], ["m"], "mean", keepdims=0),
        node("HardSwish", ["m"], ["y"], "second"),
    ]
    axis = constant("axis", np.array([2], np.int64))
    return save(path, nodes, [value("x", ["b", 8, 5])], [value("y", None)], [axis], opset=18)


def test_nodes_out_of_a_functions_body_belong_to_the_node_that_called_it(tmp_path: Path) -> None:
    path = hard_swish(tmp_path / "m.onnx")
    found, saved, _ = trace(path, "ORT_ENABLE_ALL")
    if all(one.name for one in saved.graph.node):
        pytest.skip("this build of ONNX Runtime has a kernel for HardSwish")
    shapes = {"first": [2, 8, 5], "second": [2, 8]}
    called = {one.name: one.nodes[0] for one in found if one.nodes != ("mean",)}
    assert sorted(called.values()) == ["first", "first", "second", "second"]
    profiles = sorted(tmp_path.glob("*.json"))
    for one in parse_profile(profiles[-1]).nodes:
        if one.name in called:
            assert list(one.outputs[0].shape) == shapes[called[one.name]]


def test_nodes_in_bodies_are_traced_there(tmp_path: Path) -> None:
    for make in (tiny_models.if_model, tiny_models.loop_model, tiny_models.scan_model):
        path = make(tmp_path / f"{make.__name__}.onnx")
        for name, nodes in covers(path, "ORT_ENABLE_ALL").items():
            assert nodes == [name]


def half(path: Path) -> Path:
    """float16 within: the CPU provider computes in float32 between Casts that it inserts."""
    kinds = {"to": TensorProto.FLOAT16}
    nodes = [
        node("Cast", ["x"], ["h"], "to_half", **kinds),
        node("MatMul", ["h", "w"], ["m"], "matmul"),
        node("Softmax", ["m"], ["s"], "softmax"),
        node("MatMul", ["s", "w"], ["o"], "matmul2"),
        node("Cast", ["o"], ["y"], "to_float", to=TensorProto.FLOAT),
    ]
    parameters = [constant("w", np.ones((8, 8), np.float16))]
    return save(path, nodes, [value("x", ["b", 8])], [value("y", ["b", 8])], parameters)


def test_inserted_casts_are_told_from_the_models_own_and_hide_no_operator(tmp_path: Path) -> None:
    path = half(tmp_path / "m.onnx")
    found, _, _ = trace(path, "ORT_DISABLE_ALL")
    inserted = {one.name for one in found if one.inserted}
    assert inserted
    assert all(name.startswith("Inserted") for name in inserted)
    for level in LEVELS:
        claimed = [set(nodes) for nodes in covers(path, level).values()]
        assert {"matmul"} <= set.union(*(one for one in claimed if "matmul" in one))
        assert not any({"matmul", "matmul2"} <= one for one in claimed)


def test_nodes_without_names_are_named_as_the_profile_names_them(tmp_path: Path) -> None:
    path = blocks(tmp_path / "m.onnx")
    model = onnx.load(path)
    for one in model.graph.node:
        one.name = ""
    onnx.save(model, path)
    _, _, ran = trace(path, "ORT_DISABLE_ALL")
    assert name_nodes(model)
    assert [one.name for one in model.graph.node][:3] == ["Conv_0", "BatchNormalization_1", "Relu_2"]
    assert {one.name for one in ran} == {one.name for one in model.graph.node}
    assert not name_nodes(model)


def test_a_name_that_is_taken_is_not_given_again() -> None:
    graph = helper.make_graph(
        [node("Relu", ["x"], ["a"], "Relu_1"), node("Relu", ["a"], ["y"])],
        "g",
        [value("x", [1])],
        [value("y", [1])],
    )
    model = helper.make_model(graph)
    name_nodes(model)
    assert [one.name for one in model.graph.node] == ["Relu_1", "Relu_1_"]


def test_names_of_a_model_are_data_and_nothing_else(tmp_path: Path) -> None:
    odd = ["/a//b_token_3", "_nchwc", "x/", "`<b>`|$\n_token_1"]
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"], name) for i, name in enumerate(odd)]
    path = save(tmp_path / "m.onnx", nodes, [value("t0", [2])], [value("t4", [2])])
    assert covers(path, "ORT_ENABLE_ALL") == {name: [name] for name in odd}


def chain(count: int) -> Any:
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"], f"n{i}") for i in range(count)]
    return helper.make_model(helper.make_graph(nodes, "g", [value("t0", [2])], [value(f"t{count}", [2])]))


def test_a_long_chain_that_became_one_node_is_walked_without_recursion() -> None:
    model = chain(5_000)
    one = node("Fused", ["t0"], ["t5000"], "whole")
    fused = helper.make_model(helper.make_graph([one], "g", [value("t0", [2])], [value("t5000", [2])]))
    (found,) = origins(model, fused, [])
    assert found.nodes == tuple(f"n{i}" for i in range(5_000))


def test_adjacent_nodes_of_which_nothing_is_known_share_what_they_cover() -> None:
    model = chain(4)
    nodes = [node("A", ["t0"], ["u"], "a"), node("B", ["u"], ["v"], "b"), node("C", ["v"], ["t4"], "c")]
    optimized = helper.make_model(helper.make_graph(nodes, "g", [value("t0", [2])], [value("t4", [2])]))
    found = origins(model, optimized, [])
    assert {one.name: " ".join(one.nodes) for one in found} == dict.fromkeys("abc", "n0 n1 n2 n3")
