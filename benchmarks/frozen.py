"""The benefit of freezing parked workers: `python benchmarks/frozen.py [--pairs N] [--rounds R]`.

Two processes of the same default session are compared three times, in a random order: with the parked process
stopped (SIGSTOP), as ORTune does; with it running; and running, but after the settle time that ORTune keeps
where it cannot stop a process. ONNX Runtime's idle threads spin for a while and take CPU time from the other
process. Reported are the noise of a pair (the robust standard deviation of one round's log ratio within a
pair of processes) and the slowdown of the runs. Intervals are over pairs of processes. No target; exit code
0.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import models  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.evidence.speedup_interval import contrast  # noqa: E402
from core.process.contestant_workers import Worker, Workers  # noqa: E402
from core.run.launches.blocks import SETTLE_S, Pace, pace, run_block, start_loaded  # noqa: E402

Park = Callable[[Worker], object]

PARKING: dict[str, tuple[str, Park]] = {
    "frozen": ("frozen", Worker.freeze),
    "live": ("live", lambda worker: None),
    "settled": (f"live, {SETTLE_S * 1000:.0f} ms to settle", lambda worker: time.sleep(SETTLE_S)),
}


def one_pair(entry: Entry, rounds: int, seed: int) -> dict[str, Any]:
    """Noise and typical latency of one pair of processes, parked in each of the ways."""
    rng = random.Random(seed)
    found: dict[str, Any] = {"order": rng.sample(sorted(PARKING), len(PARKING))}
    with Workers(threading.Event()) as workers:
        pair = [start_loaded(workers, entry, lab.TIMEOUT_S)[0] for _ in "AB"]
        warm = []
        for worker in pair:
            warm.append(worker.ask(wire.WARM, {}, timeout_s=lab.TIMEOUT_S)["median_ns"])
            worker.freeze()
        for way in found["order"]:
            found[way] = alternate(pair, pace(min(warm)), rounds, rng, PARKING[way][1])
            for worker in pair:
                worker.freeze()
    return found


def alternate(
    pair: Sequence[Worker], block: Pace, rounds: int, rng: random.Random, park: Park
) -> dict[str, Any]:
    log_ratios, latencies = [], []
    began = time.monotonic()
    for _ in range(rounds):
        medians = [0.0, 0.0]
        for side in rng.sample((0, 1), 2):
            medians[side] = statistics.median(run_block(pair[side], block)["latencies_ns"]) / 1e9
            park(pair[side])
        log_ratios.append(round(math.log(medians[0] / medians[1]), 6))
        latencies += medians
    return {
        "log_ratios": log_ratios,
        "median_s": statistics.median(latencies),
        "round_s": (time.monotonic() - began) / rounds,
    }


def noise(found: dict[str, Any]) -> float:
    return contrast([found["log_ratios"]]).sigma or 0.0


def compared(rows: Sequence[dict[str, Any]], way: str, figure: Callable[[dict[str, Any]], float]) -> str:
    """Ratio of a figure of `way` to that of the frozen pairs, with its interval over pairs of processes."""
    logs = [math.log(figure(row[way]) / figure(row["frozen"])) for row in rows]
    found = contrast([[one] for one in logs], prior=None)
    if found.ratio_low is None or found.ratio_high is None:
        return f"{found.ratio:.2f}× (too few pairs for an interval)"
    return f"{found.ratio:.2f}×, 95 % CI [{found.ratio_low:.2f}, {found.ratio_high:.2f}]"


def report(rows: Sequence[dict[str, Any]], rounds: int) -> None:
    n = len(rows)
    print(f"{n} pairs of processes, {rounds} rounds each way")
    for way, (name, _) in PARKING.items():
        typical, latency, round_s = (
            statistics.median(values)
            for values in zip(
                *((noise(row[way]), row[way]["median_s"], row[way]["round_s"]) for row in rows), strict=True
            )
        )
        times = f"run {latency * 1e3:.3f} ms, round {round_s * 1e3:.0f} ms"
        print(f"{name:24} noise of a pair {typical:.1%}, {times}")
    print()
    for way in ("live", "settled"):
        name = f"parked workers {PARKING[way][0]}"
        measured = f"{compared(rows, way, noise)}, n = {n} pairs"
        lab.row(f"noise of a pair, {name}", "frozen", measured, "")
        lab.row(
            f"latency, {name}",
            "frozen",
            f"{compared(rows, way, lambda one: one['median_s'])}, n = {n} pairs",
            "",
        )


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=32, help="rounds of each pair, in each way")
    given = parser.parse_args()
    if given.rounds < 5:
        parser.error("a noise takes five rounds")
    machine = lab.this_machine()
    journal = Journal(given.json, script="frozen", options={"rounds": given.rounds}, machine=machine)
    with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/frozen.py"):
        entry = lab.contestant("ORT default", models.conv_net(Path(folder) / "conv.onnx"))
        rows = until(journal, "pair", given.pairs, lambda i: one_pair(entry, given.rounds, i))
    lab.head(machine)
    report(rows, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
