"""Sweeps of one or two settings over several values: the points to measure, and their results.

Functions over specs, stored trials and comparisons, pure except for those that take a store. The page Sweep
and the command `sweep` share them; `best_point` ranks the points. Seconds throughout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from core import wire
from core.evidence.comparison import Comparison, Configuration
from core.evidence.measurement import Trial
from core.evidence.result_types import TrialResult
from core.evidence.statistics import MIN_BLOCKS
from core.evidence.streams import throughput_interval
from core.evidence.verdict import Grade
from core.process import runtimes
from core.run.known_trials import Earlier, Known, KnownTrial, is_current
from core.run.search.search_space import models_of
from core.spec import ModelRef, TrialSpec, effective, spec_from_dict, with_changes, without_effect
from core.spec.axes import (
    BATCH,
    MAX_AXES,
    RUNTIME,
    Models,
    Values,
    axes_of_study,
    axis_names,
    check_count,
    point_name,
    row_of,
    varies,
)
from core.spec.question import Question
from core.spec.settings import SETTINGS, Value
from core.spec.space import MODEL, Axis
from core.store import ModelRecord, Store
from core.wire.errors import SpecError, nearest
from core.wire.output_check import breach
from core.wire.runtime import runtime

NEW, REFUSED = "NEW", "REFUSED"  # states of a point without a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One configuration of a sweep: its value on each axis, and its spec."""

    values: Values
    spec: TrialSpec | None  # None: the combination is invalid
    refused: str = ""  # why it is invalid
    same: Values | None = None  # the equivalent point that is measured instead; None: it is measured itself
    why: str = ""  # reason for the equivalence
    equivalent_spec: TrialSpec | None = None  # the spec of `same`

    @property
    def measured_spec(self) -> TrialSpec | None:
        """The spec whose results apply to this point."""
        return self.equivalent_spec or self.spec

    @property
    def is_measured(self) -> bool:
        """Whether the point itself is measured."""
        return self.spec is not None and self.same is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point of a sweep with its results; the numbers are None unless it is COMPLETE."""

    values: Values
    trial: str  # id
    state: str  # of its trial; NEW: not measured yet, REFUSED: invalid
    reused: bool  # measured before this sweep, with the same settings on the same machine
    result: TrialResult = field(default_factory=TrialResult)  # of its trial; without numbers unless complete
    error: str = ""  # of the trial, or why it is invalid
    same: Values | None = None  # the equivalent point that was measured
    why: str = ""  # reason for the equivalence
    comparison: str = ""  # id of the comparison that measured it
    contrast: Mapping[str, Any] | None = None  # versus the ORT default, in the same rounds
    is_default: bool = False  # it is the ORT default, the reference of the others

    @property
    def latency(self) -> Mapping[str, Any] | None:
        """Statistics of its latency, seconds; None: no numbers."""
        return self.result.get("latency")

    @property
    def throughput_per_s(self) -> float | None:
        """Samples per second; None: no numbers."""
        return self.result.get("throughput_per_s")

    @property
    def fallback(self) -> bool:
        """Whether nodes ran on another execution provider than requested."""
        return bool(self.result.get("fallback"))

    @property
    def breach(self) -> str:
        """Why its outputs exceed the tolerance; empty: within it, or not checked."""
        return breach(self.result)

    @property
    def processes(self) -> int | None:
        """Number of processes that ran it; None: stored by an earlier version."""
        own = (self.latency or {}).get("processes")
        return self.result.get("generations") if own is None else own

    @property
    def ranked(self) -> bool:
        """Whether it may be ranked against other points."""
        rejected = self.result.get("grade") == Grade.F
        return self.latency is not None and self.state == "COMPLETE" and not rejected

    @property
    def cut_short(self) -> bool:
        """Whether its comparison was cancelled, so that its numbers are partial."""
        return self.latency is not None and self.state == "CANCELLED"

    def throughput_interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of `throughput_per_s`; None where there is none.

        Rounds of a single process give no interval, because they do not show the variance between processes.
        """
        if not self.latency or not self._covers_processes(self.latency):
            return None, None
        return throughput_interval(self.result)

    def _covers_processes(self, latency: Mapping[str, Any]) -> bool:
        if "processes" in latency:
            return bool(latency["processes"] > 1)
        made = self.processes  # an old version took rounds as clusters below five processes
        return made is None or made >= MIN_BLOCKS


# --- what to measure ----------------------------------------------------------


def expand(
    base: TrialSpec, axes: Sequence[Axis], info: wire.ModelInfo | None = None, models: Models | None = None
) -> list[Point]:
    """Return every combination of the axes over `base`; the last axis varies fastest.

    An invalid combination is a point with its reason. Of equivalent combinations, where a setting has no
    effect, only the first is measured; the others refer to it.

    Args:
        base: settings that all points share.
        axes: one or two, with different names.
        info: facts of the model, if known: its free dimensions and batch are then checked here, before
            anything is queued.
        models: the models of the axis MODEL.

    Raises:
        SpecError: an axis that the model does not have, an axis given twice, too many axes or points, or no
            valid combination.
    """
    axes = [_as_batch(one, info) for one in axes]
    names = [one.name for one in axes]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"`{name}` is swept twice.", hint="Give each setting one list of values.")
    if len(names) > MAX_AXES:
        raise SpecError(
            f"A sweep varies at most {MAX_AXES} settings, but got {len(names)}: {', '.join(names)}.",
            hint="Remove one, or search over all of them.",
        )
    for one in axes:
        if info is not None:
            _check_axis(one, info, models or {})
    check_count(math.prod(len(one.values) for one in axes))
    rows = itertools.product(*(one.values for one in axes))
    points = [_point(base, dict(zip(names, values, strict=True)), info, models) for values in rows]
    if all(point.spec is None for point in points):
        raise SpecError(points[0].refused, hint="Choose other values, or correct the fixed settings.")
    return _link_equivalent(points, axes)


def _point(base: TrialSpec, values: Values, info: wire.ModelInfo | None, models: Models | None) -> Point:
    try:
        return Point(values=values, spec=with_values(base, values, info, models))
    except SpecError as error:
        return Point(values=values, spec=None, refused=error.message)


def _link_equivalent(points: Sequence[Point], axes: Sequence[Axis]) -> list[Point]:
    """Let each point refer to the first equivalent one."""
    by_values = {tuple(point.values.values()): point for point in points}
    first: dict[str, Point] = {}
    found = []
    for point in points:
        idle = {name: why for name, why in _idle(point).items() if name in point.values}
        plain = tuple(one.values[0] if one.name in idle else point.values[one.name] for one in axes)
        other = by_values[plain]
        if point.spec is None or other.spec is None:
            found.append(point)
            continue
        other = first.setdefault(other.spec.key(), other)
        if other is not point:
            why = "; ".join(f"`{name}` has no effect: {text}" for name, text in idle.items())
            point = Point(
                values=point.values,
                spec=point.spec,
                same=other.values,
                why=why or "both are the same request",
                equivalent_spec=other.spec,
            )
        found.append(point)
    return found


def _idle(point: Point) -> Mapping[str, str]:
    return {} if point.spec is None else without_effect(point.spec)


def _as_batch(one: Axis, info: wire.ModelInfo | None) -> Axis:
    """The axis, renamed to BATCH where it is the batch dimension by name."""
    if info is not None and one.name == info["batch_dim"]:
        return Axis(name=BATCH, values=one.values)
    return one


def _check_axis(one: Axis, info: wire.ModelInfo, models: Models) -> None:
    name = one.name
    if name == BATCH:
        if info["batch_dim"] is None and not info["fixed_batch"]:
            raise SpecError(
                "No input of this model has a batch dimension, so there is no batch size to sweep.",
                hint="Sweep the threads or another free dimension.",
            )
        if info["batch_dim"] is None:
            raise SpecError(
                f"The model's batch is fixed at {info['fixed_batch']}, so there is no batch size to sweep.",
                hint="Export the model with a dynamic batch, or sweep the threads.",
            )
        return
    if name == MODEL:
        for value in one.values:
            if value not in models:
                raise SpecError(
                    f"`{str(value)[:60]}` is not a variant of this model.{nearest(str(value), models)}",
                    hint=f"Choose among {', '.join(models) or 'none'}, or create one with `transform`.",
                )
        return
    if name not in info["free_dims"] and row_of(name) is None:
        known = [*axis_names(info), *(row.name for row in SETTINGS if varies(row))]
        raise SpecError(
            f"`{name[:60]}` is neither a setting nor a free dimension of this model.{nearest(name, known)}",
            hint=f"Sweep {', '.join(axis_names(info))}, or another setting.",
        )


def with_values(
    base: TrialSpec, values: Values, info: wire.ModelInfo | None = None, models: Models | None = None
) -> TrialSpec:
    """Return `base` with the settings of one point; `batch_size` replaces the batch in `dims`.

    Raises:
        SpecError: the combination is invalid, or there is no such runtime.
    """
    chosen = {name: value for name, value in values.items() if row_of(name) is not None and name != BATCH}
    if (named := chosen.get(RUNTIME)) is not None:
        chosen[RUNTIME] = runtimes.pinned(str(named))
    data = (with_changes(base, chosen) if chosen else base).to_dict()
    workload = dict(data.get("workload", {}))
    dims = dict(workload.get("dims", {}))
    for name, value in values.items():
        if name == BATCH:
            workload[name] = value
            dims.pop((info and info["batch_dim"]) or "", None)
        elif name == MODEL:
            kept = {key: data["model"][key] for key in ("precision", "keep_io_types") if key in data["model"]}
            ref = (models or {})[str(value)]
            data["model"] = {**kept, "path": ref.path, "sha256": ref.sha256}
        elif name not in chosen:
            dims[name] = value
    workload["dims"] = dims
    return spec_from_dict({**data, "workload": workload})


def configurations(points: Iterable[Point]) -> list[Configuration]:
    """Return the configurations to compare: one per point that is measured itself."""
    return [
        Configuration(spec=point.spec, label=point_name(point.values))
        for point in points
        if point.spec is not None and point.same is None
    ]


# --- what was measured ----------------------------------------------------------


def measured(point: Point, trial: Trial, *, reused: bool, comparison: Comparison | None = None) -> Measured:
    """Return the point with the results of `trial` and the measured batch size.

    Args:
        point: the point.
        trial: that measured it.
        reused: whether it was measured before this sweep.
        comparison: the comparison of `trial`, with its verdicts.
    """
    result = trial.facts
    if trial.state not in ("COMPLETE", "CANCELLED") or not result.get("latency"):
        facts = {name: value for name, value in result.items() if name in _WITHOUT_NUMBERS}
        result = cast(TrialResult, facts)
    return Measured(
        values=point.values,
        same=point.same,
        why=point.why,
        result=result,
        trial=trial.id,
        state=trial.state,
        reused=reused,
        error=trial.error["message"] if trial.error else "",
        comparison=trial.comparison,
        contrast=_against_default(trial.id, comparison),
        is_default=_has_default(comparison) and comparison.baseline == trial.id,
    )


_WITHOUT_NUMBERS = ("effective_providers", "requested_providers", "fallback", "guard", "runs")


def _has_default(comparison: Comparison | None) -> TypeGuard[Comparison]:
    """Whether the reference of a comparison is the ORT default: no baseline was given."""
    return comparison is not None and all(one.role != "baseline" for one in comparison.contestants)


def _against_default(trial: str, comparison: Comparison | None) -> Mapping[str, Any] | None:
    if not _has_default(comparison) or comparison.result is None:
        return None
    own = (one for one in comparison.result["contrasts"] if one["candidate"] == trial)
    return next((one for one in own if one["baseline"] == comparison.baseline), None)


def join(points: Sequence[Point], known: Known) -> list[Measured]:
    """Return each point with its result in the study, in the points' order; NEW: none yet."""
    return [_joined(point, known) for point in points]


def _joined(point: Point, known: Known) -> Measured:
    if point.measured_spec is None:
        return Measured(values=point.values, trial="", state=REFUSED, reused=False, error=point.refused)
    found: KnownTrial | None = known.get(point.measured_spec.key())
    if found is None:
        return Measured(
            values=point.values, trial="", state=NEW, reused=False, same=point.same, why=point.why
        )
    return measured(point, found.trial, reused=found.reused, comparison=found.comparison)


def running_points(
    points: Sequence[Point], trials: Sequence[Trial], live: Mapping[str, Mapping[str, Any]]
) -> list[Measured]:
    """Return the points of a running comparison, with the median run of each so far and no interval.

    Args:
        points: of the sweep.
        trials: of the comparison.
        live: "p50_s": trial -> seconds of a run so far; "rate_per_s": trial -> samples per second; and
            "rows_fed": trial -> measured batch size.
    """
    by_key = {one.key: one for one in trials}
    found = []
    for point in points:
        trial = None if point.measured_spec is None else by_key.get(point.measured_spec.key())
        known, rate, rows = (
            live.get(name, {}).get(trial.id) if trial is not None else None
            for name in ("p50_s", "rate_per_s", "rows_fed")
        )
        found.append(
            Measured(
                values=point.values,
                trial="" if trial is None else trial.id,
                state=NEW if trial is None else trial.state,
                reused=False,
                result=_so_far(rows, known, rate),
            )
        )
    return found


def _so_far(rows: int | None, p50_s: float | None, rate_per_s: float | None) -> TrialResult:
    """Return what a running point has of a result."""
    found: dict[str, Any] = {"batch_size": rows}
    if p50_s:
        found["latency"] = {"p50_s": p50_s}
        found["throughput_per_s"] = rate_per_s or (rows / p50_s if rows else None)
    return cast(TrialResult, found)


# --- stored sweeps ------------------------------------------------------------------------------------------


def models(store: Store, record: ModelRecord) -> dict[str, ModelRef]:
    """Return the models of the axis MODEL: the model itself, then its variants."""
    itself = ModelRef(path=record.path, sha256=record.sha256)
    return {record.name: itself, **models_of(store, record, Question()).refs}


def before(store: Store, record: ModelRecord, models: Models, *, fingerprint: str) -> Earlier:
    """Return a function that finds an earlier measurement of a point with any model on this machine.

    Args:
        store: holds the trials.
        record: of the swept model.
        models: the values of MODEL.
        fingerprint: of the machine and its libraries.
    """
    known = [one for ref in models.values() if (one := store.model(ref.sha256 or "")) is not None]
    contents = {one.sha256: one.content_sha256 for one in known}

    def earlier(spec: TrialSpec) -> Trial | None:
        if not spec.repeatable:
            return None
        content = contents.get(spec.model.sha256 or "", record.content_sha256)
        found = store.find_complete(spec.key(), fingerprint, model_sha256=content)
        return found if found is not None and is_current(spec, found) else None

    return earlier


def earlier_sweeps(
    comparisons: Iterable[Comparison],
    trials_of: Callable[[str], Sequence[Trial]],
    axes: Sequence[Axis],
    models: Models,
    *,
    but: str,
    most: int,
) -> list[tuple[Comparison, list[Measured]]]:
    """Return the newest earlier sweeps over the same axes, each with its measured points.

    Args:
        comparisons: comparisons of the model, newest first.
        trials_of: lists the trials of a comparison.
        axes: of the displayed sweep.
        models: the values of MODEL.
        but: study name of the displayed sweep, to leave out.
        most: maximum number of sweeps.
    """
    names = {one.name for one in axes}
    found: list[tuple[Comparison, list[Measured]]] = []
    for comparison in comparisons:
        if comparison.study == but or {one.name for one in axes_of_study(comparison.study)} != names:
            continue
        asked = {one.trial for one in comparison.contestants if one.role == "candidate"}
        rows = [
            of_trial(one, axes, models, comparison) for one in trials_of(comparison.id) if one.id in asked
        ]
        if known := [one for one in rows if one is not None and one.latency is not None]:
            found.append((comparison, known))
        if len(found) == most:
            break
    return found


def of_trial(trial: Trial, axes: Sequence[Axis], models: Models, comparison: Comparison) -> Measured | None:
    """The point of a trial; None: it was stored by another version."""
    try:
        spec = spec_from_dict(trial.spec)
    except SpecError:
        return None
    values = {one.name: _value_on_axis(spec, one.name, models) for one in axes}
    return measured(Point(values=values, spec=spec), trial, reused=False, comparison=comparison)


def _value_on_axis(spec: TrialSpec, name: str, models: Models) -> Value | None:
    if name == BATCH:
        return spec.workload.batch_size or 1
    if name == MODEL:
        return next((one for one, ref in models.items() if ref.sha256 == spec.model.sha256), None)
    if name == RUNTIME:
        return runtime(spec.runtime).name
    return spec.workload.dims.get(name) if row_of(name) is None else effective(spec, name)
