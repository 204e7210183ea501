"""One worker's block: load, run, stop, and decide whether the block counts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from core import wire
from core.evidence.background_load import discard_reason
from core.evidence.record import Block, Entry
from core.process.contestant_workers import Worker, Workers
from core.wire.runtime import OWN

BLOCK_NS = 20_000_000
RUNS_PER_BLOCK = 10
LONG_BLOCK_S = 0.1  # a block of ten runs that would take longer has fewer: short blocks narrow the interval
LONG_RUN_S = 0.1  # from here on filling the caches is half a percent of a run, so no run is spent on it
SETTLE_S = 0.12  # where a worker cannot be stopped: ORT's idle threads have ended spinning by then
SWITCH_S = 0.002  # from one configuration to the next: SIGCONT, request, reply, SIGSTOP
BLOCK_TIMEOUT_S = 30.0
TIMEOUT_FACTOR = 20.0  # times the expected duration of the block
TIMEOUT_MARGIN_S = 600.0  # a longer block may take twice as long as expected, and so much more
REPORT_S = 0.25  # between two reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Length of a configuration's block."""

    block_ns: int
    min_runs: int
    max_runs: int
    refill: bool  # one extra run before the others fills the caches
    expected_s: float  # of the whole block, including the run for the caches

    @property
    def timeout_s(self) -> float:
        """After this time the worker counts as hung."""
        late_s = min(TIMEOUT_FACTOR * self.expected_s, TIMEOUT_MARGIN_S + 2 * self.expected_s)
        return max(BLOCK_TIMEOUT_S, late_s)


def pace(median_ns: float) -> Pace:
    """20 ms or 10 runs, whichever is longer, but no more than 100 ms or a single run."""
    median_s = max(median_ns, 1) / 1e9
    runs = max(1, min(RUNS_PER_BLOCK, math.ceil(LONG_BLOCK_S / median_s)))
    if median_s >= LONG_RUN_S:
        return exact_pace(median_ns, runs)
    expected_s = max(BLOCK_NS / 1e9, runs * median_s) + median_s
    return Pace(block_ns=BLOCK_NS, min_runs=runs, max_runs=1_000_000, refill=True, expected_s=expected_s)


def exact_pace(median_ns: float, runs: int) -> Pace:
    """Exactly `runs` runs."""
    median_s = max(median_ns, 1) / 1e9
    refill = median_s < LONG_RUN_S
    return Pace(
        block_ns=0, min_runs=runs, max_runs=runs, refill=refill, expected_s=(runs + refill) * median_s
    )


def split_runs(runs: int) -> list[int]:
    """Cut an exact number of runs into rounds: 8 to 64 of them where there are enough runs."""
    rounds = min(runs, max(8, min(64, runs // RUNS_PER_BLOCK)))
    return [(i + 1) * runs // rounds - i * runs // rounds for i in range(rounds)]


def start_loaded(
    workers: Workers,
    entry: Entry,
    timeout_s: float,
    *,
    layout_seed: int | None = None,
    again: bool = False,
    writes: Sequence[str] = (),
) -> tuple[Worker, wire.LoadReply]:
    """Start a worker and load `entry` in it; where loading fails, end the worker and raise its error.

    Args:
        workers: of the comparison.
        entry: what to load.
        timeout_s: for loading.
        layout_seed: of the random memory layout; None: no randomization.
        again: an earlier process has already reported what is needed once.
        writes: existing files that it writes beside those of its own folder.
    """
    runtime = entry.plan.get("runtime", OWN)
    worker = workers.start(entry.label, fresh_process=entry.fresh_process, runtime=runtime, writes=writes)
    plan = {**entry.plan, "again": again}
    if layout_seed is not None:
        plan["layout_seed"] = layout_seed
    try:
        reply = worker.ask(wire.LOAD, plan, timeout_s=timeout_s)
    except BaseException:
        worker.kill()
        raise
    return worker, reply


def run_block(worker: Worker, pace: Pace) -> wire.BlockReply:
    """Run one block in a worker; raises as `Worker.ask`.

    A pause of ORTune counts as a suspension of the machine: the worker may have been stopped with it.
    """
    arguments = {
        "block_ns": pace.block_ns,
        "min_runs": pace.min_runs,
        "max_runs": pace.max_runs,
        "refill": pace.refill,
    }
    reply = worker.ask(wire.BLOCK, arguments, timeout_s=pace.timeout_s)
    reply["counters"]["suspended_s"] += worker.paused_s
    return reply


def park(worker: Worker) -> bool:
    """Stop a worker with SIGSTOP; where that fails, wait until its threads have stopped spinning."""
    if worker.freeze():
        return True
    time.sleep(SETTLE_S)
    return False


def void_reason(block: Block) -> str:
    """Why a block is invalid: judged by its counters and the clock, never by its latency."""
    if not block.latencies_s or min(block.latencies_s) <= 0:
        return "the clock did not advance"
    if block.stream_completed and not sum(block.stream_completed):
        return "no run was completed while all streams ran"
    return discard_reason(block.counters)
