"""Simulated machines with known true values, and the intervals that ORTune prints on them.

Comparisons, searches and passes run by the product's own rules on simulated clocks, with numbers for
processes. Every interval comes from the function that computes the printed one. Percentiles are true of all
runs, those of slow processes included; other values are those of a usual process. Seeds are fixed: a scene is
the same everywhere. `played` replays the processes of a recording instead.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import pytest

import core.run.launches
from benchmarks import grids
from benchmarks.launches import Deck, Exhausted, Known, Recording
from benchmarks.printed import Shown, shown
from benchmarks.search import GOAL_S, machine_of
from benchmarks.search import Recorded as OfRecord
from core.evidence import continuation
from core.evidence.evaluations import contrast_of, launch_spread, reported_speedup
from core.evidence.measurement import Trial
from core.evidence.profile_difference import EndToEnd, difference
from core.evidence.record import RawComparison, Settings
from core.evidence.speedup_interval import trimmed_estimate
from core.evidence.stopping import InterimResult
from core.evidence.stopping import contrast_values as interim_told
from core.evidence.targets import Measurements as Grounds
from core.evidence.targets import evaluate_target
from core.evidence.verdict import Verdict, ratio_is_known
from core.run import live
from core.run.launches.blocks import pace
from core.run.launches.budget import rounds_of_launch
from core.run.search.answer import effects, pareto_front
from core.run.search.plan import model_of, ranked_candidates
from core.run.search.strategies import BY_NAME
from core.run.sweep import Point, measured
from core.spec.effort import EFFORTS
from core.spec.space import Choice
from core.spec.targets import TargetSpec
from core.wire.profile_passes import passes_from_json
from tests import builders, raw_comparisons, simulated_clock
from tests.searching import MARGIN, Machine, Run, gains, small_space
from tests.simulated_clock import Model

QUICK = EFFORTS["quick"]
BUDGET_S, RUNS = 30.0, 60  # of a comparison: so long, or so many runs of a slow model
SLOW_SHARE = 1 / 9
RATIOS = (1.0, 1.05, 1.3)  # of the candidates, in turn
LAUNCHES, ROUNDS = 40_000, 5  # sample that gives the true values of a usual process
DRAWS = 400_000  # runs, sample that gives the true values of a scene's times

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


# --- true values of times ---------------------------------------------------------------------------------


@cache
def known(model: Model) -> Known:
    """True values of processes: percentiles of all their runs, mean and CPU time of a usual one.

    All processes make as many blocks, and a block of short runs takes as long as another. So a slow process
    has fewer runs in it.
    """
    rng, own = np.random.default_rng(0), pace(model.run_s * 1e9)
    slow_s = model.run_s * simulated_clock.SLOW
    made = [max(own.min_runs, math.ceil(own.block_ns / 1e9 / each_s)) for each_s in (model.run_s, slow_s)]
    share = model.slow_share * made[1] / (model.slow_share * made[1] + (1 - model.slow_share) * made[0])
    level = np.exp(model.between * rng.normal(size=DRAWS) + model.noise * rng.normal(size=DRAWS))
    factors = np.exp(model.jitter * rng.normal(size=DRAWS))
    factors *= 1 + (rng.random(DRAWS) < model.tail) * rng.exponential(0.5, DRAWS)
    slow = np.where(rng.random(DRAWS) < share, simulated_clock.SLOW, 1.0)
    launches = np.exp(model.between * rng.normal(size=LAUNCHES))
    launches *= np.exp(model.noise * rng.normal(size=(LAUNCHES, ROUNDS))).mean(axis=1)
    launches *= np.where(rng.random(LAUNCHES) < model.slow_share, simulated_clock.SLOW, 1.0)
    usual_s = model.run_s * trimmed_estimate(launches.tolist()).value
    mean_s = usual_s * float(factors.mean())
    cpu_s = (made[0] * mean_s + own.refill * usual_s) / (made[0] + own.refill)  # a run fills the caches
    return Known(runs_s=np.sort(model.run_s * level * factors * slow), mean_s=mean_s, cpu_s=cpu_s)


# --- comparisons ------------------------------------------------------------------------------------------


def comparison(
    model: Model,
    seed: int,
    ratios: Sequence[float] = RATIOS,
    truth: Callable[[Model], Known] = known,
    most: int = QUICK.looks[-1],
) -> Iterator[Shown]:
    """Intervals of a comparison of a candidate with the default: while it runs, at its end and after it.

    Args:
        model: of the default.
        seed: of the simulation.
        ratios: of the candidate, in turn.
        truth: true values of the times of a model.
        most: most launches.
    """
    ratio = ratios[seed % len(ratios)]
    effort = replace(QUICK, looks=tuple(look for look in QUICK.looks if look <= most) or (most,))
    candidate = replace(model, run_s=model.run_s / ratio)
    heard: list[dict[str, Any]] = []
    record = simulated_clock.compare(
        [candidate, model],
        max(BUDGET_S, RUNS * model.run_s),
        seed=seed,
        on_live=heard.append,
        effort=effort,
        splits=len(QUICK.looks),
    )
    yield shown("interim", ratio, *_known(one["contrasts"] for one in heard))
    yield from finished(record, ratio)
    results = [found.trial_result(index) for found in [raw_comparisons.evidence(record)] for index in (0, 1)]
    for result, own in zip(results, (candidate, model), strict=True):
        yield from times(result or {}, truth(own))
    yield from _other_gains(results, ratio)
    yield shown("longer", ratio, *_gone_on(record, [candidate, model], seed))


def finished(record: RawComparison, ratio: float) -> Iterator[Shown]:
    """Intervals of the ratio of a finished comparison."""
    for one in raw_comparisons.evidence(record, looks=len(QUICK.looks)).contrasts:
        yield shown("final", ratio, (one["ratio_low"], one["ratio_high"]))


def _known(updates: Any) -> dict[tuple[float, float], None]:
    """The intervals that a page or a terminal shows of these updates, each once."""
    known = ((one["ratio_low"], one["ratio_high"]) for contrasts in updates for one in contrasts[:1])
    return dict.fromkeys(one for one in known if ratio_is_known(*one))


def _gone_on(record: RawComparison, models: Sequence[Model], seed: int) -> Iterator[tuple[Any, Any]]:
    """The intervals after *Measure longer*, once and twice."""
    protocol: dict[str, Any] = {"precision": "quick", "looks": list(QUICK.looks), "target": QUICK.target}
    for number in (1, 2):
        generations = [{"generation": one.number} for one in record.generations]
        before = builders.comparison({}, protocol=protocol, result={"generations": generations})
        protocol = continuation.protocol(before, "quick", None)
        splits = continuation.splits(protocol)
        effort = replace(QUICK, looks=tuple(protocol["looks"]))
        record = simulated_clock.compare(
            models,
            float(protocol["budget_s"]),
            seed=seed + 1_000_000 * number,
            earlier=record,
            effort=effort,
            splits=splits,
            least=protocol.get("least", 0),
        )
        (found,) = raw_comparisons.evidence(record, looks=splits).contrasts
        yield found["ratio_low"], found["ratio_high"]


def times(result: Mapping[str, Any], truth: Known) -> Iterator[Shown]:
    """Intervals of times of a trial, a target and a point of a sweep."""
    latency = result["latency"]
    for p in (50, 90, 95, 99):
        name = f"p{p}_s"
        if latency[name] is not None:
            bounds = latency[f"{name}_low"], latency[f"{name}_high"]
            yield shown(f"p{p}", truth.percentile_s(p / 100), bounds)
    yield shown("mean", truth.mean_s, (latency["mean_s_low"], latency["mean_s_high"]))
    trial: Trial = builders.trial(result=result)
    point = measured(Point(values={}, spec=builders.spec()), trial, reused=False)
    yield shown("rows", 1 / truth.mean_s, point.throughput_interval())
    grounds = Grounds(
        batch_size=1, results={1: [result]}, size_bytes=None, summaries={}, has_dataset=False, arena=True
    )
    found = evaluate_target(TargetSpec(metric="cpu_s", at_most=1e9), grounds)
    yield shown("cpu", truth.cpu_s, (found.low, found.high))


def _other_gains(results: Sequence[Any], ratio: float) -> Iterator[Shown]:
    for kind, metric in (("gain mean", "latency_mean"), ("gain p95", "latency_p95")):
        found = contrast_of(metric, results[0], results[1], looks=len(QUICK.looks), margin=MARGIN)
        if found is not None:
            yield shown(kind, ratio, (found.ratio_low, found.ratio_high))


def live_estimate(
    model: Model,
    seed: int,
    ratios: Sequence[float] = RATIOS,
    most: int = live.MOST_LAUNCHES,
    rounds: int = live.ROUNDS,
) -> Iterator[Shown]:
    """Live estimates of a setting, launch after launch, at most `most`, each of so many `rounds`."""
    ratio, rng, clock = ratios[seed % len(ratios)], random.Random(seed), simulated_clock.Clock()
    settings = Settings(
        effort=live.LIVE_ESTIMATE, budget_s=5, margin=MARGIN, seed=0, timeout_s=60, baseline=0, anchor=0
    )
    found = InterimResult(settings)
    sides = {live.BASELINE: model, live.CANDIDATE: replace(model, run_s=model.run_s / ratio)}
    updates = []
    for launch in range(min(most, live.MOST_LAUNCHES)):
        workers = {key: simulated_clock.worker(own, clock, rng, launch) for key, own in sides.items()}
        for number, (key, own) in itertools.product(range(rounds), sides.items()):
            each = pace(own.run_s * 1e9)
            reply = workers[key].block(
                block_ns=each.block_ns, min_runs=each.min_runs, max_runs=each.max_runs, refill=each.refill
            )
            median_s = float(np.median(reply["latencies_ns"])) / 1e9
            found.add(key, launch, launch * live.ROUNDS + number, median_s)
        updates.append([interim_told(found.interim([0, 1], {0, 1}, before=launch + 1).get(1))])
    yield shown("live", ratio, *_known(updates))


# --- searches ---------------------------------------------------------------------------------------------


def search(model: Model, seed: int) -> Iterator[Shown]:
    """Intervals of configurations and settings in a search; of several of a kind one, drawn at random."""
    machine = Machine(
        space=SPACE,
        gain=gains(SPACE, seed),
        start_s=model.load_s * 0.5 + 2 * model.run_s,
        block_s=max(0.02, 10 * model.run_s if model.run_s < 0.1 else model.run_s),
        spread=model.between,
        noise=model.noise,
        slow_share=model.slow_share,
        slow_by=(math.log(simulated_clock.SLOW), math.log(simulated_clock.SLOW)),
    )
    yield from searched(machine, max(30.0, 150 * machine.start_s), seed)


def searched(machine: Machine, budget_s: float, seed: int) -> Iterator[Shown]:
    """Intervals of a search on a machine."""
    rng = random.Random(seed)
    run = Run(machine=machine, strategy=BY_NAME["race"], budget_s=budget_s, seed=seed).go()
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
    points = pareto_front(list(run.tried.values()), run.question, MARGIN, confirmed=said)  # type: ignore[arg-type]
    if points:
        point = rng.choice(points)
        (gain,) = [one for one in point["gains"] if one["metric"] == "latency_p50"]
        yield shown("front", _truth(run, at[point["trial"]]), (gain["ratio_low"], gain["ratio_high"]))
    yield from _effect(run, rng)


def _truth(run: Run, choice: Choice) -> float:
    return math.exp(run.machine.drawn_from(choice))


def _gain(run: Run, codes: Sequence[int]) -> float:
    """True ln(speed-up) of a combination of values."""
    return run.machine.drawn_from(tuple(map(int, codes)))


def _rows(run: Run, rng: random.Random) -> Iterator[Shown]:
    """The table, and the progress line, before the confirmation run."""
    before = {
        choice: replace(one, looks=tuple(look for look in one.looks if look.stage != "confirm"))
        for choice, one in run.tried.items()
    }
    before = {choice: one for choice, one in before.items() if one.looks and not one.failed}
    for kind in ("screen", "heat"):
        own = [choice for choice, one in before.items() if one.looks[-1].stage == kind]
        if own and (found := reported_speedup(before[choice := rng.choice(own)], run.objective, {})):
            yield shown(kind, _truth(run, choice), (found.low, found.high))
    leaders = ranked_candidates(replace(run.known, tried=before, confirmed={}))[:1]
    for choice, _ in leaders:
        if found := reported_speedup(before[choice], run.objective, {}, among=len(before)):
            yield shown("best", _truth(run, choice), (found.low, found.high))


def _effect(run: Run, rng: random.Random) -> Iterator[Shown]:
    seen = run.known
    model = model_of(seen)
    singles, _ = effects(seen, launch_spread(run.differences))
    if model is None or not singles:
        return
    one, space = rng.choice(singles), run.machine.space
    axis = [each.name for each in space.axes].index(one["setting"])
    codes = np.concatenate([seen.codes, model.tried])
    own = codes[codes[:, axis] == space.axes[axis].values.index(one["value"])]
    other = own.copy()
    other[:, axis] = 0
    truth = statistics.fmean(_gain(run, a) - _gain(run, b) for a, b in zip(own, other, strict=True))
    yield shown("effect", math.exp(truth), (one["ratio_low"], one["ratio_high"]))


# --- profiles ---------------------------------------------------------------------------------------------

OPERATORS: Mapping[str, tuple[float, float]] = {  # microseconds of both sides
    "Conv": (400.0, 330.0),
    "MatMul": (130.0, 130.0),
    "Softmax": (20.0, 26.0),
}


def operators(model: Model, seed: int) -> Iterator[Shown]:
    """Intervals of an operator on *Explain*; a session may be in a slow mode as a process may."""
    rng = random.Random(seed)

    def side(which: int) -> dict[str, Any]:
        sessions = [
            math.exp(rng.gauss(0, model.between) + rng.gauss(0, model.noise))
            * (simulated_clock.SLOW if rng.random() < model.slow_share else 1.0)
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
    end = _end_to_end(whole_s[0], whole_s[1], Verdict.FASTER)
    found = difference(passes_from_json(msgspec.json.encode(builders.passes(side(0), side(1)))), end)
    row = rng.choice([one for one in found.rows if one.label in OPERATORS])
    half, (before, after) = row.half_width_s, OPERATORS[row.label]
    bounds = (None, None) if half is None else (row.difference_s - half, row.difference_s + half)
    yield shown("operator", 1e-6 * (after - before), bounds)


PARTS: Mapping[Callable[[Model, int], Iterator[Shown]], float] = {  # share of the repetitions
    comparison: 1.0,
    live_estimate: 1.0,
    search: 0.3,
    operators: 10.0,  # they take no time
}


def simulated(scene: str, repetitions: int) -> Iterator[Shown]:
    """All intervals of a scene, measured so often."""
    model = SCENES[scene]
    for part, share in PARTS.items():
        for seed in range(math.ceil(share * repetitions)):
            yield from part(model, seed)


# --- recordings -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Played:
    """What was printed, and the mean uses of each recorded process."""

    found: list[Shown]
    used: float  # processes dealt over processes recorded


def played(one: Recording, repetitions: int) -> Iterator[Played]:
    """All intervals of a recording; its configurations are identical, so every true ratio is 1."""
    truth = one.known()
    compared = partial(comparison, ratios=(1.0,), truth=lambda _: truth)
    estimated = partial(live_estimate, ratios=(1.0,), rounds=live.LEAST_ROUNDS)
    for part, rounds, spare in ((compared, 1, 1), (estimated, live.LEAST_ROUNDS, 0)):  # spare: read memory
        found, dealt, missing = list[Shown](), 0, set[str]()
        for seed in range(repetitions):
            model = one.played(seed, rounds)
            try:
                with _rounds_of(model.deck):
                    for each in part(model, seed, most=model.deck.count - spare):
                        found.append(each)
            except Exhausted:
                missing.add("longer")  # a recording too short for some gives no fair sample of the others
            dealt += model.deck.dealt
        yield Played(found=[each for each in found if each.kind not in missing], used=dealt / one.launches)
    yield Played(found=list(memory(one.peaks)), used=1.0)
    found = [each for passes in one.passes for each in equal_sides(passes)]
    yield Played(found=found, used=TURNS)


@contextlib.contextmanager
def _rounds_of(deck: Deck) -> Iterator[None]:
    """A comparison plans no more rounds of a launch than the recording has."""

    def planned(*costs: Any, **how: Any) -> int:
        return min(deck.rounds, rounds_of_launch(*costs, **how))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core.run.launches, "rounds_of_launch", planned)
        patch.setattr(core.run.launches, "rounds_for_p50", lambda costs: 0)  # nor continues beyond its plan
        yield


def memory(peaks: Sequence[Mapping[str, int]]) -> Iterator[Shown]:
    """The peak of each process against the usual one."""
    if not peaks:
        return
    trimmed_estimate = statistics.median(one["peak_rss_bytes"] for one in peaks)
    for one in peaks:
        result = {"generations": 1, "batch_size": 1, **one}
        grounds = Grounds(
            batch_size=1, results={1: [result]}, size_bytes=None, summaries={}, has_dataset=False, arena=True
        )
        found = evaluate_target(TargetSpec(metric="peak_rss", at_most=1e12), grounds)
        yield shown("memory", trimmed_estimate, (found.low, found.high))


TURNS = 16  # ways to assign the passes of each turn to the sides


def equal_sides(passes: Mapping[str, Any]) -> Iterator[Shown]:
    """The difference of every operator of two equal sides; the sides of a turn are exchanged."""
    for turn in range(TURNS):
        found = difference(
            passes_from_json(msgspec.json.encode(_exchanged(passes, turn))), _equal_ends(passes)
        )
        for row in found.rows:
            if row.kind == "operator":
                half = row.half_width_s
                bounds = (None, None) if half is None else (row.difference_s - half, row.difference_s + half)
                yield shown("operator", 0.0, bounds)


def _node(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["path"], one["name"], one["op_type"], one["provider"]


def _exchanged(passes: Mapping[str, Any], turn: int) -> dict[str, Any]:
    """The passes with those turns exchanged whose bit is set."""
    one, other = passes["sides"]
    bits = [bool(turn >> number & 1) for number in range(len(one["run_s"]))]

    def mixed(own: Sequence[float], foreign: Sequence[float]) -> list[float]:
        return [b if bit else a for a, b, bit in zip(own, foreign, bits, strict=True)]

    def side(own: Mapping[str, Any], foreign: Mapping[str, Any]) -> dict[str, Any]:
        nodes = [
            {**a, "self_s": mixed(a["self_s"], b["self_s"])}
            for a, b in zip(*(sorted(each["nodes"], key=_node) for each in (own, foreign)), strict=True)
        ]
        times = {name: mixed(own[name], foreign[name]) for name in ("run_s", "plain_s")}
        return {**own, **times, "nodes": nodes}

    return {**passes, "sides": [side(one, other), side(other, one)]}


def _equal_ends(passes: Mapping[str, Any]) -> EndToEnd:
    each_s = statistics.median(passes["sides"][0]["plain_s"])
    return _end_to_end(each_s, each_s, Verdict.EQUIVALENT)


def _end_to_end(baseline_s: float, candidate_s: float, verdict: Verdict) -> EndToEnd:
    """Two compared sides whose times are known without error."""
    return EndToEnd(
        baseline_s=baseline_s,
        candidate_s=candidate_s,
        candidate_p50_s=candidate_s,
        low_s=None,
        high_s=None,
        verdict=verdict,
        words="",
        raced=True,
        per_row=False,
    )


@dataclass(kw_only=True)
class Counted(OfRecord):
    """The machine of a recorded grid, which counts the processes that it deals."""

    dealt: int = 0

    def life(self, rng: random.Random, choice: Choice) -> float:
        """Deal a process; as for `Machine`."""
        self.dealt += 1
        return super().life(rng, choice)

    def drawn_from(self, choice: Choice) -> float:
        """As for `Machine`; of a combination its distinct configuration."""
        return super().drawn_from(self.space.canonical(choice))


def played_grid(truth: grids.Truth, repetitions: int) -> Played:
    """Intervals of searches on a recorded grid."""
    found, dealt = list[Shown](), 0
    recorded = len(truth.open) * (1 + len(truth.space.choices))  # of the default there are two
    for seed in range(repetitions):
        machine = machine_of(truth, Counted)
        found += searched(machine, GOAL_S, seed)
        dealt += machine.dealt
    return Played(found=found, used=dealt / recorded)
