"""A result as rows of text: the uncertainty of each number, and the comparison with a baseline."""

from __future__ import annotations

import re
from typing import Any

import pytest

from core.evidence.cold_start import BreakEven
from core.evidence.measurement import Trial, latency_summary
from core.evidence.verdict import words
from core.show import cells, format
from core.show.placement import cast_lines, placement
from core.show.table import Column, Table, Value, column_of
from core.wire.output_check import OUTPUTS_DIFFER
from dashboard.widgets.tables import frame
from tests import builders
from tests.builders import MACHINE, guarded
from tests.reading import numbers, tells


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


def by_name(
    one: dict[str, Any], baseline: dict[str, Any] | None = None, contrast: dict[str, Any] | None = None
) -> dict[str, cells.Cell]:
    shown = [
        *cells.latency_cells(one, baseline, contrast),
        *cells.cold_cells(one, baseline),
        *cells.cost_cells(one, baseline),
    ]
    return {cell.name: cell for cell in shown}


def contrast(verdict: str, ratio: float, **changes: Any) -> dict[str, Any]:
    return builders.contrast(ratio, 0.03, verdict=verdict, **changes)


def test_a_percentile_that_the_runs_cannot_carry_is_not_invented() -> None:
    shown = by_name(result(runs=100))
    assert numbers(shown["p99_s"].value) == [368]
    assert numbers(shown["p99_s"].note) == [100]
    assert by_name(result(runs=400))["p99_s"].value.endswith(" ms")
    assert numbers(by_name(result(runs=3))["p50_s"].value) == [6]


def test_a_result_of_one_run_says_that_its_intervals_are_unknown() -> None:
    shown = by_name(result(runs=1))
    assert shown["mean_s"].note == format.interval_ms(None, None)
    assert shown["throughput_per_s"].note == format.interval_rate(None, None)


def test_numbers_measured_once_say_so_and_stand_beside_the_baselines() -> None:
    shown = by_name(result(peak_rss_bytes=2 << 20), result())
    memory = shown[cells.PEAK_MEMORY]
    assert (memory.value, tells(memory.baseline_text, "1.00 MiB")) == ("2.00 MiB", True)
    with_process = by_name(result(peak_rss_bytes=2 << 20, baseline_rss_bytes=60 << 20))[cells.PEAK_MEMORY]
    assert tells(with_process.help, "62.0 MiB")
    for label in ("cpu_s_per_inference", "session_creation_s", "first_run_s"):
        assert shown[label].note == shown["session_creation_s"].note != ""
        assert (shown[label].change, shown[label].color) == ("", "off")
        assert shown[label].baseline_text.startswith("baseline ")


def test_no_gpu_is_not_zero_bytes() -> None:
    assert cells.GPU_MEMORY not in by_name(result())
    asked = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    fell_back = by_name(result(requested_providers=asked))[cells.GPU_MEMORY]
    assert (fell_back.value, numbers(fell_back.note)) == ("–", [])
    assert fell_back.note
    assert by_name(result(gpu_memory_bytes=3 << 20))[cells.GPU_MEMORY].value == "3.00 MiB"


def test_the_median_has_the_verdict_of_the_comparison_in_the_words_of_its_title() -> None:
    """Whatever two medians of their own say: the change is that of the paired rounds."""
    close = result(0.00199), result(0.002)
    for verdict, ratio, change, rests_on, color in (
        ("FASTER", 1.08, "1.08× faster", "95 % CI [1.05, 1.11]", "green"),
        ("SLOWER", 0.8, "1.25× slower", "95 % CI [1.21, 1.29]", "orange"),
        ("EQUIVALENT", 1.0, "no difference", "1.00×, 95 % CI [0.97, 1.03]", "off"),
        ("UNDECIDED", 1.01, "undecided", "between 0.98× and 1.04×", "off"),
    ):
        found = contrast(verdict, ratio)
        p50 = by_name(*close, found)["p50_s"]
        assert (p50.change, p50.change_note, p50.color) == (change, rests_on, color)
        assert rests_on in words(found)
        assert tells(p50.baseline_text, "2.120 ms")


def test_nothing_but_the_verdict_is_a_change() -> None:
    """Percentiles, mean, throughput and cost are not paired: two numbers, and no percentage."""
    shown = by_name(result(0.001), result(0.002), contrast("FASTER", 1.9))
    assert [name for name, cell in shown.items() if cell.change] == ["p50_s"]
    assert {cell.color for name, cell in shown.items() if name != "p50_s"} == {"off"}
    said = " ".join(f"{cell.value} {cell.note} {cell.baseline_text} {cell.change}" for cell in shown.values())
    assert not re.search(r"[-+−][0-9.]+ ?%", said)
    assert shown["p90_s"].baseline_text.startswith("baseline 2.")
    assert shown["mean_s"].baseline_text.startswith("baseline 2.")
    assert shown["std_s"].baseline_text.startswith("baseline 0.")
    assert shown["throughput_per_s"].baseline_text.endswith(" samples/s")


def test_a_rejected_comparison_colours_nothing() -> None:
    for rejected in (
        contrast("UNDECIDED", 1.9, holds=False, grade="F"),
        contrast("FASTER", 1.9, grade="F", generations=None, holds=True),  # of an earlier version
    ):
        shown = by_name(result(0.001), result(0.002), rejected)
        assert {cell.color for cell in shown.values()} == {"off"}
        assert (shown["p50_s"].change, shown["p50_s"].change_note) == ("rejected", "")


def test_without_a_comparison_there_is_neither_a_change_nor_a_baseline() -> None:
    assert not any(cell.change or cell.baseline_text for cell in by_name(result()).values())


def test_different_batches_are_compared_per_row_and_nothing_else() -> None:
    shown = by_name(result(0.004, rows=4), result(0.002), contrast("FASTER", 2.0, per_row=True))
    p50 = shown["p50_s"]
    assert (p50.value, numbers(p50.baseline_text)) == ("1.060 ms", [2.12])
    assert numbers(p50.note) == [95, 1.04, 1.07]
    cpu = shown["cpu_s_per_inference"]
    assert (cpu.value, numbers(cpu.baseline_text)) == ("1.000 ms", [2])
    a_run = by_name(result(0.004, rows=4))
    for name in ("p50_s", "p90_s", "mean_s", "std_s", "cpu_s_per_inference"):
        assert shown[name].label != a_run[name].label  # it says that it is per sample
        assert numbers(shown[name].value)[0] == pytest.approx(numbers(a_run[name].value)[0] / 4, rel=1e-2)
    assert numbers(shown["first_run_s"].value)[-1] == 4
    assert shown["first_run_s"].baseline_text == ""
    assert (
        shown["throughput_per_s"].baseline_text
        == by_name(result(0.004, rows=4), result(0.002))["throughput_per_s"].baseline_text
    )


def test_the_same_batch_is_per_run() -> None:
    baseline_text, alone = by_name(result(rows=4), result(rows=4)), by_name(result())
    assert {name: one.label for name, one in baseline_text.items()} == {
        name: one.label for name, one in alone.items()
    }
    assert baseline_text["p50_s"].value == alone["p50_s"].value


def test_the_table_of_two_is_per_row_or_per_run_for_both() -> None:
    def baseline_text(*rows: int) -> dict[Value, tuple[Value, ...]]:
        table = cells.comparison(*(builders.trial(result=result(0.002, rows=one)) for one in rows))
        return {what: tuple(sides) for what, *sides in table.rows}

    per_row = baseline_text(4, 1)
    per_run = baseline_text(1, 1)
    timed = {name for name, sides in per_run.items() if sides == ("2.120 ms", "2.120 ms")}
    assert timed
    assert ("0.5300 ms", "2.120 ms") in per_row.values()
    assert not timed & set(per_row)  # the names say it


def test_idle_cpu_is_told_in_cores_and_energy_says_why_it_is_not_known() -> None:
    unknown = {"energy_j_per_inference": None, "energy_note": "no RAPL here"}
    shown = by_name(result(idle_cpu_s=0.19, idle_wall_s=0.1, **unknown))
    assert numbers(shown["idle_cpu_s"].value + shown["idle_cpu_s"].note) == [1.9, 100]
    assert shown["energy_j_per_inference"].note == unknown["energy_note"]
    assert numbers(shown["energy_j_per_inference"].value) == []
    assert by_name(result())["idle_cpu_s"].value == "–"
    asleep = by_name(result(idle_cpu_s=1e-5, idle_wall_s=0.1), result(idle_cpu_s=0.19, idle_wall_s=0.1))[
        "idle_cpu_s"
    ]
    assert numbers(asleep.value + asleep.note) == [100]
    assert numbers(asleep.baseline_text) == [1.9]
    assert tells(by_name(result(energy_j_per_inference=0.0123))["energy_j_per_inference"].value, "12.3 mJ")


def test_each_new_shape_is_a_cell_with_its_first_and_its_next_run() -> None:
    shapes = [{"batch_size": 8, "first_run_s": 0.009, "next_run_s": 0.004}]
    cell = by_name(result(new_shapes=shapes))["new_shape.8"]
    assert (cell.value, tells(cell.note, "4.000 ms")) == ("9.000 ms", True)


def test_break_even_is_short_on_the_card_and_explained_beneath() -> None:
    found = BreakEven(kind="after", start_s=0.01, gain_s=0.001, count=1200, low=900, high=1500)
    cell = cells.break_even_cell(found)
    assert numbers(cell.value) == [1200]
    assert "(900 to 1,500)" in cell.note
    assert cells.break_even_cell(BreakEven(kind="never", start_s=0.01, gain_s=-0.001)).value == "never"


def test_what_differs_between_two_machines_is_said() -> None:
    def trial(fingerprint: str, environment: dict[str, Any] | None) -> Trial:
        return builders.trial(fingerprint=fingerprint, result={"environment": environment})

    there = {**MACHINE, "kernel": "0.0.1"}
    assert cells.differences(trial("f", MACHINE), trial("f", MACHINE)) == []
    [line] = cells.differences(trial("f", MACHINE), trial("g", there))
    assert line.startswith("kernel: ")
    assert cells.differences(trial("f", None), trial("g", None))


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


def test_nodes_that_an_older_version_does_not_tell_are_not_zero() -> None:
    ran = {"CPUExecutionProvider": {"nodes": None, "ran_nodes": 5, "time_s": 0.001}}
    found = placement(result(placement=ran))
    assert column_of(found, "nodes") == [None]
    assert column_of(found, "after fusion") == [5]


def test_casts_and_the_precision_that_was_really_used_are_said() -> None:
    casts = {
        "inserted_casts": 4,
        "inserted_cast_s": 0.0001,
        "inserted_cast_share": 0.25,
        "float32_ops": {"Conv": 2},
        "computes_in_float32": True,
    }
    inserted, computed = (words for _, words in cast_lines(casts))
    assert tells(inserted, 4, "Cast", "0.1000 ms", "25%")
    assert tells(computed, "FP32", "FP16", "2 Conv")
    assert cast_lines(None) == []
    assert cast_lines({**casts, "inserted_casts": 0, "computes_in_float32": False}) == []


def test_how_far_outputs_are_is_a_number_beside_what_is_allowed() -> None:
    agrees = cells.outputs_cell(result(**guarded(max_rel=2e-6)))
    assert agrees is not None
    assert (agrees.value, tells(agrees.note, "0.001", "fp32"), OUTPUTS_DIFFER in agrees.note) == (
        "2e-06",
        True,
        False,
    )
    differs = cells.outputs_cell(result(**guarded(max_rel=0.3)))
    assert differs is not None
    assert (differs.value, tells(differs.note, "⚠", OUTPUTS_DIFFER, "0.001", "fp32")) == ("0.3", True)
    unlike = cells.outputs_cell(result(**guarded(max_rel=None, difference="The output `y` has shape [1].")))
    assert unlike is not None
    assert (unlike.value, tells(unlike.note, "⚠", OUTPUTS_DIFFER), numbers(unlike.note)) == ("–", True, [])
    assert cells.outputs_cell(result()) is None
    void = cells.outputs_cell(result(**guarded(max_rel=0.0, not_finite=64, void=["y"])))
    assert void is not None
    assert (void.value, void.note) == ("–", cells.NOT_JUDGED)


def test_a_table_says_in_words_whether_outputs_are_right() -> None:
    assert cells.outputs_words(result(**guarded())) == "agree"
    assert tells(cells.outputs_words(result(**guarded(max_rel=0.3))), "⚠", OUTPUTS_DIFFER)
    assert cells.outputs_words(result(**guarded(not_finite=64, void=["y"]))) == cells.NOT_JUDGED
    assert cells.outputs_words(result()) == cells.outputs_words(result(guard=None)) == ""


@pytest.mark.parametrize("seconds", [-7.12442008e-10, 4.833123e-5, 0.123456789])
def test_a_browser_shows_a_time_with_four_digits_however_small(seconds: float) -> None:
    of = Table(columns=[Column("self", "ms")], rows=[[seconds]])
    assert frame(of).iloc[0, 0] == pytest.approx(float(f"{seconds * 1e3:.4g}"), rel=1e-12)
