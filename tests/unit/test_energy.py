"""Energy from a fake folder of power zones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.run.launches import energy


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages with their memory, cores and the whole platform, and a mirror of the first package."""
    for zone, name, joules in (
        ("intel-rapl:0", "package-0", 100),
        ("intel-rapl:0:0", "core", 40),
        ("intel-rapl:0:1", "dram", 10),
        ("intel-rapl:1", "package-1", 200),
        ("intel-rapl:2", "psys", 999),
        ("intel-rapl-mmio:0", "package-0", 100),
    ):
        folder = tmp_path / zone
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")
        (folder / "energy_uj").write_text(f"{joules * 1_000_000}\n")
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path


def set_joules(powercap: Path, zone: str, joules: float) -> None:
    (powercap / zone / "energy_uj").write_text(f"{round(joules * 1e6)}\n")


def of(powercap: Path) -> energy.Meter:
    found, why = energy.meter(gpu=False, powercap=powercap)
    assert found is not None, why
    return found


def test_packages_and_memory_are_added_each_once(powercap: Path) -> None:
    meter = of(powercap)
    assert [one.name for one in meter.counters] == ["CPU package-0", "CPU dram", "CPU package-1"]
    assert meter.note == "Energy of CPU package-0, CPU dram, CPU package-1"
    before = meter.read()
    for zone, joules in (("intel-rapl:0", 103), ("intel-rapl:0:1", 11), ("intel-rapl:1", 200.5)):
        set_joules(powercap, zone, joules)
    set_joules(powercap, "intel-rapl:2", 2000)
    assert meter.since(before) == pytest.approx(4.5)


def test_a_counter_that_starts_again_at_zero_is_understood(powercap: Path) -> None:
    meter = of(powercap)
    set_joules(powercap, "intel-rapl:1", 262_143.0)
    before = meter.read()
    set_joules(powercap, "intel-rapl:1", 7.0)
    assert meter.since(before) == pytest.approx(7.32885)


def test_the_mirror_serves_where_there_is_nothing_else(powercap: Path) -> None:
    for zone in list(powercap.glob("intel-rapl:*")):
        (zone / "name").write_text("other")
    assert [one.name for one in of(powercap).counters] == ["CPU package-0"]


def test_without_zones_the_answer_is_none_with_the_reason(tmp_path: Path) -> None:
    found, why = energy.meter(gpu=False, powercap=tmp_path)
    assert found is None
    assert "counter" in why


def test_zones_that_only_root_may_read_are_told(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_text

    def refuse(path: Path, *args: Any, **kwargs: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)
    found, why = energy.meter(gpu=False, powercap=powercap)
    assert found is None
    assert "root" in why


# --- a run ----------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock of the module alone, which only moves when told."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(energy, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def spend(powercap: Path, clock: SimpleNamespace, seconds: float, watts: float) -> None:
    clock.s += seconds
    text = (powercap / "intel-rapl:0" / "energy_uj").read_text()
    set_joules(powercap, "intel-rapl:0", int(text) / 1e6 + seconds * watts)


def test_what_the_machine_burns_anyway_is_subtracted(powercap: Path, clock: SimpleNamespace) -> None:
    meter = of(powercap)
    idle_w = energy.idle_watts(meter, sleep=lambda s: spend(powercap, clock, s, 20.0))
    assert idle_w == pytest.approx(20.0)

    def run(seconds: float) -> int:
        spend(powercap, clock, seconds + 1, 65.0)
        return 900

    joules, why = energy.joules_per_run(meter, idle_w, run)
    assert joules == pytest.approx((65 - 20) * 6 / 900)
    assert why == ""


@pytest.mark.parametrize(
    ("seconds", "watts", "runs", "reason"),
    [(1.0, 65.0, 10, "too short"), (6.0, 65.0, 0, "too short"), (6.0, 19.0, 10, "while idle")],
)
def test_a_window_that_tells_nothing_gives_no_number(
    powercap: Path, clock: SimpleNamespace, seconds: float, watts: float, runs: int, reason: str
) -> None:
    def run(_: float) -> int:
        spend(powercap, clock, seconds, watts)
        return runs

    joules, why = energy.joules_per_run(of(powercap), 20.0, run)
    assert joules is None
    assert reason in why


def test_windows_are_long_enough_for_the_counters() -> None:
    assert energy.WINDOW_S >= 5.0


# --- GPUs -----------------------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


def nvml(*, joules: float | None) -> SimpleNamespace:
    def total(handle: int) -> int:
        if joules is None:
            raise NVMLError("Not Supported")
        return round(joules * 1000) + handle

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "NVIDIA T4",
        nvmlDeviceGetTotalEnergyConsumption=total,
    )


def test_a_gpu_is_counted_in_joules(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(joules=12.5))
    found, _ = energy.meter(gpu=True, powercap=powercap)
    assert found is not None
    assert found.counters[-1].name == "NVIDIA T4"
    assert found.read()[-1] == pytest.approx(12.5)


def test_a_gpu_alone_says_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(joules=1.0))
    found, _ = energy.meter(gpu=True, powercap=tmp_path)
    assert found is not None
    assert found.counters[-1].name in found.note


def test_a_gpu_that_tells_nothing_leaves_no_half_truth(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(joules=None))
    found, why = energy.meter(gpu=True, powercap=powercap)
    assert found is None
    assert "Not Supported" in why
