"""Converts records to rows and back, and computes checksums of rows.

Pure: dictionaries and dataclasses, no SQL. `samples.py` packs the raw measurements.

Each row has a checksum of its written content, because a digit changed on the disk gives a readable row with
wrong numbers. Raw measurements of older versions have none and are accepted if readable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, get_args

from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial, TrialKind, TrialState
from core.evidence.quality import regraded
from core.store import samples
from core.store.records import Accuracy, ModelRecord, StudyRecord, Visibility
from core.store.tags import Tags

# parts of a result that grow with the number of runs
RAW_FIELDS = ("latencies_s", "warmup_latencies_s", "unprofiled_latencies_s", "blocks", "profile", "requests")
PRUNED = "samples_pruned_at"  # key of a result: deletion time of its raw parts, seconds since the epoch

Record = TypeVar(
    "Record", bound=Trial | Comparison | Accuracy | StudyRecord | Tags | ModelRecord | Visibility
)
_One = TypeVar("_One")


class Damage(ValueError):
    """The content of a row differs from what was written."""


class Row(Protocol):
    """Interface of a row of SQLite."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the column `name`."""


# --- columns ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """How a column is read; one that is not in `_COLUMNS` is text."""

    kinds: tuple[type, ...] = (str,)  # of its value, decoded
    is_json: bool = True
    made: Callable[[Any], Any] = lambda value: value  # what the record holds


def _contestants(found: list[Any]) -> tuple[Contestant, ...]:
    try:
        return tuple(Contestant(**one) for one in found)
    except TypeError:
        raise Damage("its list of configurations is incomplete") from None


def _labels(found: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(one, str) for one in found):
        raise Damage("its labels make no sense")
    return tuple(found)


_LATER_ERRORS = dict.fromkeys(("mean_abs", "mean_rel", "cosine"))  # what results of format 2 lack


def _result(found: dict[str, Any] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    if isinstance(error := found.get("output_error"), dict):
        found = {**found, "output_error": {**_LATER_ERRORS, **error}}
    return regraded(found)


_OBJECT = _Column((dict,))
_OBJECT_OR_NONE = _Column((dict, type(None)))
_LIST = _Column((list,))
_NUMBER = _Column((int, float), is_json=False)
_NUMBER_OR_NONE = _Column((int, float, type(None)), is_json=False)
_SWITCH = _Column((int,), is_json=False, made=bool)
_TEXT = _Column(is_json=False)
_COLUMNS: Mapping[str, _Column] = {
    **dict.fromkeys(("spec", "protocol", "dataset", "reply", "question", "info", "details"), _OBJECT),
    **dict.fromkeys(("error", "answer"), _OBJECT_OR_NONE),
    "result": _Column((dict, type(None)), made=_result),
    **dict.fromkeys(("warnings", "tried"), _LIST),
    "contestants": _Column((list,), made=_contestants),
    "labels": _Column((list,), made=_labels),
    **dict.fromkeys(("created_at", "wall_s"), _NUMBER),
    **dict.fromkeys(("started_at", "finished_at"), _NUMBER_OR_NONE),
    **dict.fromkeys(("starred", "archived", "private"), _SWITCH),
}


@dataclass(frozen=True)
class Table(Generic[Record]):
    """One table: its records, and the columns that its checksum covers, in order.

    Never edit the covered columns: a checksum of others needs another version number as its prefix. The owner
    process (`process`) is not covered.
    """

    name: str
    noun: str
    kind: type[Record]
    covered: tuple[str, ...] = ()  # none: rows have no checksum

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Names of the record's fields, each a column."""
        return tuple(one.name for one in fields(self.kind))

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields of a record as SQLite takes them."""
        assert set(values) <= set(self.fields), sorted(values)
        return {
            name: text(value) if value is not None and _COLUMNS.get(name, _TEXT).is_json else value
            for name, value in values.items()
        }

    def read(self, row: Row) -> Record:
        """Return the record of a row; the result of a trial lacks its raw measurements.

        Raises:
            Damage: the checksum does not match, or there is none and the row cannot be read.
        """
        if self.covered:
            self._check(row)
        try:
            values = {name: _decoded(row[name], _COLUMNS.get(name, _TEXT)) for name in self.fields}
        except (ValueError, TypeError, RecursionError):
            raise Damage("a part of it cannot be read") from None
        for name, value in values.items():
            if not isinstance(value, _COLUMNS.get(name, _TEXT).kinds):
                raise Damage(f"its {name} makes no sense")
        if values.get("state", "FAIL") not in get_args(TrialState):
            raise Damage("its state makes no sense")
        return self.kind(**{name: _COLUMNS.get(name, _TEXT).made(value) for name, value in values.items()})

    def checksum(self, row: Row) -> str:
        """Return the checksum of the current content of a row."""
        return _checksum([row[name] for name in self.covered])

    def _check(self, row: Row) -> None:
        try:
            fits = row["checksum"] in ("", self.checksum(row))
        except IndexError:  # the schema of the file is damaged
            raise Damage("a column of it is missing") from None
        if not fits:
            raise Damage("its checksum does not match")


TRIALS = Table(
    "trials",
    "trial",
    Trial,
    (
        *("id", "kind", "state", "spec", "model_name", "model_sha256", "key", "created_at", "study", "owner"),
        *("started_at", "finished_at", "error", "result", "fingerprint", "comparison"),
    ),
)
COMPARISONS = Table(
    "comparisons",
    "comparison",
    Comparison,
    (
        *("id", "state", "model_name", "model_sha256", "contestants", "protocol", "created_at", "study"),
        *("owner", "started_at", "finished_at", "error", "result", "fingerprint", "warnings"),
    ),
)
ACCURACIES = Table(
    "accuracies",
    "accuracy",
    Accuracy,
    (
        *("id", "key", "model_sha256", "model_name", "spec", "dataset", "reply", "scores_path"),
        *("created_at", "fingerprint"),
    ),
)
STUDIES = Table(
    "studies",
    "study",
    StudyRecord,
    (
        *("id", "state", "question", "spec", "model_name", "model_sha256", "created_at", "owner"),
        *("started_at", "finished_at", "wall_s", "tried", "answer", "error", "fingerprint"),
    ),
)
MARKS = Table("marks", "mark", Tags, ("id", "starred", "archived", "labels", "note", "changed_at"))
VISIBILITY = Table("visibility", "visibility", Visibility, ("id", "person", "private", "changed_at"))
MODELS = Table("models", "model", ModelRecord)


def fields_of(one: object) -> dict[str, Any]:
    """Return all fields of a record by name."""
    return {field.name: getattr(one, field.name) for field in fields(one)}  # type: ignore[arg-type]


def text(value: object) -> str:
    """Return `value` as compact JSON."""
    return json.dumps(value, separators=(",", ":"), default=asdict)


def _decoded(value: Any, column: _Column) -> Any:
    if isinstance(value, str):
        value.encode()  # raises for surrogates, which stand for invalid UTF-8
    return json.loads(value) if column.is_json and value is not None else value


def _checksum(values: list[Any]) -> str:
    plain = [value.hex() if isinstance(value, bytes) else value for value in values]
    return f"1:{hashlib.sha256(json.dumps(plain).encode()).hexdigest()}"


# --- raw measurements ---------------------------------------------------------------------------------------


def without_raw(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a result without its raw parts."""
    return None if result is None else {name: result[name] for name in result if name not in RAW_FIELDS}


def packed_samples(result: Mapping[str, Any] | None) -> bytes | None:
    """Return the raw parts of a result, packed for the table `samples`; None: it has none."""
    raw = {name: result[name] for name in RAW_FIELDS if name in result} if result else {}
    return samples.pack(raw) if raw else None


def raw_parts(data: bytes | str) -> dict[str, Any]:
    """Return the raw parts from the data of the table `samples`: packed, or JSON text before format 4.

    Raises:
        ValueError: they are damaged.
    """
    if isinstance(data, bytes):
        return samples.unpack(data)
    raw: object = json.loads(data) if isinstance(data, str) else None
    if not isinstance(raw, dict):
        raise Damage("they are no samples")
    return raw


def raw_of(row: Row) -> dict[str, Any]:
    """Return the raw parts of a row of the table `samples`; raises like `raw_parts`."""
    if row["checksum"] and row["checksum"] != samples_checksum(row["trial"], row["data"]):
        raise Damage("their checksum does not match")
    return raw_parts(row["data"])


def samples_checksum(trial_id: str, data: bytes | str) -> str:
    """Return the checksum of the raw measurements of a trial."""
    return _checksum([trial_id, data])


# --- damaged rows -------------------------------------------------------------------------------------------


def damaged_trial(row: Row, damage: Damage) -> Trial:
    """Return a trial in the state DAMAGED for a damaged row, without any of its numbers."""
    created_at, kind = row["created_at"], row["kind"]
    return Trial(
        id=legible(row["id"]),
        kind=kind if kind in get_args(TrialKind) else "measure",
        state="DAMAGED",
        spec={},
        model_name=legible(row["model_name"]),
        model_sha256="",
        key="",
        created_at=created_at if isinstance(created_at, int | float) else 0.0,
        error={"type": "StoreError", "message": f"The stored trial is damaged: {damage}.", "hint": REMEDY},
    )


REMEDY = "Delete it on the page History, or restore a backup with `ortune restore FILE`."


def is_text(value: object) -> bool:
    """Return whether a value is text that SQLite accepts."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def legible(value: object) -> str:
    """Return at most 80 characters of valid text for any value."""
    return str(value).encode("utf-8", "replace").decode()[:80]


def undamaged(found: Iterable[Row], made: Callable[[Row], _One]) -> list[_One]:
    """Return the results of `made` for all rows that are not damaged."""
    kept = []
    for row in found:
        try:
            kept.append(made(row))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return kept


# --- models -------------------------------------------------------------------------------------------------


def models_of(record: Trial | Accuracy | StudyRecord) -> list[str]:
    """Return what a record says of its model: its content hash, and in its spec file hash and path."""
    asked = record.spec.get("model") or {}
    return [one for one in (record.model_sha256, asked.get("sha256"), asked.get("path")) if one]
