"""Widget values and specs are two views of the same request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import wire
from core.run.sizes import Size
from core.spec import ModelRef, TrialSpec, sizes, spec_from_dict
from core.spec.effort import EFFORTS
from core.spec.presets import PRESETS, preset
from core.spec.settings import EXECUTION_MODES, EXECUTION_ORDERS, GRAPH_OPTIMIZATION_LEVELS, SETTINGS
from core.wire.errors import SpecError
from dashboard import fields

INFO: wire.ModelInfo = {
    "path": "m.onnx",
    "sha256": "a" * 64,
    "content_sha256": "b" * 64,
    "size_bytes": 1,
    "ir_version": 10,
    "opset": {"": 20},
    "producer": "",
    "inputs": [
        {"name": "ids", "dtype": "int64", "shape": ["batch", "sequence"]},
        {"name": "sr", "dtype": "int64", "shape": []},
    ],
    "outputs": [],
    "free_dims": ["batch", "sequence"],
    "batch_dim": "batch",
    "batch_axes": {"ids": 0},
    "fixed_batch": None,
    "nodes": 1,
    "op_counts": {},
    "parameters": 0,
    "external_data": [],
    "metadata": {},
}


def spec_of(values: dict[str, Any], info: wire.ModelInfo = INFO) -> TrialSpec:
    return fields.spec_from_values(values, path="m.onnx", sha256="a" * 64, info=info)


def test_every_setting_of_the_table_has_a_widget_value_or_a_widget_of_its_own() -> None:
    own = {"dims", "feed_values"}
    assert {fields.key(k.name) for k in SETTINGS if k.name not in own} <= set(fields.defaults())


def test_untouched_widgets_ask_the_session_for_nothing() -> None:
    spec = spec_of({})
    assert spec.session.model_dump(exclude_defaults=True) == {}
    assert spec.workload.batch_size == 1
    assert spec.workload.dims == {}


def test_a_three_state_switch_tells_default_from_on() -> None:
    key = fields.key("enable_mem_pattern")
    assert spec_of({key: fields.DEFAULT}).session.enable_mem_pattern is None
    assert spec_of({key: fields.ON}).session.enable_mem_pattern is True
    assert spec_of({key: fields.OFF}).session.enable_mem_pattern is False


def test_switches_that_are_config_entries_travel_as_0_and_1() -> None:
    key = fields.key("session.intra_op.allow_spinning")
    assert spec_of({key: fields.OFF}).session.session_config_entries == {
        "session.intra_op.allow_spinning": "0"
    }


def test_zero_threads_is_a_request_and_an_empty_field_is_none() -> None:
    key = fields.key("intra_op_num_threads")
    assert spec_of({key: 0}).session.intra_op_num_threads == 0
    assert spec_of({key: None}).session.intra_op_num_threads is None


def test_a_model_with_a_fixed_batch_is_asked_for_no_batch() -> None:
    info: wire.ModelInfo = {**INFO, "batch_dim": None, "fixed_batch": 4, "free_dims": []}  # type: ignore[typeddict-item]
    assert spec_of({fields.key("batch_size"): 8}, info).workload.batch_size is None


def test_sizes_and_values_of_another_model_are_left_out() -> None:
    spec = spec_of(
        {
            **{fields.dim_key("frames"): 7, fields.dim_key("sequence"): 128},
            **{fields.value_key("gone"): "1", fields.value_key("sr"): "16000"},
        }
    )
    assert spec.workload.dims == {"sequence": 128}
    assert spec.workload.feed_values == {"sr": 16000}


@pytest.mark.parametrize(
    ("text", "value"),
    [("16000", 16000), ("0.5", 0.5), ("True", True), ("[1, [2, 3]]", [1, [2, 3]]), (" -1 ", -1)],
)
def test_fixed_values_are_numbers_switches_or_lists(text: str, value: object) -> None:
    assert fields.parse_value("x", text) == value


@pytest.mark.parametrize("text", ["hello", "{}", '"a"', "[1, null]", "null", "[" * 5000, "__import__('os')"])
def test_a_fixed_value_that_is_no_number_is_refused_with_its_input(text: str) -> None:
    with pytest.raises(SpecError, match="`x`"):
        fields.parse_value("x", text)


def test_a_range_of_random_values_goes_to_the_spec_and_back() -> None:
    spec = spec_of({fields.value_key("sr"): " random:0..30521 "})
    assert spec.workload.feed_values == {"sr": "random:0..30521"}
    assert fields.values_from_spec(spec)[fields.value_key("sr")] == "random:0..30521"
    with pytest.raises(SpecError, match=r"random:5\.\.1"):
        spec_of({fields.value_key("sr"): "random:5..1"})


def test_an_empty_number_is_named() -> None:
    with pytest.raises(SpecError, match="`timeout_s`"):
        spec_of({fields.key("timeout_s"): None})


@pytest.mark.parametrize(
    ("text", "words"),
    [("novalue", "Line 1 must be `key=value`"), ("=1", "Line 1"), ("a=1\na=2", "`a` is given twice")],
)
def test_config_entries_that_are_no_lines_of_key_and_value_are_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        fields.parse_lines(text)


def test_config_entries_may_hold_comments_and_equals_signs() -> None:
    assert fields.parse_lines("# why\n\n a = b=c \n") == {"a": "b=c"}


def test_an_entry_with_a_control_of_its_own_is_refused_among_the_free_ones_when_both_are_set() -> None:
    with pytest.raises(SpecError, match="control"):
        spec_of(
            {
                fields.key("session.dynamic_block_base"): 4,
                fields.key("session_config_entries"): "session.dynamic_block_base=2",
            }
        )


def test_an_unknown_config_entry_is_refused_unless_expert_is_on() -> None:
    values = {fields.key("session_config_entries"): "session.nonsense=1"}
    with pytest.raises(SpecError, match=r"session\.nonsense"):
        spec_of(values)
    assert spec_of({**values, fields.key("expert"): True}).session.expert


@pytest.mark.parametrize(
    ("source", "path"),
    [(fields.NPZ, ""), (fields.NPZ, "a.png"), (fields.IMAGES, "x.npz"), (fields.IMAGES, " ")],
)
def test_feeds_need_a_path_of_the_chosen_kind(source: str, path: str) -> None:
    with pytest.raises(SpecError, match="inputs"):
        spec_of({fields.FEEDS_SOURCE: source, fields.FEEDS_PATH: path})


def test_options_of_a_provider_belong_to_it_while_it_is_in_the_chain() -> None:
    option = fields.option_key("CUDAExecutionProvider", "use_tf32")
    values = {fields.key("providers"): ["CUDAExecutionProvider", "CPUExecutionProvider"], option: fields.OFF}
    assert spec_of(values).session.providers[0].options == {"use_tf32": "0"}
    assert spec_of({option: fields.OFF}).session.providers == ()


def test_the_order_of_providers_is_kept() -> None:
    chain = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    assert list(spec_of({fields.key("providers"): chain}).session.requested_providers) == chain


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_go_into_the_widgets_and_come_out_the_same(name: str) -> None:
    session, workload = preset(name)
    spec = spec_from_dict(
        {
            "model": {"path": "m.onnx", "sha256": "a" * 64},
            "session": session.model_dump(exclude_defaults=True),
            "workload": {"batch_size": 1, "dims": {"sequence": 128}, **workload},
        }
    )
    assert spec_of(fields.values_from_spec(spec)) == spec


_TRI = st.sampled_from([None, True, False])
_SESSIONS = st.fixed_dictionaries(
    {"expert": st.just(True)},  # else options of a provider without a table are refused
    optional={
        "graph_optimization_level": st.sampled_from(GRAPH_OPTIMIZATION_LEVELS),
        "execution_mode": st.sampled_from(EXECUTION_MODES),
        "intra_op_num_threads": st.integers(0, 64),
        "inter_op_num_threads": st.integers(0, 64),
        "enable_cpu_mem_arena": _TRI,
        "enable_mem_pattern": _TRI,
        "enable_mem_reuse": _TRI,
        "execution_order": st.sampled_from(EXECUTION_ORDERS),
        "use_deterministic_compute": _TRI,
        "use_per_session_threads": _TRI,
        "free_dimension_overrides": st.dictionaries(st.sampled_from(["n", "seq"]), st.integers(1, 99)),
        "run_config_entries": st.dictionaries(
            st.sampled_from(["disable_synchronize_execution_providers", "an.entry.of.my.own"]),
            st.sampled_from(["0", "1"]),
        ),
        "allow_fallback": st.booleans(),
        "disabled_optimizers": st.lists(st.sampled_from(["NchwcTransformer", "GeluFusionL2"]), unique=True),
        "session_config_entries": st.dictionaries(
            st.sampled_from(
                [
                    "session.intra_op.allow_spinning",
                    "session.set_denormal_as_zero",
                    "session.disable_prepacking",
                ]
            ),
            st.sampled_from(["0", "1"]),
        ),
        "providers": st.lists(
            st.sampled_from(
                [
                    {"name": "CPUExecutionProvider"},
                    {
                        "name": "CUDAExecutionProvider",
                        "options": {"use_tf32": "0", "gpu_mem_limit": "1000000"},
                    },
                    {"name": "TensorrtExecutionProvider", "options": {"trt_fp16_enable": "1"}},
                    {
                        "name": "OpenVINOExecutionProvider",
                        "options": {"device_type": "CPU", "num_streams": "2"},
                    },
                ]
            ),
            unique_by=lambda one: str(one["name"]),
        ),
    },
)
_WORKLOADS = st.fixed_dictionaries(
    {"batch_size": st.integers(1, 64), "dims": st.fixed_dictionaries({"sequence": st.integers(1, 512)})},
    optional={
        "use_io_binding": st.booleans(),
        "feeds": st.sampled_from(["random", "/data/x.npz", "/data/images"]),
        "feed_values": st.fixed_dictionaries(
            {}, optional={"sr": st.integers(-5, 5), "ids": st.just([[1, 2]])}
        ),
        "image_mean": st.lists(st.floats(0, 1), max_size=3),
        "seed": st.integers(0, 99),
    },
)
_PROTOCOLS = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.sampled_from(list(EFFORTS)),
        "budget_s": st.integers(1, 86_400),
        "margin": st.floats(0.001, 0.5),
        "warmup_runs": st.integers(0, 1000),
        "runs": st.integers(1, 1000),
        "timeout_s": st.integers(1, 86_400),
        "cpus": st.sampled_from(["", "0", "0-3,6"]),
    },
)


@settings(max_examples=60, deadline=None)
@given(session=_SESSIONS, workload=_WORKLOADS, protocol=_PROTOCOLS, half=st.booleans())
def test_any_spec_goes_into_the_widgets_and_comes_out_the_same(
    session: dict[str, Any], workload: dict[str, Any], protocol: dict[str, Any], half: bool
) -> None:
    model = ModelRef(path="m.onnx", sha256="a" * 64, precision="fp16" if half else "fp32")
    spec = spec_from_dict(
        {"model": model.model_dump(), "session": session, "workload": workload, "protocol": protocol}
    )
    assert spec_of(fields.values_from_spec(spec)) == spec


def test_a_pytorch_spec_goes_into_the_widgets_and_comes_out_the_same() -> None:
    model = ModelRef(path="m.onnx", sha256="a" * 64).model_dump()
    workload = {"batch_size": 2, "dims": {"sequence": 9}}
    spec = spec_from_dict({"model": model, "engine": "torch-compile", "workload": workload})
    assert fields.values_from_spec(spec)[fields.key("engine")] == "torch-compile"
    assert spec_of(fields.values_from_spec(spec)) == spec


def test_options_and_sizes_that_a_new_spec_does_not_set_are_forgotten() -> None:
    spec = spec_of({fields.dim_key("sequence"): 128})
    have = [
        "option.CUDAExecutionProvider.use_tf32",
        "dim.sequence",
        "value.sr",
        "knob.runs",
        "run",
        "dim.frames",
    ]
    assert fields.stale_keys(have, spec) == [
        "option.CUDAExecutionProvider.use_tf32",
        "value.sr",
        "dim.frames",
    ]


# --- sizes that nobody gave -------------------------------------------------------------------------------


def images(*shape: int | str) -> wire.ModelInfo:
    one: wire.InputInfo = {"name": "x", "dtype": "float32", "shape": list(shape)}
    free = [dim for dim in shape if isinstance(dim, str)]
    return {**INFO, "inputs": [one], "free_dims": free, "batch_dim": "x:0", "batch_axes": {"x": 0}}


@pytest.mark.parametrize(
    ("shape", "sides"),
    [
        (("x:0", 3, "x:2", "x:3"), {"x:2": "height", "x:3": "width"}),
        (("x:0", "x:1", "x:2", 1), {"x:1": "height", "x:2": "width"}),
        (("x:0", 64, "x:2", "x:3"), {"x:2": "", "x:3": ""}),  # no image
        (("x:0", "x:1"), {"x:1": ""}),
    ],
)
def test_the_layout_tells_height_from_width(shape: tuple[int | str, ...], sides: dict[str, str]) -> None:
    info = images(*shape)
    assert {dim: sizes.image_side(dim, info) for dim in sides} == sides
    assert sizes.suggested_sizes(sides, info) == {dim: 224 if side else 16 for dim, side in sides.items()}


def test_a_size_is_as_proposed_until_another_one_is_given() -> None:
    proposed = {"x:2": Size(size=224, source="guess"), "x:3": Size(size=64, source="last run")}
    assert fields.as_proposed({}, proposed) == proposed
    given = {**fields.dim_values(proposed), fields.dim_key("x:2"): 96}
    assert fields.as_proposed(given, proposed) == {"x:3": proposed["x:3"]}


@pytest.mark.parametrize(
    "value",
    [
        "one",
        'he said "no"',
        '"quoted"',
        "[1, 2",
        "[odd]",
        " spaced ",
        "two\nlines",
        ["a", "b"],
        [["a"], ["b"]],
    ],
)
def test_text_for_an_input_comes_back_from_its_field(value: Any) -> None:
    one = spec_from_dict({"model": {"path": "m"}, "workload": {"feed_values": {"x": value}}})
    field = fields.values_from_spec(one)[fields.value_key("x")]
    assert fields.parse_text(str(field).strip()) == value


def test_the_settings_of_another_engine_stay_unset_in_the_widgets() -> None:
    values = fields.values_from_spec(spec_from_dict({"model": {"path": "m.onnx"}}))
    own = {fields.key(one.name) for one in SETTINGS if one.target == "openvino"}
    assert own
    assert {name: values[name] for name in own} == {name: fields.defaults()[name] for name in own}
