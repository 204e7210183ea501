"""Searches for the best configuration: `search`, `resume`, and what they share with the page Search."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, Literal

from core.api import arguments
from core.api.models import ModelLike
from core.api.requests import Config, config_data, with_sizes
from core.api.results import Result
from core.api.session import OnProgress, Session, Status, default_session
from core.api.settings import given_of, values_to_try
from core.evidence.result_types import SearchResult
from core.run import search as searches
from core.run.job import Job
from core.run.preparation import environment_of
from core.run.search import Prepared as Prepared
from core.run.search import budget_error as budget_error
from core.run.search import place_of as place_of
from core.run.search import prediction as prediction
from core.run.search import search_provenance as search_provenance
from core.run.search.answer import space_facts as space_facts
from core.run.search.search_space import CPU as CPU
from core.run.search.search_space import Models as Models
from core.run.search.search_space import axes_of as axes_of
from core.run.search.search_space import models_of as models_of
from core.run.search.search_space import space_of as space_of
from core.run.search.stored import answer_of as answer_of
from core.run.search.stored import evaluations_of as evaluations_of
from core.run.search.under_load import plan_words as load_plan_words
from core.show import documents
from core.show.format import duration
from core.show.sheets import Sheet
from core.show.sheets.searches import evaluation_table, search_sheet, search_verdict, space_words
from core.spec import TrialSpec, spec_from_dict, with_changes
from core.spec.datasets import dataset_plan
from core.spec.question import (
    DEFAULT_BUDGET_S,
    OLD_STRATEGIES,
    PRESETS,
    STRATEGIES,
    Question,
    find_setting,
    parse_limits,
    parse_objective,
    question_from_dict,
)
from core.spec.space import MODEL
from core.store import StudyRecord
from core.wire.errors import SpecError, error_from_record, nearest


@arguments.checked(data=arguments.path, vary=arguments.mapping, fix=arguments.mapping, load=arguments.text)
def search(
    model: ModelLike | None = None,
    config: Config = None,
    *,
    objective: str | None = None,
    limits: str | Sequence[str] = (),
    load: str | None = None,
    preset: str | None = None,
    vary: Mapping[str, Any] | None = None,
    fix: Mapping[str, Any] | None = None,
    without: str | Sequence[str] = (),
    variants: Literal["none", "existing", "make"] = "existing",
    data: str | PathLike[str] | None = None,
    strategy: str = "race",
    budget_s: int | str | None = None,
    extend: bool = False,
    give_way: bool = False,
    warm_start: bool = True,
    dry_run: bool = False,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Any]:
    """Find the best configuration within limits and a time budget, and confirm it in fresh processes.

    Args:
        model: see `tune`.
        config: configuration to start from; settings that vary may change, all others stay. See `tune`.
        objective: what to optimize, for example "latency"; or two with weights, "latency:2,memory:1".
        limits: constraints on the result, for example "p99<=3ms", "memory<=100MiB", "accuracy>=98%".
        load: traffic that the answer has to take, for example "200/s with p99<=20ms": run after the
            confirmation, in addition to the budget. None: the first target under load of `config`.
        preset: name of a predefined objective with limits.
        vary: values to search, by setting: a list, or text such as "1,2,4". None: all settings that are worth
            it on this model and machine.
        fix: settings that keep a value, for example `{"intra_op_num_threads": 1}`.
        without: settings or values to exclude.
        variants: of the model: none, existing ones, or create more first, within the budget.
        data: labelled data for limits on the accuracy.
        strategy: how to choose configurations.
        budget_s: time budget in seconds, or text such as "2m"; None: that of `config`, else 60 seconds.
        extend: exceed the budget if it is too short to confirm a result.
        give_way: let waiting jobs of this machine run between two measurements.
        warm_start: begin with what earlier searches of this model found.
        dry_run: return the search space (`Result[Prepared]`) and run nothing.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`. They are the start of the search and may vary; `fix` keeps a value.

    Returns:
        A `Result[StudyRecord]`.

    Raises:
        SpecError: the question or a setting is invalid, or nothing varies.
        BudgetError: the time budget is too short to confirm a result.
        TunerError: the search failed or was cancelled; `resume` continues it.
    """
    session = session or default_session()
    asked = _question_part(objective, limits, preset, load)
    varied = dict(values_to_try(_searched(name), values) for name, values in (vary or {}).items())
    kept = [values_to_try(find_setting(name).name, [value]) for name, value in (fix or {}).items()]
    fixed = {name: value for name, [value] in kept}
    if strategy in OLD_STRATEGIES:
        session.note(f"The strategy `{strategy}` is no longer offered. The search uses the default one.")
        strategy = "race"
    if strategy not in STRATEGIES:
        raise SpecError(
            f"There is no strategy `{strategy[:40]}`.{nearest(strategy, STRATEGIES)}",
            hint=f"Choose among {', '.join(STRATEGIES)}.",
        )
    found = config_data(model, config, given_of(settings), session)
    if data is not None:
        found["dataset"] = {**found.get("dataset", {}), "path": fspath(data)}
    spec = with_changes(spec_from_dict(found), fixed)
    if data is not None and spec.dataset is not None:
        dataset_plan(spec.dataset)  # refuses a path without data
    [spec], sizes = with_sizes([spec], session)
    of_config = [one.model_dump(mode="json", exclude_none=True) for one in spec.targets if one.load is None]
    question = question_from_dict(
        {
            "limits": of_config,
            "load": _load_of_config(session, spec) if load is None else load,
            **asked,
            "strategy": strategy,
            "give_way": give_way,
            "warm_start": warm_start,
            "variants": variants,
            "extend": extend,
            "vary": varied,
            "fix": list(fixed),
            "without": list(without),
            "budget_s": spec.protocol.budget_s or DEFAULT_BUDGET_S if budget_s is None else budget_s,
        }
    )
    prepared = prepared_search(session, spec, question)
    _announce(session, prepared)
    if dry_run:
        return _space_result(prepared, sizes)
    job = search_job(prepared, wait_quiet_s=wait_quiet_s)
    return _run(session, job, sizes, on_progress, cancel)


@arguments.checked(load=arguments.text)
def resume(
    study: arguments.Ref,
    *,
    budget_s: int | str | None = None,
    objective: str | None = None,
    limits: str | Sequence[str] = (),
    load: str | None = None,
    preset: str | None = None,
    extend: bool = False,
    dry_run: bool = False,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Any]:
    """Continue an interrupted search, or a finished one with more time or a changed question.

    Args:
        study: its ID, or its result.
        budget_s: additional time in seconds, or text such as "2m". None: the remaining time, or the same
            again if none remains.
        objective: see `search`.
        limits: see `search`.
        load: see `search`.
        preset: see `search`.
        extend: see `search`.
        dry_run: see `search`.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        StoreError: there is no such search, or it is running.
        TunerError: as of `search`.
    """
    session = session or default_session()
    more_s = None if budget_s is None else int(budget_s)  # `checked` has read it
    asked = _question_part(objective, limits, preset, load) | ({"extend": True} if extend else {})
    prepared = continued_search(session, arguments.ident("study", study), budget_s=more_s, question=asked)
    _announce(session, prepared)
    if dry_run:
        return _space_result(prepared, {})
    return _run(session, search_job(prepared, wait_quiet_s=wait_quiet_s), {}, on_progress, cancel)


def _load_of_config(session: Session, spec: TrialSpec) -> str | None:
    """Return the first target under load of the configuration; a note says which are left out."""
    found = [one.load.text for one in spec.targets if one.load is not None]
    if len(found) > 1:
        session.note(f"The search runs `{found[0]}` only. Check other targets under load with `scorecard`.")
    return found[0] if found else None


def _searched(name: str) -> str:
    return name if name == MODEL else find_setting(name).name


def prepared_search(session: Session, spec: TrialSpec, question: Question) -> Prepared:
    """Return a checked search of a question.

    Raises:
        TunerError: as of `search`, or the session does not admit it.
    """
    session.admit(spec)
    machine = environment_of(session.scheduler.environment, spec.runtime)
    store, owner = session.store, session.scheduler.owner
    return searches.prepare(spec, question, store, session.inspect, machine, owner=owner)


def continued_search(
    session: Session, study: str, *, budget_s: int | None = None, question: Mapping[str, Any] | None = None
) -> Prepared:
    """Return a checked continuation of a stored search; `question` holds its changed parts.

    Raises:
        TunerError: as of `resume`.
    """
    owner = session.scheduler.owner
    runtime = spec_from_dict(session.store.study(study).spec).runtime
    machine = environment_of(session.scheduler.environment, runtime)
    return searches.continue_search(
        session.store, study, session.inspect, machine, budget_s=budget_s, question=question, owner=owner
    )


def best_trial(answer: SearchResult) -> str:
    """Return the trial of the best configuration, which is faster than the default; empty: there is none.

    Where the question asks for traffic, it is the fastest that passes; its trial may be a load test.
    """
    winner = answer["winner"] if answer["outcome"] == "FOUND" else None
    load = answer.get("load")
    if winner is None or load is None:
        return "" if winner is None else winner["trial"]
    passed = None if load["passed"] is None else load["tested"][load["passed"]]
    if passed is None or passed["role"] == "default":
        return ""
    return winner["trial"] if passed["role"] == "winner" else passed["trial"]


def search_job(prepared: Prepared, *, wait_quiet_s: float = 0.0) -> Job:
    """Return the job of a prepared search; its id is that of the study."""
    return searches.job(prepared, wait_quiet_s=wait_quiet_s)


def _run(
    session: Session,
    job: Job,
    sizes: Mapping[str, Any],
    on_progress: OnProgress | None,
    cancel: threading.Event | None,
) -> Result[StudyRecord]:
    session.last = search_result(session, job.id, sizes)
    status = session.run(job, on_progress=on_progress, cancel=cancel)
    result = session.last = search_result(session, job.id, sizes, status)
    if status.error is not None:
        raise error_from_record(status.error)
    return result


def _space_result(prepared: Prepared, sizes: Mapping[str, Any]) -> Result[Prepared]:
    return Result(
        kind="search space",
        id="",
        read=lambda: prepared,
        document=lambda one: {**documents.search_space(one), **sizes},
        content=lambda one: Sheet(space_words(space_facts(one.space)), []),
    )


def search_result(
    session: Session, study: str, sizes: Mapping[str, Any] | None = None, status: Status | None = None
) -> Result[StudyRecord]:
    """Return the result of a search.

    Args:
        session: holds it.
        study: its ID.
        sizes: sources of assumed sizes, for the document.
        status: how its job ended, for a store that could not save its end.
    """

    def read() -> StudyRecord:
        record = session.store.study(study)
        if status is None:
            return record
        answer: Any = record.answer or status.result
        return replace(record, answer=answer, error=status.error or record.error)

    return Result(
        kind="search",
        id=study,
        read=read,
        document=lambda record: {**documents.search(record), **(sizes or {})},
        content=search_sheet,
        says=search_verdict,
        rows=evaluation_table,
        store=session.store,
        refs=[study],
    )


def _announce(session: Session, prepared: Prepared) -> None:
    """Note the question, the size of the search space and how much of it fits the budget."""
    question, space = prepared.question, prepared.space
    kept = [*question.limit_words, *([] if question.load is None else [question.load.words])]
    within = f", keeping {', '.join(kept)}" if kept else ""
    session.note(f"{question.words}{within}: {space_words(space_facts(space))}")
    fits = searches.prediction(prepared, session.store)
    session.note(f"time budget {duration(question.budget_s)}; {fits}")
    if question.load is not None:
        session.note(load_plan_words(question.load))


def _question_part(
    objective: str | None, limits: Sequence[str], preset: str | None, load: str | None
) -> dict[str, Any]:
    """Return the parts of a question that are given.

    Raises:
        SpecError: there is no such preset, or a text is invalid.
    """
    found: dict[str, Any] = {}
    if preset is not None:
        preset = preset.replace("rows", "samples")  # name before 1.0
        if preset not in PRESETS:
            raise SpecError(
                f"There is no preset `{preset[:60]}` of objective and limits.{nearest(preset, PRESETS)}",
                hint=f"Choose among {', '.join(f'`{name}`' for name in PRESETS)}.",
            )
        found |= PRESETS[preset][1]
    if objective is not None:
        found["objective"] = parse_objective(objective)
    if limits:
        read = parse_limits(list(limits))
        read["limits"] = [one.model_dump(mode="json", exclude_none=True) for one in read["limits"]]
        found |= read
    return found if load is None else found | {"load": load}


def export_to_optuna(record: StudyRecord, storage: str) -> int:
    """Write a search as an Optuna study, and return the number of its trials.

    Args:
        record: the search.
        storage: URL of Optuna's storage, `sqlite:///FILE`.

    Raises:
        SpecError: Optuna is not installed, or the storage cannot be written.
    """
    from core.run.search.optuna_export import export  # late: an optional dependency

    return export(record, storage)
