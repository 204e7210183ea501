"""Stored accuracy of one configuration of a model on labelled data. Pure: no SQL."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from core import wire
from core.store.rows import Damage, Row, text, verified

_JSON = ("spec", "dataset", "reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Scores of one model and configuration on one dataset; every metric is computed from them."""

    id: str
    key: str  # equal for the same session on the same data
    model_sha256: str  # content of the model
    model_name: str
    spec: dict[str, Any]  # as in a YAML file, with the data
    dataset: dict[str, Any]  # as in a YAML file
    reply: wire.AccuracyReply
    scores_path: str  # `.npz` with `scores` [samples, classes] and `labels` [samples]
    created_at: float  # seconds since the epoch
    fingerprint: str = ""  # of the machine; empty: not known, so never reused

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return asdict(self)


def columns(one: Accuracy) -> dict[str, Any]:
    """Return the fields as SQLite takes them."""
    return {name: text(value) if name in _JSON else value for name, value in asdict(one).items()}


def accuracy(row: Row) -> Accuracy:
    """Return the record of a row; raises `Damage` if the row differs from what was written."""
    plain = [one.name for one in fields(Accuracy) if one.name not in _JSON]
    values = verified(row, "accuracies", plain)
    try:
        read = {name: json.loads(row[name]) for name in _JSON}
    except (ValueError, TypeError, RecursionError):
        raise Damage("a part of it cannot be read") from None
    if not all(isinstance(one, dict) for one in read.values()):
        raise Damage("a part of it makes no sense")
    return Accuracy(**values, **read)
