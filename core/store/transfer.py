"""Rows of one process of one store, packed for another store; every row keeps its checksum on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.store import rows
from core.store.database import Connection
from core.store.records import StudyRecord
from core.store.rows import COMPARISONS, STUDIES, TRIALS, Damage, Table
from core.store.statements import insert, put
from core.wire.errors import StoreError

_TABLES: tuple[Table[Any], ...] = (COMPARISONS, TRIALS, STUDIES)
_SAMPLES = "samples"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows come from, as another store shows it."""

    owner: str  # of every row, for example "fleet host bench-07"
    paths: Mapping[str, str] = field(default_factory=dict)  # a model's path there -> its path here


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows as the database holds them: table -> rows -> column -> value."""

    tables: dict[str, list[dict[str, Any]]]

    def packed(self) -> bytes:
        """Return the rows as bytes."""
        return msgspec.msgpack.encode(self.tables)

    @classmethod
    def unpacked(cls, data: bytes) -> StoredRows:
        """Read what `packed` returned.

        Raises:
            StoreError: it is something else.
        """
        try:
            return cls(msgspec.msgpack.decode(data, type=dict[str, list[dict[str, Any]]]))
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"The rows of another store cannot be read: {error}.", hint="Fetch them again."
            ) from error

    def ids(self) -> dict[str, list[str]]:
        """Return the ids of all rows by table."""
        return {table.name: [one["id"] for one in self.tables.get(table.name, [])] for table in _TABLES}

    def models(self) -> set[str]:
        """Return the content hashes of the models of all rows."""
        found = (one.get("model_sha256") for table in _TABLES for one in self.tables.get(table.name, []))
        return {one for one in found if isinstance(one, str) and one}


def rows_of(db: Connection, process: str) -> StoredRows:
    """Return all trials with their raw measurements, comparisons and searches that one process stored."""
    its = "WHERE process = ? AND process <> ''"  # as in the indexes
    queries = {
        **{table.name: f"SELECT * FROM {table.name} {its}" for table in _TABLES},  # noqa: S608
        _SAMPLES: f"SELECT * FROM samples WHERE trial IN (SELECT id FROM trials {its})",  # noqa: S608
    }
    return StoredRows(
        {name: [dict(row) for row in db.execute(query, (process,))] for name, query in queries.items()}
    )


def adopt(db: Connection, found: StoredRows, origin: Origin) -> int:
    """Insert rows of another store; rows that this store has already stay as they are.

    Returns:
        Number of inserted trials.

    Raises:
        Damage: a row changed on the way.
    """
    added = 0
    for table in _TABLES:
        for row in found.tables.get(table.name, []):
            record = _from(table.read(_Columns(row)), origin)
            if _has(db, table.name, "id", row["id"]):
                continue
            put(db, table, {**table.columns(rows.fields_of(record)), "process": ""})
            added += table is TRIALS
    for row in found.tables.get(_SAMPLES, []):
        rows.raw_of(_Columns(row))
        if not _has(db, _SAMPLES, "trial", row["trial"]) and _has(db, TRIALS.name, "id", row["trial"]):
            insert(db, _SAMPLES, {name: row[name] for name in ("trial", "data", "checksum")})
    return added


class _Columns(dict[str, Any]):
    """A row whose missing columns are damage, as those of SQLite are."""

    def __missing__(self, name: str) -> Any:
        raise Damage(f"its column {name} is missing")


def _has(db: Connection, table: str, column: str, value: str) -> bool:
    query = f"SELECT 1 FROM {table} WHERE {column} = ?"  # noqa: S608 - names of our tables
    return db.execute(query, (value,)).fetchone() is not None


def _from(record: Trial | Comparison | StudyRecord, origin: Origin) -> Trial | Comparison | StudyRecord:
    """The record with its origin as the owner, and with the path that its model has here."""
    if isinstance(record, Comparison):
        return replace(record, owner=origin.owner)
    model = record.spec.get("model", {})
    path = origin.paths.get(model.get("path", ""))
    spec = record.spec if path is None else {**record.spec, "model": {**model, "path": path}}
    return replace(record, owner=origin.owner, spec=spec)
