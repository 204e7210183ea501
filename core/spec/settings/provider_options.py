"""Execution providers by name, and the typed options of those whose options are known. Data only.

Source: the option parsers of ONNX Runtime 1.31.1 (names, kinds), its documentation (defaults, effects).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core.spec.setting_type import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOption(Setting):
    """One typed option of an execution provider. Its values are texts; `default` is the provider's own."""

    native_code: bool = False  # loads a library or takes an address: refused unless `expert` is on


def _options(kind: Literal["bool", "text"], *rows: tuple[str, str, str]) -> list[ProviderOption]:
    return [ProviderOption(name=name, kind=kind, default=default, help=text) for name, default, text in rows]


def _numbers(*rows: tuple[str, str, int, int, str]) -> list[ProviderOption]:
    return [
        ProviderOption(name=name, kind="int", default=default, low=low, high=high, help=text)
        for name, default, low, high, text in rows
    ]


_INT = 2**31 - 1
_SIZE = 2**64 - 1


_CUDA_OPTIONS = (
    *_numbers(
        ("device_id", "0", 0, _INT, "Index of the GPU."),
        ("gpu_mem_limit", str(_SIZE), 0, _SIZE, "Limit of the arena in bytes, without workspaces."),
        ("sdpa_kernel", "0", 0, 1023, "Bit mask of attention kernels; 0: automatic."),
        (
            "tunable_op_max_tuning_duration_ms",
            "0",
            0,
            _INT,
            "Tuning time per operator in milliseconds; 0: no limit.",
        ),
        ("external_data_loader_reading_threads", "4", 0, 64, "Threads that read external weights."),
    ),
    *_options(
        "bool",
        ("cudnn_conv_use_max_workspace", "1", "Let cuDNN use its largest workspace."),
        ("cudnn_conv1d_pad_to_nc1d", "0", "Pad 1-D convolutions to [N, C, 1, D] instead of [N, C, D, 1]."),
        ("do_copy_in_default_stream", "1", "Copy on the compute stream; 0: on a separate stream."),
        ("enable_cuda_graph", "0", "Capture and replay a CUDA graph; needs fixed shapes and I/O binding."),
        ("prefer_nhwc", "0", "Run convolutions in NHWC layout, for tensor cores."),
        ("fuse_conv_bias", "0", "Fuse the bias into convolutions; slower first inference."),
        ("use_tf32", "1", "Use TF32 for FP32 products: faster, less exact. 0: true FP32."),
        ("enable_skip_layer_norm_strict_mode", "0", "Accumulate in FP32 in SkipLayerNormalization."),
        ("use_ep_level_unified_stream", "0", "Use one stream for all concurrent inferences."),
        ("tunable_op_enable", "0", "Use TunableOp kernels."),
        ("tunable_op_tuning_enable", "0", "Tune TunableOp kernels during inference."),
        ("enable_cudnn", "1", "Load cuDNN; 0: convolutions run on another provider."),
        ("has_user_compute_stream", "0", "Set by ORT when `user_compute_stream` is given."),
    ),
    ProviderOption(
        name="arena_extend_strategy",
        kind="choice",
        default="kNextPowerOfTwo",
        choices=("kNextPowerOfTwo", "kSameAsRequested"),
        help="How the arena grows; kSameAsRequested wastes less memory and allocates more often.",
    ),
    ProviderOption(
        name="cudnn_conv_algo_search",
        kind="choice",
        default="EXHAUSTIVE",
        choices=("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
        help="How cuDNN chooses a convolution algorithm; EXHAUSTIVE times all of them at the first "
        "inference.",
    ),
    *(
        ProviderOption(name=name, kind="text", default="0", help=text, native_code=True)
        for name, text in (
            ("user_compute_stream", "Address of a CUDA stream of this process."),
            ("gpu_external_alloc", "Address of an allocator function."),
            ("gpu_external_free", "Address of a deallocator function."),
            ("gpu_external_empty_cache", "Address of a cache-emptying function."),
        )
    ),
)

_TENSORRT_OPTIONS = (
    *_numbers(
        ("device_id", "0", 0, _INT, "Index of the GPU."),
        ("trt_max_partition_iterations", "1000", 1, _INT, "Most attempts at partitioning the graph."),
        ("trt_min_subgraph_size", "1", 1, _INT, "Least number of nodes of a TensorRT subgraph."),
        (
            "trt_max_workspace_size",
            "0",
            0,
            _SIZE,
            "Limit of the workspace in bytes; 0: all of the GPU's memory.",
        ),
        ("trt_dla_core", "0", 0, _INT, "Index of the DLA core."),
        (
            "trt_builder_optimization_level",
            "3",
            0,
            5,
            "Higher levels build longer and may give faster engines.",
        ),
        ("trt_auxiliary_streams", "-1", -1, _INT, "Number of auxiliary streams; -1: automatic."),
        ("trt_ep_context_embed_mode", "0", 0, 1, "1: embed the engine in the context model."),
    ),
    *_options(
        "bool",
        ("trt_fp16_enable", "False", "Allow FP16 kernels."),
        ("trt_bf16_enable", "False", "Allow BF16 kernels."),
        ("trt_int8_enable", "False", "Allow INT8 kernels."),
        ("trt_int8_use_native_calibration_table", "False", "Use TensorRT's own calibration table."),
        ("trt_dla_enable", "False", "Use the DLA."),
        ("trt_dump_subgraphs", "False", "Write the subgraphs to files in the working folder."),
        ("trt_engine_cache_enable", "False", "Keep built engines on disk."),
        ("trt_weight_stripped_engine_enable", "False", "Build engines without weights."),
        ("trt_engine_decryption_enable", "False", "Decrypt cached engines."),
        ("trt_force_sequential_engine_build", "False", "Build engines one after another."),
        ("trt_context_memory_sharing_enable", "False", "Share context memory among subgraphs."),
        ("trt_layer_norm_fp32_fallback", "False", "Run LayerNorm in FP32 when FP16 is on."),
        ("trt_timing_cache_enable", "False", "Keep kernel timings on disk, for faster builds."),
        ("trt_force_timing_cache", "False", "Use a timing cache that another GPU model made."),
        ("trt_detailed_build_log", "False", "Log each step of the build."),
        ("trt_build_heuristics_enable", "False", "Use heuristics for a faster build."),
        ("trt_sparsity_enable", "False", "Use structured sparsity in the weights."),
        ("trt_cuda_graph_enable", "False", "Capture and replay a CUDA graph."),
        ("trt_dump_ep_context_model", "False", "Write a context model that holds the engine."),
        ("trt_engine_hw_compatible", "False", "Build engines for Ampere and newer GPUs, not this one only."),
    ),
    *_options(
        "text",
        ("trt_int8_calibration_table_name", "", "File name of the INT8 calibration table."),
        ("trt_engine_cache_path", "", "Folder of the engine cache."),
        ("trt_engine_cache_prefix", "", "Prefix of the files in the engine cache."),
        ("trt_onnx_model_folder_path", "", "Folder of the model of a weight-stripped engine."),
        ("trt_timing_cache_path", "", "Folder of the timing cache."),
        ("trt_tactic_sources", "", "Tactic sources to add (+) or remove (-)."),
        (
            "trt_profile_min_shapes",
            "",
            "Smallest input shapes, `x:1x3x224x224`; set all three profiles or none.",
        ),
        ("trt_profile_max_shapes", "", "Largest input shapes."),
        ("trt_profile_opt_shapes", "", "Input shapes to optimize for."),
        ("trt_ep_context_file_path", "", "Path of the context model."),
        ("trt_op_types_to_exclude", "", "Operator types that TensorRT must not run."),
        ("trt_preview_features", "", "TensorRT preview features to turn on."),
    ),
    *(
        ProviderOption(name=name, kind="text", default=default, help=text, native_code=True)
        for name, default, text in (
            ("user_compute_stream", "0", "Address of a CUDA stream of this process."),
            ("trt_extra_plugin_lib_paths", "", "TensorRT plug-in libraries to load."),
            ("trt_engine_decryption_lib_path", "", "Library that decrypts engines."),
        )
    ),
)

PROVIDER_OPTIONS: Mapping[str, tuple[ProviderOption, ...]] = {
    # The CPU provider parses none: ORT 1.31 accepts any key here and drops it. Its settings are attributes.
    "CPUExecutionProvider": (),
    "CUDAExecutionProvider": _CUDA_OPTIONS,
    "TensorrtExecutionProvider": _TENSORRT_OPTIONS,
}

# Every provider name that ONNX Runtime 1.31 can be built with (`onnxruntime.get_all_providers()`), so that
# a misspelt name is distinguished from a provider that this build lacks.
KNOWN_PROVIDERS = (
    "NvTensorRTRTXExecutionProvider",
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "ACLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
    "CPUExecutionProvider",
)

# Options that a search varies; the others select a device, limit memory or set caches.
_SEARCHED_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "CUDAExecutionProvider": (
        *("cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "use_tf32", "prefer_nhwc"),
        *("fuse_conv_bias", "enable_cuda_graph", "arena_extend_strategy"),
    ),
    "TensorrtExecutionProvider": ("trt_fp16_enable", "trt_cuda_graph_enable"),
}
NEEDS_BINDING = ("enable_cuda_graph", "trt_cuda_graph_enable")


def searched_options(provider: str) -> list[ProviderOption]:
    """Return the options of a provider that a search varies; none of one whose options are not known."""
    tried = _SEARCHED_OPTIONS.get(provider, ())
    return [one for one in PROVIDER_OPTIONS.get(provider, ()) if one.name in tried]
