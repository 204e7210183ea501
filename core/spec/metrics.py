"""The table of metrics: every number that a target can limit or a search can optimize.

A row names the number in a result, its unit and direction, and its words. Targets, objectives, columns,
tiles and charts derive from it. Internal units are seconds, bytes, samples per second and shares of 1. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MetricName = Literal[
    "latency_p50",
    "latency_mean",
    "latency_p95",
    "latency_p99",
    "throughput",
    "cpu_s",
    "peak_rss",
    "model_size",
    "accuracy",
    "top5",
    "sensitivity",
    "specificity",
    "roc_auc",
    "output_error",
]
# "share": of 1, shown in %. "number": without a unit; a limit is a share of 1 or a percentage
Quantity = Literal["time", "rate", "size", "share", "number"]
Source = Literal["race", "accuracy", "file", "load"]

SHOWN_UNITS: Mapping[Quantity, tuple[float, str]] = {  # a shown unit in SI units, and its name
    "time": (1e-3, "ms"),
    "rate": (1.0, "samples/s"),
    "size": (1 << 20, "MiB"),
    "share": (0.01, "%"),
    "number": (1.0, ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a configuration."""

    name: MetricName | Literal["load"]
    title: str  # "p99 latency"
    quantity: Quantity
    source: Source  # the job that measures it
    help: str
    smaller_is_better: bool = True  # decides between `at_most` and `at_least`
    field: str = ""  # its place in a result: "latency.p99_s"; empty: not in a result
    by_rounds: bool = False  # a search compares it by the ratios within rounds; else by this number
    under_load: bool = False  # background load makes it worse

    example: str  # of the limit of a target
    at_batch: bool = False  # a target applies at a batch size
    at_threshold: bool = False  # a target applies at a decision threshold
    of_class: bool = False  # a target applies to one class against the rest

    objective: str = ""  # of a search: "lowest p99 latency"; empty: none
    short: str = ""  # name on the command line
    better: str = ""  # words of a ratio: "less CPU time per sample"
    worse: str = ""
    per_sample: bool = False  # the objective is per sample, so that the batch size may vary

    label: str = ""  # of its tile; empty: none
    tile_help: str = ""
    column: str = ""  # in tables; empty: none
    key: str = ""  # of its column in files

    def value(self, result: Mapping[str, Any]) -> float | None:
        """Return the number in a result; None: not measured."""
        found: Any = result
        for name in self.field.split("."):
            found = (found or {}).get(name)
        number: float | None = found
        return number


def _latency(name: MetricName, title: str, short: str, help_: str) -> Metric:
    statistic = name.removeprefix("latency_")
    return Metric(
        name=name,
        title=title,
        quantity="time",
        source="race",
        help=f"{help_} of the time from passing the inputs to receiving the outputs.",
        field=f"latency.{statistic}_s",
        by_rounds=True,
        under_load=True,
        example="3 ms",
        at_batch=True,
        objective=f"lowest {title}",
        short=short,
        better="faster",
        worse="slower",
    )


def _accuracy(
    name: MetricName, title: str, help_: str, *, at_threshold: bool = False, of_class: bool = False
) -> Metric:
    return Metric(
        name=name,
        title=title,
        quantity="number" if name == "roc_auc" else "share",
        smaller_is_better=False,
        source="accuracy",
        help=help_,
        example="0.99" if name == "roc_auc" else "98 %",
        at_threshold=at_threshold,
        of_class=of_class,
    )


METRICS: Mapping[str, Metric] = {
    one.name: one
    for one in (
        _latency("latency_p50", "p50 latency", "p50", "Median"),
        _latency("latency_mean", "mean latency", "mean", "Trimmed mean over launches"),
        _latency("latency_p95", "p95 latency", "p95", "95th percentile"),
        _latency("latency_p99", "p99 latency", "p99", "99th percentile"),
        Metric(
            name="throughput",
            title="throughput",
            quantity="rate",
            smaller_is_better=False,
            source="race",
            help="Samples per second of one caller that passes the next batch as soon as the last one is "
            "done.",
            field="throughput_per_s",
            by_rounds=True,
            under_load=True,
            example="2000/s",
            at_batch=True,
            objective="highest throughput",
            short="throughput",
            better="more samples/s",
            worse="fewer samples/s",
            per_sample=True,
            column="samples/s",
            key="rows_per_s",
        ),
        Metric(
            name="cpu_s",
            title="CPU time",
            quantity="time",
            source="race",
            help="CPU time of an inference, over all threads.",
            field="cpu_s_per_inference",
            under_load=True,
            example="5 ms",
            at_batch=True,
            objective="lowest CPU time per sample",
            short="cpu",
            better="less CPU time per sample",
            worse="more CPU time per sample",
            per_sample=True,
            label="CPU time",
            tile_help="User and system time of all threads, including spinning.",
            column="CPU",
            key="cpu_ms",
        ),
        Metric(
            name="peak_rss",
            title="peak memory added by the session",
            quantity="size",
            source="race",
            help="Memory that loading and running the model add to a process that has ONNX Runtime loaded.",
            field="peak_rss_bytes",
            example="100 MiB",
            at_batch=True,
            objective="lowest peak memory added by the session",
            short="memory",
            better="less peak memory",
            worse="more peak memory",
            label="Session memory",
            tile_help="Peak resident memory of a run, minus the level before the model was loaded. The peak "
            "of the whole process includes Python and ONNX Runtime.",
            column="peak memory",
            key="peak_rss_bytes",
        ),
        Metric(
            name="model_size",
            title="model size",
            quantity="size",
            source="file",
            help="Size of the model's file with its external data.",
            example="10 MiB",
            objective="smallest model",
            short="size",
            better="smaller",
            worse="larger",
        ),
        _accuracy("accuracy", "accuracy", "Share of the samples whose top class is the label."),
        _accuracy(
            "top5", "top-5 accuracy", "Share of the samples whose label is among the top five classes."
        ),
        _accuracy(
            "sensitivity",
            "sensitivity",
            "Share of the samples of the class that are recognized (recall, true positive rate).",
            at_threshold=True,
            of_class=True,
        ),
        _accuracy(
            "specificity",
            "specificity",
            "Share of the samples of other classes that are not assigned to the class (true negative rate).",
            at_threshold=True,
            of_class=True,
        ),
        _accuracy(
            "roc_auc",
            "ROC AUC",
            "Area under the ROC curve: how well the scores separate the class from the rest.",
            of_class=True,
        ),
        Metric(
            name="output_error",
            title="output error",
            quantity="number",
            source="race",
            help="Largest difference from the original in FP32 without optimizations on the same "
            "inputs, as a share of the largest magnitude of that output.",
            field="output_error.max_rel",
            example="0.02",
            at_batch=True,
        ),
    )
}
# What a target under load limits: `p99<=20ms` allows 1 % of the requests to be slower. It is no row of the
# table, because its limit is given together with the rate.
UNDER_LOAD = Metric(
    name="load",
    title="latency under load",
    quantity="share",
    source="load",
    help="Requests per second that arrive independently of each other (Poisson), each of the configuration's "
    "batch size, and the largest latency of a percentile of them, from the scheduled arrival.",
    under_load=True,
    example="200/s with p99<=20ms",
)
OBJECTIVES: Mapping[str, str] = {  # metric -> the objective of a search in words
    one.name: one.objective for one in METRICS.values() if one.objective
}
BY_ROUNDS: tuple[str, ...] = tuple(one.name for one in METRICS.values() if one.by_rounds)
BY_PASSES = tuple(name for name in OBJECTIVES if name not in BY_ROUNDS)  # of a pass, or of the file
