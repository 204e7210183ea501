"""A result as rows of text: how sure each number is, and what may be said beside a baseline."""

from __future__ import annotations

from typing import Any

import pytest

from core.measurement import latency_summary
from dashboard.panels import cells


def result(
    latency_s: float = 0.002, *, rows: int = 1, runs: int = 100, spread: float = 0.01, **more: Any
) -> dict[str, Any]:
    samples = [latency_s * (1 + spread * ((index * 7919) % 13)) for index in range(runs)]
    return {
        "requested_providers": ["CPUExecutionProvider"],
        "effective_providers": ["CPUExecutionProvider"],
        "fallback": False,
        "batch_size": rows,
        "runs": runs,
        "latency": latency_summary(samples),
        "throughput_per_s": rows * runs / sum(samples),
        "cpu_s_per_inference": latency_s,
        "session_creation_s": 0.01,
        "first_run_s": 0.02,
        "peak_rss_bytes": 1 << 20,
        "gpu_memory_bytes": None,
        "fingerprint": "f",
    } | more


def by_label(one: dict[str, Any], baseline: dict[str, Any] | None = None) -> dict[str, cells.Cell]:
    return {cell.label: cell for cell in cells.cells(one, baseline)}


def test_a_percentile_that_the_runs_cannot_carry_is_not_invented() -> None:
    shown = by_label(result(runs=100))
    assert shown["p99 latency"].value == "needs 368 runs"
    assert shown["p99 latency"].note == "100 were made"
    assert by_label(result(runs=400))["p99 latency"].value.endswith(" ms")
    assert by_label(result(runs=3))["p50 latency"].value == "needs 6 runs"


def test_a_result_of_one_run_says_that_its_intervals_are_unknown() -> None:
    shown = by_label(result(runs=1))
    assert shown["Mean latency"].note == "interval unknown: too few runs"
    assert shown["Throughput"].note == "interval unknown: too few runs"


def test_numbers_measured_once_say_so_and_are_never_coloured() -> None:
    shown = by_label(result(peak_rss_bytes=2 << 20), result())
    assert shown["Peak memory"].change == 1.0
    for label in ("CPU time", "Session creation", "First run", "Peak memory"):
        assert shown[label].note == "one value, no interval"
        assert shown[label].color == "off"


def test_no_gpu_is_not_zero_bytes() -> None:
    assert (by_label(result())["GPU memory"].value, by_label(result())["GPU memory"].note) == (
        "–",
        "no GPU in use",
    )
    assert by_label(result(gpu_memory_bytes=3 << 20))["GPU memory"].value == "3.00 MiB"


def test_colour_needs_intervals_that_are_apart() -> None:
    faster = by_label(result(0.001), result(0.002))["p50 latency"]
    assert (faster.change, faster.color, faster.change_note) == (
        pytest.approx(-0.5),
        "inverse",
        "vs baseline",
    )
    same = by_label(result(0.002), result(0.00201))["p50 latency"]
    assert (same.color, same.change_note) == ("off", "within noise")
    unknown = by_label(result(0.001, runs=10), result(0.002))["p50 latency"]
    assert (unknown.color, unknown.change_note) == ("off", "no interval")


def test_throughput_goes_up_when_it_is_better() -> None:
    cell = by_label(result(0.001), result(0.002))["Throughput"]
    assert (cell.change, cell.color) == (pytest.approx(1.0), "normal")


def test_different_batches_are_compared_per_row_or_not_at_all() -> None:
    shown = by_label(result(0.004, rows=4), result(0.002))
    assert (shown["p50 latency"].change, shown["p50 latency"].change_note) == (pytest.approx(-0.5), "per row")
    assert (shown["CPU time"].change, shown["CPU time"].change_note) == (pytest.approx(-0.5), "per row")
    assert shown["First run"].change is None
    assert shown["Throughput"].change == pytest.approx(1.0)


def test_a_verdict_names_the_factor_and_stays_modest() -> None:
    clear, words = cells.verdict(result(0.004), result(0.002))
    assert clear
    assert words.startswith("p50 per row 2.00× slower than the baseline (95 % interval 1.")
    assert words.endswith("what differs from one trial to the next is not in it.")


def test_noise_other_machines_and_too_few_runs_give_no_verdict() -> None:
    assert cells.verdict(result(0.002), result(0.00201))[1].startswith("Within the noise of these two runs")
    assert "cannot be compared" in cells.verdict(result(), result(fingerprint="g"))[1]
    assert "make more runs" in cells.verdict(result(runs=3), result())[1]
    assert not cells.comparable(result(), result(fingerprint="g"))


def test_a_provider_that_did_not_load_is_listed_as_such() -> None:
    asked = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    placement = {"CPUExecutionProvider": {"nodes": 7, "time_s": 0.001}}
    cuda, cpu = cells.placement_rows(result(requested_providers=asked, placement=placement))
    assert (cuda["Loaded"], cuda["Nodes"], cuda["Time per run (ms)"]) == ("no", 0, None)
    assert (cpu["Loaded"], cpu["Nodes"], cpu["Share of node time"]) == ("yes", 7, 1.0)


def test_an_unknown_placement_is_not_zero_nodes() -> None:
    [row] = cells.placement_rows(result(placement=None))
    assert row["Nodes"] is None
    assert row["Share of node time"] is None


def test_casts_and_the_precision_that_was_really_used_are_said() -> None:
    casts = {
        "inserted_casts": 4,
        "inserted_cast_s": 0.0001,
        "inserted_cast_share": 0.25,
        "float32_ops": {"Conv": 2},
        "computes_in_float32": True,
    }
    inserted, computed = (words for _, words in cells.cast_lines(casts))
    assert inserted == "ONNX Runtime inserted 4 Cast nodes: 0.1000 ms per run, 25% of the node time."
    assert computed.startswith("Computed in FP32 although the model is FP16: 2 Conv.")
    assert cells.cast_lines(None) == []
    assert cells.cast_lines({**casts, "inserted_casts": 0, "computes_in_float32": False}) == []
