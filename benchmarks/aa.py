"""How often ORTune calls a model faster than itself: `python benchmarks/aa.py [--duels N] [--neighbour]`.

Each duel is a whole race, at quick precision, of ONNX Runtime's default session on a tiny conv net against a
second process of the same; the truth is 1. A verdict counts whatever the grade; how many duels were graded F,
and so rejected, is told. Beside each duel the same two contestants run one after the other, a second each,
and a Mann-Whitney test compares their raw latencies: what benchmark tools commonly do. `--neighbour` burns
one core meanwhile. Exit code 1: more than 5 % were called FASTER or SLOWER, or fewer than 93 % of the
intervals cover 1.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from core.race.blocks import Pace, park, run_block, start_loaded  # noqa: E402
from core.race.record import Entry  # noqa: E402
from core.race.workers import Workers  # noqa: E402

MOST_CALLED, LEAST_COVERED = 0.05, 0.93
NORMAL = statistics.NormalDist()


def sequential(pair: Sequence[Entry], seconds: float, seed: int) -> list[list[float]]:
    """Raw latencies of both, one after the other in a random order, each in a process of its own."""
    found: list[list[float]] = [[], []]
    window = Pace(block_ns=int(seconds * 1e9), min_runs=20, max_runs=1_000_000, expected_s=seconds)
    with Workers(threading.Event()) as workers:
        for side in random.Random(seed).sample((0, 1), 2):
            worker, _ = start_loaded(workers, pair[side], lab.TIMEOUT_S)
            worker.ask("warm", {}, timeout_s=lab.TIMEOUT_S)
            found[side] = [ns / 1e9 for ns in run_block(worker, window)["latencies_ns"]]
            park(worker)
            worker.kill()
    return found


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p by the normal approximation, ties accounted for."""
    ordered = sorted([(value, 0) for value in a] + [(value, 1) for value in b])
    rank_sum, ties, start, n = 0.0, 0, 0, len(ordered)
    while start < n:
        end = start
        while end < n and ordered[end][0] == ordered[start][0]:
            end += 1
        rank_sum += (start + end + 1) / 2 * sum(1 for _, side in ordered[start:end] if side == 0)
        ties += (end - start) ** 3 - (end - start)
        start = end
    mean = len(a) * (n + 1) / 2
    variance = len(a) * len(b) / 12 * (n + 1 - ties / (n * (n - 1)))
    return 2 * NORMAL.cdf(-abs(rank_sum - mean) / math.sqrt(variance)) if variance > 0 else 1.0


def one_duel(pair: Sequence[Entry], number: int, seconds: float, budget_s: float) -> dict[str, Any]:
    found = lab.duel(*pair, precision=lab.QUICK, budget_s=budget_s, seed=number)
    first, second = sequential(pair, seconds, number)
    ratio = statistics.median(first) / statistics.median(second)
    return {
        **found,
        "sequential": {"p": mann_whitney(first, second), "ratio": ratio, "runs": len(first + second)},
    }


def report(rows: Sequence[dict[str, Any]], regime: str) -> bool:
    n = len(rows)
    verdicts = Counter(row["verdict"] for row in rows)
    grades = Counter(row["grade"] for row in rows)
    called = verdicts["FASTER"] + verdicts["SLOWER"]
    kept = [row for row in rows if row["grade"] != "F"]
    called_kept = sum(row["verdict"] in ("FASTER", "SLOWER") for row in kept)
    known = [row for row in rows if row["ratio_low"] is not None]
    covered = sum(row["ratio_low"] <= 1 <= row["ratio_high"] for row in known)
    tested = sum(row["sequential"]["p"] < 0.05 for row in rows)
    wall = statistics.median(row["wall_s"] for row in rows)
    widths = [row["half_width"] for row in known]
    rounds = statistics.median(row["rounds"] for row in rows)
    print(f"{regime}: {n} duels, median {wall:.1f} s and {rounds:.0f} rounds")
    print("verdicts:", ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items())))
    print("grades:", ", ".join(f"{name} {count}" for name, count in sorted(grades.items())))
    print(f"half-width of the interval: median {statistics.median(widths):.2%}" if widths else "no interval")
    if kept:
        print(f"FASTER or SLOWER among those not rejected: {lab.share_text(called_kept, len(kept))}")
    apart = lab.spread([row["sequential"]["ratio"] for row in rows])
    print(f"the same pair one after the other: median ratios spread by {apart:.1%}\n")
    subject = f"like against like, {regime}"
    lab.row(
        f"{subject}: called faster or slower", "truth 1", lab.share_text(called, n), f"≤ {MOST_CALLED:.0%}"
    )
    lab.row(
        f"{subject}: intervals that cover 1",
        "truth 1",
        lab.share_text(covered, len(known)) if known else "none",
        f"≥ {LEAST_COVERED:.0%}",
    )
    lab.row(
        f"{subject}: Mann-Whitney, p < 0.05, sequential raw samples",
        "truth 1",
        lab.share_text(tested, n),
        "for contrast",
    )
    return called <= MOST_CALLED * n and covered >= LEAST_COVERED * len(known)


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--duels", type=int, default=200)
    parser.add_argument("--neighbour", action="store_true", help="burn one core meanwhile")
    parser.add_argument(
        "--sequential-s", type=float, default=1.0, help="seconds of each side for Mann-Whitney"
    )
    parser.add_argument(
        "--budget", type=float, default=lab.QUICK.budget_s, help="seconds of measuring of each duel"
    )
    given = parser.parse_args()
    machine = lab.this_machine()
    choices = {"neighbour": given.neighbour, "sequential_s": given.sequential_s, "budget_s": given.budget}
    journal = lab.Journal(given.json, script="aa", options=choices, machine=machine)
    regime = "beside a neighbour that burns one core" if given.neighbour else "quiet"
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.turn("benchmarks/aa.py"),
        lab.neighbour(given.neighbour),
    ):
        model = lab.conv_net(Path(folder) / "conv.onnx")
        pair = [lab.contestant(side, model) for side in ("A", "its twin")]
        rows = lab.until(
            journal, "duel", given.duels, lambda i: one_duel(pair, i, given.sequential_s, given.budget)
        )
    lab.head(machine)
    return 0 if report(rows, regime) else 1


if __name__ == "__main__":
    sys.exit(main())
