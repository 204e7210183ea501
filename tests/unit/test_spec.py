"""Specs: what they refuse, with which words, and that the YAML file carries them exactly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.spec import (
    TrialSpec,
    changed,
    effective,
    requested_value,
    session_from_dict,
    spec_from_dict,
    spec_from_yaml,
    without_effect,
    yaml_from_spec,
)
from core.spec.checks import cpu_list
from core.spec.effort import EFFORTS
from core.spec.presets import PRESETS, preset
from core.spec.settings import (
    ENTRIES,
    EXECUTION_MODES,
    EXECUTION_ORDERS,
    GRAPH_OPTIMIZATION_LEVELS,
    MAX_BATCH,
    MAX_THREADS,
    SETTINGS,
)
from core.spec.settings.config_entries import KNOWN_CONFIG_ENTRIES, KNOWN_OPTIMIZERS
from core.wire.engines import ENGINES
from core.wire.errors import SpecError

MODEL = {"path": "m.onnx"}


def spec(**parts: dict[str, Any]) -> TrialSpec:
    return spec_from_dict({"model": MODEL, **parts})


def refusal(data: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec_from_dict({"model": MODEL, **data})
    return caught.value


def yaml_refusal(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec_from_yaml(text)
    return caught.value


def document(body: str = "") -> str:
    return f"schema: 1\nmodel: {{path: m.onnx}}\n{body}"


# --- the round trip ---------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
numbers = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    names,
)
feed_values = st.dictionaries(names, st.one_of(numbers, st.lists(st.lists(numbers, max_size=3), max_size=3)))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def sections(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def cuda_options() -> st.SearchStrategy[dict[str, Any]]:
    return sections(
        device_id=st.integers(0, 7),
        gpu_mem_limit=st.integers(0, 2**64 - 1).map(str),
        use_tf32=st.booleans(),
        arena_extend_strategy=st.sampled_from(["kNextPowerOfTwo", "kSameAsRequested"]),
    )


chains = st.lists(
    st.one_of(
        st.builds(lambda o: {"name": "CUDAExecutionProvider", "options": o}, cuda_options()),
        st.just({"name": "CPUExecutionProvider"}),
        st.just({"name": "TensorrtExecutionProvider", "options": {"trt_fp16_enable": True}}),
    ),
    unique_by=lambda p: p["name"],
)
flags = st.sampled_from(["0", "1"])
entries = st.dictionaries(
    st.sampled_from([k for k, v in KNOWN_CONFIG_ENTRIES.items() if v == ("0", "1")]), flags
)
specs = st.builds(
    lambda m, s, w, p: spec_from_dict({"model": m, "session": s, "workload": w, "protocol": p}),
    st.fixed_dictionaries(
        {"path": names},
        optional={
            "sha256": maybe(st.text("0123456789abcdef", min_size=64, max_size=64)),
            "precision": st.sampled_from(["fp32", "fp16"]),
            "keep_io_types": st.booleans(),
        },
    ),
    sections(
        providers=chains,
        graph_optimization_level=maybe(st.sampled_from(GRAPH_OPTIMIZATION_LEVELS)),
        execution_mode=maybe(st.sampled_from(EXECUTION_MODES)),
        execution_order=maybe(st.sampled_from(EXECUTION_ORDERS)),
        intra_op_num_threads=maybe(st.integers(0, MAX_THREADS)),
        inter_op_num_threads=maybe(st.integers(0, MAX_THREADS)),
        enable_cpu_mem_arena=maybe(st.booleans()),
        enable_mem_pattern=maybe(st.booleans()),
        enable_mem_reuse=maybe(st.booleans()),
        use_deterministic_compute=maybe(st.booleans()),
        use_per_session_threads=maybe(st.booleans()),
        free_dimension_overrides=st.dictionaries(names, st.integers(1, 2**31 - 1)),
        run_config_entries=st.dictionaries(
            st.just("disable_synchronize_execution_providers"), st.sampled_from(["0", "1"])
        ),
        disabled_optimizers=st.lists(st.sampled_from(KNOWN_OPTIMIZERS)),
        session_config_entries=entries,
        allow_fallback=st.booleans(),
        expert=st.booleans(),
    ),
    sections(
        batch_size=maybe(st.integers(1, MAX_BATCH)),
        dims=st.dictionaries(names, st.integers(0, 2**31 - 1)),
        use_io_binding=st.booleans(),
        feeds=st.one_of(st.just("random"), names),
        feed_values=feed_values,
        image_mean=st.lists(st.floats(-10, 10), min_size=3, max_size=3),
        image_std=st.lists(st.floats(1e-3, 10), min_size=3, max_size=3),
        seed=st.integers(0, 2**31 - 1),
    ),
    sections(
        precision=st.sampled_from(list(EFFORTS)),
        budget_s=maybe(st.integers(1, 86_400)),
        margin=st.floats(0.001, 0.5),
        warmup_runs=maybe(st.integers(0, 10**6)),
        runs=maybe(st.integers(1, 10**6)),
        timeout_s=st.integers(1, 86_400),
        cpus=st.sampled_from(["", "0", "0-3,6", " 1 , 2-2 "]),
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs)
def test_the_yaml_round_trip_is_exact(one: TrialSpec) -> None:
    text = yaml_from_spec(one, measured={"p50_s": 1.5, "bad": float("nan")}, environment={"os": "x"})
    again = spec_from_yaml(text, expert=one.session.expert)
    assert again == one
    assert again.key() == one.key()
    assert type_tree(again.to_dict()) == type_tree(one.to_dict())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs)
def test_the_dictionary_round_trip_is_exact(one: TrialSpec) -> None:
    assert spec_from_dict(one.to_dict()) == one


def type_tree(value: Any) -> Any:
    """`1 == True == 1.0` in Python, so equality alone would let a type slip."""
    if isinstance(value, dict):
        return {k: type_tree(v) for k, v in value.items()}
    if isinstance(value, list):
        return [type_tree(v) for v in value]
    return (type(value).__name__, value)


def test_the_yaml_is_laid_out_as_the_contract_says() -> None:
    import yaml

    text = yaml_from_spec(
        spec(session={"providers": [{"name": "CPUExecutionProvider"}]}), measured={}, environment={}
    )
    data = yaml.safe_load(text)
    assert list(data) == ["schema", "model", "session", "workload", "protocol", "measured", "environment"]
    assert data["schema"] == 1
    assert data["session"]["providers"] == [{"name": "CPUExecutionProvider", "options": {}}]
    assert data["workload"] == {"use_io_binding": False, "streams": 1, "feeds": "random"}


def outcome(build: Callable[[], TrialSpec]) -> str:
    """The text of the refusal, with its hint, or of the spec; any other exception goes through."""
    try:
        return repr(build())
    except SpecError as error:
        return error.message and error.hint


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_spec_or_a_spec_error(text: str) -> None:
    assert outcome(lambda: spec_from_yaml(text))


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)
        ),
    )
)
def test_any_plain_data_in_any_section_is_a_spec_or_a_spec_error(data: Any) -> None:
    for section in ("model", "session", "workload", "protocol"):
        assert outcome(lambda section=section: spec_from_dict({"model": MODEL, section: data}))


# --- what YAML is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "key", "suggestion"),
    [
        ("session: {intra_op_num_thread: 2}", "session.intra_op_num_thread", "`intra_op_num_threads`"),
        ("workload: {batchsize: 2}", "workload.batchsize", "`batch_size`"),
        ("sesion: {}", "sesion", "`session`"),
        (
            "session: {providers: [{name: CPUExecutionProvider, option: {}}]}",
            "session.providers.0.option",
            "`options`",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(body: str, key: str, suggestion: str) -> None:
    error = yaml_refusal(document(body))
    assert f"`{key}`" in error.message
    assert f" {suggestion}?" in error.message


@pytest.mark.parametrize(
    "body",
    [
        'session: {intra_op_num_threads: "2"}',
        "session: {intra_op_num_threads: true}",
        "session: {intra_op_num_threads: 2.0}",
        "session: {intra_op_num_threads: [2]}",
        "session: {enable_mem_pattern: 1}",
        'session: {enable_mem_pattern: "true"}',
        "session: {graph_optimization_level: 99}",
        "session: {graph_optimization_level: ort_enable_all}",
        "session: {providers: CPUExecutionProvider}",
        "session: {providers: [CPUExecutionProvider]}",
        "session: {session_config_entries: [a]}",
        "session: {session_config_entries: {session.disable_prepacking: null}}",
        "session: {disabled_optimizers: ConstantFolding}",
        "session: {disabled_optimizers: [1]}",
        "session: 5",
        "workload: {batch_size: 1.5}",
        "workload: {batch_size: true}",
        "workload: {batch_size: .nan}",
        "workload: {dims: {sequence: '128'}}",
        "workload: {use_io_binding: 'yes'}",
        "workload: {seed: false}",
        "workload: {feeds: 3}",
        "workload: {image_mean: ['0.5']}",
        "workload: {feed_values: {x: 2024-01-01}}",
        "workload: {feed_values: {x: null}}",
        "workload: {feed_values: {x: .inf}}",
        "workload: {feed_values: {x: [[1, .nan]]}}",
        "workload: {feed_values: {x: {a: 1}}}",
        "protocol: {runs: '100'}",
        "protocol: {runs: true}",
    ],
)
def test_a_value_of_the_wrong_type_is_refused(body: str) -> None:
    error = yaml_refusal(document(body))
    assert "but got" in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("session: {}\nsession: {}", 4),
        ("session:\n  enable_mem_pattern: true\n  enable_mem_pattern: false", 5),
        ("workload: {dims: {a: 1, a: 2}}", 3),
        ('workload: {dims: {a: 1, "a": 2}}', 3),
    ],
)
def test_a_key_given_twice_is_refused_with_its_line(body: str, line: int) -> None:
    error = yaml_refusal(document(body))
    assert "twice" in error.message
    assert f"line {line}" in error.message


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system ['true']",
        "!!python/name:os.system",
        "!!set {a}",
        "!!binary aGk=",
        "!!str 5",
        "!mine 5",
        "! 5",
    ],
)
def test_a_tag_is_refused(value: str) -> None:
    assert "Tags" in yaml_refusal(document(f"workload:\n  feeds: {value}\n")).message


@pytest.mark.parametrize(
    "text",
    [
        "schema: 1\nmodel: &m {path: a.onnx}\n",
        "schema: 1\nmodel: *m\n",
        "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
    ],
)
def test_anchors_and_aliases_are_refused(text: str) -> None:
    assert "`&anchor`" in yaml_refusal(text).message


def test_a_billion_laughs_costs_nothing() -> None:
    levels = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    levels += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    started = time.process_time()
    yaml_refusal("\n".join(levels))
    assert time.process_time() - started < 1


@pytest.mark.parametrize("nested", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, "[" * 60 + "]" * 60])
def test_deep_nesting_is_refused_without_a_recursion_error(nested: str) -> None:
    assert "deeper" in yaml_refusal(document(f"workload:\n  {nested}")).message


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    assert "most" in yaml_refusal("#" * 10_000_000).message


@pytest.mark.parametrize("schema", ["2", "0", "'1'", "true", "1.0", "null", "[1]"])
def test_another_schema_is_refused(schema: str) -> None:
    error = yaml_refusal(f"schema: {schema}\nmodel: {{path: m.onnx}}\n")
    assert "`schema`" in error.message


def test_a_missing_schema_is_refused() -> None:
    assert "`schema`" in yaml_refusal("model: {path: m.onnx}\n").message


@pytest.mark.parametrize("text", ["", "null", "[]", "- a", "hello", "5"])
def test_yaml_that_is_no_mapping_is_refused(text: str) -> None:
    assert "mapping" in yaml_refusal(text).message


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "a: b: c",
        "\x00",
        "%YAML 9.9\n---\na: 1",
        "a: '",
        "\t- a",
        "a: 1\n---\nb: 2",
        "<<: {a: 1}",
        "2024-13-45: 1",
        "a: 2024-13-45",
        "1: 2",
        "? [a]\n: b",
        "a: " + "9" * 5000,
        "=: 1",
        "a: =",
    ],
)
def test_broken_yaml_is_refused_in_one_line(text: str) -> None:
    error = yaml_refusal(text)
    assert "\n" not in error.message
    assert error.hint


def test_a_missing_model_is_named() -> None:
    assert "`model`" in yaml_refusal("schema: 1\n").message
    assert "`model.path`" in yaml_refusal("schema: 1\nmodel: {}\n").message


@pytest.mark.parametrize("sha", ["", "abc", "A" * 64, "g" * 64, "0" * 63, "0" * 65])
def test_a_hash_that_is_no_sha256_is_refused(sha: str) -> None:
    assert "sha256" in refusal({"model": {"path": "m.onnx", "sha256": sha}}).message


def test_numbers_and_booleans_are_accepted_as_option_text() -> None:
    one = spec_from_yaml(
        document(
            "session:\n"
            "  providers: [{name: CUDAExecutionProvider, options: {device_id: 1, use_tf32: false}}]\n"
            "  session_config_entries: {session.disable_prepacking: 1, session.x64quantprecision: off}\n"
        )
    )
    assert one.session.providers[0].options == {"device_id": "1", "use_tf32": "0"}
    assert one.session.session_config_entries == {
        "session.disable_prepacking": "1",
        "session.x64quantprecision": "0",
    }


# --- ranges and rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [k for k in SETTINGS if k.low is not None], ids=lambda k: k.name)
def test_every_range_of_the_table_is_enforced(setting: Any) -> None:
    section = "session" if setting.target in ("attribute", *ENTRIES) else setting.target
    engine = {"engine": "openvino"} if setting.target == "openvino" else {}
    for value in (setting.low - 1, setting.high + 1):
        part: dict[str, Any] = {setting.field: value}
        if setting.target in ENTRIES:
            part = {ENTRIES[setting.target]: {setting.name: str(value)}}
        error = refusal({section: part, **engine})
        assert (setting.label or setting.name) in error.message
        assert f"`{setting.name}`" in error.hint
        assert f"got {value:,}." in error.message
    for value in (setting.low, setting.high):
        part = {setting.field: value}
        if setting.target in ENTRIES:
            part = {ENTRIES[setting.target]: {setting.name: str(value)}}
        assert effective(spec(**{section: part, **engine}), setting.name) == value


@pytest.mark.parametrize("size", [-1, 2**31])
def test_an_impossible_dimension_is_refused(size: int) -> None:
    assert "`n`" in refusal({"workload": {"dims": {"n": size}}}).message


@pytest.mark.parametrize("std", [[0.0], [-1.0], [float("nan")], [float("inf")], [1.0, 0.0]])
def test_a_deviation_that_cannot_divide_is_refused(std: list[float]) -> None:
    assert "image_std" in refusal({"workload": {"image_std": std}}).message


def test_means_and_deviations_need_the_same_channels() -> None:
    assert "channels" in refusal({"workload": {"image_mean": [0.5] * 3, "image_std": [1.0]}}).message


def test_a_provider_twice_is_refused() -> None:
    cpu = {"name": "CPUExecutionProvider"}
    assert "twice" in refusal({"session": {"providers": [cpu, cpu]}}).message


def test_a_misspelt_provider_is_refused_with_the_nearest_name() -> None:
    error = refusal({"session": {"providers": [{"name": "CUDAExecutionProvder"}]}})
    assert "`CUDAExecutionProvider`" in error.message


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("CPUExecutionProvider", {"use_arena": "1"}, "no options of its own"),
        ("CUDAExecutionProvider", {"gpu_mem_limt": "1"}, "`gpu_mem_limit`"),
        ("CUDAExecutionProvider", {"gpu_mem_limit": "2GB"}, "without a unit"),
        ("CUDAExecutionProvider", {"gpu_mem_limit": "-1"}, "must be"),
        ("CUDAExecutionProvider", {"gpu_mem_limit": str(2**64)}, "must be"),
        ("CUDAExecutionProvider", {"gpu_mem_limit": " 5"}, "without a unit"),
        ("CUDAExecutionProvider", {"device_id": "--1"}, "without a unit"),
        ("CUDAExecutionProvider", {"device_id": "²"}, "without a unit"),
        ("CUDAExecutionProvider", {"external_data_loader_reading_threads": "65"}, "must be"),
        ("CUDAExecutionProvider", {"arena_extend_strategy": "knextpoweroftwo"}, "the case"),
        ("CUDAExecutionProvider", {"use_tf32": "yes"}, "true or false"),
        ("CUDAExecutionProvider", {"user_compute_stream": "1234"}, "native code"),
        ("TensorrtExecutionProvider", {"trt_extra_plugin_lib_paths": "/tmp/x.so"}, "native code"),
        ("TensorrtExecutionProvider", {"trt_engine_decryption_lib_path": "/tmp/x.so"}, "native code"),
        ("TensorrtExecutionProvider", {"trt_builder_optimization_level": "6"}, "must be"),
        ("TensorrtExecutionProvider", {"trt_fp16": "True"}, "`trt_fp16_enable`"),
        ("QNNExecutionProvider", {"backend_path": "/tmp/x.so"}, "does not know the options"),
    ],
)
def test_a_bad_provider_option_is_refused(name: str, options: dict[str, str], word: str) -> None:
    error = refusal({"session": {"providers": [{"name": name, "options": options}]}})
    assert word in f"{error.message} {error.hint}"
    assert name in error.message


@pytest.mark.parametrize("value", ["true", "1", "'true'", "[true]"])
def test_a_file_cannot_turn_expert_on_by_itself(value: str) -> None:
    text = document(f"session: {{expert: {value}, session_config_entries: {{session.my_key: x}}}}")
    error = yaml_refusal(text)
    assert "`session.expert`" in error.message
    assert "ORTUNE_ALLOW_EXPERT=1" in error.hint
    assert spec_from_yaml(document("session: {expert: true}"), expert=True).session.expert
    assert not spec_from_yaml(document("session: {expert: false}")).session.expert
    assert not spec_from_yaml(document("session: {}"), expert=True).session.expert


def test_expert_passes_native_code_and_unknown_names_on() -> None:
    one = session_from_dict(
        {
            "providers": [
                {"name": "MyExecutionProvider", "options": {"a": "b"}},
                {"name": "TensorrtExecutionProvider", "options": {"trt_extra_plugin_lib_paths": "x.so"}},
            ],
            "session_config_entries": {"session.my_key": "1"},
            "disabled_optimizers": ["MyFusion"],
            "expert": True,
        }
    )
    assert one.requested_providers == ("MyExecutionProvider", "TensorrtExecutionProvider")


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ({"session.intra_op.allow_spining": "0"}, "`session.intra_op.allow_spinning`"),
        ({"session.intra_op.allow_spinning": "yes"}, "`0` or `1`"),
        ({"session.dynamic_block_base": "abc"}, "whole number"),
        ({"session.dynamic_block_base": "1_0"}, "whole number"),
        ({"session.dynamic_block_base": "-1"}, "must be"),
        ({"session.intra_op.spin_duration_us": "1ms"}, "whole number"),
        ({"session.intra_op.spin_backoff_max": "65"}, "from 1 to 64"),
        ({"session.load_model_format": "onnx"}, "`ONNX`"),
        ({"session.intra_op_num_threads": "2"}, "Set `intra_op_num_threads` instead"),
        ({"session.enable_profiling": "1"}, "no effect"),
        ({"batch_size": "2"}, "Unknown session config entry"),
        ({"optimization.disable_specified_optimizers": "ConstantFolding,GeluFusionL1"}, "ignore it silently"),
        ({"optimization.disable_specified_optimizers": "ConstantFoldin"}, "`ConstantFolding`"),
        ({"session.node_partition_config_file": "x" * 8193}, "8192"),
    ],
)
def test_a_config_entry_that_ort_would_ignore_is_refused(entries: dict[str, str], word: str) -> None:
    error = refusal({"session": {"session_config_entries": entries}})
    assert word in f"{error.message} {error.hint}"


def test_an_optimizer_that_ort_does_not_have_is_refused() -> None:
    error = refusal({"session": {"disabled_optimizers": ["NchwcTransformr"]}})
    assert "`NchwcTransformer`" in error.message


@pytest.mark.parametrize(
    ("threads", "affinities", "right"),
    [
        (4, "2;3;4", True),
        (2, "1,2", True),
        (3, "1-2;3-4", True),
        (None, "2", False),
        (1, "2", False),
        (4, "2;3", False),
        (2, "0", False),
        (2, "a", False),
        (2, "²", False),
        (3, "1;", False),
    ],
)
def test_affinities_fit_the_pool_and_count_from_one(
    threads: int | None, affinities: str, right: bool
) -> None:
    session = {
        "intra_op_num_threads": threads,
        "session_config_entries": {"session.intra_op_thread_affinities": affinities},
    }
    if right:
        assert spec(session=session).session.intra_op_num_threads == threads
    else:
        assert "session.intra_op_thread_affinities" in refusal({"session": session}).message


# --- reading settings back --------------------------------------------------------------------------------


def test_nothing_is_changed_in_a_bare_spec() -> None:
    assert changed(spec()) == []
    assert spec().to_dict() == {"model": MODEL}


def test_changed_lists_what_differs_from_the_default_in_the_tables_order() -> None:
    one = spec(
        session={
            "providers": [{"name": "CUDAExecutionProvider", "options": {"device_id": 0}}],
            "intra_op_num_threads": 0,  # requested, but it is the default
            "enable_mem_pattern": False,
            "session_config_entries": {
                "session.intra_op.allow_spinning": "0",
                "session.disable_prepacking": "1",
            },
        },
        workload={"batch_size": 4},
    )
    assert changed(one) == [
        "providers",
        "session.intra_op.allow_spinning",
        "enable_mem_pattern",
        "session_config_entries",
        "batch_size",
        "provider_options",
    ]
    assert requested_value(one, "intra_op_num_threads") == 0
    assert requested_value(one, "session_config_entries") == {"session.disable_prepacking": "1"}
    assert requested_value(one, "execution_mode") is None
    assert effective(one, "execution_mode") == "ORT_SEQUENTIAL"


def test_the_key_follows_the_content_of_the_model_not_its_path() -> None:
    sha = "0" * 64
    a = spec_from_dict({"model": {"path": "a.onnx", "sha256": sha}})
    b = spec_from_dict({"model": {"path": "b.onnx", "sha256": sha}})
    other = spec_from_dict({"model": {"path": "b.onnx", "sha256": "1" * 64}})
    assert a.key() == b.key()
    assert a.key() != other.key()
    assert spec_from_dict({"model": {"path": "a.onnx"}}).key() != a.key()


def test_one_row_is_what_is_fed_where_nothing_is_asked_for() -> None:
    assert spec(workload={"batch_size": 1}).key() == spec().key()
    bound = {"batch_size": 1, "use_io_binding": True}
    assert spec(workload=bound).key() == spec(workload={"use_io_binding": True}).key()
    assert spec(workload=bound).to_dict()["workload"] == bound  # the request stays


def test_the_key_changes_with_everything_that_is_asked_for() -> None:
    keys = {
        one.key()
        for one in (
            spec(),
            spec(workload={"batch_size": 2}),
            spec(workload={"use_io_binding": True}),
            spec(session={"intra_op_num_threads": 2}),
            spec(session={"enable_mem_pattern": False}),
            spec(session={"session_config_entries": {"session.disable_prepacking": "1"}}),
            spec(protocol={"runs": 7}),
            spec(protocol={"precision": "publish"}),
            spec(protocol={"cpus": "0"}),
            spec_from_dict({"model": MODEL, "engine": "torch-eager"}),
        )
    }
    assert len(keys) == 10


def entry(key: str, value: str) -> dict[str, Any]:
    return {"session_config_entries": {key: value}}


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({}, "inter_op_num_threads"),
        ({}, "session.inter_op.allow_spinning"),
        ({}, "keep_io_types"),
        ({}, "image_mean"),
        ({}, "allow_fallback"),
        ({"session": {"intra_op_num_threads": 1}}, "session.intra_op.allow_spinning"),
        ({"session": {"intra_op_num_threads": 1}}, "session.dynamic_block_base"),
        ({"session": {"intra_op_num_threads": 1}}, "session.intra_op.spin_duration_us"),
        ({"session": entry("session.intra_op.allow_spinning", "0")}, "session.intra_op.spin_duration_us"),
        ({"session": entry("session.inter_op.allow_spinning", "0")}, "session.inter_op.spin_duration_us"),
        ({"session": {"use_per_session_threads": False}}, "session.intra_op.allow_spinning"),
        ({}, "disable_synchronize_execution_providers"),
        ({"session": {"execution_mode": "ORT_PARALLEL"}}, "enable_mem_pattern"),
        ({"session": {"execution_mode": "ORT_PARALLEL"}}, "enable_mem_reuse"),
        ({"session": {"graph_optimization_level": "ORT_DISABLE_ALL"}}, "disabled_optimizers"),
        ({"session": {"providers": [{"name": "CUDAExecutionProvider"}]}}, "enable_cpu_mem_arena"),
        ({"session": {"providers": [{"name": "DmlExecutionProvider"}]}}, "enable_mem_pattern"),
        ({"workload": {"feeds": "x.NPZ"}}, "image_std"),
        ({"workload": {"feeds": "x.npz"}}, "seed"),
        ({"protocol": {"runs": 100}}, "protocol.effort"),
        ({"protocol": {"runs": 100}}, "budget_s"),
    ],
)
def test_a_setting_without_effect_says_why(parts: dict[str, Any], name: str) -> None:
    assert without_effect(spec(**parts))[name]


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"session": {"execution_mode": "ORT_PARALLEL"}}, "inter_op_num_threads"),
        ({"model": {"path": "m.onnx", "precision": "fp16"}}, "keep_io_types"),
        ({"workload": {"feeds": "photos"}}, "image_mean"),
        ({}, "enable_cpu_mem_arena"),
        ({}, "seed"),
        ({}, "enable_mem_pattern"),
        ({"session": {"providers": [{"name": "CUDAExecutionProvider"}]}}, "allow_fallback"),
    ],
)
def test_a_setting_with_effect_is_not_called_idle(parts: dict[str, Any], name: str) -> None:
    assert name not in without_effect(spec_from_dict({"model": MODEL, **parts}))


def test_every_reason_names_a_setting_of_the_table() -> None:
    known = {k.name for k in SETTINGS}
    for parts in (
        {},
        {"session": {"execution_mode": "ORT_PARALLEL", "intra_op_num_threads": 1}},
        {"session": {"providers": [{"name": "DmlExecutionProvider"}]}},
        {"workload": {"feeds": "photos"}},
        {"protocol": {"runs": 5}},
    ):
        assert set(without_effect(spec(**parts))) <= known


# --- presets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_valid_spec_that_survives_the_yaml_file(name: str) -> None:
    session, workload = preset(name)
    one = spec(session=session.model_dump(exclude_defaults=True), workload=workload)
    assert spec_from_yaml(yaml_from_spec(one)) == one


def test_the_default_preset_asks_for_nothing() -> None:
    session, workload = preset("default")
    assert changed(spec(session=session.model_dump(exclude_defaults=True), workload=workload)) == []


def test_an_unknown_preset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SpecError, match="`cpu-latency`"):
        preset("cpu-latancy")


def test_a_request_that_feeds_a_file_is_not_repeatable():
    assert spec_from_dict({"model": {"path": "m.onnx"}}).repeatable
    assert not spec_from_dict({"model": {"path": "m.onnx"}, "workload": {"feeds": "rows.npz"}}).repeatable


# --- the protocol -----------------------------------------------------------------------------------------


def test_the_protocol_leaves_the_number_of_runs_to_the_measurement() -> None:
    protocol = spec().protocol
    assert (protocol.effort, protocol.margin) == ("quick", 0.02)
    assert (protocol.budget_s, protocol.runs, protocol.warmup_runs) == (None, None, None)
    assert changed(spec(protocol={"precision": "publish", "runs": 9})) == ["protocol.effort", "runs"]
    assert effective(spec(), "protocol.effort") == "quick"
    assert effective(spec(), "precision") == "fp32"


def test_a_configuration_from_before_keeps_its_number_of_runs() -> None:
    one = spec_from_yaml(document("protocol: {warmup_runs: 10, runs: 100}"))
    assert (one.protocol.warmup_runs, one.protocol.runs) == (10, 100)
    assert one.to_dict()["protocol"] == {"warmup_runs": 10, "runs": 100}


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"precision": "fast"}, "protocol.effort"),
        ({"budget_s": 0}, "must be 1 to 86,400; got 0."),
        ({"margin": 0.0}, "must be 0.001 to 0.5; got 0.0."),
        ({"margin": 0.6}, "must be 0.001 to 0.5; got 0.6."),
        ({"margin": float("nan")}, "; got nan."),
        ({"margin": "2%"}, "protocol.margin"),
        ({"runs": 0}, "; got 0."),
        ({"warmup_runs": -1}, "; got -1."),
    ],
)
def test_a_protocol_out_of_range_is_refused_by_name(protocol: dict[str, Any], words: str) -> None:
    error = refusal({"protocol": protocol})
    assert words in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", []),
        ("  ", []),
        ("3", [3]),
        ("0-3,6", [0, 1, 2, 3, 6]),
        ("6,0-1,1", [0, 1, 6]),
        (" 2 , 4 - 5 ", [2, 4, 5]),
        ("8191", [8191]),
    ],
)
def test_cpus_are_a_linux_list(text: str, cpus: list[int]) -> None:
    assert cpu_list(text) == cpus
    assert spec(protocol={"cpus": text}).protocol.cpus == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "got `a`"),
        ("0,,1", "got ``"),
        ("-1", "got `-1`"),
        ("0-", "got `0-`"),
        ("0-6:2", "got `0-6:2`"),
        ("3-1", "must run upwards"),
        ("8192", "0 to 8191"),
        ("0-999999", "0 to 8191"),
        ("٣", "got"),
    ],
)
def test_what_is_no_list_of_cpus_is_refused_with_the_part(text: str, words: str) -> None:
    error = refusal({"protocol": {"cpus": text}})
    assert words in error.message
    assert "cpus" in error.message
    assert error.hint


# --- the engine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_stands_in_the_yaml_unless_it_is_the_usual_one(engine: str) -> None:
    one = spec_from_dict({"model": MODEL, "engine": engine})
    text = yaml_from_spec(one)
    assert spec_from_yaml(text) == one
    assert ("engine" in text) == (engine != "onnxruntime")
    assert ("engine" in one.to_dict()) == (engine != "onnxruntime")
    assert changed(one) == ([] if engine == "onnxruntime" else ["engine"])


def test_the_usual_engine_does_not_change_the_key() -> None:
    assert spec_from_dict({"model": MODEL, "engine": "onnxruntime"}).key() == spec().key()


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({"session": {"intra_op_num_threads": 2}}, "intra_op_num_threads"),
        ({"session": {"session_config_entries": {"session.disable_prepacking": "1"}}}, "session_config"),
        ({"session": {"providers": [{"name": "CUDAExecutionProvider"}]}}, "providers"),
        ({"session": {"allow_fallback": True}}, "allow_fallback"),
        ({"workload": {"use_io_binding": True}}, "use_io_binding"),
        ({"model": {"path": "m.onnx", "precision": "fp16"}}, "precision"),
    ],
)
def test_pytorch_is_not_asked_for_what_it_would_ignore(parts: dict[str, Any], name: str) -> None:
    error = refusal({"engine": "torch-eager", **parts})
    assert f"`{name}" in error.message
    assert "`torch-eager`" in error.message
    assert f"`{name}" in error.hint


def test_pytorch_takes_the_workload_and_the_protocol() -> None:
    parts = {"workload": {"batch_size": 4, "seed": 2}, "protocol": {"effort": "standard", "cpus": "0"}}
    one = spec_from_dict({"model": MODEL, "engine": "torch-compile", **parts})
    assert (one.workload.batch_size, one.protocol.cpus) == (4, "0")


def test_an_unknown_engine_is_refused() -> None:
    assert "engine" in refusal({"engine": "tensorflow"}).message
