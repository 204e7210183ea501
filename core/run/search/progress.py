"""Progress and final answer of a search as data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from core.evidence.evaluations import launch_spread, told_words
from core.evidence.result_types import CoursePoint, SearchResult
from core.run.search import answer as answers
from core.run.search.failures import dropped
from core.run.search.knowledge import Knowledge
from core.run.search.plan import Known, Step, is_too_short, looks_share, sought
from core.run.search.time_needed import enough_s, evaluated_words, open_words
from core.spec.space import from_default
from core.wire.errors import BudgetError


def so_far(has: Knowledge) -> str:
    """Return the best so far in one line; empty: there is none."""
    best = has.best()
    return "" if best is None else f"best so far {told_words(best[1])}: {has.words(best[0].changes)}"


def live(has: Knowledge, *, doing: str, course: Sequence[CoursePoint]) -> dict[str, Any]:
    """Return the progress of a running search for its page.

    Args:
        has: state of the search.
        doing: the current step.
        course: the best configuration over time.
    """
    best = has.best()
    objective = "+".join(has.question.objective)
    return {
        "study": has.prepared.record.id,
        "tried": len(has.tried),
        "distinct": len(has.space.choices),
        "doing": doing,
        "spent_s": has.clock.spent_s,
        "ends_at": time.time() + max(0.0, has.known().left_s),  # seconds since the epoch, at the latest
        "budget_s": has.time_s,
        "best": None
        if best is None
        else {
            "changes": from_default(has.base, best[0].changes),
            "gain": answers.of_told(objective, best[1], has.base.protocol.margin),
            "launches": best[1].launches,
        },
        "front": [{**one, "changes": from_default(has.base, one["changes"])} for one in has.front()],
        "points": [
            {
                "label": has.words(one.changes),
                "ratio": found.ratio,
                "memory": one.value("peak_rss"),
            }
            for one in has.tried.values()
            if (found := has.told(one)) is not None
        ],
        "course": list(course),
    }


def course_point(has: Knowledge, step: Step) -> CoursePoint:
    """Return the best speed-up after a step."""
    best = has.best()
    return {
        "at_s": has.clock.spent_s,
        "stage": step.stage,
        "tried": len(has.tried),
        "ratio": None if best is None else best[1].ratio,
    }


def result(has: Knowledge, *, course: Sequence[CoursePoint], raced_s: float) -> SearchResult:
    """Return the answer with its evidence.

    Args:
        has: state of the search.
        course: the best configuration over time.
        raced_s: duration of its comparisons, since it was started or resumed.
    """
    known = has.known()
    margin = has.base.protocol.margin
    everybody = list(has.tried.values())
    effects, pairs = answers.effects(known, launch_spread(has.differences))
    has.notes += [answers.dropped_words(one, has.space) for one in dropped(known)]
    winner = has.winner
    controls = answers.controls([*everybody, *has.twins], has.self_tests)
    remark = answers.failed_controls(controls) if has.confirmed else ""
    found: SearchResult = {
        "outcome": has.outcome,
        "margin": margin,
        "objective": dict(has.question.objective),
        "limits": has.question.limit_words,
        "space": answers.space_facts(has.space),
        "tried": len(everybody),
        "failed": sum(bool(one.failed) for one in everybody),
        "remarks": [remark] if remark else [],
        "winner": winner,
        "default": has.default_said,
        "others": [one for one in has.confirmed.values() if one is not winner],
        "front": has.front(),
        "effects": effects,
        "pairs": pairs,
        "controls": controls,
        "course": list(course),
        "grade": has.last_result.get("grade"),
        "busy": has.last_result.get("busy"),
        "budget_s": has.time_s,
        "wall_s": has.clock.spent_s,
        "own_s": has.clock.own_s - raced_s,
        "strategy": has.question.strategy,
        "notes": has.notes,
    }
    worth = sought(has.space)
    if has.costs is not None and 0 < len(everybody) < worth:
        share = looks_share(has.space)
        has.notes.append(evaluated_words(has.costs, len(everybody), worth, share=share))
    if has.costs is not None:
        found["costs"] = has.costs
    if not has.confirmed:
        _say_why_open(has, known, found)
    return found


def _say_why_open(has: Knowledge, known: Known, found: SearchResult) -> None:
    """Add the reason why nothing was confirmed, and the sufficient time if the time was too short."""
    if has.costs is not None and (is_too_short(known) or isinstance(has.refused, BudgetError)):
        screened_s = known.spent_s - known.before_s
        found["enough_s"] = enough_s(has.costs, share=looks_share(has.space), screened_s=screened_s)
        found["why_open"] = open_words(has.costs, known.left_s, has.question.budget_s)
    elif has.refused is not None:
        found["why_open"] = f"Nothing could be confirmed: {has.refused.message}"
