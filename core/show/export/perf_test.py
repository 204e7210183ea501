"""Writes a shell script that runs `onnxruntime_perf_test` with a trial's session. Pure.

Source of the options: `command_args_parser.cc` of ONNX Runtime's `onnxruntime/test/perftest`.
"""

from __future__ import annotations

import shlex

from core import wire
from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.input_values import measured_inputs
from core.show.export.programs import (
    DISABLED,
    LEVELS,
    accelerators,
    entries,
    exported_options,
    ort_spec,
)
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec
from core.wire.errors import SpecError
from core.wire.units import visible

_PROVIDERS = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "tensorrt",
    "NvTensorRTRTXExecutionProvider": "nvtensorrtrtx",
    "OpenVINOExecutionProvider": "openvino",
    "DnnlExecutionProvider": "dnnl",
    "DmlExecutionProvider": "dml",
    "ACLExecutionProvider": "acl",
    "NnapiExecutionProvider": "nnapi",
    "VSINPUExecutionProvider": "vsinpu",
    "CoreMLExecutionProvider": "coreml",
    "QNNExecutionProvider": "qnn",
    "MIGraphXExecutionProvider": "migraphx",
    "XnnpackExecutionProvider": "xnnpack",
    "VitisAIExecutionProvider": "vitisai",
    "WebGpuExecutionProvider": "webgpu",
}
_SHRINK = "memory.enable_memory_arena_shrinkage"
_ONE = "onnxruntime_perf_test supports one provider besides the CPU; {left} is omitted"
_APART = "it contains a space or `|`, which separate the entries of this option"


def export_perf_test(source: ExportSource, accepted: str) -> str:
    """Return the script.

    Raises:
        SpecError: another engine, a provider that the tool lacks, unknown inputs, or a name that is not
            printable.
    """
    trial, spec = source.trial, ort_spec(source.trial)
    tracker, plan = SettingTracker(spec), session_plan(spec.session)
    words = ["onnxruntime_perf_test", *_provider(plan, spec, tracker), *_attributes(plan, tracker)]
    words += _entries(plan, tracker)
    words += _feeds(measured_inputs(trial, spec, source.info), spec, tracker)
    if spec.protocol.runs:
        words += ["-r", str(spec.protocol.runs)]
        tracker.mark_exported("runs")
    path = spec.model.path
    words.append(f"./{path}" if path.startswith("-") else path)  # else it would be an option
    if spec.protocol.cpus:
        words = ["taskset", "-c", spec.protocol.cpus, *words]
        tracker.mark_exported("cpus")
    command = shlex.join(words)
    if not command.isprintable():  # a shell would take them, but so would the terminal that shows the file
        raise SpecError(
            f"A name of the trial holds characters that are not printable: `{visible(command)[:200]}`.",
            hint="Choose the format python, which escapes them.",
        )
    notes = [
        "Built with ONNX Runtime's tests. Uses random inputs and measures one configuration, "
        "without a comparison."
    ]
    return "\n".join(["#!/bin/sh", head(trial, accepted, tracker, *notes), f"exec {command}", ""])


def _provider(plan: wire.SessionPlan, spec: TrialSpec, tracker: SettingTracker) -> list[str]:
    chain = accelerators(plan, _PROVIDERS, "onnxruntime_perf_test")
    tracker.mark_exported("providers")
    if not chain:
        return ["-e", "cpu"]
    first, *others = chain
    if others:
        tracker.mark_unsupported("providers", _ONE.format(left=", ".join(one["name"] for one in others)))
    words, options = (
        ["-e", _PROVIDERS[first["name"]]],
        _fit(exported_options(first, tracker), tracker, first["name"]),
    )
    if options:
        words += ["-i", options]
    if spec.workload.use_io_binding and first["name"] in wire.CUDA_PROVIDERS:
        words.append("-g")
        tracker.mark_exported("use_io_binding")
    return words


def _fit(pairs: dict[str, str], tracker: SettingTracker, of: str = "") -> str:
    """Join `key|value` pairs with spaces; pairs that would be ambiguous stay unexported."""
    fits = {key: text for key, text in pairs.items() if not set(" |\t\n") & set(key + text) and text}
    for key in pairs.keys() - fits.keys():
        tracker.mark_unsupported(
            "disabled_optimizers" if key == DISABLED else f"{of}.{key}" if of else key, _APART
        )
    return " ".join(f"{key}|{text}" for key, text in fits.items())


def _attributes(plan: wire.SessionPlan, tracker: SettingTracker) -> list[str]:
    words: list[str] = []
    for name, value in plan["attributes"].items():
        found = {
            "intra_op_num_threads": ["-x", str(value)],
            "inter_op_num_threads": ["-y", str(value)],
            "graph_optimization_level": ["-o", str(LEVELS.get(str(value), value))],
            "execution_mode": ["-P"] if value == "ORT_PARALLEL" else [],
            "enable_cpu_mem_arena": [] if value else ["-A"],
            "enable_mem_pattern": [] if value else ["-M"],
        }.get(name)
        if found is not None:
            words += found
            tracker.mark_exported(name)
    for name, size in plan["free_dimension_overrides"].items():
        words += ["-f", f"{name}:{size}"]
    tracker.mark_exported("free_dimension_overrides")
    return words


def _entries(plan: wire.SessionPlan, tracker: SettingTracker) -> list[str]:
    words: list[str] = []
    if options := _fit(entries(plan, tracker), tracker):
        words += ["-C", options]
    if shrink := plan["run_config_entries"].get(_SHRINK):
        words += ["--shrink_arena_between_runs", shrink]
        tracker.mark_exported(_SHRINK)
    return words


def _feeds(inputs: list[wire.InputPlan], spec: TrialSpec, tracker: SettingTracker) -> list[str]:
    tracker.mark_unsupported("feeds", "it generates its inputs")
    tracker.mark_unsupported("feed_values", "it generates its inputs")
    words = ["-I"]  # random inputs
    if spec.workload.seed:
        words += ["-S", str(spec.workload.seed)]
    tracker.mark_exported("seed", "batch_size", "dims")
    shapes = [f"{one['name']}:[{','.join(map(str, one['shape']))}]" for one in inputs if one["shape"]]
    if any(" " in one["name"] for one in inputs):
        for name in ("batch_size", "dims"):
            tracker.mark_unsupported(
                name, "an input name contains a space, which separates the shapes of this option"
            )
        return words
    return [*words, "--data_shape", " ".join(shapes)] if shapes else words
