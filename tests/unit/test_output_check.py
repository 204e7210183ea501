"""The output check: by precision, by the user's own tolerance, and without a check."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.run.plan import session_plan
from core.spec import session_from_dict
from core.wire.output_check import (
    TIE_MAX_REL,
    TOLERANCES,
    breach,
    check_outputs,
    effective_precision,
    error_in_words,
    random_operators,
    tolerance_of,
)
from tests.reading import tells


def error(**changes: Any) -> Any:
    return {
        "max_abs": 0.0,
        "mean_abs": 0.0,
        "max_rel": 0.0,
        "mean_rel": 0.0,
        "cosine": 1.0,
        "top1_agreement": None,
        "difference": "",
        "rows": 64,
        "not_finite": 0,
        **changes,
    }


@pytest.mark.parametrize(
    ("found", "precision", "words"),
    [
        (error(max_rel=1e-6), "fp32", ""),
        (
            error(max_rel=5e-3),
            "fp32",
            "largest error 0.005 of the largest magnitude, where 0.001 is allowed (fp32)",
        ),
        (error(max_rel=5e-3), "fp16", ""),
        (error(max_rel=3e-2), "fp16", "where 0.02 is allowed (fp16)"),
        (error(max_rel=3e-2), "mixed", "where 0.02 is allowed (mixed)"),
        (error(max_rel=5e-2), "int8", ""),
        (error(max_rel=2.1e-1), "int8", "where 0.1 is allowed (int8)"),
        (error(max_rel=1.5e-1), "int4", ""),
        (error(max_rel=1e-4, top1_agreement=63 / 64), "fp32", "agrees in 98.4% of 64 samples, where 100%"),
        (error(max_rel=1e-4, top1_agreement=63 / 64), "fp16", ""),
        (error(max_rel=1e-4, top1_agreement=0.5), "fp16", "agrees in 50.0% of 64 samples, where 90%"),
        (error(max_rel=1e-2, top1_agreement=0.6), "int8", ""),
        (error(max_rel=1e-2, top1_agreement=0.25), "int8", "agrees in 25.0% of 64 samples, where 50%"),
        (error(max_rel=float("nan")), "int4", "largest error nan"),
        (
            error(max_rel=None, difference="The output `y` has shape [1] here."),
            "int4",
            "The output `y` has shape",
        ),
        (error(max_rel=5e-3), "another", "(another)"),  # an unknown precision gets the FP32 tolerance
    ],
)
def test_a_tolerance_belongs_to_each_precision(found: Any, precision: str, words: str) -> None:
    verdict = check_outputs(found, precision)
    assert verdict.breach is bool(words)
    assert words in verdict.why
    assert verdict.why
    assert verdict.to_dict()["precision"] == precision


def test_a_changed_class_of_equal_scores_was_a_tie() -> None:
    assert check_outputs(error(max_rel=TIE_MAX_REL, top1_agreement=0.5), "fp32").breach is False


def test_a_share_of_few_rows_says_nothing_but_in_fp32_every_row_counts() -> None:
    one_row = error(max_rel=1e-4, top1_agreement=0.0, rows=1)
    assert check_outputs(one_row, "int8").breach is False
    assert check_outputs(one_row, "fp32").breach is True
    assert tells(check_outputs(one_row, "fp32").why, "0.0% of 1 ")


def test_the_users_tolerance_replaces_that_of_the_precision_in_both_directions() -> None:
    found = error(max_rel=5e-3, top1_agreement=0.9)
    assert check_outputs(found, "fp32", 1e-2).breach is False  # classes are not judged then
    strict = check_outputs(found, "int8", 1e-3)
    assert strict.breach is True
    assert "0.001 " in strict.why
    assert tolerance_of("fp32", 0.5).top1_agreement is None


def test_what_was_not_compared_is_neither_right_nor_wrong() -> None:
    assert check_outputs(None, "fp32").breach is None
    assert check_outputs(None, "fp32", unknown="It was cancelled.").why == "It was cancelled."


def test_values_that_are_not_finite_on_both_sides_are_told() -> None:
    verdict = check_outputs(error(not_finite=3), "fp32")
    assert verdict.breach is False
    assert "3 values" in verdict.why


def test_outputs_without_a_finite_value_prove_nothing() -> None:
    verdict = check_outputs(error(not_finite=64, void=["y"]), "fp32")
    assert verdict.breach is None
    assert "`y`" in verdict.why
    assert "64 values" in verdict.why
    assert error_in_words(result(error(not_finite=64, void=["y"]))) == verdict.why
    other_is_wrong = check_outputs(error(max_rel=0.5, not_finite=64, void=["y"]), "fp32")
    assert other_is_wrong.breach is True


def test_outputs_of_a_model_that_draws_random_numbers_are_not_judged_and_the_reason_is_told() -> None:
    operators = random_operators({"op_counts": {"RandomNormalLike": 2, "Add": 1}})  # type: ignore[typeddict-item]
    assert operators == ["RandomNormalLike"]
    verdict = check_outputs(error(max_rel=0.7), "fp32", random=operators)
    assert verdict.breach is None
    assert "(RandomNormalLike)" in verdict.why
    assert "0.7 " in verdict.why
    assert check_outputs(error(max_rel=1e-6), "fp32", random=operators).breach is False


@given(st.floats(0, 2), st.sampled_from(sorted(TOLERANCES)))
def test_a_wider_tolerance_never_breaches_where_a_narrower_one_holds(most: float, precision: str) -> None:
    found = error(max_rel=most)
    if check_outputs(found, precision).breach is False:
        wider = TOLERANCES[precision].max_rel * 2
        assert check_outputs(found, precision, wider).breach is False


# --- what is computed in ----------------------------------------------------------------------------------


def providers(*chain: dict[str, Any]) -> Any:
    return session_plan(session_from_dict({"providers": list(chain)}))


CUDA = {"name": "CUDAExecutionProvider"}


@pytest.mark.parametrize(
    ("precision", "chain", "expected"),
    [
        ("fp32", [], "fp32"),
        ("int8", [], "int8"),
        ("fp32", [CUDA], "tf32"),
        ("fp32", [{**CUDA, "options": {"use_tf32": "0"}}], "fp32"),
        ("fp16", [CUDA], "fp16"),
        ("int8", [CUDA], "int8"),
        ("fp32", [{"name": "TensorrtExecutionProvider", "options": {"trt_int8_enable": "1"}}], "int8"),
        ("fp32", [{"name": "TensorrtExecutionProvider", "options": {"trt_fp16_enable": "0"}}], "tf32"),
    ],
)
def test_a_provider_may_compute_in_less_than_the_model_holds(
    precision: str, chain: list[dict[str, Any]], expected: str
) -> None:
    assert effective_precision(precision, providers(*chain)) == expected


def test_a_provider_that_fell_back_widens_no_tolerance() -> None:
    session = providers(CUDA, {"name": "CPUExecutionProvider"})
    assert effective_precision("fp32", session, ["CPUExecutionProvider"]) == "fp32"
    assert effective_precision("fp32", session, ["CUDAExecutionProvider", "CPUExecutionProvider"]) == "tf32"
    assert effective_precision("int8", session, []) == "int8"


# --- stored results ---------------------------------------------------------------------------------------


def result(found: Any, precision: str = "fp32") -> dict[str, Any]:
    judged = {**check_outputs(found, precision).to_dict(), "reference": {"model": "net", "sha256": "ab"}}
    return {"output_error": found, "guard": {"error": found, **judged}}


def test_a_stored_breach_is_read_with_its_reason() -> None:
    assert "0.5" in breach(result(error(max_rel=0.5)))
    assert breach(result(error())) == breach(result(None)) == breach(None) == breach({}) == ""


def test_a_result_of_an_earlier_version_keeps_the_mark_that_it_had() -> None:
    assert breach({"contrasts": [{"outputs_differ": False}]}) == ""
    assert breach({"contrasts": [{"outputs_differ": True}]})
    assert error_in_words({"output_error": {"max_rel": 0.5}}) == ""


def test_the_error_is_told_in_words_with_what_it_was_held_against() -> None:
    found = error(max_abs=0.2, max_rel=0.012, mean_abs=0.1, mean_rel=0.005, cosine=0.99, top1_agreement=0.75)
    said = error_in_words(result(found, "int8"))
    assert said == (
        "largest error 0.2 (0.012 relative), mean 0.1 (0.005 relative), cosine 0.990000, highest class "
        "agrees in 75.0% of 64 samples; against net, where 0.1 relative is allowed (int8)"
    )
    assert "[1]" in error_in_words(result(error(max_rel=None, difference="The output `y` has shape [1].")))
    assert error_in_words(result(None))
    assert "cosine" not in error_in_words(result(error(cosine=None)))


def test_the_users_own_tolerance_is_called_that() -> None:
    judged = {**check_outputs(error(), "int8", 1e-3).to_dict(), "reference": None}
    said = error_in_words({"output_error": error(), "guard": judged})
    assert "0.001 " in said
