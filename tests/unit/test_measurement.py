"""From a worker's reply to the numbers of a result."""

import pytest

from core import measurement
from core.measurement import Trial


def reply(latencies_ns, **changes):
    return {
        "requested_providers": ["CPUExecutionProvider"],
        "effective_providers": ["CPUExecutionProvider"],
        "fallback": False,
        "fallback_reason": "",
        "batch_size": 4,
        "inputs": [],
        "outputs": [],
        "session_creation_s": 0.2,
        "first_run_s": 0.01,
        "warmup_latencies_ns": [10_000_000, 2_000_000],
        "latencies_ns": latencies_ns,
        "timed_wall_s": 1.0,
        "cpu_s_per_run": 0.05,
        "baseline_rss_bytes": 1000,
        "peak_rss_bytes": 500,
        "gpu_memory_bytes": None,
        "notes": ["a note"],
        "libraries": {"onnxruntime-gpu": "1.31.1"},
        **changes,
    }


def result(latencies_ns, **changes):
    return measurement.result_from_reply(
        reply(latencies_ns, **changes),
        placement={"CPUExecutionProvider": {"nodes": 3, "time_s": 0.001}},
        casts=None,
        environment=None,
        seed=0,
        tool_version="test",
    )


def test_throughput_is_rows_fed_over_time_in_the_runs():
    assert result([1_000_000] * 10)["throughput_per_s"] == pytest.approx(4 * 10 / 0.010)


def test_cpu_time_is_per_run():
    assert result([1_000_000] * 10)["cpu_s_per_inference"] == pytest.approx(0.05)


def test_samples_stay_in_run_order_and_warmup_stays_apart():
    found = result([3_000_000, 1_000_000, 2_000_000])
    assert found["latencies_s"] == [0.003, 0.001, 0.002]
    assert found["warmup_latencies_s"] == [0.010, 0.002]
    assert found["runs"] == 3


def test_a_percentile_the_runs_cannot_support_is_null_and_says_what_it_needs():
    latency = result([1_000_000 + i for i in range(100)])["latency"]
    assert latency["p95_s"] is not None
    assert latency["p99_s"] is None
    assert latency["p99_s_high"] is None
    assert latency["needs_runs"] == {"p99_s": 368}


def test_drifting_runs_are_told():
    steady = [1_000_000 + i % 7 for i in range(60)]
    assert not any("moved" in note for note in result(steady)["notes"])
    moving = [1_000_000 + 20_000 * i for i in range(60)]
    assert any("moved by +" in note for note in result(moving)["notes"])


def test_every_contract_name_is_there_even_in_a_failed_trial():
    trial = Trial(
        id="a1",
        kind="measure",
        state="FAIL",
        spec={"model": {"path": "m.onnx"}},
        model_name="m",
        model_sha256="",
        key="k",
        created_at=1.0,
        error={"type": "ModelError", "message": "no", "hint": ""},
    )
    data = trial.to_dict()
    assert data["state"] == "FAIL"
    assert data["error"]["type"] == "ModelError"
    assert {"latency", "throughput_per_s", "placement", "fallback", "environment"} <= set(data)
    assert data["latencies_s"] is None
    assert data["model"] == {"path": "m.onnx", "sha256": None, "precision": "fp32", "name": "m"}


def steady(ns, batch_size=4):
    return result([ns + i % 5 for i in range(100)], batch_size=batch_size)


def test_contrast_is_per_row_and_clear_when_intervals_are_apart():
    found = measurement.contrast(steady(2_000_000, batch_size=8), steady(2_000_000, batch_size=4))
    assert found.ratio == pytest.approx(2.0, rel=1e-3)
    assert found.clear


def test_contrast_of_like_with_like_is_not_clear():
    noisy = [1_000_000 + (i * 7919) % 100_000 for i in range(100)]
    found = measurement.contrast(result(noisy), result(noisy[::-1]))
    assert found.ratio_low < 1 < found.ratio_high
    assert not found.clear


def test_contrast_across_machines_says_why_it_must_not_be_read():
    other = {**steady(1_000_000), "fingerprint": "elsewhere"}
    assert "different machines" in measurement.contrast(steady(1_000_000), other).why_not


def test_contrast_needs_a_p50_on_both_sides():
    assert measurement.contrast(result([1_000_000] * 5), steady(1_000_000)) is None
