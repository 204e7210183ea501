"""`history` with its filters and formats, `show`, and `variants`, run for real."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.api.history import Filter
from core.evidence.measurement import Trial
from core.store import Store
from core.wire.errors import SpecError
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine
from tests.documents import errors_of

pytestmark = pytest.mark.usefixtures("jobs_at_once")

QUICK = ("--runs", "40", "--warmup-runs", "1", "--quiet")
ERROR: Any = {
    "type": "WorkerError",
    "message": "The worker ran out of memory.",
    "hint": "Use a smaller batch.",
}


def trial(number: int, **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "id": f"{number:016x}",
        "kind": "measure",
        "state": "COMPLETE",
        "spec": {"model": {"path": "m.onnx"}},
        "model_name": "m",
        "model_sha256": "0" * 64,
        "key": "k",
        "created_at": float(number),
        "result": {"grade": "A"},
    }
    return Trial(**(facts | changes))


@pytest.fixture
def cli(tmp_path: Path, acquainted: Path) -> CommandLine:
    line = CommandLine(tmp_path, acquainted)
    store = Store(line.home / "ortune.db")
    one_thread = {"model": {"path": "m.onnx"}, "session": {"intra_op_num_threads": 1}}
    store.create_trial(trial(1))
    store.create_trial(trial(2, spec=one_thread, result={"grade": "C"}))
    store.create_trial(trial(3, spec=one_thread, state="FAIL", result=None, error=ERROR))
    return line


def listed(cli: CommandLine, *args: str) -> list[int]:
    done = cli.run("history", *args, "--json")
    assert done.code == 0, done.err
    return [int(one["trial"], 16) for one in done.document["trials"]]


def test_history_finds_a_model_by_the_name_that_it_shows(cli: CommandLine) -> None:
    assert "  m  " in cli.run("history").out  # a model that no library knows any more
    assert listed(cli, "--model", "m") == [3, 2, 1]
    assert cli.run("history", "--model", "nothing").code == 2


def test_history_filters_by_what_it_shows(cli: CommandLine) -> None:
    assert listed(cli) == [3, 2, 1]
    assert listed(cli, "--grade", "a,c") == [2, 1]
    assert listed(cli, "--changed", "intra_op_num_threads") == [3, 2]
    assert listed(cli, "--changed", "intra-op-num-threads=1", "--grade", "C") == [2]
    assert listed(cli, "--changed", "threads 1", "--grade", "C") == [2]  # as the list says it
    assert listed(cli, "--changed", "intra_op_num_threads=2") == []
    assert listed(cli, "--changed", "intra_op_num_threads=") == []
    assert listed(cli, "--error", "OUT OF memory") == [3]
    assert listed(cli, "--state", "FAIL") == [3]
    text = cli.run("history").out
    for words in ("grade", "threads 1", "FAIL"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80
    wide = cli.run("history", "--wide").out
    for words in (ERROR["message"], "intra_op_num_threads=1", "samples/s"):
        assert words in wide
    assert len(cli.run("history", "--error", "no such").out.splitlines()) == 1


def test_history_for_other_programs(cli: CommandLine) -> None:
    rows = list(csv.DictReader(io.StringIO(cli.run("history", "--format", "csv").out)))
    assert [row["trial"][-1] for row in rows] == ["3", "2", "1"]
    assert rows[0]["error"] == ERROR["message"]
    assert cli.run("history", "--format", "md").out.startswith("| trial |")
    both = cli.run("history", "--format", "csv", "--json")
    assert both.code == 2
    assert "contradict" in both.err


@pytest.mark.parametrize(
    ("filter_", "words"),
    [({"grade": "A,E"}, "`grade` takes"), ({"changed": ["intra_op_num_thread=1"]}, "no setting")],
)
def test_a_filter_that_nothing_can_pass_is_refused(filter_: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Filter(**filter_)


def test_show_tells_a_stored_result_or_why_there_is_none(cli: CommandLine, mlp: str) -> None:
    failed = cli.run("show", f"{3:016x}")
    assert failed.code == 0, failed.err
    for words in ("FAIL", ERROR["message"], ERROR["hint"], "intra_op_num_threads=1"):
        assert words in failed.out
    unknown = cli.run("show", "feedbeef")
    assert unknown.code == 2
    assert "feedbeef" in unknown.err

    with simulated_clock.machine():
        measured = cli.run("tune", mlp, *QUICK, "--json").document
        shown = cli.run("show", measured["trial"][:8])
        assert shown.code == 0, shown.err
        assert "p50" in shown.out
        assert "float32" in shown.out
        assert cli.run("show", measured["trial"], "--json").document["trial"] == measured["trial"]
        comparison = cli.run("show", measured["comparison"])
        assert "configuration" in comparison.out
        found = cli.run("compare", mlp, "--candidate", "preset:edge", *QUICK, "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(found.out)))
        assert {row["configuration"] for row in rows} == {"preset:edge", "preset:default"}
        assert all(float(row["p50_ms"]) > 0 for row in rows)
        swept = cli.run("sweep", mlp, *QUICK, "--batch-size", "1,2", "--format", "md")
        assert swept.out.startswith("| batch_size | best | p50 ms |")


def test_variants_are_listed_renamed_and_deleted(cli: CommandLine, tmp_path: Path) -> None:
    mlp = str(tiny_models.mlp(tmp_path / "mlp.onnx"))
    assert len(cli.run("variants", "list").out.splitlines()) <= 2
    assert cli.run("transform", mlp, "--simplify", "--fp16", "--name", "half", "--quiet").code == 0
    text = cli.run("variants", "list").out
    for words in ("mlp", "half", "FP16", "not compared", "original"):
        assert words in text
    documents = cli.run("variants", "list", mlp, "--json").document["variants"]
    assert [one["model"] for one in documents] == ["mlp", "mlp-simplify", "half"]
    renamed = cli.run("variants", "rename", "variant:half", "quarter")
    assert "`quarter`" in renamed.out
    for args, words in (
        (("rename", "quarter", "mlp"), "is the name of another model"),
        (("rename", "quarter", "../x"), "is no name for a model"),
        (("rename", "half", "other"), "is no variant"),
        (("delete", "mlp"), "is an original"),
    ):
        refused = cli.run("variants", *args)
        assert refused.code == 2
        assert words in refused.err
    deleted = cli.run("variants", "delete", "quarter", "--json")
    assert deleted.document["deleted"] == "quarter"
    assert [one["model"] for one in cli.run("variants", "list", "--json").document["variants"]] == [
        *("mlp", "mlp-simplify"),
    ]


def test_tags_are_made_found_again_and_removed(cli: CommandLine) -> None:
    first, second = f"{1:016x}", f"{2:016x}"
    marked = cli.run("tag", first, second, "--star", "--label", "edge, ship", "--note", "for the demo")
    assert marked.code == 0, marked.err
    assert marked.out.splitlines()[0] == f"{first[:12]}  ★, labels: edge, ship; note: for the demo"
    assert listed(cli, "--starred") == [2, 1]
    assert listed(cli, "--label", "edge", "--label", "ship", "--grade", "C") == [2]
    assert listed(cli, "--search", "DEMO") == [2, 1]
    back = cli.run("tag", first, "--archive", "--no-star", "--no-label", "ship", "--note", "", "--json")
    assert back.document["marks"] == {
        first: {"starred": False, "archived": True, "labels": ["edge"], "note": ""}
    }
    assert listed(cli) == [3, 2]
    assert listed(cli, "--archived") == [3, 2, 1]
    assert "★, labels: edge, ship; note: for the demo" in cli.run("history", "--wide").out
    rows = list(csv.DictReader(io.StringIO(cli.run("history", "--archived", "--format", "csv").out)))
    assert [(row["starred"], row["archived"], row["labels"]) for row in rows] == [
        ("False", "False", ""),
        ("True", "False", "edge,ship"),
        ("False", "True", "edge"),
    ]
    assert cli.run("tag", first).out == f"{first[:12]}  archived, labels: edge\n"
    document = cli.run("history", "--json").document
    assert list(document["marks"]) == [second]
    assert errors_of("history", document) == []


def test_results_are_made_private_shared_and_found_as_ones_own(cli: CommandLine) -> None:
    first, second = f"{1:016x}", f"{2:016x}"
    assert listed(cli, "--mine") == [3, 2, 1]
    now = cli.run("unshare", first, second, "--json").document
    assert {name: one["private"] for name, one in now["visibility"].items()} == {first: True, second: True}
    assert errors_of("unshare", now) == []
    assert cli.run("history", "--wide").out.count("private") == 2
    document = cli.run("history", "--mine", "--json").document
    private = {name for name, one in document["visibility"].items() if one["private"]}
    assert private == {first, second}
    assert errors_of("history", document) == []
    assert cli.run("share", first).out == "1 result is shared.\n"
    assert cli.run("history", "--wide").out.count("private") == 1
    other = Store(cli.home / "ortune.db").for_person("ben@example.org", sees_all=False)
    assert [one.id for one in other.trials()] == [f"{3:016x}", first]
    other.create_trial(replace(other.trial(first), id=f"{9:016x}", created_at=9e9))
    assert listed(cli) == [9, 3, 2, 1]
    assert listed(cli, "--mine") == [3, 2, 1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("unshare", "feedbeef"), "`feedbeef`"),
        (("tag", "feedbeef", "--star"), "`feedbeef`"),
        (("tag", f"{1:016x}", "--label", "x" * 41), "is no label"),
        (("tag", f"{1:016x}", "--label", "a", "--no-label", "a"), "at once"),
        (("delete", f"{1:016x}"), "--yes"),
        (("history", "--prune", "--older-than", "1d", "--starred"), "takes no other filter"),
    ],
)
def test_impossible_tags_are_one_clear_line(cli: CommandLine, args: Any, words: str) -> None:
    refused = cli.run(*args)
    assert refused.code == 2
    assert words in refused.err


def test_delete_says_what_goes_and_leaves_what_runs(cli: CommandLine) -> None:
    first, running = f"{1:016x}", f"{9:016x}"
    would = cli.run("delete", first, "--dry-run")
    assert "1 trial" in would.out
    assert listed(cli) == [3, 2, 1]
    gone = cli.run("delete", first, "--yes", "--json").document
    assert (gone["trials"], gone["dry_run"]) == ([first], False)
    assert errors_of("delete", gone) == []
    assert listed(cli) == [3, 2]
    elsewhere = trial(9, state="RUNNING", result=None, created_at=time.time())
    Store(cli.home / "ortune.db").create_trial(elsewhere, process="another host/1/0")
    refused = cli.run("delete", running, f"{2:016x}", "--yes")
    assert refused.code == 2
    assert running[:12] in refused.err
    assert listed(cli) == [9, 3, 2]
