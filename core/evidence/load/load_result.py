"""Builds the result of a load test from its runs: verdict, answer in a sentence, and raw times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core.evidence.load.load_types import (
    Alone,
    Batching,
    BatchingTrial,
    Highest,
    LimitResult,
    LoadConfiguration,
    LoadContrast,
    LoadResult,
    LoadVerdict,
    Percentile,
    Point,
    RawRun,
    RunResult,
)
from core.spec.load import LoadSpec, parse_load_limit
from core.wire.units import ci, interval, ms, significant, span


@dataclass(slots=True, kw_only=True)
class LoadRecord:
    """Everything that a load test has found so far."""

    configurations: Sequence[LoadConfiguration]
    runs: list[RunResult] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    contrasts: list[LoadContrast] = field(default_factory=list)
    highest: list[Highest] = field(default_factory=list)
    batching: Batching | None = None
    together: list[Alone] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_result(load: LoadSpec, record: LoadRecord) -> LoadResult:
    """Return the stored result of a load test, with its answer."""
    return {
        "question": load.model_dump(mode="json"),
        "configurations": list(record.configurations),
        "runs": record.runs,
        "points": record.points,
        "contrasts": record.contrasts,
        "highest": record.highest,
        "batching": record.batching,
        "together": record.together,
        "verdict": _verdict(load, record),
        "words": _words(load, record),
        "notes": record.notes,
    }


def is_rejected(found: Point | RunResult) -> bool:
    """Whether the harness added too much, so that the latencies are no measurement."""
    return found["harness"] is not None and not found["harness"]["accepted"]


def has_no_answer(found: Point | RunResult) -> bool:
    """Whether it is no measurement, and does not keep its limits in spite of the harness either."""
    return is_rejected(found) and found["verdict"] != "PASS"


def worst(verdicts: Sequence[LoadVerdict | None]) -> LoadVerdict | None:
    """Return the verdict of all: FAIL if one failed, PASS only if all passed; None: there is none."""
    known = [one for one in verdicts if one is not None]
    if not known:
        return None
    return "FAIL" if "FAIL" in known else "UNDECIDED" if "UNDECIDED" in known else "PASS"


def _verdict(load: LoadSpec, record: LoadRecord) -> LoadVerdict | None:
    """The verdict of the first configuration, or of all that serve together."""
    points = record.points
    if load.question == "limit":
        first = next((one for one in record.highest if one["configuration"] == 0), None)
        if first is None:
            return None
        if first["confirmed_per_s"] is not None:
            return "PASS"
        return "UNDECIDED" if first["undecided_per_s"] is not None else "FAIL"
    if load.question == "batching":
        best = best_batching(record.batching)
        index = None if best is None else best["point"]
        own = points[:1] if index is None else [points[index]]
        return own[0]["verdict"] if own else None
    return worst([one["verdict"] for one in points if one["configuration"] == 0 or record.together])


def best_batching(batching: Batching | None) -> BatchingTrial | None:
    """Return the best dynamic batching; None: to run each request alone is best, or it was not looked for."""
    return None if batching is None or batching["best"] is None else batching["trials"][batching["best"]]


def _words(load: LoadSpec, record: LoadRecord) -> str:
    several = len(record.configurations) > 1
    labels = [one["label"] for one in record.configurations]
    if load.question == "limit":
        return " ".join(
            f"{labels[one['configuration']]}: {one['words']}" if several else one["words"]
            for one in record.highest
        )
    if load.question == "batching" and record.batching is not None:
        return record.batching["words"]
    if record.together:
        return " ".join(_alone_words(one, labels[one["configuration"]]) for one in record.together)
    shown = [one for one in record.points if one["fresh"]]
    if len(shown) == 1:
        return point_words(shown[0])
    return " ".join(
        f"{labels[one['configuration']] + ' at ' if several else 'At '}"
        f"{rate_words(one['rate_per_s'])}: {_short(one)}."
        for one in shown
    )


def rate_words(rate: float) -> str:
    """Return a rate: `200 requests/s`."""
    return f"{significant(rate, 4).rstrip('0').rstrip('.') if rate % 1 else f'{rate:,.0f}'} requests/s"


def percentile_name(p: float) -> str:
    """Return `p99` for 0.99, `p99.9` for 0.999."""
    return f"p{100 * p:.6g}"


def percentile_at(found: Sequence[Percentile], p: float) -> Percentile | None:
    """Return the percentile `p` of a list; None: it was not supported."""
    return next((one for one in found if abs(one["p"] - p) < 1e-9), None)


def share_text(share: float) -> str:
    """Return a share of requests with two significant digits: `0.21 %`."""
    return f"{significant(100 * share, 2)} %"


def latency_text(one: Percentile) -> str:
    """Return a percentile with its interval: `14.2 ms (95 % CI [13.1, 15.9])`."""
    low, high = one["low_s"], one["high_s"]
    if low is None and high is None:
        return f"{ms(one['value_s'], 3)} (interval unknown: too few requests)"
    if high is None:
        return f"{ms(one['value_s'], 3)} ({interval((low or 0.0) * 1e3, None, 'ms')})"
    ends = span((low or 0.0) * 1e3, high * 1e3, digits=3).split(" to ")
    return f"{ms(one['value_s'], 3)} ({ci(ends[0], ends[-1])})"


def limit_sentence(found: LimitResult, point: Point | RunResult) -> str:
    """Return the verdict on one limit at one rate as a sentence with its numbers.

    "Passed: at 200 requests/s, p99 is 14.2 ms (95 % CI [13.1, 15.9]), limit 20 ms; 0.21 % of 12,004 requests
    were slower (at most 0.34 %, 95 % confidence; 1 % allowed)."
    """
    said = {"PASS": "Passed", "FAIL": "Failed", "UNDECIDED": "Undecided"}[found["verdict"]]
    bound = {
        "PASS": f"at most {share_text(found['high'])}",
        "FAIL": f"at least {share_text(found['low'])}",
        "UNDECIDED": f"between {share_text(found['low'])} and {share_text(found['high'])}",
    }[found["verdict"]]
    certain = f"({bound}, 95 % confidence; {100 * found['allowed']:.6g} % allowed)"
    at = f"at {rate_words(point['rate_per_s'])}"
    share = f"{share_text(found['share'])} of {point['requests']:,} requests"
    limit = parse_load_limit(found["limit"])
    if limit.at_most_s is None:
        return f"{said}: {at}, {share} timed out {certain}."
    if (added := point["harness"]) is not None and is_rejected(point):
        return (
            f"{said}: {at}, {share} were slower than {1e3 * limit.at_most_s:.6g} ms {certain}, although "
            f"the harness added {share_text(added['share_of_p50'])} of the median latency. The percentiles "
            "are no measurement."
        )
    known = percentile_at(point["latency"], limit.percentile)
    name, most = percentile_name(limit.percentile), f"{1e3 * limit.at_most_s:.6g} ms"
    value = f"{name} is {latency_text(known)}" if known is not None else f"{name} is not known"
    return f"{said}: {at}, {value}, limit {most}; {share} were slower {certain}."


def point_words(point: Point) -> str:
    """Return the answer at one rate in sentences with its numbers and intervals, the worst limit first."""
    at = f"at {rate_words(point['rate_per_s'])}"
    if (harness := point["harness"]) is not None and has_no_answer(point):
        return f"Not a measurement {at}: {harness['reason']}"
    if point["outcome"] == "saturated":
        return (
            f"Saturated {at}: requests arrive faster than they are served "
            f"({significant(point['completed_per_s'], 3)}/s completed)."
        )
    if not point["limits"]:
        return f"{at[0].upper()}{at[1:]}, {_latency(point)}."
    ordered = sorted(point["limits"], key=lambda one: ("FAIL", "UNDECIDED", "PASS").index(one["verdict"]))
    return " ".join(limit_sentence(one, point) for one in ordered)


def _latency(point: Point) -> str:
    asked = [_p_of(one["limit"]) for one in point["limits"]]
    wanted = [p for p in asked if p is not None] or [0.5, 0.99]
    found = [one for p in wanted if (one := percentile_at(point["latency"], p)) is not None]
    if not found:
        return "no percentile of the latency is known"
    return ", ".join(f"{percentile_name(one['p'])} is {latency_text(one)}" for one in found)


def _p_of(limit: str) -> float | None:
    head = limit.partition("<=")[0]
    return float(head[1:]) / 100 if head.startswith("p") else None


def _short(point: Point) -> str:
    if point["outcome"] == "saturated":
        return "saturated"
    if is_rejected(point):
        return "passed, in spite of the harness" if point["verdict"] == "PASS" else "not a measurement"
    verdict = {"PASS": "passed, ", "FAIL": "failed, ", "UNDECIDED": "undecided, "}.get(
        point["verdict"] or "", ""
    )
    return f"{verdict}{_latency(point)}"


def _alone_words(one: Alone, label: str) -> str:
    name = percentile_name(one["p"])
    if one["alone_s"] is None or one["together_s"] is None:
        return f"{label}: {name} is not known, because a run was no measurement."
    return f"{label}: {name} {ms(one['alone_s'], 3)} alone, {ms(one['together_s'], 3)} together."


def requests_of(raws: Sequence[RawRun], *, most: int) -> tuple[list[dict[str, Any]], str]:
    """Return the times of every request to store, in nanoseconds, and a note where there are too many.

    Args:
        raws: of a load test.
        most: number of requests from which the times of a run are not kept.
    """
    kept: list[dict[str, Any]] = []
    total, lost = 0, 0
    for index, raw in enumerate(raws):
        requests = len(raw.arrivals.at_ns)
        if total + requests > most:
            lost += requests
            continue
        total += requests
        kept.append(
            {
                "run": index,
                "at_ns": list(raw.arrivals.at_ns),
                "kind": list(raw.arrivals.kind),
                "start_ns": list(raw.start_ns),
                "end_ns": list(raw.end_ns),
                "stream": list(raw.stream),
                "batch": list(raw.batch),
                "kinds": [{"rows": one.rows, "dims": dict(one.dims)} for one in raw.kinds],
                "warmup_s": raw.warmup_s,
            }
        )
    return kept, f"The times of {lost:,} requests are not kept; the numbers come from all." if lost else ""
