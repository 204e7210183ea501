"""How long a job took, where the clock was set meanwhile, and how long the next one will take."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from core.evidence.load.arrivals import Trace
from core.run import job_types
from core.run.durations import Durations, planned_s
from core.run.job import Queued
from core.spec import ModelRef, TrialSpec
from core.spec.load import LoadSpec
from core.store import Store
from tests.unit.test_sharing import model, trial


@pytest.mark.parametrize("ahead_s", [-1e6, 1e6])
def test_a_duration_does_not_follow_the_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    began = time.time()
    entry = Queued(job=None, store=None, started_at=began, began=time.monotonic() - 5)  # type: ignore[arg-type]
    monkeypatch.setattr(time, "time", lambda: began + ahead_s)
    assert 5 <= entry.present() - began < 1000
    entry.started_at = None
    assert entry.present() == began + ahead_s, "a job that waits has no duration"


SPEC = TrialSpec(model=ModelRef(path="/m.onnx", sha256="1" * 64))


def nothing(run: Any) -> dict[str, Any]:
    return {}


def test_a_job_without_rows_takes_as_long_as_the_same_before(tmp_path: Path) -> None:
    found = Durations(Store(tmp_path / "ortune.db"))
    job = job_types.task(nothing, kind="accuracy", what="accuracy of m")
    assert found.predicted_s(job, "f") is None
    for seconds in (100.0, 3.0, 5.0, 4.0, 6.0, 50.0):  # the oldest no longer counts
        found.note(job, seconds)
    assert found.predicted_s(job, "f") == 5.0
    for kind, what in (("accuracy", "accuracy of n"), ("export", "accuracy of m")):
        assert found.predicted_s(job_types.task(nothing, kind=kind, what=what), "f") is None


def test_a_profile_takes_as_long_as_earlier_ones_of_its_model_on_this_machine(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    store.put_model(model("1", "m", path="/m.onnx"))
    found, job = Durations(store), job_types.profile(SPEC)
    assert found.predicted_s(job, "f") is None
    profile = {"kind": "profile", "model_sha256": "1" * 64, "result": {}}
    for number, (seconds, more) in enumerate(
        [
            (7.0, {}),
            (9.0, {}),
            (8.0, {}),
            (900.0, {"fingerprint": "another machine"}),
            (900.0, {"model_sha256": "2" * 64}),
            (900.0, {"kind": "measure"}),
            (900.0, {"state": "FAIL"}),
        ]
    ):
        facts = {**profile, "started_at": 10.0, "finished_at": 10.0 + seconds, **more}
        store.create_trial(trial(f"t{number}", **facts))
    assert found.predicted_s(job, "f") == 8.0
    assert found.predicted_s(job, "") is None  # this machine is not known yet


def test_a_load_test_takes_the_time_that_it_plans() -> None:
    of_two = LoadSpec(rates=(10.0, 20.0), duration_s=30.0, turns=3)
    assert planned_s(of_two, 2) == 2 * 2 * (30.0 + 3 * of_two.warmup_s)
    limit = LoadSpec.model_validate(
        {"question": "limit", "limits": ["p99<=20ms"], "duration_s": 10.0, "budget_s": 60.0}
    )
    assert planned_s(limit, 1) == 60.0 + 10.0 + limit.warmup_s
    together = LoadSpec(question="together", rates=(10.0, 20.0), duration_s=30.0, turns=2)
    assert planned_s(together, 2) == 3 * (30.0 + 2 * together.warmup_s)
    job = job_types.load([job_types.Configuration(spec=SPEC, label="a")], of_two)
    assert job.predicted_s == planned_s(of_two, 1)
    batching = LoadSpec.model_validate(
        {"question": "batching", "limits": ["p99<=20ms"], "rates": [10.0], "duration_s": 10.0, "turns": 1}
    )
    assert planned_s(batching, 1) == 6.0 + 4 * (10.0 + batching.warmup_s)


def test_a_load_test_of_a_trace_takes_its_length_in_every_turn() -> None:
    """A trace as recorded may be longer than any duration that can be asked for."""
    trace = Trace(name="t", at_s=[0.0, 500.0, 1000.0], kind=[0, 0, 0])
    asked = {"arrivals": {"process": "trace", "path": "t.csv"}, "turns": 3}
    recorded = LoadSpec.model_validate(asked)
    assert planned_s(recorded, 2, trace) == 2 * 3 * 1000.0
    slower = LoadSpec.model_validate({**asked, "rates": [0.02, 0.01]})
    job = job_types.load([job_types.Configuration(spec=SPEC, label="a")], slower, trace=trace)
    assert job.predicted_s == pytest.approx(3 * (100.0 + 200.0))
    part = LoadSpec.model_validate({**asked, "duration_s": 60.0})
    assert planned_s(part, 1, trace) == 60.0 + 3 * part.warmup_s
