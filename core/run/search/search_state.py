"""State of a search: all results so far, updated as comparisons end.

No process and no store.

`plan` reads it; `progress` turns it into displayed and stored data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.continuation import splits
from core.evidence.evaluations import (
    Evaluation,
    Observation,
    ReportedSpeedup,
    Stage,
    evaluation_from_dict,
    observe,
    reported_speedup,
)
from core.evidence.measurement import Trial
from core.evidence.result_types import Confirmed, FrontPoint, SearchCosts, SearchOutcome
from core.run.preparation import Resolved
from core.run.search import answer as answers
from core.run.search.plan import Clock, PlanState, Step, ranked_candidates
from core.run.search.search_space import Models
from core.spec.effort import STAGES
from core.spec.question import Question
from core.spec.space import MODEL, Choice, Space, changes_from_default, changes_words, reference
from core.store import StudyRecord
from core.wire.errors import TunerError

CONTROL = "control"
# the confirmation run whose outcome comes first here gives the answer of the search
OUTCOME_ORDER: Sequence[SearchOutcome] = (
    "FOUND",
    "UNDECIDED",
    "REJECTED",
    "NO_DIFFERENCE",
    "NONE_KEEPS_LIMITS",
)
AFTER_CONFIRM_S = 2.5  # assumed longest time for costs and profiles after a confirmation, until measured
AFTER_ACCURACY_S = 3.0  # assumed time to score labelled rows, until measured


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A search that is ready to start: everything is resolved, and the space is known."""

    record: StudyRecord
    question: Question
    resolved: Resolved  # the start
    space: Space
    hints: Sequence[Choice] = ()
    priors: Sequence[tuple[Choice, float, float]] = ()
    notes: Sequence[str] = ()
    threads: int = 1  # default number of threads of ONNX Runtime
    models: Models = field(default_factory=Models)


class SearchState(PlanState):
    """State of one search: what the plan reads, and what its answer and its display need."""

    def __init__(self, prepared: Prepared, clock: Clock) -> None:
        """Start with the evaluations from before an interruption."""
        super().__init__(
            question=prepared.question,
            space=prepared.space,
            clock=clock,
            hints=prepared.hints,
            priors=prepared.priors,
        )
        self.prepared = prepared
        self.base = prepared.resolved.spec
        self.default_spec = reference(self.base)
        self.controls: list[Evaluation] = []
        self.default_result: Confirmed | None = None
        self.last_result: Mapping[str, Any] = {}
        self.outcome: SearchOutcome = "UNDECIDED"
        self.winner: Confirmed | None = None
        self.refused: TunerError | None = None  # why a confirmation gave no result
        self.self_tests: list[Mapping[str, Any]] = []
        self.differences: list[float] = []  # ln ratios of two processes of one configuration
        self.notes: list[str] = list(prepared.notes)
        self.scoring_s = AFTER_ACCURACY_S if self.question.accuracy else 0.0
        self.after_s = AFTER_CONFIRM_S + self.scoring_s
        for data in prepared.record.tried:
            one = evaluation_from_dict(data)
            choice = self.space.find(one.changes)
            if one.twin:
                self.controls.append(one)
            elif choice is not None:
                self.tried[choice] = one

    # --- results of a comparison ----------------------------------------------------------------------------

    def learn_costs(
        self, comparison: Comparison, took_s: float, default: Trial | None, *, confirms: bool
    ) -> None:
        """Update the estimated costs of the next step from a comparison.

        Args:
            comparison: the comparison.
            took_s: its whole duration, including the time outside of its rounds.
            default: trial of the ORT default in it.
            confirms: whether it is a confirmation, which updates only the time after the rounds.
        """
        result = comparison.facts
        if not result:
            return
        beside_s = took_s - result["wall_s"]
        if confirms:
            self.after_s = beside_s
            return
        starts = sum(one["start_s"] for one in result["generations"])
        count = max(1, len(comparison.contestants) + 1)
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

    def add_observations(
        self,
        step: Step,
        comparison: Comparison,
        trials: Mapping[str, Trial],
        *,
        cancelled: bool,
    ) -> None:
        """Add an observation of every configuration of a comparison; a hidden control is the first one again.

        Args:
            step: the executed step.
            comparison: its comparison.
            trials: of the comparison, by id.
            cancelled: by the user; configurations without a result then have not failed.
        """
        default = trials.get(comparison.baseline)
        contrasts = contrasts_with_default(comparison)
        self_tests = comparison.facts.get("self_tests", ())
        self.self_tests += self_tests
        if (copies := _copies(step.stage, comparison)) is not None:
            self.differences.append(copies)
        first = step.choices[0]
        names = {CONTROL: first, **self.names(step)}
        pair: list[Observation] = []  # of the first and its control
        for one in comparison.contestants:
            trial, choice = trials.get(one.trial), names.get(one.label)
            if trial is None or choice is None:
                continue
            found = self._observation(
                step.stage, comparison, trial, default, contrasts.get(one.trial), choice
            )
            if found is None or (cancelled and trial.state != "COMPLETE"):
                continue
            pair += [found] if choice == first else []
            if one.label == CONTROL:
                self.controls.append(replace(self._unobserved(choice), looks=(found,), twin=True))
                continue
            before = self.tried.get(choice) or self._unobserved(choice)
            self.tried[choice] = replace(before, looks=(*before.looks, found))
        gains = [gain[0] for found in pair if (gain := found.round_gain) is not None]
        if len(gains) == 2:
            self.differences.append(gains[0] - gains[1])

    def names(self, step: Step) -> dict[str, Choice]:
        """Return the configurations of a step by their labels in its comparison."""
        return {self.space.label(choice): choice for choice in step.choices}

    def _unobserved(self, choice: Choice) -> Evaluation:
        return Evaluation(changes=self.plain(choice), key=self.space.spec(choice).key())

    def plain(self, choice: Choice) -> dict[str, Any]:
        """Return the changes of a configuration against the start, as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.space.changes(choice).items()
        }

    def _observation(
        self,
        stage: Stage,
        comparison: Comparison,
        trial: Trial,
        default: Trial | None,
        found: Mapping[str, Any] | None,
        choice: Choice,
    ) -> Observation | None:
        """Observation of one configuration; None: the comparison ended before it had a result."""
        error = "" if trial.error is None else trial.error["message"]
        if trial.state == "CANCELLED" or (trial.error is not None and trial.error["type"] == "BudgetError"):
            return None
        parts = splits(comparison.protocol)
        return observe(
            Observation(stage=stage, race=comparison.id, trial=trial.id, error=error, splits=parts),
            trial.facts,
            {} if default is None else default.facts,
            found,
            sizes=self.sizes(choice),
            arena=self.space.spec(choice).session.enable_cpu_mem_arena is not False,
            copies=_copies(stage, comparison),
        )

    def sizes(self, choice: Choice) -> tuple[float, float] | None:
        """Return the size of its model and of the start's model in bytes; None: not known."""
        sizes = self.prepared.models.sizes
        own = sizes.get(str(self.space.changes(choice).get(MODEL) or ""))
        return None if own is None or "" not in sizes else (own, sizes[""])

    def record_unmeasured(self, step: Step, comparison: Comparison) -> None:
        """Record a failure for configurations without a result, so that they are not requested again."""
        for choice in step.choices:
            if choice not in self.tried:
                lost = Observation(stage="screen", race=comparison.id, trial="", error="It was not measured.")
                self.tried[choice] = replace(self._unobserved(choice), looks=(lost,))

    def rank_rivals(self, step: Step, comparison: Comparison) -> None:
        """Rank after an elimination round: leader and ties by cost, the rest after (`confirmation_order`)."""
        ranked = [(self.tried[c], gain) for c, gain in ranked_candidates(self) if c in step.choices]
        by_key = {self.tried[c].key: c for c in step.choices if c in self.tried}
        names = self.names(step)
        keys = {
            one.trial: self.tried[names[one.label]].key
            for one in comparison.contestants
            if names.get(one.label) in self.tried
        }
        level: frozenset[str] = frozenset()
        for one in comparison.facts.get("ranks", ()):
            if ranked and keys.get(one["trial"]) == ranked[0][0].key:
                level = frozenset(keys[tie] for tie in one["ties"] if tie in keys)
        if step.stage == "screen":  # it has no ranks: ties depend on the estimates alone
            level = frozenset(one.key for one, _ in ranked)
        threads = self.prepared.threads
        in_order = answers.confirmation_order(ranked, level, self.margin, threads=threads)
        self.rivals = [by_key[one.key] for one, _ in in_order]

    # --- the confirmation -----------------------------------------------------------------------------------

    def add_confirmation(
        self, step: Step, said: Mapping[Choice, Confirmed], default: Confirmed, comparison: Comparison
    ) -> None:
        """Update the answer with the results of a confirmation run.

        Args:
            step: the executed step.
            said: result of each configuration.
            default: result of the ORT default.
            comparison: the comparison, with a result.
        """
        before = {choice: self._speedup_before(comparison, choice) for choice in step.choices}
        self.confirmed |= {choice: said[choice] for choice in step.choices}
        in_order = [said[choice] for choice in step.choices]
        found, winner = answers.outcome(in_order, default, comparison.facts, margin=self.margin)
        if self.default_result is None or OUTCOME_ORDER.index(found) <= OUTCOME_ORDER.index(self.outcome):
            self.outcome, self.winner = found, winner
            self.default_result, self.last_result = default, comparison.facts
        self.settled = self.outcome in ("FOUND", "REJECTED")
        lost = [one for one, gain in before.items() if gain > math.log1p(self.margin)]
        lost = [one for one in lost if said[one] is not self.winner]
        if lost and not self.settled:
            gone = " and ".join(f"`{self.words(self.plain(one))}`" for one in lost)
            self.notes.append(f"{gone} was better before, but not in fresh processes.")

    def _speedup_before(self, comparison: Comparison, choice: Choice) -> float:
        """ln(speed-up) of a configuration by the comparisons before this one; 0: there is none."""
        if choice not in self.tried:
            return 0.0
        one = self.tried[choice]
        looks = tuple(look for look in one.looks if look.race != comparison.id)
        gain = replace(one, looks=looks).speedup(self.question.objective)
        return 0.0 if gain is None else gain[0]

    # --- estimates for display ------------------------------------------------------------------------------

    def best(self) -> tuple[Evaluation, ReportedSpeedup] | None:
        """Return the best so far; its interval is corrected for the selection among all evaluations."""
        for choice, _ in ranked_candidates(self)[:1]:
            found = self.reported_speedup(self.tried[choice], among=max(1, len(self.tried)))
            if found is not None:
                return self.tried[choice], found
        return None

    def words(self, changes: Mapping[str, Any]) -> str:
        """Return the differences of a configuration from the ORT default in one line."""
        return changes_words(changes_from_default(self.base, changes))

    def reported_speedup(self, one: Evaluation, *, among: int = 1) -> ReportedSpeedup | None:
        """Return the reported estimate of a configuration, see `evaluations.reported_speedup`."""
        confirmed = {said["trial"]: said["gain"] for said in self.confirmed.values()}
        return reported_speedup(one, self.question.objective, confirmed, among=among)

    def pareto_front(self) -> list[FrontPoint]:
        """Return the Pareto front."""
        confirmed = list(self.confirmed.values())
        return answers.pareto_front(
            list(self.tried.values()), self.question, self.margin, confirmed=confirmed
        )


def contrasts_with_default(comparison: Comparison) -> dict[str, Any]:
    """Return the contrast of each candidate of a comparison with the ORT default, by trial."""
    contrasts = comparison.facts.get("contrasts", ())
    return {one["candidate"]: one for one in contrasts if one["baseline"] == comparison.baseline}


def _copies(stage: Stage, comparison: Comparison) -> float | None:
    """Ln ratio of the two processes of the ORT default in a screening; None: no screening, or no control."""
    self_tests = comparison.facts.get("self_tests") or ()
    return math.log(self_tests[0]["ratio"]) if stage == "screen" and self_tests else None
