"""Progress of a fleet run on stderr: on a terminal one line per host, elsewhere a line per change."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from typing import TextIO

from core.evidence.fleet.fleet_types import Answer, FleetRun
from core.wire.units import visible

REDRAW_S = 0.2
SPARSE_S = 15.0  # between two lines of one host in a log
MOST_LINES = 20  # on a terminal; the others are counted


class FleetProgress:
    """Writes the progress of all hosts; called from another thread than the one that clears it."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self.run = ""  # ID of the run, once it has begun
        self._live = not quiet and stream.isatty()
        self._lines = 0  # that are drawn now
        self._drawn_at = float("-inf")
        self._told: dict[str, tuple[str, float]] = {}  # host -> state and time of its last line
        self._lock = threading.Lock()

    def show(self, run: FleetRun) -> None:
        """Write what has changed."""
        self.run = run.id
        if self._quiet:
            return
        with self._lock:
            if self._live:
                self._draw(run)
            else:
                self._log(run)

    def line(self, text: str) -> None:
        """Write a permanent line."""
        with self._lock:
            self._erase()
            if not self._quiet:
                self._write(f"{visible(text)}\n")

    def clear(self) -> None:
        """Remove the lines that are drawn now."""
        with self._lock:
            self._erase()

    def _draw(self, run: FleetRun) -> None:
        now = time.monotonic()
        if now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        size = shutil.get_terminal_size()
        most = max(min(MOST_LINES, size.lines - 2), 1)
        texts = [_text(one, run) for one in current(run)]
        if len(texts) > most:
            texts = [*texts[: most - 1], f"and {len(texts) - most + 1} more hosts"]
        self._erase()
        self._write("".join(f"{text[: size.columns - 1]}\n" for text in texts))
        self._lines = len(texts)

    def _log(self, run: FleetRun) -> None:
        now = time.monotonic()
        for one in current(run):
            state, at = self._told.get(one.host, ("", 0.0))
            key = f"{one.key} {one.state} {one.unreachable_since is not None}"
            if key != state or (one.state == "RUNNING" and now - at > SPARSE_S):
                self._told[one.host] = (key, now)
                self._write(f"{_text(one, run)}\n")

    def _erase(self) -> None:
        if self._lines:
            self._write(f"\x1b[{self._lines}A\x1b[J")
            self._lines = 0

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the run
            self._stream.write(text)
            self._stream.flush()


def current(run: FleetRun) -> list[Answer]:
    """Return the answer that every host works on, or its last one."""
    found: dict[str, Answer] = {}
    for one in run.answers:
        known = found.get(one.host)
        if known is None or known.state not in ("WAITING", "RUNNING"):
            found[one.host] = one
    return list(found.values())


def _text(one: Answer, run: FleetRun) -> str:
    """Return the state of a host in one line."""
    parts = [one.host]
    if len(run.questions) > 1:
        parts.append(f"question {one.question} of {len(run.questions)}")
    if one.attempt > 1:
        parts.append(f"attempt {one.attempt}")
    parts.append(one.state.lower())
    if one.error is not None and one.state in ("FAIL", "LOST"):
        parts.append(one.error["message"])
    elif one.progress is not None and one.progress.text:
        parts.append(one.progress.text)
    return visible(" · ".join(parts))
