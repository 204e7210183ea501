"""Ends the wait for threads that could not begin for lack of memory.

`Thread.start` waits until the new thread has begun. One that dies of a MemoryError before that leaves its
starter waiting for ever (python/cpython#140746); here the starter is the event loop that serves all visitors.
"""

from __future__ import annotations

import threading
import time

LOOK_EVERY_S = 5.0


def watch() -> None:
    """Look after threads that are being started, while this server runs."""
    threading.Thread(target=_watch, name="ortune-thread-starts", daemon=True).start()


def _watch() -> None:
    before: list[threading.Thread] = []
    while True:
        time.sleep(LOOK_EVERY_S)
        try:
            before = release(before)
        except MemoryError:
            continue


def release(before: list[threading.Thread]) -> list[threading.Thread]:
    """Let the starters of threads go on that were being started at the last look already.

    A thread that is only slow to begin is not harmed: it says itself that it has begun, a second time.

    Args:
        before: returned by the last look.

    Returns:
        Threads that are being started now.
    """
    starting: list[threading.Thread] = list(threading._limbo)  # type: ignore[attr-defined]
    for one in starting:
        if one in before:
            one._started.set()  # type: ignore[attr-defined]
    return starting
