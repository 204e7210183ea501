"""Searches scored against recorded grids: `python benchmarks/search.py replay|live [--models …]`.

`replay` plays strategies on the records of `grids.py`. The launches open to it give the behaviour of
processes, the recorded starts and blocks their cost, and the held-out launches the score. The strategies
compared: random screening with the same elimination rounds and confirmation, and the sequential
grid (each configuration once, by itself: 10 warm-up runs and 20 timed ones, absolute medians, the smallest
wins), which is how other tuners choose. With `--goal` only the search and the sequential grid run, at a tenth
of the exhaustive grid's time and at 20 s if that is longer. All models together give the mean regret, how
often FOUND is returned where something is 5 % better or more, and how often for a choice that is no faster.

`live` runs the product's own search on the same grid and scores the answer on the record. `random` is the
same with random screening; `optuna` and `olive` come from `rivals.py`. All get the same wall time, the start
of the process included. `--olive PYTHON` names the interpreter that has `olive-ai`.

Regret is ln(true best) - ln(true value of the choice) in percent. The best is chosen by the open launches,
and both are scored by the held-out ones, so it may be below zero. The choice of an undecided search is the
candidate that it names; of a search that found no difference it is the default. Coverage is how often the
printed interval of a speed-up contains the value of the whole record. Pairs of FOUND answers with disjoint
intervals are counted. `--record` keeps raw results.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks.grids import DIMS, GRID, Truth, load, model_path, recorded, start_of  # noqa: E402
from benchmarks.intervals import bootstrap  # noqa: E402
from benchmarks.journal import tell  # noqa: E402
from core.process.job_worker import run_job  # noqa: E402
from core.run import search as searching  # noqa: E402
from core.run.launches.blocks import SWITCH_S, pace  # noqa: E402
from core.run.scheduler import Scheduler  # noqa: E402
from core.run.search.plan import Strategy  # noqa: E402
from core.run.search.strategies import BY_NAME  # noqa: E402
from core.spec.question import LEAST_BUDGET_S, question_from_dict  # noqa: E402
from core.spec.space import Choice  # noqa: E402
from core.store import Store  # noqa: E402
from tests.searching import Machine, Run  # noqa: E402

STRATEGIES = ("race", "random")
RIVALS = ("optuna", "olive")
RIVAL_TIMEOUT = 3  # times its time
TIMES = (0.1, 0.2, 0.5, 1.0)  # of the exhaustive grid's time, but no less than the shortest search
GOAL_S = 20.0  # or a tenth of the grid's time, whichever is longer: the target case of a search
WORTH = 0.05  # a speed-up that a search should find
WARM_UPS, TIMED = 10, 20  # of the sequential grid: Olive's protocol
FIXED_S = 0.4  # of a comparison besides its processes, as live ones show: 0.7 s with a fork server of its own
SERVER_S = 0.3  # of the fork server, once for all comparisons of a search
TARGET_REGRET = 0.02


@dataclass(kw_only=True)
class Recorded(Machine):
    """A machine that replays a record."""

    truth_of: Truth
    at: dict[Choice, int] = field(default_factory=dict)
    lives: Sequence[Sequence[float]] = ()
    shown: Sequence[float] = ()  # ln(speed-up) by the open launches
    overall: Sequence[float] = ()  # ln(speed-up) by all launches: a live search has seen none of them
    disturbances: Sequence[float] = ()  # recorded deviations of blocks

    def __post_init__(self) -> None:
        """Score by the held-out launches, draw from the others."""
        self.at = {choice: i for i, choice in enumerate(self.space.choices)}
        self.lives = self.truth_of.lives
        held = self.truth_of.centers(self.truth_of.held_back)
        self.truths = {choice: held[i] for choice, i in self.at.items()}
        self.best = held[self.truth_of.best]
        self.shown = self.truth_of.centers(self.truth_of.open)
        self.overall = self.truth_of.centers(range(len(self.lives)))

    def life(self, rng: random.Random, choice: Choice) -> float:
        """ln(latency) of a recorded process, less the mean of its launch."""
        return -self.lives[rng.choice(self.truth_of.open)][self.at[choice]]

    def drawn_from(self, choice: Choice) -> float:
        """ln(speed-up) by the launches that a replay draws from."""
        return self.shown[self.at[choice]]

    def disturbance(self, rng: random.Random) -> float:
        """The recorded deviation of some block."""
        return rng.choice(self.disturbances)


M = TypeVar("M", bound=Recorded)


def machine_of(truth: Truth, kind: type[M] = Recorded) -> M:  # type: ignore[assignment]
    """Return the machine of a record, with the recorded costs and noise."""
    residuals = [
        one - statistics.median(rounds)
        for generation in truth.open
        for rounds in truth.ratios[generation]
        for one in rounds
    ]
    return kind(
        space=truth.space,
        start_s=truth.start_s,
        block_s=pace(truth.run_s * 1e9).expected_s + SWITCH_S,
        fixed_s=FIXED_S,
        server_s=SERVER_S,
        disturbances=residuals,
        truth_of=truth,
    )


def sequential(truth: Truth, seed: int, budget_s: float) -> tuple[Choice, float]:
    """Return the sequential grid's choice among the configurations that fit into the time, and its time."""
    rng = random.Random(seed)
    order = list(range(len(truth.space.choices)))
    rng.shuffle(order)
    each_s = truth.start_s + (WARM_UPS + TIMED) * truth.run_s
    order = order[: max(1, math.floor(budget_s / each_s))]
    seen = {i: truth.absolute[rng.choice(truth.open)][i] for i in order}
    best = min(seen, key=lambda i: seen[i])
    return truth.space.choices[best], len(order) * each_s


def grid_s(truth: Truth) -> float:
    """Seconds of the exhaustive grid: twelve launches of every configuration, at the recorded cost."""
    return 12 * truth.wall_s / len(truth.ratios)


def replay(truth: Truth, seeds: int, *, everything: bool = True) -> list[dict[str, Any]]:
    """Return one row for each strategy and time; without `everything` the strategy and times of the goal."""
    machine: Recorded = machine_of(truth)
    rows = []
    whole_s = grid_s(truth)
    goal_s = max(GOAL_S, TIMES[0] * whole_s)
    worth = max(machine.shown) >= math.log1p(WORTH)
    budgets_s = [max(float(LEAST_BUDGET_S), one * whole_s) for one in (TIMES if everything else TIMES[:1])]
    for budget_s in sorted({*budgets_s, goal_s}):
        about = {"share": budget_s / whole_s, "worth": worth}
        about |= {"tenth": budget_s == budgets_s[0], "goal": budget_s == goal_s}
        for name in STRATEGIES if everything else STRATEGIES[:1]:
            strategy = BY_NAME[name]
            found = [_one(machine, strategy, budget_s, seed) for seed in range(seeds)]
            regrets, spent = [run.regret for run in found], [run.spent_s for run in found]
            covers = [run.covers for run in found if run.covers is not None]
            sure = [machine.drawn_from(run.chosen) for run in found if run.said == "FOUND"]
            said = {
                "found": len(sure) / len(found),
                "false_found": sum(one <= 0 for one in sure),
                "covers": sum(covers),
                "intervals": len(covers),
            }
            rows.append(_row(truth, name, regrets, spent) | about | said)
        choices = [sequential(truth, seed, budget_s) for seed in range(seeds)]
        regrets = [machine.best - machine.truths[choice] for choice, _ in choices]
        rows.append(_row(truth, "sequential grid", regrets, [cost_s for _, cost_s in choices]) | about)
    return rows


def _said(row: Mapping[str, Any]) -> str:
    if "found" not in row:
        return "– | – | –"
    return f"{row['found']:.0%} | {row['false_found']} | {row['covers']} of {row['intervals']}"


def _together(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All models as one line for each strategy: at a tenth of the time, and at the target case."""
    lines = []
    for time_, name in itertools.product(("tenth", "goal"), dict.fromkeys(row["strategy"] for row in rows)):
        own = [row for row in rows if row[time_] and row["strategy"] == name]
        regret = statistics.fmean(row["regret"] for row in own)
        worst = max(row["regret"] for row in own)
        line = f"{time_}, {name}: mean regret {regret:.2%}, worst {worst:.2%}"
        if "found" in own[0]:
            shares = [row["found"] for row in own if row["worth"]]
            found = f"{statistics.fmean(shares):.0%}" if shares else "–"
            total = {
                key: sum(row[key] for row in own) for key in ("false_found", "seeds", "covers", "intervals")
            }
            line += (
                f"; FOUND where {WORTH:.0%} better {found}; false FOUND {total['false_found']} of "
                f"{total['seeds']}; interval holds {total['covers']} of {total['intervals']}"
            )
        lines.append(line)
    return lines


def _one(machine: Recorded, strategy: Strategy, budget_s: float, seed: int) -> Run:
    return Run(machine=machine, strategy=strategy, budget_s=budget_s, seed=seed).go()


def _row(truth: Truth, name: str, regrets: Sequence[float], spent: Sequence[float]) -> dict[str, Any]:
    low, high = bootstrap(list(regrets), statistics.fmean)
    return {
        "kind": "replay",
        "model": truth.model,
        "strategy": name,
        "seeds": len(regrets),
        "regret": statistics.fmean(regrets),
        "regret_low": low,
        "regret_high": high,
        "within_2": statistics.fmean(one <= TARGET_REGRET for one in regrets),
        "seconds": statistics.fmean(spent),
    }


# --- live ---------------------------------------------------------------------------------------------------


def live(
    truth: Truth, *, repeats: int, budget_s: int, strategies: Sequence[str], olive: str, record: Path | None
) -> list[dict[str, Any]]:
    """Run real searches, the strategies in a new random order each time, and score them on the record."""
    rows = []
    machine: Recorded = machine_of(truth)
    with tempfile.TemporaryDirectory() as folder:
        path = model_path(truth.model, Path(folder))
        store = Store(Path(folder) / "ortune.db")
        service = Scheduler(store, owner="benchmarks")
        try:
            for number in range(repeats):
                for name in random.Random(number).sample(list(strategies), len(strategies)):
                    stolen_s, began = psutil.cpu_times().steal, time.monotonic()
                    if name in RIVALS:
                        python = olive if name == "olive" else sys.executable
                        row = _rival(python, path, name, number, budget_s, machine)
                    else:
                        row = _search(service, path, name, number, budget_s, machine)
                    stolen_s = psutil.cpu_times().steal - stolen_s
                    share = stolen_s / (time.monotonic() - began) / (psutil.cpu_count() or 1)
                    rows.append({**row, "steal": share})
                    tell(f"{truth.model} {number} {name}: {rows[-1]}")
                    _keep(record, [rows[-1]])
        finally:
            service.close()
    return rows


def _rival(python: str, path: Path, name: str, seed: int, budget_s: int, machine: Recorded) -> dict[str, Any]:
    began, model = time.monotonic(), machine.truth_of.model
    asked = {
        "path": str(path),
        "dims": dict(DIMS.get(model, {})),
        "grid": {name: list(values) for name, values in GRID.items()},
        "seed": seed,
        "time_s": budget_s,
    }
    script = Path(__file__).parent / "rivals.py"
    done = subprocess.run(
        [python, script, name, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=RIVAL_TIMEOUT * budget_s,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    values = said["changes"]
    combination = tuple(
        axis.values.index(values[axis.name]) if axis.name in values else 0 for axis in machine.space.axes
    )
    choice = machine.space.canonical(combination)
    return {
        "kind": "live",
        "model": model,
        "budget_s": budget_s,
        "strategy": name,
        "outcome": "CHOSEN",
        "regret": machine.best - machine.truths[choice],
        "tried": said["tried"],
        "wall_s": time.monotonic() - began,
    }


def _search(
    service: Scheduler, path: Path, strategy: str, seed: int, budget_s: int, machine: Recorded
) -> dict[str, Any]:
    began, model = time.monotonic(), machine.truth_of.model
    question = question_from_dict(
        {
            "budget_s": budget_s,
            "vary": {name: list(values) for name, values in GRID.items()},
            "strategy": strategy,
            "seed": seed,
            "warm_start": False,
        }
    )
    spec = start_of(model, path)
    prepared = searching.prepare(spec, question, service.store, run_job, service.environment())
    study = service.submit(searching.job(prepared))
    service.join()
    wall_s = time.monotonic() - began
    answer: Mapping[str, Any] = service.store.study(study).answer or {}
    winner = answer.get("winner")
    choice = machine.space.find(winner["changes"]) if winner else machine.space.choices[0]
    choice = choice or machine.space.choices[0]
    truth = machine.overall[machine.at[choice]]
    gain = winner["gain"] if winner else {}
    low, high = gain.get("ratio_low"), gain.get("ratio_high")
    return {
        "kind": "live",
        "model": model,
        "budget_s": budget_s,
        "strategy": strategy,
        "outcome": answer.get("outcome"),
        "chosen": machine.space.label(choice),
        "regret": machine.best - machine.truths[choice],
        "gain": gain.get("ratio"),
        "low": low,
        "high": high,
        "truth": math.exp(truth),
        "covers": None if low is None or high is None else low <= math.exp(truth) <= high,
        "tried": answer.get("tried"),
        "wall_s": wall_s,
        "own_share": (answer.get("own_s") or 0.0) / wall_s,
        "busy": bool(answer.get("busy")),
    }


def _live_lines(model: str, rows: Sequence[Mapping[str, Any]], budget_s: int) -> list[str]:
    lines = []
    for name in dict.fromkeys(row["strategy"] for row in rows):
        own = [row for row in rows if row["strategy"] == name]
        regrets = [row["regret"] for row in own]
        low, high = bootstrap(regrets, statistics.fmean)
        covers = [row["covers"] for row in own if row.get("covers") is not None]
        cover = f"{sum(covers)} of {len(covers)}" if covers else "–"
        outcomes = ", ".join(f"{n} {what}" for what, n in Counter(row["outcome"] for row in own).items())
        late = max(row["wall_s"] for row in own) / budget_s
        sure = [row for row in own if row["outcome"] == "FOUND" and row.get("low") is not None]
        apart = sum(
            one["high"] < other["low"] or other["high"] < one["low"]
            for one, other in itertools.combinations(sure, 2)
        )
        pairs = math.comb(len(sure), 2)
        share = max((row.get("own_share", 0.0) for row in own), default=0.0)
        lines.append(
            f"| {model} | {name} | {len(own)} | {statistics.fmean(regrets):.1%} [{low:.1%}, {high:.1%}] | "
            f"{cover} | {outcomes} | {apart} of {pairs} | "
            f"{statistics.median(row['wall_s'] for row in own):.1f} s, at most {late:.0%} | {share:.1%} |"
        )
    return lines


def _keep(record: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    if record is None:
        return
    machine = lab.this_machine().text
    with record.open("a") as file:
        file.writelines(json.dumps({**row, "machine": machine}) + "\n" for row in rows)


# --- tables -------------------------------------------------------------------------------------------------


def main() -> None:
    """Replay or run what is requested, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("replay", "live"))
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="default: all with a record")
    parser.add_argument("--goal", action="store_true", help="replay only the target case of a search")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--repeats", type=int, default=30, metavar="N")
    parser.add_argument("--budget", type=int, default=30, metavar="S")
    parser.add_argument(
        "--strategies", nargs="+", default=["race", "random", *RIVALS], choices=[*STRATEGIES, *RIVALS]
    )
    parser.add_argument("--olive", default=sys.executable, metavar="PYTHON", help="Python with olive-ai")
    parser.add_argument("--record", type=Path, metavar="FILE.jsonl")
    args = parser.parse_args()
    replayed: list[dict[str, Any]] = []
    for name in args.models or recorded():
        truth = load(name)
        if args.what == "replay":
            replayed += _replayed(truth, args.seeds, everything=not args.goal)
            continue
        found = live(
            truth,
            repeats=args.repeats,
            budget_s=args.budget,
            strategies=args.strategies,
            olive=args.olive,
            record=args.record,
        )
        print("\n".join(_live_lines(name, found, args.budget)), flush=True)
    _keep(args.record, replayed)
    if args.goal:
        print("\n".join(_together(replayed)))


def _replayed(truth: Truth, seeds: int, *, everything: bool) -> list[dict[str, Any]]:
    rows = replay(truth, seeds, everything=everything)
    print(f"{truth.model}: exhaustive grid {grid_s(truth):.0f} s, {truth.machine}")
    for row in rows:
        regret = f"{row['regret']:.2%} [{row['regret_low']:.2%}, {row['regret_high']:.2%}]"
        print(
            f"| {row['model']} | {row['strategy']} | {row['share']:.0%} | {row['seconds']:.1f} | {regret} | "
            f"{row['within_2']:.0%} | {_said(row)} |",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
