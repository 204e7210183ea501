"""A minute of `benchmarks/soak.py`: visitors leave nothing behind, and the rule for growth can fail."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import soak
from tests.e2e.conftest import recorded_home
from tests.serving import serving

WAVES = 3  # the first reads what the server keeps
VISITORS = 4
WAVE_S = 6.0


def test_growth_is_found_and_noise_is_not() -> None:
    flat = [100.0 + (7 * at % 11 - 5) / 5 for at in range(60)]
    share, low, high = soak.growth(flat) or (1.0, 1.0, 1.0)
    assert share == pytest.approx(0, abs=0.01)
    assert low < 0 < high
    share, low, _ = soak.growth([value + at / 6 for at, value in enumerate(flat)]) or (0.0, 0.0, 0.0)
    assert share == pytest.approx(0.086, abs=0.005)
    assert low > soak.MOST_GROWTH
    assert soak.growth(flat[:19]) is None


def test_visitors_leave_no_threads_and_no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen, took, failed = [], [], []
    with recorded_home() as home, serving(home) as (url, process):
        server = psutil.Process(process.pid)

        async def wave() -> None:
            until = time.monotonic() + WAVE_S
            await asyncio.gather(*(soak.visitor(url, until, at, took, failed) for at in range(VISITORS)))

        for _ in range(WAVES):
            asyncio.run(wave())
            seen.append(soak.sample(server, home))
        log = soak.errors(home)
    assert failed == []
    assert log == []
    assert len(took) >= WAVES * VISITORS * soak.PAGES_PER_SESSION
    for name in ("temporary folders", "bytes per result"):
        assert seen[-1][name] == seen[0][name], name
    assert seen[-1]["threads"] <= seen[0]["threads"] + VISITORS
