"""Live estimates: keeps the ORT default loaded and compares the latest requested configuration with it.

An estimate is a small comparison: each launch pairs a fresh process of the requested configuration with
another process of the ORT default for a few rounds. Its interval is that of `InterimResult.interim`, shown
from the third launch on: one process may be slow for its whole life, which its own rounds cannot show.
Estimates are kept while Live is on, so returning to a configuration continues its estimate. Outputs are not
compared, and nothing is stored. Live yields the machine to every waiting job, and ends after a minute without
a request, or when it has the machine again without one: two of them would hand it to each other all the time.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core import wire
from core.evidence.background_load import discard_reason
from core.evidence.record import Entry, Settings
from core.evidence.stopping import MIN_SHOWN_LAUNCHES, InterimResult, contrast_values
from core.evidence.verdict import ratio_is_known
from core.process.contestant_workers import Worker, Workers
from core.process.job_worker import Progress
from core.run.comparison import entry_of
from core.run.job import Ending, Job, Outcome, Service
from core.run.launches.blocks import Pace, pace, park, run_block, start_loaded
from core.run.launches.processes import SEEDS
from core.run.preparation import prepare_trial, resolve_trial
from core.run.prior import prior_of
from core.spec import TrialSpec, ort_default
from core.spec.effort import Effort
from core.wire.errors import Cancelled, TunerError, WorkerError, record_from_error

IDLE_S = 60.0  # without a request: then it ends
TICK_S = 0.05  # polling interval for requests while other jobs run
MOST_REFERENCES = 2  # models and workloads whose default stays loaded
MOST_KEPT = 64  # configurations, and defaults, whose estimates are kept
MOST_BLOCKS = 256  # newest blocks of a default that give its latency
MAX_VISITORS = 32  # visitors whose last estimate is kept
MOST_VOID = 3  # invalid launches before an estimate gives up
LEAST_S, MOST_S = 1.0, 4.0  # duration of an estimate; a new request ends it after its first number
WARM_CAP_S = 0.5
MOST_TRAIL = 24
LEAST_LAUNCHES, MOST_LAUNCHES = (
    MIN_SHOWN_LAUNCHES,
    12,
)  # of a request; from the lower number on an interval is shown
LIVE_ESTIMATE = Effort(
    name="glimpse", target=0.1, budget_s=5, looks=tuple(range(LEAST_LAUNCHES, MOST_LAUNCHES + 1))
)
ROUNDS, LEAST_ROUNDS = 3, 2  # of a launch; fewer do not show the variance between rounds
BASELINE, CANDIDATE = (0, 0), (1, 0)
WISH, DEFAULT = "wish", "default"  # the sides of an estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """A visitor's request for an estimate."""

    visitor: str  # id of the visitor
    spec: TrialSpec
    label: str  # text at its point
    at: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> str:
        """Key of the estimate."""
        return self.spec.key()


class LiveRequests:
    """Queue of requests from pages to the live job, first in, first out.

    It keeps only the latest request of each visitor; a new one replaces an older one that was not taken.
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        self._changed = threading.Condition()
        self._next: OrderedDict[str, LiveRequest] = OrderedDict()
        self._visitors: set[str] = set()
        self._is_open = True

    def put(self, wish: LiveRequest) -> bool:
        """Add a request; False: the live job has ended, so no estimate will follow."""
        with self._changed:
            if self._is_open:
                self._next[wish.visitor] = wish
                self._visitors.add(wish.visitor)
                self._changed.notify_all()
            return self._is_open

    def leave(self, visitor: str) -> None:
        """Remove a visitor."""
        with self._changed:
            self._next.pop(visitor, None)
            self._visitors.discard(visitor)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> LiveRequest | None:
        """Return the next request, waiting at most `timeout_s` seconds; None: there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._next or not self._visitors, timeout_s)
            return self._next.popitem(last=False)[1] if self._next else None

    def left_behind(self, wish: LiveRequest) -> bool:
        """Whether its visitor has another request by now, or has left."""
        with self._changed:
            return wish.visitor in self._next or wish.visitor not in self._visitors

    @property
    def wait(self) -> bool:
        """Whether other requests wait."""
        with self._changed:
            return bool(self._next)

    @property
    def wanted(self) -> bool:
        """Whether any visitor is still present."""
        with self._changed:
            return bool(self._visitors)

    def close(self, *, even_so: bool = False) -> bool:
        """Accept no more requests; False: one waits, so the queue stays open unless `even_so`."""
        with self._changed:
            if self._next and not even_so:
                return False
            self._is_open = False
            return True


def is_default(spec: TrialSpec) -> bool:
    """Whether a spec is the ORT default, the reference of every estimate."""
    return spec.key() == ort_default(spec).key()


def job(
    wishes: LiveRequests,
    first: LiveRequest,
    *,
    model_name: str,
    before: Mapping[str, Mapping[str, Any]] | None = None,
) -> Job:
    """Return the live job that starts with `first`; later requests must be admitted before `put`.

    Args:
        wishes: its queue.
        first: its first request.
        model_name: for people.
        before: visitor -> last estimate of an earlier live job, whose trail continues on the same model.
    """
    wishes.put(first)
    return Job(
        kind="live",
        what=f"live preview of {model_name}",
        work=partial(_work, wishes, before or {}),
        specs=(first.spec,),
    )


def _work(wishes: LiveRequests, before: Mapping[str, Mapping[str, Any]], service: Service) -> Outcome:
    try:
        with Workers(service.cancel) as workers:
            shown = _Live(wishes, service, workers, before).run()
            return Outcome(whole=Ending(state="COMPLETE", result={"glimpses": shown}))
    finally:
        wishes.close(even_so=True)


@dataclass(slots=True, kw_only=True)
class _WarmProcess:
    """A warm process, stopped with SIGSTOP unless it measures."""

    worker: Worker
    pace: Pace
    rows: int
    number: int  # sequence number within this live job


@dataclass(slots=True, kw_only=True)
class _EstimateData:
    """The measurements of one requested configuration."""

    interim_result: InterimResult
    launches: int = 0
    latencies_s: list[float] = field(default_factory=list)  # medians of its blocks, of several streams
    paired_with: set[int] = field(default_factory=set)  # numbers of the default's processes in its launches


class _NoLongerWanted(Exception):
    """The estimate is no longer wanted; no error."""


class _Live:
    """The state of one live job; `run` performs it."""

    def __init__(
        self,
        wishes: LiveRequests,
        service: Service,
        workers: Workers,
        before: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.wishes, self.service, self.workers, self.before = wishes, service, workers, before or {}
        self.rng = random.Random(0)  # noqa: S311 - an order of rounds
        self.prior_at = prior_of(service.store, service.environment())
        # of the default of a model and a workload, least recently used first: processes, seconds per sample
        self.references: OrderedDict[str, list[_WarmProcess]] = OrderedDict()
        self.blocks: OrderedDict[str, list[float]] = OrderedDict()
        self.found: OrderedDict[str, _EstimateData] = OrderedDict()
        self.known_ns: dict[str, int] = {}
        self.told: OrderedDict[str, dict[str, Any]] = OrderedDict()  # visitor -> displayed estimate
        self.began = 0.0  # start of the current estimate
        self.started = 0  # number of processes

    def run(self) -> int:
        """Serve requests until there are no more, see the text above; return how many were served."""
        shown, last = 0, time.monotonic()
        while (time.monotonic() - last < IDLE_S and self.wishes.wanted) or not self.wishes.close():
            self.service.on_progress(Progress(stage="live", done=shown, total=0))
            wish = self.wishes.take(TICK_S)
            if self.service.cancel.is_set():
                raise Cancelled("The live preview was switched off.", hint="Switch it on again to continue.")
            if wish is None:
                if self.service.give_way() and self.wishes.close():
                    break
                continue
            try:
                self._estimate(wish)
                shown += 1
            except _NoLongerWanted:
                pass
            except Cancelled:
                raise
            except TunerError as error:
                self._publish(wish, state="failed", error=record_from_error(error))
            last = time.monotonic()
            self.service.pause()
        return shown

    # --- an estimate ----------------------------------------------------------------------------------------

    def _estimate(self, wish: LiveRequest) -> None:
        self._publish(wish, state="starts")
        self.began = time.monotonic()
        references = self._default_processes(wish)
        if is_default(wish.spec):
            for one in references:
                self._block(wish, one)
            self._publish_default(wish)
            return
        found = self._known(wish)
        void = 0
        self._publish_estimate(wish, found)
        while found.launches < MOST_LAUNCHES and void < MOST_VOID:
            void += not self._launch(wish, found)
            self._publish_estimate(wish, found)
            late = time.monotonic() - self.began > MOST_S
            if found.launches >= LEAST_LAUNCHES and (late or self.wishes.wait):
                break
        if found.launches < LEAST_LAUNCHES:
            raise WorkerError(
                "Too many rounds of the preview were disturbed.",
                hint="Change the setting again, or press Run.",
            )
        self._publish(wish, state="shown")

    def _known(self, wish: LiveRequest) -> _EstimateData:
        """The measurements of a requested configuration; a new record where there are none."""
        if wish.key not in self.found:
            settings = Settings(
                effort=LIVE_ESTIMATE,
                budget_s=MOST_S,
                margin=wish.spec.protocol.margin,
                seed=0,
                timeout_s=float(wish.spec.protocol.timeout_s),
                baseline=0,
                anchor=0,
            )
            self.found[wish.key] = _EstimateData(interim_result=InterimResult(settings))
        self.found.move_to_end(wish.key)
        while len(self.found) > MOST_KEPT:
            self.found.popitem(last=False)
        return self.found[wish.key]

    def _launch(self, wish: LiveRequest, found: _EstimateData) -> bool:
        """Run one launch: a fresh process against one of the default new to it; False: invalid."""
        reference = self._unpaired_default(wish, found)
        self._check_wanted(wish)
        candidate = self._start(self._entry(wish.spec, wish.label), wish.key, wish)
        try:
            rounds = self._rounds(wish, reference, candidate)
        finally:
            candidate.worker.kill()
        found.paired_with.add(reference.number)
        if len(rounds) < LEAST_ROUNDS:
            return False
        interim_result, launch = found.interim_result, found.launches
        interim_result.prior = self.prior_at(self.known_ns[wish.key] / 1e9)
        for number, (baseline_s, candidate_s) in enumerate(rounds):
            interim_result.add(BASELINE, launch, launch * ROUNDS + number, baseline_s)
            interim_result.add(CANDIDATE, launch, launch * ROUNDS + number, candidate_s)
        found.launches += 1
        return True

    def _rounds(
        self, wish: LiveRequest, reference: _WarmProcess, candidate: _WarmProcess
    ) -> list[tuple[float, float]]:
        """Seconds per sample of both sides in every round that is valid by its counters."""
        rounds: list[tuple[float, float]] = []
        for _ in range(2 * ROUNDS):
            seconds: dict[int, float | None] = {}
            for one in self.rng.sample([reference, candidate], 2):
                self._check_wanted(wish)
                seconds[one.number] = self._block(wish, one)
            baseline_s, candidate_s = seconds[reference.number], seconds[candidate.number]
            if baseline_s is not None and candidate_s is not None:
                rounds.append((baseline_s, candidate_s))
            if len(rounds) == ROUNDS:
                break
        return rounds

    def _block(self, wish: LiveRequest, one: _WarmProcess) -> float | None:
        """Run a block and return its speed in seconds per sample; None: it is invalid.

        With several streams in the request, the speed of both sides is that of throughput.
        """
        key = ort_default(wish.spec).key()
        references = self.references[key]
        try:
            reply = run_block(one.worker, one.pace)
        except TunerError:
            one.worker.kill()
            if one in references:  # the next request starts a new one
                references.remove(one)
            raise
        park(one.worker)
        median_s = statistics.median(reply["latencies_ns"]) / 1e9
        if median_s <= 0 or discard_reason(reply["counters"]):
            return None
        seconds = median_s / max(1, one.rows)
        by_throughput = wish.spec.workload.streams > 1
        if by_throughput and one not in references:
            found = self.found[wish.key].latencies_s
            found[:] = [*found, median_s][-MOST_BLOCKS:]
        if one in references:
            self.blocks[key] = [*self.blocks.get(key, []), seconds][-MOST_BLOCKS:]
            self.blocks.move_to_end(key)
            while len(self.blocks) > MOST_KEPT:
                self.blocks.popitem(last=False)
        if not by_throughput:
            return seconds
        window_s = reply.get("window_s", sum(reply["latencies_ns"]) / 1e9)
        runs = sum(reply.get("stream_completed", [len(reply["latencies_ns"])]))
        return window_s / runs / max(1, one.rows) if runs else None

    def _check_wanted(self, wish: LiveRequest) -> None:
        """Abort a long estimate when its visitor has moved on; a short one finishes its point."""
        if time.monotonic() - self.began > LEAST_S and self.wishes.left_behind(wish):
            raise _NoLongerWanted

    # --- warm processes -------------------------------------------------------------------------------------

    def _default_processes(self, wish: LiveRequest) -> Sequence[_WarmProcess]:
        """Warm processes of the ORT default, one per launch of the first shown estimate."""
        key = ort_default(wish.spec).key()
        if key not in self.references and len(self.references) >= MOST_REFERENCES:
            for one in self.references.popitem(last=False)[1]:
                one.worker.kill()
        warm = self.references.setdefault(key, [])  # an aborted estimate may have left some
        self.references.move_to_end(key)
        while len(warm) < LEAST_LAUNCHES:
            self._check_wanted(wish)
            warm.append(self._start_default(wish))
        return warm

    def _start_default(self, wish: LiveRequest) -> _WarmProcess:
        spec = ort_default(wish.spec)
        return self._start(self._entry(spec, "ONNX Runtime's default"), spec.key(), wish)

    def _unpaired_default(self, wish: LiveRequest, found: _EstimateData) -> _WarmProcess:
        """A process of the default that is new to this configuration; a fresh one replaces the oldest."""
        warm = self.references[ort_default(wish.spec).key()]
        one = next((one for one in warm if one.number not in found.paired_with), None)
        if one is None:
            self._check_wanted(wish)
            one = self._start_default(wish)
            warm.append(one)
            warm.pop(0).worker.kill()
        return one

    def _entry(self, spec: TrialSpec, label: str) -> Entry:
        resolved = resolve_trial(spec, self.service.store, self.service.run)
        prepared = prepare_trial(resolved, self.service.store, self.service.run)
        return entry_of(label, resolved, prepared)

    def _start(self, entry: Entry, key: str, wish: LiveRequest) -> _WarmProcess:
        timeout_s = float(wish.spec.protocol.timeout_s)
        seed, again = self.rng.randrange(SEEDS), key in self.known_ns
        worker, reply = start_loaded(self.workers, entry, timeout_s, layout_seed=seed, again=again)
        arguments = {"known_ns": self.known_ns.get(key), "cap_s": WARM_CAP_S}
        try:
            warm = worker.ask(wire.WARM, arguments, timeout_s=timeout_s)
        except BaseException:
            worker.kill()
            raise
        park(worker)
        if not again:
            self.known_ns[key] = warm["median_ns"]
        self.started += 1
        return _WarmProcess(
            worker=worker,
            pace=pace(self.known_ns[key]),
            rows=reply["batch_size"],
            number=self.started,
        )

    # --- display --------------------------------------------------------------------------------------------

    def _publish_default(self, wish: LiveRequest) -> None:
        """Show the default as a point of the trail, without a ratio."""
        self._publish(wish, state="shown", trail=self._trail(wish, ratio=1.0))

    def _publish_estimate(self, wish: LiveRequest, found: _EstimateData) -> None:
        """Show the text, the interval and the trail's point of this estimate."""
        contrast = contrast_values(found.interim_result.interim([0, 1], {0, 1}, before=found.launches).get(1))
        is_known = ratio_is_known(contrast["ratio_low"], contrast["ratio_high"])
        after_s = self.told[wish.visitor].get("after_s")
        self._publish(
            wish,
            state="races",
            contrasts=[
                {
                    "candidate": WISH,
                    "baseline": DEFAULT,
                    "label": wish.label,
                    "statistic": "throughput" if wish.spec.workload.streams > 1 else "median",
                    **contrast,
                }
            ],
            launches=found.launches,
            after_s=after_s or (time.monotonic() - wish.at if is_known else None),
            trail=self._trail(wish, ratio=contrast["ratio"] if is_known else None),
        )

    def _trail(self, wish: LiveRequest, *, ratio: float | None) -> list[dict[str, Any]]:
        """The points of a visitor, this request's last; it has no point while its ratio is unknown."""
        others = [one for one in self.told[wish.visitor]["trail"] if one["key"] != wish.key]
        if ratio is None:
            return others
        key = ort_default(wish.spec).key()
        rows = max(1, self.references[key][0].rows)
        point = {"key": wish.key, "label": wish.label, "ratio": ratio, "rows": rows, "default": key}
        if (known := self.found.get(wish.key)) is not None and known.latencies_s:
            point["latency_s"] = statistics.median(known.latencies_s)
            point["streams"] = wish.spec.workload.streams
        return [*others, point][-MOST_TRAIL:]

    def _placed(self, point: dict[str, Any]) -> dict[str, Any]:
        """The point with its latency, from its ratio and the default's current latency."""
        blocks = self.blocks.get(point["default"])
        if not blocks:
            return point
        per_row_s = statistics.median(blocks) / point["ratio"]
        p50_s = point.get("latency_s", per_row_s * point["rows"])
        return {**point, "p50_s": p50_s, "rows_per_s": 1 / per_row_s}

    def _publish(self, wish: LiveRequest, *, state: str, **facts: Any) -> None:
        earlier_job = self.before.get(wish.visitor, {})  # its trail alone: its estimate is measured anew
        trail_only = {name: earlier_job[name] for name in ("model", "trail") if name in earlier_job}
        before = self.told.pop(wish.visitor, trail_only)
        model = wish.spec.model.sha256 or wish.spec.model.path
        own = before if before.get("key") == wish.key and state in ("races", "shown") else {}
        earlier = before.get("trail", []) if before.get("model") == model else []
        trail = [self._placed(one) for one in facts.get("trail", earlier)]
        self.told[wish.visitor] = {
            **own,
            "key": wish.key,
            "label": wish.label,
            "model": model,
            "state": state,
            **facts,
            "trail": [one for one in trail if "p50_s" in one],
        }
        while len(self.told) > MAX_VISITORS:
            self.told.popitem(last=False)
        self.service.on_live({"told": dict(self.told)})
