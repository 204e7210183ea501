"""A disk that fills during a comparison: its result is kept and located, stored ones stay readable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.store import Store
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine, is_comparing
from tests.small_disks import fill, small_disk
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system"
)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CommandLine]:
    """The command line with a home on a file system of its own, and a folder for temporary files."""
    one = CommandLine(tmp_path)
    (tmp_path / "tmp").mkdir()
    one.environment["TMPDIR"] = str(tmp_path / "tmp")
    with small_disk() as home:
        one.live_in(home)
        yield one


def await_rounds(home: Path, process: subprocess.Popen[str]) -> str:
    """Wait until a contestant is frozen, so that another one runs, and return the trial."""
    wait_until(lambda: is_comparing(process))
    (running,) = Store(home / "ortune.db").trials(state="RUNNING")
    return running.id


def test_a_disk_that_fills_in_a_comparison_costs_no_result(cli: CommandLine, tmp_path: Path) -> None:
    model = str(tiny_models.mlp(tmp_path / "mlp.onnx"))
    process = cli.start("tune", model, "--runs", "2000", "--intra-op-num-threads", "1", "--quiet")
    trial = await_rounds(cli.home, process)
    filler = fill(cli.home)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 2, err
    assert "Traceback" not in err
    kept = tmp_path / "tmp" / f"rescued-{trial}.json"
    assert kept.exists(), err
    assert str(kept) in " ".join(err.split())

    listed = cli.run("history")  # as full as before
    assert (listed.code, listed.err) == (0, "")
    assert trial[:8] in listed.out
    assert str(kept) in listed.out
    assert str(kept) in cli.run("history", "--json").document["rescued"]

    filler.unlink()
    listed = cli.run("history")
    assert (listed.code, listed.err) == (0, "")
    assert str(kept) not in listed.out
    assert not kept.exists()
    stored = Store(cli.home / "ortune.db").trial(trial)
    assert stored.state == "COMPLETE"
    assert stored.result is not None
    assert stored.result["latencies_s"]


def test_a_home_that_is_read_only_is_read(cli: CommandLine) -> None:
    assert cli.run("history").code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(cli.home)], check=True)
    for arguments in (["history"], ["history", "--json"]):
        done = cli.run(*arguments)
        assert (done.code, done.err) == (0, "")
    done = cli.run("history", "--prune", "--older-than", "1d")
    assert "Traceback" not in done.err


def test_a_disk_that_fills_in_a_search_costs_nothing_that_was_tried(cli: CommandLine, tmp_path: Path) -> None:
    model = str(tiny_models.mul(tmp_path / "m.onnx"))
    process = cli.start("search", model, "--budget", "10m", "--quiet")
    store_path = cli.home / "ortune.db"
    wait_until(lambda: store_path.exists() and any(one.tried for one in Store(store_path).studies()))
    filler = fill(cli.home)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 2, err
    assert "Traceback" not in err
    filler.unlink()
    (study,) = Store(store_path).studies()
    assert study.tried
    with simulated_clock.machine():
        done = cli.run("search", "--resume", study.id, "--budget", "60s", "--json")
    assert done.code in (0, 3), done.err
    assert done.document["tried"] >= len({str(one["changes"]) for one in study.tried})
