"""Accuracy per time budget, and whether budgets are kept: `python benchmarks/budgets.py [--times N]`.

What: `ortune tune` compares basic graph optimizations (`--pair threads`: a single thread) with ONNX
Runtime's default. Models take about 0.03, 1, 10, 100 and 1,000 ms a run; efforts are quick, standard and
publish. Reported are the requested budget, the wall time used, runs, launches, rounds and half-width, and the
predicted time against the time until the command ends. The first comparison of a model has no prediction. A
comparison whose budget cannot give a p50 is refused, and the report says so.

How: results are appended to a record (benchmarks/records/budgets.jsonl), one line per comparison. A later run
continues the record, models and efforts in turn. Each start forgets what predictions learn from. `--report`
only prints the table.

Target: no comparison uses more than its budget plus a tenth and a second, and at least 80 % of the
predictions are within ±20 %. Exit code 1: missed; 3: not missed, but the record is not full.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import models  # noqa: E402
from benchmarks.intervals import share_text  # noqa: E402
from benchmarks.journal import (  # noqa: E402
    EXIT_NOT_FULL,
    Clock,
    Journal,
    merged,
    recorded,
    say_head,
    tell,
)
from benchmarks.states import ROOT, own  # noqa: E402
from core.run.launches.budget import GRACE_S  # noqa: E402
from core.spec.effort import EFFORTS  # noqa: E402

MODELS = ("0.03", "1", "10", "100", "1000")
PAIRS: Mapping[str, Sequence[str]] = {
    "basic": ("--graph-optimization-level", "ORT_ENABLE_BASIC"),
    "threads": ("--intra-op-num-threads", "1"),
}
OVERRUN = 1.1  # times its budget, plus `GRACE_S`: the limit that a comparison keeps
RIGHT, LEAST_RIGHT = 0.2, 0.8  # relative error of a correct prediction; least share of them
KIND = "race"
PATIENCE_S = 1800.0
_SHOWN = re.compile(r": effort .*; about (\d+) s, ")


class Command:
    """The command line, with its own results folder."""

    def __init__(self, home: Path, setting: Sequence[str]) -> None:
        self.home, self.setting = home, setting

    def once(self, path: Path, precision: str, budget_s: float) -> dict[str, Any]:
        """One comparison and its costs; times in seconds."""
        command = [sys.executable, "-m", "core", "tune", str(path), *self.setting]
        command += ["--effort", precision, "--budget", f"{budget_s:g}", "--json"]
        shown, predicted_s, said = time.monotonic(), None, ""
        with tempfile.TemporaryFile("w+", dir=self.home) as answer:
            process = subprocess.Popen(
                command, cwd=ROOT, env=own(self.home), stdout=answer, stderr=subprocess.PIPE, text=True
            )
            assert process.stderr is not None
            with process, process.stderr:
                for text in process.stderr:
                    if ": effort " in text:
                        shown = time.monotonic()
                        found = _SHOWN.search(text)
                        predicted_s = float(found[1]) if found else None
                    said = text
                process.wait(PATIENCE_S)
            shown_s = time.monotonic() - shown
            answer.seek(0)
            return {
                **told(answer.read(), said),
                "budget_s": budget_s,
                "predicted_s": predicted_s,
                "shown_s": shown_s,
            }


def told(document: str, said: str) -> dict[str, Any]:
    """Values of the answer that are recorded; `said` is the last line of standard error."""
    trial = json.loads(document) if document else {}
    error = trial.get("error")
    if error is None and not trial.get("contrasts"):
        raise SystemExit(f"The command gave no ratio: {said}")
    if error is not None and error["type"] != "BudgetError":
        raise SystemExit(f"The command failed: {error['message']}")
    found = trial["contrasts"][0] if error is None else {}
    kept = ("verdict", "ratio", "half_width", "generations", "rounds", "grade")
    busy = trial.get("busy")
    return {
        **{name: found.get(name) for name in kept},
        "race_s": found.get("wall_s"),
        "runs": trial.get("runs"),
        "p50_s": (trial.get("latency") or {}).get("p50_s"),
        "busy": busy and busy["words"],
        "refused": error and error["message"],
    }


def fill(journal: Journal, given: Any, folder: Path) -> None:
    """Compare every model at every effort, in turn, until each has the requested number of comparisons."""
    command, clock = Command(folder, PAIRS[given.pair]), Clock(given.minutes)
    for number in range(given.times):
        for model in given.models:
            for precision in given.efforts:
                if len(of(journal.rows, model, precision)) > number:
                    continue
                if clock.is_over():
                    return
                budget_s = given.budget or float(EFFORTS[precision].budget_s)
                found = command.once(models.sized(model, folder), precision, budget_s)
                key = {"kind": KIND, "subject": model, "precision": precision, "number": number}
                journal.add({**key, **lab.compact(found), "at": round(time.time())})
                tell(f"{model} ms, {precision}: {outcome(found)}")


def outcome(row: Mapping[str, Any]) -> str:
    """The outcome of a comparison, in words."""
    if row["refused"]:
        return str(row["refused"])
    shown = "" if row["predicted_s"] is None else f" ({row['predicted_s']:.0f} s predicted)"
    took = f"{row['race_s']:.1f} of {row['budget_s']:g} s, in all {row['shown_s']:.1f} s{shown}"
    return f"{row['verdict']}, {took}"


def of(rows: Sequence[dict[str, Any]], model: str, precision: str) -> list[dict[str, Any]]:
    """The comparisons of a model at an effort."""
    return [row for row in rows if row["subject"] == model and row["precision"] == precision]


# --- the report -------------------------------------------------------------------------------------------


def part_report(rows: Sequence[dict[str, Any]]) -> bool:
    """Print what one machine's part of a record says, and whether the targets are met."""
    print(
        "| ms a run | effort | budget, s | time used, s | runs | launches × rounds | half-width | verdict |"
    )
    print("|--:|---|--:|--:|--:|--:|--:|---|")
    for model in models.SIZES:
        for precision in EFFORTS:
            chosen = of(rows, model, precision)
            if chosen:
                line(model, precision, chosen)
    measured = [row for row in rows if row["race_s"] is not None]
    kept = sum(row["race_s"] <= OVERRUN * row["budget_s"] + GRACE_S for row in measured)
    print(f"\n{len(rows)} races, {sum(bool(row['busy']) for row in rows)} on a busy machine\n")
    lab.row(
        "a race ends within its budget, a tenth and a second", "", share_text(kept, len(measured)), "100 %"
    )
    return predictions(measured) and kept == len(measured)


def line(model: str, precision: str, rows: Sequence[dict[str, Any]]) -> None:
    """One row of the table: medians over the races."""
    measured = [row for row in rows if row["race_s"] is not None]
    budget = f"{rows[0]['budget_s']:g}"
    if not measured:
        waited_s = statistics.median(row["shown_s"] for row in rows)
        why = f"refused after {waited_s:.0f} s: {rows[0]['refused']}"
        print(f"| ({model}) | {precision} | {budget} | {why} | | | | |", flush=True)
        return

    def middle(name: str) -> float:
        return float(statistics.median(row[name] for row in measured))

    widths = [row["half_width"] for row in measured if row["half_width"] is not None]
    refused = "" if len(measured) == len(rows) else f"; {len(rows) - len(measured)} refused"
    print(
        f"| {lab.milliseconds([row['p50_s'] for row in measured])} | {precision} | {budget} "
        f"| {middle('race_s'):.1f} | {middle('runs'):.0f} "
        f"| {middle('generations'):.0f} × {middle('rounds') / middle('generations'):.1f} "
        f"| {f'±{statistics.median(widths):.2%}' if widths else '–'} "
        f"| {lab.counts([row['verdict'] for row in measured], lab.VERDICTS)}{refused} |",
        flush=True,
    )


def predictions(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Print how far predictions were off, and whether enough of them were right."""
    off = [row["predicted_s"] / row["shown_s"] - 1 for row in rows if row["predicted_s"] is not None]
    right = sum(abs(one) <= RIGHT for one in off)
    text = share_text(right, len(off))
    if off:
        text += f"; from {min(off):+.0%} to {max(off):+.0%}, median {statistics.median(off):+.0%}"
    lab.row(
        "the time shown before the start is right within ±20 %",
        "from that line to the end of the command",
        text,
        f"≥ {LEAST_RIGHT:.0%}",
    )
    return bool(right >= LEAST_RIGHT * len(off))


def report(path: Path) -> bool:
    """Print a whole record, grouped by machine and options."""
    met = True
    for head, rows in merged(path):
        say_head(head, rows)
        met &= part_report(rows)
        print()
    return met


def main() -> int:
    parser = recorded(__doc__, "budgets")
    parser.add_argument("--times", type=int, default=2, metavar="N", help="comparisons per model and effort")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MS")
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=list(EFFORTS))
    parser.add_argument("--pair", choices=PAIRS, default="basic")
    parser.add_argument("--budget", type=float, metavar="S", help="per comparison; default: by effort")
    given = parser.parse_args()
    full = True
    if not given.report:
        choices = {"pair": given.pair, "budget": given.budget}
        journal = Journal(given.record, script="budgets", options=choices, machine=lab.this_machine())
        with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/budgets.py"):
            fill(journal, given, Path(folder))
        cells = [(model, precision) for model in given.models for precision in given.efforts]
        full = all(len(of(journal.rows, *cell)) >= given.times for cell in cells)
    if not report(given.record):
        return 1
    return 0 if full else EXIT_NOT_FULL


if __name__ == "__main__":
    sys.exit(main())
