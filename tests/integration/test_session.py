from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from core import wire
from core.wire.errors import ModelError, ProviderError, SpecError, WorkerError
from core.worker.measure.inference import Inference, prepare, translate_errors
from core.worker.session import BuiltSession, build_session, ort_errors
from tests import tiny_models
from tests.builders import feed_plan, one_input

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"  # a name ONNX Runtime knows and this build lacks

needs_gpu_build = pytest.mark.skipif(
    CUDA not in ort.get_available_providers(), reason="this build of ONNX Runtime has no CUDA provider"
)
no_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="CUDA may load here")


def plan(*providers: str, allow_fallback: bool = False, **changes: Any) -> Any:
    return {
        **wire.default_session_plan(),
        "providers": [{"name": name, "options": {}} for name in providers or (CPU,)],
        "allow_fallback": allow_fallback,
    } | changes


@pytest.fixture
def mlp(tmp_path: Path) -> str:
    return str(tiny_models.mlp(tmp_path / "mlp.onnx"))


def options_of(built: BuiltSession) -> ort.SessionOptions:
    return built.session.get_session_options()


ATTRIBUTES: dict[str, bool | int] = {
    "intra_op_num_threads": 2,
    "inter_op_num_threads": 3,
    "enable_cpu_mem_arena": False,
    "enable_mem_pattern": False,
    "enable_mem_reuse": False,
    "use_deterministic_compute": True,
}
FEEDS: wire.FeedPlan = feed_plan(one_input(shape=(2, 16)))
CONFIG_ENTRIES = {
    "session.intra_op.allow_spinning": "0",
    "session.inter_op.allow_spinning": "0",
    "session.dynamic_block_base": "4",
    "session.set_denormal_as_zero": "0",
    "session.disable_prepacking": "1",
}


@pytest.mark.parametrize(("name", "value"), ATTRIBUTES.items())
def test_an_attribute_that_was_asked_for_is_set(mlp: str, name: str, value: bool | int) -> None:
    built = build_session(mlp, plan(attributes={name: value}))
    assert getattr(options_of(built), name) == value
    assert getattr(ort.SessionOptions(), name) != value


@pytest.mark.parametrize(
    "level",
    ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL"],
)
def test_every_optimization_level_is_set_by_name(mlp: str, level: str) -> None:
    built = build_session(mlp, plan(attributes={"graph_optimization_level": level}))
    assert options_of(built).graph_optimization_level == getattr(ort.GraphOptimizationLevel, level)


@pytest.mark.parametrize("mode", ["ORT_SEQUENTIAL", "ORT_PARALLEL"])
def test_every_execution_mode_is_set_by_name(mlp: str, mode: str) -> None:
    built = build_session(mlp, plan(attributes={"execution_mode": mode}))
    assert options_of(built).execution_mode == getattr(ort.ExecutionMode, mode)


@pytest.mark.parametrize("order", ["DEFAULT", "PRIORITY_BASED"])
def test_an_execution_order_is_set_by_name(mlp: str, order: str) -> None:
    built = build_session(mlp, plan(attributes={"execution_order": order}))
    assert options_of(built).execution_order == getattr(ort.ExecutionOrder, order)


def test_a_free_dimension_is_fixed_by_its_name(mlp: str) -> None:
    fixed = build_session(mlp, plan(free_dimension_overrides={"batch": 3})).session
    assert [one.shape[0] for one in fixed.get_inputs()] == [3]
    assert [one.shape[0] for one in build_session(mlp, plan()).session.get_inputs()] == ["batch"]


def test_an_entry_of_every_run_is_set(mlp: str) -> None:
    built = build_session(mlp, plan(run_config_entries={"memory.enable_memory_arena_shrinkage": "cpu:0"}))
    assert built.run_options is not None
    assert built.run_options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    assert build_session(mlp, plan()).run_options is None


@pytest.mark.parametrize("bound", [False, True])
def test_runs_without_an_arena_that_shall_shrink_it_are_refused_in_words(mlp: str, bound: bool) -> None:
    def inference(*, arena: bool) -> Inference:
        return prepare(
            build_session(
                mlp,
                plan(
                    attributes={"enable_cpu_mem_arena": arena},
                    run_config_entries={"memory.enable_memory_arena_shrinkage": "cpu:0"},
                ),
            ),
            {"feeds": FEEDS, "use_io_binding": bound},
        )

    inference(arena=True).call()
    without = inference(arena=False)
    with pytest.raises(SpecError, match="names `cpu:0`, which has no arena"), translate_errors():
        without.call()


@pytest.mark.parametrize(("key", "value"), CONFIG_ENTRIES.items())
def test_a_config_entry_that_was_asked_for_is_set(mlp: str, key: str, value: str) -> None:
    built = build_session(mlp, plan(config_entries={key: value}))
    assert options_of(built).get_session_config_entry(key) == value


def test_nothing_is_set_that_was_not_asked_for(mlp: str) -> None:
    got, default = options_of(build_session(mlp, plan())), ort.SessionOptions()
    names = [name for name in dir(default) if not callable(getattr(default, name)) and name[0] != "_"]
    assert "intra_op_num_threads" in names
    assert {name: getattr(got, name) for name in names} == {name: getattr(default, name) for name in names}
    for key in CONFIG_ENTRIES:
        with pytest.raises(RuntimeError, match="does not have configuration"):
            got.get_session_config_entry(key)


def test_disabled_optimizers_do_not_run(tmp_path: Path) -> None:
    model = str(tiny_models.conv(tmp_path / "conv.onnx"))
    saved = [tmp_path / "with.onnx", tmp_path / "without.onnx"]
    for path, names in zip(saved, ([], ["ConvActivationFusion"]), strict=True):
        build_session(
            model,
            plan(
                attributes={
                    "graph_optimization_level": "ORT_ENABLE_EXTENDED",
                    "optimized_model_filepath": str(path),
                },
                disabled_optimizers=names,
            ),
        )
    with_fusion, without = (path.read_bytes() for path in saved)
    assert b"FusedConv" in with_fusion
    assert b"FusedConv" not in without


def test_a_cpu_session_is_what_was_asked_for(mlp: str) -> None:
    built = build_session(mlp, plan())
    assert (built.requested, built.effective, built.fallback) == ([CPU], [CPU], False)
    assert built.fallback_reason == ""
    assert built.creation_s > 0
    assert built.notes == []


@needs_gpu_build
@no_gpu
@pytest.mark.parametrize("chain", [(CUDA,), (CUDA, CPU), (TENSORRT,), (TENSORRT, CUDA, CPU)])
def test_a_provider_that_does_not_load_is_refused_and_the_missing_library_named(
    mlp: str, chain: tuple[str, ...]
) -> None:
    with pytest.raises(
        ProviderError, match=rf"{chain[0]} could not load: lib\w+\.so\.\d+ is missing"
    ) as caught:
        build_session(mlp, plan(*chain))
    assert caught.value.hint.startswith("Install ")


@needs_gpu_build
@no_gpu
@pytest.mark.parametrize("chain", [(CUDA,), (TENSORRT, CUDA), (TENSORRT, OPENVINO, CPU)])
def test_with_allow_fallback_the_session_runs_and_is_marked(mlp: str, chain: tuple[str, ...]) -> None:
    built = build_session(mlp, plan(*chain, allow_fallback=True))
    assert built.requested == list(chain)
    assert built.effective == [CPU]
    assert built.fallback
    for name in set(chain) - {CPU}:
        assert name in built.fallback_reason
    assert built.notes == []


def test_a_provider_this_build_lacks_is_refused_with_the_list_of_those_it_has(mlp: str) -> None:
    with pytest.raises(ProviderError, match=rf"not in this build .* lists .*{CPU}"):
        build_session(mlp, plan(OPENVINO))
    built = build_session(mlp, plan(OPENVINO, allow_fallback=True))
    assert built.fallback
    assert OPENVINO in built.fallback_reason


def test_allow_fallback_alone_marks_nothing(mlp: str) -> None:
    assert not build_session(mlp, plan(allow_fallback=True)).fallback


def test_assignment_is_recorded_when_asked_for(mlp: str) -> None:
    built = build_session(mlp, plan(), record_assignment=True)
    assert {part.ep_name for part in built.session.get_provider_graph_assignment_info()} == {CPU}


def test_the_profiler_writes_under_the_given_prefix(mlp: str, tmp_path: Path) -> None:
    built = build_session(mlp, plan(), profile_prefix=str(tmp_path / "trace"))
    assert Path(built.session.end_profiling()).name.startswith("trace_")


# -- refusals ----------------------------------------------------------------------------------------------

Builder = Callable[[Path], Path]


def without_data(path: Path) -> Path:
    tiny_models.external_data(path)
    (path.parent / "weights.bin").unlink()
    return path


def short_data(path: Path) -> Path:
    tiny_models.external_data(path)
    (path.parent / "weights.bin").write_bytes(b"12")
    return path


def linked_data(path: Path) -> Path:
    tiny_models.external_data(path)
    weights = path.parent / "weights.bin"
    target = weights.rename(path.parent.parent / "elsewhere.bin")
    weights.symlink_to(target)
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def missing(path: Path) -> Path:
    return path


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (tiny_models.not_onnx, "`m.onnx` is not an ONNX model, or it is cut off"),
        (tiny_models.truncated, "`m.onnx` is not an ONNX model, or it is cut off"),
        (empty, "`m.onnx` is empty"),
        (folder, "is a folder"),
        (missing, "no model file"),
        (tiny_models.newer_ir, "IR version 14; this ONNX Runtime reads at most 13"),
        (tiny_models.newer_opset, r"opset 27 of ai\.onnx; this ONNX Runtime supports at most 26"),
        (tiny_models.unknown_operator, "operator `Frobnicate`, which opset 20 does not have"),
        (tiny_models.unimplemented, "no kernel for Sin of opset 22 .* node `sin`"),
        (without_data, "external data file `weights.bin` is missing"),
        (short_data, "cut off: 16384 bytes are needed, the file has 2"),
        (linked_data, "`weights.bin` lies outside"),
        (tiny_models.external_data_outside, r"`\.\./weights.bin` lies outside the model's folder"),
    ],
)
def test_a_model_onnx_runtime_refuses_is_refused_in_words(
    tmp_path: Path, build: Builder, message: str
) -> None:
    (tmp_path / "inner").mkdir()
    path = build(tmp_path / "inner" / "m.onnx")
    with pytest.raises(ModelError, match=message) as caught:
        build_session(str(path), plan())
    assert caught.value.hint
    assert "onnxruntime_src" not in caught.value.message
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attributes": {"no_such_thing": 1}}, "no setting `no_such_thing`"),
        ({"attributes": {"graph_optimization_level": "ORT_NOPE"}}, "'ORT_NOPE'"),
        ({"attributes": {"execution_order": "MEMORY_EFFICIENT"}}, "training builds"),
        ({"attributes": {"intra_op_num_threads": "x"}}, "`intra_op_num_threads` that takes 'x'"),
        ({"config_entries": {"session.dynamic_block_base": "abc"}}, "`session.dynamic_block_base` = 'abc'"),
        ({"config_entries": {"session.x": "a" * 9000}}, "longer than maximum"),
        ({"config_entries": {"session.disable_cpu_ep_fallback": "1"}}, "would run on the CPU"),
    ],
)
def test_a_setting_onnx_runtime_refuses_is_refused_in_words(mlp: str, changes: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        build_session(mlp, plan(**changes))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
@pytest.mark.parametrize(
    ("threads", "text", "message"),
    [
        (4, "1;2", "affinities: 2, thread_pool_size: 4"),
        (2, "abc", r"settings: Processor id must consist of only digits: abc\.$"),
        (2, "0", r"settings: Processor id must start from 1: 0\.$"),
        (2, "4000", "names a CPU that this process may not use: '4000'"),
    ],
)
def test_affinities_that_do_not_take_effect_are_refused(
    mlp: str, threads: int, text: str, message: str
) -> None:
    settings = plan(
        attributes={"intra_op_num_threads": threads},
        config_entries={"session.intra_op_thread_affinities": text},
    )
    with pytest.raises(SpecError, match=message):
        build_session(mlp, settings)


def test_what_onnx_runtime_logs_still_reaches_the_log(mlp: str, capfd: pytest.CaptureFixture[str]) -> None:
    if CUDA not in ort.get_available_providers():
        pytest.skip("this build logs nothing here")
    build_session(mlp, plan(CUDA, allow_fallback=True))
    captured = capfd.readouterr()
    assert captured.out == ""
    if not Path("/dev/nvidiactl").exists():
        assert "cannot open shared object file" in captured.err


# -- the words themselves ----------------------------------------------------------------------------------


def test_an_unknown_provider_option_is_a_wrong_setting_and_not_a_missing_provider() -> None:
    text = '/onnxruntime_src/x/provider_options.cc:12 void f(int) Unknown provider option: "nope".\n'
    assert ort_errors.blamed_provider(text, [CUDA]) is None
    error = ort_errors.creation_error("RuntimeError", text, model="m.onnx")
    assert isinstance(error, SpecError)
    assert 'provider option: "nope"' in error.message


def test_a_graph_that_cannot_be_captured_is_a_wrong_setting_and_not_a_missing_provider() -> None:
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : This session cannot use the graph capture feature as requested by "
        "the user as all compute graph nodes have not been partitioned to the CUDAExecutionProvider"
    )
    assert ort_errors.blamed_provider(text, [CUDA]) is None
    error = ort_errors.creation_error("Fail", text, model="m.onnx")
    assert isinstance(error, SpecError)
    assert "enable_cuda_graph" in error.message
    assert CUDA in error.message


def test_a_gpu_that_fails_is_blamed_on_its_provider() -> None:
    text = "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=h"
    assert ort_errors.blamed_provider(text, [TENSORRT, CUDA]) == CUDA
    reason = ort_errors.load_failure(CUDA, text)
    assert ort_errors.remedy(CUDA, reason).startswith("Install the NVIDIA driver")


@pytest.mark.parametrize(
    ("library", "start"),
    [
        ("libcuda.so.1", "Install the NVIDIA driver"),
        ("libcublasLt.so.13", 'Install the CUDA and cuDNN libraries with `pip install "onnxruntime-gpu[cuda'),
        ("libcudnn.so.9", "Install the CUDA and cuDNN libraries"),
        ("libnvinfer.so.10", "Install TensorRT 10"),
    ],
)
def test_the_remedy_fits_the_library(library: str, start: str) -> None:
    provider = TENSORRT if "nvinfer" in library else CUDA
    assert ort_errors.remedy(provider, f"{provider} could not load: {library} is missing.").startswith(start)


def test_how_much_memory_was_asked_for_is_said() -> None:
    error = ort_errors.run_error("Failed to allocate memory for requested buffer of size 3221225472")
    assert "when it requested 3.0 GiB at once" in error.message


def test_an_output_that_grows_under_io_binding_names_it() -> None:
    error = ort_errors.run_error(
        "Error in execution: Non-zero status code returned while running NonZero node. Name:'n' "
        "Status Message: /onnxruntime_src/op_kernel.cc:87 [ONNXRuntimeError] : 2 : The output OrtValue "
        "provided for output 'boxes' of node 'n' (NonZero) has shape {1,4} but the computed output shape for "
        "this run is {1,2}. When calling Run() with pre-allocated output OrtValues, supply unallocated ones."
    )
    assert isinstance(error, SpecError)
    assert "`boxes` has shape {1,4} in one run and {1,2} in another" in error.message
    assert "--no-io-binding" in error.hint


@pytest.mark.parametrize("text", ["CUDA failure 2: out of memory ; GPU=0", "std::bad_alloc"])
def test_running_out_of_memory_is_recognised(text: str) -> None:
    assert isinstance(ort_errors.run_error(text), WorkerError)
    assert isinstance(ort_errors.creation_error("RuntimeError", text, model="m.onnx"), WorkerError)
