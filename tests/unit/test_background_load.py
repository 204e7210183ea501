"""Flags, summaries and grades, on invented counters whose truth is known."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.background_load import (
    CAUSES,
    FLAGS,
    busy,
    discard_reason,
    flag_blocks,
    summarize,
    unusual_speed,
    windows,
)
from core.evidence.other_processes import OtherProcesses
from core.evidence.quality import GradeReport, biased, grade, invalid_reason
from core.evidence.result_types import Program
from core.evidence.speedup_interval import Contrast, contrast
from core.evidence.verdict import Grade
from core.wire import Counters
from tests import raw_comparisons
from tests.reading import numbers, tells


def counters(**changes: Any) -> Counters:
    """A block of 100 s on two CPUs, both used by its process: so long that 10 ms are negligible."""
    facts = {"wall_s": 100.0, "cpu_s": 200.0, "busy_s": 200.0, "frequency_hz": 3e9}
    return raw_comparisons.counters(**(facts | changes))


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

    The background load takes `foreign` CPUs; the process gets what is left of the `own` that it needs.
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


def contrasted(
    ratio: float = 1.0, *, error: float = 0.002, df: float = 10.0, margin: float = 0.02
) -> Contrast:
    """The contrast of 9 launches with that standard error, built by hand."""
    reach = {10.0: 2.228139, 1000.0: 1.962339}[df] * error
    low, high = ratio * math.exp(-reach), ratio * math.exp(reach)
    equal = low >= 1 / (1 + margin) and high <= 1 + margin
    return Contrast(
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        verdict="EQUIVALENT" if equal else "FASTER" if low > 1 else "SLOWER" if high < 1 else "UNDECIDED",
        rounds=72,
        generations=9,
        sigma=0.01,
        sigma_between=0.003,
        between_from="race",
        half_width=math.sinh(reach),
        within_half_width=None,
        between_half_width=None,
        standard_error=error,
        df=df,
        drifting=False,
        margin=margin,
    )


QUIET_TEST = contrasted()


def judged(
    blocks: Sequence[Counters],
    aa: Contrast | None = QUIET_TEST,
    half_widths: Sequence[float | None] = (0.005,),
    **how: Any,
) -> GradeReport:
    flags = flag_blocks(blocks, [0] * len(blocks), cpus=how.pop("cpus", 2))
    facts = {"rejected": False, "frozen": True, **how}
    return grade(aa, half_widths, summarize(blocks, flags), **facts)


def busy_with(
    blocks: Sequence[Counters], other_processes: OtherProcesses | None = None
) -> dict[str, Any] | None:
    return busy(summarize(blocks, flag_blocks(blocks, [0] * len(blocks), cpus=2)), other_processes)


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


def test_another_process_on_a_cpu_that_was_idle_anyway_takes_nothing() -> None:
    beside = {"wall_s": 100.0, "cpu_s": 100.0, "busy_s": 190.0}
    one = counters(cpu_s=100.0, busy_s=100.0)
    assert flags_of(counters(**beside), usual=one, cpus=2) == ["foreign_load"]
    assert flags_of(counters(**beside), usual=one, cpus=3) == []


def test_steal_leaves_no_cpu_idle() -> None:
    one = counters(cpu_s=100.0, busy_s=100.0)
    stolen = counters(cpu_s=100.0, busy_s=150.0, steal_s=60.0)
    assert flags_of(stolen, usual=one, cpus=3) == ["foreign_load", "steal"]


# --- usual values are the configuration's own ---------------------------------------------------------------


def test_configurations_are_not_judged_by_each_other() -> None:
    greedy = counters(wait_s=400.0, involuntary_switches=40_000, pressure_s=95.0)  # more threads than CPUs
    modest = counters(cpu_s=100.0, busy_s=100.0)
    flags = flag_blocks([greedy, modest] * 20, [0, 1] * 20, cpus=2)
    assert flags == [[]] * 40


def test_a_deficit_is_seen_although_another_configuration_uses_more() -> None:
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
    assert summary["foreign_cpus"] is summary["steal_share"] is summary["pressure_share"] is None
    assert summary["throttled_periods"] is summary["throttled_s"] is None
    assert judged(blocks).grade == "A"


def test_no_blocks_are_no_disturbance() -> None:
    assert flag_blocks([], [], cpus=2) == []
    summary = summarize([], [])
    assert (summary["blocks"], summary["flagged_share"], summary["run_flags"]) == (0, 0.0, [])


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
        summarize(blocks, flag_blocks(blocks, [0] * len(blocks), cpus=cpus))["shares"].get(
            "foreign_load", 0.0
        )
        for seed in range(100)
        for blocks in [simulated(own=float(cpus), foreign=0.0, cpus=cpus, seed=seed)]
    ]
    assert sum(shares) / len(shares) < 0.06


@pytest.mark.parametrize("cpus", [2, 16])
def test_background_load_of_most_of_a_core_is_always_seen(cpus: int) -> None:
    for seed in range(30):
        blocks = simulated(own=float(cpus), foreign=0.9, cpus=cpus, seed=seed)
        summary = summarize(blocks, flag_blocks(blocks, [0] * len(blocks), cpus=cpus))
        assert summary["shares"]["foreign_load"] > 0.9
        assert summary["foreign_cpus"] == pytest.approx(0.9, abs=0.15 if cpus == 2 else 0.5)


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
    assert tells(discard_reason(counters(suspended_s=12.3)), "12.3 s")
    slow = {"sm_clock_mhz": 900.0, "max_sm_clock_mhz": 1980.0}
    assert numbers(discard_reason(counters(gpu=slow))) == [900, 1980]
    assert discard_reason(counters(gpu={"temperature_c": 40.0})) == ""


# --- the run ------------------------------------------------------------------------------------------------


def run_flags(odd: dict[str, Any], many: int, of: int = 100) -> list[str]:
    blocks = [counters(**odd)] * many + [counters()] * (of - many)
    return summarize(blocks, flag_blocks(blocks, [0] * of, cpus=2))["run_flags"]


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
        return summarize(blocks, flag_blocks(blocks, [0] * 100, cpus=2))["run_flags"]

    assert spread(0.02) == []  # 1.4826 times 2 % is 2.97 %
    assert spread(0.0205) == ["slow_core"]


def test_a_summary_has_the_numbers_of_the_run() -> None:
    blocks = [counters(busy_s=290.0, throttled_periods=1, throttled_s=0.5), counters(pressure_s=40.0)] * 5
    summary = summarize(blocks, flag_blocks(blocks, [0] * 10, cpus=2))
    assert summary["shares"] == {"foreign_load": 0.5, "throttled": 0.5, "pressure": 0.5}
    assert summary["flagged_share"] == 1.0
    assert summary["disturbed_share"] == 0.5
    assert summary["foreign_cpus"] == pytest.approx(0.45)
    assert summary["neighbour_cpus"] == pytest.approx(0.9)
    assert summary["pressure_share"] == pytest.approx(0.2)
    assert (summary["throttled_periods"], summary["throttled_s"]) == (5, 2.5)
    assert summary["run_flags"] == ["foreign_load", "throttled", "pressure"]


# --- a busy machine -----------------------------------------------------------------------------------------


CHROMIUM = OtherProcesses(
    seconds=30.0,
    cores=1.2,
    programs=(Program(name="chromium", cores=1.1), Program(name="make", cores=0.1)),
    unnamed_cores=0.0,
    unnamed="others",
)


def test_a_quiet_machine_is_not_busy() -> None:
    for seed in range(20):
        assert busy_with(simulated(foreign=0.0, seed=seed)) is None
    assert busy_with([]) is None


def test_another_process_is_named_with_the_cores_that_it_took_beside_the_blocks() -> None:
    found = busy_with(simulated(foreign=0.9), CHROMIUM)
    assert found is not None
    assert re.search(r"chromium.*make.* (0\.[89]|1\.0) ", found["words"])
    assert found["cores"] == pytest.approx(0.9, abs=0.15)
    assert found["programs"] == [{"name": "chromium", "cores": 1.1}, {"name": "make", "cores": 0.1}]
    assert found["reasons"] == ["foreign_load"]


def test_where_nobody_knows_who_it_was_the_cores_are_told() -> None:
    found = busy_with(simulated(foreign=0.9))
    assert found is not None
    assert re.search(r" (0\.[89]|1\.0) ", found["words"])
    assert "chromium" not in found["words"]
    assert found["programs"] == []


@pytest.mark.parametrize(
    ("odd", "limit"),
    [
        ({"busy_s": 290.0}, 20),
        ({"throttled_periods": 1}, 20),
        ({"gpu": {"foreign_processes": 1.0}}, 20),
    ],
)
def test_a_fifth_of_the_blocks_is_the_limit(odd: dict[str, Any], limit: int) -> None:
    def of(many: int) -> dict[str, Any] | None:
        return busy_with([counters(**odd)] * many + [counters()] * (100 - many))

    assert of(limit) is None
    assert of(limit + 1) is not None


USUAL_S = [13.2e-6, 13.1e-6, 13.4e-6, 16.3e-6, 13.2e-6, 13.3e-6, 13.0e-6, 13.2e-6]


@pytest.mark.parametrize("own_s", [13.2e-6, 14.8e-6, 16.0e-6, 11.0e-6])
def test_the_usual_state_of_a_machine_is_none_to_tell(own_s: float) -> None:
    assert unusual_speed(own_s, USUAL_S) is None


@pytest.mark.parametrize(
    ("own_s", "words"), [(22.9e-6, "took 1.7 times as long"), (6.6e-6, "took only 50 % of the time")]
)
def test_another_state_of_the_machine_stands_beside_its_numbers(own_s: float, words: str) -> None:
    state = unusual_speed(own_s, USUAL_S)
    assert state is not None
    assert words in state.words
    assert tells(state.words, "8 ")
    blocks = [counters() for _ in range(20)]
    quiet = summarize(blocks, flag_blocks(blocks, [0] * len(blocks), cpus=2))
    assert busy(quiet, None) is None
    told = busy(quiet, None, state)
    assert told is not None
    assert told["words"] == state.words
    assert told["reasons"] == ["other_state"]


def test_two_earlier_comparisons_show_no_usual_state_and_neither_does_a_comparison_without_the_default() -> (
    None
):
    assert unusual_speed(22.9e-6, USUAL_S[:2]) is None
    assert unusual_speed(None, USUAL_S) is None


def test_a_state_that_a_quarter_of_the_comparisons_were_in_is_usual() -> None:
    assert unusual_speed(20.0e-6, [13.0e-6] * 9 + [20.5e-6] * 2) is not None
    assert unusual_speed(20.0e-6, [13.0e-6] * 9 + [20.5e-6] * 3) is None


def test_a_hypervisor_that_keeps_a_twentieth_back_makes_it_busy() -> None:
    assert busy_with([counters(steal_s=10.5)] * 10) is None  # 4.99 % of the requested CPU time
    assert busy_with([counters(steal_s=10.6)] * 10) is not None  # 5.03 %
    found = busy_with([counters(steal_s=23.0)] * 10)
    assert found is not None
    assert tells(found["words"], "10 %")
    assert (found["reasons"], found["cores"]) == (["steal"], 0.0)
    assert found["steal_share"] == pytest.approx(23 / 223)


def test_every_cause_is_told_and_names_only_what_it_knows() -> None:
    blocks = [counters(throttled_periods=1, gpu={"foreign_processes": 2.0}, busy_s=290.0)] * 10
    found = busy_with(blocks, CHROMIUM)
    assert found is not None
    assert found["words"] == (
        "under background load: chromium and make used 0.9 cores; "
        "the container's CPU quota throttled it during 100 % of the blocks; "
        "other programs (2) used the GPU"
    )
    assert set(found["reasons"]) == CAUSES
    alone = busy_with([counters(throttled_periods=1)] * 10, CHROMIUM)
    assert alone is not None
    assert (alone["programs"], alone["cores"]) == ([], 0.0)  # they were there, and took nothing


def test_symptoms_alone_make_no_machine_busy() -> None:
    """On a busy host most blocks show a deficit; when nobody can be named, nobody is."""
    rng = random.Random(1)
    blocks = [
        counters(cpu_s=200 * rng.choice((1.0, 0.9, 0.8)), wait_s=rng.choice((0.0, 30.0))) for _ in range(200)
    ]
    blocks = [{**one, "busy_s": one["cpu_s"]} for one in blocks]  # type: ignore[misc]
    summary = summarize(blocks, flag_blocks(blocks, [0] * 200, cpus=2))
    assert summary["flagged_share"] > 0.5
    assert busy(summary, CHROMIUM) is None


# --- validity of a verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aa", "sure"),
    [
        (None, False),
        (contrasted(1.0), False),
        (contrasted(1.0095), False),  # sure, and too little to matter: the limit is a log ratio of 0.01
        (contrasted(1.011), True),
        (contrasted(1 / 1.011), True),
        # the 99.5 % point of t with 10 degrees of freedom is 3.169273
        (contrasted(math.exp(0.0316), error=0.01), False),
        (contrasted(math.exp(0.0318), error=0.01), True),
        (contrasted(math.exp(0.0257), error=0.01, df=1000.0), False),
        (contrasted(math.exp(0.0259), error=0.01, df=1000.0), True),
    ],
)
def test_copies_differ_where_chance_does_not_explain_it_and_it_matters(
    aa: Contrast | None, sure: bool
) -> None:
    assert biased(aa) is sure
    assert bool(invalid_reason(contrasted(1.012, error=0.0005, margin=0.0), aa)) is sure


@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize(
    ("effect", "error", "stand"),
    [
        (0.31, 0.01, True),  # three times the fault of 0.1, and its interval ends beyond it
        (0.29, 0.01, False),  # less than three times
        (0.50, 0.17, True),  # the interval begins at 0.5 - 2.228 * 0.17 = 0.121
        (0.50, 0.19, False),  # at 0.077, where the fault would explain it
        (2.00, 0.01, True),
    ],
)
def test_an_effect_several_times_the_fault_stands_whatever_its_direction(
    way: int, effect: float, error: float, stand: bool
) -> None:
    for fault in (0.1, -0.1):
        found = contrasted(math.exp(way * effect), error=error)
        assert found.verdict == ("FASTER" if way > 0 else "SLOWER")
        assert (invalid_reason(found, contrasted(math.exp(fault))) == "") is stand


def test_no_difference_stands_where_it_would_with_the_fault_added() -> None:
    equal = contrasted(1.0, error=0.001, margin=0.05)  # within 0.0022 of 1, allowed is a log ratio of 0.0488
    assert equal.verdict == "EQUIVALENT"
    assert invalid_reason(equal, contrasted(math.exp(0.046), error=0.001)) == ""
    doubt = invalid_reason(equal, contrasted(math.exp(0.047), error=0.001))
    assert tells(doubt, "4.8 %")
    assert invalid_reason(contrasted(1.0, error=0.001), contrasted(math.exp(0.03), error=0.001))


def test_what_is_undecided_cannot_be_doubted() -> None:
    fault = contrasted(2.0)
    assert invalid_reason(contrasted(1.01, error=0.05), fault) == ""
    short = contrast([[0.1, 0.1]])
    assert invalid_reason(short, fault) == ""
    assert invalid_reason(contrasted(1.5), short) == ""


@given(st.floats(-1, 1), st.floats(0.001, 0.2), st.floats(-0.5, 0.5))
def test_doubt_is_the_same_seen_from_the_other_side(effect: float, error: float, fault: float) -> None:
    there, back = (contrasted(math.exp(way * effect), error=error) for way in (1, -1))
    aa, turned = contrasted(math.exp(fault)), contrasted(math.exp(-fault))
    assert (
        bool(invalid_reason(there, aa))
        == bool(invalid_reason(back, aa))
        == bool(invalid_reason(there, turned))
    )


def test_honest_copies_are_seldom_called_different() -> None:
    """Two equal copies that scatter by 4 % a round and 1 % a process: one A/A control in a hundred fails."""
    rng = random.Random(5)
    tests = []
    for _ in range(1000):
        kept = [rng.gauss(0, 0.01) for _ in range(6)]
        tests.append(contrast([[own + rng.gauss(0, 0.04) for _ in range(4)] for own in kept]))
    assert sum(map(biased, tests)) <= 18  # 10, and 2.5 standard deviations


# --- grades -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("half_width", "letter"),
    [(0.0, "A"), (0.01, "A"), (0.0101, "B"), (0.03, "B"), (0.0301, "C"), (0.1, "C"), (0.5, "D")],
)
def test_the_widest_interval_of_the_answer_makes_the_grade(half_width: float, letter: str) -> None:
    found = judged([counters()] * 20, half_widths=[0.0, half_width])
    assert found.grade == Grade.of(half_width) == letter
    assert bool(found.remedy) == (letter != "A")
    assert found.reason == (
        f"The widest 95 % interval is ±{100 * half_width:.1f} %. In the A/A test (9 launches, 72 rounds) "
        "the ratio of two copies of the same configuration was 1.000×, ±0.4 %. No disturbance was found."
    )
    alone = judged([counters()] * 20, half_widths=[half_width])
    assert alone.grade == letter
    assert tells(alone.reason, f"±{100 * half_width:.1f} %")


@pytest.mark.parametrize(("error", "letter"), [(0.004, "A"), (0.005, "B"), (0.013, "B"), (0.014, "C")])
def test_where_the_aa_test_was_the_question_its_own_interval_makes_the_grade(
    error: float, letter: str
) -> None:
    """t with 10 degrees of freedom is 2.228: half-widths of 0.89, 1.11, 2.90 and 3.12 %."""
    found = judged([counters()] * 20, contrasted(error=error), half_widths=())
    assert found.grade == letter
    assert numbers(found.reason)[:2] == [9, 72]


@pytest.mark.parametrize("half_widths", [[None], [0.005, None]])
def test_an_answer_without_an_interval_is_as_coarse_as_can_be(half_widths: list[float | None]) -> None:
    found = judged([counters()] * 20, half_widths=half_widths)
    assert (found.grade, Grade.of(None)) == ("D", "D")
    assert numbers(found.reason)[:2] == [9, 72]  # of the A/A test; of the answer there is none
    assert found.remedy


def test_a_quiet_machine_gets_an_a() -> None:
    for seed in range(20):
        found = judged(simulated(foreign=0.0, seed=seed))
        assert (found.grade, found.remedy) == ("A", ""), found


@pytest.mark.parametrize(
    "odd",
    [
        {"busy_s": 290.0},
        {"throttled_periods": 1},
        {"gpu": {"foreign_processes": 2.0}},
        {"steal_s": 60.0},
        {"cpu_s": 150.0},
    ],
)
def test_nothing_that_disturbs_the_blocks_changes_the_letter_and_all_of_it_is_told(
    odd: dict[str, Any],
) -> None:
    """What the A/A test shows is how fine it is all the same; who was there is another question."""
    quiet, loud = judged([counters()] * 20), judged([counters(**odd)] * 15 + [counters()] * 5)
    assert quiet.grade == loud.grade == "A"
    assert "%" not in quiet.reason.rpartition("±0.4 %")[2]
    assert "%" in loud.reason.rpartition("±0.4 %")[2]
    assert "unaffected" in loud.reason


def test_blocks_with_less_cpu_time_do_not_contradict_a_control_that_passed() -> None:
    few = [counters(cpu_s=150.0)] * 8 + [counters()] * 12
    said = "40 % of the blocks had less CPU time than usual"
    assert tells(judged(few).reason, "40 %", "unaffected")
    failed = judged(few, contrasted(1.2))  # the A/A control shows a much larger effect
    assert said in failed.reason
    assert "unaffected" not in failed.reason
    assert "unaffected" not in judged(few, None).reason


def test_a_coarser_answer_says_what_would_make_it_finer() -> None:
    def remedy(odd: dict[str, Any]) -> str:
        return judged([counters(**odd)] * 20, half_widths=[0.02]).remedy

    assert remedy({})
    assert remedy({"busy_s": 290.0}) not in ("", remedy({}))
    assert "quota" in remedy({"throttled_periods": 1})
    assert "CPUs" in remedy({"steal_s": 23.0})
    assert "GPU" in remedy({"gpu": {"foreign_processes": 2.0}})


def test_an_f_is_for_a_comparison_of_which_no_verdict_stands() -> None:
    found = judged([counters()] * 20, contrasted(1.2), rejected=True)
    assert found.grade == "F"
    assert tells(found.reason, "1.200×", "±0.4 %")
    assert found.remedy


def test_workers_that_were_not_stopped_allow_no_a() -> None:
    found = judged([counters()] * 20, frozen=False)
    assert found.grade == "B"
    assert found.reason != judged([counters()] * 20).reason
    assert tells(found.remedy, "Linux", "macOS")
    assert judged([counters()] * 20, half_widths=[0.05], frozen=False).grade == "C"


@pytest.mark.parametrize("aa", [None, contrast([[0.01, -0.01, 0.0, 0.005]]), contrast([[0.0] * 8] * 4)])
def test_without_an_aa_test_that_is_told_and_the_answer_is_as_fine_as_it_is(aa: Contrast | None) -> None:
    found = judged([counters()] * 20, aa)
    assert found.grade == "A"
    assert "×" not in found.reason
    asked = judged([counters()] * 20, aa, half_widths=())
    assert asked.grade == "D"
    assert asked.remedy
