"""How long a job took, where the clock was set meanwhile."""

from __future__ import annotations

import time

import pytest

from core.run.job import Queued


@pytest.mark.parametrize("ahead_s", [-1e6, 1e6])
def test_a_duration_does_not_follow_the_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    began = time.time()
    entry = Queued(job=None, store=None, started_at=began, began=time.monotonic() - 5)  # type: ignore[arg-type]
    monkeypatch.setattr(time, "time", lambda: began + ahead_s)
    assert 5 <= entry.present() - began < 1000
    entry.started_at = None
    assert entry.present() == began + ahead_s, "a job that waits has no duration"
