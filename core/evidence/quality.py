"""The badge of a result: its grade and the state of the machine.

Pages, sheets and reports all show this badge with a result. It is computed from stored results, so those of
earlier versions are graded by the same rules. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.evidence.verdict import Color, Grade, Verdict, is_rejected, precision_text

BUSY = "background load"
CONTROL_FAILED = "A/A control failed"
NO_INTERVAL = "no interval"
NOT_PAUSED = "other processes could not be paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A grade with its reasons. Green and blue only if all is decided and the machine was idle."""

    grade: Grade
    reasons: tuple[str, ...]  # a few words each: the precision, then the limitations
    icon: str  # name of a Material Symbol
    color: Color

    @property
    def words(self) -> str:
        """Text for a table: "B: ±1.6 %, background load"."""
        return f"{self.grade}: {', '.join(self.reasons) or self.grade.word}"

    @property
    def label(self) -> str:
        """Text for a badge: "Grade B: ±1.6 %, background load"."""
        return f"Grade {self.words}"


def quality(
    result: Mapping[str, Any] | None, answers: Sequence[Mapping[str, Any]] | None = None
) -> Quality | None:
    """Return the quality of a result; None where nothing was graded, as in a profile.

    Args:
        result: stored result of a comparison, a trial, a search or a self-test; `grade`, `busy` and
            `contrasts` are read.
        answers: contrasts to grade, with `verdict` where they have one. None: the contrasts of `result` with
            its first reference.
    """
    found = result or {}
    if not found.get("grade"):
        return None
    asked = _answers(found) if answers is None else answers
    valid = [] if found["grade"] == Grade.F else [one for one in asked if not is_rejected(one)]
    busy = [BUSY] if found.get("busy") else []
    if found["grade"] == Grade.F or (asked and not valid):
        return _badge(Grade.F, [CONTROL_FAILED, *busy], Grade.F)
    graded, precision = _precision(valid, Grade[found["grade"]])
    undecided = sum(one.get("verdict") == Verdict.UNDECIDED for one in valid)
    open_ = _count_text(undecided, len(asked), Verdict.UNDECIDED.word)
    rejected = _count_text(len(asked) - len(valid), len(asked), "rejected")
    reasons = [*precision, *rejected, *open_, *busy]
    if busy:
        return _badge(graded, reasons, _Badge("groups", "orange"))
    return _badge(graded, reasons, Verdict.UNDECIDED if open_ else Grade.C if rejected else graded)


def quality_of_search(answer: Mapping[str, Any]) -> Quality | None:
    """Return the quality of a search result, from its reported speed-up; None where nothing was graded."""
    shown = answer.get("winner") or next(iter(answer.get("others") or ()), None)
    gains: list[dict[str, Any]] = [] if shown is None else [{**shown["gain"]}]
    if answer["outcome"] == "UNDECIDED":
        gains = [{**one, "verdict": Verdict.UNDECIDED} for one in gains]
    return quality(answer, gains)


def regraded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of a comparison or a trial with its grades by the current rules.

    All readers of stored results use it, so pages and files show the same grades: those of earlier versions
    followed other rules, and trials had the grade of their whole comparison.
    """
    if not result.get("grade"):
        return dict(result)
    contrasts = [
        {**one, "grade": _precision([one], Grade.A)[0].value}
        if one.get("grade") not in (None, Grade.F)
        else one
        for one in result.get("contrasts") or ()
    ]
    found = {**result, "contrasts": contrasts} if "contrasts" in result else dict(result)
    graded = quality(found)
    assert graded is not None  # it has a grade
    return {**found, "grade": graded.grade.value}


def trial_grade(result: Mapping[str, Any] | None) -> Grade | None:
    """Return the grade of a trial's own result, for lists and filters; None: nothing was graded."""
    found = quality(result)
    return found.grade if found is not None else None


def _answers(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the contrasts with the first reference: the baseline, or the default if the baseline failed."""
    contrasts: Sequence[Mapping[str, Any]] = result.get("contrasts") or []
    return [one for one in contrasts if one.get("baseline") == contrasts[0].get("baseline")]


def _precision(answers: Sequence[Mapping[str, Any]], stored: Grade) -> tuple[Grade, list[str]]:
    """Return the worst grade of the contrasts and their precision; without contrasts the stored grade."""
    if not answers:
        return stored, []
    widths = list(map(_half_width, answers))
    known = [one for one in widths if one is not None]
    by_width = Grade.D if len(known) < len(widths) else Grade.of(max(known))
    own = max([by_width, *(Grade[one["grade"]] for one in answers if one.get("grade"))])
    if len(known) < len(widths):
        return own, [NO_INTERVAL]
    reasons = [f"{'up to ' if len(known) > 1 else ''}{precision_text(max(known))}"]
    return own, [*reasons, *([NOT_PAUSED] if own > by_width else [])]


def _half_width(contrast: Mapping[str, Any]) -> float | None:
    """Return half the interval as a share of the ratio, also for records that have only its bounds."""
    ratio, low, high = (contrast.get(name) for name in ("ratio", "ratio_low", "ratio_high"))
    if (half := contrast.get("half_width")) is not None or not ratio or low is None or high is None:
        return half
    return float((high - low) / 2 / ratio)


def _count_text(many: int, total: int, what: str) -> list[str]:
    if not many:
        return []
    return [what if many == total else f"{many} of {total} {what}"]


class _Badge(NamedTuple):
    icon: str
    color: Color


def _badge(graded: Grade, reasons: Sequence[str], look: Grade | Verdict | _Badge) -> Quality:
    return Quality(grade=graded, reasons=tuple(reasons), icon=look.icon, color=look.color)
