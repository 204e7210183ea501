"""Damaged stores: what is not what was written is told as damaged, and hides nothing around it; copies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.cli import run
from core.run.job_log import clean_up, this_process
from core.store import Accuracy, Query, Store, database, lost_by_restore, restore, restoring
from core.wire.errors import StoreError
from tests.reading import numbers, tells
from tests.small_disks import small_disk
from tests.unit.test_searches import study
from tests.unit.test_store import (
    FORMAT_3,
    OLD_RAW,
    old_store,
    put_comparison,
    record,
    result,
    trial,
)

__all__ = ["old_store"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    return Store()


def change(store: Store, statement: str, *values: Any) -> None:
    """What a failing disk might do: the seals do not follow."""
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(statement, values)
        db.commit()


def put(store: Store, name: str, **changes: Any) -> None:
    store.create_trial(trial(name, state="COMPLETE", fingerprint="f1", result=result(), **changes))


DAMAGES = {
    "a digit": "UPDATE trials SET result = replace(result, '0.001', '0.002') WHERE id = ?",
    "cut": "UPDATE trials SET result = substr(result, 1, 20) WHERE id = ?",
    "no text": "UPDATE trials SET spec = CAST(x'7b22ff227d' AS TEXT) WHERE id = ?",
    "bytes": "UPDATE trials SET spec = x'00ff' WHERE id = ?",
    "a number": "UPDATE trials SET spec = 7 WHERE id = ?",
    "another state": "UPDATE trials SET state = 'CMPLETE' WHERE id = ?",
    "another name": "UPDATE trials SET model_name = CAST(x'ff6d' AS TEXT) WHERE id = ?",
    "a time that is none": "UPDATE trials SET created_at = 'yesterday' WHERE id = ?",
    "another checksum": "UPDATE trials SET checksum = '1:0' WHERE id = ?",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_row_is_told_as_damaged_and_hides_no_other(
    store: Store, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, "whole1")
    put(store, "broken1")
    change(store, statement, "broken1")
    assert [one.id for one in store.trials()] == ["whole1"]
    shown = {one.id: one for one in store.trial_page(Query())[0]}
    assert shown["whole1"].state == "COMPLETE"
    assert (shown["broken1"].state, shown["broken1"].result) == ("DAMAGED", None)
    with pytest.raises(StoreError, match="broken1") as caught:
        store.trial("broken1")
    assert caught.value.hint
    assert store.trial("whole1").result == result()
    assert run(["history", "--wide"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("broken1" in line and "DAMAGED" in line for line in lines)
    assert run(["history", "--json"]) == 0
    told = {one["trial"]: one for one in json.loads(capsys.readouterr().out)["trials"]}
    assert told["broken1"]["state"] == "DAMAGED"
    assert told["broken1"]["latency"] is None
    assert "damaged" in told["broken1"]["error"]["message"]
    assert run(["export", "broken1"]) == 2
    assert "damaged" in capsys.readouterr().err


def test_damaged_measurement_is_not_reused_and_can_be_deleted(store: Store) -> None:
    put(store, "older1", finished_at=1.0)
    put(store, "newer1", finished_at=2.0)
    change(store, "UPDATE trials SET result = '{' WHERE id = 'newer1'")
    found = store.find_complete("key", "f1")
    assert found is not None
    assert found.id == "older1"
    put_comparison(store, "race", ["cand", "base"])
    change(store, "UPDATE comparisons SET contestants = '[{' WHERE id = 'race'")
    store.delete_trials(["newer1"])
    assert [one.id for one in store.trial_page(Query())[0] if one.id == "newer1"] == []


def test_damaged_samples_are_told_even_where_they_unpack(store: Store) -> None:
    put(store, "aaaaaa000001")
    store.create_trial(trial("bbbbbb000001", state="COMPLETE", result=result(latencies_s=[9.0])))
    change(
        store,
        "UPDATE samples SET data = (SELECT data FROM samples WHERE trial = 'bbbbbb000001')"
        " WHERE trial = 'aaaaaa000001'",
    )
    with pytest.raises(StoreError, match="aaaaaa000001"):
        store.trial("aaaaaa000001")


def test_change_of_a_damaged_row_does_not_make_it_sound(store: Store) -> None:
    store.create_trial(trial("broken1", state="RUNNING"))
    change(store, "UPDATE trials SET spec = '{}' WHERE id = 'broken1'")
    store.update_trial("broken1", state="COMPLETE", result=result())
    assert store.trial_page(Query())[0][0].state == "DAMAGED"
    clean_up(store)
    store.prune(keep_bytes=0)
    assert store.trial_page(Query())[0][0].state == "DAMAGED"


def test_unfinished_rows_that_are_damaged_stop_nobody(store: Store) -> None:
    for number, process in enumerate(("x'ff'", "7", "CAST(x'ff' AS TEXT)")):
        store.create_trial(trial(f"lost{number}"), process="p")
        change(store, f"UPDATE trials SET process = {process} WHERE id = 'lost{number}'")
    clean_up(store)
    assert len(store.trial_page(Query())[0]) == 3


def test_damaged_comparisons_and_accuracies_are_told(store: Store) -> None:
    for name in ("race1x", "race2x"):
        put_comparison(store, name, [f"{name}-cand", f"{name}-base"])
    change(store, "UPDATE comparisons SET protocol = '{\"seed\": 9}' WHERE id = 'race1x'")
    assert [one.id for one in store.comparisons()] == ["race2x"]
    with pytest.raises(StoreError, match="race1x"):
        store.comparison("race1x")
    one = Accuracy(
        id="acc111",
        key="k",
        model_sha256="sha",
        model_name="m",
        spec={},
        dataset={"path": "x"},
        reply={"rows": 3},  # type: ignore[typeddict-item, typeddict-unknown-key]
        scores_path="s",
        created_at=1.0,
        fingerprint="f1",
    )
    store.put_accuracy(one)
    assert store.accuracy("acc111") == one
    change(store, "UPDATE accuracies SET reply = '{\"rows\":4}'")
    assert store.accuracies() == []
    assert store.find_accuracy("k", "f1") is None
    with pytest.raises(StoreError, match="acc111"):
        store.accuracy("acc111")


def test_damaged_entry_of_the_library_and_of_the_cache_are_none(store: Store) -> None:
    store.put_model(record())
    store.put_info("/m.onnx", {"": [1]}, record().info)
    store.put_self_test("f1", {"grade": "A"}, at=1.0)
    for table, column in (("models", "info"), ("inspections", "info"), ("self_tests", "data")):
        change(store, f"UPDATE {table} SET {column} = '{{'")
    assert store.models() == []
    assert store.model("digits") is None
    assert store.cached_info("/m.onnx") is None
    assert store.self_tests("f1") == []


def test_flipped_bits_are_never_shown_as_if_they_were_sound(tmp_path: Path) -> None:
    made = Store(tmp_path / "made" / "ortune.db")
    for number in range(40):
        put(made, f"t{number:05}", spec={"model": {"path": f"m{number}.onnx"}, "note": "x" * number * 20})
    want = {one.id: made.trial(one.id) for one in made.trials()}
    with closing(sqlite3.connect(made.path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = made.path.read_bytes()
    told = 0
    for seed in range(60):
        drawn = random.Random(seed)
        changed = bytearray(content)
        for _ in range(8):
            changed[drawn.randrange(4096, len(changed))] ^= 1 << drawn.randrange(8)
        path = tmp_path / str(seed) / "ortune.db"
        path.parent.mkdir()
        path.write_bytes(changed)
        told += not _shows_what_was_written(path, want)
    assert told > 5  # the others hit unused space


def test_damaged_table_of_contents_is_damage_whatever_sqlite_says_of_it(tmp_path: Path) -> None:
    made = Store(tmp_path / "made" / "ortune.db")
    put(made, "first1")
    want = {"first1": made.trial("first1")}
    with closing(sqlite3.connect(made.path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = made.path.read_bytes()
    spoilt = [
        content.replace(b"trials_by_age", b"tri\xff\xfe_by_age"),
        content.replace(b"CREATE TABLE", b"CREATE\xffTABLE"),
    ]
    for seed in range(40):
        drawn = random.Random(seed)
        changed = bytearray(content)
        for _ in range(4):
            changed[drawn.randrange(100, 4096 * 2)] ^= 1 << drawn.randrange(8)
        spoilt.append(bytes(changed))
    told = 0
    for number, one in enumerate(spoilt):
        path = tmp_path / str(number) / "ortune.db"
        path.parent.mkdir()
        path.write_bytes(one)
        told += not _shows_what_was_written(path, want)
    assert told > 5


def _shows_what_was_written(path: Path, want: dict[str, Any]) -> bool:
    """False where damage is told; what is shown without it must be what was written."""
    try:
        store = Store(path)
        listed = store.trial_page(Query())[0]
    except StoreError:
        return False
    whole = True
    for one in listed:
        if one.state == "DAMAGED":
            whole = False
            continue
        try:
            full = store.trial(one.id)
        except StoreError:
            whole = False
        else:
            assert full == want[one.id]
    return whole


def test_a_store_is_read_with_locks_or_not_at_all_when_descriptors_run_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_read_only_view", lambda *_: pytest.fail("read without locks"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(1))
        for _ in range(3):  # SQLite needs three: the store, its journal and its index
            with pytest.raises(StoreError, match="cannot be used"):
                Store(store.path)
            os.close(taken.pop())
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert Store(store.path).trials() == []


def test_damage_seen_without_locks_renames_no_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        put(store, f"trial{number}")
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = store.path.read_bytes()
    store.path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    connection = database._connection

    def without_locks(path: Path, how: str = "") -> Any:
        if not how:
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorname = "SQLITE_READONLY"
            raise error
        return connection(path, how)

    monkeypatch.setattr(database, "_connection", without_locks)
    with pytest.raises(StoreError, match="is damaged"):
        Store(store.path)
    assert store.path.exists()
    monkeypatch.undo()
    with pytest.raises(StoreError, match=r"kept as `ortune\.db\.corrupt-"):
        Store(store.path)


def test_message_of_sqlite_that_is_no_text_is_damage(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> int:
        return len(b"\xff".decode())

    with monkeypatch.context() as patch:
        patch.setattr(database, "_check_format", broken)
        with pytest.raises(StoreError, match=r"ortune\.db\.corrupt-"):
            Store(store.path)
    assert Store(store.path).trials() == []


def test_rows_of_an_older_store_get_checksums_when_it_is_migrated(old_store: Path) -> None:
    before = old_store.read_bytes()
    store = Store(old_store)
    assert store.trial("older1").result == {"batch_size": 1, **OLD_RAW}
    (kept,) = old_store.parent.glob("ortune.db.format-3-*")
    with closing(sqlite3.connect(kept)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT count(*) FROM trials").fetchone() == (2,)
    assert len(before) <= kept.stat().st_size * 2
    Store(old_store)
    assert len(list(old_store.parent.glob("ortune.db.format-3-*"))) == 1
    assert store.check().damaged == 0
    change(store, "UPDATE trials SET model_name = 'other'")
    shown = {one.id: one.state for one in store.trial_page(Query())[0]}
    assert shown == {"older1": "DAMAGED", "newer1": "DAMAGED"}


def test_migration_without_space_for_its_copy_changes_nothing(
    old_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database, "copy", full)
    with pytest.raises(StoreError, match="space"):
        Store(old_store)
    with closing(sqlite3.connect(old_store)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
    assert len(FORMAT_3) > 3


# --- backup and restore -------------------------------------------------------------------------------------


def test_backup_of_a_home_that_is_read_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk() as disk:
        store = Store(disk / "ortune.db")
        put(store, "first1")
        with closing(sqlite3.connect(store.path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        remount = ["mount", "-o", "remount,ro", str(disk)]
        assert subprocess.run(remount, capture_output=True, check=False).returncode == 0
        found = store.backup(tmp_path / "kept.db")
    assert (found.trials, found.damaged) == ((1, 0), 0)
    assert [one.id for one in Store(tmp_path / "kept.db").trials()] == ["first1"]


def test_backup_is_one_file_that_restore_brings_back(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, "first1")
    kept = tmp_path / "kept.db"
    assert run(["backup", str(kept), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["file"], document["trials"], document["damaged"]) == (str(kept), [1, 0], 0)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["home", "kept.db"]
    put(store, "later1")
    assert run(["restore", str(kept), "--force"]) == 0
    said = capsys.readouterr().out
    assert tells(said, " 1 trial")
    assert [one.id for one in store.trials()] == ["first1"]
    assert store.trial("first1").result == result()
    (before,) = store.folder.glob("ortune.db.before-restore-*")
    assert str(before) in said
    assert [one.id for one in Store(before).trials()] == ["later1", "first1"]


@pytest.mark.parametrize("agrees", [None, False, True])
def test_results_that_a_backup_has_not_are_replaced_only_where_somebody_agrees(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    agrees: bool | None,
) -> None:
    put(store, "first1")
    store.backup(tmp_path / "kept.db")
    put(store, "later1")
    asked: list[str] = []
    if agrees is not None:  # a terminal
        monkeypatch.setattr("core.cli.backup.sys", SimpleNamespace(stdin=Terminal(), stderr=Terminal()))
        monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text) or agrees)
    assert run(["restore", str(tmp_path / "kept.db")]) == (0 if agrees else 2)
    assert len(asked) == (agrees is not None)
    assert [one.id for one in store.trials()] == (["first1"] if agrees else ["later1", "first1"])
    assert agrees or "--force" in capsys.readouterr().err
    assert run(["restore", str(tmp_path / "kept.db"), "--force"]) == 0
    assert run(["restore", str(tmp_path / "kept.db")]) == 0  # nothing is newer now


class Terminal:
    def isatty(self) -> bool:
        return True


def test_backup_says_how_much_is_damaged_and_overwrites_nothing(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, "first1")
    put(store, "second")
    change(store, "UPDATE trials SET result = '{}' WHERE id = 'second'")
    change(store, "UPDATE samples SET data = x'00' WHERE trial = 'second'")
    assert run(["backup", str(tmp_path / "one.db")]) == 0
    assert numbers(capsys.readouterr().out)[-6:-1] == [2, 0, 0, 0, 2]
    assert run(["backup", str(tmp_path / "one.db")]) == 2
    assert "one.db" in capsys.readouterr().err
    assert run(["backup", str(tmp_path / "no folder" / "one.db")]) == 2
    assert "one.db" in capsys.readouterr().err


def test_damaged_store_is_replaced_and_kept(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, "first1")
    store.backup(tmp_path / "kept.db")
    for companion in ("-wal", "-shm"):
        store.path.with_name(store.path.name + companion).unlink(missing_ok=True)
    store.path.write_bytes(b"no database any more" * 99)
    assert run(["restore", str(tmp_path / "kept.db")]) == 0
    assert "1 trial" in capsys.readouterr().out
    assert [one.id for one in Store().trials()] == ["first1"]
    assert len(list(store.folder.glob("ortune.db.corrupt-*"))) == 1


def _garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 99)


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
        db.commit()


def _torn(path: Path) -> None:
    good = Store(path.with_name("good") / "ortune.db")
    put(good, "first1")
    good.backup(path)
    path.write_bytes(path.read_bytes()[:9000])


@pytest.mark.parametrize("make", [_garbage, _foreign, _torn, lambda path: None, lambda path: path.mkdir()])
def test_what_is_no_backup_is_refused_and_changes_nothing(
    store: Store, tmp_path: Path, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, "first1")
    make(tmp_path / "other.db")
    assert run(["restore", str(tmp_path / "other.db")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert [one.id for one in store.trials()] == ["first1"]
    assert list(store.folder.glob("ortune.db.before-*")) == []


def _running_trial(store: Store) -> None:
    store.create_trial(trial(state="RUNNING"), process=this_process())


def _screening(store: Store) -> None:
    store.create_trial(trial(state="WAITING", kind="screen"), process=this_process())


def _search(store: Store) -> None:
    store.put_study(study("aaaaaa000001", state="RUNNING"), process=this_process())


@pytest.mark.parametrize("begin", [_running_trial, _screening, _search])
def test_nothing_is_restored_while_something_runs(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], begin: Callable[[Store], None]
) -> None:
    store.backup(tmp_path / "kept.db")
    begin(store)
    assert run(["restore", str(tmp_path / "kept.db")]) == 2
    assert "`aaaaaa000001`" in capsys.readouterr().err
    with pytest.raises(StoreError, match="itself"):
        restore(store.path)


def test_what_ran_when_a_backup_was_made_does_not_run_after_its_restore(store: Store, tmp_path: Path) -> None:
    """Also where its process lives, as a dashboard does."""
    _running_trial(store)
    store.put_study(study("bbbbbb000001", state="RUNNING"), process=this_process())
    store.backup(tmp_path / "kept.db")
    store.update_trial("aaaaaa000001", state="COMPLETE")
    store.update_study("bbbbbb000001", state="COMPLETE")
    for _ in range(2):
        assert run(["restore", str(tmp_path / "kept.db")]) == 0
    assert store.unfinished() == []
    assert store.trial("aaaaaa000001").state == store.study("bbbbbb000001").state == "FAIL"


def test_a_damaged_store_has_nothing_that_a_restore_would_lose(store: Store, tmp_path: Path) -> None:
    store.backup(tmp_path / "kept.db")
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database " * 1000)
    assert lost_by_restore(tmp_path / "kept.db", damaged) == 0


def test_a_store_that_cannot_be_read_is_not_taken_for_an_empty_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Path) -> set[tuple[str, str]]:
        raise sqlite3.OperationalError("disk I/O error")

    store.backup(tmp_path / "kept.db")
    monkeypatch.setattr(restoring, "_ids", fail)
    with pytest.raises(StoreError, match="disk I/O error"):
        lost_by_restore(tmp_path / "kept.db", store.path)


def test_writer_that_stays_stops_a_restore(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.backup(tmp_path / "kept.db")
    monkeypatch.setattr(restoring, "BUSY_S", 0.1)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError):
            restore(tmp_path / "kept.db")
    assert list(store.folder.glob("ortune.db.before-restore-*")) == []  # it would fill the disk with each try


def test_a_damaged_store_is_kept_even_if_its_restore_fails(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Path) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    store.backup(tmp_path / "kept.db")
    for companion in ("-wal", "-shm"):
        store.path.with_name(store.path.name + companion).unlink(missing_ok=True)
    store.path.write_bytes(b"no database any more" * 99)
    monkeypatch.setattr(restoring, "_overwrite", full)
    with pytest.raises(StoreError, match="disk is full"):
        restore(tmp_path / "kept.db")
    (kept,) = store.folder.glob("ortune.db.corrupt-*")
    assert kept.read_bytes() == b"no database any more" * 99


def test_a_file_that_is_no_store_is_refused_and_stays(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    with pytest.raises(StoreError, match="is no result store"):
        Store(notes)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.md"]
    assert notes.read_text() == "mine"
