"""Writes a Triton model repository as a zip: `config.pbtxt` for its ONNX Runtime back end, and the model.

Source: `onnxruntime.cc` and the README of Triton's onnxruntime_backend; the messages are those of
`model_config.proto`. Names of the trial enter the file only as quoted texts.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from core import wire
from core.run.bundle import WEIGHTS_HINT, path_problem
from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.input_values import measured_inputs
from core.show.export.model_file import copy_file, refuse_fp16
from core.show.export.programs import accelerators, exported_options, ort_spec, quoted_c
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec
from core.wire.errors import SpecError
from core.wire.files import file_stem

_TYPES = {
    **{f"{kind}{bits}": f"TYPE_{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "bfloat16": "TYPE_BF16",
    "bool": "TYPE_BOOL",
    "string": "TYPE_STRING",
}
_GPU = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "tensorrt"}
_PROVIDERS = {**_GPU, "OpenVINOExecutionProvider": "openvino"}
_LEVELS = {"ORT_ENABLE_BASIC": -1, "ORT_ENABLE_EXTENDED": 1, "ORT_DISABLE_ALL": 2}  # absent: ALL
# ONNX Runtime's option -> the accelerator's parameter, if its name differs
_TENSORRT = {
    "trt_max_workspace_size": "max_workspace_size_bytes",
    "trt_int8_calibration_table_name": "int8_calibration_table_name",
    "trt_int8_use_native_calibration_table": "int8_use_native_calibration_table",
    **{
        name: name
        for name in (
            *("trt_max_partition_iterations", "trt_min_subgraph_size", "trt_dla_enable", "trt_dla_core"),
            *("trt_engine_cache_enable", "trt_engine_cache_path", "trt_engine_cache_prefix"),
            *("trt_dump_subgraphs", "trt_force_sequential_engine_build", "trt_context_memory_sharing_enable"),
            *("trt_layer_norm_fp32_fallback", "trt_timing_cache_enable", "trt_timing_cache_path"),
            *("trt_force_timing_cache", "trt_detailed_build_log", "trt_build_heuristics_enable"),
            *("trt_sparsity_enable", "trt_builder_optimization_level", "trt_auxiliary_streams"),
            *("trt_tactic_sources", "trt_extra_plugin_lib_paths", "trt_profile_min_shapes"),
            *("trt_profile_max_shapes", "trt_profile_opt_shapes", "trt_cuda_graph_enable"),
            *("trt_dump_ep_context_model", "trt_ep_context_file_path", "trt_ep_context_embed_mode"),
        )
    },
}
_PRECISIONS = {"trt_fp16_enable": "FP16", "trt_bf16_enable": "BF16", "trt_int8_enable": "INT8"}
# If the model has any parameter, the back end reads these four only from the parameters and uses their
# defaults if they are absent. The numbers encode ONNX Runtime's words.
_CUDA_PARAMETERS: Mapping[str, Sequence[str]] = {
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
    "gpu_mem_limit": (),
    "do_copy_in_default_stream": (),
}
_PARAMETERS = {
    "intra_op_num_threads": "intra_op_thread_count",
    "inter_op_num_threads": "inter_op_thread_count",
    "enable_cpu_mem_arena": "enable_mem_arena",
    "enable_mem_pattern": "enable_mem_pattern",
    "execution_mode": "execution_mode",
}
_INITIALIZERS = "session.use_device_allocator_for_initializers"
_SHRINK = "memory.enable_memory_arena_shrinkage"


def model_name(source: ExportSource) -> str:
    """Return the folder name of the model in the repository."""
    stem = Path(source.trial.model_name or source.trial.spec["model"]["path"]).name.removesuffix(".onnx")
    return file_stem(stem).replace(".", "_")


def export_triton(source: ExportSource, accepted: str) -> str:
    """Return the `config.pbtxt`.

    Raises:
        SpecError: another engine, a provider that the back end lacks, an FP16 copy, or inputs and outputs
            that are unknown or are not tensors.
    """
    trial, spec, info = source.trial, ort_spec(source.trial), source.info
    refuse_fp16(source)
    if info is None:
        raise SpecError(
            f"The inputs and outputs of the model of trial {trial.id} are unknown.",
            hint="Add the model to the library first, for example with `inspect`.",
        )
    tracker, plan = SettingTracker(spec), session_plan(spec.session)
    rows, why_not = _max_batch(source, spec, info)
    batching = _dynamic_batching(spec, tracker, rows)
    tracker.mark_exported("batch_size", "use_io_binding", "providers", "streams")  # the back end always binds
    tracker.mark_unsupported("stream_type", "each of Triton's instances has a session, all in one process")
    if not rows:
        tracker.mark_unsupported("batch_size", "Triton does not batch this model, see max_batch_size")
    tracker.mark_exported("dims")
    parameters = _parameters(plan, tracker)
    blocks = [
        f"name: {quoted_c(model_name(source))}\nbackend: {quoted_c('onnxruntime')}",
        _limit(spec, rows, why_not),
        _tensors("input", info["inputs"], batched=bool(rows)),
        _tensors("output", info["outputs"], batched=bool(rows)),
        _instances(plan, spec),
        batching,
        _optimization(plan, tracker, parameters),
        *(_parameter(key, value) for key, value in parameters.items()),
        _warm_up(source, spec, tracker, rows),
    ]
    notes = [
        f"Unpack the zip into Triton's model repository; the model is called {model_name(source)!r} there.",
        "dynamic_batching is the configuration's; load tests measure it, comparisons do not."
        if batching
        else "No dynamic_batching: batching of requests was not measured.",
        "Triton always binds inputs and outputs"
        + (", as the trial did." if spec.workload.use_io_binding else "; the trial did not."),
        *_gpu_notes(plan),
    ]
    body = "\n".join(one for one in blocks if one)
    return f"{head(trial, accepted, tracker, *notes)}\n\n{body}\n"


def pack_triton(source: ExportSource, accepted: str, to: BinaryIO) -> None:
    """Write the repository as a zip to `to`: the configuration, the model, and files with its weights.

    Raises:
        SpecError: as of `export_triton`.
        ModelError: a file is missing, or the model is not the one that was measured.
    """
    text, folder = export_triton(source, accepted), model_name(source)
    path = Path(source.trial.spec["model"]["path"])
    with zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{folder}/config.pbtxt", text)
        with archive.open(f"{folder}/1/model.onnx", "w", force_zip64=True) as file:
            copy_file(path, source.trial.spec["model"].get("sha256"), file)
        for one in source.info["external_data"] if source.info else []:
            if why := path_problem(one["location"]):
                raise SpecError(
                    f"The weights `{one['location'][:80]}` cannot be in the repository: the path {why}.",
                    hint=WEIGHTS_HINT,
                )
            with archive.open(f"{folder}/1/{one['location']}", "w", force_zip64=True) as file:
                copy_file(path.parent / one["location"], one["sha256"], file)


# --- inputs and outputs -------------------------------------------------------------------------------------


def _max_batch(source: ExportSource, spec: TrialSpec, info: wire.ModelInfo) -> tuple[int, str]:
    """Return the largest batch size, or 0 and why Triton cannot batch the model."""
    dim, tensors = info["batch_dim"], [*info["inputs"], *info["outputs"]]
    if dim is None:
        return 0, "the model's batch is fixed, so Triton passes inputs unbatched"
    for one in info["inputs"]:
        if info["batch_axes"].get(one["name"]) != 0:
            return 0, f"the first axis of input {one['name']!r} is not a batch dimension"
    for one in tensors:
        if not (one["shape"] and isinstance(one["shape"][0], str)):
            return 0, f"the first axis of {one['name']!r} is fixed"
    fed = source.trial.facts.get("batch_size")
    return int(fed or spec.workload.batch_size or 1), ""


def _limit(spec: TrialSpec, rows: int, why_not: str) -> str:
    """Return `max_batch_size`, which limits requests as well as the batches that Triton forms."""
    asked = spec.dynamic_batching.max_batch_size if spec.dynamic_batching is not None else 0
    if why_not:
        return f"max_batch_size: 0  # {why_not}"
    if asked > rows:
        return f"max_batch_size: {asked}  # the largest batch of dynamic_batching"
    return f"max_batch_size: {rows}  # the measured batch"


def _dynamic_batching(spec: TrialSpec, tracker: SettingTracker, rows: int) -> str:
    """Return the block; empty: none is asked for, or Triton does not batch the model (`rows` is 0)."""
    batching = spec.dynamic_batching
    if batching is None:
        return ""
    if not rows:
        tracker.mark_unsupported("dynamic_batching", "Triton does not batch this model, see max_batch_size")
        return ""
    tracker.mark_exported("dynamic_batching")
    if rows > batching.max_batch_size:
        tracker.add_unsupported(
            "dynamic_batching.max_batch_size",
            batching.max_batch_size,
            f"Triton's max_batch_size also limits requests, and {rows} samples were measured",
        )
    lines = [f"  max_queue_delay_microseconds: {batching.max_queue_delay_microseconds}"]
    if batching.preferred_batch_size:
        lines.insert(0, f"  preferred_batch_size: {list(batching.preferred_batch_size)}")
    return "\n".join(["dynamic_batching {", *lines, "}"])


def _tensors(field: str, tensors: Sequence[wire.InputInfo], *, batched: bool) -> str:
    parts = []
    for one in tensors:
        if one["shape"] is None or one["dtype"] not in _TYPES:
            raise SpecError(
                f"Triton cannot describe `{one['name']}` of the model: {one['dtype']}, shape {one['shape']}.",
                hint="Choose another format.",
            )
        shape = one["shape"][1:] if batched else one["shape"]
        dims = [size if isinstance(size, int) else -1 for size in shape]
        lines = [
            f"name: {quoted_c(one['name'])}",
            f"data_type: {_TYPES[one['dtype']]}",
            f"dims: {dims or [1]}",
        ]
        lines += [] if dims else ["reshape { shape: [ ] }"]  # a scalar has one element for Triton
        parts.append("  {\n" + "\n".join(f"    {line}" for line in lines) + "\n  }")
    return "\n".join([f"{field} [", ",\n".join(parts), "]"])


# --- session ------------------------------------------------------------------------------------------------


def _chain(plan: wire.SessionPlan) -> list[wire.ProviderPlan]:
    return accelerators(plan, _PROVIDERS, "Triton's ONNX Runtime back end")


def _instances(plan: wire.SessionPlan, spec: TrialSpec) -> str:
    gpu = [one for one in _chain(plan) if one["name"] in _GPU]
    where = "kind: KIND_CPU"
    if gpu:
        where = f"kind: KIND_GPU gpus: [ {int(gpu[0]['options'].get('device_id', '0'))} ]"
    return f"instance_group [ {{ count: {spec.workload.streams} {where} }} ]"


def _gpu_notes(plan: wire.SessionPlan) -> list[str]:
    names = [one["name"] for one in _chain(plan)]
    if any(name in _GPU for name in names) and "CUDAExecutionProvider" not in names:
        return ["On a GPU, Triton adds CUDA after TensorRT; the trial did not use it."]
    return []


def _parameters(plan: wire.SessionPlan, tracker: SettingTracker) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in plan["attributes"].items():
        if name in _PARAMETERS:
            found[_PARAMETERS[name]] = str(int(value == "ORT_PARALLEL" if isinstance(value, str) else value))
            tracker.mark_exported(name)
    for entries, key in ((plan["config_entries"], _INITIALIZERS), (plan["run_config_entries"], _SHRINK)):
        if key in entries:
            found[key] = entries[key]
            tracker.mark_exported(key)
    for provider in _chain(plan):
        if provider["name"] == "CUDAExecutionProvider":
            for key, text in exported_options(provider, tracker, *_CUDA_PARAMETERS).items():
                words = _CUDA_PARAMETERS[key]
                found[key] = str(words.index(text)) if text in words else text
    return found


def _optimization(plan: wire.SessionPlan, tracker: SettingTracker, parameters: Mapping[str, str]) -> str:
    lines = []
    level = plan["attributes"].get("graph_optimization_level")
    if level in _LEVELS:
        lines.append(f"  graph {{ level: {_LEVELS[str(level)]} }}  # {level}")
        tracker.mark_exported("graph_optimization_level")
    elif level is not None:
        tracker.mark_unsupported(
            "graph_optimization_level", "Triton has no such level and uses ORT_ENABLE_ALL"
        )
    kinds: dict[str, list[str]] = {"gpu": [], "cpu": []}
    for provider in _chain(plan):
        kind = "gpu" if provider["name"] in _GPU else "cpu"
        pairs = _accelerator_parameters(provider, tracker, parameters)
        told = "".join(f" parameters {{ key: {quoted_c(k)} value: {quoted_c(v)} }}" for k, v in pairs.items())
        name = quoted_c(_PROVIDERS[provider["name"]])
        kinds[kind].append(f"    {kind}_execution_accelerator {{ name: {name}{told} }}")
    if accelerated := [*kinds["gpu"], *kinds["cpu"]]:
        lines += ["  execution_accelerators {", *accelerated, "  }"]
    return "\n".join(["optimization {", *lines, "}"]) if lines else ""


def _accelerator_parameters(
    provider: wire.ProviderPlan, tracker: SettingTracker, parameters: Mapping[str, str]
) -> dict[str, str]:
    name = provider["name"]
    if name in _GPU:
        exported_options(provider, tracker, "device_id")  # the instance group sets the device
    if name == "CUDAExecutionProvider":
        options = exported_options(provider, tracker)
        return {key: text for key, text in options.items() if key not in {*parameters, "device_id"}}
    if name != "TensorrtExecutionProvider":
        for key, text in provider["options"].items():
            if (key, text) == ("device_type", "CPU"):
                tracker.mark_exported(f"{name}.{key}")
            else:
                tracker.mark_unsupported(
                    f"{name}.{key}", "Triton supports OpenVINO on the CPU without options"
                )
        return {}
    found = {
        _TENSORRT[key]: _switch(text) for key, text in exported_options(provider, tracker, *_TENSORRT).items()
    }
    precisions = [key for key, text in provider["options"].items() if key in _PRECISIONS and text == "True"]
    if precisions:
        found["precision_mode"] = _PRECISIONS[precisions[-1]]
    for key in _PRECISIONS:
        tracker.mark_exported(f"{name}.{key}")
    for key in precisions[:-1]:
        tracker.mark_unsupported(
            f"{name}.{key}", f"Triton supports one precision, here {found['precision_mode']}"
        )
    return found


def _switch(text: str) -> str:
    return {"True": "1", "False": "0"}.get(text, text)


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {quoted_c(key)} value {{ string_value: {quoted_c(value)} }} }}"


def _warm_up(source: ExportSource, spec: TrialSpec, tracker: SettingTracker, rows: int) -> str:
    """Return one warm-up request with the measured shapes, because the measurement was warmed up too."""
    lines = [f"  name: {quoted_c('the shapes that were measured')}", f"  batch_size: {rows}"]
    if spec.protocol.warmup_runs:
        lines.append(f"  count: {spec.protocol.warmup_runs}")
        tracker.mark_exported("warmup_runs")
    inputs = measured_inputs(source.trial, spec, source.info)
    if any(one["dtype"] == "string" or min(one["shape"], default=1) < 0 for one in inputs):
        tracker.mark_unsupported("warmup_runs", "the input shapes come from a file")
        return ""
    for one in inputs:
        shape = one["shape"][1:] if rows else one["shape"]
        # integers may be table indices, and 0 is always valid
        data = "random_data" if one["dtype"].startswith(("float", "bfloat")) else "zero_data"
        value = f"data_type: {_TYPES[one['dtype']]} dims: {shape or [1]} {data}: true"
        lines.append(f"  inputs {{ key: {quoted_c(one['name'])} value {{ {value} }} }}")
    return "\n".join(["model_warmup {", *lines, "}"])
