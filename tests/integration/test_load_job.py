"""Whole load tests as jobs: questions, kept results, failures and cancels. Real processes, short runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.evidence.comparison import Configuration
from core.evidence.load import limit_search
from core.evidence.load.load_types import LoadResult, RawRun
from core.evidence.measurement import Trial
from core.run import job_types
from core.run import scheduler as scheduler_module
from core.run.job import FINISHED, Ending, Job, Outcome, Service
from core.run.load import questions
from core.run.scheduler import Scheduler
from core.spec import spec_from_dict
from core.spec.load import load_from_dict
from core.store import Actor
from tests import tiny_models


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine of a test is quiet, so only what is run and kept is tested, not how long or how well."""
    monkeypatch.setattr(questions, "CAPACITY_S", 0.3)
    monkeypatch.setattr(questions, "CAPACITY_WARMUP_S", 0.1)
    monkeypatch.setattr(questions, "SERVICE_TIMES_S", 0.6)
    monkeypatch.setattr(limit_search, "LEAST_S", 0.5)
    monkeypatch.setattr(limit_search, "MOST_PROBES", 2)
    monkeypatch.setattr(questions.LoadSpec, "warmup_s", property(lambda _: 0.2))


def configuration(model: Path, label: str = "own", **parts: Any) -> Configuration:
    return Configuration(spec=spec_from_dict({"model": {"path": str(model)}, **parts}), label=label)


def run(
    scheduler: Scheduler,
    configurations: Sequence[Configuration],
    during: Callable[[str], None] = lambda _: None,
    **asked: Any,
) -> tuple[Trial, LoadResult]:
    """Run a load test to its end, and return its trial with its result."""
    job = scheduler.submit(job_types.load(configurations, load_from_dict(asked)))
    until = time.monotonic() + 120
    while (status := scheduler.status(job)) is not None and status.state not in FINISHED:
        assert time.monotonic() < until
        during(job)
        time.sleep(0.02)
    trial = scheduler.store.trial(job)
    assert trial.result is not None, trial.error
    found: Any = trial.result["load"]
    return trial, found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.mlp(tmp_path / "m.onnx")


def test_configurations_take_turns_at_every_rate(scheduler: Scheduler, model: Path) -> None:
    both = [configuration(model, "one"), configuration(model, "two", session={"intra_op_num_threads": 1})]
    trial, found = run(scheduler, both, rates=[100, 200], duration_s=1.0, turns=2, limits=["p99<=50ms"])
    assert trial.kind == "load"
    assert trial.state == "COMPLETE"
    assert len(found["runs"]) == 8
    assert {(one["configuration"], one["rate_per_s"]) for one in found["points"]} == {
        (index, rate) for index in (0, 1) for rate in (100.0, 200.0)
    }
    assert all(len(point["runs"]) == 2 and point["fresh"] for point in found["points"])
    assert found["verdict"] in ("PASS", "FAIL", "UNDECIDED")
    assert found["question"]["rates"] == [100, 200]
    assert [one["label"] for one in found["configurations"]] == ["one", "two"]
    turns = [(one["turn"], one["rate_per_s"]) for one in found["runs"] if one["configuration"] == 0]
    assert len(set(turns)) == 4


@pytest.mark.parametrize(
    "asked",
    [
        {"rates": [100, 200], "turns": 2},
        {"question": "limit", "limits": ["p99<=50ms"], "budget_s": 5.0},
        {"question": "together", "rates": [50, 50], "turns": 2},
    ],
    ids=lambda asked: asked.get("question", "traffic"),
)
def test_others_measure_between_the_runs_of_a_load_test_but_not_between_those_of_a_pair(
    scheduler: Scheduler, model: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr(scheduler_module, "MOST_TURN_S", 0.0)
    log, others, serve = list[Any](), list[str](), questions.serve

    def logged(workers: Any, what: Any, *more: Any) -> Any:
        log.append([schedule.rate for _, schedule in what])
        return serve(workers, what, *more)

    def other(service: Service) -> Outcome:
        log.append("other")
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    def during(job: str) -> None:
        if log and not others:
            ben = Actor("ben@example.org", sees_all=False)
            others.append(scheduler.submit(Job(kind="export", what="other", work=other), actor=ben))

    monkeypatch.setattr(questions, "serve", logged)
    both = [configuration(model, "one"), configuration(model, "two")]
    number = 1 if asked.get("question") == "limit" else 2
    trial, _ = run(scheduler, both[:number], during, duration_s=1.0, **asked)
    assert trial.state == "COMPLETE"
    place = log.index("other")
    assert 0 < place < len(log) - 1
    if "rates" in asked:
        per_turn = 3 if "question" in asked else 2
        assert place % per_turn == 0
    if asked.get("rates") == [100, 200]:
        log.remove("other")
        assert log[::2] == log[1::2]  # runs of one rate follow each other


def test_the_runs_of_a_turn_have_the_same_arrivals(scheduler: Scheduler, model: Path) -> None:
    both = [configuration(model, "one"), configuration(model, "two")]
    trial, found = run(scheduler, both, rates=[200], duration_s=1.0, turns=2)
    raw: Any = trial.facts["requests"]
    by_turn: dict[int, list[list[int]]] = {}
    for one in raw:
        by_turn.setdefault(found["runs"][one["run"]]["turn"], []).append(one["at_ns"])
    assert all(first == second for first, second in by_turn.values())
    assert by_turn[0][0] != by_turn[1][0]
    assert all(end >= at for one in raw for at, end in zip(one["at_ns"], one["end_ns"], strict=True) if end)


def test_the_highest_rate_is_confirmed_or_said_to_be_open(scheduler: Scheduler, model: Path) -> None:
    _, found = run(scheduler, [configuration(model)], question="limit", limits=["p90<=200ms"], budget_s=5.0)
    (highest,) = found["highest"]
    assert highest["capacity_per_s"] > 0
    assert highest["words"] == found["words"]
    fresh = [one for one in found["points"] if one["fresh"]]
    if highest["confirmed_per_s"] is not None:
        assert any(
            one["rate_per_s"] == highest["confirmed_per_s"] and one["verdict"] == "PASS" for one in fresh
        )


def test_a_call_longer_than_the_limit_is_said_at_once(scheduler: Scheduler, tmp_path: Path) -> None:
    slow = tiny_models.steady(tmp_path / "slow.onnx", trips=40_000)
    _, found = run(scheduler, [configuration(slow)], question="limit", limits=["p99<=0.1ms"])
    assert found["verdict"] == "FAIL"
    assert "half of the calls alone take longer" in found["words"]
    assert not found["points"]


def test_batching_is_run_for_real_or_said_to_be_useless(scheduler: Scheduler, model: Path) -> None:
    _, found = run(
        scheduler,
        [configuration(model)],
        question="batching",
        rates=[300],
        limits=["p99<=50ms"],
        duration_s=1.0,
        turns=1,
    )
    batching = found["batching"]
    assert batching is not None
    assert next(one["samples"] for one in batching["service_times"]) == 1
    assert batching["words"] == found["words"]
    if not batching["helps"]:
        assert "cannot help" in batching["words"]
        return
    ran = [one for one in batching["trials"] if one["point"] is not None]
    assert 1 <= len(ran) <= 3
    calls = [
        max(map(int, found["runs"][found["points"][one["point"]]["runs"][0]]["batches"]))
        for one in ran
        if one["point"] is not None
    ]
    assert all(most <= one["max_batch_size"] for most, one in zip(calls, ran, strict=True))


def test_models_serve_alone_and_together(scheduler: Scheduler, model: Path, tmp_path: Path) -> None:
    other = tiny_models.conv(tmp_path / "c.onnx")
    both = [configuration(model, "classifier"), configuration(other, "detector")]
    _, found = run(scheduler, both, question="together", rates=[100, 50], duration_s=1.0, turns=1)
    assert sorted(map(len, (one["beside"] for one in found["runs"]))) == [0, 0, 1, 1]
    assert {(one["configuration"], one["p"]) for one in found["together"]} == {
        (index, p) for index in (0, 1) for p in (0.5, 0.99)
    }
    beside = [one for one in found["runs"] if one["beside"]]
    assert all(one["harness"] is None for one in beside)  # the other model is no delay of the harness


def test_its_own_dynamic_batching_is_used(scheduler: Scheduler, model: Path) -> None:
    batching = {"max_batch_size": 8, "max_queue_delay_microseconds": 20_000}
    own = configuration(model, dynamic_batching=batching)
    _, found = run(scheduler, [own], rates=[500], duration_s=1.0, rows={"1": 1})
    assert max(map(int, found["runs"][0]["batches"])) > 1


def test_a_configuration_that_cannot_serve_does_not_stop_the_others(
    scheduler: Scheduler, model: Path, tmp_path: Path
) -> None:
    heavy = tiny_models.huge_memory(tmp_path / "huge.onnx")
    both = [configuration(model, "good"), configuration(heavy, "bad")]
    trial, found = run(scheduler, both, rates=[100], duration_s=1.0, turns=1)
    assert trial.state == "COMPLETE"
    good, bad = found["configurations"]
    assert not good["error"]
    assert bad["error"]
    assert [one["configuration"] for one in found["points"]] == [0]


def test_a_cancel_keeps_the_runs_so_far(scheduler: Scheduler, model: Path) -> None:
    def cancel(job: str) -> None:
        status = scheduler.status(job)
        live: Any = status.live if status is not None else None
        if live and live["load"]["p50_s"] is not None:  # a request after the warm-up is served
            scheduler.cancel(job)

    trial, found = run(scheduler, [configuration(model)], cancel, rates=[100], duration_s=60.0)
    assert trial.state == "CANCELLED"
    assert found["runs"][0]["outcome"] == "cancelled"
    assert found["runs"][0]["completed"] > 0
    assert found["points"]


def served_after_warm_up(one: RawRun) -> bool:
    warm_ns = 1e9 * one.warmup_s
    return any(end > 0 and at >= warm_ns for at, end in zip(one.arrivals.at_ns, one.end_ns, strict=True))


def test_a_worker_that_dies_under_load_fails_the_test_and_keeps_its_requests(
    scheduler: Scheduler, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, killed = questions.serve, threading.Event()

    def watched(workers: Any, what: Any, on_course: Any, *others: Any) -> Any:
        def kill(runs: Sequence[RawRun], elapsed_s: float) -> None:
            if served_after_warm_up(runs[0]) and not killed.is_set():
                killed.set()
                for pid in list(workers._live):
                    os.kill(pid, signal.SIGKILL)
            on_course(runs, elapsed_s)

        return serve(workers, what, kill, *others)

    monkeypatch.setattr(questions, "serve", watched)
    trial, found = run(scheduler, [configuration(model)], rates=[100], duration_s=60.0)
    assert killed.is_set()
    assert trial.state == "FAIL"
    assert trial.error is not None
    assert "requests" in trial.error["message"]
    assert found["runs"][0]["outcome"] == "failed"
    assert found["runs"][0]["completed"] > 0


def test_too_many_requests_are_not_kept_but_counted(
    scheduler: Scheduler, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.run import load

    monkeypatch.setattr(load, "MOST_KEPT", 10)
    trial, found = run(scheduler, [configuration(model)], rates=[100], duration_s=1.0)
    assert trial.facts["requests"] == []
    assert any("are not kept" in note for note in trial.facts["notes"])
    assert found["runs"][0]["requests"] > 10
