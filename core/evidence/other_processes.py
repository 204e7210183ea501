"""CPU time of other processes between two snapshots.

`process.cpu_use` reads the system. ORTune's own workers are no neighbours, and the caller names them. What
the processes cannot explain of the machine's busy time is kept apart as a rest without a name: programs that
began and ended in between, and around a container everything outside it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.evidence.interference import SURE, TICK_S
from core.evidence.result_types import Presence

SERVER = "ORTune itself"  # this process, which serves the pages or is the command line; not its workers
KERNEL = "the kernel"  # all threads of it
PAGE = "ORTune's dashboard (server and browser)"
OTHERS = "others"
OUTSIDE = "programs outside this container"
LISTED_SHARE = 0.05  # of what all neighbours used: below that a program is not worth its name
LEAST_PAGE_CORES = 0.005  # what is told with two digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process and its CPU time since it began; `pid` and `began` together say which one it is."""

    pid: int
    began: float  # by the system's own clock
    name: str  # of the program
    parent: int
    group: int
    cpu_s: float
    reaped_s: float  # of its children that have ended, and of theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Seconds since the machine started, summed over some CPUs."""

    cpus: int
    busy_s: float
    steal_s: float
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """CPU time used so far. None: this system does not tell."""

    at_s: float  # monotonic
    processes: tuple[Process, ...]  # those that can be read
    machine: CpuTime | None
    usable: CpuTime | None  # the same of the CPUs that this process may run on
    pressure_s: float | None  # in which some task waited for a CPU
    whole: bool  # False: only the processes of this container are seen
    server: int  # pid of the process that looked
    viewers: frozenset[int] = frozenset()  # pids of this machine that are connected to it, as a browser is


# -- what lies between -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What all processes of one program used together, in CPU seconds per second."""

    name: str
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Who else used CPUs. Cores are CPU seconds per second."""

    seconds: float  # that they were watched
    cores: float  # of all of them
    programs: tuple[Program, ...]  # all that were seen, largest first
    unnamed_cores: float  # what no process that was seen explains; 0 within the counters' steps
    unnamed: str  # what to call that
    page_cores: float = 0.0  # of all: browsers here that show its pages, and the server; 0: there are none

    def words(self, cores: float | None = None, *, verb: str = "used") -> str:
        """Return who used how much: "chromium and 2 others used 1.6 cores, of which ORTune's page 0.1 cores".

        Args:
            cores: what they used together, where that is known better than from the processes.
            verb: "used", or "use" for what goes on now.
        """
        who, several = self._who()
        form = "uses" if verb == "use" and not several else verb
        told = self.cores if cores is None else cores
        page = told * self.page_cores / self.cores if self.cores else 0.0
        of_it = f", of which {PAGE} {counted_cores(page)}" if page >= LEAST_PAGE_CORES else ""
        return f"{who} {form} {counted_cores(told)}{of_it}"

    def to_dict(self) -> Presence:
        """Plain JSON data: all cores, and the programs that count, largest first; the rest comes last."""
        rest = [Program(name=self.unnamed, cores=self.unnamed_cores)] if self._counts_rest() else []
        listed = (*self._counted(), *rest)
        return {"cores": self.cores, "programs": [{"name": one.name, "cores": one.cores} for one in listed]}

    def _counted(self) -> list[Program]:
        return [one for one in self.programs if one.cores >= LISTED_SHARE * self.cores]

    def _counts_rest(self) -> bool:
        return self.unnamed_cores > 0 and self.unnamed_cores >= LISTED_SHARE * self.cores

    def _who(self) -> tuple[str, bool]:
        """Who it was, and whether these are several."""
        names, rest = [one.name for one in self._counted()], self._counts_rest()
        if not names:
            return self.unnamed, True
        if rest and self.unnamed == OTHERS:
            return f"{names[0]} and {OTHERS}", True
        parts = names if len(names) < 3 else [names[0], f"{len(names) - 1} others"]
        parts += [self.unnamed] if rest else []
        *first, last = parts
        return (f"{', '.join(first)} and {last}" if first else last), len(parts) > 1


def counted_cores(cores: float) -> str:
    """Return "1.6 cores", and of less than a tenth "0.04 cores"."""
    return f"{cores:.1f} cores" if cores >= 0.095 or cores < 0.005 else f"{cores:.2f} cores"


def between(before: Snapshot, after: Snapshot, *, own: Collection[int]) -> Neighbours:
    """Return who used CPUs between two snapshots of one process.

    A process that began in between counts from zero. What one has used that ended in between is known to the
    process that waited for it, and counts as that program's: a compiler as `make`'s.

    Args:
        before: the earlier one.
        after: the later one.
        own: pids of ORTune's workers, also of those that have ended. Their children and their process groups
            belong to them, and so does what the process that looked has waited for.
    """
    seconds = max(after.at_s - before.at_s, 1e-9)
    seen = [*before.processes, *after.processes]
    mine = _family(own, seen)
    browsers = _programs_of(before.viewers | after.viewers, seen)
    page = {after.server, *browsers} if browsers else set()  # a command line has no page
    used: dict[str, float] = defaultdict(float)
    known_s = page_s = 0.0
    for one, cpu_s, reaped_s in _increases(before, after):
        known_s += cpu_s + reaped_s
        if one.pid in mine:
            continue
        own_s = cpu_s if one.pid == after.server else cpu_s + reaped_s  # whom it waited for were its workers
        used[SERVER if one.pid == after.server else one.name] += own_s
        page_s += own_s if one.pid in page else 0.0
    unnamed_s = _unexplained_s(before.machine, after.machine, known_s, programs=len(used))
    programs = [Program(name=name, cores=cpu_s / seconds) for name, cpu_s in used.items() if cpu_s > 0]
    return Neighbours(
        seconds=seconds,
        cores=(math.fsum(used.values()) + unnamed_s) / seconds,
        programs=tuple(sorted(programs, key=lambda one: (-one.cores, one.name))),
        unnamed_cores=unnamed_s / seconds,
        unnamed=OTHERS if after.whole else OUTSIDE,
        page_cores=page_s / seconds,
    )


def _programs_of(pids: Collection[int], processes: Sequence[Process]) -> set[int]:
    """All processes of the programs that `pids` belong to: a browser has one of many for its connections."""
    known = {one.pid: one for one in processes}
    return _family([_first(known[pid], known) for pid in pids if pid in known], processes)


def _first(one: Process, known: Mapping[int, Process]) -> int:
    """The outermost ancestor that is of the same program."""
    seen: set[int] = set()  # a reused pid could close a circle
    while one.pid not in seen and one.parent in known and known[one.parent].name == one.name:
        seen.add(one.pid)
        one = known[one.parent]
    return one.pid


def _family(pids: Collection[int], processes: Sequence[Process]) -> set[int]:
    """`pids` with all their descendants, and whoever is in the process group of one of them."""
    found = set(pids)
    while more := {
        one.pid for one in processes if one.pid not in found and (one.parent in found or one.group in found)
    }:
        found |= more
    return found


def _increases(before: Snapshot, after: Snapshot) -> Iterator[tuple[Process, float, float]]:
    """Each process that is there still, the CPU time that it used, and what it waited for used, in seconds.

    When a process is waited for, all that it ever used is added to its parent's account: what it had used
    before is taken off again. Process 1 inherits strangers, so its account names nobody.
    """
    earlier = {(one.pid, one.began): one for one in before.processes}
    there = {(one.pid, one.began) for one in after.processes}
    gone = {one.pid: one for one in before.processes if (one.pid, one.began) not in there}
    left_s: dict[int, float] = defaultdict(float)  # heir -> what the ended had used before
    for one in gone.values():
        left_s[_heir(one, gone)] += one.cpu_s + one.reaped_s
    for one in after.processes:
        was = earlier.get((one.pid, one.began))
        cpu_s = one.cpu_s - (was.cpu_s if was else 0.0)
        reaped_s = one.reaped_s - (was.reaped_s if was else 0.0) - (left_s[one.pid] if was else 0.0)
        yield one, max(0.0, cpu_s), max(0.0, reaped_s) if one.pid != 1 else 0.0


def _heir(one: Process, gone: Mapping[int, Process]) -> int:
    """The nearest ancestor that is there still."""
    seen: set[int] = set()  # a reused pid could close a circle
    while one.parent in gone and one.parent not in seen:
        seen.add(one.parent)
        one = gone[one.parent]
    return one.parent


def _unexplained_s(before: CpuTime | None, after: CpuTime | None, known_s: float, *, programs: int) -> float:
    """Busy seconds beyond what the processes used; 0 where the steps of the counters may explain them."""
    if before is None or after is None:
        return 0.0
    rest_s = after.busy_s - before.busy_s - known_s
    steps = 2 * after.cpus + programs  # mostly two fields of a CPU move, and one of a program
    return rest_s if rest_s > SURE * TICK_S * math.sqrt(steps / 6) else 0.0
