"""Execution providers by name, and the typed options of those whose options are known. Data only.

Source: the option parsers of ONNX Runtime 1.31.1 (names, kinds), its documentation (defaults, effects).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core.spec.setting import Setting


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
        ("device_id", "0", 0, _INT, "Which GPU."),
        ("gpu_mem_limit", str(_SIZE), 0, _SIZE, "Cap of the arena in bytes; workspaces come on top."),
        ("sdpa_kernel", "0", 0, 1023, "Bit mask of attention kernels; 0 chooses automatically."),
        (
            "tunable_op_max_tuning_duration_ms",
            "0",
            0,
            _INT,
            "Milliseconds per operator; 0: no limit.",
        ),
        ("external_data_loader_reading_threads", "4", 0, 64, "Threads that read external weights."),
    ),
    *_options(
        "bool",
        ("cudnn_conv_use_max_workspace", "1", "Let cuDNN use all the workspace it asks for."),
        ("cudnn_conv1d_pad_to_nc1d", "0", "How a 1-D convolution is padded to 2-D."),
        ("do_copy_in_default_stream", "1", "Copy on the compute stream; 0 uses a stream of its own."),
        ("enable_cuda_graph", "0", "Capture the run once and replay it; fixed shapes and I/O binding only."),
        ("prefer_nhwc", "0", "Convolutions in NHWC layout, for tensor cores."),
        ("fuse_conv_bias", "0", "cuDNN fuses bias into the convolution; slower first run."),
        ("use_tf32", "1", "TF32 for FP32 products: faster, less exact. 0 gives true FP32."),
        ("enable_skip_layer_norm_strict_mode", "0", "FP32 accumulation in SkipLayerNormalization."),
        ("use_ep_level_unified_stream", "0", "One stream for all concurrent runs."),
        ("tunable_op_enable", "0", "Use TunableOp."),
        ("tunable_op_tuning_enable", "0", "Tune TunableOp kernels while running."),
        ("enable_cudnn", "1", "0: never load cuDNN; convolutions then run elsewhere."),
        ("has_user_compute_stream", "0", "Set by ORT when `user_compute_stream` is given."),
    ),
    ProviderOption(
        name="arena_extend_strategy",
        kind="choice",
        default="kNextPowerOfTwo",
        choices=("kNextPowerOfTwo", "kSameAsRequested"),
        help="How the arena grows; kSameAsRequested wastes less and allocates more often.",
    ),
    ProviderOption(
        name="cudnn_conv_algo_search",
        kind="choice",
        default="EXHAUSTIVE",
        choices=("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
        help="How cuDNN picks a convolution algorithm.",
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
        ("device_id", "0", 0, _INT, "Which GPU."),
        ("trt_max_partition_iterations", "1000", 1, _INT, "Attempts at partitioning the graph."),
        ("trt_min_subgraph_size", "1", 1, _INT, "Nodes a subgraph needs before TensorRT takes it."),
        ("trt_max_workspace_size", "0", 0, _SIZE, "Workspace in bytes; 0: all the GPU's memory."),
        ("trt_dla_core", "0", 0, _INT, "Which DLA core."),
        ("trt_builder_optimization_level", "3", 0, 5, "Higher: longer builds, faster engines."),
        ("trt_auxiliary_streams", "-1", -1, _INT, "Auxiliary streams; -1: TensorRT chooses."),
        ("trt_ep_context_embed_mode", "0", 0, 1, "1 embeds the engine in the context model."),
    ),
    *_options(
        "bool",
        ("trt_fp16_enable", "False", "Allow FP16 kernels."),
        ("trt_bf16_enable", "False", "Allow BF16 kernels."),
        ("trt_int8_enable", "False", "Allow INT8 kernels."),
        ("trt_int8_use_native_calibration_table", "False", "Read TensorRT's own calibration table."),
        ("trt_dla_enable", "False", "Use the DLA."),
        ("trt_dump_subgraphs", "False", "Write the subgraphs to files in the working folder."),
        ("trt_engine_cache_enable", "False", "Keep built engines on disk."),
        ("trt_weight_stripped_engine_enable", "False", "Engines without weights."),
        ("trt_engine_decryption_enable", "False", "Decrypt cached engines."),
        ("trt_force_sequential_engine_build", "False", "Build engines one after another."),
        ("trt_context_memory_sharing_enable", "False", "Share context memory among subgraphs."),
        ("trt_layer_norm_fp32_fallback", "False", "LayerNorm in FP32 when FP16 is on."),
        ("trt_timing_cache_enable", "False", "Keep kernel timings on disk: faster builds."),
        ("trt_force_timing_cache", "False", "Use a timing cache of another GPU of the same kind."),
        ("trt_detailed_build_log", "False", "Log each step of the build."),
        ("trt_build_heuristics_enable", "False", "Build by heuristics: faster build."),
        ("trt_sparsity_enable", "False", "Use structured sparsity in the weights."),
        ("trt_cuda_graph_enable", "False", "Capture and replay a CUDA graph."),
        ("trt_dump_ep_context_model", "False", "Write a model that holds the engine."),
        ("trt_engine_hw_compatible", "False", "Engines for Ampere and newer instead of this GPU only."),
    ),
    *_options(
        "text",
        ("trt_int8_calibration_table_name", "", "File name of the INT8 calibration table."),
        ("trt_engine_cache_path", "", "Folder of the engine cache."),
        ("trt_engine_cache_prefix", "", "Prefix of the files in the engine cache."),
        ("trt_onnx_model_folder_path", "", "Folder of the model a stripped engine belongs to."),
        ("trt_timing_cache_path", "", "Folder of the timing cache."),
        ("trt_tactic_sources", "", "Tactic sources to add (+) or remove (-)."),
        ("trt_profile_min_shapes", "", "Smallest shapes, `x:1x3x224x224`; all three profiles or none."),
        ("trt_profile_max_shapes", "", "Largest shapes."),
        ("trt_profile_opt_shapes", "", "Shapes to optimize for."),
        ("trt_ep_context_file_path", "", "File of the context model."),
        ("trt_op_types_to_exclude", "", "Operator types TensorRT must not take."),
        ("trt_preview_features", "", "TensorRT preview features to turn on."),
    ),
    *(
        ProviderOption(name=name, kind="text", default=default, help=text, native_code=True)
        for name, default, text in (
            ("user_compute_stream", "0", "Address of a CUDA stream of this process."),
            ("trt_extra_plugin_lib_paths", "", "Libraries of TensorRT plug-ins to load."),
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
# a misspelt one is told from one that this build lacks.
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

# What a search varies of a provider that loads; the others say which device, cap memory or cache.
_WORTH_TRYING: Mapping[str, tuple[str, ...]] = {
    "CUDAExecutionProvider": (
        *("cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "use_tf32", "prefer_nhwc"),
        *("fuse_conv_bias", "enable_cuda_graph", "arena_extend_strategy"),
    ),
    "TensorrtExecutionProvider": ("trt_fp16_enable", "trt_cuda_graph_enable"),
}
NEEDS_BINDING = ("enable_cuda_graph", "trt_cuda_graph_enable")


def worth_options(provider: str) -> list[ProviderOption]:
    """Return the options of a provider that a search varies; none of one whose options are not known."""
    tried = _WORTH_TRYING.get(provider, ())
    return [one for one in PROVIDER_OPTIONS.get(provider, ()) if one.name in tried]
