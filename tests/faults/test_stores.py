"""Damaged stores: what is damaged is shown as damaged, what is sound is shown as it was, nothing hangs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_models
from tests.faults.conftest import Ground, check_told

TIMES = 72
SHORT = ("--runs", "60", "--warmup-runs", "1", "--quiet", "--json")


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store with results of three kinds, and what `history` says of them."""
    folder = tmp_path_factory.mktemp("sound")
    ground = Ground(folder)
    tiny_models.mlp(folder / "mlp.onnx")
    for command in (
        ("tune", "mlp.onnx", "--intra-op-num-threads", "1", *SHORT),
        ("compare", "mlp.onnx", "--candidate", "preset:edge", *SHORT),
        ("profile", "mlp.onnx", "--runs", "10", "--quiet", "--json"),
    ):
        assert ground.run(*command, cwd=folder).code in (0, 3)
    return ground.home, told(ground)


def told(ground: Ground) -> dict[str, Any]:
    done = ground.run("history", "--json", "--limit", "100")
    check_told(done, codes=(0,))
    return {row["trial"]: row for row in done.document["trials"]}


@pytest.mark.parametrize("number", range(TIMES))
def test_a_damaged_store(
    ground: Ground, sound: tuple[Path, dict[str, Any]], tmp_path: Path, number: int
) -> None:
    home, before = sound
    shutil.copytree(home, ground.home)
    path = ground.home / "ortune.db"
    data, rng = bytearray(path.read_bytes()), random.Random(number)
    for _ in range(rng.choice((1, 1, 3, 30))):
        data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
    if number % 9 == 0:
        del data[rng.randrange(1000, len(data)) :]
    path.write_bytes(bytes(data))

    done = ground.run("history", "--json", "--limit", "100")
    check_told(done)
    if done.code == 0:
        for trial, row in {row["trial"]: row for row in done.document["trials"]}.items():
            assert row == before.get(trial) or row["state"] == "DAMAGED", (trial, row)
    check_told(ground.run("history"))
    for trial in rng.sample(sorted(before), 2):
        for command in (("show", trial), ("export", trial, "--format", "json")):
            check_told(ground.run(*command))
    tiny_models.mlp(tmp_path / "mlp.onnx")
    check_told(ground.run("tune", "mlp.onnx", *SHORT, cwd=tmp_path))  # one can always go on
    again = ground.run("history", "--json")
    check_told(again)
    assert json.loads(again.out) if again.code == 0 else again.err
