"""The numbers of a run and of all runs at one rate, from their raw requests.

Counted are the requests that arrived after the warm-up. Latency is the end minus the scheduled arrival. A
request that timed out, or that was not served when the run ended, has no latency: it is bad under every
limit, and slower than every percentile that can be given.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from core.evidence import background_load
from core.evidence.load.bounds import Clusters, Counted, judge, percentiles, requests_needed
from core.evidence.load.load_result import worst
from core.evidence.load.load_types import (
    Harness,
    LimitResult,
    NewShapeCost,
    Percentile,
    Point,
    RawRun,
    RunOutcome,
    RunResult,
    Second,
)
from core.evidence.load.queueing import harness
from core.spec.load import BatchingSpec, LoadLimit, LoadSpec
from core.wire.units import ms, significant

COURSE_PARTS = 120
LIVE_PARTS = 240
ECDF_POINTS = 200
STARVED_SHARE = 0.1  # of the ideal p99 that the harness may add without a note
_NS = 1e9
_WORST: tuple[RunOutcome, ...] = ("complete", "cancelled", "saturated", "failed")  # the last is the worst


# --- counted requests ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The counted requests of a run: a range of indices, and the time in which they arrived."""

    first: int
    stop: int
    from_s: float
    until_s: float
    warm: bool  # False: the run ended in its warm-up, so that counts

    @property
    def seconds(self) -> float:
        return max(0.0, self.until_s - self.from_s)

    @property
    def range(self) -> range:
        return range(self.first, self.stop)


def _end_ns(raw: RawRun) -> int:
    """The last event of a run that ended early."""
    return max(max(raw.start_ns, default=0), max(raw.end_ns, default=0))


def _window(raw: RawRun, load: LoadSpec) -> _Window:
    at_ns = raw.arrivals.at_ns
    if raw.outcome == "complete":
        stop, until_s = len(at_ns), raw.duration_s
    else:
        end = _end_ns(raw)
        if raw.outcome == "cancelled":
            end = _known_until_ns(raw, load, end)
        stop, until_s = bisect.bisect_right(at_ns, end), end / _NS
    first, from_s = bisect.bisect_left(at_ns, round(raw.warmup_s * _NS)), raw.warmup_s
    warm = first < stop and until_s > from_s
    if not warm:
        first, from_s = 0, 0.0
    return _Window(first=first, stop=stop, from_s=from_s, until_s=until_s, warm=warm)


def _known_until_ns(raw: RawRun, load: LoadSpec, end_ns: int) -> int:
    """Until which arrival a cancelled run knows whether requests kept every limit.

    Requests that waited when it was cancelled are not bad by that; those that already waited longer than the
    limits are.
    """
    at_ns = raw.arrivals.at_ns
    open_ns = next(
        (at_ns[i] for i, end in enumerate(raw.end_ns) if not end and not _timed_out(raw, i)), end_ns
    )
    longest_s = max((one.at_most_s or raw.dropped_ns / _NS for one in load.limits), default=math.inf)
    return max(min(end_ns, open_ns - 1), end_ns - round(longest_s * _NS) if longest_s < math.inf else 0)


def _timed_out(raw: RawRun, i: int) -> bool:
    start = raw.start_ns[i]
    return bool(raw.dropped_ns and start and not raw.end_ns[i]) and (
        start - raw.arrivals.at_ns[i] > raw.dropped_ns
    )


def _counted(raw: RawRun, window: _Window) -> Counted:
    at_ns, ends = raw.arrivals.at_ns, raw.end_ns
    return Counted(
        at_s=[at_ns[i] / _NS for i in window.range],
        value_s=[(ends[i] - at_ns[i]) / _NS if ends[i] else math.inf for i in window.range],
        from_s=window.from_s,
        until_s=window.until_s,
    )


def _of_served(raw: RawRun, window: _Window, starts: Sequence[int], ends: Sequence[int]) -> Clusters:
    """The times from one column to another, of the requests that were served."""
    served = [i for i in window.range if raw.end_ns[i]]
    return Clusters(
        [
            Counted(
                at_s=[raw.arrivals.at_ns[i] / _NS for i in served],
                value_s=[(ends[i] - starts[i]) / _NS for i in served],
                from_s=window.from_s,
                until_s=window.until_s,
            )
        ]
    )


# --- one run ------------------------------------------------------------------------------------------------


def run_result(
    raw: RawRun,
    load: LoadSpec,
    batching: BatchingSpec | None = None,
    *,
    beside: Sequence[int] = (),
) -> RunResult:
    """Return the numbers of a run; one that ended early keeps what was measured.

    A percentile that the requests cannot support is left out. So is the latency of a saturated run, which
    grows as long as the run lasts. A saturated run fails its limits; one that failed for another reason
    passes none. The harness only delays: a limit that is kept although it was rejected is kept without it,
    but one that is broken is undecided.
    """
    window = _window(raw, load)
    counted = _counted(raw, window)
    latencies = Clusters([counted])
    at_ns, ends = raw.arrivals.at_ns, raw.end_ns
    latency, notes = _latency(raw, latencies, window)
    service, _ = percentiles(_of_served(raw, window, raw.start_ns, ends))
    waiting, _ = percentiles(_of_served(raw, window, at_ns, raw.start_ns))
    served = sum(1 for i in window.range if ends[i])
    timeouts = sum(1 for i in window.range if not ends[i] and _timed_out(raw, i)) if raw.dropped_ns else 0
    from_ns, until_ns = window.from_s * _NS, window.until_s * _NS
    done = [i for i, end in enumerate(ends) if from_ns <= end < until_ns and end]
    kinds, kind = raw.kinds, raw.arrivals.kind
    seconds = window.seconds or math.inf
    # What another model that serves takes from the CPUs is a cost of sharing, not of the harness.
    added = None if beside else harness(raw, load, batching)
    rejected = added is not None and not added["accepted"]
    limits = _limits(load.limits, [raw.outcome], latencies, rejected=rejected)
    result: RunResult = {
        "configuration": raw.configuration,
        "beside": list(beside),
        "rate_per_s": len(window.range) / seconds,
        "turn": raw.turn,
        "outcome": raw.outcome,
        "reason": raw.reason,
        "requests": len(window.range),
        "completed": served,
        "timeouts": timeouts,
        "unserved": len(window.range) - served - timeouts,
        "completed_per_s": len(done) / seconds,
        "samples_per_s": sum(kinds[kind[i]].rows for i in done) / seconds,
        "latency": latency,
        "mean_s": _mean(latencies) if raw.outcome != "saturated" else None,
        "service": service,
        "waiting": [] if raw.outcome == "saturated" else waiting,
        "harness": added,
        "limits": limits,
        "verdict": worst([one["verdict"] for one in limits]),
        "batches": _batches(raw),
        "new_shapes": _new_shapes(raw),
        "queue_max": _queue_max(raw),
        "busy_share": _busy_share(raw, window),
        "cpus": _cpus(raw),
        "memory_bytes": raw.memory_bytes,
        "ecdf": _ecdf(latencies.ordered),
        "course": course(raw),
        "notes": [*raw.notes, *notes, *_starved(added), *_undecided(load.limits, limits, latencies)],
    }
    if raw.counters and raw.cpus:
        configurations = [raw.configuration] * len(raw.counters)
        flags = background_load.flag_blocks(raw.counters, configurations, cpus=raw.cpus)
        interference = background_load.summarize(raw.counters, flags)
        result["interference"] = interference
        result["busy"] = background_load.busy(interference, raw.other_processes)
    return result


def _latency(raw: RawRun, latencies: Clusters, window: _Window) -> tuple[list[Percentile], list[str]]:
    notes = []
    if not window.warm:
        notes.append("The run ended in its warm-up, so its numbers come from the warm-up.")
    if raw.outcome == "saturated":
        notes.append("The latency of a saturated run grows as long as it lasts, so no percentile is given.")
        return [], notes
    found, infinite = percentiles(latencies)
    if infinite:
        names = ", ".join(f"p{100 * p:.6g}" for p in infinite)
        notes.append(
            f"{latencies.above(math.inf):,} of {len(latencies.ordered):,} requests have no latency (timed "
            f"out or not served), so there is no {names}."
        )
    return found, notes


def _mean(latencies: Clusters) -> float | None:
    """The mean; None: some request has no latency, or there is none."""
    ordered = latencies.ordered
    return math.fsum(ordered) / len(ordered) if ordered and ordered[-1] < math.inf else None


def _limits(
    limits: Sequence[LoadLimit], outcomes: Sequence[RunOutcome], latencies: Clusters, *, rejected: bool
) -> list[LimitResult]:
    if not latencies.ordered:
        return []
    return [_capped(judge(limit, latencies), limit, outcomes, rejected) for limit in limits]


def _capped(
    found: LimitResult, limit: LoadLimit, outcomes: Sequence[RunOutcome], rejected: bool
) -> LimitResult:
    verdict = found["verdict"]
    if rejected and verdict != "PASS":
        verdict = "UNDECIDED"  # the server alone may keep it
    elif "saturated" in outcomes and limit.at_most_s is not None:
        verdict = "FAIL"  # the queue grows without end, so any latency limit is broken in a longer run
    elif "failed" in outcomes and verdict == "PASS":
        verdict = "UNDECIDED"
    return {**found, "verdict": verdict}


def _starved(added: Harness | None) -> list[str]:
    """Say where the harness changed the tail, though the run is accepted: it did not always get a CPU."""
    if added is None or not added["accepted"] or added["p99_s"] <= STARVED_SHARE * added["ideal_p99_s"]:
        return []
    return [
        f"The harness added {ms(added['p99_s'], 2)} at p99, where the ideal queue has "
        f"{ms(added['ideal_p99_s'], 3)}: calls started late because the harness had to wait for a CPU."
    ]


def _undecided(limits: Sequence[LoadLimit], judged: Sequence[LimitResult], latencies: Clusters) -> list[str]:
    """Return what an undecided limit needs: about how many requests would let it pass."""
    found = []
    for limit, one in zip(limits, judged, strict=False):
        if one["verdict"] != "UNDECIDED":
            continue
        needed = requests_needed(limit, latencies)
        if needed is not None and needed > len(latencies.ordered):
            found.append(
                f"{limit.words} needs about {significant(needed, 2)} requests to pass; there were "
                f"{len(latencies.ordered):,}."
            )
    return found


def _calls(raw: RawRun) -> Iterator[tuple[int, int, int]]:
    """Yield the first request of each completed call, its samples, and the number of its requests."""
    kinds, kind = [one.rows for one in raw.kinds], raw.arrivals.kind
    first = rows = count = -1
    for i, end in enumerate(raw.end_ns):
        if not end:
            continue
        if first >= 0 and raw.batch[i] == raw.batch[first]:
            rows += kinds[kind[i]]
            count += 1
            continue
        if first >= 0:
            yield first, rows, count
        first, rows, count = i, kinds[kind[i]], 1
    if first >= 0:
        yield first, rows, count


def _batches(raw: RawRun) -> dict[str, int]:
    return {str(rows): calls for rows, calls in sorted(Counter(rows for _, rows, _ in _calls(raw)).items())}


def _new_shapes(raw: RawRun) -> list[NewShapeCost]:
    """The first call of each size beside its later ones; empty for one size, or where calls joined them."""
    if len(raw.kinds) < 2:
        return []
    first: dict[int, float] = {}
    later: dict[int, list[float]] = {}
    for i, _, requests in _calls(raw):
        if requests > 1:
            return []
        spent, kind = (raw.end_ns[i] - raw.start_ns[i]) / _NS, raw.arrivals.kind[i]
        if kind in first:
            later[kind].append(spent)
        else:
            first[kind], later[kind] = spent, []
    return [
        {
            "rows": raw.kinds[kind].rows,
            "dims": dict(raw.kinds[kind].dims),
            "requests": 1 + len(later[kind]),
            "first_s": spent,
            "later_s": statistics.median(later[kind]) if later[kind] else None,
        }
        for kind, spent in sorted(first.items())
    ]


def _queue_max(raw: RawRun) -> int:
    """The most requests that waited at the same time: arrived, but not yet taken."""
    end = _end_ns(raw) if raw.outcome != "complete" else math.inf
    starts = sorted(one for one in raw.start_ns if one)
    most = taken = 0
    for arrived, at in enumerate(raw.arrivals.at_ns, 1):
        if at > end:
            break
        while taken < len(starts) and starts[taken] <= at:
            taken += 1
        most = max(most, arrived - taken)
    return most


def _busy_share(raw: RawRun, window: _Window) -> float:
    low, high = window.from_s * _NS, window.until_s * _NS
    spent = math.fsum(
        max(0.0, min(high, raw.end_ns[i]) - max(low, raw.start_ns[i])) for i, _, _ in _calls(raw)
    )
    total = (high - low) * raw.streams
    return min(1.0, spent / total) if total > 0 else 0.0


def _cpus(raw: RawRun) -> float | None:
    wall = math.fsum(one["wall_s"] for one in raw.counters)
    return math.fsum(one["cpu_s"] for one in raw.counters) / wall if wall else None


def _ecdf(ordered: Sequence[float]) -> list[list[float]]:
    """Points of the distribution: evenly spaced, and closer towards the tail."""
    n = len(ordered)
    if not n:
        return []
    half = ECDF_POINTS // 2
    even = {round((i + 1) / half * n) for i in range(half)}
    tail = {n - round(n ** (1 - i / (half - 1))) + 1 for i in range(half)}
    ranks = sorted(one for one in even | tail if 1 <= one <= n)
    return [[ordered[rank - 1], rank / n] for rank in ranks if ordered[rank - 1] < math.inf]


# --- all runs at one rate -----------------------------------------------------------------------------------


def point(
    results: Sequence[RunResult],
    raws: Sequence[RawRun],
    load: LoadSpec,
    *,
    runs: Sequence[int],
    fresh: bool,
) -> Point:
    """Return the numbers of all runs of one configuration at one rate.

    Percentiles and limits come from the requests of all runs together. One saturated run fails the limits,
    and one whose harness was rejected is no measurement of the latency, see `run_result`.

    Args:
        results: of these runs.
        raws: the same runs, in the same order.
        load: the load test.
        runs: their indices in the load test.
        fresh: as in `Point`.
    """
    outcomes = [one["outcome"] for one in results]
    latencies = Clusters([_counted(raw, _window(raw, load)) for raw in raws])
    added = _worst_harness(results)
    rejected = added is not None and not added["accepted"]
    limits = _limits(load.limits, outcomes, latencies, rejected=rejected)
    latency: list[Percentile] = [] if "saturated" in outcomes else percentiles(latencies)[0]
    rate, memory = raws[0].rate, [one["memory_bytes"] for one in results if one["memory_bytes"] is not None]
    cpus = [one["cpus"] for one in results if one["cpus"] is not None]
    return {
        "configuration": raws[0].configuration,
        "rate_per_s": statistics.fmean(one["rate_per_s"] for one in results) if rate is None else rate,
        "runs": list(runs),
        "outcome": max(outcomes, key=_WORST.index),
        "requests": sum(one["requests"] for one in results),
        "completed_per_s": statistics.fmean(one["completed_per_s"] for one in results),
        "samples_per_s": statistics.fmean(one["samples_per_s"] for one in results),
        "latency": latency,
        "limits": limits,
        "verdict": worst([one["verdict"] for one in limits]),
        "harness": added,
        "cpus": statistics.fmean(cpus) if cpus else None,
        "memory_bytes": max(memory, default=None),
        "fresh": fresh,
    }


def _worst_harness(results: Sequence[RunResult]) -> Harness | None:
    found = [one["harness"] for one in results if one["harness"] is not None]
    if not found:
        return None
    largest = max(found, key=lambda one: (not one["accepted"], one["share_of_p50"]))
    rejected = sum(not one["accepted"] for one in found)
    if rejected and len(found) > 1:
        return {**largest, "reason": f"{largest['reason']} So in {rejected} of {len(found)} runs."}
    return largest


# --- course -------------------------------------------------------------------------------------------------


def course(raw: RawRun, most: int = COURSE_PARTS) -> list[Second]:
    """Return the course of a run, for plots: equal parts of at least one second, at most `most` of them."""
    until_s = raw.duration_s if raw.outcome == "complete" else min(raw.duration_s, _end_ns(raw) / _NS)
    if until_s <= 0:
        return []
    collected = _Course(until_s / max(1, min(most, math.floor(until_s))), raw.warmup_s)
    for at, start, end in zip(raw.arrivals.at_ns, raw.start_ns, raw.end_ns, strict=True):
        if at < until_s * _NS:
            collected.arrive(at)
        collected.serve(at, start, end)
    return collected.seconds(until_s)


class _Course:
    """Counts arrivals, starts and ends in parts of the time, and keeps the latencies of each part."""

    def __init__(self, length_s: float, warmup_s: float) -> None:
        self._length_s, self._warmup_s = length_s, warmup_s
        self._scale = 1 / (length_s * _NS)
        self._arrivals: list[int] = []
        self._taken: list[int] = []
        self._done: list[int] = []
        self._latency_s: list[list[float]] = []
        self._ranks: dict[int, tuple[float | None, float | None]] = {}  # p50 and p99 of unchanged parts

    def __len__(self) -> int:
        return len(self._arrivals)

    def _at(self, at_ns: int) -> int:
        part = int(at_ns * self._scale)
        while len(self._arrivals) <= part:
            self._arrivals.append(0)
            self._taken.append(0)
            self._done.append(0)
            self._latency_s.append([])
        return part

    def arrive(self, at_ns: int) -> None:
        self._arrivals[self._at(at_ns)] += 1

    def serve(self, at_ns: int, start_ns: int, end_ns: int) -> None:
        if start_ns:
            self._taken[self._at(start_ns)] += 1
        if end_ns:
            self._done[self._at(end_ns)] += 1
            part = self._at(at_ns)
            self._latency_s[part].append((end_ns - at_ns) / _NS)
            self._ranks.pop(part, None)

    def merge(self) -> None:
        """Join pairs of parts: a longer run keeps the number of its parts."""
        for counts in (self._arrivals, self._taken, self._done):
            counts[:] = [sum(counts[i : i + 2]) for i in range(0, len(counts), 2)]
        pairs = self._latency_s
        self._latency_s = [[*itertools.chain(*pairs[i : i + 2])] for i in range(0, len(pairs), 2)]
        self._ranks.clear()
        self._length_s *= 2
        self._scale /= 2

    def seconds(self, until_s: float) -> list[Second]:
        """Return the parts that began before `until_s`."""
        found: list[Second] = []
        waiting, ends = 0, until_s - 1e-9
        for i in range(min(len(self), max(1, math.ceil(ends / self._length_s)))):
            low = i * self._length_s
            high = min(low + self._length_s, until_s)
            waiting += self._arrivals[i] - self._taken[i]
            if i not in self._ranks:
                ordered = sorted(self._latency_s[i])
                self._ranks[i] = _rank(ordered, 0.5), _rank(ordered, 0.99)
            p50_s, p99_s = self._ranks[i]
            found.append(
                {
                    "at_s": (low + high) / 2,
                    "seconds": high - low,
                    "arrivals": self._arrivals[i],
                    "completions": self._done[i],
                    "queue": max(0, waiting),
                    "p50_s": p50_s,
                    "p99_s": p99_s,
                    "counted": low >= self._warmup_s - 1e-9,
                }
            )
        return found


def _rank(ordered: Sequence[float], p: float) -> float | None:
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)] if ordered else None


class LiveUpdate(TypedDict):
    """What is known of a run while it lasts."""

    queue: int  # requests that wait now
    course: list[Second]
    p50_s: float | None  # so far, without the warm-up
    p99_s: float | None


class LiveCourse:
    """The course of one running run; each update reads only the requests that are new since the last one.

    In a closed loop, whose requests are all due at 0, a request arrives when it is taken.
    """

    def __init__(self) -> None:
        self._course: _Course | None = None
        self._arrived = self._taken = self._final = 0  # numbers of requests; all are in order of the queue
        self._latency_s: list[float] = []  # counted, ascending

    def update(self, raw: RawRun, elapsed_s: float) -> LiveUpdate:
        """Return the state at `elapsed_s` from the start of the run.

        Args:
            raw: the same run each time; its columns may be live views.
            elapsed_s: seconds since its start.
        """
        if self._course is None:
            self._course = _Course(1.0, raw.warmup_s)
        at_ns, starts, ends, n = raw.arrivals.at_ns, raw.start_ns, raw.end_ns, len(raw.arrivals.at_ns)
        warm_ns, now_ns = raw.warmup_s * _NS, elapsed_s * _NS
        closed = n > 1 and not at_ns[-1]  # all are due at once: each arrives when a caller makes it
        while self._arrived < n and (starts[self._arrived] if closed else at_ns[self._arrived] <= now_ns):
            self._course.arrive(starts[self._arrived] if closed else at_ns[self._arrived])
            self._arrived += 1
        while self._taken < n and starts[self._taken]:
            self._taken += 1
        while self._final < n and (ends[self._final] or _timed_out(raw, self._final)):
            start, end = starts[self._final], ends[self._final]
            at = start if closed else at_ns[self._final]
            self._course.serve(at, start, end)
            if end and at >= warm_ns:
                self._latency_s.append((end - at) / _NS)
            self._final += 1
        self._latency_s.sort()  # two ordered parts: linear
        while len(self._course) > LIVE_PARTS:
            self._course.merge()
        return {
            "queue": max(0, self._arrived - self._taken),
            "course": self._course.seconds(elapsed_s),
            "p50_s": _rank(self._latency_s, 0.5),
            "p99_s": _rank(self._latency_s, 0.99),
        }
