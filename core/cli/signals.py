"""Ctrl-C, SIGTERM and SIGHUP: how each ends a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import FrameType
from typing import Any

from core.process.interrupt import SIGNALS, exit_on_signals, signal_message


class Interrupted(BaseException):
    """Raised by a signal to stop; `exit_code` follows the shell convention (128 + signal number)."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.hint = "Start it again."
        self.document: dict[str, Any] | None = None  # document for `--json`, with all partial results


def signals() -> AbstractContextManager[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`; outside the main thread nothing changes."""
    return _handlers(_listen)


def loading() -> AbstractContextManager[None]:
    """End the process at a signal while modules load, because a module could catch the exception."""
    return _handlers(partial(exit_on_signals, signal_message))


@contextmanager
def _handlers(install: Callable[[], None]) -> Iterator[None]:
    """Install other handlers within this context; Python allows that in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    install()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _listen() -> None:
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for one in SIGNALS:  # a second Ctrl-C must not interrupt the clean-up
        signal.signal(one, signal.SIG_IGN)
    raise Interrupted(number)
