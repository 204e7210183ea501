"""The queue of this machine, shared by servers, users and commands.

Two measurements at once would slow each other down and both numbers would be wrong. So every job that
loads the machine takes a ticket (a small JSON file in a folder that all users share), waits until its ticket
is the first in the fair order of `fair_order`, and holds a file lock while it works. The tickets give the
order and the texts for users; the lock alone guarantees exclusive use, and the kernel frees it when its
holder is killed.

Every user may write into that folder, so its content is not trusted. A ticket counts only when the owner of
the file also owns the process that it names, and no longer than that process runs. The past use of a user is
in a file of this user, so nobody can charge another. A user can lie about his own use, as he can ignore the
queue: against that only the operator helps.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import filelock

from core.process import fair_order
from core.process.identity import epoch_of, is_stopped, start_of
from core.process.identity import is_alive as is_alive
from core.process.queue_files import MOST_TURNS, USED, Ticket, plain, read, read_uses, unusable, write
from core.wire import variables
from core.wire.errors import Cancelled, StoreError

LOCK_NAME = "machine.lock"
PRIVATE_JOB = "a private job"  # what others read of it
FIRST_POLLS_S = 0.2
LATER_POLLS_S = 0.5  # a long wait wakes up rarely, because a measurement runs on the same machine
LATER_POLLS_AFTER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One waiting or running job of this machine."""

    ticket: str
    owner: str
    what: str
    pid: int
    since: float  # seconds since the epoch
    running: bool
    person: str = ""  # who started it, as the owner calls that person; empty: the owner itself
    place: int = 0  # jobs ahead of it
    starts_in_s: float | None = None  # of a waiting one, predicted; None: unknown
    private: bool = False  # person and job are for those who may see its result, see `Scheduler.line`

    @property
    def text(self) -> str:
        """Person and job, for display to all."""
        return PRIVATE_JOB if self.private else f"{self.person or self.owner}: {self.what}"


class Place:
    """The place of one job in the queue: its ticket, and the lock once it is the job's turn.

    One thread may wait with it while another one leaves, so both change it under `guard`.
    """

    def __init__(self, folder: Path, ticket: Ticket, name: str) -> None:
        """Describe a ticket that is not written yet."""
        self.path, self.ticket = folder / name, ticket
        self.lock: filelock.BaseFileLock | None = None
        self.taken = 0.0  # monotonic, when it had the lock
        self.left = False  # for good: its ticket is not written again
        self.guard = threading.Lock()

    @property
    def name(self) -> str:
        """Name of the ticket."""
        return self.path.name


class MachineQueue:
    """The queue of one machine. A job enters through `turn`, or by `enter`, `take` and `leave`."""

    def __init__(self, folder: Path | None = None) -> None:
        named = os.environ.get(variables.QUEUE)
        self.folder = folder or (Path(named) if named else Path(tempfile.gettempdir()) / "ortune-queue")
        self._known: dict[str, tuple[tuple[int, ...], Ticket]] = {}  # by name, with the stamps of the file

    @contextmanager
    def turn(
        self,
        owner: str,
        what: str,
        cancel: threading.Event | None = None,
        on_wait: Callable[[int, str], None] | None = None,
        **more: Any,
    ) -> Iterator[None]:
        """Wait for the machine and hold it for the body of the `with`.

        Args:
            owner: who starts the job, shown to other users.
            what: the job, shown to other users.
            cancel: set it to leave the queue.
            on_wait: called at every poll with the number of jobs ahead and the text of the running job.
            more: see `enter`.

        Raises:
            Cancelled: `cancel` was set while waiting.
            StoreError: the folder of the queue cannot be used.
        """
        place = self.enter(owner, what, **more)
        try:
            self.wait([place], (cancel or threading.Event()).wait, on_wait)
            yield
        finally:
            self.leave(place)

    def enter(
        self,
        owner: str,
        what: str,
        *,
        person: str = "",
        predicted_s: float | None = None,
        gives_way: bool = False,
        private: bool = False,
    ) -> Place:
        """Take a ticket; `leave` it at the end, whatever happens.

        Args:
            owner: see `turn`.
            what: see `turn`.
            person: who started the job, if the owner works for several; they share the machine fairly.
            predicted_s: duration of the job in seconds; None: unknown.
            gives_way: the job goes after all jobs that wait already.
            private: other users and persons read `PRIVATE_JOB` instead of `what`.

        Raises:
            StoreError: the folder of the queue cannot be used.
        """
        self._prepare()
        ticket = Ticket(
            pid=os.getpid(),
            started=start_of(),
            owner=owner,
            what=PRIVATE_JOB if private else what,
            since=time.time(),
            running=False,
            private=private,
            person=person,
            predicted_s=predicted_s,
            gives_way=gives_way,
            uid=os.getuid() if hasattr(os, "getuid") else None,
        )
        place = Place(self.folder, ticket, f"{time.time_ns():020d}-{secrets.token_hex(4)}.json")
        write(place.path, plain(ticket))
        return place

    def wait(
        self,
        places: Sequence[Place],
        pause: Callable[[float], object],
        on_wait: Callable[[int, str], None] | None = None,
    ) -> Place:
        """Wait until it is the turn of one of these places, take the machine for it, and return it.

        Args:
            places: of waiting jobs; the caller may change the list meanwhile.
            pause: waits for a number of seconds; returns true to end the wait.
            on_wait: see `turn`; for the first of `places`.

        Raises:
            Cancelled: `pause` returned true.
            StoreError: the folder of the queue cannot be used.
        """
        began, pause_s = time.monotonic(), 0.0
        while True:
            if pause(pause_s):
                raise Cancelled(
                    "The job was cancelled while it waited for the machine.", hint="Start it again."
                )
            if (taken := self.take(list(places), on_wait)) is not None:
                return taken
            pause_s = LATER_POLLS_S if time.monotonic() - began > LATER_POLLS_AFTER_S else FIRST_POLLS_S

    def take(
        self, places: Sequence[Place], on_wait: Callable[[int, str], None] | None = None
    ) -> Place | None:
        """Take the machine if it is free and the next job is one of `places`; return that place."""
        entries = self.entries()
        # a stopped process would not take the free machine; it keeps its place for when it continues
        ready = (one.ticket for one in entries if not one.running and not is_stopped(one.pid))
        own = {one.name: one for one in places}
        ticket = next(ready, None)
        first = next(iter(places), None) if ticket is None else own.get(ticket)
        if first is not None and self._try_lock(first):
            return first
        if on_wait is not None and places:
            names = [one.ticket for one in entries]
            ahead = names.index(places[0].name) if places[0].name in names else len(names)
            holders = [one.text for one in entries if one.running]
            on_wait(max(ahead, 1), holders[0] if holders else "")
        for one in places:
            with one.guard:
                # removed by a cleaner of temporary files; the place is kept
                if not one.left and not one.path.exists():
                    write(one.path, plain(one.ticket))
        return None

    def _try_lock(self, place: Place) -> bool:
        # a job may end in another thread than the one that took the machine for it
        lock = filelock.FileLock(self.folder / LOCK_NAME, mode=0o666, thread_local=False)
        if not _try_lock(lock):
            return False
        running = replace(place.ticket, running=True, since=time.time())
        with place.guard:
            try:
                if not place.left:
                    write(place.path, plain(running))
                    place.lock, place.taken, place.ticket = lock, time.monotonic(), running
            finally:
                if place.lock is None:
                    lock.release()
            return place.lock is not None

    def leave(self, place: Place) -> None:
        """Give the ticket back, and the machine if the place has it; its use is recorded then."""
        with place.guard:
            place.left = True
            if place.lock is not None:
                with contextlib.suppress(StoreError):
                    self._record_use(place)
                place.lock.release()
                place.lock = None
            with contextlib.suppress(OSError):
                place.path.unlink()

    def entries(self) -> list[Entry]:
        """Return the running and the waiting jobs, in order; tickets of ended processes are removed."""
        now, living = time.time(), self._live_tickets()
        by_name = {path.name: ticket for path, ticket in living}
        running = sorted(name for name, one in by_name.items() if one.running)
        turns = [*self._uses(now)]
        left: list[float | None] = []
        for name in running:
            one = by_name[name]
            since = min(one.since, now)  # the clock may have been set back
            rest_s = None if one.predicted_s is None else max(0.0, since + one.predicted_s - now)
            left.append(rest_s)
            turns.append(fair_order.Turn(one.user, one.person, one.since, now + (rest_s or 0.0)))
        left_s = None if None in left else sum(one for one in left if one is not None)
        waiting = [_waiting(name, one) for name, one in by_name.items() if not one.running]
        ordered = fair_order.in_order(waiting, turns, now)
        found = [_entry_from_ticket(name, by_name[name]) for name in running]
        for number, job in enumerate(ordered):
            starts_in_s = fair_order.starts_in_s(ordered[:number], left_s)
            entry = _entry_from_ticket(job.ticket, by_name[job.ticket])
            found.append(replace(entry, place=len(found), starts_in_s=starts_in_s))
        return found

    def _live_tickets(self) -> list[tuple[Path, Ticket]]:
        """Tickets of living processes by age; foreign and unreadable files are ignored and kept."""
        found: list[tuple[Path, Ticket]] = []
        alive: dict[tuple[int, float, int | None], bool] = {}  # many tickets name the same process
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []:
            ticket = self._ticket(path)
            if ticket is None:
                continue
            process = ticket.pid, ticket.started, ticket.uid
            if process not in alive:
                alive[process] = is_alive(ticket.pid, ticket.started, uid=ticket.uid)
            if alive[process]:
                found.append((path, ticket))
            else:
                with contextlib.suppress(
                    OSError
                ):  # another user's ticket in a sticky folder: ignored is enough
                    path.unlink()
        names, known = {path.name for path, _ in found}, self._known
        self._known = {name: one for name, one in list(known.items()) if name in names}
        return found

    def _ticket(self, path: Path) -> Ticket | None:
        """The content of a ticket, read again only when the file has changed."""
        try:
            facts = path.lstat()
        except OSError:
            return None
        stamps = facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_uid
        known = self._known.get(path.name)
        if known is not None and known[0] == stamps:
            return known[1]
        ticket = read(path)
        if ticket is not None:
            self._known[path.name] = stamps, ticket
        return ticket

    # --- past use ---------------------------------------------------------------------------------------

    def _record_use(self, place: Place) -> None:
        """Add a turn to the file of this user; only the holder of the lock writes."""
        now, ticket = time.time(), place.ticket
        path = self.folder / f"{USED}{ticket.user or 0}"
        earlier = [one for one in read_uses(path) or [] if one.ended > now - fair_order.WINDOW_S]
        turn = fair_order.Turn(ticket.user, ticket.person, now - (time.monotonic() - place.taken), now)
        kept = [(one.person, one.began, one.ended) for one in [*earlier, turn]]
        write(path, kept[-MOST_TURNS:])

    def _uses(self, now: float) -> Iterator[fair_order.Turn]:
        for path in self.folder.glob(f"{USED}*") if self.folder.is_dir() else []:
            yield from (one for one in read_uses(path) or [] if one.began <= one.ended <= now)

    def _prepare(self) -> None:
        """Make the folder, writable for every user; sticky, so that no user removes another's ticket.

        Every user must reach it, whatever the umask of this process. A link of another user could lead the
        tickets into any folder of this user.
        """
        try:
            missing = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
            for one in reversed(missing):
                one.mkdir(exist_ok=True)
                with contextlib.suppress(PermissionError):  # another user was quicker
                    one.chmod(0o1777 if one == self.folder else 0o755)
            found = self.folder.lstat()
        except OSError as error:
            raise unusable(self.folder, error) from error
        if hasattr(os, "geteuid") and stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
            raise unusable(self.folder, OSError(0, "it is a link that another user made"))


def _entry_from_ticket(name: str, ticket: Ticket) -> Entry:
    return Entry(
        ticket=name,
        owner=ticket.owner,
        what=ticket.what,
        pid=ticket.pid,
        since=ticket.since,
        running=ticket.running,
        person=ticket.person,
        private=ticket.private,
    )


def _waiting(name: str, ticket: Ticket) -> fair_order.Waiting:
    """The ticket for the order; no process is older in the queue than itself."""
    digits = name.partition("-")[0]
    named = int(digits) / 1e9 if digits.isascii() and digits.isdigit() else time.time()
    return fair_order.Waiting(
        ticket=name,
        arrived=max(named, epoch_of(ticket.started)),
        user=ticket.user,
        person=ticket.person,
        predicted_s=ticket.predicted_s,
        gives_way=ticket.gives_way,
    )


def _try_lock(lock: filelock.BaseFileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise unusable(Path(lock.lock_file), error) from error
    return True
