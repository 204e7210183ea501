"""Whether a comparison is valid, its grade, and the badge of a result.

`grade` grades a comparison when it has been measured. Pages, sheets and reports show the badge of `quality`,
which is computed from stored results, so those of earlier versions are graded by the same rules. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.evidence.background_load import FLAGS, percent
from core.evidence.result_types import Interference
from core.evidence.speedup_interval import Contrast
from core.evidence.statistics import t_quantile
from core.evidence.verdict import Color, Grade, Verdict, is_rejected, precision_text

BUSY = "background load"
CONTROL_FAILED = "A/A control failed"
NO_INTERVAL = "no interval"
NOT_PAUSED = "other processes could not be paused"

REJECT_ALPHA = 0.01  # at 5 %, one valid comparison in twenty would be rejected
REJECT_EFFECT = 0.01  # a smaller A/A difference has no practical effect
MIN_EFFECT_FACTOR = 3.0  # an effect of this many times the A/A difference remains valid


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


# --- validity and precision of verdicts ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeReport:
    """Precision grade of a comparison. F: no verdict is valid; the numbers are kept, but never ranked."""

    grade: Grade
    reason: str  # a sentence with its numbers
    remedy: str  # an imperative sentence; empty: nothing to do


def invalid_reason(found: Contrast, aa: Contrast | None) -> str:
    """Return the reason why a verdict is invalid; empty: it is valid.

    The interval covers differences between processes, but not a fault of the measurement itself. Two copies
    of one configuration that differ significantly, by more than 1 %, show such a fault. Then an effect is
    valid only if it is three times as large, and EQUIVALENT only if it would hold with the fault added.
    """
    bias = _bias(aa)
    if not bias or aa is None or found.ratio_low is None or found.ratio_high is None:
        return ""
    bounds = [abs(math.log(found.ratio_low)), abs(math.log(found.ratio_high))]
    if found.verdict == Verdict.EQUIVALENT:
        doubtful = max(bounds) + bias > math.log1p(found.margin)
    else:
        doubtful = abs(math.log(found.ratio)) < MIN_EFFECT_FACTOR * bias or min(bounds) <= bias
    if found.verdict == Verdict.UNDECIDED or not doubtful:
        return ""
    return (
        "In the A/A test, two copies of the same configuration differed significantly, by "
        f"{percent(math.expm1(bias), 1)}. A difference of {percent(abs(found.ratio - 1), 1)} is too "
        "small beside that to be reported."
    )


def biased(aa: Contrast | None) -> bool:
    """Whether two copies of one configuration differ significantly, by more than 1 %."""
    return _bias(aa) > 0


def _bias(aa: Contrast | None) -> float:
    """Return the significant difference of the two copies as a log ratio; 0: not significant."""
    if aa is None or aa.standard_error is None or aa.df is None:
        return 0.0
    apart = abs(math.log(aa.ratio))
    sure = apart > t_quantile(1 - REJECT_ALPHA / 2, aa.df) * aa.standard_error
    return apart if sure and apart > REJECT_EFFECT else 0.0


def grade(
    aa: Contrast | None,
    half_widths: Sequence[float | None],
    interference: Interference,
    *,
    rejected: bool,
    frozen: bool,
) -> GradeReport:
    """Grade a comparison by its precision: by the widest interval of its verdicts.

    A: within 1 %. B: within 3 %, or parked workers could not be stopped. C: within 10 %. D: wider, or not
    known. F: the A/A test invalidates all verdicts. Background load is mentioned, but does not affect the
    grade; see `busy`.

    Args:
        aa: the ORT default compared with its A/A control; None: there was no A/A test.
        half_widths: half-widths of the verdicts; empty: only the A/A test was measured.
        interference: of the blocks of the comparison.
        rejected: no verdict is valid, see `invalid_reason`.
        frozen: parked workers were stopped while another one measured.
    """
    asked = [*half_widths] or [None if aa is None else aa.half_width]
    known = [one for one in asked if one is not None]
    letter = Grade.of(max(known) if len(known) == len(asked) else None, frozen=frozen)
    if rejected:
        return GradeReport(grade=Grade.F, reason=_aa_text(aa), remedy=_IDLE_REMEDY)
    disturbances = _disturbances(interference, aa, frozen=frozen)
    return GradeReport(
        grade=letter,
        reason=f"{_interval_text(half_widths)}{_aa_text(aa)} {disturbances}",
        remedy="" if letter == Grade.A else _remedy(interference, frozen=frozen),
    )


def _interval_text(half_widths: Sequence[float | None]) -> str:
    if not half_widths:
        return ""
    known = [one for one in half_widths if one is not None]
    if len(known) < len(half_widths):
        return "An interval is missing because there were too few rounds. "
    which = "The 95 % interval" if len(known) == 1 else "The widest 95 % interval"
    return f"{which} is ±{percent(max(known), 1)}. "


def _aa_text(aa: Contrast | None) -> str:
    if aa is None or aa.half_width is None:
        return "The A/A test was too short to estimate the noise of this machine."
    launches = f"{aa.generations} launch{'es' * (aa.generations != 1)}"
    return (
        f"In the A/A test ({launches}, {aa.rounds} rounds) the ratio of two copies of the same "
        f"configuration was {aa.ratio:.3f}×, ±{percent(aa.half_width or 0.0, 1)}."
    )


def _disturbances(interference: Interference, aa: Contrast | None, *, frozen: bool) -> str:
    """Return a sentence on the disturbances, consistent with the result of the A/A control."""
    marks = [_flag_text(name, interference) for name in interference["run_flags"]]
    marks += [] if frozen else ["idle worker processes could not be paused"]
    if not marks:
        return "No disturbance was found."
    told = "; ".join(marks)
    passed = aa is not None and aa.half_width is not None and not biased(aa)
    return f"{told[:1].upper()}{told[1:]}{'; the A/A result is unaffected' if passed else ''}."


def _flag_text(name: str, interference: Interference) -> str:
    share, what = interference["shares"].get(name), FLAGS[name]
    if not share:
        return what
    blocks = f"{percent(share)} of the blocks"
    return f"{blocks} had less CPU time than usual" if name == "cpu_deficit" else f"in {blocks} {what}"


_IDLE_REMEDY = "Measure again on an idle machine."
_REMEDIES = {
    "foreign_load": "Wait for an idle machine before it starts, or measure longer.",
    "steal": "Use a physical machine, or a virtual machine with dedicated CPUs.",
    "throttled": "Raise the container's CPU quota, or use fewer threads.",
    "gpu_shared": "Stop the other programs on the GPU.",
    "frequency": "Let the machine cool down, connect it to power, and set the CPU frequency governor to "
    "performance.",
    "major_faults": "Free memory, so that no pages are read from disk.",
}


def _remedy(interference: Interference, *, frozen: bool) -> str:
    """Return the remedy for the first flag that has one."""
    known = next((_REMEDIES[name] for name in interference["run_flags"] if name in _REMEDIES), None)
    return known or ("Measure longer for a narrower interval." if frozen else _PAUSE_REMEDY)


_PAUSE_REMEDY = "Measure on Linux or macOS, where worker processes can be paused."
