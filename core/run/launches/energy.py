"""Measures the energy per inference with hardware counters: RAPL of the CPU, NVML of the GPU.

It never estimates. Both count the whole package, so the idle power is measured first and subtracted, over
windows of at least five seconds. Where no counter can be read, the functions return None and the reason; a
data sheet's rating is no substitute. Joules, watts, seconds.

Source: the kernel's powercap documentation (`energy_uj` starts again at 0 above `max_energy_range_uj`) and
NVML's `nvmlDeviceGetTotalEnergyConsumption`, in millijoules since the driver was loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")
WINDOW_S = 5.0  # the counters are updated about once in a millisecond, the GPU's once in a tenth of a second
_COUNTED = ("package", "dram")  # disjoint; `core` is part of the package, and psys counts the package again
_MIRROR = "intel-rapl-mmio"  # the same packages through another interface


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One hardware counter of energy."""

    name: str
    read_j: Callable[[], float]
    range_j: float | None = None  # value at which it wraps to 0; None: never


@dataclass(frozen=True, slots=True)
class Meter:
    """All counters that a measurement must add up."""

    counters: tuple[Counter, ...]
    note: str  # text: what it covers

    def read(self) -> list[float]:
        """Return the current values of the counters, in joules, for `since`."""
        return [counter.read_j() for counter in self.counters]

    def since(self, before: Sequence[float]) -> float:
        """Return the joules since `before`; a counter may wrap at most once in between."""
        pairs = zip(self.counters, before, self.read(), strict=True)
        return sum(_added(start, end, counter.range_j) for counter, start, end in pairs)


def meter(*, gpu: bool, powercap: Path = POWERCAP) -> tuple[Meter | None, str]:
    """Return the meter of this machine, or None and the reason.

    Args:
        gpu: the inference uses an NVIDIA GPU; a meter without the GPU would be wrong, so None is returned.
        powercap: folder of the kernel's power zones.
    """
    packages, why = rapl(powercap)
    cards, why_not = _gpu_counters() if gpu else ([], "")
    if gpu and not cards:
        return None, why_not
    if not packages and not cards:
        return None, why
    covered = ", ".join(counter.name for counter in (*packages, *cards))
    return Meter((*packages, *cards), f"Energy of {covered}{'' if packages else f'. {why}'}"), ""


def rapl(powercap: Path = POWERCAP) -> tuple[list[Counter], str]:
    """Return the CPU's counters (packages and memory), or none and the reason."""
    zones = [path for path in sorted(powercap.glob("*/energy_uj")) if _zone_name(path).startswith(_COUNTED)]
    zones = [path for path in zones if not path.parent.name.startswith(_MIRROR)] or zones
    if not zones:
        return [], "This machine has no CPU energy counter (RAPL); virtual machines rarely have one."
    try:
        return [_zone(path) for path in zones], ""
    except (OSError, ValueError):
        return [], f"The CPU energy counter is not readable: `{zones[0]}` belongs to root."


def idle_watts(meter: Meter, *, sleep: Callable[[float], None] = time.sleep) -> float:
    """Return the idle power of the machine, in watts."""
    joules, seconds = _spent(meter, lambda: sleep(WINDOW_S))
    return joules / seconds


def joules_per_run(meter: Meter, idle_w: float, run: Callable[[float], int]) -> tuple[float | None, str]:
    """Return the joules of one run above idle, or None and the reason.

    Args:
        meter: from `meter`.
        idle_w: from `idle_watts`, measured within the same minute.
        run: called with the minimum number of seconds; runs inferences and returns how many.
    """
    runs = 0

    def work() -> None:
        nonlocal runs
        runs = run(WINDOW_S)

    joules, seconds = _spent(meter, work)
    net_j = joules - idle_w * seconds
    if runs < 1 or seconds < WINDOW_S * 0.9:
        return None, f"The runs took {seconds:.1f} s, which is too short for the energy counters."
    if net_j <= 0:
        return None, (
            "The machine used no more energy than while idle, so other processes ran before the measurement."
        )
    return net_j / runs, ""


def _spent(meter: Meter, work: Callable[[], object]) -> tuple[float, float]:
    before, began = meter.read(), time.monotonic()
    work()
    return meter.since(before), time.monotonic() - began


def _added(start: float, end: float, range_j: float | None) -> float:
    if end >= start:
        return end - start
    return end - start + range_j if range_j is not None else 0.0


def _zone(path: Path) -> Counter:
    counter = Counter(
        name=f"CPU {_zone_name(path)}",
        read_j=lambda: int(path.read_text()) / 1e6,
        range_j=int((path.parent / "max_energy_range_uj").read_text()) / 1e6,
    )
    counter.read_j()  # on most machines only root may read it: fail now, not during the measurement
    return counter


def _zone_name(path: Path) -> str:
    try:
        return (path.parent / "name").read_text().strip()
    except OSError:
        return ""


def _gpu_counters() -> tuple[list[Counter], str]:
    """All GPUs visible to this process: idle ones use the same power in the idle window."""
    try:
        import pynvml
    except ImportError:
        return [], "The GPU energy counter needs the package nvidia-ml-py."
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        counters = [_card(pynvml, handle) for handle in handles]
        for counter in counters:
            counter.read_j()
    except pynvml.NVMLError as error:
        return [], f"The GPU does not report its energy: {error}."
    return counters, "" if counters else "NVML reports no GPU."


def _card(pynvml: Any, handle: Any) -> Counter:
    return Counter(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        read_j=lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
    )
