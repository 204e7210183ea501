"""Watches submitted jobs from a terminal: progress on stderr; Ctrl-C leaves no process behind.

On a terminal it rewrites one line. Elsewhere (a log, CI) it writes a line every few seconds, and at once when
another job has the machine. It writes nothing to stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeVar

from core.api.results import Result
from core.api.session import WAITING_IDLE, Session, Status, user_on_host
from core.cli.signals import Interrupted
from core.evidence.evaluations import best_text
from core.evidence.verdict import Verdict
from core.show import interim
from core.show.load_text import progress_parts
from core.show.words import start_words
from core.wire import variables
from core.wire.errors import TunerError
from core.wire.units import visible

R = TypeVar("R")

SPARSE_S = 3.0  # between two log lines
QUIET_SPARSE_S = 10.0  # the same while a job waits for an idle machine, which takes minutes


@contextlib.contextmanager
def started(progress: Progress) -> Iterator[Session]:
    """Provide the session of one command; at its end, all of its processes are gone.

    A signal carries the document of what was measured until then.
    """
    owner = f"command line of {user_on_host()}"
    with Session(owner=owner, on_progress=progress.show, on_note=progress.line) as session:
        try:
            yield session
        except Interrupted as interrupted:
            if session.last is not None and interrupted.document is None:
                interrupted.document = session.last.to_dict()
            raise
        finally:
            progress.clear()


def finished(session: Session, call: Callable[[], Result[R]]) -> Result[R]:
    """Return the result of `call`, also a stored one with an error, so that the command can print it."""
    try:
        return call()
    except TunerError:
        if session.last is None or session.last.record.state not in ("FAIL", "CANCELLED"):
            raise
        return session.last


class Progress:
    """Writes the progress of a job; with `quiet`, nothing."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._json = os.environ.get(variables.PROGRESS) == "json"
        self._live = not quiet and not self._json and stream.isatty()
        self._last = ""
        self._ahead = ""
        self._written_at = time.monotonic()  # a job of a few seconds writes no log lines

    def show(self, status: Status) -> None:
        """Write the progress of `status`, if a line is due."""
        text = visible(describe(status))
        if self._quiet or text == self._last:
            return
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{text[:width]}")
        elif self._is_line_due(status):
            self._write(f"{json.dumps(_progress_data(status)) if self._json else text}\n")
            self._written_at = time.monotonic()
        else:
            return
        self._last = text

    def _is_line_due(self, status: Status) -> bool:
        """Whether a log line is due: a wait reason at once, everything else every few seconds."""
        for_quiet = status.stage == WAITING_IDLE
        ahead = f"{status.place}{status.holder}" if status.place else status.stage * for_quiet
        moved = bool(ahead) and ahead != self._ahead
        self._ahead = ahead
        sparse_s = QUIET_SPARSE_S if for_quiet else SPARSE_S
        return moved or time.monotonic() - self._written_at > sparse_s

    def line(self, text: str) -> None:
        """Write a permanent line."""
        self.clear()
        if not self._quiet:
            self._write(f"{text}\n")

    def clear(self) -> None:
        """Remove the rewritten line."""
        if self._live and self._last:
            self._write("\r\x1b[K")
        self._last = ""

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the measurement
            self._stream.write(text)
            self._stream.flush()


def describe(status: Status) -> str:
    """Return the state of a job in one line."""
    if status.stage == WAITING_IDLE and status.state == "WAITING":
        return f"{status.what}: waiting for an idle machine: {status.text}"
    if status.state == "WAITING":
        if not status.place:
            return f"{status.what}: waiting"
        behind = f" behind {status.holder}" if status.holder else ""
        start = start_words(status.starts_in_s)
        return f"{status.what}: waiting: {ordinal(status.place)} in line{behind}; {start}"
    if status.kind == "search" and status.live:
        return _search_progress(status, status.live)
    if status.live and (load := status.live.get("load")):
        return f"{status.what}: {' · '.join(progress_parts(load))}"
    parts = [f"{status.what}: {_upgraded(status.live)}{status.stage}"]
    if status.total:
        parts.append(f"{status.done}/{status.total}")
    if status.text:
        parts.append(status.text)
    if status.stage == "rounds" and status.live:
        parts += _interim_text(status.live.get("contrasts", ()))
    if status.eta_s is not None and status.eta_s >= 1:
        parts.append(f"about {status.eta_s:.0f} s left")
    return " ".join(parts)


def _upgraded(live: Mapping[str, Any] | None) -> str:
    """Return the model that an upgrade measures: "2/40 resnet18.onnx, "; empty: it is no upgrade."""
    found = (live or {}).get("upgrade")
    return f"{found['number']}/{found['of']} {found['model']}, " if found else ""


def _progress_data(status: Status) -> dict[str, Any]:
    """Return the progress of a job as plain data."""
    return {
        **{"state": status.state, "stage": status.stage, "done": status.done, "total": status.total},
        **({"place": status.place, "starts_in_s": status.starts_in_s} if status.place else {}),
        "text": visible(describe(status)),
    }


def _search_progress(status: Status, live: Mapping[str, Any]) -> str:
    """Return the progress of a search: current comparison, best so far, remaining time."""
    parts = [f"{status.what}: {live['doing']} ({status.stage})" if live["doing"] else status.what]
    parts.append(f"{live['tried']} evaluated")
    if (best := live["best"]) is not None:
        parts.append(f"best so far {best_text(best)}")
    left_s = live["ends_at"] - time.time()
    return " · ".join([*parts, f"about {left_s:.0f} s left"] if left_s >= 1 else parts)


def _interim_text(contrasts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the interim result: the interval of one candidate, or the number of decided ones."""
    if len(contrasts) == 1:
        return [f"· {interim.sentence(contrasts[0])} ·"]
    decided = sum(one["verdict"] != Verdict.UNDECIDED for one in contrasts)
    return [f"· {decided} of {len(contrasts)} decided so far ·"] if contrasts else []


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th and so on."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
