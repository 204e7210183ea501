from __future__ import annotations

import random

import pytest

from core.benchmark import warmup

MS = 1_000_000


def noisy(median_ns: int, runs: int, *, spread: float, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [round(median_ns * rng.lognormvariate(0, spread)) for _ in range(runs)]


@pytest.mark.parametrize(
    ("median_ns", "runs"), [(1_000, 30), (700_000, 28), (1 * MS, 20), (4 * MS, 5), (300 * MS, 5)]
)
def test_a_window_is_about_20_ms_and_5_to_30_runs(median_ns: int, runs: int) -> None:
    assert warmup.window_runs([median_ns] * 40) == runs


def test_the_window_follows_the_latest_runs_not_the_slow_first_ones() -> None:
    assert warmup.window_runs([300 * MS] * 10 + [1 * MS] * 40) == 20


def test_a_constant_latency_is_steady_after_two_windows_and_50_ms() -> None:
    assert not warmup.is_steady([])
    assert not warmup.is_steady([10 * MS] * 9)  # fewer than two windows of 5
    assert warmup.is_steady([10 * MS] * 10)
    assert not warmup.is_steady([1 * MS] * 49)
    assert warmup.is_steady([1 * MS] * 50)
    assert not warmup.is_steady([1_000] * 49_000)
    assert warmup.is_steady([1_000] * 50_000)


def test_a_falling_latency_is_not_steady_until_it_has_come_to_rest() -> None:
    falling = [round(20 * MS * 0.95**i) for i in range(40)]
    assert not any(warmup.is_steady(falling[:n]) for n in range(10, 40))
    assert warmup.is_steady(falling + [falling[-1]] * 40)


@pytest.mark.parametrize(("step", "steady"), [(1.015, True), (1.03, False)])
def test_two_percent_is_the_tolerance_where_there_is_no_noise(step: float, steady: bool) -> None:
    assert warmup.is_steady([10 * MS] * 5 + [round(10 * MS * step)] * 5) is steady


def test_noise_widens_the_tolerance() -> None:
    quiet = [10 * MS] * 5 + [round(10.5 * MS)] * 5
    noisy_ones = [round(x * f) for x, f in zip(quiet, [0.8, 0.9, 1, 1.1, 1.2] * 2, strict=True)]
    assert not warmup.is_steady(quiet)
    assert warmup.is_steady(noisy_ones)


def test_most_stationary_noise_is_called_steady_soon() -> None:
    early = sum(
        any(warmup.is_steady(noisy(MS, 400, spread=0.1, seed=seed)[:n]) for n in range(60, 160, 20))
        for seed in range(40)
    )
    assert early >= 36


@pytest.mark.parametrize(
    ("runs", "elapsed_ns", "over"),
    [
        (299, 9_999 * MS, False),
        (3, 10_000 * MS, True),
        (300, 499 * MS, False),
        (300, 500 * MS, True),
        (100_000, 300 * MS, False),
    ],
)
def test_the_caps_are_10_s_or_300_runs_of_at_least_half_a_second(
    runs: int, elapsed_ns: int, over: bool
) -> None:
    assert warmup.is_over(runs, elapsed_ns) is over


def test_an_accelerator_may_take_a_minute() -> None:
    assert not warmup.is_over(3, 59_999 * MS, warmup.ACCELERATOR_CAP_NS)
    assert warmup.is_over(3, 60_000 * MS, warmup.ACCELERATOR_CAP_NS)


def test_what_to_expect_is_the_median_of_the_last_window() -> None:
    assert warmup.expected_ns([90 * MS] * 10 + [10 * MS] * 5, 1) == 10 * MS
    assert warmup.expected_ns([], 7 * MS) == 7 * MS


class Clock:
    """Time that passes only while something runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        monkeypatch.setattr(warmup.time, "perf_counter_ns", lambda: self.now)

    def runner(self, latency_ns, calls):
        def run(count: int) -> list[int]:
            calls.append(count)
            latencies = [latency_ns(sum(calls[:-1]) + i) for i in range(count)]
            self.now += sum(latencies)
            return latencies

        return run


def test_the_loop_ends_when_the_latency_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    run = Clock(monkeypatch).runner(lambda i: round(10 * MS * (1 + 4 * 0.8**i)), calls)
    latencies = warmup.run_until_steady(run)
    assert warmup.is_steady(latencies)
    assert len(latencies) == sum(calls) < 60


def test_the_loop_gives_up_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    latencies = warmup.run_until_steady(clock.runner(lambda i: round(300 * MS * 0.97**i), []))
    assert not warmup.is_steady(latencies)
    clock.now = 0
    slow = warmup.run_until_steady(clock.runner(lambda i: 4_000 * MS, []))
    assert len(slow) == 3  # 12 s: the cap came before the next one
    assert clock.now == 12_000 * MS


def test_short_runs_are_not_looked_at_one_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    latencies = warmup.run_until_steady(Clock(monkeypatch).runner(lambda i: 5_000, calls))
    assert warmup.is_steady(latencies)
    assert len(calls) <= 5
