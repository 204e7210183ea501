"""Counters of the process, the kernel and the GPU before and after a block, to detect interference.

Pure functions parse the texts. `Meter` keeps the files open, so that a reading takes about 0.1 ms, outside
the timed runs; the canary before a block takes 0.5 ms. A counter that this system does not offer is None,
never zero. Sources: Linux, Documentation/filesystems/proc.rst, scheduler/sched-stats.rst,
accounting/psi.rst and admin-guide/pm/cpufreq.rst; NVML's API reference.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import wire
from core.wire import limits

_CANARY = bytes(200_000)
_CANARY_ROUNDS = 3
_TASKS = "/proc/self/task"


# -- texts -------------------------------------------------------------------------------------------------


def parse_schedstat(text: str) -> float | None:
    """Return the seconds that a thread has waited in run queues, from `schedstat`; None: not counted here."""
    fields = text.split()
    return int(fields[1]) / 1e9 if len(fields) == 3 and fields != ["0", "0", "0"] else None


def parse_frequencies(texts: Iterable[str]) -> float | None:
    """Return the mean in hertz of several `scaling_cur_freq`, which are in kilohertz."""
    numbers = [int(text) for text in texts if text.strip().isdigit()]
    return 1e3 * sum(numbers) / len(numbers) if numbers else None


def waited_s(before: Mapping[int, float], after: Mapping[int, float]) -> float | None:
    """Sum the waits over the threads of `after`, where new threads began at zero; None if not counted."""
    if not after:
        return None
    return sum(max(0.0, waited - before.get(thread, 0.0)) for thread, waited in after.items())


def foreign_processes(users: Iterable[int], own: int, parent: int, parent_of: Callable[[int], int]) -> int:
    """Count the processes on a GPU that are neither this one nor a contestant of the same comparison.

    Args:
        users: process ids that NVML lists.
        own: this process.
        parent: the parent of all contestants.
        parent_of: returns the parent of a process, 0 if unknown.
    """
    return sum(1 for user in set(users) if user != own and parent_of(user) != parent)


def nvml_device(device: int, visible: str | None) -> int | str:
    """Return NVML's name of CUDA's `device`: an index, or a UUID.

    Args:
        device: CUDA's number, which counts visible devices only.
        visible: `CUDA_VISIBLE_DEVICES`; None if not set.
    """
    names = [name.strip() for name in visible.split(",")] if visible else []
    if device >= len(names):
        return device
    return int(names[device]) if names[device].isdigit() else names[device]


# -- readings ----------------------------------------------------------------------------------------------


class _File:
    """A file of `/proc` or `/sys` kept open; seeking to the start and reading again gives fresh values."""

    def __init__(self, path: str | Path) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()

    def text(self) -> str:
        """Return the whole text; empty if the file cannot be read any more."""
        if self._descriptor is None:
            return ""
        parts: list[bytes] = []
        try:
            while part := os.pread(self._descriptor, 1 << 16, sum(map(len, parts))):
                parts.append(part)
        except OSError:
            return ""
        return b"".join(parts).decode("ascii", errors="replace")

    def close(self) -> None:
        """Close the file; its text is empty from now on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """Counters of the process itself, read closest to the timed runs."""

    wall_s: float
    cpu_s: float
    involuntary_switches: int
    major_faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """Counters that the kernel keeps for this process's threads and for the CPUs."""

    waits_s: dict[int, float]  # by thread
    steal_s: float | None
    busy_s: float | None
    pressure_s: float | None
    throttled_periods: int | None
    throttled_s: float | None
    suspended_s: float


class Meter:
    """Counters of this process and of its allowed CPUs: `start`, the block, `stop`."""

    def __init__(self, *, gpu: int | None = None) -> None:
        """Open the files that this system offers.

        Args:
            gpu: CUDA's number of the GPU in use; None: no GPU.
        """
        self._cpus = limits.allowed_cpus()
        self._stat = _File("/proc/stat")
        self._pressure = _File("/proc/pressure/cpu")
        self._cgroup = _File(limits.throttling_file() or os.devnull)
        self._frequencies = [
            _File(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in self._cpus
        ]
        self._threads: dict[int, _File] = {}
        self._gpu = None if gpu is None else _Gpu(gpu)
        self._canary_ns = 0
        self._system = self._read_system()
        self._process = _read_process()

    def start(self) -> None:
        """Read all counters; those of the process come last, right before the block."""
        self._canary_ns = canary()
        self._system = self._read_system()
        self._process = _read_process()

    def stop(self) -> wire.Counters:
        """Read all counters again; those of the process come first, right after the block."""
        process = _read_process()
        system = self._read_system()
        was, had = self._process, self._system
        throttled_periods = increase(had.throttled_periods, system.throttled_periods)
        return {
            "wall_s": process.wall_s - was.wall_s,
            "cpu_s": process.cpu_s - was.cpu_s,
            "involuntary_switches": process.involuntary_switches - was.involuntary_switches,
            "major_faults": process.major_faults - was.major_faults,
            "wait_s": waited_s(had.waits_s, system.waits_s),
            "steal_s": increase(had.steal_s, system.steal_s),
            "busy_s": increase(had.busy_s, system.busy_s),
            "pressure_s": increase(had.pressure_s, system.pressure_s),
            "throttled_periods": None if throttled_periods is None else int(throttled_periods),
            "throttled_s": increase(had.throttled_s, system.throttled_s),
            "canary_ns": self._canary_ns,
            "frequency_hz": parse_frequencies(file.text() for file in self._frequencies),
            "suspended_s": max(0.0, system.suspended_s - had.suspended_s),
            "gpu": self._gpu.read() if self._gpu else None,
        }

    def _read_system(self) -> _System:
        cpus = limits.parse_cpu_time(self._stat.text(), self._cpus)
        group = self._cgroup.text()
        throttling = limits.parse_throttling(group) if "nr_throttled" in group else None
        return _System(
            waits_s=self._waits(),
            steal_s=cpus.steal_s if cpus else None,
            busy_s=cpus.busy_s if cpus else None,
            pressure_s=limits.parse_pressure(self._pressure.text()),
            throttled_periods=throttling.periods if throttling else None,
            throttled_s=throttling.seconds if throttling else None,
            suspended_s=suspended_s(),
        )

    def _waits(self) -> dict[int, float]:
        """Return the waiting time of every living thread."""
        with contextlib.suppress(OSError):
            threads = {int(name) for name in os.listdir(_TASKS)}  # noqa: PTH208 - names, without objects
            for gone in self._threads.keys() - threads:
                self._threads.pop(gone).close()
            for new in threads - self._threads.keys():
                self._threads[new] = _File(f"{_TASKS}/{new}/schedstat")
        waits = {thread: parse_schedstat(file.text()) for thread, file in self._threads.items()}
        return {thread: waited for thread, waited in waits.items() if waited is not None}


def _read_process() -> _Process:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _Process(
        wall_s=time.perf_counter(),
        cpu_s=time.process_time(),
        involuntary_switches=usage.ru_nivcsw,
        major_faults=usage.ru_majflt,
    )


def increase(before: float | None, after: float | None) -> float | None:
    """Return how much a counter has grown; 0 if it went back, None if it is not known."""
    return None if before is None or after is None else max(0.0, after - before)


def canary() -> int:
    """Return the nanoseconds that a fixed amount of work takes now: this core's speed under current load."""
    began = time.perf_counter_ns()
    for _ in range(_CANARY_ROUNDS):
        hashlib.sha256(_CANARY).digest()
    return time.perf_counter_ns() - began


def suspended_s() -> float:
    """Return the seconds that the machine has slept since it started; 0 if no clock tells.

    The two clocks are read one after the other, and a pause between them would look like sleep. So the
    fastest of a few attempts counts.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    if boot is None:
        return 0.0
    attempts = []
    for _ in range(3):
        before, with_sleep, after = time.monotonic_ns(), time.clock_gettime_ns(boot), time.monotonic_ns()
        attempts.append((after - before, with_sleep - (before + after) // 2))
    return min(attempts)[1] / 1e9


class _Gpu:
    """Clocks, temperature and processes of one GPU from NVML; None where the driver does not tell."""

    def __init__(self, device: int) -> None:
        self._nvml: Any = None
        self._device: Any = None
        with contextlib.suppress(ImportError):
            import pynvml

            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                name = nvml_device(device, os.environ.get("CUDA_VISIBLE_DEVICES"))
                by_name = pynvml.nvmlDeviceGetHandleByUUID
                by_index = pynvml.nvmlDeviceGetHandleByIndex
                self._device = by_index(name) if isinstance(name, int) else by_name(name)
                self._nvml = pynvml

    def read(self) -> dict[str, float] | None:
        """Return the values of `wire.Counters.gpu`."""
        nvml = self._nvml
        if nvml is None:
            return None
        found: dict[str, float] = {}
        questions: dict[str, Callable[[], float]] = {
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(self._device, nvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(self._device, nvml.NVML_CLOCK_SM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(self._device, nvml.NVML_TEMPERATURE_GPU),
            "foreign_processes": self._count_other_processes,
        }
        for name, ask in questions.items():
            with contextlib.suppress(nvml.NVMLError):
                found[name] = float(ask())
        return found or None

    def _count_other_processes(self) -> int:
        listed = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        return foreign_processes(
            [process.pid for process in listed], os.getpid(), os.getppid(), parent_of=_parent_of
        )


def _parent_of(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
