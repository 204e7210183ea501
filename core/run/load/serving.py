"""Runs schedules of requests in fresh processes, one per configuration, and watches their records.

A worker only serves. This module, in the parent, reads the shared record a few times a second: it shows the
course, ends a saturated run early, and ends a worker that hangs. What was measured is kept in every case. No
store, no queue; `core.evidence.load` computes the numbers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.load.load_types import Arrivals, Kind, RawRun, RunOutcome
from core.evidence.other_processes import between
from core.evidence.record import Entry
from core.process import scratch
from core.process.contestant_workers import Worker, Workers
from core.process.cpu_use import snapshot
from core.run.launches.blocks import park, start_loaded
from core.spec.load import BatchingSpec
from core.wire import traffic_record
from core.wire.engines import ENGINES
from core.wire.errors import Cancelled, SpecError, TunerError
from core.wire.limits import allowed_cpus
from core.wire.traffic_record import TrafficRecord

POLL_S = 0.25
LEAD_S = 0.05  # from the request to serve until the first arrival can be due
STOP_S = 2.0  # for the last request to end after a stop; then the worker is killed
HANG_S, HANG_FACTOR = 30.0, 50.0  # without a completed request, and times a typical run
SPIN_NS = 200_000
SPIN_CPUS = 4  # below, a spinning stream takes the CPU that another thread needs
SATURATED_LIMITS = 4.0  # waiting longer than so many latency limits
SATURATED_S, SATURATED_RUNS = 5.0, 100.0  # without a limit: waiting so long, and so many typical runs
UNEVEN_FACTOR = 5.0  # for arrivals that are meant to come in waves


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One configuration that serves."""

    index: int  # of the configuration
    entry: Entry
    kinds: Sequence[Kind]
    feeds: Sequence[wire.FeedPlan]  # of each kind
    streams: int
    batching: BatchingSpec | None
    timeout_s: float | None  # a request that waits longer is dropped
    limit_s: float | None  # largest latency limit, for the end of a saturated run
    load_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The requests of one run. A closed loop has all of them due at once, until `duration_s`."""

    arrivals: Arrivals
    rate: float | None
    turn: int
    warmup_s: float
    duration_s: float  # with the warm-up
    closed: bool = False
    uneven: bool = False  # arrivals are meant to come in waves


@dataclass(slots=True)
class _Running:
    """The state of one worker that serves."""

    service: Service
    schedule: Schedule
    worker: Worker
    record: TrafficRecord
    run_s: float  # typical warm run
    providers: list[str]
    cpus: int  # that it may use
    started: int = 0  # requests that have been taken
    last_end_s: float = 0.0  # when the number of taken requests changed last
    outcome: RunOutcome = "complete"
    reason: str = ""
    stopped_at: float | None = None
    reply: wire.TrafficReply | None = None
    error: TunerError | None = None
    notes: list[str] = field(default_factory=list)


OnCourse = Callable[[Sequence[RawRun], float], None]


def serve(
    workers: Workers,
    what: Sequence[tuple[Service, Schedule]],
    on_course: OnCourse,
    on_step: Callable[[str, str], None] = lambda stage, label: None,
    seed: int | None = None,
) -> tuple[list[RawRun], list[list[str]]]:
    """Start a fresh process for each configuration, and let all serve at the same time.

    A worker that crashes, hangs or saturates ends its run only; its outcome says so.

    Args:
        workers: starts processes; its cancel event ends the runs, which keep what was measured.
        what: the configurations with their schedules.
        on_course: called a few times a second with the runs so far and the seconds since their begin.
        on_step: called with "load", "warm-up" or "traffic" and the label of the configuration.
        seed: of the memory layouts; None: a random one.

    Returns:
        The runs, and the providers that each used.

    Raises:
        Cancelled: before the first request.
        TunerError: a configuration cannot be loaded, or its inputs cannot be made.
    """
    with contextlib.ExitStack() as ends, scratch.folder() as folder:
        running = [
            _start(workers, service, schedule, folder, on_step, seed, ends) for service, schedule in what
        ]
        started_at, before = time.time(), snapshot()
        on_step("traffic", ", ".join(one.service.entry.label for one in running))
        begin_ns = time.monotonic_ns() + int(LEAD_S * 1e9)
        with concurrent.futures.ThreadPoolExecutor(len(running)) as threads:
            asked = {threads.submit(_ask, one, begin_ns): one for one in running}
            _watch(running, asked, workers, begin_ns, on_course)
        others = between(before, snapshot(), own=workers.pids | {os.getpid()})
        runs = [_raw(one, started_at) for one in running]
        for run in runs:
            run.other_processes = others
        return runs, [one.providers for one in running]


def _start(
    workers: Workers,
    service: Service,
    schedule: Schedule,
    folder: Path,
    on_step: Callable[[str, str], None],
    seed: int | None,
    ends: contextlib.ExitStack,
) -> _Running:
    """Start, load and warm up one worker, and make the inputs of its requests."""
    label, timeout_s = service.entry.label, service.load_timeout_s
    layout = secrets.randbelow(2**31) if seed is None else seed
    requests = len(schedule.arrivals.at_ns)
    path = traffic_record.folder(requests, folder) / f"{scratch.PREFIX}traffic-{secrets.token_hex(8)}"
    try:
        record = traffic_record.create(path, schedule.arrivals.at_ns, schedule.arrivals.kind)
    except OSError as error:
        raise SpecError(
            f"There is no space for the record of {requests:,} requests: {error.strerror or error}.",
            hint="Free space, or shorten the duration.",
        ) from error
    ends.callback(path.unlink, missing_ok=True)
    ends.callback(record.close)
    on_step("load", label)
    worker, loaded = start_loaded(workers, service.entry, timeout_s, layout_seed=layout, writes=[str(path)])
    ends.callback(worker.kill)
    on_step("warm-up", label)
    warm = worker.ask(wire.WARM, {"known_ns": None, "cap_s": None}, timeout_s=timeout_s)
    plan: wire.TrafficPlan = {
        "record": str(path),
        "requests": requests,
        "kinds": list(service.feeds),
        "streams": service.streams,
        "first_stream": 0,
        "shared": False,
        "batching": _batching(service.batching),
        "drop_ns": 0 if service.timeout_s is None else int(service.timeout_s * 1e9),
        "until_ns": int(schedule.duration_s * 1e9) if schedule.closed else 0,
        "spin_ns": SPIN_NS if _may_spin(service) and not schedule.closed else 0,
    }
    worker.ask(wire.PREPARE_TRAFFIC, plan, timeout_s=timeout_s)
    path.unlink()  # both have it mapped
    if not park(worker):
        worker.thaw()
    return _Running(
        service,
        schedule,
        worker,
        record,
        warm["median_ns"] / 1e9,
        loaded["effective_providers"],
        len(loaded["affinity"]),
    )


def _batching(spec: BatchingSpec | None) -> wire.BatchingPlan | None:
    if spec is None:
        return None
    return {
        "max_batch_size": spec.max_batch_size,
        "max_delay_ns": 1000 * spec.max_queue_delay_microseconds,
        "preferred": list(spec.preferred_batch_size),
    }


def _may_spin(service: Service) -> bool:
    """Whether a stream may wait without sleeping: it needs a CPU that no thread of the session uses."""
    cpus = service.entry.plan["cpus"] or allowed_cpus()
    plan = service.entry.plan
    own = plan["openvino"]["properties"] if "openvino" in plan else plan["session"]["attributes"]
    name = ENGINES[plan["engine"]].threads.rpartition(".")[2]
    threads = int(own.get(name, 0)) or len(cpus)
    return len(cpus) >= SPIN_CPUS and service.streams == 1 and threads < len(cpus)


def _ask(one: _Running, begin_ns: int) -> None:
    """Let the worker serve; its reply or its error stands in `one` afterwards."""
    try:
        one.worker.thaw()
        timeout_s = one.schedule.duration_s + 86_400.0  # `_watch` ends a worker that hangs
        one.reply = one.worker.ask(wire.TRAFFIC, {"begin_ns": begin_ns}, timeout_s=timeout_s)
    except TunerError as error:
        one.error = error


def _watch(
    running: Sequence[_Running],
    asked: dict[concurrent.futures.Future[None], _Running],
    workers: Workers,
    begin_ns: int,
    on_course: OnCourse,
) -> None:
    """Wait until every worker has ended or was ended."""
    waiting = set(asked)
    while waiting:
        _, waiting = concurrent.futures.wait(waiting, POLL_S)
        now_s = (time.monotonic_ns() - begin_ns) / 1e9
        for future in waiting:
            _check(asked[future], now_s)
        on_course([_raw(one, 0.0, copy=False) for one in running], now_s)
    for one in running:
        _conclude(one, cancelled=workers.cancel.is_set())


def _check(one: _Running, now_s: float) -> None:
    """Stop a run that is saturated, and kill a worker that hangs."""
    record, schedule = one.record, one.schedule
    before = one.started
    while one.started < record.requests and record.start_ns[one.started]:
        one.started += 1
    if one.started != before:
        one.last_end_s = now_s
    if one.stopped_at is not None:
        if now_s - one.stopped_at > STOP_S + HANG_FACTOR * one.run_s:
            one.worker.end_hung()
        return
    if one.started == record.requests and schedule.closed:
        return
    due = one.started < record.requests and record.at_ns[one.started] / 1e9 <= now_s
    idle_s = now_s - max(one.last_end_s, 0.0)
    if (due or one.started == record.requests) and idle_s > max(HANG_S, HANG_FACTOR * one.run_s):
        one.outcome, one.reason = "failed", f"The worker completed no request for {idle_s:.0f} s."
        one.stopped_at = now_s
        one.worker.end_hung()
        return
    if schedule.closed or not due or one.service.timeout_s is not None:
        return
    waiting_s = now_s - record.at_ns[one.started] / 1e9
    if waiting_s > _saturated_s(one):
        one.outcome, one.stopped_at = "saturated", now_s
        one.reason = (
            f"Saturated after {now_s:.1f} s: requests arrive faster than they are served; the next one has "
            f"waited {waiting_s:.2f} s."
        )
        record.stop()


def _saturated_s(one: _Running) -> float:
    """The wait of the next request from which a run counts as saturated, in seconds."""
    limit_s = one.service.limit_s
    longest = SATURATED_LIMITS * limit_s if limit_s is not None else SATURATED_S
    longest = max(longest, 4 * POLL_S, (SATURATED_RUNS if limit_s is None else 4.0) * one.run_s)
    return longest * (UNEVEN_FACTOR if one.schedule.uneven else 1.0)


def _conclude(one: _Running, *, cancelled: bool) -> None:
    if isinstance(one.error, Cancelled) or (cancelled and one.outcome == "complete"):
        one.outcome, one.reason = "cancelled", "Cancelled."
    elif one.error is not None and one.outcome == "complete":
        one.outcome, one.reason = "failed", one.error.message


def _raw(one: _Running, started_at: float, *, copy: bool = True) -> RawRun:
    """Return the run as the record has it now; without `copy` it is valid only while the worker runs."""
    record, schedule = one.record, one.schedule

    def column(code: str, view: Any) -> Any:
        return array(code, view) if copy else view

    return RawRun(
        configuration=one.service.index,
        rate=schedule.rate,
        turn=schedule.turn,
        arrivals=schedule.arrivals,
        kinds=one.service.kinds,
        start_ns=column("q", record.start_ns),
        end_ns=column("q", record.end_ns),
        stream=column("H", record.stream),
        batch=column("q", record.batch),
        outcome=one.outcome,
        reason=one.reason,
        streams=one.service.streams,
        warmup_s=schedule.warmup_s,
        duration_s=schedule.duration_s,
        dropped_ns=0 if one.service.timeout_s is None else int(one.service.timeout_s * 1e9),
        counters=[] if one.reply is None else [one.reply["counters"]],
        memory_bytes=None if one.reply is None else one.reply["memory_bytes"],
        cpus=one.cpus,
        started_at=started_at,
        notes=list(one.notes),
    )
