"""Network, descriptors and time that lack: told in words, and the next measurement works."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.evidence.measurement import Trial
from core.store import Store
from tests import tiny_models
from tests.command_line import is_comparing
from tests.faults.conftest import Ground, check_told
from tests.waiting import wait_until

SHORT = ("--runs", "20", "--warmup-runs", "1", "--quiet", "--json")
LIMITED = """
import os, resource, sys
limit = getattr(resource, sys.argv[1])
resource.setrlimit(limit, (int(sys.argv[2]), int(sys.argv[2])))
os.execv(sys.argv[3], sys.argv[3:])
"""
COMMANDS = (
    ("tune", "mlp.onnx", *SHORT),
    ("compare", "mlp.onnx", "--candidate", "preset:edge", *SHORT),
    ("profile", "mlp.onnx", "--runs", "5", "--quiet"),
    ("inspect", "mlp.onnx"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_models.mlp(tmp_path / "mlp.onnx")
    return tmp_path


def _skip_without_namespaces() -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces cannot be made here")


def measured(ground: Ground, folder: Path) -> Trial:
    """A real measurement, after the fault."""
    done = ground.run("tune", "mlp.onnx", *SHORT, cwd=folder)
    check_told(done, codes=(0, 3))
    ground.check_store()
    assert ground.leavings() == []
    return Store(ground.home / "ortune.db").trial(json.loads(done.out)["trial"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_without_any_network(ground: Ground, folder: Path, command: tuple[str, ...]) -> None:
    _skip_without_namespaces()
    check_told(ground.run(*command, cwd=folder, prefix=("unshare", "-n")), codes=(0, 3))
    assert measured(ground, folder).state == "COMPLETE"


def test_a_download_without_any_network(ground: Ground, folder: Path) -> None:
    """The file says which weights it holds: they could not be downloaded."""
    _skip_without_namespaces()
    pytest.importorskip("torchvision")
    convert = (
        "convert",
        "squeezenet1_1",
        "--image-size",
        "64",
        "-o",
        str(folder / "s.onnx"),
        "--json",
        "--quiet",
    )
    done = ground.run(*convert, cwd=folder, prefix=("unshare", "-n"))
    check_told(done, codes=(0,))
    assert json.loads(done.out)["weights"] == "random"


@pytest.mark.parametrize("most", [8, 12, 16, 24, 32, 48])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_with_few_descriptors(
    ground: Ground, folder: Path, command: tuple[str, ...], most: int
) -> None:
    limited = (sys.executable, "-c", LIMITED, "RLIMIT_NOFILE", str(most))
    check_told(ground.run(*command, cwd=folder, prefix=limited))
    assert measured(ground, folder).state == "COMPLETE"


@pytest.mark.parametrize("pause_s", [0.5, 3.0, 12.0])
def test_a_command_that_is_stopped_while_it_measures(ground: Ground, folder: Path, pause_s: float) -> None:
    """The longest pause is above the time after which a poll, a lock or a heartbeat would give up."""
    process = ground.start("tune", "mlp.onnx", "--budget", "8s", "--effort", "publish", cwd=folder)
    wait_until(lambda: is_comparing(process))
    process.send_signal(signal.SIGSTOP)
    time.sleep(pause_s)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 3), err
    assert "Traceback" not in err
    assert measured(ground, folder).state == "COMPLETE"
