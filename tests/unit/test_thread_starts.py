"""Threads that die before they have begun, and their starters."""

from __future__ import annotations

import threading

import pytest

from dashboard.server import thread_starts
from tests.waiting import wait_until


def test_the_starter_of_a_thread_that_could_not_begin_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(threading.Thread):
        def _bootstrap(self) -> None:
            raise SystemExit  # as a MemoryError: no traceback, and it never says that it has begun

    starter = threading.Thread(target=Dying().start)
    starter.start()
    wait_until(lambda: bool(thread_starts.release([])))
    seen = thread_starts.release([])
    starter.join(0.2)
    assert starter.is_alive()
    left = thread_starts.release(seen)
    starter.join(10)
    assert not starter.is_alive()
    for one in left:
        threading._limbo.pop(one)  # type: ignore[attr-defined]


def test_a_thread_that_is_slow_to_begin_begins() -> None:
    may_begin, done = threading.Event(), threading.Event()

    class Slow(threading.Thread):
        def _bootstrap(self) -> None:
            may_begin.wait()
            super()._bootstrap()  # type: ignore[misc]

    slow = Slow(target=done.set)
    starter = threading.Thread(target=slow.start)
    starter.start()
    wait_until(lambda: slow in thread_starts.release([]))
    thread_starts.release([slow])
    starter.join(10)
    may_begin.set()
    assert done.wait(10)
    slow.join(10)
    assert thread_starts.release([]) == []
