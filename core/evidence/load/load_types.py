"""The raw record of a run under traffic, and the types of the stored and printed result of a load test.

The store and `--json` use the keys; the comment behind a key becomes its description. Units are seconds,
bytes and shares of 1 unless a comment says otherwise. Latency is completion minus scheduled arrival.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from core import wire
from core.evidence.other_processes import OtherProcesses
from core.evidence.result_types import Busy, Interference

RunOutcome = Literal["complete", "saturated", "failed", "cancelled"]
LoadVerdict = Literal["PASS", "FAIL", "UNDECIDED"]

# --- raw ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One size of request: its samples, and its free dimensions."""

    rows: int
    dims: dict[str, int] = field(default_factory=dict)
    feed: str = ""  # path of an `.npz` with its inputs; empty: those of the configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The schedule of one run, in order of time; all lists have one entry per request."""

    at_ns: array[int]  # scheduled arrival, from the start of the run; "q"
    kind: array[int]  # index of its `Kind`; "H"


@dataclass(slots=True, kw_only=True)
class RawRun:
    """One run: fresh processes of one configuration under one schedule. Lists have one entry per request.

    A request that was not started (the run ended before) has start 0 and end 0; one that timed out in the
    queue has its drop time as start, and end 0. Times are nanoseconds from the start of the run.
    """

    configuration: int  # index
    rate: float | None  # requests/s; None: a trace as recorded
    turn: int  # 0, 1, …: runs of one turn and rate share the schedule's seed
    arrivals: Arrivals
    kinds: Sequence[Kind]
    start_ns: array[int]  # when the server took it
    end_ns: array[int]  # when its outputs were there
    stream: array[int]  # "H": which stream served it
    batch: array[int]  # "q": number of the call of `session.run` that served it; equal in one batch
    outcome: RunOutcome
    reason: str  # why it ended early, a sentence; empty: complete
    streams: int
    warmup_s: float  # not counted, from the start of the run
    duration_s: float  # scheduled seconds, with the warm-up
    dropped_ns: int  # a request that waited longer was dropped; 0: none are
    counters: list[wire.Counters] = field(default_factory=list)  # of consecutive parts of the run
    cpus: int = 0  # that `busy_s` and `steal_s` of the counters cover; 0: not known
    memory_bytes: int | None = None  # private pages of all its processes, at the end
    other_processes: OtherProcesses | None = None
    started_at: float = 0.0  # seconds since the epoch
    notes: list[str] = field(default_factory=list)


# --- results ------------------------------------------------------------------------------------------------


class Percentile(TypedDict):
    """A percentile with its 95 % interval; a bound is null where the requests cannot support it."""

    p: float  # 0.99 for p99
    value_s: float
    low_s: float | None
    high_s: float | None


class LimitResult(TypedDict):
    """One limit judged in one run, or in all runs at one rate."""

    limit: str  # "p99<=20ms"
    share: float  # requests that broke it
    low: float  # one-sided 95 % bounds of that share
    high: float
    allowed: float  # 0.01 for p99
    verdict: LoadVerdict  # PASS: high is at most `allowed`; FAIL: low is above it


class Harness(TypedDict):
    """What the harness itself added: measured latencies minus those of the ideal queue.

    The ideal queue has the scheduled arrivals and the measured service times, and no other delay.
    """

    p50_s: float  # of the latency that the harness added
    p99_s: float
    ideal_p50_s: float
    ideal_p99_s: float
    share_of_p50: float  # p50 added, as a share of the measured p50
    accepted: bool  # false: more than 10 % of p50, so the run is no measurement
    reason: str  # why not accepted; empty: it is


class Second(TypedDict):
    """One part of a run's course, for plots; times from its start, the warm-up included."""

    at_s: float  # middle of the part
    seconds: float
    arrivals: int
    completions: int
    queue: int  # requests waiting at its end
    p50_s: float | None  # of the requests that arrived in it
    p99_s: float | None  # the largest where there are fewer than 100
    counted: bool  # false: warm-up


class NewShapeCost(TypedDict):
    """The first request of a size in a session, beside the later ones of that size."""

    rows: int
    dims: dict[str, int]
    requests: int
    first_s: float  # service time
    later_s: float | None  # median service time; null: it came once


class RunResult(TypedDict):
    """One run under traffic."""

    configuration: int
    beside: list[int]  # other configurations that served at the same time
    rate_per_s: float  # requests/s offered, counted on the schedule without the warm-up
    turn: int
    outcome: RunOutcome
    reason: str
    requests: int  # counted: those that arrived after the warm-up
    completed: int
    timeouts: int
    unserved: int  # arrived but not served when the run ended
    completed_per_s: float
    samples_per_s: float
    latency: list[Percentile]  # from scheduled arrival to completion; empty: none can be given
    mean_s: float | None
    service: list[Percentile]  # from the start of the call to its end
    waiting: list[Percentile]  # from scheduled arrival to the start of the call
    harness: Harness | None  # null: too few requests
    limits: list[LimitResult]
    verdict: LoadVerdict | None  # of all limits; null: there is none
    batches: dict[str, int]  # samples of a call -> calls
    new_shapes: list[NewShapeCost]
    queue_max: int
    busy_share: float  # of the streams' time that was service
    cpus: float | None  # CPU seconds per second of all its processes
    memory_bytes: int | None
    ecdf: list[list[float]]  # up to 200 pairs of latency and share of requests at or below it
    course: list[Second]
    interference: NotRequired[Interference | None]
    busy: NotRequired[Busy | None]
    notes: list[str]


class Point(TypedDict):
    """All runs of one configuration at one rate."""

    configuration: int
    rate_per_s: float
    runs: list[int]  # indices into `runs`
    outcome: RunOutcome  # the worst of its runs
    requests: int
    completed_per_s: float
    samples_per_s: float
    latency: list[Percentile]  # pooled
    limits: list[LimitResult]
    verdict: LoadVerdict | None
    harness: Harness | None
    cpus: float | None
    memory_bytes: int | None
    fresh: bool  # false: a probe of the search for the highest rate, no confirmation


class LoadContrast(TypedDict):
    """Two configurations at the same rate, from turns with the same arrivals."""

    rate_per_s: float
    configuration: int
    baseline: int
    p: float  # percentile
    ratio: float  # baseline's percentile / configuration's; above 1: it is faster
    ratio_low: float | None
    ratio_high: float | None
    verdict: str  # FASTER, SLOWER, EQUIVALENT or UNDECIDED
    turns: int


class Highest(TypedDict):
    """The answer of a search for the highest rate, of one configuration."""

    configuration: int
    capacity_per_s: float  # closed loop: requests/s that its streams complete back to back
    confirmed_per_s: float | None  # highest rate that passed in a fresh process; null: none did
    failed_per_s: float | None  # lowest rate that failed; null: none did
    undecided_per_s: float | None  # highest rate between them that stayed undecided
    words: str  # the answer in a sentence


class ServiceTime(TypedDict):
    """Service time of one batch size, from interleaved blocks."""

    samples: int
    p50_s: float
    low_s: float | None
    high_s: float | None
    per_sample_s: float


class BatchingTrial(TypedDict):
    """One pair of maximum batch and delay: simulated, and perhaps really run."""

    max_batch_size: int
    max_queue_delay_microseconds: int
    preferred_batch_size: list[int]
    simulated_p50_s: float
    simulated_limit_s: float  # the percentile of the latency limit
    simulated_batch: float  # mean samples per call
    point: int | None  # index into `points` of its real run; null: only simulated


class Batching(TypedDict):
    """The search for the best dynamic batching."""

    service_times: list[ServiceTime]
    helps: bool  # samples per second grow with the batch by more than 10 %
    words: str  # the answer in a sentence, also why batching cannot help
    trials: list[BatchingTrial]
    best: int | None  # index into `trials`; null: no batching is best


class LoadConfiguration(TypedDict):
    """One configuration of a load test."""

    label: str
    spec: dict[str, Any]
    model: str  # name
    streams: int
    stream_type: str  # "threads" or "processes"
    effective_providers: list[str]
    error: str  # why it has no result; empty: it has
    libraries: NotRequired[dict[str, str]]  # versions in another runtime than ORTune's own


class Alone(TypedDict):
    """What sharing the machine costs one of several models."""

    configuration: int
    p: float
    alone_s: float | None
    together_s: float | None
    ratio: float | None  # together / alone, from turns with the same arrivals
    ratio_low: float | None
    ratio_high: float | None


class LoadResult(TypedDict):
    """Result of a load test; the trial's `result["load"]`."""

    question: dict[str, Any]  # the `LoadSpec` as plain data
    configurations: list[LoadConfiguration]
    runs: list[RunResult]
    points: list[Point]
    contrasts: list[LoadContrast]
    highest: list[Highest]
    batching: Batching | None
    together: list[Alone]
    verdict: LoadVerdict | None  # of the limits of the first configuration; null: no limits
    words: str  # the answer in a sentence
    notes: list[str]
