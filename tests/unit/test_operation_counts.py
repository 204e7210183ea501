"""Operations and bytes of one call, against values worked out by hand; uncountable ones give no number."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence import operation_counts
from core.evidence.operation_counts import count_node
from core.wire.profile import Constants, NodeTime, Tensor

Shape = tuple[int, ...]


def tensor(shape: Shape, dtype: str = "float32") -> Tensor:
    return Tensor(dtype=dtype, shape=shape)


def node(op_type: str, inputs: list[Any], *outputs: Any) -> NodeTime:
    """A node that got and gave tensors of these shapes, float32 unless a `Tensor` says otherwise."""
    given = [one if isinstance(one, Tensor) else tensor(one) for one in inputs]
    gave = [one if isinstance(one, Tensor) else tensor(one) for one in outputs]
    return NodeTime(
        name="n",
        op_type=op_type,
        provider="CPUExecutionProvider",
        node_index=0,
        path=(),
        inserted=False,
        calls=1,
        calls_per_run=1.0,
        self_s=1e-3,
        inclusive_s=1e-3,
        total_s=1e-3,
        min_s=1e-3,
        median_s=1e-3,
        share=1.0,
        inputs=tuple(given),
        outputs=tuple(gave),
        parameter_bytes=0,
        activation_bytes=0,
        output_bytes=0,
    )


def held(*tensors: Any, window: Shape = (), op_type: str = "Conv") -> Constants:
    found = tuple(one if isinstance(one, Tensor) else tensor(one) for one in tensors)
    return Constants(path=(), name="n", op_type=op_type, tensors=found, window=window)


def operations(*args: Any, **more: Any) -> int | None:
    return count_node(node(*args, **more)).operations


def test_a_convolution_counts_every_weight_of_a_channel_for_every_output() -> None:
    one = count_node(node("Conv", [(1, 3, 224, 224), (64, 3, 7, 7), (64,)], (1, 64, 112, 112)))
    assert one.operations == 2 * 64 * 112 * 112 * 3 * 7 * 7 + 64 * 112 * 112  # 236,830,720
    assert one.operations == 236_830_720
    assert one.bytes == 4 * (3 * 224 * 224 + 64 * 3 * 7 * 7 + 64 + 64 * 112 * 112)
    assert one.why == ""


def test_groups_divide_the_channels_that_a_convolution_reads() -> None:
    whole = operations("Conv", [(1, 32, 8, 8), (32, 32, 3, 3)], (1, 32, 8, 8))
    grouped = operations("Conv", [(1, 32, 8, 8), (32, 8, 3, 3)], (1, 32, 8, 8))  # group 4
    depthwise = operations("Conv", [(1, 32, 8, 8), (32, 1, 3, 3)], (1, 32, 8, 8))
    assert (whole, grouped, depthwise) == (1_179_648, 294_912, 36_864)
    assert operations("Conv", [(2, 4, 10), (6, 4, 3)], (2, 6, 8)) == 2 * 2 * 6 * 8 * 4 * 3  # one dimension


def test_the_sum_that_a_fused_convolution_adds_is_not_its_weights() -> None:
    fused = node("Conv", [(2, 8, 4, 4), (8,), (2, 8, 4, 4)], (2, 8, 4, 4))  # packed weights, bias, sum
    assert count_node(fused).operations is None
    assert count_node(fused).bytes is None
    assert count_node(fused).why == operation_counts.NO_WEIGHTS
    known = count_node(fused, held((8, 8, 1, 1), (8,)))
    assert known.operations == 2 * 2 * 8 * 4 * 4 * 8
    assert known.bytes == 4 * (3 * 256 + 64 + 8)  # in, sum and out, weights once, bias


def test_a_transposed_convolution_counts_from_its_input() -> None:
    assert operations("ConvTranspose", [(1, 16, 8, 8), (16, 4, 2, 2)], (1, 4, 16, 16)) == (
        2 * 16 * 8 * 8 * 4 * 2 * 2
    )


def test_a_quantized_convolution_is_of_integers() -> None:
    u8, scale = tensor((1, 3, 8, 8), "uint8"), ()
    inputs = [u8, scale, tensor((), "uint8"), tensor((4, 3, 3, 3), "int8"), scale, tensor((), "int8")]
    one = count_node(
        node("QLinearConv", [*inputs, scale, tensor((), "uint8")], tensor((1, 4, 6, 6), "uint8"))
    )
    assert one.operations == 2 * 4 * 6 * 6 * 27
    assert one.is_integer
    assert one.bytes == 192 + 4 + 1 + 108 + 4 + 1 + 4 + 1 + 144


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "expected"),
    [
        ("MatMul", [(8, 64, 128), (128, 512)], (8, 64, 512), 2 * 8 * 64 * 128 * 512),
        ("MatMul", [(2, 4, 8, 32), (2, 4, 32, 8)], (2, 4, 8, 8), 2 * 2 * 4 * 8 * 8 * 32),
        ("MatMul", [(5,), (5, 3)], (3,), 2 * 5 * 3),
        ("MatMul", [(4, 5), (5,)], (4,), 2 * 4 * 5),
        ("FusedMatMul", [(2, 32, 8), (2, 32, 6)], (2, 8, 6), 2 * 2 * 8 * 6 * 32),  # transA
        ("Gemm", [(7, 3), (3, 5), (5,)], (7, 5), 2 * 7 * 3 * 5 + 35),
        ("Gemm", [(3, 7), (5, 3)], (7, 5), 2 * 7 * 3 * 5),  # transA, transB
    ],
)
def test_a_product_counts_two_for_each_element_and_step(
    op_type: str, inputs: list[Shape], output: Shape, expected: int
) -> None:
    assert operations(op_type, inputs, output) == expected


def test_a_packed_matrix_is_counted_in_the_bytes_once() -> None:
    packed = count_node(node("MatMul", [(8, 64, 128)], (8, 64, 512)))
    listed = count_node(node("MatMul", [(8, 64, 128), (128, 512)], (8, 64, 512)))
    told = count_node(node("MatMul", [(8, 64, 128)], (8, 64, 512)), held((128, 512), op_type="MatMul"))
    assert packed == listed == told
    assert listed.bytes == 4 * (8 * 64 * 128 + 128 * 512 + 8 * 64 * 512)


def test_an_integer_product_reads_a_byte_for_each_weight() -> None:
    inputs = [tensor((2, 16), "uint8"), tensor((), "uint8")]
    one = count_node(node("MatMulInteger", inputs, tensor((2, 4), "int32")))
    assert (one.operations, one.bytes, one.is_integer) == (2 * 2 * 4 * 16, 32 + 1 + 64 + 32, True)


def test_four_bit_weights_that_are_packed_need_the_graph() -> None:
    packed = node("MatMulNBits", [(1, 64)], (1, 32))
    assert count_node(packed).operations == 2 * 32 * 64
    assert count_node(packed).bytes is None
    told = count_node(packed, held(tensor((32, 2, 16), "uint8"), (64,), op_type="MatMulNBits"))
    assert told.bytes == 4 * 64 + 32 * 2 * 16 + 4 * 64 + 4 * 32


def test_attention_counts_projections_and_pairs() -> None:
    one = count_node(node("Attention", [(2, 10, 64), (64, 192), (192,)], (2, 10, 64)))
    assert one.operations == 2 * 20 * 64 * 192 + 4 * 20 * 10 * 64
    past = node("Attention", [(2, 10, 64), (64, 192), (192,)], (2, 10, 64), (2, 2, 4, 10, 16))
    assert count_node(past).operations is None
    heads = operations("MultiHeadAttention", [(2, 5, 64), (2, 7, 64), (2, 7, 32)], (2, 5, 32))
    assert heads == 2 * 2 * 5 * 7 * (64 + 32)
    assert operations("MultiHeadAttention", [(2, 5, 4, 3, 16)], (2, 5, 64)) is None  # packed in one


def test_a_recurrent_layer_counts_its_gates() -> None:
    lstm = count_node(node("LSTM", [(5, 2, 8)], (5, 1, 2, 16), (1, 2, 16)))
    assert lstm.operations == 2 * 5 * 2 * 4 * 16 * (8 + 16)
    assert lstm.bytes == 4 * (80 + 160 + 32 + 4 * 16 * 8 + 4 * 16 * 16)
    assert operations("GRU", [(5, 2, 8)], (5, 2, 2, 16)) == 2 * 5 * 2 * 2 * 3 * 16 * (8 + 16)


@pytest.mark.parametrize(
    ("op_type", "output", "expected"),
    [("Relu", (2, 3), 6), ("Add", (4, 4), 16), ("Softmax", (2, 5), 50), ("LayerNormalization", (3, 4), 84)],
)
def test_what_acts_on_elements_counts_its_outputs(op_type: str, output: Shape, expected: int) -> None:
    assert operations(op_type, [output], output) == expected


def test_a_reduction_counts_what_it_reads() -> None:
    assert operations("ReduceSum", [(4, 8, 16)], (4, 8)) == 512
    assert operations("GlobalAveragePool", [(1, 64, 7, 7)], (1, 64, 1, 1)) == 3136


def test_a_pooling_needs_its_window() -> None:
    pool = node("MaxPool", [(1, 8, 4, 4)], (1, 8, 2, 2))
    assert count_node(pool).operations is None
    assert count_node(pool).why == operation_counts.NO_WINDOW
    assert count_node(pool).bytes == 4 * (128 + 32)
    assert count_node(pool, held(window=(2, 2), op_type="MaxPool")).operations == 4 * 32


def test_what_only_moves_data_has_bytes_and_no_operations() -> None:
    assert count_node(node("Transpose", [(4, 8)], (8, 4))).bytes == 4 * 64
    gathered = count_node(node("Gather", [(30_000, 64), tensor((2, 5), "int64")], (2, 5, 64)))
    assert (gathered.operations, gathered.bytes) == (0, 2 * 4 * 640 + 80)  # the rows that it picks
    view = count_node(node("Reshape", [(4, 8), tensor((1,), "int64")], (32,)))
    assert (view.operations, view.bytes, view.why) == (0, None, operation_counts.VIEW)
    assert view.intensity is None


@pytest.mark.parametrize("op_type", ["NonMaxSuppression", "If", "Einsum", "MyOwnOperator"])
def test_an_operator_without_a_rule_is_not_counted(op_type: str) -> None:
    one = count_node(node(op_type, [(4, 4)], (4, 4)))
    assert (one.operations, one.why, one.intensity) == (None, operation_counts.NO_RULE, None)


def test_without_shapes_nothing_is_counted() -> None:
    assert count_node(node("Conv", [])).why == operation_counts.NO_SHAPES
    assert count_node(node("MatMul", [()], (3,))).why == operation_counts.SHAPE_MISMATCH
    assert count_node(node("Relu", [tensor((2,), "string")], tensor((2,), "string"))).bytes is None


def test_intensity_is_operations_per_byte() -> None:
    one = count_node(node("Add", [(100,), (100,)], (100,)))
    assert one.intensity == pytest.approx(100 / 1200)
