"""Configurations, and results from the raw record: comparisons with known true ratios, and every failure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from core.evidence.comparison import (
    DEFAULT_LABEL,
    Comparison,
    Configuration,
    same_request,
    with_references,
)
from core.evidence.record import Block, Discarded
from core.evidence.result import OUTCOMES, Evidence, self_test_result
from core.evidence.result_types import Role
from core.evidence.speedup_interval import Prior
from core.run.plan import session_plan
from core.show.verdict import in_words
from core.spec import session_from_dict, spec_from_dict
from core.wire.errors import WorkerError
from core.wire.output_check import DIFFERENT_OUTPUTS, OUTPUTS_DIFFER, check_outputs
from tests import builders, raw_comparisons
from tests.builders import spec
from tests.raw_comparisons import evidence
from tests.reading import numbers, tells

SHA = "ab" * 32


def candidate(**parts: Any) -> Configuration:
    return Configuration(spec=spec(**parts), label="candidate")


def baseline(**parts: Any) -> Configuration:
    return Configuration(spec=spec(**parts), label="mine", role="baseline")


FAST = {"session": {"intra_op_num_threads": 1}}


# --- configurations ---------------------------------------------------------------------------------------


def names(asked: list[Configuration]) -> list[tuple[str, str]]:
    return [(one.label, one.role) for one in with_references(asked)]


def test_the_default_on_the_same_workload_joins_every_comparison():
    asked = candidate(**FAST, model={"path": "m.onnx", "precision": "fp16"}, workload={"batch_size": 8})
    _, default = with_references([asked])
    assert (default.label, default.role) == (DEFAULT_LABEL, "anchor")
    assert default.spec == spec(workload={"batch_size": 8})


def test_the_default_is_not_measured_twice():
    assert names([candidate()]) == [("candidate", "candidate")]
    assert names([candidate(**FAST), baseline()]) == [("candidate", "candidate"), ("mine", "baseline")]
    assert names([candidate(**FAST), baseline(**FAST)])[-1] == (DEFAULT_LABEL, "anchor")


def test_it_is_said_which_of_several_models_the_default_runs():
    one = Configuration(spec=spec(**FAST, model={"path": "a/small.onnx"}), label="a", model="lean")
    other = Configuration(spec=spec(**FAST, model={"path": "b/large.onnx"}), label="b", role="baseline")
    assert [which.label for which in with_references([one, other])] == ["a", "b", f"{DEFAULT_LABEL} (lean)"]
    alone = [replace(one, model=""), replace(other, role="candidate")]
    assert with_references(alone)[-1].label == f"{DEFAULT_LABEL} (small)"


def test_a_candidate_that_is_the_default_stands_first_and_is_the_baseline():
    other = Configuration(spec=spec(**FAST), label="one thread")
    lined = with_references([other, candidate()])
    assert [one.label for one in lined] == ["candidate", "one thread"]
    assert stored(lined).baseline == "t0"
    assert stored(with_references([other, candidate(), baseline(workload={"seed": 3})])).baseline == "t2"


def stored(lined: list[Configuration]) -> Comparison:
    return builders.comparison({f"t{number}": one.role for number, one in enumerate(lined)})


def test_everybody_is_measured_as_well_as_the_first_candidate_asks():
    own = {"precision": "standard", "budget_s": 9, "margin": 0.01, "runs": 50}
    other = {"precision": "publish", "warmup_runs": 3, "cpus": "0"}
    lined = with_references([candidate(**FAST, protocol=own), baseline(workload={"seed": 1}, protocol=other)])
    for one in lined:
        assert (one.spec.protocol.effort, one.spec.protocol.runs) == ("standard", 50)
    assert (lined[1].spec.protocol.warmup_runs, lined[1].spec.protocol.cpus) == (3, "0")


def test_the_same_request_is_told_by_content_and_whatever_the_precision():
    first = spec(model={"path": "a.onnx", "sha256": SHA}, protocol={"precision": "publish"})
    assert same_request(first, spec(model={"path": "b.onnx", "sha256": SHA}))
    assert not same_request(first, spec(model={"path": "a.onnx", "sha256": "cd" * 32}))
    assert not same_request(first, spec(model={"path": "a.onnx", "sha256": SHA, "precision": "fp16"}))
    assert not same_request(first, spec(model={"path": "a.onnx", "sha256": SHA}, protocol={"cpus": "0"}))
    assert not same_request(spec(), spec(model={"path": "b.onnx"}))


# --- contrasts --------------------------------------------------------------------------------------------


def test_verdict_is_what_is_true_although_the_machine_moves():
    (found,) = evidence(raw_comparisons.record([0.001, 0.0012], shared=0.5)).contrasts
    assert (found["candidate"], found["baseline"]) == ("t-c0", "t-anchor")
    assert found["verdict"] == "FASTER"
    assert found["ratio_low"] < 1.2 < found["ratio_high"]
    assert found["ratio"] == pytest.approx(1.2, rel=0.02)
    assert (found["rounds"], found["generations"]) == (64, 8)
    assert (found["wall_s"], found["per_row"]) == (9.0, False)
    assert (found["holds"], found["holds_reason"], found["grade"]) == (True, "", "A")
    assert found["notes"] == []
    slower = evidence(raw_comparisons.record([0.0012, 0.001])).contrasts[0]
    assert (slower["verdict"], slower["ratio"]) == ("SLOWER", pytest.approx(1 / 1.2, rel=0.02))
    equal = evidence(raw_comparisons.record([0.001, 0.001], generations=14)).contrasts[0]
    assert equal["verdict"] == "EQUIVALENT"


def test_another_baseline_is_compared_with_every_configuration_and_the_ort_default_too():
    found = evidence(raw_comparisons.record([0.001, 0.002, 0.004]), baseline=1).contrasts
    pairs = {(one["candidate"], one["baseline"]): one["ratio"] for one in found}
    assert pairs == {
        ("t-c0", "t-c1"): pytest.approx(2, rel=0.05),
        ("t-anchor", "t-c1"): pytest.approx(0.5, rel=0.05),
        ("t-c0", "t-anchor"): pytest.approx(4, rel=0.05),
        ("t-c1", "t-anchor"): pytest.approx(2, rel=0.05),
    }


def test_different_batch_sizes_are_compared_per_row_and_said_so():
    (found,) = evidence(raw_comparisons.record([0.004, 0.001], rows=[8, 1])).contrasts
    assert found["per_row"]
    assert found["ratio"] == pytest.approx(2.0, rel=0.02)
    assert any(numbers(note)[:2] == [8, 1] for note in found["notes"])


def test_only_rounds_that_both_sides_have_are_compared():
    record = raw_comparisons.record([0.001, 0.001])
    record.blocks = [one for one in record.blocks if one.contestant == 1 or one.round < 6]
    assert evidence(record).contrasts[0]["rounds"] == 6


def test_an_undisturbed_part_that_says_otherwise_leaves_it_undecided():
    """Background load that starts while the candidate runs makes it seem slower; the other rounds do not."""

    def bad(contestant: int, number: int) -> bool:
        return contestant == 0 and 7 * number % 64 >= 20

    record = raw_comparisons.record(
        [0.001, 0.001],
        noise=0.001,
        disturb=lambda c, n: {"throttled_periods": 1} if bad(c, n) else {},
        slower=lambda c, n: 1.5 if bad(c, n) else 1.0,
    )
    result = evidence(record).to_dict()
    (found,) = result["contrasts"]
    undisturbed = found["without_flagged"]
    assert (undisturbed["verdict"], undisturbed["rounds"]) == ("EQUIVALENT", 20)
    assert (found["verdict"], found["contradicted"]) == ("UNDECIDED", True)
    assert found["ratio_low"] < 0.8 < undisturbed["ratio_low"]  # all rounds
    assert found["ratio_high"] == undisturbed["ratio_high"] > 1  # the interval that is shown spans both
    assert [(one["rank"], one["rank_worst"]) for one in result["ranks"]] == [(1, 2), (1, 2)]
    assert found["flagged_rounds"] == 44
    assert any("EQUIVALENT" in note and "SLOWER" in note for note in found["notes"])


def test_a_disturbed_part_that_agrees_changes_nothing():
    record = raw_comparisons.record(
        [0.001, 0.0015], disturb=lambda c, n: {"throttled_periods": int(n % 4 == 0)}
    )
    (found,) = evidence(record).contrasts
    assert (found["verdict"], found["flagged_rounds"]) == ("FASTER", 16)
    assert found["without_flagged"]["verdict"] == "FASTER"


@pytest.mark.parametrize(
    ("clean", "rounds"),
    [
        (range(7), None),  # of one launch, and seven
        (range(24), None),  # of three launches
        (range(0, 32, 8), None),  # four
        (range(32), 32),
        (range(0, 64, 8), 8),
    ],
)
def test_undisturbed_rounds_speak_for_themselves_from_eight_in_four_generations_on(
    clean: range, rounds: int | None
):
    record = raw_comparisons.record(
        [0.001, 0.0015], disturb=lambda c, n: {"throttled_periods": int(n not in clean)}
    )
    without = evidence(record).contrasts[0]["without_flagged"]
    assert (without and without["rounds"]) == rounds


def test_a_ratio_that_moves_is_told():
    record = raw_comparisons.record([0.001, 0.001], slower=lambda c, n: 1 + 0.005 * n * c)
    (found,) = evidence(record).contrasts
    assert found["drifting"]
    assert len(found["notes"]) == 1


def test_a_crash_takes_its_contrasts_and_leaves_the_others():
    record = raw_comparisons.record([0.001, 0.002, 0.003])
    record.ran[0].error = WorkerError("It crashed.")
    found = evidence(record)
    assert [one["candidate"] for one in found.contrasts] == ["t-c1"]
    assert any(tells(note, "`c0`", "crashed") for note in found.notes)
    assert "t-c0" not in {one["trial"] for one in found.to_dict()["ranks"]}
    partial = found.trial_result(0)
    assert partial is not None
    assert len(partial["latencies_s"]) == 8 * 8 * raw_comparisons.RUNS
    assert partial["contrasts"] == []


def test_a_baseline_that_crashed_is_replaced_by_the_default():
    record = raw_comparisons.record([0.001, 0.002, 0.003])
    record.ran[1].error = WorkerError("It crashed.")
    found = evidence(record, baseline=1)
    assert [(one["candidate"], one["baseline"]) for one in found.contrasts] == [("t-c0", "t-anchor")]
    assert any("`anchor`" in note for note in found.notes)


def test_nobody_left_to_compare_with_is_no_contrast():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[1].error = WorkerError("It crashed.")
    found = evidence(record)
    assert found.contrasts == []
    assert found.to_dict()["ranks"] == []


# --- outputs ----------------------------------------------------------------------------------------------


def test_outputs_that_are_wrong_stand_on_the_contrast_the_trial_and_the_comparison():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[0].output_error = raw_comparisons.output_error(max_rel=0.5)
    found = evidence(record)
    assert found.contrasts[0]["outputs_differ"] is True
    assert any(tells(note, OUTPUTS_DIFFER, "0.5") for note in found.contrasts[0]["notes"])
    result = found.trial_result(0)
    assert result is not None
    assert sum(OUTPUTS_DIFFER in note for note in result["notes"]) == 1
    assert result["output_error"] == result["guard"]["error"] == record.ran[0].output_error
    assert (result["guard"]["breach"], result["guard"]["precision"]) == (True, "fp32")
    assert result["guard"]["tolerance"] == {"max_rel": 1e-3, "top1_agreement": 1.0}
    assert list(found.to_dict()["breaches"]) == ["t-c0"]
    default = found.trial_result(1)
    assert default is not None
    assert default["guard"]["breach"] is False


def changed(found: Evidence, index: int, **changes: Any) -> Evidence:
    configurations = list(found.configurations)
    configurations[index] = replace(configurations[index], **changes)
    return replace(found, configurations=configurations)


def test_precision_and_the_users_tolerance_judge_the_same_error():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[0].output_error = raw_comparisons.output_error(max_rel=5e-3)
    found = evidence(record)
    assert found.contrasts[0]["outputs_differ"] is True
    assert changed(found, 0, precision="fp16").contrasts[0]["outputs_differ"] is False
    assert changed(found, 0, tolerance=1e-2).contrasts[0]["outputs_differ"] is False
    assert changed(found, 0, precision="fp16", tolerance=1e-3).contrasts[0]["outputs_differ"] is True


def test_a_baseline_whose_outputs_are_wrong_is_told_beside_every_verdict_against_it():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[1].output_error = raw_comparisons.output_error(max_rel=0.5)
    found = evidence(record)
    assert found.contrasts[0]["outputs_differ"] is False
    assert any(tells(note, OUTPUTS_DIFFER, "`anchor`") for note in found.contrasts[0]["notes"])
    alone = found.trial_result(1)
    assert alone is not None
    assert any(note.startswith(OUTPUTS_DIFFER) and "0.5" in note for note in alone["notes"])


CUDA_THEN_CPU: Any = session_plan(
    session_from_dict({"providers": [{"name": "CUDAExecutionProvider"}], "allow_fallback": True})
)


def test_the_tolerance_is_that_of_the_providers_that_really_ran():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[0].output_error = raw_comparisons.output_error(max_rel=5e-3)
    fell_back = changed(evidence(record), 0, session=CUDA_THEN_CPU)
    assert fell_back.contrasts[0]["outputs_differ"] is True  # races.ran says that the CPU ran
    result = fell_back.trial_result(0)
    assert result is not None
    assert (result["guard"]["precision"], result["guard"]["tolerance"]["max_rel"]) == ("fp32", 1e-3)
    load = record.ran[0].load
    assert load is not None
    load["effective_providers"] = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    on_gpu = changed(evidence(record), 0, session=CUDA_THEN_CPU)
    assert on_gpu.contrasts[0]["outputs_differ"] is False
    part = {"nodes": 3, "ran_nodes": 3, "time_s": 0.001}
    nothing = {"CPUExecutionProvider": part, "CUDAExecutionProvider": {**part, "ran_nodes": 0}}
    assert changed(on_gpu, 0, placement=nothing).contrasts[0]["outputs_differ"] is True


@pytest.mark.parametrize(
    ("error", "random", "words"),
    [
        ({"not_finite": 64, "void": ["y"]}, (), "nothing could be compared of `y`"),
        ({"max_rel": 0.7}, ("RandomNormal",), "draws random numbers (RandomNormal)"),
    ],
)
def test_outputs_that_prove_nothing_are_not_judged_and_say_why(error: Any, random: Any, words: str):
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[0].output_error = raw_comparisons.output_error(**error)
    found = changed(evidence(record), 0, random=random)
    assert found.contrasts[0]["outputs_differ"] is None
    assert found.to_dict()["breaches"] == {}
    result = found.trial_result(0)
    assert result is not None
    assert result["guard"]["breach"] is None
    assert any(words in note for note in result["notes"])


def test_outputs_that_nobody_compared_are_not_known_and_say_why():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[0] = raw_comparisons.ran(
        output_error=None, not_compared="The outputs were not compared: it crashed."
    )
    record.ran[1] = raw_comparisons.ran(output_error=None)
    found = evidence(record)
    assert found.contrasts[0]["outputs_differ"] is None
    results = [found.trial_result(index) for index in (0, 1)]
    assert [one and one["guard"]["breach"] for one in results] == [None, None]
    first, second = ((one or {})["guard"]["why"] for one in results)
    assert "crashed" in first
    assert "crashed" not in second
    cancelled = evidence(
        raw_comparisons.record([0.001, 0.002], ran=record.ran, outcome="cancelled")
    ).trial_result(1)
    assert cancelled is not None
    assert "cancelled" in cancelled["guard"]["why"]


# --- the whole --------------------------------------------------------------------------------------------


def test_a_quiet_comparison_has_grade_ranks_and_an_aa_test():
    found = evidence(raw_comparisons.record([0.001, 0.002, 0.001])).to_dict()
    assert found["grade"] == "A"
    assert [(one["trial"], one["rank"]) for one in found["ranks"]] == [
        ("t-c0", 1),
        ("t-anchor", 1),
        ("t-c1", 3),
    ]
    assert found["ranks"][0]["ties"] == ["t-anchor"]
    (test,) = found["self_tests"]
    assert test["ratio_low"] < 1 < test["ratio_high"]
    assert (test["when"], test["rounds"], test["generations"]) == ("during", 64, 8)
    assert len(test["log_ratios"]) == 64
    assert test["run_s"] == pytest.approx(0.001, rel=0.2)
    assert 0 < test["sigma_between"] < 0.02
    assert (found["rounds"], found["groups"]) == (64, [["t-c0", "t-c1", "t-anchor"]])
    assert sorted(found["orders"][0]) == ["t-anchor", "t-anchor", "t-c0", "t-c1"]
    assert (found["busy"], found["notes"]) == (None, [])


def test_every_generation_is_told_with_the_order_of_its_starts_and_their_layouts():
    record = raw_comparisons.record([0.001, 0.002], generations=3, rounds=5)
    found = evidence(record).to_dict()["generations"]
    assert [(one["generation"], one["rounds"], one["start_s"]) for one in found] == [
        (0, 5, 0.5),
        (1, 5, 0.5),
        (2, 5, 0.5),
    ]
    for told, made in zip(found, record.generations, strict=True):
        assert set(told["order"]) == set(told["layouts"]) == {"t-c0", "t-anchor", "t-anchor/1"}
        assert told["layouts"]["t-anchor/1"] == made.layouts[1, 1]


def test_the_unit_is_the_generation_and_not_the_round():
    """Hundreds of rounds of two pairs of processes know little of the next pair."""
    deep = raw_comparisons.record([0.001, 0.001], generations=2, rounds=64, between=0.01)
    wide = raw_comparisons.record([0.001, 0.001], generations=16, rounds=8, between=0.01)
    few, many = evidence(deep).contrasts[0], evidence(wide).contrasts[0]
    assert few["rounds"] == many["rounds"]
    assert few["half_width"] > 3 * many["half_width"]
    assert few["between_half_width"] > 3 * few["within_half_width"]


def test_the_ort_default_is_both_of_its_processes():
    """Its copies are a fifth apart: the candidate is put against their middle, the A/A test against each."""
    record = raw_comparisons.record([0.001, 0.001], control=1.2, noise=0.001, between=0.0)
    found = evidence(record)
    assert found.contrasts[0]["ratio"] == pytest.approx(math.sqrt(1.2), rel=0.002)
    assert found.aa is not None
    assert found.aa.ratio == pytest.approx(1 / 1.2, rel=0.002)
    own, other = found.trial_result(0), found.trial_result(1)
    assert own is not None
    assert other is not None
    assert (own["runs"], other["runs"]) == (640, 1280)
    assert [one["copy"] for one in other["blocks"]].count(1) == 64
    assert {one["copy"] for one in own["blocks"]} == {0}


def test_the_spread_between_processes_that_the_comparison_was_told_counts():
    record = raw_comparisons.record([0.001, 0.00103], generations=3, noise=0.002)
    assert evidence(record).contrasts[0]["between_from"] == "assumed"
    record.prior = Prior(sigma_between=0.3, df=4.0, source="history")
    (found,) = evidence(record).contrasts
    assert (found["between_from"], found["verdict"]) == ("history", "UNDECIDED")
    assert found["sigma_between"] > 0.1


# --- validity of a verdict --------------------------------------------------------------------------------


def test_a_rejected_verdict_is_undecided_and_ranks_nobody():
    found = evidence(raw_comparisons.record([0.001, 0.002], control=1.4))
    whole = found.to_dict()
    assert (whole["grade"], whole["ranks"]) == ("F", [])
    assert " 0.7" in whole["grade_reason"]
    (contrast,) = found.contrasts
    assert (contrast["verdict"], contrast["holds"], contrast["grade"]) == ("UNDECIDED", False, "F")
    assert contrast["ratio_low"] > 1  # its numbers are kept
    assert contrast["holds_reason"] in contrast["notes"]
    result = found.trial_result(0)
    assert result is not None
    assert (result["grade"], result["contrasts"]) == ("F", [contrast])
    assert result["remedy"] == whole["remedy"] != ""
    assert contrast["holds_reason"] in result["notes"]


def test_an_effect_several_times_the_fault_stands_and_a_small_one_beside_it_does_not():
    found = evidence(raw_comparisons.record([0.001, 0.0095, 0.01], control=1.1))
    large, small = found.contrasts
    assert (large["verdict"], large["holds"], large["grade"]) == ("FASTER", True, "A")
    assert (small["verdict"], small["holds"], small["grade"]) == ("UNDECIDED", False, "F")
    assert found.grade.grade != "F"  # some verdict is valid
    assert found.to_dict()["ranks"] != []


def test_two_copies_that_differ_do_not_touch_what_is_undecided_anyway():
    found = evidence(raw_comparisons.record([math.sqrt(2), 1.0], generations=6, noise=0.2, control=2.0))
    (contrast,) = found.contrasts
    assert (contrast["verdict"], contrast["holds"]) == ("UNDECIDED", True)


def test_a_comparison_of_one_alone_is_rejected_where_its_copies_differ():
    assert evidence(raw_comparisons.record([0.001])).grade.grade == "A"
    assert evidence(raw_comparisons.record([0.001], control=1.2)).grade.grade == "F"


def test_without_an_aa_control_nothing_is_known_of_the_measurement_itself():
    record = raw_comparisons.record([0.001, 0.002])
    record.blocks = [one for one in record.blocks if not one.copy]
    found = evidence(record)
    assert found.aa is None
    assert found.to_dict()["self_tests"] == []
    assert found.grade.reason != evidence(raw_comparisons.record([0.001, 0.002])).grade.reason
    assert (found.contrasts[0]["verdict"], found.contrasts[0]["holds"]) == ("FASTER", True)


def test_the_grade_is_that_of_the_widest_verdict_against_the_baseline():
    record = raw_comparisons.record([0.001, 0.002, 0.004], noise=0.002)
    wild = [
        replace(one, latencies_s=[2.0 ** (one.round % 3 - 1) * s for s in one.latencies_s])
        if one.contestant == 1
        else one
        for one in record.blocks
    ]
    found = evidence(raw_comparisons.record([0.001, 0.002, 0.004], noise=0.002, blocks=wild))
    assert [one["grade"] for one in found.contrasts] == ["A", "D"]
    assert found.grade.grade == "D"
    assert "±" in found.grade.reason
    assert evidence(record).grade.grade == "A"


def test_an_aa_control_that_failed_half_way_leaves_the_rounds_that_it_had():
    record = raw_comparisons.record([0.001, 0.002])
    record.blocks = [one for one in record.blocks if not (one.copy and one.generation >= 4)]
    found = evidence(record)
    assert found.aa is not None
    assert (found.aa.generations, found.aa.rounds) == (4, 32)
    assert found.contrasts[0]["generations"] == 8


# --- a busy machine ---------------------------------------------------------------------------------------


BESIDE = {"busy_s": 0.04, "cpu_s": 0.02}  # of 20 ms on two CPUs, another program has one of them


def test_a_busy_machine_is_told_wherever_its_numbers_stand_and_changes_no_verdict():
    def disturbed(contestant: int, number: int) -> dict[str, Any]:
        return BESIDE if number >= 16 else {}

    quiet = evidence(raw_comparisons.record([0.001, 0.0015]))
    busy = evidence(raw_comparisons.record([0.001, 0.0015], disturb=disturbed))
    result = busy.trial_result(0)
    assert result is not None
    told = busy.to_dict()["busy"]
    assert numbers(told["words"]) == [1.0]
    assert told["reasons"] == ["foreign_load"]
    assert result["busy"] == told
    for name in ("verdict", "ratio", "ratio_low", "ratio_high", "holds", "grade"):
        assert busy.contrasts[0][name] == quiet.contrasts[0][name]
    assert busy.to_dict()["grade"] == quiet.to_dict()["grade"] == "A"
    assert busy.to_dict()["ranks"] == quiet.to_dict()["ranks"] != []
    assert "programs" in busy.grade.reason


def test_background_load_in_a_fifth_of_the_blocks_does_not_make_it_busy():
    record = raw_comparisons.record([0.001, 0.0015], disturb=lambda c, n: BESIDE if n < 8 else {})
    assert evidence(record).busy is None


def test_what_departed_from_the_protocol_is_said_everywhere():
    one: Block = raw_comparisons.record([0.001], rounds=1).blocks[0]
    record = raw_comparisons.record(
        [0.001, 0.002],
        frozen=False,
        groups=[[0, 1], [1]],
        discarded=[Discarded(reason="the machine was suspended for 12.0 s", blocks=[one])],
        outcome="budget",
        notes=["There was no self-test."],
    )
    found = evidence(record)
    result = found.trial_result(0)
    assert result is not None
    for notes in (found.to_dict()["notes"], result["notes"]):
        text = " ".join(notes)
        for words in ("parked_workers_live", "2 groups", "1 round discarded", "suspended for 12.0 s"):
            assert words in text
    assert OUTCOMES["budget"] in found.notes
    assert any("self-test" in note for note in found.notes)
    (discarded,) = found.to_dict()["discarded"]
    assert tells(discarded["reason"], "12.0 s")
    assert [block["latencies_s"] for block in discarded["blocks"]] == [one.latencies_s]  # no sample is lost


def test_every_outcome_has_its_words():
    from typing import get_args

    from core.evidence.record import Outcome

    assert set(OUTCOMES) == set(get_args(Outcome))


# --- one configuration ------------------------------------------------------------------------------------


def test_result_of_a_trial_keeps_every_sample_and_says_what_it_cost():
    record = raw_comparisons.record([0.001, 0.002], rows=[4, 4])
    result = evidence(record).trial_result(0)
    assert result is not None
    own = [block for block in record.blocks if block.contestant == 0]
    assert result["latencies_s"] == [one for block in own for one in block.latencies_s]
    assert result["runs"] == len(result["latencies_s"]) == sum(one["runs"] for one in result["blocks"])
    assert result["throughput_per_s"] == pytest.approx(4 / result["latency"]["mean_s"])
    assert result["latency"]["p50_s"] is not None
    assert result["warmup_latencies_s"] == [0.009, 0.002, 0.001]
    assert (result["first_run_s"], result["steady"], result["affinity"]) == (0.009, True, [0, 1])
    assert (result["cpu_s_per_inference"], result["idle_cpu_s"]) == (0.002, 0.05)
    assert (result["load_peak_rss_bytes"], result["peak_rss_bytes"]) == (8 << 20, 8 << 20)
    assert result["new_shapes"] == [{"batch_size": 8, "first_run_s": 0.004, "next_run_s": 0.002}]
    assert result["seed"] == 7
    assert (result["comparison"], result["role"]) == ("c1", "candidate")
    assert len(result["contrasts"]) == 1
    first = result["blocks"][0]
    assert set(first) == {
        *("generation", "copy", "round", "position", "at_s", "runs", "refill_s"),
        *("median_s", "counters", "flags"),
    }
    assert result["interference"]["blocks"] == 64
    assert result["generations"] == 8
    assert [one["generation"] for one in result["blocks"]] == [n // 8 for n in range(64)]


def test_what_is_not_known_of_a_configuration_is_null():
    record = raw_comparisons.record([0.001, 0.002])
    record.ran[0] = raw_comparisons.ran(warm=None, cost=None, footprint=None, shapes=[], output_error=None)
    result = evidence(record).trial_result(0)
    assert result is not None
    for name in ("steady", "cpu_s_per_inference", "idle_cpu_s", "output_error", "run_peak_rss_bytes"):
        assert result[name] is None
    assert result["peak_rss_bytes"] == 8 << 20
    assert result["contrasts"][0]["outputs_differ"] is None


def test_a_configuration_without_rounds_has_no_result():
    record = raw_comparisons.record([0.001, 0.002])
    record.blocks = [block for block in record.blocks if block.contestant == 1]
    found = evidence(record)
    assert found.trial_result(0) is None
    assert found.contrasts == []


def test_doubts_about_one_configuration_are_notes():
    record = raw_comparisons.record([0.00001, 0.002])
    warm = {"latencies_ns": [1] * 299, "steady": False, "median_ns": 1}
    record.ran[0] = raw_comparisons.ran(
        warm=warm, load=raw_comparisons.load_reply(clock_ns=400.0, notes=["said by the worker"])
    )
    result = evidence(record).trial_result(0)
    assert result is not None
    text = " ".join(result["notes"])
    assert "worker" in text
    assert "The latency was not yet steady after 300 warm-up runs." in text
    assert "0.00040 ms" in text


def test_cpu_time_has_the_spread_of_its_blocks_and_the_run_for_the_caches_counts():
    # 20 ms of CPU time a block, of ten runs and one before them; without it, of ten
    record = raw_comparisons.record(
        [0.001, 0.002], disturb=lambda c, n: {"cpu_s": 0.02 + 0.001 * (n // 8 % 2)}
    )
    result = evidence(record).trial_result(0)
    assert result is not None
    low, high = result["cpu_s_per_inference_low"], result["cpu_s_per_inference_high"]
    assert low < 0.0205 / 11 < high
    assert high - low < 0.0002
    long_runs = [replace(one, refill_s=None) for one in record.blocks]
    record.blocks = long_runs
    result = evidence(record).trial_result(0)
    assert result is not None
    assert result["cpu_s_per_inference_low"] < 0.0205 / 10 < result["cpu_s_per_inference_high"]


def test_the_interval_of_a_time_holds_for_new_processes():
    """What a process keeps for its life is no smaller for having been seen in hundreds of runs."""
    calm = evidence(raw_comparisons.record([0.001, 0.001], between=0.0, shared=0.0)).trial_result(0)
    uneven = evidence(raw_comparisons.record([0.001, 0.001], between=0.05, shared=0.0)).trial_result(0)
    assert calm is not None
    assert uneven is not None

    def width(of: dict[str, Any]) -> float:
        return float(of["latency"]["mean_s_high"] - of["latency"]["mean_s_low"])

    assert width(uneven) > 5 * width(calm)


def test_a_self_test_of_its_own_has_a_grade_and_says_how_long_a_generation_takes():
    quiet = self_test_result(evidence(raw_comparisons.record([0.001], generations=9, wall_s=18.0)))
    assert (quiet["when"], quiet["grade"], quiet["fingerprint"]) == ("alone", "A", "")
    assert (quiet["rounds"], quiet["generations"]) == (72, 9)
    assert (quiet["seconds_per_generation"], quiet["rounds_per_generation"]) == (2.0, 8.0)
    assert quiet["busy"] is None
    assert self_test_result(evidence(raw_comparisons.record([0.001], control=1.2)))["grade"] == "F"


def test_a_self_test_without_a_second_process_is_an_error():
    record = raw_comparisons.record([0.001], notes=["The A/A test ended early: it crashed."])
    record.blocks = [one for one in record.blocks if not one.copy]
    with pytest.raises(WorkerError, match="crashed"):
        self_test_result(evidence(record))


# --- different models -------------------------------------------------------------------------------------


def of_two_models(error: Any, **changes: Any) -> Evidence:
    found = evidence(raw_comparisons.record([0.001, 0.001]), **changes)
    one, other = found.configurations
    configurations = [
        replace(one, origin="a", origin_name="small", model={"name": "small"}),
        replace(other, origin="b", origin_name="large"),
    ]
    verdict = check_outputs(error, "fp32", unknown="it could not be fed.")
    return replace(found, configurations=configurations, apart={("a", "b"): verdict})


def test_equal_times_of_models_that_compute_something_else_say_so():
    found = of_two_models(raw_comparisons.output_error(max_rel=2.27, top1_agreement=0.0))
    (contrast,) = found.contrasts
    assert contrast["outputs_differ"] is True
    assert tells(contrast["something_else"], "`small`", DIFFERENT_OUTPUTS, "`large`")
    assert tells(contrast["something_else"], "2.3 ")
    assert contrast["something_else"] in contrast["notes"]
    assert in_words(contrast).endswith(f"; {DIFFERENT_OUTPUTS}")
    result = found.trial_result(0)
    assert result is not None
    assert result["guard"]["breach"] is False  # of itself it is right
    assert result["model"] == {"name": "small"}


def test_models_that_compute_the_same_are_named_and_not_marked():
    (contrast,) = of_two_models(raw_comparisons.output_error()).contrasts
    assert (contrast["outputs_differ"], contrast["something_else"]) == (False, "")
    assert any(tells(note, "different", "agree") for note in contrast["notes"])
    assert DIFFERENT_OUTPUTS not in in_words(contrast)


def test_models_that_could_not_be_held_against_each_other_are_not_called_the_same():
    (contrast,) = of_two_models(None).contrasts
    assert contrast["outputs_differ"] is None
    assert tells(contrast["something_else"], "`small`", "`large`", "fed")


def test_the_default_says_when_it_is_bound_and_the_baseline_is_not() -> None:
    def one(role: Role, *, bound: bool) -> Configuration:
        workload = {"use_io_binding": bound}
        session = {"intra_op_num_threads": 1 if role == "candidate" else 0}
        asked = spec_from_dict({"model": {"path": "m.onnx"}, "session": session, "workload": workload})
        return Configuration(spec=asked, label=role, role=role)

    plain = one("baseline", bound=False)
    assert with_references([one("candidate", bound=True), plain])[-1].label == "ORT default, io_binding on"
    assert not any(
        "binding" in each.label for each in with_references([one("candidate", bound=False), plain])
    )
