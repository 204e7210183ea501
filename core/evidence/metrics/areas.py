"""The ROC curve and the area under it: ranking quality of a score, independent of a threshold. Pure.

Source of the intervals: E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson 1988.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from core.evidence.metrics.intervals import UNKNOWN, Booleans, Floats, Integers, Interval, Z, wilson
from core.evidence.metrics.pairs import newcombe_paired


@dataclass(frozen=True, slots=True, kw_only=True)
class Roc:
    """Points of a ROC curve from (0, 0) to (1, 1), thresholds falling; the first of them is infinite."""

    false_positive_rate: Floats
    true_positive_rate: Floats
    thresholds: Floats


def roc_curve(scores: Floats, positives: Booleans) -> Roc | None:
    """Return the corners of the ROC curve; None where one side has no finite row."""
    finite = np.isfinite(scores)
    scores, positives = scores[finite], positives[finite]
    count = int(np.count_nonzero(positives))
    if not 0 < count < len(positives):
        return None
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], positives[order]
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # of each run of equal scores
    found = np.cumsum(hits)[last]
    alarms = last + 1 - found
    corner = np.ones(len(last), np.bool_)
    if len(last) > 2:  # drop points on a straight line
        corner[1:-1] = (np.diff(found, 2) != 0) | (np.diff(alarms, 2) != 0)
    return Roc(
        false_positive_rate=np.append(0.0, alarms[corner] / (len(positives) - count)),
        true_positive_rate=np.append(0.0, found[corner] / count),
        thresholds=np.append(np.inf, ranked[last][corner]),
    )


def roc_auc(scores: Floats, positives: Booleans) -> Interval:
    """Return the area under the ROC curve with DeLong's interval; rows that are not finite rank worst.

    The area is the share of pairs of a positive and a negative row in which the positive one has the higher
    score; ties count half. Unknown where one side has no row.
    """
    placed = _placements(_ranked(scores, positives), positives)
    return UNKNOWN if placed is None else _area(*placed, pairs=_disjoint_pairs(positives))


def macro_auc(scores: Floats, labels: Integers) -> Interval:
    """Return the mean of the one-versus-rest areas of the classes that have rows and are not all rows.

    With two classes the two areas are equal. The interval accounts for the rows that all areas share.
    """
    areas: list[float] = []
    influences: list[Floats] = []
    pairs: list[int] = []
    for number in range(scores.shape[1]):
        positives = labels == number
        placed = _placements(_ranked(scores[:, number], positives), positives)
        if placed is not None:
            areas.append(placed[0])
            influences.append(placed[1])
            pairs.append(_disjoint_pairs(positives))
    if not areas:
        return UNKNOWN
    return _area(float(np.mean(areas)), np.mean(influences, axis=0), pairs=min(pairs))


def auc_difference(one: Floats, other: Floats, positives: Booleans) -> Interval:
    """Return how much larger the area of `other` is than that of `one`, both on the same rows (DeLong).

    If different scores show no variance, because both separate the rows perfectly, the independent pairs of a
    positive and a negative row bound the difference. Unknown where one side has no row.
    """
    before = _placements(_ranked(one, positives), positives)
    after = _placements(_ranked(other, positives), positives)
    if before is None or after is None:
        return UNKNOWN
    difference = after[0] - before[0]
    half = Z * math.sqrt(float(np.sum((after[1] - before[1]) ** 2)))
    if half == 0.0 and not np.array_equal(one, other, equal_nan=True):
        _, low, high = newcombe_paired(_disjoint_pairs(positives), 0, 0, 0)
        return Interval(value=difference, low=low, high=high)
    return Interval(value=difference, low=max(-1.0, difference - half), high=min(1.0, difference + half))


def _ranked(scores: Floats, positives: Booleans) -> Floats:
    """Return finite scores: a row that is not finite gets the worst score of its side."""
    finite = np.isfinite(scores)
    worst = np.where(positives, -np.finfo(np.float64).max, np.finfo(np.float64).max)
    return np.where(finite, scores, worst)


def _placements(scores: Floats, positives: Booleans) -> tuple[float, Floats] | None:
    """Return the area and the influence of each row; squared influences sum to DeLong's variance.

    Source: X. Sun and W. Xu 2014, who compute the placement of a row from its mid-ranks.
    """
    yes, no = scores[positives], scores[~positives]
    if not len(yes) or not len(no):
        return None
    above = _midranks(no, yes) / len(no)  # share of negatives below each positive
    below = 1.0 - _midranks(yes, no) / len(yes)  # share of positives above each negative
    area = float(above.mean())
    influence = np.zeros(len(scores))
    influence[positives] = (above - area) / math.sqrt(len(yes) * max(1, len(yes) - 1))
    influence[~positives] = (below - area) / math.sqrt(len(no) * max(1, len(no) - 1))
    return area, influence


def _midranks(sample: Floats, values: Floats) -> Floats:
    """Return how many of `sample` are below each of `values`; ties count half."""
    ordered = np.sort(sample)
    left, right = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return np.asarray((left + right) / 2.0, np.float64)


def _disjoint_pairs(positives: Booleans) -> int:
    count = int(np.count_nonzero(positives))
    return min(count, len(positives) - count)


def _area(area: float, influence: Floats, *, pairs: int) -> Interval:
    """Return the area with its interval, computed on the logit scale so that it stays within 0 and 1.

    If the rows are separated perfectly, or are too few to show a variance, DeLong's interval has no width.
    Then each positive row with a negative row of its own is one independent pair, and Wilson's interval of
    that number of pairs is used.
    """
    error = math.sqrt(float(np.sum(influence**2)))
    if error == 0.0 or pairs < 2 or not 0.0 < area < 1.0:
        low, high = wilson(area * pairs, pairs)
        return Interval(value=area, low=low, high=high)
    centre = math.log(area / (1.0 - area))
    half = Z * error / (area * (1.0 - area))
    low, high = (0.5 * (1.0 + math.tanh((centre + sign * half) / 2.0)) for sign in (-1, 1))  # the logistic
    return Interval(value=area, low=min(low, area), high=max(high, area))
