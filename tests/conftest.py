"""Every test process is small and has no deadlines; ONNX Runtime sends nothing, set before its import."""

import importlib
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

import core  # noqa: F401 - sets ORT_DISABLE_TELEMETRY

settings.register_profile("no absolute times", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no absolute times")

os.environ.pop("COLUMNS", None)  # xdist sets it in its workers; text would be as wide as its own terminal

with pytest.MonkeyPatch.context() as patch:
    # Several processes test at a time: the threads that numpy starts else would wait for each other, busily.
    patch.setenv("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("numpy")

MOST_BYTES = 1500 << 20
PEAK = "peak_mib"


def peak_bytes() -> int:
    """Largest memory of this process since the last call, where the kernel tells; else what it has now.

    Without the pages of files: those are the cache's, which gives them back.
    """
    try:
        text = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text("5")  # begin anew
    except OSError:
        return int(psutil.Process().memory_info().rss)
    kib = {name: int(size) for name, size in re.findall(r"^(VmHWM|RssFile):\s+(\d+)", text, re.M)}
    return kib["VmHWM"] - kib["RssFile"] << 10


@pytest.fixture(autouse=True)
def small_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is loaded here stays, and several such processes run at once."""
    yield
    peak = peak_bytes()
    request.node.user_properties.append((PEAK, peak >> 20))
    assert peak < MOST_BYTES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the peak of each process of tests, and its test."""
    peaks: dict[str, tuple[int, str]] = {}
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if (peak := dict(getattr(report, "user_properties", ())).get(PEAK)) is not None:
            process = getattr(report, "worker_id", "one process")
            peaks[process] = max(peaks.get(process, (0, "")), (peak, report.nodeid))
    for process, (peak, test) in sorted(peaks.items()):
        terminalreporter.write_line(f"{process}: at most {peak} MiB, in {test}")
