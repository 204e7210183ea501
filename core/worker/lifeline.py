"""A worker never outlives its parent, and is the first to go when memory runs out.

Called by processes that ORTune starts, on themselves, before any work. Standard library only; what the
operating system does not offer is left out silently, because the parent also kills the process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_ORPHANED = 70  # exit status when the parent is gone; nobody is left to read it


def die_with_parent(parent: int | None = None) -> None:
    """Ask Linux to kill this process, stopped or not, when the thread that started it ends.

    Args:
        parent: process id of the parent, where it is known: one that is gone already ends this process now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(_ORPHANED)


def offer_to_oom_killer() -> None:
    """Make this process the first victim when memory runs out, so that the dashboard is not."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def exit_when_stdin_closes() -> None:
    """Watch file descriptor 0 from a daemon thread; its end means that the parent is gone.

    The thread sleeps in `read`, so it costs the measurement nothing. It reads the descriptor itself: a
    thread that waits inside Python's buffered reader would hold its lock at exit.
    """
    threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(_ORPHANED)
