"""Reads a stored search; describes configurations by their difference from the ORT default.

Pure. A stored configuration lists its changes against the start of the search, but its ratio is against the
ORT default. All outputs read searches through this module, so that settings and ratio match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.evidence.evaluations import Evaluation, evaluation_from_dict
from core.evidence.quality import quality_of_search
from core.evidence.result_types import FailureGroup, SearchResult
from core.spec import TrialSpec, spec_from_dict
from core.spec.space import changes_from_default, reference
from core.store import StudyRecord
from core.wire.errors import SpecError

Tell = Callable[[Mapping[str, Any]], dict[str, Any]]


def answer_of(record: StudyRecord) -> SearchResult | None:
    """Return the answer with its configurations as differences from the ORT default; None: no answer."""
    answer: Any = record.answer
    if answer is None:
        return None
    tell = _tell(record)

    def whole(one: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, "changes": tell(one["changes"])}

    winner = answer["winner"]
    load: Any = answer.get("load")
    found: Any = {
        **answer,
        "winner": None if winner is None else whole(winner),
        "others": [whole(one) for one in answer.get("others", ())],
        "front": [whole(one) for one in answer.get("front", ())],
        **(
            {} if load is None else {"load": {**load, "tested": [_told(one, tell) for one in load["tested"]]}}
        ),
        "failures": failures(evaluations_of(record)),
        "grade": rated.grade.value if (rated := quality_of_search(answer)) is not None else None,
    }
    return found  # type: ignore[no-any-return] # as the search has stored it


def _told(one: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return a configuration that was run under load, as its difference from the ORT default."""
    return {**one, "changes": {} if one["role"] == "default" else tell(one["changes"])}


def evaluations_of(record: StudyRecord) -> list[Evaluation]:
    """Return the evaluations of a search as differences from the ORT default, without A/A controls."""
    tell = _tell(record)
    found = map(evaluation_from_dict, record.tried)
    return [replace(one, changes=tell(one.changes)) for one in found if not one.twin]


def trials_of(record: StudyRecord) -> list[dict[str, Any]]:
    """Return all evaluations and A/A controls as plain data, as differences from the ORT default."""
    tell = _tell(record)
    return [{**one, "changes": tell(one["changes"])} for one in record.tried]


def measured_default(record: StudyRecord) -> TrialSpec:
    """Return the ORT default as the search measured it, the reference of its ratios.

    Raises:
        SpecError: stored by a version with settings that this version does not know.
    """
    measured: Any = (record.answer or {}).get("default") or {}
    if measured.get("spec"):
        return spec_from_dict(measured["spec"])
    return reference(spec_from_dict(record.spec))


def _tell(record: StudyRecord) -> Tell:
    """Return a function from changes against the start to differences from the measured ORT default."""
    try:
        start, default = spec_from_dict(record.spec), measured_default(record)
    except SpecError:
        return dict

    def tell(changes: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return changes_from_default(start, changes, default=default)
        except SpecError:
            return dict(changes)

    return tell


def failures(tried: Sequence[Evaluation]) -> list[FailureGroup]:
    """Group failures by reason, the most frequent first, with the settings that explain each.

    Args:
        tried: without A/A controls, as differences from the ORT default.
    """
    worked = [one for one in tried if not one.failed]
    groups: dict[str, list[Evaluation]] = {}
    for one in tried:
        if one.failed:
            groups.setdefault(re.sub(r"\d+", "#", one.failed), []).append(one)
    found: list[FailureGroup] = [
        {"count": len(group), "reason": group[0].failed, "settings": _shared(group, worked)}
        for group in groups.values()
    ]
    return sorted(found, key=lambda one: -one["count"])


def _shared(group: Sequence[Evaluation], worked: Sequence[Evaluation]) -> dict[str, Any]:
    """Values that all of a group have, and no working configuration has."""

    def has(one: Evaluation, name: str, value: Any) -> bool:
        return name in one.changes and bool(one.changes[name] == value)

    return {
        name: value
        for name, value in group[0].changes.items()
        if all(has(one, name, value) for one in group) and not any(has(one, name, value) for one in worked)
    }
