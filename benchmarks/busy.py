"""Verdicts that background load reverses: `python benchmarks/busy.py [--times K] [--minutes M]`.

What: pairs of configurations are compared at quick effort, K times on an idle machine, K with one and K with
two background processes. A single thread against ONNX Runtime's default on two models: the best number of
threads may truly depend on the load. Others that should not depend on it: basic against all graph
optimizations, the arena off, spinning off, and a fixed piece of work that makes a model about 5 % slower. A
ratio compares the candidate with ONNX Runtime's default.

How: results are appended to a record (benchmarks/records/busy.jsonl), one line per comparison. A later run
continues the record, pairs and states interleaved. A comparison counts as idle only if less than 1 % of the
CPU time was stolen and other programs used at most a tenth of a core. The reference verdict of a pair is the
most frequent decided verdict of the idle machine. A verdict under load is reversed if it says FASTER where
the reference says SLOWER, or the other way round. It is "not there" if the reference says EQUIVALENT.
`--report` only prints the record.

No target: the remark "on a busy machine" warns of this share, given with its 95 % interval. Exit code 0; 3:
the record is not full.
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

# name -> kind, size of the model, settings of the candidate; the default uses what the machine offers
PAIRS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    f"1 thread, {SMALL} ms": (THREADS, SMALL, {"intra_op_num_threads": 1}),
    f"1 thread, {LARGE} ms": (THREADS, LARGE, {"intra_op_num_threads": 1}),
    "basic optimizations": (REST, SMALL, {"graph_optimization_level": "ORT_ENABLE_BASIC"}),
    "arena off": (REST, LARGE, {"enable_cpu_mem_arena": False}),
    "spinning off": (REST, SMALL, {"session.intra_op.allow_spinning": "0"}),
}
EXTRA = "5 % more work"


def session_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a session: names with a dot are ONNX Runtime's config entries."""
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
    """The most frequent decided verdict of the idle machine; UNDECIDED if there is none, or a tie."""
    counted = sorted(((verdicts.count(name), name) for name in set(verdicts) - {"UNDECIDED"}), reverse=True)
    if not counted or (len(counted) > 1 and counted[0][0] == counted[1][0]):
        return "UNDECIDED"
    return counted[0][1]


def reversed_here(busy: str, quiet: str) -> bool:
    """Whether a verdict under background load is the opposite of that of the idle machine."""
    return {busy, quiet} == {"FASTER", "SLOWER"}


def not_there(busy: str, quiet: str) -> bool:
    """Whether there is no difference on the idle machine."""
    return busy in lab.CALLED and quiet == "EQUIVALENT"


def part_report(rows: Sequence[dict[str, Any]]) -> None:
    """Print what one machine's part of a record says."""
    print("| pair, ms a run | state | comparisons | verdicts | ratio, median and range | others, cores |")
    print("|---|---|--:|---|---|--:|")
    truths: dict[str, str] = {}
    for name in (*PAIRS, EXTRA):
        for state in (*STATES, NOT_QUIET):
            chosen = [row for row in rows if row["subject"] == name and row["state"] == state]
            if chosen:
                line(name, state, chosen)
            if state == "quiet":
                truths[name] = quiet_verdict([row["verdict"] for row in chosen])
    print("\non the idle machine:", "; ".join(f"{name} {one}" for name, one in truths.items()), "\n")
    for kind, words in ((THREADS, "thread counts"), (REST, "the rest")):
        for state in STATES[1:]:
            summary(words, state, [(row, truths[row["subject"]]) for row in rows if is_of(row, kind, state)])


def is_of(row: Mapping[str, Any], kind: str, state: str) -> bool:
    """Whether a comparison is of a pair of that kind, in that state."""
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
    """How often a FASTER or SLOWER under background load is not valid on the idle machine."""
    known = [(row["verdict"], quiet) for row, quiet in judged if quiet != "UNDECIDED"]
    called = [(verdict, quiet) for verdict, quiet in known if verdict in lab.CALLED]
    for what, test in _TESTS.items():
        count = sum(test(verdict, quiet) for verdict, quiet in called)
        lab.row(
            f"{words}, {WORDS[state]}: FASTER or SLOWER there, but {what} on the idle machine",
            "the same pair on the idle machine",
            f"{share_text(count, len(called))} ({len(judged)} comparisons)",
            "",
        )


_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "the opposite": reversed_here,
    "no difference": not_there,
}


def report(path: Path) -> None:
    """Print a whole record, grouped by machine and options."""
    for head, rows in merged(path):
        comparisons = [row for row in rows if row["kind"] == KIND]
        if comparisons:
            say_head(head, comparisons)
            part_report(comparisons)
            print()


def main() -> int:
    names = [*PAIRS, EXTRA]
    parser = recorded(__doc__, "busy")
    parser.add_argument("--times", type=int, default=10, metavar="K", help="comparisons per pair and state")
    parser.add_argument("--pairs", nargs="+", choices=names, default=names, metavar="PAIR")
    parser.add_argument(
        "--budget", type=float, default=float(lab.QUICK.budget_s), metavar="S", help="of a comparison"
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
