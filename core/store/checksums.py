"""Writes a row and its checksum together; `rows.py` computes the checksum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.store import rows
from core.store.database import Connection
from core.store.rows import Table


def write_checksum(db: Connection, table: Table, row_id: str) -> None:
    """Write the checksum of the current content of a row."""
    row = db.execute(f"SELECT * FROM {table} WHERE id = ?", (row_id,)).fetchone()  # noqa: S608
    if row is not None:
        query = f"UPDATE {table} SET checksum = ? WHERE id = ?"  # noqa: S608
        db.execute(query, (rows.checksum_of(row, table), row_id))


def update(db: Connection, table: Table, row_id: str, columns: Mapping[str, Any]) -> bool:
    """Change columns of a row; return False if there is no such row.

    A damaged row remains damaged, unless all its columns are written.
    """
    assert columns, "nothing to change"
    before = db.execute(f"SELECT * FROM {table} WHERE id = ?", (row_id,)).fetchone()  # noqa: S608
    if before is None:
        return False
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    query = f"UPDATE {table} SET {assignments} WHERE id = :_id"  # noqa: S608 - names of our fields
    db.execute(query, {**columns, "_id": row_id})
    fits = before["checksum"] in ("", rows.checksum_of(before, table))
    if fits or set(rows.CHECKSUMMED[table]) <= set(columns):
        write_checksum(db, table, row_id)
    return True


def put_samples(db: Connection, trial_id: str, packed: bytes | None) -> None:
    """Replace the raw measurements of a trial; None: delete them."""
    db.execute("DELETE FROM samples WHERE trial = ?", (trial_id,))
    if packed is not None:
        db.execute(
            "INSERT INTO samples (trial, data, checksum) VALUES (?, ?, ?)",
            (trial_id, packed, rows.samples_checksum(trial_id, packed)),
        )
