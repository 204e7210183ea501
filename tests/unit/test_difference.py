"""core.evidence.profile_difference and its parts on invented passes, where every number can be worked out."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.node_matching import UNMATCHED, Group, half_width
from core.evidence.profile_difference import OUTSIDE, UNSEEN, Difference, DifferenceRow, EndToEnd, difference
from core.evidence.profile_sentence import remarks, sentence
from core.evidence.verdict import Verdict
from core.run.explanation import Pair
from core.show.sheets import Line
from core.show.sheets import differences as sheets
from core.show.table import Table
from core.wire.errors import WorkerError
from core.wire.graph import graphs_from_json
from core.wire.profile import middle_half
from core.wire.profile_passes import passes_from_json
from core.worker.measure.profile_parser import parse_profile
from tests.builders import (
    CPU,
    CUDA,
    STEADY,
    US,
    WIGGLE,
    fused,
    node,
    passes,
    side,
    trial,
    unfused,
)
from tests.reading import numbers, tells
from tests.unit import test_profiling as ort

T_4 = 2.7764451  # Student's t for 4 degrees of freedom, 97.5 %


def end(baseline_us: float = 920, candidate_us: float = 545, **changes: Any) -> EndToEnd:
    verdict = Verdict.FASTER if candidate_us < baseline_us else Verdict.SLOWER
    facts: dict[str, Any] = {
        "baseline_s": baseline_us * US,
        "candidate_s": candidate_us * US,
        "candidate_p50_s": candidate_us * US,
        "low_s": None,
        "high_s": None,
        "verdict": verdict,
        "words": "1.69× faster, 95 % CI [1.60, 1.78]",
        "raced": True,
        "per_row": False,
    }
    return EndToEnd(**(facts | changes))


def differ(baseline: Any = None, candidate: Any = None, of: EndToEnd | None = None) -> Difference:
    return difference(
        passes_from_json(msgspec.json.encode(passes(baseline or unfused(), candidate or fused()))),
        of or end(),
    )


def row(found: Difference, label: str) -> DifferenceRow:
    (one,) = [row for row in found.rows if row.label == label]
    return one


def group(found: Difference, name: str) -> Group:
    (one,) = [one for one in found.groups if name in {node.name for node in (*one.baseline, *one.candidate)}]
    return one


def us(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / US, 6)


# --- the sum


def test_the_rows_add_up_to_both_results_and_what_is_unexplained_is_a_row() -> None:
    found = differ(of=end(baseline_us=1000, candidate_us=500))
    assert [(one.label, us(one.baseline_s), us(one.candidate_s)) for one in found.rows] == [
        ("Conv", 750, 360),
        ("Reorder", 0, 20),
        ("MatMul", 130, 130),
        ("Softmax", 20, 20),
        (OUTSIDE, 20, 15),
        (UNSEEN, 80, -45),
    ]
    assert us(sum(one.difference_s for one in found.rows)) == -500
    assert us(found.in_nodes.difference_s) == -370
    assert us(found.seen_s) == -375


@given(
    times=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12),
    others=st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12),
    ends=st.tuples(st.floats(1, 1e5), st.floats(1, 1e5)),
    outside=st.tuples(st.floats(-50, 500), st.floats(0, 500)),
    profiler=st.floats(0, 500),
)
def test_whatever_was_seen_the_rows_add_up(
    times: list[float],
    others: list[float],
    ends: tuple[float, float],
    outside: tuple[float, float],
    profiler: float,
) -> None:
    one = side(
        [node(f"n{i}", "Conv", us, shape=WIGGLE) for i, us in enumerate(times)],
        outside_us=outside[0],
        profiler_us=profiler,
    )
    other = side([node(f"n{i}", "Conv", us) for i, us in enumerate(others)], outside_us=outside[1])
    found = differ(one, other, end(*ends))
    assert sum(row.baseline_s for row in found.rows) == pytest.approx(ends[0] * US)
    assert sum(row.candidate_s for row in found.rows) == pytest.approx(ends[1] * US)
    tiles = [found.in_nodes, *found.rows[-2:]]
    assert sum(one.difference_s for one in tiles) == pytest.approx(found.end.difference_s, abs=1e-12)
    by_node = [sum(one.difference_s for one in found.groups), found.in_nodes.difference_s]
    assert by_node[0] == pytest.approx(by_node[1])


def test_times_are_per_row_where_the_batches_differ() -> None:
    found = differ(unfused(), fused(batch_size=4), end(920, 545 / 4, per_row=True))
    assert (us(row(found, "Conv").baseline_s), us(row(found, "Conv").candidate_s)) == (750, 90)
    assert us(row(found, OUTSIDE).candidate_s) == 3.75


# --- matching through fusions


def test_a_fused_node_stands_against_all_the_nodes_that_it_replaced() -> None:
    one = group(differ(), "relu1")
    assert [node.name for node in one.baseline] == ["conv1", "relu1"]
    assert [(node.name, node.op_type) for node in one.candidate] == [("conv1", "FusedConv")]
    assert one.model == ("conv1", "relu1")
    assert (one.label, us(one.difference_s)) == ("Conv", -250)


def test_a_renamed_node_is_matched_by_what_it_does_the_work_of() -> None:
    one = group(differ(), "c2_nchwc")
    assert [node.name for node in one.baseline] == ["conv2"]
    assert us(one.difference_s) == -140


def test_two_fusions_that_cut_the_model_differently_are_one_group() -> None:
    model = (("a", "Conv"), ("b", "Add"), ("c", "Relu"))
    one = side(
        [node("ab", "Conv", 30), node("c", "Relu", 5)], model=model, covers={"ab": ["a", "b"], "c": ["c"]}
    )
    other = side(
        [node("a", "Conv", 20), node("bc", "FusedAdd", 4)], model=model, covers={"a": ["a"], "bc": ["b", "c"]}
    )
    (whole,) = differ(one, other).groups
    assert (whole.label, whole.model, us(whole.difference_s)) == ("Conv", ("a", "b", "c"), -11)


@pytest.mark.parametrize(
    ("suffix", "op_type"), [("_quant", "MatMulInteger"), ("_Q4", "MatMulNBits"), ("_matmul_Q8", "MatMul")]
)
def test_a_quantized_node_stands_against_the_node_that_it_was_made_from(suffix: str, op_type: str) -> None:
    original = side([node("mm", "MatMul", 50), node("other_quant", "Relu", 1)])
    quantized = side(
        [node("x_quantize", "DynamicQuantizeLinear", 3), node("fused", "DynamicQuantizeMatMul", 20)],
        model=(("x_quantize", "DynamicQuantizeLinear"), (f"mm{suffix}", op_type), ("mm_scale", "Mul")),
        covers={"x_quantize": ["x_quantize"], "fused": [f"mm{suffix}", "mm_scale"]},
    )
    for found, sign in ((differ(original, quantized), 1), (differ(quantized, original), -1)):
        assert us(group(found, "fused").difference_s) == us(row(found, "MatMul").difference_s) == sign * -30
        assert us(row(found, "DynamicQuantizeLinear").difference_s) == sign * 3
        assert us(row(found, "Relu").difference_s) == sign * -1  # its name alone ends like a quantized one


def test_a_node_beside_the_one_that_it_is_named_after_was_not_made_from_it() -> None:
    model = (("mm", "MatMul"), ("mm_quant", "Relu"))
    ran = [node("mm", "MatMul", 50), node("mm_quant", "Relu", 5)]
    found = differ(side(ran, model=model), side(ran[1:], model=model))
    assert sorted(one.model for one in found.groups) == [("mm",), ("mm_quant",)]


def test_what_one_side_has_folded_away_is_a_group_of_the_other_alone() -> None:
    model = (("t", "Transpose"), ("mm", "MatMul"))
    found = differ(
        side([node("t", "Transpose", 7), node("mm", "MatMul", 50)], model=model),
        side([node("mm", "MatMul", 50)], model=model),
    )
    gone = group(found, "t")
    assert (gone.label, gone.candidate, us(gone.difference_s)) == ("Transpose", (), -7)
    assert row(found, "Transpose").candidate_nodes == 0


def test_inserted_nodes_are_a_row_of_their_own_beside_the_models_own() -> None:
    model = (("cast", "Cast"), ("mm", "MatMul"))
    found = differ(
        side([node("cast", "Cast", 3), node("mm", "MatMul", 50)], model=model),
        side(
            [
                node("cast", "Cast", 3),
                node("mm", "MatMul", 20),
                node("InsertedPrecisionFreeCast_x", "Cast", 6, inserted=True),
                node("MemcpyToHost", "MemcpyToHost", 8, inserted=True, nodes=2),
                node("MemcpyFromHost", "MemcpyFromHost", 9, inserted=True),
                node("q", "QuantizeLinear", 1, inserted=True),
                node("dq", "DequantizeLinear", 2, inserted=True),
            ],
            model=model,
        ),
    )
    rows = {(one.label, one.kind): (one.candidate_nodes, us(one.difference_s)) for one in found.rows}
    assert rows["Cast", "operator"] == (1, 0)
    assert rows["Cast", "inserted"] == (1, 6)
    assert rows["Memcpy", "inserted"] == (3, 17)
    assert rows["Quantize/Dequantize", "inserted"] == (2, 3)


def test_an_inserted_node_that_only_the_graph_gives_away_counts_as_inserted() -> None:
    candidate = side([node("Transpose", "Transpose", 4), node("mm", "MatMul", 50)], model=(("mm", "MatMul"),))
    for one in candidate["origins"]:
        one["inserted"] = one["name"] == "Transpose"
    assert row(differ(side([node("mm", "MatMul", 50)]), candidate), "Transpose").kind == "inserted"


def test_nodes_of_one_name_in_and_outside_a_body_stay_apart() -> None:
    model = (("mm", "MatMul"), ("loop", "Loop"), ("mm", "MatMul", ("loop",)))
    ran = [
        node("mm", "MatMul", 10),
        node("loop", "Loop", 5),
        node("mm", "MatMul", 70, path=("loop",), calls=10),
    ]
    found = differ(side(ran, model=model), side(ran, model=model))
    assert sorted(one.model for one in found.groups) == [("loop",), ("loop › mm",), ("mm",)]


def test_nodes_of_unknown_origin_stand_against_all_that_could_be_theirs() -> None:
    candidate = side(
        [node("TRT_0", "TRT", 40), node("softmax", "Softmax", 20)], model=unfused_model(), origins=None
    )
    found = differ(unfused(), candidate)
    pool = group(found, "TRT_0")
    assert (pool.label, pool.kind) == (UNMATCHED, "unmatched")
    assert {node.name for node in pool.baseline} == {"conv1", "relu1", "conv2", "mm"}
    assert us(pool.difference_s) == 40 - 880
    assert us(row(found, "Softmax").difference_s) == 0
    assert found.origins_known == (True, False)


def unfused_model() -> tuple[tuple[str, str], ...]:
    return tuple((one["name"], one["op_type"]) for one in unfused()["model"])


def test_without_origins_a_fused_node_is_not_taken_for_the_node_it_is_named_after() -> None:
    found = differ(unfused(), fused(origins=None))
    assert group(found, "conv1").kind == "unmatched"
    assert [node.name for node in group(found, "mm").candidate] == ["mm"]


@pytest.mark.parametrize(
    ("model", "ran", "label"),
    [
        (["Conv", "BatchNormalization", "Relu"], "FusedConv", "Conv"),
        (["DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"], "QLinearConv", "Conv"),
        (["MatMul", "Add"], "Gemm", "MatMul"),
        (["Div", "Erf", "Add", "Mul", "Mul"], "Gelu", "Gelu"),
        (["Add", "LayerNormalization"], "SkipLayerNormalization", "SkipLayerNormalization"),
        (["MatMul", "Softmax", "MatMul"], "Attention", "Attention"),
        (["Identity", "Relu"], "Relu", "Relu"),
        (["Reshape", "Reshape"], "Reshape", "Reshape"),
    ],
)
def test_a_group_is_named_after_what_it_is_about(model: list[str], ran: str, label: str) -> None:
    named = [(f"n{index}", op_type) for index, op_type in enumerate(model)]
    one = side([node(name, op_type, 5) for name, op_type in named], model=named)
    other = side([node("x", ran, 9)], model=named, covers={"x": [name for name, _ in named]})
    (found,) = differ(one, other).groups
    assert found.label == label


# --- the profiler's own part


def test_what_the_profiler_adds_is_taken_off_each_call_of_both_sides() -> None:
    one = side([node("a", "Conv", 100), node("b", "Relu", 8)], profiler_us=20)
    other = side([node("a", "Conv", 60), node("b", "Relu", 7)], profiler_us=10)
    found = differ(one, other)
    assert us(found.instrument_s) == 5  # 10 µs for two calls; no more than the 7 of the cheapest
    assert (us(row(found, "Conv").baseline_s), us(row(found, "Relu").candidate_s)) == (95, 2)


def test_no_more_is_taken_off_than_the_cheapest_call_took() -> None:
    one = side([node("a", "Conv", 100), node("b", "Relu", 30, calls=10)], profiler_us=500)
    assert us(differ(one, one).instrument_s) == 3


def test_a_profiler_that_seems_to_save_time_is_left_alone() -> None:
    assert differ(unfused(profiler_us=-50), fused()).instrument_s == 0


def test_nodes_that_took_longer_than_the_whole_run_are_scaled_down_to_it() -> None:
    found = differ(unfused(outside_us=-450), fused())
    assert found.scales == (pytest.approx(0.5), 1)
    assert us(row(found, "Conv").baseline_s) == 375
    assert us(row(found, OUTSIDE).baseline_s) == 0


def test_nodes_that_overlap_are_not_scaled() -> None:
    found = differ(unfused(outside_us=-450, parallel=True), fused())
    assert found.scales == (1, 1)
    assert found.overlapping
    assert us(row(found, OUTSIDE).baseline_s) == -450


# --- noise


def test_the_interval_is_students_of_the_pairs_of_passes() -> None:
    found = half_width([0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert found == pytest.approx(T_4 * math.sqrt(2.5) / math.sqrt(3))  # a mean of three of the five
    assert half_width([1.0], [2.0]) is None


def test_what_hits_both_sides_of_a_round_does_not_widen_the_interval() -> None:
    slow = (1.0, 1.0, 3.0, 1.0, 1.0)
    one = side([node("a", "Conv", 100, shape=slow)])
    assert row(differ(one, one), "Conv").half_width_s == 0


def test_the_slowest_and_the_fastest_pass_do_not_count() -> None:
    odd = (0.2, 1.0, 1.0, 1.0, 9.0)
    found = differ(side([node("a", "Conv", 100, shape=odd)]), side([node("a", "Conv", 60)]))
    assert us(row(found, "Conv").baseline_s) == 100
    assert not row(found, "Conv").clear


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=30))
def test_the_middle_half_leaves_a_quarter_out_at_either_end(durations: list[float]) -> None:
    kept = middle_half(durations)
    cut = len(durations) // 4
    assert sorted(durations)[cut : len(durations) - cut] == sorted(durations[index] for index in kept)
    assert kept == sorted(kept)


def test_a_typical_profile_keeps_the_middle_half_of_the_runs_and_still_adds_up(tmp_path: Path) -> None:
    events = []
    for index, length in enumerate((100, 104, 900, 102, 60, 106, 108, 110)):
        start = 2000 * index
        events += [ort.node("a", start + 5, length - 20), ort.run(start, length)]
    path = tmp_path / "profile.json"
    path.write_text(ort.as_ort_writes(events))
    typical = parse_profile(path, typical=True)
    assert [us(seconds) for seconds in typical.run_s] == [104, 102, 106, 108]
    assert us(typical.self_s + typical.remainder_s) == 105
    assert us(typical.nodes[0].self_s) == 85
    assert parse_profile(path).runs == 8


# --- placement


def test_nodes_that_moved_to_another_provider_are_told() -> None:
    moved = [
        node("conv1", "Conv", 100, provider=CUDA),
        node("relu1", "Relu", 10, provider=CUDA),
        node("conv2", "Conv", 90, provider=CUDA),
        node("mm", "MatMul", 130),
        node("softmax", "Softmax", 20),
    ]
    found = differ(unfused(), side(moved))
    assert [(one.label, one.baseline, one.candidate, one.nodes) for one in found.moves] == [
        ("Conv", (CPU,), (CUDA,), 2),
        ("Relu", (CPU,), (CUDA,), 1),
    ]
    assert found.host_timed
    assert not differ().moves


# --- the sentence


def test_a_gain_names_its_parts_and_what_costs_some_of_it_back() -> None:
    assert sentence(differ()) == (
        "The candidate takes 0.375 ms less per run (1.69× faster, 95 % CI [1.60, 1.78]): 104 % of the "
        "speed-up is in Conv (Conv → FusedConv); 3 inserted Reorder nodes cost 5.3 % of it back."
    )


def test_a_loss_names_its_parts_and_what_saves_some_of_it() -> None:
    said = sentence(differ(fused(), unfused(), end(545, 920, words="1.69× slower")))
    assert tells(said, "0.375 ms", "1.69×", "Conv", "Reorder")
    assert numbers(said) == [0.375, 1.69, 104, 3, 0, 5.3]


def test_several_parts_are_listed_the_largest_first() -> None:
    one = side([node("a", "Conv", 400), node("b", "MatMul", 300), node("c", "Softmax", 200)])
    other = side([node("a", "Conv", 340), node("b", "MatMul", 270), node("c", "Softmax", 190)])
    said = sentence(differ(one, other, end(900, 800)))
    assert tells(said, "Conv", "MatMul", "Softmax")
    assert numbers(said)[-3:] == [60, 30, 10]


def test_what_is_outside_the_nodes_is_said_to_be() -> None:
    one, other = unfused(outside_us=500), unfused(outside_us=100)
    assert tells(sentence(differ(one, other, end(1400, 1000))), "100 %", OUTSIDE)


def test_one_inserted_node_is_not_many() -> None:
    one = side([node("a", "Conv", 400)])
    other = side([node("a", "Conv", 200), node("c", "Cast", 20, inserted=True)], model=(("a", "Conv"),))
    assert re.search("; 1 .*Cast.* 11 %", sentence(differ(one, other, end(400, 220))))


def test_equal_results_have_nothing_to_explain() -> None:
    words = "no difference larger than 2 % (1.004×, 95 % CI [0.995, 1.013])"
    said = sentence(differ(of=end(verdict="EQUIVALENT", words=words)))
    assert tells(said, words)


@pytest.mark.parametrize(("raced", "advice"), [(True, "Measure longer"), (False, "Compare them")])
def test_undecided_results_have_nothing_to_explain_yet(raced: bool, advice: str) -> None:
    words = "undecided: between 0.97× and 1.08×"
    said = sentence(differ(of=end(verdict="UNDECIDED", words=words, raced=raced)))
    assert said != sentence(differ(of=end(verdict="EQUIVALENT", words=words)))
    assert words in said
    assert advice in said


def test_undecided_results_have_no_parts_anywhere() -> None:
    found = differ(of=end(28_190, 41_390, verdict=Verdict.UNDECIDED, words="undecided"))
    data = found.to_dict()
    assert (data["rows"], data["groups"], data["moves"]) == ([], [], [])
    of = Pair(baseline=trial("a" * 12), candidate=trial("b" * 12))
    sheet = sheets.explained(of, found, top=15, comparison="cafe")
    texts = [part.text for part in sheet.parts if isinstance(part, Line)]
    assert len(texts) == len(sheet.parts)  # no table, no fact, no note
    headline, command = texts
    assert headline == sentence(found)
    assert command.endswith("--continue cafe")
    last = sheets.explained(of, found, top=15).parts[-1]
    assert isinstance(last, Line)
    assert tells(last.text, "aaaaaaaaaaaa", "bbb")


def test_the_table_ends_with_the_sum_of_its_parts() -> None:
    table = sheets.parts(differ(of=end(1000, 500)), total=True)
    names = [str(one.name) for one in table.columns]
    for name in ("baseline", "candidate", "difference"):
        *parts, whole = [float(row[names.index(name)] or 0) for row in table.rows]
        assert sum(parts) == pytest.approx(whole)
    assert table.rows[-1][0] not in (OUTSIDE, UNSEEN)


def test_a_p50_is_the_stored_one_and_what_the_ratio_says_has_another_name() -> None:
    """The ratio of the rounds is 1.69, the two p50 are 920 and 560 µs: the candidate is placed at 545 µs."""
    told = remarks(differ(of=end(920, 545, candidate_p50_s=560 * US)))
    assert [f"{number:.4f}" for number in numbers(told[1])] == ["0.9200", "0.5450", "0.5600"]


def test_passes_that_scatter_more_than_the_difference_explain_nothing() -> None:
    noisy = unfused()
    noisy["plain_s"] = [
        seconds * factor for seconds, factor in zip(noisy["plain_s"], (1, 3, 1, 2, 1), strict=True)
    ]
    said = sentence(differ(noisy, fused()))
    assert "±" in said
    assert "Conv" not in said


@pytest.mark.parametrize(("candidate_us", "part"), [(100, "only 0.375 ms of it"), (2000, "the opposite")])
def test_passes_that_saw_another_difference_say_so(candidate_us: float, part: str) -> None:
    said = sentence(differ(of=end(1000, candidate_us)))
    assert part in said


def test_a_difference_that_no_operator_shows_is_not_blamed_on_one() -> None:
    shapes = [(1.0, 1.4, 0.6, 1.2, 0.8), (1.0, 0.6, 1.4, 0.8, 1.2)]
    one = side([node("a", "Conv", 100, shape=shapes[0]), node("b", "MatMul", 100, shape=shapes[1])])
    other = side([node("a", "Conv", 95), node("b", "MatMul", 95)])
    said = sentence(differ(one, other, end(200, 190)))
    assert tells(said, "117 %", "Conv")


def test_a_part_that_was_not_seen_again_is_said() -> None:
    said = sentence(differ(of=end(1100, 545)))
    assert tells(said, "32 %")


def test_moved_nodes_are_said() -> None:
    moved = [{**one, "provider": CUDA} for one in unfused()["nodes"]]
    faster = [{**one, "self_s": [seconds / 2 for seconds in one["self_s"]]} for one in moved]
    said = sentence(differ(unfused(), side(faster), end(920, 450)))
    assert re.search("5 .*CPU.*CUDA.*96 %", said)


def test_short_differences_are_told_in_microseconds_and_per_row() -> None:
    one, other = side([node("a", "Conv", 20)]), side([node("a", "Conv", 13)])
    said = sentence(differ(one, other, end(20, 13, per_row=True)))
    assert tells(said, "0.00700 ms", "per sample")


# --- remarks and plain data


def test_remarks_tell_how_the_numbers_were_made_and_what_to_doubt() -> None:
    found = differ(unfused(outside_us=-450, parallel=False), fused(origins=None, runs=7, notes=["Odd."]))
    told = " ".join(remarks(found))
    assert numbers(told)[:3] == [5, 100, 7]
    assert tells(told, "0.50")
    assert "optimized" in told
    assert told.endswith("Odd.")
    assert "GPU" not in told


def test_remarks_of_overlapping_and_of_gpu_nodes() -> None:
    on_gpu = [{**one, "provider": CUDA} for one in unfused()["nodes"]]
    told = " ".join(remarks(differ(unfused(parallel=True), side(on_gpu))))
    assert told != " ".join(remarks(differ(unfused(), side(on_gpu))))
    assert tells(told, "CUDA", "TensorRT")


def test_a_side_that_fell_back_is_marked() -> None:
    candidate = fused(fallback=True, requested_providers=[CUDA, CPU], fallback_reason="CUDA is not here.")
    assert any(tells(one, ", ".join([CUDA, CPU]), CPU) for one in remarks(differ(candidate=candidate)))


def test_the_difference_is_plain_data_with_its_shares() -> None:
    data = json.loads(json.dumps(differ().to_dict()))
    assert data["end"]["difference_s"] == pytest.approx(-375 * US)
    assert sum(one["share"] for one in data["rows"]) == pytest.approx(1)
    assert {"baseline_s", "candidate_s", "difference_s", "half_width_s", "share"} <= set(data["groups"][0])
    assert differ(of=end(900, 900)).to_dict()["rows"][0]["share"] is None


@pytest.mark.parametrize(
    ("data", "message"),
    [({}, "no passes that ORTune wrote"), (passes(unfused(), fused(), version=9), "version 9")],
)
def test_passes_of_another_kind_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkerError, match=message) as caught:
        passes_from_json(msgspec.json.encode(data))
    assert caught.value.hint


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"sides":' * 100_000, b"\xff", b""])
def test_text_that_is_none_is_refused_in_words(text: bytes) -> None:
    for read in (passes_from_json, graphs_from_json):
        with pytest.raises(WorkerError, match="that ORTune wrote"):
            read(text)


def test_a_side_without_nodes_is_all_outside() -> None:
    empty = side([], outside_us=50)
    found = differ(empty, empty, end(50, 50))
    assert [one.label for one in found.rows] == [OUTSIDE, UNSEEN]
    assert us(found.rows[0].baseline_s) == 50


def test_steady_passes_agree_on_everything() -> None:
    assert set(STEADY) == {1.0}
    assert row(differ(), "Conv").clear
    assert not row(differ(), "MatMul").clear


# --- two versions


def versions(found: Difference) -> Difference:
    return replace(found, versions=("ONNX Runtime 1.26.0", "ONNX Runtime 1.32.0"))


def test_what_one_version_fuses_is_counted_with_its_time_and_share() -> None:
    found = differ(of=end())
    (one,) = found.fusions
    assert (one.baseline, one.candidate, one.fuses) == (("Conv", "Relu"), ("FusedConv",), "candidate")
    assert (one.groups, one.model_nodes, us(one.baseline_s), us(one.candidate_s)) == (1, 2, 450, 200)
    assert found.share(one) == pytest.approx(250 / 375)
    assert "1.32.0 fuses Conv, Relu into FusedConv once: 67 % of the speed-up." in sentence(versions(found))
    assert "fuses" not in sentence(found)  # both sides ran in one runtime


def test_equal_fusions_are_one_line_and_the_other_side_may_make_them() -> None:
    ran = [node("a", "Sub", 50), node("b", "Pow", 50), node("c", "Sub", 50), node("d", "Pow", 50)]
    norms = [node("n1", "LayerNormalization", 20), node("n2", "LayerNormalization", 20)]
    model = [(one["name"], one["op_type"]) for one in ran]
    one = side(norms, model=model, covers={"n1": ["a", "b"], "n2": ["c", "d"]})
    found = differ(one, side(ran, model=model), end(40, 200))
    (fusion,) = found.fusions
    assert (fusion.fuses, fusion.groups, fusion.model_nodes, us(fusion.difference_s)) == (
        "baseline",
        2,
        4,
        160,
    )
    said = sentence(versions(found))
    assert "1.26.0 fuses Pow, Sub into LayerNormalization 2 times: 100 % of the slowdown." in said


def test_a_fusion_within_the_scatter_is_no_reason() -> None:
    before = [
        node("a", "Sub", 50, shape=WIGGLE),
        node("b", "Pow", 50, shape=WIGGLE),
        node("m", "MatMul", 400),
    ]
    after = [node("n", "Norm", 98), node("m", "MatMul", 100)]
    model = [(one["name"], one["op_type"]) for one in before]
    found = differ(
        side(before, model=model), side(after, model=model, covers={"n": ["a", "b"]}), end(500, 198)
    )
    assert [one.clear for one in found.fusions] == [False]
    assert "fuses" not in sentence(versions(found))


def test_the_table_of_fusions_stands_where_the_versions_differ() -> None:
    found = versions(differ(of=end()))
    of = Pair(baseline=trial(id="a" * 16), candidate=trial(id="b" * 16))

    def fused_operators(one: Difference) -> list[list[Any]]:
        tables = [part for part in sheets.explained(of, one, top=3).parts if isinstance(part, Table)]
        return [table.rows for table in tables if "operators of the baseline" in table.columns[0].name]

    ((row,),) = fused_operators(found)
    assert (row[0], row[1], row[2]) == ("Conv, Relu", "FusedConv", 1)
    assert not fused_operators(differ(of=end()))
