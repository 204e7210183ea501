"""Fault campaigns: no fault leaves ORTune with invalid results or running processes.

Not part of `make test`, because a campaign takes minutes: `make test-faults`. Each fault is a test with a
number, drawn from it alone, so that one that fails can be run again by its name.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine, Done
from tests.e2e.conftest import browser  # noqa: F401 - a fixture: one for all modules, as Playwright runs once
from tests.faults.visits import visiting  # noqa: F401 - a fixture

ENDED = (0, 1, 2, 3)  # what the command line promises: done, missed, cannot, undecided
LONGEST_LINE = 5_000


class Ground(CommandLine):
    """A command line with its own temporary folder, and a check of what a command leaves there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.environment["TMPDIR"] = str(self.temporary)

    run = CommandLine.run_alone  # a campaign must survive what it does, and the next fault begins anew

    def leavings(self) -> list[str]:
        """Files and folders of ORTune in the temporary folder."""
        return sorted(path.name for path in self.temporary.iterdir() if path.name.startswith("ortune"))

    def check_store(self) -> None:
        """The store is whole, and no trial is said to run where nothing does."""
        path = self.home / "ortune.db"
        if not path.exists():
            return
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                return  # there was no room for its tables: the next start makes them
            running = "SELECT id FROM trials WHERE state IN ('RUNNING', 'WAITING')"
            assert db.execute(running).fetchall() == []


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A home without anything in it; afterwards no process of it lives."""
    line = Ground(tmp_path)
    yield line
    assert line.left_over() == []


def check_told(done: Done, codes: Collection[int] = ENDED) -> None:
    """A command ended as promised, and said what it had to say in lines that a person can read."""
    assert done.code in codes, (done.code, done.err[-2000:])
    for text in (done.out, done.err):
        assert "Traceback" not in text, text[-3000:]
        assert "\x1b" not in text
    assert all(len(line) <= LONGEST_LINE for line in done.err.splitlines())
    if done.code == 2:
        assert any(line.startswith("Error: ") for line in done.err.splitlines()), done.err[-2000:]
