"""How much time a search needs, and that one which cannot confirm anything neither starts nor goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.evidence.result_types import SearchCosts
from core.run.launches.budget import P50_RUNS
from core.run.prediction import ComparisonHistory, MeasuredRun
from core.run.search.plan import SCREENING_SHARE, next_step
from core.run.search.strategies import designed
from core.run.search.time_needed import (
    CONFIRMING,
    can_confirm,
    confirmation_s,
    costs_from_past,
    costs_from_search,
    enough_s,
    evaluated_words,
    fit_words,
    open_words,
    screenable,
    screening_s,
    too_short,
)
from core.spec import ort_default
from tests.builders import spec
from tests.searching import Machine, Run, SimulatedClock, small_space

SLOW = SearchCosts(run_s=0.776, start_s=3.0, block_s=0.776, runs=1, screen_s=4.6, fixed_s=1.0, after_s=2.0)
QUICK = SearchCosts(run_s=1e-4, start_s=0.2, block_s=0.022, runs=10, screen_s=0.27, fixed_s=1.0, after_s=0.0)


def past(run_s: float) -> ComparisonHistory:
    return ComparisonHistory(
        seen=(MeasuredRun(spec=ort_default(spec()), run_s=run_s),),
        start_s=1.0,
        after_s=0.5,
        beside_s=0.5,
        sigma=0.01,
        sigma_between=0.01,
        generations={},
    )


def test_a_confirmation_takes_the_inferences_of_a_p50_of_three_processes() -> None:
    assert confirmation_s(SLOW) == pytest.approx(1.0 + CONFIRMING * (2 * 3.0 + P50_RUNS * 0.776))
    assert confirmation_s(QUICK) == pytest.approx(1.0 + CONFIRMING * 2 * (0.2 + 0.022))


def test_a_time_without_room_for_a_confirmation_is_refused_with_one_that_is_enough() -> None:
    error = too_short(SLOW, 30, share=SCREENING_SHARE)
    assert error is not None
    enough = enough_s(SLOW, share=SCREENING_SHARE)
    assert "30 s" in error.message
    assert "776 ms" in error.message
    assert f"{enough} s" in error.hint
    assert too_short(SLOW, enough, share=SCREENING_SHARE) is None
    assert too_short(QUICK, 5, share=SCREENING_SHARE) is None


@pytest.mark.parametrize("costs", [SLOW, QUICK, SearchCosts(**{**SLOW, "start_s": 90.0, "screen_s": 95.0})])
@pytest.mark.parametrize("count", [2, 23, 200])
def test_what_is_enough_holds_all_and_a_confirmation_of_four_launches(costs: SearchCosts, count: int) -> None:
    enough = enough_s(costs, count, share=SCREENING_SHARE)
    assert screenable(costs, enough, share=SCREENING_SHARE) >= count
    assert screening_s(costs, count) <= SCREENING_SHARE * enough
    assert screening_s(costs, count) + confirmation_s(costs, 4) <= enough
    assert "all" in fit_words(costs, enough, count, share=SCREENING_SHARE)


def test_of_many_configurations_it_is_said_how_many_fit_and_what_would_be_enough() -> None:
    said = fit_words(SLOW, 100, 23, share=SCREENING_SHARE)
    assert f"{screenable(SLOW, 100, share=SCREENING_SHARE)} of 23" in said
    assert f"{enough_s(SLOW, 23, share=SCREENING_SHARE)} s" in said


def test_after_screening_the_reason_names_what_was_left() -> None:
    said = open_words(SLOW, 12.0, 30)
    assert "776 ms" in said
    assert "12 s of 30 s" in said


@pytest.mark.parametrize(("run_s", "runs"), [(0.776, 1), (0.02, 5), (1e-4, 10)])
def test_earlier_measurements_tell_what_a_search_costs(run_s: float, runs: int) -> None:
    costs = costs_from_past(past(run_s), ort_default(spec()), fixed_s=1.0)
    assert (costs["run_s"], costs["runs"]) == (run_s, runs)
    assert costs["screen_s"] > costs["start_s"] + costs["block_s"]
    batch = ort_default(spec(workload={"batch_size": 4}))
    assert costs_from_past(past(run_s), batch, fixed_s=1.0)["run_s"] == pytest.approx(4 * run_s)


def test_a_search_keeps_what_it_cost_for_the_next_one() -> None:
    assert costs_from_search({"costs": SLOW}) == SLOW
    assert costs_from_search({"costs": {"of": "another version"}}) is None
    assert costs_from_search(None) is None


def test_a_search_ends_as_soon_as_its_costs_leave_no_time_for_a_confirmation() -> None:
    space = small_space(("enable_mem_pattern", (True, False)), ("intra_op_num_threads", (0, 1, 2, 4)))
    run = Run(machine=Machine(space=space), strategy=designed, budget_s=30).go()
    known = replace(run.known, confirmed={}, rivals=[], settled=False, clock=SimulatedClock(15.0), each_s=0.5)
    assert next_step(known, designed) is not None
    assert next_step(replace(known, costs=QUICK), designed) is not None
    assert not can_confirm(SLOW, known.left_s)
    assert next_step(replace(known, costs=SLOW), designed) is None
    measured = replace(known, costs=SLOW, confirmed=dict(run.confirmed), rivals=list(run.tried))
    assert next_step(measured, designed) is not None  # what was confirmed may be confirmed again


def test_how_many_were_evaluated_is_told_with_the_time_for_all() -> None:
    said = evaluated_words(SLOW, 8, 23, share=SCREENING_SHARE)
    assert "8 of 23" in said
    assert f"{enough_s(SLOW, 23, share=SCREENING_SHARE):,} s" in said
