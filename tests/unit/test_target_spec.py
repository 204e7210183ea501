"""Targets as they are written: limits with units, what makes no sense, and the way through YAML and back."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.comparison import same_request
from core.spec import TrialSpec, spec_from_dict, spec_from_yaml, yaml_from_spec
from core.spec.metrics import METRICS, Metric, MetricName
from core.spec.targets import TargetSpec, limit_text, parse_limit, target_from_dict
from core.wire.errors import SpecError

MEASURABLE = st.sampled_from(list(METRICS.values()))


def limit_key(metric: Metric) -> str:
    return "at_most" if metric.smaller_is_better else "at_least"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("latency_p99", "3 ms", 0.003),
        ("latency_p99", "3e-3 s", 0.003),
        ("latency_p99", "250us", 0.00025),
        ("latency_p99", "250 µs", 0.00025),
        ("latency_p50", "1.5S", 1.5),
        ("throughput", "2,000/s", 2000.0),
        ("throughput", "2000 rows/s", 2000.0),
        ("throughput", "2000", 2000.0),
        ("peak_rss", "100 MB", 100e6),
        ("peak_rss", "100MiB", 100.0 * 2**20),
        ("model_size", "1.5 kb", 1500.0),
        ("sensitivity", "98 %", 0.98),
        ("sensitivity", "0.98", 0.98),
        ("roc_auc", "0.99", 0.99),
        ("output_error", "2e-2", 0.02),
        ("cpu_s", ".5 ms", 0.0005),
    ],
)
def test_limits_are_read_in_their_units(name: str, text: str, expected: float) -> None:
    assert parse_limit(METRICS[name], text) == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("latency_p99", "fast", "a number with a unit"),
        ("latency_p99", "3 MB", "no unit `MB`"),
        ("latency_p99", "3 mss", "Did you mean `ms`?"),
        ("latency_p99", "", "a number with a unit"),
        ("latency_p99", "3 ms 4", "no unit `ms 4`"),
        ("latency_p99", "3", "needs a unit: s, ms, µs"),
        ("cpu_s", "0.003", "needs a unit"),
        ("peak_rss", "100", "needs a unit"),
        ("latency_p99", "-3 ms", "a number with a unit"),
        ("throughput", "98 %", "no unit `%`"),
        ("roc_auc", "99 %", "no unit `%`"),
        ("peak_rss", "1,00 MB", "no unit"),
    ],
)
def test_limits_that_cannot_be_read_are_refused(name: str, text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_limit(METRICS[name], text)
    assert words in caught.value.message
    assert METRICS[name].example in caught.value.hint


@given(MEASURABLE, st.floats(min_value=1e-9, max_value=1e15))
def test_a_limit_as_text_is_read_back_exactly(metric: Metric, value: float) -> None:
    assert parse_limit(metric, limit_text(metric, value)) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency_p99", 0.003, "3 ms"),
        ("latency_p99", 0.00025, "250 µs"),
        ("latency_p99", 2.0, "2 s"),
        ("peak_rss", 100e6, "100 MB"),
        ("peak_rss", 100.0 * 2**20, "100 MiB"),
        ("throughput", 2000.0, "2000/s"),
        ("sensitivity", 0.98, "98 %"),
        ("roc_auc", 0.99, "0.99"),
    ],
)
def test_a_limit_is_written_as_people_do(name: str, value: float, text: str) -> None:
    assert limit_text(METRICS[name], value) == text


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_example_of_every_metric_is_a_target(metric: Metric) -> None:
    target = target_from_dict({"metric": metric.name, limit_key(metric): metric.example})
    assert target.limit == parse_limit(metric, metric.example)
    assert target.what == metric.title
    assert metric.help.endswith(".")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"metric": "latency_p98", "at_most": 1}, "no metric `latency_p98`. Did you mean"),
        ({"metric": "latency_p99"}, "has no limit"),
        ({"metric": "latency_p99", "at_least": "3 ms"}, "better when it is smaller"),
        ({"metric": "throughput", "at_most": 5}, "better when it is larger"),
        ({"metric": "latency_p99", "at_most": 0}, "above 0"),
        ({"metric": "latency_p99", "at_most": -1}, "above 0"),
        ({"metric": "latency_p99", "at_most": float("inf")}, "above 0"),
        ({"metric": "latency_p99", "at_most": float("nan")}, "above 0"),
        ({"metric": "accuracy", "at_least": 98}, "at most 1"),
        ({"metric": "accuracy", "at_least": "98 %", "batch_size": 8}, "`batch_size` does not apply"),
        ({"metric": "latency_p99", "at_most": 1, "threshold": 0.5}, "`threshold` does not apply"),
        ({"metric": "accuracy", "at_least": 0.9, "positive_class": 3}, "`positive_class` does not apply"),
        (
            {"metric": "latency_p99", "at_most": 1, "batch_size": 0},
            "Batch size must be 1 to 1,048,576; got 0.",
        ),
        (
            {"metric": "sensitivity", "at_least": 0.9, "threshold": 1.5},
            "`threshold` must be 0 to 1; got 1.5.",
        ),
        ({"metric": "sensitivity", "at_least": 0.9, "positive_class": -1}, "number from 0"),
        ({"metric": "latency_p99", "at_most": True}, "at_most"),
        ({"metric": "latency_p99", "at_most": 1, "batch": 8}, "Unknown key `batch`"),
        ({"metric": ["latency_p99"], "at_most": 1}, "metric"),
        ({"at_most": 1}, "`metric` is missing"),
    ],
)
def test_targets_that_make_no_sense_are_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        target_from_dict(data)
    assert words in caught.value.message
    assert caught.value.hint


def spec_with(*targets: dict[str, Any], **more: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}, "targets": list(targets), **more})


def test_targets_go_through_yaml_and_back_with_their_units() -> None:
    spec = spec_with(
        {"metric": "latency_p99", "at_most": "3 ms", "batch_size": 1},
        {"metric": "peak_rss", "at_most": 100_000_000},
        {"metric": "sensitivity", "at_least": 0.98, "positive_class": 3, "threshold": 0.6},
        {"metric": "roc_auc", "at_least": 0.99, "positive_class": "malignant"},
    )
    text = yaml_from_spec(spec)
    assert "at_most: 3 ms" in text
    assert "at_most: 100 MB" in text
    assert "at_least: 98 %" in text
    assert "null" not in text
    assert spec_from_yaml(text) == spec
    assert spec_from_dict(spec.to_dict()) == spec


@given(st.lists(st.tuples(MEASURABLE, st.floats(min_value=1e-6, max_value=1)), max_size=8))
def test_any_targets_survive_yaml(asked: list[tuple[Metric, float]]) -> None:
    distinct = {metric.name: {"metric": metric.name, limit_key(metric): limit} for metric, limit in asked}
    spec = spec_with(*distinct.values())
    assert spec_from_yaml(yaml_from_spec(spec)) == spec


def test_targets_are_no_part_of_what_is_measured() -> None:
    spec = spec_with({"metric": "latency_p99", "at_most": "3 ms"})
    plain = spec_with()
    assert spec.key() == plain.key()
    assert same_request(spec, plain)


def test_two_limits_on_the_same_thing_are_refused() -> None:
    one = {"metric": "latency_p99", "at_most": "3 ms", "batch_size": 1}
    with pytest.raises(SpecError, match="p99"):
        spec_with(one, {**one, "at_most": "4 ms"})
    assert len(spec_with(one, {**one, "batch_size": 8}).targets) == 2


def test_too_many_targets_are_refused() -> None:
    with pytest.raises(SpecError, match="50 targets"):
        spec_with(*({"metric": "latency_p99", "at_most": 1, "batch_size": size} for size in range(1, 52)))


def test_a_target_says_what_it_is_about() -> None:
    target = TargetSpec(metric="sensitivity", at_least=0.98, positive_class=3, threshold=0.6)
    assert f"{target.what} {target.limit_words}" == "sensitivity of class 3 at threshold 0.6 ≥ 98 %"


def test_the_example_file_is_a_configuration_with_targets() -> None:
    from core.wire.files import ROOT

    spec = spec_from_yaml((ROOT / "sample_models" / "digits_scorecard.yaml").read_text())
    assert {one.about.source for one in spec.targets} == {"race", "accuracy", "file"}
    assert spec.dataset is not None


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_row_of_the_table_has_all_words_of_its_uses(metric: Metric) -> None:
    in_a_result = metric.source == "race"
    assert bool(metric.field) is in_a_result
    assert bool(metric.objective) is bool(metric.short) is bool(metric.better) is bool(metric.worse)
    assert bool(metric.column) is bool(metric.key)
    assert bool(metric.label) is bool(metric.tile_help)
    assert not (metric.by_rounds and not in_a_result)
    assert not (metric.objective and metric.source == "accuracy")


def test_names_of_metrics_are_unique() -> None:
    assert list(METRICS) == list(get_args(MetricName))
    for names in ([one.short for one in METRICS.values()], [one.key for one in METRICS.values()]):
        known = [name for name in names if name]
        assert len(set(known)) == len(known)
