"""The sessions of people who have logged in: begun, found by a cookie, ended, and kept over a restart.

The file holds the hash of each cookie's content, so nobody can log in with it. Servers with the same home
share it. A damaged file is read as an empty one: all people log in again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import filelock

from core.wire.errors import StoreError
from core.wire.files import made_private, private_opener, written_whole
from dashboard.server.people_file import hash_of

COOKIE = "ortune_login"
PERSON = "ortune.person"  # in the ASGI scope of a request: the `Person` who sent it
FOLDER = "login"  # in the home of the server
DEFAULT_HOURS = 12  # a session that begins in the morning lasts for the working day
MOST_HOURS = 24 * 365
MOST_PER_PERSON = 1000  # sessions; the oldest ends. All visitors with the shared token are one person
LOCK_S = 10.0
CLOCK_S = 300.0  # by which the clock may have been ahead when a session began
_FILE = "sessions.json"
_log = logging.getLogger(__name__)

Stamp = tuple[int, int, int] | None  # of the file as it was read


@dataclass(frozen=True, slots=True)
class LoginSession:
    """One login in one browser."""

    key: str  # SHA-256 of the cookie's content
    person: str  # id
    began_at: float  # seconds since the epoch
    token: str = ""  # SHA-256 of the token that was entered; empty: a provider
    claims: Mapping[str, Any] = field(default_factory=dict)  # of the provider, those that decide on the role


def cookie_in(headers: Iterable[str]) -> str:
    """Return the content of our cookie in the `Cookie` headers of a request; empty: there is none.

    The first one counts: browsers send it before that of a server on a shorter path of the same host.
    """
    pairs = (pair.strip().partition("=") for header in headers for pair in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


class LoginSessions:
    """All sessions of the servers with one home. Thread-safe."""

    def __init__(self, home: Path, *, hours: float = DEFAULT_HOURS) -> None:
        """Read what is stored.

        Args:
            home: of the server.
            hours: after which a session ends.
        """
        self.lasts_s = hours * 3600.0
        self._folder = home / FOLDER
        self._file = self._folder / _FILE
        self._lock = threading.RLock()
        self._known: dict[str, LoginSession] = {}
        self._ended: set[str] = set()  # keys ended here that may still be stored
        self._read_as: Stamp = None
        self._on_end: list[Callable[[], None]] = []
        self._refresh()

    def begin(self, person: str, *, token: str = "", claims: Mapping[str, Any] | None = None) -> str:
        """Begin a session, and return the content of its cookie.

        Args:
            person: id.
            token: SHA-256 of the entered token.
            claims: of the provider.

        Raises:
            StoreError: the session cannot be stored.
        """
        cookie = secrets.token_urlsafe(32)
        made = LoginSession(hash_of(cookie), person, time.time(), token, claims or {})

        def add() -> None:
            own = sorted(self._of(person), key=lambda one: one.began_at)
            for one in own[: max(0, len(own) + 1 - MOST_PER_PERSON)]:
                self._drop(one.key)
            self._known[made.key] = made

        self._change(add)
        return cookie

    def find(self, cookie: str) -> LoginSession | None:
        """Return the session of a cookie; None: there is none, or it has ended."""
        return self.get(hash_of(cookie)) if cookie else None

    def get(self, key: str) -> LoginSession | None:
        """Return a session by its key; None: there is none, or it has ended."""
        with self._lock:
            self._refresh()
            found = self._known.get(key)
        return found if found is not None and self.left_s(found) > 0 else None

    def left_s(self, session: LoginSession) -> float:
        """Return the seconds until a session ends; 0: it has ended."""
        age = time.time() - session.began_at
        return max(0.0, self.lasts_s - age) if age > -CLOCK_S else 0.0

    def end(self, key: str) -> None:
        """End one session; raises as `end_all` does."""
        self._change(lambda: self._drop(key))

    def end_all(self, person: str) -> int:
        """End all sessions of a person, and return their number.

        Raises:
            StoreError: it cannot be stored. On this server, the sessions have ended nevertheless, until a
                restart; on others, they end with the next change that this server can store.
        """
        gone: list[LoginSession] = []

        def remove() -> None:
            gone.extend(self._of(person))
            for one in gone:
                self._drop(one.key)

        self._change(remove)
        return len(gone)

    def _drop(self, key: str) -> None:
        self._known.pop(key, None)
        self._ended.add(key)

    def _of(self, person: str) -> list[LoginSession]:
        return [one for one in self._known.values() if one.person == person]

    def on_end(self, call: Callable[[], None]) -> None:
        """Call `call`, in any thread, whenever a session was ended here."""
        self._on_end.append(call)

    # --- the file

    def _change(self, change: Callable[[], object]) -> None:
        """Change what is known, then what is stored; other servers wait meanwhile."""
        changed = False
        try:
            with self._lock, self._file_lock():
                self._refresh()
                self._known = {key: one for key, one in self._known.items() if self.left_s(one) > 0}
                change()
                changed = True
                self._write()
        except (OSError, filelock.Timeout) as error:
            if not changed:
                with self._lock:
                    self._refresh()
                    change()
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"The sessions cannot be stored in `{self._folder}`: {reason}.",
                hint="Free disk space, or correct the permissions of the folder.",
            ) from None
        finally:
            for call in self._on_end:
                call()

    def _file_lock(self) -> filelock.BaseFileLock:
        made_private(self._folder)
        return filelock.FileLock(self._folder / "lock", timeout=LOCK_S, mode=0o600)

    def _write(self) -> None:
        body = json.dumps({"schema": 1, "sessions": [asdict(one) for one in self._known.values()]})
        with written_whole(self._file) as draft, open(draft, "x", opener=private_opener) as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        self._read_as = self._stamp()
        self._ended.clear()

    def _stamp(self) -> Stamp:
        with contextlib.suppress(OSError):
            found = self._file.stat()
            return found.st_ino, found.st_mtime_ns, found.st_size
        return None

    def _refresh(self) -> None:
        """Read the file if it is not the one that was read or written last."""
        stamp = self._stamp()
        if stamp == self._read_as:
            return
        self._known, self._read_as = {}, stamp
        if stamp is None:
            return
        try:
            stored = json.loads(self._file.read_text("utf-8"))["sessions"]
            found = [LoginSession(**one) for one in stored]
            if not all(isinstance(one.key, str) and isinstance(one.began_at, float) for one in found):
                raise TypeError
        except (OSError, ValueError, TypeError, KeyError):
            _log.warning("The sessions in %s cannot be read. All people must log in again.", self._file)
            return
        self._known = {one.key: one for one in found if one.key not in self._ended}
