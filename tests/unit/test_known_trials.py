"""What is known of the configurations of a sweep: its own trials and earlier ones; all are invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.evidence.comparison import Configuration
from core.evidence.measurement import Trial, TrialState
from core.run import sweep
from core.run.known_trials import Earlier, known_trials, missing
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from tests import builders

SHA = "0" * 64
RECORD = builders.model(content=SHA)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def spec(threads: int, **workload: Any) -> TrialSpec:
    return spec_from_dict(
        {
            "model": {"path": "m.onnx", "sha256": SHA},
            "session": {"intra_op_num_threads": threads},
            "workload": workload,
        }
    )


def asked(*threads: int) -> list[Configuration]:
    return [Configuration(spec=spec(one), label=f"{one} threads") for one in threads]


def put(store: Store, study: str, *specs: TrialSpec, state: TrialState = "COMPLETE") -> list[str]:
    """Store a trial of each; return their ids."""
    ids = [f"{study} {len(store.trials(study=study)) + number}" for number in range(len(specs))]
    for trial_id, one in zip(ids, specs, strict=True):
        result = {"fingerprint": "here", "grade": "A", "busy": None, "latency": {"p50_s": 0.002}}
        store.create_trial(
            Trial(
                id=trial_id,
                kind="measure",
                state=state,
                study=study,
                spec=one.to_dict(),
                model_name="m",
                model_sha256=SHA,
                key=one.key(),
                created_at=1.0,
                finished_at=2.0,
                fingerprint="here",
                result=result if state == "COMPLETE" else None,
            )
        )
    return ids


def earlier(store: Store, fingerprint: str = "here") -> Earlier:
    return sweep.before(store, RECORD, {}, fingerprint=fingerprint)


def test_what_was_measured_before_on_this_machine_is_reused(store: Store) -> None:
    put(store, "before", spec(1), spec(2))
    (own,) = put(store, "after", spec(2))
    known = known_trials(store, asked(1, 2, 4), study="after", earlier=earlier(store))
    assert [(one.trial.id, one.reused) for one in known.values()] == [("before 0", True), (own, False)]
    assert [one.label for one in missing(asked(1, 2, 4), known)] == ["4 threads"]
    elsewhere = known_trials(store, asked(1, 2, 4), study="", earlier=earlier(store, "another machine"))
    assert not elsewhere
    assert len(missing(asked(1, 2, 4), elsewhere)) == 3


def test_feeds_of_a_file_are_never_taken_for_the_same(store: Store) -> None:
    from_file = spec(1, feeds="rows.npz")
    put(store, "before", from_file)
    assert store.find_complete(from_file.key(), "here", model_sha256=SHA) is not None
    assert earlier(store)(from_file) is None


def test_a_waiting_trial_is_known_and_an_earlier_result_stands_in_for_a_cancelled_one(store: Store) -> None:
    put(store, "mine", spec(1), spec(2), state="CANCELLED")
    put(store, "mine", spec(4), state="WAITING")
    alone = known_trials(store, asked(1, 2, 4), study="mine")
    assert [one.trial.state for one in alone.values()] == ["CANCELLED", "CANCELLED", "WAITING"]
    assert not missing(asked(1, 2, 4), alone)
    put(store, "other", spec(1), spec(4))
    known = known_trials(store, asked(1, 2, 4), study="mine", earlier=earlier(store))
    assert [(one.trial.state, one.reused) for one in known.values()] == [
        ("COMPLETE", True),
        ("CANCELLED", False),
        ("WAITING", False),
    ]


def test_the_newest_trial_of_a_sweep_counts_and_one_of_a_deleted_comparison_stays_known(store: Store) -> None:
    *_, newest = put(store, "mine", spec(1), spec(1))
    (one,) = known_trials(store, asked(1), study="mine").values()
    assert one.trial.id == newest
    assert one.comparison is None
