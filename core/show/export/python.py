"""Writes a Python script that builds a trial's session and runs it once. Pure: a trial in, text out.

Every value in the script is written by `repr`, so no text of a configuration can become code.
The script needs numpy and onnxruntime, nothing of ORTune.
"""

from __future__ import annotations

from collections.abc import Sequence

from core import wire
from core.evidence.input_description import takes_images
from core.evidence.measurement import Trial
from core.run.plan import session_plan
from core.show.export import header
from core.show.export.input_values import measured_inputs
from core.show.export.parts import (
    BFLOAT16,
    BOUND_RUN,
    FP16,
    IMAGES,
    LIBRARIES,
    NORMALIZED,
    NPZ,
    PLUGGED,
    VALUES,
)
from core.show.export.programs import ort_spec
from core.show.export.unsupported import SettingTracker
from core.spec import SessionSpec, TrialSpec, WorkloadSpec
from core.spec.checks import cpu_list
from core.wire.access import library
from core.wire.feeding import (
    IMAGE_MODES,
    IMAGE_SUFFIXES,
    IMAGENET_MEAN,
    IMAGENET_STD,
    INTEGERS,
    STRING,
    channel_axis,
    random_range,
)

_CONVERTER = "DEFAULT_OP_BLOCK_LIST, convert_float_to_float16"


def export_python(trial: Trial, info: wire.ModelInfo | None = None, *, accepted_breach: str = "") -> str:
    """Return a script that builds the trial's session and runs it once on inputs of the same shapes.

    Args:
        trial: to reproduce.
        info: the model facts of `inspect`; with them, random inputs keep the trial's ranges, otherwise they
            use values that suit any model.
        accepted_breach: as of `export_yaml`.

    Raises:
        SpecError: the outputs exceed the tolerance and no reason is given for accepting that; the inputs are
            unknown, because there is neither a result nor `info`; or the trial ran PyTorch without a session.
    """
    spec = ort_spec(trial)
    accepted = header.accepted(trial, accepted_breach)
    inputs = measured_inputs(trial, spec, info)
    blocks = [
        _head(trial, spec, accepted),
        _model(spec),
        _libraries(spec.session),
        _session(spec),
        _feeds(spec, inputs),
        _run(spec, _uses_bfloat16(trial, inputs)),
    ]
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def _uses_bfloat16(trial: Trial, inputs: Sequence[wire.InputPlan]) -> bool:
    outputs: Sequence[wire.TensorInfo] = trial.facts.get("outputs") or []
    return any(one["dtype"] == "bfloat16" for one in (*inputs, *outputs))


def _head(trial: Trial, spec: TrialSpec, accepted: str) -> str:
    image_files = spec.workload.feeds != "random" and not _is_npz(spec.workload.feeds)
    libraries = spec.session.libraries
    standard = {
        "import hashlib": spec.model.sha256 or libraries,
        "import os": True,
        "import sys": spec.session.allow_fallback,
        "from pathlib import Path": spec.model.sha256 or image_files or libraries,
    }
    other = {
        "import numpy as np": True,
        "import onnx": spec.model.precision == "fp16",
        "import onnxruntime as ort": True,
        f"from onnxruntime.transformers.float16 import {_CONVERTER}": spec.model.precision == "fp16",
        "from PIL import Image, ImageOps": image_files,
    }
    return "\n".join(
        [
            header.head(trial, accepted, _tracker(spec)),
            *(line for line, needed in standard.items() if needed),
            "",
            'os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import: afterwards is too late',
            "",
            *(line for line, needed in other.items() if needed),
            *_affinity(spec.protocol.cpus),
        ]
    )


def _tracker(spec: TrialSpec) -> SettingTracker:
    tracker = SettingTracker(spec)
    tracker.mark_all_exported_but("protocol")
    tracker.mark_exported("cpus")
    return tracker


def _affinity(cpus: str) -> list[str]:
    """Return the lines that pin the process to the trial's CPUs."""
    if not cpus:
        return []
    numbers = ", ".join(map(str, cpu_list(cpus)))
    return ["", f"os.sched_setaffinity(0, {{{numbers}}})  # before the session starts its threads"]


def _model(spec: TrialSpec) -> str:
    lines = [f"MODEL = {spec.model.path!r}"]
    if spec.model.sha256:
        lines += [
            f"SHA256 = {spec.model.sha256!r}",
            "",
            "if hashlib.sha256(Path(MODEL).read_bytes()).hexdigest() != SHA256:",
            '    raise RuntimeError(f"{MODEL} is not the model that was measured.")',
        ]
    if spec.model.precision == "fp16":
        lines += ["", FP16.format(keep_io_types=spec.model.keep_io_types).strip("\n")]
    return "\n".join(lines)


def _libraries(session: SessionSpec) -> str:
    """Return the lines that take the paths of native libraries from the user and check their hashes."""
    if not session.libraries:
        return ""
    return LIBRARIES.strip("\n")


def _library(text: str) -> str:
    found = library(text)
    return f"library({found.name!r}, {found.sha256!r})"


def _has_plugin_providers(spec: TrialSpec) -> bool:
    """Whether plug-in libraries provide providers: then the provider chain is part of the options."""
    return bool(spec.session.provider_libraries)


def _chain(spec: TrialSpec) -> list[str]:
    if not _has_plugin_providers(spec):
        return []
    named = [(library(text).name, _library(text)) for text in spec.session.provider_libraries]
    return [
        *(f"ort.register_execution_provider_library({name!r}, {call})" for name, call in named),
        PLUGGED.strip("\n"),
    ]


def _session(spec: TrialSpec) -> str:
    plan = session_plan(spec.session)
    lines = ["options = ort.SessionOptions()"]
    lines += [
        f"options.register_custom_ops_library({_library(text)})" for text in spec.session.custom_op_libraries
    ]
    lines += [f"options.{name} = {_attribute(name, value)}" for name, value in plan["attributes"].items()]
    lines += [
        f"options.add_session_config_entry({key!r}, {text!r})" for key, text in plan["config_entries"].items()
    ]
    lines += [
        f"options.add_free_dimension_override_by_name({name!r}, {size})"
        for name, size in plan["free_dimension_overrides"].items()
    ]
    if plan["attributes"].get("use_per_session_threads") is False:
        sizes = [plan["attributes"].get(name, 0) for name in ("intra_op_num_threads", "inter_op_num_threads")]
        lines += [f"ort.set_global_thread_pool_sizes({sizes[0]}, {sizes[1]})  # once, before any session"]
    lines += ["", "providers = ["]
    lines += [f"    ({one['name']!r}, {one['options']!r})," for one in plan["providers"]]
    lines += ["]"]
    if any(one["name"] in wire.CUDA_PROVIDERS for one in plan["providers"]):
        lines += ["ort.preload_dlls()  # CUDA and cuDNN that came as Python packages"]
    if plan["allow_fallback"]:
        lines += ["listed = [one for one in providers if one[0] in ort.get_available_providers()]"]
    lines += _chain(spec)
    lines += [_creation(spec, plan), *_fallback_check(plan["allow_fallback"])]
    if plan["run_config_entries"]:
        lines += ["", "run_options = ort.RunOptions()"]
    lines += [
        f"run_options.add_run_config_entry({key!r}, {text!r})"
        for key, text in plan["run_config_entries"].items()
    ]
    return "\n".join(lines)


def _attribute(name: str, value: bool | int | str) -> str:
    enums = {
        "graph_optimization_level": "GraphOptimizationLevel",
        "execution_mode": "ExecutionMode",
        "execution_order": "ExecutionOrder",
    }
    return f"ort.{enums[name]}.{value}" if name in enums else repr(value)


def _creation(spec: TrialSpec, plan: wire.SessionPlan) -> str:
    arguments = [
        "model.SerializeToString()" if spec.model.precision == "fp16" else "MODEL",
        "options",
        *(
            []
            if _has_plugin_providers(spec)
            else ["providers=listed" if plan["allow_fallback"] else "providers=providers"]
        ),
    ]
    if plan["disabled_optimizers"]:
        arguments.append(f"disabled_optimizers={plan['disabled_optimizers']!r}")
    if not plan["allow_fallback"]:
        arguments.append("enable_fallback=0")
    return "\n".join(["session = ort.InferenceSession(", *(f"    {one}," for one in arguments), ")"])


def _fallback_check(allowed: bool) -> list[str]:
    message = 'f"{missing} did not load; the session runs on {session.get_providers()}."'
    if allowed:
        action = f'    print("FALLBACK:", {message}, file=sys.stderr)'
    else:
        action = f"    raise RuntimeError({message})"
    return [
        "",
        "# ONNX Runtime replaces a provider that does not load without an error: see what it really took.",
        "missing = [name for name, _ in providers if name not in session.get_providers()]",
        "if missing:",
        action,
    ]


# --- inputs -------------------------------------------------------------------------------------------------


def _feeds(spec: TrialSpec, inputs: Sequence[wire.InputPlan]) -> str:
    workload = spec.workload
    sources = {one["name"]: _source(one, workload) for one in inputs}
    blocks = []
    if _is_npz(workload.feeds):
        blocks.append(
            NPZ.format(path=workload.feeds, mean=list(workload.image_mean), std=list(workload.image_std))
        )
    blocks += [_images(one, workload) for one in inputs if _is_image(one, workload)][:1]
    if any(text.removeprefix("bfloat16(").startswith("random.") for text in sources.values()):
        blocks.append(f"random = np.random.default_rng({workload.seed!r})")
    if any(one["dtype"] == "bfloat16" for one in inputs):
        blocks.append(BFLOAT16)
    lines = [f"    {name!r}: {text}," for name, text in sources.items()]
    return "\n\n\n".join([*(block.strip("\n") for block in blocks), "\n".join(["feeds = {", *lines, "}"])])


def _is_npz(feeds: str) -> bool:
    return feeds.lower().endswith(".npz")


def _is_image(one: wire.InputPlan, workload: WorkloadSpec) -> bool:
    asked = one.get("drawn") or one["name"] in workload.feed_values
    from_files = workload.feeds != "random" and not _is_npz(workload.feeds)
    return from_files and not asked and takes_images(one["dtype"], one["shape"])


def _source(one: wire.InputPlan, workload: WorkloadSpec) -> str:
    """Return the expression that creates the array of one input."""
    shape = list(one["shape"])
    dtype = {"bfloat16": "float32", STRING: "object"}.get(one["dtype"], one["dtype"])
    if one.get("drawn"):
        text = _random(one, dtype, shape)
    elif one["name"] in workload.feed_values:
        value = workload.feed_values[one["name"]]
        text = f"np.array(np.broadcast_to(np.asarray({value!r}, {dtype!r}), {shape!r}))"
    elif _is_npz(workload.feeds):
        text = f"from_file({one['name']!r}, {dtype!r}, {shape!r})"
    elif _is_image(one, workload):
        text = f"np.ascontiguousarray(images, {dtype!r})"
    else:
        text = _random(one, dtype, shape)
    return f"bfloat16({text})" if one["dtype"] == "bfloat16" else text


def _images(one: wire.InputPlan, workload: WorkloadSpec) -> str:
    """Return the lines that read the images of an input; the default mean and deviation are ImageNet's."""
    shape = one["shape"]
    axis = channel_axis(shape) or 3
    height, width = shape[2:] if axis == 1 else shape[1:3]
    read = IMAGES.format(
        path=workload.feeds,
        suffixes=IMAGE_SUFFIXES,
        rows=shape[0],
        mode=IMAGE_MODES[shape[axis]],
        size=(width, height),
        channels=shape[axis],
    )
    lines = [read.strip("\n")]
    if one["dtype"] != "uint8":
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if shape[axis] == 3 else (0, 1)
        lines.append(NORMALIZED.format(mean=workload.image_mean or mean, std=workload.image_std or std))
    return "\n".join([*lines, *(["images = np.moveaxis(images, 3, 1)"] if axis == 1 else [])])


def _random(one: wire.InputPlan, dtype: str, shape: list[int]) -> str:
    low, high = random_range(dtype, one["low"], one["high"])
    if dtype == "bool":
        return f"random.integers({low!r}, {high!r}, {shape!r}).astype(np.bool_)"
    if dtype in INTEGERS:
        return f"random.integers({low!r}, {high!r}, {shape!r}, dtype={dtype!r})"
    return f"random.uniform({float(low)!r}, {float(high)!r}, {shape!r}).astype({dtype!r})"


# --- the run ------------------------------------------------------------------------------------------------


def _run(spec: TrialSpec, uses_bfloat16: bool) -> str:
    bound, device, lines = spec.workload.use_io_binding, '"cpu", 0', list[str]()
    options = ", run_options" if spec.session.run_config_entries else ""
    gpu = [one for one in spec.session.providers if bound and one.name in wire.CUDA_PROVIDERS]
    if gpu:
        device_id = int(gpu[0].options.get("device_id", "0"))
        lines += [
            f"on_gpu = session.get_providers()[0] in {wire.CUDA_PROVIDERS!r}",
            f'device = ("cuda", {device_id!r}) if on_gpu else ("cpu", 0)',
        ]
        device = "*device"
    if bound or uses_bfloat16:
        lines.append(VALUES.format(device=device))
    if bound:
        take = "get_outputs" if uses_bfloat16 else "copy_outputs_to_cpu"
        lines.append(BOUND_RUN.format(device=device, take=take, options=options))
    elif uses_bfloat16:
        lines.append(
            "outputs = session.run_with_ort_values("
            f"[one.name for one in session.get_outputs()], values{options})"
        )
    else:
        lines.append(f"outputs = session.run(None, feeds{options})")
    shape = "value.shape()" if uses_bfloat16 else "list(np.shape(value))"
    report = f"for one, value in zip(session.get_outputs(), outputs):\n    print(one.name, {shape})"
    return "\n".join([*lines, report])
