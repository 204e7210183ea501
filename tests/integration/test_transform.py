"""Properties of every step: a valid file that computes what the original does, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from core import wire
from core.run.variants import output_check_inputs
from core.spec.steps import Step
from core.wire.errors import ModelError, SpecError
from core.wire.output_check import check_outputs
from core.worker.make.transform import _MODULES, _check_exact_step, dimensions, model_io, transform
from core.worker.measure import output_comparison
from core.worker.models import inspect_model
from tests import tiny_models as tiny
from tests.quantizing import silent
from tests.transforming import ROWS, SEEDS, do, feeds_of, plan_of, run

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
GRAPH_STEPS: dict[str, dict[str, Any]] = {
    "simplify": {},
    "fix_dims": {"dims": {"batch": 3}},
    "optimize": {"level": "ORT_ENABLE_EXTENDED"},
    "metadata": {"author": "A. Uthor"},
    "fp16": {"keep_io_types": True},
}


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, 3, 16, 16), dtype=np.float32)


# --- the reply and the file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", GRAPH_STEPS)
def test_the_reply_describes_the_file_that_was_written(tmp_path: Path, step: str) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    output, reply = do(source, step, **GRAPH_STEPS[step])
    info, before = inspect_model(str(output)), inspect_model(str(source))
    assert reply["path"] == str(output)
    assert (reply["sha256"], reply["size_bytes"]) == (info["sha256"], info["size_bytes"])
    assert (reply["nodes_before"], reply["nodes_after"]) == (before["nodes"], info["nodes"])
    assert reply["size_before_bytes"] == before["size_bytes"]
    assert reply["tool"]
    assert reply["tool_version"][0].isdigit()
    assert reply["seconds"] > 0
    assert reply["error_seeds"] == SEEDS
    assert [one.name for one in output.parent.iterdir()] == [output.name]


@pytest.mark.parametrize("step", ["simplify", "fix_dims", "optimize", "metadata"])
def test_a_step_on_the_graph_changes_no_output(tmp_path: Path, step: str) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    output, reply = do(source, step, **GRAPH_STEPS[step])
    assert reply["error"]["max_rel"] is not None
    assert reply["error"]["max_rel"] < 1e-5
    assert reply["error"]["top1_agreement"] == 1.0
    np.testing.assert_allclose(run(output, image=images(3))[0], run(source, image=images(3))[0], rtol=1e-4)


@pytest.mark.parametrize("step", GRAPH_STEPS)
def test_metadata_of_the_source_is_kept(tmp_path: Path, step: str) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    model = onnx.load(source)
    helper.set_model_props(model, {"ortune.weights": "random", "other": "value"})
    onnx.save(model, source)
    output, _ = do(source, step, **GRAPH_STEPS[step])
    metadata = inspect_model(str(output))["metadata"]
    assert (metadata["ortune.weights"], metadata["other"]) == ("random", "value")


def test_progress_goes_up_to_its_total(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    source = tiny.mlp(tmp_path / "m.onnx")
    transform(
        plan_of(source, "simplify", tmp_path / "out.onnx"),
        lambda stage, done, total, text="": heard.append((stage, done, total)),
    )
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
    assert heard[-1][1] == heard[-1][2]
    assert [stage for stage, _, _ in heard] == ["read", "transform", "check", "compare", "write"]


# --- what goes wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (tiny.not_onnx, "not an ONNX file"),
        (tiny.external_data_outside, "outside"),
        (tiny.truncated, "truncated"),
    ],
)
def test_what_cannot_be_read_is_refused_and_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    (tmp_path / "in").mkdir()
    source = make(tmp_path / "in" / "m.onnx")
    plan = plan_of(tiny.mul(tmp_path / "good.onnx"), "fp16", tmp_path / "out" / "m.onnx")
    with pytest.raises(ModelError, match=words):
        transform({**plan, "path": str(source)}, silent)
    assert not (tmp_path / "out" / "m.onnx").exists()


def break_model(model: onnx.ModelProto) -> None:
    """A node reads a value that nobody makes: what the checker is there to find."""
    model.graph.node[0].input[0] = "nobody_makes_this"


@pytest.mark.parametrize("step", ["metadata", "simplify"])
def test_an_invalid_result_is_refused_with_the_checkers_words(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = onnx.save_model

    def broken(model: onnx.ModelProto, *args: object, **kwargs: object) -> None:
        break_model(model)
        written(model, *args, **kwargs)

    source = tiny.mlp(tmp_path / "m.onnx")
    plan = plan_of(source, step, tmp_path / "out" / "m.onnx", **GRAPH_STEPS[step])
    monkeypatch.setattr(model_io.onnx, "save_model", broken)
    with pytest.raises(ModelError, match=r"checker refuses.*nobody_makes_this"):
        transform(plan, silent)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_step_that_changes_what_is_computed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = onnx.save_model

    def wrong(model: onnx.ModelProto, *args: object, **kwargs: object) -> None:
        weight = next(one for one in model.graph.initializer if one.name == "w1")
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 1.5, "w1"))
        written(model, *args, **kwargs)

    source = tiny.mlp(tmp_path / "m.onnx")
    plan = plan_of(source, "metadata", tmp_path / "out" / "m.onnx", author="A. Uthor")
    monkeypatch.setattr(model_io.onnx, "save_model", wrong)
    with pytest.raises(ModelError, match="changed what the model computes") as caught:
        transform(plan, silent)
    assert caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []


def test_the_error_is_against_the_original_of_the_chain(tmp_path: Path) -> None:
    """An exact step after FP16 is no error of its own, but the chain's error is told."""
    source = tiny.conv(tmp_path / "conv.onnx")
    half, first = do(source, "fp16", keep_io_types=True)
    _, second = do(half, "metadata", reference=source, author="A. Uthor")
    assert first["error"]["max_rel"] == second["error"]["max_rel"] > 0


@pytest.mark.parametrize(
    ("step", "name", "words"),
    [
        ("fp17", "m.onnx", "Did you mean `fp16`"),
        ("fp16", "m.ort", "writes a `.onnx` file"),
        ("ort_format", "m.onnx", "writes a `.ort` file"),
    ],
)
def test_a_plan_that_cannot_be_done_is_refused(tmp_path: Path, step: str, name: str, words: str) -> None:
    source = tiny.mul(tmp_path / "m.onnx")
    with pytest.raises(SpecError, match=words):
        transform(plan_of(source, step, tmp_path / "out" / name), silent)
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = tiny.mul(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="Cannot write"):
        transform(plan_of(source, "fp16", tmp_path / "file" / "m.onnx"), silent)


def test_a_model_that_fails_on_the_feeds_is_refused_with_that_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="fails on the test inputs"):
        do(tiny.failing_run(tmp_path / "m.onnx"), "metadata", author="A. Uthor")


def test_agreement_of_zeros_is_called_no_proof(tmp_path: Path) -> None:
    source = tiny.save(
        tmp_path / "zero.onnx",
        [helper.make_node("Mul", ["x", "w"], ["y"], name="mul")],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
        [tiny.constant("w", np.zeros(4, np.float32))],
    )
    _, reply = do(source, "metadata", author="A. Uthor")
    assert any("proves nothing" in note for note in reply["notes"])


# --- external data ------------------------------------------------------------------------------------------


def test_external_data_is_read_and_the_result_is_one_file(tmp_path: Path) -> None:
    source = tiny.external_data(tmp_path / "e.onnx")
    output, reply = do(source, "fp16", keep_io_types=True)
    assert inspect_model(str(output))["external_data"] == []
    assert reply["size_bytes"] == output.stat().st_size


@pytest.mark.parametrize("step", ["simplify", "fix_dims", "fp16", "metadata"])
def test_what_one_file_does_not_hold_goes_beside_it(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_io, "ONE_FILE_BYTES", 1000)
    source = tiny.external_data(tmp_path / "e.onnx")
    output, reply = do(source, step, **GRAPH_STEPS[step])
    files = {one.name: one.stat().st_size for one in output.parent.iterdir()}
    assert sorted(files) == ["m.onnx", "m.onnx.data"]
    assert reply["size_bytes"] == sum(files.values())
    x = np.random.default_rng(0).random((3, 64), dtype=np.float32)
    np.testing.assert_allclose(run(output, x=x)[0], run(source, x=x)[0], atol=2e-2)


def test_an_optimized_graph_with_external_data_does_not_point_to_the_sources_file(tmp_path: Path) -> None:
    source = tiny.external_data(tmp_path / "e.onnx")
    output, _ = do(source, "optimize", level="ORT_ENABLE_EXTENDED")
    assert [one["location"] for one in inspect_model(str(output))["external_data"]] == ["m.onnx.data"]


# --- fix_dims -----------------------------------------------------------------------------------------------


def test_fixed_dimensions_are_fixed_in_inputs_and_outputs(tmp_path: Path) -> None:
    output, reply = do(tiny.conv(tmp_path / "c.onnx"), "fix_dims", dims={"batch": 5})
    info = inspect_model(str(output))
    assert info["inputs"][0]["shape"] == [5, 3, 16, 16]
    assert info["outputs"][0]["shape"] == [5, 10]
    assert (info["free_dims"], info["fixed_batch"]) == ([], 5)
    assert reply["facts"] == {"fixed": {"batch": 5}, "free": []}


def test_dimensions_without_a_name_are_fixed_by_their_address(tmp_path: Path) -> None:
    source = tiny.unnamed_dims(tmp_path / "u.onnx")
    free = inspect_model(str(source))["free_dims"]
    output, _ = do(source, "fix_dims", dims=dict.fromkeys(free, 4))
    assert inspect_model(str(output))["free_dims"] == []


def test_batch_means_the_dimension_that_carries_the_rows(tmp_path: Path) -> None:
    source = tiny.placeholder_dims(tmp_path / "p.onnx")
    batch = inspect_model(str(source))["batch_dim"]
    assert batch not in (None, "batch")
    output, reply = do(source, "fix_dims", dims={"batch": ROWS})
    assert reply["facts"]["fixed"] == {batch: ROWS}
    assert batch not in inspect_model(str(output))["free_dims"]


def test_what_stays_free_is_said(tmp_path: Path) -> None:
    source = tmp_path / "t.onnx"
    source.write_bytes((SAMPLES / "tiny_transformer.onnx").read_bytes())
    output, reply = do(source, "fix_dims", dims={"batch": 1})
    assert reply["notes"] == ["still free: `sequence`"]
    shapes = {one["name"]: one["shape"] for one in inspect_model(str(output))["inputs"]}
    assert shapes == {"input_ids": [1, "sequence"], "attention_mask": [1, "sequence"]}


def test_feeds_that_the_model_refuses_give_way_to_the_next_ones(tmp_path: Path) -> None:
    source = tiny.halved(tmp_path / "m.onnx")
    info = inspect_model(str(source))
    first, second = (output_check_inputs(info, {"height": side, "width": side})[0] for side in (8, 32))
    plan: Any = {
        "path": str(source),
        "output": str(tmp_path / "out" / "m.onnx"),
        "step": "simplify",
        "options": Step("simplify").options,
        "reference": str(source),
        "feeds": first,
        "other_feeds": [second],
        "calibration": None,
    }
    (tmp_path / "out").mkdir()
    assert transform(plan, lambda *_: None)["feeds_number"] == 1


@pytest.mark.parametrize(
    ("make", "dims", "words"),
    [
        (tiny.conv, {}, "No dimension was named"),
        (tiny.conv, {"bach": 2}, "Did you mean `batch`"),
        (tiny.conv, {"batch": 0}, "whole number from 1"),
        (tiny.fixed_batch, {"batch": 2}, "no free dimension to fix"),
    ],
)
def test_dimensions_that_cannot_be_fixed_are_refused(
    tmp_path: Path, make: Callable[[Path], Path], dims: dict[str, int], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        do(make(tmp_path / "m.onnx"), "fix_dims", dims=dims)


def test_names_in_bodies_are_fixed_too(tmp_path: Path) -> None:
    model = onnx.load(tiny.if_model(tmp_path / "if.onnx"))
    dimensions.fix(model, {"batch": 7})
    left = [
        dim.dim_param
        for node in model.graph.node
        for attribute in node.attribute
        for value in (*attribute.g.output, *attribute.g.value_info)
        for dim in value.type.tensor_type.shape.dim
    ]
    assert "batch" not in left


# --- metadata -----------------------------------------------------------------------------------------------


def test_metadata_stands_where_other_tools_look_for_it(tmp_path: Path) -> None:
    output, reply = do(
        tiny.mlp(tmp_path / "m.onnx"), "metadata", author=" A. Uthor ", version="7", notes="For tests."
    )
    model = onnx.load(output)
    assert (model.model_version, model.doc_string) == (7, "For tests.")
    assert reply["facts"]["metadata"] == {"author": "A. Uthor", "version": "7", "notes": "For tests."}
    assert inspect_model(str(output))["metadata"] == reply["facts"]["metadata"]


def test_a_version_that_is_no_number_is_kept_as_text_only(tmp_path: Path) -> None:
    output, _ = do(tiny.mlp(tmp_path / "m.onnx"), "metadata", version="1.2.0")
    assert onnx.load(output).model_version == 0
    assert inspect_model(str(output))["metadata"] == {"version": "1.2.0"}


def test_metadata_without_any_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no metadata"):
        do(tiny.mlp(tmp_path / "m.onnx"), "metadata", author="  ", version="", notes="")


# --- simplify and optimize ----------------------------------------------------------------------------------


def foldable(path: Path) -> Path:
    """y = x + (1 + 2), where the sum of constants and an Identity can go."""
    nodes = [
        helper.make_node("Add", ["one", "two"], ["three"], name="constants"),
        helper.make_node("Identity", ["x"], ["same"], name="identity"),
        helper.make_node("Add", ["same", "three"], ["y"], name="sum"),
    ]
    stored = [tiny.constant("one", np.float32(1)), tiny.constant("two", np.float32(2))]
    return tiny.save(path, nodes, [tiny.value("x", ["batch", 4])], [tiny.value("y", ["batch", 4])], stored)


@pytest.mark.parametrize("step", ["simplify", "optimize"])
def test_what_can_be_folded_is_folded(tmp_path: Path, step: str) -> None:
    source = foldable(tmp_path / "f.onnx")
    output, reply = do(source, step)
    assert (reply["nodes_before"], reply["nodes_after"]) == (3, 1)
    assert run(output, x=np.zeros((1, 4), np.float32))[0].tolist() == [[3, 3, 3, 3]]


@pytest.mark.parametrize("name", ["digits_cnn.onnx", "tiny_transformer.onnx"])
@pytest.mark.parametrize("step", ["simplify", "optimize"])
def test_the_sample_models_agree_after_the_step(tmp_path: Path, name: str, step: str) -> None:
    source = tmp_path / name
    source.write_bytes((SAMPLES / name).read_bytes())
    _, reply = do(source, step)
    assert reply["error"]["max_rel"] is not None
    assert reply["error"]["max_rel"] < 1e-4
    assert reply["nodes_after"] <= reply["nodes_before"]


def test_a_portable_level_is_bound_to_no_hardware_and_a_higher_one_is(tmp_path: Path) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    _, portable = do(source, "optimize", level="ORT_ENABLE_EXTENDED")
    output, bound = do(source, "optimize", level="ORT_ENABLE_ALL")
    assert portable["hardware_bound"] == ""
    assert "ORT_ENABLE_ALL" in bound["hardware_bound"]
    np.testing.assert_allclose(run(output, image=images(2))[0], run(source, image=images(2))[0], rtol=1e-4)


def test_operators_that_only_onnx_runtime_has_are_named(tmp_path: Path) -> None:
    _, reply = do(tiny.conv(tmp_path / "conv.onnx"), "optimize", level="ORT_ENABLE_EXTENDED")
    assert any("FusedConv" in note for note in reply["notes"])


# --- a reduced precision before an exact step ---------------------------------------------------------------


def test_rounding_of_a_float16_model_is_told_and_not_refused(tmp_path: Path) -> None:
    source = tiny.conv(tmp_path / "conv.onnx")
    half, _ = do(source, "fp16", keep_io_types=False)
    _, reply = do(half, "optimize", reference=source, level="ORT_ENABLE_EXTENDED")
    assert all(check["level"] == "info" for check in reply["checks"])


# --- one rule of what is still right ------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "refused"), [(1.0004, False), (1.002, True)])
def test_an_exact_step_may_do_what_a_comparison_allows(
    tmp_path: Path, factor: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime's own default rewrite was off by 0.0004: it passes both; the output check's tolerance."""
    written = onnx.save_model

    def rewritten(model: onnx.ModelProto, *args: object, **kwargs: object) -> None:
        weight = next(one for one in model.graph.initializer if one.name == "w")
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(factor), "w"))
        written(model, *args, **kwargs)

    source = tiny.save(
        tmp_path / "m.onnx",
        [helper.make_node("Mul", ["x", "w"], ["y"], name="mul")],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
        [tiny.constant("w", np.float32(3))],
    )
    plan = plan_of(source, "metadata", tmp_path / "out" / "m.onnx", author="A. Uthor")
    monkeypatch.setattr(model_io.onnx, "save_model", rewritten)
    if refused:
        with pytest.raises(ModelError, match=r"where 0\.001 is allowed \(fp32\)"):
            transform(plan, silent)
        return
    reply = transform(plan, silent)
    assert check_outputs(reply["error"], "fp32").breach is False
    assert reply["error"]["max_rel"] == pytest.approx(4e-4, rel=0.1)


def test_a_model_that_draws_random_numbers_is_not_refused_and_says_why(tmp_path: Path) -> None:
    source = tiny.save(
        tmp_path / "noise.onnx",
        [
            helper.make_node("RandomNormalLike", ["x"], ["n"], name="noise"),
            helper.make_node("Add", ["x", "n"], ["y"], name="add"),
        ],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
    )
    error = output_comparison.compare({"y": np.zeros(4, np.float32)}, {"y": np.ones(4, np.float32)})
    (check,) = _check_exact_step("simplify", source, error)
    assert (check["name"], check["level"]) == ("not_judged", "warning")
    assert "draws random numbers (RandomNormalLike)" in check["text"]


def test_a_result_with_infinities_carries_a_warning(tmp_path: Path) -> None:
    """An output beyond float16: the copy is made, and its result says what became of it."""
    source = tiny.save(
        tmp_path / "big.onnx",
        [helper.make_node("Mul", ["x", "large"], ["y"], name="mul")],
        [tiny.value("x", ["batch", 4])],
        [tiny.value("y", ["batch", 4])],
        [tiny.constant("large", np.float32(1e6))],
    )
    _, reply = do(source, "fp16", keep_io_types=False, block_nodes=["mul"])
    assert reply["error"]["max_rel"] is None
    (check,) = [one for one in reply["checks"] if one["name"] == "outputs_differ"]
    assert check["level"] == "warning"
    assert "infinite" in check["text"]


def test_every_step_of_the_wire_has_a_module() -> None:
    assert set(_MODULES) == set(get_args(wire.StepKind))


def test_feeds_follow_the_sizes_that_a_step_fixes(tmp_path: Path) -> None:
    """The plan's feeds have the batch that was planned for the free model."""
    source = tiny.conv(tmp_path / "c.onnx")
    assert feeds_of(source)[0]["batch_size"] == ROWS
    _, reply = do(source, "fix_dims", dims={"batch": ROWS + 3})
    assert reply["error"]["difference"] == ""
