"""Computes metrics from the scores of labelled data: of one result, and of two on the same rows."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.evidence import metrics
from core.evidence.metrics import Floats, Integers
from core.store import Accuracy
from core.wire.errors import SpecError, StoreError, nearest
from core.wire.plain_data import plain

MOST_SCORE_BYTES = 1 << 30  # of all arrays of a result, unpacked: 268,000 samples of 1,000 classes
DELTA = 0.01  # default non-inferiority margin: one row in a hundred


def scores_of(accuracy: Accuracy) -> tuple[Floats, Integers]:
    """Return the probabilities [rows, classes] and the labels [rows] of a result.

    A row with a score that is not finite is all NaN.

    Raises:
        StoreError: the file of the scores is missing or damaged.
    """
    scores, labels = _kept(accuracy.scores_path, ("scores", "labels"))
    if not _fit(scores, labels, accuracy.reply["classes"]):
        raise _unreadable(accuracy.scores_path, "they do not fit the labels")
    found = metrics.probabilities(scores, logits=accuracy.reply["scores"] == "logits")
    return found, labels.astype(np.int64)


def _kept(path: str, names: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Arrays of a worker's file, which is not trusted: a few megabytes of it may unpack to many gigabytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(one.file_size for one in archive.infolist())
        if size > MOST_SCORE_BYTES:
            raise ValueError(f"they take {size:,} bytes, more than {MOST_SCORE_BYTES:,}")
        with np.load(path, allow_pickle=False) as kept:
            return [kept[name] for name in names]
    except Exception as error:  # of zipfile, zlib, tokenize and numpy; or no memory has this size
        raise _unreadable(path, str(error)) from None


def _fit(scores: npt.NDArray[Any], labels: npt.NDArray[Any], classes: int) -> bool:
    return (
        (scores.dtype.kind, scores.ndim, labels.ndim) == ("f", 2, 1)
        and labels.dtype.kind in "iu"
        and len(scores) == len(labels)
        and max(2, scores.shape[1]) == classes
        and bool(((labels >= 0) & (labels < classes)).all())
    )


def _unreadable(path: str, why: str) -> StoreError:
    return StoreError(
        f"The scores cannot be read from `{path}`: {why}.",
        hint="Measure the accuracy again, of fewer samples where they are too large.",
    )


def summary(
    accuracy: Accuracy, positive: int | str | None = None, threshold: float | None = None
) -> dict[str, Any]:
    """Return every metric of a result with its 95 % interval, as plain JSON data.

    A share is {"value", "low", "high", "count", "total"}; "value" is None if no row counts.

    Args:
        accuracy: from `measure_accuracy`.
        positive: number or name of the positive class; None: that of the dataset, else the second of two
            classes.
        threshold: probability from which a row counts as positive; None: that of the dataset.

    Raises:
        SpecError: there is no such class, or the threshold is no probability.
        StoreError: the scores are missing.
    """
    probabilities, labels = scores_of(accuracy)
    reply = accuracy.reply
    classes, names = reply["classes"], reply["class_names"]
    predicted = metrics.predictions(probabilities)
    return {
        "rows": reply["rows"],
        "classes": classes,
        "class_names": names,
        "not_finite": reply["not_finite"],
        "accuracy": plain(metrics.share_of(predicted == labels)),
        "top5": plain(metrics.share_of(metrics.top_k(probabilities, labels, 5))) if classes > 5 else None,
        "roc_auc": plain(metrics.macro_auc(probabilities, labels)),
        "confusion": metrics.confusion(labels, predicted, classes).tolist(),
        "per_class": [
            {"name": names[one.number], **one.to_dict()}
            for one in metrics.per_class(probabilities, labels, predicted)
        ],
        "positive": _positive(accuracy, probabilities, labels, (positive, threshold)),
        "missing_classes": [names[one] for one in range(classes) if not (labels == one).any()],
        "calibration": reply.get("calibration"),
        "calibration_note": calibration_note(reply),
        "notes": reply["notes"],
    }


def calibration_rows(scores_path: str, hashes: str) -> wire.CalibrationRows:
    """Count the scored rows that were also used to calibrate the model.

    Args:
        scores_path: of the result.
        hashes: of the calibration rows, 16 digits each; empty: not known.

    Raises:
        StoreError: the file is damaged.
    """
    seen = {int(hashes[start : start + 16], 16) for start in range(0, len(hashes), 16)}
    rows = _kept(scores_path, ("rows",))[0].tolist()
    known = bool(seen and rows)
    return {
        "rows": len(hashes) // 16 or None,
        "shared": sum(one in seen for one in rows) if known else None,
    }


def calibration_note(reply: wire.AccuracyReply) -> str:
    """Return a warning if scored rows were also used to calibrate the model, or may have been; else empty."""
    found = reply.get("calibration")
    if found is None or found["shared"] == 0:
        return ""
    if found["shared"] is None:
        return (
            "It is unknown whether this model was calibrated on some of the scored samples. On unseen "
            "samples the accuracy may be lower. Create the variant and measure it again."
        )
    return (
        f"{found['shared']:,} of the {reply['rows']:,} scored samples were also used to calibrate this "
        "model, so on unseen samples the accuracy may be lower. Score other samples, or calibrate on a "
        "share of the data."
    )


def _positive(
    accuracy: Accuracy,
    probabilities: Floats,
    labels: Integers,
    asked: tuple[int | str | None, float | None],
) -> dict[str, Any] | None:
    """Metrics of the positive class against all others at the threshold; None: no positive class."""
    number, threshold = decision(accuracy, *asked)
    if number is None:
        return None
    found = metrics.at_threshold(probabilities[:, number], labels == number, threshold)
    return {
        "class": number,
        "name": accuracy.reply["class_names"][number],
        **found.to_dict(),
        "roc_auc": plain(metrics.roc_auc(probabilities[:, number], labels == number)),
    }


def decision(
    accuracy: Accuracy, positive: int | str | None = None, threshold: float | None = None
) -> tuple[int | None, float]:
    """Return the number of the positive class (None: there is none) and the effective threshold.

    Raises:
        SpecError: there is no such class, or the threshold is no probability.
    """
    if threshold is None:
        threshold = float(accuracy.dataset.get("threshold", 0.5))
    if not 0.0 <= threshold <= 1.0:
        raise SpecError(
            f"The threshold is a probability from 0 to 1, but got {threshold}.", hint="Use for example 0.5."
        )
    if positive is None:
        positive = accuracy.dataset.get("positive_class")
    names = accuracy.reply["class_names"]
    if positive is None:
        return (1 if len(names) == 2 else None), threshold
    return class_number(positive, names), threshold


def class_number(positive: int | str, names: list[str]) -> int:
    """Return the number of the class that `positive` names.

    Raises:
        SpecError: there is none.
    """
    if positive in names:
        return names.index(str(positive))
    if str(positive).isdecimal() and int(positive) < len(names):
        return int(positive)
    raise SpecError(
        f"There is no class `{str(positive)[:80]}` among the {len(names)}.{nearest(str(positive), names)}",
        hint=f"Give a number from 0 to {len(names) - 1}, or one of {', '.join(names[:10])}.",
    )


def roc(accuracy: Accuracy, positive: int | str) -> metrics.Roc | None:
    """Return the ROC curve of one class against the rest; None: only one of the two has rows."""
    probabilities, labels = scores_of(accuracy)
    number = class_number(positive, accuracy.reply["class_names"])
    return metrics.roc_curve(probabilities[:, number], labels == number)


def curve(accuracy: Accuracy, positive: int | str) -> metrics.Curve:
    """Return sensitivity, specificity and precision of one class over thresholds from 0 to 1."""
    probabilities, labels = scores_of(accuracy)
    return metrics.threshold_curve(
        probabilities, labels, class_number(positive, accuracy.reply["class_names"])
    )


# --- two results --------------------------------------------------------------------------------------------


def compare(
    a: Accuracy,
    b: Accuracy,
    delta: float = DELTA,
    *,
    positive: int | str | None = None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Compare `b` (the candidate) with `a` (the reference) on the same rows, as plain JSON data.

    "accuracy", and with a positive class "sensitivity" and "specificity" at the threshold, are each
    `Judgement.to_dict()` with a sentence in "text"; "roc_auc" is the paired difference of the areas.
    "agreement" is the share of rows for which both predict the same class.

    Args:
        a: reference, for example the original model.
        b: candidate, for example a quantized variant.
        delta: non-inferiority margin, a share.
        positive: as for `summary`; None: that of the reference's dataset.
        threshold: likewise.

    Raises:
        SpecError: the two were not measured on the same rows and classes, or `delta` is no share below 1.
        StoreError: scores are missing.
    """
    if not 0.0 <= delta < 1.0:
        raise SpecError(
            f"`delta` is a loss from 0 to below 1, but got {delta}.", hint="Use for example 0.01 for 1 %."
        )
    (one, labels), (other, same) = scores_of(a), scores_of(b)
    _check_pair(a, b, (labels, same))
    before, after = metrics.predictions(one), metrics.predictions(other)
    number, level = decision(a, positive, threshold)
    found: dict[str, Any] = {
        "reference": {"id": a.id, "model": a.model_name},
        "candidate": {"id": b.id, "model": b.model_name},
        "rows": a.reply["rows"],
        "delta": delta,
        "agreement": plain(metrics.share_of((before == after) & (before >= 0))),
        "accuracy": _judged("accuracy", before == labels, after == labels, delta),
        "positive": None,
        "sensitivity": None,
        "specificity": None,
        "roc_auc": None,
    }
    if number is not None:
        found |= _compared_class(one[:, number], other[:, number], labels == number, (level, delta))
        name = a.reply["class_names"][number]
        found["positive"] = {"class": number, "name": name, "threshold": level}
    return found


def _compared_class(
    one: Floats, other: Floats, positives: metrics.Booleans, limits: tuple[float, float]
) -> dict[str, Any]:
    level, delta = limits
    before, after = (metrics.right_at(scores, positives, level) for scores in (one, other))
    area = metrics.auc_difference(one, other, positives)
    return {
        "sensitivity": _judged("sensitivity", before[positives], after[positives], delta),
        "specificity": _judged("specificity", before[~positives], after[~positives], delta),
        "roc_auc": {"difference": area.value, "low": area.low, "high": area.high},
    }


def _judged(what: str, before: metrics.Booleans, after: metrics.Booleans, delta: float) -> dict[str, Any]:
    judged = metrics.not_worse(metrics.paired(before, after), delta)
    return {**judged.to_dict(), "text": _words(what, judged)}


def _words(what: str, judged: metrics.Judgement) -> str:
    """The verdict in a sentence, with the difference in percentage points and the rows needed to decide."""
    rows = {"sensitivity": "samples of the class", "specificity": "samples of other classes"}.get(
        what, "samples"
    )
    if judged.difference is None:
        return f"No sample counts for the {what}."
    points = f"{100 * judged.delta:g} point{'s' * (judged.delta != 0.01)}"
    verdict = {
        "NOT_WORSE": f"Not worse by more than {points}",
        "WORSE": f"Worse by more than {points}",
        "UNDECIDED": f"Undecided whether worse by more than {points}",
    }[judged.verdict]
    low, high = (100 * bound for bound in (judged.low, judged.high))
    text = (
        f"{verdict}: the {what} differs by {100 * judged.difference:+.2f} points ({low:+.2f} to {high:+.2f})"
    )
    if judged.verdict != "UNDECIDED":
        return f"{text}."
    if judged.rows_needed is None:
        return f"{text}; the difference is too close to the limit for any number of samples to decide."
    return f"{text}; about {judged.rows_needed:,} {rows} would decide it, if the shares stay the same."


def _check_pair(a: Accuracy, b: Accuracy, labels: tuple[Integers, Integers]) -> None:
    for name, what in (("dataset_sha256", "data"), ("classes", "number of classes"), ("rows", "rows")):
        if a.reply[name] != b.reply[name]:  # type: ignore[literal-required]
            raise SpecError(
                f"`{a.model_name}` and `{b.model_name}` were not measured on the same {what}.",
                hint="Measure both on the same dataset, split and limit.",
            )
    if not np.array_equal(*labels):
        raise SpecError(
            f"`{a.model_name}` and `{b.model_name}` were not measured with the same labels.",
            hint="Measure both on the same dataset.",
        )
