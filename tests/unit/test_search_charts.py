"""The charts of a search as data: intervals, Pareto front, progress, evaluations, and running ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from core.evidence.evaluations import Evaluation, Observation
from core.evidence.verdict import Verdict
from core.spec.metrics import OBJECTIVES
from core.spec.space import changes_words
from dashboard.charts import live_charts, search_charts, search_evaluation_charts
from tests.views.sample_results import confirmed_one, gain, search_answer, tried_ones


def ratio_of(one: Evaluation) -> float | None:
    gain = one.gain("latency_p50")
    return None if gain is None else math.exp(gain[0])


def one(name: str, value: object, ratio: float, memory: float = 8e6) -> Evaluation:
    seen = Observation(
        stage="screen",
        race="r",
        trial=f"t-{ratio}",
        gains={"latency_p50": (math.log(ratio), 0.01)},
        values={"peak_rss": memory},
    )
    return Evaluation(changes={name: value}, key=f"k-{ratio}", looks=(seen,))


ANSWER = search_answer("FOUND", "winner", "default")


# --- intervals ----------------------------------------------------------------------------------------------


def test_gains_are_named_after_what_they_are_of() -> None:
    info = search_charts.speedups_info([gain(1.3), gain(0.5, "SLOWER", "peak_rss")])
    assert [row.label for row in info.rows] == ["p50 latency", "peak memory added by the session"]
    assert "1.30× faster" in info.rows[0].hover
    assert info.axis[0] < 0.48 < 1.35 < info.axis[1]
    assert 1.0 in [at for at, _ in info.ticks]


def test_two_objectives_have_one_name() -> None:
    said = search_charts.metric_name("latency_p50+peak_rss")
    assert said == "p50 latency and peak memory added by the session"


@pytest.mark.parametrize("metric", OBJECTIVES)
def test_every_objective_has_a_name(metric: str) -> None:
    assert search_charts.metric_name(metric)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.05, 1.2, Verdict.FASTER),
        (0.8, 0.95, Verdict.SLOWER),
        (0.99, 1.01, Verdict.EQUIVALENT),
        (0.9, 1.1, Verdict.UNDECIDED),
    ],
)
def test_an_effect_is_judged_by_its_interval(low: float, high: float, verdict: Verdict) -> None:
    effect = {"setting": "session.a_b", "value": None, "against": True}
    ratios = {"ratio": math.sqrt(low * high), "ratio_low": low, "ratio_high": high}
    info = search_charts.effects_info([{**effect, **ratios}], margin=0.02)  # type: ignore[typeddict-item]
    assert [row.verdict for row in info.rows] == [verdict]
    assert info.rows[0].label.endswith(", not on")


def test_no_more_effects_than_can_be_read_and_a_marker_for_each_verdict() -> None:
    effects = ANSWER["effects"] * 40
    info = search_charts.effects_info(effects, margin=0.02)
    assert len(info.rows) == search_charts.MOST_EFFECTS
    both = search_charts.speedups_info([gain(1.3), gain(0.5, "SLOWER"), gain(1.0, "UNDECIDED")])
    figure = search_charts.intervals(both)
    assert len({trace.marker.symbol for trace in figure.data}) == 3
    wanted = [search_charts.WORDS[one] for one in ("FASTER", "SLOWER", "UNDECIDED")]
    assert [trace.name for trace in figure.data] == wanted


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.5, 1.07, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]), (0.05, 2.1, [0.05, 0.1, 0.2, 0.5, 1, 2])],
)
def test_ticks_of_gains_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert search_charts.speedup_ticks(low, high) == pytest.approx(ticks)


def test_times_has_the_digits_that_the_interval_supports() -> None:
    assert search_charts.times(1.2345, 1.2, 1.27) == "1.23×, 95 % CI [1.20, 1.27]"
    assert search_charts.times(1.2345) == "1.2×"


# --- the Pareto front ---------------------------------------------------------------------------------------


def test_the_front_the_others_and_the_winner_are_told_apart() -> None:
    info = search_charts.front_info(
        ANSWER["front"],
        [*tried_ones()[:3], one("enable_mem_pattern", False, 0.9, 4e6)],
        ratio_of,
        cost="peak_rss",
        winner=confirmed_one("winner", 1.3, "FASTER"),
    )
    assert [one.trial for one in info.front] == ["winner"]
    assert [one.ratio for one in info.winner] == [1.3]
    assert sorted(one.ratio for one in info.others) == pytest.approx([0.4, 0.9])
    assert info.beyond == 1  # 0.4 is outside of the view
    assert info.others[0].x == pytest.approx(6e6 / (1 << 20))
    figure = search_charts.front(info)
    assert len({trace.marker.symbol for trace in figure.data}) == 3
    assert list(figure.data[1].customdata) == ["winner"]
    assert figure.layout.xaxis.title.text == "Peak memory added by the session (MiB)"


def test_a_front_is_drawn_over_what_is_known_of_all_and_is_not_asked_for() -> None:
    points = ANSWER["front"]
    other = {**points[0], "values": {"latency_p50": 0.003, "peak_rss": 8e6}}
    assert search_charts.costs([points[0], other], {"throughput": 1.0}) == ["latency_p50"]  # memory is equal
    assert search_charts.costs(points, {"latency_p50": 1.0}) == ["peak_rss"]
    assert search_charts.costs([], {"latency_p50": 1.0}) == []


def test_the_course_has_a_marker_for_each_stage() -> None:
    figure = search_charts.course(
        [*ANSWER["course"], {"at_s": 1.0, "stage": "screen", "tried": 0, "ratio": None}]
    )
    assert [trace.name for trace in figure.data if trace.name] == [
        search_charts.STAGES["screen"][0],
        search_charts.STAGES["confirm"][0],
    ]
    assert list(figure.data[0].y) == [1.25, 1.3]
    assert figure.layout.xaxis.title.text.endswith("(s)")


# --- all evaluated configurations ---------------------------------------------------------------------------


def test_lines_go_through_the_settings_that_matter_most_to_the_gain() -> None:
    tried = [one("b", 2, 1.2), one("b", 10, 0.9), one("use_io_binding", True, 1.1), tried_ones()[2]]
    effects = [{"setting": "use_io_binding", "value": True, "against": False, "ratio": 2.0}]
    info = search_evaluation_charts.parallel_info(tried, ratio_of, effects, most=1)  # type: ignore[arg-type]
    assert [axis.name for axis in info.dimensions] == ["use_io_binding"]
    assert info.hidden == 1
    assert info.gains == pytest.approx([1.2, 1.1, 0.9])  # what failed has no line
    assert info.dimensions[0].values == ["off", "on"]
    assert info.dimensions[0].at == [0, 1, 0]


def test_what_all_have_in_common_is_no_axis() -> None:
    """A search with a starting point other than the default has its fixed settings in every configuration."""
    tried = [
        replace(found, changes={"enable_mem_reuse": False, **found.changes})
        for found in (one("b", 2, 1.2), one("b", 10, 0.9))
    ]
    info = search_evaluation_charts.parallel_info(tried, ratio_of, [])
    assert ([axis.name for axis in info.dimensions], info.hidden) == (["b"], 0)


def test_values_are_in_their_order_and_what_is_not_asked_is_the_default() -> None:
    tried = [one("b", 10, 1.2), one("b", 2, 0.9), one("a", True, 1.1)]
    info = search_evaluation_charts.parallel_info(tried, ratio_of, [])
    [axis] = [axis for axis in info.dimensions if axis.name == "b"]
    assert axis.values == ["default", "2", "10"]


def test_ranks_differ_in_width_too_and_every_line_says_its_configuration() -> None:
    tried = [one("b", number, 1 + number / 100) for number in range(30)]
    figure = search_evaluation_charts.parallel(search_evaluation_charts.parallel_info(tried, ratio_of, []))
    assert [trace.name for trace in figure.data] == ["lower half", "upper half", "best tenth"]
    assert len({trace.line.width for trace in figure.data}) == 3
    assert "b 29" in figure.data[2].text[0]


def test_names_and_values_of_settings_are_drawn_as_text() -> None:
    tried = [one("<b>x</b>", "<i>", 1.2), one("<b>x</b>", "<u>", 0.9)]
    figure = search_evaluation_charts.parallel(search_evaluation_charts.parallel_info(tried, ratio_of, []))
    texts = [note.text for note in figure.layout.annotations]
    assert all("<i>" not in text and "<u>" not in text for text in texts)


# --- while it runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memories", "title", "first"),
    [
        ([4 << 20, 8 << 20], "Peak memory added by the session (MiB)", 8.0),
        ([None, 8 << 20], "Order of evaluation", 2.0),
    ],
)
def test_points_lie_over_memory_where_it_is_known_of_all(
    memories: list[int | None], title: str, first: float
) -> None:
    labels = ("a 1", changes_words({"intra_op_num_threads": 1}))
    points = [
        {"label": label, "ratio": ratio, "memory": memory}
        for label, ratio, memory in zip(labels, (0.5, 1.2), memories, strict=True)
    ]
    drawn = live_charts.gains(points, ANSWER["front"])
    assert drawn["x"]["title"] == title
    others, front = drawn["series"]
    assert [one[:2] for one in front["points"]] == [(first, 1.2)]
    assert others["color"] != front["color"]
    low, high = drawn["y"]["range"]
    assert low <= 0.5 < 1.2 <= high


def test_before_screening_there_are_axes_around_the_default() -> None:
    drawn = live_charts.gains([], [])
    assert [one["points"] for one in drawn["series"]] == [[], []]
    low, high = drawn["y"]["range"]
    assert low < 1 < high
    course = live_charts.course(ANSWER["course"])
    assert course["series"][0]["points"] == [(3.0, 1.25, ""), (50.0, 1.3, "")]
