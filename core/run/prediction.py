"""Predicts the duration of a comparison from earlier ones on this machine.

A prediction applies the rules of a comparison (blocks, launches, budget) to measured latencies, noise and
start times. It is scaled by its own error for the earlier comparisons. Without an earlier comparison there is
no prediction. Reads the store, starts nothing. Seconds throughout.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.evidence.comparison import Comparison
from core.evidence.continuation import parts
from core.evidence.measurement import Trial
from core.evidence.speedup_interval import ASSUMED_PRIOR, predicted_launches, sufficient_analysis
from core.evidence.stopping import P99_MAX_S, P99_ROUNDS
from core.evidence.verdict import MIN_LAUNCHES
from core.run.launches.blocks import SWITCH_S, exact_pace, pace, split_runs
from core.run.launches.budget import (
    EXACT_LAUNCHES,
    MIN_ROUNDS_OF_TWO,
    Costs,
    interval_budget_s,
    launches_left,
    rounds_of_launch,
)
from core.spec import ProtocolSpec, TrialSpec, effective, spec_from_dict
from core.spec.effort import EFFORTS
from core.store import Store
from core.wire.engines import ENGINES
from core.wire.errors import SpecError

COMPARISONS_READ = 8  # the newest: libraries and background load change
MOST_FACTOR = 3.0  # a larger error cannot be corrected by scaling


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A measured configuration and its typical run."""

    spec: TrialSpec
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonHistory:
    """Facts from earlier comparisons of a model: typical runs, durations of starts and passes, noise."""

    seen: tuple[MeasuredRun, ...]
    start_s: float  # of one process: starting, loading, warming up
    after_s: float  # of one configuration: the passes after the rounds
    beside_s: float  # of a comparison: preparation, and the profile after it
    sigma: float  # of the log ratio of one round within a launch
    sigma_between: float  # of the log ratio of two fresh processes
    generations: Mapping[str, int]  # effort -> typical number of launches
    factor: float = 1.0  # measured over predicted duration of these comparisons


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted duration of a comparison. `in_budget` False: the budget ends before the answer is precise."""

    seconds: float
    rounds: int
    in_budget: bool
    interval_budget_s: int | None = None  # that an interval needs, where the budget is too small

    @property
    def late(self) -> str:
        """Warning that the budget is too small, with a sufficient one; empty: it suffices."""
        if self.interval_budget_s is not None:
            return (
                f"the budget allows 1 launch of each, but an interval needs {MIN_LAUNCHES}: use a "
                f"budget of about {self.interval_budget_s} s"
            )
        return "" if self.in_budget else "the budget may end before this precision is reached"


def past(store: Store, *, model_sha256: str, fingerprint: str) -> ComparisonHistory | None:
    """Return facts from earlier comparisons of a model on this machine; None when there are too few.

    Raises:
        StoreError: the store cannot be read.
    """
    comparisons = [
        (comparison, store.trials_of(comparison.id))
        for comparison in store.comparisons(
            model_sha256=model_sha256, state="COMPLETE", limit=COMPARISONS_READ
        )
        if comparison.fingerprint == fingerprint
    ]
    return history_of(comparisons)


def history_of(comparisons: Sequence[tuple[Comparison, Sequence[Trial]]]) -> ComparisonHistory | None:
    """Return facts from `comparisons`, newest first; None when they do not contain all of them.

    Comparisons of old versions with only one pair of processes are left out.
    """
    known = [
        one
        for comparison, trials in comparisons
        if (one := _EarlierComparison.of(comparison, trials)) is not None
    ]
    noise = [one for comparison in known for one in comparison.noise]
    if not known or not noise:
        return None
    by_precision: dict[str, list[int]] = {}
    for one in known:
        if not one.exact:
            by_precision.setdefault(one.precision, []).append(one.generations)
    found = ComparisonHistory(
        seen=tuple(seen for one in known for seen in one.seen),
        start_s=statistics.median(one.start_s / one.processes for one in known),
        after_s=statistics.median(one.after_s / one.contestants for one in known),
        beside_s=statistics.median(one.beside_s for one in known),
        sigma=statistics.median(within for within, _ in noise),
        sigma_between=statistics.median(between for _, between in noise),
        generations={name: round(statistics.median(counts)) for name, counts in by_precision.items()},
    )
    factors = [one.wall_s / expected for one in known if (expected := one.expected_s(found)) > 0]
    factor = statistics.median(factors) if factors else 1.0
    return replace(found, factor=min(MOST_FACTOR, max(1 / MOST_FACTOR, factor)))


def predict(specs: Sequence[TrialSpec], past: ComparisonHistory, family: int | None = None) -> Prediction:
    """Predict the duration of a comparison of `specs` under the protocol of the first one.

    Args:
        specs: with the ORT default last.
        past: facts from earlier comparisons.
        family: as for `protocol_of`.
    """
    protocol = specs[0].protocol
    runs_s = [expected_run_s(spec, past.seen) for spec in specs]
    processes_s = [*runs_s, runs_s[-1]]  # the ORT default comes last, and has an A/A control
    if protocol.runs is not None:
        rounds, rounds_s = _exact(processes_s, protocol.runs, past)
        return Prediction(seconds=past.factor * rounds_s + past.beside_s, rounds=rounds, in_budget=True)
    found = _in_budget(processes_s, protocol, past, family or max(1, len(specs) - 1))
    budget_s = float(protocol.budget_s or EFFORTS[protocol.effort].budget_s)
    seconds = min(past.factor * found.seconds, max(budget_s, found.seconds)) + past.beside_s
    return replace(found, seconds=seconds)


def _exact(processes_s: Sequence[float], runs: int, past: ComparisonHistory) -> tuple[int, float]:
    parts = split_runs(runs)
    rounds_s = math.fsum(
        exact_pace(run_s * 1e9, part).expected_s + SWITCH_S for run_s in processes_s[:-1] for part in parts
    )
    starts_s = min(len(parts), EXACT_LAUNCHES) * len(processes_s) * past.start_s
    return len(parts), rounds_s + starts_s + (len(processes_s) - 1) * past.after_s


def _in_budget(
    processes_s: Sequence[float], protocol: ProtocolSpec, past: ComparisonHistory, family: int
) -> Prediction:
    """Rounds and duration of a comparison with a budget, and whether the budget suffices."""
    precision = EFFORTS[protocol.effort]
    budget_s = float(protocol.budget_s or precision.budget_s)
    costs = _costs(processes_s, past)
    left_s = budget_s - costs.start_s - costs.after_s
    ratio = (past.sigma / past.sigma_between) ** 2 if past.sigma_between else None
    each = rounds_of_launch(costs, left_s, made=0, variance_ratio=ratio)
    deviation = math.sqrt(past.sigma_between**2 + past.sigma**2 / each)
    shares = parts(len(precision.looks), family)
    units = predicted_launches(deviation, precision.target, looks=shares, prior_df=ASSUMED_PRIOR.df)
    look = sufficient_analysis(units, precision.looks)
    wanted = past.generations.get(precision.name) or look or precision.looks[-1]
    generation_s = costs.start_s + each * costs.round_s
    wanted = max(wanted, min(math.ceil(P99_ROUNDS / each), math.ceil(P99_MAX_S / generation_s)))
    most = 1 + launches_left(costs, left_s - each * costs.round_s, each, least=MIN_ROUNDS_OF_TWO)
    made = min(wanted, most)
    return Prediction(
        seconds=made * generation_s + costs.after_s,
        rounds=made * each,
        in_budget=look is not None and wanted <= most,
        interval_budget_s=interval_budget_s(costs, costs.start_s) if made < MIN_LAUNCHES else None,
    )


def _costs(processes_s: Sequence[float], past: ComparisonHistory) -> Costs:
    paces = [pace(run_s * 1e9) for run_s in processes_s]
    return Costs(
        start_s=past.start_s * len(processes_s),
        round_s=math.fsum(one.expected_s + SWITCH_S for one in paces),
        after_s=past.after_s * (len(processes_s) - 1),
        runs=min(one.min_runs for one in paces),
    )


# --- earlier comparisons ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _EarlierComparison:
    """One earlier comparison."""

    seen: list[MeasuredRun]
    precision: str
    exact: bool  # its protocol has an exact number of runs
    contestants: int
    processes: int
    generations: int
    rounds: int
    start_s: float  # of a launch
    after_s: float
    beside_s: float
    wall_s: float
    noise: list[tuple[float, float]]

    @classmethod
    def of(cls, comparison: Comparison, trials: Sequence[Trial]) -> _EarlierComparison | None:
        """Read a stored comparison; None where it lacks facts."""
        result = comparison.facts
        generations = result.get("generations") or []
        seen = [one for trial in trials if (one := _seen(trial)) is not None]
        went_on = "continues" in comparison.protocol  # its wall time excludes the continued launches
        if (
            went_on
            or not seen
            or not generations
            or comparison.started_at is None
            or comparison.finished_at is None
        ):
            return None
        rounds = sum(one["rounds"] for one in generations)
        processes_s = [*(one.run_s for one in seen), seen[-1].run_s]
        rounds_s = rounds * math.fsum(pace(run_s * 1e9).expected_s + SWITCH_S for run_s in processes_s)
        starts_s = math.fsum(one["start_s"] for one in generations)
        noise = [
            (within, between)
            for one in result.get("contrasts", ())
            if (within := one["sigma"]) and (between := one.get("sigma_between")) is not None
        ]
        return cls(
            seen=seen,
            precision=comparison.protocol["precision"],
            exact=comparison.protocol.get("runs") is not None,
            contestants=len(seen),
            processes=len(processes_s),
            generations=len(generations),
            rounds=rounds,
            start_s=statistics.median(one["start_s"] for one in generations),
            after_s=max(0.0, result["wall_s"] - starts_s - rounds_s),
            beside_s=max(0.0, comparison.finished_at - comparison.started_at - result["wall_s"]),
            wall_s=result["wall_s"],
            noise=noise,
        )

    def expected_s(self, past: ComparisonHistory) -> float:
        """The prediction for this comparison, given its real number of launches."""
        costs = _costs([*(one.run_s for one in self.seen), self.seen[-1].run_s], past)
        return self.generations * costs.start_s + self.rounds * costs.round_s + costs.after_s


def _seen(trial: Trial) -> MeasuredRun | None:
    run_s = trial.p50_s
    if not run_s:
        return None
    try:
        return MeasuredRun(spec=spec_from_dict(trial.spec), run_s=run_s)
    except SpecError:  # stored by another version
        return None


def expected_run_s(spec: TrialSpec, seen: Sequence[MeasuredRun]) -> float:
    """Return the inference time of the nearest configuration, scaled by the batch and the free dimensions.

    It assumes a constant cost per sample, which overestimates larger batches; threads do not scale it.
    """
    work, name = _work(spec), ENGINES[spec.engine].threads

    def distance(one: MeasuredRun) -> tuple[bool, float, bool]:
        apart = abs(math.log(work / _work(one.spec)))
        other_threads = name != "" and effective(one.spec, name) != effective(spec, name)
        return one.spec.engine != spec.engine, apart, other_threads

    near = min(seen, key=distance)
    run_s: float = near.run_s * work / _work(near.spec)
    return run_s


def _work(spec: TrialSpec) -> float:
    sizes = (
        max(1, size) for size in spec.workload.dims.values()
    )  # an empty cache (size 0) must not make the product 0
    return float(math.prod(sizes, start=spec.workload.batch_size or 1))
