"""A comparison that is not final: its sentence, when it shows an interval, and that each shown one covers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from core.cli.watch import describe
from core.evidence.record import Settings
from core.evidence.stopping import MIN_SHOWN_LAUNCHES, InterimResult, contrast_values
from core.run import live
from core.run.job import Status
from core.show import interim
from core.spec.effort import EFFORTS, Effort
from tests import simulated_clock

QUICK = EFFORTS["quick"]


def contrast(low: float | None, high: float | None, **facts: Any) -> dict[str, Any]:
    ratio = None if low is None or high is None else math.sqrt(low * high)
    return {
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": "FASTER",
        "margin": 0.02,
        **facts,
    }


# --- words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "alone", "against"),
    [
        (
            1.10,
            1.56,
            "1.3× faster so far, 95 % CI [1.1, 1.6]",
            "1.3× faster than X so far, 95 % CI [1.1, 1.6]",
        ),
        (
            0.48,
            0.52,
            "2.00× slower so far, 95 % CI [1.92, 2.08]",
            "2.00× slower than X so far, 95 % CI [1.92, 2.08]",
        ),
        (
            0.96,
            1.06,
            "undecided so far: between 0.96× and 1.06×",
            "undecided so far against X: between 0.96× and 1.06×",
        ),
        (
            0.995,
            1.013,
            "no difference larger than 2 % so far (1.004×, 95 % CI [0.995, 1.013])",
            "no difference larger than 2 % from X so far (1.004×, 95 % CI [0.995, 1.013])",
        ),
        (0.25, 2.26, "speed: not known yet", "speed against X: not known yet"),
        (1e-300, 1e300, "speed: not known yet", "speed against X: not known yet"),
        (
            1.2,
            6.0,
            "faster so far, the factor is not known yet",
            "faster than X so far, the factor is not known yet",
        ),
        (None, None, "speed: measuring…", "speed against X: measuring…"),
    ],
)
def test_the_sentence_says_no_more_than_the_interval(
    low: float | None, high: float | None, alone: str, against: str
) -> None:
    assert interim.sentence(contrast(low, high)) == alone
    assert interim.sentence(contrast(low, high), "X") == against


def test_the_stored_verdict_gives_no_direction_that_the_interval_does_not() -> None:
    for verdict in ("FASTER", "SLOWER", "UNDECIDED"):
        said = interim.sentence(contrast(0.9, 1.2, verdict=verdict))
        assert "faster" not in said
        assert "slower" not in said


def test_a_terminal_says_the_same_sentence() -> None:
    def line(*contrasts: dict[str, Any]) -> str:
        now = {"contrasts": contrasts}
        return describe(
            Status(id="1", kind="comparison", state="RUNNING", what="compare", stage="rounds", live=now)
        )

    one = contrast(1.10, 1.56)
    assert f"· {interim.sentence(one)} ·" in line(one)
    assert "· speed: measuring… ·" in line(contrast_values(None))
    assert "· 1 of 2 decided so far ·" in line(one, contrast_values(None))


# --- when there is an interval ------------------------------------------------------------------------------


def test_a_running_comparison_shows_what_whole_launches_said_at_an_interim_analysis() -> None:
    heard: list[dict[str, Any]] = []
    models = [simulated_clock.Model(run_s=0.0008), simulated_clock.Model()]
    record = simulated_clock.compare(models, 30.0, on_live=heard.append)
    assert len(record.generations) >= 5
    ends = {one["generation"]: number for number, one in enumerate(heard)}  # a launch counts when it is over
    for number, one in enumerate(heard):
        [shown] = one["contrasts"] or [contrast_values(None)]
        whole = one["generation"] - (number != ends[one["generation"]])
        if whole < QUICK.looks[0]:
            assert shown["ratio"] is None, "of so few launches nothing is known of their spread"
        else:
            assert shown["generations"] == max(look for look in QUICK.looks if look <= whole)
            assert shown["ratio_low"] <= shown["ratio"] <= shown["ratio_high"]
    assert heard[-1]["contrasts"][0]["ratio"] is not None


def test_one_launch_or_two_show_no_interval_even_in_an_elimination_round() -> None:
    one = interim_result(Effort(name="heat", target=0.02, budget_s=60, looks=(1, 2, 3, 4)))
    rng = np.random.default_rng(5)
    for launch in range(MIN_SHOWN_LAUNCHES):
        fill(one, rng, launch, rounds=6)
        found = one.interim([0, 1], {0, 1}, before=launch + 1)[1]
        assert (found is not None) == (launch + 1 >= MIN_SHOWN_LAUNCHES)


# --- coverage -----------------------------------------------------------------------------------------------

SLOW, SLOW_SHARE = math.log(2.3), 1 / 9  # of processes that are slow for their whole life
BETWEEN, WITHIN = 0.01, 0.03
TRUTH = math.log(1.3)
COVERS = 0.93


def interim_result(effort: Effort) -> InterimResult:
    return InterimResult(
        Settings(effort=effort, budget_s=30, margin=0.02, seed=0, timeout_s=60, baseline=0, anchor=0)
    )


def fill(one: InterimResult, rng: np.random.Generator, launch: int, *, rounds: int, copies: int = 1) -> None:
    """A launch of the reference and of a candidate that is 1.3 times as fast."""
    keys = [*((0, copy) for copy in range(copies)), (1, 0)]
    own = rng.normal(0, BETWEEN / math.sqrt(2), len(keys)) + SLOW * (rng.random(len(keys)) < SLOW_SHARE)
    noise = rng.normal(0, WITHIN / math.sqrt(2), (rounds, len(keys)))
    for number, row in enumerate(np.exp(own + noise)):
        for key, factor in zip(keys, row, strict=True):
            one.add(key, launch, launch * rounds + number, 0.01 * factor * math.exp(-TRUTH * (key[0] == 1)))


@pytest.mark.parametrize(
    ("copies", "rounds", "effort"), [(2, 4, QUICK), (1, live.ROUNDS, live.LIVE_ESTIMATE)]
)
def test_an_interval_covers_at_every_update_that_is_shown_beside_slow_processes(
    copies: int, rounds: int, effort: Effort
) -> None:
    """One process in nine is 2.3 times slower for life; of each update those count that show numbers."""
    comparisons, launches = 200, 12
    rng = np.random.default_rng(29)
    missed, shown = np.zeros(launches + 1), np.zeros(launches + 1)
    ever = 0
    for _ in range(comparisons):
        one, before = interim_result(effort), missed.sum()
        for launch in range(launches):
            fill(one, rng, launch, rounds=rounds, copies=copies)
            found = contrast_values(one.interim([0, 1], {0, 1}, before=launch + 1)[1])
            if not interim.is_known(found):
                continue
            shown[launch + 1] += 1
            missed[launch + 1] += not found["ratio_low"] <= math.exp(TRUTH) <= found["ratio_high"]
        ever += missed.sum() > before
    first = effort.looks[0]
    assert not shown[:MIN_SHOWN_LAUNCHES].any()
    assert shown[first] > 0.15 * comparisons, "of what is honest something is shown"
    assert shown[launches] > 0.85 * comparisons
    for n in range(first, launches + 1):
        assert missed[n] <= (1 - COVERS) * shown[n], f"{n} launches: {missed[n]} of {shown[n]} missed"
    assert ever <= (1 - COVERS) * comparisons, "whoever looks at all of them sees a wrong one that rarely"
