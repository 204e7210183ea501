"""Which points of stored load tests speak for a target under load, and what they say. Pure.

A target asks for Poisson arrivals of requests that have the configuration's batch size. A point at the
target's rate decides it. One at a higher rate decides it if it passed, one at a lower rate if it failed,
because less traffic waits no longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.load.load_types import LimitResult, LoadResult, LoadVerdict, Point
from core.spec.load import MOST_DURATION_S, MOST_REQUESTS, LoadSpec, LoadTarget, load_from_dict
from core.wire.errors import SpecError

SAME_RATE = 1e-5  # relative: a target is written with six digits
LEAST_S = 30.0  # counted seconds of a load test for a target
MOST_S = 600.0  # longer only where a pass needs more requests
REQUESTS = 30.0  # requests of a first test, over the share that may be slower: 3,000 for p99
# Requests that pass if none of them is slower: (1 - share)^n <= 5 %. Source: the exact binomial bound.
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """All runs of a configuration at one rate in a stored load test."""

    trial: str  # ID
    point: Point
    asked: tuple[str, ...] = ()  # limits of the load test
    reason: str = ""  # why a run ended early; empty: none did
    busy: str = ""  # background load of its runs, in words; empty: none

    @property
    def is_measurement(self) -> bool:
        """Whether its runs were served to their ends, or saturated, and the harness added little."""
        harness = self.point["harness"]
        whole = self.point["outcome"] in ("complete", "saturated")
        return whole and (harness is None or harness["accepted"])


def points_of(
    result: LoadResult, trial: str, *, is_it: Callable[[Mapping[str, Any], int | None], bool]
) -> Iterator[LoadPoint]:
    """Yield the points of a load test that speak for targets of a configuration.

    Probes of a search for the highest rate, other arrivals, requests of several sizes, and runs beside
    another model do not.

    Args:
        result: of the load test.
        trial: its ID.
        is_it: whether the plain spec of a configuration is that configuration, with requests of so many
            samples; None: of the spec's batch size.
    """
    try:
        question = load_from_dict(result["question"])
    except SpecError:  # stored by another version
        return
    if not _is_plain(question):
        return
    rows = next(iter(question.rows), None)
    for point in result["points"]:
        configuration = result["configurations"][point["configuration"]]
        if not point["fresh"] or configuration["error"] or not is_it(configuration["spec"], rows):
            continue
        runs = [result["runs"][index] for index in point["runs"]]
        yield LoadPoint(
            trial=trial,
            point=point,
            asked=tuple(one.text for one in question.limits),
            reason=next((one["reason"] for one in runs if one["reason"]), ""),
            busy=next((busy["words"] for one in runs if (busy := one.get("busy"))), ""),
        )


def _is_plain(question: LoadSpec) -> bool:
    return (
        question.question in ("traffic", "limit")
        and question.arrivals.process == "poisson"
        and len(question.rows) < 2
        and not question.dims
        and question.timeout_s is None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one point says of a target."""

    found: LoadPoint
    verdict: LoadVerdict
    limit: LimitResult | None  # None: it saturated before anything could be counted
    exact: bool  # at the target's own rate

    @property
    def decides(self) -> bool:
        """Whether it passes or fails."""
        return self.verdict != "UNDECIDED"


def judged(target: LoadTarget, found: LoadPoint) -> Judged | None:
    """Return what a point says of a target; None: nothing."""
    rate, text = found.point["rate_per_s"], target.limit.text
    limit = next((one for one in found.point["limits"] if one["limit"] == text), None)
    if limit is not None:
        verdict = limit["verdict"]
    elif text in found.asked and found.point["outcome"] == "saturated":
        verdict = "FAIL"
    else:
        return None
    exact = math.isclose(rate, target.rate, rel_tol=SAME_RATE)
    if not exact and verdict != ("PASS" if rate > target.rate else "FAIL"):
        return None
    return Judged(found=found, verdict=verdict, limit=limit, exact=exact)


def newest(target: LoadTarget, points: Sequence[LoadPoint]) -> list[Judged]:
    """Return what the points say of a target, in the order in which they count.

    Args:
        target: the target.
        points: of load tests, newest first.

    Returns:
        Of the newest test what decides at the target's rate, then what decides at another rate, then what is
        undecided; then of the next test.
    """
    order = list(dict.fromkeys(one.trial for one in points))
    found = [said for one in points if (said := judged(target, one)) is not None]
    return sorted(found, key=lambda one: (order.index(one.found.trial), not one.decides, not one.exact))


def least_requests(share: float) -> int:
    """Return how many independent requests pass a limit if none of them is slower, at 95 % confidence.

    Args:
        share: of the requests that may be slower, 0 to 1.

    >>> least_requests(0.01)
    299
    """
    return math.ceil(math.log(1 - _CONFIDENCE) / math.log1p(-share))


def seconds_needed(target: LoadTarget, points: Sequence[LoadPoint] = ()) -> float:
    """Return the counted seconds of a load test that may decide a target.

    Args:
        target: the target.
        points: of earlier load tests, newest first: after one that stayed undecided, twice its time.
    """
    share = target.limit.share
    wanted_s = min(MOST_S, max(LEAST_S, REQUESTS / share / target.rate))
    found = next(iter(newest(target, points)), None)
    if found is not None and found.exact and not found.decides and found.found.is_measurement:
        wanted_s = max(wanted_s, 2 * found.found.point["requests"] / target.rate)
    wanted_s = max(wanted_s, 2 * least_requests(share) / target.rate)
    return float(min(math.ceil(wanted_s), MOST_DURATION_S, math.floor(MOST_REQUESTS / target.rate)))
