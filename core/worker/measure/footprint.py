"""Memory of this process on the CPU and on GPUs. Standard library; NVML is loaded on demand.

`ru_maxrss` is only a fallback on Linux: it survives `exec`, so a small worker of a large parent would report
the parent's size.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_STATUS = Path("/proc/self/status")
_MAPS = Path("/proc/self/maps")
_ROLLUP = Path("/proc/self/smaps_rollup")
_CLEAR = Path("/proc/self/clear_refs")
_MADV_POPULATE_READ = 22
_RESET_PEAK = "5"  # written to clear_refs: reset the peak of the resident set


def reset_peak() -> bool:
    """Reset the peak to the present size; False if the system does not allow it."""
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def load_libraries() -> None:
    """Make the code of every loaded library resident, so that it does not count as the model's memory.

    Pages of a library count for a process after first use. How many pages a process used before it loads a
    model is arbitrary, and a forked process inherits few: 10 to 18 MB of onnxruntime would count as the
    model's. This does nothing on kernels older than 5.14.
    """
    with contextlib.suppress(OSError):
        libc = ctypes.CDLL(None)
        for start, end in parse_library_maps(_MAPS.read_text(encoding="utf-8", errors="replace")):
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_POPULATE_READ)


def parse_library_maps(maps: str) -> list[tuple[int, int]]:
    """Return start and end of the mappings of shared libraries and the interpreter in `/proc/self/maps`."""
    found = re.findall(
        r"^([0-9a-f]+)-([0-9a-f]+) r[w-][x-]p .*(?:\.so[.\d]*|/python[.\d]*)$", maps, re.MULTILINE
    )
    return [(int(start, 16), int(end, 16)) for start, end in found]


def peak_rss_bytes() -> int:
    """Return the largest resident set since the start, or since `reset_peak`."""
    try:
        return parse_high_water_mark(_STATUS.read_text(encoding="ascii"))
    except (OSError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def parse_high_water_mark(status: str) -> int:
    """Return the bytes of `VmHWM` in `/proc/self/status`.

    Raises:
        ValueError: there is no such line.
    """
    match = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    if match is None:
        raise ValueError("no VmHWM line")
    return int(match.group(1)) * 1024


def shared_bytes() -> int:
    """Return the bytes of this process's pages that other processes hold too; 0 if the system does not tell.

    A page of k processes counts as (k - 1) / k of its size, so that the sum over these processes is what the
    sum of their resident sets counts too often.
    """
    try:
        return parse_shared(_ROLLUP.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def parse_shared(rollup: str) -> int:
    """Return the bytes of `Rss` minus those of `Pss` in `/proc/self/smaps_rollup`.

    Raises:
        ValueError: a line is missing.
    """
    found = {name: re.search(rf"^{name}:\s+(\d+) kB", rollup, re.MULTILINE) for name in ("Rss", "Pss")}
    rss, pss = found["Rss"], found["Pss"]
    if rss is None or pss is None:
        raise ValueError("no Rss or Pss line")
    return max(0, int(rss[1]) - int(pss[1])) * 1024


def private_bytes(rollup: Path = _ROLLUP) -> int | None:
    """Return the memory that this process has written, for itself alone; None: this system does not tell.

    Pages of files, such as libraries and mapped weights, are shared with any process that reads them too.
    """
    try:
        text = rollup.read_text(encoding="ascii")
    except OSError:
        return None
    return 1024 * sum(map(int, re.findall(r"^Private_(?:Dirty|Hugetlb): +(\d+) kB", text, re.MULTILINE)))


def group_peak_bytes(peaks: Sequence[int], shared: Sequence[int]) -> int:
    """Return the peak memory of several processes; pages that they share count once.

    It assumes that all peaks came at the same time, as after a common start.

    Args:
        peaks: of each process, bytes above its baseline.
        shared: of each process, by how much its `shared_bytes` have grown since the baseline.
    """
    return max(max(peaks), sum(peaks) - max(0, sum(shared)))


def gpu_memory_bytes() -> tuple[int | None, str]:
    """Return the bytes that this process holds on all GPUs by NVML; or None and the reason as text."""
    try:
        import pynvml
    except ImportError:
        return None, "GPU memory is unknown: the package nvidia-ml-py is not installed."
    try:
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        own = [
            process.usedGpuMemory
            for device in devices
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device)
            if process.pid == os.getpid() and process.usedGpuMemory is not None
        ]
    except pynvml.NVMLError as error:
        return None, f"GPU memory is unknown: NVML says {error}."
    if not own:
        return None, "GPU memory is unknown: the driver does not list this process, as in most containers."
    return sum(own), ""
