"""Stars, labels, notes and archived results: stored, found again, and never a part of the measurement."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.evidence.measurement import Trial
from core.store import Change, Query, Store, Tags, database, restore, sharing
from core.wire.errors import SpecError, StoreError


def trial(number: int, **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "id": f"{number:012x}",
        "kind": "measure",
        "state": "COMPLETE",
        "spec": {"model": {"path": "m.onnx"}},
        "model_name": "m",
        "model_sha256": "a" * 64,
        "key": "k",
        "created_at": float(number),
        "result": {"latency": {"p50_s": 0.001 * number}, "latencies_s": [0.001] * 50},
    }
    return Trial(**(facts | changes))


ONE, TWO, THREE = (f"{number:012x}" for number in (1, 2, 3))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "ortune.db")
    for number in (1, 2, 3):
        made.create_trial(trial(number))
    return made


def ids(store: Store, **query: Any) -> list[int]:
    found, total = store.trial_page(Query(**query))
    assert total == len(found)
    return [int(one.id, 16) for one in found]


def test_a_tag_is_kept_and_changes_nothing_that_was_measured(store: Store) -> None:
    before = store.trial(TWO)
    now = store.mark([TWO], Change(starred=True, add=("b", "a  b", "a"), note=" good \n"))
    assert now == {TWO: Tags(starred=True, labels=("a", "a b", "b"), note="good")}
    assert Store(store.path).marks([ONE, TWO]) == now
    assert store.trial(TWO) == before
    store.mark([TWO, ONE], Change(archived=True, remove=("b", "never given")))
    assert store.marks([ONE, TWO]) == {
        ONE: Tags(archived=True),
        TWO: Tags(starred=True, archived=True, labels=("a", "a b"), note="good"),
    }
    store.mark([ONE], Change(archived=False))
    assert list(store.marks([ONE, TWO])) == [TWO]


def test_tags_are_changed_for_all_or_for_none(store: Store) -> None:
    with pytest.raises(StoreError, match="trial"):
        store.mark([ONE, "feedbeef"], Change(starred=True))
    assert store.marks([ONE]) == {}


@pytest.mark.parametrize("label", ["", "  ", "a,b", "x" * 41, "a\x00b"])
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(SpecError, match="label"):
        Change(add=(label,))


def test_more_than_a_trial_may_have_is_refused(store: Store) -> None:
    store.mark([ONE], Change(add=tuple(f"l{number}" for number in range(20))))
    with pytest.raises(SpecError, match=r"20 .* 21"):
        store.mark([ONE], Change(add=("one more",)))
    with pytest.raises(SpecError, match=r"2,000 .*2,001"):
        Change(note="x" * 2001)
    with pytest.raises(SpecError, match="once"):
        Change(add=("a",), remove=("a",))


def test_lists_are_filtered_by_tags_and_texts(store: Store) -> None:
    store.create_trial(trial(4, model_name="other", spec={"session": {"intra_op_num_threads": 7}}))
    store.create_trial(trial(5, kind="reference"))
    store.create_trial(trial(6, state="FAIL", result=None, error={"message": "Out of Memory", "type": "x"}))
    store.mark([ONE, TWO], Change(starred=True))
    store.mark([TWO, THREE], Change(add=("keep", "x y")))
    store.mark([THREE], Change(archived=True, note="Slow on Mondays"))
    assert ids(store) == [6, 4, 2, 1]
    assert ids(store, archived=True) == [6, 4, 3, 2, 1]
    assert ids(store, starred=True) == [2, 1]
    assert ids(store, labels=["keep", "x y"], archived=True) == [3, 2]
    assert ids(store, labels=["kee"]) == []
    assert ids(store, text="MONDAYS slow", archived=True) == [3]
    assert ids(store, text="intra_op_num_threads") == [4]
    assert ids(store, text="memory out") == [6]
    assert ids(store, model_name="m", states=["COMPLETE"]) == [2, 1]
    assert ids(store, kind="reference") == [5]
    assert ids(store, ids=[ONE, "unknown"]) == [1]
    assert store.labels() == ["keep", "x y"]
    assert store.model_names() == ["m", "other"]


@pytest.mark.parametrize("word", ["without", "effort", "operators"])
def test_a_word_of_a_note_that_is_also_the_short_name_of_a_setting_is_found(store: Store, word: str) -> None:
    store.mark([TWO], Change(note=f"once more {word} it"))
    assert ids(store, text=word) == [2]


@pytest.mark.parametrize("word", ["Ärger", "Übung", "Größe", "größe"])
def test_words_beyond_plain_letters_are_found(tmp_path: Path, word: str) -> None:
    store = Store(tmp_path / "ortune.db")
    one = trial(1, model_name="Ärger")
    store.create_trial(one, process="p")
    store.mark([one.id], Change(add=("Übung", "other"), note="Größe"))
    assert ids(store, text=f"{word} other") == [1]
    assert ids(store, text=f"{word}x") == []


def test_lists_have_an_order_and_pages(store: Store) -> None:
    def put(number: int, p50_s: float | None, ratio: float, *, grade: str = "A") -> None:
        result: Any = {"grade": grade, "contrasts": [{"ratio": ratio, "holds": grade != "F"}]}
        if p50_s is not None:
            result["latency"] = {"p50_s": p50_s}
        store.create_trial(trial(number, result=result))

    put(4, 0.0005, 1.5)
    put(5, None, 1.2)
    put(6, 0.1, 9.0, grade="F")
    assert ids(store, order="oldest") == [1, 2, 3, 4, 5, 6]
    assert ids(store, order="p50") == [4, 1, 2, 3, 6, 5]  # what has none comes last
    assert ids(store, order="gain")[:2] == [4, 5]  # a rejected contrast is no speed-up
    page, total = store.trial_page(Query(), offset=2, limit=2)
    assert ([int(one.id, 16) for one in page], total) == ([4, 3], 6)


def test_orders_and_counts_read_indexes_and_no_rows(store: Store) -> None:
    with closing(sqlite3.connect(store.path)) as db:
        for order in (database.BY_P50, database.BY_GAIN):
            plan = db.execute(f"EXPLAIN QUERY PLAN SELECT rowid FROM trials ORDER BY {order} DESC LIMIT 9")
            assert not any("TEMP B-TREE" in row[3] for row in plan)
        plan = db.execute("EXPLAIN QUERY PLAN SELECT count(*) FROM trials WHERE kind NOT IN ('reference')")
        assert "COVERING INDEX" in plan.fetchall()[0][3]


def test_tags_go_with_backups_and_with_their_trials(store: Store, tmp_path: Path) -> None:
    store.mark([ONE, TWO], Change(starred=True, add=("kept",)))
    copy = tmp_path / "copy.db"
    assert store.backup(copy).marks == (2, 0)
    store.delete_trials([ONE])
    assert store.marks([ONE, TWO]) == {TWO: Tags(starred=True, labels=("kept",))}
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("SELECT id FROM marks").fetchall() == [(TWO,)]
    restore(copy, store.path)
    assert set(Store(store.path).marks([ONE, TWO])) == {ONE, TWO}


def test_pruned_and_newly_written_trials_keep_their_tags(store: Store) -> None:
    store.mark([ONE], Change(note="mine"))
    store.update_trial(ONE, study="s")
    store.prune(before=10.0)
    assert store.marks([ONE]) == {ONE: Tags(note="mine")}


def test_damaged_tags_are_none_and_are_counted(store: Store) -> None:
    store.mark([ONE, TWO], Change(starred=True))
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE marks SET note = 'never written' WHERE id = ?", (ONE,))
        db.commit()
    assert list(store.marks([ONE, TWO])) == [TWO]
    assert store.check().marks == (2, 1)
    assert store.check().damaged == 1
    assert store.trial(ONE).state == "COMPLETE"
    store.mark([ONE], Change(starred=True))
    assert store.check().damaged == 0


def test_store_of_the_format_before_tags_is_migrated_with_all_its_trials(tmp_path: Path) -> None:
    path = tmp_path / "ortune.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", database.MIGRATIONS[:6])
        patch.setattr(database, "SCHEMA", 6)
        for later in ("record", "follow_models"):  # that version had no persons
            patch.setattr(sharing, later, lambda *_, **__: None)
        old = Store(path)
        for number in (1, 2):
            old.create_trial(trial(number))
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE trials SET result = 'no JSON {' WHERE id = ?", (TWO,))
            db.commit()
    store = Store(path)
    assert store.trial(ONE) == trial(1)
    assert [one.state for one in store.trial_page(Query())[0]] == ["DAMAGED", "COMPLETE"]
    assert len(list(tmp_path.glob("ortune.db.format-6-*"))) == 1
    assert store.mark([ONE], Change(starred=True)) == {ONE: Tags(starred=True)}
    with pytest.MonkeyPatch.context() as patch:  # the version before finds a file that it does not know
        patch.setattr(database, "MIGRATIONS", database.MIGRATIONS[:6])
        patch.setattr(database, "SCHEMA", 6)
        with pytest.raises(StoreError, match=" 6 "):
            Store(path)


def test_what_would_be_deleted_is_said_and_a_running_trial_is_not(store: Store) -> None:
    store.create_trial(trial(7, state="RUNNING", result=None))
    store.mark([ONE], Change(starred=True))
    found = store.deletion([ONE, TWO, "unknown"])
    assert (found.trials, found.starred, found.references) == ((ONE, TWO), 1, 0)
    assert found.samples_bytes > 0
    running = f"{7:012x}"
    with pytest.raises(StoreError, match="ended"):
        store.delete_finished([ONE, running])
    assert ids(store) == [7, 3, 2, 1]
    assert store.delete_finished([ONE, TWO]) == found
    assert ids(store) == [7, 3]


def test_a_checksum_changes_with_its_trial_alone(store: Store) -> None:
    before = dict(store.checksums(Query()))
    assert store.checksums(Query(), limit=1) == [*before.items()][:1]
    store.mark([ONE], Change(starred=True))
    assert dict(store.checksums(Query())) == before
    store.update_trial(ONE, study="s")
    after = dict(store.checksums(Query()))
    assert [one for one in before if before[one] != after[one]] == [ONE]
