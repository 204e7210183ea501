"""Signal handlers for Ctrl-C, SIGTERM and SIGHUP while a program still loads its libraries.

Nothing has begun yet, so the process may end at once. Python's default would be a traceback of the module
that is being imported. Standard library only, and little of it: this module is imported first.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType


def _handled_signals() -> tuple[signal.Signals, ...]:
    """The signals that end ORTune; SIGHUP (the terminal closes) is among them except under `nohup`."""
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    heard = hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *([hangup] if hangup is not None and heard else []))


SIGNALS = _handled_signals()
_LINES = "Error: Stopped by {}.\nHint: Start it again.\n"
_DOCUMENT = (
    '{{"error":{{"type":"Cancelled","message":"Stopped by {}.","hint":"Start it again."}},'
    '"trial":null,"state":"CANCELLED"}}\n'
)


def exit_on_signals(signal_message: Callable[[str], None] | None = None) -> None:
    """Make signals end this process with exit code 128 + signal number, until other handlers are set.

    Args:
        signal_message: called with the signal's name before the end.
    """

    def end(number: int, frame: FrameType | None) -> None:
        if signal_message is not None:
            signal_message(signal.Signals(number).name)
        os._exit(128 + number)  # an exception could be caught by the module that is being imported

    for number in SIGNALS:
        signal.signal(number, end)


def ignore_signals() -> None:
    """Ignore signals from now on: the work is complete, so they must not change the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def signal_message(name: str) -> None:
    """Print that a signal stopped the command line before it began, in the format of `core.cli`.

    Args:
        name: of the signal.
    """
    if "--json" in sys.argv:
        os.write(1, _DOCUMENT.format(name).encode())
    os.write(2, _LINES.format(name).encode())
