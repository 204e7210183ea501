"""Costs measured after the rounds: CPU time, memory, outputs, energy.

CPU time and outputs come from the live workers. Memory and the first runs of new shapes come from fresh
workers, so that a peak belongs to the measured run. The expected outputs come from references, which run
after all other workers have ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from core import wire
from core.evidence.record import Entry, ProcessResult, RawComparison, Reference
from core.process.contestant_workers import Worker, Workers
from core.process.job_worker import Progress
from core.run.launches import energy
from core.run.launches.blocks import LONG_RUN_S, TIMEOUT_FACTOR, Pace, park, start_loaded
from core.wire.errors import Cancelled, TunerError
from core.wire.output_check import not_compared_words

IDLE_S = 0.1
CPU_WINDOW_S = 0.25  # 60 of the kernel's ticks
FOOTPRINT_RUNS = 3
SLOW_LOAD_S = 30.0  # a model that loads longer is not loaded again to try other shapes
SLOW_RUN_S = LONG_RUN_S  # such a comparison has few runs, and its own processes show the memory of a run
MOST_RUNS = 1_000_000
# limit for the first run of another shape: no budget includes it, and some sizes never return
NEW_SHAPES_S, NEW_SHAPE_FACTOR = 2.0, 20
REPEATS_WITHOUT_ARENA = 3  # malloc's peak varies by tens of MB from run to run; the largest counts


def after_s(entry: Entry, ran: ProcessResult, run_s: float) -> float:
    """Return about how many seconds the remaining passes of one configuration take.

    Args:
        entry: the configuration.
        ran: its reply to loading.
        run_s: its typical run, seconds.
    """
    assert ran.load is not None
    load_s = ran.load["session_creation_s"] + ran.load["first_run_ns"] / 1e9
    cost_s = IDLE_S + max(CPU_WINDOW_S, run_s) + run_s if ran.cost is None else 0.0
    outputs_s = 0.0 if entry.reference is None else 2 * run_s + load_s
    if run_s >= SLOW_RUN_S:
        return cost_s + outputs_s
    return cost_s + outputs_s + load_s + FOOTPRINT_RUNS * run_s + 2 * len(entry.shapes) * run_s


def read_cost(worker: Worker, pace: Pace) -> wire.CostReply:
    """Measure CPU time per run and while idle; raises as `Worker.ask`."""
    asked = {"seconds": IDLE_S, "window_s": CPU_WINDOW_S}
    reply = worker.ask(wire.COST, asked, timeout_s=pace.timeout_s)
    park(worker)
    return reply


def run_peak(worker: Worker, ran: ProcessResult, pace: Pace) -> None:
    """Read the peak memory of a slow model's process, which has only run the model; others: `footprint`."""
    if pace.refill:
        return
    ran.footprint = worker.ask(wire.FOOTPRINT, {"runs": 0}, timeout_s=pace.timeout_s)
    park(worker)


def keep_outputs(worker: Worker, ran: ProcessResult, path: Path, timeout_s: float) -> bool:
    """Have a configuration write the outputs of one run to `path`; on failure add a note and return False.

    Raises:
        Cancelled: the comparison was cancelled.
    """
    try:
        worker.ask(wire.SAVE_OUTPUTS, {"path": str(path)}, timeout_s=timeout_s)
        park(worker)
    except Cancelled:
        raise
    except TunerError as error:
        _not_compared(ran, error)
        return False
    return True


def compare_outputs(
    workers: Workers,
    entries: Sequence[Entry],
    kept: Mapping[int, Path],
    record: RawComparison,
    timeout_s: float,
    report: Callable[[Progress], None],
) -> None:
    """Compare kept outputs with those of their references; each reference runs once.

    Args:
        workers: of the comparison; no other worker should be alive, because a reference needs memory too.
        entries: all configurations.
        kept: files of `keep_outputs`, by index of the configuration; they are deleted.
        record: receives the errors, or why there are none.
        timeout_s: for loading a reference, and for each of its runs.
        report: called for each reference.

    Raises:
        Cancelled: the comparison was cancelled.
    """
    groups: dict[str, list[int]] = {}
    for index in kept:
        reference = entries[index].reference
        assert reference is not None, "outputs are stored for comparisons only"
        groups.setdefault(json.dumps(reference.plan, sort_keys=True), []).append(index)
    for done, group in enumerate(groups.values()):
        reference = entries[group[0]].reference
        assert reference is not None
        report(Progress(stage="outputs", done=done, total=len(groups), text=reference.model))
        _compare_with(workers, reference, {index: kept[index] for index in group}, record, timeout_s)


def _compare_with(
    workers: Workers, reference: Reference, kept: Mapping[int, Path], record: RawComparison, timeout_s: float
) -> None:
    entry = Entry(label=f"the reference of {reference.model}", plan=reference.plan)
    try:
        worker, _ = start_loaded(workers, entry, timeout_s)
    except Cancelled:
        raise
    except TunerError as error:
        for index in kept:
            _not_compared(record.ran[index], error)
        return
    try:
        _compare(worker, kept, record, timeout_s)
    finally:
        worker.kill()


def _compare(worker: Worker, kept: Mapping[int, Path], record: RawComparison, timeout_s: float) -> None:
    lost: TunerError | None = None  # why the reference's worker ended
    for index, path in kept.items():
        ran = record.ran[index]
        try:
            if lost is not None:
                raise lost
            ran.output_error = worker.ask(wire.COMPARE_OUTPUTS, {"path": str(path)}, timeout_s=timeout_s)
        except Cancelled:
            raise
        except TunerError as error:
            _not_compared(ran, error)
            lost = None if worker.alive else error
        finally:
            path.unlink(missing_ok=True)


def _not_compared(ran: ProcessResult, error: TunerError) -> None:
    ran.not_compared = not_compared_words(error.message)
    ran.notes.append(ran.not_compared)


def footprint(workers: Workers, entry: Entry, ran: ProcessResult, pace: Pace, timeout_s: float) -> None:
    """Measure peak memory and the first runs of other shapes into `ran`; a failure adds a note.

    Raises:
        Cancelled: the comparison was cancelled.
    """
    assert ran.load is not None
    if ran.footprint is not None:  # `run_peak` has read it
        return
    load_s = ran.load["session_creation_s"] + ran.load["first_run_ns"] / 1e9  # compilers work in the first
    if load_s > SLOW_LOAD_S:
        ran.load_peak_rss_bytes = ran.load["load_peak_rss_bytes"]
        ran.notes.append(
            "Peak memory covers loading and the first run only, because this model is too slow to load again."
        )
        return
    arena_off = entry.plan["session"]["attributes"].get("enable_cpu_mem_arena") is False
    try:
        for _ in range(REPEATS_WITHOUT_ARENA if arena_off else 1):
            _one_footprint(workers, entry, ran, pace, timeout_s)
    except Cancelled:
        raise
    except TunerError as error:
        if ran.footprint is not None:
            ran.notes.append(f"The first runs of other batch sizes are unknown: {error.message}")
            return
        ran.load_peak_rss_bytes = ran.load["load_peak_rss_bytes"]
        ran.notes.append(f"Peak memory covers loading and the first run only: {error.message}")


def _one_footprint(workers: Workers, entry: Entry, ran: ProcessResult, pace: Pace, timeout_s: float) -> None:
    worker, load = start_loaded(workers, entry, timeout_s)
    try:
        found = worker.ask(wire.FOOTPRINT, {"runs": FOOTPRINT_RUNS}, timeout_s=pace.timeout_s)
        if ran.footprint is not None:
            found["run_peak_rss_bytes"] = max(
                found["run_peak_rss_bytes"], ran.footprint["run_peak_rss_bytes"]
            )
        ran.footprint = found
        ran.load_peak_rss_bytes = max(ran.load_peak_rss_bytes or 0, load["load_peak_rss_bytes"])
        if entry.shapes and not ran.shapes:
            first_s = len(entry.shapes) * load["first_run_ns"] / 1e9
            most_s = min(timeout_s, NEW_SHAPES_S + NEW_SHAPE_FACTOR * first_s)
            reply = worker.ask(wire.NEW_SHAPES, {"feeds": list(entry.shapes)}, timeout_s=most_s)
            ran.shapes = reply["shapes"]
    finally:
        worker.kill()


def read_energy(live: Mapping[int, Worker], paces: Mapping[int, Pace], record: RawComparison) -> None:
    """Measure the energy per run of each configuration in windows of seconds, while all others are stopped.

    Args:
        live: by index of the configuration.
        paces: likewise.
        record: receives the joules per run, and in `energy_note` what they cover or why there are none.

    Raises:
        Cancelled: the comparison was cancelled.
    """
    loads = [ran.load for index, ran in enumerate(record.ran) if index in live and ran.load is not None]
    gpu = any(set(wire.CUDA_PROVIDERS) & set(load["effective_providers"]) for load in loads)
    meter, record.energy_note = energy.meter(gpu=gpu)
    if meter is None:
        return
    record.energy_note = meter.note
    idle_w = energy.idle_watts(meter)
    for index, worker in live.items():

        def run(seconds: float, worker: Worker = worker, pace: Pace = paces[index]) -> int:
            arguments = {"block_ns": int(seconds * 1e9), "min_runs": 1, "max_runs": MOST_RUNS}
            reply = worker.ask(wire.BLOCK, arguments, timeout_s=TIMEOUT_FACTOR * seconds + pace.timeout_s)
            park(worker)
            return len(reply["latencies_ns"]) + len(reply.get("stream_refills_ns", [0]))

        try:
            joules, why = energy.joules_per_run(meter, idle_w, run)
        except Cancelled:
            raise
        except TunerError as error:
            joules, why = None, f"Energy is unknown: {error.message}"
        record.ran[index].energy_j_per_run = joules
        record.ran[index].notes += [why] if why else []
