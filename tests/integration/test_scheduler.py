"""The queue of trials: with an invented runner where only the order matters, with real workers otherwise."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.evidence.comparison import DEFAULT_LABEL, Comparison, Configuration
from core.process.job_worker import Progress, run_job
from core.process.machine_queue import MachineQueue
from core.run import comparison as comparison_run
from core.run import job_log, job_types
from core.run import scheduler as scheduler_module
from core.run.job import FINISHED, Ending, Job, Outcome
from core.run.profiling import placement
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, spec_from_dict
from core.store import Store, library
from core.wire.catalog import RANDOM_WEIGHTS_NOTE
from core.wire.errors import Cancelled, SpecError, StoreError, WorkerError
from tests import raw_comparisons, simulated_clock, tiny_models
from tests.simulated_clock import Model
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.usefixtures("jobs_at_once")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch, acquainted):
    shutil.copytree(acquainted, tmp_path / "home")
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))


@pytest.fixture
def schedulers():
    opened: list[Scheduler] = []

    def make(**options: Any) -> Scheduler:
        opened.append(Scheduler(Store(), owner="tester", **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert psutil.Process().children(recursive=True) == []


def spec(path: Path, **parts: Any) -> TrialSpec:
    parts.setdefault("protocol", {"warmup_runs": 2, "runs": 20})
    return spec_from_dict({"model": {"path": str(path)}, **parts})


class FakeRun:
    """A runner whose jobs last until they are let go; it remembers what ran and how many at once."""

    def __init__(self, *, free: bool = False) -> None:
        self.go = threading.Event()
        if free:
            self.go.set()
        self.started: list[Any] = []
        self.inside = 0
        self.most = 0

    def __call__(self, job, payload, *, on_progress=None, cancel=None, timeout_s=600.0):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.started.append(payload)
        try:
            while not self.go.wait(0.01):
                if cancel is not None and cancel.is_set():
                    raise Cancelled("stopped")
            return {"answer": payload}
        finally:
            self.inside -= 1


# --- the queue ------------------------------------------------------------------------------------------


def test_jobs_run_one_after_the_other_in_order(schedulers):
    run = FakeRun(free=True)
    one = schedulers(run=run)
    ids = [one.submit(job_types.worker("export", {"n": n}, what=f"job {n}")) for n in range(8)]
    assert one.join(WAIT_S)
    assert [payload["n"] for payload in run.started] == list(range(8))
    assert run.most == 1
    assert [one.status(i).result for i in ids] == [{"answer": {"n": n}} for n in range(8)]
    assert one.active() == []


def test_the_end_of_a_job_ends_the_wait_for_it(schedulers):
    run = FakeRun()
    one = schedulers(run=run)
    first, second = (one.submit(job_types.worker("export", {"n": n}, what=f"job {n}")) for n in range(2))
    assert not one.await_end(first, 0.01)
    assert one.status(first).state not in FINISHED
    one.cancel(second)
    assert one.await_end(second, WAIT_S)
    assert one.status(second).state == "CANCELLED"
    run.go.set()
    assert one.await_end(first, WAIT_S)
    assert one.status(first).state == "COMPLETE"
    assert one.active() == []
    assert not one.await_end("unknown", WAIT_S)


def test_jobs_within_a_job_have_their_own_end_and_are_cancelled_with_it(schedulers):
    """A search measures its comparisons like this: in one turn, each with its own status."""
    run = FakeRun(free=True)
    one = schedulers(run=run)
    endings = []

    def work(service):
        inner = job_types.worker("export", {"n": 1}, what="inner")
        endings.append((inner.id, service.perform(inner).state))
        run.go.clear()
        last = job_types.worker("export", {"n": 2}, what="last")
        endings.append((last.id, service.perform(last).state))
        raise Cancelled("stopped", hint="")

    outer = one.submit(Job(kind="search", what="outer", work=work))
    wait_until(lambda: len(run.started) == 2, "the second job within never began")
    assert [status.what for status in one.active()] == ["outer"]  # the queue knows one job
    assert one.status(outer).stage == "export"  # and how far it is
    one.cancel(outer)
    assert one.join(WAIT_S)
    assert one.status(outer).state == "CANCELLED"
    assert [state for _, state in endings] == ["COMPLETE", "CANCELLED"]
    assert [one.status(name).state for name, _ in endings] == ["COMPLETE", "CANCELLED"]


def test_a_job_within_a_job_that_begins_while_the_queue_closes_is_cancelled(schedulers):
    """A search that is stopped between two comparisons is cancelled; it has not failed."""
    one = schedulers(run=FakeRun())
    begun, endings = threading.Event(), []

    def work(service):
        begun.set()
        assert service.cancel.wait(WAIT_S)
        endings.append(service.perform(job_types.worker("export", {}, what="late")).state)
        raise Cancelled("stopped", hint="")

    outer = one.submit(Job(kind="search", what="outer", work=work))
    assert begun.wait(WAIT_S)
    one.close()
    assert (one.status(outer).state, endings) == ("CANCELLED", ["CANCELLED"])


def test_a_job_that_gives_way_lets_those_who_wait_go_first(schedulers):
    run = FakeRun(free=True)
    one, other = schedulers(run=run), schedulers(run=FakeRun(free=True))
    begun, asked, said = threading.Event(), threading.Event(), []

    def work(service):
        begun.set()
        assert asked.wait(WAIT_S)
        said.append(service.give_way())
        said.append(service.give_way())  # nobody waits any more
        return Outcome(whole=Ending(state="COMPLETE", result={}))

    outer = one.submit(Job(kind="search", what="outer", work=work))
    assert begun.wait(WAIT_S)
    here = one.submit(job_types.worker("export", {}, what="here"))
    elsewhere = other.submit(job_types.worker("export", {}, what="elsewhere"))
    wait_until(lambda: len(one.queue.entries()) == 3, "the other never waited")
    asked.set()
    assert one.join(WAIT_S)
    assert other.join(WAIT_S)
    assert one.status(outer).state == "COMPLETE"
    assert one.status(here).state == other.status(elsewhere).state == "COMPLETE"
    assert said[0] > 0
    assert said[1] == 0
    assert one.queue.entries() == []


def test_status_tells_place_holder_and_progress(schedulers):
    run = FakeRun()
    one = schedulers(run=run)
    first, second, third = (one.submit(job_types.worker("export", {}, what=what)) for what in ("a", "b", "c"))
    wait_until(lambda: run.inside, "the first never began")
    assert [(s.what, s.state, s.place) for s in one.active()] == [
        ("a", "RUNNING", 0),
        ("b", "WAITING", 1),
        ("c", "WAITING", 2),
    ]
    assert one.status(third).holder == "tester: a"
    assert one.status(second).started_at is None
    assert one.status("unknown") is None
    assert not one.join(0.01)
    run.go.set()
    assert one.join(WAIT_S)
    done = one.status(first)
    assert (done.state, done.error, done.place) == ("COMPLETE", None, 0)
    assert done.elapsed_s > 0


def test_time_left_follows_from_the_progress_of_the_stage(schedulers):
    told, seen = threading.Event(), threading.Event()

    def run(job, payload, *, on_progress, cancel, timeout_s):
        on_progress(Progress(stage="warmup", done=9, total=10))
        time.sleep(0.05)
        on_progress(Progress(stage="runs", done=0, total=100))
        told.set()
        assert seen.wait(WAIT_S)
        time.sleep(0.3)
        on_progress(Progress(stage="runs", done=25, total=100, text="25 of 100"))
        cancel.wait(WAIT_S)
        raise Cancelled("stopped")

    one = schedulers(run=run)
    job = one.submit(job_types.worker("measure", {}, what="x"))
    assert told.wait(WAIT_S)
    assert one.status(job).eta_s is None  # nothing done yet: nothing is known
    seen.set()
    wait_until(lambda: one.status(job).done == 25, "no progress")
    status = one.status(job)
    assert (status.stage, status.total, status.text) == ("runs", 100, "25 of 100")
    assert 0.3 * 3 <= status.eta_s <= status.elapsed_s * 3 + 1


def test_cancel_while_waiting_here_never_starts_the_job(schedulers):
    run = FakeRun()
    one = schedulers(run=run)
    one.submit(job_types.worker("export", {"n": 1}, what="a"))
    second = one.submit(job_types.worker("export", {"n": 2}, what="b"))
    wait_until(lambda: run.inside, "the first never began")
    one.cancel(second)
    assert one.status(second).state == "CANCELLED"
    run.go.set()
    assert one.join(WAIT_S)
    assert run.started == [{"n": 1}]
    one.cancel(second)
    one.cancel("unknown")


def test_cancel_while_running_stops_the_job_and_the_next_one_runs(schedulers):
    run = FakeRun()
    one = schedulers(run=run)
    first = one.submit(job_types.worker("export", {"n": 1}, what="a"))
    second = one.submit(job_types.worker("export", {"n": 2}, what="b"))
    wait_until(lambda: run.inside, "the first never began")
    one.cancel(first)
    wait_until(lambda: len(run.started) == 2, "the second never began")
    run.go.set()
    assert one.join(WAIT_S)
    assert (one.status(first).state, one.status(second).state) == ("CANCELLED", "COMPLETE")


def test_cancel_while_the_machine_is_taken_leaves_its_queue(schedulers, square):
    one = schedulers(run=FakeRun(free=True))
    with MachineQueue().turn("somebody", "measure vit"):
        trial = one.submit(job_types.tune(spec(square)))
        wait_until(lambda: one.status(trial).holder, "it never queued")
        status = one.status(trial)
        assert (status.state, status.place, status.holder) == ("WAITING", 1, "somebody: measure vit")
        after = one.submit(job_types.tune(spec(square)))
        assert (one.status(after).place, one.status(after).holder) == (2, "somebody: measure vit")
        one.cancel(trial)
        one.cancel(after)
        assert one.join(WAIT_S)
        assert [entry.what for entry in MachineQueue().entries()] == ["measure vit"]
    assert {one.store.trial(i).state for i in (trial, after)} == {"CANCELLED"}
    assert one.store.trial(trial).error["type"] == "Cancelled"


def test_error_of_one_job_does_not_stop_the_queue(schedulers, caplog):
    def run(job, payload, **_):
        if payload["n"] == 0:
            raise WorkerError("It crashed.", hint="Try again.")
        if payload["n"] == 1:
            raise ZeroDivisionError("a defect")
        return payload

    one = schedulers(run=run)
    ids = [one.submit(job_types.worker("export", {"n": n}, what=str(n))) for n in range(3)]
    assert one.join(WAIT_S)
    crash, defect, fine = (one.status(i) for i in ids)
    assert crash.error == {"type": "WorkerError", "message": "It crashed.", "hint": "Try again."}
    assert defect.state == "FAIL"
    assert "ZeroDivisionError: a defect" in defect.error["message"]
    assert "ZeroDivisionError" in caplog.text
    assert fine.state == "COMPLETE"


def test_close_cancels_what_runs_and_what_waits(schedulers, tmp_path):
    run = FakeRun()
    one = schedulers(run=run)
    tiny_models.mul(tmp_path / "m.onnx")
    trials = [one.submit(job_types.tune(spec(tmp_path / "m.onnx"))) for _ in range(3)]
    wait_until(lambda: run.started, "the first never began")
    one.close()
    assert (len(run.started), run.inside) == (1, 0)
    assert {one.store.trial(i).state for i in trials} == {"CANCELLED"}
    with pytest.raises(WorkerError, match="closed"):
        one.submit(job_types.tune(spec(tmp_path / "m.onnx")))
    assert len(one.store.trials()) == 3


def test_statuses_of_old_jobs_are_forgotten(schedulers, monkeypatch):
    monkeypatch.setattr(scheduler_module, "KEPT", 3)
    one = schedulers(run=FakeRun(free=True))
    ids = [one.submit(job_types.worker("export", {}, what=str(n))) for n in range(6)]
    assert one.join(WAIT_S)
    assert [one.status(i) is None for i in ids] == [True, True, True, False, False, False]


def test_trials_of_dead_processes_are_settled_at_the_start(schedulers, tmp_path):
    code = (
        "import os, sys, threading\nsubmitted = threading.Event()\n"
        "from core.run import job_types\nfrom core.run.scheduler import Scheduler\n"
        "from core.store import Store\n"
        "from core.spec import spec_from_dict\n"
        "def run(*args, **kw):\n    submitted.wait()\n    os._exit(0)\n"
        "s = Scheduler(Store(), owner='doomed', run=run)\n"
        "for i in range(2):\n    s.submit(job_types.tune(spec_from_dict({'model': {'path': sys.argv[1]}})))\n"
        "submitted.set()\ns.join()\n"
    )
    path = tiny_models.mul(tmp_path / "m.onnx")
    subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=WAIT_S,
    )
    assert sorted(one.state for one in Store().trials()) == ["RUNNING", "WAITING"]
    own = schedulers(run=FakeRun())
    running = own.submit(job_types.tune(spec(path)))
    schedulers()  # a second one in this process must not take the first one's trials for orphans
    left = [one for one in own.store.trials() if one.id != running]
    assert [one.state for one in left] == ["FAIL", "FAIL"]
    assert all("interrupted" in one.error["message"] for one in left)
    assert own.store.trial(running).state in ("WAITING", "RUNNING")


def test_trial_of_another_host_is_believed_for_a_day():
    """Two containers may share a store; neither sees the other's processes."""
    elsewhere = "some-other-host/1/1000.0"
    assert job_log.is_owner_alive(elsewhere, time.time() - 3600)
    assert not job_log.is_owner_alive(elsewhere, time.time() - 2 * 86_400)
    assert not job_log.is_owner_alive("", time.time())
    assert not job_log.is_owner_alive(f"{socket.gethostname()}/no/number", time.time())
    assert not job_log.is_owner_alive(f"{socket.gethostname()}/{os.getpid()}/1.0", time.time())


# --- two schedulers, one machine ------------------------------------------------------------------------

MEASURES = """
import sys, time
from core.run import job_types
from core.run.scheduler import Scheduler
from core.store import Store

log = open(sys.argv[1], "a", buffering=1)

def run(job, payload, **_):
    began = time.monotonic()
    time.sleep(0.05)
    log.write(f"{began} {time.monotonic()}\\n")
    return {}

one = Scheduler(Store(), owner=sys.argv[2], run=run)
for number in range(4):
    one.submit(job_types.worker("measure", {}, what=str(number)))
assert one.join(100)
one.close()
"""


def test_two_schedulers_in_two_processes_never_measure_at_once(tmp_path):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", MEASURES, str(tmp_path / "log"), name],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in ("a", "b", "c")
    ]
    assert [worker.wait(WAIT_S) for worker in workers] == [0, 0, 0]
    rows = sorted(tuple(map(float, line.split())) for line in (tmp_path / "log").read_text().splitlines())
    assert len(rows) == 12
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(rows))


# --- comparisons that never ran -------------------------------------------------------------------------


class FakeRace:
    """A comparison with known true ratio; `go` lets it end, a cancel ends it with the rounds it has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, medians_s: Sequence[float], **facts: Any) -> None:
        self.medians_s = medians_s
        self.facts = facts
        self.go = threading.Event()
        self.running = threading.Event()
        self.settings: Any = None
        self.labels: list[str] = []
        self.lost: dict[int, Exception] = {}
        monkeypatch.setattr(comparison_run, "run_launches", self)
        monkeypatch.setattr(comparison_run, "placement", lambda *_: (None, None, []))

    def __call__(self, entries, settings, *, cancel, on_progress, on_live, earlier=None, fork_server=None):
        assert len(entries) == len(self.medians_s)
        self.settings, self.labels = settings, [one.label for one in entries]
        on_progress(Progress(stage="rounds", done=3, total=8))
        contrast = {"candidate": 0, "baseline": settings.baseline, "label": entries[0].label, "ratio": 1.5}
        for elapsed_s, low, high in ((0.1, None, None), (0.2, 1.2, 1.8), (0.3, 1.2, 1.8), (0.4, 1.4, 1.6)):
            on_live(
                {
                    "rounds": 3,
                    "generation": 1,
                    "predicted_rounds": 8,
                    "elapsed_s": elapsed_s,
                    "contrasts": [{**contrast, "ratio_low": low, "ratio_high": high}],
                    "p50_s": {0: 0.002, settings.baseline: 0.003},
                    "rate_per_s": {0: 2000.0, settings.baseline: 1333.0},
                    "rows_fed": {0: 4, settings.baseline: 4},
                }
            )
        self.running.set()
        while not self.go.wait(0.01):
            if cancel.is_set():
                return self.record(outcome="cancelled", generations=1, rounds=3)
        return self.record()

    def record(self, **facts: Any):
        known = {"generations": 4, "rounds": 4, "anchor": self.settings.anchor}
        found = raw_comparisons.record(self.medians_s, **{**known, **self.facts, **facts})
        for index, error in self.lost.items():
            found.ran[index].error = error
        return found


ONE_THREAD = {"session": {"intra_op_num_threads": 1}}


def test_a_tune_run_is_one_job_with_its_references(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002, 0.003])
    one = schedulers()
    asked = spec(square, **ONE_THREAD)
    baseline = Configuration(
        spec=spec(square, session={"enable_cpu_mem_arena": False}), label="no arena", role="baseline"
    )
    trial = one.submit(job_types.tune(asked, baseline=baseline, study="s"))
    assert fake.running.wait(WAIT_S)
    status = one.status(trial)
    assert (status.state, status.kind, status.stage, status.done) == ("RUNNING", "measure", "rounds", 3)
    comparison = one.store.comparison(status.comparison)
    reference, anchor = comparison.contestants[1:]
    assert [(entry.label, entry.role) for entry in (reference, anchor)] == [
        ("no arena", "baseline"),
        (DEFAULT_LABEL, "anchor"),
    ]
    (live,) = status.live["contrasts"]
    assert (live["candidate"], live["baseline"]) == (trial, reference.trial)
    assert status.live["p50_s"] == {trial: 0.002, reference.trial: 0.003}
    # each interval once, when it was known first
    assert status.live["course"] == {trial: [(0.2, 1.5, 1.2, 1.8), (0.4, 1.5, 1.4, 1.6)]}
    assert (status.live["generation"], status.live["rounds"]) == (1, 3)
    assert one.status(comparison.id).kind == "comparison"
    assert [entry.id for entry in one.active()] == [comparison.id]
    assert (fake.settings.baseline, fake.settings.anchor, fake.settings.runs) == (1, 2, 20)
    fake.go.set()
    assert one.join(WAIT_S)
    assert one.status(trial).live is None
    assert [entry.id for entry in one.store.trials()] == [trial]
    stored = one.store.trials_of(comparison.id)
    assert [(entry.kind, entry.state, entry.study) for entry in stored] == [
        ("measure", "COMPLETE", "s"),
        ("reference", "COMPLETE", "s"),
        ("reference", "COMPLETE", "s"),
    ]
    result = one.store.trial(trial).result
    assert {entry["baseline"] for entry in result["contrasts"]} == {reference.trial, anchor.trial}
    assert result["role"] == "candidate"
    ended = one.store.comparison(comparison.id)
    assert (ended.state, ended.model_name, ended.fingerprint) == ("COMPLETE", "m", stored[0].fingerprint)
    assert ended.protocol["seed"] == fake.settings.seed
    assert len(ended.result["contrasts"]) == 4
    assert [entry["when"] for entry in one.store.self_tests(ended.fingerprint)] == ["during"]


def test_equal_requests_are_not_measured_twice(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    fake.go.set()
    one = schedulers()
    first, second = (
        one.submit(
            job_types.tune(
                spec(square, **ONE_THREAD),
                baseline=Configuration(spec=baseline, label="baseline", role="baseline"),
            )
        )
        for baseline in (spec(square, **ONE_THREAD), spec(square))
    )
    assert one.join(WAIT_S)
    for trial, label in ((first, DEFAULT_LABEL), (second, "baseline")):
        comparison = one.store.comparison(one.store.trial(trial).comparison)
        assert [entry.label for entry in comparison.contestants] == ["candidate", label]
        assert comparison.baseline == comparison.contestants[1].trial


def test_a_cancelled_comparison_keeps_the_rounds_that_it_had(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    one = schedulers()
    trial = one.submit(job_types.tune(spec(square, **ONE_THREAD)))
    assert fake.running.wait(WAIT_S)
    one.cancel(trial)
    assert one.join(WAIT_S)
    stored = one.store.trial(trial)
    assert (stored.state, stored.error["type"]) == ("CANCELLED", "Cancelled")
    assert len(stored.result["latencies_s"]) == 3 * raw_comparisons.RUNS
    comparison = one.store.comparison(stored.comparison)
    assert (comparison.state, comparison.result["outcome"], comparison.result["rounds"]) == (
        "CANCELLED",
        "cancelled",
        3,
    )
    assert one.status(trial).state == one.status(comparison.id).state == "CANCELLED"
    assert one.store.find_complete(stored.key, stored.fingerprint) is None


def test_a_cancelled_comparison_in_groups_keeps_the_groups_that_had_ended(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002, 0.003], groups=[[0, 2], [1, 2]])
    one = schedulers()
    asked = [
        Configuration(spec=spec(square, session={"intra_op_num_threads": n}), label=str(n)) for n in (1, 2)
    ]
    comparison = one.submit(job_types.comparison(asked))
    assert fake.running.wait(WAIT_S)
    one.cancel(comparison)
    assert one.join(WAIT_S)
    assert [entry.state for entry in one.store.trials_of(comparison)] == [
        "COMPLETE",
        "CANCELLED",
        "CANCELLED",
    ]


def test_a_contestant_that_crashes_fails_alone(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002, 0.003])
    fake.lost[1] = WorkerError("It crashed.", hint="Try another.")
    fake.go.set()
    one = schedulers()
    asked = [
        Configuration(spec=spec(square, session={"intra_op_num_threads": n}), label=str(n)) for n in (1, 2)
    ]
    comparison = one.submit(job_types.comparison(asked, what="two of them"))
    assert one.join(WAIT_S)
    good, bad, _ = one.store.trials_of(comparison)
    assert (good.state, bad.state, bad.error["message"]) == ("COMPLETE", "FAIL", str(fake.lost[1]))
    assert bad.result["runs"] == 16 * raw_comparisons.RUNS
    ended = one.store.comparison(comparison)
    assert ended.state == "COMPLETE"
    assert any("`2`" in note and bad.error["message"] in note for note in ended.result["notes"])
    assert one.status(bad.id).error == bad.error
    assert one.status(comparison).what == "two of them"


def test_a_comparison_without_a_remaining_configuration_failed(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    fake.lost[0] = WorkerError("It crashed.")
    fake.go.set()
    one = schedulers()
    trial = one.submit(job_types.tune(spec(square, **ONE_THREAD)))
    assert one.join(WAIT_S)
    comparison = one.store.comparison(one.store.trial(trial).comparison)
    assert (comparison.state, comparison.error["message"]) == ("FAIL", str(fake.lost[0]))
    assert [entry.state for entry in one.store.trials_of(comparison.id)] == ["FAIL", "COMPLETE"]


def test_a_comparison_that_never_began_fails_all_and_keeps_the_reasons_apart(schedulers, square, monkeypatch):
    why = WorkerError("No worker could be started.", hint="Free memory.")

    def broken(*_: Any, **__: Any) -> Any:
        raise why

    monkeypatch.setattr(comparison_run, "run_launches", broken)
    one = schedulers()
    asked = [
        Configuration(spec=spec(square, **ONE_THREAD), label="fine"),
        Configuration(spec=spec(square, workload={"dims": {"no": 3}}), label="impossible"),
    ]
    comparison = one.submit(job_types.comparison(asked))
    assert one.join(WAIT_S)
    fine, impossible, anchor = one.store.trials_of(comparison)
    assert (fine.error["message"], anchor.error["message"]) == (why.message,) * 2
    assert impossible.error["type"] == "SpecError"
    ended = one.store.comparison(comparison)
    assert (ended.state, ended.result) == ("FAIL", None)
    assert any("`impossible`" in warning for warning in ended.warnings)


def test_without_a_candidate_nothing_is_compared(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [])
    one = schedulers()
    baseline = Configuration(spec=spec(square), label="fine", role="baseline")
    trial = one.submit(job_types.tune(spec(square, workload={"dims": {"no": 3}}), baseline=baseline))
    assert one.join(WAIT_S)
    assert not fake.running.is_set()
    stored = one.store.trial(trial)
    assert (stored.state, stored.error["type"]) == ("FAIL", "SpecError")
    others = one.store.trials_of(stored.comparison)[1:]
    assert {entry.state for entry in others} <= {"CANCELLED", "FAIL"}
    assert one.store.comparison(stored.comparison).error == stored.error


def test_a_baseline_that_cannot_be_prepared_is_replaced_by_the_default(
    schedulers, tmp_path, square, monkeypatch
):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    fake.go.set()
    one = schedulers()
    baseline = Configuration(spec=spec(tmp_path / "gone.onnx"), label="gone", role="baseline")
    trial = one.submit(job_types.tune(spec(square, **ONE_THREAD), baseline=baseline))
    assert one.join(WAIT_S)
    assert fake.labels == ["candidate", f"{DEFAULT_LABEL} (m)"]
    stored = one.store.trial(trial)
    comparison = one.store.comparison(stored.comparison)
    assert [entry["baseline"] for entry in stored.result["contrasts"]] == [comparison.contestants[2].trial]
    assert any("`gone`" in warning for warning in comparison.warnings)
    assert [entry.state for entry in one.store.trials_of(comparison.id)] == ["COMPLETE", "FAIL", "COMPLETE"]


def test_comparison_that_the_store_does_not_take_is_kept_beside_it(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    fake.go.set()
    one = schedulers()
    for name in ("update_trial", "update_comparison"):
        original = getattr(one.store, name)

        def full(row_id: str, original: Any = original, **changes: Any) -> bool:
            if "result" in changes:
                raise StoreError("The disk is full.")
            return original(row_id, **changes)

        monkeypatch.setattr(one.store, name, full)
    trial = one.submit(job_types.tune(spec(square, **ONE_THREAD)))
    assert one.join(WAIT_S)
    comparison = one.status(trial).comparison
    assert one.status(trial).state == one.status(comparison).state == "FAIL"
    assert one.status(comparison).error["type"] == "StoreError"
    schedulers()
    store = Store()
    assert store.comparison(comparison).result["rounds"] == 16
    assert [entry.state for entry in store.trials_of(comparison)] == ["COMPLETE"] * 2
    assert len(store.trial(trial).result["latencies_s"]) == 16 * raw_comparisons.RUNS


def test_comparison_whose_candidates_are_deleted_while_it_runs_does_not_come_back(
    schedulers, square, monkeypatch
):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    one = schedulers()
    trial = one.submit(job_types.tune(spec(square, **ONE_THREAD)))
    assert fake.running.wait(WAIT_S)
    one.store.delete_trials([trial])
    fake.go.set()
    assert one.join(WAIT_S)
    assert one.store.comparisons() == []
    assert one.store.trials(kind="reference") == one.store.trials() == []


# --- real trials ----------------------------------------------------------------------------------------


def finished(one: Scheduler, trial_id: str):
    assert one.join(WAIT_S), one.status(trial_id)
    return one.store.trial(trial_id)


def contestants(process: psutil.Process | None = None) -> list[psutil.Process]:
    """Workers of the comparison: children of the fork server."""
    everybody = (process or psutil.Process()).children(recursive=True)
    servers = {one.pid for one in everybody}
    return [one for one in everybody if one.ppid() in servers]


def test_real_comparison_is_stored_with_everything_and_found_for_reuse(schedulers, tmp_path):
    one = schedulers()
    path = tiny_models.mlp(tmp_path / "mlp.onnx")
    asked = spec(path, workload={"batch_size": 3}, protocol={"warmup_runs": 2, "runs": 160}, **ONE_THREAD)
    trial = finished(one, one.submit(job_types.tune(asked, study="s")))
    assert trial.error is None
    check_measurement(one, trial, path)
    comparison = one.store.comparison(trial.comparison)
    candidate, anchor = (entry.trial for entry in comparison.contestants)
    result = comparison.result
    made = result["generations"]
    assert [entry["generation"] for entry in made] == list(range(len(made)))
    assert len(made) > 1
    assert sum(entry["rounds"] for entry in made) == result["rounds"] == len(result["orders"])
    for entry in made:
        assert sorted(entry["order"]) == sorted([candidate, anchor, f"{anchor}/1"])
        assert set(entry["layouts"]) == set(entry["order"])
        assert entry["start_s"] > 0
    assert result["busy"] is None or result["busy"]["words"]
    (contrast,) = result["contrasts"]
    assert contrast == trial.result["contrasts"][0]
    assert contrast["generations"] == trial.result["generations"] == len(made)
    assert contrast["between_from"] in ("race", "history", "assumed")
    assert contrast["sigma"] > 0
    assert contrast["standard_error"] > 0
    assert contrast["df"] > 0
    assert contrast["holds"] == (contrast["holds_reason"] == "")
    assert contrast["holds"] or contrast["verdict"] == "UNDECIDED"
    parts = (contrast["within_half_width"], contrast["between_half_width"])
    if None not in parts:
        assert sum(part**2 for part in parts) == pytest.approx(contrast["half_width"] ** 2)
        assert contrast["sigma_between"] is not None
    for row in map(one.store.trial, (candidate, anchor)):
        blocks = row.result["blocks"]
        assert {block["generation"] for block in blocks} == set(range(len(made)))
        assert {block["copy"] for block in blocks} == {0}  # an exact number of runs: none of the A/A control
        assert sum(block["runs"] for block in blocks) == row.result["runs"] == 160
        assert row.result["busy"] == result["busy"]
        assert row.result["grade"] == result["grade"]
    check_self_test(one, comparison)
    json.dumps(comparison.to_dict(), allow_nan=False)
    check_found_again(one, trial)


def check_self_test(one: Scheduler, comparison: Comparison) -> None:
    """The two processes of the anchor are a test of the machine, which is kept."""
    result = comparison.facts
    made = result["generations"]
    (test,) = result["self_tests"]
    assert (test["when"], test["generations"], test["rounds"]) == ("during", len(made), result["rounds"])
    assert len(test["log_ratios"]) == test["rounds"]
    assert test["run_s"] > 0
    (kept,) = one.store.self_tests(comparison.fingerprint)
    assert {name: value for name, value in kept.items() if name != "at"} == {
        **{name: value for name, value in test.items() if name != "log_ratios"},
        "busy": result["busy"],
        "comparison": comparison.id,
        "grade": result["grade"],
    }


def check_found_again(one: Scheduler, trial: Any) -> None:
    """The stored spec says which file it was, and finds the result, as long as that may be reused."""
    stored = spec_from_dict(trial.spec)
    assert stored.model.sha256 == one.store.cached_info(stored.model.path)[1]["sha256"]
    assert stored.key() == trial.key
    found = one.store.find_complete(stored.key(), trial.fingerprint, model_sha256=trial.model_sha256)
    rejected_or_busy = trial.result["grade"] == "F" or trial.result.get("busy") is not None
    assert (found is None) == rejected_or_busy  # by what else runs on the machine
    assert found is None or found.id == trial.id
    with simulated_clock.machine():
        again = finished(one, one.submit(job_types.tune(stored)))
    assert (again.state, again.key) == ("COMPLETE", trial.key)


def check_measurement(one: Scheduler, trial: Any, path: Path) -> None:
    """A measurement of 160 runs of three samples contains everything that the contract names."""
    assert (trial.state, trial.study, trial.model_name) == ("COMPLETE", "s", "mlp")
    result = trial.result
    assert result["batch_size"] == 3
    assert len(result["latencies_s"]) == result["runs"] == 160
    assert min(result["latencies_s"]) > 0
    assert len(result["warmup_latencies_s"]) == 3  # the first run, and two more
    assert result["effective_providers"] == ["CPUExecutionProvider"]
    assert result["fallback"] is False
    assert set(result["placement"]) == {"CPUExecutionProvider"}
    assert result["placement"]["CPUExecutionProvider"]["nodes"] >= 1
    assert result["throughput_per_s"] == pytest.approx(480 / sum(result["latencies_s"]))
    assert result["environment"]["fingerprint"] == trial.fingerprint != ""
    assert result["idle_wall_s"] > 0
    assert trial.created_at <= trial.started_at <= trial.finished_at
    assert trial.model_sha256 == one.store.cached_info(str(path))[1]["content_sha256"]
    assert json.loads(json.dumps(trial.to_dict()))["latencies_s"] == result["latencies_s"]


def test_a_comparison_of_three_ranks_and_compares_them(schedulers, mlp):
    def model_of(label: str, plan: Mapping[str, Any]) -> Model:
        lost = any(one["name"] != "CPUExecutionProvider" for one in plan["session"]["providers"])
        return Model(load_error="No such library." if lost else "")

    one = schedulers()
    path = Path(mlp)
    asked = [
        Configuration(spec=spec(path, workload={"batch_size": 4}), label="rows"),
        Configuration(spec=spec(path, **ONE_THREAD), label="thread"),
        Configuration(
            spec=spec(path, session={"providers": [{"name": "CUDAExecutionProvider"}]}), label="cuda"
        ),
    ]
    with simulated_clock.machine(model_of):
        comparison = one.submit(job_types.comparison(asked))
        assert one.join(WAIT_S)
    found = one.store.comparison(comparison)
    assert found.error is None
    rows, thread, cuda = one.store.trials_of(comparison)[:3]
    assert cuda.state == "FAIL"
    contrast = next(c for c in found.result["contrasts"] if c["candidate"] == thread.id)
    assert contrast["baseline"] == found.baseline == rows.id
    assert contrast["per_row"]
    assert contrast["rounds"] == 8
    assert contrast["generations"] == len(found.result["generations"]) == 2  # GPU libraries are not forked
    whole = one.store.trial(thread.id).result
    assert sum(block["runs"] for block in whole["blocks"]) == len(whole["latencies_s"]) == 20
    assert rows.result["new_shapes"]
    assert found.result["grade"] in ("A", "B", "C", "D", "F")


def test_a_real_comparison_cancelled_in_its_rounds_keeps_them(schedulers, tmp_path):
    one = schedulers()
    path = tiny_models.mlp(tmp_path / "mlp.onnx")
    trial = one.submit(
        job_types.tune(spec(path, protocol={"budget_s": 600, "precision": "publish"}, **ONE_THREAD))
    )
    wait_until(lambda: (one.status(trial).live or {}).get("generation", 0) > 1, "no second generation began")
    one.cancel(trial)
    assert one.join(WAIT_S)
    assert psutil.Process().children(recursive=True) == []
    stored = one.store.trial(trial)
    assert (stored.state, stored.error["type"]) == ("CANCELLED", "Cancelled")
    comparison = one.store.comparison(stored.comparison)
    assert (comparison.state, comparison.result["outcome"]) == ("CANCELLED", "cancelled")
    assert (
        comparison.result["rounds"] == sum(entry["rounds"] for entry in comparison.result["generations"]) > 0
    )
    assert len({block["round"] for block in stored.result["blocks"]}) == comparison.result["rounds"]
    assert [entry["candidate"] for entry in stored.result["contrasts"]] == [trial]


def test_a_budget_that_gives_no_p50_fails_the_comparison_with_its_reason(schedulers, square):
    one = schedulers()
    with simulated_clock.machine(lambda label, plan: Model(run_s=1.0)):
        asked = spec(square, protocol={"budget_s": 1}, **ONE_THREAD)
        trial = finished(one, one.submit(job_types.tune(asked)))
    assert (trial.state, trial.error["type"], trial.result) == ("FAIL", "BudgetError", None)
    comparison = one.store.comparison(trial.comparison)
    assert (comparison.state, comparison.error, comparison.result) == ("FAIL", trial.error, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ended_process_leaves_no_frozen_worker_and_frees_the_machine(tmp_path, number):
    """Workers that wait are stopped (SIGSTOP), and a stopped process does not see that its parent is gone."""
    code = (
        "import signal, sys, time\nfrom core.run import job_types\n"
        "from core.run.scheduler import Scheduler\nfrom core.store import Store\n"
        "from core.spec import spec_from_dict\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background shell has it ignored
        "s = Scheduler(Store(), owner='doomed')\n"
        "asked = {'model': {'path': sys.argv[1]}, 'session': {'intra_op_num_threads': 1},\n"
        "         'protocol': {'runs': 1000000}}\n"
        "t = s.submit(job_types.tune(spec_from_dict(asked)))\n"
        "while s.status(t).stage != 'rounds':\n    time.sleep(0.01)\n"
        "print('racing', flush=True)\n"
        "time.sleep(600)\n"
    )
    path = tiny_models.steady(tmp_path / "steady.onnx")

    def frozen(children: list[psutil.Process]) -> None:
        wait_until(lambda: any(is_stopped(one) for one in children), "nobody was frozen")

    end_a_process(code, path, number, said="racing", ready=frozen)
    with MachineQueue().turn("next", "x"):
        assert [entry.owner for entry in MachineQueue().entries()] == ["next"]


def end_a_process(code, path, number, *, said, ready=lambda children: None):
    """Run `code` until it has `said` so, end it by signal `number`, and find that no child of it is left."""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == f"{said}\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert children
        ready(children)
        parent.send_signal(number)
        try:
            parent.wait(WAIT_S)
        finally:
            parent.kill()
    _gone, alive = psutil.wait_procs(children, timeout=WAIT_S)
    assert alive == []


def is_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def test_real_profile_of_a_model_that_moved_keeps_its_table_and_its_trace(schedulers, mlp):
    """It is found in the library by its hash."""
    one = schedulers()
    record, _ = library.import_files(one.store, [Path(mlp)], name="moved")
    asked = spec_from_dict(
        {
            "model": {"path": "elsewhere/mlp.onnx", "sha256": record.sha256},
            "protocol": {"warmup_runs": 1, "runs": 6},
        }
    )
    trial = finished(one, one.submit(job_types.profile(asked)))
    assert (trial.state, trial.error) == ("COMPLETE", None)
    assert trial.spec["model"]["path"] == record.path
    assert trial.result["profile"]["runs"] == trial.result["runs"] > 0
    assert trial.result["unprofiled_latencies_s"]
    assert trial.result["overhead"]["ratio"] > 0
    trace = one.store.artifact_path(trial.id, trial.result["trace"])
    assert json.loads(trace.read_text())
    assert "profile" not in one.store.trials()[0].result


def test_fp16_copy_is_made_once_and_measured(schedulers, mlp):
    one = schedulers()
    halves = {"path": mlp, "precision": "fp16"}
    fed: list[str] = []
    made: list[dict[str, int]] = []

    def measured(model: dict[str, Any]) -> Any:
        asked = spec_from_dict({"model": model, "protocol": {"warmup_runs": 1, "runs": 8}})
        trial = finished(one, one.submit(job_types.tune(asked)))
        assert trial.error is None
        copies = (one.store.folder / "cache" / "fp16").glob("*.onnx")
        made.append({file.name: file.stat().st_mtime_ns for file in copies})
        return trial

    def model_of(label: str, plan: Mapping[str, Any]) -> Model:
        fed.append(plan["feeds"]["inputs"][0]["dtype"])
        return Model()

    trial = measured(halves)
    assert {one["dtype"] for one in trial.result["inputs"]} == {"float32"}
    assert trial.result["casts"]["computes_in_float32"]
    with simulated_clock.machine(model_of):
        measured(halves)
        assert set(fed) == {"float32"}
        measured({**halves, "keep_io_types": False})
        assert set(fed) == {"float32", "float16"}
    first, second, third = made
    assert first == second
    assert third.items() > second.items()
    content = trial.model_sha256
    assert sorted(third) == [f"{content}-cast.onnx", f"{content}-keep.onnx"]


def test_wrong_batch_fails_before_a_worker_measures(schedulers, tmp_path):
    one = schedulers()
    asked = spec(tiny_models.fixed_batch(tmp_path / "m.onnx", 2), workload={"batch_size": 5})
    trial = finished(one, one.submit(job_types.tune(asked)))
    assert (trial.state, trial.error["type"]) == ("FAIL", "SpecError")
    assert "2" in trial.error["message"]
    assert trial.model_sha256 != ""


def test_model_that_is_missing_or_broken_fails_with_its_reason(schedulers, tmp_path):
    one = schedulers()
    missing = one.submit(job_types.tune(spec(tmp_path / "gone.onnx")))
    broken = one.submit(job_types.tune(spec(tiny_models.not_onnx(tmp_path / "x.onnx"))))
    assert one.join(WAIT_S)
    assert [one.store.trial(i).error["type"] for i in (missing, broken)] == ["ModelError"] * 2
    assert one.status(missing).error == one.store.trial(missing).error


def test_another_models_hash_is_refused_with_both_hashes(schedulers, square):
    one = schedulers()
    asked = spec_from_dict({"model": {"path": str(square), "sha256": "ab" * 32}})
    trial = finished(one, one.submit(job_types.tune(asked)))
    assert trial.error["type"] == "SpecError"
    own = one.store.cached_info(str(square))[1]["sha256"]
    assert f"`{own[:12]}`" in trial.error["message"]
    assert "`abababababab`" in trial.error["message"]


def test_provider_without_its_library_fails_and_names_it(schedulers, square):
    one = schedulers()
    asked = spec(square, session={"providers": [{"name": "CUDAExecutionProvider"}]})
    trial = finished(one, one.submit(job_types.tune(asked)))
    if trial.state == "COMPLETE":
        pytest.skip("this machine has CUDA")
    assert trial.error["type"] == "ProviderError"
    assert trial.error["hint"]


def test_time_limit_of_the_protocol_ends_a_hanging_measurement(schedulers, square):
    one = schedulers()
    asked = spec(square, protocol={"warmup_runs": 0, "runs": 50, "timeout_s": 7})
    with simulated_clock.machine(lambda label, plan: Model(load_s=8.0)) as clock:
        began = clock.now
        trial = finished(one, one.submit(job_types.tune(asked)))
        assert clock.now - began == 7.0  # nobody is started once more
    assert (trial.state, trial.error["type"]) == ("FAIL", "WorkerError")


def test_who_cannot_be_loaded_is_a_failed_trial_and_the_queue_goes_on(schedulers, square, mlp):
    one = schedulers()
    why = "It crashed."
    with simulated_clock.machine(
        lambda label, plan: Model(load_error=why if plan["model_path"] == mlp else "")
    ):
        victim = one.submit(job_types.tune(spec(Path(mlp))))
        after = one.submit(job_types.tune(spec(square)))
        assert one.join(WAIT_S)
    error = one.store.trial(victim).error
    assert (error["type"], error["message"]) == ("WorkerError", why)
    assert one.store.trial(after).state == "COMPLETE"


def test_failed_placement_pass_does_not_lose_the_measurement(schedulers, square):
    why = "The profiler broke."

    def run(job, payload, **options):
        if job == "profile":
            raise WorkerError(why)
        return run_job(job, payload, **options)

    one = schedulers(run=run)
    with simulated_clock.machine(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_run, "placement", placement)
        trial = finished(one, one.submit(job_types.tune(spec(square))))
    assert (trial.state, trial.result["placement"]) == ("COMPLETE", None)
    assert any(why in note for note in trial.result["notes"])


def test_machine_that_cannot_be_described_does_not_lose_the_measurement(schedulers, square):
    why = "No idea where we are."

    def run(job, payload, **options):
        if job == "environment":
            raise WorkerError(why)
        return run_job(job, payload, **options)

    one = schedulers(run=run)
    with simulated_clock.machine():
        trial = finished(one, one.submit(job_types.tune(spec(square))))
    assert (trial.state, trial.fingerprint, trial.result["environment"]) == ("COMPLETE", "", None)
    assert any(why in note for note in trial.result["notes"])


def test_result_that_the_store_does_not_take_is_kept_beside_it_and_taken_back(
    schedulers, square, monkeypatch
):
    one = schedulers()
    original = one.store.update_trial

    def full(trial_id: str, **changes: Any) -> bool:
        if "result" in changes:
            raise StoreError("The disk is full.")
        return original(trial_id, **changes)

    monkeypatch.setattr(one.store, "update_trial", full)
    with simulated_clock.machine():
        trial = one.submit(job_types.tune(spec(square)))
        assert one.join(WAIT_S)
    kept = one.store.folder / f"rescued-{trial}.json"
    status = one.status(trial)
    assert status.state == "FAIL"
    assert str(kept) in status.error["message"]
    assert kept.exists()
    [held] = one.store.not_stored()
    assert (held.why, held.file, held.row) == ("The disk is full.", kept, one.store.trial(trial))
    schedulers()
    assert not kept.exists()
    stored = Store().trial(trial)
    assert (stored.state, len(stored.result["latencies_s"])) == ("COMPLETE", 20)


def test_result_kept_in_another_folder_tells_to_move_it(schedulers, tmp_path, square, monkeypatch):
    one = schedulers()
    elsewhere = tmp_path / "rescued-x.json"
    original = one.store.update_trial

    def full(trial_id: str, **changes: Any) -> bool:
        if "result" in changes:
            raise StoreError("The disk is full.")
        return original(trial_id, **changes)

    monkeypatch.setattr(one.store, "update_trial", full)
    monkeypatch.setattr(one.store, "rescue", lambda _: elsewhere)
    with simulated_clock.machine():
        trial = one.submit(job_types.tune(spec(square)))
        assert one.join(WAIT_S)
    error = one.status(trial).error
    assert str(elsewhere) in error["message"]
    assert str(one.store.folder) in error["hint"]


def test_fp16_copy_that_crashes_onnx_runtime_says_the_way_round(schedulers, tmp_path):
    one = schedulers()
    path = tiny_models.transpose_before_matmul(tmp_path / "vit.onnx")
    plan = {"model": {"path": str(path), "precision": "fp16"}, "workload": {"dims": {"n": 3}}}
    around = {**plan, "session": {"disabled_optimizers": ["NchwcTransformer"]}}
    crashed = one.submit(job_types.tune(spec_from_dict(plan)))
    worked = one.submit(job_types.profile(spec_from_dict(around)))
    assert one.join(WAIT_S)
    assert one.store.trial(worked).state == "COMPLETE"
    trial = one.store.trial(crashed)
    if trial.state == "FAIL":  # ONNX Runtime 1.31; a later one may have mended it
        assert trial.error["type"] == "WorkerError"
        assert "SIGSEGV" in trial.error["message"]
        assert "NchwcTransformer" in trial.error["hint"]


def test_trial_deleted_while_it_runs_does_not_come_back(schedulers, square, monkeypatch):
    fake = FakeRace(monkeypatch, [0.001, 0.002])
    one = schedulers()
    trial = one.submit(job_types.tune(spec(square, **ONE_THREAD)))
    assert fake.running.wait(WAIT_S)
    one.store.delete_trials([trial])
    one.cancel(trial)
    assert one.join(WAIT_S)
    assert one.store.trials() == []
    assert not (one.store.folder / "artifacts" / trial).exists()


def test_store_that_takes_no_trial_refuses_at_once(schedulers, tmp_path, monkeypatch):
    one = schedulers()

    def full(*_: object, **__: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(one.store, "create_comparison", full)
    with pytest.raises(StoreError):
        one.submit(job_types.tune(spec(tmp_path / "m.onnx")))
    assert one.active() == []


def test_machine_is_described_once(schedulers):
    jobs: list[str] = []

    def run(job, payload, **options):
        jobs.append(job)
        return run_job(job, payload, **options)

    one = schedulers(run=run)
    assert one.environment() == one.environment()
    assert one.environment()["fingerprint"]
    assert jobs == ["environment"]
    one.environment(refresh=True)
    assert jobs == ["environment"] * 2


def test_killed_process_leaves_no_worker_that_is_in_the_middle_of_a_run(tmp_path):
    code = (
        "import sys, time\nfrom core.run import job_types\n"
        "from core.run.scheduler import Scheduler\nfrom core.store import Store\n"
        "from core.spec import spec_from_dict\n"
        "s = Scheduler(Store(), owner='doomed')\n"
        "t = s.submit(job_types.tune(spec_from_dict({'model': {'path': sys.argv[1]}})))\n"
        "import psutil\n"
        # earlier workers end at any moment; from this stage on, the fork server and its child stay
        "while s.status(t).stage != 'load' or len(psutil.Process().children(recursive=True)) < 2:\n"
        "    time.sleep(0.01)\n"
        "print('measuring', flush=True)\n"
        "time.sleep(600)\n"
    )
    path = tiny_models.slow(tmp_path / "slow.onnx")
    end_a_process(code, path, signal.SIGKILL, said="measuring")


def test_spec_error_of_a_plan_is_the_class_that_the_page_catches(tmp_path):
    with pytest.raises(SpecError):
        spec(tmp_path / "m.onnx", workload={"batch_size": 0})


def test_random_weights_are_told_with_every_result(schedulers):
    scheduler = schedulers()
    model = ROOT / "sample_models" / "tiny_transformer.onnx"
    with simulated_clock.machine():
        asked = spec(model, workload={"dims": {"sequence": 4}})
        trial = finished(scheduler, scheduler.submit(job_types.tune(asked)))
    assert RANDOM_WEIGHTS_NOTE in trial.result["notes"]
