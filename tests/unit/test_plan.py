"""Plans: nothing unrequested is set, and every input gets a shape of numbers or a clear refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import wire
from core.run.plan import (
    check_overrides,
    contestant_plan,
    feed_plan,
    resolve_batch,
    session_plan,
    shape_feeds,
    thread_warning,
    torch_source,
)
from core.spec import SessionSpec, TrialSpec, WorkloadSpec, ort_default, session_from_dict, spec_from_dict
from core.spec.presets import PRESETS, preset
from core.spec.settings import SETTINGS
from core.store import ModelRecord
from core.wire.errors import SpecError

Shape = list[int | str] | None


def info(
    *inputs: tuple[str, Shape], batch_dim: str | None = None, fixed: int | None = None, dtype: str = "float32"
) -> wire.ModelInfo:
    """The result of `inspect`, as far as a plan reads it."""
    found: list[wire.InputInfo] = [{"name": name, "dtype": dtype, "shape": shape} for name, shape in inputs]
    free = list(dict.fromkeys(dim for _, shape in inputs for dim in shape or [] if isinstance(dim, str)))
    axes = {name: shape.index(batch_dim) for name, shape in inputs if shape and batch_dim in shape}
    if fixed is not None:
        axes = {name: 0 for name, shape in inputs if shape and shape[0] == fixed}
    return {
        "path": "m.onnx",
        "sha256": "0" * 64,
        "content_sha256": "0" * 64,
        "size_bytes": 1,
        "ir_version": 10,
        "opset": {"": 20},
        "producer": "",
        "inputs": found,
        "outputs": [],
        "free_dims": free,
        "batch_dim": batch_dim,
        "batch_axes": axes,
        "fixed_batch": fixed,
        "nodes": 1,
        "op_counts": {},
        "parameters": 0,
        "external_data": [],
        "metadata": {},
    }


def workload(**fields: Any) -> WorkloadSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}, "workload": fields}).workload


def shapes(plan: wire.FeedPlan) -> dict[str, Sequence[int]]:
    return {one["name"]: one["shape"] for one in plan["inputs"]}


def refusal(model: wire.ModelInfo, **fields: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        feed_plan(workload(**fields), model)
    return caught.value


IMAGES = info(("x", ["n", 3, 8, 8]), batch_dim="n")
TOKENS = info(("ids", ["batch", "seq"]), ("mask", ["batch", "seq"]), batch_dim="batch")
FIXED = info(("x", [2, 3]), fixed=2)
NO_ROWS = info(("x", []), fixed=1)


# --- the session ------------------------------------------------------------------------------------------


def test_an_empty_session_sets_nothing() -> None:
    assert session_plan(session_from_dict({})) == wire.default_session_plan()


def test_what_is_asked_for_is_set_even_where_it_is_the_default() -> None:
    plan = session_plan(
        session_from_dict(
            {
                "intra_op_num_threads": 0,
                "enable_mem_pattern": True,
                "graph_optimization_level": "ORT_ENABLE_ALL",
            }
        )
    )
    assert plan["attributes"] == {
        "intra_op_num_threads": 0,
        "enable_mem_pattern": True,
        "graph_optimization_level": "ORT_ENABLE_ALL",
    }


def test_every_attribute_of_the_table_reaches_the_plan() -> None:
    values = {
        k.name: k.choices[0] if k.kind == "choice" else k.kind == "bool" or 3
        for k in SETTINGS
        if k.target == "attribute"
    }
    assert session_plan(session_from_dict(values))["attributes"] == values


def test_the_order_of_the_chain_is_kept_and_booleans_are_written_as_each_parser_reads_them() -> None:
    chain = [
        {
            "name": "TensorrtExecutionProvider",
            "options": {"trt_fp16_enable": "1", "trt_int8_enable": "false", "trt_ep_context_embed_mode": "1"},
        },
        {"name": "CUDAExecutionProvider", "options": {"use_tf32": "False", "device_id": "1"}},
        {"name": "CPUExecutionProvider"},
    ]
    assert session_plan(session_from_dict({"providers": chain}))["providers"] == [
        {
            "name": "TensorrtExecutionProvider",
            "options": {
                "trt_fp16_enable": "True",
                "trt_int8_enable": "False",
                "trt_ep_context_embed_mode": "1",
            },
        },
        {"name": "CUDAExecutionProvider", "options": {"use_tf32": "0", "device_id": "1"}},
        {"name": "CPUExecutionProvider", "options": {}},
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_plan(name: str) -> None:
    session, _ = preset(name)
    plan = session_plan(session)
    assert plan["providers"]
    assert set(plan["attributes"]) <= {k.name for k in SETTINGS if k.target == "attribute"}


# --- the batch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "fields", "rows"),
    [
        (IMAGES, {}, 1),
        (IMAGES, {"batch_size": 5}, 5),
        (IMAGES, {"dims": {"n": 4}}, 4),
        (IMAGES, {"dims": {"n": 4}, "batch_size": 4}, 4),
        (FIXED, {}, 2),
        (FIXED, {"batch_size": 2}, 2),
        (NO_ROWS, {}, 1),
        (NO_ROWS, {"batch_size": 1}, 1),
    ],
)
def test_the_rows_to_feed(model: wire.ModelInfo, fields: dict[str, Any], rows: int) -> None:
    assert resolve_batch(workload(**fields), model) == rows
    assert feed_plan(workload(**fields), model)["batch_size"] == rows


def test_a_fixed_batch_refuses_another() -> None:
    error = refusal(FIXED, batch_size=8)
    assert " 2" in error.message
    assert "8" in error.message


def test_a_model_without_rows_refuses_a_batch() -> None:
    assert "batch dimension" in refusal(NO_ROWS, batch_size=8).message


def test_two_different_batches_are_refused() -> None:
    error = refusal(IMAGES, batch_size=8, dims={"n": 4})
    assert "8" in error.message
    assert "4" in error.message


# --- dimensions -------------------------------------------------------------------------------------------


def test_every_input_gets_a_shape_of_numbers() -> None:
    plan = feed_plan(workload(batch_size=2, dims={"seq": 16}), TOKENS)
    assert shapes(plan) == {"ids": [2, 16], "mask": [2, 16]}
    assert plan["batch_axes"] == {"ids": 0, "mask": 0}


def test_a_dimension_may_be_empty_but_no_batch() -> None:
    assert shapes(feed_plan(workload(dims={"seq": 0}), TOKENS)) == {"ids": [1, 0], "mask": [1, 0]}
    assert "`n`" in refusal(IMAGES, dims={"n": 0}).message


def test_a_missing_free_dimension_is_named_with_the_option_that_sets_it() -> None:
    error = refusal(TOKENS)
    assert "`seq`" in error.message
    assert "seq=128`" in error.hint


def test_several_missing_dimensions_are_all_named() -> None:
    model = info(("x", ["n", "x:1", "x:2"]), batch_dim="n")
    error = refusal(model)
    assert "`x:1`, `x:2`" in error.message
    assert "`--dim x:1=16 --dim x:2=16`" in error.hint


def test_an_unknown_dimension_is_refused_with_the_nearest_name() -> None:
    error = refusal(TOKENS, dims={"sek": 4})
    assert "`seq`" in error.message
    assert "batch, seq" in error.hint


def test_a_dimension_of_a_model_without_free_ones_is_refused() -> None:
    assert refusal(FIXED, dims={"n": 4}).hint


def test_an_input_no_machine_could_hold_is_refused_before_a_worker_starts() -> None:
    error = refusal(TOKENS, batch_size=2**20, dims={"seq": 2**31 - 1})
    assert "`ids`" in error.message


@given(
    st.lists(
        st.lists(st.one_of(st.integers(1, 4), st.sampled_from(["n", "a", "b"])), max_size=4), min_size=1
    ),
    st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.integers(0, 9)}),
    st.integers(1, 9),
)
def test_a_plan_has_no_free_dimension_left(
    lists: list[list[int | str]], dims: dict[str, int], batch: int
) -> None:
    inputs: list[tuple[str, Shape]] = [(f"x{i}", list(shape)) for i, shape in enumerate(lists)]
    free = {dim for shape in lists for dim in shape if isinstance(dim, str)}
    model = info(*inputs, batch_dim="n" if "n" in free else None, fixed=None if "n" in free else 1)
    asked = {name: size for name, size in dims.items() if name in free}
    plan = feed_plan(workload(batch_size=batch if "n" in free else None, dims=asked), model)
    sizes = {**asked, "n": batch}
    for one, shape in zip(plan["inputs"], lists, strict=True):
        assert one["shape"] == [sizes[dim] if isinstance(dim, str) else dim for dim in shape]


# --- sources of the inputs --------------------------------------------------------------------------------


def test_random_feeds_take_their_range_from_the_model() -> None:
    model = info(("ids", ["n"]), batch_dim="n", dtype="int64")
    model["inputs"][0] |= {"low": 0, "high": 50}
    (one,) = feed_plan(workload(seed=7), model)["inputs"]
    assert one == {"name": "ids", "dtype": "int64", "shape": [1], "low": 0, "high": 50}
    assert feed_plan(workload(seed=7), model)["seed"] == 7


@pytest.mark.parametrize(
    ("feeds", "source", "path"),
    [
        ("random", "random", None),
        ("a/b.npz", "npz", "a/b.npz"),
        ("B.NPZ", "npz", "B.NPZ"),
        ("photo.jpg", "images", "photo.jpg"),
        ("folder", "images", "folder"),
    ],
)
def test_where_the_feeds_come_from(feeds: str, source: str, path: str | None) -> None:
    plan = feed_plan(workload(feeds=feeds), IMAGES)
    assert (plan["source"], plan["path"]) == (source, path)


def test_an_npz_brings_its_own_sizes() -> None:
    plan = feed_plan(workload(feeds="a.npz", batch_size=2), TOKENS)
    assert shapes(plan) == {"ids": [2, -1], "mask": [2, -1]}


def test_a_fixed_value_brings_its_own_sizes_where_no_other_input_shares_them() -> None:
    model = info(("x", ["n", 4]), ("state", ["k"]), batch_dim="n")
    plan = feed_plan(workload(feed_values={"state": [1.0, 2.0]}), model)
    assert shapes(plan) == {"x": [1, 4], "state": [-1]}
    assert plan["values"] == {"state": [1.0, 2.0]}


def test_a_fixed_value_does_not_size_a_dimension_that_another_input_shares() -> None:
    assert "`seq`" in refusal(TOKENS, feed_values={"ids": [[1, 2]]}).message


def test_a_fixed_value_for_no_input_is_refused_with_the_nearest_name() -> None:
    error = refusal(TOKENS, dims={"seq": 2}, feed_values={"idss": 1})
    assert "`idss`" in error.message
    assert "`ids`" in error.message


def test_an_input_of_unknown_rank_is_fed_a_scalar() -> None:
    assert shapes(feed_plan(workload(), info(("x", None), fixed=1))) == {"x": []}


def test_an_fp16_copy_without_kept_types_is_fed_float16_where_the_model_had_float32() -> None:
    model = info(("x", [2]), ("i", [2]), fixed=2)
    model["inputs"][1]["dtype"] = "int64"
    plan = feed_plan(workload(), model, "float16")
    assert [one["dtype"] for one in plan["inputs"]] == ["float16", "int64"]


# --- a configuration --------------------------------------------------------------------------------------


def trial(**parts: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx", "sha256": "a" * 64}, **parts})


PHOTOS = info(("x", ["batch", 3, 32, 32]), batch_dim="batch")
FROM_TORCHVISION = {"ortune.source": "torchvision resnet18", "ortune.weights": "random", "ortune.seed": "7"}


def record(metadata: dict[str, str], **details: Any) -> ModelRecord:
    return ModelRecord(
        content_sha256="c",
        sha256="a" * 64,
        name="m",
        path="m.onnx",
        source="export",
        info={**PHOTOS, "metadata": metadata, "outputs": [{"name": "y", "dtype": "float32", "shape": None}]},
        created_at=0.0,
        details=details,
    )


def test_a_contestant_gets_what_its_spec_asks_for() -> None:
    one = trial(
        session={"intra_op_num_threads": 2},
        workload={"use_io_binding": True, "batch_size": 4},
        protocol={"warmup_runs": 3, "cpus": "0-1,4"},
    )
    session, feeds = session_plan(one.session), feed_plan(one.workload, PHOTOS)
    source = torch_source(record(FROM_TORCHVISION))
    assert contestant_plan(one, path="copy.onnx", session=session, feeds=feeds, torch=source) == {
        "engine": "onnxruntime",
        "model_path": "copy.onnx",
        "torch": None,  # a session has no use for it
        "session": session,
        "feeds": feeds,
        "use_io_binding": True,
        "warmup_runs": 3,
        "cpus": [0, 1, 4],
    }


def test_a_pytorch_contestant_needs_to_know_its_program() -> None:
    one = trial(engine="torch-eager")
    plans: Any = {"session": session_plan(one.session), "feeds": feed_plan(one.workload, PHOTOS)}
    source = torch_source(record(FROM_TORCHVISION))
    assert contestant_plan(one, path="m.onnx", **plans, torch=source)["torch"] == source
    with pytest.raises(SpecError, match="known") as caught:
        contestant_plan(one, path="m.onnx", **plans, torch=None)
    assert "Export" in caught.value.hint


def test_the_ort_default_has_the_same_workload() -> None:
    one = spec_from_dict(
        {
            "model": {"path": "m.onnx", "sha256": "a" * 64, "precision": "fp16", "keep_io_types": False},
            "session": {"intra_op_num_threads": 1, "expert": True},
            "workload": {"batch_size": 4, "use_io_binding": True},
            "protocol": {"effort": "publish", "cpus": "0"},
        }
    )
    found = ort_default(one)
    assert (found.session, found.engine, found.model.precision) == (SessionSpec(), "onnxruntime", "fp32")
    assert (found.workload, found.protocol) == (one.workload, one.protocol)
    assert (found.model.path, found.model.sha256) == ("m.onnx", "a" * 64)
    assert ort_default(found) == found
    assert ort_default(trial(engine="torch-eager")) == ort_default(trial())


def test_a_classifier_is_known_by_the_file_itself() -> None:
    source = torch_source(record(FROM_TORCHVISION))
    assert source is not None
    assert (source["source"], source["name"], source["path"]) == ("torchvision", "resnet18", "")
    assert (source["weights"], source["seed"], source["image_size"]) == ("random", 7, 32)
    assert source["outputs"] == ["y"]
    trained = torch_source(record({"ortune.source": "torchvision vgg11", "ortune.weights": "pretrained"}))
    assert trained is not None
    assert trained["weights"] == "pretrained"


def test_a_pt2_is_known_where_it_was_exported() -> None:
    metadata = {"ortune.source": "torch.export m.pt2", "ortune.pt2_sha256": "d" * 64}
    source = torch_source(record(metadata, pt2="/data/m.pt2"))
    assert source is not None
    assert (source["source"], source["path"], source["sha256"]) == ("pt2", "/data/m.pt2", "d" * 64)
    assert (source["weights"], source["image_size"]) == ("file", None)
    assert torch_source(record(metadata)) is None


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"ortune.source": ""},
        {"ortune.source": "torchvision"},
        {"ortune.source": "torchvision no_such_model"},
        {"ortune.source": "somewhere resnet18"},
    ],
)
def test_a_model_from_elsewhere_has_no_program(metadata: dict[str, str]) -> None:
    assert torch_source(record(metadata, pt2="/data/m.pt2")) is None


def test_a_seed_that_is_no_number_is_not_trusted() -> None:
    source = torch_source(record({**FROM_TORCHVISION, "ortune.seed": "-1; x"}))
    assert source is not None
    assert source["seed"] == 0


def rows(plans: Sequence[wire.FeedPlan]) -> list[int]:
    return [plan["inputs"][0]["shape"][0] for plan in plans]


def test_other_shapes_are_one_row_and_twice_the_batch() -> None:
    assert rows(shape_feeds(trial(workload={"batch_size": 4}), PHOTOS)) == [1, 8]
    assert rows(shape_feeds(trial(), PHOTOS)) == [2]
    assert rows(shape_feeds(trial(workload={"feed_values": {"x": 1.0}}), PHOTOS)) == [2]


@pytest.mark.parametrize(
    "workload",
    [
        {"feeds": "rows.npz"},
        {"feeds": "photos"},
        {"feed_values": {"x": [[[[1.0]]]]}},
    ],
)
def test_feeds_that_say_how_many_rows_there_are_have_no_other_shape(workload: dict[str, Any]) -> None:
    assert shape_feeds(trial(workload=workload), PHOTOS) == []


def test_a_batch_that_dims_set_is_never_fed_otherwise() -> None:
    assert shape_feeds(trial(workload={"dims": {"batch": 3}}), PHOTOS) == []
    unnamed = info(("x", ["x:0", 4]), ("state", ["state:0", 8]), batch_dim="x:0")
    unnamed["batch_axes"] = {"x": 0, "state": 0}
    assert rows(shape_feeds(trial(), unnamed)) == [2]
    assert shape_feeds(trial(workload={"dims": {"state:0": 1}}), unnamed) == []


def test_a_fixed_batch_has_no_other_shape() -> None:
    assert shape_feeds(trial(), info(("x", [2, 3]), fixed=2)) == []


def test_a_shape_that_no_machine_holds_is_left_out() -> None:
    large = info(("x", ["batch", 2**30]), batch_dim="batch")
    assert rows(shape_feeds(trial(workload={"batch_size": 1000}), large)) == [1]


# --- threads ----------------------------------------------------------------------------------------------


def cpu(allowed: int = 4, quota: float | None = None) -> wire.CpuFacts:
    return {
        "model": "",
        "logical": 8,
        "physical": 4,
        "allowed": list(range(allowed)),
        "quota": quota,
        "ort_default_threads": 4,
        "usable": 2,
    }


@pytest.mark.parametrize(
    ("parts", "facts", "words"),
    [
        ({}, cpu(1), ""),
        ({"session": {"intra_op_num_threads": 4}}, cpu(4), ""),
        ({"session": {"intra_op_num_threads": 5}}, cpu(4), "is 5, but only 4 CPUs can be used"),
        ({"session": {"intra_op_num_threads": 2}}, cpu(4, quota=1.5), "is 2, but only 1 CPU can be used"),
        ({"session": {"intra_op_num_threads": 1}}, cpu(4, quota=0.5), ""),
        ({"session": {"inter_op_num_threads": 9}}, cpu(4), "`inter_op_num_threads` is 9"),
        ({"session": {"intra_op_num_threads": 2}, "protocol": {"cpus": "3,7"}}, cpu(4), "but only 1 CPU can"),
    ],
)
def test_more_threads_than_cpus_are_warned_of(
    parts: dict[str, Any], facts: wire.CpuFacts, words: str
) -> None:
    warning = thread_warning(trial(**parts), facts)
    assert (words in warning) if words else (warning == "")


# --- free-dimension overrides -----------------------------------------------------------------------------


def overridden(dims: dict[str, int], workload: dict[str, Any]) -> TrialSpec:
    return trial(session={"free_dimension_overrides": dims}, workload=workload)


def test_overrides_that_agree_with_what_is_fed_are_taken() -> None:
    check_overrides(overridden({"seq": 16, "batch": 2}, {"dims": {"seq": 16}, "batch_size": 2}), TOKENS)
    check_overrides(overridden({"batch": 1}, {"dims": {"seq": 16}}), TOKENS)


@pytest.mark.parametrize(
    ("dims", "workload", "message"),
    [
        ({"sequence": 16}, {"dims": {"seq": 16}}, "has no free dimension `sequence`"),
        ({"seq": 8}, {"dims": {"seq": 16}}, "fixes `seq` at 8, but the input has 16"),
        ({"batch": 2}, {"dims": {"seq": 16}}, "fixes `batch` at 2, but the input has 1"),
    ],
)
def test_overrides_that_would_be_ignored_or_contradict_the_feeds_are_refused(
    dims: dict[str, int], workload: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        check_overrides(overridden(dims, workload), TOKENS)


def test_a_session_with_a_fixed_batch_is_fed_no_other() -> None:
    one = trial(session={"free_dimension_overrides": {"batch": 1}})
    assert shape_feeds(one, PHOTOS) == []
