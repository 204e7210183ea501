"""`history --prune`: what it drops, what it keeps, and how it says so. In process, on stores made here."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from core import wire
from core.cli import run
from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial
from core.store import PRUNED, RAW_FIELDS, ModelRecord, Store, database
from tests.command_line import CommandLine, Done

DAY_S = 86_400.0
SHA, OTHER = "a1" * 32, "b2" * 32
RUNS = 20_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three comparisons: of 200 days ago, of another model "n" 100 days ago, and of an hour ago."""
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    store = Store()
    for name, age_s, sha in (
        ("oldest", 200 * DAY_S, SHA),
        ("middle", 100 * DAY_S, OTHER),
        ("newest", 3600.0, SHA),
    ):
        put_compared(store, name, time.time() - age_s, sha)
    return store


def put_compared(store: Store, name: str, at: float, sha: str) -> None:
    model = {"model_name": "m" if sha == SHA else "n", "model_sha256": sha}
    ended: dict[str, Any] = {**model, "created_at": at - 60, "finished_at": at}
    names = (f"{name}-cand", f"{name}-base")
    contestants = tuple(
        Contestant(trial=one, label=one, role=role)
        for one, role in zip(names, ("candidate", "anchor"), strict=True)
    )
    comparison = Comparison(
        id=f"race-{name}",
        state="COMPLETE",
        contestants=contestants,
        protocol={},
        result={"rounds": 8},
        **ended,
    )
    trials = [
        Trial(
            id=one,
            kind=kind,
            state="COMPLETE",
            spec={"model": {"path": "m.onnx", "sha256": sha}},
            key=one,
            result=measured(),
            comparison=comparison.id,
            **ended,
        )
        for one, kind in zip(names, ("measure", "reference"), strict=True)
    ]
    store.create_comparison(comparison, trials)


def measured() -> dict[str, Any]:
    dice = random.Random(0)
    return {
        "batch_size": 2,
        "runs": RUNS,
        "latency": {"p50_s": 0.0015, "p50_s_low": 0.0014, "p50_s_high": 0.0016},
        "effective_providers": ["CPUExecutionProvider"],
        "latencies_s": [ns / 1e9 for ns in dice.choices(range(10**6, 2 * 10**6), k=RUNS)],
        "blocks": [{"round": 0, "at_s": 0.1, "runs": RUNS, "counters": {"gpu": None}, "flags": []}],
    }


def call(capsys: pytest.CaptureFixture[str], *args: str) -> Done:
    code = run(["history", *args])
    said = capsys.readouterr()
    return Done(code=code, out=said.out, err=said.err)


def with_samples(store: Store) -> list[str]:
    both = [*store.trials(), *store.trials(kind="reference")]
    return sorted(one.id for one in both if "latencies_s" in (store.trial(one.id).result or {}))


@pytest.mark.parametrize(
    ("args", "words", "hint"),
    [
        (["--prune"], "needs an age or a size", "--older-than 90d"),
        (["--prune", "--dry-run"], "needs an age or a size", "--keep-size 500MiB"),
        (["--older-than", "90d"], "`--older-than` applies to `--prune` only", "Add --prune"),
        (["--keep-size", "1MB"], "`--keep-size` applies to `--prune` only", "Add --prune"),
        (["--dry-run"], "`--dry-run` applies to `--prune` only", "Add --prune"),
        (["--prune", "--older-than", "90"], "hours, days or weeks, but got `90`", "90d"),
        (["--prune", "--older-than", "-1d"], "hours, days or weeks, but got `-1d`", "90d"),
        (["--prune", "--older-than", "3 months"], "but got `3 months`", "90d"),
        (["--prune", "--keep-size", "500"], "a size with its unit, but got `500`", "500MiB"),
        (["--prune", "--keep-size", "big"], "a size with its unit, but got `big`", "2GiB"),
        (["--prune", "--keep-size", "1MB", "--limit", "5"], "`--limit` is for the list", "Remove --limit"),
    ],
)
def test_what_is_not_clear_is_refused_and_nothing_is_dropped(
    store: Store, capsys: pytest.CaptureFixture[str], args: list[str], words: str, hint: str
) -> None:
    done = call(capsys, *args)
    assert (done.code, done.out) == (2, "")
    error, hinted = done.err.splitlines()
    assert words in error
    assert hint in hinted
    assert len(with_samples(store)) == 6


def test_refusal_is_one_document_with_json(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "--prune", "--json")
    assert done.code == 2
    assert done.document["error"]["type"] == "SpecError"


def test_old_samples_go_by_age_and_everything_else_stays(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = store.path.stat().st_size
    done = call(capsys, "--prune", "--older-than", "90d")
    assert (done.code, done.err) == (0, "")
    assert "4 trials lost raw measurements" in done.out
    assert store.path.stat().st_size < 0.65 * before  # the rest are empty tables of a small store
    assert with_samples(store) == ["newest-base", "newest-cand"]
    listed = call(capsys, "--json").document["trials"]
    assert [one["trial"] for one in listed] == ["newest-cand", "middle-cand", "oldest-cand"]
    assert [one["latency"]["p50_s"] for one in listed] == [0.0015] * 3
    assert [PRUNED in one for one in listed] == [False, True, True]
    kept = store.trial("oldest-cand").result
    assert kept == {k: v for k, v in measured().items() if k not in RAW_FIELDS} | {PRUNED: kept[PRUNED]}
    assert "oldest-c" in call(capsys).out
    assert "No trial lost raw measurements." in call(capsys, "--prune", "--older-than", "12w").out


def test_oldest_samples_go_by_size(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    whole = call(capsys, "--prune", "--keep-size", "1GB", "--json").document
    assert (whole["trials"], whole["samples_bytes"]) == ([], 0)
    limit = whole["kept_bytes"] - 1
    done = call(capsys, "--prune", "--keep-size", f"{limit}B", "--json").document
    assert set(done) == {
        "format_version",
        "dry_run",
        "trials",
        "samples_bytes",
        "compressed",
        "baselines_kept",
        "kept_bytes",
        "freed_bytes",
        "file_bytes",
    }
    assert done["trials"] == ["oldest-cand", "oldest-base"]
    assert done["kept_bytes"] == whole["kept_bytes"] - done["samples_bytes"]
    assert done["file_bytes"] == store.path.stat().st_size == whole["file_bytes"] - done["freed_bytes"]
    assert with_samples(store) == ["middle-base", "middle-cand", "newest-base", "newest-cand"]
    call(capsys, "--prune", "--keep-size", "0.5 KiB")
    assert with_samples(store) == []


def test_dry_run_tells_and_changes_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    size = store.path.stat().st_size
    said = call(capsys, "--prune", "--older-than", "2400h", "--dry-run").out
    assert "4 trials would lose raw measurements" in said
    assert "Nothing was changed" in said
    would = call(capsys, "--prune", "--older-than", "2400h", "--dry-run", "--json").document
    assert store.path.stat().st_size == size
    assert len(with_samples(store)) == 6
    done = call(capsys, "--prune", "--older-than", "2400h", "--json").document
    assert (would.pop("dry_run"), done.pop("dry_run")) == (True, False)
    for about in ("freed_bytes", "file_bytes"):
        assert would.pop(about) == pytest.approx(done.pop(about), rel=0.1)
    assert would == done


def test_pinned_baseline_keeps_its_samples_and_is_named(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.pin_baseline(SHA, "oldest-cand")
    said = call(capsys, "--prune", "--older-than", "0h", "--keep-size", "0B").out
    assert "5 trials lost raw measurements" in said
    assert "1 pinned baseline kept raw measurements." in said
    assert with_samples(store) == ["oldest-cand"]
    document = call(capsys, "--prune", "--keep-size", "0B", "--json").document
    assert (document["trials"], document["baselines_kept"]) == ([], 1)


@pytest.mark.parametrize("name", ["n", "other"])
def test_one_model_alone_is_pruned_when_it_is_named(
    store: Store, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """By the name that the list shows, or by the one that the library knows."""
    store.put_model(
        ModelRecord(
            content_sha256=OTHER,
            sha256=OTHER,
            name="other",
            path="/other.onnx",
            source="upload",
            info=cast(wire.ModelInfo, {}),
        )
    )
    done = call(capsys, "--prune", "--older-than", "0h", "--model", name, "--json").document
    assert done["trials"] == ["middle-cand", "middle-base"]
    assert len(with_samples(store)) == 4


def test_pruned_trial_is_still_written_as_yaml(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "--prune", "--older-than", "0h")
    assert run(["export", "oldest-cand", "--format", "yaml"]) == 0
    assert "m.onnx" in capsys.readouterr().out


def test_store_that_another_process_writes_to_is_an_error_in_words(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = call(capsys, "--prune", "--older-than", "90d")
    assert done.code == 2
    assert "Another process has been writing" in done.err
    assert "Traceback" not in done.err
    assert len(with_samples(store)) == 6


def test_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    put_compared(Store(cli.home / "ortune.db"), "oldest", time.time() - 9 * DAY_S, SHA)
    done = cli.run("history", "--prune", "--older-than", "1w", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["trials"] == ["oldest-cand", "oldest-base"]
    assert cli.run("history", "--prune").code == 2
