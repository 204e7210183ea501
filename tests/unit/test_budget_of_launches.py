"""How a comparison divides its budget, against one that consists of costs only; and its refusals."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.evidence.record import RawComparison
from core.evidence.stopping import P99_ROUNDS
from core.evidence.verdict import MIN_LAUNCHES, words
from core.run.launches.budget import (
    GRACE_S,
    MIN_ROUNDS_OF_TWO,
    MOST_ROUNDS,
    P50_RUNS,
    WANTED_LAUNCHES,
    Costs,
    check_budget,
    check_starts,
    interval_budget_s,
    launches_left,
    min_rounds_of_next_launch,
    rounds_for_p50,
    rounds_of_launch,
)
from core.spec.effort import EFFORTS
from core.wire.errors import BudgetError
from tests import raw_comparisons
from tests.simulated_clock import Model, compare

LOOKS = 72  # as many launches as a quick comparison may make
SHORT = Costs(start_s=0.5, round_s=0.08, after_s=1.0, runs=10)


# --- the parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "rounds"), [(0, 6), (1, 6), (2, 3), (3, 2), (5, 2), (6, 1), (10, 1), (1000, 1)]
)
def test_a_p50_takes_six_runs_of_everybody(runs: int, rounds: int) -> None:
    assert P50_RUNS == 6  # 1 - 0.5**6 is the first above 97.5 %
    assert rounds_for_p50(replace(SHORT, runs=runs)) == rounds


@pytest.mark.parametrize(
    ("start_s", "round_s", "ratio", "rounds"),
    [
        (0.4, 0.1, None, 6),  # sqrt(4 * 10)
        (0.4, 0.1, 1.0, 2),
        (0.4, 0.1, 100.0, 20),
        (0.1, 0.1, 4.0, 2),
        (0.001, 0.1, 1.0, 1),  # starts that cost nothing: as many processes as there are rounds
        (0.4, 0.1, 1e9, MOST_ROUNDS),
        (0.4, 0.1, 0.0, 1),
    ],
)
def test_rounds_are_those_of_kalibera_and_jones_where_the_budget_is_large(
    start_s: float, round_s: float, ratio: float | None, rounds: int
) -> None:
    costs = Costs(start_s=start_s, round_s=round_s, after_s=0.0, runs=10)
    assert rounds_of_launch(costs, 1000.0, made=0, variance_ratio=ratio) == rounds


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.1, 1000), st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_no_other_number_of_rounds_would_know_more_for_the_same_time(
    start_s: float, round_s: float, ratio: float, step: int
) -> None:
    """The variance of the mean, times its cost: of a launch (b + w / r)(start + r round)."""
    costs = Costs(start_s=start_s, round_s=round_s, after_s=0.0, runs=10)
    best = rounds_of_launch(costs, 1e6, made=0, variance_ratio=ratio)
    other = min(MOST_ROUNDS, max(1, best + step))

    def price(rounds: int) -> float:
        return (1 + ratio / rounds) * (start_s + rounds * round_s)

    assert price(best) <= price(other) * 1.07  # whole rounds: the optimum lies between two of them


@pytest.mark.parametrize(
    ("left_s", "made", "rounds"),
    [
        (1000.0, 0, 25),  # sqrt(4 / 0.064 * 10)
        (16.0, 0, 15),  # (16 - 3 * 4) / 0.064 / 4: four launches
        (12.1, 0, 21),  # (12.1 - 2 * 4) / 0.064 / 3: three, for of four each would have no round
        (7.0, 0, 23),  # (7 - 4) / 0.064 / 2: two
        (4.0, 0, 25),  # one
        (1.0, 0, 15),
        (0.01, 0, 1),
        (9.0, 50, 25),
        (6.0, 50, 15),  # one more behind this one: (6 - 4) / 0.064 / 2
    ],
)
def test_four_generations_are_wanted_and_rounds_give_way(left_s: float, made: int, rounds: int) -> None:
    costs = Costs(start_s=4.0, round_s=0.064, after_s=0.0, runs=10)
    before = 3 if made else 0  # generations
    found = rounds_of_launch(costs, left_s, made=made, variance_ratio=None, launches=before)
    assert found == rounds


@pytest.mark.parametrize("left_s", [8.2, 8.3, 12.3])
def test_generations_are_not_so_many_that_each_has_a_single_round(left_s: float) -> None:
    costs = Costs(start_s=4.0, round_s=0.064, after_s=0.0, runs=10)
    assert rounds_of_launch(costs, left_s, made=0, variance_ratio=None) >= 3


@pytest.mark.parametrize(("left_s", "launches"), [(4.2, 1), (4.26, 2), (4.5, 2)])
def test_two_launches_of_few_rounds_come_before_one_of_many(left_s: float, launches: int) -> None:
    """Of a single launch there is no interval; behind it, launches have the rounds that they always had."""
    costs = Costs(start_s=4.0, round_s=0.064, after_s=0.0, runs=10)
    rounds = rounds_of_launch(costs, left_s, made=0, variance_ratio=None)
    fitting = (left_s - 4.0) / 0.064 / 2
    assert rounds == (math.floor(fitting) if launches == 2 else 25)
    assert launches == 1 or rounds >= MIN_ROUNDS_OF_TWO
    made = rounds_of_launch(costs, left_s, made=8, variance_ratio=None, launches=1)
    assert made == (25 if left_s < 4.0 + 8 * 0.064 else math.floor(fitting))


@given(st.floats(0.01, 20), st.floats(0.01, 5), st.floats(0, 10), st.integers(1, 12))
def test_the_budget_of_an_interval_holds_two_launches(
    start_s: float, round_s: float, after_s: float, runs: int
) -> None:
    costs = Costs(start_s=start_s, round_s=round_s, after_s=after_s, runs=runs)
    left_s = interval_budget_s(costs, start_s) - start_s - after_s
    first = rounds_of_launch(costs, left_s, made=0, variance_ratio=None)
    assert launches_left(costs, left_s - first * round_s, first, least=MIN_ROUNDS_OF_TWO) >= 1


@pytest.mark.parametrize(("left_s", "rounds"), [(12.0, 6), (7.0, 6), (1.0, 6), (40.0, 6)])
def test_the_rounds_of_a_p50_come_before_more_generations(left_s: float, rounds: int) -> None:
    """One run a round, of a second: six rounds are due, however long that takes, and starts take ten."""
    costs = Costs(start_s=10.0, round_s=1.0, after_s=0.0, runs=1)
    first = rounds_of_launch(costs, left_s, made=0, variance_ratio=None)
    assert first >= (rounds if left_s < 17 else 2)
    assert rounds_of_launch(costs, 0.5, made=4, variance_ratio=None) == 2
    assert rounds_of_launch(costs, 0.5, made=6, variance_ratio=None) == 1


@given(
    st.floats(1e-4, 100),
    st.floats(1e-4, 100),
    st.floats(0, 1000),
    st.integers(1, 100),
    st.integers(0, 500),
    st.none() | st.floats(0, 1e6),
)
def test_there_is_always_a_round_and_never_an_absurd_number(
    start_s: float, round_s: float, left_s: float, runs: int, made: int, ratio: float | None
) -> None:
    costs = Costs(start_s=start_s, round_s=round_s, after_s=0.0, runs=runs)
    rounds = rounds_of_launch(costs, left_s, made=made, variance_ratio=ratio)
    assert 1 <= rounds <= MOST_ROUNDS
    if made >= rounds_for_p50(costs) and rounds > 1:
        assert rounds * round_s <= left_s + 1e-9


@pytest.mark.parametrize(
    ("left_s", "generations"), [(-1.0, 0), (0.89, 0), (0.91, 1), (1.29, 1), (1.31, 1), (2.61, 2), (13.1, 10)]
)
def test_generations_left_and_the_last_may_be_half_as_long(left_s: float, generations: int) -> None:
    costs = replace(SHORT, start_s=0.5, round_s=0.1)
    assert launches_left(costs, left_s, 8) == generations


def test_an_odd_number_of_rounds_is_halved_upwards() -> None:
    costs = replace(SHORT, start_s=0.5, round_s=1.0)
    assert [launches_left(costs, left_s, 3) for left_s in (2.49, 2.51)] == [0, 1]
    assert launches_left(costs, 1.51, 1) == 1


# --- budgets that are too short -------------------------------------------------------------------------


def test_a_budget_that_cannot_give_a_p50_is_refused_with_what_it_would_take() -> None:
    slow = Costs(start_s=12.0, round_s=5.0, after_s=4.0, runs=1)
    with pytest.raises(BudgetError) as caught:
        check_budget(slow, 30.0, 12.0)
    assert caught.value.message == (
        "A budget of 30 s is too short for a p50 of this model: the start took 12.0 s, and 6 runs of each "
        "with the checks need about 34 s."
    )
    assert f"budget of {interval_budget_s(slow, 12.0)} s" in caught.value.hint
    check_budget(slow, 51.0, 12.0)


def test_screening_is_given_up_as_soon_as_a_process_shows_that_the_others_do_not_fit() -> None:
    check_starts(1.0, 3, spent_s=1.0, budget_s=10.0)
    with pytest.raises(BudgetError) as caught:
        check_starts(11.0, 3, spent_s=11.0, budget_s=10.0)
    assert "11.0 s" in caught.value.message


@given(st.floats(0.1, 1000), st.floats(0.001, 100), st.floats(0, 100), st.integers(1, 20), st.floats(0, 500))
def test_what_the_hint_asks_for_is_enough(
    budget_s: float, round_s: float, after_s: float, runs: int, spent_s: float
) -> None:
    costs = Costs(start_s=1.0, round_s=round_s, after_s=after_s, runs=runs)
    try:
        check_budget(costs, budget_s, spent_s)
    except BudgetError as error:
        (asked,) = re.findall(r"budget of (\d+) s", error.hint)
        assert int(asked) > budget_s
        check_budget(costs, float(asked), spent_s)
    else:
        assert spent_s + rounds_for_p50(costs) * round_s + after_s <= 1.1 * budget_s + GRACE_S


# --- a comparison that consists of costs only -------------------------------------------------------------


@dataclass(kw_only=True)
class Told:
    """The end of a comparison."""

    seconds: float
    rounds: int
    generations: int


def compared(costs: Costs, budget_s: float, ratio: float | None = None) -> Told:
    """Compare by the plan of the budget, until it is spent; every start and every round takes what it takes.

    Raises:
        BudgetError: as of `check_budget`.
    """
    now, made, generations = 0.0, 0, 0
    while True:
        now += costs.start_s
        if not made:
            check_budget(costs, budget_s, now)
        left_s = budget_s - now - costs.after_s
        planned = rounds_of_launch(costs, left_s, made=made, variance_ratio=ratio, launches=generations)
        done = 0
        while done < planned or (
            made < rounds_for_p50(costs) and not launches_left(costs, budget_s - now - costs.after_s, 1)
        ):
            enough = made >= rounds_for_p50(costs)
            if done and enough and now + costs.round_s + costs.after_s > budget_s:
                break
            now, made, done = now + costs.round_s, made + 1, done + 1
        generations += 1
        least = min_rounds_of_next_launch(costs, made, generations)
        left = launches_left(costs, budget_s - now - costs.after_s, done, least=least)
        if generations >= LOOKS or left <= 0:
            return Told(seconds=now + costs.after_s, rounds=made, generations=generations)


COSTS = st.builds(
    Costs,
    start_s=st.floats(0.01, 60),
    round_s=st.floats(0.005, 30),
    after_s=st.floats(0, 40),
    runs=st.integers(1, 10),
)


# two rounds of three that a p50 takes, and no room for two more rounds in another process
SHORT = Costs(start_s=5.0, round_s=30.0, after_s=16.0, runs=2)


@settings(max_examples=400)
@example(SHORT, 120.0, None)
@given(COSTS, st.sampled_from([5.0, 30.0, 120.0, 600.0]), st.none() | st.floats(0.01, 1e4))
def test_a_comparison_keeps_its_budget_or_is_refused(
    costs: Costs, budget_s: float, ratio: float | None
) -> None:
    try:
        told = compared(costs, budget_s, ratio)
    except BudgetError:
        needed_s = costs.start_s + rounds_for_p50(costs) * costs.round_s + costs.after_s
        assert needed_s > 1.1 * budget_s + GRACE_S
        return
    assert told.rounds * costs.runs >= P50_RUNS
    assert told.seconds <= 1.1 * budget_s + GRACE_S


@settings(max_examples=400)
@given(COSTS, st.sampled_from([30.0, 120.0]))
def test_a_comparison_uses_its_budget_up_unless_it_has_made_all_launches(
    costs: Costs, budget_s: float
) -> None:
    """The rest of the budget is too short for half a launch, so that no time is wasted."""
    try:
        told = compared(costs, budget_s)
    except BudgetError:
        return
    if told.generations < LOOKS:
        each = math.ceil(told.rounds / told.generations)
        assert budget_s - told.seconds < costs.start_s + each * costs.round_s + costs.round_s


@pytest.mark.parametrize("budget_s", [30.0, 120.0])
def test_a_model_of_milliseconds_gets_many_generations(budget_s: float) -> None:
    """Two contestants and a twin on two cores: 0.25 s a start, blocks of 20 ms."""
    told = compared(Costs(start_s=0.75, round_s=0.069, after_s=2.0, runs=10), budget_s)
    assert told.generations >= 14
    assert told.rounds >= 40


def test_starts_of_seconds_still_leave_four_generations() -> None:
    told = compared(Costs(start_s=5.0, round_s=0.3, after_s=2.0, runs=1), 30.0)
    assert told.generations >= WANTED_LAUNCHES
    told = compared(Costs(start_s=9.0, round_s=0.5, after_s=2.0, runs=1), 30.0)
    assert 2 <= told.generations < WANTED_LAUNCHES  # there is no room for more
    assert told.rounds >= 6


def test_a_model_of_seconds_has_its_p50_of_one_generation() -> None:
    told = compared(Costs(start_s=9.0, round_s=3.0, after_s=2.0, runs=1), 30.0)
    assert (told.generations, told.rounds) == (1, 6)


# --- the comparison itself, on a simulated clock ----------------------------------------------------------


def few_runs(record: RawComparison) -> int:
    """Of the configuration that has fewest."""
    runs = [0] * len(record.ran)
    for block in record.blocks:
        runs[block.contestant] += len(block.latencies_s)
    return min(runs)


FIELDS = {
    "forked": [Model()] * 2,
    "eight": [Model(run_s=0.001 * 1.3**i, load_s=0.5) for i in range(8)],
    "equals": [Model(run_s=0.005, noise=0.3, load_s=0.4)] * 4,
    "dear starts": [Model(load_s=3.0, warm_s=1.0)] * 3,
    "slow to warm up": [Model(run_s=0.3, warm_s=30.0)] * 2,
    "slow": [Model(run_s=0.5, load_s=2.0, warm_s=5.0)] * 2,
    "very slow": [Model(run_s=4.0, load_s=8.0, warm_s=10.0)] * 2,
    "one slow": [Model(run_s=1.0, load_s=1.0, warm_s=4.0), Model()],
}


@pytest.mark.parametrize("budget_s", [4.0, 30.0, 120.0])
@pytest.mark.parametrize("models", FIELDS.values(), ids=FIELDS)
def test_the_comparison_itself_keeps_its_budget_or_is_refused(models: list[Model], budget_s: float) -> None:
    try:
        record = compare(models, budget_s)
    except BudgetError as error:
        (asked,) = map(float, re.findall(r"budget of (\d+) s", error.hint))
        assert asked > budget_s
        record, budget_s = compare(models, asked), asked  # that is enough, for an interval, too
        assert len(record.generations) >= MIN_LAUNCHES
    assert record.wall_s <= 1.1 * budget_s + GRACE_S
    assert few_runs(record) >= P50_RUNS
    assert all(ran.cost is not None and ran.footprint is not None for ran in record.ran)


@pytest.mark.parametrize("models", FIELDS.values(), ids=FIELDS)
def test_whatever_budget_is_given_an_interval_comes_with_it_or_its_budget_is_told(
    models: list[Model],
) -> None:
    """The shortest budgets that are not refused: of one launch, what it says would be enough is enough."""
    record, budget_s = least_comparison(models)
    if len(record.generations) < MIN_LAUNCHES:
        (told, *_) = raw_comparisons.evidence(record).contrasts
        enough_s = told["interval_budget_s"]
        assert enough_s > budget_s
        assert f"{enough_s} s" in words(told)
        record = compare(models, enough_s)
    (told, *_) = raw_comparisons.evidence(record).contrasts
    assert told["generations"] >= MIN_LAUNCHES
    assert told["ratio_low"] is not None
    assert "interval_budget_s" not in told


def least_comparison(models: list[Model]) -> tuple[RawComparison, float]:
    """A race of the shortest budget that is not refused, to a tenth."""
    budget_s = 1.0
    while True:
        try:
            return compare(models, budget_s), budget_s
        except BudgetError:
            budget_s *= 1.1


def test_whoever_is_settled_leaves_and_what_is_left_to_find_of_it_fits_the_grace() -> None:
    models = [Model(run_s=0.004 * 1.5**i, load_s=3.0) for i in range(6)]
    models += [Model(between=0.2, load_s=3.0), Model(load_s=3.0)]
    record = compare(models, 256.0)
    alive = [len(one.order) for one in record.generations]
    assert (alive[0], alive[-1]) == (9, 3)  # all and an A/A control, then the undecided one and two defaults
    assert record.wall_s <= 1.1 * 256 + GRACE_S
    made = [sum(block.contestant == index for block in record.blocks) for index in range(6)]
    assert min(made) >= P99_ROUNDS  # whoever left had rounds for a p99


def test_every_generation_is_new_processes_in_a_new_order_each_with_a_layout_of_its_own() -> None:
    record = compare([Model(noise=0.2)] * 3, 60.0)
    assert len(record.generations) >= 4
    for one in record.generations:
        assert set(one.order) == {(0, 0), (1, 0), (2, 0), (2, 1)}
        assert one.rounds == len({block.round for block in record.blocks if block.generation == one.number})
    assert len({tuple(one.order) for one in record.generations}) > 1
    layouts = [str(layout) for one in record.generations for layout in one.layouts.values()]
    assert len(set(layouts)) == len(layouts) == 4 * len(record.generations)
    again = compare([Model(noise=0.2)] * 3, 60.0)
    assert [one.layouts for one in again.generations] == [one.layouts for one in record.generations]


def test_models_of_milliseconds_get_more_processes_where_these_differ_much() -> None:
    even = compare([Model(between=0.0, noise=0.1)] * 2, 60.0)
    uneven = compare([Model(between=0.1, noise=0.002)] * 2, 60.0)
    rounds = [sum(one.rounds for one in of.generations) / len(of.generations) for of in (even, uneven)]
    assert rounds[0] > 2 * rounds[1]


def test_a_configuration_that_fails_is_out_and_the_budget_is_the_others() -> None:
    record = compare([Model(noise=0.2, fails_at=2), Model(noise=0.2), Model(noise=0.2)], 60.0)
    assert record.ran[0].error is not None
    assert {block.generation for block in record.blocks if block.contestant == 0} == {0, 1}
    assert record.generations[-1].number > 2
    assert record.wall_s <= 1.1 * 60 + GRACE_S


def test_an_exact_number_of_runs_is_made_in_eight_generations_whatever_the_budget() -> None:
    record = compare([Model(run_s=0.01)] * 2, 1.0, runs=100)
    made = Counter[tuple[int, int]]()
    for block in record.blocks:
        made[block.contestant, block.copy] += len(block.latencies_s)
    assert made == {(0, 0): 100, (1, 0): 100, (1, 1): 100}  # the A/A control as many as the others
    assert len(record.generations) == 8


def test_while_it_runs_it_tells_the_generation_and_what_is_known() -> None:
    told: list[Any] = []
    record = compare([Model(run_s=0.002), Model(run_s=0.003)], 60.0, on_live=told.append)
    assert told[0]["generation"] == 1
    assert told[-1]["generation"] == len(record.generations)
    (contrast,) = told[-1]["contrasts"]
    assert (contrast["candidate"], contrast["baseline"], contrast["label"]) == (0, 1, "c0")
    assert contrast["ratio"] == pytest.approx(1.5, rel=0.02)
    assert told[-1]["p50_s"] == {0: pytest.approx(0.002, rel=0.03), 1: pytest.approx(0.003, rel=0.03)}
    assert all(one["rounds"] <= one["predicted_rounds"] for one in told)


def test_what_an_interim_analysis_finds_is_told_as_soon_as_its_last_launch_is_over() -> None:
    told: list[Any] = []
    compare([Model(run_s=0.002), Model(run_s=0.003)], 60.0, on_live=told.append)
    known = [one for one in told for contrast in one["contrasts"] if contrast["ratio"] is not None]
    first = EFFORTS["quick"].looks[0]
    assert known[0]["generation"] == first  # and not when the next launch has started, which may never come
    before = told[: told.index(known[0])]
    assert {one["generation"] for one in before} == set(range(1, first + 1))
