"""What ONNX Runtime changed in a graph: counted by kind, and told in a sentence."""

from __future__ import annotations

import pytest

from core.evidence.graph_changes import GraphChange, changes
from core.show.sheets.graphs import changes_words
from tests import graphs
from tests.graphs import level, node, side


def counted(model, optimized):
    return [(one.count, one.kind, one.op_type) for one in changes(model, optimized)]


def words(model, optimized):
    return changes_words(changes(model, optimized), model.count, optimized.count)


def test_a_graph_that_is_run_as_it_stands_has_no_changes():
    same = side(level(*(node(name, "Relu", "x", "y", does=(name,)) for name in "ab")))
    assert counted(same, same) == []
    assert words(same, same) == "ONNX Runtime runs 2 nodes, as many as the model has; no changes."


def test_fused_and_inserted_nodes_are_counted_by_their_operator():
    assert counted(graphs.model(), graphs.optimized()) == [(1, "fused", "Conv"), (1, "inserted", "Reorder")]
    assert words(graphs.model(), graphs.optimized()).endswith(": 1 Conv fused, 1 Reorder inserted.")


def test_both_ways_of_reordering_are_one_change():
    ways = ("ReorderInput", "ReorderOutput", "ReorderInput")
    found = [node(f"r{i}", f"com.microsoft.nchwc.{op}", "x", "y", inserted=True) for i, op in enumerate(ways)]
    kept = node("a", "Relu", "x", "y", does=("a",))
    assert counted(side(level(kept)), side(level(kept, *found))) == [(3, "inserted", "Reorder")]


def test_a_node_that_no_other_stands_for_was_removed_whatever_its_operator():
    model = side(
        level(node("i", "Identity", "x", "a"), node("d", "Dropout", "a", "b"), node("r", "Relu", "b", "y"))
    )
    optimized = side(level(node("r", "Relu", "x", "y", does=("r",))))
    assert counted(model, optimized) == [(2, "removed", "")]
    assert words(model, optimized) == "ONNX Runtime runs 1 node instead of 3: 2 nodes removed."


def test_a_node_of_another_operator_is_replaced_and_another_name_alone_is_no_change():
    model = side(level(node("p", "MaxPool", "x", "a"), node("r", "Relu", "a", "y")))
    optimized = side(
        level(
            node("p_nchwc", "com.microsoft.nchwc.MaxPool", "x", "a", does=("p",)),
            node("r_new", "Relu", "a", "y", does=("r",)),
        )
    )
    assert counted(model, optimized) == [(1, "replaced", "MaxPool")]
    assert words(model, optimized).endswith(": 1 MaxPool replaced by nchwc.MaxPool.")


def test_a_node_of_no_known_origin_is_neither_inserted_nor_fused():
    model = side(level(node("a", "Relu", "x", "y")))
    optimized = side(level(node("a", "Relu", "x", "b", does=("a",)), node("m", "Mul", "b", "y")))
    assert counted(model, optimized) == [(1, "unknown", "Mul")]
    assert words(model, optimized).endswith(": 1 Mul of unknown origin.")


def test_nodes_of_one_name_in_a_body_and_around_it_are_told_apart():
    body = level(node("r", "Relu", "x", "y"), path=("loop",), role="body")
    model = side(level(node("loop", "Loop", "x", "y"), node("r", "Relu", "x", "y")), body)
    optimized = side(
        level(node("loop", "Loop", "x", "y", does=("loop",)), node("r", "Relu", "x", "y", does=("r",))),
        level(path=("loop",), role="body"),
    )
    assert counted(model, optimized) == [(1, "removed", "")]


@pytest.mark.parametrize(("kinds", "rest"), [(4, ""), (6, ", 3 other changes")])
def test_the_sentence_names_the_most_frequent_changes_and_counts_the_others(kinds, rest):
    found = [GraphChange(kind="fused", op_type=f"Op{i}", of="", by="", count=kinds - i) for i in range(kinds)]
    said = changes_words(found, 90, 40)
    assert said.startswith("ONNX Runtime runs 40 nodes instead of 90: ")
    assert said.endswith(f"{kinds - 3} Op3 fused{rest}.")
    assert "Op4" not in said
