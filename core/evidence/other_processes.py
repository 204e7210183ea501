"""CPU time of other processes between two snapshots; `background_load` judges it.

`process.cpu_use` reads the system. ORTune's own workers do not count as other processes; the caller names
them. Busy time of the machine that no process explains is kept as an unnamed rest: programs that started and
ended between the snapshots, and in a container everything outside it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.evidence.background_load import TICK_S, Z_ONE_SIDED
from core.evidence.result_types import Presence, Program
from core.wire.limits import CpuTime

SERVER = "ORTune itself"  # this process (server or command line) without its workers
KERNEL = "the kernel"  # all kernel threads
PAGE = "ORTune's dashboard (server and browser)"
OTHERS = "others"
OUTSIDE = "programs outside this container"
LISTED_SHARE = 0.05  # of the CPU time of all other processes; a program below it is not listed
LEAST_PAGE_CORES = 0.005  # smallest number that two decimals show


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process and its CPU time since its start; `pid` and `began` together identify it."""

    pid: int
    began: float  # start time by the system's clock
    name: str  # of the program
    parent: int
    group: int
    cpu_s: float
    reaped_s: float  # CPU time of its ended descendants


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """CPU time used so far. None: not readable on this system."""

    at_s: float  # monotonic
    processes: tuple[Process, ...]  # all readable processes
    machine: CpuTime | None
    usable: CpuTime | None  # the same for the CPUs that this process may run on
    pressure_s: float | None  # in which some task waited for a CPU
    whole: bool  # False: only the processes of this container are visible
    server: int  # pid of the process that made the snapshot
    viewers: frozenset[int] = frozenset()  # pids on this machine that are connected to it, such as browsers


# -- difference of two snapshots ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProcesses:
    """CPU use of other processes. Cores are CPU seconds per second."""

    seconds: float  # time between the snapshots
    cores: float  # total
    programs: tuple[Program, ...]  # all visible ones, largest first
    unnamed_cores: float  # not explained by any visible process; 0 within the resolution of the counters
    unnamed: str  # name of that rest
    page_cores: float = 0.0  # part of the server and of local browsers that show its pages; 0: none

    def words(self, cores: float | None = None, *, verb: str = "used") -> str:
        """Return a text such as "chromium and 2 others used 1.6 cores, of which ORTune's page 0.1 cores".

        Args:
            cores: total CPU use, where it is known more precisely than from the processes.
            verb: "used", or "use" for the present.
        """
        who, several = self._names()
        form = "uses" if verb == "use" and not several else verb
        told = self.cores if cores is None else cores
        page = told * self.page_cores / self.cores if self.cores else 0.0
        of_it = f", of which {PAGE} {cores_text(page)}" if page >= LEAST_PAGE_CORES else ""
        return f"{who} {form} {cores_text(told)}{of_it}"

    def to_dict(self) -> Presence:
        """Plain JSON data: total cores and the listed programs, largest first, the unnamed rest last."""
        rest = [Program(name=self.unnamed, cores=self.unnamed_cores)] if self._counts_rest() else []
        listed = [*self._counted(), *rest]
        return {"cores": self.cores, "programs": listed}

    def _counted(self) -> list[Program]:
        return [one for one in self.programs if one["cores"] >= LISTED_SHARE * self.cores]

    def _counts_rest(self) -> bool:
        return self.unnamed_cores > 0 and self.unnamed_cores >= LISTED_SHARE * self.cores

    def _names(self) -> tuple[str, bool]:
        """Return the names of the programs, and whether the verb is in the plural."""
        names, rest = [one["name"] for one in self._counted()], self._counts_rest()
        if not names:
            return self.unnamed, True
        if rest and self.unnamed == OTHERS:
            return f"{names[0]} and {OTHERS}", True
        parts = names if len(names) < 3 else [names[0], f"{len(names) - 1} others"]
        parts += [self.unnamed] if rest else []
        *first, last = parts
        return (f"{', '.join(first)} and {last}" if first else last), len(parts) > 1


def cores_text(cores: float) -> str:
    """Return "1.6 cores", or below a tenth "0.04 cores"."""
    return f"{cores:.1f} cores" if cores >= 0.095 or cores < 0.005 else f"{cores:.2f} cores"


def between(before: Snapshot, after: Snapshot, *, own: Collection[int]) -> OtherProcesses:
    """Return the CPU use of other processes between two snapshots made by one process.

    A process that started in between counts from zero. CPU time of a process that ended in between counts for
    the program that waited for it: a compiler for `make`.

    Args:
        before: the earlier snapshot.
        after: the later snapshot.
        own: pids of ORTune's workers, including ended ones. Their children and process groups belong to them,
            and so do the ended children of the process that made the snapshots.
    """
    seconds = max(after.at_s - before.at_s, 1e-9)
    seen = [*before.processes, *after.processes]
    mine = _descendants(own, seen)
    browsers = _programs_of(before.viewers | after.viewers, seen)
    page = {after.server, *browsers} if browsers else set()  # the command line has no page
    used: dict[str, float] = defaultdict(float)
    known_s = page_s = 0.0
    for one, cpu_s, reaped_s in _increases(before, after):
        known_s += cpu_s + reaped_s
        if one.pid in mine:
            continue
        own_s = cpu_s if one.pid == after.server else cpu_s + reaped_s  # its ended children are workers
        used[SERVER if one.pid == after.server else one.name] += own_s
        page_s += own_s if one.pid in page else 0.0
    unnamed_s = _unexplained_s(before.machine, after.machine, known_s, programs=len(used))
    programs = [Program(name=name, cores=cpu_s / seconds) for name, cpu_s in used.items() if cpu_s > 0]
    return OtherProcesses(
        seconds=seconds,
        cores=(math.fsum(used.values()) + unnamed_s) / seconds,
        programs=tuple(sorted(programs, key=lambda one: (-one["cores"], one["name"]))),
        unnamed_cores=unnamed_s / seconds,
        unnamed=OTHERS if after.whole else OUTSIDE,
        page_cores=page_s / seconds,
    )


def _programs_of(pids: Collection[int], processes: Sequence[Process]) -> set[int]:
    """Return all processes of the programs of `pids`: only one of a browser's processes is connected."""
    known = {one.pid: one for one in processes}
    return _descendants([_program_root(known[pid], known) for pid in pids if pid in known], processes)


def _program_root(one: Process, known: Mapping[int, Process]) -> int:
    """Return the outermost ancestor of the same program."""
    seen: set[int] = set()  # a reused pid could close a cycle
    while one.pid not in seen and one.parent in known and known[one.parent].name == one.name:
        seen.add(one.pid)
        one = known[one.parent]
    return one.pid


def _descendants(pids: Collection[int], processes: Sequence[Process]) -> set[int]:
    """Return `pids` with all descendants and all members of their process groups."""
    found = set(pids)
    while more := {
        one.pid for one in processes if one.pid not in found and (one.parent in found or one.group in found)
    }:
        found |= more
    return found


def _increases(before: Snapshot, after: Snapshot) -> Iterator[tuple[Process, float, float]]:
    """Yield each process that still exists, its CPU seconds, and those of the children it waited for.

    When a process is waited for, its total CPU time is added to its parent; the part from before the first
    snapshot is subtracted again. Process 1 adopts unrelated processes, so theirs are left out.
    """
    earlier = {(one.pid, one.began): one for one in before.processes}
    there = {(one.pid, one.began) for one in after.processes}
    gone = {one.pid: one for one in before.processes if (one.pid, one.began) not in there}
    left_s: dict[int, float] = defaultdict(float)  # ancestor -> earlier CPU time of its ended processes
    for one in gone.values():
        left_s[_living_ancestor(one, gone)] += one.cpu_s + one.reaped_s
    for one in after.processes:
        was = earlier.get((one.pid, one.began))
        cpu_s = one.cpu_s - (was.cpu_s if was else 0.0)
        reaped_s = one.reaped_s - (was.reaped_s if was else 0.0) - (left_s[one.pid] if was else 0.0)
        yield one, max(0.0, cpu_s), max(0.0, reaped_s) if one.pid != 1 else 0.0


def _living_ancestor(one: Process, gone: Mapping[int, Process]) -> int:
    """Return the nearest ancestor that still exists."""
    seen: set[int] = set()  # a reused pid could close a cycle
    while one.parent in gone and one.parent not in seen:
        seen.add(one.parent)
        one = gone[one.parent]
    return one.parent


def _unexplained_s(before: CpuTime | None, after: CpuTime | None, known_s: float, *, programs: int) -> float:
    """Return busy seconds that no process explains; 0 within the resolution of the counters."""
    if before is None or after is None:
        return 0.0
    rest_s = after.busy_s - before.busy_s - known_s
    steps = 2 * after.cpus + programs  # usually two fields per CPU change, and one per program
    return rest_s if rest_s > Z_ONE_SIDED * TICK_S * math.sqrt(steps / 6) else 0.0
