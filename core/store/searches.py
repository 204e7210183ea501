"""Stored search: its question, its evaluations so far, and its answer. Pure: no SQL."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

from core.evidence.measurement import TrialState
from core.store.rows import Damage, Row, text, verified
from core.wire.errors import ErrorRecord

_JSON = ("question", "spec", "tried", "answer", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """One search. Its id is the study of its comparisons and trials."""

    id: str
    state: TrialState
    question: dict[str, Any]  # `Question` as plain data
    spec: dict[str, Any]  # fixed settings and protocol
    model_name: str
    model_sha256: str  # content of the model
    created_at: float  # seconds since the epoch
    owner: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    wall_s: float = 0.0  # time spent so far, including before interruptions
    tried: list[dict[str, Any]] = field(default_factory=list)  # `Evaluation` as plain data, in order
    answer: dict[str, Any] | None = None  # `SearchResult`; None: not yet
    error: ErrorRecord | None = None
    fingerprint: str = ""  # of the machine


FIELDS = tuple(one.name for one in fields(StudyRecord))


def columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return fields as SQLite takes them."""
    assert set(values) <= set(FIELDS), sorted(values)
    return {
        name: text(value) if name in _JSON and value is not None else value for name, value in values.items()
    }


def study(row: Row) -> StudyRecord:
    """Return the record of a row; raises `Damage` if the row differs from what was written."""
    plain = [name for name in FIELDS if name not in _JSON]
    values = verified(row, "studies", plain)
    try:
        read: dict[str, Any] = {name: None if row[name] is None else json.loads(row[name]) for name in _JSON}
    except (ValueError, TypeError, RecursionError):
        raise Damage("a part of it cannot be read") from None
    kinds = {"question": dict, "spec": dict, "tried": list}
    if not all(isinstance(read[name], kind) for name, kind in kinds.items()):
        raise Damage("a part of it makes no sense")
    return StudyRecord(**values, **read)
