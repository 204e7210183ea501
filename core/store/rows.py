"""Converts trials and comparisons to rows and back, and computes checksums of rows.

Pure: dictionaries and dataclasses, no SQL. `samples.py` packs the raw measurements.

Each row has a checksum of its written content, its *seal*, because a digit changed on the disk gives a
readable row with wrong numbers. Raw measurements of older versions have none and are accepted if readable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Literal, Protocol, TypeVar, get_args

from core.evidence.comparison import Comparison, Contestant
from core.evidence.measurement import Trial, TrialKind, TrialState
from core.evidence.quality import regraded
from core.store import samples

Table = Literal["trials", "comparisons", "accuracies", "studies", "marks"]

# parts of a result that grow with the number of runs
RAW_FIELDS = ("latencies_s", "warmup_latencies_s", "unprofiled_latencies_s", "blocks", "profile")
PRUNED = "samples_pruned_at"  # key of a result: deletion time of its raw parts, seconds since the epoch

TRIAL_FIELDS = tuple(one.name for one in fields(Trial))
COMPARISON_FIELDS = tuple(one.name for one in fields(Comparison))
_JSON = {"spec", "error", "result", "contestants", "protocol", "warnings"}

# Columns that a seal covers, in order. Never edit them: a seal of other columns needs another version number
# as its prefix. The owner process (`process`) is not covered.
CHECKSUMMED: Mapping[Table, tuple[str, ...]] = {
    "trials": (
        *("id", "kind", "state", "spec", "model_name", "model_sha256", "key", "created_at", "study", "owner"),
        *("started_at", "finished_at", "error", "result", "fingerprint", "comparison"),
    ),
    "comparisons": (
        *("id", "state", "model_name", "model_sha256", "contestants", "protocol", "created_at", "study"),
        *("owner", "started_at", "finished_at", "error", "result", "fingerprint", "warnings"),
    ),
    "accuracies": (
        *("id", "key", "model_sha256", "model_name", "spec", "dataset", "reply", "scores_path"),
        *("created_at", "fingerprint"),
    ),
    "studies": (
        *("id", "state", "question", "spec", "model_name", "model_sha256", "created_at", "owner"),
        *("started_at", "finished_at", "wall_s", "tried", "answer", "error", "fingerprint"),
    ),
    "marks": ("id", "starred", "archived", "labels", "note", "changed_at"),
}

# types of the decoded columns; all others are text
_KINDS: Mapping[str, tuple[type, ...]] = {
    "spec": (dict,),
    "error": (dict, type(None)),
    "result": (dict, type(None)),
    "contestants": (list,),
    "protocol": (dict,),
    "warnings": (list,),
    "created_at": (int, float),
    "started_at": (int, float, type(None)),
    "finished_at": (int, float, type(None)),
    "wall_s": (int, float),
}
_One = TypeVar("_One")


class Damage(ValueError):
    """The content of a row differs from what was written."""


class Row(Protocol):
    """Interface of a row of SQLite."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the column `name`."""


def text(value: object) -> str:
    """Return `value` as compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def fields_of(one: Trial | Comparison) -> dict[str, Any]:
    """Return all fields as plain data by name."""
    if isinstance(one, Comparison):
        data = {name: getattr(one, name) for name in COMPARISON_FIELDS}
        return {**data, "contestants": [asdict(each) for each in one.contestants]}
    return {name: getattr(one, name) for name in TRIAL_FIELDS}


def columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as SQLite takes them."""
    assert set(values) <= {*TRIAL_FIELDS, *COMPARISON_FIELDS}, sorted(values)
    return {
        name: text(value) if name in _JSON and value is not None else value for name, value in values.items()
    }


def trial_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a trial as SQLite takes them; the result has no raw measurements."""
    given = dict(values)
    if given.get("result") is not None:
        given["result"] = {name: part for name, part in given["result"].items() if name not in RAW_FIELDS}
    return columns(given)


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


def repacked(data: str) -> bytes:
    """Return raw parts in JSON text as packed bytes; raises like `raw_parts`."""
    return samples.pack(raw_parts(data))


def without_samples(result: str, at: float) -> str:
    """Return the result column of a trial with the key `PRUNED` after its raw parts are deleted."""
    return text({**json.loads(result), PRUNED: at})


def trial(row: Row, raw: Mapping[str, Any]) -> Trial:
    """Return the trial of a row, with its raw measurements.

    Raises:
        Damage: the row differs from what was written.
    """
    values = verified(row, "trials", TRIAL_FIELDS)
    if values["result"] is not None:
        values["result"] = {**regraded(values["result"]), **raw}
    return Trial(**values)


def comparison(row: Row) -> Comparison:
    """Return the comparison of a row; raises `Damage` like `trial`."""
    values = verified(row, "comparisons", COMPARISON_FIELDS)
    try:
        contestants = tuple(Contestant(**one) for one in values["contestants"])
    except TypeError:
        raise Damage("its list of configurations is incomplete") from None
    if values["result"] is not None:
        values["result"] = regraded(values["result"])
    return Comparison(**{**values, "contestants": contestants})


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


def is_text(value: object) -> bool:
    """Return whether a value is text that SQLite accepts."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


REMEDY = "Delete it on the page History, or restore a backup with `ortune restore FILE`."


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


# --- seals --------------------------------------------------------------------------------------------------


def checksum_of(row: Row, table: Table) -> str:
    """Return the checksum of the current content of a row."""
    return _checksum([row[name] for name in CHECKSUMMED[table]])


def samples_checksum(trial_id: str, data: bytes | str) -> str:
    """Return the checksum of the raw measurements of a trial."""
    return _checksum([trial_id, data])


def _checksum(values: list[Any]) -> str:
    plain = [value.hex() if isinstance(value, bytes) else value for value in values]
    return f"1:{hashlib.sha256(json.dumps(plain).encode()).hexdigest()}"


def verified(row: Row, table: Table, names: Iterable[str]) -> dict[str, Any]:
    """Return the columns `names` of a row with JSON decoded.

    Raises:
        Damage: the seal does not match, or there is none and the row cannot be read.
    """
    try:
        fits = row["checksum"] in ("", checksum_of(row, table))
    except IndexError:  # the schema of the file is damaged
        raise Damage("a column of it is missing") from None
    if not fits:
        raise Damage("its checksum does not match")
    try:
        values = {name: _value(row, name) for name in names}
    except (ValueError, TypeError, RecursionError):
        raise Damage("a part of it cannot be read") from None
    odd = next(
        (name for name, value in values.items() if not isinstance(value, _KINDS.get(name, (str,)))), ""
    )
    if odd or values.get("state", "FAIL") not in get_args(TrialState):
        raise Damage(f"its {odd or 'state'} makes no sense")
    return values


def _value(row: Row, name: str) -> Any:
    value = row[name]
    if isinstance(value, str):
        value.encode()  # raises for surrogates, which stand for invalid UTF-8
    return json.loads(value) if name in _JSON and value is not None else value
