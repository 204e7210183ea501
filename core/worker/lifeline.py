"""End a worker with its parent, and make it the first victim when memory runs out.

Processes that ORTune starts call these functions on themselves before any work. Standard library only.
Calls that the operating system does not offer are skipped silently, because the parent also kills the
process group.
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
_PR_SET_CHILD_SUBREAPER = 36
_ORPHANED = 70  # exit status after the parent has exited; no process reads it


def die_with_parent(parent: int | None = None) -> None:
    """Ask Linux to kill this process, stopped or not, when the thread that started it ends.

    Args:
        parent: process id of the parent, if known; if it has exited already, this process exits now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(_ORPHANED)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent among the descendants has ended, so as to reap them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_descriptors(*, keep: int) -> None:
    """Close every file descriptor but standard input, output, error and `keep`; a forked process calls it."""
    for name in os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"):  # noqa: PTH208 - names
        if int(name) > 2 and int(name) != keep:
            with contextlib.suppress(OSError):  # the descriptor that listed them is closed already
                os.close(int(name))


def set_oom_victim() -> None:
    """Make the out-of-memory killer choose this process before the dashboard."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def exit_when_stdin_closes() -> None:
    """Watch file descriptor 0 from a daemon thread, and exit at its end: the parent has exited.

    The thread sleeps in `read`, so it costs the measurement nothing. It reads the descriptor directly: a
    thread waiting inside Python's buffered reader would hold its lock at exit.
    """
    threading.Thread(target=_watch, name="lifeline", daemon=True).start()


def _watch() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(_ORPHANED)
