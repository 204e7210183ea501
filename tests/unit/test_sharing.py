"""Persons of the store: who made a result, who sees it, and who may delete it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial
from core.store import (
    Accuracy,
    Change,
    ModelRecord,
    Query,
    Store,
    StudyRecord,
    Visibility,
    audit,
    database,
    imported,
    sharing,
)
from core.store.database import KEYS
from core.store.transfer import Origin
from core.wire.errors import MissingError, PrivateError, StoreError

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
    assert ben.whole_checksums([one.id]) == {}
    assert list(anna.whole_checksums([one.id])) == [one.id]
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


def test_a_model_that_a_second_person_adds_stays_as_it_is(store: Store, anna: Store, ben: Store) -> None:
    anna.put_model(model("1", "secret", details={"variant": {"root": "9" * 64}}))
    anna.share(["1" * 64], private=True)
    (before,) = anna.models()
    for added in (model("1", "mine"), model("2", "new", path=before.path)):
        with pytest.raises(PrivateError, match="private to another person") as caught:
            ben.put_model(added)
        assert ANNA not in caught.value.message + caught.value.hint
        assert "admin" in caught.value.hint
    store.for_person(ADMIN, sees_all=True).put_model(before)
    assert anna.models() == [before]
    assert anna.visibility(["1" * 64]) == {"1" * 64: Visibility(person=ANNA, private=True)}
    anna.share(["1" * 64], private=False)
    ben.put_model(model("1", "mine"))
    assert ben.models() == [before]
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
        for name in ("record", "follow_models"):
            patch.setattr(sharing, name, lambda *_, **__: None)
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


def test_machine_time_is_added_per_person_and_old_times_are_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MACHINE_TURNS_KEPT", 3)
    store.add_machine_time(ANNA, began=0.0, seconds=100.0)
    store.add_machine_time(ANNA, began=40 * 86_400.0, seconds=10.0)
    store.add_machine_time(ANNA, began=40 * 86_400.0 + 20, seconds=5.0)
    store.add_machine_time(BEN, began=40 * 86_400.0 + 30, seconds=1.0)
    assert store.machine_time(0.0) == {ANNA: 15.0, BEN: 1.0}
    assert store.machine_time(40 * 86_400.0 + 10) == {ANNA: 5.0, BEN: 1.0}


# --- private models -----------------------------------------------------------------------------------------


SECRET = "5" * 64


def of_secret(name: str, **changes: Any) -> Trial:
    return trial(name, model_name="secret", model_sha256=SECRET, **changes)


def accuracy(name: str, **changes: Any) -> Accuracy:
    facts: dict[str, Any] = {
        "id": name.ljust(12, "0"),
        "key": "k",
        "model_sha256": SECRET,
        "model_name": "secret",
        "spec": {},
        "dataset": {},
        "reply": {},
        "scores_path": "",
        "created_at": 1.0,
        "fingerprint": "f",
    }
    return Accuracy(**(facts | changes))


@pytest.fixture
def secret(anna: Store) -> str:
    anna.put_model(model("5", "secret", sha256="6" * 64))
    anna.share([SECRET], private=True)
    return SECRET


WAYS = {
    "content hash": {"model_sha256": SECRET},
    "file hash in the spec": {"model_sha256": "", "spec": {"model": {"path": "x.onnx", "sha256": "6" * 64}}},
    "path in the spec": {"model_sha256": "", "spec": {"model": {"path": "/secret.onnx"}}},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_new_result_of_a_private_model_is_private(
    anna: Store, ben: Store, secret: str, way: dict[str, Any]
) -> None:
    anna.create_trial(trial("t1", **way))
    pair = [trial("t2", **way, comparison="c1".ljust(12, "0")), trial("t3", comparison="c1".ljust(12, "0"))]
    anna.create_comparison(comparison("c1", pair), pair)
    anna.put_accuracy(accuracy("a1", **({"spec": {}} | way)))
    anna.put_study(replace(study("s1"), **way))
    assert len(names(anna)) == 3
    assert names(ben) == ben.comparisons() == ben.accuracies() == ben.studies() == []
    assert ben.model_names() == []
    assert ben.hidden([trial("t1").id, "unknown", SECRET, "6" * 64, "/secret.onnx", "/other.onnx"]) == {
        trial("t1").id,
        SECRET,
        "6" * 64,
        "/secret.onnx",
    }


def test_a_result_is_private_once_its_model_is_known(anna: Store, ben: Store, secret: str) -> None:
    one = [trial(name, model_sha256="", comparison="c1".ljust(12, "0")) for name in ("t1", "t2")]
    anna.create_comparison(comparison("c1", one, model_sha256=""), one)
    assert len(names(ben)) == 2  # no library knows `m.onnx` yet
    anna.update_trial(one[0].id, model_sha256=SECRET, model_name="secret")
    assert names(ben) == ben.comparisons() == []
    assert len(names(anna)) == 2


def test_further_models_of_a_load_test_and_a_search_count(anna: Store, ben: Store, secret: str) -> None:
    anna.create_trial(trial("t1", kind="load"), models=["/secret.onnx"])
    anna.put_study(study("s1"), models=["6" * 64])
    assert ben.trials(kind="load") == ben.studies() == []
    shared = [trial("t2", study=study("s2").id, comparison="c2".ljust(12, "0"))]
    anna.put_study(study("s2"))
    anna.create_comparison(comparison("c2", shared, study=study("s2").id), shared)
    assert len(ben.studies()) == 1
    later = [of_secret("t3", study=study("s2").id, comparison="c3".ljust(12, "0"))]
    anna.create_comparison(comparison("c3", later, study=study("s2").id), later)  # it evaluates the variant
    assert names(ben) == ben.studies() == []


def test_a_model_that_becomes_private_takes_all_its_results_and_variants(anna: Store, ben: Store) -> None:
    anna.put_model(model("5", "secret", sha256="6" * 64))
    variant = {"variant": {"root": SECRET, "parent": SECRET}}
    anna.put_model(model("7", "secret int8", details=variant))
    anna.put_model(model("8", "int8 of int8", details={"variant": {"root": "9" * 64, "parent": "7" * 64}}))
    anna.create_trial(of_secret("t1"))
    pair = [of_secret("t2", comparison="c1".ljust(12, "0")), trial("t3", comparison="c1".ljust(12, "0"))]
    anna.create_comparison(comparison("c1", pair), pair)
    anna.create_trial(trial("t4", model_sha256="7" * 64))
    anna.create_trial(trial("t5", model_sha256="", spec={"model": {"path": "x", "sha256": "6" * 64}}))
    anna.create_trial(trial("t6", kind="load", result={"load": {"labels": [f"of {'6' * 64}"]}}))
    anna.put_accuracy(accuracy("a1"))
    anna.put_study(replace(study("s1"), model_sha256=SECRET))
    ben.create_trial(of_secret("b1"))
    ben.create_trial(trial("b2"))
    anna.share([SECRET], private=True)
    assert sorted(names(ben)) == ["b1", "b2"]  # his own stays his
    assert sorted(names(anna)) == ["b2", "t1", "t2", "t3", "t4", "t5", "t6"]
    assert ben.models() == ben.accuracies() == ben.studies() == ben.comparisons() == []
    assert ben.trials(kind="load") == []
    assert names(anna.for_person("carl", sees_all=False)) == ["b2"]
    assert ben.private_model_names() == {"secret", "secret int8", "int8 of int8"}


def test_no_result_is_shared_before_its_model(anna: Store, ben: Store, secret: str) -> None:
    variant = model("7", "secret int8", details={"variant": {"root": SECRET, "parent": SECRET}})
    anna.put_model(variant)
    pair = [of_secret("t1", comparison="c1".ljust(12, "0")), trial("t2", comparison="c1".ljust(12, "0"))]
    anna.create_comparison(comparison("c1", pair), pair)
    anna.put_accuracy(accuracy("a1"))
    for one in (pair[1].id, comparison("c1", pair).id, accuracy("a1").id, variant.content_sha256):
        with pytest.raises(StoreError, match="`secret` is private") as caught:
            anna.share([one])
        assert "Share the model first" in caught.value.hint
    assert names(ben) == ben.models() == []
    anna.share([SECRET])
    assert [one.name for one in ben.models()] == ["secret"]
    assert names(ben) == []  # the model alone
    anna.share([pair[1].id])
    assert sorted(names(ben)) == ["t1", "t2"]


def test_rows_of_a_fleet_follow_their_model(tmp_path: Path, anna: Store, ben: Store, secret: str) -> None:
    other = Store(tmp_path / "host" / "ortune.db")
    other.create_trial(of_secret("t1"), process="host/1/1.0")
    anna.adopt(other.rows_of("host/1/1.0"), Origin(owner="fleet host h"))
    assert names(anna) == ["t1"]
    assert names(ben) == []


def test_only_own_results_are_tagged_and_pinned(store: Store, anna: Store, ben: Store) -> None:
    hers, his = trial("hers"), trial("his")
    anna.create_trial(hers)
    ben.create_trial(his)
    for change in (Change(starred=True), Change(archived=True), Change(add=("x",)), Change(note="mine")):
        with pytest.raises(StoreError, match=ANNA):
            ben.mark([his.id, hers.id], change)
    assert store.marks([his.id, hers.id]) == {}
    with pytest.raises(StoreError, match=ANNA):
        ben.pin_baseline("m", hers.id)
    anna.pin_baseline("m", hers.id)
    with pytest.raises(StoreError, match=ANNA):
        ben.pin_baseline("m", None)
    assert store.baseline("m") == hers.id
    ben.mark([his.id], Change(starred=True))
    ben.pin_baseline("m", his.id)
    store.mark([hers.id, his.id], Change(starred=False))  # an admin changes all
    store.pin_baseline("m", None)
    ben.pin_baseline("m", None)


def test_an_import_replaces_own_ones_only(
    store: Store, anna: Store, ben: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "MOST", 3)

    def put(person: Store, at: float) -> str:
        found = {"profile": {}, "summary": None, "format": "f", "sha256": str(at)}
        return person.shelf.put(found, name=f"{at}.json", at=at).id

    hers = [put(anna, 1.0), put(anna, 2.0)]
    anna.share(hers[:1], private=True)
    his = [put(ben, at) for at in (3.0, 4.0)]
    assert {one.id for one in store.shelf.all()} == {*hers, his[-1]}
    removed = [one for one in audit.entries(store.folder, action="delete")]
    assert [one.more["ids"] for one in removed] == [[his[0]]]
    store.shelf.delete(his[-1])
    put(anna, 5.0)
    with pytest.raises(StoreError, match="3 imports"):
        put(ben, 6.0)
    assert len(store.shelf.all()) == len(list(store.shelf.folder.glob("*.data"))) == 3


def test_imports_have_a_person_and_are_shared_or_private(anna: Store, ben: Store, store: Store) -> None:
    profile = {"profile": {"x": 1}, "summary": None, "format": "f", "sha256": "a" * 64}
    hers = anna.shelf.put(profile, name="secret.json", at=1.0)
    assert [one.name for one in ben.shelf.all()] == ["secret.json"]
    with pytest.raises(StoreError, match=ANNA):
        ben.shelf.delete(hers.id)
    his = ben.shelf.put(profile, name="his.json", at=2.0)  # the same file, and hers stays
    assert {one.id for one in anna.shelf.all()} == {hers.id, his.id}
    anna.share([hers.id], private=True)
    assert [one.id for one in ben.shelf.all()] == [his.id]
    for read in (ben.shelf.get, ben.shelf.data):
        with pytest.raises(StoreError, match="has the id"):
            read(hers.id)
    for one in (anna, store):
        assert one.shelf.data(hers.id) == {"x": 1}
    anna.shelf.delete(hers.id)
    assert [one.id for one in anna.shelf.all()] == [his.id]
    assert store.visibility([hers.id]) == {}
