"""core.run.explanation.end_to_end: which verdict two stored results have, and how sure it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.evidence.measurement import Trial
from core.run.explanation import Pair, comparison_of_pair, end_to_end
from core.store import PRUNED
from core.wire.output_check import DIFFERENT_OUTPUTS
from tests import builders
from tests.builders import MACHINE


def trial(name: str, p50_s: float, *, spread: float = 0.01, **changes: Any) -> Trial:
    facts = {key: changes.pop(key, value) for key, value in {"comparison": "", "fingerprint": "f"}.items()}
    latency = {"p50_s": p50_s, "p50_s_low": p50_s * (1 - spread), "p50_s_high": p50_s * (1 + spread)}
    result = {"latency": latency, "batch_size": 1, "environment": MACHINE, **changes}
    return builders.trial(name, result=result, **facts)


def stored(candidate: str, baseline: str, ratio: float = 2.0, **changes: Any) -> dict[str, Any]:
    """By one pair of processes, as earlier versions had them."""
    found = builders.contrast(ratio, 0.25, candidate=candidate, baseline=baseline, rounds=16)
    return {name: value for name, value in found.items() if name not in ("generations", "holds")} | changes


def blocks(median_s: float, count: int = 12) -> list[dict[str, Any]]:
    """Of a comparison of the version that had one process of each side."""
    return [{"round": n, "median_s": median_s * (1 + 0.001 * (n % 3))} for n in range(count)]


def generations(median_s: float, own: list[float], copies: int = 1, rounds: int = 8) -> list[dict[str, Any]]:
    """Blocks of as many launches as there are factors of a process."""
    return [
        {
            "generation": generation,
            "copy": copy,
            "round": generation * rounds + number,
            "median_s": median_s * factor * (1 + 0.002 * ((number + copy) % 3)),
        }
        for generation, factor in enumerate(own)
        for number in range(rounds)
        for copy in range(copies)
    ]


def test_two_that_were_compared_have_the_verdict_of_their_comparison() -> None:
    of = Pair(baseline=trial("a", 0.002), candidate=trial("b", 0.001, contrasts=[stored("b", "a")]))
    found = end_to_end(of)
    assert (found.verdict, found.raced, found.per_row) == ("FASTER", True, False)
    assert found.difference_s == pytest.approx(-0.001)
    assert (found.low_s, found.high_s) == (pytest.approx(-0.0012), pytest.approx(-0.00075))
    assert "2.0× faster" in found.words


def test_the_same_contrast_the_other_way_round_is_turned() -> None:
    of = Pair(baseline=trial("b", 0.001, contrasts=[stored("b", "a")]), candidate=trial("a", 0.002))
    found = end_to_end(of)
    assert (found.verdict, found.raced) == ("SLOWER", True)
    assert (found.low_s, found.high_s) == (pytest.approx(0.0006), pytest.approx(0.0015))


def test_two_candidates_of_one_comparison_are_compared_by_their_rounds() -> None:
    of = Pair(
        baseline=trial("a", 0.002, comparison="race", blocks=blocks(0.002)),
        candidate=trial("b", 0.004, comparison="race", blocks=blocks(0.00401), batch_size=4),
    )
    found = end_to_end(of, {"looks": [4, 6, 9, 14]})
    assert (found.verdict, found.raced, found.per_row) == ("UNDECIDED", True, True)  # no spread: no interval
    assert found.candidate_s == pytest.approx(0.00401 / 4)  # of the rounds, as the ratio
    noisy = [{**one, "median_s": one["median_s"] * (1 + 0.01 * (one["round"] % 5))} for one in blocks(0.004)]
    of = Pair(
        baseline=of.baseline,
        candidate=trial("b", 0.004, comparison="race", blocks=noisy, batch_size=4),
    )
    assert end_to_end(of, {"looks": [4, 6, 9, 14]}).verdict == "UNDECIDED"  # one process of each


EVEN, UNEVEN = [1.0, 1.002, 0.998, 1.001, 0.999, 1.0], [1.0, 1.2, 0.9, 1.1, 0.8, 1.0]


@pytest.mark.parametrize(("own", "verdict"), [(EVEN, "FASTER"), (UNEVEN, "UNDECIDED")])
def test_two_candidates_are_compared_by_generations_where_there_are_some(
    own: list[float], verdict: str
) -> None:
    """48 rounds say the same each time; what processes differ by decides how sure that is."""
    of = Pair(
        baseline=trial("a", 0.002, comparison="race", blocks=generations(0.002, EVEN[::-1])),
        candidate=trial("b", 0.0019, comparison="race", blocks=generations(0.0019, own)),
    )
    found = end_to_end(of, {"looks": list(range(4, 12))})
    assert (found.verdict, found.raced) == (verdict, True)
    assert found.candidate_s == pytest.approx(0.0019, rel=0.01)


def test_a_side_of_two_processes_counts_as_their_geometric_mean() -> None:
    anchor = generations(0.002, EVEN, copies=2)
    for block in anchor:
        block["median_s"] *= 4 if block["copy"] else 1
    of = Pair(
        baseline=trial("a", 0.004, comparison="race", blocks=anchor),
        candidate=trial("b", 0.002, comparison="race", blocks=generations(0.002, EVEN)),
    )
    found = end_to_end(of, {"looks": list(range(4, 12))})
    assert found.candidate_s == pytest.approx(0.004 / 2, rel=0.002)
    assert "2.0" in found.words


def test_the_times_of_both_sides_never_contradict_their_ratio() -> None:
    """Their own medians were taken over different rounds, and would say the opposite."""
    candidate = trial("b", 0.0021, contrasts=[stored("b", "a", ratio=1.25)])
    found = end_to_end(Pair(baseline=trial("a", 0.002), candidate=candidate))
    assert found.candidate_s == pytest.approx(0.0016)
    assert found.candidate_p50_s == pytest.approx(0.0021)
    assert found.difference_s == pytest.approx(-0.0004)
    assert found.low_s is not None
    assert found.high_s is not None
    assert found.low_s < found.difference_s < found.high_s


def test_a_verdict_that_the_aa_test_does_not_let_stand_is_none_with_its_reason() -> None:
    doubt = "Two copies of the same configuration differed by 9.0 %."
    contrast = stored("b", "a", verdict="UNDECIDED", holds=False, holds_reason=doubt, generations=9)
    candidate = trial("b", 0.001, contrasts=[contrast], grade="F", grade_reason="In the A/A test …")
    for of in (
        Pair(baseline=trial("a", 0.002), candidate=candidate),
        Pair(baseline=candidate, candidate=trial("a", 0.002)),
    ):
        found = end_to_end(of)
        assert found.verdict == "UNDECIDED"
        assert found.words.startswith("undecided: between ")
        assert "9.0 %" in found.words


def test_a_verdict_that_stands_in_a_comparison_of_which_another_does_not() -> None:
    contrast = stored("b", "a", holds=True, holds_reason="", generations=9)
    found = end_to_end(Pair(baseline=trial("a", 0.002), candidate=trial("b", 0.001, contrasts=[contrast])))
    assert (found.verdict, found.raced) == ("FASTER", True)


def test_two_candidates_of_a_comparison_that_was_rejected_decide_nothing() -> None:
    of = Pair(
        baseline=trial("a", 0.002, comparison="race", blocks=generations(0.002, EVEN)),
        candidate=trial(
            "b",
            0.001,
            comparison="race",
            blocks=generations(0.001, EVEN),
            grade="F",
            grade_reason="It was off.",
        ),
    )
    found = end_to_end(of)
    assert (found.verdict, found.words.endswith(" off")) == ("UNDECIDED", True)


def test_samples_that_were_pruned_are_missed_by_name() -> None:
    of = Pair(
        baseline=trial("a", 0.002, comparison="race", **{PRUNED: True}),
        candidate=trial("b", 0.001, comparison="race", **{PRUNED: True}),
    )
    found = end_to_end(of)
    assert (found.verdict, found.raced) == ("UNDECIDED", True)
    assert "pruned" in found.words
    stays = trial("b", 0.001, comparison="race", contrasts=[stored("b", "a")], **{PRUNED: True})
    assert end_to_end(Pair(baseline=of.baseline, candidate=stays)).verdict == "FASTER"


def test_two_that_were_not_compared_have_no_ratio() -> None:
    """Two identical requests of different times came out as 1.8 times faster, with an interval."""
    for candidate_s in (0.001, 0.00201, 0.002):
        found = end_to_end(Pair(baseline=trial("a", 0.002, spread=0.001), candidate=trial("b", candidate_s)))
        assert (found.verdict, found.raced) == ("UNDECIDED", False)
        assert (found.low_s, found.high_s) == (None, None)
        assert "×" not in found.words
        assert not end_to_end(Pair(baseline=trial("a", 0.002), candidate=trial("b", candidate_s))).raced


def test_two_results_of_rejected_comparisons_of_their_own_decide_nothing() -> None:
    rejected = {"grade": "F", "grade_reason": "It was off."}
    of = Pair(
        baseline=trial("a", 0.002, comparison="one", blocks=generations(0.002, EVEN), **rejected),
        candidate=trial("b", 0.001, comparison="two", blocks=generations(0.001, EVEN), **rejected),
    )
    assert (end_to_end(of).verdict, end_to_end(of).low_s) == ("UNDECIDED", None)


def test_the_margin_is_that_of_their_comparison() -> None:
    of = Pair(
        baseline=trial("a", 0.002, comparison="race", blocks=generations(0.002, EVEN[::-1])),
        candidate=trial("b", 0.0019, comparison="race", blocks=generations(0.0019, EVEN)),
    )
    looks = list(range(4, 12))
    assert end_to_end(of, {"looks": looks, "margin": 0.02}).verdict == "FASTER"
    assert end_to_end(of, {"looks": looks, "margin": 0.2}).verdict == "EQUIVALENT"


def test_a_verdict_between_different_models_says_that_they_compute_something_else() -> None:
    contrast = stored("b", "a", verdict="EQUIVALENT", ratio=1.0, something_else="`b` computes something else")
    found = end_to_end(Pair(baseline=trial("a", 0.002), candidate=trial("b", 0.002, contrasts=[contrast])))
    assert found.words.endswith(f"; {DIFFERENT_OUTPUTS}")


def test_the_comparison_of_a_pair_is_what_both_asked_for() -> None:
    spec = {"model": {"path": "m.onnx"}, "session": {"intra_op_num_threads": 2}}
    one = replace(trial("a" * 16, 0.002), spec={"model": {"path": "m.onnx"}})
    other = replace(trial("b" * 16, 0.001), spec=spec)
    candidate, baseline = comparison_of_pair(Pair(baseline=one, candidate=other))
    assert (candidate.role, candidate.spec.to_dict()) == ("candidate", spec)
    assert (baseline.role, baseline.label.split(" ")[-1]) == ("baseline", "aaaaaaaa")


def test_results_of_two_machines_are_not_compared_and_what_differs_is_told() -> None:
    there = {**MACHINE, "kernel": "6.9"}
    of = Pair(
        baseline=trial("a", 0.002),
        candidate=trial("b", 0.001, fingerprint="g", environment=there, contrasts=[stored("b", "a")]),
    )
    found = end_to_end(of)
    assert (found.verdict, found.raced) == ("UNDECIDED", False)
    assert "6.1" in found.words
    assert "6.9" in found.words


def test_a_rejected_comparison_decides_nothing() -> None:
    candidate = trial(
        "b", 0.001, contrasts=[stored("b", "a")], grade="F", grade_reason="A neighbour used 0.9 cores."
    )
    found = end_to_end(Pair(baseline=trial("a", 0.002), candidate=candidate))
    assert (found.verdict, "0.9 cores" in found.words) == ("UNDECIDED", True)
