"""CPU and memory of this process, of its container and of the machine: limits, time used and time waited.

Pure functions of the text of `/proc` and `/sys` files, and a few that read those files. Standard library
only. Source of the formats: the kernel's cgroup-v1 and cgroup-v2 documentation.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.wire.errors import SpecError

CGROUP_ROOT = Path("/sys/fs/cgroup")
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # of the kernel's counters
_V1_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number near 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Seconds since the machine started, summed over some CPUs."""

    cpus: int
    busy_s: float
    steal_s: float
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """How often, and for how long, the container's CPU quota stopped this process group since it exists."""

    periods: int
    seconds: float


def parse_cpu_max(text: str) -> float | None:
    """CPUs from cgroup v2's `cpu.max` ("max 100000" or "150000 100000"); None: no limit."""
    quota, _, period = text.strip().partition(" ")
    if quota in {"", "max"}:
        return None
    return int(quota) / int(period or 100_000)


def parse_cfs_quota(quota: str, period: str) -> float | None:
    """CPUs from cgroup v1's `cpu.cfs_quota_us` and `cpu.cfs_period_us`; a negative quota is no limit."""
    value = int(quota.strip() or -1)
    return None if value <= 0 else value / int(period.strip() or 100_000)


def parse_memory_limit(text: str) -> int | None:
    """Bytes from cgroup v2's `memory.max` or v1's `memory.limit_in_bytes`; None: no limit."""
    text = text.strip()
    if text in {"", "max"}:
        return None
    value = int(text)
    return None if value >= _V1_UNLIMITED else value


def parse_meminfo(text: str, name: str) -> int:
    """Bytes on the line `name` of `/proc/meminfo`, such as "MemTotal"; 0 when the line is missing."""
    match = re.search(rf"^{name}: +(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def parse_throttling(text: str) -> Throttling:
    """Read `cpu.stat` of cgroup v2 (`throttled_usec`) or v1 (`throttled_time`, nanoseconds)."""
    values = {key: value for key, _, value in (line.partition(" ") for line in text.splitlines())}
    microseconds, nanoseconds = values.get("throttled_usec"), values.get("throttled_time")
    seconds = int(microseconds) / 1e6 if microseconds else int(nanoseconds or 0) / 1e9
    return Throttling(periods=int(values.get("nr_throttled", 0)), seconds=seconds)


def parse_cpu_time(stat: str, cpus: Collection[int] | None = None) -> CpuTime | None:
    """Sum the time of `cpus` in `/proc/stat`, of all CPUs where none are named.

    Returns:
        None where a line is missing or too short.
    """
    lines = dict(re.findall(r"^cpu(\d*) +([\d ]+)$", stat, re.MULTILINE))
    names = [""] if cpus is None else [str(cpu) for cpu in cpus]
    rows = [[int(field) for field in lines.get(name, "").split()[:8]] for name in names]
    if not rows or any(len(row) < 8 for row in rows):
        return None
    user, nice, system, idle, waiting, irq, softirq, steal = (
        sum(column) / TICKS_PER_S for column in zip(*rows, strict=True)
    )
    return CpuTime(
        cpus=len(lines) - 1 if cpus is None else len(rows),
        busy_s=user + nice + system + irq + softirq,
        steal_s=steal,
        idle_s=idle + waiting,
    )


def parse_pressure(text: str) -> float | None:
    """Seconds in which some task waited for a CPU, from `/proc/pressure/cpu`."""
    match = re.search(r"^some .*\btotal=(\d+)", text, re.MULTILINE)
    return int(match[1]) / 1e6 if match else None


def parse_cgroups(text: str) -> dict[str, str]:
    """Return {controller: path} from `/proc/self/cgroup`; the key "" is cgroup v2's one hierarchy."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def parse_siblings(lists: Iterable[str]) -> list[frozenset[int]]:
    """Return the distinct physical cores from every CPU's `thread_siblings_list` ("0,4" or "0-1")."""
    cores: list[frozenset[int]] = []
    for text in lists:
        core = frozenset(_cpu_list(text))
        if core and core not in cores:
            cores.append(core)
    return cores


def _cpu_list(text: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def usable_threads(cores: list[frozenset[int]], allowed: Iterable[int], quota: float | None) -> int:
    """Threads worth starting: allowed physical cores, no more than the quota, at least one."""
    mask = set(allowed)
    count = sum(1 for core in cores if core & mask) or len(mask)
    return max(1, min(count, int(quota) if quota is not None else count))


def cpu_shares(cores: Iterable[frozenset[int]], allowed: Iterable[int], count: int) -> list[list[int]]:
    """Split `allowed` CPUs into `count` disjoint shares; their sizes differ by at most one.

    A physical core stays within one share where the sizes allow it.

    Args:
        cores: from `physical_cores`; empty: unknown.
        allowed: CPUs to split, at least `count`.
        count: number of shares.
    """
    mask = set(allowed)
    ordered = [cpu for core in sorted(map(sorted, cores)) for cpu in core if cpu in mask]
    ordered += sorted(mask - set(ordered))
    edges = [number * len(ordered) // count for number in range(count + 1)]
    return [sorted(ordered[start:end]) for start, end in itertools.pairwise(edges)]


def most_processes(allowed: Iterable[int], quota: float | None) -> int:
    """Processes that can have at least one CPU each: the allowed CPUs, no more than the quota, at least 1."""
    count = len(set(allowed))
    return max(1, count if quota is None else min(count, int(quota)))


def too_many_processes(count: int, most: int) -> SpecError:
    """Return the error for more streams of the type `processes` than usable CPUs."""
    return SpecError(
        f"{count} streams of the type `processes` need {count} CPUs, one each, but {most} can be used.",
        hint=f"Use at most {most} streams, or `stream_type` threads.",
    )


# -- read from this machine --------------------------------------------------------------------------------


def physical_cores() -> list[frozenset[int]]:
    """The machine's physical cores as sets of logical CPUs; empty: not reported by the kernel."""
    files = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"))
    return parse_siblings(_read(file) for file in files)


def allowed_cpus() -> list[int]:
    """The logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_quota(root: Path = CGROUP_ROOT, groups: Mapping[str, str] | None = None) -> float | None:
    """CPUs that the container may use: the smallest quota from this process's group up to the root."""
    quotas = [parse_cpu_max(_read(folder / "cpu.max")) for folder in _folders(root, "", groups)]
    for folder in _folders(root, "cpu", groups):
        quotas.append(
            parse_cfs_quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))
        )
    found = [quota for quota in quotas if quota is not None]
    return min(found) if found else None


def memory_limit(root: Path = CGROUP_ROOT, groups: Mapping[str, str] | None = None) -> int:
    """Bytes that this process may use: the container's limit or the machine's memory, the smaller."""
    limits = [parse_memory_limit(_read(folder / "memory.max")) for folder in _folders(root, "", groups)]
    limits += [
        parse_memory_limit(_read(folder / "memory.limit_in_bytes"))
        for folder in _folders(root, "memory", groups)
    ]
    machine = parse_meminfo(_read(Path("/proc/meminfo")), "MemTotal") or _sysconf_memory()
    return min([limit for limit in limits if limit is not None] + [machine])


def available_memory(root: Path = CGROUP_ROOT, groups: Mapping[str, str] | None = None) -> int:
    """Bytes that could be allocated now, within the machine's memory and the container's limit."""
    free = [parse_meminfo(_read(Path("/proc/meminfo")), "MemAvailable") or _sysconf_memory()]
    for controller, limit, usage in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for folder in _folders(root, controller, groups):
            most = parse_memory_limit(_read(folder / limit))
            if most is not None:
                free.append(max(0, most - int(_read(folder / usage).strip() or 0)))
    return min(free)


def throttling_file(root: Path = CGROUP_ROOT, groups: Mapping[str, str] | None = None) -> Path | None:
    """The file with the throttling counters of this process's own group; None: there is none."""
    for controller in ("", "cpu"):
        for folder in _folders(root, controller, groups)[:1]:
            if "nr_throttled" in _read(folder / "cpu.stat"):
                return folder / "cpu.stat"
    return None


def cap_memory(processes: int = 1) -> None:
    """Make an allocation beyond the container's memory fail, instead of ending the process.

    Not for processes that use a GPU: its driver reserves address space far beyond the memory it needs.

    Args:
        processes: equal processes that share the memory; each gets its part, and cannot raise it.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = memory_limit() // processes
        if limit > 0:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1] if processes == 1 else limit
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _folders(root: Path, controller: str, groups: Mapping[str, str] | None) -> list[Path]:
    """The cgroup folders from this process's own up to the root; inside a container often just the root."""
    if groups is None:
        groups = parse_cgroups(_read(Path("/proc/self/cgroup")))
    if controller not in groups:
        return []
    top = root / controller if controller else root
    own = top / groups[controller].lstrip("/")
    inside = [folder for folder in (own, *own.parents) if folder == top or top in folder.parents]
    return [folder for folder in inside if folder.is_dir()]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii")
    return ""


def _sysconf_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
