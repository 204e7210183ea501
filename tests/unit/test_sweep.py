"""Which points a sweep has, what is refused, which point is best, and how long it may take."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as some

from core import wire
from core.evidence.comparison import Comparison, Role
from core.evidence.measurement import Trial, latency_summary
from core.run.best_point import (
    BEST,
    INCONCLUSIVE,
    LEVEL,
    dominates,
    front,
    rank_points,
    supported_percentile,
    surely_faster,
    surely_lower_latency,
    surely_within_limit,
)
from core.run.known_trials import Known, KnownTrial
from core.run.sweep import (
    Measured,
    Point,
    configurations,
    expand,
    join,
    measured,
    running_points,
    with_values,
)
from core.show.sheets import sweeps
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.spec.axes import (
    BATCH,
    MAX_POINTS,
    THREADS,
    axes_of_study,
    axis,
    axis_names,
    default_values,
    parse_values,
    parse_vary,
    point_name,
    study_name,
)
from core.spec.space import Axis
from core.wire.errors import SpecError
from dashboard.charts import heatmap_charts
from tests import builders
from tests.reading import tells

BASE = TrialSpec(model=ModelRef(path="m.onnx"))


def info(**changes: Any) -> wire.ModelInfo:
    facts: dict[str, Any] = {
        "free_dims": ["batch", "sequence"],
        "batch_dim": "batch",
        "batch_axes": {"ids": 0},
        "fixed_batch": None,
    }
    return cast(wire.ModelInfo, facts | changes)


def trial(
    spec: TrialSpec, *, latency_s: float = 0.002, runs: int = 100, rows: int = 1, **changes: Any
) -> Trial:
    samples = [latency_s * (1 + 0.01 * (index % 7)) for index in range(runs)]
    result = {
        "batch_size": rows,
        "runs": runs,
        "latency": latency_summary(samples),
        "throughput_per_s": rows * runs / sum(samples),
        "effective_providers": ["CPUExecutionProvider"],
        "requested_providers": ["CPUExecutionProvider"],
        "fallback": False,
    }
    return builders.trial(changes.pop("id", "abc123def"), spec, **({"result": result} | changes))


def complete(
    batch: int,
    *,
    p95_s: float | None,
    throughput: float,
    high: float | None = None,
) -> Measured:
    return builders.point(
        {BATCH: batch},
        trial=f"trial-{batch}",
        batch_size=batch,
        runs=100,
        latency={"p50_s": 0.001, "p95_s": p95_s, "p95_s_high": high},
        throughput_per_s=throughput,
        comparison="race",
    )


def test_a_list_of_values_is_read_in_order_and_each_value_once() -> None:
    assert parse_values(" 1, 2,4 8;2 ", name=BATCH) == (1, 2, 4, 8)


@pytest.mark.parametrize(
    ("text", "name", "rule"),
    [
        ("", BATCH, "No values for `batch_size`"),
        ("1,two", BATCH, "whole numbers, but got `two`"),
        ("1.5", BATCH, "whole numbers, but got `1.5`"),
        ("0", BATCH, "Batch size must be 1 to"),
        ("-3", THREADS, "must be 0 to"),
        ("9" * 40, BATCH, "whole numbers"),
        ("-1,16", "sequence", "`sequence` must be 0 to"),
        (",".join(map(str, range(1, 400))), BATCH, f"at most {MAX_POINTS} points"),
    ],
)
def test_a_list_that_cannot_be_measured_is_refused_with_the_value(text: str, name: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_values(text, name=name)
    assert rule in caught.value.message
    assert caught.value.hint


@given(some.lists(some.integers(1, 4096), min_size=1, max_size=40))
def test_whatever_is_written_with_commas_is_read_back(values: list[int]) -> None:
    assert parse_values(",".join(map(str, values)), name=BATCH) == tuple(dict.fromkeys(values))


def test_the_last_axis_varies_fastest_and_every_point_asks_for_its_values() -> None:
    points = expand(BASE, [axis(BATCH, [1, 2]), axis(THREADS, [1, 4])], info())
    assert [dict(point.values) for point in points] == [
        {BATCH: 1, THREADS: 1},
        {BATCH: 1, THREADS: 4},
        {BATCH: 2, THREADS: 1},
        {BATCH: 2, THREADS: 4},
    ]
    last = points[-1].spec
    assert (last.workload.batch_size, last.session.intra_op_num_threads) == (2, 4)
    assert len({point.spec.key() for point in points}) == 4


def test_a_free_dimension_keeps_the_others_of_the_base() -> None:
    base = spec_from_dict(
        {"model": {"path": "m.onnx"}, "workload": {"dims": {"sequence": 16, "heads": 4}, "batch_size": 2}}
    )
    points = expand(base, [axis("sequence", [32, 64])], info(free_dims=["batch", "sequence", "heads"]))
    assert [point.spec.workload.dims for point in points] == [
        {"sequence": 32, "heads": 4},
        {"sequence": 64, "heads": 4},
    ]
    assert {point.spec.workload.batch_size for point in points} == {2}


def test_the_batch_dimension_under_its_own_name_is_the_batch() -> None:
    base = spec_from_dict({"model": {"path": "m.onnx"}, "workload": {"dims": {"batch": 3}}})
    (point,) = expand(base, [axis("batch", [8])], info())
    assert point.values == {BATCH: 8}
    assert point.spec.workload.batch_size == 8
    assert point.spec.workload.dims == {}


def test_what_a_sweep_does_not_vary_stays_as_it_was() -> None:
    base = spec_from_dict(
        {
            "model": {"path": "m.onnx", "sha256": "a" * 64},
            "session": {"graph_optimization_level": "ORT_ENABLE_BASIC"},
            "protocol": {"runs": 7},
        }
    )
    changed = with_values(base, {THREADS: 2})
    assert changed.session.graph_optimization_level == "ORT_ENABLE_BASIC"
    assert changed.protocol.runs == 7
    assert changed.model == base.model


@pytest.mark.parametrize(
    ("axes", "model", "rule"),
    [
        ([axis(BATCH, [1])], info(batch_dim=None, fixed_batch=4, free_dims=[]), "fixed at 4"),
        ([axis(BATCH, [1])], info(batch_dim=None, free_dims=[]), "no batch size to sweep"),
        ([axis("sequnce", [8])], info(), "Did you mean `sequence`?"),
        ([axis(THREADS, [1]), axis(THREADS, [2])], info(), "swept twice"),
        ([axis(BATCH, range(1, 30)), axis(THREADS, range(1, 30))], info(), "841"),
    ],
)
def test_a_sweep_that_the_model_cannot_do_is_refused(axes: list[Axis], model: Any, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        expand(BASE, axes, model)
    assert rule in caught.value.message
    assert caught.value.hint


def test_a_point_that_no_spec_allows_stays_with_its_reason_and_all_of_them_are_refused() -> None:
    base = spec_from_dict(
        {
            "model": {"path": "m.onnx"},
            "session": {
                "intra_op_num_threads": 2,
                "session_config_entries": {"session.intra_op_thread_affinities": "1"},
            },
        }
    )
    allowed, refused = expand(base, [axis(THREADS, [2, 4])])
    assert (allowed.refused, allowed.is_measured) == ("", True)
    assert (refused.spec, refused.is_measured) == (None, False)
    assert "intra_op_thread_affinities" in refused.refused
    (_, row) = join([allowed, refused], {})
    assert (row.state, row.error) == ("REFUSED", refused.refused)
    with pytest.raises(SpecError, match="intra_op_thread_affinities"):
        expand(base, [axis(THREADS, [4, 5])])


def test_a_model_offers_its_batch_its_threads_and_its_other_dimensions() -> None:
    assert axis_names(info()) == [BATCH, THREADS, "sequence"]
    assert axis_names(info(batch_dim=None, free_dims=[])) == [THREADS]


@pytest.mark.parametrize(
    ("usable", "expected"), [(1, (1,)), (3, (1, 2, 3)), (8, tuple(range(1, 9))), (24, (1, 2, 4, 8, 16, 24))]
)
def test_thread_values_never_pass_what_the_container_allows(usable: int, expected: tuple[int, ...]) -> None:
    assert default_values(THREADS, usable_threads=usable) == expected


def test_default_values_of_the_other_axes() -> None:
    assert default_values(BATCH, usable_threads=2) == (1, 2, 4, 8, 16, 32)
    assert default_values("sequence", usable_threads=2, current=16) == (4, 8, 16, 32, 64)
    assert default_values("sequence", usable_threads=2, current=1) == (1, 2, 4)


@pytest.mark.parametrize("name", [BATCH, THREADS, "sequence", "x:0", "odd = name #1"])
def test_the_name_of_a_study_is_read_back(name: str) -> None:
    one = Axis(name=name, values=(1, 2, 16))
    assert axes_of_study(study_name([one], "3fa2c1")) == (one,)


@pytest.mark.parametrize("study", ["", "search #1", "curve batch_size= #1", "curve batch_size=1,2"])
def test_a_study_of_another_kind_is_not_taken_for_a_curve(study: str) -> None:
    assert axes_of_study(study) == ()


def test_a_point_carries_the_rows_that_were_fed_and_its_throughput_interval() -> None:
    point = Point(values={BATCH: 8}, spec=BASE)
    one = measured(point, trial(BASE, rows=8, latency_s=0.004), reused=True)
    assert (one.result.get("batch_size"), one.result.get("runs")) == (8, 100)
    assert (one.reused, one.state) == (True, "COMPLETE")
    low, high = one.throughput_interval()
    assert one.throughput_per_s is not None
    assert low is not None
    assert high is not None
    assert low <= one.throughput_per_s <= high
    assert one.throughput_per_s == pytest.approx(8 / 0.00412, rel=0.01)


def test_a_failed_point_has_an_error_and_no_numbers() -> None:
    failed = trial(
        BASE,
        state="FAIL",
        result=None,
        error={"type": "WorkerError", "message": "The worker was killed.", "hint": "Use a smaller batch."},
    )
    one = measured(Point(values={BATCH: 8}, spec=BASE), failed, reused=False)
    assert one.latency is None
    assert one.throughput_per_s is None
    assert one.error == "The worker was killed."
    assert one.throughput_interval() == (None, None)


def best_of(points: Sequence[Measured], line_s: float | None = None, percentile: str = "p95_s") -> Any:
    return rank_points(points, line_s=line_s, percentile=percentile, margin=0.02).best


def test_the_best_point_has_the_highest_throughput_under_the_line() -> None:
    points = [
        complete(1, p95_s=0.001, throughput=1000),
        complete(8, p95_s=0.0026, throughput=3120),
        complete(16, p95_s=0.005, throughput=3300),
    ]
    assert best_of(points, 0.003) is points[1]
    assert best_of(points, 0.005) is points[2]  # exactly on the line counts
    assert best_of(points, 0.0005) is None
    assert best_of(points) is points[2]


def test_a_point_whose_runs_do_not_carry_the_percentile_is_never_best() -> None:
    points = [complete(1, p95_s=0.001, throughput=10), complete(64, p95_s=None, throughput=9999)]
    assert best_of(points, 1.0) is points[0]


def test_a_point_of_a_rejected_comparison_is_never_best() -> None:
    points = [
        complete(1, p95_s=0.001, throughput=10),
        builders.with_result(complete(8, p95_s=0.001, throughput=99), grade="F"),
    ]
    assert best_of(points, 1.0) is points[0]
    assert best_of(points[1:]) is None
    assert rank_points(points, line_s=None, margin=0.02).unranked == (points[1],)
    assert tells(words_of(points), "batch 8.")


def test_surely_under_needs_the_upper_bound_under_the_line() -> None:
    assert surely_within_limit(complete(1, p95_s=0.001, throughput=1, high=0.0015), 0.002, "p95_s")
    assert not surely_within_limit(complete(1, p95_s=0.001, throughput=1, high=0.0025), 0.002, "p95_s")
    assert not surely_within_limit(complete(1, p95_s=0.001, throughput=1, high=None), 0.002, "p95_s")


def test_the_line_applies_to_p95_only_where_all_points_have_one() -> None:
    both = [complete(1, p95_s=0.001, throughput=1), complete(2, p95_s=0.002, throughput=2)]
    assert supported_percentile(both) == "p95_s"
    assert supported_percentile([*both, complete(4, p95_s=None, throughput=3)]) == "p50_s"
    assert supported_percentile([]) == "p50_s"


# --- any setting, two of them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("batch_size=1,8", BATCH, (1, 8)),
        ("intra-op-num-threads=2,1", THREADS, (2, 1)),
        ("sequence=16,32", "sequence", (16, 32)),
        ("use_io_binding=on,off", "use_io_binding", (True, False)),
        (
            "graph_optimization_level=ort_enable_all,ORT_DISABLE_ALL",
            "graph_optimization_level",
            ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"),
        ),
        ("model=a small one,b", "model", ("a small one", "b")),
        (
            "providers=CUDAExecutionProvider+CPUExecutionProvider,CPUExecutionProvider",
            "providers",
            (("CUDAExecutionProvider", "CPUExecutionProvider"), ("CPUExecutionProvider",)),
        ),
    ],
)
def test_what_varies_is_read_and_its_study_gives_it_back(
    text: str, name: str, values: tuple[Any, ...]
) -> None:
    one = parse_vary(text)
    assert (one.name, one.values) == (name, values)
    other = Axis(name="odd × name", values=(1, 2))
    assert axes_of_study(study_name([one, other], "3fa2c1")) == (one, other)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("batch_size", "has no values"),
        ("=1,2", "has no name"),
        ("use_io_binding=perhaps", "on or off"),
        ("graph_optimization_level=ORT_ENABLE_AL", "Did you mean `ORT_ENABLE_ALL`"),
        ("streams=0,1", "Streams must be 1 to 256"),
        ("budget_s=1,2", "is a measurement setting"),
        ("feeds=a,b", "has no values to list"),
    ],
)
def test_what_cannot_vary_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_vary(text)
    assert rule in caught.value.message
    assert caught.value.hint


def test_three_settings_are_refused_and_an_unknown_one_gets_the_nearest_name() -> None:
    three = [axis(BATCH, [1]), axis(THREADS, [1]), axis("sequence", [8])]
    with pytest.raises(SpecError, match=r"2 .* 3"):
        expand(BASE, three, info())
    with pytest.raises(SpecError, match="`intra_op_num_threads`"):
        expand(BASE, [axis("intra_op_num_thread", [1])], info())
    with pytest.raises(SpecError, match=r"`int8`.*`a int8`"):
        expand(BASE, [axis("model", ["int8"])], info(), {"a int8": ModelRef(path="a.onnx")})


def test_combinations_that_come_to_the_same_are_measured_once_and_say_why() -> None:
    modes = axis("execution_mode", ["ORT_SEQUENTIAL", "ORT_PARALLEL"])
    points = expand(BASE, [modes, axis("inter_op_num_threads", [1, 2])], info())
    assert [point.is_measured for point in points] == [True, False, True, True]
    idle = points[1]
    assert idle.same == {"execution_mode": "ORT_SEQUENTIAL", "inter_op_num_threads": 1}
    assert "`inter_op_num_threads`" in idle.why
    assert idle.spec is not None  # its own settings, for whoever takes them to Tune
    assert idle.spec.session.inter_op_num_threads == 2
    assert len(configurations(points)) == 3
    (found,) = join([idle], known([in_comparison(spec_of(points[0]), "t")], None))
    assert (found.trial, found.same) == ("t", idle.same)


def spec_of(point: Point) -> TrialSpec:
    assert point.spec is not None
    return point.spec


def test_variants_are_points_that_run_another_file() -> None:
    named = {
        "m": ModelRef(path="m.onnx", sha256="a" * 64),
        "m int8": ModelRef(path="8.onnx", sha256="b" * 64),
    }
    points = expand(BASE, [axis("model", list(named)), axis(BATCH, [4])], info(), named)
    assert [spec_of(point).model.path for point in points] == ["m.onnx", "8.onnx"]
    assert [one.label for one in configurations(points)] == ["m, batch 4", "m int8, batch 4"]


def test_points_of_a_running_comparison_carry_their_typical_run_and_no_interval() -> None:
    points = expand(BASE, [axis(BATCH, [1, 8])], info())
    trials = [replace(in_comparison(spec_of(one), f"t{i}"), state="RUNNING") for i, one in enumerate(points)]
    first, second = running_points(points, trials, {"p50_s": {"t1": 0.004}, "rows_fed": {"t1": 8}})
    assert (first.latency, first.throughput_per_s) == (None, None)
    assert (second.latency, second.throughput_per_s) == ({"p50_s": 0.004}, 2000)
    assert not second.ranked


def test_rows_of_a_running_comparison_are_those_that_are_fed_whatever_the_spec_says() -> None:
    """A batch that the model fixes, or that is one of the dimensions, is no `batch_size`."""
    fixed = spec_from_dict({**BASE.to_dict(), "workload": {"dims": {"batch": 4}}})
    points = expand(fixed, [axis(THREADS, [1])], info())
    trials = [replace(in_comparison(spec_of(points[0]), "t0"), state="RUNNING")]
    [one] = running_points(points, trials, {"p50_s": {"t0": 0.004}, "rows_fed": {"t0": 4}})
    assert (one.result["batch_size"], one.throughput_per_s) == (4, 1000)


def test_a_cancelled_point_keeps_its_rounds_and_is_not_ranked() -> None:
    one = measured(Point(values={BATCH: 1}, spec=BASE), trial(BASE, state="CANCELLED"), reused=False)
    assert one.latency is not None
    assert (one.cut_short, one.ranked) == (True, False)


# --- states of points -------------------------------------------------------------------------------------


def around(batch: int, *, p95_s: float, throughput: float, half: float) -> Measured:
    """A point whose interval is as wide on both sides as `half` says, as a share."""
    mean = batch / throughput
    latency = {"p50_s": p95_s / 2, "p95_s": p95_s, "mean_s": mean}
    bounds = {
        f"{name}_{end}": value * (1 - half if end == "low" else 1 + half)
        for name, value in latency.items()
        for end in ("low", "high")
    }
    return builders.with_result(
        complete(batch, p95_s=p95_s, throughput=throughput), latency={**latency, **bounds}
    )


def words_of(points: Sequence[Measured], line_s: float | None = None) -> str:
    return sweeps.sentence(points, rank_points(points, line_s=line_s, margin=0.02))


def test_the_best_is_the_point_of_most_rows_whatever_latency_and_medians_say() -> None:
    """By the shown interval, and not by p95: a point with half the samples is no tie of it."""
    small = around(4, p95_s=0.0003, throughput=12_828, half=0.03)
    large = around(8, p95_s=0.0005, throughput=20_709, half=0.03)
    wide = around(16, p95_s=0.0004, throughput=17_000, half=0.4)
    stands = rank_points([small, large, wide], line_s=None, margin=0.02)
    assert stands.best is large
    assert [stands.place(one) for one in (small, large, wide)] == ["", BEST, INCONCLUSIVE]
    assert words_of([small, large, wide]) == (
        "Highest measured throughput: batch 8: 20,709 samples/s (95 % CI [20,106 to 21,349]). "
        "Inconclusive against batch 16: 95 % intervals overlap or are unknown."
    )
    assert rank_points([small, large, wide], line_s=0.0004, margin=0.02).best is wide


def test_only_what_both_intervals_hold_within_the_margin_is_level() -> None:
    top = around(8, p95_s=0.004, throughput=4000, half=0.002)
    near = around(4, p95_s=0.002, throughput=3970, half=0.002)
    open_ = around(2, p95_s=0.001, throughput=3990, half=0.02)
    stands = rank_points([top, near, open_], line_s=None, margin=0.02)
    assert [stands.place(one) for one in (top, near, open_)] == [BEST, LEVEL, INCONCLUSIVE]
    assert tells(words_of([top, near, open_]), "±2 %", "batch 4.")


def test_what_has_no_interval_is_inconclusive() -> None:
    points = [complete(8, p95_s=0.004, throughput=4000), complete(1, p95_s=0.001, throughput=1)]
    stands = rank_points(points, line_s=None, margin=0.02)
    assert [stands.place(one) for one in points] == [BEST, INCONCLUSIVE]
    assert tells(words_of(points), "batch 8: 4,000 ")


def scattered(seed: int) -> list[Measured]:
    """A grid of points whose values and widths have nothing to do with each other."""
    draw = random.Random(seed)
    found = []
    for batch in range(1, draw.randint(2, 5)):
        for threads in (1, 2, 4):
            one = around(
                batch,
                p95_s=draw.uniform(1, 3) * 1e-3,
                throughput=draw.uniform(1000, 3000),
                half=draw.choice([0.001, 0.02, 0.1, 0.3]),
            )
            assert one.latency is not None
            of_three = {**one.latency, "processes": 3}
            usual: list[dict[str, Any]] = [{}] * 5
            changes = draw.choice([*usual, {"grade": "F"}, {"generations": 3}, {"latency": of_three}])
            one = replace(one, values={BATCH: batch, THREADS: threads}, trial=f"{batch}-{threads}")
            one = replace(one, state="CANCELLED" if draw.random() < 1 / 8 else "COMPLETE")
            found.append(builders.with_result(one, **changes))
    return found


def test_what_is_named_best_is_surely_dominated_by_nothing_that_is_drawn() -> None:
    for seed in range(150):
        is_dominated_by_nothing(seed)


def is_dominated_by_nothing(seed: int) -> None:
    """In the sentence, the table, the plane, and throughput against latency alike."""
    points = scattered(seed)
    line_s = random.Random(-seed).choice([None, 0.0015, 0.002, 0.0025])
    stands = rank_points(points, line_s=line_s, margin=0.02)
    axes = [
        Axis(name=name, values=tuple({one.values[name]: 0 for one in points})) for name in (THREADS, BATCH)
    ]
    cells = {one.point: one for one in heatmap_charts.plane_info(points, axes, stands).cells}
    tradeoff = heatmap_charts.tradeoff_info(points, axes, stands)
    spots = {spot.point: spot for spots in tradeoff.groups.values() for spot in spots}
    table = sweeps.points(points, stands)
    marks = [row[[one.name for one in table.columns].index("best")] for row in table.rows]
    said = sweeps.sentence(points, stands)
    best = [one for one in points if point_name(one.values) in said.split(" samples/s")[0] and one.ranked]
    if stands.best is None:
        assert not [one for one in points if one.ranked and (not line_s or one.latency["p95_s"] <= line_s)]
        assert "★" not in "".join(marks)
        return
    assert best == [stands.best]
    name = point_name(stands.best.values)
    assert cells[name].text.startswith("★")
    assert marks[points.index(stands.best)] == "★"
    assert name in [one.point for one in tradeoff.front]
    for other in points:
        drawn, at = cells[point_name(other.values)], spots[point_name(other.values)]
        allowed = other.ranked and (line_s is None or at.ms[0] <= line_s * 1e3)
        own = spots[name]
        apart = None not in (*own.rate, *at.rate)
        assert not (allowed and apart and at.rate[1] > own.rate[2])
        if not allowed or other is stands.best:
            assert drawn.mark in ("best", "over", "")
            continue
        overlaps = not apart or at.rate[2] >= own.rate[1]
        assert (drawn.mark in ("inconclusive", "level")) == overlaps
        assert (marks[points.index(other)] == "? ★") == (drawn.mark == "inconclusive")


def test_the_front_leaves_out_only_who_is_surely_worse_in_one_and_no_better_in_the_other() -> None:
    for seed in range(40):
        is_left_out_only_where_surely_worse(seed)


def is_left_out_only_where_surely_worse(seed: int) -> None:
    points = scattered(seed)
    kept = front(points, "p95_s")
    assert kept
    for one in points:
        better = [other for other in points if other.ranked and dominates(other, one, "p95_s")]
        assert (one in kept) == (one.ranked and not better)
        for other in better:
            assert surely_faster(other, one) or surely_lower_latency(other, one, "p95_s")
            assert not surely_faster(one, other)
            assert not surely_lower_latency(one, other, "p95_s")


def test_the_front_keeps_what_the_intervals_leave_open() -> None:
    fast = around(1, p95_s=0.001, throughput=1000, half=0.01)
    large = around(8, p95_s=0.004, throughput=4000, half=0.01)
    worse = around(4, p95_s=0.005, throughput=2000, half=0.01)
    assert front([fast, large, worse], "p95_s") == [fast, large]
    unsure = around(4, p95_s=0.0041, throughput=3900, half=0.2)
    assert front([fast, large, unsure], "p95_s") == [fast, large, unsure]


def test_points_stand_under_over_and_astride_the_line() -> None:
    under = around(1, p95_s=0.001, throughput=1000, half=0.1)
    astride = around(4, p95_s=0.0029, throughput=2000, half=0.1)
    over = around(16, p95_s=0.009, throughput=4000, half=0.1)
    lost = Measured(values={BATCH: 32}, trial="x", state="FAIL", reused=False, error="It crashed.")
    rows = [under, astride, over, lost]
    stands = rank_points(rows, line_s=0.003, margin=0.02)
    assert stands.percentile == "p95_s"
    assert [stands.is_in(one, stands.over) for one in rows] == [False, False, True, False]
    assert [stands.is_in(one, stands.open) for one in rows] == [False, True, False, False]
    assert [stands.place(one) for one in rows] == ["", "best", "", ""]
    assert rank_points(rows, line_s=None, margin=0.02).best == over


def test_a_point_that_is_another_stands_where_that_stands_and_once_on_the_front() -> None:
    top = around(8, p95_s=0.004, throughput=4000, half=0.01)
    equal = replace(top, values={BATCH: 9}, same=top.values, why="both ask for the same")
    stands = rank_points([top, equal], line_s=None, margin=0.02)
    assert (stands.best, stands.level, stands.inconclusive) == (top, (), ())
    assert stands.place(equal) == "level with the best"
    assert [stands.is_in(one, stands.front) for one in (top, equal)] == [True, False]


# --- how many processes an interval knows -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "processes", "has"),
    [
        ({"processes": 1}, 1, False),  # rounds of one process: no interval for the next one
        ({"processes": 2}, 2, True),
        ({"generations": 4}, 4, False),  # an earlier version took rounds as clusters
        ({"generations": 5}, 5, True),
        ({}, None, True),
    ],
)
def test_an_interval_that_knows_rounds_of_few_processes_is_none(
    made: dict[str, int], processes: int | None, has: bool
) -> None:
    done = trial(BASE, rows=8)
    facts: dict[str, Any] = {**(done.result or {})}
    facts["latency"] = {**facts["latency"], **{k: v for k, v in made.items() if k == "processes"}}
    facts |= {k: v for k, v in made.items() if k == "generations"}
    one = measured(Point(values={BATCH: 8}, spec=BASE), replace(done, result=facts), reused=False)
    assert one.processes == processes
    assert (one.throughput_interval() != (None, None)) == has


def test_a_sweep_of_few_launches_says_so_and_is_never_surely_under_a_line() -> None:
    one = around(8, p95_s=0.001, throughput=4000, half=0.01)
    few, enough = (builders.with_result(one, latency={**(one.latency or {}), "processes": n}) for n in (3, 5))
    assert tells(words_of([few]), "3 launches", "batch 8,", "5 are needed")
    assert not surely_within_limit(few, 1.0, "p95_s")
    assert "launches" not in words_of([enough])
    assert surely_within_limit(enough, 1.0, "p95_s")


# --- the comparison of a sweep ----------------------------------------------------------------------------


def comparison(trials: Sequence[Trial], *, last_role: Role = "anchor", **result: Any) -> Comparison:
    """A race of `trials`, the last one being what the others are put against."""
    names = [one.id for one in trials]
    against = names[-1]
    return builders.comparison(
        {**dict.fromkeys(names, "candidate"), against: last_role},
        name="race",
        result={
            "contrasts": [{"candidate": one, "baseline": against, "ratio": 1.5} for one in names[:-1]],
            "ranks": [{"trial": one, "rank": 1, "ties": ["other"]} for one in names],
            **result,
        },
    )


def in_comparison(spec: TrialSpec, name: str) -> Trial:
    found = trial(spec, id=name, comparison="race")
    return replace(found, result={**(found.result or {}), "grade": "B"})


def known(trials: Sequence[Trial], comparison: Comparison | None) -> Known:
    return {one.key: KnownTrial(trial=one, comparison=comparison, reused=False) for one in trials}


def test_a_point_carries_its_verdict_against_the_default() -> None:
    points = expand(BASE, [axis(BATCH, [1, 8])], info())
    trials = [in_comparison(point.spec, f"t{i}") for i, point in enumerate(points)]
    default = in_comparison(BASE, "default")
    rows = join(points, known(trials, comparison([*trials, default])))
    assert [row.contrast and row.contrast["ratio"] for row in rows] == [1.5, 1.5]
    assert [(row.comparison, row.is_default) for row in rows] == [("race", False)] * 2
    assert [row.result["grade"] for row in rows] == ["B", "B"]


def test_a_point_that_is_the_default_has_no_verdict_against_itself() -> None:
    points = expand(BASE, [axis(BATCH, [1, 8])], info())
    trials = [in_comparison(point.spec, f"t{i}") for i, point in enumerate(points)]
    contrast = {"candidate": "t1", "baseline": "t0", "ratio": 1.5}
    own = comparison(trials, last_role="candidate", contrasts=[contrast])  # nobody was added: the first is it
    rows = join(points, known(trials, own))
    assert [row.is_default for row in rows] == [True, False]
    assert [row.contrast for row in rows] == [None, contrast]


def test_a_verdict_against_another_baseline_is_none_against_the_default() -> None:
    (point,) = expand(BASE, [axis(BATCH, [8])], info())
    own, pinned = in_comparison(point.spec, "t"), in_comparison(BASE, "pinned")
    (row,) = join([point], known([own], comparison([own, pinned], last_role="baseline")))
    assert row.contrast is None
