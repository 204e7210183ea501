"""The timeline of a comparison, tested on its plain data; and that the figure can be drawn from it."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence.background_load import FLAGS
from dashboard.charts.latency_charts import Side, pruned
from dashboard.charts.timeline_charts import (
    CALM,
    CAUSE,
    FAMILIES,
    MAX_SIGNS,
    SYMPTOM,
    counter_words,
    timeline,
    timeline_info,
)
from tests import raw_comparisons
from tests.reading import numbers


def counters(**changes: Any) -> Any:
    facts = {"cpu_s": 0.03, "involuntary_switches": 2, "wait_s": 0.002, "busy_s": 0.03, "frequency_hz": 3e9}
    return raw_comparisons.counters(**(facts | changes))


def block(at_s: float, runs: int = 2, flags: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    return {
        "round": int(at_s),
        "position": 0,
        "at_s": at_s,
        "runs": runs,
        "refill_s": 0.001,
        "median_s": 0.002,
        "counters": counters(**changes),
        "flags": list(flags),
    }


def side(name: str, latencies_s: list[float], blocks: list[dict[str, Any]], rows: int = 1) -> Side:
    return Side(name=name, result={"latencies_s": latencies_s, "blocks": blocks, "batch_size": rows})


def test_runs_of_a_block_are_back_to_back_and_blocks_are_apart() -> None:
    one = side("a", [0.002, 0.003, 0.004, 0.005], [block(0.0), block(1.0)])
    (drawn,) = timeline_info([one]).sides
    assert drawn.at_s == [pytest.approx(0.001), pytest.approx(0.003), None, 1.001, 1.005, None]
    assert drawn.ms == [2, 3, None, 4, 5, None]
    assert drawn.block_at_s == [0.0, 1.0]
    assert drawn.block_ms == [2, 4]
    assert not drawn.thinned


def test_many_runs_are_thinned_by_blocks_with_their_extremes_and_it_says_so() -> None:
    latencies = [0.001] * 30_000
    latencies[12_345] = 0.9
    blocks = [block(float(k), runs=1000) for k in range(30)]
    info = timeline_info([side("a", latencies, blocks)])
    (drawn,) = info.sides
    points = [ms for ms in drawn.ms if ms is not None]
    assert len(points) <= 20_000
    assert max(points) == 900
    assert drawn.thinned
    assert "30,000 " in timeline(info).to_json()


def test_runs_that_are_far_apart_share_a_logarithmic_axis_so_that_none_is_hidden() -> None:
    info = timeline_info([side("a", [0.001] * 199 + [0.1], [block(0.0, runs=200)])])
    assert info.y_ticks[0] <= 1
    assert info.y_ticks[-1] >= 100
    assert timeline(info).layout.yaxis.type == "log"
    close = timeline_info([side("a", [0.001] * 200, [block(0.0, runs=200)])])
    assert close.y_ticks == []
    assert timeline(close).layout.yaxis.type is None


def test_a_strip_of_many_disturbed_blocks_is_not_a_smear_of_signs() -> None:
    blocks = [block(float(k), flags=("wait",) if k % 2 else ()) for k in range(400)]
    info = timeline_info([side("a", [0.001] * 800, blocks)])
    assert info.strip is not None
    assert info.strip.flagged == 200
    [signs] = [one for one in timeline(info).data if one.name == "symptom of a disturbance"]
    assert 30 <= len(signs.x) <= MAX_SIGNS


@pytest.mark.parametrize("height", [0, 270])
def test_the_strip_names_every_family_and_makes_room_for_the_names(height: int) -> None:
    info = timeline_info([side("a", [0.002] * 2, [block(0.0)])])
    axis = timeline(info, height=height).layout.yaxis2
    assert (list(axis.tickvals), axis.automargin) == (list(FAMILIES), True)


def test_the_strip_has_every_block_of_the_comparison_in_order_with_its_family() -> None:
    one = side("a", [0.002] * 4, [block(0.0), block(2.0, flags=("foreign_load", "wait"))])
    other = side("b", [0.002] * 4, [block(1.0, flags=("slow_core",)), block(3.0, flags=("throttled",))])
    strip = timeline_info([one], beside=[other]).strip
    assert strip is not None
    assert strip.edges_s == [0.0, 1.0, 2.0, 3.0, pytest.approx(3.021)]
    assert strip.levels["CPU used by others"] == [CALM, CALM, CAUSE, CALM]
    assert strip.levels["stopped, throttled"] == [CALM, CALM, CALM, CAUSE]
    assert strip.levels["clock, core speed"] == [CALM, SYMPTOM, CALM, CALM]
    assert strip.flagged == 3
    assert "programs" in strip.hover[2]


def test_every_flag_belongs_to_one_family() -> None:
    listed = [flag for family in FAMILIES.values() for flag in family]
    assert sorted(listed) == sorted(FLAGS)


def test_counters_are_said_in_words_and_unreadable_ones_are_named() -> None:
    words = counter_words(block(0.0, wait_s=0.004, steal_s=None, frequency_hz=None))
    assert "undisturbed" in words
    assert any("1.50 CPUs" in one for one in words)
    assert any("20.0%" in one for one in words)
    assert "not readable here: the hypervisor's share, the clock" in words
    assert not [line for line in words if "hypervisor:" in line]


def test_different_batches_are_drawn_per_row() -> None:
    info = timeline_info(
        [side("a", [0.004] * 2, [block(0.0)], rows=4), side("b", [0.002] * 2, [block(1.0)], rows=1)]
    )
    assert info.y_title == "ms per sample"
    assert [one.block_ms[0] for one in info.sides] == [1, 2]
    assert info.sides[0].at_s[:2] == [pytest.approx(0.001), pytest.approx(0.005)]  # not per sample


def test_a_trial_of_before_there_were_comparisons_is_one_block_without_a_strip() -> None:
    info = timeline_info([Side(name="old", result={"latencies_s": [0.001, 0.002], "batch_size": 1})])
    assert info.strip is None
    assert info.sides[0].at_s == [0.0, 0.001, None]
    assert timeline(info).to_json()


def test_a_block_names_its_generation_and_may_have_no_run_for_the_caches() -> None:
    blocks = [
        block(0.0, runs=1) | {"generation": 1, "copy": 0, "refill_s": None},
        block(1.0, runs=1) | {"generation": 1, "copy": 1, "refill_s": None},
    ]
    info = timeline_info([side("a", [0.5, 0.6], blocks)])
    assert info.sides[0].at_s == [0.0, None, 1.0, None]
    assert numbers(info.sides[0].block_hover[1])[:3] == [2, 2, 1]
    assert info.strip is not None
    assert info.strip.edges_s == [0.0, 1.0, pytest.approx(1.02)]


def test_a_trial_whose_samples_were_pruned_is_not_drawn_and_is_named() -> None:
    gone = Side(name="gone", result={"samples_pruned_at": 1.0, "latency": {"p50_s": 0.001}})
    kept = side("kept", [0.002] * 2, [block(0.0)])
    info = timeline_info([gone, kept])
    assert [one.name for one in info.sides] == ["kept"]
    assert timeline(timeline_info([gone])).to_json()
    assert pruned([gone, kept]) == ["gone"]
    assert pruned([Side(name="empty", result={"latencies_s": []})]) == []


def test_a_trial_without_samples_is_not_drawn() -> None:
    info = timeline_info([Side(name="empty", result={"latencies_s": []})])
    assert info.sides == []
    assert timeline(info).to_json()


def test_sides_differ_in_more_than_colour_and_disturbed_tiles_carry_a_sign() -> None:
    figure = timeline(
        timeline_info(
            [
                side("a", [0.002] * 2, [block(0.0, flags=("foreign_load",))]),
                side("b", [0.002] * 2, [block(1.0)]),
            ]
        )
    )
    medians = [one for one in figure.data if one.type == "scatter" and one.mode == "lines+markers"]
    assert len({one.line.dash for one in medians}) == len({one.marker.symbol for one in medians}) == 2
    signs = [one for one in figure.data if one.name == "disturbed from outside"]
    assert [list(one.y) for one in signs] == [["CPU used by others"]]
    assert "(s)" in figure.layout.xaxis.title.text
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
