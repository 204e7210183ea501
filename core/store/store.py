"""Stores trials, comparisons, A/A tests, accuracies, searches and models. Only this package uses SQL.

Raw measurements have a table of their own, so that lists of trials are fast. They are packed (`samples.py`)
to save space; `pruning.py` deletes old ones. `database.py` handles the file: format, migrations,
transactions, damage. `rows.py` defines the rows.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from core import wire
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.verdict import is_rejected
from core.spec.effort import STAGES
from core.store import audit, pruning, queries, rows, sharing, transfer, usage
from core.store.database import LISTED, STORE_NAME, UNFINISHED, Connection, Database, home, made_folder
from core.store.imported import Shelf
from core.store.permissions import close_home
from core.store.pruning import PruneResult
from core.store.queries import Query
from core.store.records import Accuracy, CheckResult, Deletion, ModelRecord, StudyRecord, Visibility
from core.store.rows import (
    ACCURACIES,
    COMPARISONS,
    MARKS,
    MODELS,
    STUDIES,
    TRIALS,
    VISIBILITY,
    Damage,
    Record,
    Row,
    Table,
)
from core.store.sharing import Actor
from core.store.statements import (
    MIN_PREFIX,
    by_id,
    counted,
    insert,
    put,
    put_samples,
    put_trial,
    select,
    update,
)
from core.store.tags import Change, Tags
from core.store.transfer import Origin, StoredRows
from core.wire.errors import INTERRUPTED, MissingError, StoreError
from core.wire.files import private_opener

_log = logging.getLogger(__name__)

SELF_TESTS_KEPT = 1000  # per machine: years of use, and few enough to read at once

Stamps = dict[str, list[int]]  # file -> size in bytes, modification time in ns, inode

Ended = Trial | Comparison | StudyRecord


@dataclass(frozen=True, slots=True)
class Held:
    """A row that ended and could not be written."""

    row: Ended
    why: str
    file: Path | None  # with its result


class Store:
    """The database at one path; its folder also holds artifacts, uploaded models and caches."""

    def __init__(self, path: Path | None = None) -> None:
        """Open or create the store.

        Args:
            path: of the SQLite file; None: `home() / "ortune.db"`.

        Raises:
            StoreError: written by a newer version or another program (the file is not changed), damaged
                (it is renamed), or the folder cannot be used.
        """
        self.path = (path or home() / STORE_NAME).absolute()
        self.folder = made_folder(self.path.parent)
        self._database = Database(self.path)
        if self.folder == home() and (words := close_home()):
            _log.warning("%s", words)
        self.actor = Actor(sharing.os_user())
        self._held: dict[str, Held] = {}  # by id; of all persons

    def for_person(self, person: str, *, sees_all: bool) -> Store:
        """Return this store for one person: new rows are this person's.

        Args:
            person: stable id.
            sees_all: False: what others made private does not exist, and only this person's own results can
                be deleted, shared or made private.
        """
        other = copy(self)
        other.actor = Actor(person, sees_all)
        return other

    @property
    def shelf(self) -> Shelf:
        """Imported files, as this store's person sees them."""
        return Shelf(self.folder / "imported", self)

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading(None if self.actor.sees_all else self.actor.person)

    # --- trials -----------------------------------------------------------------------------------------

    def create_trial(self, trial: Trial, *, process: str = "", models: Iterable[str] = ()) -> None:
        """Store a new trial.

        Args:
            trial: the new one.
            process: identifies its owner process, for `interrupt_orphans`.
            models: further models that its result will name, by hash or path.
        """
        with self._database.writing() as db:
            put_trial(db, trial, process)
            self._record(db, [trial.id], trial.study, models=[*rows.models_of(trial), *models])

    def _record(
        self, db: Connection, ids: Sequence[str], *continued: str, models: Iterable[str] = ()
    ) -> None:
        """Record this store's person for new rows; they are private if what they continue is, or a model."""
        sharing.record(db, ids, self.actor.person, continued=continued)
        sharing.follow_models(db, ids, models, self.actor.person)

    def update_trial(self, trial_id: str, **changes: Any) -> bool:
        """Change fields of a stored trial; return False if there is no such trial (any more)."""
        if "result" not in changes:
            found = self._change(TRIALS, trial_id, changes)
            if found and (model := changes.get("model_sha256")):  # now it is known
                with self._database.writing() as db:
                    sharing.follow_models(db, [trial_id], [model], self.actor.person)
            return found
        # packed before the transaction, which blocks other writers
        samples = rows.packed_samples(changes["result"])
        columns = TRIALS.columns({**changes, "result": rows.without_raw(changes["result"])})
        with self._database.writing() as db:
            found = update(db, TRIALS, trial_id, columns)
            if found:
                put_samples(db, trial_id, samples)
        self._held.pop(trial_id, None)
        return found

    def trial(self, trial_id: str) -> Trial:
        """Return a trial with its raw measurements; if `prune` deleted them, its result has the key `PRUNED`.

        Args:
            trial_id: the id, or the first 6 or more characters of it.

        Raises:
            StoreError: no trial, or more than one, has that id; or it or its raw measurements are damaged.
        """
        with self._reading() as db:
            row = by_id(db, TRIALS, trial_id)
            samples = db.execute("SELECT * FROM samples WHERE trial = ?", (row["id"],)).fetchone()
            found = self._read(TRIALS, row)
            if samples is None and found.state == "COMPLETE" and rows.PRUNED not in found.facts:
                # a damaged index hides rows; `+` reads the table instead
                samples = db.execute("SELECT * FROM samples WHERE +trial = ?", (row["id"],)).fetchone()
        try:
            raw = rows.raw_of(samples) if samples else {}
        except ValueError as error:
            raise StoreError(
                f"The raw measurements of trial `{row['id']}` in `{self.path}` cannot be read: {error}.",
                hint=rows.REMEDY,
            ) from error
        if found.result is not None:
            whole: Any = {**found.result, **raw}
            found = replace(found, result=whole)
        return self._as_ended(found)

    def _read(self, table: Table[Record], row: Row) -> Record:
        try:
            return table.read(row)
        except Damage as damage:
            raise StoreError(
                f"The {table.noun} `{rows.legible(row['id'])}` in `{self.path}` is damaged: {damage}.",
                hint=rows.REMEDY,
            ) from None

    def _one(self, table: Table[Record], ref: str) -> Record:
        with self._reading() as db:
            row = by_id(db, table, ref)
        return self._as_ended(self._read(table, row))

    def _undamaged(self, table: Table[Record], found: Iterable[Row]) -> list[Record]:
        return [self._as_ended(one) for one in rows.undamaged(found, table.read)]

    def _as_ended(self, found: Record) -> Record:
        """Return a row, or the one that is held for it."""
        held = self._held.get(getattr(found, "id", ""))
        return found if held is None else cast(Record, held.row)

    def _change(self, table: Table[Any], row_id: str, changes: Mapping[str, Any]) -> bool:
        columns = table.columns(changes)
        with self._database.writing() as db:
            found = update(db, table, row_id, columns)
        self._held.pop(row_id, None)
        return found

    def trials(
        self,
        *,
        model_sha256: str | None = None,
        study: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        limit: int = 500,
    ) -> list[Trial]:
        """Return trials, newest first, without raw measurements and profile (see `trial`), and damaged ones.

        The kind "reference" (a baseline or ORT default of a comparison) is listed only with `kind`. The kind
        "screen" (screened by a search) is listed only with `kind` or `study`.
        """
        wanted = {"model_sha256": model_sha256, "study": study, "kind": kind, "state": state}
        listed = "kind <> 'reference'" if study else LISTED
        where = listed if kind is None else "1"
        with self._reading() as db:
            return self._undamaged(TRIALS, select(db, TRIALS, wanted, limit, where))

    def delete_trials(self, trial_ids: Sequence[str]) -> None:
        """Delete trials with their raw measurements and files; unknown ids are ignored.

        A comparison and its references are deleted with its last candidate. Until then it is not changed, so
        its verdicts on deleted candidates remain readable.
        """
        with self._database.writing() as db:
            gone = [*trial_ids, *_references_without_candidates(db, trial_ids)]
            sharing.refuse_others(db, _existing(db, gone), self.actor, "deleted")
            ids = {"gone": rows.text(gone)}
            found = db.execute(f"SELECT DISTINCT comparison FROM trials WHERE id {_GONE}", ids)  # noqa: S608
            ids["theirs"] = rows.text([row["comparison"] for row in found])
            db.execute(f"DELETE FROM trials WHERE id {_GONE}", ids)  # noqa: S608
            db.execute(
                "DELETE FROM comparisons WHERE id IN (SELECT value FROM json_each(:theirs))"  # noqa: S608
                f" AND NOT {_HAS_TRIAL.format('comparisons.id')})",
                ids,
            )
            db.execute(f"DELETE FROM settings WHERE name LIKE 'baseline:%' AND value {_GONE}", ids)  # noqa: S608
            db.execute(_FORGET_ARTIFACTS, ids)
        for one in gone:
            shutil.rmtree(self._artifacts(one), ignore_errors=True)

    def deletion(self, trial_ids: Sequence[str]) -> Deletion:
        """Return what a deletion of these trials would remove; unknown ids are ignored."""
        with self._reading() as db:
            return _deletion(db, trial_ids)

    def delete_finished(self, trial_ids: Sequence[str]) -> Deletion:
        """Delete trials as `delete_trials` does, unless one is waiting or running; return what was removed.

        Raises:
            StoreError: one is waiting or running; nothing is deleted.
        """
        found = self.deletion(trial_ids)
        if found.unfinished:
            raise StoreError(
                f"Trial `{found.unfinished[0]}` has not ended yet: nothing was deleted.",
                hint="Wait until it has ended, or cancel it.",
            )
        self.delete_trials(found.trials)
        if found.trials:
            audit.record("delete", "trials", folder=self.folder, ids=found.trials)
        return found

    # --- lists and tags ---------------------------------------------------------------------------------

    def trial_page(self, query: Query, *, offset: int = 0, limit: int = 100) -> tuple[list[Trial], int]:
        """Return one page of trials and their total number; no raw measurements, damaged ones are DAMAGED."""
        with self._reading() as db:
            found, total = queries.page(db, query, offset=offset, limit=limit)
        return [self._as_ended(_trial_or_damaged(row)) for row in found], total

    def checksums(self, query: Query, *, limit: int = -1) -> list[tuple[str, str]]:
        """Return id and checksum of matching trials; the checksum changes whenever its row does.

        Args:
            query: which trials, and their order.
            limit: largest number of trials; negative: all.
        """
        with self._reading() as db:
            return queries.checksums(db, query, limit)

    def whole_checksums(self, trial_ids: Sequence[str]) -> dict[str, str]:
        """Return a checksum of each trial together with its raw measurements; unknown ids are left out."""
        query = (
            "SELECT trials.id, trials.checksum || ' ' || coalesce(samples.checksum, '') AS checksum"
            " FROM trials LEFT JOIN samples ON samples.trial = trials.id"
            " WHERE trials.id IN (SELECT value FROM json_each(?))"
        )
        with self._reading() as db:
            return {row["id"]: row["checksum"] for row in db.execute(query, (rows.text(list(trial_ids)),))}

    def digests(self, trial_id: str) -> dict[str, tuple[str, str]]:
        """Return the recorded and the current checksum of a trial: its "result" and its "measurements".

        A part that the store does not have is left out; an empty recorded checksum is of an earlier version.

        Raises:
            StoreError: no trial, or more than one, has that id.
        """
        with self._reading() as db:
            row = by_id(db, TRIALS, trial_id)
            samples = db.execute("SELECT * FROM samples WHERE trial = ?", (row["id"],)).fetchone()
        found = {"result": (row["checksum"], TRIALS.checksum(row))}
        if samples is not None:
            now = rows.samples_checksum(samples["trial"], samples["data"])
            found["measurements"] = (samples["checksum"], now)
        return found

    def model_names(self) -> list[str]:
        """Return the names of all measured models in alphabetical order."""
        with self._reading() as db:
            found = db.execute("SELECT DISTINCT model_name FROM trials ORDER BY 1").fetchall()
        return [row["model_name"] for row in found if rows.is_text(row["model_name"])]

    def trial_id(self, ref: str) -> str:
        """Return the id of a trial from its first 6 or more characters; see `trial`."""
        with self._reading() as db:
            found: str = by_id(db, TRIALS, ref)["id"]
        return found

    def marks(self, trial_ids: Sequence[str]) -> dict[str, Tags]:
        """Return the tags of trials, without trials that have none, and without damaged tags."""
        query = "SELECT * FROM marks WHERE id IN (SELECT value FROM json_each(?))"
        with self._reading() as db:
            found = db.execute(query, (rows.text(list(trial_ids)),)).fetchall()
        undamaged = rows.undamaged(found, lambda row: (str(row["id"]), MARKS.read(row)))
        return {name: own for name, own in undamaged if own != Tags()}

    def labels(self) -> list[str]:
        """Return the labels of all trials in alphabetical order."""
        query = (
            "SELECT DISTINCT one.value AS label"
            " FROM marks, json_each(iif(json_valid(labels), labels, '[]')) AS one ORDER BY 1"
        )
        with self._reading() as db:
            return [str(row["label"]) for row in db.execute(query) if rows.is_text(row["label"])]

    def mark(self, trial_ids: Sequence[str], change: Change) -> dict[str, Tags]:
        """Change the tags of trials in one transaction, and return the new tags.

        Args:
            trial_ids: ids, or the first 6 or more characters of them.
            change: the change of each.

        Raises:
            StoreError: no trial, or more than one, has such an id.
            PrivateError: this store's person did not make all of them, and does not see all.
            SpecError: a trial would have too many labels.
        """
        now: dict[str, Tags] = {}
        names = [self.trial_id(ref) for ref in trial_ids]
        with self._database.writing() as db:
            sharing.refuse_others(db, names, self.actor, "changed")
            for name in names:
                row = db.execute("SELECT * FROM marks WHERE id = ?", (name,)).fetchone()
                before = next(iter(rows.undamaged([row] if row else [], MARKS.read)), Tags())
                now[name] = change.of(before)
                columns = MARKS.columns(rows.fields_of(now[name]))
                put(db, MARKS, {"id": name, **columns, "changed_at": time.time()}, replace=True)
        audit.record("change", f"tags of trials: {change.words}", folder=self.folder, ids=list(now))
        return now

    # --- persons ----------------------------------------------------------------------------------------

    def visibility(self, ids: Sequence[str]) -> dict[str, Visibility]:
        """Return who made these results and who sees them; those of nobody, which are shared, are missing."""
        with self._reading() as db:
            return sharing.found(db, ids)

    def hidden(self, refs: Iterable[str]) -> set[str]:
        """Return those of these results and models that are private to others.

        Args:
            refs: ids of results, or content hashes, file hashes or paths of models.
        """
        if self.actor.sees_all:
            return set()
        with self._reading() as db:
            return sharing.hidden(db, refs, self.actor.person)

    def claim(self, ids: Sequence[str], *, models: Iterable[str] = ()) -> None:
        """Record this store's person for new results that are files, as for rows.

        Args:
            ids: of imports or upgrades; a known one keeps its person.
            models: that they are about, by hash or path; if one is private, they are, too.
        """
        with self._database.writing() as db:
            self._record(db, ids, models=models)

    def charge(self, path: Path) -> None:
        """Count a file or folder as of this store's person in `disk_use`, for whom it was made last.

        Args:
            path: below the folder of this store; elsewhere it counts for no one.
        """
        if path.is_relative_to(self.folder):
            with self._database.writing() as db:
                sharing.replace(db, self._ref(path), Visibility(person=self.actor.person))

    def uncharge(self, path: Path) -> None:
        """Forget for whom a deleted file counted."""
        self.forget([self._ref(path)])

    def _ref(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def forget(self, ids: Sequence[str]) -> None:
        """Forget the person of deleted results that were files."""
        with self._database.writing() as db:
            db.execute(f"DELETE FROM visibility WHERE id {_IN}", {"ids": rows.text(list(ids))})  # noqa: S608

    def refuse_others(self, ids: Sequence[str], what: str) -> None:
        """Refuse to change results of others.

        Args:
            ids: of results.
            what: the change: "deleted".

        Raises:
            PrivateError: this store's person did not make all of them, and does not see all.
        """
        with self._reading() as db:
            sharing.refuse_others(db, ids, self.actor, what)

    def refuse_hidden(self, refs: Iterable[str]) -> None:
        """Refuse to add a model that is private to another person.

        Args:
            refs: its content hash, and paths.

        Raises:
            PrivateError: it is, and this store's person does not see all.
        """
        with self._reading() as db:
            sharing.refuse_hidden(db, refs, self.actor)

    def is_of_another(self, content_sha256: str) -> bool:
        """Whether another person added this model; one without a person belongs to who sees all."""
        person = self.visibility([content_sha256]).get(content_sha256, Visibility()).person
        return person != self.actor.person and not (self.actor.sees_all and not person)

    def private_model_names(self) -> set[str]:
        """Return the names of all private models, whoever reads: to keep them out of texts for others."""
        with self._database.reading() as db:
            return sharing.private_model_names(db)

    def result_id(self, ref: str) -> str:
        """Return the id of a trial, comparison, search or accuracy, or the content hash of a model.

        Args:
            ref: an id or its first 6 or more characters, or a name of the library.

        Raises:
            StoreError: there is none, there are several, or it is private to another person.
        """
        with self._reading() as db:
            for table in (TRIALS, COMPARISONS, STUDIES, ACCURACIES):
                with contextlib.suppress(MissingError):
                    return str(by_id(db, table, ref)["id"])
        model = self.model(ref)
        return self.trial_id(ref) if model is None else model.content_sha256

    def share(self, ids: Sequence[str], *, private: bool = False) -> list[str]:
        """Share results with the team or make them private, with all that belongs to them; return all ids.

        Args:
            ids: of trials, comparisons, searches, accuracies, models, imports or upgrades.
            private: True makes them private; of a model, all results of it and its variants.

        Raises:
            StoreError: somebody else made one of them, and this store's person does not see all; or one to be
                shared is of a private model.
        """
        with self._database.writing() as db:
            found = sharing.share(db, ids, self.actor, private=private)
        what = "results made private" if private else "results shared"
        audit.record("change", what, folder=self.folder, ids=found)
        return found

    def add_machine_time(self, person: str, *, began: float, seconds: float) -> None:
        """Add the time of one job to a person; `began` in seconds since the epoch."""
        with self._database.writing() as db:
            sharing.add_machine_time(db, person, began, seconds)

    def machine_time(self, since: float) -> dict[str, float]:
        """Return the seconds of machine time of each person since a time, in seconds since the epoch."""
        with self._reading() as db:
            return sharing.machine_time(db, since)

    def disk_use(self) -> dict[str, int]:
        """Return the bytes of each person: models, raw measurements, files of results, what was charged."""
        with self._reading() as db:
            persons, used = sharing.persons(db), Counter(sharing.raw_bytes(db))
        return dict(used + usage.file_bytes(self.folder, persons))

    def prune(
        self,
        *,
        before: float | None = None,
        keep_bytes: int | None = None,
        model_sha256: str | None = None,
        model_name: str | None = None,
        dry_run: bool = False,
    ) -> PruneResult:
        """Delete raw measurements of the oldest comparisons and shrink the file; see `pruning.prune`.

        Args:
            before: seconds since the epoch; comparisons that ended earlier lose their raw measurements.
                None: no limit by age.
            keep_bytes: largest size of all raw measurements, 0 or more; the oldest are deleted beyond it.
                None: no limit by size.
            model_sha256: content of a model; only its trials count. None: all.
            model_name: only trials under this name count. None: all.
            dry_run: change nothing, and return what would happen.

        Raises:
            StoreError: the file cannot be written, or cannot be shrunk because another process uses it.
        """
        done = pruning.prune(
            self._database,
            before=before,
            keep_bytes=keep_bytes,
            model_sha256=model_sha256,
            model_name=model_name,
            dry_run=dry_run,
        )
        if not dry_run:
            what = f"raw measurements of {len(done.trials)} trials"
            audit.record("delete", what, folder=self.folder, ids=done.trials)
        return done

    def find_complete(self, key: str, fingerprint: str, *, model_sha256: str | None = None) -> Trial | None:
        """Return the newest complete trial of the same request on the same machine, no raw measurements.

        Trials measured on a busy machine, or rejected by their A/A test (grade F), are not returned.

        Args:
            key: `TrialSpec.key()` of a spec whose model has its SHA-256.
            fingerprint: of the machine and its libraries.
            model_sha256: content of the model; required if weights may be in a second file.
        """
        query = (
            "SELECT * FROM trials WHERE key = ? AND fingerprint = ? AND kind = 'measure'"
            " AND state = 'COMPLETE' AND model_sha256 = coalesce(?, model_sha256)"
            " ORDER BY finished_at DESC, rowid DESC"
        )
        with self._reading() as db:
            for row in db.execute(query, (key, fingerprint, model_sha256)):
                found = _trial_or_damaged(row)
                result = found.facts
                if found.state == "COMPLETE" and not is_rejected(result) and result.get("busy") is None:
                    return found
        return None

    # --- comparisons ------------------------------------------------------------------------------------

    def create_comparison(
        self, comparison: Comparison, trials: Sequence[Trial] = (), *, process: str = ""
    ) -> None:
        """Store a new comparison with its trials in one transaction; `process` as for `create_trial`."""
        with self._database.writing() as db:
            columns = COMPARISONS.columns(rows.fields_of(comparison))
            put(db, COMPARISONS, {**columns, "process": process})
            for trial in trials:
                put_trial(db, trial, process)
            ids = [comparison.id, *(trial.id for trial in trials)]
            models = [comparison.model_sha256, *(ref for one in trials for ref in rows.models_of(one))]
            continued = comparison.study, comparison.protocol.get("continues") or ""
            self._record(db, ids, *continued, models=models)

    def update_comparison(self, comparison_id: str, **changes: Any) -> bool:
        """Change fields of a stored comparison; return False if there is no such comparison (any more)."""
        return self._change(COMPARISONS, comparison_id, changes)

    def comparison(self, comparison_id: str) -> Comparison:
        """Return a comparison; its trials hold the raw measurements.

        Args:
            comparison_id: the id, or the first 6 or more characters of it.

        Raises:
            StoreError: no comparison, or more than one, has that id; or it is damaged.
        """
        return self._one(COMPARISONS, comparison_id)

    def comparisons(
        self,
        *,
        model_sha256: str | None = None,
        compared_sha256: str | None = None,
        study: str | None = None,
        state: str | None = None,
        limit: int = 200,
    ) -> list[Comparison]:
        """Return comparisons, newest first, without damaged ones.

        Stages of a search are listed only with `study`, because their numbers are no results.

        Args:
            model_sha256: the model of the comparison: its baseline's, else its first candidate's.
            compared_sha256: a model of any configuration of the comparison.
            study: study of the candidates.
            state: see `Comparison`.
            limit: largest number of comparisons.
        """
        wanted = {"model_sha256": model_sha256, "study": study, "state": state}
        took_part = (
            "(model_sha256 = :sha256 OR id IN (SELECT comparison FROM trials WHERE model_sha256 = :sha256))"
        )
        where, bound = ("1", {}) if compared_sha256 is None else (took_part, {"sha256": compared_sha256})
        where += "" if study else f" AND {_NO_STAGE}"
        with self._reading() as db:
            return self._undamaged(COMPARISONS, select(db, COMPARISONS, wanted, limit, where, **bound))

    def comparison_checksums(
        self, *, model_sha256: str, state: str | None = None, limit: int = 200
    ) -> list[tuple[str, str]]:
        """Return id and checksum of the rows that `comparisons` reads, and of damaged ones."""
        with self._reading() as db:
            found = select(db, COMPARISONS, {"model_sha256": model_sha256, "state": state}, limit, _NO_STAGE)
            return [(row["id"], row["checksum"]) for row in found]

    def comparison_studies(self) -> list[str]:
        """Return the studies that have comparisons: sweeps, scorecards and searches."""
        query = "SELECT DISTINCT study FROM comparisons WHERE study <> ''"
        with self._reading() as db:
            return [str(row["study"]) for row in db.execute(query) if rows.is_text(row["study"])]

    def trials_of(self, comparison_id: str) -> list[Trial]:
        """Return the trials of a comparison in the order of its configurations, without raw measurements.

        References are included; damaged and deleted trials are missing.
        """
        with self._reading() as db:
            found = db.execute(
                # the second condition lets SQLite use the index, which has no other rows
                "SELECT * FROM trials WHERE comparison = ? AND comparison <> '' ORDER BY created_at, rowid",
                (comparison_id,),
            ).fetchall()
        return self._undamaged(TRIALS, found)

    # --- A/A tests --------------------------------------------------------------------------------------

    def put_self_test(self, fingerprint: str, data: Mapping[str, Any], *, at: float | None = None) -> None:
        """Store the result of an A/A test, the ORT default compared with itself on this machine.

        Args:
            fingerprint: of the machine; if empty, nothing is stored, because it could not be found again.
            data: plain JSON data.
            at: seconds since the epoch; None: now.
        """
        if not fingerprint:
            return
        at = time.time() if at is None else at
        with self._database.writing() as db:
            insert(db, "self_tests", {"fingerprint": fingerprint, "at": at, "data": rows.text(data)})
            db.execute(
                "DELETE FROM self_tests WHERE fingerprint = ?1 AND rowid NOT IN (SELECT rowid FROM self_tests"
                " WHERE fingerprint = ?1 ORDER BY at DESC, rowid DESC LIMIT ?2)",
                (fingerprint, SELF_TESTS_KEPT),
            )

    def self_tests(self, fingerprint: str, *, limit: int = 200) -> list[dict[str, Any]]:
        """Return the A/A tests of a machine, newest first; each with `at`, seconds since the epoch."""
        query = "SELECT at, data FROM self_tests WHERE fingerprint = ? ORDER BY at DESC, rowid DESC LIMIT ?"
        with self._reading() as db:
            found = db.execute(query, (fingerprint, limit)).fetchall()
        return rows.undamaged(found, lambda row: {**json.loads(row["data"]), "at": row["at"]})

    # --- accuracies -------------------------------------------------------------------------------------

    def put_accuracy(self, one: Accuracy) -> None:
        """Store an accuracy, or replace the one with its id."""
        with self._database.writing() as db:
            put(db, ACCURACIES, ACCURACIES.columns(rows.fields_of(one)), replace=True)
            self._record(db, [one.id], models=rows.models_of(one))

    def accuracy(self, accuracy_id: str) -> Accuracy:
        """Return an accuracy by its id or its first 6 or more characters; see `trial`."""
        return self._one(ACCURACIES, accuracy_id)

    def accuracies(self, *, model_sha256: str | None = None, limit: int = 500) -> list[Accuracy]:
        """Return accuracies, newest first, without damaged ones; `model_sha256` is a model's content."""
        with self._reading() as db:
            found = select(db, ACCURACIES, {"model_sha256": model_sha256}, limit)
        return rows.undamaged(found, ACCURACIES.read)

    def find_accuracy(self, key: str, fingerprint: str | None = None) -> Accuracy | None:
        """Return the newest accuracy with that key, on that machine; None: on any."""
        if fingerprint == "":
            return None  # the machine is not known
        with self._reading() as db:
            found = select(db, ACCURACIES, {"key": key, "fingerprint": fingerprint}, 2)
        return next(iter(rows.undamaged(found, ACCURACIES.read)), None)

    def scores_path(self, accuracy_id: str) -> Path:
        """Return the path of the scores of an accuracy; its folder is created.

        Raises:
            StoreError: the folder cannot be created.
        """
        return made_folder(self.folder / "accuracies") / f"{Path(accuracy_id).name}.npz"

    # --- studies ----------------------------------------------------------------------------------------

    def put_study(self, one: StudyRecord, *, process: str = "", models: Iterable[str] = ()) -> None:
        """Store a search, or replace the one with its id; `process` and `models` as for `create_trial`."""
        columns = {**STUDIES.columns(rows.fields_of(one)), "process": process}
        with self._database.writing() as db:
            put(db, STUDIES, columns, replace=True)
            self._record(db, [one.id], models=[*rows.models_of(one), *models])

    def update_study(self, study_id: str, **changes: Any) -> bool:
        """Change fields of a search; return False if there is no such search (any more)."""
        return self._change(STUDIES, study_id, changes)

    def study(self, study_id: str) -> StudyRecord:
        """Return a search by its id or its first 6 or more characters; see `trial`."""
        return self._one(STUDIES, study_id)

    def studies(self, *, model_sha256: str | None = None, limit: int = 100) -> list[StudyRecord]:
        """Return searches, newest first, without damaged ones; `model_sha256` is a model's content."""
        with self._reading() as db:
            found = select(db, STUDIES, {"model_sha256": model_sha256}, limit)
        return self._undamaged(STUDIES, found)

    def delete_study(self, study_id: str) -> None:
        """Delete a search with its screened trials; its confirmation runs are kept as independent results."""
        with self._database.writing() as db:
            sharing.refuse_others(db, [study_id], self.actor, "deleted")
            query = "SELECT id FROM trials WHERE study = ? AND study <> '' AND kind = 'screen'"
            found = db.execute(query, (study_id,))
            gone = [row["id"] for row in found]
            db.execute("DELETE FROM studies WHERE id = ?", (study_id,))
        self.delete_trials(gone)
        audit.record("delete", "search", folder=self.folder, ids=[study_id])

    # --- copies -----------------------------------------------------------------------------------------

    def backup(self, target: Path) -> CheckResult:
        """Copy the database to `target`, which must not exist, and return the check of the copy.

        Other processes may read and write meanwhile. Models, variants, traces and scores are files outside
        of the database and are not copied.

        Raises:
            StoreError: the file exists already or cannot be written; or the store is damaged. A copy with
                damage that hides rows is deleted.
        """
        self._database.copy_to(target)
        try:
            found = _checked(Database(target, is_copy=True))
        except StoreError as error:
            target.unlink(missing_ok=True)  # else such copies would fill the disk
            raise StoreError(
                f"The copy `{target}` failed its check and was deleted. {error.message}",
                hint="The store itself may be damaged: start ORTune again, which checks it.",
            ) from error
        audit.record("export", f"backup `{target.name}`", folder=self.folder)
        return found

    def check(self) -> CheckResult:
        """Read all rows and count valid and damaged ones."""
        return _checked(self._database)

    # --- rows of other stores ---------------------------------------------------------------------------

    def rows_of(self, process: str) -> StoredRows:
        """Return all rows that a process stored, as `create_trial` names it, for `adopt` of another store."""
        with self._reading() as db:
            return transfer.rows_of(db, process)

    def adopt(self, found: StoredRows, origin: Origin) -> int:
        """Insert rows of another store in one transaction, and return the number of new trials.

        Rows that are here already do not change, so that the same rows may come twice.

        Raises:
            StoreError: a row changed on the way, or nothing can be written.
        """
        try:
            with self._database.writing() as db:
                added = transfer.adopt(db, found, origin)
                self._record(db, [one for ids in found.ids().values() for one in ids], models=found.models())
                return added
        except Damage as damage:
            raise StoreError(
                f"A trial, comparison or search of another store arrived damaged: {damage}.",
                hint="Fetch it again.",
            ) from None

    # --- interrupted jobs and rescued results -----------------------------------------------------------

    def interrupt_orphans(self, is_alive: Callable[[str, float], bool]) -> int:
        """Set unfinished trials, comparisons and searches of ended processes to failed.

        Args:
            is_alive: gets a row's `process` and creation time; returns whether that process still runs.

        Returns:
            Number of such trials.
        """
        with self._database.writing() as db:
            interrupted = _interrupt(db, TRIALS, "trial", is_alive)
            _interrupt(db, COMPARISONS, "comparison", is_alive)
            _interrupt(db, STUDIES, "search", is_alive, hint="Continue the search.")
        return interrupted

    def unfinished(self) -> list[str]:
        """Return the ids of trials of every kind, comparisons and searches that wait or run."""
        with self._database.reading() as db:
            return [row["id"] for table in (TRIALS, COMPARISONS, STUDIES) for row in _unfinished(db, table)]

    def hold(self, one: Ended, why: str, file: Path | None = None) -> None:
        """Let all reads of this process return a row that the database could not take, until it is written.

        Args:
            one: as it ended.
            why: it could not be written, in a sentence.
            file: of `rescue`; None: there is none.
        """
        self._held[one.id] = Held(row=one, why=why, file=file)

    def not_stored(self) -> list[Held]:
        """Return what `hold` keeps of the rows that this store's person sees."""
        return [held for row_id, held in list(self._held.items()) if self._knows(row_id)]

    def write_held(self) -> None:
        """Write what `hold` and `rescue` kept, if there is any.

        Raises:
            StoreError: there is still no space.
        """
        if not self._held:
            return
        self.import_rescued()
        for one in [held.row for held in list(self._held.values())]:  # the rest has no file
            if isinstance(one, Trial):
                self.update_trial(one.id, **rows.fields_of(one))
            else:
                table = COMPARISONS if isinstance(one, Comparison) else STUDIES
                self._change(table, one.id, rows.fields_of(one))

    def rescue(self, one: Trial | Comparison) -> Path:
        """Write a trial or comparison that the database cannot store as a JSON file, and return its path.

        Raises:
            StoreError: neither the store's folder nor the folder for temporary files can be written.
        """
        data = rows.fields_of(one)
        failures: list[str] = []
        for folder in (self.folder, *_temporary()):
            path = folder / f"rescued-{one.id}.json"
            draft = path.with_suffix(".part")
            try:
                draft.unlink(missing_ok=True)
                with open(
                    draft, "x", opener=private_opener
                ) as file:  # another user could place a link in the system's folder
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
        """Return the files that `rescue` wrote and `import_rescued` has not imported yet."""
        beside = list(self.folder.glob("rescued-*.json"))
        elsewhere = [
            path
            for folder in _temporary()
            for path in folder.glob("rescued-*.json")
            if path not in beside and _is_own_file(path) and self._knows(path.stem.removeprefix("rescued-"))
        ]
        return [*beside, *elsewhere]

    def _knows(self, row_id: str) -> bool:
        query = " UNION ".join(
            f"SELECT 1 FROM {table} WHERE id = ?1"  # noqa: S608 - a constant
            for table in ("trials", "comparisons", "studies")
        )
        with self._reading() as db:
            return db.execute(query, (row_id,)).fetchone() is not None

    def import_rescued(self) -> int:
        """Import the results that `rescue` wrote into the database, and return their number."""
        adopted = 0
        for path in self.rescued():
            try:
                known = self._adopt(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # unreadable: the file is kept for the user
            if known:
                path.unlink(missing_ok=True)
                adopted += 1
        return adopted

    def _adopt(self, data: Mapping[str, Any]) -> bool:
        if "contestants" in data:
            comparison = {name: data[name] for name in COMPARISONS.fields}
            return self.update_comparison(data["id"], **comparison)
        later = {"comparison": ""}  # fields that files of earlier versions lack
        trial = {name: ({**later, **data})[name] for name in TRIALS.fields}
        return self.update_trial(data["id"], **trial)

    # --- models -----------------------------------------------------------------------------------------

    def put_model(self, record: ModelRecord) -> None:
        """Store a model, or replace the record of the same content, whose person and privacy stay.

        The record of another person stays as it is, unless this store's person sees all.

        Raises:
            PrivateError: it is private to another person, or overwrites a model that is.
        """
        content = record.content_sha256
        variant = record.details.get("variant") or {}
        originals = [variant.get(name) or "" for name in ("root", "parent")]
        with self._database.writing() as db:
            sharing.refuse_hidden(db, [content, record.path], self.actor)
            known = sharing.found(db, [content]).get(content)
            there = db.execute("SELECT 1 FROM models WHERE content_sha256 = ?", (content,)).fetchone()
            own = (known or Visibility()).person == self.actor.person
            if there and not own and not self.actor.sees_all:
                return
            # the model has overwritten any earlier one at this path
            db.execute("DELETE FROM models WHERE path = ?", (record.path,))
            insert(db, MODELS.name, MODELS.columns(rows.fields_of(record)), replace=True)
            if known is not None:
                sharing.replace(db, content, known)
            else:
                self._record(db, [content], *originals)

    # Damaged rows of models are skipped: their files are inspected again.

    def model(self, ref: str) -> ModelRecord | None:
        """Return the model that `ref` names: its name, path, content hash or file hash (6 or more digits).

        Raises:
            StoreError: more than one model has that name or those digits.
        """
        with self._reading() as db:
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
        models = rows.undamaged(found, MODELS.read)
        if len(models) > 1:
            raise StoreError(
                f"`{ref}` names {len(models)} models: {', '.join(one.name for one in models)}.",
                hint="Give more digits of the hash: "
                + ", ".join(f"`{one.content_sha256[:12]}`" for one in models)
                + ".",
            )
        return models[0] if models else None

    def models(self) -> list[ModelRecord]:
        """Return all models of the library, sorted by name."""
        with self._reading() as db:
            return rows.undamaged(db.execute("SELECT * FROM models ORDER BY name, created_at"), MODELS.read)

    def remove_model(self, content_sha256: str) -> None:
        """Delete the record of a model and its inspection; `library.remove_model` deletes its files."""
        with self._database.writing() as db:
            sharing.refuse_others(db, [content_sha256], self.actor, "deleted")
            db.execute(
                "DELETE FROM inspections WHERE path IN (SELECT path FROM models WHERE content_sha256 = ?)",
                (content_sha256,),
            )
            db.execute("DELETE FROM models WHERE content_sha256 = ?", (content_sha256,))

    def cached_info(self, path: str) -> tuple[Stamps, wire.ModelInfo] | None:
        """Return the result of the last inspection of `path`, and the stamps of the files it read."""
        with self._reading() as db:
            row = db.execute("SELECT stamps, info FROM inspections WHERE path = ?", (path,)).fetchone()
        found = rows.undamaged([row] if row else [], _inspection)
        return found[0] if found else None

    def put_info(self, path: str, stamps: Stamps, info: wire.ModelInfo) -> None:
        """Store the result of an inspection of `path`."""
        columns = {"path": path, "stamps": rows.text(stamps), "info": rows.text(info)}
        with self._database.writing() as db:
            insert(db, "inspections", columns, replace=True)

    def put_peaks(self, fingerprint: str, data: Mapping[str, Any]) -> None:
        """Store the newest peaks of a machine.

        Args:
            fingerprint: of the machine; if empty, nothing is stored, because it could not be found again.
            data: plain JSON data, with `at`, seconds since the epoch.
        """
        if fingerprint:
            self._set(f"peaks:{fingerprint}", rows.text(data))

    def peaks(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the newest peaks of a machine; None: never measured, or damaged."""
        value = self._setting(f"peaks:{fingerprint}")
        try:
            found: dict[str, Any] | None = None if value is None else json.loads(value)
        except ValueError:
            return None
        return found

    # --- settings and files -----------------------------------------------------------------------------

    def pin_baseline(self, model_sha256: str, trial_id: str | None) -> None:
        """Pin a trial as the baseline of its model; None unpins it.

        Raises:
            PrivateError: this store's person did not make the trial, and does not see all.
        """
        changed = trial_id or self.baseline(model_sha256)
        if changed is not None:
            self.refuse_others([changed], "changed")
        what = "baseline of a model: " + ("none" if trial_id is None else "pinned")
        audit.record("change", what, folder=self.folder, ids=[trial_id] if trial_id else [])
        self._set(f"baseline:{model_sha256}", trial_id)

    def baseline(self, model_sha256: str) -> str | None:
        """Return the id of the model's pinned trial."""
        return self._setting(f"baseline:{model_sha256}")

    def _set(self, name: str, value: str | None) -> None:
        """Set one of the store's settings; None removes it."""
        with self._database.writing() as db:
            if value is None:
                db.execute("DELETE FROM settings WHERE name = ?", (name,))
            else:
                insert(db, "settings", {"name": name, "value": value}, replace=True)

    def _setting(self, name: str) -> str | None:
        with self._reading() as db:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return row["value"] if row else None

    def artifact_path(self, trial_id: str, kind: str) -> Path:
        """Return the path of a file of a trial, for example `trace.json`; its folder is created.

        Raises:
            StoreError: the folder cannot be created.
        """
        assert Path(trial_id).name == trial_id, trial_id
        assert Path(kind).name == kind, kind
        return made_folder(self._artifacts(trial_id)) / kind

    def artifacts(self, trial_id: str, pattern: str) -> list[Path]:
        """Return the files of a trial whose names match `pattern`."""
        return list(self._artifacts(trial_id).glob(pattern))

    def _artifacts(self, trial_id: str) -> Path:
        return self.folder / "artifacts" / Path(trial_id).name


# --- statements ---------------------------------------------------------------------------------------------


_NO_STAGE = (
    "coalesce(iif(json_valid(protocol), json_extract(protocol, '$.precision'), ''), '')"
    f" NOT IN ({', '.join(repr(name) for name in STAGES)})"
)


_IN = "IN (SELECT value FROM json_each(:ids))"
_GONE = "IN (SELECT value FROM json_each(:gone))"
# what was charged below the folders of trials; `0` follows `/`
_FORGET_ARTIFACTS = (
    "DELETE FROM visibility WHERE id IN (SELECT one.id FROM json_each(:gone) JOIN visibility AS one"
    " ON one.id BETWEEN 'artifacts/' || value || '/' AND 'artifacts/' || value || '0')"
)
# a condition that is continued; the second part lets SQLite use the index, which has no other rows
_HAS_TRIAL = "EXISTS (SELECT 1 FROM trials AS one WHERE one.comparison = {} AND one.comparison <> ''"


def _checked(database: Database) -> CheckResult:
    with database.reading() as db:
        return CheckResult(
            samples=counted(db.execute("SELECT * FROM samples"), rows.raw_of),
            **{
                table.name: counted(db.execute(f"SELECT * FROM {table.name}"), table.read)  # noqa: S608
                for table in (TRIALS, COMPARISONS, ACCURACIES, STUDIES, MARKS, VISIBILITY)
            },
        )


def _temporary() -> list[Path]:
    """The system's folder for temporary files, if there is a writable one."""
    try:
        return [Path(tempfile.gettempdir())]
    except OSError:
        return []


def _is_own_file(path: Path) -> bool:
    """Whether a file in a shared folder belongs to this user."""
    with contextlib.suppress(OSError):
        facts = path.lstat()
        return stat.S_ISREG(facts.st_mode) and (not hasattr(os, "geteuid") or facts.st_uid == os.geteuid())
    return False


def _trial_or_damaged(row: Row) -> Trial:
    """The trial of a row, without raw measurements; DAMAGED if the row is damaged."""
    try:
        return TRIALS.read(row)
    except Damage as damage:
        return rows.damaged_trial(row, damage)


def _deletion(db: Connection, trial_ids: Sequence[str]) -> Deletion:
    query = "SELECT id, state, comparison FROM trials WHERE id IN (SELECT value FROM json_each(?))"
    found = db.execute(query, (rows.text(list(trial_ids)),)).fetchall()
    ids = [row["id"] for row in found]
    references = _references_without_candidates(db, ids)
    gone = rows.text([*ids, *references])
    size, starred, comparisons = (
        db.execute(query, {"gone": gone}).fetchone()[0]
        for query in (
            f"SELECT coalesce(sum(length(data)), 0) FROM samples WHERE trial {_GONE}",  # noqa: S608
            f"SELECT count(*) FROM marks WHERE starred AND id {_GONE}",  # noqa: S608
            f"SELECT count(DISTINCT comparison) FROM trials WHERE comparison <> '' AND id {_GONE}"  # noqa: S608
            f" AND NOT {_HAS_TRIAL.format('trials.comparison')} AND one.id NOT {_GONE})",
        )
    )
    return Deletion(
        trials=tuple(ids),
        references=len(references),
        comparisons=comparisons,
        samples_bytes=size,
        starred=starred,
        unfinished=tuple(row["id"] for row in found if row["state"] in ("WAITING", "RUNNING")),
    )


def _existing(db: Connection, trial_ids: Sequence[str]) -> list[str]:
    query = "SELECT id FROM trials WHERE id IN (SELECT value FROM json_each(?))"
    return [row["id"] for row in db.execute(query, (rows.text(list(trial_ids)),))]


def _references_without_candidates(db: Connection, deleted: Sequence[str]) -> list[str]:
    """References of comparisons whose last candidates are `deleted`."""
    query = (
        f"SELECT id FROM trials WHERE comparison IN (SELECT comparison FROM trials WHERE id {_GONE})"  # noqa: S608
        f" AND comparison <> '' AND kind = 'reference' AND NOT {_HAS_TRIAL.format('trials.comparison')}"
        f" AND one.kind <> 'reference' AND one.id NOT {_GONE})"
    )
    return [row["id"] for row in db.execute(query, {"gone": rows.text(list(deleted))})]


_BEGINNINGS = ("created_at", "started_at")


def _interrupt(
    db: Connection,
    table: Table[Any],
    noun: str,
    is_alive: Callable[[str, float], bool],
    hint: str = "Measure it again.",
) -> int:
    error = {
        "type": "WorkerError",
        "message": f"The {noun} {INTERRUPTED}",
        "hint": hint,
    }
    gone = [row for row in _unfinished(db, table) if not is_alive(row["process"], row["created_at"])]
    for one in gone:
        # the clock may have been set back since: no trial ends before it starts
        at = max(time.time(), *(one[name] for name in _BEGINNINGS if isinstance(one[name], float)), 0.0)
        update(db, table, one["id"], {"state": "FAIL", "error": rows.text(error), "finished_at": at})
    return len(gone)


def _unfinished(db: Connection, table: Table[Any]) -> list[Row]:
    """The rows that wait or run, without those whose id or process cannot be read."""
    found = db.execute(
        f"SELECT id, process, created_at, started_at FROM {table.name} WHERE {UNFINISHED}"  # noqa: S608
    )
    return [row for row in found if rows.is_text(row["id"]) and rows.is_text(row["process"])]


def _inspection(row: Row) -> tuple[Stamps, wire.ModelInfo]:
    return json.loads(row["stamps"]), json.loads(row["info"])
