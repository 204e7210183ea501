"""Progress and final answer of a search as data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from core.evidence.evaluations import launch_spread, speedup_text
from core.evidence.result_types import CoursePoint, SearchResult, SearchUnderLoad
from core.run.search import answer as answers
from core.run.search.plan import Step, is_too_short, screening_share, sought
from core.run.search.search_state import SearchState
from core.run.search.time_needed import enough_s, evaluated_words, open_words
from core.spec.space import changes_from_default
from core.wire.errors import BudgetError


def so_far(state: SearchState) -> str:
    """Return the best so far in one line; empty: there is none."""
    best = state.best()
    return "" if best is None else f"best so far {speedup_text(best[1])}: {state.words(best[0].changes)}"


def live(state: SearchState, *, doing: str, course: Sequence[CoursePoint]) -> dict[str, Any]:
    """Return the progress of a running search for its page.

    Args:
        state: state of the search.
        doing: the current step.
        course: the best configuration over time.
    """
    best = state.best()
    objective = "+".join(state.question.objective)
    return {
        "study": state.prepared.record.id,
        "tried": len(state.tried),
        "distinct": len(state.space.choices),
        "doing": doing,
        "spent_s": state.clock.spent_s,
        "ends_at": time.time() + max(0.0, state.left_s),  # seconds since the epoch, at the latest
        "budget_s": state.time_s,
        "best": None
        if best is None
        else {
            "changes": changes_from_default(state.base, best[0].changes),
            "gain": answers.estimate_numbers(objective, best[1], state.margin),
            "launches": best[1].launches,
        },
        "front": [
            {**one, "changes": changes_from_default(state.base, one["changes"])}
            for one in state.pareto_front()
        ],
        "points": [
            {
                "label": state.words(one.changes),
                "ratio": found.ratio,
                "memory": one.value("peak_rss"),
            }
            for one in state.tried.values()
            if (found := state.reported_speedup(one)) is not None
        ],
        "course": list(course),
    }


def course_point(state: SearchState, step: Step) -> CoursePoint:
    """Return the best speed-up after a step."""
    best = state.best()
    return {
        "at_s": state.clock.spent_s,
        "stage": step.stage,
        "tried": len(state.tried),
        "ratio": None if best is None else best[1].ratio,
    }


def result(
    state: SearchState,
    *,
    course: Sequence[CoursePoint],
    comparisons_s: float,
    load: SearchUnderLoad | None = None,
) -> SearchResult:
    """Return the answer with its evidence.

    Args:
        state: state of the search.
        course: the best configuration over time.
        comparisons_s: duration of its comparisons, since it was started or resumed.
        load: its best configurations under load; None: the question asks for none.
    """
    everybody = list(state.tried.values())
    effects, pairs = answers.effects(state, launch_spread(state.differences))
    state.notes += [answers.excluded_words(one, state.space) for one in state.excluded]
    winner = state.winner
    controls = answers.controls([*everybody, *state.controls], state.self_tests)
    remark = answers.failed_controls(controls) if state.confirmed else ""
    found: SearchResult = {
        "outcome": state.outcome,
        "margin": state.margin,
        "objective": dict(state.question.objective),
        "limits": state.question.limit_words,
        "space": answers.space_facts(state.space),
        "tried": len(everybody),
        "failed": sum(bool(one.failed) for one in everybody),
        "remarks": [remark] if remark else [],
        "winner": winner,
        "default": state.default_result,
        "others": [one for one in state.confirmed.values() if one is not winner],
        "front": state.pareto_front(),
        "effects": effects,
        "pairs": pairs,
        "controls": controls,
        "course": list(course),
        "grade": state.last_result.get("grade"),
        "busy": state.last_result.get("busy"),
        "budget_s": state.time_s,
        "wall_s": state.clock.spent_s,
        "own_s": state.clock.own_s - comparisons_s,
        "strategy": state.question.strategy,
        "notes": state.notes,
    }
    if load is not None:
        found["load"] = load
    worth = sought(state.space)
    if state.costs is not None and 0 < len(everybody) < worth:
        share = screening_share(state.space)
        state.notes.append(evaluated_words(state.costs, len(everybody), worth, share=share))
    if state.costs is not None:
        found["costs"] = state.costs
    if not state.confirmed:
        _say_why_open(state, found)
    return found


def _say_why_open(state: SearchState, found: SearchResult) -> None:
    """Add the reason why nothing was confirmed, and the sufficient time if the time was too short."""
    if state.costs is not None and (is_too_short(state) or isinstance(state.refused, BudgetError)):
        found["enough_s"] = enough_s(
            state.costs, share=screening_share(state.space), screened_s=state.clock.own_s
        )
        found["why_open"] = open_words(state.costs, state.left_s, state.question.budget_s)
    elif state.refused is not None:
        found["why_open"] = f"Nothing could be confirmed: {state.refused.message}"
