"""State of a search: all results so far, updated as comparisons end.

No process and no store.

`Knowledge.known` is what the plan is asked with; what is shown and written down is told in `telling`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core.evidence.comparison import Comparison, same_request
from core.evidence.effects import Codes
from core.evidence.evaluations import (
    FROM_MEDIANS,
    Gain,
    Look,
    Stage,
    Told,
    Tried,
    look,
    told,
    tried_from_dict,
)
from core.evidence.measurement import Trial
from core.evidence.result_types import Confirmed, FrontPoint, SearchCosts, SearchOutcome
from core.evidence.targets import MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA
from core.run.search import answer as answers
from core.run.search.choices import Models
from core.run.search.plan import Known, Step, gain_of, standing
from core.run.trial import Resolved
from core.spec import TrialSpec, effective, is_provider_option
from core.spec.effort import STAGES
from core.spec.question import Question
from core.spec.space import MODEL, Choice, Space, changes_words, from_default, reference
from core.spec.targets import TargetSpec
from core.store import StudyRecord
from core.wire.errors import TunerError

CONTROL = "control"
# which of several confirming races tells the answer: the first of these
RANKED: Sequence[SearchOutcome] = ("FOUND", "UNDECIDED", "REJECTED", "NO_DIFFERENCE", "NONE_KEEPS_LIMITS")
FIXED_S = 1.0  # of a race beside its processes, until one has shown it
AFTER_CONFIRM_S = 2.5  # costs and profiles of who was confirmed, at most, until one has shown it
AFTER_ACCURACY_S = 3.0  # scores of labelled rows, until one has shown it
SCREEN_SLACK = 1.25  # by which a first look may miss a limit and still be worth another


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A search that can begin: everything is resolved, and the space is known."""

    record: StudyRecord
    question: Question
    resolved: Resolved  # the start
    space: Space
    hints: Sequence[Choice] = ()
    priors: Sequence[tuple[Choice, float, float]] = ()
    notes: Sequence[str] = ()
    threads: int = 1  # that ONNX Runtime takes where it is not told
    models: Models = field(default_factory=Models)


@dataclass(kw_only=True)
class Clock:
    """How long a search has taken, in seconds."""

    before_s: float  # before it was interrupted
    began: float  # monotonic
    given_s: float = 0.0  # of the time since, that others had the machine

    @property
    def own_s(self) -> float:
        """Since it was begun or resumed, without the time in which it gave way."""
        return time.monotonic() - self.began - self.given_s

    @property
    def spent_s(self) -> float:
        """Of all of it."""
        return self.before_s + self.own_s


class Knowledge:
    """What one search knows."""

    def __init__(self, prepared: Prepared, clock: Clock) -> None:
        """Begin with what was tried before the search was interrupted."""
        self.prepared, self.clock = prepared, clock
        self.question, self.space = prepared.question, prepared.space
        self.base = prepared.resolved.spec
        self.codes: Codes = np.array(self.space.choices, dtype=np.int16)
        self.default_spec = reference(self.base)
        self.default = _default_of(self.space, self.default_spec)
        self.tried: dict[Choice, Tried] = {}
        self.twins: list[Tried] = []
        self.rivals: list[Choice] = []
        self.confirmed: dict[Choice, Confirmed] = {}
        self.confirmings: list[Choice] = []  # once for each race
        self.default_said: Confirmed | None = None
        self.last_result: Mapping[str, Any] = {}
        self.last_race = ""
        self.outcome: SearchOutcome = "UNDECIDED"
        self.winner: Confirmed | None = None
        self.settled = False
        self.refused: TunerError | None = None  # why a confirmation gave no result
        self.self_tests: list[Mapping[str, Any]] = []
        self.differences: list[float] = []  # ln ratios of two launches of one configuration
        self.notes: list[str] = list(prepared.notes)
        self.each_s, self.fixed_s = 0.0, FIXED_S
        self.costs: SearchCosts | None = None
        self.scoring_s = AFTER_ACCURACY_S if self.question.accuracy else 0.0
        self.after_s = AFTER_CONFIRM_S + self.scoring_s
        for data in prepared.record.tried:
            one = tried_from_dict(data)
            choice = self.space.find(one.changes)
            if one.twin:
                self.twins.append(one)
            elif choice is not None:
                self.tried[choice] = one

    @property
    def time_s(self) -> float:
        """Seconds for all of it."""
        return self.clock.before_s + self.question.budget_s

    def known(self) -> Known:
        """What the plan is told."""
        return Known(
            question=self.question,
            space=self.space,
            codes=self.codes,
            tried=self.tried,
            confirmed=self.confirmings,
            undecided=self.left_open(),
            margin=self.base.protocol.margin,
            time_s=self.time_s,
            spent_s=self.clock.spent_s,
            before_s=self.clock.before_s,
            each_s=self.each_s,
            fixed_s=self.fixed_s,
            rivals=self.rivals,
            hints=self.prepared.hints,
            priors=self.prepared.priors,
            infeasible=self._breaks_a_limit,
            settled=self.settled,
            default=self.default,
            costs=self.costs,
        )

    # --- what a race told -----------------------------------------------------------------------------------

    def learn_costs(self, race: Comparison, took_s: float, default: Trial | None, *, confirms: bool) -> None:
        """Take what a race of so many seconds says of the price of the next.

        Args:
            race: what it was.
            took_s: all of it, what is beside the race itself included.
            default: ONNX Runtime's default in it.
            confirms: it tells how long what is found out after its rounds takes, and nothing else.
        """
        result = race.facts
        if not result:
            return
        beside_s = took_s - result["wall_s"]
        if confirms:
            self.after_s = beside_s
            return
        starts = sum(one["start_s"] for one in result["generations"])
        count = max(1, len(race.contestants) + 1)
        rounds = max(1, result["rounds"])
        generations = max(1, len(result["generations"]))
        round_s = max(0.0, (result["wall_s"] - starts - 0.5) / rounds)
        self.each_s = (starts / generations + min(STAGES["screen"].rounds, rounds) * round_s) / count
        self.fixed_s = max(0.3, min(beside_s + 0.5, took_s))
        if not self.confirmed:
            self.after_s = min(AFTER_CONFIRM_S, 0.4 + 4 * self.each_s) + self.scoring_s
        runs = (default.facts.get("runs") if default is not None else None) or rounds
        self.costs = SearchCosts(
            run_s=round_s / count / max(1, runs // rounds),
            start_s=starts / generations / count,
            block_s=round_s / count,
            runs=max(1, runs // rounds),
            screen_s=self.each_s,
            fixed_s=self.fixed_s,
            after_s=self.after_s,
        )

    def read(
        self,
        step: Step,
        race: Comparison,
        trials: Mapping[str, Trial],
        names: Mapping[str, Choice],
        twin: Choice | None,
        *,
        cancelled: bool,
    ) -> None:
        """Take a look at everybody of a race.

        Args:
            step: what was asked for.
            race: what came of it.
            trials: of the race, by id.
            names: label -> configuration.
            twin: whom the hidden control is; None: there was none.
            cancelled: by the user; who has no result then was only cut off.
        """
        default = trials.get(race.baseline)
        contrasts = {
            one["candidate"]: one
            for one in race.facts.get("contrasts", ())
            if one["baseline"] == race.baseline
        }
        self_tests = race.facts.get("self_tests", ())
        self.self_tests += self_tests
        if (copies := _copies(step.stage, race)) is not None:
            self.differences.append(copies)
        twins: list[Look] = []
        for one in race.contestants:
            trial = trials.get(one.trial)
            is_twin = one.label == CONTROL
            choice = twin if is_twin else names.get(one.label)
            if trial is None or choice is None:
                continue
            found = self._look(step.stage, race, trial, default, contrasts.get(one.trial), choice)
            if found is None or (cancelled and trial.state != "COMPLETE"):
                continue
            twins += [found] if choice == twin else []
            if is_twin:
                spec = self.space.spec(choice)
                self.twins.append(
                    Tried(changes=self.plain(choice), key=spec.key(), looks=(found,), twin=True)
                )
                continue
            before = self.tried.get(choice) or Tried(
                changes=self.plain(choice), key=self.space.spec(choice).key()
            )
            self.tried[choice] = replace(before, looks=(*before.looks, found))
        gains = [found.gains["latency_p50"][0] for found in twins if "latency_p50" in found.gains]
        if len(gains) == 2:
            self.differences.append(gains[0] - gains[1])

    def plain(self, choice: Choice) -> dict[str, Any]:
        """Return what a configuration changes of the start, as JSON has it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.space.changes(choice).items()
        }

    def _look(
        self,
        stage: Stage,
        race: Comparison,
        trial: Trial,
        default: Trial | None,
        found: Mapping[str, Any] | None,
        choice: Choice,
    ) -> Look | None:
        """What the race told of one; None where it was only cut off."""
        error = "" if trial.error is None else trial.error["message"]
        if trial.state == "CANCELLED" or (trial.error is not None and trial.error["type"] == "BudgetError"):
            return None
        splits = float(race.protocol.get("splits") or max(1, len(race.protocol.get("looks") or ())))
        return look(
            Look(stage=stage, race=race.id, trial=trial.id, error=error, splits=splits),
            trial.facts,
            {} if default is None else default.facts,
            found,
            sizes=self.sizes(choice),
            arena=self.space.spec(choice).session.enable_cpu_mem_arena is not False,
            copies=_copies(stage, race),
        )

    def sizes(self, choice: Choice) -> tuple[float, float] | None:
        """Return the bytes of its model and of the start's; None: they are not known."""
        sizes = self.prepared.models.sizes
        own = sizes.get(str(self.space.changes(choice).get(MODEL) or ""))
        return None if own is None or "" not in sizes else (own, sizes[""])

    def has_gains(self, choices: Sequence[Choice]) -> bool:
        """Return whether anything is known of one of these."""
        return any(choice in self.tried and self.tried[choice].looks for choice in choices)

    def mark_unmeasured(self, step: Step, race: Comparison) -> None:
        """Mark whom the race told nothing of: it must not be asked for again and again."""
        for choice in step.choices:
            if choice not in self.tried:
                lost = Look(stage="screen", race=race.id, trial="", error="It was not measured.")
                key = self.space.spec(choice).key()
                self.tried[choice] = Tried(changes=self.plain(choice), key=key, looks=(lost,))

    def rank_rivals(self, step: Step, race: Comparison) -> None:
        """Rank after the heat: its leader, who could not be told from it by what they cost, then the rest."""
        ranked = [(self.tried[c], gain) for c, gain in standing(self.known()) if c in step.choices]
        trial_of = {one.trial: one.label for one in race.contestants}
        keys = {self.space.label(c): self.tried[c].key for c in step.choices if c in self.tried}
        leader = ranked[0][0] if ranked else None
        level: frozenset[str] = frozenset()
        for one in race.facts.get("ranks", ()):
            if leader is not None and keys.get(trial_of.get(one["trial"], "")) == leader.key:
                level = frozenset(keys.get(trial_of.get(tie, ""), "") for tie in one["ties"])
        if step.stage == "screen":  # nothing was ranked: equals are who is near
            level = frozenset(one.key for one, _ in ranked)
        by_key = {self.tried[c].key: c for c in step.choices if c in self.tried}
        margin, threads = self.base.protocol.margin, self.prepared.threads
        in_order = answers.ordered(ranked, level, margin, threads=threads)
        self.rivals = [by_key[one.key] for one, _ in in_order]

    def _breaks_a_limit(self, one: Tried) -> bool:
        """Whether a look says already that a limit is broken, with room for how rough looks are."""
        if self.question.same_latency:
            gain = one.gain("latency_p50")
            least = -math.log1p(self.base.protocol.margin)
            if gain is not None and gain[0] + 2 * (gain[1] or 0.03) < least:
                return True
        return any(_surely_beyond(one, target) for target in self.question.limits)

    # --- the confirmation -----------------------------------------------------------------------------------

    def take_confirmed(
        self, step: Step, said: Mapping[Choice, Confirmed], default: Confirmed, race: Comparison
    ) -> None:
        """Take what a confirming race says of its configurations and of the default.

        Args:
            step: what it was.
            said: of each configuration.
            default: of ONNX Runtime's default.
            race: with a result.
        """
        before = {
            changes_words(self.plain(choice)): gain[0]
            for choice in step.choices
            if choice in self.tried and (gain := self._gain_before(self.tried[choice])) is not None
        }
        again = self.left_open() in step.choices
        self.confirmed |= {choice: said[choice] for choice in step.choices}
        self.confirmings += step.choices
        in_order = [said[choice] for choice in step.choices]
        found, winner = answers.outcome(in_order, default, race.facts, margin=self.base.protocol.margin)
        if again or self.default_said is None or RANKED.index(found) <= RANKED.index(self.outcome):
            self.outcome, self.winner = found, winner
            self.default_said, self.last_result = default, race.facts
        self.settled = self.outcome in ("FOUND", "REJECTED")
        lost = [one for one in in_order if one is not self.winner and self._promised(one, before)]
        if lost and not self.settled:
            gone = " and ".join(f"`{self.words(one['changes'])}`" for one in lost)
            self.notes.append(f"{gone} was better before, but not in fresh processes.")

    def left_open(self) -> Choice | None:
        """Return who answers the question so far, where the answer is open."""
        if self.outcome != "UNDECIDED" or self.winner is None:
            return None
        return next((choice for choice, one in self.confirmed.items() if one is self.winner), None)

    def _gain_before(self, one: Tried) -> Gain | None:
        return gain_of(
            replace(one, looks=tuple(look for look in one.looks if look.race != self.last_race)),
            self.question,
        )

    def _promised(self, one: Confirmed, before: Mapping[str, float]) -> bool:
        """Whether a configuration that was confirmed not to be the answer had looked like one."""
        return before.get(changes_words(one["changes"]), 0.0) > math.log1p(self.base.protocol.margin)

    # --- what is told of it ---------------------------------------------------------------------------------

    def best(self) -> tuple[Tried, Told] | None:
        """Return the best so far; its interval holds for whichever of all that were tried would be it."""
        for choice, _ in standing(self.known())[:1]:
            found = self.told(self.tried[choice], among=max(1, len(self.tried)))
            if found is not None:
                return self.tried[choice], found
        return None

    def words(self, changes: Mapping[str, Any]) -> str:
        """Return what a configuration sets otherwise than ONNX Runtime's default, in one line."""
        return changes_words(from_default(self.base, changes))

    def told(self, one: Tried, *, among: int = 1) -> Told | None:
        """Return what is told of a configuration, see `tried.told`."""
        confirmed = {said["trial"]: said["gain"] for said in self.confirmed.values()}
        return told(one, self.question.objective, confirmed, among=among)

    def front(self) -> list[FrontPoint]:
        """Return who is not surely dominated."""
        confirmed = list(self.confirmed.values())
        return answers.front(
            list(self.tried.values()), self.question, self.base.protocol.margin, confirmed=confirmed
        )


def _default_of(space: Space, default: TrialSpec) -> Choice | None:
    """ONNX Runtime's default among the configurations, wherever the search starts; None: it is not there."""
    asked = [0 for _ in space.axes]
    for i, axis in enumerate(space.axes):
        if axis.name == MODEL or is_provider_option(axis.name):
            continue
        if (value := effective(default, axis.name)) not in axis.values:
            return None
        asked[i] = axis.values.index(value)
    choice = space.canonical(tuple(asked))
    return choice if same_request(space.spec(choice), default) else None


def _copies(stage: Stage, race: Comparison) -> float | None:
    """Ln ratio of the two launches of the default in a race of one launch of everybody else."""
    self_tests = race.facts.get("self_tests") or ()
    return math.log(self_tests[0]["ratio"]) if stage == "screen" and self_tests else None


def _surely_beyond(one: Tried, target: TargetSpec) -> bool:
    """Whether a look is so far beyond a limit that no longer one would bring it back."""
    if target.metric == "peak_rss":
        value = one.value("peak_rss")
        kept = one.changes.get("enable_cpu_mem_arena", True)
        spread = MEMORY_SPREAD if kept else MEMORY_SPREAD_WITHOUT_ARENA
        return value is not None and value * (1 - spread) > target.limit
    metric = (
        "latency_p50" if target.metric in FROM_MEDIANS and target.metric != "throughput" else target.metric
    )
    value = one.value(metric)
    if value is None or target.batch_size is not None:
        return False
    if target.about.smaller_is_better:
        return value > SCREEN_SLACK * target.limit
    return value < target.limit / SCREEN_SLACK
