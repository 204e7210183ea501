"""Everything is killed at a write, again and again: nothing that was reported is lost, and nothing is left.

A kill leaves what the system has been given, as a power failure leaves what the disk has been given. So it is
also checked that SQLite waits for the disk at each commit.
"""

from __future__ import annotations

import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from core.process import queue_files
from core.store import Store
from tests import store_writer, tiny_models
from tests.faults.conftest import Ground, check_told
from tests.store_writer import Report, check_holds
from tests.waiting import wait_until

ROUNDS, KILLS = 10, 10  # kills of one store, one after the other; together 100
SHORT = ("--runs", "20", "--warmup-runs", "1", "--quiet", "--json")
FULL = 2  # `PRAGMA synchronous`: a commit waits for the disk


@pytest.mark.parametrize("number", range(ROUNDS))
def test_everything_is_killed_at_a_write(ground: Ground, tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    path, folder = ground.home / "ortune.db", tmp_path / "backups"
    tiny_models.mlp(tmp_path / "mlp.onnx")
    for kill in range(KILLS):
        log = tmp_path / f"log{kill}"
        others = [ground.start("tune", "mlp.onnx", "--budget", "20s", cwd=tmp_path)] if kill % 5 == 4 else []
        others += [ground.start("backup", str(folder), "--every", "1s")] if kill % 5 == 2 else []
        with log.open("w") as output:
            writer = store_writer.start(path, number * KILLS + kill + 1, output)
            enough = rng.randrange(1, 40)
            wait_until(lambda: len(Report.of(log.read_text()).lines) > enough)  # noqa: B023 - called at once
            if kill % 5 == 4:
                wait_until(lambda: _measures(ground.queue))
            if kill % 5 == 2:
                copied = len(list(folder.glob("*.db")))
                wait_until(lambda: len(list(folder.glob("*.db"))) > copied)  # noqa: B023 - called at once
            for process in (writer, *others):
                process.send_signal(signal.SIGKILL)
            writer.wait()
            for process in others:
                process.communicate()
        assert ground.left_over() == []
        reported = Report.of(log.read_text())
        if not others or kill % 5 == 2:  # a measurement adds trials of its own
            check_holds(path, reported, reported, unreported=1)
        assert Store(path).check().damaged == 0
    done = ground.run("tune", "mlp.onnx", *SHORT, cwd=tmp_path)
    check_told(done, codes=(0, 3))
    # the writer's own trials belong to no process: the next command ends them
    check_told(ground.run("history", "--json"), codes=(0,))
    ground.check_store()
    assert ground.leavings() == []
    assert list(ground.queue.glob("*.json")) == []
    backups = list(folder.glob("*.db"))
    assert len(backups) >= KILLS // 5
    for backup in backups:
        assert Store(backup).check().damaged == 0


def _measures(queue: Path) -> bool:
    """Whether a job has the machine; the ticket of a killed one stays until the next job takes it away."""
    found = [queue_files.read(path) for path in queue.glob("*.json")]
    return any(one is not None and one.running and psutil.pid_exists(one.pid) for one in found)


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    with store._database.writing() as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == FULL
    with closing(sqlite3.connect(store.path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
