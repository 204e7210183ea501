"""Cost of the sandbox of workers: `python benchmarks/sandbox.py [--quick] [--json FILE]`.

What: the same configuration with and without the sandbox, in one run. Three questions:

speed    the ratio of the run times. Each launch starts a fresh process of each side, in random order, and
         runs blocks of both in turns; the median runs of a launch give one ratio. Target: the 95 % interval
         of the mean ratio lies within 1 % of 1.
start    the extra seconds of one more process of a launch, from the request to the end of its warm-up, and
         its end. Both sides alternate. Target: the interval of the median ends below 5 ms.
harness  what the clock and the loop add to one run, which every process measures when it loads. Target: the
         interval of the median difference ends below 0.1 us.

Every row has the steal and the load of other programs. `--quick` takes two minutes and shows that the script
works. Exit code 1: a target is missed.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import intervals, models  # noqa: E402
from benchmarks.fleet_client import Surroundings  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from benchmarks.startup import started  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.process.contestant_workers import Worker, Workers  # noqa: E402
from core.run.launches.blocks import pace, park, run_block, start_loaded  # noqa: E402
from core.run.launches.processes import SEEDS  # noqa: E402
from core.wire.sandbox import OFF  # noqa: E402
from core.wire.variables import SANDBOX  # noqa: E402
from core.worker import sandbox  # noqa: E402

SIDES = ("with", "without")
MODELS = (models.SMALLEST, "1")
ROUNDS = 12
MOST_DIFFERENCE, MOST_START_S, MOST_HARNESS_NS = 0.01, 0.005, 100.0


@contextlib.contextmanager
def side(name: str) -> Iterator[None]:
    """Start processes with the sandbox or without it."""
    before = os.environ.get(SANDBOX)
    os.environ[SANDBOX] = "on" if name == "with" else OFF
    try:
        yield
    finally:
        os.environ.pop(SANDBOX)
        if before is not None:
            os.environ[SANDBOX] = before


class Sides:
    """Processes of both sides, each from a fork server of its own."""

    def __init__(self, workers: Mapping[str, Workers], folder: Path) -> None:
        """Start the fork servers, and read all files into memory."""
        self.workers = workers
        self.entries = {name: lab.contestant(name, models.sized(name, folder)) for name in MODELS}
        self.known_ns = {
            name: min([self._started(one, entry, None, 0)[1] for one in SIDES])
            for name, entry in self.entries.items()
        }

    def _started(self, name: str, entry: Entry, known_ns: int | None, seed: int) -> tuple[float, int]:
        with side(name):
            return started(self.workers[name], entry, known_ns, seed=seed)

    def start(self, number: int) -> dict[str, Any]:
        """The seconds of one process of each side."""
        around, name = Surroundings(), MODELS[0]
        order = SIDES[:: 1 if number % 2 else -1]
        found = {one: self._started(one, self.entries[name], self.known_ns[name], number)[0] for one in order}
        return lab.compact({**found, **around.facts()})  # type: ignore[no-any-return]

    def launch(self, number: int) -> dict[str, Any]:
        """One launch of both sides: the ratio of their median runs, and what the harness adds to a run."""
        around, rng, name = Surroundings(), random.Random(number), MODELS[number % len(MODELS)]
        seed = rng.randrange(SEEDS)  # the same memory layout: it must not differ between the sides
        live: dict[str, Worker] = {}
        try:
            clock_ns = {one: self._load(one, name, seed, live) for one in rng.sample(SIDES, len(SIDES))}
            runs = self._rounds(live, self.known_ns[name], rng)
        finally:
            for worker in live.values():
                worker.kill()
        median = {one: statistics.median(values) for one, values in runs.items()}
        found = {
            "model": name,
            "ratio": median["with"] / median["without"],
            "run_ns": median["without"],
            "harness_ns": clock_ns["with"] - clock_ns["without"],
            "clock_ns": clock_ns["without"],
        }
        return lab.compact({**found, **around.facts()})  # type: ignore[no-any-return]

    def _load(self, name: str, model: str, seed: int, live: dict[str, Worker]) -> float:
        with side(name):
            worker, load = start_loaded(
                self.workers[name], self.entries[model], lab.TIMEOUT_S, layout_seed=seed
            )
        live[name] = worker
        worker.ask(wire.WARM, {"known_ns": None, "cap_s": None}, timeout_s=lab.TIMEOUT_S)
        park(worker)
        return load["clock_ns"]

    def _rounds(
        self, live: Mapping[str, Worker], known_ns: int, rng: random.Random
    ) -> dict[str, list[float]]:
        runs: dict[str, list[float]] = {one: [] for one in SIDES}
        for _ in range(ROUNDS):
            for one in rng.sample(SIDES, len(SIDES)):
                runs[one] += run_block(live[one], pace(known_ns))["latencies_ns"]
                park(live[one])
        return runs


# --- the report ---------------------------------------------------------------------------------------------


def mean_ratio(rows: Sequence[Mapping[str, Any]]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))


def report(starts: Sequence[dict[str, Any]], launches: Sequence[dict[str, Any]]) -> bool:
    """Print a row for each question; return whether every target is met."""
    met = True
    print("| what | against | measured | target |")
    print("|---|---|---|---|")
    for name in MODELS:
        rows = [row for row in launches if row["model"] == name]
        low, high = intervals.bootstrap(rows, mean_ratio)
        met &= low >= 1 - MOST_DIFFERENCE and high <= 1 + MOST_DIFFERENCE
        lab.row(
            f"run time in the sandbox, {lab.milliseconds([row['run_ns'] / 1e9 for row in rows])} ms a run",
            "without it",
            f"{mean_ratio(rows):.4f}×, 95 % CI [{low:.4f}, {high:.4f}], n = {len(rows)} launches, "
            f"{lab.quiet_text(rows)}",
            f"within {MOST_DIFFERENCE:.0%} of 1",
        )
    extra_ms = [1e3 * (row["with"] - row["without"]) for row in starts]
    met &= _row("extra start of a process in the sandbox", extra_ms, "ms", 1e3 * MOST_START_S)
    harness_us = [row["harness_ns"] / 1e3 for row in launches]
    met &= _row("extra time of the harness per run in the sandbox", harness_us, "us", MOST_HARNESS_NS / 1e3)
    return met


def _row(what: str, values: Sequence[float], unit: str, most: float) -> bool:
    median: Callable[[Sequence[float]], float] = lambda chosen: float(statistics.median(chosen))  # noqa: E731
    low, high = intervals.bootstrap(values, median)
    text = f"{median(values):+.4f} {unit}, 95 % CI [{low:+.4f}, {high:+.4f}], n = {len(values)}"
    lab.row(what, "without it", text, f"≤ {most:g} {unit}")
    return high <= most


def main() -> int:
    """Run the experiment."""
    parser = lab.options(__doc__)
    parser.add_argument("--launches", type=int, default=80, help="of all models together")
    parser.add_argument("--starts", type=int, default=60, help="processes of each side")
    parser.add_argument("--quick", action="store_true", help="a tenth of both")
    given = parser.parse_args()
    offered = sandbox.offer()
    if not offered["landlock"] or not offered["seccomp"]:
        print(f"This system has no whole sandbox: {'; '.join(offered['lacks'])}.", file=sys.stderr)
        return 2
    share = 10 if given.quick else 1
    machine = lab.this_machine()
    options = {"rounds": ROUNDS, "landlock": offered["landlock"]}
    journal = Journal(given.json, script="sandbox", options=options, machine=machine)
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.turn("benchmarks/sandbox.py"),
        Workers(threading.Event()) as confined,
        Workers(threading.Event()) as free,
    ):
        both = Sides({"with": confined, "without": free}, Path(folder))
        starts = until(journal, "start", given.starts // share, both.start)
        launches = until(journal, "launch", given.launches // share, both.launch)
    lab.head(machine)
    return 0 if report(starts, launches) else 1


if __name__ == "__main__":
    sys.exit(main())
