"""What SQLite reads for a question: rows by an index, never a whole table of many gigabytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.show.report.subjects import find
from core.store import Query, Store, database
from core.store.database import INDEXES
from core.wire.errors import StoreError
from tests import large_stores
from tests.builders import trial

TABLES = ("trials", "comparisons", "studies", "accuracies", "samples")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return large_stores.fill(tmp_path_factory.mktemp("large") / "ortune.db", 300)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that SQLite plans for each SELECT and DELETE of the store."""
    found: list[str] = []

    class Planned(sqlite3.Connection):
        def execute(self, query: str, *bound: Any) -> sqlite3.Cursor:
            if query.startswith(("SELECT", "DELETE", "WITH")):
                steps = super().execute(f"EXPLAIN QUERY PLAN {query}", *bound).fetchall()
                found.extend(step[3] for step in steps)
            return super().execute(query, *bound)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Planned))
    return found


def scans(plans: list[str], table: str = "trials") -> list[str]:
    """The steps that read every row of a table, or every entry of one of its indexes."""
    return [step for step in plans if step == f"SCAN {table}" or step.startswith(f"SCAN {table} ")]


def test_a_trial_and_its_comparison_are_read_by_their_indexes(store: Store, plans: list[str]) -> None:
    one = next(one for one in store.trials(kind="measure") if one.comparison)
    plans.clear()
    assert store.trial(one.id[:8]).id == one.id
    assert one.id in {other.id for other in store.trials_of(one.comparison)}
    with pytest.raises(StoreError):
        store.trial("ffffffffff")
    assert plans
    assert not scans(plans)


def test_ids_that_begin_alike_are_told_apart(store: Store) -> None:
    one = store.trials()[0].id
    assert store.trial_id(one[:12]) == one
    with pytest.raises(StoreError):
        store.trial_id(f"{one[:12]}\U0010ffff")


@pytest.mark.parametrize("order", ["newest", "oldest", "p50", "gain"])
@pytest.mark.parametrize("person", [None, "anna"])
def test_a_text_search_reads_the_index_of_words(
    store: Store, plans: list[str], order: Any, person: str | None
) -> None:
    reader = store if person is None else store.for_person(person, sees_all=False)
    _, total = reader.trial_page(Query(text="mlp edge", order=order), limit=5)
    assert total
    steps = scans(plans) + scans(plans, "marks") + scans(plans, "one")  # "one": of the views of a person
    assert sum("trials_by_words" in step for step in steps) == 2 * 2  # words, in the count and in the page
    without_index = [step for step in steps if " INDEX " not in step]
    assert len(without_index) == 2 * 3, steps  # the tags: of each word, and the archived ones
    assert "SCAN trials" not in without_index


def test_a_text_search_finds_what_the_rows_contain(store: Store) -> None:
    every, _ = store.trial_page(Query(archived=True), limit=1000)
    tags = store.marks([one.id for one in every])
    for word in ("mlp", "CPUExecutionProvider", "conv", "phone", "edge", every[3].id[2:9], "nowhere"):
        wanted = {
            one.id
            for one in every
            if word in f"{one} {tags.get(one.id, '')}" and word not in str(one.fingerprint)
        }
        found, total = store.trial_page(Query(text=word, archived=True), limit=1000)
        assert {one.id for one in found} <= wanted, word
        assert total == len(found)
        assert bool(found) == bool(wanted), word


def test_a_list_does_not_read_the_index_of_words(store: Store, plans: list[str]) -> None:
    for query in (Query(), Query(kind="profile"), Query(states=("FAIL",)), Query(model_name="mlp_03")):
        store.trial_page(query)
    assert scans(plans)
    assert not [step for step in plans if "trials_by_words" in step]


def test_the_trials_of_a_search_are_read_by_their_index(store: Store, plans: list[str]) -> None:
    study = store.studies()[0].id
    plans.clear()
    assert store.trials(study=study)
    assert not scans(plans)
    plans.clear()
    store.share([study])
    assert plans
    assert not scans(plans)


def test_results_of_a_model_are_read_by_their_indexes(store: Store, plans: list[str]) -> None:
    one = next(one for one in store.trials(kind="measure") if one.comparison)
    plans.clear()
    assert store.trials(model_sha256=one.model_sha256, kind="reference", state="COMPLETE")
    assert store.comparisons(model_sha256=one.model_sha256, limit=1)
    assert plans
    assert not scans(plans) + scans(plans, "comparisons")
    assert store.comparisons(compared_sha256=one.model_sha256)
    assert not scans(plans)


def test_trials_of_a_kind_are_read_by_their_index(store: Store, plans: list[str]) -> None:
    """A page asks for load tests or profiles among a hundred thousand measurements."""
    assert not store.trials(kind="load", limit=2000)
    assert store.trials(kind="profile")
    store.trial_page(Query(kind="profile"))
    assert plans
    assert not scans(plans)
    store.trials(kind="measure", state="WAITING")
    store.trials(state="RUNNING", limit=1)
    assert set(scans(plans)) == {"SCAN trials USING INDEX trials_unfinished"}  # it has no other rows


def test_what_is_of_a_study_is_read_by_its_index(store: Store, plans: list[str]) -> None:
    [name, *_] = store.comparison_studies()
    plans.clear()
    assert store.comparisons(study=name, limit=1)
    assert store.studies(model_sha256=store.studies()[0].model_sha256)
    assert not scans(plans, "comparisons")
    assert not [step for step in scans(plans, "studies") if "studies_by_age" not in step]


def test_a_report_is_found_without_reading_other_comparisons(store: Store, plans: list[str]) -> None:
    """Each kind of result may have the given ID, also a sweep by its name."""
    one = next(one for one in store.trials(kind="measure") if one.comparison)
    study = next(one for one in store.comparison_studies() if " " in one)
    plans.clear()
    find(store, [one.id])
    find(store, [study])
    assert plans
    assert not scans(plans)
    assert not [step for step in scans(plans, "comparisons") if "COVERING INDEX" not in step]


# Lists of everything read an index in their order, or one that has all that they need.
_LISTS: Mapping[str, Callable[[Store], Any]] = {
    "trials": lambda store: store.trials(limit=9),
    "comparisons": lambda store: store.comparisons(limit=9),
    "searches": lambda store: store.studies(limit=9),
    "accuracies": lambda store: store.accuracies(limit=9),
    "names of models": Store.model_names,
    "labels": Store.labels,
    "use of the disk": Store.disk_use,
    "state of the store": lambda store: store.checksums(Query()),
    **{
        f"history, {order}": partial(Store.trial_page, query=Query(order=order))
        for order in ("newest", "oldest", "p50", "gain", "study")
    },
    "history, model": lambda store: store.trial_page(Query(model_name="mlp_03", order="study")),
    "history, failed": lambda store: store.trial_page(Query(states=("FAIL",))),
    "history, stars": lambda store: store.trial_page(Query(starred=True)),
    "history, label": lambda store: store.trial_page(Query(labels=("edge",))),
}


@pytest.mark.parametrize("name", _LISTS)
def test_no_list_reads_a_whole_table_without_an_index(store: Store, plans: list[str], name: str) -> None:
    _LISTS[name](store)
    assert plans
    assert not [step for one in TABLES for step in scans(plans, one) if " INDEX " not in step]


def test_unfinished_rows_are_read_by_their_indexes(store: Store, plans: list[str]) -> None:
    assert store.interrupt_orphans(lambda process, created_at: True) == 0
    read = [step for step in plans if step.startswith("SCAN")]
    assert len(read) == 3
    assert all(step.endswith("_unfinished") for step in read), read


def test_a_deletion_reads_only_its_comparisons(store: Store, plans: list[str]) -> None:
    one = next(one for one in store.trials(kind="measure") if one.comparison)
    comparison = {other.id for other in store.trials_of(one.comparison) if other.kind != "reference"}
    plans.clear()
    assert store.deletion(sorted(comparison)).comparisons == 1
    store.delete_trials(sorted(comparison))
    assert not store.trials_of(one.comparison)
    with pytest.raises(StoreError):
        store.comparison(one.comparison)
    assert plans
    assert not [step for table in TABLES for step in scans(plans, table)]


def test_the_rows_of_a_process_are_read_by_its_index(store: Store, plans: list[str]) -> None:
    one = trial()
    store.create_trial(one, process="this")
    assert store.rows_of("this").ids()["trials"] == [one.id]
    assert len([step for step in plans if "_by_process" in step]) == 4
    assert not [step for table in TABLES for step in scans(plans, table)]


def indexes(db: sqlite3.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql <> ''"))


def test_a_store_without_the_newest_indexes_gets_them_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ortune.db"
    Store(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP INDEX trials_by_process")
        db.execute("DROP INDEX trials_listed")
        db.execute("CREATE INDEX trials_listed ON trials (created_at)")  # of an earlier definition
    with closing(sqlite3.connect(path)) as db, monkeypatch.context() as patch:
        patch.setattr(database, "BUSY_S", 0.05)
        db.execute("BEGIN IMMEDIATE")  # another process writes: it opens without them
        assert Store(path).trials() == []
        assert indexes(db) != INDEXES
    Store(path)
    with closing(sqlite3.connect(path)) as db:
        assert indexes(db) == INDEXES
