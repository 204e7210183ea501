"""Runs a comparison: launches, interleaved rounds of blocks, and costs afterwards.

A comparison consists of launches. In each launch every configuration gets a fresh process. The ORT default
gets two, the A/A control: their difference is noise. In each round every live process runs one block, in a
new random order; all others are stopped with SIGSTOP. Only blocks of the same round are compared, so a
machine that slows down affects all configurations alike. New launches sample the differences between
processes of one configuration. Costs that would disturb the timing (CPU, memory, outputs, energy) are
measured in separate passes within the same budget.

This module uses workers and clocks, but no store and no queue. It only decides when to stop; `evidence`
computes the verdicts from its record.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.other_processes import between
from core.evidence.record import Block, Discarded, Entry, Key, ProcessResult, RawComparison, Settings
from core.evidence.result_types import Outcome
from core.evidence.stopping import InterimResult, contrast_values
from core.evidence.streams import seconds_per_run
from core.process import scratch
from core.process.contestant_workers import SharedForkServer, Workers
from core.process.cpu_use import snapshot
from core.process.job_worker import Progress
from core.run.launches.blocks import REPORT_S, SWITCH_S, exact_pace, run_block, split_runs, void_reason
from core.run.launches.budget import (
    EXACT_LAUNCHES,
    EXACT_LAUNCHES_DEAR,
    Costs,
    check_budget,
    check_starts,
    interval_budget_s,
    launches_left,
    min_rounds_of_next_launch,
    rounds_for_p50,
    rounds_of_launch,
    screening_rounds,
)
from core.run.launches.costs import (
    after_s,
    compare_outputs,
    footprint,
    keep_outputs,
    read_cost,
    read_energy,
    run_peak,
)
from core.run.launches.processes import LaunchProcesses
from core.wire.errors import Cancelled, TunerError

MAX_DISCARDED = 20  # after so many disturbed rounds, waiting longer does not help
DISCARD_PAUSE_S = 0.05
WARM_SHARE = 0.15  # of the budget, for the warm-ups of one launch: those of slow models are cut short
RECENT_ROUNDS = 20  # decided configurations drop out, so rounds get shorter

Live = Callable[[dict[str, Any]], None]


def run_launches(
    entries: Sequence[Entry],
    settings: Settings,
    *,
    cancel: threading.Event,
    on_progress: Callable[[Progress], None],
    on_live: Live,
    earlier: RawComparison | None = None,
    fork_server: SharedForkServer | None = None,
) -> RawComparison:
    """Compare `entries` with each other.

    A configuration that fails drops out, with its error in the record; the others continue. When the
    comparison is cancelled during the rounds, the record holds the completed rounds.

    Args:
        entries: the configurations; a single one is compared with a second process of itself.
        settings: when to stop.
        cancel: set it from any thread to stop.
        on_progress: called for each step.
        on_live: called a few times a second with {"rounds", "generation", "predicted_rounds", "elapsed_s",
            "contrasts", "statistic", "p50_s", "rate_per_s", "rows_fed"}, where a contrast has indices of
            entries as "candidate" and "baseline", and numbers as `contrast_values` returns them.
        earlier: launches of a comparison of the same entries, which this one continues.
        fork_server: a fork server that is kept for later comparisons; None: a new one.

    Raises:
        Cancelled: before the first complete round.
        BudgetError: the budget cannot give a p50.
        WorkerError: no worker could be started at all.
    """
    with scratch.folder() as folder, Workers(cancel, fork_server) as workers:
        one = _RunningComparison(list(entries), settings, workers, on_progress, on_live, folder)
        if earlier is not None:
            one.continue_from(earlier)
        return one.run()


class _RunningComparison:
    """The state of one comparison; `run` performs it."""

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
        self.record = RawComparison(
            ran=[ProcessResult() for _ in entries],
            runs=settings.runs,
            by_throughput=any(entry.plan.get("streams", 1) > 1 for entry in entries),
        )
        self.launch_processes = LaunchProcesses(
            workers, entries, self.record, self.rng, self._report_start, settings.timeout_s
        )
        self.kept: dict[int, Path] = {}  # index of the configuration -> file of its outputs
        self.interim_result = InterimResult(settings)
        self.latencies_s: dict[int, list[float]] = {}  # medians of the blocks, where throughput is compared
        self.began = time.monotonic()
        self.paused_before_s = workers.paused_s
        self.first_block_s: float | None = None
        # Of each process of a screening: when its start began, and how many had failed by then.
        self.starts: list[tuple[float, int]] = []
        self.offset_s = 0.0  # of this comparison's blocks, after those of the continued one
        self.number = 0  # of the next round, discarded ones included
        self.made = 0  # valid rounds
        self.made_before = 0  # valid rounds of the earlier groups
        self.continued_launches = 0  # launches of the comparison that this one continues
        self.rounds_s: list[float] = []  # duration of each
        self.predicted = 0  # total number of rounds
        self.live_at = float("-inf")
        self.stage = settings.effort.rounds > 0 or settings.effort.rivals  # of a search; no result

    def continue_from(self, earlier: RawComparison) -> None:
        """Start with the launches of another comparison of the same entries."""
        record = self.record
        record.blocks += earlier.blocks
        record.orders += earlier.orders
        record.generations += earlier.generations
        record.discarded += earlier.discarded
        self.number = 1 + max((block.round for block in earlier.blocks), default=-1)
        self.offset_s = max((block.at_s + block.counters["wall_s"] for block in earlier.blocks), default=0.0)
        self.made = len(earlier.orders)
        self.continued_launches = len({block.generation for block in earlier.blocks})
        for block in earlier.blocks:
            rows = (earlier.ran[block.contestant].load or {"batch_size": 1})["batch_size"]
            self._add_to_interim(block, rows)

    def run(self) -> RawComparison:
        before = snapshot()
        try:
            self._run()
        except Cancelled:
            if not self.record.orders:
                raise
            self.record.outcome = "cancelled"
        self.record.wall_s = time.monotonic() - self.began
        self.record.other_processes = between(before, snapshot(), own=self.workers.pids)
        return self.record

    def _run(self) -> None:
        references = list(dict.fromkeys((self.settings.anchor, self.settings.baseline)))
        pending = [index for index in range(len(self.entries)) if index not in references]
        outcomes: list[Outcome] = []
        while not outcomes or pending:
            outcome, pending = self._group(references, pending)
            outcomes.append(outcome)
        self.record.outcome = max(outcomes, key=_OUTCOMES.index, default="rounds")
        self._compare_outputs()
        if not self.stage:
            self._footprints()

    def _now(self) -> float:
        """Monotonic seconds that stand still while ORTune is stopped: a pause spends no budget."""
        return time.monotonic() - (self.workers.paused_s - self.paused_before_s)

    def _spent_s(self) -> float:
        return self._now() - self.began

    def _group(self, references: list[int], pending: list[int]) -> tuple[Outcome, list[int]]:
        """Compare the references with as many of `pending` as memory holds; return the rest too."""
        active, left = [*references, *pending], list[int]()
        exact = self._exact_rounds()
        deadline = self.began + self.settings.budget_s
        outcome: Outcome | None = None
        self.made_before = self.made if self.record.groups else 0
        launches = 0
        while outcome is None:
            keys = [key for index in active for key in self._processes(index)]
            waiting = {
                index
                for index, _ in self.launch_processes.start(keys, references, self._warm_cap_s(len(keys)))
            }
            if launches == 0:
                left = [index for index in pending if index in waiting]
                active = [index for index in active if index not in waiting]
                self.record.groups.append(sorted(self.launch_processes.alive()))
                deadline = self._deadline(len(pending) - len(left), len(pending))
            active = self._not_failed(active)
            if not self._has_comparison(active, references, pending):
                outcome = "rounds"
                break
            rounds: Sequence[int | None] = exact[launches] if exact else ()
            rounds = rounds or self._plan(active, deadline, launches)
            outcome = self._rounds(rounds, deadline)
            self._report_live(0, deadline, before=self.record.generations[-1].number + 1)
            launches += 1
            active = self._not_failed(active)
            if outcome is None and not self._has_comparison(active, references, pending):
                outcome = "rounds"
            elif outcome is None and (exact or self.settings.effort.rounds):
                outcome = "rounds" if launches >= len(exact) else None
            elif outcome is None:
                outcome = self._stop(active, self.continued_launches + launches, deadline)
            if outcome is None:
                active = (
                    active if exact else self._without_decided(active, self.continued_launches + launches)
                )
                self.launch_processes.end_all()
        if not self.stage:
            self._costs(active)
            self._energy()
        self.launch_processes.end_all()
        return outcome, left

    def _deadline(self, here: int, pending: int) -> float:
        """When the rounds of this group must end: later groups need their share of the budget."""
        left_s = self.settings.budget_s - self._spent_s()
        return self.began + self._spent_s() + left_s * (here / pending if pending else 1.0)

    def _has_comparison(
        self, active: Sequence[int], references: Sequence[int], pending: Sequence[int]
    ) -> bool:
        """Whether there is anything to compare: references alone count only if nothing else was pending."""
        return bool(set(active) - set(references)) if pending else bool(active)

    def _report_start(self, done: int, total: int, label: str) -> None:
        """Report which configuration is started; from the second launch on as part of the rounds.

        Raises:
            BudgetError: the remaining starts of a screening do not fit into its budget.
        """
        if self.settings.effort.rounds:
            self._check_starts(done, total)
        if not self.made:
            self.report(Progress(stage="load", done=done, total=total, text=label))
        elif self.predicted:
            text = f"restarting {label}"
            self.report(Progress(stage="rounds", done=self.made, total=self.predicted, text=text))

    def _check_starts(self, done: int, total: int) -> None:
        failed = len(self.launch_processes.lost_copies) + sum(
            one.error is not None for one in self.record.ran
        )
        self.starts.append((self._now(), failed))
        # A failed start, perhaps after its time limit, does not show how long the others take.
        took = [then - at for (at, had), (then, has) in itertools.pairwise(self.starts) if had == has]
        if not took:
            return
        quickest_s = min(took)
        spent_s, budget_s = self._spent_s(), self.settings.budget_s
        check_starts(quickest_s, total - done, spent_s=spent_s, budget_s=budget_s)

    def _not_failed(self, active: Sequence[int]) -> list[int]:
        return [index for index in active if self.record.ran[index].error is None]

    def _processes(self, index: int) -> list[Key]:
        copies = (0, 1) if index == self.settings.anchor else (0,)
        return [(index, copy) for copy in copies if (index, copy) not in self.launch_processes.lost_copies]

    def _without_decided(self, active: list[int], launches: int) -> list[int]:
        """Remove decided configurations after measuring their costs; the references stay."""
        left = self.interim_result.still_open(active, launches, self.made, active)
        gone = [index for index in active if index not in left]
        if gone and not self.stage:
            self._costs(gone)
        return left

    # --- number of rounds and stopping ----------------------------------------------------------------------

    def _warm_cap_s(self, processes: int) -> float | None:
        """Longest warm-up of a process, seconds; None with an exact number of runs, which has no budget."""
        if self.settings.runs is not None:
            return None
        return WARM_SHARE * self.settings.budget_s / max(1, processes)

    def _exact_rounds(self) -> list[list[int]]:
        """Runs of every round of every launch, where their number is given; else empty."""
        if self.settings.runs is None:
            return []
        rounds = split_runs(self.settings.runs)
        dear = any(entry.fresh_process for entry in self.entries)
        count = min(len(rounds), EXACT_LAUNCHES_DEAR if dear else EXACT_LAUNCHES)
        edges = [round(i * len(rounds) / count) for i in range(count + 1)]
        return [rounds[a:b] for a, b in itertools.pairwise(edges)]

    def _current_costs(self) -> Costs:
        live = [index for index, _ in self.launch_processes.live]
        expected_s = sum(self.launch_processes.paces[index].expected_s + SWITCH_S for index in live)
        return Costs(
            start_s=self.record.generations[-1].start_s,
            round_s=statistics.median(self.rounds_s[-RECENT_ROUNDS:]) if self.rounds_s else expected_s,
            after_s=self._after_s(),
            runs=min((self.launch_processes.paces[index].min_runs for index in live), default=1),
        )

    def _after_s(self) -> float:
        """About how many seconds the passes after the rounds take, for all that have not failed."""
        if self.stage:
            return 0.0
        asked = [index for index in self.launch_processes.paces if self.record.ran[index].error is None]
        return math.fsum(
            after_s(self.entries[index], self.record.ran[index], self.launch_processes.known_ns[index] / 1e9)
            for index in asked
        )

    def _plan(self, active: Sequence[int], deadline: float, launches: int) -> list[None]:
        """One None for each round of this launch: the pace sets the length of its blocks."""
        spending = self._current_costs()
        rough = self.settings.effort.rounds
        anchor_ns = self.launch_processes.known_ns.get(self.settings.anchor)
        if anchor_ns is not None:
            self.interim_result.prior = self.record.prior = self.settings.prior_at(anchor_ns / 1e9)
        if rough:
            return [None] * screening_rounds(spending, rough)
        if launches == 0 and not self.made and not self.stage:
            check_budget(spending, self.settings.budget_s, self._spent_s())
            self.record.interval_budget_s = interval_budget_s(spending, self._spent_s())
        left_s = deadline - self._now() - spending.after_s
        ratio = self.interim_result.variance_ratio(active, active)
        rounds = rounds_of_launch(
            spending, left_s, made=self._rounds_of_group(), variance_ratio=ratio, launches=launches
        )
        return [None] * rounds

    def _rounds_of_group(self) -> int:
        """Valid rounds of the current group."""
        return self.made - self.made_before

    def _stop(self, active: Sequence[int], launches: int, deadline: float) -> Outcome | None:
        spending = self._current_costs()
        left_s = deadline - self._now() - spending.after_s
        last = self.record.generations[-1].rounds
        made = rounds_for_p50(spending) if self.stage else self._rounds_of_group()  # a screening needs no p50
        least = min_rounds_of_next_launch(spending, made, launches)
        return self.interim_result.stop(
            active,
            active,
            launches,
            rounds=self.made,
            elapsed_s=self._spent_s(),
            left=launches_left(spending, left_s, last, least=least),
        )

    # --- rounds ---------------------------------------------------------------------------------------------

    def _rounds(self, rounds: Sequence[int | None], deadline: float) -> Outcome | None:
        """Run the rounds of a launch; return an outcome where the comparison must end with it."""
        done, exact = 0, rounds[0] is not None
        while self.launch_processes.live and (
            done < len(rounds) or self._must_continue(deadline, exact=exact)
        ):
            if not exact and done and self._is_late(deadline):
                return None  # the budget ends within the launch: `_stop` returns the outcome
            self._report_round(max(1, len(rounds) - done), deadline)
            began = self._now()
            if self._round(rounds[done] if exact else None):
                self.rounds_s.append(self._now() - began)
                self.record.generations[-1].rounds += 1
                done, self.made = done + 1, self.made + 1
            elif len(self.record.discarded) > MAX_DISCARDED:
                return "disturbed"
            else:
                time.sleep(DISCARD_PAUSE_S)
        return None

    def _must_continue(self, deadline: float, *, exact: bool) -> bool:
        """Whether a launch exceeds its planned rounds: no other launch fits, and there is no p50 yet."""
        if exact or self.stage:
            return False
        spending = self._current_costs()
        left_s = deadline - self._now() - spending.after_s
        return self._rounds_of_group() < rounds_for_p50(spending) and not launches_left(spending, left_s, 1)

    def _is_late(self, deadline: float) -> bool:
        """Whether the budget is spent; rounds for a p50 run anyway, and `_plan` made the others fit."""
        if self.settings.effort.rounds:
            return False  # the starts are already paid for
        spending = self._current_costs()
        enough = self.stage or self._rounds_of_group() >= rounds_for_p50(spending)
        return enough and self._now() + spending.round_s + spending.after_s > deadline

    def _round(self, runs: int | None) -> bool:
        """Run one block of every live process; False when the counters show that the round is invalid."""
        order = self.rng.sample(list(self.launch_processes.live), len(self.launch_processes.live))
        number, self.number = self.number, self.number + 1
        blocks: list[Block] = []
        for key in order:
            if key not in self.launch_processes.live:
                continue
            pace = (
                self.launch_processes.paces[key[0]]
                if runs is None
                else exact_pace(self.launch_processes.known_ns[key[0]], runs)
            )
            try:
                reply = run_block(self.launch_processes.live[key], pace)
            except Cancelled:
                raise
            except TunerError as error:
                self.launch_processes.drop_failed(key, error)
                continue
            self.launch_processes.park(key)
            blocks.append(self._block(key, number, len(blocks), reply))
        if not blocks:
            return False  # all of them failed
        reason = next(filter(None, (void_reason(block) for block in blocks)), "")
        if reason:
            self.record.discarded.append(Discarded(reason=reason, blocks=blocks))
            return False
        self.record.blocks += blocks
        self.record.orders.append([block.contestant for block in blocks])
        for block in blocks:
            load = self.record.ran[block.contestant].load
            assert load is not None
            self._add_to_interim(block, load["batch_size"])
        return True

    def _add_to_interim(self, block: Block, rows: int) -> None:
        seconds = seconds_per_run(block, by_throughput=self.record.by_throughput) / max(1, rows)
        if self.record.by_throughput:
            median_s = statistics.median(block.latencies_s)
            self.latencies_s.setdefault(block.contestant, []).append(median_s)
        self.interim_result.add((block.contestant, block.copy), block.generation, block.round, seconds)

    def _block(self, key: Key, number: int, position: int, reply: wire.BlockReply) -> Block:
        if self.first_block_s is None:
            self.first_block_s = reply["started_s"]
        refill_ns = reply["refill_ns"]
        return Block(
            contestant=key[0],
            copy=key[1],
            generation=self.record.generations[-1].number,
            round=number,
            position=position,
            at_s=self.offset_s + reply["started_s"] - self.first_block_s,
            refill_s=None if refill_ns is None else refill_ns / 1e9,
            latencies_s=[ns / 1e9 for ns in reply["latencies_ns"]],
            counters=reply["counters"],
            window_s=reply.get("window_s"),
            stream_runs=tuple(reply.get("stream_runs", ())),
            stream_completed=tuple(reply.get("stream_completed", ())),
            stream_refills_s=tuple(ns / 1e9 for ns in reply.get("stream_refills_ns", ())),
        )

    def _report_round(self, more: int, deadline: float) -> None:
        now = self._now()
        if now - self.live_at < REPORT_S:
            return
        self.live_at = now
        self._report_live(more, deadline, before=self.record.generations[-1].number)
        self.report(Progress(stage="rounds", done=self.made, total=self.predicted))

    def _report_live(self, more: int, deadline: float, *, before: int) -> None:
        """Report the estimates so far; the last launch is reported before the passes that follow it.

        Args:
            more: remaining rounds of this launch.
            deadline: of this group.
            before: number of the first launch that has not ended.
        """
        now = self._now()
        measured = sorted({index for index, _ in self.interim_result.medians})
        found = self.interim_result.interim(measured, measured, before=before)
        launches = self.record.generations[-1].number + 1
        self.predicted = self._predicted_rounds(measured, launches, more, deadline - now)
        reference = self.interim_result.reference(measured)
        contrasts = [
            {
                "candidate": index,
                "baseline": reference,
                "label": self.entries[index].label,
                "statistic": "throughput" if self.record.by_throughput else "median",
                **contrast_values(one),
            }
            for index, one in found.items()
            if index != reference
        ]
        self.on_live(
            {
                "rounds": self.made,
                "generation": launches,
                "predicted_rounds": self.predicted,
                "elapsed_s": now - self.began,
                "contrasts": contrasts,
                "statistic": "throughput" if self.record.by_throughput else "median",
                "p50_s": {index: self._p50_s(index) for index in measured},
                "rate_per_s": {index: self._rate_per_s(index) for index in measured},
                "rows_fed": {
                    index: load["batch_size"] for index in measured if (load := self.record.ran[index].load)
                },
            }
        )

    def _rate_per_s(self, index: int) -> float | None:
        """Samples per second."""
        per_row = self.interim_result.p50_s(index)
        return 1 / per_row if per_row else None

    def _p50_s(self, index: int) -> float | None:
        """Median latency of an inference, not per sample."""
        if self.record.by_throughput:
            own = self.latencies_s.get(index)
            return statistics.median(own) if own else None
        per_row, load = self.interim_result.p50_s(index), self.record.ran[index].load
        return None if per_row is None or load is None else per_row * max(1, load["batch_size"])

    def _predicted_rounds(self, measured: Sequence[int], launches: int, more: int, left_s: float) -> int:
        """Expected total number of rounds: as many as the answer needs, at most what the budget holds."""
        if self.settings.runs is not None:
            return len(split_runs(self.settings.runs))
        each = max(1, round((self.made + more) / launches))
        wanted = each * self.interim_result.predicted(measured, measured)
        spending = self._current_costs()
        round_s = spending.round_s + spending.start_s / each
        held = self.made + max(more, math.floor((left_s - spending.after_s) / round_s))
        return max(self.made + more, min(wanted, held))

    # --- separate passes ------------------------------------------------------------------------------------

    def _costs(self, indices: Sequence[int]) -> None:
        """Measure the cost of a run and keep its outputs, for all `indices` without them."""
        todo = [
            i for i in indices if self.record.ran[i].cost is None and (i, 0) in self.launch_processes.live
        ]
        for done, index in enumerate(todo):
            self.report(Progress(stage="cost", done=done, total=len(todo), text=self.entries[index].label))
            worker, pace, ran = (
                self.launch_processes.live[index, 0],
                self.launch_processes.paces[index],
                self.record.ran[index],
            )
            try:
                run_peak(worker, ran, pace)
                ran.cost = read_cost(worker, pace)
            except Cancelled:
                raise
            except TunerError as error:
                self.launch_processes.drop_failed((index, 0), error)
                continue
            self._keep_outputs(index)

    def _keep_outputs(self, index: int) -> None:
        """Keep the outputs of a warm session; references run later, after all processes have ended."""
        if self.entries[index].reference is None:
            return
        worker = self.launch_processes.live[index, 0]
        path, timeout_s = self.folder / f"outputs-{index}.npz", self.launch_processes.paces[index].timeout_s
        if keep_outputs(worker, self.record.ran[index], path, timeout_s):
            self.kept[index] = path
        elif not worker.alive:
            self.launch_processes.end((index, 0))  # its measurements stay valid

    def _compare_outputs(self) -> None:
        """Compare the kept outputs with those of the references."""
        compare_outputs(
            self.workers, self.entries, self.kept, self.record, self.settings.timeout_s, self.report
        )

    def _energy(self) -> None:
        """Measure joules per run; a comparison of effort `quick` skips it, because it takes seconds."""
        if self.settings.effort.name == "quick":
            self.record.energy_note = "Energy is measured with effort standard or publish only."
            return
        self.report(Progress(stage="energy", done=0, total=0))
        live = {index: worker for (index, copy), worker in self.launch_processes.live.items() if copy == 0}
        read_energy(live, self.launch_processes.paces, self.record)

    def _footprints(self) -> None:
        """Measure memory and first runs of new shapes, each in a fresh worker."""
        todo = [i for i, ran in enumerate(self.record.ran) if ran.error is None and ran.load is not None]
        for done, index in enumerate(todo):
            entry = self.entries[index]
            self.report(Progress(stage="memory", done=done, total=len(todo), text=entry.label))
            pace = self.launch_processes.paces[index]
            footprint(self.workers, entry, self.record.ran[index], pace, self.settings.timeout_s)


_OUTCOMES: Sequence[Outcome] = ("decided", "rounds", "hopeless", "budget", "disturbed", "cancelled")
