"""Signals at random moments over all commands: nothing lost, nobody left, nothing said to run."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny_models
from tests.faults.conftest import ENDED, Ground, check_told
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_models"
TIMES = 216
LONGEST_S = 6.0  # into a command; the start of Python and its imports take the first
PATIENCE_S = 120.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
SHORT = ("--runs", "400", "--warmup-runs", "2")

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("tune", "mlp.onnx", "--intra-op-num-threads", "1", *SHORT),
    ("tune", "mlp.onnx", "--effort", "quick", "--budget", "5s", "--json"),
    ("compare", "mlp.onnx", "--candidate", "preset:edge", "--budget", "5s"),
    ("compare", "mlp.onnx", "--candidate", "torch:eager", *SHORT),
    ("sweep", "mlp.onnx", "--batch-size", "1,2,4", *SHORT),
    ("profile", "mlp.onnx", "--runs", "50"),
    ("transform", "digits_cnn.onnx", "--simplify", "--int8-dynamic"),
    ("transform", "digits_cnn.onnx", "--int8-static", "--calibration", "digits_test.npz"),
    ("accuracy", "digits_cnn.onnx", "--data", "digits_test.npz"),
    ("scorecard", "digits_scorecard.yaml"),
    ("inspect", "digits_cnn.onnx"),
    ("machine", "--self-test"),
    ("history",),
)


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """What ignores SIGHUP hands that on: a campaign under `nohup` would send it to nobody."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands run: their models and data."""
    place = tmp_path / "here"
    place.mkdir()
    tiny_models.mlp(place / "mlp.onnx")
    for name in ("digits_cnn.onnx", "digits_test.npz", "digits_scorecard.yaml"):
        shutil.copy(SAMPLES / name, place / name)
    return place


def hears(process: subprocess.Popen[str]) -> bool:
    """Whether a command has handlers of its own; before, Python itself answers SIGINT with a traceback."""
    if process.poll() is not None:
        return True
    status = Path(f"/proc/{process.pid}/status").read_text()
    masks = re.findall(r"^Sig(?:Cgt|Ign):\s*(\w+)", status, re.M)
    return any(int(one, 16) >> (signal.SIGTERM - 1) & 1 for one in masks)


@pytest.mark.parametrize("number", range(TIMES))
def test_a_command_that_is_interrupted_leaves_nothing(ground: Ground, folder: Path, number: int) -> None:
    rng = random.Random(number)
    command = COMMANDS[number % len(COMMANDS)]
    how, moment_s = rng.choice(SIGNALS), LONGEST_S * rng.random() ** 1.5
    process = ground.start(*command, cwd=folder)
    try:
        out, err = process.communicate(timeout=moment_s)
    except subprocess.TimeoutExpired:
        if how == signal.SIGINT:
            wait_until(lambda: hears(process))
        process.send_signal(how)
        began = time.monotonic()
        out, err = process.communicate(timeout=PATIENCE_S)
        said = f"{command[0]} after {moment_s:.2f} s of {how.name}, ended in {time.monotonic() - began:.1f} s"
        assert process.returncode in (*ENDED, 128 + how, -how), (said, process.returncode, err[-2000:])
    assert "Traceback" not in err, err[-3000:]
    assert "Exception ignored" not in err, err[-3000:]
    if "--json" in command and out:
        assert out.lstrip().startswith("{")
    assert ground.left_over() == []
    if process.returncode != -signal.SIGKILL:
        assert ground.leavings() == []
    after = ground.run("history", "--json")  # the next command removes what even SIGKILL left
    check_told(after)
    assert ground.leavings() == []
    ground.check_store()
