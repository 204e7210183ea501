"""Poisoned tickets in the machine's queue: nobody waits for them, nothing of them reaches a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests import tiny_models
from tests.faults.conftest import Ground, check_told
from tests.waiting import WAIT_S, wait_until

NOBODY = 65534
FIRST = "00000000000000000001-00000000.json"  # older than any ticket of today
ESCAPES = "\x1b]0;owned\x07\x1b[31mred\n\rline"
WHOLE = {"pid": 1, "started": 0.0, "owner": ESCAPES, "what": ESCAPES, "since": 0.0, "running": True}


def ticket(**changes: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**WHOLE, **changes}))


def text(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_suffix(".fifo"))
    path.symlink_to(path.with_suffix(".fifo"))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 32)


def of_another(path: Path) -> None:
    """A ticket in the name of the first process of the machine, written by somebody else."""
    path.write_text(json.dumps({**WHOLE, "started": _started(1)}))
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)


def _started(pid: int) -> float:
    return psutil.Process(pid).create_time()


POISONS: dict[str, Callable[[Path], object]] = {
    "pid -1": ticket(pid=-1),
    "pid 0": ticket(pid=0),
    "pid 1 by another": of_another,
    "pid of 30 digits": ticket(pid=10**30),
    "pid as text": ticket(pid="1; reboot"),
    "pid as fraction": ticket(pid=1.5),
    "pid true": ticket(pid=True),
    "pid missing": ticket(pid=None),
    "started not a number": ticket(started=float("nan")),
    "since infinite": ticket(since=float("inf")),
    "owner a list": ticket(owner=[ESCAPES] * 1000),
    "owner of a megabyte": ticket(owner="x" * (1 << 20)),
    "no JSON": text(b"{"),
    "deep JSON": text(b"[" * 100_000),
    "digits": text(b"9" * 100_000),
    "not UTF-8": text(b"\xff\xfe\x00"),
    "a FIFO": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("/nonexistent"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a FIFO": link_to_fifo,
    "four sparse gigabytes": sparse,
}


@pytest.mark.skipif(sys.platform != "linux", reason="FIFOs, devices and owners as Linux has them")
@pytest.mark.parametrize("poison", POISONS)
def test_a_poisoned_queue_stops_nobody(ground: Ground, tmp_path: Path, poison: str) -> None:
    ground.queue.mkdir()
    ground.queue.chmod(0o1777)
    POISONS[poison](ground.queue / FIRST)
    tiny_models.mlp(tmp_path / "mlp.onnx")
    done = ground.run("tune", "mlp.onnx", "--runs", "5", "--warmup-runs", "1", cwd=tmp_path)
    check_told(done, codes=(0, 3))
    assert "owned" not in done.err.replace("\\x1b]0;owned", "")
    ground.check_store()


def test_one_who_really_measures_is_waited_for_and_named_escaped(ground: Ground, tmp_path: Path) -> None:
    """The other half: a living owner of a believable ticket is believed."""
    tiny_models.mlp(tmp_path / "mlp.onnx")
    ground.environment["USER"] = ground.environment["LOGNAME"] = ESCAPES.replace("\n", "").replace("\r", "")
    holder = ground.start("tune", "mlp.onnx", "--budget", "20s", "--effort", "publish", cwd=tmp_path)
    try:
        wait_until(lambda: any(ground.queue.glob("*.json")))
        waiting = ground.start("tune", "mlp.onnx", "--runs", "5", cwd=tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.communicate(timeout=6)
        waiting.terminate()
        _, err = waiting.communicate(timeout=WAIT_S)
        assert "\x1b" not in err
    finally:
        holder.terminate()
        holder.communicate(timeout=WAIT_S)
