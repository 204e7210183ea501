"""The time limit of workers: it counts while ORTune runs, and not while it is stopped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from core.process import time_limit
from core.process.time_limit import MOST_LOOK_S, TimeLimit


def test_a_stop_of_a_minute_counts_as_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time_limit, "time", SimpleNamespace(monotonic=lambda: clock.now))
    limit = TimeLimit(30.0)
    for _ in range(100):
        clock.now += 0.125
        left_s = limit.left_s()
    assert left_s == pytest.approx(30.0 - 12.5)
    clock.now += 60.0
    assert limit.left_s() == pytest.approx(30.0 - 12.5 - MOST_LOOK_S)
    assert limit.paused_s == pytest.approx(60.0)
    for _ in range(140):
        clock.now += 0.125
        left_s = limit.left_s()
    assert left_s < 0
