"""Files of the machine's queue: tickets, and the past use of each user; nothing in them is trusted."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.process import fair_order
from core.wire.errors import StoreError

MAX_TICKET_BYTES = 10_000
USED = "used-"  # and the number of a user: the file with this user's recent turns
MOST_TURNS = 1000  # in such a file
MAX_USED_BYTES = 500_000
MOST_PREDICTED_S = 7 * 86_400.0
MOST_TEXT = 200  # characters of a text in a ticket
MOST_PID = 2**31 - 1
# Follows no link, and does not block on a FIFO.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Content of a ticket file."""

    pid: int
    started: float  # the process's start, seconds since the epoch: a reused pid has another one
    owner: str
    what: str
    since: float
    running: bool
    person: str = ""
    predicted_s: float | None = None
    gives_way: bool = False
    private: bool = False  # `what` does not tell what it is
    uid: int | None = None  # owner of the file, not written in it; None: unknown on this system

    @property
    def user(self) -> str:
        """Number of the user who owns the file; empty: unknown."""
        return "" if self.uid is None else str(self.uid)


def plain(ticket: Ticket) -> dict[str, Any]:
    """Return the content of a ticket as its file holds it."""
    return {name: value for name, value in asdict(ticket).items() if name != "uid"}


def write(path: Path, content: object) -> None:
    """Write atomically, so that a reader never finds an incomplete file."""
    draft = path.with_suffix(f".{secrets.token_hex(8)}")
    try:
        with draft.open("x") as file:  # never into an existing file or along a link
            file.write(json.dumps(content))
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise unusable(path.parent, error) from error


def _content(path: Path, most_bytes: int) -> tuple[Any, int | None]:
    """Return the JSON of a regular file, and the owner of the file; None: unknown on this system.

    Raises:
        OSError, ValueError, RecursionError: it cannot be read.
    """
    with open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS)) as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(path)
        return json.loads(file.read(most_bytes)), facts.st_uid if hasattr(os, "getuid") else None


def read(path: Path) -> Ticket | None:
    """Return the ticket in a file, its values within bounds; None: it is none."""
    try:
        data, uid = _content(path, MAX_TICKET_BYTES)
        since, predicted_s = float(data["since"]), data.get("predicted_s")
        return Ticket(
            pid=int(data["pid"]),
            started=float(data["started"]),
            owner=_escaped(data["owner"]),
            what=_escaped(data["what"]),
            since=since if math.isfinite(since) and 0 <= since <= time.time() else time.time(),
            running=data["running"] is True,
            person=_escaped(data.get("person", "")),
            predicted_s=None if predicted_s is None else min(MOST_PREDICTED_S, max(0.0, float(predicted_s))),
            gives_way=data.get("gives_way") is True,
            private=data.get("private") is True,
            uid=uid,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


def read_uses(path: Path) -> list[fair_order.Turn] | None:
    """Return the turns in the file of a user; None: it is not this user's own, or no list of turns."""
    try:
        data, uid = _content(path, MAX_USED_BYTES)
        if uid is not None and path.name != f"{USED}{uid}":
            return None
        user = "" if uid is None else str(uid)
        found = [
            fair_order.Turn(user, _escaped(person), float(began), float(ended))
            for person, began, ended in data[-MOST_TURNS:]
        ]
        return [one for one in found if math.isfinite(one.began) and math.isfinite(one.ended)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _escaped(text: object) -> str:
    """Return a ticket's text with control characters escaped, because they could steer a terminal."""
    signs = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[:MOST_TEXT])
    return "".join(signs)[:MOST_TEXT]


def unusable(path: Path, error: OSError) -> StoreError:
    """Return the error for a folder of the queue that cannot be used."""
    return StoreError(
        f"The machine's queue needs `{path}`, but it cannot be used: {error.strerror or error}.",
        hint="Set ORTUNE_QUEUE to a folder that every user of this machine may write.",
    )
