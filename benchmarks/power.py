"""How often ORTune finds a truly 3 % slower model: `python benchmarks/power.py [--duels N] [--truth-s S]`.

The slower contestant is the same small conv net with a fixed extra piece of work beside it, sized on the spot
to about 3 %. What its true ratio is comes first, from several long races in fresh processes; the duels, at
quick precision and with a budget of 30 s, are judged against that. Run it on a quiet machine. Exit code 1:
fewer than 90 % of the duels say SLOWER.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from core.contrast import PRECISIONS, contrast  # noqa: E402
from core.race.record import Entry  # noqa: E402
from core.statistics import t_quantile  # noqa: E402

SLOWDOWN = 0.03
LEAST_FOUND = 0.90
SIDE = 96  # pixels of the image: in a smaller net the extra work costs 4 % merely by being there
FIRST_GUESS = 4000  # numbers that the extra work handles
SIZINGS = 4
NEAR_ENOUGH = 0.1  # of the slowdown


class Pair:
    """The plain model and the slower one, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plain = lab.contestant("plain", lab.conv_net(folder / "plain.onnx", size=SIDE))

    def slower(self, extra: int) -> Entry:
        """The model with this much extra work."""
        net = lab.conv_net(self.folder / f"extra{extra}.onnx", size=SIDE, extra=extra)
        return lab.contestant(f"extra {extra}", net)

    def sized(self, number: int, rows: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """One step of the search: measure the size that the steps before suggest."""
        extra = next_size(rows)
        found = lab.duel(
            self.plain, self.slower(extra), precision=PRECISIONS["standard"], budget_s=seconds, seed=number
        )
        return {"extra": extra, **found}


def next_size(rows: Sequence[dict[str, Any]]) -> int:
    """The size that a line through the two best says: some cost is for being there, the rest grows."""
    costs = sorted({row["extra"]: 1 / row["ratio"] - 1 for row in rows}.items())
    if not costs:
        return FIRST_GUESS
    if len(costs) == 1:
        return 2 * FIRST_GUESS
    by_distance = sorted(costs, key=lambda one: abs(one[1] - SLOWDOWN))
    (size, cost), (other_size, other_cost) = by_distance[:2]
    slope = (other_cost - cost) / (other_size - size)
    if slope <= 0:  # noise
        return max(size, other_size) * 2
    return max(64, min(3 * SIDE * SIDE, round(size + (SLOWDOWN - cost) / slope)))


def best_size(rows: Sequence[dict[str, Any]]) -> int:
    return int(min(rows, key=lambda row: abs(1 / row["ratio"] - 1 - SLOWDOWN))["extra"])


def truth_of(rows: Sequence[dict[str, Any]]) -> str:
    """The true slowdown and its interval: over all rounds, or over the races where that is wider.

    Two processes of one program may differ a little for as long as they live, which no round shows.
    """
    pooled = contrast([value for row in rows for value in row["log_ratios"]], margin=lab.MARGIN)
    print(f"truth: {len(rows)} races in fresh processes, {pooled.rounds} rounds")
    for row in rows:
        print(f"  ratio {row['ratio']:.4f}, {row['rounds']} rounds, {row['outcome']}, grade {row['grade']}")
    if pooled.ratio_low is None:
        raise SystemExit("the long races were too short to tell the true ratio")
    center = math.log(pooled.ratio)
    half = center - math.log(pooled.ratio_low)
    if len(rows) > 1:
        apart = lab.spread([row["ratio"] for row in rows])
        half = max(half, t_quantile(0.975, len(rows) - 1) * apart / math.sqrt(len(rows)))
    slower, low, high = (math.expm1(-center + offset) for offset in (0.0, -half, half))
    return f"{slower:.2%} slower, 95 % [{low:.2%}, {high:.2%}]"


def report(rows: Sequence[dict[str, Any]], truth: str, budget_s: float) -> bool:
    n = len(rows)
    verdicts = Counter(row["verdict"] for row in rows)
    grades = Counter(row["grade"] for row in rows)
    walls = sorted(row["wall_s"] for row in rows)
    print("verdicts:", ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items())))
    print("grades:", ", ".join(f"{name} {count}" for name, count in sorted(grades.items())))
    print(
        f"a duel: median {statistics.median(walls):.1f} s, longest {walls[-1]:.1f} s, loading included; ",
        end="",
    )
    print(f"median {statistics.median(row['rounds'] for row in rows):.0f} rounds\n")
    found = verdicts["SLOWER"]
    lab.row(
        f"a slowdown of 3 % found in a duel of ≤ {budget_s:.0f} s",
        f"truth {truth}",
        lab.share_text(found, n),
        f"≥ {LEAST_FOUND:.0%}",
    )
    lab.row("the same, called FASTER", f"truth {truth}", lab.share_text(verdicts["FASTER"], n), "")
    return found >= LEAST_FOUND * n


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--duels", type=int, default=100)
    parser.add_argument("--budget", type=float, default=30.0, metavar="S", help="of one duel")
    parser.add_argument("--truth-races", type=int, default=5, help="long races, in fresh processes each")
    parser.add_argument("--truth-s", type=float, default=120.0, help="budget of each of them")
    parser.add_argument("--sizing-s", type=float, default=30.0, help="budget of each step of the size search")
    parser.add_argument("--neighbour", action="store_true", help="burn one core during the duels")
    given = parser.parse_args()
    machine = lab.this_machine()
    choices = {name: value for name, value in vars(given).items() if name not in ("json", "duels")}
    journal = lab.Journal(given.json, script="power", options=choices, machine=machine)
    with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/power.py"):
        pair = Pair(Path(folder))
        sizes = lab.until(
            journal, "size", SIZINGS, lambda i: pair.sized(i, journal.of("size"), given.sizing_s)
        )
        slower = pair.slower(best_size(sizes))

        def race(number: int, precision: str, budget_s: float) -> dict[str, Any]:
            return lab.duel(
                pair.plain, slower, precision=PRECISIONS[precision], budget_s=budget_s, seed=number
            )

        long = lab.until(
            journal, "truth", given.truth_races, lambda i: race(1000 + i, "publish", given.truth_s)
        )
        with lab.neighbour(given.neighbour):
            duels = lab.until(journal, "duel", given.duels, lambda i: race(i, "quick", given.budget))
    lab.head(machine)
    truth = truth_of(long)
    return 0 if report(duels, truth, given.budget) else 1


if __name__ == "__main__":
    sys.exit(main())
