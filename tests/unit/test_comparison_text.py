"""Sentences about a comparison: the fastest, ties, rejection, failures, and its line in the list."""

from __future__ import annotations

import re
from typing import Any

import pytest

from core.evidence.comparison import Comparison, Role
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.evidence.verdict import Verdict
from core.show import verdict
from core.show.comparison_text import (
    against_reference,
    cautions,
    facts,
    headline,
    order,
    rank_text,
    reference,
)
from core.show.sheets.comparisons import configurations, earlier_comparisons, outputs_text, verdict_text
from core.wire.output_check import DIFFERENT_OUTPUTS, OUTPUTS_DIFFER, WARNING
from dashboard.widgets.tables import frame
from tests import builders
from tests.builders import busy_machine, guarded
from tests.reading import numbers, tells


def contrast(candidate: str, ratio: float, verdict: str = "FASTER", **changes: Any) -> dict[str, Any]:
    facts = {"candidate": candidate, "baseline": "base", "verdict": verdict}
    return builders.contrast(ratio, 0.02, **(facts | changes))


def rejected(candidate: str, ratio: float) -> dict[str, Any]:
    """One whose A/A test showed that two copies of the same differ by as much."""
    why = "Two copies of the same configuration differed by 2.1 %."
    return contrast(candidate, ratio, "UNDECIDED", grade="F", holds=False, holds_reason=why, notes=[why])


def measured(trial: str, *, rows: int = 1, p50_s: float = 0.002) -> Trial:
    latency = {"p50_s": p50_s, "p95_s": 2 * p50_s}
    result = {"batch_size": rows, "latency": latency, "cpu_s_per_inference": 3 * p50_s}
    return builders.trial(trial, result=result)


def rows(of: Comparison, trials: dict[str, Trial]) -> list[dict[Any, Any]]:
    """The contestants as the browser shows them."""
    return frame(configurations(of, trials.values())).to_dict("records")


def past_row(of: Comparison) -> dict[Any, Any]:
    """Its line among past comparisons."""
    return frame(earlier_comparisons([of])).to_dict("records")[0]


RANKED = [{"trial": "a", "rank": 1, "ties": []}]  # somebody is: by which places, the intervals say


def comparison(contrasts: list[dict[str, Any]], *, state: Any = "COMPLETE", **result: Any) -> Comparison:
    """`a`, `b` and `c` against `base`, beside a default that nobody asked for."""
    roles: dict[str, Role] = {
        "a": "candidate", "b": "candidate", "c": "candidate", "base": "baseline", "ort": "anchor",
    }  # fmt: skip
    return builders.comparison(
        roles,
        name="0123456789abcdef",
        state=state,
        protocol={"precision": "quick", "target": 0.03, "margin": 0.02},
        study="compare #1",
        result={
            "rounds": 54,
            "generations": [{"generation": number, "rounds": 6} for number in range(9)],
            "wall_s": 3.0,
            "grade": "A",
            "busy": None,
            "contrasts": contrasts,
            "ranks": RANKED,
            **result,
        },
    )


FOUND = [
    contrast("a", 1.42),
    contrast("b", 1.4),
    contrast("c", 0.7, "SLOWER"),
    contrast("a", 1.5, baseline="ort"),
]


def test_overlapping_intervals_for_the_first_place_are_inconclusive() -> None:
    found = comparison(FOUND)
    said = headline(found)
    assert re.search(r"±2 %\W.*\bA\b.*\bB\b", said)
    assert tells(said, "BASE", "1.42×", "[1.39, 1.45]")
    assert [rank_text(found, one) for one in ("a", "b", "base", "c", "ort")] == ["1–2", "1–2", "3", "4", ""]


def test_wide_intervals_are_no_tie() -> None:
    wide = {**contrast("a", 1.0, "UNDECIDED", ratio_low=0.6, ratio_high=1.8), "half_width": 0.61}
    said = headline(comparison([wide]))
    assert re.search(r"±61 %\W.*\bA\b.*\bBASE\b", said)
    wider = {**contrast("a", 1.0, "UNDECIDED", ratio_low=0.3, ratio_high=4.0), "half_width": 1.85}
    assert "±" not in headline(comparison([wider]))


def test_a_tie_is_within_the_equivalence_margin() -> None:
    close = {"ratio_low": 1.395, "ratio_high": 1.41}
    found = comparison([contrast("a", 1.4, **close), contrast("b", 1.401, **close), FOUND[2]])
    said = headline(found)
    assert re.match(r"B\b.*\bA\b.*±2 %\W.*\bBASE\b", said)
    with_base = comparison([contrast("a", 1.0, "EQUIVALENT", ratio_low=0.985, ratio_high=1.015)])
    assert re.match(r"A\b.*\bBASE\b.*±2 %", headline(with_base))


def test_a_clear_winner_is_named_with_its_interval() -> None:
    said = headline(comparison([FOUND[0], FOUND[2]]))
    assert said == "A is the fastest; against BASE: 1.42× faster, 95 % CI [1.39, 1.45]."


def test_a_baseline_that_nobody_beats_is_named() -> None:
    assert headline(comparison([FOUND[2]])).startswith("BASE,")
    near = contrast("a", 0.99, "EQUIVALENT", ratio_low=0.985, ratio_high=0.995)
    said = headline(comparison([near, FOUND[2]]))
    assert said.startswith("BASE,")
    assert re.search(r"\bA\b", said)
    assert rank_text(comparison([near, FOUND[2]]), "a") == "2"  # as the interval says


def test_nothing_to_compare_and_too_many_to_rank_are_said() -> None:
    assert not re.search(r"\b(A|B|C|BASE)\b", headline(comparison([])))
    assert tells(headline(comparison(FOUND, ranks=[])), "BASE")


def test_a_rejected_comparison_says_so_and_ranks_nothing() -> None:
    found = comparison(FOUND, grade="F")
    assert not re.search(r"\b(A|B|C|BASE)\b", headline(found))
    assert rank_text(found, "a") == ""
    assert past_row(found)["Result"] == headline(found)


def test_one_rejected_verdict_is_not_ranked_and_leaves_the_others_alone() -> None:
    found = comparison([rejected("a", 1.02), *FOUND[1:]])
    assert re.match(r"B\b.*\bBASE: 1.40×.*\[1.37, 1.43\]", headline(found))
    assert [rank_text(found, one) for one in ("b", "a", "base")] == ["1", "", "2–3"]
    trial = measured("a")
    assert tells(verdict_text(found, "a", trial), "1.00×", "1.04×")
    assert Verdict.FASTER.word not in verdict_text(found, "a", trial)
    assert verdict_text(found, "b", trial).startswith("1.40× faster")
    assert cautions(found)[0] == f"A: {rejected('a', 1.02)['holds_reason']}"
    assert tells(cautions(found)[-1], verdict.MEASURE_BETTER)


def test_who_came_out_ahead_and_was_rejected_is_not_called_the_fastest() -> None:
    found = comparison([rejected("a", 1.02), FOUND[2]])
    assert tells(headline(found), " A ")
    assert "×" not in headline(found)


def test_a_busy_machine_keeps_the_ranks_and_is_told() -> None:
    busy = comparison(FOUND, busy=busy_machine())
    assert headline(busy) == headline(comparison(FOUND))
    assert rank_text(busy, "a") == "1–2"
    assert past_row(busy)["Grade"].endswith(BUSY)
    assert {BUSY in row["Grade"] for row in rows(busy, {}) if row["Grade"]} == {True}
    assert "Machine" not in past_row(comparison(FOUND))


def test_an_older_comparison_says_what_its_intervals_know() -> None:
    before = {name: value for name, value in FOUND[0].items() if name not in ("generations", "holds")}
    found = comparison([before], generations=None)
    assert cautions(found) == [verdict.OLDER]
    assert numbers(facts(found)[0]) == [54, 2]
    assert cautions(comparison(FOUND)) == []


def test_times_are_per_run_or_all_of_them_per_row() -> None:
    known = {"a": measured("a", rows=4, p50_s=0.004), "base": measured("base", rows=1, p50_s=0.002)}
    per_row = {
        row["Configuration"]: row for row in rows(comparison([contrast("a", 2.0, per_row=True)]), known)
    }
    assert (per_row["A"]["p50 (ms/sample)"], per_row["BASE"]["p50 (ms/sample)"]) == (1.0, 2.0)
    assert (per_row["A"]["p95 (ms/sample)"], per_row["A"]["CPU (ms/sample)"]) == (2.0, 3.0)
    assert not [name for row in per_row.values() for name in row if name.endswith("(ms)")]
    per_run = {row["Configuration"]: row for row in rows(comparison([contrast("a", 2.0)]), known)}
    assert (per_run["A"]["p50 (ms)"], per_run["A"]["CPU (ms)"]) == (4.0, 12.0)
    assert not [name for row in per_run.values() for name in row if "/row" in name]


def test_the_order_is_by_rank_then_ratio_and_those_without_numbers_come_last() -> None:
    found = comparison([FOUND[1], FOUND[0], FOUND[2]])
    assert order(found) == ["a", "b", "base", "c", "ort"]
    assert [rank_text(found, one) for one in order(found)] == ["1–2", "1–2", "3", "4", ""]


def test_only_contrasts_against_the_baseline_count() -> None:
    found = comparison(FOUND)
    assert against_reference(found)["a"]["ratio"] == 1.42
    assert numbers(facts(found)[0]) == [9, 54, 4]
    found.protocol["continues"] = "abcdef0123456789"
    assert facts(found)[-1].endswith(" abcdef012345")


def test_a_failed_baseline_gives_way_to_the_default() -> None:
    found = comparison([contrast("a", 1.2, baseline="ort")])
    assert reference(found) == "ort"
    assert verdict_text(found, "base", None)


@pytest.mark.parametrize(("differ", "words"), [(None, ""), (True, "⚠ outputs differ"), (False, "agree")])
def test_outputs_of_a_comparison_of_an_earlier_version_are_told(differ: bool | None, words: str) -> None:
    assert outputs_text(comparison([contrast("a", 1.2, outputs_differ=differ)]), "a") == words


def test_outputs_are_told_of_everybody_by_the_result_of_each() -> None:
    found = comparison([contrast("a", 1.2, outputs_differ=False)])

    def trial(**error: Any) -> Trial:
        return builders.trial("x", result=guarded(**error))

    assert outputs_text(found, "a", trial(max_rel=0.5)) == f"{WARNING} {OUTPUTS_DIFFER}"
    assert outputs_text(found, "base", trial()) == "agree"


def test_a_winner_whose_outputs_are_wrong_is_never_named_without_that() -> None:
    said = headline(
        comparison([FOUND[0], FOUND[2]], breaches={"a": "largest error 0.5", "c": "no matter here"})
    )
    assert tells(said.partition(WARNING)[2], OUTPUTS_DIFFER, " A.")
    assert tells(said.partition(WARNING)[0], "[1.39, 1.45]")
    both = headline(comparison(FOUND, breaches={"a": "", "b": ""}))
    assert re.search(r"\bA\b.*\bB\.$", both.partition(WARNING)[2])


def test_models_that_compute_something_else_are_never_called_equal_without_that() -> None:
    why = "`a` computes something else than `base`: largest error 2.3 of the largest magnitude"
    other = contrast("a", 1.0, "EQUIVALENT", outputs_differ=True, something_else=why, notes=[f"{why}."])
    found = comparison([other])
    assert tells(headline(found).partition(WARNING)[2], " A ", DIFFERENT_OUTPUTS, " BASE.")
    assert verdict_text(found, "a", measured("a")).endswith(f"; {DIFFERENT_OUTPUTS}")
    assert outputs_text(found, "a", measured("a")) == f"{WARNING} {DIFFERENT_OUTPUTS}"
    assert verdict.short(other) == f"{Verdict.EQUIVALENT.word}; {DIFFERENT_OUTPUTS}"
    assert f"A: {why}." in cautions(found)


def test_cautions_carry_the_name_and_leave_failures_to_their_boxes() -> None:
    found = comparison(
        [contrast("a", 1.2, notes=["outputs differ: 0.3"])],
        notes=["`B` failed: killed", "Memory did not hold everybody."],
    )
    [contrast_note], [failed, other] = found.facts["contrasts"][0]["notes"], found.facts["notes"]
    assert cautions(found) == [f"A: {contrast_note}", other]
    assert failed.startswith("`B`")


def test_a_line_of_the_list_names_the_field_without_the_added_default() -> None:
    row = past_row(comparison(FOUND))
    assert re.match(r"A, B, C\b.* BASE$", row["Configurations"])
    assert row["Comparison"] == "0123456789ab"
    assert past_row(comparison([], state="CANCELLED"))["Result"] == "cancelled"
