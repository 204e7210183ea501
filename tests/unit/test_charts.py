"""What the charts show, asserted on their plain data; and that every figure can be drawn from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.evidence.measurement import Trial
from core.run.sweep import Measured
from core.spec.axes import BATCH, THREADS
from core.wire.profile import NodeTime, Profile, Span
from core.worker.measure.profile_parser import parse_profile
from dashboard.charts import (
    PALETTE,
    band,
    base_figure,
    lay_out,
    line_at,
    log_ticks,
    plain,
    profile_charts,
    provider_label,
)
from dashboard.charts.latency_charts import MAX_SAMPLES, latency_ecdf, latency_ecdf_info, side, thin
from dashboard.charts.profile_charts import (
    INSERTED,
    REST,
    ProviderNames,
    bars,
    node_info,
    operator_info,
    provider_info,
    skew,
    timeline,
    timeline_info,
    with_medians,
)
from dashboard.charts.sweep_charts import curve, curve_info
from tests import builders
from tests.reading import numbers, tells

DATA = Path(__file__).parents[1] / "data"
FELL_BACK = ProviderNames(
    requested=("CUDAExecutionProvider", "CPUExecutionProvider"),
    effective=("CPUExecutionProvider",),
    fallback=True,
)


def trial(*, latencies_s: list[float], warmup_s: list[float] | None = None, **result: Any) -> Trial:
    facts: dict[str, Any] = {
        "latencies_s": latencies_s,
        "warmup_latencies_s": warmup_s or [],
        "effective_providers": ["CPUExecutionProvider"],
        "requested_providers": ["CPUExecutionProvider"],
        "fallback": False,
    }
    return builders.trial("0123456789ab", model_name="digits", result=facts | result)


def point(batch: int, *, p50: float, p95: float | None = None, throughput: float, **changes: Any) -> Measured:
    facts: dict[str, Any] = {
        "values": {BATCH: batch, THREADS: batch},
        "trial": f"trial-{batch}",
        "batch_size": batch,
        "runs": 100,
        "latency": {
            "p50_s": p50,
            "p50_s_low": p50 * 0.9,
            "p50_s_high": p50 * 1.1,
            "p95_s": p95,
            "p95_s_low": None,
            "p95_s_high": None,
            "mean_s": p50,
            "mean_s_low": p50 * 0.8,
            "mean_s_high": p50 * 1.25,
        },
        "throughput_per_s": throughput,
        "effective_providers": ["CPUExecutionProvider"],
        "requested_providers": ["CPUExecutionProvider"],
    }
    return builders.point(**(facts | changes))


# --- what ran ------------------------------------------------------------------------------------------


def test_a_fallback_is_named_as_one_and_never_called_cuda() -> None:
    label = provider_label(["CPUExecutionProvider"], FELL_BACK.requested, fallback=True)
    assert tells(label, "CPUExecutionProvider", "CUDA")
    assert provider_label(["CUDAExecutionProvider", "CPUExecutionProvider"], (), fallback=False) == (
        "CUDAExecutionProvider"
    )


def test_every_missing_provider_of_a_chain_is_named() -> None:
    asked = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    label = provider_label(["CPUExecutionProvider"], asked, fallback=True)
    assert tells(label, "TensorRT", "CUDA")


def test_text_from_a_model_cannot_become_markup() -> None:
    assert plain('<a href="x">node</a>') == '&lt;a href="x"&gt;node&lt;/a&gt;'
    assert plain("$\\href{x}{y}$ %{x} 5 %") == "&#36;\\href{x}{y}&#36; &#37;{x} 5 %"
    assert plain("a\u202eb\n\x1b[1m") == "a\\u202eb\\n\\x1b[1m"


# --- latency of one trial ------------------------------------------------------------------------------


def test_a_trial_without_samples_is_not_drawn() -> None:
    assert latency_ecdf_info([side(trial(latencies_s=[]))]) == []


def test_thinning_keeps_every_outlier_and_the_order() -> None:
    values = [1.0] * 50_000
    values[31_415], values[9_000] = 99.0, 0.1
    indices, kept = thin(values, MAX_SAMPLES)
    assert len(kept) <= MAX_SAMPLES
    assert indices == sorted(indices)
    assert (31_415, 99.0) in zip(indices, kept, strict=True)
    assert (9_000, 0.1) in zip(indices, kept, strict=True)


def test_the_distribution_says_which_fraction_of_runs_is_at_or_below() -> None:
    (steps,) = latency_ecdf_info([side(trial(latencies_s=[0.004, 0.001, 0.002, 0.002]))])
    assert steps.ms == pytest.approx([1, 2, 2, 4])
    assert steps.fraction == [0.25, 0.5, 0.75, 1.0]


def test_a_long_distribution_is_thinned_but_keeps_its_ends() -> None:
    (steps,) = latency_ecdf_info([side(trial(latencies_s=[i / 1e6 for i in range(1, 100_001)]))])
    assert len(steps.ms) <= MAX_SAMPLES + 2
    assert steps.ms[0] == pytest.approx(0.001)
    assert (steps.ms[-1], steps.fraction[-1]) == (pytest.approx(100), 1.0)


def test_figures_of_trials_have_units_and_name_a_fallback() -> None:
    fell = trial(
        latencies_s=[0.001, 0.002],
        warmup_s=[0.01],
        fallback=True,
        requested_providers=["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    figure = latency_ecdf([side(fell)])
    assert "(ms)" in figure.to_json()
    assert all(tells(trace.name, "CUDA") for trace in figure.data)
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


def test_a_long_tail_gets_a_logarithmic_axis_so_that_the_bulk_is_not_flattened() -> None:
    figure = latency_ecdf([side(trial(latencies_s=[0.001] * 50 + [0.1]))])
    assert figure.layout.xaxis.type == "log"
    assert latency_ecdf([side(trial(latencies_s=[0.001, 0.002]))]).layout.xaxis.type is None


def test_different_batches_are_drawn_per_row() -> None:
    sides = [side(trial(latencies_s=[0.004], batch_size=4)), side(trial(latencies_s=[0.002], batch_size=1))]
    assert [one.ms for one in latency_ecdf_info(sides)] == [[1.0], [2.0]]
    assert latency_ecdf(sides).layout.xaxis.title.text != latency_ecdf(sides[:1]).layout.xaxis.title.text


# --- curves --------------------------------------------------------------------------------------------


def test_a_curve_has_one_series_per_statistic_with_its_interval() -> None:
    points = [
        point(4, p50=0.004, p95=0.006, throughput=900),
        point(1, p50=0.001, p95=0.002, throughput=1000),
    ]
    info = curve_info(points, x=BATCH, y=["p50_s", "p95_s"])
    assert [tuple(series.name.split(" · ")) for series in info.series] == [
        ("p50", "CPUExecutionProvider"),
        ("p95", "CPUExecutionProvider"),
    ]
    assert info.series[0].x == [1, 4]
    assert info.series[0].y == pytest.approx([1, 4])
    assert info.series[0].low == pytest.approx([0.9, 3.6])
    assert info.series[1].low == [None, None]
    assert "(ms)" in info.y_title
    assert tells(info.series[0].hover[0], "p50", "1.000 ms")
    assert tells(info.series[0].hover[0], "95 %", "0.900", "1.100")


def test_points_whose_runs_carry_no_p95_are_left_out_of_that_line_only() -> None:
    points = [
        point(1, p50=0.001, p95=0.002, throughput=1000),
        point(2, p50=0.002, p95=None, throughput=1000),
    ]
    info = curve_info(points, x=BATCH, y=["p50_s", "p95_s"])
    assert [series.x for series in info.series] == [[1, 2], [1]]


def test_throughput_has_the_interval_of_the_mean_latency() -> None:
    info = curve_info([point(8, p50=0.004, throughput=2000)], x=BATCH, y="throughput")
    (series,) = info.series
    assert "(samples/s)" in info.y_title
    assert series.y == [2000]
    assert series.low == pytest.approx([8 / 0.005])
    assert series.high == pytest.approx([8 / 0.0032])
    assert "2,000 samples/s" in series.hover[0]


def test_a_fallback_point_gets_a_series_of_its_own() -> None:
    fell = point(2, p50=0.002, throughput=1000, fallback=True, requested_providers=FELL_BACK.requested)
    real = point(
        1,
        p50=0.001,
        throughput=1000,
        effective_providers=["CUDAExecutionProvider"],
        requested_providers=FELL_BACK.requested,
    )
    info = curve_info([real, fell], x=BATCH, y="throughput")
    cuda, fell_back = (series.name for series in info.series)
    assert cuda == "CUDAExecutionProvider"
    assert tells(fell_back, "CPUExecutionProvider", "CUDA")


def test_axes_are_logarithmic_where_the_values_span_far() -> None:
    wide = [point(batch, p50=0.001 * batch, throughput=1000.0 + batch) for batch in (1, 2, 4, 8, 16, 32)]
    latency = curve_info(wide, x=BATCH, y="p50_s")
    assert (latency.x_log, latency.y_log) == (True, True)
    assert latency.ticks == [1, 2, 4, 8, 16, 32]
    assert not curve_info(wide, x=BATCH, y="throughput").y_log
    assert not curve_info(wide[:2], x=BATCH, y="p50_s").x_log


def test_thread_count_zero_keeps_the_axis_linear() -> None:
    points = [
        point(1, p50=0.001, throughput=1, values={THREADS: 0}),
        point(1, p50=0.001, throughput=1, values={THREADS: 8}),
    ]
    assert not curve_info(points, x=THREADS, y="p50_s").x_log


def test_failed_points_are_not_drawn() -> None:
    failed = point(4, p50=0.1, throughput=1, latency=None, throughput_per_s=None, state="FAIL")
    info = curve_info([failed], x=BATCH, y="p50_s")
    assert info.series == []
    curve(info)


def test_the_line_and_the_best_point_are_marked_on_the_figure() -> None:
    points = [point(1, p50=0.001, throughput=1000), point(8, p50=0.004, throughput=2000, reused=True)]
    info = curve_info(points, x=BATCH, y=["p50_s"], line_s=0.0025, best=points[0])
    assert info.line == pytest.approx(2.5)
    assert info.best == (1, pytest.approx(1.0))
    figure = curve(info)
    assert figure.layout.shapes[0].y0 == pytest.approx(2.5)
    assert "2.5 ms" in figure.to_json()
    marked = [trace for trace in figure.data if trace.name == "best under the limit"]
    assert marked[0].x == (1,)
    line = next(trace for trace in figure.data if trace.customdata is not None)
    assert list(line.marker.symbol) == ["circle", "circle-open"]


def test_a_throughput_curve_has_no_latency_line() -> None:
    info = curve_info([point(1, p50=0.001, throughput=9)], x=BATCH, y="throughput", line_s=0.002)
    assert info.line is None


def test_series_differ_in_dash_and_marker_and_not_only_in_colour() -> None:
    points = [
        point(1, p50=0.001, p95=0.002, throughput=1),
        point(2, p50=0.002, p95=0.004, throughput=1),
    ]
    lines = [
        t for t in curve(curve_info(points, x=BATCH, y=["p50_s", "p95_s"])).data if t.customdata is not None
    ]
    assert len({line.line.dash for line in lines}) == 2
    assert len({line.marker.symbol[0] for line in lines}) == 2
    assert len({line.line.color for line in lines}) == 2


@pytest.mark.parametrize("background", ["#FFFFFF", "#0F172A"])
def test_the_palette_stands_out_on_light_and_on_dark(background: str) -> None:
    for color in PALETTE:
        assert contrast(color, background) >= 3.0, color


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours. Source: WCAG 2."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# --- profiles ------------------------------------------------------------------------------------------


def node(name: str, op_type: str, self_s: float, **changes: Any) -> NodeTime:
    facts: dict[str, Any] = {
        "name": name,
        "op_type": op_type,
        "provider": "CPUExecutionProvider",
        "node_index": 0,
        "path": (),
        "inserted": False,
        "calls": 10,
        "calls_per_run": 1.0,
        "self_s": self_s,
        "inclusive_s": self_s,
        "total_s": self_s * 10,
        "min_s": self_s,
        "median_s": self_s,
        "share": self_s,
        "inputs": (),
        "outputs": (),
        "parameter_bytes": 0,
        "activation_bytes": 0,
        "output_bytes": 0,
    }
    return NodeTime(**(facts | changes))


def profile(nodes: list[NodeTime], spans: list[Span] | None = None, **changes: Any) -> Profile:
    ordered = tuple(sorted(nodes, key=lambda one: -one.self_s))
    facts: dict[str, Any] = {
        "nodes": ordered,
        "runs": 10,
        "skipped_runs": 0,
        "run_s": (1.2,) * 10,
        "execute_s": 1.1,
        "self_s": sum(one.self_s for one in nodes),
        "remainder_s": 0.2,
        "parallel": False,
        "model_loading_s": 0.1,
        "session_initialization_s": 0.1,
        "truncated": False,
        "dropped_events": 0,
        "events": 100,
        "ignored_events": 0,
        "timeline": tuple(spans or ()),
        "timeline_run": 4,
        "timeline_omitted": 0,
    }
    return Profile(**(facts | changes))


def span(op_type: str, start_s: float, duration_s: float, *, tid: int = 7, depth: int = 0) -> Span:
    return Span(
        name=op_type.lower(),
        op_type=op_type,
        provider="CPUExecutionProvider",
        tid=tid,
        depth=depth,
        start_s=start_s,
        duration_s=duration_s,
    )


MIXED = [
    node("c1", "Conv", 0.5, provider="CUDAExecutionProvider"),
    node("c2", "Conv", 0.25),
    node("cast", "Cast", 0.15, inserted=True),
    node("r", "Relu", 0.1),
]


def test_operators_are_summed_by_provider_and_inserted_ones_are_told_apart() -> None:
    info = operator_info(profile(MIXED), ProviderNames())
    assert [(bar.label, bar.series, round(bar.ms), bar.nodes) for bar in info] == [
        ("Conv", "CPUExecutionProvider", 250, 1),
        ("Conv", "CUDAExecutionProvider", 500, 1),
        ("Cast", f"CPUExecutionProvider · {INSERTED}", 150, 1),
        ("Relu", "CPUExecutionProvider", 100, 1),
    ]


def test_the_smallest_operators_are_summed_so_that_nothing_is_lost() -> None:
    many = [node(f"n{i}", f"Op{i:02}", 0.01 * (i + 1)) for i in range(30)]
    info = operator_info(profile(many), ProviderNames(), limit=5)
    assert len({bar.label for bar in info}) == 6
    assert info[0].label == "Op29"
    assert "25" in info[-1].label
    assert sum(bar.ms for bar in info) == pytest.approx(sum(one.self_s for one in many) * 1e3)
    nodes = node_info(profile(many), ProviderNames(), limit=5)
    assert "25" in nodes[-1].label
    assert sum(bar.ms for bar in nodes) == pytest.approx(sum(one.self_s for one in many) * 1e3)


def test_two_nodes_with_one_name_are_two_bars() -> None:
    info = node_info(profile([node("", "Conv", 0.2), node("", "Conv", 0.1)]), ProviderNames())
    assert len({bar.label for bar in info}) == 2


def test_providers_and_the_rest_between_the_nodes_make_up_a_run() -> None:
    one = profile(MIXED)
    info = provider_info(one, ProviderNames())
    assert info[-1].label == REST
    assert sum(bar.ms for bar in info) == pytest.approx((one.self_s + one.remainder_s) * 1e3)


def test_a_profile_that_fell_back_marks_the_cpu_as_the_fallback_in_every_chart() -> None:
    cpu_only = profile([one for one in MIXED if one.provider == "CPUExecutionProvider"])
    named = "CPUExecutionProvider — fallback, CUDA was requested"
    assert {bar.series for bar in provider_info(cpu_only, FELL_BACK)} == {named, REST}
    assert all(bar.series.startswith(named) for bar in operator_info(cpu_only, FELL_BACK))
    assert "CUDAExecutionProvider" not in bars(provider_info(cpu_only, FELL_BACK)).to_json()


def test_bars_have_units_patterns_and_the_longest_row_first() -> None:
    figure = bars(operator_info(profile(MIXED), ProviderNames()))
    assert "(ms)" in figure.layout.xaxis.title.text
    assert figure.layout.yaxis.ticktext[0] == "Conv"
    bottom, top = figure.layout.yaxis.range
    assert bottom > top
    assert len({(t.marker.color, t.marker.pattern.shape) for t in figure.data}) == len(figure.data)
    assert "500.0 ms" in figure.to_json()


def test_the_timeline_has_a_lane_per_thread_and_depth() -> None:
    spans = [
        span("If", 0.0, 0.5),
        span("MatMul", 0.1, 0.3, depth=1),
        span("Add", 0.5, 0.1),
        span("Conv", 0.2, 0.2, tid=9),
    ]
    info = timeline_info(profile(MIXED, spans), ProviderNames())
    first, inside, second = info.lanes
    assert [numbers(lane) for lane in (first, second)] == [[1], [2]]
    assert inside.startswith(f"{first} ")
    lanes = {bundle.op_type: bundle.lane for bundle in info.bundles}
    assert lanes == {"If": [0], "MatMul": [1], "Conv": [2], "Add": [0]}
    assert info.total_ms == pytest.approx(1200)
    (matmul,) = (bundle for bundle in info.bundles if bundle.op_type == "MatMul")
    assert matmul.start_ms == pytest.approx([100])
    assert matmul.ms == pytest.approx([300])


def test_a_timeline_of_many_spans_keeps_the_longest_and_counts_the_rest() -> None:
    spans = [span(f"Op{i % 40}", i * 1e-4, 1e-5 * (1 + i % 100)) for i in range(12_000)]
    info = timeline_info(profile(MIXED, spans, timeline_omitted=500), ProviderNames())
    assert info.drawn == profile_charts.MAX_TIMELINE_SPANS
    assert info.omitted == 7_500
    assert len(info.bundles) == profile_charts.MAX_TIMELINE_TYPES + 1
    assert info.bundles[-1].op_type == profile_charts.OTHER or "other" in {b.op_type for b in info.bundles}
    figure = timeline(info)
    assert sum(len(trace.x) for trace in figure.data) == info.drawn
    assert len(figure.to_json()) < 3_000_000


def test_medians_replace_means_and_their_shares_add_up() -> None:
    stalled = [node("a", "Conv", 0.5, median_s=0.1), node("b", "Relu", 0.3, median_s=0.3)]
    usual = with_medians(profile(stalled, run_s=(0.5, 0.5, 3.0)))
    assert [one.name for one in usual.nodes] == ["b", "a"]
    assert sum(one.share for one in usual.nodes) == pytest.approx(1.0)
    assert usual.self_s == pytest.approx(0.4)
    assert usual.remainder_s == pytest.approx(0.1)
    assert skew(profile(stalled, run_s=(0.5, 0.5, 3.0))) == pytest.approx(4 / 3 / 0.5)
    assert with_medians(profile([], run_s=())).self_s == 0


def test_a_profile_without_a_timeline_still_draws() -> None:
    assert timeline_info(profile([], run_s=()), ProviderNames()).lanes == []
    timeline(timeline_info(profile([], run_s=()), ProviderNames()))
    bars(operator_info(profile([]), ProviderNames()))


@pytest.mark.parametrize("name", ["chain", "if", "loop", "parallel", "fp16_cpu"])
def test_a_recorded_profile_of_onnx_runtime_is_drawn_without_losing_time(name: str) -> None:
    recorded = parse_profile(DATA / f"profile_1.31.1_{name}.json")
    for info in (operator_info(recorded, ProviderNames()), node_info(recorded, ProviderNames())):
        assert sum(bar.ms for bar in info) == pytest.approx(recorded.self_s * 1e3)
        json.loads(bars(info).to_json())
    assert timeline_info(recorded, ProviderNames()).drawn == len(recorded.timeline)


def test_the_body_of_an_if_has_a_lane_below_its_thread() -> None:
    recorded = parse_profile(DATA / "profile_1.31.1_if.json")
    first, inside = timeline_info(recorded, ProviderNames()).lanes[:2]
    assert inside.startswith(f"{first} ")


def test_ticks_of_a_log_axis_are_round_and_reach_around_the_values():
    assert log_ticks([0.03, 0.8]) == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    assert log_ticks([1.0, 100.0]) == pytest.approx([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0])


def test_a_figure_takes_nothing_from_a_theme_and_every_axis_makes_room_for_its_text() -> None:
    layout = json.loads(base_figure(x_title="Ratio", y_title="").to_json())["layout"]
    assert layout["font"]["family"]
    assert "xaxis" not in layout["template"].get("layout", {})
    assert layout["xaxis"]["automargin"] is True
    assert layout["yaxis"]["automargin"] is True


def test_the_layout_is_as_the_updates_of_plotly_make_it() -> None:
    """They take about ten times as long, so pages do not use them."""
    ours, theirs = (base_figure(x_title="Ratio", y_title="Time") for _ in range(2))
    lay_out(
        ours,
        yaxis={"range": [0, 2]},
        margin={"t": 0},
        showlegend=False,
        shapes=[line_at(1.0, of="y", color="#000000", dash="dot"), band(0.5, 2.0, of="x", color="#FF0000")],
    )
    theirs.add_hline(y=1.0, line={"color": "#000000", "dash": "dot"})
    theirs.add_vrect(x0=0.5, x1=2.0, fillcolor="#FF0000", line_width=0, layer="below")
    theirs.update_layout(yaxis={"range": [0, 2]}, margin={"t": 0}, showlegend=False)
    assert ours.to_plotly_json() == theirs.to_plotly_json()
