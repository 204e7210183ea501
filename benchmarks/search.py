"""Searches against what is true: `python benchmarks/search.py replay|live [--models …]`.

`replay` plays strategies on the records of `grids.py`: what a process of a configuration does is drawn from
the generations that are open to it, what it costs from what starts and blocks cost; the held-back generations
say what the choice is worth. Rivals: random looks with the same race and confirmation, Optuna's TPE, and the
sequential grid (each configuration once, by itself: 10 runs of warm-up and 20 timed ones, absolute medians,
the smallest wins), which is how other tuners choose.

`live` runs the product's own search on the same grid and scores the answer on the record.

Regret is ln(true best) - ln(true of the choice) in percent; cover is how often the printed interval of a gain
holds what the record says. Raw results with --record.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks.grids import GRID, Truth, load, model_path, recorded, start_of  # noqa: E402
from benchmarks.intervals import bootstrap  # noqa: E402
from benchmarks.journal import tell  # noqa: E402
from core.process.runner import run_job  # noqa: E402
from core.run import search as searching  # noqa: E402
from core.run.race.blocks import SWITCH_S, pace  # noqa: E402
from core.run.scheduler import Scheduler  # noqa: E402
from core.run.search.plan import Strategy  # noqa: E402
from core.run.search.strategies import strategy_named  # noqa: E402
from core.spec.question import question_from_dict  # noqa: E402
from core.spec.space import Choice  # noqa: E402
from core.store import Store  # noqa: E402
from tests.searching import Machine, Run  # noqa: E402

STRATEGIES = ("race", "random", "optuna-tpe")
TIMES = (0.05, 0.1, 0.2, 0.5, 1.0)  # of the exhaustive grid's time
WARM_UPS, TIMED = 10, 20  # of the sequential grid: Olive's protocol
TARGET_REGRET = 0.02


@dataclass(kw_only=True)
class Recorded(Machine):
    """A machine that does what a record says."""

    truth_of: Truth
    at: dict[Choice, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Score by the held-back generations, draw from the others."""
        self.at = {choice: i for i, choice in enumerate(self.space.choices)}
        held = self.truth_of.held_back
        self.truths = {choice: self.truth_of.center(i, held) for choice, i in self.at.items()}
        self.best = max(self.truths.values())

    def life(self, rng: random.Random, choice: Choice) -> float:
        """ln(latency) of a process that there was."""
        generation = rng.choice(self.truth_of.open)
        return -statistics.median(self.truth_of.ratios[generation][self.at[choice]])


def machine_of(truth: Truth) -> Recorded:
    """Return the machine of a record: costs and noise as they were seen."""
    residuals = [
        one - statistics.median(rounds)
        for generation in truth.open
        for rounds in truth.ratios[generation]
        for one in rounds
    ]
    return Recorded(
        space=truth.space,
        start_s=truth.start_s,
        block_s=pace(truth.run_s * 1e9).expected_s + SWITCH_S,
        noise=statistics.pstdev(residuals),
        truth_of=truth,
    )


def sequential(truth: Truth, seed: int, share: float) -> tuple[Choice, float]:
    """Return what the sequential grid chooses of a share of all configurations, and its seconds."""
    rng = random.Random(seed)
    order = list(range(len(truth.space.choices)))
    rng.shuffle(order)
    order = order[: max(1, round(share * len(order)))]
    seen = {i: truth.absolute[rng.choice(truth.open)][i] for i in order}
    best = min(seen, key=lambda i: seen[i])
    cost_s = len(order) * (truth.start_s + (WARM_UPS + TIMED) * truth.run_s)
    return truth.space.choices[best], cost_s


def grid_s(truth: Truth) -> float:
    """Seconds of the exhaustive grid: every configuration in four generations of five rounds."""
    block_s = pace(truth.run_s * 1e9).expected_s + SWITCH_S
    return 4 * (len(truth.space.choices) + 1) * (truth.start_s + 5 * block_s)


def replay(truth: Truth, seeds: int) -> list[dict[str, Any]]:
    """Return one row for each strategy and time."""
    machine, rows = machine_of(truth), []
    whole_s = grid_s(truth)
    for share in TIMES:
        budget_s = max(5.0, share * whole_s)
        for name in STRATEGIES:
            strategy = strategy_named(name)
            found = [_one(machine, strategy, budget_s, seed) for seed in range(seeds)]
            rows.append(
                _row(truth, name, share, [run.regret for run in found], [run.spent_s for run in found])
            )
        choices = [sequential(truth, seed, min(1.0, budget_s / whole_s * 4)) for seed in range(seeds)]
        regrets = [machine.best - machine.truths[choice] for choice, _ in choices]
        rows.append(_row(truth, "sequential grid", share, regrets, [cost_s for _, cost_s in choices]))
    return rows


def _one(machine: Recorded, strategy: Strategy, budget_s: float, seed: int) -> Run:
    return Run(machine=machine, strategy=strategy, budget_s=budget_s, seed=seed).go()


def _row(
    truth: Truth, name: str, share: float, regrets: Sequence[float], spent: Sequence[float]
) -> dict[str, Any]:
    low, high = bootstrap(list(regrets), statistics.fmean)
    return {
        "kind": "replay",
        "model": truth.model,
        "strategy": name,
        "share": share,
        "seeds": len(regrets),
        "regret": statistics.fmean(regrets),
        "regret_low": low,
        "regret_high": high,
        "within_2": statistics.fmean(one <= TARGET_REGRET for one in regrets),
        "seconds": statistics.fmean(spent),
    }


# --- live ---------------------------------------------------------------------------------------------------


def live(truth: Truth, *, repeats: int, budget_s: int, strategies: Sequence[str]) -> list[dict[str, Any]]:
    """Search for real, the strategies in turns, and score on the record."""
    rows = []
    machine = machine_of(truth)
    with tempfile.TemporaryDirectory() as folder:
        path = model_path(truth.model, Path(folder))
        store = Store(Path(folder) / "ortune.db")
        service = Scheduler(store, owner="benchmarks")
        try:
            for number in range(repeats):
                for name in strategies:
                    rows.append(_search(service, path, name, number, budget_s, machine))
                    tell(f"{truth.model} {number} {name}: {rows[-1]}")
        finally:
            service.close()
    return rows


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
    winner = answer.get("winner") if answer.get("outcome") == "FOUND" else None
    choice = machine.space.find(winner["changes"]) if winner else machine.space.choices[0]
    truth = machine.truths[choice or machine.space.choices[0]]
    gain = winner["gain"] if winner else {}
    low, high = gain.get("ratio_low"), gain.get("ratio_high")
    return {
        "kind": "live",
        "strategy": strategy,
        "outcome": answer.get("outcome"),
        "regret": machine.best - truth,
        "gain": gain.get("ratio"),
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
        covers = [row["covers"] for row in own if row["covers"] is not None]
        cover = f"{sum(covers)} of {len(covers)}" if covers else "–"
        late = max(row["wall_s"] for row in own) / budget_s
        regret = f"{statistics.fmean(regrets):.2%} [{low:.2%}, {high:.2%}]"
        lines.append(
            f"| {model} | {name} | {len(own)} | {regret} | {cover} | "
            f"{sum(row['outcome'] == 'FOUND' for row in own)} | "
            f"{statistics.median(row['wall_s'] for row in own):.1f}, at most {late:.0%} of the budget | "
            f"{max(row['own_share'] for row in own):.1%} |"
        )
    return lines


# --- tables -------------------------------------------------------------------------------------------------


def main() -> None:
    """Play or run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("replay", "live"))
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="default: all with a record")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--repeats", type=int, default=30, metavar="N")
    parser.add_argument("--budget", type=int, default=30, metavar="S")
    parser.add_argument("--strategies", nargs="+", default=["race", "random"], choices=[*STRATEGIES, "grid"])
    parser.add_argument("--record", type=Path, metavar="FILE.jsonl")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in args.models or recorded():
        truth = load(name)
        if args.what == "replay":
            rows += _replayed(truth, args.seeds)
        else:
            found = live(truth, repeats=args.repeats, budget_s=args.budget, strategies=args.strategies)
            rows += [{**row, "model": name, "budget_s": args.budget} for row in found]
            print("\n".join(_live_lines(name, found, args.budget)), flush=True)
    if args.record is not None:
        machine = lab.this_machine().text
        with args.record.open("a") as file:
            file.writelines(json.dumps({**row, "machine": machine}) + "\n" for row in rows)


def _replayed(truth: Truth, seeds: int) -> list[dict[str, Any]]:
    rows = replay(truth, seeds)
    print(f"{truth.model}: exhaustive grid {grid_s(truth):.0f} s, {truth.machine}")
    for row in rows:
        regret = f"{row['regret']:.2%} [{row['regret_low']:.2%}, {row['regret_high']:.2%}]"
        print(
            f"| {row['model']} | {row['strategy']} | {row['share']:.0%} | {row['seconds']:.1f} | {regret} | "
            f"{row['within_2']:.0%} |",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
