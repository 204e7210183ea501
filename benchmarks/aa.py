"""False alarms on identical configurations: `python benchmarks/aa.py [--minutes M]`.

What: each comparison runs at quick effort and compares ONNX Runtime's default session on a model with itself,
so the true ratio is 1. Five models take about 0.03 to 100 ms a run; the report gives the measured times. Four
states of the machine: idle, one background process, two, and a browser on the dashboard that polls and
reloads its page every three seconds. A comparison counts as idle only if less than 1 % of the CPU time was
stolen and other programs used at most a tenth of a core. The others are kept separately. As in the
product, a comparison uses the spread between processes that earlier A/A controls showed (`--prior assumed`:
it does not). A verdict counts regardless of its grade.

After each idle comparison of the smallest model, both sides run one after the other, a second each. A
Mann-Whitney test compares their raw latencies, as benchmark tools commonly do.

How: results are appended to a record (benchmarks/records/aa.jsonl), one line per comparison. A later run
continues the record. Models and states are interleaved until the smallest model has N = 200 idle comparisons
and N/2 in each other state, and the other models N/5 and N/10. `--report` only prints the table.

Target: in each cell at most 5 % of the verdicts are FASTER or SLOWER, and at least 93 % of the intervals
contain 1. Exit code 1: missed. With 100 comparisons in a cell, or in a state over all models, the share
itself must meet the target; with fewer, its whole 95 % interval must miss it. Exit code 3: not missed, record
not full.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import intervals, models  # noqa: E402
from benchmarks.filling import KIND, NOT_QUIET, Cell, Filling  # noqa: E402
from benchmarks.journal import EXIT_NOT_FULL, Clock, Journal, merged, recorded, say_head  # noqa: E402
from benchmarks.states import STATES, WORDS, States  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.process.contestant_workers import Workers  # noqa: E402
from core.run.launches.blocks import Pace, park, run_block, start_loaded  # noqa: E402

MOST_CALLED, LEAST_COVERED = 0.05, 0.93
MANY = 100  # comparisons: from this number on, the share itself must meet its target
FEW = 5  # divides the target number of the larger models; half of that in states other than idle
MODELS = tuple(name for name in models.SIZES if float(name) <= 100)
NORMAL = statistics.NormalDist()


# --- what benchmark tools commonly do -----------------------------------------------------------------------


def sequential(pair: Sequence[Entry], seconds: float, seed: int) -> dict[str, float]:
    """Run both one after the other in a random order, each in its own process; return the test's p."""
    found: list[list[float]] = [[], []]
    window = Pace(
        block_ns=int(seconds * 1e9), min_runs=20, max_runs=1_000_000, refill=True, expected_s=seconds
    )
    with Workers(threading.Event()) as workers:
        for side in random.Random(seed).sample((0, 1), 2):
            worker, _ = start_loaded(workers, pair[side], lab.TIMEOUT_S)
            worker.ask(wire.WARM, {}, timeout_s=lab.TIMEOUT_S)
            found[side] = [ns / 1e9 for ns in run_block(worker, window)["latencies_ns"]]
            park(worker)
            worker.kill()
    ratio = statistics.median(found[0]) / statistics.median(found[1])
    return {"p": mann_whitney(*found), "ratio": ratio, "runs": len(found[0]) + len(found[1])}


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


# --- comparisons --------------------------------------------------------------------------------------------


class Comparisons:
    """Like against like, of each model."""

    def __init__(self, journal: Journal, names: Sequence[str], folder: Path, given: Any) -> None:
        self.journal, self.given = journal, given
        self.pairs: dict[str, list[Entry]] = {}
        for name in names:
            path = models.sized(name, folder)
            self.pairs[name] = [lab.contestant(side, path) for side in ("A", "its like")]

    def one(self, subject: str, state: str, number: int) -> dict[str, Any]:
        """One comparison, and the sequential test for contrast."""
        pair = self.pairs[subject]
        prior_at = lab.history(self.journal.of(KIND) if self.given.prior == "history" else [])
        budget_s = self.given.budget
        found = lab.compare(*pair, precision=lab.QUICK, budget_s=budget_s, seed=number, prior_at=prior_at)
        if subject == models.SMALLEST and state == "quiet" and self.given.sequential_s > 0:
            found["sequential"] = lab.compact(sequential(pair, self.given.sequential_s, number))
        return found


def targets(names: Sequence[str], states: Sequence[str], comparisons: int) -> dict[Cell, int]:
    """How many duels each cell should have."""
    found = {}
    for state in states:
        for name in names:
            share = (1 if name == models.SMALLEST else FEW) * (1 if state == "quiet" else 2)
            found[name, state] = max(1, math.ceil(comparisons / share))
    return found


# --- the report ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Verdicts and intervals of comparisons of identical configurations."""

    n: int
    called: int
    known: int  # with an interval
    covered: int

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Cells:
        """Count."""
        known = [row for row in rows if row["ratio_low"] is not None]
        return cls(
            n=len(rows),
            called=sum(row["verdict"] in lab.CALLED for row in rows),
            known=len(known),
            covered=sum(row["ratio_low"] <= 1 <= row["ratio_high"] for row in known),
        )

    def misses(self) -> bool:
        """Whether a target is missed, as the module docstring defines it."""
        called, covered = self.called, self.covered
        least_called = intervals.share_interval(called, self.n)[0] if self.n else 0.0
        most_covered = intervals.share_interval(covered, self.known)[1] if self.known else 1.0
        by_share = self.n >= MANY and (called > MOST_CALLED * self.n or covered < LEAST_COVERED * self.known)
        return by_share or least_called > MOST_CALLED or most_covered < LEAST_COVERED


def table(rows: Sequence[dict[str, Any]]) -> bool:
    """Print a row for each model in each state, and each state over all models; say whether all are met."""
    print(
        "| model, ms a run | state | comparisons | called FASTER or SLOWER (≤ 5 %) | intervals that cover 1 "
        "(≥ 93 %) | A / B / C / F | half-width | z-scores: deviation | wall time, s |"
    )
    print("|---|---|--:|---|---|---|--:|---|--:|")
    met = True
    for state in (*STATES, NOT_QUIET):
        inside = [row for row in rows if row["state"] == state]
        groups = {name: [row for row in inside if row["subject"] == name] for name in models.SIZES}
        groups = {name: one for name, one in groups.items() if one}
        if len(groups) > 1:
            groups["all"] = inside
        for name, chosen in groups.items():
            line(name, state, chosen)
            met &= state == NOT_QUIET or not Cells.of(chosen).misses()
    return met


def line(name: str, state: str, rows: Sequence[dict[str, Any]]) -> None:
    """One row of the table."""
    cells, grades = Cells.of(rows), [row["grade"] for row in rows]
    scores = [z for row in rows if (z := intervals.z_score(row, 1.0)) is not None]
    apart = "–"
    if len(scores) > 2:
        found = intervals.deviation(scores)
        low, high = intervals.deviation_interval(found, len(scores) - 1)
        apart = f"{found:.2f} [{low:.2f}, {high:.2f}]"
    widths = [row["half_width"] for row in rows if row["half_width"] is not None]
    runs = "" if name == "all" else f", {lab.milliseconds([row['run_s'] for row in rows])}"
    print(
        f"| {name}{runs} | {WORDS[state]} | {cells.n} | {intervals.share_text(cells.called, cells.n)} "
        f"| {intervals.share_text(cells.covered, cells.known)} "
        f"| {' / '.join(f'{grades.count(letter) / len(rows):.0%}' for letter in 'ABCF')} "
        f"| {f'{statistics.median(widths):.2%}' if widths else '–'} | {apart} "
        f"| {statistics.median(row['wall_s'] for row in rows):.1f} |",
        flush=True,
    )


def for_contrast(rows: Sequence[dict[str, Any]]) -> None:
    """Print what the test of raw latencies found for the same pairs."""
    tested = [row for row in rows if "sequential" in row and row["state"] == "quiet"]
    if tested:
        called = sum(row["sequential"]["p"] < 0.05 for row in tested)
        apart = intervals.spread([row["sequential"]["ratio"] for row in tested])
        print(f"\nthe smallest model, measured sequentially: median ratios spread by {apart:.1%}")
        lab.row(
            "the same pair: Mann-Whitney, p < 0.05, sequential raw samples",
            "true ratio 1",
            intervals.share_text(called, len(tested)),
            "for contrast",
        )


def report(path: Path) -> bool:
    """Print a whole record, grouped by machine and options."""
    met = True
    for head, rows in merged(path):
        comparisons = [row for row in rows if row["kind"] == KIND]
        if comparisons:
            say_head(head, comparisons)
            met &= table(comparisons)
            for_contrast(comparisons)
            print("\nverdicts:", lab.counts([row["verdict"] for row in comparisons], lab.VERDICTS), "\n")
    return met


def main() -> int:
    parser = recorded(__doc__, "aa")
    parser.add_argument("--duels", type=int, default=200, metavar="N", help="of the smallest model, idle")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MS")
    parser.add_argument("--states", nargs="+", choices=STATES, default=list(STATES), metavar="STATE")
    parser.add_argument("--prior", choices=("history", "assumed"), default="history")
    parser.add_argument(
        "--sequential-s", type=float, default=1.0, help="seconds of each side for Mann-Whitney; 0: without"
    )
    parser.add_argument(
        "--budget", type=float, default=float(lab.QUICK.budget_s), metavar="S", help="of each comparison"
    )
    given = parser.parse_args()
    missing = 0
    if not given.report:
        choices = {"precision": lab.QUICK.name, "budget_s": given.budget, "prior": given.prior}
        journal = Journal(given.record, script="aa", options=choices, machine=lab.this_machine())
        filling = Filling(journal, targets(given.models, given.states, given.duels), Clock(given.minutes))
        with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/aa.py"):
            comparisons = Comparisons(journal, given.models, Path(folder), given)
            filling.run(comparisons.one, States(Path(folder)))
        missing = filling.missing()
    if not report(given.record):
        return 1
    return EXIT_NOT_FULL if missing else 0


if __name__ == "__main__":
    sys.exit(main())
