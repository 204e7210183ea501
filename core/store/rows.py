"""How a trial and a comparison stand in a row: which columns are JSON, which parts of a result stand apart.

Each row carries a checksum of what was written, its *seal*: a disk that changes a digit makes a row that
reads well and is not true. Samples of older versions have none, and are believed where they can be read.

Pure: dictionaries and dataclasses, no SQL. How raw parts become bytes is `samples.py`'s.
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
PRUNED = "samples_pruned_at"  # in a result: when its raw parts were dropped, in seconds since the epoch

TRIAL_FIELDS = tuple(one.name for one in fields(Trial))
COMPARISON_FIELDS = tuple(one.name for one in fields(Comparison))
_JSON = {"spec", "error", "result", "contestants", "protocol", "warnings"}

# The columns that a seal covers, in its order. Never edit one: a seal that covers others begins with another
# number. Who owns a row (`process`) is no part of it.
SEALED: Mapping[Table, tuple[str, ...]] = {
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

# what each column gives, once JSON is read; text where nothing is said
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
    """What stands in the file is not what was written there."""


class Row(Protocol):
    """What a row of SQLite offers."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the column `name`."""


def text(value: object) -> str:
    """Return `value` as compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def fields_of(one: Trial | Comparison) -> dict[str, Any]:
    """Return every field as plain data, under its name."""
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
    """Return fields of a trial as SQLite takes them; raw samples leave the result."""
    given = dict(values)
    if given.get("result") is not None:
        given["result"] = {name: part for name, part in given["result"].items() if name not in RAW_FIELDS}
    return columns(given)


def packed(result: Mapping[str, Any] | None) -> bytes | None:
    """Return the raw parts of a result as the table of samples takes them; None: it has none."""
    raw = {name: result[name] for name in RAW_FIELDS if name in result} if result else {}
    return samples.pack(raw) if raw else None


def raw_parts(data: bytes | str) -> dict[str, Any]:
    """Return the raw parts that stand in the table of samples: packed, or JSON text as before format 4.

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
    """Return the raw parts of a row of the table of samples; raises like `raw_parts`."""
    if row["checksum"] and row["checksum"] != samples_seal(row["trial"], row["data"]):
        raise Damage("their checksum does not match")
    return raw_parts(row["data"])


def repacked(data: str) -> bytes:
    """Return raw parts that stand as JSON text in their packed form; raises like `raw_parts`."""
    return samples.pack(raw_parts(data))


def without_samples(result: str, at: float) -> str:
    """Return the result column of a trial whose raw parts are dropped: with the mark that says so."""
    return text({**json.loads(result), PRUNED: at})


def trial(row: Row, raw: Mapping[str, Any]) -> Trial:
    """Return the trial of a row, with its raw samples.

    Raises:
        Damage: the row is not what was written.
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
    """Return what can be said of a row that is not what was written: none of its numbers is among it."""
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
    """Whether a value is text that SQLite takes again."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


REMEDY = "Delete it on the page History, or restore a backup with `ortune restore FILE`."


def legible(value: object) -> str:
    """Text that every terminal and browser takes, whatever stood there."""
    return str(value).encode("utf-8", "replace").decode()[:80]


def sound(found: Iterable[Row], made: Callable[[Row], _One]) -> list[_One]:
    """Return what `made` makes of the rows that are not damaged."""
    kept = []
    for row in found:
        try:
            kept.append(made(row))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return kept


# --- seals --------------------------------------------------------------------------------------------------


def seal(row: Row, table: Table) -> str:
    """Return the checksum of a row as it stands there."""
    return _sealed([row[name] for name in SEALED[table]])


def samples_seal(trial_id: str, data: bytes | str) -> str:
    """Return the checksum of the samples of a trial."""
    return _sealed([trial_id, data])


def _sealed(values: list[Any]) -> str:
    plain = [value.hex() if isinstance(value, bytes) else value for value in values]
    return f"1:{hashlib.sha256(json.dumps(plain).encode()).hexdigest()}"


def verified(row: Row, table: Table, names: Iterable[str]) -> dict[str, Any]:
    """Return the columns `names` of a row, JSON read.

    Raises:
        Damage: its seal does not fit, or it has none and cannot be read.
    """
    try:
        fits = row["checksum"] in ("", seal(row, table))
    except IndexError:  # the file's own description of its tables is damaged
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
        value.encode()  # what is no UTF-8 came as a surrogate
    return json.loads(value) if name in _JSON and value is not None else value
