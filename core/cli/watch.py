"""Submitted work watched from a terminal: progress on stderr, Ctrl-C that leaves nothing behind.

On a terminal one line is rewritten; elsewhere (a log, CI) a line appears every few seconds, and at once when
the machine is taken by somebody else. Nothing here writes to stdout.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from core.evidence.evaluations import best_told
from core.evidence.verdict import Verdict
from core.run.job import FINISHED, WAITING_QUIET, Status
from core.run.scheduler import Scheduler
from core.show import interim
from core.store import Store
from core.wire.units import visible

POLL_S = 0.1
SPARSE_S = 3.0  # between two lines in a log
QUIET_SPARSE_S = 10.0  # the same while a job waits for the machine to be quiet, which takes minutes


@contextlib.contextmanager
def scheduler(store: Store, *, wait_quiet_s: float = 0.0) -> Iterator[Scheduler]:
    """A scheduler for one command; when this ends, none of its processes is left.

    Args:
        store: keeps the results.
        wait_quiet_s: every race waits at most so long for the machine to be quiet.
    """
    service = Scheduler(store, owner=_owner(), wait_quiet_s=wait_quiet_s)
    try:
        yield service
    finally:
        service.close()


def _owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        user = f"user {os.getuid()}"
    return f"command line of {user} on {socket.gethostname()}"


class Progress:
    """Writes how far the work is; `quiet` writes nothing."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._live = not quiet and stream.isatty()
        self._last = ""
        self._ahead = ""
        self._written_at = time.monotonic()  # what is done within seconds needs no lines in a log

    def show(self, status: Status, *, prefix: str = "") -> None:
        """Write where `status` stands, if that is worth a line."""
        text = visible(prefix + describe(status))
        if self._quiet or text == self._last:
            return
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{text[:width]}")
        elif self._is_news(status, prefix):
            self._write(f"{text}\n")
            self._written_at = time.monotonic()
        else:
            return
        self._last = text

    def _is_news(self, status: Status, prefix: str) -> bool:
        """In a log: what it waits for at once, everything else at most once in some seconds."""
        for_quiet = status.stage == WAITING_QUIET
        ahead = (
            f"{prefix}{status.place}{status.holder}" if status.place else prefix + status.stage * for_quiet
        )
        moved = bool(ahead) and ahead != self._ahead
        self._ahead = ahead
        sparse_s = QUIET_SPARSE_S if for_quiet else SPARSE_S
        return moved or time.monotonic() - self._written_at > sparse_s

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        if not self._quiet:
            self._write(f"{text}\n")

    def clear(self) -> None:
        """Take the rewritten line away."""
        if self._live and self._last:
            self._write("\r\x1b[K")
        self._last = ""

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not cost the measurement
            self._stream.write(text)
            self._stream.flush()


def watch(service: Scheduler, job: str, progress: Progress, *, prefix: str = "") -> Status:
    """Wait for `job` and return how it ended, showing its progress; a signal cancels nothing by itself."""
    try:
        while True:
            status = service.status(job)
            assert status is not None, job
            if status.state in FINISHED:
                return status
            progress.show(status, prefix=prefix)
            time.sleep(POLL_S)
    finally:
        progress.clear()


def describe(status: Status) -> str:
    """Where a job stands, in one line."""
    if status.stage == WAITING_QUIET and status.state == "WAITING":
        return f"{status.what}: waiting for an idle machine: {status.text}"
    if status.state == "WAITING":
        if not status.place:
            return f"{status.what}: waiting"
        behind = f" behind {status.holder}" if status.holder else ""
        return f"{status.what}: waiting: {ordinal(status.place)} in line{behind}"
    if status.kind == "search" and status.live:
        return _searching(status, status.live)
    parts = [f"{status.what}: {status.stage}"]
    if status.total:
        parts.append(f"{status.done}/{status.total}")
    if status.text:
        parts.append(status.text)
    if status.stage == "rounds" and status.live:
        parts += _standing(status.live["contrasts"])
    if status.eta_s is not None and status.eta_s >= 1:
        parts.append(f"about {status.eta_s:.0f} s left")
    return " ".join(parts)


def _searching(status: Status, live: Mapping[str, Any]) -> str:
    """How far a search is: what it races now, the best so far, and when it will be over."""
    parts = [f"{status.what}: {live['doing']} ({status.stage})" if live["doing"] else status.what]
    parts.append(f"{live['tried']} evaluated")
    if (best := live["best"]) is not None:
        parts.append(f"best so far {best_told(best)}")
    left_s = live["ends_at"] - time.time()
    return " · ".join([*parts, f"about {left_s:.0f} s left"] if left_s >= 1 else parts)


def _standing(contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the race says so far: of one contestant its interval, of more how many are decided."""
    if len(contrasts) == 1:
        return [f"· {interim.sentence(contrasts[0])} ·"]
    decided = sum(one["verdict"] != Verdict.UNDECIDED for one in contrasts)
    return [f"· {decided} of {len(contrasts)} decided so far ·"] if contrasts else []


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th and so on."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
