"""Answers of a search: outcome, constraints with probabilities, ties, Pareto front, effects, controls."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from core.evidence.evaluations import Evaluation, Observation
from core.evidence.quality import CONTROL_FAILED
from core.evidence.verdict import Verdict
from core.run.search import answer as answers
from core.run.search.answer import ConfirmationTrial
from core.run.search.strategies import designed
from core.show.sheets.searches import sentence
from core.spec.question import Question, parse_limits, parse_objective, question_from_dict
from tests import builders
from tests.searching import MARGIN, Machine, Run, gains, small_space

SPACE = small_space(
    ("graph_optimization_level", ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL")),
    ("intra_op_num_threads", (0, 1, 2)),
    ("enable_cpu_mem_arena", (True, False)),
)


def question(*limits: str, objective: str = "latency", **changes: Any) -> Question:
    return question_from_dict({"objective": parse_objective(objective), **parse_limits(limits), **changes})


def confirmed(verdict: str = "FASTER", limits: str = "MET", error: str = "", **changes: Any) -> Any:
    """What the outcome reads of a configuration that was confirmed."""
    judged_limits = [{"state": limits}] if limits else []
    gain = {"verdict": Verdict[verdict], "ratio_low": 0.96, "ratio_high": 1.04}
    return {"error": error, "limits": judged_limits, "gain": gain, "contrast": {"holds": True}, **changes}


def tried(key: str, **facts: Any) -> Evaluation:
    """A configuration with one evaluation; `gains` are ln, `values` plain."""
    changes = facts.pop("changes", {"intra_op_num_threads": 1})
    twin = facts.pop("twin", False)
    known: dict[str, Any] = {"stage": "screen", "race": "r", "trial": key}
    return Evaluation(changes=changes, key=key, looks=(Observation(**(known | facts)),), twin=twin)


# --- the outcome ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "default", "said", "winner"),
    [
        ([("FASTER", "MET")], "MET", "FOUND", 0),
        ([("FASTER", "MISSED"), ("FASTER", "MET")], "MET", "FOUND", 1),
        ([("FASTER", "UNKNOWN"), ("FASTER", "MET")], "MET", "FOUND", 1),
        ([("FASTER", "UNKNOWN")], "MET", "UNDECIDED", 0),
        ([("EQUIVALENT", "MET"), ("FASTER", "MET")], "MET", "FOUND", 1),
        ([("UNDECIDED", "MET")], "MET", "UNDECIDED", 0),
        ([("EQUIVALENT", "MET"), ("UNDECIDED", "MET")], "MET", "UNDECIDED", 1),
        ([("EQUIVALENT", "MET")], "MET", "NO_DIFFERENCE", None),
        ([("SLOWER", "MET")], "MET", "NO_DIFFERENCE", None),
        ([("FASTER", "MISSED")], "MET", "NO_DIFFERENCE", None),
        ([("FASTER", "MISSED")], "MISSED", "NONE_KEEPS_LIMITS", None),
        ([("SLOWER", "MET")], "MISSED", "FOUND", 0),
        ([("SLOWER", "UNKNOWN")], "MISSED", "UNDECIDED", 0),
        ([("FASTER", "MET")], None, "FOUND", 0),
        ([], "MET", "NO_DIFFERENCE", None),
    ],
)
def test_the_outcome_is_that_of_verdicts_and_limits(
    candidates: list[tuple[str, str]], default: str | None, said: str, winner: int | None
) -> None:
    able = [confirmed(verdict, limits) for verdict, limits in candidates]
    reference = None if default is None else confirmed("EQUIVALENT", default)
    found, chosen = answers.outcome(able, reference, {}, margin=MARGIN)
    assert found == said
    assert chosen is (None if winner is None else able[winner])


@pytest.mark.parametrize(
    ("high", "contrast", "said"),
    [
        (1.02, {"holds": True}, "NO_DIFFERENCE"),  # slower, or as quick: no better in any case
        (1.021, {"holds": True}, "UNDECIDED"),
        (None, {"holds": True}, "UNDECIDED"),
        (1.01, {"holds": False}, "UNDECIDED"),
        (1.01, {"holds": True, "contradicted": True}, "UNDECIDED"),
        (1.01, None, "UNDECIDED"),
    ],
)
def test_who_may_be_slower_but_no_faster_is_no_better_answer(
    high: float | None, contrast: Any, said: str
) -> None:
    gain = {"verdict": Verdict.UNDECIDED, "ratio_low": 0.9, "ratio_high": high}
    one = confirmed(gain=gain, contrast=contrast)
    found, chosen = answers.outcome([one], confirmed("EQUIVALENT"), {}, margin=MARGIN)
    assert (found, chosen) == (said, one if said == "UNDECIDED" else None)


@pytest.mark.parametrize(
    ("high", "verdict", "words"),
    [
        (1.015, Verdict.EQUIVALENT, "0.995×, no difference, 95 % CI [0.981, 1.015]"),
        (1.005, Verdict.UNDECIDED, "between 0.981× and 1.005×"),
    ],
)
def test_that_nothing_is_better_is_said_with_the_margin(high: float, verdict: Verdict, words: str) -> None:
    gain = {"metric": "latency_p50", "ratio": 0.995, "ratio_low": 0.981, "ratio_high": high}
    others = [{"gain": gain | {"verdict": verdict}}]
    answer = {"outcome": "NO_DIFFERENCE", "winner": None, "margin": 0.02, "tried": 36, "others": others}
    assert sentence(answer) == (
        f"No configuration beats ONNX Runtime's default by more than 2 %: the best of 36 evaluated is "
        f"{words}."
    )


def test_whoever_failed_is_no_answer() -> None:
    candidates = [confirmed(error="It crashed."), confirmed("EQUIVALENT")]
    assert answers.outcome(candidates, confirmed("EQUIVALENT"), {}, margin=MARGIN) == ("NO_DIFFERENCE", None)


def test_a_comparison_whose_control_failed_says_nothing() -> None:
    one = confirmed()
    assert answers.outcome([one], confirmed("EQUIVALENT"), {"grade": "F"}, margin=MARGIN) == ("REJECTED", one)


def test_limits_together_are_as_bad_as_the_worst() -> None:
    def states(*names: str) -> Any:
        return [{"state": name} for name in names]

    assert answers.limits_state(states("MET", "UNKNOWN", "MISSED")) == "MISSED"
    assert answers.limits_state(states("MET", "UNKNOWN")) == "UNKNOWN"
    assert answers.limits_state(states("MET")) == answers.limits_state([]) == "MET"


# --- one that was confirmed -----------------------------------------------------------------------------


RESULT = {"grade": "A", "batch_size": 1, "peak_rss_bytes": 50_000_000, "generations": 9}


def measured(ratio: float = 1.2, result: Any = RESULT, **changes: Any) -> ConfirmationTrial:
    facts: dict[str, Any] = {
        "trial": builders.trial("t", comparison="c", result=result),
        "changes": {"intra_op_num_threads": 1},
        "look": Observation(stage="confirm", race="c", trial="t", gains={"peak_rss": (0.5, 0.02)}),
        "contrast": builders.contrast(ratio, 0.02),
        "size_bytes": 10_000_000,
        "summaries": {},
    }
    return ConfirmationTrial(**(facts | changes))


def said(one: ConfirmationTrial, asked: Question) -> Any:
    return answers.confirmed(one, measured(1.0), asked, margin=MARGIN, looks=8)


def test_the_speedup_of_a_winner_is_that_of_its_comparison() -> None:
    found = said(measured(), question())
    low, high = found["gain"]["ratio_low"], found["gain"]["ratio_high"]
    assert (found["gain"]["metric"], found["gain"]["ratio"], found["gain"]["verdict"]) == (
        "latency_p50",
        1.2,
        "FASTER",
    )
    assert (low, high) == pytest.approx((1.2 / 1.02, 1.2 * 1.02))
    assert {one["metric"] for one in found["gains"]} == {"latency_p50", "peak_rss"}
    assert found["error"] == ""


def test_an_objective_of_two_is_weighed() -> None:
    found = said(measured(), question(objective="latency:0.5,memory:0.5"))
    assert found["gain"]["metric"] == "latency_p50+peak_rss"
    assert found["gain"]["ratio"] == pytest.approx(math.sqrt(1.2 * math.exp(0.5)))
    assert found["gain"]["verdict"] == "FASTER"


def test_an_objective_that_was_not_measured_is_undecided() -> None:
    found = said(measured(contrast=None, result={}), question())
    assert (found["gain"]["ratio_low"], found["gain"]["verdict"]) == (None, "UNDECIDED")


def test_wrong_outputs_are_no_answer() -> None:
    wrong = Observation(stage="confirm", race="c", trial="t", breach="They differ by 7 %.")
    assert "They differ by 7 %." in said(measured(look=wrong), question())["error"]


# --- limits ---------------------------------------------------------------------------------------------


def test_a_limit_is_judged_with_its_probability() -> None:
    far, near, beyond = (
        answers.judged_limits(measured(), question(text))[0]
        for text in ("memory<=100MiB", "memory<=49MiB", "memory<=20MiB")
    )
    assert (far["state"], near["state"], beyond["state"]) == ("MET", "UNKNOWN", "MISSED")
    assert far["probability"] > 0.99
    assert 0.5 < near["probability"] < 0.95
    assert beyond["probability"] < 0.01
    assert far["limit"] == "peak memory added by the session ≤ 100 MiB"


def test_a_size_is_known_for_sure() -> None:
    kept, broken = (
        answers.judged_limits(measured(), question(text))[0] for text in ("size<=20MB", "size<=5MB")
    )
    assert (kept["state"], kept["probability"]) == ("MET", 1.0)
    assert (broken["state"], broken["probability"]) == ("MISSED", 0.0)


def test_a_limit_that_was_not_measured_is_unknown() -> None:
    (found,) = answers.judged_limits(measured(result={}), question("memory<=100MB"))
    assert (found["state"], found["probability"], found["value"]) == ("UNKNOWN", None, None)


@pytest.mark.parametrize(
    ("ratio", "width", "state"), [(1.1, 0.02, "MET"), (0.985, 0.01, "UNKNOWN"), (0.8, 0.02, "MISSED")]
)
def test_the_latency_of_the_default_can_be_a_limit(ratio: float, width: float, state: str) -> None:
    found = said(
        measured(contrast=builders.contrast(ratio, width)), question(objective="cpu", same_latency=True)
    )
    (limit,) = found["limits"]
    assert limit["state"] == state
    assert 0 <= limit["probability"] <= 1
    assert (limit["probability"] > 0.5) == (ratio > 1 / (1 + MARGIN))


@pytest.mark.parametrize(
    ("pair", "state"),
    [
        ((-0.001, -0.004, 0.002, 500), "MET"),
        ((-0.004, -0.01, 0.002, 500), "UNKNOWN"),
        ((-0.1, -0.12, -0.08, 500), "MISSED"),
    ],
)
def test_a_loss_of_accuracy_is_judged_by_its_interval(pair: tuple[float, ...], state: str) -> None:
    (found,) = answers.judged_limits(measured(summaries={"drop": pair}), question("accuracy>=-0.5%"))
    assert found["state"] == state
    assert found["value"] == pair[0]
    assert "500 samples" in found["why"]


def test_a_loss_of_accuracy_that_nobody_measured_is_unknown() -> None:
    (found,) = answers.judged_limits(measured(), question("accuracy>=-0.5%"))
    assert (found["state"], found["probability"]) == ("UNKNOWN", None)


# --- ties -----------------------------------------------------------------------------------------------


def order(*ones: tuple[Evaluation, float], level: str = "abc", threads: int = 4) -> str:
    found = answers.confirmation_order(ones, frozenset(level), MARGIN, threads=threads)
    return "".join(one.key for one, _ in found)


def memory(key: str, megabytes: float, **facts: Any) -> Evaluation:
    return tried(key, values={"peak_rss": megabytes * 1e6}, **facts)


TWO, ONE = {"intra_op_num_threads": 2}, {"intra_op_num_threads": 1, "enable_mem_pattern": False}
PLAIN, MORE = {"enable_mem_pattern": False}, {"enable_mem_pattern": False, "enable_cpu_mem_arena": False}


@pytest.mark.parametrize(
    ("ones", "how", "expected"),
    [
        ([(memory("a", 80), 0.2), (memory("b", 50), 0.196)], {}, "ba"),
        ([(memory("a", 52), 0.2), (memory("b", 50), 0.196)], {}, "ab"),  # less than a step of memory apart
        ([(tried("a", changes=TWO), 0.2), (tried("b", changes=ONE), 0.196)], {}, "ba"),  # fewer threads
        ([(tried("a", changes=MORE), 0.2), (tried("b", changes=PLAIN), 0.196)], {}, "ba"),  # fewer changes
        ([(tried("a", changes=PLAIN), 0.2), (tried("b", changes=ONE), 0.196)], {"threads": 1}, "ab"),
        (
            [(memory("a", 80), 0.2), (memory("b", 50), 0.19)],
            {},
            "ab",
        ),  # farther off than a quarter of the margin
        ([(memory("a", 80), 0.2), (memory("b", 50), 0.196)], {"level": "a"}, "ab"),  # significantly slower
        ([(memory("a", 80), 0.2), (memory("b", 90), 0.1), (memory("c", 10), 0.05)], {}, "abc"),  # no ties
        ([], {}, ""),
    ],
)
def test_cost_breaks_ties_and_everything_else_keeps_its_order(ones: Any, how: Any, expected: str) -> None:
    assert order(*ones, **how) == expected


def test_the_steps_of_memory_begin_at_the_least() -> None:
    assert all(order((memory("a", n * 1.05), 0.2), (memory("b", n), 0.196)) == "ab" for n in range(40, 60))


# --- the Pareto front -----------------------------------------------------------------------------------


def point(key: str, speed: float, rss: float, error: float = 0.01, **facts: Any) -> Evaluation:
    return tried(key, gains={"latency_p50": (speed, error), "peak_rss": (rss, error)}, **facts)


def pareto_front(*ones: Evaluation, objective: str = "latency") -> str:
    return "".join(one["trial"] for one in answers.pareto_front(ones, question(objective=objective), MARGIN))


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([("a", 0.3, 0.0), ("b", 0.1, 0.3), ("c", 0.1, 0.0)], "ab"),  # c: worse in one, better in none
        ([("a", 0.3, 0.0, 0.2), ("b", 0.1, 0.0, 0.2)], "ab"),  # that b is worse is not sure
        ([("a", 0.101, 0.1), ("b", 0.1, 0.101)], "ab"),  # equals
        ([(str(i), 0.05 * i, 0.05 * (7 - i)) for i in range(8)], "76543210"),  # each is best in one respect
    ],
)
def test_the_front_has_whatever_nothing_else_surely_dominates(points: Any, front: str) -> None:
    assert pareto_front(*(point(*one) for one in points)) == front


def test_what_failed_or_was_not_measured_is_on_no_front() -> None:
    failed = tried("b", gains={"latency_p50": (0.5, 0.01)}, error="It crashed.")
    assert pareto_front(point("a", 0.1, 0.0), failed) == "a"
    assert pareto_front(tried("a", gains={"peak_rss": (1.0, 0.1)})) == ""


def test_a_point_says_what_it_gains_and_what_it_costs() -> None:
    one = point("a", 0.2, 0.1, values={"latency_p50": 1e-3, "peak_rss": 5e7, "latency_p99": 9.0})
    (found,) = answers.pareto_front([one], question(), MARGIN)
    assert [gain["metric"] for gain in found["gains"]] == ["latency_p50", "peak_rss"]
    assert found["gains"][0]["ratio"] == pytest.approx(math.exp(0.2))
    assert found["values"] == {"latency_p50": 1e-3, "peak_rss": 5e7}


def test_what_is_the_objective_is_no_second_axis() -> None:
    (found,) = answers.pareto_front([point("a", 0.2, 0.1)], question(objective="memory"), MARGIN)
    assert [gain["metric"] for gain in found["gains"]] == ["peak_rss"]


# --- what matters, and the controls ---------------------------------------------------------------------


def test_effects_are_named_with_their_values_and_only_those_that_were_tried() -> None:
    run = Run(
        machine=Machine(space=SPACE, gain=lambda codes: -0.3 * codes[:, 0], slow_share=0), strategy=designed
    )
    run.go()
    singles, _ = answers.effects(run.known)
    first = singles[0]
    assert (first["setting"], first["value"]) == ("graph_optimization_level", "ORT_DISABLE_ALL")
    assert first["against"] == "ORT_ENABLE_ALL"
    assert first["ratio_low"] < math.exp(-0.3) < first["ratio_high"]
    assert first["ratio_high"] < 1


def test_two_observations_say_nothing_of_effects() -> None:
    run = Run(machine=Machine(space=SPACE, gain=gains(SPACE, 1)), strategy=designed, budget_s=5).go()
    assert run.looked_at < 3
    assert answers.effects(run.known) == ([], [])


def test_controls_count_aa_controls_and_self_tests() -> None:
    one = tried("k", gains={"latency_p50": (0.1, 0.01)})
    near = tried("k", gains={"latency_p50": (0.11, 0.01)}, twin=True)
    far = tried("k", gains={"latency_p50": (0.2, 0.01)}, twin=True)  # its distance of 0.1 is more than chance
    elsewhere = tried("k", gains={"latency_p50": (0.9, 0.01)}, twin=True, race="another")
    tests = [
        {"ratio": 0.97, "ratio_low": 0.95, "ratio_high": 0.99},
        {"ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1},
        {"ratio": 2.0, "ratio_low": None, "ratio_high": None},
    ]
    found = answers.controls([one, near, far, elsewhere], tests)
    assert (found["pairs"], found["apart"]) == (5, 3)  # of the self-tests the first and the last
    assert found["largest"] == 2.0
    assert answers.failed_controls(found).startswith(CONTROL_FAILED)
    assert "3 of 5 " in answers.failed_controls(found)
    assert not answers.failed_controls(answers.controls([one, near], tests[1:2]))
    assert answers.controls([], []) == {"pairs": 0, "apart": 0, "largest": None}


def test_a_space_says_how_many_differ_and_why_so_few() -> None:
    facts = answers.space_facts(SPACE)
    assert facts["combinations"] == facts["distinct"] + sum(facts["left_out"].values())
    named: Any = SimpleNamespace(combinations=4, choices=((0,), (1,)), left_out={"why": 2})
    assert answers.space_facts(named) == {"combinations": 4, "distinct": 2, "left_out": {"why": 2}}


def test_background_load_begins_the_sentence_of_what_was_found() -> None:
    gain = {"metric": "latency_p50", "ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3}
    winner = {"gain": gain | {"verdict": Verdict.FASTER}}
    quiet = {"outcome": "FOUND", "winner": winner, "limits": [], "grade": "B", "busy": None}
    busy = sentence(quiet | {"busy": {"words": "beside other programs"}})
    assert busy.startswith("Under background load: ")
    assert sentence(quiet).removesuffix(".") in busy
    assert "on an idle machine" in busy.rpartition(";")[2]
