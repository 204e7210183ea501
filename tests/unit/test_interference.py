"""Flags, summaries and grades, on invented counters whose truth is known."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from core.interference import CAUSES, FLAGS, discard_reason, flag_blocks, grade, summarize, windows
from core.wire import Counters

QUIET_TEST = [0.002 * (-1) ** i for i in range(24)]


def counters(**changes: Any) -> Counters:
    """A block of 100 s on two CPUs, both used by the contestant: so long that 10 ms are nothing."""
    facts: Any = {
        "wall_s": 100.0,
        "cpu_s": 200.0,
        "involuntary_switches": 0,
        "major_faults": 0,
        "wait_s": 0.0,
        "steal_s": 0.0,
        "busy_s": 200.0,
        "pressure_s": 0.0,
        "throttled_periods": 0,
        "throttled_s": 0.0,
        "canary_ns": 500_000,
        "frequency_hz": 3e9,
        "suspended_s": 0.0,
        "gpu": None,
    }
    return facts | changes  # type: ignore[no-any-return]


def flags_of(odd: Counters, *, usual: Counters | None = None, cpus: int = 2) -> list[str]:
    """Flags of one odd block among nine usual ones."""
    blocks = [usual or counters()] * 9 + [odd]
    return flag_blocks(blocks, [0] * 10, cpus=cpus)[-1]


def simulated(
    *,
    seconds: float = 4.0,
    own: float = 2.0,
    foreign: float = 0.02,
    cpus: int = 2,
    seed: int = 0,
    block_s: float = 0.02,
) -> list[Counters]:
    """Blocks as the kernel shows them: busy time in steps of 10 ms, for each CPU and for two fields of it.

    The neighbour takes `foreign` CPUs; the contestant gets what is left of the `own` that it wants.
    """
    rng = random.Random(seed)
    truth = [rng.random() for _ in range(2 * cpus)]
    got = min(own, cpus - foreign)
    blocks = []
    for _ in range(round(seconds / block_s)):
        _pass(truth, 0.3 * (got + foreign) * block_s, rng)  # what lies between two blocks
        before = _shown(truth)
        wall_s = block_s * rng.uniform(1, 1.05)
        cpu_s = got * wall_s * rng.uniform(0.99, 1.0)
        _pass(truth, cpu_s + foreign * wall_s, rng)
        blocks.append(
            counters(
                wall_s=wall_s,
                cpu_s=cpu_s,
                busy_s=_shown(truth) - before,
                wait_s=(own - got) * wall_s * rng.uniform(0.9, 1.1),
                canary_ns=round(500_000 * rng.gauss(1, 0.01)),
            )
        )
    return blocks


def _pass(truth: list[float], busy_s: float, rng: random.Random) -> None:
    parts = [rng.uniform(0.8, 1.2) for _ in truth]
    for index, part in enumerate(parts):
        truth[index] += busy_s * part / sum(parts)


def _shown(truth: Sequence[float]) -> float:
    return math.fsum(math.floor(one * 100) / 100 for one in truth)


def judged(blocks: Sequence[Counters], self_tests: Sequence[Sequence[float]] = (QUIET_TEST,), **how: Any):
    flags = flag_blocks(blocks, [0] * len(blocks), cpus=how.pop("cpus", 2))
    return grade(self_tests, summarize(blocks, flags), frozen=how.pop("frozen", True))


# --- every threshold, a little below and a little above -----------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "calm", "odd", "usual"),
    [
        ("cpu_deficit", {"cpu_s": 194.5}, {"cpu_s": 193.5}, None),
        ("wait", {"wait_s": 5.9}, {"wait_s": 6.1}, None),
        ("wait", {"wait_s": 7.9}, {"wait_s": 8.1}, {"wait_s": 2.0}),
        ("switches", {"involuntary_switches": 4_950}, {"involuntary_switches": 5_050}, None),
        (
            "switches",
            {"involuntary_switches": 7_950},
            {"involuntary_switches": 8_050},
            {"involuntary_switches": 3_000},
        ),
        ("steal", {"steal_s": 2.0, "busy_s": 200.0}, {"steal_s": 2.1, "busy_s": 200.0}, None),
        ("pressure", {"pressure_s": 9.9}, {"pressure_s": 10.1}, None),
        ("pressure", {"pressure_s": 69.9}, {"pressure_s": 70.1}, {"pressure_s": 60.0}),
        ("throttled", {"throttled_periods": 0}, {"throttled_periods": 1}, None),
        ("foreign_load", {"busy_s": 209.9}, {"busy_s": 210.1}, None),
        ("slow_core", {"canary_ns": 524_000}, {"canary_ns": 526_000}, None),
        ("slow_core", {"canary_ns": 476_000}, {"canary_ns": 474_000}, None),
        ("frequency", {"frequency_hz": 2.86e9}, {"frequency_hz": 2.84e9}, None),
        ("major_faults", {"major_faults": 0}, {"major_faults": 1}, None),
        ("suspended", {"suspended_s": 0.009}, {"suspended_s": 0.011}, None),
        (
            "gpu_clock",
            {"gpu": {"sm_clock_mhz": 1510.0, "max_sm_clock_mhz": 2000.0}},
            {"gpu": {"sm_clock_mhz": 1490.0, "max_sm_clock_mhz": 2000.0}},
            None,
        ),
        ("gpu_shared", {"gpu": {"foreign_processes": 0.0}}, {"gpu": {"foreign_processes": 1.0}}, None),
    ],
)
def test_a_flag_comes_up_at_its_threshold_and_no_other_with_it(
    flag: str, calm: dict[str, Any], odd: dict[str, Any], usual: dict[str, Any] | None
) -> None:
    typical = counters(**(usual or {}))
    assert flags_of(counters(**calm), usual=typical) == []
    assert flags_of(counters(**odd), usual=typical) == [flag]


def test_every_flag_has_words_and_every_cause_is_a_flag() -> None:
    assert set(FLAGS) >= CAUSES
    assert all(FLAGS.values())


def test_a_neighbour_on_a_cpu_that_was_idle_anyway_takes_nothing() -> None:
    beside = {"wall_s": 100.0, "cpu_s": 100.0, "busy_s": 190.0}
    one = counters(cpu_s=100.0, busy_s=100.0)
    assert flags_of(counters(**beside), usual=one, cpus=2) == ["foreign_load"]
    assert flags_of(counters(**beside), usual=one, cpus=3) == []


def test_steal_leaves_no_cpu_idle() -> None:
    one = counters(cpu_s=100.0, busy_s=100.0)
    stolen = counters(cpu_s=100.0, busy_s=150.0, steal_s=60.0)
    assert flags_of(stolen, usual=one, cpus=3) == ["foreign_load", "steal"]


# --- what is usual is the contestant's own ------------------------------------------------------------------


def test_contestants_are_not_judged_by_each_other() -> None:
    greedy = counters(wait_s=400.0, involuntary_switches=40_000, pressure_s=95.0)  # more threads than CPUs
    modest = counters(cpu_s=100.0, busy_s=100.0)
    flags = flag_blocks([greedy, modest] * 20, [0, 1] * 20, cpus=2)
    assert flags == [[]] * 40


def test_a_deficit_is_seen_although_another_contestant_uses_more() -> None:
    blocks = [counters(), counters(cpu_s=100.0, busy_s=100.0)] * 10
    blocks[11] = counters(cpu_s=90.0, busy_s=90.0)
    flags = flag_blocks(blocks, [0, 1] * 10, cpus=2)
    assert flags[11] == ["cpu_deficit"]
    assert sum(map(bool, flags)) == 1


def test_what_cannot_be_read_is_no_flag() -> None:
    unknown = dict.fromkeys(
        (
            "wait_s",
            "steal_s",
            "busy_s",
            "pressure_s",
            "throttled_periods",
            "throttled_s",
            "frequency_hz",
            "gpu",
        )
    )
    blocks = [counters(**unknown)] * 5
    flags = flag_blocks(blocks, [0] * 5, cpus=2)
    summary = summarize(blocks, flags)
    assert flags == [[]] * 5
    assert summary.foreign_cpus is summary.steal_share is summary.pressure_share is None
    assert summary.throttled_periods is summary.throttled_s is None
    assert judged(blocks).grade == "A"


def test_no_blocks_are_no_disturbance() -> None:
    assert flag_blocks([], [], cpus=2) == []
    summary = summarize([], [])
    assert (summary.blocks, summary.flagged_share, summary.run_flags) == (0, 0.0, [])


# --- windows ------------------------------------------------------------------------------------------------


def test_windows_are_long_enough_and_lose_no_block() -> None:
    short = [counters(wall_s=0.02)] * 95
    found = windows(short)
    assert [index for window in found for index in window] == list(range(95))
    assert all(len(window) * 0.02 >= 0.5 for window in found)
    assert [len(window) for window in windows([counters(wall_s=2.0)] * 3)] == [1, 1, 1]
    assert windows(short[:3]) == [[0, 1, 2]]


@pytest.mark.parametrize("cpus", [2, 16])
def test_coarse_counters_alone_seldom_flag_a_quiet_machine(cpus: int) -> None:
    """False alarms, 5 % of the windows by design, over 100 simulated runs."""
    shares = [
        summarize(blocks, flag_blocks(blocks, [0] * len(blocks), cpus=cpus)).shares.get("foreign_load", 0.0)
        for seed in range(100)
        for blocks in [simulated(own=float(cpus), foreign=0.0, cpus=cpus, seed=seed)]
    ]
    assert sum(shares) / len(shares) < 0.06


@pytest.mark.parametrize("cpus", [2, 16])
def test_a_neighbour_that_burns_most_of_a_core_is_always_seen(cpus: int) -> None:
    for seed in range(30):
        blocks = simulated(own=float(cpus), foreign=0.9, cpus=cpus, seed=seed)
        summary = summarize(blocks, flag_blocks(blocks, [0] * len(blocks), cpus=cpus))
        assert summary.shares["foreign_load"] > 0.9
        assert summary.foreign_cpus == pytest.approx(0.9, abs=0.15 if cpus == 2 else 0.5)


def test_more_foreign_load_never_takes_a_flag_away() -> None:
    for seed in range(10):
        blocks = simulated(foreign=0.3, seed=seed)
        more = [counters(**{**one, "busy_s": one["busy_s"] + 0.1 * one["wall_s"]}) for one in blocks]
        before, after = (flag_blocks(run, [0] * len(run), cpus=2) for run in (blocks, more))
        assert all(set(a) <= set(b) for a, b in zip(before, after, strict=True))


# --- blocks that must not count -----------------------------------------------------------------------------


def test_a_block_is_discarded_by_its_counters_with_the_reason() -> None:
    assert discard_reason(counters()) == ""
    assert discard_reason(counters(suspended_s=0.009)) == ""
    assert discard_reason(counters(suspended_s=12.3)) == "the machine slept for 12.3 s"
    slow = {"sm_clock_mhz": 900.0, "max_sm_clock_mhz": 1980.0}
    assert discard_reason(counters(gpu=slow)) == "the GPU had slowed its clock to 900 of 1980 MHz"
    assert discard_reason(counters(gpu={"temperature_c": 40.0})) == ""


# --- the run ------------------------------------------------------------------------------------------------


def run_flags(odd: dict[str, Any], many: int, of: int = 100) -> list[str]:
    blocks = [counters(**odd)] * many + [counters()] * (of - many)
    return summarize(blocks, flag_blocks(blocks, [0] * of, cpus=2)).run_flags


def test_a_run_is_marked_at_its_own_thresholds() -> None:
    assert run_flags({"cpu_s": 180.0, "busy_s": 180.0}, 20) == []
    assert run_flags({"cpu_s": 180.0, "busy_s": 180.0}, 21) == ["cpu_deficit"]
    assert run_flags({"throttled_periods": 1}, 1) == ["throttled"]
    assert run_flags({"steal_s": 1.9}, 100) == []
    assert run_flags({"steal_s": 2.1}, 100) == ["steal"]
    assert run_flags({"steal_s": 18.0}, 11) == []  # 0.98 % of the time of the whole run
    assert run_flags({"steal_s": 18.0}, 12) == ["steal"]
    assert run_flags({"gpu": {"foreign_processes": 1.0}}, 1) == ["gpu_shared"]


def test_an_uneasy_canary_marks_the_run() -> None:
    def spread(share: float) -> list[str]:
        ns = [round(500_000 * (1 + share * (-1) ** i)) for i in range(100)]
        blocks = [counters(canary_ns=one, wall_s=0.02, cpu_s=0.04, busy_s=0.04) for one in ns]
        return summarize(blocks, flag_blocks(blocks, [0] * 100, cpus=2)).run_flags

    assert spread(0.02) == []  # 1.4826 times 2 % is 2.97 %
    assert spread(0.0205) == ["slow_core"]


def test_a_summary_has_the_numbers_of_the_run() -> None:
    blocks = [counters(busy_s=290.0, throttled_periods=1, throttled_s=0.5), counters(pressure_s=40.0)] * 5
    summary = summarize(blocks, flag_blocks(blocks, [0] * 10, cpus=2))
    assert summary.shares == {"foreign_load": 0.5, "throttled": 0.5, "pressure": 0.5}
    assert summary.flagged_share == 1.0
    assert summary.disturbed_share == 0.5
    assert summary.foreign_cpus == pytest.approx(0.45)
    assert summary.neighbour_cpus == pytest.approx(0.9)
    assert summary.pressure_share == pytest.approx(0.2)
    assert (summary.throttled_periods, summary.throttled_s) == (5, 2.5)
    assert summary.to_dict()["run_flags"] == ["foreign_load", "throttled", "pressure"]


# --- grades -------------------------------------------------------------------------------------------------


def test_a_quiet_machine_gets_an_a() -> None:
    for seed in range(20):
        found = judged(simulated(foreign=0.0, seed=seed))
        assert found.grade == "A", found
        assert found.remedy == ""
        assert "(24 rounds)" in found.reason


def test_a_burning_neighbour_gets_an_f_with_its_numbers() -> None:
    quiet, loud = simulated(foreign=0.0, seconds=3.84), simulated(foreign=0.9, seconds=6.16)
    found = judged([*loud, *quiet])
    assert found.grade == "F"
    assert re.fullmatch(r"A neighbour used 0\.[89] cores during 6[0-5] % of the blocks\.", found.reason)
    assert found.remedy == "Stop the other programs, or measure when the machine is idle."


def test_a_neighbour_for_less_than_half_of_the_time_rejects_nothing() -> None:
    quiet, loud = simulated(foreign=0.0, seconds=6.0), simulated(foreign=0.9, seconds=4.0)
    found = judged([*loud, *quiet])
    assert found.grade == "B"
    assert "other programs used the CPUs (40 % of the blocks)" in found.reason
    assert found.remedy


def test_symptoms_alone_never_reject() -> None:
    """On a busy host most blocks show a deficit; when nobody can be named, the self-test decides."""
    rng = random.Random(1)
    blocks = [
        counters(cpu_s=200 * rng.choice((1.0, 0.9, 0.8)), wait_s=rng.choice((0.0, 30.0))) for _ in range(200)
    ]
    blocks = [{**one, "busy_s": one["cpu_s"]} for one in blocks]  # type: ignore[misc]
    summary = summarize(blocks, flag_blocks(blocks, [0] * 200, cpus=2))
    assert summary.flagged_share > 0.5
    assert summary.disturbed_share == 0
    assert grade([QUIET_TEST], summary, frozen=True).grade == "B"


def scattered(half_width: float, *, rounds: int = 24, ratio: float = 1.0) -> list[float]:
    """Log-ratios whose interval has very nearly that half-width."""
    from core.contrast import contrast

    shape = [math.sin(2.4 * i) for i in range(rounds)]
    unit = contrast([0.01 * x for x in shape])
    assert unit.half_width is not None
    return [math.log(ratio) + 0.01 * half_width / unit.half_width * x for x in shape]


@pytest.mark.parametrize(
    ("half_width", "letter"),
    [
        (0.0099, "A"),
        (0.0101, "B"),
        (0.0297, "B"),
        (0.0303, "C"),
        (0.098, "C"),
        (0.102, "F"),
    ],
)
def test_the_width_of_the_self_test_makes_the_grade(half_width: float, letter: str) -> None:
    found = judged([counters()] * 20, [scattered(half_width)])
    assert found.grade == letter
    assert bool(found.remedy) == (letter != "A")
    assert "two copies of the same configuration" in found.reason


def test_both_self_tests_count_as_one() -> None:
    whole = scattered(0.0099)
    assert judged([counters()] * 20, [whole[:12], whole[12:]]).grade == "A"
    assert judged([counters()] * 20, [whole[:12]]).grade == "B"


def test_two_copies_that_differ_are_a_rejection() -> None:
    assert judged([counters()] * 20, [scattered(0.004, ratio=1.0095)]).grade == "A"  # too little to matter
    found = judged([counters()] * 20, [scattered(0.004, ratio=1.02)])
    assert found.grade == "F"
    assert "differed by 2.0 %" in found.reason
    assert "99 % interval" in found.reason
    assert judged([counters()] * 20, [scattered(0.018, ratio=1.02)]).grade == "B"  # chance explains it


def test_honest_self_tests_are_seldom_rejected() -> None:
    """Two equal copies that scatter by 4 %: one in a hundred is unlucky, not one in twenty."""
    rng = random.Random(5)
    tests = [[rng.gauss(0, 0.04) for _ in range(24)] for _ in range(1000)]
    rejected = sum(judged([counters()], [one]).grade == "F" for one in tests)
    assert rejected < 20


def test_half_of_the_blocks_is_the_limit() -> None:
    throttled = counters(throttled_periods=1)
    assert judged([throttled] * 50 + [counters()] * 50).grade == "B"
    found = judged([throttled] * 51 + [counters()] * 49)
    assert found.grade == "F"
    assert found.reason == "The container's CPU quota stopped the measurement during 51 % of the blocks."
    assert "quota" in found.remedy


def test_the_other_causes_are_told_as_well() -> None:
    found = judged([counters(gpu={"foreign_processes": 2.0})] * 10)
    assert (found.grade, found.reason[:26]) == ("F", "Other programs (2) were on")
    assert judged([counters(steal_s=21.0)] * 10).grade == "B"  # 9.5 % of the CPU time asked for
    found = judged([counters(steal_s=23.0)] * 10)
    assert (found.grade, found.reason) == (
        "F",
        "The hypervisor gave 10 % of the CPU time to other guests.",
    )


def test_workers_that_were_not_stopped_allow_no_a() -> None:
    found = judged([counters()] * 20, frozen=False)
    assert found.grade == "B"
    assert "could not be stopped" in found.reason
    assert "Linux or macOS" in found.remedy


@pytest.mark.parametrize("tests", [[], [[]], [[0.01, -0.01, 0.0, 0.005]]])
def test_without_a_self_test_there_is_a_ranking_at_most(tests: list[list[float]]) -> None:
    found = judged([counters()] * 20, tests)
    assert found.grade == "C"
    assert "No self-test" in found.reason
    assert found.remedy
