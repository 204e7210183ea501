"""Progress and final answer of a search as data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from core.evidence.evaluations import launch_spread, speedup_text
from core.evidence.result_types import CoursePoint, SearchResult
from core.run.search import answer as answers
from core.run.search.failures import excluded_values
from core.run.search.plan import PlanState, Step, is_too_short, screening_share, sought
from core.run.search.search_state import SearchState
from core.run.search.time_needed import enough_s, evaluated_words, open_words
from core.spec.space import changes_from_default
from core.wire.errors import BudgetError


def so_far(search_state: SearchState) -> str:
    """Return the best so far in one line; empty: there is none."""
    best = search_state.best()
    return (
        "" if best is None else f"best so far {speedup_text(best[1])}: {search_state.words(best[0].changes)}"
    )


def live(search_state: SearchState, *, doing: str, course: Sequence[CoursePoint]) -> dict[str, Any]:
    """Return the progress of a running search for its page.

    Args:
        search_state: state of the search.
        doing: the current step.
        course: the best configuration over time.
    """
    best = search_state.best()
    objective = "+".join(search_state.question.objective)
    return {
        "study": search_state.prepared.record.id,
        "tried": len(search_state.tried),
        "distinct": len(search_state.space.choices),
        "doing": doing,
        "spent_s": search_state.clock.spent_s,
        "ends_at": time.time()
        + max(0.0, search_state.known().left_s),  # seconds since the epoch, at the latest
        "budget_s": search_state.time_s,
        "best": None
        if best is None
        else {
            "changes": changes_from_default(search_state.base, best[0].changes),
            "gain": answers.estimate_numbers(objective, best[1], search_state.base.protocol.margin),
            "launches": best[1].launches,
        },
        "front": [
            {**one, "changes": changes_from_default(search_state.base, one["changes"])}
            for one in search_state.pareto_front()
        ],
        "points": [
            {
                "label": search_state.words(one.changes),
                "ratio": found.ratio,
                "memory": one.value("peak_rss"),
            }
            for one in search_state.tried.values()
            if (found := search_state.reported_speedup(one)) is not None
        ],
        "course": list(course),
    }


def course_point(search_state: SearchState, step: Step) -> CoursePoint:
    """Return the best speed-up after a step."""
    best = search_state.best()
    return {
        "at_s": search_state.clock.spent_s,
        "stage": step.stage,
        "tried": len(search_state.tried),
        "ratio": None if best is None else best[1].ratio,
    }


def result(search_state: SearchState, *, course: Sequence[CoursePoint], comparisons_s: float) -> SearchResult:
    """Return the answer with its evidence.

    Args:
        search_state: state of the search.
        course: the best configuration over time.
        comparisons_s: duration of its comparisons, since it was started or resumed.
    """
    known = search_state.known()
    margin = search_state.base.protocol.margin
    everybody = list(search_state.tried.values())
    effects, pairs = answers.effects(known, launch_spread(search_state.differences))
    search_state.notes += [answers.excluded_words(one, search_state.space) for one in excluded_values(known)]
    winner = search_state.winner
    controls = answers.controls([*everybody, *search_state.controls], search_state.self_tests)
    remark = answers.failed_controls(controls) if search_state.confirmed else ""
    found: SearchResult = {
        "outcome": search_state.outcome,
        "margin": margin,
        "objective": dict(search_state.question.objective),
        "limits": search_state.question.limit_words,
        "space": answers.space_facts(search_state.space),
        "tried": len(everybody),
        "failed": sum(bool(one.failed) for one in everybody),
        "remarks": [remark] if remark else [],
        "winner": winner,
        "default": search_state.default_result,
        "others": [one for one in search_state.confirmed.values() if one is not winner],
        "front": search_state.pareto_front(),
        "effects": effects,
        "pairs": pairs,
        "controls": controls,
        "course": list(course),
        "grade": search_state.last_result.get("grade"),
        "busy": search_state.last_result.get("busy"),
        "budget_s": search_state.time_s,
        "wall_s": search_state.clock.spent_s,
        "own_s": search_state.clock.own_s - comparisons_s,
        "strategy": search_state.question.strategy,
        "notes": search_state.notes,
    }
    worth = sought(search_state.space)
    if search_state.costs is not None and 0 < len(everybody) < worth:
        share = screening_share(search_state.space)
        search_state.notes.append(evaluated_words(search_state.costs, len(everybody), worth, share=share))
    if search_state.costs is not None:
        found["costs"] = search_state.costs
    if not search_state.confirmed:
        _say_why_open(search_state, known, found)
    return found


def _say_why_open(search_state: SearchState, known: PlanState, found: SearchResult) -> None:
    """Add the reason why nothing was confirmed, and the sufficient time if the time was too short."""
    if search_state.costs is not None and (
        is_too_short(known) or isinstance(search_state.refused, BudgetError)
    ):
        screened_s = known.spent_s - known.before_s
        found["enough_s"] = enough_s(
            search_state.costs, share=screening_share(search_state.space), screened_s=screened_s
        )
        found["why_open"] = open_words(search_state.costs, known.left_s, search_state.question.budget_s)
    elif search_state.refused is not None:
        found["why_open"] = f"Nothing could be confirmed: {search_state.refused.message}"
