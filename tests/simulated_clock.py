"""Comparisons by the real rules on a simulated clock: workers return numbers, and nothing waits."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pytest

import core.run.launches
import core.run.launches.costs
import core.run.launches.processes
from core.evidence.record import Entry, RawComparison, Settings
from core.run import comparison, live
from core.run.search import plan, running
from core.spec.effort import EFFORTS
from core.wire.errors import Cancelled, TunerError, WorkerError
from tests import raw_comparisons


@dataclass(frozen=True, kw_only=True)
class Model:
    """Costs of one configuration, in seconds; `between` and `noise` are deviations of a log."""

    run_s: float = 0.001
    load_s: float = 0.2
    warm_s: float = 0.1  # of its first process; the others are warm after one run or 10 ms
    between: float = 0.003
    noise: float = 0.01
    lasting: float = 0.0  # by how much a block resembles the one before of its process
    jitter: float = 0.0  # of a run
    tail: float = 0.0  # share of runs that take longer, by half of their time as a rule
    slow_share: float = 0.0  # of processes that are SLOW times slower for life
    fails_at: int | None = None  # its process of that number answers no block
    load_error: str = ""  # why none of its processes can be loaded
    rss_bytes: int = 8 << 20  # that loading it takes
    output_error: Mapping[str, Any] = field(
        default_factory=dict, hash=False
    )  # of a reference: what it finds otherwise

    def played(self) -> Played | None:
        """What its next process does, where that was recorded."""
        return None


class Played(Protocol):
    """A recorded process: it returns its blocks at each request."""

    def block(self, clock: Clock) -> dict[str, Any]: ...

    def cpu_s(self) -> float:
        """CPU time of a run."""


ModelOf = Callable[[str, Mapping[str, Any]], Model]

SLOW = 2.3
_PIDS = itertools.count(1 << 40)  # that no process has


@dataclass
class Clock:
    """Time that passes only while something is done, on a machine with so much memory."""

    now: float = 1000.0
    memory_bytes: Callable[[], int] = lambda: 1 << 60  # that is free

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        """Seconds since the epoch, which pass as ever."""
        return time.time()


@dataclass
class Worker:
    """A process that answers what a real one of its model does, and moves the clock."""

    workers: Workers
    label: str
    pid: int
    alive: bool = True
    weather: float = 0.0  # of its last block, in deviations of the noise
    timeout_s: float = math.inf  # of the last request
    paused_s: float = 0.0  # of the last request
    model: Model = field(init=False)
    number: int = field(init=False)  # of the processes of its configuration
    own: float = field(init=False)  # seconds of a run
    recorded: Played | None = field(init=False, default=None)

    @property
    def clock(self) -> Clock:
        """That it moves."""
        return self.workers.clock

    @property
    def rng(self) -> random.Random:
        """Of its noise."""
        return self.workers.rng

    def freeze(self) -> bool:
        return True

    def kill(self) -> None:
        self.alive = False

    def ask(self, command: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Any:
        if self.workers.cancel.is_set():
            raise Cancelled("It was cancelled.")
        self.timeout_s = timeout_s
        return getattr(self, command)(**arguments)

    def load(self, **plan: Any) -> dict[str, Any]:
        model = self.workers.model_of(self.label, plan)
        self.clock.now += min(model.load_s + model.run_s, self.timeout_s)
        if model.load_s > self.timeout_s:
            raise WorkerError(f"It did not finish `load` within {self.timeout_s:g} s.")
        if model.load_error:
            raise WorkerError(model.load_error)
        started = self.workers.started
        started[self.label] = started.get(self.label, -1) + 1
        self.begin(model, started[self.label])
        feeds = plan.get("feeds", {})
        inputs = [{key: one[key] for key in ("name", "dtype", "shape")} for one in feeds.get("inputs", ())]
        return {
            **raw_comparisons.load_reply(
                rows=feeds.get("batch_size", 1),
                **({"inputs": inputs} if inputs else {}),
                session_creation_s=model.load_s,
                first_run_ns=round(model.run_s * 1e9),
                load_peak_rss_bytes=model.rss_bytes,
                layout=raw_comparisons.layout(random.Random(plan.get("layout_seed"))),
            )
        }

    def begin(self, model: Model, number: int) -> None:
        """Be the process of `model` that has this number."""
        self.model, self.number, self.recorded = model, number, model.played()
        if self.recorded is not None:
            self.own = model.run_s
            return
        self.own = model.run_s * math.exp(self.rng.gauss(0, model.between))
        self.weather = self.rng.gauss(0, 1) if model.lasting else 0.0  # as it is at any time
        if model.slow_share and self.rng.random() < model.slow_share:
            self.own *= SLOW

    def warm(self, *, known_ns: int | None, cap_s: float | None) -> dict[str, Any]:
        wanted = self.model.warm_s if known_ns is None else max(0.01, self.own)
        self.clock.now += max(self.own, min(wanted, cap_s or math.inf))
        ns = round(self.model.run_s * 1e9)
        return {"latencies_ns": [ns] * 3, "steady": True, "median_ns": ns}

    def block(self, *, block_ns: int, min_runs: int, max_runs: int, refill: bool) -> dict[str, Any]:
        if self.number == self.model.fails_at:
            raise TunerError("It crashed.")
        if self.recorded is not None:
            return self.recorded.block(self.clock)
        self.clock.now += self.own * refill + 0.002
        started = self.clock.now
        runs = min(max_runs, max(min_runs, math.ceil(block_ns / 1e9 / self.own)))
        taken_ns = self._taken_ns(runs)
        spent_s = sum(taken_ns) / 1e9
        self.clock.now += spent_s
        cpu_s = spent_s + self.own * refill
        return {
            "refill_ns": round(self.own * 1e9) if refill else None,
            "latencies_ns": taken_ns,
            "started_s": started,
            "counters": raw_comparisons.counters(wall_s=self.clock.now - started, cpu_s=cpu_s, busy_s=cpu_s),
        }

    def _taken_ns(self, runs: int) -> list[int]:
        """The runs of one block."""
        model, lasting = self.model, self.model.lasting
        self.weather = lasting * self.weather + math.sqrt(1 - lasting**2) * self.rng.gauss(0, 1)
        level = self.own * math.exp(model.noise * self.weather)
        if not model.jitter and not model.tail:
            return [round(level * 1e9)] * runs
        draw = np.random.default_rng(self.rng.getrandbits(32))
        factors = np.exp(model.jitter * draw.normal(size=runs))
        factors *= 1 + (draw.random(runs) < model.tail) * draw.exponential(0.5, runs)
        ns: list[int] = np.rint(1e9 * level * factors).astype(np.int64).tolist()
        return ns

    def cost(self, *, seconds: float, window_s: float) -> dict[str, Any]:
        self.clock.now += seconds + max(window_s, self.own) + self.own
        cpu_s = self.own if self.recorded is None else self.recorded.cpu_s()
        return {"cpu_s_per_run": cpu_s, "idle_cpu_s": 0.0, "idle_wall_s": seconds}

    def footprint(self, *, runs: int) -> dict[str, Any]:
        self.clock.now += runs * self.own
        return {"run_peak_rss_bytes": 1 << 20, "gpu_memory_bytes": None, "notes": []}

    def new_shapes(self, *, feeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        ns = round(self.own * 1e9)
        self.clock.now += 2 * len(feeds) * self.own
        return {
            "shapes": [
                {"batch_size": one["batch_size"], "first_run_ns": 2 * ns, "next_run_ns": ns} for one in feeds
            ]
        }

    def save_outputs(self, *, path: str) -> None:
        self.clock.now += self.own

    def compare_outputs(self, *, path: str) -> dict[str, Any]:
        self.clock.now += self.own
        error: dict[str, Any] = raw_comparisons.output_error(**self.model.output_error)
        return error


@dataclass(kw_only=True)
class Workers:
    """The starter of processes of a comparison; it starts none, so that none is left behind."""

    clock: Clock
    rng: random.Random
    model_of: ModelOf
    started: dict[str, int]  # processes of each configuration so far, by label
    cancel: threading.Event
    pids: set[int] = field(default_factory=set)
    paused_s: float = 0.0

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing was started."""

    def start(
        self, label: str, *, fresh_process: bool = False, runtime: str = "own", writes: Sequence[str] = ()
    ) -> Worker:
        return Worker(self, label, next(_PIDS))


def worker(model: Model, clock: Clock, rng: random.Random, number: int) -> Worker:
    """Return a process that is loaded already."""
    workers = Workers(
        clock=clock, rng=rng, model_of=lambda label, plan: model, started={}, cancel=threading.Event()
    )
    one = workers.start("")
    one.begin(model, number)
    return one


@contextlib.contextmanager
def machine(model_of: ModelOf = lambda label, plan: Model(), *, seed: int = 0) -> Iterator[Clock]:
    """Within it every comparison of this process measures simulated models on the yielded clock.

    Searches read that clock, too; live measurements use its workers. No worker of a comparison is started,
    and no profile is recorded after one; a model is inspected for real, unless it was inspected before.

    Args:
        model_of: label and plan of a configuration -> its costs; called for references of outputs, too.
        seed: of the noise.
    """
    clock, rng, started = Clock(), random.Random(seed), dict[str, int]()

    def workers(cancel: threading.Event, fork_server: object = None) -> Workers:
        return Workers(clock=clock, rng=rng, model_of=model_of, started=started, cancel=cancel)

    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (core.run.launches, "time", clock),
            (core.run.launches.processes, "time", clock),
            (running, "time", clock),
            (plan, "time", clock),
            (core.run.launches, "Workers", workers),
            (live, "Workers", workers),
            (core.run.launches.processes, "available_memory", lambda: clock.memory_bytes()),
            (core.run.launches.costs.energy, "meter", lambda *, gpu: (None, "")),
            (core.run.launches, "snapshot", lambda: None),
            (core.run.launches, "between", lambda *args, **how: None),
            (comparison, "placement", lambda *args: (None, None, [])),
        ):
            patch.setattr(module, name, value)
        yield clock


def compare(
    models: Sequence[Model],
    budget_s: float,
    *,
    precision: str = "quick",
    seed: int = 0,
    earlier: RawComparison | None = None,
    on_live: Any = lambda live: None,
    **settings: Any,
) -> RawComparison:
    """Compare configurations of which the last is baseline and ORT default.

    Args:
        models: of the configurations.
        budget_s: of the comparison, by its own clock.
        precision: name.
        seed: of the comparison and of the noise.
        earlier: a comparison of the same models, to continue.
        on_live: as for `core.run.launches.run_launches`.
        settings: fields of `Settings` that differ.

    Raises:
        BudgetError: as of `core.run.launches.run_launches`.
    """
    last = len(models) - 1
    facts: dict[str, Any] = {"effort": EFFORTS[precision], "budget_s": budget_s, "margin": 0.02}
    facts |= {"seed": seed, "timeout_s": 100.0, "baseline": last, "anchor": last, **settings}
    entries = [
        Entry(label=f"c{index}", plan={"model": one, "session": {"attributes": {}}})  # type: ignore[typeddict-item]
        for index, one in enumerate(models)
    ]
    with machine(lambda label, plan: plan["model"], seed=seed):
        return core.run.launches.run_launches(
            entries,
            Settings(**facts),
            cancel=threading.Event(),
            on_progress=lambda progress: None,
            on_live=on_live,
            earlier=earlier,
        )
