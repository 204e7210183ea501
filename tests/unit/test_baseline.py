"""A baseline that was kept earlier on this machine: what it says has changed since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from core import wire
from core.evidence.measurement import Trial
from core.run.baseline import compare_with, read, record_baseline
from core.wire.errors import SpecError
from tests import builders

MACHINE = cast(
    wire.Environment,
    {
        "fingerprint": "f",
        "cpu": {
            "model": "c",
            "logical": 2,
            "physical": 1,
            "allowed": [0, 1],
            "quota": None,
            "ort_default_threads": 1,
            "usable": 2,
        },
        "memory_bytes": 1,
        "gpus": [],
        "os": "o",
        "kernel": "k",
        "python": "3.12.1",
        "libraries": {"onnxruntime": "1.31.1"},
        "ort_build": "b",
        "providers": [],
        "variables": {},
    },
)


def measured(**parts: Any) -> Trial:
    latency = {"p50_s": 0.1, "p50_s_low": 0.09, "p50_s_high": 0.11}
    blocks = [{"counters": {"canary_ns": 1000}}]
    result = {"latency": latency, "batch_size": 1, "blocks": blocks}
    return builders.trial(of=builders.spec(**parts), result=result)


def changed(tmp_path: Path, then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    path = tmp_path / "baseline.json"
    record_baseline(path, measured(**then), builders.model(), MACHINE)
    return list(compare_with(read(path), measured(**now), builders.model(), MACHINE, limit=0.05).changed)


@pytest.mark.parametrize(
    "parts",
    [
        {"session": {"intra_op_num_threads": 1}},
        {"workload": {"batch_size": 4}},
        {"model": {"path": "m.onnx", "precision": "fp16"}},
        {"model": {"path": "m.onnx", "precision": "fp16", "keep_io_types": False}},
        {"protocol": {"cpus": "0"}},
        {"workload": {"feeds": "/a/other.npz"}},
    ],
)
def test_another_configuration_is_said(tmp_path: Path, parts: dict[str, Any]) -> None:
    told = ["settings: the configuration differs"]
    assert changed(tmp_path, {}, parts) == told
    assert changed(tmp_path, parts, {}) == told
    assert changed(tmp_path, parts, parts) == []


def test_the_sample_of_a_bundle_is_the_same_in_every_folder(tmp_path: Path) -> None:
    one, other = ({"workload": {"feeds": f"/cache/{name}/samples/inputs.npz"}} for name in ("a", "b"))
    assert changed(tmp_path, one, other) == []


def test_how_well_it_was_measured_is_no_setting(tmp_path: Path) -> None:
    assert changed(tmp_path, {}, {"protocol": {"effort": "publish"}}) == []


def test_another_build_is_what_a_baseline_is_for_and_another_machine_is_not(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    record_baseline(path, measured(), builders.model(), MACHINE)
    kept = read(path)
    rebuilt = cast(wire.Environment, {**MACHINE, "ort_build": "another build"})
    kept.check(rebuilt)
    (changed,) = compare_with(kept, measured(), builders.model(), rebuilt, limit=0.05).changed
    assert "another build" in changed
    with pytest.raises(SpecError, match="elsewhere"):
        kept.check(cast(wire.Environment, {**MACHINE, "kernel": "elsewhere"}))


def test_slower_than_before_is_said_by_the_interval(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    record_baseline(path, measured(), builders.model(), MACHINE)
    data = json.loads(path.read_text())
    data["speed"] = {"ratio": 1e9, "low": 0.99e9, "high": 1.01e9, "doubt": ""}
    path.write_text(json.dumps(data))
    change = compare_with(read(path), measured(), builders.model(), MACHINE, limit=0.05)
    assert change.state == "DIFFERS"
