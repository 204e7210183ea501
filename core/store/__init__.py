"""What is kept on disk: trials, comparisons, self-tests, accuracies, models, settings. All the SQL there is.

Raw samples stand in a table of their own, so that a list of trials stays quick, and packed (`samples.py`), so
that years of them stay small; `pruning.py` drops old ones. The file itself (format, migrations, transactions,
damage) is `database.py`'s; what a row looks like, `rows.py`'s.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.verdict import is_rejected
from core.spec.effort import STAGES
from core.store import accuracies, database, pruning, queries, rows, searches, tags
from core.store.accuracies import Accuracy
from core.store.checksums import put_samples, seal, update
from core.store.copies import Checked
from core.store.database import Database, unusable
from core.store.imported import Shelf
from core.store.pruning import Pruned
from core.store.queries import Order, Query
from core.store.rows import PRUNED, RAW_FIELDS, Damage, Table
from core.store.searches import StudyRecord
from core.store.tags import Change, Marks
from core.wire import variables
from core.wire.errors import INTERRUPTED, MissingError, StoreError
from core.wire.files import expanded

__all__ = [
    "MIN_PREFIX",
    "PRUNED",
    "RAW_FIELDS",
    "STORE_NAME",
    "Accuracy",
    "Change",
    "Checked",
    "Deletion",
    "Marks",
    "ModelRecord",
    "Order",
    "Pruned",
    "Query",
    "Stamps",
    "Store",
    "StudyRecord",
    "home",
    "restore",
]

STORE_NAME = "ortune.db"
MIN_PREFIX = 6
SELF_TESTS_KEPT = 1000  # of one machine: years of use, and a list that is read at once

_NOUNS: Mapping[Table, str] = {
    "trials": "trial",
    "comparisons": "comparison",
    "accuracies": "accuracy",
    "studies": "study",
    "marks": "mark",
}
Stamps = dict[str, list[int]]  # file -> size in bytes, modification time in ns, inode


def restore(source: Path, path: Path | None = None) -> Path | None:
    """Put a backup in the place of the store, and return where that was kept; None: there was none.

    Args:
        source: a file that `Store.backup` wrote, of this or an earlier version.
        path: of the store; None: `home() / "ortune.db"`.

    Raises:
        StoreError: `source` is no sound store, or the place cannot be written.
    """
    target = (path or home() / STORE_NAME).absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(target.parent, error) from error
    return database.restore(source, target)


def lost_by_restore(source: Path, path: Path | None = None) -> int:
    """Return how many trials and searches the store holds that a backup has not; arguments as of `restore`.

    Raises:
        StoreError: `source` is no sound store.
    """
    return database.lost_by_restore(source, (path or home() / STORE_NAME).absolute())


def home() -> Path:
    """Folder of all that ORTune keeps: $ORTUNE_HOME, else `ortune` in the XDG data folder."""
    if named := os.environ.get(variables.HOME):
        return expanded(named).absolute()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What goes, or would go, when trials are deleted."""

    trials: tuple[str, ...]  # ids of those that were asked for and are there
    references: int  # trials that only raced beside them, and go with them
    comparisons: int  # races of which no candidate is left
    samples_bytes: int  # of raw samples
    starred: int
    unfinished: tuple[str, ...]  # ids of those that wait or run


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
        self.shelf = Shelf(self.folder / "imported")  # what was made elsewhere

    # --- trials -----------------------------------------------------------------------------------------

    def create_trial(self, trial: Trial, *, process: str = "") -> None:
        """Keep a new trial; `process` says whose it is, for `interrupt_orphans`."""
        samples = rows.packed(trial.result)
        with self._database.writing() as db:
            _insert(db, "trials", {**rows.trial_columns(rows.fields_of(trial)), "process": process})
            seal(db, "trials", trial.id)
            put_samples(db, trial.id, samples)

    def update_trial(self, trial_id: str, **changes: Any) -> bool:
        """Change fields of a stored trial; False when there is no such trial (any more)."""
        samples = rows.packed(changes.get("result"))  # before others have to wait for this change
        with self._database.writing() as db:
            found = update(db, "trials", trial_id, rows.trial_columns(changes))
            if found and "result" in changes:
                put_samples(db, trial_id, samples)
        return found

    def trial(self, trial_id: str) -> Trial:
        """Return a trial with all its samples; where `prune` dropped them, its result has the mark `PRUNED`.

        Args:
            trial_id: the id, or the first 6 or more characters of it.

        Raises:
            StoreError: no trial, or more than one, has that id; or it or its samples are damaged.
        """
        with self._database.reading() as db:
            row = _by_id(db, "trials", trial_id)
            samples = db.execute("SELECT * FROM samples WHERE trial = ?", (row["id"],)).fetchone()
        try:
            found = rows.trial(row, {})
        except Damage as damage:
            raise self._damaged("trials", row, damage) from None
        try:
            raw = rows.raw_of(samples) if samples else {}
        except ValueError as error:
            raise StoreError(
                f"The raw measurements of trial `{row['id']}` in `{self.path}` cannot be read: {error}.",
                hint=rows.REMEDY,
            ) from error
        if found.result is None:
            return found
        whole: Any = {**found.result, **raw}
        return replace(found, result=whole)

    def _damaged(self, table: Table, row: rows.Row, damage: Damage) -> StoreError:
        return StoreError(
            f"The {_NOUNS[table]} `{rows.legible(row['id'])}` in `{self.path}` is damaged: {damage}.",
            hint=rows.REMEDY,
        )

    def trials(
        self,
        *,
        model_sha256: str | None = None,
        study: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        limit: int = 500,
        damaged: bool = False,
    ) -> list[Trial]:
        """Return trials, newest first; their results come without raw samples and profile (see `trial`).

        A "reference" (a baseline or anchor that raced beside a candidate) is listed only when `kind` asks, a
        "screen" (tried by a search) when `kind` or `study` does. A
        damaged row is left out; with `damaged` it comes with the state DAMAGED and no numbers.
        """
        wanted = {"model_sha256": model_sha256, "study": study, "kind": kind, "state": state}
        hidden = "('reference')" if study else "('reference', 'screen')"
        where = f"kind NOT IN {hidden}" if kind is None else "1"
        with self._database.reading() as db:
            found = [_listed(row) for row in _select(db, "trials", wanted, limit, where)]
        return [one for one in found if damaged or one.state != "DAMAGED"]

    def delete_trials(self, trial_ids: Sequence[str]) -> None:
        """Delete trials with their samples and files; unknown ids are nothing to delete.

        A comparison goes with the last of its candidates, and so do its references, which no list shows.
        While a candidate is left it stays whole: its verdicts on the deleted ones remain readable.
        """
        with self._database.writing() as db:
            gone = [*trial_ids, *_references_without_candidates(db, trial_ids)]
            db.executemany("DELETE FROM trials WHERE id = ?", [(one,) for one in gone])
            db.execute(
                "DELETE FROM comparisons WHERE id NOT IN (SELECT comparison FROM trials)"
                " AND EXISTS (SELECT 1 FROM json_each(iif(json_valid(contestants), contestants, '[]')) AS one"
                " WHERE json_extract(one.value, '$.trial') IN (SELECT value FROM json_each(?)))",
                (rows.text(gone),),
            )
            db.executemany(
                "DELETE FROM settings WHERE name LIKE 'baseline:%' AND value = ?", [(one,) for one in gone]
            )
        for one in gone:
            shutil.rmtree(self._artifacts(one), ignore_errors=True)

    def deletion(self, trial_ids: Sequence[str]) -> Deletion:
        """Say what would go with these trials; unknown ids are nothing to delete."""
        with self._database.reading() as db:
            return _deletion(db, trial_ids)

    def delete_finished(self, trial_ids: Sequence[str]) -> Deletion:
        """Delete trials as `delete_trials` does, unless one of them waits or runs, and say what went.

        Raises:
            StoreError: one waits or runs; nothing is deleted.
        """
        found = self.deletion(trial_ids)
        if found.unfinished:
            raise StoreError(
                f"Trial `{found.unfinished[0]}` has not ended yet: nothing was deleted.",
                hint="Wait until it has ended, or cancel it.",
            )
        self.delete_trials(found.trials)
        return found

    # --- lists and marks --------------------------------------------------------------------------------

    def listing(self, query: Query, *, offset: int = 0, limit: int = 100) -> tuple[list[Trial], int]:
        """Return one page of trials, and how many there are in all; without samples, damaged ones DAMAGED."""
        with self._database.reading() as db:
            found, total = queries.page(db, query, offset=offset, limit=limit)
        return [_listed(row) for row in found], total

    def seals(self, query: Query) -> list[tuple[str, str]]:
        """Return id and checksum of every such trial: the checksum changes whenever its row does."""
        with self._database.reading() as db:
            return queries.seals(db, query)

    def model_names(self) -> list[str]:
        """Return the names of all models that were measured, in the order of the alphabet."""
        with self._database.reading() as db:
            found = db.execute("SELECT DISTINCT model_name FROM trials ORDER BY 1").fetchall()
        return [row["model_name"] for row in found if rows.is_text(row["model_name"])]

    def trial_id(self, ref: str) -> str:
        """Return the id of a trial by 6 or more characters that it begins with; see `trial`."""
        with self._database.reading() as db:
            found: str = _by_id(db, "trials", ref)["id"]
        return found

    def marks(self, trial_ids: Sequence[str]) -> dict[str, Marks]:
        """Return the marks of trials, without those that have none, or damaged ones."""
        query = "SELECT * FROM marks WHERE id IN (SELECT value FROM json_each(?))"
        with self._database.reading() as db:
            found = db.execute(query, (rows.text(list(trial_ids)),)).fetchall()
        sound = rows.sound(found, lambda row: (str(row["id"]), tags.marks(row)))
        return {name: own for name, own in sound if own != Marks()}

    def labels(self) -> list[str]:
        """Return every label that some trial has, in the order of the alphabet."""
        query = (
            "SELECT DISTINCT one.value AS label"
            " FROM marks, json_each(iif(json_valid(labels), labels, '[]')) AS one ORDER BY 1"
        )
        with self._database.reading() as db:
            return [str(row["label"]) for row in db.execute(query) if rows.is_text(row["label"])]

    def mark(self, trial_ids: Sequence[str], change: Change) -> dict[str, Marks]:
        """Change the marks of trials, of all or of none, and return what they are now.

        Args:
            trial_ids: ids, or the first 6 or more characters of them.
            change: what to do to each.

        Raises:
            StoreError: no trial, or more than one, has such an id.
            SpecError: one would have more labels than a trial may have.
        """
        now: dict[str, Marks] = {}
        with self._database.writing() as db:
            for ref in trial_ids:
                name: str = _by_id(db, "trials", ref)["id"]
                row = db.execute("SELECT * FROM marks WHERE id = ?", (name,)).fetchone()
                before = next(iter(rows.sound([row] if row else [], tags.marks)), Marks())
                now[name] = change.of(before)
                _insert(db, "marks", tags.columns(name, now[name], time.time()), "INSERT OR REPLACE")
                seal(db, "marks", name)
        return now

    def prune(
        self,
        *,
        before: float | None = None,
        keep_bytes: int | None = None,
        model_sha256: str | None = None,
        model_name: str | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Drop raw samples of the oldest races and give their space back; see `pruning.prune`.

        Args:
            before: seconds since the epoch: races that ended earlier lose their samples; None: age alone is
                no reason.
            keep_bytes: of samples to keep, 0 or more: beyond, the oldest races lose theirs; None: any number.
            model_sha256: content of a model: only its trials count; None: all.
            model_name: only trials under this name count; None: all.
            dry_run: change nothing, and say what would happen.

        Raises:
            StoreError: the file cannot be written, or not be made smaller because another process uses it.
        """
        return pruning.prune(
            self._database,
            before=before,
            keep_bytes=keep_bytes,
            model_sha256=model_sha256,
            model_name=model_name,
            dry_run=dry_run,
        )

    def find_complete(self, key: str, fingerprint: str, *, model_sha256: str | None = None) -> Trial | None:
        """Return the newest complete measurement of the same request on the same machine, without samples.

        A measurement on a busy machine, or one that its A/A test rejected (grade F), is none to reuse.

        Args:
            key: `TrialSpec.key()` of a spec whose model carries its SHA-256.
            fingerprint: of the machine and its libraries.
            model_sha256: content of the model; give it where weights may stand in a second file.
        """
        query = (
            "SELECT * FROM trials WHERE key = ? AND fingerprint = ? AND kind = 'measure'"
            " AND state = 'COMPLETE' AND model_sha256 = coalesce(?, model_sha256)"
            " ORDER BY finished_at DESC, rowid DESC"
        )
        with self._database.reading() as db:
            for row in db.execute(query, (key, fingerprint, model_sha256)):
                found = _listed(row)
                result = found.facts
                if found.state == "COMPLETE" and not is_rejected(result) and result.get("busy") is None:
                    return found
        return None

    # --- comparisons ------------------------------------------------------------------------------------

    def create_comparison(
        self, comparison: Comparison, trials: Sequence[Trial] = (), *, process: str = ""
    ) -> None:
        """Keep a new comparison with its trials, all or none; `process` as for `create_trial`."""
        with self._database.writing() as db:
            _insert(db, "comparisons", {**rows.columns(rows.fields_of(comparison)), "process": process})
            seal(db, "comparisons", comparison.id)
            for trial in trials:
                _insert(db, "trials", {**rows.trial_columns(rows.fields_of(trial)), "process": process})
                seal(db, "trials", trial.id)
                put_samples(db, trial.id, rows.packed(trial.result))

    def update_comparison(self, comparison_id: str, **changes: Any) -> bool:
        """Change fields of a stored comparison; False when there is no such comparison (any more)."""
        with self._database.writing() as db:
            return update(db, "comparisons", comparison_id, rows.columns(changes))

    def comparison(self, comparison_id: str) -> Comparison:
        """Return a comparison; the samples stand in its trials.

        Args:
            comparison_id: the id, or the first 6 or more characters of it.

        Raises:
            StoreError: no comparison, or more than one, has that id; or it is damaged.
        """
        with self._database.reading() as db:
            row = _by_id(db, "comparisons", comparison_id)
        try:
            return rows.comparison(row)
        except Damage as damage:
            raise self._damaged("comparisons", row, damage) from None

    def comparisons(
        self,
        *,
        model_sha256: str | None = None,
        raced_sha256: str | None = None,
        study: str | None = None,
        state: str | None = None,
        limit: int = 200,
    ) -> list[Comparison]:
        """Return comparisons, newest first, without damaged ones.

        Args:
            model_sha256: the model that a race is stored under: its baseline's, else its first candidate's.
            raced_sha256: a model that raced in it, in whatever role.
            study: name under which the candidates belong together.
            state: see `Comparison`.
            limit: at most so many.

        Stages of a search are listed only where `study` asks: none of their numbers is a result.
        """
        wanted = {"model_sha256": model_sha256, "study": study, "state": state}
        took_part = (
            "(model_sha256 = :sha256 OR id IN (SELECT comparison FROM trials WHERE model_sha256 = :sha256))"
        )
        where, bound = ("1", {}) if raced_sha256 is None else (took_part, {"sha256": raced_sha256})
        where += "" if study else f" AND {_NO_STAGE}"
        with self._database.reading() as db:
            return rows.sound(_select(db, "comparisons", wanted, limit, where, **bound), rows.comparison)

    def trials_of(self, comparison_id: str) -> list[Trial]:
        """Return the trials of a comparison in its contestants' order, references too; no samples.

        Damaged ones are missing, like deleted ones.
        """
        with self._database.reading() as db:
            found = db.execute(
                "SELECT * FROM trials WHERE comparison = ? ORDER BY created_at, rowid", (comparison_id,)
            ).fetchall()
        return rows.sound(found, lambda row: rows.trial(row, {}))

    # --- self-tests -------------------------------------------------------------------------------------

    def put_self_test(self, fingerprint: str, data: Mapping[str, Any], *, at: float | None = None) -> None:
        """Keep what ONNX Runtime's default against a twin of itself gave on this machine.

        Args:
            fingerprint: of the machine; without one nothing is kept, because nothing could ever find it.
            data: plain JSON data.
            at: seconds since the epoch; None: now.
        """
        if not fingerprint:
            return
        at = time.time() if at is None else at
        with self._database.writing() as db:
            _insert(db, "self_tests", {"fingerprint": fingerprint, "at": at, "data": rows.text(data)})
            db.execute(
                "DELETE FROM self_tests WHERE fingerprint = ?1 AND rowid NOT IN (SELECT rowid FROM self_tests"
                " WHERE fingerprint = ?1 ORDER BY at DESC, rowid DESC LIMIT ?2)",
                (fingerprint, SELF_TESTS_KEPT),
            )

    def self_tests(self, fingerprint: str, *, limit: int = 200) -> list[dict[str, Any]]:
        """Return the self-tests of a machine, newest first; each with `at`, seconds since the epoch."""
        query = "SELECT at, data FROM self_tests WHERE fingerprint = ? ORDER BY at DESC, rowid DESC LIMIT ?"
        with self._database.reading() as db:
            found = db.execute(query, (fingerprint, limit)).fetchall()
        return rows.sound(found, lambda row: {**json.loads(row["data"]), "at": row["at"]})

    # --- accuracies -------------------------------------------------------------------------------------

    def put_accuracy(self, one: Accuracy) -> None:
        """Keep an accuracy, or replace what is kept under its id."""
        with self._database.writing() as db:
            _insert(db, "accuracies", accuracies.columns(one), "INSERT OR REPLACE")
            seal(db, "accuracies", one.id)

    def accuracy(self, accuracy_id: str) -> Accuracy:
        """Return an accuracy by its id, or by 6 or more characters that it begins with; see `trial`."""
        with self._database.reading() as db:
            row = _by_id(db, "accuracies", accuracy_id)
        try:
            return accuracies.accuracy(row)
        except Damage as damage:
            raise self._damaged("accuracies", row, damage) from None

    def accuracies(self, *, model_sha256: str | None = None, limit: int = 500) -> list[Accuracy]:
        """Return accuracies, newest first, without damaged ones; `model_sha256` is a model's content."""
        with self._database.reading() as db:
            found = _select(db, "accuracies", {"model_sha256": model_sha256}, limit)
        return rows.sound(found, accuracies.accuracy)

    def find_accuracy(self, key: str, fingerprint: str | None = None) -> Accuracy | None:
        """Return the newest accuracy with that key, on that machine; None: on any."""
        if fingerprint == "":
            return None  # nobody knows whether it is the same machine
        with self._database.reading() as db:
            found = _select(db, "accuracies", {"key": key, "fingerprint": fingerprint}, 2)
        return next(iter(rows.sound(found, accuracies.accuracy)), None)

    def scores_path(self, accuracy_id: str) -> Path:
        """Return where the scores of an accuracy stand; the folder is made.

        Raises:
            StoreError: the folder cannot be made.
        """
        folder = self.folder / "accuracies"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(folder, error) from error
        return folder / f"{Path(accuracy_id).name}.npz"

    # --- studies ----------------------------------------------------------------------------------------

    def put_study(self, one: StudyRecord, *, process: str = "") -> None:
        """Keep a search, or replace what is kept under its id; `process` as for `create_trial`."""
        values = {name: getattr(one, name) for name in searches.FIELDS}
        columns = {**searches.columns(values), "process": process}
        with self._database.writing() as db:
            _insert(db, "studies", columns, "INSERT OR REPLACE")
            seal(db, "studies", one.id)

    def update_study(self, study_id: str, **changes: Any) -> bool:
        """Change fields of a search; False when there is no such search (any more)."""
        with self._database.writing() as db:
            return update(db, "studies", study_id, searches.columns(changes))

    def study(self, study_id: str) -> StudyRecord:
        """Return a search by its id, or by 6 or more characters that it begins with; see `trial`."""
        with self._database.reading() as db:
            row = _by_id(db, "studies", study_id)
        try:
            return searches.study(row)
        except Damage as damage:
            raise self._damaged("studies", row, damage) from None

    def studies(
        self, *, model_sha256: str | None = None, state: str | None = None, limit: int = 100
    ) -> list[StudyRecord]:
        """Return searches, newest first, without damaged ones; `model_sha256` is a model's content."""
        wanted = {"model_sha256": model_sha256, "state": state}
        with self._database.reading() as db:
            return rows.sound(_select(db, "studies", wanted, limit), searches.study)

    def delete_study(self, study_id: str) -> None:
        """Delete a search with what it tried; its confirmed races stay, they are results of their own."""
        with self._database.writing() as db:
            found = db.execute("SELECT id FROM trials WHERE study = ? AND kind = 'screen'", (study_id,))
            gone = [row["id"] for row in found]
            db.execute("DELETE FROM studies WHERE id = ?", (study_id,))
        self.delete_trials(gone)

    # --- copies -----------------------------------------------------------------------------------------

    def backup(self, target: Path) -> Checked:
        """Copy the database to `target`, which must not exist, and say what is in it.

        Others may read and write meanwhile. Models, variants, traces and scores are files beside the database
        and no part of it.

        Raises:
            StoreError: the file is there already or cannot be written; or the store is damaged.
        """
        self._database.copy_to(target)
        return self.check()

    def check(self) -> Checked:
        """Read everything once and count what is whole and what is damaged."""
        with self._database.reading() as db:
            return Checked(
                trials=_damage(db, "trials", lambda row: rows.trial(row, {})),
                comparisons=_damage(db, "comparisons", rows.comparison),
                accuracies=_damage(db, "accuracies", accuracies.accuracy),
                samples=_counted(db.execute("SELECT * FROM samples"), rows.raw_of),
                studies=_damage(db, "studies", searches.study),
                marks=_damage(db, "marks", tags.marks),
            )

    # --- what did not end well --------------------------------------------------------------------------

    def interrupt_orphans(self, is_alive: Callable[[str, float], bool]) -> int:
        """Mark unfinished trials and comparisons of processes that are gone as failed.

        Args:
            is_alive: told a trial's `process` and when it was created; whether that process still works.

        Returns:
            How many trials there were.
        """
        with self._database.writing() as db:
            interrupted = _interrupt(db, "trials", "trial", is_alive)
            _interrupt(db, "comparisons", "comparison", is_alive)
            _interrupt(db, "studies", "search", is_alive, hint="Continue it with `search --resume`.")
        return interrupted

    def rescue(self, one: Trial | Comparison) -> Path:
        """Write a trial or comparison that the database would not take as JSON beside it, and return where.

        Raises:
            StoreError: neither the store's folder nor the folder for temporary files takes it.
        """
        data = rows.fields_of(one)
        failures: list[str] = []
        for folder in (self.folder, *_temporary()):
            path = folder / f"rescued-{one.id}.json"
            draft = path.with_suffix(".part")
            try:
                draft.unlink(missing_ok=True)
                with draft.open("x") as file:  # in the system's folder somebody could lay a link there
                    file.write(rows.text(data))
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

    def rescued(self) -> list[Path]:
        """Return the files of results that `rescue` wrote and the database has not taken back yet."""
        beside = list(self.folder.glob("rescued-*.json"))
        elsewhere = [
            path
            for folder in _temporary()
            for path in folder.glob("rescued-*.json")
            if path not in beside and _is_own_file(path) and self._knows(path.stem.removeprefix("rescued-"))
        ]
        return [*beside, *elsewhere]

    def _knows(self, row_id: str) -> bool:
        query = "SELECT 1 FROM trials WHERE id = ?1 UNION SELECT 1 FROM comparisons WHERE id = ?1"
        with self._database.reading() as db:
            return db.execute(query, (row_id,)).fetchone() is not None

    def adopt_rescued(self) -> int:
        """Take back the results that `rescue` wrote, and say how many there were."""
        adopted = 0
        for path in self.rescued():
            try:
                known = self._adopt(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not ours to judge: the file stays for a person to look at
            if known:
                path.unlink(missing_ok=True)
                adopted += 1
        return adopted

    def _adopt(self, data: Mapping[str, Any]) -> bool:
        if "contestants" in data:
            comparison = {name: data[name] for name in rows.COMPARISON_FIELDS}
            return self.update_comparison(data["id"], **comparison)
        later = {"comparison": ""}  # fields that files of earlier versions do not have
        trial = {name: ({**later, **data})[name] for name in rows.TRIAL_FIELDS}
        return self.update_trial(data["id"], **trial)

    # --- models -----------------------------------------------------------------------------------------

    def put_model(self, record: ModelRecord) -> None:
        """Keep a model, or replace what is kept of the same content."""
        data = record.to_dict()
        columns = {**data, "info": rows.text(data["info"]), "details": rows.text(data["details"])}
        with self._database.writing() as db:
            # whatever stood at this path before has been overwritten by it
            db.execute("DELETE FROM models WHERE path = ?", (record.path,))
            _insert(db, "models", columns, "INSERT OR REPLACE")

    # A damaged entry of the library is none: its file is looked at again.

    def model(self, ref: str) -> ModelRecord | None:
        """Return the model that `ref` names: its name, path, content hash or file hash (6 or more digits).

        Raises:
            StoreError: more than one model has that name or those digits.
        """
        with self._database.reading() as db:
            found = db.execute(
                "SELECT * FROM models WHERE name = ?1 OR path = ?1 OR content_sha256 = ?1 OR sha256 = ?1",
                (ref,),
            ).fetchall()
            if not found and len(ref) >= MIN_PREFIX:
                found = db.execute(
                    "SELECT * FROM models WHERE substr(content_sha256, 1, ?2) = ?1"
                    " OR substr(sha256, 1, ?2) = ?1",
                    (ref.lower(), len(ref)),
                ).fetchall()
        models = rows.sound(found, _model)
        if len(models) > 1:
            raise StoreError(
                f"`{ref}` names {len(models)} models: {', '.join(one.name for one in models)}.",
                hint="Give more digits of the hash: "
                + ", ".join(f"`{one.content_sha256[:12]}`" for one in models)
                + ".",
            )
        return models[0] if models else None

    def models(self) -> list[ModelRecord]:
        """Return the library by name."""
        with self._database.reading() as db:
            return rows.sound(db.execute("SELECT * FROM models ORDER BY name, created_at"), _model)

    def remove_model(self, content_sha256: str) -> None:
        """Forget a model; files are the library's business, not the store's."""
        with self._database.writing() as db:
            db.execute("DELETE FROM models WHERE content_sha256 = ?", (content_sha256,))

    def cached_info(self, path: str) -> tuple[Stamps, wire.ModelInfo] | None:
        """Return what the last inspection of `path` found, and the stamps of the files it read."""
        with self._database.reading() as db:
            row = db.execute("SELECT stamps, info FROM inspections WHERE path = ?", (path,)).fetchone()
        found = rows.sound([row] if row else [], _inspection)
        return found[0] if found else None

    def put_info(self, path: str, stamps: Stamps, info: wire.ModelInfo) -> None:
        """Keep what an inspection of `path` found."""
        columns = {"path": path, "stamps": rows.text(stamps), "info": rows.text(info)}
        with self._database.writing() as db:
            _insert(db, "inspections", columns, "INSERT OR REPLACE")

    def put_peaks(self, fingerprint: str, data: Mapping[str, Any]) -> None:
        """Keep the newest peaks of a machine; without a fingerprint nothing, because nothing could find them.

        Args:
            fingerprint: of the machine.
            data: plain JSON data, with `at`, seconds since the epoch.
        """
        if fingerprint:
            with self._database.writing() as db:
                row = {"name": f"peaks:{fingerprint}", "value": rows.text(data)}
                _insert(db, "settings", row, "INSERT OR REPLACE")

    def peaks(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the newest peaks of a machine; None: never measured, or damaged."""
        with self._database.reading() as db:
            row = db.execute(
                "SELECT value FROM settings WHERE name = ?", (f"peaks:{fingerprint}",)
            ).fetchone()
        try:
            found: dict[str, Any] | None = json.loads(row["value"]) if row else None
        except ValueError:
            return None
        return found

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

    def artifacts(self, trial_id: str, pattern: str) -> list[Path]:
        """Return the files of a trial whose names match `pattern`; none where it has none."""
        return list(self._artifacts(trial_id).glob(pattern))

    def _artifacts(self, trial_id: str) -> Path:
        return self.folder / "artifacts" / Path(trial_id).name


# --- statements ---------------------------------------------------------------------------------------------


_NO_STAGE = (
    "coalesce(iif(json_valid(protocol), json_extract(protocol, '$.precision'), ''), '')"
    f" NOT IN ({', '.join(repr(name) for name in STAGES)})"
)


def _insert(db: sqlite3.Connection, table: str, columns: Mapping[str, Any], verb: str = "INSERT") -> None:
    places = ", ".join(f":{name}" for name in columns)
    db.execute(f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({places})", dict(columns))


def _temporary() -> list[Path]:
    """The system's folder for temporary files, if there is one that can be written to."""
    try:
        return [Path(tempfile.gettempdir())]
    except OSError:
        return []


def _is_own_file(path: Path) -> bool:
    """Whether a file in a folder that others write to is this user's own."""
    with contextlib.suppress(OSError):
        facts = path.lstat()
        return stat.S_ISREG(facts.st_mode) and (not hasattr(os, "geteuid") or facts.st_uid == os.geteuid())
    return False


def _select(
    db: sqlite3.Connection,
    table: Table,
    wanted: Mapping[str, str | None],
    limit: int,
    where: str = "1",
    **bound: str,
) -> list[sqlite3.Row]:
    """Rows that are equal in what is `wanted`, newest first; None wants nothing. `bound` is for `where`."""
    given = {name: value for name, value in wanted.items() if value is not None}
    where = " AND ".join([where, *(f"{name} = :{name}" for name in given)])
    query = f"SELECT * FROM {table} WHERE {where} ORDER BY created_at DESC, rowid DESC LIMIT :_limit"  # noqa: S608
    return db.execute(query, {**given, **bound, "_limit": limit}).fetchall()


def _listed(row: rows.Row) -> Trial:
    """The trial of a row, without samples; a damaged one as damaged."""
    try:
        return rows.trial(row, {})
    except Damage as damage:
        return rows.damaged_trial(row, damage)


def _by_id(db: sqlite3.Connection, table: Table, row_id: str) -> sqlite3.Row:
    """The row with this id, or the only one whose id begins with it."""
    row: sqlite3.Row | None = db.execute(f"SELECT * FROM {table} WHERE id = ?", (row_id,)).fetchone()  # noqa: S608
    if row is not None:
        return row
    found: list[sqlite3.Row] = []
    if len(row_id) >= MIN_PREFIX:
        query = f"SELECT * FROM {table} WHERE substr(id, 1, ?) = ? LIMIT 2"  # noqa: S608
        found = db.execute(query, (len(row_id), row_id)).fetchall()
    noun = _NOUNS[table]
    if not found:
        raise MissingError(
            f"There is no {noun} `{row_id}` here.",
            hint="It was deleted, or is in another store. "
            + ("The Search page and `searches` list" if table == "studies" else "History and `history` list")
            + " what there is.",
        )
    if len(found) > 1:
        raise StoreError(
            f"More than one {noun} begins with `{row_id}`.", hint="Give more characters of the ID."
        )
    return found[0]


def _deletion(db: sqlite3.Connection, trial_ids: Sequence[str]) -> Deletion:
    query = "SELECT id, state, comparison FROM trials WHERE id IN (SELECT value FROM json_each(?))"
    found = db.execute(query, (rows.text(list(trial_ids)),)).fetchall()
    ids = [row["id"] for row in found]
    references = _references_without_candidates(db, ids)
    gone = rows.text([*ids, *references])
    size, starred, races = (
        db.execute(query, {"gone": gone}).fetchone()[0]
        for query in (
            "SELECT coalesce(sum(length(data)), 0) FROM samples"
            " WHERE trial IN (SELECT value FROM json_each(:gone))",
            "SELECT count(*) FROM marks WHERE starred AND id IN (SELECT value FROM json_each(:gone))",
            "SELECT count(DISTINCT comparison) FROM trials WHERE comparison <> ''"
            " AND id IN (SELECT value FROM json_each(:gone)) AND comparison NOT IN"
            " (SELECT comparison FROM trials WHERE id NOT IN (SELECT value FROM json_each(:gone)))",
        )
    )
    return Deletion(
        trials=tuple(ids),
        references=len(references),
        comparisons=races,
        samples_bytes=size,
        starred=starred,
        unfinished=tuple(row["id"] for row in found if row["state"] in ("WAITING", "RUNNING")),
    )


def _references_without_candidates(db: sqlite3.Connection, deleted: Sequence[str]) -> list[str]:
    """Trials that only served comparisons whose last candidates are `deleted`."""
    query = (
        "WITH gone AS (SELECT value AS id FROM json_each(?)) SELECT id FROM trials WHERE kind = 'reference'"
        " AND comparison IN (SELECT comparison FROM trials WHERE id IN gone AND comparison <> '')"
        " AND comparison NOT IN (SELECT comparison FROM trials WHERE kind <> 'reference' AND id NOT IN gone)"
    )
    return [row["id"] for row in db.execute(query, (rows.text(list(deleted)),))]


def _interrupt(
    db: sqlite3.Connection,
    table: Table,
    noun: str,
    is_alive: Callable[[str, float], bool],
    hint: str = "Measure it again.",
) -> int:
    error = {
        "type": "WorkerError",
        "message": f"The {noun} {INTERRUPTED}",
        "hint": hint,
    }
    unfinished = db.execute(
        f"SELECT id, process, created_at FROM {table} WHERE state IN ('WAITING', 'RUNNING')"  # noqa: S608
    ).fetchall()
    readable = [row for row in unfinished if rows.is_text(row["id"]) and rows.is_text(row["process"])]
    gone = [row["id"] for row in readable if not is_alive(row["process"], row["created_at"])]
    columns = {"state": "FAIL", "error": rows.text(error), "finished_at": time.time()}
    for one in gone:
        update(db, table, one, columns)
    return len(gone)


def _inspection(row: rows.Row) -> tuple[Stamps, wire.ModelInfo]:
    return json.loads(row["stamps"]), json.loads(row["info"])


def _model(row: rows.Row) -> ModelRecord:
    values = {one.name: row[one.name] for one in fields(ModelRecord)}
    return ModelRecord(
        **{**values, "info": json.loads(values["info"]), "details": json.loads(values["details"])}
    )


def _damage(db: sqlite3.Connection, table: Table, made: Callable[[rows.Row], object]) -> tuple[int, int]:
    return _counted(db.execute(f"SELECT * FROM {table}"), made)  # noqa: S608


def _counted(found: Iterable[rows.Row], made: Callable[[rows.Row], object]) -> tuple[int, int]:
    """How many rows there are, and how many of them are damaged."""
    whole = damaged = 0
    for row in found:
        kept = rows.sound([row], made)
        whole, damaged = whole + len(kept), damaged + 1 - len(kept)
    return whole + damaged, damaged
