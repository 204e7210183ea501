"""Searches that run for real: configurations that crash, hang or need too much memory, cancels, starts.

Where a test is not about the plan, `planned` says what is done: then it counts no time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.evidence.tried import Stage, Tried, tried_from_dict
from core.process import workers
from core.process.runner import run_job
from core.run import race as racing
from core.run import search
from core.run.race import crew
from core.run.scheduler import Scheduler
from core.run.search import answer as answers
from core.run.search import study
from core.run.search.plan import Known, Step, Strategy
from core.run.search.reading import trials_of
from core.spec import spec_from_dict
from core.spec.question import question_from_dict
from core.wire.errors import BudgetError
from tests import tiny_models

fork_server = workers._ForkServer


def searched(
    scheduler: Scheduler, model: Path, start: Mapping[str, Any] | None = None, **asked: Any
) -> tuple[Mapping[str, Any], list[Tried]]:
    """The answer of a search to its end, and all that it tried; `start` holds parts of its spec."""
    store = scheduler.store
    question = question_from_dict({"budget_s": 12, **asked})
    spec = spec_from_dict({"model": {"path": str(model)}, **(start or {})})
    prepared = search.prepare(spec, question, store, run_job, scheduler.environment())
    name = scheduler.submit(search.job(prepared))
    scheduler.join()
    found = store.study(name)
    assert found.state == "COMPLETE", found.error
    assert found.answer is not None
    return found.answer, [tried_from_dict(one) for one in found.tried]


def planned(monkeypatch: pytest.MonkeyPatch, *stages: Stage) -> None:
    """Have a search do these stages, each with all configurations that its strategy leaves to it."""
    left = list(stages)

    def following(known: Known, strategy: Strategy) -> Step | None:
        if not left:
            return None
        stage, everybody = left.pop(0), len(known.space.choices)
        choices = known.rivals or list(known.tried) or strategy(known, everybody)
        return Step(stage=stage, choices=choices, budget_s=20, why=stage)

    monkeypatch.setattr(study, "next_step", following)


def check(answer: Mapping[str, Any], tried: list[Tried], setting: str, value: Any, words: str) -> None:
    """Whoever has this value has failed with these words, nobody else has, and the search has an answer."""
    failed = [one for one in tried if one.failed]
    assert failed
    assert {one.changes.get(setting) for one in failed} == {value}
    assert all(words in str(one.looks[-1].error) for one in failed)
    sound = [one for one in tried if one.changes.get(setting) != value]
    assert sound
    assert all(one.looks and one.gain("latency_p50") is not None for one in sound)
    assert answer["failed"] == len([one for one in failed if not one.twin])
    assert answer["outcome"] in ("FOUND", "NO_DIFFERENCE", "UNDECIDED")
    assert answer["winner"] is None or answer["winner"]["changes"].get(setting) != value


@pytest.mark.parametrize(("how", "words"), [("hang", "2 s"), ("memory", "out of memory")])
def test_a_size_that_fails_is_marked_and_the_search_goes_on(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    monkeypatch.setattr(study, "LEAST_TIMEOUT_S", 2)
    monkeypatch.setattr(study, "LOOK_TIMEOUT_SHARE", 0.0)
    model = tiny_models.fails_from_three_rows(tmp_path / "moody.onnx", how)
    vary = {"batch_size": [1, 2, 4], "use_io_binding": [False, True]}
    answer, tried = searched(scheduler, model, vary=vary, objective={"throughput": 1.0}, budget_s=20)
    check(answer, tried, "batch_size", 4, words)


def test_a_crash_is_marked_and_the_search_goes_on(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = crew.start_loaded

    def crashing(owner: Any, entry: Any, *args: Any, **how: Any) -> Any:
        worker, reply = start(owner, entry, *args, **how)
        if "arena off" in entry.label:
            os.kill(worker.pid, signal.SIGSEGV)
        return worker, reply

    monkeypatch.setattr(crew, "start_loaded", crashing)
    model = tiny_models.mul(tmp_path / "square.onnx")
    vary = {"enable_cpu_mem_arena": [True, False], "use_io_binding": [False, True]}
    answer, tried = searched(scheduler, model, vary=vary)
    check(answer, tried, "enable_cpu_mem_arena", False, "SIGSEGV")


@pytest.mark.parametrize("stage", ["screen", "heat", "confirm"])
def test_a_cancel_in_any_stage_keeps_what_was_tried_before(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    do = study.Search._do

    def cancelled(self: study.Search, step: Step) -> None:
        if step.stage == stage:
            self.service.cancel.set()
        do(self, step)

    monkeypatch.setattr(study.Search, "_do", cancelled)
    planned(monkeypatch, "screen", "heat", "confirm")
    vary = {"enable_cpu_mem_arena": [True, False], "use_io_binding": [False, True]}
    question = question_from_dict({"budget_s": 25, "vary": vary, "warm_start": False})
    spec = spec_from_dict({"model": {"path": str(square)}})
    store = scheduler.store
    prepared = search.prepare(spec, question, store, run_job, scheduler.environment())
    name = scheduler.submit(search.job(prepared))
    assert scheduler.join(120)
    found = store.study(name)
    assert found.state == "CANCELLED"
    assert found.answer is None
    assert len(found.tried) == (0 if stage == "screen" else 3)
    again = search.go_on(store, name, run_job, scheduler.environment())  # from where it was
    assert len(again.record.tried) == len(found.tried)


@pytest.mark.parametrize("extend", [False, True])
def test_a_first_process_that_shows_that_no_look_fits_ends_the_search_or_extends_it(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch, extend: bool
) -> None:
    checked = list[int]()

    def too_slow(quickest_s: float, left: int, **more: float) -> None:
        checked.append(left)
        if len(checked) == 1:
            raise BudgetError("Too slow.")

    monkeypatch.setattr(racing, "check_starts", too_slow)
    planned(monkeypatch, "screen", "screen", "confirm")
    question = question_from_dict(
        {"budget_s": 12, "vary": {"use_io_binding": [False, True]}, "extend": extend}
    )
    spec = spec_from_dict({"model": {"path": str(square)}})
    prepared = search.prepare(spec, question, scheduler.store, run_job, scheduler.environment())
    name = scheduler.submit(search.job(prepared))
    assert scheduler.join(120)
    found = scheduler.store.study(name)
    assert checked[0] == 2  # one of three processes had been started
    if extend:
        assert found.state == "COMPLETE", found.error
        assert len(found.tried) == 1
        return
    assert len(checked) == 1
    assert found.error is not None
    assert found.error["type"] == "BudgetError"
    assert "--extend" in found.error["hint"]


def test_an_answer_that_one_race_leaves_open_is_asked_of_another(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def open_at_first(candidates: Any, *others: Any, **more: Any) -> Any:
        asked.append(candidates[0]["comparison"])  # what a race really finds is up to the machine
        return ("FOUND" if len(asked) > 1 else "UNDECIDED"), candidates[0]

    monkeypatch.setattr(answers, "outcome", open_at_first)
    answer, _ = searched(scheduler, square, vary={"use_io_binding": [False, True]}, budget_s=30)
    assert len(set(asked)) == 2
    assert answer["outcome"] == "FOUND"
    assert answer["winner"]["comparison"] == asked[1]
    assert answer["others"] == []


def test_a_search_that_starts_elsewhere_knows_the_default_among_its_configurations(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = list[object]()
    monkeypatch.setattr(workers, "_ForkServer", lambda *args: servers.append(args) or fork_server(*args))
    planned(monkeypatch, "screen", "confirm")
    vary = {"enable_cpu_mem_arena": [True, False], "use_io_binding": [False, True]}
    bound, without = {"use_io_binding": True}, {"enable_cpu_mem_arena": False}
    start = {"session": without, "workload": bound, "protocol": {"runs": 60}}
    answer, tried = searched(scheduler, square, start, vary=vary)
    assert answer["default"] is not None
    assert "use_io_binding" not in answer["default"]["spec"].get("workload", {})  # it is never bound
    assert len(tried) == 3  # the default is everybody's reference anyway
    assert len(servers) == 1  # of both races
    [kept] = scheduler.store.studies()
    told = [one["changes"] for one in trials_of(kept)]
    assert all(one in told for one in (bound, without, bound | without)), (
        told
    )  # as differences from the default
