"""Real stores of every earlier format, and what the programs of their time said of them.

`data/stores/README.md` says how each was made.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "stores"
FORMATS = sorted(int(path.name.split("_")[1].split(".")[0]) for path in FOLDER.glob("format_*.db.xz"))

Tables = dict[str, list[dict[str, Any]]]


def unpacked(number: int, home: Path) -> Path:
    """Write the store of a format to a folder, and return its path."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "ortune.db"
    path.write_bytes(lzma.decompress((FOLDER / f"format_{number}.db.xz").read_bytes()))
    return path


def told(number: int) -> dict[str, dict[str, Any]]:
    """Return the trials as `history` of that time printed them: state and p50 in seconds."""
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / "histories.json").read_text())[str(number)]
    return found


def format_of(path: Path) -> int:
    """Return the format of a store without its program."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def tables(path: Path) -> Tables:
    """Return all rows of all tables without its program."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = [row["name"] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        queries = {name: f"SELECT * FROM {name} ORDER BY rowid" for name in sorted(names)}
        return {name: [dict(row) for row in db.execute(query)] for name, query in queries.items()}


def check_kept(before: Tables, after: Tables) -> None:
    """Check that each value of each row is there as before; there may be new tables and columns."""
    assert set(before) <= set(after)
    for name, rows in before.items():
        columns = list(rows[0]) if rows else []
        assert [{column: row[column] for column in columns} for row in after[name]] == rows, name
