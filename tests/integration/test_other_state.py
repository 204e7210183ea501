"""A machine that has changed: the usual values are learnt, and results carry the remark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.evidence.measurement import Trial
from core.run import comparison, job_types
from core.run.prior import usual_s
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, ort_default, spec_from_dict
from tests import simulated_clock
from tests.waiting import WAIT_S


@pytest.fixture(autouse=True)
def no_processes() -> Iterator[None]:
    with simulated_clock.machine():
        yield


def asked(model: Path) -> TrialSpec:
    session = {"intra_op_num_threads": 1}
    return spec_from_dict({"model": {"path": str(model)}, "session": session, "protocol": {"runs": 40}})


def measured(scheduler: Scheduler, spec: TrialSpec) -> Trial:
    trial = scheduler.submit(job_types.tune(spec))
    assert scheduler.join(WAIT_S)
    found = scheduler.store.trial(trial)
    assert found.state == "COMPLETE", found.error
    return found


def test_what_is_usual_is_what_the_default_took_in_earlier_comparisons(
    scheduler: Scheduler, square: Path
) -> None:
    trial = measured(scheduler, asked(square))
    [reference] = [one for one in scheduler.store.trials_of(trial.comparison) if one.id != trial.id]
    known = ort_default(asked(square)).model_copy(update={"model": spec_from_dict(reference.spec).model})
    machine = scheduler.environment()
    same: dict[str, Any] = {"model_sha256": trial.model_sha256, "key": reference.key}
    assert known.key() == reference.key
    assert usual_s(scheduler.store, machine, **same) == [reference.p50_s]
    assert usual_s(scheduler.store, None, **same) == []
    assert usual_s(scheduler.store, machine, **(same | {"key": trial.key})) == []
    elsewhere: Any = {**machine, "fingerprint": "another"}
    assert usual_s(scheduler.store, elsewhere, **same) == []


def test_another_state_is_remarked_and_the_result_is_none_to_reuse(
    scheduler: Scheduler, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "usual_s", lambda *where, **what: [1.0] * 5)  # a second a run
    trial = measured(scheduler, asked(square))
    busy = trial.facts["busy"]
    assert "other_state" in busy["reasons"]
    assert " 5 " in busy["words"]  # earlier comparisons
    store = scheduler.store
    assert store.find_complete(trial.key, trial.fingerprint, model_sha256=trial.model_sha256) is None


def test_comparisons_of_one_search_are_one_and_its_own_are_none(scheduler: Scheduler, square: Path) -> None:
    """All of them lie in the same seconds: a state that lasts as long would call itself usual."""

    def referred(study: str) -> Trial:
        trial = scheduler.submit(job_types.tune(asked(square), study=study))
        assert scheduler.join(WAIT_S)
        of = scheduler.store.trials_of(scheduler.store.trial(trial).comparison)
        return next(one for one in of if one.id != trial)

    first, second, other = (referred(study) for study in ("a", "a", "b"))
    where: dict[str, Any] = {"model_sha256": first.model_sha256, "key": first.key}
    machine = scheduler.environment()
    assert usual_s(scheduler.store, machine, **where) == [other.p50_s, second.p50_s]
    assert usual_s(scheduler.store, machine, **where, study="a") == [other.p50_s]
