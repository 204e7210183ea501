"""Estimates the time a search needs for screening and confirmation. Pure.

A confirmation launches the candidate and ONNX Runtime's default, the latter twice (the A/A control), and
needs enough inferences of each for a p50. Seconds throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core.evidence.result_types import SearchCosts
from core.evidence.verdict import MIN_LAUNCHES
from core.run.launches import budget
from core.run.launches.blocks import SWITCH_S, pace
from core.run.prediction import ComparisonHistory, expected_run_s
from core.spec import TrialSpec
from core.spec.effort import STAGES
from core.spec.question import LEAST_BUDGET_S
from core.wire.errors import BudgetError
from core.wire.units import ms

CONFIRMING = 3  # processes of one launch of a confirmation: the candidate, the default and its A/A control
REFERENCE_PROCESSES = 2  # additional processes of screening: the ORT default and its A/A control
LEAST_SCREENED = 2  # configurations of the first screening, which measures the cost of one
LAUNCHES = 4  # of the first interim analysis; no difference is significant before it
SLACK = 1.1  # tolerated ratio of a duration to its only measurement
_STEPS = ((60, 5), (300, 10), (3600, 60), (math.inf, 600))  # largest time, multiple it is rounded up to


def costs_from_past(past: ComparisonHistory, default: TrialSpec, fixed_s: float) -> SearchCosts:
    """Estimate the costs of a search from earlier measurements of the model.

    Args:
        past: the earlier measurements.
        default: the ORT default, with the batch size and dimensions of the search.
        fixed_s: fixed time of a comparison, without its processes.
    """
    run_s = expected_run_s(default, past.seen)
    block = pace(run_s * 1e9)
    block_s = block.expected_s + SWITCH_S
    costs = budget.Costs(start_s=past.start_s, round_s=block_s, after_s=0.0, runs=block.min_runs)
    rounds = budget.screening_rounds(costs, STAGES["screen"].rounds)
    return SearchCosts(
        run_s=run_s,
        start_s=past.start_s,
        block_s=block_s,
        runs=block.min_runs,
        screen_s=past.start_s + rounds * block_s,
        fixed_s=fixed_s,
        after_s=2 * past.after_s,
    )


def costs_from_start(start_s: float, fixed_s: float, after_s: float) -> SearchCosts:
    """Return a lower bound of the costs of a search if only the start time of one process is known."""
    return SearchCosts(
        run_s=0.0,
        start_s=start_s,
        block_s=0.0,
        runs=budget.P50_RUNS,
        screen_s=start_s,
        fixed_s=fixed_s,
        after_s=after_s,
    )


def costs_from_search(answer: Mapping[str, Any] | None) -> SearchCosts | None:
    """Return the costs of an earlier search of the model; None: not stored, or by another version."""
    kept: SearchCosts | None = (answer or {}).get("costs")
    return kept if kept is not None and kept.keys() == SearchCosts.__required_keys__ else None


def screening_s(costs: SearchCosts, configurations: int) -> float:
    """Return the duration of screening `configurations` configurations."""
    return costs["fixed_s"] + (configurations + REFERENCE_PROCESSES) * costs["screen_s"]


def confirmation_s(costs: SearchCosts, launches: int = MIN_LAUNCHES) -> float:
    """Return the duration of a confirmation with `launches` launches and enough inferences for a p50.

    Fewer launches than the default give no confidence interval, and so no answer.
    """
    rounds = max(launches, math.ceil(budget.P50_RUNS / max(1, costs["runs"])))
    return costs["fixed_s"] + CONFIRMING * (launches * costs["start_s"] + rounds * costs["block_s"])


def can_confirm(costs: SearchCosts, left_s: float) -> bool:
    """Return whether the shortest confirmation with a p50 and an interval fits the remaining time."""
    return confirmation_s(costs) <= SLACK * left_s + budget.GRACE_S


def screenable(costs: SearchCosts, budget_s: float, *, share: float) -> int:
    """Return how many configurations can be screened if the time budget also holds a confirmation.

    Args:
        costs: of the search.
        budget_s: of the whole search.
        share: largest share of the time for screening.
    """
    room_s = min(share * budget_s, budget_s - confirmation_s(costs)) - costs["fixed_s"]
    return max(0, math.floor(room_s / max(costs["screen_s"], 1e-6)) - REFERENCE_PROCESSES)


def enough_s(
    costs: SearchCosts, configurations: int = LEAST_SCREENED, *, share: float, screened_s: float = 0.0
) -> int:
    """Return a time budget that is enough for screening and a confirmation of four launches.

    It is rounded up to a round number: 35 s, 80 s, 7 min.

    Args:
        costs: of the search.
        configurations: to screen.
        share: largest share of the time for screening.
        screened_s: duration of an earlier screening, a lower bound for the next.
    """
    screening = max(screening_s(costs, configurations), screened_s)
    confirming = confirmation_s(costs, LAUNCHES) + costs["after_s"]
    needed_s = max(screening / share, screening + confirming, LEAST_BUDGET_S)
    step = next(step for end, step in _STEPS if needed_s <= end)
    return math.ceil(needed_s / step) * step


def too_short(costs: SearchCosts, budget_s: float, *, share: float) -> BudgetError | None:
    """Return an error with the sufficient time if a time budget is too short for a confirmation.

    Args:
        costs: of the search.
        budget_s: of the whole search.
        share: largest share of the time for screening.
    """
    screened_s = screening_s(costs, LEAST_SCREENED)
    if can_confirm(costs, budget_s - screened_s):
        return None
    return BudgetError(
        f"A search of {budget_s:.0f} s is too short to confirm a result: one inference takes "
        f"{ms(costs['run_s'], 3)}, and screening {LEAST_SCREENED} configurations and confirming one take "
        f"{math.ceil(screened_s + confirmation_s(costs)):,} s or more.",
        hint=_longer_hint(costs, share),
    )


def _longer_hint(costs: SearchCosts, share: float) -> str:
    return f"Use a budget of {enough_s(costs, share=share):,} s, or let the search extend its budget."


def too_slow(costs: SearchCosts, budget_s: float, *, share: float) -> BudgetError:
    """Return the error of a search that ended because its first process started too slowly.

    Args:
        costs: of the search, see `costs_from_start`.
        budget_s: of the whole search.
        share: largest share of the time for screening.
    """
    return BudgetError(
        f"A search of {budget_s:.0f} s is too short to confirm a result: starting one process took "
        f"{costs['start_s']:.1f} s.",
        hint=_longer_hint(costs, share),
    )


def open_words(costs: SearchCosts, left_s: float, budget_s: float) -> str:
    """Return why nothing was confirmed after screening: durations of a confirmation and of the rest."""
    return (
        f"Nothing was confirmed: one inference takes {ms(costs['run_s'], 3)}, a confirmation takes "
        f"{math.ceil(confirmation_s(costs)):,} s or more, and {max(0, math.floor(left_s)):,} s of "
        f"{budget_s:.0f} s were left."
    )


def extended_words(asked_s: float, budget_s: float) -> str:
    """Return a sentence that the time budget was extended."""
    return (
        f"The budget was extended from {asked_s:.0f} s to {budget_s:.0f} s, the minimum to confirm a result."
    )


def fit_words(costs: SearchCosts, budget_s: float, configurations: int, *, share: float) -> str:
    """Return how many of the configurations can be screened, and the sufficient time for all.

    Args:
        costs: of the search.
        budget_s: of the whole search.
        configurations: number worth screening.
        share: largest share of the time for screening.
    """
    fit = screenable(costs, budget_s, share=share)
    if fit >= configurations:
        return f"time for all {configurations:,} configurations"
    enough = enough_s(costs, configurations, share=share)
    return f"time for about {fit:,} of {configurations:,} configurations; {enough:,} s would be enough"


def evaluated_words(costs: SearchCosts, evaluated: int, configurations: int, *, share: float) -> str:
    """Return how many of the configurations worth screening were evaluated, and the sufficient time for all.

    Args:
        costs: of the search.
        evaluated: number of configurations.
        configurations: number worth screening.
        share: largest share of the time for screening.
    """
    enough = enough_s(costs, configurations, share=share)
    return f"{evaluated:,} of {configurations:,} configurations were evaluated. All need {enough:,} s."
