"""Several streams: runs counted in a common window, the statistic of a comparison, and who may have them."""

from __future__ import annotations

import math
import statistics
import threading
from dataclasses import replace
from typing import Any

import pytest

from core.evidence import continuation, streams
from core.evidence.evaluations import Observation, contrast_of, observe
from core.evidence.record import Block, Discarded, RawComparison
from core.evidence.targets import Measurements, evaluate_target
from core.evidence.verdict import words
from core.run.baseline import _speed
from core.run.explanation import Pair, end_to_end, pair
from core.run.launches.blocks import void_reason
from core.run.plan import check_streams, contestant_plan, session_plan, thread_warning
from core.run.search.search_space import Models, axes_of
from core.run.sweep import Measured, Point, measured, running_points
from core.show import cells
from core.show.sheets.sweeps import points as points_table
from core.spec import ort_default, spec_from_yaml, without_effect, yaml_from_spec
from core.spec.axes import default_values, parse_vary
from core.spec.question import question_from_dict
from core.spec.settings import Place
from core.spec.space import Axis, reference, search_axes, space
from core.wire.errors import SpecError, WorkerError
from core.wire.limits import cpu_shares, most_processes
from core.worker.measure import footprint
from core.worker.measure.stream_processes import add_counters
from core.worker.measure.streams import StreamRuns, common_window, completed, loop
from dashboard.charts import sweep_charts, timeline_charts
from tests import builders, raw_comparisons
from tests.unit.test_continuation import finished

CUDA = "CUDAExecutionProvider"


# --- the count ----------------------------------------------------------------------------------------------


def runs_of(*stamps: tuple[int, int]) -> StreamRuns:
    return StreamRuns(
        refill_ns=None, starts_ns=[start for start, _ in stamps], ends_ns=[end for _, end in stamps]
    )


FIRST = runs_of((0, 10), (10, 20), (20, 30), (30, 40))
SECOND = runs_of((4, 14), (14, 24), (24, 34))


def test_the_window_is_where_every_stream_is_busy() -> None:
    assert common_window([FIRST, SECOND]) == (4, 34)


def test_a_run_that_crosses_an_edge_counts_with_its_share_inside() -> None:
    assert completed(FIRST, (4, 34)) == pytest.approx(0.6 + 1 + 1 + 0.4)
    assert completed(SECOND, (4, 34)) == 3
    assert completed(FIRST, (12, 18)) == pytest.approx(0.6)  # one run covers the whole window
    assert completed(FIRST, (40, 50)) == 0


def test_streams_that_never_overlap_have_an_empty_window_without_a_run() -> None:
    streams = [runs_of((0, 10), (10, 20)), runs_of((25, 30))]
    assert common_window(streams) == (25, 25)
    assert [completed(one, (25, 25)) for one in streams] == [0, 0]


def test_a_stream_goes_on_until_every_other_has_done_enough() -> None:
    done = []

    class Others:
        """A second stream that is done after seven runs of this one."""

        def reach(self) -> None:
            done.append(len(calls))

        def is_over(self) -> bool:
            return len(calls) >= 7

    calls: list[int] = []
    clock = iter(range(0, 10_000, 5))
    starts, ends = loop(
        lambda: calls.append(1), block_ns=20, min_runs=3, finish=Others(), clock=lambda: next(clock)
    )
    assert done == [3]  # its own minimum, said once
    assert len(calls) == len(starts) == len(ends) == 7
    assert (starts[0], ends[0], ends[-1]) == (5, 10, 70)


def test_the_counters_of_processes_add_up_and_an_unknown_one_stays_unknown() -> None:
    one = raw_comparisons.counters(cpu_s=0.02, busy_s=0.03, steal_s=None, pressure_s=0.1)
    both = add_counters([one, raw_comparisons.counters(cpu_s=0.05, busy_s=0.01, pressure_s=0.2)])
    assert (both["cpu_s"], both["busy_s"]) == (pytest.approx(0.07), pytest.approx(0.04))
    assert both["steal_s"] is None
    assert both["pressure_s"] == 0.1  # of the whole machine, not of one process
    assert both["wall_s"] == one["wall_s"]


def test_pages_that_processes_share_count_once() -> None:
    rollup = "00-ff ---p 00000000 00:00 0 [rollup]\nRss:   300 kB\nPss:   220 kB\nPss_Anon:  1 kB\n"
    assert footprint.parse_shared(rollup) == 80 * 1024
    with pytest.raises(ValueError, match="Rss or Pss"):
        footprint.parse_shared("Rss: 3 kB\n")
    # each of two processes holds 70 of its own and the same 30
    assert footprint.group_peak_bytes([100, 100], [15, 15]) == 170
    assert footprint.group_peak_bytes([100, 100], [0, 0]) == 200
    assert footprint.group_peak_bytes([100, 100], [-9, 2]) == 200  # pages that are shared no more
    assert footprint.group_peak_bytes([100, 5], [200, 200]) == 100  # at least that of the largest


@pytest.mark.parametrize(
    ("cores", "allowed", "count", "shares"),
    [
        ([], range(4), 2, [[0, 1], [2, 3]]),
        ([], range(5), 3, [[0], [1, 2], [3, 4]]),
        ([{0, 2}, {1, 3}], range(4), 2, [[0, 2], [1, 3]]),  # whole cores
        ([{0, 2}, {1, 3}], [0, 1, 3], 2, [[0], [1, 3]]),
    ],
)
def test_shares_of_cpus_are_disjoint_and_even(cores: Any, allowed: Any, count: int, shares: Any) -> None:
    assert cpu_shares(map(frozenset, cores), allowed, count) == shares


def test_the_quota_limits_the_processes() -> None:
    assert [most_processes(range(8), quota) for quota in (None, 2.5, 0.4, 16.0)] == [8, 2, 1, 8]


# --- the statistic ------------------------------------------------------------------------------------------

SKEWED = [0.001] * 8 + [0.006] * 2  # median 1 ms, mean 2 ms


def with_streams(*, between: float = 0.0) -> RawComparison:
    """Two streams of 2.5 ms a run, 0.8 runs/ms together, beside a default whose mean is twice its median."""
    found = raw_comparisons.record([1.0, 1.0], between=between, noise=0.0, shared=0.0, rows=[4, 4])
    blocks = []
    for one in found.blocks:
        factor = one.latencies_s[raw_comparisons.RUNS // 2]  # of its process
        if one.contestant == 1:
            blocks.append(replace(one, latencies_s=[factor * s for s in SKEWED], window_s=0.020 * factor))
            continue
        blocks.append(
            replace(
                one,
                latencies_s=[0.0025 * factor] * 18,
                window_s=0.020 * factor,
                stream_runs=(9, 9),
                stream_completed=(8.5, 7.5),
                stream_refills_s=(0.003, 0.003),
            )
        )
    found.blocks, found.by_throughput = blocks, True
    return found


def test_with_one_stream_everywhere_the_median_of_a_block_counts() -> None:
    record = raw_comparisons.record([0.001, 0.002], between=0.0, noise=0.0, shared=0.0)
    record.blocks = [replace(one, latencies_s=SKEWED, window_s=1.0) for one in record.blocks]
    found = raw_comparisons.evidence(record)
    [contrast] = found.contrasts
    assert (contrast["ratio"], contrast["statistic"]) == (pytest.approx(1.0), "median")
    assert found.to_dict()["statistic"] == "median"
    result = found.trial_result(0)
    assert result is not None
    assert not {"streams", "throughput_per_s_low"} & result.keys()
    assert result["throughput_per_s"] == pytest.approx(500)  # 1 / mean
    assert not {"window_s", "throughput_run_s", "stream_runs"} & result["blocks"][0].keys()


def test_with_several_streams_throughput_counts_for_everybody() -> None:
    found = raw_comparisons.evidence(with_streams())
    [contrast] = found.contrasts
    assert contrast["ratio"] == pytest.approx(0.002 / (0.020 / 16))  # 1.6, by means; by medians it is 0.4
    assert contrast["statistic"] == "throughput"
    assert any("Throughput is compared" in note for note in contrast["notes"])
    assert found.aa is not None
    assert found.aa.ratio == pytest.approx(1.0)


def test_the_result_tells_rate_fairness_and_cpu_use() -> None:
    found = raw_comparisons.evidence(with_streams())
    own, default = found.trial_result(0), found.trial_result(1)
    assert own is not None
    assert default is not None
    assert own["throughput_per_s"] == pytest.approx(4 * 16 / 0.020)
    assert default["throughput_per_s"] == pytest.approx(4 * 10 / 0.020)
    facts = own["streams"]
    assert (facts["count"], facts["type"], facts["threads"]) == (2, "threads", [])
    assert facts["rates_per_s"] == pytest.approx([4 * 8.5 / 0.020, 4 * 7.5 / 0.020])
    assert facts["fairness"] == pytest.approx(7.5 / 8.5)
    assert facts["cpus_used"] == pytest.approx(1.0)  # 0.02 s of CPU in 0.02 s
    assert "streams" not in default
    assert any("service latency under 2 callers" in note for note in own["notes"])
    assert not any("service latency" in note for note in default["notes"])
    assert own["cpu_s_per_inference_low"] == pytest.approx(0.02 / 20)  # 18 runs and two that fill caches
    assert own["latency"]["p50_s"] == pytest.approx(0.0025)


def test_the_interval_of_throughput_holds_for_new_processes() -> None:
    own = raw_comparisons.evidence(with_streams(between=0.05)).trial_result(0)
    assert own is not None
    low, rate, high = (own[f"throughput_per_s{end}"] for end in ("_low", "", "_high"))  # type: ignore[literal-required]
    assert low < rate < high
    assert streams.throughput_interval(own) == (low, high)
    assert 1.01 < high / low < 1.3


def test_the_interval_of_one_stream_is_that_of_the_mean() -> None:
    result = {"batch_size": 4, "latency": {"mean_s_low": 0.001, "mean_s_high": 0.002}}
    assert streams.throughput_interval(result) == (2000, 4000)
    assert streams.throughput_interval({"batch_size": 4, "latency": {}}) == (None, None)


def test_what_is_stored_gives_the_same_statistic() -> None:
    record = with_streams(between=0.05)
    comparison, trials = finished(record)
    again = continuation.raw_comparison(comparison, trials)
    assert [one.stream_completed for one in again.blocks] == [one.stream_completed for one in record.blocks]
    assert [one.window_s for one in again.blocks] == [one.window_s for one in record.blocks]
    for one, trial in zip(record.blocks[:3], (trials[one.contestant] for one in record.blocks), strict=False):
        stored = next(
            block
            for block in trial.facts["blocks"]
            if (block["round"], block["copy"]) == (one.round, one.copy)
        )
        assert streams.stored_seconds_per_run(stored) == streams.seconds_per_run(one, by_throughput=True)
    assert streams.stored_seconds_per_run({"median_s": 0.5}) == 0.5


def test_an_old_block_has_no_window() -> None:
    block = next(iter(raw_comparisons.record([0.002, 0.002]).blocks))
    assert isinstance(block, Block)
    assert streams.window_s(block) == math.fsum(block.latencies_s)
    assert streams.seconds_per_run(block, by_throughput=True) == statistics.fmean(block.latencies_s)


def test_a_search_reads_throughput_alone_from_such_a_comparison() -> None:
    evidence = raw_comparisons.evidence(with_streams(between=0.01))
    own, default = evidence.trial_result(0), evidence.trial_result(1)
    assert own is not None
    assert default is not None
    [contrast] = evidence.contrasts
    found = observe(Observation(stage="screen", race="c1", trial="t-c0"), own, default, contrast)
    assert found.gains["throughput"][0] == pytest.approx(math.log(contrast["ratio"]))
    assert not {"latency_p50", "latency_mean", "latency_p99"} & found.gains.keys()
    assert found.round_gain == found.gains["throughput"]
    by_throughput = contrast_of("throughput", own, default, looks=4, margin=0.02)
    by_median = contrast_of("latency_p50", own, default, looks=4, margin=0.02)
    assert by_throughput is not None
    assert by_median is not None
    assert by_throughput.ratio == pytest.approx(contrast["ratio"])
    assert by_median.ratio == pytest.approx(0.4, rel=0.02)  # beside another caller a run takes longer


def test_a_target_on_throughput_reads_the_windows() -> None:
    own = raw_comparisons.evidence(with_streams(between=0.01)).trial_result(0)
    assert own is not None
    [target] = builders.spec(targets=[{"metric": "throughput", "at_least": 3000}]).targets
    found = evaluate_target(target, Measurements(batch_size=4, results={4: [own]}))
    assert found.value == pytest.approx(own["throughput_per_s"])
    assert "common windows" in found.why


def test_a_sweep_shows_the_rate_of_the_windows() -> None:
    own = raw_comparisons.evidence(with_streams(between=0.01)).trial_result(0)
    assert own is not None
    trial = builders.trial("t1", result=own)
    point = measured(builders_point(2), trial, reused=False)
    assert point.throughput_per_s == own["throughput_per_s"]
    assert point.throughput_interval() == (own["throughput_per_s_low"], own["throughput_per_s_high"])


def builders_point(count: int) -> Any:
    return Point(values={"streams": count}, spec=builders.spec(workload={"streams": count}))


def test_a_running_point_has_its_rate_beside_its_latency() -> None:
    point = builders_point(2)
    trial = builders.trial("t1", point.spec, key=point.spec.key())
    live: Any = {"p50_s": {"t1": 0.004}, "rate_per_s": {"t1": 450.0}, "rows_fed": {"t1": 1}}
    [one] = running_points([point], [trial], live)
    assert (one.throughput_per_s, one.latency) == (450.0, {"p50_s": 0.004})


def test_a_block_without_a_run_in_its_window_does_not_count() -> None:
    block = next(one for one in with_streams().blocks if one.stream_completed)
    assert void_reason(block) == ""
    assert "no run was completed" in void_reason(replace(block, stream_completed=(0.0, 0.0)))
    assert void_reason(replace(block, stream_completed=(0.0, 3.0))) == ""


def test_a_discarded_block_without_a_run_in_its_window_is_kept_without_a_speed() -> None:
    record = with_streams()
    block = next(one for one in record.blocks if one.stream_completed)
    block = replace(block, window_s=0.0, stream_completed=(0.0, 0.0))
    record.discarded = [Discarded(reason="no run", blocks=[block])]
    [lost] = raw_comparisons.evidence(record).to_dict()["discarded"]
    [kept] = lost["blocks"]
    assert (kept["completed"], kept["latencies_s"]) == (0.0, block.latencies_s)
    assert "throughput_run_s" not in kept


def test_a_recorded_baseline_of_streams_is_compared_by_throughput() -> None:
    own = raw_comparisons.evidence(with_streams(between=0.01)).trial_result(0)
    assert own is not None
    found = _speed(builders.trial("t1", result=own))
    assert found.ratio == own["throughput_per_s"]
    assert (found.low, found.high) == (own["throughput_per_s_low"], own["throughput_per_s_high"])


# --- names --------------------------------------------------------------------------------------------------


def test_a_latency_beside_other_callers_is_never_called_user_latency() -> None:
    own, default = (raw_comparisons.evidence(with_streams()).trial_result(index) for index in (0, 1))
    assert streams.latency_words(own) == "service latency under 2 callers"
    assert streams.latency_words(default) == "latency"
    assert streams.latency_words(None) == streams.latency_words({}) == "latency"


def two_streams(**more: Any) -> dict[str, Any]:
    """A stored result of two callers, of 3,200 samples/s."""
    own = raw_comparisons.evidence(with_streams(between=0.01)).trial_result(0)
    assert own is not None
    return {**own, **more}


def test_every_percentile_of_several_callers_is_labelled() -> None:
    default = raw_comparisons.evidence(with_streams(between=0.01)).trial_result(1)
    assert default is not None
    shown = {one.name: one for one in cells.latency_cells(two_streams(), default)}
    for name in ("p50_s", "p90_s", "p95_s", "p99_s", "mean_s"):
        assert "service latency under 2 callers" in shown[name].label
    assert shown["streams"].value == "2 threads"
    assert shown["streams.fairness"].value == "88 %"
    assert shown["streams.cpus_used"].value.endswith(" CPUs")
    assert "2 callers" in shown["throughput_per_s"].help
    plain = [one.label for one in cells.latency_cells(default, None)]
    assert not any("service" in label for label in plain)
    assert "streams" not in {one.name for one in cells.latency_cells(default, None)}


def test_the_verdict_stands_at_the_number_that_was_compared() -> None:
    own = two_streams()
    contrast = own["contrasts"][0]
    shown = {one.name: one for one in cells.latency_cells(own, None, contrast)}
    assert "more samples/s" in shown["throughput_per_s"].change
    assert shown["p50_s"].change == ""
    by_median = {one.name: one for one in cells.latency_cells(own, None, {**contrast, "statistic": "median"})}
    assert "faster" in by_median["p50_s"].change
    assert by_median["throughput_per_s"].change == ""


@pytest.mark.parametrize(
    ("verdict", "bounds", "said"),
    [
        ("FASTER", (1.4, 1.6), "1.50× more samples/s, 95 % CI [1.40, 1.60]"),
        ("SLOWER", (0.6, 0.7), "1.54× fewer samples/s, 95 % CI"),
        ("EQUIVALENT", (0.995, 1.005), "no difference larger than 2 %"),
    ],
)
def test_a_ratio_of_throughput_is_no_ratio_of_latency(
    verdict: str, bounds: tuple[float, float], said: str
) -> None:
    low, high = bounds
    facts = {"ratio": (low * high) ** 0.5 if verdict != "FASTER" else 1.5, "verdict": verdict, "margin": 0.02}
    found = words({**facts, "ratio_low": low, "ratio_high": high, "statistic": "throughput"})
    assert found.startswith(said)
    plain = words({**facts, "ratio_low": low, "ratio_high": high})
    assert "samples/s" not in plain


def swept() -> list[Measured]:
    """One caller and two, by the axis `streams`."""
    alone: Any = {"batch_size": 1, "latency": {"p50_s": 0.002}, "runs": 9}
    results = {1: alone, 2: two_streams()}
    return [
        Measured(values={"streams": count}, trial=f"t{count}", state="COMPLETE", reused=False, result=one)
        for count, one in results.items()
    ]


def test_tables_say_what_each_latency_is() -> None:
    table = points_table(swept())
    at = [column.name for column in table.columns].index("latency kind")
    assert [row[at] for row in table.rows] == ["latency", "service latency under 2 callers"]
    alone = points_table(swept()[:1])
    assert "latency kind" not in [column.name for column in alone.columns]


def test_charts_say_what_their_latencies_are() -> None:
    info = sweep_charts.curve_info(swept(), x="streams", y="p50_s")
    assert info.y_title == "Service latency under 1 to 2 callers per run (ms)"
    hovers = [text for one in info.series for text in one.hover]
    assert any("p50 service latency under 2 callers" in text for text in hovers)
    assert any("p50:" in text for text in hovers)
    alone = sweep_charts.curve_info(swept()[:1], x="streams", y="p50_s")
    assert alone.y_title == "Latency per run (ms)"


def test_the_runs_of_streams_are_drawn_at_the_same_time() -> None:
    result = two_streams()
    block = result["blocks"][0]
    starts = timeline_charts._starts(result["latencies_s"][: block["runs"]], block)
    first, second = starts[: block["stream_runs"][0]], starts[block["stream_runs"][0] :]
    assert first[0] == second[0] == block["at_s"] + block["refill_s"]
    assert first[-1] == pytest.approx(first[0] + math.fsum(result["latencies_s"][: len(first) - 1]))


# --- what may be asked for ----------------------------------------------------------------------------------


def asked(count: int, kind: str = "threads", **session: Any) -> Any:
    return builders.spec(workload={"streams": count, "stream_type": kind}, session=session)


def test_the_ort_default_has_one_stream_on_the_same_workload() -> None:
    one = builders.spec(
        workload={"streams": 4, "stream_type": "processes", "batch_size": 8, "use_io_binding": True}
    )
    default = ort_default(one)
    assert default.workload == builders.spec(workload={"batch_size": 8, "use_io_binding": True}).workload
    plain = builders.spec(workload={"batch_size": 8, "use_io_binding": True})
    assert default.key() == ort_default(plain).key()
    assert reference(one).workload.streams == 1


@pytest.mark.parametrize("count", [0, 257])
def test_the_number_of_streams_has_a_range(count: int) -> None:
    with pytest.raises(SpecError, match="1 to 256"):
        asked(count)


def test_processes_run_on_the_cpu_provider_only() -> None:
    chain = [{"name": CUDA}, {"name": "CPUExecutionProvider"}]
    with pytest.raises(SpecError, match=f"but the provider chain has `{CUDA}`"):
        asked(2, "processes", providers=chain)
    assert asked(2, "threads", providers=chain).workload.streams == 2
    assert asked(1, "processes", providers=chain).workload.streams == 1  # without effect


def test_another_engine_has_one_stream() -> None:
    with pytest.raises(SpecError, match="cannot run several streams: `streams`"):
        builders.spec(engine="torch-eager", workload={"streams": 2})


def test_the_type_has_no_effect_on_one_stream() -> None:
    assert without_effect(asked(1, "processes"))["stream_type"] == "there is one stream"
    assert "stream_type" not in without_effect(asked(2, "processes"))


@pytest.mark.parametrize(
    ("cpus", "quota", "most"), [("", None, 4), ("0,2", None, 2), ("", 3.5, 3), ("0-2", 2.0, 2)]
)
def test_more_processes_than_cpus_are_refused_with_the_numbers(
    cpus: str, quota: float | None, most: int
) -> None:
    def spec(count: int, kind: str = "processes") -> Any:
        workload = {"streams": count, "stream_type": kind}
        return builders.spec(workload=workload, protocol={"cpus": cpus})

    check_streams(spec(most), allowed=range(4), quota=quota)
    check_streams(spec(64, "threads"), allowed=range(4), quota=quota)
    with pytest.raises(SpecError, match=f"{most + 1} streams .* but {most} can be used"):
        check_streams(spec(most + 1), allowed=range(4), quota=quota)


@pytest.mark.parametrize(
    ("count", "threads", "warned"),
    [(1, 2, ""), (2, 1, ""), (2, 2, "is 4, but only 2 CPUs"), (3, None, "is 3")],
)
def test_more_callers_than_cpus_are_allowed_with_a_warning(
    count: int, threads: int | None, warned: str
) -> None:
    session = {} if threads is None else {"intra_op_num_threads": threads}
    cpu: Any = {"allowed": [0, 1], "quota": None}
    found = thread_warning(builders.spec(workload={"streams": count}, session=session), cpu)
    assert warned in found
    assert bool(found) is bool(warned)


def test_a_plan_names_streams_only_where_there_are_several() -> None:
    def plan(spec: Any) -> Any:
        return contestant_plan(
            spec, path="m.onnx", session=session_plan(spec.session), feeds=builders.feed_plan(), torch=None
        )

    assert "streams" not in plan(asked(1, "processes"))
    assert (plan(asked(3))["streams"], plan(asked(3))["stream_type"]) == (3, "threads")


def test_yaml_keeps_streams() -> None:
    one = asked(3, "processes")
    assert spec_from_yaml(yaml_from_spec(one)) == one


# --- sweeps and searches ------------------------------------------------------------------------------------


def test_streams_can_be_swept_up_to_the_usable_cpus() -> None:
    assert default_values("streams", usable_threads=8) == (1, 2, 4, 8)
    assert default_values("streams", usable_threads=1) == (1,)
    assert parse_vary("streams=1,2").values == (1, 2)
    assert parse_vary("stream_type=threads,processes").values == ("threads", "processes")


def test_a_space_has_no_more_streams_times_threads_than_cpus() -> None:
    axes = [
        Axis(name="streams", values=(1, 2, 4)),
        Axis(name="intra_op_num_threads", values=(0, 1, 2, 4)),
        Axis(name="stream_type", values=("threads", "processes")),
    ]
    of = space(builders.spec(), axes, threads=4)
    found = {
        (one.workload.streams, one.session.intra_op_num_threads or 0, one.workload.stream_type)
        for one in map(of.spec, of.choices)
    }
    alone = {(1, threads, "threads") for threads in (0, 1, 2, 4)}
    several = {
        (count, threads, kind)
        for count, threads in [(2, 0), (2, 1), (2, 2), (4, 0), (4, 1)]
        for kind in ("threads", "processes")
    }
    assert found == alone | several
    assert of.left_out == {
        "`stream_type` has no effect: there is one stream": 4,
        "`streams` × `intra_op_num_threads` exceed the 4 usable CPUs": 6,
    }
    assert len(of.choices) + sum(of.left_out.values()) == of.combinations == 24


def test_the_start_stays_in_its_space_whatever_it_asks_for() -> None:
    base = builders.spec(workload={"streams": 8})
    of = space(base, [Axis(name="intra_op_num_threads", values=(0, 1))], threads=2)
    assert of.spec(of.choices[0]).workload.streams == 8
    assert len(of.choices) == 1


def test_a_space_has_no_processes_on_other_providers() -> None:
    chains = (("CPUExecutionProvider",), (CUDA, "CPUExecutionProvider"))
    axes = [
        Axis(name="providers", values=chains),
        Axis(name="streams", values=(1, 2)),
        Axis(name="stream_type", values=("threads", "processes")),
    ]
    of = space(builders.spec(), axes, threads=2)
    specs = map(of.spec, of.choices)
    kinds = [(one.session.requested_providers[0], one.workload.stream_type) for one in specs]
    assert (CUDA, "processes") not in kinds
    assert ("CPUExecutionProvider", "processes") in kinds


@pytest.mark.parametrize(
    ("objective", "varies"),
    [
        ({"throughput": 1.0}, True),
        ({"throughput": 0.5, "peak_rss": 0.5}, True),
        ({"latency_p50": 1.0}, False),
        ({"throughput": 0.5, "latency_p99": 0.5}, False),
        ({"cpu_s": 1.0}, False),
    ],
)
def test_a_search_varies_streams_for_throughput_alone(objective: dict[str, float], varies: bool) -> None:
    question = question_from_dict({"objective": objective})
    assert question.streams is varies
    names = {one.name for one in search_axes(builders.spec(), Place(threads=4, streams=question.streams))}
    assert ({"streams", "stream_type"} <= names) is varies
    if not varies:
        with pytest.raises(SpecError, match="only where the objective is throughput"):
            axes_of(asked(2), question, Place(threads=4), Models())
        named = question_from_dict({"objective": objective, "vary": {"streams": [1, 2]}})
        with pytest.raises(SpecError, match="only where the objective is throughput"):
            axes_of(builders.spec(), named, Place(threads=4), Models())


def test_a_trial_with_streams_is_not_explained_by_a_profile_of_one_caller() -> None:
    own = raw_comparisons.evidence(with_streams()).trial_result(0)
    trials = {"t1": builders.trial("t1", result=own), "t2": builders.trial("t2", result=own)}
    store: Any = type("Store", (), {"trial": lambda _, name: trials[name]})()
    with pytest.raises(SpecError, match="2 streams, but a profile shows one caller"):
        pair(store, "t1", "t2")


def test_one_stream_beside_others_is_explained_by_throughput() -> None:
    evidence = raw_comparisons.evidence(with_streams())
    default = evidence.trial_result(1)
    assert default is not None
    stored = {**evidence.contrasts[0], "candidate": "t1", "baseline": "t2", "ratio": 1.25}
    one, other = (
        builders.trial(name, result={**default, "contrasts": [stored]}, fingerprint="f", comparison="c")
        for name in ("t1", "t2")
    )
    found = end_to_end(Pair(baseline=other, candidate=one))
    assert found.baseline_s == pytest.approx(0.002)  # by throughput, not the median of 1 ms
    assert found.candidate_s == pytest.approx(0.002 / 1.25)


def test_threads_end_together_when_one_fails() -> None:
    from core.worker.measure.counters import Meter
    from core.worker.measure.memory_layout import DEFAULT_LAYOUT
    from core.worker.measure.streams import Threads

    calls = 0

    def fails() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise WorkerError("The model broke.")

    of = Threads([lambda: None, fails], DEFAULT_LAYOUT, Meter())
    with pytest.raises(WorkerError, match="The model broke"):
        of.run(block_ns=10**12, min_runs=10**9, refill=True)
    found = of.run(block_ns=0, min_runs=5, refill=True)  # they are ready for the next block
    assert all(len(one.starts_ns) >= 5 and one.refill_ns is not None for one in found.streams)
    assert threading.active_count() >= 2
