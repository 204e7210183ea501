"""What is said about a race: who is ahead, ties, rejection, failures, and its line in the list."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence.comparison import Comparison, Role
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.show import verdict
from core.show.sheets.races import contestants, outputs_text, past, verdict_text
from core.show.standings import (
    against_reference,
    cautions,
    facts,
    headline,
    order,
    rank_text,
    reference,
)
from dashboard.widgets.tables import frame
from tests import builders
from tests.builders import busy_machine, guarded


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
    return frame(contestants(of, trials.values())).to_dict("records")


def past_row(of: Comparison) -> dict[Any, Any]:
    """Its line among past races."""
    return frame(past([of])).to_dict("records")[0]


RANKED = [{"trial": "a", "rank": 1, "ties": []}]  # somebody is: by which places, the intervals say


def race(contrasts: list[dict[str, Any]], *, state: Any = "COMPLETE", **result: Any) -> Comparison:
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
    found = race(FOUND)
    said = headline(found)
    assert said.startswith("Inconclusive: intervals reach ±2 %. The fastest may be A or B. Measure longer")
    assert said.endswith("A against BASE: 1.42× faster, 95 % [1.39, 1.45].")
    assert [rank_text(found, one) for one in ("a", "b", "base", "c", "ort")] == ["1–2", "1–2", "3", "4", ""]


def test_wide_intervals_are_no_tie() -> None:
    wide = {**contrast("a", 1.0, "UNDECIDED", ratio_low=0.6, ratio_high=1.8), "half_width": 0.61}
    said = headline(race([wide]))
    assert said.startswith(
        "Inconclusive: intervals reach ±61 %. The fastest may be A or BASE. Measure longer"
    )
    wider = {**contrast("a", 1.0, "UNDECIDED", ratio_low=0.3, ratio_high=4.0), "half_width": 1.85}
    assert headline(race([wider])).startswith("Inconclusive: the ratios are not known yet.")


def test_a_tie_is_within_the_equivalence_margin() -> None:
    close = {"ratio_low": 1.395, "ratio_high": 1.41}
    found = race([contrast("a", 1.4, **close), contrast("b", 1.401, **close), FOUND[2]])
    said = headline(found)
    assert said.startswith("B and A are equally fast within the equivalence margin of ±2 %. B against BASE: ")
    with_base = race([contrast("a", 1.0, "EQUIVALENT", ratio_low=0.985, ratio_high=1.015)])
    assert headline(with_base) == "A and BASE are equally fast within the equivalence margin of ±2 %."


def test_a_clear_winner_is_named_with_its_interval() -> None:
    said = headline(race([FOUND[0], FOUND[2]]))
    assert said == "A is the fastest; against BASE: 1.42× faster, 95 % [1.39, 1.45]."


def test_a_baseline_that_nobody_beats_is_named() -> None:
    assert headline(race([FOUND[2]])) == "BASE, the baseline, is the fastest."
    near = contrast("a", 0.99, "EQUIVALENT", ratio_low=0.985, ratio_high=0.995)
    said = headline(race([near, FOUND[2]]))
    assert said.endswith("is the fastest. A is slower by less than the equivalence margin.")
    assert rank_text(race([near, FOUND[2]]), "a") == "2"  # as the interval says


def test_nothing_to_compare_and_too_many_to_rank_are_said() -> None:
    assert headline(race([])).startswith("There is nothing to compare")
    assert headline(race(FOUND, ranks=[])) == "Put against BASE; too many configurations to rank."


def test_a_rejected_race_says_so_and_ranks_nobody() -> None:
    found = race(FOUND, grade="F")
    assert headline(found) == "Rejected: nobody is ranked."
    assert rank_text(found, "a") == ""
    assert past_row(found)["Result"] == "Rejected: nobody is ranked."


def test_one_rejected_verdict_is_not_ranked_and_leaves_the_others_alone() -> None:
    found = race([rejected("a", 1.02), *FOUND[1:]])
    assert headline(found) == "B is the fastest; against BASE: 1.40× faster, 95 % [1.37, 1.43]."
    assert [rank_text(found, one) for one in ("b", "a", "base")] == ["1", "", "2–3"]
    trial = measured("a")
    assert verdict_text(found, "a", trial) == "rejected: no verdict (between 1.00× and 1.04×)"
    assert verdict_text(found, "b", trial).startswith("1.40× faster")
    assert cautions(found)[0] == "A: Two copies of the same configuration differed by 2.1 %."
    assert cautions(found)[-1].startswith("What would help: Go on with the race")


def test_who_came_out_ahead_and_was_rejected_is_not_called_the_fastest() -> None:
    found = race([rejected("a", 1.02), FOUND[2]])
    assert headline(found) == "Nobody can be called the fastest: the result of A was rejected."


def test_a_busy_machine_keeps_the_ranks_and_is_told() -> None:
    busy = race(FOUND, busy=busy_machine())
    assert headline(busy) == headline(race(FOUND))
    assert rank_text(busy, "a") == "1–2"
    assert past_row(busy)["Grade"].endswith("busy machine")
    assert {BUSY in row["Grade"] for row in rows(busy, {}) if row["Grade"]} == {True}
    assert "Machine" not in past_row(race(FOUND))


def test_an_older_race_says_what_its_intervals_know() -> None:
    before = {name: value for name, value in FOUND[0].items() if name not in ("generations", "holds")}
    found = race([before], generations=None)
    assert cautions(found) == [verdict.OLDER]
    assert facts(found)[0] == "54 rounds of 2"
    assert cautions(race(FOUND)) == []


def test_times_are_per_run_or_all_of_them_per_row() -> None:
    known = {"a": measured("a", rows=4, p50_s=0.004), "base": measured("base", rows=1, p50_s=0.002)}
    per_row = {row["Configuration"]: row for row in rows(race([contrast("a", 2.0, per_row=True)]), known)}
    assert (per_row["A"]["p50 (ms/row)"], per_row["BASE"]["p50 (ms/row)"]) == (1.0, 2.0)
    assert (per_row["A"]["p95 (ms/row)"], per_row["A"]["CPU (ms/row)"]) == (2.0, 3.0)
    assert not [name for row in per_row.values() for name in row if name.endswith("(ms)")]
    per_run = {row["Configuration"]: row for row in rows(race([contrast("a", 2.0)]), known)}
    assert (per_run["A"]["p50 (ms)"], per_run["A"]["CPU (ms)"]) == (4.0, 12.0)
    assert not [name for row in per_run.values() for name in row if "/row" in name]


def test_the_order_is_by_rank_then_ratio_and_those_without_numbers_come_last() -> None:
    found = race([FOUND[1], FOUND[0], FOUND[2]])
    assert order(found) == ["a", "b", "base", "c", "ort"]
    assert [rank_text(found, one) for one in order(found)] == ["1–2", "1–2", "3", "4", ""]


def test_only_contrasts_against_the_baseline_count() -> None:
    found = race(FOUND)
    assert against_reference(found)["a"]["ratio"] == 1.42
    assert facts(found)[0] == "9 generations, 54 rounds of 4"
    found.protocol["continues"] = "abcdef0123456789"
    assert facts(found)[-1] == "goes on from abcdef012345"


def test_a_failed_baseline_gives_way_to_the_default() -> None:
    found = race([contrast("a", 1.2, baseline="ort")])
    assert reference(found) == "ort"
    assert verdict_text(found, "base", None) == "deleted since"


@pytest.mark.parametrize(("differ", "words"), [(None, ""), (True, "⚠ outputs differ"), (False, "agree")])
def test_outputs_of_a_race_of_an_earlier_version_are_told(differ: bool | None, words: str) -> None:
    assert outputs_text(race([contrast("a", 1.2, outputs_differ=differ)]), "a") == words


def test_outputs_are_told_of_everybody_by_the_result_of_each() -> None:
    found = race([contrast("a", 1.2, outputs_differ=False)])

    def trial(**error: Any) -> Trial:
        return builders.trial("x", result=guarded(**error))

    assert outputs_text(found, "a", trial(max_rel=0.5)) == "⚠ outputs differ"
    assert outputs_text(found, "base", trial()) == "agree"


def test_a_winner_whose_outputs_are_wrong_is_never_named_without_that() -> None:
    said = headline(race([FOUND[0], FOUND[2]], breaches={"a": "largest error 0.5", "c": "no matter here"}))
    assert said.endswith("95 % [1.39, 1.45]. ⚠ The outputs differ from the reference: A.")
    both = headline(race(FOUND, breaches={"a": "", "b": ""}))
    assert both.endswith("⚠ The outputs differ from the reference: A and B.")


def test_models_that_compute_something_else_are_never_called_equal_without_that() -> None:
    why = "`a` computes something else than `base`: largest error 2.3 of the largest magnitude"
    other = contrast("a", 1.0, "EQUIVALENT", outputs_differ=True, something_else=why, notes=[f"{why}."])
    found = race([other])
    assert headline(found).endswith("⚠ A computes something else than BASE.")
    assert verdict_text(found, "a", measured("a")).endswith("; computes something else")
    assert outputs_text(found, "a", measured("a")) == "⚠ computes something else"
    assert verdict.short(other) == "no difference; computes something else"
    assert f"A: {why}." in cautions(found)


def test_cautions_carry_the_name_and_leave_failures_to_their_boxes() -> None:
    found = race(
        [contrast("a", 1.2, notes=["outputs differ: 0.3"])],
        notes=["`B` failed: killed", "Memory did not hold everybody."],
    )
    assert cautions(found) == ["A: outputs differ: 0.3", "Memory did not hold everybody."]


def test_a_line_of_the_list_names_the_field_without_the_added_default() -> None:
    row = past_row(race(FOUND))
    assert row["Configurations"] == "A, B, C against BASE"
    assert row["Comparison"] == "0123456789ab"
    assert past_row(race([], state="CANCELLED"))["Result"] == "cancelled"
