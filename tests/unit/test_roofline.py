"""Rates, roofs and the one sentence, on invented peaks whose every number can be worked out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.evidence.roofline import advice, peak_for, peaks_of, points, settings_first
from core.evidence.statistics import Estimate
from core.wire.profile import Profile, by_operator
from tests.builders import PEAK_TIMES
from tests.reading import numbers, tells
from tests.unit.test_charts import profile as make_profile
from tests.unit.test_operation_counts import node, tensor

PEAKS = peaks_of({"times": [PEAK_TIMES]})
[PEAK] = PEAKS


def profile(*nodes: Any, remainder_s: float = 0.0) -> Profile:
    total = sum(one.self_s for one in nodes)
    shared = [replace(one, share=one.self_s / total) for one in nodes]
    run_s = (total + remainder_s,) * 3
    return make_profile(shared, self_s=total, remainder_s=remainder_s, run_s=run_s, runs=3)


def took(one: Any, seconds: float, **changes: Any) -> Any:
    return replace(one, self_s=seconds, median_s=seconds, **changes)


# 2·1024³ operations, 12 MiB: 170.7 operations per byte
PRODUCT = node("MatMul", [(1024, 1024), (1024, 1024)], (1024, 1024))
# 1 operation and 12 bytes for each of 10 million elements
SUM = node("Add", [(10_000_000,), (10_000_000,)], (10_000_000,))


def test_peaks_are_medians_with_intervals() -> None:
    assert PEAK.operations.value == pytest.approx(100e9)
    assert PEAK.bytes.value == pytest.approx(10e9)
    assert PEAK.ridge.value == pytest.approx(10)
    uneven = {**PEAK_TIMES, "product_ns": [20_000_000 + 1_000_000 * (k % 5) for k in range(40)]}
    [one] = peaks_of({"times": [uneven]})
    assert one.operations.low is not None
    assert one.operations.high is not None
    assert one.operations.low < one.operations.value < one.operations.high
    assert one.best_operations == pytest.approx(100e9)


def test_a_session_is_held_against_the_peak_of_its_threads() -> None:
    peaks = peaks_of({"times": [PEAK_TIMES, {**PEAK_TIMES, "threads": 1}]})
    assert [one.threads for one in peaks] == [1, 2]
    assert peak_for(peaks, 1) is peaks[0]
    assert peak_for(peaks, 0) is peaks[1]  # ONNX Runtime's own choice
    assert peak_for(peaks, 7) is None
    assert peak_for([], 0) is None


def test_the_lower_of_two_roofs_counts() -> None:
    computed, moved = points(profile(took(PRODUCT, 0.05), took(SUM, 0.024)), PEAK)
    assert computed.roof is not None
    assert moved.roof is not None
    assert computed.roof.value == pytest.approx(100e9)
    assert computed.bound == "computing"
    assert computed.reach == pytest.approx(2 * 1024**3 / 0.05 / 100e9)
    assert moved.roof.value == pytest.approx(10e9 / 12)
    assert moved.bound == "memory"
    assert moved.reach == pytest.approx(0.5)


def test_one_sentence_says_what_binds_the_largest_operator() -> None:
    said = advice(profile(took(PRODUCT, 0.03), took(SUM, 0.01)), PEAK)
    assert said.sentence == (
        "MatMul takes 75 % of the time in nodes; "
        "the largest, n, reaches 72 % of its roofline limit on this machine: "
        "bound by computing."
    )
    assert "INT8" in said.remedy
    said = advice(profile(took(SUM, 0.015)), PEAK)
    assert tells(said.sentence, "80 %", "memory")


def test_far_below_the_roof_no_roof_explains_it() -> None:
    said = advice(profile(took(PRODUCT, 0.2)), PEAK)
    assert numbers(said.sentence) == [100, pytest.approx(10.7, abs=1)]
    assert said.remedy not in ("", advice(profile(took(PRODUCT, 0.03)), PEAK).remedy)


def test_faster_than_memory_means_a_cache() -> None:
    said = advice(profile(took(SUM, 0.003)), PEAK)
    assert "cache" in said.sentence
    assert said.remedy == ""
    said = advice(profile(took(PRODUCT, 0.015)), PEAK)
    assert "cache" not in said.sentence
    assert "peaks" in said.remedy


def test_a_call_that_is_mostly_the_profilers_noise_tells_no_reach() -> None:
    short = took(node("MatMul", [(32, 32), (32, 32)], (32, 32)), 9e-6)
    said = advice(profile(short), PEAK)
    assert tells(said.sentence, "MatMul", "but")
    assert "%" not in said.sentence.split("but")[1]
    [one] = points(profile(short), PEAK)
    assert not one.is_clear


def test_peaks_that_are_not_well_known_carry_no_claim() -> None:
    wide = replace(PEAK, operations=Estimate(value=100e9, low=40e9, high=160e9))
    said = advice(profile(took(PRODUCT, 0.05)), wide)
    assert tells(said.sentence, "43 %", "27 %", "107 %")
    assert "computing" not in said.sentence
    assert said.remedy


def test_near_the_ridge_nothing_is_said_to_bind() -> None:
    around = Estimate(value=10e9, low=8e9, high=12.5e9)
    peak = replace(PEAK, operations=Estimate(value=100e9, low=90e9, high=110e9), bytes=around)
    assert peak.ridge == Estimate(value=10, low=90 / 12.5, high=110 / 8)
    # products of 60 by 60: 2·60 / 12 = 10 operations per byte, and long enough in so many calls
    one = took(node("MatMul", [(800, 60, 60), (800, 60, 60)], (800, 60, 60)), 4.5e-3)
    [point] = points(profile(one), peak)
    assert point.bound == "either"
    sentence = advice(profile(one), peak).sentence
    assert tells(sentence, "compute", "memory")  # either of them


@pytest.mark.parametrize(
    "other",
    [
        replace(PRODUCT, provider="DnnlExecutionProvider"),
        node(
            "MatMul", [tensor((64, 64), "float16"), tensor((64, 64), "float16")], tensor((64, 64), "float16")
        ),
        node("MatMulInteger", [tensor((64, 64), "uint8")], tensor((64, 64), "int32")),
    ],
)
def test_the_peak_of_float32_on_the_cpu_is_no_roof_over_others(other: Any) -> None:
    [point] = points(profile(took(other, 1e-3)), PEAK)
    assert point.roof is None
    assert point.bound is None
    assert numbers(advice(profile(took(other, 1e-3)), PEAK).sentence)[0] == 100


def test_without_peaks_the_rate_is_told_and_no_share() -> None:
    said = advice(profile(took(PRODUCT, 0.02)), None)
    assert tells(said.sentence, "107 billion")
    here = said.sentence
    assert numbers(here)[0] == 100
    said = advice(profile(took(PRODUCT, 0.02)), None, is_imported=True)
    assert advice(profile(took(PRODUCT, 0.02)), None, is_imported=True).sentence != here


def test_what_is_not_counted_is_said_to_be_so() -> None:
    said = advice(profile(took(node("MyOwn", [(4,)], (4,)), 0.02)), PEAK)
    assert "MyOwn" in said.sentence
    assert advice(profile(), PEAK).sentence == ""


def test_a_run_that_lies_between_its_nodes_says_so() -> None:
    said = advice(profile(took(SUM, 0.01), remainder_s=0.03), PEAK)
    assert tells(said.sentence, "75 %")


def test_the_share_of_the_sentence_is_that_of_the_table() -> None:
    of = profile(took(PRODUCT, 0.03), took(SUM, 0.01), remainder_s=0.01)
    assert by_operator(of)[0].share == pytest.approx(0.75)
    assert tells(advice(of, PEAK).sentence, "MatMul", "75 %")


def test_no_roof_of_float32_stands_over_another_type() -> None:
    """A product in float64 comes to half of it at best: "far below the roof" would be said of the peak."""
    double = [tensor((1024, 1024), "float64")] * 2
    [found] = points(profile(took(node("MatMul", double, tensor((1024, 1024), "float64")), 0.05)), PEAK)
    assert (found.roof, found.bound) == (None, None)
    assert found.operations_per_s == pytest.approx(2 * 1024**3 / 0.05)


def test_a_level_below_the_default_is_the_first_thing_to_try() -> None:
    said = advice(profile(took(PRODUCT, 1.0)), None)
    assert said.remedy == ""
    low = settings_first(said, {"session": {"graph_optimization_level": "ORT_ENABLE_BASIC"}}, [])
    assert "ORT_ENABLE_ALL" in low.remedy
    assert settings_first(said, {"session": {}}, []) == said


@pytest.mark.parametrize(
    ("node", "bound", "faster"),
    [
        (took(PRODUCT, 0.06), "computing", {"product_ns": [40_000_000] * 40}),
        (took(SUM, 0.03), "memory", {"copy_ns": [100_000_000] * 40}),
    ],
)
def test_fewer_threads_than_the_default_are_named_where_the_peak_that_binds_is_higher_with_more(
    node: Any, bound: str, faster: dict[str, Any]
) -> None:
    one_thread = {"session": {"intra_op_num_threads": 1}}
    peaks = peaks_of({"times": [{**PEAK_TIMES, "threads": 1, **faster}, PEAK_TIMES]})
    said = advice(profile(node), peaks[0])
    assert said.bound == bound
    first = settings_first(said, one_thread, peaks).remedy
    assert first.startswith("Leave `intra_op_num_threads`")
    assert "2.0 times" in first
    assert first.endswith(said.remedy)
    same = peaks_of({"times": [{**PEAK_TIMES, "threads": 1}, PEAK_TIMES]})
    below = advice(profile(took(PRODUCT, 1.0)), peaks[0])
    for no_evidence, known in ((said, same), (said, []), (below, peaks)):
        assert settings_first(no_evidence, one_thread, known) == no_evidence
    assert settings_first(said, {"session": {}}, peaks) == said


def test_what_a_gpu_takes_is_told_of_no_node() -> None:
    on_gpu = replace(PRODUCT, provider="CUDAExecutionProvider")
    largest = profile(took(on_gpu, 0.03))
    assert points(largest, PEAK) == []
    assert "GPU kernel launch only" in advice(largest, PEAK).sentence
    waiting = advice(profile(took(on_gpu, 0.03), remainder_s=0.1), PEAK)
    assert tells(waiting.sentence, "outside the nodes", "77 %")
    assert not waiting.remedy
