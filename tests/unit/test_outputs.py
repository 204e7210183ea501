from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.benchmark import outputs
from core.errors import WorkerError


def scores(*rows: list[float], dtype: str = "float32") -> dict[str, Any]:
    return {"logits": np.array(rows, dtype)}


def test_the_largest_difference_counts_absolute_and_relative() -> None:
    reference = {"a": np.array([1.0, -10.0], np.float32), "b": np.array([4], np.int64)}
    other = {"a": np.array([1.5, -10.0], np.float32), "b": np.array([5], np.int64)}
    error = outputs.compare(reference, other)
    assert error["max_abs"] == 1.0
    assert error["max_rel"] == pytest.approx(0.2)  # 1 of 5, not 0.5 of 10
    assert error["difference"] == ""
    assert outputs.compare(other, reference) == error


def test_equal_outputs_have_no_error() -> None:
    assert outputs.compare(scores([1, 2], [4, 3]), scores([1, 2], [4, 3])) == {
        "max_abs": 0.0, "max_rel": 0.0, "top1_agreement": 1.0, "difference": "",
    }  # fmt: skip
    zero = {"y": np.zeros(3, np.float32)}
    assert outputs.compare(zero, zero)["max_rel"] == 0.0
    assert outputs.compare(zero, {"y": np.full(3, 1e-9, np.float32)})["max_rel"] == 1.0


def test_half_precision_is_held_against_its_original() -> None:
    error = outputs.compare(scores([0.1, 0.7], [0.9, 0.2]), scores([0.1, 0.7], [0.9, 0.2], dtype="float16"))
    assert 0 < error["max_abs"] < 1e-3
    assert error["top1_agreement"] == 1.0


def test_top1_is_the_share_of_rows_with_the_same_class() -> None:
    error = outputs.compare(scores([1, 2], [4, 3], [5, 6], [8, 7]), scores([1, 2], [3, 4], [5, 6], [8, 7]))
    assert error["top1_agreement"] == 0.75


@pytest.mark.parametrize(
    "arrays",
    [
        {"y": np.array([1.0, 2.0], np.float32)},
        {"y": np.array([[1, 2]], np.int64)},
        {"y": np.array([[1.0], [2.0]], np.float32)},
        {"y": np.zeros((0, 5), np.float32)},
    ],
)
def test_outputs_that_hold_no_classes_have_no_top1(arrays: dict[str, Any]) -> None:
    assert outputs.compare(arrays, arrays)["top1_agreement"] is None


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"probabilities": np.zeros((1, 2))}, "`probabilities` here and `logits` there"),
        (scores([1, 2, 3]), "has shape [1, 3] here and [1, 2] there"),
        ({"logits": np.array([["a", "b"]])}, "is <U1 here and float32 there"),
        (scores([1, np.nan]), "has 1 values that are infinite or not a number on one side only"),
        (scores([np.inf, -np.inf]), "has 2 values that are infinite"),
    ],
)
def test_what_cannot_be_compared_is_said_in_words(other: dict[str, Any], said: str) -> None:
    error = outputs.compare(scores([1, 2]), other)
    assert said in error["difference"]
    assert error["max_abs"] is error["max_rel"] is error["top1_agreement"] is None


def test_what_is_not_finite_on_both_sides_alike_is_equal() -> None:
    both = {"y": np.array([np.nan, np.inf, -np.inf, 2.0], np.float32)}
    near = {"y": np.array([np.nan, np.inf, -np.inf, 2.5], np.float32)}
    error = outputs.compare(both, near)
    assert error["max_abs"] == 0.5
    assert outputs.compare(both, {"y": -both["y"]})["difference"]


def test_numbers_beyond_half_precision_are_a_difference() -> None:
    with np.errstate(over="ignore"):
        half = {"y": np.array([1e6], np.float32).astype(np.float16)}
    assert "infinite" in outputs.compare({"y": np.array([1e6], np.float32)}, half)["difference"]


def test_text_and_truth_values_are_compared() -> None:
    one = {"label": np.array(["cat", "dog"]), "yes": np.array([True, False])}
    assert outputs.compare(one, dict(one))["max_abs"] == 0.0
    other = {"label": np.array(["cat", "cow"]), "yes": np.array([True, False])}
    assert outputs.compare(one, other)["difference"] == "The output `label` holds other text."
    flipped = {"label": one["label"], "yes": np.array([True, True])}
    assert outputs.compare(one, flipped)["max_abs"] == 1.0


def test_any_name_and_type_survives_the_file(tmp_path: Path) -> None:
    arrays = {
        "file": np.arange(3),
        "a/b:0": np.array([[0.5]], np.float16),
        "arr_0": np.array(["ä"]),
        "scalar": np.array(2.0),
        "empty": np.zeros((0, 2)),
    }
    path = tmp_path / "o"
    outputs.save(str(path), arrays)
    loaded = outputs.load(str(path))
    assert list(loaded) == list(arrays)
    assert outputs.compare(arrays, loaded)["difference"] == ""
    assert loaded["a/b:0"].dtype == np.float16
    outputs.save(str(path), {})
    assert outputs.load(str(path)) == {}


def test_files_that_are_not_there_or_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    for name in ("none", "text", "other.npz"):
        with pytest.raises(WorkerError, match="holds no outputs"):
            outputs.load(str(tmp_path / name))
    with pytest.raises(WorkerError, match="cannot be written"):
        outputs.save(str(tmp_path / "no folder" / "o"), {})
