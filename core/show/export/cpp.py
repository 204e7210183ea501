"""Writes a C++ program that builds a trial's session with ONNX Runtime's C++ API and runs it once. Pure.

It uses the API of ONNX Runtime 1.13, and later functions only for settings that need them.
"""

from __future__ import annotations

from core import wire
from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.input_values import Fill, input_fills, measured_outputs
from core.show.export.programs import (
    LEVELS,
    accelerators,
    entries,
    exported_options,
    ort_spec,
    quoted_c,
)
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec

# Providers of the generic call, with its names for them; CUDA and TensorRT have separate calls.
_GENERIC = {
    "OpenVINOExecutionProvider": "OpenVINO",
    "QNNExecutionProvider": "QNN",
    "XnnpackExecutionProvider": "XNNPACK",
    "WebGpuExecutionProvider": "WebGPU",
    "DmlExecutionProvider": "DML",
    "CoreMLExecutionProvider": "CoreML",
    "VitisAIExecutionProvider": "VitisAI",
    "AzureExecutionProvider": "AZURE",
}
_PROVIDERS = {"CUDAExecutionProvider": "CUDA", "TensorrtExecutionProvider": "TensorRT", **_GENERIC}
_TYPES = {  # numpy's name -> the type in memory, ONNX's name
    "float32": ("float", "FLOAT"),
    "float64": ("double", "DOUBLE"),
    "float16": ("uint16_t", "FLOAT16"),
    "bfloat16": ("uint16_t", "BFLOAT16"),
    "int8": ("int8_t", "INT8"),
    "uint8": ("uint8_t", "UINT8"),
    "int16": ("int16_t", "INT16"),
    "uint16": ("uint16_t", "UINT16"),
    "int32": ("int32_t", "INT32"),
    "uint32": ("uint32_t", "UINT32"),
    "int64": ("int64_t", "INT64"),
    "uint64": ("uint64_t", "UINT64"),
    "bool": ("bool", "BOOL"),
}

_INCLUDES = """\
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>
"""
_TENSOR = """\
static std::deque<std::vector<char>> buffers;  // what the values point to lives as long as they do

template <typename T, typename Next>
static Ort::Value tensor(const std::vector<int64_t>& shape, ONNXTensorElementDataType type, Next next) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  buffers.emplace_back(count * sizeof(T) + 1);
  T* const data = reinterpret_cast<T*>(buffers.back().data());
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<T>(next());
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor(memory, data, count * sizeof(T), shape.data(), shape.size(), type);
}
"""
_BITS = """\
static uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
"""
_HALF = """\
static uint16_t half(float value) {  // the bits of a float16, cut off
  const uint32_t bits = bits_of(value);
  const int exponent = static_cast<int>((bits >> 23) & 255) - 112;
  const uint32_t sign = (bits >> 16) & 32768;
  return static_cast<uint16_t>(exponent <= 0 ? sign : sign | (exponent << 10) | ((bits >> 13) & 1023));
}
"""
_BFLOAT = """\
static uint16_t bfloat(float value) { return static_cast<uint16_t>(bits_of(value) >> 16); }
"""
_WHOLE = "std::uniform_int_distribution<int64_t>({low}, {last})(random)"
_FLOAT = "std::uniform_real_distribution<double>({low}, {high})(random)"
_PRINT = """\
for (size_t i = 0; i < outputs.size(); ++i) {
  std::cout << output_names[i] << " [";
  const auto shape = outputs[i].GetTensorTypeAndShapeInfo().GetShape();
  for (size_t axis = 0; axis < shape.size(); ++axis) std::cout << (axis ? ", " : "") << shape[axis];
  std::cout << "]" << std::endl;
}
"""
_OWN_OPTIONS = """\
{{
  Ort{type}ProviderOptionsV2* own = nullptr;
  Ort::ThrowOnError(Ort::GetApi().Create{type}ProviderOptions(&own));
  const std::vector<const char*> keys{{{keys}}};
  const std::vector<const char*> values{{{values}}};
  Ort::ThrowOnError(Ort::GetApi().Update{type}ProviderOptions(own, keys.data(), values.data(), keys.size()));
  options.AppendExecutionProvider_{type}_V2(*own);
  Ort::GetApi().Release{type}ProviderOptions(own);
}}"""


def export_cpp(source: ExportSource, accepted: str) -> str:
    """Return the program.

    Raises:
        SpecError: another engine, a provider without a call in this API, or an unsupported input.
    """
    trial, spec = source.trial, ort_spec(source.trial)
    tracker, plan = SettingTracker(spec), session_plan(spec.session)
    outputs = measured_outputs(trial, source.info)
    options = _session(spec, plan, tracker)
    feeds = input_fills(trial, spec, source.info, tracker, dtypes=_TYPES)
    body = [*options, "", *_values(feeds, spec), "", *_run(spec, plan, tracker, feeds, outputs)]
    main = "\n".join(["int main() {", *(f"  {line}" if line else "" for line in body), "}", ""])
    notes = [
        "NOT COMPILED HERE. Build: g++ -std=c++17 -I INCLUDE FILE.cpp -L LIB -lonnxruntime; start it with",
        "ORT_DISABLE_TELEMETRY=1 in its environment. Random inputs differ from those of the trial.",
        *([f"MODEL must have this SHA-256: {spec.model.sha256}"] if spec.model.sha256 else []),
    ]
    blocks = [head(trial, accepted, tracker, *notes, mark="//"), _INCLUDES, *_helpers(feeds), main]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def _helpers(feeds: list[Fill]) -> list[str]:
    dtypes = {one.dtype for one in feeds}
    found = [_TENSOR] if feeds else []
    if dtypes & {"float16", "bfloat16"}:
        found.append(_BITS)
    return found + [text for name, text in (("float16", _HALF), ("bfloat16", _BFLOAT)) if name in dtypes]


def _session(spec: TrialSpec, plan: wire.SessionPlan, tracker: SettingTracker) -> list[str]:
    lines = _environment(plan, tracker)
    for name, value in plan["attributes"].items():
        if (line := _attribute(name, value)) is not None:
            lines.append(line)
            tracker.mark_exported(name)
    lines += [
        f"options.AddConfigEntry({quoted_c(key)}, {quoted_c(text)});"
        for key, text in entries(plan, tracker).items()
    ]
    for name, size in plan["free_dimension_overrides"].items():
        lines.append(
            "Ort::ThrowOnError(Ort::GetApi().AddFreeDimensionOverrideByName("
            f"options, {quoted_c(name)}, {size}));"
        )
    tracker.mark_exported("free_dimension_overrides", "providers")
    tracker.mark_unsupported("allow_fallback", "a provider that does not load ends the program")
    for one in accelerators(plan, _PROVIDERS, "the C++ program"):
        lines += _provider(one, tracker)
    path = f"const std::filesystem::path model({quoted_c(spec.model.path)});"
    return [*lines, path, "Ort::Session session(env, model.c_str(), options);"]


def _environment(plan: wire.SessionPlan, tracker: SettingTracker) -> list[str]:
    """Return the environment, with global thread pools if the session uses them."""
    attributes = plan["attributes"]
    if attributes.get("use_per_session_threads") is not False:
        return ['Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "ortune");', "Ort::SessionOptions options;"]
    tracker.mark_exported("use_per_session_threads")
    intra, inter = (attributes.get(f"{pool}_op_num_threads", 0) for pool in ("intra", "inter"))
    return [
        "OrtThreadingOptions* pools = nullptr;  // of the whole process",
        "Ort::ThrowOnError(Ort::GetApi().CreateThreadingOptions(&pools));",
        f"Ort::ThrowOnError(Ort::GetApi().SetGlobalIntraOpNumThreads(pools, {intra}));",
        f"Ort::ThrowOnError(Ort::GetApi().SetGlobalInterOpNumThreads(pools, {inter}));",
        'Ort::Env env(pools, ORT_LOGGING_LEVEL_WARNING, "ortune");',
        "Ort::GetApi().ReleaseThreadingOptions(pools);",
        "Ort::SessionOptions options;",
        "options.DisablePerSessionThreads();",
    ]


def _attribute(name: str, value: bool | int | str) -> str | None:
    switches = {"enable_cpu_mem_arena": "CpuMemArena", "enable_mem_pattern": "MemPattern"}
    if name in switches:
        return f"options.{'Enable' if value else 'Disable'}{switches[name]}();"
    if name == "use_deterministic_compute":
        return f"Ort::ThrowOnError(Ort::GetApi().SetDeterministicCompute(options, {str(value).lower()}));"
    if name == "graph_optimization_level":
        level = f"static_cast<GraphOptimizationLevel>({LEVELS[str(value)]})"
        return f"options.SetGraphOptimizationLevel({level});  // {value}"
    return {
        "intra_op_num_threads": f"options.SetIntraOpNumThreads({value});",
        "inter_op_num_threads": f"options.SetInterOpNumThreads({value});",
        "execution_mode": f"options.SetExecutionMode({value});",
    }.get(name)


def _provider(one: wire.ProviderPlan, tracker: SettingTracker) -> list[str]:
    options = exported_options(one, tracker)
    if one["name"] in _GENERIC:
        pairs = [f"{{{quoted_c(k)}, {quoted_c(v)}}}" for k, v in options.items()]
        made = f"std::unordered_map<std::string, std::string>{{{', '.join(pairs)}}}"
        return [f'options.AppendExecutionProvider("{_GENERIC[one["name"]]}", {made});']
    text = _OWN_OPTIONS.format(
        type=_PROVIDERS[one["name"]],
        keys=", ".join(quoted_c(key) for key in options),
        values=", ".join(quoted_c(text) for text in options.values()),
    )
    return text.splitlines()


def _values(feeds: list[Fill], spec: TrialSpec) -> list[str]:
    names = ", ".join(quoted_c(one.name) for one in feeds)
    lines = [f"const std::vector<const char*> input_names{{{names}}};", "std::vector<Ort::Value> inputs;"]
    if any(one.constant is None for one in feeds):
        lines.insert(0, f"std::mt19937_64 random({spec.workload.seed});")
    for one in feeds:
        kind, onnx = _TYPES[one.dtype]
        shape = ", ".join(map(str, one.shape))
        maker = f"tensor<{kind}>({{{shape}}}, ONNX_TENSOR_ELEMENT_DATA_TYPE_{onnx}"
        lines.append(f"inputs.push_back({maker}, [&] {{ return {_number(one)}; }}));")
    return lines


def _number(one: Fill) -> str:
    whole = one.dtype == "bool" or "int" in one.dtype
    if one.constant is not None:
        text = repr(int(one.constant) if whole else one.constant)
        if one.dtype in ("int64", "uint64"):
            text = f"UINT64_C({text})" if one.constant >= 2**63 else _int64(int(one.constant))
    elif whole:
        text = _WHOLE.format(low=_int64(int(one.low)), last=_int64(int(one.high) - 1))
    else:
        text = _FLOAT.format(low=float(one.low), high=float(one.high))
    made = {"float16": "half", "bfloat16": "bfloat"}.get(one.dtype)
    return f"{made}(static_cast<float>({text}))" if made else text


def _int64(number: int) -> str:
    """Return a literal; C++ has none for the smallest int64."""
    return "INT64_MIN" if number <= -(2**63) else f"INT64_C({min(number, 2**63 - 1)})"


def _run(
    spec: TrialSpec, plan: wire.SessionPlan, tracker: SettingTracker, feeds: list[Fill], outputs: list[str]
) -> list[str]:
    names = ", ".join(quoted_c(name) for name in outputs)
    lines = [f"const std::vector<const char*> output_names{{{names}}};", "Ort::RunOptions run_options;"]
    for key, text in plan["run_config_entries"].items():
        lines.append(f"run_options.AddConfigEntry({quoted_c(key)}, {quoted_c(text)});")
        tracker.mark_exported(key)
    tracker.mark_exported("use_io_binding")
    if spec.workload.use_io_binding:
        lines += _bound(plan, feeds)
    else:
        lines.append(
            "const auto outputs = session.Run(run_options, input_names.data(), inputs.data(), inputs.size(),"
            " output_names.data(), output_names.size());"
        )
    return [*lines, *_PRINT.strip("\n").splitlines()]


def _bound(plan: wire.SessionPlan, feeds: list[Fill]) -> list[str]:
    first = plan["providers"][0]
    memory = "Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault)"
    if first["name"] in wire.CUDA_PROVIDERS:
        device = int(first["options"].get("device_id", "0"))
        memory = f'Ort::MemoryInfo("Cuda", OrtDeviceAllocator, {device}, OrtMemTypeDefault)'
    return [
        "Ort::IoBinding binding(session);",
        "for (size_t i = 0; i < inputs.size(); ++i) binding.BindInput(input_names[i], inputs[i]);"
        if feeds
        else "// the model has no inputs",
        f"const auto memory = {memory};  // where the outputs stay",
        "for (const char* name : output_names) binding.BindOutput(name, memory);",
        "session.Run(run_options, binding);",
        "binding.SynchronizeOutputs();",
        "const auto outputs = binding.GetOutputValues();",
    ]
