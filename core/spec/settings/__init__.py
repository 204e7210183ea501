"""The table of all settings: names, accepted values, defaults and help texts, with their validation.

Widgets, command-line options, YAML validation and help text are all built from `SETTINGS`; a setting that is
not in this table does not exist in ORTune. Names are ONNX Runtime's own, verbatim. Everything here is data
and pure functions; nothing imports onnxruntime. Source of names, defaults and effects: ONNX Runtime 1.31
(`SessionOptions`, `onnxruntime_session_options_config_keys.h`, the providers' option parsers), OpenVINO
2026.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.spec.effort import DEFAULT_MARGIN, EFFORTS, Effort
from core.spec.setting_type import Setting
from core.spec.settings.config_entries import (
    INTEGER_CONFIG_ENTRIES,
    KNOWN_CONFIG_ENTRIES,
    KNOWN_OPTIMIZERS,
    MIRROR_CONFIG_ENTRIES,
)
from core.spec.settings.provider_options import KNOWN_PROVIDERS, PROVIDER_OPTIONS, ProviderOption
from core.spec.settings.search_values import (
    Place,
    ValueRule,
    batch_sizes,
    both_values,
    devices,
    fixed_values,
    if_memory,
    inter_threads,
    loadable_chains,
    no_values,
    openvino_streams,
    openvino_threads,
    runtimes_of_place,
    stream_counts,
    stream_types,
    threads,
    values_by_kind,
)
from core.spec.settings.slider_stops import batch_stops, no_stops, stops_at, stream_stops, thread_stops
from core.wire import engines
from core.wire.errors import SpecError, nearest, range_rule
from core.wire.runtime import OWN

__all__ = [
    "ENTRIES",
    "ENUM_ATTRIBUTES",
    "EXECUTION_MODES",
    "EXECUTION_ORDERS",
    "GRAPH_OPTIMIZATION_LEVELS",
    "INTEGER_CONFIG_ENTRIES",
    "KNOWN_CONFIG_ENTRIES",
    "KNOWN_OPTIMIZERS",
    "KNOWN_PROVIDERS",
    "MAX_BATCH",
    "MAX_THREADS",
    "MIRROR_CONFIG_ENTRIES",
    "PROVIDER_OPTIONS",
    "SETTINGS",
    "Place",
    "ProviderOption",
    "TrialSetting",
    "Value",
    "check_config_entry",
    "check_optimizers",
    "check_range",
    "check_run_entry",
    "is_whole_number",
    "short",
    "short_value",
    "trial_setting",
]

Target = Literal[
    "trial", "attribute", "config_entry", "run_entry", "session", "openvino", "model", "workload", "protocol"
]
ENTRIES: Mapping[str, str] = {  # target -> the mapping of texts in the session's part
    "config_entry": "session_config_entries",
    "run_entry": "run_config_entries",
}
Value = bool | int | float | str | tuple[str, ...] | dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetting(Setting):
    """One setting of a configuration.

    `default` is the value that ONNX Runtime (or ORTune, for workload and protocol) uses while the setting is
    not set, for display; a session setting that is not set is None and is never passed on. A `default` of
    None means that ORTune decides while it measures; such a setting is left empty.
    """

    group: Literal["Graph", "Threads", "Memory", "Providers", "OpenVINO", "Model", "Workload", "Protocol"]
    target: Target
    search_values: ValueRule = values_by_kind  # values that a search tries, see `search_values`
    slider_stops: ValueRule = no_stops  # of its slider, see `slider_stops`
    few: bool = False  # all choices are shown at once

    @property
    def field(self) -> str:
        """Its name in its part of the spec, without the prefix of a setting of the protocol or OpenVINO."""
        return self.name.removeprefix("protocol.").removeprefix("openvino.")

    @property
    def flag(self) -> str:
        """The option's name on the command line."""
        plain = "--" + self.name.removeprefix("session.").replace(".", "-").replace("_", "-").lower()
        return _FLAGS.get(self.name, plain)

    @property
    def short(self) -> str:
        """Its short name, for configurations in a table and points of a sweep."""
        return _SHORT.get(self.name, self.field.rpartition(".")[2])


_FLAGS: Mapping[str, str] = {
    # repeatable options are named after one of their values
    "providers": "--provider",
    "disabled_optimizers": "--disable-optimizer",
    "session_config_entries": "--session-config",
    "run_config_entries": "--run-config",
    "custom_op_libraries": "--custom-op-library",
    "provider_libraries": "--provider-library",
    "free_dimension_overrides": "--free-dimension-override",
    "dims": "--dim",
    "feeds": "--feed",
    "feed_values": "--feed",  # `--feed NAME=VALUE`; any other value is the source of the inputs
    "use_io_binding": "--io-binding",
    "protocol.effort": "--effort",
    "budget_s": "--budget",
    "openvino.properties": "--openvino-property",
}


_SHORT: Mapping[str, str] = {
    "graph_optimization_level": "graph",
    "disabled_optimizers": "without",
    "execution_mode": "mode",
    "execution_order": "order",
    "use_deterministic_compute": "deterministic",
    "free_dimension_overrides": "fixed_dims",
    "intra_op_num_threads": "threads",
    "inter_op_num_threads": "inter_threads",
    "session.intra_op.allow_spinning": "spinning",
    "session.inter_op.allow_spinning": "inter_spinning",
    "session.intra_op.spin_duration_us": "spin_us",
    "session.inter_op.spin_duration_us": "inter_spin_us",
    "session.force_spinning_stop": "spinning_stop",
    "use_per_session_threads": "own_threads",
    "session.dynamic_block_base": "block_base",
    "session.intra_op_thread_affinities": "affinities",
    "session.set_denormal_as_zero": "denormal_as_zero",
    "enable_cpu_mem_arena": "arena",
    "enable_mem_pattern": "mem_pattern",
    "enable_mem_reuse": "mem_reuse",
    "memory.enable_memory_arena_shrinkage": "arena_shrinkage",
    "disable_synchronize_execution_providers": "no_provider_sync",
    "custom_op_libraries": "operators",
    "session_config_entries": "session_config",
    "run_config_entries": "run_config",
    "batch_size": "batch",
    "use_io_binding": "io_binding",
    "openvino.device": "device",
    "openvino.PERFORMANCE_HINT": "hint",
    "openvino.NUM_STREAMS": "ov_streams",
    "openvino.INFERENCE_NUM_THREADS": "ov_threads",
    "openvino.INFERENCE_PRECISION_HINT": "inference",
    "openvino.EXECUTION_MODE_HINT": "mode_hint",
    "openvino.SCHEDULING_CORE_TYPE": "core_type",
    "openvino.ENABLE_HYPER_THREADING": "hyper_threading",
    "openvino.ENABLE_CPU_PINNING": "pinning",
    "protocol.effort": "effort",
    "budget_s": "budget",
    "warmup_runs": "warmup",
    "timeout_s": "timeout",
}


GRAPH_OPTIMIZATION_LEVELS = (
    "ORT_DISABLE_ALL",
    "ORT_ENABLE_BASIC",
    "ORT_ENABLE_EXTENDED",
    "ORT_ENABLE_LAYOUT",
    "ORT_ENABLE_ALL",
)
EXECUTION_MODES = ("ORT_SEQUENTIAL", "ORT_PARALLEL")
EXECUTION_ORDERS = ("DEFAULT", "PRIORITY_BASED", "MEMORY_EFFICIENT")
ENUM_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {  # attribute of SessionOptions -> members of its type
    "graph_optimization_level": GRAPH_OPTIMIZATION_LEVELS,
    "execution_mode": EXECUTION_MODES,
    "execution_order": EXECUTION_ORDERS,
}
ARENAS = ("cpu:0", "gpu:0", "cpu:0;gpu:0")
MAX_THREADS = 1024  # far above any machine; a typing error must not start a million threads
MAX_BATCH = 1 << 20
MAX_RUNS = 1_000_000
PERFORMANCE_HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")
INFERENCE_PRECISIONS = ("f32", "bf16", "f16")
SPIN_US = (None, 0, 100, 200, 500, 1000, 2000, 5000, 10_000)  # None: ONNX Runtime counts loops


def _of_each(value: Callable[[Effort], str]) -> str:
    return ", ".join(f"{value(one)} ({one.name})" for one in EFFORTS.values())


SETTINGS: tuple[TrialSetting, ...] = (
    TrialSetting(
        name="providers",
        label="Execution providers",
        group="Providers",
        target="session",
        kind="list",
        default=("CPUExecutionProvider",),
        help="Execution providers in order of preference: each node runs on the first one that supports it, "
        "and the CPU runs the rest. Empty: ONNX Runtime uses the CPU, also in the GPU build.",
        search_values=loadable_chains,
    ),
    TrialSetting(
        name="allow_fallback",
        label="Allow fallback",
        group="Providers",
        target="session",
        kind="bool",
        default=False,
        help="Off: the trial fails when a provider does not load. On: the trial runs on the providers that "
        "do load and is marked `fallback`.",
    ),
    TrialSetting(
        name="graph_optimization_level",
        label="Graph optimization level",
        group="Graph",
        target="attribute",
        kind="choice",
        default="ORT_ENABLE_ALL",
        choices=GRAPH_OPTIMIZATION_LEVELS,
        few=True,
        help="How far ONNX Runtime rewrites the graph: BASIC folds constants, EXTENDED adds fusions, LAYOUT "
        "adds the CPU's NCHWc layout, ALL enables everything. ALL is not always the fastest, so "
        "compare.",
    ),
    TrialSetting(
        name="disabled_optimizers",
        label="Disabled optimizers",
        group="Graph",
        target="session",
        kind="list",
        default=(),
        help="Graph optimizers to skip, by name, for example `NchwcTransformer` or `ConvActivationFusion`. "
        "Use it to find an optimizer that slows the model down or changes its outputs.",
        advanced=True,
    ),
    TrialSetting(
        name="custom_op_libraries",
        label="Custom operator libraries",
        group="Graph",
        target="session",
        kind="list",
        default=(),
        help="Native libraries with custom operators, named relative to the folder in "
        "`ORTUNE_ALLOW_LIBRARIES`. ORTune does not check what they compute; every result stores their "
        "SHA-256.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="provider_libraries",
        label="Execution provider libraries",
        group="Providers",
        target="session",
        kind="list",
        default=(),
        help="Native libraries with execution provider plug-ins, from the same folder as custom operators. "
        "Add the provider itself to the execution providers.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="execution_mode",
        label="Execution mode",
        group="Graph",
        target="attribute",
        kind="choice",
        default="ORT_SEQUENTIAL",
        choices=EXECUTION_MODES,
        help="ORT_SEQUENTIAL runs one operator after another; ORT_PARALLEL runs the graph through the "
        "inter-op thread pool. On the CPU, ORT_PARALLEL runs no branches in parallel unless a node partition "
        "file is set, but it uses another thread pool: a search measures both.",
    ),
    TrialSetting(
        name="execution_order",
        label="Execution order",
        group="Graph",
        target="attribute",
        kind="choice",
        default="DEFAULT",
        choices=EXECUTION_ORDERS,
        help="Order of nodes that do not depend on each other; PRIORITY_BASED first runs those that other "
        "nodes wait for. MEMORY_EFFICIENT exists in training builds of ONNX Runtime only.",
        advanced=True,
        search_values=fixed_values("DEFAULT", "PRIORITY_BASED"),
    ),
    TrialSetting(
        name="use_deterministic_compute",
        label="Deterministic compute",
        group="Graph",
        target="attribute",
        kind="bool",
        default=False,
        help="Uses kernels that return bit-identical results in every run, where a provider has them. On a "
        "GPU they may be slower; CPU kernels are deterministic anyway.",
        advanced=True,
    ),
    TrialSetting(
        name="free_dimension_overrides",
        label="Free-dimension overrides",
        group="Graph",
        target="session",
        kind="mapping",
        default={},
        help="Fixes free dimensions by name before the graph is optimized, one `name=size` per line, so "
        "that more can be folded and fused. The inputs must have these sizes.",
        advanced=True,
    ),
    TrialSetting(
        name="intra_op_num_threads",
        label="Intra-op threads",
        group="Threads",
        target="attribute",
        kind="int",
        default=0,
        low=0,
        high=MAX_THREADS,
        help="Threads inside one operator, including the calling thread. 0: ONNX Runtime starts one pinned "
        "thread per physical core and ignores container limits; 1: no thread pool.",
        search_values=threads,
        slider_stops=thread_stops,
    ),
    TrialSetting(
        name="inter_op_num_threads",
        label="Inter-op threads",
        group="Threads",
        target="attribute",
        kind="int",
        default=0,
        low=0,
        high=MAX_THREADS,
        help="Threads that run operators in parallel. Only ORT_PARALLEL uses them.",
        search_values=inter_threads,
        slider_stops=thread_stops,
    ),
    TrialSetting(
        name="session.intra_op.allow_spinning",
        label="Intra-op spinning",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=True,
        help="Idle intra-op threads busy-wait for the next inference, which lowers the latency of "
        "back-to-back calls. Turn it off to save CPU time or to share the CPUs: threads spin for "
        "tens of milliseconds after each call.",
    ),
    TrialSetting(
        name="session.inter_op.allow_spinning",
        label="Inter-op spinning",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=True,
        help="Idle inter-op threads busy-wait for the next inference. Only ORT_PARALLEL has this thread "
        "pool.",
        advanced=True,
    ),
    TrialSetting(
        name="session.intra_op.spin_duration_us",
        label="Intra-op spin duration (µs)",
        group="Threads",
        target="config_entry",
        kind="int",
        default=None,
        low=0,
        high=2**31 - 1,
        unit="µs",
        help="How long idle intra-op threads busy-wait before they sleep, such as 100 to 2000; 0 means no "
        "waiting. Empty: ONNX Runtime counts loops instead of time, some tens of milliseconds.",
        advanced=True,
        search_values=fixed_values(None, 100, 1000),
        slider_stops=stops_at(*SPIN_US),
    ),
    TrialSetting(
        name="session.inter_op.spin_duration_us",
        label="Inter-op spin duration (µs)",
        group="Threads",
        target="config_entry",
        kind="int",
        default=None,
        low=0,
        high=2**31 - 1,
        unit="µs",
        help="How long idle inter-op threads busy-wait before they sleep. Only ORT_PARALLEL has this thread "
        "pool.",
        advanced=True,
        slider_stops=stops_at(*SPIN_US),
    ),
    TrialSetting(
        name="session.force_spinning_stop",
        label="Force spinning stop",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=False,
        help="Threads stop busy-waiting when the last inference in progress ends. This saves CPU time "
        "between calls, but the first operators of the next call start later.",
        advanced=True,
    ),
    TrialSetting(
        name="use_per_session_threads",
        label="Per-session thread pools",
        group="Threads",
        target="attribute",
        kind="bool",
        default=True,
        help="On: the session creates its own thread pools. Off: it shares the pools of the process, sized "
        "by `intra_op_num_threads` and `inter_op_num_threads`; every session of that process must then "
        "turn it off.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="session.dynamic_block_base",
        label="Dynamic block base",
        group="Threads",
        target="config_entry",
        kind="int",
        default=0,
        low=0,
        high=1024,
        help="Above 0: ONNX Runtime splits work among threads in shrinking blocks, which can lower the "
        "variance. 4 is the usual value to try; 0 means even blocks.",
        advanced=True,
        search_values=fixed_values(0, 4),
        slider_stops=stops_at(None, 2, 4, 8, 16, 32),
    ),
    TrialSetting(
        name="session.intra_op_thread_affinities",
        label="Intra-op thread affinities",
        group="Threads",
        target="config_entry",
        kind="text",
        default="",
        help="Pins intra-op threads to logical CPUs, which count from 1: `;` separates threads, `,` and `-` "
        "list CPUs. Give one entry for each thread except the caller, for example `2;3;4` for 4 "
        "threads.",
        advanced=True,
    ),
    TrialSetting(
        name="session.set_denormal_as_zero",
        label="Denormals as zero",
        group="Threads",
        target="config_entry",
        kind="bool",
        default=False,
        help="Treats denormal numbers as zero, which changes results by less than 1e-38. Try it if the CPU "
        "is slow with very small values.",
        advanced=True,
    ),
    TrialSetting(
        name="enable_cpu_mem_arena",
        label="CPU memory arena",
        group="Memory",
        target="attribute",
        kind="bool",
        default=True,
        help="Keeps freed CPU memory for the next inference. Turn it off to hold less memory; allocation is "
        "then slower.",
    ),
    TrialSetting(
        name="enable_mem_pattern",
        label="Memory pattern",
        group="Memory",
        target="attribute",
        kind="bool",
        default=True,
        help="Allocates all buffers as one block after the first inference with an input shape. It does not "
        "help when every inference has a new shape.",
    ),
    TrialSetting(
        name="enable_mem_reuse",
        label="Memory reuse",
        group="Memory",
        target="attribute",
        kind="bool",
        default=True,
        help="Lets intermediate results share buffers. Turn it off only to debug.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="memory.enable_memory_arena_shrinkage",
        label="Arena shrinkage",
        group="Memory",
        target="run_entry",
        kind="choice",
        default="",
        choices=ARENAS,
        help="Frees unused memory of the arenas of these devices after every inference: less memory held, "
        "but slower. An inference fails if a named device has no arena.",
        advanced=True,
        search_values=if_memory("", "cpu:0"),
    ),
    TrialSetting(
        name="disable_synchronize_execution_providers",
        label="Skip provider synchronization",
        group="Providers",
        target="run_entry",
        kind="bool",
        default=False,
        help="`run` returns without waiting for a GPU's streams to finish. With I/O binding ORTune waits "
        "for the outputs itself, so the latency still covers the whole inference.",
        advanced=True,
    ),
    TrialSetting(
        name="session_config_entries",
        label="Session config entries",
        group="Graph",
        target="session",
        kind="mapping",
        default={},
        help="Other `session.*`, `optimization.*`, `ep.*` or `mlas.*` entries, one `key=value` per line. "
        "ONNX Runtime ignores unknown keys silently, so ORTune accepts only known keys unless `expert` "
        "is on.",
        advanced=True,
    ),
    TrialSetting(
        name="run_config_entries",
        label="Run config entries",
        group="Graph",
        target="session",
        kind="mapping",
        default={},
        help="Other entries of `RunOptions` for every inference, one `key=value` per line. They need "
        "`expert`, because ONNX Runtime ignores unknown keys silently.",
        advanced=True,
    ),
    TrialSetting(
        name="expert",
        label="Expert mode",
        group="Graph",
        target="session",
        kind="bool",
        default=False,
        help="Accepts config entries and provider options that ORTune does not know; ONNX Runtime does not "
        "report a misspelt key. A file cannot turn it on by itself.",
        advanced=True,
    ),
    TrialSetting(
        name="engine",
        label="Engine",
        group="Model",
        target="trial",
        kind="choice",
        default=engines.DEFAULT,
        choices=tuple(engines.ENGINES),
        help="What runs the model; the PyTorch engines need a model that ORTune converted. "
        + "; ".join(f"{name}: {one.runs}" for name, one in engines.ENGINES.items())
        + ".",
        advanced=True,
    ),
    TrialSetting(
        name="runtime",
        label="Runtime",
        group="Model",
        target="trial",
        kind="text",
        default=OWN,
        help="The Python environment whose ONNX Runtime runs the model: `own`, ORTune's, or one from "
        "`ortune runtimes list`.",
        search_values=runtimes_of_place,
        advanced=True,
    ),
    TrialSetting(
        name="openvino.device",
        label="Device",
        group="OpenVINO",
        target="openvino",
        kind="text",
        default="CPU",
        help="Device that runs the model: `CPU`, `GPU`, `GPU.1`, `NPU`, `AUTO`, `AUTO:GPU,CPU`, "
        "`HETERO:GPU,CPU`. A device that is not there is an error.",
        search_values=devices,
    ),
    TrialSetting(
        name="openvino.PERFORMANCE_HINT",
        label="Performance hint",
        group="OpenVINO",
        target="openvino",
        kind="choice",
        default="LATENCY",
        choices=PERFORMANCE_HINTS,
        help="LATENCY runs one request at a time on all threads; THROUGHPUT divides the threads among "
        "several requests, which needs several streams of the workload to be useful.",
        search_values=fixed_values("LATENCY", "THROUGHPUT"),
    ),
    TrialSetting(
        name="openvino.NUM_STREAMS",
        label="OpenVINO streams",
        group="OpenVINO",
        target="openvino",
        kind="int",
        default=None,
        low=1,
        high=MAX_THREADS,
        help="Requests that OpenVINO runs at the same time, each on its share of the threads. Empty: by the "
        "performance hint. The workload's `streams` are the callers that send requests.",
        search_values=openvino_streams,
        slider_stops=thread_stops,
    ),
    TrialSetting(
        name="openvino.INFERENCE_NUM_THREADS",
        label="Inference threads",
        group="OpenVINO",
        target="openvino",
        kind="int",
        default=None,
        low=1,
        high=MAX_THREADS,
        help="Threads of all requests together on the CPU. Empty: OpenVINO decides; it never uses more than "
        "the CPUs that it sees.",
        search_values=openvino_threads,
        slider_stops=thread_stops,
    ),
    TrialSetting(
        name="openvino.INFERENCE_PRECISION_HINT",
        label="Inference precision",
        group="OpenVINO",
        target="openvino",
        kind="choice",
        default="",
        choices=INFERENCE_PRECISIONS,
        help="Precision of the computation. Empty: OpenVINO decides, which is bf16 on CPUs with instructions "
        "for it. Use f32 for the numbers of an FP32 model.",
        search_values=fixed_values("", "f32"),
    ),
    TrialSetting(
        name="openvino.EXECUTION_MODE_HINT",
        label="Execution mode hint",
        group="OpenVINO",
        target="openvino",
        kind="choice",
        default="PERFORMANCE",
        choices=("PERFORMANCE", "ACCURACY"),
        help="ACCURACY computes in the precision of the model; PERFORMANCE may use a lower one.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="openvino.SCHEDULING_CORE_TYPE",
        label="Core type",
        group="OpenVINO",
        target="openvino",
        kind="choice",
        default="ANY_CORE",
        choices=("ANY_CORE", "PCORE_ONLY", "ECORE_ONLY"),
        help="Cores that a hybrid CPU uses: performance cores, efficiency cores or both.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="openvino.ENABLE_HYPER_THREADING",
        label="Hyper-threading",
        group="OpenVINO",
        target="openvino",
        kind="bool",
        default=True,
        help="Allows two threads on one physical core. OpenVINO may still turn it off for the hint LATENCY.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="openvino.ENABLE_CPU_PINNING",
        label="CPU pinning",
        group="OpenVINO",
        target="openvino",
        kind="bool",
        default=True,
        help="Binds inference threads to CPUs. Turn it off where other programs use the same CPUs.",
        advanced=True,
        search_values=no_values,
    ),
    TrialSetting(
        name="openvino.reshape",
        label="Reshape to the inputs",
        group="OpenVINO",
        target="openvino",
        kind="bool",
        default=False,
        help="Fixes the model's shapes to those of the inputs before compilation. Off: dimensions that are "
        "dynamic in the file stay dynamic, as for ONNX Runtime.",
        search_values=both_values,
    ),
    TrialSetting(
        name="openvino.properties",
        label="Other properties",
        group="OpenVINO",
        target="openvino",
        kind="mapping",
        default={},
        help="Other properties for `compile_model`, one `NAME=VALUE` per line. Properties that ORTune does "
        "not know need `expert`.",
        advanced=True,
    ),
    TrialSetting(
        name="precision",
        label="Model precision",
        group="Model",
        target="model",
        kind="choice",
        default="fp32",
        choices=("fp32", "fp16"),
        few=True,
        help="fp32: the model as it is; fp16: a copy made by ONNX Runtime's own converter. On an x86 CPU "
        "the copy is computed in FP32 with extra Casts, and the result says so.",
    ),
    TrialSetting(
        name="keep_io_types",
        label="Keep input and output types",
        group="Model",
        target="model",
        kind="bool",
        default=True,
        help="For fp16 only: inputs and outputs stay FP32, with a Cast at each end. Turn it off if your "
        "program passes FP16.",
        advanced=True,
    ),
    TrialSetting(
        name="batch_size",
        label="Batch size",
        group="Workload",
        target="workload",
        kind="int",
        default=1,
        low=1,
        high=MAX_BATCH,
        help="Samples per inference. ORTune counts them on the input arrays, not on this setting.",
        search_values=batch_sizes,
        slider_stops=batch_stops,
    ),
    TrialSetting(
        name="dims",
        label="Free dimensions",
        group="Workload",
        target="workload",
        kind="mapping",
        default={},
        help="Sizes of the other free dimensions, such as `sequence=128`; 0 means an empty tensor, such as "
        "a decoder's cache before the first token. An unnamed dimension, or one whose placeholder is "
        "used twice, is called `<input>:<axis>`.",
    ),
    TrialSetting(
        name="use_io_binding",
        label="I/O binding",
        group="Workload",
        target="workload",
        kind="bool",
        default=False,
        help="On: inputs are bound once and outputs stay on the device, as in an optimized GPU program. "
        "Off: `run` takes and returns numpy arrays, copies included; on the CPU that costs a few "
        "microseconds per call.",
        search_values=both_values,
    ),
    TrialSetting(
        name="streams",
        label="Streams",
        group="Workload",
        target="workload",
        kind="int",
        default=1,
        low=1,
        high=256,
        help="Callers at the same time, each of which calls again as soon as its result is there. Raise it "
        "for throughput; latencies are then those beside the other callers.",
        advanced=True,
        search_values=stream_counts,
        slider_stops=stream_stops,
    ),
    TrialSetting(
        name="stream_type",
        label="Stream type",
        group="Workload",
        target="workload",
        kind="choice",
        default="threads",
        choices=("threads", "processes"),
        few=True,
        help="threads: all streams call one session. processes: each has a session and its own share of the "
        "CPUs, on ONNX Runtime's CPU provider only.",
        advanced=True,
        search_values=stream_types,
    ),
    TrialSetting(
        name="feeds",
        label="Inputs",
        group="Workload",
        target="workload",
        kind="text",
        default="random",
        help="Input data: `random` (seeded, in a range that suits each input), the path of an `.npz` with "
        "one array per input, an image, or a folder of images.",
    ),
    TrialSetting(
        name="feed_values",
        label="Fixed input values",
        group="Workload",
        target="workload",
        kind="mapping",
        default={},
        help="A fixed value for an input, such as `sr=16000`, broadcast to its shape. Or a range of random "
        "values, such as `ids=random:0..30521`, both ends included.",
    ),
    TrialSetting(
        name="image_mean",
        label="Image mean",
        group="Workload",
        target="workload",
        kind="list",
        default=(),
        help="Subtracted from each channel of input images, on a scale of 0 to 1. Empty: ImageNet's values "
        "for 3 channels, none for 1.",
        advanced=True,
    ),
    TrialSetting(
        name="image_std",
        label="Image standard deviation",
        group="Workload",
        target="workload",
        kind="list",
        default=(),
        help="Divides each channel of input images after the mean is subtracted. Empty: ImageNet's values "
        "for 3 channels, none for 1.",
        advanced=True,
    ),
    TrialSetting(
        name="seed",
        label="Seed",
        group="Workload",
        target="workload",
        kind="int",
        default=0,
        low=0,
        high=2**31 - 1,
        help="Seed of random inputs. The same seed gives the same bytes.",
        advanced=True,
    ),
    TrialSetting(
        name="protocol.effort",
        label="Effort",
        group="Protocol",
        target="protocol",
        kind="choice",
        default="quick",
        choices=tuple(EFFORTS),
        help="Precision goal: ORTune measures until the half-width of the 95 % interval is at most "
        f"{_of_each(lambda one: f'±{100 * one.target:g} %')}. If the time budget ends first, an open verdict "
        "is UNDECIDED.",
    ),
    TrialSetting(
        name="budget_s",
        label="Time budget (s)",
        group="Protocol",
        target="protocol",
        kind="int",
        default=None,
        low=1,
        high=86_400,
        help="Longest time to measure, in seconds; a verdict that is still open then is UNDECIDED. Empty: "
        f"{_of_each(lambda one: f'{one.budget_s} s')}; 60 s for a whole search.",
    ),
    TrialSetting(
        name="margin",
        label="Equivalence margin",
        group="Protocol",
        target="protocol",
        kind="float",
        default=DEFAULT_MARGIN,
        low=0.001,
        high=0.5,
        help="Two configurations are EQUIVALENT when the whole 95 % interval of their speed-up lies inside "
        "this margin; 0.02 is 2 %. Raise it if small differences do not matter to you.",
    ),
    TrialSetting(
        name="tolerance",
        label="Output tolerance",
        group="Protocol",
        target="protocol",
        kind="float",
        default=None,
        low=1e-9,
        high=2.0,
        help="Largest output error that counts as correct, as a share of the largest magnitude, compared "
        "with the original model on the CPU without optimizations; beyond it a result is marked "
        "`outputs differ`, and exporting it needs a reason. Empty: 0.001 for FP32, 0.02 for FP16, 0.1 "
        "for INT8, 0.2 for 4 bits.",
        advanced=True,
    ),
    TrialSetting(
        name="warmup_runs",
        label="Warm-up inferences",
        group="Protocol",
        target="protocol",
        kind="int",
        default=None,
        low=0,
        high=MAX_RUNS,
        help="Inferences before the timed ones, stored separately. Empty: until the latency is steady, "
        "which is less biased than a fixed number.",
        advanced=True,
    ),
    TrialSetting(
        name="runs",
        label="Timed inferences",
        group="Protocol",
        target="protocol",
        kind="int",
        default=None,
        low=1,
        high=MAX_RUNS,
        help="Exactly this many timed inferences of each configuration; empty: as many as the precision "
        "goal needs. A p95 needs at least 72, a p99 at least 368.",
        advanced=True,
    ),
    TrialSetting(
        name="timeout_s",
        label="Timeout (s)",
        group="Protocol",
        target="protocol",
        kind="int",
        default=600,
        low=1,
        high=86_400,
        help="Time limit of one worker step (loading, warm-up, a block of inferences). ORTune stops a "
        "slower worker and stores its trial as failed.",
        advanced=True,
    ),
    TrialSetting(
        name="cpus",
        label="CPUs",
        group="Protocol",
        target="protocol",
        kind="text",
        default="",
        help="Logical CPUs that the workers may use, as Linux lists them: `0-3,6`; ONNX Runtime counts its "
        "threads on them. Empty: all CPUs that this process may use.",
        advanced=True,
    ),
)

_BY_NAME = {trial_setting.name: trial_setting for trial_setting in SETTINGS}


def trial_setting(name: str) -> TrialSetting:
    """Return the setting called `name`.

    Raises:
        SpecError: no setting has that name.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise SpecError(
            f"Unknown setting `{name}`.{nearest(name, _BY_NAME)}",
            hint="`docs/reference/settings.md` lists all settings.",
        ) from None


def short(name: str) -> str:
    """Return the short name of a setting or of a provider's option, also of an earlier version."""
    row = _BY_NAME.get(name)
    return name.replace("ExecutionProvider.", ".").removeprefix("session.") if row is None else row.short


def short_value(value: Any) -> str:
    """Return a value of ONNX Runtime without its common prefix: BASIC, PARALLEL."""
    return str(value).removeprefix("ORT_").removeprefix("ENABLE_")


def value_words(value: object) -> str:
    """Return a value as commands read it: `on`, `default`, `4`, a chain of providers with `+`.

    A runtime is shown by its name, without its hash.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    return "default" if value is None else _RUNTIME_HASH.sub("", str(value))


_RUNTIME_HASH = re.compile(r"@sha256:[0-9a-f]{64}$")


# --- session config entries ---


def check_config_entry(key: str, value: str, *, expert: bool) -> None:
    """Refuse a session config entry that ONNX Runtime would silently ignore or fail on.

    Raises:
        SpecError: unknown key (unless `expert`), a key without effect from Python, or a bad value.
    """
    if key in MIRROR_CONFIG_ENTRIES:
        raise SpecError(
            f"`{key}` has no effect as a session config entry.",
            hint=_mirror_hint(MIRROR_CONFIG_ENTRIES[key]),
        )
    if (own := _BY_NAME.get(key)) is not None and own.target == "config_entry":
        _check_setting_text(own, value)
    elif key in KNOWN_CONFIG_ENTRIES:
        _check_known_entry(key, value, expert=expert)
    elif not expert:
        known = [*KNOWN_CONFIG_ENTRIES, *(k.name for k in SETTINGS if k.target == "config_entry")]
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


def check_run_entry(key: str, value: str, *, expert: bool) -> None:
    """Refuse a run config entry that ONNX Runtime would silently ignore, or that makes every run fail.

    Raises:
        SpecError: unknown key (unless `expert`), or a value that it does not accept.
    """
    own = {one.name: one for one in SETTINGS if one.target == "run_entry"}
    setting = own.get(key)
    if setting is None:
        if expert:
            return
        raise SpecError(
            f"Unknown run config entry `{key[:80]}`; ONNX Runtime would ignore it silently."
            f"{nearest(key, own)}",
            hint="Correct the key, or turn on `expert` to pass it on unchecked.",
        )
    accepted = ("0", "1") if setting.kind == "bool" else setting.choices
    if value not in accepted:
        raise SpecError(
            f"`{key}` accepts {_listing(accepted)}, but got `{value[:80]}`.",
            hint="Choose one of the listed values.",
        )


def _mirror_hint(attribute: str) -> str:
    if attribute in _BY_NAME:
        return f"Set `{attribute}` instead."
    return "Remove it; ORTune sets this attribute itself."


def _check_known_entry(key: str, value: str, *, expert: bool) -> None:
    accepted = KNOWN_CONFIG_ENTRIES[key]
    if accepted and value not in accepted:
        raise SpecError(
            f"`{key}` accepts {_listing(accepted)}, but got `{value}`.",
            hint="Choose one of the listed values.",
        )
    if (bounds := INTEGER_CONFIG_ENTRIES.get(key)) is not None:
        low, high = bounds
        if not is_whole_number(value) or not low <= int(value) <= high:
            raise SpecError(
                f"`{key}` must be a whole number from {low} to {high}, but got `{value}`.",
                hint="Write digits only; ONNX Runtime would drop anything else with a line in its log.",
            )
    if key == "optimization.disable_specified_optimizers":
        check_optimizers(value.split(";"), expert=expert)


def check_optimizers(names: Iterable[str], *, expert: bool) -> None:
    """Refuse the name of an optimizer that ONNX Runtime would silently ignore.

    Raises:
        SpecError: a name that no graph transformer of ONNX Runtime 1.31 has, unless `expert`.
    """
    for name in names:
        if name not in KNOWN_OPTIMIZERS and not expert:
            raise SpecError(
                f"Unknown optimizer `{name}`; ONNX Runtime would ignore it silently."
                f"{nearest(name, KNOWN_OPTIMIZERS)}",
                hint="Correct the name (`;` separates several in one entry), or turn on `expert`.",
            )


def is_whole_number(text: str) -> bool:
    """True for ASCII digits with an optional minus, which is all that ONNX Runtime's parsers read in full."""
    return _WHOLE_NUMBER.fullmatch(text) is not None


_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")


def _check_setting_text(setting: TrialSetting, value: str) -> None:
    if setting.kind == "bool" and value not in ("0", "1"):
        raise SpecError(
            f"`{setting.name}` accepts `0` or `1`, but got `{value}`.",
            hint='Write "0" or "1", in quotes in YAML.',
        )
    if setting.kind == "int":
        if not is_whole_number(value):
            raise SpecError(
                f"`{setting.name}` must be a whole number, but got `{value}`.", hint="Write digits only."
            )
        check_range(setting, int(value))


_THREADS_HINT = "Set `{}` to 0 to let ONNX Runtime choose."


def check_range(setting: TrialSetting, number: float) -> None:
    """Refuse a number outside the setting's range.

    Raises:
        SpecError: below `low` or above `high`.
    """
    low, high = setting.low, setting.high
    if not ((low is None or low <= number) and (high is None or number <= high)):  # NaN is outside, too
        if low == high:
            raise SpecError(
                f"{setting.label or f'`{setting.name}`'} must be {low} for now; got {number:,}.",
                hint=f"Leave `{setting.name}` out: ORTune measures one caller.",
            )
        raise SpecError(
            f"{range_rule(setting.label or f'`{setting.name}`', low, high)}; got {number:,}.",
            hint=_THREADS_HINT.format(setting.name)
            if setting.name.endswith("_num_threads")
            else f"Choose a number in that range for `{setting.name}`.",
        )


def _listing(values: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)
