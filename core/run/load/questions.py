"""Decides which runs answer the question of a load test, and runs them one after another.

traffic    every configuration at every rate, in turns of random order
limit      capacity, probes, confirmation: `evidence.load.limit_search` chooses the rates
batching   service times of batch sizes, simulation, then real runs of the best pairs
together   each configuration alone and all at the same time, in turns

A load test pauses for others between these runs, but not between runs of one turn that are compared with each
other: the machine may have changed after a pause.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.evidence.load import batching as evidence_of_batching
from core.evidence.load.arrivals import schedule
from core.evidence.load.contrasts import load_contrast
from core.evidence.load.limit_search import DEFAULT_BUDGET_S, LimitSearch, Step, Tried, out_of_reach
from core.evidence.load.load_result import LoadRecord, is_rejected, percentile_at
from core.evidence.load.load_types import Arrivals, BatchingTrial, Point, RawRun, ServiceTime
from core.evidence.load.run_result import LiveCourse, point, run_result
from core.evidence.statistics import percentile
from core.process.contestant_workers import Workers
from core.process.job_worker import Progress
from core.run.job import Service as JobService
from core.run.load.prepared import PreparedService
from core.run.load.serving import Schedule, serve
from core.spec.load import BatchingSpec, LoadSpec
from core.wire.errors import Cancelled, TunerError, WorkerError

SEVERAL_TURNS = 6  # where configurations are compared: fresh processes each, so that their spread shows
CAPACITY_S, CAPACITY_WARMUP_S = 3.0, 0.5
SERVICE_TIMES_S = 6.0  # for all batch sizes together
CAPACITY_REQUESTS = 300_000  # 100,000 requests/s: beyond what a Python process can issue
EVEN = ("poisson", "constant")
TRACE_WARMUP = 0.1  # a trace as recorded loses at most this share as warm-up


class LoadRun:
    """One load test; `run` performs it. `raws` and `record` hold what was measured so far."""

    def __init__(self, prepared: Sequence[PreparedService], load: LoadSpec, service: JobService) -> None:
        """Start nothing yet."""
        self.prepared, self.load, self.service = prepared, load, service
        self.raws: list[RawRun] = []
        self.record = LoadRecord(configurations=[one.facts for one in prepared])
        self._random = random.Random(load.seed)  # noqa: S311 - an order of runs
        self._done, self._total = 0, 0

    def run(self) -> None:
        """Run everything that the question needs.

        Raises:
            Cancelled: the job was cancelled; runs so far are kept.
            TunerError: no configuration can serve.
        """
        {
            "traffic": self._traffic,
            "limit": self._limit,
            "batching": self._batching,
            "together": self._together,
        }[self.load.question]()

    # --- traffic --------------------------------------------------------------------------------------------

    def _turns(self) -> int:
        return self.load.turns or (SEVERAL_TURNS if len(self.prepared) > 1 else 1)

    def _rates(self) -> Sequence[float | None]:
        return self.load.rates or (None,)

    def _traffic(self) -> None:
        turns, rates = self._turns(), self._rates()
        self._total = turns * len(rates) * len(self.prepared)
        try:
            for turn in range(turns):
                for rate in self._random.sample(rates, len(rates)):
                    self.service.pause()
                    for one in self._random.sample(self.prepared, len(self.prepared)):
                        self._one(one, rate, turn, seconds=self.load.effective_duration_s / turns)
        finally:  # also of what was measured before a cancel
            for rate in rates:
                for one in self.prepared:
                    self._add_point(self._runs_of(one, rate))
        self._check_any()
        self._compare(rates)

    def _compare(self, rates: Sequence[float | None]) -> None:
        """Contrast every configuration with the first, at every rate."""
        family = max(1, len(self.prepared) - 1)
        for rate in rates:
            first = [self.record.runs[index] for index in self._runs_of(self.prepared[0], rate)]
            for one in self.prepared[1:]:
                own = [self.record.runs[index] for index in self._runs_of(one, rate)]
                found = [load_contrast(own, first, p, rate=rate, family=family) for p in self._percentiles()]
                self.record.contrasts += [contrast for contrast in found if contrast is not None]

    def _runs_of(self, one: PreparedService, rate: float | None) -> list[int]:
        return [
            index
            for index, raw in enumerate(self.raws)
            if raw.configuration == one.index and raw.rate == rate and not self.record.runs[index]["beside"]
        ]

    def _one(
        self,
        one: PreparedService,
        rate: float | None,
        turn: int,
        *,
        seconds: float,
        batching: BatchingSpec | None = None,
        stage: str = "traffic",
    ) -> int | None:
        """Run one configuration; return the index of its run, None where it cannot serve."""
        if one.facts["error"]:
            return None
        found = self._serve([(one, self._schedule(one, rate, turn, seconds))], stage, batching)
        return found[0] if found else None

    def _schedule(self, one: PreparedService, rate: float | None, turn: int, seconds: float) -> Schedule:
        load, warmup_s = self.load, self.load.warmup_s
        total = warmup_s + seconds
        if one.trace is not None and load.duration_s is None:
            length = one.trace.length_s(rate)
            total = length + 1e-3
            warmup_s = min(warmup_s, TRACE_WARMUP * length)
        arrivals = schedule(
            load.arrivals,
            rate=rate,
            seconds=total,
            weights=one.weights,
            seed=load.seed + turn,
            trace=one.trace,
        )
        return Schedule(
            arrivals=arrivals,
            rate=rate,
            turn=turn,
            warmup_s=warmup_s,
            duration_s=total,
            uneven=load.arrivals.process not in EVEN,
        )

    def _serve(
        self,
        what: Sequence[tuple[PreparedService, Schedule]],
        stage: str,
        batching: BatchingSpec | None = None,
    ) -> list[int]:
        """Let configurations serve at the same time; return the indices of their runs.

        Raises:
            Cancelled: a run was cancelled; it is kept.
            TunerError: a configuration cannot serve, and it is the only one, or one of several models.
        """
        try:
            raws = self._run(what, stage, batching)
        except Cancelled:
            raise
        except TunerError as error:
            if len(what) > 1 or len(self.prepared) == 1:
                raise
            what[0][0].facts["error"] = error.message
            return []
        runs = []
        for raw, (one, _) in zip(raws, what, strict=True):
            beside = [other.index for other, _ in what if other is not one]
            self.raws.append(raw)
            self.record.runs.append(run_result(raw, self.load, batching or one.batching, beside=beside))
            runs.append(len(self.raws) - 1)
        if any(raw.outcome == "cancelled" for raw in raws):
            raise Cancelled("The load test was cancelled.", hint="Start it again for a complete result.")
        return runs

    def _run(
        self,
        what: Sequence[tuple[PreparedService, Schedule]],
        stage: str,
        batching: BatchingSpec | None = None,
    ) -> list[RawRun]:
        """Let configurations serve at the same time, and show the course of the first."""
        labels = ", ".join(one.facts["label"] for one, _ in what)
        course = LiveCourse()

        def on_step(step: str, label: str) -> None:
            self.service.on_progress(Progress(stage=step, done=self._done, total=self._total, text=label))

        def on_course(runs: Sequence[RawRun], elapsed_s: float) -> None:
            live = course.update(runs[0], elapsed_s)
            self.service.on_live({"load": {**live, **self._now(what[0], stage, elapsed_s)}})

        rate = what[0][1].rate
        on_step("load", labels if rate is None else f"{labels} at {rate:g}/s")
        services = [(one.service(self.load, batching), schedule) for one, schedule in what]
        with Workers(self.service.cancel, self.service.fork_server) as workers:
            raws, providers = serve(workers, services, on_course, on_step)
        for (one, _), used in zip(what, providers, strict=True):
            one.facts["effective_providers"] = used
        self._done += 1
        return raws

    def _now(self, what: tuple[PreparedService, Schedule], stage: str, elapsed_s: float) -> dict[str, Any]:
        one, schedule_ = what
        return {
            "run": self._done + 1,
            "runs": self._total,
            "configuration": one.index,
            "label": one.facts["label"],
            "rate_per_s": schedule_.rate,
            "elapsed_s": elapsed_s,
            "duration_s": schedule_.duration_s,
            "points": self.record.points,
            "limits": [one.text for one in self.load.limits],
            "stage": stage,
        }

    def _add_point(self, runs: Sequence[int], *, fresh: bool = True) -> int | None:
        """Add the point of these runs of one configuration at one rate; return its index."""
        if not runs:
            return None
        results, raws = [self.record.runs[index] for index in runs], [self.raws[index] for index in runs]
        self.record.points.append(point(results, raws, self.load, runs=list(runs), fresh=fresh))
        return len(self.record.points) - 1

    def _check_any(self) -> None:
        """Raise the error of the first configuration where none could serve."""
        if not self.raws:
            raise WorkerError(self.prepared[0].facts["error"], hint="Correct the configuration.")

    # --- the highest rate -----------------------------------------------------------------------------------

    def _limit(self) -> None:
        for one in self.prepared:
            self._limit_of(one)
        if not self.record.highest:
            self._check_any()

    def _limit_of(self, one: PreparedService) -> None:
        load = self.load
        self.service.pause()
        raw = self._closed(one, CAPACITY_S, stage="capacity")
        if raw is None:
            return
        capacity, service_s = _capacity(raw)
        if (answer := out_of_reach(one.index, capacity, service_s, load.limits)) is not None:
            self.record.highest.append(answer)
            return
        search = LimitSearch(
            capacity=capacity, warmup_s=load.warmup_s, budget_s=load.budget_s or DEFAULT_BUDGET_S
        )
        try:
            while (step := search.next_step()) is not None:
                self.service.pause()
                self._try(one, step, search)
        finally:
            self.record.highest.append(search.answer(one.index, load.limits))

    def _try(self, one: PreparedService, step: Step, search: LimitSearch) -> None:
        stage = "confirm" if step.confirms else "probe"
        run = self._one(one, step.rate, len(search.tried), seconds=step.seconds, stage=stage)
        assert run is not None, one.facts["error"]
        index = self._add_point([run], fresh=step.confirms)
        assert index is not None
        found = self.record.points[index]
        search.add(
            Tried(
                step=step,
                verdict=found["verdict"] or "UNDECIDED",
                outcome=found["outcome"],
                over=max((limit["share"] / limit["allowed"] for limit in found["limits"]), default=0.0),
                rejected=is_rejected(found),
            )
        )
        if found["outcome"] == "failed":
            raise WorkerError(self.raws[run].reason, hint="Look at the runs before it.")

    def _closed(self, one: PreparedService, seconds: float, *, stage: str) -> RawRun | None:
        """Run a closed loop, whose requests are all due at once; None: it cannot serve."""
        due = array("q", bytes(8 * CAPACITY_REQUESTS))
        kinds = range(len(one.kinds))
        order = array("H", self._random.choices(kinds, one.weights, k=CAPACITY_REQUESTS))
        closed = Schedule(
            arrivals=Arrivals(at_ns=due, kind=order),
            rate=None,
            turn=0,
            warmup_s=CAPACITY_WARMUP_S,
            duration_s=CAPACITY_WARMUP_S + seconds,
            closed=True,
        )
        try:
            [raw] = self._run([(one, closed)], stage)
        except Cancelled:
            raise
        except TunerError as error:
            if len(self.prepared) == 1:
                raise
            one.facts["error"] = error.message
            return None
        if raw.outcome == "failed":
            raise WorkerError(raw.reason, hint="Measure the configuration with `tune` first.")
        if raw.outcome == "cancelled":
            raise Cancelled("The load test was cancelled.", hint="Start it again for a result.")
        return raw

    # --- dynamic batching -----------------------------------------------------------------------------------

    def _batching(self) -> None:
        one, load = self.prepared[0], self.load
        limit = load.latency_limit
        assert limit is not None, "checked by `LoadSpec`"
        assert limit.at_most_s is not None
        sizes = evidence_of_batching.sizes_to_try()
        raw = self._closed(one.of_sizes(sizes), SERVICE_TIMES_S, stage="service times")
        assert raw is not None
        times = evidence_of_batching.service_times(raw)
        if evidence_of_batching.gain(times)[0] < evidence_of_batching.GAIN:
            self.record.batching = evidence_of_batching.cannot_help(times)
            return
        rate = load.rates[0]
        arrivals = self._schedule(one, rate, 0, load.effective_duration_s).arrivals
        trials = evidence_of_batching.shortlist(
            times,
            arrivals,
            one.kinds,
            streams=one.spec.workload.streams,
            limit_s=limit.at_most_s,
            p=limit.percentile,
        )
        self._run_batching(one, trials, times, rate, limit.percentile)

    def _run_batching(
        self,
        one: PreparedService,
        trials: list[BatchingTrial],
        times: Sequence[ServiceTime],
        rate: float,
        p: float,
    ) -> None:
        """Run the best of the shortlist and no batching in turns, and choose."""
        ran = list(range(min(evidence_of_batching.SHORTLIST, len(trials))))
        without = replace(one, batching=None)
        turns = self.load.turns or SEVERAL_TURNS
        seconds = self.load.effective_duration_s / turns
        runs: dict[int | None, list[int]] = {None: [], **{index: [] for index in ran}}
        self._done, self._total = 0, turns * len(runs)
        try:
            for turn in range(turns):
                self.service.pause()
                for index in self._random.sample(list(runs), len(runs)):
                    spec = None if index is None else _spec_of(trials[index])
                    run = self._one(without, rate, turn, seconds=seconds, batching=spec)
                    assert run is not None
                    runs[index].append(run)
        finally:
            places = {index: self._add_point(found) for index, found in runs.items()}
        for index in ran:
            trials[index]["point"] = places[index]
        alone = [self.record.runs[run] for run in runs[None]]
        contrasts = [
            load_contrast(
                [self.record.runs[run] for run in runs[index]], alone, p, rate=rate, family=len(ran)
            )
            if index in runs
            else None
            for index in range(len(trials))
        ]
        place = places[None]
        assert place is not None
        self.record.batching = evidence_of_batching.chosen(
            times, trials, self.record.points, self.record.points[place], contrasts, p
        )

    # --- several models -------------------------------------------------------------------------------------

    def _together(self) -> None:
        load, turns = self.load, self.load.turns or SEVERAL_TURNS
        rates = dict(zip((one.index for one in self.prepared), load.rates, strict=True))
        seconds = load.effective_duration_s / turns
        alone: dict[int, list[int]] = {one.index: [] for one in self.prepared}
        shared: dict[int, list[int]] = {one.index: [] for one in self.prepared}
        self._total = turns * (len(self.prepared) + 1)
        try:
            for turn in range(turns):
                self.service.pause()
                for who in self._random.sample([*self.prepared, None], len(self.prepared) + 1):
                    group = list(self.prepared) if who is None else [who]
                    what = [
                        (one, self._schedule(one, rates[one.index], turn + 1000 * one.index, seconds))
                        for one in group
                    ]
                    found = self._serve(what, "together" if who is None else "traffic")
                    for one, run in zip(group, found, strict=True):
                        self.record.runs[run]["turn"] = turn
                        (shared if who is None else alone)[one.index].append(run)
        finally:
            places = {
                index: (self._add_point(shared[index]), self._add_point(alone[index])) for index in shared
            }
        for index, (beside, without) in places.items():
            if beside is None or without is None:
                continue
            for p in self._percentiles():
                compared = load_contrast(
                    [self.record.runs[run] for run in alone[index]],
                    [self.record.runs[run] for run in shared[index]],
                    p,
                    rate=rates[index],
                    family=len(self.prepared),
                )
                self.record.together.append(
                    {
                        "configuration": index,
                        "p": p,
                        "alone_s": _value(self.record.points[without], p),
                        "together_s": _value(self.record.points[beside], p),
                        "ratio": None if compared is None else compared["ratio"],
                        "ratio_low": None if compared is None else compared["ratio_low"],
                        "ratio_high": None if compared is None else compared["ratio_high"],
                    }
                )

    def _percentiles(self) -> list[float]:
        limit = self.load.latency_limit
        return list(dict.fromkeys([0.5, 0.99 if limit is None else limit.percentile]))


def _value(found: Point, p: float) -> float | None:
    """The percentile of a point; None: it is no measurement, or its requests cannot support it."""
    if is_rejected(found):
        return None
    one = percentile_at(found["latency"], p)
    return None if one is None else one["value_s"]


def _spec_of(trial: BatchingTrial) -> BatchingSpec:
    return BatchingSpec(
        max_batch_size=trial["max_batch_size"],
        max_queue_delay_microseconds=trial["max_queue_delay_microseconds"],
    )


def _capacity(raw: RawRun) -> tuple[float, float]:
    """Return the requests/s of a closed loop after its warm-up, and the median service time in seconds."""
    begin, end = raw.warmup_s * 1e9, raw.duration_s * 1e9
    spans = [(start, stop) for start, stop in zip(raw.start_ns, raw.end_ns, strict=True) if stop]
    inside = sum(max(0.0, min(stop, end) - max(start, begin)) / max(1, stop - start) for start, stop in spans)
    median_s = percentile([stop - start for start, stop in spans], 0.5) / 1e9 if spans else 0.0
    return inside / (raw.duration_s - raw.warmup_s), median_s
