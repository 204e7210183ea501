"""Searches in the store: what goes in comes out, whose they are, and what stays hidden."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.cli import run
from core.cli.sheets import lines
from core.evidence.comparison import Comparison, Contestant
from core.show.sheets import Sheet, searches
from core.show.words import state_words
from core.store import Store, StudyRecord
from core.wire.errors import StoreError
from tests import builders


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "ortune.db")


def study(id: str = "aaaaaa000001", **changes: Any) -> StudyRecord:
    facts: dict[str, Any] = {
        "state": "COMPLETE",
        "question": {"budget_s": 30},
        "spec": {"model": {"path": "m.onnx"}},
        "model_name": "m",
        "model_sha256": "sha",
        "created_at": 1000.0,
        "tried": [{"changes": {"use_io_binding": True}, "key": "k", "looks": [], "twin": False}],
        "answer": {"outcome": "FOUND", "winner": None},
        "fingerprint": "f",
        "wall_s": 12.5,
    }
    return StudyRecord(id=id, **(facts | changes))


def test_a_search_comes_back_as_it_went_in(store: Store) -> None:
    one = study(error={"type": "WorkerError", "message": "µ", "hint": ""}, started_at=1.0, finished_at=2.0)
    store.put_study(one)
    assert store.study(one.id) == one
    assert store.study("aaaaaa") == one
    store.put_study(replace(one, state="RUNNING", answer=None))
    assert [found.state for found in store.studies()] == ["RUNNING"]


def test_searches_are_listed_newest_first_by_model_and_state(store: Store) -> None:
    for number in range(3):
        sha256 = "sha" if number else "other"
        store.put_study(study(f"aaaaaa00000{number}", created_at=float(number), model_sha256=sha256))
    assert [one.id[-1] for one in store.studies()] == ["2", "1", "0"]
    assert [one.id[-1] for one in store.studies(model_sha256="sha")] == ["2", "1"]
    with pytest.raises(StoreError, match="no study"):
        store.study("ffffffffff")


def test_a_search_whose_process_is_gone_says_how_it_goes_on(store: Store) -> None:
    store.put_study(study("aaaaaa000001", state="RUNNING"), process="host/1/2")
    store.put_study(study("aaaaaa000002", state="RUNNING"), process="host/3/4")
    store.interrupt_orphans(lambda process, _: process == "host/3/4")
    assert store.study("aaaaaa000002").state == "RUNNING"
    gone = store.study("aaaaaa000001")
    assert gone.state == "FAIL"
    assert gone.error is not None
    assert "Continue" in gone.error["hint"]
    assert gone.tried  # nothing is lost
    assert "interrupted" in lines(Sheet("", [searches.studies([replace(gone, answer=None)])]))[1]
    assert state_words(store.study("aaaaaa000002")) == "running"
    assert state_words(replace(gone, error={**gone.error, "message": "It crashed."})) == "failed"


def test_who_lists_searches_sees_none_that_was_killed_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    gone = f"{socket.gethostname()}/{2**22 + 1}/1.0"  # no process has that number
    one = study(state="RUNNING", answer=None)
    for command in (["searches"], ["searches", "show", one.id]):
        Store().put_study(one, process=gone)
        assert run(command) == 0
        said = capsys.readouterr().out
        assert "interrupted" in said
        assert "running" not in said


@pytest.mark.parametrize(
    ("wall_s", "said"), [(38.2, "38 s of 41 s"), (41.3, "41 s of 41 s"), (47.0, "6.0 s over")]
)
def test_no_search_took_more_of_its_time_than_there_was(wall_s: float, said: str) -> None:
    told = searches.time_words({"wall_s": wall_s, "budget_s": 41})
    assert said in told
    assert "47 s of" not in told


def test_a_changed_digit_is_damage(store: Store) -> None:
    store.put_study(study())
    with store._database.writing() as db:
        db.execute("UPDATE studies SET wall_s = 13.5")
    assert store.studies() == []
    with pytest.raises(StoreError, match="damaged"):
        store.study("aaaaaa000001")
    assert store.check().studies == (1, 1)
    assert store.check().damaged == 1


def put_comparison(store: Store, name: str, precision: str, kind: str, search: str = "aaaaaa000001") -> None:
    one = builders.trial(f"{name}0001", kind=kind, comparison=name, study=search)
    comparison = Comparison(
        id=name,
        state="COMPLETE",
        model_name="m",
        model_sha256="sha",
        contestants=(Contestant(trial=one.id, label="one", role="candidate"),),
        protocol={"precision": precision},
        created_at=1.0,
        study=search,
    )
    store.create_comparison(comparison, [one])


def test_what_was_only_tried_is_listed_by_its_search_alone(store: Store) -> None:
    put_comparison(store, "screen", "screen", "screen")
    put_comparison(store, "heated", "heat", "screen")
    put_comparison(store, "confirm", "quick", "measure")
    assert [one.comparison for one in store.trials()] == ["confirm"]
    assert {one.comparison for one in store.trials(study="aaaaaa000001")} == {"screen", "heated", "confirm"}
    assert [one.id for one in store.comparisons()] == ["confirm"]
    assert len(store.comparisons(study="aaaaaa000001")) == 3


def test_deleting_a_search_leaves_its_confirmed_comparison(store: Store) -> None:
    store.put_study(study())
    put_comparison(store, "screen", "screen", "screen")
    put_comparison(store, "confirm", "quick", "measure")
    store.delete_study("aaaaaa000001")
    assert store.studies() == []
    assert [one.comparison for one in store.trials(study="aaaaaa000001")] == ["confirm"]
    assert [one.id for one in store.comparisons(study="aaaaaa000001")] == ["confirm"]
