"""Machines that do not exist, whose truth is known, and what ORTune would print on them.

Races, searches and passes run by the product's own rules on clocks of their own, with numbers for processes;
every interval is what the function returns that computes the printed one. The truth of a time is that of a
usual launch: where one launch in nine is in a slow mode, few launches cannot know of those that they have not
seen. Seeds are fixed: the same scene is the same everywhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.printed import Shown, shown
from core.evidence import continuation
from core.evidence.measurement import Trial
from core.evidence.profile_difference import EndToEnd, difference
from core.evidence.record import RaceRecord, Settings
from core.evidence.standing import Standing
from core.evidence.standing import told as interim_told
from core.evidence.targets import Evidence as Grounds
from core.evidence.targets import judge
from core.evidence.tried import contrast_of, launch_spread, told
from core.evidence.verdict import Verdict, ratio_is_known
from core.run import live
from core.run.race.blocks import pace
from core.run.search.answer import effects, front
from core.run.search.plan import model_of, standing
from core.run.search.strategies import strategy_named
from core.run.sweep import Point, measured
from core.spec.effort import EFFORTS
from core.spec.space import Choice
from core.spec.targets import TargetSpec
from core.wire.profile_passes import passes_from_dict
from tests import builders, clockwork, races
from tests.clockwork import Model
from tests.searching import MARGIN, Machine, Run, gains, small_space

QUICK = EFFORTS["quick"]
BUDGET_S = 30.0  # of a comparison
SLOW_SHARE = 1 / 9
RATIOS = (1.0, 1.05, 1.3)  # of the candidates, in turn
DRAWS = 400_000  # of runs, from which what is true of a scene's times is known

SLOW = "slow modes"
SCENES: Mapping[str, Model] = {
    "quiet, 40 µs": Model(run_s=40e-6, between=0.008, noise=0.01, jitter=0.03, tail=0.01),
    "heavy tails, 1 ms": Model(run_s=1e-3, between=0.004, noise=0.03, jitter=0.05, tail=0.08),
    "lasting weather, 1 ms": Model(
        run_s=1e-3, between=0.004, noise=0.04, lasting=0.8, jitter=0.03, tail=0.02
    ),
    "quiet, 1 s": Model(run_s=1.0, load_s=0.8, between=0.003, noise=0.01, jitter=0.005),
    f"{SLOW}, 40 µs": Model(
        run_s=40e-6, between=0.008, noise=0.02, jitter=0.03, tail=0.03, slow_share=SLOW_SHARE
    ),
    f"{SLOW}, 1 ms": Model(
        run_s=1e-3, between=0.004, noise=0.03, lasting=0.5, jitter=0.05, tail=0.05, slow_share=SLOW_SHARE
    ),
    f"{SLOW}, 1 s": Model(
        run_s=1.0, load_s=0.8, between=0.003, noise=0.02, jitter=0.01, slow_share=SLOW_SHARE
    ),
}
SPACE = small_space(
    ("graph_optimization_level", ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL", "ORT_ENABLE_BASIC")),
    ("intra_op_num_threads", (0, 1, 2, 4)),
    ("session.intra_op.allow_spinning", (True, False)),
    ("enable_cpu_mem_arena", (True, False)),
)


# --- what is true of times --------------------------------------------------------------------------------


@cache
def runs(model: Model) -> NDArray[np.float64]:
    """Runs of usual launches, in units of `run_s`, sorted."""
    rng = np.random.default_rng(0)
    level = np.exp(model.between * rng.normal(size=DRAWS) + model.noise * rng.normal(size=DRAWS))
    factors = np.exp(model.jitter * rng.normal(size=DRAWS))
    factors *= 1 + (rng.random(DRAWS) < model.tail) * rng.exponential(0.5, DRAWS)
    return np.sort(level * factors)


def true_percentile(model: Model, p: float) -> float:
    """Seconds of a usual launch."""
    return float(runs(replace(model, run_s=1.0))[math.ceil(p * DRAWS) - 1]) * model.run_s


def true_mean(model: Model) -> float:
    """Seconds of a usual launch."""
    return float(runs(replace(model, run_s=1.0)).mean()) * model.run_s


# --- comparisons ------------------------------------------------------------------------------------------


def comparison(model: Model, seed: int) -> Iterator[Shown]:
    """What a comparison of a candidate with the default prints, while it runs, at its end and after it."""
    ratio = RATIOS[seed % len(RATIOS)]
    candidate = replace(model, run_s=model.run_s / ratio)
    heard: list[dict[str, Any]] = []
    record = clockwork.race([candidate, model], BUDGET_S, seed=seed, on_live=heard.append)
    yield shown("interim", ratio, *_known(one["contrasts"] for one in heard))
    yield from finished(record, ratio)
    results = [found.trial_result(index) for found in [races.evidence(record)] for index in (0, 1)]
    for result, own in zip(results, (candidate, model), strict=True):
        yield from times(result or {}, own)
    yield from _other_gains(results, ratio)
    yield shown("longer", ratio, *_gone_on(record, [candidate, model], seed))


def finished(record: RaceRecord, ratio: float) -> Iterator[Shown]:
    """What a finished comparison prints of its ratio."""
    for one in races.evidence(record, looks=len(QUICK.looks)).contrasts:
        yield shown("final", ratio, (one["ratio_low"], one["ratio_high"]))


def _known(updates: Any) -> dict[tuple[float, float], None]:
    """The intervals that a page or a terminal shows of these updates, each once."""
    known = ((one["ratio_low"], one["ratio_high"]) for contrasts in updates for one in contrasts[:1])
    return dict.fromkeys(one for one in known if ratio_is_known(*one))


def _gone_on(record: RaceRecord, models: Sequence[Model], seed: int) -> Iterator[tuple[Any, Any]]:
    """The intervals after going on once, and once more."""
    protocol: dict[str, Any] = {"precision": "quick", "looks": list(QUICK.looks), "target": QUICK.target}
    for number in (1, 2):
        generations = [{"generation": one.number} for one in record.generations]
        before = builders.comparison({}, protocol=protocol, result={"generations": generations})
        protocol = continuation.protocol(before, "quick", None)
        splits = continuation.splits(protocol)
        effort = replace(QUICK, looks=tuple(protocol["looks"]))
        record = clockwork.race(
            models,
            float(protocol["budget_s"]),
            seed=seed + 1_000_000 * number,
            earlier=record,
            effort=effort,
            splits=splits,
            least=protocol.get("least", 0),
        )
        (found,) = races.evidence(record, looks=splits).contrasts
        yield found["ratio_low"], found["ratio_high"]


def times(result: Mapping[str, Any], model: Model) -> Iterator[Shown]:
    """What a trial, a target and a point of a sweep print of times."""
    latency = result["latency"]
    for p in (50, 90, 95, 99):
        name = f"p{p}_s"
        if latency[name] is not None:
            bounds = latency[f"{name}_low"], latency[f"{name}_high"]
            yield shown(f"p{p}", true_percentile(model, p / 100), bounds)
    mean_s = true_mean(model)
    yield shown("mean", mean_s, (latency["mean_s_low"], latency["mean_s_high"]))
    trial: Trial = builders.trial(result=result)
    point = measured(Point(values={}, spec=builders.spec()), trial, reused=False)
    yield shown("rows", 1 / mean_s, point.throughput_interval())
    grounds = Grounds(
        batch_size=1, races={1: [result]}, size_bytes=None, summaries={}, has_dataset=False, arena=True
    )
    found = judge(TargetSpec(metric="cpu_s", at_most=1e9), grounds)
    own = pace(model.run_s * 1e9)
    block = max(own.min_runs, own.block_ns / 1e9 / model.run_s)  # runs, and one that fills the caches
    cpu_s = (block * mean_s + own.refill * model.run_s) / (block + own.refill)
    yield shown("cpu", cpu_s, (found.low, found.high))


def _other_gains(results: Sequence[Any], ratio: float) -> Iterator[Shown]:
    for kind, metric in (("gain mean", "latency_mean"), ("gain p95", "latency_p95")):
        found = contrast_of(metric, results[0], results[1], looks=len(QUICK.looks), margin=MARGIN)
        if found is not None:
            yield shown(kind, ratio, (found.ratio_low, found.ratio_high))


def glimpse(model: Model, seed: int) -> Iterator[Shown]:
    """What Live shows of a setting, launch after launch."""
    ratio, rng, clock = RATIOS[seed % len(RATIOS)], random.Random(seed), clockwork.Clock()
    settings = Settings(
        effort=live.GLIMPSE, budget_s=5, margin=MARGIN, seed=0, timeout_s=60, baseline=0, anchor=0
    )
    found = Standing(settings)
    sides = {live.BASELINE: model, live.CANDIDATE: replace(model, run_s=model.run_s / ratio)}
    updates = []
    for launch in range(live.MOST_LAUNCHES):
        for key, own in sides.items():
            worker, each = clockwork.worker(own, clock, rng, launch), pace(own.run_s * 1e9)
            for number in range(live.ROUNDS):
                reply = worker.block(
                    block_ns=each.block_ns, min_runs=each.min_runs, max_runs=each.max_runs, refill=each.refill
                )
                median_s = float(np.median(reply["latencies_ns"])) / 1e9
                found.add(key, launch, launch * live.ROUNDS + number, median_s)
        updates.append([interim_told(found.interim([0, 1], {0, 1}, before=launch + 1).get(1))])
    yield shown("live", ratio, *_known(updates))


# --- searches ---------------------------------------------------------------------------------------------


def search(model: Model, seed: int) -> Iterator[Shown]:
    """What a search prints of configurations and settings; of several of a kind one, drawn by lot."""
    rng = random.Random(seed)
    machine = Machine(
        space=SPACE,
        gain=gains(SPACE, seed),
        start_s=model.load_s * 0.5 + 2 * model.run_s,
        block_s=max(0.02, 10 * model.run_s if model.run_s < 0.1 else model.run_s),
        spread=model.between,
        noise=model.noise,
        slow_share=model.slow_share,
        slow_by=(math.log(clockwork.SLOW), math.log(clockwork.SLOW)),
    )
    budget_s = max(30.0, 150 * machine.start_s)
    run = Run(machine=machine, strategy=strategy_named("race"), budget_s=budget_s, seed=seed).go()
    said = [
        {"trial": one.looks[-1].trial, "gain": {"metric": "latency_p50", **run.confirmed[choice]["gain"]}}
        for choice, one in run.tried.items()
        if choice in run.confirmed
    ]
    yield from _rows(run, rng)
    if run.winner is not None:
        gain = run.confirmed[run.winner]["gain"]
        yield shown("answer", _truth(run, run.winner), (gain["ratio_low"], gain["ratio_high"]))
    at: Any = {one.looks[-1].trial: choice for choice, one in run.tried.items() if one.looks}
    points = front(list(run.tried.values()), run.question, MARGIN, confirmed=said)  # type: ignore[arg-type]
    if points:
        point = rng.choice(points)
        (gain,) = [one for one in point["gains"] if one["metric"] == "latency_p50"]
        yield shown("front", _truth(run, at[point["trial"]]), (gain["ratio_low"], gain["ratio_high"]))
    yield from _effect(run, rng)


def _truth(run: Run, choice: Choice) -> float:
    return math.exp(run.machine.truth(choice))


def _rows(run: Run, rng: random.Random) -> Iterator[Shown]:
    """The table, and the progress line, before anything was confirmed."""
    before = {
        choice: replace(one, looks=tuple(look for look in one.looks if look.stage != "confirm"))
        for choice, one in run.tried.items()
    }
    before = {choice: one for choice, one in before.items() if one.looks and not one.failed}
    for kind in ("screen", "heat"):
        own = [choice for choice, one in before.items() if one.looks[-1].stage == kind]
        if own and (found := told(before[choice := rng.choice(own)], run.objective, {})):
            yield shown(kind, _truth(run, choice), (found.low, found.high))
    leaders = standing(replace(run.known(), tried=before, confirmed=()))[:1]
    for choice, _ in leaders:
        if found := told(before[choice], run.objective, {}, among=len(before)):
            yield shown("best", _truth(run, choice), (found.low, found.high))


def _effect(run: Run, rng: random.Random) -> Iterator[Shown]:
    known = run.known()
    model = model_of(known)
    singles, _ = effects(known, launch_spread(run.differences))
    if model is None or not singles:
        return
    one = rng.choice(singles)
    axis = [each.name for each in SPACE.axes].index(one["setting"])
    codes = np.concatenate([known.codes, model.tried])
    own = codes[codes[:, axis] == SPACE.axes[axis].values.index(one["value"])]
    other = own.copy()
    other[:, axis] = 0
    truth = float((run.machine.gain(own) - run.machine.gain(other)).mean())
    yield shown("effect", math.exp(truth), (one["ratio_low"], one["ratio_high"]))


# --- profiles ---------------------------------------------------------------------------------------------

OPERATORS: Mapping[str, tuple[float, float]] = {  # microseconds of both sides
    "Conv": (400.0, 330.0),
    "MatMul": (130.0, 130.0),
    "Softmax": (20.0, 26.0),
}


def operators(model: Model, seed: int) -> Iterator[Shown]:
    """What *Why* prints of an operator; a session may be in a slow mode as a process may."""
    rng = random.Random(seed)

    def side(which: int) -> dict[str, Any]:
        sessions = [
            math.exp(rng.gauss(0, model.between) + rng.gauss(0, model.noise))
            * (clockwork.SLOW if rng.random() < model.slow_share else 1.0)
            for _ in range(builders.PASSES)
        ]
        nodes = [
            builders.node(
                name, name, us[which], shape=[one * math.exp(rng.gauss(0, 0.01)) for one in sessions]
            )
            for name, us in OPERATORS.items()
        ]
        return builders.side(nodes, outside_us=10.0)

    whole_s = [1e-6 * sum(us[which] for us in OPERATORS.values()) for which in (0, 1)]
    end = EndToEnd(
        baseline_s=whole_s[0],
        candidate_s=whole_s[1],
        candidate_p50_s=whole_s[1],
        low_s=None,
        high_s=None,
        verdict=Verdict.FASTER,
        words="",
        raced=True,
        per_row=False,
    )
    found = difference(passes_from_dict(builders.passes(side(0), side(1))), end)
    row = rng.choice([one for one in found.rows if one.label in OPERATORS])
    half, (before, after) = row.half_width_s, OPERATORS[row.label]
    bounds = (None, None) if half is None else (row.difference_s - half, row.difference_s + half)
    yield shown("operator", 1e-6 * (after - before), bounds)


PARTS: Mapping[Callable[[Model, int], Iterator[Shown]], float] = {  # share of the repetitions
    comparison: 1.0,
    glimpse: 1.0,
    search: 0.3,
    operators: 10.0,  # they take no time
}


def simulated(scene: str, repetitions: int) -> Iterator[Shown]:
    """All that is printed in a scene, measured so often."""
    model = SCENES[scene]
    for part, share in PARTS.items():
        for seed in range(math.ceil(share * repetitions)):
            yield from part(model, seed)
