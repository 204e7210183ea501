"""The SQLite file under the store: opening, checking, migrating, transactions, and errors in words.

A connection per call (half a millisecond) in write-ahead mode, so that readers never wait for a writer. A
file of a newer version is never changed, and a damaged one is set aside, never overwritten. Where nothing can
be written (a full disk, a home that is read-only) the file is read as it stands. What the tables mean is the
store's business; `sqlite3` is named in this folder only.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from core.process import scratch
from core.store import copies, rows
from core.wire.errors import StoreError

Connection = sqlite3.Connection  # for those of this folder that are lent one

APPLICATION_ID = 0x4F525455  # "ORTU": says whose SQLite file it is
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
BUSY_S = 10.0  # a writer waits this long for another process's write to end
CHECK_BYTES = 64 << 20  # a larger file is not read through at every start

# What lists are ordered by, as it stands in an index: never edit one, see `MIGRATIONS`. Descending puts what
# has no number last; a contrast that was rejected is no gain.
BY_P50 = "iif(json_valid(result), -json_extract(result, '$.latency.p50_s'), NULL)"
BY_GAIN = (
    "iif(json_valid(result), iif(json_extract(result, '$.grade') IS 'F'"
    " OR json_extract(result, '$.contrasts[0].holds') IS 0, NULL,"
    " json_extract(result, '$.contrasts[0].ratio')), NULL)"
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # each entry leads from format number = its index to the next; never edit one that was released
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
    # From here on `samples.data` holds packed bytes. Rows of JSON text stay and are read as well: to convert
    # gigabytes at a start takes minutes and twice the space, and a full disk would lock people out. They are
    # packed when they are written anew or when the store is pruned. An older program must not open the file.
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
        # lists are filtered, counted and ordered by these alone, without the rows
        "CREATE INDEX trials_listed ON trials"
        " (created_at, kind, state, model_name, model_sha256, id, checksum)",
        f"CREATE INDEX trials_by_p50 ON trials ({BY_P50})",
        f"CREATE INDEX trials_by_gain ON trials ({BY_GAIN})",
    ),
)
SCHEMA = len(MIGRATIONS)
SEALED_SINCE = 5  # format whose rows carry a checksum


class Database:
    """One SQLite file in the present format."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; see `Store` for what is refused."""
        self.path = path
        try:
            _check_header(path)
            self._prepare()
        except _ERRORS as error:
            if not _is_damage(error):
                raise _store_error(path, error) from error
            kept = _set_aside(path)
            raise StoreError(
                f"The result store `{path}` is damaged ({_words(error)}); it was kept as `{kept.name}`.",
                hint="Start again: a new, empty store is made. `ortune restore FILE` takes a backup.",
            ) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of the file; any error is a `StoreError`."""
        try:
            with _view(self.path) as db:
                yield db
        except _ERRORS as error:
            raise _store_error(self.path, error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One change: kept as a whole at the end of the `with`, undone as a whole by an error."""
        try:
            with _connection(self.path) as db:
                db.execute("BEGIN IMMEDIATE")  # waits for other writers now, when waiting is still possible
                yield db
                db.execute("COMMIT")
        except _ERRORS as error:
            raise _store_error(self.path, error) from error

    def copy_to(self, target: Path) -> None:
        """Copy the file as it is at this moment to `target`, which must not exist.

        Raises:
            StoreError: it is there already, or cannot be written.
        """
        if target.exists() or target.is_symlink():
            raise StoreError(f"`{target}` is there already.", hint="Choose another name for the copy.")
        with self.reading() as db:
            try:
                copies.copy_of(db, target)
            except OSError as error:
                raise _not_written(target, error.strerror or str(error)) from error
            except _ERRORS as error:
                if _is_damage(error):
                    raise
                raise _not_written(target, str(error)) from error

    def file_bytes(self) -> int:
        """Return how many bytes the file and its journal take."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise unusable(self.path, error) from error
        with contextlib.suppress(OSError):  # the last one to use the file takes its journal away
            size += self.path.with_name(f"{self.path.name}-wal").stat().st_size
        return size

    def free_bytes(self) -> int:
        """Return how many bytes in the file hold nothing: `shrink` gives them back."""
        with self.reading() as db:
            pages: int = db.execute("PRAGMA freelist_count").fetchone()[0]
            size: int = db.execute("PRAGMA page_size").fetchone()[0]
        return pages * size

    def shrink(self) -> None:
        """Write the file anew without what it no longer holds; until then deleted rows leave it as large.

        Raises:
            StoreError: another process reads or writes for long, or there is no space for the copy.
        """
        try:
            with _connection(self.path) as db:
                if db.execute("PRAGMA freelist_count").fetchone()[0]:
                    db.execute("VACUUM")
                is_held = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise _store_error(self.path, error) from error
        if is_held:
            raise StoreError(
                f"Another process has been reading `{self.path}` for more than {BUSY_S:g} s.",
                hint="Try again when it has ended.",
            )

    def _prepare(self) -> None:
        if self.path.exists() and self._is_ready():
            return
        with _connection(self.path) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            version = _check_format(db, self.path)  # again: another process may have been quicker
            with self._copy_kept(version):
                _migrate(db, version)
                db.execute("COMMIT")

    @contextmanager
    def _copy_kept(self, version: int) -> Iterator[None]:
        """Keep a copy of a file of an earlier format beside it while and after it is migrated."""
        if not 0 < version < SCHEMA:
            yield
            return
        kept = copies.free_name(self.path, f"format-{version}")
        try:
            copies.copy(self.path, kept)
        except OSError as error:
            raise unusable(kept, error) from error
        try:
            yield
        except BaseException:
            kept.unlink(missing_ok=True)  # nothing was changed
            raise

    def _is_ready(self) -> bool:
        """Check the file, and whether it has the present format."""
        with _view(self.path) as db:
            version = _check_format(db, self.path)
            if self.path.stat().st_size <= CHECK_BYTES:
                verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise sqlite3.DatabaseError(verdict)
        return version == SCHEMA


@contextmanager
def _view(path: Path) -> Iterator[sqlite3.Connection]:
    """One consistent view of the file, also where SQLite cannot make the small files that it reads with."""
    with contextlib.ExitStack() as opened:
        try:
            db = opened.enter_context(_connection(path))
            db.execute("BEGIN")
            db.execute("PRAGMA user_version").fetchone()  # reads the file; `BEGIN` alone does not
        except sqlite3.Error as error:
            if not (_cannot_write(error) and path.is_file() and path.stat().st_size):
                raise
            opened.close()
            db = opened.enter_context(_as_it_stands(path, error))
        yield db


@contextmanager
def _as_it_stands(path: Path, error: sqlite3.Error) -> Iterator[sqlite3.Connection]:
    """The file alone; where a journal beside it holds what is newest, a copy of both in another place."""
    journal = path.with_name(f"{path.name}-wal")
    if not (journal.is_file() and journal.stat().st_size):
        # `immutable`: without a lock, the only way without a journal. Nobody else can write here now either.
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


def _text(data: bytes) -> str:
    """Text as it stands there: a damaged one must not hide the rows around it."""
    return data.decode("utf-8", "surrogateescape")


def _check_format(db: sqlite3.Connection, path: Path) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    _check_version(path, version, db.execute("PRAGMA application_id").fetchone()[0])
    return version


def _migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring the file to the present format; the caller's transaction makes it all or nothing."""
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    if 0 < version < SEALED_SINCE:
        _seal_all(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def _seal_all(db: sqlite3.Connection) -> None:
    """Give the rows of an earlier format the checksum of what stands in them now.

    Not the samples: those may be gigabytes, see `MIGRATIONS`.
    """
    for table in ("trials", "comparisons", "accuracies"):
        query = f"UPDATE {table} SET checksum = ? WHERE rowid = ?"  # noqa: S608 - names of ours
        for (place,) in db.execute(f"SELECT rowid FROM {table}").fetchall():  # noqa: S608
            row = db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (place,)).fetchone()  # noqa: S608
            db.execute(query, (rows.seal(row, table), place))


def _check_header(path: Path) -> None:
    """Refuse a newer or foreign file from its first 100 bytes, before SQLite could touch it.

    Source: https://www.sqlite.org/fileformat2.html, "The Database Header".
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(path, error) from error
    if header:
        if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
            raise sqlite3.DatabaseError("it is no SQLite file")  # a short one SQLite would overwrite
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


def _set_aside(path: Path) -> Path:
    """Rename a damaged store with its journal; an older one that was kept is never overwritten."""
    kept = copies.free_name(path, "corrupt")
    try:
        path.rename(kept)
        for suffix in ("-wal", "-shm"):
            companion = path.with_name(path.name + suffix)
            if companion.exists():
                companion.rename(kept.with_name(kept.name + suffix))
    except OSError as error:
        raise unusable(path, error) from error
    return kept


def _is_damage(error: Exception) -> bool:
    if isinstance(error, UnicodeDecodeError):
        return True  # SQLite quotes what it found in its message, and that is no text any more
    if type(error) is sqlite3.DatabaseError and not hasattr(error, "sqlite_errorname"):
        return True  # our own: the header, or what quick_check found
    name = getattr(error, "sqlite_errorname", None) or ""
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _words(error: Exception) -> str:
    return "a name in it is no text" if isinstance(error, UnicodeDecodeError) else str(error)


def _store_error(path: Path, error: Exception) -> StoreError:
    """Say in words what SQLite's code means."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if _is_damage(error):
        return StoreError(
            f"The result store `{path}` is damaged: {_words(error)}.",
            hint="Start ORTune again: it keeps the damaged file aside and makes a new one.",
        )
    if code == "SQLITE_FULL" or (code.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _no_space(path)):
        return StoreError(
            f"The disk is full: `{path}` could not be written.", hint="Free disk space and try again."
        )
    if code.startswith("SQLITE_READONLY") or (code.startswith("SQLITE_CANTOPEN") and path.is_file()):
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


def _not_written(target: Path, why: str) -> StoreError:
    return StoreError(
        f"`{target}` cannot be written: {why}.",
        hint="Choose a file in a folder you may write, with space for it.",
    )


def _cannot_write(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorname", "") or ""
    return code.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY"))


def _no_space(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < 1 << 20
    except OSError:
        return False


def unusable(path: Path, error: OSError) -> StoreError:
    """A file or folder of the store that the system refuses."""
    return StoreError(
        f"`{path}` cannot be used: {error.strerror or error}.",
        hint="Set ORTUNE_HOME to a folder that you may write.",
    )


def restore(source: Path, path: Path) -> Path | None:
    """Put the store in `source` in the place of the one at `path`; see `core.store.restore`."""
    _check_backup(source, path)
    kept = _kept_aside(path) if path.exists() else None
    try:
        copies.overwrite(source, path, BUSY_S)
    except _ERRORS as error:
        raise _store_error(path, error) from error
    return kept


def lost_by_restore(source: Path, path: Path) -> int:
    """Count what `restore` would take from the store; see `core.store.lost_by_restore`."""
    _check_backup(source, path)
    if not path.exists():
        return 0
    try:
        return copies.lacking(source, path)
    except _ERRORS as error:
        if _is_damage(error):  # then it holds nothing that can be read
            return 0
        raise _store_error(path, error) from error


def _check_backup(source: Path, path: Path) -> None:
    """Refuse what is no backup of a store.

    Raises:
        StoreError: it is none, or it is the store at `path` itself.
    """
    if not source.is_file():
        raise StoreError(f"There is no backup `{source}`.", hint="Give a file that `backup` wrote.")
    if source.resolve() == path.resolve():
        raise StoreError(f"`{source}` is the store itself.", hint="Give a file that `backup` wrote.")
    try:
        _check_header(source)
        application = copies.checked(source)
    except _ERRORS as error:
        raise StoreError(
            f"`{source}` is no sound store: {_words(error)}.", hint="Give another file that `backup` wrote."
        ) from error
    if application != APPLICATION_ID:
        raise StoreError(f"`{source}` is no store of ORTune.", hint="Give a file that `backup` wrote.")


def _kept_aside(path: Path) -> Path:
    """Keep a copy of the present store; one that is damaged is moved out of the way."""
    kept = copies.free_name(path, "before-restore")
    try:
        copies.copy(path, kept)
    except OSError as error:
        raise unusable(kept, error) from error
    except _ERRORS as error:
        if not _is_damage(error):
            raise _not_written(kept, str(error)) from error
        return _set_aside(path)
    return kept
