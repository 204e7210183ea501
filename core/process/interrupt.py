"""Ctrl-C, SIGTERM and SIGHUP while a program still loads its libraries: nothing has begun, so it may end.

Python's own answer would be a traceback of whatever module was being imported. Standard library only, and
little of it: whoever calls this does so before anything else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType


def _listened_to() -> tuple[signal.Signals, ...]:
    """The signals that end a program of ours; that of a terminal that closes too, but not under `nohup`."""
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    heard = hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([hangup] if hangup is not None and heard else []))


SIGNALS = _listened_to()
_LINES = "Error: Stopped by {}.\nHint: Start it again.\n"
_DOCUMENT = (
    '{{"error":{{"type":"Cancelled","message":"Stopped by {}.","hint":"Start it again."}},'
    '"trial":null,"state":"CANCELLED"}}\n'
)


def end_at_once(last_words: Callable[[str], None] | None = None) -> None:
    """End this process at a signal with what a shell expects then (128 + its number), until others listen.

    Args:
        last_words: told the signal's name before the end.
    """

    def end(number: int, frame: FrameType | None) -> None:
        if last_words is not None:
            last_words(signal.Signals(number).name)
        os._exit(128 + number)  # an exception could be caught by the module that is being imported

    for number in SIGNALS:
        signal.signal(number, end)


def ignore() -> None:
    """All is done and said: a signal that comes now must not change how the process ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def last_words(name: str) -> None:
    """Say that a signal stopped the command line before it began, as `core.cli` would have said it.

    Args:
        name: of the signal.
    """
    if "--json" in sys.argv:
        os.write(1, _DOCUMENT.format(name).encode())
    os.write(2, _LINES.format(name).encode())
