"""Pure parts of the variants' steps: the search of mixed precision, and errors over several inputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import wire
from core.wire.errors import ModelError
from core.worker.make.transform.agreement import all_zero, merge_errors
from core.worker.make.transform.mixed import SearchResult, search

NAMES = [f"n{index}" for index in range(12)]


def silent(stage: str, done: int, total: int, text: str = "") -> None:
    """A listener that does not care."""


def found(truth: Mapping[str, float], tolerance: float, **changes: Any) -> SearchResult:
    """Search where the error is the sum of the parts of the nodes in float16."""

    def measure(blocked: Collection[str]) -> float:
        return sum(part for name, part in truth.items() if name not in blocked)

    arguments = {"parts": lambda: truth, "progress": silent} | changes
    return search(NAMES, measure, tolerance=tolerance, **arguments)


def test_nothing_is_blocked_where_float16_holds() -> None:
    result = found(dict.fromkeys(NAMES, 0.01), 1.0)
    assert (result.blocked, result.tries) == (set(), 1)


def test_the_harmful_node_alone_is_blocked() -> None:
    result = found(dict.fromkeys(NAMES, 0.001) | {"n7": 5.0}, 0.1)
    assert result.blocked == {"n7"}
    assert result.error == pytest.approx(0.011)
    assert result.error_of_none == pytest.approx(5.011)


def test_a_wrong_estimate_costs_tries_and_not_the_answer() -> None:
    """The estimate calls the harmful node harmless: it is found by bisection, the others are given back."""
    parts = dict.fromkeys(NAMES, 0.0) | {"n3": 5.0}
    misled = {name: 1.0 for name in NAMES} | {"n3": 0.0}
    result = found(parts, 0.1, parts=lambda: misled)
    assert result.blocked == {"n3"}


@given(
    st.lists(st.floats(0, 1), min_size=len(NAMES), max_size=len(NAMES)),
    st.floats(0.001, 5),
)
def test_what_is_found_was_measured_and_holds(values: list[float], tolerance: float) -> None:
    parts = dict(zip(NAMES, values, strict=True))
    result = found(parts, tolerance)
    assert result.error <= tolerance
    assert result.error == sum(part for name, part in parts.items() if name not in result.blocked)
    assert (not result.blocked) == (result.error_of_none <= tolerance)


def test_no_set_is_larger_than_it_must_be_when_the_estimate_is_right() -> None:
    parts = {name: float(index) for index, name in enumerate(NAMES)}
    result = found(parts, 10.0)  # 0 + 1 + 2 + 3 + 4 are within
    assert result.blocked == set(NAMES[5:])


def test_a_tolerance_out_of_reach_is_refused_with_what_was_reached() -> None:
    with pytest.raises(ModelError, match=r"the error is 0\.5, above the tolerance of 0\.1"):
        search(NAMES, lambda blocked: 0.5, dict, tolerance=0.1, progress=silent)
    with pytest.raises(ModelError, match="not a number"):
        search(NAMES, lambda blocked: math.inf, dict, tolerance=0.1, progress=silent)


def test_progress_never_goes_beyond_its_total() -> None:
    heard: list[tuple[int, int]] = []
    found(
        dict.fromkeys(NAMES, 1.0),
        0.5,
        progress=lambda stage, done, total, text="": heard.append((done, total)),
    )
    assert heard
    assert all(done <= total for done, total in heard)


# --- errors over several inputs -----------------------------------------------------------------------------


def error(**values: Any) -> wire.OutputError:
    whole: wire.OutputError = {
        "max_abs": 0.0,
        "mean_abs": 0.0,
        "max_rel": 0.0,
        "mean_rel": 0.0,
        "cosine": 1.0,
        "top1_agreement": 1.0,
        "difference": "",
    }
    return {**whole, **values}  # type: ignore[typeddict-item]


def test_the_largest_extreme_and_the_mean_of_means_count() -> None:
    one = error(max_abs=1.0, mean_abs=0.2, max_rel=0.1, mean_rel=0.02, cosine=0.9, top1_agreement=1.0)
    other = error(max_abs=0.5, mean_abs=0.4, max_rel=0.3, mean_rel=0.04, cosine=0.99, top1_agreement=0.5)
    result = merge_errors([one, other])
    assert (result["max_abs"], result["max_rel"], result["cosine"]) == (1.0, 0.3, 0.9)
    assert result["mean_abs"] == pytest.approx(0.3)
    assert result["mean_rel"] == pytest.approx(0.03)
    assert result["top1_agreement"] == 0.75


def test_the_share_of_equal_classes_is_that_of_all_rows() -> None:
    result = merge_errors([error(top1_agreement=1.0, rows=6), error(top1_agreement=0.5, rows=2)])
    assert (result["top1_agreement"], result["rows"]) == (7 / 8, 8)


def test_one_pair_that_cannot_be_compared_makes_the_whole_so() -> None:
    bad = error(max_abs=None, max_rel=None, difference="shapes differ")
    assert merge_errors([error(), bad])["difference"] == "shapes differ"


def test_what_no_feed_tells_is_not_told() -> None:
    result = merge_errors([error(cosine=None, top1_agreement=None)] * 2)
    assert (result["cosine"], result["top1_agreement"]) == (None, None)


def test_zeros_are_recognised() -> None:
    zeros, ones = {"y": np.zeros(3)}, {"y": np.ones(3)}
    assert all_zero([zeros, zeros])
    assert not all_zero([zeros, ones])
