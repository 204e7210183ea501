"""One setting over several values: which points race, what became of them, which point is best.

Pure functions over specs, stored trials and comparisons; no clock, no file, no worker. The browser's Curves
page and the command line's `sweep` share them. Seconds throughout.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from core import wire
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.verdict import Grade
from core.run.study import Found, Known
from core.spec import TrialSpec, spec_from_dict
from core.spec.knobs import MAX_BATCH, MAX_THREADS, check_range, knob
from core.wire.errors import SpecError, nearest
from core.wire.guard import breach

BATCH = "batch_size"
THREADS = "intra_op_num_threads"
MAX_POINTS = 256  # a slip in a list must not queue thousands of measurements
STUDY_PREFIX = "curve"
PERCENTILE_NAMES = ("p50_s", "p90_s", "p95_s", "p99_s")
DEFAULT_BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One setting that is varied: `batch_size`, `intra_op_num_threads` or the name of a free dimension."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One configuration of a sweep: what it sets on each axis, and the spec that asks for it."""

    values: Mapping[str, int]
    spec: TrialSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point of a sweep and what became of it; the numbers are None unless it is COMPLETE."""

    values: Mapping[str, int]
    trial: str  # id
    state: str  # of its trial; "NEW" where there is none yet
    reused: bool  # measured before this sweep, with the same settings on the same machine
    rows: int | None = None  # rows really fed in one run
    runs: int = 0
    latency: Mapping[str, Any] | None = None  # the `latency` of the trial's result, seconds
    throughput_per_s: float | None = None
    providers: tuple[str, ...] = ()  # that really loaded
    requested: tuple[str, ...] = ()
    fallback: bool = False
    breach: str = ""  # why its outputs are not what they should be; empty: they are, or nobody looked
    error: str = ""
    race: str = ""  # id of the comparison in which it was measured
    grade: str = ""  # of that comparison
    contrast: Mapping[str, Any] | None = None  # against ONNX Runtime's default, in the same rounds
    is_default: bool = False  # it is that default, which the others were put against
    ties: frozenset[str] | None = None  # trials that race ranks with it; None: it ranks nobody

    @property
    def ranked(self) -> bool:
        """Whether its numbers may be put above or below others."""
        return self.latency is not None and self.grade != Grade.F

    def throughput_interval(self) -> tuple[float | None, float | None]:
        """Rows per second at the bounds of the mean latency; None where the runs carry no interval."""
        if not self.rows or not self.latency:
            return None, None
        low, high = self.latency.get("mean_s_low"), self.latency.get("mean_s_high")
        return (self.rows / high if high else None), (self.rows / low if low else None)


# --- what to measure ----------------------------------------------------------


def parse_values(text: str, *, name: str) -> tuple[int, ...]:
    """Read "1,2,4,8" into numbers, in the order given, each once.

    Raises:
        SpecError: no number, something that is no whole number, or a number out of the setting's range.
    """
    parts = [part for part in re.split(r"[\s,;]+", text.strip()) if part]
    if not parts:
        raise SpecError(f"No values for `{name}`.", hint="Write whole numbers with commas, such as 1,2,4,8.")
    for part in parts:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", part):
            raise SpecError(
                f"`{name}` takes whole numbers, but got `{part[:40]}`.",
                hint="Write whole numbers with commas, such as 1,2,4,8.",
            )
    return axis(name, [int(part) for part in parts]).values


def axis(name: str, values: Iterable[int]) -> Axis:
    """Return the axis `name` over `values`, each once, in the order given.

    Raises:
        SpecError: no values, too many, or one out of the setting's range.
    """
    kept = tuple(dict.fromkeys(values))
    if not kept:
        raise SpecError(f"No values for `{name}`.", hint="Give at least one whole number.")
    for value in kept:
        _check_value(name, value)
    _check_count(len(kept))
    return Axis(name=name, values=kept)


def _check_value(name: str, value: int) -> None:
    if name in (BATCH, THREADS):
        check_range(knob(name), value)
    elif not 1 <= value <= MAX_BATCH:
        raise SpecError(
            f"`1 <= {name} <= {MAX_BATCH}` must hold, but got {value}.",
            hint="Choose a size in that range.",
        )


def _check_count(count: int) -> None:
    if count > MAX_POINTS:
        raise SpecError(
            f"A sweep has at most {MAX_POINTS} points, but this one has {count}.",
            hint="Leave out values, or sweep one setting at a time.",
        )


def expand(base: TrialSpec, axes: Sequence[Axis], info: wire.ModelInfo | None = None) -> list[Point]:
    """Return every combination of the axes over `base`; the last axis varies fastest.

    Args:
        base: settings that all points share.
        axes: at least one, each with a name of its own.
        info: the model, when it is known: its free dimensions and its batch are then checked here, before
            anything is queued.

    Raises:
        SpecError: an axis that the model does not have, an axis given twice, too many points, or a
            combination that no spec allows.
    """
    axes = [_as_batch(one, info) for one in axes]
    names = [one.name for one in axes]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"`{name}` is swept twice.", hint="Give each setting one list of values.")
        if info is not None:
            _check_axis(name, info)
    _check_count(math.prod(len(one.values) for one in axes))
    points = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*(one.values for one in axes))
    ]
    return [Point(values=values, spec=with_values(base, values, info)) for values in points]


def _as_batch(one: Axis, info: wire.ModelInfo | None) -> Axis:
    """The batch dimension under its own name is the batch."""
    if info is not None and one.name == info["batch_dim"]:
        return Axis(name=BATCH, values=one.values)
    return one


def _check_axis(name: str, info: wire.ModelInfo) -> None:
    if name == THREADS:
        return
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
    if name not in info["free_dims"]:
        known = [BATCH, THREADS, *info["free_dims"]]
        raise SpecError(
            f"The model has no free dimension `{name}`.{nearest(name, known)}",
            hint=f"Sweep one of {', '.join(axis_names(info))}.",
        )


def with_values(base: TrialSpec, values: Mapping[str, int], info: wire.ModelInfo | None = None) -> TrialSpec:
    """Return `base` with the settings of one point; the batch in `dims` gives way to `batch_size`."""
    data = base.to_dict()
    session, workload = dict(data.get("session", {})), dict(data.get("workload", {}))
    dims = dict(workload.get("dims", {}))
    for name, value in values.items():
        if name == THREADS:
            session[name] = value
        elif name == BATCH:
            workload[name] = value
            dims.pop((info and info["batch_dim"]) or "", None)
        else:
            dims[name] = value
    workload["dims"] = dims
    return spec_from_dict({**data, "session": session, "workload": workload})


def axis_names(info: wire.ModelInfo) -> list[str]:
    """Names that can be swept on this model, the usual ones first."""
    batch = [BATCH] if info["batch_dim"] is not None else []
    return [*batch, THREADS, *(dim for dim in info["free_dims"] if dim != info["batch_dim"])]


def default_values(name: str, *, usable_threads: int, current: int | None = None) -> tuple[int, ...]:
    """Return values worth trying first on axis `name`.

    Batch: powers of two to 32. Threads: every number to 8, then doubling, never above `usable_threads` (what
    the affinity mask and the container's quota leave). Another dimension: powers of two around `current`.
    """
    if name == BATCH:
        return DEFAULT_BATCHES
    if name == THREADS:
        top = max(1, min(usable_threads, MAX_THREADS))
        if top <= 8:
            return tuple(range(1, top + 1))
        doubling = [2**k for k in range(top.bit_length()) if 2**k < top]
        return (*doubling, top)
    center = max(1, current or 64)
    return tuple(sorted({max(1, center // 4), max(1, center // 2), center, center * 2, center * 4}))


# --- the name under which a sweep is stored ----------------------------------------------------------


def study_name(one: Axis, token: str) -> str:
    """Name the trials of a sweep so that a person can read it and `axis_of_study` can read it back."""
    return f"{STUDY_PREFIX} {one.name}={','.join(map(str, one.values))} #{token}"


def axis_of_study(study: str) -> Axis | None:
    """Return the axis that `study_name` wrote, or None for a study of another kind."""
    match = re.fullmatch(rf"{STUDY_PREFIX} (.+)=([0-9]+(?:,[0-9]+)*) #\w+", study)
    if match is None:
        return None
    return Axis(name=match[1], values=tuple(int(value) for value in match[2].split(",")))


# --- what was measured ----------------------------------------------------------


def measured(point: Point, trial: Trial, *, reused: bool, race: Comparison | None = None) -> Measured:
    """Return the point as `trial` left it. The rows are those that were really fed.

    Args:
        point: what was asked.
        trial: that measured it.
        reused: whether it was measured before this sweep.
        race: the comparison that `trial` ran in, with the verdict on it and its ties.
    """
    result = trial.facts
    complete = trial.state == "COMPLETE" and bool(result)
    return Measured(
        values=point.values,
        trial=trial.id,
        state=trial.state,
        reused=reused,
        rows=result.get("batch_size") if complete else None,
        runs=result.get("runs") or 0,
        latency=result.get("latency") if complete else None,
        throughput_per_s=result.get("throughput_per_s") if complete else None,
        providers=tuple(result.get("effective_providers") or ()),
        requested=tuple(result.get("requested_providers") or ()),
        fallback=bool(result.get("fallback")),
        breach=breach(result),
        error=trial.error["message"] if trial.error else "",
        race=trial.comparison,
        grade=result.get("grade") or "",
        contrast=_against_default(trial.id, race),
        is_default=_has_default(race) and race.baseline == trial.id,
        ties=_ties(trial.id, race),
    )


def _has_default(race: Comparison | None) -> TypeGuard[Comparison]:
    """Whether a race put everybody against ONNX Runtime's default, as it does where no baseline is given."""
    return race is not None and all(one.role != "baseline" for one in race.contestants)


def _against_default(trial: str, race: Comparison | None) -> Mapping[str, Any] | None:
    if not _has_default(race) or race.result is None:
        return None
    own = (one for one in race.result["contrasts"] if one["candidate"] == trial)
    return next((one for one in own if one["baseline"] == race.baseline), None)


def _ties(trial: str, race: Comparison | None) -> frozenset[str] | None:
    ranks = race.facts.get("ranks") or () if race is not None else ()
    return next((frozenset(one["ties"]) for one in ranks if one["trial"] == trial), None)


def join(points: Sequence[Point], known: Known) -> list[Measured]:
    """Put each point together with what its study knows of it, in the points' order; "NEW": nothing yet."""
    return [_joined(point, known.get(point.spec.key())) for point in points]


def _joined(point: Point, found: Found | None) -> Measured:
    if found is None:
        return Measured(values=point.values, trial="", state="NEW", reused=False)
    return measured(point, found.trial, reused=found.reused, race=found.race)


def supported_percentile(points: Sequence[Measured], wanted: Sequence[str] = ("p95_s", "p50_s")) -> str:
    """Return the first of `wanted` that every complete point supports, or the last one."""
    complete = [one for one in points if one.latency]
    for name in wanted:
        if complete and all(one.latency and one.latency.get(name) is not None for one in complete):
            return name
    return wanted[-1]


def best_under(points: Iterable[Measured], line_s: float, percentile: str) -> list[Measured]:
    """Return the points of highest throughput whose `percentile` is at or under `line_s`.

    Args:
        points: of any state; those count that may be ranked and whose runs support the percentile.
        line_s: the latency line, seconds.
        percentile: "p50_s", "p90_s", "p95_s", "p99_s" or "mean_s".

    Returns:
        The point with the highest throughput and those that cannot be told apart from it, the lowest latency
        first: where throughput does not decide, latency does. Empty when no point is under the line.
    """
    under = [
        one
        for one in points
        if one.ranked
        and one.throughput_per_s is not None
        and (value := (one.latency or {}).get(percentile)) is not None
        and value <= line_s
    ]
    return fastest(under, percentile)


def fastest(points: Iterable[Measured], percentile: str) -> list[Measured]:
    """Return the point of highest throughput and its ties, the lowest `percentile` first."""
    ranked = [one for one in points if one.ranked and one.throughput_per_s is not None]
    if not ranked:
        return []
    top = max(ranked, key=lambda one: one.throughput_per_s or 0.0)
    level = [one for one in ranked if one is top or tied(one, top)]
    return sorted(level, key=lambda one: (one.latency or {}).get(percentile) or math.inf)


def tied(one: Measured, other: Measured) -> bool:
    """True where the throughputs of two points cannot be told apart.

    Of one race, its ranks say so: pairs of blocks of the same rounds. Of two races, and of a race too large
    to rank, only the intervals are left, which are wider.
    """
    if one.race == other.race and other.ties is not None:
        return one.trial in other.ties
    low, high = one.throughput_interval()
    other_low, other_high = other.throughput_interval()
    if low is None or high is None or other_low is None or other_high is None:
        return True
    return low <= other_high and other_low <= high


def surely_under(point: Measured, line_s: float, percentile: str) -> bool:
    """True where even the upper bound of the percentile's 95 % interval is at or under the line."""
    high = (point.latency or {}).get(f"{percentile}_high")
    return high is not None and high <= line_s
