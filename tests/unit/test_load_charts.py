"""What the charts of a load test show, asserted on their plain data; and that every figure can be drawn."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from core.show.load_text import is_rejected
from core.show.report.subjects import AboutLoad
from dashboard.charts import compare_charts, live_charts, load_charts, load_cost_charts
from dashboard.charts.saved import csv_of
from dashboard.report.figures import plots_of
from tests import builders
from tests.simulated_load import sample_batching, sample_load_result, sample_point, sample_run

LIMIT = load_charts.latency_limit(sample_load_result("limit"))


def drawn(figure: Any) -> dict[str, Any]:
    """The series of a figure by name, without those that only explain a marker."""
    return {one.name: one for one in figure.data if one.x is not None and one.x[0] is not None}


# --- latency against rate -----------------------------------------------------------------------------------


def test_rates_are_in_order_with_their_intervals_and_the_limit() -> None:
    info = load_charts.rate_info(sample_load_result("limit"))
    median, slow = info.series
    assert (median.name, slow.name, slow.main) == ("p50", "p99", True)
    assert [one.rate for one in slow.points] == [200, 250, 300]
    assert [one.verdict for one in slow.points] == ["PASS", "PASS", "FAIL"]
    assert [one.fresh for one in slow.points] == [True, True, False]
    assert all(one.low < one.value < one.high for one in slow.points if one.low and one.high)
    assert (info.limit_ms, info.limit_words) == (pytest.approx(20.0), "p99 ≤ 20 ms")


def test_a_rate_without_a_latency_is_lost_with_its_reason() -> None:
    info = load_charts.rate_info(sample_load_result("limit"))
    assert [(one.rate, one.why) for one in info.lost] == [(150, "not a measurement"), (500, "saturated")]
    assert "22 %" in info.lost[0].hover


def test_a_percentile_that_the_requests_do_not_support_is_lost_too() -> None:
    result = sample_load_result("traffic")
    run = sample_run(100)
    run["latency"] = [one for one in run["latency"] if one["p"] < 0.99]
    result["points"] = [sample_point(run, 0)]
    info = load_charts.rate_info(result)
    assert [(one.rate, one.why) for one in info.lost] == [(100, "failed")]
    assert "p99" in info.lost[0].hover


def test_verdicts_differ_by_shape_and_probes_are_hollow() -> None:
    figure = load_charts.rates(load_charts.rate_info(sample_load_result("limit")))
    assert drawn(figure)["p99"].marker.symbol == ("circle", "circle", "x-open")
    assert len({shape for shape, _ in load_charts.VERDICTS.values()}) == len(load_charts.VERDICTS)
    named = [one.name for one in figure.data]
    assert {"passed", "failed", "hollow: probe", "saturated", "not a measurement"} <= set(named)
    assert "undecided" not in named  # no point is


def test_several_configurations_are_a_line_each_without_medians() -> None:
    info = load_charts.rate_info(sample_load_result("traffic"))
    assert [one.name for one in info.series] == ["ORT default · p99", "intra_op_num_threads=1 · p99"]
    assert len({one.style for one in info.series}) == 2


def test_the_file_of_a_plot_has_the_rates_and_no_place_of_a_lost_one() -> None:
    figure = load_charts.rates(load_charts.rate_info(sample_load_result("limit")))
    rows = list(csv.reader(io.StringIO(csv_of(figure))))
    assert {row[0] for row in rows[1:]} == {"p50", "p99"}
    assert len(rows) == 1 + 6


def test_without_a_limit_there_is_no_line_and_no_verdict() -> None:
    result = sample_load_result("traffic")
    result["question"] = {**result["question"], "limits": []}
    result["points"] = [{**one, "verdict": None, "limits": []} for one in result["points"]]
    info = load_charts.rate_info(result)
    assert (info.limit_ms, info.series[0].name) == (None, "ORT default · p99")
    assert load_charts.rates(info).layout.shapes == ()


# --- over time ----------------------------------------------------------------------------------------------


def test_a_run_over_time_has_its_warm_up_and_rates_per_second() -> None:
    info = load_charts.course_info(sample_run(200), LIMIT)
    assert info.warmup_s == 2.0
    assert set(info.arrivals_per_s) == {200.0}
    assert info.p99_ms[0] == pytest.approx(15.35, abs=0.01)
    assert set(drawn(load_charts.course(info))) == {
        *("p50", "p99 of each part", "arrivals", "completions", "queue")
    }


def test_no_measurement_has_no_latency_over_time_and_no_distribution() -> None:
    [run] = [one for one in sample_load_result("limit")["runs"] if is_rejected(one)]
    info = load_charts.course_info(run, LIMIT)
    assert not info.measured
    assert {*info.p50_ms, *info.p99_ms, info.limit_ms} == {None}
    assert set(drawn(load_charts.course(info))) == {"arrivals", "completions", "queue"}
    assert load_charts.distribution_info([run], ["a"]) == []


# --- distribution -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [False, True])
def test_a_distribution_rises_to_its_last_request(tail: bool) -> None:
    info = load_charts.distribution_info([sample_run(100), sample_run(200, turn=1)], ["a"])
    assert [one.name for one in info] == ["100 requests/s", "200 requests/s · turn 2"]
    figure = load_charts.distribution(info, limit=LIMIT, tail=tail)
    first = figure.data[0]
    assert list(first.x) == sorted(first.x)
    assert list(first.customdata) == sorted(first.customdata)
    assert list(first.y) == sorted(first.y, reverse=tail)


def test_a_run_is_named_by_the_rate_that_was_wanted_not_by_that_of_its_arrivals() -> None:
    result = sample_load_result("traffic")
    result["runs"] = [{**one, "rate_per_s": one["rate_per_s"] + 7.3} for one in result["runs"]]
    assert {one["rate_per_s"] for one in load_charts.runs_of(result)} == {100.0, 200.0}
    point = load_charts.main_point(result)
    names = [
        one.name for one in load_charts.distribution_info(load_charts.runs_at(result, point), ["a", "b"])
    ]
    assert names == [f"{who} · 200 requests/s{turn}" for who in "ab" for turn in ("", " · turn 2")]


# --- batches and costs --------------------------------------------------------------------------------------


def test_batches_are_shares_of_the_calls() -> None:
    [info] = load_cost_charts.batches_info([sample_run(100, batches={"8": 1, "1": 3})], ["a"])
    assert info.samples == [1, 8]
    assert info.calls == [0.75, 0.25]
    assert info.shares == pytest.approx([3 / 11, 8 / 11])
    figure = load_cost_charts.batches([info])
    assert list(figure.layout.xaxis.ticktext) == ["1", "8"]
    assert load_cost_charts.batches_info([sample_run(100, batches={})], ["a"]) == []


def test_service_times_have_an_interval_and_the_samples_per_second() -> None:
    figure = load_cost_charts.service_times(sample_batching())
    time, rate = figure.data
    assert list(time.y) == pytest.approx([2.0, 2.6, 3.8, 6.0])
    assert list(rate.y) == pytest.approx([500.0, 769.23, 1052.63, 1333.33], rel=1e-4)
    assert time.error_y.array[0] == pytest.approx(0.06)


def test_costs_are_known_for_lost_rates_too() -> None:
    [info] = load_cost_charts.costs_info(sample_load_result("limit"))
    assert info.rate == [150, 200, 250, 300, 500]
    assert info.harness[0] == pytest.approx(0.222, abs=1e-3)
    assert info.harness[-1] is None
    assert info.cpus[-1] == pytest.approx(1.05)
    figure = load_cost_charts.costs([info])
    assert len(figure.data) == 3
    assert figure.layout.shapes[0].y0 == pytest.approx(0.1)


def test_differences_are_ratios_to_the_baseline_with_their_verdict() -> None:
    info = load_cost_charts.differences_info(sample_load_result("traffic"))
    assert info.baseline == "ORT default"
    assert [one.label for one in info.rows][:2] == ["p50 at 100 requests/s", "p99 at 100 requests/s"]
    assert {(one.value, one.low, one.high, one.verdict) for one in info.rows} == {
        (1.12, 1.05, 1.19, "FASTER")
    }
    assert info.axis[0] < 1 < 1.19 < info.axis[1]
    figure = compare_charts.forest(info)
    assert list(drawn(figure)["faster"].x) == [1.12] * 4


def test_several_models_are_drawn_alone_and_together() -> None:
    alone, both = load_cost_charts.together(sample_load_result("together")).data
    assert list(alone.x) == pytest.approx([9.0, 9.0])
    assert list(both.x) == pytest.approx([12.5, 12.5])


# --- while it runs ------------------------------------------------------------------------------------------


def test_a_run_so_far_is_three_small_plots() -> None:
    course = sample_run(200)["course"][:10]
    latency, requests, queue = live_charts.load(course, 0.02, end_s=32.0)
    assert latency["level"] == pytest.approx(20.0)
    assert latency["x"]["range"][1] >= 32.0
    assert latency["y"]["range"][1] >= 20.0
    assert [one["name"] for one in requests["series"]] == ["arrivals", "completions"]
    assert requests["series"][0]["points"][0] == (0.5, 200.0, "")
    assert queue["series"][0]["points"][-1] == (9.5, 1.0, "")
    assert live_charts.load([], None, end_s=0.0) == []


# --- in a report --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "titles"),
    [
        ("limit", ["Latency against rate", "Latency over time", "Distribution"]),
        ("traffic", ["Latency against rate", "Latency over time", "Distribution"]),
        ("batching", ["Service times", "Latency over time", "Distribution"]),
        ("together", ["Latency alone and together", "Latency over time", "Distribution"]),
    ],
)
def test_a_report_has_the_plots_of_its_question(question: str, titles: list[str]) -> None:
    result = sample_load_result(question)
    about = AboutLoad(trial=builders.trial("0123456789ab", kind="load"), result=result)
    assert [one.title for one in plots_of(about)] == titles


def test_a_report_of_no_measurement_draws_no_latency() -> None:
    result = sample_load_result("traffic")
    [run] = [one for one in sample_load_result("limit")["runs"] if is_rejected(one)]
    about = AboutLoad(
        trial=builders.trial("0123456789ab", kind="load"),
        result={**result, "runs": [run], "points": [sample_point(run, 0)], "contrasts": []},
    )
    [plot] = plots_of(about)
    assert plot.title == "Requests over time"
