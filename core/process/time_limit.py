"""A time limit for a worker that does not run out while ORTune itself is stopped."""

from __future__ import annotations

import time

MOST_LOOK_S = 1.0  # that one look counts: workers are looked at ten times a second
PAUSE_S = 5.0  # a longer time between two looks is a pause; a busy machine delays a look by less


class TimeLimit:
    """Counts the time in which this process runs, look by look.

    A stopped process (SIGSTOP, a paused container) cannot receive a reply, and its workers are often stopped
    with it. By the clock alone, each of them would have run out of time when it continues.
    """

    def __init__(self, seconds: float) -> None:
        """Start to count; look several times a second."""
        self.paused_s = 0.0  # time in which this process was stopped
        self._left_s, self._looked_at = seconds, time.monotonic()

    def left_s(self) -> float:
        """Return the seconds that are left; 0 or less: the time is up."""
        now = time.monotonic()
        passed_s, self._looked_at = now - self._looked_at, now
        if passed_s > PAUSE_S:
            self.paused_s += passed_s
        self._left_s -= min(passed_s, MOST_LOOK_S)
        return self._left_s
