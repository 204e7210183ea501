"""Hostile configurations: each is refused in a line, or measured; none runs or opens what it should not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests import tiny_models
from tests.faults.conftest import Ground, check_told

# The position of a value; `{}` is the hostile one.
PLACES = {
    "model path": "schema: 1\nmodel: {{path: {}}}\n",
    "schema": "schema: {}\nmodel: {{path: mlp.onnx}}\n",
    "threads": "schema: 1\nmodel: {{path: mlp.onnx}}\nsession: {{intra_op_num_threads: {}}}\n",
    "config entry": (
        "schema: 1\nmodel: {{path: mlp.onnx}}\n"
        "session: {{config_entries: {{session.intra_op.allow_spinning: {}}}}}\n"
    ),
    "provider": "schema: 1\nmodel: {{path: mlp.onnx}}\nsession: {{providers: [{{name: {}}}]}}\n",
    "batch": "schema: 1\nmodel: {{path: mlp.onnx}}\nworkload: {{batch_size: {}}}\n",
    "dims": "schema: 1\nmodel: {{path: mlp.onnx}}\nworkload: {{dims: {{batch: {}}}}}\n",
    "feeds": "schema: 1\nmodel: {{path: mlp.onnx}}\nworkload: {{feeds: {}}}\n",
    "budget": "schema: 1\nmodel: {{path: mlp.onnx}}\nprotocol: {{budget_s: {}}}\n",
    "key": "schema: 1\nmodel: {{path: mlp.onnx}}\n{}: 1\n",
}
VALUES = {
    "a hexadecimal number of 20,000 digits": "0x" + "f" * 20_000,
    "an octal number of 20,000 digits": "0o" + "7" * 20_000,
    "an octal number of the old kind": "0" + "7" * 20_000,
    "a binary number of 40,000 digits": "0b" + "1" * 40_000,
    "a number in base 60": "59:" * 3_000 + "59",
    "a decimal number of 10,000 digits": "9" * 10_000,
    "not a number": ".nan",
    "infinity": "-.inf",
    "a lone surrogate": '"\\ud800"',
    "a home of nobody": "~nosuchuser/x",
    "a zero byte": '"a\\0b"',
    "a text of 200,000 characters": '"' + "x" * 200_000 + '"',
    "deep brackets": "[" * 2_000 + "]" * 2_000,
    "a merge": "{<<: {a: 1}}",
    "code": "!!python/object/apply:os.system ['touch pwned']",
    "a date": "2026-01-01",
    "nothing": "",
    "escape codes": '"\\x1b]0;owned\\x07\\x1b[31m"',
}
CASES = list(itertools.product(PLACES, VALUES))  # 180


@pytest.mark.parametrize(("place", "value"), CASES, ids=[f"{a}: {b}" for a, b in CASES])
def test_a_hostile_configuration_does_no_harm(ground: Ground, tmp_path: Path, place: str, value: str) -> None:
    tiny_models.mlp(tmp_path / "mlp.onnx")
    (tmp_path / "config.yaml").write_text(PLACES[place].format(VALUES[value]))
    done = ground.run(
        *("tune", "--config", "config.yaml", "--runs", "3", "--warmup-runs", "1", "--quiet"),
        cwd=tmp_path,
        timeout_s=120,
    )
    check_told(done)
    assert not (tmp_path / "pwned").exists()
    assert ground.leavings() == []
    ground.check_store()
