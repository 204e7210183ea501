"""The queue of a run: replayed without the harness's own delays, and simulated.

The streams serve in order of arrival: a stream that is free takes the next requests. The ideal queue has the
scheduled arrivals and the measured service times, and no other delay; what a measured latency has more is the
harness's own share. Source: Lindley (1952), The theory of queues with a single server; for several streams
Kiefer and Wolfowitz (1955), On the theory of queues with many servers.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.evidence.load.load_types import Arrivals, Harness, Kind, RawRun
from core.evidence.statistics import percentile
from core.spec.load import BatchingSpec, LoadSpec
from core.wire.units import ms

MOST_SHARE_OF_P50 = 0.1  # of the median latency that the harness may add
MOST_SHARE_OF_LIMIT = 0.05  # of the smallest latency limit that it may add at p99
LEAST_REQUESTS = 20  # fewer say nothing about what the harness adds
_NS = 1e9


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of `session.run`: its requests in order, and its times in nanoseconds."""

    members: Sequence[int]
    ready_ns: int  # earliest possible start
    start_ns: int
    end_ns: int


def _calls(raw: RawRun, batching: BatchingSpec | None) -> Iterator[_Call]:
    """Yield the completed calls in the order of the queue."""
    at_ns, ends, batches = raw.arrivals.at_ns, raw.end_ns, raw.batch
    if batching is None:
        for i, end in enumerate(ends):
            if end:
                yield _Call((i,), at_ns[i], raw.start_ns[i], end)
        return
    members: list[int] = []
    for i, end in enumerate(ends):
        if not end:
            continue
        if members and batches[i] != batches[members[0]]:
            yield _joined(raw, batching, members)
            members = []
        members.append(i)
    if members:
        yield _joined(raw, batching, members)


def _joined(raw: RawRun, batching: BatchingSpec, members: Sequence[int]) -> _Call:
    at_ns, kinds, kind = raw.arrivals.at_ns, raw.kinds, raw.arrivals.kind
    first, last = members[0], members[-1]
    rows = sum(kinds[kind[i]].rows for i in members)
    ready = at_ns[last]
    if not _is_closed(rows, last + 1, kinds[kind[first]], raw.arrivals, kinds, batching):
        ready = max(ready, at_ns[first] + 1000 * batching.max_queue_delay_microseconds)
    return _Call(members, ready, raw.start_ns[first], raw.end_ns[first])


def _is_closed(
    rows: int, after: int, first: Kind, arrivals: Arrivals, kinds: Sequence[Kind], batching: BatchingSpec
) -> bool:
    """Whether a batch waits for no other request: full, of a preferred size, or the next does not fit."""
    if rows >= batching.max_batch_size or rows in batching.preferred_batch_size:
        return True
    if after >= len(arrivals.at_ns):
        return True
    following = kinds[arrivals.kind[after]]
    return rows + following.rows > batching.max_batch_size or following.dims != first.dims


def ideal(raw: RawRun, batching: BatchingSpec | None = None) -> list[float | None]:
    """Return the latency of each request in the ideal queue, in seconds; None: it was not served.

    The batches that really formed are replayed as they were. A batch cannot start before it was ready: at its
    last arrival, or at the end of the delay where it waited for others. A request that timed out, or that was
    not served, takes no time of a stream.
    """
    free = [0] * raw.streams
    found: list[float | None] = [None] * len(raw.end_ns)
    at_ns = raw.arrivals.at_ns
    for call in _calls(raw, batching):
        end = max(free[0], call.ready_ns) + call.end_ns - call.start_ns
        heapq.heapreplace(free, end)
        for i in call.members:
            found[i] = (end - at_ns[i]) / _NS
    return found


def lateness(raw: RawRun, batching: BatchingSpec | None = None) -> list[float]:
    """Return by how much each call started later than it could, in seconds, in order of the queue.

    A call could start when it was ready and a stream had really ended its last call. Unlike the latency that
    the harness adds, lateness does not add up while the queue is not empty: where it is large, the harness
    itself got no CPU.
    """
    free = [0] * raw.streams
    found = []
    for call in _calls(raw, batching):
        found.append((call.start_ns - max(free[0], call.ready_ns)) / _NS)
        heapq.heapreplace(free, call.end_ns)
    return found


def harness(raw: RawRun, load: LoadSpec, batching: BatchingSpec | None = None) -> Harness | None:
    """Return what the harness added to latencies of counted requests; None: fewer than 20 were served.

    It is accepted if its p50 is at most 10 % of the measured p50, and its p99 at most 5 % of the smallest
    latency limit. Differences below 0 are kept: clipping would bias the percentiles.
    """
    warm_ns, at_ns, ends = raw.warmup_s * _NS, raw.arrivals.at_ns, raw.end_ns
    without = ideal(raw, batching)
    replayed = [(i, one) for i, one in enumerate(without) if one is not None and at_ns[i] >= warm_ns]
    if len(replayed) < LEAST_REQUESTS:
        return None
    measured = sorted((ends[i] - at_ns[i]) / _NS for i, _ in replayed)
    added = sorted((ends[i] - at_ns[i]) / _NS - one for i, one in replayed)
    alone = sorted(one for _, one in replayed)
    p50_s, p99_s, measured_s = _of_sorted(added, 0.5), _of_sorted(added, 0.99), _of_sorted(measured, 0.5)
    share = p50_s / measured_s if measured_s > 0 else math.inf if p50_s > 0 else 0.0
    smallest_s = min((one.at_most_s for one in load.limits if one.at_most_s is not None), default=None)
    reason = _reason(p50_s, p99_s, measured_s, share, smallest_s)
    if reason:
        late_s = percentile(lateness(raw, batching), 0.99)
        reason += f" Calls started up to {ms(max(0.0, late_s), 2)} late (p99)."
    return {
        "p50_s": p50_s,
        "p99_s": p99_s,
        "ideal_p50_s": _of_sorted(alone, 0.5),
        "ideal_p99_s": _of_sorted(alone, 0.99),
        "share_of_p50": share,
        "accepted": not reason,
        "reason": reason,
    }


def _of_sorted(ordered: Sequence[float], p: float) -> float:
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


def _reason(p50_s: float, p99_s: float, measured_s: float, share: float, limit_s: float | None) -> str:
    if share > MOST_SHARE_OF_P50:
        return (
            f"The harness added {100 * share:.0f} % of the median latency ({ms(p50_s, 2)} of "
            f"{ms(measured_s, 2)}); at most {100 * MOST_SHARE_OF_P50:.0f} % is allowed."
        )
    if limit_s is not None and p99_s > MOST_SHARE_OF_LIMIT * limit_s:
        return (
            f"The harness added {ms(p99_s, 2)} at p99; at most {100 * MOST_SHARE_OF_LIMIT:.0f} % of the "
            f"latency limit ({ms(limit_s, 3)}) is allowed."
        )
    return ""


# --- simulation ---------------------------------------------------------------------------------------------


def simulate(  # noqa: PLR0913
    arrivals: Arrivals,
    kinds: Sequence[Kind],
    service_s: Callable[[int], float],
    *,
    streams: int = 1,
    batching: BatchingSpec | None = None,
    warmup_s: float = 0.0,
    duration_s: float | None = None,
    timeout_s: float | None = None,
    late_s: Callable[[], float] | None = None,
) -> RawRun:
    """Return the run of a simulated server with these arrivals.

    Args:
        arrivals: the schedule.
        kinds: sizes of its requests.
        service_s: time of a call with so many samples, in seconds; called once for each call, in order.
        streams: calls that run at the same time.
        batching: joins waiting requests; None: each request runs alone.
        warmup_s: not counted, as in `RawRun`.
        duration_s: scheduled length of the run, as in `RawRun`; None: until the last arrival.
        timeout_s: a request that waits longer is dropped; None: all are served.
        late_s: delay that the harness adds before each call; None: none.
    """
    n, at_ns = len(arrivals.at_ns), arrivals.at_ns
    raw = RawRun(
        configuration=0,
        rate=None,
        turn=0,
        arrivals=arrivals,
        kinds=kinds,
        start_ns=array("q", bytes(8 * n)),
        end_ns=array("q", bytes(8 * n)),
        stream=array("H", bytes(2 * n)),
        batch=array("q", bytes(8 * n)),
        outcome="complete",
        reason="",
        streams=streams,
        warmup_s=warmup_s,
        duration_s=(at_ns[-1] / _NS if n else 0.0) if duration_s is None else duration_s,
        dropped_ns=0 if timeout_s is None else round(timeout_s * _NS),
    )
    free = [(0, stream) for stream in range(streams)]
    i = 0
    while i < n:
        free_ns, stream = free[0]
        start = max(free_ns, at_ns[i])
        if raw.dropped_ns and start - at_ns[i] > raw.dropped_ns:
            raw.start_ns[i] = start
            i += 1
            continue
        end, rows = i + 1, kinds[arrivals.kind[i]].rows
        if batching is not None:
            start, end, rows = _form(i, start, arrivals, kinds, batching)
        start = max(1, start + (round(_NS * late_s()) if late_s is not None else 0))  # 0: not started
        done = start + max(1, round(_NS * service_s(rows)))
        for member in range(i, end):
            raw.start_ns[member], raw.end_ns[member] = start, done
            raw.stream[member], raw.batch[member] = stream, i
        heapq.heapreplace(free, (done, stream))
        i = end
    return raw


def _form(
    first: int, now: int, arrivals: Arrivals, kinds: Sequence[Kind], batching: BatchingSpec
) -> tuple[int, int, int]:
    """Return the start of the batch that begins with request `first`, its end (exclusive), its samples."""
    at_ns, kind = arrivals.at_ns, arrivals.kind
    deadline = at_ns[first] + 1000 * batching.max_queue_delay_microseconds
    end, own = first + 1, kinds[kind[first]]
    rows = own.rows
    while end < len(at_ns) and rows < batching.max_batch_size:
        following = kinds[kind[end]]
        if rows + following.rows > batching.max_batch_size or following.dims != own.dims:
            break
        if at_ns[end] > now:
            if rows in batching.preferred_batch_size or now >= deadline:
                break
            now = min(at_ns[end], deadline)
            continue
        end, rows = end + 1, rows + following.rows
    return now, end, rows
