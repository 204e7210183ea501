"""Float16 copies and mixed precision: they load, compute nearly the same, and keep what must stay exact."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from core.wire.errors import ModelError, SpecError
from core.worker.models import inspect_model
from tests import tiny_models as tiny
from tests.transforming import do, run

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, 3, 16, 16), dtype=np.float32)


def sample(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.write_bytes((SAMPLES / name).read_bytes())
    return path


# --- fp16 ---------------------------------------------------------------------------------------------------


def test_a_copy_with_float32_borders_computes_nearly_the_same(tmp_path: Path) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    output, reply = do(source, "fp16", keep_io_types=True)
    (wanted,), (got,) = run(source, image=images(3)), run(output, image=images(3))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, atol=1e-2)
    assert not np.array_equal(got, wanted)  # it really went through float16
    assert reply["nodes_after"] == reply["nodes_before"] + 2  # a Cast at each border
    assert (reply["notes"], reply["facts"]["blocked"]) == ([], [])
    emulated = reply["facts"]["float16_error"]["max_rel"]
    assert emulated >= reply["error"]["max_rel"] > 0
    (check,) = reply["checks"]
    assert (check["name"], check["level"]) == ("float16", "info")
    assert f"{emulated:.2g} of the largest" in check["text"]


def test_a_copy_without_float32_borders_takes_and_gives_float16(tmp_path: Path) -> None:
    output, reply = do(tiny.conv(tmp_path / "conv.onnx"), "fp16", keep_io_types=False)
    (got,) = run(output, image=images(2).astype(np.float16))
    assert got.dtype == np.float16
    assert reply["nodes_after"] == reply["nodes_before"]
    assert inspect_model(str(output))["inputs"][0]["dtype"] == "float16"


def test_single_inputs_and_outputs_can_be_kept(tmp_path: Path) -> None:
    output, _ = do(tiny.conv(tmp_path / "conv.onnx"), "fp16", keep_io_types=["logits"])
    info = inspect_model(str(output))
    assert (info["inputs"][0]["dtype"], info["outputs"][0]["dtype"]) == ("float16", "float32")


def test_the_copy_is_half_as_large(tmp_path: Path) -> None:
    _, reply = do(tiny.mlp(tmp_path / "mlp.onnx", hidden=512), "fp16", keep_io_types=True)
    assert reply["size_bytes"] < 0.6 * reply["size_before_bytes"]


@pytest.mark.parametrize("keep", [True, False])
def test_the_digits_keep_their_accuracy(tmp_path: Path, keep: bool) -> None:
    source = sample(tmp_path, "digits_cnn.onnx")
    output, _ = do(source, "fp16", keep_io_types=keep)
    data = np.load(SAMPLES / "digits_test.npz")
    rows = data["test_images"].astype(np.float32)[:, None] / 255
    labels = data["test_labels"].reshape(-1)
    name = inspect_model(str(source))["inputs"][0]["name"]

    def right(path: Path, fed: np.ndarray) -> int:
        return int((run(path, **{name: fed})[0].argmax(axis=-1) == labels).sum())

    before = right(source, rows)
    assert before > 0.9 * len(labels)  # inputs are preprocessed as in training
    assert abs(right(output, rows if keep else rows.astype(np.float16)) - before) <= 1


@pytest.mark.parametrize("make", [tiny.if_model, tiny.loop_model, tiny.scan_model])
@pytest.mark.parametrize("keep", [True, False])
def test_models_with_bodies_are_converted(tmp_path: Path, make: Callable[[Path], Path], keep: bool) -> None:
    source = make(tmp_path / "source.onnx")
    output, _ = do(source, "fp16", keep_io_types=keep)
    width = inspect_model(str(source))["inputs"][0]["shape"]
    assert width is not None
    x = np.random.default_rng(0).random((3, int(width[1])), dtype=np.float32)
    for one, other in zip(run(source, x=x), run(output, x=x if keep else x.astype(np.float16)), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-2, atol=2e-2)


def test_operators_and_nodes_can_be_left_in_float32(tmp_path: Path) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    output, reply = do(source, "fp16", keep_io_types=True, block_ops=["Conv"], block_nodes=["fc"])
    assert reply["facts"]["blocked"] == ["conv1", "conv2", "fc"]
    stored = {one.name: one.data_type for one in onnx.load(output).graph.initializer}
    assert set(stored.values()) == {TensorProto.FLOAT}  # all weights belong to those three
    np.testing.assert_allclose(run(output, image=images(2))[0], run(source, image=images(2))[0], atol=1e-2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block_nodes": ["conv_1"]}, "no node `conv_1`.*Did you mean `conv1`"),
        ({"block_ops": ["Softmax"]}, "no operator `Softmax`"),
    ],
)
def test_what_is_not_there_cannot_be_left_in_float32(
    tmp_path: Path, options: dict[str, list[str]], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        do(tiny.conv(tmp_path / "conv.onnx"), "fp16", **options)


def shared_by_blocked_nodes(path: Path) -> Path:
    """Two Max nodes, which stay in float32, share one initializer that a third node has in float16."""
    nodes = [
        helper.make_node("Max", ["x", "w"], ["a"], name="max_1"),
        helper.make_node("Mul", ["a", "w"], ["b"], name="mul"),
        helper.make_node("Max", ["b", "w"], ["y"], name="max_2"),
    ]
    shape = ["batch", 4]
    return tiny.save(
        path, nodes, [tiny.value("x", shape)], [tiny.value("y", shape)], [tiny.weights("w", (4,))]
    )


def test_the_converters_doubled_casts_are_mended(tmp_path: Path) -> None:
    source = shared_by_blocked_nodes(tmp_path / "shared.onnx")
    raw = convert_float_to_float16(onnx.load(source), keep_io_types=True)
    with pytest.raises(Exception, match="two nodes with same node name"):  # the fault is there
        ort.InferenceSession(raw.SerializeToString())
    output, _ = do(source, "fp16", keep_io_types=True)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(run(output, x=x)[0], run(source, x=x)[0], atol=1e-2)


def test_a_shared_weight_stays_exact_for_the_nodes_in_float32(tmp_path: Path) -> None:
    source = shared_by_blocked_nodes(tmp_path / "shared.onnx")
    output, reply = do(source, "fp16", keep_io_types=True)
    stored = {one.name: numpy_helper.to_array(one) for one in onnx.load(output).graph.initializer}
    exact = numpy_helper.to_array(onnx.load(source).graph.initializer[0])
    np.testing.assert_array_equal(stored["w_float32"], exact)
    assert stored["w"].dtype == np.float16
    found = [(check["name"], check["level"]) for check in reply["checks"]]
    assert found == [("sharing", "info"), ("float16", "info")]


def test_an_activation_that_two_nodes_in_float32_share_gets_one_cast(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"], name="mul"),
        helper.make_node("Max", ["a", "x"], ["b"], name="max"),
        helper.make_node("Min", ["a", "b"], ["y"], name="min"),
    ]
    shape = ["batch", 4]
    source = tiny.save(tmp_path / "s.onnx", nodes, [tiny.value("x", shape)], [tiny.value("y", shape)])
    output, _ = do(source, "fp16", keep_io_types=False)
    casts = [node for node in onnx.load(output).graph.node if node.op_type == "Cast"]
    assert len({node.output[0] for node in casts}) == len(casts)


def test_local_functions_are_converted_too(tmp_path: Path) -> None:
    inner = [helper.make_node("Add", ["a", "a"], ["h"]), helper.make_node("Neg", ["h"], ["b"])]
    function = helper.make_function("local", "NegTwice", ["a"], ["b"], inner, [helper.make_opsetid("", 20)])
    graph = helper.make_graph(
        [helper.make_node("NegTwice", ["x"], ["y"], domain="local", name="call")],
        "g",
        [tiny.value("x", [2])],
        [tiny.value("y", [2])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    onnx.save(
        helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10),
        tmp_path / "f.onnx",
    )
    output, _ = do(tmp_path / "f.onnx", "fp16", keep_io_types=False)
    (got,) = run(output, x=np.array([1, -2], np.float16))
    np.testing.assert_array_equal(got, np.array([-2, 4], np.float16))


def test_a_model_that_is_float16_already_is_copied_with_a_note(tmp_path: Path) -> None:
    half, _ = do(tiny.mlp(tmp_path / "mlp.onnx"), "fp16", keep_io_types=False)
    _, reply = do(half, "fp16", keep_io_types=False)
    assert reply["notes"] == ["the model is in float16 already: the copy is the same"]
    assert reply["nodes_before"] == reply["nodes_after"]


def test_a_model_without_floats_is_copied_with_a_note(tmp_path: Path) -> None:
    _, reply = do(tiny.identity(tmp_path / "i.onnx", "int64"), "fp16", keep_io_types=True)
    assert reply["notes"] == ["the model has no float32 values: the copy is the same"]


def test_values_beyond_float16_are_counted(tmp_path: Path) -> None:
    stored = tiny.constant("w", np.array([1e6, -1e6, 1.0, np.inf], np.float32))
    source = tiny.save(
        tmp_path / "big.onnx",
        [helper.make_node("Mul", ["x", "w"], ["y"], name="mul")],
        [tiny.value("x", [4])],
        [tiny.value("y", [4])],
        [stored],
    )
    output, reply = do(source, "fp16", keep_io_types=False)
    assert "2 stored values are beyond float16's range and become 65504" in reply["notes"]
    (got,) = run(output, x=np.ones(4, np.float16))
    assert got.tolist() == [65504, -65504, 1, np.inf]


def test_values_that_stay_in_float32_are_not_said_to_change(tmp_path: Path) -> None:
    """The mask's constant stays exact where its reader does, in `fp16` by name and in `mixed` by search."""
    source = tiny.save(
        tmp_path / "mask.onnx",
        [
            helper.make_node("Add", ["x", "mask"], ["a"], name="masked"),
            helper.make_node("Sub", ["a", "mask"], ["b"], name="unmasked"),
            helper.make_node("Mul", ["b", "w"], ["y"], name="mul"),
        ],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
        [tiny.constant("mask", np.full(4, 1e5, np.float32)), tiny.constant("w", np.float32(0.1))],
    )
    for step, options in (
        ("fp16", {"block_nodes": ["masked", "unmasked"]}),
        ("mixed", {"max_rel": 1e-2}),
    ):
        output, reply = do(source, step, keep_io_types=True, **options)
        (stored,) = [one for one in onnx.load(output).graph.initializer if one.name == "mask"]
        assert stored.data_type == TensorProto.FLOAT, step
        assert not any("65504" in note for note in reply["notes"]), step


def test_a_copy_that_float16_kernels_would_ruin_is_a_warning(tmp_path: Path) -> None:
    """Here the CPU computes it in float32 and shows nothing; the emulation does, and is judged."""
    source = tiny.save(
        tmp_path / "lost.onnx",
        [
            helper.make_node("Add", ["x", "large"], ["a"], name="add"),
            helper.make_node("Sub", ["a", "large"], ["y"], name="sub"),
        ],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
        [tiny.constant("large", np.float32(60000))],
    )
    _, reply = do(source, "fp16", keep_io_types=True)
    (check,) = [one for one in reply["checks"] if one["name"] == "float16"]
    assert check["level"] == "warning"
    assert "where 0.02 is allowed (fp16)" in check["text"]


def test_only_float32_is_touched(tmp_path: Path) -> None:
    output, _ = do(tiny.every_dtype(tmp_path / "all.onnx"), "fp16", keep_io_types=False)
    kinds = {one.name: one.type.tensor_type.elem_type for one in onnx.load(output).graph.input}
    assert kinds["in_float32"] == TensorProto.FLOAT16
    assert kinds["in_float64"] == TensorProto.DOUBLE


def test_a_node_after_an_operator_that_onnx_does_not_know_can_be_left_in_float32(tmp_path: Path) -> None:
    """Types behind ONNX Runtime's own operators are inferred too, or a Cast would be missing."""
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], name="gelu", domain="com.microsoft"),
        helper.make_node("Max", ["a", "x"], ["y"], name="max"),
    ]
    shape = ["batch", 4]
    graph = helper.make_graph(nodes, "g", [tiny.value("x", shape)], [tiny.value("y", shape)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    source = tmp_path / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), source)
    output, _ = do(source, "fp16", keep_io_types=True)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(run(output, x=x)[0], run(source, x=x)[0], atol=1e-2)


@pytest.mark.parametrize("keep", [True, False])
def test_a_copy_that_crashes_onnx_runtime_is_made_and_the_note_tells_the_way_round(
    tmp_path: Path, keep: bool
) -> None:
    source = tiny.transpose_before_matmul(tmp_path / "t.onnx")
    output, reply = do(source, "fp16", keep_io_types=keep)
    load = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
    crashed = subprocess.run([sys.executable, "-c", load, str(output)], check=False).returncode < 0
    assert crashed == any("NchwcTransformer" in note for note in reply["notes"])
    x = np.random.default_rng(0).random((2, 3, 8), dtype=np.float32)
    (wanted,) = run(source, x=x)
    session = ort.InferenceSession(output, disabled_optimizers=["NchwcTransformer"])  # the way round
    (got,) = session.run(None, {"x": x if keep else x.astype(np.float16)})
    np.testing.assert_allclose(got, wanted, atol=1e-2)


def test_overflow_that_the_cpu_hides_is_warned_of(tmp_path: Path) -> None:
    """ONNX Runtime's CPU provider computes float16 in float32: its outputs stay finite."""
    source = tiny.save(
        tmp_path / "big.onnx",
        [
            helper.make_node("Add", ["x", "shift"], ["a"], name="add"),
            helper.make_node("Mul", ["a", "a"], ["b"], name="square"),
            helper.make_node("Sqrt", ["b"], ["y"], name="root"),
        ],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
        [tiny.constant("shift", np.float32(1000))],
    )
    _, reply = do(source, "fp16", keep_io_types=True)
    assert reply["error"]["difference"] == ""
    assert "infinite" in reply["facts"]["float16_error"]["difference"]
    (check,) = reply["checks"]
    assert (check["name"], check["level"]) == ("overflow", "warning")
    _, mended = do(source, "fp16", keep_io_types=True, block_nodes=["square", "root"])
    assert all(check["level"] == "info" for check in mended["checks"])
    assert mended["facts"]["float16_error"]["max_rel"] < 1e-2


def test_values_between_two_nodes_in_float32_are_not_rounded(tmp_path: Path) -> None:
    """ONNX Runtime's converter puts a Cast to float16 and one back between them."""
    shape = ["batch", 4]
    nodes = [
        helper.make_node("Add", ["x", "large"], ["a"], name="up"),
        helper.make_node("Sub", ["a", "large"], ["y"], name="down"),
    ]
    source = tiny.save(
        tmp_path / "m.onnx",
        nodes,
        [tiny.value("x", shape)],
        [tiny.value("y", shape)],
        [tiny.constant("large", np.float32(3000))],
    )
    blocked = ["up", "down"]
    raw = convert_float_to_float16(onnx.load(source), keep_io_types=True, node_block_list=blocked)
    assert sum(node.op_type == "Cast" for node in raw.graph.node) > 2  # the fault is there
    output, reply = do(source, "fp16", keep_io_types=True, block_nodes=blocked)
    assert [node.op_type for node in onnx.load(output).graph.node] == ["Add", "Sub"]
    assert reply["error"]["max_abs"] == 0.0


# --- mixed --------------------------------------------------------------------------------------------------


def cancelling(path: Path) -> Path:
    """Two layers, and between them a large number added and taken away again: float16 loses all behind it."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Add", ["a", "large"], ["b"], name="up"),
        helper.make_node("Sub", ["b", "large"], ["c"], name="down"),
        helper.make_node("MatMul", ["c", "w2"], ["y"], name="last"),
    ]
    stored = [
        tiny.weights("w1", [8, 8], 1),
        tiny.weights("w2", [8, 8], 2),
        tiny.constant("large", np.float32(3000)),
    ]
    return tiny.save(path, nodes, [tiny.value("x", ["batch", 8])], [tiny.value("y", ["batch", 8])], stored)


def test_mixed_precision_leaves_the_harmful_nodes_in_float32(tmp_path: Path) -> None:
    source = cancelling(tmp_path / "c.onnx")
    _, half = do(source, "fp16", keep_io_types=True)
    output, reply = do(source, "mixed", max_rel=0.005, keep_io_types=True)
    facts = reply["facts"]
    assert half["facts"]["float16_error"]["max_rel"] > 0.1  # the trap is there
    assert facts["error_all_float16"] > 0.1
    assert 0 < facts["error"] <= 0.005
    assert reply["error"]["max_rel"] <= 0.005
    assert {"up", "down"} <= set(facts["blocked"]) < {"first", "up", "down", "last"}
    assert facts["candidates"] == 4
    kinds = {one.data_type for one in onnx.load(output).graph.initializer}
    assert kinds == {TensorProto.FLOAT, TensorProto.FLOAT16}


def test_mixed_precision_blocks_nothing_where_float16_holds(tmp_path: Path) -> None:
    _, reply = do(tiny.mlp(tmp_path / "m.onnx"), "mixed", max_rel=0.05, keep_io_types=True)
    assert (reply["facts"]["blocked"], reply["facts"]["tries"]) == ([], 1)
    assert not any("computes in float32" in note for note in reply["notes"])


def test_mixed_precision_says_that_nothing_could_be_in_float16(tmp_path: Path) -> None:
    _, reply = do(cancelling(tmp_path / "c.onnx"), "mixed", max_rel=1e-7, keep_io_types=True)
    assert len(reply["facts"]["blocked"]) == reply["facts"]["candidates"]
    assert any("computes in float32" in note for note in reply["notes"])


def test_a_tolerance_that_the_borders_break_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Even with every operator in float32") as caught:
        do(tiny.mlp(tmp_path / "m.onnx"), "mixed", max_rel=1e-7, keep_io_types=False)
    assert "keep the types" in caught.value.hint


def test_a_value_that_overflows_in_float16_is_kept_in_float32(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "large"], ["a"], name="up"),
        helper.make_node("Mul", ["a", "small"], ["b"], name="down"),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    stored = [tiny.constant("large", np.float32(60000)), tiny.constant("small", np.float32(1e-4))]
    shape = ["batch", 4]
    source = tiny.save(
        tmp_path / "o.onnx",
        [helper.make_node("Add", ["in", "two"], ["x"], name="shift"), *nodes],
        [tiny.value("in", shape)],
        [tiny.value("y", shape)],
        [*stored, tiny.constant("two", np.float32(2))],
    )
    _, reply = do(source, "mixed", max_rel=0.01, keep_io_types=True)
    assert reply["facts"]["error_all_float16"] is None  # infinite
    assert "up" in reply["facts"]["blocked"]
    assert reply["error"]["difference"] == ""


def test_the_transformer_sample_holds_a_tolerance_that_float16_breaks(tmp_path: Path) -> None:
    source = sample(tmp_path, "tiny_transformer.onnx")
    _, half = do(source, "fp16", keep_io_types=True)
    wanted = half["facts"]["float16_error"]["max_rel"] / 2
    _, reply = do(source, "mixed", max_rel=wanted, keep_io_types=True)
    assert 0 < reply["facts"]["error"] <= wanted
    assert reply["error"]["max_rel"] <= wanted
    assert 0 < len(reply["facts"]["blocked"]) < reply["facts"]["candidates"]
