"""Writes a Node program that builds a trial's session with `onnxruntime-node` and runs it once. Pure.

Texts of a configuration enter the program only as JSON in plain ASCII, so no text can become code.
"""

from __future__ import annotations

import json

from core import wire
from core.evidence.measurement import Trial
from core.run.export_source import ExportSource
from core.run.plan import session_plan
from core.show.export.header import head
from core.show.export.input_values import Fill, input_fills
from core.show.export.programs import accelerators, entries, exported_options, ort_spec
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec

# Source: `session_options_helper.cc` of the Node binding. It reads only the device of a provider, and
# neither free dimensions nor run config entries.
_PROVIDERS = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "tensorrt",
    "DmlExecutionProvider": "dml",
    "CoreMLExecutionProvider": "coreml",
    "WebGpuExecutionProvider": "webgpu",
    "QNNExecutionProvider": "qnn",
}
_LEVELS = {
    "ORT_DISABLE_ALL": "disabled",
    "ORT_ENABLE_BASIC": "basic",
    "ORT_ENABLE_EXTENDED": "extended",
    "ORT_ENABLE_LAYOUT": "layout",
    "ORT_ENABLE_ALL": "all",
}
_ARRAYS = {
    "float32": "Float32Array",
    "float64": "Float64Array",
    "float16": "Uint16Array",  # as raw bits
    "int8": "Int8Array",
    "uint8": "Uint8Array",
    "int16": "Int16Array",
    "uint16": "Uint16Array",
    "int32": "Int32Array",
    "uint32": "Uint32Array",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "bool": "Uint8Array",
}
_NAMES = {
    "intra_op_num_threads": "intraOpNumThreads",
    "inter_op_num_threads": "interOpNumThreads",
    "enable_cpu_mem_arena": "enableCpuMemArena",
    "enable_mem_pattern": "enableMemPattern",
}

_START = """\
"use strict";

process.env.ORT_DISABLE_TELEMETRY = "1"; // before the package is loaded: afterwards is too late

const ort = require("onnxruntime-node");
"""
_CHECK = """\
const SHA256 = {sha256};
const bytes = require("node:fs").readFileSync(MODEL);
if (require("node:crypto").createHash("sha256").update(bytes).digest("hex") !== SHA256) {{
  throw new Error(`${{MODEL}} is not the model that was measured.`);
}}
"""
_RANDOM = """\
let state = {seed};

function random() {{ // in [0, 1); the same numbers in every start
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
}}
"""
_TENSOR = """\
function tensor(type, Data, shape, next) {
  const data = new Data(shape.reduce((product, size) => product * size, 1));
  for (let i = 0; i < data.length; i++) data[i] = next();
  return new ort.Tensor(type, data, shape);
}
"""
_HALF = """\
function half(value) { // the bits of a float16, cut off
  const bits = new Uint32Array(new Float32Array([value]).buffer)[0];
  const exponent = ((bits >>> 23) & 255) - 112;
  if (exponent <= 0) return (bits >>> 16) & 32768;
  return ((bits >>> 16) & 32768) | (exponent << 10) | ((bits >>> 13) & 1023);
}
"""
_MAIN = """\
async function main() {
  const session = await ort.InferenceSession.create(MODEL, options);
  const outputs = await session.run(feeds);
  for (const name of session.outputNames) console.log(name, JSON.stringify(outputs[name].dims));
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
"""


def export_javascript(source: ExportSource, accepted: str) -> str:
    """Return the program.

    Raises:
        SpecError: another engine, a provider that Node's package lacks, or an unsupported input.
    """
    trial, spec = source.trial, ort_spec(source.trial)
    tracker = SettingTracker(spec)
    options = _options(spec, session_plan(spec.session), tracker)
    feeds = input_fills(trial, spec, source.info, tracker, dtypes=_ARRAYS)
    blocks = [_START, _model(spec), f"const options = {json.dumps(options, indent=2)};", *_feeds(feeds, spec)]
    return "\n\n".join([_head(trial, accepted, tracker), *(one.strip("\n") for one in blocks), _MAIN])


def _head(trial: Trial, accepted: str, tracker: SettingTracker) -> str:
    need = "needs `npm install onnxruntime-node`"
    return head(
        trial,
        accepted,
        tracker,
        f"For Node; {need}. Random inputs differ from those of the trial.",
        mark="//",
    )


def _model(spec: TrialSpec) -> str:
    line = f"const MODEL = {json.dumps(spec.model.path)};\n"
    return line + (_CHECK.format(sha256=json.dumps(spec.model.sha256)) if spec.model.sha256 else "")


def _options(spec: TrialSpec, plan: wire.SessionPlan, tracker: SettingTracker) -> dict[str, object]:
    providers: list[object] = []
    for one in accelerators(plan, _PROVIDERS, "onnxruntime-node"):
        device = exported_options(one, tracker, "device_id").get("device_id")
        name = _PROVIDERS[one["name"]]
        providers.append({"name": name, "deviceId": int(device)} if device else name)
    tracker.mark_exported("providers")
    options: dict[str, object] = {"executionProviders": [*providers, "cpu"]}
    for name, value in plan["attributes"].items():
        if name in _NAMES:
            options[_NAMES[name]] = value
        elif name == "graph_optimization_level":
            options["graphOptimizationLevel"] = _LEVELS[str(value)]
        elif name == "execution_mode":
            options["executionMode"] = "parallel" if value == "ORT_PARALLEL" else "sequential"
        else:
            continue
        tracker.mark_exported(name)
    if extra := entries(plan, tracker):
        options["extra"] = extra
    return options


def _feeds(feeds: list[Fill], spec: TrialSpec) -> list[str]:
    blocks = [_RANDOM.format(seed=spec.workload.seed), _TENSOR]
    if any(one.dtype == "float16" for one in feeds):
        blocks.append(_HALF)
    lines = [
        f"  [{json.dumps(one.name)}]: "
        f'tensor("{one.dtype}", {_ARRAYS[one.dtype]}, {one.shape}, () => {_value(one)}),'
        for one in feeds
    ]
    return [*blocks, "\n".join(["const feeds = {", *lines, "};"])]


def _value(one: Fill) -> str:
    whole = one.dtype == "bool" or "int" in one.dtype
    if one.constant is not None:
        text = repr(int(one.constant) if whole else one.constant)
    elif whole:
        text = f"{int(one.low)} + Math.floor(random() * {int(one.high) - int(one.low)})"
    else:
        text = f"{float(one.low)!r} + random() * {float(one.high) - float(one.low)!r}"
    if one.dtype == "float16":
        return f"half({text})"
    if one.dtype not in ("int64", "uint64"):
        return text
    return f"BigInt({text})" if one.constant is None else f"{text}n"  # a number does not hold every int64
