"""Spread of repeated reports of one speed-up: `python benchmarks/spread.py [--reports N] [--neighbour]`.

The pair is a tiny conv net without and with ONNX Runtime's graph optimisations. Its speed-up is reported N
times in each of three ways, in a random order, so that all three run under the same conditions:

- ORTune: a comparison at quick effort;
- Olive's protocol at its defaults: a session, 10 warm-up runs, the mean of 20 runs; the same for the other;
- Olive's protocol with the wall time of the comparison before it: as many runs as fit, half the time each.

A comparison cannot be as short as thirty runs of a tiny net. So a larger net, of some 20 ms a run, is
measured as well. There ORTune gets no more wall time than Olive's protocol just took, start of the processes
included: two launches of fresh processes, frozen while they wait, blocks of one run in interleaved rounds,
and the ratio over both launches.

Olive's protocol is implemented here, without Olive, whose imports and search would add time. The spread is
the standard deviation of the logarithm of the reported speed-up; its ratio has a bootstrap interval.

Target, for the two rows with equal wall time: ORTune's spread is at most one third of that of Olive's
protocol. Exit code 1: missed in one of them.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import models  # noqa: E402
from benchmarks.intervals import bootstrap, spread  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from benchmarks.states import background_load  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.evidence.speedup_interval import contrast  # noqa: E402
from core.process.contestant_workers import Worker, Workers  # noqa: E402
from core.run.launches.blocks import exact_pace, park, run_block, start_loaded  # noqa: E402
from core.run.launches.processes import SEEDS  # noqa: E402

MOST_SPREAD = 1 / 3
SMALL, LARGE, LARGE_CHANNELS = 64, 256, 112  # pixels and channels of the two nets
LAUNCHES = 2  # of the larger net's race: what a second or two hold
LEAST_ROUNDS = 3  # of each
CLOSE_S = 0.05  # to end the processes
WARMUPS, RUNS = 10, 20
BASELINE: dict[str, Any] = {"graph_optimization_level": "ORT_DISABLE_ALL"}

OLIVE = """
import os
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import json, sys, time
import numpy as np
import onnxruntime as ort

path, size, warmups, runs, seconds = json.loads(sys.argv[1])
x = np.random.default_rng(0).random((1, 3, size, size), dtype=np.float32)
means = []
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for _ in range(warmups):
        session.run(None, {"image": x})
    latencies, end = [], time.perf_counter() + seconds
    while len(latencies) < runs or time.perf_counter() < end:
        began = time.perf_counter()
        session.run(None, {"image": x})
        latencies.append(time.perf_counter() - began)
    means.append(sum(latencies) / len(latencies))
    del session
print(json.dumps({"ratio": means[0] / means[1], "runs": len(latencies)}))
"""


def olive(path: Path, size: int, seconds: float) -> dict[str, Any]:
    """One report: `RUNS` runs of each side at least, and as many as fit into `seconds` each."""
    argument = json.dumps([str(path), size, WARMUPS, RUNS, seconds])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", OLIVE, argument], check=True, capture_output=True, text=True, timeout=600
    )
    return {**json.loads(done.stdout), "wall_s": time.monotonic() - began}


def sprint(pair: Sequence[Entry], wall_s: float, seed: int) -> dict[str, Any]:
    """One report of ORTune's protocol in at most `wall_s`, everything included."""
    began, rng = time.monotonic(), random.Random(seed)
    generations: list[list[float]] = []
    known: list[int | None] = [None] * len(pair)
    with Workers(threading.Event()) as workers:
        for number in range(1, LAUNCHES + 1):
            live = [_started(workers, entry, known, side, rng) for side, entry in enumerate(pair)]
            generations.append(_rounds(live, known, rng, began + wall_s * number / LAUNCHES - CLOSE_S))
            for worker in live:
                worker.kill()
    found = contrast(generations)
    return {"ratio": found.ratio, "rounds": found.rounds, "wall_s": time.monotonic() - began}


def _started(
    workers: Workers, entry: Entry, known: list[int | None], side: int, rng: random.Random
) -> Worker:
    """A warm process, frozen; its run time is passed to the next launch."""
    again = known[side] is not None
    worker, _ = start_loaded(workers, entry, lab.TIMEOUT_S, layout_seed=rng.randrange(SEEDS), again=again)
    warm = worker.ask(wire.WARM, {"known_ns": known[side], "cap_s": None}, timeout_s=lab.TIMEOUT_S)
    known[side] = known[side] or warm["median_ns"]
    park(worker)
    return worker


def _rounds(
    live: Sequence[Worker], known: Sequence[int | None], rng: random.Random, end: float
) -> list[float]:
    """Log ratios of the rounds that fit before `end`."""
    paces = [exact_pace(one or 1, 1) for one in known]
    found: list[float] = []
    longest_s = 2 * sum(pace.expected_s for pace in paces)
    while len(found) < LEAST_ROUNDS or time.monotonic() + longest_s < end:
        began, medians = time.monotonic(), [0.0, 0.0]
        for side in rng.sample((0, 1), 2):
            medians[side] = statistics.median(run_block(live[side], paces[side])["latencies_ns"])
            park(live[side])
        found.append(math.log(medians[0] / medians[1]))
        longest_s = max(longest_s, time.monotonic() - began)
    return found


class Reports:
    """The reports of all protocols on the same pair, once."""

    def __init__(self, folder: Path, budget_s: float) -> None:
        self.path = models.conv_net(folder / "conv.onnx", size=SMALL)
        self.baseline = lab.contestant("not optimised", self.path, **BASELINE)
        self.candidate = lab.contestant("ORT default", self.path)
        self.large = models.conv_net(folder / "large.onnx", size=LARGE, channels=LARGE_CHANNELS)
        self.large_pair = [
            lab.contestant("not optimised", self.large, **BASELINE),
            lab.contestant("ORT default", self.large),
        ]
        self.budget_s = budget_s
        self.comparison_s = 5.0  # how long the last race took

    def once(self, number: int) -> dict[str, Any]:
        """All protocols, in an order drawn from `number`; on the large net Olive's time is the limit."""
        ways = {
            "ortune": self._comparison,
            "olive": lambda _: olive(self.path, SMALL, 0.0),
            "longer": self._longer,
            "large": self._on_the_large_net,
        }
        order = random.Random(number).sample(sorted(ways), len(ways))
        return {"order": order, **{name: ways[name](number) for name in order}}

    def _on_the_large_net(self, number: int) -> dict[str, Any]:
        rival = olive(self.large, LARGE, 0.0)
        return {"olive": rival, "ortune": sprint(self.large_pair, rival["wall_s"], number)}

    def _comparison(self, number: int) -> dict[str, Any]:
        found = lab.compare(
            self.baseline, self.candidate, precision=lab.QUICK, budget_s=self.budget_s, seed=number
        )
        self.comparison_s = found["wall_s"]
        return found

    def _longer(self, number: int) -> dict[str, Any]:
        return olive(self.path, SMALL, self.comparison_s / 2)


WAYS = {
    "ortune": "ORTune, quick",
    "olive": f"Olive's protocol ({WARMUPS} + {RUNS} runs)",
    "longer": "Olive's protocol, ORTune's wall time",
    "large_ortune": "larger net, ORTune in Olive's wall time",
    "large_olive": f"larger net, Olive's protocol ({WARMUPS} + {RUNS} runs)",
}
EQUAL_TIME = (("ortune", "longer"), ("large_ortune", "large_olive"))
PAIRS = (("ortune", "olive"), *EQUAL_TIME)


def report(rows: Sequence[dict[str, Any]]) -> bool:
    flat = [{**row, **{f"large_{name}": found for name, found in row["large"].items()}} for row in rows]
    for way, name in WAYS.items():
        ratios = [row[way]["ratio"] for row in flat]
        wall = statistics.median(row[way]["wall_s"] for row in flat)
        print(
            f"{name:60} {min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}, ",
            end="",
        )
        print(f"spread {spread(ratios):.1%}, median {wall:.1f} s")
    grades = sorted(row["ortune"]["grade"] for row in rows)
    print(f"ORTune's grades: {' '.join(grades)}\n")
    shares = {}
    for own, rival in PAIRS:

        def share(chosen: Sequence[dict[str, Any]], own: str = own, rival: str = rival) -> float:
            a, b = (spread([row[way]["ratio"] for row in chosen]) for way in (own, rival))
            return a / max(b, 1e-9)

        shares[own, rival] = share(flat)
        low, high = bootstrap(flat, share)
        walls = [statistics.median(row[way]["wall_s"] for row in flat) for way in (own, rival)]
        lab.row(
            f"spread of one speed-up reported {len(rows)} times, {WAYS[own]} ({walls[0]:.1f} s each)",
            f"{WAYS[rival]} ({walls[1]:.1f} s each)",
            f"{shares[own, rival]:.2f} of it, 95 % CI [{low:.2f}, {high:.2f}]",
            "≤ 0.33" if (own, rival) in EQUAL_TIME else "",
        )
    return all(shares[one] <= MOST_SPREAD for one in EQUAL_TIME)


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--reports", type=int, default=20)
    parser.add_argument(
        "--budget", type=float, default=float(lab.QUICK.budget_s), metavar="S", help="of a comparison"
    )
    parser.add_argument("--neighbour", action="store_true", help="load one core meanwhile")
    given = parser.parse_args()
    if given.reports < 2:
        parser.error("a spread takes two reports")
    machine = lab.this_machine()
    choices = {"budget": given.budget, "neighbour": given.neighbour}
    journal = Journal(given.json, script="spread", options=choices, machine=machine)
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.turn("benchmarks/spread.py"),
        background_load(given.neighbour),
    ):
        rows = until(journal, "report", given.reports, Reports(Path(folder), given.budget).once)
    lab.head(machine)
    return 0 if report(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
