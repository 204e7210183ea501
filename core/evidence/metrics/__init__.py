"""Classification metrics and their intervals, from scores and labels. numpy and pure: no file, no clock.

Probabilities are float64 [rows, classes]; labels are class numbers from 0. A row that is not finite is NaN
throughout and counts as wrong. All intervals are 95 % intervals. `intervals` holds shares, `areas` the ROC
curve, `pairs` the comparison of two models on the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evidence.metrics.areas import Roc, auc_difference, macro_auc, roc_auc, roc_curve
from core.evidence.metrics.intervals import Booleans, Floats, Integers, Interval, Share, share_of, wilson
from core.evidence.metrics.pairs import Judgement, Paired, mcnemar, newcombe_paired, not_worse, paired
from core.wire.plain_data import plain

__all__ = [
    "AtThreshold",
    "Booleans",
    "ClassMetrics",
    "Curve",
    "Floats",
    "Integers",
    "Interval",
    "Judgement",
    "Paired",
    "Roc",
    "Share",
    "at_threshold",
    "auc_difference",
    "confusion",
    "macro_auc",
    "mcnemar",
    "newcombe_paired",
    "not_worse",
    "paired",
    "per_class",
    "predictions",
    "probabilities",
    "right_at",
    "roc_auc",
    "roc_curve",
    "share_of",
    "sigmoid",
    "softmax",
    "threshold_curve",
    "top_k",
    "wilson",
]

CURVE_STEPS = 200  # steps of a curve's thresholds from 0 to 1

# --- scores -------------------------------------------------------------------------------------------------


def sigmoid(logits: npt.ArrayLike) -> Floats:
    """Return 1 / (1 + exp(-x)) without overflow."""
    values = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0, 1.0, small) / (1.0 + small), np.float64)


def softmax(logits: npt.ArrayLike) -> Floats:
    """Return exp(x) over its sum along the last axis, without overflow."""
    values = np.asarray(logits, np.float64)
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float64)


def probabilities(scores: npt.ArrayLike, *, logits: bool) -> Floats:
    """Return probabilities [rows, classes]; rows with a NaN or an infinity become NaN throughout.

    Args:
        scores: [rows, classes]; a single column belongs to the second of two classes.
        logits: apply softmax to each row, or sigmoid to a single column; False: scores are probabilities.
    """
    found = np.array(scores, np.float64)
    finite = np.isfinite(found).all(axis=1)
    found[~finite] = 0.0
    if found.shape[1] == 1:
        second = sigmoid(found) if logits else found
        found = np.concatenate([1.0 - second, second], axis=1)
    elif logits:
        found = softmax(found)
    found[~finite] = np.nan
    return found


def predictions(scores: Floats) -> Integers:
    """Return the class with the highest score of each row; ties: the lowest class; -1: row not finite."""
    finite = np.asarray(np.isfinite(scores).all(axis=1))
    return np.where(finite, np.where(finite[:, None], scores, 0.0).argmax(axis=1), -1)


def top_k(scores: Floats, labels: Integers, k: int) -> Booleans:
    """Return whether each row's label is among its `k` highest scores; ties: the lower class comes first."""
    rows = np.arange(len(labels))
    own = scores[rows, labels][:, None]
    before = np.arange(scores.shape[1])[None, :] < labels[:, None]
    ahead = (scores > own) | ((scores == own) & before)
    return np.asarray((ahead.sum(axis=1) < k) & np.isfinite(scores).all(axis=1))


def confusion(labels: Integers, predicted: Integers, classes: int) -> Integers:
    """Return the confusion matrix: rows per class (first axis) and prediction (second axis).

    Rows without a prediction (-1) are in no column, so a line may sum to less than the rows of the class.
    """
    said = predicted >= 0
    found = np.bincount(labels[said] * classes + predicted[said], minlength=classes * classes)
    return np.asarray(found.reshape(classes, classes), np.int64)


# --- one class against the rest -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMetrics:
    """One class against all others, where the highest score decides."""

    number: int
    support: int  # rows of the class
    sensitivity: Share  # recall: share of the rows of the class that are predicted as it
    specificity: Share  # share of all other rows that are predicted as another class
    precision: Share  # share of the rows predicted as the class that belong to it
    roc_auc: Interval

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data; the key of the number is "class"."""
        return {
            "class": self.number,
            "support": self.support,
            "sensitivity": plain(self.sensitivity),
            "specificity": plain(self.specificity),
            "precision": plain(self.precision),
            "roc_auc": plain(self.roc_auc),
        }


def per_class(scores: Floats, labels: Integers, predicted: Integers) -> list[ClassMetrics]:
    """Return the metrics of each class against the rest."""
    return [_class_metrics(one, scores[:, one], labels == one, predicted) for one in range(scores.shape[1])]


def _class_metrics(number: int, scores: Floats, positives: Booleans, predicted: Integers) -> ClassMetrics:
    said = predicted == number
    return ClassMetrics(
        number=number,
        support=int(np.count_nonzero(positives)),
        sensitivity=share_of(said[positives]),
        specificity=share_of((~said & (predicted >= 0))[~positives]),
        precision=share_of(positives[said]),
        roc_auc=roc_auc(scores, positives),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AtThreshold:
    """One class against the rest, predicted where its probability is at least `threshold`."""

    threshold: float
    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int
    unread_positives: int  # rows of the class without a finite probability: wrong, without a prediction
    unread_negatives: int  # likewise of all other rows

    @property
    def sensitivity(self) -> Share:
        """Share of the rows of the class that are predicted as it."""
        missed = self.false_negatives + self.unread_positives
        return Share.of(self.true_positives, self.true_positives + missed)

    @property
    def specificity(self) -> Share:
        """Share of all other rows that are not predicted as the class."""
        wrong = self.false_positives + self.unread_negatives
        return Share.of(self.true_negatives, self.true_negatives + wrong)

    @property
    def precision(self) -> Share:
        """Share of the rows predicted as the class that belong to it."""
        return Share.of(self.true_positives, self.true_positives + self.false_positives)

    @property
    def accuracy(self) -> Share:
        """Share of all rows that are predicted correctly."""
        right = self.true_positives + self.true_negatives
        return Share.of(right, self.sensitivity.total + self.specificity.total)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        shares = ("sensitivity", "specificity", "precision", "accuracy")
        return {**plain(self), **{name: plain(getattr(self, name)) for name in shares}}


def at_threshold(scores: Floats, positives: Booleans, threshold: float) -> AtThreshold:
    """Predict each row by its probability of the class.

    Args:
        scores: [rows], the probability of the class.
        positives: [rows], whether the row belongs to the class.
        threshold: lowest probability that predicts the class.
    """
    read, right = np.isfinite(scores), right_at(scores, positives, threshold)
    cells = {
        "true_positives": right & positives,
        "false_positives": read & ~right & ~positives,
        "true_negatives": right & ~positives,
        "false_negatives": read & ~right & positives,
        "unread_positives": ~read & positives,
        "unread_negatives": ~read & ~positives,
    }
    return AtThreshold(
        threshold=threshold, **{name: int(np.count_nonzero(cell)) for name, cell in cells.items()}
    )


def right_at(scores: Floats, positives: Booleans, threshold: float) -> Booleans:
    """Return whether each row is predicted correctly; a row that is not finite never is."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(scores) & ((scores >= threshold) == positives))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Metrics over `thresholds`; NaN where no row contributes."""

    thresholds: Floats
    sensitivity: Floats
    specificity: Floats
    precision: Floats


def threshold_curve(scores: Floats, labels: Integers, positive: int) -> Curve:
    """Return sensitivity, specificity and precision of a class over thresholds from 0 to 1.

    Args:
        scores: probabilities [rows, classes].
        labels: [rows].
        positive: number of the class.
    """
    own, positives = scores[:, positive], labels == positive
    thresholds = np.linspace(0.0, 1.0, CURVE_STEPS + 1)
    finite = np.isfinite(own)
    yes, no = np.sort(own[finite & positives]), np.sort(own[finite & ~positives])
    found = len(yes) - np.searchsorted(yes, thresholds, side="left")
    spared = np.searchsorted(no, thresholds, side="left")
    alarms = len(no) - spared
    with np.errstate(invalid="ignore", divide="ignore"):
        return Curve(
            thresholds=thresholds,
            sensitivity=found / np.float64(np.count_nonzero(positives)),
            specificity=spared / np.float64(np.count_nonzero(~positives)),
            precision=found / (found + alarms).astype(np.float64),
        )
