"""A stored result as rows of text: each number with how sure it is, the baseline beside it, what really ran.

No Streamlit: what stands here is tested as text. `results` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core import measurement
from core import spec as specs
from core.errors import TunerError
from core.knobs import KNOBS
from core.measurement import Trial
from dashboard import format

Result = Mapping[str, Any]
DeltaColor = Literal["inverse", "normal", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number on the screen. `change` is relative to the baseline, None where there is none."""

    label: str
    value: str
    note: str
    help: str
    change: float | None = None
    color: DeltaColor = "off"  # "off" unless the two intervals are apart: grey is not a verdict
    change_note: str = ""


PERCENTILE_HELP = (
    "Nearest-rank percentile of all timed runs. The interval allows for runs that resemble their "
    "neighbours; it "
    "covers what moved within this trial, not what differs from one trial to the next."
)


def cells(result: Result, baseline: Result | None) -> list[Cell]:
    """Return the numbers of `result` in the order of the screen."""
    return [
        *(_percentile(name, result, baseline) for name in ("p50_s", "p90_s", "p95_s", "p99_s")),
        _mean(result, baseline),
        _deviation(result),
        _throughput(result, baseline),
        *(_single(one, result, baseline) for one in SINGLES),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A number that a trial has once, without an interval."""

    label: str
    name: str
    text: Callable[[float | None], str]
    help: str
    compare: Literal["always", "per row", "same rows"] = "always"
    missing: str = ""


SINGLES = (
    Single(
        label="CPU time",
        name="cpu_s_per_inference",
        text=format.ms,
        help="User and system time per run, all threads, spinning included.",
        compare="per row",
    ),
    Single(
        label="Session creation",
        name="session_creation_s",
        text=format.ms,
        help="Loading the model and optimizing its graph.",
    ),
    Single(
        label="First run",
        name="first_run_s",
        text=format.ms,
        help="The very first run, with allocations and lazy set-up.",
        compare="same rows",
    ),
    Single(
        label="Peak memory",
        name="peak_rss_bytes",
        text=format.size,
        help="Largest resident memory of the worker above its level before the model was loaded.",
    ),
    Single(
        label="GPU memory",
        name="gpu_memory_bytes",
        text=format.size,
        help="Of the worker process, as the driver counts it (NVML).",
        missing="no GPU in use",
    ),
)


def _single(one: Single, result: Result, baseline: Result | None) -> Cell:
    value = result.get(one.name)
    change, note = _single_change(one, result, baseline or {})
    return Cell(
        label=one.label,
        value=one.text(value),
        note="one value, no interval" if value is not None else one.missing,
        help=one.help,
        change=change,
        change_note=note,
    )


def _single_change(one: Single, result: Result, baseline: Result) -> tuple[float | None, str]:
    value, other = result.get(one.name), baseline.get(one.name)
    if value is None or not other:
        return None, ""
    rows, other_rows = result["batch_size"] or 1, baseline["batch_size"] or 1
    if one.compare == "always" or rows == other_rows:
        return value / other - 1, ""
    if one.compare == "same rows":
        return None, ""
    return (value / rows) / (other / other_rows) - 1, "per row"


def _percentile(name: str, result: Result, baseline: Result | None) -> Cell:
    latency = result["latency"]
    label = f"{name.removesuffix('_s')} latency"
    if latency.get(name) is None:
        needed = latency.get("needs_runs", {}).get(name)
        return Cell(
            label=label,
            value=f"needs {needed} runs" if needed else format.DASH,
            note=f"{result['runs']} were made",
            help=f"{PERCENTILE_HELP} With fewer runs the largest sample says nothing about this percentile.",
        )
    change, color, note = _change(_span(result, name), _span(baseline, name), lower_is_better=True)
    return Cell(
        label=label,
        value=format.ms(latency[name]),
        note=format.interval_ms(latency[f"{name}_low"], latency[f"{name}_high"]),
        help=PERCENTILE_HELP,
        change=change,
        color=color,
        change_note=note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A value per row of the batch, and its interval."""

    value: float
    low: float | None
    high: float | None
    rows: int


def _span(result: Result | None, name: str) -> _Span | None:
    if result is None or result["latency"].get(name) is None:
        return None
    rows, latency = result["batch_size"] or 1, result["latency"]
    low, high = latency.get(f"{name}_low"), latency.get(f"{name}_high")
    return _Span(
        value=latency[name] / rows,
        low=None if low is None else low / rows,
        high=None if high is None else high / rows,
        rows=rows,
    )


def _change(
    own: _Span | None, other: _Span | None, *, lower_is_better: bool
) -> tuple[float | None, DeltaColor, str]:
    """Return the relative change, its colour, and words on how far to trust it."""
    if own is None or other is None or other.value == 0:
        return None, "off", ""
    change = own.value / other.value - 1 if lower_is_better else other.value / own.value - 1
    rows_differ = lower_is_better and own.rows != other.rows  # a throughput is per row anyway
    if own.low is None or own.high is None or other.low is None or other.high is None:
        return change, "off", "no interval"
    if own.low <= other.high and other.low <= own.high:
        return change, "off", "within noise"
    return change, "inverse" if lower_is_better else "normal", "per row" if rows_differ else "vs baseline"


def _mean(result: Result, baseline: Result | None) -> Cell:
    latency = result["latency"]
    change, color, note = _change(_span(result, "mean_s"), _span(baseline, "mean_s"), lower_is_better=True)
    return Cell(
        label="Mean latency",
        value=format.ms(latency["mean_s"]),
        note=format.interval_ms(latency.get("mean_s_low"), latency.get("mean_s_high")),
        help=f"Over {result['runs']} runs in a row, nothing left out.",
        change=change,
        color=color,
        change_note=note,
    )


def _deviation(result: Result) -> Cell:
    latency = result["latency"]
    return Cell(
        label="Standard deviation",
        value=format.ms(latency["std_s"], 3),
        note=(
            f"{format.significant(latency['min_s'] * 1e3)} to "
            f"{format.significant(latency['max_s'] * 1e3)} in all"
        ),
        help="Spread of the single runs, with the fastest and the slowest of them.",
    )


def _throughput(result: Result, baseline: Result | None) -> Cell:
    change, color, note = _change(_span(result, "mean_s"), _span(baseline, "mean_s"), lower_is_better=False)
    rows = result["batch_size"]
    latency = result["latency"]
    low, high = latency.get("mean_s_low"), latency.get("mean_s_high")
    interval = "interval unknown: too few runs"
    if high:
        upper = f" to {format.significant(rows / low)}" if low else " or more"
        interval = f"{format.significant(rows / high)}{upper} (95 %)"
    return Cell(
        label="Throughput",
        value=format.rate(result["throughput_per_s"]),
        note=interval,
        help=(
            f"{rows} row{'s' if rows != 1 else ''} really fed per run, over the time inside the runs; "
            f"one caller at a time."
        ),
        change=change,
        color=color,
        change_note=note,
    )


def verdict(result: Result, baseline: Result) -> tuple[bool, str]:
    """Return whether two results are clearly apart, and what may be said about them."""
    contrast = measurement.contrast(result, baseline)
    if contrast is None:
        return False, "No p50 on one of the two sides: make more runs to compare them."
    if contrast.why_not:
        return False, f"These two cannot be compared: {contrast.why_not}."
    caution = "One run each is not a verdict: what differs from one trial to the next is not in it."
    ratio, low, high = contrast.ratio, contrast.ratio_low, contrast.ratio_high
    if not contrast.clear:
        return (
            False,
            f"Within the noise of these two runs: p50 per row {ratio:.2f}× as fast as the baseline"
            f"{_ratio_span(low, high)}. {caution}",
        )
    if ratio < 1:  # say how much slower, not how little of the speed is left
        ratio, low, high = 1 / ratio, high and 1 / high, low and 1 / low
    word = "faster" if contrast.ratio > 1 else "slower"
    return True, f"p50 per row {ratio:.2f}× {word} than the baseline{_ratio_span(low, high)}. {caution}"


def _ratio_span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" (95 % interval {low:.2f}× to {high:.2f}×)"


def comparable(result: Result, baseline: Result) -> bool:
    """True when the two may be put against each other at all: the same machine and libraries."""
    contrast = measurement.contrast(result, baseline)
    return contrast is None or not contrast.why_not


def comparison(trial: Trial, baseline: Trial) -> list[dict[str, str]]:
    """Return rows {what, this, baseline}: settings that differ first, then the numbers."""
    rows = _setting_rows(trial, baseline)
    for own, other in zip(cells(trial.result or {}, None), cells(baseline.result or {}, None), strict=True):
        rows.append({"": own.label, "This result": own.value, "Baseline": other.value})
    return rows


def _setting_rows(trial: Trial, baseline: Trial) -> list[dict[str, str]]:
    try:
        own, other = specs.spec_from_dict(trial.spec), specs.spec_from_dict(baseline.spec)
    except TunerError:
        return []
    rows = []
    for setting in KNOBS:
        a, b = specs.effective(own, setting.name), specs.effective(other, setting.name)
        if a != b:
            rows.append({"": setting.label, "This result": format.value(a), "Baseline": format.value(b)})
    return rows


def placement_rows(result: Result) -> list[dict[str, Any]]:
    """Return one row per provider that was asked for or took part: loaded, nodes, time, share of time."""
    placement: Mapping[str, Mapping[str, Any]] = result.get("placement") or {}
    total = sum(float(part.get("time_s") or 0) for part in placement.values())
    names = dict.fromkeys([*result["requested_providers"], *result["effective_providers"], *placement])
    rows = []
    for name in names:
        part = placement.get(name, {})
        time_s = part.get("time_s")
        rows.append(
            {
                "Provider": format.provider(name),
                "Asked for": "yes" if name in result["requested_providers"] else "no, ORT adds it",
                "Loaded": "yes" if name in result["effective_providers"] else "no",
                "Nodes": int(part.get("nodes") or 0) if placement else None,
                "After fusion": int(part.get("ran_nodes") or 0) if placement else None,
                "Time per run (ms)": None if time_s is None else float(time_s) * 1e3,
                "Share of node time": None if time_s is None or not total else float(time_s) / total,
            }
        )
    return rows


def cast_lines(casts: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return icon and words on the Casts of an FP16 copy, and on the precision that it computed in."""
    if not casts:
        return []
    lines = []
    if casts["inserted_casts"]:
        words = (
            f"ONNX Runtime inserted {casts['inserted_casts']} Cast nodes: "
            f"{format.ms(casts['inserted_cast_s'])} per run, "
            f"{casts['inserted_cast_share']:.0%} of the node time."
        )
        lines.append((":material/swap_horiz:", words))
    if casts["computes_in_float32"]:
        operators = ", ".join(f"{count} {name}" for name, count in casts["float32_ops"].items())
        words = f"Computed in FP32 although the model is FP16: {operators}."
        lines.append((":material/warning:", f"{words} This provider gains nothing from FP16."))
    return lines
