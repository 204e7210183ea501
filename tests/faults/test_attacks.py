"""Attacks of a hostile operator library in real comparisons: it fails alone, and the others are measured."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.wire.files import ROOT
from core.wire.variables import ALLOW_LIBRARIES
from tests import attacks, libraries
from tests.attacks import Target, needs_sandbox
from tests.faults.conftest import Ground, check_told
from tests.small_disks import small_disk

pytestmark = needs_sandbox

SHORT = ("--runs", "40", "--warmup-runs", "2")
LIBRARY = ("--custom-op-library", attacks.LIBRARY)
ATTEMPTS = ("read", "write", "network", "others", "processes", "kernel")
MEMORY = ("prlimit", f"--data={4 << 30}:{4 << 30}")  # of every process: the campaign shares its machine
A_GIBIBYTE = """
import contextlib
with contextlib.suppress(ImportError):
    from core.wire import limits
    limits.memory_limit = lambda: 1 << 30
"""
FORGED = (
    '{"ok":{"session_creation_s":-1}}',
    '{"ok":{"latencies_ns":[1e999]}}',
    '{"ok":' + "[" * 5000,
    '{"error":{"type":"ModelError","message":"\\u001b[2J<b>[red]","hint":"\\u202e"}}',
    '{"error":{"type":"Cancelled","message":"The user stopped it.","hint":""}}',
    '{"error":{"type":"BudgetError","message":"Too short.","hint":""}}',
    '{"live":{"stage":"\\u001b[2J","done":-1,"total":1e400,"text":"<script>"}}',
)


@pytest.fixture
def target(ground: Ground, tmp_path: Path) -> Iterator[Target]:
    folder = tmp_path / "libraries"
    folder.mkdir()
    libraries.compiled(folder, attacks.LIBRARY, "attacker.cpp", "-O1")
    ground.environment[ALLOW_LIBRARIES] = str(folder)
    models = tmp_path / "models"
    models.mkdir()
    with attacks.target(models) as one:
        yield one


def compared(ground: Ground, target: Target, hostile: Path, prefix: tuple[str, ...] = ()) -> str:
    """Compare an innocent configuration with a hostile one; return what the hostile one failed with."""
    innocent = libraries.attacker(target.folder / "innocent.onnx", "none")
    models = (str(innocent), str(hostile), "--different-models")
    done = ground.run("compare", *models, *LIBRARY, *SHORT, "--json", prefix=prefix)
    check_told(done)
    trials = json.loads(done.out)["trials"]
    measured = [one for one in trials if one["model"]["name"] == "innocent"]
    assert {one["state"] for one in measured} == {"COMPLETE"}, measured
    failed = next(one for one in trials if one["model"]["name"] == hostile.stem)
    assert ground.leavings() == []
    ground.check_store()
    target.check_untouched()
    again = ground.run("tune", str(innocent), *LIBRARY, *SHORT, "--json")  # the queue is free
    assert again.code == 0, again.err
    return "" if failed["error"] is None else str(failed["error"]["message"])


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_hostile_configuration_fails_alone(ground: Ground, target: Target, name: str) -> None:
    said = compared(ground, target, target.model(name))
    assert attacks.reported(said), said
    assert attacks.successes(said) == []
    if name in attacks.FILTERED:
        assert attacks.not_refused(said) == []
    assert target.text not in said


def test_the_store_is_not_read(ground: Ground, target: Target) -> None:
    assert ground.run("history").code == 0
    store = ground.home / "ortune.db"
    said = compared(ground, target, libraries.attacker(target.folder / "store.onnx", "read", str(store)))
    assert len(attacks.reported(said)) > 10
    assert attacks.successes(said) == []
    with sqlite3.connect(store) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_message_harms_its_own_configuration_at_most(
    ground: Ground, target: Target, forged: str
) -> None:
    said = compared(ground, target, libraries.attacker(target.folder / "forges.onnx", "forge", forged))
    assert said.isprintable()


@pytest.mark.parametrize("name", ["escape", "exit", "endless"])
def test_a_hostile_end_is_told_in_words(ground: Ground, target: Target, name: str) -> None:
    said = compared(ground, target, target.model(name))
    assert said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("attempts", "size", "words"),
    [
        (("threads", "20000", "600"), "300m", "started more than 8,192 threads"),
        (("many", "200000", "600"), "2g", "made more than 100,000 files"),
        (("nest", "5000", "600"), "300m", "nested more than 200 deep"),
        (("large", "12", "600"), "300m", "because it fills the disk"),
        (("hidden", "12", "600"), "300m", "because it fills the disk"),
        (("leave",), "300m", "left=1"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_who_takes_too_much_fails_alone(
    ground: Ground, target: Target, attempts: tuple[str, ...], size: str, words: str
) -> None:
    with small_disk(f"size={size}") as disk:
        ground.temporary = disk
        ground.environment["TMPDIR"] = str(disk)
        hostile = libraries.attacker(target.folder / "hostile.onnx", *attempts)
        assert words in compared(ground, target, hostile)


@pytest.mark.parametrize("job", [("inspect", "--load"), ("profile", "--runs", "5"), ("tune", *SHORT)])
def test_other_jobs_have_the_same_boundary(ground: Ground, target: Target, job: tuple[str, ...]) -> None:
    done = ground.run(job[0], str(target.model("read")), *job[1:], *LIBRARY)
    check_told(done)
    assert done.code in (1, 2)
    assert attacks.reported(done.err + done.out)
    assert attacks.successes(done.err + done.out) == []
    target.check_untouched()


def test_memory_without_end_is_an_error(ground: Ground, target: Target) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed")
    site = target.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(A_GIBIBYTE)
    paths = (str(ROOT), str(site), ground.environment.get("PYTHONPATH", ""))
    ground.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    said = compared(ground, target, target.model("memory"), MEMORY)
    assert "malloc=12" in said
    assert int(attacks.reported(said)["mebibytes"]) < 1024  # by the worker's own limit


def test_without_the_sandbox_a_hostile_configuration_reads_the_secret(ground: Ground, target: Target) -> None:
    """So the campaign can fail."""
    ground.environment["ORTUNE_SANDBOX"] = "off"
    assert f"open=0:{target.text}" in compared(ground, target, target.model("read"))
    assert os.listdir(target.secret.parent) == ["secret"]  # noqa: PTH208 - names
