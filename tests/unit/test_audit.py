"""The audit log: whole lines from several processes, its check, its rotation, and what it does on errors."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.store import audit


@pytest.fixture(autouse=True)
def _forget_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit._State, "problem", "")
    monkeypatch.setattr(audit._State, "through", "python")


def texts(home: Path) -> list[str]:
    return (home / "audit" / "audit.jsonl").read_text("ascii").splitlines()


def test_a_line_says_who_did_what_and_when(tmp_path: Path) -> None:
    audit.record("delete", "trial `abc`", who="ann@example.org", folder=tmp_path, address="10.0.0.1", of=None)
    line = json.loads(texts(tmp_path)[0])
    assert line["time"].endswith("Z")
    assert {key: value for key, value in line.items() if key != "time"} == {
        "n": 1,
        "who": "ann@example.org",
        "action": "delete",
        "what": "trial `abc`",
        "through": "python",
        "address": "10.0.0.1",
        "previous": "",
    }


def test_the_person_of_the_request_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit.record("measure", "first", folder=tmp_path)
    monkeypatch.setattr(audit._State, "person", staticmethod(lambda: "bob"))
    audit.record("measure", "second", folder=tmp_path)
    with audit.acting("cleo"):
        audit.record("import", "in the job of another person", folder=tmp_path)
    assert [one.who for one in audit.entries(tmp_path)] == ["local", "bob", "cleo"]


def test_several_processes_write_whole_linked_lines(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from core.store import audit\n"
        "for number in range(40):\n"
        "    audit.record('change', sys.argv[2] + ' ' + 'x' * 300, who=sys.argv[2], folder=Path(sys.argv[1]))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"p{n}"]) for n in range(4)]
    assert [one.wait() for one in writers] == [0, 0, 0, 0]
    found = audit.check(tmp_path)
    assert (found.lines, found.problems) == (160, ())
    for n in range(4):
        assert len(list(audit.entries(tmp_path, who=f"p{n}"))) == 40


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        pytest.param(lambda lines: [lines[0], *lines[2:]], "Line 3 does not follow line 1", id="removed"),
        pytest.param(
            lambda lines: [lines[0], lines[1].replace("two", "six"), *lines[2:]],
            "Line 3 does not follow line 2",
            id="changed",
        ),
        pytest.param(lambda lines: lines[:-1], "Line 4 should be the newest", id="newest removed"),
        pytest.param(
            lambda lines: [*lines[:-1], lines[-1].replace("four", "five")],
            "Line 4 should be the newest",
            id="newest changed",
        ),
        pytest.param(lambda lines: [lines[0], "{", *lines[1:]], "The line after line 1", id="foreign"),
        pytest.param(lambda lines: [], "Line 4 should be the newest", id="emptied"),
    ],
)
def test_the_check_notices(tmp_path: Path, edit, says: str) -> None:  # type: ignore[no-untyped-def]
    for what in ("one", "two", "three", "four"):
        audit.record("change", what, folder=tmp_path)
    assert audit.check(tmp_path).problems == ()
    path = tmp_path / "audit" / "audit.jsonl"
    path.write_text("".join(f"{line}\n" for line in edit(texts(tmp_path))))
    assert any(one.startswith(says) for one in audit.check(tmp_path).problems)
    audit.record("change", "afterwards", folder=tmp_path)
    assert audit.check(tmp_path).problems, "a new line must not hide it"


@pytest.mark.parametrize("killed", [1, 2, 5])
def test_processes_killed_behind_their_lines_break_nothing(tmp_path: Path, killed: int) -> None:
    audit.record("change", "one", folder=tmp_path)
    last = tmp_path / "audit" / "last"
    kept = last.read_text()
    for number in range(killed):  # one after the other, none of which comes to write `last`
        audit.record("change", f"more {number}", folder=tmp_path)
        last.write_text(kept)
        assert audit.check(tmp_path).problems == ()
    audit.record("change", "the end", folder=tmp_path)
    assert audit.check(tmp_path).problems == ()
    assert [one.n for one in audit.entries(tmp_path)] == list(range(1, killed + 3))


def test_a_line_written_during_a_check_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit.record("change", "one", folder=tmp_path)
    lines = audit._lines

    def read_and_written_to(log: Path) -> Iterator[bytes]:
        yield from lines(log)
        audit.record("change", "two", folder=tmp_path)

    monkeypatch.setattr(audit, "_lines", read_and_written_to)
    assert audit.check(tmp_path).problems == ()


def test_rotation_bounds_the_log_and_keeps_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 1000)
    monkeypatch.setattr(audit, "FILES", 3)
    for number in range(60):
        audit.record("change", f"number {number}", folder=tmp_path)
    files = sorted(path.name for path in (tmp_path / "audit").glob("*.jsonl"))
    assert files == ["audit.1.jsonl", "audit.2.jsonl", "audit.jsonl"]
    found = audit.check(tmp_path)
    assert found.problems == ()
    assert found.first > 1
    assert found.first + found.lines - 1 == 60
    (tmp_path / "audit" / "audit.1.jsonl").unlink()
    assert "does not follow" in audit.check(tmp_path).problems[0]


@pytest.mark.parametrize("moves", range(3))
def test_a_writer_killed_in_a_rotation_loses_no_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 1)  # each line is a file
    monkeypatch.setattr(audit, "FILES", 4)
    for number in range(4):
        audit.record("change", f"number {number}", folder=tmp_path)
    left, replace = iter(range(moves)), Path.replace

    def killed(path: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            audit.record("change", "killed", folder=tmp_path)
    audit.record("change", "the next", folder=tmp_path)
    assert audit.check(tmp_path).problems == ()
    assert [one.n for one in audit.entries(tmp_path)] == [2, 3, 4, 5]


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        audit.record("change", "one", folder=tmp_path / "home")
    finally:
        os.umask(before)
    paths = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {"home": 0o700, "audit": 0o700, "audit.jsonl": 0o600, "last": 0o600, "lock": 0o600}


def test_what_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit").write_text("a file, not a folder")
    audit.record("change", "one", folder=tmp_path)
    audit.record("change", "two", folder=tmp_path)
    assert len(caplog.records) == 1
    assert "The audit log cannot be written" in caplog.text
    assert audit.problem()
    (tmp_path / "audit").unlink()
    audit.record("change", "three", folder=tmp_path)
    assert audit.problem() == ""


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit.record("change", "one", folder=tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    audit.record("change", "two", folder=tmp_path)
    monkeypatch.undo()
    assert len(texts(tmp_path)) == 1
    audit.record("change", "three", folder=tmp_path)
    assert [one.what for one in audit.entries(tmp_path)] == ["one", "three"]
    assert audit.check(tmp_path).problems == ()


def test_entries_are_filtered_by_time_person_and_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second, who, action in (
        (100.0, "ann", "measure"),
        (200.0, "bob", "delete"),
        (300.0, "ann", "delete"),
    ):
        monkeypatch.setattr(audit.time, "time", lambda second=second: second)
        audit.record(action, f"at {second:g}", who=who, folder=tmp_path)  # type: ignore[arg-type]
    assert [one.what for one in audit.entries(tmp_path, since=200.0)] == ["at 200", "at 300"]
    assert [one.what for one in audit.entries(tmp_path, until=200.0)] == ["at 100"]
    assert [one.what for one in audit.entries(tmp_path, who="ann", action="delete")] == ["at 300"]
