"""dashboard.charts.explain_charts as data: the steps lead from one result to the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.evidence.profile_difference import EndToEnd, difference
from core.evidence.verdict import Verdict
from core.wire.profile_passes import passes_from_json
from dashboard import charts
from dashboard.charts import explain_charts
from tests.builders import US, fused, node, passes, side, unfused


def differ(baseline: Any, candidate: Any, baseline_us: float = 920, candidate_us: float = 545) -> Any:
    end = EndToEnd(
        baseline_s=baseline_us * US,
        candidate_s=candidate_us * US,
        candidate_p50_s=candidate_us * US,
        low_s=None,
        high_s=None,
        verdict=Verdict.FASTER,
        words="1.69× faster",
        raced=True,
        per_row=False,
    )
    return difference(passes_from_json(msgspec.json.encode(passes(baseline, candidate))), end)


def many(count: int, us: float) -> dict[str, Any]:
    return side([node(f"n{i}", f"Op{i:02}", us * (i + 1)) for i in range(count)])


def test_every_step_begins_where_the_last_one_ended_and_the_last_is_the_whole() -> None:
    info = explain_charts.steps_info(differ(unfused(), fused(), 1000, 500))
    at_ms = 0.0
    for step in info[:-1]:
        assert step.start_ms == pytest.approx(at_ms)
        at_ms += step.ms
    assert info[-1].kind is None
    assert info[-1].ms == pytest.approx(at_ms) == pytest.approx(-0.5)
    assert [step.label for step in info[-3:]] == [
        "outside the nodes",
        "not reproduced in the passes",
        "the whole difference",
    ]


def test_inserted_nodes_are_a_step_of_their_own_and_cost() -> None:
    info = {step.label: step for step in explain_charts.steps_info(differ(unfused(), fused()))}
    assert info["Reorder (inserted)"].series == explain_charts.COSTS
    assert info["Reorder (inserted)"].nodes == "0 → 3"
    assert info["Conv"].series == explain_charts.SAVES


def test_the_smallest_parts_are_added_up_and_nothing_is_lost() -> None:
    found = differ(many(20, 10), many(20, 9), 2100, 1890)
    rows = explain_charts.shortened(found.rows, 14)
    assert len(rows) == 17
    assert rows[14].label == "6 other parts"
    assert sum(row.difference_s for row in rows) == pytest.approx(found.end.difference_s)
    assert explain_charts.shortened(found.rows, 19) == list(found.rows)


def test_the_figures_draw_what_the_data_say_and_escape_names_of_models() -> None:
    odd = "<b>bold</b>"
    found = differ(side([node("a", odd, 100)]), side([node("a", odd, 60)]), 100, 60)
    figure = explain_charts.steps(explain_charts.steps_info(found), unit="run")
    assert "&lt;b&gt;" in figure.layout.yaxis.ticktext[0]
    drawn = {trace.name: list(trace.x) for trace in figure.data}
    assert drawn[explain_charts.SAVES][0] == pytest.approx(-0.04)
    assert figure.layout.annotations[0].text == "−0.0400 · 100 %"
    assert "<br>−0.04000 ms per run" in figure.data[0].hovertext[0]
    both = explain_charts.sides(found)
    assert [trace.name for trace in both.data] == ["baseline", "candidate"]
    assert "<b>" not in "".join(text for trace in both.data for text in trace.hovertext)
    assert "per run" in both.layout.xaxis.title.text


def test_no_bar_reaches_into_the_next_row() -> None:
    figure = explain_charts.steps(explain_charts.steps_info(differ(unfused(), fused())), unit="run")
    assert {trace.width for trace in figure.data if trace.type == "bar"} == {charts.BAR_WIDTH}


def test_no_difference_at_all_is_drawn_without_shares() -> None:
    info = explain_charts.steps_info(differ(unfused(), unfused(), 900, 900))
    assert {step.share for step in info} == {None}
    explain_charts.steps(info, unit="row")
