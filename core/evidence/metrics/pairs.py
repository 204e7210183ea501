"""Comparison of two models on the same rows: difference, interval, non-inferiority. Pure.

Sources: R. G. Newcombe 1998, method 10 (difference of two shares of the same rows); Q. McNemar 1947, in its
exact form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from core.evidence.metrics.intervals import Booleans, Share, wilson
from core.wire.plain_data import plain

Verdict = Literal["NOT_WORSE", "WORSE", "UNDECIDED"]

MOST_ROWS = 1_000_000_000  # beyond any labelled dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Numbers of rows that both, one or neither of two models predict correctly."""

    both: int
    only_reference: int
    only_candidate: int
    neither: int

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return self.both + self.only_reference + self.only_candidate + self.neither


def paired(reference: Booleans, candidate: Booleans) -> Paired:
    """Count the rows by which models predict them correctly."""
    return Paired(
        both=int(np.count_nonzero(reference & candidate)),
        only_reference=int(np.count_nonzero(reference & ~candidate)),
        only_candidate=int(np.count_nonzero(~reference & candidate)),
        neither=int(np.count_nonzero(~reference & ~candidate)),
    )


def mcnemar(b: int, c: int) -> float:
    """Return the exact two-sided p-value of McNemar's test.

    Args:
        b: rows that only one model predicts correctly.
        c: rows that only the other one does.
    """
    n, fewer = b + c, min(b, c)
    if b == c:
        return 1.0
    whole = math.lgamma(n + 1) - n * math.log(2)
    tail = math.fsum(math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1)) for k in range(fewer + 1))
    return min(1.0, 2.0 * tail)


def newcombe_paired(
    both: float, only_first: float, only_second: float, neither: float
) -> tuple[float, float, float]:
    """Return the difference of two shares of the same rows, the second less the first, with its interval.

    Newcombe's method 10: Wilson's intervals of the two shares, combined by their correlation, with a
    continuity correction where it is positive.

    Args:
        both: rows that both models predict correctly.
        only_first: rows that only the first does.
        only_second: rows that only the second does.
        neither: all other rows. The total is at least one row.
    """
    n = both + only_first + only_second + neither
    first, second = both + only_first, both + only_second
    one, other = first / n, second / n
    (low_one, high_one), (low_other, high_other) = wilson(first, n), wilson(second, n)
    phi = _phi(both, only_first, only_second, neither)
    difference = (only_second - only_first) / n
    down = _joined(other - low_other, high_one - one, phi)
    up = _joined(high_other - other, one - low_one, phi)
    return difference, max(-1.0, difference - down), min(1.0, difference + up)


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2.0 * phi * one * other + other * other))


def _phi(both: float, only_first: float, only_second: float, neither: float) -> float:
    margins = (both + only_first) * (only_second + neither) * (both + only_second) * (only_first + neither)
    if margins <= 0:
        return 0.0
    agreement = both * neither - only_first * only_second
    if agreement > 0:
        agreement = max(agreement - (both + only_first + only_second + neither) / 2.0, 0.0)
    return agreement / math.sqrt(margins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a candidate is worse than a reference by more than `delta`, on the same rows."""

    paired: Paired
    delta: float
    reference: Share
    candidate: Share
    difference: float | None  # of the shares, candidate minus reference; None: no rows
    low: float
    high: float
    p: float  # of McNemar's exact test
    verdict: Verdict
    rows_needed: int | None  # for a decision, if the shares stay the same; None: no number of rows is enough

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data; the four counts and the difference are on one level."""
        return {
            **plain(self.paired),
            "rows": self.paired.rows,
            "delta": self.delta,
            "reference": plain(self.reference),
            "candidate": plain(self.candidate),
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "p": self.p,
            "verdict": self.verdict,
            "rows_needed": self.rows_needed,
        }


def not_worse(counts: Paired, delta: float) -> Judgement:
    """Test non-inferiority: whether the candidate loses more than `delta` against the reference.

    NOT_WORSE: the whole interval of the difference is at or above -delta. WORSE: all of it is below.
    UNDECIDED: it includes both.

    Args:
        counts: from `paired`.
        delta: non-inferiority margin, 0 or more.
    """
    b, c, n = counts.only_reference, counts.only_candidate, counts.rows
    if n == 0:
        none, bounds = Share.of(0, 0), (-1.0, 1.0)
        return Judgement(
            paired=counts,
            delta=delta,
            reference=none,
            candidate=none,
            difference=None,
            low=bounds[0],
            high=bounds[1],
            p=1.0,
            verdict="UNDECIDED",
            rows_needed=None,
        )
    difference, low, high = newcombe_paired(counts.both, b, c, counts.neither)
    return Judgement(
        paired=counts,
        delta=delta,
        reference=Share.of(counts.both + b, n),
        candidate=Share.of(counts.both + c, n),
        difference=difference,
        low=low,
        high=high,
        p=mcnemar(b, c),
        verdict=_verdict(low, high, delta),
        rows_needed=_rows_needed(counts, delta),
    )


def _verdict(low: float, high: float, delta: float) -> Verdict:
    if low >= -delta:
        return "NOT_WORSE"
    return "WORSE" if high < -delta else "UNDECIDED"


def _rows_needed(counts: Paired, delta: float) -> int | None:
    """Return the smallest number of rows at which the same shares would be decided."""

    def decided(rows: int) -> bool:
        scale = rows / counts.rows
        cells = (counts.both, counts.only_reference, counts.only_candidate, counts.neither)
        _, low, high = newcombe_paired(*(cell * scale for cell in cells))
        return _verdict(low, high, delta) != "UNDECIDED"

    return _fewest(decided)


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number for which `enough` holds, assuming that it holds for all larger ones."""
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST_ROWS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
