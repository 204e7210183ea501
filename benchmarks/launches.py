"""Launches of real models, recorded once and replayed often: one configuration under several names.

A recording is a comparison by the product's own rules in which all configurations are identical, so the true
ratio of any two is 1. A replay is a comparison, too: its workers answer with the recorded blocks and counters
of a process. Launches are replayed in order from a random start, and processes are assigned at random within
a launch. Recorded as well: profiling passes of two equal sides, as *Explain* makes them, the memory of equal
processes, and all configurations of a grid.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks import experiment as lab
from benchmarks import grids, models
from benchmarks.journal import tell
from core import wire
from core.evidence.record import Entry, ProcessResult, RawComparison, Settings
from core.evidence.speedup_interval import trimmed_estimate
from core.process.contestant_workers import Workers
from core.process.job_worker import run_job
from core.run.launches.blocks import pace, start_loaded
from core.run.launches.costs import footprint
from core.spec.effort import Effort
from tests import simulated_clock

SLOW_ONE = "slow_one"  # about a second a run
MODELS = ("digits_cnn", "tiny_transformer", SLOW_ONE)
STATES = ("quiet", "burner")
NAMES, NAMES_OF_SLOW = 4, 2  # of the same configuration; the first has two processes
PROCESSES = 20  # whose memory is read
# shares of the time: launches of a quick and of a slow model, passes, and the grid under background load
SHARES = {"launches": 0.06, "launches of a slow one": 0.22, "passes": 0.017, "grid": 0.085}
BUSY = 1.5  # times as long as on an idle machine

Block = dict[str, Any]  # as a worker answers: `refill_ns`, `latencies_ns`, `counters`
Launch = list[Block]  # blocks of one process, round after round


@dataclass(frozen=True, kw_only=True)
class Known:
    """True values of recorded times: percentiles of all runs, mean and CPU time of a usual process."""

    runs_s: NDArray[np.float64]  # sorted
    mean_s: float
    cpu_s: float  # of a run

    def percentile_s(self, p: float) -> float:
        """Of all runs, by nearest rank."""
        return float(self.runs_s[math.ceil(p * len(self.runs_s)) - 1])


@dataclass(kw_only=True)
class Recording:
    """What was recorded of one model in one state of the machine."""

    model: str
    state: str
    start_s: float  # of one process: started, loaded and warm
    generations: list[list[Launch]]
    passes: list[dict[str, Any]]  # of two equal sides
    peaks: list[dict[str, int]]  # of equal processes: `peak_rss_bytes`, `baseline_rss_bytes`

    @property
    def launches(self) -> int:
        """Processes in all."""
        return sum(len(one) for one in self.generations)

    def known(self) -> Known:
        """Statistics of all launches together."""
        launches = [launch for own in self.generations for launch in own]
        runs = [np.concatenate([block["latencies_ns"] for block in launch]) / 1e9 for launch in launches]
        return Known(
            runs_s=np.sort(np.concatenate(list(map(_evenly, launches, runs)))),
            mean_s=trimmed_estimate([float(one.mean()) for one in runs]).value,
            cpu_s=trimmed_estimate([statistics.fmean(map(_cpu_s, launch)) for launch in launches]).value,
        )

    def played(self, seed: int, rounds: int = 1) -> Recorded:
        """A model whose processes replay this recording, from launches with so many rounds."""
        run_s = statistics.median(self.generations[0][0][0]["latencies_ns"]) / 1e9
        able = [one for one in self.generations if min(map(len, one)) >= rounds]
        deck = Deck(able, random.Random(seed))
        load_s = max(0.0, self.start_s - 2 * run_s - WARM_S)
        return Recorded(run_s=run_s, load_s=load_s, warm_s=WARM_S, deck=deck)


WARM_S, OF_A_BLOCK = 0.01, 10


def _evenly(launch: Launch, runs_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of a process, as many for each: a process with more rounds counts no more."""
    count = max(1, OF_A_BLOCK * len(runs_s) // len(launch))
    return np.quantile(runs_s, (np.arange(count) + 0.5) / count, method="inverted_cdf")


def _cpu_s(block: Block) -> float:
    runs = len(block["latencies_ns"]) + (block["refill_ns"] is not None)
    return float(block["counters"]["cpu_s"] / runs)


# --- replaying --------------------------------------------------------------------------------------------


class Exhausted(Exception):
    """More was requested than was recorded."""


class Deck:
    """Deals recorded processes, launch after launch, each once."""

    def __init__(self, generations: Sequence[Sequence[Launch]], rng: random.Random) -> None:
        """Begin at a random launch."""
        begin = rng.randrange(len(generations)) if generations else 0
        self.coming = [*generations[begin:], *generations[:begin]]
        self.count, self.rng = len(generations), rng
        self.left: list[Launch] = []
        self.ran = True  # since the last deal, and so the next process is of another launch
        self.dealt = self.rounds = 0  # rounds: of this launch

    def deal(self) -> Launch:
        """Return a process that was alive together with those dealt just before it.

        Raises:
            Exhausted: all launches were dealt.
        """
        if self.ran or not self.left:
            if not self.coming:
                raise Exhausted
            own = self.coming.pop(0)
            self.left = self.rng.sample(list(own), len(own))
            self.rounds, self.ran = min(map(len, own)), False
        self.dealt += 1
        return self.left.pop()


@dataclass(frozen=True, kw_only=True)
class Recorded(simulated_clock.Model):
    """A model that replays a recording."""

    deck: Deck

    def played(self) -> simulated_clock.Played:
        """Deal a process."""
        return _Replayed(self.deck)


class _Replayed:
    """A process that returns recorded blocks."""

    def __init__(self, deck: Deck) -> None:
        self.deck, self.launch, self.made = deck, deck.deal(), 0

    def block(self, clock: simulated_clock.Clock) -> dict[str, Any]:
        """Return the next block.

        Raises:
            Exhausted: the recorded process has no more.
        """
        self.deck.ran = True
        if self.made == len(self.launch):
            raise Exhausted
        block = self.launch[self.made]
        self.made += 1
        started = clock.now
        clock.now += block["counters"]["wall_s"] + (block["refill_ns"] or 0) / 1e9 + 0.002
        return {**block, "started_s": started}

    def cpu_s(self) -> float:
        """CPU time of a run."""
        return statistics.fmean(map(_cpu_s, self.launch))


# --- recording --------------------------------------------------------------------------------------------


def model_path(name: str, folder: Path) -> Path:
    """Return the file of a model."""
    if name == SLOW_ONE:
        return models.conv_net(folder / f"{name}.onnx", size=448, channels=288)
    return grids.model_path(name, folder)


def record(name: str, state: str, seconds: float, *, check: Callable[[], None]) -> Recording:
    """Record a model in the current state of the machine.

    Args:
        name: of `MODELS`.
        state: its name.
        seconds: time for all recordings together.
        check: ends the script if the state is over.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = model_path(name, Path(folder))
        info = run_job(wire.INSPECT, {"path": str(path)})
        spec = grids.start_of(name, path)
        count = NAMES_OF_SLOW if name == SLOW_ONE else NAMES
        entries = [grids.entry(f"{name} {number}", spec, path, info) for number in range(count)]
        part = "launches of a slow one" if name == SLOW_ONE else "launches"
        raw = _compare(entries, seconds * SHARES[part])
        found = Recording(
            model=name,
            state=state,
            start_s=statistics.median(one.start_s / len(one.order) for one in raw.generations),
            generations=launches_of(raw),
            passes=[] if name == SLOW_ONE else _passes(entries[0], seconds * SHARES["passes"], Path(folder)),
            peaks=[] if name == SLOW_ONE else _peaks(entries[0]),
        )
    check()
    tell(f"{name}, {state}: {found.launches} launches, {len(found.passes)} times passes")
    return found


def _compare(entries: Sequence[Entry], seconds: float) -> RawComparison:
    """Race to the end of the time, whatever is known."""
    effort = Effort(name="quick", target=1e-9, budget_s=math.ceil(seconds), looks=(100_000,))
    settings = Settings(
        effort=effort,
        budget_s=seconds,
        margin=lab.MARGIN,
        seed=int(time.time()),
        timeout_s=lab.TIMEOUT_S,
        baseline=0,
        anchor=0,
    )
    return grids.compare(entries[0].label, entries, settings)


def launches_of(raw: RawComparison) -> list[list[Launch]]:
    """Return the blocks of every launch of a race, generation by generation."""
    found: dict[int, dict[tuple[int, int], Launch]] = {}
    for one in sorted(raw.blocks, key=lambda block: block.round):
        launch = found.setdefault(one.generation, {}).setdefault((one.contestant, one.copy), [])
        launch.append(
            {
                "refill_ns": None if one.refill_s is None else round(one.refill_s * 1e9),
                "latencies_ns": [round(1e9 * latency) for latency in one.latencies_s],
                "counters": dict(one.counters),
            }
        )
    return [list(own.values()) for own in found.values()]


def _passes(entry: Entry, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """What *Explain* reports for two equal sides, again and again."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    while not found or time.monotonic() < end:
        output = folder / "passes.json"
        plan: wire.ExplainPlan = {
            "sides": [entry.plan, entry.plan],
            "fingerprint": "",
            "output": str(output),
        }
        run_job(wire.EXPLAIN, plan, timeout_s=lab.TIMEOUT_S)
        found.append(json.loads(output.read_text()))
    return found


def _peaks(entry: Entry) -> list[dict[str, int]]:
    """The memory of equal processes, each read as in a comparison."""
    found = []
    with Workers(threading.Event()) as workers:
        worker, load = start_loaded(workers, entry, lab.TIMEOUT_S)
        worker.kill()
        for _ in range(PROCESSES):
            ran = ProcessResult(load=load)
            footprint(workers, entry, ran, pace(load["first_run_ns"]), lab.TIMEOUT_S)
            assert ran.footprint is not None
            peak = max(ran.load_peak_rss_bytes or 0, ran.footprint["run_peak_rss_bytes"] or 0)
            found.append({"peak_rss_bytes": peak, "baseline_rss_bytes": load["baseline_rss_bytes"]})
    return found


def grid_beside(name: str, seconds: float, *, check: Callable[[], None]) -> grids.Truth:
    """Measure a grid in the machine's current state: as many launches as fit into its share of the time."""
    known = grids.load(name)
    generation_s = BUSY * known.wall_s / len(known.ratios)
    with tempfile.TemporaryDirectory() as folder:
        found = grids.measure(name, Path(folder), max(6, round(seconds * SHARES["grid"] / generation_s)))
    check()
    return found


# --- keeping ----------------------------------------------------------------------------------------------


def save(one: Recording, folder: Path) -> None:
    """Keep a recording, to be replayed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _file(one.model, one.state)).write_bytes(msgspec.msgpack.encode(one))


def load(name: str, state: str, folder: Path) -> Recording | None:
    """Read a recording back; None: there is none."""
    path = folder / _file(name, state)
    return msgspec.msgpack.decode(path.read_bytes(), type=Recording) if path.is_file() else None


def _file(name: str, state: str) -> str:
    return f"{name}-{state}.msgpack"
