"""The noise check: its result in one statement, for page and command line.

It is passed where numbers of this machine may be published. Pure: a self-test that was made on its own
(`evidence.self_test_result`) in, words and numbers out. What a
comparison would need is predicted from the noise of one pair, so it holds for the model of the self-test and
as long as the machine stays as it is. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.evidence.continuation import parts
from core.evidence.contrast import ASSUMED, predicted_units, sufficient_look
from core.evidence.quality import Quality, quality
from core.evidence.verdict import Grade
from core.spec.effort import EFFORTS, Effort

PUBLISHABLE = ("A", "B")
PUBLISH = "publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a comparison of two configurations needs here to be as precise as a preset asks."""

    precision: str  # name of the preset
    target: float  # relative half-width of its interval
    generations: int
    seconds: float  # of these generations
    fits: bool  # within the preset's generations and budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether this machine passes the noise check, and why. `headline` is the one statement of it."""

    publishable: bool
    headline: str
    grade: str
    reason: str
    remedy: str
    sigma: float | None  # of the log-ratio of one pair of blocks
    sigma_between: float | None  # of that of two fresh processes
    busy: str  # what makes this machine busy, in words; empty: nothing
    needs: tuple[Need, ...]  # of each preset; empty where the self-test was too short to tell

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def answer(self_test: Mapping[str, Any]) -> Answer:
    """Return what a self-test says about this machine.

    Args:
        self_test: `evidence.self_test_result`, or what the store kept of it.
    """
    needs = needed(self_test)
    found = quality_of(self_test)
    busy = (self_test.get("busy") or {}).get("words") or ""
    fits = any(one.fits for one in needs if one.precision == PUBLISH)
    publishable = found.grade in PUBLISHABLE and not busy and fits
    return Answer(
        publishable=publishable,
        headline=_headline(found, needs, busy=bool(busy), publishable=publishable),
        grade=found.grade,
        reason=self_test["grade_reason"],
        remedy=self_test["remedy"],
        sigma=self_test["sigma"],
        sigma_between=self_test.get("sigma_between"),
        busy=busy,
        needs=needs,
    )


def quality_of(self_test: Mapping[str, Any]) -> Quality:
    """Return how good a self-test is by the interval of its A/A control."""
    found = quality(self_test, [self_test])
    assert found is not None, "a self-test is always graded"
    return found


def needed(self_test: Mapping[str, Any]) -> tuple[Need, ...]:
    """Predict what each preset needs on this machine, from the noise of its generations.

    Empty for tests of versions that knew one pair of processes only.
    """
    within, between = self_test.get("sigma"), self_test.get("sigma_between")
    seconds, rounds = self_test.get("seconds_per_generation"), self_test.get("rounds_per_generation")
    if not within or between is None or not seconds or not rounds:
        return ()
    deviation = math.sqrt(between**2 + within**2 / rounds)
    return tuple(_need(one, deviation, seconds) for one in EFFORTS.values())


def _need(precision: Effort, deviation: float, generation_s: float) -> Need:
    looks = precision.looks
    units = predicted_units(deviation, precision.target, looks=parts(len(looks)), prior_df=ASSUMED.df)
    look = sufficient_look(units, looks)
    seconds = (look or units) * generation_s
    return Need(
        precision=precision.name,
        target=precision.target,
        generations=look or units,
        seconds=seconds,
        fits=look is not None and seconds <= precision.budget_s,
    )


def _headline(found: Quality, needs: Sequence[Need], *, busy: bool, publishable: bool) -> str:
    reasons = ", ".join(found.reasons)
    if publishable:
        return f"Noise check: passed ({reasons})"
    if found.grade == Grade.F:
        return f"Noise check: failed ({reasons})"
    return f"Noise check: not passed ({reasons}{'' if busy else _enough_for(found, needs)})"


def _enough_for(found: Quality, needs: Sequence[Need]) -> str:
    """What a machine that is not busy is quiet enough for."""
    fitting = [one.precision for one in needs if one.fits]
    if not needs:
        return "; the test was too short to tell more"
    if not fitting:
        return "; too noisy for any effort"
    return f"; enough for {'a ranking' if found.grade not in PUBLISHABLE else f'effort {fitting[-1]}'}"
