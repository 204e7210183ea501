"""A job of any kind: the queue does its work, and ends in the store whatever rows it brought."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.evidence.comparison import Configuration
from core.process.job_worker import Progress
from core.run import job_types
from core.run.job import Ending, Job, Outcome, Service
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.wire.errors import Cancelled, ModelError, SpecError
from tests.waiting import WAIT_S

SPEC = spec_from_dict({"model": {"path": "m.onnx"}})


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))

    def admit(spec: TrialSpec) -> None:
        if spec.session.expert:
            raise SpecError("`expert` is off.")

    service = Scheduler(Store(tmp_path / "home"), owner="tester", admit=admit)
    yield service
    service.close()


def comparison_job(work: Callable[[Service], Outcome]) -> Job:
    """Two candidates beside the default, with invented work."""
    other = spec_from_dict({"model": {"path": "m.onnx"}, "session": {"intra_op_num_threads": 2}})
    asked = [Configuration(spec=SPEC, label="one"), Configuration(spec=other, label="two")]
    return replace(job_types.comparison(asked), work=work)


def test_a_trial_that_the_work_does_not_name_ends_as_its_job(scheduler: Scheduler) -> None:
    result = {"fingerprint": "here", "notes": []}

    def work(_: Service) -> Outcome:
        named = {first.id: Ending(state="FAIL", error=ModelError("It is none."), result=result)}
        return Outcome(whole=Ending(state="COMPLETE", result=result), trials=named, warnings=["w"])

    job = comparison_job(work)
    first, second = job.trials
    assert scheduler.submit(job) == job.id
    assert scheduler.join(WAIT_S)
    store = scheduler.store
    assert (store.trial(first.id).state, store.trial(first.id).fingerprint) == ("FAIL", "here")
    assert (store.trial(second.id).state, store.trial(second.id).result) == ("COMPLETE", None)
    comparison = store.comparison(job.id)
    assert (comparison.state, comparison.result, comparison.warnings) == ("COMPLETE", result, ["w"])
    status = scheduler.status(job.id)
    assert status is not None
    assert (status.state, status.result) == ("COMPLETE", None)  # it is in the store
    assert comparison.owner == store.trial(first.id).owner == "tester"


@pytest.mark.parametrize(
    ("error", "state"),
    [(SpecError("Not so."), "FAIL"), (Cancelled("Stopped."), "CANCELLED"), (KeyError(), "FAIL")],
)
def test_what_the_work_raises_ends_all_of_its_rows(
    scheduler: Scheduler, error: Exception, state: str
) -> None:
    def work(_: Service) -> Outcome:
        raise error

    job = comparison_job(work)
    scheduler.submit(job)
    assert scheduler.join(WAIT_S)
    assert {one.state for one in scheduler.store.trials_of(job.id)} == {state}
    assert scheduler.store.comparison(job.id).state == state


def test_work_tells_how_far_it_is_and_hears_of_its_cancel(scheduler: Scheduler) -> None:
    def work(service: Service) -> Outcome:
        service.on_progress(Progress(stage="counting", done=1, total=2))
        service.on_live({"so far": 1})
        assert service.cancel.wait(WAIT_S)
        raise Cancelled("Stopped.")

    job = Job(kind="count", what="count to two", work=work)
    scheduler.submit(job)
    while (status := scheduler.status(job.id)) is None or status.live is None:
        time.sleep(0.005)
    assert (status.kind, status.stage, status.done, status.total) == ("count", "counting", 1, 2)
    scheduler.cancel(job.id)
    assert scheduler.join(WAIT_S)
    ended = scheduler.status(job.id)
    assert ended is not None
    assert (ended.state, ended.live) == ("CANCELLED", None)


def test_a_job_is_admitted_by_every_spec_that_it_names_and_leaves_no_row_else(scheduler: Scheduler) -> None:
    expert = spec_from_dict({"model": {"path": "m.onnx"}, "session": {"expert": True}})
    for job in (
        job_types.tune(expert),
        job_types.profile(expert),
        job_types.comparison([Configuration(spec=expert, label="x")]),
    ):
        with pytest.raises(SpecError):
            scheduler.submit(job)
    assert scheduler.store.trials() == []
    assert scheduler.active() == []
