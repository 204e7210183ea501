"""Divides a budget into launches and rounds; refuses one that is too small.

Pure functions of costs. More rounds in a launch reduce the variance between rounds, more launches the
variance between processes; each launch first costs its starts. Seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from core.evidence.statistics import runs_needed
from core.evidence.verdict import MIN_LAUNCHES
from core.wire.errors import BudgetError

P50_RUNS = runs_needed(0.5)  # of each configuration: below, there is no p50
VARIANCE_RATIO = 10.0  # within a launch over between processes, until the comparison has an estimate
MOST_ROUNDS = 64  # of a launch; more reduce its variance too little
MIN_ROUNDS = 4  # of a launch with expensive starts: fewer do not show the variance between rounds
MIN_ROUNDS_OF_TWO = 2  # of each of two launches: the fewest that give an interval
WANTED_LAUNCHES = 4  # at the first interim analysis; with fewer the launch variance is mostly assumed
EXACT_LAUNCHES = 8  # launches with an exact number of runs
EXACT_LAUNCHES_DEAR = 2  # likewise, where every start is a fresh process, not a fork
INTERVAL_MARGIN = 1.2  # safety factor of a forecast; warm-ups take a share of the added budget
GRACE_S = 1.0  # allowed overrun, with a tenth of the budget: forecasts are no more precise


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Durations that make up a comparison."""

    start_s: float  # of a launch: starting, loading and warming up all processes
    round_s: float
    after_s: float  # of the passes after the rounds
    runs: int  # per round, of the configuration with the fewest


def rounds_for_p50(costs: Costs) -> int:
    """Return the number of rounds that gives every configuration enough runs for a p50."""
    return math.ceil(P50_RUNS / max(1, costs.runs))


def rounds_of_launch(
    costs: Costs, left_s: float, *, made: int, variance_ratio: float | None, launches: int = 0
) -> int:
    """Return the number of rounds of the launch that has just started, at least one.

    The optimum is sqrt(start / round x variance within / variance between). It is cut so that four launches
    fit into the remaining budget, or as many as leave enough rounds for a p50; and so that two fit even
    where each has the fewest rounds that give an interval.

    Args:
        costs: as far as they are known.
        left_s: remaining budget minus `costs.after_s`; the start of this launch is already spent.
        made: rounds of the earlier launches.
        variance_ratio: within over between; None: unknown.
        launches: number of earlier launches.

    Source: Kalibera and Jones (2013), Rigorous benchmarking in reasonable time, section 6.
    """
    ratio = VARIANCE_RATIO if variance_ratio is None else variance_ratio
    best = round(math.sqrt(costs.start_s / costs.round_s * ratio))
    needed = max(0, rounds_for_p50(costs) - made)
    more = max(1, WANTED_LAUNCHES - 1 - launches)
    each = min(max(best, 1), MIN_ROUNDS)
    while more and (left_s - more * costs.start_s) / costs.round_s < max(needed, each * (more + 1)):
        more -= 1
        if more == 1 and not launches:
            each = min(each, MIN_ROUNDS_OF_TWO)
    fitting = math.floor((left_s - more * costs.start_s) / costs.round_s / (more + 1))
    least = math.ceil(needed / (more + 1))
    return max(1, least, min(best, fitting, MOST_ROUNDS))


def screening_rounds(costs: Costs, most: int) -> int:
    """Return the rounds of a screening of many configurations: fewer for slow models, at least two.

    Args:
        costs: as far as they are known.
        most: as many as a screening needs to estimate its noise.
    """
    return max(2, min(most, round(costs.start_s / costs.round_s)))


def launches_left(costs: Costs, left_s: float, rounds: int, *, least: int | None = None) -> int:
    """Return how many more launches of `rounds` rounds the budget holds; one may be shorter.

    Args:
        costs: as far as they are known.
        left_s: remaining budget minus `costs.after_s`.
        rounds: of each.
        least: rounds of the shorter one; None: half of `rounds`.
    """
    whole = costs.start_s + rounds * costs.round_s
    shorter = math.ceil(rounds / 2) if least is None else min(least, rounds)
    return 0 if left_s < costs.start_s + shorter * costs.round_s else max(1, math.floor(left_s / whole))


def min_rounds_of_next_launch(costs: Costs, made: int, launches: int) -> int | None:
    """Return the fewest rounds for which another launch is worth its start; None: half of the last one's.

    Args:
        costs: as far as they are known.
        made: rounds so far: below those of a p50 every round counts.
        launches: number of launches so far.
    """
    if made < rounds_for_p50(costs):
        return 1
    return MIN_ROUNDS_OF_TWO if launches < MIN_LAUNCHES else None


def interval_budget_s(costs: Costs, spent_s: float) -> int:
    """Return the budget that an interval needs: two launches, and the runs of a p50.

    Args:
        costs: from the first launch, or from earlier comparisons.
        spent_s: of the budget, when the first launch has started.
    """
    rounds = max(rounds_for_p50(costs), MIN_LAUNCHES * MIN_ROUNDS_OF_TWO)
    needed_s = spent_s + (MIN_LAUNCHES - 1) * costs.start_s + rounds * costs.round_s + costs.after_s
    return math.ceil(INTERVAL_MARGIN * needed_s)


def check_starts(quickest_s: float, left: int, *, spent_s: float, budget_s: float) -> None:
    """Refuse a screening whose starts alone exceed its budget, as soon as one process shows it.

    Args:
        quickest_s: shortest start so far: starting, loading, warming up.
        left: processes still to start.
        spent_s: so far.
        budget_s: of the whole screening.

    Raises:
        BudgetError: names the time needed.
    """
    needed_s = spent_s + left * quickest_s
    if needed_s <= 1.1 * budget_s + GRACE_S:
        return
    raise BudgetError(
        f"A budget of {budget_s:g} s is too short to start every configuration once: one process takes "
        f"{quickest_s:.1f} s, all together {needed_s:.0f} s.",
        hint=f"Use a budget of {math.ceil(2 * needed_s)} s.",
    )


def check_budget(costs: Costs, budget_s: float, spent_s: float) -> None:
    """Refuse a comparison whose budget cannot give a p50.

    Args:
        costs: from the first launch.
        budget_s: of the whole comparison.
        spent_s: so far.

    Raises:
        BudgetError: names the time needed.
    """
    rounds = rounds_for_p50(costs)
    needed_s = spent_s + rounds * costs.round_s + costs.after_s
    if needed_s <= 1.1 * budget_s + GRACE_S:
        return
    raise BudgetError(
        f"A budget of {budget_s:g} s is too short for a p50 of this model: the start took {spent_s:.1f} "
        f"s, and {P50_RUNS} runs of each with the checks need about {needed_s - spent_s:.0f} s.",
        hint=f"Use a budget of {interval_budget_s(costs, spent_s)} s: it allows the {MIN_LAUNCHES} "
        "launches of each that an interval needs.",
    )
