from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable

import pytest

from core.wire.errors import WorkerError
from core.worker.measure.timing import CPU_WINDOW_S, clock_share_ns, cpu_s, time_block, time_each, time_runs


class Clock:
    """A clock on which each call takes what is written down for it; reading it takes one nanosecond."""

    def __init__(self, durations: Iterable[int]) -> None:
        self.now = 0
        self.durations = iter(durations)
        self.calls = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def work(self) -> None:
        self.calls += 1
        self.now += next(self.durations)


def block(durations: Iterable[int], **limits: int):
    clock = Clock(durations)
    found = time_block(clock.work, **({"block_ns": 0, "min_runs": 0, "max_runs": 99} | limits), clock=clock)
    return found, clock


def test_the_first_run_is_apart_and_the_others_are_kept_in_order() -> None:
    found, clock = block([50, 10, 30, 20], min_runs=3)
    assert found.refill_ns == 51
    assert found.latencies_ns == [11, 31, 21]
    assert clock.calls == 4


def test_a_block_lasts_from_the_end_of_its_first_run() -> None:
    found, _ = block([10_000, *[99] * 50], block_ns=1000)
    assert len(found.latencies_ns) == 10  # 99 and two readings of the clock, less than 1000 nine times
    assert sum(found.latencies_ns) == 1000


@pytest.mark.parametrize(
    ("limits", "runs"),
    [
        ({"block_ns": 0, "min_runs": 5}, 5),
        ({"block_ns": 350, "min_runs": 1}, 4),
        ({"block_ns": 350, "min_runs": 7}, 7),
        ({"block_ns": 10**9, "max_runs": 6}, 6),
        ({"min_runs": 9, "max_runs": 2}, 2),
        ({}, 0),
    ],
)
def test_the_number_of_runs(limits: dict[str, int], runs: int) -> None:
    assert len(block([100] * 200, **limits)[0].latencies_ns) == runs


@pytest.mark.parametrize("durations", [[-10, 5], [5, -10, 5], [5, 5, 5, -10]])
def test_a_clock_that_goes_backwards_is_no_latency(durations: list[int]) -> None:
    with pytest.raises(WorkerError, match="The clock went backwards") as caught:
        block(durations, min_runs=len(durations) - 1)
    assert caught.value.hint


def test_a_clock_that_went_back_ends_the_block_at_once() -> None:
    clock = Clock([5, -(10**12), *[5] * 1000])
    with pytest.raises(WorkerError):
        time_block(clock.work, block_ns=10**9, min_runs=1, max_runs=1000, clock=clock)
    assert clock.calls == 2


def test_what_the_run_raises_goes_through() -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        time_block(fail, block_ns=1, min_runs=1, max_runs=1)


@pytest.mark.parametrize("runs", [1, 2, 10])
def test_each_run_is_timed_the_first_included(runs: int) -> None:
    calls: list[int] = []
    latencies = time_each(lambda: calls.append(1), runs)
    assert len(latencies) == len(calls) == runs
    assert min(latencies) >= 0


def spin_for(seconds: float, spent: list[float]) -> Callable[[], None]:
    def spin() -> None:
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            pass
        spent.append(time.perf_counter() - began)

    return spin


def test_cpu_time_is_read_over_many_runs_and_is_no_more_than_the_time_that_passed() -> None:
    spent: list[float] = []
    began = time.perf_counter()
    found = cpu_s(spin_for(0.0005, spent))
    assert time.perf_counter() - began >= CPU_WINDOW_S
    assert 0 < found <= 1.1 * sum(spent) / len(spent)


def test_cpu_time_of_a_run_longer_than_the_window_is_that_of_one_run() -> None:
    spent: list[float] = []
    assert cpu_s(spin_for(0.05, spent), window_s=0.01) > 0
    assert len(spent) == 1
    assert cpu_s(lambda: time.sleep(0.02), window_s=0.05) < 0.01


def test_runs_with_a_report_keep_every_latency_and_report_rarely() -> None:
    reports: list[int] = []
    calls: list[int] = []
    latencies = time_runs(lambda: calls.append(1), 1000, expected_ns=1_000_000, report=reports.append)
    assert len(latencies) == len(calls) == 1000
    assert reports == [500, 1000]
    assert time_runs(lambda: calls.append(1), 0, expected_ns=1, report=reports.append) == []


def test_the_garbage_collector_is_on_again_after_an_error() -> None:
    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        time_runs(fail, 1, expected_ns=1, report=lambda done: None)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        clock_share_ns()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_clocks_own_share_is_a_fraction_of_a_microsecond_or_little_more() -> None:
    assert 0 < clock_share_ns() < 100_000
