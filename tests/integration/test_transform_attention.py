"""Attention in the ways exporters write it: found, replaced, and computed as before."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from core.worker.make.transform.attention import fuse_attention
from tests import tiny_models as tiny
from tests.transforming import run

HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE
SHAPE = ["batch", "sequence", WIDTH]


def node(kind: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
    return helper.make_node(kind, inputs, [output], name=output, **attributes)


def side(name: str, source: str, order: list[int]) -> list[NodeProto]:
    """A projection of `source`, split into heads and transposed to `order`."""
    return [
        node("MatMul", [source, f"w_{name}"], f"{name}_flat"),
        node("Reshape", [f"{name}_flat", "split"], f"{name}_split"),
        node("Transpose", [f"{name}_split"], name, perm=order),
    ]


def scores(style: str) -> list[NodeProto]:
    """Query and key up to what the softmax takes, without a mask."""
    heads_first = [0, 2, 1, 3]
    query = side("q", "x", heads_first)
    if style == "swap at once":
        product = [*side("k", "x", [0, 2, 3, 1]), node("MatMul", ["q", "k"], "product")]
        return [*query, *product, node("Div", ["product", "root"], "scores")]
    key = side("k", "x", heads_first)
    if style == "swap after":
        product = [node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], "product")]
        return [*query, *key, *product, node("Mul", ["factor", "product"], "scores")]
    flat = [  # as torch decomposes scaled_dot_product_attention
        node("Reshape", ["k", "together"], "k3"),
        node("Transpose", ["k3"], "k3t", perm=[0, 2, 1]),
        node("Shape", ["k"], "k_shape"),
        node("Gather", ["k_shape", "swapped"], "apart"),
        node("Reshape", ["k3t", "apart"], "kt"),
        node("Mul", ["q", "half"], "q_scaled"),
        node("Mul", ["kt", "half"], "k_scaled"),
    ]
    return [*query, *key, *flat, node("MatMul", ["q_scaled", "k_scaled"], "scores")]


def attention(path: Path, style: str, *, masked: bool, length: int | str = "sequence") -> Path:
    inputs = [tiny.value("x", ["batch", length, WIDTH])]
    if masked:
        inputs.append(tiny.value("mask", ["batch", 1, 1, length]))
    nodes = [*scores(style), *side("v", "x", [0, 2, 1, 3])]
    nodes += [node("Add", ["scores", "mask"], "biased")] if masked else []
    nodes += [
        node("Softmax", ["biased" if masked else "scores"], "weights", axis=-1),
        node("MatMul", ["weights", "v"], "mixed"),
        node("Transpose", ["mixed"], "turned", perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "join"], "y"),
    ]
    stored = [
        *(tiny.weights(f"w_{one}", [WIDTH, WIDTH], seed) for seed, one in enumerate("qkv")),
        tiny.constant("split", np.array([0, 0, HEADS, SIZE])),
        tiny.constant("join", np.array([0, 0, WIDTH])),
        tiny.constant("together", np.array([-1, 5, SIZE])),
        tiny.constant("swapped", np.array([0, 1, 3, 2])),
        tiny.constant("root", np.float32(math.sqrt(SIZE))),
        tiny.constant("factor", np.float32(1 / math.sqrt(SIZE))),
        tiny.constant("half", np.array([SIZE**-0.25], np.float32)),
    ]
    used = {name for one in nodes for name in one.input}
    stored = [one for one in stored if one.name in used]
    return tiny.save(path, nodes, inputs, [tiny.value("y", ["batch", length, WIDTH])], stored)


@pytest.mark.parametrize("style", ["swap at once", "swap after", "flat swap"])
@pytest.mark.parametrize("masked", [True, False])
def test_every_way_of_writing_it_is_found_and_computes_the_same(
    tmp_path: Path, style: str, masked: bool
) -> None:
    source = attention(
        tmp_path / "a.onnx", style, masked=masked, length=5 if style == "flat swap" else "sequence"
    )
    model = onnx.load(source)
    assert fuse_attention(model) == 1
    kinds = [one.op_type for one in model.graph.node]
    assert "MultiHeadAttention" in kinds
    assert "Softmax" not in kinds
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "fused.onnx")
    generator = np.random.default_rng(0)
    feeds = {"x": generator.standard_normal((3, 5, WIDTH)).astype(np.float32)}
    if masked:
        feeds["mask"] = np.where(generator.random((3, 1, 1, 5)) < 0.4, -10_000, 0).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "fused.onnx", **feeds)[0], run(source, **feeds)[0], atol=1e-5)


def test_nothing_is_left_of_what_was_replaced(tmp_path: Path) -> None:
    model = onnx.load(attention(tmp_path / "a.onnx", "swap at once", masked=False))
    fuse_attention(model)
    assert [one.op_type for one in model.graph.node] == ["MatMul", "MatMul", "MatMul", "MultiHeadAttention"]
    assert {one.name for one in model.graph.initializer} == {"w_q", "w_k", "w_v"}


def test_weights_that_somebody_else_reads_stay_computed(tmp_path: Path) -> None:
    """The attention's weights are an output too: they cannot be had from the fused operator."""
    model = onnx.load(attention(tmp_path / "a.onnx", "swap at once", masked=False))
    model.graph.output.append(tiny.value("weights", ["batch", HEADS, "sequence", "sequence"]))
    assert fuse_attention(model) == 0


def test_a_softmax_that_is_no_attention_stays(tmp_path: Path) -> None:
    model = onnx.load(tiny.mlp(tmp_path / "m.onnx"))
    before = model.SerializeToString()
    assert fuse_attention(model) == 0
    assert model.SerializeToString() == before
