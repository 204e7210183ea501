"""Coverage of the intervals that answer questions to a fleet, on invented measurements of known truth.

Every measurement is invented: hosts, configurations and machines with known speeds, launches with quiet or
heavy-tailed noise. The intervals come from the functions that the page and the commands use. For each scene
the script prints how often an interval contains the truth, and how often a decision is wrong.

    python -m benchmarks.fleet_answers --runs 2000
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from core.evidence.fleet.costs import costs
from core.evidence.fleet.intervals import FleetInterval, relative_error
from core.evidence.fleet.kinds import Measured, deviation_between
from core.evidence.fleet.matrix import Cell, Configuration, HostRow, Matrix
from core.evidence.fleet.pairs import PairRatio, by_key
from core.evidence.fleet.portability import portability
from core.evidence.speedup_interval import contrast, trimmed_estimate
from core.evidence.verdict import Verdict

Noise = Callable[[random.Random], float]
MARGIN = 0.02
LEAST = 0.92  # share that an interval of 95 % must cover; a mean of 10 processes covers 93 to 95 %


def quiet(draw: random.Random) -> float:
    """Return the noise of one launch on an idle machine: normal, 1 %."""
    return draw.gauss(0, 0.01)


def heavy(draw: random.Random) -> float:
    """Return noise with a heavy tail: one launch of ten is up to 30 % slower."""
    slow = draw.random() < 0.1
    return draw.gauss(0, 0.01) + (draw.uniform(0, 0.3) if slow else 0.0)


NOISES: dict[str, Noise] = {"quiet": quiet, "heavy-tailed": heavy}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report."""

    scene: str
    what: str
    n: int
    held: float  # share of the intervals that contain the truth, or of the decisions that are right
    told: float  # share of the runs in which there was an interval or a decision


# --- configurations on hosts --------------------------------------------------------------------------------


def invented_matrix(
    draw: random.Random,
    truth: list[dict[str, float]],
    noise: Noise,
    *,
    launches: int = 8,
    paired: bool = True,
) -> Matrix:
    """Return a comparison on every host, with invented launches.

    Args:
        draw: source of chance.
        truth: for each host, the log of the true speed-up of each configuration over the default.
        noise: of one launch of one configuration.
        launches: of each configuration.
        paired: whether the raw rounds are known, else only ratios to the default.
    """
    names = list(truth[0])
    rows = []
    for number, own in enumerate(truth):
        default = [noise(draw) for _ in range(launches)]
        cells = {"default": _cell(FleetInterval(value=1.0, low=1.0, high=1.0), default)}
        latencies = {"default": default}
        for name in names:
            latency = [noise(draw) - own[name] for _ in range(launches)]
            ratios = [[a - b] for a, b in zip(default, latency, strict=True)]
            one = contrast(ratios, looks=len(names), margin=MARGIN)
            found = FleetInterval(value=one.ratio, low=one.ratio_low, high=one.ratio_high, df=one.df)
            cells[name] = _cell(found, latency)
            latencies[name] = latency
        row = _row(f"h{number}", cells)
        rows.append(replace(row, pairs=_pairs(latencies)) if paired else row)
    return _matrix(rows, ["default", *names])


def _pairs(latencies: dict[str, list[float]]) -> dict[str, dict[str, PairRatio]]:
    """Return the ratios of all pairs, as `pairs_of` does from raw rounds."""
    found = []
    for own, other in combinations(latencies, 2):
        ratios = [[b - a] for a, b in zip(latencies[own], latencies[other], strict=True)]
        one = contrast(ratios)
        found.append({**one.to_dict(), "candidate": own, "baseline": other, "analyses": 1.0})
    return by_key(found, {name: name for name in latencies})


def _cell(speedup: FleetInterval, latency: list[float]) -> Cell:
    mean = trimmed_estimate([math.exp(one) for one in latency])
    df = len(latency) - 2 * (len(latency) // 5) - 1
    rate = FleetInterval(
        value=1 / mean.value,
        low=1 / mean.high if mean.high else None,
        high=1 / mean.low if mean.low else None,
        df=df,
    )
    return Cell(
        trial="",
        speedup=speedup,
        verdict=Verdict.UNDECIDED,
        throughput=rate,
        latency_s=FleetInterval(value=mean.value, low=mean.low, high=mean.high, df=df),
        unusable="",
    )


def _row(host: str, cells: dict[str, Cell], *, price: float | None = None) -> HostRow:
    return HostRow(
        host=host,
        kind=host,
        price_per_hour=price,
        state="COMPLETE",
        attempt=1,
        why="",
        text="",
        reference="default",
        best=(),
        rejected="",
        busy="",
        margin=MARGIN,
        cells=cells,
    )


def _matrix(rows: list[HostRow], names: list[str]) -> Matrix:
    return Matrix(
        question=1,
        command="compare",
        phase="portability",
        model="invented",
        model_sha256="",
        metric="latency_p50",
        configurations=tuple(Configuration(key=one, label=one, spec={}) for one in names),
        rows=tuple(rows),
    )


def true_regrets(truth: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the true regret of every configuration on every host, the default included."""
    speeds = [{"default": 0.0, **own} for own in truth]
    return [{key: math.exp(max(own.values()) - one) - 1 for key, one in own.items()} for own in speeds]


def portable(
    scene: str,
    truth: list[dict[str, float]],
    noise: Noise,
    runs: int,
    seed: int,
    *,
    paired: bool = True,
) -> Iterator[Row]:
    """Return the coverage of regrets, of the choice's worst regret, and the share of right choices."""
    draw = random.Random(seed)
    known = true_regrets(truth)
    worst = {key: max(own[key] for own in known) for key in known[0]}
    together = chosen = told = decided = right = 0
    for _ in range(runs):
        found = portability(invented_matrix(draw, truth, noise, paired=paired))
        together += all(
            _holds(found.regrets[f"h{number}"][key], own)
            for number, host in enumerate(known)
            for key, own in host.items()
        )
        choice = found.choice
        assert choice is not None
        told += choice.regret.high is not None
        chosen += _holds(choice.regret, worst[choice.configuration])
        if found.outcome in ("BEST", "EQUIVALENT"):
            decided += 1
            least = min(one for key, one in worst.items() if key != choice.configuration)
            allowed = (1 + least) * (1 + MARGIN if found.outcome == "EQUIVALENT" else 1) - 1
            right += worst[choice.configuration] <= allowed + 1e-12
    yield Row(scene=scene, what="all regrets together", n=runs, held=together / runs, told=1.0)
    yield Row(scene=scene, what="worst regret of the choice", n=runs, held=chosen / runs, told=told / runs)
    wrong = (decided - right) / runs
    yield Row(scene=scene, what="no wrong choice", n=runs, held=1 - wrong, told=decided / runs)


def _holds(one: FleetInterval, truth: float) -> bool:
    low, high = one.low or 0.0, math.inf if one.high is None else one.high
    return low - 1e-12 <= truth <= high + 1e-12


SPEEDS: dict[str, list[dict[str, float]]] = {
    "3 hosts, each its own best": [
        {"a": 0.20, "b": 0.05, "c": 0.10},
        {"a": 0.00, "b": 0.15, "c": 0.12},
        {"a": -0.05, "b": 0.10, "c": 0.11},
    ],
    "4 hosts, nearly equal": [{"a": 0.02, "b": 0.02, "c": 0.021} for _ in range(4)],
    "8 hosts, all equal": [{"a": 0.0, "b": 0.0, "c": 0.0} for _ in range(8)],
}


# --- cost ---------------------------------------------------------------------------------------------------


def cheapest(scene: str, prices: list[float], noise: Noise, runs: int, seed: int) -> Iterator[Row]:
    """Return the share of runs without a wrong cheapest host, and the coverage of all costs together.

    Every host is equally fast, so its true cost is its price times the typical latency.
    """
    draw = random.Random(seed)
    typical = math.fsum(_typical(noise, draw) for _ in range(400)) / 400
    truth = [price / 3600 * 1e6 * typical for price in prices]
    single = decided = wrong = 0
    for _ in range(runs):
        rows = []
        for number, price in enumerate(prices):
            cells = {"default": _cell(FleetInterval(value=1.0), [noise(draw) for _ in range(10)])}
            rows.append(_row(f"h{number}", cells, price=price))
        found = costs(_matrix(rows, ["default"]))
        single += sum(_holds(one.per_million, truth[int(one.host[1:])]) for one in found.hosts)
        if found.outcome in ("CHEAPEST", "EQUIVALENT") and found.cheapest is not None:
            decided += 1
            own = truth[int(found.cheapest.host[1:])]
            allowed = min(truth) * (1 + MARGIN if found.outcome == "EQUIVALENT" else 1)
            wrong += own > allowed * (1 + 1e-9)
    yield Row(scene=scene, what="cost of one host", n=runs, held=single / runs / len(prices), told=1.0)
    yield Row(scene=scene, what="no wrong cheapest host", n=runs, held=1 - wrong / runs, told=decided / runs)


def _typical(noise: Noise, draw: random.Random) -> float:
    return trimmed_estimate([math.exp(noise(draw)) for _ in range(10)]).value


PRICES = {
    "3 hosts, 1 % apart": [1.0, 1.01, 1.02],
    "5 hosts, equal": [1.0] * 5,
    "3 hosts, 20 % apart": [1.0, 1.2, 1.4],
}


# --- machines of one kind -----------------------------------------------------------------------------------


def normal_machines(draw: random.Random) -> float:
    """Return the standardized offset of a machine: normal."""
    return draw.gauss(0, 1)


def uneven_machines(draw: random.Random) -> float:
    """Return the standardized offset of a machine whose kind has a heavier tail: Student's t, df 5."""
    chi = math.fsum(draw.gauss(0, 1) ** 2 for _ in range(5))
    return draw.gauss(0, 1) / math.sqrt(chi / 5) / math.sqrt(5 / 3)


MACHINES: dict[str, Noise] = {"normal": normal_machines, "heavy-tailed": uneven_machines}


def spread(
    scene: str, machines: int, deviation: float, offset: Noise, runs: int, seed: int, *, noise: Noise = quiet
) -> Iterator[Row]:
    """Return the coverage of the standard deviation between machines of one kind.

    Args:
        scene: name of the line.
        machines: number of hosts.
        deviation: true standard deviation of the log latency between them.
        offset: of one machine, standardized.
        runs: number of repetitions.
        seed: of chance.
        noise: of one launch.
    """
    draw = random.Random(seed)
    held = told = 0
    for _ in range(runs):
        found = []
        for _ in range(machines):
            at = deviation * offset(draw)
            mean = trimmed_estimate([math.exp(at + noise(draw)) for _ in range(10)])
            bounds = FleetInterval(value=mean.value, low=mean.low, high=mean.high, df=5)
            found.append(Measured(value=math.log(mean.value), error=relative_error(bounds) or 0.0, df=5))
        one = deviation_between(found)
        held += _holds(one, deviation)
        told += one.high is not None
    yield Row(scene=scene, what="spread between machines", n=runs, held=held / runs, told=told / runs)


def report(runs: int) -> Iterator[Row]:
    """Return every line of the report."""
    for noise_name, noise in NOISES.items():
        for name, truth in SPEEDS.items():
            for paired, what in ((True, "raw rounds"), (False, "ratios to the default")):
                scene = f"{name}, {noise_name}, {what}"
                yield from portable(scene, truth, noise, runs, seed=1, paired=paired)
        for name, prices in PRICES.items():
            yield from cheapest(f"{name}, {noise_name}", prices, noise, runs, seed=2)
    for kind, offset in MACHINES.items():
        for machines in (2, 3, 5, 10):
            for deviation in (0.0, 0.003, 0.02):
                scene = f"{machines} machines, {kind}, true {deviation:.1%}"
                yield from spread(scene, machines, deviation, offset, runs, seed=3)


def main() -> int:
    """Print the report; return 1 if an interval covers less than `LEAST`."""
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_answers", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="repetitions of every scene")
    runs = parser.parse_args().runs
    print("| scene | interval or decision | n | held | given |\n| --- | --- | --- | --- | --- |")
    least = 1.0
    for row in report(runs):
        print(f"| {row.scene} | {row.what} | {row.n:,} | {row.held:.1%} | {row.told:.0%} |", flush=True)
        least = min(least, row.held)
    return int(least < LEAST)


if __name__ == "__main__":
    sys.exit(main())
