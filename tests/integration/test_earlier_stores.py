"""Stores that programs of every earlier format wrote: all of their results are there, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.store import Query, Store, database, rows
from tests import earlier_stores
from tests.command_line import CommandLine
from tests.earlier_stores import FORMATS, check_kept, format_of, tables


def test_every_earlier_format_is_there() -> None:
    assert FORMATS[: database.SCHEMA - 1] == list(range(1, database.SCHEMA))
    assert set(earlier_stores.told(1)) != set(earlier_stores.told(2))


@pytest.mark.parametrize("number", FORMATS)
def test_a_store_of_an_earlier_format_is_read_in_full(tmp_path: Path, number: int) -> None:
    line = CommandLine(tmp_path)
    path = earlier_stores.unpacked(number, line.home)
    before, told = tables(path), earlier_stores.told(number)
    store = Store(path)
    assert format_of(path) == database.SCHEMA
    check_kept(without_checksums(before, number), tables(path))
    kept = list(path.parent.glob("ortune.db.*"))
    assert len(kept) == (number < database.SCHEMA)
    assert all(tables(one) == before and format_of(one) == number for one in kept)

    found = store.check()
    assert found.damaged == 0
    assert (found.trials[0], found.samples[0]) == (len(before["trials"]), len(before["samples"]))
    for sample in before["samples"]:
        result = store.trial(sample["trial"]).result
        assert result is not None
        raw = json.loads(sample["data"]) if number < 4 else rows.raw_parts(sample["data"])
        assert {name: result[name] for name in raw} == raw  # type: ignore[literal-required]
        assert raw["latencies_s"] if "latencies_s" in raw else raw["profile"]
    trials, total = store.trial_page(Query(archived=True))
    assert total == len(told)
    assert {one.id: one.state for one in trials} == {name: one["state"] for name, one in told.items()}


@pytest.mark.parametrize("number", FORMATS)
def test_results_of_an_earlier_format_are_listed_shown_and_exported(tmp_path: Path, number: int) -> None:
    line, told = CommandLine(tmp_path), earlier_stores.told(number)
    earlier_stores.unpacked(number, line.home)
    listed = line.run("history", "--json", "--limit", "100").document["trials"]
    assert {
        row["trial"]: {"state": row["state"], "p50_s": (row["latency"] or {}).get("p50_s")} for row in listed
    } == told
    for trial, facts in told.items():
        shown = line.run("show", trial)
        assert shown.code == 0, shown.err
        assert (f"· {facts['state']}" in shown.out) == (facts["state"] != "COMPLETE")
        exported = line.run("export", trial, "--format", "yaml")
        assert exported.code == 0, exported.err
        assert "mlp" in exported.out or "digits_cnn" in exported.out
    if number >= 6:
        (search,) = line.run("searches", "list", "--json").document["studies"]
        assert line.run("searches", "show", search["study"]).code == 0
    if number >= 7:
        labelled = line.run("history", "--label", "kept", "--starred", "--json").document
        assert [row["trial"] for row in labelled["trials"]] == list(labelled["marks"])
        assert [tags["note"] for tags in labelled["marks"].values()] == ["of format 7"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("number", [one for one in FORMATS if one < database.SCHEMA])
def test_a_migration_that_is_killed_at_any_statement(tmp_path: Path, number: int) -> None:
    path = earlier_stores.unpacked(number, tmp_path / "home")
    before = tables(path)
    kills = 0
    while _killed(partial(Store, path), after=kills):
        kills += 1
        assert format_of(path) in (number, database.SCHEMA)
        again = path if format_of(path) == number else earlier_stores.unpacked(number, tmp_path / "again")
        check_kept(without_checksums(before, number), tables(path))
        path = again
    assert kills > 10
    check_kept(without_checksums(before, number), tables(path))
    assert Store(path).check().damaged == 0
    there = sorted(one.name for one in path.parent.iterdir())
    assert there[0] == "ortune.db"
    assert len([name for name in there if name.startswith(f"ortune.db.format-{number}-")]) == 1
    assert len(there) == 2, there


def without_checksums(found: earlier_stores.Tables, number: int) -> earlier_stores.Tables:
    """The tables of an earlier format, without what its migration writes."""
    return (
        found
        if number >= database.CHECKSUMS_SINCE
        else {
            name: [{column: row[column] for column in row if column != "checksum"} for row in there]
            for name, there in found.items()
        }
    )


def _killed(call: Callable[[], Any], *, after: int) -> bool:
    """Call in a forked process that is killed at a statement of SQLite; return False if it ended before."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)
    left = [after]

    def statement(text: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        db = sqlite3.connect(*args, **options)
        db.set_trace_callback(statement)
        return db

    code = 1
    try:
        database.sqlite3 = SimpleNamespace(**{**vars(sqlite3), "connect": connect})  # type: ignore[assignment]
        call()
        code = 0
    finally:
        os._exit(code)
