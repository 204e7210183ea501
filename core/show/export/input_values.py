"""Describes the inputs of exported files: type, shape and value range as in the trial. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core import wire
from core.evidence.measurement import Trial
from core.run.plan import feed_plan, random_value_range
from core.show.export.unsupported import SettingTracker
from core.spec import TrialSpec
from core.wire.errors import SpecError
from core.wire.feeding import random_range


def measured_inputs(trial: Trial, spec: TrialSpec, info: wire.ModelInfo | None) -> list[wire.InputPlan]:
    """Return every input with its measured type and shape, and the range of its random values."""
    ranges = {one["name"]: (one.get("low"), one.get("high")) for one in info["inputs"]} if info else {}
    fed: Sequence[wire.TensorInfo] | None = trial.facts.get("inputs")
    if fed is not None:  # empty for a model without inputs
        found: list[wire.InputPlan] = [
            {"name": one["name"], "dtype": one["dtype"], "shape": one["shape"], "low": low, "high": high}
            for one in fed
            for low, high in [ranges.get(one["name"], (None, None))]
        ]
        for one in found:
            if (asked := random_value_range(one, spec.workload.feed_values.get(one["name"]))) is not None:
                one["low"], one["high"], one["drawn"] = *asked, True
        return found
    if info is None:
        raise SpecError(
            f"Trial {trial.id} has no recorded input shapes (it is {trial.state}).",
            hint="Choose a trial that is complete.",
        )
    half = spec.model.precision == "fp16" and not spec.model.keep_io_types
    return feed_plan(spec.workload, info, "float16" if half else None)["inputs"]


def measured_outputs(trial: Trial, info: wire.ModelInfo | None) -> list[str]:
    """Return the names of the outputs.

    Raises:
        SpecError: neither the trial nor the model facts name them.
    """
    found: Sequence[wire.TensorInfo] | None = trial.facts.get("outputs")
    if found:
        return [one["name"] for one in found]
    if info is None:
        raise SpecError(
            f"The outputs of the model of trial {trial.id} are unknown, because the model is not in the "
            "library.",
            hint="Choose a trial that is complete, or `inspect` the model first.",
        )
    return [one["name"] for one in info["outputs"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """The values of one input: a constant, or random values."""

    name: str
    dtype: str
    shape: list[int]
    low: float  # random integers are < high, floats <= high
    high: float
    constant: float | None = None  # an int for integer types: a float does not represent every int64


def input_fills(
    trial: Trial,
    spec: TrialSpec,
    info: wire.ModelInfo | None,
    tracker: SettingTracker,
    *,
    dtypes: Collection[str],
) -> list[Fill]:
    """Return the values of every input for a program without numpy, and mark those settings as exported.

    Args:
        trial: to reproduce.
        spec: of the trial.
        info: of its model.
        tracker: tracks the settings; input settings that the program does not support stay unexported.
        dtypes: that the program supports.

    Raises:
        SpecError: an input has another type, or the inputs of the trial are unknown.
    """
    inputs = measured_inputs(trial, spec, info)
    for one in inputs:
        if one["dtype"] not in dtypes:
            raise SpecError(
                f"Input `{one['name']}` is {one['dtype']}, which this format does not support.",
                hint="Choose the format python, which supports every type.",
            )
    tracker.mark_exported("batch_size", "dims", "seed")
    tracker.mark_unsupported("feeds", "random values of the same types and shapes are used instead")
    found = [_fill(one, spec) for one in inputs]
    drawn = {one["name"] for one in inputs if one.get("drawn")}
    lists = [
        one.name
        for one in found
        if one.constant is None and one.name in spec.workload.feed_values.keys() - drawn
    ]
    tracker.mark_exported("feed_values")
    if lists:
        told = ", ".join(map(repr, lists))
        tracker.mark_unsupported(
            "feed_values", f"only single numbers and ranges are supported; {told} gets random values"
        )
    return found


def _fill(one: wire.InputPlan, spec: TrialSpec) -> Fill:
    value = None if one.get("drawn") else spec.workload.feed_values.get(one["name"])
    low, high = random_range(one["dtype"], one["low"], one["high"])
    whole = isinstance(value, int) and not one["dtype"].endswith(("float16", "float32", "float64"))
    return Fill(
        name=one["name"],
        dtype=one["dtype"],
        shape=list(one["shape"]),
        low=low,
        high=high,
        constant=(value if whole else float(value)) if isinstance(value, bool | int | float) else None,
    )
