"""A result as rows of text: how sure each number is, and what may be said beside a baseline."""

from __future__ import annotations

import re
from typing import Any

from core.evidence.cold_start import BreakEven
from core.evidence.measurement import Trial, latency_summary
from core.evidence.verdict import words
from core.show import cells
from core.show.placement import cast_lines, placement
from core.show.table import Value, column_of
from tests import builders
from tests.builders import MACHINE, guarded


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


def by_label(
    one: dict[str, Any], baseline: dict[str, Any] | None = None, contrast: dict[str, Any] | None = None
) -> dict[str, cells.Cell]:
    shown = [
        *cells.latency_cells(one, baseline, contrast),
        *cells.cold_cells(one, baseline),
        *cells.cost_cells(one, baseline),
    ]
    return {cell.label: cell for cell in shown}


def contrast(verdict: str, ratio: float, **changes: Any) -> dict[str, Any]:
    return builders.contrast(ratio, 0.03, verdict=verdict, **changes)


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


def test_numbers_measured_once_say_so_and_stand_beside_the_baselines() -> None:
    shown = by_label(result(peak_rss_bytes=2 << 20), result())
    memory = shown["Peak memory added by the session"]
    assert (memory.value, memory.beside) == ("2.00 MiB", "baseline 1.00 MiB")
    with_process = by_label(result(peak_rss_bytes=2 << 20, baseline_rss_bytes=60 << 20))[memory.label]
    assert with_process.note.endswith("the process's own peak: 62.0 MiB")
    for label in ("CPU time", "Session creation", "First run"):
        assert shown[label].note == "one value, no interval"
        assert (shown[label].change, shown[label].color) == ("", "off")
        assert shown[label].beside.startswith("baseline ")


def test_no_gpu_is_not_zero_bytes() -> None:
    assert "GPU memory" not in by_label(result())
    asked = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    fell_back = by_label(result(requested_providers=asked))["GPU memory"]
    assert (fell_back.value, fell_back.note) == ("–", "no GPU in use")
    assert by_label(result(gpu_memory_bytes=3 << 20))["GPU memory"].value == "3.00 MiB"


def test_the_median_has_the_verdict_of_the_race_in_the_words_of_its_title() -> None:
    """Whatever two medians of their own say: the change is that of the paired rounds."""
    close = result(0.00199), result(0.002)
    for verdict, ratio, change, rests_on, color in (
        ("FASTER", 1.08, "1.08× faster", "95 % [1.05, 1.11]", "green"),
        ("SLOWER", 0.8, "1.25× slower", "95 % [1.21, 1.29]", "orange"),
        ("EQUIVALENT", 1.0, "no difference", "1.00×, 95 % [0.97, 1.03]", "off"),
        ("UNDECIDED", 1.01, "undecided", "between 0.98× and 1.04×", "off"),
    ):
        found = contrast(verdict, ratio)
        p50 = by_label(*close, found)["p50 latency"]
        assert (p50.change, p50.change_note, p50.color) == (change, rests_on, color)
        assert rests_on in words(found)
        assert p50.beside == "baseline 2.120 ms"


def test_nothing_but_the_verdict_is_a_change() -> None:
    """Percentiles, mean, throughput and cost are not paired: two numbers, and no percentage."""
    shown = by_label(result(0.001), result(0.002), contrast("FASTER", 1.9))
    assert [label for label, cell in shown.items() if cell.change] == ["p50 latency"]
    assert {cell.color for label, cell in shown.items() if label != "p50 latency"} == {"off"}
    said = " ".join(f"{cell.value} {cell.note} {cell.beside} {cell.change}" for cell in shown.values())
    assert not re.search(r"[-+−][0-9.]+ ?%", said)
    assert shown["p90 latency"].beside.startswith("baseline 2.")
    assert shown["Mean latency"].beside.startswith("baseline 2.")
    assert shown["Standard deviation"].beside.startswith("baseline 0.")
    assert shown["Throughput"].beside.endswith(" rows/s")


def test_a_rejected_race_colours_nothing() -> None:
    for rejected in (
        contrast("UNDECIDED", 1.9, holds=False, grade="F"),
        contrast("FASTER", 1.9, grade="F", generations=None, holds=True),  # of an earlier version
    ):
        shown = by_label(result(0.001), result(0.002), rejected)
        assert {cell.color for cell in shown.values()} == {"off"}
        assert (shown["p50 latency"].change, shown["p50 latency"].change_note) == ("rejected", "")


def test_without_a_race_there_is_neither_a_change_nor_a_baseline() -> None:
    assert not any(cell.change or cell.beside for cell in by_label(result()).values())


def test_different_batches_are_compared_per_row_and_nothing_else() -> None:
    shown = by_label(result(0.004, rows=4), result(0.002), contrast("FASTER", 2.0, per_row=True))
    p50 = shown["p50 latency per row"]
    assert (p50.value, p50.beside) == ("1.060 ms", "baseline 2.120 ms")
    assert p50.note == "1.040 to 1.070 ms (95 %)"
    cpu = shown["CPU time per row"]
    assert (cpu.value, cpu.beside) == ("1.000 ms", "baseline 2.000 ms")
    for name in ("p90 latency", "Mean latency", "Standard deviation"):
        assert f"{name} per row" in shown
        assert name not in shown
    assert shown["First run"].value.endswith("ms for 4 rows")
    assert shown["First run"].beside == ""
    assert shown["Throughput"].beside == by_label(result(0.004, rows=4), result(0.002))["Throughput"].beside


def test_the_same_batch_is_per_run() -> None:
    assert not [label for label in by_label(result(rows=4), result(rows=4)) if "per row" in label]


def test_the_table_of_two_is_per_row_or_per_run_for_both() -> None:
    def beside(*rows: int) -> dict[Value, tuple[Value, ...]]:
        table = cells.comparison(*(builders.trial(result=result(0.002, rows=one)) for one in rows))
        return {what: tuple(sides) for what, *sides in table.rows}

    per_row = beside(4, 1)
    assert per_row["p50 latency per row"] == ("0.5300 ms", "2.120 ms")
    assert "p50 latency" not in per_row
    assert "p50 latency" in beside(1, 1)


def test_idle_cpu_is_told_in_cores_and_energy_says_why_it_is_not_known() -> None:
    shown = by_label(
        result(idle_cpu_s=0.19, idle_wall_s=0.1, energy_j_per_inference=None, energy_note="no RAPL here")
    )
    assert (shown["CPU while idle"].value, shown["CPU while idle"].note) == (
        "1.9 cores",
        "in the 100 ms after a run",
    )
    assert (shown["Energy"].value, shown["Energy"].note) == ("not available", "no RAPL here")
    assert by_label(result())["CPU while idle"].value == "–"
    asleep = by_label(result(idle_cpu_s=1e-5, idle_wall_s=0.1), result(idle_cpu_s=0.19, idle_wall_s=0.1))[
        "CPU while idle"
    ]
    assert (asleep.value, asleep.note) == ("none", "in the 100 ms after a run")
    assert asleep.beside == "baseline 1.9 cores"
    assert by_label(result(energy_j_per_inference=0.0123))["Energy"].value == "12.3 mJ a run"


def test_each_new_shape_is_a_cell_with_its_first_and_its_next_run() -> None:
    shapes = [{"batch_size": 8, "first_run_s": 0.009, "next_run_s": 0.004}]
    cell = by_label(result(new_shapes=shapes))["First run of batch 8"]
    assert (cell.value, cell.note) == ("9.000 ms", "then 4.000 ms")


def test_break_even_is_short_on_the_card_and_explained_beneath() -> None:
    found = BreakEven(kind="after", start_s=0.01, gain_s=0.001, count=1200, low=900, high=1500)
    cell = cells.break_even_cell(found)
    assert cell.value == "after 1,200 runs"
    assert "(900 to 1,500)" in cell.note
    assert cells.break_even_cell(BreakEven(kind="never", start_s=0.01, gain_s=-0.001)).value == "never"


def test_what_differs_between_two_machines_is_said() -> None:
    def trial(fingerprint: str, environment: dict[str, Any] | None) -> Trial:
        return builders.trial(fingerprint=fingerprint, result={"environment": environment})

    there = {**MACHINE, "kernel": "0.0.1"}
    assert cells.differences(trial("f", MACHINE), trial("f", MACHINE)) == []
    [line] = cells.differences(trial("f", MACHINE), trial("g", there))
    assert line.startswith("kernel: ")
    assert "different machines" in cells.differences(trial("f", None), trial("g", None))[0]


def test_a_provider_that_did_not_load_is_listed_as_such() -> None:
    asked = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    ran = {"CPUExecutionProvider": {"nodes": 7, "time_s": 0.001}}
    found = placement(result(requested_providers=asked, placement=ran))
    assert column_of(found, "provider") == ["CUDA", "CPU"]
    assert column_of(found, "loaded") == ["no", "yes"]
    assert column_of(found, "nodes") == [0, 7]
    assert column_of(found, "time") == [None, 0.001]
    assert column_of(found, "share of node time") == [None, 1.0]


def test_an_unknown_placement_is_not_zero_nodes() -> None:
    found = placement(result(placement=None))
    assert column_of(found, "nodes") == [None]
    assert column_of(found, "share of node time") == [None]


def test_casts_and_the_precision_that_was_really_used_are_said() -> None:
    casts = {
        "inserted_casts": 4,
        "inserted_cast_s": 0.0001,
        "inserted_cast_share": 0.25,
        "float32_ops": {"Conv": 2},
        "computes_in_float32": True,
    }
    inserted, computed = (words for _, words in cast_lines(casts))
    assert inserted == "ONNX Runtime inserted 4 Cast nodes: 0.1000 ms per run, 25% of the node time."
    assert computed.startswith("Computed in FP32 although the model is FP16: 2 Conv.")
    assert cast_lines(None) == []
    assert cast_lines({**casts, "inserted_casts": 0, "computes_in_float32": False}) == []


def test_how_far_outputs_are_is_a_number_beside_what_is_allowed() -> None:
    agrees = cells.outputs_cell(result(**guarded(max_rel=2e-6)))
    assert agrees is not None
    assert (agrees.value, agrees.note) == ("2e-06", "0.001 is allowed (fp32)")
    differs = cells.outputs_cell(result(**guarded(max_rel=0.3)))
    assert differs is not None
    assert (differs.value, differs.note) == ("0.3", "⚠ outputs differ; 0.001 is allowed (fp32)")
    unlike = cells.outputs_cell(result(**guarded(max_rel=None, difference="The output `y` has shape [1].")))
    assert unlike is not None
    assert (unlike.value, unlike.note) == ("–", "⚠ outputs differ; not compared")
    assert cells.outputs_cell(result()) is None
    void = cells.outputs_cell(result(**guarded(max_rel=0.0, not_finite=64, void=["y"])))
    assert void is not None
    assert (void.value, void.note) == ("–", "neither right nor wrong")


def test_a_table_says_in_words_whether_outputs_are_right() -> None:
    assert cells.outputs_words(result(**guarded())) == "agree"
    assert cells.outputs_words(result(**guarded(max_rel=0.3))) == "⚠ outputs differ"
    assert cells.outputs_words(result(**guarded(not_finite=64, void=["y"]))) == "neither right nor wrong"
    assert cells.outputs_words(result()) == cells.outputs_words(result(guard=None)) == ""
