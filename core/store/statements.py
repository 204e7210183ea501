"""Statements for every table: find rows, and write them together with their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from core.evidence.measurement import Trial
from core.store import rows
from core.store.database import UNFINISHED, Connection
from core.store.rows import STUDIES, TRIALS, Row, Table
from core.wire.errors import MissingError, PrivateError, StoreError

MIN_PREFIX = 6
_LAST = "\U0010ffff"  # sorts behind every text that an id has after its prefix


def insert(db: Connection, table: str, columns: Mapping[str, Any], *, replace: bool = False) -> None:
    """Insert a row; with `replace`, instead of the one with its key."""
    places = ", ".join(f":{name}" for name in columns)
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    db.execute(f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({places})", dict(columns))


def put(db: Connection, table: Table[Any], columns: Mapping[str, Any], *, replace: bool = False) -> None:
    """Insert a row with its checksum."""
    insert(db, table.name, columns, replace=replace)
    _write_checksum(db, table, columns["id"])


def put_trial(db: Connection, one: Trial, process: str) -> None:
    """Insert a trial and its raw measurements."""
    values = {**rows.fields_of(one), "result": rows.without_raw(one.result)}
    put(db, TRIALS, {**TRIALS.columns(values), "process": process})
    put_samples(db, one.id, rows.packed_samples(one.result))


def put_samples(db: Connection, trial_id: str, packed: bytes | None) -> None:
    """Replace the raw measurements of a trial; None: delete them."""
    db.execute("DELETE FROM samples WHERE trial = ?", (trial_id,))
    if packed is not None:
        checksum = rows.samples_checksum(trial_id, packed)
        insert(db, "samples", {"trial": trial_id, "data": packed, "checksum": checksum})


def update(db: Connection, table: Table[Any], row_id: str, columns: Mapping[str, Any]) -> bool:
    """Change columns of a row; return False if there is no such row.

    A damaged row remains damaged, unless all its columns are written.
    """
    assert columns, "nothing to change"
    before = _with_id(db, table, row_id)
    if before is None:
        return False
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    query = f"UPDATE {table.name} SET {assignments} WHERE id = :_id"  # noqa: S608 - names of our fields
    db.execute(query, {**columns, "_id": row_id})
    fits = before["checksum"] in ("", table.checksum(before))
    if fits or set(table.covered) <= set(columns):
        _write_checksum(db, table, row_id)
    return True


def _write_checksum(db: Connection, table: Table[Any], row_id: str) -> None:
    """Write the checksum of a row as SQLite has stored it."""
    row = _with_id(db, table, row_id)
    assert row is not None, row_id
    query = f"UPDATE {table.name} SET checksum = ? WHERE id = ?"  # noqa: S608
    db.execute(query, (table.checksum(row), row_id))


def _with_id(db: Connection, table: Table[Any], row_id: str) -> Row | None:
    query = f"SELECT * FROM {table.name} WHERE id = ?"  # noqa: S608
    row: Row | None = db.execute(query, (row_id,)).fetchone()
    return row


def by_id(db: Connection, table: Table[Any], row_id: str) -> Row:
    """Return the row with this id, or the only one whose id begins with it.

    Raises:
        MissingError: there is none.
        PrivateError: it is private to another person.
        StoreError: there are several.
    """
    if (row := _with_id(db, table, row_id)) is not None:
        return row
    found: list[Row] = []
    if len(row_id) >= MIN_PREFIX:
        query = f"SELECT * FROM {table.name} WHERE id >= ? AND id < ? LIMIT 2"  # noqa: S608 - by its index
        found = db.execute(query, (row_id, f"{row_id}{_LAST}")).fetchall()
    if not found:
        _refuse_private(db, table, row_id)
        lists = "The Search page and `searches` list" if table is STUDIES else "History and `history` list"
        raise MissingError(
            f"There is no {table.noun} `{row_id}` here.",
            hint=f"It was deleted, or is in another store. {lists} what there is.",
        )
    if len(found) > 1:
        raise StoreError(
            f"More than one {table.noun} begins with `{row_id}`.", hint="Give more characters of the ID."
        )
    return found[0]


def _refuse_private(db: Connection, table: Table[Any], row_id: str) -> None:
    """Say that a row is private to another person, where `Database.reading` hides it."""
    query = (
        f"SELECT person FROM main.visibility JOIN main.{table.name} USING (id)"  # noqa: S608
        " WHERE private AND (id = ?1 OR (length(?1) >= ?2 AND substr(id, 1, length(?1)) = ?1)) LIMIT 1"
    )
    if (row := db.execute(query, (row_id, MIN_PREFIX)).fetchone()) is not None:
        raise PrivateError(
            f"The {table.noun} `{row_id}` is private to `{rows.legible(row['person'])}`.",
            hint="Ask that person to share it with the team.",
        )


def select(
    db: Connection,
    table: Table[Any],
    wanted: Mapping[str, str | None],
    limit: int,
    where: str = "1",
    **bound: str,
) -> list[Any]:
    """Return rows with these values (None: any), newest first; `bound` are parameters of `where`."""
    given = {name: value for name, value in wanted.items() if value is not None}
    # these conditions let SQLite use the indexes that have no other rows
    where += " AND study <> ''" if given.get("study") else ""
    where += f" AND {UNFINISHED}" if given.get("state") in ("WAITING", "RUNNING") else ""
    # a model or a study has fewer rows than a kind: the plus sign keeps its index out of use
    few = any(given.get(name) for name in ("model_sha256", "study")) or UNFINISHED in where
    where = " AND ".join([where, *(f"{'+' * (few and name == 'kind')}{name} = :{name}" for name in given)])
    order = "ORDER BY created_at DESC, rowid DESC LIMIT :_limit"
    query = f"SELECT * FROM {table.name} WHERE {where} {order}"  # noqa: S608
    return db.execute(query, {**given, **bound, "_limit": limit}).fetchall()


def counted(found: Iterable[Row], made: Callable[[Row], object]) -> tuple[int, int]:
    """Return the number of rows, and the number of damaged rows."""
    whole = damaged = 0
    for row in found:
        kept = rows.undamaged([row], made)
        whole, damaged = whole + len(kept), damaged + 1 - len(kept)
    return whole + damaged, damaged
