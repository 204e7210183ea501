"""What a race does with one worker or two: load it, run a block, freeze it, race it against its twin."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from core import wire
from core.interference import discard_reason
from core.race.record import Block, Entry, SelfTest, When
from core.race.workers import Worker, Workers

BLOCK_NS = 20_000_000
RUNS_PER_BLOCK = 10
LONG_RUN_S = 0.05  # from here on a block is one to three runs
LONG_BLOCK_S = 0.15
SETTLE_S = 0.12  # where a worker cannot be frozen: ORT's idle threads have stopped spinning by then
BLOCK_TIMEOUT_S = 30.0
TIMEOUT_FACTOR = 20.0  # times what the block should take
REPORT_S = 0.25  # between two reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a contestant's block is."""

    block_ns: int
    min_runs: int
    max_runs: int
    expected_s: float

    @property
    def timeout_s(self) -> float:
        """After this long the worker is taken for hung."""
        return max(BLOCK_TIMEOUT_S, TIMEOUT_FACTOR * self.expected_s)


def pace(median_ns: int) -> Pace:
    """20 ms or 10 runs, whichever is longer; of runs from 50 ms on, one to three."""
    median_s = max(median_ns, 1) / 1e9
    if median_s >= LONG_RUN_S:
        runs = min(3, max(1, math.ceil(LONG_BLOCK_S / median_s)))
        return Pace(block_ns=0, min_runs=runs, max_runs=runs, expected_s=(runs + 1) * median_s)
    expected_s = max(BLOCK_NS / 1e9, RUNS_PER_BLOCK * median_s)
    return Pace(block_ns=BLOCK_NS, min_runs=RUNS_PER_BLOCK, max_runs=1_000_000, expected_s=expected_s)


def exact_pace(median_ns: int, runs: int) -> Pace:
    """Exactly `runs` runs."""
    return Pace(block_ns=0, min_runs=runs, max_runs=runs, expected_s=(runs + 1) * median_ns / 1e9)


def split_runs(runs: int) -> list[int]:
    """Cut an exact number of runs into rounds: 8 to 64 of them where there are enough runs."""
    rounds = min(runs, max(8, min(64, runs // RUNS_PER_BLOCK)))
    return [(i + 1) * runs // rounds - i * runs // rounds for i in range(rounds)]


def start_loaded(workers: Workers, entry: Entry, timeout_s: float) -> tuple[Worker, wire.LoadReply]:
    """Start a worker and load `entry` in it; a worker that cannot load it is gone, with its error raised."""
    worker = workers.start(entry.label, fresh_process=entry.fresh_process)
    try:
        reply = worker.ask("load", entry.plan, timeout_s=timeout_s)
    except BaseException:
        worker.kill()
        raise
    return worker, cast(wire.LoadReply, reply)


def run_block(worker: Worker, pace: Pace) -> wire.BlockReply:
    """Have a worker run one block; errors as of `Worker.ask`."""
    arguments = {"block_ns": pace.block_ns, "min_runs": pace.min_runs, "max_runs": pace.max_runs}
    return cast(wire.BlockReply, worker.ask("block", arguments, timeout_s=pace.timeout_s))


def park(worker: Worker) -> bool:
    """Freeze a worker; where that fails, wait until its threads have gone to sleep by themselves."""
    if worker.freeze():
        return True
    time.sleep(SETTLE_S)
    return False


def alternate(
    pair: Sequence[Worker],
    pace: Pace,
    rounds: int,
    rng: random.Random,
    when: When,
    report: Callable[[int], None],
) -> SelfTest:
    """Race two workers of the same configuration for `rounds` rounds."""
    log_ratios: list[float] = []
    counters: list[wire.Counters] = []
    began, reported, frozen = time.monotonic(), 0.0, True
    for done in range(rounds):
        medians = [0.0, 0.0]
        for side in rng.sample((0, 1), 2):
            reply = run_block(pair[side], pace)
            frozen &= park(pair[side])
            medians[side] = statistics.median(reply["latencies_ns"])
            counters.append(reply["counters"])
        if min(medians) > 0 and not any(discard_reason(one) for one in counters[-2:]):
            log_ratios.append(math.log(medians[0] / medians[1]))
        if time.monotonic() - reported > REPORT_S:
            report(done + 1)
            reported = time.monotonic()
    return SelfTest(
        when=when,
        log_ratios=log_ratios,
        counters=counters,
        seconds_per_round=(time.monotonic() - began) / rounds,
        frozen=frozen,
    )


def void_reason(block: Block) -> str:
    """Why a block does not count: by its counters and the clock, never by its latency."""
    if not block.latencies_s or min(block.latencies_s) <= 0:
        return "the clock did not advance"
    return discard_reason(block.counters)
