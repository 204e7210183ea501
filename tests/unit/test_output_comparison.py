from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats

from core.wire.errors import WorkerError
from core.wire.output_check import check_outputs
from core.worker.measure import output_comparison
from core.worker.measure.output_comparison import compare


def scores(*rows: list[float], dtype: str = "float32") -> dict[str, Any]:
    return {"logits": np.array(rows, dtype)}


def test_the_largest_difference_counts_absolute_and_relative() -> None:
    reference = {"a": np.array([1.0, -10.0], np.float32), "b": np.array([4], np.int64)}
    other = {"a": np.array([1.5, -10.0], np.float32), "b": np.array([5], np.int64)}
    error = compare(reference, other)
    assert error["max_abs"] == 1.0
    assert error["max_rel"] == pytest.approx(0.2)  # 1 of 5, not 0.5 of 10
    assert error["difference"] == ""
    assert compare(other, reference) == error


def test_equal_outputs_have_no_error() -> None:
    assert compare(scores([1, 2], [4, 3]), scores([1, 2], [4, 3])) == {
        "max_abs": 0.0, "mean_abs": 0.0, "max_rel": 0.0, "mean_rel": 0.0, "cosine": 1.0,
        "top1_agreement": 1.0, "difference": "", "rows": 2, "not_finite": 0,
    }  # fmt: skip
    zero = {"y": np.zeros(3, np.float32)}
    assert compare(zero, zero)["max_rel"] == 0.0
    assert compare(zero, {"y": np.full(3, 1e-9, np.float32)})["max_rel"] == 1.0


def test_mean_errors_and_the_angle_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(40, 7)), rng.normal(size=(40, 7))
    error = compare({"y": one}, {"y": other})
    magnitude = max(np.abs(one).mean(), np.abs(other).mean())
    assert error["mean_abs"] == pytest.approx(np.abs(one - other).mean())
    assert error["mean_rel"] == pytest.approx(np.abs(one - other).mean() / magnitude)
    norms = np.linalg.norm(one) * np.linalg.norm(other)
    assert error["cosine"] == pytest.approx(np.vdot(one, other) / norms)


def test_the_worst_of_several_outputs_counts() -> None:
    good = np.array([3.0, 4.0])
    error = compare({"a": good, "b": good}, {"a": good, "b": -good})
    assert (error["cosine"], error["mean_abs"], error["max_abs"]) == (-1.0, 7.0, 8.0)


def test_a_zero_vector_has_no_angle() -> None:
    zero, one = {"y": np.zeros(3)}, {"y": np.ones(3)}
    assert compare(zero, one)["cosine"] is None
    assert compare(zero, one)["max_rel"] == 1.0
    assert compare(zero, zero)["cosine"] is None
    assert compare({"y": np.zeros(0)}, {"y": np.zeros(0)})["max_abs"] == 0.0


def test_numbers_whose_squares_overflow_have_an_angle() -> None:
    huge = {"y": np.array([1e200, -2e200])}
    assert compare(huge, huge)["cosine"] == pytest.approx(1.0)


def test_large_outputs_are_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    one = {"y": rng.normal(size=(50, 3)).astype(np.float32)}
    other = {"y": one["y"] + rng.normal(size=(50, 3)).astype(np.float32)}
    one["y"][7, 1] = other["y"][7, 1] = np.nan
    whole = compare(one, other)
    monkeypatch.setattr(output_comparison, "PIECE", 7)
    pieces = compare(one, other)
    assert {k: v for k, v in pieces.items() if k != "difference"} == pytest.approx(
        {k: v for k, v in whole.items() if k != "difference"}
    )
    assert whole["not_finite"] == 1


def test_complex_outputs_are_compared() -> None:
    one = {"y": np.array([1 + 1j, 2 - 1j], np.complex64)}
    error = compare(one, {"y": one["y"] * 1j})
    assert error["max_rel"] == pytest.approx(np.sqrt(2))
    assert error["cosine"] == pytest.approx(0.0)


@given(
    arrays(np.float64, (3, 4), elements=floats(-1e6, 1e6)),
    arrays(np.float64, (3, 4), elements=floats(-1e6, 1e6)),
)
def test_errors_are_ordered_and_the_same_both_ways(one: Any, other: Any) -> None:
    error = compare({"y": one}, {"y": other})
    assert 0 <= error["mean_abs"] <= error["max_abs"] * (1 + 1e-9)
    assert 0 <= error["max_rel"] <= 2
    assert error["cosine"] is None or -1 <= error["cosine"] <= 1
    back = compare({"y": other}, {"y": one})
    for name in ("max_abs", "mean_abs", "max_rel", "mean_rel", "cosine"):
        assert back[name] == pytest.approx(error[name])  # type: ignore[literal-required]


def test_half_precision_is_held_against_its_original() -> None:
    error = compare(scores([0.1, 0.7], [0.9, 0.2]), scores([0.1, 0.7], [0.9, 0.2], dtype="float16"))
    assert 0 < error["max_abs"] < 1e-3
    assert error["top1_agreement"] == 1.0


def test_top1_is_the_share_of_rows_with_the_same_class() -> None:
    error = compare(scores([1, 2], [4, 3], [5, 6], [8, 7]), scores([1, 2], [3, 4], [5, 6], [8, 7]))
    assert (error["top1_agreement"], error["rows"]) == (0.75, 4)


@pytest.mark.parametrize(
    "arrays",
    [
        {"y": np.array([1.0, 2.0], np.float32)},
        {"y": np.array([[1, 2]], np.int64)},
        {"y": np.array([[1.0], [2.0]], np.float32)},
        {"y": np.zeros((0, 5), np.float32)},
        {"y": np.zeros((1, 3, 4, 4), np.float32)},  # an image
    ],
)
def test_outputs_that_hold_no_classes_have_no_top1(arrays: dict[str, Any]) -> None:
    assert compare(arrays, arrays)["top1_agreement"] is None


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"probabilities": np.zeros((1, 2))}, "`probabilities` here and `logits` in the reference"),
        (scores([1, 2, 3]), "has shape [1, 3] here and [1, 2] in the reference"),
        ({"logits": np.array([["a", "b"]])}, "is <U1 here and float32 in the reference"),
        (scores([1, np.nan]), "has 1 values that are infinite or not a number on one side only"),
        (scores([np.inf, -np.inf]), "has 2 values that are infinite"),
    ],
)
def test_what_cannot_be_compared_is_said_in_words(other: dict[str, Any], said: str) -> None:
    error = compare(scores([1, 2]), other)
    assert said in error["difference"]
    assert all(error[name] is None for name in ("max_abs", "mean_abs", "max_rel", "mean_rel", "cosine"))
    assert error["top1_agreement"] is None


def test_what_is_not_finite_on_both_sides_alike_is_equal() -> None:
    both = {"y": np.array([np.nan, np.inf, -np.inf, 2.0], np.float32)}
    near = {"y": np.array([np.nan, np.inf, -np.inf, 2.5], np.float32)}
    error = compare(both, near)
    assert error["max_abs"] == error["mean_abs"] == 0.5
    assert error["not_finite"] == 3
    assert compare(both, {"y": -both["y"]})["difference"]


def test_an_output_without_a_finite_value_is_named() -> None:
    ones = np.ones(2, np.float32)
    odd = {"y": np.full((64, 1), np.nan, np.float32), "z": ones, "empty": ones[:0]}
    assert compare(odd, odd)["void"] == ["y"]
    assert "void" not in compare({"z": odd["z"]}, {"z": odd["z"]})


def test_empty_outputs_say_nothing_unless_another_one_does() -> None:
    empty, full = np.zeros((1, 0, 4), np.float32), np.ones((1, 4), np.float32)
    alone = compare({"cache": empty}, {"cache": empty})
    assert check_outputs(alone, "fp32").breach is None
    assert "no output holds a value" in check_outputs(alone, "fp32").why
    beside = compare({"cache": empty, "y": full}, {"cache": empty, "y": full})
    assert check_outputs(beside, "fp32").breach is False


def test_numbers_beyond_half_precision_are_a_difference() -> None:
    with np.errstate(over="ignore"):
        half = {"y": np.array([1e6], np.float32).astype(np.float16)}
    assert "infinite" in compare({"y": np.array([1e6], np.float32)}, half)["difference"]


def test_text_and_truth_values_are_compared() -> None:
    one = {"label": np.array(["cat", "dog"]), "yes": np.array([True, False])}
    assert compare(one, dict(one))["max_abs"] == 0.0
    other = {"label": np.array(["cat", "cow"]), "yes": np.array([True, False])}
    assert compare(one, other)["difference"] == "The output `label` holds other text than the reference."
    flipped = {"label": one["label"], "yes": np.array([True, True])}
    assert compare(one, flipped)["max_abs"] == 1.0


def test_any_name_and_type_survives_the_file(tmp_path: Path) -> None:
    arrays = {
        "file": np.arange(3),
        "a/b:0": np.array([[0.5]], np.float16),
        "arr_0": np.array(["ä"]),
        "scalar": np.array(2.0),
        "empty": np.zeros((0, 2)),
    }
    path = tmp_path / "o"
    output_comparison.save(str(path), arrays)
    loaded = output_comparison.load(str(path))
    assert list(loaded) == list(arrays)
    assert compare(arrays, loaded)["difference"] == ""
    assert loaded["a/b:0"].dtype == np.float16
    output_comparison.save(str(path), {})
    assert output_comparison.load(str(path)) == {}


def test_files_that_are_not_there_or_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    for name in ("none", "text", "other.npz"):
        with pytest.raises(WorkerError, match="holds no outputs"):
            output_comparison.load(str(tmp_path / name))
    with pytest.raises(WorkerError, match="cannot be written"):
        output_comparison.save(str(tmp_path / "no folder" / "o"), {})
