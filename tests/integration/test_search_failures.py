"""Searches whose configurations crash, hang or exceed the memory, cancelled ones, and other starting points.

One has real workers; where only the plan is tested, `planned` gives the results.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.evidence.evaluations import Evaluation, Stage, evaluation_from_dict
from core.process import contestant_workers
from core.process.job_worker import run_job
from core.run import launches as launches
from core.run import search
from core.run.launches import processes
from core.run.scheduler import Scheduler
from core.run.search import answer as answers
from core.run.search import running
from core.run.search.plan import PlanState, Step, Strategy
from core.run.search.stored import trials_of
from core.spec import spec_from_dict
from core.spec.question import question_from_dict
from core.store import STORE_NAME, Store
from core.wire.errors import BudgetError
from tests import simulated_clock
from tests.simulated_clock import Model
from tests.waiting import WAIT_S

pytestmark = pytest.mark.usefixtures("jobs_at_once")

fork_server = contestant_workers._ForkServer

BUDGET_S = 300
FOUR = {"enable_cpu_mem_arena": [True, False], "use_io_binding": [False, True]}


def binding_pays(label: str, plan: Mapping[str, Any]) -> Model:
    return Model(run_s=1e-5 if plan["use_io_binding"] else 2e-5)


@pytest.fixture
def scheduler(tmp_path: Path, acquainted: Path) -> Iterator[Scheduler]:
    """A queue on a store that knows the models."""
    shutil.copytree(acquainted, tmp_path / "home")
    one = Scheduler(Store(tmp_path / "home" / STORE_NAME), owner="tester")
    yield one
    one.close()


def prepared(scheduler: Scheduler, model: Path, start: Mapping[str, Any], **asked: Any) -> search.Prepared:
    question = question_from_dict({"budget_s": BUDGET_S, **asked})
    spec = spec_from_dict({"model": {"path": str(model)}, **start})
    return search.prepare(spec, question, scheduler.store, run_job, scheduler.environment())


def searched(
    scheduler: Scheduler, model: Path, start: Mapping[str, Any] | None = None, **asked: Any
) -> tuple[Mapping[str, Any], list[Evaluation]]:
    """The answer of a search, and all evaluated configurations; `start` has parts of its spec."""
    name = scheduler.submit(search.job(prepared(scheduler, model, start or {}, **asked)))
    scheduler.join()
    found = scheduler.store.study(name)
    assert found.state == "COMPLETE", found.error
    assert found.answer is not None
    return found.answer, [evaluation_from_dict(one) for one in found.tried]


def planned(monkeypatch: pytest.MonkeyPatch, *stages: Stage) -> None:
    """Run these stages of a search, each with all configurations that its strategy proposes."""
    left = list(stages)

    def following(known: PlanState, strategy: Strategy) -> Step | None:
        if not left:
            return None
        stage, everybody = left.pop(0), len(known.space.choices)
        choices = known.rivals or list(known.tried) or strategy(known, everybody)
        return Step(stage=stage, choices=choices, budget_s=20, why=stage, ranks=stage == "heat")

    monkeypatch.setattr(running, "next_step", following)


def check(answer: Mapping[str, Any], tried: list[Evaluation], setting: str, value: Any, words: str) -> None:
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


def test_a_real_crash_is_marked_and_the_search_goes_on_with_one_fork_server(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, servers = processes.start_loaded, list[object]()

    def crashing(owner: Any, entry: Any, *args: Any, **how: Any) -> Any:
        worker, reply = start(owner, entry, *args, **how)
        if "arena off" in entry.label:
            os.kill(worker.pid, signal.SIGSEGV)
        return worker, reply

    monkeypatch.setattr(processes, "start_loaded", crashing)

    def counting(*args: Any) -> Any:
        servers.append(args)
        return fork_server(*args)

    monkeypatch.setattr(contestant_workers, "_ForkServer", counting)
    planned(monkeypatch, "screen", "confirm")
    answer, tried = searched(scheduler, square, {"protocol": {"runs": 60}}, vary=FOUR)
    check(answer, tried, "enable_cpu_mem_arena", False, "SIGSEGV")
    assert len(servers) == 1  # of both comparisons


def hangs(rows: int) -> Model:
    return Model(load_s=0.1 if rows < 4 else 10 * BUDGET_S)


def needs_memory(rows: int) -> Model:
    return Model(load_s=0.1, load_error="" if rows < 4 else "out of memory")


@pytest.mark.parametrize(
    ("model_of", "words"),
    [(hangs, f"{running.SCREENING_TIMEOUT_SHARE * BUDGET_S:g} s"), (needs_memory, "out of memory")],
)
def test_a_size_that_fails_is_marked_and_the_search_goes_on(
    scheduler: Scheduler, mlp: str, model_of: Callable[[int], Model], words: str
) -> None:
    vary = {"batch_size": [1, 2, 4], "use_io_binding": [False, True]}
    with simulated_clock.machine(lambda label, plan: model_of(plan["feeds"]["batch_size"])):
        answer, tried = searched(scheduler, Path(mlp), vary=vary, objective={"throughput": 1.0})
    check(answer, tried, "batch_size", 4, words)


@pytest.mark.parametrize(
    ("stage", "blocks"),  # that its processes run before
    [
        *(("screen", blocks) for blocks in (0, 1, 9)),
        *(("heat", blocks) for blocks in (0, 9, 40)),
        *(("confirm", blocks) for blocks in (0, 1, 9, 40)),
    ],
)
def test_a_cancel_in_any_stage_keeps_what_was_tried_before(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch, stage: str, blocks: int
) -> None:
    do, block = running.Search._do, simulated_clock.Worker.block
    reached, run = list[str](), list[str]()

    def noted(self: running.Search, step: Step) -> None:
        reached.append(step.stage)
        if step.stage == stage and not blocks:
            self.service.cancel.set()
        do(self, step)

    def cancelling(self: simulated_clock.Worker, **how: Any) -> Any:
        if reached[-1] == stage:
            run.append(self.label)
            if len(run) == blocks:
                self.workers.cancel.set()
        return block(self, **how)

    monkeypatch.setattr(running.Search, "_do", noted)
    monkeypatch.setattr(simulated_clock.Worker, "block", cancelling)
    planned(monkeypatch, "screen", "heat", "confirm")
    store = scheduler.store
    with simulated_clock.machine():
        name = scheduler.submit(search.job(prepared(scheduler, square, {}, vary=FOUR, warm_start=False)))
        assert scheduler.join(WAIT_S)
    found = store.study(name)
    assert reached[-1] == stage
    assert found.state == "CANCELLED", found.error
    assert found.answer is None
    assert len(found.tried) == (0 if stage == "screen" else 3)
    again = search.continue_search(store, name, run_job, scheduler.environment())  # from where it was
    assert len(again.record.tried) == len(found.tried)


@pytest.mark.parametrize("extend", [False, True])
def test_a_first_process_that_shows_that_no_screening_fits_ends_the_search_or_extends_it(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch, extend: bool
) -> None:
    checked = list[int]()

    def too_slow(quickest_s: float, left: int, **more: float) -> None:
        checked.append(left)
        if len(checked) == 1:
            raise BudgetError("Too slow.")

    monkeypatch.setattr(launches, "check_starts", too_slow)
    planned(monkeypatch, "screen", "screen", "confirm")
    question = question_from_dict(
        {"budget_s": 12, "vary": {"use_io_binding": [False, True]}, "extend": extend}
    )
    spec = spec_from_dict({"model": {"path": str(square)}})
    prepared = search.prepare(spec, question, scheduler.store, run_job, scheduler.environment())
    with simulated_clock.machine():
        name = scheduler.submit(search.job(prepared))
        assert scheduler.join(WAIT_S)
    found = scheduler.store.study(name)
    assert checked[0] == 2  # one of three processes had been started
    if extend:
        assert found.state == "COMPLETE", found.error
        assert len(found.tried) == 1
        return
    assert len(checked) == 1
    assert found.error is not None
    assert found.error["type"] == "BudgetError"
    assert "extend" in found.error["hint"]


def test_after_an_answer_that_is_left_open_the_next_best_is_confirmed(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def open_at_first(candidates: Any, *others: Any, **more: Any) -> Any:
        asked.append(candidates[0]["comparison"])
        return ("FOUND" if len(asked) > 1 else "UNDECIDED"), candidates[0]

    monkeypatch.setattr(answers, "outcome", open_at_first)
    with simulated_clock.machine(binding_pays):
        answer, _ = searched(scheduler, square, vary=FOUR)
    assert len(set(asked)) == 2
    assert answer["outcome"] == "FOUND"
    assert answer["winner"]["comparison"] == asked[1]
    assert [one["comparison"] for one in answer["others"]] == asked[:1]


def test_a_search_that_starts_elsewhere_knows_the_default_among_its_configurations(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, "screen", "confirm")
    bound, without = {"use_io_binding": True}, {"enable_cpu_mem_arena": False}
    start = {"session": without, "workload": bound, "protocol": {"runs": 60}}
    with simulated_clock.machine(binding_pays):
        answer, tried = searched(scheduler, square, start, vary=FOUR)
    assert answer["default"] is not None
    assert "use_io_binding" not in answer["default"]["spec"].get("workload", {})  # it is never bound
    assert len(tried) == 3  # the default is everybody's reference anyway
    [kept] = scheduler.store.studies()
    told = [one["changes"] for one in trials_of(kept)]  # as differences from the default
    assert all(one in told for one in (bound, without, bound | without)), told
