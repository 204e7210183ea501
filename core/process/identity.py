"""Which process a stored number means: its id, and when it began, because ids are used again.

On Linux the start is counted from the start of the system. There, the start by the clock would move with
every step of the clock, and living processes would count as ended.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil

MOST_PID = 2**31 - 1
EPOCH_FROM_S = 1e9  # starts from here on are seconds since the epoch, as earlier versions wrote them
START_TOLERANCE_S = 2.0  # of those: the clock's corrections move them
_TICK_S = 1 / os.sysconf("SC_CLK_TCK") if sys.platform == "linux" else 0.0


def start_of(pid: int | None = None) -> float:
    """Return when a process began, for `is_alive`; None: this process.

    Raises:
        psutil.Error: there is no such process.
    """
    if sys.platform != "linux":
        return psutil.Process(pid).create_time()
    pid = os.getpid() if pid is None else pid
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        raise psutil.NoSuchProcess(pid) from None
    return int(fields[19]) * _TICK_S


def epoch_of(started: float) -> float:
    """Return a start as `start_of` returns it in seconds since the epoch, by the present clock."""
    if sys.platform != "linux" or started >= EPOCH_FROM_S:
        return started
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def is_alive(pid: int, started: float, *, uid: int | None = None) -> bool:
    """Whether the process `pid` that began at `started` still runs.

    Args:
        pid: any number, also an invalid one.
        started: what `start_of` returned for it, or any number.
        uid: the required owner; None: any owner.
    """
    if not 0 < pid <= MOST_PID:
        return False
    try:
        process = psutil.Process(pid)
        if sys.platform != "linux" or started >= EPOCH_FROM_S:
            is_same = abs(process.create_time() - started) <= START_TOLERANCE_S
        else:
            is_same = abs(start_of(pid) - started) < _TICK_S / 2
        return (
            is_same
            and process.status() != psutil.STATUS_ZOMBIE
            and (uid is None or uid in process.uids()[:2])
        )
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return uid is None  # it exists; this user may read no more of it


def is_stopped(pid: int) -> bool:
    """Whether the process `pid` is stopped, as by Ctrl-Z in its terminal."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
