"""The audit log: who measured, changed, deleted, exported and logged in, one JSON object per line.

The log lies in `audit/` of the data folder. Every line holds the SHA-256 of the line before it, so a check
notices a changed or removed line. It does not protect against a person who may write the folder and computes
all lines anew; for that, copy the last hash to another place. Full files are renamed and the oldest is
removed: the log takes at most `MOST_BYTES`. A log that cannot be written never stops the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import filelock

from core.wire.files import home, made_private, private_opener

Action = Literal[
    "measure",
    "create",
    "import",
    "upload",
    "change",
    "delete",
    "export",
    "sign",
    "log-in",
    "log-in-refused",
    "log-out",
]
Through = Literal["page", "command", "python"]
LOCAL = "local"  # the person where nobody logs in
FOLDER = "audit"
FILE_BYTES = 5 << 20
FILES = 10  # the one that is written, and older ones
MOST_BYTES = FILES * FILE_BYTES + (FILE_BYTES >> 4)
MOST_TEXT = 500  # characters of a text in a line
MOST_IDS = 100  # in a line
LOCK_S = 10.0  # a writer takes milliseconds; a longer wait means that its holder is stopped

_CURRENT = "audit.jsonl"
_LAST = "last"  # the hash of the last line: notices lines that were removed at the end
_START = ""  # `previous` of the first line
_TAIL_BYTES = 16 << 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log."""

    n: int  # counts the lines from 1; rotation keeps counting
    time: str  # UTC, ISO 8601 with milliseconds
    who: str
    action: str
    what: str
    more: dict[str, Any]
    text: str  # the line as it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """What a check of the log found."""

    lines: int
    first: int  # number of the oldest kept line; 1: rotation removed none
    last_sha256: str  # of the newest line; empty: there is none
    problems: tuple[str, ...]  # one sentence each; empty: no line was changed or removed


class _State:
    """What this process knows of persons and of the log."""

    through: Through | None = None
    person: Callable[[], str] = staticmethod(lambda: LOCAL)
    problem = ""  # why the last line could not be written


def name_people(person: Callable[[], str]) -> None:
    """Set what names the person of a page's request; without it, everybody is `LOCAL`."""
    _State.through = "page"
    _State.person = staticmethod(person)


def _through() -> Through:
    # the command line imports the store late, so that it starts quickly
    return _State.through or ("command" if "core.cli" in sys.modules else "python")


def person() -> str:
    """Return the person of the current request, or of the job that runs in this thread."""
    return _of_job.get() or _State.person()


@contextlib.contextmanager
def acting(who: str) -> Iterator[None]:
    """Name `who` for what is recorded in the body of the `with`, in this thread."""
    before = _of_job.set(who)
    try:
        yield
    finally:
        _of_job.reset(before)


_of_job: ContextVar[str] = ContextVar("person of the job", default="")


def problem() -> str:
    """Return why this process could not write its last line; empty: it could."""
    return _State.problem


def record(
    action: Action,
    what: str,
    *,
    who: str | None = None,
    folder: Path | None = None,
    ids: Sequence[str] = (),
    **more: str | int | None,
) -> None:
    """Append one line. A log that cannot be written is reported once, and never raises.

    Args:
        action: what was done.
        what: to which object, in a few words. Never a secret: no token, cookie or key.
        who: the person; None: the one of the current request.
        folder: the data folder; None: `home()`.
        ids: of the objects; many of them make several lines.
        more: further facts; None and empty texts are left out.
    """
    by = person() if who is None else who
    facts: dict[str, object] = {"who": by, "action": action, "what": what, "through": _through()}
    facts |= {name: value for name, value in more.items() if value not in (None, "")}
    parts = [ids[at : at + MOST_IDS] for at in range(0, len(ids), MOST_IDS)]
    try:
        for part in parts or [()]:
            _append((folder or home()) / FOLDER, facts | ({"ids": list(part)} if part else {}))
    except (OSError, filelock.Timeout) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if not _State.problem:
            _log.warning("The audit log cannot be written, so it lacks actions: %s.", reason)
        _State.problem = reason
    else:
        _State.problem = ""


def entries(
    folder: Path | None = None,
    *,
    since: float | None = None,
    until: float | None = None,
    who: str | None = None,
    action: str | None = None,
) -> Iterator[Entry]:
    """Yield the lines of the log that match, oldest first; unreadable lines are left to `check`.

    Args:
        folder: the data folder; None: `home()`.
        since: seconds since the epoch.
        until: likewise; the end is excluded.
        who: a person.
        action: one of `Action`.
    """
    for line in _lines((folder or home()) / FOLDER):
        found = _entry(line)
        if found is None or who not in (None, found.who) or action not in (None, found.action):
            continue
        at = _seconds(found.time)
        if (since is None or at >= since) and (until is None or at < until):
            yield found


def whole(folder: Path | None = None) -> bytes:
    """Return all lines of the log."""
    return b"".join(line + b"\n" for line in _lines((folder or home()) / FOLDER))


def check(folder: Path | None = None) -> AuditCheck:
    """Check that no line was changed or removed since it was written."""
    log = (folder or home()) / FOLDER
    kept = _read_last(log)  # before the lines, for more may be written meanwhile
    problems: list[str] = []
    lines = first = number = 0
    before = link = _START
    newest = _START if kept is None else kept[1]
    is_whole = newest == before
    for line in _lines(log):
        lines, found = lines + 1, _entry(line)
        if found is None:
            problems.append(f"The line after line {number} is no line of an audit log.")
        else:
            link = found.more["previous"]
            if lines == 1:
                first, wrong = found.n, _wrong_beginning(log, found)
            else:
                wrong = link != before or found.n != number + 1
            if wrong:
                problems.append(f"Line {found.n} does not follow line {number}: {_CHANGED}.")
            number = found.n
        before = _hash(line)
        is_whole |= newest in (link, before)
    if kept is not None and not is_whole:
        problems.append(f"Line {kept[0]} should be the newest one: {_CHANGED}.")
    return AuditCheck(lines=lines, first=first, last_sha256=before, problems=tuple(problems))


_CHANGED = "a line was changed or removed"


def _wrong_beginning(log: Path, entry: Entry) -> bool:
    """Whether the oldest line is neither the first one nor the oldest that rotation has kept."""
    if entry.n == 1:
        return bool(entry.more["previous"] != _START)
    return not (log / _older(FILES - 1)).exists()


# --- files ------------------------------------------------------------------------------------------------


def _append(log: Path, facts: Mapping[str, object]) -> None:
    made_private(log)
    with filelock.FileLock(log / "lock", timeout=LOCK_S, mode=0o600, poll_interval=0.005):
        _rotate(log)
        number, previous = _place(log)
        line = _line({"n": number, "time": _now(), **facts, "previous": previous})
        descriptor = os.open(log / _CURRENT, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW, 0o600)
        try:
            _write_whole(descriptor, line)
            os.fsync(descriptor)  # before `last`: else a power loss would look like a removed line
        finally:
            os.close(descriptor)
        with open(log / _LAST, "w", opener=private_opener, encoding="ascii") as file:
            file.write(f"{number} {_hash(line[:-1])}\n")


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def _write_whole(descriptor: int, line: bytes) -> None:
    """Write a line, or nothing: on a full disk, a part of it is removed again."""
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(28, "the disk is full")
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(descriptor, size)
        raise


def _place(log: Path) -> tuple[int, str]:
    """Return the number of the next line, and the hash that it follows."""
    tail = _tail(log / _CURRENT) or _tail(log / _older(1))
    found = _entry(tail[-1]) if tail else None
    kept = _read_last(log)
    if found is None:
        return (1, _START) if kept is None else (kept[0] + 1, kept[1])
    # killed writers left `last` behind: the lines count. Else some are gone, and the check shall say so
    if kept is None or kept[1] in {found.more["previous"], *map(_hash, tail)}:
        return found.n + 1, _hash(tail[-1])
    return kept[0] + 1, kept[1]


def _tail(path: Path) -> list[bytes]:
    """Return the last lines of a file, of which the first may be cut; empty: there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def _read_last(log: Path) -> tuple[int, str] | None:
    try:
        number, digest = (log / _LAST).read_text("ascii").split()
        return int(number), digest
    except (OSError, ValueError):
        return None


def _rotate(log: Path) -> None:
    try:
        if (log / _CURRENT).stat().st_size < FILE_BYTES:
            return
    except FileNotFoundError:
        return
    # up to the first gap, or the oldest is replaced; a killed writer left a gap, and its files move only once
    free = next((age for age in range(1, FILES) if not (log / _older(age)).exists()), FILES - 1)
    for age in range(free, 0, -1):
        (log / (_older(age - 1) if age > 1 else _CURRENT)).replace(log / _older(age))


def _older(age: int) -> str:
    return f"audit.{age}.jsonl"


def _lines(log: Path) -> Iterator[bytes]:
    for name in (*(_older(age) for age in range(FILES - 1, 0, -1)), _CURRENT):
        with contextlib.suppress(FileNotFoundError), (log / name).open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n")


# --- lines ------------------------------------------------------------------------------------------------


def _line(facts: Mapping[str, object]) -> bytes:
    """Return one line of ASCII; control characters are escaped."""
    short = {name: value[:MOST_TEXT] if isinstance(value, str) else value for name, value in facts.items()}
    return json.dumps(short, separators=(",", ":")).replace("\x7f", "\\u007f").encode() + b"\n"


def _entry(line: bytes) -> Entry | None:
    try:
        data = json.loads(line)
        known = {name: data.pop(name) for name in ("n", "time", "who", "action", "what")}
        if not isinstance(known["n"], int) or not isinstance(data["previous"], str):
            return None
        _seconds(known["time"])
        return Entry(**known, more=data, text=line.decode("ascii"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
