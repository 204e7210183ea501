"""Searches on simulated machines with known true values: `core.run.search.running` without processes.

A machine knows the true speed-up of every configuration, the spread of its processes and all costs. `Run`
drives the plan through it as a search does: the same stages, the same contrasts, the same stops.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core.evidence.evaluations import (
    MAX_COPY_DIFFERENCE,
    Evaluation,
    Observation,
    _rough_error,
    launch_spread,
)
from core.evidence.record import Settings
from core.evidence.result_types import SearchOutcome
from core.evidence.stopping import InterimResult
from core.evidence.verdict import Verdict
from core.run.launches.budget import Costs, launches_left, rounds_of_launch, screening_rounds
from core.run.search.answer import confirmation_order, outcome
from core.run.search.plan import Clock, PlanState, Step, Strategy, next_step, ranked_candidates
from core.run.search.running import LEAST_CONFIRMATION_S
from core.run.search.search_state import OUTCOME_ORDER
from core.spec.effort import EFFORTS, STAGES, Effort
from core.spec.metrics import BY_ROUNDS
from core.spec.question import Question
from core.spec.settings import Place
from core.spec.space import Axis, Choice, Space, search_axes, space, without
from tests import builders

MARGIN = 0.02
BASE = builders.spec()


def large_space() -> Space:
    """The settings worth trying on two threads, less one that does nothing here: 7,360 configurations."""
    axes = without(search_axes(BASE, Place(threads=2)), ["execution_order"])
    return space(BASE, axes)


def small_space(*sizes: tuple[str, tuple[Any, ...]]) -> Space:
    """All combinations of a few settings."""
    return space(BASE, [Axis(name=name, values=values) for name, values in sizes])


def no_gain(codes: Any) -> Any:
    """Everything is as quick as the default."""
    return np.zeros(len(codes))


def gains(
    of: Space, seed: int, *, main: float = 0.08, pair: float = 0.03, matters: float = 0.5
) -> Callable[[Any], Any]:
    """True ln(speed-up): effects of values and of pairs of values, many of them zero; the default has 0.

    Args:
        of: the space.
        seed: of the true values.
        main: deviation of the effect of a value of a setting that matters.
        pair: deviation of the joint effect of two of its values.
        matters: share of settings with any effect.
    """
    rng = np.random.default_rng(seed)
    size = [len(axis.values) for axis in of.axes]
    large = rng.random(len(size)) < matters
    singles = [rng.normal(0, main, n) * own for n, own in zip(size, large, strict=True)]
    pairs = {
        (a, b): rng.normal(0, pair, (size[a], size[b])) * (rng.random() < 0.3)
        for a in range(len(size))
        for b in range(a + 1, len(size))
        if large[a] and large[b]
    }

    alone = [effects - effects[0] for effects in singles]
    together = {
        axes: effects - effects[:1] - effects[:, :1] + effects[0, 0] for axes, effects in pairs.items()
    }

    def found(codes: Any) -> Any:
        total = np.zeros(len(codes))
        for axis, own in enumerate(alone):
            total += own[codes[:, axis]]
        for (a, b), both in together.items():
            total += both[codes[:, a], codes[:, b]]
        return total

    return found


@dataclass(kw_only=True)
class Machine:
    """Costs and disturbances of comparisons on it."""

    space: Space
    gain: Callable[[Any], Any] = no_gain
    start_s: float = 0.15  # of a process: starting, loading, warming up
    block_s: float = 0.025  # of a process, in a round
    fixed_s: float = 1.0  # of a comparison
    server_s: float = 0.0  # of the first comparison in addition: the fork server, which all share
    spread: float = 0.01  # of ln(latency) between processes
    slow_share: float = 0.03  # of processes that are in a slow mode for life
    slow_by: tuple[float, float] = (0.03, 0.2)
    noise: float = 0.03  # of a block's median
    fails: Callable[[Choice], bool] = field(default=lambda choice: False)
    best: float = field(init=False)
    truths: dict[Choice, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        able = np.array([one for one in self.space.choices if not self.fails(one)] or [self.space.choices[0]])
        self.best = float(self.gain(able).max())

    def truth(self, choice: Choice) -> float:
        """True ln(speed-up) of a configuration."""
        if choice not in self.truths:
            self.truths[choice] = float(self.gain(np.array([choice]))[0])
        return self.truths[choice]

    def drawn_from(self, choice: Choice) -> float:
        """ln(speed-up) of the processes that `life` draws, which is the true value here."""
        return self.truth(choice)

    def process(self, rng: random.Random) -> float:
        """What the life of a process adds to ln(latency)."""
        slow = rng.uniform(*self.slow_by) if rng.random() < self.slow_share else 0.0
        return rng.gauss(0, self.spread) + slow

    def disturbance(self, rng: random.Random) -> float:
        """What a block's median is off by."""
        return rng.gauss(0, self.noise)

    def life(self, rng: random.Random, choice: Choice) -> float:
        """ln(latency) of one process of a configuration, in that of the default."""
        return self.process(rng) - self.truth(choice)


class SimulatedClock(Clock):
    """Time that passes only while a comparison runs."""

    def __init__(self, now: float = 0.0) -> None:
        """Start at `now` seconds."""
        super().__init__(before_s=0.0, began=0.0)
        self.now = now

    @property
    def own_s(self) -> float:
        """Seconds so far."""
        return self.now


@dataclass(kw_only=True)
class Run:
    """One search."""

    machine: Machine
    strategy: Strategy
    budget_s: float = 60.0
    seed: int = 0
    objective: Mapping[str, float] = field(default_factory=lambda: {"latency_p50": 1.0})
    hints: Sequence[Choice] = ()
    steps: list[Step] = field(default_factory=list)
    said: SearchOutcome = "UNDECIDED"
    winner: Choice | None = None
    eliminated: list[Choice] = field(default_factory=list)  # who was eliminated
    differences: list[float] = field(default_factory=list)  # ln ratios of two equal launches

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.default = self.machine.space.choices[0]
        self.question = Question(
            budget_s=max(5, round(self.budget_s)), objective=dict(self.objective), seed=self.seed
        )
        self.clock = SimulatedClock()
        self.known = PlanState(
            question=self.question, space=self.machine.space, clock=self.clock, hints=self.hints
        )
        assert self.known.default == self.default
        self.tried = self.known.tried
        self.confirmed: dict[Choice, Any] = self.known.confirmed  # type: ignore[assignment]

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return self.clock.now

    @property
    def chosen(self) -> Choice:
        """What a user would take: the winner, or the default where nothing is better."""
        return self.winner or self.default

    @property
    def regret(self) -> float:
        """The distance of the choice from the best, in ln(speed-up)."""
        return self.machine.best - self.machine.truth(self.chosen)

    @property
    def covers(self) -> bool | None:
        """Whether the printed interval of the winner's speed-up contains its true speed-up."""
        gain = self.confirmed[self.winner]["gain"] if self.winner in self.confirmed else {}
        low, high = gain.get("ratio_low"), gain.get("ratio_high")
        if self.winner is None or low is None or high is None:
            return None
        return bool(low <= math.exp(self.machine.drawn_from(self.winner)) <= high)

    @property
    def looked_at(self) -> int:
        """Configurations that were evaluated."""
        return len(self.tried)

    def go(self, most: int = 300) -> Run:
        """Search to the end."""
        while (step := next_step(self.known, self.strategy)) is not None:
            assert len(self.steps) < most, "the plan does not end"
            self.steps.append(step)
            self._do(step)
        return self

    def elimination(self, choices: Sequence[Choice], budget_s: float) -> None:
        """One heat of these, whatever the plan says."""
        self._do(Step(stage="heat", choices=choices, budget_s=budget_s, why="a heat", ranks=True))

    def _do(self, step: Step) -> None:
        assert step.choices
        assert len(set(step.choices)) == len(step.choices)
        assert self.default not in step.choices
        comparison = _Comparison(self, step)
        comparison.run()
        self.clock.now += comparison.took_s + self.machine.fixed_s
        self.clock.now += self.machine.server_s if len(self.steps) == 1 else 0.0
        self._learn_costs(comparison)
        self._read(step, comparison)
        if step.stage == "confirm":
            self._take_confirmed(step, comparison)
        elif step.ranks:
            self._rank(step, comparison)

    def _learn_costs(self, comparison: _Comparison) -> None:
        if comparison.step.stage == "confirm" or not comparison.generations:
            return
        rounds = min(STAGES["screen"].rounds, comparison.rounds)
        each = (
            comparison.starts_s / comparison.generations + rounds * comparison.round_s
        ) / comparison.processes
        self.known.each_s = each * self.rng.uniform(0.9, 1.1)
        self.known.fixed_s = self.machine.fixed_s

    def _read(self, step: Step, comparison: _Comparison) -> None:
        found = comparison.interim_result.contrasts(list(comparison.names), list(comparison.names))
        for index, choice in comparison.names.items():
            if choice == self.default or index == comparison.control:
                continue
            stage: Any = step.stage
            looks = 1.0 if step.stage == "screen" else float(len(comparison.effort.looks))
            level = comparison.interim_result.p50_s(0)
            head = Observation(
                stage=stage,
                race=str(len(self.steps)),
                trial=f"{len(self.steps)}-{index}",
                launches=comparison.generations,
                splits=looks,
                level=None if level is None else math.log(level),
            )
            if index in comparison.failed:
                one = replace(head, error="It failed.")
            elif index in found:
                contrast = found[index]
                copies = self._copies(comparison) if step.stage == "screen" else None
                shift = abs(copies) / 2 if copies is not None and abs(copies) > MAX_COPY_DIFFERENCE else 0.0
                error = contrast.standard_error or _rough_error(contrast.to_dict())
                gain = math.log(contrast.ratio) - shift, error
                level = None if head.level is None else head.level - shift
                one = replace(
                    head, df=contrast.df, level=level, gains=dict.fromkeys((*BY_ROUNDS, "cpu_s"), gain)
                )
            else:
                continue
            before = self.tried.get(choice) or Evaluation(
                changes=self.machine.space.changes(choice), key=str(choice)
            )
            self.tried[choice] = replace(before, looks=(*before.looks, one))
        if step.stage == "screen" and (copies := self._copies(comparison)) is not None:
            self.differences.append(copies)
            if comparison.control in found and comparison.control is not None and 1 in found:
                self.differences.append(math.log(found[1].ratio / found[comparison.control].ratio))

    @staticmethod
    def _copies(comparison: _Comparison) -> float | None:
        """ln ratio of the default's two launches."""
        one, two = (comparison.interim_result.medians.get((0, copy), {}) for copy in (0, 1))
        rounds = one.keys() & two.keys()
        return math.fsum(two[key] - one[key] for key in rounds) / len(rounds) if rounds else None

    def _rank(self, step: Step, comparison: _Comparison) -> None:
        ranked = [(self.tried[c], gain) for c, gain in ranked_candidates(self.known) if c in step.choices]
        _, against = comparison.interim_result.rivals(list(comparison.names), list(comparison.names))
        level = frozenset(
            str(choice)
            for index, choice in comparison.names.items()
            if index not in against or against[index].verdict != Verdict.SLOWER
        )
        self.eliminated = [comparison.names[index] for index in comparison.gone]
        by_key = {self.tried[c].key: c for c in step.choices if c in self.tried}
        self.known.rivals = [by_key[one.key] for one, _ in confirmation_order(ranked, level, MARGIN)]

    def _take_confirmed(self, step: Step, comparison: _Comparison) -> None:
        if not comparison.generations or comparison.refused:
            self.known.settled = True
            return
        found = comparison.interim_result.contrasts(list(comparison.names), list(comparison.names))
        said = {}
        for index, choice in comparison.names.items():
            if choice == self.default:
                continue
            verdict = found[index].verdict if index in found else Verdict.UNDECIDED
            said[choice] = {
                "error": "It failed." if index in comparison.failed else "",
                "limits": [],
                "gain": {
                    "verdict": verdict,
                    "ratio": found[index].ratio if index in found else 1.0,
                    "ratio_low": found[index].ratio_low if index in found else None,
                    "ratio_high": found[index].ratio_high if index in found else None,
                },
                "contrast": found[index].to_dict() if index in found else None,
                "choice": choice,
            }
        first = not self.confirmed
        self.confirmed |= said
        default: Any = {"limits": [], "error": ""}
        in_order: Any = [said[choice] for choice in step.choices]
        told, winner = outcome(in_order, default, {}, margin=MARGIN)
        if first or OUTCOME_ORDER.index(told) <= OUTCOME_ORDER.index(self.said):
            self.said = told
            self.winner = None if winner is None else dict(winner)["choice"]
        self.known.settled = self.said in ("FOUND", "REJECTED")


class _Comparison:
    """One race: generations of fresh processes, rounds, and the end by the race's own rules."""

    def __init__(self, run: Run, step: Step) -> None:
        self.run_, self.step, self.machine, self.rng = run, step, run.machine, run.rng
        self.names: dict[int, Choice] = dict(enumerate((run.default, *step.choices)))
        self.control: int | None = None
        if step.stage == "screen" and len(step.choices) >= 4:
            self.control = len(self.names)
            self.names[self.control] = step.choices[0]
        effort: Effort = STAGES[step.stage] if step.stage != "confirm" else EFFORTS["quick"]
        self.effort = effort
        self.budget_s = max(LEAST_CONFIRMATION_S, step.budget_s)
        asked = Settings(
            effort=effort, budget_s=self.budget_s, margin=MARGIN, seed=0, timeout_s=1.0, baseline=0, anchor=0
        )
        self.interim_result = InterimResult(asked)
        if step.stage == "confirm":
            self.interim_result.prior = launch_spread(run.differences)
        self.failed: set[int] = set()
        self.took_s = self.starts_s = 0.0
        self.generations = self.rounds = self.processes = 0
        self.round_s = 0.0
        self.refused = False
        self.gone: list[int] = []  # who was surely slower

    def run(self) -> None:
        """Race to the end."""
        active = list(self.names)
        while active:
            alive = self._start(active)
            active = [index for index in active if index not in self.failed]
            if active == [0]:
                return
            self.round_s = self.machine.block_s * len(alive)
            costs = Costs(start_s=self.began_s, round_s=self.round_s, after_s=0.0, runs=10)
            if self.effort.rounds:
                planned = screening_rounds(costs, self.effort.rounds)
            else:
                left_s = self.budget_s - self.took_s
                if self.step.stage == "confirm" and not self.generations and 5 * self.round_s > left_s + 1:
                    self.refused = True  # too short for a p50
                    return
                planned = rounds_of_launch(
                    costs,
                    left_s,
                    made=self.rounds,
                    variance_ratio=self.interim_result.variance_ratio(active, active),
                    launches=self.generations,
                )
            self._rounds(alive, planned)
            self.generations += 1
            if self.effort.rounds or self._stops(active, costs, planned):
                return
            still = self.interim_result.still_open(active, self.generations, self.rounds, active)
            self.gone += [index for index in active if index not in still]
            active = still

    def _start(self, active: Sequence[int]) -> dict[tuple[int, int], float]:
        alive = {}
        self.began_s = 0.0
        for key in [(index, 0) for index in active] + [(0, 1)]:
            self.began_s += self.machine.start_s
            if self.machine.fails(self.names[key[0]]):
                self.failed.add(key[0])
            else:
                alive[key] = self.machine.life(self.rng, self.names[key[0]])
        self.processes = max(self.processes, len(active) + 1)
        self.took_s += self.began_s
        self.starts_s += self.began_s
        return alive

    def _rounds(self, alive: Mapping[tuple[int, int], float], planned: int) -> None:
        for done in range(planned):
            late = not self.effort.rounds and done and self.took_s + self.round_s > self.budget_s
            if late:
                return
            for key, own in alive.items():
                value = own + self.machine.disturbance(self.rng)
                self.interim_result.add(key, self.generations, self.rounds, 1e-3 * math.exp(value))
            self.rounds += 1
            self.took_s += self.round_s

    def _stops(self, active: Sequence[int], costs: Costs, planned: int) -> bool:
        left = launches_left(costs, self.budget_s - self.took_s, planned)
        return (
            self.interim_result.stop(
                active, active, self.generations, rounds=self.rounds, elapsed_s=self.took_s, left=left
            )
            is not None
        )
