"""`audit`, and that commands and the Python API record what they do, run for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from core.store import Change, Store, audit
from tests import tiny_models
from tests.command_line import CommandLine
from tests.documents import errors_of
from tests.integration.test_history_cli import trial

pytestmark = pytest.mark.usefixtures("jobs_at_once")

ONE, TWO = f"{1:016x}", f"{2:016x}"


@pytest.fixture
def cli(tmp_path: Path, acquainted: Path) -> CommandLine:
    line = CommandLine(tmp_path, acquainted)
    store = Store(line.home / "ortune.db")
    for number in (1, 2):
        store.create_trial(trial(number))
    return line


def actions(cli: CommandLine) -> list[tuple[str, str]]:
    return [(one.action, one.what) for one in audit.entries(cli.home)]


def test_commands_record_changes_deletions_and_exports(cli: CommandLine) -> None:
    assert cli.run("tag", ONE, "--star", "--note", "secret text").code == 0
    assert cli.run("backup", str(cli.home.parent / "copy.db")).code == 0
    assert cli.run("delete", ONE, "--dry-run").code == 0
    assert cli.run("delete", TWO, "--yes").code == 0
    assert actions(cli) == [
        ("change", "tags of trials: starred; note written"),
        ("export", "backup `copy.db`"),
        ("delete", "trials"),
    ]
    assert [one.more["ids"] for one in audit.entries(cli.home, action="delete")] == [[TWO]]
    assert "secret text" not in (cli.home / "audit" / "audit.jsonl").read_text("ascii")


def test_measurements_variants_and_exports_are_recorded(cli: CommandLine, tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "own.onnx")
    tuned = cli.run("tune", str(model), "--runs", "20", "--warmup-runs", "1", "--quiet", "--json")
    assert tuned.code in (0, 3), tuned.err
    measured = tuned.document["trial"]
    assert cli.run("export", measured, "--output", str(tmp_path / "own.yaml")).code == 0
    assert cli.run("report", measured, "--format", "md", "--output", str(tmp_path / "own.md")).code == 0
    assert cli.run("transform", str(model), "--fix-dims", "--dim", "batch=2", "--name", "fixed").code == 0
    assert cli.run("variants", "rename", "fixed", "two").code == 0
    assert cli.run("variants", "delete", "two").code == 0
    assert [one.action for one in audit.entries(cli.home)] == [
        *("measure", "export", "export", "create", "import", "import", "change", "delete")
    ]
    named = {one.action: one for one in audit.entries(cli.home)}
    assert named["measure"].more["ids"] == [measured]
    assert named["export"].more["file"] == "own.md"
    assert named["change"].what == "name of the model `fixed`: `two`"
    assert {one.who for one in audit.entries(cli.home)} == {"local"}


def test_the_log_is_shown_filtered_exported_and_checked(cli: CommandLine, tmp_path: Path) -> None:
    store = Store(cli.home / "ortune.db")
    store.mark([ONE], Change(starred=True))
    audit.record("log-in-refused", "wrong token \x1b[31m", who="unknown", folder=cli.home, address="10.0.0.9")
    shown = cli.run("audit", "--action", "log-in-refused")
    assert shown.code == 0
    assert "10.0.0.9" in shown.out
    assert "\x1b" not in shown.out
    document = cli.run("audit", "--json").document
    assert errors_of("audit", document) == []
    assert (document["lines"], document["problems"]) == (2, [])
    assert [one["who"] for one in document["entries"]] == ["local", "unknown"]

    target = tmp_path / "log.jsonl"
    assert cli.run("audit", "--person", "local", "--output", str(target)).code == 0
    written = [json.loads(line) for line in target.read_text("ascii").splitlines()]
    assert [(one["n"], one["action"]) for one in written] == [(1, "change")]

    log = cli.home / "audit" / "audit.jsonl"
    log.write_text(log.read_text("ascii").replace("10.0.0.9", "10.0.0.1"), "ascii")
    changed = cli.run("audit")
    assert changed.code == 2
    assert "a line was changed or removed" in changed.err


def test_wrong_filters_are_refused_with_the_value(cli: CommandLine) -> None:
    for args, words in (
        (("--action", "steal"), "no action `steal`"),
        (("--since", "yesterday"), "got `yesterday`"),
        (("--output", "/no/such/folder/x"), "/no/such/folder"),
    ):
        refused = cli.run("audit", *args)
        assert refused.code == 2
        assert words in refused.err


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_log_that_cannot_be_written_is_said_and_stops_no_command(cli: CommandLine) -> None:
    (cli.home / "audit").symlink_to("/nowhere/at/all")
    done = cli.run_alone("tag", ONE, "--star")
    assert done.code == 0
    assert done.err.count("The audit log cannot be written") == 1
    assert Store(cli.home / "ortune.db").marks([ONE])[ONE].starred
