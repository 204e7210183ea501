"""From a validated spec to the exact calls a worker makes: nothing that was not asked for is set.

Pure functions: `session_plan` for the session, `feed_plan` for what is fed. What cannot be resolved (a free
dimension without a size, a batch the model does not have) raises `SpecError` here, before a worker starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from core import wire
from core.errors import SpecError, nearest
from core.knobs import KNOBS, PROVIDER_OPTIONS
from core.spec import SessionSpec, WorkloadSpec


def session_plan(session: SessionSpec) -> wire.SessionPlan:
    """Return what to set, and nothing that was not asked for."""
    attributes = {
        k.name: value
        for k in KNOBS
        if k.target == "attribute" and (value := getattr(session, k.name)) is not None
    }
    return {
        "attributes": attributes,
        "config_entries": dict(session.session_config_entries),
        "providers": [
            {"name": p.name, "options": {k: _ort_text(p.name, k, v) for k, v in p.options.items()}}
            for p in session.providers
        ]
        or [{"name": "CPUExecutionProvider", "options": {}}],
        "disabled_optimizers": list(session.disabled_optimizers),
        "allow_fallback": session.allow_fallback,
    }


def _ort_text(provider: str, name: str, value: str) -> str:
    """TensorRT's parser takes only True and False for a boolean, CUDA's also 0 and 1."""
    option = next((o for o in PROVIDER_OPTIONS.get(provider, ()) if o.name == name), None)
    if option is None or option.kind != "bool":
        return value
    on = value.strip().lower() in {"1", "true"}
    if provider == "TensorrtExecutionProvider":
        return "True" if on else "False"
    return "1" if on else "0"


MAX_ELEMENTS = 2**40  # terabytes: a slip of the keyboard, not a feed


def feed_plan(workload: WorkloadSpec, info: wire.ModelInfo, spec_dtype: str | None = None) -> wire.FeedPlan:
    """Resolve every input of the model to a shape of numbers; -1 where the feed brings the size along.

    Args:
        workload: batch, dimensions and source of the feeds.
        info: what `inspect` found.
        spec_dtype: dtype that floating inputs take instead of the model's own ("float16" for an fp16 copy
            without kept input types).

    Raises:
        SpecError: a missing or unknown dimension, an impossible batch, a fixed value for no input, an input
            too large for any machine.
    """
    batch = resolve_batch(workload, info)
    shared = _batch_addresses(info)
    sizes = {**dict.fromkeys(shared.values(), batch), **workload.dims}
    if info["batch_dim"]:
        sizes[info["batch_dim"]] = batch
    source, path = _source(workload.feeds)
    _check_dims(workload, info)
    _check_values(workload, info)
    if source != "npz":  # an .npz brings its own shapes
        _check_sizes(sizes, info, fixed=set(workload.feed_values))
    return {
        "inputs": [_input_plan(one, sizes, spec_dtype) for one in info["inputs"]],
        "source": source,
        "path": path,
        "seed": workload.seed,
        "values": dict(workload.feed_values),
        "image_mean": list(workload.image_mean),
        "image_std": list(workload.image_std),
        "batch_size": batch,
        # An unnamed axis that the user gave another size does not count the rows.
        "batch_axes": {
            name: axis
            for name, axis in info["batch_axes"].items()
            if name not in shared or sizes[shared[name]] == batch
        },
    }


def _batch_addresses(info: wire.ModelInfo) -> dict[str, str]:
    """Input -> address of its free batch dimension; unnamed ones have an address each (`x:0`, `y:0`)."""
    shapes = {one["name"]: one["shape"] or [] for one in info["inputs"]}
    found = {name: shapes[name][axis] for name, axis in info["batch_axes"].items() if shapes[name]}
    return {name: dim for name, dim in found.items() if isinstance(dim, str)}


def resolve_batch(workload: WorkloadSpec, info: wire.ModelInfo) -> int:
    """Return the rows to feed.

    Raises:
        SpecError: the model's batch is fixed at another number, or `dims` contradicts `batch_size`.
    """
    batch, dim = workload.batch_size, info["batch_dim"]
    if dim is None:
        own = info["fixed_batch"] or 1
        if batch is not None and batch != own and not info["batch_axes"]:
            raise SpecError(
                f"No input of the model has rows that a batch could count, but `batch_size` is {batch}.",
                hint="Leave `batch_size` out; the model's own dimensions are set with `dims`.",
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
            hint="Give the batch once.",
        )
    return batch or in_dims or 1


def _check_dims(workload: WorkloadSpec, info: wire.ModelInfo) -> None:
    for name in workload.dims:
        if name not in info["free_dims"]:
            free = info["free_dims"]
            raise SpecError(
                f"The model has no free dimension `{name}`.{nearest(name, free)}",
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


def _check_sizes(sizes: Mapping[str, int], info: wire.ModelInfo, *, fixed: set[str]) -> None:
    missing = [dim for dim in info["free_dims"] if dim not in sizes and not _only_in(dim, info, fixed)]
    if len(missing) == 1:
        raise SpecError(
            f"The model's free dimension `{missing[0]}` has no size.",
            hint=f"Set it, for example `--dim {missing[0]}=128`.",
        )
    if missing:
        raise SpecError(
            f"The model's free dimensions {', '.join(f'`{dim}`' for dim in missing)} have no size.",
            hint=f"Set each, for example `--dim {missing[0]}=128`.",
        )
    for one in info["inputs"]:
        shape = [sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in one["shape"] or []]
        if math.prod(shape) > MAX_ELEMENTS:
            raise SpecError(
                f"The input `{one['name']}` would have {' × '.join(map(str, shape))} elements.",
                hint="Choose a smaller batch or smaller dimensions.",
            )


def _only_in(dim: str, info: wire.ModelInfo, fixed: set[str]) -> bool:
    """True where `dim` occurs only in inputs with a fixed value, which brings its own shape."""
    holders = {one["name"] for one in info["inputs"] if dim in (one["shape"] or [])}
    return bool(holders) and holders <= fixed


def _source(feeds: str) -> tuple[Literal["random", "npz", "images"], str | None]:
    if feeds == "random":
        return "random", None
    return ("npz", feeds) if feeds.lower().endswith(".npz") else ("images", feeds)


def _input_plan(one: wire.InputInfo, sizes: Mapping[str, int], float_dtype: str | None) -> wire.InputPlan:
    shape = one["shape"]
    if shape is None:
        shape = []  # rank unknown: a scalar unless an .npz or a fixed value says otherwise
    dtype = float_dtype if float_dtype and one["dtype"] == "float32" else one["dtype"]
    return {
        "name": one["name"],
        "dtype": dtype,
        "shape": [sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in shape],
        "low": one.get("low"),
        "high": one.get("high"),
    }
