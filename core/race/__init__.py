"""A race: contestants that run short blocks in interleaved rounds, until the answer is known.

Every live contestant runs one block a round, in an order drawn anew each round; all others are frozen.
What is compared is what happened within a round, so a machine that slows down slows both sides. Before and
after, two processes of the same configuration race against each other: what they differ by is noise. Costs
that would disturb the timing (CPU, memory, outputs, energy) are found in passes of their own.

This module knows workers and clocks, but no store and no queue. It judges only when to stop; verdicts are
computed from its record by `comparison`. Protocol: blocks of 20 ms or 10 runs, whichever is longer, in random
order (interleaving in short blocks narrows an interval more than anything else), looks with split alpha.
"""

from __future__ import annotations

import itertools
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from core import wire
from core.errors import Cancelled, TunerError
from core.limits import available_memory
from core.race.blocks import (
    REPORT_S,
    Pace,
    alternate,
    exact_pace,
    pace,
    park,
    run_block,
    split_runs,
    start_loaded,
    void_reason,
)
from core.race.passes import compare_outputs, footprint, keep_outputs, read_cost, read_energy
from core.race.record import (
    Block,
    Discarded,
    Entry,
    Outcome,
    RaceRecord,
    Ran,
    SelfTest,
    Settings,
    When,
)
from core.race.standing import Standing
from core.race.workers import Worker, Workers
from core.runner import Progress

SELF_TEST_ROUNDS = 12
MEMORY_RESERVE = 256 << 20
MEMORY_MARGIN = 1.25
MAX_DISCARDED = 20  # a machine that disturbs so many rounds will not stop doing so
DISCARD_PAUSE_S = 0.05

Live = Callable[[dict[str, Any]], None]


def race(
    entries: Sequence[Entry],
    settings: Settings,
    *,
    cancel: threading.Event,
    on_progress: Callable[[Progress], None],
    on_live: Live,
) -> RaceRecord:
    """Race `entries` against each other.

    A contestant that fails is out, with its error in the record; the others go on. When the race is cancelled
    during the rounds, the record holds the rounds that were made.

    Args:
        entries: the contestants; one alone races against a second process of itself.
        settings: when to stop.
        cancel: set it from any thread to stop.
        on_progress: told each step.
        on_live: told, a few times a second, {"rounds", "predicted_rounds", "elapsed_s", "contrasts"}, where a
            contrast has indices of entries as "candidate" and "baseline".

    Raises:
        Cancelled: before there was a whole round.
        WorkerError: no worker could be started at all.
    """
    with Workers(cancel) as workers, tempfile.TemporaryDirectory(prefix="ortune-") as folder:
        one = _Race(list(entries), settings, workers, on_progress, on_live, Path(folder))
        return one.run()


def self_test(
    entry: Entry,
    *,
    seed: int = 0,
    timeout_s: float = 120.0,
    rounds: int = 4 * SELF_TEST_ROUNDS,
    cancel: threading.Event,
    on_progress: Callable[[Progress], None],
) -> SelfTest:
    """Race a configuration against itself, in two processes.

    Raises:
        Cancelled: it was cancelled.
        TunerError: the configuration does not load, or fails.
    """
    with Workers(cancel) as workers:
        pair = [workers.start(f"{entry.label} {side}", fresh_process=entry.fresh_process) for side in "AB"]
        paces = []
        for index, worker in enumerate(pair):
            on_progress(Progress(stage="load", done=index, total=2))
            worker.ask("load", entry.plan, timeout_s=timeout_s)
            warm = cast(wire.WarmReply, worker.ask("warm", {}, timeout_s=timeout_s))
            paces.append(pace(warm["median_ns"]))
            park(worker)
        return alternate(
            pair, paces[0], rounds, random.Random(seed), "alone",  # noqa: S311 - an order of rounds

            lambda done: on_progress(Progress(stage="self-test", done=done, total=rounds)),
        )  # fmt: skip


# --- the race ---------------------------------------------------------------------------------------------


class _Race:
    """The state of one race; `run` is its story."""

    def __init__(
        self,
        entries: list[Entry],
        settings: Settings,
        workers: Workers,
        on_progress: Callable[[Progress], None],
        on_live: Live,
        folder: Path,
    ) -> None:
        self.entries = entries
        self.settings = settings
        self.workers = workers
        self.report = on_progress
        self.on_live = on_live
        self.folder = folder
        self.rng = random.Random(settings.seed)  # noqa: S311 - an order of rounds
        self.record = RaceRecord(ran=[Ran() for _ in entries])
        self.live: dict[int, Worker] = {}
        self.paces: dict[int, Pace] = {}
        self.twin: Worker | None = None  # of the anchor
        self.kept: dict[int, Path] = {}  # contestant -> file of its outputs
        self.standing = Standing(settings)
        self.counted = itertools.count()
        self.first_block_s: float | None = None
        self.measured_s = 0.0  # of the budget
        self.live_at = 0.0

    def run(self) -> RaceRecord:
        began = time.monotonic()
        try:
            self._run()
        except Cancelled:
            if not self.record.orders:
                raise
            self.record.outcome = "cancelled"
        self.record.wall_s = time.monotonic() - began
        return self.record

    def _run(self) -> None:
        references = list(dict.fromkeys((self.settings.anchor, self.settings.baseline)))
        others = [index for index in range(len(self.entries)) if index not in references]
        pending = list(others)
        outcomes: list[Outcome] = []
        for index in references:
            self._load(index)
        self._load_twin()
        while True:
            group = self._load_group(pending)
            self.record.groups.append(sorted([*self.live]))
            self._warm_up()
            if group or not others:  # a baseline alone answers nothing
                if not self.record.self_tests:
                    self._self_test("before")
                outcomes.append(self._rounds(share=self._share(group)))
                if not pending:
                    self._self_test("after")
                self._costs()
                self._energy()
            for index in group:
                self._end(index)
            if not pending:
                break
        self.record.outcome = max(outcomes, key=_OUTCOMES.index, default="rounds")
        for index in list(self.live):
            self._end(index)
        if self.twin is not None:
            self.twin.kill()
        self._compare_outputs()
        self._footprints()

    def _share(self, group: list[int]) -> float:
        """A group's part of the budget."""
        return len(group) / max(1, len(self.entries) - 1) if group else 1.0

    # --- beginnings and ends of contestants -----------------------------------------------------------------

    def _load(self, index: int) -> None:
        done = sum(ran.load is not None for ran in self.record.ran)
        self.report(
            Progress(stage="load", done=done, total=len(self.entries), text=self.entries[index].label)
        )
        try:
            worker, reply = start_loaded(self.workers, self.entries[index], self.settings.timeout_s)
        except Cancelled:
            raise
        except TunerError as error:
            self.record.ran[index].error = error
            return
        self.record.ran[index].load = reply
        self.live[index] = worker
        self._parked(worker)

    def _load_twin(self) -> None:
        """A second process of the anchor, for the self-tests; without it the race has no grade."""
        if self.settings.anchor not in self.live:
            return
        try:
            self.twin, _ = start_loaded(
                self.workers, self.entries[self.settings.anchor], self.settings.timeout_s
            )
        except Cancelled:
            raise
        except TunerError as error:
            self.record.notes.append(f"There was no self-test: {error.message}")
            return
        self._parked(self.twin)

    def _load_group(self, pending: list[int]) -> list[int]:
        """Load from `pending` what memory holds, at least one; what is left waits for the next group."""
        group: list[int] = []
        while pending and (not group or self._fits()):
            index = pending.pop(0)
            self._load(index)
            if index in self.live:
                group.append(index)
        return group

    def _fits(self) -> bool:
        loads = [ran.load for ran in self.record.ran if ran.load is not None]
        largest = max((one["baseline_rss_bytes"] + one["load_peak_rss_bytes"] for one in loads), default=0)
        return available_memory() > MEMORY_MARGIN * largest + MEMORY_RESERVE

    def _parked(self, worker: Worker) -> None:
        if not park(worker):
            self.record.frozen = False

    def _lost(self, index: int, error: TunerError) -> None:
        """A contestant failed: its part is over, whatever it measured stays."""
        self.record.ran[index].error = error
        self._end(index)

    def _end(self, index: int) -> None:
        if (worker := self.live.pop(index, None)) is not None:
            worker.kill()

    # --- warm-up and self-tests -----------------------------------------------------------------------------

    def _warm_up(self) -> None:
        todo = [index for index in self.live if self.record.ran[index].warm is None]
        for done, index in enumerate(todo):
            self.report(Progress(stage="warm-up", done=done, total=len(todo), text=self.entries[index].label))
            try:
                reply = self.live[index].ask("warm", {}, timeout_s=self.settings.timeout_s)
            except Cancelled:
                raise
            except TunerError as error:
                self._lost(index, error)
                continue
            self._parked(self.live[index])
            warm = self.record.ran[index].warm = cast(wire.WarmReply, reply)
            self.paces[index] = pace(warm["median_ns"])
            if index == self.settings.anchor and self.twin is not None:
                self._warm_twin()

    def _warm_twin(self) -> None:
        assert self.twin is not None
        try:
            self.twin.ask("warm", {}, timeout_s=self.settings.timeout_s)
            self._parked(self.twin)
        except Cancelled:
            raise
        except TunerError as error:
            self._lose_twin(error)

    def _lose_twin(self, error: TunerError) -> None:
        if self.twin is not None:
            self.twin.kill()
            self.twin = None
        self.record.notes.append(f"A self-test ended early: {error.message}")

    def _self_test(self, when: When) -> None:
        anchor = self.settings.anchor
        if self.twin is None or anchor not in self.live:
            return
        began = time.monotonic()

        def report(done: int) -> None:
            self.report(Progress(stage="self-test", done=done, total=SELF_TEST_ROUNDS, text=when))

        report(0)
        try:
            test = alternate(
                (self.live[anchor], self.twin), self.paces[anchor], SELF_TEST_ROUNDS, self.rng, when, report
            )
            self.record.self_tests.append(test)
            self.record.frozen &= test.frozen
        except Cancelled:
            raise
        except TunerError as error:
            if not self.live[anchor].alive:
                self._lost(anchor, error)
            self._lose_twin(error)
        self.measured_s += time.monotonic() - began

    # --- rounds ---------------------------------------------------------------------------------------------

    def _rounds(self, *, share: float) -> Outcome:
        """Run rounds until the answer is known, the rounds are used up, or the budget is."""
        exact = split_runs(self.settings.runs) if self.settings.runs is not None else None
        racing, paces = sorted(self.live), self.paces
        began = time.monotonic()
        counted = disturbed = 0
        while True:
            racing = [index for index in racing if index in self.live]
            elapsed_s = time.monotonic() - began
            if exact is not None:
                outcome: Outcome | None = "rounds" if counted == len(exact) else None
                paces = {i: self._exact_pace(i, exact[counted]) for i in racing} if outcome is None else paces
            else:
                outcome = self._stop(racing, counted, elapsed_s, share)
                racing = self.standing.still_open(racing, counted, self.live)
            if outcome is not None or not racing:
                return outcome or "rounds"
            self._report_round(counted, len(exact) if exact else None, elapsed_s)
            if self._round(racing, paces):
                counted += 1
            elif (disturbed := disturbed + 1) > MAX_DISCARDED:
                return "disturbed"
            else:
                time.sleep(DISCARD_PAUSE_S)

    def _stop(self, racing: list[int], counted: int, elapsed_s: float, share: float) -> Outcome | None:
        per_round_s = elapsed_s / counted if counted else 0.0
        after_s = SELF_TEST_ROUNDS * per_round_s if self.twin is not None else 0.0
        budget_s = max(0.0, self.settings.budget_s - self.measured_s) * share - after_s
        return self.standing.stop(racing, self.live, counted, elapsed_s=elapsed_s, budget_s=budget_s)

    def _exact_pace(self, index: int, runs: int) -> Pace:
        warm = cast(wire.WarmReply, self.record.ran[index].warm)
        return exact_pace(warm["median_ns"], runs)

    def _round(self, racing: list[int], paces: Mapping[int, Pace]) -> bool:
        """One block of everybody; False when the counters say that the round must not count."""
        order = self.rng.sample(racing, len(racing))
        number = next(self.counted)
        blocks: list[Block] = []
        for position, index in enumerate(order):
            try:
                reply = run_block(self.live[index], paces[index])
            except Cancelled:
                raise
            except TunerError as error:
                self._lost(index, error)
                continue
            self._parked(self.live[index])
            blocks.append(self._block(index, number, position, reply))
        reason = next(filter(None, (void_reason(block) for block in blocks)), "")
        if reason:
            self.record.discarded.append(Discarded(reason=reason, blocks=blocks))
            return False
        self.record.blocks += blocks
        self.record.orders.append([block.contestant for block in blocks])
        for block in blocks:
            load = cast(wire.LoadReply, self.record.ran[block.contestant].load)
            seconds = statistics.median(block.latencies_s) / max(1, load["batch_size"])
            self.standing.add(block.contestant, number, seconds)
        return True

    def _block(self, index: int, number: int, position: int, reply: wire.BlockReply) -> Block:
        if self.first_block_s is None:
            self.first_block_s = reply["started_s"]
        return Block(
            contestant=index,
            round=number,
            position=position,
            at_s=reply["started_s"] - self.first_block_s,
            refill_s=reply["refill_ns"] / 1e9,
            latencies_s=[ns / 1e9 for ns in reply["latencies_ns"]],
            counters=reply["counters"],
        )

    def _report_round(self, counted: int, planned: int | None, elapsed_s: float) -> None:
        now = time.monotonic()
        if now - self.live_at < REPORT_S:
            return
        self.live_at = now
        standing = self.standing.contrasts(sorted(self.standing.medians), self.live)
        predicted = planned or max(counted, self.standing.predicted(standing, self.record.self_tests))
        self.report(Progress(stage="rounds", done=counted, total=predicted))
        reference = self.standing.reference(self.live)
        contrasts = [
            {"candidate": index, "baseline": reference, "label": self.entries[index].label, **one.to_dict()}
            for index, one in standing.items()
        ]
        self.on_live(
            {
                "rounds": counted,
                "predicted_rounds": predicted,
                "elapsed_s": elapsed_s,
                "contrasts": contrasts,
            }
        )

    # --- passes of their own --------------------------------------------------------------------------------

    def _costs(self) -> None:
        """Find what a run costs and what it computes, of everybody that is alive and was not asked yet."""
        todo = [i for i in sorted(self.live) if self.record.ran[i].cost is None]
        for done, index in enumerate(todo):
            self.report(Progress(stage="cost", done=done, total=len(todo), text=self.entries[index].label))
            try:
                self.record.ran[index].cost = read_cost(self.live[index], self.paces[index])
            except Cancelled:
                raise
            except TunerError as error:
                self._lost(index, error)
                continue
            self._keep_outputs(index)

    def _keep_outputs(self, index: int) -> None:
        """Outputs of a session that is warm; what they should be is found when everybody has left."""
        if self.entries[index].reference is None:
            return
        path, timeout_s = self.folder / f"outputs-{index}.npz", self.paces[index].timeout_s
        if keep_outputs(self.live[index], self.record.ran[index], path, timeout_s):
            self.kept[index] = path
        elif not self.live[index].alive:
            self._end(index)  # what it measured stands

    def _compare_outputs(self) -> None:
        """Hold what everybody computed against what it should be."""
        compare_outputs(
            self.workers, self.entries, self.kept, self.record, self.settings.timeout_s, self.report
        )

    def _energy(self) -> None:
        """Joules per run; a quick race does not take the seconds that this needs."""
        if self.settings.precision.name == "quick":
            self.record.energy_note = "Energy is read at the precisions standard and publish only."
            return
        self.report(Progress(stage="energy", done=0, total=0))
        read_energy(self.live, self.paces, self.record)

    def _footprints(self) -> None:
        """Memory and first runs of new shapes, each in a worker that did nothing before."""
        todo = [i for i, ran in enumerate(self.record.ran) if ran.error is None and ran.load is not None]
        for done, index in enumerate(todo):
            entry = self.entries[index]
            self.report(Progress(stage="memory", done=done, total=len(todo), text=entry.label))
            footprint(self.workers, entry, self.record.ran[index], self.paces[index], self.settings.timeout_s)


_OUTCOMES: Sequence[Outcome] = ("decided", "rounds", "hopeless", "budget", "disturbed", "cancelled")
