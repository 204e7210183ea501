"""Races by the real rules on a clock of their own: workers that are numbers, and no second is waited for."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import core.run.race
import core.run.race.crew
import core.run.race.passes
from core.evidence.record import Entry, RaceRecord, Settings
from core.spec.effort import EFFORTS
from core.wire.errors import TunerError
from tests import races


@dataclass(frozen=True, kw_only=True)
class Model:
    """What one contestant costs, in seconds; `between` and `noise` are deviations of a log."""

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

    def start(self, clock: Clock, rng: random.Random, number: int) -> Worker:
        """Start one of its processes."""
        return Worker(self, clock, rng, number)


SLOW = 2.3


@dataclass
class Clock:
    """Time that passes only while something is done."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Worker:
    """A process of `model`; it answers what a real one does, and moves the clock."""

    model: Model
    clock: Clock
    rng: random.Random
    number: int  # of the processes of its contestant
    own: float = field(init=False)
    alive: bool = True
    weather: float = 0.0  # of its last block, in deviations of the noise

    def __post_init__(self) -> None:
        self.own = self.model.run_s * math.exp(self.rng.gauss(0, self.model.between))
        self.weather = self.rng.gauss(0, 1) if self.model.lasting else 0.0  # as it is at any time
        if self.model.slow_share and self.rng.random() < self.model.slow_share:
            self.own *= SLOW

    def freeze(self) -> bool:
        return True

    def kill(self) -> None:
        self.alive = False

    def ask(self, command: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Any:
        return getattr(self, command)(**arguments)

    def warm(self, *, known_ns: int | None, cap_s: float | None) -> dict[str, Any]:
        wanted = self.model.warm_s if known_ns is None else max(0.01, self.own)
        self.clock.now += max(self.own, min(wanted, cap_s or math.inf))
        ns = round(self.model.run_s * 1e9)
        return {"latencies_ns": [ns] * 3, "steady": True, "median_ns": ns}

    def block(self, *, block_ns: int, min_runs: int, max_runs: int, refill: bool) -> dict[str, Any]:
        if self.number == self.model.fails_at:
            raise TunerError("It crashed.")
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
            "counters": races.counters(wall_s=self.clock.now - started, cpu_s=cpu_s, busy_s=cpu_s),
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
        return {"cpu_s_per_run": self.own, "idle_cpu_s": 0.0, "idle_wall_s": seconds}

    def footprint(self, *, runs: int) -> dict[str, Any]:
        self.clock.now += runs * self.own
        return {"run_peak_rss_bytes": 1 << 20, "gpu_memory_bytes": None, "notes": []}


class Workers:
    """Nobody, so that nobody is left behind."""

    def __init__(self, cancel: threading.Event, preloaded: object = None) -> None:
        self.pids: Sequence[int] = ()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing was started."""


def race(
    models: Sequence[Model],
    budget_s: float,
    *,
    precision: str = "quick",
    seed: int = 0,
    earlier: RaceRecord | None = None,
    on_live: Any = lambda live: None,
    **settings: Any,
) -> RaceRecord:
    """Race contestants of which the last is baseline and anchor.

    Args:
        models: of the contestants.
        budget_s: of the race, by its own clock.
        precision: name.
        seed: of the race and of the noise.
        earlier: a race of the same models, to go on with.
        on_live: as for `core.run.race.race`.
        settings: fields of `Settings` that differ.

    Raises:
        BudgetError: as of `core.run.race.race`.
    """
    clock, rng, started = Clock(), random.Random(seed), dict[str, int]()

    def start(workers: Workers, entry: Entry, timeout_s: float, **how: Any) -> tuple[Worker, Any]:
        model: Model = entry.plan["model"]  # type: ignore[typeddict-item]
        clock.now += model.load_s + model.run_s
        started[entry.label] = started.get(entry.label, -1) + 1
        layout = races.layout(random.Random(how.get("layout_seed")))
        reply = races.load_reply(
            session_creation_s=model.load_s, first_run_ns=round(model.run_s * 1e9), layout=layout
        )
        return model.start(clock, rng, started[entry.label]), reply

    last = len(models) - 1
    facts: dict[str, Any] = {"effort": EFFORTS[precision], "budget_s": budget_s, "margin": 0.02}
    facts |= {"seed": seed, "timeout_s": 100.0, "baseline": last, "anchor": last, **settings}
    entries = [
        Entry(label=f"c{index}", plan={"model": one, "session": {"attributes": {}}})  # type: ignore[typeddict-item]
        for index, one in enumerate(models)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (core.run.race, "time", clock),
            (core.run.race.crew, "time", clock),
            (core.run.race.crew, "start_loaded", start),
            (core.run.race.passes, "start_loaded", start),
            (core.run.race.crew, "available_memory", lambda: 1 << 60),
            (core.run.race, "Workers", Workers),
            (core.run.race, "snapshot", lambda: None),
            (core.run.race, "between", lambda *args, **how: None),
        ):
            patch.setattr(module, name, value)
        return core.run.race.race(
            entries,
            Settings(**facts),
            cancel=threading.Event(),
            on_progress=lambda progress: None,
            on_live=on_live,
            earlier=earlier,
        )
