"""Which verdicts a neighbour turns round: `python benchmarks/busy.py [--times K] [--minutes M]`.

What: pairs of configurations race at quick effort on the quiet machine, beside one burner and beside two,
K times each: a single thread against ONNX Runtime's default on two models (how many threads are best may
truly depend on the neighbour), and what should not depend on it: basic against all graph optimizations, the
arena off, spinning off, and a fixed piece of work that makes a model about 5 % slower. A ratio is that of the
candidate against ONNX Runtime's default.

How: results are appended to a record (benchmarks/records/busy.jsonl), a line a duel; run it again and it goes
on where it stopped, pairs and states interleaved. A duel counts as quiet only where less than 1 % of the CPU
time was stolen and other programs used no more than a tenth of a core. What is true on the quiet machine is
the verdict that most of its decided duels have. A verdict beside a neighbour is reversed where it says FASTER
and the quiet machine SLOWER, or the other way round; "not there" where it says so and the quiet machine
EQUIVALENT. `--report` prints what the record says and measures nothing.

No target: how often it happens, with its 95 % interval, is what the remark "on a busy machine" has to warn
of. Exit code 0; 3: the record is not full.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import models  # noqa: E402
from benchmarks.filling import KIND, NOT_QUIET, Filling  # noqa: E402
from benchmarks.intervals import share_text  # noqa: E402
from benchmarks.journal import EXIT_NOT_FULL, Clock, Journal, merged, recorded, say_head  # noqa: E402
from benchmarks.states import WORDS, States  # noqa: E402
from core.evidence.record import Entry  # noqa: E402

SLOWDOWN = 0.05
STATES = ("quiet", "burner", "burners")
THREADS = "threads"
REST = "the rest"
SMALL, LARGE = "1", "10"  # sizes of the models

# name -> kind, size of the model, settings of the candidate; the default has what the machine offers
PAIRS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    f"1 thread, {SMALL} ms": (THREADS, SMALL, {"intra_op_num_threads": 1}),
    f"1 thread, {LARGE} ms": (THREADS, LARGE, {"intra_op_num_threads": 1}),
    "basic optimizations": (REST, SMALL, {"graph_optimization_level": "ORT_ENABLE_BASIC"}),
    "arena off": (REST, LARGE, {"enable_cpu_mem_arena": False}),
    "spinning off": (REST, SMALL, {"session.intra_op.allow_spinning": "0"}),
}
EXTRA = "5 % more work"


def session_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a session: those with a dot in their name are ONNX Runtime's config entries."""
    entries = {name: value for name, value in settings.items() if "." in name}
    rest = {name: value for name, value in settings.items() if "." not in name}
    return {**rest, "session_config_entries": entries} if entries else rest


class Comparisons:
    """Every pair, as contestants of this machine."""

    def __init__(self, folder: Path, journal: Journal, given: Any) -> None:
        self.journal, self.given = journal, given
        self.entries: dict[str, tuple[Entry, Entry]] = {}
        for name in given.pairs:
            if name == EXTRA:
                pair = models.Slower(folder, SLOWDOWN)
                self.entries[name] = (pair.plain, pair.fitted(journal, given.sizing_s))
            else:
                _, size, settings = PAIRS[name]
                path = models.sized(size, folder)
                candidate = lab.contestant(name, path, **session_of(settings))
                self.entries[name] = (lab.contestant("ORT default", path), candidate)

    def one(self, subject: str, state: str, number: int) -> dict[str, Any]:
        """One duel; as in the product it knows what the A/A tests before it showed."""
        return lab.compare(
            *self.entries[subject],
            precision=lab.QUICK,
            budget_s=self.given.budget,
            seed=number,
            prior_at=lab.history(self.journal.of(KIND)),
        )


# --- the report -------------------------------------------------------------------------------------------


def quiet_verdict(verdicts: Sequence[str]) -> str:
    """What most decided duels of the quiet machine say; UNDECIDED where none is, or two are as many."""
    counted = sorted(((verdicts.count(name), name) for name in set(verdicts) - {"UNDECIDED"}), reverse=True)
    if not counted or (len(counted) > 1 and counted[0][0] == counted[1][0]):
        return "UNDECIDED"
    return counted[0][1]


def reversed_here(busy: str, quiet: str) -> bool:
    """Whether a verdict beside a neighbour is the opposite of that of the quiet machine."""
    return {busy, quiet} == {"FASTER", "SLOWER"}


def not_there(busy: str, quiet: str) -> bool:
    """Whether there is no difference on the quiet machine."""
    return busy in lab.CALLED and quiet == "EQUIVALENT"


def part_report(rows: Sequence[dict[str, Any]]) -> None:
    """Print what one machine's part of a record says."""
    print("| pair, ms a run | state | duels | verdicts | ratio, median and range | others, cores |")
    print("|---|---|--:|---|---|--:|")
    truths: dict[str, str] = {}
    for name in (*PAIRS, EXTRA):
        for state in (*STATES, NOT_QUIET):
            chosen = [row for row in rows if row["subject"] == name and row["state"] == state]
            if chosen:
                line(name, state, chosen)
            if state == "quiet":
                truths[name] = quiet_verdict([row["verdict"] for row in chosen])
    print("\non the quiet machine:", "; ".join(f"{name} {one}" for name, one in truths.items()), "\n")
    for kind, words in ((THREADS, "thread counts"), (REST, "the rest")):
        for state in STATES[1:]:
            summary(words, state, [(row, truths[row["subject"]]) for row in rows if is_of(row, kind, state)])


def is_of(row: Mapping[str, Any], kind: str, state: str) -> bool:
    """Whether a duel is of a pair of that kind, in that state."""
    own = REST if row["subject"] == EXTRA else PAIRS[row["subject"]][0]
    return own == kind and row["state"] == state


def line(name: str, state: str, rows: Sequence[dict[str, Any]]) -> None:
    """One row of the table."""
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    spread = f"{statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}" if ratios else "–"
    others = [row["others"] for row in rows if row["others"] is not None]
    print(
        f"| {name}, {lab.milliseconds([row['run_s'] for row in rows])} | {WORDS[state]} | {len(rows)} "
        f"| {lab.counts([row['verdict'] for row in rows], lab.VERDICTS)} | {spread} "
        f"| {f'{statistics.median(others):.2f}' if others else '–'} |",
        flush=True,
    )


def summary(words: str, state: str, judged: Sequence[tuple[Mapping[str, Any], str]]) -> None:
    """How often a called verdict beside a neighbour does not hold on the quiet machine."""
    known = [(row["verdict"], quiet) for row, quiet in judged if quiet != "UNDECIDED"]
    called = [(verdict, quiet) for verdict, quiet in known if verdict in lab.CALLED]
    for what, test in _TESTS.items():
        count = sum(test(verdict, quiet) for verdict, quiet in called)
        lab.row(
            f"{words}, {WORDS[state]}: FASTER or SLOWER there, but {what} on the quiet machine",
            "the same pair on the quiet machine",
            f"{share_text(count, len(called))} ({len(judged)} duels)",
            "",
        )


_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "the opposite": reversed_here,
    "no difference": not_there,
}


def report(path: Path) -> None:
    """Print all that a record says, each machine and set of options apart."""
    for head, rows in merged(path):
        comparisons = [row for row in rows if row["kind"] == KIND]
        if comparisons:
            say_head(head, comparisons)
            part_report(comparisons)
            print()


def main() -> int:
    names = [*PAIRS, EXTRA]
    parser = recorded(__doc__, "busy")
    parser.add_argument("--times", type=int, default=10, metavar="K", help="duels of each pair in each state")
    parser.add_argument("--pairs", nargs="+", choices=names, default=names, metavar="PAIR")
    parser.add_argument(
        "--budget", type=float, default=float(lab.QUICK.budget_s), metavar="S", help="of a duel"
    )
    parser.add_argument("--sizing-s", type=float, default=30.0, help="budget of each step of the size search")
    given = parser.parse_args()
    missing = 0
    if not given.report:
        choices = {"budget_s": given.budget, "sizing_s": given.sizing_s}
        journal = Journal(given.record, script="busy", options=choices, machine=lab.this_machine())
        targets = {(name, state): given.times for state in STATES for name in given.pairs}
        filling = Filling(journal, targets, Clock(given.minutes))
        with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/busy.py"):
            filling.run(Comparisons(Path(folder), journal, given).one, States(Path(folder)))
        missing = filling.missing()
    report(given.record)
    return EXIT_NOT_FULL if missing else 0


if __name__ == "__main__":
    sys.exit(main())
