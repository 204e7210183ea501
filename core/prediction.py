"""How long a race will take, before it starts: from what earlier races of the model showed on this machine.

A prediction follows the race's own rules (block length, looks, budget) with latencies, noise and overhead
that were really seen. What was never seen is not guessed: without an earlier race there is none. Reads the
store, starts nothing. Seconds throughout.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.comparison import Comparison
from core.contrast import PRECISIONS, predicted_rounds, sufficient_look
from core.errors import SpecError
from core.measurement import Trial
from core.race import SELF_TEST_ROUNDS
from core.race.blocks import exact_pace, pace, split_runs
from core.race.standing import RICH_ROUNDS, RICH_S
from core.spec import ProtocolSpec, TrialSpec, effective, spec_from_dict
from core.store import Store

RACES = 8  # the newest: libraries and neighbours change
SELF_TESTS = 10
SWITCH_S = 0.002  # from one contestant to the next: thaw, ask, answer, freeze
SELF_TEST_BLOCKS = 2 * 2 * SELF_TEST_ROUNDS  # before and after, of two processes each


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A configuration that was measured, and its typical run."""

    spec: TrialSpec
    run_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What earlier races of a model showed: typical runs, what a contestant costs beside them, the noise."""

    seen: tuple[Seen, ...]
    overhead_s: float  # of each contestant: start, loading, warm-up, passes of their own
    sigma: float  # of one paired log-ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How long a race will take. `in_budget` False: its budget will end before the answer is precise."""

    seconds: float
    rounds: int
    in_budget: bool


def past(store: Store, *, model_sha256: str, fingerprint: str) -> Past | None:
    """Return what earlier races of a model on this machine showed; None when there is too little to tell.

    Raises:
        StoreError: the store cannot be read.
    """
    races = [
        (race, store.trials_of(race.id))
        for race in store.comparisons(model_sha256=model_sha256, state="COMPLETE", limit=RACES)
        if race.fingerprint == fingerprint
    ]
    return learn(races, store.self_tests(fingerprint, limit=SELF_TESTS))


def learn(
    races: Sequence[tuple[Comparison, Sequence[Trial]]], self_tests: Sequence[Mapping[str, Any]]
) -> Past | None:
    """Return what `races` and `self_tests`, newest first, showed; None when they do not tell all of it."""
    seen = [one for _, trials in races for trial in trials if (one := _seen(trial)) is not None]
    overheads = [s for race, trials in races if (s := _overhead_s(race, trials)) is not None]
    sigmas = _sigmas(contrast for race, _ in races for contrast in (race.result or {}).get("contrasts", ()))
    sigmas = sigmas or _sigmas(self_tests)
    if not (seen and overheads and sigmas):
        return None
    return Past(seen=tuple(seen), overhead_s=statistics.median(overheads), sigma=statistics.median(sigmas))


def predict(specs: Sequence[TrialSpec], past: Past) -> Prediction:
    """Return how long a race of `specs`, the anchor among them, will take; the first one's protocol holds."""
    protocol = specs[0].protocol
    runs_s = [_run_s(spec, past.seen) for spec in specs]
    rounds, racing_s, in_budget = _rounds(runs_s, protocol, past.sigma)
    return Prediction(seconds=past.overhead_s * len(specs) + racing_s, rounds=rounds, in_budget=in_budget)


def _rounds(runs_s: Sequence[float], protocol: ProtocolSpec, sigma: float) -> tuple[int, float, bool]:
    """Rounds of a race, what they and the self-tests take, and whether the budget suffices."""
    if protocol.runs is not None:
        parts = split_runs(protocol.runs)
        tested_s = _block_s(runs_s[0]) * SELF_TEST_BLOCKS
        return len(parts), tested_s + sum(_exact_round_s(runs_s, part) for part in parts), True
    precision = PRECISIONS[protocol.precision]
    budget_s = float(protocol.budget_s or precision.budget_s)
    round_s = sum(map(_block_s, runs_s))
    tested_s = _block_s(runs_s[0]) * SELF_TEST_BLOCKS
    needed = predicted_rounds(sigma, precision.target, looks=len(precision.looks))
    look = sufficient_look(needed, precision.looks) or precision.looks[-1]
    rounds_s = max(look * round_s, min(RICH_ROUNDS * round_s, RICH_S))
    left_s = max(0.0, budget_s - tested_s)
    rounds = max(1, round(min(rounds_s, left_s) / round_s))
    return rounds, min(budget_s, tested_s + rounds_s), rounds_s <= left_s and needed <= look


def _block_s(run_s: float) -> float:
    """A block, the run before it that does not count, and the switch."""
    return pace(round(run_s * 1e9)).expected_s + run_s + SWITCH_S


def _exact_round_s(runs_s: Sequence[float], runs: int) -> float:
    return sum(exact_pace(round(run_s * 1e9), runs).expected_s + SWITCH_S for run_s in runs_s)


# --- what was seen ------------------------------------------------------------------------------------------


def _seen(trial: Trial) -> Seen | None:
    run_s = ((trial.result or {}).get("latency") or {}).get("p50_s")
    if not run_s:
        return None
    try:
        return Seen(spec=spec_from_dict(trial.spec), run_s=run_s)
    except SpecError:  # stored by another version
        return None


def _overhead_s(race: Comparison, trials: Sequence[Trial]) -> float | None:
    """What a race took beside its rounds, per contestant; None when that cannot be known."""
    runs_s = [one.run_s for trial in trials if (one := _seen(trial)) is not None]
    rounds: int = (race.result or {}).get("rounds") or 0
    if race.started_at is None or race.finished_at is None or not runs_s or not rounds:
        return None
    racing_s = rounds * sum(map(_block_s, runs_s)) + SELF_TEST_BLOCKS * _block_s(runs_s[0])
    return max(0.0, race.finished_at - race.started_at - racing_s) / len(race.contestants)


def _sigmas(found: Iterable[Mapping[str, Any]]) -> list[float]:
    return [sigma for one in found if (sigma := one.get("sigma"))]


def _run_s(spec: TrialSpec, seen: Sequence[Seen]) -> float:
    """The run of the nearest configuration, in proportion to the batch and the free dimensions.

    A constant cost per row is assumed, which is on the safe side for larger batches; threads do not scale it.
    """
    work, threads = _work(spec), effective(spec, "intra_op_num_threads")

    def distance(one: Seen) -> tuple[bool, float, bool]:
        apart = abs(math.log(work / _work(one.spec)))
        return (
            one.spec.engine != spec.engine,
            apart,
            effective(one.spec, "intra_op_num_threads") != threads,
        )

    near = min(seen, key=distance)
    run_s: float = near.run_s * work / _work(near.spec)
    return run_s


def _work(spec: TrialSpec) -> float:
    return float(math.prod(spec.workload.dims.values(), start=spec.workload.batch_size or 1))
