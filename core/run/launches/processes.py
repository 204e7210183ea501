"""The processes of one launch: start, warm up, stop and end each.

A configuration that fails in any launch drops out, with its error in the record; its earlier measurements
stay. A failed A/A control drops out alone. This module has no notion of rounds, verdicts or budgets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from core import wire
from core.evidence.record import Entry, Key, Launch, RawComparison
from core.process.contestant_workers import Worker, Workers
from core.run.launches.blocks import Pace, pace, park, start_loaded
from core.wire.errors import Cancelled, TunerError
from core.wire.limits import available_memory

MEMORY_RESERVE = 256 << 20
MEMORY_MARGIN = 1.25
SEEDS = 2**31


class LaunchProcesses:
    """Live processes, by configuration and copy."""

    def __init__(
        self,
        workers: Workers,
        entries: Sequence[Entry],
        record: RawComparison,
        rng: random.Random,
        starting: Callable[[int, int, str], None],
        timeout_s: float,
    ) -> None:
        """Create it without processes; `starting` is called before each start with done, total, label."""
        self.workers = workers
        self.entries = entries
        self.record = record
        self.rng = rng
        self.starting = starting
        self.timeout_s = timeout_s
        self.live: dict[Key, Worker] = {}
        self.paces: dict[int, Pace] = {}
        self.known_ns: dict[int, int] = {}  # typical run of a configuration's earlier processes
        self.lost_copies: set[Key] = set()

    def alive(self) -> set[int]:
        """Indices of the configurations with a live process."""
        return {index for index, _ in self.live}

    def keys(self, index: int) -> list[Key]:
        """The live processes of a configuration."""
        return [key for key in self.live if key[0] == index]

    def start(self, keys: Sequence[Key], required: Sequence[int], warm_cap_s: float | None) -> list[Key]:
        """Start a launch of `keys` in random order, and return those for which memory was too small.

        Args:
            keys: processes to start.
            required: configurations that the others are compared with: they are started regardless of memory.
            warm_cap_s: longest warm-up of each; None: the usual one.

        Raises:
            Cancelled: the comparison was cancelled.
        """
        began, paused_s = time.monotonic(), self.workers.paused_s
        number = len(self.record.generations)
        launch = Launch(number=number, order=[], layouts={}, start_s=0.0)
        self.record.generations.append(launch)
        left: list[Key] = []
        for done, key in enumerate(self.rng.sample(list(keys), len(keys))):
            if self.record.ran[key[0]].error is not None:  # its other copy failed just now
                continue
            if key[0] not in required and self._has_optional(required) and not self._fits(len(required)):
                left.append(key)
                continue
            self.starting(done, len(keys), self.entries[key[0]].label)
            self._start(key, launch, warm_cap_s)
        launch.start_s = time.monotonic() - began - (self.workers.paused_s - paused_s)
        return left

    def _start(self, key: Key, launch: Launch, warm_cap_s: float | None) -> None:
        index = key[0]
        ran, seed = self.record.ran[index], self.rng.randrange(SEEDS)
        try:
            worker, reply = start_loaded(
                self.workers,
                self.entries[index],
                self.timeout_s,
                layout_seed=seed,
                again=ran.load is not None,
            )
            self.live[key] = worker
            ran.load = ran.load or reply
            self._warm_up(key, warm_cap_s)
        except Cancelled:
            raise
        except TunerError as error:
            self.drop_failed(key, error)
            return
        launch.order.append(key)
        if "layout" in reply:
            launch.layouts[key] = reply["layout"]

    def _warm_up(self, key: Key, cap_s: float | None) -> None:
        index, _ = key
        known_ns = self.known_ns.get(index)
        arguments = {"known_ns": known_ns, "cap_s": cap_s}
        reply = self.live[key].ask(wire.WARM, arguments, timeout_s=self.timeout_s)
        self.park(key)
        ran = self.record.ran[index]
        ran.warm = ran.warm or reply
        if known_ns is None:
            self.known_ns[index] = reply["median_ns"]
            self.paces[index] = pace(reply["median_ns"])

    def _has_optional(self, required: Sequence[int]) -> bool:
        return any(index not in required for index, _ in self.live)

    def _fits(self, reserved: int) -> bool:
        loads = [ran.load for ran in self.record.ran if ran.load is not None]
        largest = max((one["baseline_rss_bytes"] + one["load_peak_rss_bytes"] for one in loads), default=0)
        missing = max(0, reserved - len(self.live))
        return available_memory() > (1 + missing) * MEMORY_MARGIN * largest + MEMORY_RESERVE

    def park(self, key: Key) -> None:
        """Stop a process with SIGSTOP; the record notes where that is impossible."""
        if not park(self.live[key]):
            self.record.frozen = False

    def drop_failed(self, key: Key, error: TunerError) -> None:
        """Drop a failed process's configuration but keep its measurements; of a control, only the copy."""
        index, copy = key
        ran = self.record.ran[index]
        if copy and ran.error is None and ran.load is not None:
            self.lost_copies.add(key)
            self.record.notes.append(f"The A/A test ended early: {error.message}")
            self.end(key)
            return
        ran.error = ran.error or error
        for one in self.keys(index):
            self.end(one)

    def end(self, key: Key) -> None:
        """End one process."""
        if (worker := self.live.pop(key, None)) is not None:
            worker.kill()

    def end_all(self) -> None:
        """End every process of the launch."""
        for key in list(self.live):
            self.end(key)
