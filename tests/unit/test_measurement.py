"""Trials, and the numbers that follow from the samples of one."""

from core.evidence import measurement
from tests import builders


def result(latencies_ns, batch_size=4):
    latencies_s = [ns / 1e9 for ns in latencies_ns]
    return {
        "batch_size": batch_size,
        "latency": measurement.latency_summary(latencies_s),
        "latencies_s": latencies_s,
        "fingerprint": "",
    }


def latency_warnings(latencies_ns):
    found = result(latencies_ns)
    return measurement.latency_warnings(found["latencies_s"], found["latency"])


def test_a_percentile_the_runs_cannot_support_is_null_and_says_what_it_needs():
    latency = result([1_000_000 + i for i in range(100)])["latency"]
    assert latency["p95_s"] is not None
    assert latency["p99_s"] is None
    assert latency["p99_s_high"] is None
    assert latency["needs_runs"] == {"p99_s": 368}


def test_moving_times_are_told():
    assert latency_warnings([1_000_000 + i % 7 for i in range(60)]) == []
    assert any(
        "changed by +" in note for note in latency_warnings([1_000_000 + 20_000 * i for i in range(60)])
    )


def test_times_that_are_hardly_known_are_told():
    assert any(
        "interval of the p50 is wide" in note for note in latency_warnings([1_000_000, 2_000_000] * 20)
    )


def test_every_contract_name_is_there_even_in_a_failed_trial():
    error = {"type": "ModelError", "message": "no", "hint": ""}
    data = builders.trial(spec={"model": {"path": "m.onnx"}}, state="FAIL", error=error).to_dict()
    assert data["state"] == "FAIL"
    assert data["error"]["type"] == "ModelError"
    assert {"latency", "throughput_per_s", "placement", "fallback", "environment"} <= set(data)
    assert {"contrasts", "grade", "blocks", "steady", "comparison"} <= set(data)
    assert {"busy", "generations"} <= set(data)
    assert data["latencies_s"] is None
    assert data["model"] == {"path": "m.onnx", "sha256": None, "precision": "fp32", "name": "m"}
