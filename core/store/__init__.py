"""What is kept on disk: trials, models, settings and files of trials. The only SQL of the project.

Raw samples stand in a table of their own, so that a list of trials stays quick. The file itself (format,
migrations, transactions, damage) is `database.py`'s.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from core import wire
from core.errors import StoreError
from core.measurement import Trial
from core.store.database import Database, unusable

STORE_NAME = "ortune.db"
MIN_PREFIX = 6
RAW_FIELDS = ("latencies_s", "warmup_latencies_s", "unprofiled_latencies_s", "profile")  # of a result

_TRIAL_FIELDS = tuple(one.name for one in fields(Trial))
_TRIAL_JSON = ("spec", "error", "result")
Stamps = dict[str, list[int]]  # file -> size in bytes, modification time in ns, inode


def home() -> Path:
    """Folder of all that ORTune keeps: $ORTUNE_HOME, else `ortune` in the XDG data folder."""
    if named := os.environ.get("ORTUNE_HOME"):
        return Path(named).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "ortune"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """One model of the library. `details` holds what its making found, for example export differences."""

    content_sha256: str  # of the .onnx file and its external data: the identity
    sha256: str  # of the .onnx file alone
    name: str
    path: str
    source: str  # "sample", "upload", "export", "file" or "folder"
    info: wire.ModelInfo
    note: str = ""
    created_at: float = 0.0  # seconds since the epoch
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data."""
        return asdict(self)


class Store:
    """The database at one path; its folder also holds artifacts, uploaded models and caches."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the store, or make it.

        Args:
            path: of the SQLite file; None: `home() / "ortune.db"`.

        Raises:
            StoreError: written by a newer version or another program (the file stays as it is), damaged
                (it is kept aside under another name), or the folder cannot be used.
        """
        self.path = (path or home() / STORE_NAME).absolute()
        self.folder = self.path.parent
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(self.folder, error) from error
        self._database = Database(self.path)

    # --- trials -----------------------------------------------------------------------------------------

    def create_trial(self, trial: Trial, *, process: str = "") -> None:
        """Keep a new trial; `process` says whose it is, for `interrupt_orphans`."""
        columns = {**_columns({name: getattr(trial, name) for name in _TRIAL_FIELDS}), "process": process}
        with self._database.writing() as db:
            _insert(db, "trials", columns)
            _put_samples(db, trial.id, trial.result)

    def update_trial(self, trial_id: str, **changes: Any) -> bool:
        """Change fields of a stored trial; False when there is no such trial (any more)."""
        assert changes, "nothing to change"
        assert set(changes) <= set(_TRIAL_FIELDS), sorted(changes)
        columns = _columns(changes)
        assignments = ", ".join(f"{name} = :{name}" for name in columns)
        with self._database.writing() as db:
            query = f"UPDATE trials SET {assignments} WHERE id = :_id"  # noqa: S608 - names of our fields
            found = db.execute(query, {**columns, "_id": trial_id}).rowcount > 0
            if found and "result" in changes:
                _put_samples(db, trial_id, changes["result"])
        return found

    def trial(self, trial_id: str) -> Trial:
        """Return a trial with all its samples.

        Args:
            trial_id: the id, or the first 6 or more characters of it.

        Raises:
            StoreError: no trial, or more than one, has that id.
        """
        with self._database.reading() as db:
            row = db.execute("SELECT * FROM trials WHERE id = ?", (trial_id,)).fetchone()
            if row is None:
                row = _by_prefix(db, trial_id)
            samples = db.execute("SELECT data FROM samples WHERE trial = ?", (row["id"],)).fetchone()
        return _trial(row, json.loads(samples["data"]) if samples else {})

    def trials(
        self,
        *,
        model_sha256: str | None = None,
        study: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        limit: int = 500,
    ) -> list[Trial]:
        """Return trials, newest first; their results come without raw samples and profile (see `trial`)."""
        wanted = {"model_sha256": model_sha256, "study": study, "kind": kind, "state": state}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in given) or "1"
        query = f"SELECT * FROM trials WHERE {where} ORDER BY created_at DESC, rowid DESC LIMIT :_limit"  # noqa: S608
        with self._database.reading() as db:
            return [_trial(row, {}) for row in db.execute(query, {**given, "_limit": limit})]

    def delete_trials(self, trial_ids: Sequence[str]) -> None:
        """Delete trials with their samples and files; unknown ids are nothing to delete."""
        with self._database.writing() as db:
            db.executemany("DELETE FROM trials WHERE id = ?", [(one,) for one in trial_ids])
            db.executemany(
                "DELETE FROM settings WHERE name LIKE 'baseline:%' AND value = ?",
                [(one,) for one in trial_ids],
            )
        for one in trial_ids:
            shutil.rmtree(self._artifacts(one), ignore_errors=True)

    def find_complete(self, key: str, fingerprint: str, *, model_sha256: str | None = None) -> Trial | None:
        """Return the newest complete measurement of the same request on the same machine, without samples.

        Args:
            key: `TrialSpec.key()` of a spec whose model carries its SHA-256.
            fingerprint: of the machine and its libraries.
            model_sha256: content of the model; give it where weights may stand in a second file.
        """
        query = (
            "SELECT * FROM trials WHERE key = ? AND fingerprint = ? AND kind = 'measure'"
            " AND state = 'COMPLETE' AND model_sha256 = coalesce(?, model_sha256)"
            " ORDER BY finished_at DESC, rowid DESC LIMIT 1"
        )
        with self._database.reading() as db:
            row = db.execute(query, (key, fingerprint, model_sha256)).fetchone()
        return _trial(row, {}) if row else None

    def interrupt_orphans(self, is_alive: Callable[[str, float], bool]) -> int:
        """Mark unfinished trials of processes that are gone as failed, and say how many there were.

        Args:
            is_alive: told a trial's `process` and when it was created; whether that process still works.
        """
        error = {
            "type": "WorkerError",
            "message": "The trial was interrupted: the process that ran it ended.",
            "hint": "Measure it again.",
        }
        with self._database.writing() as db:
            rows = db.execute(
                "SELECT id, process, created_at FROM trials WHERE state IN ('WAITING', 'RUNNING')"
            ).fetchall()
            gone = [row["id"] for row in rows if not is_alive(row["process"], row["created_at"])]
            db.executemany(
                "UPDATE trials SET state = 'FAIL', error = ?, finished_at = ?"
                " WHERE id = ? AND state IN ('WAITING', 'RUNNING')",
                [(_text(error), time.time(), one) for one in gone],
            )
        return len(gone)

    def rescue(self, trial: Trial) -> Path:
        """Write a trial that the database would not take as JSON beside it, and return where.

        Raises:
            StoreError: neither the store's folder nor the folder for temporary files takes it.
        """
        data = {name: getattr(trial, name) for name in _TRIAL_FIELDS}
        failures: list[str] = []
        for folder in (self.folder, Path(tempfile.gettempdir())):
            path = folder / f"rescued-{trial.id}.json"
            draft = path.with_suffix(".part")
            try:
                draft.write_text(_text(data))
                draft.replace(path)
            except OSError as error:
                draft.unlink(missing_ok=True)
                failures.append(f"{folder}: {error.strerror or error}")
            else:
                return path
        raise StoreError(
            f"The result could not be kept anywhere ({'; '.join(failures)}).",
            hint="Free disk space and measure again.",
        )

    def adopt_rescued(self) -> int:
        """Take back the results that `rescue` wrote beside the database, and say how many there were."""
        adopted = 0
        for path in self.folder.glob("rescued-*.json"):
            try:
                data = json.loads(path.read_text())
                known = self.update_trial(data["id"], **{name: data[name] for name in _TRIAL_FIELDS})
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not ours to judge: the file stays for a person to look at
            if known:
                path.unlink(missing_ok=True)
                adopted += 1
        return adopted

    # --- models -----------------------------------------------------------------------------------------

    def put_model(self, record: ModelRecord) -> None:
        """Keep a model, or replace what is kept of the same content."""
        data = record.to_dict()
        columns = {**data, "info": _text(data["info"]), "details": _text(data["details"])}
        with self._database.writing() as db:
            # whatever stood at this path before has been overwritten by it
            db.execute("DELETE FROM models WHERE path = ?", (record.path,))
            _insert(db, "models", columns, "INSERT OR REPLACE")

    def model(self, ref: str) -> ModelRecord | None:
        """Return the model that `ref` names: its name, path, content hash or file hash (6 or more digits).

        Raises:
            StoreError: more than one model has that name or those digits.
        """
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT * FROM models WHERE name = ?1 OR path = ?1 OR content_sha256 = ?1 OR sha256 = ?1",
                (ref,),
            ).fetchall()
            if not rows and len(ref) >= MIN_PREFIX:
                rows = db.execute(
                    "SELECT * FROM models WHERE substr(content_sha256, 1, ?2) = ?1"
                    " OR substr(sha256, 1, ?2) = ?1",
                    (ref.lower(), len(ref)),
                ).fetchall()
        if len(rows) > 1:
            raise StoreError(
                f"`{ref}` names {len(rows)} models: {', '.join(row['name'] for row in rows)}.",
                hint="Give more digits of the hash: "
                + ", ".join(f"`{row['content_sha256'][:12]}`" for row in rows)
                + ".",
            )
        return _model(rows[0]) if rows else None

    def models(self) -> list[ModelRecord]:
        """Return the library by name."""
        with self._database.reading() as db:
            return [_model(row) for row in db.execute("SELECT * FROM models ORDER BY name, created_at")]

    def remove_model(self, content_sha256: str) -> None:
        """Forget a model; files are the library's business, not the store's."""
        with self._database.writing() as db:
            db.execute("DELETE FROM models WHERE content_sha256 = ?", (content_sha256,))

    def cached_info(self, path: str) -> tuple[Stamps, wire.ModelInfo] | None:
        """Return what the last inspection of `path` found, and the stamps of the files it read."""
        with self._database.reading() as db:
            row = db.execute("SELECT stamps, info FROM inspections WHERE path = ?", (path,)).fetchone()
        return (json.loads(row["stamps"]), json.loads(row["info"])) if row else None

    def put_info(self, path: str, stamps: Stamps, info: wire.ModelInfo) -> None:
        """Keep what an inspection of `path` found."""
        columns = {"path": path, "stamps": _text(stamps), "info": _text(info)}
        with self._database.writing() as db:
            _insert(db, "inspections", columns, "INSERT OR REPLACE")

    # --- settings and files -----------------------------------------------------------------------------

    def pin_baseline(self, model_sha256: str, trial_id: str | None) -> None:
        """Make a trial the one that others of its model are compared with; None unpins."""
        name = f"baseline:{model_sha256}"
        with self._database.writing() as db:
            if trial_id is None:
                db.execute("DELETE FROM settings WHERE name = ?", (name,))
            else:
                _insert(db, "settings", {"name": name, "value": trial_id}, "INSERT OR REPLACE")

    def baseline(self, model_sha256: str) -> str | None:
        """Return the id of the model's pinned trial."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT value FROM settings WHERE name = ?", (f"baseline:{model_sha256}",)
            ).fetchone()
        return row["value"] if row else None

    def artifact_path(self, trial_id: str, kind: str) -> Path:
        """Return where a file of a trial stands, for example `trace.json`; its folder is made.

        Raises:
            StoreError: the folder cannot be made.
        """
        assert Path(trial_id).name == trial_id, trial_id
        assert Path(kind).name == kind, kind
        folder = self._artifacts(trial_id)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(folder, error) from error
        return folder / kind

    def _artifacts(self, trial_id: str) -> Path:
        return self.folder / "artifacts" / Path(trial_id).name


# --- rows ---------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a trial as SQLite takes them; raw samples leave the result."""
    columns = dict(values)
    if columns.get("result") is not None:
        columns["result"] = {k: v for k, v in columns["result"].items() if k not in RAW_FIELDS}
    for name in _TRIAL_JSON:
        if columns.get(name) is not None:
            columns[name] = _text(columns[name])
    return columns


def _insert(db: sqlite3.Connection, table: str, columns: Mapping[str, Any], verb: str = "INSERT") -> None:
    places = ", ".join(f":{name}" for name in columns)
    db.execute(f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({places})", dict(columns))


def _put_samples(db: sqlite3.Connection, trial_id: str, result: Mapping[str, Any] | None) -> None:
    raw = {name: result[name] for name in RAW_FIELDS if name in result} if result else {}
    db.execute("DELETE FROM samples WHERE trial = ?", (trial_id,))
    if raw:
        _insert(db, "samples", {"trial": trial_id, "data": _text(raw)})


def _by_prefix(db: sqlite3.Connection, prefix: str) -> sqlite3.Row:
    rows: list[sqlite3.Row] = []
    if len(prefix) >= MIN_PREFIX:
        query = "SELECT * FROM trials WHERE substr(id, 1, ?) = ? LIMIT 2"
        rows = db.execute(query, (len(prefix), prefix)).fetchall()
    if not rows:
        raise _unknown_trial(prefix)
    if len(rows) > 1:
        raise StoreError(
            f"More than one trial begins with `{prefix}`.", hint="Give more characters of the id."
        )
    return rows[0]


def _unknown_trial(trial_id: str) -> StoreError:
    return StoreError(
        f"There is no trial `{trial_id}`.", hint="Choose one that `python -m core history` lists."
    )


def _trial(row: sqlite3.Row, raw: Mapping[str, Any]) -> Trial:
    values = {name: row[name] for name in _TRIAL_FIELDS}
    for name in _TRIAL_JSON:
        values[name] = json.loads(values[name]) if values[name] is not None else None
    if values["result"] is not None:
        values["result"] |= raw
    return Trial(**values)


def _model(row: sqlite3.Row) -> ModelRecord:
    values = dict(row)
    return ModelRecord(
        **{**values, "info": json.loads(values["info"]), "details": json.loads(values["details"])}
    )
