"""When a faster steady state has repaid a slower start: known truths, with plain numbers."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence.cold_start import BreakEven, break_even
from tests import builders


def result(*, creation_s: float | None, first_s: float = 0.002, p50_s: float = 0.001, rows: int = 1) -> Any:
    return {
        "session_creation_s": creation_s,
        "first_run_s": first_s,
        "latency": {"p50_s": p50_s, "mean_s": p50_s},
        "batch_size": rows,
    }


def contrast(ratio: float, verdict: str = "") -> dict[str, Any]:
    return builders.contrast(ratio, 0.1, **({"verdict": verdict} if verdict else {}))


def found(candidate: Any, baseline: Any, of: dict[str, Any]) -> BreakEven:
    answer = break_even(candidate, baseline, of)
    assert answer is not None
    return answer


def test_a_slower_start_is_repaid_after_extra_over_gain() -> None:
    # 10 ms longer, and a first run that is 1 ms longer; 2 ms against 1 ms a run
    candidate = result(creation_s=0.020, first_s=0.004, p50_s=0.001)
    baseline = result(creation_s=0.010, first_s=0.004, p50_s=0.002)
    answer = found(candidate, baseline, contrast(2.0))
    # extra = (24 - 1) - (14 - 2) = 11 ms, saved per run = 1 ms
    assert (answer.kind, answer.count, answer.unit) == ("after", 11, "run")
    assert answer.start_s == pytest.approx(0.011)
    assert answer.gain_s == pytest.approx(0.001)
    total = lambda one, runs: (  # noqa: E731
        one["session_creation_s"] + one["first_run_s"] + (runs - 1) * one["latency"]["p50_s"]
    )
    assert total(candidate, 10) > total(baseline, 10)
    assert total(candidate, 12) < total(baseline, 12)


def test_the_interval_of_the_ratio_is_the_interval_of_the_count() -> None:
    answer = found(
        result(creation_s=0.02, first_s=0.004, p50_s=0.001),
        result(creation_s=0.01, first_s=0.004, p50_s=0.002),
        contrast(2.0),
    )
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low < 11 < answer.high
    assert f"({answer.low} to {answer.high})" in answer.words


def test_the_four_corners_of_start_and_steady_state() -> None:
    quick, slow = result(creation_s=0.01), result(creation_s=0.05)
    assert found(quick, slow, contrast(2.0)).kind == "at once"
    assert found(slow, quick, contrast(2.0)).kind == "after"
    assert found(slow, quick, contrast(0.5)).kind == "never"
    ahead = found(quick, slow, contrast(0.5))
    assert ahead.kind == "until"
    assert ahead.count is not None
    assert ahead.count > 0
    assert ahead.words.startswith("Only for the first ")


def test_without_a_verdict_there_is_no_count() -> None:
    slow, quick = result(creation_s=0.05), result(creation_s=0.01)
    undecided = found(slow, quick, contrast(1.01, "UNDECIDED"))
    assert (undecided.kind, undecided.count) == ("unknown", None)
    assert "did not decide" in undecided.words
    same = found(slow, quick, contrast(1.001, "EQUIVALENT"))
    assert same.kind == "same"
    assert "40.0 ms longer" in same.words


def test_different_batches_count_rows() -> None:
    candidate = result(creation_s=0.05, first_s=0.01, p50_s=0.004, rows=4)
    baseline = result(creation_s=0.01, first_s=0.004, p50_s=0.002, rows=1)
    answer = found(candidate, baseline, contrast(2.0))  # 1 ms against 2 ms per sample
    # extra = (60 - 4) - (14 - 2) = 44 ms, saved 1 ms per sample
    assert (answer.kind, answer.count, answer.unit) == ("after", 44, "row")
    assert "samples" in answer.words


def test_the_ratio_decides_and_not_the_two_medians() -> None:
    candidate = result(creation_s=0.02, p50_s=0.0021)  # its own median was taken in a slower phase
    answer = found(candidate, result(creation_s=0.01, p50_s=0.002), contrast(1.25))
    assert answer.kind == "after"
    assert answer.gain_s == pytest.approx(0.0004)


def test_a_start_that_was_not_measured_gives_no_answer() -> None:
    assert break_even(result(creation_s=None), result(creation_s=0.01), contrast(2.0)) is None
    assert break_even(result(creation_s=0.1), result(creation_s=0.01), {"ratio": None}) is None
