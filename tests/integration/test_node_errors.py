"""The error of single operators: the worst one is found, under its own name, and excluding it helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from core import wire
from core.wire.errors import ModelError, SpecError
from core.worker.make.transform.node_errors import node_errors
from tests import tiny_models as tiny
from tests.quantizing import DIGITS, OPTIONS, TRANSFORMER, digits_dataset, feed_plans, quantize, silent


def examine(
    step: str,
    source: Path,
    folder: Path,
    *,
    calibration: wire.DatasetPlan | None = None,
    **changes: Any,
) -> wire.NodeErrorsReply:
    """Make a variant and find the source of its error."""
    file, _ = quantize(step, source, folder, calibration=calibration, **changes)
    return node_errors(plan(step, source, file, calibration, **changes), silent)


def plan(
    step: Any, source: Path, variant: Path, calibration: wire.DatasetPlan | None, **changes: Any
) -> wire.NodeErrorsPlan:
    return {
        "float_path": str(source),
        "quantized_path": str(variant),
        "step": step,
        "options": {**OPTIONS[step], **changes},
        "feeds": feed_plans(source),
        "calibration": calibration,
    }


def outliers(path: Path) -> Path:
    """Three layers; the middle one has a weight so large that the others vanish in 8 bits."""
    middle = np.random.default_rng(2).standard_normal((32, 32)).astype(np.float32) * 0.2
    middle[0, 0] = 300.0
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["h1"], "first"),
        helper.make_node("Relu", ["h1"], ["r1"], "relu"),
        helper.make_node("Mul", ["r1", "mask"], ["m1"], "hide_outlier"),
        helper.make_node("Gemm", ["m1", "b"], ["h2"], "middle"),
        helper.make_node("Gemm", ["h2", "c"], ["y"], "last"),
    ]
    mask = np.ones(32, np.float32)
    mask[0] = 0.0
    parameters = [
        tiny.weights("a", [32, 32], 1),
        tiny.constant("mask", mask),
        tiny.constant("b", middle),
        tiny.weights("c", [32, 32], 3),
    ]
    return tiny.save(path, nodes, [tiny.value("x", ["n", 32])], [tiny.value("y", ["n", 32])], parameters)


def worst(reply: wire.NodeErrorsReply) -> wire.NodeError:
    return max(reply["nodes"], key=lambda one: one["alone"])


def test_every_layer_of_the_classifier_is_examined(tmp_path: Path) -> None:
    reply = examine("int8_static", DIGITS, tmp_path, calibration=digits_dataset(), reduce_range=True)
    model = onnx.load(DIGITS)
    names = {node.name: node.op_type for node in model.graph.node}
    found = {one["name"]: one for one in reply["nodes"]}
    layers = [name for name, op_type in names.items() if op_type in ("Conv", "Gemm")]
    assert set(layers) <= set(found) <= set(names)
    for name in layers:
        assert 0 < found[name]["alone"] < 0.2
        assert found[name]["accumulated"] is not None
        assert 0 < found[name]["accumulated"] < 0.2
        assert found[name]["weight_bytes"] > 0
    assert 0 < reply["whole"] < 0.2
    assert reply["seconds"] > 0


def test_errors_accumulate_along_the_model(tmp_path: Path) -> None:
    reply = examine("int8_static", DIGITS, tmp_path, calibration=digits_dataset(), reduce_range=True)
    last = [one for one in reply["nodes"] if one["op_type"] == "Gemm"][-1]
    assert last["accumulated"] is not None
    assert last["accumulated"] > last["alone"]
    assert last["accumulated"] == pytest.approx(reply["whole"], rel=0.5)  # its output is the model's


@pytest.mark.parametrize("step", ["int8_dynamic", "int8_static"])
def test_the_layer_with_outliers_is_the_worst_and_excluding_it_helps(tmp_path: Path, step: str) -> None:
    source = outliers(tmp_path / "o.onnx")
    changes: dict[str, Any] = {"op_types": ["Gemm"], "reduce_range": True}
    before = examine(step, source, tmp_path / "before", **changes)
    assert worst(before)["name"] == "middle"
    others = [one["alone"] for one in before["nodes"] if one["name"] != "middle"]
    assert worst(before)["alone"] > 5 * max(others)
    after = examine(step, source, tmp_path / "after", exclude_nodes=["middle"], **changes)
    assert "middle" not in [one["name"] for one in after["nodes"]]
    assert after["whole"] < 0.2 * before["whole"]


def test_four_bit_layers_are_examined_under_the_names_of_their_author(tmp_path: Path) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx")
    reply = examine("int4", source, tmp_path / "out", op_types=["Gemm"])
    assert [one["name"] for one in reply["nodes"]] == ["fc1", "fc2"]
    assert all(one["alone"] > 0 for one in reply["nodes"])
    assert [one["weight_bytes"] for one in reply["nodes"]] == [4 * (16 * 32 + 32), 4 * (32 * 4 + 4)]


def test_the_transformer_is_examined_with_dynamic_int8(tmp_path: Path) -> None:
    reply = examine("int8_dynamic", TRANSFORMER, tmp_path, op_types=["Gather"])
    names = {node.name for node in onnx.load(TRANSFORMER).graph.node}
    assert reply["nodes"]
    assert {one["name"] for one in reply["nodes"]} <= names
    assert {one["op_type"] for one in reply["nodes"]} == {"Gather"}


def test_operators_in_bodies_with_weights_in_constant_nodes_are_examined(tmp_path: Path) -> None:
    reply = examine("int8_dynamic", tiny.recurrent_in_if(tmp_path / "r.onnx"), tmp_path / "out")
    found = {one["name"]: one for one in reply["nodes"]}
    assert set(found) == {"lstm_then", "lstm_else", "gather_then", "gather_else", "matmul"}
    assert found["lstm_then"]["weight_bytes"] == 2 * 4 * 32 * 8
    assert found["lstm_then"]["accumulated"] is None  # the value of a body cannot be seen from outside
    assert found["matmul"]["alone"] > 0


def test_random_calibration_is_told_again(tmp_path: Path) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx")
    reply = examine("int8_static", source, tmp_path / "out")
    assert any("noise" in note for note in reply["notes"])


def test_progress_goes_through_the_nodes(tmp_path: Path) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx")
    file, _ = quantize("int8_dynamic", source, tmp_path / "out")
    heard: list[tuple[str, int, int]] = []
    node_errors(
        plan("int8_dynamic", source, file, None),
        lambda stage, done, total, text="": heard.append((stage, done, total)),
    )
    assert heard[-1] == ("nodes", 2, 2)


def test_a_step_that_does_not_quantize_is_refused(tmp_path: Path) -> None:
    request = plan("int8_static", DIGITS, DIGITS, None)
    request["step"] = "fp16"
    with pytest.raises(SpecError, match="quantize"):
        node_errors(request, silent)


def test_a_variant_of_another_model_is_refused(tmp_path: Path) -> None:
    file, _ = quantize("int8_static", tiny.conv(tmp_path / "conv.onnx"), tmp_path / "out")
    with pytest.raises(ModelError, match="quantized"):
        node_errors(plan("int8_static", tiny.mlp(tmp_path / "mlp.onnx"), file, None), silent)
