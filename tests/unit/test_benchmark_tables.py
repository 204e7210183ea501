"""The page of benchmarks is what the records say and no reported figure is missing; grids can be replayed."""

from __future__ import annotations

import sys

import pytest

from benchmarks import figures, grids, tables


def test_the_page_is_what_the_records_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert tables.main() == 0


def test_no_reported_figure_is_missing_on_the_page() -> None:
    lines = tables.PAGE.read_text().splitlines()
    for row in figures.reported():
        shown = (row.condition, tables.with_unit(row.estimate, row.unit), row.n, row.low, row.high, row.note)
        assert any(all(one in line for one in shown) for line in lines), row


def test_every_missed_target_is_a_known_deviation() -> None:
    row = figures.reported()[0]
    missed = [
        figures.Row(question=row.question, measure=met, condition="", n="", estimate="", met=met)
        for met in (*tables.MISSED, "yes", "estimate", "")
    ]
    found = tables.deviations(missed, {row.question: "A table"})
    assert [met in found for met in ("| no |", "| undecided |", "| not measured |")] == [True] * 3
    assert "| yes |" not in found


def test_a_target_is_met_by_the_interval_or_the_estimate() -> None:
    assert figures.met(0.03, 0.0, 0.04, most=0.05) == "yes"
    assert figures.met(0.03, 0.0, 0.07, most=0.05) == "estimate"
    assert figures.met(0.06, 0.0, 0.07, most=0.05) == "no"


def test_every_recorded_grid_can_be_replayed() -> None:
    truths = [grids.load(name) for name in grids.recorded()]
    assert truths
    assert all(len(one.absolute[0]) == len(one.space.choices) for one in truths)
