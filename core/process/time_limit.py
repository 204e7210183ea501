"""A time limit for a worker that does not run out while ORTune itself is stopped."""

from __future__ import annotations

import time

MOST_LOOK_S = 1.0  # that one look counts: workers are looked at ten times a second


class TimeLimit:
    """Counts the time in which this process runs, look by look.

    A stopped process (SIGSTOP, a paused container) cannot receive a reply, and its workers are often stopped
    with it. By the clock alone, each of them would have run out of time when it continues.
    """

    def __init__(self, seconds: float) -> None:
        """Start to count; look several times a second."""
        self._left_s, self._looked_at = seconds, time.monotonic()

    def left_s(self) -> float:
        """Return the seconds that are left; 0 or less: the time is up."""
        now = time.monotonic()
        self._left_s -= min(now - self._looked_at, MOST_LOOK_S)
        self._looked_at = now
        return self._left_s
