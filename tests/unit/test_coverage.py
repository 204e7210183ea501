"""The coverage of printed intervals: the scenes run, the report is whole, and a broken interval is a miss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import coverage, scenes
from benchmarks.printed import KINDS, Shown, share_of, shown, tally
from core.evidence.contrast import contrast
from tests.unit.test_contrast_simulation import invented

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
