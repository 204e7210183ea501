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
from core.wire.errors import Cancelled, TunerError, WorkerError, record_from_error

IDLE_S = 60.0  # without a wish: then it ends
TICK_S = 0.05  # how late a wish is noticed that came while it gave way
MOST_WARM = 4  # contestants that stay alive: moving back costs no start
MOST_REFERENCES = 2  # models and workloads whose default stays alive, with its twin
MOST_TOLD = 32  # visitors whose last glimpse is remembered
LEAST_ROUNDS, MOST_ROUNDS = 2, 24  # of a glimpse, whose number moves while more come
LEAST_S, MOST_S = 1.0, 2.5  # that it goes on for; a new wish ends it after its first number
WARM_CAP_S = 0.5
MOST_TRAIL = 24
GLIMPSE = Effort(name="glimpse", target=0.1, budget_s=5, looks=(1,))
BASELINE, TWIN, CANDIDATE = (0, 0), (0, 1), (1, 0)
WISH, DEFAULT = "wish", "default"  # the sides of a glimpse


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to show somebody next."""

    visitor: str  # who wishes it
    spec: TrialSpec
    label: str  # what stands beside its point
    at: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> str:
        """By which a glimpse is told from that of another wish."""
        return self.spec.key()


class Wishes:
    """Where pages leave their latest wishes and the live race takes them, the first one first.

    Of each visitor the latest counts; an older one that was not taken is gone.
    """

    def __init__(self) -> None:
        """Begin without one."""
        self._changed = threading.Condition()
        self._next: OrderedDict[str, Wish] = OrderedDict()
        self._visitors: set[str] = set()
        self._is_open = True

    def put(self, wish: Wish) -> bool:
        """Leave a wish; False: nobody will take it, the live race has ended."""
        with self._changed:
            if self._is_open:
                self._next[wish.visitor] = wish
                self._visitors.add(wish.visitor)
                self._changed.notify_all()
            return self._is_open

    def leave(self, visitor: str) -> None:
        """Somebody wants no more."""
        with self._changed:
            self._next.pop(visitor, None)
            self._visitors.discard(visitor)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Wish | None:
        """Return the next wish, waiting so long for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._next or not self._visitors, timeout_s)
            return self._next.popitem(last=False)[1] if self._next else None

    def left_behind(self, wish: Wish) -> bool:
        """Whether its visitor wishes something else by now, or nothing."""
        with self._changed:
            return wish.visitor in self._next or wish.visitor not in self._visitors

    @property
    def wait(self) -> bool:
        """Whether there are others."""
        with self._changed:
            return bool(self._next)

    @property
    def wanted(self) -> bool:
        """Whether somebody still looks on."""
        with self._changed:
            return bool(self._visitors)

    def close(self, *, even_so: bool = False) -> bool:
        """Take no more wishes; False: there is one, and it is not refused unless `even_so`."""
        with self._changed:
            if self._next and not even_so:
                return False
            self._is_open = False
            return True


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
        wishes.close(even_so=True)


@dataclass(slots=True, kw_only=True)
class _Warm:
    """A process that has run, frozen unless it measures."""

    worker: Worker
    pace: Pace
    rows: int


class _MovedOn(Exception):
    """Nobody waits for this glimpse any more; no error."""


class _Live:
    """The state of one live race; `run` is its story."""

    def __init__(self, wishes: Wishes, service: Service, workers: Workers) -> None:
        self.wishes, self.service, self.workers = wishes, service, workers
        self.rng = random.Random(0)  # noqa: S311 - an order of rounds
        self.prior_at = prior_of(service.store, service.environment())
        # the longest unused first: the default and its twin of a model and a workload, and who was wished
        self.references: OrderedDict[str, dict[Key, _Warm]] = OrderedDict()
        self.warm: OrderedDict[str, _Warm] = OrderedDict()
        self.known_ns: dict[str, int] = {}
        self.told: OrderedDict[str, dict[str, Any]] = OrderedDict()  # visitor -> what it is shown
        self.began = 0.0  # the glimpse that is under way

    def run(self) -> int:
        """Show wishes until there was none for a minute, or nobody looks on; return how many were shown."""
        shown, last = 0, time.monotonic()
        while (time.monotonic() - last < IDLE_S and self.wishes.wanted) or not self.wishes.close():
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
            except _MovedOn:
                pass
            except Cancelled:
                raise
            except TunerError as error:
                self._tell(wish, state="failed", error=record_from_error(error))
            last = time.monotonic()
        return shown

    # --- a glimpse ------------------------------------------------------------------------------------------

    def _glimpse(self, wish: Wish) -> None:
        self._tell(wish, state="starts")
        self.began = time.monotonic()
        references = self._referred_to(wish)
        candidate = self._warmed(wish)
        racing = {**references, CANDIDATE: candidate}
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
        standing.prior = self.prior_at(self.known_ns[wish.key] / 1e9)
        began, rounds, tries = time.monotonic(), 0, 0
        while rounds < MOST_ROUNDS and tries < 2 * MOST_ROUNDS:
            tries += 1
            rounds += self._round(wish, racing, standing, rounds)
            spent_s = time.monotonic() - began
            if rounds >= LEAST_ROUNDS or (rounds and spent_s > LEAST_S):
                self._tell_standing(wish, standing, candidate, rounds)
                if self.wishes.wait or spent_s > MOST_S:
                    break
        if not rounds:
            raise WorkerError(
                "Every round of the glimpse was disturbed.", hint="Move the setting again, or press Run."
            )
        self._tell(wish, state="shown")

    def _go_on(self, wish: Wish) -> None:
        """Leave a glimpse that takes long when its visitor has moved on; a short one leaves its point."""
        if time.monotonic() - self.began > LEAST_S and self.wishes.left_behind(wish):
            raise _MovedOn

    def _round(self, wish: Wish, racing: Mapping[Key, _Warm], standing: Standing, number: int) -> int:
        """One block of everybody; 0: the counters say that it must not count."""
        found: dict[Key, float] = {}
        void = False
        for key in self.rng.sample(list(racing), len(racing)):
            self._go_on(wish)
            one = racing[key]
            try:
                reply = run_block(one.worker, one.pace)
            except TunerError:
                self._forget(wish, key)
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

    def _forget(self, wish: Wish, key: Key) -> None:
        """A process died: it is started anew for the next wish."""
        if key == CANDIDATE:
            self.warm.pop(wish.key).worker.kill()
        else:
            for one in self.references.pop(anchor(wish.spec).key()).values():
                one.worker.kill()

    # --- who is warm ----------------------------------------------------------------------------------------

    def _referred_to(self, wish: Wish) -> Mapping[Key, _Warm]:
        """ONNX Runtime's default and its twin, warm, for the model and the workload of a wish."""
        spec = anchor(wish.spec)
        key = spec.key()
        if key not in self.references and len(self.references) >= MOST_REFERENCES:
            for one in self.references.popitem(last=False)[1].values():
                one.worker.kill()
        found = self.references.setdefault(key, {})  # of a glimpse that was left it may hold one of the two
        self.references.move_to_end(key)
        missing = [side for side in (BASELINE, TWIN) if side not in found]
        if missing:
            entry = self._entry(spec, "ONNX Runtime's default")
            for side in missing:
                self._go_on(wish)
                found[side] = self._start(entry, key, float(wish.spec.protocol.timeout_s))
        return found

    def _warmed(self, wish: Wish) -> _Warm:
        if wish.key in self.warm:
            self.warm.move_to_end(wish.key)
            return self.warm[wish.key]
        if len(self.warm) >= MOST_WARM:
            self.warm.popitem(last=False)[1].worker.kill()
        self._go_on(wish)
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
        per_row_s = standing.p50_s(1)
        if found is None or per_row_s is None:
            return
        point = {
            "key": wish.key,
            "label": wish.label,
            "p50_s": per_row_s * max(1, candidate.rows),
            "rows_per_s": 1 / per_row_s,
        }
        told = self.told[wish.visitor]
        self._tell(
            wish,
            state="races",
            **{name: point[name] for name in ("p50_s", "rows_per_s")},
            contrasts=[
                {"candidate": WISH, "baseline": DEFAULT, "label": wish.label, **found.to_dict()},
            ],
            rounds=rounds,
            after_s=told.get("after_s") or time.monotonic() - wish.at,
            trail=[*(one for one in told["trail"] if one["key"] != wish.key), point][-MOST_TRAIL:],
        )

    def _tell(self, wish: Wish, *, state: str, **facts: Any) -> None:
        before = self.told.pop(wish.visitor, {})
        model = wish.spec.model.sha256 or wish.spec.model.path
        trail = before.get("trail", []) if before.get("model") == model else []
        own = before if before.get("key") == wish.key and state in ("races", "shown") else {}
        self.told[wish.visitor] = {
            **own,
            "key": wish.key,
            "label": wish.label,
            "model": model,
            "trail": trail,
            "state": state,
            **facts,
        }
        while len(self.told) > MOST_TOLD:
            self.told.popitem(last=False)
        self.service.on_live({"told": dict(self.told)})
