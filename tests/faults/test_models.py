"""Models with damaged bytes: each is refused in a line, or measured; never a traceback, never a hang."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models
from tests.faults.conftest import Ground, check_told

TIMES = 264
BASES: tuple[Callable[[Path], Path], ...] = (
    tiny_models.mlp,
    tiny_models.conv,
    tiny_models.tokens,
    tiny_models.if_model,
    tiny_models.loop_model,
    tiny_models.scan_model,
    tiny_models.every_dtype,
    tiny_models.external_data,
    tiny_models.scalar,
    tiny_models.rank_unknown,
    tiny_models.image_uint8_nhwc,
    tiny_models.unnamed_dims,
)


def flipped(data: bytearray, rng: random.Random) -> bytearray:
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def cut(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data))]


def zeroed(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    length = min(rng.randrange(1, 64), len(data) - start)
    data[start : start + length] = bytes(length)
    return data


def doubled(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    length = rng.randrange(1, 200)
    return data[: start + length] + data[start:]


def without(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 64) :]


def noise(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    return data[:start] + bytearray(rng.randbytes(rng.randrange(1, 32))) + data[start:]


MUTATIONS = (flipped, flipped, cut, zeroed, doubled, without, noise)


@pytest.mark.parametrize("number", range(TIMES))
def test_a_damaged_model_is_refused_or_measured(ground: Ground, tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    path = BASES[number % len(BASES)](tmp_path / "model.onnx")
    path.write_bytes(rng.choice(MUTATIONS)(bytearray(path.read_bytes()), rng))
    check_told(ground.run("inspect", str(path)))
    check_told(ground.run("tune", str(path), "--runs", "3", "--warmup-runs", "1", "--quiet"))
    assert ground.leavings() == []
    ground.check_store()
