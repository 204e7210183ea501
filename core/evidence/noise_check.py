"""Result of the noise check: one statement for the page and the command line.

A machine passes if its numbers are fit to be published. Pure: takes a self-test (`result.self_test_result`),
returns texts and numbers. The time needed by a comparison is predicted from the noise of one pair, so it
holds for the model of the self-test and the current state of the machine. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.continuation import parts
from core.evidence.quality import Quality, quality
from core.evidence.speedup_interval import ASSUMED_PRIOR, predicted_launches, sufficient_analysis
from core.evidence.verdict import Grade
from core.spec.effort import EFFORTS, Effort

PUBLISHABLE = ("A", "B")
PUBLISH = "publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Launches and time that a comparison of two configurations needs here for the target of an effort."""

    precision: str  # name of the effort
    target: float  # relative half-width of its interval
    generations: int
    seconds: float  # time of these launches
    fits: bool  # whether they fit into the launches and budget of the effort


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseCheckResult:
    """Whether this machine passes the noise check, with the reason. `headline` is the text to display."""

    publishable: bool
    headline: str
    grade: str
    reason: str
    remedy: str
    sigma: float | None  # standard deviation of the log ratio of one pair of blocks
    sigma_between: float | None  # the same of two fresh processes
    busy: str  # text on the background load; empty: none
    needs: tuple[Need, ...]  # one per effort; empty: the self-test was too short


def evaluate(self_test: Mapping[str, Any]) -> NoiseCheckResult:
    """Return the result of the noise check from a self-test.

    Args:
        self_test: `result.self_test_result`, or its stored form.
    """
    needs = needed(self_test)
    found = quality_of(self_test)
    busy = (self_test.get("busy") or {}).get("words") or ""
    fits = any(one.fits for one in needs if one.precision == PUBLISH)
    publishable = found.grade in PUBLISHABLE and not busy and fits
    return NoiseCheckResult(
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
    """Return the quality of a self-test from the interval of its A/A control."""
    found = quality(self_test, [self_test])
    assert found is not None, "a self-test is always graded"
    return found


def needed(self_test: Mapping[str, Any]) -> tuple[Need, ...]:
    """Predict the launches and time that each effort needs on this machine, from the noise between launches.

    Empty for self-tests of early versions, which had one pair of processes only.
    """
    within, between = self_test.get("sigma"), self_test.get("sigma_between")
    seconds, rounds = self_test.get("seconds_per_generation"), self_test.get("rounds_per_generation")
    if not within or between is None or not seconds or not rounds:
        return ()
    deviation = math.sqrt(between**2 + within**2 / rounds)
    return tuple(_need(one, deviation, seconds) for one in EFFORTS.values())


def _need(precision: Effort, deviation: float, generation_s: float) -> Need:
    looks = precision.looks
    units = predicted_launches(
        deviation, precision.target, looks=parts(len(looks)), prior_df=ASSUMED_PRIOR.df
    )
    look = sufficient_analysis(units, looks)
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
    return f"Noise check: not passed ({reasons}{'' if busy else _sufficient_for(found, needs)})"


def _sufficient_for(found: Quality, needs: Sequence[Need]) -> str:
    """Return the suffix with the efforts that the noise of an idle machine permits."""
    fitting = [one.precision for one in needs if one.fits]
    if not needs:
        return "; the test was too short to tell more"
    if not fitting:
        return "; too noisy for any effort"
    return f"; enough for {'a ranking' if found.grade not in PUBLISHABLE else f'effort {fitting[-1]}'}"
