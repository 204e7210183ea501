from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from core.worker.measure import counters

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="these counters are Linux's")


@pytest.mark.parametrize(
    ("before", "after", "increase"), [(1.5, 1.75, 0.25), (1.75, 1.5, 0), (None, 1.0, None), (1.0, None, None)]
)
def test_a_counter_of_a_block_is_what_was_added(
    before: float | None, after: float | None, increase: float | None
) -> None:
    assert counters.increase(before, after) == increase


@pytest.mark.parametrize(
    ("text", "waited"), [("85036 4200000 12\n", 0.0042), ("5 0 1\n", 0.0), ("0 0 0\n", None), ("", None)]
)
def test_waiting_is_the_second_field_of_schedstat(text: str, waited: float | None) -> None:
    assert counters.parse_schedstat(text) == waited


def test_frequencies_are_averaged_in_hertz() -> None:
    assert counters.parse_frequencies(["2000000\n", "3000000\n", ""]) == 2.5e9
    assert counters.parse_frequencies(["", "<unknown>\n"]) is None


def test_waiting_of_new_threads_counts_and_of_ended_ones_does_not() -> None:
    assert counters.waited_s({1: 1.0, 2: 5.0}, {1: 1.5, 3: 0.25}) == 0.75
    assert counters.waited_s({1: 1.0}, {}) is None


def test_contestants_of_the_same_comparison_are_not_foreign_on_a_gpu() -> None:
    parents = {10: 5, 11: 5, 99: 1}
    count = counters.foreign_processes([10, 11, 99, 99, 77], 10, 5, lambda pid: parents.get(pid, 0))
    assert count == 2  # 99, and 77 of which nothing is known


@pytest.mark.parametrize(
    ("device", "visible", "name"),
    [
        (0, None, 0),
        (1, None, 1),
        (0, "", 0),
        (0, "3", 3),
        (1, "3, 1", 1),
        (2, "3,1", 2),
        (0, "GPU-8f2a", "GPU-8f2a"),
    ],
)
def test_cuda_counts_the_visible_devices_only(device: int, visible: str | None, name: int | str) -> None:
    assert counters.nvml_device(device, visible) == name


# -- readings ----------------------------------------------------------------------------------------------


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def work(seconds: float) -> None:
    """Use the CPU for a while, however long that takes on a busy machine."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_block_of_work_and_a_block_of_sleep() -> None:
    meter = counters.Meter()
    meter.start()
    work(0.1)
    worked = meter.stop()
    meter.start()
    time.sleep(0.1)
    slept = meter.stop()
    assert worked["wall_s"] >= 0.1 <= slept["wall_s"]
    assert worked["cpu_s"] > 5 * slept["cpu_s"]
    assert worked["canary_ns"] > 0
    assert 0 <= worked["suspended_s"] < 1
    assert worked["gpu"] is None
    for reading in (worked, slept):
        assert reading["involuntary_switches"] >= 0
        assert reading["major_faults"] >= 0


@needs_linux
def test_on_linux_the_kernels_counters_are_read() -> None:
    meter = counters.Meter()
    meter.start()
    spin(0.05)
    found = meter.stop()
    assert found["steal_s"] is not None
    assert found["busy_s"] is not None
    assert found["wait_s"] is not None
    assert found["wait_s"] >= 0


@needs_linux
def test_what_cannot_be_read_is_unknown_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters.os, "open", refuse)
    meter = counters.Meter()
    meter.start()
    found = meter.stop()
    for name in ("wait_s", "steal_s", "busy_s", "pressure_s", "throttled_periods", "throttled_s"):
        assert found[name] is None, name
    assert found["frequency_hz"] is None


def refuse(*_: object, **__: object) -> int:
    raise PermissionError


@needs_linux
def test_waiting_in_a_run_queue_is_seen() -> None:
    """Two threads on one CPU: while one runs the other waits. They are processes, because of the GIL."""
    before = os.sched_getaffinity(0)
    cpu = min(before)
    os.sched_setaffinity(0, {cpu})
    pid = os.fork()
    if pid == 0:
        spin(3)
        os._exit(0)
    try:
        meter = counters.Meter()
        meter.start()
        spin(0.3)
        found = meter.stop()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.sched_setaffinity(0, before)
    assert found["wait_s"] is not None
    assert found["wait_s"] > 0.05
    assert found["cpu_s"] < 0.9 * found["wall_s"]
    assert found["involuntary_switches"] > 0


@needs_linux
def test_threads_that_come_and_go_are_followed_without_leaking_descriptors() -> None:
    meter = counters.Meter()
    meter.start()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        meter.start()
        meter.stop()
        stop.set()
        thread.join()
        meter.start()
        assert meter.stop()["wait_s"] is not None
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes: object) -> ModuleType:
    nvml = ModuleType("pynvml")
    functions: dict[str, object] = {
        "NVMLError": FakeNvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: f"device {index}",
        "nvmlDeviceGetHandleByUUID": lambda name: f"device {name}",
        "nvmlDeviceGetClockInfo": lambda device, kind: 1500,
        "nvmlDeviceGetMaxClockInfo": lambda device, kind: 1980,
        "nvmlDeviceGetTemperature": lambda device, kind: 61,
        "nvmlDeviceGetComputeRunningProcesses": lambda device: [
            SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)
        ],
    }  # fmt: skip
    for name, value in (functions | changes).items():
        setattr(nvml, name, value)
    return nvml


def test_a_gpus_clocks_and_foreign_users_stand_in_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    meter = counters.Meter(gpu=0)
    meter.start()
    assert meter.stop()["gpu"] == {
        "sm_clock_mhz": 1500, "max_sm_clock_mhz": 1980, "temperature_c": 61, "foreign_processes": 1,
    }  # fmt: skip


def test_what_the_driver_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FakeNvmlError

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlDeviceGetTemperature=fail))
    meter = counters.Meter(gpu=0)
    gpu = meter.stop()["gpu"]
    assert gpu is not None
    assert "temperature_c" not in gpu
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=fail))
    assert counters.Meter(gpu=0).stop()["gpu"] is None
