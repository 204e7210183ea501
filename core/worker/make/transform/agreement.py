"""Compare two models on the same inputs: `outputs_of` runs one, `error_between` compares the outputs.

Both run on the CPU without optimizations, so that the numbers belong to the graph as written. Only one
session exists at a time. Worker side.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core import wire
from core.wire.errors import ModelError
from core.worker.measure.inference import prepare, translate_errors
from core.worker.measure.output_comparison import compare
from core.worker.models import inspect_model
from core.worker.session import build_session
from core.worker.session.feeds import Array

Outputs = list[dict[str, Array]]  # one mapping per set of inputs

_AS_WRITTEN: wire.SessionPlan = {
    **wire.default_session_plan(),
    "attributes": {"graph_optimization_level": "ORT_DISABLE_ALL", "log_severity_level": 4},
}


def outputs_of(file: Path, feeds: Sequence[wire.FeedPlan], what: str) -> Outputs:
    """Return the outputs of the model in `file` for each of `feeds`.

    Args:
        file: the model.
        feeds: sets of inputs; types follow the model, so a float16 copy gets float16.
        what: name of the model in the message ("the original model").

    Raises:
        TunerError: it cannot be loaded or run, or an input is not a numeric tensor.
    """
    built = build_session(str(file), _AS_WRITTEN)
    found: Outputs = []
    for plan in feeds:
        inference = prepare(built, {"feeds": plan, "use_io_binding": False})
        try:
            with translate_errors():
                result = inference.call()
        except ModelError as error:
            raise ModelError(f"{what} fails on the test inputs: {error.message}", hint=error.hint) from None
        found.append(inference.arrays(result))
    return found


def error_between(reference: Outputs, outputs: Outputs) -> wire.OutputError:
    """Return the error over all sets of inputs: the maximum of the extremes, the mean of the means."""
    return merge_errors([compare(one, other) for one, other in zip(reference, outputs, strict=True)])


def merge_errors(errors: Sequence[wire.OutputError]) -> wire.OutputError:
    """Merge the errors of several sets of inputs; if one cannot be compared, the result cannot either.

    Args:
        errors: one per set of inputs, at least one.
    """
    for one in errors:
        if one["difference"]:
            return one
    cosines = [one["cosine"] for one in errors if one["cosine"] is not None]
    shares = [(one["top1_agreement"], one.get("rows") or 1) for one in errors]
    void = sorted(set.intersection(*(set(one.get("void", ())) for one in errors)))
    error: wire.OutputError = {
        "max_abs": max(one["max_abs"] or 0.0 for one in errors),
        "mean_abs": statistics.fmean(one["mean_abs"] or 0.0 for one in errors),
        "max_rel": max(one["max_rel"] or 0.0 for one in errors),
        "mean_rel": statistics.fmean(one["mean_rel"] or 0.0 for one in errors),
        "cosine": min(cosines) if cosines else None,
        "top1_agreement": _share_of_all(shares),
        "difference": "",
        "rows": sum(one.get("rows", 0) for one in errors),
        "not_finite": sum(one.get("not_finite", 0) for one in errors),
    }
    if void:
        error["void"] = void
    return error


def _share_of_all(shares: Sequence[tuple[float | None, int]]) -> float | None:
    """Return the share over all samples from each set's share and samples; None: no output has classes."""
    known = [(share, rows) for share, rows in shares if share is not None]
    return sum(share * rows for share, rows in known) / sum(rows for _, rows in known) if known else None


def all_zero(outputs: Outputs) -> bool:
    """Whether all outputs are zero: then agreement of two models shows little."""
    return not any(
        np.any(array) for arrays in outputs for array in arrays.values() if array.dtype.kind in "biufc"
    )


def fit_sizes(feeds: Sequence[wire.FeedPlan], file: Path) -> list[wire.FeedPlan]:
    """Return the inputs with the sizes that the model in `file` has fixed: a step may have fixed more."""
    info = inspect_model(str(file))
    shapes = {one["name"]: one["shape"] or [] for one in info["inputs"]}
    return [_fitted(plan, shapes) for plan in feeds]


def _fitted(plan: wire.FeedPlan, shapes: dict[str, list[int | str]]) -> wire.FeedPlan:
    inputs: list[wire.InputPlan] = []
    rows = plan["batch_size"]
    for one in plan["inputs"]:
        declared = shapes.get(one["name"], [])
        shape = [
            size if isinstance(size, int) else planned
            for planned, size in zip(one["shape"], declared, strict=False)
        ]
        if len(shape) != len(one["shape"]):  # rank unknown, or a removed input
            shape = one["shape"]
        axis = plan["batch_axes"].get(one["name"])
        if axis is not None and axis < len(shape):
            rows = shape[axis]
        inputs.append({**one, "shape": shape})
    return {**plan, "inputs": inputs, "batch_size": rows}
