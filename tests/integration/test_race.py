"""Races with real workers: what is recorded, who is frozen, who fails, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from core import race as races
from core import wire
from core.contrast import PRECISIONS, Precision
from core.errors import Cancelled, TunerError
from core.plan import feed_plan, reference_plan, session_plan
from core.race import blocks, race, self_test
from core.race.record import Entry, RaceRecord, Reference, Settings
from core.race.workers import Worker, Workers
from core.runner import ROOT, run_job
from core.spec import WorkloadSpec, session_from_dict
from tests import tiny_models

SHORT = Precision(name="quick", target=0.5, budget_s=20, looks=(5, 8))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No process of a race outlives it, stopped or not."""
    yield
    deadline = time.monotonic() + 5
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [process.cmdline() for process in left] == []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.conv(tmp_path_factory.mktemp("race") / "conv.onnx")


@pytest.fixture(scope="module")
def info(model: Path) -> wire.ModelInfo:
    return run_job("inspect", {"path": str(model)})  # type: ignore[return-value]


@pytest.fixture
def entry(model: Path, info: wire.ModelInfo) -> Callable[..., Entry]:
    def make(label: str = "default", *, batch_size: int = 1, shapes: bool = False, **session: Any) -> Entry:
        feeds = feed_plan(WorkloadSpec(batch_size=batch_size), info)
        plan: wire.ContestantPlan = {
            "engine": "onnxruntime",
            "model_path": str(model),
            "torch": None,
            "session": session_plan(session_from_dict(session)),
            "feeds": feeds,
            "use_io_binding": False,
            "warmup_runs": None,
            "cpus": [],
        }
        other = (feed_plan(WorkloadSpec(batch_size=7), info),) if shapes else ()
        known = Reference(model="conv", sha256="ab", plan=reference_plan(str(model), info, feeds, cpus=""))
        return Entry(label=label, plan=plan, shapes=other, reference=known)

    return make


def settings(**changes: Any) -> Settings:
    given = {
        "precision": SHORT,
        "budget_s": 20.0,
        "margin": 0.02,
        "seed": 1,
        "timeout_s": 60.0,
        "baseline": 0,
        "anchor": 0,
    }
    return Settings(**(given | changes))


def run(entries: list[Entry], asked: Settings, **given: Any) -> RaceRecord:
    given = {
        "cancel": threading.Event(),
        "on_progress": lambda progress: None,
        "on_live": lambda live: None,
    } | given
    return race(entries, asked, **given)


class TestRecord:
    def test_a_duel_holds_every_block_of_both_in_interleaved_rounds(self, entry: Any) -> None:
        record = run([entry(), entry("one thread", intra_op_num_threads=1)], settings())
        assert [ran.error for ran in record.ran] == [None, None]
        rounds = len(record.orders)
        assert rounds >= SHORT.looks[0]
        assert [sorted(order) for order in record.orders] == [[0, 1]] * rounds
        assert [block.contestant for block in record.blocks] == [i for order in record.orders for i in order]
        assert all(len(block.latencies_s) >= blocks.RUNS_PER_BLOCK for block in record.blocks)
        starts = [block.at_s for block in record.blocks]
        assert starts == sorted(starts)
        assert starts[0] == 0.0
        ends = [block.at_s + sum(block.latencies_s) for block in record.blocks]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False)), "blocks overlap"
        assert record.frozen

    def test_the_order_is_drawn_anew_and_follows_the_seed(self, entry: Any) -> None:
        two = [entry(), entry("one thread", intra_op_num_threads=1)]
        first, again, other = (run(two, settings(seed=seed, runs=200)) for seed in (1, 1, 2))
        assert first.orders == again.orders
        assert first.orders != other.orders
        assert len(set(map(tuple, first.orders))) == 2

    def test_self_tests_cost_memory_outputs_and_new_shapes_are_found_apart(self, entry: Any) -> None:
        record = run(
            [entry(), entry("basic", graph_optimization_level="ORT_ENABLE_BASIC", shapes=True)], settings()
        )
        assert [test.when for test in record.self_tests] == ["before", "after"]
        assert all(len(test.log_ratios) == races.SELF_TEST_ROUNDS for test in record.self_tests)
        for ran in record.ran:
            assert ran.load is not None
            assert ran.warm is not None
            assert ran.cost is not None
            assert ran.footprint is not None
            assert ran.cost["cpu_s_per_run"] > 0
            assert ran.footprint["run_peak_rss_bytes"] >= ran.load_peak_rss_bytes > 0  # type: ignore[operator]
        for ran in record.ran:
            assert ran.output_error is not None
            assert ran.output_error["max_rel"] is not None
            assert ran.output_error["max_rel"] < 1e-4
        assert [shape["batch_size"] for shape in record.ran[1].shapes] == [7]

    def test_an_exact_number_of_runs_is_exact(self, entry: Any) -> None:
        record = run([entry(), entry("one thread", intra_op_num_threads=1)], settings(runs=33))
        for index in (0, 1):
            made = [len(block.latencies_s) for block in record.blocks if block.contestant == index]
            assert sum(made) == 33
            assert max(made) - min(made) <= 1

    def test_one_alone_still_has_rounds_and_a_self_test(self, entry: Any) -> None:
        record = run([entry()], settings())
        assert len(record.orders) >= SHORT.looks[0]
        assert record.self_tests
        assert record.groups == [[0]]


class TestReferences:
    def test_one_worker_says_what_is_right_for_all_who_are_fed_the_same_and_leaves(
        self, entry: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[str] = []
        start = Workers.start

        def remember(self: Workers, label: str, *, fresh_process: bool = False) -> Worker:
            started.append(label)
            return start(self, label, fresh_process=fresh_process)

        monkeypatch.setattr(Workers, "start", remember)
        three = [entry(), entry("one thread", intra_op_num_threads=1), entry("more rows", batch_size=3)]
        record = run(three, settings(runs=20))
        assert started.count("the reference of conv") == 2
        errors = [ran.output_error for ran in record.ran]
        assert all(one is not None and one["difference"] == "" for one in errors)
        assert [one and one["rows"] for one in errors] == [1, 1, 3]

    def test_outputs_of_another_model_are_as_wrong_as_they_are(self, entry: Any, tmp_path: Path) -> None:
        other = entry("another model")
        other.plan["model_path"] = str(tiny_models.conv(tmp_path / "other.onnx", seed=9))
        record = run([entry(), other], settings(runs=20))
        right, wrong = (ran.output_error for ran in record.ran)
        assert right is not None
        assert wrong is not None
        assert right["max_rel"] < 1e-4 < 1e-2 < wrong["max_rel"]  # type: ignore[operator]
        assert wrong["mean_abs"] > 0  # type: ignore[operator]

    def test_a_reference_that_does_not_load_costs_a_note(self, entry: Any) -> None:
        lost = entry("lost")
        lost.reference.plan["model_path"] = "/nowhere.onnx"
        record = run([entry(), lost], settings(runs=20))
        assert record.ran[0].output_error is not None
        assert record.ran[1].output_error is None
        assert record.ran[1].error is None
        assert record.ran[1].not_compared.startswith("The outputs were not compared: ")
        assert record.ran[1].not_compared in record.ran[1].notes

    def test_a_reference_that_is_killed_costs_a_note_for_each(
        self, entry: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = Worker.ask

        def killed(self: Worker, command: str, arguments: Any, *, timeout_s: float) -> Any:
            if command == "compare_outputs":
                os.kill(self.pid, signal.SIGKILL)
            return ask(self, command, arguments, timeout_s=timeout_s)

        monkeypatch.setattr(Worker, "ask", killed)
        record = run([entry(), entry("same")], settings(runs=20))
        assert all("SIGKILL" in ran.not_compared for ran in record.ran)
        assert all(ran.error is None for ran in record.ran)

    def test_who_has_no_reference_is_not_compared(self, entry: Any) -> None:
        record = run([replace(entry(), reference=None), entry("same")], settings(runs=20))
        assert record.ran[0].output_error is None
        assert record.ran[1].output_error is not None


class TestStop:
    def test_the_budget_ends_a_race_that_is_not_decided(self, entry: Any) -> None:
        impossible = Precision(name="publish", target=1e-9, budget_s=1, looks=(5, 100_000))
        began = time.monotonic()
        record = run([entry(), entry("same")], settings(precision=impossible, budget_s=1.0))
        assert record.outcome == "budget"
        assert time.monotonic() - began < 60
        assert len(record.orders) < 100_000

    def test_live_reports_tell_rounds_and_intervals(self, entry: Any) -> None:
        told: list[dict[str, Any]] = []
        asked = settings(precision=PRECISIONS["quick"])
        run([entry(), entry("one thread", intra_op_num_threads=1)], asked, on_live=told.append)
        assert told
        last = told[-1]
        assert last["rounds"] > 0
        assert last["predicted_rounds"] >= last["rounds"]
        (one,) = last["contrasts"]
        assert (one["candidate"], one["baseline"], one["label"]) == (1, 0, "one thread")
        assert one["ratio"] > 0

    def test_cancelled_before_the_rounds_there_is_nothing(self, entry: Any) -> None:
        cancel = threading.Event()
        with pytest.raises(Cancelled):
            run(
                [entry(), entry("same")], settings(), cancel=cancel, on_progress=lambda progress: cancel.set()
            )

    def test_cancelled_in_the_rounds_keeps_the_rounds(self, entry: Any) -> None:
        cancel = threading.Event()
        endless = Precision(name="publish", target=1e-9, budget_s=600, looks=(5, 100_000))

        def stop(live: dict[str, Any]) -> None:
            if live["rounds"] >= 2:
                cancel.set()

        asked = settings(precision=endless, budget_s=600.0)
        record = run([entry(), entry("same")], asked, cancel=cancel, on_live=stop)
        assert record.outcome == "cancelled"
        assert len(record.orders) >= 2


class TestFreezing:
    def test_only_one_worker_ever_runs(self, entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """While one is asked for a block, every other contestant is stopped."""
        stopped: list[list[bool]] = []
        live: list[Worker] = []
        ask = Worker.ask

        def watched(self: Worker, command: str, arguments: Any, *, timeout_s: float) -> Any:
            if self not in live:
                live.append(self)
            if command == "block":
                others = [one.pid for one in live if one is not self and one.alive]
                stopped.append([psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in others])
            return ask(self, command, arguments, timeout_s=timeout_s)

        monkeypatch.setattr(Worker, "ask", watched)
        run([entry(), entry("one thread", intra_op_num_threads=1), entry("same")], settings())
        assert stopped
        assert all(len(others) == 3 for others in stopped)  # two contestants and the twin
        assert all(all(others) for others in stopped)

    def test_a_worker_that_cannot_be_frozen_is_said(
        self, entry: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Worker, "freeze", lambda self: False)
        monkeypatch.setattr(blocks, "SETTLE_S", 0.0)
        record = run([entry(), entry("same")], settings())
        assert not record.frozen
        assert not any(test.frozen for test in record.self_tests)
        assert len(record.orders) >= SHORT.looks[0]

    def test_a_frozen_worker_can_be_killed(self, entry: Any) -> None:
        with Workers(threading.Event()) as workers:
            worker = workers.start("one")
            worker.ask("load", entry().plan, timeout_s=60)
            assert worker.freeze()
            worker.kill()
            assert not psutil.pid_exists(worker.pid)


class TestFailures:
    def test_a_contestant_that_cannot_load_is_out_and_the_others_go_on(self, entry: Any) -> None:
        broken = entry("broken")
        broken.plan["model_path"] = "/nowhere.onnx"
        record = run([entry(), broken, entry("same")], settings())
        assert isinstance(record.ran[1].error, TunerError)
        assert [sorted(order) for order in record.orders][-1] == [0, 2]

    @pytest.mark.parametrize("victim", [0, 1])
    def test_a_crash_in_the_rounds_ends_one_side_only(
        self, entry: Any, victim: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pids: list[int] = []
        start = Workers.start

        def remember(self: Workers, label: str, *, fresh_process: bool = False) -> Worker:
            worker = start(self, label, fresh_process=fresh_process)
            pids.append(worker.pid)
            return worker

        def kill(live: dict[str, Any]) -> None:
            if live["rounds"] >= 1 and pids[victim * 2] > 0:  # anchor, twin, candidate
                os.kill(pids[victim * 2], signal.SIGKILL)
                pids[victim * 2] = 0

        monkeypatch.setattr(Workers, "start", remember)
        monkeypatch.setattr(races, "REPORT_S", 0.0)
        asked = settings(precision=PRECISIONS["quick"])
        record = run([entry(), entry("one thread", intra_op_num_threads=1)], asked, on_live=kill)
        dead, alive = record.ran[victim], record.ran[1 - victim]
        assert alive.error is None
        assert dead.error is not None
        assert "SIGKILL" in dead.error.message
        survivor = [block for block in record.blocks if block.contestant == 1 - victim]
        assert len(survivor) > len([block for block in record.blocks if block.contestant == victim])

    def test_a_disturbed_round_is_kept_apart_and_made_again(
        self, entry: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[int] = []

        def sometimes(block: Any) -> str:
            calls.append(block.round)
            return "the machine slept for 3 s" if block.round == 2 else ""

        monkeypatch.setattr(races, "void_reason", sometimes)
        record = run([entry(), entry("same")], settings(runs=80))
        assert [one.reason for one in record.discarded] == ["the machine slept for 3 s"]
        assert {block.round for block in record.discarded[0].blocks} == {2}
        assert all(block.round != 2 for block in record.blocks)
        assert len(record.orders) == 8

    def test_a_machine_that_is_always_disturbed_ends_the_race(
        self, entry: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(races, "void_reason", lambda block: "the machine slept")
        monkeypatch.setattr(races, "DISCARD_PAUSE_S", 0.0)
        record = run([entry(), entry("same")], settings())
        assert record.outcome == "disturbed"
        assert record.blocks == []

    def test_more_than_memory_holds_is_raced_in_groups_with_the_anchor(
        self, entry: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(races, "available_memory", lambda: 0)
        three = [entry(), entry("a", intra_op_num_threads=1), entry("b")]
        record = run(three, settings())
        assert record.groups == [[0, 1], [0, 2]]
        assert {tuple(sorted(order)) for order in record.orders} == {(0, 1), (0, 2)}
        assert all(ran.error is None for ran in record.ran)


class TestSelfTest:
    def test_two_processes_of_the_same(self, entry: Any) -> None:
        told: list[int] = []
        test = self_test(
            entry(), rounds=15, cancel=threading.Event(), on_progress=lambda one: told.append(one.done)
        )
        assert test.when == "alone"
        assert len(test.log_ratios) == 15
        assert len(test.counters) == 30
        assert test.seconds_per_round > 0
        assert told


class TestNothingStaysBehind:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_whoever_raced_is_gone_and_so_are_the_frozen(
        self, number: signal.Signals, model: Path, tmp_path: Path
    ) -> None:
        """Killed in the rounds, without a chance to clean up: the kernel and the fork server do it."""
        script = tmp_path / "endless.py"
        script.write_text(ENDLESS)
        command = [sys.executable, "-P", str(script), str(model)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"racing\n"
            family = psutil.Process(process.pid).children(recursive=True)
            assert psutil.STATUS_STOPPED in [one.status() for one in family]
            process.send_signal(number)
            process.wait(10)
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []


ENDLESS = """
import sys, threading
from core.contrast import Precision
from core.plan import feed_plan, session_plan
from core.race import race
from core.race.record import Entry, Settings
from core.runner import ROOT, run_job
from core.spec import WorkloadSpec, session_from_dict

info = run_job("inspect", {"path": sys.argv[1]})
plan = {
    "engine": "onnxruntime", "model_path": sys.argv[1], "torch": None,
    "session": session_plan(session_from_dict({})), "feeds": feed_plan(WorkloadSpec(), info),
    "use_io_binding": False, "warmup_runs": None, "cpus": [],
}
endless = Precision(name="publish", target=1e-9, budget_s=600, looks=(100_000,))
told = []

def live(now):
    if now["rounds"] and not told:
        told.append(1)
        print("racing", flush=True)

race(
    [Entry(label=name, plan=plan) for name in "abc"],
    Settings(precision=endless, budget_s=600, margin=0.02, seed=0, timeout_s=60, baseline=0, anchor=0),
    cancel=threading.Event(), on_progress=lambda one: None, on_live=live,
)
"""
