"""INT8 and 4-bit variants: they stay accurate, say what runs as integers, and refuse what cannot be."""

from __future__ import annotations

import platform
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from core.wire.errors import ModelError, SpecError, WorkerError
from core.worker.machine.environment import instructions, read_text
from core.worker.make.transform import model_io, quantizer, saturation
from core.worker.make.transform.step_result import StepResult
from core.worker.models.graphs import graphs_of, nodes_of
from tests import tiny_models as tiny
from tests.quantizing import (
    DIGITS,
    DIGITS_ROWS,
    TRANSFORMER,
    digits_dataset,
    feed_plans,
    quantize,
)

MOST_LOST = 0.01  # of the test samples: INT8 may get one more in a hundred wrong than FP32
VNNI = saturation.has_vnni(instructions(read_text("/proc/cpuinfo")))
X86 = platform.machine().lower() in ("x86_64", "amd64")


def run(path: Path, **feeds: np.ndarray) -> list[np.ndarray]:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def accuracy(path: Path) -> float:
    rows = np.load(DIGITS_ROWS)
    images = rows["test_images"].astype(np.float32)[:, None] / 255
    (logits,) = run(path, image=images)
    return float((logits.argmax(axis=1) == rows["test_labels"][:, 0]).mean())


def op_types(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def names_of(path: Path, op_type: str) -> list[str]:
    return [node.name for node in onnx.load(path).graph.node if node.op_type == op_type]


def check_names(applied: StepResult) -> set[str]:
    """Findings apart from saturation, which depends on the CPU and has tests of its own."""
    return {one["name"] for one in applied.checks if one["name"] != "saturation"}


def unit(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


# -- accuracy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"calibrate_method": "Entropy"},
        {"calibrate_method": "Percentile"},
        {"per_channel": True, "reduce_range": True},
        {"activation_type": "QInt8", "activation_symmetric": True},
        {"weight_type": "QUInt8", "preprocess": False},
    ],
    ids=str,
)
def test_static_int8_keeps_the_accuracy_of_the_digits(tmp_path: Path, changes: dict[str, Any]) -> None:
    if X86 and not VNNI:  # what this CPU clips is another matter, see below
        changes = {"reduce_range": True, **changes}
    file, applied = quantize("int8_static", DIGITS, tmp_path, calibration=digits_dataset(), **changes)
    assert accuracy(file) >= accuracy(DIGITS) - MOST_LOST
    assert file.stat().st_size < 0.4 * DIGITS.stat().st_size
    assert check_names(applied) == set()
    assert applied.facts["calibration_rows"] == 64


@pytest.mark.parametrize("types", [["Gemm"], ["Gemm", "Conv"]])
def test_dynamic_int8_keeps_the_accuracy_of_the_digits(tmp_path: Path, types: list[str]) -> None:
    file, _ = quantize("int8_dynamic", DIGITS, tmp_path, op_types=types, reduce_range=X86 and not VNNI)
    assert accuracy(file) >= accuracy(DIGITS) - MOST_LOST
    assert file.stat().st_size < DIGITS.stat().st_size


def test_dynamic_int8_of_the_transformer_agrees_with_the_original(tmp_path: Path) -> None:
    file, applied = quantize("int8_dynamic", TRANSFORMER, tmp_path, reduce_range=True, per_channel=True)
    ids = np.random.default_rng(0).integers(0, 2000, (2, 12))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    (wanted,), (got,) = run(TRANSFORMER, **feeds), run(file, **feeds)
    assert np.linalg.norm(got - wanted) < 0.05 * np.linalg.norm(wanted)
    assert applied.facts["integer_ops"]["Gather"]["integer"] > 0  # the table of words
    assert file.stat().st_size < 0.4 * TRANSFORMER.stat().st_size


def test_four_bits_shrink_the_transformer_and_stay_near_it(tmp_path: Path) -> None:
    file, applied = quantize("int4", TRANSFORMER, tmp_path, op_types=["MatMul", "Gemm"])
    ids = np.random.default_rng(0).integers(0, 2000, (2, 12))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    (wanted,), (got,) = run(TRANSFORMER, **feeds), run(file, **feeds)
    assert op_types(file)["MatMulNBits"] > 0
    assert file.stat().st_size < 0.8 * TRANSFORMER.stat().st_size
    assert 0 < np.linalg.norm(got - wanted) < 0.2 * np.linalg.norm(wanted)
    assert any("accuracy_level" in note for note in applied.notes)


def test_four_bits_take_the_table_of_words_too(tmp_path: Path) -> None:
    file, applied = quantize("int4", TRANSFORMER, tmp_path, op_types=["MatMul", "Gather"])
    ids = np.random.default_rng(0).integers(0, 2000, (2, 12))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    (wanted,), (got,) = run(TRANSFORMER, **feeds), run(file, **feeds)
    assert applied.facts["integer_ops"]["Gather"]["integer"] > 0
    assert file.stat().st_size < 0.25 * TRANSFORMER.stat().st_size
    assert np.linalg.norm(got - wanted) < 0.3 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    "changes", [{"block_size": 16}, {"symmetric": False}, {"accuracy_level": 4}], ids=str
)
def test_four_bits_take_their_options(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx")
    file, applied = quantize("int4", source, tmp_path / "out", op_types=["Gemm"], **changes)
    blocks = [node for node in onnx.load(file).graph.node if node.op_type == "MatMulNBits"]
    assert len(blocks) == 2
    attributes = {one.name: one.i for one in blocks[0].attribute}
    assert attributes["block_size"] == changes.get("block_size", 32)
    assert attributes.get("accuracy_level", 0) == changes.get("accuracy_level", 0)
    assert len(blocks[0].input) == (3 if changes.get("symmetric", True) else 4)
    assert any("accuracy_level" in note for note in applied.notes) != ("accuracy_level" in changes)


# -- what runs ---------------------------------------------------------------------------------------------


def test_static_int8_runs_the_whole_classifier_as_integers(tmp_path: Path) -> None:
    _, applied = quantize("int8_static", DIGITS, tmp_path, calibration=digits_dataset())
    counted = applied.facts["integer_ops"]
    assert counted["Conv"] == {"nodes": 2, "integer": 2, "float": 0}
    assert counted["Gemm"] == {"nodes": 1, "integer": 1, "float": 0}
    assert applied.facts["conversions"] >= 2  # at least where floats come in and go out


def test_dynamic_int8_leaves_convolutions_alone_unless_asked(tmp_path: Path) -> None:
    _, applied = quantize("int8_dynamic", DIGITS, tmp_path)
    counted = applied.facts["integer_ops"]
    assert counted["Conv"] == {"nodes": 2, "integer": 0, "float": 2}
    assert counted["Gemm"] == {"nodes": 1, "integer": 1, "float": 0}
    assert check_names(applied) == set()


def test_dynamic_convolutions_are_slower_and_the_remedy_leaves_them_out(tmp_path: Path) -> None:
    _, applied = quantize("int8_dynamic", DIGITS, tmp_path, op_types=["Gemm", "Conv"])
    (slower,) = [one for one in applied.checks if one["name"] == "slower_operators"]
    assert applied.facts["integer_ops"]["Conv"]["integer"] == 2
    assert slower["level"] == "warning"
    _, again = quantize("int8_dynamic", DIGITS, tmp_path / "again", **slower["remedy"])
    assert "slower_operators" not in check_names(again)


def test_a_multiplication_of_two_inputs_stays_in_float_and_that_is_said(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "weighted"),
        helper.make_node("Transpose", ["h"], ["t"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["h", "t"], ["y"], "scores"),
    ]
    source = tiny.save(
        tmp_path / "scores.onnx",
        nodes,
        [tiny.value("x", ["batch", 4, 32])],
        [tiny.value("y", ["batch", 4, 4])],
        [tiny.weights("w", [32, 32])],
    )
    _, applied = quantize("int8_dynamic", source, tmp_path / "out")
    assert applied.facts["integer_ops"]["MatMul"] == {"nodes": 2, "integer": 1, "float": 1}
    (stayed,) = [one for one in applied.checks if one["name"] == "stayed_float"]
    assert "1 of 2 MatMul" in stayed["text"]


def test_an_excluded_node_stays_in_float_without_complaint(tmp_path: Path) -> None:
    first = names_of(DIGITS, "Conv")[0]
    _, applied = quantize(
        "int8_static", DIGITS, tmp_path, calibration=digits_dataset(), exclude_nodes=[first]
    )
    assert applied.facts["integer_ops"]["Conv"] == {"nodes": 2, "integer": 1, "float": 1}
    assert check_names(applied) == set()


@pytest.mark.parametrize("step", ["int8_dynamic", "int4"])
def test_a_gemm_is_excluded_by_the_name_its_author_gave(tmp_path: Path, step: str) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx")
    changes = {"op_types": ["Gemm"], "exclude_nodes": ["fc1"]}
    file, _ = quantize(step, source, tmp_path / "out", **changes)
    assert sum(op_types(file)[one] for one in ("MatMulInteger", "MatMulNBits")) == 1


def test_nodes_without_a_name_are_quantized_and_get_one(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    parameters = [tiny.weights("a", [32, 32], 1), tiny.weights("b", [32, 32], 2)]
    source = tiny.save(
        tmp_path / "m.onnx", nodes, [tiny.value("x", ["n", 32])], [tiny.value("y", ["n", 32])], parameters
    )
    file, _ = quantize("int8_dynamic", source, tmp_path / "all")
    assert op_types(file)["MatMulInteger"] == 2
    file, _ = quantize("int8_dynamic", source, tmp_path / "one", exclude_nodes=["MatMul_0"])
    assert op_types(file)["MatMulInteger"] == 1


@pytest.mark.parametrize("step", ["int8_dynamic", "int4"])
def test_weights_that_a_table_and_a_layer_share_stay_right_in_both(tmp_path: Path, step: str) -> None:
    nodes = [
        helper.make_node("Gather", ["w", "ids"], ["e"], "embed", axis=0),
        helper.make_node("Gemm", ["e", "w"], ["h"], "head", transB=1),
        helper.make_node("Gemm", ["h", "w"], ["y"], "again", transB=1),
    ]
    source = tiny.save(
        tmp_path / "tied.onnx",
        nodes,
        [tiny.value("ids", ["n"], "int64")],
        [tiny.value("y", ["n", 32])],
        [tiny.weights("w", [32, 32])],
    )
    file, _ = quantize(step, source, tmp_path / "out", op_types=["Gemm"], reduce_range=True)
    ids = np.arange(32)
    (wanted,), (got,) = run(source, ids=ids), run(file, ids=ids)
    assert np.linalg.norm(got - wanted) < 0.2 * np.linalg.norm(wanted)


# -- calibration -------------------------------------------------------------------------------------------


def test_random_calibration_says_what_it_means(tmp_path: Path) -> None:
    _, applied = quantize("int8_static", DIGITS, tmp_path, calibration_rows=8)
    (check,) = [one for one in applied.checks if one["name"] == "random_calibration"]
    assert check["level"] == "warning"
    assert "noise" in check["text"]
    assert applied.facts["calibration_rows"] >= 8


def test_few_rows_warn_and_the_remedy_takes_more(tmp_path: Path) -> None:
    _, applied = quantize("int8_static", DIGITS, tmp_path, calibration=digits_dataset(), calibration_rows=5)
    (check,) = [one for one in applied.checks if one["name"] == "small_calibration"]
    assert "5 samples" in check["text"]
    assert applied.facts["calibration_rows"] == 5
    _, again = quantize(
        "int8_static", DIGITS, tmp_path / "more", calibration=digits_dataset(), **check["remedy"]
    )
    assert "small_calibration" not in check_names(again)


def test_a_dataset_that_is_too_small_has_no_remedy_among_the_options(tmp_path: Path) -> None:
    _, applied = quantize("int8_static", DIGITS, tmp_path, calibration=digits_dataset(limit=6))
    (check,) = [one for one in applied.checks if one["name"] == "small_calibration"]
    assert check["remedy"] == {}


def test_rows_without_labels_calibrate_too(tmp_path: Path) -> None:
    rows = tmp_path / "images.npz"
    np.savez(rows, test_images=np.load(DIGITS_ROWS)["test_images"][:40])
    _, applied = quantize("int8_static", DIGITS, tmp_path / "out", calibration=digits_dataset(rows))
    assert applied.facts["calibration_rows"] == 40


def test_data_of_another_shape_are_refused(tmp_path: Path) -> None:
    rows = tmp_path / "wide.npz"
    np.savez(rows, image=np.zeros((40, 2, 5, 9), np.float32))
    with pytest.raises(SpecError):
        quantize("int8_static", DIGITS, tmp_path / "out", calibration=digits_dataset(rows))


def test_a_model_with_a_fixed_batch_is_calibrated(tmp_path: Path) -> None:
    source = tiny.fixed_batch(tmp_path / "f.onnx", batch=3)
    _, applied = quantize("int8_static", source, tmp_path / "out", calibration_rows=10)
    assert applied.facts["calibration_rows"] == 12  # whole batches


def test_feeds_from_a_file_calibrate_without_the_warning_about_noise(tmp_path: Path) -> None:
    source = tiny.mlp(tmp_path / "mlp.onnx")
    np.savez(tmp_path / "rows.npz", x=unit(40, 16))
    (plan,) = feed_plans(source, seeds=1, rows=40)
    plan["source"], plan["path"] = "npz", str(tmp_path / "rows.npz")
    _, applied = quantize("int8_static", source, tmp_path / "out", feeds=[plan])
    assert "random_calibration" not in check_names(applied)
    assert applied.facts["calibration_rows"] == 40


@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_values_that_are_not_finite_have_no_range(tmp_path: Path, method: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("Log", ["h"], ["l"], "log"),
        helper.make_node("MatMul", ["l", "w"], ["y"], "second"),
    ]
    ends = [tiny.value("x", ["n", 16])], [tiny.value("y", ["n", 16])]
    source = tiny.save(tmp_path / "log.onnx", nodes, *ends, [tiny.weights("w", [16, 16])])
    with pytest.raises(ModelError, match=r"finite|infinite"):
        quantize("int8_static", source, tmp_path / "out", calibrate_method=method)


def test_too_little_memory_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_args: object, **_settings: object) -> None:
        raise MemoryError

    monkeypatch.setattr(quantizer, "calibrate", exhausted)
    with pytest.raises(WorkerError, match="memory") as caught:
        quantize("int8_static", DIGITS, tmp_path)
    assert "calibration samples" in caught.value.hint


# -- sums that overflow ------------------------------------------------------------------------------------


def clipping(path: Path) -> Path:
    """A MatMul of positive weights: the largest sums of 8-bit products that there can be."""
    table = tiny.constant("w", np.random.default_rng(0).uniform(0.5, 1.0, (64, 64)).astype(np.float32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    return tiny.save(path, nodes, [tiny.value("x", ["n", 64])], [tiny.value("y", ["n", 64])], [table])


@pytest.mark.parametrize(
    ("plain", "exact", "fires"),
    [
        (0.209, 0.0063, True),
        (0.046, 0.030, True),
        (0.0079, 0.0063, False),
        (0.012, 0.011, False),
        (0.0, 0.0, False),
    ],
)
def test_the_check_fires_when_exact_sums_would_help_much(plain: float, exact: float, fires: bool) -> None:
    findings = saturation.saturation_finding(plain, exact)
    assert bool(findings) is fires
    if fires:
        assert findings[0]["level"] == "warning"
        assert f"{plain:.1%}" in findings[0]["text"]
        assert findings[0]["remedy"] == {"reduce_range": True}


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        (["avx2", "avx512f"], False),
        (["avx2", "avx_vnni"], True),
        (["avx512_vnni"], True),
        (["amx_int8"], True),
    ],
)
def test_vnni_is_read_from_the_cpus_flags(flags: list[str], has: bool) -> None:
    assert saturation.has_vnni(flags) is has


@pytest.mark.parametrize("step", ["int8_dynamic", "int8_static"])
@pytest.mark.skipif(VNNI or not X86, reason="this CPU adds 8-bit products exactly")
def test_signed_weights_of_the_full_range_overflow_on_this_cpu(tmp_path: Path, step: str) -> None:
    _, applied = quantize(step, clipping(tmp_path / "c.onnx"), tmp_path / "out")
    (check,) = [one for one in applied.checks if one["name"] == "saturation"]
    assert check["level"] == "warning"


@pytest.mark.skipif(not VNNI or not X86, reason="this CPU has no VNNI")
def test_where_sums_are_exact_the_file_is_only_said_to_be_at_risk_elsewhere(tmp_path: Path) -> None:
    source = clipping(tmp_path / "c.onnx")
    file, applied = quantize("int8_dynamic", source, tmp_path / "out")
    (check,) = [one for one in applied.checks if one["name"] == "saturation"]
    assert check["level"] == "info"
    plain, exact = saturation.errors(source, file, feed_plans(source))
    assert plain < 0.02
    assert saturation.saturation_finding(plain, exact) == []


@pytest.mark.parametrize("remedy", [{"reduce_range": True}, {"weight_type": "QUInt8"}], ids=str)
@pytest.mark.parametrize("step", ["int8_dynamic", "int8_static"])
def test_with_a_remedy_the_check_is_quiet_and_right(
    tmp_path: Path, step: str, remedy: dict[str, Any]
) -> None:
    source = clipping(tmp_path / "c.onnx")
    file, applied = quantize(step, source, tmp_path / "out", **remedy)
    assert [one for one in applied.checks if one["name"] == "saturation"] == []
    plain, exact = saturation.errors(source, file, feed_plans(source))
    assert saturation.saturation_finding(plain, exact) == []  # no finding either, had it measured
    assert plain < 0.03


# -- refusals ----------------------------------------------------------------------------------------------


def test_a_quantized_model_is_not_quantized_again(tmp_path: Path) -> None:
    file, _ = quantize("int8_dynamic", DIGITS, tmp_path / "once")
    with pytest.raises(ModelError, match="already"):
        quantize("int8_static", file, tmp_path / "twice")


@pytest.mark.parametrize(
    ("step", "make"), [("int8_dynamic", tiny.mul), ("int4", tiny.mlp), ("int4", tiny.conv)]
)
def test_a_model_with_nothing_to_quantize_is_refused(tmp_path: Path, step: str, make: Any) -> None:
    with pytest.raises(ModelError):
        quantize(step, make(tmp_path / "m.onnx"), tmp_path / "out")


def test_a_model_whose_only_product_has_no_constant_weights_is_refused(tmp_path: Path) -> None:
    source = tiny.save(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["a", "b"], ["y"], "product")],
        [tiny.value("a", [4, 4]), tiny.value("b", [4, 4])],
        [tiny.value("y", [4, 4])],
    )
    with pytest.raises(ModelError):
        quantize("int8_dynamic", source, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exclude_nodes": ["conv_1"]}, "no such node"),
        ({"op_types": ["MaxPol"]}, "Did you mean `MaxPool`"),
        ({"activation_type": "QInt8", "weight_type": "QUInt8"}, "no kernels"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        quantize("int8_static", DIGITS, tmp_path, **changes)


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["int8_dynamic", "int8_static"])
def test_nothing_but_the_variant_is_left(tmp_path: Path, step: str) -> None:
    source = tiny.external_data(tmp_path / "in" / "e.onnx")
    file, _ = quantize(step, source, tmp_path / "out")
    assert sorted(one.name for one in file.parent.iterdir()) == [file.name]
    assert sorted(one.name for one in source.parent.iterdir()) == ["e.onnx", "weights.bin"]
    (wanted,), (got,) = run(source, x=unit(2, 64)), run(file, x=unit(2, 64))
    assert np.linalg.norm(got - wanted) < 0.05 * np.linalg.norm(wanted)


@pytest.mark.parametrize("step", ["int8_dynamic", "int8_static", "int4"])
def test_a_model_too_large_for_one_file_keeps_its_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(model_io, "ONE_FILE_BYTES", 1000)
    source = tiny.mlp(tmp_path / "mlp.onnx", features=64, hidden=128)
    file, _ = quantize(step, source, tmp_path / "out", op_types=["Gemm"])
    assert sorted(one.name for one in file.parent.iterdir()) == [file.name, f"{file.name}.data"]
    (wanted,), (got,) = run(source, x=unit(2, 64)), run(file, x=unit(2, 64))
    assert np.abs(got - wanted).max() < 0.05


# -- weights in external files -------------------------------------------------------------------------------


def test_weights_in_constant_nodes_and_in_bodies_are_quantized(tmp_path: Path) -> None:
    source = tiny.recurrent_in_if(tmp_path / "lstm.onnx")
    output, applied = quantize("int8_dynamic", source, tmp_path / "out")
    found = Counter(node.op_type for node in nodes_of(onnx.load(output)))
    assert (found["DynamicQuantizeLSTM"], found["LSTM"], found["MatMulInteger"]) == (2, 0, 1)
    tables = [
        one.data_type
        for graph in graphs_of(onnx.load(output))
        for one in graph.initializer
        if list(one.dims) == [50, 8]
    ]
    assert tables == [onnx.TensorProto.UINT8] * 2  # as activations are, and no float copy is left
    assert applied.facts["integer_ops"]["LSTM"] == {"nodes": 2, "integer": 2, "float": 0}
    ids = np.array([0, 49], np.int64)
    for x in (unit(3, 2, 8), -unit(3, 2, 8)):  # one for each branch
        (wanted,), (got,) = run(source, x=x, ids=ids), run(output, x=x, ids=ids)
        np.testing.assert_allclose(got, wanted, atol=0.05 * np.abs(wanted).max())


def test_weights_that_are_computed_are_named_as_the_reason(tmp_path: Path) -> None:
    source = tiny.save(
        tmp_path / "fed.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")],
        [tiny.value("x", ["batch", 4]), tiny.value("w", [4, 4])],
        [tiny.value("y", ["batch", 4])],
    )
    with pytest.raises(ModelError, match="MatMul") as caught:
        quantize("int8_dynamic", source, tmp_path / "out")
    assert caught.value.hint
