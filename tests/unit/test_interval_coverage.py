"""The coverage of printed intervals: the scenes run, the report is whole, and a broken interval is a miss."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import coverage, launches, scenes
from benchmarks.printed import KINDS, Shown, share_of, shown, tally
from core.evidence.speedup_interval import contrast
from tests import builders, simulated_clock
from tests.unit.test_speedup_simulation import invented

HEAD = {"script": "coverage"}


def intervals(runs: int = 300) -> list[Shown]:
    found = map(contrast, invented(3, runs, 6, within=0.02))
    return [shown("final", 1.0, (one.ratio_low, one.ratio_high)) for one in found]


def test_an_interval_that_is_three_times_too_narrow_is_found() -> None:
    found = intervals()
    whole, broken = (share_of(tally("a", found, shrink=by), "final") for by in (1.0, 3.0))
    assert not whole.misses
    assert broken.misses
    assert whole.n == broken.n == len(found)


def test_of_several_that_were_shown_all_must_hold_and_none_is_no_share() -> None:
    both = shown("interim", 1.0, (0.9, 1.1), (1.05, 1.1))
    (row,) = tally("a", [both, shown("interim", 1.0, (None, None))])
    assert (row["n"], row["held"], row["without"]) == (1, 0, 1)
    assert shown("p99", 1.0, (0.9, None)).holds()


def test_every_part_of_a_scene_prints_its_kinds() -> None:
    model = scenes.SCENES["quiet, 1 s"]
    found = {one.kind for part in scenes.PARTS for one in part(model, 0)}
    assert (
        {"final", "longer", "live", "screen", "effect", "rows", "p50", "cpu", "operator"} <= found <= {*KINDS}
    )


def test_the_report_names_every_kind_and_says_why_one_falls_short() -> None:
    rows: list[dict[str, Any]] = [{**row, "at": 0} for row in tally("a", intervals(20), shrink=9.0)]
    text = coverage.report(rows)
    assert all(what in text for what in KINDS.values())
    assert "**" in text
    assert not coverage.reached(rows)


def test_a_scene_that_is_measured_again_replaces_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "coverage.jsonl"
    for n in (20, 40):
        coverage.keep(path, HEAD, [{**row, "at": 0} for row in tally("a", intervals(n))])
    [(_, rows)] = coverage.merged(path)
    assert [row["n"] for row in rows] == [pytest.approx(40)]


# --- recordings -------------------------------------------------------------------------------------------

QUICK_ONE = simulated_clock.Model(run_s=0.004, jitter=0.02)


def recording(**changes: Any) -> launches.Recording:
    """Four names of one configuration, raced on a clock of its own."""
    record = simulated_clock.compare([QUICK_ONE] * 4, 12.0, least=100)
    facts: dict[str, Any] = {
        "model": "invented",
        "state": "quiet",
        "start_s": 0.3,
        "generations": launches.launches_of(record),
        "passes": [],
        "peaks": [{"peak_rss_bytes": 100 << 20, "baseline_rss_bytes": 1 << 20}] * 3,
    }
    return launches.Recording(**{**facts, **changes})


def test_launches_that_were_alive_together_are_dealt_together() -> None:
    generations: Any = [[[f"{number}{name}"] for name in "abc"] for number in range(3)]
    deck = launches.Deck(generations, random.Random(1))
    dealt = []
    for _ in range(3):
        dealt.append([launch[0] for launch in (deck.deal(), deck.deal())])
        deck.ran = True
    assert all(len({str(name)[0] for name in own}) == 1 for own in dealt)
    assert len({own[0][0] for own in dealt}) == 3
    assert all(len(set(own)) == 2 for own in dealt)
    assert deck.dealt == 6
    with pytest.raises(launches.Exhausted):
        deck.deal()


def test_a_recording_is_played_by_the_rules_of_a_comparison() -> None:
    one = recording()
    first, _, memory, passes = scenes.played(one, 2)
    kinds = {shown.kind for shown in first.found}
    assert {"final", "mean", "p50", "cpu"} <= kinds
    assert all(shown.truth == 1.0 for shown in first.found if shown.kind in ("final", "longer"))
    assert first.used > 0
    assert [shown.holds() for shown in memory.found] == [True] * 3
    assert passes.found == []


def test_a_recording_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    one = recording(generations=[[[{"refill_ns": None, "latencies_ns": [1, 2], "counters": {}}]]])
    launches.save(one, tmp_path)
    assert launches.load(one.model, one.state, tmp_path) == one
    assert launches.load(one.model, "burner", tmp_path) is None


def test_of_two_equal_sides_either_pass_may_be_the_others() -> None:
    side = builders.side([builders.node("Conv", "Conv", 100.0), builders.node("MatMul", "MatMul", 30.0)])
    other = builders.side([builders.node("Conv", "Conv", 110.0), builders.node("MatMul", "MatMul", 30.0)])
    found = [one for one in scenes.equal_sides(builders.passes(side, other)) if one.kind == "operator"]
    assert len(found) == 2 * scenes.TURNS
    assert {one.truth for one in found} == {0.0}
    assert len({one.intervals for one in found}) > 2


def test_the_interval_of_a_share_counts_what_was_used_once() -> None:
    found = [shown("final", 1.0, (0.9, 1.1))] * 40
    once, often = (share_of(tally("a", found, used=used), "final") for used in (1.0, 8.0))
    assert (once.apart, often.apart) == (40, 5)
    assert often.text != once.text
