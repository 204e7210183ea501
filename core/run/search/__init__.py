"""Searches for the best configuration under constraints within a time budget, confirmed in fresh processes.

`prepare` creates a search from a question, `continue_search` continues a stored one, and `job` queues it.
`search_space` builds the search space, `plan` decides the next step (pure), `strategies` propose
configurations, `failures` excludes values that fail, `time_needed` forecasts costs, `running` executes the
steps, `search_state` holds the state, `accuracy_limits` measures accuracy, `answer` and `progress` compute
the result, `stored` reads it, and `optuna_export` writes it for Optuna.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from core import wire
from core.evidence.evaluations import evaluation_from_dict
from core.evidence.measurement import Trial
from core.evidence.result_types import SearchCosts
from core.process import runtimes
from core.process.job_worker import Run
from core.run.job import Job
from core.run.prediction import past
from core.run.preparation import Resolved, check_before, resolve_trial
from core.run.search.plan import FIXED_S, screening_share, sought
from core.run.search.running import search_job_work
from core.run.search.search_space import (
    axes_of,
    exclusion_words,
    models_of,
    place_of,
    space_of,
    unknown_to,
    unknown_words,
)
from core.run.search.search_state import Prepared
from core.run.search.stored import answer_of
from core.run.search.time_needed import (
    costs_from_past,
    costs_from_search,
    enough_s,
    extended_words,
    fit_words,
    too_short,
)
from core.spec import TrialSpec, spec_from_dict
from core.spec.axes import RUNTIME
from core.spec.question import MOST_BUDGET_S, Question, question_from_dict
from core.spec.space import Choice, reference
from core.store import Store, StudyRecord
from core.wire.errors import BudgetError, SpecError, StoreError

MOST_HINTS = 4
EARLIER = 8  # newest searches used for warm start
BELIEF_HERE, BELIEF_ELSEWHERE = 0.05, 0.15  # standard error of an earlier ln(speed-up): here, elsewhere

__all__ = [
    "Prepared",
    "budget_error",
    "continue_search",
    "job",
    "place_of",
    "prediction",
    "prepare",
    "search_provenance",
    "space_of",
]


def prepare(
    spec: TrialSpec,
    question: Question,
    store: Store,
    run: Run,
    machine: wire.Environment | None,
    *,
    owner: str = "",
) -> Prepared:
    """Create a search from a question; refuse impossible requests before they are queued.

    Args:
        spec: fixed settings and protocol.
        question: objective, constraints and time budget.
        store: holds models and earlier searches.
        run: starts a worker if the model has not been inspected.
        machine: where the search will run; None: not known, one thread is assumed.
        owner: user who requests it.

    Raises:
        TunerError: the model cannot be run; the question cannot be answered here; nothing varies; or the time
            budget is too short for a confirmation.
    """
    _check_answerable(spec, question)
    question = _with_pinned_runtimes(question)
    check_before(spec, store, run)
    resolved = resolve_trial(spec, store, run)
    _check_batch(question, resolved)
    record = StudyRecord(
        id=secrets.token_hex(8),
        state="WAITING",
        question=question.model_dump(mode="json", exclude_defaults=True),
        spec=resolved.spec.to_dict(),
        model_name=resolved.record.name,
        model_sha256=resolved.record.content_sha256,
        created_at=time.time(),
        owner=owner,
        fingerprint=machine["fingerprint"] if machine is not None else "",
    )
    prepared = _prepared(record, question, resolved, store, machine, run)
    if question.warm_start:
        prepared = _with_earlier(prepared, store)
    return _in_time(prepared, store)


def continue_search(
    store: Store,
    study_id: str,
    run: Run,
    machine: wire.Environment | None,
    *,
    budget_s: int | None = None,
    question: Mapping[str, Any] | None = None,
    owner: str = "",
) -> Prepared:
    """Continue an interrupted search, or a finished one with more time or a changed question.

    Args:
        store: holds the search.
        study_id: of the search.
        run: starts a worker if the model has not been inspected.
        machine: this one.
        budget_s: additional time; None: the remaining time, or the same budget again if none remains.
        question: changed parts of the question. Any part other than `extend` creates a new search, which
            begins with the evaluations of this one.
        owner: user who requests it.

    Raises:
        StoreError: no such search, or it is running.
        SpecError: it was made on another machine, or its model or a runtime has changed.
        BudgetError: the time budget is too short for a confirmation.
    """
    record = store.study(study_id)
    if record.state in ("RUNNING", "WAITING"):
        raise StoreError(
            f"The search `{record.id}` is {record.state.lower()} now.",
            hint="Wait for it, or cancel it first.",
        )
    if machine is not None and record.fingerprint and record.fingerprint != machine["fingerprint"]:
        raise SpecError(
            f"The search `{record.id}` was made on another machine or with other libraries.",
            hint="Start a new search. Its warm start evaluates the best configurations of this one first.",
        )
    asked = _with_pinned_runtimes(question_from_dict({**record.question, **(question or {})}))
    left_s = asked.budget_s - record.wall_s
    more_s = budget_s or (math.ceil(left_s) if record.state != "COMPLETE" and left_s >= 5 else asked.budget_s)
    asked = asked.model_copy(update={"budget_s": more_s})
    spec = spec_from_dict(record.spec)
    resolved = resolve_trial(spec, store, run)
    if resolved.record.content_sha256 != record.model_sha256:
        raise SpecError(
            f"The model of the search `{record.id}` has changed since.",
            hint="Start a new search on the changed model.",
        )
    notes: list[str] = []
    if not set(question or ()) - {"extend"}:
        whole = asked.model_copy(update={"budget_s": min(MOST_BUDGET_S, round(record.wall_s) + more_s)})
        record = replace(record, question=whole.model_dump(mode="json", exclude_defaults=True))
    else:
        notes.append(f"Continues search {study_id} with its evaluated configurations.")
        _check_answerable(spec, asked)
        record = replace(
            record,
            id=secrets.token_hex(8),
            state="WAITING",
            question=asked.model_dump(mode="json", exclude_defaults=True),
            created_at=time.time(),
            owner=owner,
            started_at=None,
            finished_at=None,
            wall_s=0.0,
            answer=None,
            error=None,
        )
    prepared = _prepared(record, asked, resolved, store, machine, run)
    return _in_time(replace(prepared, notes=[*notes, *prepared.notes]), store)


def _prepared(
    record: StudyRecord,
    question: Question,
    resolved: Resolved,
    store: Store,
    machine: wire.Environment | None,
    run: Run,
) -> Prepared:
    models = models_of(store, resolved.record, question)
    place, unknown = place_of(machine, resolved, question), unknown_to(resolved.spec, run)
    axes = axes_of(resolved.spec, question, place, models)
    found = space_of(resolved.spec, question, place, models, unknown=unknown)
    return Prepared(
        record=record,
        question=question,
        resolved=resolved,
        space=found,
        notes=[*unknown_words(resolved.spec, axes, unknown), *exclusion_words(models, found)],
        threads=1 if machine is None else machine["cpu"]["ort_default_threads"],
        models=models,
    )


def job(prepared: Prepared, *, wait_quiet_s: float = 0.0) -> Job:
    """Return the job of a search; its id is that of the study.

    Args:
        prepared: the search.
        wait_quiet_s: time limit of the wait for an idle machine before the job starts.
    """
    record = prepared.record
    return Job(
        id=record.id,
        study=replace(record, state="WAITING", error=None, finished_at=None),
        kind="search",
        what=f"search on {record.model_name}: {prepared.question.words}",
        work=partial(search_job_work, prepared),
        specs=(prepared.resolved.spec,),
        wait_quiet_s=wait_quiet_s,
    )


def prediction(prepared: Prepared, store: Store) -> str:
    """Say how many configurations fit the time budget, by the costs of earlier comparisons of the model."""
    costs, share = _costs(prepared, store), screening_share(prepared.space)
    if costs is None:
        return "the number of configurations that fit is unknown: this model was not measured here yet"
    if (short := too_short(costs, prepared.question.budget_s, share=share)) is not None:
        return f"{short.message} {short.hint}"
    return fit_words(costs, prepared.question.budget_s, sought(prepared.space), share=share)


def budget_error(prepared: Prepared, store: Store) -> BudgetError | None:
    """Return an error if the time budget is too short for a confirmation, by earlier costs; None: it fits."""
    costs = _costs(prepared, store)
    if costs is None:
        return None
    return too_short(costs, prepared.question.budget_s, share=screening_share(prepared.space))


def _in_time(prepared: Prepared, store: Store) -> Prepared:
    """Return a search whose time budget fits a confirmation, extended if that is allowed.

    Raises:
        BudgetError: the time budget is too short and may not be extended.
    """
    costs, share = _costs(prepared, store), screening_share(prepared.space)
    asked_s = prepared.question.budget_s
    if costs is None or (short := too_short(costs, asked_s, share=share)) is None:
        return prepared
    if not prepared.question.extend:
        raise short
    enough = min(MOST_BUDGET_S, enough_s(costs, share=share))
    question = prepared.question.model_copy(update={"budget_s": enough})
    notes = [*prepared.notes, extended_words(asked_s, enough)]
    return replace(prepared, question=question, notes=notes)


def _costs(prepared: Prepared, store: Store) -> SearchCosts | None:
    """Costs from earlier comparisons of the model on this machine, else from a search of the same inputs."""
    record, default = prepared.record, reference(prepared.resolved.spec)
    known = past(store, model_sha256=record.model_sha256, fingerprint=record.fingerprint)
    if known is not None:
        return costs_from_past(known, default, FIXED_S)
    for study in store.studies(model_sha256=record.model_sha256, limit=EARLIER):
        same = study.fingerprint == record.fingerprint and _inputs(study.spec) == _inputs(default.to_dict())
        if same and (costs := costs_from_search(study.answer)) is not None:
            return costs
    return None


def _inputs(spec: Mapping[str, Any]) -> Any:
    """Batch size and dimensions of a stored spec."""
    workload = spec.get("workload", {})
    return workload.get("batch_size"), workload.get("dims")


def search_provenance(store: Store, trial: Trial) -> dict[str, Any] | None:
    """Return how a search found a trial, for exported files; None: no search confirmed it."""
    if not trial.study:
        return None
    try:
        record = store.study(trial.study)
    except StoreError:
        return None
    answer = answer_of(record)
    winner = answer["winner"] if answer is not None else None
    if answer is None or winner is None or winner["trial"] != trial.id:
        return None
    gain = winner["gain"]
    return {
        "study": record.id,
        "objective": answer["objective"],
        "limits": answer["limits"],
        "changes": winner["changes"],
        "tried": answer["tried"],
        "different_configurations": answer["space"]["distinct"],
        "outcome": answer["outcome"],
        "gain": {name: gain[name] for name in ("metric", "ratio", "ratio_low", "ratio_high")},
    }


# --- checks -------------------------------------------------------------------------------------------------


def _with_pinned_runtimes(question: Question) -> Question:
    """Return a question whose varied runtimes have the hashes of their present content.

    Raises:
        SpecError: there is no such runtime, or its content has another hash.
    """
    found: dict[str, Any] = {"runtimes": tuple(runtimes.pinned(one) for one in question.runtimes)}
    if (varied := question.vary.get(RUNTIME)) is not None:
        values = [None if one is None else runtimes.pinned(str(one)) for one in varied]
        found["vary"] = {**question.vary, RUNTIME: values}
    return question.model_copy(update=found)


def _check_answerable(spec: TrialSpec, question: Question) -> None:
    if question.accuracy and spec.dataset is None:
        raise SpecError("A constraint on accuracy needs labelled data.", hint="Add a data file.")


def _check_batch(question: Question, resolved: Resolved) -> None:
    fixed = resolved.record.info["fixed_batch"]
    if "batch_size" in question.vary and resolved.record.info["batch_dim"] is None:
        what = f"is fixed at {fixed}" if fixed else "does not exist"
        raise SpecError(
            f"The batch of this model {what}, so it cannot vary.",
            hint="Do not vary it, or export the model with a dynamic batch.",
        )


# --- warm start ---------------------------------------------------------------------------------------------


def _with_earlier(prepared: Prepared, store: Store) -> Prepared:
    """Add results of earlier searches of this model: the best as first candidates, all as weak priors."""
    record = prepared.record
    hints: dict[Choice, None] = {}
    priors: dict[Choice, tuple[float, float]] = {}
    notes: list[str] = []
    for study in store.studies(model_sha256=record.model_sha256, limit=EARLIER):
        on_this = bool(record.fingerprint) and study.fingerprint == record.fingerprint
        here = on_this and study.spec.get(RUNTIME) == record.spec.get(RUNTIME)
        seen = []
        for data in study.tried:
            one = evaluation_from_dict(data)
            choice, gain = prepared.space.find(one.changes), one.speedup(prepared.question.objective)
            if choice is None or gain is None or one.twin or one.failed:
                continue
            seen.append((choice, gain[0]))
            belief = BELIEF_HERE if here else BELIEF_ELSEWHERE
            priors.setdefault(choice, (gain[0], math.hypot(gain[1] or belief, belief)))
        for choice, _ in sorted(seen, key=lambda pair: -pair[1])[:MOST_HINTS]:
            if len(hints) < MOST_HINTS and any(choice):
                hints[choice] = None
        if seen:
            where = (
                f"{'in another runtime' if on_this else 'on another machine'} (its ratios are only a hint)"
            )
            where = "on this machine" if here else where
            notes.append(
                f"Search {study.id} of this model {where} suggested the first configurations. All were "
                "measured again."
            )
    return replace(
        prepared,
        hints=list(hints),
        priors=[(choice, *found) for choice, found in priors.items()],
        notes=[*notes[:3], *prepared.notes],
    )
