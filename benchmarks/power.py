"""How often ORTune finds a model that is truly 3 % slower: `python benchmarks/power.py [--duels N]`.

What: the slower configuration is the same conv net, of about 1 ms, with a fixed extra piece of work, sized on
the spot to about 3 %. Several long comparisons measure its true ratio first. The comparisons at quick effort,
with a budget of 30 s, are judged against that. Run it on an idle machine; the report says how many
comparisons were idle.

Target: at least 90 % of the verdicts are SLOWER. Exit code 1: fewer are.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks.intervals import Truth, share_text, truth_of  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from benchmarks.models import Slower  # noqa: E402
from benchmarks.states import background_load  # noqa: E402
from core.spec.effort import EFFORTS  # noqa: E402

SLOWDOWN = 0.03
LEAST_FOUND = 0.90


def report(rows: Sequence[dict[str, Any]], truth: Truth, budget_s: float) -> bool:
    n = len(rows)
    verdicts = [row["verdict"] for row in rows]
    walls = sorted(row["wall_s"] for row in rows)
    generations, rounds = (statistics.median(row[name] for row in rows) for name in ("generations", "rounds"))
    print(f"{lab.milliseconds([row['run_s'] for row in rows])} ms a run; {lab.quiet_text(rows)}")
    print("verdicts:", lab.counts(verdicts, lab.VERDICTS))
    print("grades:", lab.counts([row["grade"] for row in rows]))
    print(
        f"one comparison: median {statistics.median(walls):.1f} s, longest {walls[-1]:.1f} s, all included; "
        f"median {generations:.0f} launches, {rounds:.0f} rounds\n"
    )
    found = verdicts.count("SLOWER")
    what = f"a slowdown of 3 % found in a comparison of ≤ {budget_s:.0f} s"
    lab.row(what, f"true ratio {truth}", share_text(found, n), f"≥ {LEAST_FOUND:.0%}")
    lab.row("the same, called FASTER", f"true ratio {truth}", share_text(verdicts.count("FASTER"), n), "")
    return found >= LEAST_FOUND * n


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--duels", type=int, default=100)
    parser.add_argument("--budget", type=float, default=30.0, metavar="S", help="of one comparison")
    parser.add_argument("--truth-races", type=int, default=5, help="long comparisons")
    parser.add_argument("--truth-s", type=float, default=120.0, help="budget of each of them")
    parser.add_argument("--sizing-s", type=float, default=30.0, help="budget of each step of the size search")
    parser.add_argument("--neighbour", action="store_true", help="load one core during the comparisons")
    given = parser.parse_args()
    machine = lab.this_machine()
    choices = {name: value for name, value in vars(given).items() if name not in ("json", "duels")}
    journal = Journal(given.json, script="power", options=choices, machine=machine)
    with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/power.py"):
        pair = Slower(Path(folder), SLOWDOWN)
        slower = pair.fitted(journal, given.sizing_s)

        def compare(number: int, precision: str, budget_s: float) -> dict[str, Any]:
            return lab.compare(
                pair.plain, slower, precision=EFFORTS[precision], budget_s=budget_s, seed=number
            )

        long = until(
            journal, "truth", given.truth_races, lambda i: compare(1000 + i, "publish", given.truth_s)
        )
        with background_load(given.neighbour):
            comparisons = until(journal, "duel", given.duels, lambda i: compare(i, "quick", given.budget))
    lab.head(machine)
    return 0 if report(comparisons, truth_of(long), given.budget) else 1


if __name__ == "__main__":
    sys.exit(main())
