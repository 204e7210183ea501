"""Opens, checks and migrates the SQLite file of the store; provides transactions and error messages.

Each call opens a connection (half a millisecond) in write-ahead mode, so readers never wait for a writer. A
file of a newer version is never changed. A damaged file is renamed, never overwritten. If nothing can be
written (a full disk, a read-only home), the file is opened read-only. Copies use SQLite's backup API, so a
copy is a consistent snapshot while other processes write. This module does not interpret the tables; only
this package imports `sqlite3`.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import psutil

from core.process import scratch
from core.store.rows import ACCURACIES, COMPARISONS, TRIALS
from core.wire.errors import StoreError
from core.wire.files import home as home
from core.wire.files import is_private, made_private, private_opener, sync

Connection = sqlite3.Connection  # for annotations in this package

STORE_NAME = "ortune.db"

APPLICATION_ID = 0x4F525455  # "ORTU": identifies SQLite files of ORTune
ERRORS = (sqlite3.Error, UnicodeDecodeError)
BUSY_S = 10.0  # how long a writer waits for the write of another process
CHECK_BYTES = 64 << 20  # larger files are not checked at every start
_BESIDE_BYTES = 64 << 10  # SQLite's smallest files beside the store take about half of it
_DRAFT = re.compile(
    r"\.(?P<name>.+)\.(?P<pid>[0-9]{1,9})\.part(-journal|-wal|-shm)?"
)  # of a copy, see `copy_of`

# Sort expressions of lists, also used by indexes: never edit one, see `MIGRATIONS`. In descending order, rows
# without a number come last; a rejected contrast has no speed-up.
BY_P50 = "iif(json_valid(result), -json_extract(result, '$.latency.p50_s'), NULL)"
BY_GAIN = (
    "iif(json_valid(result), iif(json_extract(result, '$.grade') IS 'F'"
    " OR json_extract(result, '$.contrasts[0].holds') IS 0, NULL,"
    " json_extract(result, '$.contrasts[0].ratio')), NULL)"
)

UNLISTED = ("reference", "screen")  # kinds of trials that are listed only where the kind is given
LISTED = f"kind NOT IN {UNLISTED}"
SEARCHED = "kind <> 'reference' AND kind <> 'screen'"  # written in another way, see `trials_by_words`
UNFINISHED = "state IN ('WAITING', 'RUNNING')"
# what a text search reads of a trial, beside its tags: about 350 characters, where a row has six thousand
WORDS = " || ' ' || ".join(
    [
        *("id", "model_name", "model_sha256", "study", "owner", "spec", "coalesce(error, '')"),
        "iif(json_valid(result), coalesce(json_extract(result, '$.effective_providers'), '') || ' '"
        " || iif(json_extract(result, '$.fallback'), 'fallback', '') || ' '"
        " || coalesce(json_extract(result, '$.busy.words'), '') || ' '"
        " || coalesce(json_extract(result, '$.model'), '') || ' '"
        " || iif(json_extract(result, '$.guard.breach'), 'outputs differ', ''), '')",
    ]
)

KEYS = {  # tables whose rows a person made, and their keys; never edit, see `MIGRATIONS`
    **dict.fromkeys(("trials", "comparisons", "studies", "accuracies"), "id"),
    "models": "content_sha256",
}

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # each entry migrates from the format of its index to the next; never edit a released one
    (
        """CREATE TABLE trials (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, spec TEXT NOT NULL,
            model_name TEXT NOT NULL, model_sha256 TEXT NOT NULL, key TEXT NOT NULL, study TEXT NOT NULL,
            owner TEXT NOT NULL, created_at REAL NOT NULL, started_at REAL, finished_at REAL,
            error TEXT, result TEXT, fingerprint TEXT NOT NULL, process TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX trials_by_age ON trials (created_at)",
        "CREATE INDEX trials_by_key ON trials (key)",
        """CREATE TABLE samples (
            trial TEXT PRIMARY KEY REFERENCES trials (id) ON DELETE CASCADE, data TEXT NOT NULL)""",
        """CREATE TABLE models (
            content_sha256 TEXT PRIMARY KEY, sha256 TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL,
            source TEXT NOT NULL, note TEXT NOT NULL, info TEXT NOT NULL, created_at REAL NOT NULL,
            details TEXT NOT NULL)""",
        """CREATE TABLE inspections (
            path TEXT PRIMARY KEY, stamps TEXT NOT NULL, info TEXT NOT NULL)""",
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ),
    (
        "ALTER TABLE trials ADD COLUMN comparison TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX trials_by_comparison ON trials (comparison) WHERE comparison <> ''",
        """CREATE TABLE comparisons (
            id TEXT PRIMARY KEY, state TEXT NOT NULL, model_name TEXT NOT NULL, model_sha256 TEXT NOT NULL,
            contestants TEXT NOT NULL, protocol TEXT NOT NULL, created_at REAL NOT NULL, study TEXT NOT NULL,
            owner TEXT NOT NULL, started_at REAL, finished_at REAL, error TEXT, result TEXT,
            fingerprint TEXT NOT NULL, warnings TEXT NOT NULL, process TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX comparisons_by_age ON comparisons (created_at)",
        "CREATE TABLE self_tests (fingerprint TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL)",
        "CREATE INDEX self_tests_by_age ON self_tests (fingerprint, at)",
    ),
    (
        """CREATE TABLE accuracies (
            id TEXT PRIMARY KEY, key TEXT NOT NULL, model_sha256 TEXT NOT NULL, model_name TEXT NOT NULL,
            spec TEXT NOT NULL, dataset TEXT NOT NULL, reply TEXT NOT NULL, scores_path TEXT NOT NULL,
            created_at REAL NOT NULL, fingerprint TEXT NOT NULL)""",
        "CREATE INDEX accuracies_by_key ON accuracies (key)",
        "CREATE INDEX accuracies_by_model ON accuracies (model_sha256, created_at)",
    ),
    # From here on `samples.data` holds packed bytes. Rows of JSON text remain readable: converting gigabytes
    # at a start would take minutes and twice the space, and would fail on a full disk. They are packed when
    # they are rewritten or the store is pruned. The new format stops older programs from opening the file.
    (),
    tuple(
        f"ALTER TABLE {table} ADD COLUMN checksum TEXT NOT NULL DEFAULT ''"
        for table in ("trials", "samples", "comparisons", "accuracies")
    ),
    (
        """CREATE TABLE studies (
            id TEXT PRIMARY KEY, state TEXT NOT NULL, question TEXT NOT NULL, spec TEXT NOT NULL,
            model_name TEXT NOT NULL, model_sha256 TEXT NOT NULL, created_at REAL NOT NULL,
            owner TEXT NOT NULL, started_at REAL, finished_at REAL, wall_s REAL NOT NULL,
            tried TEXT NOT NULL, answer TEXT, error TEXT, fingerprint TEXT NOT NULL,
            process TEXT NOT NULL DEFAULT '', checksum TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX studies_by_age ON studies (created_at)",
    ),
    (
        """CREATE TABLE marks (
            id TEXT PRIMARY KEY REFERENCES trials (id) ON DELETE CASCADE, starred INTEGER NOT NULL,
            archived INTEGER NOT NULL, labels TEXT NOT NULL, note TEXT NOT NULL, changed_at REAL NOT NULL,
            checksum TEXT NOT NULL DEFAULT '')""",
        # covering indexes: lists are filtered, counted and ordered without reading rows
        "CREATE INDEX trials_listed ON trials"
        " (created_at, kind, state, model_name, model_sha256, id, checksum)",
        f"CREATE INDEX trials_by_p50 ON trials ({BY_P50})",
        f"CREATE INDEX trials_by_gain ON trials ({BY_GAIN})",
    ),
    (
        # rows of their own, so that sharing never modifies a measurement; a result without one is nobody's
        # and shared, as all results of earlier formats are
        """CREATE TABLE visibility (
            id TEXT PRIMARY KEY, person TEXT NOT NULL, private INTEGER NOT NULL, changed_at REAL NOT NULL,
            checksum TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX visibility_by_person ON visibility (person, private, id)",
        *(
            f"CREATE TRIGGER visibility_of_{table} AFTER DELETE ON {table}"  # noqa: S608 - names of ours
            f" BEGIN DELETE FROM visibility WHERE id = OLD.{key}; END"
            for table, key in KEYS.items()
        ),
        "CREATE TABLE machine_time (person TEXT NOT NULL, began REAL NOT NULL, seconds REAL NOT NULL)",
        "CREATE INDEX machine_time_by_age ON machine_time (began)",
        # lists in the order of studies are covered, too
        "DROP INDEX trials_listed",
        "CREATE INDEX trials_listed ON trials"
        " (created_at, kind, state, model_name, model_sha256, id, checksum, study)",
        # what is of a model or a kind, unfinished, of a search or found by words is read without other rows
        "CREATE INDEX trials_by_model ON trials (model_sha256, created_at)",
        "CREATE INDEX trials_by_kind ON trials (kind, created_at)",
        "CREATE INDEX comparisons_by_model ON comparisons (model_sha256, created_at)",
        "CREATE INDEX comparisons_by_study ON comparisons (study, created_at) WHERE study <> ''",
        "CREATE INDEX studies_by_model ON studies (model_sha256, created_at)",
        "CREATE INDEX accuracies_by_age ON accuracies (created_at)",
        *(
            f"CREATE INDEX {table}_unfinished ON {table} (created_at) WHERE {UNFINISHED}"
            for table in ("trials", "comparisons", "studies")
        ),
        "CREATE INDEX trials_by_study ON trials (study, created_at) WHERE study <> ''",
        *(
            f"CREATE INDEX {table}_by_process ON {table} (process) WHERE process <> ''"
            for table in ("trials", "comparisons", "studies")
        ),
        # SQLite uses it where a query has the same condition: in a text search only, because it is long
        f"CREATE INDEX trials_by_words ON trials (kind, id, {WORDS}) WHERE {SEARCHED}",
    ),
)
SCHEMA = len(MIGRATIONS)
INDEXES = {one.split()[2]: one for entry in MIGRATIONS for one in entry if one.startswith("CREATE INDEX ")}
CHECKSUMS_SINCE = 5  # first format with checksums of rows


def made_folder(folder: Path) -> Path:
    """Create a folder of the store where it is missing, and return it.

    Raises:
        StoreError: it cannot be created.
    """
    try:
        made_private(folder)
    except OSError as error:
        raise access_error(folder, error) from error
    return folder


def _created_private(path: Path) -> None:
    """Create a missing file for this user only; SQLite gives its other files the same mode."""
    with contextlib.suppress(OSError):  # SQLite says why it cannot be created
        os.close(private_opener(str(path), os.O_WRONLY | os.O_CREAT))


class Database:
    """One SQLite file in the current format."""

    def __init__(self, path: Path, *, is_copy: bool = False) -> None:
        """Open or create the file; see `Store` for the errors. A damaged copy is not renamed."""
        self.path = path
        try:
            check_header(path)
            _created_private(path)
            self._prepare()
        except ERRORS as error:
            if is_copy or not is_damage(error):
                raise store_error(path, error) from error
            kept = rename_damaged(path)
            raise StoreError(
                f"The result store `{path}` is damaged ({error_words(error)}); it was kept as `{kept.name}`.",
                hint="Start again: a new, empty store is made. `ortune restore FILE` takes a backup.",
            ) from error

    @contextmanager
    def reading(self, person: str | None = None) -> Iterator[sqlite3.Connection]:
        """Open a read transaction; any error is raised as a `StoreError`.

        Args:
            person: rows that are private to others do not exist for it; None: all rows.
        """
        try:
            with _view(self.path) as db:
                if person is not None:
                    _hide_private(db, person)
                yield db
        except ERRORS as error:
            raise store_error(self.path, error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction: committed at the end of the `with`, rolled back on an error."""
        try:
            with _connection(self.path) as db:
                db.execute("BEGIN IMMEDIATE")  # waits for other writers; a later lock would fail at once
                yield db
                db.execute("COMMIT")
        except ERRORS as error:
            raise store_error(self.path, error) from error

    def copy_to(self, target: Path) -> None:
        """Copy a snapshot of the file to `target`, which must not exist.

        Raises:
            StoreError: it exists already, or cannot be written.
        """
        if target.exists() or target.is_symlink():
            raise StoreError(f"`{target}` is there already.", hint="Choose another name for the copy.")
        with self.reading() as db:
            try:
                copy_of(db, target)
            except OSError as error:
                raise not_written(target, error.strerror or str(error)) from error
            except ERRORS as error:
                if is_damage(error):
                    raise
                raise not_written(target, str(error)) from error

    def file_bytes(self) -> int:
        """Return the size of the file and its journal in bytes."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise access_error(self.path, error) from error
        with contextlib.suppress(OSError):  # the last connection deletes the journal when it closes
            size += self.path.with_name(f"{self.path.name}-wal").stat().st_size
        return size

    def free_bytes(self) -> int:
        """Return the number of unused bytes in the file; `shrink` frees them."""
        with self.reading() as db:
            pages: int = db.execute("PRAGMA freelist_count").fetchone()[0]
            size: int = db.execute("PRAGMA page_size").fetchone()[0]
        return pages * size

    def shrink(self) -> None:
        """Rewrite the file without the space of deleted rows.

        Raises:
            StoreError: another process reads or writes for too long, or there is no space for the copy.
        """
        try:
            with _connection(self.path) as db:
                if db.execute("PRAGMA freelist_count").fetchone()[0]:
                    db.execute("VACUUM")
                is_held = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error
        if is_held:
            raise StoreError(
                f"Another process has been reading `{self.path}` for more than {BUSY_S:g} s.",
                hint="Try again when it has ended.",
            )

    def _prepare(self) -> None:
        if self.path.exists() and self._is_ready():
            self._complete_indexes()
            return
        with _connection(self.path) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            version = _check_format(db, self.path)  # again: another process may have migrated it
            with self._copy_kept(version):
                _migrate(db, version)
                db.execute("COMMIT")

    def _complete_indexes(self) -> None:
        """Create the indexes that the format lacked before its release, where the file can be written."""
        with _view(self.path) as db:
            if not _incomplete_indexes(db):
                return
        with contextlib.suppress(sqlite3.Error), _connection(self.path) as db:  # else reads are only slower
            db.execute("BEGIN IMMEDIATE")
            for name in _incomplete_indexes(db):
                db.execute(f"DROP INDEX IF EXISTS {name}")
                db.execute(INDEXES[name])
            db.execute("COMMIT")

    @contextmanager
    def _copy_kept(self, version: int) -> Iterator[None]:
        """Copy a file of an earlier format before its migration; delete the copy if the migration fails."""
        if not 0 < version < SCHEMA:
            yield
            return
        remove_drafts(self.path.parent, f"{self.path.name}.")
        kept = free_name(self.path, f"format-{version}")
        try:
            copy(self.path, kept)
        except OSError as error:
            raise access_error(kept, error) from error
        _remove_equal(kept, f"{self.path.name}.format-{version}-*")
        try:
            yield
        except BaseException:
            kept.unlink(missing_ok=True)  # the migration was rolled back
            raise

    def _is_ready(self) -> bool:
        """Check the file, and return whether it has the current format."""
        with _view(self.path) as db:
            version = _check_format(db, self.path)
            if self.path.stat().st_size <= CHECK_BYTES:
                verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise sqlite3.DatabaseError(verdict)
        return version == SCHEMA


@contextmanager
def _view(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a read transaction, also if SQLite cannot create the small files that it needs for reading."""
    with contextlib.ExitStack() as opened:
        try:
            db = opened.enter_context(_connection(path))
            db.execute("BEGIN")
            db.execute("PRAGMA user_version").fetchone()  # reads the file; `BEGIN` alone does not
        except sqlite3.Error as error:
            if not (path.is_file() and path.stat().st_size and _cannot_write(path, error)):
                raise
            opened.close()
            opened.enter_context(_no_damage_without_locks(path))
            db = opened.enter_context(_read_only_view(path, error))
        yield db


@contextmanager
def _no_damage_without_locks(path: Path) -> Iterator[None]:
    """Let damage be told but not acted on: without locks, a write of another process looks the same."""
    try:
        yield
    except ERRORS as error:
        if is_damage(error):
            raise store_error(path, error) from error
        raise


@contextmanager
def _read_only_view(path: Path, error: sqlite3.Error) -> Iterator[sqlite3.Connection]:
    """Open the file read-only without a lock; if it has a journal, open a temporary copy of both."""
    journal = path.with_name(f"{path.name}-wal")
    if not (journal.is_file() and journal.stat().st_size):
        # `immutable`: no lock, because SQLite could not create its files; no other process can write, either
        with _connection(path, "?mode=ro&immutable=1") as db:
            yield db
        return
    with contextlib.ExitStack() as ends:
        try:
            folder = ends.enter_context(scratch.folder())
            for file in (path, journal):
                shutil.copyfile(file, folder / file.name)
        except OSError:
            raise error from None
        yield ends.enter_context(_connection(folder / path.name))


@contextmanager
def _connection(path: Path, how: str = "") -> Iterator[sqlite3.Connection]:
    name = f"file:{quote(str(path))}{how}"
    db = sqlite3.connect(name, timeout=BUSY_S, isolation_level=None, uri=True)
    try:
        db.row_factory = sqlite3.Row
        db.text_factory = _text
        db.execute("PRAGMA foreign_keys = ON")
        yield db
    finally:
        with contextlib.suppress(sqlite3.Error):  # a failed checkpoint must not hide the first error
            db.close()


def _hide_private(db: sqlite3.Connection, person: str) -> None:
    """Let the tables of this connection lack the rows that are private to others.

    Names without a schema mean the temporary views from now on, so that no query can forget the condition.
    """
    db.create_function("reader", 0, lambda: person, deterministic=True)
    for table, key in (KEYS | {"marks": "id", "samples": "trial"}).items():
        db.execute(
            f"CREATE TEMP VIEW {table} AS SELECT rowid, * FROM main.{table} AS one WHERE NOT EXISTS"  # noqa: S608
            f" (SELECT 1 FROM main.visibility WHERE id = one.{key} AND private AND person <> reader())"
        )


def _text(data: bytes) -> str:
    """Decode text without an error, so that one damaged value does not hide other rows."""
    return data.decode("utf-8", "surrogateescape")


def _check_format(db: sqlite3.Connection, path: Path) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    _check_version(path, version, db.execute("PRAGMA application_id").fetchone()[0])
    return version


def _incomplete_indexes(db: sqlite3.Connection) -> list[str]:
    """Names of the indexes that are missing or of another definition."""
    there = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'").fetchall())
    return [name for name, statement in INDEXES.items() if there.get(name) != statement]


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Migrate the file to the current format, within the caller's transaction."""
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    if 0 < version < CHECKSUMS_SINCE:
        _write_all_checksums(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def _write_all_checksums(db: sqlite3.Connection) -> None:
    """Write checksums of the current content of all rows of an earlier format.

    Raw measurements are excluded, because they may be gigabytes, see `MIGRATIONS`.
    """
    for table in (TRIALS, COMPARISONS, ACCURACIES):
        query = f"UPDATE {table.name} SET checksum = ? WHERE rowid = ?"  # noqa: S608 - names of ours
        for (place,) in db.execute(f"SELECT rowid FROM {table.name}").fetchall():  # noqa: S608
            row = db.execute(f"SELECT * FROM {table.name} WHERE rowid = ?", (place,)).fetchone()  # noqa: S608
            db.execute(query, (table.checksum(row), place))


def check_header(path: Path) -> None:
    """Refuse a newer or foreign file from its first 100 bytes, before SQLite can change it.

    Source: https://www.sqlite.org/fileformat2.html, "The Database Header".
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise access_error(path, error) from error
    if header:
        if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
            if path.suffix != ".db":  # a store is renamed when it is damaged, another file never
                raise StoreError(f"`{path}` is no result store.", hint="Name a file that ends in `.db`.")
            raise sqlite3.DatabaseError("it is no SQLite file")  # SQLite would overwrite a short one
        version = int.from_bytes(header[60:64], "big")
        application = int.from_bytes(header[68:72], "big")
        _check_version(path, version, application)


def _check_version(path: Path, version: int, application: int) -> None:
    if application not in (0, APPLICATION_ID):
        raise StoreError(
            f"`{path}` is a database of another program.", hint="Set ORTUNE_HOME to a folder of its own."
        )
    if version > SCHEMA:
        raise StoreError(
            f"The result store `{path}` has format {version}, but this version knows {SCHEMA} at most.",
            hint="Update ORTune, or set ORTUNE_HOME to another folder.",
        )


def rename_damaged(path: Path) -> Path:
    """Rename a damaged store with its journal, without overwriting an earlier one."""
    kept = free_name(path, "corrupt")
    try:
        path.rename(kept)
        for suffix in ("-wal", "-shm"):
            companion = path.with_name(path.name + suffix)
            if companion.exists():
                companion.rename(kept.with_name(kept.name + suffix))
    except OSError as error:
        raise access_error(path, error) from error
    return kept


def is_damage(error: Exception) -> bool:
    """Return whether SQLite's error means that the file is damaged."""
    if isinstance(error, UnicodeDecodeError):
        return True  # SQLite's message quotes damaged text
    if type(error) is sqlite3.DatabaseError and not hasattr(error, "sqlite_errorname"):
        return True  # raised by this module: an invalid header, or a failed quick_check
    name = getattr(error, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def error_words(error: Exception) -> str:
    """Return the message of SQLite; a damaged name is no text that it could quote."""
    return "a name in it is no text" if isinstance(error, UnicodeDecodeError) else str(error)


def store_error(path: Path, error: Exception) -> StoreError:
    """Return the error with a message for SQLite's error code."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if is_damage(error):
        return StoreError(
            f"The result store `{path}` is damaged: {error_words(error)}.",
            hint="Start ORTune again: it keeps the damaged file aside and makes a new one.",
        )
    if code == "SQLITE_FULL" or (code.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _no_space(path)):
        return StoreError(
            f"The disk is full: `{path}` could not be written.", hint="Free disk space and try again."
        )
    is_closed = code.startswith("SQLITE_CANTOPEN") and path.is_file() and not _is_writable(path)
    if code.startswith("SQLITE_READONLY") or is_closed:
        return StoreError(
            f"The result store `{path}` may not be written.",
            hint="Give yourself write permission, or set ORTUNE_HOME to another folder.",
        )
    if code.startswith("SQLITE_BUSY"):
        return StoreError(
            f"Another process has been writing to `{path}` for more than {BUSY_S:g} s.", hint="Try again."
        )
    return StoreError(
        f"The result store `{path}` cannot be used: {error}.",
        hint="Check the disk, or set ORTUNE_HOME to another folder.",
    )


def not_written(target: Path, why: str) -> StoreError:
    """Return the error for a copy that cannot be written."""
    return StoreError(
        f"`{target}` cannot be written: {why}.",
        hint="Choose a file in a folder you may write, with space for it.",
    )


def _cannot_write(path: Path, error: sqlite3.Error) -> bool:
    """Whether SQLite failed because nothing can be written; it says the same when descriptors run out."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")):
        return _no_space(path) or not _is_writable(path)
    return code.startswith(("SQLITE_FULL", "SQLITE_READONLY"))


def _is_writable(path: Path) -> bool:
    """Whether SQLite could write a file and others beside it; tried, because nothing else shows a quota."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(_BESIDE_BYTES))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)  # no descriptor is left to try it with
    return os.access(path, os.W_OK)


def _no_space(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < 1 << 20
    except OSError:
        return False


def access_error(path: Path, error: OSError) -> StoreError:
    """Return the error for a file or folder of the store that cannot be accessed."""
    return StoreError(
        f"`{path}` cannot be used: {error.strerror or error}.",
        hint="Set ORTUNE_HOME to a folder that you may write.",
    )


# --- copies -------------------------------------------------------------------------------------------------


def free_name(path: Path, what: str) -> Path:
    """Return an unused path in the folder of `path`, for example `ortune.db.corrupt-20260131-120000`."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name, number = f"{path.name}.{what}-{stamp}", 0
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.{what}-{stamp}-{number}"
    return path.with_name(name)


def copy(source: Path, target: Path) -> None:
    """Copy the database `source` to the new file `target`.

    Raises:
        OSError, sqlite3.Error: it cannot be read or written; then `target` does not exist.
    """
    with closing(sqlite3.connect(source)) as db:
        copy_of(db, target)


def copy_of(db: sqlite3.Connection, target: Path) -> None:
    """Copy the database of a connection to the new file `target`; raises like `copy`."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    _drafts.add(draft.absolute())
    try:
        if is_private(target):
            _created_private(draft)
        with closing(sqlite3.connect(draft)) as other:
            db.backup(other)
            other.execute("PRAGMA journal_mode = DELETE")
        draft.rename(target)
        sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
        _drafts.discard(draft.absolute())


_drafts: set[Path] = set()  # that this process writes


def remove_drafts(folder: Path, prefix: str) -> None:
    """Remove the unfinished copies of files whose names begin with `prefix`, left by killed processes."""
    with contextlib.suppress(OSError):
        for path in folder.absolute().iterdir():
            draft = _DRAFT.fullmatch(path.name)
            if draft and draft["name"].startswith(prefix) and not _is_written(path, int(draft["pid"])):
                path.unlink(missing_ok=True)


def _is_written(draft: Path, pid: int) -> bool:
    """Whether a process writes it; in a container, each server may have the id of the one that was killed."""
    if pid != os.getpid():
        return psutil.pid_exists(pid)
    return any(draft.name.startswith(one.name) and draft.parent == one.parent for one in list(_drafts))


def _remove_equal(kept: Path, pattern: str) -> None:
    """Remove earlier copies with the same content: a migration was killed after each of them."""
    for other in kept.parent.glob(pattern):
        with contextlib.suppress(OSError):
            if other != kept and filecmp.cmp(kept, other, shallow=False):
                other.unlink()
