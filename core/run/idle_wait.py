"""Waits for an idle machine before measuring: until two windows of two seconds in a row are idle.

Idle means that no block would be marked as disturbed: other processes use next to no CPU, or leave the CPUs
that a comparison can use alone; the hypervisor steals no time; no process waits for a CPU. The limits are
those of `background_load`. Steal shows only while something runs, so an idle guest may miss it; the counters
of the comparison then show it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from core.evidence.background_load import (
    FOREIGN_CPUS,
    IDLE_CPUS,
    PRESSURE_SHARE,
    STEAL_SHARE,
    TICK_S,
    Z_ONE_SIDED,
)
from core.evidence.other_processes import OtherProcesses, Snapshot, between
from core.process.cpu_use import snapshot
from core.wire import limits
from core.wire.errors import Cancelled

WINDOW_S = 2.0
IDLE_WINDOWS = 2  # in a row: a browser that loads a page is idle for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Activity between two snapshots of the machine, while ORTune measured nothing."""

    other_processes: OtherProcesses
    load: float | None  # cores in use, of those a comparison could use; None: unknown on this system
    crowded: bool  # by other processes
    steal_share: float | None  # of the requested CPU time, where too high
    pressure_share: float | None  # of the time in which a process waited for a CPU, where too high

    @property
    def quiet(self) -> bool:
        """Whether nothing would disturb a comparison."""
        return not self.crowded and self.steal_share is None and self.pressure_share is None

    def words(self, *, verb: str = "use") -> str:
        """Return the disturbances as text; empty: none. `verb`: "use" for now, "used" for the past."""
        if self.crowded:
            return self.other_processes.words(self.load, verb=verb)
        if self.steal_share is not None:
            gives = "gives" if verb == "use" else "gave"
            return f"the hypervisor {gives} {self.steal_share:.0%} of the CPU time to other guests"
        if self.pressure_share is not None:
            wait = "wait" if verb == "use" else "waited"
            return f"processes {wait} for a CPU {self.pressure_share:.0%} of the time"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """Result of waiting for an idle machine."""

    seconds: float
    quiet: bool | None  # None: unknown on this system
    words: str = ""  # the last disturbances, where it did not become idle

    @property
    def note(self) -> str:
        """Return the note for the result."""
        if self.quiet is None:
            return "This system does not report its load, so the comparison started without waiting."
        if not self.quiet:
            return (
                f"The machine was not idle within {_duration(self.seconds)}: {self.words}. The "
                "measurement started anyway."
            )
        return f"The machine was idle at the start, after a wait of {_duration(self.seconds)}."


def wait_until_quiet(
    most_s: float,
    cancel: threading.Event,
    on_wait: Callable[[str], None],
    *,
    look: Callable[[], Snapshot] = snapshot,
    needed_cpus: float | None = None,
) -> WaitResult:
    """Wait until this machine is idle, at most `most_s` seconds.

    ORTune must not measure meanwhile: everything that runs counts as another process.

    Args:
        most_s: seconds; at least two windows are needed.
        cancel: set it to end the wait.
        on_wait: called after each window with the disturbances and the time waited.
        look: reads the system.
        needed_cpus: how many a comparison may use; None: all that this process may use.

    Raises:
        Cancelled: `cancel` was set.
    """
    first = before = look()
    if first.usable is None:
        return WaitResult(seconds=0.0, quiet=None)
    needed = usable_cpus() if needed_cpus is None else needed_cpus
    windows = max(1, round(most_s / WINDOW_S))
    enough = min(IDLE_WINDOWS, windows)
    in_a_row, disturbed = 0, ""
    on_wait("watching the machine")
    for _ in range(windows):
        if cancel.wait(most_s / windows):
            raise Cancelled(
                "The job was cancelled while it waited for an idle machine.", hint="Start it again."
            )
        after = look()
        window = activity_between(before, after, needed_cpus=needed)
        seconds, before = after.at_s - first.at_s, after
        if window.load is None:
            return WaitResult(seconds=seconds, quiet=None)
        in_a_row = in_a_row + 1 if window.quiet else 0
        if in_a_row == enough:
            return WaitResult(seconds=seconds, quiet=True)
        disturbed = disturbed if window.quiet else window.words(verb="used")
        on_wait(f"{window.words() or 'idle so far'}, {_duration(seconds)} of at most {_duration(most_s)}")
    return WaitResult(seconds=seconds, quiet=False, words=disturbed)


def activity_between(before: Snapshot, after: Snapshot, *, needed_cpus: float) -> Window:
    """Judge the activity between two snapshots.

    Other processes that leave as many CPUs free as a comparison may use, and one more, do not disturb it: a
    container with a quota of two need not wait until its host of 64 is idle.
    """
    other_processes = between(before, after, own=())
    was, now = before.usable, after.usable
    if was is None or now is None:
        return _unknown(other_processes)
    busy_s, stolen_s = now.busy_s - was.busy_s, max(0.0, now.steal_s - was.steal_s)
    if busy_s + stolen_s + now.idle_s - was.idle_s <= 0:  # counters do not advance, as in some sandboxes
        return _unknown(other_processes)
    load = max(0.0, busy_s) / other_processes.seconds
    roomy = now.cpus - load >= needed_cpus + IDLE_CPUS
    return Window(
        other_processes=other_processes,
        load=load,
        crowded=load > FOREIGN_CPUS and not roomy,
        steal_share=_too_much_steal(stolen_s, busy_s, seconds=other_processes.seconds, cpus=now.cpus),
        pressure_share=None if roomy else _too_much_pressure(before, after, other_processes.seconds),
    )


def usable_cpus() -> float:
    """CPUs that a comparison may use here: those of the affinity mask, at most the quota."""
    quota = limits.cpu_quota()
    allowed = float(len(limits.allowed_cpus()))
    return allowed if quota is None else min(allowed, quota)


def _unknown(other_processes: OtherProcesses) -> Window:
    return Window(
        other_processes=other_processes, load=None, crowded=False, steal_share=None, pressure_share=None
    )


def _too_much_steal(stolen_s: float, busy_s: float, *, seconds: float, cpus: int) -> float | None:
    """Stolen share of the requested CPU time, at least of one CPU: an idle guest requests little."""
    asked_s = max(stolen_s + busy_s, seconds)
    steps_s = Z_ONE_SIDED * TICK_S * math.sqrt(cpus / 6)
    return stolen_s / asked_s if stolen_s > STEAL_SHARE * asked_s + steps_s else None


def _too_much_pressure(before: Snapshot, after: Snapshot, seconds: float) -> float | None:
    if before.pressure_s is None or after.pressure_s is None:
        return None
    share = (after.pressure_s - before.pressure_s) / seconds
    return share if share > PRESSURE_SHARE else None


def _duration(seconds: float) -> str:
    """A rounded duration: "24 s", "5 min", "1.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
