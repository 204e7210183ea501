"""Looks for the best dynamic batching: service times, a simulated shortlist, and the choice after real runs.

Simulation understates the tail by two to three times, because its service times vary less than real ones. It
only chooses what is really run; none of its numbers decides. Pure.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Sequence

from core.evidence.load.load_result import is_rejected, percentile_name, rate_words
from core.evidence.load.load_types import (
    Arrivals,
    Batching,
    BatchingTrial,
    Kind,
    LoadContrast,
    Point,
    RawRun,
    ServiceTime,
)
from core.evidence.load.queueing import simulate
from core.evidence.statistics import percentile, percentile_estimate
from core.spec.load import BatchingSpec
from core.wire.units import ms, significant

GAIN = 1.10  # by which samples/s must grow with the batch, or batching cannot help
LARGEST = 64
DELAYS_S = (0.0, 0.0005, 0.001, 0.002, 0.005)
DELAY_SHARES = (0.1, 0.25)  # of the latency limit
SHORTLIST = 3
SIMULATED_REQUESTS = 4000
SEED = 20_261


def sizes_to_try(largest: int = LARGEST) -> tuple[int, ...]:
    """Return the batch sizes whose service times are measured: 1, 2, 4, … up to `largest`."""
    return tuple(2**k for k in range(largest.bit_length()) if 2**k <= largest)


def service_times(raw: RawRun) -> list[ServiceTime]:
    """Return the service time of every size in a closed loop whose kinds of requests take turns.

    Sizes with fewer than ten calls after the warm-up are left out.
    """
    found: list[ServiceTime] = []
    warm_ns = raw.warmup_s * 1e9
    for index, kind in enumerate(raw.kinds):
        spans = [
            (end - start) / 1e9
            for start, end, own in zip(raw.start_ns, raw.end_ns, raw.arrivals.kind, strict=True)
            if own == index and end and start >= warm_ns
        ]
        if len(spans) < 10:
            continue
        estimate = percentile_estimate(spans, 0.5)
        value = percentile(spans, 0.5)
        found.append(
            {
                "samples": kind.rows,
                "p50_s": value,
                "low_s": None if estimate is None else estimate.low,
                "high_s": None if estimate is None else estimate.high,
                "per_sample_s": value / kind.rows,
            }
        )
    return found


def growth(times: Sequence[ServiceTime], one: ServiceTime) -> tuple[float, float, float]:
    """Return by which factor a batch raises the samples per second: measured, and its bounds.

    The bounds come from those of both service times, or from the times themselves where there are none, so
    they are wider than a 95 % interval.
    """
    alone, times_as_many = times[0], one["samples"] / times[0]["samples"]

    def factor(own: float | None, other: float | None) -> float:
        return times_as_many * (own or alone["p50_s"]) / (other or one["p50_s"])

    return factor(None, None), factor(alone["low_s"], one["high_s"]), factor(alone["high_s"], one["low_s"])


def gain(times: Sequence[ServiceTime]) -> tuple[float, int]:
    """Return the factor by which samples per second grow at least, and the size of the batch that does it."""
    best = max(times, key=lambda one: growth(times, one)[1])
    return growth(times, best)[1], best["samples"]


def shortlist(
    times: Sequence[ServiceTime],
    arrivals: Arrivals,
    kinds: Sequence[Kind],
    *,
    streams: int,
    limit_s: float,
    p: float,
) -> list[BatchingTrial]:
    """Return the pairs of batch and delay, simulated on these arrivals, the best first.

    Args:
        times: from `service_times`.
        arrivals: of the traffic; the first requests are simulated.
        kinds: of request.
        streams: of the configuration.
        limit_s: the latency limit.
        p: its percentile.
    """
    few = min(len(arrivals.at_ns), SIMULATED_REQUESTS)
    part = Arrivals(at_ns=arrivals.at_ns[:few], kind=arrivals.kind[:few])
    largest = max(one["samples"] for one in times)
    one_request = max(one.rows for one in kinds)
    sizes = [one["samples"] for one in times if one_request < one["samples"] <= largest]
    delays = sorted({*DELAYS_S, *(round(share * limit_s, 6) for share in DELAY_SHARES)})
    found = []
    for size, delay in itertools.product(sizes, (one for one in delays if one < limit_s)):
        spec = BatchingSpec(max_batch_size=size, max_queue_delay_microseconds=round(delay * 1e6))
        found.append(_simulated(spec, times, part, kinds, streams=streams, p=p))
    found.sort(key=lambda one: (one["simulated_limit_s"] > limit_s, one["simulated_limit_s"]))
    return found


def _simulated(
    spec: BatchingSpec,
    times: Sequence[ServiceTime],
    arrivals: Arrivals,
    kinds: Sequence[Kind],
    *,
    streams: int,
    p: float,
) -> BatchingTrial:
    spread = random.Random(SEED)  # noqa: S311 - the same for every pair

    def service_s(samples: int) -> float:
        return interpolated(times, samples) * spread.lognormvariate(0.0, 0.1)

    seconds = (arrivals.at_ns[-1] if arrivals.at_ns else 0) / 1e9
    raw = simulate(arrivals, kinds, service_s, streams=streams, batching=spec, duration_s=seconds)
    latencies = [(end - at) / 1e9 for at, end in zip(raw.arrivals.at_ns, raw.end_ns, strict=True) if end] or [
        math.inf
    ]
    calls: dict[int, int] = {}
    for batch, kind in zip(raw.batch, raw.arrivals.kind, strict=True):
        calls[batch] = calls.get(batch, 0) + kinds[kind].rows
    return {
        "max_batch_size": spec.max_batch_size,
        "max_queue_delay_microseconds": spec.max_queue_delay_microseconds,
        "preferred_batch_size": [],
        "simulated_p50_s": percentile(latencies, 0.5),
        "simulated_limit_s": percentile(latencies, p),
        "simulated_batch": statistics.fmean(calls.values()) if calls else 0.0,
        "point": None,
    }


def interpolated(times: Sequence[ServiceTime], samples: int) -> float:
    """Return the service time of a batch between two measured ones, linearly; beyond, in proportion."""
    sizes = [one["samples"] for one in times]
    place = bisect_left(sizes, samples)
    if place < len(sizes) and sizes[place] == samples:
        return times[place]["p50_s"]
    if place == 0:
        return times[0]["p50_s"]
    if place == len(sizes):
        return times[-1]["per_sample_s"] * samples
    low, high = times[place - 1], times[place]
    share = (samples - low["samples"]) / (high["samples"] - low["samples"])
    return low["p50_s"] + share * (high["p50_s"] - low["p50_s"])


def cannot_help(times: Sequence[ServiceTime]) -> Batching:
    """Return the answer where samples per second do not grow by more than 10 % with certainty."""
    alone, best = times[0], max(times, key=lambda one: growth(times, one)[0])
    one_by_one, together = (significant(1 / one["per_sample_s"], 3) for one in (alone, best))
    most = max(growth(times, one)[2] for one in times)
    lead = "Batching cannot help" if most <= GAIN else "Batching is not known to help"
    words = (
        f"{lead}: samples per second grow by {_percent(growth(times, best)[0])} (by {_percent(most)} "
        f"at most), from {one_by_one}/s alone to {together}/s in batches of {best['samples']}."
    )
    return {"service_times": list(times), "helps": False, "words": words, "trials": [], "best": None}


def _percent(factor: float) -> str:
    return f"{max(0.0, 100 * (factor - 1)):.0f} %"


def chosen(
    times: Sequence[ServiceTime],
    trials: Sequence[BatchingTrial],
    points: Sequence[Point],
    alone: Point,
    contrasts: Sequence[LoadContrast | None],
    p: float,
) -> Batching:
    """Return the answer after the real runs.

    The best is the one with the lowest latency among those that keep the limits, if its latency is
    significantly lower than without batching, or if the configuration breaks a limit without.

    Args:
        times: service times.
        trials: all that were simulated; those with a point were really run.
        points: of the load test.
        alone: the point without batching.
        contrasts: of each trial against no batching, in the order of `trials`; None: there is none.
        p: percentile of the latency limit.
    """
    able = []
    for index, (trial, found) in enumerate(zip(trials, contrasts, strict=True)):
        if trial["point"] is None or points[trial["point"]]["verdict"] != "PASS":
            continue
        if is_rejected(points[trial["point"]]):
            continue
        faster = found is not None and found["verdict"] == "FASTER"
        if faster or alone["verdict"] == "FAIL":
            able.append((_latency(points[trial["point"]], p), index))
    best = min(able)[1] if able else None
    at = f"at {rate_words(alone['rate_per_s'])}"
    name, without = percentile_name(p), _latency_words(alone, p)
    if best is None and is_rejected(alone):
        words = f"Not a measurement {at}: {alone['harness']['reason']}" if alone["harness"] else ""
    elif best is None:
        ran = sum(one["point"] is not None for one in trials)
        words = (
            f"No dynamic batching is significantly better {at}: {name} without is {without}; {ran} were run."
        )
    else:
        trial = trials[best]
        point = points[trial["point"] or 0]
        ratio = contrasts[best]
        factor = "" if ratio is None else f", {significant(ratio['ratio'], 3)}× faster"
        words = (
            f"Batches of up to {trial['max_batch_size']} samples with a delay of "
            f"{trial['max_queue_delay_microseconds'] / 1e3:g} ms are best {at}: {name} is "
            f"{_latency_words(point, p)} instead of {without}{factor}."
        )
    return {
        "service_times": list(times),
        "helps": True,
        "words": words,
        "trials": list(trials),
        "best": best,
    }


def _latency(point: Point, p: float) -> float:
    return next((one["value_s"] for one in point["latency"] if abs(one["p"] - p) < 1e-9), math.inf)


def _latency_words(point: Point, p: float) -> str:
    value = _latency(point, p)
    if is_rejected(point):
        return "not a measurement"
    return ms(value, 3) if math.isfinite(value) else "not reached (saturated)"
