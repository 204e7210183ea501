"""Live: the baseline stays warm and frozen, and whatever is wished next races it at once, for a glimpse.

A glimpse is one process of each side and a few rounds. It shows where a setting leads while a slider is
moved; it has seen no other process, its outputs are not compared, and it is kept nowhere. The machine's turn
is given back whenever somebody waits, and for good after a minute without a wish.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core import wire
from core.evidence.contrast import Contrast
from core.evidence.interference import discard_reason
from core.evidence.record import Entry, Key, Settings
from core.evidence.standing import Standing
from core.process.runner import Progress
from core.process.workers import Worker, Workers
from core.run.comparison import entry_of
from core.run.job import Ending, Job, Outcome, Service
from core.run.prior import prior_of
from core.run.race.blocks import Pace, pace, park, run_block, start_loaded
from core.run.trial import prepare_trial, resolve_trial
from core.spec import TrialSpec, anchor
from core.spec.effort import Effort
from core.wire.errors import Cancelled, TunerError, record_from_error

IDLE_S = 60.0  # without a wish: then it ends
TICK_S = 0.05  # how late a wish is noticed that came while it gave way
MOST_WARM = 4  # contestants that stay alive: moving back costs no start
LEAST_ROUNDS, MOST_ROUNDS = 3, 24  # of a glimpse
LEAST_S, MOST_S = 1.0, 2.5  # that it goes on for; a new wish ends it after its first number
WARM_CAP_S = 0.5
MOST_TRAIL = 24
GLIMPSE = Effort(name="glimpse", target=0.1, budget_s=5, looks=(1,))
BASELINE, TWIN, CANDIDATE = (0, 0), (0, 1), (1, 0)
WISH, DEFAULT = "wish", "default"  # the sides of a glimpse


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to show next."""

    spec: TrialSpec
    label: str  # what stands beside its point
    at: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> str:
        """By which a glimpse is told from that of another wish."""
        return self.spec.key()


class Wishes:
    """Where a page leaves its latest wish and the live race takes it; older ones are gone."""

    def __init__(self) -> None:
        """Begin without one."""
        self._changed = threading.Condition()
        self._next: Wish | None = None
        self._is_open = True

    def put(self, wish: Wish) -> bool:
        """Leave a wish; False: nobody will take it, the live race has ended."""
        with self._changed:
            if self._is_open:
                self._next = wish
                self._changed.notify_all()
            return self._is_open

    def take(self, timeout_s: float) -> Wish | None:
        """Return the latest wish, waiting so long for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None, timeout_s)
            found, self._next = self._next, None
            return found

    @property
    def waits(self) -> bool:
        """Whether there is a newer wish."""
        with self._changed:
            return self._next is not None

    def close(self) -> None:
        """Take no more wishes."""
        with self._changed:
            self._is_open = False


def job(wishes: Wishes, first: Wish, *, model_name: str) -> Job:
    """Return the job of a live race that begins with a wish; later ones must have been admitted when put."""
    wishes.put(first)
    return Job(
        kind="live",
        what=f"live sliders on {model_name}",
        work=partial(_work, wishes),
        specs=(first.spec,),
    )


def _work(wishes: Wishes, service: Service) -> Outcome:
    try:
        with Workers(service.cancel) as workers:
            return Outcome(
                whole=Ending(state="COMPLETE", result={"glimpses": _Live(wishes, service, workers).run()})
            )
    finally:
        wishes.close()


@dataclass(slots=True, kw_only=True)
class _Warm:
    """A process that has run, frozen unless it measures."""

    worker: Worker
    pace: Pace
    rows: int


class _Live:
    """The state of one live race; `run` is its story."""

    def __init__(self, wishes: Wishes, service: Service, workers: Workers) -> None:
        self.wishes, self.service, self.workers = wishes, service, workers
        self.rng = random.Random(0)  # noqa: S311 - an order of rounds
        self.prior_at = prior_of(service.store, service.environment())
        self.references: dict[Key, _Warm] = {}
        self.reference_key = ""
        self.warm: OrderedDict[str, _Warm] = OrderedDict()  # the longest unused first
        self.known_ns: dict[str, int] = {}
        self.trail: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.told: dict[str, Any] = {"state": "waits", "trail": []}

    def run(self) -> int:
        """Show wishes until there was none for a minute; return how many were shown."""
        shown, last = 0, time.monotonic()
        while time.monotonic() - last < IDLE_S:
            self.service.on_progress(Progress(stage="live", done=shown, total=0))
            wish = self.wishes.take(TICK_S)
            if self.service.cancel.is_set():
                raise Cancelled("Live was switched off.", hint="Switch it on again when you want it.")
            if wish is None:
                self.service.give_way()
                continue
            try:
                self._glimpse(wish)
                shown += 1
            except Cancelled:
                raise
            except TunerError as error:
                self._tell(wish, state="failed", error=record_from_error(error))
            last = time.monotonic()
        return shown

    # --- a glimpse ------------------------------------------------------------------------------------------

    def _glimpse(self, wish: Wish) -> None:
        self._tell(wish, state="starts")
        self._refer_to(anchor(wish.spec), wish)
        candidate = self._warmed(wish)
        racing = {**self.references, CANDIDATE: candidate}
        standing = Standing(
            Settings(
                effort=GLIMPSE,
                budget_s=MOST_S,
                margin=wish.spec.protocol.margin,
                seed=0,
                timeout_s=float(wish.spec.protocol.timeout_s),
                baseline=0,
                anchor=0,
            )
        )
        standing.prior = self.prior_at(candidate.pace.expected_s)
        began, rounds, tries = time.monotonic(), 0, 0
        while rounds < MOST_ROUNDS and tries < 2 * MOST_ROUNDS:
            tries += 1
            rounds += self._round(racing, standing, rounds)
            spent_s = time.monotonic() - began
            if rounds >= LEAST_ROUNDS or (rounds and spent_s > LEAST_S):
                self._tell_standing(wish, standing, candidate, rounds)
                if self.wishes.waits or spent_s > MOST_S:
                    break
            elif self.wishes.waits and not rounds:
                return
        self._tell(wish, state="shown")

    def _round(self, racing: Mapping[Key, _Warm], standing: Standing, number: int) -> int:
        """One block of everybody; 0: the counters say that it must not count."""
        found: dict[Key, float] = {}
        void = False
        for key in self.rng.sample(list(racing), len(racing)):
            one = racing[key]
            try:
                reply = run_block(one.worker, one.pace)
            except TunerError:
                self._forget(key)
                raise
            park(one.worker)
            seconds = statistics.median(reply["latencies_ns"]) / 1e9 / max(1, one.rows)
            void = void or seconds <= 0 or bool(discard_reason(reply["counters"]))
            found[key] = seconds
        if void:
            return 0
        for key, seconds in found.items():
            standing.add(key, 0, number, seconds)
        return 1

    def _forget(self, key: Key) -> None:
        """A process died: it is started anew for the next wish."""
        if key == CANDIDATE:
            _, gone = self.warm.popitem()
            gone.worker.kill()
        else:
            self._end_references()

    # --- who is warm ----------------------------------------------------------------------------------------

    def _refer_to(self, spec: TrialSpec, wish: Wish) -> None:
        """Have ONNX Runtime's default and its twin warm for this model and workload."""
        if self.reference_key == spec.key():
            return
        self._end_references()
        while self.warm:
            self.warm.popitem()[1].worker.kill()
        self.trail.clear()
        entry = self._entry(spec, "ONNX Runtime's default")
        for key in (BASELINE, TWIN):
            self.references[key] = self._start(entry, spec.key(), float(wish.spec.protocol.timeout_s))
        self.reference_key = spec.key()

    def _end_references(self) -> None:
        for one in self.references.values():
            one.worker.kill()
        self.references, self.reference_key = {}, ""

    def _warmed(self, wish: Wish) -> _Warm:
        if wish.key in self.warm:
            self.warm.move_to_end(wish.key)
            return self.warm[wish.key]
        if len(self.warm) >= MOST_WARM:
            self.warm.popitem(last=False)[1].worker.kill()
        entry = self._entry(wish.spec, wish.label)
        one = self._start(entry, wish.key, float(wish.spec.protocol.timeout_s))
        self.warm[wish.key] = one
        return one

    def _entry(self, spec: TrialSpec, label: str) -> Entry:
        resolved = resolve_trial(spec, self.service.store, self.service.run)
        prepared = prepare_trial(resolved, self.service.store, self.service.run)
        return entry_of(label, resolved, prepared)

    def _start(self, entry: Entry, key: str, timeout_s: float) -> _Warm:
        worker, reply = start_loaded(self.workers, entry, timeout_s, again=key in self.known_ns)
        arguments = {"known_ns": self.known_ns.get(key), "cap_s": WARM_CAP_S}
        try:
            warm = worker.ask(wire.WARM, arguments, timeout_s=timeout_s)
        except BaseException:
            worker.kill()
            raise
        park(worker)
        self.known_ns[key] = warm["median_ns"]
        return _Warm(worker=worker, pace=pace(warm["median_ns"]), rows=reply["batch_size"])

    # --- for who looks on -----------------------------------------------------------------------------------

    def _tell_standing(self, wish: Wish, standing: Standing, candidate: _Warm, rounds: int) -> None:
        found: Contrast | None = standing.contrasts([0, 1], {0, 1}).get(1)
        per_row_s, default_s = standing.p50_s(1), standing.p50_s(0)
        if found is None or per_row_s is None or default_s is None:
            return
        run_s = per_row_s * max(1, candidate.rows)
        point = {"key": wish.key, "label": wish.label, "p50_s": run_s, "rows_per_s": 1 / per_row_s}
        self.trail.pop(wish.key, None)
        self.trail[wish.key] = {**point, "ratio": found.ratio}
        while len(self.trail) > MOST_TRAIL:
            self.trail.popitem(last=False)
        self._tell(
            wish,
            state="races",
            **point,
            contrasts=[
                {"candidate": WISH, "baseline": DEFAULT, "label": wish.label, **found.to_dict()},
            ],
            default_s=default_s * max(1, candidate.rows),
            rounds=rounds,
            after_s=self.told.get("after_s") if self.told.get("rounds") else time.monotonic() - wish.at,
        )

    def _tell(self, wish: Wish, *, state: str, **facts: Any) -> None:
        before = self.told if self.told.get("key") == wish.key and state in ("races", "shown") else {}
        self.told = {
            **before,
            "key": wish.key,
            "label": wish.label,
            "state": state,
            **facts,
            "trail": list(self.trail.values()),
        }
        self.service.on_live(self.told)
