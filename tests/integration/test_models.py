"""Inspecting real model files, good ones and bad ones."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from core import wire
from core.run.plan import feed_plan
from core.spec import WorkloadSpec
from core.wire.errors import ModelError
from core.wire.runtime import OWN_IR_VERSION, OWN_OPSET
from core.worker.models import inspect_model
from tests import tiny_models as tiny


def inspect(path: Path) -> wire.ModelInfo:
    return inspect_model(str(path))


def refused(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        inspect(path)
    assert caught.value.hint
    return caught.value


def inputs_model(path: Path, *inputs: tuple[str, Sequence[int | str | None]]) -> wire.ModelInfo:
    """Inspect a model that passes each input through a Relu."""
    nodes = [helper.make_node("Relu", [name], [f"out_{name}"]) for name, _ in inputs]
    tiny.save(
        path,
        nodes,
        [tiny.value(name, shape) for name, shape in inputs],
        [tiny.value(f"out_{name}", shape) for name, shape in inputs],
    )
    return inspect(path)


# --- what a good file tells ---------------------------------------------------------------------------------


def test_an_inspected_model_is_described_as_the_file_says(tmp_path: Path) -> None:
    path = tiny.mlp(tmp_path / "mlp.onnx")
    info = inspect(path)
    assert info["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 16]}]
    assert [one["shape"] for one in info["outputs"]] == [["batch", 4]]
    assert info["op_counts"] == {"Gemm": 2, "Relu": 1, "Softmax": 1}
    assert info["nodes"] == 4
    assert info["parameters"] == 16 * 32 + 32 + 32 * 4 + 4
    assert (info["ir_version"], info["opset"][""]) == (tiny.IR_VERSION, tiny.OPSET)
    assert info["size_bytes"] == path.stat().st_size
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert info["sha256"] == info["content_sha256"] == digest
    assert json.loads(json.dumps(info)) == info  # crosses the pipe unchanged


def test_metadata_and_producer_are_kept(tmp_path: Path) -> None:
    model = onnx.load(tiny.mul(tmp_path / "m.onnx"))
    model.producer_name, model.producer_version = "pytorch", "2.14.1"
    helper.set_model_props(model, {"author": "me"})
    onnx.save(model, tmp_path / "m.onnx")
    info = inspect(tmp_path / "m.onnx")
    assert info["metadata"] == {"author": "me"}
    assert info["producer"] == "pytorch 2.14.1"


def test_bodies_of_if_loop_and_scan_count(tmp_path: Path) -> None:
    assert inspect(tiny.if_model(tmp_path / "if.onnx"))["op_counts"]["Mul"] == 1
    assert inspect(tiny.loop_model(tmp_path / "loop.onnx"))["op_counts"]["MatMul"] == 1
    assert inspect(tiny.scan_model(tmp_path / "scan.onnx"))["op_counts"]["Add"] == 1


def test_a_call_of_a_local_function_is_one_node_of_its_own_domain(tmp_path: Path) -> None:
    inner = [helper.make_node("Relu", ["a"], ["h"]), helper.make_node("Neg", ["h"], ["b"])]
    function = helper.make_function("local", "NegRelu", ["a"], ["b"], inner, [helper.make_opsetid("", 20)])
    graph = helper.make_graph(
        [helper.make_node("NegRelu", ["x"], ["y"], domain="local")],
        "g",
        [tiny.value("x", [2])],
        [tiny.value("y", [2])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    onnx.save(model, tmp_path / "f.onnx")
    info = inspect(tmp_path / "f.onnx")
    assert info["op_counts"] == {"local.NegRelu": 1}
    assert info["opset"] == {"": 20, "local": 1}


def test_initializers_listed_as_inputs_are_not_to_be_fed(tmp_path: Path) -> None:
    path = tiny.mlp(tmp_path / "old.onnx")
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    onnx.save(model, path)
    fed = [one.name for one in ort.InferenceSession(path).get_inputs()]
    assert [one["name"] for one in inspect(path)["inputs"]] == fed == ["x"]


def test_every_dtype_has_numpys_name(tmp_path: Path) -> None:
    names = [one["dtype"] for one in inspect(tiny.every_dtype(tmp_path / "all.onnx"))["inputs"]]
    assert {"float16", "float32", "float64", "int8", "uint8", "int64", "bool"} <= set(names)
    assert all(np.dtype(name) for name in names)
    assert inspect(tiny.unimplemented(tmp_path / "b.onnx"))["inputs"][0]["dtype"] == "bfloat16"


def test_an_input_that_is_no_tensor_is_named_as_onnx_runtime_names_it(tmp_path: Path) -> None:
    path = tiny.sequence_input(tmp_path / "seq.onnx")
    (info,) = inspect(path)["inputs"]
    assert info["dtype"] == ort.InferenceSession(path).get_inputs()[0].type == "seq(tensor(float))"
    assert info["shape"] is None


def test_a_scalar_and_an_unknown_rank_are_told_apart(tmp_path: Path) -> None:
    assert inspect(tiny.scalar(tmp_path / "s.onnx"))["inputs"][1]["shape"] == []
    assert inspect(tiny.rank_unknown(tmp_path / "r.onnx"))["inputs"][0]["shape"] is None


# --- free dimensions and the batch --------------------------------------------------------------------------


def test_unnamed_dimensions_are_addressed_by_input_and_axis(tmp_path: Path) -> None:
    info = inspect(tiny.unnamed_dims(tmp_path / "u.onnx"))
    assert info["free_dims"] == ["x:0", "x:2"]
    assert (info["batch_dim"], info["batch_axes"]) == ("x:0", {"x": 0})


@pytest.mark.parametrize("placeholder", ["?", "", "-1", "None", "unknown", "*"])
def test_the_same_placeholder_twice_is_two_dimensions(tmp_path: Path, placeholder: str) -> None:
    info = inputs_model(tmp_path / "p.onnx", ("x", [placeholder, 4, placeholder]), ("y", [placeholder]))
    assert info["free_dims"] == ["x:0", "x:2", "y:0"]
    assert (info["batch_dim"], info["batch_axes"]) == ("x:0", {"x": 0, "y": 0})


def test_one_name_is_one_dimension_wherever_it_stands(tmp_path: Path) -> None:
    info = inputs_model(tmp_path / "n.onnx", ("ids", ["batch", "seq"]), ("mask", ["batch", "seq", "seq"]))
    assert info["free_dims"] == ["batch", "seq"]
    assert info["batch_axes"] == {"ids": 0, "mask": 0}


def test_a_negative_size_is_free_and_a_size_of_zero_is_zero(tmp_path: Path) -> None:
    info = inputs_model(tmp_path / "z.onnx", ("x", [-1, 3]), ("empty", [0, 3]))
    assert [one["shape"] for one in info["inputs"]] == [["x:0", 3], [0, 3]]
    session = ort.InferenceSession(tmp_path / "z.onnx")
    rows, none = np.ones((2, 3), np.float32), np.ones((0, 3), np.float32)
    assert session.run(None, {"x": rows, "empty": none})[0].shape == (2, 3)
    with pytest.raises(Exception, match="Expected: 0"):  # so no other size is possible
        session.run(None, {"x": rows, "empty": rows})


@pytest.mark.parametrize(
    ("inputs", "dim", "axes"),
    [
        ([("x", ["N", 3, 8, 8])], "N", {"x": 0}),
        ([("x", ["B", "N", 3])], "B", {"x": 0}),
        ([("x", ["T", "N", 40])], "N", {"x": 1}),
        ([("x", ["time", "batch_size", 40])], "batch_size", {"x": 1}),
        ([("state", [2, "batch", 8]), ("x", ["batch", 4])], "batch", {"state": 1, "x": 0}),
        ([("x", ["s77", 3])], "s77", {"x": 0}),
        ([("x", ["unk__6", 3]), ("y", ["unk__7", 3])], "unk__6", {"x": 0, "y": 0}),
        ([("x", ["num_images", 3]), ("y", ["num_boxes", 4])], "num_images", {"x": 0}),
        ([("x", ["past_length + 1", "batch", 3])], "batch", {"x": 1}),
        ([("x", [None, None, 8]), ("sr", [])], "x:0", {"x": 0}),
    ],
)
def test_the_batch_is_found_by_name_or_on_axis_0(
    tmp_path: Path, inputs: list[tuple[str, list[int | str | None]]], dim: str, axes: dict[str, int]
) -> None:
    info = inputs_model(tmp_path / "b.onnx", *inputs)
    assert (info["batch_dim"], info["batch_axes"], info["fixed_batch"]) == (dim, axes, None)


@pytest.mark.parametrize(
    ("inputs", "fixed", "axes"),
    [
        ([("x", [4, 3, 8, 8])], 4, {"x": 0}),
        ([("x", [4, 3]), ("length", [4])], 4, {"x": 0, "length": 0}),
        ([("x", [4, 3]), ("scale", [7])], 4, {"x": 0}),
        ([("x", [4, 3]), ("y", [5, 3])], 1, {}),
        ([("x", ["sequence", 3])], 1, {}),
        ([("x", [])], 1, {}),
    ],
)
def test_a_fixed_batch_is_what_axis_0_says_where_the_inputs_agree(
    tmp_path: Path, inputs: list[tuple[str, list[int | str | None]]], fixed: int, axes: dict[str, int]
) -> None:
    info = inputs_model(tmp_path / "f.onnx", *inputs)
    assert (info["batch_dim"], info["batch_axes"], info["fixed_batch"]) == (None, axes, fixed)


# --- ranges of random inputs --------------------------------------------------------------------------------


def int_model(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto],
    *,
    name: str = "ids",
    dtype: str = "int64",
) -> wire.InputInfo:
    tiny.save(path, nodes, [tiny.value(name, ["n"], dtype)], [tiny.value("y", None)], initializers)
    return inspect(path)["inputs"][0]


def test_token_numbers_stay_inside_the_embedding_table(tmp_path: Path) -> None:
    ids, mask = inspect(tiny.tokens(tmp_path / "t.onnx", vocabulary=50))["inputs"]
    assert (ids["low"], ids["high"]) == (0, 50)
    assert "50 entries" in ids["range_reason"]
    assert (mask["low"], mask["high"]) == (1, 2)
    assert "mask" in mask["range_reason"]


def test_an_index_is_found_behind_nodes_that_only_move_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["wide", "zero"], ["column"]),
        helper.make_node("Identity", ["column"], ["same"]),
        helper.make_node("Add", ["same", "two"], ["shifted"]),
        helper.make_node("Gather", ["table", "shifted"], ["y"], axis=0),
    ]
    stored = [
        tiny.constant("zero", np.array([0])),
        tiny.constant("two", np.array(2)),
        tiny.weights("table", (12, 3)),
    ]
    info = int_model(tmp_path / "c.onnx", nodes, stored, dtype="int32")
    assert (info["low"], info["high"]) == (0, 10)  # 10 + 2 is row 12, one too far


def test_of_two_tables_the_smaller_one_bounds_the_index(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["large", "ids"], ["a"]),
        helper.make_node("Gather", ["small", "ids"], ["b"], axis=1),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    stored = [tiny.weights("large", (100, 3)), tiny.weights("small", (4, 7))]
    assert int_model(tmp_path / "two.onnx", nodes, stored)["high"] == 7


def test_an_index_used_only_inside_a_branch_is_found(tmp_path: Path) -> None:
    def branch(name: str, op: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([op], name, [], [tiny.value(op.output[0], None)])

    then = branch("then", helper.make_node("Gather", ["table", "ids"], ["t"]))
    other = branch("else", helper.make_node("Gather", ["table", "first"], ["e"]))
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    stored = [
        tiny.weights("table", (6, 2)),
        tiny.constant("flag", np.array(True)),
        tiny.constant("first", np.array([0])),
    ]
    assert int_model(tmp_path / "if.onnx", nodes, stored)["high"] == 6


def test_one_hot_bounds_its_input_by_the_depth(tmp_path: Path) -> None:
    nodes = [helper.make_node("OneHot", ["ids", "depth", "values"], ["y"])]
    stored = [tiny.constant("depth", np.array(9)), tiny.constant("values", np.array([0.0, 1.0], np.float32))]
    assert int_model(tmp_path / "h.onnx", nodes, stored)["high"] == 9


def test_an_input_that_is_a_size_gets_a_small_one(tmp_path: Path) -> None:
    nodes = [helper.make_node("ConstantOfShape", ["ids"], ["y"])]
    info = int_model(tmp_path / "s.onnx", nodes, [])
    assert (info["low"], info["high"]) == (1, 2)


def test_a_number_that_is_only_calculated_with_has_no_range(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["ids", "ids"], ["y"])]
    assert "low" not in int_model(tmp_path / "m.onnx", nodes, [])


# --- external data ------------------------------------------------------------------------------------------


def test_external_data_is_hashed_and_counted(tmp_path: Path) -> None:
    path = tiny.external_data(tmp_path / "e.onnx")
    info = inspect(path)
    data = (tmp_path / "weights.bin").read_bytes()
    assert info["external_data"] == [
        {"location": "weights.bin", "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert info["size_bytes"] == path.stat().st_size + len(data)
    assert info["parameters"] == 64 * 64
    assert info["content_sha256"] != info["sha256"]


def test_changed_weights_are_another_model_with_the_same_file_hash(tmp_path: Path) -> None:
    path = tiny.external_data(tmp_path / "e.onnx")
    before = inspect(path)
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    after = inspect(path)
    assert after["sha256"] == before["sha256"]
    assert after["content_sha256"] != before["content_sha256"]


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path = tiny.external_data(tmp_path / "e.onnx")
    (tmp_path / "weights.bin").unlink()
    assert "`weights.bin`" in refused(path).message
    assert "missing" in refused(path).message


def test_external_data_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path = tiny.external_data(tmp_path / "e.onnx")
    os.truncate(tmp_path / "weights.bin", 100)
    assert "100 bytes" in refused(path).message


def relocated(path: Path, location: str) -> Path:
    """Let the model's external data point at `location`, which need not exist."""
    tiny.external_data(path)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "location",
    ["../weights.bin", "sub/../../weights.bin", "/etc/passwd", "C:\\weights.bin", "..\\weights.bin"],
)
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(64 * 64 * 4))
    (tmp_path / "inner").mkdir()
    error = refused(relocated(tmp_path / "inner" / "e.onnx", location))
    assert location in error.message


def test_a_link_out_of_the_folder_is_refused_by_us_and_by_onnx_runtime(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path = tiny.external_data(tmp_path / "inner" / "e.onnx")
    (tmp_path / "inner" / "weights.bin").rename(tmp_path / "weights.bin")
    (tmp_path / "inner" / "weights.bin").symlink_to(tmp_path / "weights.bin")
    assert "outside" in refused(path).message
    with pytest.raises(Exception, match=r"escapes|outside|directory"):
        ort.InferenceSession(path)


def test_external_data_in_a_subfolder_is_accepted(tmp_path: Path) -> None:
    path = relocated(tmp_path / "e.onnx", "data/weights.bin")
    (tmp_path / "data").mkdir()
    (tmp_path / "weights.bin").rename(tmp_path / "data" / "weights.bin")
    assert inspect(path)["external_data"][0]["location"] == "data/weights.bin"
    assert ort.InferenceSession(path).get_inputs()[0].name == "x"


# --- what is refused ----------------------------------------------------------------------------------------


def test_a_missing_file_a_folder_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    assert "nothing.onnx" in refused(tmp_path / "nothing.onnx").message
    assert "folder" in refused(tmp_path).message
    (tmp_path / "empty.onnx").touch()
    assert "empty" in refused(tmp_path / "empty.onnx").message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"this is not a model", "not an ONNX file"),
        (b"\x00" * 64, "not an ONNX file"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x00\x00\x00\x00ORTM" + bytes(60), "ORT format"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS"),
    ],
)
def test_another_kind_of_file_is_called_what_it_is(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    assert words in refused(path).message


def test_a_configuration_in_place_of_a_model_is_told_where_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "edge.yaml"
    path.write_text("schema: 1\nmodel: {path: x.onnx}\n")
    assert "`--config`" in refused(path).hint


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    content = tiny.mlp(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(1, len(content) - 1, 37):
        path.write_bytes(content[:length])
        assert "truncated" in refused(path).message or "cut short" in refused(path).message


def test_random_bytes_never_escape_as_another_exception(tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    generator = np.random.default_rng(0)
    for _ in range(50):
        path.write_bytes(b"\x08\x0a" + generator.bytes(200))
        refused(path)


def test_damaged_models_are_refused_or_read_but_never_crash_the_reader(tmp_path: Path) -> None:
    content = tiny.tokens(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "damaged.onnx"
    generator = np.random.default_rng(1)
    outcomes = []
    for _ in range(300):
        damaged = bytearray(content)
        damaged[int(generator.integers(len(content)))] = int(generator.integers(256))
        path.write_bytes(damaged)
        outcomes.append(outcome(path))
    assert set(outcomes) == {"read", "refused"}


def outcome(path: Path) -> str:
    try:
        json.dumps(inspect(path))  # what was read also crosses the pipe
    except ModelError:
        return "refused"
    return "read"


@pytest.mark.parametrize(
    ("make", "newest", "what"),
    [(tiny.newer_ir, OWN_IR_VERSION, "IR version"), (tiny.newer_opset, OWN_OPSET, "opset")],
)
def test_the_limits_on_versions_are_those_of_the_installed_onnx_runtime(
    tmp_path: Path, make: Callable[[Path, int], Path], newest: int, what: str
) -> None:
    path = make(tmp_path / "newest.onnx", newest)
    assert ort.InferenceSession(path).get_inputs()
    assert inspect(path)
    path = make(tmp_path / "newer.onnx", newest + 1)
    with pytest.raises(Exception, match=r"opset|IR version"):
        ort.InferenceSession(path)
    assert inspect_model(str(path), any_version=True)["inputs"]  # for a newer runtime
    error = refused(path)
    assert what in error.message
    assert "newer `runtime`" in error.hint
    assert str(newest) in error.message
    assert str(newest + 1) in error.message


def test_a_graph_without_outputs_is_refused(tmp_path: Path) -> None:
    model = onnx.load(tiny.mul(tmp_path / "m.onnx"))
    del model.graph.output[:]
    onnx.save(model, tmp_path / "m.onnx")
    assert "output" in refused(tmp_path / "m.onnx").message


def test_an_unreadable_file_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 300 + ".onnx")
    assert "Cannot read" in refused(path).message


# --- what the plan makes of it ------------------------------------------------------------------------------


def test_unnamed_first_axes_all_get_the_batch(tmp_path: Path) -> None:
    info = inputs_model(tmp_path / "u.onnx", ("x", [None, 3]), ("y", ["?", 4]))
    plan = feed_plan(WorkloadSpec(batch_size=5), info)
    assert [one["shape"] for one in plan["inputs"]] == [[5, 3], [5, 4]]
    assert plan["batch_axes"] == {"x": 0, "y": 0}


def test_an_unnamed_axis_with_a_size_of_its_own_does_not_count_rows(tmp_path: Path) -> None:
    info = inputs_model(tmp_path / "u.onnx", ("x", [None, 3]), ("boxes", [None, 4]))
    plan = feed_plan(WorkloadSpec(batch_size=2, dims={"boxes:0": 7}), info)
    assert [one["shape"] for one in plan["inputs"]] == [[2, 3], [7, 4]]
    assert plan["batch_axes"] == {"x": 0}
