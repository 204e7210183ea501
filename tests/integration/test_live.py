"""Live measurement: a warm baseline, immediate requests, priority of other jobs, no process left.

Two tests are real; the others have workers that answer without a process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.run import job_types, live
from core.run.job import Queued, Status
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, spec_from_dict
from tests import simulated_clock
from tests.simulated_clock import Model
from tests.waiting import WAIT_S


def asked(model: Path | str, **session: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": str(model)}, "session": session})


DEFAULT = "ONNX Runtime's default"
ANN, BEN = "Ann", "Ben"


def wish(spec: TrialSpec, label: str = "mine", visitor: str = ANN) -> live.LiveRequest:
    return live.LiveRequest(visitor=visitor, spec=spec, label=label)


def told(status: Status, visitor: str = ANN) -> dict[str, Any]:
    """What a visitor is shown."""
    found: dict[str, Any] = (status.live or {}).get("told", {}).get(visitor, {})
    return found


def until(scheduler: Scheduler, job: str, holds: Callable[[Status], Any]) -> Status:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        status = scheduler.status(job)
        assert status is not None
        if holds(status):
            return status
        time.sleep(0.01)
    raise AssertionError(f"it never came to that: {scheduler.status(job)}")


def shown(key: str, visitor: str = ANN) -> Callable[[Status], bool]:
    return lambda status: (
        told(status, visitor).get("key") == key and told(status, visitor)["state"] == "shown"
    )


def begun(scheduler: Scheduler, spec: TrialSpec) -> tuple[str, live.LiveRequests]:
    wishes = live.LiveRequests()
    return scheduler.submit(live.job(wishes, wish(spec), model_name="m")), wishes


def cpu_only(label: str, plan: Mapping[str, Any]) -> Model:
    wanted = {one["name"] for one in plan["session"]["providers"]}
    return Model(load_error="" if wanted <= {"CPUExecutionProvider"} else "No such library.")


@pytest.fixture
def no_processes() -> Iterator[None]:
    with simulated_clock.machine(cpu_only):
        yield


@pytest.fixture
def known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ratio with an interval counts as known, however wide a busy machine makes it."""
    monkeypatch.setattr(live, "ratio_is_known", lambda low, high: low is not None)


@pytest.mark.usefixtures("known_at_once")
def test_wishes_are_shown_one_after_the_other_beside_a_baseline_that_stays_warm(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = live.start_loaded

    def counted(workers: Any, entry: Any, *args: Any, **how: Any) -> Any:
        started.append(entry.label)
        return start(workers, entry, *args, **how)

    monkeypatch.setattr(live, "start_loaded", counted)
    monkeypatch.setattr(live, "MOST_S", 0.0)  # each ends with its first number
    first, second = asked(square, intra_op_num_threads=1), asked(square, enable_mem_pattern=False)
    job, wishes = begun(scheduler, first)
    found = told(until(scheduler, job, shown(first.key())))
    [contrast] = found["contrasts"]
    assert contrast["ratio_low"] < contrast["ratio"] < contrast["ratio_high"]
    assert found["launches"] == live.LEAST_LAUNCHES
    assert wishes.put(wish(second, "no pattern"))
    until(scheduler, job, shown(second.key()))
    assert started == [DEFAULT] * 3 + ["mine"] * 3 + ["no pattern"] * 3, "the defaults stay warm"
    assert wishes.put(wish(first))  # back again: it goes on with what was found
    found = told(until(scheduler, job, shown(first.key())))
    assert [one["label"] for one in found["trail"]] == ["no pattern", "mine"]
    assert found["trail"][-1]["p50_s"] > 0
    assert sorted(started[9:]) == [DEFAULT, "mine"], "one launch more, beside a process it has not met"


@pytest.mark.usefixtures("known_at_once", "no_processes")
def test_two_visitors_take_turns_and_each_is_shown_its_own(scheduler: Scheduler, square: Path) -> None:
    first, second = asked(square, intra_op_num_threads=1), asked(square, enable_mem_pattern=False)
    job, wishes = begun(scheduler, first)
    assert wishes.put(wish(second, "Ben's", BEN))
    until(scheduler, job, shown(second.key(), BEN))
    status = until(scheduler, job, shown(first.key()))
    assert [one["label"] for one in told(status)["trail"]] == ["mine"]
    assert [one["label"] for one in told(status, BEN)["trail"]] == ["Ben's"]
    wishes.leave(ANN)
    assert wishes.put(wish(first, "again", BEN))
    until(scheduler, job, shown(first.key(), BEN))
    wishes.leave(BEN)
    until(scheduler, job, lambda one: one.state == "COMPLETE")  # no viewers: at once, not in a minute


@pytest.mark.usefixtures("known_at_once", "no_processes")
def test_a_move_of_the_batch_takes_a_baseline_of_its_own(scheduler: Scheduler, mlp: str) -> None:
    one = asked(mlp, intra_op_num_threads=1)
    larger = one.model_copy(update={"workload": one.workload.model_copy(update={"batch_size": 8})})
    job, wishes = begun(scheduler, one)
    until(scheduler, job, shown(one.key()))
    wishes.put(wish(larger))
    found = told(until(scheduler, job, shown(larger.key())))
    assert found["trail"][-1]["rows_per_s"] == pytest.approx(8 / found["trail"][-1]["p50_s"])
    latencies = [one["p50_s"] for one in found["trail"]]
    assert len(latencies) == 2  # of both batches: latency and throughput can be seen together


@pytest.mark.usefixtures("no_processes")
def test_others_go_first_while_it_rests_and_it_continues_only_for_a_wish(
    scheduler: Scheduler, square: Path
) -> None:
    spec, again = asked(square, intra_op_num_threads=1), asked(square, enable_cpu_mem_arena=False)
    job, wishes = begun(scheduler, spec)
    until(scheduler, job, shown(spec.key()))
    began, go = threading.Event(), threading.Event()

    def work(run: Any) -> dict[str, Any]:
        began.set()
        assert go.wait(WAIT_S)
        return {}

    scheduler.submit(job_types.task(work, kind="other", what="another job"))
    assert began.wait(WAIT_S)
    assert wishes.put(wish(again))
    go.set()
    until(scheduler, job, shown(again.key()))
    scheduler.submit(job_types.task(work, kind="other", what="another job"))
    until(scheduler, job, lambda status: status.state == "COMPLETE")
    assert not wishes.put(wish(spec))


@pytest.mark.usefixtures("no_processes")
def test_two_that_rest_do_not_hand_the_machine_to_each_other(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, hold = list[str](), scheduler._hold

    def counted(entry: Queued) -> None:
        turns.append(entry.job.id)
        hold(entry)

    monkeypatch.setattr(scheduler, "_hold", counted)
    both = [begun(scheduler, asked(square, intra_op_num_threads=1))[0] for _ in range(2)]
    for job in both:
        until(scheduler, job, lambda status: status.state == "COMPLETE")
    assert len(turns) <= 4


@pytest.mark.usefixtures("no_processes")
def test_without_a_wish_it_ends_and_takes_no_more(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "IDLE_S", 0.3)
    job, wishes = begun(scheduler, asked(square, intra_op_num_threads=1))
    status = until(scheduler, job, lambda one: one.state == "COMPLETE")
    assert status.result == {"glimpses": 1}
    assert not wishes.put(wish(asked(square)))


@pytest.mark.usefixtures("no_processes")
def test_a_slow_estimate_is_abandoned_as_soon_as_its_visitor_moves_on(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LEAST_S", 0.0)  # nothing is short enough to be finished all the same
    started: list[str] = []
    may_go_on, start = threading.Event(), live.start_loaded

    def held(workers: Any, entry: Any, *args: Any, **how: Any) -> Any:
        started.append(entry.label)
        assert may_go_on.wait(WAIT_S)
        return start(workers, entry, *args, **how)

    monkeypatch.setattr(live, "start_loaded", held)
    first, second = asked(square, intra_op_num_threads=1), asked(square, enable_mem_pattern=False)
    job, wishes = begun(scheduler, first)
    until(scheduler, job, lambda status: started)
    wishes.put(wish(second, "no pattern"))
    may_go_on.set()
    found = told(until(scheduler, job, shown(second.key())))
    assert "mine" not in [one["label"] for one in found["trail"]]
    assert started[:3] == [DEFAULT] * 3, "the default that had started is kept"
    assert set(started[3:]) <= {DEFAULT, "no pattern"}


@pytest.mark.usefixtures("no_processes")
def test_a_wish_that_cannot_run_is_said_and_the_next_one_is_shown(scheduler: Scheduler, square: Path) -> None:
    bad, good = asked(square, providers=[{"name": "CUDAExecutionProvider"}]), asked(square)
    job, wishes = begun(scheduler, bad)
    found = told(until(scheduler, job, lambda status: told(status).get("state") == "failed"))
    assert found["error"]["message"]
    wishes.put(wish(good))
    until(scheduler, job, shown(good.key()))


def test_switching_it_off_in_the_middle_ends_it(scheduler: Scheduler, square: Path) -> None:
    spec = asked(square, intra_op_num_threads=1)
    job, wishes = begun(scheduler, spec)
    until(scheduler, job, lambda status: told(status).get("state") in ("starts", "races", "shown"))
    scheduler.cancel(job)
    assert scheduler.join(WAIT_S)
    assert until(scheduler, job, lambda status: status.state == "CANCELLED")
    assert not wishes.put(wish(spec))
