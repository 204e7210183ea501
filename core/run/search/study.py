"""One search from its question to its answer: asks the plan, races, reads back, writes down.

All that it knows stands in its row of the store after every race, so that it goes on after a kill where it
was. It runs within the turn of one job; its races are jobs inside it, with rows of their own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from core.evidence.comparison import ANCHOR_LABEL, Comparison, Configuration, same_request
from core.evidence.documents import Confirmed, CoursePoint, FrontPoint, SearchOutcome, SearchResult
from core.evidence.effects import Codes
from core.evidence.measurement import Trial
from core.evidence.targets import MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA
from core.evidence.tried import (
    FROM_MEDIANS,
    Gain,
    Look,
    Stage,
    Told,
    Tried,
    launch_spread,
    look,
    told,
    told_words,
    tried_from_dict,
)
from core.process.runner import Progress
from core.run import kinds
from core.run.comparison import protocol_of
from core.run.job import Ending, Outcome, Service
from core.run.search import answer as answers
from core.run.search.accuracies import right
from core.run.search.choices import Models, make_variants, models_of, place_of, space_of
from core.run.search.enough import (
    LAUNCHES,
    Costs,
    confirmation_s,
    costs_document,
    enough_s,
    evaluated_words,
    extended_words,
    open_words,
)
from core.run.search.failures import dropped
from core.run.search.plan import (
    Known,
    Step,
    divided_by,
    gain_of,
    is_too_short,
    looks_share,
    next_step,
    sought,
    standing,
)
from core.run.search.strategies import strategy_named
from core.run.trial import Resolved
from core.spec import TrialSpec, effective, is_provider_option, spec_from_dict
from core.spec.effort import STAGES
from core.spec.question import MOST_BUDGET_S, Question
from core.spec.space import MODEL, Choice, Space, changes_words, from_default, reference
from core.spec.targets import TargetSpec
from core.store import Store, StudyRecord
from core.store.library import resolve_model
from core.wire.errors import BudgetError, Cancelled, StoreError, TunerError, WorkerError

CONTROL = "control"
# which of several confirming races tells the answer: the first of these
RANKED: Sequence[SearchOutcome] = ("FOUND", "UNDECIDED", "REJECTED", "NO_DIFFERENCE", "NONE_KEEPS_LIMITS")
LEAST_WITH_CONTROL = 4  # configurations of a look that has a hidden twin
FIXED_S = 1.0  # of a race beside its processes, until one has shown it
AFTER_CONFIRM_S = 2.5  # costs and profiles of who was confirmed, at most, until one has shown it
AFTER_ACCURACY_S = 3.0  # scores of labelled rows, until one has shown it
LOOK_TIMEOUT_SHARE = 0.3  # of the time: a configuration that takes longer for one step is none to look at
LEAST_TIMEOUT_S = 20
RECHECKED = 3  # configurations that are looked at again when a search goes on
MOVED_Z = 4.0  # by which a look may differ from earlier ones before the machine is taken for another
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


class Search:
    """The state of one search; `run` is its story."""

    def __init__(self, prepared: Prepared, service: Service, began: float) -> None:
        """Begin a search whose time has run since `began`, monotonic."""
        self.prepared = prepared
        self.service = service
        self.store: Store = service.store
        self.record = prepared.record
        self.question, self.space = prepared.question, prepared.space
        self.base = prepared.resolved.spec
        self.codes: Codes = np.array(self.space.choices, dtype=np.int16)
        self.default_spec = reference(self.base)
        self.default = _default_of(self.space, self.default_spec)
        self.strategy = strategy_named(self.question.strategy)
        self.tried: dict[Choice, Tried] = {}
        self.twins: list[Tried] = []
        self.rivals: list[Choice] = []
        self.confirmed: dict[Choice, Confirmed] = {}
        self.confirmings: list[Choice] = []  # once for each race
        self.default_said: Confirmed | None = None
        self.last_result: Mapping[str, Any] = {}
        self.outcome: SearchOutcome = "UNDECIDED"
        self.winner: Confirmed | None = None
        self.settled = False
        self.refused: TunerError | None = None  # why a confirmation gave no result
        self.self_tests: list[Mapping[str, Any]] = []
        self.differences: list[float] = []  # ln ratios of two launches of one configuration
        self.course: list[CoursePoint] = []
        self.notes: list[str] = list(prepared.notes)
        self.spent_before_s = prepared.record.wall_s
        self.began = began
        self.given_s = 0.0  # of the time since, that others had the machine
        self.raced_s = 0.0
        self.each_s, self.fixed_s = 0.0, FIXED_S
        self.costs: Costs | None = None
        self.scoring_s = AFTER_ACCURACY_S if self.question.accuracy else 0.0
        self.after_s = AFTER_CONFIRM_S + self.scoring_s
        self.recheck = False
        self.doing = self.last_race = ""
        self._take(prepared.record.tried)

    def _take(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Begin with what was tried before this search was interrupted."""
        for data in kept:
            one = tried_from_dict(data)
            choice = self.space.find(one.changes)
            if one.twin:
                self.twins.append(one)
            elif choice is not None:
                self.tried[choice] = one
        self.recheck = any(one.looks for one in self.tried.values())

    def spent_s(self) -> float:
        """Seconds of the search so far, without those in which it gave way."""
        return self.spent_before_s + time.monotonic() - self.began - self.given_s

    def known(self) -> Known:
        """What the plan is told."""
        return Known(
            question=self.question,
            space=self.space,
            codes=self.codes,
            tried=self.tried,
            confirmed=self.confirmings,
            undecided=self._left_open(),
            margin=self.base.protocol.margin,
            time_s=self.spent_before_s + self.question.budget_s,
            spent_s=self.spent_s(),
            before_s=self.spent_before_s,
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

    # --- the story ------------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        """Search until the answer is known or the time is over; the row in the store follows.

        Raises:
            Cancelled: by the user; what was tried is kept.
            TunerError: ONNX Runtime's default itself cannot be run.
        """
        if self.recheck:
            self._check_the_machine()
        while (step := self._next()) is not None:
            if self.question.give_way:
                self.given_s += self.service.give_way()
            self._do(step)
        return self.result()

    def _next(self) -> Step | None:
        self._progress("plans", len(self.tried))
        if self.question.extend and is_too_short(self.known()):
            self._extend()
        return next_step(self.known(), self.strategy)

    def _extend(self) -> None:
        """Take the time that a confirmation needs beyond what was spent."""
        assert self.costs is not None  # it is what told that the time is too short
        asked_s, spent_s = self.question.budget_s, self.spent_s() - self.spent_before_s
        needed_s = confirmation_s(self.costs, LAUNCHES) + self.after_s
        longer_s = min(MOST_BUDGET_S, max(asked_s, math.ceil(spent_s + needed_s)))
        self.question = self.question.model_copy(update={"budget_s": longer_s, "extend": False})
        self.notes.append(extended_words(asked_s, longer_s))

    def _check_the_machine(self) -> None:
        """Look again at the best of before: on a machine that has changed earlier looks are worthless."""
        before = dict(self.tried)
        best = [choice for choice, _ in standing(self.known())[:RECHECKED]]
        if not best:
            self.tried = {}
            return
        step = Step(
            stage="screen", choices=best, budget_s=self.question.budget_s, why="a check of the machine"
        )
        self._do(step)
        moved = []
        for choice in best:
            old, new = gain_of(before[choice], self.question), self.tried[choice].looks[-1]
            found = self._gain_of_look(new)
            if old is None or found is None:
                continue
            error = math.hypot(old[1] or 0.03, found[1] or 0.03, 0.02)
            if abs(old[0] - found[0]) > MOVED_Z * error:
                moved.append(choice)
        if moved:
            self.tried = {
                choice: replace(self.tried[choice], looks=self.tried[choice].looks[-1:]) for choice in best
            }
            self.notes.append(
                "The machine is not as it was: configurations that were looked at before differ now, so "
                "earlier looks do not count."
            )
        else:
            self.notes.append(f"{len(best)} earlier looks were repeated and agree: the machine is the same.")

    def _gain_of_look(self, one: Look) -> Gain | None:
        return gain_of(Tried(changes={}, key="", looks=(one,)), self.question)

    def _do(self, step: Step) -> None:
        """Race one step, and take from it what it tells."""
        asked = [self._configuration(choice, step.stage) for choice in step.choices]
        names = {one.label: choice for one, choice in zip(asked, step.choices, strict=True)}
        twin = step.choices[0] if step.stage == "screen" and len(asked) >= LEAST_WITH_CONTROL else None
        if twin is not None:
            asked.append(replace(asked[0], label=CONTROL))
        default = Configuration(
            spec=self._timed(self.default_spec, step.stage), label=ANCHOR_LABEL, role="anchor"
        )
        confirms = step.stage == "confirm"
        budget_s = step.budget_s - (self.after_s if confirms else 0.0)
        protocol = protocol_of(
            self.base.protocol,
            stage="" if confirms else step.stage,
            family=divided_by(self.question) if confirms else 1,
        )
        protocol["budget_s"] = max(2.0, budget_s)
        if confirms and self.differences:
            prior = launch_spread(self.differences)
            protocol["prior"] = {"sigma_between": prior.sigma_between, "df": prior.df}
        job = kinds.race(
            [*asked, default],
            study=self.record.id,
            model_name=self.record.model_name,
            what=f"search on {self.record.model_name}: {step.why}",
            protocol=protocol,
        )
        self.doing = step.why
        self.service.on_live(self.live())
        began = time.monotonic()
        ending = self.service.perform(job)
        took_s = time.monotonic() - began
        self.raced_s += took_s
        race = self.store.comparison(job.id)
        trials = {one.id: one for one in self.store.trials_of(job.id)}
        self._learn_costs(race, took_s, trials.get(race.baseline), confirms=confirms)
        self._read(step, race, trials, names, twin)
        self.last_race = race.id
        if confirms:
            self._take_confirmed(step, race, trials, names, ending)
        elif not self._has_gains(step.choices):
            self._nobody_ran(ending)
        else:
            self._mark_unmeasured(step, race)
        if step.stage == "heat" or (step.stage == "screen" and step.why.startswith("another")):
            self._rank_rivals(step, race)
        self._note_course(step)
        self._save()
        if self.service.cancel.is_set():
            raise Cancelled(
                "The search was cancelled; what it tried is kept.",
                hint=f"Go on with it: `search --resume {self.record.id}`.",
            )

    def _configuration(self, choice: Choice, stage: str) -> Configuration:
        return Configuration(spec=self._timed(self.space.spec(choice), stage), label=self.space.label(choice))

    def _timed(self, spec: TrialSpec, stage: str) -> TrialSpec:
        """A configuration that hangs must not eat the search."""
        if stage == "confirm":
            return spec
        most = max(LEAST_TIMEOUT_S, round(LOOK_TIMEOUT_SHARE * self.question.budget_s))
        protocol = spec.protocol.model_copy(update={"timeout_s": min(spec.protocol.timeout_s, most)})
        return spec.model_copy(update={"protocol": protocol})

    def _learn_costs(self, race: Comparison, took_s: float, default: Trial | None, *, confirms: bool) -> None:
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
        self.costs = Costs(
            run_s=round_s / count / max(1, runs // rounds),
            start_s=starts / generations / count,
            block_s=round_s / count,
            runs=max(1, runs // rounds),
            screen_s=self.each_s,
            fixed_s=self.fixed_s,
            after_s=self.after_s,
        )

    # --- what a race told -----------------------------------------------------------------------------------

    def _read(
        self,
        step: Step,
        race: Comparison,
        trials: Mapping[str, Trial],
        names: Mapping[str, Choice],
        twin: Choice | None,
    ) -> None:
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
            if found is None:
                continue
            twins += [found] if choice == twin else []
            if is_twin:
                spec = self.space.spec(choice)
                self.twins.append(
                    Tried(changes=self._plain(choice), key=spec.key(), looks=(found,), twin=True)
                )
                continue
            before = self.tried.get(choice) or Tried(
                changes=self._plain(choice), key=self.space.spec(choice).key()
            )
            self.tried[choice] = replace(before, looks=(*before.looks, found))
        gains = [found.gains["latency_p50"][0] for found in twins if "latency_p50" in found.gains]
        if len(gains) == 2:
            self.differences.append(gains[0] - gains[1])

    def _plain(self, choice: Choice) -> dict[str, Any]:
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
        if trial.state == "CANCELLED" or (self.service.cancel.is_set() and trial.state != "COMPLETE"):
            return None
        if trial.error is not None and trial.error["type"] == "BudgetError":
            return None
        splits = float(race.protocol.get("splits") or max(1, len(race.protocol.get("looks") or ())))
        return look(
            Look(stage=stage, race=race.id, trial=trial.id, error=error, splits=splits),
            trial.facts,
            {} if default is None else default.facts,
            found,
            sizes=self._sizes(choice),
            arena=self.space.spec(choice).session.enable_cpu_mem_arena is not False,
            copies=_copies(stage, race),
        )

    def _sizes(self, choice: Choice) -> tuple[float, float] | None:
        sizes = self.prepared.models.sizes
        own = sizes.get(str(self.space.changes(choice).get(MODEL) or ""))
        return None if own is None or "" not in sizes else (own, sizes[""])

    def _has_gains(self, choices: Sequence[Choice]) -> bool:
        return any(choice in self.tried and self.tried[choice].looks for choice in choices)

    def _mark_unmeasured(self, step: Step, race: Comparison) -> None:
        """Whom the race told nothing of: it must not be asked for again and again."""
        if self.service.cancel.is_set():
            return
        for choice in step.choices:
            if choice not in self.tried:
                lost = Look(stage="screen", race=race.id, trial="", error="It was not measured.")
                key = self.space.spec(choice).key()
                self.tried[choice] = Tried(changes=self._plain(choice), key=key, looks=(lost,))

    def _nobody_ran(self, ending: Ending) -> None:
        """A race that told nothing of anybody: the default cannot run, or nothing at all can."""
        if self.service.cancel.is_set():
            return
        if isinstance(ending.error, TunerError):
            raise ending.error
        raise WorkerError(
            "The race told nothing of any configuration.", hint="Measure one with `bench` first."
        )

    def _rank_rivals(self, step: Step, race: Comparison) -> None:
        """After the heat: its leader, who could not be told from it by what they cost, then the rest."""
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

    def _take_confirmed(
        self,
        step: Step,
        race: Comparison,
        trials: Mapping[str, Trial],
        names: Mapping[str, Choice],
        ending: Ending,
    ) -> None:
        before = {
            changes_words(self._plain(choice)): gain[0]
            for choice in step.choices
            if choice in self.tried and (gain := self._gain_before(self.tried[choice])) is not None
        }
        margin = self.base.protocol.margin
        looks = race.protocol.get("splits") or max(1, len(race.protocol["looks"]))
        default = self._raced(race, trials, race.baseline, {}, None)
        said: dict[Choice, Confirmed] = {}
        for one in race.contestants:
            if one.label in names:
                choice = names[one.label]
                raced = self._raced(race, trials, one.trial, self._plain(choice), choice)
                said[choice] = answers.confirmed(raced, default, self.question, margin=margin, looks=looks)
        default_said = answers.confirmed(default, default, self.question, margin=margin, looks=looks)
        if not race.facts:
            if isinstance(ending.error, TunerError) and not isinstance(ending.error, Cancelled):
                self.refused = ending.error
            self.settled = True  # what was confirmed before stands
            return
        again = self._left_open() in step.choices
        self.confirmed |= {choice: said[choice] for choice in step.choices}
        self.confirmings += step.choices
        in_order = [said[choice] for choice in step.choices]
        found, winner = answers.outcome(in_order, default_said, race.facts, margin=margin)
        if again or self.default_said is None or RANKED.index(found) <= RANKED.index(self.outcome):
            self.outcome, self.winner = found, winner
            self.default_said, self.last_result = default_said, race.facts
        self.settled = self.outcome in ("FOUND", "REJECTED")
        lost = [one for one in in_order if one is not self.winner and self._promised(one, before)]
        if lost and not self.settled:
            gone = " and ".join(f"`{self._words(one['changes'])}`" for one in lost)
            self.notes.append(f"{gone} looked better before and did not hold in fresh processes.")

    def _left_open(self) -> Choice | None:
        """Who answers the question so far, where the answer is open."""
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

    def _raced(
        self,
        race: Comparison,
        trials: Mapping[str, Trial],
        trial_id: str,
        changes: Mapping[str, Any],
        choice: Choice | None,
    ) -> answers.Raced:
        stored = trials[trial_id]
        whole = self.store.trial(trial_id) if stored.result is not None else stored
        found = next(
            (
                one
                for one in race.facts.get("contrasts", ())
                if one["candidate"] == trial_id and one["baseline"] == race.baseline
            ),
            None,
        )
        own = self.tried[choice].looks[-1] if choice is not None and choice in self.tried else None
        if own is None or own.trial != trial_id:
            other = trials.get(race.baseline)
            error = "" if stored.error is None else stored.error["message"]
            head = Look(stage="confirm", race=race.id, trial=trial_id, error=error)
            own = look(head, whole.facts, {} if other is None else other.facts, found)
        sizes = self._sizes(choice) if choice is not None else None
        return answers.Raced(
            changes=changes,
            spec=stored.spec,
            trial=trial_id,
            comparison=race.id,
            result=whole.facts,
            look=own,
            contrast=found,
            size_bytes=round(sizes[0]) if sizes else _size(self.prepared),
            arena=stored.spec.get("session", {}).get("enable_cpu_mem_arena") is not False,
            summaries=self._right(stored, choice),
        )

    def _right(self, stored: Trial, choice: Choice | None) -> Mapping[Any, Any]:
        """What labelled rows say of a configuration that ran; a failure costs its limits, which stay open."""
        if not self.question.accuracy or stored.state != "COMPLETE":
            return {}
        spec = spec_from_dict(stored.spec).model_copy(update={"dataset": self.base.dataset})
        start = self.base, self.prepared.resolved.record
        name = None if choice is None else self.space.changes(choice).get(MODEL)
        try:
            record = start[1] if name is None else resolve_model(self.store, str(name), run=self.service.run)
            return right(self.store, self.service.run, self.question, (spec, record), start)
        except Cancelled:
            raise
        except TunerError as error:
            self.notes.append(f"The accuracy is not known: {error.message}")
            return {}

    # --- for who looks on, and for later --------------------------------------------------------------------

    def _progress(self, stage: str, done: int) -> None:
        self.service.on_progress(Progress(stage=stage, done=0, total=0, text=self._so_far()))
        self.service.on_live(self.live())

    def _so_far(self) -> str:
        best = self._best()
        return "" if best is None else f"best so far {told_words(best[1])}: {self._words(best[0].changes)}"

    def _best(self) -> tuple[Tried, Told] | None:
        """The best so far; its interval holds for whichever of all that were tried would have been it."""
        for choice, _ in standing(self.known())[:1]:
            found = self._told(self.tried[choice], among=max(1, len(self.tried)))
            if found is not None:
                return self.tried[choice], found
        return None

    def _words(self, changes: Mapping[str, Any]) -> str:
        """What a configuration sets otherwise than ONNX Runtime's default, in one line."""
        return changes_words(from_default(self.base, changes))

    def _told(self, one: Tried, *, among: int = 1) -> Told | None:
        confirmed = {said["trial"]: said["gain"] for said in self.confirmed.values()}
        return told(one, self.question.objective, confirmed, among=among)

    def live(self) -> dict[str, Any]:
        """What a page shows while it runs."""
        best = self._best()
        objective = "+".join(self.question.objective)
        return {
            "study": self.record.id,
            "tried": len(self.tried),
            "distinct": len(self.space.choices),
            "doing": self.doing,
            "spent_s": self.spent_s(),
            "ends_at": time.time() + max(0.0, self.known().left_s),  # seconds since the epoch, at the latest
            "budget_s": self.spent_before_s + self.question.budget_s,
            "best": None
            if best is None
            else {
                "changes": from_default(self.base, best[0].changes),
                "gain": answers.of_told(objective, best[1], self.base.protocol.margin),
                "launches": best[1].launches,
            },
            "front": [{**one, "changes": from_default(self.base, one["changes"])} for one in self._front()],
            "points": [
                {
                    "label": self._words(one.changes),
                    "ratio": found.ratio,
                    "memory": one.value("peak_rss"),
                }
                for one in self.tried.values()
                if (found := self._told(one)) is not None
            ],
            "course": list(self.course),
        }

    def _front(self) -> list[FrontPoint]:
        confirmed = list(self.confirmed.values())
        return answers.front(
            list(self.tried.values()), self.question, self.base.protocol.margin, confirmed=confirmed
        )

    def _note_course(self, step: Step) -> None:
        best = self._best()
        self.course.append(
            {
                "at_s": self.spent_s(),
                "stage": step.stage,
                "tried": len(self.tried),
                "ratio": None if best is None else best[1].ratio,
            }
        )

    def _save(self) -> None:
        """Write down what is known; a full disk costs the way back after a kill, and nothing else."""
        kept = [one.to_dict() for one in (*self.tried.values(), *self.twins)]
        try:
            self.store.update_study(self.record.id, tried=kept, wall_s=self.spent_s())
        except StoreError as error:
            note = f"It could not be written down while it ran: {error.message}"
            if note not in self.notes:
                self.notes.append(note)

    def result(self) -> SearchResult:
        """Return the answer with all that it rests on."""
        known = self.known()
        margin = self.base.protocol.margin
        everybody = list(self.tried.values())
        effects, pairs = answers.effects(known, launch_spread(self.differences))
        self.notes += [answers.dropped_words(one, self.space) for one in dropped(known)]
        winner = self.winner
        controls = answers.controls([*everybody, *self.twins], self.self_tests)
        remark = answers.failed_controls(controls) if self.confirmed else ""
        found: SearchResult = {
            "outcome": self.outcome,
            "margin": margin,
            "objective": dict(self.question.objective),
            "limits": self.question.limit_words,
            "space": answers.space_facts(self.space),
            "tried": len(everybody),
            "failed": sum(bool(one.failed) for one in everybody),
            "remarks": [remark] if remark else [],
            "winner": winner,
            "default": self.default_said,
            "others": [one for one in self.confirmed.values() if one is not winner],
            "front": self._front(),
            "effects": effects,
            "pairs": pairs,
            "controls": controls,
            "course": self.course,
            "grade": self.last_result.get("grade"),
            "busy": self.last_result.get("busy"),
            "budget_s": self.spent_before_s + self.question.budget_s,
            "wall_s": self.spent_s(),
            "own_s": time.monotonic() - self.began - self.given_s - self.raced_s,
            "strategy": self.question.strategy,
            "notes": self.notes,
        }
        worth = sought(self.space)
        if self.costs is not None and 0 < len(everybody) < worth:
            share = looks_share(self.space)
            self.notes.append(evaluated_words(self.costs, len(everybody), worth, share=share))
        if self.costs is not None:
            found["costs"] = costs_document(self.costs)
        if not self.confirmed:
            self._say_why_open(known, found)
        return found

    def _say_why_open(self, known: Known, found: SearchResult) -> None:
        """Say why nothing was confirmed, and the time that is enough where it was too short."""
        if self.costs is not None and (is_too_short(known) or isinstance(self.refused, BudgetError)):
            screened_s = known.spent_s - known.before_s
            found["enough_s"] = enough_s(self.costs, share=looks_share(self.space), screened_s=screened_s)
            found["why_open"] = open_words(self.costs, known.left_s, self.question.budget_s)
        elif self.refused is not None:
            found["why_open"] = f"Nothing could be confirmed: {self.refused.message}"


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


def _size(prepared: Prepared) -> int | None:
    return prepared.resolved.record.info["size_bytes"]


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


def search_job_work(prepared: Prepared, service: Service) -> Outcome:
    """Do a search within a job; how it ended is written down with the job's end.

    Raises:
        TunerError: as of `Search.run`.
    """
    began: dict[str, Any] = {"state": "RUNNING", "started_at": prepared.record.started_at or time.time()}
    fingerprint = service.environment()["fingerprint"]
    service.store.update_study(prepared.record.id, fingerprint=fingerprint, **began)
    clock = time.monotonic()
    result: Any = Search(_with_variants(prepared, service), service, clock).run()
    return Outcome(whole=Ending(state="COMPLETE", result=result))


def _with_variants(prepared: Prepared, service: Service) -> Prepared:
    """Make the variants that the question asks for, and take them into the space."""
    question, resolved = prepared.question, prepared.resolved
    if question.variants != "make":
        return prepared
    notes = make_variants(service.store, resolved.record, resolved.spec, service)
    models = models_of(service.store, resolved.record, question)
    place = place_of(service.environment(), resolved, question)
    found = space_of(resolved.spec, question, place, models)
    kept = [one for one in prepared.notes if one not in prepared.models.left_out]
    return replace(
        prepared,
        space=found,
        models=models,
        notes=[*kept, *notes, *models.left_out],
        hints=[choice for choice in map(partial(_moved, prepared.space, found), prepared.hints) if choice],
        priors=[
            (choice, gain, error)
            for one, gain, error in prepared.priors
            if (choice := _moved(prepared.space, found, one)) is not None
        ],
    )


def _moved(old: Space, new: Space, choice: Choice) -> Choice | None:
    """The same configuration in a larger space."""
    return new.find(old.changes(choice))
