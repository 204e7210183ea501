"""Runs one search: plan, compare, update, store.

The search stores its state after every comparison, so it can be resumed after a crash. It runs within one
job; its comparisons are nested jobs with rows of their own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from core.evidence.comparison import DEFAULT_LABEL, Comparison, Configuration
from core.evidence.continuation import splits
from core.evidence.evaluations import Observation, launch_spread, observe, weighted
from core.evidence.measurement import Trial
from core.evidence.result_types import Confirmed, CoursePoint, LoadTested, SearchResult, SearchUnderLoad
from core.process.job_worker import Progress
from core.run import job_types
from core.run.comparison import protocol_of
from core.run.job import Ending, Outcome, Service
from core.run.preparation import environment_of
from core.run.search import answer as answers
from core.run.search import progress, strategies, under_load
from core.run.search.accuracy_limits import accuracy_for_limits
from core.run.search.plan import (
    Clock,
    Step,
    error_rate_divisor,
    is_too_short,
    next_step,
    ranked_candidates,
    screening_share,
)
from core.run.search.search_space import (
    exclusion_words,
    make_variants,
    models_of,
    place_of,
    space_of,
    unknown_to,
)
from core.run.search.search_state import CONTROL, Prepared, SearchState, contrasts_with_default
from core.run.search.time_needed import (
    LAUNCHES,
    confirmation_s,
    costs_from_start,
    enough_s,
    extended_words,
    too_slow,
)
from core.spec import TrialSpec, spec_from_dict
from core.spec.load import LoadTarget
from core.spec.question import MOST_BUDGET_S
from core.spec.space import Choice, Space
from core.store import Store
from core.wire.errors import BudgetError, Cancelled, StoreError, TunerError, WorkerError

LEAST_WITH_CONTROL = 4  # configurations of a screening from which on it has a hidden A/A control
SCREENING_TIMEOUT_SHARE = 0.3  # time limit of one step of a screened configuration, as a share of the budget
LEAST_TIMEOUT_S = 20
LEAST_CONFIRMATION_S = 0.5  # of a confirmation; the comparison reports if it needs more
RECHECKED = 3  # configurations that are screened again when a search is resumed
MOVED_Z = 4.0  # standard errors of difference from earlier observations that mean a changed machine


class Search:
    """A running search; `run` executes it."""

    def __init__(self, prepared: Prepared, service: Service, began: float) -> None:
        """Start a search whose time counts from `began`, monotonic seconds."""
        self.prepared, self.record = prepared, prepared.record
        self.service = service
        self.store: Store = service.store
        self.clock = Clock(before_s=prepared.record.wall_s, began=began)
        self.state = SearchState(prepared, self.clock)
        self.strategy = strategies.BY_NAME[prepared.question.strategy]
        self.comparisons_s = 0.0
        self.course: list[CoursePoint] = []
        self.doing = ""
        self.under_load: SearchUnderLoad | None = None

    def run(self) -> SearchResult:
        """Execute steps until the answer is known or the time is over; each step updates the store.

        Raises:
            Cancelled: by the user; evaluations are kept.
            TunerError: the ORT default itself cannot be run.
        """
        if self.state.tried:
            self._check_the_machine()
        while (step := self._next()) is not None:
            pause = self.service.give_way if self.state.question.give_way else self.service.pause
            self.clock.given_s += pause()
            self._do(step)
        if self.state.question.load is not None:
            self.under_load = self._test_under_load(self.state.question.load)
        return progress.result(
            self.state, course=self.course, comparisons_s=self.comparisons_s, load=self.under_load
        )

    def _test_under_load(self, target: LoadTarget) -> SearchUnderLoad:
        """Run the best configurations under load until one passes; its time is no part of the budget.

        A cancelled search keeps its answer, which says that the load tests are incomplete.
        """
        said: list[tuple[under_load.Candidate, LoadTested]] = []
        began, open_ = time.monotonic(), ""
        for one in under_load.candidates(self.state):
            found = self._load_test(one, target)
            if self.service.cancel.is_set():
                open_ = "The load tests were cancelled."
                break
            said.append((one, found))
            if found["state"] == "MET":
                break
        seconds = time.monotonic() - began
        self.clock.given_s += seconds
        return under_load.result(target, said, seconds=seconds, open_=open_)

    def _load_test(self, one: under_load.Candidate, target: LoadTarget) -> LoadTested:
        self.doing = f"load test of {one.label}"
        self.service.on_progress(Progress(stage="load test", done=0, total=0, text=one.label))
        self.service.on_live(self.live())
        job = job_types.load(
            [Configuration(spec=one.spec, label=one.label)],
            under_load.load_spec(self.state, target),
            model_name=self.record.model_name,
        )
        ending = self.service.perform(job)
        trial = self.store.trial(job.trials[0].id)
        error = "" if ending.error is None else ending.error.message
        return under_load.read(one, target, trial, error=error)

    def _next(self) -> Step | None:
        text = progress.so_far(self.state)
        self.service.on_progress(Progress(stage="plans", done=0, total=0, text=text))
        self.service.on_live(self.live())
        if self.state.question.extend and is_too_short(self.state):
            self._extend()
        return next_step(self.state, self.strategy)

    def _extend(self) -> None:
        """Extend the time budget so that a confirmation fits after the time already spent."""
        assert self.state.costs is not None  # `is_too_short` needs them
        spent_s = self.clock.own_s
        needed_s = confirmation_s(self.state.costs, LAUNCHES) + self.state.after_s
        self._take_time(math.ceil(spent_s + needed_s))

    def _take_time(self, needed_s: int) -> None:
        asked_s = self.state.question.budget_s
        longer_s = min(MOST_BUDGET_S, max(asked_s, needed_s))
        self.state.question = self.state.question.model_copy(update={"budget_s": longer_s, "extend": False})
        self.state.notes.append(extended_words(asked_s, longer_s))

    def _check_the_machine(self) -> None:
        """Screen the earlier best again; discard earlier observations if the machine has changed."""
        before = dict(self.state.tried)
        best = [choice for choice, _ in ranked_candidates(self.state)[:RECHECKED]]
        if not best:
            self.state.tried = {}
            return
        step = Step(
            stage="screen",
            choices=best,
            budget_s=self.state.question.budget_s,
            why="check of the machine",
        )
        self._do(step)
        objective = self.state.question.objective
        moved, compared = [], 0
        for choice in best:
            old, new = before[choice].speedup(objective), self.state.tried[choice].looks[-1]
            found = weighted(new.gains, objective)
            if old is None or found is None or new is before[choice].looks[-1]:
                continue
            compared += 1
            error = math.hypot(old[1] or 0.03, found[1] or 0.03, 0.02)
            if abs(old[0] - found[0]) > MOVED_Z * error:
                moved.append(choice)
        if moved:
            self.state.tried = {
                choice: replace(self.state.tried[choice], looks=self.state.tried[choice].looks[-1:])
                for choice in best
            }
            self.state.notes.append(
                "The machine has changed: configurations screened before give other results now, so "
                "earlier screening is discarded."
            )
        elif compared:
            self.state.notes.append(
                f"{compared} earlier configurations were screened again with the same results, so the "
                "machine has not changed."
            )

    def _do(self, step: Step) -> None:
        """Run the comparison of a step and update the state with its result."""
        space = self.state.space
        asked = [
            Configuration(spec=self._timed(space.spec(choice), step.stage), label=space.label(choice))
            for choice in step.choices
        ]
        if step.stage == "screen" and len(asked) >= LEAST_WITH_CONTROL:
            asked.append(replace(asked[0], label=CONTROL))
        default = Configuration(
            spec=self._timed(self.state.default_spec, step.stage), label=DEFAULT_LABEL, role="anchor"
        )
        confirms = step.stage == "confirm"
        budget_s = step.budget_s - (self.state.after_s if confirms else 0.0)
        protocol = protocol_of(
            self.state.base.protocol,
            stage="" if confirms else step.stage,
            family=error_rate_divisor(self.state.question) if confirms else 1,
        )
        protocol["budget_s"] = max(LEAST_CONFIRMATION_S, budget_s)
        if confirms and self.state.differences:
            prior = launch_spread(self.state.differences)
            protocol["prior"] = {"sigma_between": prior.sigma_between, "df": prior.df}
        job = job_types.comparison(
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
        self.comparisons_s += took_s
        comparison = self.store.comparison(job.id)
        trials = {one.id: one for one in self.store.trials_of(job.id)}
        self.state.learn_costs(comparison, took_s, trials.get(comparison.baseline), confirms=confirms)
        self.state.add_observations(step, comparison, trials, cancelled=self.service.cancel.is_set())
        if confirms:
            self._add_confirmation(step, comparison, trials, ending)
        elif isinstance(ending.error, BudgetError):
            self._handle_slow_start(took_s)
        elif not any(choice in self.state.tried for choice in step.choices):
            self._raise_without_results(ending)
        elif not self.service.cancel.is_set():
            self.state.record_unmeasured(step, comparison)
        if step.ranks:
            self.state.rank_rivals(step, comparison)
        self.course.append(progress.course_point(self.state, step))
        self._save()
        if self.service.cancel.is_set():
            raise Cancelled(
                "The search was cancelled; the evaluated configurations are kept.",
                hint="Continue it to use the time left.",
            )

    def _timed(self, spec: TrialSpec, stage: str) -> TrialSpec:
        """Limit the timeout, so that a configuration that hangs cannot use up the search's time."""
        if stage == "confirm":
            return spec
        most = max(LEAST_TIMEOUT_S, round(SCREENING_TIMEOUT_SHARE * self.state.question.budget_s))
        protocol = spec.protocol.model_copy(update={"timeout_s": min(spec.protocol.timeout_s, most)})
        return spec.model_copy(update={"protocol": protocol})

    def _handle_slow_start(self, took_s: float) -> None:
        """Handle a screening that ended because starting its processes would take too long.

        Raises:
            BudgetError: it was the first screening, and the time budget may not be extended.
        """
        if self.state.tried:  # the search confirms earlier evaluations; no screening as slow as this follows
            self.state.each_s = max(self.state.each_s, took_s)
            return
        costs = costs_from_start(took_s, self.state.fixed_s, self.state.after_s)
        share = screening_share(self.state.space)
        if not self.state.question.extend:
            raise too_slow(costs, self.state.question.budget_s, share=share)
        self._take_time(math.ceil(self.clock.own_s) + enough_s(costs, share=share))

    def _raise_without_results(self, ending: Ending) -> None:
        """Raise the error of a comparison without a result: the ORT default or all configurations failed."""
        if self.service.cancel.is_set():
            return
        if isinstance(ending.error, TunerError):
            raise ending.error
        raise WorkerError(
            "The comparison has no result for any configuration.", hint="Measure one with `tune` first."
        )

    # --- the confirmation -----------------------------------------------------------------------------------

    def _add_confirmation(
        self, step: Step, comparison: Comparison, trials: Mapping[str, Trial], ending: Ending
    ) -> None:
        """Update the state with the results of a confirmation run."""
        if not comparison.facts:
            if isinstance(ending.error, TunerError) and not isinstance(ending.error, Cancelled):
                self.state.refused = ending.error
            self.state.settled = True  # earlier confirmations remain valid
            return
        looks = splits(comparison.protocol)
        judged = partial(
            answers.confirmed, question=self.state.question, margin=self.state.margin, looks=looks
        )
        default = self._measured(comparison, trials, comparison.baseline, None)
        names = self.state.names(step)
        said: dict[Choice, Confirmed] = {}
        for one in comparison.contestants:
            if (choice := names.get(one.label)) is not None:
                said[choice] = judged(self._measured(comparison, trials, one.trial, choice), default)
        self.state.add_confirmation(step, said, judged(default, default), comparison)

    def _measured(
        self, comparison: Comparison, trials: Mapping[str, Trial], trial_id: str, choice: Choice | None
    ) -> answers.ConfirmationTrial:
        """A configuration of a confirmation run, with all its stored data; no `choice`: the ORT default."""
        stored = trials[trial_id]
        whole = self.store.trial(trial_id) if stored.result is not None else stored
        contrast = contrasts_with_default(comparison).get(trial_id)
        own = self.state.tried[choice].looks[-1] if choice in self.state.tried else None
        if own is None or own.trial != trial_id:
            other = trials.get(comparison.baseline)
            error = "" if stored.error is None else stored.error["message"]
            head = Observation(stage="confirm", race=comparison.id, trial=trial_id, error=error)
            own = observe(head, whole.facts, {} if other is None else other.facts, contrast)
        sizes = self.state.sizes(choice) if choice is not None else None
        return answers.ConfirmationTrial(
            trial=whole,
            changes={} if choice is None else self.state.plain(choice),
            look=own,
            contrast=contrast,
            size_bytes=round(sizes[0]) if sizes else self.prepared.resolved.record.info["size_bytes"],
            summaries=self._accuracies(stored),
        )

    def _accuracies(self, trial: Trial) -> Mapping[Any, Any]:
        """Accuracies of a configuration that ran; empty if they are unknown: its constraints stay open."""
        if not self.state.question.accuracy or trial.state != "COMPLETE":
            return {}
        start = self.state.base
        spec = spec_from_dict(trial.spec).model_copy(update={"dataset": start.dataset})
        try:
            return accuracy_for_limits(self.store, self.service.run, self.state.question, spec, start)
        except Cancelled:
            raise
        except TunerError as error:
            self.state.notes.append(f"The accuracy is unknown: {error.message}")
            return {}

    # --- progress and storing -------------------------------------------------------------------------------

    def live(self) -> dict[str, Any]:
        """Return the progress of the search for its page."""
        return progress.live(self.state, doing=self.doing, course=self.course)

    def _save(self) -> None:
        """Store the state; on a full disk the search continues but cannot be resumed after a crash."""
        kept = [one.to_dict() for one in (*self.state.tried.values(), *self.state.controls)]
        try:
            self.store.update_study(self.record.id, tried=kept, wall_s=self.clock.spent_s)
        except StoreError as error:
            note = f"It could not be stored while it ran: {error.message}"
            if note not in self.state.notes:
                self.state.notes.append(note)


def search_job_work(prepared: Prepared, service: Service) -> Outcome:
    """Run a search within a job; the job stores how it ended.

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
    """Create the variants that the question requests, and add them to the space."""
    question, resolved = prepared.question, prepared.resolved
    if question.variants != "make":
        return prepared
    notes = make_variants(service.store, resolved.record, resolved.spec, service)
    models = models_of(service.store, resolved.record, question)
    place = place_of(environment_of(service.environment, resolved.spec.runtime), resolved, question)
    unknown = unknown_to(resolved.spec, service.run)
    found = space_of(resolved.spec, question, place, models, unknown=unknown)
    before = exclusion_words(prepared.models, prepared.space)
    kept = [one for one in prepared.notes if one not in before]
    return replace(
        prepared,
        space=found,
        models=models,
        notes=[*kept, *notes, *exclusion_words(models, found)],
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
