from __future__ import annotations

import random

import pytest

from core.worker.measure import warmup

MS = 1_000_000


def noisy(median_ns: int, runs: int, *, spread: float, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [round(median_ns * rng.lognormvariate(0, spread)) for _ in range(runs)]


@pytest.mark.parametrize(
    ("median_ns", "runs"), [(1_000, 30), (700_000, 28), (1 * MS, 20), (4 * MS, 5), (300 * MS, 2)]
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


# --- slow models ------------------------------------------------------------------------------------------


def test_runs_of_50_ms_show_in_two_what_shorter_ones_show_in_five() -> None:
    assert warmup.window_runs([50 * MS - 1] * 9) == 5
    assert warmup.window_runs([50 * MS] * 9) == 2
    assert not warmup.is_steady([60 * MS] * 3)
    assert warmup.is_steady([60 * MS] * 4)
    assert not warmup.is_steady([90 * MS, 80 * MS, 70 * MS, 60 * MS])


def test_a_slow_model_is_warm_after_its_first_runs_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = warmup.run_until_steady(Clock(monkeypatch).runner(lambda i: (900 if i < 1 else 500) * MS, []))
    assert len(latencies) == 5  # the first is another; two windows of two behind it


def test_a_cap_ends_the_warm_up_of_a_slow_model_after_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert len(warmup.run_until_steady(clock.runner(lambda i: 3_000 * MS, []), cap_ns=1_500 * MS)) == 1
    clock.now = 0
    assert len(warmup.run_until_steady(clock.runner(lambda i: 400 * MS, []), cap_ns=1_000 * MS)) == 3


# --- processes that others of their kind went before --------------------------------------------------------


@pytest.mark.parametrize(
    ("latencies_ms", "known_ms", "back"),
    [
        ([], 1, False),
        ([1.0] * 9, 1, False),  # 9 ms
        ([1.0] * 10, 1, True),
        ([1.05] * 10, 1, True),
        ([1.06] * 10, 1, False),
        ([0.5] * 20, 1, True),  # faster than known is warm enough
        ([5.0] * 20 + [1.0] * 6, 1, True),  # most of the last ten
        ([5.0] * 20 + [1.0] * 4, 1, False),
        ([20.0], 20, True),
        ([25.0], 20, False),
        ([300.0, 200.0], 200, True),
        ([0.001] * 10_000, 0.001, True),
        ([0.001] * 9_000, 0.001, False),
    ],
)
def test_a_process_is_back_when_its_last_10_ms_run_as_those_before_it(
    latencies_ms: list[float], known_ms: float, back: bool
) -> None:
    latencies_ns = [round(one * MS) for one in latencies_ms]
    assert warmup.matches_known_latency(latencies_ns, round(known_ms * MS)) is back


def test_a_process_of_a_known_kind_is_warm_in_10_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    for known_ns in (20_000, MS, 4 * MS):
        calls: list[int] = []
        run = Clock(monkeypatch).runner(lambda i, known_ns=known_ns: known_ns, calls)
        latencies = warmup.run_until_steady(run, known_ns=known_ns)
        assert 10 * MS <= sum(latencies) < 10 * MS + 4 * MS
        assert len(calls) <= 2


def test_a_slow_process_of_a_known_kind_is_warm_after_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        len(warmup.run_until_steady(Clock(monkeypatch).runner(lambda i: 2_000 * MS, []), known_ns=2_000 * MS))
        == 1
    )


def test_a_process_that_stays_slower_than_its_kind_is_warm_when_it_is_steady(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its layout may cost it more than 5 %: launches exist to show that."""
    latencies = warmup.run_until_steady(Clock(monkeypatch).runner(lambda i: round(1.2 * MS), []), known_ns=MS)
    assert not warmup.matches_known_latency(latencies, MS)
    assert warmup.is_steady(latencies)
    assert sum(latencies) < 200 * MS


def test_a_process_that_gets_to_where_its_kind_is_stops_there(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clock(monkeypatch).runner(lambda i: round(MS * max(1, 6 * 0.8**i)), [])
    latencies = warmup.run_until_steady(run, known_ns=MS)
    assert warmup.matches_known_latency(latencies, MS)
    assert 9 < len(latencies) < 30
