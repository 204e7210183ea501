"""Repeatability of verdicts: `python benchmarks/repeat.py [--times N]`.

What: two pairs are compared 30 times each at quick effort. The first is ONNX Runtime's default session on the
smallest model against itself, whose true ratio is 1. The second is a conv net of about 1 ms against the same
with a fixed extra piece of work, sized on the spot to about 5 %. Several long comparisons measure its true
ratio first. Each comparison gets a z-score: the error of the reported ratio in standard errors, with its
degrees of freedom accounted for (the probit of Student's distribution). If the printed intervals are neither
too narrow nor too wide, the z-scores have the standard deviation 1. It is taken about the mean of each pair,
because the true ratio of the second is itself measured. As in the product, a comparison uses what earlier A/A
controls showed (`--prior assumed`: it does not).

How: results are appended to a record (benchmarks/records/repeat.jsonl). A later run continues the record, the
pairs in turn. `--report` prints the record. Run it on an idle machine; the report says how many comparisons
were idle.

Target: no two comparisons of a pair contradict each other (one FASTER, one SLOWER; or disjoint intervals),
and the standard deviation of the z-scores of both pairs lies in [0.85, 1.15]. Exit code 1: missed; 3: not
missed, but the record is not full.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import intervals, models  # noqa: E402
from benchmarks.journal import (  # noqa: E402
    EXIT_NOT_FULL,
    Clock,
    Journal,
    merged,
    recorded,
    say_head,
    tell,
    until,
)
from core.evidence.record import Entry  # noqa: E402
from core.spec.effort import EFFORTS  # noqa: E402

SLOWDOWN = 0.05
LIKE, SLOWER = "like for like", "5 % slower"
NARROW, WIDE = 0.85, 1.15  # standard deviation of the z-scores
TRUTH_SEED = 1000


class Pairs:
    """The two pairs, and the long comparisons that measure the true ratio of the second."""

    def __init__(self, folder: Path, journal: Journal, given: Any) -> None:
        self.journal, self.given = journal, given
        digits = models.sized(models.SMALLEST, folder)
        pair = models.Slower(folder, SLOWDOWN)
        slower = pair.fitted(journal, given.sizing_s)
        self.entries: dict[str, tuple[Entry, Entry]] = {
            LIKE: (lab.contestant("A", digits), lab.contestant("its like", digits)),
            SLOWER: (pair.plain, slower),
        }
        until(journal, "truth", given.truth_races, self._long)

    def _long(self, number: int) -> dict[str, Any]:
        return lab.compare(
            *self.entries[SLOWER],
            precision=EFFORTS["publish"],
            budget_s=self.given.truth_s,
            seed=TRUTH_SEED + number,
        )

    def fill(self, clock: Clock) -> None:
        """Compare both in turn until each has the requested number of comparisons."""
        for number in range(self.given.times):
            for subject in self.entries:
                if len(of(self.journal.rows, subject)) <= number:
                    if clock.is_over():
                        return
                    self._once(subject, number)

    def _once(self, subject: str, number: int) -> None:
        earlier = self.journal.of("duel") if self.given.prior == "history" else []
        found = lab.compare(
            *self.entries[subject],
            precision=lab.QUICK,
            budget_s=self.given.budget,
            seed=number,
            prior_at=lab.history(earlier),
        )
        self.journal.add({"kind": "duel", "subject": subject, **found})
        tell(f"{subject} {number + 1} of {self.given.times}: {found['verdict']} in {found['wall_s']:.1f} s")


def of(rows: Sequence[dict[str, Any]], subject: str) -> list[dict[str, Any]]:
    """The comparisons of one pair."""
    return [row for row in rows if row["kind"] == "duel" and row["subject"] == subject]


# --- the report -------------------------------------------------------------------------------------------


def contradictions(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Pairs of comparisons of which one says FASTER and one SLOWER, and pairs with disjoint intervals."""
    verdicts = [row["verdict"] for row in rows]
    known = [row for row in rows if row["ratio_low"] is not None]
    apart = sum(
        a["ratio_high"] < b["ratio_low"] or b["ratio_high"] < a["ratio_low"]
        for a, b in itertools.combinations(known, 2)
    )
    return verdicts.count("FASTER") * verdicts.count("SLOWER"), apart


def pair_report(
    subject: str, rows: Sequence[dict[str, Any]], truth: float, text: str
) -> tuple[bool, list[float]]:
    """Print the result of one pair; return whether nothing contradicts, and the z-scores."""
    opposite, apart = contradictions(rows)
    known = [row for row in rows if row["ratio_low"] is not None]
    covered = sum(row["ratio_low"] <= truth <= row["ratio_high"] for row in known)
    scores = [z for row in rows if (z := intervals.z_score(row, truth)) is not None]
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    widths = [row["half_width"] for row in known]
    print(f"{subject}, {lab.milliseconds([row['run_s'] for row in rows])} ms a run, true ratio: {text}")
    print(f"  verdicts: {lab.counts([row['verdict'] for row in rows], lab.VERDICTS)}")
    print(f"  grades: {lab.counts([row['grade'] for row in rows])}; {lab.quiet_text(rows)}")
    if ratios and widths:
        wall_s = statistics.median(row["wall_s"] for row in rows)
        print(
            f"  ratio {min(ratios):.4f} to {max(ratios):.4f}, spread {intervals.spread(ratios):.2%}, "
            f"half-width {statistics.median(widths):.2%}, {wall_s:.1f} s"
        )
    if scores:
        print(f"  z-scores: mean {statistics.fmean(scores):+.2f}, {deviation_text(scores)}")
    print(f"  intervals that contain the true ratio: {intervals.share_text(covered, len(known))}\n")
    lab.row(
        f"{subject}: pairs of {len(rows)} comparisons that contradict each other",
        f"true ratio: {text}",
        f"{opposite} by verdict, {apart} by interval, of {math.comb(len(rows), 2)}",
        "0",
    )
    return not opposite and not apart, scores


def deviation_text(scores: Sequence[float]) -> str:
    """The standard deviation of the z-scores with its interval."""
    found = intervals.deviation(scores)
    if len(scores) < 3:
        return f"standard deviation {found:.2f}, n = {len(scores)}"
    low, high = intervals.deviation_interval(found, len(scores) - 1)
    return f"standard deviation {found:.2f}, 95 % CI [{low:.2f}, {high:.2f}], n = {len(scores)}"


def together(groups: Sequence[Sequence[float]]) -> bool:
    """Print the standard deviation of all z-scores about their pair's mean; return whether it is in range."""
    groups = [one for one in groups if len(one) > 1]
    df = sum(len(one) - 1 for one in groups)
    if df < 2:
        return True
    found = math.sqrt(sum((len(one) - 1) * intervals.deviation(one) ** 2 for one in groups) / df)
    low, high = intervals.deviation_interval(found, df)
    lab.row(
        "standard deviation of the z-scores of the reported ratios",
        "1: the interval is neither too narrow nor too wide",
        f"{found:.2f}, 95 % CI [{low:.2f}, {high:.2f}], n = {df + len(groups)}",
        f"{NARROW} to {WIDE}",
    )
    return NARROW <= found <= WIDE


def part_report(rows: Sequence[dict[str, Any]]) -> bool:
    """Print what one machine's part of a record says."""
    long = [row for row in rows if row["kind"] == "truth"]
    for row in long:
        print(f"long run: ratio {row['ratio']:.4f}, {row['generations']} launches, grade {row['grade']}")
    met, groups = True, []
    for subject in (LIKE, SLOWER):
        chosen = of(rows, subject)
        if not chosen:
            continue
        truth = None if subject == LIKE else intervals.truth_of(long)
        ratio, text = (1.0, "1") if truth is None else (truth.ratio, str(truth))
        agree, scores = pair_report(subject, chosen, ratio, text)
        met &= agree
        groups.append(scores)
    return together(groups) and met


def report(path: Path) -> bool:
    """Print a whole record, grouped by machine and options."""
    met = True
    for head, rows in merged(path):
        if any(row["kind"] == "duel" for row in rows):
            say_head(head, rows)
            met &= part_report(rows)
            print()
    return met


def main() -> int:
    parser = recorded(__doc__, "repeat")
    parser.add_argument("--times", type=int, default=30, metavar="N", help="comparisons of each pair")
    parser.add_argument("--prior", choices=("history", "assumed"), default="history")
    parser.add_argument(
        "--budget", type=float, default=float(lab.QUICK.budget_s), metavar="S", help="of a comparison"
    )
    parser.add_argument("--truth-races", type=int, default=5, help="long comparisons")
    parser.add_argument("--truth-s", type=float, default=120.0, help="budget of each of them")
    parser.add_argument("--sizing-s", type=float, default=30.0, help="budget of each step of the size search")
    given = parser.parse_args()
    full = True
    if not given.report:
        choices = {
            name: getattr(given, name) for name in ("prior", "budget", "truth_races", "truth_s", "sizing_s")
        }
        journal = Journal(given.record, script="repeat", options=choices, machine=lab.this_machine())
        with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/repeat.py"):
            Pairs(Path(folder), journal, given).fill(Clock(given.minutes))
        full = all(len(of(journal.rows, subject)) >= given.times for subject in (LIKE, SLOWER))
    if not report(given.record):
        return 1
    return 0 if full else EXIT_NOT_FULL


if __name__ == "__main__":
    sys.exit(main())
