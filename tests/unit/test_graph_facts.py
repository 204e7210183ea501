"""Times, types and errors of nodes: a time belongs to those that ran, and none is counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.evidence.graph_facts import errors, kind, precision, rows, scopes, tensor_text, times
from core.evidence.node_savings import Unit
from core.show.sheets import graphs as sheets
from core.wire.graph import Tensor
from tests import graphs
from tests.graphs import level, node, profile, side, timed
from tests.reading import numbers


def by_name(one, found):
    return {row.node.name: row for row in rows(one, found)}


def test_a_node_that_ran_has_its_time_and_provider():
    found = by_name(graphs.optimized(), times(graphs.optimized(), graphs.run()))
    assert found["gemm"].ran.self_s == 5.0
    assert found["gemm"].ran.providers == ("CPUExecutionProvider",)
    assert found["gemm"].share == 0.625


def test_what_is_named_anew_in_every_session_is_found_by_its_operator():
    found = times(graphs.optimized(), graphs.run())
    assert found.ran[0, 1].self_s == 1.0
    assert found.unmatched == ()


def test_a_fused_node_s_time_belongs_to_all_that_it_works_for():
    found = times(graphs.model(), graphs.run(), graphs.optimized())
    conv, relu = found.ran[0, 0], found.ran[0, 1]
    assert conv.self_s == relu.self_s == 2.0
    assert conv.with_others == relu.with_others == 1
    assert found.ran[0, 2].with_others == 0


def test_a_fused_node_s_time_counts_once_in_a_block():
    found = times(graphs.model(), graphs.run(), graphs.optimized())
    assert found.together_s([(0, 0), (0, 1)]) == 2.0
    assert found.together_s([(0, 0), (0, 1), (0, 2)]) == 7.0
    assert found.share(7.0) == pytest.approx(7 / 8)


def test_without_the_optimized_graph_only_names_are_compared_and_the_rest_is_told():
    found = times(graphs.model(), graphs.run())
    assert set(found.ran) == {(0, 2)}
    assert found.ran[0, 2].by_name
    assert found.unmatched_s == 3.0
    assert numbers(sheets.unmatched_words(found))[:2] == [3_000, 8_000]


def test_an_unknown_node_of_a_known_graph_is_told_and_an_inserted_one_belongs_to_none():
    ran = profile([*graphs.run().nodes, timed("odd", "Mul", 4.0)])
    found = times(graphs.model(), ran, graphs.optimized())
    assert [one.name for one in found.unmatched] == ["odd"]


def test_nodes_of_one_name_in_different_bodies_have_their_own_times():
    body = level(node("mul", "Mul", "x", "y"), path=("loop",), role="body")
    whole = side(level(node("loop", "Loop", "x", "y", bodies=("body",)), node("mul", "Mul", "y", "z")), body)
    found = times(whole, profile([timed("mul", "Mul", 1.0), timed("mul", "Mul", 2.0, path=("loop",))]))
    assert (found.ran[0, 1].self_s, found.ran[1, 0].self_s) == (1.0, 2.0)


def test_nodes_of_one_name_in_both_branches_share_the_time_that_a_profile_cannot_tell_apart():
    branches = [
        level(node("mul", "Mul", "x", "y", does=("mul",)), path=("if",), role=role)
        for role in ("then", "else")
    ]
    whole = side(level(node("if", "If", "x", "y", bodies=("then", "else"))), *branches)
    ran = profile([timed("mul", "Mul", 2.0, path=("if",))])
    for found in (times(whole, ran), times(whole, ran, whole)):
        assert [found.ran[number, 0].with_others for number in (1, 2)] == [1, 1]
        assert found.together_s([(1, 0), (2, 0)]) == 2.0


def test_precision_is_what_a_node_gives():
    mixed = level(node("cast", "Cast", "x", "y"), dtype="int64")
    assert precision(mixed, mixed.nodes[0]) == "int64"
    unknown = level(node("odd", "Odd", "x", "y"), dtype="unknown")
    assert precision(unknown, unknown.nodes[0]) == "unknown"


def test_where_the_graph_says_no_type_the_profile_does():
    unknown = side(level(node("odd", "Odd", "x", "y"), dtype="unknown"))
    (row,) = rows(unknown, times(unknown, profile([timed("odd", "Odd", 1.0)])))
    assert row.precision == "float32"


def test_it_is_said_what_onnx_runtime_did():
    told = [kind(one) for one in graphs.optimized().levels[0].nodes]
    assert told == ["does the work of 2 nodes", "inserted ReorderOutput", ""]


def test_an_optimized_node_lies_where_those_do_whose_work_it_does():
    assert scopes(graphs.optimized(), 0, graphs.model()) == [("stem",), ("stem",), ("head",)]


def test_errors_are_found_under_the_names_that_quantizing_gives():
    unit = Unit(
        nodes=("conv",),
        op_type="Conv",
        error=0.1,
        accumulated=None,
        weight_bytes=1,
        saved_s=None,
        half_width_s=None,
    )
    variant = side(level(node("conv_quant", "QLinearConv", "x", "y"), node("relu", "Relu", "y", "z")))
    assert set(errors(variant, [unit])) == {(0, 0)}
    assert set(errors(graphs.model(), [unit])) == {(0, 0)}


def test_weights_of_a_node_are_those_that_it_reads():
    whole = graphs.model().levels[0]
    assert [whole.weight_bytes(one) for one in whole.nodes] == [100, 0, 100]


def test_edges_lead_from_who_gives_to_who_takes():
    captured = level(node("a", "Mul", "x", "t"), node("loop", "Loop", "x", "y", captured=("t",)))
    assert captured.edges == [(0, 1, "t")]


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        ("float32", ("n", 3), "float32[n×3]"),
        ("float32", (), "float32[]"),
        ("float32", None, "float32, rank unknown"),
        ("unknown", None, "unknown"),
    ],
)
def test_a_tensor_in_words(dtype, shape, text):
    assert tensor_text(Tensor(name="t", dtype=dtype, shape=shape, weight_bytes=None)) == text


# --- sheets


def told(facts):
    return {one.name: one.text for one in facts}


def test_the_details_of_a_fused_part_say_with_whom_it_shares_its_time():
    found = by_name(graphs.model(), times(graphs.model(), graphs.run(), graphs.optimized()))
    said = told(sheets.node_facts(found["conv"], optimized=False, profiled=True))
    assert (
        said["time"] == "2,000 ms per run (25.0%) on CPU, together with 1 other node; ran as Conv `b_nchwc`"
    )
    assert said["weights"] == "100 B"


def test_a_node_without_a_name_is_told_by_its_operator_and_its_index():
    found = by_name(graphs.model(), times(graphs.model(), graphs.run(), graphs.optimized()))["conv"]
    nameless = replace(found.ran.nodes[0], name="", node_index=3)
    ran = replace(found.ran, nodes=[nameless])
    said = told(sheets.node_facts(replace(found, ran=ran), optimized=False, profiled=True))["time"]
    assert said.endswith("(Conv 3)")
    assert "``" not in said


def test_a_node_without_a_time_says_so_only_where_there_is_a_profile():
    (row,) = rows(side(level(node("relu", "Relu", "x", "y"))))
    assert "time" not in told(sheets.node_facts(row, optimized=False, profiled=False))
    assert "none: folded" in told(sheets.node_facts(row, optimized=False, profiled=True))["time"]


def test_an_inserted_node_says_what_it_is_good_for():
    row = by_name(graphs.optimized(), None)["Reorder"]
    said = told(sheets.node_facts(row, optimized=True, profiled=False))
    assert said["ONNX Runtime"] == "inserted ReorderOutput: converts the layout back to NCHW"


def test_the_table_leaves_out_what_nothing_is_known_of():
    plain = [one.name for one in sheets.nodes(rows(graphs.model()), optimized=False).columns]
    assert "self" not in plain
    found = times(graphs.optimized(), graphs.run())
    full = [one.name for one in sheets.nodes(rows(graphs.optimized(), found), optimized=True).columns]
    assert {"self", "share", "ran on", "ONNX Runtime", "replaces"} <= set(full)


def test_a_block_adds_up_what_is_in_it():
    found = times(graphs.model(), graphs.run(), graphs.optimized())
    said = told(sheets.block_facts(rows(graphs.model(), found)[:2], found, optimized=False))
    assert numbers(said["time"])[:2] == [2_000, 25.0]
    assert said["weights"] == "100 B"
    assert said["nodes"] == "2: Conv 1, Relu 1"
