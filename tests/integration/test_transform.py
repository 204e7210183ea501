"""Float16 copies: they load, compute nearly the same, and a failure leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from core import wire
from core.errors import ModelError
from core.models import inspect_model
from core.transform import fp16
from tests import tiny_models as tiny


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """A listener that does not care."""


def convert(source: Path, *, keep_io_types: bool = True) -> tuple[Path, wire.Fp16Reply]:
    output = source.parent / "fp16.onnx"
    return output, fp16(str(source), str(output), keep_io_types, silent)


def run(path: Path, **feeds: np.ndarray) -> list[np.ndarray]:
    return ort.InferenceSession(path).run(None, feeds)


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, 3, 16, 16), dtype=np.float32)


def test_a_copy_with_float32_borders_computes_nearly_the_same(tmp_path: Path) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    output, reply = convert(source)
    (wanted,), (got,) = run(source, image=images(3)), run(output, image=images(3))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, atol=1e-2)
    assert not np.array_equal(got, wanted)  # it really went through float16
    assert reply["nodes_after"] == reply["nodes_before"] + 2  # a Cast at each border
    assert reply["notes"] == []


def test_a_copy_without_float32_borders_takes_and_gives_float16(tmp_path: Path) -> None:
    output, reply = convert(tiny.conv(tmp_path / "conv.onnx"), keep_io_types=False)
    (got,) = run(output, image=images(2).astype(np.float16))
    assert got.dtype == np.float16
    assert reply["nodes_after"] == reply["nodes_before"]
    assert inspect_model(str(output))["inputs"][0]["dtype"] == "float16"


def test_the_reply_describes_the_file_it_wrote(tmp_path: Path) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx", hidden=512)
    output, reply = convert(source)
    info = inspect_model(str(output))
    assert reply["path"] == str(output)
    assert (reply["sha256"], reply["size_bytes"], reply["nodes_after"]) == (
        info["sha256"],
        info["size_bytes"],
        info["nodes"],
    )
    assert reply["size_bytes"] < 0.6 * source.stat().st_size
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fp16.onnx", "mlp.onnx"]


@pytest.mark.parametrize("make", [tiny.if_model, tiny.loop_model, tiny.scan_model])
@pytest.mark.parametrize("keep_io_types", [True, False])
def test_models_with_bodies_are_converted(
    tmp_path: Path, make: Callable[[Path], Path], keep_io_types: bool
) -> None:
    source = make(tmp_path / "source.onnx")
    output, _ = convert(source, keep_io_types=keep_io_types)
    width = inspect_model(str(source))["inputs"][0]["shape"]
    assert width is not None
    x = np.random.default_rng(0).random((3, int(width[1])), dtype=np.float32)
    wanted = run(source, x=x)
    got = run(output, x=x if keep_io_types else x.astype(np.float16))
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-2, atol=2e-2)


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
    output, _ = convert(source)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(run(output, x=x)[0], run(source, x=x)[0], atol=1e-2)


def test_external_data_is_read_and_the_copy_is_one_file(tmp_path: Path) -> None:
    source = tiny.external_data(tmp_path / "e.onnx")
    output, reply = convert(source)
    assert inspect_model(str(output))["external_data"] == []
    assert reply["size_bytes"] == output.stat().st_size
    x = np.random.default_rng(0).random((2, 64), dtype=np.float32)
    np.testing.assert_allclose(run(output, x=x)[0], run(source, x=x)[0], atol=2e-2)


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
    output, _ = convert(tmp_path / "f.onnx", keep_io_types=False)
    (got,) = run(output, x=np.array([1, -2], np.float16))
    np.testing.assert_array_equal(got, np.array([-2, 4], np.float16))


def test_an_input_of_unknown_rank_does_not_stop_the_conversion(tmp_path: Path) -> None:
    output, _ = convert(tiny.rank_unknown(tmp_path / "r.onnx"))
    assert run(output, x=np.array([-1, 2], np.float32))[0].tolist() == [0, 2]


def test_a_model_that_is_float16_already_is_copied_with_a_note(tmp_path: Path) -> None:
    output, _ = convert(tiny.mlp(tmp_path / "mlp.onnx"), keep_io_types=False)
    reply = fp16(str(output), str(tmp_path / "again.onnx"), False, silent)
    assert reply["notes"] == ["the model is in float16 already: the copy is the same"]
    assert reply["nodes_before"] == reply["nodes_after"]


def test_a_model_without_floats_is_copied_with_a_note(tmp_path: Path) -> None:
    _, reply = convert(tiny.identity(tmp_path / "i.onnx", "int64"))
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
    output, reply = convert(source, keep_io_types=False)
    assert reply["notes"] == ["2 stored values are beyond float16's range and become 65504"]
    (got,) = run(output, x=np.ones(4, np.float16))
    assert got.tolist() == [65504, -65504, 1, np.inf]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (tiny.not_onnx, "not an ONNX file"),
        (tiny.external_data_outside, "outside"),
        (tiny.unimplemented, "cannot load the float16 copy"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = make(tmp_path / "in" / "m.onnx")
    with pytest.raises(ModelError, match=words):
        fp16(str(source), str(tmp_path / "out" / "m.onnx"), True, silent)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_output_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    source = tiny.mul(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="Cannot write"):
        fp16(str(source), str(tmp_path / "nowhere" / "m.onnx"), True, silent)


def test_progress_goes_up_to_its_total(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    fp16(
        str(tiny.mul(tmp_path / "m.onnx")),
        str(tmp_path / "h.onnx"),
        True,
        lambda stage, done, total, text="": heard.append((done, total)),
    )
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1]


def test_only_float32_is_touched(tmp_path: Path) -> None:
    output, _ = convert(tiny.every_dtype(tmp_path / "all.onnx"), keep_io_types=False)
    model = onnx.load(output)
    kinds = {one.name: one.type.tensor_type.elem_type for one in model.graph.input}
    assert kinds["in_float32"] == TensorProto.FLOAT16
    assert kinds["in_float64"] == TensorProto.DOUBLE


@pytest.mark.parametrize("keep_io_types", [True, False])
def test_a_copy_that_crashes_onnx_runtime_is_made_and_the_note_tells_the_way_round(
    tmp_path: Path, keep_io_types: bool
) -> None:
    source = tiny.transpose_before_matmul(tmp_path / "t.onnx")
    output, reply = convert(source, keep_io_types=keep_io_types)
    load = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
    crashed = subprocess.run([sys.executable, "-c", load, str(output)], check=False).returncode < 0
    assert crashed == any("NchwcTransformer" in note for note in reply["notes"])
    x = np.random.default_rng(0).random((2, 3, 8), dtype=np.float32)
    (wanted,) = run(source, x=x)
    session = ort.InferenceSession(output, disabled_optimizers=["NchwcTransformer"])  # the way round
    (got,) = session.run(None, {"x": x if keep_io_types else x.astype(np.float16)})
    np.testing.assert_allclose(got, wanted, atol=1e-2)
