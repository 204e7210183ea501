"""A load test as text: the answer, the verdict of a point, what the harness added, and its progress. Pure.

A run whose harness added too much is not a measurement: its percentiles are never shown. A limit that it kept
all the same is kept, because the harness only delays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from core.evidence.load.load_result import has_no_answer as has_no_answer
from core.evidence.load.load_result import is_rejected as is_rejected
from core.evidence.load.load_result import latency_text as latency_text
from core.evidence.load.load_result import limit_sentence as limit_sentence
from core.evidence.load.load_result import percentile_at, rate_words
from core.evidence.load.load_result import percentile_name as percentile_name
from core.evidence.load.load_result import point_words as point_words
from core.evidence.load.load_result import share_text as share_text
from core.evidence.load.load_types import (
    Alone,
    Harness,
    LoadContrast,
    LoadResult,
    LoadVerdict,
    Percentile,
    Point,
    RunResult,
)
from core.evidence.measurement import Trial
from core.evidence.verdict import Color, Verdict, interval_texts, ratio_is_known, ratio_text
from core.spec.load import ArrivalsSpec, LoadLimit, LoadSpec, load_from_dict, parse_load_limit, sizes_text
from core.wire.errors import SpecError
from core.wire.units import ci, ms

NOT_A_MEASUREMENT = "not a measurement"
MEANING = "Latency is the time from the scheduled arrival of a request to its completion, waiting included."
COLORS: Mapping[str, Color] = {"PASS": "green", "FAIL": "red", "UNDECIDED": "orange"}
_ENDED = {"saturated": "saturated", "failed": "failed", "cancelled": "cancelled"}


def load_of(trial: Trial) -> LoadResult | None:
    """Return the result of a load test; None: it has none."""
    found = trial.facts.get("load")
    return cast(LoadResult, found) if found else None


def question_of(result: LoadResult) -> LoadSpec | None:
    """Return what a load test asked; None: it was stored by another version."""
    try:
        return load_from_dict(result["question"])
    except SpecError:
        return None


def limit_of(text: str) -> LoadLimit | None:
    """Return a limit from its stored text; None: it was stored by another version."""
    try:
        return parse_load_limit(text)
    except SpecError:
        return None


percentile, rate_text = percentile_at, rate_words

# --- numbers ------------------------------------------------------------------------------------------------


def rate_number(rate_per_s: float) -> str:
    """Return a rate without its unit: `200`."""
    return rate_text(rate_per_s).partition(" ")[0]


# --- points -------------------------------------------------------------------------------------------------


def shown_latency(point: Point | RunResult) -> Sequence[Percentile]:
    """Return the percentiles that may be shown: none of a point that is no measurement."""
    return [] if is_rejected(point) else point["latency"]


def harness_text(found: Harness | None) -> str:
    """Return what the harness added: `adds 0.031 ms to p50 (2.1 %) and 0.285 ms to p99`."""
    if found is None:
        return "not known: too few requests"
    said = f"adds {ms(found['p50_s'], 3)} to p50 ({share_text(found['share_of_p50'])}) and "
    return f"{said}{ms(found['p99_s'], 3)} to p99"


def verdict_text(point: Point | RunResult) -> str:
    """Return the verdict of a point in one to three words: `PASS`, `FAIL, saturated`, `not a measurement`."""
    if has_no_answer(point):
        return NOT_A_MEASUREMENT
    return ", ".join(filter(None, [point["verdict"], _ENDED.get(point["outcome"])]))


def point_color(point: Point | RunResult) -> Color | None:
    """Return the colour of a point: that of its verdict; None: it has no verdict and is complete."""
    if has_no_answer(point):
        return "gray"
    if point["outcome"] in ("failed", "saturated"):
        return "red"
    return COLORS.get(str(point["verdict"]))


def brief_ms(seconds: float) -> str:
    """Return an exact time, as of a limit: `20 ms`."""
    return f"{1e3 * seconds:.6g} ms"


# --- the whole result ---------------------------------------------------------------------------------------


def answer(result: LoadResult) -> str:
    """Return the answer of a load test in sentences, with numbers and intervals."""
    if result["words"]:
        return result["words"]
    why = next((one["error"] for one in result["configurations"] if one["error"]), "")
    return f"No rate was measured. {why}".strip()


def short(result: LoadResult) -> str:
    """Return the answer in a few characters, for a list: `PASS at 200/s`, `up to 310/s`."""
    if result["highest"]:
        best = result["highest"][0]["confirmed_per_s"]
        return "no rate confirmed" if best is None else f"up to {rate_number(best)}/s"
    fresh = [one for one in result["points"] if one["fresh"] and one["configuration"] == 0]
    if not fresh:
        return ""
    same = [one for one in fresh if verdict_text(one).startswith(str(result["verdict"]))] or fresh
    pick = min if result["verdict"] == "FAIL" else max
    last = pick(same, key=lambda one: one["rate_per_s"])
    known = percentile(shown_latency(last), 0.99)
    said = verdict_text(last) or (f"p99 {ms(known['value_s'], 3)}" if known is not None else "")
    return f"{said} at {rate_number(last['rate_per_s'])}/s".strip()


def outcome(result: LoadResult) -> LoadVerdict:
    """Return whether a load test passed: no limit is broken, and every point is a measurement.

    A search for the highest rate passes with a confirmed rate of its first configuration. Without limits, a
    test passes unless a run failed.
    """
    if result["question"].get("question") == "limit":
        first = next(iter(result["highest"]), None)
        if first is None or (first["confirmed_per_s"] is None and first["undecided_per_s"] is not None):
            return "UNDECIDED"
        return "PASS" if first["confirmed_per_s"] is not None else "FAIL"
    fresh = [one for one in result["points"] if one["fresh"]]
    if result["batching"] is not None:  # other pairs may fail
        return result["verdict"] or "PASS"
    known = [one for one in fresh if not has_no_answer(one)]
    if any(one["verdict"] == "FAIL" or one["outcome"] == "failed" for one in known):
        return "FAIL"
    undecided = any(one["verdict"] == "UNDECIDED" for one in known)
    return "UNDECIDED" if undecided or len(known) < len(fresh) or not fresh else "PASS"


def color(result: LoadResult) -> Color:
    """Return the colour of the answer."""
    if result["highest"]:
        return "green" if any(one["confirmed_per_s"] is not None for one in result["highest"]) else "red"
    fresh = [one for one in result["points"] if one["fresh"]]
    if any(map(has_no_answer, fresh)):
        return "gray"
    if result["verdict"] is not None:
        return COLORS[result["verdict"]]
    return "red" if any(one["outcome"] in ("saturated", "failed") for one in fresh) else "blue"


def contrast_sentence(one: LoadContrast, result: LoadResult) -> str:
    """Return the difference of two configurations at one rate: "… p99 at 200 requests/s: 1.12× faster …"."""
    labels = [each["label"] for each in result["configurations"]]
    what = f"{percentile_name(one['p'])} at {rate_text(one['rate_per_s'])}"
    pair = f"{labels[one['configuration']]} against {labels[one['baseline']]}"
    return f"{pair}, {what}: {contrast_text(one)}."


def contrast_text(one: LoadContrast) -> str:
    """Return the verdict on two configurations: "1.12× faster, 95 % CI [1.05, 1.19]"."""
    ratio, low, high = one["ratio"], one["ratio_low"], one["ratio_high"]
    verdict = Verdict[one["verdict"]]
    if low is None or high is None or not ratio_is_known(low, high):
        return f"{verdict.word}, about {ratio_text(ratio)}×; an interval needs more turns"
    if verdict is Verdict.SLOWER:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    factor, lower, upper = interval_texts(ratio, low, high)
    if verdict in (Verdict.FASTER, Verdict.SLOWER):
        return f"{factor}× {verdict.word}, {ci(lower, upper)}"
    return f"{verdict.word} ({factor}×, {ci(lower, upper)})"


def alone_text(one: Alone) -> str:
    """Return what sharing the machine costs: "1.39×, 95 % CI [1.31, 1.47]"."""
    ratio, low, high = one["ratio"], one["ratio_low"], one["ratio_high"]
    if ratio is None:
        return "not known"
    if low is None or high is None:
        return f"about {ratio_text(ratio)}×; an interval needs more turns"
    factor, lower, upper = interval_texts(ratio, low, high)
    return f"{factor}×, {ci(lower, upper)}"


# --- while it runs ------------------------------------------------------------------------------------------


def progress_parts(live: Mapping[str, Any]) -> list[str]:
    """Return the course of a running load test: stage, rate, time, queue, percentiles so far.

    Args:
        live: `load` of `Status.live`.
    """
    run, runs = live.get("run") or 0, live.get("runs") or 0
    parts = [str(live.get("stage") or "traffic")]
    if runs > 1 or (run > 1 and not runs):
        parts.append(f"run {run} of {runs}" if runs else f"run {run}")
    if live.get("rate_per_s"):
        parts.append(rate_text(live["rate_per_s"]))
    if live.get("duration_s"):
        parts.append(f"{live.get('elapsed_s') or 0:.0f} of {live['duration_s']:.0f} s")
    if live.get("queue") is not None:
        parts.append(f"queue {live['queue']:,}")
    known = [f"{name[:-2]} {ms(live[name], 3)}" for name in ("p50_s", "p99_s") if live.get(name)]
    if known:
        parts.append(f"{', '.join(known)} so far")
    return parts


def traffic_words(asked: LoadSpec) -> str:
    """Return the traffic of a load test: "Poisson arrivals at 100 and 200 requests/s, 30 s each"."""
    said = _arrivals_words(asked.arrivals)
    if asked.rates:
        *first, last = [rate_number(one) for one in asked.rates]
        said += f" at {', '.join(first)} and {last} requests/s" if first else f" at {last} requests/s"
    if asked.question == "limit":
        return f"{said}; the first {asked.warmup_s:g} s of every run do not count"
    said += f", {asked.effective_duration_s:g} s" + (" each" if len(asked.rates) > 1 else "")
    return f"{said} after {asked.warmup_s:g} s of warm-up"


def _arrivals_words(asked: ArrivalsSpec) -> str:
    match asked.process:
        case "bursts":
            return f"bursts ({asked.on_s:g} s on, {asked.off_s:g} s off)"
        case "ramp":
            return f"a ramp from {100 * asked.from_share:g} % of the rate"
        case "steps":
            return f"{asked.steps} steps from {100 * asked.from_share:g} % of the rate"
        case "diurnal":
            return f"a day (lowest rate {100 * asked.low_share:g} % of the highest)"
        case "constant":
            return "constant intervals"
        case "trace":
            return "a recorded trace"
    return "Poisson arrivals"


def requests_words(asked: LoadSpec, batch: int = 1) -> str:
    """Return the sizes of requests: "1 sample", "1-8 samples, sequence 16-128".

    Args:
        asked: the load test.
        batch: samples of a request if none are asked: the batch size of the configuration.
    """
    rows = sizes_text(asked.rows or {batch: 1.0})
    if asked.arrivals.process == "trace":
        return "as recorded"
    said = [f"{rows} sample{'s' * (rows != '1')}", *(f"{k} {sizes_text(v)}" for k, v in asked.dims.items())]
    return ", ".join(said)
