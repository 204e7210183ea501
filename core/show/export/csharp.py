"""Writes a C# program that builds a trial's session with `Microsoft.ML.OnnxRuntime` and runs it. Pure."""

from __future__ import annotations

from core import wire
from core.run.export_source import ExportSource
from core.show.export.cpp import GENERIC, PROVIDERS
from core.show.export.header import head
from core.show.export.input_values import Fill, input_fills, measured_outputs
from core.show.export.programs import (
    LEVELS,
    NO_FALLBACK,
    accelerators,
    entries,
    exported_options,
    ort_spec,
    plan_of,
    quoted,
)
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec

_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "int8": "sbyte",
    "uint8": "byte",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "bool": "bool",
}
_ATTRIBUTES = {
    "intra_op_num_threads": "IntraOpNumThreads",
    "inter_op_num_threads": "InterOpNumThreads",
    "enable_cpu_mem_arena": "EnableCpuMemArena",
    "enable_mem_pattern": "EnableMemoryPattern",
}
_START = """\
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Security.Cryptography;
using Microsoft.ML.OnnxRuntime;

// before the library is loaded: afterwards is too late
Environment.SetEnvironmentVariable("ORT_DISABLE_TELEMETRY", "1");
"""
_CHECK = """\
if (Convert.ToHexString(SHA256.HashData(File.ReadAllBytes(model))).ToLowerInvariant() != {sha256})
{{
    throw new InvalidDataException($"{{model}} is not the model that was measured.");
}}"""
_POOLS = """\
var pools = new OrtThreadingOptions();
pools.GlobalIntraOpNumThreads = {intra};
pools.GlobalInterOpNumThreads = {inter};
var environment = new EnvironmentCreationOptions {{ logId = "ortune", threadOptions = pools }};
OrtEnv.CreateInstanceWithOptions(ref environment);  // pools of the whole process"""
_PRINT = """\
foreach (var (name, value) in outputNames.Zip(outputs))
{
    Console.WriteLine($"{name} [{string.Join(", ", value.GetTensorTypeAndShape().Shape)}]");
}"""
_FILL = """\
static OrtValue Filled<T>(long[] shape, Func<T> next) where T : unmanaged
{
    var data = new T[shape.Aggregate(1L, (product, size) => product * size)];
    for (var i = 0; i < data.Length; i++) data[i] = next();
    return OrtValue.CreateTensorValueFromMemory(data, shape);
}"""


def export_csharp(source: ExportSource, accepted: str) -> str:
    """Return the program.

    Raises:
        SpecError: another engine, a provider without a call in this API, or an unsupported input.
    """
    trial, spec = source.trial, ort_spec(source.trial)
    tracker, plan = SettingTracker(spec), plan_of(spec)
    outputs = measured_outputs(trial, source.info)
    session = _session(spec, plan, tracker)
    feeds = _feeds(input_fills(trial, spec, source.info, tracker, dtypes=_TYPES), spec)
    run = _run(spec, plan, tracker, outputs)
    gpu = any(one["name"] in wire.CUDA_PROVIDERS for one in plan["providers"])
    notes = [
        "NOT COMPILED HERE. A console program of .NET 8 with the package Microsoft.ML.OnnxRuntime"
        + (".Gpu." if gpu else "."),
        "Random inputs differ from those of the trial.",
    ]
    blocks = [
        head(trial, accepted, tracker, *notes, mark="//"),
        _START.strip("\n"),
        session,
        feeds,
        run,
        _FILL,
    ]
    return "\n\n".join(blocks) + "\n"


def _session(spec: TrialSpec, plan: wire.SessionPlan, tracker: SettingTracker) -> str:
    lines = [f"const string model = {quoted(spec.model.path)};"]
    if spec.model.sha256:
        lines.append(_CHECK.format(sha256=quoted(spec.model.sha256)))
    attributes = plan["attributes"]
    own_pools = attributes.get("use_per_session_threads") is not False
    if not own_pools:
        sizes = {pool: attributes.get(f"{pool}_op_num_threads", 0) for pool in ("intra", "inter")}
        lines.append(_POOLS.format(**sizes))
        tracker.mark_exported("use_per_session_threads")
    lines.append("using var options = new SessionOptions();")
    lines += [] if own_pools else ["options.DisablePerSessionThreads();"]
    for name, value in attributes.items():
        if (text := _attribute(name, value)) is not None:
            lines.append(f"options.{text};")
            tracker.mark_exported(name)
    lines += [
        f"options.AddSessionConfigEntry({quoted(key)}, {quoted(text)});"
        for key, text in entries(plan, tracker).items()
    ]
    lines += [
        f"options.AddFreeDimensionOverrideByName({quoted(name)}, {size});"
        for name, size in plan["free_dimension_overrides"].items()
    ]
    tracker.mark_exported("free_dimension_overrides", "providers")
    tracker.mark_unsupported("allow_fallback", NO_FALLBACK)
    for number, one in enumerate(accelerators(plan, PROVIDERS, "the C# program")):
        lines += _provider(one, tracker, f"provider{number}")
    return "\n".join([*lines, "using var session = new InferenceSession(model, options);"])


def _attribute(name: str, value: bool | int | str) -> str | None:
    if name == "graph_optimization_level":
        return f"GraphOptimizationLevel = (GraphOptimizationLevel){LEVELS[str(value)]}"
    if name == "execution_mode":
        return f"ExecutionMode = ExecutionMode.{value}"
    known = _ATTRIBUTES.get(name)
    return f"{known} = {str(value).lower()}" if known else None


def _provider(one: wire.ProviderPlan, tracker: SettingTracker, name: str) -> list[str]:
    pairs = [f"[{quoted(key)}] = {quoted(text)}" for key, text in exported_options(one, tracker).items()]
    made = f"new Dictionary<string, string> {{ {', '.join(pairs)} }}"
    if one["name"] in GENERIC:
        return [f'options.AppendExecutionProvider("{GENERIC[one["name"]]}", {made});']
    kind, call = ("CUDA", "CUDA") if one["name"].startswith("CUDA") else ("TensorRT", "Tensorrt")
    return [
        f"using var {name} = new Ort{kind}ProviderOptions();",
        f"{name}.UpdateOptions({made});",
        f"options.AppendExecutionProvider_{call}({name});",
    ]


def _feeds(feeds: list[Fill], spec: TrialSpec) -> str:
    names = ", ".join(quoted(one.name) for one in feeds)
    lines = [
        f"var random = new Random({spec.workload.seed});",
        f"var inputNames = new string[] {{ {names} }};",
    ]
    lines += ["var inputs = new List<OrtValue>", "{"]
    for one in feeds:
        shape = ", ".join(map(str, one.shape))
        kind = _TYPES[one.dtype]
        lines.append(f"    Filled<{kind}>(new long[] {{ {shape} }}, () => {_number(one, kind)}),")
    return "\n".join([*lines, "};"])


def _number(one: Fill, kind: str) -> str:
    whole = one.dtype == "bool" or "int" in one.dtype
    if one.dtype == "bool":
        text = str(bool(one.constant)).lower() if one.constant is not None else ""
        return text or f"random.NextInt64({int(one.low)}, {int(one.high)}) != 0"
    if one.constant is not None:
        text = repr(int(one.constant) if whole else one.constant)
    elif whole:
        high = min(int(one.high), 2**63 - 1)
        text = f"random.NextInt64({max(int(one.low), -(2**63) + 1)}, {high})"
    else:
        text = f"{float(one.low)!r} + random.NextDouble() * {float(one.high) - float(one.low)!r}"
    if one.dtype in ("float16", "bfloat16"):
        return f"({kind})(float)({text})"
    return f"({kind})({text})"


def _run(spec: TrialSpec, plan: wire.SessionPlan, tracker: SettingTracker, outputs: list[str]) -> str:
    names = ", ".join(map(quoted, outputs))
    lines = [f"var outputNames = new string[] {{ {names} }};", "using var runOptions = new RunOptions();"]
    for key, text in plan["run_config_entries"].items():
        lines.append(f"runOptions.AddRunConfigEntry({quoted(key)}, {quoted(text)});")
        tracker.mark_exported(key)
    tracker.mark_exported("use_io_binding")
    if not spec.workload.use_io_binding:
        call = "session.Run(runOptions, inputNames, inputs, outputNames)"
        return "\n".join([*lines, f"using var outputs = {call};", _PRINT])
    first, memory = plan["providers"][0], "OrtMemoryInfo.DefaultInstance"
    if first["name"] in wire.CUDA_PROVIDERS:
        device = int(first["options"].get("device_id", "0"))
        memory = f'new OrtMemoryInfo("Cuda", OrtAllocatorType.DeviceAllocator, {device}, OrtMemType.Default)'
    lines += [
        "using var binding = session.CreateIoBinding();",
        "foreach (var (name, value) in inputNames.Zip(inputs)) binding.BindInput(name, value);",
        f"var memory = {memory};  // where the outputs stay",
        "foreach (var name in outputNames) binding.BindOutputToDevice(name, memory);",
        "session.RunWithBinding(runOptions, binding);",
        "binding.SynchronizeBoundOutputs();",
        "using var outputs = binding.GetOutputValues();",
        _PRINT,
    ]
    return "\n".join(lines)
