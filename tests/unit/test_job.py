"""A job of any kind: the queue does its work, and ends in the store whatever rows it brought."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.api import explaining, exporting, graphs, variants
from core.api.session import Session, refuse_worker
from core.evidence import continuation
from core.evidence.comparison import Configuration
from core.evidence.measurement import Trial
from core.process.job_worker import Progress
from core.run import job_types
from core.run.explanation import Pair
from core.run.job import Ending, Job, Outcome, Service
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, WorkloadSpec, spec_from_dict
from core.spec.steps import step_from_dict
from core.store import Actor, ModelRecord, Store
from core.wire.errors import Cancelled, ModelError, SpecError
from tests.waiting import WAIT_S

SPEC = spec_from_dict({"model": {"path": "m.onnx"}})
LIBRARY = f"libops.so@sha256:{'a' * 64}"
NATIVE = spec_from_dict({"model": {"path": "m.onnx"}, "session": {"provider_libraries": [LIBRARY]}})


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


def done(_: Service) -> Outcome:
    return Outcome(whole=Ending(state="COMPLETE"))


def _pinned_baseline(session: Session, stored: Trial, model: ModelRecord) -> Job:
    return job_types.tune(SPEC, baseline=Configuration(spec=NATIVE, label="pinned", role="baseline"))


def _longer(session: Session, stored: Trial, model: ModelRecord) -> Job:
    return job_types.more_launches(session.store, stored.comparison, precision="normal")


def _explained(session: Session, stored: Trial, model: ModelRecord) -> Job:
    other = replace(stored, spec=SPEC.to_dict())
    return explaining.explain_job(session, Pair(baseline=other, candidate=stored))


def _bundled(session: Session, stored: Trial, model: ModelRecord) -> Job:
    return exporting.bundle_job(session, stored, Path("bundle.zip"))


def _transformed(session: Session, stored: Trial, model: ModelRecord) -> Job:
    return variants.transform_job(session, model, [step_from_dict({"kind": "fp16"})], libraries=[LIBRARY])


def _located(session: Session, stored: Trial, model: ModelRecord) -> Job:
    return graphs.node_errors_job(session, model, WorkloadSpec(), [LIBRARY])


def _profiled(session: Session, stored: Trial, model: ModelRecord) -> Job:
    return job_types.profile(NATIVE)


@pytest.mark.parametrize(
    "route", [_pinned_baseline, _longer, _explained, _bundled, _transformed, _located, _profiled]
)
def test_native_libraries_run_for_an_admin_only_whoever_stored_them(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, route: Callable[[Session, Trial, ModelRecord], Job]
) -> None:
    for module, name in (
        (explaining, "inspect_model"),
        (variants, "check_request"),
        (graphs, "quantized_from"),
        (graphs, "check_inputs"),
        (continuation, "ensure_continuable"),
        (continuation, "raw_comparison"),
    ):
        monkeypatch.setattr(module, name, lambda *_, **__: None)
    monkeypatch.setattr(continuation, "protocol", lambda *_: {"precision": "normal"})
    admins = replace(job_types.comparison([Configuration(spec=NATIVE, label="x")]), work=done)
    scheduler.submit(admins, actor=Actor("ada"))
    assert scheduler.join(WAIT_S)
    stored = scheduler.store.trial(admins.trials[0].id)
    info: Any = {}
    model = ModelRecord(content_sha256="c", sha256="s", path="m.onnx", name="m", source="file", info=info)
    session = Session(scheduler.store, scheduler=scheduler, inspect=refuse_worker)
    job = replace(route(session, stored, model), work=done)
    before = len(scheduler.store.trials(kind="measure")), len(scheduler.store.comparisons())
    with pytest.raises(SpecError, match=r"libops\.so.*admin"):
        scheduler.submit(job, actor=Actor("ben", sees_all=False))
    assert scheduler.status(job.id) is None
    assert before == (len(scheduler.store.trials(kind="measure")), len(scheduler.store.comparisons()))
    scheduler.submit(job, actor=Actor("ada"))
    assert scheduler.join(WAIT_S)
    ended = scheduler.status(job.id)
    assert ended is not None
    assert ended.state == "COMPLETE"
