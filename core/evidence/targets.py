"""Evaluation of targets: met, missed or not yet known, with the next step.

A target under load is judged by the verdict of a load test. Any other target is met if the whole 95 %
interval is inside the limit, and missed if it is outside. Otherwise, or without a measurement, it is not yet
known. Background load can only make times worse: a time that meets its target under background load is met,
one that does not is not yet known. Pure: stored results in, verdicts out; no clock, no file, no worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from core.evidence.load.load_types import Percentile
from core.evidence.load.target_points import Judged, LoadPoint, newest
from core.evidence.statistics import mean_estimate
from core.evidence.streams import latency_words, stream_count, throughput_interval
from core.evidence.verdict import is_rejected
from core.spec.load import LoadTarget
from core.spec.metrics import METRICS, SHOWN_UNITS, Metric
from core.spec.targets import TargetSpec
from core.wire.units import interval as interval_words
from core.wire.units import ms, significant, size, size_scale, span

State = Literal["MET", "MISSED", "UNKNOWN"]
Cause = Literal["", "missing", "failed", "rejected", "thin", "wide", "busy"]

STATE_WORDS: Mapping[State, str] = {"MET": "Met", "MISSED": "Missed", "UNKNOWN": "Not yet known"}
# Peaks of 20 equal processes each of digits_cnn, tiny_transformer and mobilenet_v3_small at batch 1 to 16
# were within 8 % of their median; without ONNX Runtime's arena within 23 %, because malloc varies more.
MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA = 0.10, 0.25
MOST_ROWS = 10_000_000  # above it, more samples are not recommended
_Z = 1.959963984540054  # 97.5 % of a standard normal variable lie below

Result = Mapping[str, Any]
Condition = tuple[int | str | None, float | None]  # positive class, threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measurements of one configuration on this machine.

    Attributes:
        batch_size: batch size of the configuration.
        results: batch size -> results of complete trials with their latencies, newest first.
        failures: requested batch size -> reason why the newest trial has no result.
        size_bytes: size of the model with external data.
        summaries: (positive class, threshold) of a target -> `run.accuracy.summary`.
        accuracy_failure: reason why there are none, where it is known.
        has_dataset: whether the configuration names labelled data.
        arena: whether the configuration keeps ONNX Runtime's CPU arena.
        loads: points of its load tests that speak for targets, newest first.
        load_failure: reason why the newest load test has no result; empty: it has.
    """

    batch_size: int
    results: Mapping[int, Sequence[Result]] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    size_bytes: int | None = None
    summaries: Mapping[Condition, Result] = field(default_factory=dict)
    accuracy_failure: str = ""
    has_dataset: bool = False
    arena: bool = True
    loads: Sequence[LoadPoint] = ()
    load_failure: str = ""

    def rows_of(self, target: TargetSpec) -> int:
        """Return the batch size of `target`."""
        return target.batch_size or self.batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """One target with its evaluation. Numbers are in the metric's unit; None: not known.

    Under load, the numbers are shares of requests that were slower; each bound alone has 95 % confidence.
    """

    target: TargetSpec
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None  # from the worse end of the interval to the limit; negative: beyond it
    why: str = ""  # explanation
    todo: str = ""  # one imperative sentence; empty: nothing to do
    cause: Cause = ""  # of UNKNOWN

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "target": self.target.model_dump(mode="json", exclude_none=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    value: float
    low: float | None
    high: float | None
    why: str
    busy: str = ""  # text on the background load, where it made this number worse


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """A missing reading."""

    cause: Cause
    why: str
    todo: str


def evaluate_target(target: TargetSpec, evidence: Measurements) -> TargetResult:
    """Evaluate `target`.

    A missing end of the interval counts as unbounded: without an upper bound, no upper limit is met.
    """
    if target.load is not None:
        return _under_load(target, target.load, evidence)
    found = _read(target, evidence)
    if isinstance(found, _Missing):
        return TargetResult(target=target, state="UNKNOWN", why=found.why, todo=found.todo, cause=found.cause)
    state, busy = _state(target, found), False
    if found.busy and state != "MET":
        state, busy = "UNKNOWN", True
    worse = found.high if target.about.smaller_is_better else found.low
    return TargetResult(
        target=target,
        state=state,
        value=found.value,
        low=found.low,
        high=found.high,
        margin=None if worse is None else _margin(target, worse),
        why=_why(found, state, busy=busy),
        todo=_BUSY_TODO if busy else _narrowing_advice(target, found, evidence) if state == "UNKNOWN" else "",
        cause="busy" if busy else "wide" if state == "UNKNOWN" else "",
    )


_BUSY_TODO = 'Measure again with "Wait for an idle machine" on, or on a dedicated machine.'


def _why(found: _Reading, state: State, *, busy: bool) -> str:
    if busy:
        return f"Measured {found.busy}, which can only make it worse. {found.why}"
    if state == "UNKNOWN":
        return f"The interval contains the limit. {found.why}"
    return f"{found.why} Measured {found.busy}." if found.busy else found.why


def overall(judged: Iterable[TargetResult]) -> State:
    """Return MISSED if any target is missed, else UNKNOWN if any is not known, else MET."""
    states = {one.state for one in judged}
    return "MISSED" if "MISSED" in states else "UNKNOWN" if "UNKNOWN" in states else "MET"


def _state(target: TargetSpec, found: _Reading) -> State:
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    if target.about.smaller_is_better:
        return "MET" if high <= target.limit else "MISSED" if low > target.limit else "UNKNOWN"
    return "MET" if low >= target.limit else "MISSED" if high < target.limit else "UNKNOWN"


def _margin(target: TargetSpec, worse: float) -> float:
    return target.limit - worse if target.about.smaller_is_better else worse - target.limit


def _narrowing_advice(target: TargetSpec, found: _Reading, evidence: Measurements) -> str:
    """Return advice that narrows an interval around the limit."""
    if target.about.source == "race":
        return "Measure longer: more effort and a larger budget narrow the interval."
    summary = evidence.summaries.get((target.positive_class, target.threshold), {})
    share = _of_summary(target, summary) or {}
    rows = rows_to_decide(found.value, target.limit, count=share.get("total") or 0)
    if rows is None:
        return "Use more labelled samples. The value is so close to the limit that very many are needed."
    return f"Use more labelled samples: about {rows:,} would decide it, if the share stays the same."


def rows_to_decide(share: float, limit: float, *, count: int) -> int | None:
    """Return the approximate number of rows that puts the Wilson interval of `share` on one side of `limit`.

    None: more than ten million, or the current number is not known.

    Source: Wilson (1927); the limit p0 leaves the interval when n (share - p0)² > z² p0 (1 - p0).
    """
    distance = abs(share - limit)
    if count <= 0 or distance**2 * MOST_ROWS < _Z**2 * limit * (1 - limit) or distance == 0:
        return None
    return max(count, math.ceil(_Z**2 * limit * (1 - limit) / distance**2)) + 1


# --- targets under load -------------------------------------------------------------------------------------

_LOAD_STATES: Mapping[str, State] = {"PASS": "MET", "FAIL": "MISSED", "UNDECIDED": "UNKNOWN"}


def _under_load(target: TargetSpec, asked: LoadTarget, evidence: Measurements) -> TargetResult:
    """Judge by the newest load test that is a measurement; on a busy machine it counts only if it passed."""
    gap: TargetResult | None = None
    for said in newest(asked, evidence.loads):
        found = _of_load(target, asked, said)
        if found.cause not in ("rejected", "failed", "busy"):
            return found
        gap = gap or found
    if gap is not None:
        return gap
    if why := evidence.load_failure:
        return TargetResult(
            target=target,
            state="UNKNOWN",
            why=f"It could not be measured: {why}",
            todo="Correct that, or remove the target.",
            cause="failed",
        )
    why = f"No load test at {asked.rate:,.6g} requests/s on this machine."
    return TargetResult(target=target, state="UNKNOWN", why=why, todo="Measure it.", cause="missing")


def _of_load(target: TargetSpec, asked: LoadTarget, said: Judged) -> TargetResult:
    point, limit = said.found.point, said.limit
    unknown = TargetResult(target=target, state="UNKNOWN")
    if point["outcome"] in ("failed", "cancelled"):
        why = said.found.reason or f"The load test was {point['outcome']}."
        return replace(unknown, why=why, todo="Measure it again.", cause="failed")
    if (harness := point["harness"]) is not None and not harness["accepted"]:
        why = f"Not a measurement: {harness['reason']}"
        todo = "Measure again on an idle machine."
        return replace(unknown, why=why, todo=todo, cause="rejected")
    found = replace(unknown, state=_LOAD_STATES[said.verdict], why=_load_words(asked, said))
    if limit is not None:
        low, high = limit["low"], limit["high"]
        margin_ = limit["allowed"] - high
        found = replace(found, value=limit["share"], low=low, high=high, margin=margin_)
    if said.verdict == "PASS":
        return replace(found, why=f"{found.why} Measured {said.found.busy}.") if said.found.busy else found
    if said.found.busy:
        why = f"Measured {said.found.busy}, which can only make it worse. {found.why}"
        return replace(found, state="UNKNOWN", why=why, todo=_BUSY_TODO, cause="busy")
    if said.verdict == "FAIL":
        return found
    return replace(found, todo="Measure longer: more requests narrow the bounds.", cause="wide")


def _load_words(asked: LoadTarget, said: Judged) -> str:
    """Return the numbers of a point: rate, share of slow requests, percentile."""
    point, limit = said.found.point, said.limit
    parts = [] if said.exact else [f"Measured at {point['rate_per_s']:,.6g} requests/s."]
    if point["outcome"] == "saturated":
        parts.append(said.found.reason or "Saturated: requests arrive faster than they are served.")
    if limit is not None:
        bound = f"at most {significant(100 * limit['high'], 3)} %"
        if limit["verdict"] == "FAIL":
            bound = f"at least {significant(100 * limit['low'], 3)} %"
        share = significant(100 * limit["share"], 3)
        counted = f"{share} % of {point['requests']:,} requests were slower"
        parts.append(f"{counted} ({bound}, 95 % confidence).")
    own = next((one for one in point["latency"] if math.isclose(one["p"], asked.limit.percentile)), None)
    return " ".join(parts if own is None else [*parts, _percentile_words(own)])


def _percentile_words(one: Percentile) -> str:
    name = f"p{100 * one['p']:.6g} was {ms(one['value_s'])}"
    if one["low_s"] is None or one["high_s"] is None:
        return f"{name}."
    return f"{name} ({interval_words(1e3 * one['low_s'], 1e3 * one['high_s'], 'ms')})."


# --- readings -----------------------------------------------------------------------------------------------


def _read(target: TargetSpec, evidence: Measurements) -> _Reading | _Missing:
    if target.about.source == "accuracy":
        return _from_accuracy(target, evidence)
    if target.about.source == "race":
        return _from_comparisons(target, evidence)
    if evidence.size_bytes is None:
        return _Missing(
            cause="missing", why="The size of the model is not known.", todo="Add the model again."
        )
    size = float(evidence.size_bytes)
    return _Reading(value=size, low=size, high=size, why="File size with external data; exact.")


def _from_comparisons(target: TargetSpec, evidence: Measurements) -> _Reading | _Missing:
    """Read the newest usable comparison at that batch size; one under load only if no other is usable."""
    rows = evidence.rows_of(target)
    gap: _Missing | None = None
    busy: _Reading | None = None
    for result in evidence.results.get(rows, ()):
        found = _from_comparison(target, result, arena=evidence.arena)
        if isinstance(found, _Missing):
            gap = gap or found
        elif found.busy and _state(target, found) != "MET":
            busy = busy or found  # an earlier comparison on an idle machine may decide
        else:
            return found
    if busy is not None or gap is not None:
        return busy or gap  # type: ignore[return-value] # one of them is there
    if why := evidence.failures.get(rows):
        return _Missing(
            cause="failed", why=f"It could not be measured: {why}", todo="Correct that, or remove the target."
        )
    return _Missing(
        cause="missing", why=f"Not measured at batch {rows:,} on this machine.", todo="Measure it."
    )


def _from_comparison(target: TargetSpec, result: Result, *, arena: bool) -> _Reading | _Missing:
    found = _of_result(target, result, arena=arena)
    if isinstance(found, _Missing) or not target.about.under_load:
        return found
    busy = result.get("busy") or {}
    return replace(found, busy=busy.get("words") or "")


def _of_result(target: TargetSpec, result: Result, *, arena: bool) -> _Reading | _Missing:
    one_process = result.get("generations") is None  # older version, which rejected busy comparisons
    if one_process and is_rejected(result) and target.about.under_load:
        reason = result.get("grade_reason") or "the A/A control failed."
        todo = result.get("remedy") or "Measure again on an idle machine."
        return _Missing(cause="rejected", why=f"The result is invalid (grade F): {reason}", todo=todo)
    if target.about.field.startswith("latency."):
        return _latency(target.about.field.removeprefix("latency."), result)
    if target.about.name == "peak_rss":
        return _memory(result, MEMORY_SPREAD if arena else MEMORY_SPREAD_WITHOUT_ARENA)
    own = _OF_A_COMPARISON.get(target.about.name)
    return _of_a_pass(target.about, result) if own is None else own(result)


def _latency(name: str, result: Result) -> _Reading | _Missing:
    latency = result.get("latency") or {}
    value = latency.get(name)
    if value is None:
        runs = (latency.get("needs_runs") or {}).get(name)
        rounds = (latency.get("needs_rounds") or {}).get(name)
        needed = " and ".join(
            f"{number:,} {what}" for number, what in ((runs, "runs"), (rounds, "rounds")) if number
        )
        why = f"The {result.get('runs') or 0:,} runs are too few for this percentile"
        why += f", which needs about {needed}." if needed else "."
        return _Missing(cause="thin", why=why, todo="Measure longer, with more effort.")
    low, high = latency.get(f"{name}_low"), latency.get(f"{name}_high")
    beside = "" if stream_count(result) == 1 else f", {latency_words(result)}"
    return _Reading(value=value, low=low, high=high, why=f"Of {result.get('runs') or 0:,} runs{beside}.")


def _throughput(result: Result) -> _Reading | _Missing:
    """Read the throughput: of streams over their common windows, else samples over the mean latency."""
    latency, rows = result.get("latency") or {}, result.get("batch_size")
    mean_s = latency.get("mean_s")
    if not mean_s or not rows:
        return _not_in_comparison("throughput")
    low, high = throughput_interval(result)
    value, runs = result.get("throughput_per_s"), result.get("runs") or 0
    if "throughput_per_s_low" in result and value:
        why = f"{rows:,} samples per run, counted in the common windows of {runs:,} runs."
        return _Reading(value=value, low=low, high=high, why=why)
    why = f"{rows:,} samples per run, divided by the mean latency of {runs:,} runs."
    return _Reading(value=rows / mean_s, low=low, high=high, why=why)


def _cpu(result: Result) -> _Reading | _Missing:
    """Read the CPU time; a result of an older version has the counters of the rounds, not their interval."""
    if "cpu_s_per_inference_low" not in result:
        counted = [one for one in result.get("blocks") or () if one["counters"].get("cpu_s") is not None]
        per_run = [one["counters"]["cpu_s"] / (one["runs"] + 1) for one in counted]
        if per_run and (spread := mean_estimate(per_run, [1] * len(per_run))) is not None:
            result = {
                **result,
                "cpu_s_per_inference_low": spread.low,
                "cpu_s_per_inference_high": spread.high,
            }
    return _of_a_pass(METRICS["cpu_s"], result)


def _of_a_pass(metric: Metric, result: Result) -> _Reading | _Missing:
    """Read the number of a pass, with the spread of the same counter between rounds.

    The pass gives one number without a spread. The blocks of the rounds may have the same counter, less
    precisely. The interval is that of the rounds, widened to include the value of the pass.
    """
    value = metric.value(result)
    if value is None:
        return _not_in_comparison(metric.title)
    low, high = (result.get(f"{metric.field}_{end}") for end in ("low", "high"))
    if low is None or high is None:
        return _Reading(value=value, low=None, high=None, why="One pass; its spread is unknown.")
    why = "Measured in a separate pass; the interval also covers the counters of the rounds."
    return _Reading(value=value, low=min(value, low), high=max(value, high), why=why)


def _memory(result: Result, spread: float) -> _Reading | _Missing:
    """Read the larger peak of fresh processes, with the spread between equal processes as interval."""
    value = result.get("peak_rss_bytes")
    if not value:
        return _not_in_comparison("peak memory added by the session")
    return _Reading(
        value=float(value),
        low=value * (1 - spread),
        high=value * (1 + spread),
        why=f"Added by the session in a fresh process{_peak_text(result)}; equal configurations differ by "
        f"up to ±{spread:.0%}.",
    )


def process_peak(result: Result) -> int | None:
    """Return the peak memory in bytes of a whole process, including what it loaded before the model."""
    before, added = result.get("baseline_rss_bytes"), result.get("peak_rss_bytes")
    return None if not before or added is None else before + added


def _peak_text(result: Result) -> str:
    peak = process_peak(result)
    return "" if peak is None else f", whose own peak was {size(peak)}"


def _error(result: Result) -> _Reading | _Missing:
    error = result.get("output_error")
    if error is None:
        return _not_in_comparison("output error")
    value = error.get("max_rel")
    if value is None or not math.isfinite(value):
        why = error.get("difference") or "the outputs contain NaN or Inf"
        return _Reading(value=math.inf, low=math.inf, high=math.inf, why=f"Not comparable: {why}.")
    return _Reading(value=value, low=value, high=value, why="For the inputs of the comparison; exact.")


def _not_in_comparison(what: str) -> _Missing:
    return _Missing(
        cause="missing", why=f"The comparison did not measure the {what}.", todo="Measure it again."
    )


_OF_A_COMPARISON = {"throughput": _throughput, "cpu_s": _cpu, "output_error": _error}


def _from_accuracy(target: TargetSpec, evidence: Measurements) -> _Reading | _Missing:
    summary = evidence.summaries.get((target.positive_class, target.threshold))
    if summary is None:
        return _no_accuracy(evidence)
    if why := summary.get("failure"):
        return _Missing(cause="failed", why=why, todo="Correct the target or the dataset.")
    found = _of_summary(target, summary)
    if found is None:
        return _Missing(
            cause="failed",
            why="The positive class is not named.",
            todo="Name the positive class in the target or in the dataset.",
        )
    if found.get("value") is None:
        return _Missing(
            cause="failed",
            why=f"No sample counts for the {target.about.title}.",
            todo="Use data with samples of the class and of other classes.",
        )
    counted = f"{found['count']:,} of {found['total']:,} samples." if found.get("total") else ""
    why = counted or f"Of {summary['rows']:,} samples."
    return _Reading(value=found["value"], low=found["low"], high=found["high"], why=why)


def _no_accuracy(evidence: Measurements) -> _Missing:
    if not evidence.has_dataset:
        return _Missing(cause="missing", why="No labelled data is given.", todo="Choose a dataset.")
    if evidence.accuracy_failure:
        why = f"It could not be measured: {evidence.accuracy_failure}"
        return _Missing(cause="failed", why=why, todo="Correct that, or drop the target.")
    return _Missing(cause="missing", why="Not measured on this data yet.", todo="Measure it.")


def _of_summary(target: TargetSpec, summary: Result) -> Result | None:
    """Return the entry of `run.accuracy.summary` for a target; None: it needs a positive class."""
    if target.about.name == "top5":  # with five classes or fewer, every label is among the five highest
        found: Result = summary["top5"] or _finite_share(summary)
        return found
    positive: Result | None = summary["positive"]
    if target.about.at_threshold:
        return positive[target.about.name] if positive is not None else None
    if target.about.name == "roc_auc" and positive is not None:
        found = positive["roc_auc"]
        return found
    found = summary[target.about.name]
    return found


def _finite_share(summary: Result) -> Result:
    """Return the share of rows with a finite result."""
    rows, answered = summary["rows"], summary["rows"] - summary["not_finite"]
    share = answered / rows
    return {"value": share, "low": share, "high": share, "count": answered, "total": rows}


# --- texts --------------------------------------------------------------------------------------------------


def quantity(target: TargetSpec, value: float | None, *, signed: bool = False) -> str:
    """Return a number of this target's metric with its unit; a dash where it is not known."""
    if value is None:
        return "–"
    scale, unit = _scale(target, value)
    if not math.isfinite(value / scale):
        return "not a number" if math.isnan(value) else "unbounded"
    text = significant(value / scale, signed=signed)
    unit = "pp" if signed and unit == "%" else unit  # a difference of two shares
    if target.load is not None and not signed:
        unit += " slower"
    return f"{text} {unit}".rstrip()


def interval(one: TargetResult) -> str:
    """Return the interval in the unit of the value: `2.280 to 2.350 ms`; a dash where there is none."""
    if one.low is None and one.high is None:
        return "–"
    if one.target.load is not None:
        return _bound(one)
    if one.low == one.high:
        return "exact"
    scale, unit = _scale(one.target, one.low if one.value is None else one.value)
    low, high = (None if end is None else end / scale for end in (one.low, one.high))
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        ends = [quantity(one.target, end) if end is not None else "unbounded" for end in (one.low, one.high)]
        return " to ".join(ends)
    return span(low, high, unit)


def _bound(one: TargetResult) -> str:
    """Return the one-sided bound that decided a target under load: `at most 0.34 %`; both if undecided."""
    low, high = (None if end is None else significant(100 * end, 3) for end in (one.low, one.high))
    if one.state == "MET":
        return f"at most {high} %"
    return f"at least {low} %" if one.state == "MISSED" else f"{low} to {high} %"


def margin(one: TargetResult) -> str:
    """Return the signed distance from the worse end of the interval to the limit; positive: inside."""
    if one.margin is None or not math.isfinite(one.margin):
        return "–"
    return quantity(one.target, one.margin, signed=True)


def target_text(one: TargetResult) -> str:
    """Return an evaluated target in one line: `Met · 2.310 ms [2.280 to 2.350 ms] · margin +0.6500 ms`."""
    word = STATE_WORDS[one.state]
    if one.value is None:
        return word
    text = f"{word} · {quantity(one.target, one.value)}"
    if (within := interval(one)) not in ("–", "exact"):
        text += f" [{within}]"
    return text if one.margin is None else f"{text} · margin {margin(one)}"


def _scale(target: TargetSpec, value: float | None) -> tuple[float, str]:
    """Return scale and unit of a metric; for sizes the largest binary unit with a value of at least 1."""
    kind = target.about.quantity
    return size_scale(value or 0.0) if kind == "size" else SHOWN_UNITS[kind]
