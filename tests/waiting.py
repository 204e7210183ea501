"""How long tests wait for what must happen: long enough for a machine with much else to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

WAIT_S = 120.0


def wait_until(
    condition: Callable[[], Any], what: str = "It never came to that.", *, most_s: float = WAIT_S
) -> None:
    """Wait until a condition holds; fail with `what` where it does not within `most_s`."""
    deadline = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    wait_until(lambda: not is_alive(pid), f"Process {pid} is still there.")
