"""The table of settings against the specs it describes, and against the ONNX Runtime that is installed."""

from __future__ import annotations

import functools
import importlib.util
import mmap
import re
from pathlib import Path
from typing import Any, get_args

import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.spec import (
    BESIDE_SECTIONS,
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    ModelRef,
    ProtocolSpec,
    SessionSpec,
    TrialSpec,
    WorkloadSpec,
    effective,
    requested_value,
    settings,
    spec_from_dict,
)
from core.spec.openvino import OpenVinoSpec
from core.spec.settings import ENTRIES, SETTINGS, check_config_entry, is_whole_number, trial_setting
from core.spec.settings.config_entries import (
    INTEGER_CONFIG_ENTRIES,
    KNOWN_CONFIG_ENTRIES,
    KNOWN_OPTIMIZERS,
    MIRROR_CONFIG_ENTRIES,
)
from core.spec.settings.provider_options import KNOWN_PROVIDERS, PROVIDER_OPTIONS, ProviderOption
from core.wire.engines import ENGINES
from core.wire.errors import SpecError

SECTIONS = {
    "session": SessionSpec,
    "workload": WorkloadSpec,
    "protocol": ProtocolSpec,
    "model": ModelRef,
    "openvino": OpenVinoSpec,
}
IDENTITY = {"path", "sha256", "content_sha256"}  # which model, not how it is run


def section_of(setting: settings.TrialSetting) -> str:
    return "session" if setting.target in ("attribute", *ENTRIES) else setting.target


# --- the table and the specs ------------------------------------------------------------------------------


def test_every_field_of_a_spec_has_a_row_in_the_table_and_every_row_a_field() -> None:
    fields = {(name, field) for name, cls in SECTIONS.items() for field in cls.model_fields} - {
        ("model", field) for field in IDENTITY
    }
    rows = {(section_of(k), k.field) for k in SETTINGS if k.target not in ENTRIES}
    assert rows == fields | {("trial", "engine"), ("trial", "runtime")}
    assert set(TrialSpec.model_fields) == {*SECTIONS, *BESIDE_SECTIONS}  # what judges is no setting


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda k: k.name)
def test_every_setting_can_be_asked_for_and_read_back(setting: settings.TrialSetting) -> None:
    value, data = sample(setting)
    part: dict[str, Any] = {setting.field: data}
    if setting.target in ENTRIES:
        part = {ENTRIES[setting.target]: {setting.name: data}}
    if setting.name == "run_config_entries":
        part["expert"] = True
    if setting.name == "session.intra_op_thread_affinities":
        part["intra_op_num_threads"] = 4
    asked_for = part if setting.target == "trial" else {section_of(setting): part}
    if setting.target == "openvino":
        asked_for["engine"] = "openvino"
    one = spec_from_dict({"model": {"path": "m.onnx"}, **asked_for} | model_of(setting, part))
    assert requested_value(one, setting.name) == value
    assert effective(one, setting.name) == value


def model_of(setting: settings.TrialSetting, part: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"path": "m.onnx", **part}} if setting.target == "model" else {}


def sample(setting: settings.TrialSetting) -> tuple[Any, Any]:
    """A value other than the default, as it is read back and as it is written."""
    special: dict[str, tuple[Any, Any]] = {
        "providers": (("CUDAExecutionProvider",), [{"name": "CUDAExecutionProvider"}]),
        "disabled_optimizers": (("ConstantFolding",), ["ConstantFolding"]),
        "custom_op_libraries": (("libops.so",), ["libops.so"]),
        "provider_libraries": (("libep.so",), ["libep.so"]),
        "session_config_entries": (
            {"session.disable_prepacking": "1"},
            {"session.disable_prepacking": "1"},
        ),
        "run_config_entries": ({"gpu_graph_id": "1"}, {"gpu_graph_id": "1"}),
        "free_dimension_overrides": ({"n": 3}, {"n": 3}),
        "session.intra_op_thread_affinities": ("2;3;4", "2;3;4"),
        "dims": ({"n": 3}, {"n": 3}),
        "feed_values": ({"x": 1.5}, {"x": 1.5}),
        "feeds": ("a.npz", "a.npz"),
        "image_mean": ((0.5,), [0.5]),
        "image_std": ((0.5,), [0.5]),
        "cpus": ("0-3,6", "0-3,6"),
        "runtime": ("ort130", "ort130"),
        "openvino.device": ("AUTO", "AUTO"),
        "openvino.properties": ({"MODEL_PRIORITY": "HIGH"}, {"MODEL_PRIORITY": "HIGH"}),
    }
    if setting.name in special:
        return special[setting.name]
    if setting.kind == "bool":
        value: Any = not setting.default
        return value, (str(int(value)) if setting.target in ENTRIES else value)
    if setting.kind == "choice":
        value = next(choice for choice in setting.choices if choice != setting.default)
        return value, value
    assert setting.kind in ("int", "float")
    assert setting.high is not None
    return setting.high, (str(setting.high) if setting.target in ENTRIES else setting.high)


def test_the_choices_of_the_table_are_those_of_the_spec() -> None:
    assert trial_setting("graph_optimization_level").choices == get_args(GraphOptimizationLevel)
    assert trial_setting("execution_mode").choices == get_args(ExecutionMode)
    assert trial_setting("execution_order").choices == get_args(ExecutionOrder)
    assert trial_setting("precision").choices == get_args(ModelRef.model_fields["precision"].annotation)
    assert trial_setting("protocol.effort").choices == get_args(
        ProtocolSpec.model_fields["effort"].annotation
    )
    assert trial_setting("engine").choices == tuple(ENGINES)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda k: k.name)
def test_every_row_is_complete(setting: settings.TrialSetting) -> None:
    assert setting.label
    assert len(setting.help) > 20
    assert setting.help.endswith(".")
    assert re.fullmatch(r"--[a-z0-9]+(-[a-z0-9]+)*", setting.flag)
    if setting.kind in ("int", "float"):
        assert setting.low is not None
        assert setting.high is not None
        counts = setting.name.endswith(".spin_duration_us")  # unset, ONNX Runtime counts loops, not time
        assert setting.default is not None or setting.target in ("protocol", "openvino") or counts
        if setting.default is not None:
            assert isinstance(setting.default, int if setting.kind == "int" else float)
            assert setting.low <= setting.default <= setting.high
    if setting.kind == "choice":
        assert setting.default in ("", *setting.choices)  # "": nothing of the kind is done
    if setting.kind == "bool":
        assert isinstance(setting.default, bool)


def test_names_and_flags_are_unique() -> None:
    assert len({k.name for k in SETTINGS}) == len(SETTINGS)
    flags = [k.flag for k in SETTINGS if k.name != "feed_values"]  # `--feed`: distinguished by its value
    assert len(set(flags)) == len(flags)


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SpecError, match="Did you mean `batch_size`"):
        trial_setting("batchsize")


def test_the_lists_of_config_entries_do_not_overlap() -> None:
    own = {k.name for k in SETTINGS if k.target == "config_entry"}
    assert not own & set(KNOWN_CONFIG_ENTRIES)
    assert not own & set(MIRROR_CONFIG_ENTRIES)
    assert not set(KNOWN_CONFIG_ENTRIES) & set(MIRROR_CONFIG_ENTRIES)
    assert set(INTEGER_CONFIG_ENTRIES) <= set(KNOWN_CONFIG_ENTRIES)


@pytest.mark.parametrize("key", KNOWN_CONFIG_ENTRIES)
def test_every_known_config_entry_accepts_its_values_and_no_other(key: str) -> None:
    accepted = KNOWN_CONFIG_ENTRIES[key]
    values = accepted or ("NchwcTransformer",)
    if key in INTEGER_CONFIG_ENTRIES:
        values = tuple(str(bound) for bound in INTEGER_CONFIG_ENTRIES[key])
    for value in values:
        check_config_entry(key, value, expert=False)
    if accepted or key in INTEGER_CONFIG_ENTRIES:
        with pytest.raises(SpecError, match=re.escape(key)):
            check_config_entry(key, "nonsense", expert=True)


@given(st.text(max_size=8))
def test_what_counts_as_a_whole_number_is_one(text: str) -> None:
    if is_whole_number(text):
        assert text.isascii()
        assert str(int(text)) == text or text.lstrip("-").startswith("0")


# --- provider options: complete, typed, with defaults that pass their own check ---------------------------

CUDA_OPTIONS = """
    device_id user_compute_stream has_user_compute_stream gpu_mem_limit arena_extend_strategy
    cudnn_conv_algo_search cudnn_conv_use_max_workspace cudnn_conv1d_pad_to_nc1d do_copy_in_default_stream
    enable_cuda_graph prefer_nhwc fuse_conv_bias use_tf32 sdpa_kernel enable_skip_layer_norm_strict_mode
    use_ep_level_unified_stream tunable_op_enable tunable_op_tuning_enable tunable_op_max_tuning_duration_ms
    gpu_external_alloc gpu_external_free gpu_external_empty_cache enable_cudnn
    external_data_loader_reading_threads
""".split()  # noqa: SIM905 - a list of 45 quoted names is hard to read

# C API only, not from Python: trt_onnx_bytestream(_size), trt_external_data_bytestream(_size),
# trt_load_user_initializer
TENSORRT_OPTIONS = """
    device_id user_compute_stream trt_max_partition_iterations trt_min_subgraph_size trt_max_workspace_size
    trt_fp16_enable trt_bf16_enable trt_int8_enable trt_int8_calibration_table_name
    trt_int8_use_native_calibration_table trt_dla_enable trt_dla_core trt_dump_subgraphs
    trt_engine_cache_enable trt_engine_cache_path trt_engine_cache_prefix trt_weight_stripped_engine_enable
    trt_onnx_model_folder_path trt_engine_decryption_enable trt_engine_decryption_lib_path
    trt_force_sequential_engine_build trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback
    trt_timing_cache_enable trt_timing_cache_path trt_force_timing_cache trt_detailed_build_log
    trt_build_heuristics_enable trt_sparsity_enable trt_builder_optimization_level trt_auxiliary_streams
    trt_tactic_sources trt_extra_plugin_lib_paths trt_profile_min_shapes trt_profile_max_shapes
    trt_profile_opt_shapes trt_cuda_graph_enable trt_dump_ep_context_model trt_ep_context_file_path
    trt_ep_context_embed_mode trt_engine_hw_compatible trt_op_types_to_exclude trt_preview_features
""".split()  # noqa: SIM905 - a list of 45 quoted names is hard to read


@pytest.mark.parametrize(
    ("provider", "names"),
    [("CUDAExecutionProvider", CUDA_OPTIONS), ("TensorrtExecutionProvider", TENSORRT_OPTIONS)],
)
def test_the_option_tables_are_complete(provider: str, names: list[str]) -> None:
    table = [option.name for option in PROVIDER_OPTIONS[provider]]
    assert sorted(table) == sorted(names)


ALL_OPTIONS = [(provider, option) for provider, table in PROVIDER_OPTIONS.items() for option in table]


@pytest.mark.parametrize(("provider", "option"), ALL_OPTIONS, ids=lambda v: getattr(v, "name", v))
def test_every_option_accepts_its_own_default(provider: str, option: ProviderOption) -> None:
    chain = [{"name": provider, "options": {option.name: option.default}}]
    one = spec_from_dict(
        {"model": {"path": "m"}, "session": {"providers": chain, "expert": option.native_code}}
    )
    assert one.session.providers[0].options == {option.name: option.default}
    assert option.help


def test_what_loads_a_library_or_takes_an_address_is_marked() -> None:
    marked = {option.name for _, option in ALL_OPTIONS if option.native_code}
    assert marked == {
        "user_compute_stream",
        "gpu_external_alloc",
        "gpu_external_free",
        "gpu_external_empty_cache",
        "trt_extra_plugin_lib_paths",
        "trt_engine_decryption_lib_path",
    }


# --- the table against the installed libraries ------------------------------------------------------------

CUDA_LIBRARY = "libonnxruntime_providers_cuda.so"
TENSORRT_LIBRARY = "libonnxruntime_providers_tensorrt.so"
MAIN_LIBRARY = "onnxruntime_pybind11_state*.so"


def library(pattern: str) -> Path:
    package = importlib.util.find_spec("onnxruntime")
    assert package is not None
    assert package.origin is not None
    found = list((Path(package.origin).parent / "capi").glob(pattern))
    if not found:
        pytest.skip(f"this build of ONNX Runtime has no {pattern}")
    return found[0]


@functools.cache
def literals(pattern: str) -> frozenset[str]:
    """Every C string of the library that could be a name or a key."""
    with library(pattern).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # read sequentially: one pass over a few hundred MB takes about a second
        return frozenset(m.decode() for m in re.findall(rb"\x00([A-Za-z][A-Za-z0-9_.]{3,80})(?=\x00)", data))


@pytest.mark.parametrize(
    ("provider", "pattern"),
    [("CUDAExecutionProvider", CUDA_LIBRARY), ("TensorrtExecutionProvider", TENSORRT_LIBRARY)],
)
def test_every_provider_option_is_a_literal_of_its_library(provider: str, pattern: str) -> None:
    suffixes = {"user_compute_stream"}  # the linker keeps it as the tail of `has_user_compute_stream`
    found = literals(pattern)
    missing = {option.name for option in PROVIDER_OPTIONS[provider]} - found
    assert missing <= suffixes
    assert all(any(text.endswith(name) for text in found) for name in missing)


def test_every_option_that_the_tensorrt_library_reads_is_in_the_table() -> None:
    c_api_only = {
        "trt_onnx_bytestream",
        "trt_onnx_bytestream_size",
        "trt_external_data_bytestream",
        "trt_external_data_bytestream_size",
        "trt_load_user_initializer",
    }
    found = {text for text in literals(TENSORRT_LIBRARY) if text.startswith("trt_") and text.islower()}
    assert found - c_api_only <= {option.name for option in PROVIDER_OPTIONS["TensorrtExecutionProvider"]}


NOT_IN_X86_LIBRARIES = {
    "mlas.enable_gemm_fastmath_arm64_bfloat16": "read by the ARM64 kernels only",
    "session.use_memory_mapped_ort_model": "the tail of a longer literal",
}


def test_every_known_config_entry_is_a_literal_of_the_installed_libraries() -> None:
    found = literals(MAIN_LIBRARY) | literals(CUDA_LIBRARY)
    known = {*KNOWN_CONFIG_ENTRIES, *MIRROR_CONFIG_ENTRIES}
    known |= {k.name for k in SETTINGS if k.target in ENTRIES}
    assert known - found <= set(NOT_IN_X86_LIBRARIES)


LEFT_OUT = {
    # keys of the libraries that ORTune does not offer, with the reason
    "ep.context_model_external_initializers_file_name": "writes a file",
    "ep.context_source_model_path": "names a file of the compiling step",
    "ep.cuda.fpa_intb_gemv_paired_k": "undocumented",
    "ep.cuda.fpa_intb_gemv_wave_aware": "undocumented",
    "ep.cuda.gqa_workspace_max_total_sequence_length": "language models only",
    "ep.cuda.matmul_nbits_m_chunk_size": "undocumented",
    "ep.cuda.qmoe_int_dequant_max_scratch_bytes": "language models only",
    "ep.cuda.qmoe_row_tile_size": "language models only",
    "ep.enable_weightless": "undocumented",
    "mlas.nchwc_depthwise_sliding": "undocumented",
    "mlas.nchwc_pointwise_conv_max_input_channel_batch": "undocumented",
    "mlas.qnbit.force_fp32": "undocumented",
    "session.collect_node_memory_stats_to_file": "writes a file and slows the run",
    "session.compile_only": "internal",
    "session.debug_layout_transformation": "writes models",
    "session.enable_moe_expert_counting": "language models only",
    "session.enable_moe_expert_statistics": "language models only",
    "session.enable_saved_runtime_optimizations": "internal",
    "session.gqa_value_layout": "language models only",
    "session.log_id": "an attribute",
    "session.log_severity_level": "an attribute",
    "session.log_verbosity_level": "an attribute",
    "session.max_shape_override": "estimation only",
    "session.moe_expert_counter_alpha": "language models only",
    "session.moe_expert_counter_beta": "language models only",
    "session.moe_expert_counter_state_file": "language models only",
    "session.optimized_model_external_initializers_file_name": "belongs to saving a model",
    "session.optimized_model_external_initializers_min_size_in_bytes": "belongs to saving a model",
    "session.strict_workspace_verification": "language models only",
    "session.use_external_initializer_file_buffers_directly": "belongs to a model given as bytes",
    "session.model_external_initializers_file_folder_path": "would read weights from outside the folder",
}


def test_every_config_entry_of_the_installed_libraries_is_offered_or_left_out_for_a_reason() -> None:
    found = {
        text
        for text in literals(MAIN_LIBRARY) | literals(CUDA_LIBRARY)
        if re.fullmatch(r"(session|optimization|ep|mlas)\.[a-z0-9_.]*[a-z0-9]", text)
    }
    settings_with_option = {*KNOWN_CONFIG_ENTRIES, *MIRROR_CONFIG_ENTRIES, *(k.name for k in SETTINGS)}
    prefixes = {"ep.cuda", "ep.context"}
    assert sorted(found - settings_with_option - set(LEFT_OUT) - prefixes) == []
    assert not settings_with_option & set(LEFT_OUT)


def test_every_known_optimizer_is_named_somewhere_in_the_installed_library() -> None:
    # built from parts at run time, or short enough to be inlined; all seen in the verbose log
    built = {"Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer"}
    built |= {"TransposeOptimizer_CPUExecutionProvider"}
    text = library(MAIN_LIBRARY).read_bytes()
    missing = {name for name in KNOWN_OPTIMIZERS if name.encode() not in text}
    assert missing <= built


# --- the table against the installed ONNX Runtime, run for real -------------------------------------------


def test_attributes_and_defaults_are_those_of_the_installed_session_options() -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for setting in SETTINGS:
        if setting.target != "attribute":
            continue
        value = getattr(options, setting.name)
        assert getattr(value, "name", value) == setting.default, setting.name


def test_the_known_providers_are_those_of_the_installed_onnx_runtime() -> None:
    import onnxruntime

    assert set(onnxruntime.get_all_providers()) <= set(KNOWN_PROVIDERS)
    assert set(onnxruntime.get_available_providers()) <= set(KNOWN_PROVIDERS)


def test_the_optimizers_that_run_are_known(tmp_path: Path) -> None:
    """The verbose log of a real session names every transformer; it goes to fd 2, so a process of its own."""
    import subprocess
    import sys

    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    onnx.save(model, tmp_path / "relu.onnx")
    script = (
        "import core, onnxruntime as ort\n"
        "options = ort.SessionOptions()\n"
        "options.log_severity_level = 0\n"
        f"path = {str(tmp_path / 'relu.onnx')!r}\n"
        "ort.InferenceSession(path, options, providers=['CPUExecutionProvider'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    named = set(re.findall(r"GraphTransformer (\w+) modified", done.stderr))
    assert len(named) > 40
    assert named <= set(KNOWN_OPTIMIZERS)


NO_SETTING = {
    # what `SessionOptions` and `RunOptions` have beside the settings of the table, with the reason
    "add_session_config_entry": "`session_config_entries` and rows of the table",
    "get_session_config_entry": "reads",
    "add_run_config_entry": "`run_config_entries` and rows of the table",
    "get_run_config_entry": "reads",
    "add_free_dimension_override_by_name": "`free_dimension_overrides`",
    "add_free_dimension_override_by_denotation": "dimensions are told apart by their names everywhere here",
    "add_provider": "`providers`",
    "add_provider_for_devices": "`providers`, where `provider_libraries` brings one of them",
    "has_providers": "reads",
    "set_provider_selection_policy": "chooses by itself what is to be chosen here",
    "set_provider_selection_policy_delegate": "chooses by itself what is to be chosen here",
    "add_initializer": "part of the model",
    "add_external_initializers": "part of the model",
    "add_external_initializers_from_files_in_memory": "part of the model",
    "register_custom_ops_library": "`custom_op_libraries`",
    "set_ep_context_data_read_func": "part of a compiled model",
    "clear_ep_context_data_read_func": "part of a compiled model",
    "set_load_cancellation_flag": "a process is stopped instead",
    "enable_profiling": "profiles set it",
    "profile_file_prefix": "profiles set it",
    "optimized_model_filepath": "profiles and variants set it",
    "logid": "words of a log",
    "log_severity_level": "words of a log, which is read here",
    "log_verbosity_level": "words of a log, which is read here",
    "add_active_adapter": "another model's weights",
    "only_execute_path_to_fetches": "all outputs are fetched",
    "terminate": "a process is stopped instead",
}


@pytest.mark.parametrize("options", [onnxruntime.SessionOptions, onnxruntime.RunOptions])
def test_every_attribute_of_the_options_is_a_setting_or_left_out_for_a_reason(options: type) -> None:
    found = {name for name in dir(options()) if not name.startswith("_")}
    attributes = {k.name for k in SETTINGS if k.target == "attribute"}
    assert found <= attributes | set(NO_SETTING)
    assert not attributes & set(NO_SETTING)


def test_what_is_left_out_is_really_there() -> None:
    found = {*dir(onnxruntime.SessionOptions()), *dir(onnxruntime.RunOptions())}
    assert set(NO_SETTING) <= found
    assert {k.name for k in SETTINGS if k.target == "attribute"} <= found


def test_every_setting_has_a_short_name_of_its_own() -> None:
    short = [one.short for one in settings.SETTINGS]
    assert len({*short}) == len(short)
    assert max(map(len, short)) <= 18
    assert {
        settings.trial_setting("intra_op_num_threads").short,
        settings.trial_setting("batch_size").short,
    } == {
        "threads",
        "batch",
    }
