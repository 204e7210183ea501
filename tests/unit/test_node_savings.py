"""What operators cost and save: errors beside invented passes whose numbers can be worked out."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import wire
from core.evidence.node_savings import (
    Savings,
    Unit,
    choices,
    expected_error,
    halving_choice,
    keep_float,
    original_operator,
    savings,
)
from core.wire.profile_passes import Passes, passes_from_json
from tests.builders import US, node, passes, side


def error(name: str, alone: float, op_type: str = "Conv", **changes: Any) -> wire.NodeError:
    facts: dict[str, Any] = {
        "name": name,
        "op_type": op_type,
        "alone": alone,
        "accumulated": 2 * alone,
        "weight_bytes": 1024,
    }
    return facts | changes  # type: ignore[return-value]


def reply(*nodes: wire.NodeError, whole: float = 0.1) -> wire.NodeErrorsReply:
    return {"nodes": list(nodes), "whole": whole, "seconds": 1.0, "notes": []}


def static_passes(**changes: Any) -> Passes:
    """Two convolutions and a product in float; QDQ, of which one conversion was left over, in the variant."""
    before = side(
        [node("conv1", "Conv", 400), node("conv2", "Conv", 300), node("mm", "MatMul", 100)], outside_us=20
    )
    after = side(
        [
            node("conv1", "QLinearConv", 100),
            node("conv2", "QLinearConv", 320),
            node("mm", "MatMul", 100),
            node("x_QuantizeLinear", "QuantizeLinear", 30),
        ],
        outside_us=20,
        model=[
            ("conv1", "Conv"),
            ("conv2", "Conv"),
            ("mm", "MatMul"),
            ("x_QuantizeLinear", "QuantizeLinear"),
            ("w1_DequantizeLinear", "DequantizeLinear"),
        ],
        covers={"conv1": ["conv1", "w1_DequantizeLinear"]},
        **changes,
    )
    return passes_from_json(msgspec.json.encode(passes(before, after)))


def dynamic_passes() -> Passes:
    """A product that ONNX Runtime's dynamic quantizer has made five nodes of, four of them fused again."""
    before = side([node("fc1", "MatMul", 200), node("act", "Relu", 10)])
    ran = [
        node("fc1_quant", "DynamicQuantizeMatMul", 80),
        node("h_output_quantized_cast", "Cast", 5),
        node("act", "Relu", 10),
    ]
    model = [
        ("fc1_quant", "MatMulInteger"),
        ("fc1_quant_scales_mul", "Mul"),
        ("fc1_quant_output_scale_mul", "Mul"),
        ("h_output_quantized_cast", "Cast"),
        ("act", "Relu"),
    ]
    covers = {"fc1_quant": ["fc1_quant", "fc1_quant_scales_mul", "fc1_quant_output_scale_mul"]}
    return passes_from_json(msgspec.json.encode(passes(before, side(ran, model=model, covers=covers))))


def of(found: Savings, name: str) -> Unit:
    return next(unit for unit in found.units if unit.name == name)


# --- what each saves


def test_an_operator_saves_what_its_node_takes_less() -> None:
    found = savings(reply(error("conv1", 0.02), error("conv2", 0.08)), static_passes())
    assert of(found, "conv1").saved_s == pytest.approx(300 * US)
    assert of(found, "conv2").saved_s == pytest.approx(-20 * US)
    assert found.elsewhere_s == pytest.approx(-30 * US)
    assert (found.float_s, found.quantized_s) == (pytest.approx(820 * US), pytest.approx(570 * US))


def test_all_parts_add_up_to_what_the_nodes_differ_by() -> None:
    found = savings(reply(error("conv1", 0.02), error("conv2", 0.08)), static_passes())
    assert sum(unit.saved_s or 0 for unit in found.units) + found.elsewhere_s == pytest.approx(250 * US)


def test_the_largest_error_comes_first() -> None:
    found = savings(reply(error("conv1", 0.02), error("conv2", 0.08)), static_passes())
    assert [unit.name for unit in found.units] == ["conv2", "conv1"]


def test_a_product_that_became_several_nodes_is_still_the_same_operator() -> None:
    found = savings(reply(error("fc1", 0.05, "MatMul")), dynamic_passes())
    assert [unit.nodes for unit in found.units] == [("fc1",)]
    assert found.units[0].saved_s == pytest.approx(120 * US)
    assert found.elsewhere_s == pytest.approx(-5 * US)  # the Cast is named after a tensor, not after a node


def test_operators_that_run_as_one_are_one_and_their_errors_add_up_as_squares() -> None:
    before = side(
        [node("attention", "Attention", 500)],
        model=[("q", "MatMul"), ("k", "MatMul"), ("softmax", "Softmax")],
        covers={"attention": ["q", "k", "softmax"]},
    )
    after = side([node("q", "MatMul", 100), node("k", "MatMul", 100), node("softmax", "Softmax", 50)])
    found = savings(
        reply(error("q", 0.03, "MatMul"), error("k", 0.04, "MatMul")),
        passes_from_json(msgspec.json.encode(passes(before, after))),
    )
    assert [unit.nodes for unit in found.units] == [("q", "k")]
    assert found.units[0].error == pytest.approx(0.05)
    assert found.units[0].saved_s == pytest.approx(250 * US)
    assert found.units[0].weight_bytes == 2048


def test_nodes_that_cannot_be_traced_do_not_swallow_the_others() -> None:
    before = side([node("conv1", "Conv", 400), node("fused", "Magic", 50)], covers={"fused": []})
    after = side([node("conv1", "QLinearConv", 100), node("other", "Magic", 70)], covers={"other": []})
    found = savings(reply(error("conv1", 0.02)), passes_from_json(msgspec.json.encode(passes(before, after))))
    assert found.units[0].saved_s == pytest.approx(300 * US)
    assert found.elsewhere_s == pytest.approx(-20 * US)


def test_an_operator_that_never_ran_keeps_its_error_and_has_no_time() -> None:
    found = savings(reply(error("conv1", 0.02), error("gone", 0.01)), static_passes())
    assert of(found, "gone").saved_s is None
    assert of(found, "conv1").saved_s is not None


def test_without_passes_there_are_errors_only() -> None:
    found = savings(reply(error("a", 0.01), error("b", 0.02)), None)
    assert not found.timed
    assert [unit.name for unit in found.units] == ["b", "a"]
    assert all(one.saved_s is None for one in choices(found))


@pytest.mark.parametrize(
    ("name", "own", "made_from"),
    [
        ("conv1", {"conv1"}, "conv1"),
        ("conv1_quant", {"conv1"}, "conv1"),
        ("fc_MatMul_quant_scales_mul", {"fc"}, "fc"),
        ("fc_Add", {"fc"}, "fc"),
        ("proj_Q4", {"proj"}, "proj"),
        ("proj_matmul_Q4", {"proj"}, "proj"),
        ("conv1_quant", {"conv1", "conv1_quant"}, "conv1_quant"),
        ("conv_1_quant", {"conv", "conv_1"}, "conv_1"),
        ("conv1_bn", {"conv1"}, "conv1_bn"),
        ("x_QuantizeLinear", {"x"}, "x_QuantizeLinear"),
        ("new", {"old"}, "new"),
    ],
)
def test_a_node_is_told_by_the_suffixes_of_the_quantizer(name: str, own: set[str], made_from: str) -> None:
    assert original_operator(name, own) == made_from


# --- the curve


def units(*pairs: tuple[float, float | None], whole: float = 0.1) -> Savings:
    return Savings(
        units=tuple(
            Unit(
                nodes=(f"n{index}",),
                op_type="Conv",
                error=alone,
                accumulated=None,
                weight_bytes=0,
                saved_s=saved,
                half_width_s=None,
            )
            for index, (alone, saved) in enumerate(pairs)
        ),
        whole=whole,
        timed=any(saved is not None for _, saved in pairs),
        elsewhere_s=0.0,
        float_s=None,
        quantized_s=None,
    )


def test_the_worst_bargain_is_left_out_first() -> None:
    found = units((0.08, 0.001), (0.02, 0.004), (0.01, -0.001))
    curve = choices(found)
    assert [one.blocked for one in curve] == [(), ("n2",), ("n2", "n0"), ("n2", "n0", "n1")]
    assert [one.saved_s for one in curve] == [
        pytest.approx(0.004),
        pytest.approx(0.005),
        pytest.approx(0.004),
        0.0,
    ]


def test_a_saving_that_cannot_be_told_from_none_does_not_decide_what_is_left_out() -> None:
    """The times of a model of microseconds are noise, and the same question has to get the same list."""
    for savings_s in itertools.permutations((-2e-6, 1e-6, 3e-6)):
        found = units(*zip((0.01, 0.08, 0.02), savings_s, strict=True))
        noisy = replace(found, units=tuple(replace(one, half_width_s=5e-6) for one in found.units))
        assert choices(noisy)[-1].blocked == ("n1", "n2", "n0")
        sure = replace(found, units=tuple(replace(one, half_width_s=5e-7) for one in found.units))
        assert choices(sure)[1].blocked == (f"n{savings_s.index(-2e-6)}",)


def test_without_times_the_largest_error_is_left_out_first() -> None:
    curve = choices(units((0.01, None), (0.08, None), (0.02, None)))
    assert curve[-1].blocked == ("n1", "n2", "n0")


def test_the_curve_begins_with_what_was_measured_and_ends_with_no_error() -> None:
    curve = choices(units((0.03, 0.001), (0.04, 0.002), whole=0.2))
    assert curve[0].error == 0.2
    assert curve[-1].error == 0.0
    assert curve[1].error == pytest.approx(0.2 * 0.03 / 0.05) or curve[1].error == pytest.approx(
        0.2 * 0.04 / 0.05
    )


def test_an_operator_without_error_is_worth_keeping_unless_it_costs_time() -> None:
    found = units((0.0, 0.001), (0.0, -0.001), (0.05, 0.001))
    assert choices(found)[-1].blocked == ("n1", "n2", "n0")


def test_no_error_at_all_expects_none() -> None:
    found = units((0.0, 0.001), (0.0, 0.002), whole=0.0)
    assert {one.error for one in choices(found)} == {0.0}
    assert halving_choice(choices(found)) == 0


def test_a_block_list_takes_what_runs_as_one_with_it() -> None:
    found = units((0.03, 0.001), (0.04, 0.002))
    joined = Unit(
        nodes=("a", "b"),
        op_type="MatMul",
        error=0.05,
        accumulated=None,
        weight_bytes=0,
        saved_s=0.003,
        half_width_s=None,
    )
    found = Savings(
        units=(joined, *found.units),
        whole=0.1,
        timed=True,
        elsewhere_s=0.0,
        float_s=None,
        quantized_s=None,
    )
    chosen = keep_float(found, ["b"])
    assert chosen.blocked == ("a", "b")
    assert chosen.saved_s == pytest.approx(0.003)


@given(
    # no subnormal errors: their quotients have no digits left, and no output differs by 1e-308
    st.lists(
        st.tuples(st.floats(0, 1, allow_subnormal=False), st.floats(-1e-2, 1e-2)), min_size=1, max_size=12
    ),
    st.floats(0, 1, allow_subnormal=False),
)
def test_leaving_more_out_never_adds_error_and_half_is_reached_where_something_stays_quantized(
    pairs: list[tuple[float, float]], whole: float
) -> None:
    found = units(*pairs, whole=whole)
    curve = choices(found)
    assert len(curve) == len(pairs) + 1
    errors = [one.error for one in curve]
    assert all(after <= before * (1 + 1e-9) + 1e-12 for before, after in itertools.pairwise(errors))
    chosen = halving_choice(curve)
    assert len(curve[chosen].blocked) < len(found.units)
    assert 2 * curve[chosen].error <= whole + 1e-12 or chosen == len(curve) - 2
    assert all(2 * one.error > whole for one in curve[:chosen])
    assert sorted(curve[-1].blocked) == sorted(name for unit in found.units for name in unit.nodes)
    assert math.isfinite(expected_error(found, found.units[:1]))
