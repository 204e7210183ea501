"""Plans the exact calls of a worker from a validated spec; it sets nothing that the spec does not ask for.

Pure functions: `session_plan` for the session, `feed_plan` for the inputs, `contestant_plan` for both;
`reference_plan` for the expected outputs, and `shape_feeds` for other shapes, whose first runs are timed.
Anything unresolved (a free dimension without a size, a batch the model does not have) raises `SpecError`
here, before a worker starts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core import wire
from core.spec import SessionSpec, TrialSpec, WorkloadSpec
from core.spec.checks import cpu_list, feed_range
from core.spec.load import BatchingSpec
from core.spec.settings import ENUM_ATTRIBUTES, PROVIDER_OPTIONS, SETTINGS
from core.spec.sizes import ignored_sizes_note, options, suggested_sizes
from core.wire.access import resolve_library
from core.wire.catalog import (
    BIASES_KEY,
    PT2_SHA256_KEY,
    SEED_KEY,
    SOURCE_KEY,
    TORCHVISION_CLASSIFIERS,
    WEIGHTS_KEY,
)
from core.wire.engines import DEFAULT, ENGINES, can
from core.wire.errors import ModelError, SpecError, nearest
from core.wire.feeding import NO_TEXT_HINT, NOT_FED_HINT, STRING, missing_text_message, unsupported_reason
from core.wire.limits import most_processes, too_many_processes
from core.wire.runtime import OWN

if TYPE_CHECKING:
    from core.store import ModelRecord


def session_plan(session: SessionSpec) -> wire.SessionPlan:
    """Return the options to set: only those that the settings ask for."""
    attributes = {
        k.name: value
        for k in SETTINGS
        if k.target == "attribute" and (value := getattr(session, k.name)) is not None
    }
    plan: wire.SessionPlan = {
        "attributes": attributes,
        "config_entries": dict(session.session_config_entries),
        "run_config_entries": dict(session.run_config_entries),
        "free_dimension_overrides": dict(session.free_dimension_overrides),
        "providers": [
            {"name": p.name, "options": {k: _ort_text(p.name, k, v) for k, v in p.options.items()}}
            for p in session.providers
        ]
        or [{"name": "CPUExecutionProvider", "options": {}}],
        "disabled_optimizers": list(session.disabled_optimizers),
        "allow_fallback": session.allow_fallback,
    }
    if session.custom_op_libraries:
        plan["custom_op_libraries"] = list(session.custom_op_libraries)
    if session.provider_libraries:
        plan["provider_libraries"] = list(session.provider_libraries)
    return plan


def settings_of(session: wire.SessionPlan) -> wire.SettingsPlan:
    """Return the names of all settings of a plan, for the job `settings`."""
    attributes = session["attributes"]
    return {
        "attributes": list(attributes),
        "enums": {name: [str(attributes[name])] for name in ENUM_ATTRIBUTES if name in attributes},
        "keys": [*session["config_entries"], *session["run_config_entries"]],
        "optimizers": list(session["disabled_optimizers"]),
    }


def pinned(session: SessionSpec) -> SessionSpec:
    """Return `session` with the hash of every named library in the operator's folder.

    Raises:
        SpecError: the operator does not allow libraries, or a file is missing, outside the folder, no
            library, or different from the recorded one.
    """
    names = ("custom_op_libraries", "provider_libraries")
    found = {name: pinned_libraries(texts) for name in names if (texts := getattr(session, name))}
    return session.model_copy(update=found) if found else session


def pinned_libraries(texts: Sequence[str]) -> tuple[str, ...]:
    """Return each library with the hash of its file in the operator's folder.

    Raises:
        SpecError: see `resolve_library`.
    """
    return tuple(str(resolve_library(text)[1]) for text in texts)


def _ort_text(provider: str, name: str, value: str) -> str:
    """The value for the provider: TensorRT's booleans are only True and False, CUDA's also 0 and 1."""
    option = next((o for o in PROVIDER_OPTIONS.get(provider, ()) if o.name == name), None)
    if option is None or option.kind != "bool":
        return value
    on = value.strip().lower() in {"1", "true"}
    if provider == "TensorrtExecutionProvider":
        return "True" if on else "False"
    return "1" if on else "0"


# --- a configuration ----------------------------------------------------------------------------------------


def contestant_plan(
    spec: TrialSpec,
    *,
    path: str,
    session: wire.SessionPlan,
    feeds: wire.FeedPlan,
    torch: wire.TorchSource | None,
) -> wire.ContestantPlan:
    """Return everything that a worker needs to run `spec`.

    Args:
        spec: what to run.
        path: the `.onnx` file, which may be a converted copy.
        session: from `session_plan`.
        feeds: from `feed_plan`.
        torch: from `torch_source`; only used by an engine that runs a program.

    Raises:
        SpecError: a PyTorch engine, and the source PyTorch model of this file is unknown.
    """
    program = ENGINES[spec.engine].program
    if program and torch is None:
        raise SpecError(
            f"The engine `{spec.engine}` needs the PyTorch source of the model, which is unknown for "
            f"`{spec.model.path}`.",
            hint="Export the model on this machine, from torchvision or from an existing `.pt2` file.",
        )
    plan: wire.ContestantPlan = {
        "engine": spec.engine,
        "model_path": path,
        "torch": torch if program else None,
        "session": session,
        "feeds": feeds,
        "use_io_binding": spec.workload.use_io_binding,
        "warmup_runs": spec.protocol.warmup_runs,
        "cpus": cpu_list(spec.protocol.cpus),
    }
    if spec.workload.streams > 1:
        plan["streams"], plan["stream_type"] = spec.workload.streams, spec.workload.stream_type
    if spec.runtime != OWN:
        plan["runtime"] = spec.runtime
    if (own := openvino_plan(spec)) is not None:
        plan["openvino"] = own
    return plan


def openvino_plan(spec: TrialSpec) -> wire.OpenVinoPlan | None:
    """Return how OpenVINO compiles the model; None for another engine."""
    if not can(spec.engine, "openvino"):
        return None
    own = spec.openvino
    return {"device": own.device, "properties": own.requested(), "reshape": own.reshape}


def check_streams(spec: TrialSpec, *, allowed: Sequence[int], quota: float | None) -> None:
    """Refuse more streams of the type `processes` than CPUs, because each needs one of its own.

    Args:
        spec: what to run.
        allowed: CPUs that this process may use.
        quota: CPUs that the container may use; None: no limit.

    Raises:
        SpecError: there are too few CPUs.
    """
    count = spec.workload.streams
    if count == 1 or spec.workload.stream_type != "processes":
        return
    cpus = set(allowed) & set(cpu_list(spec.protocol.cpus) or allowed)
    most = most_processes(cpus, quota)
    if count > most:
        raise too_many_processes(count, most)


def reference_plan(
    path: str, info: wire.ModelInfo, feeds: wire.FeedPlan, *, cpus: str, libraries: Sequence[str] = ()
) -> wire.ContestantPlan:
    """Return the plan for the reference outputs of the model at `path`: on the CPU, without optimizations.

    Its inputs have the values of `feeds`, which may be of a variant with other input types. `libraries`
    provide its custom operators.
    """
    dtypes = {one["name"]: one["dtype"] for one in info["inputs"]}
    inputs: list[wire.InputPlan] = [
        {**one, "dtype": dtypes.get(one["name"], one["dtype"])} for one in feeds["inputs"]
    ]
    return {
        "engine": DEFAULT,
        "model_path": path,
        "torch": None,
        "session": session_plan(
            SessionSpec(graph_optimization_level="ORT_DISABLE_ALL", custom_op_libraries=tuple(libraries))
        ),
        "feeds": {**feeds, "inputs": inputs},
        "use_io_binding": False,
        "warmup_runs": 0,
        "cpus": cpu_list(cpus),
    }


def torch_source(record: ModelRecord) -> wire.TorchSource | None:
    """Return the PyTorch model that `record` was exported from; None where it is unknown or unavailable.

    The file itself names models of torchvision. The path of a `.pt2` is known only to the library where it
    was exported.
    """
    info, facts = record.info, record.info["metadata"]
    kind, _, name = facts.get(SOURCE_KEY, "").partition(" ")
    pt2 = str(record.details.get("pt2") or "") if kind == "torch.export" else ""
    if not pt2 and (kind != "torchvision" or name not in TORCHVISION_CLASSIFIERS):
        return None
    weights = facts.get(WEIGHTS_KEY)
    seed = facts.get(SEED_KEY, "0")
    return {
        "source": "pt2" if pt2 else "torchvision",
        "name": "" if pt2 else name,
        "path": pt2,
        "sha256": facts.get(PT2_SHA256_KEY, "") if pt2 else "",
        "weights": "file" if pt2 else "pretrained" if weights == "pretrained" else "random",
        "seed": int(seed) if seed.isdecimal() else 0,
        "biases": facts.get(BIASES_KEY) == "random",
        "image_size": None if pt2 else _image_size(info),
        "outputs": [one["name"] for one in info["outputs"]],
    }


def _image_size(info: wire.ModelInfo) -> int | None:
    """Pixels per side of the first input; a classifier's has the shape batch, channels, height, width."""
    shape = (info["inputs"][0]["shape"] if info["inputs"] else None) or []
    size = shape[2] if len(shape) == 4 else None
    return size if isinstance(size, int) else None


def shape_feeds(spec: TrialSpec, info: wire.ModelInfo) -> list[wire.FeedPlan]:
    """Return the workload at up to two other batch sizes: one sample and twice the batch.

    At the first run of a shape a session plans its memory, and a compiler compiles; these shapes show that
    cost. Empty where the batch is fixed, or where inputs, `dims` or `reshape` determine it.
    """
    workload, dim = spec.workload, info["batch_dim"]
    if (
        dim is None
        or spec.openvino.reshape
        or workload.feeds != "random"
        or any(map(_has_rows, workload.feed_values.values()))
    ):
        return []
    rows = {dim, *batch_addresses(info).values()}
    if rows & {*workload.dims, *spec.session.free_dimension_overrides}:
        return []  # another batch would contradict the spec
    batch = resolve_batch(workload, info)
    sizes = [rows for rows in (1, 2 * batch) if rows != batch]
    others = [workload.model_copy(update={"batch_size": rows}) for rows in sizes]
    return [plan for one in others if (plan := _feasible(one, info)) is not None]


def _feasible(workload: WorkloadSpec, info: wire.ModelInfo) -> wire.FeedPlan | None:
    try:
        return feed_plan(workload, info)
    except SpecError:  # too large at twice the batch
        return None


def _has_rows(value: Any) -> bool:
    return isinstance(value, list | tuple)


def thread_warning(spec: TrialSpec, cpu: wire.CpuFacts) -> str:
    """Return a warning where `spec` asks for more threads than available CPUs; empty otherwise.

    It is allowed, because it may be worth measuring; but threads that share a CPU are slow, and spinning ones
    even more so.
    """
    cpus = set(cpu["allowed"])
    if spec.protocol.cpus:
        cpus &= set(cpu_list(spec.protocol.cpus))
    may_use = len(cpus) if cpu["quota"] is None else min(len(cpus), max(1, math.floor(cpu["quota"])))
    for name in ("intra_op_num_threads", "inter_op_num_threads"):
        threads = getattr(spec.session, name) or 0
        if threads > may_use:
            return (
                f"`{name}` is {threads}, but only {may_use} CPU{'s' * (may_use != 1)} can be used: "
                "threads will compete for them."
            )
    streams, threads = spec.workload.streams, spec.session.intra_op_num_threads or 1
    if streams > 1 and streams * threads > may_use:
        return (
            f"`streams` × `intra_op_num_threads` is {streams * threads}, but only {may_use} "
            f"CPU{'s' * (may_use != 1)} can be used: callers will compete for them."
        )
    return ""


# --- inputs -------------------------------------------------------------------------------------------------

MAX_ELEMENTS = 2**40  # terabytes: a typing error


def feed_plan(workload: WorkloadSpec, info: wire.ModelInfo, spec_dtype: str | None = None) -> wire.FeedPlan:
    """Resolve every input of the model to a concrete shape; -1 where the data determines the size.

    Args:
        workload: batch, dimensions and source of the inputs.
        info: from `inspect`.
        spec_dtype: dtype that floating inputs take instead of the model's own ("float16" for an fp16 copy
            without kept input types).

    Raises:
        SpecError: a missing or unknown dimension, an impossible batch, a fixed value for an unknown input, an
            input too large for any machine.
        ModelError: an input that ORTune cannot feed, such as a sequence.
    """
    if why := unsupported_input(info):
        raise ModelError(why, hint=NOT_FED_HINT)
    batch = resolve_batch(workload, info)
    shared, sizes = batch_addresses(info), _sizes(workload, info, batch)
    source, path = feeds_source(workload.feeds)
    check_dims(workload.dims, info)
    _check_values(workload, info)
    drawn = random_range_inputs(workload)
    _check_texts(workload, info)
    values = {name: value for name, value in workload.feed_values.items() if name not in drawn}
    if missing := missing_dims(workload, info):
        raise _no_size(missing, info)
    _check_elements(sizes, info)
    return {
        "inputs": [
            _input_plan(one, sizes, spec_dtype, workload.feed_values.get(one["name"]))
            for one in info["inputs"]
        ],
        "source": source,
        "path": path,
        "seed": workload.seed,
        "values": values,
        "image_mean": list(workload.image_mean),
        "image_std": list(workload.image_std),
        "batch_size": batch,
        # An unnamed axis with another size from the user is not the batch.
        "batch_axes": {
            name: axis
            for name, axis in info["batch_axes"].items()
            if name not in shared or sizes[shared[name]] == batch
        },
    }


def unsupported_input(info: wire.ModelInfo) -> str:
    """Return why ORTune cannot run a model: its first unsupported input; empty: it can."""
    return next((why for one in info["inputs"] if (why := unsupported_reason(one["name"], one["dtype"]))), "")


def _sizes(workload: WorkloadSpec, info: wire.ModelInfo, batch: int) -> dict[str, int]:
    """Free dimension -> its size, for those that have one."""
    sizes = {**dict.fromkeys(batch_addresses(info).values(), batch), **workload.dims}
    return sizes | {info["batch_dim"]: batch} if info["batch_dim"] else sizes


def check_overrides(spec: TrialSpec, info: wire.ModelInfo) -> None:
    """Refuse free-dimension overrides that ONNX Runtime would ignore, or that the inputs contradict.

    Raises:
        SpecError: a dimension that the model does not name, or a size other than that of the inputs.
    """
    named = [dim for dim in info["free_dims"] if ":" not in dim]
    fed = _sizes(spec.workload, info, resolve_batch(spec.workload, info))
    for name, size in spec.session.free_dimension_overrides.items():
        if name not in named:
            raise SpecError(
                f"The model has no free dimension `{name[:80]}`, so `free_dimension_overrides` would "
                f"have no effect.{nearest(name, named)}",
                hint=f"Choose among {', '.join(named)}."
                if named
                else "Remove it; the model has no named free dimensions.",
            )
        if fed.get(name, size) != size:
            raise SpecError(
                f"`free_dimension_overrides` fixes `{name}` at {size}, but the input has {fed[name]}.",
                hint=f"Use an input of size {size}, or fix it at {fed[name]}.",
            )


def check_feeds_file(workload: WorkloadSpec) -> None:
    """Refuse a missing file or folder of inputs.

    Raises:
        SpecError: it does not exist.
    """
    if workload.feeds == "random":
        return
    try:
        there = Path(workload.feeds).exists()
    except (OSError, ValueError):  # the text is no valid path
        there = False
    if not there:
        raise SpecError(f"There is no input file `{workload.feeds[:200]}`.", hint="Check the path.")


def random_value_range(one: wire.InputInfo | wire.InputPlan, value: Any) -> tuple[float, float] | None:
    """Return the range of `random:LOW..HIGH`, for `InputPlan`; None: `value` is no range.

    Raises:
        SpecError: the input's type cannot represent the numbers.
    """
    asked = feed_range(one["name"], value)
    if asked is None:
        return None
    (low, high), dtype = asked, one["dtype"]
    if dtype == "bool" or "int" in dtype:
        least, most = _integer_limits(dtype)
        if not (low == int(low) and high == int(high) and least <= low and high <= most):
            raise SpecError(
                f"The range {low} to {high} is given for input `{one['name']}`, but {dtype} has "
                f"integers from {least} to {most}.",
                hint="Use integers in that range, for example `random:0..1`.",
            )
        return int(low), int(high) + 1
    most_f = 65504.0 if dtype == "float16" else 1e38
    if max(abs(low), abs(high)) > most_f:
        raise SpecError(
            f"The range {low} to {high} of input `{one['name']}` is too wide for {dtype}.",
            hint=f"Use values between -{most_f:g} and {most_f:g}.",
        )
    return float(low), float(high)


def _integer_limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def batch_addresses(info: wire.ModelInfo) -> dict[str, str]:
    """Return input -> key of its free batch dimension; unnamed ones have separate keys (`x:0`, `y:0`)."""
    shapes = {one["name"]: one["shape"] or [] for one in info["inputs"]}
    found = {name: shapes[name][axis] for name, axis in info["batch_axes"].items() if shapes[name]}
    return {name: dim for name, dim in found.items() if isinstance(dim, str)}


def check_batching(batching: BatchingSpec | None, info: wire.ModelInfo) -> None:
    """Refuse dynamic batching of a model that takes one batch size only.

    Raises:
        SpecError: the model's batch is fixed.
    """
    if batching is not None and info["batch_dim"] is None:
        raise SpecError(
            f"Dynamic batching needs a dynamic batch, but the model's batch is fixed at "
            f"{info['fixed_batch'] or 1}.",
            hint="Remove `dynamic_batching`, or export the model with a dynamic batch.",
        )


def resolve_batch(workload: WorkloadSpec, info: wire.ModelInfo) -> int:
    """Return the batch size.

    Raises:
        SpecError: the model's batch is fixed at another number, `dims` contradicts `batch_size`, or
            it is 0.
    """
    batch, dim = workload.batch_size, info["batch_dim"]
    if dim is None:
        own = info["fixed_batch"] or 1
        if batch is not None and batch != own and not info["batch_axes"]:
            raise SpecError(
                f"No input of the model has a batch dimension, but `batch_size` is {batch}.",
                hint="Remove `batch_size`; set the model's dimensions with `dims`.",
            )
        if batch is not None and batch != own:
            raise SpecError(
                f"The model's batch is fixed at {own}, but `batch_size` is {batch}.",
                hint=f"Use {own}, or export the model with a dynamic batch.",
            )
        return own
    in_dims = workload.dims.get(dim)
    if in_dims is not None and batch is not None and in_dims != batch:
        raise SpecError(
            f"`batch_size` is {batch}, but `dims` sets the batch dimension `{dim}` to {in_dims}.",
            hint="Set the batch only once.",
        )
    if in_dims == 0:
        raise SpecError(
            f"The batch must be 1 or more, but `dims` sets the batch dimension `{dim}` to 0.",
            hint="Use at least one sample; other dimensions may be 0.",
        )
    return batch or in_dims or 1


def check_dims(dims: Mapping[str, int], info: wire.ModelInfo, name: str = "") -> None:
    """Refuse a size for a dimension that the model does not have.

    Args:
        dims: sizes by dimension.
        info: the model.
        name: of the model, for the message; empty: "the model".

    Raises:
        SpecError: there is no such free dimension.
    """
    free, model = info["free_dims"], f"`{name}`" if name else "The model"
    for one in dims:
        if one not in free:
            raise SpecError(
                f"{model} has no free dimension `{one}`.{nearest(one, free)}",
                hint=f"Choose among {', '.join(free)}." if free else "Remove it; all sizes are fixed.",
            )


def _check_values(workload: WorkloadSpec, info: wire.ModelInfo) -> None:
    names = [one["name"] for one in info["inputs"]]
    for name in workload.feed_values:
        if name not in names:
            raise SpecError(
                f"The model has no input `{name}`.{nearest(name, names)}",
                hint=f"Choose among {', '.join(names)}." if names else "Remove it; the model has no inputs.",
            )


def _check_texts(workload: WorkloadSpec, info: wire.ModelInfo) -> None:
    """Refuse text for numbers, and the reverse; ORTune does not generate text."""
    for one in info["inputs"]:
        name, value = one["name"], workload.feed_values.get(one["name"])
        if one["dtype"] != STRING:
            if value is not None and feed_range(name, value) is None and _holds_text(value):
                raise SpecError(
                    f"Input `{name}` is {one['dtype']}, but its value is text: {json.dumps(value)[:40]}.",
                    hint="Give a number, true, false, a list of them, or a range such as `random:0..30521`.",
                )
        elif value is None and not workload.feeds.lower().endswith(".npz"):
            raise SpecError(missing_text_message(name), hint=NO_TEXT_HINT.format(name=name))
        elif value is not None and not _holds_text(value):
            raise SpecError(
                f"Input `{name}` takes text, but its value is {json.dumps(value)[:40]}.",
                hint='Write it in quotes: `"123"`.',
            )
        elif feed_range(name, value) is not None:
            raise SpecError(
                f"Input `{name}` takes text, and ORTune generates no random text, but its value is "
                f"`{value}`.",
                hint=f'If this is the text itself, write it as a list: `["{value}"]`.',
            )


def _holds_text(value: Any) -> bool:
    return any(map(_holds_text, value)) if isinstance(value, list | tuple) else isinstance(value, str)


def missing_dims(workload: WorkloadSpec, info: wire.ModelInfo) -> list[str]:
    """Return the free dimensions without a size, in the order of the model.

    The batch has a default; an `.npz` and fixed values determine the sizes of their inputs.
    """
    sized, brought = _sizes(workload, info, 1).keys(), dims_from_data(workload, info)
    return [dim for dim in info["free_dims"] if dim not in sized and dim not in brought]


def dims_from_data(workload: WorkloadSpec, info: wire.ModelInfo) -> set[str]:
    """Return the free dimensions whose sizes come from the data: an `.npz`, or fixed values."""
    drawn = random_range_inputs(workload)
    is_file = workload.feeds.lower().endswith(".npz")
    brought = {
        one["name"]
        for one in info["inputs"]
        if one["name"] not in drawn and (is_file or one["name"] in workload.feed_values)
    }
    return {dim for dim in info["free_dims"] if _only_in(dim, info, brought)}


def _no_size(missing: Sequence[str], info: wire.ModelInfo) -> SpecError:
    listed = ", ".join(f"`{dim}`" for dim in missing)
    what, it = ("dimensions", "them") if len(missing) > 1 else ("dimension", "it")
    has = "have" if len(missing) > 1 else "has"
    return SpecError(
        " ".join(
            filter(None, (f"The model's free {what} {listed} {has} no size.", ignored_sizes_note(info)))
        ),
        hint=f"Give {it}, for example `{options(suggested_sizes(missing, info))}`.",
    )


def _check_elements(sizes: Mapping[str, int], info: wire.ModelInfo) -> None:
    for one in info["inputs"]:
        shape = [sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in one["shape"] or []]
        if math.prod(shape) > MAX_ELEMENTS:
            raise SpecError(
                f"The input `{one['name']}` would have {' × '.join(map(str, shape))} elements.",
                hint="Choose a smaller batch or smaller dimensions.",
            )


def random_range_inputs(workload: WorkloadSpec) -> set[str]:
    """Return the inputs with random values from their own range."""
    return {name for name, value in workload.feed_values.items() if feed_range(name, value) is not None}


def _only_in(dim: str, info: wire.ModelInfo, fixed: set[str]) -> bool:
    """True where `dim` occurs only in inputs with a fixed value, which has its own shape."""
    holders = {one["name"] for one in info["inputs"] if dim in (one["shape"] or [])}
    return bool(holders) and holders <= fixed


def feeds_source(feeds: str) -> tuple[Literal["random", "npz", "images"], str | None]:
    """Return the kind and the path of inputs as a spec names them."""
    if feeds == "random":
        return "random", None
    return ("npz", feeds) if feeds.lower().endswith(".npz") else ("images", feeds)


def _input_plan(
    one: wire.InputInfo, sizes: Mapping[str, int], float_dtype: str | None, value: Any
) -> wire.InputPlan:
    shape = one["shape"]
    if shape is None:
        shape = []  # rank unknown: a scalar unless an .npz or a fixed value says otherwise
    dtype = float_dtype if float_dtype and one["dtype"] == "float32" else one["dtype"]
    plan: wire.InputPlan = {
        "name": one["name"],
        "dtype": dtype,
        "shape": [sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in shape],
        "low": one.get("low"),
        "high": one.get("high"),
    }
    if (asked := random_value_range(plan, value)) is not None:
        plan["low"], plan["high"], plan["drawn"] = *asked, True
    return plan
