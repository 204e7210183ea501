"""One table of every setting: what it is called, what it accepts, when it matters, what it does.

Widgets, command-line options, YAML validation and help text are all drawn from `KNOBS`; a setting that is
not in this table does not exist in ORTune. Names are ONNX Runtime's own, verbatim. Everything here is data
and pure functions; nothing imports onnxruntime. Source of names, defaults and effects: ONNX Runtime 1.31
(`SessionOptions`, `onnxruntime_session_options_config_keys.h`, the providers' option parsers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.errors import SpecError, nearest

Target = Literal["attribute", "config_entry", "session", "model", "workload", "protocol"]
Kind = Literal["bool", "int", "choice", "text", "list", "mapping"]
Value = bool | int | float | str | tuple[str, ...] | dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting.

    `default` is what ONNX Runtime (or ORTune, for workload and protocol) does when nothing is asked, for
    display; a session setting that is not asked for is None and is never passed on.
    """

    name: str
    label: str
    group: Literal["Graph", "Threads", "Memory", "Providers", "Model", "Workload", "Protocol"]
    target: Target
    kind: Kind
    default: Value | None
    help: str
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    advanced: bool = False

    @property
    def flag(self) -> str:
        """The option's name on the command line."""
        return "--" + self.name.replace("session.", "").replace(".", "-").replace("_", "-")


GRAPH_OPTIMIZATION_LEVELS = (
    "ORT_DISABLE_ALL",
    "ORT_ENABLE_BASIC",
    "ORT_ENABLE_EXTENDED",
    "ORT_ENABLE_LAYOUT",
    "ORT_ENABLE_ALL",
)
EXECUTION_MODES = ("ORT_SEQUENTIAL", "ORT_PARALLEL")
MAX_THREADS = 1024  # far above any machine; a slip of the keyboard must not start a million threads
MAX_BATCH = 1 << 20
MAX_RUNS = 1_000_000

KNOBS: tuple[Knob, ...] = (
    Knob(
        name="providers",
        label="Execution providers",
        group="Providers",
        target="session",
        kind="list",
        default=("CPUExecutionProvider",),
        help="Who computes, in order of preference: each node goes to the first provider of the chain that "
        "can run it, and what none takes goes to the CPU. Without a choice ONNX Runtime uses the CPU, also "
        "in the GPU build.",
    ),
    Knob(
        name="allow_fallback",
        label="Allow fallback",
        group="Providers",
        target="session",
        kind="bool",
        default=False,
        help="Off: a provider that does not load fails the trial. On: the trial runs on what did load and is "
        "marked `fallback` everywhere; it is never shown as the provider that was asked for.",
    ),
    Knob(
        name="graph_optimization_level",
        label="Graph optimization level",
        group="Graph",
        target="attribute",
        kind="choice",
        default="ORT_ENABLE_ALL",
        choices=GRAPH_OPTIMIZATION_LEVELS,
        help="How far the graph is rewritten before it runs. BASIC folds constants, EXTENDED adds fusions, "
        "LAYOUT the CPU's NCHWc layout, ALL everything. ALL is not always the fastest: measure.",
    ),
    Knob(
        name="disabled_optimizers",
        label="Disabled optimizers",
        group="Graph",
        target="session",
        kind="list",
        default=(),
        help="Names of single graph transformers to leave out, for example `NchwcTransformer` or "
        "`ConvActivationFusion`. For finding the one that hurts.",
        advanced=True,
    ),
    Knob(
        name="execution_mode",
        label="Execution mode",
        group="Graph",
        target="attribute",
        kind="choice",
        default="ORT_SEQUENTIAL",
        choices=EXECUTION_MODES,
        help="ORT_PARALLEL runs the graph through the inter-op pool. Without a node partition file it gives "
        "no parallel branches on the CPU and costs time; ORT_SEQUENTIAL is right almost always.",
    ),
    Knob(
        name="intra_op_num_threads",
        label="Intra-op threads",
        group="Threads",
        target="attribute",
        kind="int",
        default=0,
        low=0,
        high=MAX_THREADS,
        help="Threads inside one operator, the caller included. 0: ONNX Runtime decides, one per physical "
        "core, pinned, blind to container limits. 1: no pool at all.",
    ),
    Knob(
        name="inter_op_num_threads",
        label="Inter-op threads",
        group="Threads",
        target="attribute",
        kind="int",
        default=0,
        low=0,
        high=MAX_THREADS,
        help="Threads across operators; used by ORT_PARALLEL only.",
    ),
    Knob(
        name="session.intra_op.allow_spinning",
        label="Intra-op spinning",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=True,
        help="Idle intra-op threads busy-wait for the next run. Lowest latency for back-to-back runs; burns "
        "tens of milliseconds of CPU after each run and starves neighbours.",
    ),
    Knob(
        name="session.inter_op.allow_spinning",
        label="Inter-op spinning",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=True,
        help="The same for the inter-op pool; it exists with ORT_PARALLEL only.",
        advanced=True,
    ),
    Knob(
        name="session.dynamic_block_base",
        label="Dynamic block base",
        group="Threads",
        target="config_entry",
        kind="int",
        default=0,
        low=0,
        high=1024,
        help="Above 0: work is split among threads in shrinking blocks, which can lower the variance. "
        "0: even blocks. 4 is the usual value to try.",
        advanced=True,
    ),
    Knob(
        name="session.intra_op_thread_affinities",
        label="Intra-op thread affinities",
        group="Threads",
        target="config_entry",
        kind="text",
        default="",
        help="Pins the pool's threads: `;` between threads, `,` or `-` between logical CPUs, counted from 1; "
        "one entry per thread but the caller. Example for 4 threads: `2;3;4`.",
        advanced=True,
    ),
    Knob(
        name="session.set_denormal_as_zero",
        label="Denormals as zero",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=False,
        help="Flushes denormal numbers to zero. Faster on CPUs that are slow with denormals; changes results "
        "by less than 1e-38.",
        advanced=True,
    ),
    Knob(
        name="enable_cpu_mem_arena",
        label="CPU memory arena",
        group="Memory",
        target="attribute",
        kind="bool",
        default=True,
        help="Keeps freed CPU memory for the next run. Off: less memory held, slower allocation.",
    ),
    Knob(
        name="enable_mem_pattern",
        label="Memory pattern",
        group="Memory",
        target="attribute",
        kind="bool",
        default=True,
        help="After the first run of a shape, all buffers come in one block. No use when every run has a new "
        "shape.",
    ),
    Knob(
        name="enable_mem_reuse",
        label="Memory reuse",
        group="Memory",
        target="attribute",
        kind="bool",
        default=True,
        help="Lets intermediate results share buffers. Turn off to debug, not to be faster.",
        advanced=True,
    ),
    Knob(
        name="session_config_entries",
        label="Session config entries",
        group="Graph",
        target="session",
        kind="mapping",
        default={},
        help="Any other `session.*`, `optimization.*`, `ep.*` or `mlas.*` entry, one `key=value` per line. "
        "ONNX Runtime ignores unknown keys silently, so only known ones are accepted unless `expert` is on.",
        advanced=True,
    ),
    Knob(
        name="expert",
        label="Expert: unknown config entries",
        group="Graph",
        target="session",
        kind="bool",
        default=False,
        help="Accept session config entries that this table does not know. ONNX Runtime will not say when "
        "a key is misspelt.",
        advanced=True,
    ),
    Knob(
        name="precision",
        label="Precision",
        group="Model",
        target="model",
        kind="choice",
        default="fp32",
        choices=("fp32", "fp16"),
        help="fp32: the model as it is. fp16: a copy made by ONNX Runtime's own converter. On an x86 CPU the "
        "copy is computed in FP32 behind inserted Casts; the result says so.",
    ),
    Knob(
        name="keep_io_types",
        label="Keep input and output types",
        group="Model",
        target="model",
        kind="bool",
        default=True,
        help="fp16 only. On: inputs and outputs stay FP32, with a Cast at each end. Off: they become FP16.",
        advanced=True,
    ),
    Knob(
        name="batch_size",
        label="Batch size",
        group="Workload",
        target="workload",
        kind="int",
        default=1,
        low=1,
        high=MAX_BATCH,
        help="Rows fed in one run. Counted on the feeds after the run, never taken on trust.",
    ),
    Knob(
        name="dims",
        label="Free dimensions",
        group="Workload",
        target="workload",
        kind="mapping",
        default={},
        help="Sizes of the model's other free dimensions, such as `sequence=128`. A dimension "
        "without a name, or whose placeholder is used twice, is `<input>:<axis>`.",
    ),
    Knob(
        name="use_io_binding",
        label="I/O binding",
        group="Workload",
        target="workload",
        kind="bool",
        default=False,
        help="Inputs are bound once and outputs stay on the device: what a careful GPU user does. Off: plain "
        "`run` with numpy in and out, copies included. On the CPU it saves a few microseconds a call.",
    ),
    Knob(
        name="streams",
        label="Streams",
        group="Workload",
        target="workload",
        kind="int",
        default=1,
        low=1,
        high=1,
        help="Concurrent callers. One for now: a single stream measures latency, not a loaded server.",
        advanced=True,
    ),
    Knob(
        name="feeds",
        label="Feeds",
        group="Workload",
        target="workload",
        kind="text",
        default="random",
        help="What is fed: `random` (seeded, in a range that suits each input), the path of an `.npz` with "
        "one array per input, or an image or a folder of images.",
    ),
    Knob(
        name="feed_values",
        label="Fixed values",
        group="Workload",
        target="workload",
        kind="mapping",
        default={},
        help="Fixed values per input, such as `sr=16000`; broadcast to the input's shape.",
    ),
    Knob(
        name="image_mean",
        label="Image mean",
        group="Workload",
        target="workload",
        kind="list",
        default=(),
        help="Subtracted from each channel of an image feed, on a scale of 0 to 1. Empty: ImageNet's values "
        "for 3 channels, nothing for 1.",
        advanced=True,
    ),
    Knob(
        name="image_std",
        label="Image deviation",
        group="Workload",
        target="workload",
        kind="list",
        default=(),
        help="Each channel is divided by this after the mean is subtracted. Empty: ImageNet's values for "
        "3 channels, nothing for 1.",
        advanced=True,
    ),
    Knob(
        name="seed",
        label="Seed",
        group="Workload",
        target="workload",
        kind="int",
        default=0,
        low=0,
        high=2**31 - 1,
        help="Seed of the random feeds. The same seed gives the same bytes.",
        advanced=True,
    ),
    Knob(
        name="warmup_runs",
        label="Warm-up runs",
        group="Protocol",
        target="protocol",
        kind="int",
        default=10,
        low=0,
        high=MAX_RUNS,
        help="Runs before the timed ones, kept apart. The first run of a shape is 2 to 6 times slower.",
    ),
    Knob(
        name="runs",
        label="Runs",
        group="Protocol",
        target="protocol",
        kind="int",
        default=100,
        low=1,
        high=MAX_RUNS,
        help="Timed runs. Few runs cannot carry a high percentile: p95 needs 72, p99 needs 368.",
    ),
    Knob(
        name="timeout_s",
        label="Time-out (s)",
        group="Protocol",
        target="protocol",
        kind="int",
        default=600,
        low=1,
        high=86_400,
        help="A trial that takes longer is stopped and stored as failed.",
        advanced=True,
    ),
)

_BY_NAME = {knob.name: knob for knob in KNOBS}


def knob(name: str) -> Knob:
    """Return the setting called `name`.

    Raises:
        SpecError: no setting has that name.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise SpecError(
            f"Unknown setting `{name}`.{nearest(name, _BY_NAME)}",
            hint="Use a name from ORTune's settings table.",
        ) from None


# --- session config entries that ONNX Runtime 1.31 knows, beyond those with a knob of their own --------

_FLAG = ("0", "1")
KNOWN_CONFIG_ENTRIES: Mapping[str, tuple[str, ...]] = {
    # key -> accepted values; an empty tuple: any text (numbers, paths, lists)
    "session.intra_op.spin_duration_us": (),
    "session.inter_op.spin_duration_us": (),
    "session.intra_op.spin_backoff_max": (),
    "session.inter_op.spin_backoff_max": (),
    "session.force_spinning_stop": _FLAG,
    "session.disable_prepacking": _FLAG,
    "session.prepack.enable_parallel": _FLAG,
    "session.save_external_prepacked_constant_initializers": _FLAG,
    "session.use_env_allocators": _FLAG,
    "session.use_device_allocator_for_initializers": _FLAG,
    "session.disable_cpu_ep_fallback": _FLAG,
    "session.record_ep_graph_assignment_info": _FLAG,
    "session.disable_quant_qdq": _FLAG,
    "session.disable_qdq_constant_folding": _FLAG,
    "session.disable_double_qdq_remover": _FLAG,
    "session.enable_quant_qdq_cleanup": _FLAG,
    "session.qdqisint8allowed": _FLAG,
    "session.x64quantprecision": _FLAG,
    "session.enable_dq_matmulnbits_fusion": _FLAG,
    "session.qdq_matmulnbits_accuracy_level": (),
    "session.qdq_matmulnbits_block_size": (),
    "optimization.disable_specified_optimizers": (),
    "optimization.enable_gelu_approximation": _FLAG,
    "optimization.enable_cast_chain_elimination": _FLAG,
    "optimization.constant_folding_max_output_size_in_bytes": (),
    "optimization.minimal_build_optimizations": ("", "save", "apply"),
    "session.graph_optimizations_loop_level": ("0", "1", "2"),
    "session.disable_aot_function_inlining": _FLAG,
    "session.function_expansion_node_limit": (),
    "session.function_expansion_byte_limit": (),
    "session.strict_shape_type_inference": _FLAG,
    "session.allow_released_opsets_only": _FLAG,
    "session.load_model_format": ("ONNX", "ORT"),
    "session.save_model_format": ("ONNX", "ORT"),
    "session.use_ort_model_bytes_directly": _FLAG,
    "session.use_ort_model_bytes_for_initializers": _FLAG,
    "session.use_memory_mapped_ort_model": _FLAG,
    "session.resource_cuda_partitioning_settings": (),
    "session.layer_assignment_settings": (),
    "session.name_based_layer_assignment": (),
    "session.node_partition_config_file": (),
    "session.disable_model_compile": _FLAG,
    "session.fail_on_suboptimal_compiled_model": _FLAG,
    "ep.context_enable": _FLAG,
    "ep.context_file_path": (),
    "ep.context_embed_mode": _FLAG,
    "mlas.use_lut_gemm": _FLAG,
    "mlas.disable_kleidiai": _FLAG,
    "mlas.kleidiai.conv_igemm_max_work": (),
    "mlas.enable_gemm_fastmath_arm64_bfloat16": _FLAG,
    "ep.cuda.fpa_intb_gemm": (),
    "ep.cuda.fpa_intb_profile_m": (),
    "ep.cuda.enable_gemm_auto_tune": _FLAG,
}

# Keys that ONNX Runtime stores and ignores when they are set from Python: the attribute is what counts.
MIRROR_CONFIG_ENTRIES: Mapping[str, str] = {
    f"session.{name}": name
    for name in (
        "intra_op_num_threads",
        "inter_op_num_threads",
        "graph_optimization_level",
        "execution_mode",
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_profiling",
        "optimized_model_filepath",
        "use_per_session_threads",
        "use_deterministic_compute",
    )
}


def check_config_entry(key: str, value: str, *, expert: bool) -> None:
    """Refuse a session config entry that ONNX Runtime would silently ignore or choke on.

    Raises:
        SpecError: unknown key (unless `expert`), a key without effect from Python, or a bad value.
    """
    if key in MIRROR_CONFIG_ENTRIES:
        raise SpecError(
            f"`{key}` has no effect as a session config entry.",
            hint=f"Set `{MIRROR_CONFIG_ENTRIES[key]}` instead, if ORTune offers it.",
        )
    if key in _BY_NAME:
        _check_knob_text(_BY_NAME[key], value)
    elif key in KNOWN_CONFIG_ENTRIES:
        accepted = KNOWN_CONFIG_ENTRIES[key]
        if accepted and value not in accepted:
            raise SpecError(
                f"`{key}` accepts {_listing(accepted)}, but got `{value}`.",
                hint="Choose one of the listed values.",
            )
    elif not expert:
        known = [*KNOWN_CONFIG_ENTRIES, *(k.name for k in KNOBS if k.target == "config_entry")]
        raise SpecError(
            f"Unknown session config entry `{key}`; ONNX Runtime would ignore it silently."
            f"{nearest(key, known)}",
            hint="Correct the key, or turn on `expert` to pass it on unchecked.",
        )
    if len(key) > 1024 or len(value) > 8192:  # ORT's own limits
        raise SpecError(
            f"A config entry holds at most 1024 characters of key and 8192 of value, but `{key[:40]}` has "
            f"{len(key)} and {len(value)}.",
            hint="Shorten it.",
        )


def _check_knob_text(setting: Knob, value: str) -> None:
    if setting.kind == "bool" and value not in _FLAG:
        raise SpecError(
            f"`{setting.name}` accepts `0` or `1`, but got `{value}`.",
            hint='Write "0" or "1", in quotes in YAML.',
        )
    if setting.kind == "int":
        try:
            number = int(value)
        except ValueError:
            raise SpecError(
                f"`{setting.name}` must be a whole number, but got `{value}`.",
                hint="Write digits only, in quotes in YAML.",
            ) from None
        check_range(setting, number)


def check_range(setting: Knob, number: int) -> None:
    """Refuse a number outside the setting's range.

    Raises:
        SpecError: below `low` or above `high`.
    """
    low, high = setting.low, setting.high
    if (low is not None and number < low) or (high is not None and number > high):
        raise SpecError(
            f"`{low} <= {setting.name} <= {high}` must hold, but got {number}.",
            hint="0 lets ONNX Runtime choose." if low == 0 else "Choose a number in that range.",
        )


def _listing(values: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)


# --- execution providers and their options ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOption:
    """One typed option of an execution provider. `default` is the provider's own, as text."""

    name: str
    kind: Literal["bool", "int", "choice", "text"]
    default: str
    help: str
    choices: tuple[str, ...] = ()
    native_code: bool = False  # loads a library or takes an address: refused unless `expert` is on


def _options(kind: Literal["bool", "int", "text"], *rows: tuple[str, str, str]) -> list[ProviderOption]:
    return [ProviderOption(name=name, kind=kind, default=default, help=text) for name, default, text in rows]


_CUDA_OPTIONS = (
    *_options(
        "int",
        ("device_id", "0", "Which GPU."),
        ("gpu_mem_limit", "18446744073709551615", "Cap of the arena in bytes; workspaces come on top."),
        ("sdpa_kernel", "0", "Bit mask of attention kernels; 0 chooses automatically."),
        ("tunable_op_max_tuning_duration_ms", "0", "Milliseconds to tune one operator; 0: no limit."),
        ("external_data_loader_reading_threads", "4", "Threads that read external weights, 0 to 64."),
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
    *_options(
        "int",
        ("device_id", "0", "Which GPU."),
        ("trt_max_partition_iterations", "1000", "Attempts at partitioning the graph."),
        ("trt_min_subgraph_size", "1", "Nodes a subgraph needs before TensorRT takes it."),
        ("trt_max_workspace_size", "0", "Workspace in bytes; 0: all the GPU's memory."),
        ("trt_dla_core", "0", "Which DLA core."),
        ("trt_builder_optimization_level", "3", "0 to 5: longer builds, faster engines."),
        ("trt_auxiliary_streams", "-1", "Auxiliary streams; -1: TensorRT chooses."),
        ("trt_ep_context_embed_mode", "0", "1 embeds the engine in the context model."),
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
