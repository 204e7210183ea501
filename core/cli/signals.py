"""Ctrl-C and its kin while a command runs: one exception, and no second one while it cleans up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from core.process.interrupt import SIGNALS, end_at_once, last_words


class Interrupted(BaseException):
    """A signal asked to stop; `exit_code` is what a shell expects then (128 + its number)."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.document: dict[str, Any] | None = None  # what `--json` prints of it, with all that was done


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """End the process at a signal while modules load, any of which could catch the exception."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    end_at_once(last_words)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for one in SIGNALS:  # from here on a second Ctrl-C must not break the cleaning up
        signal.signal(one, signal.SIG_IGN)
    raise Interrupted(number)
