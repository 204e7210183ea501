"""Backups during measurements: each holds what was stored before it began, and nothing half."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.store import BackupFolder, Store, backups, database, restore
from core.wire.errors import StoreError
from tests import builders, store_writer, tiny_models
from tests.command_line import CommandLine
from tests.store_writer import Report, check_holds
from tests.waiting import wait_until

NAME = re.compile(r"ortune-auto-\d{8}-\d{6}\.db")


def reported(log: Path) -> Report:
    return Report.of(log.read_text())


def test_a_backup_during_writes_holds_every_row_that_was_reported_before(tmp_path: Path) -> None:
    store, log = Store(tmp_path / "home" / "ortune.db"), tmp_path / "log"
    folder = BackupFolder(tmp_path / "backups", keep=100)
    with log.open("w") as output:
        writer = store_writer.start(store.path, seed=1, output=output)
        try:
            wait_until(lambda: len(reported(log).lines) > 5)
            made = []
            for _ in range(8):
                before = reported(log)
                made.append((before, folder.add(store)))
                enough = len(before.lines) + 2
                wait_until(lambda enough=enough: len(reported(log).lines) > enough)  # type: ignore[misc]
        finally:
            writer.kill()
            writer.wait()
    after = reported(log)
    for number, (before, backup) in enumerate(made):
        restored = tmp_path / f"other{number}" / "ortune.db"
        assert restore(backup.path, restored) is None
        check_holds(restored, before, after)
        assert Store(restored).check() == backup.found  # the check is that of the copy
    check_holds(store.path, after, after, unreported=1)


def test_repeated_backups_while_a_trial_is_measured(tmp_path: Path) -> None:
    line, other = CommandLine(tmp_path), CommandLine(tmp_path / "other")
    tiny_models.mlp(tmp_path / "mlp.onnx")
    folder = tmp_path / "backups"
    first = line.run("tune", "mlp.onnx", "--runs", "20", "--warmup-runs", "1", "--json", cwd=tmp_path)
    trial = first.document["trial"]
    repeated = line.start("backup", str(folder), "--every", "1s", "--keep", "3")
    measured = line.start("tune", "mlp.onnx", "--budget", "6s", "--effort", "publish", cwd=tmp_path)
    _, err = measured.communicate(timeout=240)
    assert measured.returncode in (0, 3), err
    seen: set[str] = set()

    def number_seen() -> int:
        seen.update(path.name for path in folder.glob("*.db"))
        return len(seen)

    # the second one from now on began when all was stored; once the fifth is there, four lines are written
    enough = max(5, number_seen() + 2)
    wait_until(lambda: number_seen() >= enough)
    repeated.send_signal(signal.SIGINT)
    said, err = repeated.communicate(timeout=60)
    assert repeated.returncode == 130
    assert "Traceback" not in err

    lines = said.splitlines()
    kept = sorted(folder.iterdir())
    assert len(lines) > 3
    assert len(kept) in (3, 4)  # the signal may come between a copy and the deletion of the oldest
    assert all(NAME.fullmatch(path.name) for path in kept)
    assert all("no damage found" in one for one in lines)
    assert "Deleted 1 older backup." in lines[-1]
    known = store_writer.contents(line.home / "ortune.db")
    assert store_writer.contents(kept[-1]) == known
    for path in kept:
        assert store_writer.contents(path)[trial] == known[trial]
        other.run("restore", str(path), "--force")
        told = other.run("history", "--json").document["trials"]
        assert not {row["state"] for row in told} & {"DAMAGED", "RUNNING", "WAITING"}
        assert trial in {row["trial"] for row in told}


def test_the_newest_backups_are_kept_even_if_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, place = Store(tmp_path / "home" / "ortune.db"), tmp_path / "backups"
    folder = BackupFolder(place, keep=2)
    for name in ("ortune-backup-20260101-000000.db", "ortune-auto-notes.db"):
        (place / name).write_text("of the user")
    paths = []
    day = 24 * 3600
    for moment in (2 * day, day, day, 0):
        monkeypatch.setattr(backups, "time", SimpleNamespace(time=lambda now=moment: 1.8e9 + now))
        made = folder.add(store)
        paths.append(made.path)
    assert paths == sorted(paths)
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert made.removed == 1
    assert len(list(place.iterdir())) == 4
    made = BackupFolder(place, keep=2).add(store)  # the next start knows the earlier ones by name
    assert [path.exists() for path in paths] == [False, False, False, True]
    assert made.path.exists()
    assert made.path > paths[3]
    assert len(list(place.iterdir())) == 4


def test_the_numbers_of_earlier_versions_are_an_order(tmp_path: Path) -> None:
    store, place = Store(tmp_path / "home" / "ortune.db"), tmp_path / "backups"
    place.mkdir()
    for number in ("", "-1", "-2", "-9", "-10"):
        (place / f"ortune-auto-20260101-000000{number}.db").write_text("of an earlier version")
    (place / "ortune-auto-20261399-000000.db").write_text("of the user")
    BackupFolder(place, keep=2).add(store)
    left = [path.name for path in place.iterdir() if path.name.startswith("ortune-auto-2026010")]
    assert left == ["ortune-auto-20260101-000000-10.db"]
    assert (place / "ortune-auto-20261399-000000.db").exists()


def test_a_copy_that_fails_its_check_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(db: sqlite3.Connection, target: Path) -> None:
        target.write_bytes(b"SQLite format 3\0" + bytes(5000))

    store, folder = Store(tmp_path / "home" / "ortune.db"), BackupFolder(tmp_path / "backups", keep=1)
    first = folder.add(store).path
    monkeypatch.setattr(database, "copy_of", damaged)
    for _ in range(2):
        with pytest.raises(StoreError, match="was deleted") as caught:
            folder.add(store)
        assert "copy" in caught.value.message
        assert list(folder.folder.iterdir()) == [first]


def test_no_older_backup_is_deleted_while_rows_are_damaged_or_nothing_can_be_written(tmp_path: Path) -> None:
    store, place = Store(tmp_path / "home" / "ortune.db"), tmp_path / "backups"
    store.create_trial(builders.trial("aaaaaa000001"))
    folder = BackupFolder(place, keep=1)
    sound = folder.add(store).path
    with store._database.writing() as db:
        db.execute("UPDATE trials SET model_name = 'other'")
    made = folder.add(store)
    assert (made.found.damaged, made.removed, sound.exists()) == (1, 0, True)
    place.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="cannot be written"):
        folder.add(store)
    (tmp_path / "moved").rename(place)
    for pid in (999999999, os.getpid()):  # in a container, the next process often has the same
        (place / f".{sound.name}.{pid}.part").write_text("of a killed process")
    (place / ".ortune-auto-of the user").write_text("kept")
    store.delete_trials(["aaaaaa000001"])
    assert folder.add(store).removed == 2
    assert {path.suffix for path in place.iterdir()} == {".db", ""}


def test_a_draft_is_removed_only_when_nothing_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = Store(tmp_path / "home" / "ortune.db"), tmp_path / "one.db"
    rename, seen = Path.rename, []

    def during(draft: Path, name: Path) -> Path:
        database.remove_drafts(tmp_path, "one.db")
        seen.append(draft.exists())
        return rename(draft, name)

    monkeypatch.setattr(Path, "rename", during)
    store.backup(target)
    assert seen == [True]
    assert database._drafts == set()


def test_backup_and_restore_remove_what_killed_ones_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = CommandLine(tmp_path)
    drafts = [
        tmp_path / ".named.db.999999999.part",
        tmp_path / ".ortune-backup-20260101-000000.db.999999999.part",
        line.home / ".ortune.db.before-restore-20260101-000000.999999999.part",
    ]
    line.home.mkdir()
    for path in drafts:
        path.write_text("half a store")
    assert line.run("backup", "named.db", cwd=tmp_path).code == 0
    assert [path.exists() for path in drafts] == [False, True, True]
    assert line.run("backup", cwd=tmp_path).code == 0
    assert [path.exists() for path in drafts] == [False, False, True]
    assert line.run("restore", "named.db", cwd=tmp_path).code == 0
    assert [path.exists() for path in drafts] == [False] * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["here", "--every", "0s"], "1 second or more, but got `0s`"),
        (["here", "--every", "soon"], "but got `soon`"),
        (["--every", "10m"], "`--every` needs a folder"),
        (["file.db", "--every", "10m"], "`file.db` is no folder"),
        (["here", "--keep", "3"], "`--keep` applies to `--every` only"),
        (["here", "--every", "10m", "--json"], "has no JSON document"),
    ],
)
def test_options_of_repeated_backups_that_contradict_each_other(
    tmp_path: Path, options: list[str], said: str
) -> None:
    (tmp_path / "file.db").write_text("")
    done = CommandLine(tmp_path).run("backup", *options, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err + done.out
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file.db"]
