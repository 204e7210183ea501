"""Whether a recorded speed-up is reproduced on another machine: intervals decide, never two numbers alone."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from core.evidence.verification import (
    SpeedChange,
    Speedup,
    VerificationPart,
    between,
    change,
    overall,
    recorded_speedups,
    speed_part,
    transfer,
)
from core.show.sheets.verifications import as_markdown

YES = VerificationPart(state="YES", why="")
RECORDED = Speedup(ratio=1.42, low=1.40, high=1.44)


def gain(ratio: float, width: float = 0.02, doubt: str = "") -> Speedup:
    return Speedup(ratio=ratio, low=ratio * (1 - width), high=ratio * (1 + width), doubt=doubt)


def test_the_interval_of_a_quotient_is_that_of_both() -> None:
    found = between(Speedup(ratio=2.0, low=1.6, high=2.5), Speedup(ratio=1.0, low=0.9, high=1.2))
    assert found is not None
    down = math.hypot(math.log(2 / 1.6), math.log(1.2))
    up = math.hypot(math.log(2.5 / 2), math.log(1 / 0.9))
    assert found.ratio == pytest.approx(2.0)
    assert found.low == pytest.approx(2 * math.exp(-down))
    assert found.high == pytest.approx(2 * math.exp(up))


def test_without_an_interval_there_is_no_quotient() -> None:
    assert between(Speedup(ratio=2.0, low=None, high=None), RECORDED) is None
    assert between(Speedup(ratio=math.inf, low=1.0, high=math.inf), RECORDED) is None


def test_its_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(4000):
        one, other = draw.gauss(0.3, 0.02), draw.gauss(0.1, 0.03)
        gains = [
            Speedup(ratio=math.exp(middle), low=math.exp(middle - 1.96 * s), high=math.exp(middle + 1.96 * s))
            for middle, s in ((one, 0.02), (other, 0.03))
        ]
        found = between(*gains)
        assert found is not None
        hits += found.low <= math.exp(0.2) <= found.high
    assert 0.94 < hits / 4000 < 0.96


@pytest.mark.parametrize(
    ("here", "state", "words"),
    [
        (gain(1.41), "HOLDS", "within 5 %"),
        (gain(1.10), "DIFFERS", "1.10× here, 1.42× recorded"),
        (gain(1.10), "DIFFERS", "less than recorded"),
        (gain(1.70), "DIFFERS", "more than recorded"),
        (gain(1.40, width=0.2), "UNDECIDED", "undecided"),
        (Speedup(ratio=1.1, low=None, high=None), "UNDECIDED", "has no interval"),
        (gain(1.10, doubt="the A/A test failed"), "UNDECIDED", "The comparison here has no verdict"),
        (None, "NOT_MEASURED", "1.42× recorded; not measured here"),
    ],
)
def test_a_recorded_gain_holds_differs_or_is_undecided(here: Speedup | None, state: str, words: str) -> None:
    found = transfer("the default", RECORDED, here)
    assert found.state == state
    assert words in found.why


def test_what_differs_by_less_than_the_margin_holds_even_where_it_surely_differs() -> None:
    here = gain(1.40, width=0.001)
    sure = Speedup(ratio=1.42, low=1.419, high=1.421)
    assert transfer("x", sure, here, margin=0.05).state == "HOLDS"
    assert transfer("x", sure, here, margin=0.001).state == "DIFFERS"


def test_a_recorded_comparison_that_was_rejected_decides_nothing() -> None:
    found = transfer("x", gain(1.42, doubt="its A/A test failed"), gain(1.42))
    assert found.state == "UNDECIDED"
    assert "A/A" in found.why


# --- all together -------------------------------------------------------------------------------------------


def state(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "runs": YES,
        "same": YES,
        "transfers": [transfer("x", RECORDED, gain(1.41))],
        "targets": [],
        "change": None,
        "asked_speed": True,
    }
    return overall(**(facts | changes))


def test_the_whole_is_as_good_as_its_worst_part() -> None:
    less, more = transfer("x", RECORDED, gain(1.1)), transfer("x", RECORDED, gain(1.7))
    open_ = transfer("x", RECORDED, gain(1.4, width=0.3))
    assert state() == "CONFIRMED"
    assert state(transfers=[more]) == "CONFIRMED"  # more speed-up than promised is no failure
    assert state(transfers=[less]) == "FAILED"
    assert state(transfers=[transfer("x", RECORDED, gain(1.41)), less]) == "FAILED"
    assert state(transfers=[open_]) == "UNDECIDED"
    assert state(transfers=[], asked_speed=True) == "UNDECIDED"
    assert state(transfers=[], asked_speed=False) == "CONFIRMED"
    assert state(transfers=[], asked_speed=False, measure=False) == "NOT_MEASURED"
    assert (
        state(transfers=[], asked_speed=False, measure=False, same=VerificationPart(state="NO", why=""))
        == "FAILED"
    )
    assert state(same=VerificationPart(state="NO", why="")) == "FAILED"
    assert state(same=VerificationPart(state="UNKNOWN", why="")) == "UNDECIDED"
    assert state(runs=VerificationPart(state="NO", why="")) == "FAILED"
    assert state(targets=["MET", "MISSED"]) == "FAILED"
    assert state(targets=["MET", "UNKNOWN"]) == "UNDECIDED"


def test_a_change_counts_and_is_enough_where_nothing_else_was_asked() -> None:
    holds, slower, unclear = (judged(gain(now, width=0.02)) for now in (1000, 800, 950))
    assert state(transfers=[], change=holds) == "CONFIRMED"
    assert state(transfers=[], change=slower) == "FAILED"
    assert state(transfers=[], change=unclear) == "UNDECIDED"
    assert state(change=unclear) == "UNDECIDED"
    assert state(transfers=[transfer("x", RECORDED, None)], change=holds) == "UNDECIDED"


def test_the_third_answer_tells_the_worst_first() -> None:
    kinds = [gain(1.41), None, gain(1.4, width=0.3), gain(1.1)]
    found = [transfer("x", RECORDED, one) for one in kinds]
    assert [speed_part(found[: n + 1], otherwise="").state for n in range(4)] == [
        "HOLDS",
        "NOT_MEASURED",
        "UNDECIDED",
        "DIFFERS",
    ]
    found = [transfer("the default", RECORDED, gain(1.41)), transfer("`old`", RECORDED, gain(1.1))]
    assert speed_part(found, otherwise="").why.startswith("Against `old`: 1.10× here")
    nothing = speed_part([], otherwise="Nothing was recorded.")
    assert (nothing.state, bool(nothing.why)) == ("NOT_MEASURED", True)


# --- then and now -------------------------------------------------------------------------------------------


def judged(now: Speedup, *, cpus: float | None = 1.0, limit: float = 0.05) -> SpeedChange:
    return change(gain(1000, width=0.01), now, limit=limit, cpus=cpus)


def test_slower_than_allowed_is_told_by_the_interval() -> None:
    assert judged(gain(1000, width=0.01)).state == "HOLDS"
    assert judged(gain(1300, width=0.01)).state == "HOLDS"  # faster is not slower
    assert judged(gain(800, width=0.01)).state == "DIFFERS"
    assert judged(gain(950, width=0.02)).state == "UNDECIDED"
    assert judged(gain(800, doubt="its A/A test failed")).state == "UNDECIDED"


def test_what_the_machine_did_in_between_is_in_the_interval() -> None:
    """All of a slowdown that slower CPUs would explain is none that is sure."""
    found = judged(gain(800, width=0.01), cpus=0.8)
    assert found.state == "UNDECIDED"
    assert found.between is not None
    assert found.raw is not None
    assert found.between.low == pytest.approx(found.raw.low)
    assert found.between.high == pytest.approx(found.raw.high / 0.8)
    assert judged(gain(500, width=0.01), cpus=0.8).state == "DIFFERS"


# --- what files say -----------------------------------------------------------------------------------------


def test_gains_are_read_with_the_default_first() -> None:
    listed = [
        {"ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3, "holds": True},
        {"ratio": 2.0, "ratio_low": 1.9, "ratio_high": 2.1, "holds": False, "holds_reason": "it drifted"},
    ]
    default, baseline = recorded_speedups(listed)
    assert (default.ratio, default.doubt, baseline.ratio, baseline.doubt) == (2.0, "it drifted", 1.2, "")


@pytest.mark.parametrize(
    "listed",
    [
        None,
        "1.42",
        [1.42],
        [{"ratio": "1.42", "ratio_low": 1, "ratio_high": 2}],
        [{"ratio": -1.0, "ratio_low": None, "ratio_high": None}],
        [{"ratio": math.nan, "ratio_low": None, "ratio_high": None}],
        [{"ratio": 1.0, "ratio_low": True, "ratio_high": 2.0}],
        [{"ratio": 1.0, "ratio_low": [], "ratio_high": 2.0}],
        [{}] * 100_000,
    ],
)
def test_gains_that_make_no_sense_are_none(listed: Any) -> None:
    assert recorded_speedups(listed) == []


@pytest.mark.parametrize(
    "rejected",
    [{"holds": False, "holds_reason": "why"}, {"holds": False}, {"grade": "F"}, {"contradicted": True}],
)
def test_a_gain_that_was_rejected_is_read_with_its_doubt(rejected: dict[str, Any]) -> None:
    kept = {"ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6}
    plain = {"holds": True, "grade": "A", "contradicted": False}
    [sound] = recorded_speedups([kept | plain])
    [doubted] = recorded_speedups([kept | plain | rejected])
    assert (sound.ratio, sound.low, sound.high, sound.doubt) == (0.5, 0.4, 0.6, "")
    assert doubted.doubt
    assert rejected.get("holds_reason", doubted.doubt) == doubted.doubt


def test_texts_of_a_file_of_strangers_become_no_markup() -> None:
    """A comment on a pull request: no link, no picture, no tag, and nobody is notified."""
    nasty = "[here](https://evil.example) @somebody <img src=x> | #1"
    part = {"state": "UNKNOWN", "why": nasty}
    document: dict[str, Any] = {
        "state": "UNDECIDED",
        "file": nasty,
        "signature": {
            "state": "UNKNOWN_KEY",
            "why": nasty,
            "hint": nasty,
            "signer": nasty,
            "signed_at": nasty,
        },
        "runs": part,
        "same": part,
        "fast": {**part, "state": "UNDECIDED", "gains": []},
        "change": None,
        "checks": [{"name": nasty, "state": "NOTE", "recorded": nasty, "here": nasty, "why": nasty}],
        "differences": [{"name": nasty, "recorded": nasty, "here": nasty}],
        "targets": [],
        "notes": [nasty],
    }
    text = as_markdown(document)
    assert text.count("here") >= 10
    assert "[here](" not in text.replace("\\[", "")
    assert "@somebody" not in text
    assert "<img" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.replace("\\|", "").count("|") for line in rows[:5]}) == 1
