"""Persons of the store: who made a result, who sees it, and who may delete it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial
from core.store import Accuracy, ModelRecord, Query, Store, StudyRecord, Visibility, database, sharing
from core.store.database import KEYS
from core.wire.errors import MissingError, StoreError

ANNA, BEN, ADMIN = "anna@example.org", "ben@example.org", "admin@example.org"


def trial(name: str, **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "id": name.ljust(12, "0"),
        "kind": "measure",
        "state": "COMPLETE",
        "spec": {"model": {"path": "m.onnx"}},
        "model_name": f"model of {name}",
        "model_sha256": "a" * 64,
        "key": "k",
        "fingerprint": "f",
        "created_at": 1.0,
        "finished_at": 2.0,
        "result": {"latency": {"p50_s": 0.001}, "latencies_s": [0.001] * 5},
    }
    return Trial(**(facts | changes))


def comparison(name: str, trials: list[Trial], **changes: Any) -> Comparison:
    facts: dict[str, Any] = {
        "id": name.ljust(12, "0"),
        "state": "COMPLETE",
        "model_name": "m",
        "model_sha256": "a" * 64,
        "contestants": tuple(Contestant(trial=one.id, label="x", role="candidate") for one in trials),
        "protocol": {"precision": "normal"},
        "created_at": 1.0,
    }
    return Comparison(**(facts | changes))


def study(name: str) -> StudyRecord:
    return StudyRecord(
        id=name.ljust(12, "0"),
        state="COMPLETE",
        question={},
        spec={},
        model_name="m",
        model_sha256="a" * 64,
        created_at=1.0,
    )


def model(digit: str, name: str, **changes: Any) -> ModelRecord:
    info: Any = {"inputs": []}
    facts: dict[str, Any] = {"sha256": digit * 64, "name": name, "path": f"/{name}.onnx", "source": "upload"}
    return ModelRecord(content_sha256=digit * 64, info=info, created_at=1.0, **(facts | changes))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "ortune.db")


@pytest.fixture
def anna(store: Store) -> Store:
    return store.for_person(ANNA, sees_all=False)


@pytest.fixture
def ben(store: Store) -> Store:
    return store.for_person(BEN, sees_all=False)


def names(store: Store, **query: Any) -> list[str]:
    found, total = store.trial_page(Query(**query))
    assert total == len(found)
    return [one.id.rstrip("0") for one in found]


def test_a_new_result_belongs_to_its_person_and_is_shared(anna: Store, ben: Store) -> None:
    anna.create_trial(trial("t1"))
    assert ben.visibility([trial("t1").id]) == {trial("t1").id: Visibility(person=ANNA)}
    assert ben.trial(trial("t1").id) == trial("t1")


def test_a_private_result_exists_for_its_person_and_for_admins_alone(store: Store, anna: Store, ben: Store):
    one = trial("t1", study="sweep")
    anna.create_trial(one)
    assert anna.share([one.id], private=True) == [one.id]
    for who in (anna, store, store.for_person(ADMIN, sees_all=True)):
        assert who.trial(one.id) == one
        assert names(who) == ["t1"]
    assert names(ben) == []
    assert ben.trials() == ben.trials(study="sweep") == []
    assert ben.model_names() == []
    assert ben.checksums(Query()) == []
    assert ben.find_complete("k", "f") is None
    assert ben.deletion([one.id]).trials == ()
    assert anna.find_complete("k", "f") is not None


@pytest.mark.parametrize("given", [12, 8], ids=["the whole id", "its beginning"])
def test_a_guessed_link_is_answered_with_whose_result_it_is(anna: Store, ben: Store, given: int) -> None:
    one = trial("t1secret")
    anna.create_trial(one)
    anna.share([one.id], private=True)
    with pytest.raises(StoreError, match=f"private to `{ANNA}`") as caught:
        ben.trial(one.id[:given])
    assert "share" in caught.value.hint
    assert not isinstance(caught.value, MissingError)
    with pytest.raises(MissingError, match="no trial"):
        ben.trial("t2secret")


def test_all_trials_of_a_comparison_are_shared_with_one_of_them(anna: Store, ben: Store) -> None:
    trials = [trial(name, comparison="c1".ljust(12, "0")) for name in ("t1", "t2", "t3")]
    anna.create_comparison(comparison("c1", trials), trials)
    anna.create_trial(trial("t4"))
    anna.share([trials[1].id], private=True)
    assert names(ben) == ["t4"]
    assert ben.comparisons() == ben.trials_of("c1".ljust(12, "0")) == []
    with pytest.raises(StoreError, match="private"):
        ben.comparison("c1".ljust(12, "0"))
    anna.share([comparison("c1", trials).id])
    assert sorted(names(ben)) == ["t1", "t2", "t3", "t4"]


def test_a_search_is_private_with_all_its_comparisons_and_stays_so(anna: Store, ben: Store) -> None:
    anna.put_study(study("s1"))
    first = [trial("t1", comparison="c1".ljust(12, "0"), study=study("s1").id)]
    anna.create_comparison(comparison("c1", first, study=study("s1").id), first)
    anna.share([study("s1").id], private=True)
    assert ben.studies() == ben.comparisons() == []
    later = [trial("t2", comparison="c2".ljust(12, "0"), study=study("s1").id)]
    anna.create_comparison(comparison("c2", later, study=study("s1").id), later)
    anna.put_study(study("s1"))  # resumed
    assert names(ben) == []
    assert ben.studies() == []
    with pytest.raises(StoreError, match="private"):
        ben.study(study("s1").id)


def test_what_measures_a_private_comparison_longer_is_private(anna: Store, ben: Store) -> None:
    first = [trial("t1", comparison="c1".ljust(12, "0"))]
    anna.create_comparison(comparison("c1", first), first)
    anna.share([first[0].id], private=True)
    longer = [trial("t2", comparison="c2".ljust(12, "0"))]
    protocol = {"precision": "normal", "continues": "c1".ljust(12, "0")}
    anna.create_comparison(comparison("c2", longer, protocol=protocol), longer)
    assert names(ben) == []
    assert sorted(names(anna)) == ["t1", "t2"]


def test_models_and_accuracies_are_private_too(anna: Store, ben: Store) -> None:
    anna.put_model(model("1", "secret"))
    found = Accuracy(
        id="a1".ljust(12, "0"),
        key="k",
        model_sha256="1" * 64,
        model_name="secret",
        spec={},
        dataset={},
        reply={},  # type: ignore[typeddict-item]
        scores_path="",
        created_at=1.0,
        fingerprint="f",
    )
    anna.put_accuracy(found)
    anna.share(["1" * 64, found.id], private=True)
    assert ben.models() == ben.accuracies() == []
    assert ben.model("secret") is None
    assert ben.find_accuracy("k") is None
    with pytest.raises(StoreError, match="private"):
        ben.accuracy(found.id)
    anna.put_model(model("1", "renamed"))
    assert ben.models() == []  # a new name does not share it
    variant = model("2", "variant", details={"variant": {"root": "1" * 64}})
    anna.put_model(variant)
    assert ben.models() == []


def test_a_private_model_that_a_second_person_adds_is_shared(anna: Store, ben: Store) -> None:
    anna.put_model(model("1", "secret"))
    anna.share(["1" * 64], private=True)
    ben.put_model(model("1", "mine"))
    assert [one.name for one in anna.models()] == [one.name for one in ben.models()] == ["mine"]
    assert ben.visibility(["1" * 64]) == {"1" * 64: Visibility(person=ANNA)}


def test_only_its_person_and_admins_share_and_delete(store: Store, anna: Store, ben: Store) -> None:
    one = trial("t1")
    anna.create_trial(one)
    ben.create_trial(trial("t2"))
    for change in (
        lambda: ben.share([one.id], private=True),
        lambda: ben.delete_trials([trial("t2").id, one.id]),
        lambda: ben.delete_finished([one.id]),
    ):
        with pytest.raises(StoreError, match=rf"made by `{ANNA}`") as caught:
            change()
        assert "admin" in caught.value.hint
    assert sorted(names(store)) == ["t1", "t2"]
    anna.put_study(study("s1"))
    anna.put_model(model("1", "hers"))
    with pytest.raises(StoreError, match="deleted"):
        ben.delete_study(study("s1").id)
    with pytest.raises(StoreError, match="deleted"):
        ben.remove_model("1" * 64)
    ben.delete_trials([trial("t2").id, "unknown"])
    store.for_person(ADMIN, sees_all=True).delete_trials([one.id])
    assert names(store) == []
    assert store.visibility([one.id]) == {}


def test_results_of_earlier_versions_are_shared_and_admins_alone_delete_them(tmp_path: Path) -> None:
    path = tmp_path / "ortune.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", database.MIGRATIONS[:7])
        patch.setattr(database, "SCHEMA", 7)
        patch.setattr(sharing, "record", lambda *_, **__: None)
        Store(path).create_trial(trial("t1"))
    store = Store(path)
    ben = store.for_person(BEN, sees_all=False)
    assert ben.trial(trial("t1").id) == trial("t1")
    assert store.visibility([trial("t1").id]) == {}
    assert len(list(tmp_path.glob("ortune.db.format-7-*"))) == 1
    for change in (ben.delete_trials, lambda ids: ben.share(ids, private=True)):
        with pytest.raises(StoreError, match="no person"):
            change([trial("t1").id])
    store.for_person(ADMIN, sees_all=True).share([trial("t1").id], private=True)
    assert names(ben) == []
    assert store.check().damaged == 0


def test_a_change_of_the_file_that_shares_a_private_result_is_found(store: Store, anna: Store) -> None:
    anna.create_trial(trial("t1"))
    anna.share([trial("t1").id], private=True)
    assert store.check().visibility == (1, 0)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE visibility SET private = 0")
        db.commit()
    assert store.check().visibility == (1, 1)


def test_every_table_of_results_is_hidden_and_forgotten_with_its_row(store: Store) -> None:
    with store._database.reading() as db:
        tables = {row["name"] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    described = {"samples", "marks", "visibility"}  # parts of a trial
    public = {"settings", "inspections", "self_tests", "machine_time"}  # nothing of a result
    assert tables == KEYS.keys() | described | public


def test_a_name_that_is_no_plain_text_hides_and_finds_as_any_other(store: Store) -> None:
    odd = store.for_person("o'neil\"; --", sees_all=False)
    odd.create_trial(trial("t1"))
    odd.share([trial("t1").id], private=True)
    assert names(odd) == ["t1"]
    assert names(store.for_person("o", sees_all=False)) == []


def test_machine_time_is_added_per_person_and_old_times_are_dropped(store: Store) -> None:
    store.add_machine_time(ANNA, began=0.0, seconds=100.0)
    store.add_machine_time(ANNA, began=40 * 86_400.0, seconds=10.0)
    store.add_machine_time(ANNA, began=40 * 86_400.0 + 20, seconds=5.0)
    store.add_machine_time(BEN, began=40 * 86_400.0 + 30, seconds=1.0)
    assert store.machine_time(0.0) == {ANNA: 15.0, BEN: 1.0}
    assert store.machine_time(40 * 86_400.0 + 10) == {ANNA: 5.0, BEN: 1.0}
