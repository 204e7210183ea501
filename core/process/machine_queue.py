"""The queue of this machine, shared by servers, users and commands.

Two measurements at once would slow each other down and both numbers would be wrong. So every job that
loads the machine takes a ticket (a small JSON file in a folder that all users share), waits until no older
ticket of a living process is left, and holds a file lock while it works. The tickets give the order and the
texts for users; the lock alone guarantees exclusive use, and the kernel frees it when its holder is killed.

Every user may write into that folder, so its content is not trusted: a ticket counts only when the owner of
the file also owns the process that it names.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock

from core.process.identity import is_alive, start_of
from core.wire import variables
from core.wire.errors import Cancelled, StoreError

LOCK_NAME = "machine.lock"
FIRST_POLLS_S = 0.2
LATER_POLLS_S = 0.5  # a long wait wakes up rarely, because a measurement runs on the same machine
LATER_POLLS_AFTER_S = 5.0
MAX_TICKET_BYTES = 10_000
MOST_TEXT = 200  # characters of a text in a ticket
# Follows no link, and does not block on a FIFO.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One waiting or running job of this machine."""

    ticket: str
    owner: str
    what: str
    pid: int
    since: float  # seconds since the epoch
    running: bool

    @property
    def text(self) -> str:
        """Owner and job, for display."""
        return f"{self.owner}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ticket:
    """Content of a ticket file."""

    pid: int
    started: float  # the process's start, see `identity`: a reused pid has another one
    owner: str
    what: str
    since: float
    running: bool
    uid: int | None = None  # owner of the file, not written in it; None: unknown on this system


class MachineQueue:
    """The queue of one machine, first come, first served; every job enters through `turn`."""

    def __init__(self, folder: Path | None = None) -> None:
        named = os.environ.get(variables.QUEUE)
        self.folder = folder or (Path(named) if named else Path(tempfile.gettempdir()) / "ortune-queue")

    @contextmanager
    def turn(
        self,
        owner: str,
        what: str,
        cancel: threading.Event | None = None,
        on_wait: Callable[[int, str], None] | None = None,
    ) -> Iterator[None]:
        """Wait for the machine and hold it for the body of the `with`.

        Args:
            owner: who starts the job, shown to other users.
            what: the job, shown to other users.
            cancel: set it to leave the queue.
            on_wait: called at every poll with the number of jobs ahead and the text of the running job.

        Raises:
            Cancelled: `cancel` was set while waiting.
            StoreError: the folder of the queue cannot be used.
        """
        self._prepare()
        ticket = _Ticket(
            pid=os.getpid(),
            started=start_of(),
            owner=owner,
            what=what,
            since=time.time(),
            running=False,
        )
        path = self.folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        try:
            _write(path, ticket)
            with self._hold_lock(path, ticket, cancel or threading.Event(), on_wait):
                yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def entries(self) -> list[Entry]:
        """Return the running and the waiting jobs, in order; tickets of ended processes are removed."""
        found = [_entry_from_ticket(path.name, ticket) for path, ticket in self._live_tickets()]
        return sorted(found, key=lambda entry: (not entry.running, entry.ticket))

    @contextmanager
    def _hold_lock(
        self,
        path: Path,
        ticket: _Ticket,
        cancel: threading.Event,
        on_wait: Callable[[int, str], None] | None,
    ) -> Iterator[None]:
        lock = filelock.FileLock(self.folder / LOCK_NAME, mode=0o666)
        began = time.monotonic()
        pause = 0.0
        while True:
            if cancel.wait(pause):
                raise Cancelled(
                    "The job was cancelled while it waited for the machine.", hint="Start it again."
                )
            living = self._live_tickets()
            ahead = sum(other.name < path.name for other, _ in living)
            if ahead == 0 and _try_lock(lock):
                break
            if on_wait is not None:
                holders = [
                    _entry_from_ticket(other.name, there).text for other, there in living if there.running
                ]
                on_wait(max(ahead, 1), holders[0] if holders else "")
            if not path.exists():  # removed by a cleaner of temporary files; the place is kept
                _write(path, ticket)
            pause = LATER_POLLS_S if time.monotonic() - began > LATER_POLLS_AFTER_S else FIRST_POLLS_S
        try:
            _write(path, _as_running(ticket))
            yield
        finally:
            lock.release()

    def _live_tickets(self) -> list[tuple[Path, _Ticket]]:
        """Tickets of living processes by age; foreign and unreadable files are ignored and kept."""
        found: list[tuple[Path, _Ticket]] = []
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []:
            ticket = _read(path)
            if ticket is None:
                continue
            if is_alive(ticket.pid, ticket.started, uid=ticket.uid):
                found.append((path, ticket))
            else:
                with contextlib.suppress(
                    OSError
                ):  # another user's ticket in a sticky folder: ignored is enough
                    path.unlink()
        return found

    def _prepare(self) -> None:
        """Make the folder, writable for every user; sticky, so that no user removes another's ticket."""
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True)
                self.folder.chmod(0o1777)
        except OSError as error:
            raise _unusable(self.folder, error) from error


def _as_running(ticket: _Ticket) -> _Ticket:
    return _Ticket(**{**asdict(ticket), "running": True, "since": time.time()})


def _entry_from_ticket(name: str, ticket: _Ticket) -> Entry:
    return Entry(
        ticket=name,
        owner=ticket.owner,
        what=ticket.what,
        pid=ticket.pid,
        since=ticket.since,
        running=ticket.running,
    )


def _try_lock(lock: filelock.BaseFileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise _unusable(Path(lock.lock_file), error) from error
    return True


def _write(path: Path, ticket: _Ticket) -> None:
    """Write atomically, so that a reader never finds an incomplete ticket."""
    draft = path.with_suffix(f".{secrets.token_hex(8)}")
    try:
        with draft.open("x") as file:  # never into an existing file or along a link
            file.write(json.dumps({name: value for name, value in asdict(ticket).items() if name != "uid"}))
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise _unusable(path.parent, error) from error


def _read(path: Path) -> _Ticket | None:
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return None
            data = json.loads(file.read(MAX_TICKET_BYTES))
        since = float(data["since"])
        return _Ticket(
            pid=int(data["pid"]),
            started=float(data["started"]),
            owner=_escaped(data["owner"]),
            what=_escaped(data["what"]),
            since=since if math.isfinite(since) and 0 <= since <= time.time() else time.time(),
            running=data["running"] is True,
            uid=facts.st_uid if hasattr(os, "getuid") else None,
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _escaped(text: object) -> str:
    """Return a ticket's text with control characters escaped, because they could steer a terminal."""
    signs = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[:MOST_TEXT])
    return "".join(signs)[:MOST_TEXT]


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"The machine's queue needs `{path}`, but it cannot be used: {error.strerror or error}.",
        hint="Set ORTUNE_QUEUE to a folder that every user of this machine may write.",
    )
