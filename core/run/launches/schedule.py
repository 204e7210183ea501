"""Divides a budget into launches and rounds; refuses one that is too small.

Pure functions of costs. More rounds in a generation narrow what differs from round to round, more generations
what differs between processes; each generation costs its starts first. Seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from core.evidence.statistics import runs_needed
from core.evidence.verdict import MIN_LAUNCHES
from core.wire.errors import BudgetError

P50_RUNS = runs_needed(0.5)  # of each contestant: below, there is no p50
VARIANCE_RATIO = 10.0  # within a generation over between processes, until the race shows its own
MOST_ROUNDS = 64  # of a generation; beyond, nothing within it is worth measuring longer
LEAST_ROUNDS = 4  # of a generation, where starts are dear: fewer do not show what its rounds differ by
LEAST_OF_TWO = 2  # of each of two generations: the fewest that give an interval
WANTED_GENERATIONS = 4  # the first look: with fewer the spread between processes is mostly assumed
EXACT_GENERATIONS = 8  # of a race with an exact number of runs
EXACT_GENERATIONS_DEAR = 2  # of one in which every start is a fresh process
INTERVAL_MARGIN = 1.2  # by which a forecast of an interval may be off; warm-ups take a share of what is added
GRACE_S = 1.0  # by which a budget may be overrun, and a tenth of it: a forecast is no better than that


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a race spends its time on."""

    start_s: float  # of a generation: starting, loading and warming up everybody
    round_s: float
    after_s: float  # for what is found after the rounds
    runs: int  # of each contestant in a round, the fewest


def rounds_for_p50(costs: Costs) -> int:
    """Return the rounds that give everybody the runs of a p50."""
    return math.ceil(P50_RUNS / max(1, costs.runs))


def rounds_of_generation(
    costs: Costs, left_s: float, *, made: int, variance_ratio: float | None, generations: int = 0
) -> int:
    """Return how many rounds the generation that has just started makes, at least one.

    The optimum is sqrt(start / round x variance within / variance between). It is cut so that four
    generations fit into what is left of the budget, or as many as leave enough rounds for a p50; and two
    fit even where each has the fewest rounds that give an interval.

    Args:
        costs: as far as they are known.
        left_s: of the budget, `costs.after_s` taken off; the start of this generation is spent already.
        made: rounds of the generations before.
        variance_ratio: within over between; None: not known.
        generations: that were made before this one.

    Source: Kalibera and Jones (2013), Rigorous benchmarking in reasonable time, section 6.
    """
    ratio = VARIANCE_RATIO if variance_ratio is None else variance_ratio
    best = round(math.sqrt(costs.start_s / costs.round_s * ratio))
    needed = max(0, rounds_for_p50(costs) - made)
    more = max(1, WANTED_GENERATIONS - 1 - generations)
    each = min(max(best, 1), LEAST_ROUNDS)
    while more and (left_s - more * costs.start_s) / costs.round_s < max(needed, each * (more + 1)):
        more -= 1
        if more == 1 and not generations:
            each = min(each, LEAST_OF_TWO)
    fitting = math.floor((left_s - more * costs.start_s) / costs.round_s / (more + 1))
    least = math.ceil(needed / (more + 1))
    return max(1, least, min(best, fitting, MOST_ROUNDS))


def rounds_of_a_look(costs: Costs, most: int) -> int:
    """Return the rounds of a first look at many configurations: fewer of slow models, and never below two.

    Args:
        costs: as far as they are known.
        most: as many as a look needs to know its own noise.
    """
    return max(2, min(most, round(costs.start_s / costs.round_s)))


def generations_left(costs: Costs, left_s: float, rounds: int, *, least: int | None = None) -> int:
    """Return how many more generations of `rounds` rounds the budget holds; one may be shorter.

    Args:
        costs: as far as they are known.
        left_s: of the budget, `costs.after_s` taken off.
        rounds: of each.
        least: rounds of one that is shorter; None: half of them.
    """
    whole = costs.start_s + rounds * costs.round_s
    shorter = math.ceil(rounds / 2) if least is None else min(least, rounds)
    return 0 if left_s < costs.start_s + shorter * costs.round_s else max(1, math.floor(left_s / whole))


def least_of_another(costs: Costs, made: int, generations: int) -> int | None:
    """Return the fewest rounds for which another generation is worth its start; None: half of the last one's.

    Args:
        costs: as far as they are known.
        made: rounds so far: below those of a p50 every round counts.
        generations: that were made.
    """
    if made < rounds_for_p50(costs):
        return 1
    return LEAST_OF_TWO if generations < MIN_LAUNCHES else None


def interval_budget_s(costs: Costs, spent_s: float) -> int:
    """Return the budget that holds an interval: two generations, and the runs of a p50.

    Args:
        costs: as the first generation shows them, or earlier races.
        spent_s: of the budget, when the first generation has started.
    """
    rounds = max(rounds_for_p50(costs), MIN_LAUNCHES * LEAST_OF_TWO)
    needed_s = spent_s + (MIN_LAUNCHES - 1) * costs.start_s + rounds * costs.round_s + costs.after_s
    return math.ceil(INTERVAL_MARGIN * needed_s)


def check_starts(quickest_s: float, left: int, *, spent_s: float, budget_s: float) -> None:
    """Refuse a first look whose starts alone take longer than its budget, as soon as one process shows it.

    Args:
        quickest_s: of the processes so far: starting, loading, warming up.
        left: processes that are still to be started.
        spent_s: so far.
        budget_s: of the whole look.

    Raises:
        BudgetError: with how long it would take.
    """
    needed_s = spent_s + left * quickest_s
    if needed_s <= 1.1 * budget_s + GRACE_S:
        return
    raise BudgetError(
        f"A budget of {budget_s:g} s is too short to start every configuration once: one process takes "
        f"{quickest_s:.1f} s, all together {needed_s:.0f} s.",
        hint=f"Use `--budget {math.ceil(2 * needed_s)}`.",
    )


def check_budget(costs: Costs, budget_s: float, spent_s: float) -> None:
    """Refuse to measure what cannot give a p50.

    Args:
        costs: as the first generation shows them.
        budget_s: of the whole race.
        spent_s: of it.

    Raises:
        BudgetError: with how long it would take.
    """
    rounds = rounds_for_p50(costs)
    needed_s = spent_s + rounds * costs.round_s + costs.after_s
    if needed_s <= 1.1 * budget_s + GRACE_S:
        return
    raise BudgetError(
        f"A budget of {budget_s:g} s is too short for a p50 of this model: the start took {spent_s:.1f} "
        f"s, and {P50_RUNS} runs of each with the checks need about {needed_s - spent_s:.0f} s.",
        hint=f"Use `--budget {interval_budget_s(costs, spent_s)}`: it allows the {MIN_LAUNCHES} "
        "launches of each that an interval needs.",
    )
