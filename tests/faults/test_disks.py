"""Full disks and folders that cannot be written: said in a line, nothing lost, earlier results readable."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import tiny_models
from tests.faults.conftest import Ground, check_told
from tests.small_disks import fill, small_disk

SHORT = ("--runs", "20", "--warmup-runs", "1", "--quiet")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("tune", "mlp.onnx", *SHORT),
    ("compare", "mlp.onnx", "--candidate", "preset:edge", *SHORT),
    ("sweep", "mlp.onnx", "--batch-size", "1,2", *SHORT),
    ("profile", "mlp.onnx", "--runs", "5", "--quiet"),
    ("transform", "mlp.onnx", "--simplify", "--name", "simpler", "--quiet"),
    ("inspect", "mlp.onnx"),
)
GROW = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.argv[2], sys.argv[2:])
"""
Mounter = Callable[[Ground, str], None]


@pytest.fixture
def mount() -> Iterator[Mounter]:
    """Give a command line a home on a file system of its own."""
    with contextlib.ExitStack() as stack:
        yield lambda ground, options: ground.live_in(stack.enter_context(small_disk(options)))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("most", [0, 4_096, 65_536, 300_000])
def test_files_that_cannot_grow(ground: Ground, tmp_path: Path, command: tuple[str, ...], most: int) -> None:
    tiny_models.mlp(tmp_path / "mlp.onnx")
    check_told(ground.run(*command, cwd=tmp_path, prefix=(sys.executable, "-c", GROW, str(most))))
    check_told(ground.run("history"), codes=(0,))
    ground.check_store()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("size", ["64k", "256k", "1m"])
def test_a_home_on_a_small_disk(
    ground: Ground, tmp_path: Path, mount: Mounter, command: tuple[str, ...], size: str
) -> None:
    mount(ground, f"size={size}")
    tiny_models.mlp(tmp_path / "mlp.onnx")
    check_told(ground.run(*command, cwd=tmp_path))
    filler = fill(ground.home)
    check_told(ground.run(*command, cwd=tmp_path))  # nothing at all is free
    check_told(ground.run("history"))
    filler.unlink()
    check_told(ground.run("history"), codes=(0, 2) if size == "64k" else (0,))  # no room for a store at all
    ground.check_store()


@pytest.mark.parametrize("how", ["ro", "full"])
def test_earlier_results_are_read_where_nothing_can_be_written(
    ground: Ground, tmp_path: Path, mount: Mounter, how: str
) -> None:
    mount(ground, "size=16m")
    tiny_models.mlp(tmp_path / "mlp.onnx")
    first = ground.run("tune", "mlp.onnx", *SHORT, "--json", cwd=tmp_path)
    check_told(first, codes=(0, 3))
    trial = json.loads(first.out)["trial"]
    if how == "ro":
        subprocess.run(["mount", "-o", "remount,ro", str(ground.home)], check=True)
    else:
        fill(ground.home)
    read = ground.run("history", "--json")
    check_told(read, codes=(0,))
    assert trial in read.out
    check_told(ground.run("export", trial, "--format", "yaml"), codes=(0,))
